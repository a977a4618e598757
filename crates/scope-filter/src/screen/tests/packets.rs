//! Packets that make screening hard: truncated, changed, in tunnels, behind labels, of every link type; and
//! filters that read bytes.

use scope_packet::{Headers, Kind, LinkType};

use crate::specimens::{self, LINKS, Random, damaged_packet, packet, tagged_packet};

/// A filter of the grammar, or one that holds bytes which are fields of the entry, or nearly, against values
/// that occur.
pub fn any_filter(random: &mut Random) -> String {
    let depth = random.below(4) as u32;
    if random.one_in(2) {
        return specimens::filter(random, depth);
    }
    let (left, right) = (bytes_filter(random), specimens::filter(random, depth / 2));
    match random.below(5) {
        0 => left,
        1 => format!("not {left}"),
        2 => format!("{left} and ({right})"),
        3 => format!("({right}) and not {left}"),
        _ => format!("{left} or ({right})"),
    }
}

fn bytes_filter(random: &mut Random) -> String {
    let (place, values): (&str, &[u32]) = random.pick(&[
        ("ether[12:2]", &[0x800, 0x86dd, 0x806, 0x8035, 0x8100, 0x88a8]),
        ("ether[16:2]", &[0x800, 0x86dd, 0x806, 0x9100]),
        ("ip[0]", &[0x45, 0x47]),
        ("ip[6:2]", &[0, 0x4000, 0x2000, 0x2005, 9]),
        ("ip[9]", &[1, 6, 17, 132]),
        ("ip[12:4]", &[0x0a00_0001, 0x0a00_0002, 0xc0a8_0109]),
        ("ip[16:4]", &[0x0a00_0001, 0x0a00_0002, 0xffff_ffff]),
        ("ip[20:2]", &[53, 80, 1000]),
        ("ip6[6]", &[0, 6, 17, 44, 58]),
        ("ip6[8:4]", &[0xfe80_0000, 0x2001_0db8]),
        ("ip6[20:4]", &[1, 2]),
        ("ip6[36:4]", &[1, 2]),
        ("ip6[40:2]", &[53, 443, 60000, 0x8000]),
        ("ip6[42:2]", &[53, 443, 60000, 0]),
        ("arp[14:4]", &[0x0a00_0001, 0x0a00_0002]),
        ("arp[24:4]", &[0x0a00_0001, 0xc0a8_0109]),
        ("tcp[0:2]", &[53, 80, 1000]),
        ("udp[2:2]", &[53, 80, 1000]),
        ("icmp[0:2]", &[0, 0x300, 0x800]),
        ("icmp[2:2]", &[0, 1]),
    ]);
    let mask = random.pick(&[
        "",
        "",
        "",
        " & 0xff000000",
        " & 0xfff0",
        " & 0xf0",
        " & 0x1fff",
        " & 0x2000",
        " & 0xff",
    ]);
    let relation = random.pick(&["=", "=", "=", "!=", ">", "<", ">=", "<="]);
    format!("{place}{mask} {relation} {}", random.pick(values))
}

/// A packet of a link type.
pub fn any_packet(random: &mut Random, link: LinkType) -> Vec<u8> {
    let framed = |link| if link == LinkType::PPP_HDLC { LinkType::PPP } else { link };
    let link = framed(link);
    let mut bytes = made(random, link);
    let headers = Headers::parse(link, &bytes);
    let type_at = (headers.network_offset() as usize).wrapping_sub(2);
    if link == LinkType::ETHERNET && headers.kind() == Kind::Arp && random.one_in(2) {
        bytes[type_at..type_at + 2].copy_from_slice(&[0x80, 0x35]); // RARP
    }
    if matches!(link, LinkType::NULL | LinkType::LOOP) && bytes.len() >= 4 && random.one_in(2) {
        bytes[..4].reverse(); // captured by a host with the other byte order
    }
    bytes
}

fn made(random: &mut Random, link: LinkType) -> Vec<u8> {
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
        let (kind, between): (u16, &[u8]) =
            random.pick(&[(0x8847, &[0, 1, 1, 64]), (0x8864, &[0x11, 0, 0, 1, 0, 40, 0, 0x21])]);
        outer.truncate(network);
        outer[network - 2..].copy_from_slice(&kind.to_be_bytes());
        outer.extend(between);
    }
    outer.extend(inner);
    outer
}
