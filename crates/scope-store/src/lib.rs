//! Retention on disk: the store's file, how it is written and how it is read.
//!
//! | module | what it holds |
//! |---|---|
//! | [`head`] | the file's head: interfaces, and whose file it is |
//! | [`checks`] | the checks in a segment's foot |
//! | [`index`] | the block at a closed file's end |
//! | [`segment`] | a segment out of a file, looked through |
//! | [`stored`] | a file that is read |
//! | [`file`] | the ring as files at the end of a run |
//! | [`chain`] | a line for each closed file, bound to the one before it |
//! | [`verify`] | whether captures of any kind are whole |
//! | [`disk`] | what the store asks of a file system |
//!
//! Absent for now: continuous retention, volumes, recovery, search.

pub mod chain;
pub mod checks;
pub mod disk;
pub mod file;
pub mod head;
pub mod hold;
pub mod index;
pub mod name;
pub mod retain;
pub mod segment;
pub mod stored;
pub mod verify;
pub mod volume;

pub use checks::{Damage, Hash};
pub use file::{StoreError, write_ring};
pub use segment::{SegmentFault, Statistics, StoredSegment};
pub use stored::{Facts, State, StoredError, StoredFile};
