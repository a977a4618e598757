//! Settings of a run: the configuration file and the flags laid over each other, checked, shown, and read again.

pub mod keys;
pub mod places;
pub mod reload;
#[cfg(test)]
mod tests;

use crate::args::{Cli, RunArgs};
use crate::plan::{self, Look};
use crate::speech::{Level, say};
use crate::{Fault, print_text, refused};
use clap::{ArgMatches, CommandFactory, FromArgMatches};
use scope_config::{FileError, Given, Keys, Settings, Written};
use scope_packet::LinkType;
use std::path::{Path, PathBuf};

/// The settings of `wirescope run`, of which `matches` are the flags, with those of the file that `--config` names.
///
/// # Errors
/// All faults of the file: of its form, and of what its words mean.
pub fn read(matches: &ArgMatches) -> Result<RunArgs, Vec<String>> {
    let keys = keys::all();
    let args =
        laid_over(written(matches.get_one::<PathBuf>("config").map(PathBuf::as_path), &keys), &keys::given(matches, &keys))?;
    // What a test asks for is no setting.
    Ok(RunArgs { rights_selftest: matches.get_flag("rights_selftest"), ..args })
}

/// What faults of a configuration are told in: what the flags say of it, or else what can be read of the file.
pub fn log_format(matches: &ArgMatches) -> String {
    let keys = keys::all();
    let path = matches.get_one::<PathBuf>("config");
    let written = path.and_then(|path| Written::read(path, &keys).map_or_else(|error| error.rest, Some));
    let settings = Settings::merge(&keys, written, &keys::given(matches, &keys));
    settings.values("log-format").first().map_or(String::new(), |value| value.text.to_string_lossy().into_owned())
}

/// Faults of what isn't there yet.
const MISSING: [&str; 4] =
    ["there is no source of packets", "there is no folder for dumps", "only a trigger starts a dump", plan::NO_USE];

/// What a file says, if there is one.
fn written(path: Option<&Path>, keys: &Keys) -> Result<Option<Written>, FileError> {
    path.map(|path| Written::read(path, keys)).transpose()
}

/// Flags laid over what a file says.
fn laid_over(written: Result<Option<Written>, FileError>, flags: &Given) -> Result<RunArgs, Vec<String>> {
    let keys = keys::all();
    match written {
        Ok(written) => meant(Settings::merge(&keys, written, flags)),
        Err(error) => Err(all_faults(error, &keys, flags)),
    }
}

/// Faults of a file's form, and those of the rest of it that have a place there.
fn all_faults(FileError { mut faults, rest }: FileError, keys: &Keys, flags: &Given) -> Vec<String> {
    let Some(rest) = rest else { return faults };
    let place = format!("{}:", rest.file.display());
    let meaning = meant(Settings::merge(keys, Some(rest), flags)).and_then(|args| plan::plan(&args, Look::Nowhere));
    faults.extend(meaning.err().into_iter().flatten().filter(|fault| fault.starts_with(&place)));
    faults
}

/// Settings as the command line would have them.
fn meant(settings: Settings) -> Result<RunArgs, Vec<String>> {
    let parse = |only: Option<&str>| {
        let run = ["wirescope".into(), "run".into()].into_iter();
        let matches = Cli::command().try_get_matches_from(run.chain(settings.arguments(only)))?;
        RunArgs::from_arg_matches(matches.subcommand_matches("run").unwrap_or(&matches))
    };
    // The first line of clap's words is the fault; the rest is about the command line.
    let first_line =
        |error: clap::Error| error.to_string().lines().next().unwrap_or("").trim_start_matches("error: ").to_string();
    let alone: Vec<String> = settings
        .from_file()
        .filter_map(|key| {
            let error = parse(Some(key)).err()?;
            let place = settings.values(key).first().and_then(|value| settings.place(value)).unwrap_or_default();
            Some(format!("{place}{key}: {}", first_line(error)))
        })
        .collect();
    if !alone.is_empty() {
        return Err(alone);
    }
    match parse(None) {
        Ok(args) => Ok(RunArgs { settings, ..args }),
        Err(error) => Err(vec![format!(
            "{}: {}",
            settings.file().map_or("command line".into(), |file| file.display().to_string()),
            first_line(error)
        )]),
    }
}

/// `wirescope config check FILE`.
pub fn check(path: &Path) -> u8 {
    match laid_over(written(Some(path), &keys::all()), &Given::new()).and_then(|args| plan::plan(&args, Look::Nowhere)) {
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
                "{file}: in order; what only a start can tell was not looked at: interfaces and files of sources, CPUs and nodes, the folders of out, write and ring-out, memory, the user\n"
            );
            print_text(&line)
        }
    }
}

/// What a command line's remedies are in a file.
const IN_A_FILE: [(&str, &str); 4] = [
    ("add -i IFACE, -r FILE or --source SRC", "write source = \"afpacket:IFACE\" or \"file:PATH\""),
    ("add --out DIR, or -w FILE for a single dump", "write out = \"DIR\", or write = \"FILE\" for a single dump"),
    (
        "add --trigger EXPR, or --ring-out FILE for what is in the ring at the end, or --summary json to count",
        "write trigger = \"EXPR\", or ring-out = \"FILE\" for what is in the ring at the end, or summary = \"json\" to count",
    ),
    ("add --trigger EXPR", "write trigger = \"EXPR\""),
];

/// A fault in the words of the file that is checked: with its name and the key, also where it has no line in it.
fn of_file(file: &Path, fault: String) -> String {
    let file = file.display();
    if fault.starts_with(&format!("{file}:")) {
        return fault;
    }
    let told = IN_A_FILE.iter().fold(fault, |told, (flags, keys)| told.replace(flags, keys));
    let told = if told.starts_with(plan::NO_USE) { format!("source: {told}") } else { told };
    format!("{file}: {}", told.strip_prefix("--").unwrap_or(&told))
}

/// `wirescope config show`.
///
/// # Errors
/// All faults of the file and the flags; but what is still to be said, where from and where to, may be missing.
pub fn show(matches: &ArgMatches) -> Result<String, Fault> {
    let args = read(matches).map_err(Fault::Refused)?;
    let mut faults = plan::plan(&args, Look::Nowhere).err().unwrap_or_default();
    faults.retain(|fault| !MISSING.iter().any(|missing| fault.contains(missing)));
    if !faults.is_empty() {
        return Err(Fault::Refused(faults));
    }
    // What can't be shown is written as TOML's strings, like those of JSON, have it.
    Ok(args.settings.to_toml().split('\n').map(scope_spelling::printable::json_line).collect::<Vec<_>>().join("\n"))
}
