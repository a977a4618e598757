//! Recovery: closes the files that a dead run left growing.
//!
//! ```text
//! for each file, the newest first
//!   head ─► unreadable? it stays as it is, and that is reported
//!   slot after slot ─► what it proves (crate::salvage)
//!       whole: stays        beginning: closed in its place        nothing, or kept by a newer file: padding
//!   index behind the last slot that stays ─► truncate ─► sync
//! for each file, the oldest first
//!   rename ─► names synced
//! ```
//! The work goes in steps. A stop between two of them, or in the middle of one, loses nothing: what a slot
//! proves is the same when it is looked at again, until the file has its name. A file of which nothing is
//! proven is removed, and so is one of which nothing was ever written.
//!
//! A segment that was open when its file ended has a slot in the next one, too. What a newer file has of it
//! is safe before an older one is walked, so the older one leaves it out if that is as much. Files get their
//! names in their order, as a run gives them: after a stop, both files are found growing, or the older one is
//! done.

use crate::closing::{self, Holds};
use crate::disk::{self, Act, Begun, Bytes, Disk, FileNumber, PAGE_BYTES, Pages, Standing};
use crate::head::{HEAD_BYTES_MAX, Head, HeadError};
use crate::index::Entry;
use crate::salvage::{self, Cut, Proof};
use crate::slot;
use scope_packet::segment::{Foot, SegmentId};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Most heads are shorter.
const HEAD_BYTES_FIRST: usize = 64 << 10;
/// One wait for the disk; it is waited for again.
const WAIT: Duration = Duration::from_secs(1);

/// What became of a file.
#[derive(Debug)]
pub enum Outcome {
    /// It is whole, under this name.
    Closed(PathBuf),
    /// Nothing in it was proven: it was removed.
    Removed,
    /// Its head doesn't say what is in it: it stays as it is.
    Unreadable(HeadError),
    /// The disk failed: it stays as far as it is, and may be tried again.
    Failed(io::Error),
}

/// What recovery did with one file.
#[derive(Debug)]
pub struct Recovered {
    /// Its growing name.
    pub name: PathBuf,
    /// The run that wrote it; zeros where its head can't be read.
    pub run_id: [u8; 16],
    /// What became of it.
    pub outcome: Outcome,
    /// What it holds now.
    pub holds: Holds,
    /// What was cut off.
    pub cut: Cut,
    /// Segments that ended with a flush, since their closing was never written or is torn.
    pub beginnings: u64,
    /// Segments that a newer file has as well, and that were left out here.
    pub moved: u64,
}

/// How far recovery is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Files in all.
    pub files: u64,
    /// Files that are done.
    pub files_done: u64,
    /// Their bytes in all.
    pub bytes: u64,
    /// Bytes that were looked at.
    pub bytes_done: u64,
}

/// The work on all files.
pub struct Recovery {
    /// The next one last.
    files: Vec<Standing>,
    walk: Option<Walk>,
    /// Files that lack only their names, the oldest last.
    ended: Vec<Recovered>,
    progress: Progress,
    /// Packets of each segment that the files hold which have come to their end.
    kept: BTreeMap<SegmentId, u32>,
}

/// The work on one file.
struct Walk {
    report: Recovered,
    file: FileNumber,
    head: Head,
    head_bytes: u64,
    slots: usize,
    next: usize,
    entries: Vec<Entry>,
    /// Slots that become padding, if something behind them stays.
    empty: Vec<usize>,
}

impl Recovery {
    /// `growing`: files with growing names, whose runs are dead. Others are passed over.
    pub fn new(growing: Vec<Standing>) -> Recovery {
        let mut files = growing;
        files.retain(|file| closing::whole(&file.name).is_some());
        files.sort_by(|a, b| a.name.cmp(&b.name));
        let bytes = files.iter().map(|file| file.len).sum();
        let progress = Progress { files: files.len() as u64, bytes, ..Progress::default() };
        Recovery { files, walk: None, ended: Vec::new(), progress, kept: BTreeMap::new() }
    }

    /// How far it is.
    pub fn progress(&self) -> Progress {
        self.progress
    }

    /// Whether all is done.
    pub fn is_over(&self) -> bool {
        self.files.is_empty() && self.walk.is_none() && self.ended.is_empty()
    }

    /// One step: a file's head, a slot, a file's end, or a name. It waits for the disk, which nobody else
    /// uses. Returns the report of a file that is done.
    pub fn step(&mut self, disk: &mut dyn Disk) -> Option<Recovered> {
        let done = match self.walk.take() {
            Some(walk) => self.go_on(disk, walk),
            None => match self.files.pop() {
                Some(standing) => self.begin(disk, &standing),
                None => self.ended.pop().map(|report| report.give_name(disk)),
            },
        };
        if done.is_some() {
            self.progress.files_done += 1;
            if self.is_over() {
                self.progress.bytes_done = self.progress.bytes;
            }
        }
        done
    }

    fn begin(&mut self, disk: &mut dyn Disk, standing: &Standing) -> Option<Recovered> {
        let mut report = Recovered::nothing_yet(&standing.name);
        if standing.len == 0 {
            // Not even its head was written: a disk that failed leaves such files at each try.
            let folder = folder_of(&standing.name);
            let removed = disk.remove(&standing.name).and_then(|()| disk.sync_names(folder));
            report.outcome = removed.map_or_else(Outcome::Failed, |()| Outcome::Removed);
            return Some(report);
        }
        match open(disk, standing) {
            Ok(opened) => {
                report.run_id = opened.0.run_id;
                self.walk = Some(Walk::begin(report, standing, opened));
                None
            }
            Err(outcome) => {
                report.outcome = outcome;
                Some(report)
            }
        }
    }

    fn go_on(&mut self, disk: &mut dyn Disk, mut walk: Walk) -> Option<Recovered> {
        if walk.next < walk.slots {
            let bytes_done = self.progress.bytes_done + u64::from(walk.head.segment_bytes);
            if let Err(error) = walk.slot(disk, &self.kept) {
                return Some(walk.failed(disk, error));
            }
            self.progress.bytes_done = bytes_done.min(self.progress.bytes);
            self.walk = Some(walk);
            return None;
        }
        match walk.end(disk) {
            Ok(()) if walk.entries.is_empty() => Some(walk.report),
            Ok(()) => {
                self.kept.extend(walk.entries.iter().map(|entry| (entry.foot.id(), entry.foot.packets)));
                self.ended.push(walk.report);
                None
            }
            Err(error) => Some(walk.failed(disk, error)),
        }
    }
}

impl Walk {
    fn begin(
        report: Recovered,
        standing: &Standing,
        (head, head_bytes, file): (Head, u64, FileNumber),
    ) -> Walk {
        let behind = standing.len.saturating_sub(head_bytes);
        let slots = behind.div_ceil(u64::from(head.segment_bytes)) as usize;
        Walk { report, file, head, head_bytes, slots, next: 0, entries: Vec::new(), empty: Vec::new() }
    }

    /// Looks at the next slot, and closes it in its place where that is needed.
    fn slot(&mut self, disk: &mut dyn Disk, elsewhere: &BTreeMap<SegmentId, u32>) -> io::Result<()> {
        let index = self.next;
        let segment_bytes = self.head.segment_bytes as usize;
        let mut pages = Pages::zeroed(segment_bytes / PAGE_BYTES);
        let bytes = pages.as_mut_slice();
        disk::read_all(disk, &self.report.name, self.offset(index), bytes)?;
        let findings = salvage::look(bytes);
        let is_ours = |foot: &Foot| foot.run_id == self.head.run_id && foot.link_type == self.head.link_type;
        let is_moved =
            |foot: &Foot| elsewhere.get(&foot.id()).is_some_and(|&packets| packets >= foot.packets);
        let mut cut = findings.cut;
        match findings.proof {
            Proof::Whole { foot, .. } | Proof::Beginning { foot, .. } if !is_ours(&foot) => {
                cut = Cut { packets: 0, unknown: 1 };
                self.empty.push(index);
            }
            Proof::Whole { foot, .. } | Proof::Beginning { foot, .. } if is_moved(&foot) => {
                cut = Cut::default();
                self.report.moved += 1;
                self.empty.push(index);
            }
            Proof::Whole { foot, hash } => {
                let entry = closing::entry(self.offset(index), bytes, foot, hash);
                self.add(entry);
            }
            Proof::Beginning { foot, record } => {
                let hash = salvage::close(bytes, &foot, record);
                let entry = closing::entry(self.offset(index), bytes, foot, hash);
                let from = foot.block_bytes as usize / PAGE_BYTES * PAGE_BYTES;
                let mut changed = Pages::zeroed((segment_bytes - from) / PAGE_BYTES);
                changed.as_mut_slice().copy_from_slice(&bytes[from..]);
                self.write(disk, entry.offset + from as u64, changed)?;
                self.report.beginnings += 1;
                self.add(entry);
            }
            Proof::Nothing => self.empty.push(index),
        }
        self.report.cut.add(cut);
        self.next += 1;
        Ok(())
    }

    fn add(&mut self, entry: Entry) {
        self.report.holds.add(&entry.foot);
        self.entries.push(entry);
    }

    /// Ends the file, but for its name; removes one of which nothing is proven.
    fn end(&mut self, disk: &mut dyn Disk) -> io::Result<()> {
        let segment_bytes = self.head.segment_bytes as usize;
        let Some(last) = self.entries.last().map(|entry| entry.offset) else {
            disk.remove(&self.report.name)?;
            disk.sync_names(folder_of(&self.report.name))?;
            disk.close(self.file);
            return Ok(());
        };
        for index in std::mem::take(&mut self.empty) {
            if self.offset(index) < last
                && let Bytes::Own(pages) = slot::empty(segment_bytes).bytes
            {
                self.write(disk, self.offset(index), pages)?;
            }
        }
        let at = last + segment_bytes as u64;
        let pages = closing::index(&self.entries);
        let bytes = at + pages.as_slice().len() as u64;
        self.write(disk, at, pages)?;
        disk.truncate(self.file, bytes)?;
        act(disk, Act::Sync { file: self.file })?;
        disk.close(self.file);
        Ok(())
    }

    fn failed(mut self, disk: &mut dyn Disk, error: io::Error) -> Recovered {
        while disk.pending() > 0 && disk.finish(WAIT, &mut Vec::new()).is_ok() {}
        disk.close(self.file);
        self.report.outcome = Outcome::Failed(error);
        self.report
    }

    fn offset(&self, slot: usize) -> u64 {
        self.head_bytes + slot as u64 * u64::from(self.head.segment_bytes)
    }

    fn write(&self, disk: &mut dyn Disk, at: u64, pages: Pages) -> io::Result<()> {
        act(disk, Act::Write { file: self.file, at, bytes: Bytes::Own(pages) })
    }
}

impl Recovered {
    /// Gives the file, which is whole, its name.
    fn give_name(mut self, disk: &mut dyn Disk) -> Recovered {
        let named = |disk: &mut dyn Disk| {
            let whole = closing::whole(&self.name).ok_or(io::ErrorKind::InvalidInput)?;
            disk.rename(&self.name, &whole)?;
            disk.sync_names(folder_of(&whole))?;
            Ok(whole)
        };
        self.outcome = named(disk).map_or_else(Outcome::Failed, Outcome::Closed);
        self
    }

    fn nothing_yet(name: &Path) -> Recovered {
        Recovered {
            name: name.to_path_buf(),
            run_id: [0; 16],
            outcome: Outcome::Removed,
            holds: Holds::default(),
            cut: Cut::default(),
            beginnings: 0,
            moved: 0,
        }
    }
}

/// Reads the head of a file, how long that is, and opens the file.
fn open(disk: &mut dyn Disk, standing: &Standing) -> Result<(Head, u64, FileNumber), Outcome> {
    let (head, head_bytes) = read_head(disk, standing)?;
    let file = disk.open(&standing.name).map_err(Outcome::Failed)?;
    Ok((head, head_bytes as u64, file))
}

/// The head of a file that stands below the volume's folder.
///
/// # Errors
/// It can't be read, or is none of the store's.
pub fn head_of(disk: &mut dyn Disk, standing: &Standing) -> Result<Head, HeadError> {
    match read_head(disk, standing) {
        Ok((head, _)) => Ok(head),
        Err(Outcome::Unreadable(error)) => Err(error),
        Err(_) => Err(HeadError::Incomplete),
    }
}

fn folder_of(name: &Path) -> &Path {
    name.parent().unwrap_or(Path::new(""))
}

/// Does one thing, and waits until it is done.
fn act(disk: &mut dyn Disk, act: Act) -> io::Result<()> {
    disk.begin(Begun { tag: 0, act })?;
    let mut finished = Vec::new();
    while finished.is_empty() {
        disk.finish(WAIT, &mut finished)?;
    }
    finished.into_iter().try_for_each(|finished| finished.result)
}

/// Reads the head of a file; with it, how long it is.
fn read_head(disk: &mut dyn Disk, standing: &Standing) -> Result<(Head, usize), Outcome> {
    let mut bytes_wanted = HEAD_BYTES_FIRST;
    loop {
        let mut bytes = vec![0; bytes_wanted.min(usize::try_from(standing.len).unwrap_or(usize::MAX))];
        let read = disk::read_all(disk, &standing.name, 0, &mut bytes).map_err(Outcome::Failed)?;
        bytes.truncate(read);
        match Head::read(&bytes) {
            Ok((head, len)) if head.has_block() => return Ok((head, len)),
            Err(HeadError::Incomplete) if read == bytes_wanted && bytes_wanted < HEAD_BYTES_MAX => {
                bytes_wanted *= 4;
            }
            Ok(_) => {
                let what = "a head without a head block";
                return Err(Outcome::Unreadable(HeadError::Foreign { what, at: 0 }));
            }
            Err(error) => return Err(Outcome::Unreadable(error)),
        }
    }
}
