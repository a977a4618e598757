//! Pins: holding a segment while its bytes are read. Who may have a slot is decided through one word, see
//! [`protocol`].

use crate::blocks::Blocks;
use crate::control::{Committed, SegmentTimes};
use crate::protocol;
use crate::ring::Ring;
use crate::search::{Column, KeyTest, Matches, Picked};
use crate::timeline::Packets;
use scope_packet::key::{KEY_ENTRY_BYTES, KeyEntry};
use scope_packet::segment::{self, FileLosses, Foot, LeftOut, SegmentId};
use scope_packet::{DropReason, Drops};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A hold on one segment: its committed bytes stay as they are until this is dropped, also by unwinding.
pub struct Pinned {
    ring: Arc<Ring>,
    slot: u32,
    id: SegmentId,
    first_packet: u64,
}

impl Ring {
    /// Pins a segment; `None` where it isn't there yet, isn't there any more, or is another run's.
    pub fn pin(self: &Arc<Self>, id: SegmentId) -> Option<Pinned> {
        if id.run != self.run_id() || id.lane as usize >= self.region().layout().lanes {
            return None;
        }
        let entry = protocol::find(self.region().directory(id.lane, id.sequence));
        let pinned = entry.and_then(|entry| self.pin_at(entry, id));
        pinned.or_else(|| self.straggler(id).and_then(|entry| self.pin_at(entry, id)))
    }

    fn pin_at(self: &Arc<Self>, (slot, generation): (u32, u64), id: SegmentId) -> Option<Pinned> {
        let control = self.region().segment(slot);
        if !protocol::pin(&control.word, generation) {
            return None;
        }
        let pinned = Pinned::new(self.clone(), slot, id);
        protocol::holds(control, id.lane, id.sequence).then_some(pinned) // a wrong one is unpinned by its drop
    }
}

impl Pinned {
    /// Wraps a pin that [`protocol::pin`] has just taken on `slot`.
    fn new(ring: Arc<Ring>, slot: u32, id: SegmentId) -> Pinned {
        let first_packet = ring.region().segment(slot).first_packet.load(Ordering::Relaxed);
        Pinned { ring, slot, id, first_packet }
    }

    /// One more hold on the same segment; `None` where it has as many as can be counted.
    pub fn again(&self) -> Option<Pinned> {
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

    /// Bytes of the segment, a power of two.
    pub fn segment_bytes(&self) -> usize {
        self.ring.segment_bytes()
    }

    /// Interfaces that the run knows by now: those of all packets that were committed before are among them.
    pub fn interfaces(&self) -> u32 {
        self.ring.region().header().interfaces.load(Ordering::Acquire)
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

    /// Captured bytes of the lane before the segment.
    pub fn bytes_before(&self) -> u64 {
        self.ring.region().segment(self.slot).bytes_before.load(Ordering::Relaxed)
    }

    /// Captured bytes of the lane up to the segment's end, once sealed.
    pub fn bytes_after(&self) -> Option<u64> {
        let control = self.ring.region().segment(self.slot);
        self.committed().sealed.then(|| control.bytes_after.load(Ordering::Relaxed))
    }

    /// What capture files say by now that the lane lacks.
    pub fn file_losses(&self) -> FileLosses {
        protocol::file_losses(self.ring.region().segment(self.slot))
    }

    /// The foot of the segment as if it ended at `committed`, which was read before; `None`: no packet yet. The
    /// span of times may be that of later packets, too.
    pub fn foot(&self, committed: Committed) -> Option<Foot> {
        let last = self.entry(committed.packets.checked_sub(1)?).offset();
        let time_ns = |from| self.blocks(from, committed.bytes).next().map(|block| block.time_ns());
        let (min_ns, max_ns, unordered) = self.span()?;
        let control = self.ring.region().segment(self.slot);
        let mut drops_before = Drops::default();
        for reason in DropReason::ALL {
            drops_before.add(reason, control.drops_before[reason as usize].load(Ordering::Relaxed));
        }
        Some(Foot {
            run_id: self.id.run,
            lane: self.id.lane,
            link_type: self.ring.lane_info(self.id.lane).link_type,
            unordered,
            sequence: self.id.sequence,
            first_packet: self.first_packet,
            packets: committed.packets,
            block_bytes: committed.bytes,
            first_ns: time_ns(0)?,
            last_ns: time_ns(last)?,
            min_ns,
            max_ns,
            bytes_before: control.bytes_before.load(Ordering::Relaxed),
            drops_before,
            left_out: LeftOut::default(),
            file_losses: self.file_losses(),
        })
    }

    /// The packet blocks that lie in `from..to` (bytes from the segment's start, block boundaries, at most
    /// what is committed).
    pub fn blocks(&self, from: u32, to: u32) -> Blocks<'_> {
        assert!(from <= to && to <= self.committed().bytes);
        // SAFETY: committed bytes aren't written again until the slot is recycled, which this pin forbids.
        let bytes = unsafe { self.ring.region().bytes(self.slot, from as usize..to as usize) };
        Blocks::new(bytes)
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

    /// Indices within the segment of the packets among `from..to` whose entries pass, ascending.
    pub fn matches(&self, test: &KeyTest, from: u32, to: u32) -> impl Iterator<Item = u32> + '_ {
        self.column(from, to).matches(test).map(move |index| from + index)
    }

    /// The blocks of packets `from..to` by their index in the segment, through the column's offsets.
    pub fn indexed(&self, from: u32, to: u32) -> Picked<'_, Range<u32>> {
        self.pick(from..to)
    }

    /// The blocks of the packets at `indices` (any order, below what is committed now), through the column's
    /// offsets.
    pub fn pick<I: Iterator<Item = u32>>(&self, indices: I) -> Picked<'_, I> {
        let committed = self.committed();
        Picked::new(self.column(0, committed.packets), self.blocks(0, committed.bytes), indices)
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

    /// Bytes `range` of the segment as they go to disk: of an open one those of committed blocks, or of
    /// committed entries.
    pub fn stretch(&self, range: Range<usize>) -> &[u8] {
        let (committed, segment_bytes) = (self.committed(), self.ring.segment_bytes());
        let entries_end = segment_bytes - segment::FOOT_BYTES;
        let entries_from = entries_end - committed.packets as usize * KEY_ENTRY_BYTES;
        assert!(range.start <= range.end);
        assert!(
            committed.sealed && range.end <= segment_bytes
                || range.end <= committed.bytes as usize
                || range.start >= entries_from && range.end <= entries_end
        );
        // SAFETY: as in `blocks` and `column`; of a sealed segment nothing is written until its slot is
        // recycled.
        unsafe { self.ring.region().bytes(self.slot, range) }
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
