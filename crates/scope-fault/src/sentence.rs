//! Sentences in which settings are named by value: as a flag for a command line, as a key for a file.

use crate::location::Where;
use std::collections::BTreeSet;

/// Keys that people know by their short flag.
const SHORT: [(&str, &str); 3] = [("read", "-r"), ("snap-len", "-s"), ("write", "-w")];

/// The flag of a key, as messages name it.
pub(crate) fn flag(key: &str) -> String {
    SHORT
        .iter()
        .find(|(known, _)| *known == key)
        .map_or_else(|| format!("--{key}"), |(_, short)| short.to_string())
}

/// A setting that a sentence names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// Its key.
    pub key: &'static str,
    /// A value to write, where the sentence proposes one; in single quotes if it needs them.
    pub example: Option<String>,
    /// Where it stands, if that is in a file.
    pub at: Option<Where>,
}

impl Setting {
    /// The setting `key`, named.
    pub fn of(key: &'static str) -> Setting {
        Setting { key, example: None, at: None }
    }

    /// With a value that is proposed.
    pub fn example(self, value: impl Into<String>) -> Setting {
        Setting { example: Some(value.into()), ..self }
    }
}

/// A part of a sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// Words that are the same for everybody.
    Words(String),
    /// A setting.
    Setting(Setting),
    /// Words that differ between a command line and a file.
    Either {
        /// For a command line.
        flags: String,
        /// For a file.
        file: String,
    },
}

impl From<&str> for Part {
    fn from(words: &str) -> Part {
        Part::Words(words.to_string())
    }
}

impl From<String> for Part {
    fn from(words: String) -> Part {
        Part::Words(words)
    }
}

impl From<Setting> for Part {
    fn from(setting: Setting) -> Part {
        Part::Setting(setting)
    }
}

/// Words, lower case and without a full stop.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sentence(pub Vec<Part>);

impl<T: Into<Part>> From<T> for Sentence {
    fn from(part: T) -> Sentence {
        Sentence(vec![part.into()])
    }
}

impl Sentence {
    /// Notes where the settings that it names stand.
    pub(crate) fn locate(&mut self, find: &impl Fn(&str) -> Option<Where>) {
        for part in &mut self.0 {
            if let Part::Setting(setting) = part {
                setting.at = find(setting.key);
            }
        }
    }

    /// In words that fit a file (`in_file`) or a command line. A setting that stands in a file is named with
    /// its line, once.
    pub(crate) fn render(&self, in_file: bool, named: &mut BTreeSet<String>) -> String {
        self.0.iter().map(|part| part.render(in_file, named)).collect()
    }
}

impl Part {
    fn render(&self, in_file: bool, named: &mut BTreeSet<String>) -> String {
        let Setting { key, example, at } = match self {
            Part::Words(words) => return words.clone(),
            Part::Either { flags, file } => return if in_file { file.clone() } else { flags.clone() },
            Part::Setting(setting) => setting,
        };
        let name = if in_file { key.to_string() } else { flag(key) };
        match example {
            Some(value) if !in_file => return format!("{name} {value}"),
            Some(value) if value.starts_with('\'') => return format!("{name} = {value}"),
            Some(value) => return format!("{name} = \"{value}\""),
            None => {}
        }
        let is_new = named.insert(key.to_string());
        match at {
            Some(Where::File { path, line: Some(line) }) if is_new => {
                format!("{name} ({}:{line})", path.display())
            }
            _ => name,
        }
    }
}
