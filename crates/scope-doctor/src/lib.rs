//! Where a run loses packets: found from its log, and from the system on which it runs.
//!
//! ```text
//!  wirescope.jsonl ──► facts ──► findings (pure) ──► words, by the binary
//!  /proc, the disk ──►
//! ```
//!
//! | file | what it holds |
//! |---|---|
//! | `facts` | what is known of a run, in plain values |
//! | `runs` | which line of a log belongs to which run |
//! | `log` | reading `wirescope.jsonl`, as the engine writes it |
//! | `lines` | what each line adds to the facts of its run |
//! | `system` | facts about the process and its disk, now |
//! | `finding` | one finding: place, certainty, cause, remedies |
//! | `findings` | from facts to findings: no file, no clock |
//! | `packet_findings` | those about packets that were lost, stage by stage |
//! | `dump_findings` | those about dumps |
//! | `store_findings` | those about the store |
//! | `stats_findings` | those about traffic statistics |
//! | `printed` | facts and findings for programs |
//! | `silence` | those about a run whose log just stops |
//!
//! Doctor never contacts the run: it works on one that hangs, and on one that is long dead.

mod dump_findings;
pub mod facts;
mod finding;
mod findings;
mod lines;
pub mod log;
mod packet_findings;
mod printed;
mod runs;
mod silence;
mod stats_findings;
mod store_findings;
pub mod system;

pub use facts::{Facts, State};
pub use finding::{Finding, Stage, Sureness};
pub use findings::findings;
pub use log::LogError;
pub use printed::printed;
pub use runs::Wanted;
