//! What is lent in place: packets of one lane, and the block of one of them, read by loads that whoever overwrites it can't
//! harm.

use super::view::Bytes;
use scope_packet::LinkType;
use scope_packet::pcapng::{OptionsSeen, PACKET, PACKET_HEAD_BYTES, packet_options, padded};

/// Packets of one lane, one after another, which lie in the ring: their data may be overwritten while somebody looks.
#[derive(Clone, Copy, Debug)]
pub struct Lent {
    /// Lane.
    pub lane: u32,
    /// Link type of the lane.
    pub link_type: LinkType,
    /// Number in the lane of the first packet.
    pub first_packet: u64,
    /// Packets.
    pub packets: u32,
    /// Packets of the lane that were missed directly before these.
    pub missed_before: u64,
    pub(super) slot: u32,
    /// Where the segment begins, and where its key entries end, bytes of all slots.
    pub(super) base: usize,
    pub(super) entries_end: usize,
    pub(super) generation: u64,
    /// Of the first packet in its segment.
    pub(super) index: u32,
    /// Bytes of the segment.
    pub(super) from: u32,
    pub(super) to: u32,
}

impl Lent {
    /// Where the block of the first packet begins, in bytes from the segment's begin.
    pub fn begin(&self) -> u32 {
        self.from
    }

    /// Where the last one ends.
    pub fn end(&self) -> u32 {
        self.to
    }
}

/// One packet in place: what its block said when it was looked at, and where its bytes lie.
#[derive(Clone, Copy, Debug)]
pub struct LentPacket<'a> {
    /// Number of the interface.
    pub interface: u32,
    /// Capture time, ns since the epoch.
    pub time_ns: i64,
    /// Bytes on the wire.
    pub original_len: u32,
    /// `epb_flags`, 0 where there are none.
    pub flags: u32,
    /// Packets that the run lost directly before it.
    pub lost_before: u64,
    /// The captured bytes.
    pub data: Bytes<'a>,
    /// Bytes of the block: so far behind its begin begins the next one.
    pub block_bytes: u32,
}

impl<'a> LentPacket<'a> {
    /// The block at the start of `bytes`; `None` where there is none that is whole.
    #[inline(always)]
    pub(super) fn read(bytes: Bytes<'a>) -> Option<LentPacket<'a>> {
        // Each number is loaded once: what is compared here is what is used below.
        let head = bytes.le32s::<{ PACKET_HEAD_BYTES / 4 }>()?;
        let [kind, total, interface, high, low, captured, original_len] = head;
        let (total, captured) = (total as usize, captured as usize);
        if kind != PACKET
            || total > bytes.len()
            || !total.is_multiple_of(4)
            || total < PACKET_HEAD_BYTES + 4
            || captured > total - PACKET_HEAD_BYTES - 4
        {
            return None;
        }
        let data = bytes.part(PACKET_HEAD_BYTES..PACKET_HEAD_BYTES + captured)?;
        let options_at = PACKET_HEAD_BYTES + padded(captured);
        let OptionsSeen { flags, lost_before } = match options_at + 4 < total {
            true => options_seen(bytes.part(options_at..total - 4)?),
            false => OptionsSeen::default(),
        };
        Some(LentPacket {
            interface,
            time_ns: (u64::from(high) << 32 | u64::from(low)) as i64,
            original_len,
            flags,
            lost_before,
            data,
            block_bytes: total as u32,
        })
    }
}

/// What the options say: of a few packets of a capture.
#[cold]
fn options_seen(options: Bytes<'_>) -> OptionsSeen {
    packet_options(&options.to_vec())
}
