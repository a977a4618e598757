//! What the crate promises, by topic.

mod engines;
mod refusals;
mod table;
mod tcpdump;
mod templates;
mod vlan;
