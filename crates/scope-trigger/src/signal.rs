//! Signals: named series that are measured from the traffic, as an oscilloscope's channels, and what workers
//! add up for them.
//!
//! ```text
//! syn=tcp[tcpflags] == tcp-syn     packets/s of what the filter matches
//! web:bps=tcp port 443             bits/s
//! part:share=syn/synack            one signal as a part of another one
//! lost:drops=kernel                packets that the run lost for this reason
//! ```
//! A *tally* is what a worker adds up: the packets of one filter. Signals with the same filter have the same.

use crate::measure::Measure;
use scope_fault::{Fault, Subject};
use scope_filter::{Filter, VlanRule, excerpt};
use scope_packet::{DropReason, LinkType};

/// Signals at most, beside those built in.
pub const SIGNALS_MAX: usize = 64;
/// Letters of a name at most.
pub const NAME_LEN_MAX: usize = 64;
/// Those that every run has.
pub const BUILT_IN: [(&str, Measure); 3] =
    [("pps", Measure::Packets), ("bps", Measure::Bits), ("drops", Measure::Drops)];
/// The setting that holds signals.
const SETTING: &str = "signal";

/// A signal, as written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Its name, if it has one.
    pub name: Option<String>,
    /// The word of its measure, if it has one.
    pub measure: Option<String>,
    /// What it is measured of.
    pub expr: String,
}

impl Written {
    /// Takes `NAME[:MEASURE]=EXPR` apart.
    pub fn take_apart(text: &str) -> Written {
        let Some((head, expr)) = text.split_once('=') else {
            return Written { expr: text.to_string(), ..Written::default() };
        };
        let (name, measure) = match head.split_once(':') {
            Some((name, measure)) => (name, Some(measure.to_string())),
            None => (head, None),
        };
        Written { name: Some(name.to_string()), measure, expr: expr.to_string() }
    }
}

/// What a signal's value is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The packets of this tally; for a share, as a part of those of the other one.
    Tally(usize, Option<usize>),
    /// Distinct values of this tally's packets.
    Sketch(usize),
    /// What the run lost, for one reason or for any.
    Drops(Option<DropReason>),
}

/// One signal.
#[derive(Clone, Debug)]
pub struct Signal {
    /// Its name.
    pub name: String,
    /// What it measures.
    pub measure: Measure,
    /// What it is measured of, as written; empty: all packets.
    pub expr: String,
    /// Where its values come from.
    pub source: Source,
}

/// What a worker adds up of one filter's packets.
#[derive(Clone, Debug)]
pub struct Tally {
    /// The filter; `None`: every packet.
    pub filter: Option<Filter>,
    /// Somebody wants the bytes, too.
    pub bytes: bool,
    /// Distinct sources are wanted.
    pub hosts: bool,
    /// Distinct flows are wanted.
    pub flows: bool,
}

impl Tally {
    /// The filter's text; empty: every packet.
    pub fn text(&self) -> &str {
        self.filter.as_ref().map_or("", Filter::text)
    }
}

/// The signals of a run: those built in first, then in the order given.
#[derive(Clone, Debug)]
pub struct SignalSet {
    /// All of them.
    pub signals: Vec<Signal>,
    /// What workers add up; the first is of all packets.
    pub tallies: Vec<Tally>,
}

impl Default for SignalSet {
    /// Those built in.
    fn default() -> SignalSet {
        let all = Tally { filter: None, bytes: true, hosts: false, flows: false };
        let built_in = |(name, measure): (&str, Measure)| Signal {
            name: name.to_string(),
            measure,
            expr: String::new(),
            source: if measure == Measure::Drops { Source::Drops(None) } else { Source::Tally(0, None) },
        };
        SignalSet { signals: BUILT_IN.map(built_in).to_vec(), tallies: vec![all] }
    }
}

/// Whether a text may be a signal's name.
pub fn is_name(text: &str) -> bool {
    let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    !text.is_empty() && text.len() <= NAME_LEN_MAX && text.chars().all(legal)
}

impl SignalSet {
    /// Reads signals. Those that are built in come first.
    ///
    /// # Errors
    /// All faults, each with the index of its signal.
    pub fn read(
        written: &[Written],
        vlan: VlanRule,
        link_types: &[LinkType],
    ) -> Result<SignalSet, Vec<(usize, Fault)>> {
        let mut reader = Reader { set: SignalSet::default(), vlan, link_types, faults: Vec::new() };
        if written.len() > SIGNALS_MAX {
            let fault = Fault::of(SETTING).cause(format!("{} signals are too many", written.len()));
            return Err(vec![(SIGNALS_MAX, fault.remedy(format!("at most {SIGNALS_MAX}")))]);
        }
        let mut shares = Vec::new();
        for (index, written) in written.iter().enumerate() {
            match reader.signal(written) {
                Ok(Some(signal)) => reader.set.signals.push(signal),
                Ok(None) => shares.push(index),
                Err(fault) => reader.faults.push((index, fault)),
            }
        }
        // A share may name signals that stand behind it.
        for &index in &shares {
            match reader.share(index, written) {
                Ok(signal) => reader.set.signals.push(signal),
                Err(fault) => reader.faults.push((index, fault)),
            }
        }
        let Reader { mut set, faults, .. } = reader;
        let place = |signal: &Signal| {
            let given = written.iter().position(|written| written.name.as_ref() == Some(&signal.name));
            given.map_or(0, |place| place + 1)
        };
        set.signals[BUILT_IN.len()..].sort_by_key(place);
        if faults.is_empty() { Ok(set) } else { Err(faults) }
    }

    /// The place of a signal.
    pub fn place(&self, name: &str) -> Option<usize> {
        self.signals.iter().position(|signal| signal.name == name)
    }

    /// The filter of the packets that a signal is measured of: what dumps of its levels keep. Empty: everything.
    pub fn filter_text(&self, place: usize) -> &str {
        match self.signals[place].source {
            Source::Tally(tally, _) | Source::Sketch(tally) => self.tallies[tally].text(),
            Source::Drops(_) => "",
        }
    }
}

struct Reader<'a> {
    set: SignalSet,
    vlan: VlanRule,
    link_types: &'a [LinkType],
    faults: Vec<(usize, Fault)>,
}

fn subject(name: &str, word: Option<&str>) -> Subject {
    let (element, word) = (Some(name.to_string()), word.map(str::to_string));
    Subject::Setting { key: SETTING.to_string(), element, word }
}

impl Reader<'_> {
    /// A signal; `None`: a share of another one, which may come later.
    fn signal(&mut self, written: &Written) -> Result<Option<Signal>, Fault> {
        let Written { name, measure, expr } = written;
        let Some(name) = name.as_deref().filter(|name| !name.is_empty()) else {
            let fault = Fault::of(SETTING).value(expr, "has no name");
            return Err(fault.remedy("write NAME=EXPR, as in syn=tcp[tcpflags] == tcp-syn"));
        };
        let of_name = |is: &str| Fault::about(subject(name, Some("name"))).value(name, is);
        if !is_name(name) {
            let remedy = format!("write letters, digits, - and _, at most {NAME_LEN_MAX}");
            return Err(of_name("is not a valid name").remedy(remedy));
        }
        if BUILT_IN.iter().any(|(built_in, _)| *built_in == name) {
            return Err(of_name("is a signal that every run has").remedy("choose another name"));
        }
        if self.set.place(name).is_some() {
            return Err(of_name("is given twice").remedy("choose another for one of them"));
        }
        let word = measure.as_deref().unwrap_or(Measure::Packets.name());
        let Some(measure) = Measure::named(word) else {
            let known = Measure::ALL.map(Measure::name).join(", ");
            let fault = Fault::about(subject(name, Some("measure"))).value(word, "is not a measure");
            return Err(fault.remedy(format!("there are: {known}")));
        };
        let (name, expr) = (name.to_string(), expr.trim().to_string());
        if measure == Measure::Drops {
            let reason = DropReason::ALL.into_iter().find(|reason| reason.name() == expr);
            if reason.is_none() && !expr.is_empty() {
                let known = DropReason::ALL.map(DropReason::name).join(", ");
                let fault = Fault::about(subject(&name, Some("expr"))).value(&expr, "is no reason of a loss");
                return Err(fault.remedy(format!("there are: {known}; nothing means all of them")));
            }
            return Ok(Some(Signal { name, measure, expr, source: Source::Drops(reason) }));
        }
        if measure == Measure::Share && ratio(&expr).is_some() {
            return Ok(None);
        }
        let tally = self.tally(&name, &expr)?;
        let wanted = &mut self.set.tallies[tally];
        wanted.bytes |= matches!(measure, Measure::Bits | Measure::Size);
        wanted.hosts |= measure == Measure::Hosts;
        wanted.flows |= measure == Measure::Flows;
        let source = match measure {
            Measure::Hosts | Measure::Flows => Source::Sketch(tally),
            Measure::Share => Source::Tally(tally, Some(0)),
            _ => Source::Tally(tally, None),
        };
        Ok(Some(Signal { name, measure, expr, source }))
    }

    /// The tally of a filter: the one that there is, or one more.
    fn tally(&mut self, name: &str, expr: &str) -> Result<usize, Fault> {
        if expr.is_empty() {
            return Ok(0);
        }
        let filter = Filter::compile(expr, self.vlan, self.link_types)
            .map_err(|error| error.fault().of_subject(subject(name, Some("expr"))))?;
        if let Some(known) = self.set.tallies.iter().position(|tally| tally.text() == filter.text()) {
            return Ok(known);
        }
        self.set.tallies.push(Tally { filter: Some(filter), bytes: false, hosts: false, flows: false });
        Ok(self.set.tallies.len() - 1)
    }

    /// A share of another signal.
    fn share(&mut self, index: usize, all: &[Written]) -> Result<Signal, Fault> {
        let written = &all[index];
        let name = written.name.clone().unwrap_or_default();
        let expr = written.expr.trim().to_string();
        let (part, whole) = ratio(&expr).unwrap_or_default();
        let fault = |at: usize, cause: String| {
            let fault = Fault::about(subject(&name, Some("expr"))).with_value(&expr).cause(cause);
            fault.showing(excerpt(&expr, at))
        };
        if all.iter().filter(|other| other.name == written.name).count() > 1 {
            let of = Fault::about(subject(&name, Some("name"))).value(&name, "is given twice");
            return Err(of.remedy("choose another for one of them"));
        }
        let tally_of = |wanted: &str, at: usize| {
            let known = self.set.signals.iter().find(|signal| signal.name == wanted);
            match known {
                Some(Signal { source: Source::Tally(tally, None), measure: Measure::Packets, .. }) => {
                    Ok(*tally)
                }
                Some(_) => Err(fault(at, format!("'{wanted}' doesn't measure packets"))
                    .remedy("name two signals of the measure pps")),
                None => {
                    let is_share = |other: &&Written| other.name.as_deref() == Some(wanted);
                    let cause = match all.iter().find(is_share) {
                        Some(other) if names_in_a_ring(&name, other, all) => {
                            format!(
                                "'{wanted}' is measured of '{name}' itself: they name each other in a ring"
                            )
                        }
                        Some(_) => format!("'{wanted}' doesn't measure packets, or has a fault of its own"),
                        None => format!("there is no signal '{wanted}'"),
                    };
                    Err(fault(at, cause).remedy("name two signals of the measure pps, as in syn/synack"))
                }
            }
        };
        let tallies = (tally_of(part, 0)?, tally_of(whole, part.len() + 1)?);
        let source = Source::Tally(tallies.0, Some(tallies.1));
        Ok(Signal { name, measure: Measure::Share, expr, source })
    }
}

/// The two names of `syn/synack`.
fn ratio(expr: &str) -> Option<(&str, &str)> {
    expr.split_once('/').filter(|(part, whole)| is_name(part) && is_name(whole))
}

/// Whether `from`, or a share that it is measured of, is measured of `name`.
fn names_in_a_ring(name: &str, from: &Written, all: &[Written]) -> bool {
    let mut reached: Vec<&Written> = vec![from];
    let mut at = 0;
    while let Some(next) = reached.get(at).copied() {
        at += 1;
        if next.name.as_deref() == Some(name) {
            return true;
        }
        let Some((part, whole)) =
            ratio(next.expr.trim()).filter(|_| next.measure.as_deref() == Some(Measure::Share.name()))
        else {
            continue;
        };
        for named in [part, whole] {
            let more = all.iter().find(|other| other.name.as_deref() == Some(named));
            if let Some(more) = more.filter(|more| !reached.iter().any(|known| std::ptr::eq(*known, *more))) {
                reached.push(more);
            }
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(texts: &[&str]) -> Result<SignalSet, String> {
        let written: Vec<Written> = texts.iter().map(|text| Written::take_apart(text)).collect();
        SignalSet::read(&written, VlanRule::Transparent, &[LinkType::ETHERNET])
            .map_err(|faults| faults.iter().map(|(at, fault)| format!("{at} {fault}\n")).collect())
    }

    #[test]
    fn each_has_a_measure_and_what_is_added_up_for_it_is_added_up_once() {
        let set = read(&[
            "syn=tcp[tcpflags] == tcp-syn",
            "part:share=syn/all",
            "web:bps=tcp port 443",
            "mean:size=tcp port 443",
            "all=",
            "who:hosts=tcp port 443",
            "lost:drops=kernel",
            "udp:share=udp",
            "many:burst=",
        ])
        .unwrap();
        let names: Vec<&str> = set.signals.iter().map(|signal| &*signal.name).collect();
        let expected =
            ["pps", "bps", "drops", "syn", "part", "web", "mean", "all", "who", "lost", "udp", "many"];
        assert_eq!(names, expected, "the order of the command line");
        let texts: Vec<&str> = set.tallies.iter().map(Tally::text).collect();
        assert_eq!(texts, ["", "tcp[tcpflags] == tcp-syn", "tcp port 443", "udp"]);
        assert!(set.tallies[2].bytes && set.tallies[2].hosts && !set.tallies[1].bytes);
        assert_eq!(set.signals[4].source, Source::Tally(1, Some(0)));
        assert_eq!(set.signals[9].source, Source::Drops(Some(DropReason::Kernel)));
        assert_eq!(set.signals[10].source, Source::Tally(3, Some(0)));
        assert_eq!((set.filter_text(3), set.filter_text(0)), ("tcp[tcpflags] == tcp-syn", ""));
    }

    #[test]
    fn what_can_t_be_meant_is_refused_with_a_remedy() {
        let check = |texts: &[&str], words: &[&str]| {
            let said = read(texts).expect_err(words[0]);
            words.iter().for_each(|word| assert!(said.contains(word), "{texts:?}: no '{word}' in {said}"));
        };
        check(&["udp"], &["0 ", "'udp' has no name", "NAME=EXPR"]);
        check(&["=udp"], &["has no name"]);
        check(&["a b=udp"], &["'a b' is not a valid name", "letters, digits"]);
        check(&["pps=udp"], &["'pps' is a signal that every run has"]);
        check(&["a=udp", "a=tcp"], &["1 ", "'a' is given twice"]);
        check(&["a:speed=udp"], &["'speed' is not a measure", "pps, bps, size"]);
        check(&["a=udp prot"], &["filter", "^"]);
        check(&["a:drops=rain"], &["'rain' is no reason of a loss", "kernel, ring_pinned"]);
        check(&["a:share=b/c"], &["there is no signal 'b'", "^"]);
        check(&["a:share=b/pps", "b:share=a/pps"], &["in a ring"]);
        check(&["a:share=a/pps"], &["in a ring"]);
        check(&["a:share=bps/pps"], &["'bps' doesn't measure packets"]);
        let many: Vec<String> = (0..10_000).map(|n| format!("s{n}=udp")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        check(&many, &["10000 signals are too many", "at most 64"]);
    }
}
