//! When a recorded packet is due, if a file is played at its recorded pace or a multiple.

use std::time::{Duration, Instant};

/// The clock of a playback: capture time runs `factor` times as fast as ours, from the first packet at the
/// first poll.
pub(super) struct Pace {
    factor: f64,
    begin: Option<(Instant, i64)>,
}

impl Pace {
    pub(super) fn new(factor: f64) -> Pace {
        Pace { factor, begin: None }
    }

    /// Capture time, ns, up to which packets are due at `now`. `first_ns` is the time of the next packet; the
    /// first such call begins the playback.
    pub(super) fn due_ns(&mut self, now: Instant, first_ns: i64) -> i64 {
        let (begin, begin_ns) = *self.begin.get_or_insert((now, first_ns));
        let passed_ns = now.duration_since(begin).as_nanos() as f64 * self.factor;
        begin_ns.saturating_add(passed_ns as i64) // `as` saturates
    }

    /// Capture time was set back: the playback begins anew at the next packet.
    pub(super) fn begin_again(&mut self) {
        self.begin = None;
    }

    /// How long from the moment of `due_ns` until a packet of `time_ns` is due.
    pub(super) fn wait(&self, due_ns: i64, time_ns: i64) -> Duration {
        let ns = time_ns.saturating_sub(due_ns).max(0) as f64 / self.factor;
        Duration::from_nanos(ns.ceil() as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn at_twice_the_pace_a_second_lasts_half_as_long() {
        let mut pace = Pace::new(2.0);
        let begin = Instant::now();
        assert_eq!(pace.due_ns(begin, 1_000), 1_000);
        let due = pace.due_ns(begin + Duration::from_millis(250), 77);
        assert_eq!(due, 500_001_000);
        assert_eq!(pace.wait(due, 1_500_001_000), Duration::from_millis(500));
        assert_eq!(pace.wait(due, 0), Duration::ZERO);
    }
}
