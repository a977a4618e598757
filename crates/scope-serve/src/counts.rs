//! What became of requests and connections: a counter for each bound, and one for each status.

use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// Counters since the begin.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    /// Connections beyond the bound.
    pub connections: AtomicU64,
    /// Heads that were too long.
    pub heads: AtomicU64,
    /// Heads that didn't come in time.
    pub slow: AtomicU64,
    /// Clients that took nothing for too long.
    pub stalled: AtomicU64,
    /// Connections without the TLS that is needed, or that it took too long.
    pub handshakes: AtomicU64,
    /// Answers that ended before their time, because who asked may not any more.
    pub identity: AtomicU64,
    /// Requests beyond an identity's bound.
    pub rate: AtomicU64,
    /// Requests beyond what a run is asked at once.
    pub busy: AtomicU64,
    /// Lines of refusals that weren't said.
    pub unsaid: AtomicU64,
    /// Refusals of which a run didn't hear.
    pub unnoted: AtomicU64,
    /// Lists of last uses that couldn't be written.
    pub unwritten: AtomicU64,
    /// Answers by their status.
    answers: Mutex<BTreeMap<u16, u64>>,
}

/// One more.
pub(crate) fn one_more(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

impl Counts {
    pub(crate) fn answered(&self, status: u16) {
        *self.answers.lock().unwrap_or_else(PoisonError::into_inner).entry(status).or_default() += 1;
    }

    /// As an answer has them.
    pub(crate) fn json(&self) -> Value {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        let answers: BTreeMap<String, u64> =
            answers.iter().map(|(status, answers)| (status.to_string(), *answers)).collect();
        json!({
            "answers": answers,
            "refused": {
                "connections": of(&self.connections), "head_too_long": of(&self.heads), "rate": of(&self.rate),
                "busy": of(&self.busy),
            },
            "ended": {
                "handshake": of(&self.handshakes), "head_too_slow": of(&self.slow), "stalled": of(&self.stalled),
                "identity": of(&self.identity),
            },
            "lines_unsaid": of(&self.unsaid),
            "refusals_unnoted": of(&self.unnoted),
            "uses_unwritten": of(&self.unwritten),
        })
    }
}
