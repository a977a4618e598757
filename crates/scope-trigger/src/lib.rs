//! Conditions with a name and their responses: what is a hit, what becomes of it, and the windows that it
//! opens or extends.
//!
//! | module | what it holds |
//! |---|---|
//! | [`condition`] | what has to hold: a filter, a level, a number or order of packets, a script, an order by hand |
//! | [`occurrence`] | that it held once: time, clock, key, why, perhaps a packet |
//! | [`response`] | what is dumped: the window, and which packets of it |
//! | [`script`] | a script's file, read |
//! | [`trigger`] | one trigger: condition, response, holdoff, mode; what becomes of an occurrence |
//! | [`verdict`] | what became of each hit, counted |
//! | [`window`] | the span of capture time that a dump covers, and how it grows and closes |
//! | [`windows`] | those of one trigger, by the values of their hits |
//! | [`places`] | the cap on dumps at once |
//! | [`compile_cache`] | which hits make a dump filter, as far as it is known |
//! | [`measure`] | what a signal measures, and exact amounts of it |
//! | [`signal`] | named series that are measured from the traffic |
//! | [`level`], [`level_state`] | conditions on signals: as written, and bin by bin |
//! | [`bins`], [`sketch`] | what one worker adds up for the signals |
//! | [`meter`] | that of all workers joined, in order of time |
//! | [`series`] | what is remembered of a signal |
//! | [`pattern`] | counts and sequences, read from text |
//! | [`matches`] | a packet that matched a filter of these, and the hit that it made |
//! | [`merger`] | the matches of several workers, put in one order |
//! | [`pattern_state`] | what a pattern remembers of its matches, and with which it holds |
//! | [`count`] | counts by key in a sliding window |
//! | [`sequence`] | sequences by key |
//! | `key_table` | keys with a small state each, in bounded memory |
//! | [`holdoff`] | the time after a fire in which nothing fires, by the values of the hits |
//!
//! Everything here runs in capture time: a file gives the same verdicts at any speed. Absent on purpose:
//! rings, threads, files.

pub mod bins;
pub mod compile_cache;
pub mod condition;
pub mod count;
pub mod holdoff;
mod key_table;
pub mod level;
pub mod level_state;
pub mod matches;
pub mod measure;
pub mod merger;
pub mod meter;
pub mod occurrence;
pub mod pattern;
pub mod pattern_state;
pub mod places;
pub mod response;
pub mod script;
pub mod sequence;
pub mod series;
pub mod signal;
pub mod sketch;
pub mod trigger;
pub mod verdict;
pub mod window;
pub mod windows;

pub use condition::Condition;
pub use matches::{Held, Hit, Match};
pub use merger::Merger;
pub use occurrence::{Key, Matched, Occurrence, Own, Why};
pub use pattern::{Pattern, PatternError, Rule, is_pattern};
pub use pattern_state::{COUNT_BYTES_DEFAULT, PatternReport, PatternState};
pub use places::{DUMPS_MAX, Place, Places, Requester};
pub use response::{DURATION_NS_MAX, Response};
pub use script::ScriptFile;
pub use trigger::{Trigger, TriggerConfig};
pub use verdict::{Fire, HitCounts, Misses, Verdict};
pub use window::Window;
