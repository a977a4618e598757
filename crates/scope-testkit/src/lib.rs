//! Traffic, oracles, questions to stores, runnable documents and the network-namespace lab that the tests of all crates
//! share (dev only, never shipped).

pub mod dice;
pub mod guides;
pub mod lab;
pub mod oracle;
pub mod questions;
pub mod traffic;
