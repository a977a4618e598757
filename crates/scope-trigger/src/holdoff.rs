//! Holdoff: the time after a fire in which the same trigger doesn't fire again for a hit with the same
//! values.
//!
//! ```text
//!  fires   oldest ► (values, time) | (values, time) | ... ◄ newest     at most HOLDOFF_KEYS_MAX
//!  latest  values -> time of their last fire
//! ```
//! A hit forgets at most two of the oldest fires that are over, however many there are: it costs the same
//! with a full table.

use scope_filter::Values;
use std::collections::{HashMap, VecDeque};

/// Fires that one trigger remembers. At the bound fires that are over are forgotten; where the oldest isn't
/// over, a hit with new values is held off.
pub const HOLDOFF_KEYS_MAX: usize = 65_536;
/// Fires that one hit forgets at most: more than it adds, so that the table empties.
const FORGOTTEN_MAX: usize = 2;

/// The last fires of one trigger, by key.
#[derive(Debug, Default)]
pub struct Holdoff {
    holdoff_ns: i64,
    /// In the order of firing.
    fires: VecDeque<(Values, i64)>,
    latest_ns: HashMap<Values, i64>,
}

impl Holdoff {
    /// Holds off for `holdoff_ns` after each fire; 0: never.
    pub fn new(holdoff_ns: i64) -> Holdoff {
        Holdoff { holdoff_ns, ..Holdoff::default() }
    }

    /// Whether a hit with `values` at `hit_ns` is held off. Time may have stepped back: both directions
    /// count.
    pub fn holds(&mut self, values: Values, hit_ns: i64) -> bool {
        if self.holdoff_ns <= 0 {
            return false;
        }
        match self.latest_ns.get(&values) {
            Some(&fired_ns) if !self.is_over(fired_ns, hit_ns) => true,
            _ => {
                self.forget(hit_ns);
                self.fires.len() >= HOLDOFF_KEYS_MAX
            }
        }
    }

    /// Notes a fire.
    pub fn fired(&mut self, values: Values, hit_ns: i64) {
        if self.holdoff_ns > 0 && self.fires.len() < HOLDOFF_KEYS_MAX {
            self.fires.push_back((values, hit_ns));
            self.latest_ns.insert(values, hit_ns);
        }
    }

    fn is_over(&self, fired_ns: i64, now_ns: i64) -> bool {
        now_ns.abs_diff(fired_ns) >= self.holdoff_ns as u64
    }

    /// Forgets a few of the oldest fires, if they are over.
    fn forget(&mut self, now_ns: i64) {
        for _ in 0..FORGOTTEN_MAX {
            let Some(&(values, fired_ns)) =
                self.fires.front().filter(|(_, fired_ns)| self.is_over(*fired_ns, now_ns))
            else {
                return;
            };
            self.fires.pop_front();
            // The same values may have fired again.
            if self.latest_ns.get(&values) == Some(&fired_ns) {
                self.latest_ns.remove(&values);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use scope_filter::Template;
    use scope_packet::{Headers, LinkType};

    /// Values of their own for each number.
    fn values(number: u32) -> Values {
        let mut packet = vec![0x45, 0, 0, 20, 0, 0, 0, 0, 64, 17, 0, 0];
        packet.extend(number.to_be_bytes());
        packet.extend([10, 0, 0, 1, 0, 0, 0, 0]);
        let headers = Headers::parse(LinkType::RAW, &packet);
        Template::parse("$srcIP").unwrap().values(&headers, LinkType::RAW, &packet).unwrap()
    }

    #[test]
    fn each_key_is_held_off_by_itself() {
        let (a, b) = (values(1), values(2));
        let mut holdoff = Holdoff::new(100);
        assert!(!holdoff.holds(a, 1000));
        holdoff.fired(a, 1000);
        let mut check = |key, at, expected| assert_eq!(holdoff.holds(key, at), expected, "{key:?} {at}");
        check(a, 1099, true);
        check(a, 901, true);
        check(b, 1001, false);
        check(a, 1100, false);
        check(a, 900, false);
    }

    #[test]
    fn the_table_is_bounded_and_a_hit_at_a_full_one_costs_the_same_as_at_an_empty_one() {
        let mut holdoff = Holdoff::new(100);
        let keys: Vec<Values> = (0..HOLDOFF_KEYS_MAX as u32).map(values).collect();
        for key in &keys {
            holdoff.fired(*key, 1000);
        }
        let new = values(u32::MAX);
        assert!(holdoff.holds(new, 1050), "full of keys that still hold");
        assert!(holdoff.holds(keys[0], 1050) && holdoff.fires.len() == HOLDOFF_KEYS_MAX);
        assert!(!holdoff.holds(new, 1100), "what is over makes room");
        assert_eq!(
            holdoff.fires.len(),
            HOLDOFF_KEYS_MAX - FORGOTTEN_MAX,
            "and a hit looks at no more than a few"
        );
        holdoff.fired(new, 1100);
        for _ in 0..HOLDOFF_KEYS_MAX {
            assert!(holdoff.holds(new, 1101));
        }
        assert_eq!(
            holdoff.fires.len(),
            HOLDOFF_KEYS_MAX - FORGOTTEN_MAX + 1,
            "who is held off looks at none"
        );
        for _ in 0..HOLDOFF_KEYS_MAX {
            assert!(!holdoff.holds(values(7), 5000));
        }
        assert!(holdoff.fires.is_empty() && holdoff.latest_ns.is_empty(), "all are forgotten in the end");
    }

    #[test]
    fn values_that_fire_again_are_not_forgotten_with_their_first_fire() {
        let mut holdoff = Holdoff::new(100);
        holdoff.fired(values(1), 1000);
        assert!(!holdoff.holds(values(1), 1100));
        holdoff.fired(values(1), 1100);
        assert!(!holdoff.holds(values(2), 1150), "which forgets what is over");
        assert!(holdoff.holds(values(1), 1150));
    }

    #[test]
    fn no_holdoff_holds_nothing() {
        let mut holdoff = Holdoff::new(0);
        holdoff.fired(values(1), 5);
        assert!(!holdoff.holds(values(1), 5));
    }
}
