//! Every window of a run in one file: what the dumps keep is gathered in a spool without a name, and merged
//! when the run ends.
//!
//! ```text
//! dump ─► records, in order of (time, lane, packet number) ─► chunks in the spool     a packet that comes too late begins a new run
//! end  ─► runs merged by their places; what several windows took has one place, and is written once ─► the file, or the pipe
//! ```
//! A record is a place (time 8, lane 4, packet number 8), link type 2, length of the block 4, number of
//! comments 2, then the block as it stands in the ring, and each comment behind its length (4). Numbers are
//! little-endian. Nothing else ever reads a spool.

use crate::disk::Disk;
use crate::evidence::Evidence;
use crate::gaps::Gaps;
use crate::header::intro;
use crate::joint::Joint;
use crate::merge::Place;
use crate::output::{OutFile, Tally, publish};
use crate::progress::Progress;
use crate::report::DumpReport;
use crate::target::{DumpOutput, Target};
use scope_packet::pcapng::le32;
use scope_packet::{GapReason, LinkType};
use scope_ring::{Interfaces, Ring};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Bytes that one dump gathers before they go into the spool.
const BUFFER_BYTES: usize = 256 << 10;
/// Bytes of a record in front of its block.
const HEAD_BYTES: usize = 28;
/// Runs of one spool at most; beyond, packets that come too late aren't taken.
const RUNS_MAX: usize = 1 << 20;
/// Names of triggers that the file's header has.
const NAMES_MAX: usize = 8;
/// Times of hits that it has.
const HITS_MAX: usize = 1000;

/// What all dumps of a run gather.
#[derive(Debug)]
pub struct Together {
    spool: File,
    disk: Arc<dyn Disk>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    bytes: u64,
    runs: Vec<Run>,
    windows: u64,
    /// Packets that are in the spool, those that several windows gathered so many times.
    gathered: u64,
    triggers: BTreeSet<String>,
    lacks: Joint,
    /// What is known of all windows together.
    report: Option<DumpReport>,
}

/// Records in order.
#[derive(Debug)]
struct Run {
    first: Place,
    /// Where in the spool, and how many bytes.
    chunks: Vec<(u64, usize)>,
}

impl Together {
    /// Gathers in `spool`, which nobody else writes.
    pub fn new(spool: File, disk: Arc<dyn Disk>) -> Arc<Together> {
        Arc::new(Together { spool, disk, state: Mutex::default() })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A thread that failed reports its window from here while it unwinds.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes in what became of one window, also of one that no thread wrote.
    pub fn add(&self, report: &DumpReport) {
        let mut state = self.lock();
        state.windows += 1;
        state.gathered += report.packets;
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

    /// Writes the file: whose facts are those of all windows. `None` where there was no window.
    pub fn finish(
        &self,
        output: &Arc<DumpOutput>,
        ring: &Ring,
        evidence: &Arc<Evidence>,
    ) -> Option<DumpReport> {
        let mut state = std::mem::take(&mut *self.lock());
        let mut report = state.report.take()?;
        report.trigger = match state.triggers.len() {
            0..=NAMES_MAX => state.triggers.iter().map(String::as_str).collect::<Vec<_>>().join(", "),
            _ => "many triggers".to_string(),
        };
        report.why = format!("{} times: all windows of the run in one file", state.windows);
        let mut files = Files {
            output,
            interfaces: ring,
            evidence,
            intro: intro(&report),
            files: BTreeMap::new(),
            refused: Tally::default(),
            error: None,
        };
        let read = self.merge(state.runs, &mut files);
        let Files { mut files, refused, mut error, .. } = files;
        // What of the spool wasn't read: several windows may have gathered the same packet.
        let mut unread = 0;
        if let Err(cause) = read {
            error.get_or_insert(format!("the spool can't be read: {cause}"));
            let read: u64 = files.values().map(|file| file.packets + file.unwritten.packets).sum();
            unread = state.gathered.saturating_sub(read + refused.packets);
        }
        let main_type = files.keys().next().copied().unwrap_or(LinkType::ETHERNET);
        let (of_windows, lacks) = (report.clone(), state.lacks.gaps());
        let restate = |files: &BTreeMap<LinkType, OutFile>, report: &mut DumpReport| {
            let mut gaps = Gaps::of(of_windows.asked);
            lacks.iter().for_each(|gap| gaps.add(*gap));
            let mut lost_max = of_windows.lost_max.saturating_add(unread);
            gaps.add_lost(GapReason::Disk, (0, unread), None);
            for lost in files.values().map(|file| &file.unwritten).chain([&refused]) {
                gaps.add_lost(GapReason::Disk, (lost.packets, lost.packets), lost.span_ns);
                lost_max = lost_max.saturating_add(lost.packets);
            }
            report.packets = files.values().map(|file| file.packets).sum();
            report.bytes = files.values().map(|file| file.bytes).sum();
            report.cut = files.values().map(|file| file.cut).sum();
            let failed = error
                .clone()
                .or_else(|| files.values().find_map(OutFile::complaint))
                .map(|error| output.fault(error));
            report.error = of_windows.error.clone().or(failed);
            let stated = gaps.state(true);
            (report.gaps, report.gaps_folded, report.missing) = (stated.gaps, stated.folded, stated.span_ns);
            (report.lost_min, report.lost_max) = (stated.lost_min, lost_max);
            report.complete = of_windows.complete && report.gaps.is_empty() && report.error.is_none();
        };
        restate(&files, &mut report);
        for file in files.values_mut() {
            file.finish_packets(
                ring,
                ring.interface_of(file.link_type()),
                (report.lost_min, report.lost_max),
                report.to_ns,
            );
        }
        let times = files.values().flat_map(OutFile::times).collect();
        report.circumstances = evidence.around(report.from_ns, report.to_ns, times);
        restate(&files, &mut report);
        publish(output, &mut files, main_type, &mut report, &restate);
        Some(report)
    }

    /// Reads all runs in the order of their places; each packet goes out once.
    fn merge(&self, mut runs: Vec<Run>, files: &mut Files<'_>) -> io::Result<()> {
        // The last one begins first: only runs that overlap are open at once.
        runs.sort_by_key(|run| Reverse(run.first));
        let mut open: BTreeMap<usize, Reader> = BTreeMap::new();
        let mut heap: BinaryHeap<Reverse<(Place, usize)>> = BinaryHeap::new();
        let mut number = 0;
        let mut held: Option<Record> = None;
        loop {
            while let Some(run) =
                runs.pop_if(|run| heap.peek().is_none_or(|Reverse((next, _))| run.first <= *next))
            {
                let mut reader = Reader::new(run);
                if reader.next(&self.spool)? {
                    heap.push(Reverse((reader.record.place, number)));
                    open.insert(number, reader);
                    number += 1;
                }
            }
            let Some(Reverse((_, from))) = heap.pop() else { break };
            let Some(reader) = open.get_mut(&from) else { continue };
            let record = std::mem::take(&mut reader.record);
            match &mut held {
                Some(same) if same.place == record.place => same.join(record),
                _ => {
                    if let Some(done) = held.replace(record) {
                        files.write(&done);
                    }
                }
            }
            match reader.next(&self.spool)? {
                true => heap.push(Reverse((reader.record.place, from))),
                false => drop(open.remove(&from)),
            }
        }
        held.iter().for_each(|last| files.write(last));
        Ok(())
    }
}

/// The files that are written in the end, one for each link type; into a pipe only the first.
struct Files<'a> {
    output: &'a Arc<DumpOutput>,
    interfaces: &'a dyn Interfaces,
    evidence: &'a Arc<Evidence>,
    intro: String,
    files: BTreeMap<LinkType, OutFile>,
    /// What has no file.
    refused: Tally,
    error: Option<String>,
}

impl Files<'_> {
    fn write(&mut self, record: &Record) {
        let Record { place, link_type, block, comments } = record;
        match self.file(*link_type) {
            Ok(()) => {}
            Err(error) => {
                self.error.get_or_insert(error);
                return self.refused.add(&Tally::of(place.time_ns, block, 0));
            }
        }
        if let Some(file) = self.files.get_mut(link_type) {
            file.write(self.interfaces, *place, block, comments);
        }
    }

    fn file(&mut self, link_type: LinkType) -> Result<(), String> {
        if self.files.contains_key(&link_type) {
            return Ok(());
        }
        if let Some(taken) =
            self.files.keys().next().filter(|_| matches!(self.output.target, Target::Stream(_)))
        {
            return Err(format!(
                "a pipe takes one link type, here {}: packets of {} are left out; write into a file",
                taken.name(),
                link_type.name()
            ));
        }
        // The dumps are over: their buffers are free.
        let buffers = Arc::default();
        let created =
            OutFile::create(self.output, self.interfaces, link_type, self.evidence, &buffers, &self.intro);
        self.files.insert(link_type, created.map_err(|error| error.to_string())?);
        Ok(())
    }
}

/// One packet of the spool.
#[derive(Debug)]
struct Record {
    place: Place,
    link_type: LinkType,
    block: Vec<u8>,
    comments: Vec<String>,
}

impl Default for Record {
    fn default() -> Record {
        let place = Place { time_ns: 0, lane: 0, packet: 0 };
        Record { place, link_type: LinkType::ETHERNET, block: Vec::new(), comments: Vec::new() }
    }
}

impl Record {
    /// Takes over what another window says of the same packet: who fired there.
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
        let place = Place { time_ns, lane: le32(&head, 8), packet };
        self.record = Record { place, link_type: LinkType(half(20)), block, comments };
        Ok(true)
    }
}

/// What one dump gathers.
pub(crate) struct Gathering {
    together: Arc<Together>,
    buffer: Vec<u8>,
    buffered: Tally,
    /// The run that is being written, and its packets that are in the spool.
    chunks: Vec<(u64, usize)>,
    spooled: Tally,
    first: Option<Place>,
    last: Option<Place>,
    /// What is in the spool, or about to be.
    pub taken: Tally,
    /// What couldn't be written.
    pub unwritten: Tally,
    pub error: Option<io::Error>,
    progress: Arc<Progress>,
}

impl Gathering {
    /// Into `together`; `progress` knows how long the disk is waited for.
    pub fn new(together: &Arc<Together>, progress: &Arc<Progress>) -> Gathering {
        Gathering {
            together: together.clone(),
            progress: progress.clone(),
            buffer: Vec::new(),
            buffered: Tally::default(),
            chunks: Vec::new(),
            spooled: Tally::default(),
            first: None,
            last: None,
            taken: Tally::default(),
            unwritten: Tally::default(),
            error: None,
        }
    }

    /// Takes a packet.
    pub fn write(
        &mut self,
        interfaces: &dyn Interfaces,
        place: Place,
        link_type: LinkType,
        block: &[u8],
        comments: &[String],
    ) {
        let snap_len = interfaces.interface(le32(block, 8)).map_or(0, |entry| entry.snap_len);
        let tally = Tally::of(place.time_ns, block, snap_len);
        if self.last.is_some_and(|last| place < last) {
            self.end_run();
        }
        if self.error.is_some() {
            return self.unwritten.add(&tally);
        }
        self.first.get_or_insert(place);
        self.last = Some(place);
        self.buffer.extend(place.time_ns.to_le_bytes());
        self.buffer.extend(place.lane.to_le_bytes());
        self.buffer.extend(place.packet.to_le_bytes());
        self.buffer.extend(link_type.0.to_le_bytes());
        self.buffer.extend((block.len() as u32).to_le_bytes());
        self.buffer.extend((comments.len() as u16).to_le_bytes());
        self.buffer.extend(block);
        for comment in comments.iter().take(u16::MAX.into()) {
            self.buffer.extend((comment.len() as u32).to_le_bytes());
            self.buffer.extend(comment.as_bytes());
        }
        self.buffered.add(&tally);
        self.taken.add(&tally);
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
            let mut state = self.together.lock();
            if state.runs.len() >= RUNS_MAX {
                self.error.get_or_insert_with(|| {
                    io::Error::other("too many packets came too late for their place")
                });
                self.taken.subtract(&spooled);
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
            let mut state = self.together.lock();
            state.bytes += len as u64;
            state.bytes - len as u64
        };
        let buffered = std::mem::take(&mut self.buffered);
        match self.progress.wait(|| self.together.disk.write_at(&self.together.spool, &self.buffer, offset)) {
            Ok(()) => {
                self.chunks.push((offset, len));
                self.spooled.add(&buffered);
            }
            Err(error) => {
                self.taken.subtract(&buffered);
                self.unwritten.add(&buffered);
                self.error = Some(error);
            }
        }
        self.buffer.clear();
    }
}

impl DumpOutput {
    /// Where the file of all windows will be, as far as that is known.
    pub(crate) fn path_of_all(&self) -> Option<PathBuf> {
        match &self.target {
            Target::File { folder, name } => Some(folder.path().join(name)),
            Target::Folder(_) | Target::Stream(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::SystemDisk;

    #[test]
    fn records_come_back_in_order_from_runs_that_overlap_each_place_once() {
        let together = Together::new(tempfile::tempfile().unwrap(), Arc::new(SystemDisk));
        let (ring_bytes, segment_bytes) = (16 * (64 << 10), Some(64 << 10));
        let ring = Ring::create(&scope_ring::RingConfig {
            ring_bytes,
            segment_bytes,
            workers: 1,
            lanes: 1,
            run_id: [3; 16],
        })
        .unwrap();
        let place = |time_ns, packet| Place { time_ns, lane: 0, packet };
        let mut block = vec![0u8; 32];
        block[20] = 4;
        let dump = |packets: &[u64], comment: &str| {
            let mut gathering = Gathering::new(&together, &Arc::default());
            for &packet in packets {
                let comments = if packet == 3 { vec![comment.to_string()] } else { Vec::new() };
                gathering.write(&*ring, place(packet as i64, packet), LinkType::ETHERNET, &block, &comments);
            }
            gathering.end();
            assert!(gathering.error.is_none() && gathering.taken.packets == packets.len() as u64);
        };
        dump(&[1, 2, 3, 6, 4, 5], "a"); // 4 comes too late
        dump(&[3, 4, 9], "b");
        dump(&[], "c");
        let runs = std::mem::take(&mut together.lock().runs);
        assert_eq!(runs.len(), 3);
        let mut found = Vec::new();
        let mut readers: Vec<Reader> = runs.into_iter().map(Reader::new).collect();
        for reader in &mut readers {
            while reader.next(&together.spool).unwrap() {
                found.push((reader.record.place.packet, reader.record.comments.clone()));
            }
        }
        let packets: Vec<u64> = found.iter().map(|(packet, _)| *packet).collect();
        assert_eq!(packets, [1, 2, 3, 6, 4, 5, 3, 4, 9]);
        assert_eq!(found[2].1, ["a"]);
    }

    #[test]
    fn a_window_is_taken_in_though_a_thread_failed_that_held_the_lock() {
        let together = Together::new(tempfile::tempfile().unwrap(), Arc::new(SystemDisk));
        let failing = together.clone();
        let failed = std::thread::spawn(move || {
            let _held = failing.lock();
            panic!("for the test");
        });
        assert!(failed.join().is_err() && together.state.is_poisoned());
        together.add(&DumpReport::default());
        assert_eq!(together.lock().windows, 1);
    }

    #[test]
    fn what_can_not_be_read_back_is_stated() {
        let folder = tempfile::tempdir().unwrap();
        let spool = tempfile::tempfile().unwrap();
        let together = Together::new(spool.try_clone().unwrap(), Arc::new(SystemDisk));
        let (ring_bytes, segment_bytes) = (16 * (64 << 10), Some(64 << 10));
        let ring = Ring::create(&scope_ring::RingConfig {
            ring_bytes,
            segment_bytes,
            workers: 1,
            lanes: 1,
            run_id: [3; 16],
        })
        .unwrap();
        let mut block = vec![0u8; 32];
        block[20] = 4;
        let mut gathering = Gathering::new(&together, &Arc::default());
        for packet in 0..7u64 {
            let place = Place { time_ns: packet as i64, lane: 0, packet };
            gathering.write(&*ring, place, LinkType::ETHERNET, &block, &[]);
        }
        gathering.end();
        let window = DumpReport {
            packets: gathering.taken.packets,
            asked: (0, 9),
            to_ns: 9,
            complete: true,
            ..DumpReport::default()
        };
        together.add(&window);
        spool.set_len(100).unwrap();
        let target = Target::Folder(Arc::new(scope_folder::Folder::open(folder.path()).unwrap()));
        let disk = Arc::new(SystemDisk);
        let output = Arc::new(DumpOutput {
            format: crate::DumpFormat::Pcapng,
            target,
            budget: None,
            disk,
            together: None,
        });
        let report = together.finish(&output, &ring, &Arc::default()).unwrap();
        assert!(
            !report.complete && report.error.as_deref().is_some_and(|error| error.contains("spool")),
            "{report:?}"
        );
        assert_eq!((report.packets, report.lost_min, report.lost_max), (0, 0, 7));
        assert_eq!(
            report.gaps,
            [scope_packet::Gap {
                from_ns: 0,
                to_ns: 9,
                reason: GapReason::Disk,
                lost_min: 0,
                lost_max: Some(7)
            }]
        );
    }
}
