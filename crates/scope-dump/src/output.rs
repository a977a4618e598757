//! A dump's files: one per link type, unnamed while they are written, named by one atomic act when they are whole.
//!
//! ```text
//!  | reserved header 16 KiB | IDB of the first interface | EPB | EPB | IDB of the next | EPB ... | ISB per interface |
//! ```
//! Interfaces are numbered by first use; the four bytes of a packet block that name its interface are all that is patched.
//! With a second interface, some link types change to the number that libpcap reads in such files ([`LinkType::alias`]).
//! A file that can't be written any more (a full disk, a budget that is used up) keeps its whole blocks, is closed and named, and
//! says what it lacks.
//!
//! Into a pipe everything goes as it comes: a short header, packets that come too late for their place behind it, and at the end
//! the facts, in the statistics blocks. A reader that goes away ends it.

use crate::budget::Charged;
use crate::form::DumpFormat;
use crate::header::{HEADER_BYTES, facts, header};
use crate::late::LateRun;
use crate::mark::{APPLICATION, FACTS};
use crate::merge::Place;
use crate::report::DumpReport;
use crate::target::{DumpOutput, Target, numbered};
use scope_packet::{LinkType, pcapng};
use scope_ring::Ring;
use scope_store::Folder;
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Bytes gathered before they are written.
const BUFFER_BYTES: usize = 256 << 10;
/// Where the first interface's link type stands: the first block behind the header describes it.
const FIRST_LINK_TYPE_AT: u64 = HEADER_BYTES as u64 + 8;
/// Names tried for one file before giving up.
const NAMES_MAX: u32 = 1000;

/// Packets, their bytes, and the smallest and largest of their times.
#[derive(Default)]
pub(crate) struct Tally {
    pub packets: u64,
    bytes: u64,
    /// Of the packets: shorter than on the wire, and not by a snap length.
    cut: u64,
    pub span_ns: Option<(i64, i64)>,
}

impl Tally {
    fn add(&mut self, other: &Tally) {
        self.packets += other.packets;
        self.bytes += other.bytes;
        self.cut += other.cut;
        self.span_ns = self.span_ns.into_iter().chain(other.span_ns).reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)));
    }
}

/// An interface in a file.
struct Described {
    /// Its number there.
    number: u32,
    /// Packets of it.
    packets: u64,
    /// Bytes of a packet that were asked for; 0: all.
    snap_len: u32,
}

/// One output file.
pub(crate) struct OutFile {
    link_type: LinkType,
    output: Arc<DumpOutput>,
    file: File,
    buffer: Vec<u8>,
    /// What of the buffer is packets.
    buffered: Tally,
    /// Bytes that are in the file for sure, whole blocks.
    written: u64,
    charged: Charged,
    /// By the run's interface number.
    interfaces: BTreeMap<u32, Described>,
    last: Option<Place>,
    late: Option<LateRun>,
    /// What the late run holds.
    late_tally: Tally,
    /// Packets that stand behind their place, in a pipe.
    out_of_order: u64,
    pub packets: u64,
    pub bytes: u64,
    /// Packets written that are shorter than they were on the wire, and not by a snap length.
    pub cut: u64,
    /// Packets that couldn't be written.
    pub unwritten: Tally,
    pub error: Option<io::Error>,
}

impl OutFile {
    /// `intro` is what is known of the dump by now: a pipe is told at once.
    pub(crate) fn create(output: &Arc<DumpOutput>, link_type: LinkType, intro: &DumpReport) -> io::Result<OutFile> {
        let file = match &output.target {
            Target::Folder(folder) | Target::File { folder, .. } => output.disk.unnamed(folder)?,
            Target::Stream(stream) => stream.try_clone()?,
        };
        let mut buffer = output.format.head(link_type);
        if output.is_stream() && output.format == DumpFormat::Pcapng {
            buffer.clear();
            pcapng::section_header(&mut buffer, APPLICATION, &crate::header::intro(intro));
        }
        Ok(OutFile {
            link_type,
            output: output.clone(),
            file,
            buffer,
            buffered: Tally::default(),
            written: 0,
            charged: Charged::to(&output.budget),
            interfaces: BTreeMap::new(),
            last: None,
            late: None,
            late_tally: Tally::default(),
            out_of_order: 0,
            packets: 0,
            bytes: 0,
            cut: 0,
            unwritten: Tally::default(),
            error: None,
        })
    }

    pub(crate) fn link_type(&self) -> LinkType {
        self.link_type
    }

    fn format(&self) -> DumpFormat {
        self.output.format
    }

    /// Writes one packet's block to its place.
    pub(crate) fn write(&mut self, ring: &Ring, place: Place, block: &[u8]) {
        let (len, original_len) = (pcapng::le32(block, 20), pcapng::le32(block, 24));
        let span_ns = Some((place.time_ns, place.time_ns));
        let mut tally = Tally { packets: 1, bytes: len.into(), cut: 0, span_ns };
        if self.error.is_some() || !self.format().holds(place.time_ns) {
            return self.unwritten.add(&tally);
        }
        let (number, snap_len) = self.interface(ring, pcapng::le32(block, 8));
        tally.cut = u64::from(len < original_len && (snap_len == 0 || len < snap_len));
        self.packets += 1;
        self.bytes += tally.bytes;
        self.cut += tally.cut;
        let is_late = self.last.is_some_and(|last| place < last);
        let result = if is_late && !self.output.is_stream() {
            self.late_tally.add(&tally);
            self.write_late(place, block, number)
        } else {
            self.out_of_order += u64::from(is_late);
            self.last = self.last.max(Some(place));
            self.format().packet(&mut self.buffer, block, number);
            self.buffered.add(&tally);
            if self.buffer.len() >= BUFFER_BYTES { self.flush() } else { Ok(()) }
        };
        if let Err(error) = result {
            self.fail(error);
        }
    }

    fn write_late(&mut self, place: Place, block: &[u8], number: u32) -> io::Result<()> {
        if self.late.is_none() {
            self.late = Some(LateRun::new(unnamed(&self.output)?));
        }
        let mut record = Vec::with_capacity(block.len());
        self.format().packet(&mut record, block, number);
        self.charged.charge(record.len() as u64)?;
        match &mut self.late {
            Some(late) => late.push(place, &record),
            None => Ok(()),
        }
    }

    /// The file's own number of an interface, and its snap length; its description is written at first use.
    fn interface(&mut self, ring: &Ring, run_number: u32) -> (u32, u32) {
        let own = self.interfaces.len() as u32;
        let entry = self.interfaces.entry(run_number).or_insert_with(|| {
            // The first one's number is put right when the header is patched; in a pipe nothing is.
            let keeps = own == 0 && !self.output.is_stream();
            let number = if keeps { self.link_type } else { self.link_type.alias().unwrap_or(self.link_type) };
            if self.output.format == DumpFormat::Pcapng {
                describe(&mut self.buffer, ring, run_number, number);
            }
            Described { number: own, packets: 0, snap_len: ring.interface(run_number).map_or(0, |entry| entry.snap_len) }
        });
        entry.packets += 1;
        (entry.number, entry.snap_len)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.charged.charge(self.buffer.len() as u64)?;
        self.output.disk.write(&self.file, &self.buffer)?;
        self.written += self.buffer.len() as u64;
        self.buffer.clear();
        self.buffered = Tally::default();
        Ok(())
    }

    /// Hands what there is to the reader of a pipe, while nothing else is to be done.
    pub(crate) fn hand_on(&mut self) {
        if self.output.is_stream()
            && self.error.is_none()
            && self.buffered.packets > 0
            && let Err(error) = self.flush()
        {
            self.fail(error);
        }
    }

    /// Whether the pipe takes nothing more.
    pub(crate) fn reader_gone(&self) -> bool {
        self.output.is_stream() && self.error.is_some()
    }

    /// Gives up: what is whole on disk stays, the rest counts as unwritten.
    fn fail(&mut self, error: io::Error) {
        self.buffer = Vec::new();
        for lost in [std::mem::take(&mut self.buffered), std::mem::take(&mut self.late_tally)] {
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

    /// Why packets aren't in the file.
    pub(crate) fn complaint(&self) -> Option<String> {
        let beyond = (self.unwritten.packets > 0)
            .then(|| "packets after 2106-02-07 don't fit into a pcap file; write --dump-format pcapng".to_string());
        self.error.as_ref().map(io::Error::to_string).or(beyond)
    }

    /// Ends the packets: an interface where there is none, late packets merged in, statistics.
    pub(crate) fn finish_packets(&mut self, ring: &Ring, fallback: Option<u32>, lost: (u64, u64), end_ns: i64) {
        if self.error.is_some() {
            return;
        }
        let result = self.try_finish_packets(ring, fallback, lost, end_ns);
        if let Err(error) = result {
            self.fail(error);
        }
    }

    fn try_finish_packets(&mut self, ring: &Ring, fallback: Option<u32>, lost: (u64, u64), end_ns: i64) -> io::Result<()> {
        if self.interfaces.is_empty() && self.format() == DumpFormat::Pcapng {
            let run_number = fallback.unwrap_or(u32::MAX);
            describe(&mut self.buffer, ring, run_number, self.link_type);
            self.interfaces.insert(run_number, Described { number: 0, packets: 0, snap_len: 0 });
        }
        self.flush()?;
        if let Some(late) = self.late.take() {
            let mut out = io::BufWriter::with_capacity(BUFFER_BYTES, unnamed(&self.output)?);
            late.merge_into(&mut self.file, self.output.format, &mut out)?;
            self.file = out.into_inner().map_err(|error| error.into_error())?;
            self.written = self.file.metadata()?.len();
            self.late_tally = Tally::default();
        }
        if self.output.is_stream() {
            return Ok(()); // its statistics come with the facts
        }
        self.statistics(lost, end_ns, "");
        self.flush()
    }

    /// The packets that this file has and those that it may lack; the latter, and the facts, stand with its first interface.
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

    /// Patches the header and gives the file its name; where it is. A pipe is told the facts, and has no name.
    pub(crate) fn publish(mut self, report: &DumpReport, stem: &str, suffix: Option<&str>) -> io::Result<Option<PathBuf>> {
        let Some(folder) = self.output.folder().cloned() else {
            return self.end_stream(report).map(|()| None);
        };
        if self.written < self.format().head_bytes() {
            return Err(self.error.take().unwrap_or_else(|| io::Error::other("nothing could be written")));
        }
        if self.format() == DumpFormat::Pcapng {
            let disk = &self.output.disk;
            disk.write_at(&self.file, &header(report), 0)?;
            if let Some(alias) = self.link_type.alias().filter(|_| self.interfaces.len() > 1) {
                disk.write_at(&self.file, &alias.0.to_le_bytes(), FIRST_LINK_TYPE_AT)?;
            }
        }
        self.output.disk.sync(&self.file)?;
        let output = self.output.clone();
        let path = name(&output, &folder, &self.file, &mut self.charged, &|attempt| output.file_name(stem, suffix, attempt))?;
        Ok(Some(path))
    }

    fn end_stream(&mut self, report: &DumpReport) -> io::Result<()> {
        if self.error.is_some() {
            return Ok(()); // it is in the report
        }
        let mut facts = facts(report);
        if self.out_of_order > 0 {
            facts.push_str(&format!("\nout of order: {} packets came too late for their place", self.out_of_order));
        }
        self.statistics((report.lost_min, report.lost_max), report.to_ns, &facts);
        self.flush()
    }
}

/// Writes the facts that a pcap file can't hold into a text file beside it; `main` is that file.
pub(crate) fn publish_facts(output: &DumpOutput, main: &Path, report: &DumpReport) -> io::Result<()> {
    let Some(folder) = output.folder() else { return Ok(()) };
    let text = format!("{APPLICATION}\n{}\n", facts(report));
    let mut charged = Charged::to(&output.budget);
    charged.charge(text.len() as u64)?;
    let file = output.disk.unnamed(folder)?;
    output.disk.write(&file, text.as_bytes())?;
    output.disk.sync(&file)?;
    let beside = Path::new(main.file_name().unwrap_or_default()).with_extension(FACTS);
    name(output, folder, &file, &mut charged, &|attempt| numbered(&beside, attempt)).map(drop)
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
        let text = format!("{} and {NAMES_MAX} names like it are taken", first.display());
        Err(io::Error::new(io::ErrorKind::AlreadyExists, text))
    })?;
    Ok(place(folder).join(named))
}

/// Where the folder is by now: it may have been moved since it was opened.
fn place(folder: &Folder) -> PathBuf {
    let link = format!("/proc/self/fd/{}", folder.as_fd().as_raw_fd());
    let now = std::fs::read_link(link).ok().filter(|path| path.is_dir());
    now.unwrap_or_else(|| folder.path().to_path_buf())
}

/// A file that has no name yet, where the dump's files go.
fn unnamed(output: &DumpOutput) -> io::Result<File> {
    output.disk.unnamed(output.folder().ok_or_else(|| io::Error::other("a pipe has no folder"))?)
}

fn describe(out: &mut Vec<u8>, ring: &Ring, run_number: u32, link_type: LinkType) {
    match ring.interface(run_number) {
        Some(entry) => pcapng::interface(out, link_type, &entry.name, &entry.description),
        None => pcapng::interface(out, link_type, "none", "no packet was received"),
    }
}
