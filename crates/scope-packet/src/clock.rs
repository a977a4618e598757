//! The time of a process as a parameter: what the machine's clocks say, and waiting for them, so that a test
//! can stand in for both.

use std::fmt::Debug;
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// What time it is, and waiting. A trait object: one call per batch, commit or round, never per packet.
pub trait Clock: Debug + Send + Sync {
    /// Time since some moment of the past; it never steps.
    fn monotonic(&self) -> Duration;

    /// The system's clock, ns since the epoch; somebody may set it.
    fn wall_ns(&self) -> i64;

    /// Waits at most `limit` by `wait`, which may return earlier.
    fn wait(&self, limit: Duration, wait: &dyn Fn(Duration));

    /// Waits for `time`.
    fn sleep(&self, time: Duration) {
        self.wait(time, &sleep);
    }
}

/// The machine's own clocks.
#[derive(Debug)]
pub struct SystemClock {
    begun: Instant,
}

impl SystemClock {
    /// Its monotonic time begins now.
    pub fn new() -> SystemClock {
        SystemClock { begun: Instant::now() }
    }
}

impl Default for SystemClock {
    fn default() -> SystemClock {
        SystemClock::new()
    }
}

impl Clock for SystemClock {
    fn monotonic(&self) -> Duration {
        self.begun.elapsed()
    }

    fn wall_ns(&self) -> i64 {
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as i64)
    }

    fn wait(&self, limit: Duration, wait: &dyn Fn(Duration)) {
        wait(limit);
    }
}
