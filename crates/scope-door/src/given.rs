//! What came of an answer that is streamed: known when it has ended, and noted then.

use crate::stream::Sent;
use scope_http::body::Count;
use scope_spelling::time::iso;
use scope_store::timeline::Span;
use serde_json::{Value, json};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::oneshot::Receiver;
use tokio::sync::watch;

/// Results of an answer that was made to its end.
pub(crate) const COMPLETE: &str = "complete";
pub(crate) const INCOMPLETE: &str = "incomplete";
/// The result of one that nobody took.
pub(crate) const CLIENT_GONE: &str = "the client went away";

/// What was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Of {
    /// Packets of this span.
    Packets(Span),
    /// Rows of statistics.
    Rows,
    /// A file.
    File,
}

/// What was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Given {
    pub of: Of,
    /// Packets, or rows.
    pub count: u64,
    pub bytes: u64,
    /// In words.
    pub result: String,
}

impl Given {
    /// No packets by now, of a span.
    pub(crate) fn of(span: Span, result: &str) -> Given {
        Given { of: Of::Packets(span), count: 0, bytes: 0, result: result.to_string() }
    }

    /// It was made to its end.
    fn is_whole(&self) -> bool {
        matches!(&*self.result, COMPLETE | INCOMPLETE)
    }

    /// As the audit has it.
    pub(crate) fn json(&self) -> Value {
        let Given { of, count, bytes, result } = self;
        match of {
            Of::Packets(Span { from_ns, to_ns }) => {
                let from = (*from_ns > 0).then(|| iso(*from_ns));
                let to = (*to_ns < i64::MAX).then(|| iso(*to_ns));
                json!({"from": from, "to": to, "packets": count, "bytes": bytes, "result": result})
            }
            Of::Rows => json!({"rows": count, "bytes": bytes, "result": result}),
            Of::File => json!({"bytes": bytes, "result": result}),
        }
    }
}

/// What is known at the end of an answer: what was made of it, and how much of that went out.
pub(crate) struct Ending {
    pub made: Receiver<Given>,
    pub sent: Arc<Sent>,
    pub count: Count,
    /// Set: nobody waits for clients any more.
    pub over: watch::Receiver<bool>,
}

/// Goes with an answer, and is taken out before that goes on its way.
#[derive(Clone)]
pub(crate) struct Later(Arc<Mutex<Option<Ending>>>);

impl Later {
    pub(crate) fn new(ending: Ending) -> Later {
        Later(Arc::new(Mutex::new(Some(ending))))
    }

    /// Waits for the end of the answer; `why` says why one broke off that was made whole. `None`: nobody will say what
    /// came of it.
    pub(crate) async fn given(self, why: impl FnOnce() -> &'static str) -> Option<Given> {
        let ending = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Ending { made, sent, count, mut over } = ending?;
        let made = made.await.ok()?;
        let over = async move { drop(over.wait_for(|over| *over).await) };
        let Some((count, bytes)) = sent.up_to(count.at_end(over).await) else { return Some(made) };
        let is_whole = made.is_whole();
        let given = Given { count, bytes, ..made };
        Some(if is_whole { Given { result: why().to_string(), ..given } } else { given })
    }
}
