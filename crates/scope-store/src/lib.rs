//! Retention on disk: the store's file, how it is written and how it is read.
//!
//! | module | what it holds |
//! |---|---|
//! | [`head`] | the file's head: interfaces, and whose file it is |
//! | [`checks`] | the checks in a segment's foot |
//! | [`index`] | the block at a closed file's end |
//! | [`segment`] | a segment out of a file, looked through |
//! | [`stored`] | a file that is read |
//! | [`record`], [`slot`] | flush records; what a flush and a closing write of a segment |
//! | [`file_writer`], [`closing`] | a growing file, and how it ends |
//! | [`files`] | the files of one link type, one behind the other |
//! | [`salvage`], [`recover`] | what a slot proves after a crash; files of dead runs closed |
//! | [`volume_writer`], [`dealer`], [`volumes`] | one volume; who writes which segment; what volumes share |
//! | [`compose`], [`outgoing`] | segments of what a volume keeps; a segment on its way to a file |
//! | `hands`, `account`, `maker`, `mending` | a volume's segments, figures, files, and those of dead runs |
//! | [`file`] | the ring as files at the end of a run |
//! | [`listing`], `neighbours` | what a store has, looked at cheaply; which files outside of a span it needs all the same |
//! | [`lanes`] | what lanes lack |
//! | [`timeline`] | the packets of a span out of stores |
//! | `interfaces` | the interfaces of an answer's packets |
//! | [`sift`], [`fetch`] | what is asked of packets; reads that are under way |
//! | `loaders`, `load`, `sparse` | threads that read ahead; one segment on its way; one read in part |
//! | `merge`, [`spill`] | packets of many segments in one order; those that have no room in memory |
//! | [`sorter`] | packets of other sources in that order |
//! | [`unread`] | what a reader is told that isn't let in |
//! | [`export`], [`hpcap`] | packets of a timeline as files of other programs |
//! | [`chain`], `unchained` | a line for each closed file, bound to the one before it; files of dead runs without one |
//! | [`imports`] | which capture files were imported, so that one is recognised |
//! | [`verify`] | whether captures of any kind are whole |
//! | [`stall`] | whether a disk still answers |
//! | [`disk`] | what the store asks of a file system |

mod account;
pub mod chain;
pub mod chaining;
pub mod checks;
pub mod closing;
pub mod compose;
pub mod dealer;
pub mod disk;
pub mod export;
pub mod fetch;
pub mod file;
mod file_losses;
pub mod file_writer;
pub mod files;
mod hands;
pub mod head;
pub mod hold;
pub mod hpcap;
pub mod imports;
pub mod index;
mod interfaces;
pub mod inventory;
pub mod io;
pub mod lanes;
pub mod listing;
mod load;
mod loaders;
mod maker;
mod mending;
mod merge;
pub mod name;
mod neighbours;
mod ordered;
pub mod outgoing;
pub mod record;
pub mod recover;
pub mod report;
pub mod retain;
pub mod salvage;
pub mod segment;
pub mod sift;
pub mod slot;
pub mod sorter;
mod sparse;
pub mod spill;
pub mod stall;
pub mod stored;
pub mod timeline;
mod unchained;
pub mod unread;
pub mod verify;
pub mod volume;
pub mod volume_writer;
pub mod volumes;

pub use checks::{Damage, Hash};
pub use dealer::Dealer;
pub use file::{StoreError, write_ring};
pub use listing::Listing;
pub use report::{Amount, VolumeReport, VolumeState};
pub use segment::{SegmentFault, Statistics, StoredSegment};
pub use sift::Sift;
pub use stored::{Facts, State, StoredError, StoredFile};
pub use timeline::StoreTimeline;
