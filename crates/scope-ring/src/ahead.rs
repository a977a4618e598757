//! Pins ahead of a reader: of the segments that it hasn't read yet those that are recycled first, as far as its allowance
//! reaches.

use crate::budget::Allowance;
use crate::held::Held;
use crate::pin::Pinned;
use crate::ring::Ring;
use scope_packet::SegmentId;
use std::sync::Arc;

/// See the module.
pub struct Ahead {
    ring: Arc<Ring>,
    held: Held,
    /// Per lane, the next segment to be held.
    next: Vec<u64>,
}

impl Ahead {
    /// Nothing yet.
    pub fn new(ring: &Arc<Ring>, allowance: Allowance) -> Ahead {
        Ahead { ring: ring.clone(), held: Held::new(ring, allowance), next: Vec::new() }
    }

    /// Segments that are held.
    pub fn held(&self) -> u64 {
        self.held.len()
    }

    /// Segments that may be held in all.
    pub fn allowed(&self) -> u64 {
        self.held.allowed()
    }

    /// Bytes of each.
    pub fn segment_bytes(&self) -> u64 {
        self.ring.segment_bytes() as u64
    }

    /// Nothing of `lane` before segment `needed` is to be held from now on; what is held of that stays until it is taken,
    /// or let go. Of a lane that isn't there nothing is held.
    pub fn pass(&mut self, lane: u32, needed: u64) {
        if lane >= self.ring.lanes() {
            return;
        }
        let lane = lane as usize;
        if self.next.len() <= lane {
            self.next.resize(lane + 1, 0);
        }
        self.next[lane] = self.next[lane].max(needed);
    }

    /// The reader has read `lane` up to segment `needed`: what is held of it before that goes.
    pub fn let_go(&mut self, lane: u32, needed: u64) {
        self.pass(lane, needed);
        while let Some(oldest) = self.held.oldest(lane).filter(|oldest| *oldest < needed) {
            self.held.take(self.ring.segment_id(lane, oldest));
        }
    }

    /// Holds what it may of the lanes that were passed; `besides`: segments that the reader holds itself.
    pub fn hold(&mut self, besides: u64) {
        while self.held() + besides < self.allowed()
            && let Some(pinned) = self.most_endangered()
        {
            self.next[pinned.lane() as usize] = pinned.sequence() + 1;
            self.held.put(pinned);
        }
    }

    /// Of each lane's next segment, where there is room for it, the one that was sealed first: it is recycled
    /// first.
    fn most_endangered(&mut self) -> Option<Pinned> {
        let ring = &self.ring;
        let mut best: Option<(u64, Pinned)> = None;
        for (lane, next) in (0u32..).zip(&self.next).filter(|(lane, _)| self.held.has_room(*lane)) {
            let oldest = ring.oldest_possible(lane);
            let mut ids =
                (oldest.max(*next)..ring.lane_next(lane)).map(|sequence| ring.segment_id(lane, sequence));
            let Some(pinned) = ids.find_map(|id| ring.pin(id)) else { continue };
            let order = pinned.times().map_or(u64::MAX, |times| times.sealed_order);
            if best.as_ref().is_none_or(|best| order < best.0) {
                best = Some((order, pinned));
            }
        }
        best.map(|(_, pinned)| pinned)
    }

    /// Smallest sequence of `lane` that is held.
    pub fn oldest(&self, lane: u32) -> Option<u64> {
        self.held.oldest(lane)
    }

    /// Hands over a segment that is held.
    pub fn take(&mut self, id: SegmentId) -> Option<Pinned> {
        self.held.take(id)
    }
}
