//! The page cache of files: emptied, and looked at.

use anyhow::{Context, Result, ensure};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

/// Of a cold store's pages, so large a share may still be cached: pages that somebody has mapped.
const CACHED_MAX: f64 = 0.001;
const PAGE_BYTES: u64 = 4096;

/// Takes files out of the page cache.
///
/// # Errors
/// The system's, and where they stay.
pub fn empty(files: &[PathBuf]) -> Result<()> {
    for path in files {
        let file = File::open(path).with_context(|| path.display().to_string())?;
        file.sync_all()?;
        // SAFETY: takes numbers only; the descriptor is open.
        let result = unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
        ensure!(result == 0, "posix_fadvise: {}", io::Error::from_raw_os_error(result));
    }
    let share = share(files)?;
    ensure!(share <= CACHED_MAX, "{:.1} % of the files are still in the page cache", share * 100.0);
    Ok(())
}

/// Reads files once.
///
/// # Errors
/// The system's.
pub fn fill(files: &[PathBuf]) -> Result<()> {
    let mut chunk = vec![0; 2 << 20];
    for path in files {
        let mut file = File::open(path).with_context(|| path.display().to_string())?;
        while io::Read::read(&mut file, &mut chunk)? > 0 {}
    }
    Ok(())
}

/// How much of files is in the page cache, of 1.
///
/// # Errors
/// The system's.
pub fn share(files: &[PathBuf]) -> Result<f64> {
    let (mut cached, mut pages) = (0, 0);
    for path in files {
        let (in_cache, of) = cached_pages(path).with_context(|| path.display().to_string())?;
        (cached, pages) = (cached + in_cache, pages + of);
    }
    Ok(cached as f64 / (pages as f64).max(1.0))
}

/// Pages of a file that are cached, and all of them.
fn cached_pages(path: &Path) -> io::Result<(u64, u64)> {
    let file = File::open(path)?;
    let bytes = file.metadata()?.len() as usize;
    if bytes == 0 {
        return Ok((0, 0));
    }
    let fd = file.as_raw_fd();
    // SAFETY: a new mapping of an open file, which nobody reads through; the result is checked.
    let mapping =
        unsafe { libc::mmap(std::ptr::null_mut(), bytes, libc::PROT_NONE, libc::MAP_SHARED, fd, 0) };
    if mapping == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    let mut states = vec![0u8; bytes.div_ceil(PAGE_BYTES as usize)];
    // SAFETY: the mapping has `bytes` bytes, and there is a byte for each of its pages.
    let result = unsafe { libc::mincore(mapping, bytes, states.as_mut_ptr()) };
    let outcome = if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) };
    // SAFETY: mapped above with this length, and nothing borrows from it.
    unsafe { libc::munmap(mapping, bytes) };
    outcome?;
    Ok((states.iter().map(|state| u64::from(state & 1)).sum(), states.len() as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_leave_the_page_cache_and_come_back() {
        let scratch = std::env::current_exe().unwrap().parent().unwrap().to_path_buf(); // on a disk
        let file = tempfile::NamedTempFile::new_in(scratch).unwrap();
        std::fs::write(file.path(), vec![7; 1 << 20]).unwrap();
        let files = [file.path().to_path_buf()];
        assert_eq!(share(&files).unwrap(), 1.0);
        // A file system in memory keeps everything.
        if empty(&files).is_ok() {
            assert_eq!(share(&files).unwrap(), 0.0);
            fill(&files).unwrap();
            assert_eq!(share(&files).unwrap(), 1.0);
        }
    }
}
