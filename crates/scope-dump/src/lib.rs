//! Windows: cut out of the ring, merged over lanes in time order, filtered, and written as pcapng files.
//!
//! ```text
//!  worker that fires ──► FirstPins: the oldest part of the window, held at once
//!                             │ order
//!  dump thread:  timeline (pin, screen, lend) ─► select (filter, merge by time) ─► write (no name yet) ─► name
//!                    ▲ rounds, until everything up to the window's end is settled
//! ```
//!
//! | module | what it holds |
//! |---|---|
//! | [`asking`] | questions to a run that goes: out of ring and stores, by time, each packet once |
//! | [`order`] | what one dump keeps, from where, and where it writes |
//! | [`cut`] | one dump from order to report, out of the ring or any other timeline |
//! | [`pins`] | the pins that the firing worker takes |
//! | [`keeper`] | holds segments for dumps that hang in a write |
//! | `edge` | the ring and the stores of its run as one timeline |
//! | [`past`], `numbers` | what these stores have of the past; packet numbers of a lane |
//! | `walk` | the ring as a timeline: its segments of a window, pinned, read, gone |
//! | [`select`] | which packets of a timeline belong, in which order, and what is missing |
//! | `sieve` | which packets belong: the key column first, the filter where that says maybe |
//! | [`keep`] | what selects beyond the filter: something outside |
//! | [`scans`] | what the dumps of a run share: one scan of what comes in, summaries, the pace |
//! | [`merge`] | the bounded reorder buffer |
//! | `writing` | what was selected, into the dump's files or the spool of all windows |
//! | `tally` | counts of packets, bytes, and their span |
//! | [`output`] | one of these files: interface numbers, header, the act of naming |
//! | [`annex`] | comments, names and secrets of capture files, for the dumps that have their packets |
//! | [`evidence`] | host, clock, counters: how things stood around a dump |
//! | [`form`] | the two forms of a file, pcapng and pcap |
//! | [`disk`] | the acts on a disk as a parameter |
//! | [`target`] | where files go: a folder, one name, a pipe |
//! | [`spool`] | where dumps gather their packets until these become one file |
//! | `together` | every window of a run in one file |
//! | [`budget`] | the space of the folder's dumps, and making room |
//! | [`buffers`] | what the files of all dumps may hold back together before it is written |
//! | [`mark`] | how Wirescope recognises its own dump files |
//! | [`progress`] | how far it is, for those who watch |
//! | [`report`] | what became of a dump |
//! | `gaps` | what its window lacks, by reason |
//! | `joint` | what all windows of a run lack together |
//! | [`late`] | late packets, merged in at the end |
//!
//! Absent on purpose: triggers' conditions, threads, and any change of a packet: its block is copied, only
//! the interface number is patched, and a comment added to the packet that fired.

pub mod annex;
pub mod asking;
pub mod budget;
pub mod buffers;
pub mod cut;
pub mod disk;
mod edge;
pub mod evidence;
pub mod form;
mod gaps;
pub mod header;
mod joint;
pub mod keep;
pub mod keeper;
pub mod late;
pub mod mark;
#[cfg(test)]
mod mark_junk;
pub mod merge;
mod numbers;
pub mod order;
pub mod output;
pub mod past;
mod patience;
pub mod pins;
pub mod progress;
pub mod report;
pub mod scans;
pub mod select;
mod sieve;
pub mod spool;
mod tally;
pub mod target;
mod together;
mod walk;
mod writing;

pub use asking::{Answerer, RunAnswer, RunQuestion};
pub use budget::{Budget, Limits};
pub use buffers::{Buffered, Buffers};
pub use cut::{cut, cut_from};
pub use disk::{Disk, SystemDisk};
pub use evidence::{Circumstances, Evidence, InterfaceSample};
pub use form::DumpFormat;
pub use gaps::{GAPS_MAX, in_words as gaps_in_words};
pub use keep::Keep;
pub use keeper::Keeper;
pub use mark::marked_stem;
pub use order::{Dump, DumpOrder, HitPacket};
pub use output::write_nothing;
pub use past::{Estimate, Past};
pub use pins::FirstPins;
pub use progress::{Progress, Waits};
pub use report::{DumpReport, Waited};
pub use scans::{Scans, Spared};
pub use select::{Consumer, Round, Selection};
pub use sieve::StoreSift;
pub use spool::Spool;
pub use target::{DumpOutput, Target};
