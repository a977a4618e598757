//! An order to fire by hand, as the body of a request has it.
//!
//! ```json
//! {"filter": "host 10.0.0.1", "before": "30s", "after": "5s", "note": "ticket 4711", "wait": true}
//! ```
//! Every key may be missing. Another one is refused: who misspells `filter` doesn't get everything.

use crate::problem::Problem;
use http::StatusCode;
use serde_json::{Map, Value, json};

/// A note at most, bytes.
pub const NOTE_BYTES_MAX: usize = 1000;

/// What is ordered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fire {
    /// Which packets go into the dump; missing: all.
    pub filter: Option<String>,
    /// How far back the window reaches, as it is typed; missing: what the run was given.
    pub before: Option<String>,
    /// How far on; missing: no further than now.
    pub after: Option<String>,
    /// Why, in words; stands in the dump's header and in the log.
    pub note: Option<String>,
    /// The answer comes when the dump is finished.
    pub wait: bool,
}

impl Fire {
    /// Reads a body.
    ///
    /// # Errors
    /// It has another form.
    pub fn read(body: &Value) -> Result<Fire, Problem> {
        let bad = |place: &str, cause: &str, remedy: &str| {
            Problem::new(StatusCode::BAD_REQUEST, place, cause, remedy)
        };
        let mut fire = Fire::default();
        let object = match body {
            Value::Null => return Ok(fire),
            Value::Object(object) => object,
            _ => return Err(bad("body", "it is no object", r#"write e.g. {"filter": "udp"}"#)),
        };
        for (key, value) in object {
            let no_text = || bad(key, "it is no text", "put it into quotation marks");
            let text = || value.as_str().map(str::to_string).ok_or_else(no_text);
            match key.as_str() {
                "filter" => fire.filter = Some(text()?),
                "before" => fire.before = Some(text()?),
                "after" => fire.after = Some(text()?),
                "note" => fire.note = Some(text()?),
                "wait" => {
                    let neither = || bad(key, "it is neither true nor false", "write true, or omit it");
                    fire.wait = value.as_bool().ok_or_else(neither)?;
                }
                _ => {
                    let known = "there are: filter, before, after, note, wait";
                    return Err(bad(key, "there is no such key", known));
                }
            }
        }
        let note = fire.note.as_deref().unwrap_or_default();
        if note.len() > NOTE_BYTES_MAX || note.chars().any(char::is_control) {
            let remedy = format!("write one line of at most {NOTE_BYTES_MAX} bytes");
            return Err(bad("note", "it is too long, or has control characters", &remedy));
        }
        Ok(fire)
    }

    /// As a body.
    pub fn json(&self) -> Value {
        let texts = [
            ("filter", &self.filter),
            ("before", &self.before),
            ("after", &self.after),
            ("note", &self.note),
        ];
        let texts =
            texts.into_iter().filter_map(|(key, text)| Some((key.to_string(), json!(text.as_ref()?))));
        let wait = self.wait.then(|| ("wait".to_string(), json!(true)));
        Value::Object(texts.chain(wait).collect::<Map<_, _>>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_nothing_else_is_taken() {
        let text = |text: &str| Some(text.to_string());
        let fire =
            Fire { filter: text("udp"), before: text("1s"), note: text("x"), wait: true, ..Fire::default() };
        assert_eq!(Fire::read(&fire.json()), Ok(fire));
        assert_eq!(Fire::read(&Value::Null), Ok(Fire::default()));
        for (body, told) in [
            (json!([]), "body: it is no object"),
            (json!({"filtre": "udp"}), "filtre: there is no such key"),
            (json!({"filter": 1}), "filter: it is no text"),
            (json!({"wait": "yes"}), "wait: it is neither true nor false"),
            (json!({"note": "a\nb"}), "note: it is too long, or has control characters"),
        ] {
            assert_eq!(Fire::read(&body).unwrap_err().to_string(), told);
        }
    }
}
