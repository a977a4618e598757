//! Conditions with a name: which packet is a hit, what becomes of it, and the windows that it opens or extends.
//!
//! | module | what it holds |
//! |---|---|
//! | [`trigger`] | one trigger: filter, template, holdoff, mode |
//! | [`verdict`] | what became of each hit, counted |
//! | [`window`] | the span of capture time that a dump covers, and how it grows and closes |
//! | [`windows`] | those of one trigger, by the values of their hits |
//! | [`places`] | the cap on dumps at once |
//! | [`fits`] | which hits make a dump filter, as far as it is known |
//! | [`holdoff`] | the time after a fire in which nothing fires, by the values of the hits |
//!
//! Everything here runs in capture time: a file gives the same verdicts at any speed. Absent on purpose: rings, threads, files.

pub mod fits;
pub mod holdoff;
pub mod places;
pub mod trigger;
pub mod verdict;
pub mod window;
pub mod windows;

pub use places::{Place, Places};
pub use trigger::{Hit, Trigger, TriggerConfig};
pub use verdict::{Fire, HitCounts, Misses, Verdict};
pub use window::Window;
