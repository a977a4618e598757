//! Faults of a plan, gathered: each placed by the settings that it is about, and errors of other rooms made
//! to faults.

use crate::words;
use scope_config::Settings;
use scope_engine::{EngineError, SourceEntry};
use scope_fault::{Fault, Part, Sentence, Setting, Subject, Where, in_order, sentence};
use scope_ring::RingError;
use scope_spelling::values::BadValue;

/// The faults of a plan so far.
#[derive(Debug)]
pub struct Faults<'a> {
    /// What they are faults of: these know where each value stands.
    settings: &'a Settings,
    found: Vec<Fault>,
    /// The trigger that is looked at, from 0.
    trigger: Option<usize>,
    /// The element that is looked at: of which list, and which, from 0.
    element: Option<(&'static str, usize)>,
}

impl<'a> Faults<'a> {
    /// None so far.
    pub fn new(settings: &'a Settings) -> Faults<'a> {
        Faults { settings, found: Vec::new(), trigger: None, element: None }
    }

    /// Those that come now are of this trigger, from 0, if they are a trigger's.
    pub fn look_at_trigger(&mut self, index: Option<usize>) {
        self.trigger = index;
    }

    /// One more, of the element of a list at this place, from 0.
    pub fn add_of_element(&mut self, key: &'static str, index: usize, fault: Fault) {
        self.element = Some((key, index));
        self.add(fault);
        self.element = None;
    }

    /// One more.
    pub fn add(&mut self, fault: Fault) {
        let at = self.place(&fault).unwrap_or_default();
        self.found.push(fault.at(at).located(&|key| self.settings.place_of(key)));
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    /// All of them, in the order in which they are reported.
    pub fn into_vec(self) -> Vec<Fault> {
        in_order(self.found)
    }

    /// Where what a fault is about stands in the file, if it does.
    fn place(&self, fault: &Fault) -> Option<Where> {
        let values = |key: &str| self.settings.values(key);
        let of_element = |key: &str, index: Option<usize>, word: Option<&str>| {
            let value = values(key).get(index?)?;
            let table = fault.table.and_then(|at| self.settings.place_of_table(key, value, at));
            let within = word.and_then(|word| self.settings.place_within(key, value, word));
            table.or(within).or_else(|| self.settings.place(value))
        };
        let of_trigger = |word: Option<&str>| of_element("trigger", self.trigger, word);
        match &fault.subject {
            Subject::Trigger { word, .. } => of_trigger(word.as_deref()),
            Subject::Setting { key, word, .. } if key == "trigger" && self.trigger.is_some() => {
                of_trigger(word.as_deref())
            }
            Subject::Setting { key, word, .. } if self.element.is_some_and(|(list, _)| list == key) => {
                of_element(key, self.element.map(|(_, index)| index), word.as_deref())
            }
            Subject::Setting { key, .. } => {
                let is_meant = |text: &str| fault.value.as_deref() == Some(text);
                let named = values(key).iter().find(|value| value.text.to_str().is_some_and(is_meant));
                self.settings.place(named.or(values(key).first())?)
            }
            Subject::Sources { specs, .. } => {
                let is_first = |text: &str| specs.first().is_some_and(|spec| spec == text);
                let named = values("source").iter().find(|value| value.text.to_str().is_some_and(is_first));
                self.settings.place(named?)
            }
            Subject::Whole | Subject::Thing(_) => None,
        }
    }
}

/// `fault` of a value that can't be read.
pub fn bad(fault: Fault, bad: BadValue) -> Fault {
    fault.with_value(bad.value).cause(bad.cause)
}

/// Sources that don't fit together.
pub fn of_both(first: &SourceEntry, other: &SourceEntry) -> Fault {
    of_all([first, other])
}

/// The same of several.
pub fn of_all<'a>(entries: impl IntoIterator<Item = &'a SourceEntry>) -> Fault {
    let specs = entries.into_iter().map(|entry| entry.spec.clone()).collect();
    Fault::about(Subject::Sources { specs, option: None })
}

/// What a remedy begins with that proposes another setting: `add --out DIR`, in a file `write out = "DIR"`.
pub fn add() -> Part {
    Part::Either { flags: "add ".to_string(), file: "write ".to_string() }
}

/// What a remedy says of a setting that is better not said.
pub fn omit_it() -> Part {
    Part::Either { flags: "omit the flag".to_string(), file: "omit it".to_string() }
}

/// `write e.g.` and an example.
pub fn such_as(key: &'static str, example: &str) -> Sentence {
    sentence!["write e.g. ", Setting::of(key).example(example)]
}

/// What the ring refuses, with sizes as people write them.
pub fn of_ring(error: &RingError, entries: &[SourceEntry]) -> Fault {
    let size = |bytes: &u64| words::size(*bytes);
    let (ring, segment) = (Setting::of("ring"), Setting::of("segment"));
    match error {
        RingError::SegmentSize { bytes } => {
            let fault = Fault::of("segment").cause(format!("{} is not a segment size", size(bytes)));
            fault.remedy("write a power of two from 64KiB to 2MiB")
        }
        RingError::TooSmall { ring_bytes, needed, lanes, per_lane, segment_bytes } => {
            let cause = format!(
                "{} are too small: {lanes} lanes (one per worker and link type) need at least {} ({per_lane} \
                 segments of {} each)",
                size(ring_bytes),
                size(needed),
                size(segment_bytes)
            );
            Fault::of("ring").cause(cause).remedy(sentence![
                "enlarge ",
                ring,
                " or choose a smaller ",
                segment
            ])
        }
        RingError::NoMemory { ring_bytes, available, limit } => {
            let cause = format!(
                "{} is more than there is: {} of memory is available ({limit}), and some of it must stay \
                free",
                size(ring_bytes),
                size(available)
            );
            Fault::of("ring").cause(cause).remedy(sentence!["choose a smaller ", ring])
        }
        RingError::Refused { ring_bytes, cause } => {
            let cause_is_file_size = cause.raw_os_error() == Some(libc::EFBIG);
            let cause =
                format!("the system gave less memory than a ring of {} needs ({cause})", size(ring_bytes));
            let fault = Fault::of("ring").cause(cause);
            // The ring is a file in memory, so a limit on files bounds it.
            if cause_is_file_size {
                return fault.remedy("raise the limit on the size of files: ulimit -f unlimited");
            }
            fault.remedy(sentence![
                "choose a smaller ",
                ring,
                ", or look at ulimit -v and vm.overcommit_memory"
            ])
        }
        RingError::NoNode { node, nodes } => {
            let fault =
                Fault::of("numa").cause(format!("there is no node {node} with memory; there are: {nodes}"));
            fault.remedy(sentence!["write one of these, or ", omit_it()])
        }
        RingError::ShareTooSmall { index, percent, segments, needed } => {
            let spec = entries
                .iter()
                .find(|entry| entry.group.share() == Some(*index))
                .map_or("", |entry| &entry.spec);
            let cause = format!("{percent}% of the ring are {segments} segments, its lanes need {needed}");
            let remedy = sentence!["enlarge ", ring, " or the share, or choose a smaller ", segment];
            Fault::of_source(spec).cause(cause).remedy(remedy)
        }
        RingError::SharesTooLarge { percent, segments, needed } => {
            let cause = format!(
                "shares of {percent}% leave {segments} segments for all other lanes, which need {needed}"
            );
            Fault::of("ring").cause(cause).remedy(sentence![
                "enlarge ",
                ring,
                ", choose smaller shares or a smaller ",
                segment
            ])
        }
        // Its own words name the limit.
        RingError::Lock { .. } => Fault::of("mlock").cause(error.to_string()),
        RingError::Node { node, .. } => Fault::of("numa").with_value(node.to_string()).error(error),
        _ => Fault::of("ring").error(error),
    }
}

/// Why the engine can't begin, or goes no further.
pub fn of_engine(error: EngineError) -> Fault {
    match error {
        EngineError::Source(fault)
        | EngineError::Exec(fault)
        | EngineError::Script(fault)
        | EngineError::Control(fault)
        | EngineError::Stats(fault)
        | EngineError::Store(fault) => fault,
        EngineError::Ring(error) => of_ring(&error, &[]),
        EngineError::Rights(error) => error.fault(),
        EngineError::System { place, cause } => Fault::of_thing(place).error(&cause),
    }
}
