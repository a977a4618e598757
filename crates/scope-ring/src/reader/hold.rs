//! What a holding reader holds: the oldest segments that it hasn't read yet, as far as its allowance reaches.

use super::cursor::Cursor;
use crate::budget::Allowance;
use crate::follow::Follower;
use crate::held::Held;
use crate::pin::Pinned;
use crate::ring::Ring;
use scope_packet::SegmentId;
use std::sync::Arc;

/// A holding reader's pins besides the ones under its cursors, and its place among those whom workers wait
/// for.
pub(super) struct Hold {
    follower: Arc<Follower>,
    ahead: Held,
    /// Per lane, the next segment to be held.
    next: Vec<u64>,
}

impl Hold {
    pub(super) fn new(ring: &Arc<Ring>, allowance: Allowance) -> Hold {
        let follower = ring.follower(|lane| ring.oldest_possible(lane));
        Hold { follower, ahead: Held::new(ring, allowance), next: Vec::new() }
    }

    pub(super) fn follower(&self) -> Arc<Follower> {
        self.follower.clone()
    }

    pub(super) fn held(&self) -> u64 {
        self.ahead.len()
    }

    /// Publishes to workers where the reader is, and pins what it may.
    pub(super) fn on(&mut self, ring: &Arc<Ring>, cursors: &[Cursor]) {
        self.next.resize(cursors.len(), 0);
        let mut own = 0;
        for (lane, (cursor, next)) in (0u32..).zip(cursors.iter().zip(&mut self.next)) {
            let oldest = ring.oldest_possible(lane);
            self.follower.done_before(lane, cursor.sequence.max(oldest));
            own += u64::from(cursor.pinned.is_some());
            *next = (*next).max(cursor.sequence + u64::from(cursor.pinned.is_some())).max(oldest);
        }
        while self.held() + own < self.ahead.allowed()
            && let Some(pinned) = self.most_endangered(ring)
        {
            self.next[pinned.lane() as usize] = pinned.sequence() + 1;
            self.ahead.put(pinned);
        }
    }

    /// Of each lane's next segment, where there is room for it, the one that was sealed first: it is recycled
    /// first.
    fn most_endangered(&mut self, ring: &Arc<Ring>) -> Option<Pinned> {
        let mut best: Option<(u64, Pinned)> = None;
        for (lane, next) in (0u32..).zip(&self.next).filter(|(lane, _)| self.ahead.has_room(*lane)) {
            let mut ids = (*next..ring.lane_next(lane)).map(|sequence| ring.segment_id(lane, sequence));
            let Some(pinned) = ids.find_map(|id| ring.pin(id)) else { continue };
            let order = pinned.times().map_or(u64::MAX, |times| times.sealed_order);
            if best.as_ref().is_none_or(|best| order < best.0) {
                best = Some((order, pinned));
            }
        }
        best.map(|(_, pinned)| pinned)
    }

    /// Smallest sequence of `lane` that is held.
    pub(super) fn oldest(&self, lane: u32) -> Option<u64> {
        self.ahead.oldest(lane)
    }

    /// The held segment, for the cursor.
    pub(super) fn take(&mut self, id: SegmentId) -> Option<Pinned> {
        self.ahead.take(id)
    }

    /// The lane is read up to segment `needed`.
    pub(super) fn done_before(&mut self, lane: u32, needed: u64) {
        self.next[lane as usize] = self.next[lane as usize].max(needed);
        self.follower.done_before(lane, needed);
    }
}
