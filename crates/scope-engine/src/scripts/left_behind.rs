//! What becomes of a thread whose script doesn't come back: nothing can interrupt it, so it is left behind.

use scope_spelling::figures::span;
use std::time::Duration;

/// Niceness of scripts: beside capture they get what it leaves.
const NICE: i32 = 5;
/// Niceness of what is left behind: it gets what nobody else wants.
const NICE_LAST: i32 = 19;

/// This thread runs a script from here on; its number.
pub(super) fn begin_thread() -> i32 {
    let _ = rustix::process::setpriority_process(None, NICE); // refused to nobody
    rustix::thread::gettid().as_raw_nonzero().get()
}

/// A thread that is left behind stands back behind all others. 0 is none.
pub(super) fn put_last(thread: i32) {
    if let Some(thread) = rustix::process::Pid::from_raw(thread) {
        let _ = rustix::process::setpriority_process(Some(thread), NICE_LAST); // refused to nobody
    }
}

/// Why a script was left behind.
pub(super) fn didn_t_come_back(timeout: Duration) -> String {
    let after = span(i64::try_from(timeout.as_nanos()).unwrap_or(i64::MAX));
    format!("it didn't come back within {after}, and was left behind; look for a loop that doesn't end")
}
