//! What is remembered of recycled segments, so that a loss can be bounded: times and packet numbers, for a bounded while.

use std::collections::VecDeque;
use std::ops::Range;

/// Recycled segments that are remembered.
const EVICTED_MAX: usize = 65_536;

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
#[derive(Default)]
pub(crate) struct History {
    /// Each with the largest time of itself and all before it, so that a look from the newest backward knows when to end.
    evicted: VecDeque<(Evicted, i64)>,
    newest_ns: i64,
    /// Largest time among those that were forgotten again.
    forgotten_ns: i64,
    forgotten_packets: u64,
    /// They all have smaller numbers.
    forgotten_end: u64,
}

impl History {
    pub(crate) fn push(&mut self, evicted: Evicted) {
        if self.evicted.len() == EVICTED_MAX
            && let Some((oldest, newest_ns)) = self.evicted.pop_front()
        {
            self.forgotten_ns = newest_ns;
            self.forgotten_packets += oldest.packets;
            self.forgotten_end = self.forgotten_end.max(oldest.first_packet + oldest.packets);
        }
        self.newest_ns = self.newest_ns.max(evicted.max_ns);
        self.evicted.push_back((evicted, self.newest_ns));
    }

    /// What packets of the lane, all of them gone, mean for the window `window` (ns, both ends inclusive): of each span of their
    /// numbers, which come in order and don't touch.
    pub(crate) fn lost(&self, spans: &[Range<u64>], window: (i64, i64)) -> Vec<Lost> {
        let mut lost = vec![Lost::default(); spans.len()];
        for (evicted, newest_ns) in self.evicted.iter().rev() {
            if *newest_ns < window.0 {
                return lost;
            }
            let (from, to) = (evicted.first_packet, evicted.first_packet + evicted.packets);
            let first = spans.partition_point(|span| span.end <= from);
            for (span, lost) in spans.iter().zip(&mut lost).skip(first).take_while(|(span, _)| span.start < to) {
                *lost = lost.and(part(evicted, span.end.min(to) - span.start.max(from), window));
            }
        }
        if self.forgotten_packets > 0 && self.forgotten_ns >= window.0 {
            for (span, lost) in spans.iter().zip(&mut lost).filter(|(span, _)| span.start < self.forgotten_end) {
                let packets = self.forgotten_packets.min(span.end.min(self.forgotten_end) - span.start);
                *lost = lost.and(Lost::between(0, packets, window.0, self.forgotten_ns.min(window.1)));
            }
        }
        lost
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

    #[test]
    fn a_loss_is_never_stated_more_exactly_than_it_is() {
        let mut history = History::default();
        for n in 0..4u64 {
            history.push(Evicted { first_packet: n * 10, packets: 10, min_ns: n as i64 * 100, max_ns: n as i64 * 100 + 90 });
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
        let first = history.lost(&[2..4, 8..12], (0, i64::MAX));
        assert_eq!(first.iter().map(|lost| (lost.packets_min, lost.packets_max)).collect::<Vec<_>>(), [(0, 2), (2, 4)]);
    }
}
