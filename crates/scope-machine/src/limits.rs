//! Limits of this process: files that it may have open, raised, as far as it may be, where many dumps are
//! allowed at once or many files are read; how far a file may grow; how much it stands back behind others.

use rustix::process::{getpriority_process, setpriority_process};

/// Files of a dump: its own, one for late packets, one to merge them into.
const OF_A_DUMP: u64 = 3;
/// Files of all else: of the stores that dumps read, too.
const OF_THE_REST: u64 = 256 + 2048;

/// Files of a question to a run: those of its stores that it keeps open, of this run and of earlier ones.
const OF_A_QUESTION: u64 = 1100;

/// Allows the files of so many dumps, and of so many questions, at once. Where the system allows fewer, those beyond fail,
/// and say so.
pub fn allow_dumps(dumps_max: usize, questions_max: usize) {
    allow_files(OF_A_DUMP * dumps_max as u64 + OF_A_QUESTION * questions_max as u64);
}

/// Allows so many open files beside those of all else. Where the system allows fewer, opening one beyond fails.
pub fn allow_files(files: u64) {
    let wanted = OF_THE_REST.saturating_add(files);
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the structure is ours and outlives the call.
    let known = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) } == 0;
    if known && limit.rlim_cur < wanted.min(limit.rlim_max) {
        limit.rlim_cur = wanted.min(limit.rlim_max);
        // SAFETY: as above. A refusal leaves the limit as it was.
        unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) };
    }
}

/// Niceness of what may take longer: beside capture and the writers of stores it gets what they leave.
const NICE: i32 = 19;
/// Of what is asked of disks the class that is usual, and there the last priority (`ioprio_set(2)`).
const BEST_EFFORT: libc::c_long = 2;
const LAST: libc::c_long = 7;
/// Where the class stands in a priority.
const CLASS_SHIFT: u32 = 13;
/// Served only where nobody else asks for anything: who was given this class keeps it.
const IDLE: libc::c_long = 3;
/// The calling thread.
const WHO_PROCESS: libc::c_int = 1;

/// Stands back behind others, with all threads that are made from now on: with processors and with disks.
pub fn stand_back() {
    if getpriority_process(None).is_ok_and(|nice| nice < NICE) {
        let _ = setpriority_process(None, NICE); // refused to nobody
    }
    // The niceness alone counts only for who was given no priority with disks, as by ionice.
    // SAFETY: these take and return numbers only. A lower priority is refused to nobody.
    unsafe {
        let given = libc::syscall(libc::SYS_ioprio_get, WHO_PROCESS, 0);
        if given >> CLASS_SHIFT != IDLE {
            libc::syscall(libc::SYS_ioprio_set, WHO_PROCESS, 0, BEST_EFFORT << CLASS_SHIFT | LAST);
        }
    }
}

/// Bytes to which this process may let a file grow; `None`: any number.
pub fn file_size_max() -> Option<u64> {
    let limits = std::fs::read_to_string("/proc/self/limits").ok()?;
    let line = limits.lines().find_map(|line| line.strip_prefix("Max file size"))?;
    line.split_whitespace().next()?.parse().ok()
}
