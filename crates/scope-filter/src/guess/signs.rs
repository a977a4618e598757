//! Signs in the place of words, words in the place of signs: `port = 80`, `tcp & udp`, `ip proto tcp`,
//! `tcp[13] & 2`.

use super::edits::{
    Edit, before, begins_operand, edited, ends_operand, grouped, in_brackets, is_joint, says, word,
};
use super::joints::{ALTERNATIVES, TRANSPORTS, listed, value_end};
use crate::words::{Kind, Token};

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
        let of_ip = matches!(qualifier, "ip" | "ip6")
            && found.get(at + 1).is_some_and(|next| next.kind == Kind::Address);
        let instead = if of_ip { "host" } else { qualifier };
        match sign.text {
            _ if matches!(qualifier, "ip" | "ip6") && !of_ip => {}
            "=" | "==" | ":" => edits.push((from..to, format!("{instead} "))),
            "!=" => {
                let begin = (0..at).rev().find(|&begin| begins_operand(found, begin))?;
                let end = value_end(found, at + 1)?;
                let goes_on = is_joint(word(found, end + 1))
                    && found.get(end + 2).is_some_and(|next| next.kind != Kind::Word);
                if of_ip
                    || goes_on
                    || !ends_operand(found, end + 1)
                    || matches!(before(found, begin), "not" | "!")
                {
                    return None; // how much of the text is negated isn't known
                }
                if begin + 1 == at {
                    edits.push((from..to, format!("not {qualifier} ")));
                } else if begin + 2 == at && listed(TRANSPORTS, found[begin].text) {
                    let value = &text[found[at + 1].at..found[end].end()];
                    let negated = format!("{} and not {qualifier} {value}", found[begin].text);
                    edits.push((found[begin].at..found[end].end(), grouped(found, begin, negated)));
                } else {
                    return None;
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
    let named =
        |at: usize| matches!(before(found, at), "proto" | "protochain") && listed(PROTOCOLS, found[at].text);
    let edits =
        (1..found.len()).filter(|&at| named(at)).map(|at| (found[at].at..found[at].at, "\\".to_string()));
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
    // `tcp|udp port 53` is either protocol's port; of `&` and `|` it isn't said which binds first.
    let is_protocol = |at: usize| listed(ALTERNATIVES, word(found, at));
    let goes_on = |at: usize| !ends_operand(found, at) && word(found, at) != "|";
    let shares = (1..found.len())
        .any(|at| word(found, at) == "|" && is_protocol(at - 1) && is_protocol(at + 1) && goes_on(at + 2));
    let is_mixed = says(found, &["&", "&&", "and"]) && says(found, &["|", "||", "or"]);
    if shares || is_mixed || says(found, &["["]) {
        return None;
    }
    let spoken = |token: &Token| match token.text {
        "&" => Some("and"),
        "|" => Some("or"),
        _ => None,
    };
    let edits =
        found.iter().filter_map(|token| Some((token.at..token.end(), format!(" {} ", spoken(token)?))));
    edited(text, edits.collect())
}
