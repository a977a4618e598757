//! Facts about a run's process and its disk, as they are now.

use super::facts::{Disk, Facts, State};
use crate::events::EVENTS_FILE;
use crate::health::process_began;
use crate::home::{Home, Seen};
use std::ffi::CString;
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Open files of a process that are looked at for its log.
const FILES_MAX: usize = 65_536;

/// Adds what the system says of the run whose log is at `log`.
pub fn look(facts: &mut Facts, log: &Path) {
    facts.seen = facts.home.seen_from(&Home::here());
    if facts.state == State::Unknown {
        facts.state = state(facts.seen, facts.pid, facts.pid_began);
    }
    facts.silent_s = facts.last.map(|last| jiff::Timestamp::now().duration_since(last).as_secs_f64().max(0.0));
    facts.disk = disk(log);
}

/// What has become of a process, known by its number and its beginning.
fn state(seen: Seen, pid: Option<u64>, began: Option<u64>) -> State {
    match (seen, pid, began) {
        (Seen::BeforeRestart, ..) => return State::Dead,
        (Seen::Here | Seen::Unknown, Some(pid), Some(began)) if process_began(&pid.to_string()) == Some(began) => {}
        (Seen::Here, Some(_), Some(_)) => return State::Dead,
        _ => return State::Unknown,
    }
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.unwrap_or(0))).unwrap_or_default();
    match stat.rsplit_once(')').map(|(_, rest)| rest.trim_start().chars().next()) {
        Some(Some('T' | 't')) => State::Stopped,
        Some(Some('Z' | 'X')) | None => State::Dead,
        Some(_) => State::Running,
    }
}

/// The log that process `pid` has open: where it can be read, even if its name is gone or means something else here.
///
/// # Errors
/// In plain words: there is no such process, it may not be looked at, or it has no log open.
pub fn log_of(pid: u64) -> Result<PathBuf, String> {
    let folder = format!("/proc/{pid}/fd");
    let files = std::fs::read_dir(&folder).map_err(|cause| match cause.kind() {
        std::io::ErrorKind::NotFound => format!("--pid: there is no process {pid}; find it with: pgrep -a wirescope"),
        _ => format!("--pid: process {pid} can't be looked at: {cause}; run as root or as its user, or give its log with --log"),
    })?;
    let is_log = |file: &PathBuf| {
        let target = std::fs::read_link(file).unwrap_or_default();
        target.to_string_lossy().trim_end_matches(" (deleted)").ends_with(&format!("/{EVENTS_FILE}"))
    };
    files.take(FILES_MAX).flatten().map(|file| file.path()).find(is_log).ok_or_else(|| {
        format!("--pid: process {pid} has no {EVENTS_FILE} open: it is no run of wirescope; give a log with --log")
    })
}

/// Space on the file system that `file` is on.
fn disk(file: &Path) -> Option<Disk> {
    let path = CString::new(file.as_os_str().as_bytes()).ok()?;
    let mut facts = MaybeUninit::<libc::statvfs>::zeroed();
    // SAFETY: `path` is NUL-terminated, and both live through the call, which writes no more than the struct.
    if unsafe { libc::statvfs(path.as_ptr(), facts.as_mut_ptr()) } < 0 {
        return None;
    }
    // SAFETY: zeroed before and filled by the kernel; plain numbers.
    let facts = unsafe { facts.assume_init() };
    let bytes = |blocks: u64| blocks.saturating_mul(facts.f_frsize);
    Some(Disk { free_bytes: bytes(facts.f_bavail), bytes: bytes(facts.f_blocks) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_known_by_its_number_and_its_beginning() {
        let own = u64::from(std::process::id());
        let began = process_began("self");
        assert!(began.is_some());
        let other = began.map(|ticks| ticks + 1);
        assert_eq!(state(Seen::Here, Some(own), began), State::Running);
        assert_eq!(state(Seen::Here, Some(own), other), State::Dead, "another process with its number");
        assert_eq!(state(Seen::Here, None, None), State::Unknown);
        assert_eq!(state(Seen::BeforeRestart, Some(own), began), State::Dead);
        for seen in [Seen::Elsewhere, Seen::OutOfSight, Seen::Unknown] {
            assert_eq!(state(seen, Some(own), other), State::Unknown, "{seen:?}: it can't be seen from here");
        }
    }

    #[test]
    fn a_process_without_a_log_is_no_run() {
        let own = u64::from(std::process::id());
        assert!(log_of(own).unwrap_err().contains("is no run of wirescope"));
        assert!(log_of(u64::MAX).unwrap_err().contains("there is no process"));
    }

    #[test]
    fn space_is_known_of_what_exists() {
        let disk = disk(Path::new("/")).expect("a file system");
        assert!(disk.bytes > 0 && disk.free_bytes <= disk.bytes);
        assert!(super::disk(Path::new("/no/such/folder")).is_none());
    }
}
