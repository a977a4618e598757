//! A dump's files: one per link type, unnamed while they are written, named by one atomic act when they are whole.
//!
//! ```text
//!  | reserved header 16 KiB | IDB of the first interface | EPB | EPB | IDB of the next | EPB ... | ISB per interface |
//! ```
//! Interfaces are numbered by first use; the four bytes of a packet block that name its interface are all that is patched.
//! With a second interface, some link types change to the number that libpcap reads in such files ([`LinkType::alias`]).
//! A file that can't be written any more (a full disk) keeps its whole blocks, is closed and named, and says what it lacks.

use crate::header::{HEADER_BYTES, header};
use crate::late::LateRun;
use crate::merge::Place;
use crate::report::DumpReport;
use scope_packet::pcapng::{BLOCK_BYTES_MIN, PacketBlock};
use scope_packet::{LinkType, pcapng};
use scope_ring::Ring;
use scope_store::Folder;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;

/// Bytes gathered before they are written.
const BUFFER_BYTES: usize = 256 << 10;
/// Where the first interface's link type stands: the first block behind the header describes it.
const FIRST_LINK_TYPE_AT: u64 = HEADER_BYTES as u64 + 8;
/// Names tried for one file before giving up.
const NAMES_MAX: u32 = 1000;

/// One output file.
pub(crate) struct OutFile {
    link_type: LinkType,
    folder: Arc<Folder>,
    file: File,
    buffer: Vec<u8>,
    /// Bytes that are in the file for sure, whole blocks.
    written: u64,
    /// The run's interface number to the file's own, and packets written of it.
    interfaces: BTreeMap<u32, (u32, u64)>,
    last: Option<Place>,
    late: Option<LateRun>,
    pub packets: u64,
    pub bytes: u64,
    /// Packets that couldn't be written, and the smallest and largest of their times.
    pub unwritten: u64,
    pub unwritten_span: Option<(i64, i64)>,
    pub error: Option<io::Error>,
}

impl OutFile {
    pub(crate) fn create(folder: &Arc<Folder>, link_type: LinkType) -> io::Result<OutFile> {
        let file = folder.unnamed()?;
        Ok(OutFile {
            link_type,
            folder: folder.clone(),
            file,
            buffer: vec![0; HEADER_BYTES],
            written: 0,
            interfaces: BTreeMap::new(),
            last: None,
            late: None,
            packets: 0,
            bytes: 0,
            unwritten: 0,
            unwritten_span: None,
            error: None,
        })
    }

    pub(crate) fn link_type(&self) -> LinkType {
        self.link_type
    }

    /// Writes one packet's block to its place.
    pub(crate) fn write(&mut self, ring: &Ring, place: Place, block: &[u8]) {
        if self.error.is_some() {
            self.note_unwritten(place.time_ns);
            return;
        }
        let number = self.interface(ring, pcapng::le32(block, 8));
        let result = if self.last.is_some_and(|last| place < last) {
            self.write_late(place, block, number)
        } else {
            self.last = Some(place);
            let at = self.buffer.len();
            self.buffer.extend(block);
            self.buffer[at + 8..at + 12].copy_from_slice(&number.to_le_bytes());
            if self.buffer.len() >= BUFFER_BYTES { self.flush() } else { Ok(()) }
        };
        self.packets += 1;
        self.bytes += pcapng::le32(block, 20) as u64;
        if let Err(error) = result {
            self.fail(error);
        }
    }

    fn write_late(&mut self, place: Place, block: &[u8], number: u32) -> io::Result<()> {
        if self.late.is_none() {
            self.late = Some(LateRun::new(self.folder.unnamed()?));
        }
        let mut patched = block.to_vec();
        patched[8..12].copy_from_slice(&number.to_le_bytes());
        match &mut self.late {
            Some(late) => late.push(place, &patched),
            None => Ok(()),
        }
    }

    /// The file's own number of an interface; its description is written at first use.
    fn interface(&mut self, ring: &Ring, run_number: u32) -> u32 {
        let own = self.interfaces.len() as u32;
        let entry = self.interfaces.entry(run_number).or_insert_with(|| {
            // The first one's number is put right when the header is patched.
            let number = if own == 0 { self.link_type } else { self.link_type.alias().unwrap_or(self.link_type) };
            describe(&mut self.buffer, ring, run_number, number);
            (own, 0)
        });
        entry.1 += 1;
        entry.0
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.write_all(&self.buffer)?;
        self.written += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }

    /// Gives up: what is whole on disk stays, the rest counts as unwritten.
    fn fail(&mut self, error: io::Error) {
        let buffer = std::mem::take(&mut self.buffer);
        let mut rest = &buffer[..];
        while rest.len() >= BLOCK_BYTES_MIN {
            if let Some(block) = PacketBlock::first(rest) {
                self.note_unwritten(block.time_ns());
                self.packets = self.packets.saturating_sub(1);
                self.bytes = self.bytes.saturating_sub(block.data().len() as u64);
            }
            rest = rest.get(pcapng::le32(rest, 4).max(BLOCK_BYTES_MIN as u32) as usize..).unwrap_or(&[]);
        }
        let _ = self.file.set_len(self.written);
        self.error = Some(error);
    }

    fn note_unwritten(&mut self, time_ns: i64) {
        self.unwritten += 1;
        self.unwritten_span = Some(match self.unwritten_span {
            None => (time_ns, time_ns),
            Some((from_ns, to_ns)) => (from_ns.min(time_ns), to_ns.max(time_ns)),
        });
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
        if self.interfaces.is_empty() {
            let run_number = fallback.unwrap_or(u32::MAX);
            describe(&mut self.buffer, ring, run_number, self.link_type);
            self.interfaces.insert(run_number, (0, 0));
        }
        self.flush()?;
        if let Some(late) = self.late.take() {
            let merged = self.folder.unnamed()?;
            let mut out = io::BufWriter::with_capacity(BUFFER_BYTES, merged);
            late.merge_into(&mut self.file, HEADER_BYTES as u64, &mut out)?;
            self.file = out.into_inner().map_err(|error| error.into_error())?;
            self.written = self.file.metadata()?.len();
        }
        // The packets that this file has and those that it may lack; the latter stand with its first interface.
        for (own, packets) in self.interfaces.values() {
            let dropped = if *own == 0 { lost.1 } else { 0 };
            pcapng::statistics(&mut self.buffer, *own, end_ns, packets + dropped, dropped);
        }
        self.flush()
    }

    /// Patches the header and gives the file its name; the name.
    pub(crate) fn publish(mut self, report: &DumpReport, stem: &str) -> io::Result<PathBuf> {
        if self.written < HEADER_BYTES as u64 {
            return Err(self.error.take().unwrap_or_else(|| io::Error::other("nothing could be written")));
        }
        self.file.write_all_at(&header(report), 0)?;
        if let Some(alias) = self.link_type.alias().filter(|_| self.interfaces.len() > 1) {
            self.file.write_all_at(&alias.0.to_le_bytes(), FIRST_LINK_TYPE_AT)?;
        }
        self.file.sync_data()?;
        for attempt in 1..=NAMES_MAX {
            let again = if attempt == 1 { String::new() } else { format!("-{attempt}") };
            let name = format!("{stem}{again}.pcapng");
            match self.folder.give_name(&self.file, OsStr::new(&name)) {
                Err(taken) if taken.kind() == io::ErrorKind::AlreadyExists => continue,
                Err(other) => return Err(other),
                Ok(()) => return Ok(self.folder.path().join(name)),
            }
        }
        Err(io::Error::new(io::ErrorKind::AlreadyExists, format!("{stem}.pcapng and {NAMES_MAX} names like it are taken")))
    }
}

fn describe(out: &mut Vec<u8>, ring: &Ring, run_number: u32, link_type: LinkType) {
    match ring.interface(run_number) {
        Some(entry) => pcapng::interface(out, link_type, &entry.name, &entry.description),
        None => pcapng::interface(out, link_type, "none", "no packet was received"),
    }
}
