//! What the crate promises, by topic.

mod engines;
mod refusals;
mod tcpdump;
mod templates;
mod vlan;
