//! pcapng: sections of blocks, each section in a byte order of its own, with any number of interfaces and
//! time resolutions.
//!
//! ```text
//!  block    0 type | 4 length | 8 body ... | length again                      length counts all of it and is a multiple of 4
//!  section  8 byte order | 12 major | 14 minor | 16 section length | 24 options                  0x0A0D0D0A
//!  IDB      8 link type | 10 - | 12 snap length | 16 options                                     1
//!  EPB      8 interface | 12 time high | 16 time low | 20 captured | 24 original | 28 bytes | options     6
//!  PB       8 interface, 16 bits | 10 lost before, 16 bits | 12 ... as EPB                       2, obsolete
//!  SPB      8 original | 12 bytes                                                                3, no time
//!  ISB      8 interface | 12 time high | 16 time low | 20 options                                5
//! ```
//! Names for addresses (4) and secrets (10) are handed on as they are, and comments of packets. All other
//! blocks, and so Wirescope's own padding and key columns, are stepped over. Where libpcap refuses what is
//! clear (interfaces of different link types or snap lengths, a byte order that changes, a packet longer than
//! its interface's snap length) it is read; where a block contradicts itself it is damage, as for libpcap. So
//! is an interface whose resolution or time offset is given twice, or in a wrong length: its times would be a
//! guess. The first section header may end with a wrong length, as for libpcap. A packet without a time has
//! time 0.
//!
//! Packets that the file itself says were dropped are gaps: `epb_dropcount` (of the old packet block its
//! count) between the packet and the one before it on its interface, and what statistics (`isb_ifdrop`,
//! `isb_osdrop`) count beyond these between them and the statistics before.

use scope_packet::pcapng::COMMENT_BYTES_MAX;
use scope_packet::{GapReason, Interface, LinkType, TimestampSource, pcapng, time};

use super::annex::Beside;
use super::buffer::RECORD_BYTES_MAX;
use super::pseudo::Pseudo;
use super::record::{Damage, Found, Interfaces, Record, captured_len_max, snap_len, whole};

const OLD_PACKET: u32 = 2;
const SIMPLE_PACKET: u32 = 3;
const BYTE_ORDER_MAGIC: u32 = 0x1A2B_3C4D;
/// A section header with all its options is at most this long, bytes (libpcap's limit).
const SECTION_HEADER_BYTES_MAX: usize = 1 << 20;
const SECTION_HEADER_BYTES_MIN: usize = 28;
const INTERFACE_BYTES_MIN: usize = 20;
const STATISTICS_BYTES_MIN: usize = 24;
/// Of a name or description so many bytes are kept.
const TEXT_BYTES_MAX: usize = 512;

/// How the blocks of the current section are read.
pub(super) struct Pcapng {
    big_endian: bool,
    /// Interfaces of the current section, by their number in it.
    section: Vec<SectionInterface>,
    /// As typed, for warnings.
    path: String,
    /// Stands in for interfaces without a name.
    name: String,
    /// Number of the file.
    file: u32,
    /// A section has begun.
    begun: bool,
    /// The section is a dump that says itself what it lacks: its statistics count the most that may be missing.
    counts_most: bool,
    /// It was warned that statistics count packets as dropped.
    drops_warned: bool,
    /// What it says beside its packets.
    pub(super) beside: Beside,
}

#[derive(Clone, Copy)]
struct SectionInterface {
    /// Number over all files of the source.
    number: u32,
    captured_len_max: u32,
    /// For simple packet blocks, which don't say their captured length.
    snap_len: u32,
    clock: Clock,
    pseudo: Pseudo,
    /// Time of its last packet, ns.
    last_ns: i64,
    /// Time of its last statistics, ns.
    stated_ns: i64,
    /// Packets that are known to be dropped so far, by packets or by statistics.
    dropped: u64,
}

/// How an interface's units become ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Clock {
    scale: Scale,
    offset_s: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scale {
    Times(u64),
    Over(u64),
    /// So fine that 64 bits of it are less than 1 ns.
    Zero,
    /// 2^-n s.
    Shift(u32),
}

impl Clock {
    /// From `if_tsresol` and `if_tsoffset`.
    pub(super) fn new(resolution: u8, offset_s: i64) -> Clock {
        let scale = match (resolution & 0x80 != 0, u32::from(resolution & 0x7f)) {
            (true, shift) => Scale::Shift(shift),
            (false, digits @ 0..=9) => Scale::Times(10u64.pow(9 - digits)),
            (false, digits) => 10u64.checked_pow(digits - 9).map_or(Scale::Zero, Scale::Over),
        };
        Clock { scale, offset_s }
    }

    /// Time of a stamp, and whether it had to be clamped. Parts of a ns are dropped.
    #[inline]
    pub(super) fn ns(&self, stamp: u64) -> (i64, bool) {
        if let (Scale::Times(factor), 0) = (self.scale, self.offset_s)
            && let Some(ns) = stamp.checked_mul(factor).and_then(|ns| i64::try_from(ns).ok())
        {
            return (ns, false);
        }
        self.ns_wide(stamp)
    }

    fn ns_wide(&self, stamp: u64) -> (i64, bool) {
        let ns = match self.scale {
            Scale::Times(factor) => u128::from(stamp) * u128::from(factor),
            Scale::Over(divisor) => u128::from(stamp / divisor),
            Scale::Zero => 0,
            Scale::Shift(shift) => (u128::from(stamp) * time::NS_PER_SECOND as u128) >> shift,
        };
        time::clamp_ns(ns as i128 + i128::from(self.offset_s) * i128::from(time::NS_PER_SECOND))
    }
}

fn damaged(cause: String, packet: bool) -> Found {
    Found::Damaged(Damage { cause, packet })
}

impl Pcapng {
    /// A reader of file number `file` that expects a section header first. `name` stands in for interfaces
    /// without one.
    pub(super) fn new(path: &str, name: &str, file: u32) -> Pcapng {
        let (path, name) = (path.to_string(), name.to_string());
        Pcapng {
            big_endian: false,
            section: Vec::new(),
            path,
            name,
            file,
            begun: false,
            counts_most: false,
            drops_warned: false,
            beside: Beside::default(),
        }
    }

    /// The block that begins with the first unread byte; a packet is put into `record`.
    #[inline]
    pub(super) fn decode(
        &mut self,
        unread: &[u8],
        interfaces: &mut Interfaces,
        record: &mut Record,
    ) -> Found {
        let head = match whole(unread, 8, false) {
            Ok(head) => head,
            Err(more) => return self.cut_head(unread, more),
        };
        let kind = self.u32(head, 0);
        if kind == pcapng::SECTION_HEADER {
            return self.section_header(unread, interfaces);
        }
        let packet = is_packet(kind);
        let bytes = self.u32(head, 4) as usize;
        if !(pcapng::BLOCK_BYTES_MIN..=RECORD_BYTES_MAX).contains(&bytes) || !bytes.is_multiple_of(4) {
            return damaged(
                format!("a block of type {kind:#x} claims the impossible length {bytes}"),
                packet,
            );
        }
        let block = match whole(unread, bytes, packet) {
            Ok(block) => block,
            Err(more) => return more,
        };
        if self.u32(block, bytes - 4) as usize != bytes {
            return damaged(
                format!("a block of type {kind:#x} ends with another length than it begins with"),
                packet,
            );
        }
        match kind {
            pcapng::PACKET => self.packet(block, 28, false, interfaces, record),
            OLD_PACKET => self.packet(block, 28, true, interfaces, record),
            SIMPLE_PACKET => self.simple_packet(block, record),
            pcapng::INTERFACE => self.interface(block, interfaces),
            pcapng::STATISTICS => self.statistics(block, interfaces),
            pcapng::NAMES | pcapng::SECRETS => {
                self.beside.block(block, kind, self.big_endian);
                Found::Other { bytes }
            }
            _ => Found::Other { bytes },
        }
    }

    /// Fewer than 8 bytes: whether they begin a packet is known if the type is there.
    fn cut_head(&self, unread: &[u8], more: Found) -> Found {
        match more {
            Found::More { bytes, .. } => {
                Found::More { bytes, packet: unread.len() >= 4 && is_packet(self.u32(unread, 0)) }
            }
            other => other,
        }
    }

    fn section_header(&mut self, unread: &[u8], interfaces: &mut Interfaces) -> Found {
        let order = match whole(unread, 12, false) {
            Ok(head) => u32::from_le_bytes([head[8], head[9], head[10], head[11]]),
            Err(more) => return more,
        };
        self.big_endian = match order {
            BYTE_ORDER_MAGIC => false,
            _ if order.swap_bytes() == BYTE_ORDER_MAGIC => true,
            _ => return damaged("a section header has no byte order that is known".to_string(), false),
        };
        let bytes = self.u32(unread, 4) as usize;
        if !(SECTION_HEADER_BYTES_MIN..=SECTION_HEADER_BYTES_MAX).contains(&bytes) || !bytes.is_multiple_of(4)
        {
            return damaged(format!("a section header claims the impossible length {bytes}"), false);
        }
        let block = match whole(unread, bytes, false) {
            Ok(block) => block,
            Err(more) => return more,
        };
        if self.u32(block, bytes - 4) as usize != bytes {
            if self.begun {
                return damaged(
                    "a section header ends with another length than it begins with".to_string(),
                    false,
                );
            }
            let path = &self.path;
            interfaces
                .warnings
                .push(format!("{path}: its first block ends with a wrong length; read on behind it"));
        }
        let (major, minor) = (self.u16(block, 12), self.u16(block, 14));
        if (major, minor) != (1, 0) && (major, minor) != (1, 2) {
            return damaged(format!("a section is of version {major}.{minor}, only 1.0 is known"), false);
        }
        let (mut is_own, mut lacks) = (false, false);
        let _whole = self.options(&block[24..bytes - 4], |code, value| match code {
            1 => lacks |= value.split(|byte| *byte == b'\n').any(|line| line.starts_with(b"incomplete: ")),
            4 => is_own |= value.starts_with(b"wirescope "),
            _ => {}
        });
        self.counts_most = is_own && lacks;
        self.begun = true;
        self.section.clear();
        Found::Other { bytes }
    }

    fn interface(&mut self, block: &[u8], interfaces: &mut Interfaces) -> Found {
        if block.len() < INTERFACE_BYTES_MIN {
            return damaged("an interface description is too short".to_string(), false);
        }
        let link_type = LinkType(self.u16(block, 8)).canonical();
        let snap_len = snap_len(self.u32(block, 12));
        let (mut name, mut description, mut resolution, mut offset) =
            (self.name.clone(), String::new(), None, None);
        let mut fault = None;
        let whole = self.options(&block[16..block.len() - 4], |code, value| match (code, value) {
            (2, _) => name = text(value, TEXT_BYTES_MAX),
            (3, _) => description = text(value, TEXT_BYTES_MAX),
            (9, [byte]) if resolution.is_none() => resolution = Some(*byte),
            (9, _) => fault = Some(("if_tsresol", value.len(), 1)),
            (14, _) if value.len() == 8 && offset.is_none() => offset = self.u64(value),
            (14, _) => fault = Some(("if_tsoffset", value.len(), 8)),
            _ => {}
        });
        if let Some((option, len, right)) = fault {
            let what =
                if len == right { "twice".to_string() } else { format!("in {len} bytes instead of {right}") };
            let cause =
                format!("interface '{name}' has its {option} {what}, so that its times have no meaning");
            return damaged(cause, false);
        }
        if !whole {
            return damaged(
                format!("the options of interface '{name}' don't fit into its description"),
                false,
            );
        }
        let number = interfaces.add(Interface {
            name,
            description,
            link_type,
            snap_len: snap_len.unwrap_or(0),
            timestamps: TimestampSource::File,
            part: self.file,
        });
        let Some(number) = number else {
            return damaged("more interfaces are described than the format can number".to_string(), false);
        };
        let sane = captured_len_max(link_type.0);
        self.section.push(SectionInterface {
            number,
            captured_len_max: snap_len.map_or(sane, |len| len.max(sane)),
            snap_len: snap_len.unwrap_or(sane),
            clock: Clock::new(resolution.unwrap_or(6), offset.unwrap_or(0) as i64),
            pseudo: Pseudo::of(link_type, self.big_endian),
            last_ns: 0,
            stated_ns: 0,
            dropped: 0,
        });
        Found::Other { bytes: block.len() }
    }

    /// An enhanced packet block, or an old one, whose first word differs. The packet's bytes begin at
    /// `data_at`.
    #[inline]
    fn packet(
        &mut self,
        block: &[u8],
        data_at: usize,
        old: bool,
        interfaces: &mut Interfaces,
        record: &mut Record,
    ) -> Found {
        let data_end = block.len() - 4;
        if data_end < data_at {
            return damaged("a packet block is too short".to_string(), true);
        }
        let (index, mut lost_before) = match old {
            false => (self.u32(block, 8), 0),
            true => (u32::from(self.u16(block, 8)), known_losses(self.u16(block, 10))),
        };
        let Some(&interface) = self.section.get(index as usize) else {
            return damaged(format!("a packet came through interface {index}, which is not described"), true);
        };
        let captured = self.u32(block, 20);
        let captured_end = data_at + captured as usize;
        if captured > interface.captured_len_max || captured_end > data_end {
            return damaged(
                format!("a packet claims {captured} bytes, more than its block or interface has"),
                true,
            );
        }
        let stamp = u64::from(self.u32(block, 12)) << 32 | u64::from(self.u32(block, 16));
        let (time_ns, clamped) = interface.clock.ns(stamp);
        let number = interface.number;
        let (mut flags, mut comment) = (0, 0);
        let options_at = pcapng::padded(captured_end);
        if options_at + 4 <= data_end {
            let _whole =
                self.options(&block[options_at..data_end], |code, value| match (code, value.len()) {
                    (2, 4) => flags = self.u32(value, 0),
                    (4, 8) if !old => lost_before = self.u64(value).unwrap_or(0),
                    (1, 1..) => comment = 1,
                    _ => {}
                });
            if comment != 0 {
                comment = self.comment(&block[options_at..data_end]);
            }
        }
        *record = Record {
            place: data_at,
            len: captured,
            original_len: self.u32(block, 24),
            time_ns,
            clamped,
            pseudo: interface.pseudo,
            interface: number,
            flags,
            lost_before,
            file: 0,
            comment,
        };
        let interface = &mut self.section[index as usize];
        if lost_before > 0 {
            let span = (interface.last_ns.min(time_ns), interface.last_ns.max(time_ns));
            interfaces.lack(interface.number, span, GapReason::File, (lost_before, Some(lost_before)));
            interface.dropped = interface.dropped.saturating_add(lost_before);
        }
        interface.last_ns = time_ns;
        Found::Packet { bytes: block.len() }
    }

    /// Keeps the comments of the packet with these options; the number under which they are kept.
    #[cold]
    fn comment(&mut self, options: &[u8]) -> u32 {
        let mut comments = Vec::new();
        self.options(options, |code, value| {
            if code == 1 && !value.is_empty() {
                comments.push(text(value, COMMENT_BYTES_MAX));
            }
        });
        self.beside.comments(comments)
    }

    fn simple_packet(&self, block: &[u8], record: &mut Record) -> Found {
        const DATA_AT: usize = 12;
        let data_end = block.len() - 4;
        if data_end < DATA_AT {
            return damaged("a simple packet block is too short".to_string(), true);
        }
        let Some(interface) = self.section.first() else {
            return damaged("a simple packet came before any interface was described".to_string(), true);
        };
        let original_len = self.u32(block, 8);
        let len = original_len.min(interface.snap_len);
        if DATA_AT + len as usize > data_end {
            return damaged(format!("a simple packet claims {len} bytes, more than its block has"), true);
        }
        *record = Record {
            place: DATA_AT,
            len,
            original_len,
            time_ns: 0,
            clamped: false,
            pseudo: interface.pseudo,
            interface: interface.number,
            flags: 0,
            lost_before: 0,
            file: 0,
            comment: 0,
        };
        Found::Packet { bytes: block.len() }
    }

    /// What a file says of an interface's drops since the section's begin. Statistics that don't make sense
    /// say nothing.
    fn statistics(&mut self, block: &[u8], interfaces: &mut Interfaces) -> Found {
        let found = Found::Other { bytes: block.len() };
        if block.len() < STATISTICS_BYTES_MIN {
            return found;
        }
        let index = self.u32(block, 8) as usize;
        let Some(&interface) = self.section.get(index) else { return found };
        let stamp = |at: usize| {
            interface.clock.ns(u64::from(self.u32(block, at)) << 32 | u64::from(self.u32(block, at + 4))).0
        };
        let (mut dropped, mut begin_ns, mut end_ns) = (0u64, 0, stamp(12).max(interface.last_ns));
        let mut at = 20;
        let _whole = self.options(&block[at..block.len() - 4], |code, value| {
            match (code, value.len()) {
                (2, 8) => begin_ns = stamp(at + 4),
                (3, 8) => end_ns = stamp(at + 4).max(interface.last_ns),
                (5 | 7, 8) => dropped = dropped.saturating_add(self.u64(value).unwrap_or(0)),
                _ => {}
            }
            at += 4 + pcapng::padded(value.len());
        });
        let from_ns = interface.stated_ns.max(begin_ns).min(end_ns);
        let more = dropped.saturating_sub(interface.dropped);
        if more > 0 {
            let least = if self.counts_most { 0 } else { more };
            interfaces.lack(interface.number, (from_ns, end_ns), GapReason::File, (least, Some(more)));
            if !std::mem::replace(&mut self.drops_warned, true) {
                let (file, name) = (&self.path, &interfaces.list[interface.number as usize].name);
                interfaces.warnings.push(format!(
                    "{file}: its statistics say that {more} packets of interface '{name}' were dropped when \
                     it was captured; a dump of that time that was complete before they came may lack some"
                ));
            }
        }
        let interface = &mut self.section[index];
        (interface.stated_ns, interface.dropped) = (end_ns, interface.dropped.max(dropped));
        found
    }

    /// Walks over options; what doesn't fit ends the walk. Whether all did.
    fn options(&self, options: &[u8], each: impl FnMut(u16, &[u8])) -> bool {
        pcapng::options(options, self.big_endian, each)
    }

    #[inline]
    fn u32(&self, bytes: &[u8], at: usize) -> u32 {
        let word = u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        if self.big_endian { word.swap_bytes() } else { word }
    }

    #[inline]
    fn u16(&self, bytes: &[u8], at: usize) -> u16 {
        let half = u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        if self.big_endian { half.swap_bytes() } else { half }
    }

    fn u64(&self, bytes: &[u8]) -> Option<u64> {
        let word = u64::from_le_bytes(bytes.try_into().ok()?);
        Some(if self.big_endian { word.swap_bytes() } else { word })
    }
}

fn is_packet(kind: u32) -> bool {
    matches!(kind, pcapng::PACKET | OLD_PACKET | SIMPLE_PACKET)
}

/// The old packet block's count, where all ones mean unknown.
fn known_losses(count: u16) -> u64 {
    if count == u16::MAX { 0 } else { u64::from(count) }
}

fn text(value: &[u8], bytes_max: usize) -> String {
    let kept = &value[..value.len().min(bytes_max)];
    String::from_utf8_lossy(kept).trim_end_matches('\0').to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_of_any_resolution_become_ns() {
        let check = |resolution: u8, offset_s: i64, stamp: u64, expected: (i64, bool)| {
            assert_eq!(
                Clock::new(resolution, offset_s).ns(stamp),
                expected,
                "{resolution} {offset_s} {stamp}"
            );
        };
        check(6, 0, 1_700_000_000_123_456, (1_700_000_000_123_456_000, false));
        check(9, 0, 1_700_000_000_123_456_789, (1_700_000_000_123_456_789, false));
        check(0, 5, 10, (15_000_000_000, false));
        check(12, 0, 1_234_567, (1_234, false));
        check(127, 0, u64::MAX, (0, false));
        check(0x80 | 1, 0, 3, (1_500_000_000, false));
        check(0x80 | 32, 0, (7 << 32) | (1 << 31), (7_500_000_000, false));
        check(0x80 | 127, 0, u64::MAX, (0, false));
        check(6, -1, 1_500_000, (500_000_000, false));
        check(6, -2, 1_500_000, (0, true));
        check(0, 0, u64::MAX, (i64::MAX, true));
        check(9, 0, u64::MAX, (i64::MAX, true));
    }
}
