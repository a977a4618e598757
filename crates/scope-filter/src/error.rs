//! Why a filter text is refused, with the place and a caret under it.

use crate::excerpt::{SHOWN_BYTES, excerpt, plain};
use crate::guess;
use crate::words::{NESTING_MAX, Refusal, TEXT_BYTES_MAX, tokens};
use scope_fault::Fault;
use std::fmt;

/// What to do where a shell may have removed a name.
pub(crate) const SHELL_HINT: &str =
    "the shell may have removed a name after '$': write it in single quotes or as {srcIP}";
/// What to do about a template's name in a plain filter.
pub(crate) const TEMPLATE_HINT: &str = "names such as $srcIP belong in dump templates and holdoff keys, \
    where the packet that fired fills them";

/// libpcap's words where it has no filters for a link type: but for bytes and lengths, and at all.
const UNFILTERED: [&str; 3] =
    ["filtering not implemented", "unknown data link type", "does not know the link type"];

/// Why a filter text is refused. Offsets are bytes from the start of the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FilterError {
    /// No sentence of the language, or one whose words don't fit together.
    Syntax {
        /// The whole text.
        text: String,
        /// Where it goes wrong.
        at: usize,
        /// libpcap's own words.
        cause: String,
        /// What may help; empty where nothing is known.
        hint: String,
    },
    /// A name in the place of a host, net or gateway.
    Name {
        /// The whole text.
        text: String,
        /// Where the name stands.
        at: usize,
        /// The name.
        name: String,
    },
    /// Correct as text, but no link type at hand has what it tests.
    Link {
        /// The whole text.
        text: String,
        /// Link type's name and libpcap's own words.
        links: Vec<(String, String)>,
    },
    /// Longer than is compiled.
    TooLong {
        /// Length of the text.
        bytes: usize,
        /// The bound.
        bytes_max: usize,
    },
    /// Parentheses nested deeper than is compiled.
    TooDeep {
        /// The whole text.
        text: String,
        /// Where the bound is passed.
        at: usize,
        /// The bound.
        nesting_max: usize,
    },
    /// It selects flows, and asks for something that their records don't have.
    NoFlow {
        /// The whole text.
        text: String,
        /// Where that stands.
        at: usize,
        /// The word or the sign.
        what: String,
    },
}

impl fmt::Display for FilterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.fault().fmt(f)
    }
}

impl std::error::Error for FilterError {}

impl FilterError {
    /// The error for a text that isn't given to libpcap.
    pub(crate) fn refused(text: &str, refusal: Refusal<'_>) -> FilterError {
        match refusal {
            Refusal::TooLong => FilterError::TooLong { bytes: text.len(), bytes_max: TEXT_BYTES_MAX },
            Refusal::TooDeep { at } => {
                FilterError::TooDeep { text: text.into(), at, nesting_max: NESTING_MAX }
            }
            Refusal::Name { at, name } => FilterError::Name { text: text.into(), at, name: name.into() },
        }
    }

    /// What is wrong, the place with a mark below it, and what helps; of which setting says who has it.
    pub fn fault(&self) -> Fault {
        let hint_of = |fault: Fault, hint: String| if hint.is_empty() { fault } else { fault.hint(hint) };
        match self {
            FilterError::Syntax { text, at, cause, hint } => {
                let fault = Fault::whole(format!("filter: {cause} at byte {at}")).showing(excerpt(text, *at));
                hint_of(fault.with_value(text), hint.clone())
            }
            FilterError::Name { text, at, name } => {
                let fault = Fault::whole(format!(
                    "filter: '{name}' at byte {at} is not a word of the filter language"
                ));
                hint_of(fault.with_value(text).showing(excerpt(text, *at)), guess::no_name(text, *at, name))
            }
            FilterError::Link { text, links } => {
                let fault = Fault::whole(format!("filter '{}': {}", shortened(text), causes(links)));
                hint_of(fault.with_value(text), for_links(text, links))
            }
            FilterError::TooLong { bytes, bytes_max } => {
                let cause = format!("filter: {bytes} bytes are too long, the maximum is {bytes_max}");
                Fault::whole(cause).remedy("use nets instead of hosts, and portrange instead of ports")
            }
            FilterError::TooDeep { text, at, nesting_max } => {
                let fault = Fault::whole(format!(
                    "filter: parentheses at byte {at} are nested deeper than {nesting_max}"
                ));
                fault.with_value(text).showing(excerpt(text, *at))
            }
            FilterError::NoFlow { text, at, what } => {
                let fault = Fault::whole(format!(
                    "filter: '{what}' at byte {at} asks for something that records of flows don't have"
                ));
                let fault = fault.with_value(text).showing(excerpt(text, *at));
                fault.remedy("ask for hosts, nets, ports, protocols, and for one VLAN at most")
            }
        }
    }

    /// What is wrong, in one line: without the text, and without what helps.
    pub fn cause(&self) -> String {
        self.fault().why()
    }

    /// Where the fault is, bytes from the start of the text, if it has a place.
    pub fn at(&self) -> Option<usize> {
        match self {
            FilterError::Syntax { at, .. }
            | FilterError::Name { at, .. }
            | FilterError::TooDeep { at, .. }
            | FilterError::NoFlow { at, .. } => Some(*at),
            FilterError::Link { .. } | FilterError::TooLong { .. } => None,
        }
    }

    /// The same fault of a text that stands in `source` from byte `from` on: its place is that in `source`.
    pub fn within(mut self, source: &str, from: usize) -> FilterError {
        match &mut self {
            FilterError::Syntax { text, at, .. }
            | FilterError::Name { text, at, .. }
            | FilterError::TooDeep { text, at, .. }
            | FilterError::NoFlow { text, at, .. } => {
                *at += from;
                *text = source.into();
            }
            FilterError::Link { .. } | FilterError::TooLong { .. } => {}
        }
        self
    }

    /// Whether libpcap can't filter packets of the link types, whatever the text.
    pub fn is_for_links_without_filters(&self) -> bool {
        match self {
            FilterError::Link { links, .. } => {
                links.iter().all(|(_, cause)| UNFILTERED.iter().any(|words| cause.contains(words)))
            }
            _ => false,
        }
    }

    /// The same fault, with its place in the text from which the refused one was made: `to_source` maps
    /// offsets.
    pub(crate) fn moved(mut self, source: &str, to_source: impl Fn(usize) -> usize) -> FilterError {
        match &mut self {
            FilterError::Syntax { text, at, hint, .. } => {
                *at = to_source(*at);
                // Of what was written, not of what it was filled with.
                match guess::meant(source) {
                    Some(meant) => *hint = meant,
                    None if !source.contains(text.as_str()) && guess::meant(text).is_some() => hint.clear(),
                    None => {}
                }
                *text = source.into();
            }
            FilterError::Name { text, at, .. }
            | FilterError::TooDeep { text, at, .. }
            | FilterError::NoFlow { text, at, .. } => {
                *at = to_source(*at);
                *text = source.into();
            }
            FilterError::Link { text, .. } => *text = source.into(),
            FilterError::TooLong { .. } => {}
        }
        self
    }
}

/// What helps where a text is refused for the link types: another text, or what libpcap can evaluate on
/// packets that it otherwise can't filter.
fn for_links(text: &str, links: &[(String, String)]) -> String {
    let all = |words: &[&str]| links.iter().all(|(_, cause)| words.iter().any(|words| cause.contains(words)));
    match guess::meant(text) {
        Some(meant) => meant,
        None if all(&UNFILTERED[..1]) => {
            "libpcap reads only bytes and length of such packets: link[0] = 1, len > 100;\nthe empty filter \
             '' matches all of them"
                .into()
        }
        None if all(&UNFILTERED) => "libpcap knows nothing of such packets: only the empty filter '' works; \
            it matches all"
            .into(),
        None => String::new(),
    }
}

fn shortened(text: &str) -> String {
    match tokens(text).iter().take_while(|token| token.end() <= 2 * SHOWN_BYTES).last() {
        Some(last) if last.end() < text.trim_end().len() => format!("{} ...", plain(&text[..last.end()])),
        _ => plain(text),
    }
}

fn causes(links: &[(String, String)]) -> String {
    let causes: Vec<_> = links.iter().map(|(link, cause)| format!("on link type {link}: {cause}")).collect();
    causes.join("; ")
}
