//! The ring's memory: shared mappings with every control word inside them, by offsets only.
//!
//! ```text
//!  tables:  0       4 KiB                                                                     slots:  0
//!           | header | worker table | lane table | directory | segment table | interface area |       | slot 0 | slot 1 | ...
//!                     256 B each     256 B each   8 B each    256 B each       16 MiB, sparse
//! ```
//! The directory has, per lane, one entry per slot of the ring, index = sequence mod their number. Slots are
//! touched before capture begins ([`Region::ready`]) and may lie in huge pages (see [`memory`]); the tables
//! have a mapping of normal pages for themselves, of which only what is used ever becomes resident.

mod arena;
pub mod memory;
pub(crate) mod place;
mod prefault;

pub use arena::Arena;
pub use memory::{MemoryKind, MemoryOptions, RingMemory};

use crate::RingError;
use crate::control::{Header, LaneControl, PINS, SegmentControl, WorkerControl};
use memory::{Mapping, SWAPPED, TRANSPARENT};
use place::PAGE;
pub(crate) use scope_machine::Machine;
use scope_packet::segment::is_segment_size;
use std::io::Error;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::sync::atomic::AtomicU64;

/// Bytes reserved for interface descriptions, sparse.
pub const INTERFACE_AREA_BYTES: usize = 16 << 20;

/// Where everything lies, as offsets from the start of the tables or the slots.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    /// Bytes of one segment.
    pub segment_bytes: usize,
    /// Number of segments.
    pub segments: usize,
    /// Entries of the worker table.
    pub workers: usize,
    /// Entries of the lane table.
    pub lanes: usize,
    workers_at: usize,
    lanes_at: usize,
    directory_at: usize,
    table_at: usize,
    interfaces_at: usize,
    tables_bytes: usize,
    slots_bytes: usize,
}

impl Layout {
    /// The layout of a ring of `segments` segments.
    pub fn new(segment_bytes: usize, segments: usize, workers: usize, lanes: usize) -> Layout {
        let workers_at = PAGE;
        let lanes_at = workers_at + workers * size_of::<WorkerControl>();
        let directory_at = lanes_at + lanes * size_of::<LaneControl>();
        let table_at = (directory_at + lanes * segments * 8).next_multiple_of(PAGE);
        let interfaces_at = (table_at + segments * size_of::<SegmentControl>()).next_multiple_of(PAGE);
        let tables_bytes = interfaces_at + INTERFACE_AREA_BYTES;
        let slots_bytes = segments * segment_bytes;
        Layout {
            segment_bytes,
            segments,
            workers,
            lanes,
            workers_at,
            lanes_at,
            directory_at,
            table_at,
            interfaces_at,
            tables_bytes,
            slots_bytes,
        }
    }
}

impl Layout {
    /// The layout that the header of a ring which somebody else has made tells of: `None` where no ring can have it, or it
    /// doesn't fit into so many bytes of tables and slots.
    pub fn told(
        [segment_bytes, segments, workers, lanes]: [u64; 4],
        tables_bytes: usize,
        slots_bytes: usize,
    ) -> Option<Layout> {
        let small = |number: u64, most: u64| (1..=most).contains(&number).then_some(number as usize);
        let segment_bytes = small(segment_bytes, 1 << 30).filter(|&bytes| is_segment_size(bytes))?;
        let segments = small(segments, PINS)?;
        // So few that no product overflows.
        let (workers, lanes) = (small(workers, 1 << 16)?, small(lanes, 1 << 19)?);
        let layout = Layout::new(segment_bytes, segments, workers, lanes);
        (layout.tables_bytes <= tables_bytes && layout.slots_bytes <= slots_bytes).then_some(layout)
    }

    /// Offset of worker `index`'s counters in the tables.
    pub fn worker_at(&self, index: u32) -> usize {
        assert!((index as usize) < self.workers);
        self.workers_at + index as usize * size_of::<WorkerControl>()
    }

    /// Offset of lane `index`'s words in the tables.
    pub fn lane_at(&self, index: u32) -> usize {
        assert!((index as usize) < self.lanes);
        self.lanes_at + index as usize * size_of::<LaneControl>()
    }

    /// Offset in the tables of the directory's entry for this segment of a lane.
    pub fn entry_at(&self, lane: u32, sequence: u64) -> usize {
        assert!((lane as usize) < self.lanes);
        let index = (sequence % self.segments as u64) as usize;
        self.directory_at + (lane as usize * self.segments + index) * 8
    }

    /// Offset in the tables of a slot's words.
    pub fn segment_at(&self, slot: u32) -> usize {
        assert!((slot as usize) < self.segments);
        self.table_at + slot as usize * size_of::<SegmentControl>()
    }

    /// Offset of the interface area in the tables.
    pub fn interfaces_at(&self) -> usize {
        self.interfaces_at
    }
}

const _: () = assert!(size_of::<Header>() <= PAGE);
const _: () = assert!(
    size_of::<WorkerControl>() == 256
        && size_of::<LaneControl>() == 256
        && size_of::<SegmentControl>() == 256
);

/// The mappings. Dropped with the last user of the ring.
pub struct Region {
    tables: Mapping,
    slots: Mapping,
    layout: Layout,
    options: MemoryOptions,
}

impl Region {
    /// Maps fresh zeroed shared memory for `layout`. Nothing is resident yet.
    ///
    /// # Errors
    /// There is no such memory, or the system refuses it, its node or its lock.
    pub fn map(layout: Layout, options: MemoryOptions) -> Result<Region, RingError> {
        let slots = Mapping::slots(layout.slots_bytes, &options, &Machine::this())?;
        let tables = Mapping::tables(layout.tables_bytes, &options)?;
        if options.locked {
            tables.lock(layout.interfaces_at)?;
        }
        Ok(Region { tables, slots, layout, options })
    }

    /// Where everything lies.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// As [`Region::map`], all slots and the segment table resident, which several threads make them.
    /// `progress` gets the bytes of slots done so far, and returns whether to go on. Where reserved huge
    /// pages can't be had after all, the ring does without them.
    ///
    /// # Errors
    /// As [`Region::map`], or there is less memory than the system promised.
    pub fn ready(
        layout: Layout,
        options: MemoryOptions,
        progress: &(dyn Fn(u64) -> bool + Sync),
    ) -> Result<Region, RingError> {
        let region = Region::map(layout, options)?;
        match region.prefault(progress) {
            Ok(()) => return Ok(region),
            Err(RingError::Hugetlb { .. }) => drop(region),
            Err(error) => return Err(error),
        }
        let region = Region::map(layout, MemoryOptions { without_hugetlb: true, ..options })?;
        region.prefault(progress)?;
        Ok(region)
    }

    fn prefault(&self, progress: &(dyn Fn(u64) -> bool + Sync)) -> Result<(), RingError> {
        let (at, end) = (self.layout.table_at, self.layout.interfaces_at);
        let ring_bytes = self.layout.slots_bytes as u64;
        prefault::populate(&self.tables, at, end - at)
            .map_err(|cause| RingError::Refused { ring_bytes, cause })?;
        let pieces = prefault::Pieces {
            slots: &self.slots,
            ring_bytes,
            node: self.options.node,
            machine: Machine::this(),
        };
        pieces.all(progress)
    }

    /// What the memory is, as it is now: of transparent huge pages, those that are there.
    pub fn memory(&self) -> RingMemory {
        let bytes = self.layout.slots_bytes as u64;
        let kind = match self.slots.hugetlb_bytes {
            0 => match self.slots.smaps_bytes(TRANSPARENT) {
                0 => MemoryKind::Normal { bytes },
                huge_bytes => MemoryKind::Transparent { huge_bytes, bytes },
            },
            page_bytes => MemoryKind::Hugetlb { page_bytes },
        };
        RingMemory { kind, locked: self.options.locked, node: self.options.node }
    }

    /// The files behind tables and slots, which whoever gets them can only read.
    ///
    /// # Errors
    /// Whoever gets them could write to them: the system's words.
    pub fn sealed_files(&self) -> Result<[BorrowedFd<'_>; 2], &Error> {
        Ok([self.tables.sealed_file()?, self.slots.sealed_file()?])
    }

    /// Bytes of slots that the system has swapped out.
    pub fn swapped_bytes(&self) -> u64 {
        self.slots.smaps_bytes(SWAPPED)
    }

    /// The word block at `at`. Only called with offsets and types of the layout below.
    fn control<T>(&self, at: usize) -> &T {
        debug_assert!(at + size_of::<T>() <= self.layout.tables_bytes && at.is_multiple_of(align_of::<T>()));
        // SAFETY: the layout places a `T` made of atomics only (all bit patterns valid, zero at start) at
        // `at`, aligned, inside the mapping, which lives as long as `self`.
        unsafe { &*self.tables.base().add(at).cast::<T>() }
    }

    /// The region's header.
    pub fn header(&self) -> &Header {
        self.control(0)
    }

    /// Counters of worker `index`.
    pub fn worker(&self, index: u32) -> &WorkerControl {
        self.control(self.layout.worker_at(index))
    }

    /// Control words of lane `index`.
    pub fn lane(&self, index: u32) -> &LaneControl {
        self.control(self.layout.lane_at(index))
    }

    /// Directory entry of the segment with this sequence number in its lane.
    pub fn directory(&self, lane: u32, sequence: u64) -> &AtomicU64 {
        self.control(self.layout.entry_at(lane, sequence))
    }

    /// Control words of slot `slot`.
    pub fn segment(&self, slot: u32) -> &SegmentControl {
        self.control(self.layout.segment_at(slot))
    }

    /// Where slot `slot` begins, aligned to a page.
    pub fn slot_base(&self, slot: u32) -> *mut u8 {
        assert!((slot as usize) < self.layout.segments);
        // SAFETY: inside the mapping by the assertion and the layout.
        unsafe { self.slots.base().add(slot as usize * self.layout.segment_bytes) }
    }

    /// Where all slots lie: addresses only.
    pub fn slots(&self) -> Range<*const u8> {
        let base = self.slots.base().cast_const();
        base..base.wrapping_add(self.layout.slots_bytes)
    }

    /// Bytes `range` of a slot, for reading.
    ///
    /// # Safety
    /// Nobody writes these bytes while the slice lives: they are committed, and the slot is pinned or owned
    /// by the caller.
    pub unsafe fn bytes(&self, slot: u32, range: Range<usize>) -> &[u8] {
        assert!(range.start <= range.end && range.end <= self.layout.segment_bytes);
        // SAFETY: inside the slot by the assertion; not written to meanwhile by this function's contract.
        unsafe { std::slice::from_raw_parts(self.slot_base(slot).add(range.start), range.len()) }
    }

    /// Copies an interface description into the interface area.
    ///
    /// # Safety
    /// Nobody else writes meanwhile, and `at` isn't below `Header::interface_bytes`: readers look at what
    /// lies below.
    pub unsafe fn write_interface(&self, at: usize, bytes: &[u8]) {
        assert!(at + bytes.len() <= INTERFACE_AREA_BYTES);
        // SAFETY: inside the area by the assertion; nobody reads or writes these bytes by this function's
        // contract.
        unsafe {
            let to = self.tables.base().add(self.layout.interfaces_at + at);
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len());
        }
    }
}
