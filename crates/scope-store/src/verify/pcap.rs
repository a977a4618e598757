//! The classic pcap file, record by record, with the oddities that `-r` reads: either byte order, micro- or
//! nanoseconds, old versions with their lengths the other way round, records with 8 bytes more.

use super::input::Input;
use super::report::{FileReport, Form, Missing, Reason};
use scope_packet::GapReason;
use scope_packet::time::NS_PER_SECOND;
use std::io;

/// Bytes of the file's header.
const HEADER_BYTES: usize = 24;
const MICROSECONDS: u32 = 0xa1b2_c3d4;
const NANOSECONDS: u32 = 0xa1b2_3c4d;
/// Microseconds, with 8 bytes more in each record's head.
const MODIFIED: u32 = 0xa1b2_cd34;

/// Whether a file that begins with these bytes is a pcap file, and which.
pub(super) fn magic(begin: &[u8]) -> Option<(u32, bool)> {
    let bytes = *begin.first_chunk()?;
    let known = |magic| matches!(magic, MICROSECONDS | NANOSECONDS | MODIFIED);
    let (little, big) = (u32::from_le_bytes(bytes), u32::from_be_bytes(bytes));
    if known(little) { Some((little, false)) } else { known(big).then_some((big, true)) }
}

/// The longest packet, bytes, that libpcap accepts on this link type.
pub(super) fn captured_len_max(link_type: u16) -> usize {
    match link_type {
        189 | 220 | 231 | 249 => super::input::RECORD_BYTES_MAX - 1024, // USB, D-Bus
        279 => 8 << 20,                                                 // Elektrobit high-speed capture
        _ => 262_144,
    }
}

/// Reads all records.
pub(super) fn walk(input: &mut Input<'_>, report: &mut FileReport) -> io::Result<()> {
    report.form = Form::Pcap;
    let header = input.want(HEADER_BYTES)?;
    let Some((magic, big_endian)) = magic(header) else {
        report.damage(0, "its header is none of a pcap file");
        return Ok(());
    };
    if header.len() < HEADER_BYTES {
        let there = header.len();
        report.cut(0, format!("its header has {there} of {HEADER_BYTES} bytes"));
        return Ok(());
    }
    let word = |bytes: &[u8], at: usize| {
        let word = u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap_or_default());
        if big_endian { word.swap_bytes() } else { word }
    };
    let half = |at: usize| match big_endian {
        true => u16::from_be_bytes([header[at], header[at + 1]]),
        false => u16::from_le_bytes([header[at], header[at + 1]]),
    };
    let version = (half(4), half(6));
    if !matches!(version, (2, 0..=4) | (543, 0)) {
        let (major, minor) = version;
        let cause = format!("is a pcap file of version {major}.{minor}, only 2.0 to 2.4 are known");
        report.refuse(cause, Some("write it anew with a current tcpdump or editcap"));
        return Ok(());
    }
    let captured_max = captured_len_max(word(header, 20) as u16);
    let head_bytes = if magic == MODIFIED { 24 } else { 16 };
    let ns_per_fraction = if magic == NANOSECONDS { 1 } else { 1000 };
    input.consume(HEADER_BYTES);
    let mut before_ns = None;
    loop {
        let at = input.offset();
        let unread = input.want(head_bytes)?;
        if unread.len() < head_bytes {
            let missing = head_bytes - unread.len();
            if !unread.is_empty() {
                cut_off(report, at, missing, before_ns);
            }
            return Ok(());
        }
        let (first, second) = (word(unread, 8), word(unread, 12));
        let captured = match version {
            (2, 0..=2) | (543, 0) => second,
            (2, 3) => first.min(second),
            _ => first,
        } as usize;
        let time_ns =
            i64::from(word(unread, 0)) * NS_PER_SECOND + i64::from(word(unread, 4)) * ns_per_fraction;
        if captured > captured_max {
            report.damage(at, format!("a packet claims {captured} bytes, {captured_max} are possible"));
            rest_is_lost(report, before_ns);
            return Ok(());
        }
        let bytes = head_bytes + captured;
        let there = input.want(bytes)?.len();
        if there < bytes {
            cut_off(report, at, bytes - there, before_ns);
            return Ok(());
        }
        report.packet(time_ns, before_ns);
        before_ns = Some(time_ns);
        input.consume(bytes);
    }
}

/// The file ends inside a record.
pub(super) fn cut_off(report: &mut FileReport, at: u64, missing: usize, last_ns: Option<i64>) {
    report.cut(at, format!("the file ends {missing} bytes too early"));
    rest_is_lost(report, last_ns);
}

/// Nothing behind the last packet that was read can be read.
pub(super) fn rest_is_lost(report: &mut FileReport, last_ns: Option<i64>) {
    report.lack(Missing {
        from_ns: last_ns.unwrap_or(0),
        reaches_back: false,
        to_ns: None,
        reason: Reason::Gap(GapReason::Unreadable),
        lost_min: 0,
        lost_max: None,
        of: String::new(),
    });
}
