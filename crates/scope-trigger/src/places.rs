//! The cap on dumps at once: each open dump has a place, and gives it back when its file is finished.

use crate::window::Window;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

/// All places. Shared by all triggers of a run.
#[derive(Debug)]
pub struct Places {
    max: usize,
    grace_ns: i64,
    /// Protected by the lock: dumps that are open, and how many may still begin.
    open: Mutex<Open>,
    freed: Condvar,
}

#[derive(Debug)]
struct Open {
    windows: Vec<Arc<Window>>,
    left: u64,
}

/// One dump's place; free again when it is dropped.
#[derive(Debug)]
pub struct Place {
    places: Arc<Places>,
    window: Arc<Window>,
}

impl Places {
    /// `max` places at once, for at most `total` dumps in all; dumps end when the clock is `grace_ns` beyond their window.
    pub fn new(max: usize, grace_ns: i64, total: Option<u64>) -> Arc<Places> {
        let open = Open { windows: Vec::new(), left: total.unwrap_or(u64::MAX) };
        Arc::new(Places { max, grace_ns, open: Mutex::new(open), freed: Condvar::new() })
    }

    /// How far beyond a window's end the clock must be before its dump ends, ns.
    pub fn grace_ns(&self) -> i64 {
        self.grace_ns
    }

    /// Dumps that may be open at once.
    pub fn max(&self) -> usize {
        self.max
    }

    /// Dumps that are open now.
    pub fn open(&self) -> usize {
        self.open.lock().expect("no panic while held").windows.len()
    }

    /// Takes a place for a dump of `window`; `None` where all are taken.
    ///
    /// With `wait_at_ns`, the capture time up to which a worker that can wait has committed all that it has, it waits for every dump that needs no further packet of this
    /// worker to finish; those whose window is still open at that clock are what counts. So the answer for a file depends on
    /// capture time alone, and nobody waits for a dump that waits for him.
    pub fn take(self: &Arc<Self>, window: &Arc<Window>, wait_at_ns: Option<i64>) -> Option<Place> {
        let mut open = self.open.lock().expect("no panic while held");
        while open.windows.len() >= self.max {
            let clock_ns = wait_at_ns?;
            let ends_by_itself = |window: &Arc<Window>| window.to_ns().saturating_add(self.grace_ns) < clock_ns;
            if !open.windows.iter().any(ends_by_itself) {
                return None;
            }
            open = self.freed.wait_timeout(open, Duration::from_millis(10)).expect("no panic while held").0;
        }
        open.left = open.left.checked_sub(1)?;
        open.windows.push(window.clone());
        Some(Place { places: self.clone(), window: window.clone() })
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

    fn window(to_ns: i64) -> Arc<Window> {
        Arc::new(Window::new(0, to_ns, 0))
    }

    #[test]
    fn a_place_is_free_again_when_its_dump_is_done() {
        let places = Places::new(1, 0, None);
        let first = places.take(&window(10), None).unwrap();
        assert!(places.take(&window(10), None).is_none());
        drop(first);
        assert!(places.take(&window(10), None).is_some());
    }

    #[test]
    fn who_can_wait_waits_only_for_dumps_that_end_without_him() {
        let places = Places::new(1, 5, None);
        let first = places.take(&window(10), Some(0)).unwrap();
        assert!(places.take(&window(30), Some(15)).is_none(), "the first one still needs this worker's clock");
        let waiting = std::thread::spawn({
            let places = places.clone();
            move || places.take(&window(30), Some(16)).is_some()
        });
        std::thread::sleep(Duration::from_millis(20));
        drop(first);
        assert!(waiting.join().unwrap());
    }
}
