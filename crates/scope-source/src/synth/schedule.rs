//! When packet n of the generator is sent: n / rate seconds after the start, in integers, so that nothing
//! drifts.

const NS: u128 = 1_000_000_000;
/// So many packets ahead the products of a step still fit.
const AHEAD_MAX: u64 = u32::MAX as u64;

/// Time of packet `number`, ns after the start: the whole part of number x 1e9 / rate.
pub fn offset_ns(number: u64, rate: u64) -> u64 {
    u64::try_from(u128::from(number) * NS / u128::from(rate)).unwrap_or(u64::MAX)
}

/// How many packets have an exact time before `span_ns` after the start; also the number of the first that
/// has not.
pub fn packets_before(span_ns: u64, rate: u64) -> u64 {
    u64::try_from((u128::from(span_ns) * u128::from(rate)).div_ceil(NS)).unwrap_or(u64::MAX)
}

/// Walks from packet to packet without a 128-bit division for each.
///
/// ```text
/// offset(n + d) = offset(n) + d * step + (remainder(n) + d * step_remainder) / rate
/// ```
#[derive(Clone, Debug)]
pub struct Ticker {
    number: u64,
    offset_ns: u64,
    /// number x 1e9 modulo rate
    remainder: u64,
    rate: u64,
    step_ns: u64,
    step_remainder: u64,
}

impl Ticker {
    /// Stands at packet 0. `rate` is 1 to 1e9 packets/s.
    pub fn new(rate: u64) -> Ticker {
        let ns = NS as u64;
        Ticker { number: 0, offset_ns: 0, remainder: 0, rate, step_ns: ns / rate, step_remainder: ns % rate }
    }

    /// Goes on to packet `number`, not before the one where it stands, and returns its time in ns after the
    /// start.
    #[inline]
    pub fn advance_to(&mut self, number: u64) -> u64 {
        let ahead = number - self.number;
        if ahead > AHEAD_MAX {
            self.jump(number);
        } else {
            // Both products stay below 2^32 x 1e9, which is less than 2^62.
            self.offset_ns = self.offset_ns.saturating_add(ahead * self.step_ns);
            self.remainder += ahead * self.step_remainder;
            if self.remainder >= self.rate {
                self.offset_ns = self.offset_ns.saturating_add(self.remainder / self.rate);
                self.remainder %= self.rate;
            }
        }
        self.number = number;
        self.offset_ns
    }

    fn jump(&mut self, number: u64) {
        self.offset_ns = offset_ns(number, self.rate);
        self.remainder = (u128::from(number) * NS % u128::from(self.rate)) as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ten_million_steps_do_not_drift_at_odd_rates() {
        for rate in [1, 3, 7, 999_983, 1_000_000, 14_880_952, 999_999_999, 1_000_000_000] {
            let mut ticker = Ticker::new(rate);
            for number in 0..10_000_000u64 {
                let offset = ticker.advance_to(number);
                if number % 1009 == 0 || number > 9_999_990 {
                    assert_eq!(offset, offset_ns(number, rate), "packet {number} at {rate}/s");
                }
            }
        }
    }

    proptest! {
        #[test]
        fn jumps_and_steps_lead_to_the_same_time(rate in 1u64..=1_000_000_000, jumps in proptest::collection::vec(prop_oneof![0u64..100, 0u64..1 << 34], 1..50)) {
            let mut ticker = Ticker::new(rate);
            let mut number = 0;
            for jump in jumps {
                number += jump;
                prop_assert_eq!(ticker.advance_to(number), offset_ns(number, rate));
            }
        }

        #[test]
        fn packets_before_a_span_are_just_those(rate in 1u64..=1_000_000_000, span_ns in 1u64..1_000_000_000_000) {
            let count = packets_before(span_ns, rate);
            prop_assert!(offset_ns(count, rate) >= span_ns);
            prop_assert!(offset_ns(count - 1, rate) < span_ns);
        }
    }
}
