//! What is remembered of recycled segments, so that a loss can be bounded: times and packet numbers, for a bounded while.

use std::collections::VecDeque;

/// Recycled segments that are remembered.
const EVICTED_MAX: usize = 65_536;

/// One recycled segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Evicted {
    pub lane: u32,
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

/// The bounded memory of recycled segments, oldest first.
#[derive(Default)]
pub(crate) struct History {
    evicted: VecDeque<Evicted>,
}

impl History {
    pub(crate) fn push(&mut self, evicted: Evicted) {
        if self.evicted.len() == EVICTED_MAX {
            self.evicted.pop_front();
        }
        self.evicted.push_back(evicted);
    }

    /// What the packets `from..to` of `lane`, all of them gone, mean for the window `window` (ns, both ends inclusive).
    pub(crate) fn lost(&self, lane: u32, from: u64, to: u64, window: (i64, i64)) -> Lost {
        let mut lost = Lost::default();
        let mut known = 0;
        for evicted in self.evicted.iter().filter(|evicted| evicted.lane == lane) {
            let first = evicted.first_packet.max(from);
            let end = (evicted.first_packet + evicted.packets).min(to);
            if first >= end {
                continue;
            }
            known += end - first;
            lost = lost.and(part(evicted, end - first, window));
        }
        let forgotten = (to - from).saturating_sub(known);
        // Older than the memory reaches: somewhere before what is remembered.
        lost.and(Lost::between(0, forgotten, window.0, window.1))
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
            history.push(Evicted {
                lane: 0,
                first_packet: n * 10,
                packets: 10,
                min_ns: n as i64 * 100,
                max_ns: n as i64 * 100 + 90,
            });
        }
        let check = |range: (u64, u64), window, expected: (u64, u64, Option<(i64, i64)>)| {
            let lost = history.lost(0, range.0, range.1, window);
            assert_eq!((lost.packets_min, lost.packets_max, lost.span_ns), expected, "{range:?} {window:?}");
        };
        check((0, 40), (0, 1000), (40, 40, Some((0, 390))));
        check((0, 40), (150, 1000), (21, 29, Some((150, 390))));
        check((0, 40), (500, 1000), (0, 0, None));
        check((5, 10), (50, 60), (0, 5, Some((50, 60))));
        check((0, 10), (20, 60), (0, 10, Some((20, 60))));
        check((40, 50), (0, 1000), (0, 10, Some((0, 1000))));
        assert_eq!(history.lost(1, 0, 0, (0, 9)), Lost::default());
    }
}
