//! The ring's answer to one window: which pieces of which segments are there, which of them may be held, and
//! which are gone.
//!
//! A *piece* is what one segment has committed and was not handed out yet. A look at the ring lists all
//! pieces that may concern the window, by their smallest time: so who takes them in this order knows, from
//! the next piece's smallest time, what can go out. Pieces are pinned in that order as far as the allowance
//! reaches.

use crate::numbers::Numbers;
use crate::patience::Patience;
use crate::pins::{FirstPins, Hold};
use crate::progress::Progress;
use crate::scans::Reader;
use scope_packet::{Clock, Gap, GapReason, LinkType, Moment, SegmentId};
use scope_ring::{Held, KeyTest, Lost, Matches, Packets, Piece, Pinned, Ring, Settled, Timeline};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// What one dump requests of the ring.
pub(crate) struct Request {
    /// The window's era; `None`: a question, to which packets of all eras belong.
    pub era: Option<u64>,
    /// Where it begins.
    pub from_ns: i64,
    /// Time of the hit, ns: from there on patience counts.
    pub hit_ns: i64,
    /// Its part in what dumps share.
    pub reader: Reader,
    /// Live: how long to wait for workers whose clocks have stopped; `None`: as long as it takes.
    pub patience: Option<Duration>,
    /// What it waits by.
    pub clock: Arc<dyn Clock>,
    /// Who learns what it holds.
    pub progress: Arc<Progress>,
}

/// Where a dump stands in one lane: the next packet to be looked at.
#[derive(Clone, Copy, Default)]
struct LaneCursor {
    sequence: u64,
    packet: u64,
}

/// All lanes of the ring, as one dump goes through them.
pub(crate) struct RingTimeline {
    ring: Arc<Ring>,
    hold: Arc<Hold>,
    request: Request,
    patience: Option<Patience>,
    /// When it last looked how far everything is settled, and the result.
    looked: Duration,
    settled: Moment,
    /// The ring's beats before that.
    beats: u32,
    /// The span's end at the last look, ns.
    to_ns: i64,
    cursors: Vec<LaneCursor>,
    /// Those of the last look, and how many of them were handed out.
    pieces: Vec<Piece>,
    handed_out: usize,
    /// For each of them the sequence of the oldest segment that its lane still needs when it is done with.
    needed_then: Vec<u64>,
    /// The segment of the next piece, where it was made sure of.
    secured: Option<Pinned>,
    /// The piece that is being read: its segment, and its packets' indices in it.
    reading: Option<(Pinned, Range<u32>)>,
    /// Pieces of the last look up to here have been offered a pin, for each claim group.
    held_up_to: Vec<usize>,
    /// Per lane: what was recycled before it was read.
    missing: Vec<Missing>,
}

/// Spans of numbers that are kept apart in a lane; beyond, the two oldest become one, over what was read in
/// between.
const MISSING_MAX: usize = 65_536;

/// Packets of one lane that were gone before they were read.
#[derive(Clone, Default)]
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

impl RingTimeline {
    pub(crate) fn new(ring: &Arc<Ring>, first: &FirstPins, request: Request) -> RingTimeline {
        RingTimeline {
            ring: ring.clone(),
            hold: first.hold.clone(),
            patience: request.patience.map(Patience::new),
            looked: request.clock.monotonic(),
            settled: Moment::BEGIN,
            beats: 0,
            to_ns: i64::MAX,
            cursors: Vec::new(),
            pieces: Vec::new(),
            handed_out: 0,
            needed_then: Vec::new(),
            secured: None,
            reading: None,
            held_up_to: vec![0; ring.group_segments().len()],
            missing: Vec::new(),
            request,
        }
    }

    /// Returns the segment from which on the next look needs the lane: nobody has to wait for this dump to
    /// pass what is recycled.
    fn look_at_lane(&mut self, lane: u32, reach_ns: i64, held: &mut Held) -> u64 {
        let mut at = self.cursors[lane as usize];
        let mut recycled = 0;
        for segment in self.ring.segment_ids(lane, at.sequence) {
            let sequence = segment.sequence;
            let own = held.take(segment);
            let was_held = own.is_some();
            let Some(pinned) = own.or_else(|| self.ring.pin(segment)) else {
                recycled = sequence + 1; // the next one that is there shows how much is missing
                continue;
            };
            self.note_missing(lane, at.packet, pinned.first_packet());
            let from_packet = at.packet.max(pinned.first_packet());
            let committed = pinned.committed();
            let all_packets = at.packet.max(pinned.first_packet() + committed.packets as u64);
            at = LaneCursor { sequence, packet: all_packets };
            // After the look at what is committed: where a lane enters an era is noted before.
            let of_era = self.packets_of_era(lane);
            let (first_packet, end_packet) = (from_packet.max(of_era.start), all_packets.min(of_era.end));
            let touches = |min_ns: i64, max_ns: i64| max_ns >= self.request.from_ns && min_ns <= reach_ns;
            let span = pinned.span().filter(|(min_ns, max_ns, _)| touches(*min_ns, *max_ns));
            if end_packet > first_packet
                && let Some((min_ns, _, unordered)) = span
            {
                let packets = (end_packet - first_packet) as u32;
                self.pieces.push(Piece { segment, lane, first_packet, packets, min_ns, ordered: !unordered });
                if was_held {
                    held.put(pinned);
                }
            }
            if committed.sealed {
                at = LaneCursor { sequence: sequence + 1, packet: all_packets };
            }
        }
        self.cursors[lane as usize] = at;
        at.sequence.max(recycled)
    }

    /// Pins further pieces of the last look, in order, as far as the allowance reaches in each claim group.
    fn hold_on(&mut self, held: &mut Held) {
        for (group, up_to) in self.held_up_to.iter_mut().enumerate() {
            while let Some(piece) = self.pieces.get(*up_to) {
                if self.ring.lane_group(piece.lane).index() == group {
                    if !held.has_room(piece.lane) {
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

    /// The piece that was handed out last.
    fn piece(&self) -> Option<&Piece> {
        self.pieces.get(self.handed_out.checked_sub(1)?)
    }

    /// Its packets whose keys pass, by the scan that dumps share as far as there is one.
    fn scan(&self, pinned: &Pinned, packets: Range<u32>, keys: &KeyTest) -> Matches {
        let reader = &self.request.reader;
        let Some((own, found)) = reader.take(pinned, packets.clone()) else {
            return match reader.can_skip(pinned, keys) {
                true => Matches::none(packets.len() as u32),
                false => pinned.column(packets.start, packets.end).matches(keys),
            };
        };
        let mut picked = Matches::none(packets.len() as u32);
        if !own.is_empty() && !reader.can_skip(pinned, keys) {
            for index in pinned.matches(keys, own.start, own.end) {
                picked.insert(index - packets.start);
            }
        }
        for index in found.into_iter() {
            picked.insert(index - packets.start);
        }
        picked
    }

    /// The packets of a lane that may belong to the window.
    fn packets_of_era(&self, lane: u32) -> Range<u64> {
        self.request.era.map_or(0..u64::MAX, |era| self.ring.era_packets(lane, era))
    }

    /// Makes sure of the next piece: it stays until it is read, which has to be at once. `false`: it is gone, and so may
    /// be others. What is gone of the last look is none of its pieces any more, and missing.
    pub(crate) fn secure(&mut self) -> bool {
        let Some(piece) = self.pieces.get(self.handed_out) else { return true };
        self.secured = self.ring.pin(piece.segment);
        if self.secured.is_some() {
            return true;
        }
        for piece in self.pieces.split_off(self.handed_out) {
            match self.ring.pin(piece.segment) {
                Some(_) => self.pieces.push(piece),
                None => self.note_missing(
                    piece.lane,
                    piece.first_packet,
                    piece.first_packet + u64::from(piece.packets),
                ),
            }
        }
        false
    }

    /// A stray belongs to a window that holds its time, unless that was over when it came.
    fn omit_strays(&self, piece: &Piece, picked: &mut Matches) {
        if self.request.era.is_none() {
            return;
        }
        let numbers = piece.first_packet..piece.first_packet + u64::from(piece.packets);
        for (packet, over_before_ns) in self.ring.strays(piece.lane, numbers) {
            if over_before_ns > self.to_ns {
                picked.remove((packet - piece.first_packet) as u32);
            }
        }
    }

    /// For how long it held all that it may while there was more.
    pub(crate) fn full(&self) -> Duration {
        self.hold.lock().full.total()
    }

    fn report_progress(&self) {
        self.request.progress.holds(self.hold.lock().held.len());
    }

    fn note_missing(&mut self, lane: u32, from: u64, to: u64) {
        self.missing[lane as usize].add(from, to, MISSING_MAX);
    }

    /// What each lane has first: the number of the first packet that is held or still there, and the time (ns) before
    /// which none of it lies; a lane that has nothing begins with what comes next.
    pub(crate) fn firsts(&self) -> Vec<First> {
        let mut held = self.hold.lock();
        let lanes = 0..self.ring.lanes();
        lanes.map(|lane| self.first(lane, &mut held.held)).collect()
    }

    fn first(&self, lane: u32, held: &mut Held) -> First {
        let mut first: Option<First> = None;
        let mut last_ns = i64::MIN;
        let ids: Vec<SegmentId> = self.ring.segment_ids(lane, 0).collect();
        // What is held from the beginning stays; what stands in front of it is older than the window.
        let from = ids.iter().position(|id| held.holds(*id)).unwrap_or(0);
        for id in &ids[from..] {
            let own = held.take(*id);
            let was_held = own.is_some();
            let Some(pinned) = own.or_else(|| self.ring.pin(*id)) else { continue };
            let (packet, span) = (pinned.first_packet(), pinned.span());
            if was_held {
                held.put(pinned);
            }
            let min_ns = span.map_or(i64::MAX, |(min_ns, _, _)| min_ns);
            let unordered = span.is_some_and(|(min_ns, _, unordered)| unordered || min_ns < last_ns);
            last_ns = span.map_or(last_ns, |(_, max_ns, _)| last_ns.max(max_ns));
            let known = first.get_or_insert(First { packet, min_ns, unordered: false, earliest: Vec::new() });
            if min_ns < known.min_ns {
                (known.min_ns, known.earliest) = (min_ns, Vec::new());
            }
            if min_ns == known.min_ns {
                known.earliest.push(*id);
            }
            known.unordered |= unordered;
        }
        first.unwrap_or_else(|| First { packet: self.next_packet(lane), ..First::default() })
    }

    /// The number of the next packet of a lane of which nothing is there: what was recycled is known.
    fn next_packet(&self, lane: u32) -> u64 {
        self.ring.recycled_before(lane)
    }

    /// The packets of a lane before this one come from elsewhere: it hands none of them out, and misses none.
    pub(crate) fn begin_at(&mut self, lane: u32, packet: u64) {
        if self.cursors.len() <= lane as usize {
            self.cursors.resize(lane as usize + 1, LaneCursor::default());
        }
        self.cursors[lane as usize].packet = packet;
    }

    /// Packets that were gone before they were read, by lane, as far as each of them is known to be.
    pub(crate) fn gone(&self) -> Vec<Numbers> {
        let exact = |missing: &Missing| {
            let spans = missing.spans.iter().filter(|(_, (_, exact))| *exact);
            spans.map(|(&from, &(to, _))| from..to).collect()
        };
        let of_era = |(lane, missing): (u32, &Missing)| {
            let era = self.packets_of_era(lane);
            let mut numbers: Numbers = exact(missing);
            numbers.remove(&(0..era.start));
            numbers.remove(&(era.end..u64::MAX));
            numbers
        };
        (0..).zip(&self.missing).map(of_era).collect()
    }

    /// What the window lacks by now, but for the packets `elsewhere` of each lane, which others answer for.
    pub(crate) fn missing_but(&self, to_ns: i64, elsewhere: &[Numbers]) -> Vec<Gap> {
        let Request { era, from_ns, .. } = self.request;
        let mut gaps = match era {
            Some(era) => self.ring.gaps_before(era, (from_ns, to_ns)),
            None => self.ring.gaps_ever((from_ns, to_ns)),
        };
        let era = era.unwrap_or(self.settled.era);
        gaps.extend(
            self.recycled(to_ns, elsewhere).into_iter().filter_map(|lost| gap(lost, GapReason::Evicted)),
        );
        if self.settled <= Moment::new(era, to_ns) {
            let from_ns = self.settled.within(era).saturating_add(1).max(from_ns);
            gaps.push(Gap { from_ns, to_ns, reason: GapReason::Unsettled, lost_min: 0, lost_max: None });
        }
        gaps
    }

    /// What the window lacks by now because it was recycled before it was read, span by span.
    fn recycled(&self, to_ns: i64, elsewhere: &[Numbers]) -> Vec<Lost> {
        let mut all = Vec::new();
        for (lane, (missing, at)) in (0u32..).zip(self.missing.iter().zip(&self.cursors)) {
            let mut missing = missing.clone();
            // What was committed behind the last look and is gone already.
            missing.add(at.packet, u64::MAX, MISSING_MAX);
            let of_era = self.packets_of_era(lane);
            let none = Numbers::default();
            let elsewhere = elsewhere.get(lane as usize).unwrap_or(&none);
            let (mut spans, mut exact) = (Vec::new(), Vec::new());
            for (&from, &(to, is_exact)) in &missing.spans {
                let (from, to) = (from.max(of_era.start), to.min(of_era.end));
                let numbers = Numbers::of(from..to.max(from)).without(elsewhere);
                exact.extend(numbers.spans().iter().map(|_| is_exact));
                spans.extend(numbers.spans().iter().cloned());
            }
            let lost = self.ring.lost(lane, &spans, (self.request.from_ns, to_ns)).into_iter().zip(exact);
            let lost = lost
                .map(|(lost, exact)| Lost { packets_min: if exact { lost.packets_min } else { 0 }, ..lost });
            all.extend(lost.filter(|lost| lost.packets_max > 0));
        }
        all
    }
}

/// What a lane of the ring has first.
#[derive(Clone, Debug)]
pub(crate) struct First {
    /// Number of its first packet.
    pub packet: u64,
    /// None of it is older, ns; `i64::MAX`: there is nothing.
    pub min_ns: i64,
    /// Times step back somewhere in it.
    pub unordered: bool,
    /// The segments that have a packet of that time.
    pub earliest: Vec<SegmentId>,
}

impl Default for First {
    fn default() -> First {
        First { packet: 0, min_ns: i64::MAX, unordered: false, earliest: Vec::new() }
    }
}

/// A loss as a gap.
pub(crate) fn gap(lost: Lost, reason: GapReason) -> Option<Gap> {
    let (from_ns, to_ns) = lost.span_ns?;
    Some(Gap { from_ns, to_ns, reason, lost_min: lost.packets_min, lost_max: Some(lost.packets_max) })
}

impl Timeline for RingTimeline {
    /// Where patience is at its end, nothing more will be settled.
    fn settle(&mut self, to_ns: i64) -> Settled {
        self.beats = self.ring.beats();
        self.settled = self.ring.settled();
        let now = self.request.clock.monotonic();
        let passed = now.saturating_sub(std::mem::replace(&mut self.looked, now));
        let rest = Duration::from_nanos(to_ns.saturating_sub(self.request.hit_ns).max(0) as u64);
        let is_over = |patience: &mut Patience| patience.is_over(passed, self.settled, rest);
        Settled { up_to: self.settled, goes_on: !self.patience.as_mut().is_some_and(is_over) }
    }

    /// Lists what has been committed since the last look and isn't all behind the end, smallest times first.
    fn look(&mut self, to_ns: i64, last: bool) {
        self.to_ns = to_ns;
        let hold = self.hold.clone();
        let mut state = hold.lock();
        self.cursors.resize(self.ring.lanes() as usize, LaneCursor::default());
        self.missing.resize_with(self.cursors.len(), Missing::default);
        self.pieces.clear();
        let reach_ns = if last { to_ns } else { i64::MAX };
        let lanes = 0..self.cursors.len() as u32;
        let mut needed: Vec<u64> =
            lanes.map(|lane| self.look_at_lane(lane, reach_ns, &mut state.held)).collect();
        state.full.note(false);
        state.behind = (!last).then(|| self.cursors.iter().map(|cursor| cursor.sequence).collect());
        self.pieces.sort_by_key(|piece| (piece.min_ns, piece.segment));
        self.needed_then.clear();
        for piece in self.pieces.iter().rev() {
            let lane = &mut needed[piece.lane as usize];
            self.needed_then.push(*lane);
            *lane = piece.segment.sequence.min(*lane);
        }
        self.needed_then.reverse();
        for (lane, sequence) in needed.into_iter().enumerate() {
            self.hold.done_before(lane as u32, sequence);
        }
        self.handed_out = 0;
        self.held_up_to.fill(0);
        self.hold_on(&mut state.held);
    }

    fn next(&mut self) -> Option<Piece> {
        let piece = self.pieces.get(self.handed_out).copied()?;
        self.handed_out += 1;
        Some(piece)
    }

    fn next_place(&self) -> Option<(i64, u32)> {
        self.pieces.get(self.handed_out).map(|piece| (piece.min_ns, piece.lane))
    }

    /// Pins it. Where it was recycled meanwhile, that is noted.
    fn screen(&mut self, keys: &KeyTest, always: Option<u64>) -> Option<Matches> {
        let piece = *self.piece()?;
        let handed_out = self.handed_out;
        for up_to in &mut self.held_up_to {
            *up_to = handed_out.max(*up_to);
        }
        // Of a segment that was open at the look the rest is still needed: it stays held while this part is read.
        let goes_on = self.cursors[piece.lane as usize].sequence == piece.segment.sequence;
        let secured = self.secured.take().filter(|secured| secured.id() == piece.segment);
        let held = if goes_on { None } else { self.hold.lock().held.take(piece.segment) };
        let Some(pinned) = held.or(secured).or_else(|| self.ring.pin(piece.segment)) else {
            self.note_missing(piece.lane, piece.first_packet, piece.first_packet + u64::from(piece.packets));
            return None;
        };
        let first = (piece.first_packet - pinned.first_packet()) as u32;
        let packets = first..first + piece.packets;
        let mut picked = self.scan(&pinned, packets.clone(), keys);
        self.omit_strays(&piece, &mut picked);
        let always = always.and_then(|packet| u32::try_from(packet.checked_sub(piece.first_packet)?).ok());
        if let Some(index) = always.filter(|index| *index < piece.packets) {
            picked.insert(index);
        }
        self.reading = Some((pinned, packets));
        Some(picked)
    }

    fn packets(&mut self, picked: Matches) -> Packets<'_> {
        match &self.reading {
            Some((pinned, packets)) => pinned.packets(packets.clone(), picked),
            None => Packets::default(),
        }
    }

    /// Further pieces are held, and who waits for this dump learns how far it is.
    fn done(&mut self) {
        self.reading = None;
        let hold = self.hold.clone();
        self.hold_on(&mut hold.lock().held);
        let needed = self
            .handed_out
            .checked_sub(1)
            .and_then(|at| Some((self.pieces.get(at)?, self.needed_then.get(at)?)));
        if let Some((piece, needed)) = needed {
            self.hold.done_before(piece.lane, *needed);
        }
        self.report_progress();
    }

    /// Rests, longer the more dumps there are; a beat of the ring ends that before anything is overrun.
    fn wait(&mut self, rest_ns: i64) {
        self.report_progress();
        self.request.reader.pass(self.cursors.iter().map(|cursor| cursor.packet));
        let pause = self.request.reader.pause(rest_ns);
        self.request.clock.wait(pause, &|pause| self.ring.wait_for_beat(self.beats, pause));
    }

    fn end(&mut self) {
        self.report_progress();
        (self.secured, self.reading) = (None, None);
        self.hold.lock().held.end();
    }

    fn link_type(&self, lane: u32) -> Option<LinkType> {
        (lane < self.ring.lanes()).then(|| self.ring.lane_info(lane).link_type)
    }

    fn heard(&self) -> Option<(i64, i64)> {
        match self.request.era {
            Some(era) => self.ring.listened(era).or(self.ring.heard_in(era)),
            None => self.ring.listened_ever().or(self.ring.heard()),
        }
    }

    fn missing(&self, to_ns: i64) -> Vec<Gap> {
        self.missing_but(to_ns, &[])
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
            for &(from, len) in &spans {
                missing.add(from, from + len, most);
            }
            prop_assert!(missing.spans.len() <= most);
            let spans: Vec<(u64, u64, bool)> = missing.spans.iter().map(|(&from, &(to, exact))| (from, to, exact)).collect();
            prop_assert!(spans.windows(2).all(|pair| pair[0].1 < pair[1].0), "apart, and in order: \
                {spans:?}");
            let within = |number: &u64| spans.iter().find(|(from, to, _)| (from..to).contains(&number));
            prop_assert!(model.iter().all(|number| within(number).is_some()), "none is forgotten");
            let exact = spans.iter().filter(|span| span.2).flat_map(|span| span.0..span.1);
            prop_assert!(exact.into_iter().all(|number| model.contains(&number)));
        }
    }

    #[test]
    fn a_gap_before_a_later_one_is_not_swallowed() {
        let mut missing = Missing::default();
        for (from, to) in [(100, 200), (50, 60), (200, 210), (10, 20)] {
            missing.add(from, to, MISSING_MAX);
        }
        assert_eq!(
            missing.spans.into_iter().collect::<Vec<_>>(),
            [(10, (20, true)), (50, (60, true)), (100, (210, true))]
        );
    }
}
