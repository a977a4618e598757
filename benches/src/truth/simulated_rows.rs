//! `stated_loss_true`, its first part: random runs of the engine with simulated source, clock and disk.

use super::{SIMULATED, STATED, outcome, seed};
use crate::table::Table;
use scope_sim::{Tally, trial};
use std::ops::Range;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// Cases that so many runs must have met; with fewer, the simulator has lost its bite.
const ENOUGH_RUNS: u64 = 1000;

/// Plays the runs of the seeds below `runs`, on all cores.
pub fn measure(runs: u64, table: &mut Table) {
    let seeds = seed().map_or(0..runs, |seed| seed..seed + 1);
    let (tally, mut faults) = play(seeds);
    if tally.runs >= ENOUGH_RUNS {
        faults.extend(lacks(&tally));
    }
    let counts = [
        ("dumps", tally.dumps),
        ("dumps that say complete", tally.complete),
        ("dumps that lack packets", tally.lacking),
        ("dumps that couldn't be written whole", tally.failed),
        ("packets sent", tally.packets),
        ("packets missing in dumps", tally.missing),
    ];
    table.put(STATED, SIMULATED, "", outcome(faults));
    for (what, count) in counts {
        table.put("simulated", what, "", Ok(count as f64));
    }
}

/// Where files cost little: memory, if it is a file system.
fn place() -> &'static Path {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { memory } else { Path::new("/tmp") }
}

fn play(seeds: Range<u64>) -> (Tally, Vec<String>) {
    let next = AtomicU64::new(seeds.start);
    let found = Mutex::new((Tally::default(), Vec::new()));
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds.end {
                        return;
                    }
                    let outcome = trial(seed, place());
                    let (tally, faults) = &mut *found.lock().expect("no panic while held");
                    tally.add(&outcome.tally);
                    if let Some(first) = outcome.faults.first() {
                        faults.push(format!("SEED={seed}: {first}"));
                    }
                }
            });
        }
    });
    found.into_inner().expect("no panic while held")
}

/// What should have been met and wasn't.
fn lacks(tally: &Tally) -> Vec<String> {
    let met = [
        ("complete dumps", tally.complete),
        ("dumps that lack packets", tally.lacking),
        ("dumps that couldn't be written whole", tally.failed),
        ("packets that the kernel dropped", tally.dropped_by_kernel),
        ("runs in which the clock was set back", tally.set_back),
    ];
    met.iter()
        .filter(|(_, count)| *count < tally.runs / 100)
        .map(|(what, count)| format!("only {count} {what}"))
        .collect()
}
