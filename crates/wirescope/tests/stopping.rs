//! Signals: a run that is stopped closes its dumps and says what it did; one that is stopped twice leaves whole files only.

mod run;

use run::{Done, Place, Started, is_finished_dump, wait_until};
use scope_testkit::oracle::{self, difference};
use std::time::Duration;

const SECOND: i64 = 1_000_000_000;

/// Starts a run on traffic without end and waits until it runs.
fn endless(place: &Place, source: &str, more: &[&str]) -> Started {
    let mut arguments = vec!["--source", source];
    arguments.extend(more);
    let started = Started::new(place.command(&arguments));
    let log = place.out().join("wirescope.jsonl");
    wait_until("the log's first line", || std::fs::read_to_string(&log).is_ok_and(|text| text.contains('\n')));
    started
}

fn stop(started: Started, signal: i32) -> Done {
    started.signal(signal);
    let done = started.finish(Duration::from_secs(10));
    assert!(done.took < Duration::from_secs(2), "took {:?} to stop", done.took);
    done
}

fn assert_whole_files_only(place: &Place) -> usize {
    let dumps: Vec<String> = place.out_names().into_iter().filter(|name| is_finished_dump(name)).collect();
    for name in &dumps {
        oracle::read(place.out().join(name)).unwrap();
    }
    dumps.len()
}

#[test]
fn a_signal_stops_the_run_and_closes_the_dump_in_progress() {
    for signal in [libc::SIGINT, libc::SIGTERM] {
        let place = Place::new();
        let trigger = ["--trigger", "hit=udp port 60000", "--dump", "ip", "--before", "10s", "--after", "60s"];
        let started = endless(&place, "synth:rate=10k,flows=100,seed=3,trigger-at=500ms", &trigger);
        std::thread::sleep(Duration::from_millis(1500));
        let done = stop(started, signal);
        assert_eq!(done.code(), Some(0), "signal {signal}: {}", done.stderr);
        let summary = done.summary();
        summary.assert_adds_up();
        let dump = summary.only_dump();
        // A start and a signal inside the window are no loss.
        assert!(dump.complete && dump.lost_max == 0, "{dump:?}");
        assert!(dump.to_ns < dump.time_ns + 30 * SECOND && dump.from_ns > dump.time_ns - 10 * SECOND, "{dump:?}");
        let found = oracle::read(&dump.path).unwrap().capture;
        assert_eq!(found.packets.len() as u64, summary.received.packets, "everything is IP and inside the window");
        assert_eq!(assert_whole_files_only(&place), 1);
        oracle::opens_cleanly(&dump.path).unwrap();
    }
}

#[test]
fn a_second_signal_ends_at_once_and_leaves_whole_files_only() {
    for pause_ms in [0, 1, 10, 220, 260] {
        let place = Place::new();
        let trigger = ["--trigger", "hit=udp", "--dump", "ip", "--after", "200ms", "--holdoff", "0", "--before", "10s"];
        let started = endless(&place, "synth:rate=20k,flows=100,size=1000", &trigger);
        std::thread::sleep(Duration::from_millis(700));
        started.signal(libc::SIGINT);
        std::thread::sleep(Duration::from_millis(pause_ms));
        stop(started, libc::SIGINT);
        assert_whole_files_only(&place);
    }
}

/// Who signals a process and then its group, as `timeout` does, means one stop.
#[test]
fn signals_that_come_close_together_are_one_stop() {
    for pause_us in [50, 1_000, 20_000] {
        let place = Place::new();
        let started = endless(&place, "synth:rate=20k", &["--trigger", "hit=udp", "--after", "200ms", "--before", "1s"]);
        std::thread::sleep(Duration::from_millis(300));
        started.signal(libc::SIGINT);
        std::thread::sleep(Duration::from_micros(pause_us));
        let done = stop(started, libc::SIGTERM);
        assert_eq!(done.code(), Some(0), "{}", done.stderr);
        done.summary().assert_adds_up();
    }
}

#[test]
fn without_triggers_a_manual_fire_dumps_the_last_of_everything() {
    let place = Place::new();
    let ring = place.path("ring.pcapng");
    let more = ["--before", "1s", "--after", "300ms", "--ring-out", ring.to_str().unwrap()];
    let started = endless(&place, "synth:rate=10k,flows=100,vlan=20%", &more);
    std::thread::sleep(Duration::from_millis(1600));
    started.signal(libc::SIGUSR1);
    wait_until("the dump", || place.out_names().iter().any(|name| is_finished_dump(name)));
    let done = stop(started, libc::SIGINT);
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    let summary = done.summary();
    let dump = summary.only_dump();
    // The last of everything: whether what comes after the fire belongs to it is left open.
    let (from_ns, to_ns) = (dump.time_ns - SECOND, dump.to_ns);
    assert!(to_ns == dump.time_ns || to_ns == dump.time_ns + SECOND * 3 / 10, "{dump:?}");
    assert_eq!((dump.from_ns, dump.complete), (from_ns, true), "{dump:?}");
    let mut everything = oracle::read(&ring).unwrap().capture;
    assert_eq!(everything.packets.len() as u64, summary.stored.packets);
    everything.packets.retain(|packet| (from_ns..=to_ns).contains(&packet.time_ns));
    everything.packets.sort_by_key(|packet| packet.time_ns);
    assert_eq!(difference(&everything, &oracle::read(&dump.path).unwrap().capture), None);
    assert!(dump.packets > 9_000, "{dump:?}");
}

#[test]
fn a_manual_fire_fires_every_armed_trigger() {
    let place = Place::new();
    let more = [
        "--trigger",
        "never=udp port 9",
        "--dump",
        "host $srcIP",
        "--trigger",
        "single=udp port 60000",
        "--dump",
        "udp port 60000",
        "--trigger",
        "nor=tcp port 9",
        "--dump",
        "udp",
        "--before",
        "1s",
        "--after",
        "200ms",
    ];
    let started = endless(&place, "synth:rate=5k,flows=100", &more);
    std::thread::sleep(Duration::from_millis(1200));
    started.signal(libc::SIGUSR1);
    wait_until("three dumps", || place.out_names().iter().filter(|name| is_finished_dump(name)).count() >= 3);
    let done = stop(started, libc::SIGINT);
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    let summary = done.summary();
    let triggers: Vec<&str> = summary.dumps.iter().map(|dump| dump.trigger.as_str()).collect();
    assert_eq!(triggers.len(), 3, "{triggers:?}");
    for name in ["never", "single", "nor"] {
        assert!(triggers.contains(&name), "{triggers:?}");
        assert_eq!(summary.hits[name].fired, 1, "{name}: {summary:?}");
    }
    // A template with names takes everything, since no packet fills it.
    let of = |name: &str| summary.dumps.iter().find(|dump| dump.trigger == name).unwrap();
    assert!(of("never").packets > 4000, "{:?}", of("never"));
    assert_eq!(of("single").packets, 0);
    assert!(oracle::read(&of("single").path).unwrap().capture.packets.is_empty());
    oracle::opens_cleanly(&of("single").path).unwrap();
}

#[test]
fn a_single_trigger_that_has_fired_is_not_fired_by_hand() {
    let place = Place::new();
    let more = ["--trigger", "hit=udp port 60000", "--single", "--before", "1s", "--after", "100ms"];
    let started = endless(&place, "synth:rate=5k,flows=100,trigger-at=300ms", &more);
    wait_until("the dump", || place.out_names().iter().any(|name| is_finished_dump(name)));
    started.signal(libc::SIGUSR1);
    std::thread::sleep(Duration::from_millis(700));
    let summary = stop(started, libc::SIGINT).summary();
    assert_eq!((summary.dumps.len(), summary.hits["hit"].fired), (1, 1), "{summary:?}");
}

#[test]
fn a_dump_ends_by_the_clock_though_the_traffic_has_stopped() {
    let place = Place::new();
    // One packet a second, so the next packet comes long after the window has ended.
    let more = ["--trigger", "hit=udp port 60000", "--dump", "ip", "--before", "1s", "--after", "200ms"];
    let started = endless(&place, "synth:rate=1,flows=1,trigger-at=100ms", &more);
    wait_until("the dump", || place.out_names().iter().any(|name| is_finished_dump(name)));
    let summary = stop(started, libc::SIGINT).summary();
    assert!(summary.only_dump().complete, "{summary:?}");
}
