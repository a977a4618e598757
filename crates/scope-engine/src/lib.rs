//! Threads, wiring, commands, counters: one run from plan to summary.
//!
//! | module | what it holds |
//! |---|---|
//! | [`plan`] | what a run is to do, as meant |
//! | [`run`] | a run from start to end: who starts when, what ends it |
//! | [`worker`], [`wiring`] | one thread per source queue; what all of them share |
//! | `path` | the packet path: each batch through its stages |
//! | [`control`], `obeying` | orders from outside to a run that goes: sent, and obeyed |
//! | `sources` | every source is opened: one feed per worker |
//! | `live` | how an interface is opened, and what is said of that |
//! | [`lockstep`] | workers that can wait run side by side in capture time |
//! | `at_once` | the last line of a run that is ended at once |
//! | `outputs` | the folders that a run writes to |
//! | `own_process`, `roles` | this program as a process beside a run; what it serves as |
//! | [`reread`] | the process that opens the configuration file again |
//! | `nic_watch` | the network cards under live sources |
//! | `thread_times` | how busy the workers are |
//! | `health` | what the log says of a run's health |
//! | `memory_watch` | whether the system takes memory back |
//! | [`short_snap`] | filters that need more bytes than are kept |
//! | [`recording`] | the thread that joins, writes and sends what workers have counted |
//! | [`few_pins`] | more dumps at once than the ring has segments to hold for |
//! | `lost` | interfaces that are lost for good |
//! | [`report`] | what a worker says of itself, published without waiting |
//! | [`unread`] | what waits to be reported, bounded |
//! | `filters` | filters made ready by the main thread |
//! | [`triggers`] | the triggers in force: replaced as a set between two batches |
//! | [`reload`] | a change of triggers and limits during a run |
//! | [`threads`] | how a dump gets its thread |
//! | [`dumps`] | from a fire to the finished file |
//! | [`dump_reports`] | what became of dumps: the newest, and sums of all |
//! | [`exec`] | commands after dumps, and the process that runs them |
//! | `failure`, `error` | what was promised and not done; why a run could not begin |
//! | `folder_watch` | whether the folder for dumps is still there |
//! | [`space`] | whether there is room for dumps |
//! | [`mod@socket`] | the run's sockets, bound before rights are given up |
//! | [`attach`] | the door for other programs, which read the ring |
//! | [`service`] | words to the service manager |
//! | `watch` | how a run reports while it goes: the calls that the binary answers |
//! | [`status`], `interfaces` | the figures of a run while it goes |
//! | [`summary`] | the figures of a run at its end |
//!
//! Absent on purpose: command lines, terminals, exit codes.

mod at_once;
pub mod attach;
mod autos;
pub mod control;
pub mod dump_reports;
pub mod dumps;
mod error;
pub mod exec;
mod failure;
pub mod few_pins;
mod filters;
mod folder_watch;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod health;
mod interfaces;
mod joining;
mod live;
mod live_times;
pub mod lockstep;
mod loss_told;
mod lost;
mod measuring;
mod memory_watch;
mod nic_watch;
mod obeying;
mod outputs;
mod own_process;
mod path;
mod patterns;
pub mod plan;
pub mod recording;
mod recovery_told;
mod refused;
mod reload;
pub mod report;
pub mod reread;
mod roles;
pub mod run;
mod script_status;
pub mod scripts;
pub mod service;
pub mod short_snap;
pub mod socket;
pub mod source_rules;
mod sources;
pub mod space;
pub mod statistics;
pub mod status;
pub mod steps;
mod store_sieve;
pub mod stores;
pub mod summary;
mod thread_times;
pub mod threads;
pub mod triggers;
pub mod unread;
mod watch;
pub mod wiring;
pub mod worker;

pub use attach::{Attach, AttachStatus, ForwardStatus, GroupStatus, MemberStatus};
pub use control::{Change, Control, Order, OwnFire, Refusal, Reload, Reply, TriggerChange, Which};
pub use dump_reports::DumpTotals;
pub use error::EngineError;
pub use exec::{ExecCounts, ExecPlan};
pub use failure::Failure;
pub use interfaces::InterfaceStatus;
pub use live::settings as live_settings;
pub use measuring::{Measuring, SignalNow};
pub use nic_watch::NicStatus;
pub use plan::{
    Allowed, AttachPlan, ControlPlan, DumpPlan, Fixed, ForwardPlan, GroupEntry, Live, RunPlan, ScriptPlan,
    SingleDump, SourceEntry, StatsPlan, StorePlan, VolumePlan,
};
pub use recording::Asked;
pub use roles::serve_if_asked;
pub use run::{QUESTIONS_MAX, ring_config, run};
pub use script_status::ScriptStatus;
pub use socket::Socket;
pub use source_rules::{SourceRule, TakenByRule};
pub use space::SpaceSummary;
pub use statistics::{Statistics, StatsStatus, Tables, no_flows};
pub use status::{DumpStatus, LaneStatus, SourceStatus, Status, TriggerStatus, WorkerStatus};
pub use summary::{DumpSummary, Summary};
pub use thread_times::WorkerTime;
pub use watch::{Opening, Watch};
