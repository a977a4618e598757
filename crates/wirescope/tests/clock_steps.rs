//! Capture time that jumps: dumps of files hold what the stated rule says, whatever the number of workers and
//! however often.

mod run;

use run::{Place, summary::Summary};
use scope_testkit::oracle::course::{Expected, dumps};
use scope_testkit::oracle::{self, difference};
use scope_testkit::traffic::frame;
use scope_testkit::traffic::random::START_NS;
use scope_testkit::traffic::{Capture, Conversations, ETHERNET, Precision, Random, Record, pcapng};

const MS: i64 = 1_000_000;
const SECOND: i64 = 1000 * MS;
const HOUR: i64 = 3600 * SECOND;
const PACKETS: usize = 600;
const BEFORE_NS: i64 = 700 * MS;
const AFTER_NS: i64 = 1300 * MS;

/// Changes times that rise by about 20 ms.
type Change = fn(&mut Vec<i64>, &mut Random);

/// The kinds of jumps, each with the packets that fire.
const TRACES: [(&str, &[usize], Change); 32] = [
    ("none", &[50, 300, 595], |_, _| ()),
    ("one stray ahead", &[100, 195, 400], |t, _| t[200] += 10 * HOUR),
    ("one stray ahead that fires", &[200, 400], |t, _| t[200] += 10 * HOUR),
    ("strays ahead in a row", &[100, 195, 400], |t, _| t[200..207].iter_mut().for_each(|t| *t += 10 * HOUR)),
    ("many ahead in a row", &[100, 195, 400], |t, _| t[200..230].iter_mut().for_each(|t| *t += 10 * HOUR)),
    ("one stray back", &[100, 195, 400], |t, _| t[200] -= 10 * HOUR),
    ("one stray back that fires", &[200, 400], |t, _| t[200] -= 10 * HOUR),
    ("a little ahead", &[195, 201, 400], |t, _| t[200] += 1500 * MS),
    ("a little back, into a window that is open", &[150, 400], |t, _| t[210] -= 1100 * MS),
    ("a little back, into a window that is over", &[100, 400], |t, _| t[260] -= 2500 * MS),
    ("a file behind another", &[250, 295, 320, 500], |t, _| t[300..].iter_mut().for_each(|t| *t -= 2 * HOUR)),
    ("a short file behind another", &[250, 592], |t, _| t[590..].iter_mut().for_each(|t| *t -= 2 * HOUR)),
    ("a file behind itself", &[100, 295, 330, 400], |t, _| t.copy_within(0..300, 300)),
    ("a file behind itself, twice", &[100, 199, 250, 299, 500], |t, _| {
        t.copy_within(0..200, 200);
        t.copy_within(0..200, 400);
    }),
    ("a step ahead", &[250, 295, 305, 500], |t, _| t[300..].iter_mut().for_each(|t| *t += 10 * HOUR)),
    ("put right after boot", &[50, 110, 400], |t, _| {
        t[..100].iter_mut().enumerate().for_each(|(n, t)| *t = n as i64 * 20 * MS)
    }),
    ("put right and put back", &[50, 250, 450], |t, _| {
        t[200..400].iter_mut().for_each(|t| *t += 40 * SECOND)
    }),
    ("a sawtooth", &[50, 150, 290, 310, 555], |t, _| {
        (0..PACKETS).for_each(|n| t[n] -= (n / 100) as i64 * 5 * SECOND)
    }),
    ("a fine sawtooth", &[50, 150, 290, 310, 555], |t, _| {
        (0..PACKETS).for_each(|n| t[n] -= (n / 20) as i64 * 3 * SECOND)
    }),
    ("a sawtooth of a second", &[50, 150, 290, 310], |t, _| {
        (0..PACKETS).for_each(|n| t[n] -= (n / 100) as i64 * SECOND)
    }),
    ("equal times", &[50, 300, 590], |t, _| (0..PACKETS).for_each(|n| t[n] = t[n / 50 * 50])),
    ("all times equal", &[300], |t, _| t.fill(START_NS)),
    ("all times 0", &[300], |t, _| t.fill(0)),
    ("jitter", &[50, 300, 590], |t, random| t.iter_mut().for_each(|t| *t -= random.below(300) as i64 * MS)),
    ("jitter of nearly a second", &[50, 300, 590], |t, random| {
        t.iter_mut().for_each(|t| *t -= random.below(990) as i64 * MS)
    }),
    ("jitter of 3 s", &[50, 300, 590], |t, random| {
        t.iter_mut().for_each(|t| *t -= random.below(3000) as i64 * MS)
    }),
    ("the first one ahead", &[50, 400], |t, _| t[0] += 100 * 8766 * HOUR),
    ("the last one ahead", &[300, 590], |t, _| t[PACKETS - 1] += 10 * HOUR),
    ("the last one back", &[300, 590], |t, _| t[PACKETS - 1] -= SECOND * 3 / 2),
    ("gaps of hours", &[100, 105, 300], |t, _| (0..PACKETS).for_each(|n| t[n] += (n / 3) as i64 * HOUR)),
    ("strays everywhere", &[50, 300, 301, 590], |t, random| {
        for t in t.iter_mut() {
            *t += if random.chance(8) { random.below(40) as i64 * SECOND - 20 * SECOND } else { 0 };
        }
    }),
    ("any time at all", &[50, 300, 301, 590], |t, random| {
        t.iter_mut().for_each(|t| *t = START_NS + random.below(30_000) as i64 * MS);
    }),
];

/// All packets that fire are of one flow, so that one worker meets all of them; no two packets are alike.
fn trace(hits: &[usize], change: Change, seed: u64) -> Capture {
    let traffic = Conversations {
        packets: PACKETS,
        seed,
        gap_ns: 20 * MS,
        oddities: 0,
        snapped: 0,
        ..Conversations::default()
    };
    let mut capture = traffic.capture();
    let mut random = Random::new(seed);
    let mut times: Vec<i64> = capture.packets.iter().map(|packet| packet.time_ns).collect();
    change(&mut times, &mut random);
    for (number, (packet, time_ns)) in capture.packets.iter_mut().zip(times).enumerate() {
        (packet.time_ns, packet.flags) = (time_ns, 0);
        if hits.contains(&number) {
            let words = format!("hit {number}");
            let ip = frame::udp(
                "10.0.0.1:1000".parse().unwrap(),
                "10.0.0.2:60000".parse().unwrap(),
                words.as_bytes(),
            );
            *packet = Record::new(time_ns, frame::on_link(ETHERNET, &[], &ip));
        }
    }
    capture
}

fn dump_all(place: &Place, source: &str) -> Summary {
    let windows =
        ["--before", "700ms", "--after", "1300ms", "--holdoff", "0", "--dump", "ip or ip6 or not ip"];
    let ring = ["--ring", "16MiB", "--segment", "64KiB", "--dumps-max", "64"];
    place.summary(&[&["--source", source, "--trigger", "hit=udp port 60000"], &windows[..], &ring].concat())
}

/// Packets of one time may stand in any order of lanes: sorted by their bytes, too.
fn sorted(mut capture: Capture) -> Capture {
    capture.packets.sort_by(|a, b| (a.time_ns, &a.data).cmp(&(b.time_ns, &b.data)));
    capture
}

/// Holds the dumps of one run against the rule.
fn check(name: &str, input: &Capture, expected: &[Expected], workers: usize) {
    let place = Place::new();
    let summary = dump_all(&place, &format!("{},workers={workers}", place.source(input)));
    summary.assert_adds_up();
    let mut expected = expected.to_vec();
    expected.sort_by_key(|dump| dump.time_ns);
    let found: Vec<i64> = summary.dumps.iter().map(|dump| dump.time_ns).collect();
    assert_eq!(
        found,
        expected.iter().map(|dump| dump.time_ns).collect::<Vec<_>>(),
        "{name}, {workers} workers"
    );
    for (dump, expected) in summary.dumps.iter().zip(&expected) {
        let found = oracle::read(&dump.path).unwrap().capture;
        assert!(
            found.packets.is_sorted_by_key(|packet| packet.time_ns),
            "{name}, {workers} workers: in order of time"
        );
        let rule = input.subset(&expected.packets);
        let (found, rule) = if workers == 1 { (found, rule) } else { (sorted(found), sorted(rule)) };
        if let Some(words) = difference(&rule, &found) {
            panic!("{name}, {workers} workers, dump at {}: {words}", dump.time_ns);
        }
        assert_eq!(
            dump.complete, expected.whole,
            "{name}, {workers} workers, dump at {}: {dump:?}",
            dump.time_ns
        );
    }
}

fn check_traces(part: usize) {
    for (number, (name, hits, change)) in TRACES.iter().enumerate().filter(|(number, _)| number % 4 == part) {
        let input = trace(hits, *change, number as u64 + 1);
        let times: Vec<i64> = input.packets.iter().map(|packet| packet.time_ns).collect();
        let expected = dumps(&times, hits, BEFORE_NS, AFTER_NS);
        assert!(!expected.is_empty());
        for workers in 1..=4 {
            (0..3).for_each(|_| check(name, &input, &expected, workers));
        }
    }
}

#[test]
fn dumps_of_times_that_jump_are_as_the_rule_says_first_part() {
    check_traces(0);
}

#[test]
fn dumps_of_times_that_jump_are_as_the_rule_says_second_part() {
    check_traces(1);
}

#[test]
fn dumps_of_times_that_jump_are_as_the_rule_says_third_part() {
    check_traces(2);
}

#[test]
fn dumps_of_times_that_jump_are_as_the_rule_says_fourth_part() {
    check_traces(3);
}

#[test]
fn a_stray_in_one_of_several_files_holds_nothing_up() {
    let whole = trace(&[200, 400], |_, _| (), 77);
    let part = |odd: usize| whole.subset(&(0..PACKETS).filter(|at| at % 2 == odd).collect::<Vec<_>>());
    let place = Place::new();
    let (mut first, second) = (part(0), part(1));
    first.packets[70].time_ns += 10 * HOUR;
    let write =
        |name: &str, capture: &Capture| place.source_of(name, &pcapng(capture, Precision::Nano, false));
    let sources = [write("a.pcapng", &first), write("b.pcapng", &second)];
    let windows =
        ["--before", "700ms", "--after", "1300ms", "--holdoff", "0", "--dump", "ip or ip6 or not ip"];
    let summary = place.summary(
        &[
            &["--source", &sources[0], "--source", &sources[1], "--trigger", "hit=udp port 60000"],
            &windows[..],
        ]
        .concat(),
    );
    for (dump, hit) in summary.dumps.iter().zip([200, 400]) {
        let at_ns = whole.packets[hit].time_ns;
        let inside = |at: &usize| {
            (at_ns - BEFORE_NS..=at_ns + AFTER_NS).contains(&whole.packets[*at].time_ns) && *at != 140
        };
        let expected: Vec<usize> = (0..PACKETS).filter(inside).collect();
        assert_eq!((dump.packets, dump.complete), (expected.len() as u64, true), "{dump:?}");
    }
    assert_eq!(summary.dumps.len(), 2);
}

/// What a small ring forgets is remembered by its own times: one that was wrong, or of another era, makes no
/// later dump incomplete.
#[test]
fn a_time_that_was_wrong_once_makes_no_later_dump_incomplete() {
    let changes: [(&str, Change); 3] = [
        ("a stray", |t, _| t[1000] += HOUR),
        ("strays", |t, _| (1000..9000).step_by(500).for_each(|n| t[n] += HOUR)),
        ("another file before it", |t, _| t.copy_within(0..10_000, 10_000)),
    ];
    for (name, change) in changes {
        let traffic = Conversations {
            packets: 20_000,
            gap_ns: 5 * MS,
            oddities: 0,
            snapped: 0,
            ..Conversations::default()
        };
        let mut capture = traffic.capture();
        let mut times: Vec<i64> = capture.packets.iter().map(|packet| packet.time_ns).collect();
        change(&mut times, &mut Random::new(1));
        capture
            .packets
            .iter_mut()
            .zip(&times)
            .for_each(|(packet, time_ns)| (packet.time_ns, packet.flags) = (*time_ns, 0));
        let ip = frame::udp("10.0.0.1:1000".parse().unwrap(), "10.0.0.2:60000".parse().unwrap(), b"hit");
        let hit = 19_000;
        capture.packets[hit] = Record::new(times[hit], frame::on_link(ETHERNET, &[], &ip));
        let place = Place::new();
        let windows = ["--before", "700ms", "--after", "1300ms", "--dump", "ip or ip6 or not ip"];
        let ring = ["--ring", "2MiB", "--segment", "64KiB"];
        let source = place.source(&capture);
        let summary = place.summary(
            &[&["--source", &source, "--trigger", "hit=udp port 60000"], &windows[..], &ring].concat(),
        );
        let dump = summary.only_dump();
        assert!(dump.complete && dump.lost_max == 0, "{name}: {dump:?}");
        let expected = &dumps(&times, &[hit], BEFORE_NS, AFTER_NS)[0];
        let found = oracle::read(&dump.path).unwrap().capture;
        assert_eq!(difference(&capture.subset(&expected.packets), &found), None, "{name}");
    }
}

/// A fire by hand, while a pipe waits behind a packet whose time is wrong, takes what came last by the clock.
#[test]
fn a_fire_by_hand_goes_by_the_clock_not_by_a_stray() {
    let mut input = trace(&[], |_, _| (), 5);
    input.packets.iter_mut().for_each(|packet| packet.flags = 0);
    input.packets[590].time_ns += 10 * HOUR;
    let place = Place::new();
    // At this pace the packets take two minutes.
    let source = format!("{},pace=0.1", place.source(&input));
    let started = run::Started::new(place.command(&["--source", &source, "--before", "60s"]));
    place.wait_for_start();
    std::thread::sleep(std::time::Duration::from_millis(1000));
    started.signal(libc::SIGUSR1);
    place.wait_for_words("\"event\":\"dump\"");
    started.signal(libc::SIGINT);
    let done = started.finish(run::LIMIT);
    let summary = done.summary();
    let dump = summary.only_dump();
    assert!(dump.packets > 1 && dump.time_ns < START_NS + HOUR, "{dump:?}");
}

#[test]
fn a_dump_of_a_run_that_was_stopped_waits_for_what_comes_when_it_goes_on() {
    let place = Place::new();
    let source = "synth:rate=5k,time=8s,trigger-at=1s";
    let windows =
        ["--before", "500ms", "--after", "6s", "--dump", "ip or ip6 or not ip", "--status-every", "1s"];
    let started = run::Started::new(
        place.command(&[&["--source", source, "--trigger", "hit=udp port 60000"], &windows[..]].concat()),
    );
    // Its dump is open, and the window's end is still to come.
    place.wait_for_words("\"fired\":1");
    started.stand_still();
    std::thread::sleep(std::time::Duration::from_secs(7));
    started.signal(libc::SIGCONT);
    let done = started.finish(run::LIMIT);
    let summary = done.summary();
    let dump = summary.only_dump();
    // Every 200 us one from 0.5 s to 7 s, both included, and the one that fired.
    assert_eq!((dump.packets, dump.complete), (32_502, true), "{dump:?} {}", done.stderr);
}
