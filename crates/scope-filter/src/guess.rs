//! What was probably meant by a text that is no filter, in tcpdump's language.
//!
//! | what was typed | what is proposed |
//! |---|---|
//! | `tcp.flags.reset`, `ip.addr == 10.0.0.1 && dns` (a display filter of Wireshark) | the same in tcpdump's words |
//! | `tcp-rst`, `tcp syn`, `icmp-echo` (a value without its field) | the comparison |
//! | `upd port 53`, `hots 10.0.0.1` | the nearest words |
//! | `10.0.0.1`, `port 53 udp`, `tcp port 80,443`, `host 10.0.0.1/24` | the same with what is missing |
//! | `host 10.0.0.256`, `host fe80:::1`, `host localhost` | what is wrong with the address, or why no name stands there |
//!
//! What is proposed compiles: each guess is tried, and no guess has a name that would be resolved.

mod address;
mod display;

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
/// TCP's flags, as people call them.
const FLAGS: [(&str, &str); 12] = [
    ("syn", "tcp-syn"),
    ("rst", "tcp-rst"),
    ("reset", "tcp-rst"),
    ("fin", "tcp-fin"),
    ("ack", "tcp-ack"),
    ("psh", "tcp-push"),
    ("push", "tcp-push"),
    ("urg", "tcp-urg"),
    ("ece", "tcp-ece"),
    ("cwr", "tcp-cwr"),
    ("tcp-reset", "tcp-rst"),
    ("tcp-psh", "tcp-push"),
];
/// Names of ports that libpcap doesn't know everywhere.
const PORTS: [(&str, &str); 8] = [
    ("dns", "53"),
    ("mdns", "5353"),
    ("dhcp", "67"),
    ("smb", "445"),
    ("rdp", "3389"),
    ("tls", "443"),
    ("quic", "443"),
    ("vxlan", "4789"),
];

/// A sentence on what was probably meant by `text`, which is no filter; `None` where nothing comes to mind.
pub(crate) fn meant(text: &str) -> Option<String> {
    if text.len() > GUESSED_BYTES_MAX {
        return None;
    }
    if let Some(fault) = address::fault(text) {
        return Some(fault);
    }
    if let Some(meant) = display::in_words_of_tcpdump(text).filter(|meant| compiles(meant)) {
        return Some(format!("that is a display filter of Wireshark; in tcpdump's language it is:\n  {meant}"));
    }
    let found = tokens(text);
    let guesses = [whole_comparisons(text, &found), completed(text, &found), joined_lists(text)];
    let guess = guesses.into_iter().flatten().find(|guess| guess != text && compiles(guess));
    guess.or_else(|| spelt(text, &found)).map(|meant| format!("did you mean:\n  {meant}"))
}

/// Why no name stands where an address is wanted, and what to write.
pub(crate) fn no_name(text: &str, name: &str) -> String {
    if let Some(meant) = meant(text) {
        return meant;
    }
    let write = match name {
        "localhost" => "write: host 127.0.0.1 or host ::1".to_string(),
        _ => format!("write the address; this prints it: getent ahosts {name}"),
    };
    format!("names are not resolved: who answers for a name would decide what is recorded;\n{write}")
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

fn begins_operand(found: &[Token], at: usize) -> bool {
    let before = at.checked_sub(1).map(|before| found[before].text);
    matches!(before, None | Some("and" | "or" | "not" | "&&" | "||" | "!" | "("))
}

/// `tcp-rst` and `tcp syn` as comparisons.
fn whole_comparisons(text: &str, found: &[Token]) -> Option<String> {
    let flag = |word: &str| {
        let known = FLAGS.iter().find(|(name, _)| name.eq_ignore_ascii_case(word)).map(|(_, flag)| (*flag).to_string());
        known.or_else(|| FLAGS.iter().any(|(_, flag)| *flag == word).then(|| word.to_string()))
    };
    let field = |word: &str| match word {
        _ if flag(word).is_some() => Some(format!("tcp[tcpflags] & {} != 0", flag(word)?)),
        "icmptype" | "icmpcode" | "icmp6type" | "icmp6code" | "tcpflags" => None,
        _ if word.starts_with("icmp6-") => Some(format!("icmp6[icmp6type] = {word}")),
        _ if word.starts_with("icmp-") => Some(format!("icmp[icmptype] = {word}")),
        _ => None,
    };
    let compared = |at: usize| found.get(at + 1).is_some_and(|next| next.kind == Kind::Symbol && next.text != ")");
    let of_tcp = |at: usize| found[at].text == "tcp" && found.get(at + 1).is_some_and(|next| flag(next.text).is_some());
    Some(replaced(text, found, |at| {
        if of_tcp(at) && begins_operand(found, at) {
            return Some(String::new()); // its flag says tcp
        }
        let alone = begins_operand(found, at) || (at > 0 && of_tcp(at - 1) && begins_operand(found, at - 1));
        field(found[at].text).filter(|_| alone && !compared(at))
    }))
    .map(|text| text.trim_start().replace("  ", " "))
}

/// `10.0.0.1`, `port 53 udp`, `port dns` and `host 10.0.0.1/24` with what is missing.
fn completed(text: &str, found: &[Token]) -> Option<String> {
    let is_protocol = |token: &Token| matches!(token.text, "tcp" | "udp" | "sctp");
    let before = |at: usize, by: usize| at.checked_sub(by).map_or("", |before| found[before].text);
    Some(replaced(text, found, |at| {
        let (token, next) = (&found[at], found.get(at + 1).map_or("", |next| next.text));
        let network = next == "/";
        match token.text {
            _ if token.kind == Kind::Address && network => address::network(token.text, found.get(at + 2)?.text),
            "host" if found.get(at + 2).is_some_and(|slash| slash.text == "/") => Some("net".to_string()),
            _ if token.kind == Kind::Address && begins_operand(found, at) => Some(format!("host {}", token.text)),
            "port" if found.get(at + 2).is_some_and(is_protocol) && begins_operand(found, at) => {
                Some(format!("{} port", found[at + 2].text))
            }
            _ if is_protocol(token) && before(at, 2) == "port" && begins_operand(found, at - 2) => Some(String::new()),
            name if before(at, 1) == "port" => {
                PORTS.iter().find(|(known, _)| *known == name).map(|(_, port)| (*port).to_string())
            }
            _ => None,
        }
    }))
    .map(|text| text.trim_end().to_string())
}

/// `80,443` as `(80 or 443)`.
fn joined_lists(text: &str) -> Option<String> {
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
        let mut near: Vec<_> =
            COMMON.iter().map(|known| (distance(known, &word), *known)).filter(|(far, _)| *far <= most).collect();
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
        compiles(&guess).then_some(guess)
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
        check("dns", "port 53");
        check("http or tls", "tcp port 80 or tcp port 443");
        check("tcp-rst", "tcp[tcpflags] & tcp-rst != 0");
        check("host 10.0.0.1 and tcp-syn", "host 10.0.0.1 and tcp[tcpflags] & tcp-syn != 0");
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
        check("host 10.0.0.1.5", "'10.0.0.1.5' is no IPv4 address: it has 5 numbers, and not 4");
        check("host 10.0.0.l", "'10.0.0.l' is no IPv4 address: 'l' is no number; did you mean 10.0.0.1?");
        check("host fe80:::1", "'fe80:::1' is no IPv6 address: ':::' stands in it; did you mean fe80::1?");
        check("host fe80::g", "'fe80::g' is no IPv6 address: 'g' is no hexadecimal digit");
        check("ether host 02:00:00:00:00", "'02:00:00:00:00' is no Ethernet address: it has 5 bytes, and not 6");
        for text in ["tcp and foo", "host example.org", "tcp port htp", "vlan and", "tcp)", "foo", ""] {
            assert_eq!(meant(text), None, "{text}");
        }
    }

    #[test]
    fn a_name_is_told_why_it_isn_t_resolved_and_what_to_write() {
        let said = no_name("host localhost", "localhost");
        assert!(said.contains("names are not resolved") && said.ends_with("write: host 127.0.0.1 or host ::1"), "{said}");
        assert!(no_name("host www.example.org", "www.example.org").ends_with("getent ahosts www.example.org"));
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
