//! Runs whose interfaces come and go: the run goes on, the log tells, the summary has each interface's books.
//!
//! Needs root; says so and passes without it, except in CI.

mod live_lab;
mod run;

use live_lab::{Live, assert_nothing_lost, counted, hit_frame, mixed_frames, stop};
use run::{Done, wait_until};
use scope_testkit::lab::RawSender;
use serde_json::Value;
use std::time::Duration;

/// The states that the event log tells of `interface`, in their order.
fn states(live: &Live, interface: &str) -> Vec<String> {
    let log = std::fs::read_to_string(live.place.out().join("wirescope.jsonl")).unwrap();
    let events = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let of_it = events.filter(|event| event["event"] == "interface" && event["interface"] == interface);
    of_it.map(|event| event["state"].as_str().unwrap().to_string()).collect()
}

fn wait_for_state(live: &Live, interface: &str, state: &str, times: usize) {
    wait_until(&format!("{interface} {state}"), || states(live, interface).iter().filter(|told| *told == state).count() >= times);
}

/// Name, offered, received and kernel-dropped packets of each interface in the summary; nothing waits.
fn books(done: &Done) -> Vec<(String, u64, u64, u64)> {
    let summary: Value = serde_json::from_str(&done.stdout).expect("JSON");
    let interfaces = summary["interfaces"].as_array().expect("an array 'interfaces'");
    let number = |entry: &Value, key: &str| entry[key].as_u64().expect("a number");
    interfaces
        .iter()
        .map(|entry| {
            assert_eq!(number(entry, "waiting"), 0);
            let name = entry["interface"].as_str().unwrap().to_string();
            (name, number(entry, "offered"), number(entry, "received"), number(entry, "kernel_dropped"))
        })
        .collect()
}

/// Makes `vb` (and `va`, its other end) again after they were removed.
fn make_again(live: &Live) {
    let lab = &live.lab;
    lab.b().ip(&["link", "add", "vb", "arp", "off", "type", "veth", "peer", "name", "va", "netns", lab.a().name()]).unwrap();
}

fn take_up(live: &Live) {
    live.lab.a().ip(&["link", "set", "va", "arp", "off", "up"]).unwrap();
    live.lab.b().ip(&["link", "set", "vb", "up"]).unwrap();
    std::thread::sleep(Duration::from_millis(300)); // until the kernel notices the link
}

#[test]
fn a_run_goes_on_when_its_only_interface_is_removed_and_made_again() {
    for source in ["afpacket:vb", "afpacket:vb,workers=2", "afpacket:v*,workers=0"] {
        let Some(live) = Live::or_skip() else { return };
        let orders = ["--trigger", "hit=udp port 60000", "--dump", "ip or ip6", "--before", "60s", "--after", "200ms"];
        let started = live.start(&[&["--source", source], &orders[..]].concat());
        let lives: Vec<_> = (0..4).map(|seed| mixed_frames(seed, 500)).collect();
        live.sender().send(&lives[0]).unwrap();
        for (round, frames) in lives[1..].iter().enumerate() {
            live.lab.b().ip(&["link", "del", "vb"]).unwrap();
            wait_for_state(&live, "vb", "gone", round + 1);
            std::thread::sleep(Duration::from_millis(100));
            make_again(&live);
            wait_for_state(&live, "vb", "back", round + 1);
            take_up(&live);
            live.sender().send(frames).unwrap();
        }
        live.sender().send(&[hit_frame(&[])]).unwrap();
        live.wait_for_dumps(1);
        let done = stop(started);
        let sent = [lives.concat(), vec![hit_frame(&[])]].concat();
        assert_nothing_lost(&done.summary(), sent.len());
        assert_eq!(books(&done), [("vb".to_string(), sent.len() as u64, sent.len() as u64, 0)]);
        // All its lives are one interface of the dump.
        let found = live.check_only_dump(&done.summary(), "ip or ip6", &hit_frame(&[]));
        assert_eq!(
            found.interfaces.iter().map(|interface| &interface.name[..]).collect::<Vec<_>>(),
            vec!["vb"; found.interfaces.len()]
        );
        assert!(counted(found.packets.iter().map(|packet| &packet.data)) == counted(&sent));
        assert!(
            done.stderr.contains("interface vb was removed") && done.stderr.contains("interface vb is back"),
            "{}",
            done.stderr
        );
    }
}

#[test]
fn every_change_of_an_interface_is_an_event() {
    let Some(live) = Live::or_skip() else { return };
    let started = live.start(&["--source", "afpacket:vb"]);
    let change = |arguments: &[&str], state: &str| {
        live.lab.b().ip(&[&["link", "set", "vb"], arguments].concat()).unwrap();
        wait_for_state(&live, "vb", state, 1);
    };
    change(&["down"], "down");
    change(&["up"], "up");
    change(&["mtu", "9000"], "mtu");
    let done = stop(started);
    assert_eq!(states(&live, "vb"), ["down", "up", "mtu"]);
    for words in ["vb went down", "vb is up again", "vb has an MTU of 9000 bytes now"] {
        assert!(done.stderr.contains(words) && done.stdout.contains(words), "{words}: {}", done.stderr);
    }
}

#[test]
fn one_worker_serves_all_that_match_and_every_packet_has_its_interface() {
    let Some(live) = Live::or_skip() else { return };
    let lab = &live.lab;
    lab.another_link().unwrap();
    let sources = [
        "--source",
        "afpacket:vb,workers=0",
        "--source",
        "afpacket:vb?,workers=0",
        "--source",
        "afpacket:vb1*,workers=0,share=30%",
    ];
    // A question mark is no pattern.
    let refused = run::Started::new(live_lab::inside(lab.b(), &live.place.command(&sources))).finish(run::LIMIT);
    assert_eq!((refused.code(), refused.stderr.contains("no interface 'vb?'")), (Some(2), true), "{}", refused.stderr);
    let started = live.start(&[&sources[..2], &sources[4..]].concat());
    assert!(states(&live, "vb").is_empty());
    // One that matches comes later.
    lab.a().ip(&["link", "add", "va12", "arp", "off", "type", "veth", "peer", "name", "vb12", "netns", lab.b().name()]).unwrap();
    wait_for_state(&live, "vb12", "new", 1);
    lab.a().ip(&["link", "set", "va12", "up"]).unwrap();
    lab.b().ip(&["link", "set", "vb12", "arp", "off", "up"]).unwrap();
    std::thread::sleep(Duration::from_millis(300));
    let ends = [("va", "vb"), ("va1", "vb1"), ("va12", "vb12")];
    let sent: Vec<_> = (0..3).map(|seed| mixed_frames(seed, 400 + 100 * seed as usize)).collect();
    for ((end, _), frames) in ends.iter().zip(&sent) {
        RawSender::open(lab.a(), end).unwrap().send(frames).unwrap();
    }
    let done = stop(started);
    assert_nothing_lost(&done.summary(), 1500);
    let summary: Value = serde_json::from_str(&done.stdout).unwrap();
    assert_eq!(summary["sources"].as_array().unwrap().len(), 1, "one worker");
    assert_eq!(
        books(&done),
        [400, 500, 600].iter().zip(ends).map(|(&count, (_, name))| (name.to_string(), count, count, 0)).collect::<Vec<_>>()
    );
    let ring = live.ring();
    for ((_, name), frames) in ends.iter().zip(&sent) {
        let of_it = ring.packets.iter().filter(|packet| ring.interfaces[packet.interface].name == *name);
        assert!(counted(of_it.map(|packet| &packet.data)) == counted(frames), "{name}");
    }
}
