//! README and guides are true: each runnable block is run and gives what it shows, each link leads somewhere, and what must stay short is short.
//!
//! A block is runnable if its language is `console`. Lines that begin with `$ ` are commands, `> ` continues one; what follows is what they print, on
//! standard output and standard error together. A line `...` stands for any lines, `...` inside a line for any text; `# exit code N` before a command
//! says how it ends, else it ends with 0. All blocks of a page run one after the other in one folder, as a user without rights.

mod run;

use run::{NOBODY, Place, finish};
use std::collections::BTreeMap;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Stands in the output of a block where a command begins (`BEGIN`), and where one has ended (`END CODE`).
const MARK: &str = "\u{1}mark";
const COLUMNS_MAX: usize = 120;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// All pages below `folder`, sorted.
fn pages_in(folder: &Path) -> Vec<PathBuf> {
    let mut pages = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display())) {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            pages.extend(pages_in(&path));
        } else if path.extension().is_some_and(|ending| ending == "md") {
            pages.push(path);
        }
    }
    pages.sort();
    pages
}

fn all_pages() -> Vec<PathBuf> {
    let mut pages =
        vec![root().join("README.md"), root().join("benches/record/README.md"), root().join("crates/scope-ring/README.md")];
    pages.extend(pages_in(&root().join("docs")));
    pages
}

/// One command of a runnable block.
#[derive(Debug, PartialEq)]
struct Step {
    command: String,
    code: i32,
    prints: Vec<String>,
}

/// A runnable block, and the line of its page that it begins at.
#[derive(Debug, PartialEq)]
struct Block {
    line: usize,
    steps: Vec<Step>,
}

/// The runnable blocks of a page; what is wrong in one of them is an error.
fn blocks(text: &str) -> Result<Vec<Block>, String> {
    let mut blocks: Vec<Block> = Vec::new();
    let mut fence: Option<bool> = None;
    let mut code = 0;
    for (line, text) in (1..).zip(text.lines()) {
        if let Some(language) = text.strip_prefix("```") {
            fence = if fence.is_some() { None } else { Some(language == "console") };
            if fence == Some(true) {
                blocks.push(Block { line, steps: Vec::new() });
            }
            continue;
        }
        if fence != Some(true) {
            continue;
        }
        let steps = &mut blocks.last_mut().expect("one was begun").steps;
        if let Some(command) = text.strip_prefix("$ ") {
            steps.push(Step { command: command.to_string(), code: std::mem::take(&mut code), prints: Vec::new() });
            continue;
        }
        if let Some(number) = text.strip_prefix("# exit code ") {
            code = number.parse().map_err(|_| format!("line {line}: '{number}' is no exit code"))?;
            continue;
        }
        let step = steps.last_mut().ok_or_else(|| format!("line {line}: a block begins with a command"))?;
        match text.strip_prefix("> ") {
            Some(more) if step.prints.is_empty() && step.command.ends_with('\\') => step.command += &format!("\n{more}"),
            _ => step.prints.push(text.to_string()),
        }
    }
    match blocks.iter().find(|block| block.steps.is_empty()) {
        Some(empty) => Err(format!("line {}: a block without a command", empty.line)),
        None => Ok(blocks),
    }
}

/// Whether `text` is `pattern`, in which `...` stands for any text.
fn line_matches(pattern: &str, text: &str) -> bool {
    let parts: Vec<&str> = pattern.split("...").collect();
    let [first, between @ .., last] = &parts[..] else { return pattern == text };
    let Some(mut rest) = text.strip_prefix(first) else { return false };
    for part in between {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}

/// Whether `lines` are those of `patterns`, in which a line `...` stands for any lines.
fn lines_match(patterns: &[String], lines: &[&str]) -> bool {
    match patterns {
        [] => lines.is_empty(),
        [any, rest @ ..] if any == "..." => (0..=lines.len()).any(|left_out| lines_match(rest, &lines[left_out..])),
        [first, rest @ ..] => lines.first().is_some_and(|line| line_matches(first, line)) && lines_match(rest, &lines[1..]),
    }
}

/// A block as one script for bash, so that `$!` of one command is known to the next.
fn script(block: &Block) -> String {
    let mut text = String::from("exec 2>&1\n");
    for step in &block.steps {
        text += &format!("printf '{MARK} BEGIN\\n'\n{}\nprintf '{MARK} END %s\\n' $?\n", step.command);
    }
    text
}

/// What each command of a block printed, and its exit code.
fn outputs(printed: &str) -> Vec<(Vec<&str>, i32)> {
    let mut outputs = Vec::new();
    for part in printed.split(&format!("{MARK} BEGIN\n")).skip(1) {
        // The mark may stand behind a line without an end.
        let (lines, code) = part.split_once(&format!("{MARK} END ")).unwrap_or((part, "-1"));
        let code = code.lines().next().and_then(|code| code.parse().ok()).unwrap_or(-1);
        outputs.push((lines.lines().collect(), code));
    }
    outputs
}

/// Runs the blocks of a page; returns what is not as the page shows it.
fn faults_of(page: &Path, blocks: &[Block]) -> Vec<String> {
    let place = Place::new();
    let binary = place.binary_for_all();
    let search = format!("{}:{}:/usr/sbin:/sbin", binary.parent().unwrap().display(), std::env::var("PATH").unwrap_or_default());
    // SAFETY: geteuid takes nothing and always succeeds.
    let root = unsafe { libc::geteuid() } == 0;
    if root {
        std::os::unix::fs::chown(place.out(), Some(NOBODY), Some(NOBODY)).unwrap();
    }
    let mut faults = Vec::new();
    for block in blocks {
        let mut bash = Command::new("bash");
        bash.args(["-c", &script(block)]).current_dir(place.out());
        bash.env_clear().env("PATH", &search).env("HOME", place.out()).env("LANG", "C.UTF-8").env("TZ", "UTC");
        if root {
            bash.uid(NOBODY).gid(NOBODY);
        }
        let printed = finish(bash).stdout;
        let outputs = outputs(&printed);
        for (number, step) in block.steps.iter().enumerate() {
            let (lines, code) = outputs.get(number).cloned().unwrap_or((Vec::new(), -1));
            if code != step.code || !lines_match(&step.prints, &lines) {
                let place = format!("{}:{}", page.display(), block.line);
                let (shown, got) = (step.prints.join("\n"), lines.join("\n"));
                faults.push(format!(
                    "{place}: $ {}\nexit code {code}, not {}\n--- shown\n{shown}\n--- got\n{got}\n",
                    step.command, step.code
                ));
            }
        }
    }
    faults
}

#[test]
fn every_runnable_block_gives_what_it_shows() {
    let mut faults = Vec::new();
    let mut steps = 0;
    for page in all_pages() {
        let text = std::fs::read_to_string(&page).unwrap_or_else(|e| panic!("{}: {e}", page.display()));
        let blocks = blocks(&text).unwrap_or_else(|fault| panic!("{}: {fault}", page.display()));
        let is_guide = page.parent().is_some_and(|folder| folder.ends_with("docs/guide"));
        assert!(!is_guide || !blocks.is_empty(), "{}: a guide has an example that runs", page.display());
        steps += blocks.iter().map(|block| block.steps.len()).sum::<usize>();
        faults.extend(faults_of(&page, &blocks));
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    assert!(steps > 20, "only {steps} commands were run");
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
                Some(name) => std::fs::read_to_string(&to).is_ok_and(|text| anchors(&text).iter().any(|anchor| anchor == name)),
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
        assert!(text.lines().count() <= lines_max, "{page}: {} lines, at most {lines_max}", text.lines().count());
        for (number, line) in (1..).zip(text.lines()) {
            assert!(
                line.starts_with('|') || line.chars().count() <= COLUMNS_MAX,
                "{page}:{number}: more than {COLUMNS_MAX} columns"
            );
        }
    }
}

#[test]
fn a_block_that_prints_something_else_is_found() {
    let check = |pattern: &[&str], lines: &[&str], expected: bool| {
        let pattern: Vec<String> = pattern.iter().map(ToString::to_string).collect();
        assert_eq!(lines_match(&pattern, lines), expected, "{pattern:?} {lines:?}");
    };
    check(&[], &[], true);
    check(&[], &["x"], false);
    check(&["x"], &[], false);
    check(&["a", "...", "c"], &["a", "b", "b", "c"], true);
    check(&["a", "...", "c"], &["a", "c"], true);
    check(&["a", "...", "c"], &["a", "c", "d"], false);
    check(&["took ... s", "done"], &["took 1.5 s", "done"], true);
    check(&["took ... s"], &["took 1.5 ms"], false);
    check(&["...a...b"], &["xaxb"], true);
    check(&["...a...b"], &["xbxa"], false);
    check(&["aa...a"], &["aa"], false);
    let faulty = "```console\n$ echo one\ntwo\n$ false\n# exit code 1\n$ false\n$ echo \\\n> three\nthree\n```\n";
    let faulty = blocks(faulty).unwrap();
    let faults = faults_of(Path::new("page"), &faulty);
    assert_eq!(faults.len(), 2, "{faults:?}");
    assert!(faults[0].contains("page:1: $ echo one") && faults[1].contains("exit code 1, not 0"), "{faults:?}");
    assert!(blocks("```console\nwords\n```\n").is_err());
}

#[test]
fn a_link_that_leads_nowhere_is_found() {
    let text = "# One\n[a](#one) [b](#two) [c](none.md) [d](https://example.org)\n```sh\n[e](none)\n```\n## One\n[f](#one-1)\n";
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("page.md");
    std::fs::write(&page, text).unwrap();
    let dead = dead_links(&page, text);
    assert_eq!(dead.len(), 2, "{dead:?}");
    assert!(dead[0].ends_with(":2: #two") && dead[1].ends_with(":2: none.md"), "{dead:?}");
}
