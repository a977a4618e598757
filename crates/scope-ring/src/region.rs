//! The ring's memory: one shared mapping with every control word inside it, by offsets only.
//!
//! ```text
//!  0       4 KiB                                                                    data_at (2 MiB aligned)
//!  | header | worker table | lane table | directory | segment table | interface area | slot 0 | slot 1 | ...
//!            256 B each     256 B each   8 B each    256 B each       16 MiB, sparse
//! ```
//! The directory has, per lane, one entry per slot of the ring, index = sequence mod their number. Pages are touched before
//! capture begins ([`Region::prefault`]); of the tables only what is used ever becomes resident.

use crate::RingError;
use crate::control::{Header, LaneControl, SegmentControl, WorkerControl};
use std::sync::atomic::{AtomicU64, Ordering};

const PAGE: usize = 4096;
const DATA_ALIGN: usize = 2 << 20;
/// Bytes reserved for interface descriptions, sparse.
pub const INTERFACE_AREA_BYTES: usize = 16 << 20;
/// One step of prefaulting, bytes.
const PREFAULT_STEP: usize = 32 << 20;

/// Where everything lies, as offsets from the region's start.
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
    data_at: usize,
    bytes: usize,
}

impl Layout {
    /// The layout of a ring of `segments` segments.
    pub fn new(segment_bytes: usize, segments: usize, workers: usize, lanes: usize) -> Layout {
        let workers_at = PAGE;
        let lanes_at = workers_at + workers * size_of::<WorkerControl>();
        let directory_at = lanes_at + lanes * size_of::<LaneControl>();
        let table_at = (directory_at + lanes * segments * 8).next_multiple_of(PAGE);
        let interfaces_at = (table_at + segments * size_of::<SegmentControl>()).next_multiple_of(PAGE);
        let data_at = (interfaces_at + INTERFACE_AREA_BYTES).next_multiple_of(DATA_ALIGN);
        let bytes = data_at + segments * segment_bytes;
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
            data_at,
            bytes,
        }
    }
}

const _: () = assert!(size_of::<Header>() <= PAGE);
const _: () = assert!(size_of::<WorkerControl>() == 256 && size_of::<LaneControl>() == 256 && size_of::<SegmentControl>() == 256);

/// The mapping. Dropped with the last user of the ring.
pub struct Region {
    base: *mut u8,
    layout: Layout,
}

// SAFETY: the mapping is plain shared memory; control words are atomics, and who may touch which bytes of a slot is decided by
// the pin protocol (module `pin`) and by the exclusive ownership of `LaneWriter`.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl Region {
    /// Maps fresh zeroed shared memory for `layout`. Nothing is resident yet.
    pub fn map(layout: Layout) -> Result<Region, RingError> {
        let system = |place| RingError::System { place, cause: std::io::Error::last_os_error() };
        // SAFETY: plain system calls on a new descriptor of our own; the name is a literal with its closing zero byte.
        unsafe {
            let fd = libc::memfd_create(c"wirescope-ring".as_ptr(), libc::MFD_CLOEXEC);
            if fd < 0 {
                return Err(system("memfd_create"));
            }
            let base = if libc::ftruncate(fd, layout.bytes as libc::off_t) == 0 {
                libc::mmap(std::ptr::null_mut(), layout.bytes, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED, fd, 0)
            } else {
                libc::MAP_FAILED
            };
            let failed = system("mmap");
            libc::close(fd);
            if base == libc::MAP_FAILED {
                return Err(failed);
            }
            // Advice only: where huge pages can't be had, normal ones do.
            libc::madvise(base, layout.bytes, libc::MADV_HUGEPAGE);
            Ok(Region { base: base.cast(), layout })
        }
    }

    /// Where everything lies.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Makes all segments resident, in parallel; `progress` is told the bytes done so far, and says whether to go on.
    pub fn prefault(&self, progress: &(dyn Fn(u64) -> bool + Sync)) -> Result<(), RingError> {
        let begin = self.layout.data_at;
        let next = AtomicU64::new(begin as u64);
        let done = AtomicU64::new(0);
        let threads = std::thread::available_parallelism().map_or(1, |n| n.get()).min(8);
        let step = || -> Result<(), RingError> {
            loop {
                let at = next.fetch_add(PREFAULT_STEP as u64, Ordering::Relaxed) as usize;
                if at >= self.layout.bytes {
                    return Ok(());
                }
                let len = PREFAULT_STEP.min(self.layout.bytes - at);
                self.populate(at, len)?;
                if !progress(done.fetch_add(len as u64, Ordering::Relaxed) + len as u64) {
                    return Ok(());
                }
            }
        };
        std::thread::scope(|scope| {
            let handles: Vec<_> = (0..threads).map(|_| scope.spawn(step)).collect();
            handles.into_iter().try_for_each(|handle| handle.join().unwrap_or(Ok(())))
        })
    }

    fn populate(&self, at: usize, len: usize) -> Result<(), RingError> {
        assert!(at + len <= self.layout.bytes);
        // SAFETY: the range lies inside the mapping (asserted); populating changes no byte.
        let result = unsafe { libc::madvise(self.base.add(at).cast(), len, libc::MADV_POPULATE_WRITE) };
        if result == 0 {
            return Ok(());
        }
        let cause = std::io::Error::last_os_error();
        if cause.raw_os_error() != Some(libc::EINVAL) {
            return Err(RingError::System { place: "prefault", cause });
        }
        // Kernels before 5.14 don't know the advice: touch each page. An atomic add of zero changes nothing, whoever writes.
        for page in (at..at + len).step_by(PAGE) {
            // SAFETY: inside the mapping, 8-byte aligned, and used as an atomic only for this touch before capture begins.
            unsafe { (*self.base.add(page).cast::<AtomicU64>()).fetch_add(0, Ordering::Relaxed) };
        }
        Ok(())
    }

    /// The word block at `at`. Only called with offsets and types of the layout below.
    fn control<T>(&self, at: usize) -> &T {
        debug_assert!(at + size_of::<T>() <= self.layout.bytes && at.is_multiple_of(align_of::<T>()));
        // SAFETY: the layout places a `T` made of atomics only (all bit patterns valid, zero at start) at `at`, aligned, inside
        // the mapping, which lives as long as `self`.
        unsafe { &*self.base.add(at).cast::<T>() }
    }

    /// The region's header.
    pub fn header(&self) -> &Header {
        self.control(0)
    }

    /// Counters of worker `index`.
    pub fn worker(&self, index: u32) -> &WorkerControl {
        assert!((index as usize) < self.layout.workers);
        self.control(self.layout.workers_at + index as usize * size_of::<WorkerControl>())
    }

    /// Control words of lane `index`.
    pub fn lane(&self, index: u32) -> &LaneControl {
        assert!((index as usize) < self.layout.lanes);
        self.control(self.layout.lanes_at + index as usize * size_of::<LaneControl>())
    }

    /// Directory entry of the segment with this sequence number in its lane.
    pub fn directory(&self, lane: u32, sequence: u64) -> &AtomicU64 {
        assert!((lane as usize) < self.layout.lanes);
        let index = (sequence % self.layout.segments as u64) as usize;
        self.control(self.layout.directory_at + (lane as usize * self.layout.segments + index) * 8)
    }

    /// Control words of slot `slot`.
    pub fn segment(&self, slot: u32) -> &SegmentControl {
        assert!((slot as usize) < self.layout.segments);
        self.control(self.layout.table_at + slot as usize * size_of::<SegmentControl>())
    }

    /// Where slot `slot` begins, aligned to a page.
    pub fn slot_base(&self, slot: u32) -> *mut u8 {
        assert!((slot as usize) < self.layout.segments);
        // SAFETY: inside the mapping by the assertion and the layout.
        unsafe { self.base.add(self.layout.data_at + slot as usize * self.layout.segment_bytes) }
    }

    /// Bytes `range` of a slot, for reading.
    ///
    /// # Safety
    /// Nobody writes these bytes while the slice lives: they are committed, and the slot is pinned or owned by the caller.
    pub unsafe fn bytes(&self, slot: u32, range: std::ops::Range<usize>) -> &[u8] {
        assert!(range.start <= range.end && range.end <= self.layout.segment_bytes);
        // SAFETY: inside the slot by the assertion; not written to meanwhile by this function's contract.
        unsafe { std::slice::from_raw_parts(self.slot_base(slot).add(range.start), range.len()) }
    }

    /// Copies an interface description into the interface area; the area is append-only and its writer holds the registry's lock.
    pub fn write_interface(&self, at: usize, bytes: &[u8]) {
        assert!(at + bytes.len() <= INTERFACE_AREA_BYTES);
        // SAFETY: inside the area by the assertion; readers look only below `Header::interface_bytes`, which grows afterwards.
        unsafe {
            let to = self.base.add(self.layout.interfaces_at + at);
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len());
        }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `map` with this length, and nobody borrows from a region that is dropped.
        unsafe { libc::munmap(self.base.cast(), self.layout.bytes) };
    }
}

/// Bytes of memory that this process could still have, and the limit that says so: the machine's, or a control group's.
pub fn memory_available() -> (u64, String) {
    let machine = std::fs::read_to_string("/proc/meminfo")
        .ok()
        .and_then(|text| {
            let line = text.lines().find(|line| line.starts_with("MemAvailable:"))?;
            line.split_whitespace().nth(1)?.parse::<u64>().ok()
        })
        .map_or(u64::MAX, |kib| kib * 1024);
    match group_available() {
        Some(group) if group < machine => (group, "the control group's memory.max".to_string()),
        _ => (machine, "MemAvailable of this machine".to_string()),
    }
}

/// What this process's control groups (version 2) leave: the tightest of it and its parents.
fn group_available() -> Option<u64> {
    let own = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    let path = own.lines().find_map(|line| line.strip_prefix("0::/"))?.to_string();
    let number = |file: std::path::PathBuf| std::fs::read_to_string(file).ok()?.trim().parse::<u64>().ok();
    let mut folder = std::path::Path::new("/sys/fs/cgroup").join(path);
    let mut least = None;
    while folder.starts_with("/sys/fs/cgroup") {
        if let (Some(max), Some(current)) = (number(folder.join("memory.max")), number(folder.join("memory.current"))) {
            let left = max.saturating_sub(current);
            least = Some(least.map_or(left, |l: u64| l.min(left)));
        }
        if !folder.pop() {
            break;
        }
    }
    least
}
