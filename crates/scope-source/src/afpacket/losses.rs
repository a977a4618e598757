//! Where in capture time the kernel dropped packets: its counter says how many since the last look, the looks
//! say when.

use super::realtime_ns;
use scope_packet::time::ERA_STEP_NS;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// A moment before or after a look at the kernel's counter.
#[derive(Clone, Copy, Debug)]
pub struct ClockReading {
    /// The clock that stamps packets, ns.
    pub clock_ns: i64,
    /// A clock that is never set.
    pub monotonic: Duration,
}

impl ClockReading {
    /// Now, for packets whose clock is `ahead_ns` ahead of the system's.
    pub fn now(ahead_ns: i64) -> ClockReading {
        static BEGUN: OnceLock<Instant> = OnceLock::new();
        ClockReading {
            monotonic: BEGUN.get_or_init(Instant::now).elapsed(),
            clock_ns: realtime_ns() + ahead_ns,
        }
    }
}

/// Losses of one socket.
#[derive(Clone, Copy, Debug)]
pub struct Losses {
    looked: ClockReading,
    /// A packet may be dropped this long after it was stamped, ns.
    slack_ns: i64,
    /// Dropped and not yet reported with a packet.
    unreported: u64,
    /// When the first of these may have been dropped, ns.
    unreported_since_ns: i64,
}

impl Losses {
    /// Nothing is lost before `look`.
    pub fn begin(look: ClockReading, slack_ns: i64) -> Losses {
        Losses { looked: look, slack_ns, unreported: 0, unreported_since_ns: 0 }
    }

    /// Forgets the time before `look`: capture begins there.
    pub fn look_again_from(&mut self, look: ClockReading) {
        self.looked = look;
    }

    /// Capture clock just before the last look, ns: what was lost before it has been counted.
    pub fn looked_ns(&self) -> i64 {
        self.looked.clock_ns
    }

    /// A look that lasted from `begun` to `look` found `dropped` packets more. The thread may stand for
    /// seconds in between, so the next loss may be as old as `begun`, and this one as young as `look`.
    /// Returns the span of capture time in which they fell, if there were any. Where the clock was set back
    /// meanwhile by [`ERA_STEP_NS`] or more, and a new era began, that is from the first time in the old era
    /// to the last one in the new, which may be smaller. After a smaller step the span holds both sides.
    pub fn counted(&mut self, dropped: u64, begun: ClockReading, look: ClockReading) -> Option<(i64, i64)> {
        let before = std::mem::replace(&mut self.looked, begun);
        if dropped == 0 {
            return None;
        }
        let passed_ns = look.monotonic.saturating_sub(before.monotonic).as_nanos() as i64;
        // What the clock would show if it had not been set.
        let unset_ns = before.clock_ns.saturating_add(passed_ns);
        let (since_ns, until_ns) = match unset_ns.saturating_sub(look.clock_ns) {
            ERA_STEP_NS.. => (before.clock_ns, look.clock_ns),
            1.. => (before.clock_ns.min(look.clock_ns.saturating_sub(passed_ns)), unset_ns),
            _ => (before.clock_ns, look.clock_ns),
        };
        let since_ns = (since_ns - self.slack_ns).max(0);
        if self.unreported == 0 {
            self.unreported_since_ns = since_ns.min(until_ns);
        }
        self.unreported += dropped;
        Some((since_ns, until_ns))
    }

    /// Packets lost directly before the next packet, of time `time_ns`. A full ring still holds packets from
    /// before the loss: they pass with 0, the first one that may come after it carries the count.
    pub(crate) fn before_packet(&mut self, time_ns: i64) -> u64 {
        if self.unreported == 0 || time_ns < self.unreported_since_ns {
            return 0;
        }
        std::mem::take(&mut self.unreported)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(clock_ns: i64, monotonic_ns: u64) -> ClockReading {
        ClockReading { clock_ns, monotonic: Duration::from_nanos(monotonic_ns) }
    }

    /// A look that took no time.
    fn counted(losses: &mut Losses, dropped: u64, look: ClockReading) -> Option<(i64, i64)> {
        losses.counted(dropped, look, look)
    }

    #[test]
    fn what_is_lost_while_a_look_lasts_belongs_to_that_look_or_to_the_next() {
        let mut losses = Losses::begin(look(1000, 0), 10);
        assert_eq!(losses.counted(1, look(2000, 1000), look(5000, 4000)), Some((990, 5000)));
        assert_eq!(losses.looked_ns(), 2000, "what was lost from there on may not be counted yet");
        assert_eq!(losses.counted(1, look(6000, 5000), look(6001, 5001)), Some((1990, 6001)));
    }

    #[test]
    fn a_loss_lies_between_two_looks_and_is_told_once() {
        let mut losses = Losses::begin(look(1000, 0), 10);
        assert_eq!(counted(&mut losses, 0, look(2000, 1000)), None);
        assert_eq!(counted(&mut losses, 5, look(3000, 2000)), Some((1990, 3000)));
        assert_eq!(counted(&mut losses, 2, look(4000, 3000)), Some((2990, 4000)));
        assert_eq!(losses.before_packet(1900), 0, "an older packet of the full ring comes before the loss");
        assert_eq!(losses.before_packet(1990), 7);
        assert_eq!(losses.before_packet(4000), 0);
    }

    #[test]
    fn a_clock_that_steps_gives_a_span_that_holds_all_that_it_may_have_shown() {
        // Back by 500 at any moment between the looks: it showed 1000 to 1100, or 500 to 600.
        let mut losses = Losses::begin(look(1000, 0), 10);
        assert_eq!(counted(&mut losses, 1, look(600, 100)), Some((490, 1100)));
        // A leap second that is set back: too little for an era.
        const S: i64 = 1_000_000_000;
        let mut losses = Losses::begin(look(100 * S, 0), 10);
        assert_eq!(counted(&mut losses, 1, look(99 * S + 5000, 5000)), Some((99 * S - 10, 100 * S + 5000)));
        // Forward by 500.
        let mut losses = Losses::begin(look(1000, 0), 10);
        assert_eq!(counted(&mut losses, 1, look(1600, 100)), Some((990, 1600)));
        // Back by 40 s: an era ends behind the first time, one begins before the last.
        let mut losses = Losses::begin(look(100 * S, 0), 10);
        assert_eq!(counted(&mut losses, 1, look(61 * S, 1_000_000_000)), Some((100 * S - 10, 61 * S)));
        assert_eq!(losses.before_packet(60 * S), 0);
        assert_eq!(losses.before_packet(61 * S), 1);
    }
}
