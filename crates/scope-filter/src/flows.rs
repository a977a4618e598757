//! Filters on flows: a record of a flow matches as its packets would, and has the text by which they are found.
//!
//! Nothing reads the language a second time: the filter is compiled as ever, and evaluated on a frame that is made of
//! what the record has, once for each direction. That is exact as long as the text asks for nothing else, so
//! every other word is refused: bytes of packets, lengths, Ethernet addresses.
//!
//! ```text
//! record ─► Ethernet [tag] IPv4 | IPv6, protocol, ports ─► predicate ─► either direction matches
//!                                                       └► $flow
//! ```
//! A record has the outermost VLAN tag only: its frame has that tag and no further one. Where both ports are 0, as
//! of later fragments, the frame is a later fragment, which has none.

use std::net::IpAddr;

use scope_packet::{Headers, LinkType};

use crate::error::FilterError;
use crate::filter::{Filter, FilterEngine, Predicate, VlanRule};
use crate::template::Template;
use crate::words::{Kind, Token, tokens};

/// What of the language a flow's record can answer. `vlan` may come once: behind it everything is looked for behind
/// that tag, and a record has no second one.
const WORDS: &str = "dst src host net mask port portrange proto and or not vlan ip ip6 arp rarp tcp udp sctp icmp icmp6 igmp \
    igrp pim vrrp carp ah esp";
const SYMBOLS: &str = "( ) ! /";

/// The template of a flow's own filter.
const FLOW: &str = "$flow";
/// The link type of the frame that stands for a record.
const LINK: LinkType = LinkType::ETHERNET;
/// Bytes of that frame at most: Ethernet with a tag, IPv6, a fragment header, TCP.
const FRAME_BYTES_MAX: usize = 18 + 40 + 8 + TRANSPORT_BYTES;
const TRANSPORT_BYTES: usize = 20;
/// The next header of IPv6 that says: a fragment.
const IPV6_FRAGMENT: u8 = 44;
/// Protocols that have ports.
const WITH_PORTS: [u8; 3] = [6, 17, 132];

/// What a record of a flow says of its packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowKey {
    /// The outermost tag's identifier; 0: none.
    pub vlan: u16,
    /// The IP protocol's number.
    pub protocol: u8,
    /// Address and port of one end, 0 where there is no port.
    pub source: (IpAddr, u16),
    /// The other end, of the same family.
    pub destination: (IpAddr, u16),
}

impl FlowKey {
    /// The other direction.
    fn reversed(self) -> FlowKey {
        FlowKey { source: self.destination, destination: self.source, ..self }
    }
}

/// A filter that selects records of flows.
#[derive(Clone, Debug)]
pub struct FlowFilter {
    predicate: Predicate,
    is_everything: bool,
    flow: Template,
}

impl FlowFilter {
    /// Compiles `text`, which is one of the filter language.
    ///
    /// # Errors
    /// It is none, or asks for something that records of flows don't have.
    pub fn compile(text: &str) -> Result<FlowFilter, FilterError> {
        let filter = Filter::compile(text, VlanRule::Transparent, &[LINK])?;
        if let Some(stranger) = stranger(&tokens(text)) {
            let (at, what) = (stranger.at, stranger.text.to_string());
            return Err(FilterError::NoFlow { text: text.into(), at, what });
        }
        // Where no machine code can be made the filter is interpreted, which is slower and says the same.
        let _ = filter.prepare(FilterEngine::Native);
        let flow = Template::parse(FLOW).map_err(|error| FilterError::Syntax {
            text: FLOW.into(),
            at: 0,
            cause: error.to_string(),
            hint: String::new(),
        })?;
        Ok(FlowFilter { predicate: filter.for_link(LINK), is_everything: filter.is_everything(), flow })
    }

    /// Whether the text is empty: every record matches, also those that stand for flows which aren't known.
    pub fn is_everything(&self) -> bool {
        self.is_everything
    }

    /// Whether packets of either direction match.
    pub fn matches(&self, flow: FlowKey) -> bool {
        [flow, flow.reversed()].into_iter().any(|flow| {
            let frame = Frame::of(flow);
            let data = frame.bytes();
            self.predicate.matches(&Headers::parse(LINK, data), data, data.len() as u32)
        })
    }

    /// The filter that finds the flow's packets, as `$flow` of a dump's template would be; empty where the addresses
    /// are of two families.
    pub fn flow(&self, flow: FlowKey) -> String {
        let frame = Frame::of(flow);
        self.flow.fill(&Headers::parse(LINK, frame.bytes()), LINK, frame.bytes()).unwrap_or_default()
    }
}

/// The first token that records of flows can't answer.
fn stranger<'a>(tokens: &[Token<'a>]) -> Option<Token<'a>> {
    let listed = |list: &str, word: &str| list.split_ascii_whitespace().any(|known| known == word);
    let mut vlans = 0;
    tokens.iter().copied().find(|token| match token.kind {
        Kind::Word if token.text == "vlan" => {
            vlans += 1;
            vlans > 1
        }
        Kind::Word => !listed(WORDS, token.text) && !matches!(token.text, "&&" | "||"),
        Kind::Symbol => !listed(SYMBOLS, token.text),
        Kind::Number | Kind::Address | Kind::Name => false,
        Kind::Bad => true,
    })
}

/// A frame that stands for a record.
struct Frame {
    bytes: [u8; FRAME_BYTES_MAX],
    len: usize,
}

impl Frame {
    fn of(flow: FlowKey) -> Frame {
        let mut frame = Frame { bytes: [0; FRAME_BYTES_MAX], len: 0 };
        frame.put(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2]);
        if flow.vlan != 0 {
            frame.put(&[0x81, 0]);
            frame.put(&flow.vlan.to_be_bytes());
        }
        let ((source, from), (destination, to)) = (flow.source, flow.destination);
        let is_later_fragment = (from, to) == (0, 0) && WITH_PORTS.contains(&flow.protocol);
        match (source, destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                let len = 20 + TRANSPORT_BYTES as u8;
                frame.put(&[8, 0, 0x45, 0, 0, len, 0, 0, 0, u8::from(is_later_fragment)]);
                frame.put(&[64, flow.protocol, 0, 0]);
                frame.put(&source.octets());
                frame.put(&destination.octets());
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                let fragment_bytes = if is_later_fragment { 8 } else { 0 };
                let next = if is_later_fragment { IPV6_FRAGMENT } else { flow.protocol };
                frame.put(&[0x86, 0xdd, 0x60, 0, 0, 0, 0, TRANSPORT_BYTES as u8 + fragment_bytes, next, 64]);
                frame.put(&source.octets());
                frame.put(&destination.octets());
                if is_later_fragment {
                    frame.put(&[flow.protocol, 0, 0, 8, 0, 0, 0, 0]);
                }
            }
            _ => return frame,
        }
        let mut transport = [0; TRANSPORT_BYTES];
        transport[..2].copy_from_slice(&from.to_be_bytes());
        transport[2..4].copy_from_slice(&to.to_be_bytes());
        frame.put(&transport);
        frame
    }

    fn put(&mut self, bytes: &[u8]) {
        self.bytes[self.len..self.len + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
    }

    fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(vlan: u16, protocol: u8, source: (&str, u16), destination: (&str, u16)) -> FlowKey {
        let end = |(address, port): (&str, u16)| (address.parse().unwrap(), port);
        FlowKey { vlan, protocol, source: end(source), destination: end(destination) }
    }

    #[test]
    fn a_record_matches_where_packets_of_either_direction_do() {
        let web = key(0, 6, ("10.0.0.1", 40000), ("192.0.2.9", 443));
        let tagged = key(7, 17, ("2001:db8::1", 5353), ("2001:db8::2", 53));
        let ping = key(0, 1, ("10.0.0.1", 8), ("10.0.0.2", 0));
        let fragment = key(0, 17, ("10.0.0.1", 0), ("10.0.0.2", 0));
        let fragment6 = key(9, 17, ("2001:db8::1", 0), ("2001:db8::2", 0));
        let all = [web, tagged, ping, fragment, fragment6];
        let check = |text: &str, expected: &[FlowKey]| {
            let filter = FlowFilter::compile(text).unwrap_or_else(|error| panic!("{text}: {error}"));
            let found: Vec<FlowKey> = all.into_iter().filter(|flow| filter.matches(*flow)).collect();
            assert_eq!(found, expected, "{text}");
            let reversed = all.iter().filter(|flow| filter.matches(flow.reversed())).count();
            assert_eq!(reversed, expected.len(), "{text}");
        };
        check("", &all);
        check("tcp", &[web]);
        check("host 10.0.0.1", &[web, ping, fragment]);
        check("src host 192.0.2.9", &[web]);
        check("dst port 443 and src net 10.0.0.0/8", &[web]);
        check("src port 443 and src net 10.0.0.0/8", &[]);
        check("net 10.0.0.0 mask 255.0.0.0 and not tcp", &[ping, fragment]);
        check("portrange 50-60", &[tagged]);
        check("port domain", &[tagged]);
        check("udp", &[tagged, fragment, fragment6]);
        check("udp port 0", &[]);
        check("ip proto 17", &[fragment]);
        check("ip6", &[tagged, fragment6]);
        check("vlan", &[tagged, fragment6]);
        check("vlan 7 and udp port 53", &[tagged]);
        check("not vlan", &[web, ping, fragment]);
        check("icmp || (ip6 && ! vlan 9)", &[ping]);
        check("arp", &[]);
    }

    #[test]
    fn what_records_do_not_have_is_refused_with_its_place() {
        let check = |text: &str, at: usize, what: &str| match FlowFilter::compile(text).unwrap_err() {
            FilterError::NoFlow { at: found, what: word, .. } => {
                assert_eq!((found, word.as_str()), (at, what), "{text}")
            }
            other => panic!("{text}: {other:?}"),
        };
        check("tcp[tcpflags] & tcp-syn != 0", 3, "[");
        check("host 10.0.0.1 and len > 100", 18, "len");
        check("less 100", 0, "less");
        check("ether host 02:00:00:00:00:01", 0, "ether");
        check("ip broadcast", 3, "broadcast");
        check("multicast", 0, "multicast");
        check("vlan 5 and vlan 7", 11, "vlan");
        check("mpls and udp", 0, "mpls");
        check("ip protochain 6", 3, "protochain");
        assert!(matches!(FlowFilter::compile("host example.org"), Err(FilterError::Name { .. })));
        assert!(matches!(FlowFilter::compile("port"), Err(FilterError::Syntax { .. })));
        let said = FlowFilter::compile("tcp and len > 100").unwrap_err().to_string();
        assert!(said.contains("'len' at byte 8") && said.contains("hosts, nets, ports"), "{said}");
    }

    #[test]
    fn the_filter_of_a_record_is_the_one_of_its_packets_in_both_directions() {
        let filter = FlowFilter::compile("").unwrap();
        let check = |flow: FlowKey, expected: &str| {
            assert_eq!(filter.flow(flow), expected);
            assert_eq!(filter.flow(flow.reversed()), expected);
        };
        check(
            key(7, 6, ("192.0.2.9", 443), ("10.0.0.1", 40000)),
            "(host 10.0.0.1 and host 192.0.2.9 and ((tcp and ((src host 10.0.0.1 and src port 40000 and dst port 443) or \
             (src host 192.0.2.9 and src port 443 and dst port 40000))) or (ip proto 6 and ip[6:2] & 0x1fff != 0)))",
        );
        check(
            key(0, 1, ("10.0.0.1", 8), ("10.0.0.2", 0)),
            "(ip proto 1 and host 10.0.0.1 and host 10.0.0.2)",
        );
        check(
            key(0, 17, ("10.0.0.1", 0), ("10.0.0.2", 0)),
            "(ip proto 17 and host 10.0.0.1 and host 10.0.0.2)",
        );
        assert!(filter.flow(key(0, 17, ("fe80::1", 0), ("fe80::2", 0))).contains("ip6[6] = 44"));
        assert_eq!(filter.flow(key(0, 17, ("10.0.0.1", 1), ("fe80::2", 1))), "");
    }
}
