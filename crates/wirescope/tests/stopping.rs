//! Signals: a run that is stopped closes its dumps and says what it did; one that is stopped twice leaves
//! whole files only.

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
    wait_until("the log's first line", || {
        std::fs::read_to_string(&log).is_ok_and(|text| text.contains('\n'))
    });
    started
}

fn stop(started: Started, signal: i32) -> Done {
    started.signal(signal);
    started.finish(run::LIMIT)
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
        let trigger =
            ["--trigger", "hit=udp port 60000", "--dump", "ip", "--before", "10s", "--after", "60s"];
        let started = endless(&place, "synth:rate=10k,flows=100,seed=3,trigger-at=500ms", &trigger);
        let log = place.out().join("wirescope.jsonl");
        wait_until("the hit", || {
            std::fs::read_to_string(&log).is_ok_and(|text| text.contains("\"fired\":1"))
        });
        let done = stop(started, signal);
        assert_eq!(done.code(), Some(0), "signal {signal}: {}", done.stderr);
        let summary = done.summary();
        summary.assert_adds_up();
        let dump = summary.only_dump();
        // A start and a signal inside the window are no loss.
        assert!(dump.lost_nothing(), "{dump:?}");
        assert!(
            dump.to_ns < dump.time_ns + 30 * SECOND && dump.from_ns > dump.time_ns - 10 * SECOND,
            "{dump:?}"
        );
        let found = oracle::read(&dump.path).unwrap().capture;
        assert_eq!(
            found.packets.len() as u64,
            summary.received.packets,
            "everything is IP and inside the window"
        );
        assert_eq!(assert_whole_files_only(&place), 1);
        oracle::opens_cleanly(&dump.path).unwrap();
    }
}

#[test]
fn a_second_signal_ends_at_once_and_leaves_whole_files_only() {
    for pause_ms in [0, 1, 10, 220, 260] {
        let place = Place::new();
        let trigger =
            ["--trigger", "hit=udp", "--dump", "ip", "--after", "200ms", "--holdoff", "0", "--before", "10s"];
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
    let begin = |place: &Place| {
        let started =
            endless(place, "synth:rate=20k", &["--trigger", "hit=udp", "--dump", "udp", "--after", "200ms"]);
        std::thread::sleep(Duration::from_millis(300));
        started
    };
    // Both wait for the run: nobody comes between them.
    let place = Place::new();
    let started = begin(&place);
    started.stand_still();
    started.signal(libc::SIGINT);
    started.signal(libc::SIGTERM);
    let done = stop(started, libc::SIGCONT);
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    done.summary().assert_adds_up();
    // On a busy machine one may be taken long after the other: then they are two.
    const ROUNDS: usize = 20;
    for pause_us in [50, 1_000, 20_000] {
        let is_one = || {
            let place = Place::new();
            let started = begin(&place);
            started.signal(libc::SIGINT);
            std::thread::sleep(Duration::from_micros(pause_us));
            let done = stop(started, libc::SIGTERM);
            assert!(matches!(done.code(), Some(0 | 1)), "{}", done.stderr);
            if done.code() == Some(0) {
                done.summary().assert_adds_up();
            }
            done.code() == Some(0)
        };
        assert!((0..ROUNDS).any(|_| is_one()), "{pause_us} us apart they are two, {ROUNDS} times");
    }
}

#[test]
fn a_fire_by_hand_is_one_dump_of_everything_at_once_whatever_triggers_there_are_and_disarms_none() {
    let never = ["--trigger", "never=udp port 9", "--dump", "host $srcIP", "--single", "--exit-after", "9"];
    let full =
        ["--trigger", "full=udp", "--dump", "udp", "--after", "1h", "--dumps-max", "1", "--exit-after", "9"];
    for (triggers, dumps) in [(&[][..], 1), (&never[..], 1), (&full[..], 2)] {
        let place = Place::new();
        let ring = place.path("ring.pcapng");
        let more = ["--before", "1s", "--ring-out", ring.to_str().unwrap()];
        // Slow enough that the ring holds all of it to the end.
        let often = ["--status-every", "1s"];
        let started =
            endless(&place, "synth:rate=2k,flows=100,vlan=20%", &[&more, triggers, &often[..]].concat());
        let received = |line: &str| {
            serde_json::from_str::<serde_json::Value>(line).ok()?["received"]["packets"].as_u64()
        };
        wait_until("two seconds of traffic", || {
            place.log().lines().filter_map(received).any(|packets| packets >= 4000)
        });
        started.signal(libc::SIGUSR1);
        wait_until("the dump", || {
            place.out_names().iter().any(|name| is_finished_dump(name) && name.contains("_manual_"))
        });
        let done = stop(started, libc::SIGINT);
        let summary = done.summary();
        assert_eq!((summary.dumps.len(), summary.hits["manual"].fired), (dumps, 1), "{summary:?}");
        let dump = summary.dumps.iter().find(|dump| dump.trigger == "manual").unwrap();
        assert_eq!(
            (dump.to_ns, dump.from_ns, dump.lost_nothing()),
            (dump.time_ns, dump.time_ns - SECOND, true),
            "{dump:?}"
        );
        let mut everything = oracle::read(&ring).unwrap().capture;
        assert_eq!(everything.packets.len() as u64, summary.stored.packets);
        everything.packets.retain(|packet| (dump.from_ns..=dump.to_ns).contains(&packet.time_ns));
        everything.packets.sort_by_key(|packet| packet.time_ns);
        assert_eq!(difference(&everything, &oracle::read(&dump.path).unwrap().capture), None);
        assert!(dump.packets > 1_000, "{dump:?}");
        let others: u64 =
            summary.hits.iter().filter(|(name, _)| *name == "never").map(|(_, hits)| hits.sum()).sum();
        assert_eq!(others, 0, "no trigger was fired, and none was disarmed: {summary:?}");
    }
}

#[test]
fn a_dump_ends_by_the_clock_though_the_traffic_has_stopped() {
    let place = Place::new();
    // One packet a second, so the next packet comes long after the window has ended.
    let more = ["--trigger", "hit=udp port 60000", "--dump", "ip", "--before", "1s", "--after", "200ms"];
    let started = endless(&place, "synth:rate=1,flows=1,trigger-at=100ms", &more);
    wait_until("the dump", || place.out_names().iter().any(|name| is_finished_dump(name)));
    let summary = stop(started, libc::SIGINT).summary();
    assert!(summary.only_dump().lost_nothing(), "{summary:?}");
}
