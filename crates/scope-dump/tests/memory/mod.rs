//! A timeline in memory: plain lists of packets that answer what a dump asks, with the losses and the pace
//! that a test gives it. It knows no ring, no pin and no thread; what it says of losses is worked out
//! naively.

#![allow(dead_code)] // each test binary uses a part of it

use scope_packet::pcapng::PacketHead;
use scope_packet::{Gap, GapReason, Headers, KeyEntry, LinkType, Moment, SegmentId, TimestampSource};
use scope_ring::search::Column;
use scope_ring::{InterfaceEntry, Interfaces, KeyTest, Matches, Packets, Piece, Settled, Timeline};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// The run that it says its segments are of.
pub const RUN: [u8; 16] = [9; 16];

/// Packets of one lane that have one name.
#[derive(Default)]
struct Segment {
    first_packet: u64,
    times: Vec<i64>,
    blocks: Vec<u8>,
    /// First packet first.
    entries: Vec<KeyEntry>,
    /// The entries as they are lent, last one first.
    column: Vec<u8>,
}

/// All packets of a test, by lane and segment.
pub struct Memory {
    lanes: Vec<BTreeMap<u64, Segment>>,
    /// Time, lane and number of each packet, in the order in which they come.
    pub order: Vec<(i64, u32, u64)>,
    /// So many of them came.
    came: usize,
    /// Of each lane how many came, and their latest time.
    counts: Vec<u64>,
    clocks: Vec<i64>,
    /// So many come before each look.
    pub step: usize,
    /// So much older than its lane's latest packet may one be that still comes, ns.
    pub grace_ns: i64,
    /// Of each lane the packets before this one are gone from the beginning.
    pub living_from: Vec<u64>,
    /// Segments that are gone when they are to be read.
    pub vanishing: BTreeSet<SegmentId>,
    /// What never came.
    pub never_came: Vec<Gap>,
    /// From when to when somebody listened; `None`: from the first packet to the last.
    pub listened: Option<(i64, i64)>,
    from_ns: i64,
    settled: Moment,
    /// Per lane, the next packet to be handed out.
    handed_out: Vec<u64>,
    pieces: std::vec::IntoIter<Piece>,
    piece: Option<Piece>,
    reads: bool,
    /// What vanished, by lane and numbers.
    vanished: Vec<(u32, Range<u64>)>,
    ended: bool,
}

/// Interface `n` is that of lane `n`.
impl Interfaces for Memory {
    fn interface(&self, number: u32) -> Option<InterfaceEntry> {
        self.interfaces_from(number).into_iter().next()
    }

    fn interfaces_from(&self, from: u32) -> Vec<InterfaceEntry> {
        let entry = |lane| InterfaceEntry {
            lane,
            link_type: LinkType::ETHERNET,
            name: format!("if{lane}"),
            snap_len: 0,
            timestamps: TimestampSource::File,
            description: format!("lane {lane}; snap length none; timestamps file"),
        };
        (from..self.lanes.len() as u32).map(entry).collect()
    }
}

impl Memory {
    /// Without packets, for a span that begins at `from_ns`.
    pub fn new(lanes: u32, from_ns: i64) -> Memory {
        Memory {
            lanes: (0..lanes).map(|_| BTreeMap::new()).collect(),
            order: Vec::new(),
            came: 0,
            counts: vec![0; lanes as usize],
            clocks: vec![0; lanes as usize],
            step: usize::MAX,
            grace_ns: 0,
            living_from: vec![0; lanes as usize],
            vanishing: BTreeSet::new(),
            never_came: Vec::new(),
            listened: None,
            from_ns,
            settled: Moment::BEGIN,
            handed_out: vec![0; lanes as usize],
            pieces: Vec::new().into_iter(),
            piece: None,
            reads: false,
            vanished: Vec::new(),
            ended: false,
        }
    }

    /// One packet more, in segment `sequence` of `lane`.
    pub fn push(&mut self, lane: u32, sequence: u64, head: &PacketHead, data: &[u8]) {
        let number = self.lanes[lane as usize]
            .values()
            .next_back()
            .map_or(0, |last| last.first_packet + last.times.len() as u64);
        let segment = self.lanes[lane as usize].entry(sequence).or_default();
        if segment.times.is_empty() {
            segment.first_packet = number;
        }
        let at = segment.blocks.len();
        segment.blocks.resize(at + head.block_bytes(), 0);
        PacketHead { interface: lane, ..*head }.write(&mut segment.blocks[at..], data);
        segment.times.push(head.time_ns);
        let key = KeyEntry::new(&Headers::parse(LinkType::ETHERNET, data));
        segment.entries.push(key.at(at as u32));
        self.order.push((head.time_ns, lane, number));
    }

    /// So many packets of those that were pushed came.
    pub fn come(&mut self, came: usize) {
        for &(time_ns, lane, _) in &self.order[self.came..came] {
            self.counts[lane as usize] += 1;
            self.clocks[lane as usize] = time_ns.max(self.clocks[lane as usize]);
        }
        self.came = came;
    }

    pub fn is_at_its_end(&self) -> bool {
        self.came >= self.order.len()
    }

    fn time_of(&self, lane: u32, number: u64) -> i64 {
        let of_lane = self.lanes[lane as usize].values();
        let segment = of_lane.rev().find(|segment| segment.first_packet <= number).expect("it was pushed");
        segment.times[(number - segment.first_packet) as usize]
    }

    /// What a recycled segment's `packets` mean for the span: nobody knows more of them than its smallest and
    /// largest time.
    fn lost(segment: &Segment, to_ns: i64, from_ns: i64) -> Option<(u64, u64, i64, i64)> {
        let (min_ns, max_ns) = (*segment.times.iter().min()?, *segment.times.iter().max()?);
        if max_ns < from_ns || min_ns > to_ns {
            return None;
        }
        let packets = segment.times.len() as u64;
        let (least, most) = match (min_ns >= from_ns, max_ns <= to_ns) {
            (true, true) => (packets, packets),
            (false, false) => (0, packets),
            _ => (1, packets - 1),
        };
        Some((least, most, min_ns.max(from_ns), max_ns.min(to_ns)))
    }
}

/// One gap of all that is lost of a lane.
fn evicted(lost: impl Iterator<Item = (u64, u64, i64, i64)>) -> Option<Gap> {
    let all = lost.reduce(|a, b| (a.0 + b.0, a.1 + b.1, a.2.min(b.2), a.3.max(b.3)));
    let (lost_min, most, from_ns, to_ns) = all.filter(|all| all.1 > 0)?;
    Some(Gap { from_ns, to_ns, reason: GapReason::Evicted, lost_min, lost_max: Some(most) })
}

impl Timeline for Memory {
    fn settle(&mut self, _to_ns: i64) -> Settled {
        self.come(self.came.saturating_add(self.step).min(self.order.len()));
        let latest = self.clocks.iter().copied().min().unwrap_or(0);
        self.settled =
            if self.is_at_its_end() { Moment::END } else { Moment::new(0, latest - self.grace_ns) };
        Settled { up_to: self.settled, goes_on: true }
    }

    fn look(&mut self, to_ns: i64, last: bool) {
        let mut pieces = Vec::new();
        for (lane, segments) in self.lanes.iter_mut().enumerate() {
            let from = self.handed_out[lane].max(self.living_from[lane]);
            for (&sequence, segment) in segments {
                let numbers = segment.first_packet..segment.first_packet + segment.times.len() as u64;
                let new = numbers.start.max(from)..numbers.end.min(self.counts[lane]);
                let index = |number: u64| (number - numbers.start) as usize;
                let times =
                    if new.is_empty() { &[][..] } else { &segment.times[index(new.start)..index(new.end)] };
                let (Some(&min_ns), Some(&max_ns)) = (times.iter().min(), times.iter().max()) else {
                    continue;
                };
                if max_ns >= self.from_ns && (min_ns <= to_ns || !last) {
                    pieces.push(Piece {
                        segment: SegmentId { run: RUN, lane: lane as u32, sequence },
                        lane: lane as u32,
                        first_packet: new.start,
                        packets: (new.end - new.start) as u32,
                        min_ns,
                        ordered: times.is_sorted(),
                    });
                }
            }
            self.handed_out[lane] = self.counts[lane].max(from);
        }
        pieces.sort_by_key(|piece| (piece.min_ns, piece.lane, piece.segment.sequence));
        self.pieces = pieces.into_iter();
    }

    fn next(&mut self) -> Option<Piece> {
        assert!(self.piece.is_none(), "one at a time");
        self.piece = self.pieces.next();
        self.piece
    }

    fn next_place(&self) -> Option<(i64, u32)> {
        self.pieces.as_slice().first().map(|piece| (piece.min_ns, piece.lane))
    }

    fn screen(&mut self, keys: &KeyTest, always: Option<u64>) -> Option<Matches> {
        let piece = self.piece.expect("a piece");
        let numbers = piece.first_packet..piece.first_packet + u64::from(piece.packets);
        if self.vanishing.contains(&piece.segment) {
            self.vanished.push((piece.lane, numbers));
            return None;
        }
        self.reads = true;
        let segment = &self.lanes[piece.lane as usize][&piece.segment.sequence];
        let mut picked = Matches::none(piece.packets);
        for (index, number) in (0..).zip(numbers) {
            let entry = &segment.entries[(number - segment.first_packet) as usize];
            if keys.matches(entry) || always == Some(number) {
                picked.insert(index);
            }
        }
        Some(picked)
    }

    fn packets(&mut self, picked: Matches) -> Packets<'_> {
        let piece = self.piece.filter(|_| self.reads).expect("it was screened");
        let lane = &mut self.lanes[piece.lane as usize];
        let segment = lane.get_mut(&piece.segment.sequence).expect("it was listed");
        let first = (piece.first_packet - segment.first_packet) as usize;
        let entries = &segment.entries[first..first + piece.packets as usize];
        segment.column = entries.iter().rev().flat_map(|entry| entry.to_bytes()).collect();
        Packets::new(piece.first_packet, Column::new(&segment.column), &segment.blocks, picked)
    }

    fn done(&mut self) {
        assert!(self.piece.take().is_some(), "each once");
        self.reads = false;
    }

    fn wait(&mut self, _rest_ns: i64) {
        assert!(!self.ended && self.piece.is_none());
    }

    fn end(&mut self) {
        self.ended = true;
    }

    fn link_type(&self, lane: u32) -> Option<LinkType> {
        self.lanes.get(lane as usize).map(|_| LinkType::ETHERNET)
    }

    fn heard(&self) -> Option<(i64, i64)> {
        let times = || self.order[..self.came].iter().map(|packet| packet.0);
        self.listened.or(times().min().zip(times().max()))
    }

    fn missing(&self, to_ns: i64) -> Vec<Gap> {
        let from_ns = self.from_ns;
        let mut gaps = self.never_came.clone();
        for (segments, living_from) in self.lanes.iter().zip(&self.living_from) {
            let gone = segments.values().filter(|segment| segment.first_packet < *living_from);
            gaps.extend(evicted(gone.filter_map(|segment| Memory::lost(segment, to_ns, from_ns))));
        }
        for (lane, numbers) in &self.vanished {
            // It remembers each of them.
            let times = numbers.clone().map(|number| self.time_of(*lane, number));
            let inside = times.filter(|time_ns| (from_ns..=to_ns).contains(time_ns));
            gaps.extend(evicted(inside.map(|time_ns| (1, 1, time_ns, time_ns))));
        }
        if self.settled <= Moment::new(0, to_ns) {
            let from_ns = (self.settled.time_ns + 1).max(from_ns);
            gaps.push(Gap { from_ns, to_ns, reason: GapReason::Unsettled, lost_min: 0, lost_max: None });
        }
        gaps
    }
}
