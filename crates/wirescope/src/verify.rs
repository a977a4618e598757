//! `wirescope verify`: whether captures are whole, in plain words or for programs.
//!
//! 1. The paths are looked at: what this command can't read is `unread` in the report.
//! 2. All rights but reading these paths are given up (`scope_rights::keep_to_reading`).
//! 3. Only then a byte is parsed, by `scope_store::verify`.

mod audits;
mod table;

use crate::args::VerifyArgs;
use crate::speech::{self, Level, say};
use crate::words::size;
use crate::{NoResult, REFUSED, UNDONE, told};
use audits::Audits;
use indicatif::{ProgressBar, ProgressStyle};
use scope_fault::Fault;
use scope_spelling::printable::{json_line, shell_word};
use scope_store::chain::Digest;
use scope_store::unread::unread;
use scope_store::verify::{self, FileReport, Meter, Report, Verdict};
use scope_store::volume::MARK;
use std::fs;
use std::io::{self, IsTerminal};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

/// The progress on a terminal changes so often.
const PROGRESS_EVERY: Duration = Duration::from_millis(100);
/// Threads that read at most: more don't make a disk faster.
const THREADS_MAX: usize = 16;

/// Looks and reports. Exit codes: 0 whole, 1 packets were lost or bytes are damaged, 2 it can't look.
pub fn verify(args: &VerifyArgs) -> u8 {
    let mut faults = Vec::new();
    let mut expect = Vec::new();
    for text in &args.expect {
        match Digest::read(text.trim()) {
            Some(head) => expect.push(head),
            None => faults.push(
                Fault::of("expect")
                    .value(text, "is no head of a chain")
                    .remedy("write its 64 hexadecimal digits, as verify shows them"),
            ),
        }
    }
    if !faults.is_empty() {
        return told(Err(NoResult::Refused(faults)));
    }
    let (paths, others): (Vec<_>, Vec<_>) =
        args.paths.iter().map(|path| (path.as_path(), unfit(path))).partition(|(_, fault)| fault.is_none());
    let paths: Vec<&Path> = paths.into_iter().map(|(path, _)| path).collect();
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(THREADS_MAX);
    match scope_rights::keep_to_reading(&paths) {
        Ok(rights) => {
            if let Some(lack) = rights.lack() {
                say(Level::Warning, &format!("wirescope: {lack}"));
            }
        }
        Err(error) => return told(Err(NoResult::Refused(vec![error.fault()]))),
    }
    let (audits, captures): (Vec<&Path>, Vec<&Path>) =
        paths.into_iter().partition(|path| path.is_file() && audits::is_audit(path));
    let audits = Audits::look(&audits, &expect);
    let mut report = look(&captures, threads, &audits.missing(&expect));
    report.files.extend(others.into_iter().map(|(path, unread)| {
        let path = path.to_path_buf();
        FileReport { path, unread, ..FileReport::default() }
    }));
    let verdict = report.verdict().max(audits.verdict());
    let is_of_audits = report.files.is_empty() && report.stores.is_empty() && report.heads_missing.is_empty();
    let text = match args.json {
        true => {
            let mut object = table::object(&report);
            object["verdict"] = verdict.name().into();
            object["audit"] = audits.object();
            format!("{}\n", json_line(&object.to_string()))
        }
        // Of audits alone their own lines say all.
        false if is_of_audits => audits.words(),
        false => audits.words() + &table::words(&report),
    };
    match (told(Ok(text)), verdict) {
        (0, Verdict::Whole) => 0,
        (0, Verdict::Lost | Verdict::Damaged) => UNDONE,
        _ => REFUSED,
    }
}

/// Why this command can't look at `path`, if that is known without opening it.
fn unfit(path: &Path) -> Option<Fault> {
    let fault = || Fault::of_thing(path.to_string_lossy());
    if path == Path::new("-") {
        let fault = fault().cause("standard input can't be looked at: it is read once, and can't be opened");
        return Some(fault.remedy("save it in a file first"));
    }
    let kind = match fs::metadata(path) {
        Ok(facts) => facts.file_type(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Some(fault().cause("no such file or folder").remedy("check the spelling"));
        }
        Err(error) => return Some(unread(path, &error)),
    };
    if kind.is_file() {
        return None;
    }
    if kind.is_dir() {
        match path.join(MARK).symlink_metadata() {
            Ok(_) => return None,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Some(unread(path, &error)),
        }
        let files = shell_word(path);
        let fault = fault().cause(format!("is a folder and no store: it lacks {MARK}"));
        return Some(fault.remedy(format!("name the files in it: wirescope verify {files}/*.pcapng")));
    }
    let what = if kind.is_fifo() {
        "a pipe"
    } else if kind.is_socket() {
        "a socket"
    } else {
        "a device"
    };
    Some(fault().cause(format!("is {what}, no file")).remedy("save what comes from it in a file first"))
}

/// Looks at all of them, with progress on a terminal.
fn look(paths: &[&Path], threads: usize, expect: &[Digest]) -> Report {
    let meter = Meter::default();
    let (done, is_done) = mpsc::channel::<()>();
    std::thread::scope(|scope| {
        if io::stderr().is_terminal() && !speech::is_json() {
            let meter = &meter;
            scope.spawn(move || show(meter, &is_done));
        }
        let report = verify::look(paths, threads, expect, &meter);
        drop(done);
        report
    })
}

/// Shows how far it is, until `is_done` says that nobody looks any more.
fn show(meter: &Meter, is_done: &mpsc::Receiver<()>) {
    let bar = ProgressBar::new(0);
    if let Ok(style) = ProgressStyle::with_template("{msg} {wide_bar} {binary_bytes_per_sec} {eta}") {
        bar.set_style(style);
    }
    while is_done.recv_timeout(PROGRESS_EVERY) == Err(mpsc::RecvTimeoutError::Timeout) {
        let total = meter.expected();
        bar.set_length(total);
        bar.set_message(format!("{} of {} checked", size(meter.bytes()), size(total)));
        bar.set_position(meter.bytes());
    }
    bar.finish_and_clear();
}
