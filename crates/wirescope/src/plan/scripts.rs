//! Scripts as meant: their files, read as text, and the bounds of all. Nothing of them is run here.

use super::faults::{self, Faults, such_as};
use super::{Look, count, duration};
use crate::args::RunArgs;
use scope_config::Settings;
use scope_engine::ScriptPlan;
use scope_fault::{Fault, Subject};
use scope_spelling::values::parse_size;
use scope_trigger::{ScriptFile, TriggerConfig};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::time::Duration;

/// Longest script, bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// Threads of one script at most.
const THREADS_MAX: u64 = 64;
/// Lua's memory of one, bytes, at least.
const MEMORY_BYTES_MIN: u64 = 1 << 20;
/// See [`MEMORY_BYTES_MIN`]: LuaJIT's collector reaches no more.
const MEMORY_BYTES_MAX: u64 = 64 << 30;
/// Shortest time that a call may last, ns.
const TIMEOUT_NS_MIN: i64 = 10_000_000;

/// What `file` has.
pub fn read(
    of: Subject,
    file: &str,
    args: &RunArgs,
    look: Look<'_>,
    faults: &mut Faults<'_>,
) -> Option<ScriptFile> {
    let text = match (args.scripts.get(file), look) {
        _ if file.is_empty() => Err(Fault::whole("it names no file").remedy("name one, or omit it")),
        (Some(known), _) => known.clone(),
        (None, Look::Nowhere) => return Some(ScriptFile::new(file, "")),
        (None, Look::Machine | Look::Here | Look::Known(_)) => text(open(file)),
    };
    text.map(|text| ScriptFile::new(file, &text))
        .map_err(|fault| faults.add(fault.with_value(file).of_subject(of)))
        .ok()
}

/// Opens a script; a pipe isn't waited for.
pub fn open(file: &str) -> io::Result<File> {
    File::options().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(file)
}

/// The text of a script that somebody has opened, or couldn't.
///
/// # Errors
/// Why it is none; its place isn't known here.
pub fn text(opened: io::Result<File>) -> Result<String, Fault> {
    let refused = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => Fault::whole("there is no such file").remedy("write it, or name another"),
        _ => {
            Fault::whole(format!("it can't be read: {error}")).remedy("name another file, or change its mode")
        }
    };
    let file = opened.map_err(refused)?;
    let kind = file.metadata().map_err(refused)?;
    if kind.is_dir() {
        return Err(Fault::whole("it is a folder").remedy("name a file"));
    }
    if !kind.is_file() {
        return Err(Fault::whole("it is no regular file").remedy("name one that can be read again"));
    }
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(refused)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(Fault::whole("it is longer than 1 MiB, the most that a script may have")
            .remedy("name another file"));
    }
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        Fault::whole(format!("it is not UTF-8 text (at byte {at})"))
            .remedy("save it as UTF-8, or name another file")
    })
}

/// All files of scripts that the settings name.
pub fn files(settings: &Settings) -> Vec<String> {
    let elements = ["trigger", "dump"].into_iter().flat_map(|key| settings.values(key));
    let own = elements.filter_map(|value| value.own.as_ref());
    let named = own.flat_map(|own| ["script", "dump-script"].into_iter().filter_map(|word| own.get(word)));
    let general =
        settings.values("dump-script").iter().map(|value| value.text.to_string_lossy().into_owned());
    let mut files: Vec<String> = named.map(|own| own.text.clone()).chain(general).collect();
    files.sort();
    files.dedup();
    files
}

/// Libraries that scripts name.
pub fn libraries<'a>(triggers: impl Iterator<Item = &'a TriggerConfig>) -> Vec<String> {
    let of = |trigger: &'a TriggerConfig| {
        trigger.condition.script().into_iter().chain(trigger.response.script.as_ref())
    };
    let mut libraries: Vec<String> =
        triggers.flat_map(of).flat_map(|script| scope_script::libraries(script.text())).collect();
    libraries.sort();
    libraries.dedup();
    libraries
}

/// The bounds of scripts.
pub fn plan(args: &RunArgs, triggers: &[TriggerConfig], faults: &mut Faults<'_>) -> ScriptPlan {
    let fault = Fault::of("script-memory");
    let memory_bytes = match parse_size(&args.script_memory) {
        Ok(bytes @ MEMORY_BYTES_MIN..=MEMORY_BYTES_MAX) => bytes,
        Ok(_) => {
            faults.add(
                fault.value(&args.script_memory, "is too little, or too much").remedy("write 1MiB to 64GiB"),
            );
            MEMORY_BYTES_MIN
        }
        Err(cause) => {
            faults.add(faults::bad(fault, cause).remedy(such_as("script-memory", "256MiB")));
            MEMORY_BYTES_MIN
        }
    };
    let before = faults.len();
    let timeout_ns = duration(Fault::of("script-timeout"), "script-timeout", &args.script_timeout, faults);
    if faults.len() == before && timeout_ns < TIMEOUT_NS_MIN {
        let fault = Fault::of("script-timeout").value(&args.script_timeout, "is too short");
        faults.add(fault.remedy("write at least 10ms"));
    }
    ScriptPlan {
        libraries: libraries(triggers.iter()),
        memory_bytes: memory_bytes as usize,
        timeout: Duration::from_nanos(timeout_ns.max(0) as u64),
        threads: count("script-threads", &args.script_threads, THREADS_MAX, faults) as u32,
    }
}
