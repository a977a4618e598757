//! Writing one lane: append, commit, seal; the worker that owns the lane is the only one who does.
//!
//! ```text
//! append   no room? ─► seal, and say that a segment is needed          worker: claim, or wait, or drop
//!          block at `bytes`, key entry below the last one, neither visible yet
//! commit   committed word {packets, bytes} by release: all of it becomes visible at once
//! seal     padding over the gap, statistics, column head, foot; times; committed word with the sealed bit; unpin;
//!          the segment goes to the end of the order of sealing
//! ```
//! Bytes are written by ordinary stores here. Committed bytes and entries are never written again until recycling.

use crate::control::{PIN_BITS, Published};
use crate::pin::{self, Committed};
use crate::ring::Ring;
use crate::spans;
use scope_packet::pcapng::PacketHead;
use scope_packet::segment::{self, Foot, STATISTICS_MAX};
use scope_packet::{Drops, KeyEntry, LinkType, pcapng};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// What became of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Append {
    /// Stored under this number in the lane; visible with the next commit.
    Stored(u64),
    /// There is no open segment: [`LaneWriter::claim`] first.
    NeedsSegment,
}

/// What the lane knows of one of its interfaces, cumulative.
#[derive(Clone, Copy, Debug)]
struct InterfaceCounts {
    number: u32,
    received: u64,
    dropped: u64,
    /// Segments of the lane that had been sealed when its statistics were last written; 0: never written.
    stated: u64,
}

/// The open segment.
struct Open {
    slot: u32,
    sequence: u64,
    first_packet: u64,
    bytes_before: u64,
    drops_before: Drops,
    packets: u32,
    bytes: u32,
    committed: Committed,
    first_ns: i64,
    last_ns: i64,
    min_ns: i64,
    max_ns: i64,
    unordered: bool,
}

/// The writing end of one lane.
pub struct LaneWriter {
    ring: Arc<Ring>,
    lane: u32,
    link_type: LinkType,
    open: Option<Open>,
    packets: u64,
    captured_bytes: u64,
    drops: Drops,
    interfaces: Vec<InterfaceCounts>,
}

impl LaneWriter {
    pub(crate) fn new(ring: Arc<Ring>, lane: u32, link_type: LinkType) -> LaneWriter {
        LaneWriter {
            ring,
            lane,
            link_type,
            open: None,
            packets: 0,
            captured_bytes: 0,
            drops: Drops::default(),
            interfaces: Vec::new(),
        }
    }

    /// Number of the lane.
    pub fn lane(&self) -> u32 {
        self.lane
    }

    /// Link type of the lane.
    pub fn link_type(&self) -> LinkType {
        self.link_type
    }

    /// Number that the next stored packet gets.
    pub fn next_packet(&self) -> u64 {
        self.packets
    }

    /// Most bytes of one packet that are kept; the caller cuts what is longer, and counts it.
    pub fn kept_bytes_max(&self) -> usize {
        segment::kept_bytes_max(self.ring.segment_bytes())
    }

    /// Makes room in the statistics for an interface with this number in the run; returns its index in the lane. An open
    /// segment without that room is sealed first.
    pub fn add_interface(&mut self, number: u32) -> usize {
        let interfaces = self.interfaces.len() + 1;
        let room = |open: &Open| self.fits(open.bytes as usize, open.packets as usize, interfaces);
        if !self.open.as_ref().is_none_or(room) {
            self.seal();
        }
        self.interfaces.push(InterfaceCounts { number, received: 0, dropped: 0, stated: 0 });
        self.interfaces.len() - 1
    }

    /// Counts packets of interface `index` that are lost, for the statistics and the foot.
    pub fn count_dropped(&mut self, index: usize, reason: scope_packet::DropReason, packets: u64) {
        let counts = &mut self.interfaces[index];
        counts.received += packets;
        counts.dropped += packets;
        self.drops.add(reason, packets);
    }

    /// Appends one packet. `index` is what [`LaneWriter::add_interface`] returned; its interface's number stands
    /// in the block instead of `head.interface`; `data` must be `head.captured_len` bytes, at most [`LaneWriter::kept_bytes_max`].
    #[inline]
    pub fn append(&mut self, index: usize, head: &PacketHead, key: KeyEntry, data: &[u8]) -> Append {
        let block_bytes = head.block_bytes();
        let segment_bytes = self.ring.segment_bytes();
        let room = |open: &Open| self.fits(open.bytes as usize + block_bytes, open.packets as usize + 1, self.interfaces.len());
        match &self.open {
            Some(open) if room(open) => {}
            Some(_) => {
                self.seal();
                return Append::NeedsSegment;
            }
            None => return Append::NeedsSegment,
        }
        let Some(open) = &mut self.open else { return Append::NeedsSegment };
        let at = open.bytes as usize;
        let entry_at = segment::entry_offset(segment_bytes, open.packets as usize);
        let counts = &mut self.interfaces[index];
        counts.received += 1;
        let interface = counts.number;
        debug_assert!(at >= open.committed.bytes as usize);
        // SAFETY: this lane owns the slot, and both ranges lie beyond what is committed: blocks grow upward from
        // `open.bytes` >= committed bytes, entries downward below the committed ones, and `fits` keeps them apart.
        let (block, entry) = unsafe {
            let region = self.ring.region();
            (region.bytes_mut(open.slot, at..at + block_bytes), region.bytes_mut(open.slot, entry_at..entry_at + 16))
        };
        head.write_for(interface, block, data);
        entry.copy_from_slice(&key.at(at as u32).to_bytes());
        open.note_time(head.time_ns);
        open.bytes += block_bytes as u32;
        open.packets += 1;
        self.packets += 1;
        self.captured_bytes += data.len() as u64;
        Append::Stored(self.packets - 1)
    }

    fn fits(&self, block_bytes: usize, packets: usize, interfaces: usize) -> bool {
        segment::fits(self.ring.segment_bytes(), block_bytes, packets, interfaces)
    }

    /// Makes everything appended so far visible.
    pub fn commit(&mut self) {
        if let Some(open) = &mut self.open
            && (open.committed.packets, open.committed.bytes) != (open.packets, open.bytes)
        {
            open.committed = Committed { sealed: false, packets: open.packets, bytes: open.bytes };
            let (slot, word) = (open.slot, open.committed.to_word());
            let span = (open.min_ns, open.max_ns, open.unordered);
            spans::publish(self.ring.region().segment(slot), span); // before the commit that it speaks of
            self.publish(); // counted before it is visible: no reader sees more than was published
            // The packets' bytes and entries before the word that publishes them.
            self.ring.region().segment(slot).committed.store(word, Ordering::Release);
            self.ring.wake();
        }
    }

    fn publish(&self) {
        self.ring.region().lane(self.lane).publish(Published { packets: self.packets, bytes: self.captured_bytes });
    }

    /// Seals the open segment, if there is one: nothing is added to it any more.
    pub fn seal(&mut self) {
        let Some(open) = self.open.take() else { return };
        let ring = self.ring.clone();
        let statistics = self.statistics(open.sequence, open.max_ns);
        let foot = Foot {
            run_id: ring.run_id(),
            lane: self.lane,
            link_type: self.link_type,
            unordered: open.unordered,
            sequence: open.sequence,
            first_packet: open.first_packet,
            packets: open.packets,
            block_bytes: open.bytes,
            first_ns: open.first_ns,
            last_ns: open.last_ns,
            min_ns: open.min_ns,
            max_ns: open.max_ns,
            bytes_before: open.bytes_before,
            drops_before: open.drops_before,
        };
        let entries_at = segment::entry_offset(ring.segment_bytes(), 0) + 16 - open.packets as usize * 16;
        // SAFETY: this lane owns the slot; the gap between blocks and entries and the foot behind them are not committed.
        let (gap, tail) = unsafe {
            let region = ring.region();
            let foot_at = ring.segment_bytes() - segment::FOOT_BYTES;
            (
                region.bytes_mut(open.slot, open.bytes as usize..entries_at),
                region.bytes_mut(open.slot, foot_at..ring.segment_bytes()),
            )
        };
        segment::seal(gap, tail, &foot, &statistics);
        let control = ring.region().segment(open.slot);
        for (place, time_ns) in control.times.iter().zip([open.first_ns, open.last_ns, open.min_ns, open.max_ns]) {
            place.store(time_ns, Ordering::Relaxed);
        }
        control.unordered.store(u32::from(open.unordered), Ordering::Relaxed);
        control.sealed_order.store(ring.next_sealed_order(), Ordering::Relaxed);
        let sealed = Committed { sealed: true, packets: open.packets, bytes: open.bytes };
        self.publish();
        control.committed.store(sealed.to_word(), Ordering::Release); // foot, statistics and times before the sealed bit
        pin::unpin(&control.word);
        ring.give_back(open.slot);
        ring.wake();
    }

    /// Statistics blocks for the end of segment `sequence`: of all interfaces, or of the 64 longest unstated.
    fn statistics(&mut self, sequence: u64, time_ns: i64) -> Vec<u8> {
        let mut due: Vec<usize> = (0..self.interfaces.len()).collect();
        if due.len() > STATISTICS_MAX {
            due.sort_by_key(|&index| self.interfaces[index].stated);
            due.truncate(STATISTICS_MAX);
            due.sort_unstable();
        }
        let mut blocks = Vec::with_capacity(due.len() * pcapng::STATISTICS_BYTES);
        for index in due {
            let counts = &mut self.interfaces[index];
            counts.stated = sequence + 1;
            pcapng::statistics(&mut blocks, counts.number, time_ns, counts.received, counts.dropped);
        }
        blocks
    }

    /// Claims a segment to write on. False: every segment that could be recycled is pinned; try again with the next batch.
    pub fn claim(&mut self) -> bool {
        if self.open.is_some() {
            return true;
        }
        let Some((slot, generation)) = self.ring.claim(self.lane) else { return false };
        let ring = &self.ring;
        let lane_control = ring.region().lane(self.lane);
        let sequence = lane_control.next.load(Ordering::Relaxed);
        let control = ring.region().segment(slot);
        control.committed.store(0, Ordering::Relaxed);
        control.lane.store(self.lane, Ordering::Relaxed);
        control.sequence.store(sequence, Ordering::Relaxed);
        control.first_packet.store(self.packets, Ordering::Relaxed);
        control.bytes_before.store(self.captured_bytes, Ordering::Relaxed);
        for (reason, packets) in self.drops.iter() {
            control.drops_before[reason as usize].store(packets, Ordering::Relaxed);
        }
        // The segment's words before the entry that leads to them, and that before the lane's count.
        ring.region().directory(self.lane, sequence).store(generation << PIN_BITS | slot as u64, Ordering::Release);
        lane_control.next.store(sequence + 1, Ordering::Release);
        self.open = Some(Open::new(slot, sequence, self.packets, self.captured_bytes, self.drops));
        true
    }
}

impl Open {
    fn new(slot: u32, sequence: u64, first_packet: u64, bytes_before: u64, drops_before: Drops) -> Open {
        Open {
            slot,
            sequence,
            first_packet,
            bytes_before,
            drops_before,
            packets: 0,
            bytes: 0,
            committed: Committed::default(),
            first_ns: 0,
            last_ns: 0,
            min_ns: i64::MAX,
            max_ns: 0,
            unordered: false,
        }
    }

    #[inline]
    fn note_time(&mut self, time_ns: i64) {
        if self.packets == 0 {
            self.first_ns = time_ns;
        } else {
            self.unordered |= time_ns < self.last_ns;
        }
        self.last_ns = time_ns;
        self.min_ns = self.min_ns.min(time_ns);
        self.max_ns = self.max_ns.max(time_ns);
    }
}

impl Drop for LaneWriter {
    /// Leaves everything readable: what was appended is committed and the open segment sealed.
    fn drop(&mut self) {
        self.commit();
        self.seal();
    }
}
