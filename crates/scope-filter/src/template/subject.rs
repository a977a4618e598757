//! A packet as names are filled from it: as it was parsed, and what lies behind its MPLS labels, if it has
//! some.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use scope_packet::{Headers, Kind, LinkType};

/// Ethertypes of MPLS.
const MPLS_TYPES: [u16; 2] = [0x8847, 0x8848];
/// Where the label stack of a PPP packet with address and control begins, and its protocol numbers.
const PPP_MPLS_AT: usize = 4;
const PPP_MPLS: [u16; 2] = [0x0281, 0x0283];
/// Most labels that are looked behind: the filter's text is repeated for each.
pub(super) const LABELS_MAX: usize = 3;
/// Bytes of a label.
const LABEL_BYTES: usize = 4;
/// In the third byte of the last label.
const BOTTOM: u8 = 1;

/// A packet.
pub(super) struct Subject<'a> {
    /// Its parse and its bytes.
    pub outer: (&'a Headers, &'a [u8]),
    /// The same of what its labels carry; without labels it is the packet itself.
    inner: (Headers, &'a [u8]),
    /// MPLS labels in front of that.
    pub labels: usize,
}

impl<'a> Subject<'a> {
    /// The packet `data` of link type `link`, whose parse is `headers`.
    pub fn new(headers: &'a Headers, link: LinkType, data: &'a [u8]) -> Subject<'a> {
        // Only of what the parse doesn't know there may be more to see.
        let carried = if headers.kind() == Kind::Other && headers.partial() {
            behind_labels(headers, link, data)
        } else {
            None
        };
        match carried {
            Some((ip, labels)) => {
                Subject { outer: (headers, data), inner: (Headers::parse(LinkType::RAW, ip), ip), labels }
            }
            None => Subject { outer: (headers, data), inner: (*headers, data), labels: 0 },
        }
    }

    /// What the network layer is, behind labels.
    pub fn kind(&self) -> Kind {
        self.inner.0.kind()
    }

    /// Source and destination address.
    pub fn addresses(&self) -> Option<(IpAddr, IpAddr)> {
        let (headers, data) = &self.inner;
        let (source, destination) = headers.address_bytes(data)?;
        Some((address(source)?, address(destination)?))
    }

    /// IP protocol.
    pub fn protocol(&self) -> Option<u8> {
        let headers = &self.inner.0;
        (headers.addresses() && matches!(headers.kind(), Kind::Ipv4 | Kind::Ipv6))
            .then_some(headers.protocol())
    }

    /// Source and destination port.
    pub fn ports(&self) -> Option<(u16, u16)> {
        self.inner.0.ports()
    }

    /// The Ethernet address at `at`.
    pub fn mac(&self, at: usize) -> Option<&'a [u8]> {
        let (headers, data) = self.outer;
        data.get(at..at + 6).filter(|_| headers.ethernet())
    }

    /// Identifier of the outermost VLAN tag.
    pub fn vlan(&self) -> Option<u16> {
        let headers = self.outer.0;
        (headers.vlan_tags() > 0).then(|| headers.vlan_id())
    }
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    let v4 = <[u8; 4]>::try_from(bytes).ok().map(|bytes| IpAddr::V4(Ipv4Addr::from(bytes)));
    v4.or_else(|| <[u8; 16]>::try_from(bytes).ok().map(|bytes| IpAddr::V6(Ipv6Addr::from(bytes))))
}

/// The IP packet behind the labels of a packet, and how many there are. Only where libpcap's language has
/// `mpls`, so that a filter finds the others, too.
fn behind_labels<'a>(headers: &Headers, link: LinkType, data: &'a [u8]) -> Option<(&'a [u8], usize)> {
    let be16 = |at: usize| data.get(at..at + 2).map(|bytes| u16::from_be_bytes([bytes[0], bytes[1]]));
    let stack_at = match link {
        LinkType::ETHERNET => {
            let type_at = 12 + 4 * headers.vlan_tags() as usize;
            MPLS_TYPES.contains(&be16(type_at)?).then_some(type_at + 2)?
        }
        LinkType::PPP | LinkType::PPP_HDLC => {
            PPP_MPLS.contains(&be16(PPP_MPLS_AT - 2)?).then_some(PPP_MPLS_AT)?
        }
        _ => return None,
    };
    for label in 0..LABELS_MAX {
        let at = stack_at + label * LABEL_BYTES;
        if data.get(at + 2)? & BOTTOM != 0 {
            return Some((data.get(at + LABEL_BYTES..)?, label + 1));
        }
    }
    None
}
