//! Dumps across the edge of the ring: what it lacks comes from the stores that the run writes, of earlier runs too;
//! each packet once, and what neither has is a stated gap.

mod run;

use run::{Place, names, summary::Dump};
use scope_packet::segment::FOOT_BYTES;
use scope_store::StoredFile;
use scope_testkit::oracle::{self, VlanRule, difference, every_tool_copies, expected_dump};
use scope_testkit::traffic::frame;
use scope_testkit::traffic::{Capture, Conversations, ETHERNET, Interface, RAW, Record};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

const SECOND: i64 = 1_000_000_000;
/// It turns many times in one capture.
const SMALL: [&str; 6] = ["--ring", "2MiB", "--segment", "64KiB", "--before", "1h"];
const HIT: [&str; 4] = ["--trigger", "hit=udp port 60000", "--after", "0"];
const ALL: [&str; 2] = ["--dump", ""];

/// About 8 MB in 60 s, with a hit near the end.
fn turning(interfaces: &[(&str, u16)], seed: u64) -> (Capture, usize) {
    many(12_000, interfaces, seed)
}

fn many(packets: usize, interfaces: &[(&str, u16)], seed: u64) -> (Capture, usize) {
    let interfaces = interfaces.iter().map(|&(name, link_type)| Interface::new(name, link_type)).collect();
    let conversations = Conversations {
        packets,
        interfaces,
        payload_max: 1300,
        vlan: 10,
        snapped: 0,
        seed,
        ..Conversations::default()
    };
    let mut capture = conversations.capture();
    let at_ns = capture.packets[packets - 1000].time_ns + 1;
    let ip = frame::udp("10.0.0.1:1000".parse().unwrap(), "10.0.0.2:60000".parse().unwrap(), b"trigger me");
    let link_type = capture.interfaces[0].link_type;
    let at = capture.insert(Record::new(at_ns, frame::on_link(link_type, &[], &ip)));
    (capture, at)
}

/// The same, so much later.
fn later(capture: &Capture, ns: i64) -> Capture {
    let mut later = capture.clone();
    later.packets.iter_mut().for_each(|packet| packet.time_ns += ns);
    later
}

fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

/// What a dump of `filter` has to hold that ends with the hit.
fn up_to(input: &Capture, at: usize, from_ns: i64, filter: &str) -> Capture {
    let to_ns = input.packets[at].time_ns;
    let indices = expected_dump(input, filter, from_ns, to_ns, Some(at), VlanRule::Transparent).unwrap();
    input.subset(&indices)
}

fn read(dump: &Dump) -> Capture {
    oracle::opens_cleanly(&dump.path).unwrap();
    let found = oracle::read(&dump.path).unwrap().capture;
    assert_eq!(dump.packets, found.packets.len() as u64);
    found
}

/// The files of a store, the oldest first.
fn files(store: &Path) -> Vec<PathBuf> {
    let days = names(store).into_iter().filter(|name| name.starts_with("20")).map(|day| store.join(day));
    let inside = |day: PathBuf| names(&day).into_iter().map(move |name| day.join(name));
    days.flat_map(inside).collect()
}

fn header(dump: &Dump) -> String {
    let file = std::fs::read(&dump.path).unwrap();
    String::from_utf8_lossy(&file[..file.len().min(16 << 10)]).into_owned()
}

#[test]
fn what_a_small_ring_has_recycled_comes_from_the_store_each_packet_once_and_in_order() {
    for (interfaces, workers, filter) in [
        (&[("left", ETHERNET), ("right", ETHERNET)][..], "1", ""),
        (&[("left", ETHERNET), ("right", ETHERNET)], "2", ""),
        (&[("left", ETHERNET)], "1", "tcp"),
        (&[("left", ETHERNET)], "2", "host 10.0.0.1"),
        (&[("tunnel", RAW)], "1", "udp or ip6"),
    ] {
        let (input, at) = turning(interfaces, 1);
        let place = Place::new();
        let (source, store) = (format!("{},workers={workers}", place.source(&input)), place.path("store"));
        let own = ["--source", &source, "--store", text(&store), "--dump", filter];
        let summary = place.summary(&[&SMALL[..], &HIT, &own].concat());
        let dump = summary.only_dump();
        let expected = up_to(&input, at, 0, filter);
        assert_eq!(difference(&expected, &read(dump)), None, "'{filter}', {workers} workers");
        assert!(dump.lost_nothing(), "'{filter}', {workers} workers: {dump:?}");
        every_tool_copies(&dump.path).unwrap();
    }
}

#[test]
fn the_same_window_is_incomplete_without_a_store() {
    let (input, _) = turning(&[("left", ETHERNET)], 1);
    let place = Place::new();
    let done = place.run(&[&SMALL[..], &HIT, &ALL, &["--source", &place.source(&input)]].concat());
    assert_eq!(done.code(), Some(1));
    assert_eq!(done.summary().only_dump().gaps_of("evicted").len(), 1);
}

#[test]
fn two_lanes_in_two_volumes_are_one_past() {
    let (input, at) = turning(&[("left", ETHERNET), ("right", ETHERNET)], 2);
    let place = Place::new();
    let source = format!("{},workers=2", place.source(&input));
    let (one, two) = (place.path("one"), place.path("two"));
    let own = ["--source", &source, "--store", text(&one), "--store", text(&two)];
    let summary = place.summary(&[&SMALL[..], &HIT, &ALL, &own].concat());
    assert!(!files(&one).is_empty() && !files(&two).is_empty());
    let dump = summary.only_dump();
    assert_eq!(difference(&up_to(&input, at, 0, ""), &read(dump)), None);
    assert!(dump.lost_nothing(), "{dump:?}");
}

#[test]
fn after_a_restart_the_past_is_still_there_and_when_no_run_was_going_is_stated() {
    let (first, _) = turning(&[("left", ETHERNET)], 3);
    let (second, at) = turning(&[("left", ETHERNET), ("right", ETHERNET)], 4);
    let (from_ns, to_ns) = first.span_ns().unwrap();
    let second = later(&second, to_ns + 10 * SECOND - second.span_ns().unwrap().0);
    let place = Place::new();
    let store = place.path("store");
    place.summary(&["--store", text(&store), "--source", &place.source(&first)]);
    let own = ["--store", text(&store), "--source", &place.source(&second)];
    let summary = place.summary(&[&SMALL[..], &HIT, &ALL, &own].concat());
    let dump = summary.only_dump();
    let mut expected = Capture { interfaces: second.interfaces.clone(), ..first.clone() };
    expected.packets.extend(up_to(&second, at, 0, "").packets);
    let found = read(dump);
    assert_eq!(difference(&expected, &found), None);
    // One interface of both runs is one interface.
    let known: Vec<&str> = found.interfaces.iter().map(|interface| &*interface.name).collect();
    assert_eq!(known, ["left", "right"]);
    let between = dump.gaps_of("not_recorded");
    let begin_ns = second.span_ns().unwrap().0;
    assert_eq!(between.len(), 2, "{dump:?}");
    assert_eq!(between[0].to_ns, from_ns - 1, "nobody knows of anything before the first run");
    assert_eq!((between[1].from_ns, between[1].to_ns), (to_ns + 1, begin_ns - 1));
    assert_eq!((dump.lost_min, dump.lost_max, dump.complete, dump.gaps.len()), (0, 0, false, 2));
    assert_eq!(dump.from_ns, from_ns, "from there on somebody listened");
    assert!(header(dump).contains(" not_recorded\n"), "{}", header(dump));
}

#[test]
fn a_window_that_begins_in_an_earlier_run_has_its_later_part() {
    let (first, _) = turning(&[("left", ETHERNET)], 3);
    let (second, at) = turning(&[("other", ETHERNET)], 4);
    let (_, to_ns) = first.span_ns().unwrap();
    let second = later(&second, to_ns + 10 * SECOND - second.span_ns().unwrap().0);
    let place = Place::new();
    let store = place.path("store");
    place.summary(&["--store", text(&store), "--source", &place.source(&first)]);
    let hit_ns = second.packets[at].time_ns;
    let before_s = (hit_ns - to_ns) / SECOND + 20;
    let before = format!("{before_s}s");
    let own = ["--ring", "1MiB", "--segment", "64KiB", "--before", &before, "--store", text(&store)];
    let source = place.source(&second);
    let summary = place.summary(&[&own[..], &HIT, &["--dump", "tcp", "--source", &source]].concat());
    let from_ns = hit_ns - before_s * SECOND;
    let mut expected = Capture::default();
    for (capture, hit) in [(&first, None), (&second, Some(at))] {
        let part = expected_dump(capture, "tcp", from_ns, hit_ns, hit, VlanRule::Transparent).unwrap();
        expected.packets.extend(capture.subset(&part).packets);
    }
    let found = read(summary.only_dump());
    assert_eq!(found.interfaces.iter().map(|it| &*it.name).collect::<Vec<_>>(), ["left", "other"]);
    let unnamed = |capture: &Capture| {
        let mut one = capture.clone();
        one.interfaces = vec![Interface::new("", ETHERNET)];
        one.packets.iter_mut().for_each(|packet| packet.interface = 0);
        one
    };
    assert_eq!(difference(&unnamed(&expected), &unnamed(&found)), None);
}

#[test]
fn what_retention_has_deleted_is_a_gap_that_says_so() {
    let (input, at) = many(90_000, &[("left", ETHERNET)], 5);
    let place = Place::new();
    let (source, store) = (place.source(&input), place.path("store"));
    let own =
        ["--source", &source, "--store", text(&store), "--store-file", "8MiB", "--store-budget", "33MiB"];
    let done = place.run(&[&SMALL[..], &HIT, &ALL, &own].concat());
    let summary = done.summary();
    let dump = summary.only_dump();
    let whole = up_to(&input, at, 0, "");
    let missing = oracle::is_later_part(&whole, &read(dump)).unwrap() as u64;
    assert!(missing > 0 && missing < 80_000, "{missing}");
    let deleted = dump.gaps_of("deleted");
    assert_eq!((deleted.len(), dump.gaps_of("evicted").len()), (1, 0), "{dump:?}");
    assert!(deleted[0].lost_min <= missing && missing <= deleted[0].lost_max.unwrap(), "{missing} {dump:?}");
    assert_eq!(done.code(), Some(1), "{}", done.stderr);
    assert!(header(dump).contains(" deleted, "), "{}", header(dump));
}

#[test]
fn what_a_filter_of_the_store_has_left_out_is_stated_and_the_rest_is_there_once() {
    for (dumped, same) in [("", false), ("udp", true)] {
        let (input, at) = turning(&[("left", ETHERNET), ("right", ETHERNET)], 6);
        let place = Place::new();
        let (source, store) = (place.source(&input), place.path("store"));
        let own = ["--source", &source, "--store", text(&store), "--store-filter", "udp", "--dump", dumped];
        let done = place.run(&[&SMALL[..], &HIT, &own].concat());
        let summary = done.summary();
        let dump = summary.only_dump();
        let found = read(dump);
        let (all, udp) = (up_to(&input, at, 0, dumped), up_to(&input, at, 0, "udp"));
        let missing = (all.packets.len() - found.packets.len()) as u64;
        assert_eq!(dump.lost_nothing(), same, "{dump:?}");
        assert_eq!(done.code(), Some(i32::from(!same)), "{}", done.stderr);
        if same {
            assert_eq!(difference(&all, &found), None);
            continue;
        }
        // From the ring's first packet on there are all, in front of it those that the filter keeps.
        let is_front = |from_ns: i64| move |packet: &&Record| packet.time_ns < from_ns;
        let last_lost = all.packets.iter().rposition(|packet| !found.packets.contains(packet)).unwrap();
        let seam_ns = all.packets[last_lost].time_ns + 1;
        let front: Vec<&Record> = found.packets.iter().filter(is_front(seam_ns)).collect();
        assert_eq!(front, udp.packets.iter().filter(is_front(seam_ns)).collect::<Vec<_>>());
        let rest = |capture: &Capture| capture.packets.iter().filter(|it| it.time_ns >= seam_ns).count();
        assert_eq!(rest(&all), rest(&found));
        let left_out = dump.gaps_of("left_out");
        assert!(!left_out.is_empty() && dump.gaps_of("evicted").is_empty(), "{dump:?}");
        let most: u64 = left_out.iter().map(|gap| gap.lost_max.unwrap()).sum();
        assert!(missing <= most && dump.lost_min <= missing, "{missing} {dump:?}");
    }
}

#[test]
fn a_damaged_page_of_the_store_takes_what_lies_in_it_and_the_dump_says_so() {
    let (first, _) = turning(&[("left", ETHERNET)], 7);
    let (second, at) = turning(&[("left", ETHERNET)], 8);
    let (_, to_ns) = first.span_ns().unwrap();
    let second = later(&second, to_ns + SECOND - second.span_ns().unwrap().0);
    let place = Place::new();
    let store = place.path("store");
    place.summary(&["--store", text(&store), "--source", &place.source(&first)]);
    let path = files(&store).remove(0);
    let stored = StoredFile::open(File::open(&path).unwrap()).unwrap();
    let facts = stored.segments()[3].clone();
    let file = File::options().write(true).open(&path).unwrap();
    file.write_all_at(&[0xa5; 64], facts.offset + 8192).unwrap();
    assert!(stored.segment_bytes() > 8192 + FOOT_BYTES);
    let source = place.source(&second);
    let own = ["--store", text(&store), "--source", &source];
    let done = place.run(&[&SMALL[..], &HIT, &ALL, &own].concat());
    assert_eq!(done.code(), Some(1), "{}", done.stderr);
    let summary = done.summary();
    let dump = summary.only_dump();
    let found = read(dump);
    let whole = first.packets.len() + up_to(&second, at, 0, "").packets.len();
    let missing = (whole - found.packets.len()) as u64;
    assert!(missing > 0 && missing <= u64::from(facts.foot.packets), "{missing}");
    let gaps = dump.gaps_of("unreadable");
    assert_eq!((gaps.len(), gaps[0].lost_min, gaps[0].lost_max), (1, missing, Some(missing)), "{dump:?}");
    assert!(!dump.complete && place.log().contains("of the store: "), "{}", place.log());
}

#[test]
fn windows_that_become_one_file_have_each_packet_once() {
    let (mut input, _) = turning(&[("left", ETHERNET)], 9);
    for at_ns in [20, 40].map(|s| input.packets[0].time_ns + s * SECOND) {
        let ip = frame::udp("10.0.0.3:1000".parse().unwrap(), "10.0.0.2:60000".parse().unwrap(), b"too");
        input.insert(Record::new(at_ns, frame::on_link(ETHERNET, &[], &ip)));
    }
    let at = input.packets.iter().rposition(|packet| packet.data.ends_with(b"trigger me")).unwrap();
    let place = Place::new();
    let (source, store, file) = (place.source(&input), place.path("store"), place.path("all.pcapng"));
    let own = ["--source", &source, "--store", text(&store), "--all", "-w", text(&file)];
    let done = place.run(&[&SMALL[..], &HIT, &ALL, &own].concat());
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    let found = oracle::read(&file).unwrap().capture;
    assert_eq!(difference(&up_to(&input, at, 0, ""), &found), None);
}

#[test]
fn a_live_dump_has_all_that_the_store_has_of_its_window_while_the_ring_turns() {
    let place = Place::new();
    let store = place.path("store");
    let source = "synth:rate=20k,time=4s,trigger-at=3s,size=600";
    let done = place.run(&[&SMALL[..], &HIT, &ALL, &["--source", source, "--store", text(&store)]].concat());
    let summary = done.summary();
    let dump = summary.only_dump();
    read(dump);
    let to = format!("@{}.{:09}", dump.time_ns / SECOND, dump.time_ns % SECOND);
    let mut query = run::wirescope(&["query", "--count", "--json", "--to", &to, "--store"]);
    query.arg(&store);
    let asked = run::finish(query);
    let answer: serde_json::Value = serde_json::from_str(&asked.stdout).expect("one JSON object");
    let stored = answer["packets"].as_u64().expect("a count");
    assert!(stored <= dump.packets, "{stored} {dump:?}");
    // Nobody knows how fast the disk is: what it missed the ring may have had.
    if answer["missing"].as_array().is_some_and(Vec::is_empty) && done.code() == Some(0) {
        assert_eq!(stored, dump.packets, "{dump:?}");
        assert!(dump.lost_nothing() && dump.packets > 50_000, "{dump:?}");
    }
}
