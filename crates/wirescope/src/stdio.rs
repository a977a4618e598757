//! The standard descriptors and pipes at the start: what is said where standard output seems to have been closed, and how much
//! a pipe holds.
//!
//! Before `main` begins, Rust's runtime opens /dev/null, for reading and writing, in place of each of the
//! three that is closed: so no file of a run ever gets one of their numbers. From inside, that can't be told
//! from a caller's own /dev/null opened this way, so it is a warning and no refusal. A shell's `>/dev/null`
//! is for writing only, and meant.

use crate::speech::{Level, say};
use rustix::pipe::fcntl_setpipe_size;
use std::fs;
use std::os::fd::AsFd;
use std::os::linux::fs::MetadataExt;

/// What a pipe is to hold, bytes: the most that the system gives to everybody.
const PIPE_BYTES: usize = 1 << 20;
/// Device number of /dev/null: 1, 3.
const NULL: u64 = 0x103;
/// What the flags of an open file say of its mode; 2: for reading and writing.
const ACCESS_MODE: u32 = 0o3;

/// Warns if what goes to standard output may go nowhere although nobody meant that.
pub fn warn_of_closed_stdout() {
    let is_null = fs::metadata("/proc/self/fd/1").is_ok_and(|facts| facts.st_rdev() == NULL);
    if is_null && fs::read_to_string("/proc/self/fdinfo/1").is_ok_and(|facts| is_for_both(&facts)) {
        say(
            Level::Warning,
            "wirescope: standard output: it was closed, or is /dev/null for reading and writing: what goes there is \
             lost; give it a file or a pipe",
        );
    }
}

/// Has a pipe hold what comes in a few ms, so that writer and reader don't wait for each other for every few packets. What is no
/// pipe, or may hold no more, stays as it is.
pub fn widen_pipe(file: impl AsFd) {
    let _ = fcntl_setpipe_size(file, PIPE_BYTES);
}

/// By the facts that the kernel tells of an open file.
fn is_for_both(facts: &str) -> bool {
    let flags =
        facts.lines().find_map(|line| u32::from_str_radix(line.strip_prefix("flags:")?.trim(), 8).ok());
    flags.is_some_and(|flags| flags & ACCESS_MODE == 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pipe_is_widened_and_what_is_none_stays_as_it_is() {
        let (_reads, writes) = std::io::pipe().unwrap();
        let bytes = || rustix::pipe::fcntl_getpipe_size(&writes).unwrap();
        assert!(bytes() < PIPE_BYTES);
        widen_pipe(&writes);
        assert_eq!(bytes(), PIPE_BYTES);
        widen_pipe(fs::File::open("/dev/null").unwrap());
    }

    #[test]
    fn reading_and_writing_is_told_from_writing_alone() {
        let check = |facts: &str, expected| assert_eq!(is_for_both(facts), expected, "{facts}");
        check("pos:\t0\nflags:\t0100002\nmnt_id:\t26\n", true);
        check("pos:\t0\nflags:\t0100001\nmnt_id:\t26\n", false);
        check("pos:\t0\nflags:\t0100000\n", false);
        check("", false);
    }
}
