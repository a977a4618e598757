//! Screening: from a filter's programs a condition on key entries that every packet which the filter matches
//! fulfils.
//!
//! It is derived from the compiled programs, not from the text: what libpcap makes of `host a or b`,
//! `tcp port 80`, `gateway`, fragments or `vlan` shifting everything behind it then needs no second grammar
//! that could be wrong. The proof has two parts, each in a file of its own:
//!
//! | module | what it holds |
//! |---|---|
//! | `case` | what the bytes of a packet have to do with its entry, for each number of tags and kind of packet |
//! | `explore` | runs a program over all packets of a case at once |
//! | `value` | what is known of a register meanwhile |
//! | `clause` | fields of the entry and the values that they may have; the screen is an `or` of such |
//! | `numbers` | sets of numbers |
//! | `words` | the condition in words |
//!
//! An entry that is `partial` always passes. So does everything where the programs jump back (`protochain`)
//! or where the exploration takes too long.

mod case;
mod clause;
mod explore;
mod numbers;
#[cfg(test)]
mod tests;
mod value;
mod words;

use std::sync::Arc;
use std::time::{Duration, Instant};

use scope_packet::{KeyEntry, LinkType};

use crate::bpf::Program;
use case::Case;
use clause::{Clause, Clauses, Field};

/// How long a screen is derived; beyond, everything passes. A dump waits meanwhile, and the ring doesn't:
/// lists of many hundred ports took seconds, in which the window was lost. Only speed depends on it, never
/// what a filter matches.
const DERIVING_TIME_MAX: Duration = Duration::from_secs(2);
/// Clauses of one screen; beyond, clauses become one that matches more.
const CLAUSES_MAX: usize = 64;

/// A necessary condition on the key entries of one link type: where it says no, the filter matches no such
/// packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Screen {
    /// An entry passes where one of them matches it, or where it is partial.
    clauses: Vec<Clause>,
}

/// Entries of which the bits under `mask` are those of `value`: what a scan can compare many of at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyPattern {
    /// The bits that count. Never those of the block's offset, and never the partial bit.
    pub mask: KeyEntry,
    /// Their values; 0 where the mask is 0.
    pub value: KeyEntry,
}

impl KeyPattern {
    /// Whether the pattern matches `entry`; the partial bit is the caller's to look at.
    pub fn matches(&self, entry: &KeyEntry) -> bool {
        entry.to_number() & self.mask.to_number() == self.value.to_number()
    }
}

impl Screen {
    /// Everything passes.
    pub fn everything() -> Screen {
        Screen { clauses: vec![Clause::all()] }
    }

    /// Only partial entries pass.
    pub fn nothing() -> Screen {
        Screen { clauses: Vec::new() }
    }

    /// The screen of a filter's programs for `link`; `programs` says which ones a packet with so many VLAN
    /// tags may meet, `None` where it matches without one.
    pub(crate) fn of<'a>(programs: impl Fn(usize) -> Option<&'a [Arc<Program>]>, link: LinkType) -> Screen {
        Screen::derived(programs, link).unwrap_or_else(Screen::everything)
    }

    fn derived<'a>(programs: impl Fn(usize) -> Option<&'a [Arc<Program>]>, link: LinkType) -> Option<Screen> {
        let until = Instant::now() + DERIVING_TIME_MAX;
        let mut clauses = Clauses::default();
        for case in Case::all(link)? {
            for program in programs(case.tags)? {
                let accepted = explore::accepted(program.plain(), &case, until)?;
                let possible = accepted.0.into_iter().filter(|clause| case.may_have(clause));
                for clause in possible {
                    clauses.add(clause, CLAUSES_MAX);
                }
            }
        }
        clauses.settle(CLAUSES_MAX);
        Some(Screen { clauses: clauses.0 })
    }

    /// Whether the filter may match a packet with this entry.
    #[inline]
    pub fn may_match(&self, entry: &KeyEntry) -> bool {
        entry.partial() || self.clauses.iter().any(|clause| clause.matches(entry))
    }

    /// Whether nothing at all is screened out.
    pub fn is_everything(&self) -> bool {
        self.clauses.iter().any(|clause| Field::ALL.iter().all(|&field| clause.matches_all(field)))
    }

    /// The screen as at most `most` patterns, of which an entry must have one, or be partial. They match all
    /// that the screen matches; what needs more patterns is omitted from the demand, so they may match more.
    /// One empty pattern matches all.
    pub fn patterns(&self, most: usize) -> Vec<KeyPattern> {
        let mut patterns = Vec::new();
        for (index, clause) in self.clauses.iter().enumerate() {
            let still_to_come = self.clauses.len() - index - 1;
            let Some(room) = most.checked_sub(patterns.len() + still_to_come).filter(|&room| room > 0) else {
                return vec![KeyPattern::default()];
            };
            patterns.extend(clause.patterns(room));
        }
        patterns
    }
}

impl Clause {
    /// At most `most` patterns, at least one, that match what the clause matches.
    fn patterns(&self, most: usize) -> Vec<KeyPattern> {
        let mut patterns = vec![KeyPattern::default()];
        for field in Field::ALL.into_iter().filter(|&field| !self.matches_all(field)) {
            let Some(prefixes) = self.get(field).prefixes(field.bits(), most / patterns.len()) else {
                continue;
            };
            let with = |pattern: &KeyPattern, (mask, value): (u32, u32)| {
                let mut both = *pattern;
                field.put(&mut both.mask, mask);
                field.put(&mut both.value, value);
                both
            };
            patterns = patterns
                .iter()
                .flat_map(|pattern| prefixes.iter().map(|&prefix| with(pattern, prefix)))
                .collect();
        }
        patterns
    }
}
