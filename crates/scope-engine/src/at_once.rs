//! The last line of a run that is ended at once: whoever stops it twice wants no summary, but the log says
//! that it was so.

use crate::dumps::Dumps;
use scope_events::Events;
use scope_events::event::EndedAtOnce;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

/// How long the end may wait for the log's disk.
const PATIENCE: Duration = Duration::from_millis(300);

/// What is needed to say it.
#[derive(Default)]
pub(crate) struct AtOnce {
    asked: AtomicBool,
    /// `None` before a run has begun its log.
    log: Mutex<Option<(Weak<Events>, Weak<Dumps>)>>,
}

impl AtOnce {
    /// From here on there is a log.
    pub(crate) fn knows(&self, events: &Arc<Events>, dumps: &Arc<Dumps>) {
        let known = (Arc::downgrade(events), Arc::downgrade(dumps));
        *self.log.lock().unwrap_or_else(PoisonError::into_inner) = Some(known);
    }

    /// Whether the process is about to end.
    pub(crate) fn asked(&self) -> bool {
        self.asked.load(Ordering::Acquire)
    }

    /// Writes the line, or gives up after [`PATIENCE`].
    pub(crate) fn log(&self, why: &str) {
        self.asked.store(true, Ordering::Release);
        let known = self.log.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some((events, dumps)) = known else { return };
        let (Some(events), Some(dumps)) = (events.upgrade(), dumps.upgrade()) else { return };
        let end =
            EndedAtOnce { why: why.to_string(), dumps_open: dumps.open_now().map(|dumps| dumps as u64) };
        // Where the disk is stuck the process ends without it: that is what was asked for.
        let _ = events.log_last(end, PATIENCE);
    }
}

impl fmt::Debug for AtOnce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AtOnce")
    }
}
