//! The key test: which entries of the key column a search selects.
//!
//! ```text
//! test      pattern or pattern or ... or the entry's `partial` bit
//! pattern   entry & mask == value                  over all 16 bytes of the entry at once
//! host A and port 53   =   {source A, source port 53}, {source A, destination port 53}, {destination A, source port 53}, ...
//! ```

use scope_packet::headers::Kind;
use scope_packet::key::{KEY_ENTRY_BYTES, KeyEntry};

/// Patterns of one test; one that would need more selects more than it should.
pub const PATTERNS_MAX: usize = 16;

/// Bits of the entry's word.
const PROTOCOL: u32 = 0xff;
const KIND: u32 = 3 << 8;
const VLAN: u32 = 1 << 10;
const FRAGMENT: u32 = 1 << 11;
const PARTIAL: u32 = 1 << 12;

/// An entry passes where `entry & mask == value`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pattern {
    pub mask: u128,
    pub value: u128,
}

impl Pattern {
    fn new(mask: KeyEntry, value: KeyEntry) -> Pattern {
        let number = |entry: KeyEntry| u128::from_le_bytes(entry.to_bytes());
        Pattern { mask: number(mask), value: number(value) & number(mask) }
    }

    /// Both at once; `None` where they contradict each other.
    fn and(self, other: Pattern) -> Option<Pattern> {
        let common = self.mask & other.mask;
        (self.value & common == other.value & common)
            .then_some(Pattern { mask: self.mask | other.mask, value: self.value | other.value })
    }

    fn matches(&self, entry: u128) -> bool {
        entry & self.mask == self.value
    }

    /// Mask and value as entries.
    pub(crate) fn parts(&self) -> (KeyEntry, KeyEntry) {
        let entry = |number: u128| KeyEntry::from_bytes(&number.to_le_bytes());
        (entry(self.mask), entry(self.value))
    }
}

/// Which entries of the key column a search selects. Entries that are `partial` always pass.
///
/// Addresses are given as the entry has them: see [`scope_packet::key::fold`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyTest {
    /// At most [`PATTERNS_MAX`]. None at all: only partial entries pass.
    patterns: Vec<Pattern>,
}

const ZERO: KeyEntry =
    KeyEntry { source: [0; 4], destination: [0; 4], source_port: 0, destination_port: 0, word: 0 };
const ADDRESS: [u8; 4] = [0xff; 4];

impl KeyTest {
    /// Entries of which the bits under one of the masks are those of its value: (mask, value). More than
    /// [`PATTERNS_MAX`] match everything.
    pub fn any_of(patterns: &[(KeyEntry, KeyEntry)]) -> KeyTest {
        if patterns.len() > PATTERNS_MAX {
            return KeyTest::all();
        }
        KeyTest { patterns: patterns.iter().map(|&(mask, value)| Pattern::new(mask, value)).collect() }
    }

    /// Matches everything.
    pub fn all() -> KeyTest {
        KeyTest::any_of(&[(ZERO, ZERO)])
    }

    /// This source address.
    pub fn source(address: [u8; 4]) -> KeyTest {
        KeyTest::any_of(&[(KeyEntry { source: ADDRESS, ..ZERO }, KeyEntry { source: address, ..ZERO })])
    }

    /// This destination address.
    pub fn destination(address: [u8; 4]) -> KeyTest {
        KeyTest::any_of(&[(
            KeyEntry { destination: ADDRESS, ..ZERO },
            KeyEntry { destination: address, ..ZERO },
        )])
    }

    /// This address on either side.
    pub fn host(address: [u8; 4]) -> KeyTest {
        KeyTest::source(address).or(KeyTest::destination(address))
    }

    /// IPv4 addresses of a net on either side; `mask` as in the packet (255.255.0.0). IPv6 packets all pass:
    /// folding keeps no nets.
    pub fn net_v4(net: [u8; 4], mask: [u8; 4]) -> KeyTest {
        let source = (KeyEntry { source: mask, ..ZERO }, KeyEntry { source: net, ..ZERO });
        let destination = (KeyEntry { destination: mask, ..ZERO }, KeyEntry { destination: net, ..ZERO });
        KeyTest::any_of(&[source, destination]).or(KeyTest::kind(Kind::Ipv6))
    }

    /// This source port.
    pub fn source_port(port: u16) -> KeyTest {
        KeyTest::any_of(&[(
            KeyEntry { source_port: u16::MAX, ..ZERO },
            KeyEntry { source_port: port, ..ZERO },
        )])
    }

    /// This destination port.
    pub fn destination_port(port: u16) -> KeyTest {
        KeyTest::any_of(&[(
            KeyEntry { destination_port: u16::MAX, ..ZERO },
            KeyEntry { destination_port: port, ..ZERO },
        )])
    }

    /// This port on either side.
    pub fn port(port: u16) -> KeyTest {
        KeyTest::source_port(port).or(KeyTest::destination_port(port))
    }

    /// This IP protocol.
    pub fn protocol(protocol: u8) -> KeyTest {
        KeyTest::word(PROTOCOL, protocol as u32)
    }

    /// This kind of network layer.
    pub fn kind(kind: Kind) -> KeyTest {
        KeyTest::word(KIND, (kind as u32) << 8)
    }

    /// With a VLAN tag, or without one.
    pub fn vlan(tagged: bool) -> KeyTest {
        KeyTest::word(VLAN, if tagged { VLAN } else { 0 })
    }

    /// A fragment, or none.
    pub fn fragment(fragment: bool) -> KeyTest {
        KeyTest::word(FRAGMENT, if fragment { FRAGMENT } else { 0 })
    }

    fn word(mask: u32, value: u32) -> KeyTest {
        KeyTest::any_of(&[(KeyEntry { word: mask, ..ZERO }, KeyEntry { word: value, ..ZERO })])
    }

    /// What both match. Where that needs too many patterns, what the one with fewer matches.
    pub fn and(self, other: KeyTest) -> KeyTest {
        let pairs = self.patterns.iter().flat_map(|a| other.patterns.iter().filter_map(|b| a.and(*b)));
        let mut patterns: Vec<Pattern> = Vec::new();
        for pattern in pairs {
            if !patterns.contains(&pattern) {
                patterns.push(pattern);
            }
        }
        if patterns.len() <= PATTERNS_MAX {
            return KeyTest { patterns };
        }
        if self.patterns.len() <= other.patterns.len() { self } else { other }
    }

    /// What either matches. Where that needs too many patterns, everything.
    pub fn or(mut self, other: KeyTest) -> KeyTest {
        for pattern in other.patterns {
            if !self.patterns.contains(&pattern) {
                self.patterns.push(pattern);
            }
        }
        if self.patterns.len() <= PATTERNS_MAX { self } else { KeyTest::all() }
    }

    /// Whether one entry passes: what the scan of a column must agree with.
    pub fn matches(&self, entry: &KeyEntry) -> bool {
        let number = u128::from_le_bytes(entry.to_bytes());
        entry.partial() || self.patterns.iter().any(|pattern| pattern.matches(number))
    }

    /// Everything that lets an entry pass but the partial bit.
    pub(crate) fn patterns(&self) -> &[Pattern] {
        &self.patterns
    }

    /// All patterns, the partial bit's included.
    pub(crate) fn with_partial(&self) -> Vec<Pattern> {
        let partial = KeyEntry { word: PARTIAL, ..ZERO };
        self.patterns.iter().copied().chain([Pattern::new(partial, partial)]).collect()
    }
}

/// Whether a mask covers a whole source address, destination address, source port, destination port,
/// protocol, kind.
pub(crate) fn whole_fields(mask: &KeyEntry) -> [bool; 6] {
    [
        mask.source == ADDRESS,
        mask.destination == ADDRESS,
        mask.source_port == u16::MAX,
        mask.destination_port == u16::MAX,
        mask.word & PROTOCOL == PROTOCOL,
        mask.word & KIND == KIND,
    ]
}

const _: () = assert!(KEY_ENTRY_BYTES == size_of::<u128>());

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partial_entries_always_pass() {
        let entry = KeyEntry { word: PARTIAL, ..ZERO };
        assert!(entry.partial() && KeyTest::host([1, 2, 3, 4]).and(KeyTest::port(53)).matches(&entry));
    }

    #[test]
    fn bits_are_where_the_entry_has_them() {
        let entry = KeyEntry { word: 17 | (Kind::Ipv6 as u32) << 8 | VLAN | FRAGMENT, ..ZERO };
        assert!(entry.vlan() && entry.fragment() && !entry.partial());
        assert_eq!((entry.protocol(), entry.kind()), (17, Kind::Ipv6));
        let test = KeyTest::protocol(17)
            .and(KeyTest::kind(Kind::Ipv6))
            .and(KeyTest::vlan(true))
            .and(KeyTest::fragment(true));
        assert!(
            test.matches(&entry)
                && !KeyTest::vlan(false).matches(&entry)
                && !KeyTest::protocol(6).matches(&entry)
        );
    }

    #[test]
    fn too_many_patterns_take_more_never_less() {
        let many = (0..PATTERNS_MAX as u16 + 1).map(KeyTest::source_port).reduce(KeyTest::or).unwrap();
        assert_eq!(many, KeyTest::all());
        let port =
            |source_port| (KeyEntry { source_port: u16::MAX, ..ZERO }, KeyEntry { source_port, ..ZERO });
        let ports: Vec<_> = (0..PATTERNS_MAX as u16 + 1).map(port).collect();
        assert_eq!(KeyTest::any_of(&ports), KeyTest::all());
        assert!(!KeyTest::any_of(&ports[1..]).matches(&ZERO), "as many as there may be");
        let hosts = (0..5).map(|n| KeyTest::host([n; 4])).reduce(KeyTest::or).unwrap();
        let ports = (1..4).map(KeyTest::port).reduce(KeyTest::or).unwrap();
        assert_eq!(hosts.and(ports.clone()), ports);
        assert_eq!(
            KeyTest::port(5).and(KeyTest::port(5)).patterns.len(),
            3,
            "5 at both sides is one pattern"
        );
        assert!(KeyTest::protocol(6).and(KeyTest::protocol(17)).patterns.is_empty());
    }
}
