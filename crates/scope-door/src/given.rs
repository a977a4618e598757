//! What came of an answer that is streamed: known when it has ended, and noted then.

use scope_spelling::time::iso;
use scope_store::timeline::Span;
use serde_json::{Value, json};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::oneshot::Receiver;

/// What was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Given {
    pub span: Span,
    pub packets: u64,
    pub bytes: u64,
    /// In words.
    pub result: String,
}

impl Given {
    /// Nothing by now, of a span.
    pub(crate) fn of(span: Span, result: &str) -> Given {
        Given { span, packets: 0, bytes: 0, result: result.to_string() }
    }

    /// As the audit has it.
    pub(crate) fn json(&self) -> Value {
        let Given { span: Span { from_ns, to_ns }, packets, bytes, result } = self;
        let from = (*from_ns > 0).then(|| iso(*from_ns));
        let to = (*to_ns < i64::MAX).then(|| iso(*to_ns));
        json!({"from": from, "to": to, "packets": packets, "bytes": bytes, "result": result})
    }
}

/// Goes with an answer, and is taken out before that goes on its way.
#[derive(Clone)]
pub(crate) struct Later(pub Arc<Mutex<Option<Receiver<Given>>>>);

impl Later {
    /// Waits for the end of the answer; `None`: nobody will say what came of it.
    pub(crate) async fn given(self) -> Option<Given> {
        let given = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        given?.await.ok()
    }
}
