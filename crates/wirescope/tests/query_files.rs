//! Capture files that are asked as stores are: alone, together, in any order of time, and beside a store.

mod run;

use run::questions::{at, query};
use run::{Place, finish};
use scope_testkit::oracle::{self, VlanRule, difference, have, tcpdump_selects};
use scope_testkit::traffic::{
    Capture, Conversations, ETHERNET, Interface, Precision, RAW, Random, Record, frame, pcap, pcapng,
};
use serde_json::Value;
use std::process::Command;

const S: i64 = 1_000_000_000;

fn capture(link_types: &[u16], packets: usize, seed: u64) -> Capture {
    let named = |(number, &link_type): (usize, &u16)| Interface::new(&format!("port{number}"), link_type);
    let interfaces = link_types.iter().enumerate().map(named).collect();
    Conversations { interfaces, packets, seed, vlan: 20, ..Conversations::default() }.capture()
}

fn count(place: &Place, arguments: &[&str]) -> Value {
    let done = query(place, &[arguments, &["--count", "--json"]].concat());
    assert_eq!(done.code(), Some(0), "{arguments:?}: {}", done.stderr);
    serde_json::from_str(&done.stdout).unwrap()
}

fn write(place: &Place, name: &str, capture: &Capture) {
    std::fs::write(place.path(name), pcapng(capture, Precision::Nano, false)).unwrap();
}

/// By time, those of one time as they are.
fn sorted(capture: &Capture) -> Capture {
    let mut sorted = capture.clone();
    sorted.packets.sort_by_key(|packet| packet.time_ns);
    sorted
}

const FILTERS: [&str; 6] = ["", "tcp", "host 10.0.0.3", "ip6", "not ip", "greater 200 and not udp"];

#[test]
fn a_file_answers_as_tcpdump_selects_and_names_its_interfaces() {
    for (seed, link_types) in [(1, &[ETHERNET, ETHERNET][..]), (2, &[RAW])] {
        let place = Place::new();
        let input = capture(link_types, 3000, seed);
        write(&place, "in.pcapng", &input);
        let (first_ns, last_ns) = input.span_ns().unwrap();
        let third = (last_ns - first_ns) / 3;
        for (number, filter) in FILTERS.iter().enumerate() {
            let selected = tcpdump_selects(&input, filter, VlanRule::Transparent).unwrap();
            for (part, (from_ns, to_ns)) in
                [(first_ns, last_ns), (first_ns + third, last_ns - third)].into_iter().enumerate()
            {
                let within = |&index: &usize| (from_ns..=to_ns).contains(&input.packets[index].time_ns);
                let expected = input.subset(&selected.iter().copied().filter(within).collect::<Vec<_>>());
                let out = format!("{number}_{part}.pcapng");
                let span = ["--from", &at(from_ns), "--to", &at(to_ns)].map(str::to_string);
                let asked = ["-r", "in.pcapng", filter, &span[0], &span[1], &span[2], &span[3]];
                let done = query(&place, &[&asked[..], &["-w", &out]].concat());
                assert_eq!(done.code(), Some(0), "'{filter}': {}", done.stderr);
                let found = oracle::read(place.path(&out)).unwrap();
                assert_eq!(difference(&expected, &found.capture), None, "'{filter}'");
                assert!(found.comments[0].contains("capture in.pcapng"), "{:?}", found.comments);
                assert_eq!(count(&place, &asked)["packets"], expected.packets.len());
            }
        }
    }
}

#[test]
fn files_and_a_store_are_one_answer_by_time() {
    let place = Place::new();
    let input = capture(&[ETHERNET], 3000, 3);
    // Every third packet in the store, the others in two files, whose times overlap.
    let part = |which: usize| {
        input.subset(&(0..input.packets.len()).filter(|index| index % 3 == which).collect::<Vec<_>>())
    };
    let source = place.source(&part(0));
    let store = place.path("store");
    place.summary(&["--source", &source, "--store", store.to_str().unwrap(), "--ring", "16MiB"]);
    write(&place, "a.pcapng", &part(1));
    std::fs::write(place.path("b.pcap"), pcap(&part(2), Precision::Nano, false)).unwrap();
    for filter in FILTERS {
        let selected = tcpdump_selects(&input, filter, VlanRule::Transparent).unwrap();
        let done = query(
            &place,
            &["--store", "store", "-r", "a.pcapng", "-r", "b.pcap", filter, "--format", "json"],
        );
        assert_eq!(done.code(), Some(0), "{}", done.stderr);
        let lines: Vec<Value> = done.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let times: Vec<i128> = lines
            .iter()
            .map(|line| line["time"].as_str().unwrap().parse::<jiff::Timestamp>().unwrap().as_nanosecond())
            .collect();
        let expected: Vec<i128> =
            selected.iter().map(|&index| i128::from(input.packets[index].time_ns)).collect();
        assert_eq!(times, expected, "'{filter}'");
        let names: Vec<&str> = selected.iter().map(|index| ["left", "left", "b.pcap"][index % 3]).collect();
        let names: Vec<&str> =
            names.into_iter().map(|name| if name == "left" { "port0" } else { name }).collect();
        let found: Vec<&str> = lines.iter().map(|line| line["interface"].as_str().unwrap()).collect();
        assert_eq!(found, names, "'{filter}'");
    }
}

/// 40 MB in no order, of which each hundredth goes to another port.
fn large() -> Capture {
    let mut input = Capture::ethernet("eth0");
    let mut random = Random::new(11);
    for number in 0..30_000u32 {
        let time_ns = 1_700_000_000 * S + random.below(1000 * S as u64) as i64;
        let payload = [&number.to_be_bytes()[..], &[7; 1300]].concat();
        let to = if number % 100 == 0 { "10.0.0.2:54" } else { "10.0.0.2:53" };
        let udp = frame::udp("10.0.0.1:1000".parse().unwrap(), to.parse().unwrap(), &payload);
        input.packets.push(Record::new(time_ns, frame::ethernet(&[], 0x0800, &udp)));
    }
    input
}

/// What `--explain` says of bytes that had to wait in a file.
fn waited(stderr: &str) -> &str {
    let (before, _) = stderr.split_once(" waited in a file").unwrap();
    before.rsplit(", ").next().unwrap()
}

#[test]
fn packets_of_any_order_come_by_time_also_when_they_have_no_room_in_memory() {
    let place = Place::new();
    let unsorted = large();
    let sorted = sorted(&unsorted);
    write(&place, "unsorted.pcapng", &unsorted);
    write(&place, "sorted.pcapng", &sorted);
    let halves = [0, 1].map(|half| (0..sorted.packets.len()).filter(|at| at % 2 == half).collect::<Vec<_>>());
    write(&place, "even.pcapng", &sorted.subset(&halves[0]));
    write(&place, "odd.pcapng", &sorted.subset(&halves[1]));
    let tmp = place.path("tmp");
    std::fs::create_dir(&tmp).unwrap();
    let binary = env!("CARGO_BIN_EXE_wirescope");
    // A quarter of the memory is for them. What comes by a pipe can't be left where it is.
    let (small, large) = ("--memory 64MiB", "--memory 1GiB");
    for (number, (files, memory, waits)) in [
        ("-r unsorted.pcapng", small, true),
        ("-r unsorted.pcapng", large, false),
        ("-r sorted.pcapng", small, false),
        ("-r odd.pcapng -r even.pcapng", small, false),
        ("-r even.pcapng -r unsorted.pcapng --to @1700000500", small, true),
        ("-r - < sorted.pcapng", small, false),
        ("-r - < unsorted.pcapng", small, true),
        ("-r <(cat sorted.pcapng)", small, true),
        ("-r <(cat unsorted.pcapng)", large, false),
    ]
    .into_iter()
    .enumerate()
    {
        let ask = |arguments: &str| {
            let line = format!("{binary} query {arguments} {memory} --tmp tmp --explain {files}");
            let mut command = Command::new("bash");
            command.args(["-c", &line]).current_dir(place.root());
            let done = finish(command);
            assert_eq!(done.code(), Some(0), "{line}: {}", done.stderr);
            done
        };
        let mut expected = sorted.clone();
        if files.contains("--to") {
            expected.packets.extend(sorted.subset(&halves[0]).packets);
            expected.packets.retain(|packet| packet.time_ns <= 1_700_000_500 * S);
            expected = self::sorted(&expected);
        }
        let done = ask(&format!("-w {number}.pcapng"));
        let found = oracle::read(place.path(&format!("{number}.pcapng"))).unwrap().capture;
        assert_eq!(difference(&expected, &found), None, "{files}");
        assert_eq!(waited(&done.stderr) != "0 B", waits, "{files}, {memory}: {}", done.stderr);
        if files.contains("--to") {
            continue;
        }
        // Some of them, around others of them.
        let others: Vec<i64> =
            sorted.packets.iter().filter(|other| other.data[37] == 54).map(|other| other.time_ns).collect();
        let near = |packet: &&Record| {
            let is_near = others.iter().any(|other| (other - packet.time_ns).abs() <= 50_000_000);
            packet.data[37] == 53 && is_near
        };
        let packets = sorted.packets.iter().filter(near).count();
        let done = ask("port 53 --around 'port 54' --before 50ms --after 50ms --count");
        assert!(packets > 100, "{packets}");
        assert!(done.stdout.starts_with(&packets_in_words(packets)), "{packets}: {}", done.stdout);
    }
    assert_eq!(std::fs::read_dir(&tmp).unwrap().count(), 0, "nothing is left behind");
}

/// How an answer states so many packets.
fn packets_in_words(packets: usize) -> String {
    match packets {
        0..1000 => format!("{packets} packets, "),
        _ => format!("{},{:03} packets, ", packets / 1000, packets % 1000),
    }
}

#[test]
fn many_packets_of_a_file_between_those_of_a_store_stay_in_order() {
    let place = Place::new();
    let input = capture(&[ETHERNET], 40_000, 12);
    // By turns a long stretch here, a long one there, and single ones.
    let is_stored = |index: usize| {
        if index % 30_000 < 20_000 { index.is_multiple_of(2) } else { index % 30_000 < 25_000 }
    };
    let part = |stored: bool| {
        input.subset(&(0..input.packets.len()).filter(|&at| is_stored(at) == stored).collect::<Vec<_>>())
    };
    let source = place.source(&part(true));
    let store = place.path("store");
    place.summary(&["--source", &source, "--store", store.to_str().unwrap(), "--ring", "64MiB"]);
    write(&place, "in.pcapng", &part(false));
    let done = query(&place, &["--store", "store", "-r", "in.pcapng", "-w", "out.pcap"]);
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    let found = oracle::read(place.path("out.pcap")).unwrap().capture;
    let packets = |capture: &Capture| -> Vec<(i64, Vec<u8>)> {
        capture.packets.iter().map(|packet| (packet.time_ns, packet.data.clone())).collect()
    };
    assert!(packets(&found) == packets(&sorted(&input)));
}

#[test]
fn a_pipe_and_compressed_files_are_read_too() {
    let place = Place::new();
    let input = capture(&[ETHERNET], 500, 5);
    write(&place, "in.pcapng", &input);
    let binary = env!("CARGO_BIN_EXE_wirescope");
    let piped = |line: &str| {
        let mut command = Command::new("sh");
        command.args(["-c", &line.replace("wirescope", binary)]).current_dir(place.root());
        let done = finish(command);
        assert_eq!(done.code(), Some(0), "{line}: {}", done.stderr);
        done.stdout
    };
    let udp = tcpdump_selects(&input, "udp", VlanRule::Transparent).unwrap().len();
    let starts =
        |text: &str, packets: usize| assert!(text.starts_with(&format!("{packets} packets, ")), "{text}");
    starts(&piped("cat in.pcapng | wirescope query -r - udp --count"), udp);
    starts(&piped("wirescope query -r - udp --count < in.pcapng"), udp);
    for way in ["gzip", "zstd", "lz4"] {
        if have(way) {
            starts(&piped(&format!("{way} -c in.pcapng | wirescope query -r - udp --count")), udp);
            starts(&piped(&format!("{way} -c in.pcapng > in.x && wirescope query -r in.x udp --count")), udp);
        }
    }
    // And the answer through a pipe, into another query.
    starts(&piped("wirescope query -r in.pcapng udp | wirescope query -r - --count"), udp);
}

#[test]
fn each_link_type_gets_a_file_and_a_filter_needs_one_that_there_is() {
    let place = Place::new();
    let input = capture(&[ETHERNET, RAW], 1000, 6);
    write(&place, "in.pcapng", &input);
    let done = query(&place, &["-r", "in.pcapng", "udp", "-w", "out.pcapng"]);
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    let mut found = Vec::new();
    for name in ["out.pcapng", "out_RAW.pcapng", "out_ETHERNET.pcapng"] {
        if place.path(name).exists() {
            let capture = oracle::read(place.path(name)).unwrap().capture;
            assert_eq!(capture.link_types().len(), 1);
            found.push(capture);
        }
    }
    assert_eq!(found.len(), 2);
    let selected = tcpdump_selects(&input, "udp", VlanRule::Transparent).unwrap();
    for capture in found {
        let link_type = capture.link_types()[0];
        assert_eq!(difference(&input.subset(&selected).of_link_type(link_type), &capture), None);
    }
    let done = query(&place, &["-r", "in.pcapng", "wlan type mgt", "--count"]);
    assert_eq!(done.code(), Some(2), "{}", done.stdout);
    assert!(done.stderr.contains("802.11"), "{}", done.stderr);
}

#[test]
fn what_a_file_says_of_its_losses_is_stated_whatever_the_filter() {
    let place = Place::new();
    let mut input = capture(&[ETHERNET], 300, 7);
    input.packets[100].lost_before = 12;
    write(&place, "in.pcapng", &input);
    let port = input.packets[100].interface;
    let before = input.packets[..100].iter().rev().find(|packet| packet.interface == port).unwrap().time_ns;
    for (filter, least) in [("", 12), ("host 10.77.0.1", 0)] {
        let missing = count(&place, &["-r", "in.pcapng", filter])["missing"].clone();
        let gap = &missing[0];
        assert_eq!(missing.as_array().unwrap().len(), 1, "{missing}");
        assert_eq!((&gap["reason"], &gap["lost_max"]), (&"file".into(), &12.into()), "{missing}");
        assert_eq!(gap["lost_min"], least);
        let time = |key: &str| gap[key].as_str().unwrap().parse::<jiff::Timestamp>().unwrap().as_nanosecond();
        assert_eq!((time("from"), time("to")), (i128::from(before), i128::from(input.packets[100].time_ns)));
    }
    let to = at(before - 1);
    let missing = count(&place, &["-r", "in.pcapng", "--to", &to])["missing"].clone();
    assert_eq!(missing.as_array().unwrap().len(), 0, "it lies behind the span: {missing}");
    let done = query(&place, &["-r", "in.pcapng", "-w", "out.pcapng"]);
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    let comment = &oracle::read(place.path("out.pcapng")).unwrap().comments[0];
    assert!(comment.contains("incomplete: at least 12 and at most 12 packets are missing"), "{comment}");
}

#[test]
fn a_truncated_file_is_read_to_its_damage_which_is_stated() {
    let place = Place::new();
    let input = capture(&[ETHERNET], 300, 8);
    let whole = pcapng(&input, Precision::Nano, false);
    std::fs::write(place.path("cut.pcapng"), &whole[..whole.len() / 2]).unwrap();
    write(&place, "whole.pcapng", &input);
    let done = query(&place, &["-r", "cut.pcapng", "--count", "--json"]);
    assert_eq!(done.code(), Some(1), "{}", done.stderr);
    assert!(done.stderr.contains("cut.pcapng: damaged or truncated"), "{}", done.stderr);
    let answer: Value = serde_json::from_str(&done.stdout).unwrap();
    let packets = answer["packets"].as_u64().unwrap();
    assert!((50..250).contains(&packets), "{answer}");
    assert_eq!(
        (&answer["missing"][0]["reason"], &answer["missing"][0]["lost_max"]),
        (&"unreadable".into(), &Value::Null)
    );
    // The other file is given whole all the same.
    let done = query(&place, &["-r", "cut.pcapng", "-r", "whole.pcapng", "--count", "--json"]);
    assert_eq!(done.code(), Some(1));
    let both: Value = serde_json::from_str(&done.stdout).unwrap();
    assert_eq!(both["packets"].as_u64().unwrap(), packets + 300);
}

#[test]
fn comments_of_packets_stay_with_them() {
    let place = Place::new();
    let input = capture(&[ETHERNET], 20, 9);
    write(&place, "in.pcapng", &input);
    let edited = Command::new("editcap")
        .args(["-a", "5:first things first", "in.pcapng", "commented.pcapng"])
        .current_dir(place.root())
        .status();
    if !edited.is_ok_and(|status| status.success()) {
        return run::skip("no editcap");
    }
    let done = query(&place, &["-r", "commented.pcapng", "-w", "out.pcapng"]);
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    let found = oracle::read(place.path("out.pcapng")).unwrap();
    assert_eq!(found.packet_comments, [(4, "first things first".to_string())]);
}

#[test]
fn a_folder_of_many_files_is_one_answer() {
    let place = Place::new();
    let input = capture(&[ETHERNET], 1500, 10);
    let mut names = Vec::new();
    for index in 0..input.packets.len() {
        let name = format!("{index:05}.pcap");
        std::fs::write(place.path(&name), pcap(&input.subset(&[index]), Precision::Nano, false)).unwrap();
        names.push(name);
    }
    names.reverse();
    let asked: Vec<&str> = names.iter().flat_map(|name| ["-r", name]).collect();
    let done = query(&place, &[&asked[..], &["tcp", "-w", "out.pcap"]].concat());
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    let selected = tcpdump_selects(&input, "tcp", VlanRule::Transparent).unwrap();
    let found = oracle::read(place.path("out.pcap")).unwrap().capture;
    let times = |capture: &Capture| capture.packets.iter().map(|packet| packet.time_ns).collect::<Vec<_>>();
    assert_eq!(times(&found), times(&input.subset(&selected)));
}
