//! What is printed on standard error: lines of text for people, or one JSON object a line for programs.
//!
//! No control character of foreign text (names of interfaces in capture files, output of commands) is printed
//! as it is. In systemd's journal each line has its priority in front.

use crate::journal;
use scope_events::now_ns;
use scope_fault::Fault;
use scope_spelling::printable::{json_line, printable};
use scope_spelling::time::iso;
use serde_json::{Map, Value};
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{LazyLock, OnceLock};

/// What standard error is written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// Lines of text.
    Text,
    /// One object a line: `time`, `level`, `event`, `text` and facts.
    Json,
}

impl LogFormat {
    /// What `--log-format` names; text where it names none.
    pub fn of(word: &str) -> LogFormat {
        if word == "json" { LogFormat::Json } else { LogFormat::Text }
    }
}

/// How much a line matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// As it should be.
    Info,
    /// Not as it should be.
    Warning,
    /// A promise was not kept, or nothing was begun.
    Error,
}

/// One format for the whole process; text until it is chosen.
static CHOSEN: OnceLock<LogFormat> = OnceLock::new();

/// Whether standard error is systemd's journal.
static JOURNAL: LazyLock<bool> = LazyLock::new(journal::is_standard_error);

/// Only warnings and errors are printed.
static QUIET: AtomicBool = AtomicBool::new(false);

/// From here on only warnings and errors are printed.
pub fn be_quiet() {
    QUIET.store(true, Ordering::Relaxed);
}

/// Whether only warnings and errors are printed.
pub fn is_quiet() -> bool {
    QUIET.load(Ordering::Relaxed)
}

/// What precedes each line: in the journal its priority (`sd-daemon(3)`).
fn priority(level: Level) -> &'static str {
    match level {
        _ if !*JOURNAL => "",
        Level::Info => "<6>",
        Level::Warning => "<4>",
        Level::Error => "<3>",
    }
}

/// Chooses the format, once, before anything is printed.
pub fn choose(format: LogFormat) {
    let _ = CHOSEN.set(format);
}

/// Whether JSON was chosen.
pub fn is_json() -> bool {
    CHOSEN.get() == Some(&LogFormat::Json)
}

/// Prints one or several lines. If nobody reads them, the program still goes on.
pub fn say(level: Level, text: &str) {
    if level == Level::Info && is_quiet() {
        return;
    }
    if is_json() {
        return say_event(level, "note", text, Map::new());
    }
    for line in text.lines() {
        let _ = writeln!(std::io::stderr(), "{}{}", priority(level), printable(line));
    }
}

/// Prints a fault: as text, and in JSON also as an object.
pub fn say_fault(fault: &Fault) {
    let text = format!("wirescope: {fault}");
    match is_json() {
        true => {
            say_event(Level::Error, "note", &text, Map::from_iter([("fault".to_string(), fault.to_json())]))
        }
        false => say(Level::Error, &text),
    }
}

/// Prints an event with its facts, in JSON.
pub fn say_event(level: Level, event: &str, text: &str, facts: Map<String, Value>) {
    if level == Level::Info && is_quiet() {
        return;
    }
    let _ = writeln!(
        std::io::stderr(),
        "{}{}",
        priority(level),
        json_line(&object(level, event, text, facts).to_string())
    );
}

fn object(level: Level, event: &str, text: &str, facts: Map<String, Value>) -> Value {
    let level = match level {
        Level::Info => "info",
        Level::Warning => "warning",
        Level::Error => "error",
    };
    let mut object = Map::new();
    object.insert("time".to_string(), iso(now_ns()).into());
    object.insert("level".to_string(), level.into());
    object.insert("event".to_string(), event.into());
    object.insert("text".to_string(), text.into());
    for (key, value) in facts {
        object.entry(key).or_insert(value);
    }
    Value::Object(object)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_is_one_line_whatever_its_text_and_facts_replace_none_of_its_keys() {
        let facts: Map<String, Value> = [("time", 1), ("packets", 2)]
            .into_iter()
            .map(|(key, value)| (key.to_string(), value.into()))
            .collect();
        let line = object(Level::Warning, "status", "a\nb\u{1b}[2J", facts).to_string();
        assert!(!line.contains(['\n', '\u{1b}']), "{line}");
        let read: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(
            (&read["level"], &read["event"], &read["packets"]),
            (&"warning".into(), &"status".into(), &2.into())
        );
        assert!(read["time"].is_string() && read["text"] == "a\nb\u{1b}[2J");
    }
}
