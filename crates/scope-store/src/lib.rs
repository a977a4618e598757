//! Retention on disk: for now the store file, a head and whole segments, as a run
//! leaves its ring behind at the end.
//!
//! Absent for now: continuous retention, volumes, recovery, search.

pub mod disk;
pub mod file;
pub mod verify;

pub use file::{StoreError, write_ring};
