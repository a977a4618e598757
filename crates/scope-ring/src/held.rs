//! Pins that one holder keeps within its allowance: of each claim group no more than the group's part of it,
//! so that holders never take a share's last segments while the ring has others.

use crate::budget::Allowance;
use crate::pin::Pinned;
use crate::ring::Ring;
use scope_packet::SegmentId;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Segments that a dump or a reader holds.
pub struct Held {
    ring: Arc<Ring>,
    allowance: Allowance,
    pins: BTreeMap<SegmentId, Pinned>,
    /// How many of each claim group.
    counts: Vec<u64>,
}

impl Held {
    /// Nothing yet.
    pub fn new(ring: &Arc<Ring>, allowance: Allowance) -> Held {
        Held {
            ring: ring.clone(),
            allowance,
            pins: BTreeMap::new(),
            counts: vec![0; ring.group_segments().len()],
        }
    }

    /// Segments that are held.
    pub fn len(&self) -> u64 {
        self.pins.len() as u64
    }

    /// Whether nothing is held.
    pub fn is_empty(&self) -> bool {
        self.pins.is_empty()
    }

    /// Segments that may be held in all.
    pub fn allowed(&self) -> u64 {
        self.allowance.segments()
    }

    /// Segments that may be held of the claim group of `lane`, at least 1.
    pub fn allowed_of(&self, lane: u32) -> u64 {
        let group = self.ring.lane_group(lane).index();
        (self.allowed() * self.ring.group_segments()[group] as u64 / self.ring.segments() as u64).max(1)
    }

    /// Whether one more segment of `lane` may be held.
    pub fn has_room(&self, lane: u32) -> bool {
        self.len() < self.allowed() && self.counts[self.ring.lane_group(lane).index()] < self.allowed_of(lane)
    }

    /// Holds one more; where there is no room for it, it is let go.
    pub fn put(&mut self, pinned: Pinned) {
        if self.has_room(pinned.lane()) {
            self.counts[self.ring.lane_group(pinned.lane()).index()] += 1;
            let before = self.pins.insert(pinned.id(), pinned);
            assert!(before.is_none(), "a segment is held once");
        }
    }

    /// Hands over a segment that is held.
    pub fn take(&mut self, id: SegmentId) -> Option<Pinned> {
        let pinned = self.pins.remove(&id)?;
        self.counts[self.ring.lane_group(id.lane).index()] -= 1;
        Some(pinned)
    }

    /// Lets all of them go, and gives the allowance back: nothing is held from now on.
    pub fn end(&mut self) {
        self.pins.clear();
        self.counts.fill(0);
        self.allowance.give_back();
    }

    /// Whether a segment is held.
    pub fn holds(&self, id: SegmentId) -> bool {
        self.pins.contains_key(&id)
    }

    /// Smallest sequence of `lane` that is held.
    pub fn oldest(&self, lane: u32) -> Option<u64> {
        let of_lane = self.ring.segment_id(lane, 0)..=self.ring.segment_id(lane, u64::MAX);
        self.pins.range(of_lane).next().map(|(id, _)| id.sequence)
    }
}
