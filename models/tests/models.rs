//! Every model holds on scope-ring as it is, and every seeded fault is found by the model that is named for
//! it.

use models::mutants::MUTANTS;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

/// Models, longest first.
const MODELS: [&str; 23] = [
    "outside_held",
    "outside_lapped",
    "outside_open",
    "open_segment",
    "counters",
    "reader",
    "members_lapped",
    "members",
    "newest",
    "recycle",
    "unlapped",
    "two_readers",
    "two_writers",
    "published",
    "evicted",
    "clock",
    "lanes",
    "find",
    "find_lapped",
    "span",
    "shares",
    "summaries",
    "summaries_lapped",
];

/// Runs a model on a variant: whether it held, and what it said.
fn run(model: &str, variant: &str) -> (Option<i32>, String) {
    let done = Command::new(env!("CARGO_BIN_EXE_models"))
        .args([model, variant])
        .output()
        .expect("the models' program");
    (done.status.code(), String::from_utf8_lossy(&[done.stdout, done.stderr].concat()).into_owned())
}

/// Calls `check` with 0, 1, 2 ... below `count`, on two threads; those that failed.
fn in_parallel(count: usize, check: impl Fn(usize) -> Result<(), String> + Sync) -> Vec<String> {
    let next = AtomicUsize::new(0);
    let work = || -> Vec<String> {
        let indices =
            std::iter::from_fn(|| Some(next.fetch_add(1, Ordering::Relaxed)).filter(|index| *index < count));
        indices.filter_map(|index| check(index).err()).collect()
    };
    std::thread::scope(|scope| {
        let other = scope.spawn(work);
        let mut failed = work();
        failed.extend(other.join().expect("no panic"));
        failed
    })
}

#[test]
fn every_model_holds_in_all_its_orders() {
    let failed = in_parallel(MODELS.len(), |index| {
        let (code, said) = run(MODELS[index], "none");
        println!("{}", said.trim_end());
        if code == Some(0) { Ok(()) } else { Err(format!("{}: exit code {code:?}: {said}", MODELS[index])) }
    });
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

#[test]
fn every_seeded_fault_is_caught_and_for_its_own_reason() {
    let began = Instant::now();
    let failed = in_parallel(MUTANTS.len(), |index| {
        let mutant = &MUTANTS[index];
        let (code, said) = run(mutant.model, mutant.name);
        if code == Some(1) && said.contains(mutant.says) {
            return Ok(());
        }
        Err(format!(
            "{} is not found by {} as `{}`: exit code {code:?}: {said}",
            mutant.name, mutant.model, mutant.says
        ))
    });
    assert!(failed.is_empty(), "{}", failed.join("\n"));
    assert!(
        MODELS
            .iter()
            .all(|model| MUTANTS.iter().any(|mutant| mutant.model == *model) || *model == "two_readers")
    );
    println!("{} seeded faults found, {:.0} s", MUTANTS.len(), began.elapsed().as_secs_f64());
}
