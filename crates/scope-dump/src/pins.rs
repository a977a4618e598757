//! What a dump holds of the ring ahead of its reading: taken by the worker that fires, before its next claim;
//! kept by the dump itself and, while that waits for its disk, by the run's keeper.
//!
//! ```text
//!  worker   FirstPins::take: the oldest part of the window that is still in the ring
//!  dump     look: what was committed; pieces are held in the order in which they are read ─► read ─► let go
//!  keeper   keep_up, at each beat of the ring: what was sealed behind the dump's last look, oldest first
//! ```
//! All within the allowance. So a dump that hangs in a write loses nothing that it may hold.

use scope_packet::SegmentId;
use scope_ring::budget::PinBudget;
use scope_ring::{Follower, Held, Pinned, Ring};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// What a dump starts with: the segments that it holds already, its place among the followers.
pub struct FirstPins {
    pub(crate) hold: Arc<Hold>,
}

/// One dump's hold on the ring.
pub(crate) struct Hold {
    ring: Arc<Ring>,
    /// For whom workers that can wait do so; `None`: for nobody.
    follower: Option<Arc<Follower>>,
    from_ns: i64,
    /// Locked for a look at the ring or the taking of a segment, never while anything is written.
    state: Mutex<State>,
}

/// What is held, and how far the dump has looked.
pub(crate) struct State {
    pub(crate) held: Held,
    /// Per lane: the keeper may hold segments from here on. `None`: the dump has seen all that it needs.
    pub(crate) behind: Option<Vec<u64>>,
    pub(crate) full: Full,
}

/// For how long a dump holds all that it may while there is more that it hasn't read: what comes meanwhile is
/// in danger.
#[derive(Default)]
pub(crate) struct Full {
    since: Option<Instant>,
    over: Duration,
}

impl Full {
    /// Whether it does now.
    pub(crate) fn note(&mut self, full: bool) {
        let now = Instant::now();
        match (full, self.since) {
            (true, None) => self.since = Some(now),
            (false, Some(since)) => {
                self.over += now.saturating_duration_since(since);
                self.since = None;
            }
            _ => {}
        }
    }

    /// How long it has, spans that are over.
    pub(crate) fn total(&self) -> Duration {
        self.over
    }
}

impl FirstPins {
    /// Takes them for a window of era `era` that begins at `from_ns`, as one of at most `dumps_max` dumps.
    /// Costs the caller a look at the times of all segments, and one at each segment that reaches into the
    /// window.
    pub fn take(ring: &Arc<Ring>, era: u64, from_ns: i64, dumps_max: u64) -> FirstPins {
        let mut held = Held::new(ring, ring.budget().take(u64::MAX, dumps_max));
        let newest: Vec<u64> = (0..ring.lanes()).map(|lane| ring.lane_next(lane).saturating_sub(1)).collect();
        let mut needed_from = newest.clone();
        // For each claim group the oldest first by order of sealing: that is the order in which they are in
        // danger.
        let mut wanted: Vec<BTreeMap<u64, Pinned>> =
            ring.group_segments().iter().map(|_| BTreeMap::new()).collect();
        let eras: Vec<_> = (0..ring.lanes()).map(|lane| ring.era_packets(lane, era)).collect();
        for span in ring.overlapping(from_ns, i64::MAX) {
            let Some(pinned) = ring.pin(span.segment) else { continue };
            let SegmentId { lane, sequence, .. } = span.segment;
            let end_packet = pinned.first_packet() + u64::from(pinned.committed().packets);
            if eras.get(lane as usize).is_some_and(|packets| end_packet <= packets.start) {
                continue; // all of it came before time was set back
            }
            let Some(times) = pinned.times() else { continue };
            if let Some(needed) = needed_from.get_mut(lane as usize) {
                *needed = sequence.min(*needed);
            }
            let of_group = &mut wanted[ring.lane_group(lane).index()];
            of_group.insert(times.sealed_order, pinned);
            if of_group.len() as u64 > held.allowed_of(lane) {
                of_group.pop_last(); // too new for what may be held
            }
        }
        for pinned in wanted.into_iter().flat_map(BTreeMap::into_values) {
            held.put(pinned);
        }
        let follower = ring.follower(|lane| needed_from.get(lane as usize).copied().unwrap_or(0));
        let state = Mutex::new(State { held, behind: Some(newest), full: Full::default() });
        let follower = Some(follower);
        FirstPins { hold: Arc::new(Hold { ring: ring.clone(), follower, from_ns, state }) }
    }

    /// None, and none later: a question holds nothing but the segment that it reads, and nobody waits for it.
    pub fn none(ring: &Arc<Ring>) -> FirstPins {
        let nothing = Arc::new(PinBudget::new(0)).take(0, 1);
        let state = Mutex::new(State { held: Held::new(ring, nothing), behind: None, full: Full::default() });
        FirstPins { hold: Arc::new(Hold { ring: ring.clone(), follower: None, from_ns: 0, state }) }
    }
}

impl Hold {
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no panic while held")
    }

    /// Everything of `lane` before segment `sequence` is not needed any more.
    pub(crate) fn done_before(&self, lane: u32, sequence: u64) {
        if let Some(follower) = &self.follower {
            follower.done_before(lane, sequence);
        }
    }

    /// Holds what was sealed behind the dump's last look, oldest first by order of sealing, as far as the
    /// allowance reaches: for a dump that may be waiting for its disk.
    pub(crate) fn keep_up(&self) {
        let mut state = self.lock();
        let State { held, behind: Some(behind), full } = &mut *state else { return };
        behind.resize(self.ring.lanes() as usize, 0);
        let is_short =
            |(lane, &from): (u32, &u64)| !held.has_room(lane) && self.ring.lane_next(lane) > from + 1;
        full.note((0u32..).zip(behind.iter()).any(is_short));
        let mut wanted: Vec<(u64, SegmentId)> = Vec::new();
        for (lane, &from) in (0u32..).zip(behind.iter()).filter(|(lane, _)| held.has_room(*lane)) {
            for id in self.ring.segment_ids(lane, from) {
                if held.holds(id) {
                    continue;
                }
                let Some(pinned) = self.ring.pin(id) else { continue };
                match pinned.times() {
                    Some(times) if times.max_ns >= self.from_ns => wanted.push((times.sealed_order, id)),
                    Some(_) => {}
                    None => break, // open: nobody recycles it
                }
            }
        }
        wanted.sort_unstable();
        for (_, id) in wanted {
            if held.has_room(id.lane)
                && let Some(pinned) = self.ring.pin(id)
            {
                held.put(pinned);
            }
        }
    }
}
