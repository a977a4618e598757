//! Names of ports and protocols become numbers before libpcap sees a text, so that libpcap looks nothing up.
//!
//! libpcap looks `port http` up in the system's name service, which may ask the network
//! (`/etc/nsswitch.conf`). Here the names come from `/etc/services` and `/etc/protocols`, read once.
//!
//! ```text
//! tcp port http                  tcp port 80
//! ip proto ospf                  ip proto 89
//! port domain                    port 53              a service of TCP and of UDP
//! port http or 443               tcp port 80 or port 443
//! ```
//! The last line: `http` is a service of TCP alone, so libpcap reads it as `tcp port 80`, and `443` still
//! for any port 443. Where a text has such a name, each value behind that `port` gets its qualifiers written
//! out.

use std::borrow::Cow;
use std::collections::HashMap;
use std::io::Read;
use std::sync::OnceLock;

use crate::words::{self, Kind, Token, tokens};

/// The host's list of services.
const SERVICES_FILE: &str = "/etc/services";
/// The host's list of protocols.
const PROTOCOLS_FILE: &str = "/etc/protocols";
/// Bytes of such a list that are read; the rest is ignored.
const LIST_BYTES_MAX: u64 = 4 << 20;

/// Words that say what is in front of a value; a run of them is a head.
const QUALIFIERS: &str = "dst src link ether ppp slip fddi tr wlan arp rarp ip sctp tcp udp icmp igmp igrp pim vrrp carp radio ip6 \
    icmp6 ah esp atalk aarp decnet lat sca moprc mopdl iso esis es-is isis is-is l1 l2 iih lsp snp csnp psnp clnp stp ipx netbeui \
    host net mask gateway port portrange proto protochain type subtype direction dir address1 addr1 address2 addr2 address3 addr3 \
    address4 addr4 ra ta llc on ifname rset ruleset reason action";

/// A service's port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Service {
    tcp: Option<u16>,
    udp: Option<u16>,
}

/// What a host calls its ports and protocols.
#[derive(Debug, Default)]
pub(crate) struct Lists {
    services: HashMap<String, Service>,
    protocols: HashMap<String, u8>,
}

impl Lists {
    /// Those of this host, read when they are first needed.
    pub fn of_host() -> &'static Lists {
        static LISTS: OnceLock<Lists> = OnceLock::new();
        LISTS.get_or_init(|| Lists::parse(&read(SERVICES_FILE), &read(PROTOCOLS_FILE)))
    }

    /// From the texts of the two lists. The first line that has a name, or has it as an alias, holds.
    pub fn parse(services: &str, protocols: &str) -> Lists {
        let mut lists = Lists::default();
        for (number, names) in lines(services) {
            let Some((port, transport)) = number.split_once('/') else { continue };
            let Ok(port) = port.parse() else { continue };
            for name in names {
                let service = lists.services.entry(name.to_string()).or_default();
                match transport {
                    "tcp" => drop(service.tcp.get_or_insert(port)),
                    "udp" => drop(service.udp.get_or_insert(port)),
                    _ => {}
                }
            }
        }
        for (number, names) in lines(protocols) {
            let Ok(number) = number.parse() else { continue };
            for name in names {
                lists.protocols.entry(name.to_string()).or_insert(number);
            }
        }
        lists
    }

    /// A port and the transport that it has it for; a number is itself, for all of them.
    fn port(&self, name: &str) -> Result<(u16, Transport), String> {
        if let Ok(number) = name.parse() {
            return Ok((number, Transport::Any));
        }
        let unknown = || format!("unknown port '{name}': write its number, {SERVICES_FILE} has no such name");
        let service = self.services.get(name).ok_or_else(unknown)?;
        match (service.tcp, service.udp) {
            (Some(tcp), udp) => Ok((tcp, if udp == Some(tcp) { Transport::Any } else { Transport::Tcp })),
            (None, Some(udp)) => Ok((udp, Transport::Udp)),
            (None, None) => Err(unknown()),
        }
    }

    fn protocol(&self, name: &str) -> Result<u8, String> {
        let unknown =
            || format!("unknown ip proto '{name}': write its number, {PROTOCOLS_FILE} has no such name");
        self.protocols.get(name).copied().ok_or_else(unknown)
    }
}

/// Each line's second word, and its names: the first word and those behind the second.
fn lines(list: &str) -> impl Iterator<Item = (&str, Vec<&str>)> {
    list.lines().filter_map(|line| {
        let mut words = line.split('#').next().unwrap_or("").split_ascii_whitespace();
        let (name, number) = (words.next()?, words.next()?);
        Some((number, std::iter::once(name).chain(words).collect()))
    })
}

/// An unreadable list is an empty one: its names are unknown then.
fn read(path: &str) -> String {
    let mut bytes = Vec::new();
    if let Ok(file) = std::fs::File::open(path) {
        let _ = file.take(LIST_BYTES_MAX).read_to_end(&mut bytes);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Which transports a service has, or a head wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Transport {
    Any,
    Tcp,
    Udp,
    Sctp,
    Other,
}

/// What a value behind a head is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Value {
    Port,
    PortRange,
    /// An IP protocol.
    Protocol,
    /// Of libpcap's own tables, or no name at all.
    Else,
}

/// A run of qualifiers, which also holds for the values behind it that have none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Head {
    from: usize,
    to: usize,
    transport: Transport,
    value: Value,
}

/// One place of the text, and what stands there instead.
struct Change {
    from: usize,
    to: usize,
    /// Behind the qualifiers of which head, if they are written out.
    head: Option<Head>,
    /// A service of this alone.
    only: Transport,
    text: String,
}

/// The text with numbers for names, or in libpcap's words why it can't be had. The text holds no name then
/// that libpcap would look up.
pub(crate) fn numbered<'a>(
    text: &'a str,
    lists: impl FnOnce() -> &'static Lists,
) -> Result<Cow<'a, str>, String> {
    let tokens = tokens(text);
    if tokens.iter().all(|token| token.kind != Kind::Name) {
        return Ok(text.into());
    }
    words::check(text).map_err(|_| "names are not resolved".to_string())?;
    let reading = Reading::of(text, &tokens);
    if !reading.values.iter().any(|(token, head)| token.kind == Kind::Name && head.value != Value::Else) {
        return Ok(text.into());
    }
    reading.numbered(lists()).map(Cow::from)
}

/// A text's values, each with the head that holds for it.
struct Reading<'a> {
    text: &'a str,
    values: Vec<(Token<'a>, Head)>,
}

impl<'a> Reading<'a> {
    fn of(text: &'a str, tokens: &[Token<'a>]) -> Reading<'a> {
        let none = Head { from: 0, to: 0, transport: Transport::Any, value: Value::Else };
        let (mut head, mut open, mut outer, mut values) = (none, false, Vec::new(), Vec::new());
        for (at, token) in tokens.iter().enumerate() {
            let beside = |at: Option<usize>| at.and_then(|at| tokens.get(at)).map(|token| token.text);
            let (before, behind) = (beside(at.checked_sub(1)), beside(Some(at + 1)));
            match (token.kind, token.text) {
                (Kind::Bad, _) => break,
                (Kind::Symbol, "(" | "[") => {
                    outer.push(head);
                    open = false;
                }
                (Kind::Symbol, ")" | "]") => {
                    head = outer.pop().unwrap_or(head);
                    open = false;
                }
                (Kind::Word, "and" | "or" | "&&" | "||")
                    if open
                        && matches!(
                            (before, behind),
                            (Some("src"), Some("dst")) | (Some("dst"), Some("src"))
                        ) => {}
                (Kind::Word, word) if QUALIFIERS.split_ascii_whitespace().any(|known| known == word) => {
                    if !open {
                        head = Head { from: token.at, ..none };
                    }
                    open = true;
                    head.to = token.end();
                    head.take(word);
                }
                (Kind::Name | Kind::Number | Kind::Address, _) => {
                    let first =
                        open || matches!(before, Some("and" | "or" | "&&" | "||" | "not" | "!" | "("));
                    let last = matches!(behind, None | Some("and" | "or" | "&&" | "||" | ")"));
                    if token.kind == Kind::Name || (first && last) {
                        values.push((*token, head));
                    }
                    open = false;
                }
                _ => open = false,
            }
        }
        Reading { text, values }
    }

    fn numbered(&self, lists: &Lists) -> Result<String, String> {
        let mut changes = Vec::new();
        for (token, head) in &self.values {
            let (from, to) = (token.at, token.end());
            let name = token.text.strip_prefix('\\').unwrap_or(token.text);
            let (number, only) = match (token.kind, head.value) {
                (Kind::Name, Value::Port) => head.service(name, lists)?,
                (Kind::Name, Value::PortRange) => head.range(name, lists)?,
                (Kind::Name, Value::Protocol) => (lists.protocol(name)?.to_string(), Transport::Any),
                _ => (token.text.to_string(), Transport::Any),
            };
            changes.push(Change { from, to, head: None, only, text: number });
        }
        // A head of which some value is a service of one transport alone is removed, and written out in
        // front of each value.
        let alone = |change: &Change| change.only != Transport::Any;
        let heads: Vec<Head> = changes
            .iter()
            .zip(&self.values)
            .filter(|(change, _)| alone(change))
            .map(|(_, (_, head))| *head)
            .collect();
        for (change, (_, head)) in changes.iter_mut().zip(&self.values) {
            change.head = heads.contains(head).then_some(*head);
        }
        for head in &heads {
            changes.push(Change {
                from: head.from,
                to: head.to,
                head: None,
                only: Transport::Any,
                text: String::new(),
            });
        }
        changes.sort_by_key(|change| change.from);
        changes.dedup_by_key(|change| change.from);
        let (mut text, mut at) = (String::new(), 0);
        for change in changes {
            text.push_str(&self.text[at..change.from]);
            if let Some(head) = change.head {
                let transport = match change.only {
                    Transport::Tcp => "tcp ",
                    Transport::Udp => "udp ",
                    Transport::Any | Transport::Sctp | Transport::Other => "",
                };
                text.push_str(&format!("{transport}{} ", &self.text[head.from..head.to]));
            }
            text.push_str(&change.text);
            at = change.to;
        }
        text.push_str(&self.text[at..]);
        Ok(text)
    }
}

impl Head {
    /// One more qualifier.
    fn take(&mut self, word: &str) {
        match word {
            "tcp" => self.transport = Transport::Tcp,
            "udp" => self.transport = Transport::Udp,
            "sctp" => self.transport = Transport::Sctp,
            "ip" | "ip6" | "src" | "dst" => {}
            "port" => self.value = Value::Port,
            "portrange" => self.value = Value::PortRange,
            // Protocols of links and of ISO stand in libpcap's own tables.
            "proto" | "protochain" if self.transport == Transport::Any => self.value = Value::Protocol,
            "proto" | "protochain" => self.value = Value::Else,
            _ => (self.transport, self.value) = (Transport::Other, Value::Else),
        }
    }

    /// The number of a service behind this head, and the transport that must be written out.
    fn service(&self, name: &str, lists: &Lists) -> Result<(String, Transport), String> {
        let (number, of) = lists.port(name)?;
        Ok((number.to_string(), self.only(name, of)?))
    }

    /// `80-90` stays as it is; with a name in it each end is looked up.
    fn range(&self, name: &str, lists: &Lists) -> Result<(String, Transport), String> {
        let unknown = || format!("unknown port in range '{name}'");
        let (from, to) = name.split_once('-').ok_or_else(unknown)?;
        // As libpcap reads two numbers: what stands behind the second is nothing to it.
        let number = !from.is_empty() && from.bytes().all(|byte| byte.is_ascii_digit());
        if number && to.starts_with(|c: char| c.is_ascii_digit()) {
            return Ok((name.to_string(), Transport::Any));
        }
        let ((from, of_from), (to, of_to)) = (lists.port(from)?, lists.port(to)?);
        let of = if of_from == of_to { of_from } else { Transport::Any };
        Ok((format!("{from}-{to}"), self.only(name, of)?))
    }

    /// As libpcap joins what a head wants and what a service has.
    fn only(&self, name: &str, of: Transport) -> Result<Transport, String> {
        let wrong = |transport: &str| Err(format!("port '{name}' is {transport}"));
        match (self.transport, of) {
            (Transport::Udp | Transport::Sctp, Transport::Tcp) => wrong("tcp"),
            (Transport::Tcp | Transport::Sctp, Transport::Udp) => wrong("udp"),
            (Transport::Any, of) => Ok(of),
            _ => Ok(Transport::Any),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SERVICES: &str = "# a comment\nhttp 80/tcp www # WorldWideWeb\nssh\t22/tcp\ndomain 53/tcp\ndomain 53/udp\nntp 123/udp\n\
        odd 1/tcp\nodd 2/udp\nhttp 8000/tcp\nbroken x/tcp\nshort\nhttps 443/tcp\nhttps 443/udp\n";
    const PROTOCOLS: &str = "ip 0 IP\ntcp 6 TCP\nospf 89 OSPFIGP\n";

    fn lists() -> &'static Lists {
        static LISTS: OnceLock<Lists> = OnceLock::new();
        LISTS.get_or_init(|| Lists::parse(SERVICES, PROTOCOLS))
    }

    fn check(text: &str, expected: Result<&str, &str>) {
        let found =
            numbered(text, lists).map(|text| text.split_ascii_whitespace().collect::<Vec<_>>().join(" "));
        match (found, expected) {
            (Ok(found), Ok(expected)) => assert_eq!(found, expected, "{text}"),
            (Err(found), Err(expected)) => assert!(found.starts_with(expected), "{text}: {found}"),
            (found, _) => panic!("{text}: {found:?}"),
        }
    }

    #[test]
    fn names_of_services_and_protocols_become_numbers() {
        check("tcp port http and host 10.0.0.1", Ok("tcp port 80 and host 10.0.0.1"));
        check("tcp dst port www or 81", Ok("tcp dst port 80 or 81"));
        check("port domain or 54", Ok("port 53 or 54"));
        check("udp port (domain or ntp)", Ok("udp port (53 or 123)"));
        check("ip proto ospf or ip6 proto \\tcp", Ok("ip proto 89 or ip6 proto 6"));
        check("proto \\tcp", Ok("proto 6"));
        check("sctp port domain", Ok("sctp port 53"));
        check("tcp portrange ssh-http", Ok("tcp portrange 22-80"));
        check("portrange domain-https or portrange 80-90", Ok("portrange 53-443 or portrange 80-90"));
        check("tcp port odd", Ok("tcp port 1"));
        check("ether proto \\arp or link proto \\ip", Ok("ether proto \\arp or link proto \\ip"));
        check("iso proto \\esis and type mgt", Ok("iso proto \\esis and type mgt"));
        check("tcp[0] = 5 or foo", Err("names are not resolved"));
        check("tcp and foo", Err("names are not resolved"));
        check("foo", Ok("foo"));
    }

    #[test]
    fn a_service_of_one_transport_gets_it_written_out_and_the_values_behind_it_keep_theirs() {
        check("port http", Ok("tcp port 80"));
        check("src port ntp", Ok("udp src port 123"));
        check("src or dst port ssh", Ok("tcp src or dst port 22"));
        check("port http or 443", Ok("tcp port 80 or port 443"));
        check("port 443 or http and 81", Ok("port 443 or tcp port 80 and port 81"));
        check("port (80 or ssh) or 443", Ok("(port 80 or tcp port 22) or port 443"));
        check("port not ssh", Ok("not tcp port 22"));
        check("not port ssh && domain", Ok("not tcp port 22 && port 53"));
        check("portrange ssh-http or 1-5", Ok("tcp portrange 22-80 or portrange 1-5"));
        check("portrange ssh-domain", Ok("portrange 22-53"));
        check("port http or tcp[2:2] & 1 = 1 or 7", Ok("tcp port 80 or tcp[2:2] & 1 = 1 or 7"));
        check("port odd", Ok("tcp port 1"));
        check("port http or host 10.0.0.1 or 10.0.0.2", Ok("tcp port 80 or host 10.0.0.1 or 10.0.0.2"));
        check("port ssh and port http or 81", Ok("tcp port 22 and tcp port 80 or port 81"));
        check(
            "host 10.0.0.1 and (port ssh or 23) and 10.0.0.2",
            Ok("host 10.0.0.1 and ( tcp port 22 or port 23) and 10.0.0.2"),
        );
    }

    #[test]
    fn a_text_with_numbers_means_what_libpcap_takes_the_names_for() {
        let known = |name: &str| Lists::of_host().services.contains_key(name);
        if !["http", "ssh", "domain", "ntp"].into_iter().all(known)
            || !Lists::of_host().protocols.contains_key("ospf")
        {
            eprintln!("skipped: this host has no lists of services and protocols");
            return;
        }
        for text in [
            "port http",
            "port http or 443",
            "port 443 or http and 81",
            "port (domain or ssh) or 443",
            "port not ssh",
            "not port ssh && domain",
            "src or dst port ssh",
            "dst port ntp and host 10.0.0.1",
            "tcp portrange ssh-http",
            "portrange ssh-http or 1-5",
            "portrange ssh-domain",
            "ip proto ospf or 6",
            "proto \\tcp",
            "udp port (domain or ntp)",
            "port http or host 10.0.0.1 or 10.0.0.2",
            "(port ssh) or udp port 53 or ntp",
            "host 10.0.0.1 and (port ssh or 23) and 10.0.0.2",
        ] {
            let ours = crate::libpcap::compile(
                text,
                scope_packet::LinkType::ETHERNET,
                crate::libpcap::ByteOrder::Native,
            );
            let libpcaps = crate::libpcap::compile_as_it_is(text, scope_packet::LinkType::ETHERNET);
            assert!(ours.is_ok(), "{text}: {ours:?}");
            assert_eq!(ours, libpcaps, "{text}");
        }
    }

    #[test]
    fn what_the_lists_do_not_have_is_refused_with_libpcaps_words() {
        check("port htp", Err("unknown port 'htp'"));
        check("tcp port short", Err("unknown port 'short'"));
        check("udp port ssh", Err("port 'ssh' is tcp"));
        check("tcp port ntp", Err("port 'ntp' is udp"));
        check("sctp port ssh", Err("port 'ssh' is tcp"));
        check("ip proto gorp", Err("unknown ip proto 'gorp'"));
        check("portrange ssh", Err("unknown port in range 'ssh'"));
        check("portrange ssh-gorp", Err("unknown port 'gorp'"));
        check("portrange 8a-9", Err("unknown port '8a'"));
        check("host gorp", Err("names are not resolved"));
    }
}
