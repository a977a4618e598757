//! Mappings of files that begin where one of their pages could: huge pages fit only such.

use std::io::Error;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Bytes of a normal page.
pub(crate) const PAGE: usize = 4096;
/// Bytes of a huge page that the kernel makes by itself.
pub(crate) const HUGE_PAGE: usize = 2 << 20;

/// Maps the first `bytes` of `file` with these rights (`PROT_...`), at a multiple of `page` bytes. Whoever gets it unmaps it.
///
/// # Errors
/// The system's.
pub(crate) fn map(
    file: BorrowedFd<'_>,
    bytes: usize,
    rights: libc::c_int,
    page: usize,
) -> Result<*mut u8, Error> {
    let length = bytes.next_multiple_of(PAGE);
    // SAFETY: a new mapping at a place of the system's choice, of no file and without any right.
    let place = unsafe {
        let how = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        libc::mmap(std::ptr::null_mut(), length + page, libc::PROT_NONE, how, -1, 0)
    };
    if place == libc::MAP_FAILED {
        return Err(Error::last_os_error());
    }
    let before = place.cast::<u8>().align_offset(page);
    // SAFETY: all of it lies inside the mapping that was just made, which nobody else knows: `before` is less than `page`.
    // The file's mapping replaces its middle; what lies around that is given back.
    unsafe {
        let base = place.byte_add(before);
        let how = libc::MAP_SHARED | libc::MAP_FIXED;
        if libc::mmap(base, bytes, rights, how, file.as_raw_fd(), 0) == libc::MAP_FAILED {
            let cause = Error::last_os_error();
            libc::munmap(place, length + page);
            return Err(cause);
        }
        if before > 0 {
            libc::munmap(place, before);
        }
        libc::munmap(base.byte_add(length), page - before);
        Ok(base.cast())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::io::Write;
    use std::os::fd::{AsFd, FromRawFd};

    #[test]
    fn a_mapping_begins_at_a_multiple_of_a_page_and_has_the_bytes_of_its_file() {
        // SAFETY: a plain system call; its descriptor is new, and nobody else's.
        let mut file = unsafe { File::from_raw_fd(libc::memfd_create(c"place".as_ptr(), libc::MFD_CLOEXEC)) };
        file.write_all(&[7; 3 * PAGE]).unwrap();
        for page in [PAGE, HUGE_PAGE, 32 << 20] {
            let base = map(file.as_fd(), 3 * PAGE - 1, libc::PROT_READ, page).unwrap();
            assert!((base as usize).is_multiple_of(page));
            // SAFETY: so many bytes are mapped, and nobody writes to the file.
            assert!(unsafe { std::slice::from_raw_parts(base, 3 * PAGE) }.iter().all(|byte| *byte == 7));
            // SAFETY: all of the mapping, which nobody borrows from.
            assert_eq!(unsafe { libc::munmap(base.cast(), 3 * PAGE) }, 0);
        }
    }

    #[test]
    fn what_the_system_refuses_is_said() {
        let file = File::open("/proc/self/maps").unwrap();
        assert!(map(file.as_fd(), PAGE, libc::PROT_READ, HUGE_PAGE).is_err());
    }
}
