//! The newest hash of a run's audit, for the status lines of its log.

use std::sync::{Mutex, PoisonError};

/// The hash of the newest line of `audit.jsonl`; nothing where none was written.
#[derive(Debug, Default)]
pub struct AuditHead(Mutex<Option<String>>);

impl AuditHead {
    /// Another line was written.
    pub fn set(&self, hash: &str) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(hash.to_string());
    }

    /// The newest.
    pub fn get(&self) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
