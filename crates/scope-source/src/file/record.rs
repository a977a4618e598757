//! What decoding yields: one packet found in a buffer, and what else a decoder can come upon.

use scope_packet::Interface;

use super::buffer::RECORD_BYTES_MAX;

/// At most this many interfaces in one source; a file that describes more is damaged.
pub(super) const INTERFACES_MAX: usize = 65_536;

/// See [`Record::file`].
pub(super) const COPIED: u32 = u32::MAX;

/// A packet found in a file's buffer, by place instead of by reference, so that it can be kept while others are found.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Record {
    /// Where its bytes begin: of a decoder, from the first unread byte; afterwards, in the buffer.
    pub(super) place: usize,
    pub(super) len: u32,
    pub(super) original_len: u32,
    pub(super) time_ns: i64,
    /// The time was clamped.
    pub(super) clamped: bool,
    /// Number of the interface over all files of the source.
    pub(super) interface: u32,
    pub(super) flags: u32,
    pub(super) lost_before: u64,
    /// Which file it is in; [`COPIED`]: its bytes are a copy, and `place` is its number among these.
    pub(super) file: u32,
}

/// What stands at the first unread byte.
pub(super) enum Found {
    /// A packet, in a record of `bytes` bytes. What is known of it was written where the decoder was told to: a return value
    /// would be copied once more for each packet.
    Packet {
        bytes: usize,
    },
    /// Something else of `bytes` bytes that has been dealt with.
    Other {
        bytes: usize,
    },
    /// At least so many bytes have to be there to tell more.
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

/// All interfaces of a source, numbered in order of appearance.
#[derive(Default)]
pub(super) struct Interfaces {
    pub(super) list: Vec<Interface>,
}

impl Interfaces {
    /// Gives the interface its number; `None` beyond [`INTERFACES_MAX`].
    pub(super) fn add(&mut self, interface: Interface) -> Option<u32> {
        let number = self.list.len();
        (number < INTERFACES_MAX).then(|| self.list.push(interface)).map(|()| number as u32)
    }
}

/// The longest packet, bytes, that libpcap takes for sane on this link type, and so do we.
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
