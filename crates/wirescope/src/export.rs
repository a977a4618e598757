//! `wirescope export`: packets of a span, out of stores into files for other programs.
//!
//! 1. The command line is understood, the folder of the output and the stores are opened, or all faults said.
//! 2. All rights are given up but reading the stores and writing the output.
//! 3. The stores are looked at: names, heads, indexes.
//! 4. Packets go by time through the same selection that dumps use, with a filter that takes all.
//!
//! Ctrl-C ends it between two pieces: what has no name yet vanishes. A second one ends it at once, also where a pipe
//! that nobody reads holds it up.

use crate::args::ExportArgs;
use crate::plan::Look;
use crate::plan::faults::Faults;
use crate::plan::places::{STDOUT, has_ending, new_file, refuse_compressed};
use crate::speech::{self, Level, say};
use crate::words::{counted, size};
use crate::{DONE, NoResult, UNDONE, told};
use jiff::tz::TimeZone;
use scope_config::Settings;
use scope_dump::merge::{Position, WAITING_BYTES_MAX};
use scope_dump::{Buffers, Consumer, Round, Selection, gaps_in_words};
use scope_events::now_ns;
use scope_fault::{Fault, Setting, sentence};
use scope_filter::{Filter, FilterEngine, VlanRule};
use scope_folder::Folder;
use scope_packet::LinkType;
use scope_ring::{KeyTest, Timeline};
use scope_spelling::moment::Here;
use scope_spelling::printable::shell_word;
use scope_spelling::time::iso;
use scope_spelling::values::{parse_duration_ns, parse_size};
use scope_store::export::{
    self, Export, Format, Question, SPLIT_BYTES_MIN, Split, Target, Unfinished, Written,
};
use scope_store::lanes::Partial;
use scope_store::timeline::{Damaged, Span};
use scope_store::unread::unread;
use scope_store::volume::Store;
use scope_store::{Listing, StoreTimeline, listing};
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, IsTerminal};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// What the merge lets wait at most, half of the selection's own bound: the other half is for what it can't
/// foresee.
const WAITING_BYTES: usize = WAITING_BYTES_MAX / 2;
/// Damaged places that are told one by one.
const DAMAGES_TOLD: usize = 10;
/// What helps where a name is taken.
const NAME_REMEDY: &str = "remove it or choose another name";
/// Shortest part of a split by time.
const SPLIT_NS_MIN: i64 = 1_000_000;

/// What is asked for, understood.
struct Asked {
    stores: Vec<(Store, PathBuf)>,
    span: Span,
    format: Format,
    split: Option<Split>,
    /// The output's folder and name; `None`: standard output.
    file: Option<(Folder, OsString)>,
    /// Names in that folder that begin like the output's.
    alike: Vec<OsString>,
}

/// Writes the packets. Exit codes: 0 all that is stored, 1 something couldn't be read, written or held by the
/// form, 2 refused.
pub fn export(args: &ExportArgs) -> u8 {
    let asked = match understand(args) {
        Ok(asked) => asked,
        Err(faults) => return told(Err(NoResult::Refused(faults))),
    };
    let signal = Arc::new(AtomicUsize::new(0));
    let stop = Arc::new(AtomicBool::new(false));
    for number in [libc::SIGINT, libc::SIGTERM] {
        let second = signal_hook::flag::register_conditional_shutdown(number, 128 + number, stop.clone());
        let noted = second
            .and_then(|_| signal_hook::flag::register_usize(number, signal.clone(), number as usize))
            .and_then(|_| signal_hook::flag::register(number, stop.clone()));
        if let Err(error) = noted {
            return told(Err(NoResult::Failed(Fault::of_thing("signals").error(&error))));
        }
    }
    let to_stdout = asked.file.is_none();
    if let Err(fault) = give_up_rights(&asked) {
        return told(Err(NoResult::Refused(vec![fault])));
    }
    match write(asked, &stop) {
        Err(fault) => told(Err(NoResult::Refused(vec![fault]))),
        Ok(_) if signal.load(Ordering::Relaxed) != 0 => {
            say(Level::Warning, "wirescope: stopped: what had no name yet is gone");
            128 + signal.load(Ordering::Relaxed) as u8
        }
        Ok(done) => tell(&done, to_stdout),
    }
}

/// All that can be wrong before anything is read.
fn understand(args: &ExportArgs) -> Result<Asked, Vec<Fault>> {
    let settings = Settings::default();
    let mut faults = Faults::new(&settings);
    let here = Here { now_ns: now_ns(), zone: TimeZone::system() };
    let mut local = false;
    let mut time = |key: &'static str, text: &Option<String>, faults: &mut Faults<'_>| {
        let text = text.as_deref()?;
        match here.read(text) {
            Ok(moment) => {
                local |= moment.is_local;
                Some(moment.time_ns)
            }
            Err(bad) => {
                faults.add(Fault::of(key).with_value(bad.value).cause(bad.cause).remedy(bad.remedy));
                None
            }
        }
    };
    let from_ns = time("from", &args.from, &mut faults).unwrap_or(0);
    let to_ns = time("to", &args.to, &mut faults).unwrap_or(i64::MAX);
    if to_ns < from_ns {
        let fault = Fault::of("to").cause("the span ends before it begins");
        faults.add(fault.remedy(sentence!["exchange it with ", Setting::of("from")]));
    }
    let format = match args.format.as_deref() {
        Some("pcap") => Format::Pcap,
        Some("hpcap") => Format::Hpcap,
        Some("pcapng") => Format::Pcapng,
        Some(other) => {
            let fault = Fault::of("format").value(other, "is no form of an export");
            faults.add(fault.remedy("write pcapng, pcap or hpcap"));
            Format::Pcapng
        }
        None if has_ending(&args.write, &["pcap"]) => Format::Pcap,
        None => Format::Pcapng,
    };
    let split = args.split.as_deref().and_then(|text| split(text, &mut faults));
    let file = output(args, &mut faults);
    let mut stores: Vec<(Store, PathBuf)> = Vec::new();
    for path in &args.store {
        match Store::look(path) {
            Ok(store) if stores.iter().any(|(known, _)| is_same(known, &store)) => {
                let fault = Fault::of("store").with_value(path.to_string_lossy());
                faults.add(fault.cause(format!("{} is given twice", path.display())).remedy("omit it once"));
            }
            Ok(store) => stores.push((store, path.clone())),
            Err(fault) => faults.add(fault),
        }
    }
    if let Some((folder, _)) = &file {
        for (_, path) in stores.iter().filter(|(_, path)| is_inside(folder.path(), path)) {
            let cause = format!("the file would stand in the store {}", path.display());
            let fault = Fault::of("write").with_value(args.write.to_string_lossy()).cause(cause);
            faults.add(fault.remedy("choose another folder"));
        }
    }
    if !faults.is_empty() {
        return Err(faults.into_vec());
    }
    if local {
        let zone = here.zone_name();
        say(
            Level::Info,
            &format!("wirescope: times without a zone were taken in that of this system: {zone}"),
        );
    }
    let alike = file.as_ref().map_or(Vec::new(), |(folder, name)| alike(folder.path(), name));
    Ok(Asked { stores, span: Span { from_ns, to_ns }, format, split, file, alike })
}

/// Names in the folder that begin like that of the output: those of further files could be taken. Where the
/// folder can't be read, a name that is taken is met when it is given.
fn alike(folder: &Path, name: &OsStr) -> Vec<OsString> {
    let stem = Path::new(name).file_stem().unwrap_or_default().as_encoded_bytes();
    let names = folder.read_dir().into_iter().flatten().flatten().map(|entry| entry.file_name());
    names.filter(|name| name.as_encoded_bytes().starts_with(stem)).collect()
}

/// Before a byte of the stores is parsed: what stays is reading them, and writing the output.
fn give_up_rights(asked: &Asked) -> Result<(), Fault> {
    let paths: Vec<&Path> = asked.stores.iter().map(|(_, path)| path.as_path()).collect();
    let kept = match &asked.file {
        Some((folder, _)) => scope_rights::keep_to_reading_and_making(&paths, folder),
        None => scope_rights::keep_to_reading(&paths),
    };
    if let Some(lack) = kept.map_err(|error| error.fault())?.lack() {
        say(Level::Warning, &format!("wirescope: {lack}"));
    }
    Ok(())
}

/// Whether both are one folder. A copy has the same id, and its packets come once all the same.
fn is_same(one: &Store, other: &Store) -> bool {
    let place = |store: &Store| store.folder().path().metadata().map(|facts| (facts.dev(), facts.ino()));
    one.id() == other.id() && place(one).ok().zip(place(other).ok()).is_none_or(|(one, other)| one == other)
}

fn is_inside(folder: &Path, store: &Path) -> bool {
    let (folder, store) = (folder.canonicalize(), store.canonicalize());
    folder.ok().zip(store.ok()).is_some_and(|(folder, store)| folder.starts_with(store))
}

/// A size or a time: which of them its unit says.
fn split(text: &str, faults: &mut Faults<'_>) -> Option<Split> {
    let fault = |is: &str| Fault::of("split").value(text, is).remedy("write e.g. 1GiB or 60s");
    if text.trim().bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') {
        faults.add(fault("may be a size or a time"));
        return None;
    }
    match (parse_size(text), parse_duration_ns(text)) {
        (Ok(bytes), _) if bytes < SPLIT_BYTES_MIN => {
            faults.add(fault(&format!("is less than {}", size(SPLIT_BYTES_MIN))));
            None
        }
        (Ok(bytes), _) => Some(Split::Bytes(bytes)),
        (_, Ok(ns)) if ns < SPLIT_NS_MIN => {
            faults.add(fault("is less than 1 ms"));
            None
        }
        (_, Ok(ns)) => Some(Split::Every(ns)),
        _ => {
            faults.add(fault("is no size and no time"));
            None
        }
    }
}

/// The output's folder, and the file in it, none of whose names is taken as far as they are known.
fn output(args: &ExportArgs, faults: &mut Faults<'_>) -> Option<(Folder, OsString)> {
    if args.write == Path::new(STDOUT) {
        if let Some(split) = &args.split {
            let fault = Fault::of("split").with_value(split).cause("standard output is one file");
            faults.add(fault.remedy(sentence!["write ", Setting::of("write").example("FILE")]));
        }
        if io::stdout().is_terminal() {
            let fault = Fault::of("write").cause("standard output is a terminal, and packets are not text");
            let file = Setting::of("write").example("FILE");
            faults.add(fault.remedy(sentence!["append e.g. | tshark -r - to the command, or write ", file]));
        }
        return None;
    }
    refuse_compressed(&args.write, "write", faults);
    let base = args.write.file_name().unwrap_or_default().to_os_string();
    let first = match args.split {
        Some(_) => args.write.with_file_name(Export::name(&base, None, Some(1))),
        None => args.write.clone(),
    };
    let path = new_file(&first, "write", Look::Machine, faults)?;
    let folder = path.parent().unwrap_or(Path::new("."));
    match Folder::open(folder) {
        Ok(folder) => Some((folder, base)),
        Err(error) => {
            faults.add(Fault::of("write").with_value(args.write.to_string_lossy()).error(&error));
            None
        }
    }
}

/// What became of it.
struct Done {
    written: Written,
    damages: Vec<Damaged>,
    gaps: Vec<scope_packet::Gap>,
    folder: PathBuf,
    partial: Vec<String>,
    filters: Vec<String>,
}

/// Looks at the stores, reads and writes.
fn write(asked: Asked, stop: &Arc<AtomicBool>) -> Result<Done, Fault> {
    let Asked { stores, span, format, split, file, alike } = asked;
    let mut looked: Vec<(Store, Listing)> = Vec::new();
    for (store, path) in stores {
        let listing = listing::list(&store).map_err(|error| unread(&path, &error))?;
        looked.push((store, listing));
    }
    if let Some((folder, base)) = &file {
        let types = link_types(&looked);
        let taken = alike.iter().find(|name| Export::names((base, name), &types, format, split));
        if let Some(taken) = taken {
            let path = folder.path().join(taken);
            let cause = format!("{} exists and is never overwritten", path.display());
            let fault = Fault::of("write").with_value(path.to_string_lossy());
            return Err(fault
                .cause(format!("{cause}, and the export could need that name"))
                .remedy(NAME_REMEDY));
        }
    }
    let filters = filters(&looked);
    let mut of: Vec<String> = looked.iter().map(|(store, _)| format!("store {}", store.id())).collect();
    of.dedup(); // copies have the same id
    let mut timeline = StoreTimeline::new(looked, span, &|_| KeyTest::all(), WAITING_BYTES, stop.clone());
    let partial: Vec<String> =
        timeline.partial().iter().map(|(partial, packets)| elsewhere(partial, *packets)).collect();
    let question = Question {
        of: of.join(", "),
        span,
        heard: timeline.heard(),
        filters: filters.clone(),
        partial: partial.clone(),
    };
    let target = match &file {
        Some((folder, name)) => Target::Files(folder, name.clone()),
        None => Target::Pipe(stdout()?),
    };
    let export = Export::new(target, format, split, question, timeline.interfaces(), timeline.losses());
    let mut consumer = Exporting { export, stop: stop.clone() };
    let buffers: Arc<Buffers> = Arc::default();
    let everything = Filter::compile("", VlanRule::default(), &[]).map_err(|error| error.fault())?;
    let mut selection = Selection::new(everything, FilterEngine::Interpreter, span.from_ns, None, &buffers);
    let round = Round { to_ns: span.to_ns, settled_ns: i64::MAX, last: true };
    selection.round(&mut timeline, round, &mut consumer);
    let stopped = stop.load(Ordering::Relaxed) && consumer.export.goes_on();
    let first_type = timeline.link_type(0);
    let written = match stopped {
        true => Written::default(), // what is open is dropped without a name
        false => consumer.export.finish(first_type),
    };
    timeline.end();
    let gaps = timeline.missing(span.to_ns);
    let folder = file.as_ref().map_or(PathBuf::new(), |(folder, _)| folder.path().to_path_buf());
    Ok(Done { written, damages: timeline.damages().to_vec(), gaps, folder, partial, filters })
}

/// What may be in volumes of a run that weren't given.
pub fn elsewhere(partial: &Partial, packets: u64) -> String {
    let others = if partial.volumes - partial.given == 1 { "other" } else { "others" };
    match packets {
        0 => format!("{partial}; packets may be in the {others}"),
        most => format!("{partial}; up to {} may be in the {others}", counted(most, "packet")),
    }
}

/// The link types of what the stores have, each once.
fn link_types(stores: &[(Store, Listing)]) -> Vec<LinkType> {
    let contents = stores.iter().flat_map(|(_, listing)| &listing.files).flat_map(|file| &file.contents);
    let types: BTreeSet<LinkType> = contents.map(|contents| contents.link_type).collect();
    types.into_iter().collect()
}

/// The filters that packets passed on their way into the stores, each once.
fn filters(stores: &[(Store, Listing)]) -> Vec<String> {
    let contents = stores.iter().flat_map(|(_, listing)| &listing.files).flat_map(|file| &file.contents);
    let mut filters: Vec<String> = contents.map(|contents| contents.filter.clone()).collect();
    filters.sort();
    filters.dedup();
    filters.retain(|filter| !filter.is_empty());
    filters
}

fn stdout() -> Result<File, Fault> {
    let own = io::stdout().as_fd().try_clone_to_owned();
    own.map(File::from).map_err(|error| Fault::of_thing("standard output").error(&error))
}

/// What was selected goes into the files; an error of these ends the reading.
struct Exporting<'a> {
    export: Export<'a>,
    stop: Arc<AtomicBool>,
}

impl Consumer for Exporting<'_> {
    fn packet(&mut self, position: Position, link_type: LinkType, block: &[u8]) {
        self.export.packet(position.lane, link_type, block);
    }

    fn between(&mut self) {
        if !self.export.goes_on() {
            self.stop.store(true, Ordering::Relaxed);
        }
    }
}

/// Reports what was written and what is missing; the exit code.
fn tell(done: &Done, to_stdout: bool) -> u8 {
    let Done { written, damages, gaps, folder, partial, filters } = done;
    let mut text = String::new();
    for file in &written.files {
        let path = folder.join(&file.name);
        text.push_str(&format!(
            "{}: {}, {}\n",
            path.display(),
            counted(file.packets, "packet"),
            size(file.bytes)
        ));
    }
    for run in partial {
        text.push_str(&format!("{run}\n"));
    }
    for filter in filters {
        text.push_str(&format!("{}\n", export::left_out_by(filter)));
    }
    text.push_str(&match &written.unfinished {
        Some(unfinished) => stopped(written, unfinished),
        None => summed(written, gaps, (to_stdout, !partial.is_empty() || !filters.is_empty())),
    });
    let code = match to_stdout {
        true => {
            text.lines().for_each(|line| say(Level::Info, line));
            DONE
        }
        false => told(Ok(text)),
    };
    let faults = faults(written, damages, folder);
    for fault in &faults {
        speech::say_fault(fault);
    }
    if faults.is_empty() { code } else { UNDONE }
}

/// What all of it comes to.
fn summed(written: &Written, gaps: &[scope_packet::Gap], (to_stdout, is_restricted): (bool, bool)) -> String {
    let place = match to_stdout {
        true => "to standard output".to_string(),
        false => format!("in {}", counted(written.files.len() as u64, "file")),
    };
    let lost = match export::lost(gaps) {
        (0, Some(0)) if is_restricted => "nothing else is missing between them".to_string(),
        (0, Some(0)) => "nothing is missing between them".to_string(),
        (least, most) => {
            let most = most.map_or("any number".to_string(), |most| most.to_string());
            format!("missing: {least} to {most}, {}", gaps_in_words(gaps))
        }
    };
    format!("{} {place}; {lost}\n", counted(written.packets, "packet"))
}

/// What there is of an export that ended early.
fn stopped(written: &Written, Unfinished { name, from_ns, .. }: &Unfinished) -> String {
    if name.is_empty() {
        return "stopped early: what was read from standard output lacks its end\n".to_string();
    }
    if written.files.is_empty() {
        return "stopped early: no file was written\n".to_string();
    }
    let (files, are) = match written.files.len() as u64 {
        1 => ("1 file".to_string(), "is"),
        more => (counted(more, "file"), "are"),
    };
    let packets = counted(written.files.iter().map(|file| file.packets).sum(), "packet");
    let behind = match from_ns {
        0 => "others are in none".to_string(),
        from_ns => format!("those from {} on may be in none", iso(*from_ns)),
    };
    format!("stopped early: {files} with {packets} {are} whole; {behind}\n")
}

/// What of the stored packets isn't in the files, and why.
fn faults(written: &Written, damages: &[Damaged], folder: &Path) -> Vec<Fault> {
    let mut faults = Vec::new();
    for damaged in damages.iter().take(DAMAGES_TOLD) {
        let missing = match damaged.packets {
            Some(packets) => format!("; {} of it missing", counted(packets, "packet")),
            None if damaged.is_cut => {
                "; its whole segments are read, packets behind them may be missing".to_string()
            }
            None => "; its packets are missing".to_string(),
        };
        let fault = damaged.fault.clone().cause(format!("{}{missing}", damaged.fault.why()));
        faults.push(match damaged.fault.remedy {
            Some(_) => fault,
            None => fault.remedy(format!("what else is wrong: {}", verify(&damaged.store))),
        });
    }
    if damages.len() > DAMAGES_TOLD {
        let more = counted((damages.len() - DAMAGES_TOLD) as u64, "more damaged place");
        let store = &damages[DAMAGES_TOLD].store;
        faults.push(Fault::whole(more).remedy(format!("see: {}", verify(store))));
    }
    let Written { truncated, left_out, other_types, late, unfinished, .. } = written;
    let pcapng = || sentence!["use ", Setting::of("format").example("pcapng")];
    if *truncated > 0 {
        let cause = format!("{} longer than 65,535 bytes truncated", counted(*truncated, "packet"));
        faults.push(Fault::of("format").cause(cause).remedy(pcapng()));
    }
    if *left_out > 0 {
        let cause = format!("{} left out: the form has no place for the time", counted(*left_out, "packet"));
        faults.push(Fault::of("format").cause(cause).remedy(pcapng()));
    }
    if *other_types > 0 {
        let cause =
            format!("{} of other link types left out: a pipe holds one", counted(*other_types, "packet"));
        let file = Setting::of("write").example("FILE");
        faults.push(Fault::of("write").cause(cause).remedy(sentence!["write ", file]));
    }
    if *late > 0 {
        let cause = format!("{} behind newer ones: too many lanes overlap", counted(*late, "packet"));
        faults.push(Fault::whole(cause).remedy("sort the files, e.g. with reordercap"));
    }
    faults.extend(unfinished.as_ref().map(|unfinished| early(unfinished, folder)));
    faults
}

/// The command that says all that is wrong with a store.
fn verify(store: &Path) -> String {
    format!("wirescope verify {}", shell_word(store))
}

/// Why an export ended early, and what helps.
fn early(Unfinished { name, error, .. }: &Unfinished, folder: &Path) -> Fault {
    if name.is_empty() {
        let fault = Fault::of_thing("standard output").error(error);
        return match error.kind() {
            io::ErrorKind::BrokenPipe => {
                let file = Setting::of("write").example("FILE");
                let fault = fault.cause("the reader closed it before the end");
                fault.remedy(sentence!["let it read to the end, or write ", file])
            }
            io::ErrorKind::StorageFull => fault.remedy("free some space, and export again"),
            _ => fault,
        };
    }
    let path = folder.join(name);
    let fault = Fault::of_thing(path.to_string_lossy());
    match error.kind() {
        io::ErrorKind::AlreadyExists => {
            fault.cause("it was made meanwhile, and is never overwritten").remedy(NAME_REMEDY)
        }
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            let fault = fault.cause(error.to_string());
            fault.remedy("free some space, or choose a folder on another file system")
        }
        io::ErrorKind::FileTooLarge => {
            let split = Setting::of("split").example("1GiB");
            let fault = fault.cause(error.to_string());
            fault.remedy(sentence!["raise the limit (ulimit -f), or write smaller files: ", split])
        }
        _ => {
            let fault = fault.error(error);
            if fault.remedy.is_some() { fault } else { fault.remedy("choose another folder") }
        }
    }
}
