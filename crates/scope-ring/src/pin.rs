//! Pins: holding a segment while its bytes are read, and the budget that bounds how much can be held. Who may
//! have a slot is decided through one word, see [`protocol`].

use crate::control::SEALED;
use crate::lock::Mutex;
use crate::protocol;
use crate::ring::Ring;
use crate::search::{Column, Matches};
use crate::timeline::Packets;
use scope_packet::key::{KEY_ENTRY_BYTES, KeyEntry};
use scope_packet::pcapng::PacketBlock;
use scope_packet::segment::{self, SegmentId};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// How far a segment is committed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Committed {
    /// Nothing will be added; foot, statistics and times are in place.
    pub sealed: bool,
    /// Packets.
    pub packets: u32,
    /// Bytes of packet blocks.
    pub bytes: u32,
}

impl Committed {
    pub(crate) fn from_word(word: u64) -> Committed {
        Committed {
            sealed: word & SEALED != 0,
            packets: (word >> 32 & 0x7fff_ffff) as u32,
            bytes: word as u32,
        }
    }

    pub(crate) fn to_word(self) -> u64 {
        (if self.sealed { SEALED } else { 0 }) | (self.packets as u64) << 32 | self.bytes as u64
    }
}

/// Times of a sealed segment, ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentTimes {
    /// Of the first packet.
    pub first_ns: i64,
    /// Of the last packet.
    pub last_ns: i64,
    /// Smallest.
    pub min_ns: i64,
    /// Largest.
    pub max_ns: i64,
    /// Times step back somewhere inside.
    pub unordered: bool,
    /// Place in the order of sealing over all lanes.
    pub sealed_order: u64,
}

/// A hold on one segment: its committed bytes stay as they are until this is dropped, also by unwinding.
pub struct Pinned {
    ring: Arc<Ring>,
    slot: u32,
    id: SegmentId,
    first_packet: u64,
}

impl Pinned {
    /// Wraps a pin that [`protocol::pin`] has just taken on `slot`.
    pub(crate) fn new(ring: Arc<Ring>, slot: u32, id: SegmentId) -> Pinned {
        let first_packet = ring.region().segment(slot).first_packet.load(Ordering::Relaxed);
        Pinned { ring, slot, id, first_packet }
    }

    /// One more hold on the same segment; `None` where it has as many as can be counted.
    pub(crate) fn again(&self) -> Option<Pinned> {
        protocol::pin_again(&self.ring.region().segment(self.slot).word)
            .then(|| Pinned { ring: self.ring.clone(), ..*self })
    }

    /// By what the segment is known.
    pub fn id(&self) -> SegmentId {
        self.id
    }

    /// Lane of the segment.
    pub fn lane(&self) -> u32 {
        self.id.lane
    }

    /// Number of the segment in its lane.
    pub fn sequence(&self) -> u64 {
        self.id.sequence
    }

    /// Number in the lane of the segment's first packet.
    pub fn first_packet(&self) -> u64 {
        self.first_packet
    }

    /// How far it is committed by now.
    pub fn committed(&self) -> Committed {
        protocol::committed(self.ring.region().segment(self.slot))
    }

    /// Times, once sealed.
    pub fn times(&self) -> Option<SegmentTimes> {
        self.committed().sealed.then(|| {
            let control = self.ring.region().segment(self.slot);
            let [first_ns, last_ns, min_ns, max_ns] =
                [0, 1, 2, 3].map(|index| control.times[index].load(Ordering::Relaxed));
            SegmentTimes {
                first_ns,
                last_ns,
                min_ns,
                max_ns,
                unordered: control.unordered.load(Ordering::Relaxed) != 0,
                sealed_order: control.sealed_order.load(Ordering::Relaxed),
            }
        })
    }

    /// The packet blocks that lie in `from..to` (bytes from the segment's start, block boundaries, at most
    /// what is committed).
    pub fn blocks(&self, from: u32, to: u32) -> Blocks<'_> {
        assert!(from <= to && to <= self.committed().bytes);
        // SAFETY: committed bytes aren't written again until the slot is recycled, which this pin forbids.
        let bytes = unsafe { self.ring.region().bytes(self.slot, from as usize..to as usize) };
        Blocks { bytes }
    }

    /// Entry `index` of the key column; `index` is below the committed number of packets.
    pub fn entry(&self, index: u32) -> KeyEntry {
        assert!(index < self.committed().packets);
        let at = segment::entry_offset(self.ring.segment_bytes(), index as usize);
        // SAFETY: as in `blocks`; the entry is committed with its packet.
        let bytes = unsafe { self.ring.region().bytes(self.slot, at..at + KEY_ENTRY_BYTES) };
        KeyEntry::from_bytes(bytes.try_into().expect("16 bytes"))
    }

    /// Entries `from..to` of the key column, in place; `to` is at most the committed number of packets.
    pub fn column(&self, from: u32, to: u32) -> Column<'_> {
        assert!(from <= to && to <= self.committed().packets);
        let at = |index: u32| {
            segment::entry_offset(self.ring.segment_bytes(), 0) + KEY_ENTRY_BYTES
                - index as usize * KEY_ENTRY_BYTES
        };
        // SAFETY: as in `blocks`; entries are committed with their packets.
        let bytes = unsafe { self.ring.region().bytes(self.slot, at(to)..at(from)) };
        Column::new(bytes)
    }

    /// Smallest and largest time of what is committed (ns), and whether times step back somewhere inside. Of
    /// an open segment they may speak of later packets, too. `None`: no packet yet.
    pub fn span(&self) -> Option<(i64, i64, bool)> {
        let control = self.ring.region().segment(self.slot);
        (self.committed().packets > 0).then(|| protocol::span(control))
    }

    /// Of packets `stretch` (indices in the segment, committed) those that are `picked`, by their indices in
    /// the stretch.
    pub fn packets(&self, stretch: Range<u32>, picked: Matches) -> Packets<'_> {
        let first_packet = self.first_packet + u64::from(stretch.start);
        let blocks = self.blocks(0, self.committed().bytes).bytes();
        Packets::new(first_packet, self.column(stretch.start, stretch.end), blocks, picked)
    }

    /// Place in the ring's memory.
    pub(crate) fn slot(&self) -> u32 {
        self.slot
    }

    /// The whole segment as it goes to disk, once sealed.
    pub fn whole(&self) -> Option<&[u8]> {
        // SAFETY: a sealed segment isn't written until the slot is recycled, which this pin forbids.
        self.committed()
            .sealed
            .then(|| unsafe { self.ring.region().bytes(self.slot, 0..self.ring.segment_bytes()) })
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        protocol::unpin(&self.ring.region().segment(self.slot).word);
    }
}

/// Packet blocks one after another, lent in place.
#[derive(Clone, Copy, Debug)]
pub struct Blocks<'a> {
    bytes: &'a [u8],
}

impl<'a> Blocks<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Blocks<'a> {
        Blocks { bytes }
    }

    /// The block at `offset` bytes from the first one; panics where none begins.
    #[inline]
    pub fn at(&self, offset: u32) -> PacketBlock<'a> {
        PacketBlock::first(&self.bytes[offset as usize..]).expect("a committed block begins here")
    }

    /// All bytes.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }
}

impl<'a> Iterator for Blocks<'a> {
    type Item = PacketBlock<'a>;

    #[inline]
    fn next(&mut self) -> Option<PacketBlock<'a>> {
        let block = PacketBlock::first(self.bytes)?;
        self.bytes = &self.bytes[block.bytes().len()..];
        Some(block)
    }
}

/// How many segments dumps may hold together, and how it is shared out.
///
/// Every allowed dump has a share. A dump that begins may take all that is free, less one share for each
/// further dump that may still come; so none can starve the next. Where more dumps are allowed than there are
/// segments, the last ones get none, which is counted: they hold nothing ahead of their reading.
#[derive(Debug)]
pub struct PinBudget {
    /// Segments in all.
    segments: u64,
    state: Mutex<BudgetState>,
}

#[derive(Debug, Default)]
struct BudgetState {
    taken: u64,
    holders: u64,
    /// Holders that got nothing, so far.
    refused: u64,
}

impl PinBudget {
    /// A budget of `segments`.
    pub fn new(segments: u64) -> PinBudget {
        PinBudget { segments, state: Mutex::default() }
    }

    /// Charges up to `wanted` segments for a new holder among at most `holders_max`: at least one where any
    /// is free.
    pub fn take(self: &Arc<Self>, wanted: u64, holders_max: u64) -> Allowance {
        let mut state = self.state.lock().expect("no panic while held");
        state.holders += 1;
        let share = (self.segments / holders_max.max(1)).max(1);
        let reserved = share * holders_max.saturating_sub(state.holders);
        let free = self.segments.saturating_sub(state.taken);
        let granted = free.saturating_sub(reserved).clamp(1, wanted.max(1)).min(free);
        state.taken += granted;
        state.refused += u64::from(granted == 0);
        Allowance { budget: self.clone(), segments: granted }
    }

    /// Segments that may be charged in all.
    pub fn segments(&self) -> u64 {
        self.segments
    }

    /// Holders that got nothing, so far.
    pub fn refused(&self) -> u64 {
        self.state.lock().expect("no panic while held").refused
    }

    /// Segments charged now.
    pub fn taken(&self) -> u64 {
        self.state.lock().expect("no panic while held").taken
    }
}

/// The segments that one dump may hold at a time, charged until it is dropped.
#[derive(Debug)]
pub struct Allowance {
    budget: Arc<PinBudget>,
    segments: u64,
}

impl Allowance {
    /// Segments that may be held at a time; 0 where none was free.
    pub fn segments(&self) -> u64 {
        self.segments
    }

    /// Gives all of them back: nothing is held from now on.
    pub fn give_back(&mut self) {
        let mut state = self.budget.state.lock().expect("no panic while held");
        state.taken -= std::mem::take(&mut self.segments);
    }
}

impl Drop for Allowance {
    fn drop(&mut self) {
        let mut state = self.budget.state.lock().expect("no panic while held");
        state.taken -= self.segments;
        state.holders -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_dump_leaves_a_share_for_each_that_may_come() {
        let budget = Arc::new(PinBudget::new(32));
        let first = budget.take(1000, 8);
        assert_eq!(first.segments(), 32 - 7 * 4);
        let second = budget.take(2, 8);
        assert_eq!(second.segments(), 2);
        let third = budget.take(1000, 8);
        assert_eq!(third.segments(), 32 - 4 - 2 - 5 * 4);
        drop(first);
        drop(third);
        drop(second);
        assert_eq!(budget.taken(), 0);
        let alone = budget.take(1000, 1);
        assert_eq!(alone.segments(), 32);
        let late = budget.take(5, 1);
        assert_eq!((late.segments(), budget.taken(), budget.refused()), (0, 32, 1), "a bound is a bound");
    }

    #[test]
    fn of_more_dumps_than_segments_each_gets_one_until_there_are_none() {
        let budget = Arc::new(PinBudget::new(4));
        let mut all: Vec<Allowance> = (0..6).map(|_| budget.take(u64::MAX, 6)).collect();
        assert_eq!(all.iter().map(Allowance::segments).collect::<Vec<_>>(), [1, 1, 1, 1, 0, 0]);
        assert_eq!((budget.taken(), budget.refused()), (4, 2));
        all[0].give_back();
        assert_eq!((all[0].segments(), budget.taken()), (0, 3));
    }
}
