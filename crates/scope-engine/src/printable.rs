//! Foreign text made fit to be shown: no control character of it reaches a terminal, a log line or an environment as it is.

use std::borrow::Cow;
use std::fmt::Write;

/// `text` with its control characters, line ends among them, written as `\n`, `\u{1b}` and the like.
pub fn printable(text: &str) -> Cow<'_, str> {
    if !text.chars().any(is_odd) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for letter in text.chars() {
        if is_odd(letter) {
            let _ = write!(out, "{}", letter.escape_default());
        } else {
            out.push(letter);
        }
    }
    Cow::Owned(out)
}

/// Control characters, separators of lines, and marks that turn the direction of writing.
fn is_odd(letter: char) -> bool {
    letter.is_control() || matches!(letter, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200e}' | '\u{200f}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_spelled_out_and_the_rest_stays() {
        let check = |text: &str, expected: &str| assert_eq!(printable(text), expected);
        check("eth0: 5 \u{b5}s, \u{e9}t\u{e9} \\n", "eth0: 5 \u{b5}s, \u{e9}t\u{e9} \\n");
        check("a\nb\tc\r\0", "a\\nb\\tc\\r\\u{0}");
        check("\u{1b}[2J\u{7f}\u{9b}31m\u{202e}", "\\u{1b}[2J\\u{7f}\\u{9b}31m\\u{202e}");
    }
}
