//! Sharing a search among threads: each takes the next segment that may hold something.

use crate::pin::Pinned;
use crate::ring::Ring;
use crate::search::{KeyTest, SegmentSpan};
use crate::summary::Summaries;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// What became of the segments that touch a search's span.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SearchCounts {
    /// Handed out to be scanned.
    pub scanned: u64,
    /// Skipped because their summaries say no.
    pub skipped: u64,
    /// Recycled before their turn came.
    pub gone: u64,
}

/// The segments of one search, smallest times first, shared by any number of threads.
pub struct SegmentQueue {
    ring: Arc<Ring>,
    summaries: Option<Arc<Summaries>>,
    test: KeyTest,
    segments: Vec<SegmentSpan>,
    next: AtomicUsize,
    scanned: AtomicU64,
    skipped: AtomicU64,
    gone: AtomicU64,
}

impl SegmentQueue {
    /// All segments that touch `from_ns..=to_ns` now. With `summaries`, those that can't hold what `test`
    /// matches are skipped.
    pub fn new(
        ring: &Arc<Ring>,
        test: KeyTest,
        (from_ns, to_ns): (i64, i64),
        summaries: Option<Arc<Summaries>>,
    ) -> SegmentQueue {
        SegmentQueue {
            ring: ring.clone(),
            summaries,
            test,
            segments: ring.overlapping(from_ns, to_ns),
            next: AtomicUsize::new(0),
            scanned: AtomicU64::new(0),
            skipped: AtomicU64::new(0),
            gone: AtomicU64::new(0),
        }
    }

    /// What is searched for.
    pub fn test(&self) -> &KeyTest {
        &self.test
    }

    /// The next segment to be scanned, held; every segment goes to one caller. `None`: there are no more.
    pub fn take(&self) -> Option<Pinned> {
        loop {
            let span = self.segments.get(self.next.fetch_add(1, Ordering::Relaxed))?;
            let Some(pinned) = self.ring.pin(span.segment) else {
                self.gone.fetch_add(1, Ordering::Relaxed);
                continue;
            };
            if self.summaries.as_ref().is_some_and(|summaries| !summaries.may_hold(&pinned, &self.test)) {
                self.skipped.fetch_add(1, Ordering::Relaxed);
                continue;
            }
            self.scanned.fetch_add(1, Ordering::Relaxed);
            return Some(pinned);
        }
    }

    /// What became of the segments so far.
    pub fn counts(&self) -> SearchCounts {
        SearchCounts {
            scanned: self.scanned.load(Ordering::Relaxed),
            skipped: self.skipped.load(Ordering::Relaxed),
            gone: self.gone.load(Ordering::Relaxed),
        }
    }
}
