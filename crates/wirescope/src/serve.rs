//! `wirescope serve`: the door of running instances to the network, from its command line to its end.
//!
//! 1. Everything is checked, and all faults are told at once.
//! 2. What needs a right: the file of last uses, the processes that open tokens and certificates again, the socket.
//! 3. Rights are given up, for good; the user is changed.
//! 4. It answers, until SIGTERM, SIGINT, or the end of the run that has begun it.

use crate::args::ServeArgs;
use crate::plan::rights::known_user;
use crate::speech::{self, Level, LogFormat, say};
use crate::{DONE, UNDONE, failed, refused};
use scope_engine::reread::Reread;
use scope_fault::{Fault, Sentence, Setting, sentence};
use scope_rights::User;
use scope_serve::door::{Tell, Told, tell};
use scope_serve::{
    Again, Bounds, ClientSettings, Door, Instance, Line, OwnCertificate, Settings, TlsSettings,
    TokenSettings, last_use,
};
use scope_spelling::values::parse_count;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::thread::Builder;

/// Who it becomes where nothing else is said, if there is such a user.
pub const SERVE_USER: &str = "wirescope-serve";
/// The user without rights, who is nobody in particular, and whom a run doesn't believe.
pub const NOBODY: u32 = 65_534;
/// Connections at most, requests per second at most.
const CONNECTIONS_MAX: u64 = 10_000;
const REQUESTS_MAX: u64 = 100_000;
/// What it says on standard output to the run that has begun it, once it answers; its address follows.
pub const READY: &str = "ready";

/// The command line, as meant.
struct Planned {
    instances: Vec<Instance>,
    listen: SocketAddr,
    bounds: Bounds,
    tls: Option<Tls>,
}

/// Where certificates come from.
#[derive(Debug)]
pub enum Tls {
    /// From files.
    Files,
    /// From itself.
    SelfSigned,
}

/// Does it; the exit code.
pub fn serve(args: &ServeArgs) -> u8 {
    speech::choose(LogFormat::of(&args.log_format));
    let planned = match plan(args) {
        Ok(planned) => planned,
        Err(faults) => return refused(&faults),
    };
    match begun(args, planned) {
        Ok(code) => code,
        Err(fault) => refused(&[fault]),
    }
}

fn plan(args: &ServeArgs) -> Result<Planned, Vec<Fault>> {
    let mut faults = Vec::new();
    let mut instances: Vec<Instance> = Vec::new();
    for text in &args.control {
        let fault = || Fault::of("control").with_value(text);
        match Instance::read(text) {
            Err(cause) => {
                faults.push(fault().cause(cause).remedy("write NAME=PATH, e.g. lan=/run/wirescope/lan.sock"))
            }
            Ok(instance) if instances.iter().any(|other| other.name == instance.name) => {
                let cause = format!("two instances are called {}", instance.name);
                faults.push(fault().cause(cause).remedy("name them apart: NAME=PATH"));
            }
            Ok(instance) => instances.push(instance),
        }
    }
    let listen = address(&args.listen).map_err(|fault| faults.push(fault)).ok();
    let mut count = |key: &'static str, text: &str, max: u64| match parse_count(text) {
        Ok(count) if (1..=max).contains(&count) => count,
        _ => {
            let fault = Fault::of(key).with_value(text).cause(format!("it is not from 1 to {max}"));
            faults.push(fault.remedy("write e.g. 100"));
            1
        }
    };
    let bounds = Bounds {
        connections: count("connections", &args.connections, CONNECTIONS_MAX) as usize,
        requests_per_s: count("requests-per-s", &args.requests_per_s, REQUESTS_MAX) as u32,
    };
    let flags = TlsFlags {
        cert: args.tls_cert.as_deref(),
        key: args.tls_key.as_deref(),
        self_signed: args.tls_self_signed,
        client_ca: args.tls_client_ca.as_deref(),
        client_crl: args.tls_client_crl.as_deref(),
    };
    let tls = tls(&flags);
    let tls = tls.map_err(|fault| faults.push(fault)).unwrap_or_default();
    for host in &args.host {
        if host.is_empty() || host.contains(['/', ':', '@']) || host.contains(char::is_whitespace) {
            let fault = Fault::of("host").with_value(host).cause(format!("{host:?} is no name of a host"));
            faults.push(fault.remedy("write it as clients do, without a port: scope.example"));
        }
    }
    match listen {
        Some(listen) if faults.is_empty() => Ok(Planned { instances, listen, bounds, tls }),
        _ => Err(faults),
    }
}

/// The flags of TLS, of a door or of a run that begins one.
#[derive(Debug)]
pub struct TlsFlags<'a> {
    /// `--tls-cert`
    pub cert: Option<&'a Path>,
    /// `--tls-key`
    pub key: Option<&'a Path>,
    /// `--tls-self-signed`
    pub self_signed: bool,
    /// `--tls-client-ca`
    pub client_ca: Option<&'a Path>,
    /// `--tls-client-crl`
    pub client_crl: Option<&'a Path>,
}

/// What the flags of TLS come to.
///
/// # Errors
/// They don't go together.
pub fn tls(flags: &TlsFlags<'_>) -> Result<Option<Tls>, Fault> {
    let TlsFlags { cert, key, self_signed, client_ca, client_crl } = *flags;
    if client_crl.is_some() && client_ca.is_none() {
        let fault = Fault::of("tls-client-crl").cause("clients have no certificates that could be revoked");
        let remedy = sentence!["name who signs them: ", Setting::of("tls-client-ca").example("FILE")];
        return Err(fault.remedy(remedy));
    }
    let tls = own_certificate(cert, key, self_signed)?;
    if client_ca.is_some() && tls.is_none() {
        let fault = Fault::of("tls-client-ca").cause("without TLS clients have no certificates");
        let (cert, key) = (Setting::of("tls-cert").example("FILE"), Setting::of("tls-key").example("FILE"));
        return Err(fault.remedy(sentence!["give the door one of its own: ", cert, " and ", key]));
    }
    Ok(tls)
}

fn own_certificate(cert: Option<&Path>, key: Option<&Path>, self_signed: bool) -> Result<Option<Tls>, Fault> {
    let both = || {
        let (cert, key) = (Setting::of("tls-cert").example("FILE"), Setting::of("tls-key").example("FILE"));
        sentence!["give both: ", cert, " and ", key]
    };
    match (cert, key, self_signed) {
        (None, None, false) => Ok(None),
        (None, None, true) => Ok(Some(Tls::SelfSigned)),
        (Some(_), Some(_), false) => Ok(Some(Tls::Files)),
        (None, Some(_), _) => Err(Fault::of("tls-key").cause("it has no certificate").remedy(both())),
        (Some(_), None, _) => Err(Fault::of("tls-cert").cause("it has no key").remedy(both())),
        (Some(_), Some(_), true) => {
            let fault = Fault::of("tls-self-signed").cause("there is a certificate already");
            Err(fault.remedy("omit one of them"))
        }
    }
}

/// What `ADDR:PORT` says.
///
/// # Errors
/// It is none.
pub fn address(text: &str) -> Result<SocketAddr, Fault> {
    let local =
        |port: &str| port.parse().ok().map(|port| SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port));
    let found = text.parse().ok().or_else(|| local(text.strip_prefix("localhost:")?));
    found.ok_or_else(|| {
        let fault = Fault::of("listen").with_value(text).cause(format!("{text:?} is no address with a port"));
        fault.remedy("write e.g. 127.0.0.1:8080, [::1]:8080, or 0.0.0.0:8443 with TLS")
    })
}

/// Opens a file again and again, by a process of its own that keeps the right to.
fn again(key: &'static str, path: &Path) -> Result<Again, Fault> {
    let fault = |error: &io::Error| Fault::of(key).with_value(path.to_string_lossy()).error(error);
    let path = std::path::absolute(path).map_err(|error| fault(&error))?;
    let mut reread = Reread::begin(&[&path]).map_err(|error| fault(&error))?;
    reread.open(&path).map_err(|error| fault(&error))?;
    Ok(Box::new(move || reread.open(&path)))
}

/// From what needs a right to the end.
fn begun(args: &ServeArgs, planned: Planned) -> Result<u8, Fault> {
    scope_rights::hide();
    let Planned { instances, listen, bounds, tls } = planned;
    let user = user(args, &instances)?;
    let open = again("tokens", &args.tokens).map_err(|fault| match args.tokens.symlink_metadata() {
        Ok(_) => fault.remedy("look through it, and take it over: chown root FILE && chmod 600 FILE"),
        Err(_) => fault.remedy("make it: wirescope token add --role viewer --name NAME --tokens FILE"),
    })?;
    let starter = User::current();
    let owners = [Some(starter.uid), user.as_ref().map(|user| user.uid)].into_iter().flatten().collect();
    let tokens = TokenSettings { open, path: args.tokens.clone(), owners };
    let used = last_use::open_or_make(&args.tokens).map_err(|error| {
        let path = last_use::path(&args.tokens);
        say(Level::Warning, &format!("{}: {error}: when tokens were used last isn't noted", path.display()));
    });
    let own = match (tls, &args.tls_cert, &args.tls_key) {
        (Some(Tls::SelfSigned), ..) => Some(OwnCertificate::SelfSigned),
        (Some(Tls::Files), Some(certificate), Some(key)) => Some(OwnCertificate::Files {
            certificate: again("tls-cert", certificate)?,
            key: again("tls-key", key)?,
        }),
        _ => None,
    };
    let clients = match &args.tls_client_ca {
        Some(ca) => Some(ClientSettings {
            ca: again("tls-client-ca", ca)?,
            crl: args.tls_client_crl.as_deref().map(|crl| again("tls-client-crl", crl)).transpose()?,
        }),
        None => None,
    };
    let tls = own.map(|own| TlsSettings { own, clients });
    let names: Vec<String> = instances.iter().map(|instance| instance.name.clone()).collect();
    let hosts = args.host.clone();
    let settings = Settings { instances, listen, hosts, tokens, used: used.ok(), tls, bounds };
    let door = Door::open(
        settings,
        Arc::new(|line| match line {
            Line::Info(text) => say(Level::Info, text),
            Line::Warning(text) => say(Level::Warning, text),
        }),
    )?;
    if args.rights_selftest {
        scope_rights::open_status();
    }
    let (tell, told) = tell();
    listen_to_signals(tell.clone(), args.beside_run)
        .map_err(|error| Fault::of_thing("signals").error(&error))?;
    let rights = scope_rights::keep_to_serving(user.as_ref()).map_err(|error| error.fault())?;
    if args.rights_selftest {
        let (facts, passed) = scope_rights::try_what_serving_may_not();
        let _ = writeln!(io::stdout(), "{facts}");
        return Ok(if passed { DONE } else { UNDONE });
    }
    if args.beside_run {
        end_with_input(tell).map_err(|error| Fault::of_thing("threads").error(&error))?;
        let _ = writeln!(io::stdout(), "{READY} {}", door.url());
    }
    say(Level::Info, &rights.to_string());
    let tokens = match door.tokens() {
        0 => "no tokens yet: wirescope token add".to_string(),
        tokens => crate::words::counted(tokens as u64, "token"),
    };
    say(Level::Info, &format!("serving {} at {} ({tokens})", names.join(", "), door.url()));
    if let Some(fingerprint) = door.fingerprint() {
        say(
            Level::Info,
            &format!(
                "self-signed certificate, SHA-256 {fingerprint}: wirescope status --tls-fingerprint {fingerprint}"
            ),
        );
    }
    Ok(match door.serve(told) {
        Ok(()) => DONE,
        Err(error) => failed(&Fault::of_thing("serve").error(&error)),
    })
}

/// Who it becomes; `None`: it stays who it is, as all but root do.
fn user(args: &ServeArgs, instances: &[Instance]) -> Result<Option<User>, Fault> {
    let current = User::current();
    let named = args.user.as_deref().map(|text| known_user("user", text)).transpose()?;
    if current.uid != 0 {
        return match named {
            Some(user) if user.uid != current.uid => {
                let cause =
                    format!("only root can become another user, and this process is {}", current.name);
                Err(Fault::of("user")
                    .with_value(&user.name)
                    .cause(cause)
                    .remedy("start it as root, or omit it"))
            }
            _ => Ok(None),
        };
    }
    let user = match named {
        Some(user) => user,
        None => match User::named(SERVE_USER).map_err(|error| Fault::of("user").error(&error))? {
            Some(user) => user,
            None => owner(instances)?,
        },
    };
    let remedy = || another_user(User::named(SERVE_USER).is_ok_and(|found| found.is_some()));
    if user.uid == NOBODY {
        let fault = Fault::of("user").with_value(&user.name);
        return Err(fault.cause("nobody is nobody in particular, and no run believes it").remedy(remedy()));
    }
    if user.uid == 0 {
        let fault = Fault::of_thing("rights").cause("this door stays root, without capabilities");
        say(Level::Warning, &fault.remedy(remedy()).to_string());
    }
    Ok(Some(user))
}

/// How it becomes somebody in particular, where its own user exists or doesn't.
fn another_user(has_own: bool) -> Sentence {
    if has_own {
        return sentence!["omit ", Setting::of("user"), ": then it becomes ", SERVE_USER];
    }
    let flags = (Setting::of("user").example(SERVE_USER), Setting::of("serve-user").example(SERVE_USER));
    sentence![
        "make one: useradd --system ",
        SERVE_USER,
        "; or name another: ",
        flags.0,
        " here, ",
        flags.1,
        " at the run"
    ]
}

/// The owner of the sockets, if it is one.
fn owner(instances: &[Instance]) -> Result<User, Fault> {
    let mut owners = Vec::new();
    for instance in instances {
        let fault = || Fault::of("control").with_value(instance.path.to_string_lossy());
        let facts = instance.path.symlink_metadata().map_err(|error| {
            fault().error(&error).remedy("start the run first, or name who this door is to be: --user NAME")
        })?;
        owners.push((facts.uid(), facts.gid()));
    }
    owners.sort_unstable();
    owners.dedup();
    match owners[..] {
        [(uid, _)] => User::with_numbers(uid, None).map_err(|error| Fault::of("user").error(&error)),
        _ => {
            let fault = Fault::of("control").cause("the sockets belong to different users");
            Err(fault.remedy("name who this door is to be: --user NAME, and at each run --serve-user NAME"))
        }
    }
}

/// SIGTERM and SIGINT end it, SIGHUP has it read certificates again; beside a run all of them are left to that.
fn listen_to_signals(tell: Tell, is_beside: bool) -> io::Result<()> {
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP])?;
    Builder::new().name("signals".to_string()).spawn(move || {
        for signal in signals.forever().filter(|_| !is_beside) {
            let what = if signal == SIGHUP { Told::Reread } else { Told::End };
            if tell.blocking_send(what).is_err() {
                return;
            }
        }
    })?;
    Ok(())
}

/// Ends it where standard input ends: with the run that has begun it, however that ends. What comes there has it read
/// certificates again.
fn end_with_input(tell: Tell) -> io::Result<()> {
    Builder::new().name("run".to_string()).spawn(move || {
        let mut bytes = [0; 64];
        loop {
            match io::stdin().read(&mut bytes) {
                Ok(1..) => drop(tell.blocking_send(Told::Reread)),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                _ => break,
            }
        }
        let _ = tell.blocking_send(Told::End);
    })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_that_exists_is_not_recommended_to_be_made() {
        let words = |has_own| Fault::of_thing("rights").cause("so").remedy(another_user(has_own)).to_string();
        assert!(words(false).contains("useradd --system wirescope-serve"), "{}", words(false));
        assert!(!words(true).contains("useradd"), "{}", words(true));
        assert!(words(true).contains("omit --user: then it becomes wirescope-serve"), "{}", words(true));
    }
}
