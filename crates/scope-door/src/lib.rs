//! The door of a run: what it is, and what it is ordered, as HTTP on its control socket.
//!
//! ```text
//! main thread ─► once a second: State ◄─ answers ◄─ connection, at most 64 ◄─ socket ◄─ clients
//!             ◄─ Control: orders, a bounded queue ◄┘        who: by the peer's credentials
//! ```
//! Answers are made of what the run's main thread has published. So nothing that a client does or leaves undone reaches
//! a worker: not by a lock, a message or an allocation. Everything here runs in one thread and a few beside it for what
//! waits (files, orders).
//!
//! | module | what it holds |
//! |---|---|
//! | `door` | the thread, from open to close |
//! | `settings` | how it is to be |
//! | `serving` | connections: bounds, and what becomes of slow ones |
//! | `peer` | who is on the other side |
//! | `state` | what the run has published |
//! | `answers` | each route's answer |
//! | `dumps`, `file`, `deleting` | the dumps of the run; their files, whole or in part; their end |
//! | `firing`, `changing` | orders to fire; orders that change triggers |
//! | `hooks` | other programs that tell of something |
//! | `inventory` | the host's interfaces, and what the doctor says of the run |
//! | `follow` | lines of the log as server-sent events |
//! | `groups` | which programs read the ring |
//! | `holds` | spans that the store keeps |
//! | `signals` | what the signals are, in steps of time or live |
//! | `losses` | what was lost, in steps of time |
//! | `metrics`, `process` | metrics for Prometheus; of the process itself |
//! | `exposition`, `histogram` | their text in both forms; how long things took |
//! | `rates` | how fast an identity may ask |
//! | `document`, `schemas` | the API as an OpenAPI document; what its answers look like |
//! | `audit`, `proof` | who ordered what, chained line by line; whether such lines follow each other |
//! | `question`, `packets` | a question for packets, and its answer |
//! | `statistics`, `flow_list`, `copies` | questions for statistics: what they did and have; flows; a copy of a file |
//! | `questions` | how many questions there are at once, and who may have how many |
//! | `stream`, `given` | packets on their way to a client; what came of it |

mod answers;
mod audit;
mod changing;
mod copies;
mod deleting;
mod document;
mod door;
mod dumps;
mod exposition;
mod file;
mod firing;
mod flow_list;
mod follow;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod given;
mod groups;
mod histogram;
mod holds;
mod hooks;
mod inventory;
mod losses;
mod metrics;
mod packets;
mod peer;
mod process;
pub mod proof;
mod question;
mod questions;
mod rates;
mod schemas;
mod serving;
mod settings;
mod signals;
mod state;
mod statistics;
mod stream;

pub(crate) use scope_http::body;

pub use document::openapi;
pub use door::Door;
pub use settings::{Gathered, Hooks, ReadTrigger, Settings};
