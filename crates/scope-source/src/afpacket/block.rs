//! Walks one block of a TPACKET_V3 ring: plain bytes in, packets out, every number of the kernel's checked.
//!
//! ```text
//! block:  0 version u32 | 4 private area | 8 status u32 | 12 packets u32 | 16 first packet at u32 | 20 bytes used u32
//!         32 time of the first packet, s u32, ns u32
//! packet: 0 next packet u32 | 4 s u32 | 8 ns u32 | 12 captured u32 | 16 original u32 | 20 status u32
//!         24 frame at u16 | 26 network header at u16 | 28 hash u32 | 32 VLAN TCI u32 | 36 VLAN TPID u16
//!         48 sockaddr_ll, 20 bytes, of it 10: packet type u8 | free room | the frame
//! ```
//! All numbers are in the host's byte order; places count from the block's, or the packet's, own start.

use scope_packet::time::NS_PER_SECOND;

/// Where the status word of a block stands.
pub(super) const STATUS_AT: usize = 8;
/// Where the number of packets of a block stands.
pub(super) const PACKETS_AT: usize = 12;
/// Where the time of a block's first packet stands, seconds and ns.
pub(super) const FIRST_TIME_AT: usize = 32;
/// Bytes of a block's own header.
pub(super) const BLOCK_HEAD_BYTES: usize = 48;

const FIRST_PACKET_AT: usize = 16;
const ADDRESS_AT: usize = 48;
const PACKET_TYPE_AT: usize = ADDRESS_AT + 10;
/// Bytes of a packet's header and its address: the frame begins behind them.
const PACKET_HEAD_BYTES: usize = ADDRESS_AT + 20;

/// Bytes of a VLAN tag.
pub(super) const TAG_BYTES: usize = 4;
/// What a block and a frame's headers take of a block beside the frame, at most: the kernel leaves at most 64
/// bytes free to align.
pub(super) const OVERHEAD_BYTES: u32 = (BLOCK_HEAD_BYTES + PACKET_HEAD_BYTES + TAG_BYTES + 64) as u32;
/// A tag stands behind the two Ethernet addresses.
const ADDRESSES_BYTES: usize = 12;
/// The tag protocol where the kernel names none (802.1Q).
const TPID_DEFAULT: u16 = 0x8100;

const _: () = assert!(PACKET_HEAD_BYTES == libc::TPACKET3_HDRLEN);
const _: () = assert!(ADDRESS_AT == size_of::<libc::tpacket3_hdr>());
const _: () = assert!(BLOCK_HEAD_BYTES == size_of::<libc::tpacket_block_desc>());

/// One packet of a block: where its bytes stand, and what the kernel says of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Frame {
    /// Offset of the first byte in the block.
    pub start: usize,
    /// Captured bytes, a tag that was put back included.
    pub len: usize,
    /// Bytes on the wire, a tag that was put back included.
    pub original_len: u32,
    /// Capture time, ns since the epoch.
    pub time_ns: i64,
    /// Sent by this host.
    pub outgoing: bool,
    /// The time is the network card's.
    pub hardware_time: bool,
    /// The checksum has still to be filled in by the card.
    pub unchecked: bool,
}

/// What the walk must know of its interface.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    /// Frames are Ethernet: stripped tags are put back.
    pub ethernet: bool,
    /// Most bytes of a packet that are wanted; a tag that was put back counts.
    pub snap_len: usize,
}

/// The way through one block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Walk {
    at: usize,
    left: u32,
    unreadable: u32,
}

impl Walk {
    /// Begins at the first packet of `block`.
    pub(crate) fn begin(block: &[u8]) -> Walk {
        let left = u32_at(block, PACKETS_AT).unwrap_or(0);
        let at = u32_at(block, FIRST_PACKET_AT).unwrap_or(0) as usize;
        Walk { at, left, unreadable: 0 }
    }

    /// Packets that are still to come.
    #[cfg(feature = "fuzzing")]
    pub(crate) fn left(&self) -> u32 {
        self.left
    }

    /// Packets that the block promised and that could not be found: the kernel's numbers led out of the
    /// block.
    pub(crate) fn unreadable(&self) -> u32 {
        self.unreadable
    }

    /// Fills `frames` from its start and puts stripped VLAN tags back into `block`; returns how many, 0 at
    /// the end.
    pub(crate) fn next_frames(&mut self, block: &mut [u8], rules: Rules, frames: &mut [Frame]) -> usize {
        let mut count = 0;
        while count < frames.len() && self.left > 0 {
            let Some(frame) = read_frame(block, self.at, rules) else {
                self.unreadable = self.left;
                self.left = 0;
                break;
            };
            frames[count] = frame;
            count += 1;
            self.step(block);
        }
        count
    }

    /// Goes to the next packet. Offset 0 closes the kernel's chain; a number beyond the block is found by the
    /// next read.
    fn step(&mut self, block: &[u8]) {
        self.left -= 1;
        match u32_at(block, self.at) {
            Some(next) if next as usize >= PACKET_HEAD_BYTES => {
                self.at = self.at.saturating_add(next as usize)
            }
            _ => {
                self.unreadable = self.left;
                self.left = 0;
            }
        }
    }
}

/// Reads the packet whose header stands at `at`; `None` where it does not lie within the block.
fn read_frame(block: &mut [u8], at: usize, rules: Rules) -> Option<Frame> {
    let head = block.get(at..at.checked_add(PACKET_HEAD_BYTES)?)?;
    let status = u32_at(head, 20)?;
    let mac = u16_at(head, 24)? as usize;
    let mut frame = Frame {
        start: at + mac,
        len: u32_at(head, 12)? as usize,
        original_len: u32_at(head, 16)?,
        time_ns: u32_at(head, 4)? as i64 * NS_PER_SECOND + u32_at(head, 8)? as i64,
        outgoing: head[PACKET_TYPE_AT] == libc::PACKET_OUTGOING,
        hardware_time: status & libc::TP_STATUS_TS_RAW_HARDWARE != 0,
        unchecked: status & libc::TP_STATUS_CSUMNOTREADY != 0,
    };
    if mac < PACKET_HEAD_BYTES || frame.start.checked_add(frame.len)? > block.len() {
        return None;
    }
    if rules.ethernet && status & libc::TP_STATUS_VLAN_VALID != 0 {
        let tpid =
            if status & libc::TP_STATUS_VLAN_TPID_VALID != 0 { u16_at(head, 36)? } else { TPID_DEFAULT };
        let tci = u32_at(head, 32)? as u16;
        put_tag_back(block, &mut frame, at + PACKET_HEAD_BYTES, tpid, tci);
    }
    frame.len = frame.len.min(rules.snap_len);
    Some(frame)
}

/// Moves the two addresses 4 bytes down and writes the tag behind them. `room_from` is where free room before
/// the frame begins. Of a frame truncated before the tag only the length on the wire changes.
fn put_tag_back(block: &mut [u8], frame: &mut Frame, room_from: usize, tpid: u16, tci: u16) {
    frame.original_len = frame.original_len.saturating_add(TAG_BYTES as u32);
    if frame.len < ADDRESSES_BYTES || frame.start < room_from + TAG_BYTES {
        return;
    }
    let start = frame.start - TAG_BYTES;
    block.copy_within(frame.start..frame.start + ADDRESSES_BYTES, start);
    let tag = &mut block[start + ADDRESSES_BYTES..start + ADDRESSES_BYTES + TAG_BYTES];
    tag[..2].copy_from_slice(&tpid.to_be_bytes());
    tag[2..].copy_from_slice(&tci.to_be_bytes());
    frame.start = start;
    frame.len += TAG_BYTES;
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at.checked_add(2)?)?.try_into().ok()?))
}

#[cfg(test)]
mod tests;
