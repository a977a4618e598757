//! A match: one packet that a filter of a count or a sequence matched; and a hit: the match with which the
//! whole condition held.

use scope_filter::Values;
use scope_packet::Moment;

/// One packet matched one filter of a pattern. A packet that several filters match is several matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Match {
    /// When the packet came.
    pub at: Moment,
    /// What it is counted by: the values of the pattern's key in the packet, [`Values::everything`] where it
    /// has none. Of a packet that lacks a name of the key there is no match.
    pub key: Values,
    /// Number of the packet in its lane.
    pub packet: u64,
    /// Where the caller has what it needs of the packet. Nothing here reads it.
    pub handle: u64,
    /// The packet's lane.
    pub lane: u32,
    /// Which filter matched: its index in the pattern.
    pub step: u8,
}

impl Match {
    /// The order in which matches are evaluated: by moment; of one moment by lane, packet and filter.
    pub fn order(&self) -> (Moment, u32, u64, u8) {
        (self.at, self.lane, self.packet, self.step)
    }
}

/// A pattern held with one of the matches that were fed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hit {
    /// Index of that match in what was fed.
    pub index: usize,
    /// When it counts as having come: its own moment, or that of the latest one before it, if it came late.
    pub at: Moment,
    /// How it held.
    pub held: Held,
}

/// How a pattern held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Held {
    /// The count was reached.
    Count {
        /// The number is exact; else it is a sketch's, which is never too small.
        exact: bool,
    },
    /// The last step came.
    Sequence {
        /// Capture time of the first step, ns: the latest from which the others followed.
        first_ns: i64,
    },
}
