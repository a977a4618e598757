//! When a packet is due, in ns since the first one could be sent.
//!
//! ```text
//! as recorded, times a factor:  due = begin of the era + (time - first time of the era) / factor, never falling
//! at a rate:                    packet n is due at n / rate
//! as fast as it goes:           always
//! ```
//! An era begins where capture time was set back, and where a file is read once more: its first packet is due with
//! the last one before it. A time that isn't believed waits for nothing.

/// How fast packets are sent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pace {
    /// As fast as it goes.
    Max,
    /// The recorded pace times this, finite and above 0.
    Recorded(f64),
    /// So many packets/s, at least 1.
    Rate(u64),
}

/// Dates packets, in the order in which they are read.
#[derive(Clone, Debug)]
pub struct Schedule {
    pace: Pace,
    /// Packets that were dated.
    number: u64,
    /// Capture time of the era's first packet, ns; `None`: it is still to come.
    base_ns: Option<i64>,
    /// When that was due.
    era_ns: u64,
    /// When the last packet was due.
    last_ns: u64,
}

impl Schedule {
    /// Before the first packet.
    pub fn new(pace: Pace) -> Schedule {
        Schedule { pace, number: 0, base_ns: None, era_ns: 0, last_ns: 0 }
    }

    /// When the next packet is due, ns. `time_ns` is its capture time; `None`: that is not believed.
    pub fn due_ns(&mut self, time_ns: Option<i64>) -> u64 {
        let number = self.number;
        self.number += 1;
        let due_ns = match (self.pace, time_ns) {
            (Pace::Max, _) => 0,
            (Pace::Rate(rate), _) => {
                let ns = u128::from(number) * 1_000_000_000 / u128::from(rate.max(1));
                u64::try_from(ns).unwrap_or(u64::MAX)
            }
            (Pace::Recorded(_), None) => self.last_ns,
            (Pace::Recorded(factor), Some(time_ns)) => {
                let base_ns = *self.base_ns.get_or_insert(time_ns);
                let passed_ns = time_ns.saturating_sub(base_ns).max(0) as f64 / factor;
                self.era_ns.saturating_add(passed_ns as u64) // `as` saturates
            }
        };
        self.last_ns = self.last_ns.max(due_ns);
        self.last_ns
    }

    /// A new era begins with the next packet.
    pub fn begin_era(&mut self) {
        self.base_ns = None;
        self.era_ns = self.last_ns;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn due(pace: Pace, times_ns: &[i64]) -> Vec<u64> {
        let mut schedule = Schedule::new(pace);
        times_ns.iter().map(|&time_ns| schedule.due_ns(Some(time_ns))).collect()
    }

    #[test]
    fn packets_are_due_as_recorded_at_a_multiple_of_it_at_a_rate_or_at_once() {
        let times_ns = [1_000, 2_000, 1_500, 5_000];
        assert_eq!(due(Pace::Recorded(1.0), &times_ns), [0, 1_000, 1_000, 4_000], "it never falls");
        assert_eq!(due(Pace::Recorded(2.0), &times_ns), [0, 500, 500, 2_000]);
        assert_eq!(due(Pace::Recorded(0.5), &times_ns), [0, 2_000, 2_000, 8_000]);
        assert_eq!(due(Pace::Rate(4), &times_ns), [0, 250_000_000, 500_000_000, 750_000_000]);
        assert_eq!(due(Pace::Rate(3), &[0; 4])[3], 1_000_000_000, "nothing adds up");
        assert_eq!(due(Pace::Max, &times_ns), [0; 4]);
    }

    #[test]
    fn time_that_was_set_back_and_a_file_that_is_read_again_go_on_at_once() {
        let mut schedule = Schedule::new(Pace::Recorded(1.0));
        assert_eq!([1_000, 3_000].map(|time| schedule.due_ns(Some(time))), [0, 2_000]);
        schedule.begin_era();
        assert_eq!([10, 510].map(|time| schedule.due_ns(Some(time))), [2_000, 2_500]);
        schedule.begin_era();
        schedule.begin_era();
        assert_eq!(schedule.due_ns(Some(10)), 2_500);
    }

    #[test]
    fn a_time_that_is_not_believed_waits_for_nothing() {
        let mut schedule = Schedule::new(Pace::Recorded(1.0));
        assert_eq!(schedule.due_ns(None), 0);
        assert_eq!(schedule.due_ns(Some(1_000)), 0);
        assert_eq!(schedule.due_ns(Some(2_000)), 1_000);
        assert_eq!(schedule.due_ns(None), 1_000);
        assert_eq!(schedule.due_ns(Some(3_000)), 2_000);
    }
}
