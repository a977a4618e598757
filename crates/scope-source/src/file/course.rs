//! Whether the time of a packet is believed: one wrong time must not move the clock, a clock that was set
//! must.
//!
//! ```text
//! clock   the largest time believed so far; the first packet's is
//! near    at most STEP_NS from the clock: believed
//! ahead   by more: believed, unless more than half of the next 15 packets lie more than STEP_NS before it
//! behind  by more: believed, if of it and the next 15 packets more than half lie more than STEP_NS before the clock, and it isn't
//!         the last: time was set back, the clock is this time now
//! ```
//! What isn't believed is a stray: it stays in its place and moves nothing. The rule knows the packets of one
//! file in their order and nothing else, so the answer is the same at any speed and for any number of
//! workers. `scope-testkit` has it a second time, written naively.

use scope_packet::time::STEP_NS;

/// Packets behind an odd one that are looked at.
pub(super) const BEHIND_PACKETS: usize = 15;

/// What is made of a packet's time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Judgement {
    /// It is believed.
    Believed,
    /// It isn't.
    Stray,
}

/// The clock of one file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Course {
    clock_ns: i64,
}

impl Course {
    /// Begins at the first packet.
    pub(super) fn begin(first_ns: i64) -> Course {
        Course { clock_ns: first_ns }
    }

    pub(super) fn clock_ns(&self) -> i64 {
        self.clock_ns
    }

    /// Moves the clock on to a time that is near; false: that must be judged.
    #[inline]
    pub(super) fn advance_if_near(&mut self, time_ns: i64) -> bool {
        let is_near = time_ns.abs_diff(self.clock_ns) <= STEP_NS as u64;
        if is_near {
            self.clock_ns = self.clock_ns.max(time_ns);
        }
        is_near
    }

    /// Judges a time by those of the packets behind it: [`BEHIND_PACKETS`], or all there are.
    pub(super) fn judge(&mut self, time_ns: i64, behind: impl ExactSizeIterator<Item = i64>) -> Judgement {
        let packets = behind.len();
        let before = |bound_ns: i64, behind: &mut dyn Iterator<Item = i64>| {
            behind.filter(|time_ns| *time_ns < bound_ns.saturating_sub(STEP_NS)).count()
        };
        let mut behind = behind;
        let believed = if time_ns > self.clock_ns {
            2 * before(time_ns, &mut behind) <= packets
        } else {
            packets > 0 && 2 * (1 + before(self.clock_ns, &mut behind)) > 1 + packets
        };
        if !believed {
            return Judgement::Stray;
        }
        self.clock_ns = time_ns;
        Judgement::Believed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const S: i64 = 1_000_000_000;

    /// `!` behind what is a stray.
    fn judged(seconds: &[i64]) -> String {
        let times: Vec<i64> = seconds.iter().map(|second| second * S).collect();
        let mut course = Course::begin(times[0]);
        let mut words = Vec::new();
        for (at, &time_ns) in times.iter().enumerate() {
            let rest = &times[at + 1..times.len().min(at + 1 + BEHIND_PACKETS)];
            let judgement = if course.advance_if_near(time_ns) {
                Judgement::Believed
            } else {
                course.judge(time_ns, rest.iter().copied())
            };
            words.push(format!("{}{}", seconds[at], if judgement == Judgement::Stray { "!" } else { "" }));
        }
        words.join(" ")
    }

    #[test]
    fn what_the_packets_behind_it_don_t_bear_out_moves_nothing() {
        assert_eq!(judged(&[5, 5, 99, 5, 6, 6]), "5 5 99! 5 6 6");
        assert_eq!(judged(&[50, 50, 9, 50, 51]), "50 50 9! 50 51");
        assert_eq!(judged(&[50, 9]), "50 9!", "the last one has none behind it to bear it out");
        assert_eq!(judged(&[5, 99, 99, 99, 5, 6, 6, 6]), "5 99! 99! 99! 5 6 6 6");
    }

    #[test]
    fn what_goes_on_is_believed() {
        assert_eq!(judged(&[0, 60, 3600, 7200]), "0 60 3600 7200", "a capture with gaps");
        assert_eq!(judged(&[0, 1, 2000, 2001, 2002]), "0 1 2000 2001 2002", "put right after boot");
        assert_eq!(judged(&[50, 51, 10, 11, 12]), "50 51 10 11 12", "another file behind");
        assert_eq!(judged(&[2, 4, 6, 4, 8, 10]), "2 4 6 4! 8 10");
    }

    proptest! {
        #[test]
        fn a_clock_falls_only_by_a_step_and_a_stray_moves_none(
            times in proptest::collection::vec(0i64..30 * S, 1..60)) {
            let mut course = Course::begin(times[0]);
            for (at, &time_ns) in times.iter().enumerate() {
                let clock_ns = course.clock_ns();
                let rest = &times[at + 1..times.len().min(at + 1 + BEHIND_PACKETS)];
                let near = course.advance_if_near(time_ns);
                prop_assert_eq!(near, (time_ns - clock_ns).abs() <= S);
                let judgement = if near { Judgement::Believed } else { course.judge(time_ns, rest.iter().copied()) };
                match judgement {
                    Judgement::Stray => prop_assert_eq!(course.clock_ns(), clock_ns),
                    Judgement::Believed if near => prop_assert_eq!(course.clock_ns(), clock_ns.max(time_ns)),
                    Judgement::Believed => prop_assert_eq!(course.clock_ns(), time_ns),
                }
            }
        }
    }
}
