//! Eras: which packets of a lane came between two moments at which capture time was set back, what each era
//! spans, and which packets have a time that is not believed.
//!
//! ```text
//! lane   packet 0 ... era 0 ... | packet n ... era 1 ... | packet m ... era 2 ...        (first packet, era), rising
//! ```
//! A worker notes where its lanes enter an era before it commits the first packet of it, and a stray
//! likewise: a reader that has seen a packet committed finds here what is to be known of it.

use std::collections::VecDeque;
use std::ops::Range;

/// Eras that are remembered, of each lane and of all together; the oldest are forgotten: their windows are
/// over long since.
const ERAS_MAX: usize = 65_536;
/// Strays of a lane that are remembered; one that is forgotten counts as any other packet.
const STRAYS_MAX: usize = 65_536;

/// What is known of all eras.
pub(crate) struct Eras {
    lanes: Vec<VecDeque<(u64, u64)>>,
    /// Per lane: strays by number, and what its worker's clock was, ns.
    strays: Vec<VecDeque<(u64, i64)>>,
    /// Of eras that are over for some worker: number, first and last capture time, ns.
    spans: VecDeque<(u64, i64, i64)>,
}

impl Eras {
    pub(crate) fn new(lanes: usize) -> Eras {
        Eras {
            lanes: (0..lanes).map(|_| VecDeque::from([(0, 0)])).collect(),
            strays: vec![VecDeque::new(); lanes],
            spans: VecDeque::new(),
        }
    }

    /// The packets of `lane` from `packet` on belong to `era`.
    pub(crate) fn enter(&mut self, lane: u32, packet: u64, era: u64) {
        let eras = &mut self.lanes[lane as usize];
        if eras.back().is_some_and(|last| last.0 == packet) {
            eras.pop_back(); // no packet of it
        }
        if eras.len() >= ERAS_MAX {
            eras.pop_front();
        }
        eras.push_back((packet, era));
    }

    /// The packets of `lane` that belong to `era`, as far as is known: the end is open while no other has
    /// begun.
    pub(crate) fn packets(&self, lane: u32, era: u64) -> Range<u64> {
        let eras = &self.lanes[lane as usize];
        let at = eras.partition_point(|entry| entry.1 < era);
        match eras.get(at) {
            Some(&(first, entered)) if entered == era => {
                first..eras.get(at + 1).map_or(u64::MAX, |next| next.0)
            }
            Some(&(first, _)) => first..first,
            None => u64::MAX..u64::MAX,
        }
    }

    /// The era of a packet of `lane`; of one that is forgotten the oldest that is known.
    pub(crate) fn era_of(&self, lane: u32, packet: u64) -> u64 {
        let eras = &self.lanes[lane as usize];
        let entered = eras.partition_point(|entry| entry.0 <= packet).max(1) - 1;
        eras.get(entered).map_or(0, |entry| entry.1)
    }

    /// Packet `packet` of `lane` is a stray; the clock is at `clock_ns`.
    pub(crate) fn stray(&mut self, lane: u32, packet: u64, clock_ns: i64) {
        let strays = &mut self.strays[lane as usize];
        if strays.len() >= STRAYS_MAX {
            strays.pop_front();
        }
        strays.push_back((packet, clock_ns));
    }

    /// The strays among these packets of `lane`, by number, and where the clock was when each of them came.
    pub(crate) fn strays(&self, lane: u32, packets: Range<u64>) -> Vec<(u64, i64)> {
        let strays = &self.strays[lane as usize];
        strays
            .range(strays.partition_point(|stray| stray.0 < packets.start)..)
            .take_while(|stray| stray.0 < packets.end)
            .copied()
            .collect()
    }

    /// `era` is over for a worker that listened to these times in it.
    pub(crate) fn over(&mut self, era: u64, (first_ns, last_ns): (i64, i64)) {
        match self.spans.iter_mut().rev().find(|span| span.0 == era) {
            Some(span) => (span.1, span.2) = (span.1.min(first_ns), span.2.max(last_ns)),
            None => {
                if self.spans.len() >= ERAS_MAX {
                    self.spans.pop_front();
                }
                self.spans.push_back((era, first_ns, last_ns));
            }
        }
    }

    /// First and last capture time of an era, of those workers for whom it is over.
    pub(crate) fn span(&self, era: u64) -> Option<(i64, i64)> {
        self.spans.iter().rev().find(|span| span.0 == era).map(|span| (span.1, span.2))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_packet_belongs_to_the_era_that_its_lane_entered_last() {
        let mut eras = Eras::new(2);
        let check = |eras: &Eras, lane, era, expected: Range<u64>| {
            assert_eq!(eras.packets(lane, era), expected, "{lane} {era}")
        };
        check(&eras, 0, 0, 0..u64::MAX);
        check(&eras, 0, 1, u64::MAX..u64::MAX);
        eras.enter(0, 10, 1);
        eras.enter(0, 10, 2);
        eras.enter(0, 30, 4);
        eras.enter(1, 0, 2);
        check(&eras, 0, 0, 0..10);
        check(&eras, 0, 1, 10..10);
        check(&eras, 0, 2, 10..30);
        check(&eras, 0, 3, 30..30);
        check(&eras, 0, 4, 30..u64::MAX);
        check(&eras, 1, 0, 0..0);
        check(&eras, 1, 2, 0..u64::MAX);
        let of_packets: Vec<u64> =
            [0, 9, 10, 29, 30, 1000].iter().map(|packet| eras.era_of(0, *packet)).collect();
        assert_eq!((of_packets, eras.era_of(1, 0)), (vec![0, 0, 2, 2, 4, 4], 2));
    }

    #[test]
    fn strays_are_found_by_number_and_bounded() {
        let mut eras = Eras::new(1);
        for n in 0..STRAYS_MAX as u64 + 5 {
            eras.stray(0, 2 * n, n as i64);
        }
        assert_eq!(eras.strays(0, 11..17), [(12, 6), (14, 7), (16, 8)]);
        assert_eq!(eras.strays(0, 0..10), []);
    }

    #[test]
    fn an_era_spans_what_all_workers_heard_in_it() {
        let mut eras = Eras::new(1);
        eras.over(3, (50, 60));
        eras.over(3, (40, 55));
        assert_eq!((eras.span(3), eras.span(2)), (Some((40, 60)), None));
    }
}
