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

use crate::bits::{has, has_key, mixed, one_of};
use crate::search::{KeyTest, Pattern, whole_fields};
use scope_packet::KeyEntry;
use scope_packet::headers::Kind;

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

    /// Whether an entry that `test` matches can be in the segment whose summary these bytes are. True where they are
    /// none of this form.
    pub fn may_hold(self, summary: &[u8], test: &KeyTest) -> bool {
        let any = |may: &dyn Fn(&Pattern) -> bool| test.patterns().iter().any(may);
        match self {
            SummaryForm::First => First::of(summary)
                .is_none_or(|first| first.is_partial() || any(&|pattern| first.may_hold(pattern))),
            SummaryForm::Second => Second::of(summary)
                .is_none_or(|second| second.is_partial() || any(&|pattern| second.may_hold(pattern))),
        }
    }
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

/// A summary of the second form, lent.
struct Second<'a> {
    fixed: &'a [u8; HOSTS_AT],
    hosts: &'a [u8],
    ports: &'a [u8],
}

impl<'a> Second<'a> {
    fn of(bytes: &'a [u8]) -> Option<Second<'a>> {
        let (fixed, bits) = bytes.split_first_chunk()?;
        let (hosts, ports) = bits.split_at(hosts_bytes(bits.len()));
        (!hosts.is_empty() && !ports.is_empty()).then_some(Second { fixed, hosts, ports })
    }

    fn is_partial(&self) -> bool {
        self.fixed[FLAGS_AT] & PARTIAL != 0
    }

    fn may_hold(&self, pattern: &Pattern) -> bool {
        let (mask, value) = pattern.parts();
        let is_possible = |one: &u32| {
            has(&self.fixed[..FLAGS_AT], *one as usize) && one & mix(mask.word) == mix(value.word)
        };
        let kinds = (0..16).filter(is_possible).fold(0_u8, |kinds, one| kinds | 1 << (one & 3));
        // Nothing is noted of the nets of folded addresses.
        let folded = kinds & 1 << Kind::Ipv6 as u8 != 0;
        kinds != 0
            && self.may_hold_protocol(mask.protocol(), value.protocol())
            && self.may_hold_address(mask.source, value.source, folded)
            && self.may_hold_address(mask.destination, value.destination, folded)
            && self.may_hold_port(mask.source_port, value.source_port)
            && self.may_hold_port(mask.destination_port, value.destination_port)
    }

    fn may_hold_protocol(&self, mask: u8, value: u8) -> bool {
        one_of(mask.into(), value.into(), 8, |protocol| has(&self.fixed[PROTOCOLS_AT..], protocol as usize))
    }

    fn may_hold_port(&self, mask: u16, value: u16) -> bool {
        one_of(mask.into(), value.into(), 16, |port| match port < LOW_PORTS.into() {
            true => has(&self.fixed[LOW_PORTS_AT..], port as usize),
            false => has_key(self.ports, port.into(), PORT_BITS),
        })
    }

    /// Looks from the largest net down, as far as the mask covers whole bytes and a part of the next one.
    fn may_hold_address(&self, mask: [u8; 4], value: [u8; 4], folded: bool) -> bool {
        let has_host = |address| has_key(self.hosts, net_key(address, 32), HOST_BITS);
        if folded {
            return mask != [0xff; 4] || has_host(value);
        }
        let mut firsts = (0..=u8::MAX).filter(|first| first & mask[0] == value[0]);
        if !firsts.any(|first| has(&self.fixed[EIGHTS_AT..], first.into())) {
            return false;
        }
        let may_hold_byte = |byte: usize| {
            one_of(mask[byte].into(), value[byte].into(), 8, |one| {
                let mut address = value;
                address[byte] = one as u8;
                match byte {
                    3 => has_host(address),
                    _ => has_key(self.hosts, net_key(address, 8 * (byte as u32 + 1)), NET_BITS),
                }
            })
        };
        (1..4).take_while(|&byte| mask[byte - 1] == 0xff).all(may_hold_byte)
    }
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
