//! Conditions: when something that a trigger waits for has happened. All are of equal rank: whatever kind
//! held yields occurrences, which share verdicts, counts, holdoff, modes and places.
//!
//! | kind | who evaluates it | its occurrences |
//! |---|---|---|
//! | [`Condition::Filter`] | the workers, for a batch of packets at once | one for each packet that matches |
//! | [`Condition::Hand`] | a person, or a program in a person's place | one for each order to fire |
//!
//! Later kinds (levels, scripts, outside events) stand here, and yield the same occurrences.

use crate::occurrence::{Key, Occurrence, Why};
use crate::places::Requester;
use scope_filter::Filter;
use scope_packet::{LinkType, Moment};

/// What has to hold for an occurrence.
#[derive(Clone, Debug)]
pub enum Condition {
    /// A packet matches this filter.
    Filter(Filter),
    /// Somebody orders it: no packet does.
    Hand,
}

impl Condition {
    /// The filter, where packets decide. A trigger without one costs no packet anything.
    pub fn filter(&self) -> Option<&Filter> {
        match self {
            Condition::Filter(filter) => Some(filter),
            Condition::Hand => None,
        }
    }

    /// Whether both hold for the same.
    pub fn same_as(&self, other: &Condition) -> bool {
        match (self, other) {
            (Condition::Filter(one), Condition::Filter(other)) => one.text() == other.text(),
            (Condition::Hand, Condition::Hand) => true,
            (Condition::Filter(_) | Condition::Hand, _) => false,
        }
    }

    /// The occurrence of an order at `now`, when packets of `link_types` have come. A holdoff that is set for
    /// a condition by hand is the whole trigger's; one that is set for packets holds no order off.
    pub fn ordered<'a>(&self, now: Moment, link_types: &'a [LinkType]) -> Occurrence<'a> {
        let key = match self {
            Condition::Hand => Key::Whole,
            Condition::Filter(_) => Key::Exempt,
        };
        Occurrence {
            at: now,
            clock_ns: now.time_ns,
            key,
            why: Why::Hand,
            packet: None,
            given: None,
            link_types,
            requester: Requester::Person,
        }
    }
}
