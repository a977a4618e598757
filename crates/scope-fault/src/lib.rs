//! What is wrong with what a person wrote, as a value: made where it is found, rendered once, where it leaves
//! the program.
//!
//! | module | what it holds |
//! |---|---|
//! | `fault` | [`Fault`]: what it is about ([`Subject`]), where that stands, cause and remedy |
//! | `location` | where something stands ([`Where`]): on the command line, or in a file |
//! | `sentence` | [`Sentence`]: words in which other settings are named by value, as flags or as keys of a file |
//! | `limits` | what helps against limits of the system |
//! | `render` | the two renderings of a fault: text (`Display`) and JSON |
//!
//! ```
//! use scope_fault::{Fault, Setting, sentence};
//! let fault = Fault::of("all")
//!     .cause("there is no file that would have every window")
//!     .remedy(sentence!["add ", Setting::of("write").example("FILE")]);
//! assert_eq!(fault.to_string(), "--all: there is no file that would have every window; add -w FILE");
//! let fault = fault.in_file("run.toml", Some(3));
//! assert_eq!(fault.to_string(), "run.toml:3: all: there is no file that would have every window; add write = \"FILE\"");
//! ```
//! Absent on purpose: consequences. No exit code, no status of HTTP, no escaping for a terminal: that is the
//! border's task. No code reads a rendered fault.

mod fault;
mod limits;
mod location;
mod render;
mod sentence;

pub use fault::{Fault, Kind, Parts, Subject, in_order};
pub use limits::limit;
pub use location::Where;
pub use sentence::{Part, Sentence, Setting};

/// A [`Sentence`] of words and settings: `sentence!["enlarge ", Setting::of("ring")]`.
#[macro_export]
macro_rules! sentence {
    ($($part:expr),* $(,)?) => { $crate::Sentence(vec![$($crate::Part::from($part)),*]) };
}
