//! One line of the log: what every line has, and its event.

use crate::event::Event;
use serde_json::{Map, Value};

/// Key of an event's name.
pub(crate) const EVENT: &str = "event";
/// Key of the time at which a line was written.
pub(crate) const LOGGED: &str = "logged";
/// Key of the run that wrote it.
pub(crate) const RUN_ID: &str = "run_id";

/// A line that was read.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// When it was written, as it stands there; empty: it says nothing.
    pub logged: String,
    /// The run that wrote it; empty: it says none.
    pub run_id: String,
    /// What it says.
    pub content: Content,
}

/// What a line says.
#[derive(Clone, Debug, PartialEq)]
#[allow(clippy::large_enum_variant)] // read, looked at and dropped
pub enum Content {
    /// An event.
    Event(Event),
    /// An event that this version doesn't know: its name.
    Unknown(String),
    /// No event: an object of somebody else.
    Other,
}

impl Line {
    /// Reads the bytes of one line; `None` where they are no JSON object.
    pub fn read(bytes: &[u8]) -> Option<Line> {
        let value: Value = serde_json::from_slice(bytes).ok()?;
        let object = value.as_object()?;
        let text = |key: &str| object.get(key).and_then(Value::as_str).unwrap_or_default().to_string();
        let name = text(EVENT);
        let content = match Event::read(&name, &value) {
            Some(event) => Content::Event(event),
            None if name.is_empty() => Content::Other,
            None => Content::Unknown(name),
        };
        Some(Line { logged: text(LOGGED), run_id: text(RUN_ID), content })
    }
}

/// The line of `event`, written by the run `run_id` at the time `logged`.
pub fn write(event: &Event, run_id: &str, logged: &str) -> Value {
    let mut line = Map::new();
    line.insert(EVENT.into(), event.name().into());
    line.insert(LOGGED.into(), logged.into());
    line.insert(RUN_ID.into(), run_id.into());
    if let Value::Object(facts) = event.write() {
        line.extend(facts);
    }
    line.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Hit, Warning, WarningKind};
    use crate::fact::Rare;

    #[test]
    fn a_line_is_read_as_it_was_written() {
        let hit =
            Hit { trigger: "t".into(), time: "T".into(), verdict: "held_off".into(), detail: Rare(None) };
        let warning = Warning::of(WarningKind::Swapped, "w".into());
        for event in [Event::from(hit), warning.into()] {
            let bytes = write(&event, "aa", "2026-11-20T20:31:05Z").to_string();
            let line = Line::read(bytes.as_bytes()).expect("a line");
            assert_eq!(
                (&*line.run_id, &*line.logged, line.content),
                ("aa", "2026-11-20T20:31:05Z", Content::Event(event))
            );
        }
    }

    #[test]
    fn events_of_later_versions_are_named_and_what_is_no_line_is_none() {
        let said = |text: &str| Line::read(text.as_bytes()).map(|line| line.content);
        assert_eq!(said(r#"{"event":"later","x":1}"#), Some(Content::Unknown("later".into())));
        assert_eq!(said(r#"{"x":1}"#), Some(Content::Other));
        assert_eq!(said(r#"{"event":7}"#), Some(Content::Other));
        assert_eq!((said("[]"), said("{\"event\":\"sta"), said("")), (None, None, None));
    }
}
