//! The triggers in force: one set, replaced as a whole; each worker takes a new one over between two batches.
//!
//! ```text
//!  main thread: filters compiled, machine code made ─► set n+1 stored ─► epoch n+1
//!  worker, per batch: epoch read (one relaxed load); new? ─► lock, take the set, look up its predicates
//!  main thread: once no worker holds set n any more, what it alone had is folded into counts by name
//! ```
//!
//! A trigger that both sets have goes on as it is: armed or not, holdoff, open windows, counts. A dump that
//! has begun needs its trigger's name only, so a trigger that is gone finishes its dumps.

use scope_flow::when::WHENS_MAX;
use scope_trigger::{HitCounts, Trigger, TriggerConfig};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

/// Names of triggers that are gone whose counts are kept apart; beyond, counts go under [`OTHERS`].
const GONE_NAMES_MAX: usize = 1024;
/// The name for what has gone beyond that bound.
const OTHERS: &str = "(others that are gone)";

/// Triggers that belong together.
#[derive(Debug)]
pub struct TriggerSet {
    epoch: u64,
    /// In the order given, whatever their conditions; the one by hand, which each set has, last.
    triggers: Vec<Arc<Trigger>>,
    /// Of these, in the same order, those that have a filter: what a worker evaluates.
    pub of_packets: Vec<Arc<Trigger>>,
    /// Of these those that have a condition on several packets.
    pub of_patterns: Vec<Arc<Trigger>>,
    /// Of `of_packets` those that ask a packet's flow as well.
    pub on_flows: Vec<OnFlow>,
    /// For some it is the thread "signals" that fires: at levels, by several packets, or by themselves.
    pub is_joined: bool,
}

/// A trigger that asks flows, in its set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OnFlow {
    /// Its place in `of_packets`.
    pub place: usize,
    /// The number of its condition, which flows remember; as long as it goes on, it keeps that.
    pub number: u8,
    /// The set in which it got that; the first is 1.
    pub since: u64,
}

impl TriggerSet {
    /// `before`: the set in whose place it comes.
    fn new(
        triggers: impl Iterator<Item = Arc<Trigger>>,
        hand: Arc<Trigger>,
        before: Option<&TriggerSet>,
    ) -> TriggerSet {
        let epoch = before.map_or(0, |before| before.epoch + 1);
        let triggers: Vec<_> = triggers.chain([hand]).collect();
        let has_filter = |trigger: &&Arc<Trigger>| trigger.config().condition.filter().is_some();
        let of_packets: Vec<_> = triggers.iter().filter(has_filter).cloned().collect();
        let on_flows = numbered(&of_packets, epoch + 1, before);
        let is_pattern = |trigger: &&Arc<Trigger>| trigger.config().condition.pattern().is_some();
        let of_patterns: Vec<_> = triggers.iter().filter(is_pattern).cloned().collect();
        let is_level = |trigger: &Arc<Trigger>| trigger.config().condition.level().is_some();
        let is_auto = |trigger: &Arc<Trigger>| trigger.config().auto_ns.is_some();
        let is_joined =
            !of_patterns.is_empty() || triggers.iter().any(|trigger| is_level(trigger) || is_auto(trigger));
        TriggerSet { epoch, triggers, of_packets, of_patterns, on_flows, is_joined }
    }

    /// All, in the order given; the one by hand last.
    pub fn all(&self) -> &[Arc<Trigger>] {
        &self.triggers
    }

    /// Those that were given: all but the one by hand.
    pub fn given(&self) -> &[Arc<Trigger>] {
        &self.triggers[..self.triggers.len() - 1]
    }

    /// What is fired by hand where no trigger is named.
    pub fn hand(&self) -> &Arc<Trigger> {
        self.triggers.last().expect("each set has it")
    }

    /// The one of that name.
    pub fn named(&self, name: &str) -> Option<&Arc<Trigger>> {
        self.triggers.iter().find(|trigger| trigger.config().name == name)
    }
}

/// The set in force, and what became of earlier ones.
#[derive(Debug)]
pub struct Triggers {
    /// That of the set in force; changes behind it.
    epoch: AtomicU64,
    /// Protected by the lock, which a worker takes only when the epoch has changed.
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    current: Arc<TriggerSet>,
    /// Gone from the set, but a worker may still ask it.
    leaving: Vec<Arc<Trigger>>,
    /// Counts of those that are gone, by name, in the order of going.
    gone: Vec<(String, HitCounts)>,
}

impl Triggers {
    /// The first set; `hand` is what is fired by hand.
    pub fn new(triggers: &[TriggerConfig], hand: TriggerConfig) -> Triggers {
        let armed = |config: &TriggerConfig| Arc::new(Trigger::new(config.clone()));
        let current = TriggerSet::new(triggers.iter().map(armed), armed(&hand), None);
        let state = State { current: Arc::new(current), leaving: Vec::new(), gone: Vec::new() };
        Triggers { epoch: AtomicU64::new(0), state: Mutex::new(state) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no panic while held")
    }

    /// The set in force.
    pub fn current(&self) -> Arc<TriggerSet> {
        self.lock().current.clone()
    }

    /// Whether `set` is no longer in force. Costs one relaxed load: that a worker may see it a batch later
    /// does no harm, and the lock of [`Triggers::current`] orders what it then reads.
    #[inline]
    pub fn is_past(&self, set: &TriggerSet) -> bool {
        self.epoch.load(Ordering::Relaxed) != set.epoch
    }

    /// Puts another set in force; a trigger that is the same in every point goes on. One that is changed fires no more
    /// than before, where somebody ordered that it doesn't.
    pub fn replace(&self, triggers: &[TriggerConfig], hand: TriggerConfig) {
        let mut state = self.lock();
        let old = state.current.clone();
        let goes_on = |config: &TriggerConfig| {
            let same = old.all().iter().find(|trigger| trigger.config().same_as(config));
            same.cloned().unwrap_or_else(|| {
                let changed = Trigger::new(config.clone());
                if old.named(&config.name).is_some_and(|before| before.is_off()) {
                    changed.order(false);
                }
                Arc::new(changed)
            })
        };
        let new = TriggerSet::new(triggers.iter().map(goes_on), goes_on(&hand), Some(&old));
        let epoch = new.epoch;
        let stays = |trigger: &Arc<Trigger>| new.all().iter().any(|other| Arc::ptr_eq(other, trigger));
        state.leaving.extend(old.all().iter().filter(|trigger| !stays(trigger)).cloned());
        state.current = Arc::new(new);
        self.epoch.store(epoch, Ordering::Relaxed);
    }

    /// Folds triggers that nobody holds any more into their counts, and frees them here, off the packet path.
    /// Whether none is left: every worker has taken the set in force over.
    pub fn settle(&self) -> bool {
        let mut state = self.lock();
        let (left, free): (Vec<_>, Vec<_>) =
            state.leaving.drain(..).partition(|trigger| Arc::strong_count(trigger) > 1);
        state.leaving = left;
        for trigger in &free {
            add(&mut state.gone, &trigger.config().name, &trigger.counts());
        }
        state.leaving.is_empty()
    }

    /// Hits by trigger: those in force in the order given, then what is gone, then the fires by hand if there
    /// were any. A trigger that was changed goes on under its name.
    pub fn counts(&self) -> Vec<(String, HitCounts)> {
        let state = self.lock();
        let named = |trigger: &Arc<Trigger>| (trigger.config().name.clone(), trigger.counts());
        let (given, hand) = state.current.triggers.split_at(state.current.triggers.len() - 1);
        let mut counts: Vec<(String, HitCounts)> = given.iter().map(named).collect();
        let rest = state.leaving.iter().chain(hand).map(named);
        for (name, hits) in state.gone.iter().cloned().chain(rest).filter(|(_, hits)| hits.total() > 0) {
            add(&mut counts, &name, &hits);
        }
        counts
    }
}

/// Gives those that ask flows their numbers: what goes on keeps its own. Beyond [`WHENS_MAX`] there are none, which who
/// makes triggers sees to.
fn numbered(of_packets: &[Arc<Trigger>], since: u64, before: Option<&TriggerSet>) -> Vec<OnFlow> {
    let asks = |(_, trigger): &(usize, &Arc<Trigger>)| trigger.config().when.is_some();
    let known = |trigger: &Arc<Trigger>| {
        let before = before?;
        let is_it = |of: &&OnFlow| Arc::ptr_eq(&before.of_packets[of.place], trigger);
        before.on_flows.iter().find(is_it).copied()
    };
    let asking: Vec<(usize, Option<OnFlow>)> =
        of_packets.iter().enumerate().filter(asks).map(|(place, trigger)| (place, known(trigger))).collect();
    let is_taken = |number: &u8| asking.iter().flat_map(|(_, known)| known).any(|of| of.number == *number);
    let mut free = (0..WHENS_MAX as u8).filter(|number| !is_taken(number));
    let numbered = |(place, known): &(usize, Option<OnFlow>)| match *known {
        Some(known) => Some(OnFlow { place: *place, ..known }),
        None => free.next().map(|number| OnFlow { place: *place, number, since }),
    };
    asking.iter().filter_map(numbered).collect()
}

/// Adds hits under a name.
fn add(counts: &mut Vec<(String, HitCounts)>, name: &str, hits: &HitCounts) {
    let name = if counts.len() < GONE_NAMES_MAX || counts.iter().any(|(other, _)| other == name) {
        name
    } else {
        OTHERS
    };
    match counts.iter_mut().find(|(other, _)| other == name) {
        Some((_, sum)) => sum.add(hits),
        None => counts.push((name.to_string(), *hits)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use scope_filter::{Filter, VlanRule};
    use scope_packet::{LinkType, Moment};
    use scope_trigger::{Condition, Places, Response, Verdict};

    fn config(name: &str, before_ns: i64) -> TriggerConfig {
        let filter = Filter::compile("udp", VlanRule::Transparent, &[LinkType::ETHERNET]).unwrap();
        TriggerConfig {
            name: name.into(),
            condition: Condition::Filter(filter),
            response: Response {
                template: None,
                script: None,
                before_ns,
                after_ns: 5,
                vlan: VlanRule::Transparent,
            },
            holdoff_ns: 0,
            holdoff_key: None,
            single: true,
            auto_ns: None,
            when: None,
        }
    }

    fn hand() -> TriggerConfig {
        TriggerConfig { condition: Condition::Hand, single: false, ..config("manual", 1) }
    }

    fn order(trigger: &Trigger, places: &Arc<Places>) -> Verdict {
        let now = Moment::new(0, 100);
        trigger.occurred(&trigger.config().condition.ordered(now, &[LinkType::ETHERNET]), places)
    }

    fn fire(trigger: &Trigger) -> &'static str {
        let places = Places::new(8, 0, None);
        let verdict = order(trigger, &places);
        assert!(matches!(verdict, Verdict::Fired(_) | Verdict::Extended { .. } | Verdict::Disarmed));
        verdict.name()
    }

    fn totals(triggers: &Triggers) -> Vec<(String, u64)> {
        triggers.counts().into_iter().map(|(name, hits)| (name, hits.total())).collect()
    }

    #[test]
    fn what_is_the_same_goes_on_and_what_is_changed_is_armed_anew_under_its_name() {
        let triggers = Triggers::new(&[config("a", 1), config("b", 1), config("c", 1)], hand());
        let worker = triggers.current();
        worker.of_packets.iter().for_each(|trigger| assert_eq!(fire(trigger), "fired"));
        triggers.replace(&[config("b", 2), config("a", 1)], hand());
        assert!(triggers.is_past(&worker));
        let current = triggers.current();
        assert_eq!((fire(&current.all()[0]), fire(&current.all()[1])), ("fired", "disarmed"));
        let expected = [("b", 2), ("a", 2), ("c", 1)].map(|(name, hits)| (name.to_string(), hits));
        assert_eq!(totals(&triggers), expected);
        assert!(!triggers.settle(), "the worker may still ask the old ones");
        assert_eq!(fire(&worker.all()[2]), "disarmed");
        drop(worker);
        assert!(triggers.settle());
        assert_eq!(totals(&triggers).last(), Some(&("c".to_string(), 2)), "hits in between are counted");
    }

    #[test]
    fn no_number_of_a_trigger_that_is_gone_is_forgotten() {
        let full = Arc::new(std::sync::atomic::AtomicBool::new(true));
        let places = Places::new(8, 0, None);
        places.watch_space(full);
        let triggers = Triggers::new(&[config("a", 1)], hand());
        let verdict = order(&triggers.current().all()[0], &places);
        assert_eq!(verdict.name(), "no_space");
        triggers.replace(&[config("a", 2)], hand());
        assert!(triggers.settle());
        assert_eq!((triggers.counts()[0].1.no_space, totals(&triggers)), (1, vec![("a".to_string(), 1)]));
    }

    #[test]
    fn the_one_by_hand_is_among_the_triggers_and_costs_no_packet_anything() {
        let triggers = Triggers::new(&[config("a", 1), config("b", 1)], hand());
        let set = triggers.current();
        let names = |triggers: &[Arc<Trigger>]| -> Vec<String> {
            triggers.iter().map(|trigger| trigger.config().name.clone()).collect()
        };
        assert_eq!(
            (names(set.all()), names(&set.of_packets)),
            (names(set.all()), vec!["a".into(), "b".into()])
        );
        assert_eq!(
            (set.hand().config().name.as_str(), set.named("manual").is_some(), set.all().len()),
            ("manual", true, 3)
        );
        assert!(set.named("c").is_none());
        assert_eq!(totals(&triggers).len(), 2, "its row comes with its first hit");
        assert_eq!((fire(set.hand()), fire(set.hand())), ("fired", "extended"));
        let row = triggers.counts().pop().unwrap();
        assert_eq!((row.0.as_str(), row.1.fired, row.1.extended, row.1.total()), ("manual", 1, 1, 2));
        triggers.replace(&[], TriggerConfig { response: config("manual", 9).response, ..hand() });
        assert_eq!(totals(&triggers), [("manual".to_string(), 2)], "and stays when it changes");
    }

    #[test]
    fn what_asks_flows_keeps_its_number_while_it_goes_on_and_others_get_what_is_free() {
        let asking = |name: &str, when: &str| TriggerConfig {
            when: Some(scope_flow::when::When::parse(when).unwrap()),
            ..config(name, 1)
        };
        let of = |place, number, since| OnFlow { place, number, since };
        let triggers = Triggers::new(&[asking("a", "new"), config("b", 1), asking("c", "new")], hand());
        assert_eq!(triggers.current().on_flows, [of(0, 0, 1), of(2, 1, 1)]);
        triggers.replace(&[config("b", 1), asking("c", "new"), asking("d", "new")], hand());
        assert_eq!(triggers.current().on_flows, [of(1, 1, 1), of(2, 0, 2)]);
        triggers.replace(&[asking("c", "packets > 3"), asking("d", "new")], hand());
        assert_eq!(triggers.current().on_flows, [of(0, 1, 3), of(1, 0, 2)], "c is another one");
        let many: Vec<TriggerConfig> = (0..20).map(|n| asking(&n.to_string(), "new")).collect();
        triggers.replace(&many, hand());
        assert_eq!(triggers.current().on_flows.len(), WHENS_MAX);
    }

    #[test]
    fn names_of_what_is_gone_are_bounded_and_no_hit_is_forgotten() {
        let triggers = Triggers::new(&[], hand());
        for n in 0..2 * GONE_NAMES_MAX {
            triggers.replace(&[config(&n.to_string(), 1)], hand());
            fire(&triggers.current().all()[0]);
            triggers.settle();
        }
        let counts = totals(&triggers);
        assert_eq!(counts.iter().map(|(_, hits)| hits).sum::<u64>(), 2 * GONE_NAMES_MAX as u64);
        assert!(counts.len() <= GONE_NAMES_MAX + 2, "{}", counts.len());
    }
}
