//! The log of a run, `wirescope.jsonl`: one line for each event, written at once.
//!
//! | module | what it holds |
//! |---|---|
//! | [`writer`] | lines in order, by a thread of its own |
//! | `file` | the file behind it, and a new one where it was moved or removed |

mod file;
pub mod writer;

pub use writer::{Events, LogNews, now_ns, seconds};

/// File name in the dump folder.
pub const EVENTS_FILE: &str = "wirescope.jsonl";
