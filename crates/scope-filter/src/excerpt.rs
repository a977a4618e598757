//! The line of a refused text with a mark below the place of its fault.

/// Bytes of the text shown before and behind the place of a fault.
pub(crate) const SHOWN_BYTES: usize = 60;

/// The text in a line of its own, at most 60 bytes to either side of the place, and a caret below it.
pub fn excerpt(text: &str, at: usize) -> String {
    let at = text.floor_char_boundary(at);
    let from = text.floor_char_boundary(at.saturating_sub(SHOWN_BYTES));
    let to = text.ceil_char_boundary((at + SHOWN_BYTES).min(text.len()));
    let (before, behind) = (plain(&text[from..at]), plain(&text[at..to]));
    let cut = |cut: bool| if cut { "..." } else { "" };
    let caret_at = before.chars().count() + cut(from > 0).len();
    format!("  {}{before}{behind}{}\n  {}^", cut(from > 0), cut(to < text.len()), " ".repeat(caret_at))
}

/// Without control characters, which a terminal would obey.
pub(crate) fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_caret_stands_under_the_place() {
        assert_eq!(excerpt("host  and", 6), "  host  and\n        ^");
        assert_eq!(excerpt("a\tb\u{e9}c", 5), "  a b\u{e9}c\n      ^");
        assert_eq!(excerpt("", 0), "  \n  ^");
        let long = format!("{}X{}", "a".repeat(100), "b".repeat(100));
        let shown = excerpt(&long, 100);
        let lines: Vec<_> = shown.lines().collect();
        assert_eq!(lines[0].find('X'), lines[1].find('^'));
        assert!(lines[0].len() < 140);
    }
}
