//! `wirescope import`: capture files into a store, through the same path as `run -r`.
//!
//! 1. The command line becomes that of a run which reads these files and stores what they have; it is checked as
//!    such. Of the files only the first bytes are compared.
//! 2. A file that is as long as one that was imported before is hashed: the same bytes are refused.
//! 3. The run opens files and stores. Called by root it becomes the stores' owner. It gives up its rights, and only
//!    then it parses a byte.
//! 4. Each file is hashed while it is read. Once all is on the disk, what was imported is noted in the stores.
//!
//! A capture file waits for the disk, so nothing is lost to speed. Ctrl-C ends an import early: what was read is in
//! the store then, and nothing is noted.

mod files;
mod watching;

use crate::args::{Cli, ImportArgs, RunArgs};
use crate::plan::faults::of_engine;
use crate::plan::{self, Planned};
use crate::speech::{self, Level, say};
use crate::words::{self, counted, number, size};
use crate::{NoResult, UNDONE, config, print_text, refused, told};
use clap::CommandFactory;
use files::{Came, Files};
use scope_engine::{Control, EngineError, Order, Summary};
use scope_events::now_ns;
use scope_fault::{Fault, Sentence, Setting, sentence};
use scope_folder::Folder;
use scope_rights::{RightsError, RightsPlan, User, UserChoice};
use scope_source::spec::{self, SourceSpec};
use scope_spelling::printable::json_line;
use scope_store::imports::Imported;
use scope_store::volume::Store;
use scope_store::{Amount, VolumeReport};
use serde_json::{Value, json};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use watching::Watching;

/// Memory for packets on their way, where nothing else is said: the disk is the narrow place.
const RING: &str = "256MiB";
/// Who a new store belongs to where root makes it, the first that there is: as with `run`.
const OWNERS: [&str; 2] = ["wirescope", "nobody"];

/// What is asked for, understood.
struct Asked {
    planned: Planned,
    files: Files,
    stores: Vec<PathBuf>,
}

/// Imports. Exit codes: 0 all is in the store, 1 something wasn't, 2 refused before anything was read.
pub fn import(args: &ImportArgs) -> u8 {
    let asked = match understand(args) {
        Ok(asked) => asked,
        Err(faults) => return refused(&faults),
    };
    let Asked { mut planned, files, stores } = asked;
    let made: Vec<PathBuf> = stores.iter().filter(|path| !path.exists()).cloned().collect();
    let opened = match open(&stores, &mut planned) {
        Ok(opened) => opened,
        Err(fault) => return refused(&[fault]),
    };
    let (control, signal) = (Arc::new(Control::default()), Arc::new(AtomicI32::new(0)));
    if let Err(error) = listen(&control, &signal) {
        return told(Err(NoResult::Failed(Fault::of_thing("signals").error(&error))));
    }
    let run_id = planned.run.fixed.ring.run_id;
    let watching = Watching::new(&files);
    let ended = scope_engine::run(planned.run, &control, &watching);
    watching.clear();
    let summary = match ended {
        Ok(summary) => summary,
        Err(error) if watching.has_started() => return told(Err(NoResult::Failed(of_import(error)))),
        Err(error) => {
            for path in made {
                let _ = fs::remove_dir(path); // where the run has made no store of it
            }
            return refused(&[of_import(error)]);
        }
    };
    let came = files.came();
    let mut faults = lacks(&summary, &came);
    faults.extend(gone(args, &summary));
    let signal = signal.load(Ordering::Relaxed);
    let is_all_in = signal == 0 && is_all_in(&summary) && came.iter().all(|file| file.has_ended);
    if is_all_in {
        faults.extend(note(opened, &files, &came, run_id).err().into_iter().flatten());
    } else if signal == 0 && faults.is_empty() {
        faults.push(Fault::whole("not everything is in the store"));
    }
    let text = match args.json {
        true => format!("{}\n", json_line(&object(&summary, &came, run_id, is_all_in, &faults).to_string())),
        false => in_words(&summary, &came, &stores, run_id),
    };
    let code = print_text(&text);
    for fault in &faults {
        speech::say_fault(fault);
    }
    match signal {
        0 if faults.is_empty() && came.iter().all(|file| file.is_whole) => code,
        0 => UNDONE,
        signal => {
            say(Level::Warning, "wirescope: stopped: what was read is in the store, and no file is noted");
            128 + signal as u8
        }
    }
}

/// An error of the run, as a fault of the import: who it becomes is decided by the store, no setting says it.
fn of_import(error: EngineError) -> Fault {
    let EngineError::Rights(rights) = &error else { return of_engine(error) };
    let becomes = "an import by root becomes the owner of the store";
    match rights {
        RightsError::NotWritable { give, .. } => {
            Fault::of("store").cause(format!("{becomes}; {}", rights.fault().why())).remedy(give.clone())
        }
        RightsError::NotAllowed { .. } => {
            let fault = Fault::of("store").cause(format!("{becomes}; {}", rights.fault().why()));
            fault.remedy("call it as that user")
        }
        _ => of_engine(error),
    }
}

/// All that can be wrong before anything is opened for good.
fn understand(args: &ImportArgs) -> Result<Asked, Vec<Fault>> {
    let mut faults: Vec<Fault> = args.source.iter().filter_map(|text| not_whole(text)).collect();
    let run = run_args(args)?;
    let mut planned = match plan::import(&run) {
        Ok(planned) if faults.is_empty() => planned,
        Ok(_) => return Err(faults),
        Err(more) => {
            faults.extend(more);
            return Err(faults);
        }
    };
    let volumes = planned.run.fixed.store.iter().flat_map(|store| &store.volumes);
    let stores: Vec<PathBuf> = volumes.map(|volume| volume.folder.clone()).collect();
    let files = Files::look(&mut planned.run.fixed.sources, &stores, args.again)?;
    Ok(Asked { planned, files, stores })
}

/// Why a source isn't a file that is imported as it is; of what can't be read the plan says it.
fn not_whole(text: &str) -> Option<Fault> {
    let SourceSpec { plan, share, prefilter, .. } = spec::parse(text).ok()?;
    let Some(file) = plan.file() else {
        let fault = Fault::of_source(text).cause("it is no capture file");
        return Some(fault.remedy("record it: wirescope run --source SRC --store DIR --out DIR"));
    };
    let given = [
        ("pace", file.pace.is_some()),
        ("workers", file.workers > 1),
        ("snaplen", file.snap_len.is_some()),
        ("share", share.is_some()),
        ("prefilter", prefilter.is_some()),
    ];
    let (option, _) = given.into_iter().find(|(_, given)| *given)?;
    let fault =
        Fault::of_option(text, option).cause("files are imported whole, as fast as the disk takes them");
    Some(fault.remedy("omit it"))
}

/// The same as the command line of a run.
fn run_args(args: &ImportArgs) -> Result<RunArgs, Vec<Fault>> {
    let mut line: Vec<OsString> = vec!["wirescope".into(), "run".into()];
    let mut add = |flag: &str, value: OsString| {
        let mut word = OsString::from(format!("--{flag}="));
        word.push(value);
        line.push(word);
    };
    add("ring", args.ring.as_deref().unwrap_or(RING).into());
    let files = args.files.iter().map(|path| format!("file:{}", spec::escape(path)));
    for source in args.source.iter().cloned().chain(files) {
        add("source", source.into());
    }
    for path in &args.store {
        add("store", path.into());
    }
    let lists = [
        ("store-budget", &args.store_budget),
        ("store-age", &args.store_age),
        ("store-min-free", &args.store_min_free),
        ("store-file", &args.store_file),
    ];
    for (flag, values) in lists {
        for value in values {
            add(flag, value.into());
        }
    }
    if let Some(folder) = &args.out {
        add("out", folder.into());
    }
    if args.store_chain {
        add("store-chain", "true".into());
    }
    let matches = Cli::command().try_get_matches_from(line);
    let matches = matches.map_err(|error| vec![Fault::whole(error.to_string().trim_end().to_string())])?;
    config::read(crate::below(&matches, &["run"]))
}

/// Opens the folders of the stores while every path can be, and makes new ones; decides who the import is to be.
fn open(stores: &[PathBuf], planned: &mut Planned) -> Result<Vec<Folder>, Fault> {
    let user = user(stores, planned.run.fixed.folder.as_deref())?;
    let owner = user.as_ref().map(|user| (user.uid, user.gid));
    if let Some(user) = user {
        planned.run.fixed.rights = Some(RightsPlan { user: UserChoice::Named(user), selftest: false });
    }
    let fault = |path: &Path, error| Fault::of("store").with_value(path.to_string_lossy()).error(&error);
    let open = |path: &PathBuf| Folder::make(path, owner).and_then(|()| Folder::open(path));
    stores.iter().map(|path| open(path).map_err(|error| fault(path, error))).collect()
}

/// Who root is to become: the owner of the stores; where all are new, that of the log's folder, else who a run would
/// be. `None`: whoever calls stays who it is.
fn user(stores: &[PathBuf], log: Option<&Path>) -> Result<Option<User>, Fault> {
    if User::current().uid != 0 {
        return Ok(None);
    }
    let mut owner: Option<(&Path, u32, u32)> = None;
    let is_new = stores.iter().all(|path| !path.exists());
    for path in stores.iter().map(PathBuf::as_path).chain(log.filter(|_| is_new)) {
        let Ok(facts) = path.metadata() else { continue };
        match owner {
            Some((other, uid, gid)) if (uid, gid) != (facts.uid(), facts.gid()) => {
                let (path, other) = (path.display(), other.display());
                let fault =
                    Fault::of("store").cause(format!("{other} and {path} belong to different owners"));
                return Err(fault.remedy("give them the same owner and group, or import into each alone"));
            }
            _ => owner = Some((path, facts.uid(), facts.gid())),
        }
    }
    let failed = |error| Fault::of_thing("user database").error(&error);
    let Some((_, uid, gid)) = owner else {
        let known = OWNERS.into_iter().find_map(|name| User::named(name).transpose());
        return known.transpose().map_err(failed);
    };
    User::with_numbers(uid, Some(gid)).map(Some).map_err(failed)
}

/// From here on SIGINT and SIGTERM stop the import, the second time at once.
fn listen(control: &Arc<Control>, signal: &Arc<AtomicI32>) -> std::io::Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM])?;
    let (control, signal) = (control.clone(), signal.clone());
    std::thread::Builder::new().name("signals".to_string()).spawn(move || {
        for number in signals.forever() {
            if signal.swap(number, Ordering::Relaxed) != 0 {
                std::process::exit(128 + number);
            }
            let _ = control.send(Order::Stop); // refused by a run that has ended
        }
    })?;
    Ok(())
}

/// Whether everything that was read is on the disk, and stays there.
fn is_all_in(summary: &Summary) -> bool {
    let (stored, gone) =
        (sum_of(summary, |volume| volume.stored), sum_of(summary, |volume| volume.deleted_own));
    summary.failures.is_empty() && stored == summary.received.packets && gone == 0
}

/// Packets of all volumes.
fn sum_of(summary: &Summary, amount: fn(&VolumeReport) -> Amount) -> u64 {
    summary.stores.iter().map(|volume| amount(volume).packets).sum()
}

/// That bounds have deleted what the import stored.
fn gone(args: &ImportArgs, summary: &Summary) -> Option<Fault> {
    let (stored, gone) =
        (sum_of(summary, |volume| volume.stored), sum_of(summary, |volume| volume.deleted_own));
    if gone == 0 {
        return None;
    }
    let cause = format!(
        "{} of the {} that this import stored are deleted again: the bounds of the store leave no room for \
         packets that old; no file is noted",
        number(gone),
        counted(stored, "packet")
    );
    let bounds = [
        ("raise ", "store-budget", &args.store_budget),
        ("raise ", "store-age", &args.store_age),
        ("lower ", "store-min-free", &args.store_min_free),
    ];
    let given = bounds.into_iter().filter(|(_, _, values)| !values.is_empty());
    let mut remedy = Sentence::default();
    for (verb, key, _) in given {
        remedy.0.extend([verb.into(), Setting::of(key).into(), ", or ".into()]);
    }
    remedy.0.push("import into a folder of its own".into());
    Some(Fault::whole(cause).remedy(remedy))
}

/// What of the files isn't in the store, or not as it was.
fn lacks(summary: &Summary, came: &[Came]) -> Vec<Fault> {
    let mut faults: Vec<Fault> =
        words::other_failures(summary).map(|failure| failure.fault.clone()).collect();
    let dropped: u64 = summary.dropped.iter().map(|(_, packets)| packets).sum();
    if dropped > 0 {
        faults.push(Fault::whole(format!("{} dropped", counted(dropped, "packet"))));
    }
    if summary.cut_by_segment > 0 {
        let cause = format!(
            "{} longer than the ring keeps, and truncated",
            counted(summary.cut_by_segment, "packet")
        );
        faults.push(Fault::whole(cause).remedy(sentence!["enlarge ", Setting::of("ring")]));
    }
    if summary.time_clamped > 0 {
        let cause = format!("{} with times that can't be stored", counted(summary.time_clamped, "packet"));
        faults.push(Fault::whole(cause).remedy("put the file's times right with editcap -t SECONDS"));
    }
    for file in came.iter().filter(|file| !file.is_whole && file.has_ended) {
        let cause =
            format!("damaged or truncated: {} of it are in the store", counted(file.packets, "packet"));
        faults.push(Fault::of_thing(&*file.name).cause(cause));
    }
    faults
}

/// Notes in every store what was imported.
fn note(stores: Vec<Folder>, files: &Files, came: &[Came], run_id: [u8; 16]) -> Result<(), Vec<Fault>> {
    let opened: Result<Vec<Store>, Fault> = stores.into_iter().map(Store::of).collect();
    let stores = opened.map_err(|fault| vec![fault])?;
    let volumes: Vec<[u8; 16]> = stores.iter().map(|store| store.id().0).collect();
    let when_ns = now_ns();
    let mut noted = Vec::new();
    for file in came {
        let Some(hash) = file.hash else {
            let text = format!("{}: it can't be recognised when it comes again", file.name);
            say(Level::Warning, &format!("wirescope: {text}"));
            continue;
        };
        if let Some(before) = files.known_by_now(hash) {
            say(
                Level::Warning,
                &format!("wirescope: {}: {before}: its packets are there twice now", file.name),
            );
        }
        let Came { name, packets, bytes, .. } = file;
        let (name, volumes) = (name.clone(), volumes.clone());
        noted.push(Imported { hash, bytes: *bytes, packets: *packets, name, run_id, volumes, when_ns });
    }
    let faults: Vec<Fault> = stores.iter().filter_map(|store| store.note_imports(&noted).err()).collect();
    if faults.is_empty() { Ok(()) } else { Err(faults) }
}

fn id(run_id: [u8; 16]) -> String {
    format!("{:032x}", u128::from_be_bytes(run_id))
}

/// What came of each file, and what the store has.
fn in_words(summary: &Summary, came: &[Came], stores: &[PathBuf], run_id: [u8; 16]) -> String {
    let mut text = String::new();
    for file in came.iter().filter(|file| file.has_ended) {
        let cut = if file.is_whole { "" } else { ", truncated" };
        text.push_str(&format!(
            "{}: {}, {}{cut}\n",
            file.name,
            counted(file.packets, "packet"),
            size(file.bytes)
        ));
    }
    let (stored, gone) =
        (sum_of(summary, |volume| volume.stored), sum_of(summary, |volume| volume.deleted_own));
    let left = stored.saturating_sub(gone);
    let shown: Vec<String> = stores.iter().map(|path| path.display().to_string()).collect();
    let run = &id(run_id)[..8];
    text.push_str(&format!("{} in {} by run {run}\n", counted(left, "packet"), shown.join(", ")));
    let of_others = sum_of(summary, |volume| volume.deleted).saturating_sub(gone);
    if of_others > 0 {
        let text_of_others = counted(of_others, "packet");
        text.push_str(&format!(
            "{text_of_others} of earlier runs deleted to keep the bounds, the oldest first\n"
        ));
    }
    text
}

/// The same for programs: the summary of a run, with its files.
fn object(summary: &Summary, came: &[Came], run_id: [u8; 16], noted: bool, faults: &[Fault]) -> Value {
    let file = |file: &Came| {
        json!({
            "name": file.name, "packets": file.packets, "bytes": file.bytes, "whole": file.is_whole,
            "hash": file.hash.map(|hash| hash.to_string()), "noted": noted && file.hash.is_some(),
        })
    };
    let mut object = summary.to_json();
    if let Some(failures) = object["failures"].as_array_mut() {
        let told: Vec<Value> = faults.iter().map(|fault| fault.to_string().into()).collect();
        let new: Vec<Value> = told.into_iter().filter(|text| !failures.contains(text)).collect();
        failures.extend(new);
    }
    object["run_id"] = id(run_id).into();
    object["files"] = came.iter().map(file).collect();
    object
}
