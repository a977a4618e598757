//! Facts out of `wirescope.jsonl`: of the run that began last in it, or of the one that is asked for.
//!
//! Lines are read one by one and may be cut, damaged or of a later version: what isn't understood is counted or passed over.

use super::facts::{Capture, DumpFacts, Facts, NicFacts, SourceFacts, State, WaitedFacts};
use super::runs::{Runs, Wanted};
use scope_machine::home::Home;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Bytes of a line that are read; longer ones count as unreadable.
const LINE_BYTES_MAX: u64 = 4 << 20;
/// Incomplete dumps, and warnings, that are kept of a run; of more the first ones.
const KEPT_MAX: usize = 10_000;
/// Kinds of lines that tell doctor nothing.
const OTHER_KINDS: [&str; 9] = ["hit", "hits", "interface", "alarm", "deleted", "exec", "reload", "note", "warning"];
/// A second took so long, seconds: the process stood still.
const STALLED_S: f64 = 2.5;
/// Part of a second from which a worker had no time left.
const BUSY: f64 = 0.75;
/// Part of a second that the process was kept waiting by its control group, from which that explains a loss.
const THROTTLED: f64 = 0.05;
/// Part of a second that a worker waited for a processor, from which that explains a loss.
const STARVED: f64 = 0.2;

/// Why a log can't be looked at. Texts say place, cause and remedy.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// It can't be opened or read.
    #[error("{path}: {cause}; give the folder of a run with --out, its log with --log, or its process with --pid")]
    File {
        /// Which.
        path: PathBuf,
        /// The system's own words.
        #[source]
        cause: io::Error,
    },
    /// Nothing is in it.
    #[error("{path}: the log is empty: no run has written a line yet, or it was emptied since")]
    Empty {
        /// Which.
        path: PathBuf,
    },
    /// No run is in it.
    #[error(
        "{path}: no run has written this log ({unreadable} of its {lines} lines can't be read); give that of a run with --log, or its folder with --out"
    )]
    NoRun {
        /// Which.
        path: PathBuf,
        /// Lines that aren't empty.
        lines: u64,
        /// Of these, those that aren't JSON objects.
        unreadable: u64,
    },
    /// The run asked for isn't in it.
    #[error(
        "{path}: {wanted} is not among the {runs} runs of this log; without --run and --pid the one that began last is told of"
    )]
    NotThatRun {
        /// Which.
        path: PathBuf,
        /// Which run, in words.
        wanted: String,
        /// Runs in the log.
        runs: u64,
    },
}

/// Reads the log at `path`: the run that is wanted, or the one that began last.
///
/// # Errors
/// The log can't be read, or no such run is in it.
pub fn read(path: &Path, wanted: &Wanted) -> Result<Facts, LogError> {
    let fault = |cause| LogError::File { path: path.to_path_buf(), cause };
    // A pipe without a writer would be waited for without end.
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path).map_err(fault)?;
    if !file.metadata().map_err(fault)?.is_file() {
        return Err(fault(io::Error::other("is no file")));
    }
    let mut reader = BufReader::new(file);
    let mut runs = Runs::new(wanted.clone());
    let mut line = Vec::new();
    loop {
        line.clear();
        if (&mut reader).take(LINE_BYTES_MAX).read_until(b'\n', &mut line).map_err(fault)? == 0 {
            break;
        }
        runs.take(&line, line.ends_with(b"\n") || line.len() as u64 == LINE_BYTES_MAX);
    }
    let path = path.to_path_buf();
    let missing = match (runs.lines, runs.count) {
        (0, _) => LogError::Empty { path },
        (lines, 0) => LogError::NoRun { path, lines, unreadable: runs.unreadable },
        (_, runs) => LogError::NotThatRun { path, wanted: wanted.to_string(), runs },
    };
    runs.finish().ok_or(missing)
}

/// Facts of the run that began last in `text`, as [`read`] reads them; for logs that were recorded.
pub fn parse(text: &str) -> Option<Facts> {
    let mut runs = Runs::default();
    text.lines().for_each(|line| runs.take(line.as_bytes(), true));
    runs.finish()
}

/// A time of a line.
fn time(event: &Map<String, Value>, name: &str) -> Option<jiff::Timestamp> {
    event.get(name)?.as_str()?.parse().ok()
}

/// When a line was written.
pub(super) fn logged(event: &Map<String, Value>) -> Option<jiff::Timestamp> {
    time(event, "logged")
}

/// A run lasts from its first line to its last one so far. A `start` in a log that goes on has the time of the first one.
pub(super) fn take_time(facts: &mut Facts, event: &Map<String, Value>) {
    if let Some(logged) = logged(event) {
        let began = *facts.began.get_or_insert_with(|| time(event, "began").unwrap_or(logged));
        facts.elapsed_s = logged.duration_since(began).as_secs_f64().max(0.0);
        facts.last = Some(logged);
    }
}

pub(super) fn take_event(facts: &mut Facts, kind: &str, event: &Map<String, Value>) {
    match kind {
        "start" => {
            facts.version = text(event.get("version"));
            facts.continues = event.get("continues").and_then(Value::as_bool).unwrap_or(false);
            facts.specs = texts(event.get("sources"));
            facts.ring_bytes = number(event.get("ring_bytes"));
            facts.memory = text(event.get("memory"));
            facts.triggers = event.get("triggers").and_then(Value::as_array).map_or(0, |triggers| triggers.len() as u64);
        }
        "machine" => take_machine(facts, event),
        "status" => {
            take_counts(facts, event);
            if facts.continues && facts.losses_told.is_empty() {
                facts.losses_told = facts.dropped.clone(); // those were told in the file before
            }
        }
        "loss" => take_loss(facts, event),
        "resumed" => facts.resumed += 1,
        "dump" => take_dump(facts, event),
        "interface" => take_interface(facts, event),
        "long_hold" => facts.long_holds += 1,
        "warning" if facts.warnings.len() < KEPT_MAX => facts.warnings.push(text(event.get("text"))),
        "end" => {
            facts.state = State::Ended;
            facts.failures = texts(event.get("failures"));
            if let Some(totals) = event.get("dump_totals").filter(|totals| totals.is_object()) {
                let broken = number(totals.get("incomplete")).max(number(totals.get("failed")));
                facts.dump_totals = Some((number(totals.get("dumps")), broken));
            }
            take_counts(facts, event);
        }
        "ended_at_once" => {
            facts.state = State::EndedAtOnce;
            facts.ended_why = text(event.get("why"));
            facts.dumps_thrown_away = number(event.get("dumps_open"));
        }
        _ if OTHER_KINDS.contains(&kind) => {}
        _ => facts.unknown_lines += 1,
    }
}

fn take_machine(facts: &mut Facts, event: &Map<String, Value>) {
    facts.pid = event.get("pid").and_then(Value::as_u64);
    facts.pid_began = event.get("pid_began").and_then(Value::as_u64);
    facts.home = event.get("home").map(home).unwrap_or_default();
    facts.live = event.get("live").and_then(Value::as_bool).unwrap_or(false);
    facts.interpreter_asked = event.get("interpreter").and_then(Value::as_bool).unwrap_or(false);
    facts.dumps_max = event.get("dumps_max").and_then(Value::as_u64);
    facts.status_every_s = event.get("status_every_s").and_then(Value::as_f64).unwrap_or(0.0);
    facts.processors = number(event.get("processors"));
    let limit = |name: &str| event.get("limits").and_then(|limits| limits.get(name)).and_then(Value::as_u64);
    (facts.file_size_max, facts.threads_max) = (limit("file_size"), limit("threads"));
    let captures = event.get("captures").and_then(Value::as_array).into_iter().flatten();
    facts.captures = captures
        .map(|capture| Capture {
            source: text(capture.get("source")),
            interface: text(capture.get("interface")),
            workers: number(capture.get("workers")),
            snap_len: capture.get("snap_len").and_then(Value::as_u64).filter(|bytes| *bytes > 0),
            promiscuous: capture.get("promiscuous").and_then(Value::as_bool).unwrap_or(true),
            cpus: capture.get("cpus").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_u64).collect(),
        })
        .collect();
    take_nics(facts, event);
}

fn home(value: &Value) -> Home {
    let word = |name: &str| value.get(name).filter(|word| word.is_string()).map(|word| text(Some(word)));
    Home { host: word("host"), boot: word("boot"), processes: word("processes") }
}

/// What `status` and `end` have in common: all counts since the run began.
fn take_counts(facts: &mut Facts, event: &Map<String, Value>) {
    take_disk_wait(facts, event);
    facts.counted = logged(event).or(facts.counted);
    facts.hits_rationed = number(event.get("hits_rationed"));
    if let Some(group) = event.get("cgroup").filter(|group| group.is_object()) {
        let seconds = group.get("throttled_s").and_then(Value::as_f64).unwrap_or(0.0);
        facts.throttled = (number(group.get("throttled_periods")), seconds);
    }
    for (reason, packets) in counts(event.get("dropped")) {
        let dropped = facts.dropped.entry(reason).or_default();
        *dropped = packets.max(*dropped);
    }
    // Logs without it are of versions that counted nothing else.
    facts.cut_by_segment = number(event.get("cut_by_segment").or_else(|| event.get("cut")));
    facts.late = number(event.get("late"));
    facts.sources.clear();
    for source in event.get("sources").and_then(Value::as_array).into_iter().flatten() {
        let sum: &mut SourceFacts = facts.sources.entry(text(source.get("source"))).or_default();
        sum.offered = sum.offered.saturating_add(number(source.get("offered")));
        sum.received = sum.received.saturating_add(number(source.get("received")));
        sum.kernel_dropped = sum.kernel_dropped.saturating_add(number(source.get("kernel_dropped")));
        sum.unreadable = sum.unreadable.saturating_add(number(source.get("unreadable")));
    }
    facts.hits.clear();
    for trigger in event.get("hits").and_then(Value::as_object).into_iter().flat_map(Map::values) {
        for (verdict, hits) in counts(Some(trigger)) {
            let sum = facts.hits.entry(verdict).or_default();
            *sum = sum.saturating_add(hits);
        }
    }
    take_nics(facts, event);
    if let Some(softnet) = event.get("softnet").filter(|softnet| softnet.is_object()) {
        facts.softnet = Some(scope_machine::nic::Softnet {
            dropped: number(softnet.get("dropped")),
            squeezed: number(softnet.get("squeezed")),
        });
    }
}

/// How long a dump was waiting for its disk at that moment.
fn take_disk_wait(facts: &mut Facts, event: &Map<String, Value>) {
    let seconds = event.get("disk_wait_s").and_then(Value::as_f64).unwrap_or(0.0);
    facts.disk_wait_s = facts.disk_wait_s.max(seconds);
}

/// The last word about an interface holds.
fn take_interface(facts: &mut Facts, event: &Map<String, Value>) {
    let interface = text(event.get("interface"));
    match event.get("state").and_then(Value::as_str) {
        Some("refused") if facts.refused.len() < KEPT_MAX => drop(facts.refused.insert(interface, text(event.get("text")))),
        Some("gone") if facts.gone.len() < KEPT_MAX => drop(facts.gone.insert(interface)),
        Some("new" | "back") => drop(facts.refused.remove(&interface)),
        _ => {}
    }
}

fn take_nics(facts: &mut Facts, event: &Map<String, Value>) {
    if let Some(nics) = event.get("nic").and_then(Value::as_object) {
        facts.nics = nics.iter().map(|(interface, nic)| nic_facts(interface, nic)).collect();
    }
}

fn nic_facts(interface: &str, nic: &Value) -> NicFacts {
    let altered = nic.get("altered").unwrap_or(&Value::Null);
    let link = nic.get("link").unwrap_or(&Value::Null);
    let notes = nic.get("notes").and_then(Value::as_array).into_iter().flatten();
    NicFacts {
        interface: interface.to_string(),
        counters: counts(Some(nic)),
        driver: counts(nic.get("driver")),
        altered: scope_machine::nic::Altered {
            joined: number(altered.get("joined")),
            split: number(altered.get("split")),
            unchecked: number(altered.get("unchecked")),
            unchecked_sent: number(altered.get("unchecked_sent")),
            long: number(altered.get("long")),
            sliced: number(altered.get("sliced")),
            cut_by_block: number(altered.get("cut_by_block")),
            cut_by_bound: number(altered.get("cut_by_bound")),
        },
        up: link.get("up").and_then(Value::as_bool),
        running: link.get("running").and_then(Value::as_bool),
        notes: notes.map(|note| (text(note.get("kind")), text(note.get("remedy")))).collect(),
    }
}

/// Losses come each second, the counts that hold them only now and then: what came last is larger.
fn take_loss(facts: &mut Facts, event: &Map<String, Value>) {
    let lost = counts(event.get("packets"));
    facts.losses_seen(&lost);
    take_disk_wait(facts, event);
    let kernel = lost.get("kernel").copied().unwrap_or(0);
    if kernel == 0 {
        return;
    }
    let workers = event.get("workers").and_then(Value::as_array).into_iter().flatten();
    let part = |worker: &Value, name: &str| worker.get(name).and_then(Value::as_f64).unwrap_or(0.0);
    let (busy, starved) = workers.fold((0.0, 0.0), |(busy, starved): (f64, f64), worker| {
        (busy.max(part(worker, "busy")), starved.max(part(worker, "starved")))
    });
    let seconds = event.get("seconds").and_then(Value::as_f64).unwrap_or(1.0);
    let throttled_s = event.get("throttled_s").and_then(Value::as_f64).unwrap_or(0.0);
    if seconds >= STALLED_S {
        facts.kernel.stalled = facts.kernel.stalled.saturating_add(kernel);
        facts.stalled_s = facts.stalled_s.max(seconds);
    } else if throttled_s >= THROTTLED * seconds.max(1.0) {
        facts.kernel.throttled = facts.kernel.throttled.saturating_add(kernel);
    } else if busy >= BUSY {
        facts.kernel.busy = facts.kernel.busy.saturating_add(kernel);
        facts.busy_max = facts.busy_max.max(busy);
    } else if starved >= STARVED {
        facts.kernel.starved = facts.kernel.starved.saturating_add(kernel);
    } else {
        facts.kernel.other = facts.kernel.other.saturating_add(kernel);
    }
}

impl Facts {
    /// Adds up losses that were told one after another, as far as no count has them yet.
    fn losses_seen(&mut self, lost: &BTreeMap<String, u64>) {
        for (reason, packets) in lost {
            let told = self.losses_told.entry(reason.clone()).or_default();
            *told = told.saturating_add(*packets);
            let dropped = self.dropped.entry(reason.clone()).or_default();
            *dropped = (*dropped).max(*told);
        }
    }
}

fn take_dump(facts: &mut Facts, event: &Map<String, Value>) {
    facts.dumps_told += 1;
    let dump = dump(event);
    if (!dump.complete || dump.error.is_some()) && facts.dumps.len() < KEPT_MAX {
        facts.dumps.push(dump);
    }
}

fn dump(event: &Map<String, Value>) -> DumpFacts {
    DumpFacts {
        id: number(event.get("id")),
        complete: event.get("complete").and_then(Value::as_bool).unwrap_or(false),
        lost_min: number(event.get("lost_min")),
        // null: nobody knows how many.
        lost_max: event.get("lost_max").and_then(Value::as_u64).unwrap_or_else(|| number(event.get("lost_min")).max(1)),
        gaps: gaps(event),
        waited: event.get("waited").filter(|waited| waited.is_object()).map(waited),
        piped: event.get("path").is_some_and(Value::is_null) && event.get("error").is_some_and(Value::is_null),
        error: event.get("error").and_then(Value::as_str).map(String::from),
    }
}

/// For what a dump waited.
fn waited(value: &Value) -> WaitedFacts {
    let seconds = |name: &str| value.get(name).and_then(Value::as_f64).unwrap_or(0.0);
    WaitedFacts { longest_s: seconds("longest_s"), total_s: seconds("total_s"), pins_full_s: seconds("pins_full_s") }
}

/// What a dump lacks, by reason.
fn gaps(event: &Map<String, Value>) -> BTreeMap<String, (u64, u64)> {
    let mut gaps: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    for gap in event.get("gaps").and_then(Value::as_array).into_iter().flatten() {
        let lost_min = number(gap.get("lost_min"));
        // null: nobody knows how many.
        let lost_max = gap.get("lost_max").and_then(Value::as_u64).unwrap_or(lost_min.max(1));
        let sum = gaps.entry(text(gap.get("reason"))).or_default();
        *sum = (sum.0.saturating_add(lost_min), sum.1.saturating_add(lost_max));
    }
    gaps
}

/// The members of an object that are counts.
fn counts(value: Option<&Value>) -> BTreeMap<String, u64> {
    let members = value.and_then(Value::as_object).into_iter().flatten();
    members.filter_map(|(name, value)| Some((name.clone(), value.as_u64()?))).collect()
}

fn number(value: Option<&Value>) -> u64 {
    value.and_then(Value::as_u64).unwrap_or(0)
}

/// Foreign text: control characters could play with a terminal.
pub(super) fn text(value: Option<&Value>) -> String {
    let text = value.and_then(Value::as_str).unwrap_or("");
    text.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect()
}

fn texts(value: Option<&Value>) -> Vec<String> {
    value.and_then(Value::as_array).into_iter().flatten().take(KEPT_MAX).map(|value| text(Some(value))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: &str = r#"{"event":"start","sources":["afpacket:a"],"ring_bytes":1024,"memory":"m","triggers":[{}]}"#;

    fn parsed(lines: &[&str]) -> Facts {
        parse(&lines.join("\n")).expect("a run")
    }

    #[test]
    fn the_last_run_of_a_log_is_read_and_damage_is_counted() {
        let end = r#"{"event":"end","dropped":{"kernel":9},"failures":["one"]}"#;
        let facts = parsed(&[START, end, START, "{\"event\":\"sta", "\u{0}\u{0}"]);
        assert_eq!((facts.state, facts.dropped("kernel"), facts.unreadable_lines), (State::Unknown, 0, 2));
        let facts = parsed(&["rubbish", START, end]);
        assert_eq!((facts.state, facts.dropped("kernel"), facts.failures.len()), (State::Ended, 9, 1));
        assert_eq!((facts.specs, facts.ring_bytes, facts.triggers), (vec!["afpacket:a".to_string()], 1024, 1));
        assert!(parse("").is_none() && parse(end).is_none());
    }

    #[test]
    fn losses_and_counts_of_the_same_packets_are_not_added() {
        let loss = r#"{"event":"loss","packets":{"kernel":5}}"#;
        let status = |dropped| format!(r#"{{"event":"status","elapsed_s":10,"dropped":{{"kernel":{dropped}}}}}"#);
        assert_eq!(parsed(&[START, loss, &status(5)]).dropped("kernel"), 5);
        assert_eq!(parsed(&[START, loss, &status(5), loss, loss]).dropped("kernel"), 15);
        assert_eq!(parsed(&[START, loss, &status(7)]).dropped("kernel"), 7);
    }

    #[test]
    fn a_log_that_goes_on_from_another_file_counts_from_the_beginning_of_its_run() {
        let start = r#"{"event":"start","began":"2026-01-01T00:00:00Z","logged":"2026-01-01T01:00:00Z","continues":true,"sources":["a"]}"#;
        let status = r#"{"event":"status","logged":"2026-01-01T00:59:59Z","dropped":{"kernel":7}}"#;
        let loss = r#"{"event":"loss","logged":"2026-01-01T01:00:10Z","packets":{"kernel":5}}"#;
        let facts = parsed(&[start, status, loss]);
        assert_eq!((facts.continues, facts.dropped("kernel"), facts.elapsed_s), (true, 12, 3610.0));
    }

    #[test]
    fn losses_are_told_apart_by_what_went_on() {
        let loss = |facts: &str| format!(r#"{{"event":"loss","packets":{{"kernel":1}},{facts}}}"#);
        let check = |facts: &str, expected: KernelLosses| assert_eq!(parsed(&[START, &loss(facts)]).kernel, expected, "{facts}");
        use super::super::facts::KernelLosses;
        let none = KernelLosses::default();
        check(r#""seconds":1,"workers":[{"busy":0.1,"starved":0},{"busy":0.97,"starved":0}]"#, KernelLosses { busy: 1, ..none });
        check(r#""seconds":1,"workers":[{"busy":0.5,"starved":0.4}]"#, KernelLosses { starved: 1, ..none });
        check(r#""seconds":4,"workers":[{"busy":0.9,"starved":0.4}]"#, KernelLosses { stalled: 1, ..none });
        check(r#""seconds":1,"throttled_s":0.4,"workers":[{"busy":0.6,"starved":0.4}]"#, KernelLosses { throttled: 1, ..none });
        check(r#""seconds":1,"throttled_s":0.01,"workers":[{"busy":0.9,"starved":0}]"#, KernelLosses { busy: 1, ..none });
        check(r#""seconds":1,"workers":[null]"#, KernelLosses { other: 1, ..none });
        check(r#""workers":"x""#, KernelLosses { other: 1, ..none });
    }

    #[test]
    fn foreign_text_has_no_control_characters() {
        assert_eq!(text(Some(&Value::from("a\u{1b}[2Jb\n"))), "a [2Jb ");
    }
}
