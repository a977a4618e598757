//! Questions to stores, drawn by chance: each answer is what tcpdump selects of what came, whatever the clocks did, and
//! of damaged files what is proven.

mod run;

use run::Place;
use scope_testkit::questions;
use std::path::Path;

/// Asks `count` questions of the stores of `runs` runs.
fn ask(seed: u64, runs: usize, count: usize) {
    let place = Place::new();
    let program = Path::new(env!("CARGO_BIN_EXE_wirescope"));
    let folder = place.path("questions");
    std::fs::create_dir(&folder).unwrap();
    let faults = questions::ask(program, &folder, seed, runs, count).unwrap();
    assert!(faults.is_empty(), "seed {seed}: {} wrong answers:\n{}", faults.len(), faults.join("\n"));
}

#[test]
fn answers_to_questions_drawn_by_chance_are_true() {
    ask(1, 8, 40);
}

#[test]
fn answers_of_other_stores_are_true() {
    ask(2, 6, 20);
}

/// `QUESTIONS=500 SEED=7 cargo test ... -- --ignored as_many_questions`.
#[test]
#[ignore = "takes as long as is asked for"]
fn as_many_questions_as_are_asked_for_are_answered_truly() {
    let number =
        |name: &str, default| std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default);
    ask(number("SEED", 500), 16, number("QUESTIONS", 500) as usize);
}
