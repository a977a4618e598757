//! Packets of every kind, to try a script on: what `wirescope script check` runs it over.

use crate::record::Lent;
use scope_packet::LinkType;

/// A packet and what it is.
#[derive(Clone, Debug)]
pub struct Specimen {
    /// In words.
    pub name: &'static str,
    /// Link type.
    pub link_type: LinkType,
    /// Its bytes, as captured.
    pub data: Vec<u8>,
    /// Bytes on the wire.
    pub original_len: u32,
}

impl Specimen {
    /// Lends it, as if it had come at `time_ns`.
    pub fn lend(&self, time_ns: i64) -> Lent<'_> {
        Lent {
            data: &self.data,
            original_len: self.original_len,
            time_ns,
            interface: 0,
            flags: 0,
            link_type: self.link_type,
        }
    }
}

const MACS: [u8; 12] = [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
const A4: [u8; 4] = [10, 0, 0, 1];
const B4: [u8; 4] = [10, 0, 0, 2];
const A6: [u8; 16] = [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
const B6: [u8; 16] = [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2];
const TCP: u8 = 6;
const UDP: u8 = 17;
/// What the payload of most of them begins with.
const PAYLOAD: &[u8] = b"EXAMPLE payload";

fn ethernet(ethertype: u16, rest: &[u8]) -> Vec<u8> {
    [&MACS[..], &ethertype.to_be_bytes(), rest].concat()
}

/// A tag in front of what an Ethernet frame carries: type, identifier.
fn tagged(mut frame: Vec<u8>, tags: &[(u16, u16)]) -> Vec<u8> {
    let bytes: Vec<u8> =
        tags.iter().flat_map(|(kind, id)| [kind.to_be_bytes(), id.to_be_bytes()]).flatten().collect();
    frame.splice(12..12, bytes);
    frame
}

fn ipv4(protocol: u8, options: &[u8], fragment: u16, rest: &[u8]) -> Vec<u8> {
    let header_bytes = 20 + options.len();
    let total = (header_bytes + rest.len()) as u16;
    let mut packet = vec![0x40 | (header_bytes / 4) as u8, 0];
    packet.extend(total.to_be_bytes());
    packet.extend([0, 7]);
    packet.extend(fragment.to_be_bytes());
    packet.extend([64, protocol, 0, 0]);
    [&packet[..], &A4, &B4, options, rest].concat()
}

fn ipv6(next: u8, rest: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x60, 0, 0, 0];
    packet.extend((rest.len() as u16).to_be_bytes());
    packet.extend([next, 64]);
    [&packet[..], &A6, &B6, rest].concat()
}

fn udp(from: u16, to: u16, payload: &[u8]) -> Vec<u8> {
    let len = (8 + payload.len()) as u16;
    [&from.to_be_bytes()[..], &to.to_be_bytes(), &len.to_be_bytes(), &[0, 0], payload].concat()
}

fn tcp(flags: u8, options: &[u8], payload: &[u8]) -> Vec<u8> {
    let offset = ((20 + options.len()) / 4) as u8;
    let mut header = vec![0x9c, 0x40, 0, 80, 0, 0, 0, 1, 0, 0, 0, 2];
    header.extend([offset << 4, flags, 0x20, 0, 0, 0, 0, 0]);
    [&header[..], options, payload].concat()
}

/// A query for www.example.org, or its answer.
fn dns(response: bool) -> Vec<u8> {
    let flags: u16 = if response { 0x8180 } else { 0x0100 };
    let mut message = vec![0x12, 0x34];
    message.extend(flags.to_be_bytes());
    message.extend([0, 1, 0, u8::from(response) * 2, 0, 0, 0, 0]);
    message.extend(b"\x03www\x07example\x03org\x00\x00\x01\x00\x01");
    if response {
        // www.example.org is an alias of example.org (in the name of the question, behind www).
        message.extend([0xc0, 12, 0, 5, 0, 1, 0, 0, 0, 60, 0, 2, 0xc0, 16]);
        message.extend([0xc0, 16, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 192, 0, 2, 1]);
    }
    message
}

/// Packets of every kind.
pub fn builtin_packets() -> Vec<Specimen> {
    let whole = |name, data: Vec<u8>| Specimen {
        name,
        link_type: LinkType::ETHERNET,
        original_len: data.len() as u32,
        data,
    };
    let on = |link_type, specimen: Specimen| Specimen { link_type, ..specimen };
    let truncated = |name, to: usize, data: Vec<u8>| Specimen {
        name,
        link_type: LinkType::ETHERNET,
        original_len: data.len() as u32,
        data: data[..to].to_vec(),
    };
    let udp4 = || ethernet(0x0800, &ipv4(UDP, &[], 0, &udp(1000, 60000, PAYLOAD)));
    let tcp4 = |flags, payload: &[u8]| ethernet(0x0800, &ipv4(TCP, &[], 0, &tcp(flags, &[], payload)));
    let udp6 = || ethernet(0x86dd, &ipv6(UDP, &udp(1000, 60000, PAYLOAD)));
    let options = [1, 1, 1, 1, 0x94, 4, 0, 0];
    let mss = [2, 4, 5, 0xb4];
    let mut padded = ethernet(0x0800, &ipv4(UDP, &[], 0, &udp(1000, 60000, b"E")));
    padded.resize(60, 0);
    let arp = [&[0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 1][..], &A4, &[0; 6], &B4].concat();
    let hop_by_hop = [&[UDP, 0, 5, 2, 0, 0, 1, 0][..], &udp(1000, 60000, PAYLOAD)].concat();
    let fragment6 = [&[UDP, 0, 0, 8, 0, 0, 0, 1][..], PAYLOAD].concat();
    let cooked = [&[0, 0, 0, 1, 0, 6, 2, 0, 0, 0, 0, 1, 0, 0, 8, 0][..], &udp4()[14..]].concat();
    let icmp = [&[8, 0, 0, 0, 0, 1, 0, 1][..], PAYLOAD].concat();
    let icmp6 = [&[128, 0, 0, 0, 0, 1, 0, 1][..], PAYLOAD].concat();
    let mut too_long = udp4();
    too_long[16..18].copy_from_slice(&60000u16.to_be_bytes());
    vec![
        whole("UDP over IPv4", udp4()),
        whole("UDP over IPv4 with padding behind it", padded),
        whole("UDP over IPv4 with a VLAN tag", tagged(udp4(), &[(0x8100, 7)])),
        whole("UDP over IPv4 with two VLAN tags (QinQ)", tagged(udp4(), &[(0x88a8, 7), (0x8100, 9)])),
        whole(
            "UDP over IPv4 with options",
            ethernet(0x0800, &ipv4(UDP, &options, 0, &udp(1000, 60000, PAYLOAD))),
        ),
        whole(
            "UDP over IPv4, first fragment",
            ethernet(0x0800, &ipv4(UDP, &[], 0x2000, &udp(1000, 60000, PAYLOAD))),
        ),
        whole("UDP over IPv4, last fragment", ethernet(0x0800, &ipv4(UDP, &[], 0x0010, PAYLOAD))),
        whole("UDP over IPv4 that claims more bytes than there are", too_long),
        whole("UDP over IPv6", udp6()),
        whole("UDP over IPv6 with a hop-by-hop header", ethernet(0x86dd, &ipv6(0, &hop_by_hop))),
        whole("UDP over IPv6, last fragment", ethernet(0x86dd, &ipv6(44, &fragment6))),
        whole("TCP over IPv4, SYN with options", ethernet(0x0800, &ipv4(TCP, &[], 0, &tcp(2, &mss, &[])))),
        whole("TCP over IPv4, data", tcp4(0x18, PAYLOAD)),
        whole("TCP over IPv4, RST", tcp4(4, &[])),
        whole(
            "TCP over IPv6, ACK with a VLAN tag",
            tagged(ethernet(0x86dd, &ipv6(TCP, &tcp(16, &[], &[]))), &[(0x8100, 7)]),
        ),
        whole("ICMP echo", ethernet(0x0800, &ipv4(1, &[], 0, &icmp))),
        whole("ICMPv6 echo", ethernet(0x86dd, &ipv6(58, &icmp6))),
        whole("SCTP over IPv4", ethernet(0x0800, &ipv4(132, &[], 0, &[0, 9, 0, 10, 0, 0, 0, 0, 0, 0, 0, 0]))),
        whole("GRE over IPv4", ethernet(0x0800, &ipv4(47, &[], 0, &[0, 0, 8, 0, 0x45]))),
        whole("ARP request", ethernet(0x0806, &arp)),
        whole("LLDP", ethernet(0x88cc, &[2, 7, 4, 2, 0, 0, 0, 0, 1, 0, 0])),
        whole("IEEE 802.3 with a length", ethernet(3, &[0x42, 0x42, 3])),
        whole("DNS query", ethernet(0x0800, &ipv4(UDP, &[], 0, &udp(5353, 53, &dns(false))))),
        whole("DNS response", ethernet(0x0800, &ipv4(UDP, &[], 0, &udp(53, 5353, &dns(true))))),
        whole("DNS response over IPv6", ethernet(0x86dd, &ipv6(UDP, &udp(53, 5353, &dns(true))))),
        truncated(
            "DNS response, truncated",
            70,
            ethernet(0x0800, &ipv4(UDP, &[], 0, &udp(53, 5353, &dns(true)))),
        ),
        truncated("UDP over IPv4, truncated in its payload", 46, udp4()),
        truncated("UDP over IPv4, truncated in its UDP header", 38, udp4()),
        truncated("UDP over IPv4, truncated in its IP header", 30, udp4()),
        truncated("TCP over IPv4, truncated in its TCP header", 44, tcp4(2, &[])),
        truncated("UDP over IPv6, truncated in its IP header", 40, udp6()),
        truncated("VLAN tag, truncated", 16, tagged(udp4(), &[(0x8100, 7)])),
        truncated("Ethernet, truncated", 9, udp4()),
        truncated("empty", 0, udp4()),
        on(LinkType::RAW, whole("UDP over IPv4 without Ethernet", udp4()[14..].to_vec())),
        on(LinkType::LINUX_SLL, whole("UDP over IPv4, cooked", cooked)),
        on(LinkType::NULL, whole("UDP over IPv4 of a loopback", [&[2, 0, 0, 0][..], &udp4()[14..]].concat())),
        on(LinkType(105), whole("a link type that isn't parsed", vec![0x88, 1, 2, 3])),
    ]
}
