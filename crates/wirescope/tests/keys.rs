//! Every key of the summary, and every line of the log with its keys, has its line in docs/reference.

mod run;

use run::{Place, Started, is_root, wait_until};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Objects whose keys are names of triggers, reasons, interfaces or counters, not of this program's choosing.
const NAMED_BY_OTHERS: [&str; 6] = ["hits", "dropped", "nic", "driver", "config", "not_listed"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The text of a page of the reference.
fn page_of(name: &str) -> String {
    std::fs::read_to_string(root().join("docs/reference").join(name)).unwrap()
}

/// Words inside backquotes.
fn quoted(text: &str) -> BTreeSet<String> {
    let spans = text.split('`').skip(1).step_by(2);
    let words = spans.flat_map(|span| span.split(|letter: char| !(letter.is_ascii_alphanumeric() || letter == '_')));
    words.filter(|word| !word.is_empty()).map(String::from).collect()
}

/// All keys in `value`, whose own name is `name`.
fn keys(name: &str, value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(object) => {
            for (key, value) in object {
                let is_kernel_s = key.starts_with("rx_") || key.starts_with("tx_");
                if !NAMED_BY_OTHERS.contains(&name) && !is_kernel_s {
                    found.insert(key.clone());
                }
                keys(key, value, found);
            }
        }
        Value::Array(list) => list.iter().for_each(|value| keys(name, value, found)),
        _ => {}
    }
}

/// A run with everything that adds something to its summary: commands, a budget, the ring written out; and one on an interface.
fn summaries() -> Vec<(Value, Vec<Value>)> {
    let traffic = ["--source", "synth:rate=1k,time=1s,trigger-at=500ms", "--trigger", "hit=udp port 60000"];
    let place = Place::with_commands();
    let ring = place.path("jobs/ring.pcapng").display().to_string();
    let more = ["--dump-budget", "50MiB", "--exec", "true", "--before", "5", "--after", "5", "--ring-out", &ring];
    let mut all = vec![ended(&place, Started::new(place.command(&[&traffic[..], &more].concat())))];
    if is_root() {
        let place = Place::new();
        let started = Started::new(place.command(&["-i", "lo", "--before", "1"]));
        wait_until("capture", || !log(&place).is_empty());
        started.signal(libc::SIGUSR1);
        wait_until("a dump", || log(&place).iter().any(|line| line["event"] == "dump"));
        started.signal(libc::SIGINT);
        all.push(ended(&place, started));
    }
    all
}

fn ended(place: &Place, started: Started) -> (Value, Vec<Value>) {
    let done = started.finish(run::LIMIT);
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    (serde_json::from_str(&done.stdout).unwrap(), log(place))
}

fn log(place: &Place) -> Vec<Value> {
    let text = std::fs::read_to_string(place.out().join("wirescope.jsonl")).unwrap_or_default();
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

#[test]
fn every_key_of_the_summary_and_every_line_of_the_log_stands_in_its_page() {
    let documented = quoted(&page_of("summary.md"));
    let page = page_of("event-log.md");
    let rows: BTreeMap<String, BTreeSet<String>> =
        page.lines().filter_map(|line| Some((line.strip_prefix("| `")?.split('`').next()?.to_string(), quoted(line)))).collect();
    for (summary, log) in summaries() {
        let mut found = BTreeSet::new();
        keys("", &summary, &mut found);
        let lacking: Vec<_> = found.difference(&documented).collect();
        assert!(lacking.is_empty(), "summary.md lacks {lacking:?}");
        for line in log {
            let event = line["event"].as_str().unwrap();
            let row = rows.get(event).unwrap_or_else(|| panic!("event-log.md lacks the event {event}"));
            let mut found = BTreeSet::new();
            keys("", &line, &mut found);
            let everywhere: BTreeSet<String> = rows["every line"].union(&rows["nic"]).cloned().collect();
            let of_summary = if ["dump", "end", "together"].contains(&event) { documented.clone() } else { BTreeSet::new() };
            let known = |key: &&String| row.contains(*key) || everywhere.contains(*key) || of_summary.contains(*key);
            let lacking: Vec<_> = found.iter().filter(|key| !known(key)).collect();
            assert!(lacking.is_empty(), "event-log.md lacks of {event}: {lacking:?}");
        }
    }
}

/// Events that the engine writes, by its source: what stands behind `.log(`.
fn events_in(folder: &Path, found: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        if entry.is_dir() {
            events_in(&entry, found);
        } else if entry.extension().is_some_and(|ending| ending == "rs") {
            let text = std::fs::read_to_string(&entry).unwrap();
            let code = text.split("#[cfg(test)]").next().unwrap_or_default();
            let called = code.split(".log(").skip(1).filter_map(|call| call.trim_start().strip_prefix('"')?.split('"').next());
            found.extend(called.map(String::from));
        }
    }
}

#[test]
fn every_event_that_the_engine_can_write_has_its_line_in_the_page_of_the_log() {
    let mut events = BTreeSet::new();
    events_in(&root().join("crates/scope-engine/src"), &mut events);
    assert!(events.len() > 10, "{events:?}");
    let page = page_of("event-log.md");
    let lacking: Vec<_> = events.iter().filter(|event| !page.contains(&format!("\n| `{event}` |"))).collect();
    assert!(lacking.is_empty(), "event-log.md lacks {lacking:?}");
}
