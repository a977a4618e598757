//! The opened folder that a run writes into; retention on disk: for now the store file, a head and whole segments, as a run
//! leaves its ring behind at the end.
//!
//! Absent for now: continuous retention, volumes, recovery, search.

pub mod file;
pub mod folder;
pub mod locks;
mod plain;

pub use file::{StoreError, write_ring};
pub use folder::Folder;
pub use plain::NotPlain;
