//! The signals of a run: workers hand on what they have added up, and one thread joins it, evaluates the
//! conditions on signals, and fires.
//!
//! ```text
//!  worker ─ try_lock ─► its outbox ─┐
//!  worker ─ try_lock ─► its outbox ─┴► thread "signals": joined ─► series, conditions ─► Dumps::occurred
//! ```
//! A worker of a live source never waits: it keeps what it can't hand on until its next commit. One that feeds
//! from files waits while this thread is more than [`AHEAD_NS`] behind and some condition is evaluated, so that a
//! window still finds its packets in the ring, at any speed.

use crate::dumps::Dumps;
use crate::patterns::{Fired, Kept, Matches, Patterns};
use crate::triggers::{TriggerSet, Triggers};
use crate::wiring::Shared;
use scope_dump::HitPacket;
use scope_events::event::Warning;
use scope_packet::{LinkType, Moment};
use scope_spelling::figures::span;
use scope_trigger::measure::BIN_NS;
use scope_trigger::meter::{Handed, Held, Meter};
use scope_trigger::series::Step;
use scope_trigger::signal::SignalSet;
use scope_trigger::{Condition, Key, Matched, Occurrence, Requester, Trigger, Why};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

/// How often the thread looks where conditions are evaluated, and where none are.
const LOOK_EVERY: Duration = Duration::from_millis(2);
/// See [`LOOK_EVERY`].
const LOOK_IDLE: Duration = Duration::from_millis(20);
/// How far, ns of capture time, workers that can wait may be ahead of this thread.
const AHEAD_NS: i64 = 50_000_000;
/// How long they wait at once.
const WAIT_STEP: Duration = Duration::from_micros(100);
/// Sums that wait in one outbox at most. Beyond, workers that can wait do so, and others drop and count.
pub(crate) const SUMS_MAX: usize = 1 << 18;

/// What one worker has handed on, and nobody has taken.
#[derive(Debug, Default)]
struct Outbox {
    handed: Vec<Handed>,
    matches: Matches,
    /// Of these all.
    sums: usize,
    until: Moment,
}

/// What the signals of a run are made of.
#[derive(Debug)]
pub struct Measuring {
    set: Arc<SignalSet>,
    seed: [u64; 2],
    /// Bytes that one count or sequence may take.
    count_bytes: usize,
    /// One for each worker. Protected by its lock, which is held to put something in or to take all.
    outboxes: Vec<Mutex<Outbox>>,
    /// What is joined.
    meter: Mutex<Meter<Watched>>,
    /// Up to here everything is evaluated.
    done: Mutex<Moment>,
    /// Workers that can wait have to: some condition is evaluated.
    awaited: AtomicBool,
    /// The thread has ended, or never began.
    over: AtomicBool,
    late: AtomicU64,
    unmeasured: AtomicU64,
}

/// A trigger whose condition is evaluated here: the same as long as it is this trigger.
#[derive(Clone, Debug)]
struct Watched(Arc<Trigger>);

impl PartialEq for Watched {
    fn eq(&self, other: &Watched) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// A signal, as somebody asks for it.
#[derive(Clone, Debug)]
pub struct SignalNow {
    /// Its name.
    pub name: String,
    /// The word of its measure.
    pub measure: &'static str,
    /// What it is measured of; empty: all packets.
    pub expr: String,
    /// The unit of its values.
    pub unit: &'static str,
    /// Its value over the last second that is over; `None`: there is none.
    pub latest: Option<f64>,
    /// The span that was measured, ns.
    pub measured: Option<(i64, i64)>,
}

impl Measuring {
    /// Of a run with so many workers, where one count or sequence may take so many bytes. `run_id` is what nobody
    /// outside can guess.
    pub fn new(set: Arc<SignalSet>, workers: usize, run_id: [u8; 16], count_bytes: usize) -> Measuring {
        let seed = u128::from_le_bytes(run_id);
        Measuring {
            meter: Mutex::new(Meter::new(set.clone())),
            set,
            seed: [seed as u64, (seed >> 64) as u64],
            count_bytes,
            outboxes: (0..workers).map(|_| Mutex::default()).collect(),
            done: Mutex::new(Moment::BEGIN),
            awaited: AtomicBool::new(false),
            over: AtomicBool::new(false),
            late: AtomicU64::new(0),
            unmeasured: AtomicU64::new(0),
        }
    }

    /// Of a run without the thread that joins: nothing is kept, and nobody waits.
    pub fn unjoined(workers: usize) -> Arc<Measuring> {
        let measuring = Measuring::new(Arc::default(), workers, [0; 16], 0);
        measuring.over.store(true, Ordering::Release);
        Arc::new(measuring)
    }

    /// The signals.
    pub fn set(&self) -> &SignalSet {
        &self.set
    }

    /// What hashes of this run begin with.
    pub(crate) fn seed(&self) -> u64 {
        self.seed[0]
    }

    /// Takes what `worker` hands on. Without `waits` it never waits.
    ///
    /// # Errors
    /// Gives it back where somebody holds the outbox just now.
    pub(crate) fn hand_on(
        &self,
        worker: u32,
        (handed, matches): (Vec<Handed>, Matches),
        until: Moment,
        waits: bool,
    ) -> Result<(), (Vec<Handed>, Matches)> {
        let place = &self.outboxes[worker as usize];
        let mut outbox = match place.try_lock() {
            Ok(outbox) => outbox,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) if waits => locked(place),
            Err(TryLockError::WouldBlock) => return Err((handed, matches)),
        };
        while waits && outbox.sums > SUMS_MAX && !self.over.load(Ordering::Acquire) {
            drop(outbox);
            std::thread::sleep(WAIT_STEP);
            outbox = locked(place);
        }
        let matched: usize = matches.iter().map(|(_, matches)| matches.len()).sum();
        let sums = handed.iter().map(|handed| handed.sums.len()).sum::<usize>() + matched;
        if outbox.sums > SUMS_MAX || self.over.load(Ordering::Relaxed) {
            self.count_unmeasured(sums as u64);
        } else {
            outbox.sums += sums;
            outbox.handed.extend(handed);
            outbox.matches.extend(matches);
        }
        outbox.until = outbox.until.max(until);
        drop(outbox);
        while waits && self.is_behind() {
            std::thread::sleep(WAIT_STEP);
        }
        Ok(())
    }

    /// `worker` has ended, however.
    pub(crate) fn end(&self, worker: u32) {
        locked(&self.outboxes[worker as usize]).until = Moment::END;
    }

    /// Whether workers have to wait for what is evaluated.
    fn is_behind(&self) -> bool {
        if !self.awaited.load(Ordering::Relaxed) || self.over.load(Ordering::Acquire) {
            return false;
        }
        let settled = self.outboxes.iter().map(|outbox| locked(outbox).until).min();
        let done = *locked(&self.done);
        settled.is_some_and(|settled| settled != Moment::END && done.plus(AHEAD_NS) < settled)
    }

    /// Counts sums that were lost because nobody took them.
    pub(crate) fn count_unmeasured(&self, sums: u64) {
        self.unmeasured.fetch_add(sums, Ordering::Relaxed);
    }

    /// Counts packets that came after their bin was closed.
    pub(crate) fn count_late(&self, packets: u64) {
        self.late.fetch_add(packets, Ordering::Relaxed);
    }

    /// Sums of bins that no signal has, and packets that came too late for one.
    pub fn lacks(&self) -> (u64, u64) {
        (self.unmeasured.load(Ordering::Relaxed), self.late.load(Ordering::Relaxed))
    }

    /// The signals, as they are now.
    pub fn now(&self) -> Vec<SignalNow> {
        let meter = locked(&self.meter);
        let each = meter.set().signals.iter().zip(meter.series());
        each.map(|(signal, series)| SignalNow {
            name: signal.name.clone(),
            measure: signal.measure.name(),
            expr: signal.expr.clone(),
            unit: signal.measure.unit(),
            latest: series.latest(),
            measured: series.measured(),
        })
        .collect()
    }

    /// The value of each over the last second that is over, by name.
    pub fn latest(&self) -> BTreeMap<String, Option<f64>> {
        self.now().into_iter().map(|signal| (signal.name, signal.latest)).collect()
    }

    /// Steps of one signal, and their length, ns; `None`: there is none of that name.
    pub fn steps(&self, name: &str, span: (i64, i64), step_ns: i64) -> Option<(i64, Vec<Step>)> {
        let place = self.set.place(name)?;
        Some(locked(&self.meter).series()[place].steps(span.0, span.1, step_ns))
    }

    /// What a worker has handed on.
    #[cfg(test)]
    pub(crate) fn taken(&self, worker: usize) -> (Vec<Handed>, Moment) {
        let mut outbox = locked(&self.outboxes[worker]);
        (std::mem::take(&mut outbox.handed), outbox.until)
    }
}

fn locked<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

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
            outbox.sums = 0;
            let (handed, until) = (std::mem::take(&mut outbox.handed), outbox.until);
            let matches = std::mem::take(&mut outbox.matches);
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
                Certain::Level(held) => fire(&shared.dumps, held, &measuring.set, &link_types, live),
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
