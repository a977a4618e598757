//! The thread "signals" of a run: it joins what workers have handed on, evaluates conditions on signals and on
//! several packets, and fires.

use crate::dumps::Dumps;
use crate::measuring::{Measuring, Watched, locked};
use crate::patterns::{Fired, Kept, Patterns};
use crate::triggers::{TriggerSet, Triggers};
use crate::wiring::Shared;
use scope_dump::HitPacket;
use scope_events::event::Warning;
use scope_packet::{LinkType, Moment};
use scope_spelling::figures::span;
use scope_trigger::measure::BIN_NS;
use scope_trigger::meter::Held;
use scope_trigger::signal::SignalSet;
use scope_trigger::{Condition, Key, Matched, Occurrence, Requester, Why};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// How often the thread looks where conditions are evaluated, and where none are.
const LOOK_EVERY: Duration = Duration::from_millis(2);
/// See [`LOOK_EVERY`].
const LOOK_IDLE: Duration = Duration::from_millis(20);

/// The thread "signals": joins and fires until every worker has ended. `live`: a run that hears nothing measures,
/// too.
pub(crate) fn measure(shared: &Shared, live: bool) {
    let _over = OverOnDrop(&shared.measuring);
    let measuring = &shared.measuring;
    let mut patterns = Patterns::new(measuring.outboxes.len(), measuring.count_bytes, measuring.seed);
    let mut set = watch(measuring, &mut patterns, &shared.triggers);
    let mut autos = Autos::default();
    loop {
        if shared.triggers.is_past(&set) {
            set = watch(measuring, &mut patterns, &shared.triggers);
        }
        let has_conditions = set.is_joined;
        let settled = step(shared, &set, &mut patterns, &mut autos, live);
        for text in patterns.bounds() {
            shared.events.log(Warning::from(text));
        }
        if settled == Moment::END {
            return;
        }
        std::thread::park_timeout(if has_conditions { LOOK_EVERY } else { LOOK_IDLE });
    }
}

/// Takes over the triggers in force.
fn watch(measuring: &Measuring, patterns: &mut Patterns, triggers: &Triggers) -> Arc<TriggerSet> {
    let set = triggers.current();
    patterns.watch(&set.of_patterns);
    let conditions = set.all().iter().filter_map(|trigger| match &trigger.config().condition {
        Condition::Level(condition) => Some((Watched(trigger.clone()), condition.clone())),
        Condition::Filter(_) | Condition::Pattern(_) | Condition::Hand => None,
    });
    locked(&measuring.meter).evaluate(conditions);
    let awaited = set.is_joined || set.all().iter().any(|trigger| trigger.config().auto_ns.is_some());
    measuring.awaited.store(awaited, Ordering::Relaxed);
    set
}

/// Joins what is there, and fires; up to where everything is evaluated.
fn step(shared: &Shared, set: &TriggerSet, patterns: &mut Patterns, autos: &mut Autos, live: bool) -> Moment {
    let measuring = &shared.measuring;
    let mut settled = Moment::END;
    let mut held = Vec::new();
    let joined = {
        let mut meter = locked(&measuring.meter);
        for (worker, outbox) in measuring.outboxes.iter().enumerate() {
            let mut outbox = locked(outbox);
            let (handed, matches, until) = outbox.take();
            drop(outbox);
            patterns.take(worker, &matches, until);
            handed.into_iter().for_each(|handed| meter.take(handed));
            settled = settled.min(until);
        }
        meter.settle(settled, live, &mut held);
        meter.joined()
    };
    let mut fired = Vec::new();
    patterns.settle(&mut fired);
    // By the time at which it was certain, whatever the condition: the same order however much is settled at once.
    let mut certain: Vec<(Moment, Certain)> = held.into_iter().map(Certain::of_level).collect();
    certain.extend(fired.into_iter().map(|fired| (fired.at, Certain::Pattern(fired))));
    certain.sort_by_key(|(at, _)| *at);
    let has_autos = set.all().iter().any(|trigger| trigger.config().auto_ns.is_some());
    if !certain.is_empty() || has_autos {
        let ring = &shared.ring;
        let link_types: Vec<LinkType> =
            (0..ring.lanes()).map(|lane| ring.lane_info(lane).link_type).collect();
        for (at, certain) in &certain {
            autos.come_to(*at, set, &shared.dumps, &link_types, live);
            match certain {
                Certain::Level(held) => fire(&shared.dumps, held, measuring.set(), &link_types, live),
                Certain::Pattern(fired) => fire_pattern(shared, fired, &link_types, live),
            }
        }
        if let Some((era, begin, next)) = joined {
            autos.begin(Moment::new(era, begin * BIN_NS));
            autos.come_to(Moment::new(era, next * BIN_NS - 1), set, &shared.dumps, &link_types, live);
        }
    }
    *locked(&measuring.done) = settled;
    settled
}

/// That something holds, and who fires.
enum Certain {
    Level(Held<Watched>),
    Pattern(Fired),
}

impl Certain {
    /// A level, and when it was certain.
    fn of_level(held: Held<Watched>) -> (Moment, Certain) {
        let at = Moment::new(held.era, (held.crossing.decided_bin + 1) * BIN_NS - 1);
        (at, Certain::Level(held))
    }
}

/// The occurrence of a condition on several packets: with the packet that made it hold, where the ring still has it.
fn fire_pattern(shared: &Shared, fired: &Fired, link_types: &[LinkType], live: bool) {
    let Fired { trigger, at, packet, what } = fired;
    let kept = Kept::find(&shared.ring, packet.lane, packet.packet);
    let parsed = kept.as_ref().and_then(Kept::parsed);
    let template = trigger.config().response.template.as_ref();
    let is_own = template.is_some_and(|template| !template.has_names());
    let filter = trigger.config().condition.pattern().map_or("", |pattern| pattern.filters()[0].text());
    let matched = kept.as_ref().zip(parsed.as_ref()).map(|(kept, (headers, data))| Matched {
        link_type: kept.link_type,
        headers,
        data,
    });
    let place = kept.as_ref().map(|kept| HitPacket {
        lane: packet.lane,
        packet: packet.packet,
        link_type: kept.link_type,
    });
    let occurrence = Occurrence {
        at: *at,
        clock_ns: at.time_ns,
        key: if matched.is_some() { Key::OfPacket } else { Key::Whole },
        why: Why::Condition(what),
        packet: matched,
        given: (matched.is_none() && !is_own).then_some(filter),
        link_types,
        requester: if live { Requester::Live } else { Requester::Waiting(*at) },
    };
    shared.dumps.occurred(trigger, &occurrence, place);
}

/// The occurrence of a condition that began to hold.
fn fire(dumps: &Arc<Dumps>, held: &Held<Watched>, signals: &SignalSet, link_types: &[LinkType], live: bool) {
    let (trigger, crossing) = (&held.key.0, &held.crossing);
    let decided_ns = (crossing.decided_bin + 1) * BIN_NS - 1;
    let values: Vec<String> = held
        .condition
        .levels
        .iter()
        .zip(&crossing.values)
        .map(|(level, value)| {
            let value = value.map_or("none".to_string(), |value| level.measure.shown(value));
            format!("{} was {value}", signals.signals[level.signal].name)
        })
        .collect();
    let what = format!("{} ({})", held.condition.text, values.join(", "));
    let template = trigger.config().response.template.as_ref();
    let has_own = template.is_some_and(|template| !template.has_names());
    let occurrence = Occurrence {
        at: Moment::new(held.era, crossing.since_bin * BIN_NS),
        clock_ns: decided_ns,
        key: Key::Whole,
        why: Why::Condition(&what),
        packet: None,
        given: (!has_own).then_some(&*held.condition.filter_text),
        link_types,
        requester: if live { Requester::Live } else { Requester::Waiting(Moment::new(held.era, decided_ns)) },
    };
    dumps.occurred(trigger, &occurrence, None);
}

/// Triggers that fire by themselves where nothing has fired them for a while.
#[derive(Debug, Default)]
struct Autos {
    /// Of each: when it was fired last, or since when it waits.
    since: Vec<(Watched, Moment)>,
    /// The era's begin.
    begun: Moment,
}

impl Autos {
    /// An era begins at `begin`, if it isn't begun.
    fn begin(&mut self, begin: Moment) {
        if begin.era > self.begun.era || self.begun == Moment::BEGIN {
            self.begun = begin;
            self.since.clear();
        }
    }

    /// Fires what is due up to `now`.
    fn come_to(
        &mut self,
        now: Moment,
        set: &TriggerSet,
        dumps: &Arc<Dumps>,
        link_types: &[LinkType],
        live: bool,
    ) {
        self.since.retain(|(known, _)| set.all().iter().any(|trigger| Arc::ptr_eq(trigger, &known.0)));
        for trigger in set.all() {
            let Some(auto_ns) = trigger.config().auto_ns else { continue };
            let watched = Watched(trigger.clone());
            let place = self.since.iter().position(|(known, _)| *known == watched).unwrap_or_else(|| {
                // One that comes while the run goes waits from now on.
                let is_first = self.since.is_empty() && now.era == self.begun.era;
                self.since.push((watched, if is_first { self.begun } else { now }));
                self.since.len() - 1
            });
            let fires = trigger.take_fires(now);
            for fired in fires.into_iter().map(Some).chain([None]) {
                let until = fired.unwrap_or(now);
                while until.era == self.since[place].1.era && until > self.since[place].1.plus(auto_ns) {
                    let due = self.since[place].1.plus(auto_ns);
                    self.since[place].1 = due;
                    let long = span(auto_ns);
                    let occurrence = Occurrence {
                        at: due,
                        clock_ns: due.time_ns,
                        key: Key::Exempt,
                        why: Why::Auto(&long),
                        packet: None,
                        given: None,
                        link_types,
                        requester: if live { Requester::Live } else { Requester::Waiting(due) },
                    };
                    dumps.occurred(trigger, &occurrence, None);
                    trigger.take_fires(due);
                }
                if let Some(fired) = fired {
                    self.since[place].1 = self.since[place].1.max(fired);
                }
            }
        }
    }
}

/// However the thread ends, nobody waits for it.
struct OverOnDrop<'a>(&'a Measuring);

impl Drop for OverOnDrop<'_> {
    fn drop(&mut self) {
        self.0.over.store(true, Ordering::Release);
    }
}
