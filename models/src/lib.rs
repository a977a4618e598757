//! Loom models of scope-ring: its real source, with loom's atomics, once as it is and once per seeded fault.
//!
//! | where | what it holds |
//! |---|---|
//! | `model.rs` | the models: what threads do, and what must hold |
//! | `mutants.rs` | the seeded faults, as edits of scope-ring's text, and the model that must find each |
//! | `stand_ins/` | the files of scope-ring that can't run here: mapping, futex, lock |
//! | `build.rs` | makes the variants |

pub mod mutants;

pub use variants::run;

// Private, so that of each variant only what its models use is compiled.
#[allow(dead_code, missing_docs, unused, clippy::all)]
mod variants {
    //! One module per variant, made by `build.rs`.
    include!(concat!(env!("OUT_DIR"), "/variants.rs"));
}

/// Orders that the running model has been through.
pub static RUNS: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
