//! What capture files say that a lane lacks, where no segment tells when: from which time to which it may be missing.
//!
//! ```text
//! segments of a lane    | 0 |   | 1 |   | 2 |   | 3 |   | 4 |          ... to the end of the run
//! their feet say          -       -     7 dropped  and one cut
//! missing               |----------------- 7 ---------------------|
//!                                       |----- one at least ------|
//! ```
//! Of packets that were dropped nobody knows when that was: the interface may have been silent before and behind the
//! packets of its lane. So they may be missing anywhere in the run. What a file that is cut lacks lies behind its last
//! packet.
//!
//! Feet count since the lane began, so what rose between two segments was said by the second one, or by one that isn't
//! there. Of files that were passed over only the card is known: it says how often something had been said.

use scope_packet::segment::FileLosses;
use scope_packet::{Gap, GapReason};

/// What a file that was passed over has of a lane.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PassedPart {
    /// Number of the first packet of its first segment.
    pub first: u64,
    /// How often something had been said by its end.
    pub told: u32,
}

/// A segment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    /// Number of its first packet.
    pub first_packet: u64,
    /// Smallest and largest time in its foot, ns.
    pub reach_ns: (i64, i64),
    /// What it says.
    pub file_losses: FileLosses,
}

/// A lane, segment after segment.
pub(crate) struct Course {
    /// What was passed over and lies behind, the first part last.
    passed: Vec<PassedPart>,
    /// The run's begin and end, ns.
    run_ns: (i64, i64),
    before: FileLosses,
    /// Largest time of the segment in front, where that was looked at.
    before_ns: Option<i64>,
    /// Whether the lane's begin is there; `None`: nothing came yet.
    has_begin: Option<bool>,
}

impl Course {
    /// Before the first segment of a lane, parts of which were passed over.
    pub fn new(mut passed: Vec<PassedPart>, run_ns: (i64, i64)) -> Course {
        passed.sort_unstable_by_key(|part| std::cmp::Reverse(part.first));
        Course { passed, run_ns, before: FileLosses::default(), before_ns: None, has_begin: None }
    }

    /// Takes the next segment; what it says: packets that were dropped, and files that are cut.
    pub fn go_on(&mut self, part: &Part) -> [Option<Gap>; 2] {
        let (mut dropped, mut cut) = (None, None);
        while let Some(passed) = self.passed.pop_if(|passed| passed.first <= part.first_packet) {
            // What it says lies outside of the span that is asked for, else it would have been looked into.
            self.before.told = self.before.told.max(passed.told);
            self.before_ns = None;
            self.has_begin.get_or_insert(passed.first == 0);
        }
        let (is_first, (min_ns, max_ns)) = (self.has_begin.is_none(), part.reach_ns);
        let has_begin = *self.has_begin.get_or_insert(part.first_packet == 0);
        if part.file_losses.told > self.before.told {
            let said = part.file_losses.since(&self.before);
            let (run_begin_ns, run_end_ns) = self.run_ns;
            if said.dropped > 0 {
                // It may have been where the lane's begin was, which is gone.
                let lost_min = if has_begin { said.dropped } else { 0 };
                let (from_ns, to_ns) = (run_begin_ns.min(min_ns), run_end_ns.max(max_ns));
                let (reason, lost_max) = (GapReason::File, Some(said.dropped));
                dropped = Some(Gap { from_ns, to_ns, reason, lost_min, lost_max });
            }
            if said.cut > 0 {
                let lost_min = if has_begin || !is_first { said.cut.into() } else { 0 };
                let from_ns = self.before_ns.map_or(min_ns, |before_ns| before_ns.min(min_ns));
                let (to_ns, reason) = (run_end_ns.max(max_ns), GapReason::Unreadable);
                cut = Some(Gap { from_ns, to_ns, reason, lost_min, lost_max: None });
            }
            self.before = part.file_losses;
        }
        self.before_ns = Some(max_ns);
        [dropped, cut]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gaps(
        passed: &[PassedPart],
        parts: &[(u64, (u64, u32, u32))],
    ) -> Vec<(i64, i64, GapReason, u64, Option<u64>)> {
        let (mut course, mut gaps) = (Course::new(passed.to_vec(), (-5, 999)), Vec::<Gap>::new());
        for &(first_packet, (dropped, cut, told)) in parts {
            let at = first_packet as i64 * 10;
            let file_losses = FileLosses { dropped, cut, told };
            let part = Part { first_packet, reach_ns: (at, at + 9), file_losses };
            gaps.extend(course.go_on(&part).into_iter().flatten());
        }
        gaps.iter().map(|gap| (gap.from_ns, gap.to_ns, gap.reason, gap.lost_min, gap.lost_max)).collect()
    }

    #[test]
    fn a_drop_may_be_anywhere_in_the_run_and_a_cut_file_lacks_all_up_to_its_end() {
        let said =
            gaps(&[], &[(0, (0, 0, 0)), (1, (0, 0, 0)), (2, (7, 0, 1)), (3, (7, 1, 2)), (4, (7, 1, 2))]);
        let expected = [(-5, 999, GapReason::File, 7, Some(7)), (29, 999, GapReason::Unreadable, 1, None)];
        assert_eq!(said, expected);
        assert_eq!(gaps(&[], &[(0, (0, 0, 0))]), []);
        assert_eq!(gaps(&[], &[(0, (5, 2, 3))]).len(), 2, "the first segment may say it");
    }

    #[test]
    fn of_a_lane_whose_begin_is_gone_it_may_have_been_said_there() {
        let said = gaps(&[], &[(5, (7, 1, 2)), (6, (8, 2, 4))]);
        let (file, cut) = (GapReason::File, GapReason::Unreadable);
        let expected = [
            (-5, 999, file, 0, Some(7)),
            (50, 999, cut, 0, None),
            (-5, 999, file, 0, Some(1)),
            (59, 999, cut, 1, None),
        ];
        assert_eq!(said, expected);
    }

    #[test]
    fn what_was_passed_over_is_known_by_how_often_something_was_said() {
        let passed = [PassedPart { first: 2, told: 1 }];
        let said = gaps(&passed, &[(0, (0, 0, 0)), (5, (7, 0, 1)), (6, (9, 0, 2))]);
        assert_eq!(said, [(-5, 999, GapReason::File, 9, Some(9))]);
    }
}
