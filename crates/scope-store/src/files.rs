//! The files of one link type of a volume, one behind the other: which of them a segment goes into, and how
//! open segments move on.
//!
//! ```text
//! file 1  ... ending     lane 0's open segment: retired, once file 2 has kept it
//! file 2  ... growing    lane 0's open segment, from its first packet on
//! ```
//! Only the newest file takes segments. One that is full ends: its open segments go into the next one with
//! the next flush, from their first packet on, and leave padding behind. So no file waits for a lane that
//! sleeps. Files get their names in their order. So where a crash leaves a segment in two files, recovery
//! finds both growing, and leaves it out of one; only after an error of the disk both may keep it.
//!
//! Each packet is reported as kept once, also where two files have it for a while.

use crate::closing::Holds;
use crate::disk::{Disk, Finished};
use crate::file_writer::{FileWriter, Given, Kept, Stage, file_of};
use crate::outgoing::Outgoing;
use scope_packet::segment::SegmentId;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Range;
use std::path::PathBuf;

/// What happened.
#[derive(Debug)]
pub enum Event {
    /// A closed segment is written: its bytes are needed no more, and safe with the next flush.
    Written(SegmentId),
    /// Packets are safe.
    Kept(Kept),
    /// A file has its name.
    Whole {
        /// That name.
        name: PathBuf,
        /// What it holds.
        holds: Holds,
        /// Its length.
        bytes: u64,
    },
    /// A file in which nothing stayed was removed.
    Removed {
        /// The name that it would have got.
        name: PathBuf,
    },
    /// The disk failed a file, which keeps its growing name until recovery closes it.
    Failed {
        /// The name that it would have got.
        name: PathBuf,
        /// The system's own words.
        error: io::Error,
        /// Packets that it was given, that aren't safe, and that no other file has: the segments that the
        /// ring still has may be given again.
        unkept: Vec<(SegmentId, Range<u64>)>,
        /// Whether anything in it is safe.
        has_kept: bool,
    },
}

/// Begins the next file, for the segment that will be its first one.
pub type Begin<'a> = dyn FnMut(&mut dyn Disk, &Outgoing) -> io::Result<FileWriter> + 'a;

/// The files of one link type.
#[derive(Default)]
pub struct Files {
    /// The oldest first.
    files: Vec<File>,
    events: Vec<Event>,
    /// Segments that the ring has no more, as long as a slot of them is open.
    gone: BTreeSet<SegmentId>,
    /// All that there are end.
    ending: bool,
    /// Up to where packets of segments that aren't closed are reported as kept.
    kept: BTreeMap<SegmentId, u64>,
}

struct File {
    writer: FileWriter,
    /// Its failure is reported.
    failed: bool,
}

impl Files {
    /// No file yet.
    pub fn new() -> Files {
        Files::default()
    }

    /// What happened since the last call.
    pub fn take_events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.events)
    }

    /// The files that aren't over, the oldest first: those that failed, as long as the disk has something of
    /// them, included.
    pub fn writers(&self) -> impl Iterator<Item = &FileWriter> {
        self.files.iter().map(|file| &file.writer)
    }

    /// The files that have no name yet, and whether each is to end: all but the newest one are, and so is one
    /// that has no room for more.
    pub fn growing(&self) -> impl Iterator<Item = (&FileWriter, bool)> {
        let newest = self.files.len().saturating_sub(1);
        let files = self.files.iter().map(|file| &file.writer).enumerate();
        files.filter_map(move |(index, writer)| match writer.stage() {
            Stage::Growing => Some((writer, index < newest)),
            Stage::Ending => Some((writer, true)),
            _ => None,
        })
    }

    /// Whether the newest file has a flush under way: the next one waits.
    pub fn is_flushing(&self) -> bool {
        self.files.last().is_some_and(|file| file.writer.is_flushing())
    }

    /// Takes a sealed segment. On an error nothing was taken, no file was begun, and the newest one ends: it is
    /// full, and once it has its name it may go to make room.
    pub fn close(
        &mut self,
        disk: &mut dyn Disk,
        segment: impl Into<Outgoing>,
        begin: &mut Begin<'_>,
    ) -> Result<(), (Outgoing, io::Error)> {
        let mut segment = segment.into();
        let id = segment.id();
        let open = self.files.iter().rposition(|file| file.writer.has_open(id));
        let newest = self.files.len().checked_sub(1);
        let mut places: Vec<usize> = open.into_iter().chain(newest).collect();
        places.dedup();
        for index in places {
            match self.files[index].writer.close(disk, segment) {
                Given::Taken => return self.look(disk, Ok(())),
                Given::Full(back) => segment = back,
            }
        }
        if let Err(error) = self.begin(disk, &segment, begin) {
            return self.look(disk, Err((segment, error)));
        }
        let newest = self.files.len() - 1;
        let closed = match self.files[newest].writer.close(disk, segment) {
            Given::Taken => Ok(()),
            Given::Full(segment) => Err((segment, no_place())),
        };
        self.look(disk, closed)
    }

    /// Flushes these open segments and what was closed. Where the last flush is under way it does nothing.
    pub fn flush(
        &mut self,
        disk: &mut dyn Disk,
        segments: Vec<impl Into<Outgoing>>,
        begin: &mut Begin<'_>,
    ) -> io::Result<()> {
        if self.is_flushing() {
            return Ok(());
        }
        let mut segments: Vec<Outgoing> = segments.into_iter().map(Into::into).collect();
        segments.retain(|segment| segment.committed().packets > 0);
        let newest = self.files.len().saturating_sub(1);
        for (index, file) in self.files.iter_mut().enumerate() {
            let given = if index == newest { std::mem::take(&mut segments) } else { Vec::new() };
            if let Some(full) = file.writer.flush(disk, given) {
                segments.extend(full);
            }
        }
        let Some(first) = segments.first() else { return self.look(disk, Ok(())) };
        if let Err(error) = self.begin(disk, first, begin) {
            return self.look(disk, Err(error));
        }
        let newest = self.files.len() - 1;
        let full = self.files[newest].writer.flush(disk, segments).unwrap_or_default();
        let flushed = if full.is_empty() { Ok(()) } else { Err(no_place()) };
        self.look(disk, flushed)
    }

    /// A segment isn't in the ring any more: what was flushed of it, if anything, ends with its last flush.
    pub fn cut(&mut self, disk: &mut dyn Disk, id: SegmentId) {
        self.gone.insert(id);
        self.gather(disk);
    }

    /// A segment that was flushed is kept by another volume: its slots here become padding.
    pub fn retire(&mut self, disk: &mut dyn Disk, id: SegmentId) {
        for file in &mut self.files {
            file.writer.retire(disk, id);
        }
        self.kept.remove(&id);
        self.gather(disk);
    }

    /// Ends all files. Those with open slots end when these are closed or cut. What comes later goes into new
    /// ones.
    pub fn end(&mut self, disk: &mut dyn Disk) {
        self.ending = true;
        self.gather(disk);
    }

    /// Segments that have an open slot in one of the files.
    pub fn open_segments(&self) -> Vec<SegmentId> {
        let mut open: Vec<SegmentId> =
            self.files.iter().flat_map(|file| file.writer.open_segments()).collect();
        open.sort_unstable();
        open.dedup();
        open
    }

    /// Something has finished. Gives it back where it is of none of these files.
    pub fn finished(&mut self, disk: &mut dyn Disk, finished: Finished) -> Option<Finished> {
        let number = file_of(&finished.begun);
        let Some(file) = self.files.iter_mut().find(|file| file.writer.file() == number) else {
            return Some(finished);
        };
        file.writer.finished(disk, finished);
        self.gather(disk);
        None
    }

    fn begin(&mut self, disk: &mut dyn Disk, first: &Outgoing, begin: &mut Begin<'_>) -> io::Result<()> {
        let begun = begin(disk, first);
        self.ending = begun.is_err();
        let writer = begun?;
        self.files.push(File { writer, failed: false });
        Ok(())
    }

    fn look<T>(&mut self, disk: &mut dyn Disk, result: T) -> T {
        self.gather(disk);
        result
    }

    /// Takes what the files report, retires what moved on, and lets go of files that are over.
    fn gather(&mut self, disk: &mut dyn Disk) {
        for index in 0..self.files.len() {
            self.events.extend(self.files[index].writer.take_written().into_iter().map(Event::Written));
            for kept in self.files[index].writer.take_kept() {
                for older in &mut self.files[..index] {
                    older.writer.retire(disk, kept.id);
                }
                self.report(kept);
            }
        }
        self.let_go();
        self.cut_gone(disk);
        // A file that was removed is over at once: then it is the next one's turn.
        while let Some(index) = self.files.iter().position(|file| !file.failed)
            && (self.ending || index + 1 < self.files.len())
            && matches!(self.files[index].writer.stage(), Stage::Growing)
        {
            self.files[index].writer.end(disk);
            self.let_go();
        }
        if self.ending && self.files.len() > 1 {
            // What the oldest one waits for is kept by a flush of those behind it.
            for file in &mut self.files {
                let _ = file.writer.flush(disk, Vec::<Outgoing>::new());
            }
        }
    }

    /// Cuts what the ring has no more in the newest file that has it; once that is kept, older ones retire
    /// it. Where the disk fails that file first, it is the next older one's turn.
    fn cut_gone(&mut self, disk: &mut dyn Disk) {
        for id in std::mem::take(&mut self.gone) {
            if let Some(file) = self.files.iter_mut().rfind(|file| file.writer.has(id)) {
                file.writer.cut(disk, id);
            }
            if self.files.iter().any(|file| file.writer.has_open(id)) {
                self.gone.insert(id);
            } else if !self.files.iter().any(|file| file.writer.has(id)) {
                self.kept.remove(&id);
            }
        }
    }

    /// Reports what became of files, and forgets those that are over.
    fn let_go(&mut self) {
        for index in 0..self.files.len() {
            let file = &self.files[index];
            let name = || file.writer.name().to_path_buf();
            match file.writer.stage() {
                Stage::Failed(error) if !file.failed => {
                    let error = io::Error::new(error.kind(), error.to_string());
                    let moved = |id: SegmentId| self.files.iter().any(|file| file.writer.has_closed(id));
                    let unkept = file.writer.unkept().filter(|&(id, _)| !moved(id)).collect();
                    let has_kept = file.writer.has_kept();
                    self.events.push(Event::Failed { name: name(), error, unkept, has_kept });
                    self.files[index].failed = true;
                }
                Stage::Whole => {
                    let (holds, bytes) = (file.writer.holds(), file.writer.bytes());
                    self.events.push(Event::Whole { name: name(), holds, bytes });
                }
                Stage::Removed => self.events.push(Event::Removed { name: name() }),
                _ => {}
            }
        }
        self.files.retain(|file| !file.writer.is_over());
    }

    fn report(&mut self, kept: Kept) {
        let before = self.kept.get(&kept.id).copied().unwrap_or(kept.packets.start);
        let packets = kept.packets.start.max(before)..kept.packets.end;
        match kept.closed {
            true => self.kept.remove(&kept.id),
            false => self.kept.insert(kept.id, before.max(kept.packets.end)),
        };
        if kept.closed || !packets.is_empty() {
            self.events.push(Event::Kept(Kept { packets, ..kept }));
        }
    }
}

fn no_place() -> io::Error {
    io::Error::other("a segment has no place in a new file")
}
