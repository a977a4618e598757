//! Completions, and a manual page for each command, made from the table of flags.

use crate::args::Cli;
use clap::builder::Resettable;
use clap::{Command, CommandFactory};
use clap_complete::Shell;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};
use std::io;

/// Completions of one shell.
pub fn completions(shell: Shell) -> Vec<u8> {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "wirescope", &mut text);
    text
}

/// The manual page of one command.
#[derive(Debug)]
pub struct Page {
    /// Its words behind `wirescope`; none of the program itself.
    pub words: Vec<String>,
    pub text: Vec<u8>,
}

impl Page {
    /// Its name for man, as `wirescope-config-check`.
    pub fn name(&self) -> String {
        page_name(&self.words)
    }
}

/// All pages: the program's, then those of its commands, each before those below it.
pub fn pages() -> io::Result<Vec<Page>> {
    let mut whole = Cli::command();
    whole.build();
    let mut commands = Vec::new();
    all_commands(&whole, Vec::new(), &mut commands);
    let names: Vec<String> = commands.iter().map(|(words, _)| page_name(words)).collect();
    let mut pages = Vec::new();
    for (words, command) in commands {
        let others: Vec<&str> =
            names.iter().map(String::as_str).filter(|name| *name != page_name(&words)).collect();
        pages.push(Page { text: page(command, &others)?, words });
    }
    Ok(pages)
}

fn page_name(words: &[String]) -> String {
    std::iter::once("wirescope").chain(words.iter().map(String::as_str)).collect::<Vec<_>>().join("-")
}

fn all_commands<'a>(command: &'a Command, words: Vec<String>, found: &mut Vec<(Vec<String>, &'a Command)>) {
    found.push((words.clone(), command));
    for below in command.get_subcommands().filter(|below| below.get_name() != "help") {
        let word = below.get_name().to_string();
        all_commands(below, [words.clone(), vec![word]].concat(), found);
    }
}

/// A page; `others` are the names of all other ones.
fn page(command: &Command, others: &[&str]) -> io::Result<Vec<u8>> {
    // What stands behind the flags becomes sections with names; flags that only --help-all shows are as good
    // as others.
    let mut bare = command
        .clone()
        .version(Resettable::Reset)
        .after_help(Resettable::Reset)
        .after_long_help(Resettable::Reset);
    bare = bare
        .mut_args(|arg| arg.hide_short_help(false))
        .subcommand_help_heading("COMMANDS")
        .subcommand_value_name("COMMAND");
    if bare.find_subcommand("help").is_some() {
        bare = bare.mut_subcommand("help", |help| help.hide(true));
    }
    let mut text = Vec::new();
    Man::new(bare).source(concat!("wirescope ", env!("CARGO_PKG_VERSION"))).render(&mut text)?;
    let mut roff = Roff::new();
    if let Some(more) = command.get_after_long_help().or_else(|| command.get_after_help()) {
        sections(&more.to_string(), &mut roff);
    }
    roff.control("SH", ["SEE ALSO"]);
    for (at, name) in others.iter().enumerate() {
        let end = if at + 1 < others.len() { "," } else { "" };
        roff.text([bold(*name), roman(format!("(1){end}"))]);
    }
    if let Some(version) = command.get_version() {
        roff.control("SH", ["VERSION"]);
        for line in version.lines() {
            roff.text([roman(line)]).control("br", []);
        }
    }
    // How an apostrophe is written stands at the page's head already.
    let head = Roff::new().render();
    text.extend(roff.render().strip_prefix(&head).unwrap_or_default().bytes());
    Ok(text)
}

/// What help says behind the flags: a line that ends with a colon is a heading, what is indented stays as it
/// is.
fn sections(words: &str, roff: &mut Roff) {
    let mut begun = false;
    let mut as_it_is = false;
    for line in words.lines() {
        let indented = line.strip_prefix("  ");
        if as_it_is && indented.is_none() && !line.is_empty() {
            roff.control("fi", []);
            as_it_is = false;
        }
        match (indented, line.strip_suffix(':')) {
            (Some(line), _) => {
                if !as_it_is {
                    roff.control("nf", []);
                    as_it_is = true;
                }
                roff.text([roman(line)]);
            }
            (None, Some(heading)) => {
                roff.control("SH", [heading.to_uppercase().as_str()]);
                begun = true;
            }
            (None, None) if line.is_empty() => {
                if as_it_is {
                    roff.text([]);
                } else {
                    roff.control("PP", []);
                }
            }
            (None, None) => {
                if !begun {
                    roff.control("SH", ["NOTES"]);
                    begun = true;
                }
                roff.text([roman(line)]);
            }
        }
    }
    if as_it_is {
        roff.control("fi", []);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_command_has_a_page_that_names_each_of_its_flags_with_its_meaning() {
        let pages = pages().unwrap();
        let mut whole = Cli::command();
        whole.build();
        let mut flags = 0;
        for page in &pages {
            let text =
                String::from_utf8(page.text.clone()).unwrap().replace("\\-", "-").replace("\\*(Aq", "'");
            let command =
                page.words.iter().fold(&whole, |command, word| command.find_subcommand(word).unwrap());
            assert!(text.contains(&format!(".TH {} 1", page.name())), "{}", page.name());
            for arg in command.get_arguments().filter(|arg| !arg.is_hide_set()) {
                let header = match arg.get_long() {
                    Some(long) => format!("\\fB--{long}\\fR"),
                    None => arg
                        .get_short()
                        .map_or_else(|| "\n[\\fI".to_string(), |short| format!("\\fB-{short}\\fR")),
                };
                let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
                let says = text.contains(&help) || text.contains(&format!("{help}."));
                assert!(
                    (text.contains(&header) || arg.is_positional()) && says,
                    "{}: {header}: {help}",
                    page.name()
                );
                flags += 1;
            }
        }
        assert!(pages.len() > 10 && flags > 100, "{} pages, {flags} flags", pages.len());
    }
}
