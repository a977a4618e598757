//! What a live dump says of how things stood: host, clock, where times come from, what the interface counted
//! around its window.
//!
//! Needs root; says so and passes without it, except in CI.

mod live_lab;
mod run;

use live_lab::{Live, hit_frame, mixed_frames};
use run::wait_until;
use scope_testkit::oracle::{self, every_tool_copies};
use serde_json::Value;

#[test]
fn a_live_dump_states_the_interface_s_counters_at_both_ends_of_its_window() {
    let Some(live) = Live::or_skip() else { return };
    let orders = ["--trigger", "hit=udp port 60000", "--dump", "", "--before", "100ms", "--after", "10s"];
    let started = live.start(&[&["--source", "afpacket:vb"], &orders[..]].concat());
    let log = live.place.out().join("wirescope.jsonl");
    let sampled = || std::fs::read_to_string(&log).is_ok_and(|text| text.contains("\"event\":\"status\""));
    wait_until("the first look at the counters", sampled);
    let frames = mixed_frames(1, 500);
    live.sender().send(&frames).unwrap();
    live.sender().send(&[hit_frame(&[])]).unwrap();
    live.wait_for_dumps(1);
    started.signal(libc::SIGINT);
    let done = started.finish(run::LIMIT);
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    let summary: Value = serde_json::from_str(&done.stdout).unwrap();
    let dump = &summary["dumps"][0];
    assert_eq!(dump["times"], serde_json::json!(["kernel"]));
    let counters = &dump["counters"][0];
    assert_eq!(counters["interface"], "vb", "{dump}");
    let count = |end: &str, name: &str| {
        counters[end][name].as_u64().unwrap_or_else(|| panic!("{end} {name}: {counters}"))
    };
    for name in ["offered", "received", "kernel_dropped", "rx_packets"] {
        assert!(count("begin", name) <= count("end", name), "{counters}");
    }
    let sent = frames.len() as u64 + 1;
    assert!(count("end", "offered") >= sent && count("end", "rx_packets") >= sent, "{counters}");
    assert_eq!(count("end", "kernel_dropped"), 0);
    let path = dump["path"].as_str().unwrap();
    let file = oracle::read(path).unwrap();
    let facts = &file.comments[0];
    let lines = facts
        .lines()
        .filter(|line| line.starts_with("counters of vb at ") && line.contains(": offered "))
        .count();
    assert_eq!(lines, 2, "{facts}");
    assert!(
        facts.contains("\ntimes: by the kernel of this host (kernel)\n") && facts.contains("\nclock: "),
        "{facts}"
    );
    assert_eq!(file.packet_comments.len(), 1, "{:?}", file.packet_comments);
    every_tool_copies(path.as_ref()).unwrap();
}
