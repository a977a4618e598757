//! Sharing one reader role among threads: every segment goes to exactly one member, which reads it to its
//! end.
//!
//! ```text
//! claim    under the lane's lock, once per segment: pin the oldest unclaimed segment that is left; `next` is the one behind it;
//!          what lies between the last claimed segment's end and this one's first packet was recycled: missed
//! finish   the last claimed segment's end is noted, so that its pin can go
//! leave    a member that ends in the middle of a segment leaves it, pinned, to the next one that claims
//! ```
//! Within a segment order is kept; among members it isn't.

use super::cursor::Cursor;
use super::{Reader, ReaderCounts, Role};
use crate::lock::Mutex;
use crate::pin::Pinned;
use crate::ring::Ring;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A reader role that any number of threads share.
pub struct ReaderGroup {
    ring: Arc<Ring>,
    lanes: Vec<GroupLane>,
}

#[derive(Default)]
struct GroupLane {
    claims: Mutex<LaneClaims>,
    /// Copy of the first unclaimed sequence, and how many segments were left: to look without the lock.
    next: AtomicU64,
    left: AtomicU64,
    seen: AtomicU64,
    missed: AtomicU64,
}

/// Protected by the lane's lock.
#[derive(Default)]
struct LaneClaims {
    next: u64,
    /// All packets before this one lie in claimed segments or are missed; while `last` is there, its end
    /// counts instead.
    packet: u64,
    /// The segment that was claimed last, until it is finished: only its end shows what a gap behind it
    /// holds.
    last: Option<Pinned>,
    /// Missed, and not yet reported with a segment.
    gap: u64,
    /// At most one for each member that ended.
    left: Vec<Cursor>,
}

impl ReaderGroup {
    /// A group without members that begins with the oldest packets that are left.
    pub fn new(ring: &Arc<Ring>) -> Arc<ReaderGroup> {
        let lanes = (0..ring.region().layout().lanes).map(|_| GroupLane::default()).collect();
        Arc::new(ReaderGroup { ring: ring.clone(), lanes })
    }

    /// One more member, for a thread of its own.
    pub fn member(self: &Arc<Self>) -> Reader {
        Reader::with(&self.ring, Role::Member(self.clone()))
    }

    /// Counters of `lane`: the sum over all members, those that ended included.
    pub fn counts(&self, lane: u32) -> ReaderCounts {
        let own = &self.lanes[lane as usize];
        let (seen, missed) = (own.seen.load(Ordering::Acquire), own.missed.load(Ordering::Acquire));
        let published = self.ring.region().lane(lane).published().packets;
        ReaderCounts { seen, missed, behind: published.saturating_sub(seen + missed) }
    }

    pub(super) fn count_seen(&self, lane: u32, packets: u32) {
        self.lanes[lane as usize].seen.fetch_add(packets as u64, Ordering::Release);
    }

    /// Whether a member without a segment of `lane` may find one.
    pub(super) fn has_work(&self, ring: &Ring, lane: u32) -> bool {
        let own = &self.lanes[lane as usize];
        own.left.load(Ordering::Acquire) > 0 || own.next.load(Ordering::Acquire) < ring.lane_next(lane)
    }

    /// Claims a segment for the member whose cursor this is, and puts the cursor there.
    pub(super) fn claim(&self, ring: &Arc<Ring>, lane: u32, cursor: &mut Cursor) -> Option<Pinned> {
        if !self.has_work(ring, lane) {
            return None;
        }
        let own = &self.lanes[lane as usize];
        let mut claims = own.claims.lock().expect("no panic while held");
        if let Some(mut left) = claims.left.pop() {
            own.left.store(claims.left.len() as u64, Ordering::Release);
            cursor.stand_at(left.sequence, left.packet, left.bytes);
            cursor.miss(left.untold());
            return left.pinned.take();
        }
        let published = ring.region().lane(lane).published().packets; // looked at first: these lie in segments below `end`
        let end = ring.lane_next(lane);
        let id = |sequence| ring.segment_id(lane, sequence);
        let pinned =
            (claims.next.max(ring.oldest_possible(lane))..end).find_map(|sequence| ring.pin(id(sequence)));
        let missed = match &pinned {
            Some(pinned) => claims.step_to(pinned.sequence() + 1, pinned.first_packet()),
            None if claims.next < end => claims.step_to(end, published), // all that the lane had is recycled
            None => 0,
        };
        own.next.store(claims.next, Ordering::Release);
        own.missed.fetch_add(missed, Ordering::Release);
        claims.gap += missed;
        let pinned = pinned?;
        cursor.miss(std::mem::take(&mut claims.gap));
        claims.last = pinned.again();
        cursor.stand_at(pinned.sequence(), pinned.first_packet(), 0);
        Some(pinned)
    }

    /// The cursor's segment is read to its end: its pin goes.
    pub(super) fn finish(&self, lane: u32, cursor: &mut Cursor) {
        let mut claims = self.lanes[lane as usize].claims.lock().expect("no panic while held");
        if claims.last.as_ref().is_some_and(|last| last.sequence() == cursor.sequence) {
            claims.packet = claims.packet.max(cursor.packet);
            claims.last = None;
        }
        cursor.pinned = None;
    }

    /// A member ends: what it has begun is left to the others.
    pub(super) fn leave(&self, lane: u32, cursor: &mut Cursor) {
        if cursor.pinned.is_none() {
            return;
        }
        let own = &self.lanes[lane as usize];
        if let Ok(mut claims) = own.claims.lock() {
            claims.left.push(std::mem::take(cursor));
            own.left.store(claims.left.len() as u64, Ordering::Release);
        }
    }
}

impl LaneClaims {
    /// Goes on to where `next` is unclaimed; the packets before `packet` that no claimed segment holds.
    fn step_to(&mut self, next: u64, packet: u64) -> u64 {
        if let Some(last) = self.last.take() {
            // Sealed: its lane has opened another since.
            self.packet = self.packet.max(last.first_packet() + last.committed().packets as u64);
        }
        let missed = packet.saturating_sub(self.packet);
        self.packet = self.packet.max(packet);
        self.next = next;
        missed
    }
}
