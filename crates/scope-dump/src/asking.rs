//! Questions to a run that goes: the packets of a span that a filter matches, out of the ring and out of the stores that the
//! run writes, each once and by time; and what is missing.
//!
//! ```text
//! begin   up to the span's end all is settled, or will not be ─► the stores are asked for what stands before the ring
//! read    stores ─┐
//!         ring  ──┴─► by time ─► filters ─► consumer     what the ring recycles meanwhile comes out of the stores
//! ```
//! It goes the way of a dump, and holds nothing: a segment stays while its packets are handed on, and no longer. So a
//! consumer that takes long ([`Consumer::between`]) costs itself what nobody has any more, which is stated. A run's eras
//! are none of a question's: capture time says what belongs to it.

use crate::edge::{Edge, Wanted};
use crate::gaps::{Gaps, counts};
use crate::past::{Estimate, Past, Terms};
use crate::pins::FirstPins;
use crate::scans::Scans;
use crate::select::{Consumer, Round, Selection};
use crate::sieve::StoreSift;
use crate::walk::{Request, RingTimeline};
use scope_filter::{Filter, FilterEngine};
use scope_packet::{Clock, Gap, GapReason, LinkType, Moment};
use scope_ring::{Interfaces, Ring, Timeline};
use scope_store::head::HeadInterface;
use scope_store::timeline::{InterfaceKey, KnownInterfaces, MEMORY_BYTES_MIN, Span};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Threads that read the stores for a question.
const THREADS: usize = 2;
/// A question waits no longer than this for what isn't settled, also where workers come on.
const WAIT_MAX: Duration = Duration::from_secs(10);
/// Between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// What a run that goes has to answer with.
#[derive(Clone)]
pub struct Answerer {
    /// The ring.
    pub ring: Arc<Ring>,
    /// The stores that the run writes.
    pub past: Option<Arc<Past>>,
    /// What it shares with the run's dumps: summaries.
    pub scans: Arc<Scans>,
    /// What time it is.
    pub clock: Arc<dyn Clock>,
    /// What evaluates filters.
    pub engine: FilterEngine,
    /// Live: how long to wait for workers whose clocks have stopped. `None`: nothing is waited for.
    pub patience: Option<Duration>,
}

/// What is asked.
#[derive(Clone)]
pub struct RunQuestion {
    /// The span. Without an end it is up to now; without a begin (0) from the first packet on.
    pub span: Span,
    /// Which packets of it.
    pub filter: Filter,
    /// The filter that whoever asks is bound to: what doesn't match this one as well is no packet of the answer.
    pub bound: Option<Filter>,
}

/// An answer, ready to be read.
pub struct RunAnswer<'a> {
    answerer: &'a Answerer,
    source: Source<'a>,
    selection: Selection,
    asked: Span,
    span: Span,
    is_everything: bool,
    /// From when to when somebody listened.
    heard: Option<(i64, i64)>,
}

/// Whoever answers.
enum Source<'a> {
    Ring(Box<RingTimeline>),
    Both(Box<Edge<'a>>),
}

impl Source<'_> {
    fn timeline(&mut self) -> &mut dyn Timeline {
        match self {
            Source::Ring(ring) => &mut **ring,
            Source::Both(edge) => &mut **edge,
        }
    }

    fn known(&self) -> &dyn Timeline {
        match self {
            Source::Ring(ring) => &**ring,
            Source::Both(edge) => &**edge,
        }
    }
}

impl Answerer {
    /// Waits until the span is settled, and looks where its packets are. Once `stop` is set nothing more is read.
    pub fn begin(&self, question: RunQuestion, stop: &Arc<AtomicBool>) -> RunAnswer<'_> {
        let RunQuestion { span: asked, filter, bound } = question;
        let now_ns = self.now_ns();
        let to_ns = if self.patience.is_some() { asked.to_ns.min(now_ns) } else { asked.to_ns };
        let span = Span { from_ns: asked.from_ns, to_ns };
        let request = Request {
            era: None,
            from_ns: span.from_ns,
            hit_ns: now_ns,
            reader: self.scans.join_alone(),
            patience: self.patience,
            clock: self.clock.clone(),
            progress: Arc::default(),
        };
        let mut ring = RingTimeline::new(&self.ring, &FirstPins::none(&self.ring), request);
        self.settle(&mut ring, to_ns, stop);
        let is_everything = filter.is_everything() && bound.is_none();
        let source = match &self.past {
            None => Source::Ring(Box::new(ring)),
            Some(past) => {
                let sift = StoreSift::new(filter.clone(), self.engine).bound_to(bound.clone());
                let terms = Terms {
                    to_ns,
                    threads: THREADS,
                    memory_bytes: MEMORY_BYTES_MIN,
                    by_time: true,
                    sift: Some(Arc::new(sift)),
                    stop: stop.clone(),
                };
                let wanted = Wanted {
                    era: None,
                    from_ns: span.from_ns,
                    hit_ns: now_ns,
                    filter: filter.clone(),
                    inexact: true,
                    terms,
                };
                Source::Both(Box::new(Edge::new(&self.ring, ring, &**past, wanted)))
            }
        };
        let selection =
            Selection::new(filter, self.engine, span.from_ns, None, &Arc::default()).bound_to(bound);
        let (answerer, heard) = (self, None);
        let mut answer = RunAnswer { answerer, source, selection, asked, span, is_everything, heard };
        if let Source::Both(edge) = &mut answer.source {
            edge.settle(to_ns); // it asks the stores
        }
        answer.heard = answer.source.known().heard();
        answer
    }

    /// Up to when the run has listened by now, ns.
    fn heard_until_ns(&self) -> i64 {
        match (self.patience, self.ring.heard()) {
            (None, Some((_, last_ns))) => last_ns,
            _ => self.now_ns(),
        }
    }

    /// What the clocks of the run show: that of packets may be ahead of the system's.
    fn now_ns(&self) -> i64 {
        self.ring.heard().map_or(i64::MIN, |(_, last_ns)| last_ns).max(self.clock.wall_ns())
    }

    fn settle(&self, ring: &mut RingTimeline, to_ns: i64, stop: &AtomicBool) {
        let begun = self.clock.monotonic();
        loop {
            let settled = ring.settle(to_ns);
            let is_settled = settled.up_to > Moment::new(settled.up_to.era, to_ns);
            let is_over = self.patience.is_none() || self.clock.monotonic() - begun > WAIT_MAX;
            if is_settled || is_over || !settled.goes_on || stop.load(Ordering::Relaxed) {
                return;
            }
            self.clock.wait(LOOK_EVERY, &std::thread::sleep);
        }
    }

    /// How much there may be in a span.
    pub fn estimate(&self, span: Span) -> Estimate {
        let mut estimate = Estimate::default();
        let mut firsts = vec![u64::MAX; self.ring.lanes() as usize];
        for lane in 0..self.ring.lanes() {
            for id in self.ring.segment_ids(lane, 0) {
                let Some(pinned) = self.ring.pin(id) else { continue };
                let first = &mut firsts[lane as usize];
                *first = pinned.first_packet().min(*first);
                let touches = |(min_ns, max_ns, _)| min_ns <= span.to_ns && max_ns >= span.from_ns;
                if pinned.span().is_some_and(touches) {
                    let committed = pinned.committed();
                    estimate.packets += u64::from(committed.packets);
                    estimate.bytes += u64::from(committed.bytes);
                }
            }
        }
        if let Some(past) = &self.past {
            let stored = past.estimate(span, &firsts);
            estimate.packets += stored.packets;
            estimate.bytes += stored.bytes;
        }
        estimate
    }

    /// What knows the interfaces of packets.
    pub fn interfaces(&self) -> Arc<dyn KnownInterfaces> {
        Arc::new(OfRun { ring: self.ring.clone(), past: self.past.clone() })
    }
}

impl RunAnswer<'_> {
    /// Hands its packets to `consumer`, which may take long between two pieces.
    pub fn read(&mut self, consumer: &mut dyn Consumer) {
        let round = Round { to_ns: self.span.to_ns, settled_ns: i64::MAX, last: true };
        let timeline = self.source.timeline();
        self.selection.round(timeline, round, consumer);
        timeline.end();
    }

    /// The span, up to now at most.
    pub fn span(&self) -> Span {
        self.span
    }

    /// From when to when there may be packets of the run and of the earlier ones of its stores, as far as that is known.
    pub fn heard(&self) -> Option<(i64, i64)> {
        let (from_ns, to_ns) = self.heard?;
        Some((from_ns, to_ns.min(self.answerer.heard_until_ns()).max(from_ns)))
    }

    /// What it lacks by now, joined where gaps of one reason touch.
    pub fn gaps(&self) -> Vec<Gap> {
        let Span { from_ns, to_ns } = self.span;
        // Nobody misses what was before the first packet where no begin was asked for.
        let begin_ns = if self.asked.from_ns > 0 { from_ns } else { self.heard.map_or(0, |heard| heard.0) };
        let mut gaps = Gaps::of((begin_ns, to_ns));
        for gap in self.selection.missing(self.source.known(), to_ns) {
            gaps.add(of_question(gap));
        }
        gaps.state(self.is_everything).gaps
    }

    /// What of the stores couldn't be read, in words.
    pub fn unread(&self) -> Vec<String> {
        match &self.source {
            Source::Ring(_) => Vec::new(),
            Source::Both(edge) => edge.unread(),
        }
    }

    /// The link type of the first lane.
    pub fn first_type(&self) -> Option<LinkType> {
        self.source.known().link_type(0)
    }
}

/// A gap as questions to stores state it: where nobody listened nothing is lost, and no run was going before this one.
fn of_question(gap: Gap) -> Gap {
    let reason = match gap.reason {
        GapReason::NotStarted => GapReason::NotRecorded,
        other => other,
    };
    let is_silent = !counts(gap.reason) || gap.reason == GapReason::ClockStep;
    let lost_max = gap.lost_max.or(is_silent.then_some(0));
    Gap { reason, lost_max, ..gap }
}

/// The interfaces of a run, and of the earlier ones in its stores.
struct OfRun {
    ring: Arc<Ring>,
    past: Option<Arc<Past>>,
}

impl OfRun {
    fn known(&self) -> &dyn Interfaces {
        self.past.as_ref().map_or(&*self.ring as &dyn Interfaces, |past| &**past)
    }

    fn key(&self, number: u32) -> InterfaceKey {
        (self.ring.run_id(), number)
    }
}

impl KnownInterfaces for OfRun {
    fn of(&self, lane: u32, number: u32) -> Option<(InterfaceKey, HeadInterface)> {
        let number = self.known().number_of(lane, number);
        let entry = self.known().interface(number)?;
        let (name, description, link_type) = (entry.name, entry.description, entry.link_type);
        Some((self.key(number), HeadInterface { name, description, link_type }))
    }

    fn all(&self, link_type: LinkType) -> Vec<(InterfaceKey, HeadInterface)> {
        let all = self.known().of_type(link_type).into_iter();
        let head = |(number, entry): (u32, scope_ring::InterfaceEntry)| {
            let (name, description) = (entry.name, entry.description);
            (self.key(number), HeadInterface { name, description, link_type })
        };
        all.map(head).collect()
    }
}
