//! Many dumps at once on live traffic: each holds its own flow's packets, all of them, and they read what
//! comes in once.

mod run;

use run::summary::{Dump, Summary};
use run::{LIMIT, Place};
use scope_testkit::oracle;
use scope_testkit::traffic::Record;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// One load at a time: the machine may be small.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Both ends and the protocol of a plain IPv4 frame, the smaller end first.
type Flow = ([u8; 6], [u8; 6], u8);

fn flow_of(record: &Record) -> Flow {
    let data = &record.data;
    assert_eq!(data[12..15], [8, 0, 0x45], "only such frames are generated");
    let end = |host: usize, port: usize| {
        [data[host], data[host + 1], data[host + 2], data[host + 3], data[port], data[port + 1]]
    };
    let (a, b) = (end(26, 34), end(30, 36));
    (a.min(b), a.max(b), data[23])
}

/// What the log says at the end of how much was spared.
fn scans(place: &Place) -> Value {
    let log = std::fs::read_to_string(place.path("out/wirescope.jsonl")).expect("the log");
    let mut events = log.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    events.find(|event| event["event"] == "end").expect("an end")["scans"].clone()
}

/// A dump for each of many flows, begun by one of its packets that `trigger` takes, that lasts until the end;
/// nothing is lost.
fn run_whole(place: &Place, source: &str, trigger: &str, dumps_max: usize, more: &[&str]) -> Summary {
    let summary = run(place, source, trigger, dumps_max, more);
    assert!(lost_nothing(&summary), "{:?}", summary.dropped);
    summary
}

fn lost_nothing(summary: &Summary) -> bool {
    summary.dropped.values().all(|&packets| packets == 0) && summary.dumps.iter().all(Dump::lost_nothing)
}

fn run(place: &Place, source: &str, trigger: &str, dumps_max: usize, more: &[&str]) -> Summary {
    let dumps_max = dumps_max.to_string();
    let orders = ["--trigger", trigger, "--dump", "$flow", "--holdoff", "1h", "--holdoff-key", "$flow"];
    let window = ["--before", "100ms", "--after", "1h", "--dumps-max", &dumps_max, "--source", source];
    let mut command = place.command(&[&orders[..], &window, more].concat());
    run::before_others(&mut command);
    let started = run::Started::new(command);
    let done = started.finish(LIMIT);
    let summary = done.summary();
    let too_many = summary.hits.values().any(|hits| hits.too_many > 0);
    assert_eq!(done.code(), Some(i32::from(too_many || !lost_nothing(&summary))), "{}", done.stderr);
    assert_eq!(summary.dumps.len().to_string(), dumps_max);
    summary.assert_adds_up();
    summary
}

fn records_of(dump: &Dump) -> Vec<Record> {
    let records = oracle::read(&dump.path).expect("a dump").capture.packets;
    assert_eq!(records.len() as u64, dump.packets);
    records
}

#[test]
fn each_of_three_hundred_open_dumps_holds_all_packets_of_its_flow() {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let place = Place::new();
    let ring_out = place.path("ring.pcapng");
    let source = "synth:rate=40k,size=64,flows=600,seed=3,prepare=off,time=4s";
    let summary = run_whole(
        &place,
        source,
        "ip[4:2] & 0xf = 7",
        300,
        &["--ring-out", ring_out.to_str().expect("a path")],
    );
    let mut flows: BTreeMap<Flow, Vec<Record>> = BTreeMap::new();
    for record in oracle::read(&ring_out).expect("the ring").capture.packets {
        flows.entry(flow_of(&record)).or_default().push(record);
    }
    let mut seen = 0;
    for dump in &summary.dumps {
        let found = records_of(dump);
        let inside = |record: &&Record| (dump.from_ns..=dump.to_ns).contains(&record.time_ns);
        let expected: Vec<&Record> = flows[&flow_of(&found[0])].iter().filter(inside).collect();
        assert_eq!(found.len(), expected.len(), "{dump:?}");
        assert!(
            found.iter().zip(expected).all(|(a, b)| (a.time_ns, &a.data) == (b.time_ns, &b.data)),
            "{dump:?}"
        );
        seen += found.len();
    }
    assert!(seen > 40_000, "{seen} packets in all dumps");
    let shared = scans(&place)["shared_packets"].as_u64().expect("a number");
    assert!((40_000..=160_000).contains(&shared), "of 160000 packets {shared} were scanned for all dumps");
}

#[test]
fn dumps_that_rest_between_rounds_are_not_overrun_by_a_ring_that_turns_many_times() {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    // 2 MiB are 0.8 s of this traffic; nine hundred dumps, which begin one after another, rest for 0.9 s,
    // were it not for the ring's beats. Dumps that rest so long lose something each time; a machine that has
    // much else to do does now and then.
    const ROUNDS: usize = 10;
    let source = "synth:rate=25k,size=64,flows=1500,seed=4,prepare=off,time=7s";
    let once = || {
        let place = Place::new();
        let summary =
            run(&place, source, "ip[4:2] & 0x3f = 7", 900, &["--ring", "2MiB", "--segment", "64KiB"]);
        lost_nothing(&summary).then_some((place, summary))
    };
    let (_place, summary) = (0..ROUNDS).find_map(|_| once()).expect("a round in which nothing is lost");
    assert!(summary.received.bytes > 5 * (2 << 20), "the ring turns many times: {:?}", summary.received);
    let packets: u64 = summary.dumps.iter().map(|dump| dump.packets).sum();
    assert!(packets > 30_000, "{packets} packets in all dumps");
    for dump in summary.dumps.iter().step_by(10) {
        let found = records_of(dump);
        assert!(
            found
                .windows(2)
                .all(|two| two[0].time_ns <= two[1].time_ns && flow_of(&two[0]) == flow_of(&two[1])),
            "{dump:?}"
        );
    }
}

#[test]
fn a_dump_of_live_traffic_skips_segments_in_which_its_host_does_not_occur() {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let place = Place::new();
    let source = "synth:rate=50k,size=64,flows=20,seed=5,time=4s,trigger-at=3s";
    let orders =
        ["--trigger", "udp port 60000", "--dump", "host $srcIP", "--before", "3s", "--after", "500ms"];
    let summary = place.summary(&[&orders[..], &["--source", source]].concat());
    let dump = summary.only_dump();
    assert!(dump.lost_nothing() && dump.packets >= 1, "{dump:?}");
    let skipped = scans(&place)["skipped_segments"].as_u64().expect("a number");
    assert!(skipped > 50, "{skipped} segments of about 230 before the hit were skipped");
}

#[test]
fn a_run_with_more_dumps_than_its_summary_lists_counts_them_all() {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let place = Place::new();
    let orders =
        ["--trigger", "ip", "--before", "0", "--after", "0", "--holdoff", "0", "--dumps-max", "1000"];
    let source = ["--source", "synth:rate=1k,size=64,flows=1,seed=1,time=4s", "--ring", "64MiB"];
    let done = run::Started::new(place.command(&[&orders[..], &source].concat())).finish(LIMIT);
    let whole: Value = serde_json::from_str(&done.stdout).expect("one object");
    // A machine that has much else to do may find no place for some.
    let too_many = whole["hits"].as_object().expect("triggers").values().any(|hits| hits["too_many"] != 0);
    assert_eq!(done.code(), Some(i32::from(too_many)), "{}", done.stderr);
    let log = std::fs::read_to_string(place.path("out/wirescope.jsonl")).expect("the log");
    let events = log.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    let logged = events.filter(|event| event["event"] == "dump").count() as u64;
    let listed: Vec<u64> =
        whole["dumps"].as_array().expect("a list").iter().filter_map(|dump| dump["id"].as_u64()).collect();
    assert!(logged > 1000, "{logged} dumps are not enough to tell");
    assert_eq!(listed, (logged - 999..=logged).collect::<Vec<_>>(), "the newest");
    assert_eq!(whole["dumps_left_out"], logged - 1000);
    let totals = &whole["dump_totals"];
    assert_eq!(
        (&totals["dumps"], &totals["packets"], &totals["failed"]),
        (&logged.into(), &logged.into(), &0.into())
    );
    let fired: u64 =
        whole["hits"].as_object().expect("triggers").values().filter_map(|hits| hits["fired"].as_u64()).sum();
    assert_eq!(fired, logged);
}
