//! Flows and intervals of capture time: what was in the traffic, exactly and in bounded memory; no I/O.

pub mod rows;
