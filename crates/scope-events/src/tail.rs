//! The newest lines of a log in memory, numbered, for those who follow it while it is written.
//!
//! ```text
//! line        1 2 3 ........ 4096 4097
//! kept          2 3 ........ 4096 4097      behind(2) = 3 ...; behind(0) = 2 ..., and 1 was missed
//! ```

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Lines that are kept, and their bytes at most.
const LINES_MAX: usize = 4096;
const BYTES_MAX: usize = 8 << 20;

/// A line and its number; the first one of a run is 1.
pub type Numbered = (u64, Arc<str>);

/// The newest lines.
#[derive(Debug, Default)]
pub struct Tail(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    lines: VecDeque<Arc<str>>,
    bytes: usize,
    /// Number of the newest one.
    newest: u64,
}

impl Tail {
    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One more; the oldest go for it.
    pub(crate) fn push(&self, line: &str) {
        let mut kept = self.lock();
        kept.lines.push_back(line.into());
        kept.bytes += line.len();
        kept.newest += 1;
        while kept.lines.len() > LINES_MAX || kept.bytes > BYTES_MAX {
            let Some(oldest) = kept.lines.pop_front() else { break };
            kept.bytes -= oldest.len();
        }
    }

    /// At most `most` of the lines behind that number, the oldest first, and how many between are gone.
    pub fn behind(&self, number: u64, most: usize) -> (Vec<Numbered>, u64) {
        let kept = self.lock();
        let first = kept.newest + 1 - kept.lines.len() as u64;
        let from = number.saturating_add(1).max(first);
        let skipped = usize::try_from(from - first).unwrap_or(usize::MAX);
        let lines = (from..).zip(kept.lines.iter().skip(skipped).cloned()).take(most).collect();
        (lines, first.saturating_sub(number.saturating_add(1)))
    }

    /// The number of the newest line; 0: there is none yet.
    pub fn newest(&self) -> u64 {
        self.lock().newest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_numbered_and_what_is_gone_is_counted() {
        let tail = Tail::default();
        assert_eq!((tail.behind(0, 10), tail.newest()), ((vec![], 0), 0));
        for number in 1..=LINES_MAX as u64 + 10 {
            tail.push(&number.to_string());
        }
        let (lines, missed) = tail.behind(3, 2);
        assert_eq!((missed, lines[0].0, &*lines[0].1, lines.len()), (7, 11, "11", 2));
        let (lines, missed) = tail.behind(LINES_MAX as u64 + 9, 10);
        assert_eq!((missed, lines.len(), lines[0].0), (0, 1, LINES_MAX as u64 + 10));
        assert_eq!(tail.behind(u64::MAX, 10), (vec![], 0));
        tail.push(&"x".repeat(BYTES_MAX));
        assert_eq!(tail.behind(0, 10).0.len(), 1);
    }
}
