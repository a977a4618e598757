//! Threads, wiring, commands, counters: one run from plan to summary.
//!
//! | module | what it holds |
//! |---|---|
//! | [`plan`] | what a run is told to do, as meant |
//! | [`run`] | a run from start to end: who starts when, what ends it |
//! | [`worker`] | the packet path: one thread per source queue |
//! | [`cpus`] | which CPUs workers run on |
//! | `live` | how an interface is opened, and what is said of that |
//! | [`lockstep`] | workers that can wait run side by side in capture time |
//! | `memory_watch` | whether the system takes memory back |
//! | [`dumps`] | from a fire to the finished file |
//! | [`events`] | `wirescope.jsonl`, one line per event |
//! | [`status`] | what a run says of itself while it goes |
//! | [`summary`] | what a run says at its end |
//!
//! Absent on purpose: command lines, terminals, exit codes.

pub mod cpus;
pub mod dumps;
pub mod events;
mod live;
pub mod lockstep;
mod memory_watch;
pub mod plan;
pub mod run;
pub mod status;
pub mod summary;
pub mod worker;

pub use live::settings as live_settings;
pub use plan::{RunPlan, SourceEntry};
pub use run::{Control, EngineError, Watch, ring_config, run};
pub use status::{DumpStatus, Status, WorkerStatus};
pub use summary::{DumpSummary, Summary};
