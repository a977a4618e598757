//! What a dump states of its loss, held against the truth: many small rings that are fed live, with pins of
//! others, kernel drops and several lanes, while the dump comes to its reading and writing only now and then.

mod live_bench;

use live_bench::{BEGIN_NS, Bench, Dice, Gate, SEGMENT, begin, in_folder, verify};
use scope_dump::DumpReport;
use scope_packet::GapReason;
use scope_trigger::Window;
use std::sync::Arc;

/// Runs with random numbers.
const RUNS: u64 = 1200;

/// One random run; packets that its dump lacks, and whether it says that it is complete.
fn run(seed: u64) -> (usize, bool) {
    let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let lanes = 1 + dice.below(3) as u32;
    let segments = u64::from(lanes) * 16 + dice.below(8);
    let jitter_ns = [0, 1_000_000, 40_000_000][dice.below(3) as usize];
    let longer_than = if dice.once_in(4) { 700 } else { 0 };
    let mut bench = Bench::new(lanes, segments, jitter_ns, longer_than);
    let turn = segments * SEGMENT / 850; // packets
    bench.dropped_of = if dice.once_in(3) { 400 } else { u64::MAX };
    // Half of the dumps keep up, and of some the windows are short.
    let (slow, short) = (if dice.once_in(2) { 600 } else { 40 }, 1 + dice.below(20));
    let (mut pins, pins_max) = (Vec::new(), dice.below(segments * 3 / 4) as usize);
    let (pin_once_in, step_once_in) = (1 + dice.below(300), 1 + dice.below(slow));
    let (hold_once_in, commit_once_in) = (1 + dice.below(400), 1 + dice.below(60));
    let mut live = |bench: &mut Bench, dice: &mut Dice| {
        let lane = dice.below(lanes.into()) as u32;
        let fed = bench.feed(lane, dice);
        if dice.once_in(pin_once_in) {
            if pins.len() < pins_max && !dice.once_in(3) {
                pins.extend(bench.pin_any(dice));
            } else if !pins.is_empty() {
                pins.swap_remove(dice.below(pins.len() as u64) as usize);
            }
        }
        if dice.once_in(hold_once_in) {
            bench.scans.hold_on();
        }
        if dice.once_in(commit_once_in) {
            bench.commit();
        }
        (lane, fed)
    };
    for _ in 0..dice.below(3 * turn) {
        live(&mut bench, &mut dice);
    }
    let (lane, (hit_ns, place)) = live(&mut bench, &mut dice);
    let hit = place.map(|_| (lane, bench.numbers[lane as usize] - 1));
    let span_ns = |turns: u64| (turns * turn * 100_000) as i64;
    let (before_ns, after_ns) =
        (dice.below(span_ns(2) as u64 / short) as i64, dice.below(span_ns(2) as u64 / short) as i64);
    let window = Arc::new(Window::new(hit_ns - before_ns, hit_ns + after_ns, hit_ns));
    let (folder, gate) = (tempfile::tempdir().unwrap(), Arc::new(Gate::default()));
    let dump = begin(&bench, place, &window, 1 + dice.below(3), in_folder(folder.path(), &gate), &gate);
    let mut going = true;
    for _ in 0..dice.below(6 * turn) {
        live(&mut bench, &mut dice);
        if going && dice.once_in(step_once_in) {
            going = gate.step();
        }
    }
    bench.commit();
    for worker in 0..lanes {
        bench.ring.end_listening(worker, bench.now_ns, GapReason::Stopped);
        bench.ring.end_clock(worker);
    }
    gate.set_free();
    let report = dump.join().unwrap();
    drop(pins);
    let lost = verify(&bench, &report, hit, &format!("run {seed}"));
    assert_eq!(bench.ring.budget().taken(), 0, "run {seed}: all pins are given back");
    (lost, report.complete)
}

#[test]
fn in_random_live_runs_no_complete_dump_lacks_a_packet_and_every_bound_holds() {
    let results: Vec<(usize, bool)> = std::thread::scope(|scope| {
        let parts = 4;
        let part = |part: u64| {
            scope.spawn(move || (0..RUNS / parts).map(|n| run(n * parts + part)).collect::<Vec<_>>())
        };
        let all: Vec<_> = (0..parts).map(part).collect();
        all.into_iter().flat_map(|part| part.join().unwrap()).collect()
    });
    // Both kinds come often enough to mean something.
    let (complete, lacking) =
        (results.iter().filter(|run| run.1).count(), results.iter().filter(|run| run.0 > 0).count());
    assert!(complete > 200 && lacking > 200, "{complete} complete, {lacking} lacking");
}

/// A dump whose window ends one and a half quarters of a turn of the ring after its hit: within half of the
/// ring, the budget. It stands still while `quarters` pass, after each of which the keeper looks, if there is
/// one. Its report, and what it lacks.
fn stalled(quarters: u64, kept: bool) -> (DumpReport, usize) {
    let mut dice = Dice(77);
    let mut bench = Bench::new(1, 64, 0, 0);
    let quarter = 64 * SEGMENT / 850 / 4;
    let (hit_ns, place) = bench.feed(0, &mut dice);
    bench.commit();
    let window = Arc::new(Window::new(hit_ns, hit_ns + 3 * quarter as i64 / 2 * 100_000, hit_ns));
    let (folder, gate) = (tempfile::tempdir().unwrap(), Arc::new(Gate::default()));
    let dump = begin(&bench, place, &window, 1, in_folder(folder.path(), &gate), &gate);
    assert!(gate.step(), "it has looked once, and waits");
    for _ in 0..quarters {
        for _ in 0..quarter {
            bench.feed(0, &mut dice);
        }
        bench.commit();
        if kept {
            bench.scans.hold_on();
        }
    }
    bench.ring.end_listening(0, bench.now_ns, GapReason::Stopped);
    bench.ring.end_clock(0);
    gate.set_free();
    let report = dump.join().unwrap();
    let lost = verify(&bench, &report, Some((0, 0)), "a stalled dump");
    (report, lost)
}

#[test]
fn a_dump_that_hangs_for_turns_of_the_ring_lacks_nothing_that_it_may_hold() {
    for quarters in [3, 5, 40] {
        let (report, lost) = stalled(quarters, true);
        assert!(lost == 0 && report.complete && report.packets > 1500, "{lost}: {report:#?}");
    }
    let (report, lost) = stalled(40, false);
    assert!(lost > 1500 && report.lost_min > 1500 && !report.complete, "without a keeper: {report:#?}");
}

/// A look ends inside a segment that is still open. The dump hangs in front of it, that segment is sealed and becomes
/// the oldest one, the rest of what may be held is held. When the dump goes on, the ring takes a segment at each
/// of its steps, and no keeper comes between.
#[test]
fn what_a_dump_has_read_of_a_segment_lets_nobody_take_the_rest_of_it() {
    let mut dice = Dice(78);
    let mut bench = Bench::new(1, 64, 0, 0);
    let of_segment = SEGMENT / 850;
    for _ in 0..16 * of_segment {
        bench.feed(0, &mut dice);
    }
    let (hit_ns, place) = bench.feed(0, &mut dice);
    bench.commit();
    let ms = |count: i64| count * 1_000_000;
    let window = Arc::new(Window::new(BEGIN_NS, hit_ns + ms(5), hit_ns));
    let (folder, gate) = (tempfile::tempdir().unwrap(), Arc::new(Gate::default()));
    let dump = begin(&bench, place, &window, 1, in_folder(folder.path(), &gate), &gate);
    for _ in 0..6 {
        for _ in 0..16 * of_segment {
            bench.feed(0, &mut dice);
        }
        bench.commit();
        bench.scans.hold_on();
    }
    while gate.step() {
        for _ in 0..3 * of_segment {
            bench.feed(0, &mut dice);
        }
        bench.commit();
    }
    let report = dump.join().unwrap();
    let lost = verify(&bench, &report, Some((0, 16 * of_segment)), "a dump that reads an open segment");
    assert!(lost == 0 && report.complete && report.packets > 1200, "{lost}: {report:#?}");
}
