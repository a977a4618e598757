//! A packet as Lua sees it: 64 bytes with the address of its bytes and the places of its layers.
//!
//! ```text
//!  0  address of the bytes (8)          48  link type (2)
//!  8  capture time, ns (8)              50  EtherType behind tags, 0: unknown (2)
//! 16  captured bytes (4)                52  source port, destination port (2, 2)
//! 20  bytes on the wire (4)             56  network header that is whole: 4, 6, 2 for ARP, else 0 (1)
//! 24  interface (4)                     57  protocol (1)
//! 28  flags (4)                         58  the protocol again, where its first 4 bytes are there (1)
//! 32  network header begins (4)         59  VLAN tags, bit 7: Ethernet addresses are there (1)
//! 36  transport header begins (4)       60  index of this record (4)
//! 40  payload begins (4)
//! 44  payload ends (4)
//! ```
//! Places may lie behind the captured bytes: who reads compares. A place that means nothing lies at the end.
//! `lua/types.lua` has the same layout.

use scope_packet::{Headers, Kind, LinkType};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Packets that a script sees with one call.
pub const RECORDS_MAX: usize = 256;

/// One packet, lent to a script for one call.
#[derive(Clone, Copy, Debug)]
pub struct Lent<'a> {
    /// The captured bytes.
    pub data: &'a [u8],
    /// Bytes on the wire.
    pub original_len: u32,
    /// Capture time, ns since the Unix epoch.
    pub time_ns: i64,
    /// Number of the interface.
    pub interface: u32,
    /// The `epb_flags` word of pcapng.
    pub flags: u32,
    /// Link type.
    pub link_type: LinkType,
}

/// See the module. Its places are numbers that Lua takes for signed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C, align(64))]
pub(crate) struct Record {
    pub(crate) data: u64,
    pub(crate) time_ns: i64,
    pub(crate) captured: i32,
    original: i32,
    interface: i32,
    flags: u32,
    pub(crate) network_at: i32,
    pub(crate) transport_at: i32,
    pub(crate) payload_at: i32,
    pub(crate) end: i32,
    link_type: u16,
    pub(crate) ethertype: u16,
    source_port: u16,
    destination_port: u16,
    pub(crate) network: u8,
    pub(crate) protocol: u8,
    pub(crate) transport: u8,
    pub(crate) tags: u8,
    index: i32,
}

const _: () = assert!(size_of::<Record>() == 64 && std::mem::offset_of!(Record, index) == 60);
const _: () = assert!(std::mem::offset_of!(Record, network) == 56);

const TCP: u8 = 6;
const UDP: u8 = 17;
const SCTP: u8 = 132;
const ETHERNET_ADDRESSES: u8 = 0x80;
const TAGS_MAX: u32 = 127;
/// Ethernet, IPv4 and TCP without options.
const PLAIN_BYTES: usize = 54;
/// A longer packet is lent up to here: places stay far below what an i32 holds.
const CAPTURED_MAX: usize = 1 << 30;

fn be16(data: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(data.get(at..at + 2)?.try_into().ok()?))
}

/// Where the transport layer begins, its protocol, and whether this is a fragment that isn't the first.
struct Transport {
    at: usize,
    protocol: u8,
    later_fragment: bool,
}

/// Behind an IPv6 header at `at`, which is whole: over the extension headers, as far as they are there.
fn behind_ipv6(data: &[u8], at: usize) -> Transport {
    const EXTENSIONS_MAX: usize = 8;
    let mut transport = Transport { at: at + 40, protocol: data[at + 6], later_fragment: false };
    for _ in 0..EXTENSIONS_MAX {
        if !matches!(transport.protocol, 0 | 43 | 44 | 51 | 60 | 135 | 139 | 140) {
            return transport;
        }
        let Some(extension) = data.get(transport.at..transport.at + 8) else { return transport };
        let bytes = match transport.protocol {
            44 => 8,
            51 => (extension[1] as usize + 2) * 4,
            _ => (extension[1] as usize + 1) * 8,
        };
        let later =
            transport.protocol == 44 && u16::from_be_bytes([extension[2], extension[3]]) & 0xfff8 != 0;
        transport = Transport { at: transport.at + bytes, protocol: extension[0], later_fragment: later };
        if later {
            return transport;
        }
    }
    transport
}

impl Record {
    /// Makes this the record of a packet, which has place `index` among its batch. It holds the address of the
    /// packet's bytes: it is for as long as these are lent.
    ///
    /// In place, since a record that is copied is loaded in wide words right behind its narrow stores, and waits
    /// for these (measured: a third of an empty script's time).
    #[inline(always)]
    pub(crate) fn set(&mut self, packet: &Lent<'_>, index: usize) {
        if !self.set_plain(packet, index) {
            *self = Record::any(packet, index);
        }
    }

    /// The short way for what most packets are: UDP or TCP over IPv4 without options, tags or fragments. The
    /// other way gives the same record (measured: 13 ns less).
    /// `false`: it isn't such a packet.
    #[inline(always)]
    fn set_plain(&mut self, packet: &Lent<'_>, index: usize) -> bool {
        let data = packet.data;
        let Some(head) = data.first_chunk::<PLAIN_BYTES>() else { return false };
        let word = |at: usize| u16::from_be_bytes([head[at], head[at + 1]]);
        let protocol = head[23];
        let udp = protocol == UDP;
        let plain = packet.link_type == LinkType::ETHERNET
            && u32::from_be_bytes([0, head[12], head[13], head[14]]) == 0x08_0045
            && word(20) & 0x3fff == 0
            && (udp || protocol == TCP)
            && data.len() <= CAPTURED_MAX;
        if !plain {
            return false;
        }
        let captured = data.len() as i32;
        let total_bytes = word(16) as i32;
        let mut end = if total_bytes >= 20 { captured.min(14 + total_bytes) } else { captured };
        let payload_at = if udp {
            let bytes = word(38) as i32;
            end = if bytes >= 8 { end.min(34 + bytes) } else { end };
            42
        } else {
            34 + (head[46] >> 4).max(5) as i32 * 4
        };
        *self = Record {
            data: data.as_ptr() as u64,
            time_ns: packet.time_ns,
            captured,
            original: packet.original_len.min(i32::MAX as u32) as i32,
            interface: packet.interface as i32,
            flags: packet.flags,
            network_at: 14,
            transport_at: 34,
            payload_at,
            end,
            link_type: packet.link_type.0,
            ethertype: 0x0800,
            source_port: word(34),
            destination_port: word(36),
            network: 4,
            protocol,
            transport: protocol,
            tags: ETHERNET_ADDRESSES,
            index: index as i32,
        };
        true
    }

    /// The record of any packet.
    #[inline(never)]
    fn any(packet: &Lent<'_>, index: usize) -> Record {
        let data = &packet.data[..packet.data.len().min(CAPTURED_MAX)];
        let headers = Headers::parse(packet.link_type, data);
        let captured = data.len();
        let mut record = Record {
            data: data.as_ptr() as u64,
            time_ns: packet.time_ns,
            captured: captured as i32,
            original: packet.original_len.min(i32::MAX as u32) as i32,
            interface: packet.interface as i32,
            flags: packet.flags,
            transport_at: captured as i32,
            payload_at: captured as i32,
            end: captured as i32,
            link_type: packet.link_type.0,
            index: index as i32,
            tags: headers.vlan_tags().min(TAGS_MAX) as u8
                | if headers.ethernet() { ETHERNET_ADDRESSES } else { 0 },
            ..Record::default()
        };
        record.network_from(packet.link_type, data, &headers);
        record
    }

    #[inline]
    fn network_from(&mut self, link_type: LinkType, data: &[u8], headers: &Headers) {
        let at = match headers.kind() {
            Kind::Other => front_bytes(link_type) + headers.vlan_tags() as usize * 4,
            _ => headers.network_offset() as usize,
        };
        self.network_at = at as i32;
        self.ethertype = match (headers.kind(), headers.vlan_tags(), link_type) {
            (Kind::Ipv4, ..) => 0x0800,
            (Kind::Ipv6, ..) => 0x86dd,
            (_, 0, LinkType::LINUX_SLL2) => be16(data, 0).unwrap_or(0),
            (_, _, LinkType::ETHERNET | LinkType::LINUX_SLL | LinkType::LINUX_SLL2) => {
                be16(data, at - 2).unwrap_or(0)
            }
            _ => 0,
        };
        match headers.kind() {
            Kind::Ipv4 if data.len() >= at + 20 && data[at] >> 4 == 4 => {
                let header_bytes = (data[at] & 15) as usize * 4;
                let total_bytes = u16::from_be_bytes([data[at + 2], data[at + 3]]) as usize;
                let later_fragment = u16::from_be_bytes([data[at + 6], data[at + 7]]) & 0x1fff != 0;
                self.network = 4;
                if total_bytes >= header_bytes {
                    self.end = self.end.min((at + total_bytes) as i32);
                }
                let transport = Transport { at: at + header_bytes, protocol: data[at + 9], later_fragment };
                self.transport_from(data, headers, &transport);
            }
            Kind::Ipv6 if data.len() >= at + 40 && data[at] >> 4 == 6 => {
                let bytes = u16::from_be_bytes([data[at + 4], data[at + 5]]) as usize;
                self.network = 6;
                if bytes > 0 {
                    self.end = self.end.min((at + 40 + bytes) as i32);
                }
                self.transport_from(data, headers, &behind_ipv6(data, at));
            }
            Kind::Arp if headers.addresses() => self.network = 2,
            _ => {}
        }
    }

    #[inline]
    fn transport_from(&mut self, data: &[u8], headers: &Headers, transport: &Transport) {
        let at = transport.at;
        self.protocol = transport.protocol;
        self.transport_at = at as i32;
        self.payload_at = at as i32;
        if transport.later_fragment || at + 4 > data.len() {
            return;
        }
        self.transport = transport.protocol;
        if let Some((source, destination)) = headers.ports() {
            (self.source_port, self.destination_port) = (source, destination);
        }
        let header_bytes = match transport.protocol {
            UDP => {
                let bytes = be16(data, at + 4).unwrap_or(0);
                if bytes >= 8 {
                    self.end = self.end.min((at + bytes as usize) as i32);
                }
                8
            }
            TCP => data.get(at + 12).map_or(20, |offset| (offset >> 4).max(5) as usize * 4),
            SCTP => 12,
            // What follows depends on the type.
            1 | 58 => 4,
            _ => 0,
        };
        self.payload_at = (at + header_bytes) as i32;
    }

    /// The key of the packet's flow; `data` are the packet's bytes. `None`: it isn't IP.
    pub(crate) fn key(&self, data: &[u8]) -> Option<Key> {
        let at = self.network_at as usize;
        let mut ends = [([0u8; 16], 0u16); 2];
        let (from, len) = match self.network {
            4 => (12, 4),
            6 => (8, 16),
            _ => return None,
        };
        for (end, place) in ends.iter_mut().zip([at + from, at + from + len]) {
            end.0[..len].copy_from_slice(data.get(place..place + len)?);
        }
        if matches!(self.transport, TCP | UDP | SCTP) {
            (ends[0].1, ends[1].1) = (self.source_port, self.destination_port);
        }
        if ends[1] < ends[0] {
            ends.swap(0, 1);
        }
        let [(a, a_port), (b, b_port)] = ends;
        let mut key =
            Key { a, b, a_port, b_port, protocol: self.protocol, version: self.network, ..Key::default() };
        key.hash = key.hashed();
        Some(key)
    }
}

/// Bytes in front of the network layer where there are no tags.
fn front_bytes(link_type: LinkType) -> usize {
    match link_type {
        LinkType::ETHERNET => 14,
        LinkType::LINUX_SLL => 16,
        LinkType::LINUX_SLL2 => 20,
        LinkType::NULL | LinkType::LOOP | LinkType::PPP | LinkType::PPP_HDLC => 4,
        _ => 0,
    }
}

/// A flow as Lua keeps it: both ends, the lower one first. Without its hash it compares as 5 words of 8 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C, align(8))]
pub(crate) struct Key {
    pub(crate) a: [u8; 16],
    pub(crate) b: [u8; 16],
    pub(crate) a_port: u16,
    pub(crate) b_port: u16,
    pub(crate) protocol: u8,
    /// 4 or 6; 0: there is no flow.
    pub(crate) version: u8,
    unused: u16,
    hash: u32,
    unused_too: u32,
}

/// Bytes of a [`Key`].
pub(crate) const KEY_BYTES: usize = 48;
const _: () = assert!(size_of::<Key>() == KEY_BYTES);

impl Key {
    /// A multiplication for each word, and the high half: enough for a table that is bounded anyway.
    fn hashed(&self) -> u32 {
        const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
        let word = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().unwrap_or([0; 8]));
        let ports = u64::from(self.a_port) << 32 | u64::from(self.b_port) << 16 | u64::from(self.protocol);
        let words = [word(&self.a[..8]), word(&self.a[8..]), word(&self.b[..8]), word(&self.b[8..]), ports];
        let mixed = words.iter().fold(0u64, |hash, word| (hash ^ word).wrapping_mul(ODD).rotate_left(29));
        (mixed ^ mixed >> 32) as u32
    }

    /// As bytes in the order of its fields.
    pub(crate) fn bytes(&self) -> [u8; KEY_BYTES] {
        let mut bytes = [0; KEY_BYTES];
        bytes[..16].copy_from_slice(&self.a);
        bytes[16..32].copy_from_slice(&self.b);
        bytes[32..34].copy_from_slice(&self.a_port.to_ne_bytes());
        bytes[34..36].copy_from_slice(&self.b_port.to_ne_bytes());
        bytes[36] = self.protocol;
        bytes[37] = self.version;
        bytes
    }

    /// From such bytes; its hash is not among what counts.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Key> {
        let bytes: &[u8; KEY_BYTES] = bytes.try_into().ok()?;
        Some(Key {
            a: bytes[..16].try_into().ok()?,
            b: bytes[16..32].try_into().ok()?,
            a_port: u16::from_ne_bytes([bytes[32], bytes[33]]),
            b_port: u16::from_ne_bytes([bytes[34], bytes[35]]),
            protocol: bytes[36],
            version: bytes[37],
            ..Key::default()
        })
    }

    /// The address of an end.
    pub(crate) fn address(&self, end: &[u8; 16]) -> IpAddr {
        match self.version {
            6 => IpAddr::V6(Ipv6Addr::from(*end)),
            _ => IpAddr::V4(Ipv4Addr::new(end[0], end[1], end[2], end[3])),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::specimens::builtin_packets;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_short_way_gives_the_same_record(kind in 0usize..38, changes in proptest::collection::vec((12usize..60, any::<u8>()), 0..3),
            len in prop_oneof![Just(2000usize), 0usize..80]) {
            let mut specimen = builtin_packets().swap_remove(kind);
            for (at, byte) in changes {
                if let Some(place) = specimen.data.get_mut(at) {
                    *place = byte;
                }
            }
            specimen.data.truncate(len);
            let lent = specimen.lend(7);
            let mut plain = Record::default();
            if plain.set_plain(&lent, 3) {
                assert_eq!(plain, Record::any(&lent, 3));
            }
        }
    }

    #[test]
    fn both_ends_of_a_flow_have_one_key() {
        let packet = builtin_packets().swap_remove(0);
        let mut back = packet.clone();
        for (at, from) in [(26, 30), (34, 36)] {
            let len = from - at;
            back.data[at..from].copy_from_slice(&packet.data[from..from + len]);
            back.data[from..from + len].copy_from_slice(&packet.data[at..from]);
        }
        let key =
            |packet: &crate::Specimen| Record::any(&packet.lend(0), 0).key(&packet.data).expect("it is IP");
        assert_eq!(key(&packet), key(&back));
        assert_eq!(
            Key::from_bytes(&key(&packet).bytes()).map(|key| (key.a_port, key.protocol)),
            Some((1000, 17))
        );
        let arp =
            builtin_packets().into_iter().find(|packet| packet.name == "ARP request").expect("there is one");
        assert_eq!(Record::any(&arp.lend(0), 0).key(&arp.data), None);
    }
}
