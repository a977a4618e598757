//! `wirescope store list`: what stores have, in lines for people or as one object for programs.
//!
//! A file line is `NUMBER BEGIN SPAN PACKETS SIZE STATE`, under the line of its run.

use crate::answer::elsewhere;
use crate::args::StoreListArgs;
use crate::speech::{self, Level, say};
use crate::words::{counted, number, size, span};
use crate::{NoResult, UNDONE, told};
use scope_dump::gaps_in_words;
use scope_fault::Fault;
use scope_packet::{Gap, LinkType};
use scope_spelling::printable::json_line;
use scope_spelling::time::{between, iso};
use scope_store::hold::Holds;
use scope_store::lanes::{Lack, Lanes, Partial};
use scope_store::listing::{Contents, Listed, Standing};
use scope_store::unread::unread;
use scope_store::volume::Store;
use scope_store::{Listing, listing};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Letters of a run's id that are shown.
const RUN_LETTERS: usize = 8;

/// A store that was looked at.
struct Looked {
    path: PathBuf,
    listing: Listing,
    holds: Result<Holds, Fault>,
    runs: Vec<Run>,
}

/// What is there of a run.
#[derive(Default)]
struct Run {
    id: [u8; 16],
    files: u64,
    packets: u64,
    /// Packets that the store's filter left out.
    left_out: u64,
    bytes: u64,
    span_ns: Option<(i64, i64)>,
    link_types: BTreeSet<LinkType>,
    gaps: Vec<Gap>,
    /// What may be in volumes that weren't given.
    elsewhere: Vec<Gap>,
    partial: Option<Partial>,
}

/// Lists the stores. Exit codes: 0 listed, 1 something couldn't be read, 2 it can't look.
pub fn list(args: &StoreListArgs) -> u8 {
    let stores = match look_at_all(args) {
        Ok(stores) => stores,
        Err(faults) => return told(Err(NoResult::Refused(faults))),
    };
    let text = match args.json {
        true => format!("{}\n", json_line(&object(&stores).to_string())),
        false => stores.iter().map(words).collect(),
    };
    let code = told(Ok(text));
    let faults: Vec<Fault> = stores.iter().flat_map(Looked::faults).collect();
    faults.iter().for_each(speech::say_fault);
    if faults.is_empty() { code } else { UNDONE }
}

/// Opens the stores, gives all rights up but reading them, and only then parses what is in them.
fn look_at_all(args: &StoreListArgs) -> Result<Vec<Looked>, Vec<Fault>> {
    let (stores, refused): (Vec<_>, Vec<_>) =
        args.store.iter().map(|path| (path, Store::look(path))).partition(|(_, store)| store.is_ok());
    if !refused.is_empty() {
        return Err(refused.into_iter().filter_map(|(_, store)| store.err()).collect());
    }
    let paths: Vec<&Path> = args.store.iter().map(PathBuf::as_path).collect();
    let kept = scope_rights::keep_to_reading(&paths).map_err(|error| vec![error.fault()])?;
    if let Some(lack) = kept.lack() {
        say(Level::Warning, &format!("wirescope: {lack}"));
    }
    let looked = stores.into_iter().filter_map(|(path, store)| Some(look(path, &store.ok()?)));
    let mut looked: Vec<Looked> = looked.collect::<Result<_, _>>().map_err(|fault| vec![fault])?;
    lack(&mut looked);
    Ok(looked)
}

/// Says of each run what it lacks. What one store lacks may be in another one that is looked at.
fn lack(stores: &mut [Looked]) {
    let mut lanes = Lanes::default();
    for (number, store) in stores.iter().enumerate() {
        lanes.give(store.listing.volume.0);
        for file in &store.listing.files {
            match &file.contents {
                Ok(contents) => lanes.add(number, contents),
                Err(_) => lanes.add_unread(store.listing.volume.0, &file.name),
            }
        }
    }
    for Lack { run_id, store, unread, gap, is_elsewhere } in lanes.lacks() {
        // It belongs to the store whose file can't be read.
        let of_file = unread
            .and_then(|(_, volume, _)| stores.iter().position(|store| store.listing.volume.0 == volume));
        let store = of_file.unwrap_or(store);
        let Some(run) = stores[store].runs.iter_mut().find(|run| run.id == run_id) else { continue };
        if is_elsewhere { run.elsewhere.push(gap) } else { run.gaps.push(gap) }
    }
    for partial in lanes.partial() {
        for run in stores.iter_mut().flat_map(|store| &mut store.runs).filter(|run| run.id == partial.run_id)
        {
            run.partial = Some(partial);
        }
    }
}

fn look(path: &Path, store: &Store) -> Result<Looked, Fault> {
    let holds = store.holds();
    let listing = listing::list(store).map_err(|error| unread(path, &error))?;
    let runs = runs(&listing.files);
    Ok(Looked { path: path.to_path_buf(), listing, holds, runs })
}

/// The runs, by their begin.
fn runs(files: &[Listed]) -> Vec<Run> {
    let mut runs: BTreeMap<[u8; 16], Run> = BTreeMap::new();
    for Listed { bytes, contents, .. } in files {
        let Ok(contents) = contents else { continue };
        let run = runs.entry(contents.run_id).or_default();
        run.id = contents.run_id;
        run.files += 1;
        run.packets += contents.packets();
        run.link_types.insert(contents.link_type);
        run.left_out += contents.left_out();
        run.bytes += bytes;
        let spans = run.span_ns.into_iter().chain(contents.span_ns());
        run.span_ns = spans.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)));
    }
    let mut runs: Vec<Run> = runs.into_values().collect();
    runs.sort_by_key(|run| (run.span_ns, run.id));
    runs
}

/// What is wrong with a file, in words.
fn fault_of(contents: &Contents) -> Option<String> {
    let head = contents.head.as_ref().map(ToString::to_string);
    head.or_else(|| contents.index.map(|cause| cause.to_string()))
}

impl Looked {
    /// What couldn't be read of it.
    fn faults(&self) -> Vec<Fault> {
        let path = |file: &Listed| self.path.join(file.name.path());
        let fault = |file: &Listed| Fault::of_thing(path(file).to_string_lossy());
        let mut faults: Vec<Fault> = self.holds.as_ref().err().cloned().into_iter().collect();
        faults.extend(self.listing.unread.iter().map(|(day, error)| unread(&self.path.join(day), error)));
        for file in &self.listing.files {
            match &file.contents {
                Err(cause) => faults.push(cause.fault(&path(file))),
                Ok(contents) => {
                    if let Some(damage) = &contents.head {
                        faults.push(fault(file).cause(damage.to_string()));
                    }
                    if let Some(cause) = contents.index {
                        let fault = fault(file).cause(cause.to_string());
                        faults.push(fault.remedy("what its segments' feet say is listed all the same"));
                    }
                    if contents.unread > 0 && file.standing == Standing::Closed {
                        let places = counted(contents.unread, "segment");
                        faults.push(fault(file).cause(format!("{places} can't be read")));
                    }
                }
            }
        }
        faults
    }

    fn is_held(&self, contents: &Contents) -> bool {
        let span = contents.span_ns();
        self.holds.as_ref().is_ok_and(|holds| span.is_some_and(|(min, max)| holds.cover(min, max)))
    }
}

fn hex(id: &[u8]) -> String {
    id.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Without the fraction of a second.
fn second(ns: i64) -> String {
    let text = iso(ns);
    text.split('.').next().map_or(text.clone(), |begin| format!("{}Z", begin.trim_end_matches('Z')))
}

fn words(store: &Looked) -> String {
    let Looked { path, listing, holds, runs } = store;
    let mut text = String::new();
    for run in runs {
        let id = hex(&run.id);
        let span = run.span_ns.map_or("no packets".to_string(), |(from_ns, to_ns)| {
            let second = |ns: i64| ns - ns.rem_euclid(1_000_000_000);
            between(second(from_ns), "to", second(to_ns))
        });
        text.push_str(&format!("run {}  {span}, {}\n", &id[..RUN_LETTERS], counted(run.packets, "packet")));
        for link_type in &run.link_types {
            text.push_str(&format!("  {}\n", link_type.name()));
            for file in &listing.files {
                match &file.contents {
                    Ok(contents) if (contents.run_id, contents.link_type) == (run.id, *link_type) => {
                        text.push_str(&line(file, contents, store.is_held(contents)));
                    }
                    _ => {}
                }
            }
        }
        if run.left_out > 0 {
            text.push_str(&format!("  left out by a filter: {}\n", counted(run.left_out, "packet")));
        }
        if !run.gaps.is_empty() {
            text.push_str(&format!("  missing: {}\n", missing(&run.gaps)));
        }
        if let Some(partial) = &run.partial {
            let most = run.elsewhere.iter().filter_map(|gap| gap.lost_max).sum();
            text.push_str(&format!("  {}\n", elsewhere(partial, most)));
        }
    }
    for (day, _) in &listing.unread {
        text.push_str(&format!("can't be read: {}\n", day.display()));
    }
    for file in listing.files.iter().filter(|file| file.contents.is_err()) {
        text.push_str(&format!("can't be read: {}\n", file.name.path().display()));
    }
    for hold in holds.iter().flat_map(Holds::list) {
        let span = between(hold.from_ns, "to", hold.to_ns);
        text.push_str(&format!("hold {}  {span}  {}\n", hold.id, hold.note));
    }
    if listing.foreign.count > 0 {
        let names: Vec<String> =
            listing.foreign.names.iter().map(|name| name.display().to_string()).collect();
        let files = counted(listing.foreign.count as u64, "other file");
        text.push_str(&format!("not the store's: {files}: {}\n", names.join(", ")));
    }
    let bytes = listing.files.iter().map(|file| file.bytes).sum();
    let written = if listing.is_written { "; a run writes it" } else { "" };
    text.push_str(&format!(
        "{}: {}, {}, {}, {}{written}\n",
        path.display(),
        counted(runs.len() as u64, "run"),
        counted(listing.files.len() as u64, "file"),
        counted(runs.iter().map(|run| run.packets).sum(), "packet"),
        size(bytes),
    ));
    text
}

/// One file.
fn line(file: &Listed, contents: &Contents, held: bool) -> String {
    let (begin, span) = match contents.span_ns() {
        Some((min_ns, max_ns)) => (second(min_ns), span(max_ns - min_ns)),
        None => ("no packets".to_string(), String::new()),
    };
    let state = match (file.standing, held) {
        (Standing::Closed, true) => "held".to_string(),
        (Standing::Growing, true) => "growing, held".to_string(),
        (Standing::Closed, false) => String::new(),
        (standing, _) => standing.name().to_string(),
    };
    let packets = number(contents.packets());
    let text = format!(
        "{:>7} {begin:>20} {span:>13} {packets:>12} {:>8}  {state}",
        format!("{:06}", contents.number),
        size(file.bytes)
    );
    format!("{}\n", text.trim_end())
}

/// What a run lacks: how much of each reason.
fn missing(gaps: &[Gap]) -> String {
    let mut sums: BTreeMap<&str, (u64, bool)> = BTreeMap::new();
    for gap in gaps {
        let (packets, is_least) = sums.entry(gap.reason.name()).or_default();
        *packets = packets.saturating_add(gap.lost_max.unwrap_or(gap.lost_min));
        *is_least |= gap.lost_max.is_none();
    }
    let sum = |(reason, (packets, is_least)): (&&str, &(u64, bool))| {
        format!("{}{} {reason}", if *is_least { "at least " } else { "" }, number(*packets))
    };
    let sums: Vec<String> = sums.iter().map(sum).collect();
    let mut gaps = gaps.to_vec();
    gaps.sort_by_key(|gap| (gap.from_ns, gap.to_ns));
    format!("{} ({})", sums.join(", "), gaps_in_words(&gaps))
}

fn object(stores: &[Looked]) -> Value {
    let stores: Vec<Value> = stores.iter().map(store_object).collect();
    json!({ "stores": stores })
}

fn store_object(store: &Looked) -> Value {
    let Looked { path, listing, holds, runs } = store;
    let gap = |gap: &Gap, reason: &str| {
        json!({
            "from": iso(gap.from_ns),
            "to": iso(gap.to_ns),
            "reason": reason,
            "lost_min": gap.lost_min,
            "lost_max": gap.lost_max,
        })
    };
    let of_run = |run: &Run| {
        let missing = run.gaps.iter().map(|one| gap(one, one.reason.name()));
        let missing = missing.chain(run.elsewhere.iter().map(|one| gap(one, "elsewhere")));
        json!({
            "run_id": hex(&run.id),
            "from": run.span_ns.map(|span| iso(span.0)),
            "to": run.span_ns.map(|span| iso(span.1)),
            "files": run.files,
            "packets": run.packets,
            "left_out": run.left_out,
            "bytes": run.bytes,
            "link_types": run.link_types.iter().map(|one| one.name()).collect::<Vec<_>>(),
            "volumes_not_given": run.partial.map_or(0, |partial| partial.volumes - partial.given),
            "missing": missing.collect::<Vec<_>>(),
        })
    };
    let of_file = |file: &Listed| {
        let mut object = json!({
            "name": file.name.path().to_string_lossy(),
            "state": file.standing.name(),
            "bytes": file.bytes,
            "fault": file.contents.as_ref().err().map(ToString::to_string),
        });
        if let Ok(contents) = &file.contents {
            let more = json!({
                "run_id": hex(&contents.run_id),
                "number": contents.number,
                "link_type": contents.link_type.name(),
                "filter": contents.filter,
                "snap_len": contents.snap,
                "interfaces": contents.interfaces.iter().filter(|one| one.has_packets()).map(|one| &one.name).collect::<Vec<_>>(),
                "from": contents.span_ns().map(|span| iso(span.0)),
                "to": contents.span_ns().map(|span| iso(span.1)),
                "packets": contents.packets(),
                "left_out": contents.left_out(),
                "segments": contents.segments.len(),
                "unread": contents.unread,
                "fault": fault_of(contents),
                "held": store.is_held(contents),
            });
            if let (Value::Object(object), Value::Object(more)) = (&mut object, more) {
                object.extend(more);
            }
        }
        object
    };
    let holds: Vec<Value> = holds
        .iter()
        .flat_map(Holds::list)
        .map(|hold| json!({"id": hold.id, "from": iso(hold.from_ns), "to": iso(hold.to_ns), "note": hold.note}))
        .collect();
    json!({
        "path": path.to_string_lossy(),
        "volume": listing.volume.to_string(),
        "written": listing.is_written,
        "runs": runs.iter().map(of_run).collect::<Vec<_>>(),
        "files": listing.files.iter().map(of_file).collect::<Vec<_>>(),
        "holds": holds,
        "foreign": listing.foreign.count,
        "unread": listing.unread.iter().map(|(day, _)| day.to_string_lossy()).collect::<Vec<_>>(),
        "packets": runs.iter().map(|run| run.packets).sum::<u64>(),
        "bytes": listing.files.iter().map(|file| file.bytes).sum::<u64>(),
    })
}
