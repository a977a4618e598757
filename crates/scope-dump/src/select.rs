//! Selecting: which packets of a span belong, in which order, and what is missing; from any timeline, for any
//! consumer.
//!
//! ```text
//! timeline ─► piece ─► screen by key ─► inside the span? ─► filter ─► reorder buffer ─► consumer
//!                │                        └ behind the span's end: kept aside, it may still grow
//!                └─► selected: the timeline did all that itself ──────┘
//! ```
//! Absent on purpose: files, their budget and their headers, and how long anybody waits. A consumer knows no
//! segment, a timeline no filter.

use crate::buffers::{Buffers, Reorder};
use crate::keep::Keep;
use crate::merge::{Beyond, Floor, Position, Waiting};
use crate::sieve::Sieve;
use scope_filter::{FILTER_INPUTS_MAX, Filter, FilterEngine};
use scope_packet::{Gap, GapReason, LinkType};
use scope_ring::{Candidate, Piece, Timeline};
use std::sync::Arc;

/// Receives the packets of a selection.
///
/// A trait with a call per packet, in which its block is lent: that costs nothing against the walk through
/// memory, a list of packets would.
pub trait Consumer {
    /// The next packet, in order of position; a late one follows newer ones.
    fn packet(&mut self, position: Position, link_type: LinkType, block: &[u8]);

    /// Between two pieces, when nothing is lent: time for what may take long.
    fn between(&mut self) {}

    /// Whether it takes any more; looked at between two pieces.
    fn goes_on(&self) -> bool {
        true
    }
}

/// One round's part of a span, ns.
#[derive(Clone, Copy, Debug)]
pub struct Round {
    /// The span's end by now.
    pub to_ns: i64,
    /// Up to where everything is settled.
    pub settled_ns: i64,
    /// The span ends there for good, and no other round comes.
    pub last: bool,
}

impl Round {
    /// Packets up to here may belong to the span yet: while it is open it may still grow.
    fn reach_ns(&self) -> i64 {
        if self.last { self.to_ns } else { i64::MAX }
    }

    /// Later rounds bring no earlier position than this: packets of the very time that is settled may still
    /// come.
    fn floor(&self) -> Floor {
        if self.last { (i64::MAX, u32::MAX) } else { (self.settled_ns.saturating_sub(1), u32::MAX) }
    }
}

/// The packets of one span that a filter matches, round by round.
pub struct Selection {
    filter: Filter,
    /// What has to match as well.
    bound: Option<Filter>,
    /// What selects beyond these.
    beyond_filter: Option<Box<dyn Keep>>,
    engine: FilterEngine,
    from_ns: i64,
    /// Lane and number of a packet that belongs to it whatever the filter says.
    always: Option<(u32, u64)>,
    /// By lane.
    link_types: Vec<Option<LinkType>>,
    /// By lane; lanes of one link type have the same one.
    sieves: Vec<Option<Arc<Sieve>>>,
    waiting: Waiting,
    beyond: Beyond,
    reorder: Reorder,
    /// What each of the two buffers may take in this round.
    bytes_max: usize,
}

impl Selection {
    /// What `filter` matches from `from_ns` on, and packet `always` (lane, number). What waits for its turn
    /// has a part of `buffers`.
    pub fn new(
        filter: Filter,
        engine: FilterEngine,
        from_ns: i64,
        always: Option<(u32, u64)>,
        buffers: &Arc<Buffers>,
    ) -> Selection {
        Selection {
            filter,
            bound: None,
            beyond_filter: None,
            engine,
            from_ns,
            always,
            link_types: Vec::new(),
            sieves: Vec::new(),
            waiting: Waiting::default(),
            beyond: Beyond::default(),
            reorder: buffers.reorder(),
            bytes_max: 0,
        }
    }

    /// Only packets that this filter matches as well.
    #[must_use]
    pub fn bound_to(self, bound: Option<Filter>) -> Selection {
        Selection { bound, ..self }
    }

    /// Only packets that `keep`, asked last, keeps as well.
    #[must_use]
    pub fn kept_by(self, keep: Option<Box<dyn Keep>>) -> Selection {
        Selection { beyond_filter: keep, ..self }
    }

    /// Why what selects beyond the filter says nothing more, if it doesn't.
    pub fn gave_up(&self) -> Option<String> {
        self.beyond_filter.as_ref()?.gave_up().map(String::from)
    }

    /// Reads whatever is there, and hands on what nothing older can come before. Whether there was anything.
    pub fn round(&mut self, timeline: &mut dyn Timeline, round: Round, consumer: &mut dyn Consumer) -> bool {
        self.bytes_max = self.reorder.bytes();
        self.reorder.note_early(self.waiting.take_early());
        self.beyond.inside(round.to_ns, &mut self.waiting);
        timeline.look(round.to_ns, round.last);
        let mut any = false;
        while consumer.goes_on()
            && let Some(piece) = timeline.next()
        {
            any = true;
            let floor = timeline.next_place().map_or(round.floor(), |next| next.min(round.floor()));
            self.read(timeline, &piece, round, floor, consumer);
            timeline.done();
            consumer.between();
        }
        self.release(round.floor(), consumer);
        any
    }

    /// What the span up to `to_ns` lacks by now: what the timeline lacks, and what was given up here.
    pub fn missing(&self, timeline: &dyn Timeline, to_ns: i64) -> Vec<Gap> {
        let mut gaps = timeline.missing(to_ns);
        let lost = self.beyond.lost(to_ns);
        let (reason, lost_min, lost_max) = (GapReason::Limit, lost.packets_min, Some(lost.packets_max));
        gaps.extend(lost.span_ns.map(|(from_ns, to_ns)| Gap { from_ns, to_ns, reason, lost_min, lost_max }));
        gaps
    }

    /// Why no machine code could be made of the filter, where there should be some.
    pub fn interpreted(&self) -> Option<String> {
        self.sieves.iter().flatten().find_map(|sieve| sieve.interpreted().map(String::from))
    }

    /// That of a lane of `link_type`.
    fn sieve(&mut self, lane: u32, link_type: LinkType) -> Arc<Sieve> {
        let at = lane as usize;
        if self.sieves.len() <= at {
            self.sieves.resize(at + 1, None);
        }
        if let Some(sieve) = &self.sieves[at] {
            return sieve.clone();
        }
        let known = self.sieves.iter().flatten().find(|sieve| sieve.link_type() == link_type).cloned();
        let sieve = known.unwrap_or_else(|| Arc::new(self.new_sieve(link_type)));
        self.sieves[at] = Some(sieve.clone());
        sieve
    }

    fn new_sieve(&self, link_type: LinkType) -> Sieve {
        Sieve::new(&self.filter, self.engine, link_type).bound_to(self.bound.as_ref())
    }

    /// Reads one piece: of all that the keys leave, what is inside is evaluated in batches.
    fn read(
        &mut self,
        timeline: &mut dyn Timeline,
        piece: &Piece,
        round: Round,
        floor: Floor,
        consumer: &mut dyn Consumer,
    ) {
        let lane = piece.lane as usize;
        self.link_types.resize(self.link_types.len().max(lane + 1), None);
        let link_type = self.link_types[lane].or_else(|| timeline.link_type(piece.lane));
        self.link_types[lane] = link_type;
        let Some(link_type) = link_type else { return };
        if let Some(mut packets) = timeline.selected() {
            loop {
                let batch: Vec<Candidate<'_>> = packets.by_ref().take(FILTER_INPUTS_MAX).collect();
                if batch.is_empty() {
                    break;
                }
                let taken = self.beyond_filter.as_mut().map_or(u64::MAX, |keep| keep.keep(link_type, &batch));
                for (_, candidate) in batch.iter().enumerate().filter(|(at, _)| taken >> at & 1 != 0) {
                    let time_ns = candidate.block.time_ns();
                    let position = Position { time_ns, lane: piece.lane, packet: candidate.packet };
                    let block = candidate.block.bytes();
                    self.keep(position, link_type, block, (piece.ordered, floor), consumer);
                }
            }
            return self.release(floor, consumer);
        }
        let sieve = self.sieve(piece.lane, link_type);
        let always = self.always.filter(|(lane, _)| *lane == piece.lane).map(|(_, packet)| packet);
        let Some(picked) = timeline.screen(sieve.keys(), always) else { return };
        let span = self.from_ns..=round.reach_ns();
        let may_belong = |candidate: &Candidate<'_>| {
            always == Some(candidate.packet) || span.contains(&candidate.block.time_ns())
        };
        let mut candidates = timeline.packets(picked).filter(may_belong);
        loop {
            let batch: Vec<Candidate<'_>> = candidates.by_ref().take(FILTER_INPUTS_MAX).collect();
            if batch.is_empty() {
                break;
            }
            let taken = self.taken(&sieve, &batch);
            for (at, candidate) in batch.iter().enumerate() {
                let is_exempt = always == Some(candidate.packet);
                if is_exempt || taken >> at & 1 != 0 {
                    let time_ns = candidate.block.time_ns();
                    let position = Position { time_ns, lane: piece.lane, packet: candidate.packet };
                    if time_ns > round.to_ns && !is_exempt {
                        self.beyond.push(position, candidate.block.bytes(), self.bytes_max);
                    } else {
                        self.keep(
                            position,
                            link_type,
                            candidate.block.bytes(),
                            (piece.ordered, floor),
                            consumer,
                        );
                    }
                }
            }
        }
        self.release(floor, consumer);
    }

    /// Which of these packets the filters and what selects beyond them take: a bit each.
    fn taken(&mut self, sieve: &Sieve, batch: &[Candidate<'_>]) -> u64 {
        let matched = sieve.matches(batch);
        let Some(keep) = &mut self.beyond_filter else { return matched };
        let which = |at: &usize| matched >> at & 1 != 0;
        let asked: Vec<Candidate<'_>> = (0..batch.len()).filter(which).map(|at| batch[at]).collect();
        if asked.is_empty() {
            return 0;
        }
        let kept = keep.keep(sieve.link_type(), &asked);
        let places = (0..batch.len()).filter(which).enumerate();
        places.filter(|(nth, _)| kept >> nth & 1 != 0).fold(0, |taken, (_, at)| taken | 1 << at)
    }

    /// Hands a packet on, or lets it wait for its turn. `ordered`: none that is older comes behind it in its
    /// piece.
    fn keep(
        &mut self,
        position: Position,
        link_type: LinkType,
        block: &[u8],
        (ordered, floor): (bool, Floor),
        consumer: &mut dyn Consumer,
    ) {
        if ordered && position.is_due(floor) && self.waiting.is_empty() {
            return consumer.packet(position, link_type, block);
        }
        self.waiting.push(position, block);
        if ordered {
            self.release(floor.min((position.time_ns, position.lane)), consumer);
        }
    }

    /// Hands on what waits and may go out.
    fn release(&mut self, floor: Floor, consumer: &mut dyn Consumer) {
        while let Some((position, block)) = self.waiting.pop(floor, self.bytes_max) {
            if let Some(link_type) = self.link_types.get(position.lane as usize).copied().flatten() {
                consumer.packet(position, link_type, &block);
            }
        }
    }
}
