//! Facts about a run's process and its disk, as they are now.

use super::facts::{Facts, State};
use scope_events::EVENTS_FILE;
use scope_machine::home::{Home, Seen};
use scope_machine::process::process_began;
use std::ffi::OsStr;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Open files of a process that are looked at for its log.
const FILES_MAX: usize = 65_536;

/// Adds what the system knows of the run whose log is at `log`.
pub fn look(facts: &mut Facts, log: &Path) {
    facts.seen = facts.home.seen_from(&Home::here());
    if facts.state == State::Unknown {
        facts.state = state(facts.seen, facts.pid, facts.pid_began);
    }
    facts.silent_s =
        facts.last.map(|last| jiff::Timestamp::now().duration_since(last).as_secs_f64().max(0.0));
    let goes_on = matches!(facts.state, State::Running | State::Stopped);
    let age_s = |since: jiff::Timestamp| jiff::Timestamp::now().duration_since(since).as_secs_f64().max(0.0);
    facts.counts_age_s = facts.counted.filter(|_| goes_on).map(age_s);
    facts.log_bytes = std::fs::metadata(log).map_or(0, |metadata| metadata.len());
    facts.disk = scope_machine::disk::disk(log);
}

/// What has become of a process, known by its number and its beginning.
fn state(seen: Seen, pid: Option<u64>, began: Option<u64>) -> State {
    match (seen, pid, began) {
        (Seen::BeforeRestart, ..) => return State::Dead,
        (Seen::Here | Seen::Unknown, Some(pid), Some(began))
            if process_began(&pid.to_string()) == Some(began) => {}
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

/// The log that process `pid` has open: where it can be read, even if its name is gone or means something
/// else here. Without the right to look at the process, the log is found by the folder that the command line
/// names: a run hides its files from all but root.
///
/// # Errors
/// A message: there is no such process, it may not be looked at, or it has no log open.
pub fn log_of(pid: u64) -> Result<PathBuf, String> {
    let open = match std::fs::read_dir(format!("/proc/{pid}/fd")) {
        Ok(open) => open,
        Err(cause) if cause.kind() == ErrorKind::NotFound => {
            return Err(format!("--pid: there is no process {pid}; find it with: pgrep -a wirescope"));
        }
        Err(cause) => return log_by_words(pid, &cause),
    };
    let mut hidden = None;
    for file in open.take(FILES_MAX).flatten().map(|file| file.path()) {
        match std::fs::read_link(&file) {
            Ok(target) if is_log(&target) => return Ok(file),
            Ok(_) => {}
            Err(cause) => hidden = hidden.or((cause.kind() == ErrorKind::PermissionDenied).then_some(cause)),
        }
    }
    match hidden {
        Some(cause) => log_by_words(pid, &cause),
        None => Err(format!(
            "--pid: process {pid} has no {EVENTS_FILE} open: it is not a run of wirescope; give a log with \
             --log"
        )),
    }
}

fn is_log(target: &Path) -> bool {
    target.to_string_lossy().trim_end_matches(" (deleted)").ends_with(&format!("/{EVENTS_FILE}"))
}

/// The log in the folder that the command line of a process names by `--out`. Whether it is that run's the
/// log says itself.
fn log_by_words(pid: u64, hidden: &std::io::Error) -> Result<PathBuf, String> {
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let log = folder_in(&line).map(|folder| folder.join(EVENTS_FILE)).filter(|log| log.is_file());
    log.ok_or_else(|| {
        format!(
            "--pid: only root sees the files of a run, and the command line of process {pid} names no \
             folder that can be read here ({hidden}); give its folder with --out, or run doctor as root"
        )
    })
}

/// The value of `--out` in a command line whose words end with a NUL.
pub fn folder_in(line: &[u8]) -> Option<PathBuf> {
    let mut words = line.split(|byte| *byte == 0);
    let mut found = None;
    while let Some(word) = words.next() {
        let value = if word == b"--out" { words.next() } else { word.strip_prefix(b"--out=") };
        found = value.filter(|value| !value.is_empty()).or(found);
    }
    found.map(|value| PathBuf::from(OsStr::from_bytes(value)))
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
        assert!(log_of(own).unwrap_err().contains("is not a run of wirescope"));
        assert!(log_of(u64::MAX).unwrap_err().contains("there is no process"));
    }

    #[test]
    fn the_folder_of_a_command_line_is_found_in_each_form() {
        let check = |line: &str, expected: Option<&str>| {
            assert_eq!(folder_in(line.replace(' ', "\0").as_bytes()), expected.map(PathBuf::from), "{line}");
        };
        check("wirescope run --out /d -i eth0 ", Some("/d"));
        check("wirescope run --out=/d ", Some("/d"));
        check("wirescope run --out a --out b ", Some("b"));
        check("wirescope run --config x ", None);
        check("wirescope run --out", None);
        check("", None);
    }
}
