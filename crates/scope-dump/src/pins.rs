//! The pins that the firing worker takes before its next claim: the oldest part of the window that is still in the ring.

use scope_ring::{Allowance, Follower, Pinned, Ring};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What a dump starts with: its allowance, the segments that it holds already, its place among the followers.
pub struct FirstPins {
    pub(crate) allowance: Allowance,
    /// By (lane, sequence).
    pub(crate) held: BTreeMap<(u32, u64), Pinned>,
    pub(crate) follower: Arc<Follower>,
}

impl FirstPins {
    /// Takes them for a window that begins at `from_ns`, as one of at most `dumps_max` dumps. Costs the caller one look at
    /// each segment of the ring.
    pub fn take(ring: &Arc<Ring>, from_ns: i64, dumps_max: u64) -> FirstPins {
        let allowance = ring.budget().take(u64::MAX, dumps_max);
        // Oldest first by order of sealing: that is the order in which they are in danger.
        let mut wanted: BTreeMap<u64, Pinned> = BTreeMap::new();
        let mut needed_from: Vec<u64> = (0..ring.lanes()).map(|lane| ring.lane_next(lane).saturating_sub(1)).collect();
        for lane in 0..ring.lanes() {
            for sequence in ring.oldest_possible(lane)..ring.lane_next(lane) {
                let Some(pinned) = ring.pin(lane, sequence) else { continue };
                let Some(times) = pinned.times().filter(|times| times.max_ns >= from_ns) else { continue };
                needed_from[lane as usize] = needed_from[lane as usize].min(sequence);
                wanted.insert(times.sealed_order, pinned);
                if wanted.len() as u64 > allowance.segments() {
                    wanted.pop_last(); // too new for what may be held
                }
            }
        }
        let held = wanted.into_values().map(|pinned| ((pinned.lane(), pinned.sequence()), pinned)).collect();
        let follower = ring.follower(|lane| needed_from.get(lane as usize).copied().unwrap_or(0));
        FirstPins { allowance, held, follower }
    }
}
