//! How far a dump is, and how long it waits for its disk: counters that anybody may read while it is made.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How long a dump has waited for its disk, or for the reader of its pipe.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waits {
    /// For one act.
    pub longest: Duration,
    /// For all of them.
    pub total: Duration,
}

/// One that goes on, and those that are over.
#[derive(Debug, Default)]
struct Waiting {
    since: Option<Instant>,
    over: Waits,
}

/// How far one dump is.
#[derive(Debug)]
pub struct Progress {
    packets: AtomicU64,
    bytes: AtomicU64,
    reader_gone: AtomicBool,
    /// Segments held, and since when nothing has changed about it. Locked once per piece of a segment.
    hold: Mutex<(u64, Instant)>,
    /// Locked twice per act on the disk.
    waiting: Mutex<Waiting>,
}

impl Default for Progress {
    fn default() -> Progress {
        Progress {
            packets: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            reader_gone: AtomicBool::new(false),
            hold: Mutex::new((0, Instant::now())),
            waiting: Mutex::default(),
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

    /// Does something for which the disk, or the reader of a pipe, may be waited for.
    pub(crate) fn wait<T>(&self, act: impl FnOnce() -> T) -> T {
        let begun = Instant::now();
        self.waiting.lock().expect("no panic while held").since = Some(begun);
        let done = act();
        let mut waiting = self.waiting.lock().expect("no panic while held");
        let waited = begun.elapsed();
        waiting.since = None;
        waiting.over.longest = waiting.over.longest.max(waited);
        waiting.over.total += waited;
        done
    }

    /// How long it has waited so far, in acts that are over.
    pub(crate) fn waits(&self) -> Waits {
        self.waiting.lock().expect("no panic while held").over
    }

    /// How long it has been waiting by now; zero where it doesn't.
    pub fn waiting(&self) -> Duration {
        self.waiting
            .lock()
            .expect("no panic while held")
            .since
            .map_or(Duration::ZERO, |since| since.elapsed())
    }

    /// Whether the pipe that the dump is written into takes nothing more.
    pub fn reader_gone(&self) -> bool {
        self.reader_gone.load(Ordering::Relaxed)
    }

    /// Packets written, and the bytes of their blocks.
    pub fn written(&self) -> (u64, u64) {
        (self.packets.load(Ordering::Relaxed), self.bytes.load(Ordering::Relaxed))
    }

    /// Segments that are held and how long the dump has made no progress, if that is longer than `limit`.
    pub fn long_hold(&self, limit: Duration) -> Option<(u64, Duration)> {
        let (segments, since) = *self.hold.lock().expect("no panic while held");
        (segments > 0 && since.elapsed() > limit).then(|| (segments, since.elapsed()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_wait_is_measured_also_while_it_goes_on() {
        let progress = Progress::default();
        assert_eq!((progress.waits(), progress.waiting()), (Waits::default(), Duration::ZERO));
        let (short, long) = (Duration::from_millis(2), Duration::from_millis(20));
        progress.wait(|| std::thread::sleep(short));
        let seen = progress.wait(|| {
            std::thread::sleep(long);
            progress.waiting()
        });
        let waits = progress.waits();
        assert!(
            seen >= long && waits.longest >= seen && waits.total >= waits.longest + short,
            "{seen:?} {waits:?}"
        );
        assert_eq!(progress.waiting(), Duration::ZERO);
    }

    #[test]
    fn a_dump_that_holds_and_gets_on_is_not_named() {
        let progress = Progress::default();
        progress.holds(3);
        assert!(progress.long_hold(Duration::from_secs(120)).is_none());
        std::thread::sleep(Duration::from_millis(2));
        assert_eq!(progress.long_hold(Duration::from_millis(1)).map(|(segments, _)| segments), Some(3));
        progress.holds(0);
        std::thread::sleep(Duration::from_millis(2));
        assert!(progress.long_hold(Duration::from_millis(1)).is_none(), "it holds nothing");
    }
}
