//! Joints that are missing, and protocols that stand in front of a host: `host 10.0.0.1 port 80`,
//! `tcp host 10.0.0.1`.

use super::edits::{
    Edit, before, begins_operand, edited, ends_operand, grouped, in_brackets, is_joint, says, word,
};
use super::trust::{self, TAGS};
use crate::words::{Kind, Token};

/// Words with which an expression begins.
const BEGINNINGS: &str = " host net port portrange gateway proto src dst ip ip6 arp rarp tcp udp sctp icmp icmp6 igmp ether vlan \
    mpls pppoes greater less not ! ( broadcast multicast ";
/// Words that are a whole expression, whatever follows.
const WHOLE: &str = " vlan mpls pppoes broadcast multicast ";
/// Protocols that can't qualify a host or a net.
pub(super) const TRANSPORTS: &str = " tcp udp sctp icmp icmp6 igmp pim vrrp ah esp ";
/// Protocols of which a packet has one at most.
pub(super) const ALTERNATIVES: &str = " tcp udp sctp icmp icmp6 igmp arp rarp ";

pub(super) fn listed(list: &str, word: &str) -> bool {
    !word.is_empty() && list.contains(&format!(" {word} "))
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

/// What an expression tests, as far as joints need it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum OperandKind {
    Address,
    Port,
    Tag,
    Else,
}

/// An expression without joints.
struct Operand<'a> {
    text: &'a str,
    /// The qualifiers with which it begins.
    words: Vec<&'a str>,
    negated: bool,
    kind: OperandKind,
}

impl<'a> Operand<'a> {
    fn of(text: &'a str, tokens: &[Token<'a>]) -> Option<Operand<'a>> {
        let is_not = |token: &&Token| matches!(token.text, "not" | "!");
        let qualifiers = tokens.iter().skip_while(is_not).take_while(|token| token.kind == Kind::Word);
        let words: Vec<&str> = qualifiers.map(|token| token.text).collect();
        let says = |wanted: &[&str]| words.iter().any(|word| wanted.contains(word));
        let kind = match words.first() {
            _ if says(&["port", "portrange"]) => OperandKind::Port,
            _ if says(&["host", "net", "gateway", "src", "dst"]) => OperandKind::Address,
            Some(first) if TAGS.contains(first) => OperandKind::Tag,
            _ => OperandKind::Else,
        };
        let (first, last) = (tokens.first()?, tokens.last()?);
        Some(Operand { text: &text[first.at..last.end()], negated: is_not(&first), words, kind })
    }

    /// With what it is joined to another one that stands behind it; `None` where either may be meant.
    fn joint_to(&self, right: &Operand) -> Option<&'static str> {
        let has = |operand: &Operand, way: &str| operand.words.contains(&way);
        let one_way = |operand: &Operand, way: &str, other: &str| has(operand, way) && !has(operand, other);
        let opposite = |way, other| one_way(self, way, other) && one_way(right, other, way);
        match (self.kind, right.kind) {
            _ if right.negated => Some("and"),
            (OperandKind::Port, OperandKind::Port) | (OperandKind::Address, OperandKind::Address)
                if opposite("src", "dst") || opposite("dst", "src") =>
            {
                Some("and")
            }
            (OperandKind::Port, OperandKind::Port) => {
                (self.without_transport() == right.without_transport()).then_some("or")
            }
            (OperandKind::Address, OperandKind::Address) => {
                (self.words == right.words && (has(self, "src") || has(self, "dst"))).then_some("or")
            }
            (OperandKind::Tag, OperandKind::Tag) | (OperandKind::Else, OperandKind::Else) => None,
            _ => Some("and"),
        }
    }

    /// Whether the qualifiers begin with a transport, and those behind it.
    fn without_transport(&self) -> (bool, &[&'a str]) {
        match self.words.split_first() {
            Some((&("tcp" | "udp" | "sctp"), rest)) => (true, rest),
            _ => (false, &self.words[..]),
        }
    }
}

/// `host 10.0.0.1 port 80` with `and`, `tcp port 80 tcp port 443` with `or`; `None` where either may be
/// meant.
pub(super) fn joined(text: &str, found: &[Token]) -> Option<String> {
    let places = missing(found);
    let last = *places.last()?;
    if says(found, &["or", "||", "("]) || says(&found[..last], &["not", "!"]) {
        return None; // what stands beside a gap may be a part of more
    }
    let typed = (0..found.len()).filter(|&at| is_joint(found[at].text)).map(|at| at + 1);
    let mut begins: Vec<usize> = std::iter::once(0).chain(typed).chain(places.iter().copied()).collect();
    begins.sort_unstable();
    let mut operands = Vec::new();
    for (number, &from) in begins.iter().enumerate() {
        let to = begins.get(number + 1).copied().unwrap_or(found.len());
        let to = if to > from && is_joint(found[to - 1].text) { to - 1 } else { to };
        operands.push(Operand::of(text, &found[from..to])?);
    }
    let mut joint = if begins.len() > places.len() + 1 { "and" } else { "" };
    for right in 1..operands.len() {
        for left in 0..right {
            if places.iter().any(|&place| begins[left] < place && place <= begins[right]) {
                let between = operands[left].joint_to(&operands[right])?;
                if !joint.is_empty() && joint != between {
                    return None;
                }
                joint = between;
            }
        }
    }
    operands.sort_by_key(|operand| operand.kind != OperandKind::Tag); // a tag shifts what stands behind it, and goes first
    let texts: Vec<&str> = operands.iter().map(|operand| operand.text).collect();
    Some(texts.join(&format!(" {joint} ")))
}

/// That joints are missing, where it isn't known which, and nothing else is.
pub(super) fn explained(text: &str, found: &[Token]) -> Option<String> {
    let places = missing(found);
    let first = *places.first()?;
    let whole = edited(
        text,
        places.iter().map(|&place| (found[place].at..found[place].at, " or ".to_string())).collect(),
    )?;
    let missing =
        || format!("'and' or 'or' is missing between '{}' and '{}'", before(found, first), found[first].text);
    trust::understood(&whole).then(missing)
}

/// `tcp udp` as either.
pub(super) fn alternatives(text: &str, found: &[Token]) -> Option<String> {
    let pair = |at: usize| listed(ALTERNATIVES, word(found, at)) && listed(ALTERNATIVES, word(found, at + 1));
    let begins = |at: usize| begins_operand(found, at) && !matches!(before(found, at), "not" | "!");
    let places = (0..found.len()).filter(|&at| begins(at) && pair(at) && ends_operand(found, at + 2));
    let edits = places.map(|at| {
        let either = format!("{} or {}", found[at].text, found[at + 1].text);
        let alone = before(found, at).is_empty() && word(found, at + 2).is_empty();
        (found[at].at..found[at + 1].end(), if alone { either } else { format!("({either})") })
    });
    edited(text, edits.collect())
}

/// The last token of a value that begins at one: `10.0.0.0/8`, `$srcIP`, `${srcIP}`.
pub(super) fn value_end(found: &[Token], at: usize) -> Option<usize> {
    let value = match (word(found, at), word(found, at + 1)) {
        ("$", "{") => at + 3,
        ("$", _) => at + 1,
        ("{", _) => at + 2,
        _ => at,
    };
    let token = found.get(value)?;
    let is_value = matches!(token.kind, Kind::Number | Kind::Address | Kind::Name) || token.text == "}";
    let end = if matches!(word(found, value + 1), "/" | "mask") { value + 2 } else { value };
    (is_value && end < found.len()).then_some(end)
}

/// The last token of a list that begins at a token, and whether there is more than one value:
/// `10.0.0.1 or 10.0.0.2`.
fn list_end(found: &[Token], at: usize) -> Option<(usize, bool)> {
    let (mut end, mut several) = (value_end(found, at)?, false);
    while is_joint(word(found, end + 1)) && found.get(end + 2).is_some_and(|next| next.kind == Kind::Address)
    {
        end = value_end(found, end + 2)?;
        several = true;
    }
    Some((end, several))
}

/// `tcp host 10.0.0.1` as `tcp and host 10.0.0.1`; `ip 10.0.0.1`, `src ip 10.0.0.1` and `tcp 80` with what is
/// missing.
pub(super) fn qualified(text: &str, found: &[Token]) -> Option<String> {
    let mut edits: Vec<Edit> = Vec::new();
    for at in 0..found.len() {
        let (this, next) = (found[at].text, word(found, at + 1));
        let is = |at: usize, kind: Kind| found.get(at).is_some_and(|token| token.kind == kind);
        if matches!(this, "ip" | "ip6" | "arp" | "rarp" | "ether") && is(at + 1, Kind::Address) {
            match before(found, at) {
                "src" | "dst" if matches!(this, "ip" | "ip6") => {
                    edits.push((found[at].at..found[at].end(), "host".into()))
                }
                _ if begins_operand(found, at) => {
                    edits.push((found[at].end()..found[at].end(), " host".into()))
                }
                _ => {}
            }
        }
        if !listed(TRANSPORTS, this) || !begins_operand(found, at) {
            continue;
        }
        // `tcp 80`, `tcp:80`, `tcp/80`
        let number = at + 1 + usize::from(matches!(next, ":" | "/"));
        if matches!(this, "tcp" | "udp" | "sctp") && is(number, Kind::Number) {
            edits.push((found[at].end()..found[number].at, " port ".into()));
            continue;
        }
        let mut kind = at + 1;
        while matches!(word(found, kind), "src" | "dst")
            || (kind > at + 1
                && is_joint(word(found, kind))
                && matches!(word(found, kind + 1), "src" | "dst"))
        {
            kind += 1;
        }
        let value = match word(found, kind) {
            "host" | "net" | "gateway" => kind + 1,
            _ if is(kind, Kind::Address) => kind,
            _ => continue,
        };
        let Some((end, several)) = list_end(found, value) else { continue };
        let host = if value == at + 1 { "host " } else { "" };
        let operand = format!("{host}{}", &text[found[at + 1].at..found[end].end()]);
        let operand = if several { format!("({operand})") } else { operand };
        edits.push((found[at].at..found[end].end(), grouped(found, at, format!("{this} and {operand}"))));
    }
    edited(text, edits)
}

/// A parenthesis that isn't closed, or that closes nothing at the end, where it doesn't matter which one is
/// missing.
pub(super) fn closed(text: &str, found: &[Token]) -> Option<String> {
    let is_mixed = says(found, &["and", "&&"]) && says(found, &["or", "||"]);
    if is_mixed || says(found, &["not", "!"]) {
        return None;
    }
    let count = |word: &str| found.iter().filter(|token| token.text == word).count();
    let (opening, closing) = (count("("), count(")"));
    let trimmed = text.trim_end();
    match opening.checked_sub(closing) {
        Some(0) => None,
        Some(open) => Some(format!("{trimmed}{}", ")".repeat(open))),
        None if closing - opening == 1 => trimmed.strip_suffix(')').map(|text| text.trim_end().to_string()),
        None => None,
    }
}
