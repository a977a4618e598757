//! Making a ring resident before capture begins: in parallel, in huge pages where the kernel gives them, with progress.
//!
//! ```text
//!  for each piece of 32 MiB, by whichever thread is free:
//!      touch the first page of every 2 MiB, ask the kernel to make huge pages of them     (not with hugetlbfs)
//!      populate the piece: what is there already stays, the rest comes in normal pages
//! ```
//! The request (`MADV_COLLAPSE`, Linux 6.1) is granted even where the system gives shared memory no huge pages by itself, unless
//! `shmem_enabled` says `deny`. Nothing here changes a byte.

use super::memory::{HUGE_PAGE, Mapping, PAGE};
use crate::RingError;
use std::io::Error;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// One piece, bytes: a multiple of a huge page.
const PIECE: usize = 32 << 20;
/// Threads at most.
const THREADS_MAX: usize = 8;
/// Pieces without all their huge pages after which no more are asked for: memory is scattered, or the kernel doesn't do it.
const HUGE_FAILURES_MAX: u32 = 4;

const _: () = assert!(PIECE.is_multiple_of(HUGE_PAGE));

/// Makes all of `slots` resident; `progress` is told the bytes done so far, at most `bytes`.
pub(super) fn prefault(slots: &Mapping, bytes: usize, progress: &(dyn Fn(u64) + Sync)) -> Result<(), RingError> {
    let next = AtomicU64::new(0);
    let done = AtomicU64::new(0);
    let failures = AtomicU32::new(0);
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get()).min(THREADS_MAX);
    let pieces = || -> Result<(), RingError> {
        loop {
            let at = next.fetch_add(PIECE as u64, Ordering::Relaxed) as usize;
            if at >= slots.bytes() {
                return Ok(());
            }
            let len = PIECE.min(slots.bytes() - at);
            if slots.hugetlb_bytes == 0 && failures.load(Ordering::Relaxed) < HUGE_FAILURES_MAX && !huge(slots, at, len) {
                failures.fetch_add(1, Ordering::Relaxed);
            }
            populate(slots, at, len).map_err(|cause| refused(slots, bytes, cause))?;
            let now = done.fetch_add(len as u64, Ordering::Relaxed) + len as u64;
            progress(now.min(bytes as u64));
        }
    };
    std::thread::scope(|scope| {
        // Where no thread can be had, this one does all.
        let helper = |_| std::thread::Builder::new().name("prefault".to_string()).spawn_scoped(scope, pieces).ok();
        let helpers: Vec<_> = (1..threads).filter_map(helper).collect();
        let own = pieces();
        helpers.into_iter().try_for_each(|helper| helper.join().unwrap_or(Ok(()))).and(own)
    })
}

fn refused(slots: &Mapping, bytes: usize, cause: Error) -> RingError {
    match slots.hugetlb_bytes {
        0 => RingError::Refused { ring_bytes: bytes as u64, cause },
        page_bytes => RingError::Hugetlb { page_bytes, cause },
    }
}

/// Asks for huge pages for the whole ones of a piece; whether all came.
fn huge(slots: &Mapping, at: usize, len: usize) -> bool {
    let whole = len / HUGE_PAGE * HUGE_PAGE;
    let touched = (at..at + whole).step_by(HUGE_PAGE).all(|page| populate(slots, page, PAGE).is_ok());
    touched && advise(slots, at, whole, libc::MADV_COLLAPSE).is_ok()
}

/// Makes a range resident.
pub(super) fn populate(mapping: &Mapping, at: usize, len: usize) -> Result<(), Error> {
    match advise(mapping, at, len, libc::MADV_POPULATE_WRITE) {
        // Pages of hugetlbfs are not touched by hand: one that the kernel hasn't got would end the process.
        Err(cause) if cause.raw_os_error() == Some(libc::EINVAL) && mapping.hugetlb_bytes == 0 => touch(mapping, at, len),
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

/// Kernels before 5.14 don't know how to populate: touch each page. An atomic add of zero changes nothing, whoever writes.
fn touch(mapping: &Mapping, at: usize, len: usize) -> Result<(), Error> {
    for page in (at..at + len).step_by(PAGE) {
        // SAFETY: inside the mapping (asserted by `advise`), 8-byte aligned, and used as an atomic only, before capture begins.
        unsafe { (*mapping.base().add(page).cast::<AtomicU64>()).fetch_add(0, Ordering::Relaxed) };
    }
    Ok(())
}
