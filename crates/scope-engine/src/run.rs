//! A run from start to end.
//!
//! 1. The folder for dumps and that of `--ring-out` are opened; from here on they are these handles, not
//!    paths. Who the run will
//!    be is decided by who can write there.
//! 2. The process for commands after dumps is started, as that user: it keeps the right to start processes.
//! 3. The ring is mapped, locked and made resident; machine code of the filters is made.
//! 4. The sources are opened, in the order given; nothing is captured before the ring is ready.
//! 5. Rights are given up, in all threads: root, capabilities, all system calls and files that the rest
//!    doesn't need ([`rights`]
//!    tells in which order). Whatever needs a right comes before this line; every byte of a packet, and of a capture file, is
//!    looked at behind it. Up to here nothing is created but new stores: what can't be opened is refused.
//! 6. The log is opened, as the user that the run is now. One thread per worker, and one beside that builds
//!    summaries of
//!    what live workers have sealed; the main thread looks after orders, status and events.
//! 7. The run ends when every source has ended, when somebody says stop, or when it has its dumps.
//! 8. Workers end: what the kernel still holds is taken, lanes are committed and sealed, clocks go to the end
//!    of time.
//! 9. So every dump ends; their reports are waited for, then the commands that follow dumps.
//! 10. The ring is written out, if asked for; the summary is drawn up from the counters.

mod ends;
mod telling;

use crate::attach::{Attach, JOIN_TIME, Prepared};
use crate::control::Control;
use crate::dumps::{DumpSettings, Dumps};
use crate::error::EngineError;
use crate::exec::{Exec, Surroundings};
use crate::failure::Failure;
use crate::few_pins;
use crate::filters::prepare_filters;
use crate::health::Health;
use crate::joining::Joining;
use crate::live;
use crate::lockstep::Lockstep;
use crate::loss_told::LossTold;
use crate::lost::LostInterfaces;
use crate::measuring::Measuring;
use crate::memory_watch::MemoryWatch;
use crate::nic_watch::NicWatch;
use crate::obeying::{Obeying, Phase};
use crate::outputs::Outputs;
use crate::plan::{AttachPlan, Fixed, RunPlan, StatsPlan};
use crate::recording::{self, Asked, Outlets, Recording};
use crate::refused::Refused;
use crate::report;
use crate::scripts::{Around, Scripts};
use crate::short_snap;
use crate::socket::Socket;
use crate::source_rules::SourceRules;
use crate::sources::{self, open_sources};
use crate::space::Space;
use crate::statistics::{Statistics, Tables};
use crate::status::{Status, StatusTaker, counter_samples};
use crate::steps::Steps;
use crate::stores::{self, OpenStores, Stores};
use crate::summary::Summary;
use crate::threads::SystemThreads;
use crate::triggers::{TriggerSet, Triggers};
use crate::watch::{Opening, Watch};
use crate::wiring::Shared;
use crate::worker::{Feed, work};
use scope_dump::{Keeper, Past, Scans, Target};
use scope_events::Events;
use scope_events::event::Warning;
use scope_fault::Fault;
use scope_machine::Machine;
use scope_machine::limits;
use scope_packet::{Clock, GapReason, SystemClock};
use scope_rights::{Decision, Rights};
use scope_ring::{Ring, RingConfig, Summaries, Summarizer};
use scope_source::Timing;
use scope_trigger::{Places, TriggerConfig};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Questions for packets that whoever listens at the control socket answers at once, at most.
pub const QUESTIONS_MAX: usize = 4;
/// How often the main thread looks at orders.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// How often it takes the status.
const STATUS_EVERY: Duration = Duration::from_secs(1);
/// How long a live dump waits at most, after its window's end, for a worker that has stopped telling the
/// time.
const PATIENCE: Duration = Duration::from_secs(2);

/// Runs `plan` to its end.
pub fn run(plan: RunPlan, control: &Arc<Control>, watch: &dyn Watch) -> Result<Summary, EngineError> {
    scope_rights::hide();
    let _over = OverOnDrop(control);
    let outputs = Outputs::open(&plan)?;
    let of_stats = recording::folder(&plan.fixed).map_err(EngineError::Stats)?;
    let written: Vec<_> = outputs
        .writable()
        .into_iter()
        .chain(stores::writable(outputs.volumes()))
        .chain(of_stats.as_ref().map(recording::writable))
        .collect();
    let decision = plan.fixed.rights.as_ref().map(|plan| scope_rights::decide(plan, &written)).transpose()?;
    drop(written);
    let exec = start_exec(&plan.fixed, &outputs, decision.as_ref())?;
    // What runs commands keeps the limit that it found.
    limits::allow_dumps(plan.live.dumps_max, if plan.fixed.control.is_some() { QUESTIONS_MAX } else { 0 });
    let (segment_bytes, segments) = plan.fixed.ring.plan()?;
    let ring_bytes = segment_bytes as u64 * segments as u64;
    let ring = Ring::ready(&plan.fixed.ring, &plan.fixed.shares, &plan.fixed.memory, &|done| {
        watch.prefault(done, ring_bytes);
        control.stops() == 0
    })?;
    let memory = ring.memory();
    let store = plan.fixed.store.as_ref();
    let stores = store.map(|store| {
        let engine = plan.fixed.filter_engine;
        OpenStores::open(store, &plan.live.store_bounds, engine, &ring, decision.as_ref())
    });
    let stores = stores.transpose()?;
    // Before the sources are opened: live packets would wait meanwhile.
    let Fixed { filter_engine, sources, signals, .. } = &plan.fixed;
    let mut warnings = prepare_filters(*filter_engine, sources, store, signals, plan.live.triggers.iter());
    let source_rules = Arc::new(SourceRules::new(sources));
    warnings.extend(source_rules.prepare(*filter_engine));
    warnings.extend(short_snap::warnings(&plan, &plan.fixed.link_types).into_iter().map(Warning::from));
    let make = |stats: &StatsPlan| Tables::make(stats, ring.run_id(), &sources::live_workers(&plan.fixed));
    let tables = plan.fixed.stats.as_ref().map(make).unwrap_or_default();
    let own = live::own_traffic(&plan.fixed);
    let mut sources = open_sources(&plan.fixed, &own).map_err(EngineError::Source)?;
    let mut notes = live::notes(&plan.fixed, &own, &sources);
    let live = sources.iter().any(|feed| feed.source.timing() == Timing::Live);
    if let Some(said) = few_pins::of_run(&plan, &ring, live) {
        if live { warnings.push(said.into()) } else { notes.push(said) }
    }
    // Their own code runs with the rights of now.
    let scripts = Scripts::begin(plan.fixed.scripts.clone(), live).map_err(|error| {
        EngineError::Script(Fault::of_thing("a script's library").cause(error.to_string()))
    })?;
    let user = decision.as_ref().and_then(|decision| decision.user());
    let bound = plan.fixed.control.as_ref().map(|control| (control, Socket::bind(control, user)));
    let socket = match bound {
        Some((_, Ok(socket))) => Some(socket),
        Some((control, Err(fault))) if control.is_given => return Err(EngineError::Control(fault)),
        Some((_, Err(fault))) => {
            warnings.push(format!("no control socket: {fault}").into());
            None
        }
        None => None,
    };
    if let Some(socket) = &socket {
        watch.bound(socket).map_err(EngineError::Control)?;
    }
    let attach = plan.fixed.attach.as_ref().map(|attach| Prepared::open(attach, &ring, user));
    let attach = attach.transpose().map_err(EngineError::Control)?;
    warnings.extend(plan.fixed.attach.as_ref().and_then(AttachPlan::warning).map(Warning::from));
    let outlets = Outlets::open(&plan.fixed, ring.run_id(), live).map_err(EngineError::Stats)?;
    let asked = match &socket {
        Some(_) => Asked::open(&outlets, &plan.fixed, QUESTIONS_MAX).map_err(EngineError::Stats)?,
        None => None,
    };
    let nics = NicWatch::begin(&plan.fixed.sources);
    let stored = stores.iter().flat_map(OpenStores::writable);
    let taken_away = socket.iter().map(Socket::writable).chain(attach.iter().filter_map(Prepared::writable));
    let of_stats = of_stats.as_ref().map(recording::writable);
    let written: Vec<_> =
        outputs.writable().into_iter().chain(stored).chain(taken_away).chain(of_stats).collect();
    let mut rights = decision.map(|decision| scope_rights::give_up(decision, &written)).transpose()?;
    drop(written);
    sources::begin(&plan.fixed, &mut sources).map_err(EngineError::Source)?;
    notes.extend(stores.iter().flat_map(OpenStores::notes));
    // Files don't wait for summaries, and are gone through once.
    let summaries = (live && !plan.live.triggers.is_empty()).then(|| Summaries::new(&ring));
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let volumes = stores.as_ref().map(OpenStores::folders).unwrap_or_default();
    let past = stores.as_ref().map(|stores| Arc::new(stores.past(&ring, &clock)));
    let start = |stores: OpenStores| stores.start(&ring, summaries.as_ref(), plan.fixed.status_every);
    let stores = stores.map(start).transpose()?;
    if let Some(rights) = &mut rights {
        rights.commands_abi = exec.as_ref().map(|exec| exec.landlock_abi());
    }
    outputs.join_budget()?;
    let events = Arc::new(outputs.open_events(&ring.run_id())?);
    let of_script =
        |trigger: &TriggerConfig| trigger.condition.script().is_some() || trigger.response.script.is_some();
    if plan.live.triggers.iter().any(of_script) && !scope_script::machine_code_works() {
        warnings.push(SLOW_SCRIPTS.to_string().into());
    }
    let scripts = Arc::new(scripts);
    let attach = attach.map(|attach| attach.start(&ring, live, plan.fixed.filter_engine)).transpose();
    let attach =
        attach.map_err(|cause| EngineError::System { place: "no thread for --attach".into(), cause })?;
    let attach = attach.map(Arc::new);
    let ready = Ready {
        outputs,
        rights,
        ring,
        tables,
        stores,
        past,
        clock,
        summaries,
        events,
        exec,
        scripts,
        attach,
        source_rules,
    };
    let run = Run::new(plan, ready, &sources, control.clone());
    run.log_start(&memory, &notes);
    control.at_once.knows(&run.shared.events, &run.shared.dumps);
    for note in &notes {
        watch.note(note);
    }
    if control.stops() == 0 {
        watch.started(&memory, run.rights.as_ref());
    }
    if let Some(socket) = &socket {
        let folder = match &run.outputs.dump.target {
            Target::Folder(folder) => Some(folder.clone()),
            Target::File { .. } | Target::Stream(_) => None,
        };
        if folder.is_none() {
            warnings.push(NO_AUDIT.to_string().into());
        }
        let (run_id, events) = (run.shared.ring.run_id(), &run.shared.events);
        let (tail, audit) = (events.tail().clone(), events.audit().clone());
        let answerer = run.shared.dumps.answerer();
        let measuring = run.shared.measuring.clone();
        let statistics = run.shared.statistics.clone();
        watch.opening(Opening {
            socket,
            run_id,
            folder,
            volumes,
            tail,
            measuring,
            audit,
            answerer,
            statistics,
            asked: asked.map(Arc::new),
            attach: run.shared.attach.clone(),
        });
    }
    run.go(sources, nics, outlets, warnings, watch)
}

/// Where a run that can be asked has no place for what is ordered.
const NO_AUDIT: &str = "orders and looks at packets stand in no audit: a run with -w has no folder for it; give it --out DIR \
                        instead";

/// Between two looks at whether members have joined.
const MEMBERS_EVERY: Duration = Duration::from_millis(10);

/// Where scripts get no machine code.
const SLOW_SCRIPTS: &str =
    "scripts get no memory for machine code, and run in an interpreter, ten to fifty times slower";

/// However a run ends, nobody waits for an answer of it any more.
struct OverOnDrop<'a>(&'a Control);

impl Drop for OverOnDrop<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// Starts what runs after dumps, if anything does: never as root.
fn start_exec(
    fixed: &Fixed,
    outputs: &Outputs,
    decision: Option<&Decision>,
) -> Result<Option<Arc<Exec>>, EngineError> {
    let Some(exec) = fixed.dump.exec.clone() else { return Ok(None) };
    if let Some(why) = decision.and_then(|decision| decision.stays_root()) {
        return Err(EngineError::Exec(Fault::of("exec").cause(format!("commands never run as root: {why}"))));
    }
    let around = Surroundings { user: decision.and_then(|decision| decision.user()), dumps: outputs.dumps() };
    Exec::start(exec, &around).map(Some).map_err(EngineError::Exec)
}

/// One run, its parts wired together.
struct Run {
    control: Arc<Control>,
    fixed: Fixed,
    outputs: Outputs,
    rights: Option<Rights>,
    shared: Shared,
    live: bool,
    space: Space,
    exec: Option<Arc<Exec>>,
    lost: LostInterfaces,
    /// Builds summaries until the run ends.
    _summarizer: Option<Summarizer>,
    /// Holds segments for dumps that hang.
    _keeper: Option<Keeper>,
}

/// What was opened and begun before the first packet.
struct Ready {
    outputs: Outputs,
    rights: Option<Rights>,
    ring: Arc<Ring>,
    tables: Tables,
    stores: Option<Stores>,
    past: Option<Arc<Past>>,
    clock: Arc<dyn Clock>,
    summaries: Option<Arc<Summaries>>,
    events: Arc<Events>,
    exec: Option<Arc<Exec>>,
    scripts: Arc<Scripts>,
    attach: Option<Arc<Attach>>,
    source_rules: Arc<SourceRules>,
}

impl Run {
    fn new(plan: RunPlan, ready: Ready, sources: &[Feed], control: Arc<Control>) -> Run {
        let Ready {
            outputs,
            rights,
            ring,
            tables,
            stores,
            past,
            clock,
            summaries,
            events,
            exec,
            scripts,
            attach,
            source_rules,
        } = ready;
        let live = sources.iter().any(|feed| feed.source.timing() == Timing::Live);
        let grace_ns = sources.iter().map(|feed| feed.source.grace_ns()).max().unwrap_or(0);
        let places = Places::new(plan.live.dumps_max, grace_ns, plan.live.exit_after);
        let space = Space::new(&outputs.dump);
        if let Some(budget) = &outputs.dump.budget {
            places.watch_space(budget.full());
        }
        let settings = DumpSettings {
            output: outputs.dump.clone(),
            exec: exec.clone(),
            patience: live.then(|| PATIENCE + Duration::from_nanos(grace_ns.max(0) as u64)),
            filter_engine: plan.fixed.filter_engine,
            past,
            clock: clock.clone(),
            threads: Arc::new(SystemThreads),
            scripts: Some(scripts.clone()),
        };
        let start = |summaries: &Arc<Summaries>| start_summarizer(&ring, summaries, &events);
        let summarizer = summaries.as_ref().and_then(start);
        let scans = Scans::new(&ring, summaries);
        // Workers of files wait for a dump that hangs.
        let keeper = if live { start_keeper(&scans, &events) } else { None };
        let dumps = Dumps::new(&ring, &places, &events, &scans, settings, plan.live.exit_after);
        let measuring = {
            let (signals, bytes) = (plan.fixed.signals.clone(), plan.fixed.count_bytes);
            Arc::new(Measuring::new(signals, sources.len(), ring.run_id(), bytes, live))
        };
        let begin = |stats| Arc::new(Statistics::new(stats, sources.len(), ring.run_id(), live, tables));
        let statistics = plan.fixed.stats.clone().map(begin);
        let shared = Shared {
            source_rules,
            attach,
            ring,
            measuring,
            statistics,
            triggers: Triggers::new(&plan.live.triggers, plan.live.manual_trigger(plan.fixed.vlan)),
            dumps,
            scripts,
            stores,
            events,
            lockstep: Lockstep::new(sources.len()),
            steps: Steps::default(),
            clock,
            stop: AtomicBool::new(control.stops() > 0),
            ended: AtomicUsize::new(0),
            main: std::thread::current(),
        };
        Run {
            control,
            fixed: plan.fixed,
            outputs,
            rights,
            shared,
            live,
            space,
            exec,
            lost: LostInterfaces::default(),
            _summarizer: summarizer,
            _keeper: keeper,
        }
    }

    /// Workers from start to end, with the main thread beside them.
    fn go(
        self,
        sources: Vec<Feed>,
        nics: NicWatch,
        outlets: Outlets,
        early: Vec<Warning>,
        watch: &dyn Watch,
    ) -> Result<Summary, EngineError> {
        let names: Vec<String> = sources.iter().map(|feed| feed.source.name().to_string()).collect();
        let (reporters, reports): (Vec<_>, Vec<_>) = sources.iter().map(|_| report::begin()).unzip();
        let mut warnings = Vec::new();
        let mut failures: Vec<Failure> = Vec::new();
        let mut refused = Refused::default();
        let mut health = Health::begin(&self.fixed, nics, names.len(), self.live, &self.shared);
        let mut taker = StatusTaker::new(names, reports, self.live);
        for note in &health.notes(&self.shared) {
            watch.note(note);
        }
        for warning in early {
            self.warn(warning, watch, &mut warnings);
        }
        let orders = Obeying { shared: &self.shared, watch, fixed: &self.fixed, live: self.live };
        // The process was stopped, and goes on.
        let mut resumed = false;
        if !self.live
            && let Err(failure) = self.wait_for_members(watch)
        {
            failures.push(failure);
            self.shared.stop.store(true, Ordering::Relaxed);
        }
        std::thread::scope(|scope| {
            // Before the workers: they wait for it from their first packet on.
            let joining = Joining::new(&self.shared, self.live);
            let signals = std::thread::Builder::new().name("signals".to_string());
            if let Err(cause) = signals.spawn_scoped(scope, move || joining.work()) {
                failures.push(Failure::of_error("no thread for signals", &cause));
            }
            if let Some(statistics) = &self.shared.statistics {
                let recording = Recording::new(&self.shared, statistics, outlets);
                let stats = std::thread::Builder::new().name("stats".to_string());
                if let Err(cause) = stats.spawn_scoped(scope, move || recording.work()) {
                    statistics.over();
                    failures.push(Failure::of_error("no thread for statistics", &cause));
                }
            }
            let mut followed = self.follow(watch, &mut warnings);
            let mut workers = Vec::new();
            for (index, (feed, reporter)) in sources.into_iter().zip(reporters).enumerate() {
                let shared = &self.shared;
                let worker = std::thread::Builder::new().name(format!("worker-{index}"));
                match worker.spawn_scoped(scope, move || work(index as u32, feed, shared, reporter)) {
                    Ok(handle) => workers.push(handle),
                    Err(cause) => {
                        self.shared.stop.store(true, Ordering::Relaxed);
                        self.shared.ring.begin_listening(index as u32, i64::MAX, GapReason::NotStarted);
                        self.shared.ring.end_clock(index as u32);
                        self.shared.lockstep.end(index as u32);
                        self.shared.measuring.end(index as u32);
                        if let Some(statistics) = &self.shared.statistics {
                            statistics.end(index as u32);
                        }
                        failures.push(Failure::of_error(&format!("no thread for worker {index}"), &cause));
                    }
                }
            }
            failures.extend(self.try_rights(watch));
            let mut memory = MemoryWatch::new(Machine::this(), &self.shared.ring);
            let mut last_status = Instant::now();
            let mut loss = LossTold::new(self.doctors_words());
            while self.shared.ended.load(Ordering::Acquire) < workers.len() {
                std::thread::park_timeout(LOOK_EVERY);
                let over = self.control.stops() > 0 || self.shared.dumps.all_done() || self.reader_gone();
                if over && !self.shared.stop.swap(true, Ordering::Relaxed) {
                    watch.stopping();
                }
                resumed |= self.obey(&orders, Phase::Going, &mut warnings);
                if self.shared.triggers.is_past(&followed) {
                    followed = self.follow(watch, &mut warnings);
                }
                let triggers = self.shared.triggers.current();
                let in_force = triggers.of_packets.iter().map(|trigger| trigger.config());
                let Fixed { filter_engine, sources, signals, .. } = &self.fixed;
                let unready = prepare_filters(*filter_engine, sources, None, signals, in_force);
                let of_rules = self.shared.source_rules.prepare(*filter_engine);
                for warning in unready.into_iter().chain(of_rules) {
                    self.warn(warning, watch, &mut warnings);
                }
                drop(triggers);
                if self.live {
                    self.tell_of_steps(watch, &mut warnings);
                }
                self.tell(&mut taker, watch, &mut warnings);
                let dropped = self.shared.ring.counters().total().dropped;
                if let Some(line) = loss.look(&dropped, Instant::now()) {
                    watch.warning(&line);
                }
                if last_status.elapsed() >= STATUS_EVERY {
                    last_status = Instant::now();
                    let mut status = Status { space: self.space.usage(), ..taker.take(&self.shared) };
                    let notes = health.look(&mut status, &self.shared);
                    resumed |= self.obey(&orders, Phase::Going, &mut warnings);
                    if std::mem::take(&mut resumed) {
                        health.note_resumed(&self.shared);
                    }
                    self.sample_counters(&status);
                    for note in &notes {
                        watch.note(note);
                    }
                    watch.status(&status);
                    watch.facts(&health.line(&status, &self.shared));
                    self.tell_of_stores(watch, &mut warnings);
                    self.shared.events.flush_hits();
                    health.log_loss(&mut taker, &self.shared);
                    self.tell_of_long_holds(watch);
                    self.tell_of_refused(&mut refused, watch);
                    self.tell_of_audit(watch, &mut warnings);
                    for warning in health.cuts() {
                        self.warn(warning, watch, &mut warnings);
                    }
                    if let Some(warning) = memory.look() {
                        self.warn(warning, watch, &mut warnings);
                    }
                }
            }
            if !self.shared.stop.swap(true, Ordering::Relaxed) {
                watch.stopping();
            }
            let mut status = taker.take(&self.shared);
            let notes = health.look(&mut status, &self.shared);
            resumed |= self.obey(&orders, Phase::SourcesEnded, &mut warnings);
            if resumed {
                health.note_resumed(&self.shared);
            }
            self.sample_counters(&status);
            watch.facts(&health.line(&status, &self.shared));
            for note in &notes {
                watch.note(note);
            }
            health.log_loss(&mut taker, &self.shared);
            for (index, worker) in workers.into_iter().enumerate() {
                if worker.join().is_err() {
                    failures.push(format!("worker {index} failed: this is a defect of wirescope").into());
                }
            }
        });
        // All that there will be is in the ring: whoever reads it there reads on, and knows that it is all.
        if let Some(attach) = &self.shared.attach {
            attach.finish();
            let mut finished = None;
            while attach.is_read_from(&mut finished) {
                std::thread::park_timeout(LOOK_EVERY);
                self.obey(&orders, Phase::Closing, &mut warnings);
                self.tell(&mut taker, watch, &mut warnings);
            }
            attach.end();
        }
        let ended = Instant::now();
        while !self.shared.scripts.have_read()
            && self.shared.scripts.patience().is_none_or(|patience| ended.elapsed() < patience)
        {
            std::thread::park_timeout(LOOK_EVERY);
            self.obey(&orders, Phase::Closing, &mut warnings);
            self.tell(&mut taker, watch, &mut warnings);
        }
        while !self.shared.dumps.wait(STATUS_EVERY) {
            self.obey(&orders, Phase::Closing, &mut warnings);
            self.tell(&mut taker, watch, &mut warnings);
        }
        self.shared.scripts.end();
        // What was fired behind the last look.
        while !self.shared.dumps.wait(STATUS_EVERY) {
            self.tell(&mut taker, watch, &mut warnings);
        }
        if let Some(stores) = &self.shared.stores {
            stores.end();
            let mut last_status = Instant::now();
            while !stores.is_over() {
                std::thread::park_timeout(LOOK_EVERY);
                if last_status.elapsed() >= STATUS_EVERY {
                    last_status = Instant::now();
                    watch.status(&Status { space: self.space.usage(), ..taker.take(&self.shared) });
                }
                self.obey(&orders, Phase::Closing, &mut warnings);
                self.tell(&mut taker, watch, &mut warnings);
                self.tell_of_stores(watch, &mut warnings);
            }
        }
        self.tell_of_stores(watch, &mut warnings);
        self.obey(&orders, Phase::Closing, &mut warnings);
        self.control.end();
        self.tell(&mut taker, watch, &mut warnings);
        if let Some(exec) = &self.exec {
            exec.finish();
        }
        self.tell_of_commands(watch, &mut warnings);
        self.tell_of_refused(&mut refused, watch);
        let mut status = taker.take_last(&self.shared);
        self.tell_of_disorder(&status, watch, &mut warnings);
        health.look_at_nics(&mut status);
        for warning in health.cuts() {
            self.warn(warning, watch, &mut warnings);
        }
        watch.closing();
        self.tell_of_audit(watch, &mut warnings);
        Ok(self.finish(status, warnings, failures, &refused))
    }

    /// Waits for the members that a run which loses nothing is to begin with.
    ///
    /// # Errors
    /// They don't come.
    fn wait_for_members(&self, watch: &dyn Watch) -> Result<(), Failure> {
        let Some(attach) = &self.shared.attach else { return Ok(()) };
        let begun = Instant::now();
        let mut is_told = false;
        while self.control.stops() == 0 {
            let lacking = attach.lacking();
            let Some((name, there, wanted)) = lacking.first() else { break };
            let words = format!("{there} of {wanted} members have joined");
            if begun.elapsed() >= JOIN_TIME {
                let cause = format!("{words} in {} s", JOIN_TIME.as_secs());
                let fault = Fault::of("group").with_value(name).cause(cause);
                return Err(fault.remedy("start them with the run, or choose less members=").into());
            }
            if !std::mem::replace(&mut is_told, true) {
                watch.note(&format!("group {name}: {words}; reading begins when all have"));
            }
            std::thread::sleep(MEMBERS_EVERY);
        }
        Ok(())
    }

    /// Lets scripts follow the triggers in force, which come back.
    fn follow(&self, watch: &dyn Watch, warnings: &mut Vec<String>) -> Arc<TriggerSet> {
        let set = self.shared.triggers.current();
        let Shared { ring, dumps, measuring, scripts, .. } = &self.shared;
        let around = Around { ring, dumps, waits_for: &|judge| measuring.wait_for(judge, ring) };
        for failed in scripts.follow(&set, &around) {
            self.warn(failed, watch, warnings);
        }
        set
    }

    /// Obeys orders that wait; whether the process was stopped, and goes on.
    fn obey(&self, orders: &Obeying<'_>, phase: Phase, warnings: &mut Vec<String>) -> bool {
        let obeyed = orders.look(&self.control, phase);
        for warning in obeyed.warnings {
            self.warn(warning, orders.watch, warnings);
        }
        obeyed.resumed
    }

    /// Notes what the live interfaces have counted, for the dumps whose windows begin or end about now.
    fn sample_counters(&self, status: &Status) {
        if self.live {
            self.shared.dumps.evidence().sample(self.shared.clock.wall_ns(), counter_samples(status));
        }
    }

    /// Whether the dump goes into a pipe that nobody reads any more.
    fn reader_gone(&self) -> bool {
        self.fixed.dump.single.is_some()
            && self.shared.dumps.open().iter().any(|dump| dump.progress.reader_gone())
    }

    /// Tries from inside, where that was asked for, what must not be possible any more; why that is a
    /// failure, if it is.
    fn try_rights(&self, watch: &dyn Watch) -> Option<Failure> {
        let rights =
            self.rights.as_ref().filter(|_| self.fixed.rights.as_ref().is_some_and(|plan| plan.selftest))?;
        match scope_rights::selftest(rights, &self.outputs.writable()) {
            Ok(tried) => {
                watch.selftest(&tried.facts);
                let fault = Fault::of_thing("rights")
                    .cause("something is possible that must not be; the self-test says what");
                (!tried.passed).then(|| fault.into())
            }
            Err(error) => Some(Failure::of_error("rights: the self-test couldn't be made", &error)),
        }
    }
}

/// Without summaries dumps only take longer.
fn start_summarizer(ring: &Arc<Ring>, summaries: &Arc<Summaries>, events: &Events) -> Option<Summarizer> {
    let failed = |error| {
        events.log(Warning::from(format!("no thread for summaries: {error}: dumps scan all segments")))
    };
    Summarizer::start(ring, summaries).map_err(failed).ok()
}

/// Without a keeper only dumps whose disk hangs lack more.
fn start_keeper(scans: &Arc<Scans>, events: &Events) -> Option<Keeper> {
    let failed = |error| {
        let text = format!(
            "no thread to hold packets for dumps: {error}: a dump whose disk stalls for a turn of the ring \
             loses them"
        );
        events.log(Warning::from(text));
    };
    Keeper::start(scans).map_err(failed).ok()
}

/// Sizes of the ring for `workers` workers, each of which knows `link_types` link types at the start.
pub fn ring_config(
    ring_bytes: u64,
    segment_bytes: Option<u64>,
    workers: u32,
    link_types: usize,
    run_id: [u8; 16],
) -> RingConfig {
    let lanes = workers.max(1) * link_types.max(1) as u32;
    RingConfig { ring_bytes, segment_bytes, workers: workers.max(1), lanes, run_id }
}
