//! Where a reader stands in one lane.

use super::Role;
use crate::pin::Pinned;
use crate::ring::Ring;
use std::sync::Arc;

/// Looks for a lane's open segment before its end is taken for its place.
const SKIP_TRIES: u32 = 100;

/// Where a reader stands in one lane.
#[derive(Default)]
pub(super) struct Cursor {
    pub(super) sequence: u64,
    pub(super) packet: u64,
    pub(super) bytes: u32,
    pub(super) pinned: Option<Pinned>,
    seen: u64,
    missed: u64,
    /// Missed since the last batch.
    gap: u64,
}

/// What is new under the pin: bytes and packets.
pub(super) struct Span {
    pub from: u32,
    pub to: u32,
    pub first_packet: u64,
    pub packets: u32,
    pub missed_before: u64,
}

impl Cursor {
    pub(super) fn pinned(&self) -> Option<&Pinned> {
        self.pinned.as_ref()
    }

    pub(super) fn packet(&self) -> u64 {
        self.packet
    }

    /// Seen and missed.
    pub(super) fn counts(&self) -> (u64, u64) {
        (self.seen, self.missed)
    }

    /// Whether its segment has more, or is at its end.
    pub(super) fn has_more(&self) -> bool {
        let more = |pinned: &Pinned| {
            let committed = pinned.committed();
            committed.sealed || committed.bytes > self.bytes
        };
        self.pinned.as_ref().is_some_and(more)
    }

    /// One look at the lane: what is new under the pin, or `None`.
    pub(super) fn look(&mut self, ring: &Arc<Ring>, lane: u32, role: &mut Role) -> Option<Span> {
        loop {
            if self.pinned.is_none() {
                self.pinned = match role {
                    Role::Member(group) => group.claim(ring, lane, self),
                    _ => self.step_on(ring, lane, role),
                };
            }
            let pinned = self.pinned.as_ref()?;
            let committed = pinned.committed();
            if committed.bytes > self.bytes {
                let first_packet = self.packet;
                let packets = (pinned.first_packet() + committed.packets as u64 - self.packet) as u32;
                let from = std::mem::replace(&mut self.bytes, committed.bytes);
                self.packet += packets as u64;
                self.seen += packets as u64;
                if let Role::Member(group) = role {
                    group.count_seen(lane, packets);
                }
                let missed_before = std::mem::take(&mut self.gap);
                return Some(Span { from, to: committed.bytes, first_packet, packets, missed_before });
            }
            if !committed.sealed {
                return None; // its pin stays: taking and giving it back at each look would steal the writer's line
            }
            self.let_go(lane, role);
        }
    }

    /// The segment is read to its end.
    fn let_go(&mut self, lane: u32, role: &mut Role) {
        match role {
            Role::Member(group) => group.finish(lane, self),
            Role::Lossy => self.pinned = None,
            Role::Holding(hold) => {
                self.pinned = None;
                hold.done_before(lane, self.sequence + 1);
            }
        }
        self.sequence += 1;
        self.bytes = 0;
    }

    /// Goes on behind all that the lane has committed by now; none of that is seen or missed.
    pub(super) fn skip_to_now(&mut self, ring: &Arc<Ring>, lane: u32) {
        *self = Cursor { seen: self.seen, missed: self.missed, ..Cursor::default() };
        for _ in 0..SKIP_TRIES {
            let Some(sequence) = ring.lane_next(lane).checked_sub(1) else { return };
            let Some(pinned) = ring.pin(ring.segment_id(lane, sequence)) else { continue };
            let committed = pinned.committed();
            let packet = pinned.first_packet() + u64::from(committed.packets);
            self.stand_at(sequence, packet, committed.bytes);
            self.pinned = Some(pinned);
            return;
        }
        // It turns faster than this looks, or all that it had is recycled.
        let packet = ring.region().lane(lane).published().packets; // before the number of segments: none is passed over
        self.stand_at(ring.lane_next(lane), packet, 0);
    }

    /// Pins the segment at the cursor, or the oldest one that is left, and counts what was missed on the way.
    fn step_on(&mut self, ring: &Arc<Ring>, lane: u32, role: &mut Role) -> Option<Pinned> {
        let published = ring.region().lane(lane).published().packets; // looked at first: these lie in segments below `next`
        let next = ring.lane_next(lane);
        let mut oldest = ring.oldest_possible(lane);
        if let Role::Holding(hold) = role {
            oldest = hold.oldest(lane).map_or(oldest, |held| held.min(oldest)); // its entry may be in use again
        }
        let mut sequence = self.sequence.max(oldest);
        while sequence < next {
            let id = ring.segment_id(lane, sequence);
            let held = if let Role::Holding(hold) = role { hold.take(id) } else { None };
            let Some(pinned) = held.or_else(|| ring.pin(id)) else {
                sequence += 1; // recycled meanwhile
                continue;
            };
            if sequence != self.sequence {
                self.bytes = 0;
            }
            self.sequence = sequence;
            self.miss_until(pinned.first_packet());
            return Some(pinned);
        }
        if self.sequence < next {
            self.sequence = next; // all that the lane had is recycled: it has paused, or ended, while others went on
            self.bytes = 0;
            self.miss_until(published);
        }
        None
    }

    /// Counts everything before `packet` that wasn't read as missed.
    pub(super) fn miss_until(&mut self, packet: u64) {
        self.miss(packet.saturating_sub(self.packet));
        self.packet = self.packet.max(packet);
    }

    /// Begins at `bytes` of segment `sequence`, with this packet of the lane.
    pub(super) fn stand_at(&mut self, sequence: u64, packet: u64, bytes: u32) {
        (self.sequence, self.packet, self.bytes) = (sequence, packet, bytes);
    }

    /// Missed, and not yet reported with a batch.
    pub(super) fn untold(&self) -> u64 {
        self.gap
    }

    /// Counts `packets` as missed.
    pub(super) fn miss(&mut self, packets: u64) {
        self.missed += packets;
        self.gap += packets;
    }
}
