//! A run from start to end.

use crate::plan::RunPlan;
use crate::status::Status;
use crate::summary::Summary;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Orders from outside while a run goes: a signal handler may give them. One closed set.
#[derive(Debug, Default)]
pub struct Control {
    stops: AtomicU32,
    fires: AtomicU32,
}

impl Control {
    /// Stop the sources, close the dumps with what has arrived, and end. Legal at any time; asked twice, the second is the
    /// caller's to act on.
    pub fn stop(&self) {
        self.stops.fetch_add(1, Ordering::Relaxed);
    }

    /// Fire every armed trigger by hand; with no trigger, dump the last `before` of everything. Legal at any time.
    pub fn fire(&self) {
        self.fires.fetch_add(1, Ordering::Relaxed);
    }

    /// Stops asked for so far.
    pub fn stops(&self) -> u32 {
        self.stops.load(Ordering::Relaxed)
    }

    pub(crate) fn take_fires(&self) -> u32 {
        self.fires.swap(0, Ordering::Relaxed)
    }
}

/// Whoever watches a run: called from the run's main thread, never from the packet path (but `prefault` from several threads).
pub trait Watch: Sync {
    /// The ring's memory is being made resident: bytes done so far, of so many.
    fn prefault(&self, done: u64, total: u64);
    /// Sources are open and the ring is ready: capture begins.
    fn started(&self);
    /// Once a second.
    fn status(&self, status: &Status);
    /// Something worth a line: a warning of a source, a finished dump (in plain words).
    fn note(&self, line: &str);
}

/// Why a run couldn't begin or go on. Texts say place, cause and remedy.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// A source couldn't be opened.
    #[error(transparent)]
    Source(#[from] scope_source::SourceError),
    /// The ring couldn't be made.
    #[error(transparent)]
    Ring(#[from] scope_ring::RingError),
    /// A file couldn't be made.
    #[error("{place}: {cause}")]
    File {
        /// Which.
        place: String,
        /// The system's own words.
        #[source]
        cause: std::io::Error,
    },
}

/// Runs `plan` to its end.
pub fn run(plan: RunPlan, control: &Arc<Control>, watch: &dyn Watch) -> Result<Summary, EngineError> {
    let _ = (plan, control, watch);
    todo!("next")
}
