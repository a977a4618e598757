//! Facts of the machine: memory, processors, control groups, the clock, processes, disk space, network
//! cards.
//!
//! | module | what it holds |
//! |---|---|
//! | [`memory`] | free memory, control group limits, reserved huge pages, NUMA nodes |
//! | [`cpus`] | processors that this process may use, and where workers run |
//! | [`groups`] | what control groups allow: processor time, threads |
//! | [`limits`] | limits of this process: open files, length of a file |
//! | [`clock`] | host, kernel, and whether the clock is synchronised |
//! | [`home`], [`process`] | where a process lives, and since when |
//! | [`disk`] | space on a file system |
//! | [`nic`] | network cards: facts, counters, what stands in the way of capture |
//!
//! Everything here only reads, works without privileges, and changes nothing but a limit of this process.
//! What isn't answered is unknown, never guessed.

pub mod clock;
pub mod cpus;
pub mod disk;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
pub mod groups;
pub mod home;
pub mod limits;
pub mod memory;
pub mod nic;
pub mod process;

pub use clock::ClockState;
pub use memory::Machine;
