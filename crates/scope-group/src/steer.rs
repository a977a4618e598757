//! Steering: how packets are shared out among members, and the number that a packet falls to.
//!
//! ```text
//! flow           10.0.0.1:80 <> 10.0.0.2:4711 tcp    both directions; fragments by their addresses
//! ip             10.0.0.1 <> 10.0.0.2
//! hosts          10.0.0.1, and 10.0.0.2              to the owners of both
//! local:10.0.0.0/8                                   by the address inside; of two of them by the lower one
//! mac, vlan      both MAC addresses, the outermost tag
//! field:30/4, field:26+30/4                          bytes of the packet; of two fields both orders are one
//! round-robin, all
//! ```
//! What has no such field goes by its MAC addresses, and what has none of these, to one fixed number.

use scope_flow::local::Net;
use scope_packet::{Headers, KeyEntry, Kind, LinkType};
use scope_ring::Steering;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// Bytes of a field at most.
pub const FIELD_BYTES_MAX: u32 = 64;
/// Where a field begins at most, bytes from the begin of the packet.
pub const FIELD_AT_MAX: u32 = 65_535;
/// Bytes of a MAC address.
const MAC_BYTES: usize = 6;
/// Where the identifier of the outermost tag ends, in an Ethernet frame.
const TAG_END: usize = 2 * MAC_BYTES + 4;
/// Where all goes that has nothing to steer by.
const FIXED: u64 = 0;

/// One or two fields of a packet, of the same length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// Where it begins, bytes from the begin of the packet.
    pub at: u32,
    /// Where the other one begins: both orders are one.
    pub other: Option<u32>,
    /// How long each is, bytes.
    pub len: u32,
}

/// How packets are shared out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Steer {
    /// By flow, both directions of it to one member.
    #[default]
    Flow,
    /// By both addresses.
    Ip,
    /// To the owners of both addresses.
    Hosts,
    /// By the address that is in this network.
    Local(Net),
    /// By both MAC addresses.
    Mac,
    /// By the outermost VLAN tag.
    Vlan,
    /// By bytes of the packet.
    Field(Field),
    /// One after another.
    RoundRobin,
    /// Each to all.
    All,
}

/// Why a text is no way to steer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadSteer {
    /// No such way.
    #[error("'{0}' is no way to steer")]
    Unknown(String),
    /// `local:` without a network.
    #[error("'{0}' is no network such as 10.0.0.0/8")]
    Net(String),
    /// `field:` without a field.
    #[error(
        "'{0}' is no field: write the first byte and how many, of two fields both first bytes, at most {FIELD_BYTES_MAX} bytes from at most \
         {FIELD_AT_MAX} on"
    )]
    Field(String),
}

/// The ways, as they are written.
pub const SPELLINGS: &str =
    "flow, ip, hosts, local:NET, mac, vlan, field:OFF/LEN, field:OFF+OFF/LEN, round-robin, all";

impl FromStr for Steer {
    type Err = BadSteer;

    fn from_str(text: &str) -> Result<Steer, BadSteer> {
        Ok(match text {
            "flow" => Steer::Flow,
            "ip" => Steer::Ip,
            "hosts" => Steer::Hosts,
            "mac" => Steer::Mac,
            "vlan" => Steer::Vlan,
            "round-robin" => Steer::RoundRobin,
            "all" => Steer::All,
            _ => match text.split_once(':') {
                Some(("local", net)) => {
                    Steer::Local(network(net).ok_or_else(|| BadSteer::Net(net.to_string()))?)
                }
                Some(("field", field)) => {
                    Steer::Field(fields(field).ok_or_else(|| BadSteer::Field(field.to_string()))?)
                }
                _ => return Err(BadSteer::Unknown(text.to_string())),
            },
        })
    }
}

fn network(text: &str) -> Option<Net> {
    let (address, bits) = text.split_once('/').map_or((text, None), |(address, bits)| (address, Some(bits)));
    let address: IpAddr = address.parse().ok()?;
    let most = if address.is_ipv4() { 32 } else { 128 };
    let bits = match bits {
        Some(bits) => number(bits)?.try_into().ok().filter(|bits| *bits <= most)?,
        None => most,
    };
    Some(Net { address, bits })
}

/// Digits, and nothing else.
fn number(text: &str) -> Option<u32> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

fn fields(text: &str) -> Option<Field> {
    let (places, len) = text.split_once('/')?;
    let (at, other) = match places.split_once('+') {
        Some((at, other)) => (number(at)?, Some(number(other)?)),
        None => (number(places)?, None),
    };
    let len = number(len)?;
    let fits = (1..=FIELD_BYTES_MAX).contains(&len) && at.max(other.unwrap_or(0)) <= FIELD_AT_MAX;
    fits.then_some(Field { at, other, len })
}

impl fmt::Display for Steer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Steer::Flow => f.write_str("flow"),
            Steer::Ip => f.write_str("ip"),
            Steer::Hosts => f.write_str("hosts"),
            Steer::Local(net) => write!(f, "local:{}/{}", net.address, net.bits),
            Steer::Mac => f.write_str("mac"),
            Steer::Vlan => f.write_str("vlan"),
            Steer::Field(Field { at, other: None, len }) => write!(f, "field:{at}/{len}"),
            Steer::Field(Field { at, other: Some(other), len }) => write!(f, "field:{at}+{other}/{len}"),
            Steer::RoundRobin => f.write_str("round-robin"),
            Steer::All => f.write_str("all"),
        }
    }
}

/// Who gets a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Falls {
    /// The owner of this number.
    To(u64),
    /// The owners of both, once if that is one.
    Both(u64, u64),
    /// The next one.
    Next,
    /// All.
    All,
}

impl Steer {
    /// Who gets a packet of this link type, whose key entry and captured bytes these are.
    #[inline]
    pub fn falls(&self, link_type: LinkType, key: &KeyEntry, data: &[u8]) -> Falls {
        let is_ip = has_flow(key);
        let number = match self {
            Steer::Flow if is_ip => return Falls::To(Steering::flow_hash(key)),
            Steer::Ip if is_ip => Some(pair(host(key.source), host(key.destination))),
            Steer::Hosts if is_ip => return Falls::Both(host(key.source), host(key.destination)),
            Steer::Local(net) if is_ip => local(net, link_type, key, data),
            Steer::Vlan if key.vlan() && !(link_type == LinkType::ETHERNET && data.len() < TAG_END) => {
                let headers = Headers::parse(link_type, data);
                (headers.vlan_tags() > 0).then(|| Steering::spread(u64::from(headers.vlan_id())))
            }
            Steer::Field(field) => of_bytes(field, data),
            Steer::RoundRobin => return Falls::Next,
            Steer::All => return Falls::All,
            _ => None,
        };
        Falls::To(number.unwrap_or_else(|| mac(link_type, data)))
    }
}

/// Whether a packet is one of a flow, by its key entry: it has addresses. Of a header that is truncated it has none.
#[inline]
pub fn has_flow(key: &KeyEntry) -> bool {
    let has_addresses = u32::from_le_bytes(key.source) | u32::from_le_bytes(key.destination) != 0;
    has_addresses && matches!(key.kind(), Kind::Ipv4 | Kind::Ipv6)
}

/// The number of an address, as key entries have it.
fn host(folded: [u8; 4]) -> u64 {
    Steering::spread(u64::from(u32::from_le_bytes(folded)))
}

/// The number of two that is the same in both orders.
fn pair(one: u64, other: u64) -> u64 {
    Steering::spread(one.wrapping_add(other))
}

#[cold]
fn local(net: &Net, link_type: LinkType, key: &KeyEntry, data: &[u8]) -> Option<u64> {
    let headers = Headers::parse(link_type, data);
    let (source, destination) = headers.address_bytes(data)?;
    let [source, destination] = [source, destination].map(address);
    let inside =
        [(source?, key.source), (destination?, key.destination)].into_iter().filter(|it| net.contains(it.0));
    inside.min().map(|(_, folded)| host(folded))
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    match bytes.len() {
        4 => Some(Ipv4Addr::from(<[u8; 4]>::try_from(bytes).ok()?).into()),
        16 => Some(Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?).into()),
        _ => None,
    }
}

/// The number of some bytes.
fn of(bytes: &[u8]) -> u64 {
    bytes.chunks(8).fold(bytes.len() as u64, |number, chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        Steering::spread(number ^ u64::from_le_bytes(word))
    })
}

fn of_bytes(field: &Field, data: &[u8]) -> Option<u64> {
    let bytes = |at: u32| data.get(at as usize..(at + field.len) as usize);
    let first = of(bytes(field.at)?);
    match field.other {
        None => Some(first),
        Some(other) => Some(pair(first, of(bytes(other)?))),
    }
}

/// By both MAC addresses, or to the fixed number.
#[cold]
fn mac(link_type: LinkType, data: &[u8]) -> u64 {
    match (link_type, data.get(..2 * MAC_BYTES)) {
        (LinkType::ETHERNET, Some(both)) => pair(of(&both[..MAC_BYTES]), of(&both[MAC_BYTES..])),
        _ => FIXED,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn key(data: &[u8]) -> KeyEntry {
        KeyEntry::new(&Headers::parse(LinkType::ETHERNET, data))
    }

    fn falls(steer: &str, data: &[u8]) -> Falls {
        steer.parse::<Steer>().unwrap().falls(LinkType::ETHERNET, &key(data), data)
    }

    /// An Ethernet frame: tags, then IPv4 with ports.
    fn frame(tags: &[u16], (source, destination): ([u8; 4], [u8; 4]), ports: [u16; 2]) -> Vec<u8> {
        let mut data = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
        for tag in tags {
            data.extend([0x81, 0]);
            data.extend(tag.to_be_bytes());
        }
        data.extend([8, 0, 0x45, 0, 0, 40, 0, 0, 0, 0, 64, 17, 0, 0]);
        data.extend(source);
        data.extend(destination);
        data.extend(ports.iter().flat_map(|port| port.to_be_bytes()));
        data.resize(data.len() + 20, 0);
        data
    }

    const A: [u8; 4] = [10, 0, 0, 1];
    const B: [u8; 4] = [192, 0, 2, 9];
    const C: [u8; 4] = [10, 9, 0, 1];

    #[test]
    fn what_is_written_is_read_and_what_is_none_refused() {
        for text in [
            "flow",
            "ip",
            "hosts",
            "local:10.0.0.0/8",
            "local:2001:db8::/32",
            "mac",
            "vlan",
            "field:30/4",
            "field:26+30/4",
            "round-robin",
            "all",
        ] {
            assert_eq!(text.parse::<Steer>().unwrap().to_string(), text);
        }
        assert_eq!("local:10.0.0.1".parse::<Steer>().unwrap().to_string(), "local:10.0.0.1/32");
        for text in [
            "",
            "FLOW",
            "local",
            "local:",
            "local:x/8",
            "local:10.0.0.0/33",
            "local:::/129",
            "field:",
            "field:1",
            "field:1/0",
            "field:1/65",
            "field:65536/1",
            "field:1+/2",
            "field:+1/2",
            "field:-1/2",
            "local:10.0.0.0/+8",
        ] {
            assert!(text.parse::<Steer>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn both_directions_go_one_way_and_tags_change_nothing() {
        let (there, back) = (frame(&[], (A, B), [80, 4711]), frame(&[7], (B, A), [4711, 80]));
        for steer in ["flow", "ip", "local:10.0.0.0/8", "mac"] {
            assert_eq!(falls(steer, &there), falls(steer, &back), "{steer}");
        }
        let others = frame(&[], (A, B), [80, 4712]);
        assert_ne!(falls("flow", &there), falls("flow", &others));
        assert_eq!(falls("ip", &there), falls("ip", &others));
        let (Falls::Both(a, b), Falls::Both(b_back, a_back)) =
            (falls("hosts", &there), falls("hosts", &back))
        else {
            panic!("both")
        };
        assert_eq!((a, b), (a_back, b_back));
        assert_ne!(a, b);
    }

    #[test]
    fn the_address_inside_decides_and_of_two_the_lower_one() {
        let net = "local:10.0.0.0/8";
        assert_eq!(
            falls(net, &frame(&[], (A, B), [1, 2])),
            falls(net, &frame(&[], (A, [8, 8, 8, 8]), [3, 4]))
        );
        assert_eq!(falls(net, &frame(&[], (A, C), [1, 2])), falls(net, &frame(&[], (B, A), [1, 2])));
        assert_eq!(falls(net, &frame(&[], (C, A), [1, 2])), falls(net, &frame(&[], (A, B), [1, 2])));
        let outside = frame(&[], (B, [8, 8, 8, 8]), [1, 2]);
        assert_eq!(falls(net, &outside), falls("mac", &outside));
    }

    #[test]
    fn fragments_go_by_addresses_the_first_one_included() {
        let mut first = frame(&[], (A, B), [80, 4711]);
        first[20] = 0x20; // more fragments
        let mut last = frame(&[], (B, A), [0x1234, 0x5678]);
        last[21] = 9;
        assert_eq!(falls("flow", &first), falls("flow", &last));
    }

    #[test]
    fn truncated_headers_go_by_mac_addresses() {
        for (kind, whole) in [([8, 0], 20), ([0x86, 0xdd], 40), ([0x81, 0], 2), ([0x88, 0xa8], 2)] {
            for len in 0..whole {
                let mut data = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, kind[0], kind[1]];
                data.extend([0x45, 0, 0, 40, 9, 9, 9, 9].iter().cycle().take(len));
                for steer in ["flow", "ip", "hosts", "local:0.0.0.0/0", "local:::/0", "vlan"] {
                    assert_eq!(falls(steer, &data), falls("mac", &data), "{steer} {kind:x?} {len}");
                }
            }
        }
    }

    #[test]
    fn vlans_fields_and_what_has_none() {
        let tagged = |tag: u16| frame(&[tag, 5], (A, B), [1, 2]);
        assert_eq!(falls("vlan", &tagged(7)), falls("vlan", &frame(&[7], (C, B), [9, 9])));
        assert_ne!(falls("vlan", &tagged(7)), falls("vlan", &tagged(8)));
        let plain = frame(&[], (A, B), [1, 2]);
        assert_eq!(falls("vlan", &plain), falls("mac", &plain));
        assert_eq!(falls("field:26+30/4", &plain), falls("field:26+30/4", &frame(&[], (B, A), [3, 4])));
        assert_ne!(falls("field:26/4", &plain), falls("field:26/4", &frame(&[], (B, A), [3, 4])));
        assert_eq!(falls("field:60000/4", &plain), falls("mac", &plain));
        let steer = Steer::Flow;
        assert_eq!(steer.falls(LinkType::ETHERNET, &key(&[1]), &[1]), Falls::To(FIXED));
        assert_eq!(steer.falls(LinkType(147), &KeyEntry::default(), &plain), Falls::To(FIXED));
        assert_eq!((falls("all", &plain), falls("round-robin", &plain)), (Falls::All, Falls::Next));
    }

    proptest! {
        #[test]
        fn whatever_a_packet_is_it_falls_to_somebody(data in proptest::collection::vec(any::<u8>(), 0..120), at in 0usize..9) {
            let steer = ["flow", "ip", "hosts", "local:::/0", "mac", "vlan", "field:3+9/8", "round-robin", "all"][at];
            prop_assert_eq!(falls(steer, &data), falls(steer, &data));
        }
    }
}
