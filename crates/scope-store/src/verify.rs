//! Whether captures are whole: structure, checksums, order of time, and what they lack, and why.
//!
//! | module | what it holds |
//! |---|---|
//! | `report` | what was found: verdict, damaged places, spans that lack packets |
//! | `folder` | a store: its files, what is gone from it, its chain |
//! | `segments` | a file of the store, by its checksums |
//! | `lanes` | what lanes lack, over all files |
//! | `pcapng`, `pcap` | files of any program, from front to back |
//! | `statement` | what a dump says of itself |
//! | `input` | the bytes of a file, in bounded memory |
//!
//! Nothing here writes, and nothing that a file claims costs more memory than the file has brought.

mod folder;
mod input;
mod lanes;
mod pcap;
mod pcapng;
mod report;
mod segments;
mod statement;

pub use crate::lanes::Partial;
pub use folder::{ChainProblem, ChainReport, StoreReport};
pub use report::{Damage, FileReport, Form, LISTED_MAX, Missing, Progress, Reason, Verdict};

use crate::chain::Digest;
use crate::head::{Head, HeadError};
use crate::name::FileName;
use crate::stored::{StoredError, StoredFile};
use crate::unread::unread;
use input::Input;
use lanes::{Lanes, NumberGap};
use rustix::fs::OFlags;
use scope_packet::GapReason;
use std::collections::{BTreeMap, HashSet};
use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// In the name of the writing program, where one of Wireshark's has copied a file: blocks of the store are
/// copied, too, and prove nothing there.
const COPIES: &str = "(Wireshark)";

/// How far the looking is: written by who reads, read by who shows it.
#[derive(Debug, Default)]
pub struct Meter {
    bytes: AtomicU64,
    expected: AtomicU64,
}

impl Meter {
    fn read(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    fn expect(&self, bytes: u64) {
        self.expected.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Bytes that were read so far.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Bytes that will be read in all, as far as it is known.
    pub fn expected(&self) -> u64 {
        self.expected.load(Ordering::Relaxed)
    }
}

/// All that was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Each file.
    pub files: Vec<FileReport>,
    /// Each store.
    pub stores: Vec<StoreReport>,
    /// Heads that no chain has, of those that were expected.
    pub heads_missing: Vec<Digest>,
    /// Segments that stand in more than one place.
    pub twice: u64,
    /// Their packets, which the reports of several files count.
    pub packets_twice: u64,
    /// Runs in the stores that had volumes which weren't given.
    pub partial: Vec<Partial>,
}

impl Report {
    /// Packets of all files, those that stand in several once.
    pub fn packets(&self) -> u64 {
        let all: u64 = self.files.iter().map(|file| file.packets).sum();
        all.saturating_sub(self.packets_twice)
    }

    /// What all of it comes to.
    pub fn verdict(&self) -> Verdict {
        let stores = self.stores.iter().map(StoreReport::verdict);
        let worst = self.files.iter().map(FileReport::verdict).chain(stores).max().unwrap_or(Verdict::Whole);
        if self.heads_missing.is_empty() { worst } else { worst.max(Verdict::Damaged) }
    }
}

impl StoreReport {
    /// What the folder itself comes to, without its files.
    pub fn verdict(&self) -> Verdict {
        match &self.chain {
            _ if self.unread.is_some() || !self.unread_parts.is_empty() => Verdict::Unread,
            Some(chain) if !chain.faults.is_empty() => Verdict::Damaged,
            _ if self.missing.iter().any(Missing::is_loss) => Verdict::Lost,
            _ => Verdict::Whole,
        }
    }
}

/// Looks at capture files and at folders that are stores, with so many threads; `expect` are heads of chains
/// that must be there. What can't be read is a verdict, no error.
pub fn look(paths: &[&Path], threads: usize, expect: &[Digest], meter: &Meter) -> Report {
    let mut looked = Looked::default();
    let mut report = Report::default();
    for path in paths.iter().filter(|path| !path.is_dir()) {
        meter.expect(path.metadata().map_or(0, |facts| facts.len()));
    }
    for path in paths {
        if path.metadata().is_ok_and(|facts| !looked.is_new(&facts)) {
            continue;
        }
        if path.is_dir() {
            report.stores.push(folder::look(path, threads, meter, &mut looked));
        } else {
            let file = FileReport { path: path.to_path_buf(), ..FileReport::default() };
            looked.file(file, &open_plain(path), threads, meter);
        }
    }
    (report.twice, report.packets_twice) = (looked.lanes.twice, looked.lanes.packets_twice);
    report.partial = looked.partial();
    let (files, ends) = looked.finish();
    report.files = files;
    for store in &mut report.stores {
        let ends = ends.iter().filter(|(path, _)| *path == store.path);
        store.missing = ends.flat_map(|(_, rows)| rows).cloned().collect();
    }
    let heads = || report.stores.iter().filter_map(|store| store.chain.as_ref()).flat_map(|chain| &chain.all);
    report.heads_missing =
        expect.iter().filter(|head| !heads().any(|known| known == *head)).copied().collect();
    report
}

/// Opens a file so that nothing keeps us waiting, whatever has taken its place meanwhile.
fn open_plain(path: &Path) -> io::Result<File> {
    let flags = (OFlags::NONBLOCK | OFlags::NOCTTY).bits() as i32;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::other("is no plain file")),
    }
}

/// Whether a file has the name of one of a store, in the folder of a day.
fn has_own_name(path: &Path) -> bool {
    let names: Vec<_> = path.components().rev().take(2).collect();
    FileName::read(&names.into_iter().rev().collect::<PathBuf>()).is_some()
}

/// What was looked at so far.
#[derive(Default)]
struct Looked {
    /// Device and number of each file and folder: none is looked at twice, whatever its names are.
    known: HashSet<(u64, u64)>,
    files: Vec<FileReport>,
    /// Of each file, whether it belongs to a store.
    is_of_volume: Vec<bool>,
    lanes: Lanes,
    stores: Vec<folder::Explaining>,
    /// Volumes that were given, with their places in `stores`.
    given: BTreeMap<[u8; 16], usize>,
    /// All volumes of each run in the stores, as the heads of its files say.
    volumes: BTreeMap<[u8; 16], Vec<[u8; 16]>>,
}

impl Looked {
    /// Whether a file or folder wasn't looked at before; from now on it was.
    fn is_new(&mut self, facts: &Metadata) -> bool {
        self.known.insert((facts.dev(), facts.ino()))
    }

    /// Looks at one file and appends its report. Returns the head of a stored file, and whether all of it is
    /// known.
    fn file(
        &mut self,
        mut report: FileReport,
        opened: &io::Result<File>,
        threads: usize,
        meter: &Meter,
    ) -> Option<(Head, bool)> {
        let head = match opened {
            Ok(opened) => self.opened(&mut report, opened, threads, meter),
            Err(error) => {
                report.unread = Some(unread(&report.path, error));
                None
            }
        };
        let is_of_volume = head.as_ref().is_some_and(|(head, _)| head.volume != [0; 16]);
        if let Some((head, _)) = head.as_ref().filter(|(head, _)| !head.volumes.is_empty()) {
            self.volumes.entry(head.run_id).or_insert_with(|| head.volumes.clone());
        }
        self.is_of_volume.push(is_of_volume);
        self.files.push(report);
        head
    }

    fn opened(
        &mut self,
        report: &mut FileReport,
        opened: &File,
        threads: usize,
        meter: &Meter,
    ) -> Option<(Head, bool)> {
        let is_own = report.store.is_some() || has_own_name(&report.path);
        let stored = opened.try_clone().map_err(StoredError::from).and_then(StoredFile::open);
        let cause = match stored {
            Ok(stored) => {
                if let Some(damage) = stored.head_damage() {
                    let mut plain = report.clone();
                    if !is_own && capture(&mut plain, opened, meter).contains(COPIES) {
                        *report = plain;
                        return None;
                    }
                    report.damage(damage.mended_at.unwrap_or(0) as u64, damage.to_string());
                }
                let mut seen = Vec::new();
                let file = self.files.len();
                if let Err(error) = segments::look(&stored, report, (file, threads), meter, &mut seen) {
                    report.refuse(format!("reading failed: {error}"), None);
                }
                seen.into_iter().for_each(|segment| self.lanes.add(segment));
                return Some((stored.head().clone(), stored.knows_head()));
            }
            Err(StoredError::Head(HeadError::Newer(version))) => {
                let cause = format!("is of format version {version}, newer than this program's");
                report.refuse(cause, Some("use a newer program"));
                return None;
            }
            Err(cause) => cause,
        };
        if report.progress == Progress::Growing && matches!(cause, StoredError::Head(HeadError::Incomplete)) {
            report.form = Form::Store;
            return None; // begun just now
        }
        let program = capture(report, opened, meter);
        // Of the store's own something is gone, whatever stands there now.
        if is_own && !matches!(cause, StoredError::Io(_)) {
            report.unread = None;
        }
        let is_foreign =
            matches!(cause, StoredError::Head(HeadError::Foreign { .. } | HeadError::Incomplete));
        let is_copy = program.contains(COPIES) && report.store.is_none();
        if report.unread.is_none() && !is_copy && (!is_foreign || is_own) {
            report.form = Form::Store;
            report.damage(0, cause.to_string());
        }
        None
    }

    /// Why a gap is there that the files around it don't explain, by the run's other volumes.
    fn not_here(&self, gap: &NumberGap) -> Reason {
        let volumes = self.volumes.get(&gap.id.run_id).map_or(&[][..], Vec::as_slice);
        if volumes.len() > 1 && volumes.iter().any(|id| !self.given.contains_key(id)) {
            return Reason::Elsewhere;
        }
        let files = |id: &[u8; 16]| Some(&self.stores.get(*self.given.get(id)?)?.files[..]);
        match volumes.iter().filter_map(files).any(|files| folder::has_only_later(gap, files, &self.stores)) {
            true => Reason::Deleted,
            false => Reason::Gap(GapReason::Disk),
        }
    }

    /// Runs with volumes that weren't given.
    fn partial(&self) -> Vec<Partial> {
        let partial = self.volumes.iter().map(|(&run_id, volumes)| {
            let given = volumes.iter().filter(|id| self.given.contains_key(*id)).count();
            Partial { run_id, given, volumes: volumes.len() }
        });
        partial.filter(|partial| (1..partial.volumes).contains(&partial.given)).collect()
    }

    /// Says of each file what it lacks, and of each store what was at the ends of runs.
    fn finish(mut self) -> (Vec<FileReport>, Vec<(PathBuf, Vec<Missing>)>) {
        for file in folder::shown(&self.lanes.lasts(), &self.stores) {
            self.files[file].missing.retain(|row| row.lost_max.is_some());
        }
        let (mut losses, gaps) = std::mem::take(&mut self.lanes).finish();
        let ends =
            self.stores.iter().map(|store| (store.path.clone(), folder::missing_at_ends(store, &gaps)));
        let ends = ends.collect();
        let ended = folder::Ends::new(&gaps);
        for gap in gaps {
            if let Some((file, begin_ns, is_stated)) = folder::damaged(&gap, &self.stores) {
                // Numbers say how much it is.
                self.files[file].missing.retain(|row| row.lost_max.is_some());
                if !is_stated {
                    let reason = Reason::Gap(GapReason::Unreadable);
                    losses.push((file, folder::missing_of(&gap, reason, Some(begin_ns))));
                }
                continue;
            }
            let is_of_volume = self.is_of_volume[gap.behind];
            let is_in_store = self.files[gap.behind].store.is_some();
            let is_inside = gap.before == Some(gap.behind);
            // Of a file alone nobody knows what others have.
            if is_in_store || is_inside {
                let (reason, begin_ns) = match is_of_volume || is_in_store {
                    true => match folder::explain(&gap, &ended, &self.stores) {
                        (Reason::Gap(GapReason::Disk), _) if gap.is_cut => (Reason::Crash, None),
                        (Reason::Gap(GapReason::Disk), _) => (self.not_here(&gap), None),
                        explained => explained,
                    },
                    false => (Reason::Gap(GapReason::Evicted), None),
                };
                losses.push((gap.behind, folder::missing_of(&gap, reason, begin_ns)));
            }
        }
        losses.sort_by(|(_, one), (_, other)| {
            (&one.of, one.reason, one.from_ns).cmp(&(&other.of, other.reason, other.from_ns))
        });
        for (file, missing) in losses {
            self.files[file].lack(missing);
        }
        (self.files, ends)
    }
}

/// Looks at a capture of any program, from front to back; returns the program that wrote it, if it is known.
fn capture(report: &mut FileReport, opened: &File, meter: &Meter) -> String {
    report.bytes = opened.metadata().map_or(0, |facts| facts.len());
    let mut input = Input::new(opened, meter);
    match walk(&mut input, report) {
        Ok(program) => program,
        Err(error) => {
            let at = input.offset();
            report.refuse(format!("reading failed at byte {at}: {error}"), None);
            String::new()
        }
    }
}

fn walk(input: &mut Input<'_>, report: &mut FileReport) -> io::Result<String> {
    let begin = input.want(4)?;
    if begin.starts_with(&SECTION_BEGIN) {
        return pcapng::walk(input, report);
    }
    if pcap::magic(begin).is_some() {
        return pcap::walk(input, report).map(|()| String::new());
    }
    refuse(&begin[..begin.len().min(4)], report);
    Ok(String::new())
}

/// The type of a section header: the same in both byte orders.
const SECTION_BEGIN: [u8; 4] = [0x0A, 0x0D, 0x0D, 0x0A];

/// Of a file that begins like no capture: what it is, and what helps.
fn refuse(begin: &[u8], report: &mut FileReport) {
    let compressed = match begin {
        [0x1f, 0x8b, ..] => Some(("gzip", "gunzip")),
        [0x28, 0xb5, 0x2f, 0xfd, ..] => Some(("zstd", "unzstd")),
        [0xfd, b'7', b'z', b'X', ..] => Some(("xz", "unxz")),
        [b'B', b'Z', b'h', _, ..] => Some(("bzip2", "bunzip2")),
        [0x04, 0x22, 0x4d, 0x18, ..] => Some(("lz4", "unlz4")),
        _ => None,
    };
    if let Some((by, with)) = compressed {
        let remedy = format!("decompress it first, with {with}");
        return report.refuse(format!("is compressed with {by}"), Some(&remedy));
    }
    match begin {
        [] => report.refuse("is empty", Some("the program that made it wrote nothing")),
        [a, b, c, d, ..] => report.refuse(
            format!(
                "is no capture file: it begins with {a:02x} {b:02x} {c:02x} {d:02x}, neither pcap nor pcapng"
            ),
            Some("convert it, as with editcap"),
        ),
        few => report.refuse(format!("is no capture file: {} bytes are too few for any", few.len()), None),
    }
}
