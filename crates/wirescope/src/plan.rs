//! From the command line as written to the run as meant: everything is checked, all faults are reported at once,
//! nothing is created.

mod allowed;
pub mod attach;
mod capture;
mod control;
pub mod door;
mod elements;
pub mod faults;
mod forwards;
mod groups;
mod outputs;
pub mod places;
pub mod rights;
mod rules;
pub mod scripts;
pub mod sets;
mod signals;
pub mod sources;
mod stats;
mod store;
pub mod triggers;

use crate::args::RunArgs;
use faults::{Faults, of_ring, such_as};
use scope_api::Role;
use scope_config::{Origin, Settings};
use scope_door::Hooks;
use scope_engine::{Fixed, Live, RunPlan, SingleDump};
use scope_fault::{Fault, Part, Setting, sentence};
use scope_filter::{FilterEngine, VlanRule};
use scope_machine::Machine;
use scope_packet::LinkType;
use scope_ring::{MemoryOptions, RingConfig, RingError};
use scope_source::spec::SHARES_MAX;
use scope_spelling::values::{PPM, SizeOrShare, parse_duration_ns, parse_size, parse_size_or_share};
use scope_trigger::{COUNT_BYTES_DEFAULT, DUMPS_MAX, DURATION_NS_MAX};
use sources::Sources;
use std::collections::BTreeMap;
use std::time::Duration;
use triggers::{Meant, Times};

/// Memory of a count, bytes.
const COUNT_BYTES_MIN: u64 = 1 << 20;
/// See [`COUNT_BYTES_MIN`].
const COUNT_BYTES_MAX: u64 = 64 << 30;

/// The least that a lane takes, and of what.
const SEGMENT_BYTES_MIN: u64 = 64 << 10;
const LANE_BYTES_MIN: u64 = 16 * SEGMENT_BYTES_MIN;

/// Status lines come this far apart at least.
const STATUS_NS_MIN: i64 = 1_000_000_000;
/// Dumps at once where nothing else is said: of live traffic, and of sources that can wait, where nothing is
/// lost to speed.
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
    /// What is here, and might as well be missing.
    Here,
    /// Nothing, and sources bring these link types: they are open already.
    Known(&'a [LinkType]),
}

/// A run as meant, and how it is reported.
#[derive(Debug)]
pub struct Planned {
    /// For the engine.
    pub run: RunPlan,
    /// Bytes and number of the ring's segments.
    pub segments: (usize, usize),
    /// The settings that it was made of.
    pub settings: Settings,
    /// Which version of each set it has, by name: another number where the set's file says something else.
    pub set_versions: BTreeMap<String, u64>,
    /// What the members of the control socket's group may do.
    pub control_role: Role,
    /// Requests that one client of it may send in a second.
    pub control_rate: u32,
    /// What hooks are made of.
    pub hooks: Hooks,
    /// What doors to the network may do, and the one that the run begins.
    pub door: door::DoorPlan,
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
pub fn plan(args: &RunArgs, look: Look<'_>) -> Result<Planned, Vec<Fault>> {
    plan_with(args, look, look, look)
}

/// The same of a file that is checked, which may be for another machine: of this one only the folders of its store
/// are looked at, and only where they are here.
///
/// # Errors
/// As [`plan`].
pub fn check(args: &RunArgs) -> Result<Planned, Vec<Fault>> {
    plan_with(args, Look::Nowhere, Look::Nowhere, Look::Here)
}

/// The same of capture files that only go into a store: nobody looks into them, and there needn't be a folder for
/// the log.
///
/// # Errors
/// As [`plan`].
pub fn import(args: &RunArgs) -> Result<Planned, Vec<Fault>> {
    plan_with(args, Look::Machine, Look::Known(&[]), Look::Machine)
}

/// Looks so much at the machine, so much at sources, and so much at the store.
fn plan_with(
    args: &RunArgs,
    look: Look<'_>,
    at_sources: Look<'_>,
    at_store: Look<'_>,
) -> Result<Planned, Vec<Fault>> {
    let mut faults = Faults::new(&args.settings);
    let vlan = match args.vlan.as_str() {
        "exact" => VlanRule::Exact,
        other => {
            if other != "transparent" {
                faults.add(
                    Fault::of("vlan").value(other, "is not a VLAN rule").remedy("write transparent or exact"),
                );
            }
            VlanRule::Transparent
        }
    };
    let sets = sets::plan(args, look, &mut faults);
    let mut sources = sources::plan(args, &sets, vlan, at_sources, &mut faults);
    let times = Times {
        before_ns: duration(Fault::of("before"), "before", &args.before, &mut faults),
        after_ns: duration(Fault::of("after"), "after", &args.after, &mut faults),
        holdoff_ns: match &args.holdoff {
            Some(text) => duration(Fault::of("holdoff"), "holdoff", text, &mut faults),
            None if sources.can_wait() => 0,
            None => HOLDOFF_LIVE_NS,
        },
    };
    let filter_engine = match args.filter_engine.as_str() {
        "interpreter" => FilterEngine::Interpreter,
        other => {
            if other != "native" {
                faults.add(
                    Fault::of("filter-engine")
                        .value(other, "is not an engine")
                        .remedy("write native or interpreter"),
                );
            }
            FilterEngine::Native
        }
    };
    let count_bytes = count_bytes(&args.count_memory, &mut faults);
    let signals = signals::plan(args, vlan, &sources.link_types, &mut faults);
    let meant = Meant { vlan, link_types: &sources.link_types, signals: &signals };
    let triggers = triggers::plan(args, &times, &meant, look, &mut faults);
    let scripts = scripts::plan(args, &triggers, &mut faults);
    let (ring, segments) = ring(args, &sources, &mut faults);
    let memory = memory(args, &ring, &sources, segments.1 > 0, look, &mut faults);
    let free_bytes =
        (look == Look::Machine).then(|| Machine::this().available(None).0.saturating_sub(ring.ring_bytes));
    capture::rings(&mut sources.entries, free_bytes, args.is_stats, &mut faults);
    let dumps_max = match &args.dumps_max {
        Some(text) => count("dumps-max", text, DUMPS_MAX, &mut faults),
        None if sources.can_wait() => DUMPS_WAITING,
        None => DUMPS_LIVE,
    };
    let exit_after = outputs::exit_after(args, &mut faults);
    let (folder, dump) = outputs::plan(args, look, look == at_sources, &mut faults);
    let ring_out = places::ring_out(args.ring_out.as_deref(), look, &mut faults);
    let door = door::plan(args, look, &mut faults);
    let (control, control_role) = control::plan(args, folder.as_deref(), &door, look, &mut faults);
    let control_rate = count("control-rate", &args.control_rate, control::RATE_MAX, &mut faults) as u32;
    let hooks = control::hooks(args, &mut faults);
    let (attach, changing) = attach::plan(args, &sets, vlan, &sources, look, &mut faults);
    if let Some(form) = args.summary.as_ref().filter(|form| *form != "json") {
        let remedy = Part::Either {
            flags: "write json, or omit the flag for plain text".to_string(),
            file: "write json, or omit it for plain text".to_string(),
        };
        faults.add(Fault::of("summary").value(form, "is not a summary format").remedy(remedy));
    }
    if !["text", "json"].contains(&args.log_format.as_str()) {
        faults.add(
            Fault::of("log-format")
                .value(&args.log_format, "is not a log format")
                .remedy("write text or json"),
        );
    }
    if args.quiet && args.verbose > 0 {
        let cause = sentence!["it says less, and ", Setting::of("verbose"), " says more"];
        faults.add(Fault::of("quiet").cause(cause).remedy("omit one of them"));
    }
    let (store, store_bounds) = store::plan(args, &ring, (&sources.link_types, vlan), at_store, &mut faults);
    if look == Look::Machine {
        let machine = Machine::this();
        let composing = store.as_ref().filter(|_| segments.1 > 0);
        let composed = composing.map_or(0, |store| {
            store::memory(store, &ring, segments.0 as u64, &memory, &machine, &mut faults)
        });
        groups::memory(&changing.groups, (&ring, composed), &memory, &machine, &mut faults);
    }
    let asks_flows = triggers.iter().any(|trigger| trigger.when.is_some());
    let stats = stats::plan(args, asks_flows, look, &mut faults);
    outputs::something_is_written(args, &sources, &mut faults);
    let rights = rights::plan(args, look, &mut faults);
    let status_every_ns =
        duration(Fault::of("status-every"), "status-every", &args.status_every, &mut faults);
    if (0..STATUS_NS_MIN).contains(&status_every_ns) && faults.is_empty() {
        faults.add(
            Fault::of("status-every").value(&args.status_every, "is too often").remedy("write at least 1s"),
        );
    }
    if !faults.is_empty() {
        return Err(faults.into_vec());
    }
    let stdout_taken = dump.single == Some(SingleDump::Stdout);
    let source_rules = sources.entries.iter().map(|entry| entry.rules.clone()).collect();
    let fixed = Fixed {
        sources: sources.entries,
        ring,
        memory,
        shares: sources.shares,
        link_types: sources.link_types,
        vlan,
        signals: signals.into(),
        count_bytes,
        scripts,
        filter_engine,
        status_every: Duration::from_nanos(status_every_ns.max(0) as u64),
        folder,
        dump,
        store,
        stats,
        ring_out,
        control: control.filter(|_| look == at_sources),
        attach,
        config: args.settings.to_toml(),
        rights: Some(rights),
    };
    let live = Live {
        triggers,
        before_ns: times.before_ns,
        dumps_max: dumps_max as usize,
        exit_after,
        store_bounds,
        attach_ring: changing.ring,
        groups: changing.groups,
        source_rules,
    };
    Ok(Planned {
        run: RunPlan { fixed, live },
        segments,
        control_role,
        control_rate,
        hooks,
        door,
        settings: args.settings.clone(),
        set_versions: sets.into_iter().map(|(name, known)| (name, known.version)).collect(),
        json: args.summary.is_some(),
        stdout_taken,
        verbose: args.verbose > 0,
        quiet: args.quiet,
    })
}

/// A time that `fault` would be a fault of; `key` is how its remedy names it.
fn duration(fault: Fault, key: &'static str, text: &str, faults: &mut Faults<'_>) -> i64 {
    let setting = || Setting::of(key);
    faults.add(match parse_duration_ns(text) {
        Ok(ns) if ns <= DURATION_NS_MAX => return ns,
        Ok(_) => fault.value(text, "is more than a year").remedy("write less"),
        Err(cause) => {
            let remedy =
                sentence!["write e.g. ", setting().example("30s"), " or ", setting().example("250ms")];
            faults::bad(fault, cause).remedy(remedy)
        }
    });
    0
}

fn count(key: &'static str, text: &str, max: u64, faults: &mut Faults<'_>) -> u64 {
    let fault = Fault::of(key);
    faults.add(match text.parse::<u64>() {
        Ok(number) if (1..=max).contains(&number) => return number,
        Ok(number) if number > max => fault.value(text, "is too many").remedy(format!("at most {max}")),
        Ok(_) => fault.with_value(text).cause("0 is too few").remedy("write 1 or more"),
        Err(_) => fault.value(text, "is not a whole number").remedy(such_as(key, "4")),
    });
    1
}

/// What stays free on a file system, in bytes or as a share of it.
fn min_free(key: &'static str, text: &str, faults: &mut Faults<'_>) -> Option<SizeOrShare> {
    faults.add(match parse_size_or_share(text) {
        Ok(SizeOrShare::Ppm(PPM..)) => {
            Fault::of(key).value(text, "is the whole file system").remedy("write less than 100%")
        }
        Ok(free) => return Some(free),
        Err(cause) => {
            let remedy = sentence!["write e.g. ", Setting::of(key).example("10%"), " or 50GiB"];
            faults::bad(Fault::of(key), cause).remedy(remedy)
        }
    });
    None
}

/// Memory of a count.
fn count_bytes(text: &str, faults: &mut Faults<'_>) -> usize {
    let fault = Fault::of("count-memory");
    faults.add(match parse_size(text) {
        Ok(bytes @ COUNT_BYTES_MIN..=COUNT_BYTES_MAX) => return bytes as usize,
        Ok(_) => fault.value(text, "is too little, or too much").remedy("write 1MiB to 64GiB"),
        Err(cause) => faults::bad(fault, cause).remedy(such_as("count-memory", "64MiB")),
    });
    COUNT_BYTES_DEFAULT
}

/// Sizes of the ring, checked against its lanes, its shares and the machine's memory.
fn ring(args: &RunArgs, sources: &Sources, faults: &mut Faults<'_>) -> (RingConfig, (usize, usize)) {
    let mut size = |key: &'static str, text: &str, example: &str| match parse_size(text) {
        Ok(bytes) => Some(bytes),
        Err(cause) => {
            faults.add(faults::bad(Fault::of(key), cause).remedy(such_as(key, example)));
            None
        }
    };
    let ring_bytes = size("ring", &args.ring, "1GiB");
    let segment_bytes = args.segment.as_ref().map(|text| size("segment", text, "2MiB"));
    // Statistics alone keep nothing: the least that lanes take.
    let is_open = |key: &str| args.settings.values(key).iter().all(|value| value.origin == Origin::Default);
    let (ring_bytes, segment_bytes) = match args.is_stats && is_open("ring") && is_open("segment") {
        true => (Some(sources.lanes.max(1) as u64 * LANE_BYTES_MIN), Some(Some(SEGMENT_BYTES_MIN))),
        false => (ring_bytes, segment_bytes),
    };
    // What couldn't be read is not held against the other one.
    let config = RingConfig {
        ring_bytes: ring_bytes.unwrap_or(1 << 30),
        segment_bytes: segment_bytes.flatten(),
        workers: Fixed::workers(&sources.entries).max(1),
        lanes: sources.lanes,
        run_id: run_id().unwrap_or_else(|error| {
            let fault = Fault::of_thing("random numbers for the run's name").error(&error);
            faults.add(fault.remedy("the machine can't give any"));
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
            faults.add(of_ring(&error, &sources.entries));
        }
    }
    (config, config.plan().unwrap_or_default())
}

/// What is asked of the ring's memory, checked against the machine's nodes, and their memory if the ring's
/// sizes are right.
fn memory(
    args: &RunArgs,
    ring: &RingConfig,
    sources: &Sources,
    sized: bool,
    look: Look<'_>,
    faults: &mut Faults<'_>,
) -> MemoryOptions {
    let node = args.numa.as_ref().and_then(|text| match text.parse::<u32>() {
        Ok(node) => Some(node),
        Err(_) => {
            faults.add(Fault::of("numa").value(text, "is not a node number").remedy(such_as("numa", "0")));
            None
        }
    });
    let options = MemoryOptions { locked: args.mlock, node, without_hugetlb: false };
    if look == Look::Machine
        && node.is_some()
        && let Err(error) = options.check(if sized { ring.ring_bytes } else { 0 }, &Machine::this())
    {
        faults.add(of_ring(&error, &sources.entries));
    }
    options
}

fn run_id() -> std::io::Result<[u8; 16]> {
    let mut bytes = [0u8; 16];
    // SAFETY: the buffer is ours, and its length is given; so few bytes are never returned in part.
    let got = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    if got == bytes.len() as isize { Ok(bytes) } else { Err(std::io::Error::last_os_error()) }
}
