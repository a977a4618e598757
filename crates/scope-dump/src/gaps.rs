//! What a dump's window lacks: gaps gathered from all who know of one, joined where they belong together, and
//! bounded.

use scope_packet::{Gap, GapReason};
use scope_spelling::time;

/// Gaps that a dump states one by one. Where there are more, the nearest ones of the same reason become one,
/// which is counted.
pub const GAPS_MAX: usize = 64;

/// Gaps that a line of words has one by one.
const GAPS_SHOWN: usize = 3;

/// The gaps of one window.
pub(crate) struct Gaps {
    /// Begin and end, ns, inclusive.
    window: (i64, i64),
    list: Vec<Gap>,
}

/// The gaps of a window in order, and what they come to.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Stated {
    pub gaps: Vec<Gap>,
    /// Gaps that became one with another, because there were too many.
    pub folded: u64,
    /// Packets lost, at least.
    pub lost_min: u64,
    /// Packets lost, at most; `u64::MAX` where nobody can know.
    pub lost_max: u64,
    /// From the first gap's begin to the last one's end.
    pub span_ns: Option<(i64, i64)>,
}

impl Gaps {
    /// None yet, of a window with these ends.
    pub(crate) fn of(window: (i64, i64)) -> Gaps {
        Gaps { window, list: Vec::new() }
    }

    /// Adds what of `gap` lies inside the window. Where it begins or ends outside, nobody knows how many of
    /// its packets are inside.
    pub(crate) fn add(&mut self, gap: Gap) {
        let (from_ns, to_ns) = (gap.from_ns.max(self.window.0), gap.to_ns.min(self.window.1));
        if from_ns <= to_ns {
            let whole = (from_ns, to_ns) == (gap.from_ns, gap.to_ns);
            self.list.push(Gap { from_ns, to_ns, lost_min: if whole { gap.lost_min } else { 0 }, ..gap });
        }
    }

    /// Adds packets that are missing, between `min` and `max`, somewhere in `span_ns`; nothing where there
    /// are none.
    pub(crate) fn add_lost(
        &mut self,
        reason: GapReason,
        (lost_min, lost_max): (u64, u64),
        span_ns: Option<(i64, i64)>,
    ) {
        if lost_max > 0 {
            let (from_ns, to_ns) = span_ns.unwrap_or(self.window);
            let (from_ns, to_ns) =
                (from_ns.clamp(self.window.0, self.window.1), to_ns.clamp(self.window.0, self.window.1));
            self.list.push(Gap { from_ns, to_ns, reason, lost_min, lost_max: Some(lost_max) });
        }
    }

    /// Joins, sorts and bounds them. `everything`: the dump takes every packet; else nobody knows whether a
    /// lost one belongs to it.
    pub(crate) fn state(mut self, everything: bool) -> Stated {
        if !everything {
            for gap in self.list.iter_mut().filter(|gap| gap.reason != GapReason::Disk) {
                gap.lost_min = 0;
            }
        }
        self.list.sort_by_key(|gap| (gap.reason, gap.from_ns, gap.to_ns));
        let mut gaps: Vec<Gap> = Vec::new();
        for gap in self.list {
            match gaps
                .last_mut()
                .filter(|last| last.reason == gap.reason && gap.from_ns <= last.to_ns.saturating_add(1))
            {
                Some(last) => join(last, &gap),
                None => gaps.push(gap),
            }
        }
        let mut folded = 0;
        while gaps.len() > GAPS_MAX
            && let Some(at) = nearest(&gaps)
        {
            let gap = gaps.remove(at + 1);
            join(&mut gaps[at], &gap);
            folded += 1;
        }
        gaps.sort_by_key(|gap| (gap.from_ns, gap.to_ns, gap.reason));
        let counted = || gaps.iter().filter(|gap| counts(gap.reason));
        let lost_min = counted().fold(0, |sum: u64, gap| sum.saturating_add(gap.lost_min));
        let lost_max =
            counted().fold(0, |sum: u64, gap| sum.saturating_add(gap.lost_max.unwrap_or(u64::MAX)));
        let span_ns =
            gaps.iter().map(|gap| (gap.from_ns, gap.to_ns)).reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)));
        Stated { gaps, folded, lost_min, lost_max, span_ns }
    }
}

/// Gaps in words, the first few one by one: `between A and B (evicted)`,
/// `3 gaps: A to B (evicted), C to D (kernel), and 1 more`. Never the span of them all: most of that may be
/// there.
pub fn in_words(gaps: &[Gap]) -> String {
    let [first, ..] = gaps else { return String::new() };
    if gaps.len() == 1 {
        return format!(
            "between {} ({})",
            time::between(first.from_ns, "and", first.to_ns),
            first.reason.name()
        );
    }
    let words = |at: usize, gap: &Gap| {
        let span = time::between(gap.from_ns, "to", gap.to_ns);
        let before = at.checked_sub(1).and_then(|at| gaps.get(at));
        let span = before.map_or(&*span, |before| time::without_date_of(before.to_ns, &span));
        format!("{span} ({})", gap.reason.name())
    };
    let shown: Vec<String> =
        gaps.iter().take(GAPS_SHOWN).enumerate().map(|(at, gap)| words(at, gap)).collect();
    let more = match gaps.len() - shown.len() {
        0 => String::new(),
        more => format!(", and {more} more"),
    };
    format!("{} gaps: {}{more}", gaps.len(), shown.join(", "))
}

/// Whether packets of such a gap were there, or may have been, and are missing. Where nobody listened none
/// came; where the clock was set some came that may belong to the gap.
pub(crate) fn counts(reason: GapReason) -> bool {
    reason.is_loss() || matches!(reason, GapReason::File | GapReason::Unreadable | GapReason::ClockStep)
}

/// `gap` begins behind `into`, or within it; both have one reason.
fn join(into: &mut Gap, gap: &Gap) {
    into.to_ns = into.to_ns.max(gap.to_ns);
    into.lost_min = into.lost_min.saturating_add(gap.lost_min);
    into.lost_max = into.lost_max.zip(gap.lost_max).map(|(a, b)| a.saturating_add(b));
}

/// Which gap lies nearest before the next one of the same reason; they are sorted by reason, then by time.
fn nearest(gaps: &[Gap]) -> Option<usize> {
    let pairs = gaps.windows(2).enumerate().filter(|(_, pair)| pair[0].reason == pair[1].reason);
    pairs.min_by_key(|(_, pair)| pair[1].from_ns.saturating_sub(pair[0].to_ns)).map(|(at, _)| at)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gap(from_ns: i64, to_ns: i64, reason: GapReason, lost_max: Option<u64>) -> Gap {
        Gap { from_ns, to_ns, reason, lost_min: lost_max.unwrap_or(0), lost_max }
    }

    fn stated(window: (i64, i64), gaps: &[Gap]) -> Stated {
        let mut all = Gaps::of(window);
        for gap in gaps {
            all.add(*gap);
        }
        all.state(true)
    }

    #[test]
    fn gaps_of_one_reason_that_touch_are_one_and_others_stay_apart() {
        use GapReason::{Evicted, InterfaceDown, Kernel};
        let input = [
            gap(50, 60, Kernel, Some(3)),
            gap(10, 20, Evicted, Some(5)),
            gap(61, 70, Kernel, Some(4)),
            gap(72, 80, Kernel, Some(1)),
            gap(55, 65, InterfaceDown, None),
        ];
        let found = stated((0, 100), &input);
        let expected = [
            gap(10, 20, Evicted, Some(5)),
            gap(50, 70, Kernel, Some(7)),
            gap(55, 65, InterfaceDown, None),
            gap(72, 80, Kernel, Some(1)),
        ];
        assert_eq!(found.gaps, expected);
        assert_eq!(
            (found.lost_min, found.lost_max, found.span_ns),
            (13, 13, Some((10, 80))),
            "nobody counts what nobody heard"
        );
        assert_eq!(found.folded, 0);
    }

    #[test]
    fn what_reaches_out_of_the_window_is_clipped_and_loses_its_least_number() {
        let found = stated(
            (100, 200),
            &[gap(50, 150, GapReason::Kernel, Some(9)), gap(0, 99, GapReason::Disk, Some(9))],
        );
        assert_eq!(found.gaps, [Gap { lost_min: 0, ..gap(100, 150, GapReason::Kernel, Some(9)) }]);
        assert_eq!((found.lost_min, found.lost_max), (0, 9));
        assert_eq!(stated((0, 9), &[]), Stated::default());
    }

    #[test]
    fn beyond_the_bound_the_nearest_ones_become_one_and_no_packet_is_forgotten() {
        let many = GAPS_MAX as i64 + 10;
        // The further, the wider apart.
        let input: Vec<Gap> =
            (0..many).map(|n| gap(n * n * 10, n * n * 10 + 1, GapReason::Kernel, Some(2))).collect();
        let found = stated((0, i64::MAX), &input);
        assert_eq!((found.gaps.len(), found.folded), (GAPS_MAX, 10));
        assert_eq!((found.lost_min, found.lost_max), (2 * many as u64, 2 * many as u64));
        assert_eq!(
            found.gaps[0],
            gap(0, 1001, GapReason::Kernel, Some(22)),
            "the first ones, which lie nearest"
        );
    }

    #[test]
    fn a_number_that_nobody_knows_makes_the_sum_unknown() {
        let found = stated(
            (0, 9),
            &[gap(1, 2, GapReason::Unsettled, None), gap(2, 3, GapReason::Unsettled, Some(1))],
        );
        assert_eq!((found.gaps.len(), found.gaps[0].lost_max, found.lost_max), (1, None, u64::MAX));
    }

    #[test]
    fn what_came_and_may_belong_to_a_gap_is_in_the_sum_and_where_nobody_listened_nothing_came() {
        let sum = |reason| {
            let found = stated((0, 9), &[gap(1, 2, reason, None)]);
            (found.gaps[0].lost_max, found.lost_min, found.lost_max)
        };
        for reason in GapReason::ALL {
            let most = if counts(reason) { u64::MAX } else { 0 };
            assert_eq!(sum(reason), (None, 0, most), "{reason:?}");
        }
        assert_eq!(
            sum(GapReason::ClockStep).2,
            u64::MAX,
            "packets of another era came, and nobody knows which belong to it"
        );
        assert_eq!(sum(GapReason::NotStarted).2, 0);
    }

    #[test]
    fn several_gaps_are_told_one_by_one_and_many_are_counted() {
        let second = |from: i64, to: i64, reason| gap(from * 1_000_000_000, to * 1_000_000_000, reason, None);
        let mut gaps = vec![second(1, 2, GapReason::Evicted)];
        assert_eq!(in_words(&[]), "");
        assert_eq!(in_words(&gaps), "between 1970-01-01T00:00:01Z and 00:00:02Z (evicted)");
        gaps.push(second(86_399, 86_400, GapReason::Stopped));
        let said = in_words(&gaps);
        assert_eq!(
            said,
            "2 gaps: 1970-01-01T00:00:01Z to 00:00:02Z (evicted), 23:59:59Z to 1970-01-02T00:00:00Z (stopped)"
        );
        gaps.extend([gaps[0]; 60]);
        assert!(
            in_words(&gaps).starts_with("62 gaps: ") && in_words(&gaps).ends_with(", and 59 more"),
            "{}",
            in_words(&gaps)
        );
    }

    #[test]
    fn of_a_dump_with_a_filter_only_what_was_not_written_is_lost_for_sure() {
        let mut all = Gaps::of((0, 9));
        all.add(gap(1, 2, GapReason::Evicted, Some(4)));
        all.add_lost(GapReason::Disk, (3, 3), Some((5, 6)));
        let found = all.state(false);
        assert_eq!((found.lost_min, found.lost_max), (3, 7));
    }
}
