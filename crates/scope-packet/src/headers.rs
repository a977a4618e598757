//! One parse per packet: where the layers begin, addresses, ports and tags, for all link types that carry IP.
//!
//! The parse serves as a *screen* for filters with libpcap's meaning, so it reads what libpcap's programs
//! read, at the same offsets, and sets [`Headers::partial`] wherever a filter could see more than the parse
//! does: tunnels, IPv6 extension headers, truncated headers, headers with odd lengths, link types it doesn't
//! know.

use crate::link::LinkType;

/// What the network layer is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// Anything else.
    #[default]
    Other = 0,
    /// IPv4.
    Ipv4 = 1,
    /// IPv6.
    Ipv6 = 2,
    /// ARP or RARP; the addresses are its protocol addresses.
    Arp = 3,
}

/// The result of one parse. Offsets are bytes from the start of the packet.
///
/// Fields are words that are read and written whole: a load that spans several narrower stores waits until
/// these have reached the cache, and with them all stores to the ring before them (measured: a fifth of a
/// worker's time).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Headers {
    /// Source address in the low half, destination address in the high half, each folded to 32 bits, its
    /// bytes as they stand in the packet; 0 where there are none.
    addresses: u64,
    /// Source port in the low half, destination port in the high half; 0 where there are none.
    ports: u32,
    /// Protocol, kind, vlan, fragment and partial, as the key entry's word has them.
    word: u32,
    network_offset: u32,
    /// Number of tags in the low half, identifier of the outermost one in the high half.
    vlan: u32,
    /// Which parts were found: [`HAS_ETHERNET`], [`HAS_ADDRESSES`], [`HAS_PORTS`].
    parts: u32,
}

/// The key entry's word: kind in bits 8 and 9.
pub(crate) const KIND_SHIFT: u32 = 8;
/// At least one VLAN tag.
pub(crate) const VLAN: u32 = 1 << 10;
/// More fragments follow, or this is one that is not the first.
pub(crate) const FRAGMENT: u32 = 1 << 11;
/// A filter may see more than the parse.
pub(crate) const PARTIAL: u32 = 1 << 12;

const HAS_ETHERNET: u32 = 1;
const HAS_ADDRESSES: u32 = 2;
const HAS_PORTS: u32 = 4;

impl Kind {
    #[inline]
    pub(crate) fn of_word(word: u32) -> Kind {
        [Kind::Other, Kind::Ipv4, Kind::Ipv6, Kind::Arp][(word >> KIND_SHIFT & 3) as usize]
    }
}

impl Headers {
    /// What the network layer is.
    #[inline]
    pub fn kind(&self) -> Kind {
        Kind::of_word(self.word)
    }

    /// VLAN tags in front of the network layer, as far as they are captured.
    #[inline]
    pub fn vlan_tags(&self) -> u32 {
        self.vlan & 0xffff
    }

    /// VLAN identifier of the outermost tag; meaningful with [`Headers::vlan_tags`] > 0.
    #[inline]
    pub fn vlan_id(&self) -> u16 {
        (self.vlan >> 16) as u16
    }

    /// Ethernet addresses stand at offset 0 (destination) and 6 (source).
    #[inline]
    pub fn ethernet(&self) -> bool {
        self.parts & HAS_ETHERNET != 0
    }

    /// Source and destination address are captured; see [`Headers::address_bytes`].
    #[inline]
    pub fn addresses(&self) -> bool {
        self.parts & HAS_ADDRESSES != 0
    }

    /// Where the network header begins; meaningful unless the kind is `Other`.
    #[inline]
    pub fn network_offset(&self) -> u32 {
        self.network_offset
    }

    /// IP protocol, of IPv6 the last header of the chain that could be read; 0 where there is none.
    #[inline]
    pub fn protocol(&self) -> u8 {
        self.word as u8
    }

    /// Source and destination port, for TCP, UDP and SCTP.
    #[inline]
    pub fn ports(&self) -> Option<(u16, u16)> {
        (self.parts & HAS_PORTS != 0).then_some((self.ports as u16, (self.ports >> 16) as u16))
    }

    /// What the key entry is made of: addresses, ports, and the word without the block's offset.
    #[inline(always)]
    pub(crate) fn key_parts(&self) -> (u64, u32, u32) {
        (self.addresses, self.ports, self.word)
    }

    /// More fragments follow, or this is one that is not the first.
    #[inline]
    pub fn fragment(&self) -> bool {
        self.word & FRAGMENT != 0
    }

    /// A filter may see more than this parse: tunnels, extension headers, truncated or odd headers, unknown
    /// link types.
    #[inline]
    pub fn partial(&self) -> bool {
        self.word & PARTIAL != 0
    }
}

const TCP: u8 = 6;
const UDP: u8 = 17;
const SCTP: u8 = 132;

// What most packets are: Ethernet, untagged, IPv4 without options and no fragment, or IPv6 without
// extensions, with ports.
/// Bytes of such a packet with IPv4 up to its ports.
pub(crate) const PLAIN4_BYTES: usize = 38;
/// The same with IPv6.
const PLAIN6_BYTES: usize = 58;
/// EtherType, version and header length from byte 12 on, as a little-endian number.
const PLAIN4_START: u32 = 0x45_0008;
/// EtherType and version.
const PLAIN6_START: u32 = 0x60_dd86;
/// Bits of bytes 16 to 23, as a little-endian number, that only fragments have: the fifth and the sixth.
const FRAGMENT_BITS: u64 = 0xff3f << 32;

/// Four bytes as a little-endian number.
#[inline(always)]
fn le32<const N: usize>(bytes: &[u8; N], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// Whether packets of this protocol begin with their ports: a table, since nobody can foresee which of them
/// comes next.
pub(crate) const HAS_PORTS_TABLE: [bool; 256] = {
    let mut table = [false; 256];
    table[TCP as usize] = true;
    table[UDP as usize] = true;
    table[SCTP as usize] = true;
    table
};

#[inline(always)]
fn has_ports(protocol: u8) -> bool {
    HAS_PORTS_TABLE[protocol as usize]
}

/// Source port in the low half, destination port in the high half, from four bytes of the packet as a
/// little-endian number.
#[inline]
fn port_pair(bytes: u32) -> u32 {
    bytes.swap_bytes().rotate_left(16)
}

fn be16(data: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(data.get(at..at + 2)?.try_into().ok()?))
}

impl Headers {
    /// Parses the headers of a packet of link type `link_type`. Never fails: what can't be read is `partial`.
    #[inline(always)] // so that what most packets are is read into registers
    pub fn parse(link_type: LinkType, data: &[u8]) -> Headers {
        if link_type == LinkType::ETHERNET
            && let Some(plain) = Headers::plain(data)
        {
            return plain;
        }
        Headers::read(link_type, data)
    }

    /// Parses a packet, whatever it is.
    #[inline(never)]
    pub(crate) fn read(link_type: LinkType, data: &[u8]) -> Headers {
        let mut headers = Headers::default();
        match link_type {
            LinkType::ETHERNET => headers.ethernet_from(data),
            LinkType::RAW | LinkType::IPV4 | LinkType::IPV6 => headers.raw_ip(data, 0),
            // Behind SLIP's 16 bytes stands IP, as behind none.
            LinkType::SLIP => headers.raw_ip(data, 16),
            LinkType::LINUX_SLL => headers.cooked(data, 14, 16),
            LinkType::LINUX_SLL2 => headers.cooked(data, 0, 20),
            LinkType::NULL | LinkType::LOOP => headers.loopback(data),
            LinkType::PPP | LinkType::PPP_HDLC => headers.ppp(data),
            _ => headers.word |= PARTIAL,
        }
        headers
    }

    /// Source and destination address: 4 bytes each for IPv4 and ARP, 16 for IPv6. `data` is the packet that
    /// was parsed.
    #[inline]
    pub fn address_bytes<'a>(&self, data: &'a [u8]) -> Option<(&'a [u8], &'a [u8])> {
        let (source, destination, len) = match (self.parts & HAS_ADDRESSES != 0, self.kind()) {
            (false, _) | (_, Kind::Other) => return None,
            (_, Kind::Ipv4) => (12, 16, 4),
            (_, Kind::Ipv6) => (8, 24, 16),
            (_, Kind::Arp) => (14, 24, 4),
        };
        let network = data.get(self.network_offset as usize..)?;
        Some((network.get(source..source + len)?, network.get(destination..destination + len)?))
    }

    #[inline]
    fn partial_if(&mut self, odd: bool) {
        if odd {
            self.word |= PARTIAL;
        }
    }

    /// The short way for what most packets are; the other way gives the same result. `None`: it isn't such a
    /// packet.
    #[inline(always)]
    pub(crate) fn plain(data: &[u8]) -> Option<Headers> {
        match data.first_chunk::<PLAIN4_BYTES>() {
            Some(start) if le32(start, 12) & 0xff_ffff == PLAIN4_START => Headers::plain_ipv4(start),
            Some(start) if le32(start, 12) & 0xf0_ffff == PLAIN6_START => {
                Headers::plain_ipv6(data.first_chunk()?, start[20])
            }
            _ => None,
        }
    }

    #[inline(always)]
    fn plain_ipv4(start: &[u8; PLAIN4_BYTES]) -> Option<Headers> {
        let middle = le32(start, 16) as u64 | (le32(start, 20) as u64) << 32; // one load
        let protocol = (middle >> 56) as u8;
        (middle & FRAGMENT_BITS == 0 && has_ports(protocol)).then(|| Headers {
            addresses: le32(start, 26) as u64 | (le32(start, 30) as u64) << 32,
            ports: port_pair(le32(start, 34)),
            word: protocol as u32 | (Kind::Ipv4 as u32) << KIND_SHIFT,
            ..Headers::PLAIN
        })
    }

    #[inline(always)]
    fn plain_ipv6(start: &[u8; PLAIN6_BYTES], protocol: u8) -> Option<Headers> {
        has_ports(protocol).then(|| Headers {
            addresses: folded(&start[22..38], &start[38..54]),
            ports: port_pair(le32(start, 54)),
            word: protocol as u32 | (Kind::Ipv6 as u32) << KIND_SHIFT,
            ..Headers::PLAIN
        })
    }

    /// What plain packets have in common.
    const PLAIN: Headers = Headers {
        addresses: 0,
        ports: 0,
        word: 0,
        network_offset: 14,
        vlan: 0,
        parts: HAS_ETHERNET | HAS_ADDRESSES | HAS_PORTS,
    };

    /// The headers of a plain packet, from what [`Headers::key_parts`] gave of it: that is all there is.
    #[inline]
    pub(crate) fn of_plain((addresses, ports, word): (u64, u32, u32)) -> Headers {
        Headers { addresses, ports, word, ..Headers::PLAIN }
    }

    fn ethernet_from(&mut self, data: &[u8]) {
        if data.len() >= 12 {
            self.parts |= HAS_ETHERNET;
        }
        match be16(data, 12) {
            Some(ethertype) => self.tagged(data, ethertype, 14),
            None => self.word |= PARTIAL,
        }
    }

    /// Linux cooked capture: the protocol stands at `protocol_at`, the network layer at `network_at`.
    fn cooked(&mut self, data: &[u8], protocol_at: usize, network_at: usize) {
        match be16(data, protocol_at) {
            Some(ethertype) if data.len() >= network_at => self.tagged(data, ethertype, network_at),
            _ => self.word |= PARTIAL,
        }
    }

    /// Steps over VLAN tags, which begin at `at` - 2 with their type.
    #[inline]
    fn tagged(&mut self, data: &[u8], mut ethertype: u16, mut at: usize) {
        let mut tags = 0;
        while matches!(ethertype, 0x8100 | 0x88a8 | 0x9100) {
            if tags == 0 {
                self.vlan = (be16(data, at).unwrap_or(0) as u32 & 0x0fff) << 16;
                self.word |= VLAN;
            }
            tags = (tags + 1).min(0xffff);
            self.vlan = self.vlan & 0xffff_0000 | tags;
            match be16(data, at + 2) {
                Some(inner) => ethertype = inner,
                None => {
                    self.word |= PARTIAL;
                    return;
                }
            }
            at += 4;
        }
        self.partial_if(tags > 2);
        match ethertype {
            0x0800 => self.ipv4(data, at),
            0x86dd => self.ipv6(data, at),
            0x0806 | 0x8035 => self.arp(data, at),
            // MPLS and PPPoE sessions carry IP that filters can test.
            0x8847 | 0x8848 | 0x8864 => self.word |= PARTIAL,
            _ => {}
        }
    }

    fn raw_ip(&mut self, data: &[u8], at: usize) {
        match data.get(at).map(|first| first >> 4) {
            Some(4) => self.ipv4(data, at),
            Some(6) => self.ipv6(data, at),
            _ => self.word |= PARTIAL,
        }
    }

    /// The address family may stand in either byte order, and its number for IPv6 differs between systems.
    fn loopback(&mut self, data: &[u8]) {
        let Some(word) = data.get(..4) else {
            self.word |= PARTIAL;
            return;
        };
        let family = match word {
            [0, 0, 0, family] | [family, 0, 0, 0] => *family,
            _ => 0,
        };
        match family {
            2 => self.ipv4(data, 4),
            10 | 24 | 28 | 30 => {
                self.word |= PARTIAL; // which number means IPv6 depends on the system
                self.ipv6(data, 4);
            }
            _ => self.word |= PARTIAL,
        }
    }

    /// PPP with address and control (`ff 03`) in front of the protocol.
    fn ppp(&mut self, data: &[u8]) {
        self.partial_if(data.get(..2) != Some(&[0xff, 0x03]));
        match be16(data, 2) {
            Some(0x0021) => self.ipv4(data, 4),
            Some(0x0057) => self.ipv6(data, 4),
            _ => self.word |= PARTIAL,
        }
    }

    /// Notes the addresses: the exclusive or of the 4-byte words of each.
    #[inline]
    fn addresses_at(&mut self, source: &[u8], destination: &[u8]) {
        self.parts |= HAS_ADDRESSES;
        self.addresses = folded(source, destination);
    }

    fn ipv4(&mut self, data: &[u8], at: usize) {
        self.word |= (Kind::Ipv4 as u32) << KIND_SHIFT;
        self.network_offset = at as u32;
        let Some(ip) = data.get(at..at + 20) else {
            self.word |= PARTIAL;
            return;
        };
        self.addresses_at(&ip[12..16], &ip[16..20]);
        self.partial_if(ip[0] >> 4 != 4 || ip[0] & 15 < 5);
        self.word |= ip[9] as u32;
        let fragment = u16::from_be_bytes([ip[6], ip[7]]);
        if fragment & 0x3fff != 0 {
            self.word |= FRAGMENT;
        }
        if fragment & 0x1fff == 0 {
            self.transport(data, at + (ip[0] & 15) as usize * 4);
        } else {
            self.partial_if(is_tunnel(self.protocol()));
        }
    }

    fn ipv6(&mut self, data: &[u8], at: usize) {
        const EXTENSIONS_MAX: usize = 8;
        self.word |= (Kind::Ipv6 as u32) << KIND_SHIFT;
        self.network_offset = at as u32;
        let Some(ip) = data.get(at..at + 40) else {
            self.word |= PARTIAL;
            return;
        };
        self.addresses_at(&ip[8..24], &ip[24..40]);
        self.partial_if(ip[0] >> 4 != 6);
        self.word |= ip[6] as u32;
        let mut next_at = at + 40;
        for _ in 0..EXTENSIONS_MAX {
            // hop-by-hop, routing, fragment, authentication, destination options, mobility, HIP, shim6
            if !matches!(self.protocol(), 0 | 43 | 44 | 51 | 60 | 135 | 139 | 140) {
                self.transport(data, next_at);
                return;
            }
            self.word |= PARTIAL;
            let Some(extension) = data.get(next_at..next_at + 8) else { return };
            let units = extension[1] as usize;
            let len = match self.protocol() {
                44 => {
                    let offset = u16::from_be_bytes([extension[2], extension[3]]);
                    if offset & 0xfff9 != 0 {
                        self.word |= FRAGMENT;
                    }
                    if offset & 0xfff8 != 0 {
                        self.word = self.word & !0xff | extension[0] as u32;
                        return;
                    }
                    8
                }
                51 => (units + 2) * 4,
                _ => (units + 1) * 8,
            };
            self.word = self.word & !0xff | extension[0] as u32;
            next_at += len;
        }
    }

    #[inline]
    fn transport(&mut self, data: &[u8], at: usize) {
        match data.get(at..at + 4) {
            _ if !has_ports(self.protocol()) => self.partial_if(is_tunnel(self.protocol())),
            Some(ports) => {
                self.ports = port_pair(u32::from_le_bytes([ports[0], ports[1], ports[2], ports[3]]));
                self.parts |= HAS_PORTS;
            }
            None => self.word |= PARTIAL,
        }
    }

    fn arp(&mut self, data: &[u8], at: usize) {
        self.word |= (Kind::Arp as u32) << KIND_SHIFT;
        self.network_offset = at as u32;
        match data.get(at..at + 28) {
            Some(arp) => self.addresses_at(&arp[14..18], &arp[24..28]),
            None => self.word |= PARTIAL,
        }
    }
}

/// Folds an address to 32 bits: the exclusive or of its 4-byte words.
#[inline]
pub(crate) fn fold(address: &[u8]) -> u32 {
    let words = address.chunks_exact(4).map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]]));
    words.fold(0, |folded, word| folded ^ word)
}

/// Both addresses, folded.
#[inline]
fn folded(source: &[u8], destination: &[u8]) -> u64 {
    fold(source) as u64 | (fold(destination) as u64) << 32
}

/// Protocols that carry packets of their own: IP in IP, IPv6, GRE, EtherIP, L2TP, MPLS.
fn is_tunnel(protocol: u8) -> bool {
    matches!(protocol, 4 | 41 | 47 | 97 | 115 | 137)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::KeyEntry;
    use proptest::prelude::*;

    fn udp4() -> Vec<u8> {
        let mut frame = vec![2, 2, 2, 2, 2, 2, 4, 4, 4, 4, 4, 4, 8, 0];
        frame.extend([0x45, 0, 0, 32, 0, 1, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        frame.extend([0x03, 0xe8, 0xea, 0x60, 0, 12, 0, 0, 1, 2, 3, 4]);
        frame
    }

    fn udp6() -> Vec<u8> {
        let mut frame = vec![2, 2, 2, 2, 2, 2, 4, 4, 4, 4, 4, 4, 0x86, 0xdd, 0x60, 0, 0, 0, 0, 12, 17, 64];
        frame.extend((1..=32).map(|byte| byte * 7));
        frame.extend([0x03, 0xe8, 0xea, 0x60, 0, 12, 0, 0, 1, 2, 3, 4]);
        frame
    }

    #[test]
    fn a_udp_packet_yields_addresses_and_ports() {
        let frame = udp4();
        let headers = Headers::parse(LinkType::ETHERNET, &frame);
        assert_eq!(headers.kind(), Kind::Ipv4);
        assert_eq!(headers.ports(), Some((1000, 60000)));
        assert_eq!(headers.address_bytes(&frame), Some((&[10, 0, 0, 1][..], &[10, 0, 0, 2][..])));
        assert!(!headers.partial() && !headers.fragment() && headers.vlan_tags() == 0);
    }

    #[test]
    fn tags_are_stepped_over_and_counted() {
        let mut frame = udp4();
        frame.splice(12..12, [0x88, 0xa8, 0, 7, 0x81, 0, 0, 9]);
        let headers = Headers::parse(LinkType::ETHERNET, &frame);
        assert_eq!((headers.vlan_tags(), headers.vlan_id(), headers.ports()), (2, 7, Some((1000, 60000))));
    }

    #[test]
    fn every_cut_of_a_packet_is_partial_until_its_ports_are_there() {
        let frame = udp4();
        for len in 0..frame.len() {
            let headers = Headers::parse(LinkType::ETHERNET, &frame[..len]);
            assert_eq!(headers.partial(), len < 38, "{len}");
        }
    }

    #[test]
    fn a_later_fragment_has_no_ports() {
        let mut frame = udp4();
        frame[21] = 5;
        let headers = Headers::parse(LinkType::ETHERNET, &frame);
        assert!(headers.fragment() && headers.ports().is_none());
    }

    #[test]
    fn all_ip_link_types_find_the_same_ports() {
        let ip = udp4()[14..].to_vec();
        let check = |link: LinkType, head: &[u8]| {
            let packet = [head, &ip].concat();
            assert_eq!(Headers::parse(link, &packet).ports(), Some((1000, 60000)), "{}", link.name());
        };
        check(LinkType::RAW, &[]);
        check(LinkType::IPV4, &[]);
        check(LinkType::LINUX_SLL, &[0, 0, 0, 1, 0, 6, 1, 2, 3, 4, 5, 6, 0, 0, 8, 0]);
        check(LinkType::LINUX_SLL2, &[8, 0, 0, 0, 0, 0, 0, 1, 0, 1, 0, 6, 1, 2, 3, 4, 5, 6, 0, 0]);
        check(LinkType::NULL, &[2, 0, 0, 0]);
        check(LinkType::LOOP, &[0, 0, 0, 2]);
        check(LinkType::PPP, &[0xff, 3, 0, 0x21]);
    }

    proptest! {
        #[test]
        fn etherparse_agrees_on_what_it_understands(payload in proptest::collection::vec(any::<u8>(), 0..40),
            v6 in any::<bool>(), tcp in any::<bool>(), tags in 0usize..3, src in any::<u16>(), dst in any::<u16>()) {
            use etherparse::*;
            let ethernet = PacketBuilder::ethernet2([1; 6], [2; 6]);
            let id = |n: u16| VlanId::try_new(n).unwrap();
            let mut frame = Vec::new();
            macro_rules! build { ($b:expr) => {{
                let ip = if v6 { $b.ipv6([3; 16], [4; 16], 9) } else { $b.ipv4([5; 4], [6; 4], 9) };
                if tcp { ip.tcp(src, dst, 1, 2).write(&mut frame, &payload).unwrap() }
                else { ip.udp(src, dst).write(&mut frame, &payload).unwrap() }
            }}}
            match tags { 0 => build!(ethernet), 1 => build!(ethernet.single_vlan(id(7))), _ => build!(ethernet.double_vlan(id(7), id(8))) }
            let headers = Headers::parse(LinkType::ETHERNET, &frame);
            prop_assert_eq!(headers.ports(), Some((src, dst)));
            prop_assert_eq!(headers.vlan_tags() as usize, tags);
            prop_assert_eq!(headers.protocol(), if tcp { 6 } else { 17 });
            prop_assert_eq!(headers.kind(), if v6 { Kind::Ipv6 } else { Kind::Ipv4 });
            prop_assert!(!headers.partial());
        }

        #[test]
        fn the_short_way_and_the_long_one_give_the_same(v6 in any::<bool>(), at in 12usize..24, byte in any::<u8>(),
            len in 0usize..70, protocol in prop_oneof![Just(6u8), Just(17u8), Just(132u8), any::<u8>()]) {
            let mut frame = if v6 { udp6() } else { udp4() };
            frame[if v6 { 20 } else { 23 }] = protocol;
            frame[at] = byte;
            frame.resize(70, byte);
            let data = &frame[..len];
            prop_assert_eq!(Headers::parse(LinkType::ETHERNET, data), Headers::read(LinkType::ETHERNET, data));
        }

        #[test]
        fn the_key_has_the_addresses_of_the_packet(data in proptest::collection::vec(any::<u8>(), 0..80),
            start in prop_oneof![Just(vec![]), Just(vec![8, 0, 0x45]), Just(vec![0x86, 0xdd, 0x60]), Just(vec![8, 6])]) {
            let data = [&[0; 12][..], &start, &data].concat();
            let headers = Headers::parse(LinkType::ETHERNET, &data);
            let key = KeyEntry::new(&headers);
            let folded = headers.address_bytes(&data).map(|(source, destination)| (crate::key::fold(source), crate::key::fold(destination)));
            prop_assert_eq!((key.source, key.destination), folded.unwrap_or_default());
            prop_assert_eq!((key.source_port, key.destination_port), headers.ports().unwrap_or_default());
        }

        #[test]
        fn no_bytes_make_it_fail(data in proptest::collection::vec(any::<u8>(), 0..200), link in 0u16..300) {
            let headers = Headers::parse(LinkType(link), &data);
            let _ = headers.address_bytes(&data);
        }
    }
}
