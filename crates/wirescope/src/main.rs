//! The one binary: command line in, plan out, run.

mod answer;
mod args;
mod ask;
mod bench;
mod beside;
mod config;
mod demo;
mod devices;
mod doctor;
mod explain;
mod export;
#[cfg(test)]
mod flags_page;
mod flows;
mod help;
mod hold;
mod import;
mod journal;
mod manual;
mod plan;
mod query;
mod reading;
mod record;
#[cfg(test)]
mod routes_page;
mod script;
mod send;
mod serve;
mod speech;
mod stats;
mod stdio;
mod store;
mod tap;
mod tcpdump_words;
mod token;
mod verify;
mod watch;
mod with;
mod words;

use args::{Cli, ConfigVerb, ManArgs, StoreVerb, Verb};
use beside::BesideHandle;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{ArgMatches, CommandFactory, FromArgMatches};
use plan::Look;
use plan::faults::Faults;
use record::Ended;
use scope_engine::Control;
use scope_fault::Fault;
use scope_spelling::printable::{json_line, printable_lines, shell_word};
use speech::{Level, LogFormat, say};
use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Everything promised was done.
const DONE: u8 = 0;
/// Something promised was not done.
const UNDONE: u8 = 1;
/// Refused: nothing was begun.
const REFUSED: u8 = 2;

fn main() -> ExitCode {
    if let Some(code) = scope_engine::serve_if_asked() {
        return code;
    }
    let matches = Cli::command().try_get_matches().unwrap_or_else(|error| not_understood(error));
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    // A limit on file sizes is then an error of the write that meets it, as a full disk is, and no sudden
    // end.
    let met = Arc::new(AtomicBool::new(false));
    if let Err(error) = signal_hook::flag::register(libc::SIGXFSZ, met) {
        return ExitCode::from(failed(&Fault::of_thing("signals").error(&error)));
    }
    let code = match cli.command {
        Verb::Run(_) => run(below(&matches, &["run"]), false),
        Verb::Demo(args) => demo::demo(&args),
        Verb::Filter(args) => told(explain::explain(&args)),
        Verb::Bench(args) => told(bench::bench(&args)),
        Verb::Config { what: ConfigVerb::Check { file } } => config::check(&file),
        Verb::Config { what: ConfigVerb::Show(_) } => {
            told(config::show(below(&matches, &["config", "show"])))
        }
        Verb::Devices(args) => devices::devices(&args),
        Verb::Export(args) => export::export(&args),
        Verb::Query(args) => query::query(&args),
        Verb::Store { what: StoreVerb::List(args) } => store::list(&args),
        Verb::Stats { what: Some(what), .. } => stats::stats(&what),
        Verb::Stats { what: None, flags } => {
            let words = ["wirescope".into(), "run".into()].into_iter().chain(flags);
            let matches =
                Cli::command().try_get_matches_from(words).unwrap_or_else(|error| not_understood(error));
            run(below(&matches, &["run"]), true)
        }
        Verb::Flows(args) => flows::flows(&args),
        Verb::Doctor(args) => doctor::doctor(&args),
        Verb::Import(args) => import::import(&args),
        Verb::Hold { what } => told(hold::hold(&what)),
        Verb::Verify(args) => verify::verify(&args),
        Verb::Status(args) => ask::status(&args),
        Verb::Triggers { what } => ask::triggers(&what),
        Verb::Fire(args) => ask::fire(&args),
        Verb::Dumps { what } => ask::dumps(&what),
        Verb::Losses(args) => ask::losses(&args),
        Verb::Watch(args) => ask::watch(&args),
        Verb::Tap(args) => tap::tap(&args),
        Verb::With(args) => with::with(&args),
        Verb::Groups(args) => ask::groups(&args),
        Verb::Send(args) => send::send(&args),
        Verb::Serve(args) => serve::serve(&args),
        Verb::Script { what } => script::script(&what),
        Verb::Token { what } => token::token(&what),
        Verb::Completions { shell } => print(&manual::completions(shell)),
        Verb::Man(args) => man(&args),
    };
    ExitCode::from(code)
}

/// Ends at a command line that can't be understood; in the form that it asks for all the same, if that can be
/// seen in it.
fn not_understood(error: clap::Error) -> ! {
    if !error.use_stderr() {
        error.exit();
    }
    let words: Vec<String> = std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect();
    let json = words.iter().any(|word| word == "--log-format=json")
        || words.windows(2).any(|two| two == ["--log-format", "json"]);
    if json {
        speech::choose(LogFormat::Json);
    }
    let (code, errors) = (error.exit_code(), with_other_unknown_flags(error, &words));
    let alone = errors.len() == 1;
    for error in &errors {
        match known_elsewhere(error, &words) {
            Some(known) if json => say(Level::Error, &known),
            Some(known) => say(Level::Error, &format!("wirescope: {known}")),
            None if alone => say(Level::Error, error.to_string().trim_end()),
            None => speech::say_fault(&unknown_flag(error)),
        }
    }
    std::process::exit(code)
}

/// The parser ends at the first flag that it doesn't know. This finds the others: what it complains of is
/// left out, with the words behind it that may be its value, and the rest is parsed again.
fn with_other_unknown_flags(error: clap::Error, words: &[String]) -> Vec<clap::Error> {
    let mut left = words.to_vec();
    let mut errors = vec![error];
    while let Some(error) = errors.last() {
        let Some(flag) = unknown(error).filter(|flag| flag.starts_with('-')) else { break };
        let is_it = |word: &String| match flag.starts_with("--") {
            true => word.split('=').next() == Some(flag),
            false => word.starts_with(flag),
        };
        let Some(from) = left.iter().skip(2).position(is_it).map(|at| at + 2) else { break };
        let values = left[from + 1..].iter().take_while(|word| !word.starts_with('-')).count();
        left.drain(from..=from + values);
        match Cli::command().try_get_matches_from(&left) {
            Err(next) if unknown(&next).is_some() => errors.push(next),
            _ => break,
        }
    }
    errors
}

/// The word that the parser doesn't know, if that is what it complains of.
fn unknown(error: &clap::Error) -> Option<&str> {
    match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(unknown)) if error.kind() == ErrorKind::UnknownArgument => Some(unknown),
        _ => None,
    }
}

/// One of several flags that the parser doesn't know.
fn unknown_flag(error: &clap::Error) -> Fault {
    let fault = Fault::whole(format!("unexpected argument '{}' found", unknown(error).unwrap_or("")));
    match error.get(ContextKind::SuggestedArg) {
        Some(ContextValue::String(near)) => fault.remedy(format!("did you mean '{near}'?")),
        _ => fault.remedy("see: wirescope --help"),
    }
}

/// What helps where the words are those of another program, as tcpdump's.
fn known_elsewhere(error: &clap::Error, words: &[String]) -> Option<String> {
    let command = words.get(1)?;
    match (error.kind(), command.as_str()) {
        (ErrorKind::UnknownArgument, command) if command.starts_with('-') => {
            return tcpdump_words::no_command(command, &words[2..]);
        }
        (ErrorKind::InvalidSubcommand, "config") => {
            let file = words.get(2).filter(|file| file.ends_with(".toml"))?;
            let file = shell_word(file);
            return Some(format!(
                "which one? wirescope config check {file}, or: wirescope config show --config {file}"
            ));
        }
        (ErrorKind::InvalidSubcommand, command) => return tcpdump_words::no_command(command, &words[2..]),
        _ => {}
    }
    let unknown = unknown(error)?;
    if command != "run" {
        return tcpdump_words::of_command(command, unknown).map(|instead| format!("{unknown}: {instead}"));
    }
    if unknown.starts_with('-') {
        return tcpdump_words::instead_of(unknown).map(|instead| format!("{unknown}: {instead}"));
    }
    // From the first word that belongs to no flag on, as far as no flag comes: one filter.
    let from = words.iter().skip(2).position(|word| word == unknown)? + 2;
    let free: Vec<&str> =
        words[from..].iter().map(String::as_str).take_while(|word| !word.starts_with('-')).collect();
    Some(tcpdump_words::free_words(&free.join(" ")))
}

/// What the command line says of a command.
fn below<'a>(matches: &'a ArgMatches, commands: &[&str]) -> &'a ArgMatches {
    commands.iter().fold(matches, |matches, command| matches.subcommand_matches(command).unwrap_or(matches))
}

fn run(matches: &ArgMatches, is_stats: bool) -> u8 {
    let args = match config::read(matches) {
        Ok(args) if is_stats => args.of_stats(),
        Ok(args) => args,
        Err(faults) => {
            speech::choose(config::log_format(matches));
            return refused(&faults);
        }
    };
    speech::choose(LogFormat::of(&args.log_format));
    let planned = match plan::plan(&args, Look::Machine) {
        Ok(planned) => planned,
        Err(faults) => return refused(&faults),
    };
    if planned.quiet {
        speech::be_quiet();
    }
    let (json, stdout_taken, quiet) = (planned.json, planned.stdout_taken, planned.quiet);
    if json || stdout_taken {
        stdio::warn_of_closed_stdout();
    }
    let beside = BesideHandle::default();
    match record::record(planned, &Arc::new(Control::default()), &beside) {
        Ended::Refused(fault) => {
            let mut faults = Faults::new(&args.settings);
            faults.add(fault);
            refused(&faults.into_vec())
        }
        Ended::Failed(fault) => failed(&fault),
        Ended::Done(summary) => {
            // Who reads both outputs in one place sees nothing twice.
            let one_reader = stdout_taken || journal::outputs_are_one();
            let text = match json {
                true => format!("{}\n", json_line(&summary.to_json().to_string())),
                false if quiet => String::new(),
                false => words::summary(&summary, one_reader),
            };
            if json || quiet || !one_reader {
                // Dumps have been reported.
                for failure in words::other_failures(&summary) {
                    speech::say_fault(&failure.fault);
                }
            }
            let told = if stdout_taken { tell_summary(&text) } else { print_text(&text) };
            match told {
                DONE if !record::kept_promises(&summary) || beside.has_died() => UNDONE,
                code => code,
            }
        }
    }
}

/// Prints the summary on standard error, where the dump has taken standard output.
fn tell_summary(text: &str) -> u8 {
    for line in text.lines() {
        say(Level::Info, line);
    }
    DONE
}

/// Why a command that only prints has no result.
enum NoResult {
    /// Asked for what can't be: nothing was begun.
    Refused(Vec<Fault>),
    /// A result was wrong, or the system failed.
    Failed(Fault),
}

/// Prints a command's result.
fn told(result: Result<String, NoResult>) -> u8 {
    match result {
        Ok(text) => print_text(&text),
        Err(NoResult::Refused(faults)) => refused(&faults),
        Err(NoResult::Failed(fault)) => failed(&fault),
    }
}

/// Prints all faults.
fn refused(faults: &[Fault]) -> u8 {
    for fault in faults {
        speech::say_fault(fault);
    }
    REFUSED
}

/// Prints what went wrong on the way.
fn failed(fault: &Fault) -> u8 {
    speech::say_fault(fault);
    UNDONE
}

/// Prints the manual page of a command, or writes those of all commands.
fn man(args: &ManArgs) -> u8 {
    let pages = match manual::pages() {
        Ok(pages) => pages,
        Err(error) => return failed(&Fault::of_thing("manual page").error(&error)),
    };
    let Some(folder) = &args.out else {
        return match pages.iter().find(|page| page.words == args.command) {
            Some(page) => print(&page.text),
            None => {
                let typed = args.command.join(" ");
                let all = pages.iter().map(|page| page.words.join(" ")).filter(|words| !words.is_empty());
                let all = all.collect::<Vec<_>>().join(", ");
                let fault =
                    Fault::of_thing("man").with_value(&typed).cause(format!("there is no command '{typed}'"));
                refused(&[fault.remedy(format!("there are: {all}"))])
            }
        };
    };
    for page in pages {
        let path = folder.join(format!("{}.1", page.name()));
        if let Err(error) = std::fs::write(&path, page.text) {
            return failed(&Fault::of_thing(path.display().to_string()).error(&error));
        }
    }
    DONE
}

/// Prints lines of words, or of JSON that is fit to be shown: nothing of what foreign data brought reaches a
/// terminal as it is.
fn print_text(text: &str) -> u8 {
    print(printable_lines(text).as_bytes())
}

/// Writes to standard output. A reader that has gone (`wirescope man | head`) is no failure.
fn print(text: &[u8]) -> u8 {
    let mut out = io::stdout().lock();
    match out.write_all(text).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            failed(&Fault::of_thing("standard output").error(&error))
        }
        _ => DONE,
    }
}
