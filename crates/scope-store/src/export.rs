//! Packets of stores into files that other programs read: pcapng, pcap, or HPCAP's raw records, one link type each.
//!
//! ```text
//! pcapng   | section header, its comment says what is here and what is missing | interfaces | padding | EPB ... | ISB each |
//! pcap     | head 24: a1b23c4d 2.4 0 0 snap length, link type | seconds, nanoseconds, captured, original, bytes | ...
//! hpcap    see crate::hpcap
//! ```
//! A file has no name until it is whole, and never takes one that is there. With a bound for its size or span the
//! next one begins where a packet doesn't fit; each states what is missing in its own part of the span. The
//! files of the link type that came first have the name that was asked for, those of others
//! `NAME_LINKTYPE.EXT`; parts are numbered `NAME_00001.EXT`.
//!
//! Into a pipe everything goes as it comes: all interfaces that are known first, the facts at the end. It holds one link type,
//! unless all are wanted: then they stand beside each other, as few programs but Wireshark read it.
//! After an error of the disk nothing more is written. The file that met it gets no name, and [`Unfinished`]
//! says from when on packets are in no file.

use crate::head::HeadInterface;
use crate::hpcap::{self, Fit};
use crate::timeline::{InterfaceKey, KnownInterfaces, Losses, Span};
use scope_folder::folder::Draft;
use scope_folder::{Folder, with_suffix};
use scope_packet::pcapng::{self, BLOCK_BYTES_MIN, PACKET_HEAD_BYTES, PacketBlock};
use scope_packet::time::NS_PER_SECOND;
use scope_packet::{Gap, LinkType};
use scope_spelling::figures::plural;
use scope_spelling::time::iso;
use std::collections::{BTreeMap, HashMap};
use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

/// The writing program, as headers name it.
const APPLICATION: &str = concat!("wirescope ", env!("CARGO_PKG_VERSION"));
/// Bytes that are gathered before they are written.
const BUFFER_BYTES: usize = 1 << 20;
/// Bytes of a section header at most, and of its comment.
const SECTION_BYTES_MAX: usize = 16 << 10;
const COMMENT_BYTES_MAX: usize = SECTION_BYTES_MAX - 512;
/// The head of a pcapng file is a multiple of this.
const HEAD_ALIGN: usize = 4096;
/// Gaps that a header states one by one.
const GAPS_MAX: usize = 64;
/// Magic number of a pcap file with nanoseconds, and the most that libpcap accepts as snap length.
const PCAP_MAGIC: u32 = 0xA1B2_3C4D;
const PCAP_SNAP_LEN: u32 = 262_144;
/// The smallest bound for a file: larger than any head with one packet.
pub const SPLIT_BYTES_MIN: u64 = 1 << 20;

/// The form of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// pcapng with nanoseconds.
    Pcapng,
    /// Classic pcap with nanoseconds.
    Pcap,
    /// HPCAP's raw records.
    Hpcap,
}

/// Where a file ends and the next one begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Split {
    /// It would be longer than so many bytes, at least [`SPLIT_BYTES_MIN`].
    Bytes(u64),
    /// A multiple of this time, ns, from the begin of the span on; without a begin, from the first packet on.
    Every(i64),
}

/// Takes what goes into a pipe.
pub trait Pour: Send {
    /// Takes these bytes, and leaves none.
    ///
    /// # Errors
    /// Nobody takes them any more.
    fn pour(&mut self, bytes: &mut Vec<u8>) -> io::Result<()>;

    /// Whether it may take so long that nothing must be lent meanwhile: then it is asked by [`Export::flush`] alone.
    fn waits(&self) -> bool {
        false
    }
}

impl Pour for File {
    fn pour(&mut self, bytes: &mut Vec<u8>) -> io::Result<()> {
        self.write_all(bytes)?;
        bytes.clear();
        Ok(())
    }
}

/// Where files go.
pub enum Target<'a> {
    /// Into this folder, under this name and others made of it.
    Files(&'a Folder, OsString),
    /// Into a pipe.
    Pipe(Box<dyn Pour>),
    /// The pipe is in use.
    Poured,
}

/// What is asked for.
#[derive(Clone, Debug)]
pub struct Question {
    /// The stores, in words.
    pub of: String,
    /// The span.
    pub span: Span,
    /// From when to when the stores have packets at all, ns.
    pub heard: Option<(i64, i64)>,
    /// Which packets of it are wanted; empty: all.
    pub filter: String,
    /// Filters that packets passed on their way into the stores.
    pub filters: Vec<String>,
    /// Bytes to which longer packets were truncated on their way into the stores.
    pub snaps: Vec<u32>,
    /// Volumes of its runs that weren't given, in words, a line for each run.
    pub partial: Vec<String>,
}

impl Question {
    fn of_answer(&self, gaps: Vec<Gap>) -> Vec<Gap> {
        of_answer(gaps, !self.filter.is_empty())
    }
}

/// What was written.
#[derive(Debug, Default)]
pub struct Written {
    /// The files, by name.
    pub files: Vec<WrittenFile>,
    /// Packets.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Packets that the form could hold only in part.
    pub truncated: u64,
    /// Packets whose time the form has no place for.
    pub left_out: u64,
    /// Packets of other link types than a pipe's.
    pub other_types: u64,
    /// Packets that stand behind newer ones, since there was no room to let them wait.
    pub late: u64,
    /// Why it ended before its end: packets behind it weren't written.
    pub unfinished: Option<Unfinished>,
}

/// An error that ended an export early. The files that have their names are whole.
#[derive(Debug)]
pub struct Unfinished {
    /// The file that met it, by its name in the folder; empty: the pipe.
    pub name: OsString,
    /// The system's words.
    pub error: io::Error,
    /// From this time on, ns, packets are missing; those of other link types may be there for longer. 0: from
    /// the begin.
    pub from_ns: i64,
}

/// One file that has its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrittenFile {
    /// Its name in the folder.
    pub name: OsString,
    /// Link type of its packets.
    pub link_type: LinkType,
    /// Packets.
    pub packets: u64,
    /// Its length, bytes.
    pub bytes: u64,
}

/// The files that are being written.
pub struct Export<'a> {
    target: Target<'a>,
    format: Format,
    split: Option<Split>,
    question: Question,
    interfaces: Arc<dyn KnownInterfaces>,
    losses: Losses,
    /// Into a pipe go packets of all link types.
    all_types: bool,
    /// The link type that came first.
    main: Option<LinkType>,
    parts: BTreeMap<LinkType, Part<'a>>,
    /// Where time is counted from.
    begin_ns: Option<i64>,
    written: Written,
}

/// Where bytes go.
enum Sink<'a> {
    Draft(Draft<'a>),
    Pipe(Box<dyn Pour>),
}

/// One file, or what goes into a pipe.
struct Part<'a> {
    link_type: LinkType,
    /// From 1.
    number: u32,
    /// Where its part of the span begins, ns.
    from_ns: i64,
    name: OsString,
    sink: Sink<'a>,
    buffer: Vec<u8>,
    /// Bytes that are written already.
    flushed: u64,
    head_bytes: usize,
    /// By run and the run's number: its number here.
    interfaces: BTreeMap<InterfaceKey, u32>,
    /// By its number here, with its packets.
    described: Vec<(HeadInterface, u64)>,
    /// By lane and the run's number: its number here.
    numbers: HashMap<(u32, u32), u32>,
    /// By lane: the run's number of the interface that came last, and its number here.
    latest: Vec<Option<(u32, u32)>>,
    packets: u64,
    last_ns: i64,
}

impl<'a> Export<'a> {
    /// Files of this form for what is asked. `losses` are those of the timeline that packets come from: looked
    /// at whenever a file ends.
    pub fn new(
        target: Target<'a>,
        format: Format,
        split: Option<Split>,
        question: Question,
        interfaces: Arc<dyn KnownInterfaces>,
        losses: Losses,
    ) -> Export<'a> {
        Export {
            target,
            format,
            split,
            question,
            interfaces,
            losses,
            all_types: false,
            main: None,
            parts: BTreeMap::new(),
            begin_ns: None,
            written: Written::default(),
        }
    }

    /// Into a pipe go packets of all link types.
    #[must_use]
    pub fn of_all_types(self) -> Export<'a> {
        Export { all_types: true, ..self }
    }

    /// The name of the n-th file of a link type; `suffix`: it is not the one that came first.
    pub fn name(base: &OsStr, suffix: Option<&str>, number: Option<u32>) -> OsString {
        let mut name = Path::new(base).to_path_buf();
        if let Some(suffix) = suffix {
            name = with_suffix(&name, suffix);
        }
        if let Some(number) = number {
            name = with_suffix(&name, &format!("{number:05}"));
        }
        name.into_os_string()
    }

    /// Whether one of its files could be called `name`, under the name `base`, of stores with these link types.
    pub fn names(
        (base, name): (&OsStr, &OsStr),
        types: &[LinkType],
        format: Format,
        split: Option<Split>,
    ) -> bool {
        let others = types.iter().filter(|_| types.len() > 1).map(|of| Some(of.name()));
        let number = number_of(name);
        std::iter::once(None).chain(others).any(|suffix| {
            let is = |number| Export::name(base, suffix.as_deref(), number) == name;
            let has_parts = split.is_some() || file_bytes_max(format, split).is_some();
            (split.is_none() && is(None)) || (has_parts && number.is_some() && is(number))
        })
    }

    /// Whether anything more can be written.
    pub fn goes_on(&self) -> bool {
        self.written.unfinished.is_none()
    }

    /// Writes the next packet, a whole block of lane `lane` of the timeline.
    pub fn packet(&mut self, lane: u32, link_type: LinkType, block: &[u8]) {
        if self.goes_on()
            && let Err(unfinished) = self.try_packet(lane, link_type, block)
        {
            self.end_early(unfinished);
        }
    }

    /// Nothing more is written. What is open gets no name, so its packets are missing as well.
    fn end_early(&mut self, mut unfinished: Unfinished) {
        for (_, part) in std::mem::take(&mut self.parts) {
            unfinished.from_ns = unfinished.from_ns.min(part.from_ns);
        }
        self.written.unfinished = Some(unfinished);
    }

    fn try_packet(&mut self, lane: u32, link_type: LinkType, block: &[u8]) -> Result<(), Unfinished> {
        let Some(packet) = PacketBlock::first(block) else { return Ok(()) };
        let main = *self.main.get_or_insert(link_type);
        let (of_pipe, own_type) = (self.is_pipe(), link_type);
        if main != link_type && of_pipe && !self.all_types {
            self.written.other_types += 1;
            return Ok(());
        }
        // What goes into a pipe is one part, whatever is in it.
        let link_type = if of_pipe { main } else { link_type };
        let time_ns = packet.time_ns();
        let mut record = Vec::new();
        let fit = match self.format {
            Format::Pcapng => Fit::Whole,
            Format::Pcap => pcap_record(&mut record, &packet),
            Format::Hpcap => hpcap::record(&mut record, &packet),
        };
        match fit {
            Fit::LeftOut => {
                self.written.left_out += 1;
                return Ok(());
            }
            Fit::Truncated => self.written.truncated += 1,
            Fit::Whole => {}
        }
        let begin_ns = *self.begin_ns.get_or_insert(match self.question.span.from_ns {
            0 => time_ns,
            from_ns => from_ns,
        });
        let bytes = if record.is_empty() { block.len() } else { record.len() };
        let is_full =
            self.parts.get(&link_type).map(|part| self.is_full(part, bytes as u64, time_ns, begin_ns));
        if is_full != Some(false) {
            let (mut number, mut from_ns) = (1, self.question.span.from_ns);
            if let Some(part) = self.parts.remove(&link_type) {
                (number, from_ns) = (part.number + 1, time_ns);
                self.finish_part(part, time_ns.saturating_sub(1))?;
            }
            let next = self.begin_part(link_type, number, from_ns)?;
            self.parts.insert(link_type, next);
        }
        let Some(part) = self.parts.get_mut(&link_type) else { return Ok(()) };
        match self.format {
            Format::Pcapng => {
                let number = part.interface(&*self.interfaces, lane, own_type, packet.interface());
                let at = part.buffer.len();
                part.buffer.extend(block);
                part.buffer[at + 8..at + 12].copy_from_slice(&number.to_le_bytes());
            }
            Format::Pcap | Format::Hpcap => part.buffer.extend(&record),
        }
        self.written.late += u64::from(time_ns < part.last_ns);
        part.last_ns = part.last_ns.max(time_ns);
        part.packets += 1;
        self.written.packets += 1;
        self.written.bytes += packet.data().len() as u64;
        // Who reads a pipe gets the first packet at once.
        let (is_first, waits) = match &part.sink {
            Sink::Pipe(pipe) => (part.packets == 1, pipe.waits()),
            Sink::Draft(_) => (false, false),
        };
        if waits || part.buffer.len() < BUFFER_BYTES && !is_first {
            return Ok(());
        }
        part.flush().map_err(|error| part.unfinished(error))
    }

    /// Writes what was gathered for a pipe.
    pub fn flush(&mut self) {
        let is_pipe = self.is_pipe();
        let failed = self.parts.values_mut().filter(|_| is_pipe).find_map(|part| {
            let flushed = part.flush();
            flushed.err().map(|error| part.unfinished(error))
        });
        if let Some(unfinished) = failed {
            self.end_early(unfinished);
        }
    }

    /// Packets that were taken by now, and their captured bytes.
    pub fn written(&self) -> (u64, u64) {
        (self.written.packets, self.written.bytes)
    }

    /// Bytes that were gathered for a pipe.
    pub fn gathered(&self) -> usize {
        if self.is_pipe() { self.parts.values().map(|part| part.buffer.len()).sum() } else { 0 }
    }

    fn is_pipe(&self) -> bool {
        !matches!(self.target, Target::Files(..))
    }

    /// Whether the next packet, with so many bytes, doesn't belong into this file any more.
    fn is_full(&self, part: &Part<'_>, bytes: u64, time_ns: i64, begin_ns: i64) -> bool {
        if part.packets == 0 {
            return false;
        }
        if let Some(Split::Every(step_ns)) = self.split {
            let step = |time_ns: i64| time_ns.saturating_sub(begin_ns).div_euclid(step_ns);
            if step(time_ns) > step(part.last_ns) {
                return true;
            }
        }
        let bytes_max = file_bytes_max(self.format, self.split).filter(|_| !self.is_pipe());
        bytes_max.is_some_and(|most| part.bytes() + part.statistics_bytes(self.format) + bytes > most)
    }

    fn begin_part(&mut self, link_type: LinkType, number: u32, from_ns: i64) -> Result<Part<'a>, Unfinished> {
        let name = match &self.target {
            Target::Pipe(_) | Target::Poured => OsString::new(),
            Target::Files(_, base) => {
                let suffix = (self.main != Some(link_type)).then(|| link_type.name());
                let number = (self.split.is_some() || number > 1).then_some(number);
                Export::name(base, suffix.as_deref(), number)
            }
        };
        let sink = match &mut self.target {
            Target::Files(folder, _) => folder.draft(&name).map(Sink::Draft),
            pipe => match std::mem::replace(pipe, Target::Poured) {
                Target::Pipe(pipe) => Ok(Sink::Pipe(pipe)),
                _ => Err(io::ErrorKind::BrokenPipe.into()),
            },
        };
        let sink = sink.map_err(|error| Unfinished { name: name.clone(), error, from_ns })?;
        let mut part = Part {
            link_type,
            number,
            from_ns,
            name,
            sink,
            buffer: Vec::new(),
            flushed: 0,
            head_bytes: 0,
            interfaces: BTreeMap::new(),
            described: Vec::new(),
            numbers: HashMap::new(),
            latest: Vec::new(),
            packets: 0,
            last_ns: i64::MIN,
        };
        match self.format {
            Format::Pcapng => self.begin_pcapng(&mut part),
            Format::Pcap => {
                part.buffer.extend(PCAP_MAGIC.to_le_bytes());
                part.buffer.extend([2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
                part.buffer.extend(PCAP_SNAP_LEN.to_le_bytes());
                part.buffer.extend(u32::from(link_type.0).to_le_bytes());
            }
            Format::Hpcap => {}
        }
        Ok(part)
    }

    /// Of a file the head is reserved; into a pipe go all interfaces that there may be.
    fn begin_pcapng(&self, part: &mut Part<'_>) {
        let all = self.interfaces.all(part.link_type);
        if let Sink::Pipe(_) = part.sink {
            let text =
                format!("{}written to a pipe: the statistics at its end say what is missing", self.asked());
            pcapng::section_header(&mut part.buffer, APPLICATION, &text);
            for (key, interface) in all {
                part.add(key, &interface);
            }
            let descriptions = part.descriptions();
            return part.buffer.extend(descriptions);
        }
        let mut foreseen = Vec::new();
        for (_, interface) in &all {
            pcapng::interface(&mut foreseen, part.link_type, &interface.name, &interface.description);
        }
        part.head_bytes = (SECTION_BYTES_MAX + foreseen.len() + BLOCK_BYTES_MIN).next_multiple_of(HEAD_ALIGN);
        part.buffer.resize(part.head_bytes, 0);
    }

    /// All packets are there. Without any, an empty file says that; `link_type` is that of the stores, if
    /// they have one.
    pub fn finish(mut self, link_type: Option<LinkType>) -> Written {
        if self.parts.is_empty() && self.written.files.is_empty() && self.goes_on() {
            let link_type = link_type.unwrap_or(LinkType::ETHERNET);
            self.main = Some(link_type);
            match self.begin_part(link_type, 1, self.question.span.from_ns) {
                Ok(part) => drop(self.parts.insert(link_type, part)),
                Err(unfinished) => self.end_early(unfinished),
            }
        }
        while let Some((_, part)) = self.parts.pop_first() {
            if let Err(unfinished) = self.finish_part(part, self.question.span.to_ns) {
                self.end_early(unfinished);
            }
        }
        self.written.files.sort_by(|a, b| a.name.cmp(&b.name));
        self.written
    }

    /// Ends a file: the facts, everything on the disk, the name.
    fn finish_part(&mut self, mut part: Part<'a>, to_ns: i64) -> Result<(), Unfinished> {
        let gaps = self.question.of_answer(self.losses.within(Span { from_ns: part.from_ns, to_ns }));
        let facts = self.facts(&part, to_ns, &gaps);
        if self.format == Format::Pcapng {
            part.end_pcapng(&facts, to_ns.min(part.last_ns.max(part.from_ns)), lost(&gaps));
        }
        part.flush().map_err(|error| part.unfinished(error))?;
        let head = if self.format == Format::Pcapng { part.head(&facts) } else { Vec::new() };
        let Part { name, link_type, packets, flushed: bytes, from_ns, sink, .. } = part;
        if let Sink::Draft(draft) = sink {
            publish(draft, &head).map_err(|error| Unfinished { name: name.clone(), error, from_ns })?;
            self.written.files.push(WrittenFile { name, link_type, packets, bytes });
        }
        Ok(())
    }

    /// Out of what, and which span.
    fn asked(&self) -> String {
        let Question { of, span, heard, filter, filters, snaps, partial } = &self.question;
        let mut text = format!("packets of {of}\n");
        let end = |ns: i64| if ns == i64::MAX { "the end".to_string() } else { iso(ns) };
        let begin = |ns: i64| if ns == 0 { "the begin".to_string() } else { iso(ns) };
        let _ = writeln!(text, "asked: {} to {}", begin(span.from_ns), end(span.to_ns));
        if let Some((from_ns, to_ns)) = heard {
            let _ = writeln!(text, "stored: {} to {}", iso(*from_ns), iso(*to_ns));
        }
        for run in partial {
            let _ = writeln!(text, "{run}");
        }
        if !filter.is_empty() {
            let _ = writeln!(text, "filter: {filter}");
        }
        for filter in filters {
            let _ = writeln!(text, "{}", left_out_by(filter));
        }
        for snap in snaps {
            let _ = writeln!(text, "{}", truncated_to(*snap));
        }
        text
    }

    /// The facts of a file, one a line.
    fn facts(&self, part: &Part<'_>, to_ns: i64, gaps: &[Gap]) -> String {
        let mut text = self.asked();
        if self.split.is_some() || part.number > 1 {
            let end = if to_ns == i64::MAX { "the end".to_string() } else { iso(to_ns) };
            let _ = writeln!(text, "part {}: {} to {end}", part.number, iso(part.from_ns));
        }
        let _ = writeln!(text, "packets: {}", part.packets);
        if self.written.truncated + self.written.left_out + self.written.late > 0 {
            let Written { truncated, left_out, late, .. } = &self.written;
            let _ =
                writeln!(text, "so far {truncated} truncated, {left_out} left out, {late} behind newer ones");
        }
        match lost(gaps) {
            (0, Some(0)) => {
                let Question { filters, snaps, partial, .. } = &self.question;
                let is_whole = filters.is_empty() && snaps.is_empty() && partial.is_empty();
                let more = if is_whole { "" } else { "else " };
                let _ = writeln!(text, "complete: nothing {more}is missing between the stored packets");
            }
            (least, Some(most)) => {
                let _ = writeln!(text, "incomplete: at least {least} and at most {}", missing(most));
            }
            (0, None) => text.push_str("incomplete: nobody knows how many packets are missing\n"),
            (least, None) => {
                let _ = writeln!(text, "incomplete: at least {}", missing(least));
            }
        }
        for gap in gaps.iter().take(GAPS_MAX) {
            let to = if gap.to_ns == i64::MAX { "the end".to_string() } else { iso(gap.to_ns) };
            let _ = write!(text, "gap: {} to {to} {}", iso(gap.from_ns), gap.reason.name());
            let _ = match gap.lost_max {
                Some(most) if most == gap.lost_min => writeln!(text, ", {most} packet{}", plural(most)),
                Some(most) => writeln!(text, ", {} to {most} packet{}", gap.lost_min, plural(most)),
                None if gap.lost_min > 0 => {
                    writeln!(text, ", at least {} packet{}", gap.lost_min, plural(gap.lost_min))
                }
                None => writeln!(text),
            };
        }
        if gaps.len() > GAPS_MAX {
            let _ = writeln!(text, "and {} more gaps", gaps.len() - GAPS_MAX);
        }
        text.truncate(pcapng::beginning(text.trim_end(), COMMENT_BYTES_MAX).len());
        text
    }
}

/// What an answer lacks: of what is lost nobody knows whether a filter would have matched it.
pub fn of_answer(gaps: Vec<Gap>, is_filtered: bool) -> Vec<Gap> {
    let least = |gap: Gap| if is_filtered { 0 } else { gap.lost_min };
    gaps.into_iter().map(|gap| Gap { lost_min: least(gap), ..gap }).collect()
}

/// So many packets, as a sentence's end.
fn missing(packets: u64) -> String {
    format!("{packets} packet{} missing", if packets == 1 { " is" } else { "s are" })
}

/// A store's filter, and what it did, in words.
pub fn left_out_by(filter: &str) -> String {
    let shown = pcapng::beginning(filter, 500);
    let more = if shown.len() < filter.len() { " ..." } else { "" };
    format!("store filter: {shown}{more} (other packets were left out)")
}

/// What a store says of a packet's length.
pub fn truncated_to(snap: u32) -> String {
    format!("store snap length: {snap} B (of longer packets a filter saw no more)")
}

/// Puts the head in its place and everything on the disk, and gives the file its name.
fn publish(mut draft: Draft<'_>, head: &[u8]) -> io::Result<()> {
    draft.file().write_all_at(head, 0)?;
    draft.file().sync_data()?;
    draft.publish()
}

/// The number of a part at the end of a name: what stands behind the last `_`, if it is five digits or more.
fn number_of(name: &OsStr) -> Option<u32> {
    let stem = Path::new(name).file_stem()?.to_str()?;
    let (_, digits) = stem.rsplit_once('_')?;
    let is_number = digits.len() >= 5 && digits.bytes().all(|digit| digit.is_ascii_digit());
    is_number.then(|| digits.parse().ok()).flatten()
}

impl Part<'_> {
    fn unfinished(&self, error: io::Error) -> Unfinished {
        Unfinished { name: self.name.clone(), error, from_ns: self.from_ns }
    }

    fn bytes(&self) -> u64 {
        self.flushed + self.buffer.len() as u64
    }

    /// What its end takes at most.
    fn statistics_bytes(&self, format: Format) -> u64 {
        let interfaces = self.interfaces.len() as u64 + 1;
        if format == Format::Pcapng { interfaces * pcapng::STATISTICS_BYTES as u64 } else { 0 }
    }

    fn add(&mut self, key: InterfaceKey, interface: &HeadInterface) -> u32 {
        let number = self.described.len() as u32;
        self.described.push((interface.clone(), 0));
        self.interfaces.insert(key, number);
        number
    }

    /// Its own number of the interface that lane `lane` calls `number`.
    fn interface(
        &mut self,
        interfaces: &dyn KnownInterfaces,
        lane: u32,
        link_type: LinkType,
        number: u32,
    ) -> u32 {
        let lane = lane as usize;
        let own = match self.latest.get(lane).copied().flatten() {
            Some((latest, own)) if latest == number => own,
            _ => {
                let Some(own) = self.number(interfaces, lane as u32, link_type, number) else { return 0 };
                self.latest.resize(self.latest.len().max(lane + 1), None);
                self.latest[lane] = Some((number, own));
                own
            }
        };
        self.described[own as usize].1 += 1;
        own
    }

    fn number(
        &mut self,
        interfaces: &dyn KnownInterfaces,
        lane: u32,
        link_type: LinkType,
        number: u32,
    ) -> Option<u32> {
        if let Some(own) = self.numbers.get(&(lane, number)) {
            return Some(*own);
        }
        let (key, interface) = interfaces.of(lane, number)?;
        let known = self.interfaces.get(&key).copied();
        let own = known.unwrap_or_else(|| {
            let own = self.add(key, &interface);
            if let Sink::Pipe(_) = self.sink {
                // The others stand in front already.
                let link_type = if link_type == self.link_type { self.number_of_type() } else { link_type };
                pcapng::interface(&mut self.buffer, link_type, &interface.name, &interface.description);
            }
            own
        });
        self.numbers.insert((lane, number), own);
        Some(own)
    }

    /// The number that its link type stands under: libpcap reads some only so where there are several.
    fn number_of_type(&self) -> LinkType {
        let alias = self.link_type.alias().filter(|_| self.described.len() > 1);
        alias.unwrap_or(self.link_type)
    }

    fn descriptions(&self) -> Vec<u8> {
        let mut blocks = Vec::new();
        let none = HeadInterface {
            name: "none".to_string(),
            description: "no packets in this span".to_string(),
            link_type: self.link_type,
        };
        let none = self.described.is_empty().then_some(&none);
        for interface in self.described.iter().map(|(interface, _)| interface).chain(none) {
            pcapng::interface(&mut blocks, self.number_of_type(), &interface.name, &interface.description);
        }
        blocks
    }

    /// The head of a file, filled in.
    fn head(&self, facts: &str) -> Vec<u8> {
        let mut head = Vec::with_capacity(self.head_bytes);
        if self.head_bytes > 0 {
            pcapng::section_header(&mut head, APPLICATION, facts);
            head.extend(self.descriptions());
            let used = head.len();
            head.resize(self.head_bytes, 0);
            pcapng::padding(&mut head[used..]);
        }
        head
    }

    /// Appends how many packets each interface has; what is missing stands with the first one, with the facts
    /// where they don't stand in front.
    fn end_pcapng(&mut self, facts: &str, end_ns: i64, lost: (u64, Option<u64>)) {
        let facts = if self.head_bytes == 0 { facts } else { "" };
        let none = self.described.is_empty().then_some(0);
        let counts: Vec<u64> = self.described.iter().map(|(_, packets)| *packets).chain(none).collect();
        for (number, packets) in (0..).zip(counts) {
            let dropped = if number == 0 { lost.1.unwrap_or(lost.0) } else { 0 };
            let comment = if number == 0 { facts } else { "" };
            pcapng::statistics_with(&mut self.buffer, number, end_ns, (packets + dropped, dropped), comment);
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.sink {
            Sink::Draft(draft) => draft.file().write_all(&self.buffer)?,
            Sink::Pipe(pipe) => {
                self.flushed += self.buffer.len() as u64;
                return pipe.pour(&mut self.buffer);
            }
        }
        self.flushed += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }
}

/// Length of a file at most: what was asked for, and what the form allows.
fn file_bytes_max(format: Format, split: Option<Split>) -> Option<u64> {
    let asked = match split {
        Some(Split::Bytes(bytes)) => Some(bytes),
        Some(Split::Every(_)) | None => None,
    };
    let of_form = (format == Format::Hpcap).then_some(hpcap::FILE_BYTES_MAX);
    asked.into_iter().chain(of_form).min()
}

/// Packets that gaps lack, at least and at most; `None`: nobody knows.
pub fn lost(gaps: &[Gap]) -> (u64, Option<u64>) {
    gaps.iter().fold((0, Some(0)), |(least, most), gap| {
        let most: Option<u64> = most;
        let both = most.zip(gap.lost_max).map(|(a, b)| a.saturating_add(b));
        (u64::saturating_add(least, gap.lost_min), both)
    })
}

/// Appends a packet's record in pcap's form, as far as that holds it.
fn pcap_record(out: &mut Vec<u8>, packet: &PacketBlock<'_>) -> Fit {
    let time_ns = packet.time_ns();
    let Ok(seconds) = u32::try_from(time_ns / NS_PER_SECOND) else { return Fit::LeftOut };
    out.extend(seconds.to_le_bytes());
    out.extend(((time_ns % NS_PER_SECOND) as u32).to_le_bytes());
    out.extend(&packet.bytes()[PACKET_HEAD_BYTES - 8..PACKET_HEAD_BYTES]); // both lengths
    out.extend(packet.data());
    Fit::Whole
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn raw_records_end_at_2_gib_and_other_forms_where_it_was_asked_for() {
        let check = |format, split, expected| assert_eq!(file_bytes_max(format, split), expected);
        let gib = |count: u64| Some(Split::Bytes(count << 30));
        check(Format::Hpcap, None, Some(2 << 30));
        check(Format::Hpcap, Some(Split::Every(1)), Some(2 << 30));
        check(Format::Hpcap, gib(1), Some(1 << 30));
        check(Format::Hpcap, gib(4), Some(2 << 30));
        check(Format::Pcapng, gib(4), Some(4 << 30));
        check(Format::Pcap, None, None);
        check(Format::Pcapng, Some(Split::Every(1)), None);
    }

    #[test]
    fn the_names_that_an_export_could_give_are_known_before_it_begins() {
        let check = |name: &str, types: &[LinkType], format, split, expected| {
            let found = Export::names((OsStr::new("out.x"), OsStr::new(name)), types, format, split);
            assert_eq!(found, expected, "{name} {types:?} {format:?} {split:?}");
        };
        let (one, two) = ([LinkType::ETHERNET], [LinkType::ETHERNET, LinkType::RAW]);
        let parts = Some(Split::Every(1));
        check("out.x", &one, Format::Pcapng, None, true);
        check("out.x", &one, Format::Pcapng, parts, false);
        check("out_RAW.x", &one, Format::Pcapng, None, false);
        check("out_RAW.x", &two, Format::Pcapng, None, true);
        check("out_NULL.x", &two, Format::Pcapng, None, false);
        check("out_00007.x", &one, Format::Pcapng, None, false);
        check("out_00007.x", &one, Format::Hpcap, None, true);
        check("out_00007.x", &one, Format::Pcapng, parts, true);
        check("out_123456.x", &one, Format::Pcapng, parts, true);
        check("out_000007.x", &one, Format::Pcapng, parts, false);
        check("out_0007.x", &one, Format::Pcapng, parts, false);
        check("out_RAW_00007.x", &two, Format::Pcapng, parts, true);
        check("out_RAW_00007.x", &one, Format::Pcapng, parts, false);
        check("other_00007.x", &one, Format::Pcapng, parts, false);
        check("out_00007.y", &one, Format::Pcapng, parts, false);
    }
}
