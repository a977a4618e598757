//! Protocols that tcpdump knows by another word, or by their port alone.

use super::edits::{Edit, before, begins_operand, edited, ends_operand, says, word};
use super::known;
use crate::words::{Kind, Token};

const PROTOCOLS: [(&str, &str); 43] = [
    ("ipv6", "ip6"),
    ("icmpv6", "icmp6"),
    ("dns", "port 53"),
    ("mdns", "udp port 5353"),
    ("http", "tcp port 80"),
    ("https", "tcp port 443"),
    ("http2", "tcp port 443"),
    ("tls", "tcp port 443"),
    ("ssl", "tcp port 443"),
    ("quic", "udp port 443"),
    ("ssh", "tcp port 22"),
    ("scp", "tcp port 22"),
    ("sftp", "tcp port 22"),
    ("telnet", "tcp port 23"),
    ("ftp", "tcp port 21"),
    ("smtp", "tcp port 25"),
    ("ntp", "udp port 123"),
    ("snmp", "udp port 161"),
    ("sip", "port 5060"),
    ("smb", "tcp port 445"),
    ("smb2", "tcp port 445"),
    ("rdp", "tcp port 3389"),
    ("dhcp", "(udp port 67 or udp port 68)"),
    ("bootp", "(udp port 67 or udp port 68)"),
    ("rip", "udp port 520"),
    ("bgp", "tcp port 179"),
    ("ldp", "port 646"),
    ("ldap", "tcp port 389"),
    ("ldaps", "tcp port 636"),
    ("imap", "tcp port 143"),
    ("imaps", "tcp port 993"),
    ("pop", "tcp port 110"),
    ("pop3", "tcp port 110"),
    ("mqtt", "tcp port 1883"),
    ("tftp", "udp port 69"),
    ("syslog", "udp port 514"),
    ("vxlan", "udp port 4789"),
    ("wg", "udp port 51820"),
    ("ospf", "ip proto 89"),
    ("eigrp", "ip proto 88"),
    ("gre", "ip proto 47"),
    ("lldp", "ether proto 0x88cc"),
    ("eapol", "ether proto 0x888e"),
];
/// Other names that stand for themselves, and for which there is no filter that is sure to be theirs.
const OTHERS: &str = " ppp l2tp pptp cdp vtp dtp udld lacp hsrp glbp bfd ndp nd mld dccp tipc rtp rtcp rtsp srtp stun turn nfs rpc \
    vnc x11 dhcpv6 llmnr nbns ssdp ipsec ike isakmp ptp rsvp gtp lan wan wifi dot doh ";

/// What a protocol's name is in tcpdump's words.
pub(super) fn meaning(name: &str) -> Option<&'static str> {
    known(&PROTOCOLS, name)
}

/// Whether a word is a protocol's name, or another that is no misspelt word of the language.
pub(super) fn is_name(word: &str) -> bool {
    meaning(word).is_some() || OTHERS.contains(&format!(" {} ", word.to_ascii_lowercase()))
}

/// The transport of a protocol that has one port (nothing where it has several), and the port.
fn transport_and_port(name: &str) -> Option<(&'static str, &'static str)> {
    let (transport, port) = meaning(name)?.split_once("port ")?;
    matches!(transport, "" | "tcp " | "udp ").then_some((transport, port))
}

/// The port of a protocol: `dns` is 53.
pub(super) fn port(name: &str) -> Option<&'static str> {
    transport_and_port(name).map(|(_, port)| port)
}

/// `dns` as `port 53`; `http port 8080`, which names another port, as `tcp port 8080`.
pub(super) fn named(text: &str, found: &[Token]) -> Option<String> {
    let mut edits: Vec<Edit> = Vec::new();
    let mut ports = 0;
    for (at, token) in found.iter().enumerate() {
        let Some(whole) =
            meaning(token.text).filter(|_| token.kind == Kind::Name && begins_operand(found, at))
        else {
            continue;
        };
        let has_port = word(found, at + 1) == "port"
            && found.get(at + 2).is_some_and(|value| value.kind != Kind::Symbol);
        let has_address = matches!(word(found, at + 1), "host" | "net" | "src" | "dst");
        let meant = match transport_and_port(token.text) {
            Some((transport, _)) if has_port => transport,
            _ if ends_operand(found, at + 1) || has_address => whole,
            _ => continue,
        };
        ports += usize::from(meant.contains("port") && !matches!(before(found, at), "not" | "!"));
        edits.push((token.at..token.end(), meant.to_string()));
    }
    // `http and dns` means no packet between these ports.
    if ports > 1 && says(found, &["and", "&&"]) { None } else { edited(text, edits) }
}
