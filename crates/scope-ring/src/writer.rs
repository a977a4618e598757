//! Writing one lane: append, commit, seal; the worker that owns the lane is the only one who does.
//!
//! ```text
//! append   no room? ─► seal, and say that a segment is needed          worker: claim, or wait, or drop
//!          block at `bytes`, key entry below the last one, neither visible yet
//! commit   committed word {packets, bytes} by release: all of it becomes visible at once
//! seal     padding over the gap, statistics, column head, foot; times; committed word with the sealed bit; unpin;
//!          the segment goes to the end of the order of sealing
//! ```
//! How bytes go to memory is the matter of module [`crate::stream`]. Committed bytes and entries are never written again
//! until recycling.

use crate::control::Published;
use crate::pin::{Committed, SegmentTimes};
use crate::protocol::{self, SegmentStart};
use crate::ring::Ring;
use crate::stream::Stream;
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
    committed: Committed,
}

/// The writing end of one lane.
pub struct LaneWriter {
    ring: Arc<Ring>,
    lane: u32,
    link_type: LinkType,
    open: Option<Open>,
    /// Of the open segment.
    times: Times,
    stream: Box<Stream>,
    packets: u64,
    captured_bytes: u64,
    drops: Drops,
    interfaces: Vec<InterfaceCounts>,
}

impl LaneWriter {
    pub(crate) fn new(ring: Arc<Ring>, lane: u32, link_type: LinkType) -> LaneWriter {
        LaneWriter {
            stream: Stream::new(ring.form()),
            ring,
            lane,
            link_type,
            open: None,
            times: Times::NONE,
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
        if self.open.is_some() && !self.stream.reserve(self.interfaces.len() + 1) {
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
    #[inline(always)] // see `Stream::append`
    pub fn append(&mut self, index: usize, head: &PacketHead, key: KeyEntry, data: &[u8]) -> Append {
        let counts = &mut self.interfaces[index];
        if !self.stream.append(head, counts.number, key, data) {
            self.seal();
            return Append::NeedsSegment;
        }
        counts.received += 1;
        self.times.note(head.time_ns);
        self.packets += 1;
        self.captured_bytes += data.len() as u64;
        Append::Stored(self.packets - 1)
    }

    /// Makes everything appended so far visible.
    pub fn commit(&mut self) {
        if let Some(open) = &mut self.open
            && open.committed.packets != self.stream.packets()
        {
            // The packets' bytes and entries are in place, fenced where they were streamed, before the word that publishes them.
            self.stream.publish();
            open.committed = Committed { sealed: false, packets: self.stream.packets(), bytes: self.stream.bytes() };
            let (control, committed) = (self.ring.region().segment(open.slot), open.committed);
            protocol::commit(control, self.ring.region().lane(self.lane), self.published(), committed, self.times.span());
            self.ring.wake();
        }
    }

    fn published(&self) -> Published {
        Published { packets: self.packets, bytes: self.captured_bytes }
    }

    /// Seals the open segment, if there is one: nothing is added to it any more.
    pub fn seal(&mut self) {
        let Some(open) = self.open.take() else { return };
        let ring = self.ring.clone();
        let unordered = self.times.unordered;
        let [first_ns, last_ns, min_ns, max_ns] = self.times.take();
        let statistics = self.statistics(open.sequence, max_ns);
        let foot = Foot {
            run_id: ring.run_id(),
            lane: self.lane,
            link_type: self.link_type,
            unordered,
            sequence: open.sequence,
            first_packet: open.first_packet,
            packets: self.stream.packets(),
            block_bytes: self.stream.bytes(),
            first_ns,
            last_ns,
            min_ns,
            max_ns,
            bytes_before: open.bytes_before,
            drops_before: open.drops_before,
        };
        self.stream.seal(&foot, &statistics);
        let control = ring.region().segment(open.slot);
        let times = SegmentTimes { first_ns, last_ns, min_ns, max_ns, unordered, sealed_order: ring.next_sealed_order() };
        let sealed = Committed { sealed: true, packets: foot.packets, bytes: foot.block_bytes };
        protocol::seal(control, ring.region().lane(self.lane), self.published(), sealed, &times);
        ring.give_back(open.slot);
        ring.wake();
        ring.wake_for_seal();
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
        let Some(claimed) = self.ring.claim(self.lane) else { return false };
        let ring = &self.ring;
        let lane_control = ring.region().lane(self.lane);
        let sequence = lane_control.next.load(Ordering::Relaxed);
        let start = SegmentStart {
            lane: self.lane,
            sequence,
            first_packet: self.packets,
            bytes_before: self.captured_bytes,
            drops_before: &self.drops,
        };
        let (slot, _) = claimed;
        let (control, entry) = (ring.region().segment(slot), ring.region().directory(self.lane, sequence));
        protocol::open(control, entry, lane_control, claimed, &start);
        // SAFETY: the claim gives this lane the slot, until `seal` gives it back; the region lives as long as `self.ring`, and
        // readers look no farther than `committed`, which is stored after what was written.
        unsafe { self.stream.open(ring.region().slot_base(slot), ring.segment_bytes(), self.interfaces.len()) };
        self.open = Some(Open::new(slot, sequence, self.packets, self.captured_bytes, self.drops));
        true
    }
}

impl Open {
    fn new(slot: u32, sequence: u64, first_packet: u64, bytes_before: u64, drops_before: Drops) -> Open {
        Open { slot, sequence, first_packet, bytes_before, drops_before, committed: Committed::default() }
    }
}

/// Times of the packets of the open segment, ns.
struct Times {
    /// None was noted yet.
    empty: bool,
    first_ns: i64,
    last_ns: i64,
    min_ns: i64,
    /// While there is none, so large that no time is larger.
    max_ns: i64,
    unordered: bool,
}

impl Times {
    const NONE: Times = Times { empty: true, first_ns: 0, last_ns: 0, min_ns: i64::MAX, max_ns: i64::MAX, unordered: false };

    #[inline]
    fn note(&mut self, time_ns: i64) {
        if time_ns > self.max_ns {
            (self.last_ns, self.max_ns) = (time_ns, time_ns); // time went on, as it mostly does
        } else {
            self.note_odd(time_ns);
        }
    }

    /// Smallest and largest time, and whether times step back, of what was noted; there was something.
    fn span(&self) -> (i64, i64, bool) {
        (self.min_ns, self.max_ns, self.unordered)
    }

    /// First, last, smallest and largest time; zeros, and no smallest one, where there was none. Begins anew.
    fn take(&mut self) -> [i64; 4] {
        let times = std::mem::replace(self, Times::NONE);
        if times.empty { [0, 0, i64::MAX, 0] } else { [times.first_ns, times.last_ns, times.min_ns, times.max_ns] }
    }

    #[inline(never)]
    fn note_odd(&mut self, time_ns: i64) {
        if self.empty {
            *self =
                Times { empty: false, first_ns: time_ns, last_ns: time_ns, min_ns: time_ns, max_ns: time_ns, unordered: false };
            return;
        }
        self.unordered |= time_ns < self.last_ns;
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
