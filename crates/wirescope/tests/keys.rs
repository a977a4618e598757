//! Every key of the summary, and every line of the log with its keys, has its line in docs/reference.

mod run;

use run::{Place, Started, is_root, wait_until};
use serde_json::Value;
use std::collections::BTreeSet;
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
    let words =
        spans.flat_map(|span| span.split(|letter: char| !(letter.is_ascii_alphanumeric() || letter == '_')));
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

/// A run with everything that adds something to its summary: commands, a budget, the ring written out; and
/// one on an interface.
fn summaries() -> Vec<(Value, Vec<Value>)> {
    let traffic = ["--source", "synth:rate=1k,time=1s,trigger-at=500ms", "--trigger", "hit=udp port 60000"];
    let place = Place::with_commands();
    let ring = place.path("jobs/ring.pcapng").display().to_string();
    let more =
        ["--dump-budget", "50MiB", "--exec", "true", "--before", "5", "--after", "5", "--ring-out", &ring];
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
fn every_key_of_the_summary_stands_in_its_page_and_every_line_of_the_log_is_an_event_with_no_other_key() {
    let documented = quoted(&page_of("summary.md"));
    for (summary, log) in summaries() {
        let mut found = BTreeSet::new();
        keys("", &summary, &mut found);
        let lacking: Vec<_> = found.difference(&documented).collect();
        assert!(lacking.is_empty(), "summary.md lacks {lacking:?}");
        for event in log {
            let line = scope_events::Line::read(event.to_string().as_bytes()).expect("a line");
            let scope_events::Content::Event(known) = &line.content else { panic!("{event}") };
            assert_eq!(scope_events::line::write(known, &line.run_id, &line.logged), event);
        }
    }
}
