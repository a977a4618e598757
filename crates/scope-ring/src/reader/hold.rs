//! What a holding reader holds: the oldest segments that it hasn't read yet, as far as its allowance reaches.

use super::cursor::Cursor;
use crate::ahead::Ahead;
use crate::budget::Allowance;
use crate::follow::Follower;
use crate::pin::Pinned;
use crate::ring::Ring;
use scope_packet::SegmentId;
use std::sync::Arc;

/// A holding reader's pins besides the ones under its cursors, and its place among those whom workers wait
/// for.
pub(super) struct Hold {
    follower: Arc<Follower>,
    ahead: Ahead,
}

impl Hold {
    pub(super) fn new(ring: &Arc<Ring>, allowance: Allowance) -> Hold {
        let follower = ring.follower(|lane| ring.oldest_possible(lane));
        Hold { follower, ahead: Ahead::new(ring, allowance) }
    }

    pub(super) fn follower(&self) -> Arc<Follower> {
        self.follower.clone()
    }

    pub(super) fn held(&self) -> u64 {
        self.ahead.held()
    }

    /// Publishes to workers where the reader is, and pins what it may.
    pub(super) fn on(&mut self, ring: &Arc<Ring>, cursors: &[Cursor]) {
        let mut own = 0;
        for (lane, cursor) in (0u32..).zip(cursors) {
            self.follower.done_before(lane, cursor.sequence.max(ring.oldest_possible(lane)));
            let is_pinned = u64::from(cursor.pinned.is_some());
            own += is_pinned;
            self.ahead.pass(lane, cursor.sequence + is_pinned);
        }
        self.ahead.hold(own);
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
        self.ahead.pass(lane, needed);
        self.follower.done_before(lane, needed);
    }
}
