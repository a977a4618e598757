//! The page of the log, docs/reference/event-log.md: made from the events by `make pages`, held by a test.

use crate::event::Event;
use crate::fact::Key;
use std::fmt::Write;

/// What stands in front of the events.
const HEAD: &str = include_str!("page_head.md");

/// Events whose keys are described in the page of the summary: name, sentence, the key that holds them
/// (empty: all).
const ELSEWHERE: [(&str, &str, &str); 3] = [
    ("dump", "Its keys are the [keys of a dump](summary.md#keys-of-a-dump).", ""),
    ("together", "Its keys are the [keys of a dump](summary.md#keys-of-a-dump).", ""),
    (
        "end",
        "It has the [keys of the summary](summary.md#keys-of-the-summary) without `dumps`, and these:",
        "totals",
    ),
];

/// The page as it should be.
pub fn page() -> String {
    let mut text = HEAD.to_string();
    text.push_str("## Events and their keys\n\n");
    text.push_str(
        "This part of the page is made from the program's own table (`make pages`). Every line has `event`, \
         `logged` (when it\n",
    );
    text.push_str(
        "was written) and `run_id` (128 random bits, one value for each run). `a.b` is the key `b` \
        of the object `a`, or of each\n",
    );
    text.push_str("object that `a` holds.\n");
    for (name, what, keys) in Event::rows() {
        let _ = write!(text, "\n### {name}\n\n{}\n", what.trim());
        let elsewhere = ELSEWHERE.iter().find(|(event, ..)| *event == name);
        if let Some((_, sentence, _)) = elsewhere {
            let _ = writeln!(text, "{sentence}");
        }
        let left_out = elsewhere.map(|(_, _, key)| *key);
        let rows: Vec<Key> = match left_out {
            Some("") => Vec::new(),
            _ => keys.into_iter().filter(|key| Some(key.name) != left_out).collect(),
        };
        if !rows.is_empty() {
            text.push_str("\n| key | what |\n|---|---|\n");
            table(&rows, "", &mut text);
        }
    }
    text
}

/// Rows of `keys`, and below each those of what it holds.
fn table(keys: &[Key], above: &str, text: &mut String) {
    for key in keys {
        let inner = (key.inner)();
        let (name, below) = match (key.is_flat, inner.is_empty()) {
            (true, false) => (None, above.to_string()),
            (true, true) => (Some("*"), above.to_string()),
            (false, _) => (Some(key.name), format!("{above}{}.", key.name)),
        };
        if let Some(name) = name {
            let _ = writeln!(text, "| `{above}{name}` | {} |", key.what.trim());
        }
        table(&inner, &below, text);
    }
}

/// Names of all keys of the summary and of a dump, which the page of the summary describes.
pub fn summary_keys() -> Vec<&'static str> {
    fn flat(keys: Vec<Key>) -> Vec<&'static str> {
        let names =
            keys.into_iter().map(|key| if key.is_flat { flat((key.inner)()) } else { vec![key.name] });
        names.collect::<Vec<_>>().concat()
    }
    [
        flat(<crate::counts::Summary as crate::Fact>::keys()),
        flat(<crate::counts::Dump as crate::Fact>::keys()),
    ]
    .concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn reference(name: &str) -> std::path::PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference").join(name)
    }

    #[test]
    fn the_page_of_the_log_is_made_from_its_events() {
        let path = reference("event-log.md");
        if std::env::var_os("WRITE_PAGES").is_some() {
            std::fs::write(&path, page()).unwrap();
        }
        let written = std::fs::read_to_string(&path).unwrap();
        assert!(
            written == page(),
            "docs/reference/event-log.md isn't what the events say; write it by: make pages"
        );
    }

    #[test]
    fn every_event_has_a_section_and_every_key_a_meaning() {
        let page = page();
        for name in Event::NAMES {
            assert!(page.contains(&format!("\n### {name}\n")), "{name}");
        }
        let empty = page.lines().filter(|line| line.starts_with("| `") && line.ends_with("|  |")).count();
        assert_eq!(empty, 0, "{page}");
    }

    #[test]
    fn the_page_of_the_summary_names_every_key_of_it() {
        let text = std::fs::read_to_string(reference("summary.md")).unwrap();
        for key in summary_keys() {
            assert!(text.contains(&format!("`{key}`")), "docs/reference/summary.md lacks `{key}`");
        }
    }
}
