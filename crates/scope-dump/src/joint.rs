//! What the windows of a run lack together: a packet that one of them lost may stand in another, and is lost
//! once where several lost it.
//!
//! ```text
//! window 1  |-------[ evicted, 5 ]---|                      at least 0: window 2 may have them
//! window 2              |----------------[ kernel, 3 ]---|  at least 3: nobody has them
//! ```

use crate::gaps::{GAPS_MAX, Gaps};
use scope_packet::{Gap, GapReason};

/// Windows whose spans are known. A gap of which nobody knows whether another window holds its packets counts
/// as one that does.
const WINDOWS_MAX: usize = 1 << 16;
/// Who several gaps that became one are of.
const NOBODY: u32 = u32::MAX;

/// Windows of a run and their gaps.
#[derive(Debug, Default)]
pub(crate) struct Joint {
    /// Begin and end, ns, inclusive.
    windows: Vec<(i64, i64)>,
    /// More windows came than are known.
    more: bool,
    gaps: Vec<Owned>,
}

/// A gap, and the window that has it.
#[derive(Clone, Copy, Debug)]
struct Owned {
    gap: Gap,
    window: u32,
}

impl Joint {
    /// Adds a window and its gaps, whose least numbers hold for it alone.
    pub(crate) fn add(&mut self, window: (i64, i64), gaps: &[Gap]) {
        self.more |= self.windows.len() >= WINDOWS_MAX;
        let number = if self.more { NOBODY } else { self.windows.len() as u32 };
        if !self.more {
            self.windows.push(window);
        }
        for &gap in gaps {
            if !self.gaps.iter().any(|known| known.gap == gap) {
                self.gaps.push(Owned { gap, window: number });
            }
        }
        if self.gaps.len() > 4 * GAPS_MAX {
            self.fold();
        }
    }

    /// The gaps of all windows; the least number of each holds for all windows together, and so does their
    /// sum.
    pub(crate) fn gaps(mut self) -> Vec<Gap> {
        self.keep_what_no_other_window_has();
        self.count_once();
        self.gaps.into_iter().map(|owned| owned.gap).collect()
    }

    /// Makes the nearest ones of one reason one. A window that comes later may have their packets.
    fn fold(&mut self) {
        for owned in self.gaps.iter_mut().filter(|owned| is_held_somewhere(owned.gap.reason)) {
            owned.gap.lost_min = 0;
        }
        self.count_once();
        let mut folded = Gaps::of((i64::MIN, i64::MAX));
        for owned in self.gaps.drain(..) {
            folded.add(owned.gap);
        }
        self.gaps.extend(folded.state(true).gaps.into_iter().map(|gap| Owned { gap, window: NOBODY }));
    }

    fn keep_what_no_other_window_has(&mut self) {
        let Joint { windows, more, gaps } = self;
        let touches = |owned: &Owned, number: usize, window: &(i64, i64)| {
            number as u32 != owned.window && window.0 <= owned.gap.to_ns && owned.gap.from_ns <= window.1
        };
        for owned in
            gaps.iter_mut().filter(|owned| is_held_somewhere(owned.gap.reason) && owned.gap.lost_min > 0)
        {
            let shared =
                *more || windows.iter().enumerate().any(|(number, window)| touches(owned, number, window));
            if shared {
                owned.gap.lost_min = 0;
            }
        }
    }

    /// Of gaps of one reason that overlap, the least numbers of one window stay: that of which they come to
    /// most.
    fn count_once(&mut self) {
        self.gaps.sort_by_key(|owned| (owned.gap.reason, owned.gap.from_ns, owned.gap.to_ns));
        let mut begin = 0;
        while begin < self.gaps.len() {
            let first = self.gaps[begin].gap;
            let (mut end, mut to_ns) = (begin + 1, first.to_ns);
            while let Some(next) =
                self.gaps.get(end).filter(|next| next.gap.reason == first.reason && next.gap.from_ns <= to_ns)
            {
                to_ns = to_ns.max(next.gap.to_ns);
                end += 1;
            }
            let cluster = &mut self.gaps[begin..end];
            let sum = |window| {
                cluster
                    .iter()
                    .filter(|owned| owned.window == window)
                    .map(|owned| owned.gap.lost_min)
                    .sum::<u64>()
            };
            let most = cluster.iter().map(|owned| owned.window).max_by_key(|&window| sum(window));
            for owned in cluster.iter_mut().filter(|owned| Some(owned.window) != most) {
                owned.gap.lost_min = 0;
            }
            begin = end;
        }
    }
}

/// Whether packets that one window lost for this reason may stand in another one: they came into the ring.
fn is_held_somewhere(reason: GapReason) -> bool {
    !matches!(reason, GapReason::Kernel | GapReason::RingPinned | GapReason::File | GapReason::Unreadable)
}

#[cfg(test)]
mod tests {
    use super::*;
    use GapReason::{Disk, Evicted, Kernel};

    fn gap(from_ns: i64, to_ns: i64, reason: GapReason, lost: u64) -> Gap {
        Gap { from_ns, to_ns, reason, lost_min: lost, lost_max: Some(lost) }
    }

    /// Windows with their gaps; the least numbers of what they lack together.
    fn least(windows: &[((i64, i64), &[Gap])]) -> Vec<u64> {
        let mut joint = Joint::default();
        for (window, gaps) in windows {
            joint.add(*window, gaps);
        }
        joint.gaps().iter().map(|gap| gap.lost_min).collect()
    }

    #[test]
    fn what_another_window_may_have_is_not_lost_for_sure() {
        let evicted = gap(10, 20, Evicted, 5);
        assert_eq!(least(&[((0, 30), &[evicted]), ((21, 40), &[])]), [5], "the other one begins behind it");
        assert_eq!(least(&[((0, 30), &[evicted]), ((20, 40), &[])]), [0]);
        assert_eq!(least(&[((0, 30), &[gap(10, 20, Disk, 1)]), ((0, 40), &[])]), [0]);
        assert_eq!(
            least(&[((0, 30), &[gap(10, 20, Kernel, 5)]), ((0, 40), &[])]),
            [5],
            "nobody has what never came"
        );
    }

    #[test]
    fn what_several_windows_lack_counts_once() {
        let kernel = gap(10, 20, Kernel, 5);
        assert_eq!(least(&[((0, 30), &[kernel]), ((5, 40), &[kernel])]), [5]);
        assert_eq!(least(&[((0, 30), &[kernel]), ((5, 40), &[gap(10, 25, Kernel, 7)])]), [0, 7]);
        let apart = [gap(10, 11, Kernel, 3), gap(12, 13, Kernel, 3)];
        assert_eq!(
            least(&[((0, 30), &apart), ((5, 40), &[gap(10, 13, Kernel, 5)])]),
            [3, 0, 3],
            "sorted by begin and end"
        );
    }

    #[test]
    fn folded_gaps_claim_nothing_that_a_later_window_may_have() {
        let mut joint = Joint::default();
        let many = 4 * GAPS_MAX as i64 + 1;
        for n in 0..many {
            joint.add(
                (n * 100, n * 100 + 50),
                &[gap(n * 100, n * 100 + 1, Evicted, 2), gap(n * 100 + 2, n * 100 + 3, Kernel, 2)],
            );
        }
        let gaps = joint.gaps();
        let sum =
            |reason| gaps.iter().filter(|gap| gap.reason == reason).map(|gap| gap.lost_min).sum::<u64>();
        assert!(gaps.len() <= 4 * GAPS_MAX && sum(Evicted) < 2 * many as u64);
        assert_eq!(sum(Kernel), 2 * many as u64);
    }
}
