//! What a filter means where libpcap's language surprises, in words. Each sentence is held against packets by
//! a test below.

use crate::words::{Kind, Token, tokens};

/// Sentences on what the text matches and what it doesn't, those that apply to its words.
pub fn notes(text: &str) -> Vec<String> {
    let tokens = tokens(text);
    if tokens.is_empty() {
        return vec!["an empty filter matches every packet".into()];
    }
    let mut notes: Vec<String> = grouping(text).into_iter().collect();
    notes.extend(NOTES.iter().filter(|(applies, _)| applies(&tokens)).map(|(_, note)| note.to_string()));
    notes
}

/// Whether a note applies to a text of these tokens.
type Applies = fn(&[Token]) -> bool;

fn says(tokens: &[Token], words: &[&str]) -> bool {
    tokens.iter().any(|token| token.kind == Kind::Word && words.contains(&token.text))
}

/// `tcp[...]` and the like.
fn reads_bytes(tokens: &[Token], words: &[&str]) -> bool {
    tokens.windows(2).any(|pair| words.contains(&pair[0].text) && pair[1].text == "[")
}

fn symbol(tokens: &[Token], symbols: &[&str]) -> bool {
    tokens.iter().any(|token| symbols.contains(&token.text))
}

/// An IPv4 or IPv6 address or net.
fn names_address(tokens: &[Token]) -> bool {
    let is_ip = |token: &Token| {
        token.kind == Kind::Address && (token.text.contains('.') || token.text.contains("::"))
    };
    tokens.iter().any(is_ip) || says(tokens, &["host", "net"])
}

/// When a sentence applies, and the sentence.
const NOTES: [(Applies, &str); 12] = [
    (
        |tokens| says(tokens, &["not"]) || symbol(tokens, &["!"]),
        "'not' matches all the rest, also packets that the word behind it could never match: 'not port 53' \
         matches ARP and ICMP",
    ),
    (
        |tokens| {
            names_address(tokens)
                && !says(tokens, &["ip", "ip6", "arp", "rarp", "tcp", "udp", "sctp", "icmp", "ether"])
        },
        "an IPv4 address is looked for in IPv4, ARP and RARP packets, an IPv6 address in IPv6 packets; 'ip \
         host' omits ARP",
    ),
    (
        |tokens| says(tokens, &["port", "portrange"]),
        "ports are those of TCP, UDP and SCTP over IPv4 and IPv6; later fragments have none and never match; \
         nor do ports behind IPv6 extension headers",
    ),
    (
        |tokens| {
            says(tokens, &["tcp", "udp", "sctp", "icmp6"])
                && !reads_bytes(tokens, &["tcp", "udp", "sctp", "icmp6"])
        },
        "over IPv6 a protocol is seen directly behind the IPv6 header or its fragment header, not behind \
         other extension headers",
    ),
    (
        |tokens| reads_bytes(tokens, &["tcp", "udp", "sctp", "icmp", "igmp"]),
        "bytes of transport headers, as tcp[13], are read from IPv4 packets only, and only from the first \
         fragment",
    ),
    (
        |tokens| symbol(tokens, &["["]),
        "where a byte that the filter reads wasn't captured, the whole packet doesn't match, even under \
         'not' and on one side of 'or'",
    ),
    (
        |tokens| says(tokens, &["len", "less", "greater"]),
        "lengths are those on the wire with the link header, not those of the bytes that were kept; 'less' and \
         'greater' include the number itself",
    ),
    (
        |tokens| says(tokens, &["broadcast"]) && says(tokens, &["ip"]),
        "no netmask is known: 'ip broadcast' matches the addresses 255.255.255.255 and 0.0.0.0 only",
    ),
    (
        |tokens| says(tokens, &["vlan", "mpls", "pppoes", "geneve"]),
        "behind 'vlan' and its like, all that follows in the text is looked for behind the tag, also behind \
         'not' and 'or': write them last where that isn't meant",
    ),
    (
        |tokens| says(tokens, &["protochain"]),
        "'protochain' follows the headers of each packet one by one: slow, and nothing is known of it \
         beforehand",
    ),
    (
        |tokens| says(tokens, &["multicast", "broadcast"]) && !says(tokens, &["ip", "ip6"]),
        "without 'ip' or 'ip6' before it this means the link layer's address, not that of IP",
    ),
    (
        |tokens| {
            names_address(tokens)
                || says(tokens, &["port", "portrange", "tcp", "udp", "sctp", "icmp", "icmp6"])
        },
        "the inside of tunnels (GRE, IP in IP, VXLAN) isn't looked at",
    ),
];

/// How `and` and `or` group where both stand side by side: they bind equally, from left to right.
fn grouping(text: &str) -> Option<String> {
    let tokens = tokens(text);
    let mut at = 0;
    let mut mixed = false;
    let grouped = group(text, &tokens, &mut at, &mut mixed);
    (mixed && at == tokens.len())
        .then(|| format!("'and' and 'or' bind equally, from left to right: {grouped}"))
}

/// Groups up to the end or the parenthesis that closes; `at` goes behind what was read.
fn group(text: &str, tokens: &[Token], at: &mut usize, mixed: &mut bool) -> String {
    let (mut grouped, mut before) = (String::new(), "");
    loop {
        let operand = operand(text, tokens, at, mixed);
        let Some(joint) = tokens.get(*at).and_then(joint) else {
            return if before.is_empty() { operand } else { format!("{grouped} {before} {operand}") };
        };
        grouped = match before {
            "" => operand,
            _ if before == joint => format!("{grouped} {before} {operand}"),
            _ => format!("({grouped} {before} {operand})"),
        };
        *mixed |= !before.is_empty() && before != joint;
        before = joint;
        *at += 1;
    }
}

fn joint(token: &Token) -> Option<&'static str> {
    match token.text {
        "and" | "&&" => Some("and"),
        "or" | "||" => Some("or"),
        _ => None,
    }
}

/// What stands between two joints, parentheses within it grouped.
fn operand(text: &str, tokens: &[Token], at: &mut usize, mixed: &mut bool) -> String {
    let mut operand = String::new();
    while let Some(token) = tokens.get(*at).filter(|token| joint(token).is_none() && token.text != ")") {
        let gap = tokens.get(at.wrapping_sub(1)).map_or("", |before| &text[before.end()..token.at]);
        if !operand.is_empty() && !gap.is_empty() {
            operand.push(' ');
        }
        operand.push_str(token.text);
        *at += 1;
        if token.text == "(" {
            operand.push_str(&group(text, tokens, at, mixed));
            if tokens.get(*at).is_some_and(|token| token.text == ")") {
                operand.push(')');
                *at += 1;
            }
        }
    }
    operand
}

#[cfg(test)]
mod tests {
    use scope_packet::{Headers, LinkType};

    use super::*;
    use crate::{Filter, VlanRule};

    const LINK: LinkType = LinkType::ETHERNET;

    fn frame(ethertype: u16, network: &[u8]) -> Vec<u8> {
        [&[2; 6][..], &[4; 6], &ethertype.to_be_bytes(), network].concat()
    }

    /// Ports 53 and 1000, with a byte 0x12 where TCP has its flags.
    const TRANSPORT: [u8; 20] = [0, 53, 3, 0xe8, 0, 0, 0, 1, 0, 0, 0, 2, 0x50, 0x12, 1, 0, 0, 0, 0, 0];

    fn ipv4(protocol: u8, fragment: u8, destination: [u8; 4]) -> Vec<u8> {
        let head = [0x45, 0, 0, 40, 0, 1, 0, fragment, 64, protocol, 0, 0, 10, 0, 0, 1];
        frame(0x0800, &[&head[..], &destination, &TRANSPORT].concat())
    }

    /// From and to fe80::1.
    fn ipv6(protocol: u8, extension: Option<u8>) -> Vec<u8> {
        let address = [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
        let head = [0x60, 0, 0, 0, 0, 28, extension.unwrap_or(protocol), 64];
        let chain = extension.map_or(Vec::new(), |_| vec![protocol, 0, 0, 0, 0, 0, 0, 0]);
        frame(0x86dd, &[&head[..], &address, &address, &chain, &TRANSPORT].concat())
    }

    fn arp() -> Vec<u8> {
        frame(
            0x0806,
            &[&[0, 1, 8, 0, 6, 4, 0, 1][..], &[4; 6], &[10, 0, 0, 1], &[0; 6], &[10, 0, 0, 2]].concat(),
        )
    }

    fn matches(text: &str, data: &[u8]) -> bool {
        let filter =
            Filter::compile(text, VlanRule::Exact, &[LINK]).unwrap_or_else(|error| panic!("{error}"));
        filter.for_link(LINK).matches(&Headers::parse(LINK, data), data, data.len() as u32)
    }

    /// Holds a sentence to what the filter does, and shows that the sentence is said of it.
    fn check(text: &str, sentence: &str, matched: &[&[u8]], refused: &[&[u8]]) {
        let notes = notes(text);
        assert!(notes.iter().any(|note| note.contains(sentence)), "{text}: no '{sentence}' in {notes:#?}");
        for data in matched {
            assert!(matches(text, data), "{text} doesn't match {data:02x?}");
        }
        for data in refused {
            assert!(!matches(text, data), "{text} matches {data:02x?}");
        }
    }

    const HERE: [u8; 4] = [10, 0, 0, 2];

    #[test]
    fn what_is_said_of_a_filter_is_what_it_does() {
        let (tcp, udp, icmp) = (ipv4(6, 0, HERE), ipv4(17, 0, HERE), ipv4(1, 0, HERE));
        check("not port 53", "'not' matches all the rest", &[&arp(), &icmp], &[&udp]);
        check("! udp", "'not' matches all the rest", &[&arp()], &[&udp]);
        check("host 10.0.0.1", "'ip host' omits ARP", &[&tcp, &arp()], &[&ipv6(6, None)]);
        check("src fe80::1", "IPv6 address in IPv6 packets", &[&ipv6(6, None)], &[&tcp, &arp()]);
        assert!(!matches("ip host 10.0.0.1", &arp()));
        check(
            "port 53",
            "later fragments have none",
            &[&tcp, &ipv4(132, 0, HERE), &ipv6(17, None)],
            &[&ipv4(17, 9, HERE), &icmp],
        );
        check("port 53", "IPv6 extension headers", &[], &[&ipv6(17, Some(0)), &ipv6(17, Some(44))]);
        check(
            "udp",
            "directly behind",
            &[&ipv6(17, None), &ipv6(17, Some(44)), &ipv4(17, 9, HERE)],
            &[&ipv6(17, Some(60))],
        );
        check("tcp[13] = 0x12", "from IPv4 packets only", &[&tcp], &[&ipv6(6, None), &ipv4(6, 9, HERE)]);
        check("not ip[200] = 5", "even under 'not'", &[&arp()], &[&tcp]);
        check("ip[200] = 5 or port 53", "on one side of 'or'", &[&ipv6(17, None)], &[&tcp]);
        check("less 54", "on the wire", &[&tcp], &[&[&tcp[..], &[0]].concat()]);
        check("greater 54", "the number itself", &[&tcp], &[&tcp[..53]]);
        let (ones, zeros, net) =
            (ipv4(17, 0, [255; 4]), ipv4(17, 0, [0; 4]), ipv4(17, 0, [10, 255, 255, 255]));
        check("ip broadcast", "no netmask", &[&ones, &zeros], &[&net]);
        let tagged = [&udp[..12], &[0x81, 0, 0, 7], &udp[12..]].concat();
        check("not vlan and udp", "also behind 'not'", &[], &[&udp]);
        check("vlan or udp", "and 'or'", &[&tagged], &[&udp]);
        check("udp or vlan", "write them last", &[&tagged, &udp], &[&tcp]);
        check("ip6 protochain 17", "one by one", &[&ipv6(17, Some(60))], &[&tcp]);
        check(
            "multicast",
            "link layer's address",
            &[&[&[0xff; 6][..], &arp()[6..]].concat()],
            &[&ipv4(17, 0, [224, 0, 0, 1])],
        );
        let tunnelled = [&ipv4(47, 0, [10, 9, 9, 9])[..34], &[0, 0, 8, 0], &udp[14..]].concat();
        check("host 10.0.0.2", "inside of tunnels", &[&udp], &[&tunnelled]);
        check("", "every packet", &[&arp()], &[]);
    }

    #[test]
    fn mixed_joints_are_shown_grouped_and_mean_the_same_so() {
        let check = |text: &str, expected: Option<&str>| {
            let found = grouping(text);
            let grouped = found.as_ref().map(|found| found.split_once(": ").unwrap().1);
            assert_eq!(grouped, expected, "{text}");
            let program = |text: &str| Filter::compile(text, VlanRule::Exact, &[LINK]).unwrap().printed(LINK);
            assert_eq!(program(text), program(grouped.unwrap_or(text)), "{text}");
        };
        check("tcp or udp", None);
        check("tcp or udp or arp and port 53", Some("(tcp or udp or arp) and port 53"));
        check("host 10.0.0.1 and tcp or udp", Some("(host 10.0.0.1 and tcp) or udp"));
        check("ip && tcp || port 53 or 80 && udp", Some("((ip and tcp) or port 53 or 80) and udp"));
        check("not tcp and (udp or icmp and ip) or arp", Some("(not tcp and ((udp or icmp) and ip)) or arp"));
        check("tcp[13] & (2|4) != 0 or udp and port 80", Some("(tcp[13] & (2|4) != 0 or udp) and port 80"));
    }
}
