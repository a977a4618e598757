//! Scripts as meant: their files, read as text, and the bounds of all. Nothing of them is run here.

use super::faults::Faults;
use super::{Look, count};
use crate::args::RunArgs;
use crate::script::file;
use scope_config::Settings;
use scope_engine::ScriptPlan;
use scope_fault::{Fault, Subject};
use scope_trigger::{ScriptFile, TriggerConfig};
use std::path::Path;

/// Threads of one script at most.
const THREADS_MAX: u64 = 64;
/// The script in the file of this name.
pub fn read(
    of: Subject,
    name: &str,
    args: &RunArgs,
    look: Look<'_>,
    faults: &mut Faults<'_>,
) -> Option<ScriptFile> {
    let text = match (args.scripts.get(name), look) {
        _ if name.is_empty() => Err(Fault::whole("it names no file").remedy("name one, or omit it")),
        (Some(known), _) => known.clone(),
        (None, Look::Nowhere) => return Some(ScriptFile::new(name, "")),
        (None, Look::Machine | Look::Here | Look::Known(_)) => file::text(file::open(Path::new(name))),
    };
    text.map(|text| ScriptFile::new(name, &text))
        .map_err(|fault| faults.add(fault.with_value(name).of_subject(of)))
        .ok()
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
    let memory = file::memory(&args.script_memory).map_err(|fault| faults.add(fault));
    let timeout = file::timeout(&args.script_timeout).map_err(|fault| faults.add(fault));
    ScriptPlan {
        libraries: libraries(triggers.iter()),
        memory_bytes: memory.unwrap_or_default(),
        timeout: timeout.unwrap_or_default(),
        threads: count("script-threads", &args.script_threads, THREADS_MAX, faults) as u32,
    }
}
