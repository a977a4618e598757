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

/// The place of what has none in particular, or a name without a letter.
const WHOLE: &str = "request";
/// Where else nothing helps.
const SEE_DOCUMENT: &str = "see GET /api/v1/openapi.json";

/// Why a request isn't answered. Outside of here it is made by [`Problem::new`] and [`Problem::of`] alone, so that each fault has
/// a place, a cause and a remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
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

/// One fault, in words. Outside of here it is made by [`Said::new`] alone.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Said {
    /// Where: a parameter, a key, a header, or a part of the request. Empty only where an answer that was read says none.
    pub place: String,
    /// What is wrong.
    pub cause: String,
    /// What helps; empty as `place`.
    pub remedy: String,
}

impl Said {
    /// A fault: where it is, what is wrong, what helps.
    pub fn new(place: impl Into<String>, cause: impl Into<String>, remedy: impl Into<String>) -> Said {
        let place = Some(place.into()).filter(|place| !place.is_empty());
        Said { place: place.unwrap_or_else(|| WHOLE.to_string()), cause: cause.into(), remedy: remedy.into() }
    }
}

impl Problem {
    /// With one fault: where it is, what is wrong, what helps.
    pub fn new(
        status: StatusCode,
        place: impl Into<String>,
        cause: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Problem {
        Problem::of(status, vec![Said::new(place, cause, remedy)])
    }

    /// With these faults, of which there is at least one.
    pub fn of(status: StatusCode, faults: Vec<Said>) -> Problem {
        Problem { status, faults, retry_after_s: None, allow: Vec::new() }
    }

    /// Something that isn't a client's fault: the system refuses, or a file can't be read.
    pub fn internal(place: impl Into<String>, cause: impl Into<String>) -> Problem {
        let remedy = "look at the log of the run, wirescope.jsonl, and ask again";
        Problem::new(StatusCode::INTERNAL_SERVER_ERROR, place, cause, remedy)
    }

    /// The run is over, or is ending.
    pub fn ended() -> Problem {
        let remedy = "ask its files: wirescope query";
        Problem::new(StatusCode::SERVICE_UNAVAILABLE, "run", "the run has ended", remedy)
    }

    /// After so many seconds it may be tried again.
    pub fn retry_after(mut self, seconds: u64) -> Problem {
        self.retry_after_s = Some(seconds);
        self
    }

    /// A path that has no such method, but these.
    pub fn not_allowed(path: &str, method: &str, allow: Vec<&'static str>) -> Problem {
        let remedy = format!("there are: {}", allow.join(", "));
        let cause = format!("{path} has no {method}");
        Problem { allow, ..Problem::new(StatusCode::METHOD_NOT_ALLOWED, "method", cause, remedy) }
    }

    /// Of faults that were found in what was asked. One without a place is one of the request; one without a remedy refers to
    /// the document of the API.
    pub fn of_faults(status: StatusCode, faults: &[Fault]) -> Problem {
        let said = |fault: &Fault| {
            let json = fault.to_json();
            let text = |key: &str| json[key].as_str().unwrap_or_default().to_string();
            let place = if json["key"].is_null() { text("subject") } else { text("key") };
            // Filters name themselves in their words.
            let cause = text("cause");
            let cause = cause.strip_prefix(&format!("{place}: ")).unwrap_or(&cause).to_string();
            let remedy = text("remedy");
            Said::new(place, cause, if remedy.is_empty() { SEE_DOCUMENT } else { &remedy })
        };
        Problem::of(status, faults.iter().map(said).collect())
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
            let cause = status.canonical_reason().unwrap_or("an error without words").to_string();
            return Problem::of(status, vec![Said { place: String::new(), cause, remedy: String::new() }]);
        }
        Problem::of(status, faults)
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
        assert_eq!(json["faults"][1], json!({"place": "request", "cause": "other", "remedy": SEE_DOCUMENT}));
        assert_eq!(Problem::read(StatusCode::BAD_REQUEST, json.to_string().as_bytes()), problem);
        let other = Problem::read(StatusCode::BAD_GATEWAY, b"<html>");
        assert_eq!(other.to_string(), "Bad Gateway");
    }
}
