//! The part `truth`: what a hostile hit costs.

mod hostile_rows;
