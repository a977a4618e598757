//! What is remembered of recycled segments, so that a loss can be bounded: times and packet numbers, for a
//! bounded while.

use std::collections::VecDeque;
use std::ops::Range;

/// Recycled segments that are remembered, each by itself.
const EVICTED_MAX: usize = 65_536;
/// Spans of time that those beyond are remembered by, together.
const FADED_MAX: usize = 64;

/// One recycled segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Evicted {
    pub first_packet: u64,
    pub packets: u64,
    pub min_ns: i64,
    pub max_ns: i64,
}

/// Packets lost inside a window, as bounds, and the span in which they were.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lost {
    /// At least this many.
    pub packets_min: u64,
    /// At most this many.
    pub packets_max: u64,
    /// From (ns), inclusive, and to, inclusive; `None` where nothing is lost.
    pub span_ns: Option<(i64, i64)>,
}

impl Lost {
    /// Both losses together.
    pub fn and(self, other: Lost) -> Lost {
        Lost {
            packets_min: self.packets_min.saturating_add(other.packets_min),
            packets_max: self.packets_max.saturating_add(other.packets_max),
            span_ns: match (self.span_ns, other.span_ns) {
                (Some(a), Some(b)) => Some((a.0.min(b.0), a.1.max(b.1))),
                (a, b) => a.or(b),
            },
        }
    }

    /// Between `min` and `max` packets in a span of time.
    pub fn between(packets_min: u64, packets_max: u64, from_ns: i64, to_ns: i64) -> Lost {
        Lost { packets_min, packets_max, span_ns: (packets_max > 0).then_some((from_ns, to_ns)) }
    }
}

/// The bounded memory of one lane's recycled segments, in order of recycling.
pub(crate) struct History {
    /// Each with the largest time of itself and all before it, so that a look from the newest backward knows
    /// when to end.
    evicted: VecDeque<(Evicted, i64)>,
    evicted_max: usize,
    newest_ns: i64,
    faded: Faded,
}

impl Default for History {
    fn default() -> History {
        History::of(EVICTED_MAX)
    }
}

impl History {
    fn of(evicted_max: usize) -> History {
        History { evicted: VecDeque::new(), evicted_max, newest_ns: 0, faded: Faded::default() }
    }

    pub(crate) fn push(&mut self, evicted: Evicted) {
        if self.evicted.len() == self.evicted_max
            && let Some((oldest, _)) = self.evicted.pop_front()
        {
            self.faded.add(&oldest);
        }
        self.newest_ns = self.newest_ns.max(evicted.max_ns);
        self.evicted.push_back((evicted, self.newest_ns));
    }

    /// The number behind all packets that were recycled.
    pub(crate) fn end(&self) -> u64 {
        let faded = self.faded.spans.iter().map(|span| span.numbers.end);
        let known = self.evicted.iter().map(|(evicted, _)| evicted.first_packet + evicted.packets);
        known.chain(faded).max().unwrap_or(0)
    }

    /// What packets of the lane, all of them gone, mean for the window `window` (ns, both ends inclusive): of
    /// each span of their numbers, which come in order and don't touch.
    pub(crate) fn lost(&self, spans: &[Range<u64>], window: (i64, i64)) -> Vec<Lost> {
        let mut lost = vec![Lost::default(); spans.len()];
        for (evicted, newest_ns) in self.evicted.iter().rev() {
            if *newest_ns < window.0 {
                break;
            }
            let (from, to) = (evicted.first_packet, evicted.first_packet + evicted.packets);
            let first = spans.partition_point(|span| span.end <= from);
            for (span, lost) in
                spans.iter().zip(&mut lost).skip(first).take_while(|(span, _)| span.start < to)
            {
                *lost = lost.and(part(evicted, span.end.min(to) - span.start.max(from), window));
            }
        }
        for (span, lost) in spans.iter().zip(&mut lost) {
            *lost = lost.and(self.faded.lost(span, window));
        }
        lost
    }
}

/// Recycled segments that aren't remembered by themselves any more: spans of time apart from each other, and
/// how many packets were in each. Where there are too many, the two that lie nearest become one. So a time
/// that was wrong once stays a span of its own, and concerns no window but those of that time.
#[derive(Default)]
struct Faded {
    /// In order of time.
    spans: Vec<FadedSpan>,
}

struct FadedSpan {
    min_ns: i64,
    max_ns: i64,
    packets: u64,
    /// They all have such numbers.
    numbers: Range<u64>,
}

impl FadedSpan {
    fn join(&mut self, other: &FadedSpan) {
        self.min_ns = self.min_ns.min(other.min_ns);
        self.max_ns = self.max_ns.max(other.max_ns);
        self.packets += other.packets;
        self.numbers = self.numbers.start.min(other.numbers.start)..self.numbers.end.max(other.numbers.end);
    }
}

impl Faded {
    fn add(&mut self, evicted: &Evicted) {
        let mut span = FadedSpan {
            min_ns: evicted.min_ns,
            max_ns: evicted.max_ns,
            packets: evicted.packets,
            numbers: evicted.first_packet..evicted.first_packet + evicted.packets,
        };
        let at = self.spans.partition_point(|other| other.max_ns < span.min_ns);
        while self.spans.get(at).is_some_and(|other| other.min_ns <= span.max_ns) {
            span.join(&self.spans.remove(at));
        }
        self.spans.insert(at, span);
        if self.spans.len() > FADED_MAX {
            let gap = |at: &usize| self.spans[at + 1].min_ns.abs_diff(self.spans[*at].max_ns);
            if let Some(nearest) = (0..self.spans.len() - 1).min_by_key(gap) {
                let next = self.spans.remove(nearest + 1);
                self.spans[nearest].join(&next);
            }
        }
    }

    /// At most so many of these packets were in the window.
    fn lost(&self, numbers: &Range<u64>, (from_ns, to_ns): (i64, i64)) -> Lost {
        let inside = self.spans.iter().filter(|span| span.max_ns >= from_ns && span.min_ns <= to_ns);
        let bounds = inside.map(|span| {
            let shared =
                span.numbers.end.min(numbers.end).saturating_sub(span.numbers.start.max(numbers.start));
            Lost::between(0, shared.min(span.packets), span.min_ns.max(from_ns), span.max_ns.min(to_ns))
        });
        bounds.fold(Lost::default(), Lost::and)
    }
}

/// `packets` of one recycled segment against a window.
fn part(evicted: &Evicted, packets: u64, (from_ns, to_ns): (i64, i64)) -> Lost {
    if evicted.max_ns < from_ns || evicted.min_ns > to_ns {
        return Lost::default();
    }
    let whole = packets == evicted.packets;
    let min_inside = evicted.min_ns >= from_ns;
    let max_inside = evicted.max_ns <= to_ns;
    let (packets_min, packets_max) = match (min_inside, max_inside) {
        (true, true) => (packets, packets),
        // The packet with the largest (smallest) time is inside, the one with the smallest (largest) is not.
        (false, true) | (true, false) if whole => (1, packets - 1),
        _ => (0, packets),
    };
    Lost::between(packets_min, packets_max, evicted.min_ns.max(from_ns), evicted.max_ns.min(to_ns))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_loss_is_never_stated_more_exactly_than_it_is() {
        let mut history = History::default();
        for n in 0..4u64 {
            history.push(Evicted {
                first_packet: n * 10,
                packets: 10,
                min_ns: n as i64 * 100,
                max_ns: n as i64 * 100 + 90,
            });
        }
        let check = |range: (u64, u64), window, expected: (u64, u64, Option<(i64, i64)>)| {
            let lost = history.lost(std::slice::from_ref(&(range.0..range.1)), window)[0];
            assert_eq!((lost.packets_min, lost.packets_max, lost.span_ns), expected, "{range:?} {window:?}");
        };
        check((0, 40), (0, 1000), (40, 40, Some((0, 390))));
        check((0, 40), (150, 1000), (21, 29, Some((150, 390))));
        check((0, 40), (500, 1000), (0, 0, None));
        check((5, 10), (50, 60), (0, 5, Some((50, 60))));
        check((0, 10), (20, 60), (0, 10, Some((20, 60))));
        check((40, 50), (0, 1000), (0, 0, None));
        assert_eq!((history.end(), History::default().end()), (40, 0));
        assert_eq!(History::default().lost(&[0..5, 7..9], (0, 9)), [Lost::default(); 2]);
        // Each span has its own, whatever the order in which segments were recycled.
        history.push(Evicted { first_packet: 50, packets: 10, min_ns: 500, max_ns: 590 });
        history.push(Evicted { first_packet: 40, packets: 10, min_ns: 400, max_ns: 490 });
        let lost = history.lost(&[0..12, 38..45, 48..u64::MAX], (0, 1000));
        assert_eq!(
            lost.iter().map(|lost| (lost.packets_min, lost.packets_max)).collect::<Vec<_>>(),
            [(12, 12), (7, 7), (12, 12)]
        );
        assert_eq!(lost[1].span_ns, Some((300, 490)));
    }

    #[test]
    fn what_was_forgotten_is_a_bound_only() {
        let mut history = History::default();
        for n in 0..EVICTED_MAX as u64 + 10 {
            let at = n as i64;
            history.push(Evicted { first_packet: n, packets: 1, min_ns: at, max_ns: at });
        }
        let all = history.lost(std::slice::from_ref(&(0..u64::MAX)), (0, i64::MAX))[0];
        assert_eq!((all.packets_min, all.packets_max), (EVICTED_MAX as u64, EVICTED_MAX as u64 + 10));
        let late = history.lost(std::slice::from_ref(&(0..u64::MAX)), (100, i64::MAX))[0];
        assert_eq!((late.packets_min, late.packets_max), (EVICTED_MAX as u64 - 90, EVICTED_MAX as u64 - 90));
        assert_eq!(history.faded.spans.len(), 10, "one for each: they are few");
        let first = history.lost(&[2..4, 8..12], (0, i64::MAX));
        assert_eq!(
            first.iter().map(|lost| (lost.packets_min, lost.packets_max)).collect::<Vec<_>>(),
            [(0, 2), (2, 4)]
        );
    }

    #[test]
    fn a_time_that_was_wrong_once_is_no_loss_of_later_windows_however_long_ago_it_was() {
        let mut history = History::default();
        let hours = |hours: i64| hours * 3600 * 1_000_000_000;
        let mut first_packet = 0;
        let mut push = |packets: u64, min_ns: i64, max_ns: i64| {
            history.push(Evicted { first_packet, packets, min_ns, max_ns });
            first_packet += packets;
        };
        let segment = |n: i64| (n * 1_000_000, n * 1_000_000 + 999_999);
        for n in 0..2 * EVICTED_MAX as i64 {
            if n == 100 {
                push(1, hours(10), hours(10)); // the stray is a part of its own
            }
            push(1000, segment(n).0, segment(n).1);
        }
        let now = segment(2 * EVICTED_MAX as i64).0;
        let lost = |window| history.lost(std::slice::from_ref(&(0..first_packet)), window)[0];
        assert_eq!(lost((now, now + 1_000_000)), Lost::default());
        assert_eq!(lost((now, hours(9))), Lost::default());
        assert_eq!(
            lost((hours(10) - 5, hours(10) + 5)),
            Lost::between(0, 1, hours(10), hours(10)),
            "nor is it forgotten"
        );
        let past = lost((segment(50).0, segment(60).1));
        assert!(past.packets_min == 0 && past.packets_max >= 11_000, "{past:?}");
    }

    proptest! {
        #[test]
        fn what_fades_is_bounded_and_at_least_and_at_most_hold_for_every_window(
            steps in proptest::collection::vec((1usize..6, -40i64..50, 0u8..12), 1..400),
            kept in 1usize..20, windows in proptest::collection::vec((0i64..5000, 0i64..800, 0u64..900, 1u64..900), 20)) {
            let mut history = History::of(kept);
            let (mut now_ns, mut times) = (500i64, Vec::new());
            for (packets, step_ns, kind) in steps {
                // Some times are wrong, by far.
                let wrong_ns = if kind == 0 { 100_000 * step_ns } else { 0 };
                now_ns = (now_ns + step_ns).max(0);
                let segment: Vec<i64> = (0..packets as i64).map(|n| (now_ns + wrong_ns + n * 3).max(0)).collect();
                let (first_packet, bounds) = (times.len() as u64, (segment.iter().min(), segment.iter().max()));
                let (Some(&min_ns), Some(&max_ns)) = bounds else { continue };
                history.push(Evicted { first_packet, packets: packets as u64, min_ns, max_ns });
                times.extend(segment);
                prop_assert!(history.faded.spans.len() <= FADED_MAX);
                prop_assert!(history.faded.spans.windows(2).all(|pair| pair[0].max_ns < pair[1].min_ns), "apart, and in order");
            }
            for (from_ns, len_ns, first, count) in windows {
                let (window, numbers) = ((from_ns, from_ns + len_ns), first..first + count);
                let lost = history.lost(std::slice::from_ref(&numbers), window)[0];
                let gone = |(number, time_ns): (usize, &i64)| {
                    numbers.contains(&(number as u64)) && (window.0..=window.1).contains(time_ns)
                };
                let truth = times.iter().enumerate().filter(|packet| gone(*packet)).count() as u64;
                prop_assert!((lost.packets_min..=lost.packets_max).contains(&truth), "{truth} in {lost:?}");
            }
        }
    }
}
