//! What a dump with gaps says in words: in its line at the end, and in its file.

mod run;

use run::Place;
use scope_testkit::oracle;
use scope_testkit::traffic::{Capture, Conversations, ETHERNET, Precision, Record, frame, pcapng};
use serde_json::Value;

const SECOND: i64 = 1_000_000_000;

/// 4 s of traffic from 10:00:00 on, with a hit in the midst of it.
fn capture() -> Capture {
    let start_ns = 1_700_000_000 * SECOND - (1_700_000_000 * SECOND) % (86_400 * SECOND) + 36_000 * SECOND;
    let traffic =
        Conversations { packets: 400, gap_ns: SECOND / 100, start_ns, ties: 0, ..Conversations::default() };
    let mut capture = traffic.capture();
    for (at, packet) in capture.packets.iter_mut().enumerate() {
        packet.time_ns = start_ns + at as i64 * (SECOND / 100);
    }
    let ip = frame::udp("10.0.0.1:1000".parse().unwrap(), "10.0.0.2:60000".parse().unwrap(), b"hit");
    capture.packets[200] = Record::new(start_ns + 2 * SECOND, frame::on_link(ETHERNET, &[], &ip));
    capture
}

/// What a dump of this window says in its line, and in the line of its file's comment that is of what it
/// lacks.
fn said(before: &str, after: &str) -> (String, String) {
    let place = Place::new();
    let source = place.source_of("in.pcapng", &pcapng(&capture(), Precision::Nano, false));
    let orders = ["--trigger", "hit=udp port 60000", "--dump", "", "--before", before, "--after", after];
    let done = place.run(&[&["--source", &source], &orders[..]].concat());
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    let line = done.stderr.lines().find(|line| line.starts_with("dump ")).unwrap_or_default().to_string();
    let summary: Value = serde_json::from_str(&done.stdout).unwrap();
    let path = summary["dumps"][0]["path"].as_str().unwrap().to_string();
    let comment = oracle::read(&path).unwrap().comments.remove(0);
    let lacks = comment.lines().find(|line| line.starts_with("incomplete")).unwrap_or_default().to_string();
    (line, lacks)
}

#[test]
fn several_gaps_are_told_one_by_one_and_never_as_the_span_of_them_all() {
    let (line, comment) = said("5", "7");
    assert!(
        line.contains(
            "but 2 gaps: 2023-11-14T09:59:57Z to 09:59:59.999999999Z (capture_begin), 10:00:03.990000001Z to \
             10:00:09Z (capture_end)"
        ),
        "{line}"
    );
    assert!(comment.ends_with("in 2 gaps, listed below"), "{comment}");
    for text in [line, comment] {
        assert!(!text.contains("between"), "most of the window is there: {text}");
    }
}

#[test]
fn a_single_gap_is_told_by_its_span() {
    let (line, comment) = said("5", "1");
    assert!(
        line.contains(
            "no packet lost, but the window has a gap between 2023-11-14T09:59:57Z and 09:59:59.999999999Z \
             (capture_begin)"
        ),
        "{line}"
    );
    assert!(
        comment.contains(", between 2023-11-14T09:59:57Z and 09:59:59.999999999Z (capture_begin)"),
        "{comment}"
    );
}
