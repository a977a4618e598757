//! Cases of packets: where the bytes that a program loads are fields of the packet's key entry.
//!
//! ```text
//! case    tags 0 | 1 | 2   x   IPv4 x (whole | first fragment) x (with ports | without), IPv4 later fragment,
//!                              IPv6 x (with ports | without), ARP, other
//! ```
//! Every packet whose entry is not `partial` is of one case. What is said here of a case follows from
//! `scope_packet::Headers::parse` alone: that a packet is of kind IPv4 without tags on Ethernet means that
//! its bytes 12 and 13 are 0x0800, byte 23 its protocol, bytes 26 to 29 the entry's source, and so on.

use scope_packet::{Kind, LinkType};

use super::clause::{Clause, Field};
use super::numbers::Numbers;
use super::value::{Size, Value};

/// TCP, UDP and SCTP.
const WITH_PORTS: [u32; 3] = [6, 17, 132];
/// Protocols that make an entry partial: tunnels (IP in IP, IPv6, GRE, EtherIP, L2TP, MPLS), and IPv6
/// extension headers.
const TUNNELS: [u32; 6] = [4, 41, 47, 97, 115, 137];
const EXTENSIONS: [u32; 8] = [0, 43, 44, 51, 60, 135, 139, 140];
/// Types of VLAN tags that the parse steps over.
const TAG_TYPES: [u32; 3] = [0x8100, 0x88a8, 0x9100];
/// Ethernet types of the kinds, and those that make an entry partial (MPLS, PPPoE sessions): not of kind
/// other.
const IPV4: u32 = 0x0800;
const IPV6: u32 = 0x86dd;
const ARP_AND_RARP: [u32; 2] = [0x0806, 0x8035];
const PARTIAL_TYPES: [u32; 3] = [0x8847, 0x8848, 0x8864];

/// How much of the IP packet a frame carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fragment {
    Whole,
    First,
    Later,
}

/// One case of packets.
#[derive(Clone, Debug)]
pub(super) struct Case {
    /// VLAN tags; decides which program is evaluated.
    pub tags: usize,
    /// The entries of the case, none omitted.
    pub entries: Clause,
    kind: Kind,
    fragment: Fragment,
    ports: bool,
    /// Where the network layer begins.
    network: u32,
    /// Values of the link header that the kind and the tags imply.
    known: Vec<(Size, u32, Numbers)>,
}

impl Case {
    /// All cases of packets with link type `link`; `None` where the parse doesn't know the type, and all
    /// entries are partial.
    pub fn all(link: LinkType) -> Option<Vec<Case>> {
        let families = Numbers::of(&[2, 0x0200_0000]);
        let ppp =
            |protocol| vec![(Size::Half, 0, Numbers::one(0xff03)), (Size::Half, 2, Numbers::one(protocol))];
        Some(match link {
            LinkType::ETHERNET => ethernet_like(12, 14),
            LinkType::LINUX_SLL => ethernet_like(14, 16),
            LinkType::LINUX_SLL2 => ethernet_like(0, 20),
            LinkType::RAW | LinkType::IPV4 | LinkType::IPV6 => {
                [of_ipv4(0, 0, &[]), of_ipv6(0, 0, &[])].concat()
            }
            // IPv6 makes the entry partial: its number depends on the system.
            LinkType::NULL | LinkType::LOOP => of_ipv4(0, 4, &[(Size::Word, 0, families)]),
            LinkType::PPP | LinkType::PPP_HDLC => {
                [of_ipv4(0, 4, &ppp(0x21)), of_ipv6(0, 4, &ppp(0x57))].concat()
            }
            _ => return None,
        })
    }

    /// Whether entries of the case can be among those of `clause`. The case's own entries leave impossible
    /// protocols open, so that clauses of several cases join.
    pub fn may_have(&self, clause: &Clause) -> bool {
        let impossible: &[&[u32]] = match self.kind {
            Kind::Ipv4 => &[&TUNNELS],
            Kind::Ipv6 => &[&TUNNELS, &EXTENSIONS],
            Kind::Arp | Kind::Other => &[],
        };
        !clause.get(Field::Protocol).is_within(&Numbers::of(&impossible.concat()))
    }

    /// What a load from `at` brings.
    pub fn load(&self, size: Size, at: u32) -> Value {
        if let Some((.., numbers)) =
            self.known.iter().find(|(known, place, _)| (*known, *place) == (size, at))
        {
            return Value::one_of(numbers.clone());
        }
        match at.checked_sub(self.network) {
            Some(at) => self.load_network(size, at),
            None => Value::unknown(),
        }
    }

    fn load_network(&self, size: Size, at: u32) -> Value {
        match (self.kind, size, at) {
            (Kind::Ipv4, Size::Byte, 0) => Value::Bits { zero: !0x4f, one: 0x40, any: 0 },
            (Kind::Ipv6, Size::Byte, 0) => Value::Bits { zero: !0x6f, one: 0x60, any: 0 },
            (Kind::Ipv4, Size::Half, 6) => match self.fragment {
                Fragment::Whole => Value::Bits { zero: !0xc000, one: 0, any: 0 },
                Fragment::First => Value::Bits { zero: !0xe000, one: 0x2000, any: 0 },
                Fragment::Later => Value::Bits { zero: !0xffff, one: 0, any: 0x1fff },
            },
            (Kind::Ipv4, Size::Byte, 9) | (Kind::Ipv6, Size::Byte, 6) => Value::field(Field::Protocol),
            (Kind::Ipv4, Size::Word, 12) | (Kind::Arp, Size::Word, 14) => Value::field(Field::Source),
            (Kind::Ipv4, Size::Word, 16) | (Kind::Arp, Size::Word, 24) => Value::field(Field::Destination),
            (Kind::Ipv6, Size::Word, 8..=36) if at.is_multiple_of(4) => Value::Word((at / 4 - 2) as u8),
            (Kind::Ipv6, ..) if at >= 40 => self.load_transport(size, at - 40),
            _ => Value::unknown(),
        }
    }

    /// What a load from `at` behind X brings, X being the length of the IPv4 header at
    /// [`Case::header_length_at`].
    pub fn load_behind_header(&self, size: Size, at: u32) -> Value {
        match at.checked_sub(self.network) {
            Some(at) if self.kind == Kind::Ipv4 => self.load_transport(size, at),
            _ => Value::unknown(),
        }
    }

    fn load_transport(&self, size: Size, at: u32) -> Value {
        match (size, at) {
            (Size::Half, 0) if self.ports => Value::field(Field::SourcePort),
            (Size::Half, 2) if self.ports => Value::field(Field::DestinationPort),
            _ => Value::unknown(),
        }
    }

    /// What the instruction for header lengths, 4 * (byte at `at` & 15), brings.
    pub fn header_length(&self, at: u32) -> Value {
        if self.kind == Kind::Ipv4 && at == self.network { Value::HeaderLength } else { Value::unknown() }
    }
}

type Known = (Size, u32, Numbers);

/// Link types with an Ethernet type at `type_at` and what it speaks of, tags or the network layer, at
/// `next_at`.
fn ethernet_like(type_at: u32, next_at: u32) -> Vec<Case> {
    let mut cases = Vec::new();
    for tags in 0..=2 {
        // A tag is two bytes of its own and the next type.
        let types: Vec<u32> =
            (0..=tags).map(|tag| if tag == 0 { type_at } else { next_at + 4 * tag - 2 }).collect();
        let (last, outer) = types.split_last().expect("at least one");
        let tag = |at: &u32| (Size::Half, *at, Numbers::of(&TAG_TYPES));
        let known = |of_kind: Numbers| {
            outer.iter().map(tag).chain([(Size::Half, *last, of_kind)]).collect::<Vec<_>>()
        };
        let (tags, network) = (tags as usize, next_at + 4 * tags);
        cases.extend(of_ipv4(tags, network, &known(Numbers::one(IPV4))));
        cases.extend(of_ipv6(tags, network, &known(Numbers::one(IPV6))));
        let arp = Numbers::of(&ARP_AND_RARP);
        let not_other = [&[IPV4, IPV6][..], &ARP_AND_RARP, &TAG_TYPES, &PARTIAL_TYPES].concat();
        let other = Numbers::of(&not_other).complement(0xffff);
        cases.push(case(Kind::Arp, tags, network, &known(arp)));
        cases.push(case(Kind::Other, tags, network, &known(other)));
    }
    cases
}

fn case(kind: Kind, tags: usize, network: u32, known: &[Known]) -> Case {
    let vlan = Numbers::one((tags > 0).into());
    let entries = Clause::all().with(Field::Kind, Numbers::one(kind as u32)).with(Field::Vlan, vlan);
    Case { tags, entries, kind, fragment: Fragment::Whole, ports: false, network, known: known.to_vec() }
}

impl Case {
    fn demand(mut self, field: Field, numbers: Numbers) -> Case {
        self.entries.set(field, numbers);
        self
    }

    /// The case with ports in the entry, and that without. What the second says of the ports is left open, so
    /// that clauses of both join.
    fn by_ports(self) -> [Case; 2] {
        let protocols = Numbers::of(&WITH_PORTS);
        let without = self.clone().demand(Field::Protocol, protocols.complement(Field::Protocol.last()));
        [Case { ports: true, ..self.demand(Field::Protocol, protocols) }, without]
    }
}

fn of_ipv4(tags: usize, network: u32, known: &[Known]) -> Vec<Case> {
    let ipv4 = |fragment: Fragment| {
        let bit = Numbers::one((fragment != Fragment::Whole).into());
        Case { fragment, ..case(Kind::Ipv4, tags, network, known) }.demand(Field::Fragment, bit)
    };
    let later = ipv4(Fragment::Later)
        .demand(Field::SourcePort, Numbers::one(0))
        .demand(Field::DestinationPort, Numbers::one(0));
    [Fragment::Whole, Fragment::First]
        .into_iter()
        .flat_map(|fragment| ipv4(fragment).by_ports())
        .chain([later])
        .collect()
}

/// With extension headers, fragments included, the entry is partial; so the protocol is that of the fixed
/// header.
fn of_ipv6(tags: usize, network: u32, known: &[Known]) -> Vec<Case> {
    case(Kind::Ipv6, tags, network, known).by_ports().into()
}
