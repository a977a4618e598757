//! Groups of programs that share a run's packets: which member a packet falls to, the memory of each member, and the thread
//! that follows the ring and hands out; no sockets, no files.
//!
//! ```text
//!                       ┌─ filter ─ steer ─► member 0: a small ring of its own, read in place by its program
//! ring ─► thread ─ group┤                 ─► member 1
//!            │          └─ each packet once ...
//!            └─ further groups
//! ```
//! What a member hasn't read stays until its page says that it is done with it. Where its memory is full the newest packets
//! are missed: their numbers are passed over, so that the member knows how many and where.
//!
//! | module | what it holds |
//! |---|---|
//! | [`steer`] | ways to steer, and the number that a packet falls to by them |
//! | [`shares`] | which member has which of these numbers, by weights, with as few changes as can be |
//! | [`seat`] | a member's place: its memory, its page, who sits there |
//! | [`group`] | a group: what it takes, its seats, its figures |
//! | [`rules`] | rules: what becomes of packets that match |
//! | [`sets`] | sets of hosts and ports, read from files |
//! | `memory` | the writing side of a seat |
//! | [`sharing`] | the thread |
//! | `pace` | how long it waits for packets |
//!
//! Absent on purpose: who may be a member, and how it is told, is the door's to say.

pub mod group;
mod memory;
mod pace;
pub mod rules;
pub mod seat;
pub mod sets;
pub mod shares;
pub mod sharing;
pub mod steer;

pub use group::{Counts, Gone, Group, GroupCounts, GroupPlan, MemberCounts, Settings};
pub use seat::{Newcomer, Phase, Seat};
pub use sharing::{Sharer, Sharing};
pub use steer::{BadSteer, Falls, Steer};

/// Members of a group at most.
pub const MEMBERS_MAX: u32 = 64;
