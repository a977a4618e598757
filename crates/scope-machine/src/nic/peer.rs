//! The other end of a pair of virtual interfaces (veth): what its packets lack is fixed there, not here.
//!
//! ```text
//! message:   0 length u32 | 4 type u16 | 6 flags u16 | 8 number u32 | 12 port u32
//! a link's body: 16 family u8 | 20 index i32 | 32 attributes
//! a namespace's body: 16 family u8 | 20 attributes
//! attribute: 0 length u16 | 2 type u16 | 4 its bytes, padded to 4
//! ```
//! The kernel says the other end's number, and the number under which its network namespace is known here.
//! The interface's name there needs `CAP_NET_ADMIN`, the namespace's name that `ip netns` gave it one. The
//! rest stays unknown.

use super::netlink::{Attributes, HEAD_BYTES, LINK_ATTRIBUTES_AT, READ_BYTES, RouteSocket, i32_at, u16_at};
use scope_spelling::printable::shell_word;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::path::Path;

/// Where `ip netns` keeps namespaces that have names.
const NAMESPACES_AT: &str = "/run/netns";
/// Namespaces that are looked at.
const NAMESPACES_MAX: usize = 1024;
const NAMESPACE_ATTRIBUTES_AT: usize = 20;
/// Attributes of a question for a namespace (`NETNSA_*`).
const NAMESPACE_NUMBER: u16 = 1;
const NAMESPACE_FILE: u16 = 3;

/// The other end, as far as it is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Peer {
    /// Its name.
    pub name: Option<String>,
    /// Its network namespace.
    pub namespace: Namespace,
}

/// A network namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Namespace {
    /// This one.
    Here,
    /// One with a name for `ip netns`.
    Named(String),
    /// Another one.
    #[default]
    Unnamed,
}

impl Peer {
    /// The line that sets `words` on this end of `interface`.
    pub fn line(&self, interface: &str, words: &str) -> String {
        let name = self.name.as_ref().map(shell_word);
        match (name, &self.namespace) {
            (Some(name), Namespace::Here) => format!("ethtool -K {name} {words}"),
            (Some(name), Namespace::Named(namespace)) => {
                format!("ip netns exec {} ethtool -K {name} {words}", shell_word(namespace))
            }
            (Some(name), Namespace::Unnamed) => {
                format!(
                    "in the network namespace of {interface}'s other end (a container?): ethtool -K {name} \
                     {words}"
                )
            }
            (None, Namespace::Named(namespace)) => {
                format!(
                    "in network namespace {namespace}, on the interface that is {interface}'s other end: \
                     ethtool -K NAME {words}"
                )
            }
            (None, _) => format!("where {interface}'s other end is (a container?): ethtool -K NAME {words}"),
        }
    }
}

/// Queries the kernel for other ends. It opens its socket at the beginning; files of namespaces later.
pub struct Peers {
    socket: RouteSocket,
}

impl Peers {
    /// Opens what queries need.
    ///
    /// # Errors
    /// The system's, where there are no sockets.
    pub fn open() -> io::Result<Peers> {
        Ok(Peers { socket: RouteSocket::open(0)? })
    }

    /// The other end of the veth interface number `index`; `None` where the kernel knows none.
    pub fn of(&self, index: i32) -> Option<Peer> {
        let own = self.link(index, None)?;
        let other = number(&own, LINK_ATTRIBUTES_AT, libc::IFLA_LINK).filter(|&other| other > 0)?;
        let id = number(&own, LINK_ATTRIBUTES_AT, libc::IFLA_LINK_NETNSID);
        let namespace = match id {
            None => Namespace::Here,
            Some(id) => self.namespace(id).map_or(Namespace::Unnamed, Namespace::Named),
        };
        Some(Peer { name: self.link(other, id).and_then(|link| name(&link)), namespace })
    }

    /// What the kernel says of an interface, here or in a namespace with a number.
    fn link(&self, index: i32, namespace: Option<i32>) -> Option<Vec<u8>> {
        let mut body = vec![0; LINK_ATTRIBUTES_AT - HEAD_BYTES];
        body[4..8].copy_from_slice(&index.to_ne_bytes());
        if let Some(number) = namespace {
            add(&mut body, libc::IFLA_TARGET_NETNSID, number);
        }
        self.query(libc::RTM_GETLINK, libc::RTM_NEWLINK, &body)
    }

    /// The name of the namespace that has a number here.
    fn namespace(&self, wanted: i32) -> Option<String> {
        let entries = std::fs::read_dir(NAMESPACES_AT).ok()?.take(NAMESPACES_MAX).flatten();
        let mut names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        names.find(|name| {
            let file = std::fs::File::open(Path::new(NAMESPACES_AT).join(name));
            file.is_ok_and(|file| self.namespace_number(file.as_raw_fd()) == Some(wanted))
        })
    }

    fn namespace_number(&self, file: RawFd) -> Option<i32> {
        let mut body = vec![0; NAMESPACE_ATTRIBUTES_AT - HEAD_BYTES];
        add(&mut body, NAMESPACE_FILE, file);
        let answer = self.query(libc::RTM_GETNSID, libc::RTM_NEWNSID, &body)?;
        number(&answer, NAMESPACE_ATTRIBUTES_AT, NAMESPACE_NUMBER)
    }

    /// Sends one question; its answer if it is of the kind `expected`. The kernel answers before the sending
    /// returns.
    fn query(&self, kind: u16, expected: u16, body: &[u8]) -> Option<Vec<u8>> {
        self.socket.ask(kind, 0, 0, body).ok()?;
        let mut answer = vec![0; READ_BYTES];
        let bytes = self.socket.read(&mut answer).ok()?.len();
        answer.truncate(bytes);
        (u16_at(&answer, 4) == Some(expected)).then_some(answer)
    }
}

/// Adds an attribute that is a number.
fn add(body: &mut Vec<u8>, kind: u16, number: i32) {
    body.extend(8u16.to_ne_bytes());
    body.extend(kind.to_ne_bytes());
    body.extend(number.to_ne_bytes());
}

fn attribute(answer: &[u8], at: usize, wanted: u16) -> Option<&[u8]> {
    Attributes(answer.get(at..)?).find(|(kind, _)| *kind == wanted).map(|(_, bytes)| bytes)
}

fn number(answer: &[u8], at: usize, wanted: u16) -> Option<i32> {
    i32_at(attribute(answer, at, wanted)?, 0)
}

fn name(link: &[u8]) -> Option<String> {
    let bytes = attribute(link, LINK_ATTRIBUTES_AT, libc::IFLA_IFNAME)?;
    let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    String::from_utf8(bytes[..end].to_vec()).ok().filter(|name| !name.is_empty())
}

/// What an answer says of a link and of a namespace.
#[cfg(feature = "fuzzing")]
pub(crate) fn parse(answer: &[u8]) -> (Option<String>, [Option<i32>; 2]) {
    let of_link = number(answer, LINK_ATTRIBUTES_AT, libc::IFLA_LINK);
    (name(answer), [of_link, number(answer, NAMESPACE_ATTRIBUTES_AT, NAMESPACE_NUMBER)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_says_where_the_other_end_is_as_far_as_it_is_known() {
        let peer = |name: Option<&str>, namespace| Peer { name: name.map(String::from), namespace };
        let line = |peer: Peer| peer.line("ob", "tx off");
        assert_eq!(line(peer(Some("oa"), Namespace::Here)), "ethtool -K oa tx off");
        assert_eq!(
            line(peer(Some("oa"), Namespace::Named("red".into()))),
            "ip netns exec red ethtool -K oa tx off"
        );
        assert!(
            line(peer(Some("oa"), Namespace::Unnamed))
                .ends_with("ob's other end (a container?): ethtool -K oa tx off")
        );
        assert!(line(peer(None, Namespace::Named("red".into()))).starts_with("in network namespace red"));
        assert!(line(Peer::default()).contains("where ob's other end is"));
    }

    #[test]
    fn what_the_kernel_does_not_report_is_unknown() {
        let peers = Peers::open().unwrap();
        assert_eq!(peers.of(i32::MAX), None, "no such interface");
        assert_eq!(peers.of(1), None, "a loopback interface has no other end");
        assert_eq!(peers.link(1, None).and_then(|link| name(&link)), Some("lo".to_string()));
        assert_eq!(peers.link(1, Some(i32::MAX)), None, "no such namespace");
    }
}
