//! The thread "signals" of a run: it joins what workers have handed on, evaluates conditions on signals and on
//! several packets, and fires.
//!
//! What is certain at a time is decided in order of these times, whatever the condition, and however much is settled
//! at once. Where workers can wait, dumps don't count a time as settled before this thread has come to it: so a
//! window takes the hits that belong to it, at any speed.

use crate::autos::Autos;
use crate::measuring::{Measuring, Watched, locked};
use crate::patterns::{Fired, Kept, Patterns};
use crate::triggers::TriggerSet;
use crate::wiring::Shared;
use scope_dump::HitPacket;
use scope_events::event::Warning;
use scope_packet::{LinkType, Moment};
use scope_spelling::figures::span;
use scope_trigger::measure::BIN_NS;
use scope_trigger::meter::Held;
use scope_trigger::{Condition, Key, Matched, Occurrence, Own, Requester, Trigger, Why};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// How often the thread looks where conditions are evaluated, and where none are.
const LOOK_EVERY: Duration = Duration::from_millis(2);
/// See [`LOOK_EVERY`].
const LOOK_IDLE: Duration = Duration::from_millis(20);

/// What the thread has.
pub(crate) struct Joining<'a> {
    shared: &'a Shared,
    /// No worker can wait; and a run that hears nothing measures, too.
    live: bool,
    set: Arc<TriggerSet>,
    patterns: Patterns,
    autos: Autos,
    /// That sums were lost is told.
    told_of_lacks: bool,
}

/// That something holds, and who fires.
enum Certain {
    Level(Held<Watched>),
    Pattern(Fired),
}

impl<'a> Joining<'a> {
    /// To begin before the workers do.
    pub fn new(shared: &'a Shared, live: bool) -> Joining<'a> {
        let Measuring { outboxes, count_bytes, seed, .. } = &*shared.measuring;
        let patterns = Patterns::new(outboxes.len(), *count_bytes, *seed);
        let (set, autos) = (shared.triggers.current(), Autos::default());
        let mut joining = Joining { shared, live, set, patterns, autos, told_of_lacks: false };
        joining.watch();
        joining
    }

    /// Joins and fires until every worker has ended.
    pub fn work(mut self) {
        while self.step() != Moment::END {
            for text in self.bounds() {
                self.shared.events.log(Warning::from(text));
            }
            std::thread::park_timeout(if self.set.is_joined { LOOK_EVERY } else { LOOK_IDLE });
            if self.shared.triggers.is_past(&self.set) {
                self.set = self.shared.triggers.current();
                self.watch();
            }
        }
        for text in self.bounds() {
            self.shared.events.log(Warning::from(text));
        }
    }

    /// Takes over the triggers in force.
    fn watch(&mut self) {
        let measuring = &self.shared.measuring;
        self.patterns.watch(&self.set.of_patterns);
        let conditions = self.set.all().iter().filter_map(|trigger| match &trigger.config().condition {
            Condition::Level(condition) => Some((Watched(trigger.clone()), condition.clone())),
            Condition::Filter(_) | Condition::Pattern(_) | Condition::Script(_) | Condition::Hand => None,
        });
        locked(&measuring.meter).evaluate(conditions);
        if self.set.is_joined && !self.live {
            measuring.judge.get_or_init(|| self.shared.ring.judge());
        }
    }

    /// What bounds kept from being measured or counted, once each, in words.
    fn bounds(&mut self) -> Vec<String> {
        let mut told = self.patterns.bounds();
        let (unmeasured, _) = self.shared.measuring.lacks();
        if unmeasured > 0 && !std::mem::replace(&mut self.told_of_lacks, true) {
            told.push(format!(
                "signals lack {unmeasured} sums so far: they came faster than one thread joins them; measure fewer \
                 signals"
            ));
        }
        told.extend(self.autos.skipped());
        told
    }

    /// Joins what is there, and fires; up to where everything is evaluated.
    fn step(&mut self) -> Moment {
        let measuring = &self.shared.measuring;
        let mut settled = Moment::END;
        let mut held = Vec::new();
        let joined = {
            let mut meter = locked(&measuring.meter);
            for (worker, outbox) in measuring.outboxes.iter().enumerate() {
                let (handed, matches, until) = locked(outbox).take();
                self.patterns.take(worker, &matches, until);
                handed.into_iter().for_each(|handed| meter.take(handed));
                settled = settled.min(until);
            }
            meter.settle(settled, self.live, &mut held);
            meter.joined()
        };
        let mut fired = Vec::new();
        self.patterns.settle(&mut fired);
        let mut certain: Vec<(Moment, Certain)> = held.into_iter().map(Certain::of_level).collect();
        certain.extend(fired.into_iter().map(|fired| (fired.at, Certain::Pattern(fired))));
        certain.sort_by_key(|(at, _)| *at);
        for (at, certain) in &certain {
            let begun =
                joined.filter(|(era, ..)| *era == at.era).map_or(at.time_ns, |(_, bin, _)| bin * BIN_NS);
            self.fire_autos(begun, *at);
            match certain {
                Certain::Level(held) => self.fire_level(held),
                Certain::Pattern(fired) => self.fire_pattern(fired),
            }
        }
        if let Some((era, begin, next)) = joined {
            self.fire_autos(begin * BIN_NS, Moment::new(era, next * BIN_NS - 1));
        }
        if let Some(judge) = measuring.judge.get() {
            judge.has_judged(settled);
        }
        settled
    }

    /// Fires what fires by itself up to `now`, in an era that began at `begun_ns`.
    fn fire_autos(&mut self, begun_ns: i64, now: Moment) {
        self.autos.come_to(begun_ns, now, &self.set);
        while let Some((trigger, due)) = self.autos.next_due(now) {
            let long = span(trigger.config().auto_ns.unwrap_or(0));
            let occurrence =
                Occurrence { key: Key::Exempt, why: Why::Auto(&long), ..self.at(due, due.time_ns) };
            self.occurred(&trigger, &occurrence, None);
        }
    }

    /// The occurrence of a condition that began to hold.
    fn fire_level(&self, held: &Held<Watched>) {
        let (Watched(trigger), crossing) = (&held.key, &held.crossing);
        let each = held.condition.levels.iter().zip(&crossing.values);
        let values: Vec<String> = each
            .map(|(level, value)| {
                let value = value.map_or("none".to_string(), |value| level.measure.shown(value));
                format!("{} was {value}", self.shared.measuring.set().signals[level.signal].name)
            })
            .collect();
        let what = format!("{} ({})", held.condition.text, values.join(", "));
        let since = Moment::new(held.era, crossing.since_bin * BIN_NS);
        let occurrence = Occurrence {
            why: Why::Condition(&what),
            given: keeps_all(trigger).then_some(&*held.condition.filter_text),
            ..self.at(since, decided_ns(held))
        };
        self.occurred(trigger, &occurrence, None);
    }

    /// The occurrence of a condition on several packets: with the packet that made it hold, where the ring still has
    /// it.
    fn fire_pattern(&self, fired: &Fired) {
        let Fired { trigger, at, packet, what } = fired;
        let kept = Kept::find(&self.shared.ring, packet.lane, packet.packet);
        let found = kept.as_ref().and_then(|kept| Some((kept.link_type, kept.parsed()?)));
        let of_lane = |link_type| HitPacket { lane: packet.lane, packet: packet.packet, link_type };
        let mut occurrence = Occurrence { why: Why::Condition(what), ..self.at(*at, at.time_ns) };
        if let Some((link_type, (headers, data))) = &found {
            occurrence.key = Key::OfPacket;
            occurrence.packet = Some(Matched { link_type: *link_type, headers, data });
        } else if keeps_all(trigger) {
            let pattern = trigger.config().condition.pattern();
            occurrence.given = pattern.and_then(|pattern| Some(pattern.filters().first()?.text()));
        }
        self.occurred(trigger, &occurrence, found.as_ref().map(|(link_type, _)| of_lane(*link_type)));
    }

    /// One at `at` that was certain at `certain_ns`, without a packet.
    fn at(&self, at: Moment, certain_ns: i64) -> Occurrence<'static> {
        let certain = Moment::new(at.era, certain_ns);
        Occurrence {
            at,
            clock_ns: certain_ns,
            key: Key::Whole,
            why: Why::Hand,
            packet: None,
            given: None,
            own: Own::default(),
            link_types: &[],
            requester: if self.live { Requester::Live } else { Requester::Waiting(certain) },
        }
    }

    /// Lets a trigger decide; everything before that is judged, so what had ended by then may close.
    fn occurred(&self, trigger: &Trigger, occurrence: &Occurrence<'_>, packet: Option<HitPacket>) {
        if let Some(judge) = self.shared.measuring.judge.get() {
            judge.has_judged(Moment::new(occurrence.at.era, occurrence.clock_ns));
        }
        let ring = &self.shared.ring;
        let link_types: Vec<LinkType> =
            (0..ring.lanes()).map(|lane| ring.lane_info(lane).link_type).collect();
        self.shared.dumps.occurred(trigger, &Occurrence { link_types: &link_types, ..*occurrence }, packet);
    }
}

/// However the thread ends, nobody waits for it.
impl Drop for Joining<'_> {
    fn drop(&mut self) {
        let measuring = &self.shared.measuring;
        measuring.over.store(true, Ordering::Release);
        if let Some(judge) = measuring.judge.get() {
            judge.withdraw();
        }
    }
}

impl Certain {
    /// A level, and when it was certain.
    fn of_level(held: Held<Watched>) -> (Moment, Certain) {
        (Moment::new(held.era, decided_ns(&held)), Certain::Level(held))
    }
}

/// The end of the bin in which a level was certain.
fn decided_ns(held: &Held<Watched>) -> i64 {
    (held.crossing.decided_bin + 1) * BIN_NS - 1
}

/// Whether a dump without a packet to fill its template would keep everything: then it keeps the condition's packets.
fn keeps_all(trigger: &Trigger) -> bool {
    let response = &trigger.config().response;
    response.script.is_none() && response.template.as_ref().is_none_or(|template| template.has_names())
}
