//! Where in capture time the kernel dropped packets: its counter says how many since the last look, the looks say when.

/// Losses of one socket.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Losses {
    /// Capture clock at the last look, ns.
    looked_ns: i64,
    /// A packet may be dropped this long after it was stamped, ns.
    slack_ns: i64,
    /// Dropped and not yet told with a packet.
    untold: u64,
    /// When the first of these may have been dropped, ns.
    untold_since_ns: i64,
}

impl Losses {
    pub(crate) fn begin(clock_ns: i64, slack_ns: i64) -> Losses {
        Losses { looked_ns: clock_ns, slack_ns, untold: 0, untold_since_ns: 0 }
    }

    /// Forgets the time before `clock_ns`: capture begins there.
    pub(crate) fn look_again_from(&mut self, clock_ns: i64) {
        self.looked_ns = clock_ns;
    }

    /// Capture clock at the last look, ns: what was lost before it has been counted.
    pub(crate) fn looked_ns(&self) -> i64 {
        self.looked_ns
    }

    /// A look at `clock_ns` found `dropped` packets more; returns the span of capture time in which they fell, if there were any. Where
    /// the clock was set back meanwhile, they may have fallen at what it showed before, or behind.
    pub(crate) fn counted(&mut self, dropped: u64, clock_ns: i64) -> Option<(i64, i64)> {
        let since_ns = (self.looked_ns.min(clock_ns) - self.slack_ns).max(0);
        let until_ns = self.looked_ns.max(clock_ns);
        self.looked_ns = clock_ns;
        if dropped == 0 {
            return None;
        }
        if self.untold == 0 {
            self.untold_since_ns = since_ns;
        }
        self.untold += dropped;
        Some((since_ns, until_ns))
    }

    /// Packets lost directly before the next packet, of time `time_ns`. A full ring still holds packets from before the loss:
    /// they pass with 0, the first one that may come after it carries the count.
    pub(crate) fn before_packet(&mut self, time_ns: i64) -> u64 {
        if self.untold == 0 || time_ns < self.untold_since_ns {
            return 0;
        }
        std::mem::take(&mut self.untold)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loss_lies_between_two_looks_and_is_told_once() {
        let mut losses = Losses::begin(1000, 10);
        assert_eq!(losses.counted(0, 2000), None);
        assert_eq!(losses.counted(5, 3000), Some((1990, 3000)));
        assert_eq!(losses.counted(2, 4000), Some((2990, 4000)));
        assert_eq!(losses.before_packet(1900), 0, "an older packet of the full ring comes before the loss");
        assert_eq!(losses.before_packet(1990), 7);
        assert_eq!(losses.before_packet(4000), 0);
    }

    #[test]
    fn a_clock_that_steps_back_gives_a_span_that_holds_both_sides() {
        let mut losses = Losses::begin(1000, 10);
        assert_eq!(losses.counted(1, 500), Some((490, 1000)));
    }
}
