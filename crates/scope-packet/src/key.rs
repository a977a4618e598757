//! The key entry: the 16 bytes that a packet leaves in its segment's key column, a screen for filters.
//!
//! ```text
//!  0        4             8             10                 12
//!  | source | destination | source port | destination port | word |
//!
//!  word:  protocol 8 bits (0..8) | kind 2 (8..10) | vlan 1 (10) | fragment 1 (11) | partial 1 (12) | offset / 4: 19 (13..32)
//! ```
//! Addresses as they stand in the packet: IPv4 as is, IPv6 folded to 32 bits by exclusive or of its four
//! words, ARP its protocol addresses. Ports and word are little-endian numbers. The entry may say yes
//! wrongly, it must never say no wrongly: where a filter could see more than the parse (a tunnel's inside),
//! the `partial` bit says maybe. DESIGN calls that bit "tunnel"; it is set for truncated headers and
//! extension headers, too.

use crate::headers::{self, FRAGMENT, Headers, Kind, PARTIAL, VLAN};

/// Bytes of one entry.
pub const KEY_ENTRY_BYTES: usize = 16;

/// One entry of the key column.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct KeyEntry {
    /// Source address, folded.
    pub source: [u8; 4],
    /// Destination address, folded.
    pub destination: [u8; 4],
    /// Source port, 0 where there is none.
    pub source_port: u16,
    /// Destination port, 0 where there is none.
    pub destination_port: u16,
    /// Protocol, kind, flags and the block's offset / 4.
    pub word: u32,
}

const OFFSET_SHIFT: u32 = 13;

/// Folds an address to 32 bits: the exclusive or of its 4-byte words.
#[inline]
pub fn fold(address: &[u8]) -> [u8; 4] {
    headers::fold(address).to_le_bytes()
}

impl KeyEntry {
    /// The entry of a packet whose headers were parsed. The block's offset is set by [`KeyEntry::at`] when it
    /// is stored.
    #[inline(always)]
    pub fn new(headers: &Headers) -> KeyEntry {
        let (addresses, ports, word) = headers.key_parts();
        KeyEntry {
            source: (addresses as u32).to_le_bytes(),
            destination: ((addresses >> 32) as u32).to_le_bytes(),
            source_port: ports as u16,
            destination_port: (ports >> 16) as u16,
            word,
        }
    }

    /// The parts that it was made of: see [`Headers::key_parts`].
    #[inline]
    pub(crate) fn parts(&self) -> (u64, u32, u32) {
        let addresses =
            u32::from_le_bytes(self.source) as u64 | (u32::from_le_bytes(self.destination) as u64) << 32;
        (addresses, self.source_port as u32 | (self.destination_port as u32) << 16, self.word)
    }

    /// The same entry for a block at `offset` bytes from the segment's start (a multiple of 4, below 2 MiB).
    #[inline(always)]
    pub fn at(self, offset: u32) -> KeyEntry {
        debug_assert!(offset.is_multiple_of(4) && offset < 1 << 21);
        KeyEntry { word: self.word & ((1 << OFFSET_SHIFT) - 1) | (offset / 4) << OFFSET_SHIFT, ..self }
    }

    /// Offset of the packet's block from the segment's start, in bytes.
    #[inline]
    pub fn offset(&self) -> u32 {
        (self.word >> OFFSET_SHIFT) * 4
    }

    /// IP protocol.
    #[inline]
    pub fn protocol(&self) -> u8 {
        self.word as u8
    }

    /// What the network layer is.
    #[inline]
    pub fn kind(&self) -> Kind {
        Kind::of_word(self.word)
    }

    /// The packet carries at least one VLAN tag.
    #[inline]
    pub fn vlan(&self) -> bool {
        self.word & VLAN != 0
    }

    /// The packet is a fragment.
    #[inline]
    pub fn fragment(&self) -> bool {
        self.word & FRAGMENT != 0
    }

    /// A filter may see more than the entry does: it can't say no.
    #[inline]
    pub fn partial(&self) -> bool {
        self.word & PARTIAL != 0
    }

    /// The entry as it lies in memory and on disk.
    #[inline(always)]
    pub fn to_bytes(self) -> [u8; KEY_ENTRY_BYTES] {
        self.to_number().to_le_bytes()
    }

    /// The entry as one little-endian number. Put together in registers: see [`Headers::read`] on why.
    #[inline(always)]
    pub fn to_number(self) -> u128 {
        let addresses =
            u32::from_le_bytes(self.source) as u128 | (u32::from_le_bytes(self.destination) as u128) << 32;
        let ports = self.source_port as u128 | (self.destination_port as u128) << 16;
        addresses | ports << 64 | (self.word as u128) << 96
    }

    /// As [`KeyEntry::at`], of the entry as a number.
    #[inline]
    pub fn number_at(number: u128, offset: u32) -> u128 {
        debug_assert!(offset.is_multiple_of(4) && offset < 1 << 21);
        number & ((1 << (96 + OFFSET_SHIFT)) - 1) | (offset as u128 / 4) << (96 + OFFSET_SHIFT)
    }

    /// Reads an entry.
    #[inline]
    pub fn from_bytes(bytes: &[u8; KEY_ENTRY_BYTES]) -> KeyEntry {
        let [s0, s1, s2, s3, d0, d1, d2, d3, p0, p1, q0, q1, w0, w1, w2, w3] = *bytes;
        KeyEntry {
            source: [s0, s1, s2, s3],
            destination: [d0, d1, d2, d3],
            source_port: u16::from_le_bytes([p0, p1]),
            destination_port: u16::from_le_bytes([q0, q1]),
            word: u32::from_le_bytes([w0, w1, w2, w3]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::LinkType;

    #[test]
    fn the_entry_has_the_layout_of_the_format() {
        let mut frame = vec![0u8; 14];
        frame[12] = 8;
        frame.extend([
            0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2, 0, 53, 0xea, 0x60, 0, 8, 0, 0,
        ]);
        let headers = Headers::parse(LinkType::ETHERNET, &frame);
        let entry = KeyEntry::new(&headers).at(4096);
        let word = 17u32 | 1 << 8 | 1024 << 13;
        let mut expected = vec![10, 0, 0, 1, 10, 0, 0, 2, 53, 0, 0x60, 0xea];
        expected.extend(word.to_le_bytes());
        assert_eq!(entry.to_bytes().to_vec(), expected);
        assert_eq!(KeyEntry::number_at(entry.at(8).to_number(), 4096), entry.to_number());
        assert_eq!(KeyEntry::from_bytes(&entry.to_bytes()), entry);
        assert_eq!(
            (entry.offset(), entry.protocol(), entry.kind(), entry.partial()),
            (4096, 17, Kind::Ipv4, false)
        );
    }

    #[test]
    fn folding_is_exclusive_or_of_the_words() {
        assert_eq!(fold(&[1, 2, 3, 4]), [1, 2, 3, 4]);
        assert_eq!(fold(&[1, 0, 0, 0, 2, 0, 0, 0, 4, 0, 0, 0, 8, 0, 0, 1]), [15, 0, 0, 1]);
    }
}
