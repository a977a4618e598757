//! A capture file whose packets are in no order of time: what its dumps say, what the run says, and that the
//! remedy helps.

mod run;

use run::Place;
use scope_testkit::traffic::{Capture, Conversations, ETHERNET, Precision, Random, Record, frame, pcapng};
use serde_json::Value;
use std::process::Command;

const MS: i64 = 1_000_000;
const WINDOWS: [&str; 8] = ["--trigger", "hit=udp port 60000", "--dump", "", "--before", "2", "--after", "2"];

/// 40 s of traffic with a packet to port 60000 in the midst of it.
fn capture() -> Capture {
    let mut capture = Conversations { packets: 2000, gap_ns: 20 * MS, ..Conversations::default() }.capture();
    let at_ns = capture.packets[1000].time_ns + 1;
    let ip = frame::udp("10.0.0.1:1000".parse().unwrap(), "10.0.0.2:60000".parse().unwrap(), b"hit");
    capture.insert(Record::new(at_ns, frame::on_link(ETHERNET, &[], &ip)));
    capture
}

/// In any order.
fn shuffle(capture: &mut Capture) {
    let mut random = Random::new(7);
    for at in (1..capture.packets.len()).rev() {
        capture.packets.swap(at, random.below(at as u64 + 1) as usize);
    }
}

/// The summary of a run on this file, and what it said.
fn run(place: &Place, file: &str) -> (Value, String) {
    let source = place.path(file).display().to_string();
    let done = place.run(&[&["-r", &source], &WINDOWS[..]].concat());
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    (serde_json::from_str(&done.stdout).unwrap(), done.stderr)
}

#[test]
fn a_file_in_no_order_of_time_is_warned_of_once_with_the_count_and_the_remedy() {
    let place = Place::new();
    let mut capture = capture();
    shuffle(&mut capture);
    place.source_of("in.pcapng", &pcapng(&capture, Precision::Nano, false));
    let (summary, said) = run(&place, "in.pcapng");
    let strays = summary["strays"].as_u64().unwrap();
    assert!(strays > 100, "{summary:#}");
    let warnings: Vec<&str> =
        summary["warnings"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    let path = place.path("in.pcapng").display().to_string();
    let ours: Vec<_> = warnings.iter().filter(|warning| warning.contains("reordercap")).collect();
    assert_eq!(ours.len(), 1, "{warnings:?}");
    assert!(ours[0].contains(&format!("reordercap {path} ")), "{ours:?}");
    assert!(ours[0].replace(',', "").contains(&format!("{strays} of 2001 packets")), "{ours:?}");
    // Said once when it is found, and again in the summary, as all warnings are.
    assert_eq!(said.matches("reordercap").count(), 1, "{said}");
    let log = std::fs::read_to_string(place.out().join("wirescope.jsonl")).unwrap();
    assert_eq!(
        log.lines().filter(|line| line.contains("\"warning\"") && line.contains("reordercap")).count(),
        1
    );

    // Which of the packets that came lie in the window nobody knows: no bound is stated that isn't one.
    let dump = &summary["dumps"][0];
    assert_eq!(dump["complete"], false, "{dump:#}");
    let gaps = dump["gaps"].as_array().unwrap();
    assert!(gaps.iter().any(|gap| gap["reason"] == "clock_step" && gap["lost_max"].is_null()), "{dump:#}");
    assert!(dump["lost_max"].is_null() && summary["dump_totals"]["lost_max"].is_null(), "{dump:#}");
    assert!(
        !said.contains("nothing in capture; dumps lack at least 0") && !said.contains("no packet lost"),
        "{said}"
    );

    // The remedy, as it is said.
    let sorted = Command::new("reordercap")
        .arg(place.path("in.pcapng"))
        .arg(place.path("sorted.pcapng"))
        .output()
        .unwrap();
    assert!(sorted.status.success(), "{}", String::from_utf8_lossy(&sorted.stderr));
    let (summary, said) = run(&place, "sorted.pcapng");
    assert_eq!(
        (&summary["strays"], &summary["dumps"][0]["complete"]),
        (&0.into(), &true.into()),
        "{summary:#}"
    );
    assert!(!said.contains("reordercap"), "{said}");
}

#[test]
fn one_wrong_time_among_many_packets_is_no_file_out_of_order() {
    let place = Place::new();
    let mut capture = capture();
    capture.packets[300].time_ns += 3_600_000 * MS;
    place.source_of("in.pcapng", &pcapng(&capture, Precision::Nano, false));
    let (summary, said) = run(&place, "in.pcapng");
    assert_eq!(
        (&summary["strays"], &summary["dumps"][0]["complete"]),
        (&1.into(), &true.into()),
        "{summary:#}"
    );
    assert!(!said.contains("reordercap"), "{said}");
}

#[test]
fn a_file_whose_time_goes_back_is_warned_of_with_the_remedy() {
    let place = Place::new();
    let mut capture = capture();
    // The second half comes first, as where two captures were put one behind the other.
    capture.packets.rotate_left(1000);
    place.source_of("in.pcapng", &pcapng(&capture, Precision::Nano, false));
    let (summary, said) = run(&place, "in.pcapng");
    assert_eq!((&summary["set_back"], &summary["strays"]), (&1.into(), &0.into()), "{summary:#}");
    let path = place.path("in.pcapng").display().to_string();
    let warnings = summary["warnings"].as_array().unwrap();
    let ours: Vec<_> =
        warnings.iter().filter_map(Value::as_str).filter(|warning| warning.contains("reordercap")).collect();
    assert_eq!(ours.len(), 1, "{warnings:?}");
    assert!(ours[0].contains("set back 1 time;"), "{ours:?}");
    assert!(ours[0].contains(&format!("reordercap {path} sorted.pcapng")), "{ours:?}");
    assert_eq!(said.matches("reordercap").count(), 1, "{said}");
}
