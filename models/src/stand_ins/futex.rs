//! Sleeping on a word: not modelled. A missed wake-up costs a reader a millisecond by design.

use std::sync::atomic::AtomicU32;
use std::time::Duration;

pub(crate) fn wait(_word: &AtomicU32, _expected: u32, _limit: Duration) {
    loom::thread::yield_now();
}

pub(crate) fn nap(_time: Duration) {
    loom::thread::yield_now();
}

pub(crate) fn wake(_word: &AtomicU32) {}
