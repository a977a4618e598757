//! `wirescope verify`: whether captures are whole, in plain words or for programs.
//!
//! 1. The paths are looked at: who can't be read by this command is refused, all at once.
//! 2. All rights but reading these paths are given up (`scope_rights::keep_to_reading`).
//! 3. Only then a byte is parsed, by `scope_store::verify`.

mod table;

use crate::args::VerifyArgs;
use crate::speech::{self, Level, say};
use crate::words::size;
use crate::{NoResult, REFUSED, UNDONE, told};
use indicatif::{ProgressBar, ProgressStyle};
use scope_fault::Fault;
use scope_spelling::printable::{json_line, shell_word};
use scope_store::verify::{self, FileReport, Meter, Verdict};
use std::fs::{self, File, OpenOptions};
use std::io::{self, IsTerminal};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

/// The progress on a terminal changes so often.
const PROGRESS_EVERY: Duration = Duration::from_millis(100);

/// Looks and reports. Exit codes: 0 whole, 1 packets were lost or bytes are damaged, 2 it can't look.
pub fn verify(args: &VerifyArgs) -> u8 {
    let faults: Vec<Fault> = args.paths.iter().filter_map(|path| unfit(path)).collect();
    if !faults.is_empty() {
        return told(Err(NoResult::Refused(faults)));
    }
    let paths: Vec<&Path> = args.paths.iter().map(|path| path.as_path()).collect();
    match scope_rights::keep_to_reading(&paths) {
        Ok(rights) => {
            if let Some(lack) = rights.lack() {
                say(Level::Warning, &format!("wirescope: {lack}"));
            }
        }
        Err(error) => return told(Err(NoResult::Refused(vec![error.fault()]))),
    }
    let reports = look(&paths);
    let text = match args.json {
        true => format!("{}\n", json_line(&table::object(&reports).to_string())),
        false => table::words(&reports),
    };
    match (told(Ok(text)), table::verdict(&reports)) {
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
        Err(error) => return Some(fault().error(&error)),
    };
    if kind.is_file() {
        return None;
    }
    if kind.is_dir() {
        let files = shell_word(path);
        let fault = fault().cause("is a folder");
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

/// Opens a file so that nothing keeps us waiting, whatever has taken its place meanwhile.
fn open(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::other("is no plain file")),
    }
}

/// Looks at all of them, one after the other.
fn look(paths: &[&Path]) -> Vec<FileReport> {
    let meter = Meter::default();
    let total = paths.iter().filter_map(|path| fs::metadata(path).ok()).map(|facts| facts.len()).sum();
    let (done, is_done) = mpsc::channel::<()>();
    std::thread::scope(|scope| {
        if io::stderr().is_terminal() && !speech::is_json() {
            let meter = &meter;
            scope.spawn(move || show(meter, total, &is_done));
        }
        let reports = paths.iter().map(|path| report(path, &meter)).collect();
        drop(done);
        reports
    })
}

fn report(path: &Path, meter: &Meter) -> FileReport {
    match open(path) {
        Ok(file) => verify::file(path, &file, meter),
        Err(error) => FileReport {
            path: path.to_path_buf(),
            unread: Some(Fault::of_thing(path.to_string_lossy()).error(&error)),
            ..FileReport::default()
        },
    }
}

/// Shows how far it is, until `is_done` says that nobody looks any more.
fn show(meter: &Meter, total: u64, is_done: &mpsc::Receiver<()>) {
    let bar = ProgressBar::new(total);
    if let Ok(style) = ProgressStyle::with_template("{msg} {wide_bar} {binary_bytes_per_sec} {eta}") {
        bar.set_style(style);
    }
    while is_done.recv_timeout(PROGRESS_EVERY) == Err(mpsc::RecvTimeoutError::Timeout) {
        bar.set_message(format!("{} of {} checked", size(meter.bytes()), size(total)));
        bar.set_position(meter.bytes());
    }
    bar.finish_and_clear();
}
