//! What dumps say of themselves is true in a thousand random runs. `SEED=N` plays one of them, `RUNS=N` more.

use scope_sim::{Tally, trial};
use std::path::Path;

/// Where memory is a file system, files cost little.
fn place() -> &'static Path {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { memory } else { Path::new("/tmp") }
}

/// Seeds beyond the first thousand that have found something.
const FOUND: [u64; 1] = [9510];

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|value| value.parse().ok())
}

#[test]
fn what_dumps_say_of_themselves_is_true_in_a_thousand_random_runs() {
    let seeds: Vec<u64> = match number("SEED") {
        Some(seed) => vec![seed],
        None => (0..number("RUNS").unwrap_or(1000)).chain(FOUND).collect(),
    };
    if let [seed] = seeds[..] {
        println!("{}", scope_sim::scene(seed));
    }
    let (mut all, mut failed) = (Tally::default(), Vec::new());
    for seed in seeds {
        let outcome = trial(seed, place());
        all.add(&outcome.tally);
        if !outcome.faults.is_empty() {
            failed.push(seed);
            println!("SEED={seed}: {}", outcome.faults.join("\n    "));
        }
    }
    println!("{all:?}");
    assert!(failed.is_empty(), "{} runs: SEED={failed:?}", failed.len());
    // Otherwise the simulator has lost its bite.
    assert!(all.all >= all.runs / 20 && all.pcap >= all.runs / 20, "{all:?}");
}
