//! The triggers in force: one set, replaced as a whole; each worker takes a new one over between two batches.
//!
//! ```text
//!  main thread: filters compiled, machine code made ─► set n+1 stored ─► epoch n+1
//!  worker, per batch: epoch read (one relaxed load); new? ─► lock, take the set, look up its predicates
//!  main thread: once no worker holds set n any more, what it alone had is folded into counts by name
//! ```
//!
//! A trigger that both sets have goes on as it is: armed or not, holdoff, open windows, counts. A dump that has begun needs its
//! trigger's name only, so a trigger that is gone finishes its dumps.

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
    /// In the order given.
    pub triggers: Vec<Arc<Trigger>>,
    /// What a fire by hand asks.
    pub manual: Arc<Trigger>,
}

impl TriggerSet {
    fn all(&self) -> impl Iterator<Item = &Arc<Trigger>> {
        self.triggers.iter().chain([&self.manual])
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
    /// The first set.
    pub fn new(triggers: &[TriggerConfig], manual: TriggerConfig) -> Triggers {
        let armed = |config: &TriggerConfig| Arc::new(Trigger::new(config.clone()));
        let current = TriggerSet { epoch: 0, triggers: triggers.iter().map(armed).collect(), manual: armed(&manual) };
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

    /// Whether `set` is no longer in force. Costs one relaxed load: that a worker may see it a batch later does no harm, and the
    /// lock of [`Triggers::current`] orders what it then reads.
    #[inline]
    pub fn is_past(&self, set: &TriggerSet) -> bool {
        self.epoch.load(Ordering::Relaxed) != set.epoch
    }

    /// Puts another set in force; a trigger that is the same in every point goes on.
    pub fn replace(&self, triggers: &[TriggerConfig], manual: TriggerConfig) {
        let mut state = self.lock();
        let old = state.current.clone();
        let goes_on = |config: &TriggerConfig| {
            let same = old.all().find(|trigger| trigger.config().same_as(config));
            same.cloned().unwrap_or_else(|| Arc::new(Trigger::new(config.clone())))
        };
        let epoch = old.epoch + 1;
        let new = TriggerSet { epoch, triggers: triggers.iter().map(goes_on).collect(), manual: goes_on(&manual) };
        let stays = |trigger: &Arc<Trigger>| new.all().any(|other| Arc::ptr_eq(other, trigger));
        state.leaving.extend(old.all().filter(|trigger| !stays(trigger)).cloned());
        state.current = Arc::new(new);
        self.epoch.store(epoch, Ordering::Relaxed);
    }

    /// Folds triggers that nobody holds any more into their counts, and frees them here, off the packet path. Whether none is
    /// left: every worker has taken the set in force over.
    pub fn settle(&self) -> bool {
        let mut state = self.lock();
        let (left, free): (Vec<_>, Vec<_>) = state.leaving.drain(..).partition(|trigger| Arc::strong_count(trigger) > 1);
        state.leaving = left;
        free.iter().for_each(|trigger| add(&mut state.gone, &trigger.config().name, &trigger.counts()));
        state.leaving.is_empty()
    }

    /// Hits by trigger: those in force in the order given, then what is gone, then the fires by hand if there were any. A trigger
    /// that was changed goes on under its name.
    pub fn counts(&self) -> Vec<(String, HitCounts)> {
        let state = self.lock();
        let named = |trigger: &Arc<Trigger>| (trigger.config().name.clone(), trigger.counts());
        let mut counts: Vec<(String, HitCounts)> = state.current.triggers.iter().map(named).collect();
        let manual = named(&state.current.manual);
        let leaving = state.leaving.iter().map(named);
        for (name, hits) in state.gone.iter().cloned().chain(leaving).chain([manual]).filter(|(_, hits)| hits.total() > 0) {
            add(&mut counts, &name, &hits);
        }
        counts
    }
}

/// Adds hits under a name.
fn add(counts: &mut Vec<(String, HitCounts)>, name: &str, hits: &HitCounts) {
    let name = if counts.len() < GONE_NAMES_MAX || counts.iter().any(|(other, _)| other == name) { name } else { OTHERS };
    match counts.iter_mut().find(|(other, _)| other == name) {
        Some((_, sum)) => sum.add(hits),
        None => counts.push((name.to_string(), *hits)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use scope_filter::{Filter, VlanRule};
    use scope_packet::LinkType;
    use scope_trigger::{Places, Verdict};

    fn config(name: &str, before_ns: i64) -> TriggerConfig {
        TriggerConfig {
            name: name.into(),
            filter: Filter::compile("udp", VlanRule::Transparent, &[LinkType::ETHERNET]).unwrap(),
            template: None,
            before_ns,
            after_ns: 5,
            holdoff_ns: 0,
            holdoff_key: None,
            vlan: VlanRule::Transparent,
            single: true,
        }
    }

    fn fire(trigger: &Trigger) -> &'static str {
        let places = Places::new(8, 0, None);
        let verdict = trigger.fire_by_hand(scope_packet::Moment::new(0, 100), &[LinkType::ETHERNET], &places);
        assert!(matches!(verdict, Verdict::Fired(_) | Verdict::Disarmed));
        verdict.name()
    }

    fn totals(triggers: &Triggers) -> Vec<(String, u64)> {
        triggers.counts().into_iter().map(|(name, hits)| (name, hits.total())).collect()
    }

    #[test]
    fn what_is_the_same_goes_on_and_what_is_changed_is_armed_anew_under_its_name() {
        let triggers = Triggers::new(&[config("a", 1), config("b", 1), config("c", 1)], config("manual", 1));
        let worker = triggers.current();
        worker.triggers.iter().for_each(|trigger| assert_eq!(fire(trigger), "fired"));
        triggers.replace(&[config("b", 2), config("a", 1)], config("manual", 1));
        assert!(triggers.is_past(&worker));
        let current = triggers.current();
        assert_eq!((fire(&current.triggers[0]), fire(&current.triggers[1])), ("fired", "disarmed"));
        let expected = [("b", 2), ("a", 2), ("c", 1)].map(|(name, hits)| (name.to_string(), hits));
        assert_eq!(totals(&triggers), expected);
        assert!(!triggers.settle(), "the worker may still ask the old ones");
        assert_eq!(fire(&worker.triggers[2]), "disarmed");
        drop(worker);
        assert!(triggers.settle());
        assert_eq!(totals(&triggers).last(), Some(&("c".to_string(), 2)), "hits in between are counted");
    }

    #[test]
    fn no_number_of_a_trigger_that_is_gone_is_forgotten() {
        let full = Arc::new(std::sync::atomic::AtomicBool::new(true));
        let places = Places::new(8, 0, None);
        places.heed(full);
        let triggers = Triggers::new(&[config("a", 1)], config("manual", 1));
        let verdict =
            triggers.current().triggers[0].fire_by_hand(scope_packet::Moment::new(0, 100), &[LinkType::ETHERNET], &places);
        assert_eq!(verdict.name(), "no_space");
        triggers.replace(&[config("a", 2)], config("manual", 1));
        assert!(triggers.settle());
        assert_eq!((triggers.counts()[0].1.no_space, totals(&triggers)), (1, vec![("a".to_string(), 1)]));
    }

    #[test]
    fn names_of_what_is_gone_are_bounded_and_no_hit_is_forgotten() {
        let triggers = Triggers::new(&[], config("manual", 1));
        for n in 0..2 * GONE_NAMES_MAX {
            triggers.replace(&[config(&n.to_string(), 1)], config("manual", 1));
            fire(&triggers.current().triggers[0]);
            triggers.settle();
        }
        let counts = totals(&triggers);
        assert_eq!(counts.iter().map(|(_, hits)| hits).sum::<u64>(), 2 * GONE_NAMES_MAX as u64);
        assert!(counts.len() <= GONE_NAMES_MAX + 2, "{}", counts.len());
    }
}
