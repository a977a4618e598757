//! Threads, wiring, commands, counters: one run from plan to summary.
//!
//! | module | what it holds |
//! |---|---|
//! | [`plan`] | what a run is told to do, as meant |
//! | [`run`] | a run from start to end: who starts when, what ends it |
//! | [`worker`] | the packet path: one thread per source queue |
//! | [`lockstep`] | workers that can wait run side by side in capture time |
//! | `nic_watch` | the network cards under live sources |
//! | `thread_times` | how busy the workers are |
//! | `health` | what the log says of a run's health |
//! | `memory_watch` | whether the system takes memory back |
//! | [`dumps`] | from a fire to the finished file |
//! | [`doctor`] | where a run loses packets, found from its log |
//! | [`events`] | `wirescope.jsonl`, one line per event |
//! | [`status`] | what a run says of itself while it goes |
//! | [`summary`] | what a run says at its end |
//!
//! Absent on purpose: command lines, terminals, exit codes.

pub mod doctor;
pub mod dumps;
pub mod events;
mod health;
pub mod lockstep;
mod memory_watch;
mod nic_watch;
pub mod plan;
pub mod run;
pub mod status;
pub mod summary;
mod thread_times;
pub mod worker;

pub use nic_watch::NicStatus;
pub use plan::{RunPlan, SourceEntry};
pub use run::{Control, EngineError, Watch, ring_config, run};
pub use status::{DumpStatus, Status, WorkerStatus};
pub use summary::{DumpSummary, Summary};
pub use thread_times::WorkerTime;
