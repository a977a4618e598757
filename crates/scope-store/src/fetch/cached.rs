//! What of a file lies in the page cache, asked for without bringing anything there.
//!
//! A read that may not wait (`RWF_NOWAIT`) isn't asked where it can be avoided: kernels after Linux 6.11 begin
//! to read ahead what it lacks. `cachestat(2)`, since Linux 6.5, only looks.

use rustix::io::{ReadWriteFlags, preadv2};
use std::fs::File;
use std::io::IoSliceMut;
use std::os::fd::AsRawFd;

/// The number of `cachestat(2)`, the same on all architectures that this is built for.
const CACHESTAT: libc::c_long = 451;

/// As the kernel has it: a part of a file, bytes.
#[repr(C)]
struct Part {
    offset: u64,
    bytes: u64,
}

/// As the kernel has it, pages.
#[repr(C)]
#[derive(Default)]
struct Pages {
    cached: u64,
    dirty: u64,
    written_back: u64,
    evicted: u64,
    evicted_recently: u64,
}

/// Whether all of a part of a file lies in the page cache; not, where nobody says it. `buffer`, as long as the part, may
/// be filled with anything.
pub(super) fn is_cached(file: &File, offset: u64, buffer: &mut [u8]) -> bool {
    let part = Part { offset, bytes: buffer.len() as u64 };
    let mut pages = Pages::default();
    // SAFETY: the kernel reads one structure and fills the other one, both of which are ours, have its layout, and
    // outlive the call; the file is open.
    let refused = unsafe { libc::syscall(CACHESTAT, file.as_raw_fd(), &raw const part, &raw mut pages, 0) };
    match (refused, std::io::Error::last_os_error().raw_os_error()) {
        (0, _) => {
            let page = page_bytes();
            let needed = (offset + part.bytes).div_ceil(page) - offset / page;
            pages.cached >= needed
        }
        // Before Linux 6.5; from 5.11 on this reads nothing ahead there.
        (_, Some(libc::ENOSYS)) => is_filled_at_once(file, offset, buffer),
        _ => false,
    }
}

/// Whether a read that may not wait fills all of a buffer. On Linux 5.9 and 5.10 it may bring nothing though there is
/// something: then this isn't cached.
fn is_filled_at_once(file: &File, offset: u64, buffer: &mut [u8]) -> bool {
    let len = buffer.len();
    preadv2(file, &mut [IoSliceMut::new(buffer)], offset, ReadWriteFlags::NOWAIT) == Ok(len)
}

fn page_bytes() -> u64 {
    // SAFETY: takes a number only.
    unsafe { libc::sysconf(libc::_SC_PAGESIZE) }.max(1) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn what_was_just_written_is_cached_and_what_is_beyond_the_end_is_not() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[7; 100_000]).unwrap();
        let mut buffer = vec![0; 50_000];
        assert!(is_filled_at_once(&file, 40_001, &mut buffer));
        assert!(!is_filled_at_once(&file, 60_000, &mut buffer));
        if is_cached(&file, 0, &mut buffer[..1]) {
            assert!(is_cached(&file, 40_001, &mut buffer));
            assert!(!is_cached(&file, 90_000, &mut buffer));
        }
    }
}
