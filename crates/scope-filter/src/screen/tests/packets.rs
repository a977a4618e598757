//! Packets that make screening hard: cut, changed, in tunnels, behind labels, of every link type.

use scope_packet::{Headers, Kind, LinkType};

use crate::specimens::{LINKS, Random, damaged_packet, packet, tagged_packet};

/// A link type and a packet of it.
pub fn any_packet(random: &mut Random, link: LinkType) -> Vec<u8> {
    let framed = |link| if link == LinkType::PPP_HDLC { LinkType::PPP } else { link };
    let link = framed(link);
    match random.below(8) {
        0..=2 => packet(random, link),
        3 => {
            let tags = random.below(3) as usize;
            tagged_packet(random, link, tags)
        }
        4 | 5 => damaged_packet(random, link),
        6 => odd_header(random, link),
        _ => tunnelled(random, link),
    }
}

/// One of the link types that packets are made of.
pub fn any_link(random: &mut Random) -> LinkType {
    if random.one_in(12) { LinkType::PPP_HDLC } else { random.pick(&LINKS) }
}

/// A packet with a byte of its link, network or transport header changed, where filters look.
fn odd_header(random: &mut Random, link: LinkType) -> Vec<u8> {
    let mut bytes = packet(random, link);
    let network = Headers::parse(link, &bytes).network_offset() as usize;
    let at = network.saturating_sub(4) + random.below(30) as usize;
    if let Some(byte) = bytes.get_mut(at) {
        *byte = random.pick(&[0, 1, 4, 6, 17, 0x20, 0x41, 0x44, 0x46, 0x60, 0x81, 0x86, 0xff]);
    }
    bytes
}

/// A packet inside another: IP in IP, GRE, or behind MPLS labels and PPPoE.
fn tunnelled(random: &mut Random, link: LinkType) -> Vec<u8> {
    let mut outer = packet(random, link);
    let headers = Headers::parse(link, &outer);
    let network = headers.network_offset() as usize;
    let inner = packet(random, LinkType::RAW);
    if headers.kind() == Kind::Ipv4 && outer.len() >= network + 20 && random.one_in(2) {
        let (protocol, between): (u8, &[u8]) = random.pick(&[(4, &[]), (41, &[]), (47, &[0, 0, 8, 0])]);
        outer.truncate(network + 20);
        outer[network] = 0x45;
        outer[network + 9] = protocol;
        outer.extend(between);
    } else if link == LinkType::ETHERNET && outer.len() > 14 && headers.kind() != Kind::Other {
        let (kind, between): (u16, &[u8]) = random.pick(&[(0x8847, &[0, 1, 1, 64]), (0x8864, &[0x11, 0, 0, 1, 0, 40, 0, 0x21])]);
        outer.truncate(network);
        outer[network - 2..].copy_from_slice(&kind.to_be_bytes());
        outer.extend(between);
    }
    outer.extend(inner);
    outer
}
