//! The targets, by name: each takes any bytes and panics where something is wrong.

use crate::{capture, packet, stored, system, text, volume};

/// What is done with an input.
pub type Target = fn(&[u8]);

/// All targets; the names are those of the folders of the corpus.
pub const ALL: [(&str, Target); 31] = [
    ("pcap", capture::check),
    ("pcapng", capture::check),
    ("compressed", capture::compressed),
    ("hpcap", capture::hpcap),
    ("headers", packet::headers),
    ("evaluate", packet::evaluate),
    ("fill", packet::fill),
    ("segment", packet::segment),
    ("stored", stored::check),
    ("verify", volume::verify),
    ("verify_stored", volume::verify_stored),
    ("chain", volume::chain),
    ("holds", volume::holds),
    ("imports", volume::imports),
    ("store_mark", volume::store_mark),
    ("store_name", volume::store_name),
    ("filter", text::filter),
    ("template", text::template),
    ("condition", text::condition),
    ("toml", text::toml),
    ("doctor_log", text::doctor_log),
    ("dump_mark", text::dump_mark),
    ("source_spec", text::source_spec),
    ("printable", text::printable),
    ("ethtool", system::ethtool),
    ("route", scope_source::fuzzing::route_messages),
    ("block", scope_source::fuzzing::block),
    ("request", scope_door::fuzzing::request),
    ("orders", scope_engine::fuzzing::orders),
    ("attach", system::attach),
    ("system", system::texts),
];

/// The target of a name.
pub fn of(name: &str) -> Option<Target> {
    ALL.iter().find(|(other, _)| *other == name).map(|(_, target)| *target)
}
