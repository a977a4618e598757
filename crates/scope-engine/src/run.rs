//! A run from start to end.
//!
//! 1. The ring is mapped and made resident; machine code of the triggers' filters is made.
//! 2. The sources are opened, in the order given; nothing is captured before the ring is ready. Up to here nothing is created:
//!    what can't be opened is refused.
//! 3. One thread per worker; the main thread looks after orders, status and events.
//! 4. The run ends when every source has ended, when somebody says stop, or when it has its dumps.
//! 5. Workers end: what the kernel still holds is taken, lanes are committed and sealed, clocks go to the end of time.
//! 6. So every dump ends; their reports are waited for.
//! 7. The ring is written out, if asked for; the summary is drawn up from the counters.

use crate::dumps::{DumpSettings, Dumps};
use crate::events::{Events, now_ns};
use crate::live;
use crate::lockstep::Lockstep;
use crate::memory_watch::MemoryWatch;
use crate::plan::{RunPlan, SourceEntry};
use crate::status::{Status, StatusTaker};
use crate::summary::{Amount, Summary};
use crate::worker::{Feed, Shared, WorkerReport, work};
use scope_dump::DumpReport;
use scope_dump::time_text::iso;
use scope_filter::{Filter, FilterEngine, VlanRule};
use scope_packet::LinkType;
use scope_ring::{Machine, Ring, RingConfig, RingMemory};
use scope_source::file::{FileOptions, FileSource};
use scope_source::spec::SourcePlan;
use scope_source::{Source, SourceError, Timing, pcap, synth};
use scope_trigger::{Places, Trigger, TriggerConfig};
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
/// Name of the trigger behind a fire by hand where there is none.
pub const MANUAL: &str = "manual";

/// Orders from outside while a run goes: a signal handler may give them. One closed set.
#[derive(Debug, Default)]
pub struct Control {
    stops: AtomicU32,
    fires: AtomicU32,
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

    /// Stops asked for so far.
    pub fn stops(&self) -> u32 {
        self.stops.load(Ordering::Relaxed)
    }

    pub(crate) fn take_fires(&self) -> u32 {
        self.fires.swap(0, Ordering::Relaxed)
    }
}

/// Whoever watches a run: called from the run's main thread, never from the packet path (but `prefault` from several threads).
pub trait Watch: Sync {
    /// The ring's memory is being made resident: bytes done so far, of so many.
    fn prefault(&self, done: u64, total: u64);
    /// Sources are open and the ring is ready, in `memory`: capture begins.
    fn started(&self, memory: &RingMemory);
    /// Once a second.
    fn status(&self, status: &Status);
    /// Something worth a line: a warning of a source, a fire by hand.
    fn note(&self, line: &str);
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
    let (segment_bytes, segments) = plan.ring.plan()?;
    let ring_bytes = segment_bytes as u64 * segments as u64;
    let ring = Ring::ready(&plan.ring, &plan.shares, &plan.memory, &|done| {
        watch.prefault(done, ring_bytes);
        control.stops() == 0
    })?;
    let memory = ring.memory();
    // Before the sources are opened: live packets would wait meanwhile.
    let interpreted = make_native(&plan);
    let sources = open_sources(&plan)?;
    let notes = live::notes(&plan, &sources);
    let events = Arc::new(Events::open(&plan.folder).map_err(|cause| EngineError::System {
        place: plan.folder.join(crate::events::EVENTS_FILE).display().to_string(),
        cause,
    })?);
    let names = sources.iter().map(|feed| feed.source.name().to_string()).collect();
    let run = Run::new(plan, ring, events, &sources, control.stops() > 0);
    run.log_start(&memory, &notes);
    watch.started(&memory);
    notes.iter().for_each(|note| watch.note(note));
    run.go(sources, names, interpreted, control, watch)
}

/// Makes machine code of the triggers' filters: before the workers begin, and while they run for link types that one has met.
/// Until it is made the interpreter answers; a worker never waits for it. Says where none can be made, once.
fn make_native(plan: &RunPlan) -> Vec<String> {
    if plan.filter_engine != FilterEngine::Native {
        return Vec::new();
    }
    let failed = |trigger: &TriggerConfig| {
        let error = trigger.filter.make_native().err()?;
        Some(format!("trigger {}: {error}: the interpreter evaluates its filter", trigger.name))
    };
    let prefilters = plan.sources.iter().filter_map(|entry| Some((entry, entry.prefilter.as_ref()?.make_native().err()?)));
    let failed_prefilters =
        prefilters.map(|(entry, error)| format!("source '{}': prefilter: {error}: the interpreter evaluates it", entry.spec));
    plan.triggers.iter().filter_map(failed).chain(failed_prefilters).collect()
}

/// Opens every source: one entry per worker. All files together are one source, shared out where several workers are asked for.
fn open_sources(plan: &RunPlan) -> Result<Vec<Feed>, SourceError> {
    let mut sources: Vec<Feed> = Vec::new();
    let mut files = FileOptions::default();
    let mut file_groups = Vec::new();
    let mut file_workers = 1;
    let own = live::own_traffic(plan);
    for entry in &plan.sources {
        match &entry.plan {
            SourcePlan::File(file) => {
                files.paths.push(file.path.clone());
                file_groups.push(entry.group);
                files.pace = file.pace.or(files.pace);
                files.snap_len = file.snap_len.or(files.snap_len);
                file_workers = file_workers.max(file.workers);
            }
            SourcePlan::AfPacket(live) => {
                sources.extend(feeds(live::open(live, entry, &own)?, entry));
            }
            SourcePlan::Pcap(live) => {
                let own = if live.exclude_self { &own[..] } else { &[] };
                sources.extend(feeds([pcap::open(live, own, &entry.spec)?], entry));
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
            let (prefilter, cpus) = first_file.map_or_else(Default::default, |entry| {
                (entry.prefilter.clone(), entry.pinning.of_worker(index as usize).to_vec())
            });
            sources.push(Feed { source, groups: file_groups.clone(), prefilter, cpus });
        }
    }
    Ok(sources)
}

/// The workers' sources of one entry, each of which has only one part.
fn feeds<S: Source + 'static>(sources: impl IntoIterator<Item = S>, entry: &SourceEntry) -> impl Iterator<Item = Feed> {
    sources.into_iter().enumerate().map(|(index, source)| Feed {
        source: Box::new(source),
        groups: vec![entry.group],
        prefilter: entry.prefilter.clone(),
        cpus: entry.pinning.of_worker(index).to_vec(),
    })
}

/// One run, its parts wired together.
struct Run {
    plan: RunPlan,
    shared: Shared,
    manual: Trigger,
    live: bool,
}

impl Run {
    fn new(plan: RunPlan, ring: Arc<Ring>, events: Arc<Events>, sources: &[Feed], stopped: bool) -> Run {
        let live = sources.iter().any(|feed| feed.source.timing() == Timing::Live);
        let grace_ns = sources.iter().map(|feed| feed.source.grace_ns()).max().unwrap_or(0);
        let places = Places::new(plan.dumps_max, grace_ns, plan.exit_after);
        let settings = DumpSettings {
            folder: plan.folder.clone(),
            patience: live.then(|| PATIENCE + Duration::from_nanos(grace_ns.max(0) as u64)),
            exit_after: plan.exit_after,
            filter_engine: plan.filter_engine,
        };
        let dumps = Dumps::new(&ring, &places, &events, settings);
        let shared = Shared {
            ring,
            triggers: plan.triggers.iter().cloned().map(Trigger::new).collect(),
            dumps,
            events,
            lockstep: Lockstep::new(sources.len()),
            stop: AtomicBool::new(stopped),
            ended: AtomicUsize::new(0),
            main: std::thread::current(),
        };
        Run { manual: manual_trigger(&plan), plan, shared, live }
    }

    /// Workers from start to end, with the main thread beside them.
    fn go(
        self,
        sources: Vec<Feed>,
        names: Vec<String>,
        interpreted: Vec<String>,
        control: &Control,
        watch: &dyn Watch,
    ) -> Result<Summary, EngineError> {
        let reports: Vec<Mutex<WorkerReport>> = sources.iter().map(|_| Mutex::default()).collect();
        let mut warnings = Vec::new();
        let mut failures = Vec::new();
        interpreted.into_iter().for_each(|warning| self.warn(warning, watch, &mut warnings));
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
            let mut taker = StatusTaker::new(names.clone(), self.live);
            let mut memory = MemoryWatch::new(Machine::this(), &self.shared.ring);
            let mut last_status = Instant::now();
            while self.shared.ended.load(Ordering::Acquire) < workers.len() {
                std::thread::park_timeout(LOOK_EVERY);
                if control.stops() > 0 || self.shared.dumps.all_done() {
                    self.shared.stop.store(true, Ordering::Relaxed);
                }
                (0..control.take_fires()).for_each(|_| self.fire_by_hand(watch));
                make_native(&self.plan).into_iter().for_each(|warning| self.warn(warning, watch, &mut warnings));
                self.tell(&reports, watch, &mut warnings);
                if last_status.elapsed() >= STATUS_EVERY {
                    last_status = Instant::now();
                    watch.status(&taker.take(&self.shared, self.hits()));
                    self.shared.events.flush_hits();
                    self.log_loss(&mut taker);
                    self.tell_of_long_holds(watch);
                    memory.look().into_iter().for_each(|warning| self.warn(warning, watch, &mut warnings));
                }
            }
            taker.take(&self.shared, self.hits());
            self.log_loss(&mut taker);
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
        Ok(self.finish(names, reports, warnings, failures))
    }

    /// Fires every armed trigger, or, where there is none, dumps the last `before` of everything.
    fn fire_by_hand(&self, watch: &dyn Watch) {
        let at_ns = self.shared.ring.heard().map_or_else(now_ns, |(_, heard_ns)| heard_ns);
        let triggers =
            if self.shared.triggers.is_empty() { std::slice::from_ref(&self.manual) } else { &self.shared.triggers[..] };
        for trigger in triggers {
            let verdict = self.shared.dumps.fire_by_hand(trigger, at_ns);
            watch.note(&format!("trigger {} by hand: {verdict}", trigger.config().name));
        }
    }

    /// Passes on what has come up: warnings, finished dumps.
    fn tell(&self, reports: &[Mutex<WorkerReport>], watch: &dyn Watch, warnings: &mut Vec<String>) {
        for report in reports {
            let new = std::mem::take(&mut report.lock().expect("no panic while held").warnings);
            new.into_iter().for_each(|warning| self.warn(warning, watch, warnings));
        }
        self.shared.dumps.news().iter().for_each(|report| watch.dump(report));
    }

    fn warn(&self, warning: String, watch: &dyn Watch, warnings: &mut Vec<String>) {
        watch.note(&warning);
        self.shared.events.log("warning", json!({"text": warning}));
        warnings.push(warning);
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
                watch.note(&line);
            }
        }
    }

    fn hits(&self) -> u64 {
        self.shared.triggers.iter().map(|trigger| trigger.counts().total()).sum::<u64>() + self.manual.counts().total()
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
                "triggers": triggers,
                "capture": live::settings(&self.plan),
                "notes": notes,
            }),
        );
    }

    /// Logs packets that were dropped since this was last looked at.
    fn log_loss(&self, taker: &mut StatusTaker) {
        let dropped: serde_json::Map<String, serde_json::Value> =
            taker.new_drops().into_iter().map(|(reason, packets)| (reason.name().to_string(), packets.into())).collect();
        if !dropped.is_empty() {
            self.shared.events.log("loss", json!({"packets": dropped}));
        }
    }

    /// Draws up the summary, writes the ring out, closes the log.
    fn finish(
        self,
        names: Vec<String>,
        reports: Vec<Mutex<WorkerReport>>,
        warnings: Vec<String>,
        mut failures: Vec<String>,
    ) -> Summary {
        let mut summary = Summary { warnings, ..Summary::default() };
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
        for (name, report) in names.into_iter().zip(reports) {
            let report = report.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
            summary.unreadable += report.counters.unreadable;
            summary.stepped_back += report.counters.stepped_back;
            summary.time_clamped += report.counters.time_clamped;
            failures.extend(report.failure.map(|failure| format!("source failed: {failure}")));
            summary.sources.push((name, report.counters));
        }
        let manual = (self.manual.counts().total() > 0).then_some(&self.manual);
        let triggers = self.shared.triggers.iter().chain(manual);
        summary.hits = triggers.map(|trigger| (trigger.config().name.clone(), trigger.counts())).collect();
        summary.dumps = self.shared.dumps.reports();
        for dump in summary.dumps.iter().filter(|dump| !dump.complete) {
            failures.push(match &dump.error {
                Some(error) => format!("dump {} is incomplete: {error}", dump.id),
                None => format!("dump {} is incomplete: {} to {} packets are missing", dump.id, dump.lost_min, dump.lost_max),
            });
        }
        if let Some(path) = &self.plan.ring_out {
            match scope_store::write_ring(&self.shared.ring, path) {
                Ok(paths) => summary.ring_out = paths,
                Err(error) => failures.push(format!("the ring couldn't be written out: {error}")),
            }
        }
        summary.failures = failures;
        let mut end = summary.to_json();
        if let Some(end) = end.as_object_mut() {
            end.remove("dumps"); // each has its own line
            let heard = self.shared.ring.heard();
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

/// What a fire by hand does where there is no trigger: the last `before` of everything. It hits no packet.
fn manual_trigger(plan: &RunPlan) -> Trigger {
    let filter = Filter::compile("", VlanRule::Exact, &[LinkType::ETHERNET]).expect("the empty filter compiles");
    Trigger::new(TriggerConfig {
        name: MANUAL.to_string(),
        filter,
        template: None,
        before_ns: plan.before_ns,
        after_ns: 0,
        holdoff_ns: 0,
        holdoff_key: None,
        vlan: plan.vlan,
        single: false,
    })
}

/// Sizes of the ring for `workers` workers, each of which knows `link_types` link types at the start.
pub fn ring_config(ring_bytes: u64, segment_bytes: Option<u64>, workers: u32, link_types: usize, run_id: [u8; 16]) -> RingConfig {
    let lanes = workers.max(1) * link_types.max(1) as u32;
    RingConfig { ring_bytes, segment_bytes, workers: workers.max(1), lanes, run_id }
}
