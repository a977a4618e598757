//! How long a dump waits for workers whose clocks have stopped.
//!
//! It counts the time in which the dump's own thread was there and no worker that it waits for came on. A
//! process that was stopped, or a worker that is behind and catches up, uses none of it up.

use scope_packet::Moment;
use std::time::Duration;

/// Of the time between two looks so much counts at most: what is more, the thread was stopped or starved, as
/// others may have been.
const SLICE_MAX: Duration = Duration::from_millis(250);

/// One dump's patience.
pub(crate) struct Patience {
    limit: Duration,
    /// Time that the dump's thread has seen pass.
    awake: Duration,
    /// Of this, since the workers last came on.
    still: Duration,
    settled: Moment,
}

impl Patience {
    pub(crate) fn new(limit: Duration) -> Patience {
        Patience { limit, awake: Duration::ZERO, still: Duration::ZERO, settled: Moment::BEGIN }
    }

    /// A look, so long after the one before it: what is settled by now, and how long after the dump's begin
    /// its window is to end. Whether patience is at its end.
    pub(crate) fn is_over(&mut self, passed: Duration, settled: Moment, rest: Duration) -> bool {
        let slice = passed.min(SLICE_MAX);
        self.awake += slice;
        self.still =
            if settled > self.settled || self.awake <= rest { Duration::ZERO } else { self.still + slice };
        self.settled = self.settled.max(settled);
        self.still > self.limit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn at(time_ns: i64) -> Moment {
        Moment::new(0, time_ns)
    }

    #[test]
    fn it_ends_where_nobody_comes_on_after_the_windows_end() {
        let mut patience = Patience::new(1000 * MS);
        let looks = (0..).find(|_| patience.is_over(100 * MS, at(5), 500 * MS));
        assert_eq!(looks, Some(15), "5 looks until the end, 10 of patience");
    }

    #[test]
    fn who_is_behind_and_comes_on_is_waited_for() {
        let mut patience = Patience::new(1000 * MS);
        assert!((0..1000).all(|n| !patience.is_over(100 * MS, at(n / 9), Duration::ZERO)));
        assert!(!patience.is_over(100 * MS, Moment::new(1, 0), Duration::ZERO), "in the next era too");
    }

    #[test]
    fn a_stop_of_any_length_is_one_look() {
        let mut patience = Patience::new(1000 * MS);
        assert!(!patience.is_over(3_600_000 * MS, at(5), Duration::ZERO));
        assert!((0..3).all(|_| !patience.is_over(3_600_000 * MS, at(5), Duration::ZERO)));
    }
}
