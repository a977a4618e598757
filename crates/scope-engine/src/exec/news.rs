//! What became of commands, in words and for the log.

use super::orders::Outcome;
use scope_events::event;
use scope_spelling::printable::printable;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

/// Letters of a command's first line that a complaint repeats.
const SAID_CHARS_MAX: usize = 200;

/// What became of the commands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExecCounts {
    /// Started, or tried to.
    pub started: u64,
    /// Of these: ended in another way than with exit code 0.
    pub failed: u64,
    /// Of these: took too long.
    pub timed_out: u64,
    /// Never started: too many were waiting, or the run was over.
    pub skipped: u64,
}

/// One command's outcome.
#[derive(Clone, Debug)]
pub enum ExecNews {
    /// It has ended.
    Ended {
        /// The dump's number.
        dump: u64,
        /// How; or why it couldn't be started.
        outcome: Result<ExitStatus, String>,
        /// It took too long.
        timed_out: bool,
        /// Seconds that it took.
        seconds: f64,
        /// The beginning of what it said.
        output: String,
        /// Folders outside of its temporary one where it might write.
        writable: usize,
    },
    /// It was never started.
    Skipped {
        /// The dump's number.
        dump: u64,
    },
}

impl ExecCounts {
    /// Counts one more.
    pub(super) fn add(&mut self, news: &ExecNews) {
        match news {
            ExecNews::Skipped { .. } => self.skipped += 1,
            ExecNews::Ended { outcome, timed_out, .. } => {
                self.started += 1;
                self.failed += u64::from(!outcome.as_ref().is_ok_and(ExitStatus::success));
                self.timed_out += u64::from(*timed_out);
            }
        }
    }
}

impl ExecNews {
    /// What the helper reports, where commands may write to so many folders.
    pub(super) fn ended(outcome: Outcome, writable: usize) -> ExecNews {
        ExecNews::Ended {
            dump: outcome.dump,
            outcome: outcome.status.map(ExitStatus::from_raw),
            timed_out: outcome.timed_out,
            seconds: outcome.took.as_secs_f64(),
            output: String::from_utf8_lossy(&outcome.output).into_owned(),
            writable,
        }
    }

    /// As the event log has it.
    pub(crate) fn event(&self) -> event::Exec {
        match self {
            ExecNews::Skipped { dump } => event::Exec { dump: *dump, skipped: true, ..Default::default() },
            ExecNews::Ended { dump, outcome, timed_out, seconds, output, .. } => event::Exec {
                dump: *dump,
                skipped: false,
                code: outcome.as_ref().ok().and_then(ExitStatus::code).map(i64::from),
                signal: outcome.as_ref().ok().and_then(|status| status.signal()).map(i64::from),
                error: outcome.as_ref().err().cloned(),
                timed_out: *timed_out,
                took_s: Some(*seconds),
                output: Some(output.clone()),
            },
        }
    }

    /// What went wrong, in words; `None`: nothing.
    pub fn complaint(&self) -> Option<String> {
        match self {
            ExecNews::Skipped { dump } => Some(format!(
                "the command for dump {dump} was skipped: too many are waiting, or the run is over; see \
                 --exec-max"
            )),
            ExecNews::Ended { dump, timed_out: true, seconds, .. } => Some(format!(
                "the command for dump {dump} was ended after {seconds:.1} s; see --exec-timeout"
            )),
            ExecNews::Ended { dump, outcome: Err(error), .. } => {
                Some(format!("the command for dump {dump} can't be run: {error}"))
            }
            ExecNews::Ended { dump, outcome: Ok(status), output, writable, .. } if !status.success() => {
                let how = match (status.code(), status.signal()) {
                    (Some(code), _) => format!("exit code {code}"),
                    (None, signal) => format!("signal {}", signal.unwrap_or_default()),
                };
                let said = printable(output.lines().next().unwrap_or_default())
                    .chars()
                    .take(SAID_CHARS_MAX)
                    .collect::<String>();
                let said = if said.is_empty() { said } else { format!(": {said}") };
                let remedy = match writable {
                    0 => {
                        "; commands can write only to their temporary folder ($TMPDIR) and to folders of \
                        --exec-write DIR"
                    }
                    _ => "",
                };
                Some(format!("the command for dump {dump} failed with {how}{said}{remedy}"))
            }
            ExecNews::Ended { .. } => None,
        }
    }
}
