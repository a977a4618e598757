//! The community id, version 1, seed 0: one text for a flow in all tools that know it.
//!
//! ```text
//!  "1:" + base64(SHA-1(seed 16 | lesser address | greater address | protocol 8 | 0 8 | lesser port 16 | greater port 16))
//! ```
//! Numbers are big-endian. Ports are left out where the protocol has none. Of equal addresses the one with the lesser
//! port is the lesser. Of packets within packets it is the outermost's. Source: community-id-spec, version 1.

use crate::key::Key;
use data_encoding::BASE64;
use sha1_smol::Sha1;
use std::fmt;
use std::net::IpAddr;

/// TCP, UDP, SCTP, ICMP, ICMPv6.
const HAS_PORTS: [u8; 5] = [6, 17, 132, 1, 58];

/// "1:", and 20 bytes in base64.
const TEXT_BYTES: usize = 30;

/// An id, or none, as text. It lies in place: many rows wait at once, and a text beside each takes memory in pieces that
/// are too small to be given back.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct CommunityId {
    text: [u8; TEXT_BYTES],
    bytes: u8,
}

impl CommunityId {
    /// As it is written elsewhere, at most 30 bytes; empty: none.
    pub fn new(text: &str) -> Option<CommunityId> {
        let mut id = CommunityId { bytes: text.len() as u8, ..CommunityId::default() };
        id.text.get_mut(..text.len())?.copy_from_slice(text.as_bytes());
        Some(id)
    }

    /// Its text.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.text[..usize::from(self.bytes)]).unwrap_or_default()
    }
}

impl fmt::Debug for CommunityId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_str().fmt(f)
    }
}

/// The id of a flow.
pub fn community_id(key: &Key) -> CommunityId {
    let [(lesser, from), (greater, to)] = key.ends();
    let mut hash = Sha1::new();
    hash.update(&0u16.to_be_bytes());
    for address in [lesser, greater] {
        match address {
            IpAddr::V4(address) => hash.update(&address.octets()),
            IpAddr::V6(address) => hash.update(&address.octets()),
        }
    }
    hash.update(&[key.protocol(), 0]);
    if HAS_PORTS.contains(&key.protocol()) {
        hash.update(&from.to_be_bytes());
        hash.update(&to.to_be_bytes());
    }
    let mut id = CommunityId { bytes: TEXT_BYTES as u8, ..CommunityId::default() };
    let (version, encoded) = id.text.split_at_mut(2);
    version.copy_from_slice(b"1:");
    BASE64.encode_mut(&hash.digest().bytes(), encoded);
    id
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::{Common, End};

    fn check(protocol: u8, ends: [(&str, u16); 2], is_one_way: bool, expected: &str) {
        let end = |(address, port): (&str, u16)| match address.parse().unwrap() {
            IpAddr::V4(address) => End { address: u128::from(address.to_bits()), port },
            IpAddr::V6(address) => End { address: address.to_bits(), port },
        };
        let is_ipv6 = ends[0].0.contains(':');
        let common = Common { interface: 0, vlan: 0, protocol, is_ipv6, is_one_way };
        let id = |one, other| community_id(&Key::new(end(one), end(other), common).0);
        assert_eq!(id(ends[0], ends[1]).as_str(), expected);
        assert_eq!(id(ends[1], ends[0]).as_str() == expected, !is_one_way);
    }

    #[test]
    fn an_id_is_a_text_or_none() {
        assert_eq!(CommunityId::default().as_str(), "");
        assert_eq!(CommunityId::new("1:abc=").unwrap().as_str(), "1:abc=");
        assert_eq!(CommunityId::new(&"x".repeat(31)), None);
    }

    /// Ids of the baseline of community-id-spec.
    #[test]
    fn ids_are_those_of_the_specification() {
        check(
            6,
            [("128.232.110.120", 34855), ("66.35.250.204", 80)],
            false,
            "1:LQU9qZlK+B5F3KDmev6m5PMibrg=",
        );
        // Both ends have one address: the reference implementation, communityid of PyPI.
        check(6, [("127.0.0.1", 58449), ("127.0.0.1", 6633)], false, "1:gX0rdBQBetd8s+ykHcSv5cRB3bs=");
        check(17, [("192.168.1.52", 54585), ("8.8.8.8", 53)], false, "1:d/FP5EW3wiY1vCndhwleRRKHowQ=");
        check(1, [("192.168.0.89", 8), ("192.168.0.1", 0)], false, "1:X0snYXpgwiv9TZtqg64sgzUn6Dk=");
        check(132, [("192.168.170.8", 7), ("192.168.170.56", 7)], false, "1:MP2EtRCAUIZvTw6MxJHLV7N7JDs=");
    }
}
