//! One packet in words, as `tcpdump -n` would be read: who, to whom, what, how long; and the same as JSON.
//!
//! ```text
//! IP 10.0.0.1.40000 > 10.0.0.2.443: TCP [S.], length 0
//! IP6 2001:db8::1.5353 > ff02::fb.5353: UDP, length 120
//! VLAN 7 IP 10.0.0.1 > 10.0.0.2: ICMP echo request, length 64
//! ARP 10.0.0.1 > 10.0.0.2: request, length 28
//! 02:00:00:00:00:01 > ff:ff:ff:ff:ff:ff: ethertype 0x88cc, length 60
//! ```
//! Lengths are those on the wire, behind the last header that is named; headers that aren't captured leave
//! words out.

use etherparse::{LaxNetSlice, LaxSlicedPacket, TcpSlice, TransportSlice};
use scope_packet::headers::Kind;
use scope_packet::{Headers, LinkType};
use serde_json::{Map, Value, json};
use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// What can be said of a packet by its headers.
#[derive(Debug, Default)]
pub struct Line {
    vlan: Option<u16>,
    /// `IP`, `IP6` or `ARP`; `None`: something else.
    network: Option<&'static str>,
    source: Option<String>,
    destination: Option<String>,
    ports: Option<(u16, u16)>,
    /// Of IP.
    protocol: Option<u8>,
    fragment: bool,
    tcp_flags: Option<String>,
    /// What kind of ICMP message or ARP question it is, or which type of frame.
    message: Option<String>,
    /// Bytes on the wire behind the last header that is named.
    length: u64,
}

impl Line {
    /// Of a packet of this link type: its captured bytes, and how long it was on the wire.
    pub fn of(link_type: LinkType, data: &[u8], wire_bytes: u32) -> Line {
        let headers = Headers::parse(link_type, data);
        let at = headers.network_offset() as usize;
        let mut line = Line {
            vlan: (headers.vlan_tags() > 0).then(|| headers.vlan_id()),
            length: u64::from(wire_bytes),
            ..Line::default()
        };
        match headers.kind() {
            Kind::Other => line.frame(&headers, data),
            Kind::Arp => line.arp(&headers, data.get(at..).unwrap_or_default()),
            Kind::Ipv4 | Kind::Ipv6 => {
                line.network = Some(if headers.kind() == Kind::Ipv4 { "IP" } else { "IP6" });
                line.length = u64::from(wire_bytes).saturating_sub(at as u64);
                line.addresses(&headers, data);
                line.fragment = headers.fragment();
                line.ip(data.get(at..).unwrap_or_default());
                line.protocol = line.protocol.or_else(|| headers.addresses().then(|| headers.protocol()));
                line.ports = headers.ports();
            }
        }
        line
    }

    fn addresses(&mut self, headers: &Headers, data: &[u8]) {
        if let Some((source, destination)) = headers.address_bytes(data) {
            (self.source, self.destination) = (address(source), address(destination));
        }
    }

    fn frame(&mut self, headers: &Headers, data: &[u8]) {
        if !headers.ethernet() {
            return;
        }
        let mac = |at: usize| {
            let bytes: Vec<String> = data[at..at + 6].iter().map(|byte| format!("{byte:02x}")).collect();
            bytes.join(":")
        };
        (self.source, self.destination) = (Some(mac(6)), Some(mac(0)));
        let at = 12 + 4 * headers.vlan_tags() as usize;
        let kind = data.get(at..at + 2).map(|kind| u16::from_be_bytes([kind[0], kind[1]]));
        self.message = kind.map(|kind| match kind {
            0..0x600 => "802.3".to_string(),
            _ => format!("ethertype {kind:#06x}"),
        });
    }

    fn arp(&mut self, headers: &Headers, data: &[u8]) {
        self.network = Some("ARP");
        self.length = self.length.saturating_sub(u64::from(headers.network_offset()));
        let operation = data.get(6..8).map(|bytes| u16::from_be_bytes([bytes[0], bytes[1]]));
        self.message = operation.map(|operation| match operation {
            1 => "request".to_string(),
            2 => "reply".to_string(),
            other => format!("operation {other}"),
        });
        let ip = |at: usize| data.get(at..at + 4).and_then(address);
        (self.source, self.destination) = (ip(14), ip(24));
    }

    /// What lies behind the network header.
    fn ip(&mut self, data: &[u8]) {
        let Ok(packet) = LaxSlicedPacket::from_ip(data) else { return };
        // What the header says; with segmentation offload it says nothing, and the packet's length counts.
        let (said, header) = match &packet.net {
            Some(LaxNetSlice::Ipv4(ip)) => {
                (u64::from(ip.header().total_len()), ip.header().slice().len() as u64)
            }
            Some(LaxNetSlice::Ipv6(ip)) => {
                let payload = u64::from(ip.header().payload_length());
                (if payload == 0 { 0 } else { 40 + payload }, 40)
            }
            _ => return,
        };
        let whole = if said == 0 { self.length } else { said };
        let behind = match packet.ip_payload() {
            Some(payload) => {
                self.protocol = Some(payload.ip_number.0);
                (payload.payload.as_ptr() as usize - data.as_ptr() as usize) as u64
            }
            None => header,
        };
        self.length = whole.saturating_sub(behind);
        match &packet.transport {
            Some(TransportSlice::Tcp(tcp)) => {
                self.tcp_flags = Some(flags(tcp));
                self.length = self.length.saturating_sub(u64::from(tcp.data_offset()) * 4);
            }
            Some(TransportSlice::Udp(_)) => self.length = self.length.saturating_sub(8),
            Some(TransportSlice::Icmpv4(icmp)) => {
                self.message = Some(icmp4(icmp.type_u8(), icmp.code_u8()));
            }
            Some(TransportSlice::Icmpv6(icmp)) => {
                self.message = Some(icmp6(icmp.type_u8(), icmp.code_u8()));
            }
            _ => {}
        }
    }

    /// In words, on one line, without its time.
    pub fn text(&self) -> String {
        let mut text = String::new();
        let place = |address: &Option<String>, port: Option<u16>| match (address, port) {
            (Some(address), Some(port)) => format!("{address}.{port}"),
            (Some(address), None) => address.clone(),
            (None, _) => "?".to_string(),
        };
        if let Some(vlan) = self.vlan {
            let _ = write!(text, "VLAN {vlan} ");
        }
        if let Some(network) = self.network {
            let _ = write!(text, "{network} ");
        }
        if self.source.is_some() || self.destination.is_some() {
            let (from, to) = self.ports.unzip();
            let _ = write!(text, "{} > {}: ", place(&self.source, from), place(&self.destination, to));
        }
        if let Some(protocol) = self.protocol {
            text += &protocol_word(protocol);
            text += if self.tcp_flags.is_some() || self.message.is_some() { " " } else { "" };
        }
        if let Some(flags) = &self.tcp_flags {
            let _ = write!(text, "[{flags}]");
        }
        text += self.message.as_deref().unwrap_or("");
        if self.fragment {
            text += if text.ends_with([' ', ':']) { "fragment" } else { ", fragment" };
        }
        text += if text.is_empty() || text.ends_with(' ') { "" } else { ", " };
        let _ = write!(text, "length {}", self.length);
        text
    }

    /// As JSON: keys only for what is known.
    pub fn json(&self) -> Map<String, Value> {
        let known = [
            ("vlan", self.vlan.map(|vlan| json!(vlan))),
            ("network", self.network.map(|network| json!(network.to_lowercase()))),
            ("source", self.source.as_ref().map(|source| json!(source))),
            ("destination", self.destination.as_ref().map(|destination| json!(destination))),
            ("source_port", self.ports.map(|(port, _)| json!(port))),
            ("destination_port", self.ports.map(|(_, port)| json!(port))),
            ("protocol", self.protocol.map(|protocol| json!(protocol_word(protocol).to_lowercase()))),
            ("tcp_flags", self.tcp_flags.as_ref().map(|flags| json!(flags))),
            ("message", self.message.as_ref().map(|message| json!(message))),
            ("fragment", self.fragment.then_some(json!(true))),
        ];
        known.into_iter().filter_map(|(key, value)| Some((key.to_string(), value?))).collect()
    }
}

/// An address out of 4 or 16 bytes.
fn address(bytes: &[u8]) -> Option<String> {
    let four = <[u8; 4]>::try_from(bytes).map(|bytes| IpAddr::from(Ipv4Addr::from(bytes)));
    let sixteen = || <[u8; 16]>::try_from(bytes).map(|bytes| IpAddr::from(Ipv6Addr::from(bytes)));
    four.or_else(|_| sixteen()).ok().map(|address| address.to_string())
}

/// The flags by tcpdump's letters.
fn flags(tcp: &TcpSlice<'_>) -> String {
    let letters = [
        (tcp.fin(), 'F'),
        (tcp.syn(), 'S'),
        (tcp.rst(), 'R'),
        (tcp.psh(), 'P'),
        (tcp.ack(), '.'),
        (tcp.urg(), 'U'),
        (tcp.ece(), 'E'),
        (tcp.cwr(), 'W'),
    ];
    let set: String = letters.iter().filter(|(is_set, _)| *is_set).map(|(_, letter)| letter).collect();
    if set.is_empty() { "none".to_string() } else { set }
}

/// The usual name of an IP protocol, or its number.
pub fn protocol_word(protocol: u8) -> String {
    let word = match protocol {
        1 => "ICMP",
        2 => "IGMP",
        4 => "IPIP",
        6 => "TCP",
        17 => "UDP",
        41 => "IP6",
        47 => "GRE",
        50 => "ESP",
        51 => "AH",
        58 => "ICMP6",
        89 => "OSPF",
        103 => "PIM",
        112 => "VRRP",
        132 => "SCTP",
        other => return format!("proto {other}"),
    };
    word.to_string()
}

fn icmp4(kind: u8, code: u8) -> String {
    match kind {
        0 => "echo reply".to_string(),
        3 => format!("unreachable (code {code})"),
        5 => "redirect".to_string(),
        8 => "echo request".to_string(),
        11 => "time exceeded".to_string(),
        _ => format!("type {kind} code {code}"),
    }
}

fn icmp6(kind: u8, code: u8) -> String {
    match kind {
        1 => format!("unreachable (code {code})"),
        2 => "packet too big".to_string(),
        3 => "time exceeded".to_string(),
        128 => "echo request".to_string(),
        129 => "echo reply".to_string(),
        133 => "router solicitation".to_string(),
        134 => "router advertisement".to_string(),
        135 => "neighbor solicitation".to_string(),
        136 => "neighbor advertisement".to_string(),
        _ => format!("type {kind} code {code}"),
    }
}
