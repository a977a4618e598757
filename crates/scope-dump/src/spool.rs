//! The spool: a file without a name, in which the dumps of a run gather their packets until these are written
//! into one file.
//!
//! ```text
//! dump ─► records, in order of (time, lane, packet number) ─► chunks; a late packet begins a new run
//! end  ─► runs merged by position; a packet of several windows has one position, and is handed out once
//! ```
//! A record is a position (time 8, lane 4, packet number 8), link type 2, length of the block 4, number of
//! comments 2, then the block as it stands in the ring, and each comment behind its length (4). Numbers are
//! little-endian. Nothing else ever reads a spool.

use crate::disk::Disk;
use crate::joint::Joint;
use crate::merge::Position;
use crate::progress::Progress;
use crate::report::DumpReport;
use crate::tally::Tally;
use scope_packet::LinkType;
use scope_packet::pcapng::le32;
use scope_ring::Interfaces;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Bytes that one dump gathers before they go into the spool.
const BUFFER_BYTES: usize = 256 << 10;
/// Bytes of a record in front of its block.
const HEAD_BYTES: usize = 28;
/// Runs of one spool at most; beyond, late packets are not stored.
const RUNS_MAX: usize = 1 << 20;
/// Names of triggers that the header of the one file has.
pub(crate) const NAMES_MAX: usize = 8;
/// Times of hits that it has.
const HITS_MAX: usize = 1000;

/// What all dumps of a run gather.
#[derive(Debug)]
pub struct Spool {
    file: File,
    disk: Arc<dyn Disk>,
    gathered: Mutex<Gathered>,
}

#[derive(Debug, Default)]
pub(crate) struct Gathered {
    bytes: u64,
    pub runs: Vec<Run>,
    /// Windows whose report was added.
    pub windows: u64,
    /// Packets that are in the spool; one that several windows have counts for each of them.
    pub packets: u64,
    /// Names of triggers, one more than [`NAMES_MAX`] at most.
    pub triggers: BTreeSet<String>,
    pub lacks: Joint,
    /// What is known of all windows together.
    pub report: Option<DumpReport>,
}

/// Records in order.
#[derive(Debug)]
pub(crate) struct Run {
    first: Position,
    /// Where in the spool, and how many bytes.
    chunks: Vec<(u64, usize)>,
}

impl Spool {
    /// Gathers in `file`, which nobody else writes.
    pub fn new(file: File, disk: Arc<dyn Disk>) -> Arc<Spool> {
        Arc::new(Spool { file, disk, gathered: Mutex::default() })
    }

    fn lock(&self) -> MutexGuard<'_, Gathered> {
        // A thread that failed reports its window from here while it unwinds.
        self.gathered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds the report of one window, also of one that no thread wrote.
    pub fn add(&self, report: &DumpReport) {
        let mut state = self.lock();
        state.windows += 1;
        state.packets += report.packets;
        if state.triggers.len() <= NAMES_MAX {
            state.triggers.insert(report.trigger.clone());
        }
        state.lacks.add(report.asked, &report.gaps);
        let Some(all) = &mut state.report else {
            let hits_ns = report.hits_ns.clone();
            state.report = Some(DumpReport {
                id: 1,
                filter: String::new(),
                paths: Vec::new(),
                hits_ns,
                ..report.clone()
            });
            return;
        };
        let joined = |a: (i64, i64), b: (i64, i64)| (a.0.min(b.0), a.1.max(b.1));
        all.asked = joined(all.asked, report.asked);
        (all.from_ns, all.to_ns) = joined((all.from_ns, all.to_ns), (report.from_ns, report.to_ns));
        all.time_ns = all.time_ns.min(report.time_ns);
        all.hits += report.hits;
        let room = HITS_MAX.saturating_sub(all.hits_ns.len());
        all.hits_ns.extend(report.hits_ns.iter().take(room));
        all.complete &= report.complete;
        // At most: each lacks others. At least follows from all gaps, in the end.
        all.lost_max = all.lost_max.saturating_add(report.lost_max);
        all.error = all.error.take().or(report.error.clone());
    }

    /// What was gathered; the spool forgets it.
    pub(crate) fn take(&self) -> Gathered {
        std::mem::take(&mut *self.lock())
    }

    /// Reads all runs in the order of their positions; each packet goes out once.
    pub(crate) fn merge(&self, mut runs: Vec<Run>, mut write: impl FnMut(&Record)) -> io::Result<()> {
        // The last one begins first: only runs that overlap are open at once.
        runs.sort_by_key(|run| Reverse(run.first));
        let mut open: BTreeMap<usize, Reader> = BTreeMap::new();
        let mut heap: BinaryHeap<Reverse<(Position, usize)>> = BinaryHeap::new();
        let mut number = 0;
        let mut held: Option<Record> = None;
        loop {
            while let Some(run) =
                runs.pop_if(|run| heap.peek().is_none_or(|Reverse((next, _))| run.first <= *next))
            {
                let mut reader = Reader::new(run);
                if reader.next(&self.file)? {
                    heap.push(Reverse((reader.record.position, number)));
                    open.insert(number, reader);
                    number += 1;
                }
            }
            let Some(Reverse((_, from))) = heap.pop() else { break };
            let Some(reader) = open.get_mut(&from) else { continue };
            let record = std::mem::take(&mut reader.record);
            match &mut held {
                Some(same) if same.position == record.position => same.join(record),
                _ => {
                    if let Some(done) = held.replace(record) {
                        write(&done);
                    }
                }
            }
            match reader.next(&self.file)? {
                true => heap.push(Reverse((reader.record.position, from))),
                false => drop(open.remove(&from)),
            }
        }
        if let Some(last) = &held {
            write(last);
        }
        Ok(())
    }
}

/// One packet of the spool.
#[derive(Debug)]
pub(crate) struct Record {
    pub position: Position,
    pub link_type: LinkType,
    pub block: Vec<u8>,
    pub comments: Vec<String>,
}

impl Default for Record {
    fn default() -> Record {
        let position = Position { time_ns: 0, lane: 0, packet: 0 };
        Record { position, link_type: LinkType::ETHERNET, block: Vec::new(), comments: Vec::new() }
    }
}

impl Record {
    /// Adds what another window says of the same packet: which trigger fired there.
    fn join(&mut self, other: Record) {
        for comment in other.comments {
            if !self.comments.contains(&comment) {
                self.comments.push(comment);
            }
        }
    }
}

/// Reads a run.
struct Reader {
    chunks: std::vec::IntoIter<(u64, usize)>,
    bytes: Vec<u8>,
    at: usize,
    record: Record,
}

impl Reader {
    fn new(run: Run) -> Reader {
        Reader { chunks: run.chunks.into_iter(), bytes: Vec::new(), at: 0, record: Record::default() }
    }

    /// Reads the next record; whether there was one.
    fn next(&mut self, spool: &File) -> io::Result<bool> {
        if self.at >= self.bytes.len() {
            let Some((offset, len)) = self.chunks.next() else { return Ok(false) };
            self.bytes.resize(len, 0);
            spool.read_exact_at(&mut self.bytes, offset)?;
            self.at = 0;
        }
        let damaged = || io::Error::new(io::ErrorKind::InvalidData, "a record is damaged");
        let mut take = |len: usize| {
            let taken = self.bytes.get(self.at..self.at + len).ok_or_else(damaged)?;
            self.at += len;
            Ok::<&[u8], io::Error>(taken)
        };
        let head: [u8; HEAD_BYTES] = take(HEAD_BYTES)?.try_into().map_err(|_| damaged())?;
        let time_ns = i64::from_le_bytes(head[..8].try_into().map_err(|_| damaged())?);
        let packet = u64::from_le_bytes(head[12..20].try_into().map_err(|_| damaged())?);
        let half = |at: usize| u16::from_le_bytes([head[at], head[at + 1]]);
        let block = take(le32(&head, 22) as usize)?.to_vec();
        let mut comments = Vec::new();
        for _ in 0..half(26) {
            let len = le32(take(4)?, 0) as usize;
            comments.push(String::from_utf8_lossy(take(len)?).into_owned());
        }
        let position = Position { time_ns, lane: le32(&head, 8), packet };
        self.record = Record { position, link_type: LinkType(half(20)), block, comments };
        Ok(true)
    }
}

/// What one dump gathers.
pub(crate) struct Gathering {
    spool: Arc<Spool>,
    buffer: Vec<u8>,
    buffered: Tally,
    /// The run that is being written, and its packets that are in the spool.
    chunks: Vec<(u64, usize)>,
    spooled: Tally,
    first: Option<Position>,
    last: Option<Position>,
    /// What is in the spool, or about to be.
    pub gathered: Tally,
    /// What couldn't be written.
    pub unwritten: Tally,
    pub error: Option<io::Error>,
    progress: Arc<Progress>,
}

impl Gathering {
    /// Into `spool`; `progress` measures the waits for its disk.
    pub fn new(spool: &Arc<Spool>, progress: &Arc<Progress>) -> Gathering {
        Gathering {
            spool: spool.clone(),
            progress: progress.clone(),
            buffer: Vec::new(),
            buffered: Tally::default(),
            chunks: Vec::new(),
            spooled: Tally::default(),
            first: None,
            last: None,
            gathered: Tally::default(),
            unwritten: Tally::default(),
            error: None,
        }
    }

    /// Adds a packet.
    pub fn write(
        &mut self,
        interfaces: &dyn Interfaces,
        position: Position,
        link_type: LinkType,
        block: &[u8],
        comments: &[String],
    ) {
        let number = interfaces.number_of(position.lane, le32(block, 8));
        let snap_len = interfaces.interface(number).map_or(0, |entry| entry.snap_len);
        let tally = Tally::of(position.time_ns, block, snap_len);
        if self.last.is_some_and(|last| position < last) {
            self.end_run();
        }
        if self.error.is_some() {
            return self.unwritten.add(&tally);
        }
        self.first.get_or_insert(position);
        self.last = Some(position);
        self.buffer.extend(position.time_ns.to_le_bytes());
        self.buffer.extend(position.lane.to_le_bytes());
        self.buffer.extend(position.packet.to_le_bytes());
        self.buffer.extend(link_type.0.to_le_bytes());
        self.buffer.extend((block.len() as u32).to_le_bytes());
        self.buffer.extend((comments.len() as u16).to_le_bytes());
        self.buffer.extend(block);
        for comment in comments.iter().take(u16::MAX.into()) {
            self.buffer.extend((comment.len() as u32).to_le_bytes());
            self.buffer.extend(comment.as_bytes());
        }
        self.buffered.add(&tally);
        self.gathered.add(&tally);
        if self.buffer.len() >= BUFFER_BYTES {
            self.flush();
        }
    }

    /// Puts everything into the spool.
    pub fn end(&mut self) {
        self.end_run();
    }

    fn end_run(&mut self) {
        self.flush();
        let (chunks, spooled) = (std::mem::take(&mut self.chunks), std::mem::take(&mut self.spooled));
        self.last = None;
        if let Some(first) = self.first.take().filter(|_| !chunks.is_empty()) {
            let mut state = self.spool.lock();
            if state.runs.len() >= RUNS_MAX {
                self.error.get_or_insert_with(|| {
                    io::Error::other("the spool (a temporary file) has no room for more late packets")
                });
                self.gathered.subtract(&spooled);
                self.unwritten.add(&spooled);
            } else {
                state.runs.push(Run { first, chunks });
            }
        }
    }

    fn flush(&mut self) {
        if self.buffer.is_empty() {
            return;
        }
        let len = self.buffer.len();
        let offset = {
            let mut state = self.spool.lock();
            state.bytes += len as u64;
            state.bytes - len as u64
        };
        let buffered = std::mem::take(&mut self.buffered);
        match self.progress.wait(|| self.spool.disk.write_at(&self.spool.file, &self.buffer, offset)) {
            Ok(()) => {
                self.chunks.push((offset, len));
                self.spooled.add(&buffered);
            }
            Err(error) => {
                self.gathered.subtract(&buffered);
                self.unwritten.add(&buffered);
                self.error = Some(error);
            }
        }
        self.buffer.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::SystemDisk;
    use scope_ring::Ring;

    #[test]
    fn records_come_back_in_order_from_runs_that_overlap_each_place_once() {
        let spool = Spool::new(tempfile::tempfile().unwrap(), Arc::new(SystemDisk));
        let (ring_bytes, segment_bytes) = (16 * (64 << 10), Some(64 << 10));
        let ring = Ring::create(&scope_ring::RingConfig {
            ring_bytes,
            segment_bytes,
            workers: 1,
            lanes: 1,
            run_id: [3; 16],
        })
        .unwrap();
        let position = |time_ns, packet| Position { time_ns, lane: 0, packet };
        let mut block = vec![0u8; 32];
        block[20] = 4;
        let dump = |packets: &[u64], comment: &str| {
            let mut gathering = Gathering::new(&spool, &Arc::default());
            for &packet in packets {
                let comments = if packet == 3 { vec![comment.to_string()] } else { Vec::new() };
                gathering.write(
                    &*ring,
                    position(packet as i64, packet),
                    LinkType::ETHERNET,
                    &block,
                    &comments,
                );
            }
            gathering.end();
            assert!(gathering.error.is_none() && gathering.gathered.packets == packets.len() as u64);
        };
        dump(&[1, 2, 3, 6, 4, 5], "a"); // 4 comes too late
        dump(&[3, 4, 9], "b");
        dump(&[], "c");
        let runs = std::mem::take(&mut spool.lock().runs);
        assert_eq!(runs.len(), 3);
        let mut found = Vec::new();
        let mut readers: Vec<Reader> = runs.into_iter().map(Reader::new).collect();
        for reader in &mut readers {
            while reader.next(&spool.file).unwrap() {
                found.push((reader.record.position.packet, reader.record.comments.clone()));
            }
        }
        let packets: Vec<u64> = found.iter().map(|(packet, _)| *packet).collect();
        assert_eq!(packets, [1, 2, 3, 6, 4, 5, 3, 4, 9]);
        assert_eq!(found[2].1, ["a"]);
    }

    #[test]
    fn a_window_is_added_though_a_thread_failed_that_held_the_lock() {
        let spool = Spool::new(tempfile::tempfile().unwrap(), Arc::new(SystemDisk));
        let failing = spool.clone();
        let failed = std::thread::spawn(move || {
            let _held = failing.lock();
            panic!("for the test");
        });
        assert!(failed.join().is_err() && spool.gathered.is_poisoned());
        spool.add(&DumpReport::default());
        assert_eq!(spool.lock().windows, 1);
    }
}
