//! Answers that are no packets: top lists, timelines, and what lies around other packets, each held against a naive
//! model of the same capture.

mod run;

use etherparse::{LaxNetSlice, LaxSlicedPacket};
use run::questions::{at, keep, query, words};
use run::{Place, finish, wirescope};
use scope_testkit::oracle::{self, VlanRule, difference, tcpdump_selects};
use scope_testkit::traffic::{Capture, Conversations, ETHERNET, Interface, RAW, Record, frame};
use serde_json::Value;
use std::collections::BTreeMap;
use std::net::IpAddr;

const MS: i64 = 1_000_000;
const S: i64 = 1_000 * MS;

fn capture(link_types: &[u16], packets: usize, seed: u64) -> Capture {
    let named = |(number, &link_type): (usize, &u16)| Interface::new(&format!("port{number}"), link_type);
    let interfaces = link_types.iter().enumerate().map(named).collect();
    Conversations { interfaces, packets, seed, vlan: 20, ..Conversations::default() }.capture()
}

fn json(place: &Place, arguments: &[&str]) -> Value {
    let done = query(place, &[arguments, &["--json"]].concat());
    assert_eq!(done.code(), Some(0), "{arguments:?}: {}", done.stderr);
    serde_json::from_str(&done.stdout).unwrap_or_else(|error| panic!("{error}: {}", done.stdout))
}

/// What a naive reader knows of a packet.
#[derive(Debug, Default)]
struct Known {
    addresses: Option<(IpAddr, IpAddr)>,
    ports: Option<(u16, u16)>,
    protocol: Option<u8>,
}

fn known(capture: &Capture, index: usize) -> Known {
    let data = &capture.packets[index].data;
    let sliced = match capture.link_type(index) {
        ETHERNET => LaxSlicedPacket::from_ethernet(data).ok(),
        _ => LaxSlicedPacket::from_ip(data).ok(),
    };
    let Some(sliced) = sliced else { return Known::default() };
    let addresses: (IpAddr, IpAddr) = match &sliced.net {
        Some(LaxNetSlice::Ipv4(ip)) => {
            (ip.header().source_addr().into(), ip.header().destination_addr().into())
        }
        Some(LaxNetSlice::Ipv6(ip)) => {
            (ip.header().source_addr().into(), ip.header().destination_addr().into())
        }
        _ => return Known::default(),
    };
    let payload = sliced.ip_payload();
    let protocol = payload.map(|payload| payload.ip_number.0);
    let ports =
        payload.filter(|payload| !payload.fragmented && payload.payload.len() >= 4).and_then(|payload| {
            let bytes = payload.payload;
            let ports = (u16::from_be_bytes([bytes[0], bytes[1]]), u16::from_be_bytes([bytes[2], bytes[3]]));
            matches!(payload.ip_number.0, 6 | 17).then_some(ports)
        });
    Known { addresses: Some(addresses), ports, protocol }
}

/// Packets and bytes by key, as a naive reader counts them; whole IP packets only, of which nobody doubts what they
/// are.
fn counted(
    capture: &Capture,
    indices: &[usize],
    key: impl Fn(&Known) -> Vec<String>,
) -> BTreeMap<String, (u64, u64)> {
    let mut counts: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    for &index in indices {
        let mut keys = key(&known(capture, index));
        keys.sort();
        keys.dedup();
        for key in keys {
            let count = counts.entry(key).or_default();
            *count = (count.0 + 1, count.1 + capture.packets[index].data.len() as u64);
        }
    }
    counts
}

/// The rows of a top list, by key.
fn rows(answer: &Value, key: impl Fn(&Value) -> String) -> BTreeMap<String, (u64, u64)> {
    let rows = answer["rows"].as_array().unwrap();
    let counts: Vec<(u64, u64)> =
        rows.iter().map(|row| (row["packets"].as_u64().unwrap(), row["bytes"].as_u64().unwrap())).collect();
    assert!(counts.windows(2).all(|two| two[0] >= two[1]), "by packets, then bytes: {answer}");
    rows.iter().map(key).zip(counts).collect()
}

#[test]
fn a_top_list_is_what_a_naive_reader_counts() {
    for (seed, link_type) in [(1, ETHERNET), (2, RAW)] {
        let place = Place::new();
        // Without odd packets, of which headers are missing: these are told by the parser's own tests.
        let interfaces = vec![Interface::new("port0", link_type)];
        let input = Conversations {
            interfaces,
            packets: 3000,
            seed,
            vlan: 20,
            oddities: 0,
            snapped: 0,
            ..Conversations::default()
        }
        .capture();
        keep(&place, &input);
        for filter in ["", "udp", "host 10.0.0.3", "ip6"] {
            let selected = tcpdump_selects(&input, filter, VlanRule::Transparent).unwrap();
            let ask =
                |what: &str| json(&place, &["--store", "store", filter, "--top", what, "--limit", "1000000"]);
            let text = |value: &Value| value.as_str().unwrap().to_string();
            let hosts = counted(&input, &selected, |known| {
                known.addresses.iter().flat_map(|(a, b)| [a.to_string(), b.to_string()]).collect()
            });
            assert_eq!(rows(&ask("host"), |row| text(&row["host"])), hosts, "'{filter}'");
            let pairs = counted(&input, &selected, |known| {
                known.addresses.iter().map(|(a, b)| format!("{} {}", a.min(b), a.max(b))).collect()
            });
            let pair = |row: &Value| format!("{} {}", text(&row["pair"][0]), text(&row["pair"][1]));
            assert_eq!(rows(&ask("pair"), pair), pairs, "'{filter}'");
            let name = |protocol: u8| if protocol == 6 { "tcp" } else { "udp" };
            let ports = counted(&input, &selected, |known| {
                let of = |port: u16| format!("{} {port}", name(known.protocol.unwrap()));
                known.ports.iter().flat_map(|(a, b)| [of(*a), of(*b)]).collect()
            });
            let port = |row: &Value| format!("{} {}", text(&row["protocol"]), row["port"]);
            assert_eq!(rows(&ask("port"), port), ports, "'{filter}'");
            let protocols = counted(&input, &selected, |known| {
                known.protocol.map(|of| name(of).to_string()).into_iter().collect()
            });
            let answer = ask("proto");
            assert_eq!(rows(&answer, |row| text(&row["proto"])), protocols, "'{filter}'");
            assert_eq!((&answer["exact"], &answer["packets"]), (&true.into(), &selected.len().into()));
            assert_eq!(answer["different"], answer["rows"].as_array().unwrap().len());
        }
    }
}

#[test]
fn a_top_list_counts_odd_packets_too_and_shows_no_more_than_it_is_asked_for() {
    let place = Place::new();
    let input = capture(&[ETHERNET], 3000, 5);
    keep(&place, &input);
    let answer = json(&place, &["--store", "store", "--top", "proto"]);
    let shown: u64 =
        answer["rows"].as_array().unwrap().iter().map(|row| row["packets"].as_u64().unwrap()).sum();
    assert_eq!(shown, 3000, "each has one protocol, or is another kind of packet: {answer}");
    let arp =
        answer["rows"].as_array().unwrap().iter().find(|row| row["proto"] == "arp").expect("some are ARP");
    let selected = tcpdump_selects(&input, "arp", VlanRule::Transparent).unwrap();
    assert_eq!(arp["packets"], selected.len());
    let done = query(&place, &["--store", "store", "--top", "host", "--limit", "2"]);
    let lines: Vec<&str> = done.stdout.lines().collect();
    assert_eq!(lines.len(), 6, "a head, two rows, the rest, all, what is missing: {}", done.stdout);
    assert!(words(lines[0]) == "packets share bytes host" && lines[3].starts_with("and "), "{}", done.stdout);
    assert!(lines[4].starts_with("3,000 packets, "), "{}", done.stdout);
    assert!(done.stdout.lines().all(|line| line.len() <= 80));
}

#[test]
fn more_different_hosts_than_memory_has_room_for_are_an_answer_that_says_it_is_approximate() {
    let place = Place::new();
    let mut input = Capture::ethernet("eth0");
    let mut time_ns = 1_700_000_000 * S;
    let mut add = |source: u32| {
        let source = std::net::Ipv4Addr::from(0x0b00_0000 + source);
        let udp = frame::udp(std::net::SocketAddr::from((source, 7)), "10.0.0.2:53".parse().unwrap(), &[]);
        time_ns += 1000;
        input.insert(Record::new(time_ns, frame::ethernet(&[], 0x0800, &udp)));
    };
    // The least memory has room for 65,536 keys.
    for number in 0..100_000u32 {
        add(number + 10);
        if number % 10 == 0 {
            add(1);
        }
    }
    std::fs::write(
        place.path("in.pcap"),
        scope_testkit::traffic::pcap(&input, scope_testkit::traffic::Precision::Nano, false),
    )
    .unwrap();
    let ask = ["-r", "in.pcap", "--top", "host", "--limit", "2", "--memory", "64MiB"];
    let answer = json(&place, &ask);
    assert_eq!((&answer["exact"], &answer["different"]), (&false.into(), &Value::Null), "{answer}");
    let row = |at: usize| &answer["rows"][at];
    assert_eq!((&row(0)["host"], &row(0)["packets"]), (&"10.0.0.2".into(), &110_000.into()), "{answer}");
    assert_eq!(row(1)["host"], "11.0.0.1", "{answer}");
    let (least, most) = (row(1)["packets"].as_u64().unwrap(), row(1)["packets_max"].as_u64().unwrap());
    assert!(least <= 10_000 && most >= 10_000, "{answer}");
    assert!(answer["others_max"].as_u64().unwrap() < least, "{answer}");
    let done = query(&place, &ask);
    assert!(words(&done.stdout).contains("approximate: more than 65,536 different"), "{}", done.stdout);
}

/// The steps of an answer: begin, packets, bytes.
fn steps(answer: &Value) -> Vec<(String, u64, u64)> {
    let step = |step: &Value| {
        let number = |key: &str| step[key].as_u64().unwrap();
        (step["from"].as_str().unwrap().to_string(), number("packets"), number("bytes"))
    };
    answer["steps"].as_array().unwrap().iter().map(step).collect()
}

#[test]
fn a_timeline_has_each_packet_in_its_step_and_no_hole() {
    let place = Place::new();
    let input = capture(&[ETHERNET], 2000, 7);
    keep(&place, &input);
    let (first_ns, last_ns) = input.span_ns().unwrap();
    for (filter, step, step_ns) in [("", "1s", S), ("udp", "250ms", 250 * MS), ("ip6", "1m", 60 * S)] {
        let selected = tcpdump_selects(&input, filter, VlanRule::Transparent).unwrap();
        let mut expected: BTreeMap<i64, (u64, u64)> =
            (first_ns / step_ns..=last_ns / step_ns).map(|step| (step, (0, 0))).collect();
        for index in selected {
            let packet = &input.packets[index];
            let step = expected.get_mut(&(packet.time_ns / step_ns)).unwrap();
            *step = (step.0 + 1, step.1 + packet.data.len() as u64);
        }
        let answer = json(&place, &["--store", "store", filter, "--timeline", "--step", step]);
        let found = steps(&answer);
        let counts: Vec<(u64, u64)> = found.iter().map(|&(_, packets, bytes)| (packets, bytes)).collect();
        assert_eq!(counts, expected.values().copied().collect::<Vec<_>>(), "'{filter}'");
        let first: jiff::Timestamp = found[0].0.parse().unwrap();
        assert_eq!(first.as_nanosecond(), i128::from(first_ns / step_ns * step_ns));
        assert_eq!(answer["step_ns"], step_ns);
    }
    let done = query(&place, &["--store", "store", "--timeline"]);
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    let rows: Vec<&str> = done.stdout.lines().filter(|line| line.contains('#')).collect();
    assert!((5..=20).contains(&rows.len()), "{}", done.stdout);
    assert!(done.stdout.lines().all(|line| line.len() <= 80), "{}", done.stdout);
    // Also where nothing is stored.
    let (from, to) = ("2019-11-22T10:00:00Z", "2019-11-22T10:59:59Z");
    let answer =
        json(&place, &["--store", "store", "--timeline", "--step", "10m", "--from", from, "--to", to]);
    assert_eq!(steps(&answer).len(), 6, "{answer}");
}

#[test]
fn a_timeline_shows_what_is_missing_where_it_may_be_missing() {
    let place = Place::new();
    let mut input = Capture::ethernet("eth0");
    for number in 0..50i64 {
        let udp = frame::udp("10.0.0.1:1000".parse().unwrap(), "10.0.0.2:53".parse().unwrap(), &[7; 30]);
        let mut record =
            Record::new(1_700_000_000 * S + number * 100 * MS, frame::ethernet(&[], 0x0800, &udp));
        // Between 1.4 s and 1.5 s; between 2.9 s and 3 s: in one of two steps.
        record.lost_before = match number {
            15 => 12,
            30 => 5,
            _ => 0,
        };
        input.insert(record);
    }
    let source = place.source(&input);
    let file = source.strip_prefix("file:").unwrap();
    let lost = |filter: &str| -> Vec<(u64, u64)> {
        let answer = json(&place, &["-r", file, filter, "--timeline", "--step", "1s"]);
        let number = |step: &Value, key: &str| step[key].as_u64().unwrap();
        let steps = answer["steps"].as_array().unwrap();
        steps.iter().map(|step| (number(step, "lost_min"), number(step, "lost_max"))).collect()
    };
    assert_eq!(lost(""), [(0, 0), (12, 12), (0, 5), (0, 5), (0, 0)]);
    assert_eq!(lost("udp"), [(0, 0), (0, 12), (0, 5), (0, 5), (0, 0)]);
    let done = query(&place, &["-r", file, "--timeline", "--step", "1s"]);
    assert!(
        done.stdout.contains("missing 12\n") && done.stdout.contains("missing 0 to 5\n"),
        "{}",
        done.stdout
    );
}

#[test]
fn a_timeline_shows_all_of_the_span_that_was_asked_for_and_when_no_run_was_going() {
    let place = Place::new();
    let input = capture(&[ETHERNET], 500, 9);
    keep(&place, &input);
    let (first_ns, last_ns) = input.span_ns().unwrap();
    let (from_ns, to_ns) = (first_ns - 5 * S, last_ns + 3 * S);
    let (from, to) = (at(from_ns), at(to_ns));
    let span = ["--store", "store", "--timeline", "--step", "1s", "--from", &from, "--to", &to];
    let answer = json(&place, &span);
    let found = steps(&answer);
    let time = |at: usize| found[at].0.parse::<jiff::Timestamp>().unwrap().as_nanosecond();
    assert_eq!(time(0), i128::from(from_ns / S * S));
    assert_eq!(time(found.len() - 1), i128::from(to_ns / S * S));
    assert_eq!(found.iter().map(|step| step.1).sum::<u64>(), 500);
    let done = query(&place, &span);
    let silent = done.stdout.lines().filter(|line| line.ends_with("  not recorded")).count();
    assert!((6..=8).contains(&silent), "{}", done.stdout);
    // Without an end it goes on to the last packet, and a span with more steps than anybody reads is not shown whole.
    let open = steps(&json(&place, &["--store", "store", "--timeline", "--step", "1s", "--from", &from]));
    assert_eq!(open.len() as i64, last_ns / S - from_ns / S + 1);
    let long = at(first_ns - 200_000 * S);
    let short = steps(&json(&place, &["--store", "store", "--timeline", "--step", "1s", "--from", &long]));
    assert_eq!(short.len() as i64, last_ns / S - first_ns / S + 1);
}

/// Naively: what lies around the packets of a span that one filter matches, and matches another one.
fn around(
    input: &Capture,
    filter: &str,
    hits: &str,
    span: (i64, i64),
    (before, after): (i64, i64),
) -> Vec<usize> {
    let selects = |filter: &str| tcpdump_selects(input, filter, VlanRule::Transparent).unwrap();
    let time = |index: usize| input.packets[index].time_ns;
    let hits: Vec<i64> =
        selects(hits).into_iter().map(time).filter(|time| (span.0..=span.1).contains(time)).collect();
    let near = |&index: &usize| hits.iter().any(|hit| (hit - before..=hit + after).contains(&time(index)));
    selects(filter).into_iter().filter(near).collect()
}

#[test]
fn what_lies_around_other_packets_comes_once_and_in_order() {
    let place = Place::new();
    let input = capture(&[ETHERNET], 3000, 9);
    keep(&place, &input);
    let source = place.source(&input);
    let file = source.strip_prefix("file:").unwrap();
    let whole = input.span_ns().unwrap();
    let middle = (input.packets[1000].time_ns, input.packets[2000].time_ns);
    let rare = "host 10.0.0.3 and udp port 53";
    let cases = [
        ("", rare, whole, (20 * MS, 0), ["20ms", "0"]),
        ("tcp", rare, whole, (0, 30 * MS), ["0", "30ms"]),
        ("tcp", rare, middle, (7 * MS, 3 * MS), ["7ms", "3ms"]),
        ("host 10.0.0.1", "arp", whole, (0, 0), ["0", "0"]),
        ("arp", "arp", whole, (0, 0), ["0", "0"]),
        ("", "host 10.99.0.1", whole, (S, S), ["1s", "1s"]),
        ("", "udp", middle, (S, S), ["1s", "1s"]),
    ];
    for (number, (filter, hits, span, distances, [before, after])) in cases.into_iter().enumerate() {
        let expected = input.subset(&around(&input, filter, hits, span, distances));
        let (from, to) = (at(span.0), at(span.1));
        for (place_of, which) in [("--store", "store"), ("-r", file)] {
            let out = format!("{number}{}.pcapng", &place_of[1..2]);
            let asked = [
                place_of, which, filter, "--around", hits, "--before", before, "--after", after, "--from",
                &from, "--to", &to,
            ];
            let done = query(&place, &[&asked[..], &["-w", &out]].concat());
            assert_eq!(done.code(), Some(0), "{asked:?}: {}", done.stderr);
            let found = oracle::read(place.path(&out)).unwrap();
            let named = Capture { interfaces: found.capture.interfaces.clone(), ..expected.clone() };
            let expected = if expected.packets.is_empty() { named } else { expected.clone() };
            assert_eq!(difference(&expected, &found.capture), None, "{asked:?}");
            assert!(found.comments[0].contains(hits), "{:?}", found.comments);
            let count = json(&place, &[&asked[..], &["--count"]].concat());
            assert_eq!(count["packets"], expected.packets.len(), "{asked:?}");
            let timeline = json(&place, &[&asked[..], &["--timeline", "--step", "1s"]].concat());
            let sum: u64 = steps(&timeline).iter().map(|(_, packets, _)| packets).sum();
            assert_eq!(sum, expected.packets.len() as u64);
        }
    }
}

#[test]
fn around_reaches_as_far_as_a_dump_does_unless_it_is_told() {
    let place = Place::new();
    let mut input = Capture::ethernet("eth0");
    let begin_ns = 1_700_000_000 * S;
    for second in 0..100i64 {
        let port = if second == 50 { 60_000 } else { 53 };
        let udp = frame::udp(
            "10.0.0.1:1000".parse().unwrap(),
            std::net::SocketAddr::from(([10, 0, 0, 2], port)),
            &[],
        );
        input.insert(Record::new(begin_ns + second * S, frame::ethernet(&[], 0x0800, &udp)));
    }
    let source = place.source(&input);
    let file = source.strip_prefix("file:").unwrap();
    let count = json(&place, &["-r", file, "--around", "udp port 60000", "--count"]);
    let span = (count["first"].as_str().unwrap(), count["last"].as_str().unwrap());
    let second = |text: &str| text.parse::<jiff::Timestamp>().unwrap().as_second() - 1_700_000_000;
    assert_eq!((second(span.0), second(span.1)), (20, 60), "30 s before, 10 s behind: {count}");
}

#[test]
fn the_window_of_a_dump_is_a_span_that_can_be_made_wider() {
    let place = Place::new();
    let mut input = Capture::ethernet("eth0");
    for number in 0..1000i64 {
        let port = if number == 500 { 60_000 } else { 53 };
        let udp = frame::udp(
            "10.0.0.1:1000".parse().unwrap(),
            std::net::SocketAddr::from(([10, 0, 0, 2], port)),
            &[],
        );
        input.insert(Record::new(1_700_000_000 * S + number * 10 * MS, frame::ethernet(&[], 0x0800, &udp)));
    }
    let (source, store) = (place.source(&input), place.path("store"));
    let asked = [
        "--source",
        &source,
        "--store",
        store.to_str().unwrap(),
        "--trigger",
        "udp port 60000",
        "--dump",
        "",
        "--before",
        "100ms",
        "--after",
        "50ms",
        "--ring",
        "16MiB",
    ];
    let summary = place.summary(&asked);
    let dump = summary.only_dump().path.clone();
    let dump = dump.to_str().unwrap();
    let count = |more: &[&str]| {
        let asked = [&["--store", "store", "--around-dump", dump, "--count"], more].concat();
        json(&place, &asked)["packets"].as_u64().unwrap()
    };
    assert_eq!(count(&[]), 16, "10 before, itself, 5 behind");
    assert_eq!(count(&["--before", "50ms"]), 21);
    assert_eq!(count(&["--before", "50ms", "--after", "1s"]), 121);
    assert_eq!(count(&["udp port 60000"]), 1);
    let done = query(&place, &["--store", "store", "--around-dump", "in.pcapng", "--count"]);
    assert_eq!(done.code(), Some(2));
    assert!(words(&done.stderr).contains("states no window"), "{}", done.stderr);
}

#[test]
fn what_others_are_wanted_around_and_cannot_be_read_is_missing() {
    let place = Place::new();
    let mut input = Capture::ethernet("eth0");
    for number in 0..2000i64 {
        let port = if number == 1000 { 60_000 } else { 53 };
        let payload = if number == 1000 { *b"the one that is damaged" } else { [7; 23] };
        let to = std::net::SocketAddr::from(([10, 0, 0, 2], port));
        let udp = frame::udp("10.0.0.1:1000".parse().unwrap(), to, &payload);
        input.insert(Record::new(1_700_000_000 * S + number * MS, frame::ethernet(&[], 0x0800, &udp)));
    }
    keep(&place, &input);
    let asked = [
        "query",
        "--store",
        "store",
        "--around",
        "udp port 60000",
        "--before",
        "1ms",
        "--after",
        "1ms",
        "--count",
    ];
    let count = |code: i32| -> Value {
        let mut command = wirescope(&[&asked[..], &["--json"]].concat());
        command.current_dir(place.root());
        let done = finish(command);
        assert_eq!(done.code(), Some(code), "{}", done.stderr);
        serde_json::from_str(&done.stdout).unwrap()
    };
    assert_eq!(count(0)["packets"], 3);
    let day = run::names(&place.path("store")).into_iter().find(|name| name.starts_with("20")).unwrap();
    let folder = place.path("store").join(day);
    let file = folder.join(&run::names(&folder)[0]);
    let mut bytes = std::fs::read(&file).unwrap();
    let at = bytes.windows(23).position(|window| window == b"the one that is damaged").unwrap();
    bytes[at] ^= 1;
    std::fs::write(&file, bytes).unwrap();
    let answer = count(1);
    assert_eq!(answer["packets"], 0, "{answer}");
    assert_eq!(
        (&answer["missing"][0]["reason"], &answer["missing"][0]["lost_max"]),
        (&"unreadable".into(), &1.into()),
        "{answer}"
    );
}
