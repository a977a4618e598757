//! What one packet says of its flow: key, direction, lengths, and of TCP its segment.
//!
//! The headers are parsed already; what they lack (IP lengths, flags, sequence numbers, whole IPv6 addresses) is
//! read from the packet's bytes where the parse found the network layer.

use crate::key::{Common, End, Key, counterpart};
use scope_packet::{Headers, Kind};

pub(crate) const TCP: u8 = 6;
const ICMP: u8 = 1;
const ICMP6: u8 = 58;
/// Extension headers of IPv6 that are stepped over, as the parse does.
const EXTENSIONS_MAX: usize = 8;

/// Flags of TCP.
pub const FIN: u8 = 0x01;
/// Begins a connection.
pub const SYN: u8 = 0x02;
/// Resets it.
pub const RST: u8 = 0x04;
/// Acknowledges.
pub const ACK: u8 = 0x10;

/// What the IP header and the one behind it say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// What tells its flow apart.
    pub key: Key,
    /// It goes from the greater end of the key to the lesser one.
    pub is_reverse: bool,
    /// Length by the IP header.
    pub ip_bytes: u32,
    /// Of TCP, where its header is captured.
    pub segment: Option<Segment>,
    /// It is a fragment.
    pub fragment: Option<Fragment>,
}

/// A TCP segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Number of its first byte.
    pub sequence: u32,
    /// Number of the byte that is expected next.
    pub acknowledged: u32,
    /// Bytes of payload on the wire.
    pub payload: u32,
    /// As announced, not scaled.
    pub window: u16,
    /// Its flags: [`FIN`] and others.
    pub flags: u8,
}

/// Which datagram a fragment is of, beside its addresses, and whether it is the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fragment {
    /// The datagram's identification.
    pub id: u32,
    /// It has the header of the transport.
    pub is_first: bool,
}

/// What stands behind the IP header.
struct Transport {
    at: usize,
    /// Its bytes on the wire.
    bytes: u32,
    fragment: Option<Fragment>,
}

/// Reads a packet of the worker's `interface` to where it is to be. `None`: it has no IP addresses, or they weren't
/// captured; then nothing is meant by what is there.
#[inline]
pub fn read(headers: &Headers, data: &[u8], interface: u32, into: &mut Reading) -> Option<()> {
    if !headers.addresses() {
        return None;
    }
    let network = data.get(headers.network_offset() as usize..)?;
    let is_ipv6 = match headers.kind() {
        Kind::Ipv4 => false,
        Kind::Ipv6 => true,
        Kind::Other | Kind::Arp => return None,
    };
    let (ip_bytes, transport) = if is_ipv6 { ipv6(network)? } else { ipv4(network)? };
    let protocol = headers.protocol();
    let is_first = transport.fragment.is_none_or(|fragment| fragment.is_first);
    let of_icmp = (protocol == if is_ipv6 { ICMP6 } else { ICMP } && is_first)
        .then(|| network.get(transport.at..transport.at + 2))
        .flatten();
    let (ports, is_one_way) = match of_icmp {
        Some(&[kind, code]) => match counterpart(is_ipv6, kind) {
            Some(other) => ((u16::from(kind), u16::from(other)), false),
            None => ((u16::from(kind), u16::from(code)), true),
        },
        _ => (headers.ports().unwrap_or((0, 0)), false),
    };
    let vlan = if headers.vlan_tags() > 0 { headers.vlan_id() } else { 0 };
    let common = Common { interface, vlan, protocol, is_ipv6, is_one_way };
    let (key, is_reverse) = if is_ipv6 {
        let end = |at: usize, port| {
            Some(End { address: u128::from_be_bytes(*network.get(at..)?.first_chunk()?), port })
        };
        Key::new(end(8, ports.0)?, end(24, ports.1)?, common)
    } else {
        let address = |at: usize| Some(u32::from_be_bytes(*network.get(at..)?.first_chunk()?));
        Key::new4((address(12)?, ports.0), (address(16)?, ports.1), common)
    };
    (into.key, into.is_reverse, into.ip_bytes) = (key, is_reverse, ip_bytes);
    into.segment = (protocol == TCP && is_first).then(|| segment(network, &transport)).flatten();
    into.fragment = transport.fragment;
    Some(())
}

#[inline]
fn ipv4(network: &[u8]) -> Option<(u32, Transport)> {
    let ip: &[u8; 20] = network.first_chunk()?;
    let total = u32::from(u16::from_be_bytes([ip[2], ip[3]]));
    let header = u32::from(ip[0] & 15) * 4;
    let place = u16::from_be_bytes([ip[6], ip[7]]);
    let fragment = (place & 0x3fff != 0).then(|| Fragment {
        id: u32::from(u16::from_be_bytes([ip[4], ip[5]])),
        is_first: place & 0x1fff == 0,
    });
    let transport = Transport { at: header as usize, bytes: total.saturating_sub(header), fragment };
    Some((total, transport))
}

#[inline]
fn ipv6(network: &[u8]) -> Option<(u32, Transport)> {
    let ip: &[u8; 40] = network.first_chunk()?;
    let payload = u32::from(u16::from_be_bytes([ip[4], ip[5]]));
    let mut transport = Transport { at: 40, bytes: payload, fragment: None };
    let mut next = ip[6];
    for _ in 0..EXTENSIONS_MAX {
        if !matches!(next, 0 | 43 | 44 | 51 | 60 | 135 | 139 | 140) {
            break;
        }
        let Some(extension) = network.get(transport.at..transport.at + 8) else { break };
        let len = match next {
            44 => {
                let place = u16::from_be_bytes([extension[2], extension[3]]);
                if place & 0xfff9 != 0 {
                    let id = u32::from_be_bytes([extension[4], extension[5], extension[6], extension[7]]);
                    transport.fragment = Some(Fragment { id, is_first: place & 0xfff8 == 0 });
                }
                8
            }
            51 => (u32::from(extension[1]) + 2) * 4,
            _ => (u32::from(extension[1]) + 1) * 8,
        };
        next = extension[0];
        transport.at += len as usize;
        transport.bytes = transport.bytes.saturating_sub(len);
        if transport.fragment.is_some_and(|fragment| !fragment.is_first) {
            break;
        }
    }
    Some((payload + 40, transport))
}

#[inline]
fn segment(network: &[u8], transport: &Transport) -> Option<Segment> {
    let tcp: &[u8; 16] = network.get(transport.at..)?.first_chunk()?;
    let number = |at: usize| u32::from_be_bytes([tcp[at], tcp[at + 1], tcp[at + 2], tcp[at + 3]]);
    Some(Segment {
        sequence: number(4),
        acknowledged: number(8),
        payload: transport.bytes.saturating_sub(u32::from(tcp[12] >> 4) * 4),
        window: u16::from_be_bytes([tcp[14], tcp[15]]),
        flags: tcp[13],
    })
}
