//! A refusal: problem+json as RFC 9457 has it, with place, cause and remedy of each fault.
//!
//! ```json
//! {"type": "about:blank", "title": "Bad Request", "status": 400, "detail": "filter: syntax error",
//!  "faults": [{"place": "filter", "cause": "syntax error", "remedy": "..."}]}
//! ```

use http::StatusCode;
use scope_fault::Fault;
use serde_json::{Map, Value, json};
use std::fmt;

/// The media type.
pub const MEDIA_TYPE: &str = "application/problem+json";

/// Why a request isn't answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The HTTP status.
    pub status: StatusCode,
    /// What is wrong, place by place; at least one.
    pub faults: Vec<Said>,
    /// After so many seconds it may be tried again.
    pub retry_after_s: Option<u64>,
    /// The methods that the path has, where the request's isn't one.
    pub allow: Vec<&'static str>,
}

/// One fault, in words.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Said {
    /// Where; empty: the request as a whole.
    pub place: String,
    /// What is wrong.
    pub cause: String,
    /// What helps; empty: nothing is known.
    pub remedy: String,
}

impl Problem {
    /// With one fault of the whole request.
    pub fn new(status: StatusCode, cause: impl Into<String>) -> Problem {
        let said = Said { cause: cause.into(), ..Said::default() };
        Problem { status, faults: vec![said], retry_after_s: None, allow: Vec::new() }
    }

    /// What helps against its first fault.
    pub fn remedy(mut self, remedy: impl Into<String>) -> Problem {
        if let Some(first) = self.faults.first_mut() {
            first.remedy = remedy.into();
        }
        self
    }

    /// Where its first fault is.
    pub fn at(mut self, place: impl Into<String>) -> Problem {
        if let Some(first) = self.faults.first_mut() {
            first.place = place.into();
        }
        self
    }

    /// Of faults that were found in what was asked.
    pub fn of_faults(status: StatusCode, faults: &[Fault]) -> Problem {
        let said = |fault: &Fault| {
            let json = fault.to_json();
            let text = |key: &str| json[key].as_str().unwrap_or_default().to_string();
            let place = if json["key"].is_null() { text("subject") } else { text("key") };
            // Filters name themselves in their words.
            let cause = text("cause");
            let cause = cause.strip_prefix(&format!("{place}: ")).unwrap_or(&cause).to_string();
            Said { place, cause, remedy: text("remedy") }
        };
        Problem { status, faults: faults.iter().map(said).collect(), retry_after_s: None, allow: Vec::new() }
    }

    /// As the body of an answer has it.
    pub fn json(&self) -> Value {
        let fault = |said: &Said| {
            let mut object = Map::new();
            let texts = [("place", &said.place), ("cause", &said.cause), ("remedy", &said.remedy)];
            for (key, text) in texts.into_iter().filter(|(_, text)| !text.is_empty()) {
                object.insert(key.to_string(), json!(text));
            }
            Value::Object(object)
        };
        json!({
            "type": "about:blank",
            "title": self.status.canonical_reason().unwrap_or("Error"),
            "status": self.status.as_u16(),
            "detail": self.to_string(),
            "faults": self.faults.iter().map(fault).collect::<Vec<_>>(),
        })
    }

    /// Reads one, as a client gets it. A body that is none says what the status says.
    pub fn read(status: StatusCode, body: &[u8]) -> Problem {
        let value: Value = serde_json::from_slice(body).unwrap_or_default();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_string();
        let said = |fault: &Value| Said {
            place: text(&fault["place"]),
            cause: text(&fault["cause"]),
            remedy: text(&fault["remedy"]),
        };
        let faults: Vec<Said> = value["faults"].as_array().into_iter().flatten().map(said).collect();
        if faults.is_empty() {
            return Problem::new(status, status.canonical_reason().unwrap_or("an error without words"));
        }
        Problem { status, faults, retry_after_s: None, allow: Vec::new() }
    }
}

/// For example `filter: syntax error; ...`.
impl fmt::Display for Problem {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, said) in self.faults.iter().enumerate() {
            let between = if at > 0 { "; " } else { "" };
            let colon = if said.place.is_empty() { "" } else { ": " };
            write!(out, "{between}{}{colon}{}", said.place, said.cause)?;
        }
        Ok(())
    }
}

impl std::error::Error for Problem {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_named_once() {
        let fault = Fault::of("filter").cause("filter: syntax error at byte 0");
        assert_eq!(
            Problem::of_faults(StatusCode::BAD_REQUEST, &[fault]).to_string(),
            "filter: syntax error at byte 0"
        );
    }

    #[test]
    fn what_is_written_is_read_again() {
        let faults =
            [Fault::of("filter").cause("syntax error").remedy("write e.g. udp"), Fault::whole("other")];
        let problem = Problem::of_faults(StatusCode::BAD_REQUEST, &faults);
        let json = problem.json();
        assert_eq!((&json["status"], &json["title"]), (&json!(400), &json!("Bad Request")));
        assert_eq!(json["faults"][0]["remedy"], "write e.g. udp");
        assert_eq!(Problem::read(StatusCode::BAD_REQUEST, json.to_string().as_bytes()), problem);
        let other = Problem::read(StatusCode::BAD_GATEWAY, b"<html>");
        assert_eq!(other.to_string(), "Bad Gateway");
    }
}
