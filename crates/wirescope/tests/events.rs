//! What a run tells: one JSON line per event in the folder for dumps, one JSON object on standard output.

mod run;

use run::{Place, summary::Summary};
use scope_testkit::traffic::frame;
use scope_testkit::traffic::{Capture, Conversations, ETHERNET, Record};
use serde_json::Value;

const MS: i64 = 1_000_000;

/// About 10 s of traffic and the packets to port 60000, ms after its start.
fn capture(hits_ms: &[i64]) -> Capture {
    let mut capture = Conversations::default().capture();
    let start_ns = capture.packets[0].time_ns;
    for (number, at_ms) in hits_ms.iter().enumerate() {
        let ip =
            frame::udp("10.0.0.1:1000".parse().unwrap(), "10.0.0.2:60000".parse().unwrap(), &[number as u8]);
        capture.insert(Record::new(start_ns + at_ms * MS, frame::on_link(ETHERNET, &[], &ip)));
    }
    capture
}

fn events(place: &Place) -> Vec<Value> {
    let text = std::fs::read_to_string(place.out().join("wirescope.jsonl")).unwrap();
    assert!(text.ends_with('\n'), "the last line is whole");
    text.lines()
        .map(|line| {
            let event: Value = serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"));
            assert!(event.is_object(), "{line}");
            event
        })
        .collect()
}

/// Events of which some value is `word`: under which key the kind stands is left open.
fn of_kind(events: &[Value], word: &str) -> usize {
    let is = |event: &&Value| {
        event.as_object().is_some_and(|object| object.values().any(|value| value.as_str() == Some(word)))
    };
    events.iter().filter(is).count()
}

fn run(capture: &Capture, more: &[&str]) -> (Place, Summary) {
    let place = Place::new();
    let source = place.source(capture);
    let mut arguments = vec!["--source", &source, "--trigger", "hit=udp port 60000"];
    arguments.extend(more);
    let summary = place.summary(&arguments);
    summary.assert_adds_up();
    (place, summary)
}

#[test]
fn the_log_and_a_dump_say_on_which_host_and_by_which_clock() {
    let (place, summary) = run(&capture(&[5000]), &["--before", "1", "--after", "500ms"]);
    let events = events(&place);
    let figure =
        |name: &str| std::fs::read_to_string(format!("/proc/sys/kernel/{name}")).unwrap().trim().to_string();
    let start = &events[0];
    assert_eq!(start["host"], figure("hostname").as_str());
    assert!(start["kernel"].as_str().is_some_and(|kernel| kernel.contains(&figure("osrelease"))), "{start}");
    let dump = events.iter().find(|event| event["event"] == "dump").unwrap();
    for clock in [&start["clock"], &dump["clock"]] {
        let synchronised = clock["synchronised"].as_bool().unwrap_or_else(|| panic!("{start}"));
        assert_eq!(synchronised, clock["estimated_error_us"].is_u64(), "{clock}");
    }
    assert_eq!((&dump["times"], &dump["counters"]), (&serde_json::json!(["file"]), &serde_json::json!([])));
    let facts = scope_testkit::oracle::read(&summary.only_dump().path).unwrap().comments.remove(0);
    let has = |line: &str| facts.lines().any(|found| found.starts_with(line));
    assert!(has(&format!("host: {}", figure("hostname"))) && has("kernel: Linux "), "{facts}");
    assert!(
        has("clock: synchronised, estimated error ") || has("clock: not synchronised (adjtimex)"),
        "{facts}"
    );
    assert!(has("times: as in the capture file (file)"), "{facts}");
}

#[test]
fn the_log_has_one_line_per_event() {
    let (place, summary) = run(&capture(&[2000, 7000]), &["--before", "1", "--after", "500ms"]);
    let events = events(&place);
    assert_eq!((of_kind(&events, "start"), of_kind(&events, "end")), (1, 1), "{events:#?}");
    assert_eq!(of_kind(&events, "dump"), summary.dumps.len(), "{events:#?}");
    assert_eq!(summary.dumps.len(), 2);
    let first = events.first().unwrap().to_string();
    let last = events.last().unwrap().to_string();
    assert!(first.contains("\"start\"") && last.contains("\"end\""), "{first} ... {last}");
}

#[test]
fn a_hit_that_started_no_dump_is_a_line_and_a_storm_of_them_is_a_count() {
    let few =
        run(&capture(&[2000, 4000, 6000]), &["--before", "100ms", "--after", "100ms", "--holdoff", "60"]);
    assert_eq!(few.1.hits["hit"].held_off, 2);
    let lines =
        |place: &Place| events(place).iter().filter(|event| event.to_string().contains("held_off")).count();
    let listed = lines(&few.0);
    assert!(listed >= 2, "{listed} lines");
    let storm: Vec<i64> = (0..3000).map(|number| 2000 + number / 3).collect();
    let many = run(&capture(&storm), &["--before", "1ms", "--after", "1ms", "--holdoff", "60"]);
    assert_eq!(many.1.hits["hit"].sum(), 3000);
    let listed = events(&many.0).len();
    assert!(listed < 500, "{listed} lines for 3000 hits within one second");
}

#[test]
fn the_log_is_appended_to() {
    let place = Place::new();
    let source = place.source(&capture(&[]));
    place.summary(&["--source", &source]);
    let lines = events(&place).len();
    place.summary(&["--source", &source]);
    assert_eq!(events(&place).len(), 2 * lines);
}

#[test]
fn the_summary_counts_what_was_received() {
    let input = capture(&[3000]);
    let (_, summary) = run(&input, &[]);
    let bytes: u64 = input.packets.iter().map(|packet| packet.data.len() as u64).sum();
    assert_eq!((summary.received.packets, summary.received.bytes), (input.packets.len() as u64, bytes));
    assert_eq!(summary.stored, summary.received);
    assert_eq!((summary.filtered.packets, summary.dropped.values().sum::<u64>()), (0, 0));
}

#[test]
fn without_summary_nothing_is_on_standard_output_that_breaks_a_pipe_and_words_go_to_people() {
    let place = Place::new();
    let source = place.source(&capture(&[3000]));
    let mut command = run::wirescope(&[
        "run",
        "--ring",
        "16MiB",
        "--trigger",
        "udp port 60000",
        "-v",
        "--source",
        &source,
        "--out",
    ]);
    command.arg(place.out());
    let done = run::finish(command);
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    assert!(
        format!("{}{}", done.stdout, done.stderr).contains("trigger1"),
        "a dump is told of: {}{}",
        done.stdout,
        done.stderr
    );
}
