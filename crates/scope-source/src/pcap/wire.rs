//! How long packets can be on the wire, and so which of libpcap's aren't as they are there. Their direction
//! isn't known.

use super::Copied;
use scope_machine::nic::Altered;
use scope_machine::nic::Ethtool;
use scope_packet::LinkType;

/// An Ethernet header with two tags, which stand before what the MTU counts.
const LINK_HEAD_BYTES: u32 = 22;

/// Longest packet of one interface, looked up again when a longer one comes: the MTU may have grown.
pub(super) struct Wire {
    interface: String,
    /// `None` where the MTU is unknown, or other headers stand before the packet.
    ethtool: Option<Ethtool>,
    bytes_max: u32,
}

impl Wire {
    pub(super) fn of(interface: &str, link: LinkType) -> Wire {
        let plain = [LinkType::ETHERNET, LinkType::RAW].contains(&link);
        let ethtool = if plain { Ethtool::open().ok() } else { None };
        let mut wire = Wire { interface: interface.to_string(), ethtool, bytes_max: u32::MAX };
        wire.look();
        wire
    }

    fn look(&mut self) {
        let link = self.ethtool.as_ref().and_then(|ethtool| ethtool.link(&self.interface).ok());
        if let Some(link) = link {
            self.bytes_max = link.mtu.saturating_add(LINK_HEAD_BYTES);
        }
    }

    /// Counts what is not as on the wire. `snap_len` is the configured one; 0: all.
    #[inline]
    pub(super) fn count(&mut self, altered: &mut Altered, packet: &Copied, snap_len: u32) {
        if packet.original_len > self.bytes_max {
            self.look();
            altered.long += u64::from(packet.original_len > self.bytes_max);
        }
        let snap_len = Some(snap_len as usize).filter(|&bytes| bytes > 0);
        altered.count_truncated(packet.original_len as usize, packet.len, snap_len);
    }
}
