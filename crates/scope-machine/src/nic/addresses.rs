//! Addresses that interfaces have now: asked for at a route socket that was opened once, so that no right is needed
//! later.
//!
//! ```text
//! RTM_NEWLINK  0 head 16 | 16 family u8 | 20 index i32 | 32 attributes: IFLA_IFNAME
//! RTM_NEWADDR  0 head 16 | 16 family u8 | 17 prefix u8 | 20 index u32 | 24 attributes: IFA_LOCAL, IFA_ADDRESS
//! ```

use super::netlink::{
    Attributes, HEAD_BYTES, LINK_ATTRIBUTES_AT, Messages, READ_BYTES, RouteSocket, i32_at, text, u16_at,
    u32_at,
};
use std::collections::{HashMap, HashSet};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Where attributes begin behind the head of an address.
const ADDRESS_ATTRIBUTES_AT: usize = 24;
/// Longest that an answer may take, ms.
const ANSWER_MS_MAX: i32 = 500;
/// Reads of one answer.
const READS_MAX: usize = 4096;

/// Asks for addresses.
#[derive(Debug)]
pub struct Addresses {
    socket: RouteSocket,
    buffer: Vec<u8>,
    /// Of the last question: answers to others are passed over.
    sequence: u32,
}

/// Addresses by the name of their interface.
pub type OfInterfaces = HashMap<String, HashSet<IpAddr>>;

impl Addresses {
    /// Opens the socket. No rights are needed.
    ///
    /// # Errors
    /// The system's.
    pub fn open() -> io::Result<Addresses> {
        Ok(Addresses { socket: RouteSocket::open(0)?, buffer: vec![0; READ_BYTES], sequence: 0 })
    }

    /// What interfaces have now, in this process's network namespace.
    ///
    /// # Errors
    /// The system's, or no answer in half a second.
    pub fn now(&mut self) -> io::Result<OfInterfaces> {
        let mut names: HashMap<i32, String> = HashMap::new();
        self.ask(libc::RTM_GETLINK, |message| names.extend(link(message)))?;
        let mut found = OfInterfaces::new();
        self.ask(libc::RTM_GETADDR, |message| {
            if let Some((index, address)) = address(message)
                && let Some(name) = names.get(&index)
            {
                found.entry(name.clone()).or_default().insert(address);
            }
        })?;
        Ok(found)
    }

    /// Asks for a list; `each` gets its messages.
    fn ask(&mut self, kind: u16, mut each: impl FnMut(&[u8])) -> io::Result<()> {
        self.sequence = self.sequence.wrapping_add(1);
        self.socket.ask_for_list(kind, self.sequence)?;
        for _ in 0..READS_MAX {
            self.socket.wait(ANSWER_MS_MAX)?;
            let messages = match self.socket.read(&mut self.buffer) {
                Ok(messages) => messages,
                Err(cause) if matches!(cause.raw_os_error(), Some(libc::EAGAIN | libc::EINTR)) => continue,
                Err(cause) => return Err(cause),
            };
            for message in Messages(messages) {
                if u32_at(message, 8) != Some(self.sequence) {
                    continue;
                }
                match u16_at(message, 4) {
                    Some(kind) if kind == libc::NLMSG_DONE as u16 => return Ok(()),
                    Some(kind) if kind == libc::NLMSG_ERROR as u16 => {
                        let number = i32_at(message, HEAD_BYTES).unwrap_or(0);
                        return Err(io::Error::from_raw_os_error(-number));
                    }
                    _ => each(message),
                }
            }
        }
        Err(io::ErrorKind::TimedOut.into())
    }
}

fn link(message: &[u8]) -> Option<(i32, String)> {
    let index = i32_at(message, 20)?;
    let mut attributes = Attributes(message.get(LINK_ATTRIBUTES_AT..)?);
    let (_, name) = attributes.find(|(kind, _)| *kind == libc::IFLA_IFNAME)?;
    Some((index, text(name)))
}

/// An address, the own one where there is a peer's beside it.
fn address(message: &[u8]) -> Option<(i32, IpAddr)> {
    let index = i32_at(message, 20)?;
    let (mut own, mut any) = (None, None);
    for (kind, bytes) in Attributes(message.get(ADDRESS_ATTRIBUTES_AT..)?) {
        let read = || match bytes.len() {
            4 => <[u8; 4]>::try_from(bytes).ok().map(|bytes| IpAddr::V4(Ipv4Addr::from(bytes))),
            16 => <[u8; 16]>::try_from(bytes).ok().map(|bytes| IpAddr::V6(Ipv6Addr::from(bytes))),
            _ => None,
        };
        match kind {
            libc::IFA_LOCAL => own = read(),
            libc::IFA_ADDRESS => any = read(),
            _ => {}
        }
    }
    Some((index, own.or(any)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_interface_has_its_address() {
        let mut addresses = Addresses::open().unwrap();
        for _ in 0..3 {
            let now = addresses.now().unwrap();
            let own = now.get("lo").into_iter().flatten().collect::<Vec<_>>();
            assert!(own.iter().all(|address| address.is_loopback()), "{own:?}");
        }
    }

    #[test]
    fn an_own_address_goes_before_a_peer_s() {
        let message = |attributes: &[(u16, &[u8])]| {
            let mut message = vec![0; ADDRESS_ATTRIBUTES_AT];
            message[20..24].copy_from_slice(&7i32.to_ne_bytes());
            for (kind, bytes) in attributes {
                message.extend((bytes.len() as u16 + 4).to_ne_bytes());
                message.extend(kind.to_ne_bytes());
                message.extend(*bytes);
            }
            message
        };
        let (own, peer) = ([10, 0, 0, 1], [10, 0, 0, 2]);
        let both = message(&[(libc::IFA_ADDRESS, &peer), (libc::IFA_LOCAL, &own)]);
        assert_eq!(address(&both), Some((7, "10.0.0.1".parse().unwrap())));
        let one = message(&[(libc::IFA_ADDRESS, &[0x20; 16])]);
        assert_eq!(address(&one).map(|(_, address)| address.is_ipv6()), Some(true));
        for len in 0..both.len() {
            address(&both[..len]); // what ends before its time is none
        }
    }
}
