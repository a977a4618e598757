//! The words that workers and readers share: atomics only, `repr(C)`, zero at start, versioned by the header.
//!
//! Pin word: `generation << 24 | pins`. Committed word: `sealed << 63 | packets << 32 | bytes`.
//! Directory entry: `generation << 24 | slot`, 0 is empty.

use scope_packet::{DropReason, Drops, Moment};
use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering};

/// First 8 bytes of the region: magic and, last, the version of its layout.
pub const REGION_MAGIC: u64 = u64::from_le_bytes(*b"WSRING\0\x01");
/// Bits of the pin count in a pin word, and of the slot in a directory entry.
pub const PIN_BITS: u32 = 24;
/// Mask of the pin count.
pub const PINS: u64 = (1 << PIN_BITS) - 1;
/// The sealed bit of a committed word.
pub const SEALED: u64 = 1 << 63;

const REASONS: usize = DropReason::ALL.len();

/// The region's first page.
#[repr(C)]
pub struct Header {
    /// [`REGION_MAGIC`], written last.
    pub magic: AtomicU64,
    /// The run's 128 random bits.
    pub run_id: [AtomicU64; 2],
    /// Bytes of one segment.
    pub segment_bytes: AtomicU64,
    /// Number of segments.
    pub segments: AtomicU64,
    /// Entries of the worker table.
    pub workers: AtomicU64,
    /// Entries of the lane table.
    pub lanes: AtomicU64,
    /// Lanes in use; entries below are complete (release / acquire).
    pub lanes_used: AtomicU32,
    /// Readers that wait: workers wake them after a commit.
    pub waiting: AtomicU32,
    /// Wake-ups so far; waiting readers sleep on this word.
    pub wakes: AtomicU32,
    /// Segments sealed so far.
    pub seals: AtomicU32,
    /// Beats so far: see `Ring::wait_for_beat`. Threads that wait for the next one sleep on this word.
    pub beats: AtomicU32,
    /// Threads that wait for the next beat.
    pub waiting_for_beat: AtomicU32,
    /// Interfaces known so far.
    pub interfaces: AtomicU32,
    /// Bytes of the interface area in use (release / acquire).
    pub interface_bytes: AtomicU64,
}

/// One lane. Written by its worker only.
#[repr(C, align(128))]
pub struct LaneControl {
    /// Segments opened so far = sequence of the next one (release / acquire).
    pub next: AtomicU64,
    /// Sequence count of the two counters below (odd: being written).
    pub turn: AtomicU64,
    /// Packets committed so far.
    pub published_packets: AtomicU64,
    /// Their captured bytes.
    pub published_bytes: AtomicU64,
    /// Link type of the lane.
    pub link_type: AtomicU32,
    /// Worker that writes it.
    pub worker: AtomicU32,
    padding: [u64; 27],
}

/// Packets of one lane that readers can see, from one consistent snapshot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Published {
    /// Packets committed so far.
    pub packets: u64,
    /// Their captured bytes.
    pub bytes: u64,
}

/// One worker's counters: packets and captured bytes. Written by that worker only, once per commit.
#[repr(C, align(128))]
pub struct WorkerControl {
    /// Sequence count of the counters below (odd: being written).
    pub turn: AtomicU64,
    /// In the order in which `protocol` writes them.
    pub counters: [AtomicU64; 11],
    /// By reason.
    pub dropped: [AtomicU64; REASONS],
    /// How often capture time was set back for this worker. Changes while `clock_ns` is 0.
    pub era: AtomicU64,
    /// Capture time, ns, up to which everything of this worker is committed; never falls within an era,
    /// `i64::MAX` when it has ended.
    pub clock_ns: AtomicI64,
    /// How much older than the clock a packet may still be, ns.
    pub grace_ns: AtomicI64,
    /// Smallest capture time received in this era, ns; valid with `heard_ns` > 0.
    pub first_ns: AtomicI64,
    /// Latest capture time of this era up to which the worker listened, ns; 0: nothing received yet.
    pub heard_ns: AtomicI64,
    padding: [u64; 15 - REASONS],
}

/// What one worker did with what it received.
/// `received = stored + filtered + duplicate + dropped in the worker`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorkerCounts {
    /// Packets that the source handed over.
    pub received_packets: u64,
    /// Their captured bytes.
    pub received_bytes: u64,
    /// Packets written into a lane.
    pub stored_packets: u64,
    /// Their bytes as kept.
    pub stored_bytes: u64,
    /// Packets that a prefilter refused.
    pub filtered_packets: u64,
    /// Their captured bytes.
    pub filtered_bytes: u64,
    /// Packets that were truncated without a snap length that says so (they count as stored).
    pub cut_packets: u64,
    /// Of these: packets that were truncated here, to what a segment can keep.
    pub cut_by_segment_packets: u64,
    /// Packets that were recognised as duplicates.
    pub duplicate_packets: u64,
    /// Packets older than the worker's clock less its grace: windows that they belong to may be over (they
    /// count as stored).
    pub late_packets: u64,
    /// Packets whose time is not believed: it moved no clock (they count as stored).
    pub stray_packets: u64,
    /// Dropped packets by reason; the kernel's never reached the worker.
    pub dropped: Drops,
}

impl WorkerControl {
    /// How often the counters were published.
    pub fn published(&self) -> u64 {
        self.turn.load(Ordering::Relaxed) / 2
    }

    /// Where the worker is in time. The era is read before the clock: so a clock of a later era is never
    /// taken for one of this era, or, if so, this era is over for the worker.
    pub fn moment(&self) -> Moment {
        let era = self.era.load(Ordering::Acquire);
        match self.clock_ns.load(Ordering::Acquire) {
            i64::MAX => Moment::END,
            clock_ns => Moment::new(era, clock_ns),
        }
    }

    /// Goes on in another era, from its beginning.
    pub fn begin_era(&self, era: u64) {
        self.clock_ns.store(0, Ordering::Release);
        self.era.store(era, Ordering::Release); // after the clock, which is not one of the new era
        self.first_ns.store(i64::MAX, Ordering::Relaxed);
        self.heard_ns.store(0, Ordering::Relaxed);
    }
}

/// One segment slot.
#[repr(C, align(128))]
pub struct SegmentControl {
    /// Pin word: generation and pins.
    pub word: AtomicU64,
    /// Committed word: sealed bit, packets, bytes (release / acquire).
    pub committed: AtomicU64,
    /// Lane that writes or wrote it.
    pub lane: AtomicU32,
    /// 1: times stepped back inside. Speaks of what is committed, perhaps of later packets, too.
    pub unordered: AtomicU32,
    /// Number in the lane.
    pub sequence: AtomicU64,
    /// Number in the lane of its first packet.
    pub first_packet: AtomicU64,
    /// The lane's captured bytes before it.
    pub bytes_before: AtomicU64,
    /// Times of the first and last packet (valid once sealed), the smallest and the largest (of what is
    /// committed, perhaps of later packets, too), ns.
    pub times: [AtomicI64; 4],
    /// Place in the order of sealing over all lanes. Valid once sealed.
    pub sealed_order: AtomicU64,
    /// The lane's captured bytes up to its end. Valid once sealed.
    pub bytes_after: AtomicU64,
    /// The lane's drops by reason before it.
    pub drops_before: [AtomicU64; REASONS],
    /// What capture files say that they lack, up to now: packets dropped; files cut (low half) and how often told.
    pub file_losses: [AtomicU64; 2],
    /// The slot's generation that all of this speaks of.
    pub generation: AtomicU64,
    padding: [u64; 17 - REASONS],
}

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
