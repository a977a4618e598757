//! One parse per packet: where the layers begin, addresses, ports and tags, for all link types that carry IP.
//!
//! The parse serves as a *screen* for filters with libpcap's meaning, so it reads what libpcap's programs read, at the
//! same offsets, and sets [`Headers::partial`] wherever a filter could see more than the parse does: tunnels, IPv6
//! extension headers, headers cut short, headers with odd lengths, link types it doesn't know.

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
/// All fields are 32-bit words, read and written whole: a load that spans several narrower stores waits until these have
/// reached the cache, and with them all stores to the ring before them (measured: a fifth of a worker's time).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Headers {
    /// Protocol, kind, vlan, fragment and partial, as the key entry's word has them.
    word: u32,
    network_offset: u32,
    /// Source port in the low half, destination port in the high half; 0 where there are none.
    ports: u32,
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
    pub fn vlan_id(&self) -> u16 {
        (self.vlan >> 16) as u16
    }

    /// Ethernet addresses stand at offset 0 (destination) and 6 (source).
    pub fn ethernet(&self) -> bool {
        self.parts & HAS_ETHERNET != 0
    }

    /// Source and destination address are captured; see [`Headers::address_bytes`].
    pub fn addresses(&self) -> bool {
        self.parts & HAS_ADDRESSES != 0
    }

    /// Where the network header begins; meaningful unless the kind is `Other`.
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

    /// Source port in the low half, destination port in the high half; 0 where there are none.
    #[inline]
    pub(crate) fn port_pair(&self) -> u32 {
        self.ports
    }

    /// The key entry's word, without the block's offset.
    #[inline]
    pub(crate) fn word(&self) -> u32 {
        self.word
    }

    /// More fragments follow, or this is one that is not the first.
    pub fn fragment(&self) -> bool {
        self.word & FRAGMENT != 0
    }

    /// A filter may see more than this parse: tunnels, extension headers, cut or odd headers, unknown link types.
    pub fn partial(&self) -> bool {
        self.word & PARTIAL != 0
    }
}

const TCP: u8 = 6;
const UDP: u8 = 17;
const SCTP: u8 = 132;

fn be16(data: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(data.get(at..at + 2)?.try_into().ok()?))
}

impl Headers {
    /// Parses the headers of a packet of link type `link_type`. Never fails: what can't be read is `partial`.
    #[inline]
    pub fn parse(link_type: LinkType, data: &[u8]) -> Headers {
        let mut headers = Headers::default();
        headers.read(link_type, data);
        headers
    }

    /// Parses in place; `self` must be [`Headers::default`]. For hot paths: copying a struct whose fields were just written
    /// one by one stalls until those writes, and all writes to the ring before them, have reached the cache (measured: a
    /// fifth of a worker's time).
    #[inline]
    pub fn read(&mut self, link_type: LinkType, data: &[u8]) {
        match link_type {
            LinkType::ETHERNET => self.read_ethernet(data),
            LinkType::RAW | LinkType::IPV4 | LinkType::IPV6 => self.raw_ip(data, 0),
            LinkType::LINUX_SLL => self.cooked(data, 14, 16),
            LinkType::LINUX_SLL2 => self.cooked(data, 0, 20),
            LinkType::NULL | LinkType::LOOP => self.loopback(data),
            LinkType::PPP | LinkType::PPP_HDLC => self.ppp(data),
            _ => self.word |= PARTIAL,
        }
    }

    /// Source and destination address: 4 bytes each for IPv4 and ARP, 16 for IPv6. `data` is the packet that was parsed.
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

    #[inline]
    fn read_ethernet(&mut self, data: &[u8]) {
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
            // MPLS and PPPoE sessions carry IP that filters can ask for.
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

    #[inline]
    fn ipv4(&mut self, data: &[u8], at: usize) {
        self.word |= (Kind::Ipv4 as u32) << KIND_SHIFT;
        self.network_offset = at as u32;
        let Some(ip) = data.get(at..at + 20) else {
            self.word |= PARTIAL;
            return;
        };
        self.parts |= HAS_ADDRESSES;
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
        self.parts |= HAS_ADDRESSES;
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
        match self.protocol() {
            TCP | UDP | SCTP => match data.get(at..at + 4) {
                Some(p) => {
                    let source = u16::from_be_bytes([p[0], p[1]]) as u32;
                    let destination = u16::from_be_bytes([p[2], p[3]]) as u32;
                    self.ports = source | destination << 16;
                    self.parts |= HAS_PORTS;
                }
                None => self.word |= PARTIAL,
            },
            protocol => self.partial_if(is_tunnel(protocol)),
        }
    }

    fn arp(&mut self, data: &[u8], at: usize) {
        self.word |= (Kind::Arp as u32) << KIND_SHIFT;
        self.network_offset = at as u32;
        match data.get(at..at + 28) {
            Some(_) => self.parts |= HAS_ADDRESSES,
            None => self.word |= PARTIAL,
        }
    }
}

/// Protocols that carry packets of their own: IP in IP, IPv6, GRE, EtherIP, L2TP, MPLS.
fn is_tunnel(protocol: u8) -> bool {
    matches!(protocol, 4 | 41 | 47 | 97 | 115 | 137)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn udp4() -> Vec<u8> {
        let mut frame = vec![2, 2, 2, 2, 2, 2, 4, 4, 4, 4, 4, 4, 8, 0];
        frame.extend([0x45, 0, 0, 32, 0, 1, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
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
        fn no_bytes_make_it_fail(data in proptest::collection::vec(any::<u8>(), 0..200), link in 0u16..300) {
            let headers = Headers::parse(LinkType(link), &data);
            let _ = headers.address_bytes(&data);
        }
    }
}
