//! A run from start to end.
//!
//! 1. The thread for commands after dumps is started: it keeps the right to start processes.
//! 2. The folder for dumps and that of `--ring-out` are opened; from here on they are these handles, not paths. Who the run will
//!    be is decided by who can write there.
//! 3. The ring is mapped, locked and made resident; machine code of the filters is made.
//! 4. The sources are opened, in the order given; nothing is captured before the ring is ready.
//! 5. Rights are given up, in all threads: root, capabilities, all system calls and files that the rest doesn't need ([`rights`]
//!    tells in which order). Whatever needs a right comes before this line; every byte of a packet is looked at behind it. Up
//!    to here nothing is created: what can't be opened is refused.
//! 6. The log is opened, as the user that the run is now. One thread per worker, and one beside that builds summaries of
//!    what live workers have sealed; the main thread looks after orders, status and events.
//! 7. The run ends when every source has ended, when somebody says stop, or when it has its dumps.
//! 8. Workers end: what the kernel still holds is taken, lanes are committed and sealed, clocks go to the end of time.
//! 9. So every dump ends; their reports are waited for, then the commands that follow dumps.
//! 10. The ring is written out, if asked for; the summary is drawn up from the counters.

use crate::dumps::{DumpSettings, Dumps};
use crate::events::{Events, now_ns};
use crate::exec::{Exec, Groups};
use crate::health::Health;
use crate::live;
use crate::lockstep::Lockstep;
use crate::lost::LostInterfaces;
use crate::memory_watch::MemoryWatch;
use crate::nic_watch::{NicStatus, NicWatch};
use crate::outputs::Outputs;
use crate::plan::{RunPlan, SourceEntry};
use crate::reload::{Reload, reload, unready};
use crate::rights::{self, Rights};
use crate::short_snap;
use crate::space::{Space, Told};
use crate::status::{InterfaceStatus, Status, StatusTaker};
use crate::summary::{Amount, Summary};
use crate::triggers::Triggers;
use crate::worker::{Feed, Part, Shared, WorkerReport, work};
use scope_dump::time_text::iso;
use scope_dump::{DumpReport, Scans};
use scope_filter::{Filter, FilterEngine, VlanRule};
use scope_packet::LinkType;
use scope_ring::{Machine, Ring, RingConfig, RingMemory, Summarizer};
use scope_source::file::{FileOptions, FileSource};
use scope_source::own_traffic::Connection;
use scope_source::spec::SourcePlan;
use scope_source::{InterfaceNews, InterfaceState, Source, SourceError, Timing, pcap, synth};
use scope_trigger::{Places, TriggerConfig};
use serde_json::json;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// How often the main thread looks at orders.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// How often it takes the status.
const STATUS_EVERY: Duration = Duration::from_secs(1);
/// How long a live dump waits at most, after its window's end, for a worker that has stopped telling the time.
const PATIENCE: Duration = Duration::from_secs(2);
/// A dump that holds segments for longer than this without reading one to its end is named.
const LONG_HOLD: Duration = Duration::from_secs(5);
/// Warnings that the summary repeats; all are told when they come up.
const WARNINGS_MAX: usize = 1000;
/// Name of the trigger behind a fire by hand where there is none.
pub const MANUAL: &str = "manual";

/// Orders from outside while a run goes: from any thread, not from a signal handler. One closed set.
#[derive(Debug, Default)]
pub struct Control {
    stops: AtomicU32,
    fires: AtomicU32,
    commands: Arc<Groups>,
    /// Protected by the lock: one change that waits for the run's main thread.
    reload: Mutex<Option<Reload>>,
}

impl Control {
    /// Stop the sources, close the dumps with what has arrived, and end. Legal at any time; asked twice, the second is the
    /// caller's to act on.
    pub fn stop(&self) {
        self.stops.fetch_add(1, Ordering::Relaxed);
    }

    /// Fire every armed trigger by hand; with no trigger, dump the last `before` of everything. Legal at any time.
    pub fn fire(&self) {
        self.fires.fetch_add(1, Ordering::Relaxed);
    }

    /// Kills the commands that run after dumps; none begins any more. Legal at any time: for who ends the process at once.
    pub fn end_commands(&self) {
        self.commands.end_all();
    }

    /// Change triggers and limits, or say why they don't change. Legal at any time.
    ///
    /// # Errors
    /// Gives the order back while an earlier one waits: ask again a little later.
    pub fn reload(&self, order: Reload) -> Result<(), Reload> {
        let mut waiting = self.reload.lock().expect("no panic while held");
        if waiting.is_some() {
            return Err(order);
        }
        *waiting = Some(order);
        Ok(())
    }

    /// Stops asked for so far.
    pub fn stops(&self) -> u32 {
        self.stops.load(Ordering::Relaxed)
    }

    pub(crate) fn take_fires(&self) -> u32 {
        self.fires.swap(0, Ordering::Relaxed)
    }

    fn take_reload(&self) -> Option<Reload> {
        self.reload.lock().expect("no panic while held").take()
    }
}

/// Whoever watches a run: called from the run's main thread, never from the packet path (but `prefault` from several threads).
pub trait Watch: Sync {
    /// The ring's memory is being made resident: bytes done so far, of so many.
    fn prefault(&self, done: u64, total: u64);
    /// Sources are open and the ring is ready, in `memory`: capture begins, with these rights (`None`: none were given up).
    fn started(&self, memory: &RingMemory, rights: Option<&Rights>);
    /// What came of trying, in every thread, what must not be possible any more; where that was asked for.
    fn selftest(&self, facts: &serde_json::Value);
    /// Triggers and limits are about to change.
    fn reloading(&self);
    /// They have, or stay as they are.
    fn reloaded(&self);
    /// The sources are told to stop, or have ended.
    fn stopping(&self);
    /// Once a second.
    fn status(&self, status: &Status);
    /// Something worth a line: a fire by hand, room for dumps again.
    fn note(&self, line: &str);
    /// Something that isn't as it should be.
    fn warning(&self, line: &str);
    /// A dump is finished.
    fn dump(&self, report: &DumpReport);
}

/// Why a run couldn't begin. Texts say place, cause and remedy.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// A source couldn't be opened.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// The ring couldn't be made.
    #[error(transparent)]
    Ring(#[from] scope_ring::RingError),
    /// Rights couldn't be given up.
    #[error(transparent)]
    Rights(#[from] rights::RightsError),
    /// A file or a thread couldn't be made.
    #[error("{place}: {cause}")]
    System {
        /// Which.
        place: String,
        /// The system's own words.
        #[source]
        cause: std::io::Error,
    },
}

/// Runs `plan` to its end.
pub fn run(plan: RunPlan, control: &Arc<Control>, watch: &dyn Watch) -> Result<Summary, EngineError> {
    let exec = start_exec(&plan, control)?;
    let outputs = Outputs::open(&plan)?;
    let decision = plan.rights.as_ref().map(|plan| rights::decide(plan, &outputs.writable())).transpose()?;
    let (segment_bytes, segments) = plan.ring.plan()?;
    let ring_bytes = segment_bytes as u64 * segments as u64;
    let ring = Ring::ready(&plan.ring, &plan.shares, &plan.memory, &|done| {
        watch.prefault(done, ring_bytes);
        control.stops() == 0
    })?;
    let memory = ring.memory();
    // Before the sources are opened: live packets would wait meanwhile.
    let mut warnings = prepare_filters(plan.filter_engine, &plan.sources, plan.triggers.iter());
    warnings.extend(short_snap::warnings(&plan, &plan.link_types));
    let own = live::own_traffic(&plan);
    let sources = open_sources(&plan, &own)?;
    let notes = live::notes(&plan, &own, &sources);
    let nics = NicWatch::begin(&plan.sources);
    let rights = decision.map(|decision| rights::give_up(decision, &outputs.writable())).transpose()?;
    let events = Arc::new(outputs.open_events()?);
    let run = Run::new(plan, Ready { outputs, rights, ring, events, exec }, &sources, control.stops() > 0);
    run.log_start(&memory, &notes);
    if control.stops() == 0 {
        watch.started(&memory, run.rights.as_ref());
    }
    notes.iter().for_each(|note| watch.note(note));
    run.go(sources, nics, warnings, control, watch)
}

/// Starts what runs after dumps, if anything does.
fn start_exec(plan: &RunPlan, control: &Control) -> Result<Option<Arc<Exec>>, EngineError> {
    let Some(exec) = plan.dump.exec.clone() else { return Ok(None) };
    let started = Exec::start(exec, &control.commands);
    started.map(Some).map_err(|cause| EngineError::System { place: "--exec".to_string(), cause })
}

/// Makes machine code of the sources' and the triggers' filters: before the workers begin, and while they run for link types that
/// one has met.
/// Until it is made the interpreter answers; a worker never waits for it. Says where none can be made, once.
fn prepare_filters<'a>(
    engine: FilterEngine,
    sources: &[SourceEntry],
    triggers: impl Iterator<Item = &'a TriggerConfig>,
) -> Vec<String> {
    let prefilter = |entry: &SourceEntry| {
        let error = entry.prefilter.as_ref()?.prepare(engine).err()?;
        Some(format!("source '{}': prefilter: {error}: the interpreter evaluates it", entry.spec))
    };
    sources.iter().filter_map(prefilter).chain(triggers.filter_map(|trigger| unready(trigger, engine))).collect()
}

/// Opens every source: one entry per worker. All files together are one source, shared out where several workers are asked for;
/// so are all interfaces with `workers=0`, by one worker.
fn open_sources(plan: &RunPlan, own: &[Connection]) -> Result<Vec<Feed>, SourceError> {
    let mut sources: Vec<Feed> = Vec::new();
    let mut files = FileOptions::default();
    let mut file_parts = Vec::new();
    let mut file_workers = 1;
    let mut shared = Vec::new();
    for entry in &plan.sources {
        match &entry.plan {
            SourcePlan::File(file) => {
                files.paths.push(file.path.clone());
                file_parts.push(Part::of(entry));
                files.pace = file.pace.or(files.pace);
                files.snap_len = file.snap_len.or(files.snap_len);
                file_workers = file_workers.max(file.workers);
            }
            SourcePlan::AfPacket(live) => {
                if live.workers == 0 {
                    shared.push((live, entry));
                    continue;
                }
                sources.extend(feeds(live::open(live, entry, own)?, entry));
            }
            SourcePlan::Pcap(live) => {
                let own = if live.exclude_self { own } else { &[] };
                sources.extend(feeds([pcap::open(live, own, &entry.spec)?.with_prefilter(entry.prefilter.is_some())], entry));
            }
            SourcePlan::Synth(options) => {
                sources.extend(feeds(synth::open(options, &entry.spec)?, entry));
            }
        }
    }
    let first_file = plan.sources.iter().find(|entry| matches!(entry.plan, SourcePlan::File(_)));
    if !files.paths.is_empty() {
        for index in 0..file_workers {
            let share = (file_workers > 1).then_some((index, file_workers));
            let source = Box::new(FileSource::open(FileOptions { share, ..files.clone() })?);
            let cpus = first_file.map_or_else(Vec::new, |entry| entry.pinning.of_worker(index as usize).to_vec());
            sources.push(Feed { source, parts: file_parts.clone(), cpus });
        }
    }
    if !shared.is_empty() {
        sources.push(live::open_shared(&shared, own)?);
    }
    Ok(sources)
}

/// The workers' sources of one entry, each of which has only one part.
fn feeds<S: Source + 'static>(sources: impl IntoIterator<Item = S>, entry: &SourceEntry) -> impl Iterator<Item = Feed> {
    sources.into_iter().enumerate().map(|(index, source)| Feed {
        source: Box::new(source),
        parts: vec![Part::of(entry)],
        cpus: entry.pinning.of_worker(index).to_vec(),
    })
}

/// One run, its parts wired together.
struct Run {
    plan: RunPlan,
    outputs: Outputs,
    rights: Option<Rights>,
    shared: Shared,
    live: bool,
    space: Space,
    exec: Option<Arc<Exec>>,
    lost: LostInterfaces,
    /// Builds summaries until the run ends.
    _summarizer: Option<Summarizer>,
}

/// What was opened and begun before the first packet.
struct Ready {
    outputs: Outputs,
    rights: Option<Rights>,
    ring: Arc<Ring>,
    events: Arc<Events>,
    exec: Option<Arc<Exec>>,
}

impl Run {
    fn new(plan: RunPlan, ready: Ready, sources: &[Feed], stopped: bool) -> Run {
        let Ready { outputs, rights, ring, events, exec } = ready;
        let live = sources.iter().any(|feed| feed.source.timing() == Timing::Live);
        let grace_ns = sources.iter().map(|feed| feed.source.grace_ns()).max().unwrap_or(0);
        let places = Places::new(plan.dumps_max, grace_ns, plan.exit_after);
        let space = Space::new(outputs.dump.budget.clone());
        outputs.dump.budget.iter().for_each(|budget| places.heed(budget.full()));
        let settings = DumpSettings {
            output: outputs.dump.clone(),
            exec: exec.clone(),
            patience: live.then(|| PATIENCE + Duration::from_nanos(grace_ns.max(0) as u64)),
            filter_engine: plan.filter_engine,
        };
        // Files don't wait for summaries, and are gone through once.
        let summarizer = if live && !plan.triggers.is_empty() { start_summarizer(&ring, &events) } else { None };
        let scans = Scans::new(&ring, summarizer.as_ref().map(|summarizer| summarizer.summaries().clone()));
        let dumps = Dumps::new(&ring, &places, &events, &scans, settings, plan.exit_after);
        let shared = Shared {
            ring,
            triggers: Triggers::new(&plan.triggers, manual_trigger(&plan)),
            dumps,
            events,
            lockstep: Lockstep::new(sources.len()),
            stop: AtomicBool::new(stopped),
            ended: AtomicUsize::new(0),
            main: std::thread::current(),
        };
        Run { plan, outputs, rights, shared, live, space, exec, lost: LostInterfaces::default(), _summarizer: summarizer }
    }

    /// Workers from start to end, with the main thread beside them.
    fn go(
        self,
        sources: Vec<Feed>,
        nics: NicWatch,
        early: Vec<String>,
        control: &Control,
        watch: &dyn Watch,
    ) -> Result<Summary, EngineError> {
        let names: Vec<String> = sources.iter().map(|feed| feed.source.name().to_string()).collect();
        let reports: Vec<Mutex<WorkerReport>> = sources.iter().map(|_| Mutex::default()).collect();
        let mut warnings = Vec::new();
        let mut failures = Vec::new();
        let mut health = Health::begin(&self.plan, nics, &names, self.live, &self.shared);
        health.notes(&self.shared).iter().for_each(|note| watch.note(note));
        early.into_iter().for_each(|warning| self.warn(warning, watch, &mut warnings));
        std::thread::scope(|scope| {
            let mut workers = Vec::new();
            for (index, feed) in sources.into_iter().enumerate() {
                let (shared, report) = (&self.shared, &reports[index]);
                let worker = std::thread::Builder::new().name(format!("worker-{index}"));
                match worker.spawn_scoped(scope, move || work(index as u32, feed, shared, report)) {
                    Ok(handle) => workers.push(handle),
                    Err(cause) => {
                        self.shared.stop.store(true, Ordering::Relaxed);
                        self.shared.ring.end_clock(index as u32);
                        self.shared.lockstep.end(index as u32);
                        failures.push(format!("no thread for worker {index}: {cause}"));
                    }
                }
            }
            failures.extend(self.try_rights(watch));
            let mut taker = StatusTaker::new(names.clone(), self.live);
            let mut memory = MemoryWatch::new(Machine::this(), &self.shared.ring);
            let mut last_status = Instant::now();
            while self.shared.ended.load(Ordering::Acquire) < workers.len() {
                std::thread::park_timeout(LOOK_EVERY);
                let over = control.stops() > 0 || self.shared.dumps.all_done() || self.reader_gone();
                if over && !self.shared.stop.swap(true, Ordering::Relaxed) {
                    watch.stopping();
                }
                (0..control.take_fires()).for_each(|_| self.fire_by_hand(watch));
                self.reload(control, watch).into_iter().for_each(|warning| self.warn(warning, watch, &mut warnings));
                let triggers = self.shared.triggers.current();
                let in_force = triggers.triggers.iter().map(|trigger| trigger.config());
                prepare_filters(self.plan.filter_engine, &self.plan.sources, in_force)
                    .into_iter()
                    .for_each(|warning| self.warn(warning, watch, &mut warnings));
                drop(triggers);
                self.tell(&reports, watch, &mut warnings);
                if last_status.elapsed() >= STATUS_EVERY {
                    last_status = Instant::now();
                    let mut status = Status { space: self.space.standing(), ..taker.take(&self.shared, self.hits()) };
                    status.interfaces = interfaces(&names, &reports);
                    let notes = health.look(&mut status, &self.shared, &reports);
                    notes.iter().for_each(|note| watch.note(note));
                    watch.status(&status);
                    self.shared.events.flush_hits();
                    health.log_loss(&mut taker, &self.shared);
                    self.tell_of_long_holds(watch);
                    health.cuts().into_iter().for_each(|warning| self.warn(warning, watch, &mut warnings));
                    memory.look().into_iter().for_each(|warning| self.warn(warning, watch, &mut warnings));
                }
            }
            if !self.shared.stop.swap(true, Ordering::Relaxed) {
                watch.stopping();
            }
            let notes = health.look(&mut taker.take(&self.shared, self.hits()), &self.shared, &reports);
            notes.iter().for_each(|note| watch.note(note));
            health.log_loss(&mut taker, &self.shared);
            for (index, worker) in workers.into_iter().enumerate() {
                if worker.join().is_err() {
                    failures.push(format!("worker {index} failed: this is a defect of wirescope"));
                }
            }
        });
        (0..control.take_fires()).for_each(|_| self.fire_by_hand(watch));
        while !self.shared.dumps.wait(STATUS_EVERY) {
            self.tell(&reports, watch, &mut warnings);
        }
        self.tell(&reports, watch, &mut warnings);
        if let Some(exec) = &self.exec {
            exec.finish();
        }
        self.tell_of_commands(watch, &mut warnings);
        let nics = health.end(&reports);
        health.cuts().into_iter().for_each(|warning| self.warn(warning, watch, &mut warnings));
        Ok(self.finish(names, reports, nics, warnings, failures))
    }

    /// Does a reload that waits, once every worker has taken the one before it over.
    fn reload(&self, control: &Control, watch: &dyn Watch) -> Vec<String> {
        match self.shared.triggers.settle().then(|| control.take_reload()).flatten() {
            Some(order) => {
                watch.reloading();
                let warnings = reload(order, &self.shared, self.plan.filter_engine, manual_trigger(&self.plan), watch);
                watch.reloaded();
                warnings
            }
            None => Vec::new(),
        }
    }

    /// Fires every armed trigger, or, where there is none, dumps the last `before` of everything.
    fn fire_by_hand(&self, watch: &dyn Watch) {
        let at_ns = self.shared.ring.heard().map_or_else(now_ns, |(_, heard_ns)| heard_ns);
        let set = self.shared.triggers.current();
        let triggers = if set.triggers.is_empty() { std::slice::from_ref(&set.manual) } else { &set.triggers[..] };
        for trigger in triggers {
            let verdict = self.shared.dumps.fire_by_hand(trigger, at_ns);
            watch.note(&format!("trigger {} by hand: {verdict}", trigger.config().name));
        }
    }

    /// Passes on what has come up: warnings, finished dumps.
    fn tell(&self, reports: &[Mutex<WorkerReport>], watch: &dyn Watch, warnings: &mut Vec<String>) {
        for report in reports {
            let mut report = report.lock().expect("no panic while held");
            let (news, new) = (std::mem::take(&mut report.news), std::mem::take(&mut report.warnings));
            drop(report); // the worker needs it
            news.into_iter().for_each(|news| self.tell_of_interface(news, watch, warnings));
            new.into_iter().for_each(|warning| self.warn(warning, watch, warnings));
        }
        self.shared.dumps.news().iter().for_each(|report| watch.dump(report));
        for told in self.space.look(&self.shared.events) {
            match told {
                Told::Warning(warning) => self.warn(warning, watch, warnings),
                Told::Note(note) => watch.note(&note),
            }
        }
        self.tell_of_commands(watch, warnings);
    }

    /// Passes on what became of commands after dumps.
    fn tell_of_commands(&self, watch: &dyn Watch, warnings: &mut Vec<String>) {
        for news in self.exec.iter().flat_map(|exec| exec.news()) {
            self.shared.events.log("exec", news.to_json());
            news.complaint().into_iter().for_each(|warning| self.warn(warning, watch, warnings));
        }
    }

    /// Whether the dump goes into a pipe that nobody reads any more.
    fn reader_gone(&self) -> bool {
        self.plan.dump.single.is_some() && self.shared.dumps.open().iter().any(|dump| dump.progress.reader_gone())
    }

    fn warn(&self, warning: String, watch: &dyn Watch, warnings: &mut Vec<String>) {
        watch.warning(&warning);
        self.shared.events.log("warning", json!({"text": warning}));
        match warnings.len() {
            ..WARNINGS_MAX => warnings.push(warning),
            WARNINGS_MAX => warnings.push("further warnings are in the log only".to_string()),
            _ => {}
        }
    }

    /// What became of an interface: an event, and a warning or just a line.
    fn tell_of_interface(&self, news: InterfaceNews, watch: &dyn Watch, warnings: &mut Vec<String>) {
        if news.state == InterfaceState::Lost && !self.lost.note(&news.text) {
            return; // another of its workers has told it
        }
        let mut facts = json!({"interface": news.interface, "state": news.state.name(), "text": news.text});
        match news.state {
            InterfaceState::Mtu(bytes) => facts["mtu"] = bytes.into(),
            InterfaceState::Spare(sockets) => facts["sockets"] = sockets.into(),
            _ => {}
        }
        self.shared.events.log("interface", facts);
        if news.state.warns() { self.warn(news.text, watch, warnings) } else { watch.note(&news.text) }
    }

    /// Names dumps that hold segments and don't get on: a disk that doesn't take what is written, most likely.
    fn tell_of_long_holds(&self, watch: &dyn Watch) {
        for dump in self.shared.dumps.open() {
            if let Some((segments, held)) = dump.progress.long_hold(LONG_HOLD) {
                let line = format!(
                    "dump {} of {} has held {segments} segments of the ring for {:.0} s without getting on: is its disk slow?",
                    dump.id,
                    dump.trigger,
                    held.as_secs_f64()
                );
                self.shared.events.log("long_hold", json!({"dump": dump.id, "segments": segments}));
                watch.warning(&line);
            }
        }
    }

    /// Tries from inside, where that was asked for, what must not be possible any more; why that is a failure, if it is.
    fn try_rights(&self, watch: &dyn Watch) -> Option<String> {
        let rights = self.rights.as_ref().filter(|_| self.plan.rights.as_ref().is_some_and(|plan| plan.selftest))?;
        match rights::selftest(rights, &self.outputs.writable()) {
            Ok(tried) => {
                watch.selftest(&tried.facts);
                (!tried.passed).then(|| "rights: something is possible that must not be; the self-test says what".to_string())
            }
            Err(error) => Some(format!("rights: the self-test couldn't be made: {error}")),
        }
    }

    fn hits(&self) -> u64 {
        self.shared.triggers.counts().iter().map(|(_, hits)| hits.total()).sum()
    }

    fn log_start(&self, memory: &RingMemory, notes: &[String]) {
        let ring = &self.shared.ring;
        let run_id: String = ring.run_id().iter().map(|byte| format!("{byte:02x}")).collect();
        let triggers: Vec<_> = self
            .plan
            .triggers
            .iter()
            .map(|trigger| {
                json!({
                    "name": trigger.name,
                    "filter": trigger.filter.text(),
                    "dump": trigger.template.as_ref().map(|template| template.text()),
                    "before_ns": trigger.before_ns,
                    "after_ns": trigger.after_ns,
                    "holdoff_ns": trigger.holdoff_ns,
                    "single": trigger.single,
                })
            })
            .collect();
        self.shared.events.log(
            "start",
            json!({
                "version": env!("CARGO_PKG_VERSION"),
                "run_id": run_id,
                "sources": self.plan.sources.iter().map(|source| &source.spec).collect::<Vec<_>>(),
                "ring_bytes": ring.segments() as u64 * ring.segment_bytes() as u64,
                "segment_bytes": ring.segment_bytes(),
                "memory": memory.to_string(),
                "rights": self.rights.as_ref().map(Rights::to_string),
                "triggers": triggers,
                "config": self.plan.config,
                "capture": live::settings(&self.plan),
                "notes": notes,
            }),
        );
    }

    /// Draws up the summary, writes the ring out, closes the log.
    fn finish(
        self,
        names: Vec<String>,
        reports: Vec<Mutex<WorkerReport>>,
        nics: Vec<NicStatus>,
        warnings: Vec<String>,
        mut failures: Vec<String>,
    ) -> Summary {
        let mut summary = Summary { warnings, nics, ..Summary::default() };
        let counters = self.shared.ring.counters();
        summary.adds_up = counters.add_up();
        let total = counters.total();
        summary.late = total.late_packets;
        summary.received = Amount { packets: total.received_packets, bytes: total.received_bytes };
        summary.stored = Amount { packets: total.stored_packets, bytes: total.stored_bytes };
        summary.filtered = Amount { packets: total.filtered_packets, bytes: total.filtered_bytes };
        summary.dropped = total.dropped;
        summary.cut = total.cut_packets;
        summary.memory = self.shared.ring.memory().to_string();
        summary.interfaces = interfaces(&names, &reports);
        for (name, report) in names.into_iter().zip(reports) {
            let report = report.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
            summary.unreadable += report.counters.unreadable;
            summary.stepped_back += report.counters.stepped_back;
            summary.time_clamped += report.counters.time_clamped;
            failures.extend(report.failure.map(|failure| format!("source failed: {failure}")));
            summary.sources.push((name, report.counters));
        }
        summary.hits = self.shared.triggers.counts();
        summary.dumps = self.shared.dumps.reports();
        summary.space = self.space.summary();
        summary.exec = self.exec.as_ref().map(|exec| exec.counts());
        failures.extend(self.lost.take());
        let refused: u64 = summary.hits.iter().map(|(_, counts)| counts.no_space).sum();
        if refused > 0 {
            failures.push(format!("{refused} hits started no dump: there was no space for it"));
        }
        for dump in summary.dumps.iter().filter(|dump| !dump.complete) {
            failures.push(match &dump.error {
                Some(error) => format!("dump {} is incomplete: {error}", dump.id),
                None => format!("dump {} is incomplete: {} to {} packets are missing", dump.id, dump.lost_min, dump.lost_max),
            });
        }
        if let Some((folder, name)) = &self.outputs.ring_out {
            match scope_store::write_ring(&self.shared.ring, folder, name) {
                Ok(paths) => summary.ring_out = paths,
                Err(error) => failures.push(format!("the ring couldn't be written out: {error}")),
            }
        }
        summary.failures = failures;
        let mut end = summary.to_json();
        if let Some(end) = end.as_object_mut() {
            end.remove("dumps"); // each has its own line
            let heard = self.shared.ring.heard();
            let spared = self.shared.dumps.spared();
            end.insert(
                "scans".into(),
                json!({"shared_packets": spared.packets_shared, "skipped_segments": spared.segments_skipped}),
            );
            end.insert("first".into(), heard.map(|(first_ns, _)| iso(first_ns)).into());
            end.insert("last".into(), heard.map(|(_, last_ns)| iso(last_ns)).into());
        }
        self.shared.events.log("end", end);
        if let Err(error) = self.shared.events.close() {
            summary.failures.push(format!("the event log is incomplete: {error}"));
        }
        summary
    }
}

/// Each live interface of each source, all workers' shares together.
fn interfaces(names: &[String], reports: &[Mutex<WorkerReport>]) -> Vec<InterfaceStatus> {
    let mut interfaces: Vec<InterfaceStatus> = Vec::new();
    for (source, report) in names.iter().zip(reports) {
        for part in &report.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).interfaces {
            let same = |entry: &&mut InterfaceStatus| entry.source == *source && entry.interface == part.interface;
            match interfaces.iter_mut().find(same) {
                Some(entry) => entry.counters.add(&part.counters),
                None => {
                    let (source, interface) = (source.clone(), part.interface.clone());
                    interfaces.push(InterfaceStatus { source, interface, counters: part.counters });
                }
            }
        }
    }
    interfaces
}

/// Without summaries dumps only take longer.
fn start_summarizer(ring: &Arc<Ring>, events: &Events) -> Option<Summarizer> {
    let failed =
        |error| events.log("warning", json!({"text": format!("no thread for summaries: {error}: dumps scan all segments")}));
    Summarizer::start(ring).map_err(failed).ok()
}

/// What a fire by hand does where there is no trigger: the last `before` of everything. It hits no packet.
fn manual_trigger(plan: &RunPlan) -> TriggerConfig {
    let filter = Filter::compile("", VlanRule::Exact, &[LinkType::ETHERNET]).expect("the empty filter compiles");
    TriggerConfig {
        name: MANUAL.to_string(),
        filter,
        template: None,
        before_ns: plan.before_ns,
        after_ns: 0,
        holdoff_ns: 0,
        holdoff_key: None,
        vlan: plan.vlan,
        single: false,
    }
}

/// Sizes of the ring for `workers` workers, each of which knows `link_types` link types at the start.
pub fn ring_config(ring_bytes: u64, segment_bytes: Option<u64>, workers: u32, link_types: usize, run_id: [u8; 16]) -> RingConfig {
    let lanes = workers.max(1) * link_types.max(1) as u32;
    RingConfig { ring_bytes, segment_bytes, workers: workers.max(1), lanes, run_id }
}
