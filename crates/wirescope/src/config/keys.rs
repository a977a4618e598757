//! The table of keys: the long flags of `wirescope run`, as clap has them.

use crate::args::{Cli, RunArgs};
use crate::plan::sources::specs;
use clap::builder::ValueParser;
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, CommandFactory, FromArgMatches};
use scope_config::{Given, Key, Keys, Kind, Origin, Shape, Value};
use std::ffi::OsString;

/// Flags that are no keys: the file itself, those that are short for `--source`, and what only a test asks for.
const NO_KEYS: [&str; 5] = ["help", "config", "interface", "read", "rights_selftest"];
/// What a trigger may say where it is a table.
const TRIGGER: Shape = Shape {
    main: "expr",
    more: &[
        ("name", Kind::Text),
        ("dump", Kind::Text),
        ("before", Kind::Amount),
        ("after", Kind::Amount),
        ("holdoff", Kind::Amount),
        ("holdoff-key", Kind::Text),
        ("single", Kind::Switch),
    ],
};
/// What a source may say where it is a table.
const SOURCE: Shape = Shape { main: "spec", more: &[] };

/// All keys.
pub fn all() -> Keys {
    let mut cli = Cli::command();
    cli.build();
    let run = cli.find_subcommand("run").into_iter().flat_map(|run| run.get_arguments());
    Keys(run.filter_map(key).collect())
}

fn key(arg: &Arg) -> Option<Key> {
    let name = arg.get_long().filter(|_| !NO_KEYS.contains(&arg.get_id().as_str()))?;
    let default = arg.get_default_values().first().map(|text| text.to_string_lossy().into_owned());
    let shape = match name {
        "trigger" => Some(TRIGGER),
        "source" => Some(SOURCE),
        _ => None,
    };
    let kind = kind(arg);
    // Of a switch clap says 'false', which is nothing given.
    let default = default.filter(|_| !matches!(kind, Kind::Switch | Kind::Count));
    Some(Key { name: name.to_string(), kind, default, shape })
}

fn kind(arg: &Arg) -> Kind {
    match arg.get_action() {
        ArgAction::SetTrue | ArgAction::SetFalse => Kind::Switch,
        ArgAction::Count => Kind::Count,
        ArgAction::Append => Kind::List,
        _ if is_words(arg) => Kind::Text,
        _ => Kind::Amount,
    }
}

/// Whether a flag's value is a path, one of a few words, a template, or a command, so that no number is meant.
fn is_words(arg: &Arg) -> bool {
    let path = arg.get_value_parser().type_id() == ValueParser::path_buf().type_id();
    let template = arg.get_value_names().is_some_and(|names| names.iter().any(|name| name == "TEMPLATE" || name == "CMD"));
    path || template || !arg.get_possible_values().is_empty()
}

/// What the command line gives, by key. All forms of a source are one list, in the order of the flags `--source`, `-i`, `-r`.
pub fn given(matches: &ArgMatches, keys: &Keys) -> Given {
    let by_flag = |id: &str| {
        let there = matches.try_contains_id(id).unwrap_or(false);
        there && matches.value_source(id) == Some(ValueSource::CommandLine)
    };
    let mut cli = Cli::command();
    cli.build();
    let mut given = Given::new();
    for arg in cli.find_subcommand("run").into_iter().flat_map(|run| run.get_arguments()) {
        let id = arg.get_id().as_str();
        let Some(key) = arg.get_long().and_then(|name| keys.get(name)).filter(|key| by_flag(id) && key.name != "source") else {
            continue;
        };
        let texts: Vec<OsString> = match key.kind {
            Kind::Switch => vec!["true".into()],
            Kind::Count => vec![matches.get_count(id).to_string().into()],
            _ => matches.get_raw(id).into_iter().flatten().map(OsString::from).collect(),
        };
        given.push((key.name.clone(), values(texts)));
    }
    let sources = ["source", "interface", "read"].into_iter().any(by_flag);
    if let (true, Ok(args)) = (sources, RunArgs::from_arg_matches(matches)) {
        given.push(("source".to_string(), values(specs(&args).into_iter().map(OsString::from).collect())));
    }
    given
}

fn values(texts: Vec<OsString>) -> Vec<Value> {
    texts.into_iter().map(|text| Value::new(text, Origin::Flag)).collect()
}
