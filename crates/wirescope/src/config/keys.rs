//! The table of keys: the long flags of `wirescope run`, as clap has them.

use crate::args::{Cli, RunArgs};
use crate::plan::triggers::is_name;
use clap::builder::ValueParser;
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, CommandFactory, FromArgMatches, value_parser};
use scope_config::{Given, Key, Keys, Kind, Origin, Own, Shape, Value};
use scope_source::spec;
use scope_spelling::values::{parse_duration_ns, parse_percent, parse_size};
use std::collections::BTreeMap;
use std::ffi::OsString;

/// Flags that are no keys: the file itself, those that are elements of another list (`--source`, `--trigger`), and what
/// only a test asks for.
const NO_KEYS: [&str; 7] =
    ["help", "help_all", "config", "interface", "read", "rights_selftest", "trigger_script"];
/// What a trigger may say where it is a table.
const TRIGGER: Shape = Shape {
    main: "expr",
    more: &[
        ("name", Kind::Text),
        ("when", Kind::Text),
        ("dump", Kind::Text),
        ("before", Kind::Amount),
        ("after", Kind::Amount),
        ("holdoff", Kind::Amount),
        ("holdoff-key", Kind::Text),
        ("single", Kind::Switch),
        ("auto", Kind::Amount),
        ("script", Kind::Text),
        ("dump-script", Kind::Text),
    ],
    instead: &[("expr", "script"), ("dump", "dump-script")],
};
/// What a template of dumps may say where it is a table.
const DUMP: Shape =
    Shape { main: "template", more: &[("script", Kind::Text)], instead: &[("template", "script")] };
/// What a signal may say where it is a table.
const SIGNAL: Shape =
    Shape { main: "expr", more: &[("name", Kind::Text), ("measure", Kind::Text)], instead: &[] };
/// What a group may say where it is a table.
const GROUP: Shape = Shape {
    main: "name",
    more: &[
        ("filter", Kind::Text),
        ("interface", Kind::Text),
        ("steer", Kind::Text),
        ("memory", Kind::Amount),
        ("members-max", Kind::Amount),
        ("members", Kind::Amount),
        ("stuck", Kind::Amount),
        ("allow", Kind::Text),
        ("rule", Kind::Tables),
    ],
    instead: &[],
};
/// What a set may say where it is a table.
const SET: Shape = Shape { main: "name", more: &[("kind", Kind::Text), ("file", Kind::Text)], instead: &[] };
/// What a source may say where it is a table.
const SOURCE: Shape = Shape { main: "spec", more: &[("rule", Kind::Tables)], instead: &[] };

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
        "dump" => Some(DUMP),
        "signal" => Some(SIGNAL),
        "group" => Some(GROUP),
        "set" => Some(SET),
        "source" => Some(SOURCE),
        _ => None,
    };
    let kind = kind(arg);
    // Of a switch clap says 'false', which is nothing given.
    let default = default.filter(|_| !matches!(kind, Kind::Switch | Kind::Count));
    Some(Key { name: name.to_string(), kind, default, shape })
}

fn kind(arg: &Arg) -> Kind {
    let takes = |parser: ValueParser| arg.get_value_parser().type_id() == parser.type_id();
    match arg.get_action() {
        _ if takes(ValueParser::bool()) => Kind::Switch,
        _ if takes(value_parser!(u8).into()) => Kind::Count,
        ArgAction::Append => Kind::List,
        _ if is_words(arg) => Kind::Text,
        _ => Kind::Amount,
    }
}

/// Whether a flag's value is a path, one of a few words, a template, a command or a name, so that no number is
/// meant.
fn is_words(arg: &Arg) -> bool {
    let path = arg.get_value_parser().type_id() == ValueParser::path_buf().type_id();
    let template = arg
        .get_value_names()
        .is_some_and(|names| names.iter().any(|name| ["TEMPLATE", "CMD", "LABEL"].contains(&name.as_str())));
    path || template || !arg.get_possible_values().is_empty()
}

/// What the command line gives, by key. All forms of a source are one list, in the order of the flags
/// `--source`, `-i`, `-r`.
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
        let Some(key) =
            arg.get_long().and_then(|name| keys.get(name)).filter(|key| by_flag(id) && key.name != "source")
        else {
            continue;
        };
        let texts: Vec<OsString> = match key.kind {
            Kind::Switch => vec![matches.get_flag(id).to_string().into()],
            Kind::Count => vec![matches.get_count(id).to_string().into()],
            _ => matches.get_raw(id).into_iter().flatten().map(OsString::from).collect(),
        };
        given.push((key.name.clone(), values(texts)));
    }
    if by_flag("trigger_script") {
        let scripts = |text: &str| match text.split_once('=') {
            Some((name, file)) if is_name(name) && !file.is_empty() => script(file, Some(name)),
            _ => script(text, None),
        };
        put(&mut given, "trigger", in_order(matches, "trigger", ("trigger_script", &scripts)));
    }
    // Of both kinds the order counts; of one alone it is that of its list.
    if by_flag("dump") && by_flag("dump_script") {
        given.retain(|(key, _)| key != "dump-script");
        put(&mut given, "dump", in_order(matches, "dump", ("dump_script", &|text| script(text, None))));
    }
    let sources = ["source", "interface", "read"].into_iter().any(by_flag);
    if let (true, Ok(args)) = (sources, RunArgs::from_arg_matches(matches)) {
        given.push(("source".to_string(), values(args.specs().into_iter().map(OsString::from).collect())));
    }
    given
}

/// Puts the values of a key in the place of those that it has.
fn put(given: &mut Given, key: &str, values: Vec<Value>) {
    given.retain(|(other, _)| other != key);
    given.push((key.to_string(), values));
}

/// The values of a list and of scripts that are elements of it, in the order of the command line.
fn in_order(
    matches: &ArgMatches,
    list: &str,
    (scripts, element): (&str, &dyn Fn(&str) -> Value),
) -> Vec<Value> {
    let of = |id: &str| -> Vec<(usize, OsString)> {
        let at_flag = matches.value_source(id) == Some(ValueSource::CommandLine);
        let indices = matches.indices_of(id).filter(|_| at_flag).into_iter().flatten();
        indices.zip(matches.get_raw(id).into_iter().flatten().map(OsString::from)).collect()
    };
    let plain = of(list).into_iter().map(|(at, text)| (at, Value::new(text, Origin::Flag)));
    let of_script = |(at, text): (usize, OsString)| (at, element(&text.to_string_lossy()));
    let mut all: Vec<(usize, Value)> = plain.chain(of(scripts).into_iter().map(of_script)).collect();
    all.sort_by_key(|(at, _)| *at);
    all.into_iter().map(|(_, value)| value).collect()
}

/// A script as the element of a list.
fn script(file: &str, name: Option<&str>) -> Value {
    let own = |text: &str| Own { text: text.to_string(), line: 0, lines: Vec::new() };
    let name = name.map(|name| ("name", own(name)));
    let words = [("script", own(file))].into_iter().chain(name);
    Value { own: Some(words.collect()), ..Value::new("", Origin::Flag) }
}

fn values(texts: Vec<OsString>) -> Vec<Value> {
    texts.into_iter().map(|text| Value::new(text, Origin::Flag)).collect()
}

/// What a key's text means, so that other spellings of the same (`64MiB`, `65536KiB`) are told to be the
/// same.
pub fn meanings() -> impl Fn(&str, &str) -> String {
    let mut cli = Cli::command();
    cli.build();
    let run = cli.find_subcommand("run").into_iter().flat_map(|run| run.get_arguments());
    let of_arg = |arg: &Arg| Some((arg.get_long()?.to_string(), arg.get_value_names()?.first()?.to_string()));
    let value_names: BTreeMap<String, String> = run.filter_map(of_arg).collect();
    move |key, text| {
        meaning(value_names.get(key).map_or("", String::as_str), text).unwrap_or_else(|| text.to_string())
    }
}

/// A text that is the same for all spellings of a value; the help's name for the value says how it is read.
fn meaning(value_name: &str, text: &str) -> Option<String> {
    match value_name {
        "SIZE|PERCENT" if text.trim_end().ends_with('%') => {
            parse_percent(text).ok().map(|ppm| format!("{ppm} ppm"))
        }
        "SIZE" | "BYTES" | "SIZE|PERCENT" => parse_size(text).ok().map(|bytes| bytes.to_string()),
        "TIME" => parse_duration_ns(text).ok().map(|ns| ns.to_string()),
        "N" | "NODE" => text.parse::<u64>().ok().map(|number| number.to_string()),
        "SRC" => spec::parse(text).ok().map(|spec| format!("{spec:?}")),
        _ => None,
    }
}
