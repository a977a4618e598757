//! Whether a volume's disk still answers. The thread that waits for it can't say so: it tells when it last got
//! on, and others look.
//!
//! ```text
//! beat     by the volume's thread: the disk has answered, or has nothing to answer
//! silent   by anybody: for how long there was none
//! ```

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A disk that answers nothing for so long stalls,
const SILENT: Duration = Duration::from_secs(5);
/// if it still doesn't so long after that was seen: a process that stood still goes on with old figures.
const SEEN: Duration = Duration::from_secs(1);
/// A run that ends waits no longer for a disk that has answered nothing for so long,
const SILENT_AT_END: Duration = Duration::from_secs(20);
/// and at least so long from the end on.
const END_MIN: Duration = Duration::from_secs(5);

/// When a volume's thread last got on.
pub struct Pulse {
    began: Instant,
    /// Milliseconds from `began`.
    beat: AtomicU64,
}

impl Pulse {
    /// It has got on just now.
    pub fn new() -> Pulse {
        Pulse { began: Instant::now(), beat: AtomicU64::new(0) }
    }

    /// It gets on.
    pub fn beat(&self) {
        self.beat.store(self.now(), Ordering::Relaxed);
    }

    /// For how long it hasn't.
    pub fn silent(&self) -> Duration {
        Duration::from_millis(self.now().saturating_sub(self.beat.load(Ordering::Relaxed)))
    }

    fn now(&self) -> u64 {
        self.began.elapsed().as_millis() as u64 // of half a billion years
    }
}

impl Default for Pulse {
    fn default() -> Pulse {
        Pulse::new()
    }
}

/// What is known from outside of a disk that may stall.
#[derive(Default)]
pub struct Stall {
    /// Since when it was seen to be silent.
    seen: Option<Instant>,
    stalls: bool,
}

impl Stall {
    /// Looks; whether it stalls now, if that is new.
    pub fn look(&mut self, pulse: &Pulse, over: bool) -> Option<bool> {
        let silent = !over && pulse.silent() >= SILENT;
        self.seen = if silent { self.seen.or_else(|| Some(Instant::now())) } else { None };
        let stalls = self.seen.is_some_and(|seen| seen.elapsed() >= SEEN);
        (stalls != std::mem::replace(&mut self.stalls, stalls)).then_some(stalls)
    }

    /// Whether it stalls.
    pub fn stalls(&self) -> bool {
        self.stalls
    }

    /// Whether nobody waits for it any more, in a run that ended at `end`.
    pub fn is_given_up(&self, pulse: &Pulse, end: Instant) -> bool {
        self.stalls && pulse.silent() >= SILENT_AT_END && end.elapsed() >= END_MIN
    }
}

/// In words.
pub fn words(silent: Duration) -> String {
    format!("the disk has not answered for {} s", silent.as_secs())
}
