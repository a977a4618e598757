//! What becomes of each hit, in capture time: fired, extended, held off, too many, unfilled, disarmed; and
//! the dumps of it.

mod run;

use run::Place;
use run::summary::{Hits, Summary};
use scope_testkit::oracle::{self, VlanRule, difference, expected_dump};
use scope_testkit::traffic::frame;
use scope_testkit::traffic::random::START_NS;
use scope_testkit::traffic::{Capture, ETHERNET, Precision, Record};

const MS: i64 = 1_000_000;

/// A hit: when, in ms after the start, and from which host.
type Hit = (i64, u8);

/// A packet every 50 ms, from all hosts by turns, and the hits in between.
fn capture(seconds: i64, hits: &[Hit]) -> Capture {
    let mut capture = Capture::ethernet("left");
    let packet = |host: u8, port: u16| {
        let from = format!("10.0.0.{host}:1000").parse().unwrap();
        frame::on_link(ETHERNET, &[], &frame::udp(from, format!("10.0.0.99:{port}").parse().unwrap(), b"x"))
    };
    for number in 0..seconds * 20 {
        capture.packets.push(Record::new(START_NS + number * 50 * MS, packet(number as u8 % 5 + 1, 7)));
    }
    for &(at_ms, host) in hits {
        capture.insert(Record::new(START_NS + at_ms * MS + 1, packet(host, 60000)));
    }
    capture
}

/// Hits, options, the counters they have to give, and the dumps: the hit that fired, and the window in ms
/// after the start.
struct Case {
    name: &'static str,
    hits: &'static [Hit],
    options: &'static [&'static str],
    counted: Hits,
    dumps: &'static [(Hit, i64, i64)],
}

fn cases() -> Vec<Case> {
    let none = Hits::default();
    vec![
        Case {
            name: "hits far apart fire each",
            hits: &[(5000, 1), (15000, 1)],
            options: &["--before", "1", "--after", "1"],
            counted: Hits { fired: 2, ..none },
            dumps: &[((5000, 1), 4000, 6000), ((15000, 1), 14000, 16000)],
        },
        Case {
            name: "a hit inside an open dump of the same filter lets its window grow",
            hits: &[(5000, 1), (5500, 1), (6200, 1)],
            options: &["--before", "1", "--after", "1"],
            counted: Hits { fired: 1, extended: 2, ..none },
            dumps: &[((5000, 1), 4000, 7200)],
        },
        Case {
            name: "an open dump is extended though holdoff still runs",
            hits: &[(5000, 1), (6000, 1), (20000, 1)],
            options: &["--before", "1", "--after", "2", "--holdoff", "60"],
            counted: Hits { fired: 1, extended: 1, held_off: 1, ..none },
            dumps: &[((5000, 1), 4000, 8000)],
        },
        Case {
            name: "holdoff keeps later hits with the same values from firing, and no others",
            hits: &[(5000, 1), (8000, 1), (11000, 2), (20000, 1)],
            options: &["--before", "100ms", "--after", "100ms", "--holdoff", "10s"],
            counted: Hits { fired: 3, held_off: 1, ..none },
            dumps: &[((5000, 1), 4900, 5100), ((11000, 2), 10900, 11100), ((20000, 1), 19900, 20100)],
        },
        Case {
            name: "an empty key is the whole trigger's",
            hits: &[(5000, 1), (8000, 1), (11000, 2), (20000, 1)],
            options: &["--before", "100ms", "--after", "100ms", "--holdoff", "10s", "--holdoff-key", ""],
            counted: Hits { fired: 2, held_off: 2, ..none },
            dumps: &[((5000, 1), 4900, 5100), ((20000, 1), 19900, 20100)],
        },
        Case {
            name: "a file has no holdoff unless it is asked for",
            hits: &[(5000, 1), (5300, 1), (5600, 1)],
            options: &["--before", "100ms", "--after", "100ms"],
            counted: Hits { fired: 3, ..none },
            dumps: &[((5000, 1), 4900, 5100), ((5300, 1), 5200, 5400), ((5600, 1), 5500, 5700)],
        },
        Case {
            name: "holdoff runs per key",
            hits: &[(5000, 1), (6500, 2), (9000, 1), (20000, 2)],
            options: &[
                "--before",
                "100ms",
                "--after",
                "100ms",
                "--holdoff",
                "10s",
                "--holdoff-key",
                "$srcIP",
            ],
            counted: Hits { fired: 3, held_off: 1, ..none },
            dumps: &[((5000, 1), 4900, 5100), ((6500, 2), 6400, 6600), ((20000, 2), 19900, 20100)],
        },
        Case {
            name: "another filter is another dump, with its full past",
            hits: &[(5000, 1), (6000, 2)],
            options: &["--before", "2", "--after", "2", "--holdoff", "0"],
            counted: Hits { fired: 2, ..none },
            dumps: &[((5000, 1), 3000, 7000), ((6000, 2), 4000, 8000)],
        },
        Case {
            name: "single fires once, and never extends",
            hits: &[(5000, 1), (5300, 1), (15000, 1)],
            options: &["--before", "1", "--after", "1", "--single"],
            counted: Hits { fired: 1, disarmed: 2, ..none },
            dumps: &[((5000, 1), 4000, 6000)],
        },
        Case {
            name: "a file waits for a free place among the dumps",
            hits: &[(5000, 1), (10000, 2), (15000, 3), (20000, 4)],
            options: &["--before", "1", "--after", "1", "--dumps-max", "1"],
            counted: Hits { fired: 4, ..none },
            dumps: &[
                ((5000, 1), 4000, 6000),
                ((10000, 2), 9000, 11000),
                ((15000, 3), 14000, 16000),
                ((20000, 4), 19000, 21000),
            ],
        },
        Case {
            name: "a hit in the first and one in the last moment",
            hits: &[(0, 1), (24999, 2)],
            options: &["--before", "1", "--after", "1"],
            counted: Hits { fired: 2, ..none },
            dumps: &[((0, 1), -1000, 1000), ((24999, 2), 23999, 25999)],
        },
    ]
}

fn check(case: &Case, workers: usize) {
    let name = format!("{}, {workers} workers", case.name);
    let input = capture(25, case.hits);
    let place = Place::new();
    let source = format!("{},workers={workers}", place.source(&input));
    let mut arguments = vec!["--source", &source, "--trigger", "hit=udp port 60000", "--dump", "host $srcIP"];
    arguments.extend(case.options);
    let summary = place.summary(&arguments);
    summary.assert_adds_up();
    assert_eq!(summary.hits["hit"], case.counted, "{name}");
    assert_eq!(summary.dumps.len(), case.dumps.len(), "{name}: {summary:?}");
    for (dump, &((at_ms, host), from_ms, to_ms)) in summary.dumps.iter().zip(case.dumps) {
        assert_eq!(dump.time_ns, START_NS + at_ms * MS + 1, "{name}");
        // A window stands one nanosecond later than its milliseconds say, as its hit does.
        let (from_ns, to_ns) = (START_NS + from_ms * MS + 1, START_NS + to_ms * MS + 1);
        let filter = format!("host 10.0.0.{host}");
        let expected = expected_dump(&input, &filter, from_ns, to_ns, None, VlanRule::Transparent).unwrap();
        let expected = input.subset(&expected);
        let found = oracle::read(&dump.path).unwrap().capture;
        if let Some(words) = difference(&expected, &found) {
            panic!("{name}, dump at {at_ms} ms: {words}");
        }
        let (first_ns, last_ns) = input.span_ns().unwrap();
        assert!(dump.lost_nothing(), "{name}: {dump:?}");
        assert_eq!((dump.from_ns, dump.to_ns), (from_ns.max(first_ns), to_ns.min(last_ns)), "{name}");
    }
}

#[test]
fn each_hit_is_counted_once_and_dumps_hold_their_windows() {
    for case in cases() {
        check(&case, 1);
    }
}

#[test]
fn capture_time_decides_with_two_workers_too() {
    // Hits of several flows reach several workers, so only cases whose hits are far apart have one answer.
    for case in cases().iter().filter(|case| !case.options.contains(&"--holdoff-key")) {
        check(case, 2);
    }
}

fn hits_of(hits: &[Hit], options: &[&str]) -> Summary {
    let place = Place::new();
    let source = place.source(&capture(25, hits));
    let mut arguments = vec!["--source", &source, "--trigger", "hit=udp port 60000"];
    arguments.extend(options);
    let summary = place.summary_of_many_hits(&arguments);
    summary.assert_adds_up();
    summary
}

#[test]
fn overlapping_windows_over_the_cap_neither_hang_nor_vanish() {
    let summary = hits_of(
        &[(5000, 1), (6000, 2), (7000, 3)],
        &["--dump", "host $srcIP", "--after", "4", "--dumps-max", "1", "--holdoff", "0"],
    );
    let hits = summary.hits["hit"];
    assert_eq!((hits.fired + hits.too_many, hits.sum()), (3, 3), "{hits:?}");
    assert!(hits.fired >= 1 && summary.dumps.len() as u64 == hits.fired, "{summary:?}");
    assert_eq!(summary.received.packets, 25 * 20 + 3);
}

#[test]
fn hits_that_start_no_dump_are_told_with_the_remedy_and_too_many_of_them_are_exit_code_1() {
    let place = Place::new();
    let source = place.source(&capture(25, &[(5000, 1), (6000, 2), (7000, 3)]));
    let orders = ["--trigger", "hit=udp port 60000", "--after", "60", "--source", &source];
    let done = place.run(&[&orders[..], &["--dump", "host $srcIP", "--dumps-max", "1"]].concat());
    let hits = done.summary().hits["hit"];
    assert_eq!((done.code(), hits.fired, hits.too_many), (Some(1), 1, 2), "{}", done.stderr);
    let first = "trigger hit: a hit started no dump: 1 dump was open, the most at once; allow more with \
        --dumps-max 4";
    assert!(done.stderr.contains(first), "{}", done.stderr);
    let summary: serde_json::Value = serde_json::from_str(&done.stdout).unwrap();
    assert!(summary["failures"].to_string().contains("trigger hit: 2 hits started no dump"), "{summary}");

    let done = place.run(&[&orders[..], &["--dump", "vlan $vlan"]].concat());
    assert_eq!((done.code(), done.summary().hits["hit"].template_unfilled), (Some(0), 3), "{}", done.stderr);
    let first = "trigger hit: a hit started no dump: the packet has no $vlan";
    assert!(done.stderr.contains(first) && done.stderr.contains("--dump 'vlan $vlan ?:'"), "{}", done.stderr);
    assert!(
        done.summary().warnings.iter().any(|warning| warning.contains("3 hits started no dump")),
        "{}",
        done.stdout
    );

    // On files there is room for a thousand dumps, and for their files, whatever the limit of open files was.
    let hosts: Vec<Hit> = (0..300).map(|number| (5000 + number * 10, (number % 90 + 1) as u8)).collect();
    let source = place.source_of(
        "many.pcapng",
        &scope_testkit::traffic::pcapng(&capture(25, &hosts), Precision::Nano, false),
    );
    let mut limited = std::process::Command::new("sh");
    let command =
        place.command(&["--source", &source, "--trigger", "hit=udp port 60000", "--dump", "host $srcIP"]);
    limited
        .args(["-c", "ulimit -S -n 64; exec \"$0\" \"$@\""])
        .arg(command.get_program())
        .args(command.get_args());
    let done = run::finish(limited);
    assert_eq!((done.code(), done.summary().hits["hit"].fired), (Some(0), 90), "{}", done.stderr);
}

#[test]
fn a_flow_is_one_dump_for_both_directions_with_fragments_and_extension_headers() {
    let (a, b) = ("10.0.0.1:1000".parse().unwrap(), "10.0.0.2:60000".parse().unwrap());
    let mut input = capture(10, &[]);
    let there = frame::on_link(ETHERNET, &[], &frame::udp(a, b, b"there"));
    let back = frame::on_link(ETHERNET, &[], &frame::udp(b, a, b"and back"));
    let mut fragment = there.clone();
    fragment[20..22].copy_from_slice(&[0, 9]); // a later one, without ports
    for (at_ms, data) in [(5000, &there), (5100, &back), (5200, &fragment), (5300, &there)] {
        input.insert(Record::new(START_NS + at_ms * MS + 1, data.clone()));
    }
    for template in [&["--dump", "$flow"][..], &[]] {
        let place = Place::new();
        let source = place.source(&input);
        let orders =
            ["--source", &source, "--trigger", "hit=udp port 60000", "--before", "1", "--after", "1"];
        let summary = place.summary(&[&orders[..], template].concat());
        assert_eq!(summary.hits["hit"], Hits { fired: 1, extended: 2, ..Hits::default() }, "{template:?}");
        assert_eq!(
            (summary.only_dump().packets, summary.only_dump().lost_nothing()),
            (4, true),
            "{template:?}"
        );
    }
}

#[test]
fn exit_after_ends_the_run_with_that_many_dumps() {
    let summary = hits_of(
        &[(2000, 1), (8000, 1), (14000, 1), (20000, 1)],
        &["--before", "1", "--after", "1", "--exit-after", "2"],
    );
    assert_eq!(summary.dumps.len(), 2, "{summary:?}");
    assert!(summary.dumps.iter().all(|dump| dump.lost_nothing()), "{summary:?}");
    assert_eq!(summary.dumps[1].time_ns, START_NS + 8000 * MS + 1);
}

#[test]
fn a_window_grows_to_ten_minutes_and_the_next_dump_begins_where_it_ended() {
    const MINUTE_MS: i64 = 60_000;
    let hits: Vec<Hit> = (0..50).map(|number| (MINUTE_MS + number * 30_000, 1)).collect();
    let mut input = capture(0, &hits);
    for second in 0..28 * 60 {
        let ip = frame::ping(
            "10.0.0.1".parse().unwrap(),
            "10.0.0.2".parse().unwrap(),
            second as u16,
            b"background",
        );
        input.insert(Record::new(START_NS + second * 1000 * MS, frame::on_link(ETHERNET, &[], &ip)));
    }
    let place = Place::new();
    let source = place.source(&input);
    let summary = place.summary(&[
        "--source",
        &source,
        "--trigger",
        "hit=udp port 60000",
        "--dump",
        "ip",
        "--before",
        "20",
        "--after",
        "60",
    ]);
    let counted = summary.hits["hit"];
    assert_eq!((counted.fired + counted.extended, counted.sum()), (50, 50), "{counted:?}");
    assert!(summary.dumps.len() >= 3, "25 minutes of hits are more than two windows: {summary:?}");
    for pair in summary.dumps.windows(2) {
        assert!(pair[1].from_ns <= pair[0].to_ns + 1, "a gap between two dumps: {pair:?}");
    }
    let mut held = Vec::new();
    for dump in &summary.dumps {
        assert!(dump.to_ns - dump.from_ns <= 10 * MINUTE_MS * MS + 80_000 * MS, "{dump:?}");
        held.extend(
            oracle::read(&dump.path).unwrap().capture.packets.into_iter().map(|p| (p.time_ns, p.data)),
        );
    }
    held.sort();
    held.dedup();
    let window = START_NS + 40_000 * MS + 1..=START_NS + (hits[49].0 + 60_000) * MS + 1;
    let expected = input.packets.iter().filter(|p| window.contains(&p.time_ns)).count();
    assert_eq!(held.len(), expected, "packets in all dumps together");
}

#[test]
fn a_hit_without_the_field_that_its_template_needs_is_counted() {
    let mut input = capture(10, &[]);
    let ping = frame::ping("10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap(), 1, b"no ports");
    input.insert(Record::new(START_NS + 5000 * MS, frame::on_link(ETHERNET, &[], &ping)));
    let other = frame::ethernet(&[], frame::EXPERIMENT, b"no addresses");
    input.insert(Record::new(START_NS + 6000 * MS, other));
    let check = |trigger: &str, template: &str| {
        let place = Place::new();
        let source = place.source(&input);
        let summary =
            place.summary(&["--source", &source, "--trigger", &format!("hit={trigger}"), "--dump", template]);
        assert_eq!(
            summary.hits["hit"],
            Hits { template_unfilled: 1, ..Hits::default() },
            "{trigger} / {template}"
        );
        assert!(summary.dumps.is_empty());
    };
    check("icmp", "port $srcPort");
    check("icmp", "host $srcIP and port {dstPort}");
    check("icmp", "vlan $vlan");
    check("ether proto 0x88b5", "host $srcIP");
}

#[test]
fn the_nth_template_belongs_to_the_nth_trigger_and_a_single_one_to_all() {
    let input = capture(20, &[(5000, 1), (12000, 2)]);
    let check = |triggers: &[&str], templates: &[&str], expected: &[(&str, &str)]| {
        let place = Place::new();
        let source = place.source(&input);
        let mut arguments = vec!["--source", &source, "--before", "1", "--after", "1"];
        triggers.iter().for_each(|trigger| arguments.extend(["--trigger", trigger]));
        templates.iter().for_each(|template| arguments.extend(["--dump", template]));
        let summary = place.summary(&arguments);
        assert_eq!(summary.dumps.len(), expected.len(), "{triggers:?} {summary:?}");
        for (dump, (trigger, filter)) in summary.dumps.iter().zip(expected) {
            assert_eq!(dump.trigger, *trigger, "{triggers:?}");
            let (from_ns, to_ns) = (dump.time_ns - 1000 * MS, dump.time_ns + 1000 * MS);
            let indices = expected_dump(&input, filter, from_ns, to_ns, None, VlanRule::Transparent).unwrap();
            let hit = input.packets.iter().position(|p| p.time_ns == dump.time_ns);
            let indices = if indices.contains(&hit.unwrap()) {
                indices
            } else {
                expected_dump(&input, filter, from_ns, to_ns, hit, VlanRule::Transparent).unwrap()
            };
            let found = oracle::read(&dump.path).unwrap().capture;
            assert_eq!(difference(&input.subset(&indices), &found), None, "{triggers:?} {templates:?}");
        }
    };
    let first = "a=src host 10.0.0.1 and udp port 60000";
    let second = "b=src host 10.0.0.2 and udp port 60000";
    check(&[first, second], &["udp port 7", "host $srcIP"], &[("a", "udp port 7"), ("b", "host 10.0.0.2")]);
    check(&[first, second], &["host $srcIP"], &[("a", "host 10.0.0.1"), ("b", "host 10.0.0.2")]);
    check(
        &[second, first],
        &[],
        &[("a", "host 10.0.0.1 and host 10.0.0.99"), ("b", "host 10.0.0.2 and host 10.0.0.99")],
    );
    let unnamed = ["src host 10.0.0.1 and udp port 60000", "=src host 10.0.0.2 and udp port 60000"];
    check(&unnamed, &["udp port 7"], &[("trigger1", "udp port 7"), ("trigger2", "udp port 7")]);
    // `len` and `udp` are words of the filter language, so these are expressions and not names.
    check(&["len = 43 and src host 10.0.0.1 and port 60000"], &["udp port 7"], &[("trigger1", "udp port 7")]);
    check(&["udp[2:2]=60000 and src host 10.0.0.1"], &["udp port 7"], &[("trigger1", "udp port 7")]);
}

#[test]
fn two_hits_of_the_same_second_are_two_files() {
    let summary = hits_of(
        &[(5000, 1), (5000, 2), (5400, 3)],
        &["--dump", "host $srcIP", "--holdoff", "0", "--after", "1"],
    );
    let mut paths: Vec<_> = summary.dumps.iter().map(|dump| &dump.path).collect();
    paths.sort();
    paths.dedup();
    assert_eq!((summary.hits["hit"].fired, paths.len()), (3, 3), "{summary:?}");
}

#[test]
fn a_second_run_into_the_same_folder_overwrites_nothing() {
    let place = Place::new();
    let source = place.source(&capture(10, &[(5000, 1)]));
    let arguments = ["--source", &source, "--trigger", "hit=udp port 60000", "--before", "1", "--after", "1"];
    let first = place.summary(&arguments).only_dump().path.clone();
    let bytes = std::fs::read(&first).unwrap();
    let inode = std::os::unix::fs::MetadataExt::ino(&first.metadata().unwrap());
    let second = place.summary(&arguments).only_dump().path.clone();
    assert_ne!(first, second);
    assert!(second.exists());
    assert_eq!(std::os::unix::fs::MetadataExt::ino(&first.metadata().unwrap()), inode);
    assert_eq!(std::fs::read(&first).unwrap(), bytes);
}

#[test]
fn workers_that_wait_for_places_never_wait_for_each_other() {
    // A deadlock once: a worker that waited for a dump to finish held its trigger's lock and its place in
    // capture time.
    for (workers, dumps_max, holdoff) in [(2, "8", "10ms"), (4, "1", "10ms"), (2, "1", "0"), (4, "8", "1ms")]
    {
        let place = Place::new();
        let source = format!("synth:rate=10k,time=1s,pace=max,workers={workers},start=1000,flows=50");
        let trigger =
            ["--trigger", "udp", "--dump", "udp", "--before", "0", "--after", "0", "--dumps-max", dumps_max];
        let summary = place
            .summary_of_many_hits(&[&["--source", &source, "--holdoff", holdoff], &trigger[..]].concat());
        summary.assert_adds_up();
        assert!(summary.dumps.len() > 2, "{} dumps", summary.dumps.len());
    }
}

#[test]
fn a_file_counts_only_windows_that_are_open_against_the_cap() {
    // Twenty hits, half a second apart, windows of 200 ms: one place is enough, and none is turned away.
    let hits: Vec<(i64, u8)> = (1..=20).map(|n| (n * 500, 1)).collect();
    let input = capture(12, &hits);
    let place = Place::new();
    let source = place.source(&input);
    let orders = [
        "--trigger",
        "hit=udp port 60000",
        "--before",
        "0.1",
        "--after",
        "0.1",
        "--holdoff",
        "0",
        "--dumps-max",
        "1",
    ];
    let summary = place.summary(&[&["--source", &source], &orders[..]].concat());
    assert_eq!((summary.hits["hit"].fired, summary.hits["hit"].too_many), (20, 0));
}

#[test]
fn a_packet_at_the_end_of_time_ends_its_run_like_any_other() {
    for time_ns in [i64::MAX, i64::MAX - 1, i64::MAX - 5_000_000_000] {
        let mut input = capture(3, &[(1000, 1)]);
        let frame = input.packets[0].data.clone();
        input.packets.push(Record::new(time_ns, frame));
        let place = Place::new();
        let source = place.source(&input);
        let summary =
            place.summary(&["--source", &source, "--trigger", "x=ip or ip6", "--dump", "", "--holdoff", "0"]);
        summary.assert_adds_up();
        assert!(!summary.dumps.is_empty(), "{time_ns}");
    }
}
