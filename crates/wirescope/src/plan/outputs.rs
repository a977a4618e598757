//! How dumps are written and what follows them, as meant: form, place, budget, commands.

use super::faults::{Faults, add, bad, such_as};
use super::places::{STDOUT, has_ending, new_file, refuse_compressed, writable_folder};
use super::sources::Sources;
use super::{Look, count, duration, min_free};
use crate::args::RunArgs;
use scope_dump::{DumpFormat, Limits, budget};
use scope_engine::exec::{FACTS_BEGIN, PROTECTED};
use scope_engine::{DumpPlan, ExecPlan, SingleDump};
use scope_fault::{Fault, Setting, sentence};
use scope_spelling::values::parse_size;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Commands at once at most.
const EXEC_MAX: u64 = 256;
/// The folder for dumps and the log, absolute, and how dumps are written; `has_dumps`: there has to be a place for
/// them.
pub fn plan(
    args: &RunArgs,
    look: Look<'_>,
    has_dumps: bool,
    faults: &mut Faults<'_>,
) -> (Option<PathBuf>, DumpPlan) {
    let folder = match &args.out {
        Some(path) => writable_folder(path, "out", look, faults),
        None if args.write.is_some() || !has_dumps || args.is_stats && args.trigger.is_empty() => None,
        None => {
            let (out, write) = (Setting::of("out").example("DIR"), Setting::of("write").example("FILE"));
            let fault = Fault::of("out").cause("there is no folder for dumps and the log").missing();
            faults.add(fault.remedy(sentence![add(), out, ", or ", write, " for a single dump"]));
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
        let write = |example| Setting::of("write").example(example);
        let fault = Fault::of("all").cause("there is no file that would have every window");
        faults.add(fault.remedy(sentence!["add ", write("FILE"), " or ", write("-")]));
    }
    if args.all && args.exec.is_some() {
        let cause = sentence![
            "it runs after each dump, and with ",
            Setting::of("all"),
            " there is one file, at the end"
        ];
        faults.add(Fault::of("exec").cause(cause).remedy("omit one of them"));
    }
    (folder, plan)
}

/// How many dumps end the run: one where a single dump is written.
pub fn exit_after(args: &RunArgs, faults: &mut Faults<'_>) -> Option<u64> {
    let given = args.exit_after.as_ref().map(|text| count("exit-after", text, u64::MAX, faults));
    let single = args.write.is_some() && !args.all;
    if single && given.is_some_and(|number| number > 1) {
        let fault = Fault::of("exit-after").cause(sentence![Setting::of("write"), " writes a single dump"]);
        let (one, all) = (Setting::of("exit-after").example("1"), Setting::of("all"));
        faults.add(fault.remedy(sentence!["write ", one, ", or add ", all, " for every window in one file"]));
    }
    given.or(single.then_some(1))
}

/// A capture file is over before anybody fires by hand: without a trigger nothing of it would ever be
/// written.
pub fn something_is_written(args: &RunArgs, sources: &Sources, faults: &mut Faults<'_>) {
    if args.is_stats && !args.stats.are_wanted() {
        let fault = Fault::of("db").cause("there is no place for the statistics").missing();
        let (db, ipfix) = (Setting::of("db").example("PATH"), Setting::of("ipfix").example("ADDR:PORT"));
        return faults.add(fault.remedy(sentence![add(), db, " or ", ipfix]));
    }
    if !args.trigger.is_empty() || !sources.are_files_at_once() {
        return;
    }
    let trigger = Setting::of("trigger").example("EXPR");
    if args.write.is_some() {
        let fault =
            Fault::of("write").cause("only a trigger starts a dump of a capture file, and there is none");
        faults.add(fault.remedy(sentence![add(), trigger]).missing());
    } else if args.ring_out.is_none()
        && args.summary.is_none()
        && args.store.is_empty()
        && args.group.is_empty()
        && !args.stats.are_wanted()
    {
        let (ring_out, summary) =
            (Setting::of("ring-out").example("FILE"), Setting::of("summary").example("json"));
        let fault = Fault::of("source")
            .cause("nothing would be written of the capture file: no trigger starts a dump");
        let at_the_end = " for what is in the ring at the end, ";
        let store = Setting::of("store").example("DIR");
        faults.add(
            fault
                .remedy(sentence![
                    add(),
                    trigger,
                    ", ",
                    store,
                    " for all of it, ",
                    ring_out,
                    at_the_end,
                    "or ",
                    summary,
                    " to count"
                ])
                .missing(),
        );
    }
}

/// The form that was asked for; else the one that the name of a single dump says, which is pcap for `.pcap`
/// and pcapng for all others.
fn format(args: &RunArgs, faults: &mut Faults<'_>) -> DumpFormat {
    let by_name = || args.write.as_deref().is_some_and(|path| has_ending(path, &["pcap"]));
    match args.dump_format.as_deref() {
        Some("pcap") => DumpFormat::Pcap,
        None if by_name() => DumpFormat::Pcap,
        None | Some("pcapng") => DumpFormat::Pcapng,
        Some(other) => {
            faults.add(
                Fault::of("dump-format").value(other, "is not a dump format").remedy("write pcapng or pcap"),
            );
            DumpFormat::Pcapng
        }
    }
}

fn limits(args: &RunArgs, faults: &mut Faults<'_>) -> Limits {
    let bytes_max = args.dump_budget.as_ref().and_then(|text| match parse_size(text) {
        Ok(bytes) if bytes >= budget::ROOM_MIN => Some(bytes),
        Ok(_) => {
            faults.add(
                Fault::of("dump-budget")
                    .value(text, "is too little for any dump")
                    .remedy("write at least 1MiB"),
            );
            None
        }
        Err(cause) => {
            faults.add(bad(Fault::of("dump-budget"), cause).remedy(such_as("dump-budget", "50GiB")));
            None
        }
    });
    let free_min = args.dump_min_free.as_ref().and_then(|text| min_free("dump-min-free", text, faults));
    let given = [
        ("dump-budget", args.dump_budget.is_some()),
        ("dump-min-free", args.dump_min_free.is_some()),
        ("dump-rotate", args.dump_rotate),
    ];
    if args.write.is_some() {
        for (key, _) in given.iter().filter(|(_, given)| *given) {
            let cause = sentence![
                "it bounds the dumps of a folder, and ",
                Setting::of("write"),
                " writes a single one"
            ];
            let remedy = sentence!["omit it, or write ", Setting::of("out").example("DIR")];
            faults.add(Fault::of(*key).cause(cause).remedy(remedy));
        }
    } else if args.dump_rotate && args.dump_budget.is_none() && args.dump_min_free.is_none() {
        let fault = Fault::of("dump-rotate").cause("there is no bound at which old dumps would be deleted");
        let remedy = sentence!["add ", Setting::of("dump-budget"), " or ", Setting::of("dump-min-free")];
        faults.add(fault.remedy(remedy));
    }
    Limits { bytes_max, free_min, rotate: args.dump_rotate }
}

fn single(args: &RunArgs, look: Look<'_>, faults: &mut Faults<'_>) -> Option<SingleDump> {
    let text = args.write.as_deref()?;
    if text != Path::new(STDOUT) {
        refuse_compressed(text, "write", faults);
        return new_file(text, "write", look, faults).map(SingleDump::File);
    }
    if args.summary.is_some() {
        let summary = || Setting::of("summary");
        let fault = Fault::of("write").cause(sentence![
            "the dump and ",
            summary(),
            " can't both use standard output"
        ]);
        let file = Setting::of("write").example("FILE");
        faults.add(fault.remedy(sentence!["write ", file, ", or omit ", summary()]));
    }
    if look == Look::Machine && std::io::stdout().is_terminal() {
        let fault = Fault::of("write").cause("standard output is a terminal, and a dump is not text");
        let file = Setting::of("write").example("FILE");
        faults.add(fault.remedy(sentence!["append e.g. | tshark -r - to the command, or write ", file]));
    }
    Some(SingleDump::Stdout)
}

fn exec(args: &RunArgs, look: Look<'_>, faults: &mut Faults<'_>) -> Option<ExecPlan> {
    let at_once = count("exec-max", &args.exec_max, EXEC_MAX, faults);
    let timeout_ns = duration(Fault::of("exec-timeout"), "exec-timeout", &args.exec_timeout, faults);
    let writable =
        args.exec_write.iter().filter_map(|path| writable_folder(path, "exec-write", look, faults)).collect();
    for name in &args.exec_env {
        if let Some(fault) = fault_of_variable(name) {
            faults.add(fault);
        }
    }
    let command = args.exec.clone()?;
    if command.trim().is_empty() || command.contains('\0') {
        let remedy = such_as("exec", "'gzip \"$WIRESCOPE_FILE\"'");
        faults.add(Fault::of("exec").with_value(&command).cause("there is no command in it").remedy(remedy));
    }
    if timeout_ns == 0 {
        let remedy = such_as("exec-timeout", "60s");
        faults.add(Fault::of("exec-timeout").cause("a command needs some time").remedy(remedy));
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
fn fault_of_variable(name: &str) -> Option<Fault> {
    let fault = Fault::of("exec-env");
    let is_letter = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    if name.is_empty()
        || name.starts_with(|first: char| first.is_ascii_digit())
        || !name.chars().all(is_letter)
    {
        return Some(
            fault.value(name, "is not a variable name").remedy(such_as("exec-env", "SSH_AUTH_SOCK")),
        );
    }
    if PROTECTED.contains(&name) {
        let is = "belongs to the run alone: the service manager identifies the run by it";
        return Some(fault.value(name, is).remedy("omit it"));
    }
    let own = name == "TMPDIR" || name.starts_with(FACTS_BEGIN);
    own.then(|| fault.value(name, "is always set for commands").remedy("omit it"))
}
