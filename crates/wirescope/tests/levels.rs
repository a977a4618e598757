//! Conditions on signals: they fire at the times that a reading by the letter gives, from files at any speed and with
//! any number of workers, and live.

mod run;

use run::asking::Running;
use run::{Place, finish, wait_until, wirescope};
use scope_testkit::traffic::frame::{on_link, udp};
use scope_testkit::traffic::{Capture, ETHERNET, Random, Record};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;

const MS: i64 = 1_000_000;
const BEGIN: i64 = 1_700_000_000_000 * MS;

/// A packet to this port, from the host of this number.
fn packet(time_ns: i64, port: u16, host: u8) -> Record {
    let (from, to) = ([10, 0, 0, host], [10, 1, 0, 1]);
    let datagram = udp((from, 999).into(), (to, port).into(), b"x");
    Record::new(time_ns, on_link(ETHERNET, &[], &datagram))
}

/// So many packets in each millisecond.
fn capture(counts: &[u64]) -> Capture {
    let mut capture = Capture::ethernet("eth0");
    for (ms, count) in counts.iter().enumerate() {
        for at in 0..*count {
            let time_ns = BEGIN + ms as i64 * MS + (at * 999_999 / count.max(&1)) as i64;
            capture.packets.push(packet(time_ns, 53, (at % 250) as u8));
        }
    }
    capture
}

/// A level, and how it is read by the letter.
#[derive(Clone, Copy, Debug)]
struct Level {
    above: bool,
    bound: u64,
    window: usize,
    hold: usize,
}

impl Level {
    fn text(self) -> String {
        let Level { above, bound, window, hold } = self;
        let window = if window > 1 { format!(", {window}ms") } else { String::new() };
        let hold = if hold > 1 { format!(" for {hold}ms") } else { String::new() };
        format!("signal(dns{window}) {} {bound}/s{hold}", if above { ">" } else { "<=" })
    }

    /// The milliseconds in which it begins to hold.
    fn crossings(self, counts: &[u64]) -> Vec<usize> {
        let test = |at: usize| {
            let Some(from) = (at + 1).checked_sub(self.window) else { return false };
            let sum: u64 = counts[from..=at].iter().sum();
            let (value, bound) = (sum * 1000, self.bound * self.window as u64);
            if self.above { value > bound } else { value <= bound }
        };
        let mut crossings = Vec::new();
        let mut run = 0;
        for at in 0..counts.len() {
            run = if test(at) { run + 1 } else { 0 };
            if run == self.hold {
                crossings.push(at + 1 - self.hold);
            }
        }
        crossings
    }
}

/// Times of hits by trigger, in milliseconds since the begin: of all, fired or not.
fn hits(place: &Place) -> BTreeMap<String, Vec<i64>> {
    let mut hits: BTreeMap<String, Vec<i64>> = BTreeMap::new();
    for line in place.log().lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        if line["event"] != "dump" {
            continue;
        }
        let time_ns = line["time_ns"].as_i64().unwrap_or_else(|| {
            jiff::Timestamp::as_nanosecond(line["time"].as_str().unwrap().parse().unwrap()) as i64
        });
        hits.entry(line["trigger"].as_str().unwrap().to_string()).or_default().push((time_ns - BEGIN) / MS);
    }
    hits.values_mut().for_each(|times| times.sort_unstable());
    hits
}

/// Whether a file has these words.
fn says(path: &Path, words: &str) -> bool {
    std::fs::read(path).unwrap().windows(words.len()).any(|at| at == words.as_bytes())
}

#[test]
fn levels_fire_from_a_file_as_a_reading_by_the_letter_says_with_any_workers_and_at_any_speed() {
    let mut random = Random::new(17);
    for _ in 0..3 {
        let mut counts: Vec<u64> = (0..1500).map(|_| 0).collect();
        let mut at = 0;
        while at < counts.len() {
            let (length, most) = (1 + random.below(150) as usize, random.pick(&[0, 1, 3, 8]));
            let end = (at + length).min(counts.len());
            counts[at..end].fill_with(|| random.below(most + 1));
            at = end;
        }
        counts[0] = 1;
        *counts.last_mut().unwrap() = 1;
        let place = Place::new();
        let source = place.source(&capture(&counts));
        let levels: Vec<Level> = (0..6)
            .map(|_| Level {
                above: random.chance(60),
                bound: random.pick(&[0, 1000, 2000, 5000]),
                window: random.pick(&[1, 1, 10, 100]),
                hold: random.pick(&[1, 5, 40]),
            })
            .collect();
        let expected: BTreeMap<String, Vec<i64>> = levels
            .iter()
            .enumerate()
            .map(|(at, level)| (format!("l{at}"), level.crossings(&counts)))
            .filter(|(_, crossings)| !crossings.is_empty())
            .map(|(name, crossings)| (name, crossings.iter().map(|at| *at as i64).collect()))
            .collect();
        for more in ["", ",workers=2", ",workers=4", ",pace=10"] {
            let place = Place::new();
            let source = format!("{source}{more}");
            let mut arguments = vec!["--source".to_string(), source, "--signal".into(), "dns=port 53".into()];
            for (at, level) in levels.iter().enumerate() {
                arguments.extend(["--trigger".to_string(), format!("l{at}={}", level.text())]);
            }
            // Each crossing a dump of its own.
            arguments.extend(["--before", "0s", "--after", "0s", "--dumps-max", "4000"].map(String::from));
            let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
            let summary = place.summary_of_many_hits(&arguments);
            summary.assert_adds_up();
            let found: BTreeMap<String, usize> =
                summary.hits.iter().map(|(name, hits)| (name.clone(), hits.sum() as usize)).collect();
            for (name, crossings) in &expected {
                assert_eq!(found.get(name), Some(&crossings.len()), "{name} {levels:?} {more}");
            }
            let fired = hits(&place);
            for (name, times) in &fired {
                let all = expected.get(name).unwrap_or_else(|| panic!("{name} fired {times:?}"));
                assert!(times.iter().all(|at| all.contains(at)), "{name}: {times:?} of {all:?}, {more}");
            }
        }
    }
}

#[test]
fn a_dump_reaches_back_from_the_crossing_and_says_the_condition_and_its_value() {
    let mut counts = vec![1; 1000];
    counts[600..700].fill(8);
    let place = Place::new();
    let source = place.source(&capture(&counts));
    let flood = "flood=signal(dns) > 5000/s for 50ms";
    let flags = ["--before", "100ms", "--after", "20ms", "--signal", "dns=port 53", "--trigger", flood];
    let summary = place.summary(&[&["--source", &source][..], &flags].concat());
    let dump = &summary.dumps[0];
    assert_eq!((dump.time_ns - BEGIN) / MS, 600);
    assert_eq!(((dump.asked.0 - BEGIN) / MS, (dump.asked.1 - BEGIN) / MS), (500, 669));
    assert_eq!(
        dump.packets,
        100 + 70 * 8,
        "from before the crossing, up to where it was certain and after that"
    );
    assert_eq!(dump.filter, "port 53", "the signal's packets");
    assert!(says(&dump.path, "signal(dns) > 5000/s for 50ms (dns was 8000/s)"));
    let place = Place::new();
    let own = [&["--source", &source, "--dump", "host 10.0.0.1"][..], &flags].concat();
    assert_eq!(place.summary(&own).dumps[0].filter, "host 10.0.0.1", "a filter of its own stays");
}

#[test]
fn what_nothing_has_fired_for_a_while_fires_by_itself() {
    let mut counts = vec![0; 10_000];
    counts.iter_mut().step_by(100).for_each(|count| *count = 1);
    let place = Place::new();
    let mut input = capture(&counts);
    input.packets.push(packet(BEGIN + 4_500 * MS, 7, 1));
    input.packets.sort_by_key(|record| record.time_ns);
    let source = place.source(&input);
    let flags = ["--trigger", "port 7", "--auto", "2s", "--before", "100ms", "--after", "0s"];
    let summary = place.summary(&[&["--source", &source][..], &flags].concat());
    let times: Vec<i64> = summary.dumps.iter().map(|dump| (dump.time_ns - BEGIN) / MS).collect();
    let mut sorted = times.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, [2000, 4000, 4500, 6500, 8500]);
    let first = summary.dumps.iter().find(|dump| (dump.time_ns - BEGIN) / MS == 2000).unwrap();
    assert!(says(&first.path, "fired by itself: nothing had fired it for 2"));
}

#[test]
fn a_year_without_packets_fires_no_million_times_by_itself() {
    let place = Place::new();
    let mut input = capture(&[1]);
    input.packets.push(packet(BEGIN + 366 * 86_400 * 1000 * MS, 53, 1));
    let source = place.source(&input);
    let flags = ["--trigger", "port 7", "--auto", "1s", "--before", "0s", "--after", "0s"];
    let summary = place.summary(&[&["--source", &source][..], &flags].concat());
    assert_eq!(summary.hits["trigger1"].fired, 100);
    assert!(place.log().contains("fires by themselves are skipped"), "{}", place.log());
}

#[test]
fn a_live_run_fires_at_a_level_and_at_silence() {
    let place = Place::new();
    let flags = [
        "--source",
        "synth:rate=2k,seed=1",
        "--ring",
        "64MiB",
        "--before",
        "100ms",
        "--after",
        "50ms",
        "--signal",
        "heartbeat=udp port 4",
        "--trigger",
        "busy=signal(pps, 500ms) > 500/s",
        "--trigger",
        "silent=signal(heartbeat) == 0 for 300ms",
        "--exit-after",
        "2",
        "--dump",
        "",
    ];
    let summary = place.summary(&flags);
    let mut names: Vec<&str> = summary.dumps.iter().map(|dump| dump.trigger.as_str()).collect();
    names.sort_unstable();
    assert_eq!(names, ["busy", "silent"]);
    assert!(summary.dumps.iter().all(|dump| dump.packets > 0));
}

#[test]
fn signals_are_asked_for_and_followed_at_the_control_socket() {
    let running = Running::new(&["--signal", "probe:bps=udp port 60000", "--status-every", "1s"]);
    let all = running.get("signals").body;
    let names: Vec<&str> =
        all["signals"].as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["pps", "bps", "drops", "probe"]);
    wait_until("a second to be over", || running.get("signals").body["signals"][0]["latest"].is_number());
    wait_until("the probe to be measured", || {
        let probe = running.get("signals/probe?step=1ms").body;
        probe["steps"]
            .as_array()
            .is_some_and(|steps| steps.iter().filter(|step| step["max"].as_f64() > Some(0.0)).count() == 1)
    });
    let pps = running.get("signals/pps?from=-2s&step=100ms").body;
    assert_eq!((&pps["unit"], &pps["step_ns"]), (&Value::from("/s"), &Value::from(100_000_000)));
    let means: Vec<f64> =
        pps["steps"].as_array().unwrap().iter().filter_map(|step| step["mean"].as_f64()).collect();
    assert!(means.iter().any(|mean| *mean > 1000.0), "{means:?}");
    assert_eq!(running.get("signals/nix").status, 404);
    for bad in ["signals/pps?step=0", "signals/pps?step=1us", "signals/pps?from=5&to=1", "signals/pps?nix=1"]
    {
        assert_eq!(running.get(bad).status, 400, "{bad}");
    }
    let body = r#"{"name": "busy", "filter": "signal(pps) > 1/s", "before": "10ms", "after": "0s"}"#;
    assert_eq!(running.post("triggers", body).status, 201);
    wait_until("the level to fire", || running.get("triggers/busy").body["hits"]["fired"] == 1);
    let shown = running.get("triggers/busy").body;
    assert_eq!(
        (&shown["condition"], &shown["filter"]),
        (&Value::from("level"), &Value::from("signal(pps) > 1/s"))
    );
    let refused = running.post("triggers", r#"{"name": "b", "filter": "signal(nix) > 1/s"}"#);
    assert_eq!(refused.status, 400);
    assert!(refused.body.to_string().contains("there is no signal 'nix'"), "{}", refused.body);
    wait_until("the log to have the signals", || running.place.log().contains("\"signals\":{\"bps\":"));
    running.end();
}

#[test]
fn what_can_t_be_meant_is_refused_before_anything_starts() {
    let refused = |flags: &[&str], words: &[&str]| {
        let place = Place::new();
        let all = [&["run", "--source", "synth:packets=1,pace=max", "--out", "."][..], flags].concat();
        let mut command = wirescope(&all);
        command.current_dir(place.out());
        let done = finish(command);
        assert_eq!(done.code(), Some(2), "{flags:?}: {}", done.stderr);
        words.iter().for_each(|word| {
            assert!(done.stderr.contains(word), "{flags:?}: no '{word}' in {}", done.stderr);
        });
        assert!(place.out_names().is_empty(), "nothing was begun");
    };
    refused(&["--trigger", "signal(nix) > 1/s"], &["there is no signal 'nix'", "pps, bps, drops"]);
    refused(&["--trigger", "a=signal(pps) > 1"], &["trigger 'a'", "has no unit", "5000/s", "^"]);
    refused(&["--trigger", "a=signal(pps) > 5/s and udp"], &["a level is expected"]);
    refused(&["--signal", "a=udp", "--signal", "a=tcp"], &["--signal", "'a' is given twice"]);
    refused(&["--signal", "a:share=b/pps", "--signal", "b:share=a/pps"], &["in a ring"]);
    refused(&["--trigger", "udp", "--auto", "1ms"], &["--auto", "is too often"]);
    refused(&["--auto", "1h"], &["--auto", "there is no trigger for it"]);
    let many: Vec<String> =
        (0..10_000).flat_map(|at| ["--signal".to_string(), format!("s{at}=udp")]).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    refused(&many, &["10000 signals are too many"]);
    let place = Place::new();
    std::fs::write(
        place.path("c.toml"),
        "[[signal]]\nname = \"a\"\nexpr = \"udp\"\n[[signal]]\nname = \"b\"\nmeasure = \"speed\"\nexpr = \"udp\"\n",
    )
    .unwrap();
    let done = finish(wirescope(&["config", "check", place.path("c.toml").to_str().unwrap()]));
    assert_eq!(done.code(), Some(2), "{}", done.stderr);
    assert!(
        done.stderr.contains("c.toml:6") && done.stderr.contains("'speed' is not a measure"),
        "{}",
        done.stderr
    );
}

#[test]
fn estimates_of_a_file_are_the_same_each_time_with_any_number_of_workers() {
    let hits = |more: &str| -> Vec<u64> {
        let place = Place::new();
        let (mut random, mut capture) = (Random::new(3), Capture::ethernet("eth0"));
        for at in 0..6000 {
            let from = [10, random.below(200) as u8, random.below(200) as u8, 1];
            let datagram = udp((from, 999).into(), ([10, 1, 0, 1], 53).into(), b"x");
            capture.packets.push(Record::new(BEGIN + at * MS / 2, on_link(ETHERNET, &[], &datagram)));
        }
        // Thresholds about what there is, some 1,950 a second: an estimate that moved by a percent would cross some.
        let source = format!("{}{more}", place.source(&capture));
        let mut flags = ["--source", &source, "--signal", "h:hosts="].map(String::from).to_vec();
        for step in 0..30 {
            flags.extend(["--trigger".to_string(), format!("t{step:02}=signal(h) > {}/s", 1800 + 10 * step)]);
        }
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        let summary = place.summary(&flags);
        summary.hits.iter().filter(|(name, _)| name.starts_with('t')).map(|(_, hits)| hits.fired).collect()
    };
    let once = hits("");
    assert!(once.iter().any(|fired| *fired > 0), "{once:?}");
    assert_eq!(hits(""), once);
    assert_eq!(hits(",workers=3"), once);
}
