//! What other programs link to read a run's packets in place: a member of a group as a Rust type, and the same for C.
//!
//! ```no_run
//! use wirescope::{Member, Next, Options};
//!
//! let options = Options::parse("name=mine").unwrap();
//! let mut member = Member::open(None, "ring", &options).unwrap();
//! while let Next::Packets(_) = member.next(None).unwrap() {
//!     let ports = member.packets().filter(|packet| packet.data.be16(36) == Some(53)).count();
//!     if member.is_whole() {
//!         println!("{ports}");
//!     }
//! }
//! ```
//!
//! | module | what it holds |
//! |---|---|
//! | [`options`] | what a program asks for, as it writes it |
//! | [`member`] | joining, batches of packets in place, waiting, the page |
//! | [`error`] | why a program is no member, in words for it |
//! | [`c`] | the C interface of `include/wirescope.h`: all the unsafe code that there is here |
//!
//! The packets lie in the run's memory, which may overwrite them while somebody looks: so they are lent as [`Bytes`], which are
//! loaded one by one, and what was found in them counts when [`Member::is_whole`] says so.

pub mod c;
pub mod error;
pub mod member;
pub mod options;

pub use error::{OpenError, ReadError};
pub use member::{BATCH_PACKETS_MAX, Counts, Member, Next, Packet};
pub use options::{OptionFault, Options};
pub use scope_ring::{Bytes, OutsideInterface as Interface};

/// The interface that the C library speaks.
pub const ABI: i32 = 1;

#[cfg(test)]
mod tests;
