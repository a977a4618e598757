//! Live runs under load: nothing is lost at rates that must be held, whatever the triggers do, and all counts
//! add up.
//!
//! Needs root; says so and passes without it, except in CI.

mod live_lab;
mod run;

use live_lab::{Live, assert_holds, hit_frame, mixed_frames, stop_complete};
use run::Place;
use scope_testkit::oracle;
use scope_testkit::traffic::ETHERNET;
use scope_testkit::traffic::frame;
use serde_json::Value;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// One load at a time: the machine may be small.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Sends at `rate` packets/s, on a busy machine in bursts: all that is sent here fits into the kernel's ring
/// of 64 MiB.
fn send_at(live: &Live, frames: &[Vec<u8>], rate: u32) {
    assert_eq!(live.sender().send_paced(frames, rate).unwrap(), frames.len() as u64);
}

fn check_50k(workers: u32) {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(live) = Live::or_skip() else { return };
    let orders =
        ["--trigger", "hit=udp port 60000", "--dump", "host $srcIP", "--before", "500ms", "--after", "500ms"];
    let started =
        live.start(&[&["--source", &format!("afpacket:vb,workers={workers}")], &orders[..]].concat());
    let mut frames = mixed_frames(1, 120_000);
    let hit = hit_frame(&[]);
    frames.insert(60_000, hit.clone());
    send_at(&live, &frames, 50_000);
    live.wait_for_dumps(1);
    let summary = stop_complete(started, frames.len());
    assert_holds(&live.ring(), &frames);
    let found = live.check_only_dump(&summary, "host 10.0.0.1", &hit);
    assert!(found.packets.len() > 100, "{}", found.packets.len());
    oracle::opens_cleanly(&summary.only_dump().path).unwrap();
}

#[test]
fn nothing_is_lost_at_50k_packets_a_second_with_one_worker() {
    check_50k(1);
}

#[test]
fn nothing_is_lost_at_50k_packets_a_second_with_two_workers() {
    check_50k(2);
}

#[test]
fn a_window_longer_than_the_ring_is_dumped_whole() {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(live) = Live::or_skip() else { return };
    let orders =
        ["--trigger", "hit=udp port 60000", "--dump", "ip or ip6", "--before", "60s", "--after", "60s"];
    let ring = ["--source", "afpacket:vb,workers=2", "--ring", "4MiB", "--segment", "64KiB"];
    let started = live.start(&[&ring[..], &orders].concat());
    let mut frames = mixed_frames(1, 60_000);
    frames.insert(1000, hit_frame(&[]));
    // A turn of the ring takes more than 5 s: time enough to write it on a busy machine, too.
    send_at(&live, &frames, 4_000);
    let summary = stop_complete(started, frames.len());
    assert!(live.ring().packets.len() < frames.len() / 2, "the ring has turned");
    let dump = summary.only_dump();
    assert!(dump.lost_nothing(), "{dump:?}");
    assert_holds(&oracle::read(&dump.path).unwrap().capture, &frames);
}

#[test]
fn two_runs_on_one_interface_do_not_take_packets_from_each_other() {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(live) = Live::or_skip() else { return };
    let other = Place::new();
    let source = ["--source", "afpacket:vb,workers=2"];
    let (first, second) = (live.start(&source), live.start_at(&other, &source));
    let frames = mixed_frames(1, 5000);
    send_at(&live, &frames, 10_000);
    stop_complete(second, frames.len());
    stop_complete(first, frames.len());
    assert_holds(&live.ring(), &frames);
}

/// A packet that fires, one of 500 sources.
fn storm_hit(number: usize) -> Vec<u8> {
    let from = format!("10.1.{}.{}:1000", number % 5, number / 5 % 100 + 1).parse().expect("an address");
    let ip = frame::udp(from, "10.0.0.2:60000".parse().expect("an address"), &number.to_be_bytes());
    frame::on_link(ETHERNET, &[], &ip)
}

/// Events of one kind.
fn events(live: &Live, kind: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(live.place.out().join("wirescope.jsonl")).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    lines.filter(|event| event["event"] == kind).collect()
}

#[test]
fn a_storm_of_hits_costs_no_packet_and_every_hit_is_counted_once() {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(live) = Live::or_skip() else { return };
    let orders =
        ["--trigger", "storm=udp port 60000", "--dump", "host $srcIP", "--holdoff", "0", "--dumps-max", "2"];
    let windows = ["--before", "200ms", "--after", "50ms", "--source", "afpacket:vb,workers=2"];
    let started = live.start(&[&orders[..], &windows].concat());
    let mut frames = mixed_frames(1, 40_000);
    let hits = frames.len() / 5;
    frames.iter_mut().step_by(5).enumerate().for_each(|(number, frame)| *frame = storm_hit(number));
    let begun = Instant::now();
    send_at(&live, &frames, 20_000);
    let summary = stop_complete(started, frames.len());
    let took = begun.elapsed();
    assert_holds(&live.ring(), &frames);

    let counts = summary.hits["storm"];
    assert_eq!(counts.sum(), hits as u64, "{counts:?}");
    assert_eq!((counts.held_off, counts.template_unfilled, counts.disarmed), (0, 0, 0), "{counts:?}");
    assert_eq!(counts.fired, summary.dumps.len() as u64);
    assert!(counts.fired >= 2 && counts.too_many > 1000, "{counts:?}");
    for dump in &summary.dumps {
        assert!(dump.lost_nothing(), "{dump:?}");
        assert_eq!(oracle::read(&dump.path).unwrap().capture.packets.len() as u64, dump.packets);
    }
    assert_eq!(live.dumps(), summary.dumps.len());

    let listed = events(&live, "hit").len();
    assert!(listed <= 100 * (took.as_secs() as usize + 2), "{listed} hits listed in {took:?}");
    let not_listed: u64 = events(&live, "hits")
        .iter()
        .filter_map(|event| event["not_listed"].as_object())
        .flat_map(|verdicts| verdicts.values().filter_map(Value::as_u64).collect::<Vec<_>>())
        .sum();
    assert_eq!(listed as u64 + not_listed + counts.fired, hits as u64);
}
