//! How a run hands its ring to other programs: a greeting and its answer, descriptors beside it, and the page on which a
//! member says how far it has read.
//!
//! ```text
//! member                                             run
//!   connect ─────────── SOCK_SEQPACKET ────────────►  who: by the kernel's credentials
//!   greeting: version, group, name, weight, class ─►
//!          ◄──────── answer: joined, member's number, whether it is waited for
//!                                                     + descriptors: tables, slots, page
//!          ◄──────── or: refused, why, in words
//!   maps tables and slots read-only, writes the page; says nothing more
//!          ◄──────── news, where the page says that the member waits
//!          ◄──────── the end of the connection: the run is over, what is committed can still be read
//! ```
//! Of a group other than `ring` a member is given nothing before its page says where it began.
//!
//! The run takes no descriptor of a member, so that none of them is ever its own to close; it makes the pages, which can't be
//! shortened, and reads them as it reads a file: a page that lies makes a figure wrong, and nothing else.
//!
//! | module | what it holds |
//! |---|---|
//! | [`message`] | greeting and answer as bytes, without any I/O |
//! | [`page`] | the page of a member |
//! | [`passing`] | messages and descriptors through a socket |
//! | [`joining`] | a member's side |
//!
//! Absent on purpose: who may join, and what is handed out, is the run's to say.

pub mod joining;
pub mod message;
pub mod page;
pub mod passing;

pub use joining::{JoinError, Joined, REMOVED, ask, join};
pub use message::{Answer, BadMessage, Greeting, Refusal};
pub use page::{Page, Progress};

/// The group that is the capture ring itself.
pub const RING: &str = "ring";
/// The version of all that is said here.
pub const VERSION: u32 = 3;
/// Where members look for a run that they weren't told of: the service's.
pub const DEFAULT_PATH: &str = "/run/wirescope/attach";
