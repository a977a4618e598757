//! Flows and intervals of capture time: what was in the traffic, exactly and in bounded memory; no I/O.

mod community;
pub mod connection;
pub mod counting;
pub mod entry;
mod fragments;
pub mod joined;
pub mod key;
pub mod local;
pub mod reading;
pub mod remainder;
mod rounds;
pub mod rows;
pub mod table;
mod taps;
pub mod totals;
pub mod when;
