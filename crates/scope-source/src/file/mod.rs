//! Capture files: pcap, pcapng and HPCAP's raw records, compressed or not, one or several merged by time, from
//! disk or a pipe.
//!
//! ```text
//!  input ─► [unpack ─►] [ahead ─►] buffer ─► pcap | pcapng | hpcap ─► capture (one file, its next packet) ─► timed ─► merge ─► share, pace ─► lend
//! ```
//! A poll gathers up to 64 records by their place in the buffers and lends them as one batch; a buffer is
//! refilled only between batches, so no packet is copied and no reference outlives its bytes. A file that is
//! damaged is read to that place, said so and counted. Whether a packet's time is believed is judged in its
//! file (`course`). Where one that is lies more than a second before the clock of all files together, capture
//! time was set back: every worker is told, at the same packet. Absent on purpose: files are never mapped,
//! see [`buffer`].

mod ahead;
mod annex;
mod buffer;
mod capture;
mod course;
mod follow;
mod hpcap;
mod input;
mod lz4;
mod merge;
mod pace;
mod pcap;
mod pcapng;
mod pseudo;
mod record;
mod share;
mod stream;
mod timed;
mod turns;
mod unpack;

use std::io::Read;
use std::sync::Arc;
use std::time::{Duration, Instant};

use scope_fault::Fault;
use scope_packet::{BATCH_PACKETS_MAX, LinkType, Packet, Sink, Turn, time};

use crate::plan::FileForm;
use crate::{Polled, Source, SourceCounters, SourceError, Timing};
use capture::{Advance, Capture, Unread};
use course::Judgement;
use input::Input;
use merge::Merge;
use pace::Pace;
use record::{COPIED, Interfaces, Record};
use share::Share;
use timed::Timed;

pub use buffer::BUFFER_BYTES_MAX;
pub use follow::Follow;
pub use merge::FILES_MAX;
pub(crate) use share::flow_hash;

/// A poll ends after about so many packets, or so many bytes of them.
const POLL_PACKETS: usize = 4096;
const POLL_BYTES: usize = 8 << 20;
/// A poll that brings nothing lasts at most this long.
const POLL_MS: i32 = 10;
/// More files than this get small buffers and no threads that read ahead.
const FILES_FEW: usize = 8;

/// Which files to read, and how.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FileOptions {
    /// Paths in the order that decides between packets of the same time; `-` is standard input.
    pub paths: Vec<String>,
    /// Of which form they are, in the same order; those beyond its end are known by their first bytes.
    pub forms: Vec<FileForm>,
    /// As fast as possible (`None`), at the recorded pace (1.0), twice as fast (2.0) ...
    pub pace: Option<f64>,
    /// Keep at most so many bytes of a packet.
    pub snap_len: Option<u32>,
    /// Take only the packets whose flow falls to worker `index` of `of`, as (index, of).
    pub share: Option<(u32, u32)>,
}

/// Capture files as a source of packets.
pub struct FileSource {
    name: String,
    /// Until [`Source::begin`].
    unread: Vec<Unread>,
    captures: Vec<Timed>,
    interfaces: Interfaces,
    /// The first so many interfaces are known to the sink.
    announced: usize,
    /// Interfaces that stand before the first packet of their file.
    known_at_opening: usize,
    merge: Merge,
    /// Files whose next packet is not known before their buffer is refilled.
    starved: Vec<u32>,
    /// Files that have ended, whose last packets may still be lent.
    ended: Vec<u32>,
    /// The batch being gathered, at most [`BATCH_PACKETS_MAX`].
    batch: Vec<Record>,
    /// Bytes of those records of the batch that stand in no buffer.
    copies: Vec<Box<[u8]>>,
    /// What is to be said of time before the batch.
    turn: Option<Turn>,
    /// Where the clock was when time was set back, ns, and where it was set to.
    set_back: Option<(i64, i64)>,
    /// The very first time, ns, and whether the sink knows it.
    begun_ns: Option<i64>,
    told_begin: bool,
    /// The largest time believed since time was last set back, ns.
    clock_ns: Option<i64>,
    snap_len: u32,
    share: Option<Share>,
    pace: Option<Pace>,
    counters: SourceCounters,
    newest_ns: Option<i64>,
    warnings: Vec<String>,
    /// Came up while looking ahead outside a poll; the next poll returns it.
    failure: Option<SourceError>,
    stopped: bool,
}

/// What lies ahead, once every file that is not at its end was looked into.
enum Ahead {
    /// The next packet's time, ns.
    Packet(i64),
    /// A pipe keeps us waiting.
    Waiting,
    Ended,
}

impl FileSource {
    /// Opens all files and reads what stands before their first packets.
    ///
    /// # Errors
    /// A file that is missing, unreadable, empty or no capture; options that contradict each other.
    pub fn open(options: FileOptions) -> Result<FileSource, SourceError> {
        FileSource::unread(options, &[]).and_then(FileSource::begun)
    }

    /// Opens all files, and reads nothing of them before [`Source::begin`]. `follows` says who follows them, in the
    /// order of the paths; those beyond its end nobody follows.
    ///
    /// # Errors
    /// A file that is missing or may not be read; options that contradict each other.
    pub fn unread(
        options: FileOptions,
        follows: &[Option<Arc<dyn Follow>>],
    ) -> Result<FileSource, SourceError> {
        let name = format!("file:{}", options.paths.join(","));
        check(&name, &options)?;
        let mut files = Vec::with_capacity(options.paths.len());
        let forms = options.forms.iter().copied().chain(std::iter::repeat(FileForm::Detected));
        let follows = follows.iter().cloned().chain(std::iter::repeat(None));
        for ((path, form), follow) in options.paths.iter().zip(forms).zip(follows) {
            let input = Input::open(path)?;
            if options.share.is_some_and(|(_, of)| of > 1) && !input.reopens() {
                let reason = Fault::whole("can be read only once, so several workers can't share it");
                let (path, reason) = (path.clone(), reason.remedy("use one worker"));
                return Err(SourceError::File { path, reason });
            }
            files.push(Unread { path: path.clone(), input, form, follow });
        }
        Ok(FileSource::of(name, files, &options))
    }

    /// The same files, of one that hasn't begun, as they are now: what is appended to them later isn't read. `None`: one
    /// of them isn't regular, or they are paced or shared.
    pub fn again(&self) -> Option<FileSource> {
        let is_plain = self.pace.is_none() && self.share.is_none() && !self.unread.is_empty();
        let unread = self.unread.iter().map(Unread::again).collect::<Option<_>>().filter(|_| is_plain)?;
        let options = FileOptions { snap_len: Some(self.snap_len), ..FileOptions::default() };
        Some(FileSource::of(self.name.clone(), unread, &options))
    }

    /// One capture of a form from anything that can be read, as fast as it comes. `name` is used in messages.
    ///
    /// # Errors
    /// What comes is no capture.
    pub fn from_reader(
        name: &str,
        reader: Box<dyn Read + Send>,
        form: FileForm,
    ) -> Result<FileSource, SourceError> {
        let (path, input) = (name.to_string(), Input::Reader(reader));
        let file = Unread { path, input, form, follow: None };
        FileSource::of(name.to_string(), vec![file], &FileOptions::default()).begun()
    }

    fn begun(mut self) -> Result<FileSource, SourceError> {
        self.begin()?;
        Ok(self)
    }

    fn of(name: String, files: Vec<Unread>, options: &FileOptions) -> FileSource {
        FileSource {
            name,
            unread: files,
            announced: 0,
            known_at_opening: 0,
            captures: Vec::new(),
            interfaces: Interfaces::default(),
            merge: Merge::default(),
            starved: Vec::new(),
            ended: Vec::new(),
            batch: Vec::with_capacity(BATCH_PACKETS_MAX),
            copies: Vec::new(),
            turn: None,
            set_back: None,
            begun_ns: None,
            told_begin: false,
            clock_ns: None,
            snap_len: options.snap_len.unwrap_or(u32::MAX),
            share: options.share.map(|(index, of)| Share { index, of }),
            pace: options.pace.map(Pace::new),
            counters: SourceCounters::default(),
            newest_ns: None,
            warnings: Vec::new(),
            failure: None,
            stopped: false,
        }
    }

    /// Puts every opened file where it belongs: into the merge, or among those that must be looked into.
    fn take_part(&mut self) {
        for (number, capture) in (0..).zip(&self.captures) {
            match capture.next() {
                Some(_) => self.merge.add(capture.turn_ns(), number),
                None => self.starved.push(number),
            }
        }
        for interface in &mut self.interfaces.list {
            interface.snap_len = smaller_snap_len(interface.snap_len, self.snap_len);
        }
    }

    /// Link types known at opening, each once, ascending: of all interfaces described before the first packet
    /// of their file.
    pub fn link_types(&self) -> Vec<LinkType> {
        let known = &self.interfaces.list[..self.known_at_opening];
        let mut link_types: Vec<_> = known.iter().map(|interface| interface.link_type).collect();
        link_types.sort_unstable();
        link_types.dedup();
        link_types
    }

    /// The most bytes of memory that the buffers have held; at most [`BUFFER_BYTES_MAX`] for each file. What
    /// decompressing refers back to is not counted: 128 MiB at most for each file.
    pub fn buffer_bytes_max(&self) -> usize {
        self.captures.iter().map(|timed| timed.capture.buffer_bytes_max()).sum()
    }

    /// Looks into every file whose next packet is not known. Nothing may be lent or gathered.
    fn look_ahead(&mut self, wait_ms: i32) -> Result<Ahead, SourceError> {
        debug_assert!(self.batch.is_empty());
        while let Some(&number) = self.starved.last() {
            let capture = &mut self.captures[number as usize];
            match capture.advance(&mut self.interfaces) {
                Advance::Packet => self.merge.add(capture.turn_ns(), number),
                Advance::Ended => self.ended.push(number),
                Advance::Refill => match capture.capture.refill(wait_ms) {
                    Ok(buffer::Refill::Done) => continue,
                    Ok(buffer::Refill::NotReady) if wait_ms > 0 && capture.hurry() => continue,
                    Ok(buffer::Refill::NotReady) => return Ok(Ahead::Waiting),
                    Err(error) if capture.fail() => {
                        self.failure.get_or_insert(error);
                        continue;
                    }
                    Err(error) => {
                        self.lack_all();
                        self.starved.pop();
                        self.ended.push(number);
                        return Err(error);
                    }
                },
            }
            self.starved.pop();
        }
        self.close_ended();
        Ok(self.merge.first().map_or(Ahead::Ended, |(time_ns, _)| Ahead::Packet(time_ns)))
    }

    /// Reading failed: what no file has handed out yet won't come.
    fn lack_all(&mut self) {
        for (number, capture) in (0..).zip(&self.captures) {
            if capture.next().is_some() || self.starved.contains(&number) {
                capture.capture.lack_the_rest(&mut self.interfaces);
            }
        }
    }

    fn close_ended(&mut self) {
        while let Some(number) = self.ended.pop() {
            let Some(cut) = self.captures[number as usize].capture.close() else { continue };
            if self.share.is_none_or(Share::counts_damage) {
                self.counters.unreadable += cut.packets;
                self.counters.offered += cut.packets;
                self.warnings.push(cut.warning);
            }
        }
    }

    /// Gathers packets not later than `until_ns` into the batch, until it is full or a buffer must be
    /// refilled. A batch ends before a packet of which more is to be said than its time, and behind a stray.
    fn gather(&mut self, until_ns: i64) {
        while self.batch.len() < BATCH_PACKETS_MAX {
            self.gather_run(until_ns);
            let Some((turn_ns, number)) = self.merge.first() else { return };
            if turn_ns > until_ns {
                return;
            }
            let Some((&(mut record), told)) = self.captures[number as usize].next() else { return };
            let time_ns = record.time_ns;
            let clock_ns = self.clock_ns.unwrap_or(time_ns);
            let turn = match told {
                Judgement::Stray => Some(Turn::Stray),
                Judgement::Believed if time_ns < clock_ns.saturating_sub(time::STEP_NS) => Some(Turn::Back),
                Judgement::Believed => None,
            };
            if turn.is_some() && !self.batch.is_empty() {
                return;
            }
            match turn {
                None => {
                    self.begun_ns.get_or_insert(time_ns);
                    self.clock_ns = Some(clock_ns.max(time_ns));
                }
                Some(turn) => self.note_turn(turn, time_ns),
            }
            let capture = &mut self.captures[number as usize];
            let taken = self.share.is_none_or(|share| {
                let link_type = self.interfaces.list[record.interface as usize].link_type;
                share.takes(link_type, capture.bytes())
            });
            if taken {
                record.len = record.len.min(self.snap_len);
                self.counters.time_clamped += u64::from(record.clamped);
                match self.newest_ns {
                    Some(newest) if time_ns < newest => self.counters.stepped_back += 1,
                    _ => self.newest_ns = Some(time_ns),
                }
                if let Some(copy) = capture.take_copy() {
                    record.place = COPIED | self.copies.len();
                    self.copies.push(copy);
                }
                self.batch.push(record);
            }
            match capture.advance(&mut self.interfaces) {
                Advance::Packet => self.merge.replace_first(capture.turn_ns()),
                Advance::Ended => {
                    self.merge.remove_first();
                    self.ended.push(number);
                }
                Advance::Refill => {
                    self.merge.remove_first();
                    self.starved.push(number);
                    return;
                }
            }
            match turn {
                Some(Turn::Stray) if !taken => self.turn = None,
                Some(_) => return,
                None => {}
            }
        }
    }

    /// The short way for one file without shares: packets that lie in the buffer, of whose times nothing is to
    /// be said, one behind the other. Leaves one at least for the long way.
    #[inline]
    fn gather_run(&mut self, until_ns: i64) {
        let ([capture], None, Some(clock_ns)) = (&mut self.captures[..], &self.share, &mut self.clock_ns)
        else {
            return;
        };
        let before = self.batch.len();
        capture.run(&mut self.batch, BATCH_PACKETS_MAX - 1, until_ns);
        if self.batch.len() == before {
            return;
        }
        self.merge.replace_first(capture.turn_ns());
        let mut newest_ns = self.newest_ns.unwrap_or(i64::MIN);
        for record in &mut self.batch[before..] {
            record.len = record.len.min(self.snap_len);
            self.counters.stepped_back += u64::from(record.time_ns < newest_ns);
            newest_ns = newest_ns.max(record.time_ns);
            *clock_ns = (*clock_ns).max(record.time_ns);
        }
        self.newest_ns = Some(newest_ns);
    }

    /// Notes, with an empty batch, what is to be said before it.
    #[cold]
    fn note_turn(&mut self, turn: Turn, time_ns: i64) {
        self.turn = Some(turn);
        if turn == Turn::Back {
            self.set_back = Some((self.clock_ns.unwrap_or(time_ns), time_ns));
            self.clock_ns = Some(time_ns);
            // All who share the files meet the same steps: one of them counts.
            self.counters.set_back += u64::from(self.share.is_none_or(Share::counts_damage));
            self.pace.iter_mut().for_each(Pace::begin_again);
        }
    }

    /// Lends the batch to the sink and empties it. Who has only a share of the packets learns of the others'
    /// times, so that all workers have one clock.
    fn lend(&mut self, sink: &mut dyn Sink) {
        const NONE: Packet<'static> =
            Packet { data: &[], original_len: 0, time_ns: 0, interface: 0, flags: 0, lost_before: 0 };
        self.announce(sink);
        if !self.told_begin
            && let Some(begun_ns) = self.begun_ns
        {
            self.told_begin = true;
            sink.reached(begun_ns);
        }
        if let Some(turn) = self.turn.take() {
            let (before_ns, behind_ns) = self.set_back.take().unzip();
            before_ns.or(self.clock_ns).into_iter().for_each(|clock_ns| sink.reached(clock_ns));
            sink.turn(turn);
            behind_ns.into_iter().for_each(|clock_ns| sink.reached(clock_ns));
        }
        self.hand_on_annexes(sink);
        if self.batch.iter().any(|record| record.comment != 0) {
            self.hand_on_comments(sink);
        }
        let mut packets = [NONE; BATCH_PACKETS_MAX];
        for (packet, record) in packets.iter_mut().zip(&self.batch) {
            *packet = Packet {
                data: match record.place & COPIED {
                    0 => self.captures[record.file as usize].capture.bytes(record),
                    _ => &self.copies[record.place & !COPIED][..record.len as usize],
                },
                original_len: record.original_len,
                time_ns: record.time_ns,
                interface: record.interface,
                flags: record.flags,
                lost_before: record.lost_before,
            };
        }
        let count = self.batch.len();
        if count > 0 {
            sink.batch(&packets[..count]);
        }
        self.counters.received += count as u64;
        self.counters.offered += count as u64;
        self.batch.clear();
        self.copies.clear();
        if let Some(clock_ns) = self.clock_ns.filter(|_| self.share.is_some()) {
            sink.reached(clock_ns);
        }
    }

    /// Comments of the packets that are lent next.
    #[cold]
    fn hand_on_comments(&mut self, sink: &mut dyn Sink) {
        let mut comments: Vec<(usize, String)> = Vec::new();
        for (at, record) in self.batch.iter().enumerate().filter(|(_, record)| record.comment != 0) {
            let of_packet = self.captures[record.file as usize].capture.take_comments(record.comment);
            comments.extend(of_packet.into_iter().map(|comment| (at, comment)));
        }
        let lent: Vec<(usize, &str)> = comments.iter().map(|(at, comment)| (*at, comment.as_str())).collect();
        sink.comments(&lent);
    }

    /// Names and secrets that stand before the packets that are lent next, or that nobody has handed on yet:
    /// of the files in the batch, without packets of all. Every worker that shares the files hands them on.
    fn hand_on_annexes(&mut self, sink: &mut dyn Sink) {
        let FileSource { batch, captures, warnings, .. } = self;
        let mut of_file = |number: u32, capture: &mut Capture| {
            let Some((blocks, left_out)) = capture.take_annexes() else { return };
            blocks.iter().for_each(|block| sink.annex(number, block));
            if left_out > 0 {
                let path = capture.path();
                warnings.push(format!(
                    "{path}: {left_out} blocks with names or secrets are not kept: they are damaged or too \
                     many at once"
                ));
            }
        };
        if batch.is_empty() {
            for (number, capture) in (0..).zip(captures) {
                of_file(number, &mut capture.capture);
            }
            return;
        }
        let mut last = None;
        for number in batch.iter().map(|record| record.file) {
            if last.replace(number) != Some(number) {
                of_file(number, &mut captures[number as usize].capture);
            }
        }
    }

    fn announce(&mut self, sink: &mut dyn Sink) {
        for interface in &mut self.interfaces.list[self.announced..] {
            interface.snap_len = smaller_snap_len(interface.snap_len, self.snap_len);
            sink.interface(interface);
        }
        self.announced = self.interfaces.list.len();
        for (interface, gap) in self.interfaces.gaps.drain(..) {
            if self.share.is_none_or(Share::counts_damage) {
                sink.gap(interface, gap);
            }
        }
    }

    /// Reading failed: nothing more comes, and the sink knows from when on.
    fn fail(&mut self, sink: &mut dyn Sink, error: SourceError) -> SourceError {
        self.announce(sink);
        error
    }

    /// Nothing to hand out: tells the sink where that leaves the clock.
    fn idle(&mut self, sink: &mut dyn Sink, clock_ns: Option<i64>) -> Polled {
        self.announce(sink);
        if let Some(clock_ns) = clock_ns {
            sink.idle(clock_ns);
        }
        Polled::Nothing
    }
}

impl Source for FileSource {
    fn name(&self) -> &str {
        &self.name
    }

    fn timing(&self) -> Timing {
        Timing::Waits
    }

    fn grace_ns(&self) -> i64 {
        time::NS_PER_SECOND
    }

    /// Reads what stands before the first packets.
    fn begin(&mut self) -> Result<(), SourceError> {
        let files = std::mem::take(&mut self.unread);
        let (few, alone) = (files.len() <= FILES_FEW, files.len() == 1);
        let buffer_bytes = if few { buffer::START_BYTES } else { buffer::START_BYTES_MANY };
        // Several workers and a paced one have no need of it: the former fill the machine, the latter waits
        // anyway.
        let ahead = few && self.share.is_none_or(|share| share.of == 1) && self.pace.is_none();
        let mut captures = Vec::with_capacity(files.len());
        for (number, file) in (0..).zip(files) {
            captures.push(Capture::open(file, number, buffer_bytes, &mut self.interfaces)?);
        }
        if ahead {
            captures.iter_mut().for_each(|capture| capture.read_ahead(alone));
        }
        self.known_at_opening = self.interfaces.list.len();
        self.captures = captures.into_iter().map(Timed::new).collect();
        self.take_part();
        Ok(())
    }

    fn poll(&mut self, sink: &mut dyn Sink) -> Result<Polled, SourceError> {
        if let Some(failure) = self.failure.take() {
            return Err(self.fail(sink, failure));
        }
        let (mut pushed, mut bytes) = (0, 0);
        while pushed < POLL_PACKETS && bytes < POLL_BYTES && !self.stopped {
            let wait_ms = if pushed == 0 { POLL_MS } else { 0 };
            let next_ns = match self.look_ahead(wait_ms) {
                Ok(Ahead::Packet(next_ns)) => next_ns,
                Ok(Ahead::Waiting) if pushed > 0 => break,
                Ok(Ahead::Waiting) => return Ok(self.idle(sink, self.clock_ns)),
                Ok(Ahead::Ended) => break,
                Err(error) => return Err(self.fail(sink, error)),
            };
            let due_ns = self.pace.as_mut().map_or(i64::MAX, |pace| pace.due_ns(Instant::now(), next_ns));
            if next_ns > due_ns {
                if pushed > 0 {
                    break;
                }
                let wait = self.pace.as_ref().map_or(Duration::ZERO, |pace| pace.wait(due_ns, next_ns));
                std::thread::sleep(wait.min(Duration::from_millis(POLL_MS as u64)));
                return Ok(self.idle(sink, Some(due_ns)));
            }
            self.gather(due_ns);
            pushed += self.batch.len();
            bytes += self.batch.iter().map(|record| record.len as usize).sum::<usize>();
            self.lend(sink);
        }
        match pushed {
            0 => {
                self.announce(sink);
                self.hand_on_annexes(sink);
                Ok(Polled::Ended)
            }
            _ => Ok(Polled::Packets),
        }
    }

    fn counters(&self) -> SourceCounters {
        self.counters
    }

    fn next_time_ns(&mut self) -> Option<i64> {
        match self.look_ahead(0) {
            Ok(Ahead::Packet(next_ns)) => Some(next_ns),
            Ok(_) => None,
            Err(error) => {
                self.failure.get_or_insert(error);
                None
            }
        }
    }

    fn stop(&mut self) {
        self.stopped = true;
    }

    fn warnings(&mut self) -> Vec<String> {
        let found = std::mem::take(&mut self.interfaces.warnings);
        if self.share.is_none_or(Share::counts_damage) {
            self.warnings.extend(found);
        }
        std::mem::take(&mut self.warnings)
    }
}

/// Whether the file `path` can be opened and begins as one of its form does: its first bytes are compared, and
/// nothing is parsed. What can be read only once, as a pipe, is left alone.
///
/// # Errors
/// It is missing, may not be read, is empty, or begins like no capture.
pub fn check_begin(path: &str, form: FileForm) -> Result<(), SourceError> {
    let opened = if path == "-" { "/dev/stdin" } else { path };
    if std::fs::metadata(opened).is_ok_and(|kind| !kind.is_file() && !kind.is_dir()) {
        return Ok(());
    }
    let input = Input::open(opened).map_err(|error| match error {
        SourceError::File { reason, .. } => SourceError::File { path: path.to_string(), reason },
        other => other,
    })?;
    capture::check_begin(path, input, form)
}

/// Refuses options that can't be meant, all that is wrong at once.
fn check(name: &str, options: &FileOptions) -> Result<(), SourceError> {
    let mut faults = Vec::new();
    let files = options.paths.len();
    if files == 0 {
        faults.push("names no file; write file:PATH, or file:- for standard input".to_string());
    }
    if files > FILES_MAX {
        faults.push(format!(
            "names {files} files, at most {FILES_MAX} can be read at once; join some with mergecap"
        ));
    }
    if options.paths.iter().filter(|path| *path == "-").count() > 1 {
        faults.push("names standard input twice; it can be read once".to_string());
    }
    if options.pace.is_some_and(|pace| !(pace.is_finite() && pace > 0.0)) {
        faults.push("the pace must be a number above 0, as in pace=1".to_string());
    }
    if options.share.is_some_and(|(index, of)| index >= of) {
        faults.push("a worker's share must lie below the number of workers".to_string());
    }
    match faults.is_empty() {
        true => Ok(()),
        false => Err(SourceError::spec(name, faults.join("; "))),
    }
}

/// The smaller of a file's own snap length (0: none) and ours (`u32::MAX`: none).
fn smaller_snap_len(own: u32, ours: u32) -> u32 {
    match (own, ours) {
        (0, u32::MAX) => 0,
        (0, ours) => ours,
        (own, ours) => own.min(ours),
    }
}
