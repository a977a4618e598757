//! Joints that are missing, and protocols that stand in front of a host: `host 10.0.0.1 port 80`, `tcp host 10.0.0.1`.

use super::edits::{Edit, before, begins_operand, edited, grouped, in_brackets, word};
use crate::words::{Kind, Token};

/// Words with which an expression begins.
const BEGINNINGS: &str = " host net port portrange gateway proto src dst ip ip6 arp rarp tcp udp sctp icmp icmp6 igmp ether vlan \
    mpls pppoes greater less not ! ( broadcast multicast ";
/// Words that are a whole expression, whatever follows.
const WHOLE: &str = " vlan mpls pppoes broadcast multicast ";
/// Protocols that can't qualify a host or a net.
const TRANSPORTS: &str = " tcp udp sctp icmp icmp6 igmp pim vrrp ah esp ";
/// Protocols of which a packet has one at most.
const ALTERNATIVES: &str = " tcp udp sctp icmp icmp6 igmp arp rarp ";

fn listed(list: &str, word: &str) -> bool {
    !word.is_empty() && list.contains(&format!(" {word} "))
}

fn is_joint(word: &str) -> bool {
    matches!(word, "and" | "or" | "&&" | "||")
}

/// Tokens in front of which a joint is missing.
fn missing(found: &[Token]) -> Vec<usize> {
    let ends = |at: usize| {
        let token = &found[at];
        matches!(token.kind, Kind::Number | Kind::Address | Kind::Name)
            || matches!(token.text, ")" | "}")
            || (listed(WHOLE, token.text) && !matches!(before(found, at), "ip" | "ip6" | "ether"))
    };
    let begins = |at: usize| listed(BEGINNINGS, found[at].text);
    (1..found.len()).filter(|&at| ends(at - 1) && begins(at) && !in_brackets(found, at)).collect()
}

/// The qualifiers with which the expression that holds a token begins.
fn head<'a>(found: &[Token<'a>], from: usize) -> Vec<&'a str> {
    found[from..].iter().take_while(|token| token.kind == Kind::Word && !is_joint(token.text)).map(|token| token.text).collect()
}

/// `host 10.0.0.1 port 80` with `and`, `tcp port 80 tcp port 443` with `or`; `None` where either may be meant.
pub(super) fn joined(text: &str, found: &[Token]) -> Option<String> {
    let places = missing(found);
    let mut begins = vec![0];
    begins.extend(found.iter().enumerate().filter(|(_, token)| is_joint(token.text)).map(|(at, _)| at + 1));
    begins.extend(&places);
    begins.sort_unstable();
    let joints = begins.len() - 1 - places.len();
    if found.iter().any(|token| matches!(token.text, "or" | "||")) {
        return None;
    }
    let mut edits: Vec<Edit> = Vec::new();
    let mut words = Vec::new();
    for place in places {
        let from = begins.iter().rev().find(|begin| **begin < place).copied().unwrap_or(0);
        let (left, right) = (head(found, from), head(found, place));
        if matches!(left.first(), Some(&"not")) || word(found, from) == "!" {
            return None; // of all behind it, or of the first alone
        }
        let between =
            left.iter().any(|word| matches!(*word, "host" | "net")) && !left.iter().any(|word| matches!(*word, "src" | "dst"));
        words.push(match left == right {
            true if between => return None,
            true => "or",
            false => "and",
        });
        edits.push((found[place].at..found[place].at, format!(" {} ", words.last()?)));
    }
    let mixed = words.contains(&"or") && (words.contains(&"and") || joints > 0);
    if mixed { None } else { edited(text, edits) }
}

/// That a joint is missing, where it isn't known which.
pub(super) fn told(found: &[Token]) -> Option<String> {
    let place = *missing(found).first()?;
    Some(format!("'and' or 'or' is missing between '{}' and '{}'", before(found, place), found[place].text))
}

/// `tcp udp` as either.
pub(super) fn alternatives(text: &str, found: &[Token]) -> Option<String> {
    let ends = |at: usize| matches!(word(found, at), "" | ")") || is_joint(word(found, at));
    let pair = |at: usize| listed(ALTERNATIVES, word(found, at)) && listed(ALTERNATIVES, word(found, at + 1));
    let places = (0..found.len()).filter(|&at| begins_operand(found, at) && pair(at) && ends(at + 2));
    let edits = places.map(|at| {
        let either = format!("{} or {}", found[at].text, found[at + 1].text);
        let alone = before(found, at).is_empty() && word(found, at + 2).is_empty();
        (found[at].at..found[at + 1].end(), if alone { either } else { format!("({either})") })
    });
    edited(text, edits.collect())
}

/// Behind which token a value ends that begins at one, and whether it is one of several: `10.0.0.0/8`, `$srcIP`, `A or B`.
fn value_end(found: &[Token], at: usize) -> Option<(usize, bool)> {
    let one = |at: usize| {
        let value = match word(found, at) {
            "$" => at + 1,
            "{" if word(found, at + 2) == "}" => at + 2,
            _ => at,
        };
        let is_value = found.get(value)?.kind != Kind::Word;
        let end = if matches!(word(found, value + 1), "/" | "mask") { value + 2 } else { value };
        (is_value && end < found.len()).then_some(end)
    };
    let (mut end, mut several) = (one(at)?, false);
    while is_joint(word(found, end + 1)) && found.get(end + 2).is_some_and(|next| next.kind == Kind::Address) {
        end = one(end + 2)?;
        several = true;
    }
    Some((end, several))
}

/// `tcp host 10.0.0.1` as `tcp and host 10.0.0.1`; `ip 10.0.0.1`, `src ip 10.0.0.1` and `tcp 80` with what is missing.
pub(super) fn qualified(text: &str, found: &[Token]) -> Option<String> {
    let mut edits: Vec<Edit> = Vec::new();
    for at in 0..found.len() {
        let (this, next) = (found[at].text, word(found, at + 1));
        let is = |at: usize, kind: Kind| found.get(at).is_some_and(|token| token.kind == kind);
        if matches!(this, "ip" | "ip6" | "arp" | "rarp" | "ether") && is(at + 1, Kind::Address) {
            match before(found, at) {
                "src" | "dst" if matches!(this, "ip" | "ip6") => edits.push((found[at].at..found[at].end(), "host".into())),
                _ if begins_operand(found, at) => edits.push((found[at].end()..found[at].end(), " host".into())),
                _ => {}
            }
        }
        if !listed(TRANSPORTS, this) || !begins_operand(found, at) {
            continue;
        }
        // `tcp 80`, `tcp:80`, `tcp/80`
        let number = at + 1 + usize::from(matches!(next, ":" | "/" | "="));
        if matches!(this, "tcp" | "udp" | "sctp") && is(number, Kind::Number) {
            edits.push((found[at].end()..found[number].at, " port ".into()));
            continue;
        }
        let mut kind = at + 1;
        while matches!(word(found, kind), "src" | "dst")
            || (is_joint(word(found, kind)) && matches!(word(found, kind + 1), "src" | "dst"))
        {
            kind += 1;
        }
        let value = match word(found, kind) {
            "host" | "net" | "gateway" => kind + 1,
            _ if is(kind, Kind::Address) => kind,
            _ => continue,
        };
        let Some((end, several)) = value_end(found, value) else { continue };
        let host = if value == at + 1 { "host " } else { "" };
        let asked = format!("{host}{}", &text[found[at + 1].at..found[end].end()]);
        let asked = if several { format!("({asked})") } else { asked };
        edits.push((found[at].at..found[end].end(), grouped(found, at, format!("{this} and {asked}"))));
    }
    edited(text, edits)
}

/// `port = 80`, `src=10.0.0.1` and `host != 10.0.0.1` without the sign: qualifiers have none.
pub(super) fn unsigned(text: &str, found: &[Token]) -> Option<String> {
    const QUALIFIERS: &str = " port portrange host net gateway src dst proto vlan mpls ip ip6 ";
    let mut edits: Vec<Edit> = Vec::new();
    for at in 1..found.len() {
        let (sign, qualifier) = (&found[at], before(found, at));
        if !listed(QUALIFIERS, qualifier) || in_brackets(found, at) {
            continue;
        }
        let (from, to) = (found[at - 1].at, sign.end());
        let of_ip = matches!(qualifier, "ip" | "ip6") && found.get(at + 1).is_some_and(|next| next.kind == Kind::Address);
        let instead = if of_ip { "host" } else { qualifier };
        match sign.text {
            _ if matches!(qualifier, "ip" | "ip6") && !of_ip => {}
            "=" | "==" | ":" => edits.push((from..to, format!("{instead} "))),
            "!=" => {
                let begin = (0..at).rev().find(|&begin| begins_operand(found, begin))?;
                if begin + 1 == at {
                    edits.push((from..to, format!("not {instead} ")));
                } else if begin + 2 == at && listed(TRANSPORTS, found[begin].text) {
                    edits.push((from..to, format!("and not {instead} ")));
                }
            }
            _ => {}
        }
    }
    edited(text, edits)
}

/// `ip proto tcp` with the sign that makes a name of the word.
pub(super) fn escaped(text: &str, found: &[Token]) -> Option<String> {
    const PROTOCOLS: &str = " tcp udp sctp icmp icmp6 igmp igrp pim vrrp ah esp ip ip6 arp rarp ";
    let named = |at: usize| matches!(before(found, at), "proto" | "protochain") && listed(PROTOCOLS, found[at].text);
    let edits = (1..found.len()).filter(|&at| named(at)).map(|at| (found[at].at..found[at].at, "\\".to_string()));
    edited(text, edits.collect())
}

/// `tcp[13] & 2` with the comparison that makes an expression of the number.
pub(super) fn compared(text: &str, found: &[Token]) -> Option<String> {
    let mut edits: Vec<Edit> = Vec::new();
    let mut from = 0;
    for to in (0..=found.len()).filter(|&to| to == found.len() || is_joint(found[to].text)) {
        let operand = &found[from..to];
        from = to + 1;
        let says = |words: &[&str]| operand.iter().any(|token| words.contains(&token.text));
        let closing = operand.iter().filter(|token| token.text == ")").count();
        let opening = operand.iter().filter(|token| token.text == "(").count();
        let surplus = closing.saturating_sub(opening);
        let last = operand.len().checked_sub(1 + surplus).map(|last| &operand[last]);
        if let Some(last) = last.filter(|_| says(&["]"]) && !says(&["=", "==", "!=", "<", ">", "<=", ">="])) {
            edits.push((last.end()..last.end(), " != 0".into()));
        }
    }
    edited(text, edits)
}

/// `tcp & port 80` and `tcp | udp` with words.
pub(super) fn spoken(text: &str, found: &[Token]) -> Option<String> {
    if found.iter().any(|token| token.text == "[") {
        return None;
    }
    let spoken = |token: &Token| match token.text {
        "&" => Some("and"),
        "|" | ";" => Some("or"),
        _ => None,
    };
    let edits = found.iter().filter_map(|token| Some((token.at..token.end(), format!(" {} ", spoken(token)?))));
    edited(text, edits.collect())
}

/// A parenthesis that isn't closed, or that closes nothing at the end.
pub(super) fn closed(text: &str, found: &[Token]) -> Option<String> {
    let depth = |word: &str| found.iter().filter(|token| token.text == word).count();
    let (opening, closing) = (depth("("), depth(")"));
    let trimmed = text.trim_end();
    match opening.checked_sub(closing) {
        Some(0) => None,
        Some(open) => Some(format!("{trimmed}{}", ")".repeat(open))),
        None if closing - opening == 1 => trimmed.strip_suffix(')').map(|text| text.trim_end().to_string()),
        None => None,
    }
}
