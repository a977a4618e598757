//! What an import prints while it goes, on standard error: one line, rewritten on a terminal, else now and then.

use super::files::{Files, Following};
use crate::speech::{self, Level, say};
use crate::words::{number, size, span};
use indicatif::{ProgressBar, ProgressStyle};
use scope_engine::{DumpSummary, Status, Watch};
use scope_rights::Rights;
use scope_ring::RingMemory;
use scope_spelling::printable::printable;
use std::io::{self, IsTerminal};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Where standard error is no terminal, a line comes so often, seconds.
const PLAIN_EVERY_S: f64 = 60.0;

/// Tells how an import goes.
pub struct Watching {
    files: Vec<Arc<Following>>,
    bytes: Option<u64>,
    /// Rewritten; `None`: standard error is no terminal.
    bar: Option<ProgressBar>,
    started: AtomicBool,
    /// Seconds of the run at the next plain line.
    next_plain_s: Mutex<f64>,
}

impl Watching {
    /// Of these files.
    pub fn new(files: &Files) -> Watching {
        let bar = (io::stderr().is_terminal() && !speech::is_json()).then(ProgressBar::new_spinner);
        if let (Some(bar), Ok(style)) = (&bar, ProgressStyle::with_template("{wide_msg}")) {
            bar.set_style(style);
        }
        Watching {
            files: files.followings(),
            bytes: files.bytes(),
            bar,
            started: AtomicBool::new(false),
            next_plain_s: Mutex::new(PLAIN_EVERY_S),
        }
    }

    /// Whether reading has begun.
    pub fn has_started(&self) -> bool {
        self.started.load(Ordering::Relaxed)
    }

    /// Takes the rewritten line away.
    pub fn clear(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }

    fn tell(&self, level: Level, line: &str) {
        let line = printable(line);
        match &self.bar {
            Some(bar) => bar.suspend(|| say(level, &line)),
            None => say(level, &line),
        }
    }

    fn read(&self) -> u64 {
        self.files.iter().map(|file| file.bytes()).sum()
    }
}

/// How far it is: `1.2 GiB of 10 GiB read, 1,234,567 packets, 350 MiB/s, 25 s left`.
fn line(read: u64, of: Option<u64>, packets: u64, elapsed_s: f64) -> String {
    let per_s = read as f64 / elapsed_s.max(0.001);
    let (whole, left) = match of {
        Some(of) => {
            let left_ns = of.saturating_sub(read) as f64 / per_s.max(1.0) * 1e9;
            (format!(" of {}", size(of)), format!(", {} left", span(left_ns.min(i64::MAX as f64) as i64)))
        }
        None => (String::new(), String::new()),
    };
    format!("{}{whole} read, {} packets, {}/s{left}", size(read), number(packets), size(per_s as u64))
}

impl Watch for Watching {
    fn prefault(&self, _: u64, _: u64) {}

    fn started(&self, _: &RingMemory, rights: Option<&Rights>) {
        self.started.store(true, Ordering::Relaxed);
        if let Some(rights) = rights.filter(|rights| !rights.seccomp || rights.landlock_abi == 0) {
            self.warning(&rights.to_string());
        }
    }

    fn selftest(&self, _: &serde_json::Value) {}

    fn reloading(&self) {}

    fn reloaded(&self) {}

    fn stopping(&self) {}

    fn status(&self, status: &Status) {
        let line = line(self.read(), self.bytes, status.counts.received_packets, status.elapsed_s);
        if let Some(bar) = &self.bar {
            bar.set_message(line);
            return bar.tick();
        }
        let mut next_s = self.next_plain_s.lock().unwrap_or_else(PoisonError::into_inner);
        if status.elapsed_s >= *next_s {
            *next_s += PLAIN_EVERY_S;
            say(Level::Info, &line);
        }
    }

    fn note(&self, line: &str) {
        self.tell(Level::Info, line);
    }

    fn warning(&self, line: &str) {
        self.tell(Level::Warning, line);
    }

    fn dump(&self, _: &DumpSummary) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_of_the_progress_fits_80_columns() {
        let most = line(999 << 40, Some(999 << 40), 999_999_999_999, 3.7e6);
        assert!(most.chars().count() <= 80, "{most}");
        let said = line(512 << 20, Some(2 << 30), 1_234_567, 2.0);
        assert_eq!(said, "512 MiB of 2 GiB read, 1,234,567 packets, 256 MiB/s, 6 s left");
        assert_eq!(line(0, None, 0, 0.0), "0 B read, 0 packets, 0 B/s");
    }
}
