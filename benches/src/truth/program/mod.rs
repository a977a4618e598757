//! `stated_loss_true`, its second part: random runs of the program on a veth pair, and on files, to which
//! things happen.
//!
//! ```text
//!  sender (namespace a): numbered packets ──► va ═ vb (namespace b) ──► wirescope ──► dumps, and what they say
//!                                                      └──────────────► witness: number and time of every packet that came
//! ```
//! The witness is a packet socket with room for all of a run's packets: what it saw is the truth.

mod file_scene;
mod live_scene;
mod running;

use super::{PROGRAM, STATED, outcome, seed};
use crate::table::Table;
use crate::workspace::Workspace;
use anyhow::{Context, Result};
use scope_testkit::oracle::truth::Counted;
use scope_testkit::traffic::Random;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// Runs that go on at the same time: each is mostly waiting.
const AT_ONCE: usize = 3;
/// One run in so many reads a file.
const FILES: u64 = 8;

/// Plays the runs of the seeds below `runs`.
pub fn measure(workspace: &Workspace, runs: u64, table: &mut Table) {
    let seeds = seed().map_or(0..runs, |seed| seed..seed + 1);
    let next = AtomicU64::new(seeds.start);
    let found = Mutex::new((Counted::default(), Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds.end {
                        return;
                    }
                    let played = play(workspace, seed);
                    let (counted, faults) = &mut *found.lock().expect("no panic while held");
                    match played {
                        Ok((of_run, wrong)) => {
                            counted.add(&of_run);
                            faults.extend(wrong.into_iter().map(|fault| format!("SEED={seed}: {fault}")));
                        }
                        Err(error) => faults.push(format!("SEED={seed}: {error:#}")),
                    }
                }
            });
        }
    });
    let (counted, faults) = found.into_inner().expect("no panic while held");
    table.put(STATED, PROGRAM, "", outcome(faults));
    for (what, count) in counted.rows() {
        table.put("program", what, "", Ok(count as f64));
    }
}

/// Plays one run: what was met, and which statements aren't true.
fn play(workspace: &Workspace, seed: u64) -> Result<(Counted, Vec<String>)> {
    let mut random = Random::new(seed);
    if seed % FILES == FILES - 1 {
        return file_scene::play(workspace, &mut random).context("of a file");
    }
    let scene = live_scene::Scene::draw(seed, &mut random);
    let words = scene.words();
    if super::seed().is_some() {
        eprintln!("{words}");
    }
    let (counted, faults) = scene.play(workspace, &mut random).with_context(|| words.clone())?;
    Ok((counted, faults.into_iter().map(|fault| format!("{fault} ({words})")).collect()))
}
