//! Completions and manual page, made from the table of flags.

use crate::args::Cli;
use clap::{Command, CommandFactory};
use clap_complete::Shell;
use clap_mangen::Man;
use std::io;

/// Completions of one shell.
pub fn completions(shell: Shell) -> Vec<u8> {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "wirescope", &mut text);
    text
}

/// The manual page: the program, then each command that has flags.
pub fn page() -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    let mut whole = Cli::command();
    whole.build();
    let man = Man::new(whole.clone()).source(concat!("wirescope ", env!("CARGO_PKG_VERSION")));
    man.render_title(&mut text)?;
    man.render_name_section(&mut text)?;
    man.render_synopsis_section(&mut text)?;
    man.render_description_section(&mut text)?;
    man.render_subcommands_section(&mut text)?;
    man.render_extra_section(&mut text)?;
    for name in ["run", "config", "demo", "filter", "devices", "doctor"] {
        if let Some(command) = whole.find_subcommand(name) {
            command_section(command, &mut text)?;
        }
    }
    man.render_version_section(&mut text)?;
    Ok(in_one_page(&String::from_utf8_lossy(&text), &whole).into_bytes())
}

/// Commands have no pages of their own to be referred to, and what stands behind the flags has a name.
fn in_one_page(text: &str, whole: &Command) -> String {
    let named = text.replace(".SH EXTRA\n", ".SH NOTES\n");
    whole
        .get_subcommands()
        .map(Command::get_name)
        .fold(named, |text, name| text.replace(&format!("wirescope\\-{name}(1)"), &format!("wirescope {name}")))
}

fn command_section(command: &Command, text: &mut Vec<u8>) -> io::Result<()> {
    let man = Man::new(command.clone());
    text.extend(format!(".SH \"COMMAND {}\"\n", command.get_name().to_uppercase()).bytes());
    man.render_description_section(text)?;
    man.render_synopsis_section(text)?;
    man.render_options_section(text)?;
    man.render_extra_section(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_names_every_flag_of_run_that_is_not_hidden() {
        let page = String::from_utf8(page().unwrap()).unwrap().replace("\\-", "-");
        let mut whole = Cli::command();
        whole.build();
        let run = whole.find_subcommand("run").unwrap();
        let flags = run.get_arguments().filter(|arg| !arg.is_hide_set()).filter_map(|arg| arg.get_long());
        flags.for_each(|flag| assert!(page.contains(&format!("--{flag}")), "{flag}"));
    }
}
