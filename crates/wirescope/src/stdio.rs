//! The standard descriptors at the start: what is said where standard output seems to have been closed.
//!
//! Before `main` begins, Rust's runtime opens /dev/null, for reading and writing, in place of each of the
//! three that is closed: so no file of a run ever gets one of their numbers. From inside, that can't be told
//! from a caller's own /dev/null opened this way, so it is a warning and no refusal. A shell's `>/dev/null`
//! is for writing only, and meant.

use crate::speech::{Level, say};
use std::fs;
use std::os::linux::fs::MetadataExt;

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
    fn reading_and_writing_is_told_from_writing_alone() {
        let check = |facts: &str, expected| assert_eq!(is_for_both(facts), expected, "{facts}");
        check("pos:\t0\nflags:\t0100002\nmnt_id:\t26\n", true);
        check("pos:\t0\nflags:\t0100001\nmnt_id:\t26\n", false);
        check("pos:\t0\nflags:\t0100000\n", false);
        check("", false);
    }
}
