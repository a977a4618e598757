//! Packets: how they are parsed, which filters match them, and what they fill templates with.

use scope_filter::template::{host_pair_filter, host_pair_shape, host_pair_values};
use scope_filter::{Filter, FilterEngine, FilterInput, Predicate, Screen, Template, VlanRule};
use scope_packet::segment::Foot;
use scope_packet::{Headers, KeyEntry, LinkType};
use std::sync::OnceLock;

const LINKS: [LinkType; 5] =
    [LinkType::ETHERNET, LinkType::LINUX_SLL, LinkType::LINUX_SLL2, LinkType::RAW, LinkType::PPP];
const FILTERS: [&str; 14] = [
    "tcp port 80",
    "host 10.0.0.1",
    "udp and src net 10.0.0.0/8 and dst portrange 1000-2000",
    "ip6 host fe80::1 or ip6 proto 17",
    "icmp6 or icmp[icmptype] == icmp-echo",
    "tcp[tcpflags] & (tcp-syn|tcp-rst) != 0",
    "vlan 7 and ip",
    "not (arp or rarp)",
    "ether host 02:02:02:02:02:02",
    "mpls 3 and host 10.0.0.2",
    "len > 60 and ip[8] < 3",
    "ip6 protochain 6",
    "sctp or (ip[6:2] & 0x1fff != 0)",
    "port 53 or port 80 or port 443 or port 1000 or port 60000",
];
const TEMPLATES: [&str; 7] = [
    "host $srcIP",
    "$flow",
    "host {srcIP} and host {dstIP} and port $srcPort ?: arp",
    "ip proto $proto and dst host $dstIP",
    "ether src $srcMAC and ether dst $dstMAC",
    "vlan $vlan",
    "tcp port $dstPort ?:",
];
/// Those of them, by number, whose filter matches the packet that filled it.
const OWN: [usize; 2] = [0, 1];

/// Two bytes link type, then a packet. What is no partial parse knows all that a filter can see of addresses
/// and ports: more bytes behind the packet change nothing.
pub fn headers(data: &[u8]) {
    let Some((link, packet)) = data.split_first_chunk() else { return };
    let link = LinkType(u16::from_le_bytes(*link));
    let headers = Headers::parse(link, packet);
    let addresses = headers.address_bytes(packet);
    assert_eq!(addresses.is_some(), headers.addresses());
    let key = KeyEntry::new(&headers);
    assert_eq!(key.partial(), headers.partial());
    if !headers.partial() {
        let longer = [packet, &[0x5a; 64]].concat();
        assert_eq!(Headers::parse(link, &longer), headers, "{link:?}");
    }
}

/// A filter in each engine.
struct Engines {
    text: &'static str,
    native: Predicate,
    interpreted: Predicate,
    screen: Screen,
}

/// The filters of each link type, compiled once.
fn engines(link: usize) -> &'static [Engines] {
    static ENGINES: [OnceLock<Vec<Engines>>; LINKS.len()] = [const { OnceLock::new() }; LINKS.len()];
    ENGINES[link].get_or_init(|| {
        let of_text = |text: &'static str| {
            let made = |engine| {
                let filter = Filter::compile(text, VlanRule::Transparent, &[LINKS[link]]).ok()?;
                let predicate = filter.for_link(LINKS[link]);
                // Where there is no machine code the interpreter answers for both.
                let _ = filter.prepare(engine);
                Some((filter, predicate))
            };
            let (filter, native) = made(FilterEngine::Native)?;
            let (_, interpreted) = made(FilterEngine::Interpreter)?;
            Some(Engines { text, native, interpreted, screen: filter.screen(LINKS[link]) })
        };
        FILTERS.into_iter().filter_map(of_text).collect()
    })
}

/// One byte link type, one byte how much longer the packet was on the wire, then the packet: machine code and
/// interpreter say the same, and no key hides a packet that the filter matches.
pub fn evaluate(data: &[u8]) {
    let Some((&[link, more], packet)) = data.split_first_chunk() else { return };
    let link = usize::from(link) % LINKS.len();
    let headers = Headers::parse(LINKS[link], packet);
    let key = KeyEntry::new(&headers);
    let input = [FilterInput::new(&headers, key, packet, packet.len() as u32 + u32::from(more))];
    for Engines { text, native, interpreted, screen } in engines(link) {
        let answer = native.matches_batch(&input, 1);
        assert_eq!(answer, interpreted.matches_batch(&input, 1), "{text} on {}", LINKS[link].name());
        assert!(answer == 0 || screen.may_match(&key), "{text} on {}: screened away", LINKS[link].name());
    }
}

/// One byte link type, then the packet that fired: a template that it fills is a filter that matches it,
/// unless the parse is partial.
pub fn fill(data: &[u8]) {
    static PARSED: OnceLock<Vec<Template>> = OnceLock::new();
    let templates = PARSED
        .get_or_init(|| TEMPLATES.iter().map(|text| Template::parse(text).expect("a template")).collect());
    let Some((&link, packet)) = data.split_first() else { return };
    let link = LINKS[usize::from(link) % LINKS.len()];
    let headers = Headers::parse(link, packet);
    let _pair = (host_pair_shape(&headers, link, packet), host_pair_values(&headers, link, packet));
    let matches = |filter: Filter| filter.for_link(link).matches(&headers, packet, packet.len() as u32);
    if let Ok(filter) = host_pair_filter(&headers, link, packet, VlanRule::Transparent) {
        assert!(headers.partial() || matches(filter), "host pair on {}", link.name());
    }
    for (number, template) in templates.iter().enumerate() {
        let (values, shape) =
            (template.values(&headers, link, packet), template.shape(&headers, link, packet));
        assert_eq!(values.is_ok(), shape.is_ok(), "{}", template.text());
        let filled = template.fill_filter(&headers, link, packet, VlanRule::Transparent);
        assert!(filled.is_err() || values.is_ok(), "{}", template.text());
        if let Ok(filter) = filled {
            let text = filter.text().to_string();
            let matched = matches(filter);
            assert!(matched || headers.partial() || !OWN.contains(&number), "{text} on {}", link.name());
        }
    }
}

/// The foot of a segment and one entry of its key column are what they are written as.
pub fn segment(data: &[u8]) {
    if let Some(foot) = Foot::read(data) {
        let mut written = vec![0; data.len()];
        foot.write(&mut written);
        assert_eq!(Foot::read(&written), Some(foot));
    }
    if let Some(bytes) = data.first_chunk() {
        let entry = KeyEntry::from_bytes(bytes);
        assert_eq!(KeyEntry::from_bytes(&entry.to_bytes()).to_number(), entry.to_number());
        let _seen = (entry.kind(), entry.protocol(), entry.offset());
    }
}
