//! Rings so small that they turn many times: a dump loses only its window's front, and says how much.

mod run;

use run::{LIMIT, Place, Started, summary::Summary, wirescope};
use scope_testkit::oracle::{self, VlanRule, expected_dump, is_later_part};
use scope_testkit::traffic::frame;
use scope_testkit::traffic::{Capture, Conversations, ETHERNET, Interface, Random, Record};

const SECOND: i64 = 1_000_000_000;
const EVERYTHING: &str = "ip or ip6 or not ip";

/// About 8 MB in 60 s, with a hit at two thirds.
fn turning(interfaces: &[&str]) -> (Capture, usize) {
    let interfaces = interfaces.iter().map(|name| Interface::new(name, ETHERNET)).collect();
    let conversations = Conversations {
        packets: 12_000,
        interfaces,
        payload_max: 1300,
        vlan: 10,
        snapped: 0,
        ..Conversations::default()
    };
    let mut capture = conversations.capture();
    let at_ns = capture.packets[8000].time_ns + 1;
    let ip = frame::udp("10.0.0.1:1000".parse().unwrap(), "10.0.0.2:60000".parse().unwrap(), b"trigger me");
    let at = capture.insert(Record::new(at_ns, frame::on_link(ETHERNET, &[], &ip)));
    (capture, at)
}

struct Case {
    template: &'static str,
    filter: &'static str,
    before_s: i64,
    after_s: i64,
    ring: &'static str,
    workers: usize,
    /// Whether the window's begin is older than the ring at the time of the hit.
    turned: bool,
}

fn cases() -> Vec<Case> {
    let all = Case {
        template: EVERYTHING,
        filter: EVERYTHING,
        before_s: 60,
        after_s: 60,
        ring: "1MiB",
        workers: 1,
        turned: true,
    };
    vec![
        Case { before_s: 0, turned: false, ..all },
        Case { before_s: 1, turned: false, ..all },
        Case { ring: "2MiB", workers: 2, ..all },
        Case { ring: "4MiB", workers: 4, ..all },
        Case { template: "host $srcIP", filter: "host 10.0.0.1", ..all },
        Case { before_s: 20, after_s: 1, ..all },
        all,
    ]
}

fn check(case: &Case) {
    let (input, at) = turning(&["left", "right"]);
    let name = format!(
        "{} before {} after {} in {}, {} workers",
        case.template, case.before_s, case.after_s, case.ring, case.workers
    );
    let place = Place::new();
    let source = format!("{},workers={}", place.source(&input), case.workers);
    let (before, after) = (case.before_s.to_string(), case.after_s.to_string());
    let mut arguments =
        vec!["--source", &source, "--ring", case.ring, "--segment", "64KiB", "--dumps-max", "1"];
    arguments.extend([
        "--trigger",
        "hit=udp port 60000",
        "--dump",
        case.template,
        "--before",
        &before,
        "--after",
        &after,
    ]);
    let done = place.run(&arguments);
    assert_eq!(done.code(), Some(i32::from(case.turned)), "{name}: {}", done.stderr);
    let summary = done.summary();
    summary.assert_adds_up();
    assert_eq!(
        summary.stored.packets,
        input.packets.len() as u64,
        "{name}: a file source waits instead of dropping"
    );
    check_dump(case, &name, &input, at, &summary);
}

fn check_dump(case: &Case, name: &str, input: &Capture, at: usize, summary: &Summary) {
    let hit_ns = input.packets[at].time_ns;
    let (from_ns, to_ns) = (hit_ns - case.before_s * SECOND, hit_ns + case.after_s * SECOND);
    let window = |filter: &str| {
        let indices = expected_dump(input, filter, from_ns, to_ns, Some(at), VlanRule::Transparent).unwrap();
        input.subset(&indices)
    };
    let dump = summary.only_dump();
    let found = oracle::read(&dump.path).unwrap().capture;
    let missing = missing_from_front(case, &window(case.filter), &found, hit_ns)
        .unwrap_or_else(|words| panic!("{name}: {words}")) as u64;
    assert_eq!(dump.packets, found.packets.len() as u64, "{name}");
    assert_eq!(dump.lost_nothing(), !case.turned, "{name}: {dump:?}");
    if !case.turned {
        assert_eq!((missing, dump.lost_min, dump.lost_max), (0, 0, 0), "{name}");
        return;
    }
    // What the filter would have said of lost packets is not known: bounds may speak of all packets in the
    // window.
    let everything = window(EVERYTHING);
    let first_ns = found.packets[0].time_ns;
    let before_first = everything.packets.iter().filter(|p| p.time_ns < first_ns).count() as u64;
    assert!(
        missing > 0 && dump.lost_min <= before_first.max(missing) && missing <= dump.lost_max,
        "{name}: {missing} missing, {dump:?}"
    );
    // The ring held its size in packets when the hit came; at least a quarter of that has to be there.
    let ring_bytes = case.ring.trim_end_matches("MiB").parse::<usize>().unwrap() << 20;
    let past: usize = everything
        .packets
        .iter()
        .filter(|p| (first_ns..hit_ns).contains(&p.time_ns))
        .map(|p| p.data.len())
        .sum();
    assert!(past >= ring_bytes / 4, "{name}: only {past} bytes of the past");
    oracle::opens_cleanly(&dump.path).unwrap();
}

/// How many packets are missing from the front. Lanes turn at their own pace, so with several of them packets
/// of the window's front may be there from one lane and not from another: then each packet behind the last
/// one that is missing has to be there.
fn missing_from_front(
    case: &Case,
    expected: &Capture,
    found: &Capture,
    hit_ns: i64,
) -> Result<usize, String> {
    if case.workers == 1 {
        return is_later_part(expected, found);
    }
    let missing =
        expected.packets.len().checked_sub(found.packets.len()).ok_or("more packets than the window has")?;
    let times: std::collections::HashSet<i64> = found.packets.iter().map(|p| p.time_ns).collect();
    let last = expected.packets.iter().rposition(|p| !times.contains(&p.time_ns)).map_or(0, |at| at + 1);
    let behind = |capture: &Capture, from_ns: i64| {
        let indices: Vec<usize> =
            (0..capture.packets.len()).filter(|&at| capture.packets[at].time_ns >= from_ns).collect();
        capture.subset(&indices)
    };
    let from_ns = expected.packets.get(last).map_or(i64::MAX, |p| p.time_ns);
    is_later_part(&behind(expected, from_ns), &behind(found, from_ns))?;
    match last.checked_sub(1).map(|at| expected.packets[at].time_ns) {
        Some(last_ns) if last_ns >= hit_ns => {
            Err(format!("packet {last} of {} is missing, behind the hit", expected.packets.len()))
        }
        _ => Ok(missing),
    }
}

#[test]
fn a_turned_ring_loses_only_the_windows_front_and_says_how_much() {
    for case in cases() {
        check(&case);
    }
}

#[test]
fn many_dumps_at_once_share_a_small_ring_and_each_has_its_later_part() {
    let (mut input, at) = turning(&["left"]);
    let hit_ns = input.packets[at].time_ns;
    input.packets[at].data = frame::on_link(
        ETHERNET,
        &[],
        &frame::ping("10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap(), 1, b""),
    );
    let mut hits = Vec::new();
    for host in 1..=4u8 {
        let from = format!("10.0.0.{host}:1000").parse().unwrap();
        let ip = frame::udp(from, "10.0.0.200:60000".parse().unwrap(), b"trigger me");
        let time_ns = hit_ns + i64::from(host) * SECOND / 2;
        input.insert(Record::new(time_ns, frame::on_link(ETHERNET, &[], &ip)));
        hits.push((time_ns, host));
    }
    input.disorder(&mut Random::new(8), 200_000_000);
    let place = Place::new();
    let source = place.source(&input);
    let summary = place.summary(&[
        "--source",
        &source,
        "--ring",
        "2MiB",
        "--segment",
        "64KiB",
        "--trigger",
        "hit=udp port 60000",
        "--dump",
        "host $srcIP",
        "--before",
        "1s",
        "--after",
        "10s",
        "--holdoff",
        "0",
    ]);
    assert_eq!(summary.hits["hit"].fired, 4, "{summary:?}");
    for (dump, (time_ns, host)) in summary.dumps.iter().zip(hits) {
        let filter = format!("host 10.0.0.{host}");
        let at = input.packets.iter().position(|p| p.time_ns == time_ns);
        let indices = expected_dump(
            &input,
            &filter,
            time_ns - SECOND,
            time_ns + 10 * SECOND,
            at,
            VlanRule::Transparent,
        )
        .unwrap();
        let found = oracle::read(&dump.path).unwrap().capture;
        let missing = is_later_part(&input.subset(&indices), &found)
            .unwrap_or_else(|words| panic!("host {host}: {words}"));
        assert_eq!((missing, dump.lost_nothing()), (0, true), "host {host}: {dump:?}");
    }
}

#[test]
fn a_small_ring_says_what_it_keeps_of_a_packet() {
    let place = Place::new();
    let source = place.source(&turning(&["left"]).0);
    let said = |arguments: &[&str]| {
        let everything = ["--source", &source, "--trigger", "udp port 60000"];
        place.run(&[&everything, arguments].concat()).stderr
    };
    let small = said(&["--ring", "4MiB", "--segment", "64KiB"]);
    let line =
        "of a packet at most 16 KiB are kept (a larger --ring, or --segment 1MiB, keeps up to 256 KiB)";
    assert!(small.contains(line), "{small}");
    let large = said(&["--ring", "64MiB", "--segment", "1MiB"]);
    assert!(!large.contains("are kept"), "{large}");
}

#[test]
fn more_dumps_at_once_than_the_ring_can_hold_segments_for_are_told_of_at_the_start() {
    let place = Place::new();
    let (input, _) = turning(&["left"]);
    let file = place.source(&input);
    // Half of 16 segments.
    let (ring, trigger) = (["--ring", "1MiB", "--segment", "64KiB"], ["--trigger", "hit=udp port 60000"]);
    let of_file = |more: &[&str]| {
        let done = place.run(
            &[&["--source", &file], &ring[..], &trigger, &["--before", "1s", "--after", "1s"], more].concat(),
        );
        assert_eq!(done.code(), Some(0), "{}", done.stderr);
        assert!(done.summary().warnings.is_empty() && done.summary().only_dump().lost_nothing());
        done.stderr
    };
    let said = of_file(&[]);
    assert!(
        said.contains("up to 1024 dumps at once, and half of the ring has segments to hold for 8 of them"),
        "{said}"
    );
    assert!(
        said.contains("of a file no dump loses anything by that") && said.contains("or --ring 128MiB"),
        "{said}"
    );
    assert!(!of_file(&["--dumps-max", "8"]).contains("--dumps-max"));
    assert!(!of_file(&["--exit-after", "1"]).contains("--dumps-max"), "there is only one");
    let live = |dumps_max: &str| {
        let synth = ["--source", "synth:rate=1k,packets=100,seed=1", "--dumps-max", dumps_max];
        let done = place.run(&[&synth, &ring[..], &trigger].concat());
        assert_eq!(done.code(), Some(0), "{}", done.stderr);
        done.summary().warnings
    };
    let warnings = live("9");
    assert!(matches!(&warnings[..], [said] if said.contains("or --ring 2MiB")), "{warnings:?}");
    assert!(live("8").is_empty());
    // Who follows what is said of hits without a place isn't sent back by what is said of the ring.
    let places = |dumps_max: &str, ring: &str| {
        let synth =
            ["--source", "synth:rate=1k,flows=500,time=2s,seed=1", "--holdoff", "0", "--dump", "host $srcIP"];
        let ring = [
            "--ring",
            ring,
            "--segment",
            "64KiB",
            "--dumps-max",
            dumps_max,
            "--trigger",
            "hit=udp",
            "--after",
            "1s",
        ];
        let done = place.run(&[&synth[..], &ring].concat());
        assert_eq!(done.code(), Some(1), "{}", done.stderr);
        done.stderr.lines().rfind(|line| line.contains("started no dump")).unwrap_or_default().to_string()
    };
    let said = places("4", "1MiB");
    assert!(
        said.contains("allow more with --dumps-max 16 and --ring 2MiB, of which half can be held for dumps"),
        "{said}"
    );
    let said = places("4", "4MiB");
    assert!(said.contains("allow more with --dumps-max 16, or"), "{said}");
    assert!(
        warnings[0].contains("--dumps-max 8 (hits beyond start no dump then) or --ring 2MiB"),
        "what the lower bound costs is said: {warnings:?}"
    );
    let config = place.path("few.toml");
    let text = "source = [\"afpacket:eth0\"]\ntrigger = [\"udp\"]\nout = \"dumps\"\nring = \"1MiB\"\nsegment \
        = \"64KiB\"\n";
    let check = |more: &str| {
        std::fs::write(&config, format!("{text}{more}")).unwrap();
        let done = Started::new(wirescope(&["config", "check", config.to_str().unwrap()])).finish(LIMIT);
        assert_eq!(done.code(), Some(0), "{}", done.stderr);
        done.stderr
    };
    assert!(check("dumps-max = 9\n").contains("few.toml: --dumps-max: up to 9 dumps at once"));
    assert_eq!(check("dumps-max = 8\n"), "");
}
