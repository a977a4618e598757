//! An occurrence: one packet or moment for which a condition held. Whatever the condition, a trigger decides
//! on this alone.
//!
//! It is lent, and making one allocates nothing: what it says becomes text only where somebody reads it.

use crate::places::Requester;
use scope_packet::{Headers, LinkType, Moment};
use std::fmt;

/// That a condition held once.
#[derive(Clone, Copy, Debug)]
pub struct Occurrence<'a> {
    /// When it counts as having come: at its packet's capture time or, where that isn't believed, at that of
    /// the clock.
    pub at: Moment,
    /// What its window's end counts from, ns: its time, or the clock's where that is far ahead of it. Up to
    /// there everything may be settled already.
    pub clock_ns: i64,
    /// What identifies it for the trigger's holdoff.
    pub key: Key,
    /// What happened.
    pub why: Why<'a>,
    /// The packet for which the condition held, if one did.
    pub packet: Option<Matched<'a>>,
    /// Without a packet: the dump's filter, of values that were given; `None`: the response's own.
    pub given: Option<&'a str>,
    /// What whoever found it wants otherwise than the response has it.
    pub own: Own<'a>,
    /// Without a packet: link types that have come so far, which a dump filter must suit.
    pub link_types: &'a [LinkType],
    /// Who requests a place.
    pub requester: Requester,
}

impl Occurrence<'_> {
    /// When it was certain, ns. A packet is it when it comes; a level of 10 seconds is it behind these. What had
    /// ended by then it extends no more, however fast anybody was.
    pub(crate) fn certain_ns(&self) -> i64 {
        if self.packet.is_some() { self.at.time_ns } else { self.at.time_ns.max(self.clock_ns) }
    }
}

/// What one occurrence wants otherwise than its trigger's response has it. Only scripts do.
#[derive(Clone, Copy, Debug, Default)]
pub struct Own<'a> {
    /// Window in front of it, ns.
    pub before_ns: Option<i64>,
    /// Window behind it, ns.
    pub after_ns: Option<i64>,
    /// The dump's filter.
    pub filter: Option<&'a str>,
}

/// What identifies occurrences for a holdoff.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    /// The values of the trigger's holdoff key, else of its template, in the packet. Without a packet: the filter that was
    /// given, else [`Key::Whole`].
    OfPacket,
    /// Nothing: the trigger has one holdoff.
    Whole,
    /// No holdoff holds it off, and it begins none.
    Exempt,
}

/// The packet for which a condition held, lent.
#[derive(Clone, Copy, Debug)]
pub struct Matched<'a> {
    /// Link type.
    pub link_type: LinkType,
    /// Its headers.
    pub headers: &'a Headers,
    /// Its bytes.
    pub data: &'a [u8],
}

/// What happened, in words that follow "fired".
#[derive(Clone, Copy, Debug)]
pub enum Why<'a> {
    /// A packet came.
    Packet {
        /// Its length on the wire.
        bytes: u32,
        /// Where it came.
        interface: &'a str,
    },
    /// Signals came to a level, or packets to a number or an order: the condition, and what it came to.
    Condition(&'a str),
    /// A script said yes: its words, or its file.
    Script(&'a str),
    /// Nothing has fired it for so long, in words.
    Auto(&'a str),
    /// Somebody ordered it.
    Hand,
    /// Somebody ordered it, and said why.
    Noted(&'a str),
    /// Another program told of something.
    Told(&'a str),
}

impl fmt::Display for Why<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Why::Packet { bytes, interface } => write!(f, "by a packet of {bytes} bytes on {interface}"),
            Why::Condition(what) => write!(f, "by {what}"),
            Why::Script(what) => write!(f, "by a script: {what}"),
            Why::Auto(long) => write!(f, "by itself: nothing had fired it for {long}"),
            Why::Hand => f.write_str("by hand"),
            Why::Noted(note) => write!(f, "by hand: {note}"),
            Why::Told(what) => write!(f, "by a hook: {what}"),
        }
    }
}
