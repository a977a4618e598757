//! The scripts of a run: a thread for each that fires, one for each dump that a script selects for, and a watchdog that
//! leaves behind what doesn't come back.
//!
//! | file | what it holds |
//! |---|---|
//! | `scripts/reading.rs` | the thread of a script that fires |
//! | `scripts/keeping.rs` | the thread of a script that says what a dump keeps |
//! | `scripts/left_behind.rs` | what becomes of a thread that doesn't come back |
//! | `scripts/tally.rs` | what is counted of one script |
//!
//! No Lua runs before rights are given up; only the libraries that scripts name are opened before that. Nothing that a
//! script does reaches a worker of a live source. A watchdog decides what has lasted too long, since LuaJIT's hooks don't
//! run in machine code.

mod keeping;
mod left_behind;
mod reading;
mod tally;

use crate::dumps::{DumpScripts, Dumps, Fired};
use crate::failure::Failure;
use crate::plan::ScriptPlan;
use crate::script_status::ScriptStatus;
use crate::triggers::TriggerSet;
use keeping::DumpScript;
use left_behind::{didn_t_come_back, put_last};
use reading::{Begin, Facts, Outset, Seat, read};
use scope_dump::{DumpReport, Keep};
use scope_fault::Fault;
use scope_ring::{Judge, Ring, Steering};
use scope_script::{Libraries, Options, Plain, ScriptError};
use scope_spelling::figures::counted;
use scope_trigger::{ScriptFile, Trigger};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
pub use tally::News;
use tally::{Kind, Tally, beginning};

/// How often the watchdog looks.
const WATCH_EVERY: Duration = Duration::from_millis(20);
/// Scripts that are gone whose counts are kept; of more the oldest are forgotten.
const GONE_MAX: usize = 1024;
/// How long a script of a live run has at the end to read what is left.
const REST_MAX: Duration = Duration::from_secs(10);

/// All scripts of a run.
pub struct Scripts {
    plan: ScriptPlan,
    libraries: Libraries,
    live: bool,
    state: Mutex<State>,
    over: AtomicBool,
}

/// A trigger with a script, and its threads.
struct Following {
    trigger: Arc<Trigger>,
    script: ScriptFile,
    seats: Vec<Arc<Seat>>,
}

#[derive(Default)]
struct State {
    following: Vec<Following>,
    /// Of scripts that fire no more.
    gone: Vec<Arc<Tally>>,
    /// Of dump scripts, by trigger and file.
    dump_scripts: BTreeMap<(String, String), DumpScript>,
    /// Packets and processor time at the last status, by trigger, file and kind.
    before: BTreeMap<(String, String, &'static str), (u64, u64)>,
    watchdog: bool,
}

/// What a script's threads follow and fire into.
pub(crate) struct Around<'a> {
    pub ring: &'a Arc<Ring>,
    pub dumps: &'a Arc<Dumps>,
    /// Told of each thread that workers wait for.
    pub waits_for: &'a dyn Fn(&Arc<Judge>),
}

impl Scripts {
    /// Opens the libraries that scripts name, with the rights of now: before they are given up. `live`: nobody waits for
    /// scripts.
    ///
    /// # Errors
    /// Names the first that can't be opened.
    pub fn begin(plan: ScriptPlan, live: bool) -> Result<Scripts, ScriptError> {
        let libraries = Libraries::open(&plan.libraries)?;
        Ok(Scripts { plan, libraries, live, ..Scripts::none() })
    }

    /// Of a run without scripts.
    pub fn none() -> Scripts {
        let (plan, libraries) = (ScriptPlan::default(), Libraries::default());
        Scripts { plan, libraries, live: false, state: Mutex::default(), over: AtomicBool::new(false) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn options(&self) -> Options {
        Options {
            name: String::new(),
            memory_bytes_max: self.plan.memory_bytes,
            libraries: self.libraries.clone(),
        }
    }

    /// Follows the triggers of `set` from here on: new scripts begin, changed ones are replaced between two batches, those
    /// that are gone end. Returns what can't begin, in words.
    pub(crate) fn follow(self: &Arc<Self>, set: &TriggerSet, around: &Around<'_>) -> Vec<String> {
        let mut state = self.lock();
        let mut failed = Vec::new();
        let mut before = std::mem::take(&mut state.following);
        for trigger in set.given() {
            let Some(script) = trigger.config().condition.script() else { continue };
            let known = before.iter().position(|known| known.trigger.config().name == trigger.config().name);
            let known = known.map(|at| before.swap_remove(at));
            let goes_on = |known: &Following| {
                known.script == *script || known.seats.iter().all(|seat| !seat.has_ended())
            };
            match known {
                Some(known) if goes_on(&known) => {
                    if !Arc::ptr_eq(&known.trigger, trigger) {
                        known.seats.iter().for_each(|seat| seat.takes_over(trigger, script));
                    }
                    state.following.push(Following {
                        trigger: trigger.clone(),
                        script: script.clone(),
                        seats: known.seats,
                    });
                }
                other => {
                    before.extend(other);
                    let seats = self.seats(trigger, script, around, &mut failed);
                    state.following.push(Following {
                        trigger: trigger.clone(),
                        script: script.clone(),
                        seats,
                    });
                }
            }
        }
        for gone in before {
            gone.seats.iter().for_each(|seat| seat.leaves());
            state.gone.extend(gone.seats.iter().map(|seat| seat.tally.clone()));
        }
        let excess = state.gone.len().saturating_sub(GONE_MAX);
        state.gone.drain(..excess);
        if !state.following.is_empty() && !std::mem::replace(&mut state.watchdog, true) {
            let this = self.clone();
            let watchdog = std::thread::Builder::new().name("script-watch".to_string());
            if let Err(error) = watchdog.spawn(move || this.watch()) {
                failed.push(format!("no thread to watch scripts: {error}: one that doesn't come back stays"));
            }
        }
        failed
    }

    /// Begins the threads of a script.
    fn seats(
        &self,
        trigger: &Arc<Trigger>,
        script: &ScriptFile,
        around: &Around<'_>,
        failed: &mut Vec<String>,
    ) -> Vec<Arc<Seat>> {
        let (threads, name) = (self.plan.threads.max(1), &trigger.config().name);
        let mut seats = Vec::new();
        for thread in 0..threads {
            let tally = Arc::new(Tally::new(name, script.file(), Kind::Trigger));
            let steering = (threads > 1).then(|| Steering::new(thread, threads));
            let judge = (!self.live).then(|| around.ring.judge());
            judge.iter().for_each(|judge| (around.waits_for)(judge));
            let seat = Arc::new(Seat::new(tally, trigger, script, steering, judge));
            let begin = Begin {
                seat: seat.clone(),
                from: Outset::now(around.ring, self.live),
                ring: around.ring.clone(),
                dumps: around.dumps.clone(),
                options: self.options(),
                live: self.live,
            };
            let builder = std::thread::Builder::new().name(format!("script-{thread}"));
            if let Err(error) = builder.spawn(move || read(begin)) {
                let why = format!("no thread for the script of {name}: {error}");
                seat.tally.disable(&why);
                seat.is_over();
                failed.push(why);
            }
            seats.push(seat);
        }
        seats
    }

    /// Leaves behind what has been in one call for too long, until the run is over.
    fn watch(&self) {
        while !self.over.load(Ordering::Acquire) {
            std::thread::sleep(WATCH_EVERY);
            let seats: Vec<Arc<Seat>> =
                self.lock().following.iter().flat_map(|following| following.seats.clone()).collect();
            for seat in seats {
                if seat.tally.watch.abandon_if_stuck(self.plan.timeout) {
                    seat.tally.disable(&didn_t_come_back(self.plan.timeout));
                    seat.is_over();
                    put_last(seat.tally.thread.load(Ordering::Relaxed));
                }
            }
        }
    }

    /// The script that says what dumps of this trigger keep.
    fn dump_script(&self, trigger: &str, script: &ScriptFile) -> DumpScript {
        let mut state = self.lock();
        let key = (trigger.to_string(), script.file().to_string());
        let known = state.dump_scripts.entry(key).or_insert_with(|| DumpScript {
            tally: Arc::new(Tally::new(trigger, script.file(), Kind::Dump)),
            script: script.clone(),
            options: self.options(),
            timeout: self.plan.timeout,
        });
        if known.script != *script {
            // Another text: it gets another chance.
            known.script = script.clone();
            known.tally.enable();
        }
        known.clone()
    }

    /// Whether all scripts have read what workers wrote, which have ended.
    pub(crate) fn have_read(&self) -> bool {
        let state = self.lock();
        state.following.iter().flat_map(|known| &known.seats).all(|seat| seat.has_read())
    }

    /// How long scripts have for the rest; `None`: as long as it takes.
    pub(crate) fn patience(&self) -> Option<Duration> {
        self.live.then_some(REST_MAX)
    }

    /// Tells all scripts to end, since no dump comes any more, and waits until they have; one that doesn't come back is
    /// left behind meanwhile.
    pub(crate) fn end(&self) {
        self.lock().following.iter().flat_map(|known| &known.seats).for_each(|seat| seat.leaves());
        let until = Instant::now() + REST_MAX + self.plan.timeout;
        while !self.lock().following.iter().flat_map(|known| &known.seats).all(|seat| seat.has_ended())
            && Instant::now() < until
        {
            std::thread::sleep(Duration::from_millis(1));
        }
        self.over.store(true, Ordering::Release);
    }

    /// What there is to be told of scripts since the last call.
    pub(crate) fn take_news(&self) -> Vec<News> {
        let state = self.lock();
        let seats = state.following.iter().flat_map(|known| &known.seats).map(|seat| &seat.tally);
        let tallies = seats.chain(&state.gone).chain(state.dump_scripts.values().map(|script| &script.tally));
        tallies.flat_map(|tally| tally.take_news()).collect()
    }

    /// How they stand; rates are over `seconds`.
    pub(crate) fn status(&self, seconds: f64) -> Vec<ScriptStatus> {
        let mut state = self.lock();
        let seats = state.following.iter().flat_map(|known| &known.seats).map(|seat| &seat.tally);
        let tallies = seats.chain(&state.gone).chain(state.dump_scripts.values().map(|script| &script.tally));
        let mut all: Vec<ScriptStatus> = Vec::new();
        for tally in tallies {
            let kind = match tally.kind {
                Kind::Trigger => "trigger",
                Kind::Dump => "dump",
            };
            let is = |one: &&mut ScriptStatus| {
                (&one.name, &one.file, one.kind) == (&tally.name, &tally.file, kind)
            };
            match all.iter_mut().find(is) {
                // Those that run stand first: what is gone says nothing of them.
                Some(one) if state.gone.iter().any(|gone| Arc::ptr_eq(gone, tally)) => {
                    let disabled = one.disabled.take();
                    add(one, tally);
                    one.disabled = disabled;
                }
                Some(one) => add(one, tally),
                None => {
                    let (name, file) = (tally.name.clone(), tally.file.clone());
                    let mut one = ScriptStatus { name, file, kind, ..ScriptStatus::default() };
                    add(&mut one, tally);
                    all.push(one);
                }
            }
        }
        for one in &mut all {
            let key = (one.name.clone(), one.file.clone(), one.kind);
            let (packets, cpu_ns) = state.before.insert(key, (one.packets, one.cpu_ns)).unwrap_or_default();
            one.packets_per_s = one.packets.saturating_sub(packets) as f64 / seconds;
            one.cpu = one.cpu_ns.saturating_sub(cpu_ns) as f64 / 1e9 / seconds;
        }
        all
    }

    /// What of it makes the exit code 1.
    pub(crate) fn failures(&self) -> Vec<Failure> {
        let state = self.lock();
        let seats = state.following.iter().flat_map(|known| &known.seats).map(|seat| &seat.tally);
        let tallies = seats.chain(&state.gone).chain(state.dump_scripts.values().map(|script| &script.tally));
        let failure = |tally: &Arc<Tally>| {
            let (of, errors) = (tally.called(), tally.errors.load(Ordering::Relaxed));
            let cause = match (tally.disabled(), errors) {
                (Some(why), _) => format!("{of} was disabled: {}", beginning(&why)),
                (None, 0) => return None,
                (None, errors) => {
                    let report = tally.reported().as_deref().map(beginning).unwrap_or_default();
                    format!("{of} failed {}, first: {report}", counted(errors, "time"))
                }
            };
            Some(Failure::from(Fault::whole(cause).remedy("try it with 'wirescope script run'")))
        };
        tallies.filter_map(failure).collect()
    }
}

impl DumpScripts for Scripts {
    fn keep(&self, trigger: &str, script: &ScriptFile, fired: Option<Fired>) -> Box<dyn Keep> {
        self.dump_script(trigger, script).begin(fired)
    }

    fn dumped(&self, report: &DumpReport) {
        let state = self.lock();
        let of_trigger = state.following.iter().find(|known| known.trigger.config().name == report.trigger);
        if let Some(seat) = of_trigger.and_then(|known| known.seats.first()).filter(|seat| !seat.has_ended())
        {
            seat.dumped(|| facts(report));
        }
    }
}

fn add(one: &mut ScriptStatus, tally: &Tally) {
    let of = |number: &std::sync::atomic::AtomicU64| number.load(Ordering::Relaxed);
    one.packets += of(&tally.packets);
    one.missed = one.missed.max(of(&tally.missed));
    one.behind = one.behind.max(of(&tally.behind));
    one.hits += of(&tally.hits);
    one.errors += of(&tally.errors);
    one.ticks = one.ticks.max(of(&tally.ticks));
    one.memory_bytes += of(&tally.memory_bytes);
    one.flows += of(&tally.flows);
    one.flows_evicted += of(&tally.flows_evicted);
    one.cpu_ns += of(&tally.cpu_ns);
    one.disabled = one.disabled.take().or_else(|| tally.disabled());
    one.report = one.report.take().or_else(|| tally.reported());
}

/// What a script is told of a dump.
fn facts(report: &DumpReport) -> Facts {
    let files: Vec<(Plain, Plain)> = report
        .paths
        .iter()
        .enumerate()
        .map(|(at, path)| (Plain::Number(at as f64 + 1.0), Plain::from(&*path.to_string_lossy())))
        .collect();
    let seconds = |ns: i64| Plain::Number(ns as f64 / 1e9);
    let path = report.paths.first().map_or(Plain::Nil, |path| Plain::from(&*path.to_string_lossy()));
    let error = report.error.as_deref().map_or(Plain::Nil, Plain::from);
    vec![
        ("id", Plain::Number(report.id as f64)),
        ("trigger", Plain::from(report.trigger.as_str())),
        ("why", Plain::from(report.why.as_str())),
        ("filter", Plain::from(report.filter.as_str())),
        ("path", path),
        ("paths", Plain::Table(files)),
        ("packets", Plain::Number(report.packets as f64)),
        ("bytes", Plain::Number(report.bytes as f64)),
        ("hits", Plain::Number(report.hits as f64)),
        ("time", seconds(report.time_ns)),
        ("from", seconds(report.from_ns)),
        ("to", seconds(report.to_ns)),
        ("complete", Plain::Bool(report.complete)),
        ("error", error),
    ]
}
