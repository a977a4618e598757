//! Time inside Wirescope: i64 nanoseconds since the Unix epoch, UTC, everywhere.

/// Nanoseconds in one second.
pub const NS_PER_SECOND: i64 = 1_000_000_000;
/// A time that lies farther than this from the clock, ns, is a step of time, or wrong: which of both is
/// decided before it moves a clock.
pub const STEP_NS: i64 = NS_PER_SECOND;
/// Where a live clock has been set back by so much, ns, an era begins: more than what makes a packet's time
/// odd, so that a worker that is never idle meets one.
pub const ERA_STEP_NS: i64 = STEP_NS + STEP_NS / 4;

/// A place in the course of a run: the era, then capture time. A new era begins whenever capture time is set
/// back, so moments never fall though times do; the same time in two eras is two moments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment {
    /// How often time was set back before.
    pub era: u64,
    /// Capture time, ns.
    pub time_ns: i64,
}

impl Moment {
    /// Before everything.
    pub const BEGIN: Moment = Moment { era: 0, time_ns: 0 };
    /// Nothing comes any more.
    pub const END: Moment = Moment { era: u64::MAX, time_ns: i64::MAX };

    /// `time_ns` in era `era`.
    #[inline]
    pub const fn new(era: u64, time_ns: i64) -> Moment {
        Moment { era, time_ns }
    }

    /// So many ns later (or earlier, below 0) in the same era.
    pub const fn plus(self, ns: i64) -> Moment {
        Moment { era: self.era, time_ns: self.time_ns.saturating_add(ns) }
    }

    /// Up to where this reaches in era `era`, ns: all of an era before it, nothing of one behind it.
    pub const fn within(self, era: u64) -> i64 {
        if self.era > era {
            i64::MAX
        } else if self.era < era {
            i64::MIN
        } else {
            self.time_ns
        }
    }
}

/// Clamps a time that may lie outside what is stored (0..=`i64::MAX` ns since the epoch); the flag says that
/// it did.
pub fn clamp_ns(time_ns: i128) -> (i64, bool) {
    match i64::try_from(time_ns) {
        Ok(ns) if ns >= 0 => (ns, false),
        Ok(_) => (0, true),
        Err(_) if time_ns < 0 => (0, true),
        Err(_) => (i64::MAX, true),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_go_by_era_and_then_by_time() {
        let check = |a: (u64, i64), b: (u64, i64)| {
            assert!(Moment::new(a.0, a.1) < Moment::new(b.0, b.1), "{a:?} {b:?}")
        };
        check((0, 5), (0, 6));
        check((0, 6), (1, 5));
        assert_eq!([2, 3, 4].map(|era| Moment::new(3, 7).within(era)), [i64::MAX, 7, i64::MIN]);
        assert_eq!(Moment::END.plus(1), Moment::END);
    }

    #[test]
    fn what_lies_outside_is_clamped_and_said() {
        let check = |input: i128, expected| assert_eq!(clamp_ns(input), expected, "{input}");
        check(0, (0, false));
        check(-1, (0, true));
        check(i64::MAX as i128, (i64::MAX, false));
        check(i64::MAX as i128 + 1, (i64::MAX, true));
        check(i128::MIN, (0, true));
    }
}
