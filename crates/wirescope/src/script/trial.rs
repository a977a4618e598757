//! A script tried on the built-in packets of every kind, in a thread that may be left behind.
//!
//! A trigger script meets each packet alone first, so that what it hits and where it fails is known by kind.
//! Then all of them come in batches, often enough that LuaJIT compiles its loop, over some seconds of capture
//! time, so that ticks are due; then a day without packets, in which flows expire. At last it is told of a dump,
//! and takes over from itself.
//!
//! A dump script makes its function for each packet, and for a dump that is fired by hand; each function is
//! asked for all packets.
//!
//! The two are told apart by what they do: a trigger script never returns a function for a packet, a dump
//! script always does.

use crate::script::file::{Script, report_of};
use crate::script::thread::{Guard, LeftBehind};
use scope_script::keeper::NoKeeper;
use scope_script::{
    Hit, Keepers, Lent, Plain, Script as TriggerScript, ScriptError, Specimen, builtin_packets,
};

/// Capture time of the first packet, ns: 2026-01-01.
const BEGIN_NS: i64 = 1_767_225_600_000_000_000;
/// Capture time between two packets, ns.
const STEP_NS: i64 = 1_000_000;
/// Capture time between two rounds, ns.
const ROUND_NS: i64 = 1_000_000_000;
/// Rounds in batches, behind the one in which each packet comes alone.
const ROUNDS: i64 = 4;
/// How long nothing comes at the end, ns.
const SILENCE_NS: i64 = 86_400_000_000_000;

/// What a script is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    /// It says which packets fire.
    #[default]
    Trigger,
    /// It says which packets a dump keeps.
    Dump,
}

/// What the script was called for last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Doing {
    /// To be loaded.
    #[default]
    Loading,
    /// For a packet of this kind.
    Packet(&'static str),
    /// For many packets, and ticks between them.
    Batch,
    /// For ticks without packets.
    Silence,
    /// `on_dump`.
    Dumped,
    /// `on_reload`.
    Reload,
    /// To make the function of a dump that is fired by this, and for the packets that it keeps.
    Keeper(&'static str),
    /// For its counts.
    Counts,
    /// For its finalizers, when its state is closed.
    Closing,
}

/// What a dump that is fired by hand is called here.
const BY_HAND: &str = "a dump that is fired by hand";

/// What was found of a script.
#[derive(Clone, Debug, Default)]
pub struct Found {
    pub kind: Kind,
    pub doing: Doing,
    /// Why it can't be loaded.
    pub refused: Option<String>,
    /// Its forms; of a dump script none.
    pub forms: Vec<&'static str>,
    /// Kinds of packets that it was tried on.
    pub specimens: usize,
    /// Kinds that it hit; of a dump script those for which it made a function.
    pub hit: Vec<&'static str>,
    /// Kinds for which it failed.
    pub failed: Vec<&'static str>,
    /// Calls for packets, hits, errors, ticks; of a dump script packets that its functions were asked for, and
    /// kept.
    pub packets: u64,
    pub hits: u64,
    pub errors: u64,
    pub ticks: u64,
    /// Lua's memory in use at the end, bytes; of a dump script 0.
    pub memory_bytes: usize,
    /// The traceback of the first error.
    pub report: Option<String>,
    /// Why it was disabled.
    pub disabled: Option<String>,
    /// What it printed, and how many lines more.
    pub notes: (Vec<String>, u64),
}

impl Found {
    /// Nothing that it was called for failed.
    pub fn is_fine(&self) -> bool {
        self.refused.is_none() && self.disabled.is_none() && self.errors == 0 && self.failed.is_empty()
    }

    /// It failed for each packet.
    fn failed_always(&self) -> bool {
        self.refused.is_none() && self.hit.is_empty() && self.failed.len() >= self.specimens
    }
}

/// Tries the script. `dump`: as a dump script; else as what it is.
pub fn try_script(script: &Script, dump: bool, guard: &Guard<Found>) -> Result<(), LeftBehind> {
    if dump {
        return try_dump(script, guard);
    }
    try_trigger(script, guard)?;
    let as_trigger = guard.found().clone();
    if as_trigger.failed_always() {
        try_dump(script, guard)?;
        let found = &mut *guard.found();
        if found.refused.is_some() || found.failed_always() {
            *found = as_trigger;
        }
    }
    Ok(())
}

/// Begins anew as `kind`.
fn begin(kind: Kind, specimens: &[Specimen], guard: &Guard<Found>) {
    *guard.found() = Found { kind, specimens: specimens.len(), ..Found::default() };
}

fn doing(guard: &Guard<Found>, doing: Doing) {
    guard.found().doing = doing;
}

fn refuse(guard: &Guard<Found>, error: &ScriptError) {
    guard.found().refused = Some(report_of(error));
}

fn try_trigger(script: &Script, guard: &Guard<Found>) -> Result<(), LeftBehind> {
    let specimens = builtin_packets();
    begin(Kind::Trigger, &specimens, guard);
    let mut tried = match guard.call(|| TriggerScript::load(&script.text, &script.options))? {
        Ok(tried) => tried,
        Err(error) => {
            refuse(guard, &error);
            return Ok(());
        }
    };
    let forms = guard.call(|| tried.forms())?;
    guard.found().forms.clone_from(&forms);
    if each_alone(&specimens, &mut tried, guard)? {
        in_batches(&specimens, &mut tried, guard)?;
        around_packets(script, &forms, &mut tried, guard)?;
    }
    counts(&mut tried, guard)?;
    doing(guard, Doing::Closing);
    guard.call(|| drop(tried))
}

/// Each packet alone; whether it is worth to go on: the script isn't disabled, and didn't fail for all of them.
fn each_alone(
    specimens: &[Specimen],
    tried: &mut TriggerScript,
    guard: &Guard<Found>,
) -> Result<bool, LeftBehind> {
    let mut errors = 0;
    for (specimen, time_ns) in specimens.iter().zip((BEGIN_NS..).step_by(STEP_NS as usize)) {
        doing(guard, Doing::Packet(specimen.name));
        let (hit, counts) = guard.call(|| {
            let hits = tried.run(&[specimen.lend(time_ns)]);
            let is_of_packet = |hits: &[Hit]| hits.iter().any(|hit| hit.packet.is_some());
            (hits.map(is_of_packet), tried.counts())
        })?;
        let found = &mut *guard.found();
        if counts.errors > errors {
            found.failed.push(specimen.name);
        }
        errors = counts.errors;
        match hit {
            Ok(true) => found.hit.push(specimen.name),
            Ok(false) => {}
            Err(_) => return Ok(false),
        }
    }
    Ok(!guard.found().failed_always())
}

fn in_batches(
    specimens: &[Specimen],
    tried: &mut TriggerScript,
    guard: &Guard<Found>,
) -> Result<(), LeftBehind> {
    doing(guard, Doing::Batch);
    for round in 1..=ROUNDS {
        let times = (BEGIN_NS + round * ROUND_NS..).step_by(STEP_NS as usize);
        let lent: Vec<Lent<'_>> =
            specimens.iter().zip(times).map(|(specimen, time_ns)| specimen.lend(time_ns)).collect();
        if guard.call(|| tried.run(&lent).is_err())? {
            break; // disabled: the counts say why
        }
    }
    Ok(())
}

/// What a script is called for besides packets. That it is disabled meanwhile its counts say.
fn around_packets(
    script: &Script,
    forms: &[&str],
    tried: &mut TriggerScript,
    guard: &Guard<Found>,
) -> Result<(), LeftBehind> {
    doing(guard, Doing::Silence);
    let silent = guard.call(|| tried.clock(BEGIN_NS + SILENCE_NS).is_ok())?;
    if silent && forms.contains(&"on_dump") {
        doing(guard, Doing::Dumped);
        let facts = facts_of_a_dump();
        let _disabled = guard.call(|| tried.dumped(&facts).is_err())?;
    }
    if silent && forms.contains(&"on_reload") {
        doing(guard, Doing::Reload);
        reload(script, tried, guard)?;
    }
    Ok(())
}

/// What a run tells a script of a dump.
fn facts_of_a_dump() -> Vec<(&'static str, Plain)> {
    let path = Plain::from("dumps/trigger1_0001.pcapng");
    let seconds = |ns: i64| Plain::from(ns as f64 / 1e9);
    vec![
        ("id", Plain::from(1.0)),
        ("trigger", Plain::from("trigger1")),
        ("why", Plain::from("")),
        ("filter", Plain::from("host 10.0.0.1 and host 10.0.0.2")),
        ("path", path.clone()),
        ("paths", Plain::Table(vec![(Plain::from(1.0), path)])),
        ("packets", Plain::from(1000.0)),
        ("bytes", Plain::from(500_000.0)),
        ("hits", Plain::from(1.0)),
        ("time", seconds(BEGIN_NS)),
        ("from", seconds(BEGIN_NS - ROUND_NS)),
        ("to", seconds(BEGIN_NS + ROUND_NS)),
        ("complete", Plain::from(true)),
        ("error", Plain::Nil),
    ]
}

/// Another state of the same script takes over, and sees one packet.
fn reload(script: &Script, tried: &mut TriggerScript, guard: &Guard<Found>) -> Result<(), LeftBehind> {
    let kept = match guard.call(|| tried.kept())? {
        Ok(kept) => kept,
        Err(problem) => {
            let found = &mut *guard.found();
            found.errors += 1;
            found.report = Some(format!("wirescope.state can't be handed over: {problem}"));
            return Ok(());
        }
    };
    let mut next = match guard.call(|| TriggerScript::load(&script.text, &script.options))? {
        Ok(next) => next,
        Err(error) => {
            refuse(guard, &error);
            return Ok(());
        }
    };
    let specimens = builtin_packets();
    let (counts, report) = guard.call(|| {
        // Disabled or not: the counts say it.
        let _ = next.take_over(&kept);
        let _ = next.run(&[specimens[0].lend(BEGIN_NS + SILENCE_NS + ROUND_NS)]);
        let told = (next.counts(), next.report());
        drop(next);
        told
    })?;
    let found = &mut *guard.found();
    found.errors += counts.errors;
    found.report = found.report.take().or(report);
    Ok(())
}

/// The counts at the end, with what a script printed and why it failed.
fn counts(tried: &mut TriggerScript, guard: &Guard<Found>) -> Result<(), LeftBehind> {
    doing(guard, Doing::Counts);
    let (counts, report, notes) = guard.call(|| (tried.counts(), tried.report(), tried.take_notes()))?;
    let found = &mut *guard.found();
    found.packets = counts.packets;
    found.hits = counts.hits;
    found.errors += counts.errors;
    found.ticks = counts.ticks;
    found.memory_bytes = counts.memory_bytes;
    found.report = report.or(found.report.take());
    found.notes = notes;
    found.disabled = tried.disabled().map(ToString::to_string);
    Ok(())
}

fn try_dump(script: &Script, guard: &Guard<Found>) -> Result<(), LeftBehind> {
    let specimens = builtin_packets();
    begin(Kind::Dump, &specimens, guard);
    let mut keepers = match guard.call(|| Keepers::load(&script.text, &script.options))? {
        Ok(keepers) => keepers,
        Err(error) => {
            refuse(guard, &error);
            return Ok(());
        }
    };
    let lent: Vec<Lent<'_>> = specimens.iter().map(|specimen| specimen.lend(BEGIN_NS)).collect();
    let fired = specimens.iter().zip(&lent).map(|(specimen, lent)| (specimen.name, Some(lent)));
    for (name, trigger) in fired.chain([(BY_HAND, None)]) {
        doing(guard, Doing::Keeper(name));
        let before = keepers.errors();
        let kept = guard.call(|| match keepers.begin(trigger) {
            Ok(id) => {
                let kept = keepers.keep(id, &lent).map(<[usize]>::len);
                keepers.end(id);
                Some(kept)
            }
            Err(NoKeeper::Failed) => None,
            Err(NoKeeper::Ended(ended)) => Some(Err(ended)),
            Err(NoKeeper::TooMany) => None, // there is one at a time
        })?;
        let found = &mut *guard.found();
        if keepers.errors() > before {
            found.failed.push(name);
        }
        match kept {
            Some(Ok(kept)) => {
                found.packets += lent.len() as u64;
                found.hits += kept as u64;
                found.hit.push(name);
            }
            Some(Err(_)) => break,
            None => {}
        }
    }
    doing(guard, Doing::Counts);
    let (report, notes) = guard.call(|| (keepers.report(), keepers.take_notes()))?;
    {
        let found = &mut *guard.found();
        found.errors = keepers.errors();
        found.report = report;
        found.notes = notes;
        found.disabled = keepers.disabled().map(ToString::to_string);
        found.doing = Doing::Closing;
    }
    guard.call(|| drop(keepers))
}
