//! The pins that the firing worker takes before its next claim: the oldest part of the window that is still in the ring.

use scope_ring::{Follower, Held, Pinned, Ring};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What a dump starts with: the segments that it holds already, its place among the followers.
pub struct FirstPins {
    pub(crate) held: Held,
    pub(crate) follower: Arc<Follower>,
}

impl FirstPins {
    /// Takes them for a window of era `era` that begins at `from_ns`, as one of at most `dumps_max` dumps. Costs the caller a look at the
    /// times of all segments, and one at each segment that reaches into the window.
    pub fn take(ring: &Arc<Ring>, era: u64, from_ns: i64, dumps_max: u64) -> FirstPins {
        let mut held = Held::new(ring, ring.budget().take(u64::MAX, dumps_max));
        let mut needed_from: Vec<u64> = (0..ring.lanes()).map(|lane| ring.lane_next(lane).saturating_sub(1)).collect();
        // For each claim group the oldest first by order of sealing: that is the order in which they are in danger.
        let mut wanted: Vec<BTreeMap<u64, Pinned>> = ring.group_segments().iter().map(|_| BTreeMap::new()).collect();
        let eras: Vec<_> = (0..ring.lanes()).map(|lane| ring.era_packets(lane, era)).collect();
        for span in ring.overlapping(from_ns, i64::MAX) {
            let Some(pinned) = ring.pin(span.lane, span.sequence) else { continue };
            let end_packet = pinned.first_packet() + u64::from(pinned.committed().packets);
            if eras.get(span.lane as usize).is_some_and(|packets| end_packet <= packets.start) {
                continue; // all of it came before time was set back
            }
            let Some(times) = pinned.times() else { continue };
            if let Some(needed) = needed_from.get_mut(span.lane as usize) {
                *needed = span.sequence.min(*needed);
            }
            let of_group = &mut wanted[ring.lane_group(span.lane).index()];
            of_group.insert(times.sealed_order, pinned);
            if of_group.len() as u64 > held.allowed_of(span.lane) {
                of_group.pop_last(); // too new for what may be held
            }
        }
        wanted.into_iter().flat_map(BTreeMap::into_values).for_each(|pinned| held.put(pinned));
        let follower = ring.follower(|lane| needed_from.get(lane as usize).copied().unwrap_or(0));
        FirstPins { held, follower }
    }
}
