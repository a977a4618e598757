//! How many bytes a thread has with the disk at once: fewer while the disk is slow to answer, since what others ask of it,
//! the writers of stores first, waits behind them.
//!
//! ```text
//! answer within 10 ms ─► 256 KiB more, up to 4 MiB
//! later               ─► half as many, down to 256 KiB; once for all that were asked before
//! ```
//! So however many questions are asked at once, they keep the disk busy and its queue short: the additive increase and
//! multiplicative decrease of TCP, with the delay as its signal.

use std::time::{Duration, Instant};

/// Bytes at most, and at least.
pub(super) const MOST: usize = 4 << 20;
const LEAST: usize = 256 << 10;
/// Added for each answer that came soon.
const STEP: usize = 256 << 10;
/// An answer that takes longer comes from a disk that has too much to do.
const SLOW: Duration = Duration::from_millis(10);

/// That of one thread.
#[derive(Debug)]
pub(super) struct Pace {
    bytes: usize,
    /// When it was lowered last: what was asked before says nothing new.
    lowered: Option<Instant>,
}

impl Pace {
    pub const fn new() -> Pace {
        Pace { bytes: MOST, lowered: None }
    }

    /// So many bytes by now; a multiple of 4096.
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// What was asked at `begun` was answered at `now`.
    pub fn answered(&mut self, begun: Instant, now: Instant) {
        if now.saturating_duration_since(begun) <= SLOW {
            self.bytes = (self.bytes + STEP).min(MOST);
        } else if self.lowered.is_none_or(|lowered| begun >= lowered) {
            self.bytes = (self.bytes / 2).max(LEAST);
            self.lowered = Some(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_disk_gets_less_to_do_and_a_quick_one_more_within_bounds() {
        let (mut pace, begun) = (Pace::new(), Instant::now());
        let at = |ms| begun + Duration::from_millis(ms);
        // All that was asked at once says the same.
        pace.answered(at(0), at(20));
        pace.answered(at(0), at(21));
        pace.answered(at(19), at(40));
        assert_eq!(pace.bytes(), MOST / 2);
        pace.answered(at(20), at(41));
        assert_eq!(pace.bytes(), MOST / 4);
        for time in (50..1000).step_by(50) {
            pace.answered(at(time), at(time + 11));
            assert!(pace.bytes() >= LEAST && pace.bytes().is_multiple_of(4096));
        }
        assert_eq!(pace.bytes(), LEAST);
        pace.answered(at(1000), at(1010));
        assert_eq!(pace.bytes(), LEAST + STEP);
        for _ in 0..100 {
            pace.answered(at(1000), at(1001));
        }
        assert_eq!(pace.bytes(), MOST);
    }
}
