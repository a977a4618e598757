//! The network interface as capture sees it: its number, link type and clock.

use scope_machine::nic::{SUPPORTED, link_type};
use scope_packet::{LinkType, TimestampSource};

use super::links::Link;
use super::socket::Socket;

/// What does not change for as long as the interface is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Device {
    pub index: i32,
    pub link_type: LinkType,
    pub loopback: bool,
    pub timestamps: TimestampSource,
}

/// Bytes before what the MTU counts: an Ethernet header and two VLAN tags.
const LINK_HEAD_BYTES: u32 = 22;

impl Device {
    /// The device behind `link`; the error says why it can't be captured.
    pub(super) fn of(socket: &Socket, link: &Link) -> Result<Device, String> {
        let Some(link_type) = link_type(link.kind) else {
            return Err(format!(
                "interface {} is of kind {} (ARPHRD); supported are {SUPPORTED}",
                link.name, link.kind
            ));
        };
        // Most drivers answer with an error: they have no such clock.
        let hardware = socket.stamps_in_hardware(&link.name).unwrap_or(false);
        Ok(Device {
            index: link.index,
            link_type,
            loopback: link.kind == libc::ARPHRD_LOOPBACK,
            timestamps: if hardware { TimestampSource::Hardware } else { TimestampSource::Kernel },
        })
    }

    /// Longest packet that passes this interface as one on the wire, bytes. `None` where the MTU is
    /// unknown, or headers of the capturing driver stand before the packet.
    pub(super) fn wire_bytes_max(&self, socket: &Socket, name: &str) -> Option<u32> {
        let plain = [LinkType::ETHERNET, LinkType::RAW].contains(&self.link_type);
        plain.then(|| socket.mtu(name).ok()).flatten().map(|mtu| mtu.saturating_add(LINK_HEAD_BYTES))
    }

    /// Whether it may be the same device, made again under another number.
    pub(super) fn is_like(&self, other: &Device) -> bool {
        Device { index: other.index, ..self.clone() } == *other
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_of_interfaces_have_their_link_types() {
        let check = |kind, expected| assert_eq!(link_type(kind), expected, "{kind}");
        check(libc::ARPHRD_ETHER, Some(LinkType::ETHERNET));
        check(libc::ARPHRD_LOOPBACK, Some(LinkType::ETHERNET));
        check(libc::ARPHRD_NONE, Some(LinkType::RAW));
        check(libc::ARPHRD_CAN, None);
    }
}
