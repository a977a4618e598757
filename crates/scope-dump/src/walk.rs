//! The lanes' part of a window: which pieces of which segments are there, which of them may be held, and which are gone.
//!
//! A *piece* is what one segment has committed and the dump hasn't read yet. A look at the ring ([`Walk::look`]) lists all
//! pieces that may concern the window, by their smallest time: so a reader who takes them in this order knows, from the next
//! piece's smallest time, what can go out. Pieces are pinned in that order as far as the allowance reaches.

use crate::pins::FirstPins;
use scope_ring::pin::Blocks;
use scope_ring::{Lost, Pinned, Ring};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What one segment holds that is still to be read.
pub(crate) struct Piece {
    pub lane: u32,
    sequence: u64,
    /// Bytes of the segment, block boundaries.
    from: u32,
    to: u32,
    /// Number in the lane of its first packet, and how many there are.
    pub first_packet: u64,
    packets: u64,
    pub min_ns: i64,
    /// Times never step back inside.
    pub ordered: bool,
}

/// Where the dump stands in one lane: the next byte and packet to be looked at.
#[derive(Clone, Copy, Default)]
struct Position {
    sequence: u64,
    bytes: u32,
    packet: u64,
}

/// All lanes of the ring, as one dump goes through them.
pub(crate) struct Walk {
    ring: Arc<Ring>,
    first: FirstPins,
    positions: Vec<Position>,
    from_ns: i64,
    /// What was recycled before it was read.
    pub lost: Lost,
}

impl Walk {
    pub(crate) fn new(ring: &Arc<Ring>, first: FirstPins, from_ns: i64) -> Walk {
        Walk { ring: ring.clone(), first, positions: Vec::new(), from_ns, lost: Lost::default() }
    }

    /// Lists what has been committed since the last look, pieces with the smallest times first.
    pub(crate) fn look(&mut self, to_ns: i64) -> Vec<Piece> {
        self.positions.resize(self.ring.lanes() as usize, Position::default());
        let mut pieces = Vec::new();
        for lane in 0..self.positions.len() as u32 {
            self.look_at_lane(lane, to_ns, &mut pieces);
        }
        pieces.sort_by_key(|piece| (piece.min_ns, piece.lane, piece.sequence));
        for piece in &pieces {
            self.hold(piece);
        }
        self.publish_place(&pieces);
        pieces
    }

    fn look_at_lane(&mut self, lane: u32, to_ns: i64, pieces: &mut Vec<Piece>) {
        let mut at = self.positions[lane as usize];
        let next = self.ring.lane_next(lane);
        for sequence in at.sequence.max(self.ring.oldest_possible(lane))..next {
            let pinned = match self.first.held.remove(&(lane, sequence)) {
                Some(pinned) => pinned,
                None => match self.ring.pin(lane, sequence) {
                    Some(pinned) => pinned,
                    None => continue, // recycled: the next one that is there tells how much is missing
                },
            };
            let from = if sequence == at.sequence { at.bytes } else { 0 };
            self.note_gap(lane, at.packet, pinned.first_packet(), to_ns);
            let first_packet = at.packet.max(pinned.first_packet());
            let committed = pinned.committed();
            let end_packet = pinned.first_packet() + committed.packets as u64;
            at = Position { sequence, bytes: committed.bytes, packet: end_packet };
            let times = match pinned.times() {
                Some(times) => (times.min_ns, times.max_ns, !times.unordered),
                None => scan(pinned.blocks(from, committed.bytes)),
            };
            let concerns = committed.bytes > from && times.1 >= self.from_ns && times.0 <= to_ns;
            if concerns {
                pieces.push(Piece {
                    lane,
                    sequence,
                    from,
                    to: committed.bytes,
                    first_packet,
                    packets: end_packet - first_packet,
                    min_ns: times.0,
                    ordered: times.2,
                });
                if self.has_room() {
                    self.first.held.insert((lane, sequence), pinned);
                }
            }
            if committed.sealed {
                at = Position { sequence: sequence + 1, bytes: 0, packet: end_packet };
            }
        }
        self.positions[lane as usize] = at;
    }

    fn has_room(&self) -> bool {
        (self.first.held.len() as u64) < self.first.allowance.segments()
    }

    fn hold(&mut self, piece: &Piece) {
        let place = (piece.lane, piece.sequence);
        if self.has_room()
            && !self.first.held.contains_key(&place)
            && let Some(pinned) = self.ring.pin(piece.lane, piece.sequence)
        {
            self.first.held.insert(place, pinned);
        }
    }

    /// Reads a piece; `None` where it was recycled meanwhile, which is noted. `rest` are the pieces that come afterwards: the
    /// next of them is held in its place.
    pub(crate) fn read(&mut self, piece: &Piece, to_ns: i64) -> Option<Read> {
        let pinned = self.first.held.remove(&(piece.lane, piece.sequence)).or_else(|| self.ring.pin(piece.lane, piece.sequence));
        if pinned.is_none() {
            self.note_gap(piece.lane, piece.first_packet, piece.first_packet + piece.packets, to_ns);
        }
        pinned.map(|pinned| Read { pinned, from: piece.from, to: piece.to })
    }

    /// A piece is done with: the next that isn't held yet is, and those who wait for this dump learn how far it is.
    pub(crate) fn done(&mut self, rest: &[Piece]) {
        if let Some(piece) = rest.iter().find(|piece| !self.first.held.contains_key(&(piece.lane, piece.sequence))) {
            self.hold(piece);
        }
        self.publish_place(rest);
    }

    /// Tells how far everything is read: up to the first piece of each lane that is left.
    fn publish_place(&self, rest: &[Piece]) {
        let mut needed: BTreeMap<u32, u64> = BTreeMap::new();
        for piece in rest {
            let first = needed.entry(piece.lane).or_insert(piece.sequence);
            *first = piece.sequence.min(*first);
        }
        for (lane, position) in self.positions.iter().enumerate() {
            let sequence = needed.get(&(lane as u32)).copied().unwrap_or(position.sequence);
            self.first.follower.done_before(lane as u32, sequence);
        }
    }

    fn note_gap(&mut self, lane: u32, from: u64, to: u64, to_ns: i64) {
        self.lost = self.lost.and(self.ring.lost(lane, from, to, (self.from_ns, to_ns)));
    }

    /// After the last look: what was recycled in front of it and nobody came to tell.
    pub(crate) fn note_tail(&mut self, to_ns: i64) {
        for lane in 0..self.positions.len() as u32 {
            self.note_gap(lane, self.positions[lane as usize].packet, u64::MAX, to_ns);
        }
    }
}

/// A piece, pinned.
pub(crate) struct Read {
    pinned: Pinned,
    from: u32,
    to: u32,
}

impl Read {
    pub(crate) fn blocks(&self) -> Blocks<'_> {
        self.pinned.blocks(self.from, self.to)
    }
}

/// Smallest and largest time of an open segment's packets, and whether they never step back.
fn scan(blocks: Blocks<'_>) -> (i64, i64, bool) {
    let (mut min_ns, mut max_ns, mut ordered, mut last_ns) = (i64::MAX, 0, true, 0);
    for time_ns in blocks.map(|block| block.time_ns()) {
        min_ns = min_ns.min(time_ns);
        max_ns = max_ns.max(time_ns);
        ordered &= time_ns >= last_ns;
        last_ns = time_ns;
    }
    (min_ns, max_ns, ordered)
}
