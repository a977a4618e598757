//! Default, file and flags laid over each other: each key's values, and where they came from.

use crate::keys::{Key, Keys, Kind};
use crate::written::{Origin, Value, Written};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use toml_writer::{ToTomlValue, TomlStringBuilder};

/// What the command line gives, by key.
pub type Given = Vec<(String, Vec<Value>)>;

/// What holds for each key.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    file: Option<PathBuf>,
    entries: Vec<Entry>,
}

#[derive(Clone, Debug)]
struct Entry {
    key: Key,
    values: Vec<Value>,
}

impl Settings {
    /// For each key: what the flags give; else what the file says; else its default. A list of the flags replaces that of the
    /// file.
    pub fn merge(keys: &Keys, written: Option<Written>, flags: &Given) -> Settings {
        let (file, written) = written.map_or((None, Vec::new()), |written| (Some(written.file), written.values));
        let of = |from: &Given, name: &str| from.iter().find(|(other, _)| other == name).map(|(_, values)| values.clone());
        let entries = keys.0.iter().map(|key| {
            let default = || key.default.iter().map(|text| Value::new(text, Origin::Default)).collect();
            let values = of(flags, &key.name).or_else(|| of(&written, &key.name)).unwrap_or_else(default);
            Entry { key: key.clone(), values }
        });
        Settings { file, entries: entries.collect() }
    }

    /// The file, if there is one.
    pub fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// What the flags gave.
    pub fn flags(&self) -> Given {
        let by_flag = |entry: &&Entry| entry.values.iter().any(|value| value.origin == Origin::Flag);
        self.entries.iter().filter(by_flag).map(|entry| (entry.key.name.clone(), entry.values.clone())).collect()
    }

    /// The values of a key.
    pub fn values(&self, name: &str) -> &[Value] {
        self.entries.iter().find(|entry| entry.key.name == name).map_or(&[], |entry| &entry.values)
    }

    /// Names of the keys for which a value of the file holds.
    pub fn from_file(&self) -> impl Iterator<Item = &str> {
        let of_file = |entry: &&Entry| entry.values.iter().any(|value| self.place(value).is_some());
        self.entries.iter().filter(of_file).map(|entry| entry.key.name.as_str())
    }

    /// The arguments that say the same on a command line, but for elements' own words. With a name: those of one key.
    pub fn arguments(&self, only: Option<&str>) -> Vec<OsString> {
        let mut arguments = Vec::new();
        for Entry { key, values } in self.entries.iter().filter(|entry| only.is_none_or(|name| entry.key.name == name)) {
            for value in values.iter().filter(|value| value.origin != Origin::Default) {
                let flag = OsString::from(format!("--{}", key.name));
                match key.kind {
                    Kind::Switch => arguments.push(flag),
                    Kind::Count => {
                        let times = value.text.to_str().and_then(|text| text.parse().ok()).unwrap_or(0);
                        arguments.extend(std::iter::repeat_n(flag, times));
                    }
                    Kind::Text | Kind::Amount | Kind::List => {
                        let mut argument = flag;
                        argument.push("=");
                        argument.push(&value.text);
                        arguments.push(argument);
                    }
                }
            }
        }
        arguments
    }

    /// `FILE:LINE: ` of a value, where it came from the file.
    pub fn place(&self, value: &Value) -> Option<String> {
        match value.origin {
            Origin::File(line) => Some(self.at(line)),
            _ => None,
        }
    }

    /// `FILE:LINE: ` of a line.
    pub fn at(&self, line: usize) -> String {
        format!("{}:{line}: ", self.file.as_deref().unwrap_or(Path::new("")).display())
    }

    /// Names of the keys that mean something else here than in `other`.
    pub fn changed<'a>(&'a self, other: &'a Settings) -> impl Iterator<Item = &'a str> {
        let differs = |entry: &&Entry| told(&entry.values) != told(other.values(&entry.key.name));
        self.entries.iter().filter(differs).map(|entry| entry.key.name.as_str())
    }

    /// These settings, but the keys that `keeps` picks as in `other`.
    pub fn keeping(&self, other: &Settings, keeps: impl Fn(&str) -> bool) -> Settings {
        let mut settings = self.clone();
        for entry in settings.entries.iter_mut().filter(|entry| keeps(&entry.key.name)) {
            entry.values = other.values(&entry.key.name).to_vec();
        }
        settings
    }

    /// A key's values as TOML, in one line, and without where they came from.
    pub fn value_text(&self, name: &str) -> String {
        match self.entries.iter().find(|entry| entry.key.name == name) {
            Some(entry) if entry.values.is_empty() => "not set".to_string(),
            Some(entry) if entry.key.kind == Kind::List => {
                format!("[{}]", entry.values.iter().map(|value| toml(entry, value)).collect::<Vec<_>>().join(", "))
            }
            Some(entry) => toml(entry, &entry.values[0]),
            None => String::new(),
        }
    }

    /// All of it as a configuration file that means the same; comments say where each value came from.
    pub fn to_toml(&self) -> String {
        let mut text = String::new();
        for entry in self.entries.iter().filter(|entry| !entry.values.is_empty()) {
            let name = &entry.key.name;
            if entry.key.kind == Kind::List {
                text += &format!("{name} = [\n");
                for value in &entry.values {
                    text += &format!("    {}, # {}\n", toml(entry, value), self.origin(value));
                }
                text += "]\n";
            } else if let Some(value) = entry.values.first() {
                text += &format!("{name} = {} # {}\n", toml(entry, value), self.origin(value));
            }
        }
        let unset: Vec<&str> =
            self.entries.iter().filter(|entry| entry.values.is_empty()).map(|entry| entry.key.name.as_str()).collect();
        if !unset.is_empty() {
            text += &format!("# not set: {}\n", unset.join(", "));
        }
        text
    }

    fn origin(&self, value: &Value) -> String {
        match value.origin {
            Origin::Default => "default".to_string(),
            // A file name with a line break in it would end the comment.
            Origin::File(_) => self.place(value).unwrap_or_default().trim_end_matches(": ").replace(char::is_control, "?"),
            Origin::Flag => "flag".to_string(),
        }
    }
}

/// What values say, without where they came from.
fn told(values: &[Value]) -> Vec<(&OsString, Vec<(&'static str, String)>)> {
    let own = |value: &'_ Value| -> Vec<(&'static str, String)> {
        value.own.iter().flatten().map(|(name, own)| (*name, own.text.clone())).collect()
    };
    values.iter().map(|value| (&value.text, own(value))).collect()
}

/// One value as TOML, in one line.
fn toml(Entry { key, .. }: &Entry, value: &Value) -> String {
    let text = value.text.to_string_lossy();
    match (key.kind, &key.shape, &value.own) {
        (Kind::Switch | Kind::Count, ..) => text.into_owned(),
        (_, Some(shape), Some(own)) => {
            let mut words = vec![format!("{} = {}", shape.main, quoted(&text))];
            for (name, own) in own {
                let switch = shape.more.iter().any(|(other, kind)| other == name && *kind == Kind::Switch);
                words.push(format!("{name} = {}", if switch { own.text.clone() } else { quoted(&own.text) }));
            }
            format!("{{ {} }}", words.join(", "))
        }
        _ => quoted(&text),
    }
}

/// A text as a TOML string in one line.
fn quoted(text: &str) -> String {
    let text = TomlStringBuilder::new(text);
    text.as_basic_pretty().or(text.as_literal()).unwrap_or(text.as_basic()).to_toml_value()
}
