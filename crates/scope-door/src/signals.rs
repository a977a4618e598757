//! The signals of a run: what each is now, what it was in steps, and all of them live as server-sent events.
//!
//! ```text
//! event: signals
//! data: {"at":"2026-11-20T20:31:05.123Z","signals":{"pps":{"min":0,"max":3000,"mean":1180},"syn":null}}
//! ```

use crate::body::{Body, json};
use crate::state::State;
use bytes::Bytes;
use http::header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use jiff::tz::TimeZone;
use scope_api::Problem;
use scope_api::parameters::once;
use scope_api::routes::Action;
use scope_engine::{Measuring, SignalNow};
use scope_spelling::moment::Here;
use scope_spelling::time::iso;
use scope_spelling::values::parse_duration_ns;
use scope_trigger::measure::BIN_NS;
use scope_trigger::series::{STEPS_MAX, Step};
use serde_json::{Map, Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::channel;
use tokio::time::sleep;

/// How often a live stream has a line, and of how much time it speaks, ns.
const LIVE_EVERY: Duration = Duration::from_millis(100);
const LIVE_NS: i64 = 100_000_000;
/// Lines that wait for a slow client; what comes then it never sees.
const LINES_MAX: usize = 4;
/// The media type of a live stream.
const STREAM: &str = "text/event-stream";
/// Steps where nothing is said.
const STEPS: i64 = 600;

/// All of them.
pub(crate) fn list(state: &Arc<State>, headers: &HeaderMap) -> Response<Body> {
    let wanted = headers.get(ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
    if wanted.contains(STREAM) {
        return live(state);
    }
    let signals: Vec<Value> = state.measuring.now().iter().map(signal).collect();
    let (unmeasured, late) = state.measuring.lacks();
    json(StatusCode::OK, &json!({"signals": signals, "unmeasured": unmeasured, "late": late}))
}

fn signal(now: &SignalNow) -> Value {
    json!({
        "name": now.name, "measure": now.measure, "expr": now.expr, "unit": now.unit, "latest": now.latest,
        "from": now.measured.map(|(from_ns, _)| iso(from_ns)),
        "to": now.measured.map(|(_, to_ns)| iso(to_ns)),
    })
}

/// One of them in steps, for these parameters of a query: `from`, `to`, `step`.
///
/// # Errors
/// One of them can't be meant, or there is none of that name.
pub(crate) fn steps(
    measuring: &Measuring,
    name: &str,
    query: &[(String, String)],
    now_ns: i64,
) -> Result<Value, Problem> {
    let bad = |key: &str, cause: String, remedy: &str| {
        Problem::new(StatusCode::BAD_REQUEST, key, cause, remedy.to_string())
    };
    let found = measuring.now().into_iter().find(|signal| signal.name == name);
    let Some(now) = found else {
        let remedy = "GET /api/v1/signals says which there are";
        return Err(Problem::new(
            StatusCode::NOT_FOUND,
            "name",
            format!("there is no signal '{name}'"),
            remedy,
        ));
    };
    let here = Here { now_ns, zone: TimeZone::UTC };
    let (measured_from_ns, measured_to_ns) = now.measured.unwrap_or((now_ns, now_ns));
    let (mut from_ns, mut to_ns, mut step_ns) = (measured_from_ns, measured_to_ns, None);
    for (key, value) in once(Action::Signal, query)? {
        let time = || {
            let read = here.read(value).map(|moment| moment.time_ns);
            read.map_err(|wrong| Problem::new(StatusCode::BAD_REQUEST, key, wrong.cause, wrong.remedy))
        };
        match key {
            "from" => from_ns = time()?,
            "to" => to_ns = time()?,
            _ => match parse_duration_ns(value) {
                Ok(ns @ BIN_NS..) => step_ns = Some(ns),
                _ => {
                    return Err(bad(
                        key,
                        format!("'{value}' is no length of a step"),
                        "write e.g. 1s, at least 1ms",
                    ));
                }
            },
        }
    }
    if to_ns < from_ns {
        return Err(bad("to", "the span ends before it begins".to_string(), "exchange it with from"));
    }
    let (from_ns, to_ns) = (from_ns.max(measured_from_ns), to_ns.min(measured_to_ns.max(1) - 1));
    let length_ns = to_ns.saturating_sub(from_ns).max(0);
    let step_ns = step_ns.unwrap_or((length_ns / STEPS).max(BIN_NS));
    if length_ns / step_ns >= STEPS_MAX as i64 {
        let cause = format!("{} steps are more than {STEPS_MAX}", length_ns / step_ns + 1);
        return Err(bad("step", cause, "lengthen it, or shorten the span"));
    }
    let (step_ns, steps) = measuring.steps(name, (from_ns, to_ns), step_ns).unwrap_or_default();
    let steps: Vec<Value> = steps.iter().map(step).collect();
    let mut answer = signal(&now);
    if let Value::Object(object) = &mut answer {
        object.insert("step_ns".to_string(), json!(step_ns));
        object.insert("steps".to_string(), json!(steps));
    }
    Ok(answer)
}

fn step(step: &Step) -> Value {
    let mut object = Map::from_iter([("from".to_string(), json!(iso(step.from_ns)))]);
    let values = step.values.map_or([None; 3], |(min, max, mean)| [Some(min), Some(max), Some(mean)]);
    object
        .extend(["min", "max", "mean"].map(str::to_string).into_iter().zip(values.map(|value| json!(value))));
    Value::Object(object)
}

/// All of them as they come, until the client or the run ends.
fn live(state: &Arc<State>) -> Response<Body> {
    let (sender, pieces) = channel(LINES_MAX);
    let state = state.clone();
    tokio::spawn(async move {
        let mut told_ns = 0;
        while !state.is_over() {
            let all = state.measuring.now();
            let to_ns = all.first().and_then(|signal| signal.measured).map_or(0, |(_, to_ns)| to_ns);
            if to_ns > told_ns {
                told_ns = to_ns;
                let value = |signal: &SignalNow| {
                    if signal.is_per_second {
                        // What there is of them is the last whole second.
                        let shown =
                            signal.latest.map(|value| json!({"min": value, "max": value, "mean": value}));
                        return (signal.name.clone(), json!(shown));
                    }
                    let span = (to_ns - LIVE_NS, to_ns - 1);
                    let steps = state.measuring.steps(&signal.name, span, LIVE_NS).unwrap_or_default().1;
                    let values = steps.last().and_then(|step| step.values);
                    let shown =
                        |(min, max, mean): (f64, f64, f64)| json!({"min": min, "max": max, "mean": mean});
                    (signal.name.clone(), values.map_or(Value::Null, shown))
                };
                let signals: Map<String, Value> = all.iter().map(value).collect();
                let line = json!({"at": iso(to_ns), "signals": signals});
                let text = format!("event: signals\ndata: {line}\n\n");
                if sender.send(Ok(Bytes::from(text))).await.is_err() {
                    return;
                }
            }
            tokio::select! {
                () = sleep(LIVE_EVERY) => {}
                () = sender.closed() => return,
            }
        }
    });
    let mut answer = Response::new(Body::Pieces(pieces, None));
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(STREAM));
    answer.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    answer
}
