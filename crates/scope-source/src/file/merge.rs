//! Several files in one order of time: whose next packet is the first of all.
//!
//! ```text
//!  current: the file that had the first packet last time; mostly it has the next one, too
//!  others:  a heap of (time of next packet, file) of all other files
//!  first  = smaller of the two by (time, file), as mergecap does: within a file the order is the file's
//! ```

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// At most this many files are read at once.
pub const FILES_MAX: usize = 1024;

/// Which file's packet comes next; bounded by [`FILES_MAX`] entries.
#[derive(Default)]
pub(super) struct Merge {
    current: Option<(i64, u32)>,
    others: BinaryHeap<Reverse<(i64, u32)>>,
}

impl Merge {
    /// Lets a file take part whose next packet is of time `time_ns`.
    pub(super) fn add(&mut self, time_ns: i64, file: u32) {
        self.others.push(Reverse((time_ns, file)));
        self.settle();
    }

    /// The file with the first packet, and that packet's time.
    #[inline]
    pub(super) fn first(&self) -> Option<(i64, u32)> {
        self.current
    }

    /// The first file's packet was taken; its next one is of time `time_ns`.
    #[inline]
    pub(super) fn replace_first(&mut self, time_ns: i64) {
        if let Some((time, _)) = &mut self.current {
            *time = time_ns;
        }
        self.settle();
    }

    /// The first file's packet was taken, and none of it is known to follow.
    pub(super) fn remove_first(&mut self) {
        self.current = self.others.pop().map(|Reverse(first)| first);
    }

    #[inline]
    fn settle(&mut self) {
        let Some(&Reverse(other)) = self.others.peek() else { return };
        if self.current.is_none_or(|current| other < current) {
            self.others.pop();
            if let Some(current) = self.current.replace(other) {
                self.others.push(Reverse(current));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_order_is_that_of_taking_the_smallest_head_again_and_again(
            files in proptest::collection::vec(proptest::collection::vec(0i64..20, 0..12), 1..6)) {
            let mut expected = Vec::new();
            let mut heads = vec![0; files.len()];
            while let Some((time, file)) = (0..files.len()).filter_map(|f| Some((*files[f].get(heads[f])?, f))).min() {
                heads[file] += 1;
                expected.push((time, file as u32));
            }
            let mut merge = Merge::default();
            let mut rest: Vec<_> = files.iter().map(|times| times.iter().copied()).collect();
            for (file, times) in rest.iter_mut().enumerate() {
                if let Some(time) = times.next() {
                    merge.add(time, file as u32);
                }
            }
            let mut taken = Vec::new();
            while let Some((time, file)) = merge.first() {
                taken.push((time, file));
                match rest[file as usize].next() {
                    Some(time) => merge.replace_first(time),
                    None => merge.remove_first(),
                }
            }
            prop_assert_eq!(taken, expected);
        }
    }
}
