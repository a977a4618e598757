//! What was probably meant by a text that isn't a filter, in tcpdump's language.
//!
//! | what was typed | what is proposed |
//! |---|---|
//! | `tcp.flags.reset`, `ip.addr == 10.0.0.1 && dns` (a display filter of Wireshark) | the same in tcpdump's words |
//! | `tcp-rst`, `tcp syn`, `icmp-echo` (a value without its field) | the comparison |
//! | `upd port 53`, `hots 10.0.0.1` | the nearest words |
//! | `10.0.0.1`, `port 53 udp`, `tcp port 80,443`, `host 10.0.0.1/24` | the same with what is missing |
//! | `tcp host 10.0.0.1`, `host 10.0.0.1 port 80`, `tcp udp` | the same with `and` or `or`; where either may be meant, that one is missing |
//! | `port 80-90`, `host 10.0.0.1:80`, `net 10.0.0.*`, `dport 80`, `port = 80` | the language's own form |
//! | `tcp.analysis.retransmission`, `frame contains "abc"` | that no capture filter can express it, and what can |
//! | `eth0`, `host fe80::1%eth0`, `everything` | where that belongs |
//! | `host 10.0.0.256`, `host fe80:::1`, `host localhost` | what is wrong with the address, or why no name stands there |
//!
//! What is proposed passes the compilation of a filter that is typed, and has no name that would be resolved.
//! Where more than one thing may be meant nothing is proposed: no hint is better than a wrong one.

mod address;
mod display;
mod edits;
mod fields;
mod joints;
mod protocols;
#[cfg(test)]
mod rows;
mod signs;
mod spelling;
mod synonyms;
mod trust;
mod values;

use trust::{proposed, understood};

use crate::words::{Kind, Token, tokens};

/// Longer texts are not guessed at.
const GUESSED_BYTES_MAX: usize = 512;
/// Names of interfaces begin so, and have a number in them.
const INTERFACES: [&str; 16] = [
    "eth", "en", "wl", "ww", "br", "br-", "veth", "tun", "tap", "ppp", "bond", "team", "docker", "virbr",
    "vmbr", "usb",
];

/// Fixes one kind of fault in a text; `None` where it isn't there.
type Repair = fn(&str, &[Token]) -> Option<String>;

/// All repairs, in the order in which they are made where one alone doesn't do.
const REPAIRS: [Repair; 18] = [
    unquoted,
    synonyms::translated,
    protocols::named,
    values::ranges,
    values::sockets,
    values::networks,
    values::without_host_bits,
    joined_lists,
    synonyms::comparisons,
    synonyms::flags,
    synonyms::hosts,
    signs::unsigned,
    joints::qualified,
    signs::escaped,
    signs::spoken,
    joints::alternatives,
    signs::compared,
    joints::joined,
];

/// A sentence on what was probably meant by `text`, which isn't a filter; `None` where no guess is good
/// enough.
pub(crate) fn meant(text: &str) -> Option<String> {
    if text.len() > GUESSED_BYTES_MAX || understood(text) {
        return None;
    }
    if display::is_one(text) {
        return Some(of_display_filter(text));
    }
    let found = tokens(text);
    address_fault(text)
        .or_else(|| explained(text, &found))
        .or_else(|| repaired(text).map(did_you_mean))
        .or_else(|| spelling::corrected(text, &found).map(did_you_mean))
        .or_else(|| incomplete(text, &found))
}

fn did_you_mean(meant: String) -> String {
    format!("did you mean:\n  {meant}")
}

/// What a display filter is in tcpdump's words; where nothing is known, what is wrong with it, or which
/// program evaluates it.
fn of_display_filter(text: &str) -> String {
    let translated = display::in_words_of_tcpdump(text);
    if let Some(meant) = translated.as_deref().and_then(repaired) {
        let bytes_of = |protocol: &str| meant.contains(&format!("{protocol}["));
        let limit = if bytes_of("tcp") || bytes_of("udp") { ", for IPv4 alone," } else { "" };
        return format!(
            "that is a display filter of Wireshark; in tcpdump's language{limit} it is:\n  {meant}"
        );
    }
    if let Some(fault) = translated.as_deref().and_then(address_fault) {
        return fault;
    }
    let why = match display::is_out_of_reach(text) {
        true => "no capture filter can express it",
        false => "this program knows no capture filter for it",
    };
    format!(
        "that is a display filter of Wireshark, and {why}:\n\
         record with a broader filter, then search the file: tshark -r FILE -Y {}",
        shell_word(text)
    )
}

/// A text as one word on one line of a shell's; a word that stands for it where it can't be one.
fn shell_word(text: &str) -> String {
    let line: String = text.trim().chars().map(|c| if c.is_whitespace() { ' ' } else { c }).collect();
    if line.contains(char::is_control) {
        "FILTER".into()
    } else {
        format!("'{}'", line.replace('\'', "'\\''"))
    }
}

/// What is wrong with an address; of one with a port behind a dot, how that is written.
fn address_fault(text: &str) -> Option<String> {
    let fault = address::fault(text)?;
    let apart = values::dotted(text, &tokens(text)).and_then(|apart| repaired(&apart));
    Some(match apart {
        Some(apart) => format!("{fault}; a port is written apart:\n  {apart}"),
        None => fault,
    })
}

/// Answers that need more than another text.
fn explained(text: &str, found: &[Token]) -> Option<String> {
    if let Some((zone, meant)) =
        values::zone(text, found).and_then(|(zone, text)| Some((zone, repaired(&text)?)))
    {
        return Some(format!(
            "packets have no zone, so '%{zone}' has no place in a filter; did you mean:\n  {meant}"
        ));
    }
    if let Some(meant) = values::around(text, found).and_then(|text| repaired(&text)) {
        return Some(format!(
            "there are no ranges of addresses; the smallest net around this one:\n  {meant}"
        ));
    }
    if let Some(field) = display::field(text) {
        return Some(format!(
            "'{field}' is a field of Wireshark's display filters; tcpdump's language doesn't have it"
        ));
    }
    match text.trim() {
        "all" | "any" | "everything" | "*" => {
            return Some("the empty filter matches every packet: ''".to_string());
        }
        _ => {}
    }
    let is_interface = |token: &&Token| {
        let known =
            |begin: &str| token.text.starts_with(begin) && token.text.contains(|c: char| c.is_ascii_digit());
        token.kind == Kind::Name && (token.text == "lo" || INTERFACES.iter().any(|begin| known(begin)))
    };
    let place = match found {
        [flag, i, ..] if flag.text == "-" && i.text == "i" => 2,
        _ => 0,
    };
    found.get(place).filter(is_interface).map(|token| {
        format!("'{0}' seems to be an interface; name it with its flag: wirescope run -i {0}", token.text)
    })
}

/// Where something is missing.
fn incomplete(text: &str, found: &[Token]) -> Option<String> {
    let closed = || joints::closed(text, found).and_then(|meant| proposed(&meant)).map(did_you_mean);
    closed().or_else(|| joints::explained(text, found))
}

/// The text, if it may be proposed, or what the repairs make of it: one alone, or as many as it takes.
fn repaired(text: &str) -> Option<String> {
    let alone =
        || REPAIRS.iter().filter_map(|repair| repair(text, &tokens(text))).find_map(|guess| proposed(&guess));
    proposed(text).or_else(alone).or_else(|| repaired_by(text, &REPAIRS))
}

/// What the repairs make of the text, as many as it takes.
fn repaired_by(text: &str, repairs: &[Repair]) -> Option<String> {
    let mut repaired = text.to_string();
    repairs.iter().find_map(|repair| {
        repaired = repair(&repaired, &tokens(&repaired))?;
        proposed(&repaired)
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
    let found = tokens(text);
    let Some(place) = found.iter().position(|token| token.at == at) else { return String::new() };
    if !is_hosts_place(&found[..place]) || is_no_host(&found, place) {
        return String::new();
    }
    let write = match name {
        _ if is_behind_ether(&found[..place]) => {
            "write the Ethernet address: ether host 02:00:00:00:00:01".to_string()
        }
        "localhost" => "write: host 127.0.0.1 or host ::1".to_string(),
        _ => format!("write the address; this prints it: getent ahosts {name}"),
    };
    format!("names are not resolved: a name server would decide what is recorded;\n{write}")
}

/// Whether the words in front of a place say that a host or a net stands there: `host`, or `and` behind a
/// list of them.
fn is_hosts_place(words: &[Token]) -> bool {
    let is_joint = |token: &&Token| matches!(token.text, "and" | "or" | "not" | "&&" | "||" | "!" | "(");
    let lists = words.last().is_some_and(|last| is_joint(&last));
    let says = words.iter().rev().find(|token| token.kind == Kind::Word && (!lists || !is_joint(token)));
    let last = if lists { says } else { words.last() };
    last.is_some_and(|token| {
        matches!(token.text, "host" | "net" | "gateway" | "src" | "dst" | "mask" | "ether" | "%")
    })
}

/// Whether the qualifiers in front of a place say `ether`.
fn is_behind_ether(words: &[Token]) -> bool {
    words.iter().rev().take_while(|token| token.kind == Kind::Word).any(|token| token.text == "ether")
}

/// Whether a name is sure to be no host's: a word for something else, an address with something behind it.
fn is_no_host(found: &[Token], place: usize) -> bool {
    let name = found[place].text;
    let is_word =
        synonyms::is_one(name) || matches!(name, "all" | "any" | "everything") || name.starts_with('\\');
    let begins_with_numbers = name.split('.').take(2).all(|part| part.parse::<u8>().is_ok());
    let has_value =
        found.get(place + 1).is_some_and(|next| matches!(next.kind, Kind::Address | Kind::Number));
    is_word || begins_with_numbers || has_value
}

/// What stands beside a name in a table.
fn known(table: &[(&'static str, &'static str)], name: &str) -> Option<&'static str> {
    table.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, meaning)| *meaning)
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
            if word.contains(',') {
                format!("({})", word.split(',').collect::<Vec<_>>().join(" or "))
            } else {
                word.into()
            }
        };
        spaced.split(' ').map(word).collect::<Vec<String>>().join(" ")
    })
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
        check("ip.addr != 10.0.0.1", "ip and not host 10.0.0.1");
        check(
            "frame.len > 100 and eth.addr == 02:00:00:00:00:01",
            "len > 100 and ether host 02:00:00:00:00:01",
        );
        for (text, expected) in rows::MEANT.into_iter().chain(rows::CLOSE_TO_WRONG) {
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
        check("host 10.0.0.256", "'10.0.0.256' is not an IPv4 address: 256 is more than 255");
        check("host 10.0.0.1.2.5", "'10.0.0.1.2.5' is not an IPv4 address: it has 6 numbers instead of 4");
        check("host 10.0.0.1.5", "host 10.0.0.1 and port 5");
        check(
            "host 10.0.0.l",
            "'10.0.0.l' is not an IPv4 address: 'l' is not a number; did you mean 10.0.0.1?",
        );
        check("host fe80:::1", "'fe80:::1' is not an IPv6 address: it contains ':::'; did you mean fe80::1?");
        check("host fe80::g", "'fe80::g' is not an IPv6 address: 'g' is not a hexadecimal digit");
        check(
            "ether host 02:00:00:00:00",
            "'02:00:00:00:00' is not an Ethernet address: it has 5 bytes instead of 6",
        );
        for text in ["tcp and foo", "host example.org", "tcp port htp", "vlan and", "foo", ""] {
            assert_eq!(meant(text), None, "{text}");
        }
    }

    #[test]
    fn what_no_capture_filter_can_say_is_said_and_what_can() {
        let check = |text: &str, words: &[&str]| {
            let said = meant(text).unwrap_or_default();
            assert!(words.iter().all(|word| said.contains(word)), "{text}: {said}");
        };
        let fields = [
            "not tcp.analysis.retransmission",
            "frame contains \"abc\"",
            "tls.handshake",
            "http.host == \"a\"",
            "_ws.malformed",
        ];
        for text in fields {
            let command = format!("tshark -r FILE -Y '{text}'");
            check(text, &["display filter of Wireshark", "no capture filter can express it", &command]);
        }
        check("tcp contains 'a'", &[r"-Y 'tcp contains '\''a'\''"]);
        for text in rows::UNKNOWN {
            check(
                text,
                &[
                    "display filter of Wireshark, and this program knows no capture filter for it",
                    "tshark -r FILE -Y '",
                ],
            );
        }
        check("frame contains \"a\u{1b}\"", &["no capture filter can express it", "-Y FILTER"]);
        check("tcp contains a\nor udp", &["-Y 'tcp contains a or udp'"]);
        check("tcp.len > 0", &["for IPv4 alone, it is:"]);
        check("tls port 8443", &["did you mean:"]);
        check("ip.addr == 10.0.0.1 and port 80", &["'ip.addr' is a field of Wireshark's display filters"]);
        check("eth0", &["seems to be an interface", "-i eth0"]);
        check("-i enp0s31f6 tcp", &["-i enp0s31f6"]);
        check("everything", &["the empty filter matches every packet: ''"]);
        check("host fe80::1%eth0", &["packets have no zone", "'%eth0'"]);
        check("host 10.0.0.1.443", &["it has 5 numbers", "port is written apart"]);
    }

    #[test]
    fn a_name_is_told_why_it_isn_t_resolved_and_what_to_write() {
        let check = |text: &str, name: &str, expected: &str| {
            let said = no_name(text, text.find(name).unwrap(), name);
            assert_eq!(said.lines().last().unwrap_or_default(), expected, "{text}: {said}");
            assert!(said.is_empty() || said.starts_with("names are not resolved"), "{said}");
            assert!(said.lines().all(|line| line.len() <= 80), "{said}");
        };
        check("host localhost", "localhost", "write: host 127.0.0.1 or host ::1");
        check(
            "host www.example.org",
            "www.example.org",
            "write the address; this prints it: getent ahosts www.example.org",
        );
        check("ether host foo", "foo", "write the Ethernet address: ether host 02:00:00:00:00:01");
        for (text, name) in [
            ("tcp flag", "flag"),
            ("tcp[rst]", "rst"),
            ("ip ttl < 5", "ttl"),
            ("src mac 00:11:22:33:44:55", "mac"),
            ("src any", "any"),
            ("host 10.0.0.1and port 80", "10.0.0.1and"),
            ("host \\a;b", "\\a;b"),
        ] {
            check(text, name, "");
        }
    }

    #[test]
    fn nothing_that_is_guessed_would_be_resolved_and_no_text_makes_a_guess_fail() {
        let mut random = crate::specimens::Random::new(31);
        let words = [
            "tcp.port", "==", "ip.addr", "upd", "prot", "10.0.0.1", "::", ",", "/24", "(", ")", "!", "é",
            "tcp-rst", "x.y", "in", "{", "80", "host", "$", "\"",
        ];
        for _ in 0..400 {
            let text: Vec<&str> = (0..random.below(8)).map(|_| random.pick(&words)).collect();
            let text = text.join(if random.one_in(3) { "" } else { " " });
            for meant in meant(&text).iter().flat_map(|said| rows::proposals(said)) {
                assert!(!meant.contains("x.y"), "{text}: {meant}");
            }
        }
        let many = "prots ".repeat(GUESSED_BYTES_MAX / 6);
        assert_eq!(meant(&many), None);
    }
}
