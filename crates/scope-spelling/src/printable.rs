//! Foreign text made fit to be shown, and to be a word of a command line that is proposed: the one place
//! where that is done.
//!
//! Names of interfaces, drivers and files, what a log says, what a command said, an error of the system: none
//! of it reaches a terminal or a proposed command line as it is. What is shown to people goes through
//! [`printable`], words of a command line through [`shell_word`], lines of JSON through [`json_line`].

use std::borrow::Cow;
use std::ffi::OsStr;
use std::fmt::Write;
use std::os::unix::ffi::OsStrExt;

/// Letters that stand for themselves in every shell.
const PLAIN: &str = "_-./:@%+,=";

/// `text` with its control characters, line ends among them, written as `\n`, `\u{1b}` and the like.
pub fn printable(text: &str) -> Cow<'_, str> {
    spelled(text, |letter, out| {
        let _ = write!(out, "{}", letter.escape_default());
    })
}

/// `text` of several lines: each made [`printable`], the ends between them and the tabs inside kept.
pub fn printable_lines(text: &str) -> String {
    let columns = |line: &str| line.split('\t').map(printable).collect::<Vec<_>>().join("\t");
    text.split('\n').map(columns).collect::<Vec<_>>().join("\n")
}

/// A line of JSON whose strings have the characters that [`printable`] spells out as `\u001b` and the like:
/// the same JSON.
pub fn json_line(json: &str) -> Cow<'_, str> {
    spelled(json, |letter, out| {
        for unit in letter.encode_utf16(&mut [0; 2]) {
            let _ = write!(out, "\\u{unit:04x}");
        }
    })
}

/// `word` as one word of a shell's command line, whatever is in it: as it is, quoted, or, with characters
/// that can't be shown, in the form `$'a\x1b'` of bash, ksh and zsh.
pub fn shell_word(word: impl AsRef<OsStr>) -> String {
    let bytes = word.as_ref().as_bytes();
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || PLAIN.contains(char::from(*byte));
    match std::str::from_utf8(bytes) {
        Ok(text) if !bytes.is_empty() && !text.starts_with('=') && bytes.iter().all(is_plain) => {
            text.to_string()
        }
        Ok(text) if !text.chars().any(is_odd) => format!("'{}'", text.replace('\'', r"'\''")),
        _ => {
            let mut out = String::from("$'");
            for &byte in bytes {
                match byte {
                    b'\'' | b'\\' => out.extend(['\\', char::from(byte)]),
                    b' '..=b'~' => out.push(char::from(byte)),
                    _ => {
                        let _ = write!(out, "\\x{byte:02x}");
                    }
                }
            }
            out.push('\'');
            out
        }
    }
}

/// `text` with each odd letter written by `spell`.
fn spelled(text: &str, spell: impl Fn(char, &mut String)) -> Cow<'_, str> {
    if !text.chars().any(is_odd) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for letter in text.chars() {
        if is_odd(letter) { spell(letter, &mut out) } else { out.push(letter) }
    }
    Cow::Owned(out)
}

/// Control characters, separators of lines, marks that turn the direction of writing, and letters without a
/// shape.
fn is_odd(letter: char) -> bool {
    letter.is_control()
        || matches!(letter, '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}')
        || matches!(letter, '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    /// Characters that do something else than stand there, among others.
    const HOSTILE: &str = "\u{1b}[2J\u{7f}\u{9b}31m\u{202e}\u{2066}\u{200f}\u{61c}\u{e0041}";

    #[test]
    fn control_characters_are_spelled_out_and_the_rest_stays() {
        let check = |text: &str, expected: &str| assert_eq!(printable(text), expected);
        check("eth0: 5 \u{b5}s, \u{e9}t\u{e9} \\n", "eth0: 5 \u{b5}s, \u{e9}t\u{e9} \\n");
        check("a\nb\tc\r\0", "a\\nb\\tc\\r\\u{0}");
        check(HOSTILE, "\\u{1b}[2J\\u{7f}\\u{9b}31m\\u{202e}\\u{2066}\\u{200f}\\u{61c}\\u{e0041}");
        assert_eq!(printable_lines("a\u{1b}\nb\r\n"), "a\\u{1b}\nb\\r\n");
    }

    #[test]
    fn a_line_of_json_means_the_same() {
        let check = |json: &str, expected: &str| assert_eq!(json_line(json), expected);
        check(r#"{"a":"\u001b\n"}"#, r#"{"a":"\u001b\n"}"#);
        check("[\"\u{9b}31m\u{202e}\u{e0041}\u{e9}\"]", "[\"\\u009b31m\\u202e\\udb40\\udc41\u{e9}\"]");
    }

    #[test]
    fn a_word_of_a_command_line_is_that_word_for_a_shell() {
        let check = |word: &str, expected: &str| assert_eq!(shell_word(word), expected);
        check("eth0.100@x", "eth0.100@x");
        check("", "''");
        check("=x", "'=x'");
        check("a b;$(reboot)`x`&*~", "'a b;$(reboot)`x`&*~'");
        check("it's", r"'it'\''s'");
        check("a\u{1b}'\\b\n", r"$'a\x1b\'\\b\x0a'");
        check("\u{202e}x", r"$'\xe2\x80\xaex'");
        let words = [
            "a b",
            "it's",
            "$(echo x)",
            "!x",
            "\\",
            "\"",
            "\u{e9}",
            "{a,b}",
            "#",
            "x\ny",
            "\u{1b}[2J",
            HOSTILE,
        ];
        for word in words {
            let line = format!("printf %s {}", shell_word(word));
            // bash is on every system that this is developed on.
            let said = Command::new("bash").args(["-c", &line]).output().unwrap();
            assert_eq!(said.stdout, word.as_bytes(), "{line}");
            assert!(!shell_word(word).chars().any(is_odd));
        }
        assert_eq!(shell_word(OsStr::from_bytes(b"\xff")), r"$'\xff'");
    }
}
