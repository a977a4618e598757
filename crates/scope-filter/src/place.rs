//! Finds the token at which libpcap's "syntax error" begins: libpcap says that there is one, not where.
//!
//! ```text
//! a prefix of the tokens is alive if one of a few endings makes a text of it that compiles
//! the fault is the first token whose prefix is dead          (what is dead stays dead: double, then halve)
//! if none is dead, the text ends too early: the fault is its end
//! where the time runs out, in very long texts, the fault is said to begin behind the last prefix known to be alive
//! ```

use std::time::{Duration, Instant};

use scope_packet::LinkType;

use crate::error::{SHELL_HINT, TEMPLATE_HINT};
use crate::libpcap;
use crate::words::{Kind, Token, tokens};

/// How long a search goes on; libpcap's compilation that it waits for then is its last.
const SEARCH_TIME_MAX: Duration = Duration::from_secs(1);
/// What is said where the search ends too early.
const LONG_HINT: &str = "the text is too long to find the place in time: it is there or later";

/// What may follow a prefix to make a whole text of it, without names.
const ENDINGS: [&str; 22] = [
    "",
    " 1",
    " 1.2.3.4",
    " tcp",
    " port 1",
    " host 1.2.3.4",
    " 1 = 1",
    " = 1",
    "] = 1",
    " 1] = 1",
    ":1] = 1",
    " ::1",
    " 32",
    " 128",
    "/8",
    " 1:2:3:4:5:6",
    " \\tcp",
    " 1-2",
    " mask 255.0.0.0",
    " mgt",
    " in",
    " pass",
];

/// Where and why a text is refused.
pub(crate) struct Fault {
    /// Bytes from the start of the text.
    pub at: usize,
    /// What may help; empty where nothing is known.
    pub hint: String,
}

/// Finds the fault in a text that doesn't compile for `link` and has passed [`crate::words::check`].
pub(crate) fn find(text: &str, link: LinkType) -> Fault {
    let tokens = tokens(text);
    let began = Instant::now();
    let (mut alive, mut dead) = (0, tokens.len() + 1);
    while dead - alive > 1 && began.elapsed() < SEARCH_TIME_MAX {
        let doubled = (2 * alive).max(1);
        let prefix = if doubled < dead { doubled } else { alive + (dead - alive) / 2 };
        match is_alive(text, &tokens[..prefix], link, began) {
            Some(true) => alive = prefix,
            Some(false) => dead = prefix,
            None => break,
        }
    }
    let at = tokens.get(alive).map_or(text.trim_end().len(), |token| token.at);
    let hint = if dead - alive > 1 { LONG_HINT.into() } else { hint(text, &tokens, alive) };
    Fault { at, hint }
}

/// `None` where the time, which counts from `began`, has run out: of a long text one ending alone may take a
/// second.
fn is_alive(text: &str, prefix: &[Token], link: LinkType, began: Instant) -> Option<bool> {
    let Some(last) = prefix.last() else { return Some(true) };
    let mut open = Vec::new();
    for token in prefix.iter().filter(|token| token.kind == Kind::Symbol) {
        match token.text {
            "(" => open.push(')'),
            "[" => open.push(']'),
            ")" | "]" => drop(open.pop()),
            _ => {}
        }
    }
    let in_brackets = open.last() == Some(&']');
    let closing: String = open.iter().rev().filter(|&&bracket| bracket == ')' || !in_brackets).collect();
    for ending in ENDINGS {
        if began.elapsed() >= SEARCH_TIME_MAX {
            return None;
        }
        let whole = format!("{}{ending}{closing}", &text[..last.end()]);
        if libpcap::understands(&whole, link) {
            return Some(true);
        }
    }
    Some(false)
}

/// libpcap's refusal of a text that is correct but can match nothing.
pub(crate) fn rejects_all(cause: &str) -> bool {
    cause.contains("rejects all packets")
}

/// What may help, from the token at the fault and the one before it. A shell that removes a name leaves the
/// blank before it.
fn hint(text: &str, tokens: &[Token], fault: usize) -> String {
    const VALUED: &str = " host net port portrange proto protochain gateway src dst mask less greater ";
    const JOINTS: &str = " and or && || ";
    let is = |list: &str, word: &str| !word.is_empty() && list.contains(&format!(" {word} "));
    let (here, last) = (tokens.get(fault), fault.checked_sub(1).and_then(|before| tokens.get(before)));
    let (at, before) = (here.map_or("", |token| token.text), last.map_or("", |token| token.text));
    if here.is_some_and(|token| token.kind == Kind::Bad && matches!(token.text, "$" | "{" | "}")) {
        return TEMPLATE_HINT.into();
    }
    let count = |word: &str| tokens[..fault].iter().filter(|token| token.text == word).count();
    if at == ")" && count("(") <= count(")") {
        return "')' closes nothing".into();
    }
    if !(at.is_empty() || at == ")" || is(JOINTS, at)) {
        return String::new();
    }
    let missing = match before {
        _ if is(VALUED, before) => format!("a value is missing after '{before}'"),
        _ if is(JOINTS, before) || matches!(before, "not" | "!" | "(") => match at {
            "" => format!("the text ends where an expression is expected: add one, or omit '{before}'"),
            at => format!("an expression is missing before '{at}': add one, or omit '{before}'"),
        },
        "" if !at.is_empty() => {
            format!("an expression is missing before '{at}': add one, or omit '{at}'")
        }
        _ => return String::new(),
    };
    let gap = &text[last.map_or(0, Token::end)..here.map_or(text.len(), |token| token.at)];
    let by_the_shell = is(VALUED, before)
        || if here.is_some() && last.is_some() { gap.len() > 1 } else { gap.starts_with(' ') };
    if by_the_shell { format!("{missing}\n{SHELL_HINT}") } else { missing }
}
