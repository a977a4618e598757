//! What the crate promises, by topic.

mod captures;
mod engines;
mod refusals;
mod table;
mod tcpdump;
mod templates;
mod vlan;
