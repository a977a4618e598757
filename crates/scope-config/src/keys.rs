//! The table of keys: what a file may say. It is handed in, so that a new flag is a new key at once.

/// How like a key a word must be to be taken for a mistyped one (Jaro-Winkler, 0 to 1).
const LIKENESS_MIN: f64 = 0.75;

/// What a key's value looks like in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `true` or `false`.
    Switch,
    /// A switch that may be given several times: `true`, `false` or how often.
    Count,
    /// A string.
    Text,
    /// A string, or a plain number.
    Amount,
    /// A string, or an array of strings; tables too, where the key has a [`Shape`].
    List,
    /// Tables, within an element of a list; what they say is looked at by whoever asks: see [`crate::written::tables`].
    Tables,
}

/// What an element of a list may say, where it is a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// The key whose string the element would be if it were one.
    pub main: &'static str,
    /// What else it may say.
    pub more: &'static [(&'static str, Kind)],
    /// Words that may stand instead of others, and not beside them: first the other, which may be the main one.
    pub instead: &'static [(&'static str, &'static str)],
}

impl Shape {
    /// The word that may stand instead of this one, or the one that this may stand instead of.
    pub(crate) fn other(&self, word: &str) -> Option<&'static str> {
        self.instead.iter().find_map(|(one, other)| match word {
            _ if word == *one => Some(*other),
            _ if word == *other => Some(*one),
            _ => None,
        })
    }
}

/// One key.
#[derive(Clone, Debug)]
pub struct Key {
    /// Name: the long name of a flag.
    pub name: String,
    /// What its value looks like.
    pub kind: Kind,
    /// What holds where nothing is given.
    pub default: Option<String>,
    /// For lists whose elements may be tables.
    pub shape: Option<Shape>,
}

/// All keys, in the order in which they are shown.
#[derive(Clone, Debug, Default)]
pub struct Keys(pub Vec<Key>);

impl Keys {
    /// The key of a name.
    pub fn get(&self, name: &str) -> Option<&Key> {
        self.0.iter().find(|key| key.name == name)
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|key| key.name.as_str())
    }
}

/// What to write instead of a word that isn't known: the nearest of `names`, or all of them if they are few.
pub(crate) fn nearest<'a>(word: &str, names: impl Iterator<Item = &'a str>) -> String {
    let names: Vec<&str> = names.collect();
    let likeness = |name: &&str| strsim::jaro_winkler(&word.to_lowercase().replace('_', "-"), name);
    let best = names.iter().copied().max_by(|one, other| likeness(one).total_cmp(&likeness(other)));
    match best.filter(|best| likeness(best) >= LIKENESS_MIN) {
        Some(best) => format!("did you mean '{best}'?"),
        None => format!("there are: {}", names.join(", ")),
    }
}
