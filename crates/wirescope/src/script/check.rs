//! `wirescope script check`: whether scripts load, and fail on no kind of packet.

use crate::args::ScriptCheckArgs;
use crate::script::file::{Bounds, Script, give_up_rights};
use crate::script::thread::{End, watched};
use crate::script::trial::{Doing, Found, Kind, try_script};
use crate::words::{counted, number, span};
use crate::{DONE, NoResult, REFUSED, UNDONE, told};
use scope_fault::Fault;
use scope_spelling::printable::{json_line, printable};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Kinds of packets that words name; others are counted.
const NAMES_MAX: usize = 6;

/// What becomes of a script, the worst last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Verdict {
    Fine,
    /// It fails on packets, or in a form.
    Fails,
    /// A call of it doesn't come back.
    Stuck,
    /// It can't be loaded.
    Refused,
    /// Its file can't be read, or a library that it names isn't there.
    Unread,
}

impl Verdict {
    const ALL: [Verdict; 5] =
        [Verdict::Fine, Verdict::Fails, Verdict::Stuck, Verdict::Refused, Verdict::Unread];

    fn name(self) -> &'static str {
        match self {
            Verdict::Fine => "fine",
            Verdict::Fails => "fails",
            Verdict::Stuck => "stuck",
            Verdict::Refused => "refused",
            Verdict::Unread => "unread",
        }
    }

    fn code(self) -> u8 {
        match self {
            Verdict::Fine => DONE,
            Verdict::Fails | Verdict::Stuck => UNDONE,
            Verdict::Refused | Verdict::Unread => REFUSED,
        }
    }
}

/// A script, and what was found of it.
struct Checked {
    path: PathBuf,
    verdict: Verdict,
    libraries: Vec<String>,
    found: Found,
    /// Why it isn't fine, in lines, where its own reports don't say it.
    cause: Option<String>,
}

/// Checks. Exit codes: 0 all are fine, 1 one fails or doesn't come back, 2 one can't be read or loaded.
pub fn check(args: &ScriptCheckArgs) -> u8 {
    let bounds = match Bounds::read(&args.bounds) {
        Ok(bounds) => bounds,
        Err(faults) => return told(Err(NoResult::Refused(faults))),
    };
    let scripts: Vec<(&PathBuf, Result<Script, Fault>)> =
        args.files.iter().map(|path| (path, Script::open(path, &bounds))).collect();
    if let Err(fault) = give_up_rights() {
        return told(Err(NoResult::Refused(vec![fault])));
    }
    let look = |(path, script): (&PathBuf, Result<Script, Fault>)| match script {
        Ok(script) => checked(path, script, args.dump, bounds.timeout),
        Err(fault) => {
            let cause = Some(in_own_words(path, &fault));
            let (verdict, path) = (Verdict::Unread, path.clone());
            Checked { path, verdict, libraries: Vec::new(), found: Found::default(), cause }
        }
    };
    let all: Vec<Checked> = scripts.into_iter().map(look).collect();
    let verdict = all.iter().map(|one| one.verdict).max().unwrap_or(Verdict::Fine);
    let text = match args.json {
        true => {
            let files: Vec<Value> = all.iter().map(object).collect();
            let object = json!({ "verdict": verdict.name(), "files": files });
            format!("{}\n", json_line(&object.to_string()))
        }
        false => all.iter().map(words).collect::<String>() + &sum(&all),
    };
    verdict.code().max(told(Ok(text)))
}

/// A fault of this file, without the name that stands in front of it.
fn in_own_words(path: &Path, fault: &Fault) -> String {
    let text = fault.to_string();
    let name = format!("{}: ", path.to_string_lossy());
    text.strip_prefix(&name).unwrap_or(&text).to_string()
}

/// Tries a script.
fn checked(path: &Path, script: Script, dump: bool, timeout: Duration) -> Checked {
    let libraries = script.libraries.clone();
    let (found, end) = watched(timeout, move |guard| try_script(&script, dump, guard));
    let (verdict, cause) = match end {
        End::Stuck => (Verdict::Stuck, Some(stuck(&found.doing, timeout))),
        End::Died => (Verdict::Stuck, Some("its thread has died; this is a defect, please report it".into())),
        End::Done if found.refused.is_some() => (Verdict::Refused, found.refused.clone()),
        End::Done if found.is_fine() => (Verdict::Fine, None),
        End::Done => (Verdict::Fails, found.disabled.clone().map(|why| format!("it was disabled: {why}"))),
    };
    Checked { path: path.to_path_buf(), verdict, libraries, found, cause }
}

/// That a call didn't come back, and what it was for.
fn stuck(doing: &Doing, timeout: Duration) -> String {
    let time = span(i64::try_from(timeout.as_nanos()).unwrap_or(i64::MAX));
    let when = match doing {
        Doing::Loading => "while it was loaded: look for a loop outside of its functions".to_string(),
        Doing::Packet(kind) => format!("for a packet: {kind}"),
        Doing::Batch => "for a batch of packets".to_string(),
        Doing::Silence => "for ticks without packets: look at on_tick and at 'expired' of flows".to_string(),
        Doing::Dumped => "in on_dump".to_string(),
        Doing::Reload => "in on_reload".to_string(),
        Doing::Keeper(kind) => format!("for the dump that was fired by: {kind}"),
        Doing::Counts => "when it was asked for its counts".to_string(),
        Doing::Closing => "when its state was closed: look at its finalizers".to_string(),
    };
    format!("it didn't come back within {time} {when}; a longer time: --script-timeout 10s")
}

fn object(checked: &Checked) -> Value {
    let Checked { path, verdict, libraries, found, cause } = checked;
    let mut object = json!({
        "file": path.to_string_lossy(),
        "verdict": verdict.name(),
        "cause": cause,
        "libraries": libraries,
    });
    if *verdict != Verdict::Unread && *verdict != Verdict::Refused {
        let is_dump = found.kind == Kind::Dump;
        let counts = match is_dump {
            true => json!({ "asked": found.packets, "kept": found.hits }),
            false => json!({
                "forms": found.forms, "packets": found.packets, "hits": found.hits, "ticks": found.ticks,
                "memory_bytes": found.memory_bytes,
            }),
        };
        let common = json!({
            "kind": if is_dump { "dump" } else { "trigger" },
            "specimens": found.specimens,
            "hit": found.hit,
            "failed": found.failed,
            "errors": found.errors,
            "report": found.report,
            "disabled": found.disabled,
            "printed": found.notes.0,
            "printed_more": found.notes.1,
        });
        for part in [common, counts] {
            if let (Value::Object(object), Value::Object(part)) = (&mut object, part) {
                object.extend(part);
            }
        }
    }
    object
}

fn words(checked: &Checked) -> String {
    let Checked { path, verdict, libraries, found, cause } = checked;
    let mut text = format!("{}: {}\n", printable(&path.to_string_lossy()), verdict.name());
    let is_known = !matches!(verdict, Verdict::Refused | Verdict::Unread);
    if is_known && (!found.forms.is_empty() || found.kind == Kind::Dump) {
        let form = match found.kind {
            Kind::Trigger => format!("trigger script with {}", found.forms.join(", ")),
            Kind::Dump => "dump script".to_string(),
        };
        line(&mut text, "form", &form);
    }
    if !libraries.is_empty() {
        line(&mut text, "libraries", &libraries.join(", "));
    }
    if is_known && *verdict != Verdict::Stuck {
        line(&mut text, "tried on", &tried(found));
    }
    for (key, names) in [("hits", &found.hit), ("fails on", &found.failed)] {
        let is_plain = found.kind == Kind::Dump && key == "hits";
        if is_known && !names.is_empty() && !is_plain {
            line(&mut text, key, &named(names));
        }
    }
    let (notes, more) = &found.notes;
    for note in notes.iter().take(NAMES_MAX) {
        line(&mut text, "printed", note);
    }
    let more = more + notes.len().saturating_sub(NAMES_MAX) as u64;
    if more > 0 {
        line(&mut text, "printed", &counted(more, "further line"));
    }
    for report in found.report.iter().filter(|_| found.disabled.is_none()).chain(cause) {
        line(&mut text, "error", report);
    }
    text
}

/// What it was tried on, and what came of that.
fn tried(found: &Found) -> String {
    let specimens = counted(found.specimens as u64, "kind");
    let errors = match found.errors {
        0 => String::new(),
        errors => format!(", {}", counted(errors, "error")),
    };
    match found.kind {
        Kind::Trigger => {
            let ticks = match found.ticks {
                0 => String::new(),
                ticks => format!(" and {}", counted(ticks, "tick")),
            };
            let packets = counted(found.packets, "packet");
            let hits = counted(found.hits, "hit");
            format!("{packets} of {specimens}{ticks}: {hits}{errors}")
        }
        Kind::Dump => {
            let made = found.hit.len() as u64;
            let (kept, asked) = (number(found.hits), counted(found.packets, "packet"));
            format!(
                "{} fired by {specimens} and by hand: {kept} of {asked} kept{errors}",
                counted(made, "dump")
            )
        }
    }
}

/// The first names, and how many more there are.
fn named(names: &[&str]) -> String {
    let shown = names.iter().take(NAMES_MAX).copied().collect::<Vec<_>>().join("; ");
    match names.len().saturating_sub(NAMES_MAX) as u64 {
        0 => shown,
        more => format!("{shown}; and {} more", number(more)),
    }
}

/// Text of one or several lines behind a key.
fn line(text: &mut String, key: &str, value: &str) {
    for (at, line) in value.lines().enumerate() {
        let key = if at == 0 { key } else { "" };
        *text += &format!("  {key:<10} {}\n", printable(line.trim()));
    }
}

/// How many scripts are what, where there are several.
fn sum(all: &[Checked]) -> String {
    if all.len() < 2 {
        return String::new();
    }
    let counts =
        Verdict::ALL.iter().map(|verdict| (all.iter().filter(|one| one.verdict == *verdict), verdict));
    let counts: Vec<String> = counts
        .map(|(of_it, verdict)| (of_it.count(), verdict))
        .filter(|(count, _)| *count > 0)
        .map(|(count, verdict)| format!("{count} {}", verdict.name()))
        .collect();
    format!("{}: {}\n", counted(all.len() as u64, "script"), counts.join(", "))
}
