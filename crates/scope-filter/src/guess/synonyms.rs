//! Words that people and other programs use for words of the language, and values that stand for a whole
//! comparison.

use std::net::IpAddr;

use super::edits::{Edit, before, begins_operand, edited, ends_operand, takes_over, word};
use super::{known, protocols};
use crate::words::{Kind, Token};

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
/// A protocol, what is said of its packets, and the comparison.
const KINDS: [(&str, &str, &str); 12] = [
    ("icmp", "echo", "icmp[icmptype] = icmp-echo"),
    ("icmp", "ping", "icmp[icmptype] = icmp-echo"),
    ("icmp", "request", "icmp[icmptype] = icmp-echo"),
    ("icmp", "reply", "icmp[icmptype] = icmp-echoreply"),
    ("icmp", "unreach", "icmp[icmptype] = icmp-unreach"),
    ("icmp", "unreachable", "icmp[icmptype] = icmp-unreach"),
    ("icmp", "redirect", "icmp[icmptype] = icmp-redirect"),
    ("icmp6", "echo", "icmp6[icmp6type] = icmp6-echo"),
    ("icmp6", "ping", "icmp6[icmp6type] = icmp6-echo"),
    ("arp", "request", "arp[6:2] = 1"),
    ("arp", "who-has", "arp[6:2] = 1"),
    ("arp", "reply", "arp[6:2] = 2"),
];
/// Other words for words of the language; empty: one that is omitted.
const WORDS: [(&str, &str); 29] = [
    ("source", "src"),
    ("from", "src"),
    ("saddr", "src"),
    ("srcip", "src host"),
    ("destination", "dst"),
    ("dest", "dst"),
    ("to", "dst"),
    ("daddr", "dst"),
    ("dstip", "dst host"),
    ("sport", "src port"),
    ("srcport", "src port"),
    ("src-port", "src port"),
    ("dport", "dst port"),
    ("dstport", "dst port"),
    ("dst-port", "dst port"),
    ("ports", "port"),
    ("mac", "ether host"),
    ("ipv4", "ip"),
    ("ip4", "ip"),
    ("bcast", "broadcast"),
    ("size", "len"),
    ("without", "not"),
    ("except", "not"),
    ("subnet", "net"),
    ("network", "net"),
    ("address", "host"),
    ("addr", "host"),
    ("protocol", "proto"),
    ("than", ""),
];
fn flag(word: &str) -> Option<&'static str> {
    let known = |(name, flag): &&(&str, &str)| name.eq_ignore_ascii_case(word) || *flag == word;
    FLAGS.iter().find(known).map(|(_, flag)| *flag)
}

/// `tcp-rst`, `tcp syn`, `icmp echo`, `icmp type 8` as comparisons.
pub(super) fn comparisons(text: &str, found: &[Token]) -> Option<String> {
    let alone = |word: &str| match word {
        _ if flag(word).is_some() => Some(format!("tcp[tcpflags] & {} != 0", flag(word)?)),
        "icmptype" | "icmpcode" | "icmp6type" | "icmp6code" | "tcpflags" => None,
        _ if word.starts_with("icmp6-") => Some(format!("icmp6[icmp6type] = {word}")),
        _ if word.starts_with("icmp-") => Some(format!("icmp[icmptype] = {word}")),
        _ => None,
    };
    let compared =
        |at: usize| found.get(at + 1).is_some_and(|next| next.kind == Kind::Symbol && next.text != ")");
    let mut edits: Vec<Edit> = Vec::new();
    for at in (0..found.len()).filter(|&at| begins_operand(found, at)) {
        let (protocol, next) = (found[at].text, word(found, at + 1));
        // `tcp syn`, `tcp flags syn`
        let said = at + 1 + usize::from(matches!(next, "flag" | "flags"));
        let kind = KINDS
            .iter()
            .find(|(of, kind, _)| *of == protocol && *kind == next)
            .map(|(.., comparison)| comparison.to_string());
        let field = match (protocol, next) {
            ("icmp" | "icmp6", "type" | "code")
                if found.get(at + 2).is_some_and(|value| value.kind == Kind::Number) =>
            {
                Some(format!("{protocol}[{protocol}{next}] = {}", word(found, at + 2)))
            }
            _ => None,
        };
        if protocol == "tcp"
            && let Some(flag) = flag(word(found, said)).filter(|_| !compared(said))
        {
            edits.push((found[at].at..found[said].end(), format!("tcp[tcpflags] & {flag} != 0"))); // its flag says tcp
        } else if let Some(comparison) = field {
            edits.push((found[at].at..found[at + 2].end(), comparison));
        } else if let Some(comparison) = kind {
            edits.push((found[at].at..found[at + 1].end(), comparison));
        } else if let Some(comparison) = alone(protocol).filter(|_| !compared(at)) {
            edits.push((found[at].at..found[at].end(), comparison));
        }
    }
    edited(text, edits)
}

/// `tcp[tcpflags] & rst != 0` with the flag's whole name.
pub(super) fn flags(text: &str, found: &[Token]) -> Option<String> {
    let named = |at: usize| matches!(before(found, at), "&" | "|" | "(" | "=" | "==" | "!=");
    let name = |at: usize| flag(found[at].text).filter(|_| found[at].kind == Kind::Name && named(at));
    let all = found.iter().any(|token| token.text == "tcpflags");
    let edits =
        (0..found.len()).filter_map(|at| Some((found[at].at..found[at].end(), name(at)?.to_string())));
    edited(text, edits.filter(|_| all).collect())
}

/// Whether people use a word for one of the language.
pub(super) fn is_one(name: &str) -> bool {
    known(&WORDS, name).is_some()
}

/// `source`, `dport`, `mac` in the language's words; `port 53 udp` and `port dns` put right.
pub(super) fn translated(text: &str, found: &[Token]) -> Option<String> {
    let mut edits: Vec<Edit> = Vec::new();
    for (at, token) in found.iter().enumerate() {
        let is_filled = matches!(before(found, at), "$" | "{");
        let has_address = found
            .get(at + 1)
            .is_some_and(|next| next.kind == Kind::Address || matches!(next.text, "$" | "{"));
        let change = match token.text {
            "port" if is_turned(found, at) => Some(format!("{} port", word(found, at + 2))),
            _ if at > 1 && is_turned(found, at - 2) => Some(String::new()),
            "id" if before(found, at) == "vlan" => Some(String::new()),
            "bytes" if matches!(before(found, at.saturating_sub(1)), "less" | "greater") => {
                Some(String::new())
            }
            "to" | "from" if !has_address => None,
            _ if before(found, at) == "port" => protocols::port(token.text).map(str::to_string),
            _ if token.kind == Kind::Name && !is_filled => known(&WORDS, token.text).map(str::to_string),
            _ => None,
        };
        edits.extend(change.map(|new| (token.at..token.end(), new)));
    }
    edited(text, edits)
}

/// Whether a whole expression at a token is `port 53 udp`. Behind `not` and `or` it may be meant to be more
/// or less of the text.
fn is_turned(found: &[Token], at: usize) -> bool {
    word(found, at) == "port"
        && matches!(word(found, at + 2), "tcp" | "udp" | "sctp")
        && matches!(before(found, at), "" | "and" | "&&" | "(")
        && ends_operand(found, at + 3)
}

/// `10.0.0.1` with the word that says what it is.
pub(super) fn hosts(text: &str, found: &[Token]) -> Option<String> {
    let address = |at: usize| {
        let token = &found[at];
        let kind = match token.text {
            text if text.parse::<IpAddr>().is_ok() => "host ",
            text if text.contains(['-', ':']) => "ether host ",
            _ => return None,
        };
        let is_bare = token.kind == Kind::Address && begins_operand(found, at) && !takes_over(found, at);
        let goes_on = matches!(word(found, at + 1), "/" | ":" | "%");
        (is_bare && !goes_on).then(|| (token.at..token.at, kind.to_string()))
    };
    edited(text, (0..found.len()).filter_map(address).collect())
}
