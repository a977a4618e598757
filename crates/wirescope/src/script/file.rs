//! A script as a file: read as text, the libraries that it names opened, and what it may take. Also for the scripts of a
//! run.

use crate::args::ScriptBoundsArgs;
use crate::plan::faults::{bad, such_as};
use crate::speech::{Level, say};
use crate::words::size;
use scope_fault::{Fault, Subject};
use scope_script::{Libraries, Options, ScriptError, libraries};
use scope_spelling::values::{parse_duration_ns, parse_size};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

/// A longer file is no script.
const SCRIPT_BYTES_MAX: u64 = 1 << 20;
/// The shortest and the longest time that a call of a script may take, ns.
const TIMEOUT_NS: (i64, i64) = (10_000_000, 3_600_000_000_000);
/// The smallest and the largest memory of a script, bytes: what a state of its own takes, and what LuaJIT's collector
/// reaches.
const MEMORY_BYTES: (u64, u64) = (1 << 20, 64 << 30);

/// What a script may take.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// For one call.
    pub timeout: Duration,
    /// Of Lua's own memory.
    pub memory_bytes: usize,
}

impl Bounds {
    /// As they were typed.
    ///
    /// # Errors
    /// All that is wrong with them.
    pub fn read(args: &ScriptBoundsArgs) -> Result<Bounds, Vec<Fault>> {
        let timeout = timeout(&args.script_timeout);
        let memory = memory(&args.script_memory);
        match (timeout, memory) {
            (Ok(timeout), Ok(memory_bytes)) => Ok(Bounds { timeout, memory_bytes }),
            (timeout, memory) => Err(timeout.err().into_iter().chain(memory.err()).collect()),
        }
    }
}

/// How long a call may last.
///
/// # Errors
/// It can't be meant.
pub fn timeout(text: &str) -> Result<Duration, Fault> {
    let remedy = |fault: Fault| fault.remedy(such_as("script-timeout", "1s"));
    let fault = || Fault::of("script-timeout");
    match parse_duration_ns(text) {
        Ok(ns) if (TIMEOUT_NS.0..=TIMEOUT_NS.1).contains(&ns) => Ok(Duration::from_nanos(ns as u64)),
        Ok(_) => Err(remedy(fault().value(text, "is not from 10ms to 1h"))),
        Err(wrong) => Err(remedy(bad(fault(), wrong))),
    }
}

/// Lua's own memory, bytes.
///
/// # Errors
/// It can't be meant.
pub fn memory(text: &str) -> Result<usize, Fault> {
    let remedy = |fault: Fault| fault.remedy(such_as("script-memory", "256MiB"));
    let fault = || Fault::of("script-memory");
    match parse_size(text) {
        Ok(bytes) if (MEMORY_BYTES.0..=MEMORY_BYTES.1).contains(&bytes) => Ok(bytes as usize),
        Ok(_) => Err(remedy(fault().value(text, "is not from 1MiB to 64GiB"))),
        Err(wrong) => Err(remedy(bad(fault(), wrong))),
    }
}

/// A script that was read.
#[derive(Clone, Debug)]
pub struct Script {
    /// Its text.
    pub text: String,
    /// The C libraries that it names at its top.
    pub libraries: Vec<String>,
    /// How it is loaded.
    pub options: Options,
}

impl Script {
    /// Reads the file as text, and opens the libraries that it names. No Lua runs.
    ///
    /// # Errors
    /// It is no text, or a library isn't there.
    pub fn open(path: &Path, bounds: &Bounds) -> Result<Script, Fault> {
        let fault = || Fault::of_thing(path.to_string_lossy());
        let of_path = |fault: Fault| fault.of_subject(Subject::Thing(path.to_string_lossy().into_owned()));
        let text = text(open(path)).map_err(of_path)?;
        let names = libraries(&text);
        let opened = Libraries::open(&names).map_err(|error| match error {
            ScriptError::Library { library, cause } => fault()
                .cause(format!("the library '{library}' can't be loaded: {cause}"))
                .remedy("install it, or write the name of its file"),
            other => fault().cause(other.to_string()),
        })?;
        let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
        let options =
            Options { memory_bytes_max: bounds.memory_bytes, libraries: opened, ..Options::named(&name) };
        Ok(Script { text, libraries: names, options })
    }
}

/// Opens a script; a pipe isn't waited for.
///
/// # Errors
/// The system's.
pub fn open(path: &Path) -> io::Result<File> {
    File::options().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path)
}

/// The text of a script that somebody has opened, or couldn't. Only of a regular file: others may never end.
///
/// # Errors
/// Why it is none; whose fault it is isn't known here.
pub fn text(opened: io::Result<File>) -> Result<String, Fault> {
    let failed = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => Fault::whole("no such file").remedy("check the spelling"),
        _ => Fault::default().error(&error),
    };
    let file = opened.map_err(failed)?;
    let kind = file.metadata().map_err(failed)?;
    if kind.is_dir() {
        return Err(Fault::whole("is a folder, not a script").remedy("name the files in it"));
    }
    if !kind.is_file() {
        return Err(Fault::whole("is no regular file").remedy("save the script in a file first"));
    }
    let mut bytes = Vec::new();
    file.take(SCRIPT_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > SCRIPT_BYTES_MAX {
        let cause = format!("is longer than {}: that is no script", size(SCRIPT_BYTES_MAX));
        return Err(Fault::whole(cause).remedy("check the spelling"));
    }
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        let line = 1 + error.as_bytes()[..at].iter().filter(|&&byte| byte == b'\n').count();
        Fault::whole(format!("line {line} is not UTF-8: byte {at}")).remedy("save it as UTF-8")
    })
}

/// What Lua says of a script that can't be loaded.
pub fn report_of(error: &ScriptError) -> String {
    match error {
        ScriptError::Load { report, .. } => report.clone(),
        other => other.to_string(),
    }
}

/// A report as it is shown: Lua's tabs in front of the lines of a traceback are control characters elsewhere.
pub fn untabbed(report: &str) -> String {
    report.replace('\t', "  ")
}

/// Gives up all rights: what is read is open.
///
/// # Errors
/// The system refuses it: no Lua must run.
pub fn give_up_rights() -> Result<(), Fault> {
    let kept = scope_rights::keep_to_reading(&[]).map_err(|error| error.fault())?;
    if let Some(lack) = kept.lack() {
        say(Level::Warning, &format!("wirescope: {lack}"));
    }
    Ok(())
}
