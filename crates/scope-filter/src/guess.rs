//! What was probably meant by a text that is no filter, in tcpdump's language.
//!
//! | what was typed | what is proposed |
//! |---|---|
//! | `tcp.flags.reset`, `ip.addr == 10.0.0.1 && dns` (a display filter of Wireshark) | the same in tcpdump's words |
//! | `tcp-rst`, `tcp syn`, `icmp-echo` (a value without its field) | the comparison |
//! | `upd port 53`, `hots 10.0.0.1` | the nearest words |
//! | `10.0.0.1`, `port 53 udp`, `tcp port 80,443`, `host 10.0.0.1/24` | the same with what is missing |
//! | `tcp host 10.0.0.1`, `host 10.0.0.1 port 80`, `tcp udp` | the same with `and` or `or`; where either may be meant, that one is missing |
//! | `port 80-90`, `host 10.0.0.1:80`, `net 10.0.0.*`, `dport 80`, `port = 80` | the language's own form |
//! | `tcp.analysis.retransmission`, `frame contains "abc"` | that no capture filter can say it, and what can |
//! | `eth0`, `host fe80::1%eth0`, `everything` | where that belongs |
//! | `host 10.0.0.256`, `host fe80:::1`, `host localhost` | what is wrong with the address, or why no name stands there |
//!
//! What is proposed compiles: each guess is tried, and no guess has a name that would be resolved.

mod address;
mod display;
mod edits;
mod joints;
mod synonyms;
mod values;

use scope_packet::LinkType;

use crate::libpcap;
use crate::template;
use crate::words::{self, Kind, Token, tokens};

/// Longer texts are not guessed at.
const GUESSED_BYTES_MAX: usize = 512;
/// Guesses that are tried.
const TRIES_MAX: usize = 24;
/// Words that are often meant, the likelier first.
const COMMON: [&str; 34] = [
    "host",
    "port",
    "tcp",
    "udp",
    "net",
    "src",
    "dst",
    "ip",
    "ip6",
    "arp",
    "icmp",
    "icmp6",
    "and",
    "or",
    "not",
    "vlan",
    "ether",
    "proto",
    "portrange",
    "gateway",
    "broadcast",
    "multicast",
    "greater",
    "less",
    "len",
    "mpls",
    "sctp",
    "igmp",
    "rarp",
    "mask",
    "link",
    "pppoes",
    "vrrp",
    "esp",
];
/// Names of interfaces begin so, and have a number in them.
const INTERFACES: [&str; 16] =
    ["eth", "en", "wl", "ww", "br", "br-", "veth", "tun", "tap", "ppp", "bond", "team", "docker", "virbr", "vmbr", "usb"];

/// Mends one kind of fault in a text; `None` where it isn't there.
type Repair = fn(&str, &[Token]) -> Option<String>;

/// All repairs, in the order in which they are made where one alone doesn't do.
const REPAIRS: [Repair; 17] = [
    unquoted,
    values::ranges,
    values::sockets,
    values::networks,
    values::without_host_bits,
    joined_lists,
    synonyms::translated,
    synonyms::comparisons,
    synonyms::flags,
    synonyms::hosts,
    joints::unsigned,
    joints::qualified,
    joints::escaped,
    joints::spoken,
    joints::alternatives,
    joints::compared,
    joints::joined,
];

/// A sentence on what was probably meant by `text`, which is no filter; `None` where nothing comes to mind.
pub(crate) fn meant(text: &str) -> Option<String> {
    if text.len() > GUESSED_BYTES_MAX || compiles(text) {
        return None;
    }
    if let Some(fault) = address::fault(text) {
        return Some(fault);
    }
    if let Some(meant) = display::in_words_of_tcpdump(text).and_then(|meant| mended(&meant)) {
        return Some(format!("that is a display filter of Wireshark; in tcpdump's language it is:\n  {meant}"));
    }
    let found = tokens(text);
    told(text, &found)
        .or_else(|| mended(text).map(did_you_mean))
        .or_else(|| spelt(text, &found).map(did_you_mean))
        .or_else(|| incomplete(text, &found))
}

fn did_you_mean(meant: String) -> String {
    format!("did you mean:\n  {meant}")
}

/// What isn't said by another text alone.
fn told(text: &str, found: &[Token]) -> Option<String> {
    if let Some((zone, meant)) = values::zone(text, found).and_then(|(zone, text)| Some((zone, mended(&text)?))) {
        return Some(format!("packets have no zone, so '%{zone}' has no place in a filter; did you mean:\n  {meant}"));
    }
    if let Some(meant) = values::around(text, found).and_then(|text| mended(&text)) {
        return Some(format!("there are no ranges of addresses; the smallest net around this one:\n  {meant}"));
    }
    if display::is_one(text) && mended(text).is_none() {
        let quoted = text.replace('\'', "'\\''");
        return Some(format!(
            "that is a display filter of Wireshark, and what it asks no capture filter can say:\n\
             record with a broader filter, and ask the file: tshark -r FILE -Y '{quoted}'"
        ));
    }
    match text.trim() {
        "all" | "any" | "everything" | "*" => return Some("every packet is taken by the empty filter: ''".to_string()),
        _ => {}
    }
    let is_interface = |token: &&Token| {
        let known = |begin: &str| token.text.starts_with(begin) && token.text.contains(|c: char| c.is_ascii_digit());
        token.kind == Kind::Name && (token.text == "lo" || INTERFACES.iter().any(|begin| known(begin)))
    };
    let place = match found {
        [flag, i, ..] if flag.text == "-" && i.text == "i" => 2,
        _ => 0,
    };
    found
        .get(place)
        .filter(is_interface)
        .map(|token| format!("'{0}' seems to be an interface; it is given beside the filter: wirescope run -i {0}", token.text))
}

/// Where something is missing that nobody can guess.
fn incomplete(text: &str, found: &[Token]) -> Option<String> {
    let closed = || joints::closed(text, found).filter(|meant| compiles(meant)).map(did_you_mean);
    closed().or_else(|| joints::told(found))
}

/// The text, if it compiles, or what the repairs make of it: one alone, or as many as it takes.
fn mended(text: &str) -> Option<String> {
    let alone = || REPAIRS.iter().filter_map(|repair| repair(text, &tokens(text))).find(|guess| compiles(guess));
    if compiles(text) { Some(text.to_string()) } else { alone().or_else(|| mended_by(text, &REPAIRS)) }
}

/// What the repairs make of the text, as many as it takes.
fn mended_by(text: &str, repairs: &[Repair]) -> Option<String> {
    let mut mended = text.to_string();
    repairs.iter().find_map(|repair| {
        mended = repair(&mended, &tokens(&mended))?;
        compiles(&mended).then(|| mended.clone())
    })
}

/// `host "10.0.0.1"` without the quotes.
fn unquoted(text: &str, _: &[Token]) -> Option<String> {
    text.contains(['"', '\'']).then(|| text.replace(['"', '\''], "").trim().to_string())
}

/// Why no name stands where an address is wanted, and what to write.
pub(crate) fn no_name(text: &str, at: usize, name: &str) -> String {
    if let Some(meant) = meant(text) {
        return meant;
    }
    if !is_hosts_place(text, at) {
        return String::new();
    }
    let write = match name {
        "localhost" => "write: host 127.0.0.1 or host ::1".to_string(),
        _ => format!("write the address; this prints it: getent ahosts {name}"),
    };
    format!("names are not resolved: who answers for a name would decide what is recorded;\n{write}")
}

/// Whether a word in front of a place says that a host or a net stands there: `host`, or `and` behind a list of them.
fn is_hosts_place(text: &str, at: usize) -> bool {
    let words = tokens(text.get(..at).unwrap_or(text));
    let is_joint = |token: &&Token| matches!(token.text, "and" | "or" | "not" | "&&" | "||" | "!" | "(");
    let lists = words.last().is_some_and(|last| is_joint(&last));
    let says = words.iter().rev().find(|token| token.kind == Kind::Word && (!lists || !is_joint(token)));
    let last = if lists { says } else { words.last() };
    last.is_some_and(|token| matches!(token.text, "host" | "net" | "gateway" | "src" | "dst" | "mask" | "ether" | "%"))
}

fn compiles(text: &str) -> bool {
    // A template's names stand for what they are filled with.
    let filled = template::sampled(text);
    let text = filled.as_deref().unwrap_or(text);
    words::check(text).is_ok() && libpcap::understands(text, LinkType::ETHERNET)
}

/// The text with `new` in the place of each token for which there is something new.
fn replaced(text: &str, found: &[Token], new: impl Fn(usize) -> Option<String>) -> String {
    let (mut out, mut from) = (String::new(), 0);
    for (at, token) in found.iter().enumerate() {
        if let Some(new) = new(at) {
            out.push_str(&text[from..token.at]);
            out.push_str(&new);
            from = token.end();
        }
    }
    out.push_str(&text[from..]);
    out
}

/// `80,443` as `(80 or 443)`.
fn joined_lists(text: &str, _: &[Token]) -> Option<String> {
    text.contains(',').then(|| {
        let spaced = text.replace(", ", ",");
        let word = |word: &str| {
            if word.contains(',') { format!("({})", word.split(',').collect::<Vec<_>>().join(" or ")) } else { word.into() }
        };
        spaced.split(' ').map(word).collect::<Vec<String>>().join(" ")
    })
}

/// The text with the nearest words in the place of those that are none.
fn spelt(text: &str, found: &[Token]) -> Option<String> {
    let near = |at: usize| -> Vec<&'static str> {
        let token = &found[at];
        let is_name = at.checked_sub(1).is_some_and(|before| matches!(found[before].text, "$" | "{"));
        if token.kind != Kind::Name || is_name || token.text.contains(['.', '\\']) {
            return Vec::new();
        }
        let word = token.text.to_ascii_lowercase();
        let most = if word.len() <= 4 { 1 } else { 2 };
        // A word with a hyphen is a constant.
        let constants = words::CONSTANTS.split_ascii_whitespace().filter(|_| word.contains('-'));
        let known = COMMON.into_iter().chain(constants);
        let mut near: Vec<_> = known.map(|known| (distance(known, &word), known)).filter(|(far, _)| *far <= most).collect();
        near.sort_by_key(|(far, _)| *far); // stable: the likelier first
        near.into_iter().map(|(_, known)| known).collect()
    };
    let choices: Vec<Vec<&str>> = (0..found.len()).map(near).collect();
    let combinations: usize = choices.iter().map(|near| near.len().max(1)).product();
    if choices.iter().all(Vec::is_empty) {
        return None;
    }
    (0..combinations.min(TRIES_MAX)).find_map(|mut number| {
        let picks: Vec<Option<&str>> = choices
            .iter()
            .map(|near| {
                let pick = (!near.is_empty()).then(|| near[number % near.len()]);
                number /= near.len().max(1);
                pick
            })
            .collect();
        let guess = replaced(text, found, |at| picks[at].map(str::to_string));
        // A word that is taken for another one isn't taken for an expression of its own, too.
        let repairs = REPAIRS.split_last().map_or(&[][..], |(_, repairs)| repairs);
        if compiles(&guess) { Some(guess) } else { mended_by(&guess, repairs) }
    })
}

/// Letters to insert, delete, exchange, or swap with the next one, to make one word of the other.
fn distance(a: &str, b: &str) -> usize {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    let mut rows = vec![vec![0; b.len() + 1]; a.len() + 1];
    for i in 0..=a.len() {
        for j in 0..=b.len() {
            rows[i][j] = match (i, j) {
                (0, far) | (far, 0) => far,
                _ => {
                    let exchanged = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
                    let best = exchanged.min(rows[i - 1][j] + 1).min(rows[i][j - 1] + 1);
                    let swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
                    if swapped { best.min(rows[i - 2][j - 2] + 1) } else { best }
                }
            };
        }
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_meant_is_said_in_tcpdumps_language() {
        let check = |text: &str, expected: &str| {
            let said = meant(text).unwrap_or_default();
            assert_eq!(said.lines().last().unwrap_or_default().trim(), expected, "{text}: {said}");
        };
        check("tcp.flags.reset", "tcp[tcpflags] & tcp-rst != 0");
        check("tcp.flags.syn == 1 && ip.addr==10.0.0.1", "tcp[tcpflags] & tcp-syn != 0 and host 10.0.0.1");
        check("ip.src == 10.0.0.0/8 and not dns", "src net 10.0.0.0/8 and not port 53");
        check("tcp.port == 80 || udp.dstport == 53", "tcp port 80 or udp dst port 53");
        check("!(ip.addr == 10.0.0.1)", "not (host 10.0.0.1)");
        check("ip.addr != 10.0.0.1", "not host 10.0.0.1");
        check("frame.len > 100 and eth.addr == 02:00:00:00:00:01", "len > 100 and ether host 02:00:00:00:00:01");
        for (text, expected) in MEANT {
            check(text, expected);
        }
        check("dns", "port 53");
        check("http or tls", "tcp port 80 or tcp port 443");
        check("tcp-rst", "tcp[tcpflags] & tcp-rst != 0");
        check("tcp-syn and host 10.0.0.1", "tcp[tcpflags] & tcp-syn != 0 and host 10.0.0.1");
        check("tcp syn", "tcp[tcpflags] & tcp-syn != 0");
        check("syn", "tcp[tcpflags] & tcp-syn != 0");
        check("icmp-echo", "icmp[icmptype] = icmp-echo");
        check("upd port 53", "udp port 53");
        check("tcp prot 80", "tcp port 80");
        check("arp and hots 10.0.0.1", "arp and host 10.0.0.1");
        check("tpc prot 80 adn hots 10.0.0.1", "tcp port 80 and host 10.0.0.1");
        check("10.0.0.1", "host 10.0.0.1");
        check("port 53 udp", "udp port 53");
        check("tcp port 80,443", "tcp port (80 or 443)");
        check("host 10.0.0.1/24", "net 10.0.0.0/24");
        check("net 10.0.0.1/24 and tcp", "net 10.0.0.0/24 and tcp");
        check("port dns", "port 53");
        check("hots $srcIP and prot {dstPort}", "host $srcIP and port {dstPort}");
        check("host 10.0.0.256", "'10.0.0.256' is no IPv4 address: 256 is more than 255");
        check("host 10.0.0.1.2.5", "'10.0.0.1.2.5' is no IPv4 address: it has 6 numbers, and not 4");
        check("host 10.0.0.1.5", "host 10.0.0.1 and port 5");
        check("host 10.0.0.l", "'10.0.0.l' is no IPv4 address: 'l' is no number; did you mean 10.0.0.1?");
        check("host fe80:::1", "'fe80:::1' is no IPv6 address: ':::' stands in it; did you mean fe80::1?");
        check("host fe80::g", "'fe80::g' is no IPv6 address: 'g' is no hexadecimal digit");
        check("ether host 02:00:00:00:00", "'02:00:00:00:00' is no Ethernet address: it has 5 bytes, and not 6");
        for text in ["tcp and foo", "host example.org", "tcp port htp", "vlan and", "foo", ""] {
            assert_eq!(meant(text), None, "{text}");
        }
    }

    /// What people write who know other programs, or are in a hurry, and the expression.
    const MEANT: [(&str, &str); 79] = [
        ("tcp host 10.0.0.1", "tcp and host 10.0.0.1"),
        ("udp net 10.0.0.0/8", "udp and net 10.0.0.0/8"),
        ("tcp src host 10.0.0.1", "tcp and src host 10.0.0.1"),
        ("tcp src 10.0.0.1", "tcp and src 10.0.0.1"),
        ("tcp 10.0.0.1", "tcp and host 10.0.0.1"),
        ("arp or tcp host 10.0.0.1", "arp or (tcp and host 10.0.0.1)"),
        ("not tcp host 10.0.0.1", "not (tcp and host 10.0.0.1)"),
        ("tcp host 10.0.0.1 or 10.0.0.2", "tcp and (host 10.0.0.1 or 10.0.0.2)"),
        ("tcp host $srcIP", "tcp and host $srcIP"),
        ("ip 10.0.0.1", "ip host 10.0.0.1"),
        ("src ip 10.0.0.1", "src host 10.0.0.1"),
        ("tcp 80", "tcp port 80"),
        ("udp/53", "udp port 53"),
        ("port 80-90", "portrange 80-90"),
        ("tcp port 80-90", "tcp portrange 80-90"),
        ("udp ports 10000-20000", "udp portrange 10000-20000"),
        ("port range 80-90", "portrange 80-90"),
        ("portrange 80..90", "portrange 80-90"),
        ("portrange 80 90", "portrange 80-90"),
        ("port >= 1024", "portrange 1024-65535"),
        ("port > 1023 and tcp", "portrange 1024-65535 and tcp"),
        ("port 80,443", "port (80 or 443)"),
        ("port 80 443", "port (80 or 443)"),
        ("host 10.0.0.1:80", "host 10.0.0.1 and port 80"),
        ("src 10.0.0.1:80", "src 10.0.0.1 and src port 80"),
        ("arp or 10.0.0.1:80", "arp or (host 10.0.0.1 and port 80)"),
        ("tcp host 10.0.0.1:80", "tcp and host 10.0.0.1 and port 80"),
        ("host [fe80::1]:80", "host fe80::1 and port 80"),
        ("src 10.0.0.1 dst 10.0.0.2", "src 10.0.0.1 and dst 10.0.0.2"),
        ("from 10.0.0.1 to 10.0.0.2", "src 10.0.0.1 and dst 10.0.0.2"),
        ("host 1.2.3.4 port 80", "host 1.2.3.4 and port 80"),
        ("host $srcIP port $srcPort", "host $srcIP and port $srcPort"),
        ("tcp port 80 tcp port 443", "tcp port 80 or tcp port 443"),
        ("host 1.2.3.4 not port 22", "host 1.2.3.4 and not port 22"),
        ("tcp udp", "tcp or udp"),
        ("tcp & port 80", "tcp and port 80"),
        ("tcp|udp", "tcp or udp"),
        ("icmp6.type == 135", "icmp6[icmp6type] = 135"),
        ("icmpv6.code == 0", "icmp6[icmp6code] = 0"),
        ("ip6.addr == ::1", "host ::1"),
        ("tcp.len > 0", "ip[2:2] - ((ip[0] & 0xf) << 2) - ((tcp[12] & 0xf0) >> 2) > 0"),
        ("tcp.port in {80, 443}", "(tcp port 80 or tcp port 443)"),
        ("udp.port in {53 1000..2000}", "(udp port 53 or udp portrange 1000-2000)"),
        ("tcp.dstport > 1024", "tcp dst portrange 1025-65535"),
        ("ip.addr == 10.0.0.1/24", "net 10.0.0.0/24"),
        ("ip.proto == tcp", "ip proto \\tcp"),
        ("ospf", "ip proto 89"),
        ("vxlan", "udp port 4789"),
        ("eigrp or lldp", "ip proto 88 or ether proto 0x88cc"),
        ("tcp-rest", "tcp[tcpflags] & tcp-rst != 0"),
        ("icmp-ecko", "icmp[icmptype] = icmp-echo"),
        ("tcp flags syn", "tcp[tcpflags] & tcp-syn != 0"),
        ("tcp[tcpflags] & rst != 0", "tcp[tcpflags] & tcp-rst != 0"),
        ("tcp[13] & 2", "tcp[13] & 2 != 0"),
        ("(tcp[13] & 2) or udp", "(tcp[13] & 2) != 0 or udp"),
        ("icmp echo", "icmp[icmptype] = icmp-echo"),
        ("icmp type 8", "icmp[icmptype] = 8"),
        ("arp request", "arp[6:2] = 1"),
        ("host fe80::1%eth0", "host fe80::1"),
        ("host 10.0.0.1-10.0.0.5", "net 10.0.0.0/29"),
        ("host 10.0.0.*", "net 10.0.0.0/24"),
        ("net 10/8", "net 10.0.0.0/8"),
        ("10.0.0.0/8", "net 10.0.0.0/8"),
        ("dst 10.0.0.0/8", "dst net 10.0.0.0/8"),
        ("net 10.0.0.0/255.255.255.0", "net 10.0.0.0 mask 255.255.255.0"),
        ("net 10.0.0.0 255.255.255.0", "net 10.0.0.0 mask 255.255.255.0"),
        ("port = 80", "port 80"),
        ("host != 10.0.0.1", "not host 10.0.0.1"),
        ("tcp port != 80", "tcp and not port 80"),
        ("ip == 10.0.0.1", "host 10.0.0.1"),
        ("ip proto tcp", "ip proto \\tcp"),
        ("dport 80", "dst port 80"),
        ("source 10.0.0.1", "src 10.0.0.1"),
        ("mac aa:bb:cc:dd:ee:ff", "ether host aa:bb:cc:dd:ee:ff"),
        ("vlan id 5", "vlan 5"),
        ("greater than 1000", "greater 1000"),
        ("except port 22", "not port 22"),
        ("host '10.0.0.1'", "host 10.0.0.1"),
        ("(host 10.0.0.1", "(host 10.0.0.1)"),
    ];

    #[test]
    fn every_expression_that_is_proposed_compiles() {
        for (text, expected) in MEANT {
            assert!(!compiles(text), "{text}");
            let filled = template::sampled(expected);
            let filled = filled.as_deref().unwrap_or(expected);
            let compiled = libpcap::compile(filled, LinkType::ETHERNET, libpcap::ByteOrder::Native);
            assert!(compiled.is_ok(), "{expected}: {compiled:?}");
        }
    }

    #[test]
    fn what_no_capture_filter_can_say_is_said_and_what_can() {
        let check = |text: &str, words: &[&str]| {
            let said = meant(text).unwrap_or_default();
            assert!(words.iter().all(|word| said.contains(word)), "{text}: {said}");
        };
        let fields =
            ["not tcp.analysis.retransmission", "frame contains \"abc\"", "tls.handshake", "http.host == \"a\"", "_ws.malformed"];
        for text in fields {
            let ask = format!("tshark -r FILE -Y '{text}'");
            check(text, &["display filter of Wireshark", "no capture filter can say", &ask]);
        }
        check("tcp contains 'a'", &[r"-Y 'tcp contains '\''a'\''"]);
        check("eth0", &["seems to be an interface", "-i eth0"]);
        check("-i enp0s31f6 tcp", &["-i enp0s31f6"]);
        check("everything", &["the empty filter: ''"]);
        check("host fe80::1%eth0", &["packets have no zone", "'%eth0'"]);
        check("host 10.0.0.1.443", &["it has 5 numbers", "port is written apart"]);
    }

    #[test]
    fn where_and_as_well_as_or_may_be_meant_neither_is_proposed() {
        for text in ["not host 10.0.0.1 port 22", "host 10.0.0.1 host 10.0.0.2", "host 10.0.0.1 port 80 or port 443"] {
            let said = meant(text).unwrap_or_default();
            assert!(said.starts_with("'and' or 'or' is missing between"), "{text}: {said}");
        }
    }

    #[test]
    fn no_hint_is_better_than_a_wrong_one() {
        let silent = ["vlan 5-7", "host 10.0.0.1 10.0.0.2", "80", "retransmission", "net 10.0.0.0/33", "tcp+udp", "vlan 7"];
        for text in silent {
            assert_eq!(meant(text), None, "{text}");
        }
        assert!(!meant("port 5060 sip").unwrap_or_default().contains("ip"), "no service for a protocol");
        for (text, name) in [("tcp flag", "flag"), ("tcp[rst]", "rst"), ("ip ttl < 5", "ttl")] {
            assert_eq!(no_name(text, text.find(name).unwrap(), name), "", "{text}");
        }
    }

    #[test]
    fn a_name_is_told_why_it_isn_t_resolved_and_what_to_write() {
        let said = no_name("host localhost", 5, "localhost");
        assert!(said.contains("names are not resolved") && said.ends_with("write: host 127.0.0.1 or host ::1"), "{said}");
        assert!(no_name("host www.example.org", 5, "www.example.org").ends_with("getent ahosts www.example.org"));
        assert!(said.lines().all(|line| line.len() <= 80), "{said}");
    }

    #[test]
    fn nothing_that_is_guessed_would_be_resolved_and_no_text_makes_a_guess_fail() {
        let mut random = crate::specimens::Random::new(31);
        let words = [
            "tcp.port", "==", "ip.addr", "upd", "prot", "10.0.0.1", "::", ",", "/24", "(", ")", "!", "é", "tcp-rst", "x.y", "in",
            "{", "80",
        ];
        for _ in 0..400 {
            let text: Vec<&str> = (0..random.below(8)).map(|_| random.pick(&words)).collect();
            let text = text.join(if random.one_in(3) { "" } else { " " });
            if let Some(said) = meant(&text) {
                assert!(!said.contains("  x.y"), "{text}: {said}");
            }
        }
    }
}
