//! Search inside the ring: by time and by key, without touching packets that don't matter.
//!
//! ```text
//! by time   table of all segments' times ─► segments that touch the span ─► binary search through the column's offsets
//! by key    summary says no? skip the segment ─► scan the key column, 16 bytes a packet ─► offsets of the matching blocks
//! ```
//! Nothing here decides about a packet: a key test is a screen, it may say yes wrongly and never says no
//! wrongly.

mod column;
mod prefetch;
mod queue;
mod scan;
mod test;
mod time;

pub use column::{Column, Matches};
pub use prefetch::Picked;
pub use queue::{SearchCounts, SegmentQueue};
pub use test::{KeyTest, PATTERNS_MAX};
pub use time::{Found, SegmentSpan, Within};

pub(crate) use test::{Pattern, whole_fields};
