//! Any pcapng file, block by block: structure, times, and what its own statistics say that it lacks.
//!
//! Who reads blocks goes from length to length: where a length is impossible nothing behind it can be read.
//! A packet that makes no sense inside a whole block is damage of its own, and reading goes on behind it.

use super::input::{Input, RECORD_BYTES_MAX};
use super::pcap::{captured_len_max, cut_off, rest_is_lost};
use super::report::{FileReport, Missing, Reason};
use super::statement::Statement;
use scope_packet::GapReason;
use scope_packet::pcapng::{self, BLOCK_BYTES_MIN, padded};
use std::io;

const BYTE_ORDER_MAGIC: u32 = 0x1A2B_3C4D;
const OLD_PACKET: u32 = 2;
const SIMPLE_PACKET: u32 = 3;
const SECTION_BYTES_MIN: usize = 28;
/// Letters of an interface's name that are shown.
const NAME_MAX: usize = 256;
/// Bytes of a comment that is looked at.
const COMMENT_BYTES_MAX: usize = 64 << 10;
/// Interfaces of one section; more are damage.
const INTERFACES_MAX: usize = 1 << 20;

/// An interface of the section.
struct Described {
    name: String,
    link_type: u16,
    snap_len: Option<usize>,
    scale: Scale,
    offset_s: i64,
    /// Time of its last packet.
    last_ns: i64,
    /// Up to when its statistics have spoken.
    stated_ns: i64,
    /// Losses that were stated so far.
    dropped: u64,
}

/// Ticks to ns.
#[derive(Clone, Copy)]
enum Scale {
    Times(u64),
    Over(u64),
    Zero,
    Shift(u32),
}

impl Scale {
    fn new(resolution: u8) -> Scale {
        match (resolution & 0x80 != 0, u32::from(resolution & 0x7f)) {
            (true, shift) => Scale::Shift(shift),
            (false, digits @ 0..=9) => Scale::Times(10u64.pow(9 - digits)),
            (false, digits) => 10u64.checked_pow(digits - 9).map_or(Scale::Zero, Scale::Over),
        }
    }

    /// A stamp in ns since 1970, clamped to what can be stored.
    #[inline]
    fn ns(self, stamp: u64, offset_s: i64) -> i64 {
        let ns = match self {
            Scale::Times(factor) => u128::from(stamp) * u128::from(factor),
            Scale::Over(divisor) => u128::from(stamp / divisor),
            Scale::Zero => 0,
            Scale::Shift(shift) => (u128::from(stamp) * 1_000_000_000) >> shift,
        };
        let ns = ns as i128 + i128::from(offset_s) * 1_000_000_000; // below 2^98
        ns.clamp(0, i128::from(i64::MAX)) as i64
    }
}

/// Where the reading stands.
#[derive(Default)]
struct Walk {
    big_endian: bool,
    interfaces: Vec<Described>,
    before_ns: Option<i64>,
    statement: Option<Statement>,
    application: String,
    /// It is the first section.
    is_first: bool,
}

/// Reads all blocks; returns the program that wrote the first section.
pub(super) fn walk(input: &mut Input<'_>, report: &mut FileReport) -> io::Result<String> {
    let mut walk = Walk { is_first: true, ..Walk::default() };
    loop {
        let at = input.offset();
        let unread = input.want(BLOCK_BYTES_MIN)?;
        if unread.is_empty() {
            break;
        }
        if unread.len() < BLOCK_BYTES_MIN {
            let missing = BLOCK_BYTES_MIN - unread.len();
            cut_off(report, at, missing, walk.before_ns);
            break;
        }
        if let Err(cause) = walk.order(unread, at) {
            report.damage(at, cause);
            rest_is_lost(report, walk.before_ns);
            break;
        }
        let (kind, bytes) = (walk.u32(unread, 0), walk.u32(unread, 4) as usize);
        let possible = bytes.is_multiple_of(4) && (BLOCK_BYTES_MIN..=RECORD_BYTES_MAX).contains(&bytes);
        if !possible {
            report.damage(at, format!("a block of type {kind:#x} claims the impossible length {bytes}"));
            rest_is_lost(report, walk.before_ns);
            break;
        }
        let there = input.want(bytes)?;
        let Some(block) = there.get(..bytes) else {
            let missing = bytes - there.len();
            cut_off(report, at, missing, walk.before_ns);
            break;
        };
        if walk.u32(block, bytes - 4) as usize != bytes {
            report.damage(
                at,
                format!("a block of type {kind:#x} ends with another length than it begins with"),
            );
            rest_is_lost(report, walk.before_ns);
            break;
        }
        if let Err(cause) = walk.block(kind, block, report) {
            report.damage(at, cause);
        }
        input.consume(bytes);
    }
    if let Some(statement) = walk.statement {
        // A dump knows better than its counters, which speak of the whole run.
        report.missing.retain(|missing| missing.reason != Reason::Gap(GapReason::File));
        statement.hold_against(report);
    }
    Ok(walk.application)
}

impl Walk {
    /// Takes the byte order of a section that begins here; at the file's begin there must be one.
    fn order(&mut self, unread: &[u8], at: u64) -> Result<(), String> {
        if pcapng::le32(unread, 0) != pcapng::SECTION_HEADER {
            return if at == 0 { Err("it begins with no section header".to_string()) } else { Ok(()) };
        }
        self.big_endian = match pcapng::le32(unread, 8) {
            BYTE_ORDER_MAGIC => false,
            order if order.swap_bytes() == BYTE_ORDER_MAGIC => true,
            _ => return Err("a section header has no byte order that is known".to_string()),
        };
        Ok(())
    }

    fn block(&mut self, kind: u32, block: &[u8], report: &mut FileReport) -> Result<(), String> {
        match kind {
            pcapng::PACKET => self.packet(block, false, report),
            OLD_PACKET => self.packet(block, true, report),
            SIMPLE_PACKET => self.simple_packet(block, report),
            pcapng::INTERFACE => self.interface(block),
            pcapng::STATISTICS => {
                self.statistics(block, report);
                Ok(())
            }
            pcapng::SECTION_HEADER => self.section(block),
            _ => Ok(()),
        }
    }

    fn section(&mut self, block: &[u8]) -> Result<(), String> {
        self.interfaces.clear();
        if block.len() < SECTION_BYTES_MIN {
            return Err("a section header is too short".to_string());
        }
        let version = (self.u16(block, 12), self.u16(block, 14));
        if !matches!(version, (1, 0 | 2)) {
            return Err(format!("a section is of version {}.{}, only 1.0 is known", version.0, version.1));
        }
        let mut comment = String::new();
        let mut application = String::new();
        let _whole = self.options(&block[24..block.len() - 4], |code, value| match code {
            1 if comment.is_empty() => comment = text(value, COMMENT_BYTES_MAX),
            4 => application = text(value, NAME_MAX),
            _ => {}
        });
        if std::mem::take(&mut self.is_first) {
            self.statement = Statement::read(&application, &comment);
            self.application = application;
        } else {
            self.statement = None; // several files, one behind the other: the first one's facts are not all
        }
        Ok(())
    }

    fn interface(&mut self, block: &[u8]) -> Result<(), String> {
        if block.len() < 20 {
            return Err("an interface description is too short".to_string());
        }
        if self.interfaces.len() >= INTERFACES_MAX {
            return Err("more interfaces are described than can be".to_string());
        }
        let (mut name, mut resolution, mut offset_s) = (String::new(), 6, 0);
        let mut odd = None;
        let whole = self.options(&block[16..block.len() - 4], |code, value| match (code, value.len()) {
            (2, _) => name = text(value, NAME_MAX),
            (9, 1) => resolution = value[0],
            (9, _) => odd = Some("if_tsresol"),
            (14, 8) => offset_s = self.u64(value) as i64,
            (14, _) => odd = Some("if_tsoffset"),
            _ => {}
        });
        let snap_len = self.u32(block, 12);
        let link_type = self.u16(block, 8);
        self.interfaces.push(Described {
            name,
            link_type,
            snap_len: (1..=i32::MAX as u32).contains(&snap_len).then_some(snap_len as usize),
            scale: Scale::new(resolution),
            offset_s,
            last_ns: 0,
            stated_ns: 0,
            dropped: 0,
        });
        match odd {
            Some(option) => {
                Err(format!("an interface has its {option} in an odd length: its times mean nothing"))
            }
            None if !whole => Err("the options of an interface don't fit into its description".to_string()),
            None => Ok(()),
        }
    }

    #[inline]
    fn packet(&mut self, block: &[u8], old: bool, report: &mut FileReport) -> Result<(), String> {
        const DATA_AT: usize = 28;
        let data_end = block.len() - 4;
        if data_end < DATA_AT {
            return Err("a packet block is too short".to_string());
        }
        let (number, mut lost) = match old {
            false => (self.u32(block, 8) as usize, 0),
            true => (usize::from(self.u16(block, 8)), known_losses(self.u16(block, 10))),
        };
        let Some(interface) = self.interfaces.get(number) else {
            return Err(format!("a packet came through interface {number}, which is not described"));
        };
        let captured = self.u32(block, 20) as usize;
        let longest = captured_len_max(interface.link_type);
        if captured > data_end - DATA_AT
            || captured > interface.snap_len.map_or(longest, |len| len.max(longest))
        {
            return Err(format!("a packet claims {captured} bytes, more than its block or interface has"));
        }
        let stamp = u64::from(self.u32(block, 12)) << 32 | u64::from(self.u32(block, 16));
        let time_ns = interface.scale.ns(stamp, interface.offset_s);
        let options_at = DATA_AT + padded(captured);
        if options_at + 4 <= data_end && !old {
            let _whole = self.options(&block[options_at..data_end], |code, value| {
                if (code, value.len()) == (4, 8) {
                    lost = self.u64(value);
                }
            });
        }
        report.packet(time_ns, self.before_ns);
        self.before_ns = Some(time_ns);
        let interface = &mut self.interfaces[number];
        if lost > 0 {
            let span = (interface.last_ns.min(time_ns), interface.last_ns.max(time_ns));
            report.lack(stated_loss(span, lost, &interface.name));
            interface.dropped = interface.dropped.saturating_add(lost);
        }
        interface.last_ns = time_ns;
        Ok(())
    }

    fn simple_packet(&mut self, block: &[u8], report: &mut FileReport) -> Result<(), String> {
        const DATA_AT: usize = 12;
        let Some(interface) = self.interfaces.first() else {
            return Err("a simple packet came before any interface was described".to_string());
        };
        let room = (block.len() - 4).checked_sub(DATA_AT).ok_or("a simple packet block is too short")?;
        let longest = captured_len_max(interface.link_type);
        let len = (self.u32(block, 8) as usize).min(interface.snap_len.unwrap_or(longest));
        if len > room {
            return Err(format!("a simple packet claims {len} bytes, more than its block has"));
        }
        report.packets += 1; // it has no time
        Ok(())
    }

    /// What a file says of an interface's drops since the section's begin. Statistics that make no sense say
    /// nothing.
    fn statistics(&mut self, block: &[u8], report: &mut FileReport) {
        if block.len() < 24 {
            return;
        }
        let number = self.u32(block, 8) as usize;
        let mut comment = String::new();
        let (mut dropped, mut begin, mut end) = (0u64, None, None);
        let _whole = self.options(&block[20..block.len() - 4], |code, value| match (code, value.len()) {
            (1, _) if comment.is_empty() => comment = text(value, COMMENT_BYTES_MAX),
            (2, 8) => begin = Some(self.stamp(value)),
            (3, 8) => end = Some(self.stamp(value)),
            (5 | 7, 8) => dropped = dropped.saturating_add(self.u64(value)),
            _ => {}
        });
        if self.statement.as_ref().is_some_and(Statement::is_intro)
            && let Some(facts) = Statement::read(&self.application, &comment)
        {
            self.statement = Some(facts);
        }
        let stamp = self.stamp(&block[12..20]);
        let Some(interface) = self.interfaces.get_mut(number) else { return };
        let ns = |stamp: u64| interface.scale.ns(stamp, interface.offset_s);
        let end_ns = ns(end.unwrap_or(stamp)).max(interface.last_ns);
        let from_ns = interface.stated_ns.max(begin.map_or(0, ns)).min(end_ns);
        let more = dropped.saturating_sub(interface.dropped);
        if more > 0 {
            // Without a begin nobody knows when the first ones were lost.
            let reaches_back = begin.is_none() && interface.stated_ns == 0;
            report.lack(Missing { reaches_back, ..stated_loss((from_ns, end_ns), more, &interface.name) });
        }
        (interface.stated_ns, interface.dropped) = (end_ns, interface.dropped.max(dropped));
    }

    /// Walks over options; what doesn't fit ends the walk. Whether all did.
    fn options(&self, options: &[u8], each: impl FnMut(u16, &[u8])) -> bool {
        pcapng::options(options, self.big_endian, each)
    }

    #[inline]
    fn u32(&self, bytes: &[u8], at: usize) -> u32 {
        let word = pcapng::le32(bytes, at);
        if self.big_endian { word.swap_bytes() } else { word }
    }

    fn u16(&self, bytes: &[u8], at: usize) -> u16 {
        let half = u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        if self.big_endian { half.swap_bytes() } else { half }
    }

    /// Of 8 bytes.
    fn u64(&self, bytes: &[u8]) -> u64 {
        let (first, second) = (u64::from(self.u32(bytes, 0)), u64::from(self.u32(bytes, 4)));
        if self.big_endian { first << 32 | second } else { second << 32 | first }
    }

    /// Of 8 bytes, the upper half first in either byte order.
    fn stamp(&self, bytes: &[u8]) -> u64 {
        u64::from(self.u32(bytes, 0)) << 32 | u64::from(self.u32(bytes, 4))
    }
}

fn stated_loss((from_ns, to_ns): (i64, i64), lost: u64, interface: &str) -> Missing {
    Missing {
        from_ns,
        reaches_back: false,
        to_ns: Some(to_ns),
        reason: Reason::Gap(GapReason::File),
        lost_min: lost,
        lost_max: Some(lost),
        of: interface.to_string(),
    }
}

/// The old packet block's count, where all ones mean unknown.
fn known_losses(count: u16) -> u64 {
    if count == u16::MAX { 0 } else { u64::from(count) }
}

fn text(value: &[u8], bytes_max: usize) -> String {
    let kept = &value[..value.len().min(bytes_max)];
    String::from_utf8_lossy(kept).trim_end_matches('\0').to_string()
}
