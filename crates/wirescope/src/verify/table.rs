//! What `wirescope verify` found, as lines of at most 80 columns where names allow it, and as JSON.

use crate::words::{counted, number, size, span};
use scope_fault::Fault;
use scope_spelling::printable::printable;
use scope_spelling::time::iso;
use scope_store::verify::{Damage, FileReport, Missing, Verdict};
use serde_json::{Value, json};

/// Damaged places, and spans that lack packets, that are shown of one file; the JSON object has more.
const SHOWN_MAX: usize = 50;

/// The worst of all.
pub fn verdict(reports: &[FileReport]) -> Verdict {
    reports.iter().map(FileReport::verdict).max().unwrap_or(Verdict::Whole)
}

/// A line for each file, the spans that lack packets, and what it comes to.
pub fn words(reports: &[FileReport]) -> String {
    let mut text = String::new();
    for report in reports {
        file(&mut text, report);
    }
    for report in reports.iter().filter(|report| !report.missing.is_empty()) {
        missing(&mut text, report);
    }
    line(&mut text, &total(reports));
    text
}

fn line(text: &mut String, words: &str) {
    text.push_str(&printable(words));
    text.push('\n');
}

fn file(text: &mut String, report: &FileReport) {
    let (verdict, path) = (report.verdict().name(), report.path.display());
    if let Some(fault) = &report.unread {
        return line(text, &format!("{verdict:<8} {fault}"));
    }
    let packets = counted(report.packets, "packet");
    let lasts = match report.span {
        Some((min_ns, max_ns)) if max_ns > min_ns => format!(", {}", span(max_ns - min_ns)),
        _ => String::new(),
    };
    let steps = match report.steps_back {
        0 => String::new(),
        times => format!(", times step back {}", counted(times, "time")),
    };
    let form = report.form.name();
    let size = size(report.bytes);
    line(text, &format!("{verdict:<8} {path}: {form}, {packets}, {size}{lasts}{steps}"));
    for Damage { at, cause, .. } in report.damages.iter().take(SHOWN_MAX) {
        line(text, &format!("         byte {at}: {cause}"));
    }
    let more = report.damages_more + report.damages.len().saturating_sub(SHOWN_MAX) as u64;
    if more > 0 {
        line(text, &format!("         and {} more", counted(more, "damaged place")));
    }
}

/// The spans that a file lacks, as a table.
fn missing(text: &mut String, report: &FileReport) {
    line(text, &format!("Missing in {}:", report.path.display()));
    line(text, &format!("{:<30}  {:>10}  {:>14}  why", "from", "lasts", "packets"));
    for row in report.missing.iter().take(SHOWN_MAX) {
        let lasts = match row.to_ns {
            Some(to_ns) => span(to_ns.saturating_sub(row.from_ns)),
            None => "to its end".to_string(),
        };
        let of = if row.of.is_empty() { String::new() } else { format!(", {}", row.of) };
        let why = row.reason.words();
        line(text, &format!("{}  {lasts:>10}  {:>14}  {why}{of}", iso(row.from_ns), lost(row)));
    }
    let more = report.missing.len().saturating_sub(SHOWN_MAX) as u64;
    if more > 0 {
        line(text, &format!("and {} more; --json lists them", counted(more, "span")));
    }
}

/// How many packets are missing.
fn lost(row: &Missing) -> String {
    match (row.lost_min, row.lost_max) {
        (0, None) => "unknown".to_string(),
        (least, None) => format!("{} or more", number(least)),
        (least, Some(most)) if least == most => number(least),
        (least, Some(most)) => format!("{} to {}", number(least), number(most)),
    }
}

/// The last line: what it comes to.
fn total(reports: &[FileReport]) -> String {
    let of = |verdict: Verdict| reports.iter().filter(|report| report.verdict() == verdict).count() as u64;
    let mut parts = Vec::new();
    for (verdict, words) in [
        (Verdict::Whole, "whole"),
        (Verdict::Lost, "lacking packets that were lost"),
        (Verdict::Damaged, "damaged"),
        (Verdict::Unread, "not looked at"),
    ] {
        if of(verdict) > 0 {
            parts.push(format!("{} {words}", number(of(verdict))));
        }
    }
    let packets = reports.iter().map(|report| report.packets).sum();
    let files = counted(reports.len() as u64, "file");
    format!("{files} with {}: {}", counted(packets, "packet"), parts.join(", "))
}

/// All of it.
pub fn object(reports: &[FileReport]) -> Value {
    json!({
        "verdict": verdict(reports).name(),
        "packets": reports.iter().map(|report| report.packets).sum::<u64>(),
        "bytes": reports.iter().map(|report| report.bytes).sum::<u64>(),
        "files": reports.iter().map(file_object).collect::<Vec<_>>(),
    })
}

fn file_object(report: &FileReport) -> Value {
    let damage = |Damage { at, cause, is_cut }: &Damage| json!({"byte": at, "cause": cause, "cut": is_cut});
    json!({
        "path": report.path.to_string_lossy(),
        "verdict": report.verdict().name(),
        "form": if report.unread.is_some() { None } else { Some(report.form.name()) },
        "bytes": report.bytes,
        "packets": report.packets,
        "from": report.span.map(|(min_ns, _)| iso(min_ns)),
        "to": report.span.map(|(_, max_ns)| iso(max_ns)),
        "steps_back": report.steps_back,
        "damages": report.damages.iter().map(damage).collect::<Vec<_>>(),
        "damages_more": report.damages_more,
        "missing": report.missing.iter().map(missing_object).collect::<Vec<_>>(),
        "unread": report.unread.as_ref().map(Fault::to_json),
    })
}

fn missing_object(row: &Missing) -> Value {
    json!({
        "from": iso(row.from_ns),
        "to": row.to_ns.map(iso),
        "reason": row.reason.name(),
        "loss": row.is_loss(),
        "lost_min": row.lost_min,
        "lost_max": row.lost_max,
        "of": row.of,
    })
}
