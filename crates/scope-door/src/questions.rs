//! The questions for packets that are being answered: how many there may be, and their end with the run.

use scope_engine::QUESTIONS_MAX;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use tokio::sync::{Semaphore, watch};

/// All of them.
pub(crate) struct Questions {
    /// Places for [`QUESTIONS_MAX`].
    pub places: Arc<Semaphore>,
    /// Questions that found none.
    pub refused: AtomicU64,
    /// Those that were begun.
    begun: AtomicU64,
    stops: Mutex<Vec<Weak<AtomicBool>>>,
    over: watch::Sender<bool>,
}

impl Default for Questions {
    fn default() -> Questions {
        Questions {
            places: Arc::new(Semaphore::new(QUESTIONS_MAX)),
            refused: AtomicU64::new(0),
            begun: AtomicU64::new(0),
            stops: Mutex::default(),
            over: watch::Sender::new(false),
        }
    }
}

impl Questions {
    /// How many are answered at once, at most.
    pub(crate) fn most(&self) -> usize {
        QUESTIONS_MAX
    }

    /// How many were begun so far, and how many are being answered.
    pub(crate) fn counts(&self) -> (u64, u64) {
        let open = QUESTIONS_MAX.saturating_sub(self.places.available_permits()) as u64;
        (self.begun.load(Ordering::Relaxed), open)
    }

    /// One begins; `stop` ends it.
    pub(crate) fn register(&self, stop: &Arc<AtomicBool>) {
        self.begun.fetch_add(1, Ordering::Relaxed);
        let mut stops = self.stops.lock().unwrap_or_else(PoisonError::into_inner);
        stops.retain(|stop| stop.strong_count() > 0);
        stops.push(Arc::downgrade(stop));
    }

    /// Says when they are to end.
    pub(crate) fn over(&self) -> watch::Receiver<bool> {
        self.over.subscribe()
    }

    /// The run is over.
    pub(crate) fn end(&self) {
        self.over.send_replace(true);
        let stops = self.stops.lock().unwrap_or_else(PoisonError::into_inner);
        for stop in stops.iter().filter_map(Weak::upgrade) {
            stop.store(true, Ordering::Relaxed);
        }
    }
}
