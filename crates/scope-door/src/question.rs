//! A question for packets, as the address of a request has it: `filter=udp&from=-1m&format=pcap`.
//!
//! The parameters are the flags of `wirescope query`, with the same meanings; times without a zone are UTC. Each stands there
//! once at most, and another one is refused: who misspells `filter` doesn't get everything.

use http::StatusCode;
use jiff::tz::TimeZone;
use scope_answer::around::{AFTER_NS, BEFORE_NS};
use scope_answer::words::around_ns;
use scope_answer::{Around, Form, FormWords, SpanWords};
use scope_api::Problem;
use scope_api::parameters::once;
use scope_api::routes::Action;
use scope_dump::RunQuestion;
use scope_events::now_ns;
use scope_fault::{Fault, Subject};
use scope_filter::{Filter, VlanRule};
use scope_packet::LinkType;
use scope_spelling::moment::Here;
use scope_store::export::Format;
use scope_store::timeline::Span;

/// The link type that stands for all of them.
const ALL_TYPES: &str = "all";

/// A question, understood.
pub(crate) struct Question {
    pub span: Span,
    pub filter: Filter,
    /// The filter that whoever asks is bound to: every packet that is given, counted, or stands for others around it has to
    /// match this one as well.
    pub bound: Option<Filter>,
    pub around: Option<Around>,
    pub shape: Shape,
    /// Packets of a capture or objects, or lines of a top list, at most.
    pub limit: Option<u64>,
    /// A capture has packets of all link types, not only of the one that comes first.
    pub all_types: bool,
}

/// The form of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// A capture.
    Capture(Format),
    /// An object for each packet, a line each.
    Objects,
    /// One object.
    One(Form),
}

impl Question {
    /// Reads parameters. `link_types` are those that there are; who asks may be `bound` to a filter.
    ///
    /// # Errors
    /// They can't be meant: place by place.
    pub(crate) fn read(
        query: &[(String, String)],
        link_types: &[LinkType],
        vlan: VlanRule,
        bound: Option<Filter>,
    ) -> Result<Question, Problem> {
        let given = once(Action::Packets, query)?;
        let text = |key: &str| given.get(key).copied();
        let mut faults = Vec::new();
        let span = SpanWords { from: text("from"), to: text("to"), at: text("at"), within: text("within") };
        if let Some(end) = ["from", "to"].into_iter().find(|end| text("at").and(text(end)).is_some()) {
            faults.push(
                Fault::of("at").cause(format!("both it and {end} are given")).remedy("omit one of them"),
            );
        }
        if let (Some(within), None) = (text("within"), text("at")) {
            let fault = Fault::of("within").with_value(within).cause("it says how far around what time");
            faults.push(fault.remedy("add at, or omit it"));
        }
        let here = Here { now_ns: now_ns(), zone: TimeZone::UTC };
        let (span, _) = span.read(&here, &mut faults);
        let of = (link_types, vlan);
        let filter = compile("filter", text("filter").unwrap_or_default(), of, &mut faults);
        let (before_ns, after_ns) = around_ns(
            (text("before"), BEFORE_NS),
            (text("after"), AFTER_NS),
            text("around").is_some(),
            &mut faults,
        );
        let around = text("around").and_then(|text| {
            let filter = compile("around", text, of, &mut faults)?;
            Some(Around { filter, before_ns, after_ns })
        });
        let shape = shape(&text, &mut faults);
        let limit = text("limit").and_then(|text| {
            let fault = || Fault::of("limit").with_value(text).remedy("write e.g. 100");
            match text.parse::<u64>() {
                Ok(limit @ 1..) => return Some(limit),
                Ok(_) => faults.push(fault().cause("nothing would be given")),
                Err(_) => faults.push(fault().cause(format!("'{text}' is no number"))),
            }
            None
        });
        if let (Shape::One(Form::Count | Form::Timeline(_)), Some(_)) = (shape, text("limit")) {
            faults.push(Fault::of("limit").cause("a count or a timeline has no lines").remedy("omit it"));
        }
        let all_types = match text("link_type") {
            None => false,
            Some(ALL_TYPES) if shape == Shape::Capture(Format::Pcapng) => true,
            Some(ALL_TYPES) => {
                let fault = Fault::of("link_type").with_value(ALL_TYPES).cause("only pcapng holds several");
                faults.push(fault.remedy("omit it, or give format=pcapng"));
                false
            }
            Some(other) => {
                let fault = Fault::of("link_type").value(other, "is none that can be asked for");
                faults.push(fault.remedy("write all, or omit it: then it is that of the first packet"));
                false
            }
        };
        match filter.filter(|_| faults.is_empty()) {
            Some(filter) => Ok(Question { span, filter, bound, around, shape, limit, all_types }),
            None => Err(Problem::of_faults(StatusCode::BAD_REQUEST, &faults)),
        }
    }

    /// For the packets of this filter in this span.
    pub(crate) fn of(&self, filter: &Filter, span: Span) -> RunQuestion {
        RunQuestion { span, filter: filter.clone(), bound: self.bound.clone() }
    }
}

fn shape<'a>(text: &impl Fn(&str) -> Option<&'a str>, faults: &mut Vec<Fault>) -> Shape {
    let mut is_set = |key: &'static str| match text(key) {
        None | Some("false") => false,
        Some("true") => true,
        Some(other) => {
            let fault = Fault::of(key).value(other, "is neither true nor false");
            faults.push(fault.remedy(format!("write {key}=true, or omit it")));
            false
        }
    };
    let (count, timeline) = (is_set("count"), is_set("timeline"));
    let words = FormWords { count, top: text("top"), timeline, step: text("step") };
    let forms = [("count", count), ("top", words.top.is_some()), ("timeline", timeline)];
    let forms: Vec<&str> = forms.into_iter().filter(|(_, is)| *is).map(|(key, _)| key).collect();
    if let [first, second, ..] = forms[..] {
        let fault =
            Fault::of_thing(second).cause(format!("an answer is one thing, and {first} is asked for, too"));
        faults.push(fault.remedy("ask twice"));
    }
    let form = words.read(faults);
    let format = match text("format") {
        None | Some("pcapng") => Shape::Capture(Format::Pcapng),
        Some("pcap") => Shape::Capture(Format::Pcap),
        Some("json") => Shape::Objects,
        Some(other) => {
            let fault = Fault::of("format").value(other, "is no form of an answer");
            faults.push(fault.remedy("write pcapng, pcap or json"));
            Shape::Objects
        }
    };
    match form {
        None => format,
        Some(form) => {
            if text("format").is_some_and(|format| format != "json") {
                let fault = Fault::of("format").cause("a count, a top list or a timeline is JSON");
                faults.push(fault.remedy("omit it"));
            }
            Shape::One(form)
        }
    }
}

/// The text of a filter in one line: ends of lines and tabs are blanks.
///
/// # Errors
/// It has another character that can't be seen.
pub(crate) fn in_one_line(text: &str) -> Result<String, Fault> {
    let text = text.replace(['\n', '\r', '\t'], " ");
    match text.chars().find(|letter| letter.is_control()) {
        None => Ok(text),
        Some(letter) => {
            let cause = format!("it has the control character {}", letter.escape_unicode());
            Err(Fault::whole(cause).remedy("leave it out"))
        }
    }
}

fn compile(
    key: &'static str,
    text: &str,
    (link_types, vlan): (&[LinkType], VlanRule),
    faults: &mut Vec<Fault>,
) -> Option<Filter> {
    // A filter's text stands in single lines: of answers, and of the headers of files.
    let text = match in_one_line(text) {
        Ok(text) => text,
        Err(fault) => {
            faults.push(fault.of_subject(Subject::setting(key)));
            return None;
        }
    };
    match Filter::compile(&text, vlan, link_types) {
        Ok(filter) => Some(filter),
        Err(error) => {
            let fault = error.fault().of_subject(Subject::setting(key));
            faults.push(match fault.remedy {
                Some(_) => fault,
                None => fault.remedy("write it in the language of tcpdump, e.g. udp port 53"),
            });
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(words: &str) -> Result<Question, Problem> {
        let query: Vec<(String, String)> = form_urlencoded::parse(words.as_bytes()).into_owned().collect();
        Question::read(&query, &[LinkType::ETHERNET], VlanRule::default(), None)
    }

    #[test]
    fn parameters_are_the_flags_of_query() {
        let question = read("filter=udp+port+53&from=@10&to=@20&format=pcap&limit=7").unwrap();
        assert_eq!(question.filter.text(), "udp port 53");
        assert_eq!(question.span, Span { from_ns: 10_000_000_000, to_ns: 20_000_000_000 });
        assert_eq!((question.shape, question.limit), (Shape::Capture(Format::Pcap), Some(7)));
        let question = read("at=@10&within=1s&around=icmp&before=2s&timeline=true&step=1s").unwrap();
        assert_eq!(question.span, Span { from_ns: 9_000_000_000, to_ns: 11_000_000_000 });
        let around = question.around.unwrap();
        assert_eq!((around.before_ns, around.after_ns), (2_000_000_000, AFTER_NS));
        assert_eq!(question.shape, Shape::One(Form::Timeline(Some(1_000_000_000))));
        assert_eq!(read("").unwrap().shape, Shape::Capture(Format::Pcapng));
        assert!(read("link_type=all").unwrap().all_types);
    }

    #[test]
    fn what_cannot_be_meant_is_refused_with_its_place() {
        for (words, place) in [
            ("filter=prot+80", "filter"),
            ("filter=%00", "filter"),
            ("around=udp%01", "around"),
            ("filter=udp&filter=tcp", "filter"),
            ("filtre=udp", "filtre"),
            ("from=soon", "from"),
            ("from=@20&to=@10", "to"),
            ("at=@20", "at"),
            ("at=@20&within=1s&from=@10", "at"),
            ("within=1s", "within"),
            ("around=prot", "around"),
            ("before=1s", "before"),
            ("around=udp&after=x", "after"),
            ("format=text", "format"),
            ("format=pcap&count=true", "format"),
            ("count=yes", "count"),
            ("top=x", "top"),
            ("count=true&top=host", "top"),
            ("step=1s", "step"),
            ("timeline=true&step=0s", "step"),
            ("limit=0", "limit"),
            ("limit=-1", "limit"),
            ("count=true&limit=1", "limit"),
            ("link_type=x", "link_type"),
            ("format=pcap&link_type=all", "link_type"),
        ] {
            let problem = read(words).map(drop).unwrap_err();
            assert_eq!(
                (problem.status, &*problem.faults[0].place),
                (StatusCode::BAD_REQUEST, place),
                "{words}"
            );
            assert!(
                !problem.faults[0].cause.is_empty() && !problem.faults[0].remedy.is_empty(),
                "{problem:?}"
            );
        }
    }
}
