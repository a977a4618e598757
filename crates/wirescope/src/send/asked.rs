//! What `wirescope send` is asked for: all that can be wrong with it is found before a packet is sent.

use crate::args::SendArgs;
use crate::plan::faults::{Faults, bad, such_as};
use scope_config::Settings;
use scope_fault::{Fault, Setting, sentence};
use scope_source::file::{FileOptions, FileSource, check_begin};
use scope_source::sending::{Outlet, Pace, Padding, QUEUES_MAX, SendSocket, not_opened};
use scope_source::spec::{self, FilePlan, SourcePlan};
use scope_source::synth::SynthOptions;
use scope_spelling::values::parse_count;
use std::io;

/// Packets/s at most: one a nanosecond.
const RATE_MAX: u64 = 1_000_000_000;
/// How long generated traffic lasts that has no end of its own, ns: a hundred years.
const ENDLESS_NS: i64 = 100 * 365 * 86_400 * 1_000_000_000;
/// Options of a source that mean nothing here, and what is there instead.
const MEANINGLESS: [(&str, &str); 5] = [
    ("workers", "omit it; --queues N sends by several threads"),
    ("share", "omit it"),
    ("prefilter", "omit it; wirescope query writes a file with the packets that match"),
    ("cpus", "omit it"),
    ("numa", "omit it"),
];

/// Where packets come from.
pub enum Origin {
    /// A file that is open; `None`: it was read.
    File(Option<Box<FileSource>>),
    /// The generator.
    Synth(SynthOptions),
}

/// What is asked for, understood; all that it needs is open.
pub struct Asked {
    /// The source as typed.
    pub spec: String,
    pub origin: Origin,
    pub outlet: Outlet,
    /// One for each queue.
    pub sockets: Vec<SendSocket>,
    pub queues: u32,
    pub loops: u64,
    pub pace: Pace,
    pub padding: Padding,
    /// The source ends by Ctrl-C alone.
    pub is_endless: bool,
    pub json: bool,
}

/// Understands the command line, and opens what it names.
///
/// # Errors
/// All that is wrong with it.
pub fn understand(args: &SendArgs) -> Result<Asked, Vec<Fault>> {
    let settings = Settings::default();
    let mut faults = Faults::new(&settings);
    let queues = count("queues", &args.queues, u64::from(QUEUES_MAX), &mut faults);
    let loops = count("loops", &args.loops, u64::MAX, &mut faults);
    let rate = args.rate.as_deref().map(|text| count("rate", text, RATE_MAX, &mut faults));
    let padding = match args.pad.as_str() {
        "zero" => Padding::Zero,
        "none" => Padding::None,
        other => {
            faults.add(Fault::of("pad").value(other, "is no padding").remedy("write zero or none"));
            Padding::Zero
        }
    };
    if let Some(form) = args.summary.as_deref().filter(|form| *form != "json") {
        faults.add(Fault::of("summary").value(form, "is no form of a summary").remedy("write json"));
    }
    let source = source(&args.source, loops.is_some_and(|loops| loops > 1), rate.is_some(), &mut faults);
    let outlet = outlet(&args.to, &mut faults);
    let sockets = sockets(&args.to, outlet.as_ref(), queues.unwrap_or(1) as u32, &mut faults);
    match (source, outlet, queues, loops) {
        (Some((origin, own_pace, is_endless)), Some(outlet), Some(queues), Some(loops))
            if faults.is_empty() =>
        {
            let pace = rate.flatten().map_or(own_pace, Pace::Rate);
            let (spec, json) = (args.source.clone(), args.summary.is_some());
            let queues = queues as u32;
            Ok(Asked { spec, origin, outlet, sockets, queues, loops, pace, padding, is_endless, json })
        }
        _ => Err(faults.into_vec()),
    }
}

/// A number from 1 on.
fn count(key: &'static str, text: &str, most: u64, faults: &mut Faults<'_>) -> Option<u64> {
    let example = if key == "rate" { "10k" } else { "2" };
    match parse_count(text) {
        Ok(value) if (1..=most).contains(&value) => return Some(value),
        Ok(0) => faults.add(Fault::of(key).value(text, "is less than 1").remedy(such_as(key, example))),
        Ok(_) => {
            let fault = Fault::of(key).value(text, format!("is more than {most}"));
            faults.add(fault.remedy(such_as(key, example)));
        }
        Err(cause) => faults.add(bad(Fault::of(key), cause).remedy(such_as(key, example))),
    }
    None
}

/// The source, its own pace, and whether it has no end.
fn source(
    text: &str,
    is_read_again: bool,
    has_rate: bool,
    faults: &mut Faults<'_>,
) -> Option<(Origin, Pace, bool)> {
    let parsed = match spec::parse(text) {
        Ok(parsed) => parsed,
        Err(found) => {
            found.into_iter().for_each(|fault| faults.add(fault));
            return None;
        }
    };
    if parsed.plan.interface().is_some() {
        let fault =
            Fault::of_source(text).cause("what is captured from an interface can't be sent as it comes");
        faults.add(
            fault.remedy("write file:PATH or synth:, or record it first: wirescope run --ring-out FILE"),
        );
        return None;
    }
    for (option, instead) in MEANINGLESS.iter().filter(|(option, _)| spec::says(text, option)) {
        let fault = Fault::of_option(text, option).cause("it means nothing to send");
        faults.add(fault.remedy(*instead));
    }
    for option in ["pace", "rate"].into_iter().filter(|option| has_rate && spec::says(text, option)) {
        let rate = Setting::of("rate");
        let fault =
            Fault::of_option(text, option).cause(sentence!["the source has a pace of its own beside ", rate]);
        faults.add(fault.remedy(sentence!["omit one of them"]));
    }
    match parsed.plan {
        SourcePlan::File(plan) => {
            let pace = plan.pace.map_or(Pace::Max, Pace::Recorded);
            let file = file(text, plan, is_read_again, faults)?;
            Some((Origin::File(Some(Box::new(file))), pace, false))
        }
        SourcePlan::Synth(options) => {
            let pace = if options.pace_max { Pace::Max } else { Pace::Recorded(1.0) };
            let is_endless = options.packets_total().is_none();
            let time_ns = options.time_ns.or(is_endless.then_some(ENDLESS_NS));
            // Packets are made ahead of their time, and sent when they are due.
            Some((Origin::Synth(SynthOptions { pace_max: true, time_ns, ..options }), pace, is_endless))
        }
        SourcePlan::AfPacket(_) | SourcePlan::Pcap(_) => None,
    }
}

/// Opens a file; nothing of it is parsed.
fn file(text: &str, plan: FilePlan, is_read_again: bool, faults: &mut Faults<'_>) -> Option<FileSource> {
    let opened = if plan.path == "-" { "/dev/stdin" } else { &plan.path };
    let reads_once = std::fs::metadata(opened).is_ok_and(|kind| !kind.is_file() && !kind.is_dir());
    if is_read_again && reads_once {
        let fault = Fault::of("loops").cause(format!("{} can be read only once", plan.path));
        faults.add(fault.remedy("name a file, or omit the flag"));
    }
    let options = FileOptions {
        paths: vec![plan.path.clone()],
        forms: vec![plan.form],
        snap_len: plan.snap_len,
        ..FileOptions::default()
    };
    let file = check_begin(&plan.path, plan.form).and_then(|()| FileSource::unread(options, &[]));
    file.map_err(|error| faults.add(error.into_fault(text))).ok()
}

/// The interface, if packets can be sent there.
fn outlet(name: &str, faults: &mut Faults<'_>) -> Option<Outlet> {
    let fault = || Fault::of("to").with_value(name);
    let found = match Outlet::look(name) {
        Ok(outlet) => return Some(outlet),
        Err(found) => found,
    };
    for against in found {
        faults.add(against.into_fault(fault(), name));
    }
    None
}

/// A socket for each queue. Where there is no interface it is tried all the same whether one may be opened.
fn sockets(name: &str, outlet: Option<&Outlet>, queues: u32, faults: &mut Faults<'_>) -> Vec<SendSocket> {
    let (index, count) = outlet.map_or((0, 1), |outlet| (outlet.index, queues));
    let bytes_max = outlet.map_or(0, Outlet::tagged_bytes_max);
    let opened: io::Result<Vec<SendSocket>> =
        (0..count).map(|_| SendSocket::open(index, bytes_max)).collect();
    opened.unwrap_or_else(|error| {
        faults.add(not_opened(&error, Fault::of("to").with_value(name), name));
        Vec::new()
    })
}
