//! `wirescope script run`: a script over capture files: what it would have fired or kept, and its time per packet.

use crate::args::ScriptRunArgs;
use crate::plan::faults::{bad, such_as};
use crate::reading::Stop;
use crate::script::file::{Bounds, Script, give_up_rights, report_of, untabbed};
use crate::script::outcome::{Outcome, object, words};
use crate::script::over::{Asked, Found, run_over};
use crate::script::thread::watched;
use crate::speech::{Level, say, say_fault};
use crate::words::counted;
use crate::{UNDONE, refused, told};
use scope_fault::{Fault, Subject};
use scope_script::machine_code_works;
use scope_source::file::{FileOptions, FileSource, Follow, check_begin};
use scope_source::spec::{self, FileForm};
use scope_spelling::printable::json_line;
use scope_spelling::values::parse_count;
use std::sync::{Arc, Mutex, PoisonError};

/// The packet that fires a dump, unless another one is named.
const FIRE: u64 = 1;

/// How the reading of one file has ended: its packets, and whether there are no others.
#[derive(Debug, Default)]
struct Following(Mutex<Option<(u64, bool)>>);

impl Follow for Following {
    fn bytes(&self, _: &[u8]) {}

    fn ended(&self, packets: u64, is_whole: bool) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some((packets, is_whole));
    }
}

/// What is asked for, understood and opened.
struct Opened {
    script: Script,
    bounds: Bounds,
    asked: Asked,
    /// The captures; nothing of them is read.
    source: FileSource,
    followings: Vec<Arc<Following>>,
    stop: Stop,
}

/// Runs the script. Exit codes: 0 all went well, 1 the script failed or the capture is damaged, 2 refused.
pub fn run(args: &ScriptRunArgs) -> u8 {
    let Opened { script, bounds, asked, source, followings, stop } = match open(args) {
        Ok(opened) => opened,
        Err(faults) => return refused(&faults),
    };
    if let Err(fault) = give_up_rights() {
        return refused(&[fault]);
    }
    let is_compiled = machine_code_works();
    if !is_compiled {
        let words =
            "LuaJIT gets no memory for machine code here: scripts are interpreted, ten to fifty times slower";
        say(Level::Warning, &format!("wirescope: {words}"));
    }
    let libraries = script.libraries.clone();
    let flag = stop.flag.clone();
    let work = move |guard: &_| run_over(&script, asked, source, &flag, guard);
    let (found, end) = watched::<Found>(bounds.timeout, work);
    let of_script = || Fault::of_thing(args.file.to_string_lossy());
    if let Some(error) = &found.refused {
        return refused(&[of_script().cause(format!("it can't be loaded: {}", untabbed(&report_of(error))))]);
    }
    if let Some(fault) = found.not_begun {
        return refused(&[fault]);
    }
    for warning in &found.warnings {
        say(Level::Warning, &format!("wirescope: {warning}"));
    }
    let file = args.file.to_string_lossy().into_owned();
    let outcome = Outcome { file, asked, libraries, is_compiled, found, end, timeout: bounds.timeout };
    let mut faults = outcome.faults(of_script);
    faults.extend(damage(&args.read, &followings));
    let text = match args.json {
        true => format!("{}\n", json_line(&object(&outcome, faults.is_empty()).to_string())),
        false => words(&outcome),
    };
    let printed = told(Ok(text));
    faults.iter().for_each(say_fault);
    let code = if faults.is_empty() { printed } else { UNDONE };
    stop.code().unwrap_or(code)
}

/// Understands the command line, and opens what it names; or all faults.
fn open(args: &ScriptRunArgs) -> Result<Opened, Vec<Fault>> {
    let mut faults = Vec::new();
    let asked = asked(args).map_err(|fault| faults.push(fault)).ok();
    let bounds = Bounds::read(&args.bounds).map_err(|more| faults.extend(more)).ok();
    let script = bounds.and_then(|bounds| {
        Script::open(&args.file, &bounds)
            .map_err(|fault| faults.push(fault))
            .ok()
            .map(|script| (script, bounds))
    });
    for path in &args.read {
        if let Err(error) = check_begin(path, FileForm::Detected) {
            faults.push(of_capture(path, error.reason()));
        }
    }
    let followings: Vec<Arc<Following>> = args.read.iter().map(|_| Arc::default()).collect();
    let source = if faults.is_empty() {
        let options = FileOptions { paths: args.read.clone(), ..FileOptions::default() };
        let follows: Vec<Option<Arc<dyn Follow>>> =
            followings.iter().map(|one| Some(one.clone() as Arc<dyn Follow>)).collect();
        let source = FileSource::unread(options, &follows);
        source.map_err(|error| faults.push(error.reason().of_subject(Subject::setting("read")))).ok()
    } else {
        None
    };
    let stop = Stop::follow().map_err(|error| faults.push(Fault::of_thing("signals").error(&error))).ok();
    match (asked, script, source, stop) {
        (Some(asked), Some((script, bounds)), Some(source), Some(stop)) => {
            Ok(Opened { script, bounds, asked, source, followings, stop })
        }
        _ => Err(faults),
    }
}

fn asked(args: &ScriptRunArgs) -> Result<Asked, Fault> {
    if args.dump {
        let Some(text) = &args.fire else { return Ok(Asked::Kept { fire: FIRE }) };
        let fire =
            parse_count(text).map_err(|wrong| bad(Fault::of("fire"), wrong).remedy(such_as("fire", "7")))?;
        return Ok(Asked::Kept { fire });
    }
    let text = &args.hits_max;
    let count = parse_count(text)
        .map_err(|wrong| bad(Fault::of("hits-max"), wrong).remedy(such_as("hits-max", "1000")))?;
    Ok(Asked::Hits { listed_max: usize::try_from(count).unwrap_or(usize::MAX) })
}

/// A fault of a capture that was given.
fn of_capture(path: &str, fault: Fault) -> Fault {
    fault.of_subject(Subject::setting("read")).with_value(spec::escape(path))
}

/// Captures that are damaged, or end too early.
fn damage(paths: &[String], followings: &[Arc<Following>]) -> Vec<Fault> {
    let mut faults = Vec::new();
    for (path, following) in paths.iter().zip(followings) {
        let ended = *following.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((packets, false)) = ended {
            let cause = format!("damaged or truncated: {} of it were read", counted(packets, "packet"));
            faults.push(Fault::of_thing(path).cause(cause).remedy("use another copy of it, if there is one"));
        }
    }
    faults
}
