//! A condition's text as words, with the brackets around them.

/// A word: what stands between spaces and brackets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Word<'a> {
    /// Where it begins, bytes from the start of the text.
    pub at: usize,
    /// The word.
    pub text: &'a str,
    /// Open brackets in front of it. One that was never opened doesn't count.
    pub depth: usize,
    /// The next thing behind it and spaces is `(`.
    pub calls: bool,
}

impl Word<'_> {
    /// Whether it is `word`, in any case.
    pub fn is(&self, word: &str) -> bool {
        self.text.eq_ignore_ascii_case(word)
    }

    /// Offset behind its last byte.
    pub fn end(&self) -> usize {
        self.at + self.text.len()
    }
}

fn ends_word(letter: char) -> bool {
    letter.is_whitespace() || matches!(letter, '(' | ')' | '[' | ']')
}

/// All words of a text.
pub(super) fn words(text: &str) -> Vec<Word<'_>> {
    let (mut words, mut at, mut depth) = (Vec::new(), 0usize, 0usize);
    while let Some(letter) = text[at..].chars().next() {
        let len = match letter {
            '(' | '[' => {
                depth += 1;
                1
            }
            ')' | ']' => {
                depth = depth.saturating_sub(1);
                1
            }
            _ if letter.is_whitespace() => letter.len_utf8(),
            _ => {
                let word = &text[at..];
                let word = &word[..word.find(ends_word).unwrap_or(word.len())];
                let calls = text[at + word.len()..].trim_start().starts_with('(');
                words.push(Word { at, text: word, depth, calls });
                word.len()
            }
        };
        at += len;
    }
    words
}

/// Where the bracket is that closes the one at `open`.
pub(super) fn closing(text: &str, open: usize) -> Option<usize> {
    let mut depth = 0usize;
    for (at, byte) in text.bytes().enumerate().skip(open) {
        match byte {
            b'(' | b'[' => depth += 1,
            b')' | b']' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some(at);
        }
    }
    None
}
