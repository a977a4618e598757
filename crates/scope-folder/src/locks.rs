//! Locks on parts of a file, by which processes know of each other. A lock belongs to one opening of the file
//! and ends with it, whatever ends the process: nothing is left behind by a kill.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;

/// All of a file, however long it gets.
pub const WHOLE: Range<u64> = 0..i64::MAX as u64;

/// Locks these bytes of a file that is open for writing, without waiting; `false` where another opening has a
/// lock on one of them.
///
/// # Errors
/// The system's: a file system may have no locks.
pub fn try_lock(file: &File, bytes: Range<u64>) -> io::Result<bool> {
    match lock_call(file, libc::F_OFD_SETLK, libc::F_WRLCK, bytes) {
        Ok(_) => Ok(true),
        Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Gives a lock back.
///
/// # Errors
/// The system's.
pub fn unlock(file: &File, bytes: Range<u64>) -> io::Result<()> {
    lock_call(file, libc::F_OFD_SETLK, libc::F_UNLCK, bytes).map(drop)
}

/// Whether another opening of the file has a lock on one of these bytes.
///
/// # Errors
/// The system's: a file system may have no locks.
pub fn is_locked(file: &File, bytes: Range<u64>) -> io::Result<bool> {
    Ok(lock_call(file, libc::F_OFD_GETLK, libc::F_WRLCK, bytes)?.l_type != libc::F_UNLCK as libc::c_short)
}

fn lock_call(
    file: &File,
    command: libc::c_int,
    kind: libc::c_int,
    bytes: Range<u64>,
) -> io::Result<libc::flock> {
    let mut lock = libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: bytes.start as libc::off_t,
        l_len: bytes.end.saturating_sub(bytes.start) as libc::off_t,
        l_pid: 0, // required for locks of openings
    };
    // SAFETY: the descriptor is open while `file` is lent, and the kernel reads and writes the one structure,
    // which outlives the call.
    match unsafe { libc::fcntl(file.as_raw_fd(), command, &raw mut lock) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(lock),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::OpenOptions;

    #[test]
    fn a_lock_belongs_to_one_opening_and_ends_with_it() {
        let folder = tempfile::tempdir().unwrap();
        let open = || {
            OpenOptions::new()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .open(folder.path().join("x"))
                .unwrap()
        };
        let (first, second) = (open(), open());
        assert!(try_lock(&first, 0..1).unwrap() && try_lock(&first, 64..128).unwrap());
        assert!(!is_locked(&first, WHOLE).unwrap(), "its own");
        assert!(is_locked(&second, WHOLE).unwrap() && is_locked(&second, 127..200).unwrap());
        assert!(!is_locked(&second, 1..64).unwrap() && !is_locked(&second, 128..1000).unwrap());
        assert!(!try_lock(&second, 100..101).unwrap() && try_lock(&second, 1..64).unwrap());
        unlock(&first, 64..128).unwrap();
        assert!(!is_locked(&second, 64..128).unwrap());
        let reading = File::open(folder.path().join("x")).unwrap();
        assert!(is_locked(&reading, 0..1).unwrap(), "who may only read sees it, too");
        drop(first);
        assert!(try_lock(&second, WHOLE).unwrap(), "the locks ended with the opening");
    }
}
