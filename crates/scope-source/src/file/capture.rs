//! One capture file being read: its buffer, its format, and the packet that stands next.

use std::path::Path;
use std::sync::Arc;

use scope_fault::Fault;
use scope_packet::pcapng::SECTION_HEADER;
use scope_packet::{GapReason, LinkType};

use super::buffer::{Buffer, Refill};
use super::follow::Follow;
use super::hpcap::Hpcap;
use super::input::Input;
use super::pcap::{self, Pcap};
use super::pcapng::Pcapng;
use super::pseudo::Pseudo;
use super::record::{Damage, Found, Interfaces, Record};
use super::unpack;
use crate::SourceError;
use crate::plan::FileForm;

enum Format {
    Pcap(Pcap),
    Pcapng(Pcapng),
    Hpcap(Hpcap),
}

/// Where an advance led.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Advance {
    /// The next packet is known: [`Capture::next`].
    Packet,
    /// The buffer must be refilled first, for which nothing of it may be lent.
    Refill,
    /// The file has no more packets.
    Ended,
}

/// Packets that can't be read and words for it.
pub(super) struct Cut {
    pub(super) warning: String,
    /// Packets whose record had begun: 0 or 1.
    pub(super) packets: u64,
}

pub(super) struct Capture {
    path: String,
    number: u32,
    buffer: Buffer,
    format: Format,
    /// The packet that stands next, if `has_next`.
    next: Record,
    has_next: bool,
    /// Packets found so far, `next` included.
    packets: u64,
    /// Unread bytes that the next advance needs.
    wanted: usize,
    damage: Option<Damage>,
    /// It was warned that times were clamped.
    clamped_warned: bool,
    follow: Option<Arc<dyn Follow>>,
}

/// A file that was opened, and nothing of it read.
pub(super) struct Unread {
    pub(super) path: String,
    pub(super) input: Input,
    pub(super) form: FileForm,
    pub(super) follow: Option<Arc<dyn Follow>>,
}

impl Unread {
    /// The same, as it is now, if it can be read again.
    pub(super) fn again(&self) -> Option<Unread> {
        let Unread { path, input, form, follow } = self;
        let input = Input::Part(input.part()?);
        Some(Unread { path: path.clone(), input, form: *form, follow: follow.clone() })
    }
}

impl Capture {
    /// Reads the header and what else stands before the first packet. A pipe is only waited for until its
    /// first interface.
    pub(super) fn open(
        file: Unread,
        number: u32,
        buffer_bytes: usize,
        interfaces: &mut Interfaces,
    ) -> Result<Capture, SourceError> {
        let Unread { path, input, form, follow } = file;
        let path = &*path;
        let fail = |reason: Fault| SourceError::File { path: path.to_string(), reason };
        let unread = |error| fail(Fault::default().error(&error).cause(format!("can't be read: {error}")));
        let input = match &follow {
            Some(follow) => Input::Followed(Box::new(input), follow.clone()),
            None => input,
        };
        let mut buffer = Buffer::new(input, buffer_bytes);
        buffer.refill(pcap::HEADER_BYTES, FOR_EVER).map_err(unread)?;
        if buffer.unread().first_chunk().is_some_and(|magic| unpack::is_magic(*magic)) {
            buffer.unpack();
            buffer.refill(pcap::HEADER_BYTES, FOR_EVER).map_err(unread)?;
        }
        let name = match path {
            "-" => "-".to_string(),
            _ => Path::new(path)
                .file_name()
                .map_or(path.to_string(), |name| name.to_string_lossy().into_owned()),
        };
        let format = match form {
            FileForm::Detected => detect(&mut buffer, path, &name, number, interfaces),
            FileForm::Hpcap(link_type) => hpcap(&buffer, &name, (number, link_type), interfaces),
        };
        let format = format.map_err(fail)?;
        let mut capture = Capture {
            path: path.to_string(),
            number,
            buffer,
            format,
            next: Record::default(),
            has_next: false,
            packets: 0,
            wanted: 0,
            damage: None,
            clamped_warned: false,
            follow,
        };
        capture.open_interfaces(interfaces)?;
        Ok(capture)
    }

    /// Steps to the first packet, or as far as a pipe must be read to know its first interface.
    fn open_interfaces(&mut self, interfaces: &mut Interfaces) -> Result<(), SourceError> {
        let before = match self.format {
            Format::Pcap(_) | Format::Hpcap(_) => interfaces.list.len() - 1,
            Format::Pcapng(_) => interfaces.list.len(),
        };
        while self.advance(interfaces) == Advance::Refill {
            let known = interfaces.list.len() > before;
            if known && self.buffer.flows() {
                break;
            }
            self.refill(FOR_EVER)?;
        }
        match &self.damage {
            Some(damage) if interfaces.list.len() == before => {
                let reason = Fault::whole(format!("no packet of it can be read: {}", damage.cause));
                let reason = reason.remedy("use another copy of it, if there is one");
                Err(SourceError::File { path: self.path.clone(), reason })
            }
            _ => Ok(()),
        }
    }

    /// Lets a thread read the file on from here, see [`Buffer::read_ahead`].
    pub(super) fn read_ahead(&mut self, alone: bool) {
        self.buffer.read_ahead(alone);
    }

    /// The packet that stands next, after an advance that found one.
    #[inline]
    pub(super) fn next(&self) -> Option<&Record> {
        self.has_next.then_some(&self.next)
    }

    /// Goes on to the next packet within the buffer.
    #[inline]
    pub(super) fn advance(&mut self, interfaces: &mut Interfaces) -> Advance {
        self.has_next = false;
        loop {
            let unread = self.buffer.unread();
            let found = match &mut self.format {
                Format::Pcap(pcap) => pcap.decode(unread, &mut self.next),
                Format::Pcapng(pcapng) => pcapng.decode(unread, interfaces, &mut self.next),
                Format::Hpcap(hpcap) => hpcap.decode(unread, &mut self.next),
            };
            match found {
                Found::Packet { bytes } => {
                    self.next.place += self.buffer.place();
                    self.next.file = self.number;
                    self.has_next = true;
                    self.packets += 1;
                    if self.next.pseudo != Pseudo::Nothing {
                        let Record { place, len, original_len, pseudo, .. } = self.next;
                        pseudo.turn(self.buffer.slice_mut(place, len as usize), original_len);
                    }
                    if self.next.clamped {
                        self.warn_of_clamped(interfaces);
                    }
                    self.buffer.consume(bytes);
                    return Advance::Packet;
                }
                Found::Other { bytes } => self.buffer.consume(bytes),
                Found::More { bytes, packet } if self.buffer.at_end() => {
                    let (begun, missing) = (!unread.is_empty(), bytes - unread.len());
                    let cause = match self.buffer.damage() {
                        Some(cause) => Some(cause.to_string()),
                        None => begun.then(|| format!("the file ends {missing} bytes too early")),
                    };
                    if let Some(cause) = cause {
                        self.end_at(Damage { cause, packet: packet && begun }, interfaces);
                    }
                    return Advance::Ended;
                }
                Found::More { bytes, .. } => {
                    self.wanted = bytes;
                    return Advance::Refill;
                }
                Found::Damaged(damage) => {
                    self.end_at(damage, interfaces);
                    return Advance::Ended;
                }
            }
        }
    }

    /// Moves packets to `batch`, the next one first, until that has `most`, for as long as the packet behind lies
    /// whole in the buffer, needs no closer look, and `goes` is true for the times of both. A packet is next
    /// before and after.
    #[inline]
    pub(super) fn run(
        &mut self,
        batch: &mut Vec<Record>,
        most: usize,
        mut goes: impl FnMut(i64, i64) -> bool,
    ) {
        let (Format::Pcap(pcap), true) = (&self.format, self.has_next) else { return };
        let (unread, place) = (self.buffer.unread(), self.buffer.place());
        let (mut at, mut next) = (0, self.next);
        let before = batch.len();
        while batch.len() < most {
            let Some(head) = pcap.plain(unread, at) else { break };
            if !goes(next.time_ns, head.0) {
                break;
            }
            batch.push(next);
            let bytes_at = at + pcap::HEAD_BYTES_MIN;
            next = pcap.plain_record(place + bytes_at, head);
            next.file = self.number;
            let end = bytes_at + head.1 as usize;
            self.buffer.fetch_ahead(at, end);
            at = end;
        }
        self.next = next;
        self.packets += (batch.len() - before) as u64;
        self.buffer.go_on(at);
    }

    /// Nothing behind the damage can be read.
    fn end_at(&mut self, damage: Damage, interfaces: &mut Interfaces) {
        // A file without a packet is read again after it was opened: it lacks them once.
        if self.damage.replace(damage).is_none() {
            self.lack_the_rest(interfaces);
        }
    }

    /// Notes that an unknown number of packets is missing from the last one that was read on.
    pub(super) fn lack_the_rest(&self, interfaces: &mut Interfaces) {
        let own = interfaces.list.iter().position(|interface| interface.part == self.number);
        let (interface, from_ns) = match (self.packets, own) {
            (0, None) => return, // without interfaces it has no packets
            (0, Some(own)) => (own as u32, 0),
            _ => (self.next.interface, self.next.time_ns),
        };
        interfaces.lack(interface, (from_ns, i64::MAX), GapReason::Unreadable, (0, None));
    }

    /// Says, once, that a time can't be stored.
    #[cold]
    fn warn_of_clamped(&mut self, interfaces: &mut Interfaces) {
        if std::mem::replace(&mut self.clamped_warned, true) {
            return;
        }
        let (path, packet) = (&self.path, self.packets);
        let (beyond, kept) = match self.next.time_ns {
            0 => ("before 1970", "1970-01-01T00:00:00Z"),
            _ => ("after 2262-04-11", "2262-04-11T23:47:16.854775807Z"),
        };
        interfaces.warnings.push(format!(
            "{path}: packet {packet} has a time {beyond}, which can't be stored; it is kept as {kept} (all \
             such packets: time_clamped in the summary); put the file's times right with editcap -t SECONDS"
        ));
    }

    /// Reads on, so that an advance can go on. Nothing of the buffer may be lent.
    pub(super) fn refill(&mut self, wait_ms: i32) -> Result<Refill, SourceError> {
        self.buffer.refill(self.wanted, wait_ms).map_err(|error| {
            let cause = format!(
                "reading failed at byte {}: {error}; what came before it was read",
                self.buffer.offset()
            );
            SourceError::File { path: self.path.clone(), reason: Fault::default().error(&error).cause(cause) }
        })
    }

    /// The bytes of a record whose batch has not been handed out yet.
    #[inline]
    pub(super) fn bytes(&self, record: &Record) -> &[u8] {
        self.buffer.slice(record.place, record.len as usize)
    }

    /// Comments of a packet, see [`super::annex::Beside::take_comments`].
    pub(super) fn take_comments(&mut self, number: u32) -> Vec<String> {
        match &mut self.format {
            Format::Pcapng(pcapng) => pcapng.beside.take_comments(number),
            Format::Pcap(_) | Format::Hpcap(_) => Vec::new(),
        }
    }

    /// Names and secrets found since the last call, if any.
    #[inline]
    pub(super) fn take_annexes(&mut self) -> Option<(Vec<Vec<u8>>, u64)> {
        match &mut self.format {
            Format::Pcapng(pcapng) if pcapng.beside.has_blocks() => Some(pcapng.beside.take_blocks()),
            _ => None,
        }
    }

    /// As typed.
    pub(super) fn path(&self) -> &str {
        &self.path
    }

    /// Gives back the memory of a file that has ended and says whether it was truncated. Nothing of it may be
    /// lent.
    pub(super) fn close(&mut self) -> Option<Cut> {
        self.buffer.release();
        if let Some(follow) = self.follow.take() {
            follow.ended(self.packets, self.damage.is_none());
        }
        let damage = self.damage.take()?;
        let (path, packets, offset) = (&self.path, self.packets, self.buffer.offset());
        let within = if self.buffer.is_packed() { " of what it decompresses to" } else { "" };
        Some(Cut {
            warning: format!(
                "{path}: truncated after packet {packets} at byte {offset}{within}: {}; read to that place",
                damage.cause
            ),
            packets: u64::from(damage.packet),
        })
    }

    /// The most bytes of memory its buffer has held.
    pub(super) fn buffer_bytes_max(&self) -> usize {
        self.buffer.bytes_max()
    }
}

/// Whether a file begins as one of its form does: its first bytes are compared, and nothing is parsed.
pub(super) fn check_begin(path: &str, input: Input, form: FileForm) -> Result<(), SourceError> {
    let fail = |reason: Fault| SourceError::File { path: path.to_string(), reason };
    let mut buffer = Buffer::new(input, pcap::HEADER_BYTES);
    let read = buffer.refill(pcap::HEADER_BYTES, FOR_EVER);
    read.map_err(|error| fail(Fault::default().error(&error).cause(format!("can't be read: {error}"))))?;
    let begin = check_begun(&buffer, 1).and_then(|()| match form {
        FileForm::Detected => first_word(&buffer).and_then(|magic| {
            let is_pcapng = u32::from_le_bytes(magic) == SECTION_HEADER;
            let is_known = is_pcapng || pcap::is_magic(magic).is_some() || unpack::is_magic(magic);
            if is_known { Ok(()) } else { Err(foreign(&magic)) }
        }),
        FileForm::Hpcap(_) => Ok(()),
    });
    begin.map_err(fail)
}

/// The first four bytes.
fn first_word(buffer: &Buffer) -> Result<[u8; 4], Fault> {
    let unread = buffer.unread();
    unread.first_chunk::<4>().copied().ok_or_else(|| {
        Fault::whole(format!("is no capture file: {} bytes are too few for any", unread.len()))
    })
}

/// Waiting for a pipe without end.
const FOR_EVER: i32 = -1;

/// Tells the format by its first bytes and reads a pcap header. The words of an error say what is wrong.
fn detect(
    buffer: &mut Buffer,
    path: &str,
    name: &str,
    file: u32,
    interfaces: &mut Interfaces,
) -> Result<Format, Fault> {
    check_begun(buffer, pcap::HEADER_BYTES)?;
    let magic = first_word(buffer)?;
    if u32::from_le_bytes(magic) == SECTION_HEADER {
        return Ok(Format::Pcapng(Pcapng::new(path, name, file)));
    }
    if pcap::is_magic(magic).is_none() {
        return Err(foreign(&magic));
    }
    let unread = buffer.unread();
    let Some(header) = unread.first_chunk::<{ pcap::HEADER_BYTES }>() else {
        let (there, needed) = (unread.len(), pcap::HEADER_BYTES);
        let fault = Fault::whole(format!("is truncated inside its header: it has {there} of {needed} bytes"));
        return Err(fault.remedy("use another copy of it, if there is one"));
    };
    let pcap = Pcap::open(header, name, file, interfaces).map_err(Fault::whole)?;
    buffer.consume(pcap::HEADER_BYTES);
    Ok(Format::Pcap(pcap))
}

/// HPCAP's raw records begin at once.
fn hpcap(
    buffer: &Buffer,
    name: &str,
    (file, link_type): (u32, LinkType),
    interfaces: &mut Interfaces,
) -> Result<Format, Fault> {
    check_begun(buffer, 1)?;
    Hpcap::open(name, file, link_type, interfaces).map(Format::Hpcap).map_err(Fault::whole)
}

/// A file must hold something. Of a compressed one that is damaged so many bytes at least must have come out,
/// and what came out must not be compressed again.
fn check_begun(buffer: &Buffer, bytes_min: usize) -> Result<(), Fault> {
    let unread = buffer.unread();
    if unread.len() < bytes_min
        && let Some(cause) = buffer.damage()
    {
        let reason = Fault::whole(format!("no packet of it can be read: {cause}"));
        return Err(reason.remedy("use another copy of it, if there is one"));
    }
    if unread.is_empty() {
        let is = if buffer.is_packed() { "is empty once it is decompressed" } else { "is empty" };
        let remedy = "a capture file begins with a header: the program that made it wrote nothing";
        return Err(Fault::whole(is).remedy(remedy));
    }
    if buffer.is_packed() && unread.first_chunk().is_some_and(|magic| unpack::is_magic(*magic)) {
        let remedy =
            "decompress it once, as in: zcat FILE | wirescope ... file:- (zstdcat for zstd, lz4cat for lz4)";
        return Err(Fault::whole("is compressed twice").remedy(remedy));
    }
    Ok(())
}

/// Of a file that begins like no capture.
fn foreign(magic: &[u8; 4]) -> Fault {
    let compressed = |by: &str, with: &str| {
        let remedy = format!("decompress it first, as in: {with} FILE | wirescope ... file:-");
        Fault::whole(format!("is compressed with {by}")).remedy(remedy)
    };
    match magic {
        [0xfd, b'7', b'z', b'X'] => compressed("xz", "xzcat"),
        [b'B', b'Z', b'h', _] => compressed("bzip2", "bzcat"),
        [0x02, 0x21, 0x4c, 0x18] => compressed("lz4's legacy format", "lz4cat"),
        [a, b, c, d] => {
            let begins = format!("it begins with {a:02x} {b:02x} {c:02x} {d:02x}, neither pcap nor pcapng");
            Fault::whole(format!("is no capture file: {begins}")).remedy("convert it, as with editcap")
        }
    }
}
