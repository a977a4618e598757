//! `wirescope export`: packets of a span, out of stores into files for other programs.
//!
//! 1. The command line is understood, the folder of the output and the stores are opened, or all faults said.
//! 2. All rights are given up but reading the stores and writing the output.
//! 3. The stores are looked at: names, heads, indexes.
//! 4. Packets go by time through the same selection that dumps use, with a filter that takes all.
//!
//! Ctrl-C ends it between two pieces: what has no name yet vanishes. A second one ends it at once, also where a pipe
//! that nobody reads holds it up.

use crate::answer::{self, Answer, Wanted};
use crate::args::ExportArgs;
use crate::plan::Look;
use crate::plan::faults::Faults;
use crate::plan::places::{STDOUT, has_ending, new_file, refuse_compressed};
use crate::reading::means::Means;
use crate::reading::{self, Stop};
use crate::speech::{self, Level, say};
use crate::stdio::warn_of_closed_stdout;
use crate::words::{counted, size};
use crate::{DONE, NoResult, UNDONE, told};
use scope_answer::SpanWords;
use scope_config::Settings;
use scope_dump::merge::Position;
use scope_dump::{Consumer, gaps_in_words};
use scope_fault::{Fault, Setting, sentence};
use scope_filter::{Filter, VlanRule};
use scope_folder::Folder;
use scope_packet::{Gap, GapReason, LinkType};
use scope_spelling::time::iso;
use scope_spelling::values::{parse_duration_ns, parse_size};
use scope_store::export::{self, Export, Format, SPLIT_BYTES_MIN, Split, Target, Unfinished, Written};
use scope_store::volume::Store;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, IsTerminal};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Who reads a pipe waits no longer for what was found.
const FLUSH_EVERY: Duration = Duration::from_millis(50);
/// What helps where a name is taken.
const NAME_REMEDY: &str = "remove it or choose another name";
/// Shortest part of a split by time.
const SPLIT_NS_MIN: i64 = 1_000_000;

/// What is asked for, understood.
pub struct Asked {
    /// Which packets.
    pub wanted: Wanted,
    /// The form of the files.
    pub format: Format,
    /// Where a file ends and the next one begins.
    pub split: Option<Split>,
    /// Where the files go.
    pub output: Output,
}

/// Where an answer goes.
pub enum Output {
    /// Standard output.
    Stdout,
    /// A pipe or a device that was named.
    Pipe(File, PathBuf),
    /// A new file in a folder, under this name.
    New {
        /// The folder.
        folder: Folder,
        /// The name that was asked for.
        name: OsString,
        /// Names in the folder that begin like it.
        alike: Vec<OsString>,
    },
}

impl Output {
    /// The folder in which files are made, if any are.
    fn folder(&self) -> Option<&Folder> {
        match self {
            Output::New { folder, .. } => Some(folder),
            Output::Stdout | Output::Pipe(..) => None,
        }
    }

    /// As it is called where it holds one file and no more.
    fn pipe_name(&self) -> Option<String> {
        match self {
            Output::New { .. } => None,
            Output::Pipe(_, path) => Some(path.display().to_string()),
            Output::Stdout => Some("standard output".to_string()),
        }
    }
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
    if matches!(asked.output, Output::Stdout) {
        warn_of_closed_stdout();
    }
    let stop = match Stop::follow() {
        Ok(stop) => stop,
        Err(error) => return told(Err(NoResult::Failed(Fault::of_thing("signals").error(&error)))),
    };
    let Some(_turn) = asked.wanted.turn(&stop.flag) else { return stop.code().unwrap_or(UNDONE) };
    let instance = match asked.wanted.ask() {
        Ok(instance) => instance,
        Err(no) => return told(Err(no)),
    };
    if let Err(fault) = asked.wanted.give_up_rights(asked.output.folder()) {
        return told(Err(NoResult::Refused(vec![fault])));
    }
    match (write(asked, instance, &stop.flag), stop.code()) {
        (Err(NoResult::Refused(faults)), _) => told(Err(NoResult::Refused(faults))),
        (_, Some(code)) => {
            say(Level::Warning, "wirescope: stopped: what had no name yet is gone");
            code
        }
        (Err(failed), None) => told(Err(failed)),
        (Ok(done), None) => tell(&done),
    }
}

/// All that can be wrong before anything is read.
fn understand(args: &ExportArgs) -> Result<Asked, Vec<Fault>> {
    let settings = Settings::default();
    let mut faults = Faults::new(&settings);
    let words = SpanWords { from: args.from.as_deref(), to: args.to.as_deref(), ..SpanWords::default() };
    let span = reading::span(&words, &mut faults);
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
            let (captures, instance, around, means) = (None, None, None, Means::default().ready(1));
            let (explain, counts_only) = (false, false);
            let wanted =
                Wanted { stores, captures, instance, span, filter, around, means, explain, counts_only };
            Ok(Asked { wanted, format, split, output })
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
    let one_file = |what: &str, faults: &mut Faults<'_>| {
        if let Some(split) = split {
            let fault = Fault::of("split").with_value(split).cause(format!("{what} is one file"));
            faults.add(fault.remedy(sentence!["write ", Setting::of("write").example("FILE")]));
        }
    };
    if write == Path::new(STDOUT) {
        one_file("standard output", faults);
        if io::stdout().is_terminal() {
            faults.add(no_terminal("standard output"));
        }
        refuse_stdout_inside(stores, faults);
        return Some(Output::Stdout);
    }
    if is_stream(write) {
        one_file(&write.display().to_string(), faults);
        return match File::options().write(true).open(write) {
            Ok(file) => {
                if file.is_terminal() {
                    faults.add(no_terminal(&write.display().to_string()));
                }
                let output = if is_stdout(&file) { Output::Stdout } else { Output::Pipe(file, write.into()) };
                Some(output)
            }
            Err(error) => {
                faults.add(Fault::of("write").with_value(write.to_string_lossy()).error(&error));
                None
            }
        };
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
            Some(Output::New { folder, name: base, alike })
        }
        Err(error) => {
            faults.add(Fault::of("write").with_value(write.to_string_lossy()).error(&error));
            None
        }
    }
}

/// Whether what is there is written to as it is: a pipe, or a device without places, as /dev/null. A disk isn't.
pub fn is_stream(path: &Path) -> bool {
    path.metadata().is_ok_and(|facts| facts.file_type().is_fifo() || facts.file_type().is_char_device())
}

/// Whether it is what standard output is: its reader gets packets and nothing else.
fn is_stdout(file: &File) -> bool {
    let place = |file: &File| file.metadata().map(|facts| (facts.dev(), facts.ino())).ok();
    stdout().is_ok_and(|stdout| place(&stdout) == place(file))
}

/// Refuses standard output that is a file in one of the stores.
pub fn refuse_stdout_inside(stores: &[(Store, PathBuf)], faults: &mut Faults<'_>) {
    let is_file = stdout().and_then(|file| file.metadata()).is_ok_and(|facts| facts.is_file());
    let Some(path) = fs::read_link("/proc/self/fd/1").ok().filter(|_| is_file) else { return };
    if let Some(folder) = path.parent().and_then(|folder| Folder::open(folder).ok()) {
        reading::refuse_inside(&folder, &path, stores, faults);
    }
}

/// Packets go to no terminal.
fn no_terminal(what: &str) -> Fault {
    let fault = Fault::of("write").cause(format!("{what} is a terminal, and packets are not text"));
    let file = Setting::of("write").example("FILE");
    fault.remedy(sentence!["append e.g. | tshark -r - to the command, or write ", file])
}

/// What became of it.
struct Done {
    written: Written,
    faults: Vec<Fault>,
    gaps: Vec<Gap>,
    output: Output,
    partial: Vec<String>,
    filters: Vec<String>,
    snaps: Vec<u32>,
}

/// Reads and writes.
fn write(asked: Asked, instance: Option<answer::Asked>, stop: &Arc<AtomicBool>) -> Result<Done, NoResult> {
    let Asked { wanted, format, split, output } = asked;
    let mut answer = Answer::of(wanted, instance, stop)?;
    if let Output::New { folder, name: base, alike } = &output {
        let types = answer.link_types();
        let taken = alike.iter().find(|name| Export::names((base, name), types, format, split));
        if let Some(taken) = taken {
            let path = folder.path().join(taken);
            let cause = format!("{} exists and is never overwritten", path.display());
            let fault = Fault::of("write").with_value(path.to_string_lossy());
            let fault = fault.cause(format!("{cause}, and the export could need that name"));
            return Err(NoResult::Refused(vec![fault.remedy(NAME_REMEDY)]));
        }
    }
    let written = pass(&mut answer, &output, (format, split), stop)?;
    let (gaps, faults) = (answer.gaps(), answer.faults());
    let (partial, filters, snaps) = (answer.partial(), answer.filters().to_vec(), answer.snaps().to_vec());
    Ok(Done { written, faults, gaps, output, partial, filters, snaps })
}

fn stdout() -> io::Result<File> {
    io::stdout().as_fd().try_clone_to_owned().map(File::from)
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

/// Passes the packets of an answer on to the files.
fn pass(
    answer: &mut Answer,
    output: &Output,
    (format, split): (Format, Option<Split>),
    stop: &Arc<AtomicBool>,
) -> Result<Written, NoResult> {
    let of_pipe = |error| NoResult::Failed(Fault::of_thing("standard output").error(&error));
    let target = match output {
        Output::New { folder, name, .. } => Target::Files(folder, name.clone()),
        Output::Pipe(file, _) => Target::Pipe(Box::new(file.try_clone().map_err(of_pipe)?)),
        Output::Stdout => Target::Pipe(Box::new(stdout().map_err(of_pipe)?)),
    };
    let export = Export::new(target, format, split, answer.question(), answer.interfaces(), answer.losses());
    let mut consumer = Exporting { export, stop: stop.clone(), flushed: Instant::now() };
    answer.read(&mut consumer, true);
    let stopped = stop.load(Ordering::Relaxed) && consumer.export.goes_on();
    Ok(match stopped {
        true => Written::default(), // what is open is dropped without a name
        false => consumer.export.finish(answer.first_type()),
    })
}

/// Reports what was written and what is missing; the exit code.
fn tell(done: &Done) -> u8 {
    let Done { written, faults, gaps, output, partial, filters, snaps } = done;
    let mut text = String::new();
    let folder = output.folder().map_or(Path::new(""), Folder::path);
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
    for snap in snaps {
        text.push_str(&format!("{}\n", export::truncated_to(*snap)));
    }
    text.push_str(&match &written.unfinished {
        Some(unfinished) => stopped(written, unfinished, output),
        None => {
            let is_restricted = !partial.is_empty() || !filters.is_empty() || !snaps.is_empty();
            summed(written, gaps, output, is_restricted)
        }
    });
    let code = match output {
        Output::Stdout => {
            text.lines().for_each(|line| say(Level::Info, line));
            DONE
        }
        _ => told(Ok(text)),
    };
    let faults = [&faults[..], &of_written(written, output)].concat();
    for fault in &faults {
        speech::say_fault(fault);
    }
    if faults.is_empty() { code } else { UNDONE }
}

/// What all of it comes to.
fn summed(written: &Written, gaps: &[Gap], output: &Output, is_restricted: bool) -> String {
    let place = match output.pipe_name() {
        Some(name) => format!("to {name}"),
        None => format!("in {}", counted(written.files.len() as u64, "file")),
    };
    let is_restricted = is_restricted || written.truncated + written.left_out + written.other_types > 0;
    format!("{} {place}; {}\n", counted(written.packets, "packet"), missing_words(gaps, is_restricted))
}

/// What is missing, in words; where nothing was lost, also when nobody is known to have recorded.
pub fn missing_words(gaps: &[Gap], is_restricted: bool) -> String {
    let silent: Vec<Gap> = gaps.iter().filter(|gap| gap.reason == GapReason::NotRecorded).copied().collect();
    let silent = match silent.is_empty() {
        true => String::new(),
        false => format!("; no run is known to have been going: {}", gaps_in_words(&silent)),
    };
    match export::lost(gaps) {
        (0, Some(0)) if is_restricted => format!("nothing else is missing between them{silent}"),
        (0, Some(0)) => format!("nothing is missing between them{silent}"),
        (least, most) => {
            let most = most.map_or("any number".to_string(), |most| most.to_string());
            format!("missing: {least} to {most}, {}", gaps_in_words(gaps))
        }
    }
}

/// What there is of an export that ended early.
fn stopped(written: &Written, Unfinished { from_ns, .. }: &Unfinished, output: &Output) -> String {
    if let Some(name) = output.pipe_name() {
        return format!("stopped early: what was written to {name} lacks its end\n");
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
fn of_written(written: &Written, output: &Output) -> Vec<Fault> {
    let mut faults = Vec::new();
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
    faults.extend(unfinished.as_ref().map(|unfinished| early(unfinished, output)));
    faults
}

/// Why an export ended early, and what helps.
fn early(Unfinished { name, error, .. }: &Unfinished, output: &Output) -> Fault {
    if let Some(pipe) = output.pipe_name() {
        let fault = Fault::of_thing(pipe).error(error);
        return match error.kind() {
            io::ErrorKind::BrokenPipe => {
                let file = Setting::of("write").example("FILE");
                let fault = fault.cause("the reader closed it before the end");
                fault.remedy(sentence!["let it read to the end, or write ", file])
            }
            io::ErrorKind::StorageFull => fault.remedy("free some space, and try again"),
            _ => fault,
        };
    }
    let path = output.folder().map_or(Path::new(""), Folder::path).join(name);
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
