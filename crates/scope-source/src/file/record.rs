//! What decoding yields: one packet found in a buffer, and what else a decoder can come upon.

use scope_packet::{Gap, GapReason, Interface};

use super::buffer::RECORD_BYTES_MAX;
use super::pseudo::Pseudo;

/// At most this many interfaces in one source; a file that describes more is damaged.
pub(super) const INTERFACES_MAX: usize = 65_536;
/// At most this many gaps wait to be reported; what comes beyond is joined with the last one.
pub(super) const GAPS_MAX: usize = 4096;

/// In [`Record::place`]: the bytes are a copy, and the rest is its number among these.
pub(super) const COPIED: usize = 1 << (usize::BITS - 1);

/// A packet found in a file's buffer, by place instead of by reference, so that it can be kept while others
/// are found.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Record {
    /// Where its bytes begin: of a decoder, from the first unread byte; afterwards, in the buffer.
    pub(super) place: usize,
    pub(super) len: u32,
    pub(super) original_len: u32,
    pub(super) time_ns: i64,
    /// The time was clamped.
    pub(super) clamped: bool,
    /// What of its bytes is in the byte order of the host that captured it.
    pub(super) pseudo: Pseudo,
    /// Number of the interface over all files of the source.
    pub(super) interface: u32,
    pub(super) flags: u32,
    pub(super) lost_before: u64,
    /// Which file it is in.
    pub(super) file: u32,
    /// Under which number its comments are kept; 0: it has none.
    pub(super) comment: u32,
}

/// What stands at the first unread byte.
pub(super) enum Found {
    /// A packet, in a record of `bytes` bytes. What is known of it was written to the decoder's `record`:
    /// a return value would be copied once more for each packet.
    Packet {
        bytes: usize,
    },
    /// Something else of `bytes` bytes that has been dealt with.
    Other {
        bytes: usize,
    },
    /// At least so many bytes are needed to know more.
    More {
        bytes: usize,
        /// It is known to be a packet's record.
        packet: bool,
    },
    Damaged(Damage),
}

/// Why a file can't be read on.
pub(super) struct Damage {
    /// In words.
    pub(super) cause: String,
    /// A packet's record had begun.
    pub(super) packet: bool,
}

/// A record or block of `bytes` bytes, if that many are unread.
pub(super) fn whole(unread: &[u8], bytes: usize, packet: bool) -> Result<&[u8], Found> {
    debug_assert!(bytes <= RECORD_BYTES_MAX);
    unread.get(..bytes).ok_or(Found::More { bytes, packet })
}

/// All interfaces of a source, numbered in order of appearance, and what decoding found out about its files
/// on the way.
#[derive(Default)]
pub(super) struct Interfaces {
    pub(super) list: Vec<Interface>,
    /// What files lack, each with an interface that it speaks of; at most [`GAPS_MAX`].
    pub(super) gaps: Vec<(u32, Gap)>,
    /// Warnings in plain words; a file gives few of them.
    pub(super) warnings: Vec<String>,
}

impl Interfaces {
    /// Gives the interface its number; `None` beyond [`INTERFACES_MAX`].
    pub(super) fn add(&mut self, interface: Interface) -> Option<u32> {
        let number = self.list.len();
        if number >= INTERFACES_MAX {
            return None;
        }
        self.list.push(interface);
        Some(number as u32)
    }

    /// Notes that packets of `interface` are missing in a span, in ns: at least and at most so many, `None`: nobody knows.
    pub(super) fn lack(
        &mut self,
        interface: u32,
        (from_ns, to_ns): (i64, i64),
        reason: GapReason,
        (lost_min, lost_max): (u64, Option<u64>),
    ) {
        let gap = Gap { from_ns, to_ns, reason, lost_min, lost_max };
        let full = self.gaps.len() >= GAPS_MAX;
        match self.gaps.last_mut() {
            Some((_, last)) if full => {
                last.from_ns = last.from_ns.min(from_ns);
                last.to_ns = last.to_ns.max(to_ns);
                last.lost_min = last.lost_min.saturating_add(gap.lost_min);
                last.lost_max = last.lost_max.zip(lost_max).map(|(one, other)| one.saturating_add(other));
            }
            _ => self.gaps.push((interface, gap)),
        }
    }
}

/// The longest packet, bytes, that libpcap accepts on this link type, and so do we.
pub(super) fn captured_len_max(link_type: u16) -> u32 {
    const USUAL: u32 = 262_144;
    match link_type {
        189 | 220 | 231 | 249 => (RECORD_BYTES_MAX - 1024) as u32, // USB, D-Bus: libpcap says 128 MiB
        279 => 8 << 20,                                            // Elektrobit high-speed capture
        _ => USUAL,
    }
}

/// The snap length as a file's header means it: 0, and what no signed 32-bit number holds, is none.
pub(super) fn snap_len(written: u32) -> Option<u32> {
    (1..=i32::MAX as u32).contains(&written).then_some(written)
}
