//! What tells flows apart: interface, outermost VLAN, both addresses, protocol, both ports.
//!
//! ```text
//!  ends    lesser address 16 B | greater address 16 B     numbers, so that 10.0.0.1 < 10.0.0.2
//!  word    lesser port 16 | greater port 16 | vlan 16 | protocol 8 | is IPv6 1 | goes one way 1
//!  interface 32
//! ```
//! The lesser end (by address, then by port) comes first, so that both directions have one key. ICMP pairs as
//! the community id does: the ports are the type and its counterpart. A message without a counterpart goes one
//! way: type and code stand for ports, and its ends keep their order.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const GREATER_PORT_SHIFT: u32 = 16;
const VLAN_SHIFT: u32 = 32;
const PROTOCOL_SHIFT: u32 = 48;
const IS_IPV6: u64 = 1 << 56;
const IS_ONE_WAY: u64 = 1 << 57;

/// One end of a packet: its address as a number (IPv4: below 2^32), and its port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct End {
    /// Its address as a number.
    pub address: u128,
    /// Its port, or what stands for one.
    pub port: u16,
}

/// See the module.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct Key {
    ends: [u64; 4],
    word: u64,
    /// The worker's number of the interface.
    pub interface: u32,
}

/// What all packets of a flow share beside their ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Common {
    /// The worker's number of the interface.
    pub interface: u32,
    /// 0: untagged.
    pub vlan: u16,
    /// The IP protocol's number.
    pub protocol: u8,
    /// Addresses are of IPv6.
    pub is_ipv6: bool,
    /// Its ends keep their order.
    pub is_one_way: bool,
}

impl Key {
    /// The key of no packet: no worker has so many interfaces.
    pub(crate) const NONE: Key = Key { ends: [0; 4], word: 0, interface: u32::MAX };

    /// Whether it is the same: all of it is looked at, without a branch.
    #[inline]
    pub(crate) fn is(&self, other: &Key) -> bool {
        let [a, b, c, d] = self.ends;
        let [e, f, g, h] = other.ends;
        let rest = (self.word ^ other.word) | u64::from(self.interface ^ other.interface);
        (a ^ e) | (b ^ f) | (c ^ g) | (d ^ h) | rest == 0
    }

    /// The key of a packet, and whether it goes from the greater end to the lesser one.
    #[inline]
    pub fn new(source: End, destination: End, common: Common) -> (Key, bool) {
        let is_reverse = !common.is_one_way && destination < source;
        let (lesser, greater) = if is_reverse { (destination, source) } else { (source, destination) };
        let [one, other] = [lesser.address, greater.address];
        let ends = [(one >> 64) as u64, one as u64, (other >> 64) as u64, other as u64];
        let word = common.word() | u64::from(lesser.port) | u64::from(greater.port) << GREATER_PORT_SHIFT;
        (Key { ends, word, interface: common.interface }, is_reverse)
    }

    /// The same of IPv4 addresses and ports.
    #[inline]
    pub fn new4(source: (u32, u16), destination: (u32, u16), common: Common) -> (Key, bool) {
        let [from, to] =
            [source, destination].map(|(address, port)| u64::from(address) << 16 | u64::from(port));
        let is_reverse = !common.is_one_way & (to < from);
        let (lesser, greater) = if is_reverse { (to, from) } else { (from, to) };
        let word = common.word() | lesser & 0xffff | (greater & 0xffff) << GREATER_PORT_SHIFT;
        (Key { ends: [0, lesser >> 16, 0, greater >> 16], word, interface: common.interface }, is_reverse)
    }

    /// A number that spreads keys well, for whoever doesn't know the seed in an unforeseeable way.
    #[inline]
    pub fn hash(&self, seed: [u64; 2]) -> u64 {
        let [a, b, c, d] = self.ends;
        let left = folded(a ^ seed[0], b ^ 0x9e37_79b9_7f4a_7c15);
        let right = folded(c ^ seed[1], d ^ 0xc2b2_ae3d_27d4_eb4f);
        let rest = folded(self.word ^ seed[0].rotate_left(32), u64::from(self.interface) ^ seed[1]);
        folded(left ^ rest ^ 0x1656_67b1_9e37_79f9, right.rotate_left(23) ^ seed[0])
    }

    /// Its ends: the lesser first, or of what goes one way the source.
    pub fn ends(&self) -> [(IpAddr, u16); 2] {
        let address = |high: u64, low: u64| match self.word & IS_IPV6 {
            0 => IpAddr::V4(Ipv4Addr::from_bits(low as u32)),
            _ => IpAddr::V6(Ipv6Addr::from_bits(u128::from(high) << 64 | u128::from(low))),
        };
        let [a, b, c, d] = self.ends;
        [(address(a, b), self.word as u16), (address(c, d), (self.word >> GREATER_PORT_SHIFT) as u16)]
    }

    /// Both addresses as numbers, in the order of the ends.
    pub(crate) fn numbers(&self) -> [u128; 2] {
        let [a, b, c, d] = self.ends.map(u128::from);
        [a << 64 | b, c << 64 | d]
    }

    /// What it says beside the ends.
    pub(crate) fn common(&self) -> Common {
        Common {
            interface: self.interface,
            vlan: self.vlan(),
            protocol: self.protocol(),
            is_ipv6: self.word & IS_IPV6 != 0,
            is_one_way: self.is_one_way(),
        }
    }

    /// The outermost VLAN; 0: untagged.
    #[inline]
    pub fn vlan(&self) -> u16 {
        (self.word >> VLAN_SHIFT) as u16
    }

    /// The IP protocol's number.
    #[inline]
    pub fn protocol(&self) -> u8 {
        (self.word >> PROTOCOL_SHIFT) as u8
    }

    /// There is no counterpart.
    #[inline]
    pub fn is_one_way(&self) -> bool {
        self.word & IS_ONE_WAY != 0
    }

    /// The same flow at another interface.
    pub fn at_interface(self, interface: u32) -> Key {
        Key { interface, ..self }
    }
}

impl Common {
    #[inline]
    fn word(self) -> u64 {
        u64::from(self.vlan) << VLAN_SHIFT
            | u64::from(self.protocol) << PROTOCOL_SHIFT
            | if self.is_ipv6 { IS_IPV6 } else { 0 }
            | if self.is_one_way { IS_ONE_WAY } else { 0 }
    }
}

/// Both halves of the product, folded into one.
#[inline]
fn folded(one: u64, other: u64) -> u64 {
    let product = u128::from(one) * u128::from(other);
    product as u64 ^ (product >> 64) as u64
}

/// The counterpart of an ICMP type, as the community id pairs them.
pub fn counterpart(is_ipv6: bool, kind: u8) -> Option<u8> {
    const PAIRS: [(u8, u8); 5] = [(8, 0), (13, 14), (15, 16), (17, 18), (10, 9)];
    const PAIRS6: [(u8, u8); 6] = [(128, 129), (133, 134), (135, 136), (130, 131), (139, 140), (144, 145)];
    let pairs: &[(u8, u8)] = if is_ipv6 { &PAIRS6 } else { &PAIRS };
    pairs.iter().find_map(|&(one, other)| match kind {
        _ if kind == one => Some(other),
        _ if kind == other => Some(one),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const COMMON: Common = Common { interface: 3, vlan: 100, protocol: 6, is_ipv6: false, is_one_way: false };

    #[test]
    fn both_directions_have_one_key_and_one_way_traffic_has_two() {
        let (client, server) =
            (End { address: 0x0a00_0002, port: 40000 }, End { address: 0x0a00_0001, port: 443 });
        let (key, is_reverse) = Key::new(client, server, COMMON);
        assert!(is_reverse);
        assert_eq!(Key::new(server, client, COMMON), (key, false));
        let ends = [("10.0.0.1".parse().unwrap(), 443), ("10.0.0.2".parse().unwrap(), 40000)];
        assert_eq!((key.ends(), key.vlan(), key.protocol(), key.is_one_way()), (ends, 100, 6, false));
        let one_way = Common { is_one_way: true, ..COMMON };
        assert_ne!(Key::new(client, server, one_way).0, Key::new(server, client, one_way).0);
        assert!(!Key::new(client, server, one_way).1);
    }

    #[test]
    fn types_of_icmp_pair_both_ways_and_others_have_no_counterpart() {
        for (is_ipv6, one, other) in [(false, 8, 0), (false, 9, 10), (true, 128, 129), (true, 136, 135)] {
            assert_eq!(counterpart(is_ipv6, one), Some(other));
            assert_eq!(counterpart(is_ipv6, other), Some(one));
        }
        assert_eq!(
            (counterpart(false, 3), counterpart(true, 1), counterpart(false, 128)),
            (None, None, None)
        );
    }

    proptest! {
        #[test]
        fn every_field_tells_flows_apart(a: u128, b: u128, ports: (u16, u16), vlan in 0u16..4096, other in 0usize..5) {
            let [one, two] = [End { address: a, port: ports.0 }, End { address: b, port: ports.1 }];
            let common = Common { vlan, is_ipv6: true, ..COMMON };
            let (key, _) = Key::new(one, two, common);
            let different = match other {
                0 => Key::new(End { address: a ^ 1, ..one }, two, common),
                1 => Key::new(one, End { port: ports.1 ^ 1, ..two }, common),
                2 => Key::new(one, two, Common { vlan: vlan ^ 1, ..common }),
                3 => Key::new(one, two, Common { protocol: 17, ..common }),
                _ => Key::new(one, two, Common { interface: 4, ..common }),
            };
            // A changed end may be the other direction of the same ends.
            prop_assume!(different.0 != Key::new(two, one, common).0 || other > 1);
            prop_assert_ne!(different.0, key);
            prop_assert!(key.is(&key) && !key.is(&different.0) && !key.is(&Key::NONE));
            prop_assert_ne!(different.0.hash([1, 2]), key.hash([1, 2]));
        }
    }
}
