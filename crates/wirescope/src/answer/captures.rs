//! Capture files that are asked: read once before the answer, and lent as a timeline.
//!
//! ```text
//! files ─► decoded as `run -r` does it ─► taking: span, filters ─► sorted ──────────────────┐
//!                                          │ in order, and no room                          ▼
//!                                          └─► left in the files, which are read again ─► timeline
//! ```
//! All files together are one source of packets. What the files say of their own losses is kept whatever the filter
//! is. Regular files are read up to the length that they had when they were opened.

mod again;
mod reader;
mod taking;

use crate::NoResult;
use crate::speech::{Level, say};
use crate::words::counted;
use again::Again;
use reader::{Reader, of_file};
use scope_fault::{Fault, Setting, sentence};
use scope_filter::Filter;
use scope_packet::{Gap, LinkType, Moment, SegmentId};
use scope_ring::{KeyTest, Matches, Packets, Piece, Place, Settled, Timeline};
use scope_source::file::{FILES_MAX, FileOptions, FileSource, Follow, check_begin};
use scope_source::spec;
use scope_store::head::HeadInterface;
use scope_store::sorter::{Sorted, Sorter, Stretch, Walk};
use scope_store::spill::SpillFile;
use scope_store::timeline::{Counted, Span};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use taking::{Keeping, Taking};

/// Under which run their interfaces are known: no run has this number.
pub const RUN: [u8; 16] = [0xff; 16];
/// Files whose names an answer shows; others are counted.
const NAMES_MAX: usize = 8;

/// Files that are open, and of which nothing is read yet.
pub struct Captures {
    paths: Vec<String>,
    sources: Vec<FileSource>,
    /// All of them can be read again.
    are_regular: bool,
    followings: Vec<Arc<Following>>,
    /// Where packets go that have no room.
    spill: File,
    /// Their length; `None`: of a pipe nobody knows.
    bytes: Option<u64>,
}

/// Follows the reading of one file.
#[derive(Debug, Default)]
pub struct Following {
    bytes: AtomicU64,
    ended: Mutex<Option<(u64, bool)>>,
}

impl Follow for Following {
    fn bytes(&self, bytes: &[u8]) {
        self.bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
    }

    fn ended(&self, packets: u64, is_whole: bool) {
        *self.ended.lock().unwrap_or_else(PoisonError::into_inner) = Some((packets, is_whole));
    }
}

/// How far the reading of files is.
#[derive(Clone, Debug)]
pub struct Progress {
    followings: Vec<Arc<Following>>,
    /// All that there is to read, where that is known.
    pub bytes_max: Option<u64>,
}

impl Progress {
    /// Bytes read by now.
    pub fn bytes(&self) -> u64 {
        self.followings.iter().map(|following| following.bytes.load(Ordering::Relaxed)).sum()
    }
}

/// Where their packets are.
enum Kept {
    /// They were only counted.
    Nothing,
    Sorted(Sorted),
    /// In order, in the files.
    Left(Vec<FileSource>),
}

/// What was read of them.
pub struct Read {
    kept: Kept,
    /// How many filters have taken them.
    filters: usize,
    /// Link types, by lane.
    pub link_types: Vec<LinkType>,
    /// By number.
    pub interfaces: Vec<HeadInterface>,
    /// What they lack, as far as they say so.
    pub gaps: Vec<Gap>,
    /// Smallest and largest time of all packets.
    pub heard: Option<(i64, i64)>,
    /// Packets of all files.
    pub packets: u64,
    /// Those of them that may belong to the answer.
    pub taken: Counted,
    /// What couldn't be read.
    pub faults: Vec<Fault>,
}

impl Captures {
    /// Opens the files, each once; of those that can be read again the first bytes are compared. `spill` makes the
    /// file for what has no room.
    pub fn open(
        paths: &[String],
        spill: impl FnOnce() -> Result<File, Fault>,
    ) -> Result<Captures, Vec<Fault>> {
        let mut faults = Vec::new();
        scope_machine::limits::allow_files(paths.len() as u64);
        let mut known = Vec::new();
        for path in paths {
            let place = fs::metadata(if path == "-" { "/dev/stdin" } else { path })
                .map(|facts| (facts.dev(), facts.ino()))
                .ok();
            if place.is_some_and(|place| known.contains(&place)) {
                let cause = format!("{path} is given twice");
                faults.push(of_file(path, Fault::whole(cause).remedy("omit it once")));
                continue;
            }
            known.extend(place);
            if let Err(error) = check_begin(path, spec::FileForm::Detected) {
                faults.push(of_file(path, error.reason()));
            }
        }
        let spill = spill().map_err(|fault| faults.push(fault)).ok();
        let (mut sources, mut followings) = (Vec::new(), Vec::new());
        for group in paths.chunks(FILES_MAX) {
            let options = FileOptions { paths: group.to_vec(), ..FileOptions::default() };
            let own: Vec<Arc<Following>> = group.iter().map(|_| Arc::default()).collect();
            let follows: Vec<Option<Arc<dyn Follow>>> =
                own.iter().map(|one| Some(one.clone() as Arc<dyn Follow>)).collect();
            followings.extend(own);
            match FileSource::unread(options, &follows) {
                Ok(source) => sources.push(source),
                Err(error) if faults.is_empty() => faults.push(of_file("", error.reason())),
                Err(_) => {}
            }
        }
        let length = |path: &String| {
            fs::metadata(path).ok().filter(|facts| facts.is_file() && path != "-").map(|facts| facts.len())
        };
        let bytes = paths.iter().map(length).sum();
        let again = again(&sources);
        let are_regular = again.is_some();
        let (paths, sources) = (paths.to_vec(), again.unwrap_or(sources));
        match spill.filter(|_| faults.is_empty()) {
            Some(spill) => Ok(Captures { paths, sources, are_regular, followings, spill, bytes }),
            None => Err(faults),
        }
    }

    /// As an answer names them.
    pub fn names(&self) -> String {
        let shown: Vec<&str> = self.paths.iter().take(NAMES_MAX).map(String::as_str).collect();
        let more = self.paths.len() - shown.len();
        let noun = if self.paths.len() == 1 { "capture" } else { "captures" };
        let more = if more > 0 { format!(" and {}", counted(more as u64, "other")) } else { String::new() };
        format!("{noun} {}{more}", shown.join(", "))
    }

    /// How far their reading will be.
    pub fn progress(&self) -> Progress {
        Progress { followings: self.followings.clone(), bytes_max: self.bytes }
    }

    /// Reads them to their ends, for the packets in `span` that one of `filters` matches, with so much memory; `None`: they
    /// are only counted. Once `stop` is set nothing more is read.
    ///
    /// # Errors
    /// What stands before the first packets is none of a capture, or the temporary file can't be written.
    pub fn read(
        self,
        filters: &[&Filter],
        span: Span,
        memory_bytes: Option<usize>,
        stop: &AtomicBool,
    ) -> Result<Read, NoResult> {
        let Captures { paths, sources, are_regular, followings, spill, .. } = self;
        let pass = |sources: Vec<FileSource>, keeping: Keeping| {
            let filters = filters.iter().map(|filter| (*filter).clone()).collect();
            let mut taking = Taking::new(filters, span, keeping);
            let mut reader = Reader::new(sources);
            let refused = |fault| NoResult::Refused(vec![fault]);
            while reader.step(&mut taking, stop).map_err(refused)? && taking.error.is_none() {}
            let sorted = if taking.error.is_none() { taking.sorted() } else { None };
            Ok::<_, NoResult>((taking, reader, sorted))
        };
        let sorter = |spill| Sorter::new(memory_bytes.unwrap_or(0), spill);
        let first = match (memory_bytes, again(&sources).filter(|_| are_regular)) {
            (Some(_), Some(sources)) => Some(pass(sources, Keeping::SortOrLeave(sorter(SpillFile::None)))?),
            _ => None,
        };
        let (taking, reader, kept) = match first {
            Some((taking, reader, Some(sorted))) => (taking, reader, Kept::Sorted(sorted)),
            Some((taking, reader, None)) if taking.error.is_none() => (taking, reader, Kept::Left(sources)),
            // What has no room, and isn't in order, needs the temporary file: that mostly shows soon.
            _ if memory_bytes.is_some() => {
                let keeping = Keeping::Sort(sorter(SpillFile::Open(spill)));
                let (mut taking, reader, sorted) = pass(sources, keeping)?;
                let Some(sorted) = sorted else {
                    return Err(NoResult::Failed(no_room(taking.error.take())));
                };
                (taking, reader, Kept::Sorted(sorted))
            }
            _ => {
                let (taking, reader, _) = pass(sources, Keeping::Count)?;
                (taking, reader, Kept::Nothing)
            }
        };
        let Reader { mut faults, warnings, .. } = reader;
        for warning in warnings {
            say(Level::Warning, &format!("wirescope: {warning}"));
        }
        for (path, following) in paths.iter().zip(&followings) {
            let ended = *following.ended.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some((packets, false)) = ended {
                let cause = format!("damaged or truncated: {} of it were read", counted(packets, "packet"));
                faults.push(
                    Fault::of_thing(path).cause(cause).remedy("use another copy of it, if there is one"),
                );
            }
        }
        let (filters, link_types) = (filters.len(), taking.link_types());
        let Taking { interfaces, mut gaps, heard, packets, taken, .. } = taking;
        // What a file says without a begin may be missing anywhere in what was read.
        let begin_ns = heard.map_or(0, |(from_ns, _)| from_ns);
        for gap in gaps.iter_mut().filter(|gap| gap.from_ns <= 0) {
            gap.from_ns = begin_ns.min(gap.to_ns);
        }
        Ok(Read { kept, filters, link_types, interfaces, gaps, heard, packets, taken, faults })
    }
}

impl Read {
    /// From the first one on the packets that `filter`, one of those that took them, matches in `span`: whoever asks the
    /// timeline asks for these.
    ///
    /// # Errors
    /// The files have changed.
    pub fn timeline(
        &self,
        filter: &Filter,
        span: Span,
        stop: Arc<AtomicBool>,
    ) -> Result<CaptureTimeline, Fault> {
        let (walk, again) = match &self.kept {
            Kept::Nothing => (None, None),
            Kept::Sorted(sorted) => (Some(sorted.walk()), None),
            Kept::Left(sources) => {
                let sources = self::again(sources).unwrap_or_default();
                let mut again = Again::new(sources, filter, span, self.packets);
                (again.read(&stop)?, Some(again))
            }
        };
        Ok(CaptureTimeline {
            is_selected: again.is_some() || self.filters == 1,
            walk,
            again,
            last: None,
            link_types: self.link_types.clone(),
            heard: self.heard,
            stop,
            fault: None,
        })
    }

    /// Bytes that waited in a file.
    pub fn spilled_bytes(&self) -> u64 {
        match &self.kept {
            Kept::Sorted(sorted) => sorted.spilled_bytes(),
            Kept::Nothing | Kept::Left(_) => 0,
        }
    }
}

/// The same sources once more, if all of them can be read again.
fn again(sources: &[FileSource]) -> Option<Vec<FileSource>> {
    sources.iter().map(FileSource::again).collect()
}

/// What is sorted has no room.
fn no_room(error: Option<io::Error>) -> Fault {
    let fault = error.map_or(of_temporary(), |error| of_temporary().error(&error));
    fault.remedy(sentence!["name a folder with more space: ", Setting::of("tmp").example("DIR")])
}

fn of_temporary() -> Fault {
    Fault::of_thing("temporary file")
}

/// Their packets as a timeline.
pub struct CaptureTimeline {
    walk: Option<Walk>,
    /// What comes behind these.
    again: Option<Again>,
    is_selected: bool,
    /// Time and lane of the last packet that was lent.
    last: Option<(i64, u32)>,
    link_types: Vec<LinkType>,
    heard: Option<(i64, i64)>,
    stop: Arc<AtomicBool>,
    /// Why it ended early.
    fault: Option<Fault>,
}

impl CaptureTimeline {
    /// Why it ended before its end.
    pub fn take_fault(&mut self) -> Option<Fault> {
        self.fault.take()
    }

    /// The places of the packets that are lent, and their blocks.
    fn lent(&self) -> (&[Place], &[u8]) {
        self.walk.as_ref().map_or((&[], &[]), Walk::lent)
    }

    /// What was lent is done with.
    fn go_on(&mut self) -> Result<(), Fault> {
        let Some(walk) = &mut self.walk else { return Ok(()) };
        walk.done().map_err(|error| of_temporary().error(&error))?;
        if walk.next_place().is_none()
            && let Some(again) = &mut self.again
        {
            self.walk = again.read(&self.stop)?;
        }
        Ok(())
    }
}

impl Timeline for CaptureTimeline {
    fn settle(&mut self, _: i64) -> Settled {
        Settled { up_to: Moment::END, goes_on: false }
    }

    fn look(&mut self, _: i64, _: bool) {}

    fn next(&mut self) -> Option<Piece> {
        if self.stop.load(Ordering::Relaxed) || self.fault.is_some() {
            return None;
        }
        let Stretch { lane, min_ns, first_packet, packets } = self.walk.as_mut()?.next_stretch()?;
        self.last = self.lent().0.last().map(|place| (place.time_ns, lane));
        let segment = SegmentId { run: RUN, lane, sequence: first_packet };
        Some(Piece { segment, lane, first_packet, packets: packets as u32, min_ns, ordered: true })
    }

    fn next_place(&self) -> Option<(i64, u32)> {
        let known = self.walk.as_ref().and_then(Walk::next_place);
        known.or_else(|| self.last.filter(|_| self.again.as_ref().is_some_and(Again::goes_on)))
    }

    fn screen(&mut self, keys: &KeyTest, always: Option<u64>) -> Option<Matches> {
        self.walk.as_ref().map(|walk| walk.screen(keys, always))
    }

    fn packets(&mut self, picked: Matches) -> Packets<'_> {
        let (places, blocks) = self.lent();
        Packets::chosen(places, picked, blocks)
    }

    fn selected(&mut self) -> Option<Packets<'_>> {
        let (places, blocks) = self.lent();
        self.is_selected.then(|| Packets::listed(places, blocks))
    }

    fn done(&mut self) {
        self.fault = self.go_on().err();
    }

    fn wait(&mut self, _: i64) {}

    fn end(&mut self) {}

    fn link_type(&self, lane: u32) -> Option<LinkType> {
        self.link_types.get(lane as usize).copied()
    }

    fn heard(&self) -> Option<(i64, i64)> {
        self.heard
    }

    fn missing(&self, _: i64) -> Vec<Gap> {
        Vec::new() // told with those of the stores
    }
}
