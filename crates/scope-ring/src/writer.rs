//! Writing one lane: append, commit, seal; the worker that owns the lane is the only one who does.
//!
//! ```text
//! append   no room? ─► seal, and say that a segment is needed          worker: claim, or wait, or drop
//!          block at `bytes`, key entry below the last one, neither visible yet
//! commit   committed word {packets, bytes} by release: all of it becomes visible at once
//! seal     padding over the gap, statistics, column head, foot; times; committed word with the sealed bit; unpin;
//!          the segment goes to the end of the order of sealing
//! ```
//! How bytes go to memory is the matter of module [`crate::stream`]. Committed bytes and entries are never
//! written again until recycling.

use crate::claims::ClaimGroup;
use crate::control::{Committed, Published, SegmentTimes};
use crate::evicted::Evicted;
use crate::protocol::{self, SegmentStart};
use crate::ring::Ring;
use crate::stream::{Appended, Arrivals, Incoming, Stream};
use crate::times::Times;
use scope_packet::pcapng::PacketHead;
use scope_packet::segment::{self, FileLosses, Foot, LeftOut, STATISTICS_MAX};
use scope_packet::{BATCH_PACKETS_MAX, Drops, KeyEntry, LinkType, pcapng};
use std::ops::Range;
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

/// Parts of one segment whose times are remembered apart, at most; beyond, the last one holds the rest.
const PARTS_MAX: usize = 64;

/// The open segment.
struct Open {
    slot: u32,
    sequence: u64,
    first_packet: u64,
    bytes_before: u64,
    drops_before: Drops,
    committed: Committed,
    /// Its parts so far, but the last.
    parts: Vec<Evicted>,
    /// Times of all of them.
    before: Times,
}

/// The writing end of one lane.
pub struct LaneWriter {
    ring: Arc<Ring>,
    lane: u32,
    link_type: LinkType,
    open: Option<Open>,
    /// Of the last part of the open segment.
    times: Times,
    stream: Box<Stream>,
    packets: u64,
    captured_bytes: u64,
    drops: Drops,
    file_losses: FileLosses,
    /// Those that an open or sealed segment says.
    stated_losses: FileLosses,
    interfaces: Vec<InterfaceCounts>,
    /// Latest time of counts that were stated.
    stated_ns: i64,
}

impl Ring {
    /// Opens a lane for `worker`. `None` where the lane table is full (each worker has room for
    /// [`crate::LINK_TYPES_MAX`]). The lane claims its first segment with its first packet.
    pub fn open_lane(self: &Arc<Self>, worker: u32, link_type: LinkType) -> Option<LaneWriter> {
        self.open_lane_in(ClaimGroup::COMMON, worker, link_type)
    }

    /// As [`Ring::open_lane`], for a lane that claims only the segments of `group`, which no other lane
    /// evicts.
    pub fn open_lane_in(
        self: &Arc<Self>,
        group: ClaimGroup,
        worker: u32,
        link_type: LinkType,
    ) -> Option<LaneWriter> {
        let lane = self.add_lane(group, worker, link_type)?;
        Some(LaneWriter::new(self.clone(), lane, link_type))
    }
}

impl LaneWriter {
    fn new(ring: Arc<Ring>, lane: u32, link_type: LinkType) -> LaneWriter {
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
            file_losses: FileLosses::default(),
            stated_losses: FileLosses::default(),
            interfaces: Vec::new(),
            stated_ns: i64::MIN,
        }
    }

    /// Number of the lane.
    pub fn lane(&self) -> u32 {
        self.lane
    }

    /// Link type of the lane.
    #[inline]
    pub fn link_type(&self) -> LinkType {
        self.link_type
    }

    /// Number that the next stored packet gets.
    pub fn next_packet(&self) -> u64 {
        self.packets
    }

    /// Most bytes of one packet that are kept; the caller truncates what is longer, and counts it.
    #[inline]
    pub fn kept_bytes_max(&self) -> usize {
        segment::kept_bytes_max(self.ring.segment_bytes())
    }

    /// Makes room in the statistics for an interface with this number in the run; returns its index in the
    /// lane. An open segment without that room is sealed first.
    pub fn add_interface(&mut self, number: u32) -> usize {
        if self.open.is_some() && !self.stream.reserve(self.interfaces.len() + 1) {
            self.seal();
        }
        self.interfaces.push(InterfaceCounts { number, received: 0, dropped: 0, stated: 0 });
        self.interfaces.len() - 1
    }

    /// Whether its statistics have an interface.
    pub fn has_interfaces(&self) -> bool {
        !self.interfaces.is_empty()
    }

    /// Counts packets of interface `index` that are lost, for the statistics and the foot.
    pub fn count_dropped(&mut self, index: usize, reason: scope_packet::DropReason, packets: u64) {
        self.count_lost(index, packets);
        self.drops.add(reason, packets);
    }

    /// Notes that capture files say that they lack `dropped` packets, and that `cut` of them are damaged or truncated:
    /// the open segment says it, or the next one, since nobody knows when that was.
    pub fn note_file_losses(&mut self, dropped: u64, cut: u32) {
        self.file_losses.add(dropped, cut);
        if let Some(open) = &self.open {
            protocol::publish_file_losses(self.ring.region().segment(open.slot), &self.file_losses);
            self.stated_losses = self.file_losses;
        }
    }

    /// Takes back what was noted and stands in no segment.
    pub fn take_unstated_losses(&mut self) -> FileLosses {
        let unstated = self.file_losses.since(&self.stated_losses);
        self.file_losses = self.stated_losses;
        unstated
    }

    /// Packets of each of its interfaces, by number, that are lost.
    pub fn lost(&self) -> impl Iterator<Item = (u32, u64)> + '_ {
        let lost = self.interfaces.iter().map(|counts| (counts.number, counts.dropped));
        lost.filter(|(_, packets)| *packets > 0)
    }

    /// Counts packets of interface `index` that are lost, for its statistics alone.
    pub fn count_lost(&mut self, index: usize, packets: u64) {
        let counts = &mut self.interfaces[index];
        counts.received = counts.received.saturating_add(packets);
        counts.dropped = counts.dropped.saturating_add(packets);
    }

    /// Smallest time of the open segment's packets, ns; `None`: there is none, or it has no packet.
    pub fn open_from_ns(&self) -> Option<i64> {
        let open = self.open.as_ref().filter(|_| self.stream.packets() > 0)?;
        Some(open.before.and(&self.times).span().0)
    }

    /// Whether a segment is open.
    pub fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// Says what interface `index` has received and dropped since the run began, at `time_ns`: for a lane
    /// that is made of some of another one's packets, whose statistics speak of all of them.
    pub fn state(&mut self, index: usize, received: u64, dropped: u64, time_ns: i64) {
        let counts = &mut self.interfaces[index];
        (counts.received, counts.dropped) = (received, dropped);
        self.stated_ns = self.stated_ns.max(time_ns);
    }

    /// Appends packets `from` and later of a batch. `index` is what [`LaneWriter::add_interface`] returned;
    /// each packet has at most [`LaneWriter::kept_bytes_max`] bytes. How many are stored, the first one under
    /// the number that [`LaneWriter::next_packet`] had; they are visible with the next commit. Where it isn't
    /// all of them, there is no open segment any more: [`LaneWriter::claim`] first.
    ///
    /// # Panics
    /// Where a packet is longer, and there is no room for it.
    #[inline]
    pub fn append_batch<B: Arrivals>(&mut self, index: usize, batch: &B, from: usize) -> usize {
        let mut next = from;
        while next < batch.count() {
            let part = (batch.count() - next).min(BATCH_PACKETS_MAX);
            let stored = self.append_part(index, batch, next..next + part);
            next += stored;
            if stored < part {
                self.assert_kept(batch.packet(next).data.len());
                self.seal();
                break;
            }
        }
        next - from
    }

    /// A packet that fits no segment would need one after another for ever.
    fn assert_kept(&self, len: usize) {
        let most = self.kept_bytes_max();
        assert!(
            len <= most,
            "a packet of {len} bytes for a lane that keeps {most}: truncate it to `kept_bytes_max` first"
        );
    }

    #[inline]
    fn append_part<B: Arrivals>(&mut self, index: usize, batch: &B, range: Range<usize>) -> usize {
        let counts = &mut self.interfaces[index];
        let from = range.start;
        let appended = self.stream.append(counts.number, batch, range);
        counts.received += appended.packets as u64;
        self.packets += appended.packets as u64;
        self.captured_bytes += appended.captured_bytes;
        if appended.packets > 0 {
            self.note_times(batch, from, &appended);
        }
        appended.packets
    }

    #[inline]
    fn note_times<B: Arrivals>(&mut self, batch: &B, from: usize, appended: &Appended) {
        let first_ns = batch.packet(from).head.time_ns;
        if !(appended.is_ordered() && self.times.note_run(first_ns, appended.last_ns)) {
            (from..from + appended.packets)
                .for_each(|index| self.times.note(batch.packet(index).head.time_ns));
        }
    }

    /// Passes over the numbers of packets that found no segment, for a lane whose readers are to know that they are missing:
    /// the next segment begins behind them.
    ///
    /// # Panics
    /// Where a segment is open, which could have them.
    pub fn skip(&mut self, packets: u64) {
        assert!(self.open.is_none(), "what finds room is appended");
        self.packets += packets;
        self.ring.region().lane(self.lane).publish(self.published());
    }

    /// Appends one packet: a batch of one.
    pub fn append(&mut self, index: usize, head: &PacketHead, key: KeyEntry, data: &[u8]) -> Append {
        match self.append_batch(index, &Incoming { head: *head, key: &key, data }, 0) {
            0 => Append::NeedsSegment,
            _ => Append::Stored(self.packets - 1),
        }
    }

    /// What is appended from here on is another part of the segment: when both are gone, the times of the one
    /// are not remembered as those of the other. For packets whose time is wrong, and where capture time was
    /// set back.
    pub fn begin_part(&mut self) {
        if self.open.as_ref().is_some_and(|open| open.parts.len() + 1 < PARTS_MAX) {
            self.end_part();
        }
    }

    fn end_part(&mut self) {
        let Some(open) = self.open.as_mut().filter(|_| !self.times.is_empty()) else { return };
        let first_packet =
            open.parts.last().map_or(open.first_packet, |part| part.first_packet + part.packets);
        let (min_ns, max_ns, _) = self.times.span();
        open.parts.push(Evicted { first_packet, packets: self.packets - first_packet, min_ns, max_ns });
        open.before = open.before.and(&self.times);
        self.times = Times::NONE;
    }

    /// Makes everything appended so far visible.
    pub fn commit(&mut self) {
        if let Some(open) = &mut self.open
            && open.committed.packets != self.stream.packets()
        {
            // The packets' bytes and entries are in place, fenced where they were streamed, before the word
            // that publishes them.
            self.stream.publish();
            open.committed =
                Committed { sealed: false, packets: self.stream.packets(), bytes: self.stream.bytes() };
            let (control, committed) = (self.ring.region().segment(open.slot), open.committed);
            let span =
                if open.parts.is_empty() { self.times.span() } else { open.before.and(&self.times).span() };
            let published = Published { packets: self.packets, bytes: self.captured_bytes };
            protocol::commit(control, self.ring.region().lane(self.lane), published, committed, span);
            self.ring.wake();
        }
    }

    fn published(&self) -> Published {
        Published { packets: self.packets, bytes: self.captured_bytes }
    }

    /// Seals the open segment, if there is one: nothing is added to it any more.
    pub fn seal(&mut self) {
        if self.open.as_ref().is_some_and(|open| !open.parts.is_empty()) {
            self.end_part();
        }
        let Some(open) = self.open.take() else { return };
        let ring = self.ring.clone();
        let mut times = open.before.and(&std::mem::replace(&mut self.times, Times::NONE));
        let unordered = times.unordered;
        let [first_ns, last_ns, min_ns, max_ns] = times.take();
        if !open.parts.is_empty() {
            ring.note_parts(open.slot, open.parts);
        }
        let statistics = self.statistics(open.sequence, max_ns.max(self.stated_ns));
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
            left_out: LeftOut::default(),
            file_losses: self.file_losses,
        };
        self.stream.seal(&foot, &statistics);
        let control = ring.region().segment(open.slot);
        let times = SegmentTimes {
            first_ns,
            last_ns,
            min_ns,
            max_ns,
            unordered,
            sealed_order: ring.next_sealed_order(),
        };
        control.bytes_after.store(self.captured_bytes, Ordering::Relaxed); // before the sealed bit, as times are
        let sealed = Committed { sealed: true, packets: foot.packets, bytes: foot.block_bytes };
        protocol::seal(control, ring.region().lane(self.lane), self.published(), sealed, &times);
        ring.give_back(open.slot);
        ring.wake();
        ring.note_seal();
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

    /// Claims a segment to write on. False: every segment that could be recycled is pinned; try again with
    /// the next batch.
    pub fn claim(&mut self) -> bool {
        self.claim_by(Ring::claim)
    }

    /// The same of segments that no follower still needs: for a worker that can wait, and that has asked
    /// [`Ring::must_wait`].
    pub fn claim_unneeded(&mut self) -> bool {
        self.claim_by(Ring::claim_unneeded)
    }

    /// The same of the one of them that was sealed last.
    pub fn claim_newest_unneeded(&mut self) -> bool {
        self.claim_by(Ring::claim_newest_unneeded)
    }

    fn claim_by(&mut self, claim: impl Fn(&Ring, u32) -> Option<(u32, u64)>) -> bool {
        if self.open.is_some() {
            return true;
        }
        let Some(claimed) = claim(&self.ring, self.lane) else { return false };
        self.begin(claimed);
        true
    }

    /// Goes on in a segment that was claimed: slot and generation.
    fn begin(&mut self, claimed: (u32, u64)) {
        let ring = &self.ring;
        let lane_control = ring.region().lane(self.lane);
        let sequence = lane_control.next.load(Ordering::Relaxed);
        let start = SegmentStart {
            lane: self.lane,
            sequence,
            first_packet: self.packets,
            bytes_before: self.captured_bytes,
            drops_before: &self.drops,
            file_losses: &self.file_losses,
        };
        let (slot, _) = claimed;
        let (control, entry) = (ring.region().segment(slot), ring.region().directory(self.lane, sequence));
        ring.keep_reachable(self.lane, sequence);
        protocol::open(control, entry, lane_control, claimed, &start);
        // SAFETY: the claim gives this lane the slot, until `seal` gives it back; the region lives as long as
        // `self.ring`, and readers look no farther than `committed`, which is stored after what was written.
        unsafe {
            self.stream.open(ring.region().slot_base(slot), ring.segment_bytes(), self.interfaces.len())
        };
        self.stated_losses = self.file_losses;
        self.open = Some(Open::new(slot, sequence, self.packets, self.captured_bytes, self.drops));
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
            committed: Committed::default(),
            parts: Vec::new(),
            before: Times::NONE,
        }
    }
}

impl Drop for LaneWriter {
    /// Leaves everything readable: what was appended is committed and the open segment sealed.
    fn drop(&mut self) {
        self.commit();
        self.seal();
    }
}
