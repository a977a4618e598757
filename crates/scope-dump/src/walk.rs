//! The lanes' part of a window: which pieces of which segments are there, which of them may be held, and which are gone.
//!
//! A *piece* is what one segment has committed and the dump hasn't read yet. A look at the ring ([`Walk::look`]) lists all
//! pieces that may concern the window, by their smallest time: so a reader who takes them in this order knows, from the next
//! piece's smallest time, what can go out. Pieces are pinned in that order as far as the allowance reaches.

use crate::pins::FirstPins;
use crate::scans::Reader;
use scope_packet::KeyEntry;
use scope_packet::pcapng::PacketBlock;
use scope_ring::{KeyTest, Lost, Pinned, Ring};
use std::ops::Range;
use std::sync::Arc;

/// What one segment holds that is still to be read.
pub(crate) struct Piece {
    pub lane: u32,
    sequence: u64,
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
    first: FirstPins,
    positions: Vec<Position>,
    /// The window's, and where it begins.
    era: u64,
    from_ns: i64,
    /// Pieces of the last look up to here have been offered a pin, for each claim group.
    held_up_to: Vec<usize>,
    /// What was recycled before it was read: lane, and packet numbers from and up to (exclusive).
    gaps: Vec<(u32, u64, u64)>,
}

/// Gaps that are kept apart; beyond, a lane's last one grows over what was read in between, which the memory of recycled
/// segments puts right.
const GAPS_MAX: usize = 65_536;

impl Walk {
    pub(crate) fn new(ring: &Arc<Ring>, first: FirstPins, era: u64, from_ns: i64) -> Walk {
        Walk {
            ring: ring.clone(),
            first,
            positions: Vec::new(),
            era,
            from_ns,
            held_up_to: vec![0; ring.group_segments().len()],
            gaps: Vec::new(),
        }
    }

    /// Lists what has been committed since the last look and isn't all behind `reach_ns`, smallest times first.
    pub(crate) fn look(&mut self, reach_ns: i64) -> Vec<Piece> {
        self.positions.resize(self.ring.lanes() as usize, Position::default());
        let mut pieces = Vec::new();
        for lane in 0..self.positions.len() as u32 {
            self.look_at_lane(lane, reach_ns, &mut pieces);
        }
        pieces.sort_by_key(|piece| (piece.min_ns, piece.lane, piece.sequence));
        let mut needed: Vec<u64> = self.positions.iter().map(|position| position.sequence).collect();
        for piece in pieces.iter_mut().rev() {
            let lane = &mut needed[piece.lane as usize];
            piece.needed_then = *lane;
            *lane = piece.sequence.min(*lane);
        }
        for (lane, sequence) in needed.into_iter().enumerate() {
            self.first.follower.done_before(lane as u32, sequence);
        }
        self.held_up_to.fill(0);
        self.hold_on(&pieces);
        pieces
    }

    fn look_at_lane(&mut self, lane: u32, reach_ns: i64, pieces: &mut Vec<Piece>) {
        let mut at = self.positions[lane as usize];
        let next = self.ring.lane_next(lane);
        for sequence in at.sequence.max(self.ring.oldest_possible(lane))..next {
            let held = self.first.held.take(lane, sequence);
            let was_held = held.is_some();
            let Some(pinned) = held.or_else(|| self.ring.pin(lane, sequence)) else {
                continue; // recycled: the next one that is there tells how much is missing
            };
            self.note_gap(lane, at.packet, pinned.first_packet());
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
                    lane,
                    sequence,
                    first_packet,
                    packets: end_packet - first_packet,
                    min_ns,
                    ordered: !unordered,
                    needed_then: 0,
                });
                if was_held {
                    self.first.held.put(pinned);
                }
            }
            if committed.sealed {
                at = Position { sequence: sequence + 1, packet: all_packets };
            }
        }
        self.positions[lane as usize] = at;
    }

    /// Pins further pieces of the last look, in order, as far as the allowance reaches in each claim group.
    fn hold_on(&mut self, pieces: &[Piece]) {
        let held = &mut self.first.held;
        for (group, up_to) in self.held_up_to.iter_mut().enumerate() {
            while let Some(piece) = pieces.get(*up_to) {
                if self.ring.lane_group(piece.lane).index() == group {
                    if !held.has_room(piece.lane) {
                        break;
                    }
                    if !held.holds(piece.lane, piece.sequence)
                        && let Some(pinned) = self.ring.pin(piece.lane, piece.sequence)
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
        let pinned = self.first.held.take(piece.lane, piece.sequence).or_else(|| self.ring.pin(piece.lane, piece.sequence));
        if pinned.is_none() {
            self.note_gap(piece.lane, piece.first_packet, piece.first_packet + piece.packets);
        }
        pinned.map(|pinned| {
            let first = (piece.first_packet - pinned.first_packet()) as u32;
            Read { pinned, packets: first..first + piece.packets as u32 }
        })
    }

    /// Piece `index` of the last look is done with: further ones are held, and who waits for this dump learns how far it is.
    pub(crate) fn done(&mut self, pieces: &[Piece], index: usize) {
        self.hold_on(pieces);
        self.first.follower.done_before(pieces[index].lane, pieces[index].needed_then);
    }

    /// Of each lane the packet at which the next look begins.
    pub(crate) fn passed(&self) -> impl Iterator<Item = u64> + '_ {
        self.positions.iter().map(|position| position.packet)
    }

    /// Segments held now.
    pub(crate) fn held(&self) -> u64 {
        self.first.held.len()
    }

    fn note_gap(&mut self, lane: u32, from: u64, to: u64) {
        if from >= to {
            return;
        }
        let known = self.gaps.len();
        match self.gaps.iter_mut().rev().find(|gap| gap.0 == lane) {
            Some(gap) if gap.2 >= from || known >= GAPS_MAX => gap.2 = gap.2.max(to),
            _ => self.gaps.push((lane, from, to)),
        }
    }

    /// After the last look: what the window lacks because it was recycled before it was read.
    pub(crate) fn lost(&mut self, to_ns: i64) -> Lost {
        for lane in 0..self.positions.len() as u32 {
            self.note_gap(lane, self.positions[lane as usize].packet, u64::MAX);
        }
        let lost_in = |gap: &(u32, u64, u64)| {
            let of_era = self.ring.era_packets(gap.0, self.era);
            self.ring.lost(gap.0, gap.1.max(of_era.start), gap.2.min(of_era.end), (self.from_ns, to_ns))
        };
        self.gaps.iter().map(lost_in).fold(Lost::default(), Lost::and)
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
