//! The newest hash of a run's audit, for the status lines of its log, and what couldn't be written of it.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// How the audit stands.
#[derive(Debug, Default)]
pub struct AuditHead(Mutex<Head>);

#[derive(Debug, Default)]
struct Head {
    newest: Option<String>,
    failures: u64,
    /// Why a line couldn't be written first, until it is told.
    untold: Option<String>,
}

impl AuditHead {
    fn lock(&self) -> MutexGuard<'_, Head> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Another line was written, which has this hash.
    pub fn set(&self, hash: &str) {
        self.lock().newest = Some(hash.to_string());
    }

    /// The hash of the newest line of `audit.jsonl`; `None`: none was written.
    pub fn get(&self) -> Option<String> {
        self.lock().newest.clone()
    }

    /// A line couldn't be written.
    pub fn fail(&self, cause: &str) {
        let mut head = self.lock();
        if head.failures == 0 {
            head.untold = Some(cause.to_string());
        }
        head.failures += 1;
    }

    /// Lines that couldn't be written.
    pub fn failures(&self) -> u64 {
        self.lock().failures
    }

    /// Why the first one couldn't, once.
    pub fn take_failure(&self) -> Option<String> {
        self.lock().untold.take()
    }
}
