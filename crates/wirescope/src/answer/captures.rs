//! Capture files that are asked: read once, whatever may belong to the answer sorted by time, and lent as a
//! timeline.
//!
//! ```text
//! files ─► decoded as `run -r` does it ─► inside the span? ─► one of the filters? ─► sorter ─► pieces, as often as asked
//! ```
//! All files together are one source of packets: a lane for each link type, interfaces numbered through. What the
//! files say of their own losses is kept whatever the filter is.

use crate::answer::sorter::{Cursor, Sorted, Sorter};
use crate::speech::{Level, say};
use crate::words::counted;
use scope_fault::{Fault, Setting, Subject, sentence};
use scope_filter::{Filter, Predicate};
use scope_packet::key::{KEY_ENTRY_BYTES, KeyEntry};
use scope_packet::pcapng::{self, PacketBlock, PacketHead};
use scope_packet::{Gap, Headers, Interface, LinkType, Moment, Packet, SegmentId, Sink};
use scope_ring::{Column, InterfaceEntry, KeyTest, Matches, Packets, Piece, Settled, Timeline};
use scope_source::file::{FILES_MAX, FileOptions, FileSource, Follow, check_begin};
use scope_source::{Polled, Source, spec};
use scope_store::head::HeadInterface;
use scope_store::timeline::Span;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Under which run their interfaces are known: no run has this number.
pub const RUN: [u8; 16] = [0xff; 16];
/// Bytes of a piece at most, and its packets.
const PIECE_BYTES: usize = 256 << 10;
const PIECE_PACKETS: usize = 4096;
/// Files whose names an answer shows; others are counted.
const NAMES_MAX: usize = 8;

/// Files that are open, and of which nothing is read yet.
pub struct Captures {
    paths: Vec<String>,
    sources: Vec<FileSource>,
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

/// What was read of them.
pub struct Read {
    sorted: Arc<Sorted>,
    /// Link types, by lane.
    pub link_types: Vec<LinkType>,
    /// By number.
    pub interfaces: Vec<HeadInterface>,
    /// What they lack, as far as they say so.
    pub gaps: Vec<Gap>,
    /// Smallest and largest time of all packets.
    pub heard: Option<(i64, i64)>,
    /// Packets of all files, and those that may belong to the answer.
    pub packets: u64,
    /// See above.
    pub taken: u64,
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
        match spill.filter(|_| faults.is_empty()) {
            Some(spill) => Ok(Captures { paths: paths.to_vec(), sources, followings, spill, bytes }),
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

    /// Reads them to their ends: of the packets in `span` those that one of `filters` matches are kept, in so much
    /// memory. Once `stop` is set nothing more is read.
    ///
    /// # Errors
    /// What stands before the first packets is none of a capture, or the temporary file can't be written.
    pub fn read(
        self,
        filters: &[&Filter],
        span: Span,
        memory_bytes: usize,
        stop: &AtomicBool,
    ) -> Result<Read, Fault> {
        let Captures { paths, sources, followings, spill, .. } = self;
        let mut taking = Taking {
            filters,
            span,
            lanes: Vec::new(),
            interfaces: Vec::new(),
            base: 0,
            comments: Vec::new(),
            block: Vec::new(),
            sorter: Sorter::new(memory_bytes, spill),
            gaps: Vec::new(),
            heard: None,
            packets: 0,
            taken: 0,
            error: None,
        };
        let mut faults = Vec::new();
        for mut source in sources {
            taking.base = taking.interfaces.len() as u32;
            source.begin().map_err(|error| of_file("", error.reason()))?;
            loop {
                let polled = source.poll(&mut taking);
                if let Some(error) = taking.error.take() {
                    let fault = Fault::of_thing("temporary file").error(&error);
                    let other = Setting::of("tmp").example("DIR");
                    return Err(fault.remedy(sentence!["name a folder with more space: ", other]));
                }
                match polled {
                    Ok(Polled::Ended) => break,
                    Ok(_) if stop.load(Ordering::Relaxed) => source.stop(),
                    Ok(_) => {}
                    Err(error) => {
                        faults.push(of_file("", error.reason()));
                        break;
                    }
                }
            }
            for warning in source.warnings() {
                say(Level::Warning, &format!("wirescope: {warning}"));
            }
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
        let Taking { lanes, interfaces, sorter, gaps, heard, packets, taken, .. } = taking;
        let link_types = lanes.into_iter().map(|lane| lane.link_type).collect();
        let sorted = sorter.finish();
        Ok(Read { sorted, link_types, interfaces, gaps, heard, packets, taken, faults })
    }
}

impl Read {
    /// Their packets, from the first one on.
    ///
    /// # Errors
    /// The temporary file can't be read.
    pub fn timeline(&self, stop: Arc<AtomicBool>) -> io::Result<CaptureTimeline> {
        Ok(CaptureTimeline {
            cursor: Cursor::new(&self.sorted)?,
            link_types: self.link_types.clone(),
            numbers: vec![0; self.link_types.len()],
            lent: Lent::default(),
            heard: self.heard,
            stop,
            error: None,
        })
    }
}

/// A fault of a file that was given; its words name it.
fn of_file(path: &str, fault: Fault) -> Fault {
    let fault = fault.of_subject(Subject::setting("read"));
    if path.is_empty() { fault } else { fault.with_value(spec::escape(path)) }
}

/// Packets of one link type.
struct Lane {
    link_type: LinkType,
    /// One for each filter.
    predicates: Vec<Predicate>,
}

/// The sink that keeps what may belong to the answer.
struct Taking<'a> {
    filters: &'a [&'a Filter],
    span: Span,
    lanes: Vec<Lane>,
    /// By number, with the lane of each.
    interfaces: Vec<HeadInterface>,
    /// The number of the source's first interface.
    base: u32,
    /// Of the next batch.
    comments: Vec<(usize, String)>,
    block: Vec<u8>,
    sorter: Sorter,
    gaps: Vec<Gap>,
    heard: Option<(i64, i64)>,
    packets: u64,
    taken: u64,
    error: Option<io::Error>,
}

impl Taking<'_> {
    fn lane(&mut self, link_type: LinkType) -> usize {
        if let Some(known) = self.lanes.iter().position(|lane| lane.link_type == link_type) {
            return known;
        }
        let predicates: Vec<Predicate> =
            self.filters.iter().map(|filter| filter.for_link(link_type)).collect();
        for predicate in &predicates {
            // Where no machine code can be made it is interpreted, which is slower and says the same.
            let _ = predicate.make_native();
        }
        self.lanes.push(Lane { link_type, predicates });
        self.lanes.len() - 1
    }

    fn take(&mut self, at: usize, packet: &Packet<'_>) -> io::Result<()> {
        let time_ns = packet.time_ns;
        self.packets += 1;
        let (min_ns, max_ns) = self.heard.unwrap_or((time_ns, time_ns));
        self.heard = Some((min_ns.min(time_ns), max_ns.max(time_ns)));
        if !(self.span.from_ns..=self.span.to_ns).contains(&time_ns) {
            return Ok(());
        }
        let number = self.base + packet.interface;
        let Some(interface) = self.interfaces.get(number as usize) else { return Ok(()) };
        let link_type = interface.link_type;
        let number_of_lane = self.lane(link_type);
        let lane = &self.lanes[number_of_lane];
        let headers = Headers::parse(link_type, packet.data);
        let matches = |predicate: &Predicate| predicate.matches(&headers, packet.data, packet.original_len);
        if !lane.predicates.iter().any(matches) {
            return Ok(());
        }
        self.taken += 1;
        let head = PacketHead {
            interface: number,
            time_ns,
            captured_len: packet.data.len() as u32,
            original_len: packet.original_len,
            flags: packet.flags,
            lost_before: packet.lost_before,
        };
        self.block.clear();
        self.block.resize(head.block_bytes(), 0);
        head.write(&mut self.block, packet.data);
        let comments = self.comments.iter().filter(|(of, _)| *of == at).map(|(_, text)| text.as_str());
        if comments.clone().next().is_some() {
            let mut commented = Vec::new();
            pcapng::commented(&mut commented, &self.block, comments);
            self.block = commented;
        }
        self.sorter.push(time_ns, number_of_lane as u32, &self.block)
    }
}

impl Sink for Taking<'_> {
    fn interface(&mut self, interface: &Interface) {
        let lane = self.lane(interface.link_type) as u32;
        let InterfaceEntry { name, description, link_type, .. } = InterfaceEntry::of(lane, interface);
        self.interfaces.push(HeadInterface { name, description, link_type });
    }

    fn batch(&mut self, packets: &[Packet<'_>]) {
        for (at, packet) in packets.iter().enumerate() {
            if self.error.is_none() {
                self.error = self.take(at, packet).err();
            }
        }
        self.comments.clear();
    }

    fn lost(&mut self, _: u32, _: u64, _: i64, _: i64) {} // live sources

    fn gap(&mut self, _: u32, gap: Gap) {
        self.gaps.push(gap);
    }

    fn comments(&mut self, comments: &[(usize, &str)]) {
        self.comments = comments.iter().map(|(at, text)| (*at, text.to_string())).collect();
    }

    fn idle(&mut self, _: i64) {}
}

/// The packets of a piece.
#[derive(Default)]
struct Lent {
    first_packet: u64,
    blocks: Vec<u8>,
    /// The last packet's first.
    entries: Vec<u8>,
}

/// Their packets as a timeline.
pub struct CaptureTimeline {
    cursor: Cursor,
    link_types: Vec<LinkType>,
    /// By lane: the number of its next packet.
    numbers: Vec<u64>,
    lent: Lent,
    heard: Option<(i64, i64)>,
    stop: Arc<AtomicBool>,
    /// Why it ended early.
    error: Option<io::Error>,
}

impl CaptureTimeline {
    /// Why it ended before its end.
    pub fn take_error(&mut self) -> Option<io::Error> {
        self.error.take()
    }

    /// Gathers the packets of one lane that come next.
    fn gather(&mut self) -> io::Result<Option<Piece>> {
        let Some(((min_ns, lane, _), first)) = self.cursor.first() else { return Ok(None) };
        let Some(&link_type) = self.link_types.get(lane as usize) else { return Ok(None) };
        let first_packet = self.numbers[lane as usize];
        let mut lent = std::mem::take(&mut self.lent);
        lent.first_packet = first_packet;
        lent.blocks.clear();
        let mut entries: Vec<KeyEntry> = Vec::new();
        let bytes_max = PIECE_BYTES.max(first.len());
        while let Some(((_, of, _), block)) = self.cursor.first() {
            let is_full = entries.len() == PIECE_PACKETS || lent.blocks.len() + block.len() > bytes_max;
            if of != lane || is_full {
                break;
            }
            if let Some(packet) = PacketBlock::first(block) {
                let headers = Headers::parse(link_type, packet.data());
                entries.push(KeyEntry::new(&headers).at(lent.blocks.len() as u32));
                lent.blocks.extend(block);
            }
            self.cursor.pop()?;
        }
        lent.entries = entries.iter().rev().flat_map(|entry| entry.to_bytes()).collect();
        debug_assert_eq!(lent.entries.len(), entries.len() * KEY_ENTRY_BYTES);
        self.numbers[lane as usize] += entries.len() as u64;
        self.lent = lent;
        let segment = SegmentId { run: RUN, lane, sequence: first_packet };
        let packets = entries.len() as u32;
        Ok(Some(Piece { segment, lane, first_packet, packets, min_ns, ordered: true }))
    }

    fn column(&self) -> Column<'_> {
        Column::new(&self.lent.entries)
    }
}

impl Timeline for CaptureTimeline {
    fn settle(&mut self, _: i64) -> Settled {
        Settled { up_to: Moment::END, goes_on: false }
    }

    fn look(&mut self, _: i64, _: bool) {}

    fn next(&mut self) -> Option<Piece> {
        if self.stop.load(Ordering::Relaxed) || self.error.is_some() {
            return None;
        }
        self.gather().unwrap_or_else(|error| {
            self.error = Some(error);
            None
        })
    }

    fn next_place(&self) -> Option<(i64, u32)> {
        self.cursor.first().map(|((time_ns, lane, _), _)| (time_ns, lane))
    }

    fn screen(&mut self, keys: &KeyTest, _: Option<u64>) -> Option<Matches> {
        Some(self.column().matches(keys))
    }

    fn packets(&mut self, picked: Matches) -> Packets<'_> {
        Packets::new(self.lent.first_packet, self.column(), &self.lent.blocks, picked)
    }

    fn done(&mut self) {}

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
