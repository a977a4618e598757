//! A folder that is a store: its files, what is gone from it and why, and its chain.

use super::lanes::{NumberGap, missing};
use super::report::{FileReport, Progress, Reason};
use super::{Looked, Meter, open_plain};
use crate::chain::{Chain, ChainFault, Digest, hash_of};
use crate::hold::Holds;
use crate::name::{FileName, is_day};
use crate::volume::{CHAIN_FILE, Foreign, Store, is_foreign};
use scope_fault::{Fault, Subject};
use scope_packet::GapReason;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::io;
use std::path::{Path, PathBuf};

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

/// A file of a store, as explanations of gaps need it.
#[derive(Clone, Debug)]
pub(super) struct Numbered {
    run: [u8; 4],
    number: u32,
    begin_ns: i64,
    span: (i64, i64),
    /// Retention could delete it.
    is_loose: bool,
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
    let names = match list(path, &mut report.foreign) {
        Ok(names) => names,
        Err(error) => {
            report.unread = Some(Fault::of_thing(path.to_string_lossy()).error(&error));
            return report;
        }
    };
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
    let mut numbered = Vec::new();
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
        if facts.is_some_and(|facts| !looked.is_new(&facts)) {
            continue;
        }
        let file =
            FileReport { path: at, store: Some(path.to_path_buf()), progress, ..FileReport::default() };
        let head = looked.file(file, &opened, threads, meter);
        let Some(file) = looked.files.last_mut() else { continue };
        if let Some(head) = &head {
            if !name.agrees(&head.run_id, head.link_type, head.number) {
                file.damage(0, "its head says another run, number or link type than its name");
            }
            report.of_other_volumes += u64::from(head.volume != store.id().0);
        }
        if let (Some(hash), Ok(opened)) = (below.to_str().and_then(|name| hashes.get(name)), &opened) {
            meter.expect(file.bytes);
            match hash_of(opened, |bytes| meter.read(bytes)) {
                Ok(found) if found == *hash => {}
                Ok(_) => file.damage(0, "its bytes aren't those that the chain has the hash of"),
                Err(error) => file.refuse(format!("reading failed: {error}"), None),
            }
        }
        let span = file.span.unwrap_or((name.first_ns(), name.first_ns()));
        numbered.push(Numbered {
            run: name.run(),
            number: name.number(),
            begin_ns: name.first_ns(),
            span,
            is_loose: progress == Progress::Closed && !is_held(&holds, span),
        });
    }
    if let (Some(chain), Some(found)) = (&chain, &mut report.chain) {
        let there: Vec<&FileReport> = looked.files[from..].iter().collect();
        hold_against(chain, found, path, &there, &numbered, report.is_written);
    }
    looked.stores.push(numbered);
    report
}

/// Whether a file of this span may not be deleted. Holds that can't be read hold everything.
fn is_held(holds: &Result<Holds, Fault>, (min_ns, max_ns): (i64, i64)) -> bool {
    holds.as_ref().map_or(true, |holds| holds.cover(min_ns, max_ns))
}

/// Names of its files, in the order of their begin; the rest is foreign.
fn list(path: &Path, foreign: &mut Foreign) -> io::Result<Vec<FileName>> {
    let mut names = Vec::new();
    for entry in path.read_dir()? {
        let entry = entry?;
        let name = PathBuf::from(entry.file_name());
        let is_folder = entry.file_type()?.is_dir();
        if is_folder && name.to_str().is_some_and(is_day) {
            for inner in entry.path().read_dir()? {
                let below = name.join(inner?.file_name());
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
    Ok(names)
}

fn read_chain(path: &Path, report: &mut StoreReport) -> Option<Chain> {
    let opened = match open_plain(&path.join(CHAIN_FILE)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
        opened => opened,
    };
    let chain = match opened.and_then(|file| Chain::read_file(&file)) {
        Ok(chain) => chain,
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

/// Holds the chain against the files that are there.
fn hold_against(
    chain: &Chain,
    found: &mut ChainReport,
    path: &Path,
    there: &[&FileReport],
    numbered: &[Numbered],
    is_written: bool,
) {
    let below = |file: &FileReport| Some(file.path.strip_prefix(path).ok()?.to_str()?.to_string());
    let names: HashMap<String, &FileReport> =
        there.iter().filter_map(|file| Some((below(file)?, *file))).collect();
    let oldest_end = numbered.iter().filter(|file| file.is_loose).map(|file| file.span.1).min();
    for link in chain.links.iter().filter(|link| !names.contains_key(&link.file.name)) {
        match oldest_end.is_some_and(|end| end < link.file.span.1) {
            true => found.faults.push(ChainProblem::Gone(link.file.name.clone())),
            false => found.deleted += 1,
        }
    }
    let chained: HashSet<&str> = chain.links.iter().map(|link| link.file.name.as_str()).collect();
    let runs: HashSet<[u8; 4]> = chain.links.iter().map(|link| first_four(&link.file.run_id)).collect();
    for (name, file) in &names {
        let is_of_chain = FileName::read(Path::new(name)).is_some_and(|name| runs.contains(&name.run()));
        let is_due = file.progress == Progress::Closed && !is_written;
        if is_due && is_of_chain && !chained.contains(name.as_str()) {
            found.faults.push(ChainProblem::Unknown(name.clone()));
        }
    }
}

/// What names have of a run's id.
fn first_four(&[a, b, c, d, ..]: &[u8; 16]) -> [u8; 4] {
    [a, b, c, d]
}

/// Why a gap in the numbers of packets is there, by the files of the stores that were looked at.
pub(super) fn explain(gap: &NumberGap, stores: &[Vec<Numbered>]) -> Reason {
    let from_ns = if gap.before.is_some() { gap.span.0 } else { i64::MIN };
    let run = first_four(&gap.id.run_id);
    for files in stores {
        let mut own: Vec<&Numbered> = files.iter().filter(|file| file.run == run).collect();
        own.sort_by_key(|file| file.number);
        let mut before: Option<&Numbered> = None;
        for file in own {
            let absent = before.map_or(0, |before| before.number) + 1 < file.number;
            let begin_ns = before.map_or(i64::MIN, |before| before.begin_ns);
            if absent && begin_ns <= gap.span.1 && from_ns <= file.begin_ns {
                let is_older = |other: &Numbered| other.is_loose && other.span.1 < file.begin_ns;
                return if files.iter().any(is_older) { Reason::Gone } else { Reason::Deleted };
            }
            before = Some(file);
        }
    }
    Reason::Gap(GapReason::Disk)
}

/// Whether all files of a store are of later runs than the gap: retention may have deleted what it had of this one.
pub(super) fn has_only_later(gap: &NumberGap, files: &[Numbered]) -> bool {
    let run = first_four(&gap.id.run_id);
    let is_later = |file: &Numbered| file.run != run && file.begin_ns > gap.span.1;
    !files.is_empty() && files.iter().all(is_later)
}

/// The gap as what is missing.
pub(super) fn missing_of(gap: &NumberGap, reason: Reason) -> super::Missing {
    let missing = missing(gap.id, reason, gap.packets, gap.span);
    let lost_min = if reason == Reason::Elsewhere { 0 } else { missing.lost_min };
    super::Missing { lost_min, ..missing }
}

#[cfg(test)]
mod tests {
    use super::super::lanes::LaneId;
    use super::*;

    fn numbered(number: u32, is_loose: bool) -> Numbered {
        let begin_ns = i64::from(number) * 100;
        Numbered { run: [1; 4], number, begin_ns, span: (begin_ns, begin_ns + 99), is_loose }
    }

    fn check(files: &[(u32, bool)], (before, span): (Option<usize>, (i64, i64)), expected: Reason) {
        let id = LaneId { run_id: [1; 16], lane: 0 };
        let gap = NumberGap { id, packets: 1, before, behind: 0, span };
        let files = files.iter().map(|&(number, is_loose)| numbered(number, is_loose)).collect();
        assert_eq!(explain(&gap, &[Vec::new(), files]), expected);
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
    fn a_store_that_has_only_later_runs_may_have_deleted_what_it_had() {
        let id = LaneId { run_id: [9; 16], lane: 0 };
        let gap = |end_ns| NumberGap { id, packets: 1, before: None, behind: 0, span: (0, end_ns) };
        let files = [numbered(3, true), numbered(4, true)];
        assert!(has_only_later(&gap(299), &files));
        assert!(!has_only_later(&gap(300), &files), "it has older ones");
        assert!(!has_only_later(&gap(299), &[]), "nothing says that it ever had any");
        let own = Numbered { run: [9; 4], ..numbered(5, true) };
        assert!(!has_only_later(&gap(299), &[own]));
    }
}
