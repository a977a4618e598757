//! Changes of a text at the places of its tokens.

use std::ops::Range;

use crate::words::{Kind, Token};

/// Other text for some of a text's bytes.
pub(super) type Edit = (Range<usize>, String);

/// The text with all edits made, of which none overlap; `None` where there are none.
pub(super) fn edited(text: &str, mut edits: Vec<Edit>) -> Option<String> {
    if edits.is_empty() {
        return None;
    }
    edits.sort_by_key(|(range, _)| (range.start, range.end)); // what is only put in goes in front
    let (mut out, mut from) = (String::new(), 0);
    for (range, new) in edits {
        out.push_str(text.get(from..range.start)?);
        out.push_str(&new);
        from = range.end;
    }
    out.push_str(text.get(from..)?);
    Some(out.split(' ').filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" "))
}

/// The word of a token; empty where there is none.
pub(super) fn word<'a>(found: &[Token<'a>], at: usize) -> &'a str {
    found.get(at).map_or("", |token| token.text)
}

/// The word in front of a token; empty where there is none.
pub(super) fn before<'a>(found: &[Token<'a>], at: usize) -> &'a str {
    at.checked_sub(1).map_or("", |at| word(found, at))
}

/// Whether a word joins two expressions.
pub(super) fn is_joint(word: &str) -> bool {
    matches!(word, "and" | "or" | "&&" | "||")
}

/// Whether a token is one of some words.
pub(super) fn says(found: &[Token], words: &[&str]) -> bool {
    found.iter().any(|token| words.contains(&token.text))
}

/// Whether an expression begins at a token: nothing, a joint or a parenthesis stands in front of it.
pub(super) fn begins_operand(found: &[Token], at: usize) -> bool {
    matches!(before(found, at), "" | "and" | "or" | "not" | "&&" | "||" | "!" | "(")
}

/// Whether an expression has ended in front of a token: nothing, a joint or a parenthesis stands there.
pub(super) fn ends_operand(found: &[Token], at: usize) -> bool {
    matches!(word(found, at), "" | ")") || is_joint(word(found, at))
}

/// Whether a value at a token takes over what stands in front of an address before it:
/// `src 10.0.0.1 or 10.0.0.2`.
pub(super) fn takes_over(found: &[Token], at: usize) -> bool {
    begins_operand(found, at) && says(&found[..at], &["host", "net", "gateway", "src", "dst"])
}

/// Several expressions that stand where one stood: in parentheses where a joint in front of them would bind
/// the first alone.
pub(super) fn grouped(found: &[Token], at: usize, expressions: String) -> String {
    match before(found, at) {
        "or" | "||" | "not" | "!" => format!("({expressions})"),
        _ => expressions,
    }
}

/// Whether two tokens touch.
pub(super) fn touch(found: &[Token], at: usize) -> bool {
    found.get(at).zip(found.get(at + 1)).is_some_and(|(token, next)| token.end() == next.at)
}

/// Whether a token stands in brackets.
pub(super) fn in_brackets(found: &[Token], at: usize) -> bool {
    let depth = |word: &str| {
        found[..at].iter().filter(|token| token.kind == Kind::Symbol && token.text == word).count()
    };
    depth("[") > depth("]")
}
