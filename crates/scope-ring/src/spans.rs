//! Times of all segments, small enough to be searched in microseconds: 16 bytes a segment, and 16 bytes for
//! every 64 of them.
//!
//! ```text
//! groups   | min max | min max | ...          64 segments each: one look shows that none of them concerns a window
//! slots    | min max | min max | min max | ...      sealed segments; free and open ones are empty (min > max)
//! ```
//! Outside the region. Written under the claim lock, read without one: bounds of a group hold at any moment
//! for every segment that stays in it, and a segment enters before its lane's next one appears in the
//! directory. So a search that first looks at each lane's newest segment and then here misses nothing that
//! was committed when it began.

use std::sync::atomic::{AtomicI64, Ordering};

/// Segments of one group.
const GROUP: usize = 64;

/// Smallest and largest time, ns.
struct Bounds {
    min_ns: AtomicI64,
    max_ns: AtomicI64,
}

impl Bounds {
    fn empty() -> Bounds {
        Bounds { min_ns: AtomicI64::new(i64::MAX), max_ns: AtomicI64::new(i64::MIN) }
    }

    fn set(&self, (min_ns, max_ns): (i64, i64)) {
        self.min_ns.store(min_ns, Ordering::Relaxed);
        self.max_ns.store(max_ns, Ordering::Relaxed);
    }

    fn get(&self) -> (i64, i64) {
        (self.min_ns.load(Ordering::Relaxed), self.max_ns.load(Ordering::Relaxed))
    }
}

/// Times of all sealed segments of a ring.
pub(crate) struct SpanTable {
    slots: Vec<Bounds>,
    groups: Vec<Bounds>,
}

impl SpanTable {
    pub(crate) fn new(segments: usize) -> SpanTable {
        SpanTable {
            slots: (0..segments).map(|_| Bounds::empty()).collect(),
            groups: (0..segments.div_ceil(GROUP)).map(|_| Bounds::empty()).collect(),
        }
    }

    /// `slot` was sealed. Under the claim lock.
    pub(crate) fn set(&self, slot: u32, min_ns: i64, max_ns: i64) {
        self.slots[slot as usize].set((min_ns, max_ns));
        self.renew_group(slot as usize / GROUP);
    }

    /// `slot` was recycled. Under the claim lock.
    pub(crate) fn clear(&self, slot: u32) {
        self.set(slot, i64::MAX, i64::MIN);
    }

    fn renew_group(&self, group: usize) {
        let slots = self.slots.iter().skip(group * GROUP).take(GROUP);
        let wider = |a: (i64, i64), b: (i64, i64)| (a.0.min(b.0), a.1.max(b.1));
        self.groups[group].set(slots.map(Bounds::get).fold((i64::MAX, i64::MIN), wider));
    }

    /// Calls `found` with every slot for whose bounds `wanted` holds. `wanted` is called for whole groups
    /// first; `state` is what `found` learns and `wanted` goes by.
    pub(crate) fn each<S>(
        &self,
        state: &mut S,
        wanted: impl Fn(&S, i64, i64) -> bool,
        mut found: impl FnMut(&mut S, u32),
    ) {
        for (group, bounds) in self.groups.iter().enumerate() {
            let (min_ns, max_ns) = bounds.get();
            if min_ns > max_ns || !wanted(state, min_ns, max_ns) {
                continue;
            }
            for (slot, bounds) in self.slots.iter().enumerate().skip(group * GROUP).take(GROUP) {
                let (min_ns, max_ns) = bounds.get();
                if min_ns <= max_ns && wanted(state, min_ns, max_ns) {
                    found(state, slot as u32);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn overlapping(table: &SpanTable, from_ns: i64, to_ns: i64) -> Vec<u32> {
        let mut found = Vec::new();
        table.each(
            &mut found,
            |_, min_ns, max_ns| max_ns >= from_ns && min_ns <= to_ns,
            |found, slot| found.push(slot),
        );
        found
    }

    #[test]
    fn only_sealed_segments_that_touch_the_window_are_found() {
        let table = SpanTable::new(150);
        for slot in 0..150 {
            table.set(slot, slot as i64 * 10, slot as i64 * 10 + 9);
        }
        assert_eq!(overlapping(&table, 635, 655), [63, 64, 65]);
        table.clear(64);
        assert_eq!(overlapping(&table, 635, 655), [63, 65]);
        table.set(64, 0, 5);
        assert_eq!(overlapping(&table, 0, 9), [0, 64]);
        assert_eq!(overlapping(&table, 1500, 9999), Vec::<u32>::new());
        assert_eq!(overlapping(&SpanTable::new(3), 0, i64::MAX), Vec::<u32>::new());
    }
}
