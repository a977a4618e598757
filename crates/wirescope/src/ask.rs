//! Commands that ask or order a running instance, over its control socket: `status`, `triggers`, `fire`, `dumps`, `losses`,
//! `groups` and `watch`.
//!
//! Without `--control` they find the only instance that this user may ask, or name those that there are.

mod said;

use crate::args::{AskArgs, DoorArgs, DumpsVerb, FireArgs, TriggerArgs, TriggerWords, TriggersVerb};
use crate::plan::places::STDOUT;
use crate::words::counted;
use crate::{DONE, NoResult, UNDONE, print_text, told};
use http::Method;
use scope_api::client::{AskError, Client, Credentials, encoded};
use scope_api::find::instances;
use scope_api::fire::Fire;
use scope_api::trigger::Trigger;
use scope_api::trust::{BadCertificate, OwnCertificate, Trust, Untrusted};
use scope_fault::{Fault, Sentence, Setting, sentence};
use scope_spelling::printable::{json_line, shell_word};
use serde_json::Value;
use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};

/// Where this system has the certificates that it believes.
const SYSTEM_CA: &str = "/etc/ssl/certs/ca-certificates.crt";
/// Dumps of one question.
const PAGE: usize = 1000;

/// `wirescope status`.
pub fn status(args: &AskArgs) -> u8 {
    one(args, "status", said::status)
}

/// `wirescope losses`.
pub fn losses(args: &AskArgs) -> u8 {
    one(args, "losses", said::losses)
}

/// `wirescope groups`.
pub fn groups(args: &AskArgs) -> u8 {
    one(args, "groups", said::groups)
}

/// `wirescope triggers`.
pub fn triggers(what: &TriggersVerb) -> u8 {
    match what {
        TriggersVerb::List(args) => one(args, "triggers", said::triggers),
        TriggersVerb::Add(words) => put(words, false),
        TriggersVerb::Change(words) => put(words, true),
        TriggersVerb::Remove(TriggerArgs { name, ask }) => {
            let removed = client(ask).and_then(|client| {
                let what = format!("triggers/{}", encoded(name));
                client.json(Method::DELETE, &what, None).map_err(|error| no(&client, error))
            });
            told(removed.map(|value| if ask.json { line(&value) } else { format!("{name}: removed\n") }))
        }
        TriggersVerb::Arm(args) => arm(args, "arm"),
        TriggersVerb::Disarm(args) => arm(args, "disarm"),
    }
}

/// Adds a trigger, or changes it: then what isn't said stays as it is.
fn put(words: &TriggerWords, is_change: bool) -> u8 {
    let ask = &words.ask;
    let done = client(ask).and_then(|client| {
        let what = format!("triggers/{}", encoded(&words.name));
        let now = match is_change {
            true => client.json(Method::GET, &what, None).map_err(|error| no(&client, error))?,
            false => Value::Null,
        };
        let body = in_words(words, &now).json();
        let done = match is_change {
            true => client.json(Method::PUT, &what, Some(&body)),
            false => client.json(Method::POST, "triggers", Some(&body)),
        };
        done.map_err(|error| no(&client, error))
    });
    told(done.map(|value| if ask.json { line(&value) } else { said::put(&value) }))
}

/// What is said of a trigger, and for the rest what it is now.
fn in_words(words: &TriggerWords, now: &Value) -> Trigger {
    let text =
        |said: &Option<String>, key: &str| said.clone().or_else(|| now[key].as_str().map(str::to_string));
    let time = |said: &Option<String>, key: &str| {
        said.clone().or_else(|| now[key].as_i64().map(|ns| format!("{ns}ns")))
    };
    Trigger {
        name: words.name.clone(),
        filter: text(&words.filter, "filter").unwrap_or_default(),
        when: text(&words.when, "when"),
        dump: text(&words.dump, "dump"),
        before: time(&words.before, "before_ns"),
        after: time(&words.after, "after_ns"),
        holdoff: time(&words.holdoff, "holdoff_ns"),
        holdoff_key: text(&words.holdoff_key, "holdoff_key"),
        single: words.single.or_else(|| now["single"].as_bool()),
        auto: time(&words.auto, "auto_ns"),
    }
}

fn arm(TriggerArgs { name, ask }: &TriggerArgs, what: &str) -> u8 {
    let ordered = client(ask).and_then(|client| {
        let what = format!("triggers/{}/{what}", encoded(name));
        client.json(Method::POST, &what, None).map_err(|error| no(&client, error))
    });
    told(ordered.map(|value| if ask.json { line(&value) } else { said::armed(&value) }))
}

/// Asks for one value, and prints it.
fn one(args: &AskArgs, what: &str, words: fn(&Value) -> String) -> u8 {
    let asked = client(args)
        .and_then(|client| client.json(Method::GET, what, None).map_err(|error| no(&client, error)));
    told(asked.map(|value| if args.json { line(&value) } else { words(&value) }))
}

/// `wirescope fire`.
pub fn fire(args: &FireArgs) -> u8 {
    match fired(args) {
        Ok(code) => code,
        Err(no) => told(Err(no)),
    }
}

fn fired(args: &FireArgs) -> Result<u8, NoResult> {
    let FireArgs { name, filter, before, after, note, wait, write, ask } = args;
    let client = client(ask)?;
    let output = write.as_deref().map(output).transpose()?;
    let order = Fire {
        filter: filter.clone(),
        before: before.clone(),
        after: after.clone(),
        note: note.clone(),
        wait: *wait || output.is_some(),
    };
    let what = name.as_ref().map_or("fire".to_string(), |name| format!("triggers/{}/fire", encoded(name)));
    let fired = client.json(Method::POST, &what, Some(&order.json())).map_err(|error| no(&client, error));
    let fired = fired.inspect_err(|_| output.iter().for_each(Output::forget))?;
    let is_complete = !order.wait || fired["complete"] == true;
    let is_taken = matches!(output, Some(Output::Stdout(_)));
    if let Some(output) = output {
        let Some(id) = fired["id"].as_u64() else {
            output.forget();
            let cause = format!("the instance says {} and names no dump", said::text(&fired["verdict"]));
            return Err(NoResult::Failed(Fault::of("write").cause(cause).remedy("ask again in a moment")));
        };
        copy(&client, &format!("dumps/{id}/file"), output)?;
        tell_of_others(&fired);
    }
    let text = if ask.json { line(&fired) } else { said::fired(&fired) };
    match is_taken {
        true => text.lines().for_each(|line| crate::speech::say(crate::speech::Level::Info, line)),
        false => drop(print_text(&text)),
    }
    Ok(if is_complete { DONE } else { UNDONE })
}

/// `wirescope dumps`.
pub fn dumps(what: &DumpsVerb) -> u8 {
    match what {
        DumpsVerb::List(args) => told(all_dumps(args)),
        DumpsVerb::Show { id, ask } => {
            one(ask, &format!("dumps/{id}"), |dump| format!("{}\n", said::dump(dump)))
        }
        DumpsVerb::End { id, ask } => {
            let ended = client(ask).and_then(|client| {
                let what = format!("dumps/{id}/end");
                client.json(Method::POST, &what, None).map_err(|error| no(&client, error))
            });
            told(ended.map(|value| {
                if ask.json { line(&value) } else { format!("dump {id}: its window has ended\n") }
            }))
        }
        DumpsVerb::Delete { id, ask } => {
            let deleted = client(ask).and_then(|client| {
                let what = format!("dumps/{id}");
                client.json(Method::DELETE, &what, None).map_err(|error| no(&client, error))
            });
            told(deleted.map(|value| if ask.json { line(&value) } else { said::removed(&value) }))
        }
        DumpsVerb::Get { id, link_type, write, ask } => {
            let query =
                link_type.as_ref().map_or(String::new(), |word| format!("?link_type={}", encoded(word)));
            let got = client(ask).and_then(|client| {
                let dump = client.json(Method::GET, &format!("dumps/{id}"), None);
                let dump = dump.map_err(|error| no(&client, error))?;
                copy(&client, &format!("dumps/{id}/file{query}"), output(write)?)?;
                if link_type.is_none() {
                    tell_of_others(&dump);
                }
                Ok(())
            });
            match got {
                Ok(()) => DONE,
                Err(no) => told(Err(no)),
            }
        }
    }
}

/// All dumps of the run, page by page.
fn all_dumps(args: &AskArgs) -> Result<String, NoResult> {
    let client = client(args)?;
    let (mut dumps, mut after) = (Vec::new(), 0);
    loop {
        let what = format!("dumps?limit={PAGE}&after={after}");
        let mut page = client.json(Method::GET, &what, None).map_err(|error| no(&client, error))?;
        if let Some(page) = page["dumps"].as_array_mut() {
            dumps.append(page);
        }
        match page["next"].as_u64().filter(|&next| next > after) {
            Some(next) => after = next,
            None => break,
        }
    }
    Ok(if args.json { line(&serde_json::json!({ "dumps": dumps })) } else { said::dumps(&dumps) })
}

/// `wirescope watch`: a line for each event, until the run or the reader ends.
pub fn watch(args: &AskArgs) -> u8 {
    match watched(args) {
        Ok(()) => DONE,
        Err(no) => told(Err(no)),
    }
}

fn watched(args: &AskArgs) -> Result<(), NoResult> {
    let client = client(args)?;
    let mut answer = client.ask(Method::GET, "events", None).map_err(|error| no(&client, error))?;
    let mut rest = Vec::new();
    while let Some(bytes) = answer.next_piece().map_err(|error| no(&client, error))? {
        rest.extend_from_slice(&bytes);
        while let Some(end) = rest.iter().position(|&byte| byte == b'\n') {
            let whole: Vec<u8> = rest.drain(..=end).collect();
            let Some(data) = whole.strip_prefix(b"data: ") else { continue };
            let text = match args.json {
                true => String::from_utf8_lossy(data).into_owned(),
                false => said::event(&serde_json::from_slice(data).unwrap_or_default()),
            };
            let mut out = io::stdout().lock();
            match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(()), // nobody reads any more
                Err(error) => return Err(NoResult::Failed(Fault::of_thing("standard output").error(&error))),
            }
        }
    }
    Ok(())
}

/// Where a file goes.
enum Output {
    Stdout(io::Stdout),
    New(File, PathBuf),
}

impl Output {
    /// Nothing is left of it.
    fn forget(&self) {
        if let Output::New(_, path) = self {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Says of a dump of which one file was fetched that it has others.
fn tell_of_others(dump: &Value) {
    let paths = dump["paths"].as_array().map_or(0, Vec::len);
    if paths > 1 {
        let (id, others) = (&dump["id"], counted(paths as u64 - 1, "more file"));
        let line = format!("dump {id} has {others}: wirescope dumps get {id} --link-type NAME -w FILE");
        crate::speech::say(crate::speech::Level::Warning, &line);
    }
}

/// Refuses what exists, and a terminal.
fn output(path: &Path) -> Result<Output, NoResult> {
    let refused = |fault: Fault| Err(NoResult::Refused(vec![fault]));
    if path == Path::new(STDOUT) {
        if io::stdout().is_terminal() {
            let fault = Fault::of("write").cause("standard output is a terminal, and packets are not text");
            return refused(fault.remedy("append e.g. | tshark -r - to the command"));
        }
        return Ok(Output::Stdout(io::stdout()));
    }
    match File::create_new(path) {
        Ok(file) => Ok(Output::New(file, path.to_path_buf())),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            let cause = format!("{} exists and is never overwritten", path.display());
            refused(
                Fault::of("write")
                    .with_value(path.to_string_lossy())
                    .cause(cause)
                    .remedy("choose another name"),
            )
        }
        Err(error) => refused(Fault::of("write").with_value(path.to_string_lossy()).error(&error)),
    }
}

/// Copies an answer; of a file that doesn't come whole nothing is left.
fn copy(client: &Client, what: &str, mut output: Output) -> Result<(), NoResult> {
    let copied = (|| {
        let mut answer = client.ask(Method::GET, what, None).map_err(|error| no(client, error))?;
        while let Some(bytes) = answer.next_piece().map_err(|error| no(client, error))? {
            let written = match &mut output {
                Output::Stdout(stdout) => stdout.write_all(&bytes),
                Output::New(file, _) => file.write_all(&bytes),
            };
            written.map_err(|error| NoResult::Failed(Fault::of("write").error(&error)))?;
        }
        Ok(())
    })();
    if copied.is_err() {
        output.forget();
    }
    copied
}

/// The client of the instance that is meant.
fn client(args: &AskArgs) -> Result<Client, NoResult> {
    let refused = |fault: Fault| NoResult::Refused(vec![fault]);
    if let Some(client) = named(args.control.as_deref(), &args.door).map_err(refused)? {
        return Ok(client);
    }
    let mut found = instances().map_err(|error| refused(Fault::of("control").error(&error)))?;
    let control = Setting::of("control").example("PATH");
    match found.len() {
        1 => unix(&found.remove(0)).map_err(refused),
        0 => {
            let fault = Fault::of("control").cause("no instance is found that this user may ask").missing();
            let remedy = sentence![
                "name its socket: ",
                control,
                ", or ask as root; one in another network namespace isn't found by itself"
            ];
            Err(refused(fault.remedy(remedy)))
        }
        many => {
            let names: Vec<String> = found.iter().map(shell_word).collect();
            let cause = format!("there are {}: {}", counted(many as u64, "instance"), names.join(", "));
            let fault = Fault::of("control").cause(cause).missing();
            Err(refused(fault.remedy(sentence!["name one: ", control])))
        }
    }
}

/// The client of an instance that is named; `None`: none is.
///
/// # Errors
/// What is named can't be meant.
pub fn named(control: Option<&Path>, door_args: &DoorArgs) -> Result<Option<Client>, Fault> {
    match &door_args.url {
        Some(url) => door(door_args, url).map(Some),
        None => control.map(unix).transpose(),
    }
}

fn unix(path: &Path) -> Result<Client, Fault> {
    Client::unix(path).map_err(|error| Fault::of("control").cause(error.to_string()))
}

/// The client of a door to the network.
fn door(args: &DoorArgs, url: &str) -> Result<Client, Fault> {
    let of_file = |key: &'static str, path: &Path, error: &io::Error| {
        Fault::of(key).with_value(path.to_string_lossy()).error(error)
    };
    let token = match &args.token_file {
        Some(file) => {
            Some(std::fs::read_to_string(file).map_err(|error| of_file("token-file", file, &error))?)
        }
        None => None,
    };
    let token = token.as_deref().map(|text| text.lines().next().unwrap_or_default());
    let own = match (&args.tls_client_cert, &args.tls_client_key) {
        (Some(certificate), Some(key)) => Some(own_certificate(certificate, key, of_file)?),
        _ => None,
    };
    let credentials = match (token, &own) {
        (Some(token), None) => Credentials::Token(token),
        (None, Some(own)) => Credentials::Certificate(own),
        (Some(token), Some(own)) => Credentials::Both(token, own),
        (None, None) => {
            let fault = Fault::of("url").with_value(url).cause("nothing says who asks").missing();
            let file = |key| Setting::of(key).example("FILE");
            let (token, cert, key) = (file("token-file"), file("tls-client-cert"), file("tls-client-key"));
            return Err(fault.remedy(sentence!["give ", token, ", or ", cert, " and ", key]));
        }
    };
    let trust = match &args.tls_fingerprint {
        Some(text) => Trust::fingerprint(text).ok_or_else(|| {
            let fault = Fault::of("tls-fingerprint").with_value(text).cause("it is no SHA-256");
            fault.remedy("write the 64 digits that wirescope serve prints at its start")
        })?,
        None => {
            let path = args.tls_ca.as_deref().unwrap_or(Path::new(SYSTEM_CA));
            match std::fs::read(path) {
                Ok(pem) => Trust::Signed(pem),
                Err(_) if args.tls_ca.is_none() => Trust::Signed(Vec::new()), // it may not be needed
                Err(error) => return Err(of_file("tls-ca", path, &error)),
            }
        }
    };
    Client::url(url, credentials, &trust).map_err(|error| {
        let fault = Fault::of("url").with_value(url).cause(error.to_string());
        fault.remedy(sentence![
            "write e.g. https://scope:8443; certificates to be believed are named by ",
            Setting::of("tls-ca").example("FILE"),
            " or ",
            Setting::of("tls-fingerprint").example("DIGITS")
        ])
    })
}

/// The certificate by which this command says who asks.
fn own_certificate(
    certificate: &Path,
    key: &Path,
    of_file: impl Fn(&'static str, &Path, &io::Error) -> Fault,
) -> Result<OwnCertificate, Fault> {
    let (of_cert, of_key) = ("tls-client-cert", "tls-client-key");
    let text = std::fs::read(certificate).map_err(|error| of_file(of_cert, certificate, &error))?;
    let key_text = std::fs::read(key).map_err(|error| of_file(of_key, key, &error))?;
    OwnCertificate::read(&text, &key_text).map_err(|bad| match bad {
        BadCertificate::Certificate(cause) => {
            let fault = Fault::of(of_cert).with_value(certificate.to_string_lossy()).cause(cause);
            fault.remedy("name a PEM file with your certificate, and those above it behind it")
        }
        BadCertificate::Key(cause) => {
            let fault = Fault::of(of_key).with_value(key.to_string_lossy()).cause(cause);
            fault.remedy("name a PEM file with the key of your certificate, without a passphrase")
        }
    })
}

/// What helps where a door's certificate isn't believed.
fn to_believe(cause: &Untrusted) -> Sentence {
    let ca = Setting::of("tls-ca").example("FILE");
    let digits = Setting::of("tls-fingerprint").example("DIGITS");
    match cause {
        Untrusted::UnknownIssuer => {
            sentence!["name the certificate of who has signed it: ", ca, "; or its own fingerprint: ", digits]
        }
        Untrusted::WrongName(_) => {
            sentence!["write one of its names in the URL, or believe it whatever it is for: ", digits]
        }
        Untrusted::Expired => sentence![
            "check this machine's clock; give the door a new one, named by ",
            ca,
            "; or believe the old one: ",
            digits
        ],
        Untrusted::NotYetValid => {
            sentence!["check the clocks of this machine and the door's; or believe it all the same: ", digits]
        }
        Untrusted::WrongFingerprint => sentence![
            "if the door was begun anew, write the digits that it said at its start: ",
            digits,
            "; or name who has signed it: ",
            ca
        ],
        Untrusted::Ca => sentence!["name this very certificate: ", ca, "; or its fingerprint: ", digits],
        Untrusted::Other(_) => {
            sentence!["give the door another one, named by ", ca, "; or believe this one: ", digits]
        }
    }
}

/// Why there is no answer, as this command says it.
pub fn no(client: &Client, error: AskError) -> NoResult {
    let path = client.place();
    match error {
        AskError::Connect { cause, .. } => {
            let key = if client.is_remote() { "url" } else { "control" };
            let fault = Fault::of(key).with_value(&path).cause(format!("{path}: {cause}"));
            let remedy = match cause.kind() {
                _ if client.is_remote() => {
                    "check the address, whether wirescope serve is running there, and which certificate it has"
                }
                io::ErrorKind::PermissionDenied => "ask as root, or as the run's user",
                _ => "check the path, and whether the instance is running",
            };
            NoResult::Refused(vec![fault.remedy(remedy)])
        }
        AskError::Untrusted { cause, .. } => {
            let fault = Fault::of("url").with_value(&path).cause(format!("{path}: {cause}"));
            NoResult::Refused(vec![fault.remedy(to_believe(&cause))])
        }
        AskError::Refused(problem) => {
            let fault = |said: &scope_api::problem::Said| {
                let fault = match said.place.as_str() {
                    "" => Fault::whole(said.cause.clone()),
                    place => Fault::of_thing(place).cause(said.cause.clone()),
                };
                if said.remedy.is_empty() { fault } else { fault.remedy(said.remedy.clone()) }
            };
            let mut faults: Vec<Fault> = problem.faults.iter().map(fault).collect();
            match problem.status.is_client_error() {
                true => NoResult::Refused(faults),
                false => NoResult::Failed(faults.pop().unwrap_or_default()),
            }
        }
        other => NoResult::Failed(Fault::of_thing(path).cause(other.to_string())),
    }
}

fn line(value: &Value) -> String {
    format!("{}\n", json_line(&value.to_string()))
}
