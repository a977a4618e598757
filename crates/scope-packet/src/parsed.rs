//! A batch of packets parsed together: the key entry of each, and its headers.
//!
//! The key entry of a plain packet is all of its headers. So only entries are stored for most packets, 16
//! bytes each, and headers are made of them on demand.

use crate::headers::Headers;
use crate::key::KeyEntry;
use crate::link::LinkType;
use crate::packet::BATCH_PACKETS_MAX;
#[cfg(target_arch = "x86_64")]
use crate::plain;

// A bit for each.
const _: () = assert!(BATCH_PACKETS_MAX == u64::BITS as usize);

/// What the parse of up to [`BATCH_PACKETS_MAX`] packets found; the same as [`Headers::parse`] of each.
#[derive(Clone, Debug)]
#[repr(align(64))]
pub struct Parsed {
    keys: [KeyEntry; BATCH_PACKETS_MAX],
    /// The packets that aren't plain, a bit each.
    odd: u64,
    /// Their headers.
    odd_headers: [Headers; BATCH_PACKETS_MAX],
}

impl Default for Parsed {
    /// As if all packets were empty and of an unknown kind.
    fn default() -> Parsed {
        Parsed {
            keys: [KeyEntry::default(); BATCH_PACKETS_MAX],
            odd: !0,
            odd_headers: [Headers::default(); BATCH_PACKETS_MAX],
        }
    }
}

impl Parsed {
    /// Parses the packets `which`, a bit each, all of link type `link_type`, whose bytes `data` gives. What
    /// is known of others stays.
    #[inline]
    pub fn parse<'a>(&mut self, link_type: LinkType, which: u64, data: impl Fn(usize) -> &'a [u8]) {
        let mut rest = which;
        #[cfg(target_arch = "x86_64")]
        if link_type == LinkType::ETHERNET && plain::is_supported() {
            // SAFETY: the processor has what it needs.
            rest = unsafe { plain::keys(which, &data, &mut self.keys) };
        }
        self.odd &= !which;
        while rest != 0 {
            let at = rest.trailing_zeros() as usize;
            rest &= rest - 1;
            self.parse_one(link_type, at, data(at));
        }
    }

    #[inline]
    fn parse_one(&mut self, link_type: LinkType, at: usize, data: &[u8]) {
        let plain = (link_type == LinkType::ETHERNET).then(|| Headers::plain(data)).flatten();
        let headers = plain.unwrap_or_else(|| {
            self.odd |= 1 << at;
            self.odd_headers[at] = Headers::read(link_type, data);
            self.odd_headers[at]
        });
        self.keys[at] = KeyEntry::new(&headers);
    }

    /// The key entry of packet `at`.
    #[inline(always)]
    pub fn key(&self, at: usize) -> &KeyEntry {
        &self.keys[at]
    }

    /// The headers of packet `at`.
    #[inline]
    pub fn headers(&self, at: usize) -> Headers {
        match self.odd >> at & 1 {
            0 => Headers::of_plain(self.keys[at].parts()),
            _ => self.odd_headers[at],
        }
    }

    /// VLAN tags of packet `at`, as [`Headers::vlan_tags`] counts them.
    #[inline]
    pub fn vlan_tags(&self, at: usize) -> u32 {
        match self.odd >> at & 1 {
            0 => 0,
            _ => self.odd_headers[at].vlan_tags(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LINKS: [LinkType; 13] = [
        LinkType::SLIP,
        LinkType::ETHERNET,
        LinkType::NULL,
        LinkType::PPP,
        LinkType::PPP_HDLC,
        LinkType::RAW,
        LinkType::LOOP,
        LinkType::LINUX_SLL,
        LinkType::IPV4,
        LinkType::IPV6,
        LinkType::LINUX_SLL2,
        LinkType(105),
        LinkType(9999),
    ];

    /// IPv4 with and without options, as a fragment, IPv6, tagged, ARP, and nothing of these, each with any
    /// bytes behind.
    const STARTS: [&[u8]; 9] = [
        &[8, 0, 0x45, 0, 0, 80, 0, 1, 0x40, 0, 64],
        &[8, 0, 0x45, 7, 0, 80, 0, 1, 0, 0, 1],
        &[8, 0, 0x46, 0, 0, 80, 0, 1, 0, 0, 64],
        &[8, 0, 0x45, 0, 0, 80, 0, 1, 0x20, 0, 64],
        &[8, 0, 0x45, 0, 0, 80, 0, 1, 0x80, 0, 64],
        &[0x86, 0xdd, 0x60, 0, 0, 0, 0, 60],
        &[0x81, 0, 0, 7, 8, 0, 0x45, 0, 0, 80, 0, 1, 0, 0, 64],
        &[8, 6, 0, 1, 8, 0, 6, 4],
        &[],
    ];

    /// What stands in front of the EtherType, or of what begins like an IP packet.
    const FRONTS: [&[u8]; 4] = [&[4; 12], &[0; 14], &[2, 0, 0, 0], &[]];

    /// A packet, some of its bytes then changed, and truncated.
    fn packet() -> impl Strategy<Value = Vec<u8>> {
        let protocol = prop_oneof![3 => Just(6u8), 3 => Just(17u8), 1 => Just(132u8), 1 => any::<u8>()];
        let changes = prop_oneof![2 => Just(0usize), 1 => 1..4usize];
        let rest = proptest::collection::vec(any::<u8>(), 60);
        let change = proptest::collection::vec((0usize..40, any::<u8>()), 3);
        let shape = (prop_oneof![3 => Just(0usize), 1 => 0..FRONTS.len()], 0..STARTS.len(), protocol);
        let len = prop_oneof![2 => Just(80usize), 1 => 0usize..80];
        (shape, rest, changes, change, len).prop_map(
            |((front, start, protocol), rest, changes, change, len)| {
                let mut packet = [FRONTS[front], STARTS[start], &[protocol], &rest].concat();
                for (at, byte) in change.into_iter().take(changes) {
                    packet[at] = byte;
                }
                packet.truncate(len);
                packet
            },
        )
    }

    fn check(link_type: LinkType, packets: &[Vec<u8>], which: u64, parsed: &Parsed, before: &Parsed) {
        for (at, data) in packets.iter().enumerate() {
            let found = (parsed.headers(at), parsed.vlan_tags(at), *parsed.key(at));
            if which >> at & 1 == 0 {
                assert_eq!(
                    found,
                    (before.headers(at), before.vlan_tags(at), *before.key(at)),
                    "packet {at} isn't called for"
                );
                continue;
            }
            let headers = Headers::read(link_type, data);
            assert_eq!(
                found,
                (headers, headers.vlan_tags(), KeyEntry::new(&headers)),
                "{link_type:?} {data:x?}"
            );
        }
    }

    proptest! {
        #[test]
        fn a_batch_is_parsed_as_its_packets_one_by_one(packets in proptest::collection::vec(packet(), 1..=64),
            links in (0..LINKS.len(), 0..LINKS.len()), which in prop_oneof![Just(u64::MAX), any::<u64>()]) {
            let all = u64::MAX >> (64 - packets.len());
            let mut parsed = Parsed::default();
            parsed.parse(LINKS[links.0], all, |at| &packets[at]);
            check(LINKS[links.0], &packets, all, &parsed, &Parsed::default());
            // Again, some of them as another type: whatever was known of the others stays.
            let before = parsed.clone();
            parsed.parse(LINKS[links.1], which & all, |at| &packets[at]);
            check(LINKS[links.1], &packets, which & all, &parsed, &before);
        }
    }

    #[test]
    fn every_byte_of_a_plain_head_counts() {
        let plain = [FRONTS[0], STARTS[0], &[17], &[9; 40]].concat();
        for at in 0..plain.len() {
            let packets: Vec<Vec<u8>> =
                (0..=255).map(|byte| [&plain[..at], &[byte], &plain[at + 1..]].concat()).collect();
            for packets in packets.chunks(64) {
                let mut parsed = Parsed::default();
                parsed.parse(LinkType::ETHERNET, u64::MAX, |at| &packets[at]);
                check(LinkType::ETHERNET, packets, u64::MAX, &parsed, &Parsed::default());
            }
        }
        for len in 0..plain.len() {
            let mut parsed = Parsed::default();
            parsed.parse(LinkType::ETHERNET, 1, |_| &plain[..len]);
            check(LinkType::ETHERNET, &[plain[..len].to_vec()], 1, &parsed, &Parsed::default());
        }
    }
}
