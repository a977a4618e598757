//! Settings of a run: the configuration file and the flags laid over each other, checked, shown, and read
//! again.

pub mod keys;
pub mod reload;
#[cfg(test)]
mod tests;

use crate::args::{Cli, RunArgs};
use crate::plan::{self, Look};
use crate::speech::{self, Level, LogFormat, say};
use crate::{NoResult, print_text, refused};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{ArgMatches, CommandFactory, FromArgMatches};
use scope_config::{FileError, Given, Keys, Settings, Written};
use scope_fault::{Fault, Kind, Where, in_order};
use scope_packet::LinkType;
use std::error::Error;
use std::path::{Path, PathBuf};

/// The settings of `wirescope run`, of which `matches` are the flags, with those of the file that `--config`
/// names.
///
/// # Errors
/// All faults of the file: of its form, and of what its words mean.
pub fn read(matches: &ArgMatches) -> Result<RunArgs, Vec<Fault>> {
    let keys = keys::all();
    let args = laid_over(
        written(matches.get_one::<PathBuf>("config").map(PathBuf::as_path), &keys),
        &keys::given(matches, &keys),
    )?;
    // What a test asks for is no setting.
    Ok(RunArgs { rights_selftest: matches.get_flag("rights_selftest"), ..args })
}

/// What faults of a configuration are told in: what the flags say of it, or else what can be read of the
/// file.
pub fn log_format(matches: &ArgMatches) -> LogFormat {
    let keys = keys::all();
    let path = matches.get_one::<PathBuf>("config");
    let written = path.and_then(|path| Written::read(path, &keys).map_or_else(|error| error.rest, Some));
    log_format_of(written, &keys, &keys::given(matches, &keys))
}

/// The same of a file that was read, as far as it could be.
fn log_format_of(written: Option<Written>, keys: &Keys, flags: &Given) -> LogFormat {
    let settings = Settings::merge(keys, written, flags);
    let word = settings.values("log-format").first().map(|value| value.text.to_string_lossy());
    LogFormat::of(&word.unwrap_or_default())
}

/// What a file says, if there is one.
fn written(path: Option<&Path>, keys: &Keys) -> Result<Option<Written>, FileError> {
    path.map(|path| Written::read(path, keys)).transpose()
}

/// Flags laid over what a file says.
fn laid_over(written: Result<Option<Written>, FileError>, flags: &Given) -> Result<RunArgs, Vec<Fault>> {
    let keys = keys::all();
    match written {
        Ok(written) => meant(Settings::merge(&keys, written, flags)),
        Err(error) => Err(all_faults(error, &keys, flags)),
    }
}

/// Faults of a file's form, and those of the rest of it that have a line there.
fn all_faults(FileError { mut faults, rest }: FileError, keys: &Keys, flags: &Given) -> Vec<Fault> {
    let Some(rest) = rest else { return faults };
    let meaning =
        meant(Settings::merge(keys, Some(rest), flags)).and_then(|args| plan::plan(&args, Look::Nowhere));
    faults.extend(meaning.err().into_iter().flatten().filter(|fault| fault.line().is_some()));
    in_order(faults)
}

/// Settings as the command line would have them.
fn meant(settings: Settings) -> Result<RunArgs, Vec<Fault>> {
    let parse = |only: Option<&str>| {
        let run = ["wirescope".into(), "run".into()].into_iter();
        let matches = Cli::command().try_get_matches_from(run.chain(settings.arguments(only)))?;
        RunArgs::from_arg_matches(matches.subcommand_matches("run").unwrap_or(&matches))
    };
    let alone: Vec<Fault> = settings
        .from_file()
        .filter_map(|key| {
            let error = parse(Some(key)).err()?;
            let fault = not_understood(Fault::of(key), &error);
            Some(match settings.place_of(key) {
                Some(at) => fault.at(at),
                None => fault,
            })
        })
        .collect();
    if !alone.is_empty() {
        return Err(in_order(alone));
    }
    match parse(None) {
        Ok(args) => Ok(RunArgs { settings, ..args }),
        Err(error) => {
            let fault = not_understood(Fault::default(), &error);
            Err(vec![settings.file().map_or(fault.clone(), |file| fault.in_file(file, None))])
        }
    }
}

/// What the parser of the command line says of a value out of a file.
fn not_understood(fault: Fault, error: &clap::Error) -> Fault {
    let value = match error.get(ContextKind::InvalidValue) {
        Some(ContextValue::String(value)) => value.as_str(),
        _ => "",
    };
    match (error.source(), error.kind()) {
        (Some(cause), _) => fault.with_value(value).cause(cause.to_string()),
        (None, ErrorKind::InvalidValue) if value.is_empty() => {
            fault.with_value("").cause("it is empty, and needs a value").remedy("write one, or omit it")
        }
        (None, kind) => fault.with_value(value).cause(kind.as_str().unwrap_or("it is not understood")),
    }
}

/// `wirescope config check FILE`.
pub fn check(path: &Path) -> u8 {
    let (keys, no_flags) = (keys::all(), Given::new());
    let written = written(Some(path), &keys);
    let readable = match &written {
        Ok(written) => written.clone(),
        Err(error) => error.rest.clone(),
    };
    speech::choose(log_format_of(readable, &keys, &no_flags));
    match laid_over(written, &no_flags).and_then(|args| plan::check(&args)) {
        Err(faults) => refused(&faults.into_iter().map(|fault| of_file(path, fault)).collect::<Vec<_>>()),
        Ok(planned) => {
            let file = path.display();
            // What the interfaces are is not known here.
            for warning in scope_engine::short_snap::warnings(&planned.run, &[LinkType::ETHERNET]) {
                say(Level::Warning, &format!("{file}: on Ethernet: {warning}"));
            }
            if let Some(warning) = scope_engine::few_pins::warning(&planned.run, planned.segments) {
                say(Level::Warning, &format!("{file}: {warning}"));
            }
            for line in crate::words::everything_fires(&planned.run) {
                say(Level::Warning, &format!("{file}: {line}"));
            }
            let line = format!(
                "{file}: valid; only a start checks the rest: interfaces and files of \
                 sources and sets, CPUs and nodes, the folders of out, write and ring-out, memory, the user, \
                 whether another run writes the store\n"
            );
            print_text(&line)
        }
    }
}

/// A fault in the words of the file that is checked: there is no command line beside it.
fn of_file(file: &Path, fault: Fault) -> Fault {
    match fault.at {
        Where::Flags => fault.in_file(file, None),
        Where::File { .. } => fault,
    }
}

/// `wirescope config show`.
///
/// # Errors
/// All faults of the file and the flags; but what is still to be said, where from and where to, may be
/// missing.
pub fn show(matches: &ArgMatches) -> Result<String, NoResult> {
    let args = read(matches).map_err(NoResult::Refused)?;
    let mut faults = plan::plan(&args, Look::Nowhere).err().unwrap_or_default();
    faults.retain(|fault| fault.kind != Kind::Missing);
    if !faults.is_empty() {
        return Err(NoResult::Refused(faults));
    }
    // What can't be shown is written as TOML's strings, like those of JSON, have it.
    Ok(args
        .settings
        .to_toml()
        .split('\n')
        .map(scope_spelling::printable::json_line)
        .collect::<Vec<_>>()
        .join("\n"))
}
