//! The forms in which summaries of segments are written, and what each lets a search skip.
//!
//! ```text
//! second    | mixes 2 | flags 1 | zeros 5 | protocols 32 | /8 nets 32 | ports below 1024: 128 | hosts S/512 | ports S/1024 |
//!             exact ────────────────────────────────────────────────────────────────────────── Bloom filters ──────────────
//! first     | kinds 1 | flags 1 | zeros 6 | protocols 32 | addresses and ports S/512 |
//! ```
//! A mix is what an entry has of kind, VLAN and fragment: 16 of them can be. `hosts` has whole addresses, and the /16
//! and /24 nets of those that aren't folded; `ports` those from 1024 on. Sides make no difference. A segment
//! with an entry that is `partial` is never skipped. The first form is read, not written.

use crate::bits::{has, mixed};
use crate::search::{KeyTest, Pattern, whole_fields};
use scope_packet::KeyEntry;

/// Where the parts of the second form begin, behind the mixes.
pub(crate) const FLAGS_AT: usize = 2;
pub(crate) const PROTOCOLS_AT: usize = 8;
pub(crate) const EIGHTS_AT: usize = 40;
pub(crate) const LOW_PORTS_AT: usize = 72;
pub(crate) const HOSTS_AT: usize = 200;
/// Ports below this one have a bit each.
pub(crate) const LOW_PORTS: u16 = 1024;
/// Bits of a whole address, of a net, of a port, in the Bloom filters.
pub(crate) const HOST_BITS: u32 = 4;
pub(crate) const NET_BITS: u32 = 2;
pub(crate) const PORT_BITS: u32 = 2;
/// Of the flags: some entry is partial.
pub(crate) const PARTIAL: u8 = 1;
/// A segment has one byte of bits for so many of its own: of those for addresses, and of those for ports.
const SEGMENT_BYTES_PER_HOSTS_BYTE: usize = 512;
const SEGMENT_BYTES_PER_PORTS_BYTE: usize = 1024;
/// The same of the first form, and where its bits begin.
const SEGMENT_BYTES_PER_FIRST_BYTE: usize = 512;
const FIRST_BITS_AT: usize = 40;

/// How a summary is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SummaryForm {
    /// In indexes of version 1.
    First,
    /// In indexes of version 2, and in memory.
    Second,
}

impl SummaryForm {
    /// Bytes of the summary of a segment of `segment_bytes`.
    pub const fn bytes_of(self, segment_bytes: usize) -> usize {
        match self {
            SummaryForm::First => FIRST_BITS_AT + segment_bytes / SEGMENT_BYTES_PER_FIRST_BYTE,
            SummaryForm::Second => {
                HOSTS_AT
                    + segment_bytes / SEGMENT_BYTES_PER_HOSTS_BYTE
                    + segment_bytes / SEGMENT_BYTES_PER_PORTS_BYTE
            }
        }
    }

    /// Whether so many bytes are the summary of a segment of some size.
    pub fn is_length(self, bytes: usize) -> bool {
        let mut sizes = (SEGMENT_BYTES_PER_PORTS_BYTE.ilog2()..40).map(|bit| 1 << bit);
        sizes.any(|size| self.bytes_of(size) == bytes)
    }
}

/// Whether an entry that `test` matches can be in the segment whose summary of the first form these bytes are. True where
/// they are none.
pub(crate) fn first_may_hold(summary: &[u8], test: &KeyTest) -> bool {
    First::of(summary).is_none_or(|first| {
        first.is_partial() || test.patterns().iter().any(|pattern| first.may_hold(pattern))
    })
}

/// Of so many bytes of bits, those for addresses.
pub(crate) const fn hosts_bytes(bits_bytes: usize) -> usize {
    bits_bytes * SEGMENT_BYTES_PER_PORTS_BYTE / (SEGMENT_BYTES_PER_HOSTS_BYTE + SEGMENT_BYTES_PER_PORTS_BYTE)
}

/// Kind, VLAN and fragment of an entry's word.
pub(crate) fn mix(word: u32) -> u32 {
    word >> 8 & 0xf
}

/// The key of a net, or with a prefix of 32 bits of an address.
pub(crate) fn net_key(address: [u8; 4], prefix: u32) -> u64 {
    u64::from(u32::from_be_bytes(address) >> (32 - prefix)) | u64::from(prefix) << 32
}

/// A summary of the first form, lent.
struct First<'a> {
    fixed: &'a [u8; FIRST_BITS_AT],
    /// A power of two of them, so that a part of a hash is a place.
    bits: &'a [u8],
}

impl<'a> First<'a> {
    fn of(bytes: &'a [u8]) -> Option<First<'a>> {
        let (fixed, bits) = bytes.split_first_chunk()?;
        bits.len().is_power_of_two().then_some(First { fixed, bits })
    }

    fn is_partial(&self) -> bool {
        self.fixed[1] & PARTIAL != 0
    }

    fn has(&self, key: u64) -> bool {
        let hash = mixed(key);
        let place = |hash: u32| hash as usize & (self.bits.len() * 8 - 1);
        has(self.bits, place((hash >> 32) as u32)) && has(self.bits, place((hash ^ hash >> 29) as u32))
    }

    fn may_hold(&self, pattern: &Pattern) -> bool {
        let (mask, value) = pattern.parts();
        let [source, destination, source_port, destination_port, protocol, kind] = whole_fields(&mask);
        let [of_source, of_destination, of_source_port, of_destination_port] = first_keys(&value);
        (!source || self.has(of_source))
            && (!destination || self.has(of_destination))
            && (!source_port || self.has(of_source_port))
            && (!destination_port || self.has(of_destination_port))
            && (!protocol || has(&self.fixed[8..], value.protocol().into()))
            && (!kind || self.fixed[0] & 1 << value.kind() as u8 != 0)
    }
}

/// What an entry leaves in the bits of the first form: source, destination, source port, destination port.
fn first_keys(entry: &KeyEntry) -> [u64; 4] {
    const PORT: u64 = 1 << 32;
    [
        u32::from_le_bytes(entry.source).into(),
        u32::from_le_bytes(entry.destination).into(),
        PORT | u64::from(entry.source_port),
        PORT | u64::from(entry.destination_port),
    ]
}
