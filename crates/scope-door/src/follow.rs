//! Lines of the log as server-sent events, from now on or from where a client was.
//!
//! ```text
//! id: 17
//! event: dump
//! data: {"event":"dump","id":3,...}
//! ```

use crate::body::Body;
use crate::state::State;
use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use scope_api::{Problem, Role};
use scope_spelling::printable::json_line;
use serde_json::Value;
use std::fmt::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc::channel;
use tokio::time::sleep;

/// How often the log's tail is looked at, and how often a silent log says that it is there.
const LOOK_EVERY: Duration = Duration::from_millis(100);
const ALIVE_EVERY: Duration = Duration::from_secs(15);
/// Lines of one piece, and pieces that wait for a slow client.
const LINES_MAX: usize = 64;
const PIECES_MAX: usize = 4;
/// The header of a client that goes on.
const LAST_EVENT_ID: &str = "last-event-id";

/// The answer: it goes on until the client or the run ends.
///
/// # Errors
/// The place to go on from is none.
pub(crate) fn answer(state: &Arc<State>, role: Role, headers: &HeaderMap) -> Result<Response<Body>, Problem> {
    let newest = state.tail.newest();
    let from: u64 = match headers.get(LAST_EVENT_ID) {
        None => newest,
        Some(id) => id.to_str().ok().and_then(|id| id.parse().ok()).ok_or_else(|| {
            let remedy = "send the id of a line, or 0: all that are kept; without it only new ones come";
            Problem::new(StatusCode::BAD_REQUEST, "Last-Event-ID", "it is no number of an event", remedy)
        })?,
    };
    // A number that is still to come is another run's: all of this one is new to whoever has seen it.
    let from = if from > newest { 0 } else { from };
    let (sender, pieces) = channel(PIECES_MAX);
    let state = state.clone();
    tokio::spawn(async move {
        let (mut at, mut said) = (from, Instant::now());
        loop {
            let is_over = state.is_over();
            let (lines, missed) = state.tail.behind(at, LINES_MAX);
            let mut text = String::new();
            if missed > 0 {
                let _ = write!(text, "event: missed\ndata: {{\"lines\":{missed}}}\n\n");
            }
            for (number, line) in &lines {
                let (name, line) = shown(line, role);
                let _ = write!(text, "id: {number}\nevent: {name}\ndata: {line}\n\n");
                at = *number;
            }
            if text.is_empty() && said.elapsed() >= ALIVE_EVERY {
                text.push_str(":\n\n");
            }
            if !text.is_empty() {
                said = Instant::now();
                if sender.send(Ok(Bytes::from(text))).await.is_err() {
                    return;
                }
            }
            if lines.len() < LINES_MAX {
                if is_over {
                    return;
                }
                tokio::select! {
                    () = sleep(LOOK_EVERY) => {}
                    () = sender.closed() => return,
                }
            }
        }
    });
    let mut answer = Response::new(Body::Pieces(pieces, None));
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    answer.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(answer)
}

/// The name of an event, and its line as somebody with this role may see it: whoever may not see the configuration gets
/// none of it here either.
fn shown(line: &str, role: Role) -> (String, String) {
    let Ok(Value::Object(mut object)) = serde_json::from_str::<Value>(line) else {
        return ("line".to_string(), "{}".to_string());
    };
    let name = object.get("event").and_then(Value::as_str).unwrap_or("line").to_string();
    if role < Role::Admin {
        object.remove("config");
    }
    (name, json_line(&Value::Object(object).to_string()).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_admin_sees_the_configuration() {
        let line = r#"{"event":"start","config":"exec = \"secret\"","run_id":"1"}"#;
        assert!(shown(line, Role::Admin).1.contains("secret"));
        let (name, line) = shown(line, Role::Operator);
        assert!(name == "start" && line.contains("run_id") && !line.contains("secret"), "{line}");
        assert_eq!(shown("half a li", Role::Admin).1, "{}");
    }
}
