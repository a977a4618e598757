//! Why a text is no count and no sequence: cause, place and remedy.

use crate::response::DURATION_NS_MAX;
use scope_fault::Fault;
use scope_filter::{FilterError, TemplateError, excerpt};
use std::fmt;

/// Why a text is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PatternError {
    text: String,
    at: usize,
    wrong: Wrong,
}

/// What is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Wrong {
    /// Neither a count nor a sequence.
    Neither,
    /// A parenthesis of a count has no other one.
    NotClosed,
    /// Behind the parentheses there is no `>` and no `>=`, but this, or nothing.
    NotAbove(String),
    /// No number, or one that none is.
    Number(String),
    /// A number below 1.
    Zero,
    /// A number above the bound.
    TooMany(u64),
    /// No `in` behind the number, but this, or nothing.
    NoIn(String),
    /// No duration, or one that none is.
    Span(String),
    /// A duration without a unit.
    NoUnit(String),
    /// A duration of 0.
    ZeroSpan,
    /// A duration above the bound.
    LongSpan,
    /// `by` without a name.
    NoKey,
    /// A word behind `by` that is no name.
    NotAName(String),
    /// A name that isn't known.
    Name(TemplateError),
    /// `by` behind a count's parentheses.
    ByOutside,
    /// `by` in front of `within`.
    ByEarly,
    /// A step without a filter.
    EmptyStep,
    /// More steps than are followed.
    Steps(usize),
    /// A sequence without `within`.
    NoWithin,
    /// `within` in front of a `then`.
    WithinEarly,
    /// A count in a sequence.
    CountInSequence,
    /// A count beside a filter.
    Mixed,
    /// Something behind the end.
    Trailing(String),
    /// A filter in it is none.
    Filter(FilterError),
}

impl PatternError {
    pub(super) fn new(text: &str, at: usize, wrong: Wrong) -> PatternError {
        PatternError { text: text.into(), at, wrong }
    }

    /// Where the fault is, bytes from the start of the text.
    pub fn at(&self) -> usize {
        match &self.wrong {
            Wrong::Filter(error) => error.at().unwrap_or(self.at),
            _ => self.at,
        }
    }

    /// What is wrong, the place with a mark below it, and what helps; of which setting says who has it.
    pub fn fault(&self) -> Fault {
        let at = self.at();
        let fault = match &self.wrong {
            Wrong::Filter(error) => {
                let fault = error.fault();
                let has_help = fault.remedy.is_some() || !fault.hints.is_empty();
                if has_help {
                    fault
                } else {
                    fault.remedy("write a filter as tcpdump has it, such as udp port 53")
                }
            }
            wrong => {
                let (cause, remedy) = wrong.said();
                Fault::whole(format!("condition: {cause} at byte {at}")).remedy(remedy)
            }
        };
        fault.with_value(&self.text).showing(excerpt(&self.text, at))
    }
}

impl fmt::Display for PatternError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.fault().fmt(f)
    }
}

impl std::error::Error for PatternError {}

/// `'x'`, or that the text ends.
fn found(word: &str) -> String {
    if word.is_empty() { "the text ends".into() } else { format!("found '{word}'") }
}

impl Wrong {
    /// Cause and remedy.
    fn said(&self) -> (String, String) {
        let (cause, remedy) = match self {
            Wrong::Neither => (
                "it is no count and no sequence".into(),
                "write count(FILTER by $srcIP) > 20 in 10s, or FILTER then FILTER within 2s by $flow",
            ),
            Wrong::NotClosed => ("the parenthesis is not closed".into(), "add ')' behind filter and key"),
            Wrong::NotAbove(word) => (
                format!("a count is compared by > or >=, {}", found(word)),
                "write > 20 in 10s; for too few packets use a level: signal(NAME) < 5/s",
            ),
            Wrong::Number(cause) => (cause.clone(), "write a whole number, such as > 20 in 10s"),
            Wrong::Zero => (
                "0 packets are no number to count to".into(),
                "write >= 1 for the first packet after each pause, or the filter alone for every packet",
            ),
            Wrong::TooMany(most) => (
                format!("the number is above {most}"),
                "write a smaller number and a shorter time, or use a level: signal(NAME) > 1000000/s",
            ),
            Wrong::NoIn(word) => {
                (format!("behind the number 'in' is expected, {}", found(word)), "write in 10s")
            }
            Wrong::Span(cause) => (cause.clone(), "write a time with its unit, such as 10s or 250ms"),
            Wrong::NoUnit(value) => {
                return (
                    format!("'{value}' has no unit"),
                    format!("write {value}s for seconds, {value}ms for milliseconds"),
                );
            }
            Wrong::ZeroSpan => ("a time of 0 holds no packets".into(), "write a longer time, such as 10s"),
            Wrong::LongSpan => {
                let days = DURATION_NS_MAX / 86_400_000_000_000;
                (format!("the time is longer than {days} days"), "write a shorter time, such as 1h")
            }
            Wrong::NoKey => (
                "'by' without a name".into(),
                "name what packets are counted by: by $srcIP; a shell removes $srcIP unless it stands in single quotes, \
                 {srcIP} means the same",
            ),
            Wrong::NotAName(word) => {
                return (
                    format!("'{word}' is not a name"),
                    format!("write by $srcIP; there are {}", Wrong::names()),
                );
            }
            Wrong::Name(error) => {
                let remedy = match error {
                    TemplateError::UnknownName { nearest: Some(nearest), .. } => {
                        format!("did you mean '{nearest}'? ")
                    }
                    _ => String::new(),
                };
                let cause = match error {
                    TemplateError::UnknownName { name, .. } => format!("unknown name '{name}'"),
                    TemplateError::TooManyNames { names_max } => format!("more than {names_max} names"),
                    _ => "no name".into(),
                };
                return (cause, format!("{remedy}there are {}", Wrong::names()));
            }
            Wrong::ByOutside => (
                "'by' stands behind the parentheses".into(),
                "write it inside: count(FILTER by $srcIP) > 20 in 10s",
            ),
            Wrong::ByEarly => {
                ("'by' stands in front of 'within'".into(), "write it at the end: within 2s by $flow")
            }
            Wrong::EmptyStep => {
                ("a step has no filter".into(), "write a filter in front of each 'then' and behind it")
            }
            Wrong::Steps(most) => (format!("more than {most} steps"), "write fewer steps"),
            Wrong::NoWithin => ("a sequence needs 'within' and a time".into(), "add within 2s"),
            Wrong::WithinEarly => (
                "'within' stands in front of a 'then'".into(),
                "write it once, at the end: it is the time from the first step to the last",
            ),
            Wrong::CountInSequence => ("a count is no step of a sequence".into(), "write a trigger for each"),
            Wrong::Mixed => (
                "a count doesn't mix with a filter or another count".into(),
                "write the filter inside: count(udp and port 53 by $srcIP) > 20 in 10s; or write a trigger for each",
            ),
            Wrong::Trailing(word) => (format!("'{word}' stands behind the end"), "remove it"),
            Wrong::Filter(error) => (error.cause(), ""),
        };
        (cause, remedy.into())
    }

    fn names() -> &'static str {
        "$srcIP $dstIP $srcPort $dstPort $proto $srcMAC $dstMAC $vlan $flow"
    }
}
