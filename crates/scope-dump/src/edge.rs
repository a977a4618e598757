//! A window across the edge of the ring: what the ring has of it, and what it lacks out of the stores that its run
//! writes. Every packet comes once.
//!
//! ```text
//! lane       0 ............ N ............ now          earlier runs
//! store  |===================|~~~~~~~~~~~~               |=======|      the ring's first: beyond N only what it lost
//! ring                       |===========================
//!
//! 1. the dump begins: N of each lane is fixed; the stores are asked for what lies before it
//! 2. the store's part is read up to the time with which the ring begins; what is pinned of the ring stays
//! 3. rounds as ever; what is left of the store's part is merged in
//!    a look shows numbers that the ring has recycled meanwhile: the stores are asked for those
//! ```
//! A segment is recycled only when the stores have let it go: what they have written is safe by then. So what the
//! ring loses while a dump reads the past isn't lost, however long that takes, and capture waits for nothing.

use crate::numbers::Numbers;
use crate::past::{Answer, Elsewhere, Part, Permit, Question, Seam, Terms};
use crate::walk::{First, RingTimeline, gap};
use scope_filter::Filter;
use scope_packet::{Gap, GapReason, LinkType, Moment};
use scope_ring::{KeyTest, Matches, Packets, Piece, Ring, Settled, Timeline};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Segments of a lane that begin with one time, and are looked through for packets of it, at most.
const EARLIEST_MAX: usize = 4;

/// What a dump wants of the past.
pub(crate) struct Wanted {
    /// The window's era; `None`: a question, to which packets of all eras belong.
    pub era: Option<u64>,
    /// Where it begins, ns.
    pub from_ns: i64,
    /// When it was opened, ns.
    pub hit_ns: i64,
    /// What is kept.
    pub filter: Filter,
    /// Whether packets without exact numbers are taken: not where windows become one file, in which each packet is known
    /// by its number.
    pub inexact: bool,
    /// How the stores are read.
    pub terms: Terms,
}

/// Where the dump is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Nothing was asked yet.
    Begin,
    /// The stores' part is read up to this time, ns.
    Past(i64),
    /// Rounds of the ring.
    Ring,
}

/// Whose piece is lent.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Lender {
    Ring,
    Part(usize),
}

/// The ring and the stores of its run, as one dump goes through them.
pub(crate) struct Edge<'a> {
    ring: Arc<Ring>,
    timeline: RingTimeline,
    past: &'a dyn Elsewhere,
    wanted: Wanted,
    stage: Stage,
    last: bool,
    parts: Vec<Reading<'a>>,
    lender: Lender,
    /// Numbers that the stores were asked for, by lane.
    asked: Vec<Numbers>,
    lacking: Vec<(u32, Range<u64>, GapReason)>,
    left_out: Vec<(u32, Range<u64>, u64)>,
    /// This run began here, where earlier ones answer for what was before.
    began_ns: Option<i64>,
    permit: Option<Permit<'a>>,
    over: Over,
}

/// A part that is read.
struct Reading<'a> {
    part: Box<dyn Part + 'a>,
    /// All of it is out.
    ended: bool,
}

/// What is known of parts that were let go.
#[derive(Default)]
struct Over {
    gaps: Vec<Gap>,
    unread: Vec<String>,
    heard_from_ns: Option<i64>,
}

impl<'a> Edge<'a> {
    pub(crate) fn new(
        ring: &Arc<Ring>,
        timeline: RingTimeline,
        past: &'a dyn Elsewhere,
        wanted: Wanted,
    ) -> Edge<'a> {
        Edge {
            ring: ring.clone(),
            timeline,
            past,
            wanted,
            stage: Stage::Begin,
            last: false,
            parts: Vec::new(),
            lender: Lender::Ring,
            asked: Vec::new(),
            lacking: Vec::new(),
            left_out: Vec::new(),
            began_ns: None,
            permit: None,
            over: Over::default(),
        }
    }

    /// The ring's own part.
    pub(crate) fn ring_timeline(&self) -> &RingTimeline {
        &self.timeline
    }

    /// What of the stores couldn't be read, in words.
    pub(crate) fn unread(&self) -> Vec<String> {
        let now = self.parts.iter().flat_map(|reading| reading.part.unread());
        self.over.unread.iter().cloned().chain(now).collect()
    }

    /// A question: it holds nothing of the ring, and all of its span is settled, as far as it will be.
    fn is_question(&self) -> bool {
        self.wanted.era.is_none()
    }

    /// The packets of a lane that may belong to the window.
    fn packets_of_era(&self, lane: u32) -> Range<u64> {
        self.wanted.era.map_or(0..u64::MAX, |era| self.ring.era_packets(lane, era))
    }

    /// Asks the stores for what the ring lacks from the beginning.
    fn begin(&mut self, to_ns: i64) {
        self.stage = Stage::Ring;
        let firsts = self.timeline.firsts();
        let Wanted { era, from_ns, .. } = self.wanted;
        let numbers: Vec<Numbers> = (0u32..)
            .zip(&firsts)
            .map(|(lane, first)| {
                let of_era = self.packets_of_era(lane);
                let span = of_era.start..of_era.end.min(first.packet);
                let span = span.start..span.end.max(span.start);
                self.concern(lane, &span).then_some(span).into_iter().collect()
            })
            .collect();
        // Behind a step of the clock what was before belongs to another era, this run's or not.
        let heard = self.timeline.heard().map_or(self.wanted.hit_ns, |heard| heard.0);
        let is_first = era.is_none_or(|era| era == 0);
        let began_ns = Some(heard).filter(|began_ns| is_first && from_ns < *began_ns);
        let began_ns = began_ns.filter(|_| self.past.may_have_earlier(from_ns));
        if began_ns.is_none() && numbers.iter().all(Numbers::is_empty) {
            return;
        }
        for (lane, (numbers, first)) in (0u32..).zip(numbers.iter().zip(&firsts)) {
            if !numbers.is_empty() {
                self.timeline.begin_at(lane, first.packet);
            }
        }
        let seam = |(lane, first): (u32, &First)| {
            // Where the era is over before, the ring's first packet is none of it.
            let reaches = self.packets_of_era(lane).end >= first.packet;
            reaches.then(|| self.seam(first))
        };
        let seams = self.wanted.inexact.then(|| (0u32..).zip(&firsts).map(seam).collect());
        self.ask(&numbers, seams, began_ns, true);
        if !self.parts.is_empty() && !self.is_question() {
            let ring_ns = firsts.iter().map(|first| first.min_ns).min().unwrap_or(i64::MAX);
            // The window isn't over before the ring was looked at.
            self.stage = Stage::Past(ring_ns.min(to_ns));
        }
    }

    /// Whether packets with these numbers, all of them recycled, may belong to the window.
    fn concern(&self, lane: u32, span: &Range<u64>) -> bool {
        let window = (self.wanted.from_ns, self.wanted.terms.to_ns);
        !span.is_empty() && self.ring.lost(lane, std::slice::from_ref(span), window)[0].packets_max > 0
    }

    /// Where the ring begins in a lane.
    fn seam(&self, first: &First) -> Seam {
        let mut ties = Vec::new();
        for id in first.earliest.iter().take(EARLIEST_MAX) {
            let Some(pinned) = self.ring.pin(*id) else {
                return Seam { min_ns: first.min_ns, ties: None, unordered: true };
            };
            let blocks = pinned.indexed(0, pinned.committed().packets).map(|(_, block)| block);
            let of_time = blocks.filter(|block| block.time_ns() == first.min_ns);
            ties.extend(of_time.map(|block| (block.original_len(), block.data().to_vec())));
        }
        let is_all = first.earliest.len() <= EARLIEST_MAX;
        Seam { min_ns: first.min_ns, ties: is_all.then_some(ties), unordered: first.unordered || !is_all }
    }

    fn ask(
        &mut self,
        numbers: &[Numbers],
        seams: Option<Vec<Option<Seam>>>,
        earlier_before_ns: Option<i64>,
        by_keys: bool,
    ) {
        if self.permit.is_none() && !self.is_question() {
            self.permit = self.past.permit();
        }
        let from_ns = self.wanted.from_ns;
        let (filter, terms) = (&self.wanted.filter, &self.wanted.terms);
        let question = Question { terms, from_ns, numbers, seams, earlier_before_ns, filter, by_keys };
        let Answer { parts, lacking, left_out } = self.past.ask(&question);
        if self.asked.len() < numbers.len() {
            self.asked.resize(numbers.len(), Numbers::default());
        }
        for (asked, numbers) in self.asked.iter_mut().zip(numbers) {
            numbers.spans().iter().for_each(|span| asked.add(span.clone()));
        }
        self.lacking.extend(lacking);
        self.left_out.extend(left_out);
        if parts.iter().any(|part| part.heard().is_some()) {
            self.began_ns = earlier_before_ns;
        }
        self.parts.extend(parts.into_iter().map(|part| Reading { part, ended: false }));
        self.give_way();
    }

    /// Asks the stores for what the ring has recycled since; whether there was anything.
    fn ask_for_gone(&mut self) -> bool {
        let gone = (0u32..).zip(self.timeline.gone());
        let none = Numbers::default();
        let new = gone.map(|(lane, gone)| {
            let known = self.asked.get(lane as usize).unwrap_or(&none);
            let new = gone.without(known);
            new.spans().iter().filter(|span| self.concern(lane, span)).cloned().collect()
        });
        let new: Vec<Numbers> = new.collect();
        if new.iter().all(Numbers::is_empty) {
            return false;
        }
        self.ask(&new, None, None, false);
        true
    }

    /// The part whose next piece comes first, and that piece's place.
    fn first_part(&self) -> Option<(usize, (i64, u32))> {
        let open = self.parts.iter().enumerate().filter(|(_, reading)| !reading.ended);
        let places = open.filter_map(|(at, reading)| Some((at, reading.part.next_place()?)));
        places.min_by_key(|(_, place)| *place)
    }

    /// The next piece of a part that comes before `end`.
    fn next_of_parts(&mut self, end: (i64, u32)) -> Option<Piece> {
        while let Some((at, place)) = self.first_part()
            && place <= end
        {
            let reading = &mut self.parts[at];
            if let Some(piece) = reading.part.next() {
                self.lender = Lender::Part(at);
                return Some(piece);
            }
            reading.ended = true;
            if self.is_question() {
                self.let_go(at);
            }
        }
        None
    }

    /// Keeps of a part what it lacks: a question may have many of them, one after the other.
    fn let_go(&mut self, at: usize) {
        let part = self.parts.swap_remove(at).part;
        self.over.gaps.extend(part.missing(self.wanted.terms.to_ns));
        self.over.unread.extend(part.unread());
        let known = self.over.heard_from_ns.into_iter().chain(part.heard().map(|heard| heard.0));
        self.over.heard_from_ns = known.min();
    }

    /// Nothing is read of the stores any more: another dump may.
    fn give_way(&mut self) {
        if self.first_part().is_none() {
            for reading in self.parts.iter_mut() {
                reading.part.end();
                reading.ended = true;
            }
            self.permit = None;
        }
    }
}

impl Timeline for Edge<'_> {
    fn settle(&mut self, to_ns: i64) -> Settled {
        match self.stage {
            Stage::Begin => self.begin(to_ns),
            Stage::Past(_) => self.stage = Stage::Ring,
            Stage::Ring => {}
        }
        match self.stage {
            Stage::Past(end_ns) => {
                let era = self.wanted.era.unwrap_or(0);
                Settled { up_to: Moment::new(era, end_ns), goes_on: true }
            }
            Stage::Begin | Stage::Ring => self.timeline.settle(to_ns),
        }
    }

    fn look(&mut self, to_ns: i64, last: bool) {
        self.last = last;
        if matches!(self.stage, Stage::Past(_)) && !last {
            return;
        }
        self.stage = Stage::Ring;
        self.timeline.look(to_ns, last);
        self.ask_for_gone();
    }

    fn next(&mut self) -> Option<Piece> {
        if let Stage::Past(end_ns) = self.stage {
            return self.next_of_parts((end_ns.saturating_sub(1), u32::MAX));
        }
        while !self.wanted.terms.stop.load(Ordering::Relaxed) {
            let place = self.timeline.next_place();
            if let Some(piece) = self.next_of_parts(place.unwrap_or((i64::MAX, u32::MAX))) {
                return Some(piece);
            }
            self.lender = Lender::Ring;
            // What is gone is asked for before anything that is newer goes out.
            if self.is_question() && !self.timeline.secure() {
                self.ask_for_gone();
                continue;
            }
            if let Some(piece) = self.timeline.next() {
                return Some(piece);
            }
            // What was recycled in this round is asked for in the next one, where there is one.
            if !self.last || !self.ask_for_gone() {
                break;
            }
        }
        self.give_way();
        None
    }

    fn next_place(&self) -> Option<(i64, u32)> {
        let of_parts = self.first_part().map(|(_, place)| place);
        match self.stage {
            Stage::Past(end_ns) => Some(of_parts.unwrap_or((end_ns, 0)).min((end_ns, 0))),
            Stage::Begin | Stage::Ring => self.timeline.next_place().into_iter().chain(of_parts).min(),
        }
    }

    fn screen(&mut self, keys: &KeyTest, always: Option<u64>) -> Option<Matches> {
        match self.lender {
            Lender::Ring => self.timeline.screen(keys, always),
            Lender::Part(at) => self.parts[at].part.screen(keys, always),
        }
    }

    fn packets(&mut self, picked: Matches) -> Packets<'_> {
        match self.lender {
            Lender::Ring => self.timeline.packets(picked),
            Lender::Part(at) => self.parts[at].part.packets(picked),
        }
    }

    fn selected(&mut self) -> Option<Packets<'_>> {
        match self.lender {
            Lender::Ring => None,
            Lender::Part(at) => self.parts[at].part.selected(),
        }
    }

    fn done(&mut self) {
        match self.lender {
            Lender::Ring => self.timeline.done(),
            Lender::Part(at) => self.parts[at].part.done(),
        }
    }

    fn wait(&mut self, rest_ns: i64) {
        if self.stage == Stage::Ring {
            self.timeline.wait(rest_ns);
        }
    }

    fn end(&mut self) {
        for reading in &mut self.parts {
            reading.part.end();
            reading.ended = true;
        }
        self.permit = None;
        self.timeline.end();
    }

    fn link_type(&self, lane: u32) -> Option<LinkType> {
        self.past.link_type(lane)
    }

    fn heard(&self) -> Option<(i64, i64)> {
        let earlier = self.parts.iter().filter_map(|reading| reading.part.heard());
        let begin_ns = earlier.map(|heard| heard.0).chain(self.over.heard_from_ns).min();
        match (self.timeline.heard(), begin_ns) {
            (Some((from_ns, to_ns)), Some(begin_ns)) => Some((from_ns.min(begin_ns), to_ns)),
            (heard, _) => heard,
        }
    }

    /// What the ring lacks and the stores were not asked for; what they lack of the rest; and of both, what never came.
    fn missing(&self, to_ns: i64) -> Vec<Gap> {
        let of_ring = self.timeline.missing_but(to_ns, &self.asked);
        let mut gaps: Vec<Gap> = of_ring.into_iter().filter_map(|gap| self.since_begin(gap)).collect();
        let window = (self.wanted.from_ns, to_ns);
        let lost = |lane, span: &Range<u64>| self.ring.lost(lane, std::slice::from_ref(span), window)[0];
        for (lane, span, reason) in &self.lacking {
            gaps.extend(gap(lost(*lane, span), *reason));
        }
        for (lane, span, most) in &self.left_out {
            let left_out = gap(lost(*lane, span), GapReason::LeftOut);
            gaps.extend(left_out.map(|gap| Gap {
                lost_min: 0,
                lost_max: gap.lost_max.map(|all| all.min(*most)),
                ..gap
            }));
        }
        gaps.extend(self.parts.iter().flat_map(|reading| reading.part.missing(to_ns)));
        gaps.extend(&self.over.gaps);
        gaps
    }
}

impl Edge<'_> {
    /// What of a gap lies behind this run's begin, where earlier runs answer for what was before.
    fn since_begin(&self, gap: Gap) -> Option<Gap> {
        let Some(began_ns) = self.began_ns else { return Some(gap) };
        match gap.reason {
            GapReason::NotStarted | GapReason::CaptureBegin => {
                let from_ns = gap.from_ns.max(began_ns);
                (from_ns <= gap.to_ns).then_some(Gap { from_ns, ..gap })
            }
            _ => Some(gap),
        }
    }
}

#[cfg(test)]
mod tests;
