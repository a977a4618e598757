//! What the kernel lost while the run could not keep up: counted exactly, stated in the dump, told by the
//! exit code.
//!
//! Needs root; says so and passes without it, except in CI.

mod live_lab;
mod run;

use live_lab::{Live, OFTEN, hit_frame, mixed_frames};
use run::Done;
use scope_testkit::oracle;
use scope_testkit::traffic::frame;
use serde_json::Value;
use std::time::Duration;

/// More than the kernel keeps for one worker that does not come to fetch it: 64 MiB.
const FLOOD: usize = 60_000;

/// Long frames without addresses: of one kind, so that one worker gets them all.
fn flood() -> Vec<Vec<u8>> {
    (0..FLOOD as u32)
        .map(|number| {
            frame::ethernet(&[], frame::EXPERIMENT, &[&number.to_be_bytes()[..], &[0x5a; 1400]].concat())
        })
        .collect()
}

/// Packets that the kernel dropped, in the summary.
fn kernel_dropped(done: &Done) -> u64 {
    let summary: Value = serde_json::from_str(&done.stdout).expect("JSON");
    let sources = summary["sources"].as_array().expect("an array 'sources'");
    sources.iter().map(|source| source["kernel_dropped"].as_u64().expect("a number")).sum()
}

#[test]
fn what_the_kernel_lost_is_counted_exactly_and_a_dump_that_may_miss_it_says_so() {
    let Some(live) = Live::or_skip() else { return };
    let orders = [
        "--trigger",
        "hit=udp port 60000",
        "--dump",
        "ip or ip6 or not ip",
        "--after",
        "5m",
        "--ring",
        "160MiB",
    ];
    let started = live.start(&[&["--source", "afpacket:vb"], &orders[..], &OFTEN].concat());
    let sender = live.sender();
    let (before, flood, after) = (mixed_frames(1, 500), flood(), mixed_frames(2, 500));
    let sent = (before.len() + 1 + flood.len() + after.len()) as u64;
    sender.send(&before).unwrap();
    sender.send(&[hit_frame(&[])]).unwrap();
    live.wait_for_packets(before.len() + 1);
    started.stand_still();
    sender.send(&flood).unwrap();
    started.signal(libc::SIGCONT);
    live.wait_for_packets(before.len() + 1 + flood.len());
    sender.send(&after).unwrap();
    started.signal(libc::SIGINT);
    let done = started.finish(run::LIMIT);

    let summary = done.summary();
    let lost = kernel_dropped(&done);
    assert!(lost > 0, "the test did not overrun the kernel's ring");
    assert_eq!(summary.received.packets + lost, sent, "{summary:?}");
    assert_eq!(summary.dropped["kernel"], lost);
    let dump = summary.only_dump();
    let found = oracle::read(&dump.path).unwrap();
    assert_eq!(found.capture.packets.len() as u64, sent - lost, "all was inside the window");
    assert!(!dump.complete && dump.lost_min <= lost && lost <= dump.lost_max, "{lost} lost: {dump:?}");
    let marked: u64 = found.capture.packets.iter().map(|packet| packet.lost_before).sum();
    assert_eq!(marked, lost, "the first packet after a loss says how many are missing");
    let stated: u64 = found.statistics.iter().filter_map(|statistics| statistics.dropped).sum();
    assert_eq!(stated, lost, "{:?}", found.statistics);
    assert_eq!(done.code(), Some(1), "{}", done.stderr);
    oracle::opens_cleanly(&dump.path).unwrap();
}

#[test]
fn dumps_from_before_and_after_a_loss_are_complete() {
    let Some(live) = Live::or_skip() else { return };
    let orders =
        ["--trigger", "hit=udp port 60000", "--before", "300ms", "--after", "200ms", "--holdoff", "0"];
    let started = live
        .start(&[&["--source", "afpacket:vb,workers=2", "--ring", "160MiB"], &orders[..], &OFTEN].concat());
    let sender = live.sender();
    sender.send(&[hit_frame(&[])]).unwrap();
    live.wait_for_dumps(1);
    started.stand_still();
    sender.send(&flood()).unwrap();
    started.signal(libc::SIGCONT);
    live.wait_for_packets(1 + FLOOD);
    std::thread::sleep(Duration::from_millis(1000)); // more than a window's past
    sender.send(&[hit_frame(&[])]).unwrap();
    live.wait_for_dumps(2);
    started.signal(libc::SIGINT);
    let done = started.finish(run::LIMIT);
    assert!(kernel_dropped(&done) > 0, "the test did not overrun the kernel's ring");
    let summary = done.summary();
    assert_eq!(summary.dumps.len(), 2);
    for dump in &summary.dumps {
        assert!(dump.lost_nothing(), "{dump:?}");
    }
    assert_eq!(done.code(), Some(0), "no dump misses anything: {}", done.stderr);
}
