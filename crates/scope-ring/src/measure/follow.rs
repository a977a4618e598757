//! Readers that follow a lane to the end, counting: one looks at every packet, the other at the key column only.

use super::packets::Packets;
use crate::{Follower, Pinned, Reader, Ring};
use scope_packet::KeyEntry;
use scope_packet::key::KEY_ENTRY_BYTES;
use scope_packet::segment::{FOOT_BYTES, entry_offset};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// What a follower found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Followed {
    /// Packets looked at.
    pub seen: u64,
    /// Packets that were recycled before.
    pub missed: u64,
    /// Packets to the UDP port looked for.
    pub hits: u64,
    /// Captured bytes of the packets seen; 0 where only keys are read.
    pub bytes: u64,
}

/// Follows the open segments of all lanes and tests the UDP port of each packet, in place.
pub struct PacketFollower {
    reader: Reader,
    ring: Arc<Ring>,
    seen_before: u64,
    missed_before: u64,
    place: Option<Arc<Follower>>,
}

impl PacketFollower {
    /// Begins behind everything that the ring has now.
    pub fn new(ring: &Arc<Ring>) -> PacketFollower {
        let mut reader = Reader::new(ring);
        while reader.next_batch().is_some() {}
        let mut follower = PacketFollower { reader, ring: ring.clone(), seen_before: 0, missed_before: 0, place: None };
        (follower.seen_before, follower.missed_before) = follower.counts();
        follower
    }

    /// The same as someone who must not be overrun: feeders that wait (rule 5) wait for it from now on.
    pub fn holding(ring: &Arc<Ring>) -> PacketFollower {
        let place = ring.follower(|lane| ring.lane_next(lane).saturating_sub(1));
        PacketFollower { place: Some(place), ..PacketFollower::new(ring) }
    }

    /// Follows until `done` is set and nothing is left.
    pub fn run(mut self, done: &AtomicBool) -> Followed {
        let mut found = Followed::default();
        loop {
            let last = done.load(Ordering::Acquire); // before the look: what came until then is seen
            let Some(batch) = self.reader.next_batch() else {
                if last {
                    break;
                }
                self.reader.wait();
                continue;
            };
            if let Some(place) = &self.place {
                place.done_before(batch.lane(), batch.sequence());
            }
            for block in batch.blocks() {
                found.hits += u64::from(Packets::is_hit(block.data()));
                found.bytes += block.original_len() as u64;
            }
        }
        let (seen, missed) = self.counts();
        Followed { seen: seen - self.seen_before, missed: missed - self.missed_before, ..found }
    }

    /// Packets seen and missed so far, over all lanes.
    fn counts(&self) -> (u64, u64) {
        let of_lane = |lane| self.reader.counts(lane);
        (0..self.ring.lanes()).map(of_lane).fold((0, 0), |sum, counts| (sum.0 + counts.seen, sum.1 + counts.missed))
    }
}

/// Follows the open segment by its key column; packets are never touched. It keeps its pin while the segment is open.
pub struct ColumnFollower {
    ring: Arc<Ring>,
    lane: u32,
    sequence: u64,
    /// Number in the lane of the next packet to look at.
    packet: u64,
    pinned: Option<Pinned>,
}

impl ColumnFollower {
    /// Begins with packet `packet` of `lane`, the first one of the segment that is opened next.
    pub fn new(ring: &Arc<Ring>, lane: u32, packet: u64) -> ColumnFollower {
        ColumnFollower { ring: ring.clone(), lane, sequence: ring.lane_next(lane), packet, pinned: None }
    }

    /// Follows until `done` is set and nothing is left.
    pub fn run(mut self, done: &AtomicBool) -> Followed {
        let mut found = Followed::default();
        loop {
            let last = done.load(Ordering::Acquire); // before the look: what came until then is seen
            if !self.step(&mut found) {
                if last {
                    return found;
                }
                (0..20).for_each(|_| std::hint::spin_loop());
            }
        }
    }

    /// Looks at what one segment has; false: nothing new.
    fn step(&mut self, found: &mut Followed) -> bool {
        if self.pinned.is_none() && !self.step_on(found) {
            return false;
        }
        let Some(pinned) = &self.pinned else { return true };
        let committed = pinned.committed();
        let (from, to) = ((self.packet - pinned.first_packet()) as u32, committed.packets);
        found.hits += (from..to).filter(|&index| Packets::is_key_hit(&pinned.entry(index))).count() as u64;
        found.seen += (to - from) as u64;
        self.packet += (to - from) as u64;
        if committed.sealed {
            self.sequence += 1;
            self.pinned = None;
        }
        from != to || committed.sealed
    }

    /// Pins the segment at the cursor, or goes on to the oldest one that is left; false: there is none yet.
    fn step_on(&mut self, found: &mut Followed) -> bool {
        let next = self.ring.lane_next(self.lane);
        if self.sequence >= next {
            return false;
        }
        match self.ring.pin(self.lane, self.sequence) {
            Some(pinned) => {
                let missed = pinned.first_packet().saturating_sub(self.packet);
                found.missed += missed;
                self.packet += missed;
                self.pinned = Some(pinned);
            }
            None => self.sequence = (self.sequence + 1).max(self.ring.oldest_possible(self.lane)),
        }
        true
    }
}

/// The key column of a sealed segment, last packet's entry first, and its bytes; `None` while it is open.
pub fn column(pinned: &Pinned) -> Option<(&[[u8; KEY_ENTRY_BYTES]], &[u8])> {
    let whole = pinned.whole()?;
    let packets = pinned.committed().packets as usize;
    let begin = entry_offset(whole.len(), 0) + KEY_ENTRY_BYTES - packets * KEY_ENTRY_BYTES;
    let bytes = &whole[begin..whole.len() - FOOT_BYTES];
    Some((bytes.as_chunks().0, bytes))
}

/// Entries of `column` that a follower looks for.
pub fn scan(column: &[[u8; KEY_ENTRY_BYTES]]) -> u64 {
    column.iter().map(|entry| u64::from(Packets::is_key_hit(&KeyEntry::from_bytes(entry)))).sum()
}
