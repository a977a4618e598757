//! A folder that is a store: its files, what is gone from it and why, and its chain.

use super::lanes::{LaneId, NumberGap, missing};
use super::report::{FileReport, Missing, Progress, Reason, note};
use super::{Looked, Meter, open_plain};
use crate::chain::{Chain, ChainFault, ChainedFile, Digest, hash_of};
use crate::hold::Holds;
use crate::name::{FileName, begin_of_run, day_ns, is_day};
use crate::unread::unread;
use crate::volume::{CHAIN_FILE, Foreign, Store, is_foreign};
use scope_fault::{Fault, Subject};
use scope_packet::GapReason;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::Metadata;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// What was found of a store besides its files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoreReport {
    /// Its folder.
    pub path: PathBuf,
    /// Whether a run writes it.
    pub is_written: bool,
    /// What is none of its own.
    pub foreign: Foreign,
    /// Files that were written into another volume: they were moved here, or the mark was made anew.
    pub of_other_volumes: u64,
    /// Its chain, if it has one.
    pub chain: Option<ChainReport>,
    /// Why it can't be looked at.
    pub unread: Option<Fault>,
    /// Of its folders of days, and its chain, those that can't be read.
    pub unread_parts: Vec<Fault>,
    /// What files had that the chain knows, and that no file behind them shows to be missing.
    pub missing: Vec<Missing>,
}

/// What was found of a chain.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChainReport {
    /// Its lines.
    pub lines: u64,
    /// Lines of files that retention has deleted.
    pub deleted: u64,
    /// Each run with the number of its lines and its head.
    pub heads: Vec<([u8; 16], u64, Digest)>,
    /// All heads that it knows.
    pub(super) all: Vec<Digest>,
    /// What is wrong with it.
    pub faults: Vec<ChainProblem>,
}

/// What is wrong with a chain.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChainProblem {
    /// Of its lines.
    #[error("{0}")]
    Line(ChainFault),
    /// A file in it is gone, and retention would have deleted others first.
    #[error("{0} is gone, and retention would have deleted older files first")]
    Gone(String),
    /// A closed file isn't in it, though its run has a chain.
    #[error("{0} isn't in it, and its run has a chain")]
    Unknown(String),
    /// It can't be read.
    #[error("it can't be read: {0}")]
    Unread(String),
}

/// What a store has, as explanations of gaps need it.
#[derive(Debug, Default)]
pub(super) struct Explaining {
    /// Its folder.
    pub(super) path: PathBuf,
    /// Its files.
    pub(super) files: Vec<Numbered>,
    /// Files that are gone, in the order of the chain.
    absent: Vec<Absent>,
    /// Spans of what can't be read.
    unread: Vec<(i64, i64)>,
}

/// A file of a store, as explanations of gaps need it.
#[derive(Clone, Debug)]
pub(super) struct Numbered {
    /// Number of its report.
    report: usize,
    /// Its path below the store's folder.
    name: PathBuf,
    run: [u8; 4],
    number: u32,
    begin_ns: i64,
    span: (i64, i64),
    /// When it was begun and last written, by the clock of its file system, ns.
    stored_ns: (i64, i64),
    /// Retention could delete it.
    is_loose: bool,
    /// It is closed, and what it had is there in part only: when that was, as far as it is known.
    reach: Option<(i64, i64)>,
    /// Its report states all that it had, as the chain knows it.
    is_stated: bool,
}

/// A file that the chain has and the folder hasn't.
#[derive(Clone, Debug)]
struct Absent {
    run_id: [u8; 16],
    number: u32,
    span: (i64, i64),
    packets: u64,
    /// [`Reason::Deleted`] or [`Reason::Gone`].
    reason: Reason,
}

/// Looks at a store: appends its files to what was looked at.
pub(super) fn look(path: &Path, threads: usize, meter: &Meter, looked: &mut Looked) -> StoreReport {
    let mut report = StoreReport { path: path.to_path_buf(), ..StoreReport::default() };
    let store = match Store::look(path) {
        Ok(store) => store,
        Err(fault) => {
            report.unread = Some(fault.of_subject(Subject::Whole));
            return report;
        }
    };
    looked.given.insert(store.id().0, looked.stores.len());
    report.is_written = store.is_written().unwrap_or(false);
    let holds = store.holds();
    let (names, unread_days) = match list(path, &mut report.foreign) {
        Ok(found) => found,
        Err(error) => {
            report.unread = Some(unread(path, &error));
            return report;
        }
    };
    let mut explaining = Explaining { path: path.to_path_buf(), ..Explaining::default() };
    for (day, error) in &unread_days {
        report.unread_parts.push(unread(&path.join(day), error));
        explaining.unread.extend(day.to_str().and_then(day_ns));
    }
    let chain = read_chain(path, &mut report);
    let hashes: HashMap<&str, Digest> = chain
        .iter()
        .flat_map(|chain| &chain.links)
        .map(|link| (link.file.name.as_str(), link.file.hash))
        .collect();
    for name in &names {
        let at = path.join(name.path());
        meter.expect(at.metadata().map_or(0, |facts| facts.len()));
    }
    let from = looked.files.len();
    for name in &names {
        let below = name.path();
        let at = path.join(&below);
        let progress = match (name.is_growing(), report.is_written) {
            (false, _) => Progress::Closed,
            (true, true) => Progress::Growing,
            (true, false) => Progress::Left,
        };
        let opened = match open_plain(&at) {
            // Meanwhile it was deleted, or got its name.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            opened => opened,
        };
        let facts = opened.as_ref().ok().and_then(|opened| opened.metadata().ok());
        if facts.as_ref().is_some_and(|facts| !looked.is_new(facts)) {
            continue;
        }
        let file =
            FileReport { path: at, store: Some(path.to_path_buf()), progress, ..FileReport::default() };
        let head = looked.file(file, &opened, threads, meter);
        let Some(file) = looked.files.last_mut() else { continue };
        if file.unread.is_some() {
            explaining.unread.push((name.first_ns(), name.first_ns()));
        }
        if let Some((head, is_known)) = &head {
            let number = if *is_known { head.number } else { name.number() };
            if !name.agrees(&head.run_id, head.link_type, number) {
                let what = if *is_known { "its head says" } else { "its segments are of" };
                file.damage(0, format!("{what} another run, number or link type than its name"));
            }
            report.of_other_volumes += u64::from(*is_known && head.volume != store.id().0);
        }
        if let (Some(hash), Ok(opened)) = (below.to_str().and_then(|name| hashes.get(name)), &opened) {
            meter.expect(file.bytes);
            match hash_of(opened, |bytes| meter.read(bytes)) {
                Ok(found) if found == *hash => {}
                Ok(_) => file.damage(0, "its bytes aren't those that the chain has the hash of"),
                Err(error) => file.refuse(format!("reading failed: {error}"), None),
            }
        }
        let is_cut = || file.open_slots > 0 || file.damages.iter().any(|damage| damage.is_cut);
        let is_partly = progress == Progress::Closed && file.unread.is_none() && (head.is_none() || is_cut());
        let mut is_stated = false;
        if is_partly && head.is_none() && file.span.is_none() {
            let link = chain.iter().flat_map(|chain| &chain.links);
            let link = link.map(|link| &link.file).find(|file| Some(file.name.as_str()) == below.to_str());
            is_stated = link.is_some();
            file.missing = vec![Missing {
                from_ns: link.map_or(name.first_ns(), |file| file.span.0),
                reaches_back: false,
                to_ns: link.map(|file| file.span.1),
                reason: Reason::Gap(GapReason::Unreadable),
                lost_min: link.map_or(0, |file| file.packets),
                lost_max: link.map(|file| file.packets),
                of: format!("run {}", hex(&name.run())),
            }];
        }
        let span = file.span.unwrap_or((name.first_ns(), name.first_ns()));
        explaining.files.push(Numbered {
            report: looked.files.len() - 1,
            name: below,
            run: name.run(),
            number: name.number(),
            begin_ns: name.first_ns(),
            span,
            stored_ns: facts.as_ref().map_or((i64::MIN, i64::MAX), stored_ns),
            is_loose: progress == Progress::Closed && !is_held(&holds, span),
            reach: is_partly.then_some((span.0, i64::MAX)),
            is_stated,
        });
    }
    let begins: Vec<_> = explaining.files.iter().map(|file| (file.run, file.number, file.begin_ns)).collect();
    for file in &mut explaining.files {
        let behind = begins.iter().filter(|(run, number, _)| *run == file.run && *number > file.number);
        let next_ns = behind.min_by_key(|(_, number, _)| number).map(|(_, _, begin_ns)| *begin_ns);
        if let (Some((from_ns, to_ns)), Some(next_ns)) = (&mut file.reach, next_ns) {
            *to_ns = next_ns.max(*from_ns);
        }
    }
    if let (Some(chain), Some(found)) = (&chain, &mut report.chain) {
        let there: Vec<&FileReport> = looked.files[from..].iter().collect();
        explaining.absent = hold_against(chain, found, path, &there, &explaining.files, report.is_written);
    }
    looked.stores.push(explaining);
    report
}

/// Whether a file of this span may not be deleted. Holds that can't be read hold everything.
fn is_held(holds: &Result<Holds, Fault>, (min_ns, max_ns): (i64, i64)) -> bool {
    holds.as_ref().map_or(true, |holds| holds.cover(min_ns, max_ns))
}

/// When a file was begun and last written, ns. A copy that keeps times is younger than its bytes: of it only the
/// second is known.
fn stored_ns(facts: &Metadata) -> (i64, i64) {
    let ns = |time: SystemTime| {
        time.duration_since(UNIX_EPOCH)
            .map_or(i64::MIN, |since| since.as_nanos().min(i64::MAX as u128) as i64)
    };
    let written_ns = facts.modified().map_or(i64::MAX, ns);
    (facts.created().map_or(written_ns, ns).min(written_ns), written_ns)
}

/// When a run began its first file that is there; without any the end of time.
fn begun_ns<'a>(run: [u8; 4], files: impl Iterator<Item = &'a Numbered>) -> i64 {
    files.filter(|file| file.run == run).map(|file| file.stored_ns.0).min().unwrap_or(i64::MAX)
}

/// Folders of days that can't be read, by their names.
type UnreadDays = Vec<(PathBuf, io::Error)>;

/// Names of its files, in the order of their begin, and folders of days that can't be read. The rest is
/// foreign.
fn list(path: &Path, foreign: &mut Foreign) -> io::Result<(Vec<FileName>, UnreadDays)> {
    let (mut names, mut unread) = (Vec::new(), Vec::new());
    for entry in path.read_dir()? {
        let entry = entry?;
        let name = PathBuf::from(entry.file_name());
        let is_folder = entry.file_type()?.is_dir();
        if is_folder && name.to_str().is_some_and(is_day) {
            let inner = entry.path().read_dir().and_then(|inner| inner.collect::<io::Result<Vec<_>>>());
            let inner = inner.unwrap_or_else(|error| {
                unread.push((name.clone(), error));
                Vec::new()
            });
            for below in inner.iter().map(|inner| name.join(inner.file_name())) {
                match FileName::read(&below) {
                    Some(own) => names.push(own),
                    None => foreign.add(&below),
                }
            }
        } else if is_folder || is_foreign(&name) {
            foreign.add(&name);
        }
    }
    names.sort_by_key(|name| (name.first_ns(), name.run(), name.number()));
    Ok((names, unread))
}

fn read_chain(path: &Path, report: &mut StoreReport) -> Option<Chain> {
    let opened = match open_plain(&path.join(CHAIN_FILE)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
        opened => opened,
    };
    let chain = match opened.and_then(|file| Chain::read_file(&file)) {
        Ok(chain) => chain,
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            report.unread_parts.push(unread(&path.join(CHAIN_FILE), &error));
            return None;
        }
        Err(error) => {
            let faults = vec![ChainProblem::Unread(error.to_string())];
            report.chain = Some(ChainReport { faults, ..ChainReport::default() });
            return None;
        }
    };
    let mut heads: BTreeMap<[u8; 16], (u64, Digest)> = BTreeMap::new();
    for link in &chain.links {
        let entry = heads.entry(link.file.run_id).or_insert((0, link.head));
        *entry = (entry.0 + 1, link.head);
    }
    // While a run writes, its last line may be on its way.
    let is_on_its_way = |fault: &ChainFault| report.is_written && matches!(fault, ChainFault::Cut(_));
    let faults = chain.faults.iter().filter(|fault| !is_on_its_way(fault)).copied();
    report.chain = Some(ChainReport {
        lines: chain.links.len() as u64,
        deleted: 0,
        heads: heads.into_iter().map(|(run, (lines, head))| (run, lines, head)).collect(),
        all: chain.heads().collect(),
        faults: faults.map(ChainProblem::Line).collect(),
    });
    Some(chain)
}

/// Holds the chain against the files that are there. Returns those that are gone.
///
/// Retention deletes what ends first. So a file that is gone while one is there that ended before it was taken
/// by somebody else; but only if that one was there already: one whose line stands behind may have come
/// later, with a clock that was set back.
fn hold_against(
    chain: &Chain,
    found: &mut ChainReport,
    path: &Path,
    there: &[&FileReport],
    numbered: &[Numbered],
    is_written: bool,
) -> Vec<Absent> {
    let below = |file: &FileReport| Some(file.path.strip_prefix(path).ok()?.to_str()?.to_string());
    let names: HashMap<String, &FileReport> =
        there.iter().filter_map(|file| Some((below(file)?, *file))).collect();
    let chained: HashSet<&str> = chain.links.iter().map(|link| link.file.name.as_str()).collect();
    let loose = numbered.iter().filter(|file| file.is_loose);
    let ends: HashMap<&str, i64> =
        loose.filter_map(|file| Some((file.name.to_str()?, file.span.1))).collect();
    let unchained = ends.iter().filter(|(name, _)| !chained.contains(*name));
    let mut oldest_end = unchained.map(|(_, &end)| end).min().unwrap_or(i64::MAX);
    let mut absent = Vec::new();
    for ChainedFile { run_id, name, span, packets, .. } in chain.links.iter().map(|link| &link.file) {
        if names.contains_key(name) {
            oldest_end = oldest_end.min(ends.get(name.as_str()).copied().unwrap_or(i64::MAX));
            continue;
        }
        let reason = if oldest_end < span.1 { Reason::Gone } else { Reason::Deleted };
        match reason {
            Reason::Gone => found.faults.push(ChainProblem::Gone(name.clone())),
            _ => found.deleted += 1,
        }
        if let Some(number) = FileName::read(Path::new(name)).map(|name| name.number()) {
            absent.push(Absent { run_id: *run_id, number, span: *span, packets: *packets, reason });
        }
    }
    let runs: HashSet<[u8; 4]> = chain.links.iter().map(|link| begin_of_run(&link.file.run_id)).collect();
    for (name, file) in &names {
        let is_of_chain = FileName::read(Path::new(name)).is_some_and(|name| runs.contains(&name.run()));
        let is_due = file.progress == Progress::Closed && !is_written;
        if is_due && is_of_chain && !chained.contains(name.as_str()) {
            found.faults.push(ChainProblem::Unknown(name.clone()));
        }
    }
    absent
}

fn hex(id: &[u8]) -> String {
    id.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Of gaps between the same two files, when what is missing ended at the earliest: behind all that stands in
/// front of it in any lane.
pub(super) struct Ends(HashMap<([u8; 16], Option<usize>, usize), i64>);

impl Ends {
    /// Of all gaps.
    pub(super) fn new(gaps: &[NumberGap]) -> Ends {
        let mut ends = Ends(HashMap::new());
        for gap in gaps {
            let ended_ns = ends.of(gap).max(Ends::of_lane(gap));
            ends.0.insert((gap.id.run_id, gap.before, gap.behind), ended_ns);
        }
        ends
    }

    fn of_lane(gap: &NumberGap) -> i64 {
        if gap.before.is_some() { gap.span.0 } else { gap.span.1.saturating_sub(1) }
    }

    fn of(&self, gap: &NumberGap) -> i64 {
        self.0.get(&(gap.id.run_id, gap.before, gap.behind)).copied().unwrap_or(i64::MIN)
    }
}

/// Why a gap in the numbers of packets is there, by the files of the stores that were looked at; and when it
/// began, where that is known from files that are gone.
pub(super) fn explain(gap: &NumberGap, ends: &Ends, stores: &[Explaining]) -> (Reason, Option<i64>) {
    let from_ns = if gap.before.is_some() { gap.span.0 } else { i64::MIN };
    let run = begin_of_run(&gap.id.run_id);
    let touches = |&(begin_ns, end_ns): &(i64, i64)| begin_ns <= gap.span.1 && from_ns <= end_ns;
    if stores.iter().flat_map(|store| &store.unread).any(touches) {
        return (Reason::Unread, None);
    }
    for Explaining { files, absent, .. } in stores {
        let mut own: Vec<&Numbered> = files.iter().filter(|file| file.run == run).collect();
        own.sort_by_key(|file| file.number);
        let between = between(gap, &own);
        let lies = |gone: &&Absent| {
            gone.run_id == gap.id.run_id
                && between
                    .map_or(touches(&gone.span), |(after, until)| (after + 1..until).contains(&gone.number))
        };
        let gone = || absent.iter().filter(lies);
        if let Some(begin_ns) = gone().map(|gone| gone.span.0).min() {
            let by_retention = gone().all(|gone| gone.reason == Reason::Deleted);
            return (if by_retention { Reason::Deleted } else { Reason::Gone }, Some(begin_ns));
        }
        let begun_ns = begun_ns(run, own.iter().copied());
        let ended_ns = ends.of(gap);
        let mut before: Option<&Numbered> = None;
        for file in own {
            let number = before.map_or(0, |before| before.number);
            let begin_ns = before.map_or(i64::MIN, |before| before.begin_ns);
            let lies = match between {
                Some((after, until)) => number.max(after) + 1 < file.number.min(until),
                None => begin_ns <= gap.span.1 && from_ns <= file.begin_ns,
            };
            if number + 1 < file.number && lies {
                // Retention would have taken it first: it was there, and ended before what is gone. Times of
                // packets don't tell what came first: captures are imported that are older than what is there.
                let is_older = |other: &Numbered| {
                    let came_before = match other.run == run {
                        true => other.number < file.number,
                        false => other.stored_ns.1 < begun_ns,
                    };
                    other.is_loose && came_before && other.span.1 <= ended_ns.min(file.begin_ns)
                };
                return (if files.iter().any(is_older) { Reason::Gone } else { Reason::Deleted }, None);
            }
            before = Some(file);
        }
    }
    (Reason::Gap(GapReason::Disk), None)
}

/// The file that had what a gap lacks, where that is damaged: the number of its report, when it began, and
/// whether its report says so already.
pub(super) fn damaged(gap: &NumberGap, stores: &[Explaining]) -> Option<(usize, i64, bool)> {
    let run = begin_of_run(&gap.id.run_id);
    let from_ns = if gap.before.is_some() { gap.span.0 } else { i64::MIN };
    stores.iter().find_map(|store| {
        let own: Vec<&Numbered> = store.files.iter().filter(|file| file.run == run).collect();
        let around = between(gap, &own);
        let lies = |file: &&&Numbered| match (around, file.reach) {
            (Some((after, until)), _) if after == until => file.number == after,
            (Some((after, until)), _) => (after..until).contains(&file.number),
            (None, Some((begin_ns, end_ns))) => begin_ns <= gap.span.1 && from_ns <= end_ns,
            (None, None) => false,
        };
        // Where one of them is gone, that may have had it.
        let there = own.iter().filter(lies).count() as u64;
        let is_whole = around.is_none_or(|(after, until)| {
            after == until || u64::from(until.saturating_sub(after.max(1))) == there
        });
        let file = own.iter().filter(lies).find(|file| is_whole && file.reach.is_some())?;
        Some((file.report, file.begin_ns, file.is_stated))
    })
}

/// Damaged files of which gaps in the numbers of packets show all that is missing, by the numbers of their
/// reports: each lane of their run, whose last segments lie in the files of `lasts`, goes on behind them.
pub(super) fn shown(lasts: &[(LaneId, usize)], stores: &[Explaining]) -> Vec<usize> {
    let mut shown = Vec::new();
    for store in stores {
        let numbers: HashMap<usize, u32> =
            store.files.iter().map(|file| (file.report, file.number)).collect();
        for file in store.files.iter().filter(|file| file.reach.is_some()) {
            let mut own = lasts.iter().filter(|(id, _)| begin_of_run(&id.run_id) == file.run).peekable();
            let goes_on =
                |(_, last): &(LaneId, usize)| numbers.get(last).is_some_and(|&last| last > file.number);
            if own.peek().is_some() && own.all(goes_on) {
                shown.push(file.report);
            }
        }
    }
    shown
}

/// The numbers of the files around a gap, if both are of this store; 0: none is in front of it. Where they
/// are known they count: times may step back.
fn between(gap: &NumberGap, own: &[&Numbered]) -> Option<(u32, u32)> {
    let number = |report: usize| own.iter().find(|file| file.report == report).map(|file| file.number);
    let after = gap.before.map_or(Some(0), number)?;
    number(gap.behind).map(|until| (after, until))
}

/// What files had that are gone, where neither a later file of their run nor a gap shows it. What retention
/// deleted of a run is one row.
pub(super) fn missing_at_ends(store: &Explaining, gaps: &[NumberGap]) -> Vec<Missing> {
    let mut rows: Vec<Missing> = Vec::new();
    for Absent { run_id, number, span, packets, reason } in &store.absent {
        let is_of_run = |file: &&Numbered| file.run == begin_of_run(run_id);
        let has_later = store.files.iter().filter(is_of_run).any(|file| file.number > *number);
        let is_shown = |gap: &NumberGap| {
            gap.id.run_id == *run_id && span.0 <= gap.span.1 && (gap.before.is_none() || gap.span.0 <= span.1)
        };
        if has_later || gaps.iter().any(is_shown) {
            continue;
        }
        let of = format!("run {}", hex(&run_id[..4]));
        let row = Missing {
            from_ns: span.0,
            reaches_back: false,
            to_ns: Some(span.1),
            reason: *reason,
            lost_min: *packets,
            lost_max: Some(*packets),
            of,
        };
        match rows
            .last_mut()
            .filter(|last| *reason == Reason::Deleted && (last.reason, &last.of) == (row.reason, &row.of))
        {
            Some(last) => last.join(&row),
            None => drop(note(&mut rows, row)),
        }
    }
    rows
}

/// Whether all files of a store are of later runs than the gap, which is of a run that these `stores` have:
/// retention may have deleted what it had of this one.
pub(super) fn has_only_later(gap: &NumberGap, files: &[Numbered], stores: &[Explaining]) -> bool {
    let run = begin_of_run(&gap.id.run_id);
    let begun_ns = begun_ns(run, stores.iter().flat_map(|store| &store.files));
    let is_later =
        |file: &Numbered| file.run != run && (file.begin_ns > gap.span.1 || file.stored_ns.0 > begun_ns);
    !files.is_empty() && files.iter().all(is_later)
}

/// The gap as what is missing; `begin_ns`: when it began, if that is known though nothing is in front of it.
pub(super) fn missing_of(gap: &NumberGap, reason: Reason, begin_ns: Option<i64>) -> Missing {
    let missing = missing(gap.id, reason, gap.packets, gap.span);
    let lost_min = if reason == Reason::Elsewhere { 0 } else { missing.lost_min };
    let is_begin = gap.before.is_none();
    let from_ns =
        begin_ns.filter(|_| is_begin).map_or(missing.from_ns, |begin_ns| begin_ns.min(missing.from_ns));
    Missing { from_ns, reaches_back: is_begin && begin_ns.is_none(), lost_min, ..missing }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chain::Link;
    use scope_packet::LinkType;

    fn numbered(number: u32, is_loose: bool) -> Numbered {
        let begin_ns = i64::from(number) * 100;
        let (report, span) = (usize::MAX, (begin_ns, begin_ns + 99));
        let name = PathBuf::new();
        Numbered {
            report,
            name,
            run: [1; 4],
            number,
            begin_ns,
            span,
            stored_ns: span,
            is_loose,
            reach: None,
            is_stated: false,
        }
    }

    fn check(files: &[(u32, bool)], (before, span): (Option<usize>, (i64, i64)), expected: Reason) {
        let id = LaneId { run_id: [1; 16], lane: 0 };
        let gap = NumberGap { id, packets: 1, before, behind: 0, span, is_cut: false };
        let files = files.iter().map(|&(number, is_loose)| numbered(number, is_loose)).collect();
        let store = Explaining { files, ..Explaining::default() };
        assert_eq!(explain(&gap, &Ends::new(&[gap]), &[Explaining::default(), store]), (expected, None));
    }

    #[test]
    fn a_gap_is_explained_by_the_files_that_are_gone_around_it() {
        let disk = Reason::Gap(GapReason::Disk);
        // The oldest are gone, one after the other.
        check(&[(3, true), (4, true)], (None, (300, 300)), Reason::Deleted);
        check(&[(1, true), (2, true)], (None, (100, 100)), disk);
        // Inside a file, and between two that follow each other.
        check(&[(3, true), (4, true)], (Some(0), (350, 360)), disk);
        check(&[(3, true), (4, true)], (Some(0), (399, 400)), disk);
        // One in the middle is gone: by retention only if what is older is held.
        check(&[(1, true), (3, true)], (Some(0), (199, 300)), Reason::Gone);
        check(&[(1, false), (3, true)], (Some(0), (199, 300)), Reason::Deleted);
        check(&[], (Some(0), (1, 2)), disk);
    }

    #[test]
    fn an_older_capture_that_came_later_proves_nothing_against_retention_and_one_that_came_before_does() {
        let id = |lane| LaneId { run_id: [1; 16], lane };
        let gap = |lane, before, span| NumberGap {
            id: id(lane),
            packets: 1,
            before,
            behind: 4,
            span,
            is_cut: false,
        };
        let of = |run: u8, number, span: (i64, i64), stored_ns| Numbered {
            run: [run; 4],
            report: number as usize,
            begin_ns: span.0,
            span,
            stored_ns,
            ..numbered(number, true)
        };
        let check = |others: &[Numbered], gaps: &[NumberGap], expected: Reason| {
            let own = [of(1, 4, (400, 499), (1000, 1100))];
            let store = Explaining { files: [&own, others].concat(), ..Explaining::default() };
            assert_eq!(explain(&gaps[0], &Ends::new(gaps), &[store]), (expected, None));
        };
        let begin = gap(0, None, (400, 400));
        check(&[of(2, 1, (100, 200), (900, 990))], &[begin], Reason::Gone);
        check(&[of(2, 1, (100, 200), (1100, 1200))], &[begin], Reason::Deleted);
        // Its run died, and it was closed while this one ran.
        check(&[of(2, 1, (100, 200), (900, 1050))], &[begin], Reason::Deleted);
        check(&[of(2, 1, (500, 600), (900, 990))], &[begin], Reason::Deleted);
        // Of one run: what is gone ended behind the last packet in front of it, of all lanes.
        let before = of(1, 2, (200, 299), (950, 960));
        let (late, early) = (gap(0, Some(2), (299, 400)), gap(1, Some(2), (250, 410)));
        check(std::slice::from_ref(&before), &[early, late], Reason::Gone);
        check(std::slice::from_ref(&before), &[early], Reason::Deleted);
    }

    #[test]
    fn a_gap_may_be_in_what_cant_be_read() {
        let id = LaneId { run_id: [1; 16], lane: 0 };
        let check = |unread, span, expected| {
            let gap = NumberGap { id, packets: 1, before: Some(0), behind: 0, span, is_cut: false };
            let files = vec![numbered(1, true)];
            let store = Explaining { files, unread: vec![unread], ..Explaining::default() };
            assert_eq!(explain(&gap, &Ends::new(&[gap]), &[store]), (expected, None));
        };
        check((150, 250), (240, 260), Reason::Unread);
        check((245, 245), (240, 260), Reason::Unread);
        check((150, 239), (240, 260), Reason::Gap(GapReason::Disk));
        check((261, 300), (240, 260), Reason::Gap(GapReason::Disk));
    }

    #[test]
    fn where_times_step_back_numbers_say_which_file_is_gone() {
        // The clock was set back while file 2 grew; then 3, which ended first, was deleted.
        let at = |number, begin_ns, span| Numbered {
            report: number as usize,
            begin_ns,
            span,
            ..numbered(number, true)
        };
        let files = vec![at(1, 9000, (9000, 9099)), at(2, 9100, (50, 9190)), at(4, 200, (200, 299))];
        let store = Explaining { files, ..Explaining::default() };
        let id = LaneId { run_id: [1; 16], lane: 0 };
        let gap =
            |before, behind| NumberGap { id, packets: 1, before, behind, span: (90, 200), is_cut: false };
        let gap = gap(Some(2), 4);
        assert_eq!(explain(&gap, &Ends::new(&[gap]), &[store]), (Reason::Deleted, None));
    }

    #[test]
    fn a_file_that_came_later_with_a_clock_that_was_set_back_proves_nothing_against_retention() {
        // Runs in the order in which they wrote a file each, by the begin of that; one of the files is gone.
        let check = |begins: &[i64], gone: usize, expected: Reason| {
            let name =
                |run: usize| FileName::growing(begins[run], &[run as u8; 16], LinkType::ETHERNET, 1).closed();
            let text: String = (0..begins.len())
                .map(|run| {
                    let name = name(run).path().to_string_lossy().into_owned();
                    let (run_id, span) = ([run as u8; 16], (begins[run], begins[run] + 99));
                    let file = ChainedFile { run_id, name, span, packets: 1, bytes: 1, hash: Digest::START };
                    Link::new(file, Digest::START).line()
                })
                .collect();
            let store = Path::new("store");
            let left = || (0..begins.len()).filter(|&run| run != gone);
            let there: Vec<FileReport> = left()
                .map(|run| FileReport { path: store.join(name(run).path()), ..FileReport::default() })
                .collect();
            let files = left().map(|run| Numbered {
                name: name(run).path(),
                span: (begins[run], begins[run] + 99),
                ..numbered(1, true)
            });
            let (there, files): (Vec<_>, Vec<_>) = (there.iter().collect(), files.collect());
            let chain = Chain::read(text.as_bytes());
            let mut found = ChainReport::default();
            let absent = hold_against(&chain, &mut found, store, &there, &files, false);
            assert_eq!(absent.iter().map(|absent| absent.reason).collect::<Vec<_>>(), [expected]);
            assert_eq!(found.faults.len(), usize::from(expected == Reason::Gone));
        };
        check(&[100, 200, 300], 0, Reason::Deleted);
        check(&[100, 200, 300], 1, Reason::Gone);
        check(&[500, 100, 200], 0, Reason::Deleted); // it was the oldest when it was deleted
        check(&[500, 100, 200], 2, Reason::Gone); // 100 stood there
        check(&[500, 100, 200], 1, Reason::Deleted);
    }

    #[test]
    fn a_store_that_has_only_later_runs_may_have_deleted_what_it_had() {
        let id = LaneId { run_id: [9; 16], lane: 0 };
        let gap =
            |end_ns| NumberGap { id, packets: 1, before: None, behind: 0, span: (0, end_ns), is_cut: false };
        let files = [numbered(3, true), numbered(4, true)];
        assert!(has_only_later(&gap(299), &files, &[]));
        assert!(!has_only_later(&gap(300), &files, &[]), "it has older ones");
        assert!(!has_only_later(&gap(299), &[], &[]), "nothing says that it ever had any");
        let own = Numbered { run: [9; 4], ..numbered(5, true) };
        assert!(!has_only_later(&gap(299), &[own], &[]));
        // What is older by its times came later all the same.
        let run = Numbered { run: [9; 4], stored_ns: (50, 90), ..numbered(5, true) };
        let stores = [Explaining { files: vec![run], ..Explaining::default() }];
        assert!(has_only_later(&gap(300), &files, &stores));
    }
}
