//! A dump's files: one per link type, unnamed while they are written, named by one atomic act when they are
//! whole.
//!
//! ```text
//!  | head, 16 KiB or more: SHB, IDB per interface, padding | EPB | EPB ... | ISB per interface |
//! ```
//! Interfaces are numbered by first use; of a packet block the four bytes that name its interface are
//! patched, and the packet that fired gets a comment. With a second interface, some link types change to the
//! number that libpcap reads in such files ([`LinkType::alias`]). An interface for which the head has no room
//! is described where it first occurs, and at the end the file is rewritten with a larger head. A file
//! that can't be written any more (a full disk, a budget that is used up) keeps its whole blocks, is closed
//! and named, and says what it lacks.
//!
//! Into a pipe everything goes as it comes: a short header and the interfaces known by then, those that are
//! met later where they first occur, late packets behind newer ones, and at the end the
//! facts, in the statistics blocks. A reader that goes away ends it.

use crate::annex::Annexed;
use crate::budget::Charged;
use crate::buffers::{BUFFER_BYTES_MAX, BUFFER_BYTES_MIN, Buffers, Part};
use crate::evidence::Evidence;
use crate::form::DumpFormat;
use crate::header::{facts, header, reserve_bytes};
use crate::late::{LateRun, rewrite};
use crate::mark::{APPLICATION, FACTS};
use crate::merge::Position;
use crate::progress::Progress;
use crate::report::DumpReport;
use crate::tally::Tally;
use crate::target::{DumpOutput, Target, numbered};
use scope_folder::{Folder, locks};
use scope_packet::{LinkType, TimestampSource, pcapng};
use scope_ring::{InterfaceEntry, Interfaces, Ring};
use scope_spelling::time::for_file_name;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Bytes gathered before they are written, between two segments; within one as many as [`Buffers`] allow.
const BUFFER_BYTES: usize = 256 << 10;
/// Bytes that are tried alone where there is no room for all that was gathered.
const PIECE_BYTES: usize = 64 << 10;
/// Bytes of descriptions that a file's head is made for at most, beforehand.
const FORESEEN_BYTES_MAX: usize = 64 << 10;
/// Room that is kept for the text beside a pcap file: some more than the most gaps take.
const FACTS_BYTES: u64 = 32 << 10;
/// Bytes of a comment beside its text, and of the end of options, at most.
const COMMENT_BYTES: usize = 12;
/// Names tried for one file before giving up.
const NAMES_MAX: u32 = 1000;

/// A part of the buffer, from the end of the part before on.
struct BufferedPiece {
    end: usize,
    tally: Tally,
}

/// Whether a smaller write may find room.
fn is_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge
    )
}

/// An interface in a file.
struct Described {
    /// Its number there.
    number: u32,
    name: String,
    description: String,
    timestamps: Option<TimestampSource>,
    /// Packets of it.
    packets: u64,
    /// Snap length: bytes kept of a packet; 0: all.
    snap_len: u32,
}

impl Described {
    /// Appends its description; `link_type` is the number that its link type stands under.
    fn write(&self, out: &mut Vec<u8>, link_type: LinkType) {
        pcapng::interface(out, link_type, &self.name, &self.description);
    }
}

/// One output file.
pub(crate) struct OutFile {
    link_type: LinkType,
    output: Arc<DumpOutput>,
    file: File,
    buffer: Vec<u8>,
    /// What the buffer may have.
    part: Part,
    /// The packets in the buffer, part by part.
    buffered: Vec<BufferedPiece>,
    /// Bytes that are in the file for sure, whole blocks.
    written: u64,
    charged: Charged,
    /// Beside a pcap file: what the text with its facts may take.
    facts_charged: Option<Charged>,
    /// Bytes of its head; 0 in a pipe.
    head_bytes: u64,
    /// By the run's interface number.
    interfaces: BTreeMap<u32, Described>,
    /// Bytes of their descriptions.
    description_bytes: usize,
    /// Interfaces from this number on are described among the packets.
    described_within: Option<u32>,
    evidence: Arc<Evidence>,
    /// Measures the waits for the disk.
    progress: Arc<Progress>,
    /// Interfaces that have packets here.
    used: usize,
    /// Names and secrets that it has; `None`: it gets none.
    annexed: Option<Annexed>,
    last: Option<Position>,
    late: Option<LateRun>,
    /// What the late run holds.
    late_tally: Tally,
    /// Packets that stand after newer ones, in a pipe.
    out_of_order: u64,
    pub packets: u64,
    pub bytes: u64,
    /// Packets written that are shorter than they were on the wire, and not by a snap length.
    pub cut: u64,
    /// Smallest and largest time of them, ns.
    span_ns: Option<(i64, i64)>,
    /// Packets that couldn't be written.
    pub unwritten: Tally,
    pub error: Option<io::Error>,
    /// It has its name, and nobody knows whether all of it is on the disk.
    unsynced: Option<io::Error>,
}

impl OutFile {
    /// `intro` is what is known of the dump by now: a pipe gets it at once.
    pub(crate) fn create(
        output: &Arc<DumpOutput>,
        interfaces: &dyn Interfaces,
        link_type: LinkType,
        evidence: &Arc<Evidence>,
        buffers: &Arc<Buffers>,
        intro: &str,
    ) -> io::Result<OutFile> {
        let file = match &output.target {
            Target::Folder(folder) | Target::File { folder, .. } => output.disk.unnamed(folder)?,
            Target::Stream(stream) => stream.try_clone()?,
        };
        let known = interfaces.of_type(link_type);
        let mut foreseen = Vec::new();
        for (_, entry) in &known {
            entry.write(&mut foreseen);
        }
        let (buffer, head_bytes) = if output.is_stream() && output.format == DumpFormat::Pcapng {
            let mut head = Vec::new();
            pcapng::section_header(&mut head, APPLICATION, intro);
            (head, 0)
        } else {
            let head = output.format.head(link_type, reserve_bytes(foreseen.len().min(FORESEEN_BYTES_MAX)));
            let head_bytes = head.len() as u64;
            (head, head_bytes)
        };
        let mut file = OutFile {
            link_type,
            output: output.clone(),
            file,
            part: Part::of(buffers),
            buffer,
            buffered: Vec::new(),
            written: 0,
            charged: Charged::to(&output.budget),
            facts_charged: None,
            head_bytes,
            interfaces: BTreeMap::new(),
            description_bytes: 0,
            described_within: None,
            evidence: evidence.clone(),
            progress: Arc::default(),
            used: 0,
            annexed: Some(Annexed::default()),
            last: None,
            late: None,
            late_tally: Tally::default(),
            out_of_order: 0,
            packets: 0,
            bytes: 0,
            cut: 0,
            span_ns: None,
            unwritten: Tally::default(),
            error: None,
            unsynced: None,
        };
        if file.output.is_stream() {
            file.describe_known(&known);
        } else if file.format() == DumpFormat::Pcap {
            let mut facts = Charged::to(&output.budget);
            facts.charge(FACTS_BYTES)?;
            file.facts_charged = Some(facts);
        }
        Ok(file)
    }

    /// From now on `progress` measures how long it waits for its disk.
    pub(crate) fn with_progress(self, progress: &Arc<Progress>) -> OutFile {
        OutFile { progress: progress.clone(), ..self }
    }

    /// It gets no names and no secrets: they belong to all packets of a capture file, and whoever gets this one may see
    /// some of them only.
    pub(crate) fn without_annexes(self) -> OutFile {
        OutFile { annexed: None, ..self }
    }

    /// Into a pipe the interfaces that are known go first: a description behind packets is one that some
    /// programs refuse.
    fn describe_known(&mut self, known: &[(u32, InterfaceEntry)]) {
        for (run_number, entry) in known {
            self.add_interface(*run_number, Some(entry), known.len() > 1);
        }
    }

    pub(crate) fn link_type(&self) -> LinkType {
        self.link_type
    }

    fn format(&self) -> DumpFormat {
        self.output.format
    }

    /// Writes one packet's block to its position, with `comments` added to it.
    pub(crate) fn write(
        &mut self,
        interfaces: &dyn Interfaces,
        position: Position,
        block: &[u8],
        comments: &[String],
    ) {
        if self.error.is_some() || !self.format().holds(position.time_ns) {
            return self.unwritten.add(&Tally::of(position.time_ns, block, 0));
        }
        let (number, snap_len) =
            self.interface(interfaces, interfaces.number_of(position.lane, pcapng::le32(block, 8)));
        let tally = Tally::of(position.time_ns, block, snap_len);
        self.annex();
        self.packets += 1;
        self.bytes += tally.bytes;
        self.cut += tally.cut;
        self.span_ns =
            self.span_ns.into_iter().chain(tally.span_ns).reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)));
        let is_late = self.last.is_some_and(|last| position < last);
        let result = if is_late && !self.output.is_stream() {
            self.late_tally.add(&tally);
            self.write_late(position, block, number, comments)
        } else {
            self.out_of_order += u64::from(is_late);
            self.last = self.last.max(Some(position));
            self.gather(block, number, comments, &tally)
        };
        if let Err(error) = result {
            self.fail(error);
        }
    }

    /// Puts a packet into the buffer, which is written first where it has no room.
    fn gather(&mut self, block: &[u8], number: u32, comments: &[String], tally: &Tally) -> io::Result<()> {
        let text: usize = comments.iter().map(|comment| comment.len() + COMMENT_BYTES).sum();
        let bytes = block.len() + text;
        if !self.part.make_room(&mut self.buffer, bytes) {
            if self.buffer.len() + bytes < BUFFER_BYTES_MAX {
                self.part.note_early();
            }
            if let Err(error) = self.flush() {
                self.note_buffered(tally); // counted, and not in the file
                return Err(error);
            }
            self.part.make_room(&mut self.buffer, bytes);
        }
        self.format().packet(&mut self.buffer, block, number, comments);
        self.note_buffered(tally);
        if self.buffer.len() >= BUFFER_BYTES_MAX { self.flush() } else { Ok(()) }
    }

    fn write_late(
        &mut self,
        position: Position,
        block: &[u8],
        number: u32,
        comments: &[String],
    ) -> io::Result<()> {
        if self.late.is_none() {
            self.late = Some(LateRun::new(unnamed(&self.output)?, Part::of(self.part.buffers())));
        }
        let mut record = Vec::with_capacity(block.len());
        self.format().packet(&mut record, block, number, comments);
        match &mut self.late {
            Some(late) => {
                self.charged.charge(late.bytes_for(record.len()))?;
                late.push(position, &record)
            }
            None => Ok(()),
        }
    }

    /// Appends the names and secrets that belong to its packets, as far as they are known and not there.
    fn annex(&mut self) {
        if self.format() == DumpFormat::Pcapng
            && let Some(annexed) = &mut self.annexed
        {
            let used =
                self.interfaces.iter().filter(|(_, entry)| entry.packets > 0).map(|(number, _)| *number);
            annexed.append(&mut self.buffer, &self.evidence.annexes, self.used, used);
        }
    }

    /// Where the times of its packets come from, each once.
    pub(crate) fn times(&self) -> Vec<TimestampSource> {
        let mut times = Vec::new();
        for entry in self.interfaces.values().filter(|entry| entry.packets > 0) {
            times.extend(entry.timestamps.filter(|source| !times.contains(source)));
        }
        times
    }

    /// The file's own number of an interface, and its snap length.
    fn interface(&mut self, interfaces: &dyn Interfaces, run_number: u32) -> (u32, u32) {
        if !self.interfaces.contains_key(&run_number) {
            self.add_interface(
                run_number,
                interfaces.interface(run_number).as_ref(),
                !self.interfaces.is_empty(),
            );
        }
        match self.interfaces.get_mut(&run_number) {
            Some(entry) => {
                self.used += usize::from(entry.packets == 0);
                entry.packets += 1;
                (entry.number, entry.snap_len)
            }
            None => (0, 0),
        }
    }

    /// Makes an interface known to the file: in its head, or, where that has no room or is written already,
    /// in its next block.
    fn add_interface(&mut self, run_number: u32, entry: Option<&InterfaceEntry>, several: bool) {
        let number = self.interfaces.len() as u32;
        let (name, description) = match entry {
            Some(entry) => (entry.name.clone(), entry.description.clone()),
            None => ("none".to_string(), "no packet was received".to_string()),
        };
        let snap_len = entry.map_or(0, |entry| entry.snap_len);
        let timestamps = entry.map(|entry| entry.timestamps);
        let described = Described { number, name, description, timestamps, packets: 0, snap_len };
        if self.format() == DumpFormat::Pcapng {
            let mut block = Vec::new();
            described.write(&mut block, self.number_of_type(several));
            let has_room = reserve_bytes(self.description_bytes + block.len()) as u64 <= self.head_bytes;
            if self.described_within.is_some() || !has_room {
                self.described_within.get_or_insert(number);
                self.buffer.extend(&block);
            }
            self.description_bytes += block.len();
        }
        self.interfaces.insert(run_number, described);
    }

    /// The number that this file's link type stands under.
    fn number_of_type(&self, several: bool) -> LinkType {
        if several { self.link_type.alias().unwrap_or(self.link_type) } else { self.link_type }
    }

    /// The descriptions that stand in the head.
    fn descriptions(&self) -> Vec<u8> {
        let within = self.described_within.unwrap_or(u32::MAX);
        let mut all: Vec<&Described> =
            self.interfaces.values().filter(|entry| entry.number < within).collect();
        all.sort_unstable_by_key(|entry| entry.number);
        let mut blocks = Vec::with_capacity(self.description_bytes);
        for entry in all {
            entry.write(&mut blocks, self.number_of_type(self.interfaces.len() > 1));
        }
        blocks
    }

    /// Notes a packet that stands at the end of the buffer.
    fn note_buffered(&mut self, tally: &Tally) {
        let begin = self.buffered.iter().rev().nth(1).map_or(0, |piece| piece.end);
        let end = self.buffer.len();
        match self.buffered.last_mut() {
            Some(piece) if piece.end - begin < PIECE_BYTES => {
                piece.tally.add(tally);
                piece.end = end;
            }
            _ => {
                let mut piece = BufferedPiece { end, tally: Tally::default() };
                piece.tally.add(tally);
                self.buffered.push(piece);
            }
        }
    }

    /// Writes the buffer; what there is room for, where there is no room for all of it.
    fn flush(&mut self) -> io::Result<()> {
        let charged = self.charged.charge(self.buffer.len() as u64);
        let is_charged = charged.is_ok();
        match charged.and_then(|()| self.append(0..self.buffer.len())) {
            Err(error) if is_full(&error) && !self.output.is_stream() => self.flush_pieces(is_charged)?,
            written => written?,
        }
        self.part.emptied(&mut self.buffer);
        self.buffered.clear();
        Ok(())
    }

    /// Writes the buffer piece by piece, until there is no room for the next.
    fn flush_pieces(&mut self, is_charged: bool) -> io::Result<()> {
        let mut begin = 0;
        while begin < self.buffer.len() {
            let end = self.buffered.first().map_or(self.buffer.len(), |piece| piece.end);
            if !is_charged {
                self.charged.charge((end - begin) as u64)?;
            }
            self.append(begin..end)?;
            if !self.buffered.is_empty() {
                self.buffered.remove(0);
            }
            begin = end;
        }
        Ok(())
    }

    /// Appends a part of the buffer to the file, wholly or not at all; to a pipe, as far as it comes.
    fn append(&mut self, part: Range<usize>) -> io::Result<()> {
        let bytes = part.len() as u64;
        let result = self.progress.wait(|| self.output.disk.write(&self.file, &self.buffer[part]));
        if result.is_ok() {
            self.written += bytes;
        } else if !self.output.is_stream() {
            self.file.set_len(self.written)?;
            self.file.seek(SeekFrom::Start(self.written))?;
        }
        result
    }

    /// Writes the buffer, if it is full enough. Called while nothing of the ring is held for it.
    pub(crate) fn flush_full(&mut self) {
        if self.error.is_none()
            && self.buffer.len() >= BUFFER_BYTES.min(self.part.share())
            && let Err(error) = self.flush()
        {
            self.fail(error);
        }
    }

    /// Writes what there is into a pipe, while there is nothing else to do.
    pub(crate) fn flush_to_pipe(&mut self) {
        if self.output.is_stream()
            && self.error.is_none()
            && !self.buffered.is_empty()
            && let Err(error) = self.flush()
        {
            self.fail(error);
        }
    }

    /// Whether the reader of the pipe is gone.
    pub(crate) fn reader_gone(&self) -> bool {
        self.output.is_stream() && self.error.is_some()
    }

    /// Gives up: whole blocks on disk stay, the rest counts as unwritten.
    fn fail(&mut self, error: io::Error) {
        self.buffer = Vec::new();
        self.part.resize(0);
        let buffered = std::mem::take(&mut self.buffered).into_iter().map(|piece| piece.tally);
        for lost in buffered.chain([std::mem::take(&mut self.late_tally)]) {
            self.packets = self.packets.saturating_sub(lost.packets);
            self.bytes = self.bytes.saturating_sub(lost.bytes);
            self.cut = self.cut.saturating_sub(lost.cut);
            self.unwritten.add(&lost);
        }
        if !self.output.is_stream() {
            let _ = self.file.set_len(self.written);
        }
        self.error = Some(error);
    }

    /// Why packets are not in the file.
    pub(crate) fn failure(&self) -> Option<String> {
        let beyond = (self.unwritten.packets > 0).then(|| {
            "a pcap file cannot hold packets after 2106-02-07; use --dump-format pcapng".to_string()
        });
        let unsynced =
            self.unsynced.as_ref().map(|error| format!("written, but perhaps not on the disk: {error}"));
        self.error.as_ref().map(io::Error::to_string).or(unsynced).or(beyond)
    }

    /// Ends the packets: an interface where there is none, late packets merged in, statistics.
    pub(crate) fn finish_packets(
        &mut self,
        interfaces: &dyn Interfaces,
        fallback: Option<u32>,
        lost: (u64, u64),
        end_ns: i64,
    ) {
        if self.error.is_some() {
            return;
        }
        let result = self.try_finish_packets(interfaces, fallback, lost, end_ns);
        if let Err(error) = result {
            self.fail(error);
        }
    }

    fn try_finish_packets(
        &mut self,
        interfaces: &dyn Interfaces,
        fallback: Option<u32>,
        lost: (u64, u64),
        end_ns: i64,
    ) -> io::Result<()> {
        if self.interfaces.is_empty() {
            let run_number = fallback.unwrap_or(u32::MAX);
            self.add_interface(run_number, interfaces.interface(run_number).as_ref(), false);
        }
        self.annex();
        self.flush()?;
        if self.late.is_some() {
            self.rewrite_whole()?;
        } else if self.described_within.is_some() && !self.output.is_stream() {
            // Where that fails the file stays as it is: whole, though some programs can't copy it.
            let _ = self.rewrite_whole();
        }
        if self.output.is_stream() {
            return Ok(()); // its statistics come with the facts
        }
        self.statistics(lost, end_ns, "");
        self.flush()
    }

    /// Merges late packets in, and makes a head that has room for all interfaces.
    fn rewrite_whole(&mut self) -> io::Result<()> {
        let head_bytes = match self.format() {
            DumpFormat::Pcapng => self.head_bytes.max(reserve_bytes(self.description_bytes) as u64),
            DumpFormat::Pcap => self.head_bytes,
        };
        self.charged.charge(head_bytes - self.head_bytes)?;
        // What was gathered is written: its room is for reading one file and writing the other, half and
        // half.
        self.buffer = Vec::new();
        let wanted = (2 * BUFFER_BYTES).min(self.part.share());
        let bytes = if self.part.resize(wanted) { wanted } else { BUFFER_BYTES_MIN } / 2;
        let mut out = io::BufWriter::with_capacity(bytes, unnamed(&self.output)?);
        let head = (self.head_bytes, head_bytes);
        rewrite(&mut self.file, self.late.take(), self.output.format, head, bytes, &mut out)?;
        self.file = out.into_inner().map_err(|error| error.into_error())?;
        self.written = self.file.metadata()?.len();
        (self.head_bytes, self.described_within) = (head_bytes, None);
        self.late_tally = Tally::default();
        self.part.resize(0);
        Ok(())
    }

    /// The packets that this file has and those that it may lack; the latter, and the facts, stand with its
    /// first interface.
    fn statistics(&mut self, lost: (u64, u64), end_ns: i64, facts: &str) {
        if self.format() == DumpFormat::Pcap {
            return;
        }
        for Described { number, packets, .. } in self.interfaces.values() {
            // Where nobody knows how many are lost at most, the least number stands there.
            let most = if lost.1 == u64::MAX { lost.0 } else { lost.1 };
            let (dropped, comment) = if *number == 0 { (most, facts) } else { (0, "") };
            pcapng::statistics_with(&mut self.buffer, *number, end_ns, (packets + dropped, dropped), comment);
        }
    }

    /// Patches the header and gives the file its name; where it is. A pipe gets the facts at its end, and has
    /// no name.
    ///
    /// # Errors
    /// It has no name. Where only the wait for the disk fails it gets its name, and says so.
    pub(crate) fn publish(
        &mut self,
        report: &DumpReport,
        stem: &str,
        suffix: Option<&str>,
    ) -> io::Result<Option<PathBuf>> {
        let Some(folder) = self.output.folder().cloned() else {
            return self.end_stream(report).map(|()| None);
        };
        if self.written < self.head_bytes {
            return Err(self.error.take().unwrap_or_else(|| io::Error::other("nothing could be written")));
        }
        self.write_head(report)?;
        let output = self.output.clone();
        if let Err(error) = output.disk.sync(&self.file) {
            self.unsynced = Some(error);
            let error = self.failure().map(|failure| output.fault(failure));
            let _ = self.write_head(&DumpReport { complete: false, error, ..report.clone() });
        }
        // Until the whole dump has its names: no run deletes a part of it. Where there are no locks this
        // one's own budget knows.
        let _ = locks::try_lock(&self.file, locks::WHOLE);
        let path = name(&output, &folder, &self.file, &mut self.charged, &|attempt| {
            output.file_name(stem, suffix, attempt)
        })?;
        if let Err(error) = output.disk.sync_folder(&folder) {
            self.unsynced.get_or_insert(error);
        }
        Ok(Some(path))
    }

    /// Fills the reserve in.
    fn write_head(&self, report: &DumpReport) -> io::Result<()> {
        if self.format() == DumpFormat::Pcapng {
            let head = header(report, &self.descriptions(), self.head_bytes as usize);
            self.output.disk.write_at(&self.file, &head, 0)?;
        }
        Ok(())
    }

    /// Something failed after the file got its name: its header says so, if the disk accepts that.
    pub(crate) fn rewrite_head(&mut self, report: &DumpReport) {
        if !self.output.is_stream() && self.write_head(report).is_ok() {
            let _ = self.output.disk.sync(&self.file);
        }
    }

    /// It gets no name: none of its packets is kept.
    pub(crate) fn discard(&mut self, error: io::Error) {
        let lost = Tally { packets: self.packets, bytes: self.bytes, cut: self.cut, span_ns: self.span_ns };
        self.unwritten.add(&lost);
        (self.packets, self.bytes, self.cut) = (0, 0, 0);
        self.error.get_or_insert(error);
    }

    fn end_stream(&mut self, report: &DumpReport) -> io::Result<()> {
        if self.error.is_some() {
            return Ok(()); // it is in the report
        }
        let mut facts = facts(report);
        if self.out_of_order > 0 {
            facts.push_str(&format!(
                "\nout of order: {} packets came late and stand after newer ones",
                self.out_of_order
            ));
        }
        self.statistics((report.lost_min, report.lost_max), report.to_ns, &facts);
        self.flush()
    }
}

/// Gives a dump's files their names, that of `main_type` without a suffix and last: its header says what
/// became of the others. What gets no name is not kept. `restate` updates the report: what the files
/// hold, and what is missing.
pub(crate) fn publish(
    output: &Arc<DumpOutput>,
    files: &mut BTreeMap<LinkType, OutFile>,
    main_type: LinkType,
    report: &mut DumpReport,
    restate: &dyn Fn(&BTreeMap<LinkType, OutFile>, &mut DumpReport),
) {
    let stem = format!("{}_{}_{:04}", for_file_name(report.time_ns), report.trigger, report.id);
    let _publishing = output.budget.as_ref().map(|budget| budget.publish(&stem));
    let others: Vec<LinkType> = files.keys().copied().filter(|link_type| *link_type != main_type).collect();
    let mut named = Vec::new();
    for link_type in others.into_iter().chain([main_type]) {
        let Some(file) = files.get_mut(&link_type) else { continue };
        let suffix = (link_type != main_type).then(|| link_type.name());
        match file.publish(report, &stem, suffix.as_deref()) {
            Ok(path) => {
                let path = path.map(|path| std::path::absolute(&path).unwrap_or(path));
                let at = if link_type == main_type { 0 } else { report.paths.len() };
                if let Some(path) = path {
                    report.paths.insert(at, path);
                }
                named.push(link_type);
            }
            Err(error) => file.discard(io::Error::new(error.kind(), format!("{stem}: {error}"))),
        }
        restate(files, report);
    }
    if report.error.is_some() {
        // What was named before something else failed says so, too.
        for link_type in named {
            if let Some(file) = files.get_mut(&link_type) {
                file.rewrite_head(report);
            }
        }
    }
    let facts_charged = files.values_mut().find_map(|file| file.facts_charged.take());
    if output.format == DumpFormat::Pcap
        && let Some(main) = report.paths.first()
        && let Err(error) = publish_facts(output, main, report, facts_charged)
    {
        report.complete = false;
        report.error.get_or_insert(output.fault(format!("{stem}: {error}")));
    }
}

/// Into a pipe for which no dump came: a header and the interfaces that are known, so that its reader sees a
/// capture without packets. `fallback` is the link type where nothing was received.
///
/// # Errors
/// The system's.
pub fn write_nothing(output: &Arc<DumpOutput>, ring: &Ring, fallback: LinkType) -> io::Result<()> {
    let link_type = if ring.lanes() > 0 { ring.lane_info(0).link_type } else { fallback };
    let evidence = Arc::<Evidence>::default();
    let mut file = OutFile::create(
        output,
        ring,
        link_type,
        &evidence,
        &Arc::default(),
        "no dump was made: no trigger fired",
    )?;
    file.finish_packets(ring, ring.interface_of(link_type), (0, 0), 0);
    file.error.map_or(Ok(()), Err)
}

/// Writes the facts that a pcap file can't hold into a text file beside it; `main` is that file, `charged`
/// has [`FACTS_BYTES`].
fn publish_facts(
    output: &DumpOutput,
    main: &Path,
    report: &DumpReport,
    charged: Option<Charged>,
) -> io::Result<()> {
    let Some(folder) = output.folder() else { return Ok(()) };
    let text = format!("{APPLICATION}\n{}\n", facts(report));
    let bytes = text.len() as u64;
    let (mut charged, has) =
        charged.map_or_else(|| (Charged::to(&output.budget), 0), |charged| (charged, FACTS_BYTES));
    if bytes > has {
        charged.charge(bytes - has)?;
    }
    let file = output.disk.unnamed(folder)?;
    output.disk.write(&file, text.as_bytes())?;
    output.disk.sync(&file)?;
    let beside = Path::new(main.file_name().unwrap_or_default()).with_extension(FACTS);
    name(output, folder, &file, &mut charged, &|attempt| numbered(&beside, attempt))?;
    output.disk.sync_folder(folder)
}

/// Gives a file the first of its possible names that isn't taken.
fn name(
    output: &DumpOutput,
    folder: &Folder,
    file: &File,
    charged: &mut Charged,
    names: &dyn Fn(u32) -> PathBuf,
) -> io::Result<PathBuf> {
    let bytes = file.metadata()?.len();
    let first = names(1);
    let named = charged.name(bytes, || {
        for attempt in 1..=NAMES_MAX {
            let name = names(attempt);
            match output.disk.give_name(folder, file, name.as_os_str()) {
                Err(taken) if taken.kind() == io::ErrorKind::AlreadyExists => continue,
                Err(other) => return Err(other),
                Ok(()) => return Ok(name),
            }
        }
        let text = format!("{} and {NAMES_MAX} names like it exist already", first.display());
        Err(io::Error::new(io::ErrorKind::AlreadyExists, text))
    })?;
    Ok(path_now(folder).join(named))
}

/// Where the folder is by now: it may have been moved since it was opened.
fn path_now(folder: &Folder) -> PathBuf {
    let link = format!("/proc/self/fd/{}", folder.as_fd().as_raw_fd());
    let now = std::fs::read_link(link).ok().filter(|path| path.is_dir());
    now.unwrap_or_else(|| folder.path().to_path_buf())
}

/// A file that has no name yet, where the dump's files go.
fn unnamed(output: &DumpOutput) -> io::Result<File> {
    output.disk.unnamed(output.folder().ok_or_else(|| io::Error::other("a pipe has no folder"))?)
}

#[cfg(test)]
mod tests;
