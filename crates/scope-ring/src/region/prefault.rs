//! Making a ring resident before capture begins: in parallel, in huge pages where the kernel gives them, with
//! progress.
//!
//! ```text
//!  for each piece of 32 MiB, by whichever thread is free:
//!      look whether so much is still free: others may have taken it since the ring was planned
//!      touch the first page of every 2 MiB, have the kernel make huge pages of them
//!      populate the piece: what is there already stays, the rest comes in normal pages
//! ```
//! With pages from hugetlbfs only the last step is needed: they are reserved, and huge.
//!
//! The request (`MADV_COLLAPSE`, Linux 6.1) is granted even where the system gives shared memory no huge
//! pages by itself, unless `shmem_enabled` says `deny`. Nothing here changes a byte.

use super::memory::Mapping;
use super::place::{HUGE_PAGE, PAGE};
use crate::RingError;
use scope_machine::Machine;
use std::io::Error;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// One piece, bytes: a multiple of a huge page.
const PIECE: usize = 32 << 20;
/// Threads at most.
const THREADS_MAX: usize = 8;
/// Pieces without all their huge pages after which no more are requested: memory is scattered, or the kernel
/// doesn't do it.
const HUGE_FAILURES_MAX: u32 = 4;
/// What must be left behind each piece, bytes.
const LEFT_BYTES_MIN: u64 = 4 << 20;
/// Behind every piece: no more are taken.
const STOP: u64 = u64::MAX / 2;

const _: () = assert!(PIECE.is_multiple_of(HUGE_PAGE));

/// The slots, piece by piece.
pub(super) struct Pieces<'a> {
    pub(super) slots: &'a Mapping,
    /// Bytes of the ring; huge pages may round the mapping up.
    pub(super) ring_bytes: u64,
    /// NUMA node that the pages come from.
    pub(super) node: Option<u32>,
    pub(super) machine: Machine,
}

impl Pieces<'_> {
    /// Makes all of them resident. `progress` gets the bytes done so far, and returns whether to go on.
    pub(super) fn all(&self, progress: &(dyn Fn(u64) -> bool + Sync)) -> Result<(), RingError> {
        let (next, done, failures) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU32::new(0));
        let threads = std::thread::available_parallelism().map_or(1, |n| n.get()).min(THREADS_MAX);
        let pieces = || -> Result<(), RingError> {
            loop {
                let at = next.fetch_add(PIECE as u64, Ordering::Relaxed) as usize;
                if at >= self.slots.bytes() {
                    return Ok(());
                }
                let len = PIECE.min(self.slots.bytes() - at);
                self.make(at, len, done.load(Ordering::Relaxed), &failures)
                    .inspect_err(|_| next.store(STOP, Ordering::Relaxed))?;
                let now = done.fetch_add(len as u64, Ordering::Relaxed) + len as u64;
                if !progress(now.min(self.ring_bytes)) {
                    next.store(STOP, Ordering::Relaxed);
                }
            }
        };
        std::thread::scope(|scope| {
            // Where no thread can be had, this one does all.
            let helper =
                |_| std::thread::Builder::new().name("prefault".to_string()).spawn_scoped(scope, pieces).ok();
            let helpers: Vec<_> = (1..threads).filter_map(helper).collect();
            let own = pieces();
            helpers.into_iter().try_for_each(|helper| helper.join().unwrap_or(Ok(()))).and(own)
        })
    }

    /// Makes one piece resident; `done` bytes are so already.
    fn make(&self, at: usize, len: usize, done: u64, failures: &AtomicU32) -> Result<(), RingError> {
        if self.slots.hugetlb_bytes == 0 {
            self.check_left(len as u64, done)?;
            if failures.load(Ordering::Relaxed) < HUGE_FAILURES_MAX && !huge(self.slots, at, len) {
                failures.fetch_add(1, Ordering::Relaxed);
            }
        }
        populate(self.slots, at, len).map_err(|cause| match self.slots.hugetlb_bytes {
            0 => RingError::Refused { ring_bytes: self.ring_bytes, cause },
            page_bytes => RingError::Hugetlb { page_bytes, cause },
        })
    }

    /// Whether the next piece is still there to be had. At the limit of a control group the kernel doesn't
    /// refuse: it ends the process, without a word.
    fn check_left(&self, len: u64, done: u64) -> Result<(), RingError> {
        let (left, limit) = self.machine.available(self.node);
        if left >= len + LEFT_BYTES_MIN {
            return Ok(());
        }
        Err(RingError::NoMemory { ring_bytes: self.ring_bytes, available: done.saturating_add(left), limit })
    }
}

/// Requests huge pages for the whole ones of a piece; whether all came.
fn huge(slots: &Mapping, at: usize, len: usize) -> bool {
    let whole = len / HUGE_PAGE * HUGE_PAGE;
    let touched = (at..at + whole).step_by(HUGE_PAGE).all(|page| populate(slots, page, PAGE).is_ok());
    touched && advise(slots, at, whole, libc::MADV_COLLAPSE).is_ok()
}

/// Makes a range resident.
pub(super) fn populate(mapping: &Mapping, at: usize, len: usize) -> Result<(), Error> {
    match advise(mapping, at, len, libc::MADV_POPULATE_WRITE) {
        // Pages of hugetlbfs are not touched by hand: one that the kernel doesn't have would end the process.
        Err(cause) if cause.raw_os_error() == Some(libc::EINVAL) && mapping.hugetlb_bytes == 0 => {
            touch(mapping, at, len)
        }
        result => result,
    }
}

fn advise(mapping: &Mapping, at: usize, len: usize, advice: libc::c_int) -> Result<(), Error> {
    assert!(at + len <= mapping.bytes());
    if len == 0 {
        return Ok(());
    }
    // SAFETY: the range lies inside the mapping (asserted); the advice given in this module changes no byte.
    let result = unsafe { libc::madvise(mapping.base().add(at).cast(), len, advice) };
    if result == 0 { Ok(()) } else { Err(Error::last_os_error()) }
}

/// Kernels before 5.14 don't know how to populate: touch each page. An atomic add of zero changes nothing,
/// a thread that writes.
fn touch(mapping: &Mapping, at: usize, len: usize) -> Result<(), Error> {
    for page in (at..at + len).step_by(PAGE) {
        // SAFETY: inside the mapping (asserted by `advise`), 8-byte aligned, and used as an atomic only,
        // before capture begins.
        unsafe { (*mapping.base().add(page).cast::<AtomicU64>()).fetch_add(0, Ordering::Relaxed) };
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::MemoryOptions;
    use super::*;

    #[test]
    fn memory_that_others_took_since_the_ring_was_planned_is_an_error_and_no_more_is_touched() {
        let root = std::env::temp_dir().join(format!("wirescope-prefault-{}", std::process::id()));
        std::fs::create_dir_all(root.join("proc")).expect("a folder");
        let set = |mib: u64| {
            std::fs::write(root.join("proc/meminfo"), format!("MemAvailable: {} kB\n", mib << 10))
                .expect("a file")
        };
        let options = MemoryOptions { without_hugetlb: true, ..MemoryOptions::default() };
        let slots = Mapping::slots(4 * PIECE, &options, &Machine::this()).expect("a mapping");
        let pieces = Pieces {
            slots: &slots,
            ring_bytes: 4 * PIECE as u64,
            node: None,
            machine: Machine::under(&root),
        };
        set(1024);
        let taken = |_bytes| {
            set(20);
            true
        };
        match pieces.all(&taken) {
            Err(RingError::NoMemory { available, limit, .. }) => {
                assert!(available >= (PIECE as u64) && available < (4 * PIECE) as u64, "{available}");
                assert_eq!(limit, "MemAvailable of this machine");
            }
            other => panic!("{other:?}"),
        }
        std::fs::remove_dir_all(&root).expect("own folder");
    }
}
