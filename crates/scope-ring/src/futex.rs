//! Sleeping on a word of the region until somebody wakes it, by the system's futex.

use std::sync::atomic::AtomicU32;
use std::time::Duration;

/// Sleeps on `word` while it holds `expected`, at most `limit`.
pub(crate) fn wait(word: &AtomicU32, expected: u32, limit: Duration) {
    let timeout = libc::timespec { tv_sec: limit.as_secs() as i64, tv_nsec: limit.subsec_nanos() as i64 };
    // SAFETY: word and timeout outlive the call; a spurious return is allowed.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAIT,
            expected,
            &timeout as *const libc::timespec,
        )
    };
}

/// Wakes all who sleep on `word`.
pub(crate) fn wake(word: &AtomicU32) {
    // SAFETY: the word outlives the call.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, i32::MAX) };
}

/// Sleeps for `time`, whatever happens.
pub(crate) fn nap(time: Duration) {
    std::thread::sleep(time);
}
