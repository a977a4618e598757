//! A template's text split into its parts: names, what stands between them, and the fallback; why a text is
//! no template.

use std::convert::Infallible;
use std::fmt;

use scope_fault::Fault;

use super::fields::{Field, SAMPLES, known, nearest};
use crate::excerpt::excerpt;

/// Between a template and its fallback.
const FALLBACK: &str = "?:";
/// Most names in one template: filled texts stay within what is compiled.
const NAMES_MAX: usize = 32;

/// Why a text is no template. Offsets are bytes from the start of the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TemplateError {
    /// A name that isn't known.
    UnknownName {
        /// The whole text.
        text: String,
        /// Where the name stands.
        at: usize,
        /// As written.
        name: String,
        /// The known name most like it, with its `$`, if one is like it.
        nearest: Option<String>,
    },
    /// A `$` or a brace without a name.
    NoName {
        /// The whole text.
        text: String,
        /// Where it stands.
        at: usize,
        /// The character.
        found: char,
    },
    /// A name behind `?:`.
    NameInFallback {
        /// The whole text.
        text: String,
        /// Where the name stands.
        at: usize,
    },
    /// More names than are filled.
    TooManyNames {
        /// The bound.
        names_max: usize,
    },
}

impl fmt::Display for TemplateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.fault().fmt(f)
    }
}

impl std::error::Error for TemplateError {}

impl TemplateError {
    /// What is wrong, the place with a mark below it, and what helps; of which setting says who has it.
    pub fn fault(&self) -> Fault {
        let there_are = || format!("there are {}", known());
        match self {
            TemplateError::UnknownName { text, at, name, nearest } => {
                let nearest =
                    nearest.as_ref().map_or(String::new(), |nearest| format!("did you mean '{nearest}'? "));
                let fault = Fault::whole(format!("template: unknown name '{name}' at byte {at}"));
                fault.with_value(text).remedy(nearest + &there_are()).showing(excerpt(text, *at))
            }
            TemplateError::NoName { text, at, found } => {
                let fault = Fault::whole(format!("template: '{found}' at byte {at} without a name"));
                fault.with_value(text).remedy(there_are()).showing(excerpt(text, *at))
            }
            TemplateError::NameInFallback { text, at } => {
                let cause = format!(
                    "template: a name at byte {at} in the fallback, which is used when names can't be filled"
                );
                Fault::whole(cause)
                    .with_value(text)
                    .remedy("write it without names")
                    .showing(excerpt(text, *at))
            }
            TemplateError::TooManyNames { names_max } => {
                Fault::whole(format!("template: more than {names_max} names"))
            }
        }
    }
}

/// A part of a template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Piece {
    /// Text from `at`.
    Text { at: usize, text: String },
    /// A name that stands at `at`.
    Name { at: usize, field: Field },
}

impl Piece {
    fn is_name(&self) -> bool {
        matches!(self, Piece::Name { .. })
    }
}

/// A template's text, split.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Parts {
    pub pieces: Vec<Piece>,
    pub fallback: Option<String>,
    /// Offset of the fallback in the text.
    pub fallback_at: usize,
}

/// A filled text, and for each piece where it begins in it and in the template.
pub(super) struct Filled {
    pub text: String,
    begins: Vec<(usize, usize, bool)>,
}

impl Filled {
    /// Maps an offset in the filled text to the template: inside a name, to its beginning.
    pub fn to_template(&self, at: usize) -> usize {
        match self.begins.iter().rev().find(|(filled, ..)| *filled <= at) {
            Some((_, source, true)) => *source,
            Some((filled, source, false)) => source + (at - filled),
            None => at,
        }
    }
}

impl Parts {
    /// Splits a text.
    ///
    /// # Errors
    /// For unknown names, with the nearest known one, and for names in the fallback.
    pub fn of(text: &str) -> Result<Parts, TemplateError> {
        let (body, fallback) = match text.split_once(FALLBACK) {
            Some((body, fallback)) => (body, Some(fallback)),
            None => (text, None),
        };
        let pieces = split(text, body)?;
        if pieces.iter().filter(|piece| piece.is_name()).count() > NAMES_MAX {
            return Err(TemplateError::TooManyNames { names_max: NAMES_MAX });
        }
        let fallback_at = body.len() + FALLBACK.len();
        if let Some(at) = fallback.and_then(|fallback| fallback.find(['$', '{'])) {
            return Err(TemplateError::NameInFallback { text: text.into(), at: fallback_at + at });
        }
        Ok(Parts { pieces, fallback: fallback.map(|fallback| fallback.trim().into()), fallback_at })
    }

    /// Whether there is a name among them.
    pub fn have_names(&self) -> bool {
        self.pieces.iter().any(Piece::is_name)
    }

    /// The text without its names.
    pub fn plain(&self) -> Filled {
        let mut filled = Filled { text: String::new(), begins: Vec::new() };
        for piece in &self.pieces {
            if let Piece::Text { at, text } = piece {
                filled.begins.push((filled.text.len(), *at, false));
                filled.text.push_str(text);
            }
        }
        filled
    }

    pub fn fill_with<E>(&self, value: impl Fn(Field) -> Result<String, E>) -> Result<Filled, E> {
        let mut filled = Filled { text: String::new(), begins: Vec::new() };
        for piece in &self.pieces {
            match piece {
                Piece::Text { at, text } => {
                    filled.begins.push((filled.text.len(), *at, false));
                    filled.text.push_str(text);
                }
                Piece::Name { at, field } => {
                    filled.begins.push((filled.text.len(), *at, true));
                    filled.text.push_str(&value(*field)?);
                }
            }
        }
        Ok(filled)
    }
}

/// What a text is compiled to, where it is a template that has names: the text with samples in their place,
/// and its fallback.
pub(crate) fn sampled(text: &str) -> Option<Vec<String>> {
    let parts = Parts::of(text).ok().filter(Parts::have_names)?;
    let filled = parts.fill_with(|field| Ok::<_, Infallible>(field.sample(SAMPLES[0]))).ok()?;
    Some(std::iter::once(filled.text).chain(parts.fallback).collect())
}

/// Where the first known name stands in a text, if there is one.
pub(crate) fn first_name(text: &str) -> Option<usize> {
    let known = |at: &usize| name_at(&text[*at..]).is_some_and(|(name, _)| Field::by_name(name).is_some());
    text.match_indices(['$', '{']).map(|(at, _)| at).find(known)
}

/// Splits `body`, the beginning of `text`, into pieces.
fn split(text: &str, body: &str) -> Result<Vec<Piece>, TemplateError> {
    let (mut pieces, mut at, mut text_from) = (Vec::new(), 0, 0);
    while let Some(found) = body[at..].find(['$', '{', '}']).map(|offset| at + offset) {
        let (name, len) = match name_at(&body[found..]) {
            Some(found) => found,
            None if is_arcnet(&body[found..]) => {
                at = found + 1;
                continue;
            }
            None => {
                return Err(TemplateError::NoName {
                    text: text.into(),
                    at: found,
                    found: char::from(body.as_bytes()[found]),
                });
            }
        };
        let Some(field) = Field::by_name(name) else {
            if is_arcnet(&body[found..]) {
                at = found + 1;
                continue;
            }
            let nearest = nearest(name).map(|field| field.name().to_string());
            return Err(TemplateError::UnknownName {
                text: text.into(),
                at: found,
                name: body[found..found + len].into(),
                nearest,
            });
        };
        if found > text_from {
            pieces.push(Piece::Text { at: text_from, text: body[text_from..found].into() });
        }
        pieces.push(Piece::Name { at: found, field });
        at = found + len;
        text_from = at;
    }
    if body.len() > text_from || pieces.is_empty() {
        pieces.push(Piece::Text { at: text_from, text: body[text_from..].into() });
    }
    Ok(pieces)
}

/// The name at the start of `rest` and the length of all that spells it: `$name`, `{name}`, `${name}`.
fn name_at(rest: &str) -> Option<(&str, usize)> {
    let word_len = |text: &str| text.bytes().take_while(|b| b.is_ascii_alphanumeric() || *b == b'_').count();
    let dollar = usize::from(rest.starts_with('$'));
    let bare = &rest[dollar..];
    let (open, close) = if bare.starts_with('{') { (1, 1) } else { (0, 0) };
    let len = word_len(&bare[open..]);
    let closed = close == 0 || bare[open + len..].starts_with('}');
    (len > 0 && closed && dollar + open > 0).then(|| (&bare[open..open + len], dollar + open + len + close))
}

/// `$` with one or two hexadecimal digits and no more of a name.
fn is_arcnet(rest: &str) -> bool {
    let digits = rest.strip_prefix('$').map_or("", |rest| {
        &rest[..rest.bytes().take_while(|b| b.is_ascii_alphanumeric() || *b == b'_').count()]
    });
    matches!(digits.len(), 1 | 2) && digits.bytes().all(|b| b.is_ascii_hexdigit())
}
