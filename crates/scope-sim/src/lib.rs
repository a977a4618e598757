//! Whole runs on a stage: the engine's workers, ring, triggers and dumps with a simulated source, clock and disk, so that the truth is
//! known: every packet that was sent, and what became of it.
//!
//! | module | what it holds |
//! |---|---|
//! | `dice` | the random numbers of a seed |
//! | `stage` | threads of which one runs at a time, in simulated time |
//! | `scene` | what happens in a run, drawn before it begins |
//! | `packets` | the packets that are sent |
//! | `source` | the kernel's blocks and drops; files |
//! | `disk` | slow, frozen, full, read-only |
//! | `run` | the engine's parts, wired as a run wires them |
//! | `truth` | what each dump says, held against what was sent |
//!
//! A run depends on its seed alone. Absent on purpose: sockets, real time, and any knowledge of how a dump is cut.

mod dice;
mod disk;
mod packets;
mod run;
mod scene;
mod source;
mod stage;
mod truth;

pub use truth::Tally;

use std::path::Path;

/// What came of one run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Its seed.
    pub seed: u64,
    /// What was met.
    pub tally: Tally,
    /// Statements that aren't true, in words; empty: all of them are.
    pub faults: Vec<String>,
}

/// Plays the run of `seed` and checks all that its dumps say. Its files are made in `folder` and removed.
///
/// # Panics
/// Where no folder can be made, or no thread.
pub fn trial(seed: u64, folder: &Path) -> Outcome {
    let folder = tempfile::Builder::new().prefix("sim-").tempdir_in(folder).expect("a folder for the dumps of a run");
    let ran = run::play(seed, folder.path());
    let (tally, faults) = truth::check(&ran);
    Outcome { seed, tally, faults }
}

/// The scene of `seed` in words, to read what led to a fault.
pub fn scene(seed: u64) -> String {
    let scene = scene::Scene::draw(&mut dice::Dice::new(seed));
    let packets = scene.packets.len();
    format!("{packets} packets; {:#?}", scene::Scene { packets: Vec::new(), ..scene })
}
