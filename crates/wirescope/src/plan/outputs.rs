//! How dumps are written and what follows them, as meant: form, place, budget, commands.

use super::places::{new_file, writable_folder};
use super::sources::Sources;
use super::{Faults, Look, count, duration, naming};
use crate::args::RunArgs;
use scope_dump::{DumpFormat, FreeMin, Limits, budget};
use scope_engine::exec::{FACTS_BEGIN, PROTECTED};
use scope_engine::{DumpPlan, ExecPlan, SingleDump};
use scope_spelling::values::{parse_percent, parse_size};
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Commands at once at most.
const EXEC_MAX: u64 = 256;
/// The fault of a run that could never write anything.
pub const NO_USE: &str = "nothing would be written of the capture file: no trigger starts a dump";
const NO_USE_REMEDY: &str =
    "add --trigger EXPR, or --ring-out FILE for what is in the ring at the end, or --summary json to count";
/// Endings of compressed files.
const COMPRESSED: [&str; 7] = ["gz", "zst", "xz", "bz2", "lz4", "lzma", "zip"];
/// The word for standard output.
pub const STDOUT: &str = "-";

/// The folder for dumps and the log, absolute, and how dumps are written.
pub fn plan(args: &RunArgs, look: Look<'_>, faults: &mut Faults) -> (Option<PathBuf>, DumpPlan) {
    let folder = match &args.out {
        Some(path) => writable_folder(path, "--out", look, faults),
        None if args.write.is_some() => None,
        None => {
            faults.add("--out", "there is no folder for dumps and the log; add --out DIR, or -w FILE for a single dump");
            None
        }
    };
    let plan = DumpPlan {
        format: format(args, faults),
        limits: limits(args, faults),
        single: single(args, look, faults),
        all: args.all,
        exec: exec(args, look, faults),
    };
    if args.all && args.write.is_none() {
        faults.add("--all", "there is no file that would have every window; add -w FILE or -w -");
    }
    if args.all && args.exec.is_some() {
        faults.add("--exec", "it runs after each dump, and with --all there is one file, at the end; leave one of both out");
    }
    (folder, plan)
}

/// How many dumps end the run: one where a single dump is written.
pub fn exit_after(args: &RunArgs, faults: &mut Faults) -> Option<u64> {
    let given = args.exit_after.as_ref().map(|text| count("--exit-after", text, u64::MAX, faults));
    let single = args.write.is_some() && !args.all;
    if single && given.is_some_and(|number| number > 1) {
        faults.add("--exit-after", "-w writes a single dump; write --exit-after 1, or add --all for every window in one file");
    }
    given.or(single.then_some(1))
}

/// A capture file is over before anybody fires by hand: without a trigger nothing of it would ever be written.
pub fn something_is_written(args: &RunArgs, sources: &Sources, faults: &mut Faults) {
    if !args.trigger.is_empty() || !sources.are_files_at_once() {
        return;
    }
    if args.write.is_some() {
        faults.add("-w", "of a capture file only a trigger starts a dump, and there is none; add --trigger EXPR");
    } else if args.ring_out.is_none() && args.summary.is_none() {
        faults.add_line(format!("{NO_USE}; {NO_USE_REMEDY}"));
    }
}

/// The form that was asked for; else the one that the name of a single dump says, which is pcap for `.pcap` and pcapng for all
/// others.
fn format(args: &RunArgs, faults: &mut Faults) -> DumpFormat {
    let by_name = || args.write.as_deref().is_some_and(|path| has_ending(path, &["pcap"]));
    match args.dump_format.as_deref() {
        Some("pcap") => DumpFormat::Pcap,
        None if by_name() => DumpFormat::Pcap,
        None | Some("pcapng") => DumpFormat::Pcapng,
        Some(other) => {
            faults.add("--dump-format", format!("'{other}' is no form of a dump; write pcapng or pcap"));
            DumpFormat::Pcapng
        }
    }
}

/// Whether a file's name ends in one of these, in any case.
fn has_ending(path: &Path, endings: &[&str]) -> bool {
    let ending = path.extension().map(|ending| ending.to_string_lossy().to_ascii_lowercase());
    ending.is_some_and(|ending| endings.contains(&&*ending))
}

/// A name that promises a compressed file, which none is.
pub fn refuse_compressed(path: &Path, place: &str, faults: &mut Faults) {
    if has_ending(path, &COMPRESSED) {
        let plain = path.with_extension("");
        let (path, plain) = (path.display(), plain.display());
        faults.add(place, format!("{path} would not be compressed; write {place} {plain} and compress that file afterwards"));
    }
}

/// The whole ring is written as pcapng, so that it can be read again.
pub fn refuse_pcap(path: &Path, place: &str, faults: &mut Faults) {
    if has_ending(path, &["pcap"]) {
        let pcapng = path.with_extension("pcapng");
        let (path, pcapng) = (path.display(), pcapng.display());
        faults.add(place, format!("{path} would be a pcapng file under the name of a pcap one; write {place} {pcapng}"));
    }
}

fn limits(args: &RunArgs, faults: &mut Faults) -> Limits {
    let bytes_max = args.dump_budget.as_ref().and_then(|text| match parse_size(text) {
        Ok(bytes) if bytes >= budget::ROOM_MIN => Some(bytes),
        Ok(_) => {
            faults.add("--dump-budget", format!("'{text}' is too little for any dump; write at least 1MiB"));
            None
        }
        Err(cause) => {
            faults.add("--dump-budget", format!("{}; write e.g. --dump-budget 50GiB", naming(text, cause)));
            None
        }
    });
    let free_min = args.dump_min_free.as_ref().and_then(|text| free_min(text, faults));
    let given = [
        ("--dump-budget", args.dump_budget.is_some()),
        ("--dump-min-free", args.dump_min_free.is_some()),
        ("--dump-rotate", args.dump_rotate),
    ];
    if args.write.is_some() {
        for (flag, _) in given.iter().filter(|(_, given)| *given) {
            faults.add(flag, "it bounds the dumps of a folder, and -w writes a single one; leave it away, or write --out DIR");
        }
    } else if args.dump_rotate && args.dump_budget.is_none() && args.dump_min_free.is_none() {
        faults
            .add("--dump-rotate", "there is no bound at which old dumps would be deleted; add --dump-budget or --dump-min-free");
    }
    Limits { bytes_max, free_min, rotate: args.dump_rotate }
}

fn free_min(text: &str, faults: &mut Faults) -> Option<FreeMin> {
    let parsed = match text.trim_end().ends_with('%') {
        true => parse_percent(text).map(FreeMin::Ppm),
        false => parse_size(text).map(FreeMin::Bytes),
    };
    match parsed {
        Ok(FreeMin::Ppm(ppm)) if ppm >= 1_000_000 => {
            faults.add("--dump-min-free", format!("'{text}' is the whole file system; write less than 100%"));
            None
        }
        Ok(free_min) => Some(free_min),
        Err(cause) => {
            faults.add("--dump-min-free", format!("{}; write e.g. --dump-min-free 10% or 5GiB", naming(text, cause)));
            None
        }
    }
}

fn single(args: &RunArgs, look: Look<'_>, faults: &mut Faults) -> Option<SingleDump> {
    let text = args.write.as_deref()?;
    if text != Path::new(STDOUT) {
        refuse_compressed(text, "-w", faults);
        return new_file(text, "-w", look, faults).map(SingleDump::File);
    }
    if args.summary.is_some() {
        faults.add("-w", "the dump and --summary can't both have standard output; write -w FILE, or leave --summary away");
    }
    if look == Look::Machine && std::io::stdout().is_terminal() {
        let remedy = "add e.g. | tshark -r - behind the command, or write -w FILE";
        faults.add("-w", format!("standard output is a terminal, and a dump is no text; {remedy}"));
    }
    Some(SingleDump::Stdout)
}

fn exec(args: &RunArgs, look: Look<'_>, faults: &mut Faults) -> Option<ExecPlan> {
    let at_once = count("--exec-max", &args.exec_max, EXEC_MAX, faults);
    let timeout_ns = duration("--exec-timeout", &args.exec_timeout, faults);
    let writable = args.exec_write.iter().filter_map(|path| writable_folder(path, "--exec-write", look, faults)).collect();
    for name in &args.exec_env {
        if let Some(fault) = fault_of_variable(name) {
            faults.add("--exec-env", fault);
        }
    }
    let command = args.exec.clone()?;
    if command.trim().is_empty() || command.contains('\0') {
        faults.add("--exec", "there is no command in it; write e.g. --exec 'gzip \"$WIRESCOPE_FILE\"'");
    }
    if timeout_ns == 0 {
        faults.add("--exec-timeout", "a command needs some time; write e.g. --exec-timeout 60s");
    }
    Some(ExecPlan {
        command,
        at_once: at_once as usize,
        timeout: Duration::from_nanos(timeout_ns.max(0) as u64),
        writable,
        environment: args.exec_env.iter().map(Into::into).collect(),
    })
}

/// Why commands can't have this variable.
fn fault_of_variable(name: &str) -> Option<String> {
    let is_letter = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    if name.is_empty() || name.starts_with(|first: char| first.is_ascii_digit()) || !name.chars().all(is_letter) {
        return Some(format!("'{name}' is no name of a variable; write e.g. --exec-env SSH_AUTH_SOCK"));
    }
    if PROTECTED.contains(&name) {
        return Some(format!("'{name}' is for the run alone: by it the service manager knows the run; leave it away"));
    }
    let own = name == "TMPDIR" || name.starts_with(FACTS_BEGIN);
    own.then(|| format!("'{name}' is set for each command anyhow; leave it away"))
}
