//! The main job, shown: traffic, one trigger packet, a dump from before and after it, told in plain words.

mod live;

use crate::args::{Cli, DemoArgs};
use crate::beside::BesideHandle;
use crate::config;
use crate::plan::{self, Look, Planned};
use crate::record::{self, Ended};
use crate::{DONE, REFUSED, UNDONE, failed, print_text, refused, words};
use clap::CommandFactory;
use scope_engine::{Control, DumpSummary, Summary};
use scope_fault::Fault;
use scope_packet::{Interface, Packet, Sink};
use scope_source::file::{FileOptions, FileSource};
use scope_source::{Polled, Source, SourceError};
use scope_spelling::time::iso;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What is generated: about 3 s of it fit into the ring, so the ring turns three times while the demo runs.
const TRAFFIC: &str = "synth:rate=100k,size=imix,flows=1000,vlan=10%,seed=1,time=10s,trigger-at=6s";
/// The ring.
const RING: &str = "128MiB";
/// What is waited for.
const TRIGGER: &str = "demo=udp port 60000";
/// A sixteenth of the hosts, so that the file stays small, and whoever sent the trigger packet.
const TEMPLATE: &str = "net 10.0.0.0/20 or host $srcIP";
/// Window before the trigger packet, s.
const BEFORE_S: &str = "2";
/// Window behind it, s.
const AFTER_S: &str = "1";
/// New folders that are tried for a free name.
const FOLDERS_MAX: u32 = 10_000;

/// Runs the demo and returns the exit code.
pub fn demo(args: &DemoArgs) -> u8 {
    if args.live
        && let Err(fault) = live::check()
    {
        return refused(&[fault]);
    }
    match folder(args.out.as_deref()) {
        Ok(folder) if args.live => live::demo(&folder),
        Ok(folder) => generated(&folder),
        Err(fault) => refused(&[fault]),
    }
}

/// The folder for the dump, made if it isn't there: the given one, or a new one in the build folder or in
/// this one.
fn folder(given: Option<&Path>) -> Result<PathBuf, Fault> {
    let told = |path: &Path, error: io::Error| {
        let fault = Fault::of_thing(path.to_string_lossy()).cause(format!("can't be made: {error}"));
        fault.remedy("give another with --out DIR")
    };
    if let Some(path) = given {
        return std::fs::create_dir_all(path).map(|()| path.to_path_buf()).map_err(|error| told(path, error));
    }
    let built_here = Path::new("target/CACHEDIR.TAG").exists();
    let first = if built_here { "target/demo" } else { "wirescope-demo" };
    for number in 1..=FOLDERS_MAX {
        let path =
            if number == 1 { PathBuf::from(first) } else { PathBuf::from(format!("{first}-{number}")) };
        match std::fs::create_dir(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            result => return result.map(|()| path.clone()).map_err(|error| told(&path, error)),
        }
    }
    let fault = Fault::of_thing(first).cause(format!("{FOLDERS_MAX} folders of that name are there"));
    Err(fault.remedy("remove some, or give one with --out DIR"))
}

fn generated(folder: &Path) -> u8 {
    let arguments = arguments(TRAFFIC, TEMPLATE, folder);
    tell(
        "Wirescope demo: 100,000 generated packets a second in 1000 flows, for 10 s. The ring always holds the last 3 s of them.\n\
         After 6 s one UDP packet goes to port 60000. That is the trigger: 2 s before it and 1 s after it become a dump.",
    );
    tell_command(&arguments);
    let ended = match planned(&arguments) {
        Ok(planned) => record::record(planned, &Arc::new(Control::default()), &BesideHandle::default()),
        Err(faults) => return refused(&faults),
    };
    told(ended)
}

/// The command line that does the demo's work.
fn arguments(source: &str, template: &str, folder: &Path) -> Vec<String> {
    let flags = ["run", "--source", source, "--ring", RING, "--trigger", TRIGGER, "--dump", template];
    let window =
        ["--before", BEFORE_S, "--after", AFTER_S, "--out", &folder.to_string_lossy()].map(str::to_string);
    flags.into_iter().map(str::to_string).chain(window).collect()
}

/// The same way as from the command line: there is no second one.
fn planned(arguments: &[String]) -> Result<Planned, Vec<Fault>> {
    let program = std::iter::once("wirescope".to_string());
    let matches = Cli::command().try_get_matches_from(program.chain(arguments.iter().cloned()));
    let matches = matches.map_err(|error| vec![Fault::of_thing("demo").error(&error)])?;
    let run = matches.subcommand_matches("run");
    let run = run.ok_or_else(|| vec![Fault::of_thing("demo").cause("its command is not 'run'")])?;
    plan::plan(&config::read(run)?, Look::Machine).map(keep_rights)
}

/// The demo's other threads send, wire and clear up: this process keeps its rights.
fn keep_rights(mut planned: Planned) -> Planned {
    planned.run.fixed.rights = None;
    planned
}

fn tell(text: &str) {
    print_text(&format!("{text}\n"));
}

fn tell_command(arguments: &[String]) {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./:=,".contains(c);
    let quoted = |word: &String| match !word.is_empty() && word.chars().all(plain) {
        true => word.clone(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    };
    let command: Vec<String> = arguments.iter().map(quoted).collect();
    tell(&format!("The same by hand: wirescope {}\n", command.join(" ")));
}

/// Says what happened; the last line is the path of the dump, alone.
fn told(ended: Ended) -> u8 {
    let summary = match ended {
        Ended::Refused(fault) => {
            refused(&[fault]);
            return REFUSED;
        }
        Ended::Failed(fault) => return failed(&fault),
        Ended::Done(summary) => summary,
    };
    let dropped: u64 = summary.dropped.iter().map(|(_, packets)| packets).sum();
    let (packets, dropped) = (words::counted(summary.received.packets, "packet"), words::number(dropped));
    tell(&format!("\nWhat happened\n  {packets} were recorded, {dropped} dropped."));
    let Some((dump, path)) =
        summary.dumps.first().and_then(|dump| dump.paths.first().map(|path| (dump, path)))
    else {
        return failed(
            &Fault::of_thing("demo").cause("it ended before the trigger packet came, so there is no dump"),
        );
    };
    match contents(dump, path) {
        Ok(text) => tell(&text),
        Err(error) => return failed(&error.reason()),
    }
    print_text(&format!("{}\n", path.display()));
    code(&summary)
}

fn code(summary: &Summary) -> u8 {
    for failure in &summary.failures {
        failed(&failure.fault);
    }
    if record::kept_promises(summary) { DONE } else { UNDONE }
}

/// What the dump holds, read back from the file itself.
fn contents(dump: &DumpSummary, path: &Path) -> Result<String, SourceError> {
    let mut count = AroundHit { time_ns: dump.time_ns, ..AroundHit::default() };
    let mut file = FileSource::open(FileOptions {
        paths: vec![path.to_string_lossy().into_owned()],
        ..FileOptions::default()
    })?;
    while file.poll(&mut count)? != Polled::Ended {}
    let whole = match dump.complete {
        true => "It is complete: nothing of its window is missing.".to_string(),
        false => format!("It is {}.", words::completeness(dump)),
    };
    let path = path.display();
    Ok(format!(
        "  Trigger '{}' fired at {}: one UDP packet to port 60000.\n  \
         The dump holds {}: {} from before the trigger packet, {} from after it.\n  \
         Its filter: {}\n  {whole}\n  \
         Open it with:  wireshark '{path}'\n            or:  tcpdump -n -r - < '{path}'",
        dump.trigger,
        iso(dump.time_ns),
        words::counted(dump.packets, "packet"),
        words::number(count.before),
        words::number(count.after),
        dump.filter,
    ))
}

/// Counts packets before and after a hit.
#[derive(Default)]
struct AroundHit {
    time_ns: i64,
    before: u64,
    after: u64,
}

impl Sink for AroundHit {
    fn interface(&mut self, _: &Interface) {}
    fn batch(&mut self, packets: &[Packet<'_>]) {
        self.before += packets.iter().filter(|packet| packet.time_ns < self.time_ns).count() as u64;
        self.after += packets.iter().filter(|packet| packet.time_ns > self.time_ns).count() as u64;
    }
    fn lost(&mut self, _: u32, _: u64, _: i64, _: i64) {}
    fn idle(&mut self, _: i64) {}
}
