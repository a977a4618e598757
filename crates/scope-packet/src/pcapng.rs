//! The pcapng blocks that Wirescope stores: how each is written and how a stored packet block is read back.
//!
//! All numbers are little-endian and times are nanoseconds (`if_tsresol` 9). The format is that of the IETF
//! draft "PCAP Next Generation (pcapng) Capture File Format".
//!
//! ```text
//! Enhanced Packet Block, as every packet lies in its segment:
//!  0      4              8           12          16         20             24              28
//!  | 6    | total length | interface | time high | time low | captured len | original len  | bytes, padded to 4 |
//!  | epb_flags option, 8 bytes, if any | epb_dropcount option, 12, if any | end of options, 4, if any | total length |
//! ```

use crate::link::LinkType;

/// Section Header Block.
pub const SECTION_HEADER: u32 = 0x0A0D_0D0A;
/// Interface Description Block.
pub const INTERFACE: u32 = 1;
/// Name Resolution Block.
pub const NAMES: u32 = 4;
/// Decryption Secrets Block.
pub const SECRETS: u32 = 10;
/// Interface Statistics Block.
pub const STATISTICS: u32 = 5;
/// Enhanced Packet Block.
pub const PACKET: u32 = 6;
/// Local-use block that fills space; every reader skips it.
pub const PADDING: u32 = 0x8000_0001;
/// Local-use block that holds a segment's key entries and foot.
pub const KEY_COLUMN: u32 = 0x8000_0002;
/// Local-use block that says whose store file it is.
pub const HEAD: u32 = 0x8000_0003;
/// Local-use block that holds the index of a store file.
pub const INDEX: u32 = 0x8000_0004;

/// Bytes of the smallest block of any type: type and both lengths.
pub const BLOCK_BYTES_MIN: usize = 12;
/// Bytes of a packet block in front of the packet.
pub const PACKET_HEAD_BYTES: usize = 28;
/// 4-byte words behind the packet of a packet block, at most: both options, their end, and the closing
/// length.
pub const CLOSING_WORDS_MAX: usize = 7;
/// Bytes of a statistics block as written here.
pub const STATISTICS_BYTES: usize = 52;

/// Bytes of a packet's comment that are written at most.
pub const COMMENT_BYTES_MAX: usize = 4096;

const OPTION_COMMENT: u16 = 1;
const OPTION_FLAGS: u16 = 2;
const OPTION_DROPCOUNT: u16 = 4;

/// Rounds up to the 4 bytes that pcapng aligns to.
#[inline]
pub const fn padded(len: usize) -> usize {
    (len + 3) & !3
}

/// Appends one block: type, lengths and `body`, padded.
pub fn block(out: &mut Vec<u8>, kind: u32, body: &[u8]) {
    let total = (BLOCK_BYTES_MIN + padded(body.len())) as u32;
    out.extend(kind.to_le_bytes());
    out.extend(total.to_le_bytes());
    out.extend(body);
    out.resize(out.len() + padded(body.len()) - body.len(), 0);
    out.extend(total.to_le_bytes());
}

/// Appends one option, padded.
pub fn option(body: &mut Vec<u8>, code: u16, value: &[u8]) {
    body.extend(code.to_le_bytes());
    body.extend((value.len() as u16).to_le_bytes());
    body.extend(value);
    body.resize(body.len() + padded(value.len()) - value.len(), 0);
}

/// Appends a section header that names the writing program and, where it isn't empty, a comment.
pub fn section_header(out: &mut Vec<u8>, application: &str, comment: &str) {
    section_header_on(out, application, comment, "");
}

/// The same with the system that the program ran on, where it isn't empty.
pub fn section_header_on(out: &mut Vec<u8>, application: &str, comment: &str, system: &str) {
    let mut body = Vec::new();
    body.extend(0x1A2B_3C4Du32.to_le_bytes());
    body.extend([1, 0, 0, 0]);
    body.extend((-1i64).to_le_bytes());
    if !comment.is_empty() {
        option(&mut body, OPTION_COMMENT, comment.as_bytes());
    }
    option(&mut body, 4, application.as_bytes());
    if !system.is_empty() {
        option(&mut body, 3, system.as_bytes());
    }
    option(&mut body, 0, &[]);
    block(out, SECTION_HEADER, &body);
}

/// Appends the packet block `block` with `comments` as further options, in front of those that it has.
/// Nothing else of it changes. Of each comment at most [`COMMENT_BYTES_MAX`] are written.
pub fn commented<'a>(out: &mut Vec<u8>, block: &[u8], comments: impl Iterator<Item = &'a str>) {
    let Some(packet) = PacketBlock::first(block) else { return out.extend(block) };
    let bytes = packet.bytes();
    let options_at = PACKET_HEAD_BYTES + padded(packet.data().len());
    let options = bytes.get(options_at..bytes.len() - 4).unwrap_or_default();
    let mut body = bytes[8..bytes.len() - 4 - options.len()].to_vec();
    for comment in comments {
        option(&mut body, OPTION_COMMENT, beginning(comment, COMMENT_BYTES_MAX).as_bytes());
    }
    match options.is_empty() {
        true => option(&mut body, 0, &[]),
        false => body.extend(options),
    }
    self::block(out, PACKET, &body);
}

/// The beginning of a text, whole characters, at most `bytes_max` bytes.
pub fn beginning(text: &str, bytes_max: usize) -> &str {
    let mut end = text.len().min(bytes_max);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// Appends an interface description. Its snap length is always 0: libpcap refuses a file whose interfaces
/// differ there.
pub fn interface(out: &mut Vec<u8>, link_type: LinkType, name: &str, description: &str) {
    interface_filtered(out, link_type, name, description, ("", 0));
}

/// The same with the filter that its packets passed (`if_filter`), where it isn't empty, and the snap length
/// to which they were cut, the same in all interfaces of a file; 0: none.
pub fn interface_filtered(
    out: &mut Vec<u8>,
    link_type: LinkType,
    name: &str,
    description: &str,
    (filter, snap): (&str, u32),
) {
    let mut body = Vec::new();
    body.extend(link_type.0.to_le_bytes());
    body.extend([0; 2]);
    body.extend(snap.to_le_bytes());
    option(&mut body, 2, name.as_bytes());
    option(&mut body, 3, description.as_bytes());
    option(&mut body, 9, &[9]);
    if !filter.is_empty() {
        option(&mut body, 11, &[&[0], filter.as_bytes()].concat()); // 0: a text as libpcap reads it
    }
    option(&mut body, 0, &[]);
    block(out, INTERFACE, &body);
}

/// What a packet block says of its packet, in front of and behind the bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PacketHead {
    /// Interface number.
    pub interface: u32,
    /// Capture time, ns since the epoch.
    pub time_ns: i64,
    /// Bytes that are stored.
    pub captured_len: u32,
    /// Bytes on the wire.
    pub original_len: u32,
    /// `epb_flags`; 0: the option is omitted.
    pub flags: u32,
    /// `epb_dropcount`; 0: the option is omitted.
    pub lost_before: u64,
}

impl PacketHead {
    /// Whether options stand behind the packet.
    #[inline]
    pub fn has_options(&self) -> bool {
        self.flags as u64 | self.lost_before != 0
    }

    /// Bytes of the whole block.
    #[inline]
    pub fn block_bytes(&self) -> usize {
        self.block_bytes_of(self.captured_len as usize)
    }

    /// Bytes of the whole block with `len` bytes of the packet.
    #[inline(always)]
    pub fn block_bytes_of(&self, len: usize) -> usize {
        let options_bytes = if self.has_options() { self.options_bytes() } else { 0 };
        PACKET_HEAD_BYTES + padded(len) + options_bytes + 4
    }

    #[inline]
    fn options_bytes(&self) -> usize {
        let flags = if self.flags != 0 { 8 } else { 0 };
        let dropcount = if self.lost_before != 0 { 12 } else { 0 };
        flags + dropcount + 4
    }

    /// Writes the whole block into `out`, which must be exactly [`PacketHead::block_bytes`] long.
    /// `data` must be `captured_len` bytes.
    #[inline]
    pub fn write(&self, out: &mut [u8], data: &[u8]) {
        assert_eq!(data.len(), self.captured_len as usize);
        let total = self.block_bytes();
        assert_eq!(out.len(), total);
        let (head, rest) = out.split_at_mut(PACKET_HEAD_BYTES);
        let [first, second, third, fourth] = self.opening(total);
        head[0..8].copy_from_slice(&first.to_le_bytes());
        head[8..16].copy_from_slice(&second.to_le_bytes());
        head[16..24].copy_from_slice(&third.to_le_bytes());
        head[24..28].copy_from_slice(&(fourth as u32).to_le_bytes());
        let (body, tail) = rest.split_at_mut(padded(data.len()));
        body[data.len()..].fill(0);
        body[..data.len()].copy_from_slice(data);
        let (words, _) = self.closing(total);
        for (bytes, word) in tail.chunks_exact_mut(4).zip(words) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
    }

    /// The [`PACKET_HEAD_BYTES`] in front of the packet of a block of `total` bytes, as little-endian
    /// numbers; the upper half of the last one is 0 and belongs to the packet's bytes.
    #[inline]
    pub fn opening(&self, total: usize) -> [u64; 4] {
        let pair = |low: u32, high: u32| low as u64 | (high as u64) << 32;
        [
            pair(PACKET, total as u32),
            pair(self.interface, (self.time_ns as u64 >> 32) as u32),
            pair(self.time_ns as u32, self.captured_len),
            self.original_len as u64,
        ]
    }

    /// What stands behind the padded packet, options and the closing length, as little-endian numbers, and
    /// how many they are; the others are 0.
    #[inline]
    pub fn closing(&self, total: usize) -> ([u32; CLOSING_WORDS_MAX], usize) {
        let option = |code: u16, bytes: u32| code as u32 | bytes << 16;
        let (lost_low, lost_high) = (self.lost_before as u32, (self.lost_before >> 32) as u32);
        let (flags, dropcount, total) = (option(OPTION_FLAGS, 4), option(OPTION_DROPCOUNT, 8), total as u32);
        match (self.flags != 0, self.lost_before != 0) {
            (false, false) => ([total, 0, 0, 0, 0, 0, 0], 1),
            (true, false) => ([flags, self.flags, 0, total, 0, 0, 0], 4),
            (false, true) => ([dropcount, lost_low, lost_high, 0, total, 0, 0], 5),
            (true, true) => ([flags, self.flags, dropcount, lost_low, lost_high, 0, total], 7),
        }
    }
}

/// Walks over the options in `rest`, in the byte order of their section: code and value of each, up to the end of
/// options. What doesn't fit ends the walk; whether all did.
#[inline]
pub fn options(mut rest: &[u8], big_endian: bool, mut each: impl FnMut(u16, &[u8])) -> bool {
    let half =
        |bytes: [u8; 2]| if big_endian { u16::from_be_bytes(bytes) } else { u16::from_le_bytes(bytes) };
    while let [c0, c1, l0, l1, behind @ ..] = rest {
        let (code, len) = (half([*c0, *c1]), usize::from(half([*l0, *l1])));
        let Some(value) = behind.get(..len) else { return false };
        if code == 0 {
            return len == 0;
        }
        each(code, value);
        rest = behind.get(padded(len)..).unwrap_or_default();
    }
    rest.is_empty()
}

/// Reads 4 bytes little-endian at `at`; the caller has checked the length.
#[inline]
pub fn le32(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes"))
}

/// A packet block as it lies in a segment, lent.
#[derive(Clone, Copy, Debug)]
pub struct PacketBlock<'a> {
    bytes: &'a [u8],
}

impl<'a> PacketBlock<'a> {
    /// Takes the packet block at the start of `bytes`; `None` where there is none that is whole.
    #[inline]
    pub fn first(bytes: &'a [u8]) -> Option<PacketBlock<'a>> {
        if bytes.len() < PACKET_HEAD_BYTES + 4 || le32(bytes, 0) != PACKET {
            return None;
        }
        let total = le32(bytes, 4) as usize;
        let captured = le32(bytes, 20) as usize;
        if total > bytes.len()
            || !total.is_multiple_of(4)
            || total < PACKET_HEAD_BYTES + 4
            || captured > total - PACKET_HEAD_BYTES - 4
        {
            return None;
        }
        Some(PacketBlock { bytes: &bytes[..total] })
    }

    /// The whole block.
    #[inline]
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Interface number.
    #[inline]
    pub fn interface(&self) -> u32 {
        le32(self.bytes, 8)
    }

    /// Capture time, ns since the epoch.
    #[inline]
    pub fn time_ns(&self) -> i64 {
        ((le32(self.bytes, 12) as u64) << 32 | le32(self.bytes, 16) as u64) as i64
    }

    /// The captured bytes.
    #[inline]
    pub fn data(&self) -> &'a [u8] {
        &self.bytes[PACKET_HEAD_BYTES..PACKET_HEAD_BYTES + le32(self.bytes, 20) as usize]
    }

    /// Bytes on the wire.
    #[inline]
    pub fn original_len(&self) -> u32 {
        le32(self.bytes, 24)
    }

    /// All that the block says of its packet.
    #[inline(always)]
    pub fn head(&self) -> PacketHead {
        let mut head = PacketHead {
            interface: self.interface(),
            time_ns: self.time_ns(),
            captured_len: le32(self.bytes, 20),
            original_len: self.original_len(),
            flags: 0,
            lost_before: 0,
        };
        let options_at = PACKET_HEAD_BYTES + padded(head.captured_len as usize);
        if options_at + 4 < self.bytes.len() {
            let OptionsSeen { flags, lost_before } =
                packet_options(&self.bytes[options_at..self.bytes.len() - 4]);
            (head.flags, head.lost_before) = (flags, lost_before);
        }
        head
    }
}

/// What the options of a packet block say, as far as it is known here; 0 what they don't.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OptionsSeen {
    /// `epb_flags`.
    pub flags: u32,
    /// `epb_dropcount`.
    pub lost_before: u64,
}

/// Reads the options of a packet block, whatever they are.
pub fn packet_options(mut rest: &[u8]) -> OptionsSeen {
    let mut seen = OptionsSeen::default();
    while let [c0, c1, l0, l1, value @ ..] = rest {
        let len = u16::from_le_bytes([*l0, *l1]) as usize;
        match (u16::from_le_bytes([*c0, *c1]), len) {
            (OPTION_FLAGS, 4) if value.len() >= 4 => seen.flags = le32(value, 0),
            (OPTION_DROPCOUNT, 8) if value.len() >= 8 => {
                seen.lost_before = le32(value, 0) as u64 | (le32(value, 4) as u64) << 32;
            }
            (0, _) => break,
            _ => {}
        }
        rest = value.get(padded(len)..).unwrap_or(&[]);
    }
    seen
}

/// Appends an interface statistics block: packets received and dropped on `interface`, cumulative since the
/// run began.
pub fn statistics(out: &mut Vec<u8>, interface: u32, time_ns: i64, received: u64, dropped: u64) {
    statistics_with(out, interface, time_ns, (received, dropped), "");
}

/// The same with a comment, where it isn't empty.
pub fn statistics_with(
    out: &mut Vec<u8>,
    interface: u32,
    time_ns: i64,
    (received, dropped): (u64, u64),
    comment: &str,
) {
    let mut body = Vec::with_capacity(STATISTICS_BYTES - BLOCK_BYTES_MIN);
    body.extend(interface.to_le_bytes());
    body.extend(((time_ns as u64 >> 32) as u32).to_le_bytes());
    body.extend((time_ns as u32).to_le_bytes());
    if !comment.is_empty() {
        option(&mut body, OPTION_COMMENT, comment.as_bytes());
    }
    option(&mut body, 4, &received.to_le_bytes());
    option(&mut body, 5, &dropped.to_le_bytes());
    option(&mut body, 0, &[]);
    block(out, STATISTICS, &body);
}

/// Writes a padding block over all of `out` (at least 12 bytes, a multiple of 4): its body is zero, so that
/// no stale packet leaks into a file.
pub fn padding(out: &mut [u8]) {
    let total = out.len();
    assert!(total >= BLOCK_BYTES_MIN && total.is_multiple_of(4));
    out.fill(0);
    out[0..4].copy_from_slice(&PADDING.to_le_bytes());
    out[4..8].copy_from_slice(&(total as u32).to_le_bytes());
    out[total - 4..].copy_from_slice(&(total as u32).to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn overhead_is_what_the_design_states() {
        let head = |flags, lost_before| {
            PacketHead { captured_len: 64, flags, lost_before, ..Default::default() }.block_bytes() - 64
        };
        assert_eq!((head(0, 0), head(2, 0), head(0, 7), head(2, 7)), (32, 44, 48, 56));
    }

    #[test]
    fn a_statistics_block_has_its_stated_length() {
        let mut out = Vec::new();
        statistics(&mut out, 3, 1 << 40, 10, 2);
        assert_eq!(out.len(), STATISTICS_BYTES);
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(data in proptest::collection::vec(any::<u8>(), 0..300), interface in any::<u32>(),
            time_ns in 0..i64::MAX, original_len in any::<u32>(), flags in any::<u32>(), lost_before in any::<u64>(), room in 0usize..9) {
            let head = PacketHead { interface, time_ns, captured_len: data.len() as u32, original_len, flags, lost_before };
            let mut out = vec![0xaa; head.block_bytes()];
            head.write(&mut out, &data);
            out.resize(out.len() + room, 0xbb);
            let block = PacketBlock::first(&out).unwrap();
            prop_assert_eq!(block.head(), head);
            prop_assert_eq!(block.data(), &data[..]);
            prop_assert_eq!(block.bytes().len(), head.block_bytes());
        }

        #[test]
        fn a_comment_changes_nothing_else(data in proptest::collection::vec(any::<u8>(), 0..40), time_ns in 0..i64::MAX,
            flags in 0u32..3, lost_before in 0u64..2, comment in "[a-z]{1,30}") {
            let head = PacketHead { interface: 3, time_ns, captured_len: data.len() as u32, original_len: 70, flags, lost_before };
            let mut plain = vec![0; head.block_bytes()];
            head.write(&mut plain, &data);
            let mut out = Vec::new();
            commented(&mut out, &plain, [&comment[..]].into_iter());
            let block = PacketBlock::first(&out).unwrap();
            prop_assert_eq!((block.head(), block.data(), block.bytes().len()), (head, &data[..], out.len()));
            let end = if head.has_options() { 0 } else { 4 };
            prop_assert_eq!(out.len(), plain.len() + 4 + padded(comment.len()) + end);
            prop_assert!(out.windows(comment.len()).any(|part| part == comment.as_bytes()));
            prop_assert_eq!(le32(&out, out.len() - 4), le32(&out, 4));
        }

        #[test]
        fn foreign_bytes_never_make_the_reader_fail(mut bytes in proptest::collection::vec(any::<u8>(), 0..200), kind in any::<bool>()) {
            if kind && bytes.len() > 8 {
                bytes[0..4].copy_from_slice(&PACKET.to_le_bytes());
                bytes[5..8].fill(0);
            }
            if let Some(block) = PacketBlock::first(&bytes) {
                let _ = (block.head(), block.data());
            }
        }
    }
}
