//! Dumps of whole captures: exactly what tcpdump selects inside the window, plus the packet that fired, in
//! order of time.

mod run;

use run::summary::{Dump, file_time};
use run::{Place, is_finished_dump};
use scope_testkit::oracle::{self, VlanRule, difference, expected_dump};
use scope_testkit::traffic::frame::{self, Tag};
use scope_testkit::traffic::random::START_NS;
use scope_testkit::traffic::{
    Capture, Conversations, ETHERNET, Interface, LINUX_SLL, Precision, RAW, Random, Record,
};
use scope_testkit::traffic::{pcap, pcapng};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

const SECOND: i64 = 1_000_000_000;

/// How the capture is written.
#[derive(Clone, Copy, Debug, PartialEq)]
enum As {
    Pcapng,
    PcapngBigMicro,
    Pcap,
    PcapBigMicro,
}

/// One capture with one packet to port 60000 in its middle, one order to dump, and what tcpdump is asked.
#[derive(Clone)]
struct Case {
    name: &'static str,
    traffic: Conversations,
    /// Packets arrive late by less than this.
    late_ns: i64,
    format: As,
    /// The packet that fires, without its link, and its tags.
    hit: Vec<u8>,
    tags: Vec<Tag>,
    trigger: &'static str,
    dump: Option<&'static str>,
    /// The dump's template as it has to be filled.
    filled: &'static str,
    before: &'static str,
    after: &'static str,
    window_ns: (i64, i64),
    vlan: VlanRule,
}

fn udp(from: &str, to: &str) -> Vec<u8> {
    frame::udp(from.parse().unwrap(), to.parse().unwrap(), b"trigger me")
}

/// Two named interfaces, IPv4 and IPv6, 10 s, hit at about 5 s, 2 s before, 1 s after.
fn plain(name: &'static str) -> Case {
    let interfaces = vec![Interface::new("left", ETHERNET), Interface::new("right", ETHERNET)];
    Case {
        name,
        traffic: Conversations { interfaces, seed: name.len() as u64, ..Conversations::default() },
        late_ns: 0,
        format: As::Pcapng,
        hit: udp("10.0.0.1:1000", "10.0.0.2:60000"),
        tags: Vec::new(),
        trigger: "hit=udp port 60000",
        dump: Some("host $srcIP"),
        filled: "host 10.0.0.1",
        before: "2s",
        after: "1s",
        window_ns: (2 * SECOND, SECOND),
        vlan: VlanRule::Transparent,
    }
}

fn one(link_type: u16) -> Vec<Interface> {
    vec![Interface::new("only", link_type)]
}

fn cases() -> Vec<Case> {
    let tagged = |name, vlan| Case { traffic: Conversations { vlan, ..plain(name).traffic }, ..plain(name) };
    let on = |name, link_type| Case {
        traffic: Conversations { interfaces: one(link_type), ..plain(name).traffic },
        ..plain(name)
    };
    vec![
        plain("plain"),
        Case { dump: Some("host {srcIP}"), ..plain("braces that no shell eats") },
        Case { dump: Some("host $SRCip"), ..plain("names in any case") },
        Case { dump: Some("udp port $srcPort"), filled: "udp port 1000", ..plain("a port") },
        Case { dump: Some("ip proto $proto"), filled: "ip proto 17", ..plain("a protocol") },
        Case {
            dump: Some("ether host $srcMAC or ether dst $dstMAC"),
            filled: "ether host 02:00:0a:00:00:01 or ether dst 02:00:0a:00:00:02",
            ..plain("Ethernet addresses")
        },
        Case {
            dump: Some("$flow"),
            // Later fragments have no ports: which flow they are of, only their first one tells.
            filled: "udp and ((src host 10.0.0.1 and src port 1000 and dst host 10.0.0.2 and dst port 60000) or \
                     (src host 10.0.0.2 and src port 60000 and dst host 10.0.0.1 and dst port 1000) or \
                     (host 10.0.0.1 and host 10.0.0.2 and ip[6:2] & 0x1fff != 0))",
            ..plain("the flow")
        },
        Case {
            dump: None,
            filled: "host 10.0.0.1 and host 10.0.0.2",
            ..plain("no template: what went between the two hosts")
        },
        Case {
            dump: Some("tcp port 443"),
            filled: "tcp port 443",
            ..plain("the packet that fired, though the filter says no")
        },
        Case { dump: Some("greater 200"), filled: "greater 200", ..plain("original lengths") },
        Case {
            hit: udp("[fd00::1]:1000", "[fd00::2]:60000"),
            dump: None,
            filled: "host fd00::1 and host fd00::2",
            ..plain("no template, IPv6")
        },
        Case {
            hit: udp("[fd00::3]:1000", "[fd00::4]:60000"),
            dump: Some("ip6 host $dstIP"),
            filled: "ip6 host fd00::4",
            ..plain("IPv6")
        },
        Case { tags: vec![Tag::q(3)], ..tagged("tagged, transparent", 40) },
        Case {
            tags: vec![Tag::ad(2), Tag::q(9)],
            dump: None,
            filled: "host 10.0.0.1 and host 10.0.0.2",
            ..tagged("two tags", 40)
        },
        Case {
            tags: vec![Tag::q(3)],
            dump: Some("vlan $vlan"),
            filled: "vlan 3",
            ..tagged("the filter says vlan itself", 40)
        },
        Case { vlan: VlanRule::Exact, ..tagged("untagged hit, exact", 40) },
        Case { late_ns: 300_000_000, ..plain("out of order") },
        Case {
            late_ns: 300_000_000,
            dump: Some("ip or ip6 or not ip"),
            filled: "ip or ip6 or not ip",
            ..tagged("out of order, all", 30)
        },
        Case { before: "0", after: "0", window_ns: (0, 0), ..plain("a window of one moment") },
        Case {
            before: "60",
            after: "1m",
            window_ns: (60 * SECOND, 60 * SECOND),
            ..plain("a window wider than the file")
        },
        Case {
            before: "1500ms",
            after: "250ms",
            window_ns: (1_500_000_000, 250_000_000),
            ..plain("milliseconds")
        },
        Case { before: "0s", after: "3s", window_ns: (0, 3 * SECOND), ..plain("nothing from before") },
        Case { format: As::PcapngBigMicro, ..plain("pcapng, big endian, microseconds") },
        Case { format: As::Pcap, ..on("pcap, nanoseconds", ETHERNET) },
        Case { format: As::PcapBigMicro, ..on("pcap, big endian, microseconds", ETHERNET) },
        Case { dump: None, filled: "host 10.0.0.1 and host 10.0.0.2", ..on("raw IP", RAW) },
        Case { format: As::Pcap, ..on("Linux cooked", LINUX_SLL) },
    ]
}

impl Case {
    /// The input as a reader of the file sees it, and the index of the packet that fires.
    fn input(&self) -> (Vec<u8>, Capture, usize) {
        let mut capture = self.traffic.capture();
        let middle = capture.packets[capture.packets.len() / 2].time_ns;
        let link_type = capture.interfaces[0].link_type;
        let hit = Record::new(middle + 1000, frame::on_link(link_type, &self.tags, &self.hit));
        capture.insert(hit.clone());
        if self.late_ns > 0 {
            capture.disorder(&mut Random::new(self.traffic.seed), self.late_ns);
        }
        let bytes = match self.format {
            As::Pcapng => pcapng(&capture, Precision::Nano, false),
            As::PcapngBigMicro => pcapng(&capture, Precision::Micro, true),
            As::Pcap => pcap(&capture, Precision::Nano, false),
            As::PcapBigMicro => pcap(&capture, Precision::Micro, true),
        };
        let input = oracle::parse(&bytes).expect("the test's own file").capture;
        let at = input.packets.iter().position(|p| p.data == hit.data).expect("the packet that fires");
        (bytes, input, at)
    }
}

/// Runs one case and compares its one dump with tcpdump's opinion.
fn check(case: &Case, workers: usize) {
    let name = format!("{}, {workers} workers", case.name);
    let (bytes, input, at) = case.input();
    let place = Place::new();
    let source = format!("{},workers={workers}", place.source_of("in", &bytes));
    let mut arguments =
        vec!["--source", &source, "--trigger", case.trigger, "--before", case.before, "--after", case.after];
    if let Some(template) = case.dump {
        arguments.extend(["--dump", template]);
    }
    if case.vlan == VlanRule::Exact {
        arguments.extend(["--vlan", "exact"]);
    }
    let summary = place.summary(&arguments);
    summary.assert_adds_up();
    assert_eq!(summary.received.packets, input.packets.len() as u64, "{name}");
    assert_eq!((summary.hits["hit"].fired, summary.hits["hit"].sum()), (1, 1), "{name}");

    let hit_ns = input.packets[at].time_ns;
    let (from_ns, to_ns) = (hit_ns - case.window_ns.0, hit_ns + case.window_ns.1);
    let indices = expected_dump(&input, case.filled, from_ns, to_ns, Some(at), case.vlan).expect("tcpdump");
    let dump = summary.only_dump();
    let found = oracle::read(&dump.path).unwrap_or_else(|words| panic!("{name}: {words}"));
    if let Some(words) = difference(&input.subset(&indices), &found.capture) {
        panic!("{name}: {words}");
    }
    assert_eq!((dump.trigger.as_str(), dump.time_ns), ("hit", hit_ns), "{name}");
    assert_eq!((dump.packets, dump.lost_nothing()), (indices.len() as u64, true), "{name}: {dump:?}");
    let (first_ns, last_ns) = input.span_ns().expect("packets");
    if case.late_ns == 0 {
        assert_eq!((dump.from_ns, dump.to_ns), (from_ns.max(first_ns), to_ns.min(last_ns)), "{name}");
    }
    if workers == 1 {
        check_files(&place, dump);
    }
}

/// The files of a dump: name, mode, link type, and what other programs say of them; nothing else lies in the
/// folder.
fn check_files(place: &Place, dump: &Dump) {
    let stem = format!("{}_{}_0001", file_time(dump.time_ns), dump.trigger);
    assert_eq!(dump.path, place.out().canonicalize().expect("the folder").join(format!("{stem}.pcapng")));
    let names: Vec<String> = place.out_names().into_iter().filter(|name| name != "wirescope.jsonl").collect();
    assert!(names.iter().all(|name| is_finished_dump(name)), "{names:?}");
    assert_eq!(names.len(), dump.paths.len(), "{names:?}");
    for path in &dump.paths {
        let mode = path.metadata().expect("the dump").permissions().mode() & 0o7777;
        assert_eq!(mode, 0o640, "{}", path.display());
        oracle::opens_cleanly(path).unwrap();
    }
}

/// Runs every case; two at a time, since a run waits for its own end much of the time.
fn check_all(workers: usize) {
    let cases = cases();
    std::thread::scope(|scope| {
        for half in 0..2 {
            let cases = &cases;
            scope.spawn(move || cases.iter().skip(half).step_by(2).for_each(|case| check(case, workers)));
        }
    });
}

#[test]
fn a_dump_holds_exactly_what_tcpdump_selects_with_one_worker() {
    check_all(1);
}

#[test]
fn a_dump_holds_exactly_what_tcpdump_selects_with_two_workers() {
    check_all(2);
}

#[test]
fn a_dump_holds_exactly_what_tcpdump_selects_with_four_workers() {
    check_all(4);
}

#[test]
fn packets_of_one_time_stay_in_their_order() {
    let traffic = Conversations { ties: 50, ..plain("").traffic };
    check(&Case { traffic, dump: Some("ip or ip6"), filled: "ip or ip6", ..plain("ties") }, 1);
}

#[test]
fn both_ends_of_the_window_belong_to_it() {
    let mut capture = Capture::ethernet("left");
    for (offset_ns, host) in [
        (-SECOND - 1, 1),
        (-SECOND, 2),
        (-1, 3),
        (0, 9),
        (1, 4),
        (SECOND, 5),
        (SECOND + 1, 6),
        (9 * SECOND, 7),
    ] {
        let port = if host == 9 { 60000 } else { 7 };
        let ip = udp(&format!("10.0.0.{host}:1"), &format!("10.0.0.8:{port}"));
        capture
            .packets
            .push(Record::new(START_NS + 20 * SECOND + offset_ns, frame::on_link(ETHERNET, &[], &ip)));
    }
    let place = Place::new();
    let source = place.source(&capture);
    let summary = place.summary(&[
        "--source",
        &source,
        "--trigger",
        "udp port 60000",
        "--dump",
        "ip",
        "--before",
        "1",
        "--after",
        "1",
    ]);
    let dump = summary.only_dump();
    assert_eq!(dump.trigger, "trigger1");
    let found = oracle::read(&dump.path).unwrap().capture;
    assert_eq!(difference(&capture.subset(&[1, 2, 3, 4, 5]), &found), None);
}

#[test]
fn a_hit_without_addresses_dumps_everything_in_the_window() {
    let mut capture = plain("").traffic.capture();
    capture.packets.retain(|packet| packet.data.len() > 14);
    let at_ns = capture.packets[900].time_ns + 7;
    let at = capture.insert(Record::new(at_ns, frame::ethernet(&[], 0x88b6, b"no addresses")));
    let place = Place::new();
    let source = place.source(&capture);
    let summary = place.summary(&[
        "--source",
        &source,
        "--trigger",
        "hit=ether proto 0x88b6",
        "--before",
        "1",
        "--after",
        "2",
    ]);
    let expected =
        expected_dump(&capture, "", at_ns - SECOND, at_ns + 2 * SECOND, Some(at), VlanRule::Transparent)
            .unwrap();
    let found = oracle::read(&summary.only_dump().path).unwrap().capture;
    assert_eq!(difference(&capture.subset(&expected), &found), None);
}

#[test]
fn a_second_link_type_in_the_window_gives_a_second_file_of_the_same_dump() {
    let interfaces =
        vec![Interface::new("eth", ETHERNET), Interface::new("tun", RAW), Interface::new("eth2", ETHERNET)];
    for (workers, late_ns) in [(1, 0), (2, 200_000_000)] {
        let traffic = Conversations { interfaces: interfaces.clone(), vlan: 20, ..plain("").traffic };
        let case = Case { traffic, late_ns, ..plain("two link types") };
        let (bytes, input, at) = case.input();
        let place = Place::new();
        let source = format!("{},workers={workers}", place.source_of("in", &bytes));
        let summary = place.summary(&[
            "--source",
            &source,
            "--trigger",
            case.trigger,
            "--dump",
            "host $srcIP",
            "--before",
            "2",
            "--after",
            "1",
        ]);
        let hit_ns = input.packets[at].time_ns;
        let expected =
            expected_dump(&input, case.filled, hit_ns - 2 * SECOND, hit_ns + SECOND, Some(at), case.vlan)
                .unwrap();
        let expected = input.subset(&expected);
        let dump = summary.only_dump();
        assert_eq!((dump.paths.len(), &dump.path), (2, &dump.paths[0]));
        assert_eq!(dump.packets, expected.packets.len() as u64);
        check_second_name(&dump.paths);
        for path in &dump.paths {
            let found = oracle::read(path).unwrap().capture;
            let link_types = found.link_types();
            assert_eq!(link_types.len(), 1, "{}", path.display());
            assert_eq!(difference(&expected.of_link_type(link_types[0]), &found), None, "{}", path.display());
        }
        if workers == 1 {
            check_files(&place, dump);
        }
    }
}

fn check_second_name(paths: &[PathBuf]) {
    let name = |path: &PathBuf| path.file_name().expect("a name").to_string_lossy().into_owned();
    let first = name(&paths[0]);
    let link_type = oracle::read(&paths[1]).unwrap().capture.link_types()[0];
    let expected = if link_type == RAW { "RAW" } else { "ETHERNET" };
    assert_eq!(name(&paths[1]), first.replace(".pcapng", &format!("_{expected}.pcapng")));
}

#[test]
fn several_files_are_fed_in_order_of_capture_time() {
    let mut whole = Conversations { interfaces: one(ETHERNET), ..plain("").traffic }.capture();
    whole.packets.iter_mut().for_each(|packet| packet.flags = 0);
    let part = |third: usize| {
        let indices: Vec<usize> = (0..whole.packets.len()).filter(|at| at % 3 == third).collect();
        pcap(&whole.subset(&indices), Precision::Nano, false)
    };
    let place = Place::new();
    let sources: Vec<String> =
        (0..3).map(|third| place.source_of(&format!("{third}.pcap"), &part(third))).collect();
    let (first, last) = whole.span_ns().unwrap();
    let mut arguments = vec![
        "--trigger",
        "hit=ip or ip6 or not ip",
        "--single",
        "--dump",
        "ip or ip6 or not ip",
        "--after",
        "5m",
    ];
    sources.iter().for_each(|source| arguments.extend(["--source", source]));
    let summary = place.summary(&arguments);
    let dump = summary.only_dump();
    assert_eq!((dump.time_ns, dump.from_ns, dump.to_ns), (first, first, last));
    let mut unnamed = whole.clone();
    unnamed.interfaces[0].name.clear();
    let found = oracle::read(&dump.path).unwrap().capture;
    assert_eq!(difference(&unnamed, &found), None);
}

#[test]
fn dumps_of_generated_traffic_agree_with_the_ring_that_held_it() {
    for workers in [1, 2, 4] {
        let place = Place::new();
        let ring = place.path("ring.pcapng");
        // No generated packet has the trigger packet's time at this rate, so the order of time is the only
        // one.
        let options = "rate=3333,pace=max,time=3s,flows=40,vlan=30%,ipv6=20%,seed=11,trigger-at=1001ms,start=2026-11-20T20:31:05Z";
        let source = format!("synth:{options},workers={workers}");
        let orders = [
            "--trigger",
            "hit=udp port 60000",
            "--dump",
            "net 10.0.0.0/17 and not tcp",
            "--before",
            "700ms",
            "--after",
            "1",
        ];
        let more = ["--source", &source, "--ring-out", ring.to_str().unwrap()];
        let summary = place.summary(&[&more[..], &orders].concat());
        summary.assert_adds_up();
        let input = oracle::read(&ring).unwrap().capture;
        assert_eq!(input.packets.len() as u64, summary.received.packets);
        let hits = oracle::tcpdump_selects(&input, "udp port 60000", VlanRule::Transparent).unwrap();
        assert_eq!(hits.len(), 1, "{workers} workers");
        let hit_ns = input.packets[hits[0]].time_ns;
        let (from_ns, to_ns) = (hit_ns - 700_000_000, hit_ns + SECOND);
        let expected =
            expected_dump(&input, orders[3], from_ns, to_ns, Some(hits[0]), VlanRule::Transparent).unwrap();
        let dump = summary.only_dump();
        assert_eq!(
            (dump.time_ns, dump.from_ns, dump.to_ns, dump.lost_nothing()),
            (hit_ns, from_ns, to_ns, true)
        );
        let found = oracle::read(&dump.path).unwrap().capture;
        assert_eq!(difference(&input.subset(&expected), &found), None, "{workers} workers");
    }
}
