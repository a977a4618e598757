//! Which guesses may be proposed: those that compile, and in which no number and no tag means something else
//! than it seems to.

use scope_packet::LinkType;

use super::edits::{before, in_brackets, word};
use crate::libpcap::{self, ByteOrder};
use crate::template::text::sampled;
use crate::words::{self, Kind, Token, tokens};

/// Words that shift all that stands behind them in the text to behind a tag or label, also behind `or` and
/// `not`.
pub(super) const TAGS: [&str; 5] = ["vlan", "mpls", "pppoed", "pppoes", "geneve"];

/// The guess on one line, if it may be proposed.
pub(super) fn proposed(guess: &str) -> Option<String> {
    let guess = guess.split_ascii_whitespace().collect::<Vec<_>>().join(" ");
    let compiles = |text: &str| libpcap::compile(text, LinkType::ETHERNET, ByteOrder::Native).is_ok();
    let may_be = |text: &str| {
        let found = tokens(text);
        is_understood(text) && !has_odd_number(&found) && !has_odd_tag(&found) && compiles(text)
    };
    holds_for(&guess, may_be).then_some(guess)
}

/// Whether a text is a sentence of the language. libpcap's optimiser, which refuses what can match nothing,
/// isn't run.
pub(super) fn understood(text: &str) -> bool {
    holds_for(text, is_understood)
}

fn is_understood(text: &str) -> bool {
    words::check(text).is_ok() && libpcap::understands(text, LinkType::ETHERNET)
}

/// Of a template: whether it holds for what it is compiled to.
fn holds_for(text: &str, holds: impl Fn(&str) -> bool) -> bool {
    match sampled(text) {
        Some(filled) => filled.iter().all(|text| holds(text)),
        None => holds(text),
    }
}

/// Whether a number stands for an address (`host 80` is 0.0.0.80), or both of two numbers are wanted
/// (`port 80 and 443`).
fn has_odd_number(found: &[Token]) -> bool {
    let is_compared = |at: usize| {
        let is_sign = |word: &str| !matches!(word, "(" | ")" | "!");
        let mut beside =
            [at.checked_sub(1), Some(at + 1)].into_iter().flatten().filter_map(|at| found.get(at));
        beside.any(|token| token.kind == Kind::Symbol && is_sign(token.text))
    };
    let is_odd = |at: usize| {
        let says =
            found[..at].iter().rev().find(|token| token.kind == Kind::Word && !is_operator(token.text));
        let of_address =
            says.is_some_and(|says| matches!(says.text, "host" | "net" | "gateway" | "src" | "dst" | "mask"));
        of_address || matches!(before(found, at), "and" | "&&")
    };
    let is_number = |at: usize| found[at].kind == Kind::Number && !in_brackets(found, at) && !is_compared(at);
    (0..found.len()).any(|at| is_number(at) && is_odd(at))
}

fn is_operator(word: &str) -> bool {
    matches!(word, "and" | "or" | "not" | "&&" | "||")
}

/// Whether a tag stands elsewhere than first, or beside an `or`, which it shifts too.
fn has_odd_tag(found: &[Token]) -> bool {
    let is_tag = |token: &Token| token.kind == Kind::Word && TAGS.contains(&token.text);
    let Some(last) = found.iter().rposition(is_tag) else { return false };
    let leads =
        |token: &Token| is_tag(token) || token.kind == Kind::Number || matches!(token.text, "and" | "&&");
    let mut depth = 0;
    for at in last..found.len() {
        match word(found, at) {
            "(" => depth += 1,
            ")" => depth -= 1,
            "or" | "||" if depth <= 0 => return true,
            _ => {}
        }
    }
    !found[..last].iter().all(leads)
}
