//! One live interface of a run, as status, log and summary show it.

use scope_source::SourceCounters;
use std::sync::Arc;

/// One live interface, all its workers together.
#[derive(Clone, Debug)]
pub struct InterfaceStatus {
    /// Its source, as typed.
    pub source: String,
    /// The name that it is captured under.
    pub interface: Arc<str>,
    /// What the system calls it now: another name only where it is there and was renamed.
    pub called: Arc<str>,
    /// So far, over all the times that it was there.
    pub counters: SourceCounters,
}
