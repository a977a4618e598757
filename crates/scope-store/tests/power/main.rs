//! The store's writing and recovery on a disk that loses power at any moment: what was reported as kept is
//! there, byte for byte, and nothing is there that wasn't written.

mod check;
mod disk;
mod lane;
mod random;
mod real;
mod run;
mod slots;
#[path = "../small_ring/mod.rs"]
mod small_ring;
mod writer;

use disk::{Faults, PowerDisk};
use random::Random;
use run::{Found, Run};
use scope_store::disk::Disk;
use scope_store::recover::{Outcome, Recovered, Recovery};
use std::collections::BTreeSet;

/// Recovers all files of a disk.
fn recover(disk: &mut PowerDisk) -> Vec<Recovered> {
    let mut recovery = Recovery::new(disk.list().unwrap());
    let mut reports = Vec::new();
    while !recovery.is_over() {
        let before = recovery.progress();
        reports.extend(recovery.step(disk));
        let progress = recovery.progress();
        assert!(progress.bytes_done >= before.bytes_done && progress.bytes_done <= progress.bytes);
    }
    assert_eq!(recovery.progress().files_done, recovery.progress().files);
    reports
}

/// Holds what is on the disk after recovery against the truth and against what was kept.
fn check(disk: &PowerDisk, run: &Run, kept: &BTreeSet<(u32, u64)>) -> Found {
    let mut found = Found::new();
    for (name, bytes) in disk.files().filter(|(name, _)| name.extension().unwrap() == "pcapng") {
        check::file(name, bytes, run, &mut found);
    }
    for packet in kept {
        assert!(found.contains_key(packet), "packet {} of lane {} was kept and is gone", packet.1, packet.0);
    }
    found
}

/// One loss of power, or one kill, at a random moment of a run; at times another one during recovery.
fn lose_power(run: &Run, seed: u64) {
    let random = &mut Random::new(seed);
    let moment = random.below(run.disk.moment() as u64 + 1) as usize;
    let killed = random.one_in(5);
    let kept = run::kept_at(run, moment);
    let mut found = run.disk.after(&PowerDisk::new(0), moment, killed, random.next());
    while random.one_in(3) {
        let before = found.snapshot();
        recover(&mut found);
        let moment = random.below(found.moment() as u64 + 1) as usize;
        found = found.after(&before, moment, random.one_in(5), random.next());
    }
    for report in recover(&mut found) {
        match &report.outcome {
            Outcome::Closed(_) | Outcome::Removed | Outcome::Unreadable(_) => {}
            Outcome::Failed(error) => panic!("{}: {error}", report.name.display()),
        }
    }
    let packets = check(&found, run, &kept);
    assert!(run.failed > 0 || packets.values().all(|&times| times == 1), "two files have the same packet");
    let again = recover(&mut found);
    assert!(
        again.iter().all(|report| matches!(report.outcome, Outcome::Unreadable(_))),
        "nothing is left to do"
    );
    assert_eq!(check(&found, run, &kept), packets);
}

/// Losses of power in runs, as many as `points`, from `seed` on.
fn lose_power_often(points: u64, seed: u64, faults: fn(u64) -> Faults) {
    const POINTS_OF_A_RUN: u64 = 25;
    for number in 0..points.div_ceil(POINTS_OF_A_RUN) {
        let seed = seed + number;
        let told = std::panic::catch_unwind(|| run::run(seed, faults(seed)));
        let run = told.unwrap_or_else(|cause| {
            eprintln!("run {seed}");
            std::panic::resume_unwind(cause)
        });
        for point in 0..POINTS_OF_A_RUN.min(points - number * POINTS_OF_A_RUN) {
            let told = std::panic::AssertUnwindSafe(|| lose_power(&run, seed << 16 | point));
            if let Err(cause) = std::panic::catch_unwind(told) {
                eprintln!("run {seed}, point {point}");
                std::panic::resume_unwind(cause);
            }
        }
    }
}

fn no_faults(_: u64) -> Faults {
    Faults::default()
}

fn some_faults(seed: u64) -> Faults {
    let one_of = |count: u64| if seed.is_multiple_of(3) { 0 } else { count };
    Faults { error: one_of(60), full: one_of(40), stall: 5 * (seed % 2) }
}

#[test]
fn what_was_kept_is_there_after_a_loss_of_power_byte_for_byte_and_nothing_is_invented() {
    lose_power_often(300, 1, no_faults);
}

#[test]
fn a_disk_that_fails_is_full_or_stalls_takes_nothing_that_was_kept() {
    lose_power_often(200, 100_000, some_faults);
}

#[test]
#[ignore = "the bench power_recovery runs it"]
fn ten_thousand_losses_of_power_take_nothing_that_was_kept() {
    lose_power_often(8_000, 1_000_000, no_faults);
    lose_power_often(2_000, 2_000_000, some_faults);
}

#[test]
fn a_run_that_comes_to_its_end_leaves_whole_files_and_every_packet_once() {
    let mut ended = 0;
    for seed in 0..20 {
        let run = run::run(seed, Faults { stall: 4, ..Faults::default() });
        if run.ended && run.missed.is_empty() {
            ended += 1;
            assert!(run.disk.files().all(|(name, _)| name.extension().unwrap() == "pcapng"));
            let found = check(&run.disk, &run, &run::kept_at(&run, usize::MAX));
            let packets: usize = run.truth.iter().map(Vec::len).sum();
            assert_eq!((found.len(), reported_once(&run)), (packets, packets), "seed {seed}");
            assert!(found.values().all(|&times| times == 1), "seed {seed}");
        }
    }
    assert!(ended >= 5, "{ended}");
}

#[test]
fn whatever_the_disk_does_each_packet_is_kept_in_the_end_or_its_segment_was_missed() {
    let mut ended = 0;
    for seed in 200_000..200_040 {
        let run = run::run(seed, some_faults(seed));
        if run.ended {
            ended += 1;
            reported_once(&run);
        }
    }
    assert!(ended >= 10, "{ended}");
}

/// Holds what was reported as kept against what the run wrote: each packet once, but for those of segments
/// that were missed. How many packets were reported.
fn reported_once(run: &Run) -> usize {
    let mut times: Vec<Vec<u32>> = run.truth.iter().map(|lane| vec![0; lane.len()]).collect();
    for (_, kept) in &run.kept {
        for number in kept.packets.clone() {
            times[kept.id.lane as usize][number as usize] += 1;
        }
    }
    let missed = |lane: usize, number: usize| {
        let sequence = run.sequences[lane][number];
        run.missed.iter().any(|id| (id.lane as usize, id.sequence) == (lane, sequence))
    };
    for (lane, times) in times.iter().enumerate() {
        for (number, &times) in times.iter().enumerate() {
            assert!(
                times == 1 || times == 0 && missed(lane, number),
                "packet {number} of lane {lane}: {times} times"
            );
        }
    }
    times.iter().flatten().map(|&times| times as usize).sum()
}
