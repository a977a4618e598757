//! A window: the span of capture time that one dump covers; it grows while its trigger hits, and closes once.

use scope_packet::Moment;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// A window grows to this length at most, ns; one that was longer from the start doesn't grow at all.
pub const WINDOW_GROWTH_MAX_NS: i64 = 600 * 1_000_000_000;
/// Hits whose times are kept, for the dump's header; the rest is a count.
pub const WINDOW_HITS_MAX: usize = 1000;

/// One window. Both ends are inclusive, ns of capture time. It belongs to one era: packets and hits of
/// another are none of its own, whatever their times.
#[derive(Debug)]
pub struct Window {
    era: u64,
    from_ns: i64,
    /// Number of its dump; 0: that isn't known yet.
    dump: AtomicU64,
    /// Protected by the lock: how far it reaches by now, whether it is closed, and its hits.
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    to_ns: i64,
    /// It has reached the length at which it stops growing, and a hit wanted more.
    full: bool,
    /// Somebody has ended it: it grows no more.
    ended: bool,
    closed: bool,
    hits_ns: Vec<i64>,
    hits: u64,
}

/// Whether one more hit extended a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extended {
    /// The hit is inside, the window reaches far enough or as far as it may.
    Yes,
    /// The window is over for this hit; `full_to_ns` says where it ended if it had to stop growing.
    No {
        /// End of a window that was full, ns.
        full_to_ns: Option<i64>,
    },
}

impl Window {
    /// A window of the first era from `from_ns` to `to_ns`, opened by a hit at `hit_ns`.
    pub fn new(from_ns: i64, to_ns: i64, hit_ns: i64) -> Window {
        Window::in_era(0, from_ns, to_ns, hit_ns)
    }

    /// The same in `era`.
    pub fn in_era(era: u64, from_ns: i64, to_ns: i64, hit_ns: i64) -> Window {
        let state = State { to_ns, full: false, ended: false, closed: false, hits_ns: vec![hit_ns], hits: 1 };
        Window { era, from_ns, dump: AtomicU64::new(0), state: Mutex::new(state) }
    }

    /// Its era.
    pub fn era(&self) -> u64 {
        self.era
    }

    /// The dump that covers it has this number.
    pub fn set_dump(&self, id: u64) {
        self.dump.store(id, Ordering::Relaxed);
    }

    /// Number of its dump; `None`: that is just beginning.
    pub fn dump(&self) -> Option<u64> {
        Some(self.dump.load(Ordering::Relaxed)).filter(|&id| id > 0)
    }

    /// Where it ends by now.
    pub fn end(&self) -> Moment {
        Moment::new(self.era, self.to_ns())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().expect("no panic while held")
    }

    /// Begin, ns.
    pub fn from_ns(&self) -> i64 {
        self.from_ns
    }

    /// End by now, ns.
    pub fn to_ns(&self) -> i64 {
        self.lock().to_ns
    }

    /// Adds a hit that wants the window to reach `to_ns`; it was certain at `certain_ns`, and what had ended by then
    /// stays as it is.
    pub fn extend(&self, hit: Moment, certain_ns: i64, to_ns: i64) -> Extended {
        if hit.era != self.era {
            return Extended::No { full_to_ns: None };
        }
        let hit_ns = hit.time_ns;
        let mut state = self.lock();
        if state.closed || state.ended || certain_ns > state.to_ns || hit_ns < self.from_ns {
            return Extended::No { full_to_ns: state.full.then_some(state.to_ns) };
        }
        let end_max_ns = self.from_ns.saturating_add(WINDOW_GROWTH_MAX_NS).max(state.to_ns);
        state.full |= to_ns > end_max_ns;
        state.to_ns = state.to_ns.max(to_ns.min(end_max_ns));
        state.hits += 1;
        if state.hits_ns.len() < WINDOW_HITS_MAX {
            state.hits_ns.push(hit_ns);
        }
        Extended::Yes
    }

    /// Closes the window for good if everything up to its end is settled, its era is over or nothing comes
    /// any more: no hit extends it from then on.
    pub fn close_if_settled(&self, settled: Moment) -> bool {
        let mut state = self.lock();
        state.closed |= settled > Moment::new(self.era, state.to_ns);
        state.closed
    }

    /// Closed, and not because it was full: nothing will refer to it any more.
    pub fn is_over(&self) -> bool {
        let state = self.lock();
        state.closed && !state.full
    }

    /// Closes the window for good where it is.
    pub fn close(&self) {
        self.lock().closed = true;
    }

    /// Somebody ends the window: it reaches no further than `at`, or not at all beyond where it began. Whether it was open.
    pub fn end_at(&self, at: Moment) -> bool {
        let mut state = self.lock();
        if state.closed {
            return false;
        }
        if at.era <= self.era {
            state.to_ns = state.to_ns.min(at.time_ns.max(self.from_ns));
        }
        state.ended = true;
        true
    }

    /// The number of hits, and the times of the first [`WINDOW_HITS_MAX`], ns.
    pub fn hits(&self) -> (u64, Vec<i64>) {
        let state = self.lock();
        (state.hits, state.hits_ns.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: i64 = 1_000_000_000;

    fn at(time_ns: i64) -> Moment {
        Moment::new(0, time_ns)
    }

    #[test]
    fn a_hit_inside_extends_and_one_behind_does_not() {
        let window = Window::new(0, 10 * S, 5 * S);
        assert_eq!(window.extend(at(9 * S), 9 * S, 14 * S), Extended::Yes);
        assert_eq!(window.to_ns(), 14 * S);
        assert_eq!(window.extend(at(15 * S), 15 * S, 20 * S), Extended::No { full_to_ns: None });
        assert_eq!(window.hits(), (2, vec![5 * S, 9 * S]));
    }

    #[test]
    fn it_never_shrinks_and_grows_to_ten_minutes_at_most() {
        let window = Window::new(0, 10 * S, 5 * S);
        assert_eq!(window.extend(at(6 * S), 6 * S, 8 * S), Extended::Yes);
        assert_eq!(window.to_ns(), 10 * S);
        let mut hit = 6 * S;
        while window.extend(at(hit), hit, hit + 5 * S) == Extended::Yes {
            hit += 4 * S;
        }
        assert_eq!(window.to_ns(), WINDOW_GROWTH_MAX_NS);
        assert_eq!(
            window.extend(at(hit), hit, hit + 5 * S),
            Extended::No { full_to_ns: Some(WINDOW_GROWTH_MAX_NS) }
        );
    }

    #[test]
    fn a_window_to_the_end_of_time_closes_when_nothing_comes_any_more() {
        let window = Window::new(0, i64::MAX, 5);
        assert!(!window.close_if_settled(at(i64::MAX - 1)));
        assert!(window.close_if_settled(Moment::END));
    }

    #[test]
    fn a_window_belongs_to_its_era() {
        let window = Window::in_era(3, 0, 10 * S, 5 * S);
        assert_eq!(window.extend(Moment::new(4, 6 * S), 6 * S, 12 * S), Extended::No { full_to_ns: None });
        assert!(!window.close_if_settled(Moment::new(2, 99 * S)), "the worker has not come to it");
        assert!(window.close_if_settled(Moment::new(4, 0)), "time was set back: nothing more comes for it");
    }

    #[test]
    fn a_closed_window_stays_closed() {
        let window = Window::new(0, 10 * S, 5 * S);
        assert!(!window.close_if_settled(at(10 * S)), "a packet at its very end may still come");
        assert!(window.close_if_settled(at(10 * S + 1)));
        assert_eq!(window.extend(at(9 * S), 9 * S, 14 * S), Extended::No { full_to_ns: None });
        assert!(window.close_if_settled(at(0)));
    }
}
