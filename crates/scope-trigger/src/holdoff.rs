//! Holdoff: the time after a fire in which the same trigger, or the same key of it, doesn't fire again.

use std::collections::HashMap;

/// Keys that one trigger remembers. At the bound, keys whose holdoff is over are forgotten; if none is, a new key is held off.
pub const HOLDOFF_KEYS_MAX: usize = 65_536;

/// The last fires of one trigger, per key.
#[derive(Debug, Default)]
pub struct Holdoff {
    holdoff_ns: i64,
    fired_ns: HashMap<String, i64>,
}

impl Holdoff {
    /// Holds off for `holdoff_ns` after each fire; 0: never.
    pub fn new(holdoff_ns: i64) -> Holdoff {
        Holdoff { holdoff_ns, fired_ns: HashMap::new() }
    }

    /// Whether a hit of `key` at `hit_ns` is held off. Time may have stepped back: both directions count.
    pub fn holds(&mut self, key: &str, hit_ns: i64) -> bool {
        match self.fired_ns.get(key) {
            Some(&fired_ns) => hit_ns.abs_diff(fired_ns) < self.holdoff_ns as u64,
            None => self.holdoff_ns > 0 && !self.make_room(hit_ns),
        }
    }

    /// Notes a fire.
    pub fn fired(&mut self, key: &str, hit_ns: i64) {
        if self.holdoff_ns > 0 {
            self.fired_ns.insert(key.to_string(), hit_ns);
        }
    }

    fn make_room(&mut self, now_ns: i64) -> bool {
        if self.fired_ns.len() >= HOLDOFF_KEYS_MAX {
            let holdoff_ns = self.holdoff_ns as u64;
            self.fired_ns.retain(|_, fired_ns| now_ns.abs_diff(*fired_ns) < holdoff_ns);
        }
        self.fired_ns.len() < HOLDOFF_KEYS_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_key_is_held_off_by_itself() {
        let mut holdoff = Holdoff::new(100);
        assert!(!holdoff.holds("a", 1000));
        holdoff.fired("a", 1000);
        let mut check = |key: &str, at, expected| assert_eq!(holdoff.holds(key, at), expected, "{key} {at}");
        check("a", 1099, true);
        check("a", 1100, false);
        check("a", 901, true);
        check("a", 900, false);
        check("b", 1001, false);
    }

    #[test]
    fn the_table_is_bounded_and_forgets_what_is_over() {
        let mut holdoff = Holdoff::new(100);
        for n in 0..HOLDOFF_KEYS_MAX {
            holdoff.fired(&n.to_string(), 1000);
        }
        assert!(holdoff.holds("new", 1050), "full of keys that still hold");
        assert!(!holdoff.holds("new", 1100));
        assert!(holdoff.fired_ns.is_empty());
    }

    #[test]
    fn no_holdoff_holds_nothing() {
        let mut holdoff = Holdoff::new(0);
        holdoff.fired("", 5);
        assert!(!holdoff.holds("", 5));
    }
}
