//! How far a dump is: counters that anybody may read while it is made.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How far one dump is.
#[derive(Debug)]
pub struct Progress {
    packets: AtomicU64,
    bytes: AtomicU64,
    reader_gone: AtomicBool,
    /// Segments held, and since when nothing has changed about it. Locked once per piece of a segment.
    hold: Mutex<(u64, Instant)>,
}

impl Default for Progress {
    fn default() -> Progress {
        Progress {
            packets: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            reader_gone: AtomicBool::new(false),
            hold: Mutex::new((0, Instant::now())),
        }
    }
}

impl Progress {
    pub(crate) fn wrote(&self, bytes: u64) {
        self.packets.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// A piece is done with, and `segments` are held now.
    pub(crate) fn holds(&self, segments: u64) {
        *self.hold.lock().expect("no panic while held") = (segments, Instant::now());
    }

    pub(crate) fn set_reader_gone(&self) {
        self.reader_gone.store(true, Ordering::Relaxed);
    }

    /// Whether the pipe that the dump is written into takes nothing more.
    pub fn reader_gone(&self) -> bool {
        self.reader_gone.load(Ordering::Relaxed)
    }

    /// Packets written, and the bytes of their blocks.
    pub fn written(&self) -> (u64, u64) {
        (self.packets.load(Ordering::Relaxed), self.bytes.load(Ordering::Relaxed))
    }

    /// Segments that are held and since when the dump hasn't got on, if that is longer than `limit`.
    pub fn long_hold(&self, limit: Duration) -> Option<(u64, Duration)> {
        let (segments, since) = *self.hold.lock().expect("no panic while held");
        (segments > 0 && since.elapsed() > limit).then(|| (segments, since.elapsed()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dump_that_holds_and_gets_on_is_not_named() {
        let progress = Progress::default();
        progress.holds(3);
        assert!(progress.long_hold(Duration::from_secs(5)).is_none());
        std::thread::sleep(Duration::from_millis(2));
        assert_eq!(progress.long_hold(Duration::from_millis(1)).map(|(segments, _)| segments), Some(3));
        progress.holds(0);
        std::thread::sleep(Duration::from_millis(2));
        assert!(progress.long_hold(Duration::from_millis(1)).is_none(), "it holds nothing");
    }
}
