//! Records of flows that a filter and a span match, a line each: as `wirescope flows` prints them.
//!
//! All of an answer is there before its first byte goes out: so it says in its head why it ends, and no reader of a
//! database waits for a client.

use crate::body::{Body, text};
use crate::firing::Whose;
use crate::given::Of;
use crate::question::in_one_line;
use crate::state::State;
use crate::statistics::{asked, given, limit, problem, result, untaken};
use http::{HeaderName, HeaderValue, Response, StatusCode};
use jiff::tz::TimeZone;
use scope_answer::SpanWords;
use scope_api::Problem;
use scope_api::parameters::{FLOWS_MAX, once};
use scope_api::routes::Action;
use scope_engine::Asked;
use scope_events::now_ns;
use scope_fault::{Fault, Subject};
use scope_filter::FlowFilter;
use scope_spelling::moment::Here;
use scope_stats::asking::flows::{FlowColumns, FlowQuestion, FlowRecord};
use scope_stats::asking::{AskError, Bounds, Cut, Watch};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// What an answer may take.
const BOUNDS: Bounds = Bounds { bytes: 16 << 20, ..Bounds::OF_A_REQUEST };

const RECORDS: HeaderName = HeaderName::from_static("wirescope-records");
const CUT: HeaderName = HeaderName::from_static("wirescope-cut");

/// The form of the records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Jsonl,
    Csv,
}

/// A question, understood but for its filter.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Asking {
    filter: String,
    span_ns: (i64, i64),
    limit: usize,
    form: Form,
}

/// Records that match.
struct Lines {
    text: String,
    records: usize,
    cut: Option<Cut>,
}

/// The answer.
///
/// # Errors
/// What is asked can't be meant, there is no database, it can't be read, or others are being answered.
pub(crate) async fn answer(
    state: &Arc<State>,
    query: &[(String, String)],
    whose: Whose<'_>,
    gone: Arc<AtomicBool>,
) -> Result<Response<Body>, Problem> {
    let asking = Asking::read(query)?;
    let form = asking.form;
    let lines = asked(state, whose, gone, move |asked, stop| asking.lines(asked, stop)).await?;
    let Some(lines) = lines else { return Ok(untaken(Of::Rows)) };
    let kind = match form {
        Form::Jsonl => "application/jsonl",
        Form::Csv => "text/csv; charset=utf-8",
    };
    let mut answer = text(kind, lines.text);
    answer.headers_mut().insert(RECORDS, HeaderValue::from(lines.records));
    if let Some(cut) = lines.cut {
        answer.headers_mut().insert(CUT, HeaderValue::from_static(cut.word()));
    }
    Ok(given(answer, lines.records, &result(lines.cut)))
}

impl Asking {
    /// Reads parameters.
    ///
    /// # Errors
    /// They can't be meant: place by place.
    pub(crate) fn read(query: &[(String, String)]) -> Result<Asking, Problem> {
        let given = once(Action::Flows, query)?;
        let text = |key: &str| given.get(key).copied();
        let mut faults = Vec::new();
        let here = Here { now_ns: now_ns(), zone: TimeZone::UTC };
        let words = SpanWords { from: text("from"), to: text("to"), ..SpanWords::default() };
        let (span, _) = words.read(&here, &mut faults);
        let filter = in_one_line(text("filter").unwrap_or_default()).unwrap_or_else(|fault| {
            faults.push(fault.of_subject(Subject::setting("filter")));
            String::new()
        });
        let form = match text("format") {
            None | Some("jsonl") => Form::Jsonl,
            Some("csv") => Form::Csv,
            Some(other) => {
                let fault = Fault::of("format").value(other, "is no form of flows");
                faults.push(fault.remedy("write jsonl or csv"));
                Form::Jsonl
            }
        };
        let limit = limit(&given, FLOWS_MAX).unwrap_or_else(|fault| {
            faults.push(fault);
            None
        });
        if !faults.is_empty() {
            return Err(Problem::of_faults(StatusCode::BAD_REQUEST, &faults));
        }
        let limit = limit.unwrap_or(FLOWS_MAX as usize);
        Ok(Asking { filter, span_ns: (span.from_ns, span.to_ns), limit, form })
    }

    /// The records, as lines.
    fn lines(self, asked: &Asked, stop: Arc<AtomicBool>) -> Result<Lines, Problem> {
        let Asking { filter, span_ns, limit, form } = self;
        let filter = FlowFilter::compile(&filter).map_err(|error| {
            let fault = error.fault().of_subject(Subject::setting("filter"));
            let fault = match fault.remedy {
                Some(_) => fault,
                None => fault.remedy("write it in the language of tcpdump, e.g. udp port 53"),
            };
            Problem::of_faults(StatusCode::BAD_REQUEST, &[fault])
        })?;
        let columns = FlowColumns::known();
        let columns = columns.map_err(|error| problem(AskError::unread(asked.database.path(), &error)))?;
        let head = if form == Form::Csv { columns.csv_head() } else { String::new() };
        let mut lines = Lines { text: head, records: 0, cut: None };
        let watch = Watch::of(&BOUNDS, stop);
        let mut add = |record: &FlowRecord| {
            let line = match form {
                Form::Jsonl => columns.json_line(record),
                Form::Csv => columns.csv_line(record),
            };
            lines.cut = if lines.records == limit {
                Some(Cut::Rows)
            } else if lines.text.len() + line.len() > BOUNDS.bytes {
                Some(Cut::Bytes)
            } else {
                lines.text.push_str(&line);
                lines.records += 1;
                return ControlFlow::Continue(());
            };
            ControlFlow::Break(())
        };
        let read = asked.database.flows_of(&FlowQuestion { filter, span_ns }, &watch, &mut add);
        match (read, watch.cut()) {
            // What was read up to there is true.
            (Err(_), Some(cut @ (Cut::Time | Cut::Memory))) => Ok(Lines { cut: Some(cut), ..lines }),
            (Err(error), _) => Err(problem(error)),
            (Ok(()), _) => Ok(lines),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_the_flags_of_flows() {
        let read = |words: &str| {
            let query: Vec<(String, String)> =
                form_urlencoded::parse(words.as_bytes()).into_owned().collect();
            Asking::read(&query)
        };
        let all = Asking {
            filter: String::new(),
            span_ns: (0, i64::MAX),
            limit: FLOWS_MAX as usize,
            form: Form::Jsonl,
        };
        assert_eq!(read("").unwrap(), all);
        let expected = Asking {
            filter: "udp port 53".to_string(),
            span_ns: (10_000_000_000, 20_000_000_000),
            limit: 7,
            form: Form::Csv,
        };
        assert_eq!(read("filter=udp+port+53&from=@10&to=@20&limit=7&format=csv").unwrap(), expected);
        for (words, place) in [
            ("filter=udp%00", "filter"),
            ("from=soon", "from"),
            ("from=@20&to=@10", "to"),
            ("limit=0", "limit"),
            ("limit=10001", "limit"),
            ("format=table", "format"),
            ("follow=true", "follow"),
            ("format=csv&format=csv", "format"),
        ] {
            let problem = read(words).unwrap_err();
            assert_eq!((problem.status.as_u16(), &*problem.faults[0].place), (400, place), "{words}");
        }
    }
}
