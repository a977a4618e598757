//! A question to summaries of the second form, bit by bit: to one of them, or to all of a file at once.
//!
//! ```text
//!             bit 0  bit 1  bit 2  ...
//! summary 0     1      0      1           a slice is what all summaries have of one bit:
//! summary 1     0      0      1           a question needs few of them
//!                      └─ the slice of bit 1
//! ```

use crate::bits::{has, places};
use crate::search::{KeyTest, Pattern};
use crate::summary_form::{
    EIGHTS_AT, FLAGS_AT, HOST_BITS, HOSTS_AT, LOW_PORTS, LOW_PORTS_AT, NET_BITS, PORT_BITS, PROTOCOLS_AT,
    hosts_bytes, mix, net_key,
};
use scope_packet::KeyEntry;
use scope_packet::headers::Kind;
use std::convert::Infallible;
use std::ops::Range;

/// Most numbers that are looked up where a mask covers a number in part.
const TRIED_MAX: u32 = 16;

/// Some of the summaries that are asked.
pub trait SummarySet: Clone {
    /// Keeps those that are in the other one, too.
    fn intersect(&mut self, other: &Self);

    /// Adds those that are in the other one.
    fn unite(&mut self, other: &Self);

    /// Whether none is in it.
    fn is_empty(&self) -> bool;

    /// Whether all are in it.
    fn is_full(&self) -> bool;
}

/// Summaries of the second form, all of the same length, by their bits.
pub trait BitSlices {
    /// Some of them.
    type Set: SummarySet;
    /// Why a slice can't be had.
    type Error;

    /// All of them.
    fn full(&self) -> Self::Set;

    /// None of them.
    fn empty(&self) -> Self::Set;

    /// Those that have this bit: bit `n % 8` of byte `n / 8`.
    fn slice(&mut self, bit: usize) -> Result<Self::Set, Self::Error>;
}

/// One summary.
struct One<'a>(&'a [u8]);

impl SummarySet for bool {
    fn intersect(&mut self, other: &bool) {
        *self &= other;
    }

    fn unite(&mut self, other: &bool) {
        *self |= other;
    }

    fn is_empty(&self) -> bool {
        !self
    }

    fn is_full(&self) -> bool {
        *self
    }
}

impl BitSlices for One<'_> {
    type Set = bool;
    type Error = Infallible;

    fn full(&self) -> bool {
        true
    }

    fn empty(&self) -> bool {
        false
    }

    fn slice(&mut self, bit: usize) -> Result<bool, Infallible> {
        Ok(has(self.0, bit))
    }
}

/// Whether an entry that `test` matches can be in the segment with this summary. True where so few bytes are none.
pub(crate) fn may_hold(summary: &[u8], test: &KeyTest) -> bool {
    let Ok(found) = that_may_hold(&mut One(summary), summary.len(), test);
    found
}

/// Those of summaries of `summary_bytes` each in whose segments an entry that `test` matches can be.
///
/// # Errors
/// That of a slice.
pub fn that_may_hold<S: BitSlices>(
    slices: &mut S,
    summary_bytes: usize,
    test: &KeyTest,
) -> Result<S::Set, S::Error> {
    let bits = summary_bytes.saturating_sub(HOSTS_AT);
    let hosts = HOSTS_AT..HOSTS_AT + hosts_bytes(bits);
    let ports = hosts.end..HOSTS_AT + bits;
    let is_anything = |pattern: &Pattern| pattern.parts().0 == KeyEntry::default();
    if hosts.is_empty() || ports.is_empty() || test.patterns().iter().any(is_anything) {
        return Ok(slices.full());
    }
    let mut found = slices.slice(8 * FLAGS_AT)?; // PARTIAL
    for pattern in test.patterns() {
        if found.is_full() {
            break;
        }
        found.unite(&Question { slices, hosts: hosts.clone(), ports: ports.clone() }.pattern(pattern)?);
    }
    Ok(found)
}

/// A question that is being answered.
struct Question<'a, S> {
    slices: &'a mut S,
    /// Bytes of the filter of addresses, and of that of ports.
    hosts: Range<usize>,
    ports: Range<usize>,
}

impl<S: BitSlices> Question<'_, S> {
    fn pattern(&mut self, pattern: &Pattern) -> Result<S::Set, S::Error> {
        let (mask, value) = pattern.parts();
        let sides = [(mask.source, value.source), (mask.destination, value.destination)];
        let has_address = sides.iter().any(|(mask, _)| *mask != [0; 4]);
        let (mut found, mut folded) = (self.slices.full(), self.slices.empty());
        if mix(mask.word) != 0 || has_address {
            // Of a pattern that asks for no kind every segment with an entry has a mix that is possible.
            found = self.slices.empty();
            for one in (0..16).filter(|one| one & mix(mask.word) == mix(value.word)) {
                let having = self.slices.slice(one as usize)?;
                found.unite(&having);
                if one & 3 == Kind::Ipv6 as u32 {
                    folded.unite(&having);
                }
            }
        }
        for (mask, value) in sides.into_iter().filter(|(mask, _)| *mask != [0; 4]) {
            if found.is_empty() {
                return Ok(found);
            }
            found.intersect(&self.address(mask, value, &folded)?);
        }
        if mask.protocol() != 0 && !found.is_empty() {
            let with =
                |question: &mut Self, protocol| question.slices.slice(8 * PROTOCOLS_AT + protocol as usize);
            found.intersect(&self.one_of((mask.protocol().into(), value.protocol().into(), 8), with)?);
        }
        let sides = [(mask.source_port, value.source_port), (mask.destination_port, value.destination_port)];
        for (mask, value) in sides.into_iter().filter(|(mask, _)| *mask != 0) {
            if found.is_empty() {
                return Ok(found);
            }
            found.intersect(&self.one_of((mask.into(), value.into(), 16), Self::port)?);
        }
        Ok(found)
    }

    fn port(&mut self, port: u32) -> Result<S::Set, S::Error> {
        match port < LOW_PORTS.into() {
            true => self.slices.slice(8 * LOW_PORTS_AT + port as usize),
            false => self.key(self.ports.clone(), port.into(), PORT_BITS),
        }
    }

    /// Those with an address of which these bits are known; `folded` may have one of IPv6, of whose nets nothing is noted.
    fn address(&mut self, mask: [u8; 4], value: [u8; 4], folded: &S::Set) -> Result<S::Set, S::Error> {
        let is_whole = mask == [0xff; 4];
        let mut found = match is_whole {
            true => self.host(value)?,
            false => self.slices.full(),
        };
        if found.is_empty() || folded.is_full() {
            return Ok(found);
        }
        let mut nets = self.nets(mask, value, is_whole)?;
        nets.unite(folded);
        found.intersect(&nets);
        Ok(found)
    }

    /// Looks from the largest net down, as far as the mask covers whole bytes and a part of the next one.
    fn nets(&mut self, mask: [u8; 4], value: [u8; 4], is_whole: bool) -> Result<S::Set, S::Error> {
        let mut found = self.slices.full();
        if mask[0] != 0 {
            found = self.slices.empty();
            for first in (0..=u8::MAX).filter(|first| first & mask[0] == value[0]) {
                found.unite(&self.slices.slice(8 * EIGHTS_AT + usize::from(first))?);
            }
        }
        for byte in (1..4).take_while(|&byte| mask[byte - 1] == 0xff) {
            if found.is_empty() || byte == 3 && is_whole {
                break;
            }
            let with = |question: &mut Self, one| {
                let mut address = value;
                address[byte] = one as u8;
                match byte {
                    3 => question.host(address),
                    _ => {
                        let key = net_key(address, 8 * (byte as u32 + 1));
                        question.key(question.hosts.clone(), key, NET_BITS)
                    }
                }
            };
            found.intersect(&self.one_of((mask[byte].into(), value[byte].into(), 8), with)?);
        }
        Ok(found)
    }

    fn host(&mut self, address: [u8; 4]) -> Result<S::Set, S::Error> {
        self.key(self.hosts.clone(), net_key(address, 32), HOST_BITS)
    }

    /// Those that may have a key in the Bloom filter at these bytes.
    fn key(&mut self, filter: Range<usize>, key: u64, count: u32) -> Result<S::Set, S::Error> {
        let mut found = self.slices.full();
        for place in places(filter.len(), key, count) {
            if found.is_empty() {
                break;
            }
            found.intersect(&self.slices.slice(8 * filter.start + place)?);
        }
        Ok(found)
    }

    /// Those for which `with` holds for one of the numbers of `width` bits that are `value` under `mask`; all where
    /// these are more than are tried.
    fn one_of(
        &mut self,
        (mask, value, width): (u32, u32, u32),
        with: impl Fn(&mut Self, u32) -> Result<S::Set, S::Error>,
    ) -> Result<S::Set, S::Error> {
        let free = !mask & ((1 << width) - 1);
        if 1 << free.count_ones() > TRIED_MAX {
            return Ok(self.slices.full());
        }
        let (mut found, mut part) = (self.slices.empty(), 0_u32); // each subset of the free bits
        loop {
            found.unite(&with(self, value | part)?);
            part = part.wrapping_sub(free) & free;
            if part == 0 || found.is_full() {
                return Ok(found);
            }
        }
    }
}
