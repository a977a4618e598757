//! What a script did over a capture, in words and as JSON.

use crate::script::file::untabbed;
use crate::script::over::{Asked, At, Ending, Found, Listed};
use crate::script::thread::End;
use crate::words::{counted, number, size, span};
use scope_fault::{Fault, Setting, sentence};
use scope_script::Hit;
use scope_spelling::printable::{printable, shell_word};
use scope_spelling::time::iso;
use serde_json::{Value, json};
use std::time::Duration;

/// What a script did.
#[derive(Debug)]
pub struct Outcome {
    /// Its file, as typed.
    pub file: String,
    pub asked: Asked,
    /// The C libraries that it names.
    pub libraries: Vec<String>,
    /// LuaJIT may make machine code.
    pub is_compiled: bool,
    pub found: Found,
    /// How its thread has ended.
    pub end: End,
    /// What a call of it may take.
    pub timeout: Duration,
}

impl Outcome {
    /// All that is not as it should be, but for damage of the captures.
    pub fn faults(&self, of_script: impl Fn() -> Fault) -> Vec<Fault> {
        let mut faults = Vec::new();
        if let Some(ending) = &self.found.ending
            && let Some(cause) = self.cause(ending)
        {
            let fault = of_script().cause(untabbed(&cause));
            faults.push(match self.found.hits {
                // As a dump script does that is run as a trigger script, or the other way round.
                0 => fault.remedy(format!("see: wirescope script check {}", shell_word(&self.file))),
                _ => fault,
            });
        }
        match self.end {
            End::Done => {}
            End::Stuck => faults.push(self.stuck(of_script())),
            End::Died => {
                let fault = of_script().cause("its thread has died");
                faults.push(fault.remedy("this is a defect, please report it"));
            }
        }
        faults.extend(self.found.broken.clone());
        faults
    }

    /// Why the script isn't fine, by what it says at its end.
    fn cause(&self, ending: &Ending) -> Option<String> {
        if let Some(why) = &ending.disabled {
            return Some(format!("it was disabled, after {}: {why}", counted(self.found.packets, "packet")));
        }
        let report = ending.report.as_deref().unwrap_or("no report");
        (ending.errors > 0).then(|| format!("{}, the first: {report}", counted(ending.errors, "error")))
    }

    fn stuck(&self, fault: Fault) -> Fault {
        let when = match self.found.at {
            At::Loading => "while it was loaded: look for a loop outside of its functions".to_string(),
            At::Keeper => "when it made the function of the dump".to_string(),
            At::Batch(first) => format!("for the batch that begins with packet {}", number(first)),
            At::End => "at its end: look at its finalizers, and at 'counts'".to_string(),
        };
        let cause = format!("it didn't come back within {} {when}", span(nanos(self.timeout)));
        fault.cause(cause).remedy(sentence!["give it longer: ", Setting::of("script-timeout").example("10s")])
    }
}

fn nanos(time: Duration) -> i64 {
    i64::try_from(time.as_nanos()).unwrap_or(i64::MAX)
}

/// Mean time of a packet, ns.
fn mean_ns(found: &Found) -> Option<f64> {
    (found.packets > 0).then(|| found.pace.total.as_nanos() as f64 / found.packets as f64)
}

/// What it did, as an object for programs. `is_fine`: nothing is wrong, neither with the script nor with the captures.
pub fn object(outcome: &Outcome, is_fine: bool) -> Value {
    let Outcome { file, asked, libraries, is_compiled, found, end, .. } = outcome;
    let ending = found.ending.as_ref();
    let slowest = found.pace.slowest.map(
        |(took, packets, first)| json!({ "ns": nanos(took), "packets": packets, "first_packet": first }),
    );
    let mut object = json!({
        "script": file,
        "fine": is_fine,
        "libraries": libraries,
        "packets": found.packets,
        "machine_code": is_compiled,
        "ns_per_packet": mean_ns(found).map(|ns| (ns * 10.0).round() / 10.0),
        "batches": found.pace.batches,
        "slowest_batch": slowest,
        "errors": ending.map(|ending| ending.errors),
        "report": ending.and_then(|ending| ending.report.clone()),
        "disabled": ending.and_then(|ending| ending.disabled.clone()),
        "stuck": *end == End::Stuck,
        "printed": ending.map(|ending| &ending.notes.0),
        "printed_more": ending.map(|ending| ending.notes.1),
    });
    let more = match asked {
        Asked::Hits { .. } => json!({
            "kind": "trigger",
            "forms": found.forms,
            "hits": found.hits,
            "unlisted": found.hits - found.listed.len() as u64,
            "listed": found.listed.iter().map(listed_object).collect::<Vec<_>>(),
            "ticks": ending.map(|ending| ending.ticks),
            "memory_bytes": ending.and_then(|ending| ending.memory_bytes),
            "flows": ending.map(|ending| ending.flows),
            "flows_evicted": ending.map(|ending| ending.flows_evicted),
        }),
        Asked::Kept { fire } => json!({
            "kind": "dump",
            "fire": fire,
            "kept": found.hits,
            "first_kept": found.kept_span.map(|(first, _)| first),
            "last_kept": found.kept_span.map(|(_, last)| last),
        }),
    };
    if let (Value::Object(object), Value::Object(more)) = (&mut object, more) {
        object.extend(more);
    }
    object
}

fn listed_object(listed: &Listed) -> Value {
    let Listed { packet, hit } = listed;
    json!({
        "time": iso(hit.time_ns),
        "packet": packet,
        "text": hit.text,
        "before_ns": hit.before_ns,
        "after_ns": hit.after_ns,
        "keeps": hit.dump_filter(),
    })
}

/// The same for people: hits, then what it took.
pub fn words(outcome: &Outcome) -> String {
    let Outcome { file, asked, found, .. } = outcome;
    let mut text = String::new();
    for Listed { packet, hit } in &found.listed {
        line(&mut text, "hit", &format!("{} {}", iso(hit.time_ns), hit_words(*packet, hit)));
    }
    let unlisted = found.hits - found.listed.len() as u64;
    if unlisted > 0 && matches!(asked, Asked::Hits { .. }) {
        line(&mut text, "hits", &format!("{} more, not listed: --hits-max {}", number(unlisted), found.hits));
    }
    let ending = found.ending.as_ref();
    if let Some((notes, more)) = ending.map(|ending| &ending.notes) {
        notes.iter().for_each(|note| line(&mut text, "printed", note));
        if *more > 0 {
            line(&mut text, "printed", &counted(*more, "further line"));
        }
    }
    line(&mut text, "script", &format!("{file}: {}", did(outcome)));
    if let Some(mean_ns) = mean_ns(found) {
        let mut words = format!("{mean_ns:.0} ns per packet");
        if let Some((took, packets, first)) = found.pace.slowest {
            let batch = counted(packets, "packet");
            words += &format!(
                "; slowest batch: {} for {batch}, from packet {} on",
                span(nanos(took)),
                number(first)
            );
        }
        line(&mut text, "time", &words);
    }
    if let Some(ending) = ending
        && let Some(bytes) = ending.memory_bytes
    {
        let mut words = format!("{} of Lua's own", size(bytes as u64));
        if found.forms.contains(&"flows") {
            words +=
                &format!("; {}, {} evicted", counted(ending.flows, "flow"), number(ending.flows_evicted));
        }
        line(&mut text, "memory", &words);
    }
    text
}

/// What it did with how many packets.
fn did(outcome: &Outcome) -> String {
    let found = &outcome.found;
    let packets = counted(found.packets, "packet");
    match outcome.asked {
        Asked::Hits { .. } => {
            let ticks = found.ending.as_ref().map_or(0, |ending| ending.ticks);
            let ticks = if ticks > 0 { format!(" and {}", counted(ticks, "tick")) } else { String::new() };
            format!("{} in {packets}{ticks}", counted(found.hits, "hit"))
        }
        Asked::Kept { fire } => {
            let by = if fire == 0 { "by hand".to_string() } else { format!("by packet {}", number(fire)) };
            let span = found.kept_span.map_or(String::new(), |(first, last)| {
                format!(", the first {}, the last {}", number(first), number(last))
            });
            format!("fired {by} it keeps {} of {packets}{span}", number(found.hits))
        }
    }
}

/// What hit, why, and what its dump would be.
fn hit_words(packet: Option<u64>, hit: &Hit) -> String {
    let mut words = packet.map_or("tick".to_string(), |packet| format!("packet {}", number(packet)));
    if let Some(text) = &hit.text {
        words += &format!(": {text}");
    }
    if let Some(ns) = hit.before_ns {
        words += &format!("; {} before", span(ns));
    }
    if let Some(ns) = hit.after_ns {
        words += &format!("; {} after", span(ns));
    }
    if let Some(filter) = hit.dump_filter() {
        words += &format!("; keeps {filter}");
    }
    words
}

/// One line behind a key, whatever stands in its text.
fn line(text: &mut String, key: &str, value: &str) {
    *text += &format!("{key:<9} {}\n", printable(value));
}
