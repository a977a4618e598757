//! What became of each hit: its verdict, how verdicts are counted, and why hits made no filter.
//!
//! Each hit is counted once; the numbers of one trigger add up to its hits.

use crate::places::Place;
use crate::window::Window;
use scope_filter::Filter;
use std::sync::Arc;

/// A dump to be made.
#[derive(Debug)]
pub struct Fire {
    /// What the dump keeps packets by.
    pub filter: Filter,
    /// Its window.
    pub window: Arc<Window>,
    /// Its place among the dumps at once.
    pub place: Place,
}

/// What became of a hit.
#[derive(Debug)]
pub enum Verdict {
    /// The trigger doesn't fire any more (mode single), or the run has all the dumps that it was to make.
    Disarmed,
    /// It is in the window of an open dump of the same trigger with the same filter.
    Extended {
        /// That dump's number; `None`: it is just beginning.
        dump: Option<u64>,
    },
    /// Too soon after the last fire.
    HeldOff,
    /// The packet has no such field as the template names, or its values make no filter.
    TemplateUnfilled {
        /// The name.
        name: &'static str,
    },
    /// The template makes a filter, but the packet's link type has none such.
    FilterUncompiled {
        /// The compiler's words.
        cause: String,
    },
    /// The dumps' folder has no room for another.
    NoSpace,
    /// All places for dumps are taken.
    TooMany,
    /// A dump begins.
    Fired(Fire),
}

impl Verdict {
    /// The word under which summaries and logs count it.
    pub fn name(&self) -> &'static str {
        match self {
            Verdict::Disarmed => "disarmed",
            Verdict::Extended { .. } => "extended",
            Verdict::HeldOff => "held_off",
            Verdict::TemplateUnfilled { .. } => "template_unfilled",
            Verdict::FilterUncompiled { .. } => "filter_uncompiled",
            Verdict::NoSpace => "no_space",
            Verdict::TooMany => "too_many",
            Verdict::Fired(_) => "fired",
        }
    }

    /// What more there is to say: the name that had no field, or why there is no such filter.
    pub fn detail(&self) -> Option<&str> {
        match self {
            Verdict::TemplateUnfilled { name } => Some(name),
            Verdict::FilterUncompiled { cause } => Some(cause),
            Verdict::Disarmed
            | Verdict::Extended { .. }
            | Verdict::HeldOff
            | Verdict::NoSpace
            | Verdict::TooMany
            | Verdict::Fired(_) => None,
        }
    }
}

/// Hits by what became of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HitCounts {
    /// A dump began.
    pub fired: u64,
    /// In the window of an open dump.
    pub extended: u64,
    /// Too soon after a fire.
    pub held_off: u64,
    /// No room for the dump.
    pub no_space: u64,
    /// All places taken.
    pub too_many: u64,
    /// The template's fields weren't there.
    pub template_unfilled: u64,
    /// The link type has no such filter.
    pub filter_uncompiled: u64,
    /// The trigger was disarmed.
    pub disarmed: u64,
    /// Of `template_unfilled`: hits that were refused unexamined, see [`crate::compile_cache`].
    pub rationed: u64,
}

impl HitCounts {
    /// All hits.
    pub fn total(&self) -> u64 {
        self.each().iter().map(|(_, hits)| hits).sum()
    }

    /// Every verdict's number with its word.
    pub fn each(&self) -> [(&'static str, u64); 8] {
        let HitCounts {
            fired,
            extended,
            held_off,
            no_space,
            too_many,
            template_unfilled,
            filter_uncompiled,
            disarmed,
            rationed: _,
        } = *self;
        [
            ("fired", fired),
            ("extended", extended),
            ("held_off", held_off),
            ("no_space", no_space),
            ("too_many", too_many),
            ("template_unfilled", template_unfilled),
            ("filter_uncompiled", filter_uncompiled),
            ("disarmed", disarmed),
        ]
    }

    /// Adds the hits of another trigger.
    pub fn add(&mut self, other: &HitCounts) {
        // All fields by name: what is added later can't be forgotten here.
        let HitCounts {
            fired,
            extended,
            held_off,
            no_space,
            too_many,
            template_unfilled,
            filter_uncompiled,
            disarmed,
            rationed,
        } = *other;
        self.fired += fired;
        self.extended += extended;
        self.held_off += held_off;
        self.no_space += no_space;
        self.too_many += too_many;
        self.template_unfilled += template_unfilled;
        self.filter_uncompiled += filter_uncompiled;
        self.disarmed += disarmed;
        self.rationed += rationed;
    }

    pub(crate) fn count(&mut self, verdict: &Verdict) {
        *match verdict {
            Verdict::Disarmed => &mut self.disarmed,
            Verdict::Extended { .. } => &mut self.extended,
            Verdict::HeldOff => &mut self.held_off,
            Verdict::TemplateUnfilled { .. } => &mut self.template_unfilled,
            Verdict::FilterUncompiled { .. } => &mut self.filter_uncompiled,
            Verdict::NoSpace => &mut self.no_space,
            Verdict::TooMany => &mut self.too_many,
            Verdict::Fired(_) => &mut self.fired,
        } += 1;
    }
}

/// Why hits made no filter, to find a remedy: the first of each kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Misses {
    /// The name that a packet lacked.
    pub unfilled: Option<&'static str>,
    /// The compiler's words on a link type.
    pub uncompiled: Option<String>,
}

impl Misses {
    pub(crate) fn note(&mut self, verdict: &Verdict) {
        match verdict {
            Verdict::TemplateUnfilled { name } => drop(self.unfilled.get_or_insert(name)),
            Verdict::FilterUncompiled { cause } => drop(self.uncompiled.get_or_insert_with(|| cause.clone())),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_two_triggers_add_up_number_by_number() {
        let of = |n| HitCounts {
            fired: n,
            extended: 2 * n,
            held_off: 3 * n,
            no_space: 4 * n,
            too_many: 5 * n,
            template_unfilled: 6 * n,
            filter_uncompiled: 7 * n,
            disarmed: 8 * n,
            rationed: 9 * n,
        };
        let mut sum = of(1);
        sum.add(&of(10));
        assert_eq!((sum, sum.total()), (of(11), 36 * 11));
    }
}
