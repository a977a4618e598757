//! Followers, which must not be overrun: workers that can wait do so for their position in the ring (rule 5).
//!
//! A worker of a live source never waits. A worker that feeds from files looks before each claim, and waits
//! while some follower is half a ring behind. A follower reads what is committed at once, whatever it waits
//! for itself, so nobody waits for ever.

use crate::lock::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

/// A follower's position: per lane, the sequence of the segment that it still needs.
pub struct Follower {
    positions: Vec<AtomicU64>,
}

impl Follower {
    pub(crate) fn new(lanes: usize) -> Follower {
        Follower { positions: (0..lanes).map(|_| AtomicU64::new(0)).collect() }
    }

    /// Everything of `lane` before segment `sequence` is not needed any more.
    pub fn done_before(&self, lane: u32, sequence: u64) {
        self.positions[lane as usize].store(sequence, Ordering::Release);
    }

    /// Nobody waits for this follower any more, whatever it is behind.
    pub fn needs_nothing(&self) {
        self.positions.iter().for_each(|position| position.store(u64::MAX - 1, Ordering::Release));
    }

    /// Closed segments that the follower still needs, over all lanes for which `opened` says how many
    /// segments they have opened. Open ones don't count: they can't be recycled.
    fn behind(&self, opened: impl Fn(u32) -> Option<u64>) -> u64 {
        let of_lane = |(lane, position): (u32, &AtomicU64)| {
            let position = position.load(Ordering::Acquire);
            opened(lane).map(|opened| opened.saturating_sub(position + 1))
        };
        (0..).zip(&self.positions).filter_map(of_lane).sum()
    }
}

/// All followers of a ring.
#[derive(Default)]
pub(crate) struct Followers {
    list: Mutex<Vec<Weak<Follower>>>,
}

impl Followers {
    pub(crate) fn add(&self, follower: &Arc<Follower>) {
        let mut list = self.list.lock().expect("no panic while held");
        list.retain(|known| known.strong_count() > 0);
        list.push(Arc::downgrade(follower));
    }

    /// Whether some follower still needs a segment.
    pub(crate) fn need(&self, lane: u32, sequence: u64) -> bool {
        let list = self.list.lock().expect("no panic while held");
        let position = |follower: &Arc<Follower>| follower.positions[lane as usize].load(Ordering::Acquire);
        list.iter().filter_map(Weak::upgrade).any(|follower| position(&follower) <= sequence)
    }

    /// Whether a claim now in a group of so many `segments` would leave some follower half of them behind, or
    /// more. `opened`: how many segments a lane has opened, of the group's lanes alone.
    pub(crate) fn must_wait(&self, segments: usize, opened: impl Fn(u32) -> Option<u64>) -> bool {
        let list = self.list.lock().expect("no panic while held");
        let half = segments as u64 / 2;
        list.iter().filter_map(Weak::upgrade).any(|follower| follower.behind(&opened) >= half)
    }
}
