//! The questions for packets and statistics that are being answered: how many there may be, in threads of their own, and
//! their end with the run.

use http::StatusCode;
use scope_api::Problem;
use scope_engine::QUESTIONS_MAX;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

/// Places that one identity may have; whoever may do everything may have all.
const SHARE_MAX: usize = QUESTIONS_MAX / 2;

/// When it may be tried again where all places are taken.
pub(crate) const RETRY_AFTER_S: u64 = 1;

/// All of them.
pub(crate) struct Questions {
    /// Places for [`QUESTIONS_MAX`].
    places: Arc<Semaphore>,
    /// Those that an identity has, where its share is bounded.
    shares: Arc<Mutex<HashMap<String, usize>>>,
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
            shares: Arc::default(),
            refused: AtomicU64::new(0),
            begun: AtomicU64::new(0),
            stops: Mutex::default(),
            over: watch::Sender::new(false),
        }
    }
}

/// One of the places, until it is dropped.
pub(crate) struct Place {
    _permit: OwnedSemaphorePermit,
    shares: Arc<Mutex<HashMap<String, usize>>>,
    identity: Option<String>,
}

impl Drop for Place {
    fn drop(&mut self) {
        let Some(identity) = self.identity.take() else { return };
        let mut shares = self.shares.lock().unwrap_or_else(PoisonError::into_inner);
        match shares.get_mut(&identity) {
            Some(own) if *own > 1 => *own -= 1,
            _ => drop(shares.remove(&identity)),
        }
    }
}

/// The refusal where as many are being answered as there may be.
pub(crate) fn too_many(cause: String) -> Problem {
    let remedy = "ask again when one of them has its answer";
    Problem::new(StatusCode::TOO_MANY_REQUESTS, "questions", cause, remedy).retry_after(RETRY_AFTER_S)
}

/// Answers one in a thread of its own, behind everything else that the run does.
///
/// # Errors
/// The system gives no thread.
pub(crate) fn begin(work: impl FnOnce() + Send + 'static) -> Result<(), Problem> {
    let work = move || {
        scope_machine::limits::stand_back();
        work();
    };
    let spawned = std::thread::Builder::new().name("question".to_string()).spawn(work);
    spawned.map(drop).map_err(|error| {
        let (cause, remedy) =
            (format!("no thread: {error}"), "ask again; allow more threads: TasksMax=, ulimit -u");
        Problem::new(StatusCode::SERVICE_UNAVAILABLE, "system", cause, remedy).retry_after(RETRY_AFTER_S)
    })
}

impl Questions {
    /// A place for a question; of an identity whose share is bounded.
    ///
    /// # Errors
    /// All are taken, or all of that share.
    pub(crate) fn place(&self, identity: Option<&str>) -> Result<Place, Problem> {
        let refused = |cause: String| {
            self.refused.fetch_add(1, Ordering::Relaxed);
            too_many(cause)
        };
        let mut shares = self.shares.lock().unwrap_or_else(PoisonError::into_inner);
        let own = identity.and_then(|identity| shares.get(identity)).copied().unwrap_or(0);
        if own >= SHARE_MAX {
            return Err(refused(format!(
                "{SHARE_MAX} questions of {} are being answered",
                identity.unwrap_or_default()
            )));
        }
        let place = self.places.clone().try_acquire_owned();
        let permit = place.map_err(|_| refused(format!("{QUESTIONS_MAX} questions are being answered")))?;
        let identity = identity.map(str::to_string);
        shares.extend(identity.clone().map(|identity| (identity, own + 1)));
        Ok(Place { _permit: permit, shares: self.shares.clone(), identity })
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
