//! Dumps of live traffic: exactly what was sent and selected, byte for byte, dated by the kernel.
//!
//! Needs root; says so and passes without it, except in CI.

mod live_lab;
mod run;

use live_lab::{
    Live, OUTGOING, assert_holds, counted, hit_frame, mixed_frames, now_ns, odd_frames, stop_complete,
};
use run::summary::file_time;
use scope_testkit::lab::RawSender;
use scope_testkit::oracle;
use scope_testkit::traffic::frame::{self, Tag};
use scope_testkit::traffic::{Capture, DIRECTION_MASK};
use std::os::unix::fs::PermissionsExt;

const SECOND: i64 = 1_000_000_000;
/// What goes between the hosts of the packet that fires.
const FILLED: &str = "host 10.0.0.1 and not tcp";
const ORDERS: [&str; 8] = [
    "--trigger",
    "hit=udp port 60000",
    "--dump",
    "host $srcIP and not tcp",
    "--before",
    "30m",
    "--after",
    "700ms",
];

/// What was sent in one go, and between which moments.
struct Part {
    frames: Vec<Vec<u8>>,
    begun_ns: i64,
    ended_ns: i64,
}

/// Sends three parts: before the packet that fires, with it, and after the window's end; checks everything
/// that the run left.
fn check(workers: u32, tags: &[Tag], send: impl Fn(&Live, &[Vec<u8>]) -> Option<()>) {
    let Some(live) = Live::or_skip() else { return };
    let started =
        live.start(&[&["--source", &format!("afpacket:vb,workers={workers}")], &ORDERS[..]].concat());
    let hit = hit_frame(tags);
    let mut around = [mixed_frames(2, 600), odd_frames(2, 300)].concat();
    around.insert(100, hit.clone());
    let mut parts = Vec::new();
    for (number, frames) in [mixed_frames(1, 600), around, mixed_frames(3, 200)].into_iter().enumerate() {
        if number == 2 {
            live.wait_for_dumps(1);
        }
        let begun_ns = now_ns();
        let Some(()) = send(&live, &frames) else { return };
        parts.push(Part { frames, begun_ns, ended_ns: now_ns() });
    }
    let all: Vec<Vec<u8>> = parts.iter().flat_map(|part| part.frames.clone()).collect();
    let summary = stop_complete(started, all.len());
    assert_eq!((summary.hits["hit"].fired, summary.hits["hit"].sum()), (1, 1));
    let ring = live.ring();
    assert_holds(&ring, &all);
    assert_dated_by_the_kernel(&ring, &parts);

    let found = live.check_only_dump(&summary, FILLED, &hit);
    let dump = summary.only_dump();
    // The window begins when the run listened, which is before its first packet.
    assert!((dump.asked.0..=ring.packets[0].time_ns).contains(&dump.from_ns), "{dump:?}");
    assert_eq!(dump.to_ns, dump.time_ns + SECOND * 7 / 10);
    assert!(parts[2].begun_ns > dump.to_ns && found.packets.len() > 100, "the test's own times");
    assert!(found.packets.is_sorted_by_key(|packet| packet.time_ns));
    let name = format!("{}_hit_0001.pcapng", file_time(dump.time_ns));
    assert_eq!(live.place.out_names(), [name.as_str(), "wirescope.jsonl"]);
    assert_eq!(dump.path.metadata().unwrap().permissions().mode() & 0o7777, 0o640);
    oracle::opens_cleanly(&dump.path).unwrap();
    oracle::opens_cleanly(&live.ring_path()).unwrap();
}

/// Each packet's time lies between the begin and the end of its sending.
fn assert_dated_by_the_kernel(ring: &Capture, parts: &[Part]) {
    for part in parts {
        let frames = counted(&part.frames);
        let of_part = ring.packets.iter().filter(|packet| frames.contains_key(&packet.data[..]));
        let span = part.begun_ns..=part.ended_ns;
        for packet in of_part {
            assert!(span.contains(&packet.time_ns), "{} is not in {span:?}", packet.time_ns);
        }
    }
}

fn by_socket(live: &Live, frames: &[Vec<u8>]) -> Option<()> {
    assert_eq!(live.sender().send(frames).unwrap(), frames.len() as u64);
    Some(())
}

fn by_tcpreplay(live: &Live, frames: &[Vec<u8>]) -> Option<()> {
    live.replay(frames, 5000)
}

#[test]
fn a_dump_of_raw_frames_is_right_with_one_worker() {
    check(1, &[], by_socket);
}

#[test]
fn a_dump_of_raw_frames_is_right_with_two_workers() {
    check(2, &[Tag::q(5)], by_socket);
}

#[test]
fn a_dump_of_replayed_traffic_is_right_with_one_worker() {
    check(1, &[Tag::ad(7), Tag::q(9)], by_tcpreplay);
}

#[test]
fn a_dump_of_replayed_traffic_is_right_with_two_workers() {
    check(2, &[], by_tcpreplay);
}

#[test]
fn packets_that_leave_by_the_interface_are_marked() {
    for workers in [1, 2] {
        let Some(live) = Live::or_skip() else { return };
        let orders = ["--trigger", "hit=udp port 60000", "--dump", "ip or ip6", "--after", "300ms"];
        let started =
            live.start(&[&["--source", &format!("afpacket:vb,workers={workers}")], &orders[..]].concat());
        let outward = RawSender::open(live.lab.b(), "vb").unwrap();
        let (incoming, outgoing) = (mixed_frames(1, 300), mixed_frames(2, 200));
        live.sender().send(&incoming).unwrap();
        outward.send(&outgoing).unwrap();
        let hit = hit_frame(&[]);
        outward.send(&[&hit]).unwrap();
        live.wait_for_dumps(1);
        let summary = stop_complete(started, 501);
        let found = live.check_only_dump(&summary, "ip or ip6", &hit);
        let left = |packet: &&scope_testkit::traffic::Record| packet.flags & DIRECTION_MASK == OUTGOING;
        let marked: Vec<Vec<u8>> =
            found.packets.iter().filter(left).map(|packet| packet.data.clone()).collect();
        let sent_out: Vec<Vec<u8>> = outgoing.into_iter().chain([hit]).collect();
        assert!(counted(&marked) == counted(&sent_out), "{} of {} are marked", marked.len(), sent_out.len());
        assert_eq!(found.packets.len(), 501);
    }
}

#[test]
fn a_snap_length_cuts_what_is_captured_and_the_original_length_stays() {
    for arguments in [&["-i", "vb", "-s", "96"][..], &["--source", "afpacket:vb,snaplen=96"]] {
        let Some(live) = Live::or_skip() else { return };
        let orders = ["--trigger", "hit=udp port 60000", "--dump", "greater 150", "--after", "300ms"];
        let started = live.start(&[arguments, &orders].concat());
        let mut frames = mixed_frames(1, 300);
        frames.push(hit_frame(&[Tag::q(3)]));
        live.sender().send(&frames).unwrap();
        live.wait_for_dumps(1);
        let summary = stop_complete(started, frames.len());
        let found = live.check_only_dump(&summary, "greater 150", frames.last().unwrap());
        assert!(found.packets.len() > 50, "original lengths count: {}", found.packets.len());
        let ring = live.ring();
        for packet in &ring.packets {
            let whole = frames
                .iter()
                .find(|frame| frame.starts_with(&packet.data) && frame.len() == packet.original_len as usize);
            let whole = whole.expect("a frame that was sent");
            assert_eq!(packet.data.len(), whole.len().min(96));
        }
    }
}

#[test]
fn frames_longer_than_usual_are_captured_whole() {
    let Some(live) = Live::or_skip() else { return };
    live.lab.a().ip(&["link", "set", "va", "mtu", "9000"]).unwrap();
    live.lab.b().ip(&["link", "set", "vb", "mtu", "9000"]).unwrap();
    let started = live.start(&["-i", "vb"]);
    let frames: Vec<Vec<u8>> = [1500, 1514, 1515, 4096, 8999, 9014]
        .into_iter()
        .map(|len| frame::ethernet(&[], frame::EXPERIMENT, &vec![len as u8; len - 14]))
        .chain([
            frame::ethernet(&[Tag::q(1)], frame::EXPERIMENT, &[7; 9000]),
            frame::ethernet(&[], frame::EXPERIMENT, &[]),
        ])
        .collect();
    live.sender().send(&frames).unwrap();
    stop_complete(started, frames.len());
    assert_holds(&live.ring(), &frames);
}

#[test]
fn two_interfaces_in_one_run_meet_in_one_dump_in_order_of_time() {
    let Some(live) = Live::or_skip() else { return };
    let (other_a, other_b) = live.lab.another_link().unwrap();
    let orders = ["--trigger", "hit=udp port 60000", "--dump", "ip or ip6", "--after", "300ms"];
    let other_source = format!("afpacket:{other_b}");
    let started =
        live.start(&[&["--source", "afpacket:vb", "--source", &other_source], &orders[..]].concat());
    let senders = [live.sender(), RawSender::open(live.lab.a(), &other_a).unwrap()];
    let mut frames = mixed_frames(1, 600);
    frames.insert(300, hit_frame(&[]));
    for (number, part) in frames.chunks(7).enumerate() {
        senders[number % 2].send(part).unwrap();
    }
    live.wait_for_dumps(1);
    let summary = stop_complete(started, frames.len());
    let found = live.check_only_dump(&summary, "ip or ip6", &frames[300]);
    // One thread sent them all, so the order of time is the order of sending.
    assert_eq!(found.packets.len(), frames.len());
    for (number, packet) in found.packets.iter().enumerate() {
        let expected_name = if number / 7 % 2 == 0 { "vb" } else { &other_b };
        assert_eq!(found.interfaces[packet.interface].name, expected_name, "packet {number}");
        assert!(packet.data == frames[number], "packet {number} is not the one sent as such");
    }
}
