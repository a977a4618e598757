//! The names that templates know, and their values in a packet.

use std::net::IpAddr;

use scope_packet::Kind;

use super::subject::Subject;
use super::values::{Gatherer, Part, Values};

/// What a name stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Field {
    SrcIp,
    DstIp,
    SrcPort,
    DstPort,
    Proto,
    SrcMac,
    DstMac,
    Vlan,
    Flow,
}

/// The network layer of the values that stand in for a packet's when a template is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sample {
    Ipv4,
    Ipv6,
}

/// The samples in the order in which they are tried.
pub(super) const SAMPLES: [Sample; 2] = [Sample::Ipv4, Sample::Ipv6];

const FIELDS: [(Field, &str); 9] = [
    (Field::SrcIp, "$srcIP"),
    (Field::DstIp, "$dstIP"),
    (Field::SrcPort, "$srcPort"),
    (Field::DstPort, "$dstPort"),
    (Field::Proto, "$proto"),
    (Field::SrcMac, "$srcMAC"),
    (Field::DstMac, "$dstMAC"),
    (Field::Vlan, "$vlan"),
    (Field::Flow, "$flow"),
];

const TCP: u8 = 6;
const UDP: u8 = 17;
const SCTP: u8 = 132;
const SRC_MAC_AT: usize = 6;
const DST_MAC_AT: usize = 0;

/// Fragments of IPv4 that are not the first: without ports. [`crate::table`] knows this text.
pub(crate) const LATER_FRAGMENT: &str = "ip[6:2] & 0x1fff != 0";
/// What stands behind IPv6 extension headers, fragments included: libpcap sees no ports there. Their key
/// entries are partial. [`crate::table`] knows this text.
pub(crate) const EXTENSIONS: &str = "ip6[6] = 0 or ip6[6] = 43 or ip6[6] = 44 or ip6[6] = 51 or ip6[6] = 60 or ip6[6] = 135 or \
    ip6[6] = 139 or ip6[6] = 140";

/// All names, for messages.
pub(super) fn known() -> String {
    FIELDS.map(|(_, name)| name).join(" ")
}

/// The field whose name is most like `name`, if at most half of the letters differ.
pub(super) fn nearest(name: &str) -> Option<Field> {
    let name = name.to_ascii_lowercase();
    let distances = FIELDS
        .iter()
        .map(|(field, known)| (distance(&known[1..].to_ascii_lowercase(), &name), *field, known.len() - 1));
    let like = distances.filter(|(letters, _, known)| *letters <= (*known).max(name.len()) / 2);
    like.min_by_key(|(letters, ..)| *letters).map(|(_, field, _)| field)
}

/// Letters to insert, delete or exchange to make one word of the other.
fn distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.bytes().enumerate() {
            let exchanged = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = exchanged.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

impl Field {
    /// The field called `name` (without `$`), in any case.
    pub fn by_name(name: &str) -> Option<Field> {
        FIELDS.iter().find(|(_, known)| known[1..].eq_ignore_ascii_case(name)).map(|(field, _)| *field)
    }

    /// The name, with its `$`.
    pub fn name(self) -> &'static str {
        FIELDS.iter().find(|(field, _)| *field == self).map_or("", |(_, name)| name)
    }

    /// The field's text for a packet; `None` where the packet lacks it.
    pub fn value(self, packet: &Subject<'_>) -> Option<String> {
        match self {
            Field::SrcIp => Some(packet.addresses()?.0.to_string()),
            Field::DstIp => Some(packet.addresses()?.1.to_string()),
            Field::SrcPort => Some(packet.ports()?.0.to_string()),
            Field::DstPort => Some(packet.ports()?.1.to_string()),
            Field::Proto => Some(packet.protocol()?.to_string()),
            Field::SrcMac => packet.mac(SRC_MAC_AT).map(mac),
            Field::DstMac => packet.mac(DST_MAC_AT).map(mac),
            Field::Vlan => Some(packet.vlan()?.to_string()),
            Field::Flow => Some(Flow::of(packet)?.filter()),
        }
    }

    /// Adds the field's value to `values`; `None` where the packet lacks it. Equal values have equal texts.
    pub fn gather(self, packet: &Subject<'_>, values: &mut Gatherer) -> Option<()> {
        match self {
            Field::SrcIp => address(values, packet.addresses()?.0),
            Field::DstIp => address(values, packet.addresses()?.1),
            Field::SrcPort => values.add(Part::Bytes, &packet.ports()?.0.to_le_bytes()),
            Field::DstPort => values.add(Part::Bytes, &packet.ports()?.1.to_le_bytes()),
            Field::Proto => values.add(Part::Bytes, &[packet.protocol()?]),
            Field::SrcMac => values.add(Part::Bytes, packet.mac(SRC_MAC_AT)?),
            Field::DstMac => values.add(Part::Bytes, packet.mac(DST_MAC_AT)?),
            Field::Vlan => values.add(Part::Bytes, &packet.vlan()?.to_le_bytes()),
            Field::Flow => Flow::of(packet)?.gather(values),
        }
        Some(())
    }

    /// A value of the same shape. Host bits are set, so that a template which needs a net is found out.
    pub fn sample(self, sample: Sample) -> String {
        let (source, destination) = match sample {
            Sample::Ipv4 => ("192.0.2.1", "198.51.100.7"),
            Sample::Ipv6 => ("2001:db8::1", "2001:db8::9:7"),
        };
        match self {
            Field::SrcIp => source.into(),
            Field::DstIp => destination.into(),
            Field::SrcPort => "40001".into(),
            Field::DstPort => "443".into(),
            Field::Proto => "17".into(),
            Field::SrcMac => "02:00:00:00:00:01".into(),
            Field::DstMac => "02:00:00:00:00:02".into(),
            Field::Vlan => "7".into(),
            Field::Flow => {
                Flow::between((source, 40001), (destination, 443)).map_or(String::new(), |flow| flow.filter())
            }
        }
    }
}

fn address(values: &mut Gatherer, address: IpAddr) {
    match address {
        IpAddr::V4(address) => values.add(Part::Bytes, &address.octets()),
        IpAddr::V6(address) => values.add(Part::Bytes, &address.octets()),
    }
}

pub(super) fn mac(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(":")
}

/// Two ends of a conversation in an order that doesn't depend on who sends: a filter is the same for both
/// directions.
fn ordered<T: Ord>(a: T, b: T) -> (T, T) {
    if a <= b { (a, b) } else { (b, a) }
}

/// A packet's flow, without its direction.
pub(super) struct Flow {
    kind: Kind,
    protocol: u8,
    /// TCP, UDP or SCTP, and the ports were seen: those of the ends count.
    transport: Option<&'static str>,
    ends: ((IpAddr, u16), (IpAddr, u16)),
}

impl Flow {
    /// That of a packet; `None` where it has no addresses.
    pub fn of(packet: &Subject<'_>) -> Option<Flow> {
        let (source, destination) = packet.addresses()?;
        let transport = packet.ports().and_then(|_| transport(packet.protocol()?));
        let (from, to) = packet.ports().filter(|_| transport.is_some()).unwrap_or_default();
        let ends = ordered((source, from), (destination, to));
        Some(Flow { kind: packet.kind(), protocol: packet.protocol().unwrap_or(0), transport, ends })
    }

    /// One that is told of, without a packet; `None`: its addresses are of two families. Without a protocol that has
    /// ports, or without ports, it is what goes between the two hosts.
    pub fn given(
        (source, destination): (IpAddr, IpAddr),
        ports: Option<(u16, u16)>,
        protocol: Option<u8>,
    ) -> Option<Told> {
        let kind = match (source.is_ipv4(), destination.is_ipv4()) {
            (true, true) => Kind::Ipv4,
            (false, false) => Kind::Ipv6,
            _ => return None,
        };
        let (low, high) = ordered(source, destination);
        let Some(protocol) = protocol else { return Some(Told::Pair(low, high)) };
        let transport = ports.and_then(|_| transport(protocol));
        let (from, to) = ports.filter(|_| transport.is_some()).unwrap_or_default();
        let ends = ordered((source, from), (destination, to));
        Some(Told::Flow(Flow { kind, protocol, transport, ends }))
    }

    /// A flow of UDP, for samples.
    fn between(source: (&str, u16), destination: (&str, u16)) -> Option<Flow> {
        let end = |(address, port): (&str, u16)| Some((address.parse::<IpAddr>().ok()?, port));
        let ends = ordered(end(source)?, end(destination)?);
        let kind = if ends.0.0.is_ipv4() { Kind::Ipv4 } else { Kind::Ipv6 };
        Some(Flow { kind, protocol: UDP, transport: Some("udp"), ends })
    }

    /// Adds what decides of its filter's form: all but addresses and ports.
    pub fn gather_form(&self, shape: &mut Gatherer) {
        let ((low, _), (high, _)) = self.ends;
        let flags = [
            self.transport.is_some().into(),
            low.is_ipv4().into(),
            high.is_ipv4().into(),
            (low == high).into(),
        ];
        shape.add(Part::Bytes, &[self.kind as u8, self.protocol]);
        shape.add(Part::Bytes, &flags);
    }

    fn gather(&self, values: &mut Gatherer) {
        let ((low, low_port), (high, high_port)) = self.ends;
        values.add(Part::Bytes, &[self.kind as u8, self.protocol, self.transport.is_some().into()]);
        address(values, low);
        address(values, high);
        let [a, b] = [low_port, high_port].map(u16::to_le_bytes);
        values.add(Part::Bytes, &[a[0], a[1], b[0], b[1]]);
    }

    /// The filter: everything that addresses, ports and fragment numbers show to belong to the flow. libpcap
    /// sees ports only directly behind the IP header and in first fragments. So what its protocol carries
    /// between its hosts in later fragments, and whatever these send behind IPv6 extension headers, belongs
    /// to it; some of it may be another flow's, but nothing is lost.
    fn filter(&self) -> String {
        let ((low, low_port), (high, high_port)) = self.ends;
        let (hosts, protocol) = (pair(low, high), self.protocol);
        match (self.kind, self.transport) {
            (Kind::Arp, _) => format!("((arp or rarp) and {hosts})"),
            (kind, Some(transport)) => {
                let rest = match kind {
                    Kind::Ipv6 => format!("ip6 and ({EXTENSIONS})"),
                    _ => format!("ip proto {protocol} and {LATER_FRAGMENT}"),
                };
                format!(
                    "({hosts} and (({transport} and ((src host {low} and src port {low_port} and dst port {high_port}) or \
                     (src host {high} and src port {high_port} and dst port {low_port}))) or ({rest})))"
                )
            }
            (Kind::Ipv6, None) => format!("(ip6 and {hosts} and (ip6[6] = {protocol} or {EXTENSIONS}))"),
            _ => format!("(ip proto {protocol} and {hosts})"),
        }
    }
}

/// The word for a protocol that has ports.
fn transport(protocol: u8) -> Option<&'static str> {
    match protocol {
        TCP => Some("tcp"),
        UDP => Some("udp"),
        SCTP => Some("sctp"),
        _ => None,
    }
}

/// A flow that was told of, as far as that goes.
pub(super) enum Told {
    Flow(Flow),
    /// Two hosts alone, in their order.
    Pair(IpAddr, IpAddr),
}

impl Told {
    /// Its filter, in parentheses.
    pub fn filter(&self) -> String {
        match self {
            Told::Flow(flow) => flow.filter(),
            Told::Pair(low, high) => format!("({})", pair(*low, *high)),
        }
    }
}

/// What goes between two hosts; of a host with itself, only that.
fn pair(low: IpAddr, high: IpAddr) -> String {
    if low == high {
        format!("src host {low} and dst host {low}")
    } else {
        format!("host {low} and host {high}")
    }
}

/// What goes between two hosts, in the order that doesn't depend on who sends.
pub(super) fn between(source: IpAddr, destination: IpAddr) -> String {
    let (low, high) = ordered(source, destination);
    pair(low, high)
}

/// The filter for what went between the two hosts of a packet; empty, which is everything, where it has no
/// addresses.
pub(super) fn host_pair(packet: &Subject<'_>) -> String {
    match packet.addresses() {
        Some((source, destination)) => between(source, destination),
        None => String::new(),
    }
}

/// The values of that filter.
pub(super) fn host_pair_values(packet: &Subject<'_>) -> Values {
    let Some((source, destination)) = packet.addresses() else { return Values::everything() };
    let (low, high) = ordered(source, destination);
    let mut values = Gatherer::default().part(Part::Labels, &[packet.labels as u8]);
    address(&mut values, low);
    address(&mut values, high);
    values.values()
}
