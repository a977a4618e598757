//! Default, file and flags laid over each other: each key's values, and where they came from.

use crate::keys::{Key, Keys, Kind};
use crate::written::{Origin, Value, Written};
use scope_fault::Where;
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

/// What a value says, and what its own words say.
type Told = (OsString, Vec<(&'static str, String)>);

#[derive(Clone, Debug)]
struct Entry {
    key: Key,
    values: Vec<Value>,
    /// Those of the file that flags have replaced.
    replaced: Vec<Value>,
}

impl Settings {
    /// For each key: what the flags give; else what the file says; else its default. A list of the flags
    /// replaces that of the file. What the flags give stands above what an element of the file says of
    /// itself, too.
    pub fn merge(keys: &Keys, written: Option<Written>, flags: &Given) -> Settings {
        let (file, written) =
            written.map_or((None, Vec::new()), |written| (Some(written.file), written.values));
        let of = |from: &Given, name: &str| {
            from.iter().find(|(other, _)| other == name).map(|(_, values)| values.clone())
        };
        let entries = keys.0.iter().map(|key| {
            let default = || key.default.iter().map(|text| Value::new(text, Origin::Default)).collect();
            let mut values = of(flags, &key.name).or_else(|| of(&written, &key.name)).unwrap_or_else(default);
            for value in &mut values {
                value.give_way(flags, key.shape.as_ref());
            }
            let is_replaced = of(flags, &key.name).is_some();
            let replaced = of(&written, &key.name).filter(|_| is_replaced).unwrap_or_default();
            Entry { key: key.clone(), values, replaced }
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
        self.entries
            .iter()
            .filter(by_flag)
            .map(|entry| (entry.key.name.clone(), entry.values.clone()))
            .collect()
    }

    /// The values of a key.
    pub fn values(&self, name: &str) -> &[Value] {
        self.entries.iter().find(|entry| entry.key.name == name).map_or(&[], |entry| &entry.values)
    }

    /// Values of the file that flags have replaced.
    pub fn replaced(&self, name: &str) -> &[Value] {
        self.entries.iter().find(|entry| entry.key.name == name).map_or(&[], |entry| &entry.replaced)
    }

    /// Whether something was given for a key, and something else than what holds anyway.
    pub fn is_changed(&self, name: &str) -> bool {
        let Some(Entry { key, values, .. }) = self.entries.iter().find(|entry| entry.key.name == name) else {
            return false;
        };
        let default = match key.kind {
            Kind::Switch => Some("false"),
            _ => key.default.as_deref(),
        };
        values.iter().any(|value| value.origin != Origin::Default && value.text.to_str() != default)
    }

    /// Names of the keys for which a value of the file holds.
    pub fn from_file(&self) -> impl Iterator<Item = &str> {
        let of_file = |entry: &&Entry| entry.values.iter().any(|value| self.place(value).is_some());
        self.entries.iter().filter(of_file).map(|entry| entry.key.name.as_str())
    }

    /// The arguments that say the same on a command line, but for elements' own words. With a name: those of
    /// one key.
    pub fn arguments(&self, only: Option<&str>) -> Vec<OsString> {
        let mut arguments = Vec::new();
        for Entry { key, values, .. } in
            self.entries.iter().filter(|entry| only.is_none_or(|name| entry.key.name == name))
        {
            for value in values.iter().filter(|value| value.origin != Origin::Default) {
                let mut argument = OsString::from(format!("--{}=", key.name));
                argument.push(&value.text);
                arguments.push(argument);
            }
        }
        arguments
    }

    /// Where a value stands, if it came from the file.
    pub fn place(&self, value: &Value) -> Option<Where> {
        match value.origin {
            Origin::File(line) => Some(self.at(line)),
            _ => None,
        }
    }

    /// Where the first value of a key stands, if that came from the file.
    pub fn place_of(&self, key: &str) -> Option<Where> {
        self.values(key).first().and_then(|value| self.place(value))
    }

    /// Where a word stands that an element of the key `name` says of itself, its main word included.
    pub fn place_within(&self, name: &str, value: &Value, word: &str) -> Option<Where> {
        self.place(value)?;
        let shape = self.entries.iter().find(|entry| entry.key.name == name)?.key.shape?;
        let own = value.own.as_ref()?.get(word).map(|own| own.line);
        own.or(value.main_line.filter(|_| shape.main == word)).map(|line| self.at(line))
    }

    /// Where the table at this place, from 0, of the one word stands that is a list of tables.
    pub fn place_of_table(&self, name: &str, value: &Value, at: usize) -> Option<Where> {
        self.place(value)?;
        let shape = self.entries.iter().find(|entry| entry.key.name == name)?.key.shape?;
        let (word, _) = shape.more.iter().find(|(_, kind)| *kind == Kind::Tables)?;
        value.own.as_ref()?.get(word)?.lines.get(at).map(|line| self.at(*line))
    }

    fn at(&self, line: usize) -> Where {
        Where::File { path: self.file.clone().unwrap_or_default(), line: Some(line) }
    }

    /// Names of the keys that mean something else here than in `other`; `meant` tells of a key and a text
    /// what is meant.
    pub fn changed<'a>(
        &'a self,
        other: &'a Settings,
        meant: &'a impl Fn(&str, &str) -> String,
    ) -> impl Iterator<Item = &'a str> {
        let differs = |entry: &&Entry| {
            let same = |with_general: bool| {
                self.told(entry, with_general, meant) == other.told_of(&entry.key, with_general, meant)
            };
            !same(false) && !same(true)
        };
        self.entries.iter().filter(differs).map(|entry| entry.key.name.as_str())
    }

    fn told_of(&self, key: &Key, with_general: bool, meant: &impl Fn(&str, &str) -> String) -> Vec<Told> {
        let entry = self.entries.iter().find(|entry| entry.key.name == key.name);
        entry.map_or(Vec::new(), |entry| self.told(entry, with_general, meant))
    }

    /// What values say, without where they came from; elements of a list also what the general keys say for
    /// them, if so asked.
    fn told(&self, entry: &Entry, with_general: bool, meant: &impl Fn(&str, &str) -> String) -> Vec<Told> {
        let words = entry.key.shape.map_or(&[][..], |shape| shape.more);
        let general = |word: &str| match self.entries.iter().find(|entry| entry.key.name == word) {
            Some(entry) if with_general && entry.key.kind != Kind::List => {
                let switch_off = || (entry.key.kind == Kind::Switch).then(|| "false".to_string());
                entry
                    .values
                    .first()
                    .map(|value| value.text.to_string_lossy().into_owned())
                    .or_else(switch_off)
            }
            _ => None,
        };
        let own = |value: &Value, word: &str| value.own.as_ref()?.get(word).map(|own| own.text.clone());
        let told = |value: &Value| -> Told {
            let of_word = |(word, _): &(&'static str, Kind)| {
                let text = own(value, word).or_else(|| general(word))?;
                Some((*word, meant(word, &text)))
            };
            let text =
                value.text.to_str().map_or(value.text.clone(), |text| meant(&entry.key.name, text).into());
            (text, words.iter().filter_map(of_word).collect())
        };
        let is_off = |value: &&Value| match entry.key.kind {
            Kind::Switch => value.text == "false",
            Kind::Count => value.text == "0",
            _ => false,
        };
        entry.values.iter().filter(|value| !is_off(value)).map(told).collect()
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
                format!(
                    "[{}]",
                    entry.values.iter().map(|value| toml(entry, value)).collect::<Vec<_>>().join(", ")
                )
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
                    let given_way = value.given_way.join(", ");
                    let by_flag =
                        if given_way.is_empty() { String::new() } else { format!("; by flag: {given_way}") };
                    text += &format!("    {}, # {}{by_flag}\n", toml(entry, value), self.origin(value));
                }
                text += "]\n";
            } else if let Some(value) = entry.values.first() {
                text += &format!("{name} = {} # {}\n", toml(entry, value), self.origin(value));
            }
        }
        let unset: Vec<&str> = self
            .entries
            .iter()
            .filter(|entry| entry.values.is_empty())
            .map(|entry| entry.key.name.as_str())
            .collect();
        if !unset.is_empty() {
            text += &format!("# not set: {}\n", unset.join(", "));
        }
        text
    }

    fn origin(&self, value: &Value) -> String {
        let lossy = if value.text.to_str().is_some() {
            ""
        } else {
            "; is no UTF-8, so that this line can't reproduce the run"
        };
        let from = match value.origin {
            Origin::Default => "default".to_string(),
            // A file name with a line break in it would end the comment.
            Origin::File(line) => {
                let file = self.file.as_deref().unwrap_or(Path::new("")).display();
                format!("{file}:{line}").replace(char::is_control, "?")
            }
            Origin::Flag => "flag".to_string(),
        };
        from + lossy
    }
}

/// One value as TOML, in one line.
fn toml(Entry { key, .. }: &Entry, value: &Value) -> String {
    let text = value.text.to_string_lossy();
    match (key.kind, &key.shape, &value.own) {
        (Kind::Switch | Kind::Count, ..) => text.into_owned(),
        (_, Some(shape), Some(own)) => {
            let is_replaced = shape.other(shape.main).is_some_and(|other| own.contains_key(other));
            let mut words: Vec<String> = Vec::new();
            if !is_replaced {
                words.push(format!("{} = {}", shape.main, quoted(&text)));
            }
            for (name, own) in own {
                let bare = |kind: Kind| matches!(kind, Kind::Switch | Kind::Tables);
                let is_bare = shape.more.iter().any(|(other, kind)| other == name && bare(*kind));
                words
                    .push(format!("{name} = {}", if is_bare { own.text.clone() } else { quoted(&own.text) }));
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
