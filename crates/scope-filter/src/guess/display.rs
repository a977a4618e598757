//! Wireshark's display filters in tcpdump's words, as far as these go.

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
const NUMBERS: [(&str, &str); 15] = [
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
const PROTOCOLS: [(&str, &str); 21] = [
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
];

fn known(table: &[(&'static str, &'static str)], word: &str) -> Option<&'static str> {
    table.iter().find(|(name, _)| name.eq_ignore_ascii_case(word)).map(|(_, meaning)| *meaning)
}

/// The text in tcpdump's words; `None` where nothing in it is Wireshark's, or something has no counterpart.
pub(super) fn in_words_of_tcpdump(text: &str) -> Option<String> {
    let words = cut(text);
    let (mut out, mut at, mut found): (Vec<String>, usize, bool) = (Vec::new(), 0, false);
    while let Some(word) = words.get(at) {
        let operand = out.last().is_none_or(|last| matches!(last.as_str(), "and" | "or" | "not" | "("));
        let behind = words.get(at + 1).and_then(|next| relation(next)).zip(words.get(at + 2));
        let (piece, used) = match (known(&QUALIFIERS, word), known(&NUMBERS, word), known(&FLAGS, word)) {
            (Some(qualifier), ..) => {
                let (relation, value) = behind?;
                let qualifier = if value.contains('/') { qualifier.replace("host", "net") } else { qualifier.to_string() };
                let not = match relation {
                    "=" => "",
                    "!=" => "not ",
                    _ => return None,
                };
                (format!("{not}{qualifier} {value}"), 3)
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
