//! A fault: what it is about, where that stands, what is wrong with it, and what to do.

use crate::location::Where;
use crate::sentence::Sentence;
use std::fmt::Display;
use std::ops::{Deref, DerefMut};
use std::path::Path;

/// What a fault is about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Subject {
    /// The whole run, or the whole file.
    #[default]
    Whole,
    /// A setting: `--ring`, in a file `ring`.
    Setting {
        /// Its key: the long name of a flag.
        key: String,
        /// The element that is meant, of a list.
        element: Option<String>,
        /// The word of an element, `trigger.name`.
        word: Option<String>,
    },
    /// A trigger.
    Trigger {
        /// Its name.
        name: String,
        /// The word of it that is meant; none: all of it.
        word: Option<String>,
    },
    /// One source, or several that don't fit together.
    Sources {
        /// As typed.
        specs: Vec<String>,
        /// The option that is meant; none: all of it.
        option: Option<String>,
    },
    /// Something that is no setting: a file, a step at the start.
    Thing(String),
}

impl Subject {
    /// The setting `key`.
    pub fn setting(key: impl Into<String>) -> Subject {
        Subject::Setting { key: key.into(), element: None, word: None }
    }

    /// The option of a source, or all of it.
    pub fn source(spec: impl Into<String>, option: Option<&str>) -> Subject {
        Subject::Sources { specs: vec![spec.into()], option: option.map(str::to_string) }
    }

    /// A word of a trigger, or all of it.
    pub fn trigger(name: impl Into<String>, word: Option<&str>) -> Subject {
        Subject::Trigger { name: name.into(), word: word.map(str::to_string) }
    }
}

/// What kind of fault it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    /// A given setting is wrong.
    #[default]
    Wrong,
    /// A setting that a run needs is missing.
    Missing,
}

/// One thing that is wrong. Its text is `PLACE: CAUSE; REMEDY`, by `Display`. As large as a pointer: most
/// results hold none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fault(Box<Parts>);

/// The parts of a [`Fault`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parts {
    /// What it is about.
    pub subject: Subject,
    /// Which of the tables is meant that an element has, from 0, if it is one.
    pub table: Option<usize>,
    /// The value that is wrong, as typed, if it is one.
    pub value: Option<String>,
    /// Where that stands.
    pub at: Where,
    /// Wrong, or missing.
    pub kind: Kind,
    /// What is wrong.
    pub cause: Sentence,
    /// The text that is wrong with a mark below the place, in lines of their own.
    pub shown: Option<String>,
    /// What to do.
    pub remedy: Option<Sentence>,
    /// What may help besides, each in lines of its own.
    pub hints: Vec<Sentence>,
}

impl Deref for Fault {
    type Target = Parts;

    fn deref(&self) -> &Parts {
        &self.0
    }
}

impl DerefMut for Fault {
    fn deref_mut(&mut self) -> &mut Parts {
        &mut self.0
    }
}

impl std::error::Error for Fault {}

impl Fault {
    /// Of the setting `key`.
    pub fn of(key: impl Into<String>) -> Fault {
        Fault::about(Subject::setting(key))
    }

    /// Of something.
    pub fn about(subject: Subject) -> Fault {
        Fault::default().of_subject(subject)
    }

    /// Of one source.
    pub fn of_source(spec: impl Into<String>) -> Fault {
        Fault::about(Subject::source(spec, None))
    }

    /// Of one option of a source.
    pub fn of_option(spec: impl Into<String>, option: &str) -> Fault {
        Fault::about(Subject::source(spec, Some(option)))
    }

    /// Of something that is no setting.
    pub fn of_thing(thing: impl Into<String>) -> Fault {
        Fault::about(Subject::Thing(thing.into()))
    }

    /// Of nothing in particular: a cause alone.
    pub fn whole(cause: impl Into<Sentence>) -> Fault {
        Fault::default().cause(cause)
    }

    /// Of another subject.
    #[must_use]
    pub fn of_subject(mut self, subject: Subject) -> Fault {
        self.subject = subject;
        self
    }

    /// A value, as typed, and what is wrong with it: `'soon' is not a number`.
    #[must_use]
    pub fn value(self, value: &str, is: impl Display) -> Fault {
        self.with_value(value).cause(format!("'{value}' {is}"))
    }

    /// The value that is wrong, as typed.
    #[must_use]
    pub fn with_value(mut self, value: impl Into<String>) -> Fault {
        self.value = Some(value.into());
        self
    }

    /// Of the table at this place, from 0, of those that an element has.
    #[must_use]
    pub fn of_table(mut self, at: usize) -> Fault {
        self.table = Some(at);
        self
    }

    /// With what is wrong.
    #[must_use]
    pub fn cause(mut self, cause: impl Into<Sentence>) -> Fault {
        self.cause = cause.into();
        self
    }

    /// With what to do.
    #[must_use]
    pub fn remedy(mut self, remedy: impl Into<Sentence>) -> Fault {
        self.remedy = Some(remedy.into());
        self
    }

    /// With something more that may help.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<Sentence>) -> Fault {
        self.hints.push(hint.into());
        self
    }

    /// With the text that is wrong, and a mark below the place.
    #[must_use]
    pub fn showing(mut self, shown: impl Into<String>) -> Fault {
        self.shown = Some(shown.into());
        self
    }

    /// Of what is missing.
    #[must_use]
    pub fn missing(mut self) -> Fault {
        self.kind = Kind::Missing;
        self
    }

    /// Where it stands.
    #[must_use]
    pub fn at(mut self, at: Where) -> Fault {
        self.at = at;
        self
    }

    /// Of a file.
    #[must_use]
    pub fn in_file(self, path: impl AsRef<Path>, line: Option<usize>) -> Fault {
        self.at(Where::File { path: path.as_ref().into(), line })
    }

    /// The key that it is about, with the word of an element behind a dot: `ring`, `trigger.before`.
    pub fn key(&self) -> Option<String> {
        let (key, word) = match &self.subject {
            Subject::Setting { key, word, .. } => (key.as_str(), word),
            Subject::Trigger { word, .. } => ("trigger", word),
            Subject::Sources { option, .. } => ("source", option),
            Subject::Whole | Subject::Thing(_) => return None,
        };
        Some(word.as_ref().map_or_else(|| key.to_string(), |word| format!("{key}.{word}")))
    }

    /// The line of a file that it is about.
    pub fn line(&self) -> Option<usize> {
        match self.at {
            Where::File { line, .. } => line,
            Where::Flags => None,
        }
    }

    /// Notes where the settings stand that its sentences name.
    #[must_use]
    pub fn located(mut self, find: &impl Fn(&str) -> Option<Where>) -> Fault {
        let Parts { cause, remedy, hints, .. } = &mut *self.0;
        for sentence in [cause].into_iter().chain(remedy).chain(hints) {
            sentence.locate(find);
        }
        self
    }
}

/// Faults as they are reported: those with a line first, in the order of their lines; the others as they were
/// found.
pub fn in_order(mut faults: Vec<Fault>) -> Vec<Fault> {
    faults.sort_by_key(|fault| fault.line().unwrap_or(usize::MAX));
    faults
}
