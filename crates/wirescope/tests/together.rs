//! `-w FILE --all`: every window of a run in one file, each packet once, in order, on files and live, as
//! pcapng and pcap.

mod run;

use run::{Place, Started, finish, wait_until, wirescope};
use scope_testkit::oracle::{self, VlanRule, difference, expected_dump};
use scope_testkit::traffic::frame;
use scope_testkit::traffic::random::START_NS;
use scope_testkit::traffic::{Capture, ETHERNET, Record};
use std::collections::BTreeSet;
use std::path::Path;

const MS: i64 = 1_000_000;

/// Traffic of five hosts, 100 packets a second, some twice at the same time, and hits of several hosts whose
/// windows overlap.
fn capture() -> (Capture, Vec<usize>) {
    let mut capture = Capture::ethernet("left");
    let packet = |host: u8, port: u16| {
        let from = format!("10.0.0.{host}:1000").parse().unwrap();
        frame::on_link(ETHERNET, &[], &frame::udp(from, format!("10.0.0.99:{port}").parse().unwrap(), b"x"))
    };
    for number in 0..2500i64 {
        let record = Record::new(START_NS + number * 10 * MS, packet((number % 5) as u8 + 1, 7));
        if number % 50 == 7 {
            capture.packets.push(record.clone()); // a packet that came twice stands there twice
        }
        capture.packets.push(record);
    }
    let hits = [(3000, 1), (3500, 2), (4200, 1), (9000, 3), (9003, 4), (16_000, 5), (16_100, 5)];
    for (at_ms, host) in hits {
        capture.insert(Record::new(START_NS + at_ms * MS + 1, packet(host, 60000)));
    }
    let is_hit = |packet: &&Record| packet.data[36..38] == 60000u16.to_be_bytes();
    let at = capture
        .packets
        .iter()
        .filter(is_hit)
        .map(|hit| capture.packets.iter().position(|p| p == hit).unwrap())
        .collect();
    (capture, at)
}

/// Each packet that any window has, once.
fn expected(input: &Capture, hits: &[usize]) -> Capture {
    let mut all = BTreeSet::new();
    for &at in hits {
        let time_ns = input.packets[at].time_ns;
        let filter = format!("host 10.0.0.{}", input.packets[at].data[29]);
        all.extend(
            expected_dump(
                input,
                &filter,
                time_ns - 1000 * MS,
                time_ns + 1000 * MS,
                Some(at),
                VlanRule::Transparent,
            )
            .unwrap(),
        );
    }
    input.subset(&all.into_iter().collect::<Vec<_>>())
}

const ORDERS: [&str; 8] =
    ["--trigger", "hit=udp port 60000", "--dump", "host $srcIP", "--before", "1", "--after", "1"];

#[test]
fn every_window_of_a_file_is_in_one_file_each_packet_once_in_order() {
    let (input, hits) = capture();
    for (name, workers) in [("all.pcapng", 1), ("all.pcap", 1), ("all.pcapng", 3)] {
        let place = Place::new();
        let source = format!("{},workers={workers}", place.source(&input));
        let path = place.path(name);
        let summary = place
            .summary(&[&ORDERS[..], &["--source", &source, "-w", path.to_str().unwrap(), "--all"]].concat());
        assert!(summary.dumps.len() >= 5 && summary.dumps.iter().all(|dump| dump.complete), "{summary:?}");
        let mut found = oracle::read(&path).unwrap().capture;
        let mut expected = expected(&input, &hits);
        if name.ends_with("pcap") {
            [&mut found, &mut expected].into_iter().for_each(plain);
        }
        assert_eq!(difference(&expected, &found), None, "{name}, {workers} workers");
        oracle::opens_cleanly(&path).unwrap();
        let names = place.out_names();
        assert_eq!(names, ["wirescope.jsonl"], "nothing else is left");
    }
}

/// What a pcap file can hold.
fn plain(capture: &mut Capture) {
    capture.interfaces.iter_mut().for_each(|interface| interface.name = String::new());
}

#[test]
fn a_pipe_gets_every_window_and_without_a_folder_nothing_else_is_written() {
    let (input, hits) = capture();
    let place = Place::new();
    let source = place.source(&input);
    let into = place.path("read.pcapng");
    let command = wirescope(
        &[&["run", "--ring", "64MiB", "--source", &source, "-w", "-", "--all"], &ORDERS[..]].concat(),
    );
    let mut shell = std::process::Command::new("sh");
    shell
        .args(["-c", "out=$0; \"$@\" | cat > \"$out\""])
        .arg(&into)
        .arg(command.get_program())
        .args(command.get_args());
    let done = finish(shell);
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    assert_eq!(
        difference(&expected(&input, &hits), &oracle::read(&into).unwrap().capture),
        None,
        "{}",
        done.stderr
    );
    oracle::opens_cleanly(&into).unwrap();
}

#[test]
fn without_it_one_dump_ends_the_run_as_ever() {
    let (input, _) = capture();
    let place = Place::new();
    let source = place.source(&input);
    let path = place.path("one.pcapng");
    let summary =
        place.summary(&[&ORDERS[..], &["--source", &source, "-w", path.to_str().unwrap()]].concat());
    assert_eq!(
        (summary.dumps.len(), summary.hits["hit"].fired, summary.hits["hit"].too_many),
        (1, 1, 0),
        "{summary:?}"
    );
}

#[test]
fn live_windows_and_those_by_hand_become_one_file_when_the_run_is_stopped() {
    let place = Place::new();
    let (path, ring) = (place.path("all.pcapng"), place.path("ring.pcapng"));
    let more =
        ["--before", "300ms", "--ring-out", ring.to_str().unwrap(), "-w", path.to_str().unwrap(), "--all"];
    // Slow enough that the ring holds all of it to the end.
    let started = Started::new(place.command(&[&["--source", "synth:rate=1k,flows=50"], &more[..]].concat()));
    let dumps = || place.log().matches("\"event\":\"dump\"").count();
    place.wait_for_words("\"status\""); // about a second after its start
    for number in 1..=3 {
        started.signal(libc::SIGUSR1);
        wait_until("the window", || dumps() == number);
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    assert!(!path.exists());
    started.signal(libc::SIGINT);
    let done = started.finish(run::LIMIT);
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    let windows: Vec<(i64, i64)> =
        done.summary().dumps.iter().map(|dump| (dump.from_ns, dump.to_ns)).collect();
    let mut everything = oracle::read(&ring).unwrap().capture;
    everything.packets.retain(|packet| {
        windows.iter().any(|(from_ns, to_ns)| (*from_ns..=*to_ns).contains(&packet.time_ns))
    });
    everything.packets.sort_by_key(|packet| packet.time_ns);
    assert_eq!(difference(&everything, &oracle::read(&path).unwrap().capture), None);
}

#[test]
fn what_goes_together_with_nothing_is_refused() {
    let refused = |arguments: &[&str], words: &str| {
        let done = finish(wirescope(&[&["run", "--source", "synth:", "--all"], arguments].concat()));
        assert!(done.code() == Some(2) && done.stderr.contains(words), "{}", done.stderr);
    };
    refused(&["--out", "/tmp"], "--all: ");
    refused(&["-w", "/tmp/never.pcapng", "--exec", "true"], "--exec: ");
    assert!(!Path::new("/tmp/never.pcapng").exists());
}
