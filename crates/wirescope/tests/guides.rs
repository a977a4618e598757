//! README and guides are true: each runnable block is run and gives what it shows, each link leads somewhere,
//! and what must stay short is short.

use scope_testkit::guides;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

const COLUMNS_MAX: usize = 120;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn all_pages() -> Vec<PathBuf> {
    guides::all_pages(&root())
}

#[test]
fn every_runnable_block_gives_what_it_shows() {
    let ran = guides::run_all(&root(), Path::new(env!("CARGO_BIN_EXE_wirescope")));
    assert!(ran.faults.is_empty(), "{}", ran.faults.join("\n"));
    assert!(ran.steps > 20, "only {} commands were run", ran.steps);
}

/// A heading's name in a link: small letters, digits, `-` and `_`, spaces as `-`.
fn anchor(heading: &str) -> String {
    let small = heading.trim().to_lowercase();
    small
        .chars()
        .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'))
        .map(|c| if c == ' ' { '-' } else { c })
        .collect()
}

/// A page's lines outside of its blocks.
fn prose(text: &str) -> Vec<(usize, &str)> {
    let mut inside = false;
    let mut lines = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        if line.starts_with("```") {
            inside = !inside;
        } else if !inside {
            lines.push((number, line));
        }
    }
    lines
}

/// The names of all headings of a page; the second of a name is `name-1`.
fn anchors(text: &str) -> Vec<String> {
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let mut anchors = Vec::new();
    for (_, line) in prose(text) {
        let heading = line.trim_start_matches('#');
        if heading.len() == line.len() || !heading.starts_with(' ') {
            continue;
        }
        let name = anchor(heading);
        let before = seen.entry(name.clone()).or_default();
        anchors.push(if *before == 0 { name } else { format!("{name}-{before}") });
        *before += 1;
    }
    anchors
}

/// Links of a page that lead nowhere, with their lines. Those to other hosts are not followed.
fn dead_links(page: &Path, text: &str) -> Vec<String> {
    let mut dead = Vec::new();
    for (line, words) in prose(text) {
        for link in words.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            if link.starts_with("http://") || link.starts_with("https://") {
                continue;
            }
            let (file, name) = link.split_once('#').map_or((link, None), |(file, name)| (file, Some(name)));
            let to = if file.is_empty() { page.to_path_buf() } else { page.parent().unwrap().join(file) };
            let leads = match name {
                None => to.exists(),
                Some(name) => std::fs::read_to_string(&to)
                    .is_ok_and(|text| anchors(&text).iter().any(|anchor| anchor == name)),
            };
            if !leads {
                dead.push(format!("{}:{line}: {link}", page.display()));
            }
        }
    }
    dead
}

#[test]
fn every_link_leads_somewhere() {
    let mut dead = Vec::new();
    for page in all_pages() {
        dead.extend(dead_links(&page, &std::fs::read_to_string(&page).unwrap()));
    }
    assert!(dead.is_empty(), "{}", dead.join("\n"));
}

#[test]
fn readme_and_map_stay_short() {
    for (page, lines_max) in [("README.md", 150), ("docs/ARCHITECTURE.md", 200)] {
        let text = std::fs::read_to_string(root().join(page)).unwrap();
        assert!(
            text.lines().count() <= lines_max,
            "{page}: {} lines, at most {lines_max}",
            text.lines().count()
        );
        for (number, line) in (1..).zip(text.lines()) {
            assert!(
                line.starts_with('|') || line.chars().count() <= COLUMNS_MAX,
                "{page}:{number}: more than {COLUMNS_MAX} columns"
            );
        }
    }
}

#[test]
fn a_link_that_leads_nowhere_is_found() {
    let text = "# One\n[a](#one) [b](#two) [c](none.md) [d](https://example.org)\n```sh\n[e](none)\n```\n## \
        One\n[f](#one-1)\n";
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("page.md");
    std::fs::write(&page, text).unwrap();
    let dead = dead_links(&page, text);
    assert_eq!(dead.len(), 2, "{dead:?}");
    assert!(dead[0].ends_with(":2: #two") && dead[1].ends_with(":2: none.md"), "{dead:?}");
}
