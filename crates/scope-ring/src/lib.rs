//! The ring: segments, lanes, writers, readers, pins and loss, in one shared memory region; no files, no
//! sockets.
//!
//! A worker writes packets into the open segment of its lane and publishes them by one release store. When
//! the segment is full it is sealed, and the worker claims the oldest segment that nobody has pinned. Readers
//! pin a segment, read what is committed, and unpin; they never slow a worker, and always know exactly what
//! they missed.
//!
//! ```text
//!  lane 0   | seg 0 | seg 1 | seg 2 (open) |          each lane: segments numbered from 0, packets numbered from 0
//!  lane 1   | seg 0 (open) |
//!  region   tables [ header | workers | lanes | directory | segment table | interfaces ]  slots [ slot 0 | slot 1 | ... | slot n-1 ]
//! ```
//!
//! | module | what it holds |
//! |---|---|
//! | `region` | the memory: layout, mapping, prefault, what the machine has |
//! | `control` | the words that workers and readers share, `repr(C)`, and what they say |
//! | `config` | what a ring is made of: sizes and shares, checked |
//! | [`ring`] | the ring as a whole: lanes, claiming, snapshots |
//! | [`claims`] | the order of recycling, for each claim group |
//! | `protocol` | every ordering: claim, open, commit, seal, pin, unpin, snapshots |
//! | [`pin`], [`held`], [`ahead`], [`budget`] | holding segments, also ahead of a reader; the pin budget |
//! | `blocks` | packet blocks, lent in place |
//! | `lock`, `futex` | waiting: for each other at claims, for news |
//! | [`writer`] | append, commit, seal |
//! | `stream` | the open segment's bytes, written at memory speed |
//! | [`reader`] | following the ring: batches lent in place, exact loss |
//! | [`segments`] | following the ring segment by segment, for whoever takes them whole |
//! | [`search`] | by time and by key, without touching other packets |
//! | [`summary`], `summary_form`, `bits` | what lets a search skip whole segments, and how it is written |
//! | [`slices`] | the same question to one summary, or to many bit by bit |
//! | `summarizer` | the thread that builds it |
//! | `spans` | times of all segments, small enough to be searched in microseconds |
//! | [`timeline`] | the seam for dumps and searches of a span of time: of the ring, later of other rooms |
//! | [`follow`] | who must not be overrun by workers that can wait |
//! | [`evicted`] | what is remembered of recycled segments |
//! | `losses` | what never came into the ring: gaps by reason, and for how long each worker listened |
//! | [`registry`] | interface numbers for the whole run |
//! | [`outside`] | following the ring from another process: read-only, without pins |
//!
//! Absent on purpose: the ring knows nothing of files, filters, triggers or threads, and hashes nothing.

pub mod ahead;
mod bits;
mod blocks;
pub mod budget;
pub mod claims;
mod config;
mod control;
mod eras;
pub mod evicted;
pub mod follow;
mod futex;
pub mod held;
pub mod judge;
mod lock;
mod losses;
pub mod outside;
pub mod pin;
mod protocol;
pub mod reader;
mod region;
pub mod registry;
pub mod ring;
pub mod search;
pub mod segments;
pub mod slices;
mod spans;
mod stream;
mod summarizer;
pub mod summary;
mod summary_form;
pub mod timeline;
mod times;
pub mod writer;

pub use ahead::Ahead;
pub use blocks::Blocks;
pub use budget::Allowance;
pub use claims::ClaimGroup;
pub use config::{RingConfig, Share};
pub use control::{Committed, Published, SegmentTimes, WorkerCounts};
pub use evicted::Lost;
pub use follow::Follower;
pub use held::Held;
pub use judge::Judge;
pub use outside::{
    Begin, Bytes, Lent, LentPacket, OutsideBatch, OutsideCounts, OutsideError, OutsideInterface,
    OutsideReader,
};
pub use pin::Pinned;
pub use reader::{Batch, Reader, ReaderCounts, ReaderGroup, Steering, Tap};
pub use region::{Arena, MemoryKind, MemoryOptions, RingMemory};
pub use registry::{InterfaceEntry, Interfaces};
pub use ring::{LaneInfo, Ring, RingCounters};
pub use search::{Column, KeyTest, Matches, SegmentQueue};
pub use segments::{Missed, SegmentReader, Taken};
pub use slices::{BitSlices, SummarySet};
pub use stream::{Arrivals, Form, Incoming};
pub use summarizer::Summarizer;
pub use summary::{Summaries, Summary};
pub use summary_form::SummaryForm;
pub use timeline::{Candidate, Packets, Piece, Place, Settled, Timeline};
pub use writer::{Append, LaneWriter};

/// Lanes that one worker may open: one per link type.
pub const LINK_TYPES_MAX: u32 = 8;
/// Interfaces that one run may know.
pub const INTERFACES_MAX: u32 = 65_536;
/// Segments that each lane known at the start must be able to have.
pub const SEGMENTS_PER_LANE_MIN: u64 = 16;

/// Why a ring can't be made.
#[derive(Debug, thiserror::Error)]
pub enum RingError {
    /// No power of two, or out of range.
    #[error("segment size {bytes} B: it must be a power of two from 64 KiB to 2 MiB")]
    SegmentSize {
        /// As requested, bytes.
        bytes: u64,
    },
    /// The ring can't give its lanes what they need.
    #[error(
        "ring of {ring_bytes} B is too small: {lanes} {} at least {needed} B ({per_lane} segments \
         of {segment_bytes} B each); enlarge --ring or choose a smaller --segment",
        if *lanes == 1 { "lane needs" } else { "lanes need" }
    )]
    TooSmall {
        /// As requested, bytes.
        ring_bytes: u64,
        /// Smallest size that would do, bytes.
        needed: u64,
        /// Lanes known at the start.
        lanes: u64,
        /// Segments per lane that are required.
        per_lane: u64,
        /// Segment size, bytes.
        segment_bytes: u64,
    },
    /// A share is too small for the lanes that have it.
    #[error(
        "share={percent}%: {segments} segments are too few, its lanes need {needed}; enlarge --ring or the \
         share"
    )]
    ShareTooSmall {
        /// Which of the shares, from 0.
        index: usize,
        /// As requested.
        percent: u32,
        /// Segments that it would be.
        segments: u64,
        /// Segments that would do.
        needed: u64,
    },
    /// The shares leave too little for everybody else.
    #[error(
        "shares of {percent}% together leave {segments} segments for everything else, which needs {needed}; \
         enlarge --ring or choose smaller shares"
    )]
    SharesTooLarge {
        /// Their sum.
        percent: u64,
        /// Segments that would be left.
        segments: u64,
        /// Segments that would do.
        needed: u64,
    },
    /// The machine doesn't have that much memory.
    #[error(
        "ring of {ring_bytes} B: only {available} B of memory are available ({limit}), and some of it has to \
         stay free; choose a smaller --ring"
    )]
    NoMemory {
        /// As requested, bytes.
        ring_bytes: u64,
        /// What there is, bytes.
        available: u64,
        /// Which limit says so.
        limit: String,
    },
    /// The machine has the memory, but didn't give it.
    #[error(
        "ring of {ring_bytes} B: the system gave less memory ({cause}); choose a smaller --ring, or look at \
         ulimit -v and vm.overcommit_memory"
    )]
    Refused {
        /// As requested, bytes.
        ring_bytes: u64,
        /// The system's own words.
        #[source]
        cause: std::io::Error,
    },
    /// Reserved huge pages that can't be had after all.
    #[error(
        "ring memory: huge pages of {page_bytes} B from hugetlbfs: {cause}; do without them, or raise the \
         control group's hugetlb limit"
    )]
    Hugetlb {
        /// Bytes of one.
        page_bytes: u64,
        /// The system's own words.
        #[source]
        cause: std::io::Error,
    },
    /// The memory can't be locked.
    #[error(
        "locking {bytes} B of the ring: {cause}; this process may lock {limit}: raise it with ulimit -l, or \
         give it CAP_IPC_LOCK: setcap cap_net_raw,cap_ipc_lock=ep WIRESCOPE"
    )]
    Lock {
        /// To be locked, bytes.
        bytes: u64,
        /// What may be locked, in words.
        limit: String,
        /// The system's own words.
        #[source]
        cause: std::io::Error,
    },
    /// No such NUMA node, or it has no memory.
    #[error("NUMA node {node}: there is no such node with memory; there are: {nodes}")]
    NoNode {
        /// As requested.
        node: u32,
        /// Those with memory, in words.
        nodes: String,
    },
    /// The memory can't be bound to its NUMA node.
    #[error(
        "NUMA node {node}: the ring's memory can't be bound to it: {cause}; look at this process's cpuset, \
         or leave the node to the system"
    )]
    Node {
        /// As requested.
        node: u32,
        /// The system's own words.
        #[source]
        cause: std::io::Error,
    },
    /// A system call failed.
    #[error("ring memory: {place}: {cause}")]
    System {
        /// Which call.
        place: &'static str,
        /// The system's own words.
        #[source]
        cause: std::io::Error,
    },
}
