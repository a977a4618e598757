//! Ends and pauses of live runs: by signal, by the clock, by hand, and an interface that goes away for a
//! while.
//!
//! Needs root; says so and passes without it, except in CI.

mod live_lab;
mod run;

use live_lab::{Live, OFTEN, assert_holds, hit_frame, mixed_frames, now_ns, stop, stop_complete};
use run::{Place, wait_until};
use scope_testkit::oracle::{self, difference};
use serde_json::Value;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const SECOND: i64 = 1_000_000_000;

#[test]
fn what_was_sent_just_before_the_end_is_not_missing() {
    for round in 0..4 {
        let Some(live) = Live::or_skip() else { return };
        let workers = round % 2 + 1;
        let started = live.start(&["--source", &format!("afpacket:vb,workers={workers}")]);
        let frames = mixed_frames(round, 3000);
        live.sender().send(&frames).unwrap();
        stop_complete(started, frames.len());
        assert_holds(&live.ring(), &frames);
    }
}

#[test]
fn a_run_that_is_stopped_amid_traffic_takes_all_that_the_kernel_had_for_it() {
    let (begun, mut amid) = (Instant::now(), 0); // rounds that were stopped while packets came: the sender may be off its core just then
    for round in 0.. {
        if round >= 5 && amid > 0 {
            break;
        }
        assert!(begun.elapsed() < 2 * run::LIMIT, "the tail is missing in {round} rounds");
        let Some(live) = Live::or_skip() else { return };
        let started = live.start(&["--source", "afpacket:vb"]);
        let frames = mixed_frames(round, 200_000);
        let (sent, ended) = (AtomicUsize::new(0), AtomicBool::new(false));
        let send = || {
            let sender = live.sender();
            // All of them take most of a minute.
            for part in frames.chunks(4).take_while(|_| !ended.load(Ordering::Relaxed)) {
                sender.send(part).unwrap();
                sent.fetch_add(part.len(), Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(1));
            }
        };
        let (done, stopped_ns) = std::thread::scope(|scope| {
            scope.spawn(send);
            wait_until("packets", || sent.load(Ordering::Relaxed) > 2000);
            let stopped_ns = now_ns();
            let done = stop(started);
            ended.store(true, Ordering::Relaxed);
            (done, stopped_ns)
        });
        let ring = live.ring();
        let received = ring.packets.len();
        assert!(received > 2000 && received < frames.len(), "{received} received");
        assert_holds(&ring, &frames[..received]);
        amid += u32::from(ring.packets[received - 1].time_ns >= stopped_ns);
        live_lab::assert_nothing_lost(&done.summary(), received);
        live_lab::assert_offered(&done, received);
    }
}

#[test]
fn what_waits_in_the_kernel_at_the_end_is_taken() {
    let Some(live) = Live::or_skip() else { return };
    let started = live.start(&["--source", "afpacket:vb,workers=2"]);
    let frames = mixed_frames(1, 20_000);
    started.signal(libc::SIGSTOP);
    live.sender().send(&frames).unwrap();
    started.signal(libc::SIGINT);
    started.signal(libc::SIGCONT);
    let done = started.finish(run::LIMIT);
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    live_lab::assert_nothing_lost(&done.summary(), frames.len());
    assert_holds(&live.ring(), &frames);
}

#[test]
fn a_dump_that_is_open_at_the_end_holds_what_was_sent_just_before() {
    let Some(live) = Live::or_skip() else { return };
    let orders =
        ["--trigger", "hit=udp port 60000", "--dump", "ip or ip6", "--before", "10s", "--after", "60s"];
    let started = live.start(&[&["--source", "afpacket:vb,workers=2"], &orders[..]].concat());
    let mut frames = mixed_frames(1, 3000);
    frames.insert(1000, hit_frame(&[]));
    live.sender().send(&frames).unwrap();
    let summary = stop_complete(started, frames.len());
    let found = live.check_only_dump(&summary, "ip or ip6", &hit_frame(&[]));
    assert_eq!(found.packets.len(), frames.len());
    oracle::opens_cleanly(&summary.only_dump().path).unwrap();
}

#[test]
fn a_window_ends_by_the_clock_though_traffic_stops() {
    for workers in ["afpacket:vb", "afpacket:vb,workers=2"] {
        let Some(live) = Live::or_skip() else { return };
        let orders = ["--trigger", "hit=udp port 60000", "--dump", "ip or ip6", "--after", "1s"];
        let started = live.start(&[&["--source", workers], &orders[..]].concat());
        let frames = [mixed_frames(1, 100), vec![hit_frame(&[])]].concat();
        let begun = Instant::now();
        live.sender().send(&frames).unwrap();
        live.wait_for_dumps(1);
        assert!(begun.elapsed() >= Duration::from_millis(950), "finished after {:?}", begun.elapsed());
        let summary = stop_complete(started, frames.len());
        let found = live.check_only_dump(&summary, "ip or ip6", &hit_frame(&[]));
        assert_eq!(found.packets.len(), frames.len());
        let dump = summary.only_dump();
        assert_eq!(dump.to_ns, dump.time_ns + SECOND, "the run listened to the window's end");
    }
}

#[test]
fn a_window_ends_by_the_clock_though_its_interface_is_gone() {
    for gone in [&["link", "set", "vb", "down"][..], &["link", "del", "vb"]] {
        let Some(live) = Live::or_skip() else { return };
        let orders = ["--trigger", "hit=udp port 60000", "--dump", "ip or ip6", "--after", "500ms"];
        let started = live.start(&[&["--source", "afpacket:vb,workers=2"], &orders[..]].concat());
        let frames = [mixed_frames(1, 100), vec![hit_frame(&[])]].concat();
        live.sender().send(&frames).unwrap();
        live.lab.b().ip(gone).unwrap();
        live.wait_for_dumps(1);
        started.signal(libc::SIGINT);
        let summary = started.finish(run::LIMIT).summary();
        live_lab::assert_nothing_lost(&summary, frames.len());
        assert_holds(&live.check_only_dump(&summary, "ip or ip6", &hit_frame(&[])), &frames);
    }
}

#[test]
fn a_run_with_a_number_of_dumps_ends_by_itself_after_them() {
    let Some(live) = Live::or_skip() else { return };
    let orders =
        ["--trigger", "hit=udp port 60000", "--after", "200ms", "--holdoff", "0", "--exit-after", "2"];
    let started = live.start(&[&["--source", "afpacket:vb,workers=2"], &orders[..]].concat());
    live.sender().send(&[hit_frame(&[])]).unwrap();
    live.wait_for_dumps(1);
    live.sender().send(&[hit_frame(&[])]).unwrap();
    let done = started.finish(run::LIMIT);
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    let summary = done.summary();
    assert_eq!((summary.dumps.len(), summary.hits["hit"].fired), (2, 2));
    assert!(summary.dumps.iter().all(|dump| dump.lost_nothing()), "{summary:?}");
}

#[test]
fn a_fire_by_hand_dumps_the_last_of_everything() {
    run::with_enough_time(Duration::from_secs(3), |before| {
        let Some(live) = Live::or_skip() else { return Some(()) };
        fire_by_hand(&live, before)
    });
}

/// Fires by hand when what was sent before is older than a dump goes back; `None`: so was, on a busy machine,
/// what was sent then.
fn fire_by_hand(live: &Live, before: Duration) -> Option<()> {
    let before_ns = before.as_nanos() as i64;
    let started = live.start(
        &[
            &["--source", "afpacket:vb,workers=2", "--before", &format!("{}ms", before.as_millis())],
            &OFTEN[..],
        ]
        .concat(),
    );
    let (old, new) = (mixed_frames(1, 500), mixed_frames(2, 700));
    live.sender().send(&old).unwrap();
    live.wait_for_packets(old.len());
    std::thread::sleep(before + Duration::from_millis(200));
    let began_ns = now_ns();
    live.sender().send(&new).unwrap();
    live.wait_for_packets(old.len() + new.len());
    let fired_ns = now_ns();
    started.signal(libc::SIGUSR1);
    live.wait_for_dumps(1);
    let seen_ns = now_ns();
    let summary = stop_complete(started, old.len() + new.len());
    if seen_ns >= began_ns + before_ns {
        return None;
    }
    let dump = summary.only_dump();
    // The run's clock is a few ms behind the wall's, on a busy machine more.
    assert!((fired_ns - SECOND..=seen_ns).contains(&dump.time_ns), "{dump:?}, fired at {fired_ns}");
    assert_eq!((dump.from_ns, dump.lost_nothing()), (dump.time_ns - before_ns, true), "{dump:?}");
    let mut expected = live.ring();
    expected.packets.retain(|packet| (dump.from_ns..=dump.to_ns).contains(&packet.time_ns));
    let found = oracle::read(&dump.path).unwrap().capture;
    assert_eq!(difference(&expected, &found), None);
    assert_holds(&found, &new);
    oracle::opens_cleanly(&dump.path).unwrap();
    Some(())
}

#[test]
fn a_fire_by_hand_on_a_quiet_link_is_a_dump_at_once() {
    let Some(live) = Live::or_skip() else { return };
    let orders = ["--trigger", "never=udp port 9", "--before", "200ms", "--after", "1h"];
    let started = live.start(&[&["--source", "afpacket:vb"], &orders[..]].concat());
    let (old, new) = (mixed_frames(1, 50), mixed_frames(2, 70));
    live.sender().send(&old).unwrap();
    std::thread::sleep(Duration::from_millis(1500));
    started.signal(libc::SIGUSR1);
    live.wait_for_dumps(1);
    live.sender().send(&new).unwrap();
    let summary = stop_complete(started, old.len() + new.len());
    assert_eq!((summary.hits["manual"].fired, summary.hits["never"].sum()), (1, 0));
    let dump = summary.only_dump();
    assert!(dump.lost_nothing() && dump.to_ns - dump.from_ns <= SECOND / 5, "{dump:?}");
}

#[test]
fn an_interface_that_goes_down_is_waited_for() {
    for workers in ["afpacket:vb", "afpacket:vb,workers=2"] {
        let Some(live) = Live::or_skip() else { return };
        let started = live.start(&["--source", workers]);
        let (before, after) = (mixed_frames(1, 200), mixed_frames(2, 300));
        live.sender().send(&before).unwrap();
        live.lab.b().ip(&["link", "set", "vb", "down"]).unwrap();
        live.wait_for_words("\"state\":\"down\"");
        live.lab.b().ip(&["link", "set", "vb", "up"]).unwrap();
        live.wait_for_words("\"state\":\"up\"");
        live.wait_for_link();
        live.sender().send(&after).unwrap();
        let done = stop(started);
        live_lab::assert_nothing_lost(&done.summary(), before.len() + after.len());
        assert_holds(&live.ring(), &[before, after].concat());
        let summary: Value = serde_json::from_str(&done.stdout).unwrap();
        let told = summary["warnings"].to_string();
        for words in ["interface vb went down", "interface vb is up again"] {
            assert!(done.stderr.contains(words), "{words}: {}", done.stderr);
            assert!(told.contains(words), "{words}: {told}");
        }
    }
}

#[test]
fn an_interface_that_is_down_at_the_start_is_waited_for() {
    let Some(live) = Live::or_skip() else { return };
    live.lab.b().ip(&["link", "set", "vb", "down"]).unwrap();
    let started = live.start(&["--source", "afpacket:vb,workers=2"]);
    std::thread::sleep(Duration::from_millis(100));
    live.lab.b().ip(&["link", "set", "vb", "up"]).unwrap();
    live.wait_for_link();
    let frames = mixed_frames(1, 200);
    live.sender().send(&frames).unwrap();
    let done = stop(started);
    live_lab::assert_nothing_lost(&done.summary(), frames.len());
    assert_holds(&live.ring(), &frames);
    assert!(done.stderr.contains("interface vb is down; waiting for it"), "{}", done.stderr);
}

#[test]
fn an_interface_that_is_removed_is_told_and_the_other_one_is_captured_on() {
    let Some(live) = Live::or_skip() else { return };
    let (_, other) = live.lab.another_link().unwrap();
    let orders = ["--trigger", "hit=udp port 60000", "--dump", "ip or ip6", "--after", "300ms"];
    let other_source = format!("afpacket:{other}");
    let started =
        live.start(&[&["--source", "afpacket:vb", "--source", &other_source], &orders[..]].concat());
    let frames = [mixed_frames(1, 200), vec![hit_frame(&[])], mixed_frames(2, 200)].concat();
    live.sender().send(&frames[..100]).unwrap();
    live.lab.b().ip(&["link", "del", &other]).unwrap();
    live.wait_for_words("\"state\":\"gone\"");
    live.sender().send(&frames[100..]).unwrap();
    // The window ends, though one of the two workers has nothing to tell the time by.
    live.wait_for_dumps(1);
    let done = stop(started);
    assert!(done.stderr.contains(&other) && done.stderr.contains("removed"), "{}", done.stderr);
    let summary = done.summary();
    live_lab::assert_nothing_lost(&summary, frames.len());
    assert_holds(&live.check_only_dump(&summary, "ip or ip6", &hit_frame(&[])), &frames);
}

#[test]
fn a_link_without_traffic_leaves_a_whole_ring_and_an_empty_count() {
    let Some(live) = Live::or_skip() else { return };
    let started = live.start(&["--source", "afpacket:vb,workers=2"]);
    std::thread::sleep(Duration::from_millis(200));
    let summary = stop_complete(started, 0);
    assert!(summary.dumps.is_empty());
    oracle::opens_cleanly(&live.ring_path()).unwrap();
    assert!(live.ring().packets.is_empty());
    assert_eq!(Place::out_names(&live.place), ["wirescope.jsonl"]);
}
