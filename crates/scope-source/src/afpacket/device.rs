//! The network interface as capture sees it: its number, link type and clock, and whether it is up.

use std::io;
use std::time::{Duration, Instant};

use scope_packet::{LinkType, TimestampSource};

use super::socket::Socket;

/// What does not change while capture runs.
#[derive(Clone, Debug)]
pub(super) struct Device {
    pub index: i32,
    pub link_type: LinkType,
    pub loopback: bool,
    pub timestamps: TimestampSource,
}

/// Interface kinds that the libc crate doesn't list.
const ARPHRD_RAWIP: u16 = 519;

/// What [`link_type`] knows, in words.
pub(crate) const SUPPORTED: &str = "Ethernet, loopback, raw IP (tun, ipip, sit), 802.11 with radiotap";

/// The link type of frames from an interface of ARPHRD kind `kind`; `None` where it isn't supported.
pub(crate) fn link_type(kind: u16) -> Option<LinkType> {
    match kind {
        libc::ARPHRD_ETHER | libc::ARPHRD_LOOPBACK => Some(LinkType::ETHERNET),
        libc::ARPHRD_NONE | ARPHRD_RAWIP | libc::ARPHRD_TUNNEL | libc::ARPHRD_TUNNEL6 | libc::ARPHRD_SIT => Some(LinkType::RAW),
        libc::ARPHRD_IEEE80211_RADIOTAP => Some(LinkType(127)),
        _ => None,
    }
}

/// Bytes before what the MTU counts: an Ethernet header and two VLAN tags.
const LINK_HEAD_BYTES: u32 = 22;

impl Device {
    /// Longest packet that passes this interface as one on the wire, bytes. `None` where the MTU can't be asked for, or headers of
    /// the capturing driver stand before the packet.
    pub(super) fn wire_bytes_max(&self, socket: &Socket, name: &str) -> Option<u32> {
        let plain = [LinkType::ETHERNET, LinkType::RAW].contains(&self.link_type);
        plain.then(|| socket.mtu(name).ok()).flatten().map(|mtu| mtu.saturating_add(LINK_HEAD_BYTES))
    }

    /// Looks at the interface named `name`. The inner error is the kind of an interface that isn't supported.
    pub(super) fn look(socket: &Socket, name: &str) -> io::Result<Result<Device, u16>> {
        let kind = socket.hardware_kind(name)?;
        let Some(link_type) = link_type(kind) else { return Ok(Err(kind)) };
        // Most drivers answer with an error: they have no such clock.
        let hardware = socket.stamps_in_hardware(name).unwrap_or(false);
        Ok(Ok(Device {
            index: socket.interface_index(name)?,
            link_type,
            loopback: kind == libc::ARPHRD_LOOPBACK,
            timestamps: if hardware { TimestampSource::Hardware } else { TimestampSource::Kernel },
        }))
    }
}

/// Whether the interface is there and up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LinkState {
    Up,
    Down,
    Gone,
}

/// While an interface is not up, it is looked at this often.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Follows an interface down and up, and says so once each time. The packet socket itself goes on by itself.
pub(super) struct LinkWatch {
    name: String,
    index: i32,
    state: LinkState,
    gone: Option<Instant>,
    looked: Instant,
    warnings: Vec<String>,
}

impl LinkWatch {
    /// Warnings that wait at once; more are not kept until these are fetched.
    const WARNINGS_MAX: usize = 64;

    pub(super) fn begin(socket: &Socket, name: &str, index: i32) -> LinkWatch {
        let mut watch = LinkWatch {
            name: name.to_string(),
            index,
            state: LinkState::Up,
            gone: None,
            looked: Instant::now(),
            warnings: Vec::new(),
        };
        if !matches!(socket.is_up(index), Ok(true)) {
            watch.state = LinkState::Down;
            watch.warn(format!("interface {name} is down; waiting for it"));
        }
        watch
    }

    pub(super) fn is_up(&self) -> bool {
        self.state == LinkState::Up
    }

    /// Since when the interface doesn't exist any more.
    pub(super) fn gone_since(&self) -> Option<Instant> {
        self.gone
    }

    /// The socket said that the interface went down.
    pub(super) fn went_down(&mut self, socket: &Socket) {
        if self.state == LinkState::Up {
            self.state = LinkState::Down;
            self.warn(format!("interface {} went down; waiting for it", self.name));
        }
        self.look_now(socket);
    }

    /// Looks whether the interface has come up, if it is time to.
    pub(super) fn look(&mut self, socket: &Socket) {
        if self.state == LinkState::Down && self.looked.elapsed() >= LOOK_EVERY {
            self.look_now(socket);
        }
    }

    fn look_now(&mut self, socket: &Socket) {
        self.looked = Instant::now();
        match socket.is_up(self.index) {
            Ok(true) => {
                self.state = LinkState::Up;
                self.warn(format!("interface {} is up again", self.name));
            }
            Ok(false) => {}
            Err(cause) if matches!(cause.raw_os_error(), Some(libc::ENODEV | libc::ENXIO)) => {
                self.state = LinkState::Gone;
                self.gone = Some(Instant::now());
                self.warn(format!("interface {} was removed; nothing more will come from it", self.name));
            }
            Err(_) => {}
        }
    }

    pub(super) fn warn(&mut self, text: String) {
        if self.warnings.len() < Self::WARNINGS_MAX {
            self.warnings.push(text);
        }
    }

    pub(super) fn take_warnings(&mut self) -> Vec<String> {
        std::mem::take(&mut self.warnings)
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
