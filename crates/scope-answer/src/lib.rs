//! What an answer to a question says, whoever was asked and whoever asks: packets as lines or objects, what all of them
//! come to, the hosts or ports with the most of them, steps of time; in words and as JSON.
//!
//! ```text
//! stores, captures, or a run that goes ─► selection ─► [near to others?] ─► lines, sum, top, steps ─► words, JSON
//! ```
//!
//! | module | what it holds |
//! |---|---|
//! | [`line`] | one packet in words |
//! | [`lines`] | packets as they come: a line each, an object each, or only counted |
//! | [`sum`] | what all packets of an answer come to |
//! | [`top`] | the keys with the most packets |
//! | [`steps`] | packets by steps of time |
//! | [`around`] | packets near to those of another filter |
//! | [`words`] | what of a question is typed |
//! | [`spans`] | spans of time, united |
//!
//! It reads nothing and asks nobody.

pub mod around;
pub mod line;
pub mod lines;
pub mod spans;
pub mod steps;
pub mod sum;
pub mod top;
pub mod words;

pub use around::{Around, Hits, Within};
pub use lines::{Each, Lines};
pub use spans::Spans;
pub use steps::Steps;
pub use sum::Sum;
pub use top::{By, Top};
pub use words::{Form, FormWords, SpanWords};

/// Lines of a table of packets, and of a top list, unless another number is given.
pub const LIMIT: u64 = 50;
/// As above.
pub const LIMIT_OF_TOP: u64 = 20;
