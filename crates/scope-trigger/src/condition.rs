//! Conditions: when something that a trigger waits for has happened. All are of equal rank: whatever kind
//! held yields occurrences, which share verdicts, counts, holdoff, modes and places.
//!
//! | kind | who evaluates it | its occurrences |
//! |---|---|---|
//! | [`Condition::Filter`] | the workers, for a batch of packets at once | one for each packet that matches |
//! | [`Condition::Level`] | one thread, for the signals of all workers joined | one when it begins to hold |
//! | [`Condition::Pattern`] | workers find matches, the same thread puts them in order | one for each packet with which it holds |
//! | [`Condition::Script`] | threads that follow the ring, in Lua | one for each packet or tick that it says yes to |
//! | [`Condition::Hand`] | a person, or a program in a person's place | one for each order to fire |

use crate::level::LevelCondition;
use crate::occurrence::{Key, Occurrence, Own, Why};
use crate::pattern::{Pattern, Rule};
use crate::places::Requester;
use crate::script::ScriptFile;
use scope_filter::Filter;
use scope_packet::{LinkType, Moment};
use std::sync::Arc;

/// What has to hold for an occurrence.
#[derive(Clone, Debug)]
pub enum Condition {
    /// A packet matches this filter.
    Filter(Filter),
    /// Signals are at a level.
    Level(Arc<LevelCondition>),
    /// Packets match in a number, or in an order.
    Pattern(Arc<Pattern>),
    /// A script says so.
    Script(ScriptFile),
    /// Somebody orders it: no packet does.
    Hand,
}

impl Condition {
    /// The filter, where packets decide. A trigger without one costs no packet anything.
    pub fn filter(&self) -> Option<&Filter> {
        match self {
            Condition::Filter(filter) => Some(filter),
            Condition::Level(_) | Condition::Pattern(_) | Condition::Script(_) | Condition::Hand => None,
        }
    }

    /// The condition on signals, if it is one.
    pub fn level(&self) -> Option<&LevelCondition> {
        match self {
            Condition::Level(level) => Some(level),
            Condition::Filter(_) | Condition::Pattern(_) | Condition::Script(_) | Condition::Hand => None,
        }
    }

    /// The condition on several packets, if it is one.
    pub fn pattern(&self) -> Option<&Arc<Pattern>> {
        match self {
            Condition::Pattern(pattern) => Some(pattern),
            Condition::Filter(_) | Condition::Level(_) | Condition::Script(_) | Condition::Hand => None,
        }
    }

    /// The script, if it is one.
    pub fn script(&self) -> Option<&ScriptFile> {
        match self {
            Condition::Script(script) => Some(script),
            Condition::Filter(_) | Condition::Level(_) | Condition::Pattern(_) | Condition::Hand => None,
        }
    }

    /// What it says, as written, of a script its file; nothing of one by hand.
    pub fn text(&self) -> Option<&str> {
        match self {
            Condition::Filter(filter) => Some(filter.text()),
            Condition::Level(level) => Some(&level.text),
            Condition::Pattern(pattern) => Some(pattern.text()),
            Condition::Script(script) => Some(script.file()),
            Condition::Hand => None,
        }
    }

    /// Its kind, in one word.
    pub fn kind(&self) -> &'static str {
        match self {
            Condition::Filter(_) => "filter",
            Condition::Level(_) => "level",
            Condition::Pattern(pattern) if pattern.rule() == Rule::Sequence => "sequence",
            Condition::Pattern(_) => "count",
            Condition::Script(_) => "script",
            Condition::Hand => "hand",
        }
    }

    /// Whether both hold for the same.
    pub fn same_as(&self, other: &Condition) -> bool {
        match (self, other) {
            (Condition::Filter(one), Condition::Filter(other)) => one.text() == other.text(),
            (Condition::Level(one), Condition::Level(other)) => one.text == other.text,
            (Condition::Hand, Condition::Hand) => true,
            (Condition::Pattern(one), Condition::Pattern(other)) => one.text() == other.text(),
            (Condition::Script(one), Condition::Script(other)) => one == other,
            (
                Condition::Filter(_)
                | Condition::Level(_)
                | Condition::Pattern(_)
                | Condition::Script(_)
                | Condition::Hand,
                _,
            ) => false,
        }
    }

    /// The occurrence of an order at `now`, when packets of `link_types` have come. A holdoff that is set for
    /// a condition by hand is the whole trigger's; one that is set for packets holds no order off.
    pub fn ordered<'a>(&self, now: Moment, link_types: &'a [LinkType]) -> Occurrence<'a> {
        let key = match self {
            Condition::Hand => Key::Whole,
            Condition::Filter(_) | Condition::Level(_) | Condition::Pattern(_) | Condition::Script(_) => {
                Key::Exempt
            }
        };
        Occurrence {
            at: now,
            clock_ns: now.time_ns,
            key,
            why: Why::Hand,
            packet: None,
            given: None,
            own: Own::default(),
            link_types,
            requester: Requester::Person,
        }
    }
}
