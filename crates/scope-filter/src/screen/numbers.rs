//! Sets of numbers as sorted ranges: what a field of the key entry may hold.

use std::sync::Arc;

/// Ranges of one set; one that would need more holds everything between its ends. Above what the longest
/// filter text makes.
const RANGES_MAX: usize = 8192;

/// A set of numbers.
#[derive(Clone, Debug, Eq)]
pub(super) struct Numbers {
    /// Inclusive, ascending; they neither overlap nor touch.
    ranges: Arc<[(u32, u32)]>,
    /// How many numbers: sets mostly differ in it.
    len: u64,
}

impl PartialEq for Numbers {
    fn eq(&self, other: &Numbers) -> bool {
        self.len == other.len && (Arc::ptr_eq(&self.ranges, &other.ranges) || self.ranges == other.ranges)
    }
}

impl Numbers {
    fn new(ranges: Vec<(u32, u32)>) -> Numbers {
        let len = ranges.iter().map(|&(first, last)| u64::from(last - first) + 1).sum();
        Numbers { ranges: ranges.into(), len }
    }

    pub fn none() -> Numbers {
        Numbers::new(Vec::new())
    }

    pub fn range(first: u32, last: u32) -> Numbers {
        if first <= last { Numbers::new(vec![(first, last)]) } else { Numbers::none() }
    }

    pub fn one(number: u32) -> Numbers {
        Numbers::range(number, number)
    }

    pub fn of(numbers: &[u32]) -> Numbers {
        Numbers::joined(numbers.iter().map(|&number| (number, number)).collect())
    }

    /// From ranges in any order.
    fn joined(mut ranges: Vec<(u32, u32)>) -> Numbers {
        ranges.sort_unstable();
        let mut joined: Vec<(u32, u32)> = Vec::with_capacity(ranges.len());
        for (first, last) in ranges {
            match joined.last_mut() {
                Some(before) if first <= before.1.saturating_add(1) => before.1 = before.1.max(last),
                _ => joined.push((first, last)),
            }
        }
        if joined.len() > RANGES_MAX {
            joined = vec![(joined[0].0, joined[joined.len() - 1].1)];
        }
        Numbers::new(joined)
    }

    pub fn ranges(&self) -> &[(u32, u32)] {
        &self.ranges
    }

    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// How many numbers.
    pub fn len(&self) -> u64 {
        self.len
    }

    #[inline]
    pub fn contains(&self, number: u32) -> bool {
        match *self.ranges {
            [(first, last)] => first <= number && number <= last,
            _ => {
                let next = self.ranges.partition_point(|&(_, last)| last < number);
                self.ranges.get(next).is_some_and(|&(first, _)| first <= number)
            }
        }
    }

    pub fn union(&self, other: &Numbers) -> Numbers {
        if other.is_within(self) {
            return self.clone();
        }
        Numbers::joined(self.ranges.iter().chain(other.ranges.iter()).copied().collect())
    }

    pub fn and(&self, other: &Numbers) -> Numbers {
        let (mut a, mut b) = (self.ranges.iter().peekable(), other.ranges.iter().peekable());
        let mut common = Vec::new();
        while let (Some(left), Some(right)) = (a.peek(), b.peek()) {
            let (first, last) = (left.0.max(right.0), left.1.min(right.1));
            if first <= last {
                common.push((first, last));
            }
            if left.1 < right.1 {
                a.next()
            } else {
                b.next()
            };
        }
        Numbers::new(common)
    }

    /// All others of 0..=`last`.
    pub fn complement(&self, last: u32) -> Numbers {
        let (mut ranges, mut next) = (Vec::with_capacity(self.ranges.len() + 1), Some(0));
        for &(from, to) in self.ranges.iter() {
            if let Some(next) = next.filter(|&next| next < from) {
                ranges.push((next, from - 1));
            }
            next = to.checked_add(1);
        }
        if let Some(next) = next.filter(|&next| next <= last) {
            ranges.push((next, last));
        }
        Numbers::new(ranges)
    }

    pub fn is_within(&self, other: &Numbers) -> bool {
        if Arc::ptr_eq(&self.ranges, &other.ranges) {
            return true;
        }
        let mut left = &*other.ranges;
        self.len <= other.len
            && self.ranges.iter().all(|&(first, last)| {
                left = &left[left.iter().position(|range| range.1 >= first).unwrap_or(left.len())..];
                left.first().is_some_and(|range| range.0 <= first && last <= range.1)
            })
    }

    /// The set as (mask, value) pairs over `bits` bits, each of a leading part of the number; `None` where it
    /// needs more than `most`.
    pub fn prefixes(&self, bits: u32, most: usize) -> Option<Vec<(u32, u32)>> {
        let all = u32::MAX >> (32 - bits);
        let mut prefixes = Vec::new();
        for &(first, last) in self.ranges.iter() {
            let (mut next, last) = (u64::from(first), u64::from(last));
            while next <= last {
                let aligned = if next == 0 { bits } else { next.trailing_zeros().min(bits) };
                let fitting = (last - next + 1).ilog2().min(aligned);
                if prefixes.len() == most {
                    return None;
                }
                prefixes.push((all & (u64::from(u32::MAX) << fitting) as u32, next as u32));
                next += 1 << fitting;
            }
        }
        Some(prefixes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LAST: u32 = 63;

    fn set() -> impl Strategy<Value = (Numbers, u64)> {
        proptest::collection::vec(0..=LAST, 0..40).prop_map(|list| {
            let bits = list.iter().fold(0u64, |bits, number| bits | 1 << number);
            (Numbers::of(&list), bits)
        })
    }

    fn bits(numbers: &Numbers) -> u64 {
        (0..=LAST).filter(|&number| numbers.contains(number)).fold(0, |bits, number| bits | 1 << number)
    }

    proptest! {
        #[test]
        fn sets_do_what_words_of_bits_do((a, x) in set(), (b, y) in set()) {
            prop_assert_eq!(bits(&a), x);
            prop_assert_eq!(a.len(), u64::from(x.count_ones()));
            prop_assert_eq!(bits(&a.union(&b)), x | y);
            prop_assert_eq!(bits(&a.and(&b)), x & y);
            prop_assert_eq!(bits(&a.complement(LAST)), !x);
            prop_assert_eq!(a.is_within(&b), x & !y == 0);
            prop_assert!(a.is_within(&a.union(&b)) && a.and(&b).is_within(&a));
            let prefixes = a.prefixes(6, usize::MAX).unwrap();
            let covered = |number: u32| prefixes.iter().any(|&(mask, value)| number & mask == value);
            prop_assert!((0..=LAST).all(|number| covered(number) == a.contains(number)));
        }
    }

    #[test]
    fn the_ends_of_all_numbers_are_numbers() {
        let all = Numbers::range(0, u32::MAX);
        assert!(all.complement(u32::MAX).is_empty() && all.len() == 1 << 32);
        assert_eq!(Numbers::one(u32::MAX).complement(u32::MAX), Numbers::range(0, u32::MAX - 1));
        assert_eq!(Numbers::one(0).complement(u32::MAX), Numbers::range(1, u32::MAX));
        assert_eq!(all.prefixes(32, 1), Some(vec![(0, 0)]));
        assert_eq!(Numbers::range(1, u32::MAX).prefixes(32, 31), None);
    }

    #[test]
    fn a_set_of_too_many_ranges_holds_more_never_less() {
        let list: Vec<u32> = (0..RANGES_MAX as u32 + 1).map(|n| n * 2 + 10).collect();
        let set = Numbers::of(&list);
        assert!(set.ranges().len() == 1 && list.iter().all(|&number| set.contains(number)));
    }
}
