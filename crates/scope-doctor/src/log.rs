//! Reading `wirescope.jsonl`: the facts of the run that began last in it, or of the one that is wanted.
//!
//! Lines are read one by one. They may be incomplete, damaged or of a later version: what isn't understood is
//! counted or skipped.

use super::facts::Facts;
use super::runs::{Runs, Wanted};
use std::fs::OpenOptions;
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Bytes of a line that are read; longer ones count as unreadable.
const LINE_BYTES_MAX: u64 = 4 << 20;
/// Why a log can't be read. Texts say place, cause and remedy.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// It can't be opened or read.
    #[error(
        "{path}: {cause}; give the folder of a run with --out, its log with --log, or its process with --pid"
    )]
    File {
        /// Which.
        path: PathBuf,
        /// The system's message.
        #[source]
        cause: io::Error,
    },
    /// Nothing is in it.
    #[error("{path}: the log is empty: no run has written a line yet, or somebody emptied it")]
    Empty {
        /// Which.
        path: PathBuf,
    },
    /// No run is in it.
    #[error(
        "{path}: no run has written this log ({unreadable} of its {lines} lines can't be read); give the \
         log of a run with --log, or its folder with --out"
    )]
    NoRun {
        /// Which.
        path: PathBuf,
        /// Lines that aren't empty.
        lines: u64,
        /// Of these, those that aren't JSON objects.
        unreadable: u64,
    },
    /// The wanted run isn't in it.
    #[error(
        "{path}: {wanted} is not among the {runs} runs of this log; omit --run and --pid to see the run \
         that began last"
    )]
    NotThatRun {
        /// Which.
        path: PathBuf,
        /// Which run, in words.
        wanted: String,
        /// Runs in the log.
        runs: u64,
    },
}

/// Reads the log at `path`: the run that is wanted, or the one that began last.
///
/// # Errors
/// The log can't be read, or no such run is in it.
pub fn read(path: &Path, wanted: &Wanted) -> Result<Facts, LogError> {
    let fault = |cause| LogError::File { path: path.to_path_buf(), cause };
    // Without this flag, opening a pipe that has no writer would wait forever.
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path).map_err(fault)?;
    if !file.metadata().map_err(fault)?.is_file() {
        return Err(fault(io::Error::other("is not a file")));
    }
    let mut reader = BufReader::new(file);
    let mut runs = Runs::new(wanted.clone());
    let mut line = Vec::new();
    loop {
        line.clear();
        if (&mut reader).take(LINE_BYTES_MAX).read_until(b'\n', &mut line).map_err(fault)? == 0 {
            break;
        }
        runs.add(&line, line.ends_with(b"\n") || line.len() as u64 == LINE_BYTES_MAX);
    }
    let path = path.to_path_buf();
    let missing = match (runs.lines, runs.count) {
        (0, _) => LogError::Empty { path },
        (lines, 0) => LogError::NoRun { path, lines, unreadable: runs.unreadable },
        (_, runs) => LogError::NotThatRun { path, wanted: wanted.to_string(), runs },
    };
    runs.finish().ok_or(missing)
}

/// Facts of the run that began last in `text`, as [`read`] reads them; for logs that were recorded.
pub fn parse(text: &str) -> Option<Facts> {
    let mut runs = Runs::default();
    for line in text.lines() {
        runs.add(line.as_bytes(), true);
    }
    runs.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::State;
    use crate::lines::clean;

    const START: &str =
        r#"{"event":"start","sources":["afpacket:a"],"ring_bytes":1024,"memory":"m","triggers":[{}]}"#;

    fn parsed(lines: &[&str]) -> Facts {
        parse(&lines.join("\n")).expect("a run")
    }

    #[test]
    fn the_last_run_of_a_log_is_read_and_damage_is_counted() {
        let end = r#"{"event":"end","dropped":{"kernel":9},"failures":["one"]}"#;
        let facts = parsed(&[START, end, START, "{\"event\":\"sta", "\u{0}\u{0}"]);
        assert_eq!((facts.state, facts.dropped("kernel"), facts.unreadable_lines), (State::Unknown, 0, 2));
        let facts = parsed(&["rubbish", START, end]);
        assert_eq!((facts.state, facts.dropped("kernel"), facts.failures.len()), (State::Ended, 9, 1));
        assert_eq!(
            (facts.specs, facts.ring_bytes, facts.triggers),
            (vec!["afpacket:a".to_string()], 1024, 1)
        );
        assert!(parse("").is_none() && parse(end).is_none());
    }

    #[test]
    fn losses_and_counts_of_the_same_packets_are_not_added() {
        let loss = r#"{"event":"loss","packets":{"kernel":5}}"#;
        let status =
            |dropped| format!(r#"{{"event":"status","elapsed_s":10,"dropped":{{"kernel":{dropped}}}}}"#);
        assert_eq!(parsed(&[START, loss, &status(5)]).dropped("kernel"), 5);
        assert_eq!(parsed(&[START, loss, &status(5), loss, loss]).dropped("kernel"), 15);
        assert_eq!(parsed(&[START, loss, &status(7)]).dropped("kernel"), 7);
    }

    #[test]
    fn a_log_that_goes_on_from_another_file_counts_from_the_beginning_of_its_run() {
        let start = r#"{"event":"start","began":"2026-01-01T00:00:00Z","logged":"2026-01-01T01:00:00Z","continues":true,"sources":["a"]}"#;
        let status = r#"{"event":"status","logged":"2026-01-01T00:59:59Z","dropped":{"kernel":7}}"#;
        let loss = r#"{"event":"loss","logged":"2026-01-01T01:00:10Z","packets":{"kernel":5}}"#;
        let facts = parsed(&[start, status, loss]);
        assert_eq!((facts.continues, facts.dropped("kernel"), facts.elapsed_s), (true, 12, 3610.0));
    }

    #[test]
    fn losses_are_told_apart_by_what_went_on() {
        let loss = |facts: &str| format!(r#"{{"event":"loss","packets":{{"kernel":1}},{facts}}}"#);
        let check = |facts: &str, expected: KernelLosses| {
            assert_eq!(parsed(&[START, &loss(facts)]).kernel, expected, "{facts}")
        };
        use super::super::facts::KernelLosses;
        let none = KernelLosses::default();
        check(
            r#""seconds":1,"workers":[{"busy":0.1,"starved":0},{"busy":0.97,"starved":0}]"#,
            KernelLosses { busy: 1, ..none },
        );
        check(r#""seconds":1,"workers":[{"busy":0.5,"starved":0.4}]"#, KernelLosses { starved: 1, ..none });
        check(r#""seconds":4,"workers":[{"busy":0.9,"starved":0.4}]"#, KernelLosses { stalled: 1, ..none });
        check(
            r#""seconds":1,"throttled_s":0.4,"workers":[{"busy":0.6,"starved":0.4}]"#,
            KernelLosses { throttled: 1, ..none },
        );
        check(
            r#""seconds":1,"throttled_s":0.01,"workers":[{"busy":0.9,"starved":0}]"#,
            KernelLosses { busy: 1, ..none },
        );
        check(r#""seconds":1,"workers":[null]"#, KernelLosses { other: 1, ..none });
        check(r#""workers":"x""#, KernelLosses { other: 1, ..none });
    }

    #[test]
    fn foreign_text_has_no_control_characters() {
        assert_eq!(clean("a\u{1b}[2Jb\n".to_string()), "a [2Jb ");
    }
}
