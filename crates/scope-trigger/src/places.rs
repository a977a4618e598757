//! The cap on dumps at once: each open dump has a place, and gives it back when its file is finished.

use crate::window::Window;
use scope_packet::Moment;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock};
use std::time::Duration;

/// Dumps at once at most.
pub const DUMPS_MAX: u64 = 4096;

/// Dumps, beside those whose windows are open, that may be finishing at once for workers that can wait.
pub const CLOSING_MAX: usize = 64;
/// How long one wait for a place lasts at most.
const WAIT_STEP: Duration = Duration::from_millis(10);

/// Why there is no place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Full {
    /// Some dump that holds one needs no further packet of the worker that requests it: waiting helps.
    ForNow,
    /// Waiting doesn't help, or isn't possible.
    ForGood,
    /// The run has all the dumps that it was to make.
    Enough,
}

/// Who requests a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Requester {
    /// A worker of a live source.
    Live,
    /// A worker that can wait; all that it has is committed up to this moment.
    Waiting(Moment),
    /// A person: one place more than there are is theirs.
    Person,
}

/// All places. Shared by all triggers of a run.
#[derive(Debug)]
pub struct Places {
    /// Up while there is no room on disk for a further dump.
    no_space: OnceLock<Arc<AtomicBool>>,
    max: AtomicUsize,
    grace_ns: i64,
    /// Protected by the lock: dumps that are open, and how many may still begin.
    open: Mutex<Open>,
    freed: Condvar,
}

#[derive(Debug)]
struct Open {
    windows: Vec<Arc<Window>>,
    /// Dumps that have begun, and how many may in all.
    begun: u64,
    total: u64,
}

/// One dump's place; free again when it is dropped.
#[derive(Debug)]
pub struct Place {
    places: Arc<Places>,
    window: Arc<Window>,
}

impl Places {
    /// `max` places at once, for at most `total` dumps in all; dumps end when the clock is `grace_ns` beyond
    /// their window.
    pub fn new(max: usize, grace_ns: i64, total: Option<u64>) -> Arc<Places> {
        let open = Open { windows: Vec::new(), begun: 0, total: total.unwrap_or(u64::MAX) };
        let (no_space, max) = (OnceLock::new(), AtomicUsize::new(max));
        Arc::new(Places { no_space, max, grace_ns, open: Mutex::new(open), freed: Condvar::new() })
    }

    /// From now on no dump begins while `full` is up. Once per run.
    pub fn watch_space(&self, full: Arc<AtomicBool>) {
        self.no_space.get_or_init(|| full);
    }

    /// Whether there is no room on disk for a further dump. One load.
    pub fn no_space(&self) -> bool {
        self.no_space.get().is_some_and(|full| full.load(Ordering::Relaxed))
    }

    /// From now on `max` places at once and `total` dumps in all, those that have begun included. Who has a
    /// place keeps it.
    pub fn set_limits(&self, max: usize, total: Option<u64>) {
        let mut open = self.lock();
        open.total = total.unwrap_or(u64::MAX);
        self.max.store(max, Ordering::Relaxed);
        self.freed.notify_all();
    }

    /// How far beyond a window's end the clock must be before its dump ends, ns.
    pub fn grace_ns(&self) -> i64 {
        self.grace_ns
    }

    /// Dumps that may be open at once.
    pub fn max(&self) -> usize {
        self.max.load(Ordering::Relaxed)
    }

    /// Dumps that are open now.
    pub fn open(&self) -> usize {
        self.lock().windows.len()
    }

    /// Takes a place for a dump of `window`, without waiting.
    ///
    /// For a worker that can wait the cap runs in capture time: only windows that are still open at that time
    /// count. What has closed, but isn't finished, is bounded by [`CLOSING_MAX`].
    pub fn take(self: &Arc<Self>, window: &Arc<Window>, requester: Requester) -> Result<Place, Full> {
        let mut open = self.lock();
        self.room(&open, requester)?;
        open.begun += 1;
        open.windows.push(window.clone());
        Ok(Place { places: self.clone(), window: window.clone() })
    }

    /// Why there would be no place now.
    pub fn refusal(&self, requester: Requester) -> Option<Full> {
        self.room(&self.lock(), requester).err()
    }

    fn room(&self, open: &Open, requester: Requester) -> Result<(), Full> {
        if open.begun >= open.total {
            return Err(Full::Enough);
        }
        let is_full = match requester {
            Requester::Live => open.windows.len() >= self.max(),
            Requester::Person => open.windows.len() > self.max(),
            Requester::Waiting(at) => {
                let still_open = open.windows.iter().filter(|window| window.end() >= at).count();
                still_open >= self.max() || open.windows.len() >= self.max() + CLOSING_MAX
            }
        };
        if !is_full {
            return Ok(());
        }
        let ends_by_itself = |at| open.windows.iter().any(|window| window.end().plus(self.grace_ns) < at);
        Err(if matches!(requester, Requester::Waiting(at) if ends_by_itself(at)) {
            Full::ForNow
        } else {
            Full::ForGood
        })
    }

    /// Waits a little for a place to become free.
    pub fn wait(&self) {
        let _ = self.freed.wait_timeout(self.lock(), WAIT_STEP).expect("no panic while held");
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Open> {
        self.open.lock().expect("no panic while held")
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut open = self.places.open.lock().expect("no panic while held");
        open.windows.retain(|window| !Arc::ptr_eq(window, &self.window));
        self.places.freed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiting(at_ns: i64) -> Requester {
        Requester::Waiting(Moment::new(0, at_ns))
    }

    fn window(to_ns: i64) -> Arc<Window> {
        Arc::new(Window::new(0, to_ns, 0))
    }

    #[test]
    fn a_place_is_free_again_when_its_dump_is_done() {
        let places = Places::new(1, 0, None);
        let first = places.take(&window(10), Requester::Live).unwrap();
        assert_eq!(places.take(&window(10), Requester::Live).unwrap_err(), Full::ForGood);
        drop(first);
        assert!(places.take(&window(10), Requester::Live).is_ok());
    }

    #[test]
    fn who_can_wait_counts_open_windows_only() {
        let places = Places::new(1, 5, None);
        let _first = places.take(&window(10), waiting(0)).unwrap();
        assert_eq!(
            places.take(&window(30), waiting(10)).unwrap_err(),
            Full::ForGood,
            "the first one is open at that time"
        );
        let _second = places.take(&window(30), waiting(11)).unwrap();
    }

    #[test]
    fn what_is_finishing_is_bounded_and_waited_for_only_if_that_helps() {
        let places = Places::new(1, 5, None);
        let held: Vec<Place> =
            (0..=CLOSING_MAX).map(|_| places.take(&window(10), waiting(11)).unwrap()).collect();
        assert_eq!(
            places.take(&window(30), waiting(15)).unwrap_err(),
            Full::ForGood,
            "all still need this worker's clock"
        );
        assert_eq!(places.take(&window(30), waiting(16)).unwrap_err(), Full::ForNow);
        drop(held);
        assert!(places.take(&window(30), waiting(16)).is_ok());
    }

    #[test]
    fn limits_that_change_count_what_has_begun() {
        let places = Places::new(1, 0, Some(1));
        let _first = places.take(&window(10), Requester::Live).unwrap();
        places.set_limits(2, Some(2));
        let second = places.take(&window(10), Requester::Live).unwrap();
        drop(second);
        assert_eq!(places.take(&window(10), Requester::Live).unwrap_err(), Full::Enough, "two have begun");
        places.set_limits(1, None);
        assert_eq!((places.open(), places.max()), (1, 1));
        assert_eq!(
            places.take(&window(10), Requester::Live).unwrap_err(),
            Full::ForGood,
            "the first one keeps its place"
        );
    }

    #[test]
    fn a_person_has_one_place_more_than_there_are() {
        let places = Places::new(1, 0, None);
        let _first = places.take(&window(10), Requester::Live).unwrap();
        assert_eq!(places.refusal(Requester::Live), Some(Full::ForGood));
        let _second = places.take(&window(10), Requester::Person).unwrap();
        assert_eq!(places.take(&window(10), Requester::Person).unwrap_err(), Full::ForGood);
    }

    #[test]
    fn a_total_ends_all_further_dumps() {
        let places = Places::new(8, 0, Some(1));
        drop(places.take(&window(10), Requester::Live).unwrap());
        assert_eq!(places.take(&window(10), waiting(100)).unwrap_err(), Full::Enough);
    }
}
