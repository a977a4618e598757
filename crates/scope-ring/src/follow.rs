//! Who must not be overrun: followers whose place in the ring makes workers wait that can wait (rule 5).
//!
//! A worker of a live source never asks. A worker that feeds from files asks before each claim, and waits
//! while some follower is half a ring behind. A follower takes in what is committed at once, whatever it
//! waits for itself, so nobody waits for ever.

use crate::claims::ClaimGroup;
use crate::lock::Mutex;
use crate::ring::Ring;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

/// A follower's place: per lane, the sequence of the segment that it still needs.
pub struct Follower {
    positions: Vec<AtomicU64>,
}

impl Follower {
    pub(crate) fn new(lanes: usize) -> Follower {
        Follower { positions: (0..lanes).map(|_| AtomicU64::new(0)).collect() }
    }

    /// Everything of `lane` before segment `sequence` is done with.
    pub fn done_before(&self, lane: u32, sequence: u64) {
        self.positions[lane as usize].store(sequence, Ordering::Release);
    }

    /// Closed segments that the follower still needs, over all lanes of `group`. Open ones don't count: they
    /// can't be recycled.
    fn behind(&self, ring: &Ring, group: ClaimGroup) -> u64 {
        let of_lane = |lane: u32| {
            let position = self.positions[lane as usize].load(Ordering::Acquire);
            ring.lane_next(lane).saturating_sub(position + 1)
        };
        (0..ring.lanes()).filter(|&lane| ring.lane_group(lane) == group).map(of_lane).sum()
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

    /// Whether a claim in `group` now would leave some follower half of the group's segments behind, or more.
    pub(crate) fn must_wait(&self, ring: &Ring, group: ClaimGroup) -> bool {
        let list = self.list.lock().expect("no panic while held");
        let half = ring.group_segments()[group.index()] as u64 / 2;
        list.iter().filter_map(Weak::upgrade).any(|follower| follower.behind(ring, group) >= half)
    }
}
