//! One frame, layer by layer: link headers, VLAN tags, IPv4, IPv6, ARP, UDP, TCP, ICMP, fragments, extension
//! headers.
//!
//! Each function wraps the bytes of the layer above it, so a frame reads from the outside in:
//! `ethernet(&[Tag::q(7)], IPV4, &ipv4(a, b, UDP, &udp(..)))`. Checksums are right.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// EtherType of IPv4.
pub const IPV4: u16 = 0x0800;
/// EtherType of ARP.
pub const ARP: u16 = 0x0806;
/// EtherType of IPv6.
pub const IPV6: u16 = 0x86dd;
/// EtherType for local experiments: neither addresses nor ports.
pub const EXPERIMENT: u16 = 0x88b5;

/// IP protocol numbers.
pub const ICMP: u8 = 1;
/// Transmission control protocol.
pub const TCP: u8 = 6;
/// User datagram protocol.
pub const UDP: u8 = 17;
/// ICMP for IPv6.
pub const ICMPV6: u8 = 58;

/// One VLAN tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag {
    /// Type: 0x8100, 0x88a8 or 0x9100.
    pub kind: u16,
    /// VLAN identifier, 12 bits.
    pub id: u16,
}

impl Tag {
    /// An IEEE 802.1Q tag.
    pub fn q(id: u16) -> Tag {
        Tag { kind: 0x8100, id }
    }

    /// An IEEE 802.1ad service tag.
    pub fn ad(id: u16) -> Tag {
        Tag { kind: 0x88a8, id }
    }
}

/// The Ethernet address that a host with IP address `ip` has in generated traffic.
pub fn mac_of(ip: IpAddr) -> [u8; 6] {
    let last: [u8; 4] = match ip {
        IpAddr::V4(v4) => v4.octets(),
        IpAddr::V6(v6) => v6.octets()[12..16].try_into().expect("4 bytes"),
    };
    [2, u8::from(ip.is_ipv6()), last[0], last[1], last[2], last[3]]
}

/// An Ethernet frame with the given addresses and tags, outermost first.
pub fn ethernet_between(
    source: [u8; 6],
    destination: [u8; 6],
    tags: &[Tag],
    ethertype: u16,
    payload: &[u8],
) -> Vec<u8> {
    let mut out = [destination, source].concat();
    for tag in tags {
        out.extend(tag.kind.to_be_bytes());
        out.extend(tag.id.to_be_bytes());
    }
    out.extend(ethertype.to_be_bytes());
    out.extend(payload);
    out
}

/// An Ethernet frame with tags, outermost first; addresses are fixed.
pub fn ethernet(tags: &[Tag], ethertype: u16, payload: &[u8]) -> Vec<u8> {
    ethernet_between([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2], tags, ethertype, payload)
}

/// A packet of Linux cooked capture, version 1.
pub fn sll(ethertype: u16, payload: &[u8]) -> Vec<u8> {
    let mut out = vec![0, 0, 0, 1, 0, 6, 2, 0, 0, 0, 0, 1, 0, 0];
    out.extend(ethertype.to_be_bytes());
    out.extend(payload);
    out
}

fn sum(bytes: &[u8]) -> u32 {
    bytes.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0))).sum()
}

fn checksum(mut total: u32) -> [u8; 2] {
    while total > 0xffff {
        total = (total & 0xffff) + (total >> 16);
    }
    (!(total as u16)).to_be_bytes()
}

/// An IPv4 packet.
pub fn ipv4(source: Ipv4Addr, destination: Ipv4Addr, protocol: u8, payload: &[u8]) -> Vec<u8> {
    ipv4_fragment(source, destination, protocol, 0, 0, false, payload)
}

/// A fragment of an IPv4 packet; `offset_bytes` is a multiple of 8.
pub fn ipv4_fragment(
    source: Ipv4Addr,
    destination: Ipv4Addr,
    protocol: u8,
    identification: u16,
    offset_bytes: u16,
    more: bool,
    payload: &[u8],
) -> Vec<u8> {
    let mut out = vec![0x45, 0];
    out.extend((20 + payload.len() as u16).to_be_bytes());
    out.extend(identification.to_be_bytes());
    out.extend(((offset_bytes / 8) | (u16::from(more) << 13)).to_be_bytes());
    out.extend([64, protocol, 0, 0]);
    out.extend(source.octets());
    out.extend(destination.octets());
    let check = checksum(sum(&out));
    out[10..12].copy_from_slice(&check);
    out.extend(payload);
    out
}

/// An IPv6 packet whose payload begins with header `next`.
pub fn ipv6(source: Ipv6Addr, destination: Ipv6Addr, next: u8, payload: &[u8]) -> Vec<u8> {
    let mut out = vec![0x60, 0, 0, 0];
    out.extend((payload.len() as u16).to_be_bytes());
    out.extend([next, 64]);
    out.extend(source.octets());
    out.extend(destination.octets());
    out.extend(payload);
    out
}

/// An IPv6 extension header (hop-by-hop 0, routing 43, destination options 60) of 8 bytes in front of
/// `payload`.
pub fn ipv6_extension(next: u8, payload: &[u8]) -> Vec<u8> {
    [&[next, 0, 1, 4, 0, 0, 0, 0], payload].concat()
}

/// An IPv6 fragment header (44) in front of `payload`; `offset_bytes` is a multiple of 8.
pub fn ipv6_fragment(
    next: u8,
    identification: u32,
    offset_bytes: u16,
    more: bool,
    payload: &[u8],
) -> Vec<u8> {
    let mut out = vec![next, 0];
    out.extend((offset_bytes | u16::from(more)).to_be_bytes());
    out.extend(identification.to_be_bytes());
    out.extend(payload);
    out
}

/// An ARP request of `source` for `destination`.
pub fn arp(source: Ipv4Addr, destination: Ipv4Addr) -> Vec<u8> {
    let mut out = vec![0, 1, 8, 0, 6, 4, 0, 1];
    out.extend(mac_of(source.into()));
    out.extend(source.octets());
    out.extend([0; 6]);
    out.extend(destination.octets());
    out
}

/// A UDP datagram between two addresses, IP header included.
pub fn udp(source: SocketAddr, destination: SocketAddr, payload: &[u8]) -> Vec<u8> {
    let mut segment = [source.port().to_be_bytes(), destination.port().to_be_bytes()].concat();
    segment.extend((8 + payload.len() as u16).to_be_bytes());
    segment.extend([0, 0]);
    segment.extend(payload);
    over_ip(source.ip(), destination.ip(), UDP, segment, Some(6))
}

/// A TCP segment between two addresses, IP header included. `flags`: 2 SYN, 16 ACK, 24 PSH and ACK.
pub fn tcp(source: SocketAddr, destination: SocketAddr, sequence: u32, flags: u8, payload: &[u8]) -> Vec<u8> {
    let mut segment = [source.port().to_be_bytes(), destination.port().to_be_bytes()].concat();
    segment.extend(sequence.to_be_bytes());
    segment.extend(1u32.to_be_bytes());
    segment.extend([0x50, flags, 0xff, 0xff, 0, 0, 0, 0]);
    segment.extend(payload);
    over_ip(source.ip(), destination.ip(), TCP, segment, Some(16))
}

/// An echo request between two hosts, IP header included.
pub fn ping(source: IpAddr, destination: IpAddr, sequence: u16, payload: &[u8]) -> Vec<u8> {
    let kind = if source.is_ipv4() { 8 } else { 128 };
    let mut message = vec![kind, 0, 0, 0, 0, 1];
    message.extend(sequence.to_be_bytes());
    message.extend(payload);
    if source.is_ipv4() {
        let check = checksum(sum(&message));
        message[2..4].copy_from_slice(&check);
        return over_ip(source, destination, ICMP, message, None);
    }
    over_ip(source, destination, ICMPV6, message, Some(2))
}

/// Wraps a transport segment in IP; `checksum_at` is where its checksum over the pseudo header stands.
fn over_ip(
    source: IpAddr,
    destination: IpAddr,
    protocol: u8,
    mut segment: Vec<u8>,
    checksum_at: Option<usize>,
) -> Vec<u8> {
    let addresses = match (source, destination) {
        (IpAddr::V4(a), IpAddr::V4(b)) => [a.octets(), b.octets()].concat(),
        (IpAddr::V6(a), IpAddr::V6(b)) => [a.octets(), b.octets()].concat(),
        _ => panic!("{source} and {destination} are of two families"),
    };
    if let Some(at) = checksum_at {
        let total = sum(&addresses) + u32::from(protocol) + segment.len() as u32 + sum(&segment);
        segment[at..at + 2].copy_from_slice(&checksum(total));
    }
    match (source, destination) {
        (IpAddr::V4(a), IpAddr::V4(b)) => ipv4(a, b, protocol, &segment),
        (IpAddr::V6(a), IpAddr::V6(b)) => ipv6(a, b, protocol, &segment),
        _ => unreachable!("families were compared above"),
    }
}

/// Puts an IP packet on a link of type `link_type` (Ethernet, raw IP or Linux cooked); tags count on Ethernet
/// only.
pub fn on_link(link_type: u16, tags: &[Tag], ip: &[u8]) -> Vec<u8> {
    let v6 = ip[0] >> 4 == 6;
    let ethertype = if v6 { IPV6 } else { IPV4 };
    match link_type {
        super::RAW => ip.to_vec(),
        super::LINUX_SLL => sll(ethertype, ip),
        _ => {
            let at = if v6 { 8 } else { 12 };
            let len = if v6 { 16 } else { 4 };
            let host = |at: usize| -> IpAddr {
                let bytes = &ip[at..at + len];
                match <[u8; 16]>::try_from(bytes) {
                    Ok(v6) => v6.into(),
                    Err(_) => <[u8; 4]>::try_from(bytes).expect("4 bytes").into(),
                }
            };
            ethernet_between(mac_of(host(at)), mac_of(host(at + len)), tags, ethertype, ip)
        }
    }
}

/// How many VLAN tags an Ethernet frame begins with, as far as their types are captured.
pub fn tag_count(frame: &[u8]) -> usize {
    let mut at = 12;
    while let Some(kind) = frame.get(at..at + 2) {
        if !matches!(u16::from_be_bytes([kind[0], kind[1]]), 0x8100 | 0x88a8 | 0x9100) {
            break;
        }
        at += 4;
    }
    (at - 12) / 4
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checksum_over_a_checked_header_is_zero() {
        let packet = udp("10.0.0.1:1000".parse().unwrap(), "10.0.0.2:60000".parse().unwrap(), b"odd");
        assert_eq!(checksum(sum(&packet[..20])), [0, 0]);
        let pseudo = sum(&packet[12..20]) + 17 + 11 + sum(&packet[20..]);
        assert_eq!(checksum(pseudo), [0, 0]);
    }

    #[test]
    fn tags_are_counted_from_the_outside() {
        let ip = ping("10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap(), 1, b"x");
        let check =
            |tags: &[Tag]| assert_eq!(tag_count(&on_link(super::super::ETHERNET, tags, &ip)), tags.len());
        check(&[]);
        check(&[Tag::q(5)]);
        check(&[Tag::ad(5), Tag::q(9)]);
        assert_eq!(tag_count(&[0; 13]), 0);
    }
}
