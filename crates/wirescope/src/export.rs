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
use crate::reading::{self, SpanWords, Stop};
use crate::speech::{self, Level, say};
use crate::words::{counted, size};
use crate::{DONE, NoResult, UNDONE, told};
use scope_config::Settings;
use scope_dump::merge::Position;
use scope_dump::{Buffers, Consumer, Round, Selection, StoreSift, gaps_in_words_by};
use scope_fault::{Fault, Setting, sentence};
use scope_filter::{Filter, FilterEngine, VlanRule};
use scope_folder::Folder;
use scope_packet::{Gap, LinkType};
use scope_ring::Timeline;
use scope_spelling::printable::shell_word;
use scope_spelling::time::iso;
use scope_spelling::values::{parse_duration_ns, parse_size};
use scope_store::export::{
    self, Export, Format, Question, SPLIT_BYTES_MIN, Split, Target, Unfinished, Written,
};
use scope_store::lanes::Partial;
use scope_store::timeline::{Damaged, Means, Span};
use scope_store::volume::Store;
use scope_store::{Listing, Sift, StoreTimeline};
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, IsTerminal};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Who reads a pipe waits no longer for what was found.
const FLUSH_EVERY: Duration = Duration::from_millis(50);
/// Damaged places that are told one by one.
const DAMAGES_TOLD: usize = 10;
/// What helps where a name is taken.
const NAME_REMEDY: &str = "remove it or choose another name";
/// Shortest part of a split by time.
const SPLIT_NS_MIN: i64 = 1_000_000;

/// What is asked for, understood.
pub struct Asked {
    /// Stores, each with the folder that it was given by.
    pub stores: Vec<(Store, PathBuf)>,
    /// The span.
    pub span: Span,
    /// Which packets of it.
    pub filter: Filter,
    /// The form of the files.
    pub format: Format,
    /// Where a file ends and the next one begins.
    pub split: Option<Split>,
    /// Where the files go.
    pub output: Output,
    /// What was read for it is said.
    pub explain: bool,
    /// What it may use.
    pub means: Means,
}

/// Where an answer goes.
pub struct Output {
    /// The folder and the file's name in it; `None`: standard output.
    file: Option<(Folder, OsString)>,
    /// Names in that folder that begin like the output's.
    alike: Vec<OsString>,
}

/// Writes the packets. Exit codes: 0 all that is stored, 1 something couldn't be read, written or held by the
/// form, 2 refused.
pub fn export(args: &ExportArgs) -> u8 {
    match understand(args) {
        Ok(asked) => answer(asked),
        Err(faults) => told(Err(NoResult::Refused(faults))),
    }
}

/// Gives up rights, reads, writes, and reports; the exit code.
pub fn answer(asked: Asked) -> u8 {
    let stop = match Stop::follow() {
        Ok(stop) => stop,
        Err(error) => return told(Err(NoResult::Failed(Fault::of_thing("signals").error(&error)))),
    };
    let file = &asked.output.file;
    let to_stdout = file.is_none();
    if let Err(fault) = reading::give_up_rights(&asked.stores, file.as_ref().map(|(folder, _)| folder)) {
        return told(Err(NoResult::Refused(vec![fault])));
    }
    match (write(asked, &stop.flag), stop.code()) {
        (Err(fault), _) => told(Err(NoResult::Refused(vec![fault]))),
        (Ok(_), Some(code)) => {
            say(Level::Warning, "wirescope: stopped: what had no name yet is gone");
            code
        }
        (Ok(done), None) => tell(&done, to_stdout),
    }
}

/// All that can be wrong before anything is read.
fn understand(args: &ExportArgs) -> Result<Asked, Vec<Fault>> {
    let settings = Settings::default();
    let mut faults = Faults::new(&settings);
    let words = SpanWords { from: args.from.as_deref(), to: args.to.as_deref(), ..SpanWords::default() };
    let span = words.read(&mut faults);
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
    let stores = reading::stores(&args.store, &mut faults);
    let output = output(&args.write, args.split.as_deref(), &stores, &mut faults);
    let split = args.split.as_deref().and_then(|text| split(text, &mut faults));
    let filter = Filter::compile("", VlanRule::default(), &[]).map_err(|error| faults.add(error.fault()));
    match (filter, output) {
        (Ok(filter), Some(output)) if faults.is_empty() => {
            let means = reading::means(); // before rights are given up
            Ok(Asked { stores, span, filter, format, split, output, explain: false, means })
        }
        _ => Err(faults.into_vec()),
    }
}

/// Names in the folder that begin like that of the output: those of further files could be taken. Where the
/// folder can't be read, a name that is taken is met when it is given.
fn alike(folder: &Path, name: &OsStr) -> Vec<OsString> {
    let stem = Path::new(name).file_stem().unwrap_or_default().as_encoded_bytes();
    let names = folder.read_dir().into_iter().flatten().flatten().map(|entry| entry.file_name());
    names.filter(|name| name.as_encoded_bytes().starts_with(stem)).collect()
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

/// Where `write` says that the files go: none of their names is taken as far as they are known.
pub fn output(
    write: &Path,
    split: Option<&str>,
    stores: &[(Store, PathBuf)],
    faults: &mut Faults<'_>,
) -> Option<Output> {
    if write == Path::new(STDOUT) {
        if let Some(split) = split {
            let fault = Fault::of("split").with_value(split).cause("standard output is one file");
            faults.add(fault.remedy(sentence!["write ", Setting::of("write").example("FILE")]));
        }
        if io::stdout().is_terminal() {
            let fault = Fault::of("write").cause("standard output is a terminal, and packets are not text");
            let file = Setting::of("write").example("FILE");
            faults.add(fault.remedy(sentence!["append e.g. | tshark -r - to the command, or write ", file]));
        }
        return Some(Output { file: None, alike: Vec::new() });
    }
    refuse_compressed(write, "write", faults);
    let base = write.file_name().unwrap_or_default().to_os_string();
    let first = match split {
        Some(_) => write.with_file_name(Export::name(&base, None, Some(1))),
        None => write.to_path_buf(),
    };
    let path = new_file(&first, "write", Look::Machine, faults)?;
    let folder = path.parent().unwrap_or(Path::new("."));
    match Folder::open(folder) {
        Ok(folder) => {
            reading::refuse_inside(&folder, write, stores, faults);
            let alike = alike(folder.path(), &base);
            Some(Output { file: Some((folder, base)), alike })
        }
        Err(error) => {
            faults.add(Fault::of("write").with_value(write.to_string_lossy()).error(&error));
            None
        }
    }
}

/// What became of it.
struct Done {
    written: Written,
    damages: Vec<Damaged>,
    gaps: Vec<Gap>,
    folder: PathBuf,
    partial: Vec<String>,
    filters: Vec<String>,
}

/// Looks at the stores, reads and writes.
fn write(asked: Asked, stop: &Arc<AtomicBool>) -> Result<Done, Fault> {
    let Asked { stores, span, filter, format, split, output: Output { file, alike }, explain, means } = asked;
    let begun = Instant::now();
    let sift = StoreSift::new(filter.clone(), FilterEngine::Native);
    let (looked, listed) = reading::look(stores, &|link_type| sift.keys(link_type), span)?;
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
    let filters = reading::filters(&looked);
    let mut of: Vec<String> = looked.iter().map(|(store, _)| format!("store {}", store.id())).collect();
    of.dedup(); // copies have the same id
    let mut timeline = StoreTimeline::new(looked, span, sift, means, stop.clone());
    let partial: Vec<String> =
        timeline.partial().iter().map(|(partial, packets)| elsewhere(partial, *packets)).collect();
    let question = Question {
        of: of.join(", "),
        span,
        heard: timeline.heard(),
        filter: if filter.is_everything() { String::new() } else { filter.text().to_string() },
        filters: filters.clone(),
        partial: partial.clone(),
    };
    let target = match &file {
        Some((folder, name)) => Target::Files(folder, name.clone()),
        None => Target::Pipe(stdout()?),
    };
    let export = Export::new(target, format, split, question, timeline.interfaces(), timeline.losses());
    let mut consumer = Exporting { export, stop: stop.clone(), flushed: begun };
    let buffers: Arc<Buffers> = Arc::default();
    let mut selection = Selection::new(filter.clone(), FilterEngine::Native, span.from_ns, None, &buffers);
    let round = Round { to_ns: span.to_ns, settled_ns: i64::MAX, last: true };
    selection.round(&mut timeline, round, &mut consumer);
    let stopped = stop.load(Ordering::Relaxed) && consumer.export.goes_on();
    let first_type = timeline.link_type(0);
    let written = match stopped {
        true => Written::default(), // what is open is dropped without a name
        false => consumer.export.finish(first_type),
    };
    timeline.end();
    if explain {
        reading::explained(&listed, &timeline.work(), begun);
    }
    let gaps = export::of_answer(timeline.missing(span.to_ns), !filter.is_everything());
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

fn stdout() -> Result<File, Fault> {
    let own = io::stdout().as_fd().try_clone_to_owned();
    own.map(File::from).map_err(|error| Fault::of_thing("standard output").error(&error))
}

/// What was selected goes into the files; an error of these ends the reading.
struct Exporting<'a> {
    export: Export<'a>,
    stop: Arc<AtomicBool>,
    /// When what was gathered for a pipe was written last.
    flushed: Instant,
}

impl Consumer for Exporting<'_> {
    fn packet(&mut self, position: Position, link_type: LinkType, block: &[u8]) {
        self.export.packet(position.lane, link_type, block);
    }

    fn between(&mut self) {
        if self.flushed.elapsed() > FLUSH_EVERY {
            self.flushed = Instant::now();
            self.export.flush();
        }
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
fn summed(written: &Written, gaps: &[Gap], (to_stdout, is_restricted): (bool, bool)) -> String {
    let place = match to_stdout {
        true => "to standard output".to_string(),
        false => format!("in {}", counted(written.files.len() as u64, "file")),
    };
    let is_restricted = is_restricted || written.truncated + written.left_out + written.other_types > 0;
    format!("{} {place}; {}\n", counted(written.packets, "packet"), missing_words(gaps, is_restricted))
}

/// What is missing, in words.
pub fn missing_words(gaps: &[Gap], is_restricted: bool) -> String {
    match export::lost(gaps) {
        (0, Some(0)) if is_restricted => "nothing else is missing between them".to_string(),
        (0, Some(0)) => "nothing is missing between them".to_string(),
        (least, most) => {
            let most = most.map_or("any number".to_string(), |most| most.to_string());
            format!("missing: {least} to {most}, {}", gaps_in_words_by(gaps, export::reason))
        }
    }
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
    let mut faults = of_damages(damages);
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

/// What of stores can't be read.
pub fn of_damages(damages: &[Damaged]) -> Vec<Fault> {
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
