//! What the crate promises, by topic.

mod interpreter;
mod refusals;
mod tcpdump;
mod templates;
mod vlan;
