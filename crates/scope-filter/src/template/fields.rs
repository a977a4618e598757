//! The names that templates know, and their values in a packet.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use scope_packet::{Headers, Kind, LinkType};

use super::Shape;

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

/// All names, for messages.
pub(super) fn known() -> String {
    FIELDS.map(|(_, name)| name).join(" ")
}

/// The field whose name is most like `name`, if at most half of the letters differ.
pub(super) fn nearest(name: &str) -> Option<Field> {
    let name = name.to_ascii_lowercase();
    let distances =
        FIELDS.iter().map(|(field, known)| (distance(&known[1..].to_ascii_lowercase(), &name), *field, known.len() - 1));
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
    pub fn value(self, headers: &Headers, data: &[u8]) -> Option<String> {
        match self {
            Field::SrcIp => Some(addresses(headers, data)?.0.to_string()),
            Field::DstIp => Some(addresses(headers, data)?.1.to_string()),
            Field::SrcPort => Some(headers.ports()?.0.to_string()),
            Field::DstPort => Some(headers.ports()?.1.to_string()),
            Field::Proto => Some(protocol(headers)?.to_string()),
            Field::SrcMac => mac(headers, data, 6),
            Field::DstMac => mac(headers, data, 0),
            Field::Vlan => (headers.vlan_tags() > 0).then(|| headers.vlan_id().to_string()),
            Field::Flow => flow(headers, data),
        }
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
            Field::Flow => flow_with_ports("udp", source, destination, (40001, 443)),
        }
    }
}

fn addresses(headers: &Headers, data: &[u8]) -> Option<(IpAddr, IpAddr)> {
    let address = |bytes: &[u8]| {
        let v4 = <[u8; 4]>::try_from(bytes).ok().map(|b| IpAddr::V4(Ipv4Addr::from(b)));
        v4.or_else(|| <[u8; 16]>::try_from(bytes).ok().map(|b| IpAddr::V6(Ipv6Addr::from(b))))
    };
    let (source, destination) = headers.address_bytes(data)?;
    Some((address(source)?, address(destination)?))
}

pub(super) fn protocol(headers: &Headers) -> Option<u8> {
    (headers.addresses() && matches!(headers.kind(), Kind::Ipv4 | Kind::Ipv6)).then_some(headers.protocol())
}

fn mac(headers: &Headers, data: &[u8], at: usize) -> Option<String> {
    let bytes = data.get(at..at + 6).filter(|_| headers.ethernet())?;
    Some(bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(":"))
}

/// The filter for a packet's flow. libpcap sees ports only directly behind the IP header and in first fragments; where the
/// parse saw farther, or there are none, the flow is what its protocol carries between its hosts.
fn flow(headers: &Headers, data: &[u8]) -> Option<String> {
    let (source, destination) = addresses(headers, data)?;
    let hosts = format!("host {source} and host {destination}");
    let next_header_at = headers.network_offset() as usize + 6;
    let behind_extensions = headers.kind() == Kind::Ipv6 && data.get(next_header_at) != Some(&headers.protocol());
    let transport = match headers.protocol() {
        TCP => "tcp",
        UDP => "udp",
        SCTP => "sctp",
        _ => "",
    };
    Some(match (headers.kind(), headers.ports()) {
        (Kind::Arp, _) => format!("(arp or rarp) and {hosts}"),
        (Kind::Ipv6, _) if behind_extensions => format!("ip6 and {hosts}"),
        (_, Some(ports)) if !transport.is_empty() => {
            return Some(flow_with_ports(transport, &source.to_string(), &destination.to_string(), ports));
        }
        (Kind::Ipv6, _) => format!("ip6 proto {} and {hosts}", headers.protocol()),
        _ => format!("ip proto {} and {hosts}", headers.protocol()),
    })
    .map(|text| format!("({text})"))
}

fn flow_with_ports(transport: &str, source: &str, destination: &str, (from, to): (u16, u16)) -> String {
    format!(
        "({transport} and ((src host {source} and src port {from} and dst host {destination} and dst port {to}) or \
         (src host {destination} and src port {to} and dst host {source} and dst port {from})))"
    )
}

/// The filter for what went between the two hosts of a packet; empty, which is everything, where it has no addresses.
pub fn host_pair_default(headers: &Headers, _link: LinkType, data: &[u8]) -> String {
    match addresses(headers, data) {
        Some((source, destination)) => format!("host {source} and host {destination}"),
        None => String::new(),
    }
}

/// What of a packet decides whether [`host_pair_default`] makes a filter.
pub fn host_pair_shape(headers: &Headers, link: LinkType, data: &[u8]) -> Shape {
    let mut shape = Shape::new(link);
    for field in [Field::SrcIp, Field::DstIp] {
        let _ = field.shape(false, headers, data, &mut shape); // without addresses everything is taken
    }
    shape
}
