//! Which times of live packets move a worker's clock: those that the clock which stamped them bears out.
//!
//! | stamped by | a time that isn't near the worker's clock |
//! |---|---|
//! | the system's clock | ahead: believed up to now, or to what that clock would show if it hadn't been set back since, else a stray; behind: a new era if that clock was set back, else a stray |
//! | the card's clock | the first of all is believed: nobody knows how that clock stands; later a stray, but the 16th that follows another nearly at once is believed; behind the clock it begins an era |
//! | the generator | believed |

use crate::steps::{ClockStep, Steps};
use scope_packet::time::STEP_NS;
use scope_packet::{Clock, Moment, TimestampSource};

/// Packets in a row that together are believed of a clock that can't be asked.
const RUN_PACKETS: u32 = 16;
/// A source whose idle clock lies farther than this from the system's, ns, has one of its own.
const OWN_CLOCK_NS: i64 = 10 * STEP_NS;

/// What is made of a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// It moves the clock.
    Believed,
    /// It moves nothing.
    Stray,
    /// It begins this era.
    Back(u64),
}

/// What one live worker remembers of odd times.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LiveTimes {
    /// Some packet has come: the clock isn't only what the system's says.
    begun: bool,
    /// Odd times of the card's clock in a row, and the last of them.
    run: (u32, i64),
}

impl LiveTimes {
    /// Packets came whose times are near the worker's clock.
    #[inline]
    pub(crate) fn near(&mut self) {
        self.begun = true;
    }

    /// Judges the next packet's time; the worker stands at `at`.
    pub(crate) fn judge(
        &mut self,
        time_ns: i64,
        stamped: TimestampSource,
        at: Moment,
        steps: &Steps,
        clock: &dyn Clock,
    ) -> Taken {
        if time_ns.abs_diff(at.time_ns) <= STEP_NS as u64 {
            self.run.0 = 0;
            self.begun = true;
            return Taken::Believed;
        }
        match stamped {
            TimestampSource::Generator | TimestampSource::File => Taken::Believed,
            TimestampSource::Kernel if time_ns > at.time_ns => {
                let borne_out = |now_ns: i64| time_ns <= now_ns.saturating_add(STEP_NS);
                // Where the clock was set back, packets from before it may still be coming.
                let before =
                    || steps.look(clock) > at.era && steps.unset_ns(at.era, clock).is_some_and(borne_out);
                match borne_out(clock.wall_ns()) {
                    // Who has heard nothing yet begins where the clock is by now.
                    true if at.time_ns == 0 && steps.look(clock) > at.era => Taken::Back(steps.era()),
                    true => Taken::Believed,
                    false if before() => Taken::Believed,
                    false => Taken::Stray,
                }
            }
            TimestampSource::Kernel => match steps.look(clock) {
                era if era > at.era => Taken::Back(era),
                _ => Taken::Stray,
            },
            TimestampSource::Hardware => self.judge_own(time_ns, at, steps),
        }
    }

    /// The same of a clock that can't be asked.
    fn judge_own(&mut self, time_ns: i64, at: Moment, steps: &Steps) -> Taken {
        let follows = time_ns.abs_diff(self.run.1) <= STEP_NS as u64;
        self.run = (if follows { self.run.0 + 1 } else { 1 }, time_ns);
        let is_first = !std::mem::replace(&mut self.begun, true);
        if self.run.0 < RUN_PACKETS && !is_first {
            return Taken::Stray;
        }
        self.run.0 = 0;
        if time_ns > at.time_ns {
            return Taken::Believed;
        }
        let known = steps.era();
        let by_ns = time_ns.saturating_sub(at.time_ns);
        Taken::Back(if known > at.era {
            known
        } else {
            steps.begin_era(ClockStep { to_ns: time_ns, by_ns, of_card: true })
        })
    }

    /// Nothing comes, and the source's clock is at `clock_ns`: the era that the worker comes into, if it
    /// does.
    pub(crate) fn idle(&self, clock_ns: i64, at: Moment, steps: &Steps, clock: &dyn Clock) -> Option<u64> {
        let is_back = clock_ns < at.time_ns.saturating_sub(STEP_NS);
        let era = if is_back { steps.look(clock) } else { steps.era() };
        let of_system = || clock_ns.abs_diff(clock.wall_ns()) <= OWN_CLOCK_NS as u64;
        (era > at.era && of_system()).then_some(era)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicI64, Ordering};
    use std::time::Duration;

    const S: i64 = 1_000_000_000;

    /// A clock that stands where it was put.
    #[derive(Debug, Default)]
    struct Set {
        wall_ns: AtomicI64,
        monotonic_ns: AtomicI64,
    }

    impl Set {
        /// `seconds` pass, and somebody sets it by so many more.
        fn go(&self, seconds: i64, by: i64) {
            self.monotonic_ns.fetch_add(seconds * S, Ordering::Relaxed);
            self.wall_ns.fetch_add((seconds + by) * S, Ordering::Relaxed);
        }
    }

    impl Clock for Set {
        fn monotonic(&self) -> Duration {
            Duration::from_nanos(self.monotonic_ns.load(Ordering::Relaxed) as u64)
        }

        fn wall_ns(&self) -> i64 {
            self.wall_ns.load(Ordering::Relaxed)
        }

        fn wait(&self, _limit: Duration, _wait: &dyn Fn(Duration)) {}
    }

    fn begin() -> (Set, Steps) {
        let (clock, steps) = (Set::default(), Steps::default());
        clock.go(0, 1000);
        assert_eq!(steps.look(&clock), 0);
        (clock, steps)
    }

    #[test]
    fn the_system_s_clock_bounds_what_moves_a_worker_s() {
        let (clock, steps) = begin();
        let mut times = LiveTimes::default();
        let mut check = |time_s: i64, at_s: i64, expected| {
            let taken =
                times.judge(time_s * S, TimestampSource::Kernel, Moment::new(0, at_s * S), &steps, &clock);
            assert_eq!(taken, expected, "{time_s} at {at_s}");
        };
        check(1000, 0, Taken::Believed);
        check(1001, 1000, Taken::Believed);
        check(37_000, 1000, Taken::Stray);
        check(995, 900, Taken::Believed);
        check(900, 1000, Taken::Stray);
    }

    #[test]
    fn a_clock_set_back_begins_an_era_with_the_first_packet_or_while_nothing_comes() {
        let (clock, steps) = begin();
        clock.go(1, -40);
        let mut times = LiveTimes::default();
        let at = Moment::new(0, 1000 * S);
        assert_eq!(times.judge(961 * S, TimestampSource::Kernel, at, &steps, &clock), Taken::Back(1));
        assert_eq!(times.idle(961 * S, at, &steps, &clock), Some(1));
        assert_eq!(times.idle(961 * S, Moment::new(1, 960 * S), &steps, &clock), None);
        assert_eq!(times.idle(500 * S, at, &steps, &clock), None, "it has a clock of its own");
        assert_eq!(times.judge(500 * S, TimestampSource::Generator, at, &steps, &clock), Taken::Believed);
    }

    #[test]
    fn the_first_time_of_a_card_is_believed_however_its_clock_stands() {
        let (clock, steps) = begin();
        let at = Moment::new(0, 1000 * S);
        let first = |time_s: i64| {
            LiveTimes::default().judge(time_s * S, TimestampSource::Hardware, at, &steps, &clock)
        };
        assert_eq!(first(1037), Taken::Believed, "TAI");
        assert_eq!(first(12), Taken::Back(1), "never set");
        assert!(steps.news().0[0].text().starts_with("a card's clock"));
    }

    #[test]
    fn what_was_stamped_before_the_clock_was_set_back_is_believed_until_the_new_era_begins() {
        let (clock, steps) = begin();
        clock.go(3, -40);
        let mut times = LiveTimes::default();
        let mut judge =
            |time_s: i64, at| times.judge(time_s * S, TimestampSource::Kernel, at, &steps, &clock);
        assert_eq!(judge(1003, Moment::new(0, 1000 * S)), Taken::Believed);
        assert_eq!(judge(1005, Moment::new(0, 1000 * S)), Taken::Stray, "no clock has shown that");
        assert_eq!(judge(963, Moment::new(0, 1003 * S)), Taken::Back(1));
        assert_eq!(judge(963, Moment::BEGIN), Taken::Back(1), "of the era before it has heard nothing");
        assert_eq!(judge(1003, Moment::BEGIN), Taken::Believed);
        assert_eq!(judge(1003, Moment::new(1, 963 * S)), Taken::Stray);
        clock.go(1, -40);
        assert_eq!(judge(1003, Moment::new(0, 1000 * S)), Taken::Believed, "two steps ago");
    }

    #[test]
    fn the_card_s_clock_is_believed_when_it_goes_on() {
        let (clock, steps) = begin();
        let mut times = LiveTimes::default();
        let at = Moment::new(0, 1000 * S);
        times.near();
        let mut told = |time_s: i64| times.judge(time_s * S, TimestampSource::Hardware, at, &steps, &clock);
        assert_eq!(told(9000), Taken::Stray);
        assert_eq!(told(1000), Taken::Believed);
        assert!((1..RUN_PACKETS).all(|_| told(9000) == Taken::Stray));
        assert_eq!(told(9000), Taken::Believed);
        assert!((1..RUN_PACKETS).all(|_| told(10) == Taken::Stray));
        assert_eq!(told(10), Taken::Back(1));
    }
}
