//! The lanes' part of a window: which pieces of which segments are there, which of them may be held, and which are gone.
//!
//! A *piece* is what one segment has committed and the dump hasn't read yet. A look at the ring ([`Walk::look`]) lists all
//! pieces that may concern the window, by their smallest time: so a reader who takes them in this order knows, from the next
//! piece's smallest time, what can go out. Pieces are pinned in that order as far as the allowance reaches.

use crate::pins::{FirstPins, Hold};
use crate::scans::Reader;
use scope_packet::pcapng::PacketBlock;
use scope_packet::{KeyEntry, SegmentId};
use scope_ring::{Held, KeyTest, Lost, Pinned, Ring};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// What one segment holds that is still to be read.
pub(crate) struct Piece {
    pub segment: SegmentId,
    /// Number in the lane of its first packet, and how many there are.
    pub first_packet: u64,
    packets: u64,
    /// No packet is older; of an open segment, packets that were read before count, too.
    pub min_ns: i64,
    /// Times never step back inside.
    pub ordered: bool,
    /// Sequence of the oldest segment that this lane still needs when this piece is done with.
    needed_then: u64,
}

impl Piece {
    /// Its packets, by number in the lane.
    pub fn numbers(&self) -> Range<u64> {
        self.first_packet..self.first_packet + self.packets
    }
}

/// Where the dump stands in one lane: the next packet to be looked at.
#[derive(Clone, Copy, Default)]
struct Position {
    sequence: u64,
    packet: u64,
}

/// All lanes of the ring, as one dump goes through them.
pub(crate) struct Walk {
    ring: Arc<Ring>,
    hold: Arc<Hold>,
    positions: Vec<Position>,
    /// The window's, and where it begins.
    era: u64,
    from_ns: i64,
    /// Pieces of the last look up to here have been offered a pin, for each claim group.
    held_up_to: Vec<usize>,
    /// Per lane: what was recycled before it was read.
    missing: Vec<Missing>,
}

/// Spans of numbers that are kept apart in a lane; beyond, the two oldest become one, over what was read in between.
const MISSING_MAX: usize = 65_536;

/// Packets of one lane that were gone before they were read.
#[derive(Default)]
struct Missing {
    /// By their first number: the number behind the last one, and whether all of them are missing.
    spans: BTreeMap<u64, (u64, bool)>,
}

impl Missing {
    /// Adds packets, none of which is in it.
    fn add(&mut self, from: u64, to: u64, most: usize) {
        if from >= to {
            return;
        }
        let (mut from, mut to, mut all) = (from, to, true);
        if let Some((&start, &(end, exact))) = self.spans.range(..=from).next_back()
            && end >= from
        {
            self.spans.remove(&start);
            (from, to, all) = (start, to.max(end), exact);
        }
        while let Some((&start, &(end, exact))) = self.spans.range(from..=to).next() {
            self.spans.remove(&start);
            (to, all) = (to.max(end), all && exact);
        }
        self.spans.insert(from, (to, all));
        if self.spans.len() > most
            && let Some((first, _)) = self.spans.pop_first()
            && let Some(second) = self.spans.first_entry()
        {
            let (end, _) = second.remove();
            self.spans.insert(first, (end, false));
        }
    }
}

impl Walk {
    pub(crate) fn new(ring: &Arc<Ring>, first: &FirstPins, era: u64, from_ns: i64) -> Walk {
        Walk {
            ring: ring.clone(),
            hold: first.hold.clone(),
            positions: Vec::new(),
            era,
            from_ns,
            held_up_to: vec![0; ring.group_segments().len()],
            missing: Vec::new(),
        }
    }

    /// Lists what has been committed since the last look and isn't all behind `reach_ns`, smallest times first. `last`: there will
    /// be no other look.
    pub(crate) fn look(&mut self, reach_ns: i64, last: bool) -> Vec<Piece> {
        let hold = self.hold.clone();
        let mut state = hold.lock();
        self.positions.resize(self.ring.lanes() as usize, Position::default());
        self.missing.resize_with(self.positions.len(), Missing::default);
        let mut pieces = Vec::new();
        let lanes = 0..self.positions.len() as u32;
        let mut needed: Vec<u64> = lanes.map(|lane| self.look_at_lane(lane, reach_ns, &mut state.held, &mut pieces)).collect();
        state.full.note(false);
        state.behind = (!last).then(|| self.positions.iter().map(|position| position.sequence).collect());
        pieces.sort_by_key(|piece| (piece.min_ns, piece.segment));
        for piece in pieces.iter_mut().rev() {
            let lane = &mut needed[piece.segment.lane as usize];
            piece.needed_then = *lane;
            *lane = piece.segment.sequence.min(*lane);
        }
        for (lane, sequence) in needed.into_iter().enumerate() {
            self.hold.follower.done_before(lane as u32, sequence);
        }
        self.held_up_to.fill(0);
        self.hold_on(&pieces, &mut state.held);
        pieces
    }

    /// Returns the segment from which on the next look needs the lane: nobody has to wait for this dump to pass what is recycled.
    fn look_at_lane(&mut self, lane: u32, reach_ns: i64, held: &mut Held, pieces: &mut Vec<Piece>) -> u64 {
        let mut at = self.positions[lane as usize];
        let mut recycled = 0;
        for segment in self.ring.segment_ids(lane, at.sequence) {
            let sequence = segment.sequence;
            let own = held.take(segment);
            let was_held = own.is_some();
            let Some(pinned) = own.or_else(|| self.ring.pin(segment)) else {
                recycled = sequence + 1; // the next one that is there tells how much is missing
                continue;
            };
            self.note_missing(lane, at.packet, pinned.first_packet());
            let from_packet = at.packet.max(pinned.first_packet());
            let committed = pinned.committed();
            let all_packets = pinned.first_packet() + committed.packets as u64;
            at = Position { sequence, packet: all_packets };
            // After the look at what is committed: where a lane enters an era is noted before.
            let of_era = self.ring.era_packets(lane, self.era);
            let (first_packet, end_packet) = (from_packet.max(of_era.start), all_packets.min(of_era.end));
            let span = pinned.span().filter(|(min_ns, max_ns, _)| *max_ns >= self.from_ns && *min_ns <= reach_ns);
            if end_packet > first_packet
                && let Some((min_ns, _, unordered)) = span
            {
                pieces.push(Piece {
                    segment,
                    first_packet,
                    packets: end_packet - first_packet,
                    min_ns,
                    ordered: !unordered,
                    needed_then: 0,
                });
                if was_held {
                    held.put(pinned);
                }
            }
            if committed.sealed {
                at = Position { sequence: sequence + 1, packet: all_packets };
            }
        }
        self.positions[lane as usize] = at;
        at.sequence.max(recycled)
    }

    /// Pins further pieces of the last look, in order, as far as the allowance reaches in each claim group.
    fn hold_on(&mut self, pieces: &[Piece], held: &mut Held) {
        for (group, up_to) in self.held_up_to.iter_mut().enumerate() {
            while let Some(piece) = pieces.get(*up_to) {
                if self.ring.lane_group(piece.segment.lane).index() == group {
                    if !held.has_room(piece.segment.lane) {
                        break;
                    }
                    if !held.holds(piece.segment)
                        && let Some(pinned) = self.ring.pin(piece.segment)
                    {
                        held.put(pinned);
                    }
                }
                *up_to += 1;
            }
        }
    }

    /// Reads piece `index` of the last look; `None` where it was recycled meanwhile, which is noted.
    pub(crate) fn read(&mut self, pieces: &[Piece], index: usize) -> Option<Read> {
        let piece = &pieces[index];
        self.held_up_to.iter_mut().for_each(|up_to| *up_to = (index + 1).max(*up_to));
        let held = self.hold.lock().held.take(piece.segment);
        let pinned = held.or_else(|| self.ring.pin(piece.segment));
        if pinned.is_none() {
            self.note_missing(piece.segment.lane, piece.first_packet, piece.first_packet + piece.packets);
        }
        pinned.map(|pinned| {
            let first = (piece.first_packet - pinned.first_packet()) as u32;
            Read { pinned, packets: first..first + piece.packets as u32 }
        })
    }

    /// Piece `index` of the last look is done with: further ones are held, and who waits for this dump learns how far it is.
    pub(crate) fn done(&mut self, pieces: &[Piece], index: usize) {
        let hold = self.hold.clone();
        self.hold_on(pieces, &mut hold.lock().held);
        self.hold.follower.done_before(pieces[index].segment.lane, pieces[index].needed_then);
    }

    /// Of each lane the packet at which the next look begins.
    pub(crate) fn passed(&self) -> impl Iterator<Item = u64> + '_ {
        self.positions.iter().map(|position| position.packet)
    }

    /// Segments held now.
    pub(crate) fn held(&self) -> u64 {
        self.hold.lock().held.len()
    }

    /// For how long it held all that it may while there was more.
    pub(crate) fn full(&self) -> Duration {
        self.hold.lock().full.total()
    }

    /// Everything is read: nothing is held any more, also while the file is still written.
    pub(crate) fn let_go(&self) {
        self.hold.lock().held.end();
    }

    fn note_missing(&mut self, lane: u32, from: u64, to: u64) {
        self.missing[lane as usize].add(from, to, MISSING_MAX);
    }

    /// After the last look: what the window lacks because it was recycled before it was read, span by span.
    pub(crate) fn lost(&mut self, to_ns: i64) -> Vec<Lost> {
        let mut all = Vec::new();
        for (lane, (missing, at)) in (0u32..).zip(self.missing.iter_mut().zip(&self.positions)) {
            // What was committed behind the last look and is gone already.
            missing.add(at.packet, u64::MAX, MISSING_MAX);
            let of_era = self.ring.era_packets(lane, self.era);
            let spans = missing.spans.iter().map(|(&from, &(to, _))| from.max(of_era.start)..to.min(of_era.end));
            let spans: Vec<Range<u64>> = spans.map(|span| span.start..span.end.max(span.start)).collect();
            let exact = missing.spans.values().map(|(_, exact)| *exact);
            let lost = self.ring.lost(lane, &spans, (self.from_ns, to_ns)).into_iter().zip(exact);
            let lost = lost.map(|(lost, exact)| Lost { packets_min: if exact { lost.packets_min } else { 0 }, ..lost });
            all.extend(lost.filter(|lost| lost.packets_max > 0));
        }
        all
    }
}

/// A piece, pinned.
pub(crate) struct Read {
    pinned: Pinned,
    /// Indices in the segment.
    packets: Range<u32>,
}

/// A packet that may belong to the dump, lent.
pub(crate) struct Candidate<'a> {
    /// Number in the lane.
    pub packet: u64,
    pub key: KeyEntry,
    pub block: PacketBlock<'a>,
}

impl Read {
    /// Indices of the packets whose keys pass, and of packet `hit` of the lane whatever its key, in the order in which they came.
    pub(crate) fn own<'a>(&'a self, reader: &Reader, keys: &'a KeyTest, hit: Option<u64>) -> impl Iterator<Item = u32> + use<'a> {
        let Range { start, end } = self.packets;
        let hit = self.index(hit);
        let (before, behind) = hit.map_or((end, end), |hit| (hit, hit + 1));
        let skip = reader.can_skip(&self.pinned, keys);
        let passing = |from: u32, to: u32| self.pinned.matches(keys, from, if skip { from } else { to });
        passing(start, before).chain(hit).chain(passing(behind, end))
    }

    /// The same, as far as another dump has scanned them for all; `None` where none has.
    pub(crate) fn shared(&self, reader: &Reader, keys: &KeyTest, hit: Option<u64>) -> Option<Vec<u32>> {
        let (own, found) = reader.take(&self.pinned, self.packets.clone())?;
        let mut indices = Vec::with_capacity(found.len() + 1);
        if !own.is_empty() && !reader.can_skip(&self.pinned, keys) {
            indices.extend(self.pinned.matches(keys, own.start, own.end));
        }
        indices.extend(found);
        if let Some(hit) = self.index(hit)
            && let Err(at) = indices.binary_search(&hit)
        {
            indices.insert(at, hit);
        }
        Some(indices)
    }

    /// Index in the segment of packet `packet` of the lane, if it is one of these.
    fn index(&self, packet: Option<u64>) -> Option<u32> {
        let index = packet.and_then(|packet| u32::try_from(packet.checked_sub(self.pinned.first_packet())?).ok());
        index.filter(|index| self.packets.contains(index))
    }

    /// The packets at these indices; the blocks of others are not touched.
    pub(crate) fn candidates<'a>(&'a self, indices: impl Iterator<Item = u32> + 'a) -> impl Iterator<Item = Candidate<'a>> + 'a {
        let first_packet = self.pinned.first_packet();
        self.pinned.pick(indices).map(move |(index, block)| Candidate {
            packet: first_packet + u64::from(index),
            key: self.pinned.entry(index),
            block,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn what_is_missing_is_what_was_added_in_any_order(mut spans in proptest::collection::vec((0u64..400, 1u64..9), 0..40), most in 1usize..40) {
            let (mut missing, mut model) = (Missing::default(), BTreeSet::new());
            spans.retain(|&(from, len)| (from..from + len).all(|number| !model.contains(&number)) && {
                model.extend(from..from + len);
                true
            });
            spans.iter().for_each(|&(from, len)| missing.add(from, from + len, most));
            prop_assert!(missing.spans.len() <= most);
            let spans: Vec<(u64, u64, bool)> = missing.spans.iter().map(|(&from, &(to, exact))| (from, to, exact)).collect();
            prop_assert!(spans.windows(2).all(|pair| pair[0].1 < pair[1].0), "apart, and in order: {spans:?}");
            let within = |number: &u64| spans.iter().find(|(from, to, _)| (from..to).contains(&number));
            prop_assert!(model.iter().all(|number| within(number).is_some()), "none is forgotten");
            let exact = spans.iter().filter(|span| span.2).flat_map(|span| span.0..span.1);
            prop_assert!(exact.into_iter().all(|number| model.contains(&number)));
        }
    }

    #[test]
    fn a_gap_before_a_later_one_is_not_swallowed() {
        let mut missing = Missing::default();
        [(100, 200), (50, 60), (200, 210), (10, 20)].into_iter().for_each(|(from, to)| missing.add(from, to, MISSING_MAX));
        assert_eq!(missing.spans.into_iter().collect::<Vec<_>>(), [(10, (20, true)), (50, (60, true)), (100, (210, true))]);
    }
}
