//! First, last, smallest and largest time of the packets of the open segment, and whether time ever stepped
//! back.

/// Times of the packets of the open segment, ns.
#[derive(Clone)]
pub struct Times {
    /// None was noted yet.
    empty: bool,
    first_ns: i64,
    last_ns: i64,
    min_ns: i64,
    /// While there is none, so large that no time is larger.
    max_ns: i64,
    pub unordered: bool,
}

impl Times {
    pub const NONE: Times =
        Times { empty: true, first_ns: 0, last_ns: 0, min_ns: i64::MAX, max_ns: i64::MAX, unordered: false };

    /// Notes packets whose times never fall, from `first_ns` to `last_ns`. False: that begins before what was
    /// noted, and nothing is.
    #[inline]
    pub fn note_run(&mut self, first_ns: i64, last_ns: i64) -> bool {
        if self.empty {
            self.note(first_ns);
        } else if first_ns < self.max_ns {
            return false;
        }
        (self.last_ns, self.max_ns) = (last_ns, last_ns);
        true
    }

    /// Notes one packet.
    #[inline]
    pub fn note(&mut self, time_ns: i64) {
        if time_ns > self.max_ns {
            (self.last_ns, self.max_ns) = (time_ns, time_ns); // time went on, as it mostly does
        } else {
            self.note_odd(time_ns);
        }
    }

    /// Smallest and largest time, and whether times step back, of what was noted; there was something.
    pub fn span(&self) -> (i64, i64, bool) {
        (self.min_ns, self.max_ns, self.unordered)
    }

    /// Whether nothing was noted.
    pub fn is_empty(&self) -> bool {
        self.empty
    }

    /// These and, behind them, those of `later`.
    pub fn and(&self, later: &Times) -> Times {
        match (self.empty, later.empty) {
            (_, true) => self.clone(),
            (true, _) => later.clone(),
            _ => Times {
                empty: false,
                first_ns: self.first_ns,
                last_ns: later.last_ns,
                min_ns: self.min_ns.min(later.min_ns),
                max_ns: self.max_ns.max(later.max_ns),
                unordered: self.unordered || later.unordered || later.first_ns < self.last_ns,
            },
        }
    }

    /// First, last, smallest and largest time; zeros, and no smallest one, where there was none. Begins anew.
    pub fn take(&mut self) -> [i64; 4] {
        let times = std::mem::replace(self, Times::NONE);
        if times.empty {
            [0, 0, i64::MAX, 0]
        } else {
            [times.first_ns, times.last_ns, times.min_ns, times.max_ns]
        }
    }

    #[inline(never)]
    fn note_odd(&mut self, time_ns: i64) {
        if self.empty {
            *self = Times {
                empty: false,
                first_ns: time_ns,
                last_ns: time_ns,
                min_ns: time_ns,
                max_ns: time_ns,
                unordered: false,
            };
            return;
        }
        self.unordered |= time_ns < self.last_ns;
        self.last_ns = time_ns;
        self.min_ns = self.min_ns.min(time_ns);
        self.max_ns = self.max_ns.max(time_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn result(mut times: Times) -> ([i64; 4], bool) {
        let unordered = times.unordered;
        (times.take(), unordered)
    }

    fn sorted(mut run: Vec<i64>) -> Vec<i64> {
        run.sort_unstable();
        run
    }

    proptest! {
        #[test]
        fn a_run_noted_at_once_is_as_its_packets_noted_one_by_one(runs in proptest::collection::vec(
            proptest::collection::vec(0i64..50, 1..9), 0..6)) {
            let (mut at_once, mut singly) = (Times::NONE, Times::NONE);
            let runs: Vec<Vec<i64>> = runs.into_iter().map(sorted).collect();
            for run in &runs {
                let noted = at_once.note_run(*run.first().unwrap(), *run.last().unwrap());
                for &time_ns in run {
                    singly.note(time_ns);
                    if !noted {
                        at_once.note(time_ns);
                    }
                }
            }
            let all: Vec<i64> = runs.iter().flatten().copied().collect();
            let ordered = all.is_sorted();
            prop_assert_eq!(result(at_once), result(singly.clone()));
            for cut in 0..=all.len() {
                let (mut before, mut behind) = (Times::NONE, Times::NONE);
                for &time_ns in &all[..cut] {
                    before.note(time_ns);
                }
                for &time_ns in &all[cut..] {
                    behind.note(time_ns);
                }
                prop_assert_eq!(result(before.and(&behind)), result(singly.clone()));
            }
            let (times, stepped_back) = result(singly);
            prop_assert_eq!(stepped_back, !ordered);
            if let (Some(&first), Some(&last)) = (all.first(), all.last()) {
                prop_assert_eq!(times, [first, last, *all.iter().min().unwrap(), *all.iter().max().unwrap()]);
            }
        }
    }
}
