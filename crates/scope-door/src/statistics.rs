//! Traffic statistics: what they have done so far, which files their database has, the first ones, and one SELECT.
//!
//! ```text
//! request ─► a place, or 429 ─► thread "question", at the lowest priority ─► SQLite, within bounds ─► answer
//! ```
//! Answers say the same as `wirescope stats ... --json`. The database is opened by SQLite alone, and no path comes from a
//! client. A client that goes away ends its question.

use crate::body::{Body, text};
use crate::firing::Whose;
use crate::given::{CLIENT_GONE, COMPLETE, Given, Of};
use crate::questions;
use crate::state::State;
use http::{Response, StatusCode};
use scope_api::Problem;
use scope_api::parameters::{TOP_ROWS_MAX, once};
use scope_api::routes::Action;
use scope_engine::Asked;
use scope_events::Fact;
use scope_fault::{Fault, Subject};
use scope_spelling::printable::json_line;
use scope_spelling::values::parse_duration_ns;
use scope_stats::asking::sql::SqlAnswer;
use scope_stats::asking::top::{By, Dim, TopQuestion};
use scope_stats::asking::{AskError, Bounds, Cut, FileFacts, Watch};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::oneshot;

/// Which part of a request says the statement.
const SQL: &str = "sql";

/// What they have done so far.
///
/// # Errors
/// There are none.
pub(crate) fn now(state: &State) -> Result<Value, Problem> {
    match &state.statistics {
        Some(statistics) => Ok(statistics.status().facts().write()),
        None => {
            let remedy = "start it with --db FILE, or with --ipfix ADDR:PORT";
            Err(Problem::new(StatusCode::NOT_FOUND, "stats", "this run makes no statistics", remedy))
        }
    }
}

/// The files of their database.
///
/// # Errors
/// There is none, it can't be read, or others are being answered.
pub(crate) async fn files(
    state: &Arc<State>,
    whose: Whose<'_>,
    gone: Arc<AtomicBool>,
) -> Result<Response<Body>, Problem> {
    let facts = asked(state, whose, gone, |asked, _| asked.database.facts().map_err(problem)).await?;
    let Some(facts) = facts else { return Ok(untaken(Of::Rows)) };
    let files: Vec<Value> = facts.iter().map(FileFacts::to_json).collect();
    Ok(object(json!({"files": files}), facts.len(), COMPLETE))
}

/// The first ones.
///
/// # Errors
/// As [`files`]; or what is asked can't be meant, there is no interval yet, or it takes too long.
pub(crate) async fn top(
    state: &Arc<State>,
    query: &[(String, String)],
    whose: Whose<'_>,
    gone: Arc<AtomicBool>,
) -> Result<Response<Body>, Problem> {
    let question = top_question(query)?;
    let answer = asked(state, whose, gone, move |asked, stop| {
        let watch = Watch::of(&Bounds::OF_A_REQUEST, stop);
        asked.database.top(question, &watch).map_err(problem)
    });
    let Some(answer) = answer.await? else { return Ok(untaken(Of::Rows)) };
    Ok(object(Value::Object(answer.to_json()), answer.rows.len(), COMPLETE))
}

/// A question for the first ones, as the address has it.
///
/// # Errors
/// It can't be meant: place by place.
pub(crate) fn top_question(query: &[(String, String)]) -> Result<TopQuestion, Problem> {
    let given = once(Action::StatsTop, query)?;
    let (mut question, mut faults) = (TopQuestion::default(), Vec::new());
    let none_of = |key: &'static str, text: &str, words: &[&str]| {
        let fault = Fault::of(key).value(text, "is none of its words");
        fault.remedy(format!("write one of: {}", words.join(", ")))
    };
    if let Some(text) = given.get("by") {
        match By::of(text) {
            Some(by) => question.by = by,
            None => faults.push(none_of("by", text, &By::WORDS.map(|(word, _)| word))),
        }
    }
    if let Some(text) = given.get("dim") {
        match Dim::of(text) {
            Some(dim) => question.dim = dim,
            None => faults.push(none_of("dim", text, &Dim::WORDS.map(|(word, _)| word))),
        }
    }
    if let Some(text) = given.get("last") {
        match parse_duration_ns(text) {
            Ok(last_ns @ 1..) => question.last_ns = last_ns,
            _ => faults.push(Fault::of("last").value(text, "is no span").remedy("write e.g. 180s")),
        }
    }
    match limit(&given, TOP_ROWS_MAX) {
        Ok(limit) => question.rows = limit.unwrap_or(question.rows),
        Err(fault) => faults.push(fault),
    }
    match faults.is_empty() {
        true => Ok(question),
        false => Err(Problem::of_faults(StatusCode::BAD_REQUEST, &faults)),
    }
}

/// How many are wanted at most, where that is said.
///
/// # Errors
/// It is no such number.
pub(crate) fn limit(given: &BTreeMap<&str, &str>, most: u64) -> Result<Option<usize>, Fault> {
    let Some(text) = given.get("limit") else { return Ok(None) };
    match text.parse::<u64>() {
        Ok(limit) if (1..=most).contains(&limit) => Ok(usize::try_from(limit).ok()),
        _ => {
            let fault = Fault::of("limit").value(text, format!("is no number from 1 to {most}"));
            Err(fault.remedy("write e.g. 10"))
        }
    }
}

/// One SELECT.
///
/// # Errors
/// As [`files`]; or it is none, or wrong.
pub(crate) async fn sql(
    state: &Arc<State>,
    body: &Value,
    whose: Whose<'_>,
    gone: Arc<AtomicBool>,
) -> Result<Response<Body>, Problem> {
    let statement = statement(body)?;
    let answer = asked(state, whose, gone, move |asked, stop| {
        let answer = asked.database.sql(&statement, &Bounds::OF_A_REQUEST, stop);
        answer.map_err(|error| match error {
            // Its place is the key of the body, whatever it says there.
            AskError::Refused(fault) if fault.key().is_none() => {
                let fault = fault.of_subject(Subject::setting(SQL));
                Problem::of_faults(StatusCode::BAD_REQUEST, &[fault])
            }
            error => problem(error),
        })
    });
    let Some(answer) = answer.await? else { return Ok(untaken(Of::Rows)) };
    let SqlAnswer { rows, cut, .. } = &answer;
    let (rows, result) = (rows.len(), result(*cut));
    Ok(object(Value::Object(answer.to_json()), rows, &result))
}

/// The statement of a body.
///
/// # Errors
/// It has none, or something else.
pub(crate) fn statement(body: &Value) -> Result<String, Problem> {
    let example = r#"write e.g. {"sql": "SELECT sum(bytes) FROM intervals"}"#;
    let bad = |place: &str, cause: &str| Problem::new(StatusCode::BAD_REQUEST, place, cause, example);
    let none = Map::new();
    let object = match body {
        Value::Object(object) => object,
        Value::Null => &none,
        _ => return Err(bad("body", "it is no object")),
    };
    if let Some(key) = object.keys().find(|key| *key != SQL) {
        return Err(bad(key, "there is no such key"));
    }
    match object.get(SQL) {
        Some(Value::String(statement)) => Ok(statement.clone()),
        _ => Err(bad(SQL, "it is missing, or no text")),
    }
}

/// What came of an answer, for the audit.
pub(crate) fn result(cut: Option<Cut>) -> String {
    cut.map_or(COMPLETE.to_string(), |cut| format!("cut: {}", cut.word()))
}

/// An answer that is one object, of so many rows.
fn object(value: Value, rows: usize, result: &str) -> Response<Body> {
    given(text("application/json", format!("{}\n", json_line(&value.to_string()))), rows, result)
}

/// An answer that has all its rows, as the audit notes it.
pub(crate) fn given(mut answer: Response<Body>, rows: usize, result: &str) -> Response<Body> {
    let bytes = match answer.body() {
        Body::Whole(Some(bytes)) => bytes.len() as u64,
        _ => 0,
    };
    let given = Given { of: Of::Rows, count: rows as u64, bytes, result: result.to_string() };
    answer.extensions_mut().insert(given);
    answer
}

/// Where nobody waits for an answer any more.
pub(crate) fn untaken(of: Of) -> Response<Body> {
    let mut answer = Response::new(Body::Whole(None));
    let result = CLIENT_GONE.to_string();
    answer.extensions_mut().insert(Given { of, count: 0, bytes: 0, result });
    answer
}

/// Asks the database in a thread of its own; `None`: nobody waits for the answer any more.
///
/// # Errors
/// There is none, others are being answered, the run ends; or what `ask` says.
pub(crate) async fn asked<T: Send + 'static>(
    state: &Arc<State>,
    Whose { identity, is_bounded, .. }: Whose<'_>,
    stop: Arc<AtomicBool>,
    ask: impl FnOnce(&Asked, Arc<AtomicBool>) -> Result<T, Problem> + Send + 'static,
) -> Result<Option<T>, Problem> {
    let asked = database(state)?;
    let place = state.questions.place(is_bounded.then_some(identity))?;
    state.questions.register(&stop);
    let (tell, made) = oneshot::channel();
    let stopped = stop.clone();
    questions::begin(move || {
        let made = ask(&asked, stop);
        drop(place);
        let _ = tell.send(made); // nobody waits for it where the run ends
    })?;
    let made = made.await.map_err(|_| Problem::internal("run", "the question failed"))?;
    match stopped.load(Ordering::Relaxed) {
        false => made.map(Some),
        true if state.is_over() || state.is_closing() => Err(Problem::ended()),
        true => Ok(None),
    }
}

/// The database of the run.
///
/// # Errors
/// It has none.
pub(crate) fn database(state: &State) -> Result<Arc<Asked>, Problem> {
    state.asked.clone().ok_or_else(|| {
        let remedy = "start it with --db FILE, or with --db DIR/";
        Problem::new(StatusCode::NOT_FOUND, "db", "this run has no database of statistics", remedy)
    })
}

/// Why there is no answer of the database.
pub(crate) fn problem(error: AskError) -> Problem {
    let of_database = error.fault().key().is_some_and(|key| key == "db");
    match error {
        AskError::Refused(fault) => {
            // Nothing is wrong with the question: there is nothing to be asked yet, or any more.
            let status = if of_database { StatusCode::NOT_FOUND } else { StatusCode::BAD_REQUEST };
            Problem::of_faults(status, &[fault])
        }
        AskError::Failed(fault) if fault.remedy.is_some() => {
            Problem::of_faults(StatusCode::INTERNAL_SERVER_ERROR, &[fault])
        }
        AskError::Failed(fault) => Problem::internal("db", fault.why()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_the_flags_of_stats_top() {
        let read = |words: &str| {
            let query: Vec<(String, String)> =
                form_urlencoded::parse(words.as_bytes()).into_owned().collect();
            top_question(&query)
        };
        assert_eq!(read("").unwrap(), TopQuestion::default());
        let expected = TopQuestion { by: By::Flows, dim: Dim::Pair, last_ns: 3_600_000_000_000, rows: 3 };
        assert_eq!(read("by=flows&dim=pair&last=1h&limit=3").unwrap(), expected);
        for (words, place) in [
            ("by=x", "by"),
            ("dim=host", "dim"),
            ("last=0s", "last"),
            ("last=-1s", "last"),
            ("limit=0", "limit"),
            ("limit=1001", "limit"),
            ("limit=+5", "limit"),
            ("by=bytes&by=bytes", "by"),
            ("db=/etc/passwd", "db"),
        ] {
            let problem = read(words).unwrap_err();
            assert_eq!((problem.status.as_u16(), &*problem.faults[0].place), (400, place), "{words}");
        }
        assert_eq!(read("by=x&dim=y&limit=z").unwrap_err().faults.len(), 3, "all at once");
    }

    #[test]
    fn a_body_has_one_text_and_nothing_else() {
        let check = |body: Value, expected: &str| {
            let said = statement(&body).unwrap_or_else(|problem| problem.to_string());
            assert_eq!(said, expected);
        };
        check(json!({"sql": "SELECT 1"}), "SELECT 1");
        check(json!(null), "sql: it is missing, or no text");
        check(json!({"sql": ["SELECT 1"]}), "sql: it is missing, or no text");
        check(json!({"sql": "SELECT 1", "db": "/etc/passwd"}), "db: there is no such key");
        check(json!(["SELECT 1"]), "body: it is no object");
    }
}
