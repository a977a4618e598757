//! Wireshark's display filters in tcpdump's words, as far as these go.

use super::values;

/// Fields that stand for a qualifier, and the value behind them.
const QUALIFIERS: [(&str, &str); 25] = [
    ("ip.addr", "host"),
    ("ip.src", "src host"),
    ("ip.dst", "dst host"),
    ("ip.host", "host"),
    ("ipv6.addr", "host"),
    ("ipv6.src", "src host"),
    ("ipv6.dst", "dst host"),
    ("eth.addr", "ether host"),
    ("eth.src", "ether src"),
    ("eth.dst", "ether dst"),
    ("tcp.port", "tcp port"),
    ("tcp.srcport", "tcp src port"),
    ("tcp.dstport", "tcp dst port"),
    ("udp.port", "udp port"),
    ("udp.srcport", "udp src port"),
    ("udp.dstport", "udp dst port"),
    ("sctp.port", "sctp port"),
    ("sctp.srcport", "sctp src port"),
    ("sctp.dstport", "sctp dst port"),
    ("vlan.id", "vlan"),
    ("mpls.label", "mpls"),
    ("ip.proto", "ip proto"),
    ("ipv6.nxt", "ip6 proto"),
    ("eth.type", "ether proto"),
    ("arp.src.proto_ipv4", "arp src host"),
];
/// Fields that stand for a number in the packet.
const NUMBERS: [(&str, &str); 17] = [
    ("frame.len", "len"),
    ("frame.cap_len", "len"),
    ("ip.len", "ip[2:2]"),
    ("ip.id", "ip[4:2]"),
    ("ip.ttl", "ip[8]"),
    ("ip.dsfield", "ip[1]"),
    ("ipv6.hlim", "ip6[7]"),
    ("tcp.flags", "tcp[tcpflags]"),
    ("tcp.window_size", "tcp[14:2]"),
    ("tcp.window_size_value", "tcp[14:2]"),
    ("udp.length", "udp[4:2]"),
    ("icmp.type", "icmp[icmptype]"),
    ("icmp.code", "icmp[icmpcode]"),
    ("icmpv6.type", "icmp6[icmp6type]"),
    ("icmpv6.code", "icmp6[icmp6code]"),
    ("tcp.len", "ip[2:2] - ((ip[0] & 0xf) << 2) - ((tcp[12] & 0xf0) >> 2)"),
    ("arp.opcode", "arp[6:2]"),
];
/// TCP's flags.
const FLAGS: [(&str, &str); 9] = [
    ("tcp.flags.reset", "tcp-rst"),
    ("tcp.flags.syn", "tcp-syn"),
    ("tcp.flags.fin", "tcp-fin"),
    ("tcp.flags.ack", "tcp-ack"),
    ("tcp.flags.push", "tcp-push"),
    ("tcp.flags.urg", "tcp-urg"),
    ("tcp.flags.ece", "tcp-ece"),
    ("tcp.flags.ecn", "tcp-ece"),
    ("tcp.flags.cwr", "tcp-cwr"),
];
/// Protocols that tcpdump knows by another word or by their port alone.
const PROTOCOLS: [(&str, &str); 35] = [
    ("ipv6", "ip6"),
    ("icmpv6", "icmp6"),
    ("dns", "port 53"),
    ("mdns", "udp port 5353"),
    ("http", "tcp port 80"),
    ("http2", "tcp port 443"),
    ("tls", "tcp port 443"),
    ("ssl", "tcp port 443"),
    ("quic", "udp port 443"),
    ("ssh", "tcp port 22"),
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
    ("bgp", "tcp port 179"),
    ("ldap", "tcp port 389"),
    ("imap", "tcp port 143"),
    ("pop", "tcp port 110"),
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
/// First words of fields' names.
const FIELDS: &str = " _ws frame eth ip ipv6 ip6 tcp udp sctp icmp icmpv6 icmp6 igmp arp http http2 http3 tls ssl dns mdns dhcp \
    dhcpv6 bootp smb smb2 rdp ssh sip rtp rtcp ntp snmp quic data vlan mpls gre vxlan ftp smtp imap pop kerberos ldap radius ldap \
    rtsp expert gtp modbus mysql pgsql websocket nbns llmnr ";

fn known(table: &[(&'static str, &'static str)], word: &str) -> Option<&'static str> {
    table.iter().find(|(name, _)| name.eq_ignore_ascii_case(word)).map(|(_, meaning)| *meaning)
}

/// A field's name as Wireshark has it: that of ICMP and of IP over IPv6 has a `v`.
fn as_named(word: &str) -> String {
    match word.split_once('.') {
        Some(("icmp6", field)) => format!("icmpv6.{field}"),
        Some(("ip6", field)) => format!("ipv6.{field}"),
        _ => word.to_string(),
    }
}

/// Whether a text says what only a display filter says: a field's name, `contains`, `matches`.
pub(super) fn is_one(text: &str) -> bool {
    let words = cut(text);
    (0..words.len()).any(|at| {
        let is_field = words[at].split_once('.').is_some_and(|(first, field)| {
            FIELDS.contains(&format!(" {first} ")) && field.starts_with(|c: char| c.is_ascii_alphabetic())
        });
        let a_name_may_stand = at.checked_sub(1).is_none_or(|before| {
            !matches!(words[before].as_str(), "host" | "net" | "gateway" | "src" | "dst" | "port" | "portrange")
        });
        a_name_may_stand && (is_field || (at > 0 && matches!(words[at].as_str(), "contains" | "matches")))
    })
}

/// The text in tcpdump's words; `None` where nothing in it is Wireshark's, or something has no counterpart.
pub(super) fn in_words_of_tcpdump(text: &str) -> Option<String> {
    let words = cut(text);
    let (mut out, mut at, mut found): (Vec<String>, usize, bool) = (Vec::new(), 0, false);
    while let Some(word) = words.get(at) {
        let operand = out.last().is_none_or(|last| matches!(last.as_str(), "and" | "or" | "not" | "("));
        let behind = words.get(at + 1).and_then(|next| relation(next)).zip(words.get(at + 2));
        let word = &as_named(word);
        let (piece, used) = match (known(&QUALIFIERS, word), known(&NUMBERS, word), known(&FLAGS, word)) {
            (Some(qualifier), ..) if words.get(at + 1).is_some_and(|next| next == "in") => {
                let (values, used) = set(&words[at + 2..])?;
                let each: Vec<String> = values.iter().map(|value| qualified(qualifier, value)).collect();
                (if each.len() > 1 { format!("({})", each.join(" or ")) } else { each.concat() }, 2 + used)
            }
            (Some(qualifier), ..) => {
                let (relation, value) = behind?;
                let asked = match relation {
                    "=" => qualified(qualifier, value),
                    "!=" => format!("not {}", qualified(qualifier, value)),
                    _ if qualifier.ends_with("port") => {
                        format!("{qualifier}range {}", values::ports(relation, value)?)
                    }
                    _ => return None,
                };
                (asked, 3)
            }
            (_, Some(number), _) => {
                let (relation, value) = behind?;
                (format!("{number} {relation} {value}"), 3)
            }
            (.., Some(flag)) => {
                let set = match behind {
                    Some(("=", value)) => Some(!matches!(value.as_str(), "0" | "False" | "false")),
                    Some(("!=", value)) => Some(matches!(value.as_str(), "0" | "False" | "false")),
                    Some(_) => return None,
                    None => None,
                };
                let test = if set.unwrap_or(true) { "!=" } else { "=" };
                (format!("tcp[tcpflags] & {flag} {test} 0"), if set.is_some() { 3 } else { 1 })
            }
            _ => match (known(&PROTOCOLS, word), word.as_str()) {
                (Some(protocol), _) if operand => (protocol.to_string(), 1),
                (_, "&&") => ("and".to_string(), 1),
                (_, "||") => ("or".to_string(), 1),
                (_, "!") => ("not".to_string(), 1),
                (_, word) => {
                    out.push(word.to_string());
                    at += 1;
                    continue;
                }
            },
        };
        found |= !matches!(piece.as_str(), "and" | "or" | "not");
        out.push(piece);
        at += used;
    }
    found.then(|| out.join(" ").replace("( ", "(").replace(" )", ")"))
}

/// A qualifier with a value: networks have a word of their own, and so have ranges of ports (`80..90`).
fn qualified(qualifier: &str, value: &str) -> String {
    match value.split_once("..") {
        _ if value.contains('/') => format!("{} {value}", qualifier.replace("host", "net")),
        Some((from, to)) if qualifier.ends_with("port") => format!("{qualifier}range {from}-{to}"),
        _ => format!("{qualifier} {value}"),
    }
}

/// The values of a set, `{80, 443 1000..2000}`, and how many words it takes.
fn set(words: &[String]) -> Option<(Vec<String>, usize)> {
    let used = words.iter().position(|word| word.ends_with('}'))? + 1;
    let written = words[..used].join(" ");
    let inside = written.strip_prefix('{')?.strip_suffix('}')?;
    let values: Vec<String> = inside.split([',', ' ']).filter(|value| !value.is_empty()).map(str::to_string).collect();
    (!values.is_empty()).then_some((values, used))
}

/// A comparison in tcpdump's signs.
fn relation(word: &str) -> Option<&'static str> {
    Some(match word {
        "==" | "=" | "eq" => "=",
        "!=" | "ne" => "!=",
        ">" | "gt" => ">",
        "<" | "lt" => "<",
        ">=" | "ge" => ">=",
        "<=" | "le" => "<=",
        _ => return None,
    })
}

/// Cuts a text into words, signs and brackets.
fn cut(text: &str) -> Vec<String> {
    let is_sign = |c: char| "=!<>&|".contains(c);
    let mut words: Vec<String> = Vec::new();
    let mut glue = false; // the last word may go on
    for c in text.chars() {
        let goes_on = glue
            && words.last().is_some_and(|last| {
                let sign = last.starts_with(is_sign);
                if sign {
                    is_sign(c) && last.len() < 2 && (c == '=' || last.starts_with(c))
                } else {
                    !is_sign(c) && c != '(' && c != ')'
                }
            });
        glue = !c.is_whitespace();
        match words.last_mut() {
            _ if c.is_whitespace() => {}
            Some(last) if goes_on && !matches!(last.as_str(), "(" | ")") => last.push(c),
            _ => words.push(c.to_string()),
        }
    }
    words
}
