//! From the command line as written to the run as meant: everything is checked, all faults are told at once, nothing is created.

mod capture;
mod outputs;
mod places;
mod rights;
pub mod sources;
pub mod triggers;

pub use outputs::NO_USE;

use crate::args::RunArgs;
use crate::config::places::placed;
use crate::config::reload::Reloader;
use crate::words;
use scope_config::Settings;
use scope_engine::{RunPlan, SingleDump};
use scope_filter::{FilterEngine, VlanRule};
use scope_machine::Machine;
use scope_packet::LinkType;
use scope_ring::{MemoryOptions, RingConfig, RingError};
use scope_source::spec::SHARES_MAX;
use scope_spelling::values::{parse_duration_ns, parse_size};
use scope_trigger::DUMPS_MAX;
use sources::Sources;
use std::fmt::Display;
use std::time::Duration;
use triggers::Times;

/// Longest window, before or after, and longest holdoff: one year.
const DURATION_NS_MAX: i64 = 366 * 86_400 * 1_000_000_000;
/// Status lines come this far apart at least.
const STATUS_NS_MIN: i64 = 1_000_000_000;
/// Dumps at once where nothing else is said: of live traffic, and of sources that can wait, where nothing is lost to speed.
const DUMPS_LIVE: u64 = 8;
const DUMPS_WAITING: u64 = 1024;
/// Holdoff where nothing else is said, ns: of live traffic; sources that can wait have none.
const HOLDOFF_LIVE_NS: i64 = 1_000_000_000;

/// How much of the machine is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look<'a> {
    /// Everything that the run will need: interfaces, files, folders, memory.
    Machine,
    /// Nothing: a file is checked that may be for another machine.
    Nowhere,
    /// Nothing, and sources bring these link types: they are open already.
    Known(&'a [LinkType]),
}

/// Faults of a command line, one text each: `PLACE: CAUSE; REMEDY`.
#[derive(Debug, Default)]
pub struct Faults {
    /// The texts, each with the trigger that it is a fault of, if it is one's.
    told: Vec<(Option<usize>, String)>,
    /// The trigger that is looked at, from 0.
    trigger: Option<usize>,
}

impl Faults {
    fn add(&mut self, place: &str, fault: impl Display) {
        self.add_line(format!("{place}: {fault}"));
    }

    /// A fault whose text names its place.
    fn add_line(&mut self, fault: impl Display) {
        self.told.push((self.trigger, fault.to_string()));
    }

    /// A fault of a source, which its text may not name.
    fn add_source(&mut self, spec: &str, fault: impl Display) {
        let fault = fault.to_string();
        match fault.starts_with("source '") {
            true => self.add_line(fault),
            false => self.add(&format!("source '{spec}'"), fault),
        }
    }

    fn is_empty(&self) -> bool {
        self.told.is_empty()
    }

    /// All of them; those of values that came from a file with their lines.
    fn into_lines(self, settings: &Settings) -> Vec<String> {
        self.told.into_iter().map(|(trigger, fault)| placed(settings, trigger, fault)).collect()
    }
}

/// A run as meant, and how it is told.
#[derive(Debug)]
pub struct Planned {
    /// For the engine.
    pub run: RunPlan,
    /// Bytes and number of the ring's segments.
    pub segments: (usize, usize),
    /// Reads the configuration file again, where there is one.
    pub reload: Option<Reloader>,
    /// The summary is one JSON object.
    pub json: bool,
    /// The dump goes to standard output, so that the summary can't.
    pub stdout_taken: bool,
    /// A line for each worker and dump.
    pub verbose: bool,
    /// No summary in words.
    pub quiet: bool,
}

/// Checks everything.
///
/// # Errors
/// All faults, each with place, cause and remedy.
pub fn plan(args: &RunArgs, look: Look<'_>) -> Result<Planned, Vec<String>> {
    let mut faults = Faults::default();
    let vlan = match args.vlan.as_str() {
        "exact" => VlanRule::Exact,
        other => {
            if other != "transparent" {
                faults.add("--vlan", format!("'{other}' is no rule; write transparent or exact"));
            }
            VlanRule::Transparent
        }
    };
    let mut sources = sources::plan(args, vlan, look, &mut faults);
    let times = Times {
        before_ns: duration("--before", &args.before, &mut faults),
        after_ns: duration("--after", &args.after, &mut faults),
        holdoff_ns: match &args.holdoff {
            Some(text) => duration("--holdoff", text, &mut faults),
            None if sources.can_wait() => 0,
            None => HOLDOFF_LIVE_NS,
        },
    };
    let filter_engine = match args.filter_engine.as_str() {
        "interpreter" => FilterEngine::Interpreter,
        other => {
            if other != "native" {
                faults.add("--filter-engine", format!("'{other}' is no engine; write native or interpreter"));
            }
            FilterEngine::Native
        }
    };
    let triggers = triggers::plan(args, &times, vlan, &sources.link_types, &mut faults);
    let (ring, segments) = ring(args, &sources, &mut faults);
    let memory = memory(args, &ring, &sources, segments.1 > 0, look, &mut faults);
    let free_bytes = (look == Look::Machine).then(|| Machine::this().available(None).0.saturating_sub(ring.ring_bytes));
    capture::rings(&mut sources.entries, free_bytes, &mut faults);
    let dumps_max = match &args.dumps_max {
        Some(text) => count("--dumps-max", text, DUMPS_MAX, &mut faults),
        None if sources.can_wait() => DUMPS_WAITING,
        None => DUMPS_LIVE,
    };
    let exit_after = outputs::exit_after(args, &mut faults);
    let (folder, dump) = outputs::plan(args, look, &mut faults);
    let ring_out = places::ring_out(args.ring_out.as_deref(), look, &mut faults);
    if let Some(form) = args.summary.as_ref().filter(|form| *form != "json") {
        faults.add("--summary", format!("'{form}' is no form of a summary; write json, or leave the flag away for plain words"));
    }
    if !["text", "json"].contains(&args.log_format.as_str()) {
        faults.add("--log-format", format!("'{}' is no form of a log; write text or json", args.log_format));
    }
    if args.quiet && args.verbose > 0 {
        faults.add("--quiet", "it says less, and --verbose says more; leave one of both out");
    }
    outputs::something_is_written(args, &sources, &mut faults);
    let rights = rights::plan(args, look, &mut faults);
    let status_every_ns = duration("--status-every", &args.status_every, &mut faults);
    if (0..STATUS_NS_MIN).contains(&status_every_ns) && faults.is_empty() {
        faults.add("--status-every", format!("'{}' is too often; write at least 1s", args.status_every));
    }
    if !faults.is_empty() {
        return Err(faults.into_lines(&args.settings));
    }
    let stdout_taken = dump.single == Some(SingleDump::Stdout);
    let run = RunPlan {
        sources: sources.entries,
        ring,
        memory,
        shares: sources.shares,
        link_types: sources.link_types,
        triggers,
        before_ns: times.before_ns,
        vlan,
        filter_engine,
        dumps_max: dumps_max as usize,
        exit_after,
        status_every: Duration::from_nanos(status_every_ns.max(0) as u64),
        folder,
        dump,
        ring_out,
        config: args.settings.to_toml(),
        rights: Some(rights),
    };
    let reload = Reloader::of(&args.settings, &run.link_types);
    Ok(Planned {
        run,
        segments,
        reload,
        json: args.summary.is_some(),
        stdout_taken,
        verbose: args.verbose > 0,
        quiet: args.quiet,
    })
}

fn duration(place: &str, text: &str, faults: &mut Faults) -> i64 {
    let flag = format!("--{}", place.rsplit(": ").next().unwrap_or(place).trim_start_matches("--"));
    match parse_duration_ns(text) {
        Ok(ns) if ns <= DURATION_NS_MAX => return ns,
        Ok(_) => faults.add(place, format!("'{text}' is more than a year; write less")),
        Err(cause) => faults.add(place, format!("{}; write e.g. {flag} 30s or {flag} 250ms", naming(text, cause))),
    }
    0
}

/// A cause that names the text it speaks of.
fn naming(text: &str, cause: String) -> String {
    if cause.contains(text) { cause } else { format!("'{text}': {cause}") }
}

fn count(flag: &str, text: &str, max: u64, faults: &mut Faults) -> u64 {
    match text.parse::<u64>() {
        Ok(number) if (1..=max).contains(&number) => return number,
        Ok(number) if number > max => faults.add(flag, format!("'{text}' is too many; at most {max}")),
        Ok(_) => faults.add(flag, "0 is too few; write 1 or more"),
        Err(_) => faults.add(flag, format!("'{text}' is no whole number; write e.g. {flag} 4")),
    }
    1
}

/// Sizes of the ring, checked against its lanes, its shares and the machine's memory.
fn ring(args: &RunArgs, sources: &Sources, faults: &mut Faults) -> (RingConfig, (usize, usize)) {
    let mut size = |flag: &str, text: &str| match parse_size(text) {
        Ok(bytes) => Some(bytes),
        Err(cause) => {
            let example = if flag == "--ring" { "1GiB" } else { "2MiB" };
            faults.add(flag, format!("{}; write e.g. {flag} {example}", naming(text, cause)));
            None
        }
    };
    let ring_bytes = size("--ring", &args.ring);
    let segment_bytes = args.segment.as_ref().map(|text| size("--segment", text));
    // What couldn't be read is not held against the other one.
    let config = RingConfig {
        ring_bytes: ring_bytes.unwrap_or(1 << 30),
        segment_bytes: segment_bytes.flatten(),
        workers: RunPlan::workers(&sources.entries).max(1),
        lanes: sources.lanes,
        run_id: run_id().unwrap_or_else(|error| {
            faults.add_line(format!("random numbers for the run's name: {error}; the machine can't give any"));
            [0; 16]
        }),
    };
    let config = config.sized_for(&sources.shares);
    for error in config.plan_shares(&sources.shares).err().unwrap_or_default() {
        let said = match error {
            RingError::SegmentSize { .. } => false,
            RingError::SharesTooLarge { percent, .. } => percent > SHARES_MAX.into(), // with the sources
            _ => ring_bytes.is_none(),
        };
        if !said {
            faults.add_line(ring_fault(&error, sources));
        }
    }
    (config, config.plan().unwrap_or_default())
}

/// What is asked of the ring's memory, checked against the machine's nodes, and their memory if the ring's sizes are right.
fn memory(
    args: &RunArgs,
    ring: &RingConfig,
    sources: &Sources,
    sized: bool,
    look: Look<'_>,
    faults: &mut Faults,
) -> MemoryOptions {
    let node = args.numa.as_ref().and_then(|text| match text.parse::<u32>() {
        Ok(node) => Some(node),
        Err(_) => {
            faults.add("--numa", format!("'{text}' is no number of a node; write e.g. --numa 0"));
            None
        }
    });
    let options = MemoryOptions { locked: args.mlock, node, without_hugetlb: false };
    if look == Look::Machine
        && node.is_some()
        && let Err(error) = options.check(if sized { ring.ring_bytes } else { 0 }, &Machine::this())
    {
        faults.add_line(ring_fault(&error, sources));
    }
    options
}

/// The ring's own words, with sizes as people write them.
fn ring_fault(error: &RingError, sources: &Sources) -> String {
    let size = |bytes: &u64| words::size(*bytes);
    match error {
        RingError::SegmentSize { bytes } => {
            format!("--segment: {} is no size of a segment; write a power of two from 64KiB to 2MiB", size(bytes))
        }
        RingError::TooSmall { ring_bytes, needed, lanes, per_lane, segment_bytes } => format!(
            "--ring: {} are too small: {lanes} lanes (one per worker and link type) need at least {} ({per_lane} segments of {} each); enlarge --ring or choose a smaller --segment",
            size(ring_bytes),
            size(needed),
            size(segment_bytes)
        ),
        RingError::NoMemory { ring_bytes, available, limit } => format!(
            "--ring: {} are more than there is: {} of memory are available ({limit}), and some of it has to stay free; choose a smaller --ring",
            size(ring_bytes),
            size(available)
        ),
        RingError::NoNode { node, nodes } => {
            format!("--numa: there is no node {node} with memory; there are: {nodes}; write one of these, or leave the flag away")
        }
        RingError::ShareTooSmall { index, percent, segments, needed } => {
            let spec = sources.entries.iter().find(|entry| entry.group.share() == Some(*index)).map_or("", |entry| &entry.spec);
            format!(
                "source '{spec}': {percent}% of the ring are {segments} segments, its lanes need {needed}; enlarge --ring or the share, or choose a smaller --segment"
            )
        }
        RingError::SharesTooLarge { percent, segments, needed } => format!(
            "--ring: shares of {percent}% leave {segments} segments for all other lanes, which need {needed}; enlarge --ring, choose smaller shares or a smaller --segment"
        ),
        _ => error.to_string(),
    }
}

fn run_id() -> std::io::Result<[u8; 16]> {
    let mut bytes = [0u8; 16];
    // SAFETY: the buffer is ours, and its length is given; so few bytes are never returned in part.
    let got = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    if got == bytes.len() as isize { Ok(bytes) } else { Err(std::io::Error::last_os_error()) }
}
