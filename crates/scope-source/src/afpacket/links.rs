//! Which interfaces there are and how they are: a route socket (netlink, `RTNLGRP_LINK`) reports each
//! change, without polling.
//!
//! ```text
//! message:   0 length u32 | 4 type u16 | 6 flags u16 | 8 number u32 | 12 port u32
//! its body: 16 family u8 | 18 kind u16 | 20 index i32 | 24 flags u32 | 28 change u32 | 32 attributes
//! attribute: 0 length u16 | 2 type u16 | 4 its bytes, padded to 4
//! ```
//! The table begins with the kernel's list of all interfaces. Where the socket overflowed, the list is
//! requested again: what is not in it is gone. Only three attributes are needed, so they are read here.

use scope_machine::nic::netlink::{
    Attributes, HEAD_BYTES, LINK_ATTRIBUTES_AT, Messages, READ_BYTES, RouteSocket, i32_at, text, u16_at,
    u32_at,
};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::{AsRawFd, RawFd};

/// Reads of one look; what comes faster waits for the next one.
const READS_MAX: usize = 64;
/// Longest that the first list may take, ms.
const LIST_MS_MAX: i32 = 2000;
/// Interface flag of the kernel: a cable, or what stands for it, is in.
const LOWER_UP: u32 = 1 << 16;

/// Whether packets can come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LinkState {
    /// Up, with a link.
    Up,
    /// Up, without a link (carrier).
    NoCarrier,
    /// Down.
    Down,
}

/// One interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Link {
    pub index: i32,
    pub name: String,
    /// As ARPHRD numbers it.
    pub kind: u16,
    pub state: LinkState,
    /// Bytes behind the link header; 0 where the kernel didn't say.
    pub mtu: u32,
}

/// One change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// This interface is new, or not as it was.
    Link(Link),
    /// The interface of this number was removed; another one may have that number afterwards.
    Gone(i32),
}

/// Changes since the last look.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LinkChanges {
    /// In their order.
    pub changes: Vec<Change>,
    /// A new list came to its end: changes before it were missed.
    pub listed: bool,
}

/// All interfaces of this network namespace, kept up to date.
#[derive(Debug)]
pub(crate) struct Links {
    socket: RouteSocket,
    buffer: Vec<u8>,
    table: Table,
}

impl Links {
    /// Listens, then reads the list of all interfaces. No rights are needed.
    pub(crate) fn open() -> io::Result<Links> {
        let socket = RouteSocket::open(libc::RTMGRP_LINK as u32)?;
        let mut links = Links { socket, buffer: vec![0; READ_BYTES], table: Table::default() };
        links.ask_for_list()?;
        while links.table.listed.is_some() {
            links.socket.wait(LIST_MS_MAX)?;
            links.read()?;
        }
        Ok(links)
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }

    /// All interfaces, by number.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Link> {
        self.table.known.values()
    }

    pub(crate) fn get(&self, index: i32) -> Option<&Link> {
        self.table.known.get(&index)
    }

    /// Reads the changes since the last look; never waits.
    pub(crate) fn read(&mut self) -> io::Result<LinkChanges> {
        let mut found = LinkChanges::default();
        for _ in 0..READS_MAX {
            let cause = match self.socket.read(&mut self.buffer) {
                Ok(messages) => {
                    self.table.take(messages, &mut found);
                    if std::mem::take(&mut self.table.list_again) {
                        self.ask_for_list()?;
                    }
                    continue;
                }
                Err(cause) => cause,
            };
            match cause.raw_os_error() {
                Some(libc::EAGAIN) => break,
                Some(libc::EINTR) => {}
                // There were more messages than the socket holds: only a new list helps.
                Some(libc::ENOBUFS) if self.table.listed.is_none() => self.ask_for_list()?,
                Some(libc::ENOBUFS) => self.table.overflowed = true,
                _ => return Err(cause),
            }
        }
        Ok(found)
    }

    fn ask_for_list(&mut self) -> io::Result<()> {
        self.socket.ask_for_list(libc::RTM_GETLINK, 0)?;
        self.table.listed = Some(BTreeSet::new());
        Ok(())
    }
}

/// The table that the messages make.
#[derive(Debug, Default)]
pub(crate) struct Table {
    known: BTreeMap<i32, Link>,
    /// While a list is being read: what it, or a change beside it, has named.
    listed: Option<BTreeSet<i32>>,
    /// The socket overflowed while a list was being read.
    overflowed: bool,
    /// Another list is needed.
    list_again: bool,
}

impl Table {
    /// At the beginning of a list.
    #[cfg(feature = "fuzzing")]
    pub(crate) fn listing() -> Table {
        Table { listed: Some(BTreeSet::new()), ..Table::default() }
    }

    #[cfg(feature = "fuzzing")]
    pub(crate) fn known(&self) -> &BTreeMap<i32, Link> {
        &self.known
    }

    /// Reads one datagram of messages. Malformed ones are skipped.
    pub(crate) fn take(&mut self, messages: &[u8], found: &mut LinkChanges) {
        for message in Messages(messages) {
            self.message(message, found);
        }
    }

    fn message(&mut self, message: &[u8], found: &mut LinkChanges) {
        match u16_at(message, 4) {
            Some(libc::RTM_NEWLINK) => self.new_link(message, found),
            Some(libc::RTM_DELLINK) if family(message) == Some(0) => {
                let Some(index) = i32_at(message, 20) else { return };
                if self.known.remove(&index).is_some() {
                    found.changes.push(Change::Gone(index));
                }
            }
            Some(kind) if kind == libc::NLMSG_DONE as u16 || kind == libc::NLMSG_ERROR as u16 => {
                self.end_list(found)
            }
            _ => {}
        }
    }

    /// Bridges report their ports by the same messages with a family of their own: that is no change of the
    /// interface.
    fn new_link(&mut self, message: &[u8], found: &mut LinkChanges) {
        let (Some(0), Some(kind), Some(index), Some(flags)) =
            (family(message), u16_at(message, 18), i32_at(message, 20), u32_at(message, 24))
        else {
            return;
        };
        let before = self.known.get(&index);
        let mut name = before.map_or(String::new(), |link| link.name.clone());
        let mut mtu = before.map_or(0, |link| link.mtu);
        for (kind, bytes) in Attributes(&message[LINK_ATTRIBUTES_AT.min(message.len())..]) {
            match kind {
                libc::IFLA_IFNAME => name = text(bytes),
                libc::IFLA_MTU => mtu = u32_at(bytes, 0).unwrap_or(mtu),
                _ => {}
            }
        }
        let state = match (flags & libc::IFF_UP as u32 != 0, flags & LOWER_UP != 0) {
            (true, true) => LinkState::Up,
            (true, false) => LinkState::NoCarrier,
            (false, _) => LinkState::Down,
        };
        if let Some(listed) = &mut self.listed {
            listed.insert(index);
        }
        let link = Link { index, name, kind, state, mtu };
        if self.known.get(&index) != Some(&link) {
            self.known.insert(index, link.clone());
            found.changes.push(Change::Link(link));
        }
    }

    fn end_list(&mut self, found: &mut LinkChanges) {
        let Some(listed) = self.listed.take() else { return };
        let missing: Vec<i32> = self.known.keys().copied().filter(|index| !listed.contains(index)).collect();
        for index in &missing {
            self.known.remove(index);
        }
        found.changes.extend(missing.into_iter().map(Change::Gone));
        found.listed = true;
        self.list_again = std::mem::take(&mut self.overflowed);
    }
}

fn family(message: &[u8]) -> Option<u8> {
    message.get(HEAD_BYTES).copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const UP: u32 = libc::IFF_UP as u32 | LOWER_UP;

    /// A message of `kind` about interface `index`.
    fn message(kind: u16, family: u8, index: i32, flags: u32, attributes: &[(u16, &[u8])]) -> Vec<u8> {
        let mut message = vec![0; LINK_ATTRIBUTES_AT];
        message[4..6].copy_from_slice(&kind.to_ne_bytes());
        message[HEAD_BYTES] = family;
        message[18..20].copy_from_slice(&1u16.to_ne_bytes());
        message[20..24].copy_from_slice(&index.to_ne_bytes());
        message[24..28].copy_from_slice(&flags.to_ne_bytes());
        for (kind, bytes) in attributes {
            message.extend((bytes.len() as u16 + 4).to_ne_bytes());
            message.extend(kind.to_ne_bytes());
            message.extend(*bytes);
            message.resize(message.len().next_multiple_of(4), 0);
        }
        let len = message.len() as u32;
        message[..4].copy_from_slice(&len.to_ne_bytes());
        message
    }

    fn named(index: i32, flags: u32, name: &[u8]) -> Vec<u8> {
        message(
            libc::RTM_NEWLINK,
            0,
            index,
            flags,
            &[(libc::IFLA_IFNAME, name), (libc::IFLA_MTU, &1500u32.to_ne_bytes())],
        )
    }

    fn take(table: &mut Table, messages: &[Vec<u8>]) -> LinkChanges {
        let mut found = LinkChanges::default();
        table.take(&messages.concat(), &mut found);
        found
    }

    #[test]
    fn messages_come_to_a_table_of_interfaces() {
        let mut table = Table::default();
        take(&mut table, &[named(2, UP, b"eth0\0"), named(3, 0, b"eth1\0")]);
        let link = |index, name: &str, state, mtu| Link { index, name: name.into(), kind: 1, state, mtu };
        assert_eq!(table.known[&2], link(2, "eth0", LinkState::Up, 1500));
        assert_eq!(table.known[&3], link(3, "eth1", LinkState::Down, 1500));
        // What a message doesn't name stays as it was.
        take(
            &mut table,
            &[message(
                libc::RTM_NEWLINK,
                0,
                3,
                libc::IFF_UP as u32,
                &[(libc::IFLA_MTU, &9000u32.to_ne_bytes())],
            )],
        );
        assert_eq!(table.known[&3], link(3, "eth1", LinkState::NoCarrier, 9000));
    }

    #[test]
    fn one_that_is_removed_and_made_again_under_its_number_was_gone() {
        let mut table = Table::default();
        take(&mut table, &[named(2, UP, b"eth0\0")]);
        let found = take(&mut table, &[message(libc::RTM_DELLINK, 0, 2, 0, &[]), named(2, 0, b"eth0\0")]);
        assert_eq!(found.changes, [Change::Gone(2), Change::Link(table.known[&2].clone())]);
        assert_eq!(table.known[&2].state, LinkState::Down);
    }

    #[test]
    fn a_port_that_leaves_a_bridge_is_still_there() {
        let mut table = Table::default();
        take(&mut table, &[named(2, UP, b"eth0\0")]);
        let found = take(&mut table, &[message(libc::RTM_DELLINK, libc::AF_BRIDGE as u8, 2, 0, &[])]);
        assert_eq!((found, table.known.len()), (LinkChanges::default(), 1));
    }

    #[test]
    fn what_a_new_list_does_not_name_is_gone() {
        let mut table = Table::default();
        take(&mut table, &[named(2, UP, b"eth0\0"), named(3, UP, b"eth1\0")]);
        table.listed = Some(BTreeSet::new());
        table.overflowed = true;
        let found =
            take(&mut table, &[named(3, UP, b"eth1\0"), message(libc::NLMSG_DONE as u16, 0, 0, 0, &[])]);
        assert_eq!(found, LinkChanges { changes: vec![Change::Gone(2)], listed: true });
        assert_eq!((table.known.len(), table.list_again), (1, true));
    }

    #[test]
    fn the_kernels_own_list_has_the_loopback_interface() {
        let links = Links::open().unwrap();
        let lo = links.all().find(|link| link.name == "lo").unwrap();
        assert_eq!((lo.kind, links.get(lo.index)), (libc::ARPHRD_LOOPBACK, Some(lo)));
    }

    proptest! {
        #[test]
        fn junk_never_panics(junk in proptest::collection::vec(any::<u8>(), 0..200), cut in 0usize..80) {
            let mut table = Table { listed: Some(BTreeSet::new()), ..Table::default() };
            table.take(&junk, &mut LinkChanges::default());
            let mut odd = named(2, UP, b"eth0\0");
            let at = cut.min(odd.len() - 1);
            for (to, from) in odd[at..].iter_mut().zip(&junk) {
                *to = *from;
            }
            table.take(&odd, &mut LinkChanges::default());
        }
    }
}
