//! Rules of sources: which are in force, and what they have taken, for all workers and whoever asks.
//!
//! ```text
//! worker   a batch begins: is_past? ─► current    a commit: add what was taken since the last one
//! run      SIGHUP: replace                        status, summary, a dump's header: taken
//! ```
//! A worker that can't wait never does so here: what it can't hand over at once goes with the next commit.

use crate::plan::SourceEntry;
use scope_events::counts;
use scope_events::event::{Warning, WarningKind};
use scope_filter::FilterEngine;
use scope_group::rules::{RuleSet, fold_former};
use scope_spelling::figures::plural;
use std::collections::BTreeMap;
use std::ops::AddAssign;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What a rule has taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TakenByRule {
    /// Packets that it dropped; they count as filtered.
    pub dropped: u64,
    /// Packets that it truncated; they count as cut.
    pub cut: u64,
}

impl AddAssign for TakenByRule {
    fn add_assign(&mut self, more: TakenByRule) {
        (self.dropped, self.cut) = (self.dropped + more.dropped, self.cut + more.cut);
    }
}

/// A rule of a source, and what it has taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceRule {
    /// The source, as typed.
    pub source: String,
    /// The rule's name.
    pub rule: String,
    /// What it has taken.
    pub taken: TakenByRule,
}

/// One source: its rules, and what each has taken, by name, also those that are gone.
struct Of {
    source: String,
    rules: Arc<RuleSet>,
    taken: BTreeMap<String, TakenByRule>,
}

/// See [the room](self).
#[derive(Default)]
pub struct SourceRules {
    /// Another one with each change; 0: there are none, and never will be.
    version: AtomicU64,
    sources: Mutex<Vec<Of>>,
}

impl SourceRules {
    /// Those of all sources, by number.
    pub fn new(entries: &[SourceEntry]) -> SourceRules {
        let of = |entry: &SourceEntry| Of {
            source: entry.spec.clone(),
            rules: entry.rules.clone(),
            taken: BTreeMap::new(),
        };
        let sources = Mutex::new(entries.iter().map(of).collect());
        SourceRules { version: AtomicU64::new(1), sources }
    }

    /// Makes machine code of the filters of all rules in force, also for link types that have come since; says where none can
    /// be made, once. Until it is made the interpreter answers.
    pub(crate) fn prepare(&self, engine: FilterEngine) -> Vec<Warning> {
        self.sources().iter().filter_map(|of| unready(&of.source, &of.rules, engine)).collect()
    }

    fn sources(&self) -> MutexGuard<'_, Vec<Of>> {
        self.sources.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether others are in force than those of this version.
    #[inline]
    pub fn is_past(&self, version: u64) -> bool {
        self.version.load(Ordering::Relaxed) != version
    }

    /// The rules of each source, and their version.
    pub fn current(&self) -> (u64, Vec<Arc<RuleSet>>) {
        let sources = self.sources();
        (self.version.load(Ordering::Relaxed), sources.iter().map(|of| of.rules.clone()).collect())
    }

    /// Puts others in force where they say something else. What those that go have taken stays counted.
    pub fn replace(&self, rules: &[Arc<RuleSet>]) {
        let mut sources = self.sources();
        let mut is_changed = false;
        for (of, new) in sources.iter_mut().zip(rules).filter(|(of, new)| of.rules.text() != new.text()) {
            (of.rules, is_changed) = (new.clone(), true);
            fold_former(&mut of.taken, &of.rules);
        }
        if is_changed {
            self.version.fetch_add(1, Ordering::Relaxed); // whoever sees it takes the lock
        }
    }

    /// Adds what a worker has seen taken, by the source's number and the rule's name; what can't be added at once stays, if
    /// the worker can't wait.
    pub fn add(&self, taken: &mut Vec<(usize, String, TakenByRule)>, waits: bool) {
        let sources = if waits { Some(self.sources()) } else { self.sources.try_lock().ok() };
        let Some(mut sources) = sources else { return };
        for (at, rule, more) in taken.drain(..) {
            let Some(of) = sources.get_mut(at) else { continue };
            *of.taken.entry(rule).or_default() += more;
        }
    }

    /// All rules in their order, and behind those of each source the ones that are gone and had taken something.
    pub fn taken(&self) -> Vec<SourceRule> {
        let mut all = Vec::new();
        for of in self.sources().iter() {
            let names: Vec<&String> = of.rules.rules().iter().map(|rule| &rule.name).collect();
            let gone = of.taken.keys().filter(|name| !names.contains(name));
            all.extend(names.iter().copied().chain(gone).map(|rule| SourceRule {
                source: of.source.clone(),
                rule: rule.clone(),
                taken: of.taken.get(rule).copied().unwrap_or_default(),
            }));
        }
        all
    }
}

/// Makes machine code of the filters of a source's rules; in words why there is none, once.
pub(crate) fn unready(source: &str, rules: &RuleSet, engine: FilterEngine) -> Option<Warning> {
    let errors: Vec<_> = rules.filters().filter_map(|filter| filter.prepare(engine).err()).collect();
    let text = format!("source '{source}': rule: {}: the interpreter evaluates it", errors.first()?);
    Some(Warning::of(WarningKind::Interpreter, text))
}

impl SourceRule {
    /// As log, summary and API have it.
    pub fn facts(&self) -> counts::SourceRule {
        let SourceRule { source, rule, taken: TakenByRule { dropped, cut } } = self.clone();
        counts::SourceRule { source, rule, dropped, cut }
    }

    /// For the header of a dump.
    pub fn words(&self) -> String {
        let SourceRule { source, rule, taken: TakenByRule { dropped, cut } } = self;
        let s = plural(*dropped);
        format!(
            "rule '{rule}' of source '{source}': {dropped} packet{s} dropped, {cut} truncated since the run began"
        )
    }
}
