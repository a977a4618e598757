//! Questions to stores: each answer is what tcpdump selects of the span, with what it lacks; and no more is read
//! for it than must be.

mod run;

use run::questions::{ask, at, keep, words};
use run::{Place, names};
use scope_packet::key::KEY_ENTRY_BYTES;
use scope_packet::segment::FOOT_BYTES;
use scope_store::StoredFile;
use scope_testkit::oracle::{self, VlanRule, difference, every_tool_copies, tcpdump_selects};
use scope_testkit::traffic::{Capture, Conversations, ETHERNET, Interface, RAW, Record, frame};
use serde_json::Value;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

const MS: i64 = 1_000_000;

fn capture(link_types: &[u16], packets: usize, seed: u64) -> Capture {
    let named = |(number, &link_type): (usize, &u16)| Interface::new(&format!("port{number}"), link_type);
    let interfaces = link_types.iter().enumerate().map(named).collect();
    Conversations { interfaces, packets, seed, vlan: 20, payload_max: 900, ..Conversations::default() }
        .capture()
}

/// The file of the store that came first.
fn first_file(place: &Place) -> PathBuf {
    let store = place.path("store");
    let day = names(&store).into_iter().find(|name| name.starts_with("20")).expect("a day");
    let file = names(&store.join(&day)).into_iter().next().expect("a file");
    store.join(day).join(file)
}

const FILTERS: [&str; 11] = [
    "",
    "tcp",
    "udp port 53",
    "host 10.0.0.3",
    "src host 10.0.0.1 and dst host 10.0.0.2",
    "net 10.0.0.0/30",
    "ip6",
    "portrange 1000-5000",
    "tcp[tcpflags] & tcp-syn != 0",
    "not ip",
    "greater 600 and not udp",
];

#[test]
fn each_answer_is_what_tcpdump_selects_of_the_span_and_every_tool_reads_it() {
    for (seed, link_types) in [(1, &[ETHERNET, ETHERNET][..]), (2, &[RAW])] {
        let place = Place::new();
        let input = capture(link_types, 4000, seed);
        keep(&place, &input);
        let (first_ns, last_ns) = input.span_ns().unwrap();
        let third = (last_ns - first_ns) / 3;
        let spans = [(first_ns, last_ns), (first_ns + third, last_ns - third), (last_ns, last_ns)];
        for (number, filter) in FILTERS.iter().enumerate() {
            let selected = tcpdump_selects(&input, filter, VlanRule::Transparent).unwrap();
            for (part, (from_ns, to_ns)) in spans.into_iter().enumerate() {
                let within = |&index: &usize| (from_ns..=to_ns).contains(&input.packets[index].time_ns);
                let expected = input.subset(&selected.iter().copied().filter(within).collect::<Vec<_>>());
                let file = format!("{number}_{part}.pcapng");
                let done = ask(&place, &[filter, "--from", &at(from_ns), "--to", &at(to_ns), "-w", &file]);
                assert_eq!(done.code(), Some(0), "'{filter}': {}", done.stderr);
                let found = oracle::read(place.path(&file)).unwrap().capture;
                assert_eq!(difference(&expected, &found), None, "'{filter}' {from_ns} {to_ns}");
                let count =
                    ask(&place, &[filter, "--from", &at(from_ns), "--to", &at(to_ns), "--count", "--json"]);
                let count: Value = serde_json::from_str(&count.stdout).unwrap();
                assert_eq!(count["packets"], expected.packets.len(), "'{filter}'");
                assert_eq!(count["missing"].as_array().unwrap().len(), 0);
            }
        }
        every_tool_copies(&place.path("0_0.pcapng")).unwrap();
    }
}

#[test]
fn several_words_are_one_filter_and_a_time_with_what_lies_around_it_is_a_span() {
    let place = Place::new();
    let input = capture(&[ETHERNET], 2000, 3);
    keep(&place, &input);
    let middle_ns = input.packets[1000].time_ns;
    let around = [&at(middle_ns), "--within", "1ms"].map(str::to_string);
    let done =
        ask(&place, &["udp", "or", "tcp", "--at", &around[0], &around[1], &around[2], "-w", "out.pcapng"]);
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    let selected = tcpdump_selects(&input, "udp or tcp", VlanRule::Transparent).unwrap();
    let near = |&index: &usize| (input.packets[index].time_ns - middle_ns).abs() <= MS;
    let expected = input.subset(&selected.into_iter().filter(near).collect::<Vec<_>>());
    assert!(!expected.packets.is_empty());
    assert_eq!(difference(&expected, &oracle::read(place.path("out.pcapng")).unwrap().capture), None);
}

/// Ten thousand packets of other hosts, and one of a rare host among the last.
fn with_one_rare_host() -> Capture {
    let mut capture = Capture::ethernet("eth0");
    for number in 0..10_000u32 {
        let source = if number == 9_000 { "10.9.9.9:1000" } else { "10.0.0.1:1000" };
        let udp = frame::udp(source.parse().unwrap(), "10.0.0.2:53".parse().unwrap(), &[7; 300]);
        let packet = frame::ethernet(&[], 0x0800, &udp);
        capture.insert(Record::new(1_700_000_000_000_000_000 + i64::from(number) * MS, packet));
    }
    capture
}

#[test]
fn what_the_summaries_exclude_is_not_read_and_of_the_rest_only_what_may_match() {
    let place = Place::new();
    keep(&place, &with_one_rare_host());
    let rare = ask(&place, &["host 10.9.9.9", "--count", "--explain"]);
    assert!(rare.stdout.starts_with("1 packet, "), "{}", rare.stdout);
    let said = words(&rare.stderr);
    assert!(said.contains("1 read in part (0 without a match), 0 read whole"), "{said}");
    let none = ask(&place, &["host 10.77.0.1", "--count", "--explain"]);
    assert!(
        words(&none.stderr).contains("0 read in part (0 without a match), 0 read whole, 0 B read"),
        "{}",
        none.stderr
    );
    // A filter that no key helps reads everything.
    let all = ask(&place, &["udp[8] == 7", "--count", "--explain"]);
    assert!(all.stdout.starts_with("10,000 packets, "), "{}", all.stdout);
}

#[test]
fn a_damaged_page_takes_only_what_lies_in_it_and_is_stated() {
    let place = Place::new();
    keep(&place, &with_one_rare_host());
    let file = first_file(&place);
    let stored = StoredFile::open(File::open(&file).unwrap()).unwrap();
    let last = stored
        .segments()
        .iter()
        .find(|facts| facts.foot.first_packet + u64::from(facts.foot.packets) > 9_000);
    let segment = last.unwrap().offset;
    let change = |at: u64| {
        let (file, mut byte) = (File::options().read(true).write(true).open(&file).unwrap(), [0]);
        file.read_exact_at(&mut byte, at).unwrap();
        file.write_all_at(&[byte[0] ^ 1], at).unwrap();
    };
    // Another segment's page: nothing that was asked for lies there.
    let other = stored.segments()[0].offset;
    change(other + 100);
    let done = ask(&place, &["host 10.9.9.9", "--count"]);
    assert_eq!((done.code(), done.stdout.starts_with("1 packet, ")), (Some(0), true), "{}", done.stderr);
    change(other + 100);
    // The pages of its own segment, one after the other: it is given whole, or missing and stated.
    let mut missing = 0;
    for page in 0..16 {
        change(segment + page * 4096 + 100);
        let done = ask(&place, &["host 10.9.9.9", "--count", "--json"]);
        let count: Value = serde_json::from_str(&done.stdout).unwrap();
        match count["packets"].as_u64() {
            Some(1) => assert_eq!(done.code(), Some(0), "{}", done.stderr),
            _ => {
                missing += 1;
                assert_eq!(done.code(), Some(1), "{}", done.stderr);
                assert_eq!(count["missing"][0]["reason"], "unreadable", "{count}");
                assert_eq!(
                    (&count["missing"][0]["lost_min"], count["packets"].as_u64()),
                    (&Value::from(0), Some(0))
                );
            }
        }
        change(segment + page * 4096 + 100);
    }
    assert!((1..=6).contains(&missing), "its own pages, those of the keys, and the foot's: {missing}");
}

#[test]
fn lines_of_json_say_each_packet_and_the_limit_holds() {
    let place = Place::new();
    keep(&place, &with_one_rare_host());
    let done = ask(&place, &["host 10.9.9.9", "--format", "json"]);
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    let line: Value = serde_json::from_str(&done.stdout).unwrap();
    let said = ["source", "destination", "protocol", "interface", "link_type"]
        .map(|key| line[key].as_str().unwrap());
    assert_eq!(said, ["10.9.9.9", "10.0.0.2", "udp", "eth0", "ETHERNET"]);
    assert_eq!((&line["source_port"], &line["destination_port"]), (&Value::from(1000), &Value::from(53)));
    assert_eq!((&line["captured"], &line["length"]), (&Value::from(342), &Value::from(342)));
    let limited = ask(&place, &["--format", "json", "--limit", "7", "-w", "-"]);
    assert_eq!(limited.stdout.lines().count(), 7);
    // What all of it comes to, and lacks, stands beside the objects.
    assert!(limited.stderr.starts_with("10,000 packets, "), "{}", limited.stderr);
    assert!(limited.stderr.ends_with("\nnothing is missing between them\n"), "{}", limited.stderr);
}

#[test]
fn a_filter_of_several_lines_is_stated_in_one() {
    let place = Place::new();
    keep(&place, &with_one_rare_host());
    let out = place.path("out.pcapng");
    let done = ask(&place, &["host\n10.9.9.9\tand udp", "-w", out.to_str().unwrap()]);
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    let bytes = std::fs::read(out).unwrap();
    assert_eq!(oracle::parse(&bytes).unwrap().capture.packets.len(), 1);
    assert!(String::from_utf8_lossy(&bytes).contains("\nfilter: host 10.9.9.9 and udp\n"));
}

#[test]
fn where_nothing_matches_around_is_said() {
    let place = Place::new();
    keep(&place, &with_one_rare_host());
    let done = ask(&place, &["udp", "--around", "host 10.77.77.77", "--count"]);
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    assert_eq!(done.stderr, "wirescope: around: no packet in the span matches: host 10.77.77.77\n");
    assert!(done.stdout.starts_with("0 packets"), "{}", done.stdout);
}

#[test]
fn what_cannot_be_asked_is_refused_before_anything_is_read() {
    let place = Place::new();
    keep(&place, &capture(&[ETHERNET], 100, 4));
    let refused = |arguments: &[&str], word: &str| {
        let done = ask(&place, arguments);
        assert_eq!(done.code(), Some(2), "{arguments:?}");
        assert!(words(&done.stderr).contains(word), "{arguments:?}: {}", done.stderr);
    };
    refused(&["prot 80", "--count"], "prot");
    refused(&["--at", "20:31", "--count"], "no span");
    refused(&["--from", "@200000000", "--to", "@100000000", "--count"], "ends before it begins");
    refused(&["--json"], "is the form of a count");
    refused(&["--format", "json", "-w", "x.json"], "standard output");
    refused(&["-w", "store/x.pcapng"], "would stand in the store");
    assert!(!Path::new(&place.path("store/x.pcapng")).exists());
}

#[test]
fn losses_are_stated_whatever_the_filter_excludes() {
    let place = Place::new();
    let mut input = with_one_rare_host();
    input.packets[9_999].lost_before = 12;
    keep(&place, &input);
    for filter in ["host 10.77.0.1", "host 10.9.9.9", "udp", ""] {
        let done = ask(&place, &[filter, "--count", "--json"]);
        assert_eq!(done.code(), Some(0), "{}", done.stderr);
        let count: Value = serde_json::from_str(&done.stdout).unwrap();
        let lost = &count["missing"][0];
        let least = if filter.is_empty() { 12 } else { 0 };
        assert_eq!((&lost["reason"], &lost["lost_max"]), (&"file".into(), &12.into()), "'{filter}': {count}");
        assert_eq!(lost["lost_min"], least, "'{filter}'");
    }
}

#[test]
fn a_count_of_losses_in_a_damaged_page_is_not_believed() {
    let place = Place::new();
    let mut input = with_one_rare_host();
    input.packets[9_999].lost_before = 12;
    keep(&place, &input);
    let file = first_file(&place);
    let stored = StoredFile::open(File::open(&file).unwrap()).unwrap();
    let last = stored.segments().last().unwrap();
    let column_bytes = 8 + last.foot.packets as usize * KEY_ENTRY_BYTES + FOOT_BYTES;
    let behind = last.offset + (stored.segment_bytes() - column_bytes) as u64;
    let dropped_at = behind - 4 - 4 - 8; // in front of the block's length and the end of its options
    let bytes = File::options().read(true).write(true).open(&file).unwrap();
    let mut dropped = [0; 8];
    bytes.read_exact_at(&mut dropped, dropped_at).unwrap();
    assert_eq!(u64::from_le_bytes(dropped), 12);
    bytes.write_all_at(&[99], dropped_at).unwrap();
    let done = ask(&place, &["host 10.77.0.1", "--count", "--json"]);
    let count: Value = serde_json::from_str(&done.stdout).unwrap();
    let missing: Vec<_> =
        count["missing"].as_array().unwrap().iter().map(|gap| (&gap["reason"], &gap["lost_max"])).collect();
    assert!(missing.contains(&(&Value::from("unreadable"), &Value::Null)), "{count}");
    assert!(missing.iter().all(|(_, most)| **most != 99 && **most != 99 - 12), "{count}");
}
