//! What one worker adds up for the signals: sums of its tallies by bins of capture time, handed on when no
//! packet comes any more that would belong to them.
//!
//! ```text
//!  tally\bin   │ closed, handed on │ 41 │ 42 │ 43 │ ...  at most [`SLOTS`] bins are open
//!   0 all      │                   │ 12 │    │  3 │
//!   1 tcp-syn  │                   │  2 │    │    │
//!                                  └ floor: the clock less the grace
//! ```
//! A bin lies in the slot of its number modulo [`SLOTS`], and the slot says which bin that is: a step of time
//! by a year costs what a step by a millisecond costs. A packet of a bin that is closed is counted as late, and
//! belongs to no signal.

use crate::measure::BIN_NS;

/// Bins that may be open at once: more than the longest grace has.
pub const SLOTS: usize = 2048;
/// A slot without a bin.
const EMPTY: i64 = i64::MIN;

/// What one tally has in one bin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    /// The bin.
    pub bin: i64,
    /// The tally; behind those of filters come those of losses, by reason.
    pub tally: u32,
    /// Packets.
    pub packets: u64,
    /// Bytes on the wire, where somebody wants them.
    pub bytes: u64,
}

/// The bin of a time.
#[inline]
pub const fn bin_of(time_ns: i64) -> i64 {
    time_ns.div_euclid(BIN_NS)
}

/// The open bins of one worker.
#[derive(Debug)]
pub struct Bins {
    tallies: usize,
    /// The bin of each slot.
    bins: Box<[i64]>,
    /// Packets and bytes: of each slot those of its tallies.
    sums: Box<[(u64, u64)]>,
    /// The oldest bin that is open.
    floor: i64,
    /// The latest bin that has something.
    latest: i64,
    late: u64,
}

impl Bins {
    /// For so many tallies.
    pub fn new(tallies: usize) -> Bins {
        let (bins, sums) = (vec![EMPTY; SLOTS], vec![(0, 0); SLOTS * tallies]);
        Bins { tallies, bins: bins.into(), sums: sums.into(), floor: 0, latest: EMPTY, late: 0 }
    }

    /// The oldest bin that is open.
    pub fn floor(&self) -> i64 {
        self.floor
    }

    /// Packets that came too late since the last call.
    pub fn take_late(&mut self) -> u64 {
        std::mem::take(&mut self.late)
    }

    /// Whether `bin` may be added to before anything is closed.
    #[inline]
    pub fn has_room(&self, bin: i64) -> bool {
        bin < self.floor + SLOTS as i64
    }

    /// Counts packets of a bin that is closed.
    #[cold]
    pub fn count_late(&mut self, packets: u64) {
        self.late += packets;
    }

    /// The sums of an open bin, by tally. `bin` is not below the floor, and there is room for it.
    #[inline]
    pub fn of(&mut self, bin: i64) -> &mut [(u64, u64)] {
        let slot = bin as usize % SLOTS;
        if self.bins[slot] != bin {
            debug_assert!(self.bins[slot] == EMPTY && bin >= self.floor && self.has_room(bin));
            self.bins[slot] = bin;
            self.latest = self.latest.max(bin);
        }
        &mut self.sums[slot * self.tallies..(slot + 1) * self.tallies]
    }

    /// Closes every bin below `floor`: what they have goes to `closed`, oldest first.
    pub fn close(&mut self, floor: i64, closed: &mut Vec<Sum>) {
        if floor <= self.floor {
            return;
        }
        let end = floor.min(self.latest.saturating_add(1)).min(self.floor.saturating_add(SLOTS as i64));
        for bin in self.floor..end {
            let slot = bin as usize % SLOTS;
            if self.bins[slot] != bin {
                continue;
            }
            self.bins[slot] = EMPTY;
            let sums = &mut self.sums[slot * self.tallies..(slot + 1) * self.tallies];
            for (tally, sum) in sums.iter_mut().enumerate() {
                let (packets, bytes) = std::mem::take(sum);
                if packets > 0 || bytes > 0 {
                    closed.push(Sum { bin, tally: tally as u32, packets, bytes });
                }
            }
        }
        self.floor = floor;
    }

    /// Closes all of them, and begins anew: times may be earlier from here on.
    pub fn restart(&mut self, closed: &mut Vec<Sum>) {
        self.close(self.latest.saturating_add(1), closed);
        (self.floor, self.latest) = (0, EMPTY);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    #[test]
    fn a_jump_closes_what_was_open_and_costs_no_more_than_a_step() {
        let (mut bins, mut closed) = (Bins::new(2), Vec::new());
        bins.of(5)[1] = (3, 30);
        let year = 366 * 86_400_000;
        assert!(!bins.has_room(year));
        bins.close(year - 1000, &mut closed);
        assert_eq!(closed, [Sum { bin: 5, tally: 1, packets: 3, bytes: 30 }]);
        assert!(bins.has_room(year) && bins.floor() == year - 1000);
        bins.of(year)[0].0 += 1;
        closed.clear();
        bins.restart(&mut closed);
        assert_eq!(closed[0].bin, year);
        assert!(bins.has_room(0) && bins.floor() == 0);
    }

    proptest! {
        #[test]
        fn sums_are_those_of_a_map(steps in vec((0..3000i64, 0..3usize, 1..5u64, 0..200i64), 0..300)) {
            let (mut bins, mut closed) = (Bins::new(3), Vec::new());
            let (mut map, mut floor) = (BTreeMap::<(i64, u32), (u64, u64)>::new(), 0i64);
            for (ahead, tally, packets, by) in steps {
                let bin = floor + ahead % 2000;
                let sum = &mut bins.of(bin)[tally];
                *sum = (sum.0 + packets, sum.1 + packets * 60);
                let of = map.entry((bin, tally as u32)).or_default();
                *of = (of.0 + packets, of.1 + packets * 60);
                floor += by;
                bins.close(floor, &mut closed);
            }
            bins.close(i64::MAX / 4, &mut closed);
            prop_assert!(closed.windows(2).all(|pair| pair[0].bin <= pair[1].bin));
            let closed: BTreeMap<_, _> =
                closed.iter().map(|sum| ((sum.bin, sum.tally), (sum.packets, sum.bytes))).collect();
            prop_assert_eq!(closed, map);
        }
    }
}
