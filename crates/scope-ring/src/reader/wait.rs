//! Waiting for packets without slowing a worker and without burning a core (rule 10).
//!
//! ```text
//! look, pause, look ...        20 us in all since the last sleep
//! nothing came in that time    say that somebody waits, look once more, sleep: until a worker wakes us, at most 1 ms
//! something came               packets come steadily: a nap of 20 us, which costs the workers nothing
//! ```
//! The kernel adds its timer slack to a nap, 50 us by default.

use crate::futex;
use crate::ring::Ring;
use std::time::{Duration, Instant};

/// Spinning between two sleeps.
const SPIN: Duration = Duration::from_micros(20);
/// Spin hints between two looks: more often, and the writer's lines would be stolen.
const HINTS: u32 = 20;
/// Sleep while packets come steadily.
const NAP: Duration = Duration::from_micros(20);
/// Longest sleep.
const SLEEP_MAX: Duration = Duration::from_millis(1);

/// What a reader remembers of its waiting.
#[derive(Default)]
pub(super) struct Waiting {
    /// Spun since the last sleep.
    spun: Duration,
    /// Something came meanwhile.
    steady: bool,
}

impl Waiting {
    /// Waits until `ready`, or for a while.
    pub(super) fn wait(&mut self, ring: &Ring, ready: impl Fn() -> bool) {
        let begun = Instant::now();
        while self.spun + begun.elapsed() < SPIN {
            for _ in 0..HINTS {
                std::hint::spin_loop();
            }
            if ready() {
                self.spun += begun.elapsed();
                self.steady = true;
                return;
            }
        }
        self.spun = Duration::ZERO;
        if std::mem::take(&mut self.steady) {
            futex::nap(NAP);
        } else {
            ring.wait_unless(SLEEP_MAX, ready);
        }
    }
}
