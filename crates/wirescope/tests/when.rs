//! Triggers on flows: they fire once for each flow that they are about, in any run that follows flows, and change as other
//! triggers do.

mod run;

use run::asking::Running;
use run::{Place, Started, finish, wait_until, wirescope};
use scope_testkit::traffic::frame::{on_link, tcp, udp};
use scope_testkit::traffic::{Capture, ETHERNET, Random, Record};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;

const MS: i64 = 1_000_000;
const BEGIN: i64 = 1_700_000_000_000 * MS;
const SYN: u8 = 2;
const SYN_ACK: u8 = 18;
const ACK: u8 = 16;
const DATA: u8 = 24;

/// A connection to port 443: its handshake takes `rtt_ms`, then come eight segments. When that is known to be more than
/// 200 ms, ms: with the SYN+ACK, if that alone comes so late.
fn connection(capture: &mut Capture, begin_ms: i64, host: u8, rtt_ms: i64) -> i64 {
    let (client, server) = (([10, 0, 0, host], 40_000).into(), ([10, 1, 0, 1], 443).into());
    let mut put = |at_ms: i64, segment: Vec<u8>| {
        capture.packets.push(Record::new(BEGIN + at_ms * MS, on_link(ETHERNET, &[], &segment)));
    };
    let server_ms = rtt_ms * 2 / 3;
    put(begin_ms, tcp(client, server, 9, SYN, &[]));
    put(begin_ms + server_ms, tcp(server, client, 0, SYN_ACK, &[]));
    let ack_ms = begin_ms + rtt_ms;
    put(ack_ms, tcp(client, server, 10, ACK, &[]));
    for n in 0..8 {
        put(ack_ms + 5 + n * 7, tcp(client, server, 10 + n as u32 * 4, DATA, b"abcd"));
    }
    if server_ms > 200 { begin_ms + server_ms } else { ack_ms }
}

/// Connections of 40 hosts, of which some are slow, among packets that are of no flow of TCP; by host when its
/// handshake is known to be slow.
fn connections() -> (Capture, BTreeMap<u8, i64>) {
    let mut random = Random::new(11);
    let mut capture = Capture::ethernet("eth0");
    let mut slow = BTreeMap::new();
    for host in 1..=40 {
        let rtt_ms = [40, 150, 198, 204, 260, 700][random.below(6) as usize];
        let known_ms = connection(&mut capture, i64::from(host) * 130, host, rtt_ms);
        if rtt_ms > 200 {
            slow.insert(host, known_ms);
        }
        let datagram = udp(([10, 0, 0, host], 443).into(), ([10, 1, 0, 1], 443).into(), b"x");
        capture.packets.push(Record::new(BEGIN + known_ms * MS, on_link(ETHERNET, &[], &datagram)));
    }
    capture.packets.sort_by_key(|packet| packet.time_ns);
    assert!(slow.len() > 5 && slow.len() < 35);
    (capture, slow)
}

#[test]
fn each_slow_connection_has_a_dump_of_its_own_with_any_number_of_workers() {
    let (capture, slow) = connections();
    let slow_times: Vec<i64> = slow.values().copied().collect();
    for (more, beside) in
        [("", &[][..]), (",workers=2", &[]), (",workers=4", &["--db", "DB"]), (",pace=5", &["--db", "DB"])]
    {
        let place = Place::new();
        let source = format!("{}{more}", place.source(&capture));
        let db = place.path("flows.sqlite");
        let beside: Vec<&str> =
            beside.iter().map(|word| if *word == "DB" { db.to_str().unwrap() } else { word }).collect();
        let flags = [
            &["--source", &source, "--trigger", "slow=tcp port 443", "--when", "rtt > 200ms"][..],
            &["--dump", "$flow", "--before", "1min", "--after", "1min"],
            &beside,
        ];
        let summary = place.summary(&flags.concat());
        summary.assert_adds_up();
        let mut times: Vec<i64> = summary.dumps.iter().map(|dump| (dump.time_ns - BEGIN) / MS).collect();
        times.sort_unstable();
        let mut expected = slow_times.clone();
        expected.sort_unstable();
        assert_eq!(times, expected, "{more}: the packet with which it first holds");
        assert!(summary.dumps.iter().all(|dump| dump.packets == 11), "{more}: of that connection alone");
    }
}

#[test]
fn the_nth_condition_is_the_nth_trigger_s_and_filters_without_one_go_on() {
    let (capture, slow) = connections();
    let place = Place::new();
    let source = place.source(&capture);
    let flags = [
        &["--source", &source, "--before", "0s", "--after", "0s", "--holdoff", "0s"][..],
        &[
            "--trigger",
            "new=udp",
            "--when",
            "new",
            "--trigger",
            "slow=tcp",
            "--when",
            "packets > 3 and rtt>200ms",
        ],
        &["--trigger", "each=udp", "--dump", "ip host $srcIP and port $dstPort"],
    ];
    let summary = place.summary(&flags.concat());
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for dump in &summary.dumps {
        *counts.entry(&dump.trigger).or_default() += 1;
    }
    assert_eq!(counts, BTreeMap::from([("new", 40), ("slow", slow.len()), ("each", 40)]));
    let log = place.log();
    assert!(log.contains(r#""when":"packets > 3 and rtt>200ms""#), "{log}");
}

#[test]
fn a_table_of_the_configuration_has_it_too() {
    let (capture, slow) = connections();
    let place = Place::new();
    let source = place.source(&capture);
    let file = place.path("w.toml");
    let text = "before = 0\nafter = 0\nholdoff = 0\n[[trigger]]\nname = \"slow\"\nexpr = \"tcp\"\n\
                when = \"rtt > 200ms\"\n[[trigger]]\nexpr = \"udp dst port 7\"\n";
    fs::write(&file, text).unwrap();
    let summary = place.summary(&["--config", file.to_str().unwrap(), "--source", &source]);
    assert_eq!(summary.dumps.len(), slow.len());
}

#[test]
fn what_can_t_be_meant_is_refused_before_anything_starts() {
    let check = |flags: &[&str], words: &str| {
        let source = ["run", "--source", "synth:packets=10"];
        let done = finish(wirescope(&[&source, flags].concat()));
        assert_eq!(done.code(), Some(2), "{flags:?}: {}", done.stderr);
        assert!(done.stderr.contains(words), "{flags:?}: {}", done.stderr);
    };
    check(&["--when", "new"], "--when: there is no trigger for it; add --trigger EXPR");
    check(&["--trigger", "udp", "--when", "new", "--when", "new"], "2 conditions on flows for 1 trigger");
    check(
        &["--trigger", "udp", "--when", "latency > 5ms"],
        "'latency' is nothing that a flow has; write one of",
    );
    check(&["--trigger", "udp", "--when", ""], "there is no condition in it");
    check(&["--trigger", "signal(pps) > 5/s", "--when", "new"], "this trigger's condition is a level");
    check(&["--trigger", "count(udp by $srcIP) > 5 in 1s", "--when", "new"], "condition is a count");
    check(&["--trigger", "udp then tcp within 1s by $srcIP", "--when", "new"], "condition is a sequence");
    let many: Vec<&str> = [["--trigger", "udp", "--when", "new"]; 17].concat();
    check(&many, "17 triggers have one; at most 16 can");
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../scope-script/examples-lua/port-scan.lua");
    check(&["--trigger-script", script, "--when", "new"], "condition is a script");
}

fn hits(running: &Running, name: &str) -> u64 {
    let hits = running.get(&format!("triggers/{name}")).body["hits"].clone();
    hits.as_object().into_iter().flat_map(|hits| hits.values()).filter_map(Value::as_u64).sum()
}

#[test]
fn by_order_a_trigger_on_flows_comes_changes_and_goes_where_flows_are_followed() {
    let place = Place::new();
    let db = place.path("live.sqlite");
    let source = ["--source", "synth:rate=500,flows=3", "--trigger", "never=tcp port 1"];
    let flows = ["--db", db.to_str().unwrap(), "--flow-idle", "1d", "--flow-active", "1d"];
    let running = Running::bare(place, &[&source[..], &flows].concat());
    let body =
        r#"{"name":"once","filter":"udp","when":"packets > 2","holdoff":"0s","before":"0s","after":"0s"}"#;
    let added = running.post("triggers", body);
    assert_eq!(added.status, 201, "{}", added.body);
    assert!(added.body["toml"].as_str().unwrap().contains("when = \"packets > 2\""));
    wait_until("a flow to have more than two packets", || hits(&running, "once") > 0);
    let listed = running.get("triggers/once").body;
    assert_eq!((&listed["when"], &listed["filter"]), (&"packets > 2".into(), &"udp".into()));
    // A changed condition has held for no flow yet, whatever the one before said.
    let changed = running.command(&["triggers", "change", "once", "--when", "packets > 3"]);
    assert_eq!(changed.code(), Some(0), "{}", changed.stderr);
    wait_until("it to fire anew", || hits(&running, "once") > 0);
    let refused = running.post("triggers", r#"{"name":"bad","filter":"udp","when":"latency > 2ms"}"#);
    assert_eq!(refused.status, 400, "{}", refused.body);
    assert!(refused.body.to_string().contains("is nothing that a flow has"), "{}", refused.body);
    for n in 0..15 {
        let body = format!(r#"{{"name":"t{n}","filter":"tcp port 1","when":"new"}}"#);
        assert_eq!(running.post("triggers", &body).status, 201);
    }
    let full = running.post("triggers", r#"{"name":"t15","filter":"tcp port 1","when":"new"}"#);
    assert!(
        full.status >= 400 && full.body.to_string().contains("16 triggers have one already"),
        "{}",
        full.body
    );
    assert_eq!(running.delete("triggers/once").status, 200);
    assert_eq!(running.post("triggers", r#"{"name":"t15","filter":"tcp port 1","when":"new"}"#).status, 201);
    let (_, done) = running.end();
    assert!(matches!(done.code(), Some(0)), "{}", done.stderr);
}

#[test]
fn a_run_that_follows_no_flows_says_so_to_whoever_adds_such_a_trigger() {
    let running = Running::new(&[]);
    let refused = running.post("triggers", r#"{"name":"once","filter":"udp","when":"new"}"#);
    assert!((400..500).contains(&refused.status), "{}", refused.body);
    let said = refused.body.to_string();
    assert!(said.contains("this run follows no flows") && said.contains("start it anew"), "{said}");
    running.end();
}

#[test]
fn a_reload_that_asks_flows_is_refused_where_none_are_followed_and_taken_elsewhere() {
    for (when, is_taken) in [("", false), ("when = \"new\"\n", true)] {
        let place = Place::new();
        let file = place.path("w.toml");
        let begin = "source = \"synth:rate=500,flows=3\"\nout = \".\"\nring = \"64MiB\"\n";
        let trigger = "[[trigger]]\nname = \"a\"\nexpr = \"udp\"\n";
        fs::write(&file, format!("{begin}{trigger}{when}")).unwrap();
        let mut command = wirescope(&["run", "--config", file.to_str().unwrap(), "--log-format", "json"]);
        command.current_dir(place.out());
        let started = Started::new(command);
        place.wait_for_start();
        fs::write(&file, format!("{begin}{trigger}when = \"packets > 5\"\n")).unwrap();
        started.signal(libc::SIGHUP);
        place.wait_for_words("\"event\":\"reload\"");
        let log = place.log();
        let line = log.lines().find(|line| line.contains("\"event\":\"reload\"")).unwrap();
        let event: Value = serde_json::from_str(line).unwrap();
        assert_eq!(event["ok"], is_taken, "{event}");
        assert_eq!(event["faults"].to_string().contains("this run follows no flows"), !is_taken, "{event}");
        assert_eq!(started.signal_until_it_ends(libc::SIGINT).code(), Some(0));
    }
}
