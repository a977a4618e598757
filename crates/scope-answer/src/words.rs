//! What of a question is typed, at a terminal or in an address, understood: its span, and the form of its answer.

use crate::steps;
use crate::top::By;
use scope_fault::{Fault, Sentence, Setting, sentence};
use scope_spelling::moment::Here;
use scope_spelling::values::parse_duration_ns;
use scope_store::timeline::Span;

/// A span as it is typed: its two ends, or a time and how far around it.
#[derive(Clone, Copy, Debug, Default)]
pub struct SpanWords<'a> {
    /// `--from`.
    pub from: Option<&'a str>,
    /// `--to`.
    pub to: Option<&'a str>,
    /// `--at`.
    pub at: Option<&'a str>,
    /// `--within`.
    pub within: Option<&'a str>,
}

impl SpanWords<'_> {
    /// The span, and whether a time named no zone; what isn't given has no end there.
    pub fn read(&self, here: &Here, faults: &mut Vec<Fault>) -> (Span, bool) {
        let mut is_local = false;
        let mut time = |key: &'static str, text: Option<&str>, faults: &mut Vec<Fault>| match here.read(text?)
        {
            Ok(moment) => {
                is_local |= moment.is_local;
                Some(moment.time_ns)
            }
            Err(bad) => {
                faults.push(Fault::of(key).with_value(bad.value).cause(bad.cause).remedy(bad.remedy));
                None
            }
        };
        let mut span = Span {
            from_ns: time("from", self.from, faults).unwrap_or(0),
            to_ns: time("to", self.to, faults).unwrap_or(i64::MAX),
        };
        if let Some(at_ns) = time("at", self.at, faults)
            && let Some(within_ns) = self.within_ns(faults)
        {
            span = Span { from_ns: at_ns.saturating_sub(within_ns), to_ns: at_ns.saturating_add(within_ns) };
        }
        if span.to_ns < span.from_ns {
            let fault = Fault::of("to").cause("the span ends before it begins");
            faults.push(fault.remedy(sentence!["exchange it with ", Setting::of("from")]));
        }
        (span, is_local)
    }

    /// How far around a time.
    fn within_ns(&self, faults: &mut Vec<Fault>) -> Option<i64> {
        let Some(text) = self.within else {
            let fault = Fault::of("at").with_value(self.at.unwrap_or_default());
            let within = Setting::of("within").example("30s");
            faults
                .push(fault.cause("a time alone is no span").remedy(sentence!["give ", within, " with it"]));
            return None;
        };
        duration("within", text, "30s", faults)
    }
}

/// The form of an answer that isn't packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// What all packets come to.
    Count,
    /// The keys with the most of them.
    Top(By),
    /// By steps of so many ns; `None`: about [`steps::ROWS`] of them.
    Timeline(Option<i64>),
}

/// The same as it is typed.
#[derive(Clone, Copy, Debug, Default)]
pub struct FormWords<'a> {
    /// `--count`.
    pub count: bool,
    /// `--top`.
    pub top: Option<&'a str>,
    /// `--timeline`.
    pub timeline: bool,
    /// `--step`.
    pub step: Option<&'a str>,
}

impl FormWords<'_> {
    /// The form; `None`: packets.
    pub fn read(&self, faults: &mut Vec<Fault>) -> Option<Form> {
        let top = self.top.map(|word| {
            By::of(word).unwrap_or_else(|| {
                let fault = Fault::of("top").value(word, "is nothing that is compared");
                faults.push(fault.remedy(format!("write one of: {}", By::WORDS.join(", "))));
                By::Host
            })
        });
        if let Some(text) = self.step.filter(|_| !self.timeline) {
            let fault = Fault::of("step").with_value(text).cause("only a timeline has steps");
            faults.push(fault.remedy(sentence!["add ", Setting::of("timeline"), ", or omit it"]));
        }
        let step_ns = self.step.and_then(|text| {
            let ns = duration("step", text, "1s", faults)?;
            if ns == 0 {
                faults.push(Fault::of("step").value(text, "is no length").remedy(such_as("step", "1s")));
            }
            Some(ns)
        });
        match (self.count, top, self.timeline) {
            (true, _, _) => Some(Form::Count),
            (_, Some(by), _) => Some(Form::Top(by)),
            (_, _, true) => Some(Form::Timeline(step_ns)),
            _ => None,
        }
    }
}

/// How long before and behind packets others are wanted, each as it is typed and as it is usual, ns.
pub fn around_ns(
    (before, before_ns): (Option<&str>, i64),
    (after, after_ns): (Option<&str>, i64),
    is_around: bool,
    faults: &mut Vec<Fault>,
) -> (i64, i64) {
    let mut read = |key: &'static str, text: Option<&str>, usual_ns: i64| {
        let Some(text) = text else { return usual_ns };
        if !is_around {
            let fault = Fault::of(key)
                .with_value(text)
                .cause("it says how far around what, and nothing says around what");
            let (around, at) = (Setting::of("around").example("EXPR"), Setting::of("at").example("TIME"));
            faults.push(fault.remedy(sentence![
                "add ",
                around,
                ", or give a span: ",
                at,
                " ",
                Setting::of("within").example("30s")
            ]));
        }
        duration(key, text, "10s", faults).unwrap_or(0)
    };
    (read("before", before, before_ns), read("after", after, after_ns))
}

/// A length of time of setting `key`.
fn duration(key: &'static str, text: &str, example: &str, faults: &mut Vec<Fault>) -> Option<i64> {
    match parse_duration_ns(text) {
        Ok(ns) => Some(ns),
        Err(bad) => {
            let fault = Fault::of(key).with_value(bad.value).cause(bad.cause);
            faults.push(fault.remedy(such_as(key, example)));
            None
        }
    }
}

fn such_as(key: &'static str, example: &str) -> Sentence {
    sentence!["write e.g. ", Setting::of(key).example(example)]
}

/// How long the steps of a timeline are, where it shows this.
///
/// # Errors
/// Of the length that was asked for there are too many.
pub fn step_ns(asked_ns: Option<i64>, extent: Option<(i64, i64)>) -> Result<i64, Fault> {
    let step_ns = asked_ns.unwrap_or_else(|| steps::chosen(extent.unwrap_or((0, 0)), steps::ROWS));
    steps::refuse_many(extent, step_ns).map(|()| step_ns)
}
