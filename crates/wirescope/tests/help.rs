//! Help and manual pages: `--help` is for a first user, `--help-all` and the pages have everything, and all
//! of it fits a terminal.

mod run;

use run::{finish, names, wirescope};
use std::collections::BTreeSet;

/// What `run --help` shows besides itself.
const FIRST: [&str; 13] = [
    "--after",
    "--all",
    "--before",
    "--config",
    "--dump",
    "--out",
    "--ring",
    "--source",
    "--store",
    "--trigger",
    "--write",
    "-i",
    "-r",
];
const COLUMNS: usize = 80;
/// What man leaves free on the left of a line that it doesn't fill.
const MAN_MARGIN: usize = 7;

/// The commands that have a section in the page of flags, with the flags of their tables.
fn table() -> Vec<(Vec<String>, BTreeSet<String>)> {
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/flags.md"))
        .unwrap();
    let mut table: Vec<(Vec<String>, BTreeSet<String>)> = Vec::new();
    for line in page.lines() {
        if let Some(words) = line.strip_prefix("## wirescope ") {
            table.push((words.split(' ').map(String::from).collect(), BTreeSet::new()));
        } else if let Some(cell) = line.strip_prefix("| `-") {
            let flags = format!("-{}", cell.split('`').next().unwrap());
            table.last_mut().unwrap().1.insert(last_flag(&flags));
        }
    }
    let of_run = table.iter().find(|(words, _)| words == &["run"]).unwrap().1.clone();
    table.iter_mut().find(|(words, _)| words == &["config", "show"]).unwrap().1 = of_run;
    table
}

/// The long form of a flag, if it has one: of `-s, --snap-len <BYTES>` the second.
fn last_flag(text: &str) -> String {
    let spelled = text.split(", ").last().unwrap();
    spelled.split([' ', '[', '=']).next().unwrap().to_string()
}

/// What a command prints, on standard output, with exit code 0.
fn printed(words: &[String], flag: &[&str]) -> String {
    let arguments: Vec<&str> = words.iter().map(String::as_str).chain(flag.iter().copied()).collect();
    let done = finish(wirescope(&arguments));
    assert_eq!(done.code(), Some(0), "{arguments:?}: {}", done.stderr);
    done.stdout
}

/// The flags that a help lists, apart from those for help and version.
fn listed(help: &str) -> BTreeSet<String> {
    let lines = help
        .lines()
        .take_while(|line| !line.starts_with("Examples:"))
        .filter(|line| line.trim_start().starts_with('-'));
    let flags = lines
        .filter(|line| line.find('-').is_some_and(|at| (2..=6).contains(&at)))
        .map(|line| last_flag(line.trim().split("  ").next().unwrap()));
    flags.filter(|flag| !["--help", "--help-all", "--version"].contains(&flag.as_str())).collect()
}

#[test]
fn run_shows_the_few_flags_that_a_first_user_needs_and_where_the_others_are() {
    for words in [vec!["run".to_string()], vec!["config".to_string(), "show".to_string()]] {
        let help = printed(&words, &["--help"]);
        assert_eq!(listed(&help), FIRST.map(String::from).into(), "{help}");
        assert_eq!(printed(&words, &["-h"]), help);
        assert!(help.lines().count() <= 60, "{} lines", help.lines().count());
        let examples = help.lines().filter(|line| line.starts_with("  # ")).count();
        assert!((2..=3).contains(&examples), "{examples} examples");
        let last = help.lines().last().unwrap();
        assert!(last.contains(&format!("wirescope {} --help-all", words.join(" "))), "{last}");
        assert!(help.lines().nth(2).is_some_and(|line| line.starts_with("Usage: wirescope ")), "{help}");
    }
}

#[test]
fn everything_is_in_the_long_help_and_in_the_manual_page_of_each_command() {
    let table = table();
    assert!(table.len() > 8, "{table:?}");
    for (words, flags) in &table {
        let all = printed(words, &["--help-all"]);
        assert_eq!(&listed(&all), flags, "{words:?}");
        if flags.len() <= FIRST.len() {
            assert_eq!(printed(words, &["--help"]), all, "{words:?}");
        }
        let page = printed(&["man".to_string()], &words.iter().map(String::as_str).collect::<Vec<_>>());
        assert!(page.contains(&format!(".TH wirescope-{} 1", words.join("-"))), "{words:?}");
        // A flag begins an entry of its own, and something is said of it on the next line.
        let plain = page.replace("\\-", "-").replace("\\fB", "").replace("\\fI", "").replace("\\fR", "");
        let lines: Vec<&str> = plain.lines().collect();
        let entries = lines
            .windows(3)
            .filter(|lines| lines[0] == ".TP" && lines[1].starts_with('-') && !lines[2].starts_with('.'));
        let entries: BTreeSet<String> = entries.map(|lines| last_flag(lines[1])).collect();
        let missing: Vec<&String> = flags.iter().filter(|flag| !entries.contains(*flag)).collect();
        assert!(missing.is_empty(), "{words:?}: {missing:?}");
    }
}

#[test]
fn help_fits_a_terminal_of_80_columns_and_pages_stay_whole_there() {
    let all_words = std::iter::once(Vec::new()).chain(table().into_iter().map(|(words, _)| words));
    for words in all_words {
        for flag in ["--help", "--help-all"] {
            let help = printed(&words, &[flag]);
            let wide: Vec<&str> = help.lines().filter(|line| line.chars().count() > COLUMNS).collect();
            assert!(wide.is_empty(), "{words:?}: {wide:?}");
        }
        let page = printed(&["man".to_string()], &words.iter().map(String::as_str).collect::<Vec<_>>());
        let page = page.replace("\\-", "-").replace("\\*(Aq", "'").replace("\\\\", "\\");
        let mut unfilled = false;
        for line in page.lines() {
            unfilled = if line == ".nf" { true } else { unfilled && line != ".fi" };
            let fits = !unfilled || line.chars().count() + MAN_MARGIN <= COLUMNS;
            assert!(fits, "{words:?}: {line}");
        }
    }
}

#[test]
fn all_pages_are_written_into_a_folder_and_only_commands_have_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    printed(&["man".to_string()], &["--out", path]);
    let mut expected: Vec<String> =
        table().iter().map(|(words, _)| format!("wirescope-{}.1", words.join("-"))).collect();
    expected.push("wirescope.1".to_string());
    expected.sort();
    assert_eq!(names(folder.path()), expected);
    let of_check = std::fs::read_to_string(folder.path().join("wirescope-config-check.1")).unwrap();
    assert_eq!(of_check, printed(&["man".to_string()], &["config", "check"]));
    let whole = std::fs::read_to_string(folder.path().join("wirescope.1")).unwrap();
    assert_eq!(whole, printed(&["man".to_string()], &[]));

    let check = |arguments: &[&str], code: i32, words: &str| {
        let done = finish(wirescope(&[&["man"], arguments].concat()));
        assert_eq!(done.code(), Some(code), "{arguments:?}: {}", done.stderr);
        assert!(done.stderr.contains(words), "{arguments:?}: {}", done.stderr);
    };
    check(&["frobnicate"], 2, "there is no command 'frobnicate'; there are: run, ");
    check(&["run", "--out", path], 2, "cannot be used with");
    check(&["--out", "/nonexistent"], 1, "/nonexistent/wirescope.1: ");
}
