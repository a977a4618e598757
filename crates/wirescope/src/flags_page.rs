//! docs/reference/flags.md, made from the table of flags: `make pages` writes it, a test holds it.

use crate::args::Cli;
use crate::config::keys;
use clap::{Arg, Command, CommandFactory};
use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::Path;

const HEAD: &str = "\
# Flags and keys

Every flag of every command, and which of them a configuration file can set. `wirescope COMMAND --help-all` and
`wirescope man COMMAND` show the same; `wirescope run --help` shows only those that a first user needs.

This page is made by `make pages` from the table of flags. Keys of a [configuration file](../guide/configuration.md) have the
names of the long flags, without `--`; a `*` marks a flag that is no key. Behind a flag without a value `=true` or `=false` may
follow.
";
const OWN_HELP: [&str; 3] = ["help", "help_all", "version"];

/// The page as it should be.
fn page() -> String {
    let mut whole = Cli::command();
    whole.build();
    let keys: BTreeSet<String> = keys::all().0.into_iter().map(|key| key.name).collect();
    let mut text = HEAD.to_string();
    for command in whole.get_subcommands().filter(|command| command.get_name() != "help") {
        section(command, "wirescope", &keys, &mut text);
    }
    text
}

/// A command, and those below it.
fn section(command: &Command, above: &str, keys: &BTreeSet<String>, text: &mut String) {
    let name = format!("{above} {}", command.get_name());
    let about = command.get_about().map(ToString::to_string).unwrap_or_default();
    let _ = write!(text, "\n## {name}\n\n{about}.\n");
    // What `config show` takes are the flags of `run`.
    if name == "wirescope config show" {
        text.push_str("\nIt has the flags of [wirescope run](#wirescope-run).\n");
        return;
    }
    let mut headings: Vec<&str> = Vec::new();
    let shown = |arg: &&Arg| !arg.is_hide_set() && !OWN_HELP.contains(&arg.get_id().as_str());
    for heading in command.get_arguments().filter(shown).map(|arg| arg.get_help_heading().unwrap_or("")) {
        if !headings.contains(&heading) {
            headings.push(heading);
        }
    }
    for heading in headings {
        if !heading.is_empty() {
            let _ = write!(text, "\n### {heading}\n");
        }
        text.push_str("\n| flag | default | what |\n|---|---|---|\n");
        for arg in command
            .get_arguments()
            .filter(shown)
            .filter(|arg| arg.get_help_heading().unwrap_or("") == heading)
        {
            let is_key = arg.get_long().is_some_and(|long| keys.contains(long));
            let mark = if command.get_name() == "run" && !is_key { " *" } else { "" };
            let _ = writeln!(text, "| {}{mark} | {} | {} |", spelled(arg), default(arg), meaning(arg));
        }
    }
    if let Some(more) = command.get_after_long_help().or_else(|| command.get_after_help()) {
        let _ = write!(text, "\n```text\n{}\n```\n", more.to_string().trim_end());
    }
    for below in command.get_subcommands().filter(|below| below.get_name() != "help") {
        section(below, &name, keys, text);
    }
}

/// A flag with its value, or an argument's name.
fn spelled(arg: &Arg) -> String {
    let value = arg
        .get_value_names()
        .map(|names| names.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "));
    let takes = arg.get_action().takes_values() && !is_switch(arg);
    let behind = value.filter(|_| takes).map(|value| format!(" {value}")).unwrap_or_default();
    let flags: Vec<String> =
        [arg.get_short().map(|short| format!("-{short}")), arg.get_long().map(|long| format!("--{long}"))]
            .into_iter()
            .flatten()
            .collect();
    cell(&format!(
        "`{}`",
        if flags.is_empty() { behind.trim().to_string() } else { format!("{}{behind}", flags.join(", ")) }
    ))
}

/// A flag that is given or not; `=true` and `=false` may follow it.
fn is_switch(arg: &Arg) -> bool {
    arg.get_num_args().is_some_and(|values| values.min_values() == 0)
}

fn default(arg: &Arg) -> String {
    let text = arg
        .get_default_values()
        .first()
        .filter(|_| !is_switch(arg))
        .map(|text| text.to_string_lossy().into_owned());
    text.map(|text| cell(&format!("`{text}`"))).unwrap_or_default()
}

fn meaning(arg: &Arg) -> String {
    let help = arg.get_long_help().or_else(|| arg.get_help()).map(ToString::to_string).unwrap_or_default();
    let help = help.replace("\n\n", ". ").trim_end_matches('.').to_string();
    let words: Vec<String> =
        arg.get_possible_values().iter().map(|value| format!("`{}`", value.get_name())).collect();
    let choice =
        if words.is_empty() || is_switch(arg) { String::new() } else { format!(": {}", words.join(", ")) };
    cell(&format!("{help}{choice}"))
}

/// Text in a cell of a table: on one line, and no end of the cell in it.
fn cell(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "\\|")
}

#[test]
fn the_page_of_flags_is_what_the_program_has() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/flags.md");
    if std::env::var_os("WRITE_PAGES").is_some() {
        std::fs::write(&path, page()).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(written == page(), "docs/reference/flags.md is not what the flags say: make pages writes it");
}
