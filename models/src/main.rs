//! Runs one model of scope-ring, exhaustively within its bounds, on the source as it is (`none`) or with a
//! seeded fault.
//!
//! usage: models MODEL VARIANT exit code 0: every order is right; 1: the first line printed says what is
//! wrong
//!
//! The program ends at the first wrong order, inside the panic hook: nothing is unwound, so that no drop
//! hides what was found.

use models::RUNS;
use std::sync::atomic::Ordering;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, model, variant] = arguments.as_slice() else {
        eprintln!("usage: models MODEL VARIANT");
        std::process::exit(2);
    };
    std::panic::set_hook(Box::new(|panic| {
        println!("{panic}");
        println!("wrong in order {}", RUNS.load(Ordering::Relaxed));
        std::process::exit(1);
    }));
    let began = std::time::Instant::now();
    if !models::run(variant, model) {
        eprintln!("no such model or variant: {model} {variant}");
        std::process::exit(2);
    }
    println!(
        "{model}: right in all {} orders, {:.1} s",
        RUNS.load(Ordering::Relaxed),
        began.elapsed().as_secs_f64()
    );
}
