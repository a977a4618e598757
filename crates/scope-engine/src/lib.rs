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
//! | [`rights`] | giving up root, capabilities, system calls and files |
//! | `outputs` | the folders that a run writes to |
//! | `nic_watch` | the network cards under live sources |
//! | `thread_times` | how busy the workers are |
//! | `health` | what the log says of a run's health |
//! | `memory_watch` | whether the system takes memory back |
//! | [`triggers`] | the triggers in force: replaced as a set between two batches |
//! | [`reload`] | a change of triggers and limits while a run goes |
//! | [`dumps`] | from a fire to the finished file |
//! | [`exec`] | commands after dumps |
//! | [`space`] | whether there is room for dumps |
//! | [`doctor`] | where a run loses packets, found from its log |
//! | [`events`] | `wirescope.jsonl`, one line per event |
//! | [`mod@printable`] | foreign text made fit to be shown |
//! | [`service`] | words to the service manager |
//! | [`status`] | what a run says of itself while it goes |
//! | [`summary`] | what a run says at its end |
//!
//! Absent on purpose: command lines, terminals, exit codes.

pub mod cpus;
pub mod doctor;
pub mod dumps;
pub mod events;
pub mod exec;
mod health;
mod live;
pub mod lockstep;
mod lost;
mod memory_watch;
mod nic_watch;
mod outputs;
pub mod plan;
pub mod printable;
pub mod reload;
pub mod rights;
pub mod run;
pub mod service;
pub mod short_snap;
pub mod space;
pub mod status;
pub mod summary;
mod thread_times;
pub mod triggers;
pub mod worker;

pub use exec::{ExecCounts, ExecPlan};
pub use live::settings as live_settings;
pub use nic_watch::NicStatus;
pub use plan::{DumpPlan, RunPlan, SingleDump, SourceEntry};
pub use printable::printable;
pub use reload::{Change, Reload};
pub use run::{Control, EngineError, Watch, ring_config, run};
pub use space::SpaceSummary;
pub use status::{DumpStatus, InterfaceStatus, Status, WorkerStatus};
pub use summary::{DumpSummary, Summary};
pub use thread_times::WorkerTime;
