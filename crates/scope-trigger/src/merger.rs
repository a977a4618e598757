//! Matches of several workers, put in one order: so what a pattern says doesn't depend on how packets were
//! dealt to workers.
//!
//! ```text
//! worker 0:  in order ─► | m m m m | queue      out of order ─► heap ┐
//! worker 1:  in order ─► | m m |     queue      out of order ─► heap ┼─► the least of all, up to what all
//!                                                                    ┘   workers have settled
//! ```
//! A worker says with each batch up to where it has settled: no match of its own before that moment comes any
//! more. One that comes all the same is late: it is released next, and counted. **At the bound** each worker has
//! its share of waiting matches; what is more is dropped, and counted.

use crate::matches::Match;
use scope_packet::Moment;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// A match by its order.
#[derive(Clone, Copy, Debug)]
struct Ordered(Match);

impl PartialEq for Ordered {
    fn eq(&self, other: &Ordered) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Ordered {}

impl PartialOrd for Ordered {
    fn partial_cmp(&self, other: &Ordered) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Ordered {
    fn cmp(&self, other: &Ordered) -> std::cmp::Ordering {
        self.0.order().cmp(&other.0.order())
    }
}

/// What came from one worker and waits.
#[derive(Debug)]
struct Lane {
    /// In order.
    queue: VecDeque<Match>,
    /// What came behind one that is later.
    strays: BinaryHeap<Reverse<Ordered>>,
    settled: Moment,
}

impl Lane {
    fn len(&self) -> usize {
        self.queue.len() + self.strays.len()
    }

    fn first(&self) -> Option<&Match> {
        let stray = self.strays.peek().map(|Reverse(Ordered(one))| one);
        [self.queue.front(), stray].into_iter().flatten().min_by_key(|one| one.order())
    }

    fn take(&mut self) -> Option<Match> {
        let stray = self.strays.peek().map(|Reverse(Ordered(one))| one.order());
        match (self.queue.front(), stray) {
            (Some(one), Some(stray)) if stray < one.order() => self.strays.pop(),
            (None, Some(_)) => self.strays.pop(),
            _ => return self.queue.pop_front(),
        }
        .map(|Reverse(Ordered(one))| one)
    }
}

/// Puts the matches of all workers in one order.
#[derive(Debug)]
pub struct Merger {
    workers: Vec<Lane>,
    waiting_max: usize,
    released: Moment,
    dropped: u64,
    late: u64,
}

impl Merger {
    /// For so many workers, with at most `waiting_max` matches of all that wait, at least one of each.
    pub fn new(workers: usize, waiting_max: usize) -> Merger {
        let lane = || Lane { queue: VecDeque::new(), strays: BinaryHeap::new(), settled: Moment::BEGIN };
        let workers: Vec<Lane> = std::iter::repeat_with(lane).take(workers).collect();
        let waiting_max = (waiting_max / workers.len().max(1)).max(1);
        Merger { workers, waiting_max, released: Moment::BEGIN, dropped: 0, late: 0 }
    }

    /// Matches of `worker`, which has settled everything before `settled`: [`Moment::END`] where no more come.
    pub fn push(&mut self, worker: usize, matches: &[Match], settled: Moment) {
        let lane = &mut self.workers[worker];
        for one in matches {
            if lane.len() >= self.waiting_max {
                self.dropped += 1;
                continue;
            }
            self.late += u64::from(one.at < self.released);
            match lane.queue.back() {
                Some(last) if one.order() < last.order() => lane.strays.push(Reverse(Ordered(*one))),
                _ => lane.queue.push_back(*one),
            }
        }
        lane.settled = lane.settled.max(settled);
    }

    /// Up to where all workers have settled.
    pub fn settled(&self) -> Moment {
        self.workers.iter().map(|lane| lane.settled).min().unwrap_or(Moment::END)
    }

    /// Adds to `out`, in order, the matches of before the moment that all workers have settled, which is
    /// returned.
    pub fn release(&mut self, out: &mut Vec<Match>) -> Moment {
        let settled = self.settled();
        let is_settled = |one: &Match| one.at < settled || settled == Moment::END;
        loop {
            let firsts =
                self.workers.iter().enumerate().filter_map(|(worker, lane)| Some((lane.first()?, worker)));
            let least = firsts.min_by_key(|(one, _)| one.order());
            let Some(worker) = least.filter(|(one, _)| is_settled(one)).map(|(_, worker)| worker) else {
                break;
            };
            out.extend(self.workers[worker].take());
        }
        self.released = self.released.max(settled);
        settled
    }

    /// Matches that wait.
    pub fn waiting(&self) -> usize {
        self.workers.iter().map(Lane::len).sum()
    }

    /// Matches that were dropped at the bound.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Matches that came when what is later was released already.
    pub fn late(&self) -> u64 {
        self.late
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use scope_filter::Values;

    fn one(time_ns: i64, lane: u32, packet: u64) -> Match {
        Match { at: Moment::new(0, time_ns), key: Values::everything(), packet, handle: 0, lane, step: 0 }
    }

    fn released(merger: &mut Merger) -> Vec<i64> {
        let mut out = Vec::new();
        merger.release(&mut out);
        out.iter().map(|one| one.at.time_ns).collect()
    }

    #[test]
    fn a_match_waits_until_all_workers_have_settled_what_lies_before_it() {
        let mut merger = Merger::new(2, 100);
        merger.push(0, &[one(1, 0, 0), one(5, 0, 1)], Moment::new(0, 6));
        assert!(released(&mut merger).is_empty());
        merger.push(1, &[one(3, 1, 0)], Moment::new(0, 5));
        assert_eq!(released(&mut merger), [1, 3], "of its very moment more may come");
        merger.push(1, &[], Moment::END);
        assert_eq!(released(&mut merger), [5]);
        merger.push(0, &[one(4, 0, 2)], Moment::END);
        assert_eq!((released(&mut merger), merger.late(), merger.waiting()), (vec![4], 1, 0));
    }

    #[test]
    fn what_is_more_than_a_workers_share_is_dropped_and_counted() {
        let mut merger = Merger::new(2, 6);
        let many: Vec<Match> = (0..10).map(|time| one(time, 0, 0)).collect();
        merger.push(0, &many, Moment::END);
        merger.push(1, &[one(2, 1, 0)], Moment::END);
        assert_eq!((merger.dropped(), merger.waiting()), (7, 4), "the other worker keeps its share");
        assert_eq!(released(&mut merger), [0, 1, 2, 2]);
    }

    proptest! {
        #[test]
        fn what_comes_out_is_what_came_in_sorted(
            steps in prop::collection::vec((0usize..3, 0i64..20, 0i64..15), 0..200),
        ) {
            let mut merger = Merger::new(3, 1 << 20);
            let (mut all, mut out, mut settled) = (Vec::new(), Vec::new(), [0; 3]);
            for (packet, (worker, ahead, forward)) in steps.into_iter().enumerate() {
                let one = one(settled[worker] + ahead, worker as u32, packet as u64);
                all.push(one);
                settled[worker] += forward;
                let at = one.at.time_ns.min(settled[worker]);
                settled[worker] = at;
                merger.push(worker, &[one], Moment::new(0, at));
                merger.release(&mut out);
            }
            for worker in 0..3 {
                merger.push(worker, &[], Moment::END);
            }
            merger.release(&mut out);
            all.sort_by_key(Match::order);
            prop_assert_eq!(out, all);
            prop_assert_eq!((merger.late(), merger.dropped()), (0, 0));
        }
    }
}
