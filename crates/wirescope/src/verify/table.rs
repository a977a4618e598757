//! What `wirescope verify` found, as lines of at most 80 columns where names allow it, and as JSON.

use crate::answer::elsewhere;
use crate::words::{counted, number, size, span};
use scope_fault::Fault;
use scope_spelling::printable::printable;
use scope_spelling::time::iso;
use scope_store::verify::{
    ChainReport, Damage, FileReport, Form, Missing, Partial, Progress, Report, StoreReport, Verdict,
};
use serde_json::{Value, json};
use std::path::Path;

/// Damaged places, spans that lack packets and faults of a chain that are shown of one file or store; the JSON
/// object has more.
pub(super) const SHOWN_MAX: usize = 50;

/// Why no chain may have a head that was noted.
const HEAD_MISSING: &str = "lines were changed or cut off, or it is too old for the chain";

/// A line for each file, what is known of stores, the spans that lack packets, and what it comes to.
pub fn words(report: &Report) -> String {
    let mut text = String::new();
    for entry in report.files.iter().filter(|file| file.store.is_none()) {
        file(&mut text, entry, &entry.path);
    }
    for entry in &report.stores {
        store(&mut text, entry, report);
    }
    for entry in report.files.iter().filter(|file| file.store.is_none() && !file.missing.is_empty()) {
        missing(&mut text, &entry.path, entry.missing.iter().collect());
    }
    for entry in &report.stores {
        let of_files = files_of(report, entry).flat_map(|file| &file.missing);
        let mut rows: Vec<&Missing> = of_files.chain(&entry.missing).collect();
        rows.sort_by_key(|row| row.from_ns);
        if !rows.is_empty() {
            missing(&mut text, &entry.path, rows);
        }
    }
    for entry in report.partial.iter().take(SHOWN_MAX) {
        line(&mut text, &elsewhere(entry, 0));
    }
    if report.partial.len() > SHOWN_MAX {
        let more = (report.partial.len() - SHOWN_MAX) as u64;
        line(&mut text, &format!("and {} of which volumes weren't given", counted(more, "more run")));
    }
    for head in &report.heads_missing {
        line(&mut text, &format!("damaged  no chain has the head {head}: {HEAD_MISSING}"));
    }
    line(&mut text, &total(report));
    text
}

fn files_of<'a>(report: &'a Report, store: &'a StoreReport) -> impl Iterator<Item = &'a FileReport> {
    report.files.iter().filter(|file| file.store.as_ref() == Some(&store.path))
}

pub(super) fn line(text: &mut String, words: &str) {
    text.push_str(&printable(words));
    text.push('\n');
}

/// A line for each file of a store, by its path in it; then its chain, and what is foreign.
fn store(text: &mut String, store: &StoreReport, report: &Report) {
    if let Some(fault) = &store.unread {
        return line(text, &format!("unread   {fault}"));
    }
    for fault in &store.unread_parts {
        line(text, &format!("unread   {fault}"));
    }
    let files = counted(files_of(report, store).count() as u64, "file");
    let written = if store.is_written { ", which a run writes" } else { "" };
    line(text, &format!("store    {}: {files}{written}", store.path.display()));
    for entry in files_of(report, store) {
        file(text, entry, entry.path.strip_prefix(&store.path).unwrap_or(&entry.path));
    }
    if let Some(entry) = &store.chain {
        chain(text, entry);
    }
    if store.of_other_volumes > 0 {
        let count = counted(store.of_other_volumes, "file");
        line(text, &format!("moved    {count} of another volume: copied here, or the mark was made anew"));
    }
    let foreign = &store.foreign;
    if foreign.count > 0 {
        let names: Vec<String> = foreign.names.iter().map(|name| name.display().to_string()).collect();
        let more = if foreign.count > names.len() { ", ..." } else { "" };
        let count = number(foreign.count as u64);
        line(text, &format!("foreign  {count}, left alone: {}{more}", names.join(", ")));
    }
}

fn chain(text: &mut String, chain: &ChainReport) {
    let verdict = if chain.faults.is_empty() { Verdict::Whole } else { Verdict::Damaged }.name();
    let deleted = match chain.deleted {
        0 => String::new(),
        files => format!(", {} of them deleted by retention", number(files)),
    };
    line(text, &format!("{verdict:<8} chain: {}{deleted}", counted(chain.lines, "file")));
    for fault in chain.faults.iter().take(SHOWN_MAX) {
        line(text, &format!("         {fault}"));
    }
    if chain.faults.len() > SHOWN_MAX {
        let more = (chain.faults.len() - SHOWN_MAX) as u64;
        line(text, &format!("         and {}; --json lists them", counted(more, "more fault")));
    }
    for (run, _, head) in chain.heads.iter().rev().take(SHOWN_MAX).rev() {
        line(text, &format!("         {head}"));
        line(text, &format!("           is the head of run {}", hex(&run[..4])));
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn file(text: &mut String, report: &FileReport, shown: &Path) {
    let (verdict, path) = (report.verdict().name(), shown.display());
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
    let bare = if report.form == Form::Store && !report.has_checksums { ", without checksums" } else { "" };
    let grows = match (report.progress, report.open_slots) {
        (Progress::Growing, 0) => ", growing".to_string(),
        (Progress::Growing, slots) => format!(", growing: {} not closed yet", counted(slots, "segment")),
        _ => String::new(),
    };
    let form = report.form.name();
    let size = size(report.bytes);
    line(text, &format!("{verdict:<8} {path}: {form}, {packets}, {size}{lasts}{steps}{bare}{grows}"));
    for Damage { at, cause, .. } in report.damages.iter().take(SHOWN_MAX) {
        line(text, &format!("         byte {at}: {cause}"));
    }
    let more = report.damages_more + report.damages.len().saturating_sub(SHOWN_MAX) as u64;
    if more > 0 {
        line(text, &format!("         and {} more", counted(more, "damaged place")));
    }
}

/// The spans that a file or a store lacks, as a table.
fn missing(text: &mut String, path: &Path, rows: Vec<&Missing>) {
    line(text, &format!("Missing in {}:", path.display()));
    line(text, &format!("{:<30}  {:>8}  {:>14}  why", "from", "lasts", "packets"));
    for row in rows.iter().take(SHOWN_MAX) {
        let lasts = match row.to_ns {
            Some(_) if row.reaches_back => "up to it".to_string(),
            Some(to_ns) => span(to_ns.saturating_sub(row.from_ns)),
            None => "to its end".to_string(),
        };
        let why = row.reason.words();
        let at = if row.reaches_back { row.to_ns.unwrap_or(row.from_ns) } else { row.from_ns };
        line(text, &format!("{}  {lasts:>8}  {:>14}  {why}", iso(at), lost(row)));
    }
    let more = rows.len().saturating_sub(SHOWN_MAX) as u64;
    if more > 0 {
        line(text, &format!("and {}; --json lists them", counted(more, "more span")));
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
fn total(report: &Report) -> String {
    let files = &report.files;
    let of = |verdict: Verdict| files.iter().filter(|file| file.verdict() == verdict).count() as u64;
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
    let packets = counted(report.packets(), "packet");
    let parts = if parts.is_empty() { String::new() } else { format!(": {}", parts.join(", ")) };
    let mut text = format!("{} with {packets}{parts}", counted(files.len() as u64, "file"));
    let is_damaged =
        |store: &&StoreReport| store.chain.as_ref().is_some_and(|chain| !chain.faults.is_empty());
    match report.stores.iter().filter(is_damaged).count() as u64 {
        0 => {}
        1 => text.push_str("; a chain is damaged"),
        more => text.push_str(&format!("; {} are damaged", counted(more, "chain"))),
    }
    match report.heads_missing.len() as u64 {
        0 => {}
        1 => text.push_str("; no chain has the expected head"),
        more => text.push_str(&format!("; no chain has {}", counted(more, "expected head"))),
    }
    text
}

/// All of it.
pub fn object(report: &Report) -> Value {
    json!({
        "verdict": report.verdict().name(),
        "packets": report.packets(),
        "bytes": report.files.iter().map(|file| file.bytes).sum::<u64>(),
        "segments_twice": report.twice,
        "volumes_missing": report.partial.iter().map(partial_object).collect::<Vec<_>>(),
        "heads_missing": report.heads_missing.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "files": report.files.iter().map(file_object).collect::<Vec<_>>(),
        "stores": report.stores.iter().map(store_object).collect::<Vec<_>>(),
    })
}

fn partial_object(Partial { run_id, given, volumes }: &Partial) -> Value {
    json!({"run": hex(run_id), "given": given, "volumes": volumes})
}

fn store_object(store: &StoreReport) -> Value {
    let names: Vec<_> = store.foreign.names.iter().map(|name| name.to_string_lossy()).collect();
    json!({
        "path": store.path.to_string_lossy(),
        "verdict": store.verdict().name(),
        "written": store.is_written,
        "foreign": {"files": store.foreign.count, "names": names},
        "of_other_volumes": store.of_other_volumes,
        "chain": store.chain.as_ref().map(chain_object),
        "unread": store.unread.as_ref().map(Fault::to_json),
        "missing": store.missing.iter().map(missing_object).collect::<Vec<_>>(),
        "unread_parts": store.unread_parts.iter().map(Fault::to_json).collect::<Vec<_>>(),
    })
}

fn chain_object(chain: &ChainReport) -> Value {
    let head = |(run, files, head): &([u8; 16], u64, scope_store::chain::Digest)| json!({"run": hex(run), "files": files, "head": head.to_string()});
    json!({
        "files": chain.lines,
        "deleted": chain.deleted,
        "heads": chain.heads.iter().map(head).collect::<Vec<_>>(),
        "faults": chain.faults.iter().map(ToString::to_string).collect::<Vec<_>>(),
    })
}

fn file_object(report: &FileReport) -> Value {
    let damage = |Damage { at, cause, is_cut }: &Damage| json!({"byte": at, "cause": cause, "cut": is_cut});
    json!({
        "path": report.path.to_string_lossy(),
        "store": report.store.as_ref().map(|store| store.to_string_lossy()),
        "verdict": report.verdict().name(),
        "form": if report.unread.is_some() { None } else { Some(report.form.name()) },
        "state": report.progress.name(),
        "checksums": report.has_checksums,
        "open_segments": report.open_slots,
        "bytes": report.bytes,
        "packets": report.packets,
        "from": report.span.map(|(min_ns, _)| iso(min_ns)),
        "to": report.span.map(|(_, max_ns)| iso(max_ns)),
        "steps_back": report.steps_back,
        "damages": report.damages.iter().map(damage).collect::<Vec<_>>(),
        "damages_more": report.damages_more,
        "missing": report.missing.iter().map(missing_object).collect::<Vec<_>>(),
        "missing_joined": report.missing_joined,
        "unread": report.unread.as_ref().map(Fault::to_json),
    })
}

fn missing_object(row: &Missing) -> Value {
    json!({
        "from": (!row.reaches_back).then(|| iso(row.from_ns)),
        "to": row.to_ns.map(iso),
        "reason": row.reason.name(),
        "loss": row.is_loss(),
        "lost_min": row.lost_min,
        "lost_max": row.lost_max,
        "of": row.of,
    })
}
