//! How values are spelled for people and read from them: sizes, counts, durations, times, figures, foreign
//! text.
//!
//! | module | what it holds |
//! |---|---|
//! | [`values`] | values as operators write them, read |
//! | [`time`] | capture times, written in UTC |
//! | [`moment`] | times as people give them to a search: with a zone or without, of today, before now |
//! | [`figures`] | numbers, bytes, rates and spans as people read them |
//! | [`printable`] | foreign text made fit to be shown, and to be a word of a command line |
//!
//! No I/O. What is a fault of such a text is said in words; where it stands, the caller knows.

pub mod figures;
pub mod moment;
pub mod printable;
pub mod time;
pub mod values;
