//! Runs that capture through libpcap: their interface in summary and log, and what becomes of the run when it
//! is removed.
//!
//! Needs root; says so and passes without it, except in CI.

mod live_lab;
mod run;

use live_lab::{Live, assert_nothing_lost, counted, mixed_frames, stop};
use run::{Done, finish, wait_until, wirescope};
use scope_testkit::lab::RawSender;
use serde_json::Value;
use std::time::Duration;

/// The events that the log has of `interface`, in their order.
fn events(live: &Live, interface: &str) -> Vec<Value> {
    let log = std::fs::read_to_string(live.place.out().join("wirescope.jsonl")).unwrap();
    let events = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    events.filter(|event| event["event"] == "interface" && event["interface"] == interface).collect()
}

fn states(live: &Live, interface: &str) -> Vec<String> {
    events(live, interface).iter().map(|event| event["state"].as_str().unwrap().to_string()).collect()
}

fn wait_for_state(live: &Live, interface: &str, state: &str) {
    wait_until(&format!("{interface} {state}"), || states(live, interface).iter().any(|told| told == state));
}

/// Name, offered, received, kernel-dropped and waiting packets of each interface in the summary.
fn books(done: &Done) -> Vec<(String, [u64; 4])> {
    let summary: Value = serde_json::from_str(&done.stdout).expect("JSON");
    let interfaces = summary["interfaces"].as_array().expect("an array 'interfaces'");
    let number = |entry: &Value, key: &str| entry[key].as_u64().expect("a number");
    interfaces
        .iter()
        .map(|entry| {
            let numbers = ["offered", "received", "kernel_dropped", "waiting"].map(|key| number(entry, key));
            (entry["interface"].as_str().unwrap().to_string(), numbers)
        })
        .collect()
}

#[test]
fn libpcap_s_interface_stands_in_the_summary_and_its_changes_in_the_log() {
    let Some(live) = Live::or_skip() else { return };
    let started = live.start(&["--source", "pcap:vb"]);
    let frames = mixed_frames(5, 100);
    live.sender().send(&frames).unwrap();
    live.lab.b().ip(&["link", "set", "vb", "down"]).unwrap();
    wait_for_state(&live, "vb", "down");
    live.lab.b().ip(&["link", "set", "vb", "up"]).unwrap();
    wait_for_state(&live, "vb", "up");
    live.wait_for_link();
    live.sender().send(&frames).unwrap();
    let done = stop(started);
    assert_nothing_lost(&done.summary(), 200);
    assert_eq!(books(&done), [("vb".to_string(), [200, 200, 0, 0])]);
    assert_eq!(states(&live, "vb"), ["down", "up"]);
    assert!(done.stderr.contains("vb went down; waiting for it"), "{}", done.stderr);
}

#[test]
fn without_rights_libpcap_s_source_ends_when_its_interface_is_removed_and_the_others_go_on() {
    let Some(live) = Live::or_skip() else { return };
    live.lab.another_link().unwrap();
    let started = live.start(&["--source", "pcap:vb", "--source", "afpacket:vb1"]);
    let (first, second) = (mixed_frames(1, 500), mixed_frames(2, 300));
    live.sender().send(&first).unwrap();
    live.lab.b().ip(&["link", "del", "vb"]).unwrap();
    wait_for_state(&live, "vb", "refused");
    RawSender::open(live.lab.a(), "va1").unwrap().send(&second).unwrap();
    std::thread::sleep(Duration::from_millis(300));
    // While the run goes on, doctor says what no longer does.
    let doctor = finish(wirescope(&["doctor", "--json", "--out", live.place.out().to_str().unwrap()]));
    let found: Value = serde_json::from_str(&doctor.stdout).unwrap();
    let lost = found["findings"].as_array().unwrap().iter().find(|finding| finding["kind"] == "not_captured");
    let lost = lost.unwrap_or_else(|| panic!("{found:#}"));
    assert!(lost["cause"].as_str().unwrap().contains("interface 'vb' was removed"), "{lost}");
    assert!(lost["remedies"][0].as_str().unwrap().contains("--source 'afpacket:vb,spare=1'"), "{lost}");
    started.signal(libc::SIGINT);
    let done = started.finish(run::LIMIT);
    assert_eq!(done.code(), Some(1), "{}", done.stderr);
    assert_eq!(
        states(&live, "vb").into_iter().filter(|state| state != "down").collect::<Vec<_>>(),
        ["gone", "refused"]
    );
    assert!(done.stdout.contains("source failed: interface 'vb' was removed"), "{}", done.stdout);
    assert!(done.stderr.contains("libpcap can't capture it again"), "{}", done.stderr);
    assert_eq!(books(&done), [("vb".to_string(), [500, 500, 0, 0]), ("vb1".to_string(), [300, 300, 0, 0])]);
    let ring = live.ring();
    for (name, frames) in [("vb", &first), ("vb1", &second)] {
        let of_it = ring.packets.iter().filter(|packet| ring.interfaces[packet.interface].name == name);
        assert!(counted(of_it.map(|packet| &packet.data)) == counted(frames), "{name}");
    }
}

#[test]
fn without_rights_a_run_whose_only_interface_libpcap_has_lost_ends_with_exit_code_1() {
    let Some(live) = Live::or_skip() else { return };
    let started = live.start(&["--source", "pcap:vb"]);
    live.sender().send(&mixed_frames(1, 500)).unwrap();
    live.lab.b().ip(&["link", "del", "vb"]).unwrap();
    let done = started.finish(run::LIMIT);
    assert_eq!(done.code(), Some(1), "{}", done.stderr);
    assert!(done.stdout.contains("source failed: interface 'vb' was removed"), "{}", done.stdout);
    assert_eq!(books(&done), [("vb".to_string(), [500, 500, 0, 0])]);
    assert_eq!(live.ring().packets.len(), 500);
}
