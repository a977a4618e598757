//! Counts and sequences as triggers: they fire with the packets that a reading by the letter gives, whatever the number of
//! workers.

mod run;

use run::{Place, finish, wirescope};
use scope_testkit::traffic::frame::{on_link, tcp, udp};
use scope_testkit::traffic::{Capture, ETHERNET, Random, Record};
use std::collections::BTreeMap;

const MS: i64 = 1_000_000;
const BEGIN: i64 = 1_700_000_000_000 * MS;

/// A SYN of this host to this port.
fn syn(time_ns: i64, host: u8, port: u16) -> Record {
    let segment = tcp(([10, 0, 0, host], 40_000).into(), ([10, 1, 0, 1], port).into(), 1, 2, &[]);
    Record::new(time_ns, on_link(ETHERNET, &[], &segment))
}

/// A knock of this host.
fn knock(time_ns: i64, host: u8, port: u16) -> Record {
    let datagram = udp(([10, 0, 0, host], 40_000).into(), ([10, 1, 0, 1], port).into(), b"x");
    Record::new(time_ns, on_link(ETHERNET, &[], &datagram))
}

/// Times of dumps by trigger, milliseconds since the begin.
fn dumps(capture: &Capture, more: &str, flags: &[&str]) -> BTreeMap<String, Vec<i64>> {
    let place = Place::new();
    let source = format!("{}{more}", place.source(capture));
    let times = ["--before", "0s", "--after", "0s", "--holdoff", "0s"];
    let summary = place.summary(&[&["--source", &source][..], &times, flags].concat());
    summary.assert_adds_up();
    let mut found: BTreeMap<String, Vec<i64>> = BTreeMap::new();
    for dump in &summary.dumps {
        assert!(dump.packets > 0, "the packet that fired is in its dump");
        found.entry(dump.trigger.clone()).or_default().push((dump.time_ns - BEGIN) / MS);
    }
    found.values_mut().for_each(|times| times.sort_unstable());
    found
}

#[test]
fn a_count_fires_with_the_packet_that_makes_it_true_with_any_number_of_workers() {
    let mut random = Random::new(5);
    let mut capture = Capture::ethernet("eth0");
    let (mut time_ms, mut seen) = (0, BTreeMap::<u8, Vec<i64>>::new());
    let mut expected = Vec::new();
    for _ in 0..1500 {
        time_ms += 1 + random.below(6) as i64;
        let host = 1 + random.below(6) as u8;
        capture.packets.push(syn(BEGIN + time_ms * MS, host, random.below(1000) as u16 + 1));
        let times = seen.entry(host).or_default();
        let within = |times: &[i64]| times.iter().filter(|at| **at > time_ms - 100).count();
        let before = within(times);
        times.push(time_ms);
        if before == 6 {
            expected.push(time_ms);
        }
    }
    assert!(expected.len() > 5, "{expected:?}");
    let scan = "scan=count(tcp[tcpflags] == tcp-syn by $srcIP) > 6 in 100ms";
    for more in ["", ",workers=2", ",workers=4", ",pace=5"] {
        let found = dumps(&capture, more, &["--trigger", scan, "--dump", "host $srcIP and port $dstPort"]);
        assert_eq!(found.get("scan"), Some(&expected), "{more}");
    }
}

#[test]
fn a_sequence_fires_where_its_steps_come_in_order_in_time_and_of_one_key() {
    let mut capture = Capture::ethernet("eth0");
    let packets = [
        knock(BEGIN, 1, 7000),
        knock(BEGIN + 100 * MS, 2, 7001),
        knock(BEGIN + 200 * MS, 1, 7001),
        syn(BEGIN + 300 * MS, 1, 22),
        syn(BEGIN + 400 * MS, 1, 22),
        knock(BEGIN + 1000 * MS, 3, 7000),
        knock(BEGIN + 1100 * MS, 3, 7001),
        syn(BEGIN + 3001 * MS, 3, 22),
        syn(BEGIN + 4000 * MS, 4, 22),
    ];
    capture.packets.extend(packets);
    let opened = "opened=udp port 7000 then udp port 7001 then tcp port 22 within 2s by $srcIP";
    for more in ["", ",workers=2", ",workers=4"] {
        let found = dumps(&capture, more, &["--trigger", opened]);
        assert_eq!(found, BTreeMap::from([("opened".to_string(), vec![300])]), "{more}");
    }
}

#[test]
fn hits_of_one_window_are_one_dump_up_to_the_end_of_a_file_at_any_speed() {
    // Most of it is evaluated when the workers have ended: a file's grace is a second.
    let mut capture = Capture::ethernet("eth0");
    for at in 0..1200 {
        capture.packets.push(knock(BEGIN + at * MS, 1, 7000));
        capture.packets.push(syn(BEGIN + at * MS + 1000, 1, 22));
    }
    let triggers = [
        "--trigger",
        "opened=udp port 7000 then tcp port 22 within 1s by $srcIP",
        "--trigger",
        "often=count(udp by $srcIP) >= 1 in 1ms",
        "--trigger",
        "level=signal(pps) > 0 and signal(pps) > 0 until < 1/s",
        "--dump",
        "tcp or udp",
    ];
    for _ in 0..4 {
        for more in ["", ",workers=4"] {
            let place = Place::new();
            let source = format!("{}{more}", place.source(&capture));
            let times = ["--before", "0s", "--after", "1min", "--dumps-max", "4"];
            let summary = place.summary(&[&["--source", &source][..], &times, &triggers].concat());
            for (name, hits) in [("opened", 1200), ("often", 1200), ("level", 1)] {
                let found = &summary.hits[name];
                assert_eq!((found.fired, found.extended), (1, hits - 1), "{name} {more}");
            }
        }
    }
}

#[test]
fn what_can_t_be_meant_is_refused_before_anything_starts() {
    let refused = |text: &str, words: &[&str]| {
        let place = Place::new();
        let all = ["run", "--source", "synth:packets=1,pace=max", "--out", ".", "--trigger", text];
        let mut command = wirescope(&all);
        command.current_dir(place.out());
        let done = finish(command);
        assert_eq!(done.code(), Some(2), "{text}: {}", done.stderr);
        words
            .iter()
            .for_each(|word| assert!(done.stderr.contains(word), "{text}: no '{word}' in {}", done.stderr));
        assert!(place.out_names().is_empty(), "nothing was begun");
    };
    refused("a=count(udp by $srcIP) > 20 in 10", &["trigger 'a'", "^"]);
    refused("count(udp by $nix) > 20 in 10s", &["$nix"]);
    refused("udp and count(tcp) > 5 in 1s", &["^"]);
    refused("udp then tcp", &["within"]);
}
