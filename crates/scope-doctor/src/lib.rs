//! Where a run loses packets, found from what it wrote down of itself and from the system it runs on.
//!
//! ```text
//!  wirescope.jsonl ──► facts ──► findings (pure) ──► words, by the binary
//!  /proc, the disk ──►
//! ```
//!
//! | file | what it holds |
//! |---|---|
//! | `facts` | what is known of a run, in plain values |
//! | `runs` | which line of a log is whose |
//! | `log` | facts out of `wirescope.jsonl`, as [`crate::health`] and [`crate::run`] write it |
//! | `system` | facts about the process and its disk, now |
//! | `findings` | from facts to findings: no file, no clock |
//! | `packet_findings` | those about packets that were lost, stage by stage |
//! | `dump_findings` | those about dumps |
//! | `silence` | those about a run whose log just stops |
//!
//! A run is never asked anything: doctor works on one that hangs, and on one that is long dead.

mod dump_findings;
pub mod facts;
pub mod findings;
pub mod log;
mod packet_findings;
mod runs;
mod silence;
pub mod system;

pub use facts::{Facts, State};
pub use findings::{Finding, Stage, Sureness, findings};
pub use log::LogError;
pub use runs::Wanted;
