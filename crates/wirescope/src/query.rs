//! `wirescope query`: the packets of stores and capture files that a filter matches: as a capture, as a line each,
//! counted, by hosts or ports, or by steps of time.
//!
//! 1. The command line is understood, stores and files are opened, filters compiled; or all faults are told.
//! 2. All rights are given up but reading the stores and writing the output.
//! 3. What goes into a file or a pipe goes the way of an export. All else comes from the same answer, in words.

use crate::answer::{self, Answer, Captures, Instance, Wanted};
use crate::args::QueryArgs;
use crate::ask;
use crate::export::{self, Asked};
use crate::plan::faults::Faults;
use crate::plan::places::{STDOUT, has_ending};
use crate::reading::means::MeansWords;
use crate::reading::{self, Stop, window};
use crate::speech::{self, Level, say};
use crate::stdio::warn_of_closed_stdout;
use crate::words::counted;
use crate::{DONE, NoResult, UNDONE, told};
use console::Term;
use jiff::tz::TimeZone;
use scope_answer::around::{AFTER_NS, BEFORE_NS};
use scope_answer::words::{self, around_ns};
use scope_answer::{
    Around, Each, Form, FormWords, LIMIT, LIMIT_OF_TOP, Lines, SpanWords, Steps, Sum, Top, steps,
};
use scope_config::Settings;
use scope_fault::{Fault, Setting, Subject, sentence};
use scope_filter::{Filter, FilterEngine, FilterError, VlanRule};
use scope_packet::LinkType;
use scope_spelling::printable::json_line;
use scope_store::export::{Format, left_out_by, truncated_to};
use scope_store::listing;
use scope_store::timeline::Span;
use scope_store::unread::unread;
use scope_store::volume::Store;
use serde_json::{Map, Value};
use std::collections::BTreeSet;
use std::fs;
use std::io::{self, BufWriter, IsTerminal, StdoutLock, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Columns where no terminal says how many it has.
const COLUMNS: usize = 80;
/// Of the memory for packets the part that a top list takes.
const PART_OF_TOP: u64 = 4;
/// Of capture files no link type is known before they are read: a filter must be one for some of these, or of those
/// that the stores have.
const LINK_TYPES: [LinkType; 9] = [
    LinkType::ETHERNET,
    LinkType::RAW,
    LinkType::LINUX_SLL,
    LinkType::LINUX_SLL2,
    LinkType::NULL,
    LinkType::PPP,
    LinkType(105), // IEEE 802.11
    LinkType(127), // the same with radio headers
    LinkType(189), // USB
];

/// What is asked for, understood.
enum Question {
    Capture(Asked),
    Text(Text),
}

/// An answer in words, or in JSON.
struct Text {
    wanted: Wanted,
    form: Shown,
    is_json: bool,
    limit: Option<u64>,
}

/// Which one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shown {
    /// A line for each packet, or an object.
    Packets,
    /// Another form.
    Form(Form),
}

/// Answers. Exit codes: 0 all that is stored of it was given, 1 something couldn't be read or written, 2
/// refused.
pub fn query(args: &QueryArgs) -> u8 {
    match understand(args) {
        Ok(Question::Capture(asked)) => export::answer(asked),
        Ok(Question::Text(text)) => answer(text),
        Err(faults) => told(Err(NoResult::Refused(faults))),
    }
}

fn understand(args: &QueryArgs) -> Result<Question, Vec<Fault>> {
    let settings = Settings::default();
    let mut faults = Faults::new(&settings);
    let words = MeansWords {
        threads: args.threads.as_deref(),
        memory: args.memory.as_deref(),
        tmp: args.tmp.as_deref(),
    };
    let means = words.read(&mut faults);
    let stores = reading::stores(&args.store, &mut faults);
    let client = ask::named(args.control.as_deref(), &args.door);
    let client = client.map_err(|fault| faults.add(fault)).unwrap_or_default();
    let asks_instance = args.control.is_some() || args.door.url.is_some();
    if args.store.is_empty() && args.read.is_empty() && !asks_instance {
        let fault = Fault::of("store").missing().cause("nothing is named that could be asked");
        let (store, file) = (Setting::of("store").example("DIR"), Setting::of("read").example("FILE"));
        let control = Setting::of("control").example("PATH");
        faults.add(fault.remedy(sentence![
            "name a store: ",
            store,
            ", a capture file: ",
            file,
            ", or the socket of an instance: ",
            control
        ]));
    }
    let captures = match args.read.is_empty() {
        true => None,
        false => match Captures::open(&args.read, || means.spill()) {
            Ok(captures) => Some(captures),
            Err(more) => {
                more.into_iter().for_each(|fault| faults.add(fault));
                None
            }
        },
    };
    let (span, around) = when(args, &mut faults);
    let link_types = link_types(&stores).map_err(|fault| faults.add(fault)).unwrap_or_default();
    // What an instance has it knows itself.
    let is_unknown = !args.read.is_empty() || asks_instance;
    let more: &[LinkType] = if is_unknown { &LINK_TYPES } else { &[] };
    let link_types = [&link_types[..], more].concat();
    let known = (&link_types[..], !is_unknown);
    let filter = compile(&args.expression.join(" "), None, known, &mut faults);
    let around = around.and_then(|(text, before_ns, after_ns)| {
        let filter = compile(text, Some("around"), known, &mut faults)?;
        Some(Around { filter, before_ns, after_ns })
    });
    let (form, is_json) = form(args, &mut faults);
    let write = args.write.clone().unwrap_or_else(|| STDOUT.into());
    let output = match form {
        None => export::output(&write, None, &stores, &mut faults),
        Some(_) => {
            export::refuse_stdout_inside(&stores, &mut faults);
            None
        }
    };
    refuse_own_input(&args.read, &mut faults);
    let Some(filter) = filter.filter(|_| faults.is_empty()) else { return Err(faults.into_vec()) };
    let instance = client.map(|client| Instance::new(client, span, &filter, around.as_ref()));
    let means = means.ready(1 + usize::from(around.is_some()));
    let (explain, counts_only) = (args.explain, form == Some(Shown::Form(Form::Count)));
    let wanted = Wanted { stores, captures, instance, span, filter, around, means, explain, counts_only };
    match (form, output) {
        (Some(form), _) => Ok(Question::Text(Text { wanted, form, is_json, limit: args.limit })),
        (None, Some(output)) => {
            let format = match args.format.as_deref() {
                Some("pcap") => Format::Pcap,
                None if has_ending(&write, &["pcap"]) => Format::Pcap,
                _ => Format::Pcapng,
            };
            Ok(Question::Capture(Asked { wanted, format, split: None, output }))
        }
        (None, None) => Err(faults.into_vec()),
    }
}

/// Refuses standard output that is one of the capture files: what is read would grow by what is written.
fn refuse_own_input(paths: &[String], faults: &mut Faults<'_>) {
    let place = |path: &str| {
        let facts = fs::metadata(path).ok().filter(fs::Metadata::is_file)?;
        Some((facts.dev(), facts.ino()))
    };
    let Some(output) = place("/proc/self/fd/1") else { return };
    for path in paths.iter().filter(|path| place(path) == Some(output)) {
        let fault = Fault::of("read").with_value(path).cause("it is what standard output goes to");
        faults.add(fault.remedy("write into another file"));
    }
}

/// The span, and what is wanted around: a filter's text, and how long before and behind its packets.
fn when<'a>(args: &'a QueryArgs, faults: &mut Faults<'_>) -> (Span, Option<(&'a str, i64, i64)>) {
    let words = SpanWords {
        from: args.from.as_deref(),
        to: args.to.as_deref(),
        at: args.at.as_deref(),
        within: args.within.as_deref(),
    };
    let mut span = reading::span(&words, faults);
    let (dump, around) = (args.around_dump.as_deref(), args.around.as_deref());
    let usual_ns = if around.is_some() { (BEFORE_NS, AFTER_NS) } else { (0, 0) };
    let mut found = Vec::new();
    let (before_ns, after_ns) = around_ns(
        (args.before.as_deref(), usual_ns.0),
        (args.after.as_deref(), usual_ns.1),
        dump.is_some() || around.is_some(),
        &mut found,
    );
    found.into_iter().for_each(|fault| faults.add(fault));
    match dump.map(window::of_dump) {
        Some(Ok(window)) => {
            span = Span {
                from_ns: window.from_ns.saturating_sub(before_ns).max(0),
                to_ns: window.to_ns.saturating_add(after_ns),
            };
        }
        Some(Err(fault)) => faults.add(fault),
        None => {}
    }
    (span, around.map(|text| (text, before_ns, after_ns)))
}

/// A filter; `key` is the setting that it stands in, if it does in one. `is_ready`: the link types are those that there
/// are, and it is made ready for them.
fn compile(
    text: &str,
    key: Option<&'static str>,
    (link_types, is_ready): (&[LinkType], bool),
    faults: &mut Faults<'_>,
) -> Option<Filter> {
    // A filter's text stands in single lines: of answers, and of the headers of files.
    let text = text.replace(char::is_control, " ");
    match Filter::compile(&text, VlanRule::default(), link_types) {
        Ok(filter) => {
            if is_ready {
                // Where no machine code can be made the filter is interpreted, which is slower and says the same.
                let _ = filter.prepare(FilterEngine::Native);
            }
            Some(filter)
        }
        Err(error) => {
            let mut fault = error.fault();
            if let FilterError::Link { .. } = error
                && fault.remedy.is_none()
            {
                fault = fault.remedy("ask stores and files that have such packets");
            }
            faults.add(match key {
                Some(key) => fault.of_subject(Subject::setting(key)),
                None => fault,
            });
            None
        }
    }
}

/// The form of the answer, if that isn't a capture, and whether it is JSON.
fn form(args: &QueryArgs, faults: &mut Faults<'_>) -> (Option<Shown>, bool) {
    let is_json = args.format.as_deref() == Some("json");
    let (count, timeline) = (args.count, args.timeline);
    let words = FormWords { count, top: args.top.as_deref(), timeline, step: args.step.as_deref() };
    let mut found = Vec::new();
    let form = words.read(&mut found);
    found.into_iter().for_each(|fault| faults.add(fault));
    let is_table = args.write.is_none() && args.format.is_none() && io::stdout().is_terminal();
    let form = form.map(Shown::Form).or((is_json || is_table).then_some(Shown::Packets));
    if let (None, Some(limit)) = (form, args.limit) {
        let fault = Fault::of("limit").with_value(limit.to_string()).cause("a capture has all packets");
        let json = Setting::of("format").example("json");
        faults.add(fault.remedy(sentence!["omit it, or give ", json, " for a line each"]));
    }
    if args.json && matches!(form, None | Some(Shown::Packets)) {
        let fault = Fault::of("json").cause("is the form of a count, a top list or a timeline");
        faults.add(fault.remedy(sentence!["give ", Setting::of("format").example("json"), " for packets"]));
    }
    if let Some(other) = args.format.as_deref().filter(|form| !["pcapng", "pcap", "json"].contains(form)) {
        let fault = Fault::of("format").value(other, "is no form of an answer");
        faults.add(fault.remedy("write pcapng, pcap or json"));
    }
    if let (Some(_), Some(write)) = (form, args.write.as_deref().filter(|&write| write != Path::new(STDOUT)))
    {
        let fault = Fault::of("write").with_value(write.to_string_lossy());
        let fault = fault.cause("JSON goes to standard output");
        faults.add(fault.remedy("redirect it, e.g. > FILE, and omit this"));
    }
    (form, is_json || args.json)
}

/// The link types that the stores' files name.
fn link_types(stores: &[(Store, PathBuf)]) -> Result<Vec<LinkType>, Fault> {
    let mut types = BTreeSet::new();
    for (store, path) in stores {
        types.extend(listing::link_types(store).map_err(|error| unread(path, &error))?);
    }
    Ok(types.into_iter().collect())
}

/// Gives up rights, reads, and says what there is; the exit code.
fn answer(text: Text) -> u8 {
    warn_of_closed_stdout();
    let stop = match Stop::follow() {
        Ok(stop) => stop,
        Err(error) => return told(Err(NoResult::Failed(Fault::of_thing("signals").error(&error)))),
    };
    let Some(_turn) = text.wanted.turn(&stop.flag) else { return stop.code().unwrap_or(UNDONE) };
    let asked = match text.wanted.ask() {
        Ok(asked) => asked,
        Err(no) => return told(Err(no)),
    };
    if let Err(fault) = text.wanted.give_up_rights(None) {
        return told(Err(NoResult::Refused(vec![fault])));
    }
    let said = match say_it(text, asked, &stop.flag) {
        Ok(said) => said,
        Err(refused @ NoResult::Refused(_)) => return told(Err(refused)),
        Err(failed) => return stop.code().unwrap_or_else(|| told(Err(failed))),
    };
    let Said { text, faults, written } = said;
    faults.iter().for_each(speech::say_fault);
    if let Some(code) = stop.code() {
        return code;
    }
    let written = written.and_then(|()| {
        let mut out = io::stdout().lock();
        out.write_all(text.as_bytes()).and_then(|()| out.flush())
    });
    match written {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            let fault = Fault::of_thing("standard output").error(&error);
            let remedy = sentence!["free some space, or redirect it to another place"];
            let is_full = error.kind() == io::ErrorKind::StorageFull;
            speech::say_fault(&if is_full { fault.remedy(remedy) } else { fault });
            UNDONE
        }
        _ if faults.is_empty() => DONE,
        _ => UNDONE,
    }
}

/// What is said at the end.
struct Said {
    text: String,
    faults: Vec<Fault>,
    /// Whether standard output took what came before.
    written: io::Result<()>,
}

fn say_it(text: Text, asked: Option<answer::Asked>, stop: &Arc<AtomicBool>) -> Result<Said, NoResult> {
    let Text { wanted, form, is_json, limit } = text;
    let memory_bytes = wanted.means.memory_bytes;
    let mut answer = Answer::of(wanted, asked, stop)?;
    match form {
        Shown::Packets => packets(&mut answer, is_json, limit, stop),
        Shown::Form(Form::Count) => {
            let mut lines = lines((Each::Nothing, 0), &answer, stop);
            answer.read(&mut lines, true);
            let mut sum = lines.sum;
            drop(lines);
            sum.count(&answer.counted());
            Ok(end(&answer, &sum, is_json, String::new(), Map::new()))
        }
        Shown::Form(Form::Top(by)) => {
            let limit = usize::try_from(limit.unwrap_or(LIMIT_OF_TOP)).unwrap_or(usize::MAX);
            let mut top = Top::new(by, memory_bytes / PART_OF_TOP);
            answer.read(&mut top, true);
            let (words, json) = match is_json {
                true => (String::new(), top.json(limit)),
                false => (top.words(limit), Map::new()),
            };
            Ok(end(&answer, &top.sum, is_json, words, json))
        }
        Shown::Form(Form::Timeline(step_ns)) => {
            let extent = extent(&answer, step_ns);
            let step_ns = words::step_ns(step_ns, extent).map_err(|fault| NoResult::Refused(vec![fault]))?;
            let mut steps = Steps::new(step_ns, extent, TimeZone::system());
            answer.read(&mut steps, true);
            steps.finish(&answer.gaps());
            let (words, json) = match is_json {
                true => (String::new(), steps.json()),
                false => (steps.words(columns(), has_colours()), Map::new()),
            };
            Ok(end(&answer, &steps.sum, is_json, words, json))
        }
    }
}

/// What a timeline shows: the span that was asked for, as far as it has ends and steps of that length aren't too many;
/// else where there may be packets of it.
fn extent(answer: &Answer, step_ns: Option<i64>) -> Option<(i64, i64)> {
    match answer.extent() {
        Some(known) => Some(steps::shown(known, answer.asked(known), step_ns)),
        None => answer.asked_alone().filter(|&asked| steps::fits(asked, step_ns)),
    }
}

/// Lines on standard output.
fn lines(
    what: (Each, u64),
    answer: &Answer,
    stop: &Arc<AtomicBool>,
) -> Lines<BufWriter<StdoutLock<'static>>> {
    let out = BufWriter::new(io::stdout().lock());
    Lines::new(out, what, TimeZone::system(), answer.interfaces(), stop.clone())
}

/// Packets, a line or an object each.
fn packets(
    answer: &mut Answer,
    is_json: bool,
    limit: Option<u64>,
    stop: &Arc<AtomicBool>,
) -> Result<Said, NoResult> {
    let (each, limit) = match is_json {
        true => (Each::Object, limit.unwrap_or(u64::MAX)),
        false => (Each::Line, limit.unwrap_or(LIMIT)),
    };
    let mut lines = lines((each, limit), answer, stop);
    answer.read(&mut lines, false);
    let (sum, more) = (lines.sum, lines.more());
    let written = lines.finish();
    if is_json {
        let words = format!("{}\n{}", sum.words(&TimeZone::system()), lacks(answer));
        if written.is_ok() {
            words.lines().for_each(|line| say(Level::Info, line));
        }
        return Ok(Said { text: String::new(), faults: answer.faults(), written });
    }
    let more = match more {
        0 => String::new(),
        more => format!("and {} (see: --limit)\n", counted(more, "more packet")),
    };
    Ok(Said { written, ..end(answer, &sum, false, more, Map::new()) })
}

/// What every answer ends with: what all of it comes to, and what is missing.
fn end(answer: &Answer, sum: &Sum, is_json: bool, words: String, mut json: Map<String, Value>) -> Said {
    let text = match is_json {
        true => {
            json.extend(sum.json(answer.filters(), &answer.gaps()));
            if !answer.snaps().is_empty() {
                json.insert("snaps".to_string(), answer.snaps().into());
            }
            format!("{}\n", json_line(&Value::Object(json).to_string()))
        }
        false => {
            format!("{words}{}\n{}", sum.words(&TimeZone::system()), lacks(answer))
        }
    };
    Said { text, faults: answer.faults(), written: Ok(()) }
}

/// What an answer lacks, in lines.
fn lacks(answer: &Answer) -> String {
    let filters = answer.filters().iter().map(|filter| left_out_by(filter));
    let snaps = answer.snaps().iter().map(|snap| truncated_to(*snap));
    let restricted: Vec<String> = answer.partial().into_iter().chain(filters).chain(snaps).collect();
    let missing = export::missing_words(&answer.gaps(), !restricted.is_empty());
    restricted.into_iter().chain([missing]).map(|line| format!("{line}\n")).collect()
}

/// Columns of the terminal that standard output is.
fn columns() -> usize {
    let size = io::stdout().is_terminal().then(|| Term::stdout().size_checked()).flatten();
    size.map_or(COLUMNS, |(_, columns)| usize::from(columns)).max(COLUMNS / 2)
}

/// Whether colours are seen and wanted: NO_COLOR says that they aren't.
fn has_colours() -> bool {
    io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|text| text.is_empty())
}
