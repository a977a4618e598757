//! By time: which segments touch a span, and where in a segment it begins.
//!
//! ```text
//! ring      each lane's newest segment, then the table of sealed ones (64 at a look): those that can hold something better
//! segment   ordered: halve entry 0..n: entry ─► offset ─► the block's time, about 14 looks for 2 MiB; unordered: every block
//! ```

use crate::pin::Pinned;
use crate::ring::Ring;
use crate::search::Picked;
use scope_packet::SegmentId;
use scope_packet::pcapng::PacketBlock;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The first packet at or after a moment.
pub struct Found {
    /// Its segment, held.
    pub pinned: Pinned,
    /// Its index in the segment.
    pub index: u32,
    /// Its capture time, ns.
    pub time_ns: i64,
}

impl Found {
    /// Smallest time first; ties by lane and packet number.
    fn order(&self) -> (i64, u32, u64) {
        (self.time_ns, self.pinned.lane(), self.pinned.first_packet() + self.index as u64)
    }
}

/// One segment that touches a span of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentSpan {
    /// Which.
    pub segment: SegmentId,
    /// Smallest time of what is committed, ns; of an open segment perhaps of later packets, too.
    pub min_ns: i64,
    /// Largest time, ns, likewise.
    pub max_ns: i64,
    /// Times step back somewhere inside.
    pub unordered: bool,
}

impl Ring {
    /// The packet with the smallest capture time at or after `from_ns` (ns) among all that are in the ring
    /// now; of several with this time the one of the first lane, and there the first.
    pub fn find_time(self: &Arc<Self>, from_ns: i64) -> Option<Found> {
        let mut best: Option<Found> = None;
        for lane in 0..self.lanes() {
            improve(&mut best, self.newest(lane).and_then(|id| self.pin(id)), from_ns);
        }
        let can_improve = |best: &Option<Found>, min_ns: i64, max_ns: i64| {
            max_ns >= from_ns && best.as_ref().is_none_or(|best| min_ns.max(from_ns) <= best.time_ns)
        };
        self.spans().each(&mut best, can_improve, |best, slot| improve(best, self.pin_slot(slot), from_ns));
        best
    }

    /// All segments that touch `from_ns..=to_ns`, smallest times first; none of them is held.
    pub fn overlapping(self: &Arc<Self>, from_ns: i64, to_ns: i64) -> Vec<SegmentSpan> {
        let touching = |pinned: Pinned| {
            let (min_ns, max_ns, unordered) = pinned.span()?;
            let span = SegmentSpan { segment: pinned.id(), min_ns, max_ns, unordered };
            (max_ns >= from_ns && min_ns <= to_ns).then_some(span)
        };
        let newest = (0..self.lanes()).filter_map(|lane| self.pin(self.newest(lane)?));
        let mut spans: Vec<SegmentSpan> = newest.filter_map(touching).collect();
        let wanted = |_: &Vec<SegmentSpan>, min_ns: i64, max_ns: i64| max_ns >= from_ns && min_ns <= to_ns;
        self.spans()
            .each(&mut spans, wanted, |spans, slot| spans.extend(self.pin_slot(slot).and_then(touching)));
        spans.sort_by_key(|span| span.segment);
        spans.dedup_by_key(|span| span.segment); // sealed between the two looks, or not yet followed by another
        spans.sort_by_key(|span| (span.min_ns, span.segment));
        spans
    }

    fn newest(&self, lane: u32) -> Option<SegmentId> {
        Some(self.segment_id(lane, self.lane_next(lane).checked_sub(1)?))
    }

    /// Pins what is in `slot` now.
    fn pin_slot(self: &Arc<Self>, slot: u32) -> Option<Pinned> {
        let control = self.region().segment(slot);
        self.pin(
            self.segment_id(control.lane.load(Ordering::Relaxed), control.sequence.load(Ordering::Relaxed)),
        )
    }
}

/// Keeps the better of what is known and what `pinned` has.
fn improve(best: &mut Option<Found>, pinned: Option<Pinned>, from_ns: i64) {
    let Some(pinned) = pinned else { return };
    let Some((index, time_ns)) = pinned.first_at(from_ns) else { return };
    let found = Found { pinned, index, time_ns };
    if best.as_ref().is_none_or(|best| found.order() < best.order()) {
        *best = Some(found);
    }
}

impl Pinned {
    /// Index and time of the packet with the smallest capture time at or after `from_ns` (ns) among those
    /// committed now.
    pub fn first_at(&self, from_ns: i64) -> Option<(u32, i64)> {
        let packets = self.committed().packets;
        let (_, max_ns, unordered) = self.span()?;
        if max_ns < from_ns {
            return None;
        }
        if unordered {
            let later = self
                .indexed(0, packets)
                .map(|(index, block)| (index, block.time_ns()))
                .filter(|(_, t)| *t >= from_ns);
            return later.min_by_key(|&(index, time_ns)| (time_ns, index));
        }
        let index = self.first_not(packets, |time_ns| time_ns < from_ns);
        (index < packets).then(|| (index, self.time_of(index)))
    }

    /// The packets among those committed now whose times lie in `from_ns..=to_ns`, as they came. In an
    /// ordered segment no other packet is touched but on the way to the first and the last.
    pub fn within(&self, from_ns: i64, to_ns: i64) -> Within<'_> {
        let packets = self.committed().packets;
        let range = match self.span() {
            Some((.., true)) => 0..packets,
            Some((min_ns, max_ns, false)) if from_ns <= to_ns => {
                let from =
                    if from_ns <= min_ns { 0 } else { self.first_not(packets, |time_ns| time_ns < from_ns) };
                let to = if to_ns >= max_ns {
                    packets
                } else {
                    self.first_not(packets, |time_ns| time_ns <= to_ns)
                };
                from..to
            }
            _ => 0..0,
        };
        Within { blocks: self.pick(range), from_ns, to_ns }
    }

    /// Capture time of packet `index`, which is committed.
    fn time_of(&self, index: u32) -> i64 {
        self.blocks(0, self.committed().bytes).at(self.entry(index).offset()).time_ns()
    }

    /// Of an ordered segment's first `packets` packets: index of the first for whose time `before` doesn't
    /// hold.
    fn first_not(&self, packets: u32, before: impl Fn(i64) -> bool) -> u32 {
        let (mut low, mut high) = (0, packets);
        while low < high {
            let middle = low + (high - low) / 2;
            if before(self.time_of(middle)) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }
}

/// Packets of one segment whose times lie in a span, lent, with their indices.
pub struct Within<'a> {
    blocks: Picked<'a, std::ops::Range<u32>>,
    from_ns: i64,
    to_ns: i64,
}

impl<'a> Iterator for Within<'a> {
    type Item = (u32, PacketBlock<'a>);

    fn next(&mut self) -> Option<(u32, PacketBlock<'a>)> {
        let inside = self.from_ns..=self.to_ns;
        self.blocks.find(|(_, block)| inside.contains(&block.time_ns()))
    }
}
