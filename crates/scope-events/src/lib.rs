//! The log of a run, `wirescope.jsonl`: one line for each event, written at once, and read back.
//!
//! | module | what it holds |
//! |---|---|
//! | [`event`] | every event: one variant for each, its facts |
//! | [`counts`] | facts that several events and the summary have in common |
//! | [`mod@line`] | one line: what every line has, and its event |
//! | [`fact`] | how a fact is written as JSON, and read from it |
//! | [`writer`] | lines in order, by a thread of its own |
//! | `file` | the file behind it, and a new one where it was moved or removed |
//! | `audit` | the newest hash of the audit, for status lines |
//! | `tail` | the newest lines in memory, for those who follow the log |
//! | [`page`] | docs/reference/event-log.md |
//!
//! The engine writes with it, `doctor` reads with it. Names of events and keys are a contract: users'
//! programs read them. A key may be added; none changes its meaning. What an older version didn't write reads
//! as a default, so its lines stay readable.

mod audit;
pub mod counts;
pub mod event;
pub mod fact;
mod file;
pub mod line;
pub mod page;
mod tail;
pub mod writer;

pub use audit::AuditHead;
pub use event::Event;
pub use fact::Fact;
pub use line::{Content, Line};
pub use tail::{Numbered, Tail};
pub use writer::{Events, Reopened, now_ns, seconds};

/// File name in the dump folder.
pub const EVENTS_FILE: &str = "wirescope.jsonl";
