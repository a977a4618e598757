//! A configuration file as written, to settings that know where each value came from; all faults at once.
//!
//! | module | what it holds |
//! |---|---|
//! | [`keys`] | the table of keys, handed in: what is known, of which kind, with which default |
//! | [`written`] | the file: TOML to texts with their lines |
//! | `syntax` | what is no TOML in it, all faults |
//! | [`settings`] | default, file and flags laid over each other; arguments and TOML out of them |
//!
//! Absent on purpose: what a value means. A key's text goes where the flag of the same name goes, so that
//! there is one place that understands it.
//!
//! Faults are values ([`scope_fault::Fault`]): each knows its key and its line.

pub mod keys;
pub mod settings;
mod syntax;
pub mod written;

pub use keys::{Key, Keys, Kind, Shape};
pub use settings::{Given, Settings};
pub use written::{FileError, Origin, Own, Value, Word, Written, tables};
