//! One run from its seed to its reports: the engine's own parts on a stage, with the simulated source, clock
//! and disk.

use crate::dice::Dice;
use crate::disk::StageDisk;
use crate::packets::{CONDITIONS, FILTERS, LINK_TYPES, PREFILTER, Sent};
use crate::scene::{Act, SEGMENT_BYTES, Scene, TriggerScene};
use crate::source::{Fates, FileSource, LiveSource, Supply};
use crate::stage::{Stage, StageClock};
use scope_dump::{DumpOutput, DumpReport, Scans, Spool, Target};
use scope_engine::Measuring;
use scope_engine::dumps::{DumpSettings, Dumps};
use scope_engine::lockstep::Lockstep;
use scope_engine::report;
use scope_engine::scripts::Scripts;
use scope_engine::steps::Steps;
use scope_engine::threads::{Threads, Work};
use scope_engine::triggers::Triggers;
use scope_engine::wiring::{Part, Shared};
use scope_engine::worker::{Feed, work};
use scope_events::Events;
use scope_filter::{Filter, FilterEngine, Template, VlanRule};
use scope_folder::Folder;
use scope_packet::Clock;
use scope_ring::{ClaimGroup, Ring, RingConfig, Share};
use scope_source::Source;
use scope_trigger::{Condition, Places, Response, TriggerConfig, Window};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Duration;

/// What a run was, and what came of it.
pub(crate) struct Ran {
    pub scene: Scene,
    pub fates: Arc<Fates>,
    /// In order of their numbers.
    pub reports: Vec<DumpReport>,
    /// Windows by the number of the dump.
    pub windows: BTreeMap<u64, Arc<Window>>,
    /// The pipe's file.
    pub stream: Option<PathBuf>,
    /// What is said of the file that has all windows, where they are gathered and there was one.
    pub all: Option<DumpReport>,
    pub ring: Arc<Ring>,
    /// Threads that failed.
    pub panics: Vec<String>,
}

/// A filter over all link types, compiled once per process.
fn compiled(text: &'static str) -> Filter {
    static KNOWN: OnceLock<Mutex<BTreeMap<&'static str, Filter>>> = OnceLock::new();
    let mut known = KNOWN.get_or_init(Mutex::default).lock().expect("no panic while held");
    let compile = || {
        Filter::compile(text, VlanRule::Transparent, &LINK_TYPES).expect("the simulator's filters compile")
    };
    known.entry(text).or_insert_with(compile).clone()
}

/// Threads for dumps: actors of the stage, or none.
struct StageThreads {
    stage: Arc<Stage>,
    threadless: u64,
    dumps: OnceLock<Weak<Dumps>>,
    windows: Mutex<BTreeMap<u64, Arc<Window>>>,
}

impl Threads for StageThreads {
    fn spawn(&self, name: String, work: Work) -> io::Result<()> {
        if let Some(dumps) = self.dumps.get().and_then(Weak::upgrade) {
            let open = dumps.open().into_iter().map(|open| (open.id, open.window.clone()));
            self.windows.lock().expect("no panic while held").extend(open);
        }
        if self.stage.within(0..100) < self.threadless as i64 {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        self.stage.spawn(name, work)
    }
}

/// Plays the run of this seed; its dumps go to `folder`.
pub(crate) fn play(seed: u64, folder: &Path) -> Ran {
    let mut dice = Dice::new(seed);
    let scene = Scene::draw(&mut dice);
    let stage = Stage::new(seed, dice.fork(), scene.wall.clone());
    let clock: Arc<dyn Clock> = Arc::new(StageClock(stage.clone()));
    let config = RingConfig {
        ring_bytes: scene.segments * SEGMENT_BYTES,
        segment_bytes: Some(SEGMENT_BYTES),
        workers: scene.workers,
        lanes: scene.lanes,
        run_id: [7; 16],
    };
    let own_lanes: BTreeSet<_> =
        scene.ports.iter().filter(|port| port.worker == 0).map(|port| port.link_type).collect();
    let share = scene.share_percent.map(|percent| Share { percent, lanes: own_lanes.len() as u32 });
    let ring = Ring::create_shared(&config, share.as_slice()).expect("a small ring can be had");
    let fates = Fates::new(scene.packets.len());
    let sources: Vec<Box<dyn Source>> =
        (0..scene.workers).map(|worker| source(worker, &scene, &stage, &fates)).collect();
    let grace_ns = sources.iter().map(|source| source.grace_ns()).max().unwrap_or(0);
    let stream = scene.stream.then(|| folder.join("pipe"));
    let target = match &stream {
        Some(path) => Target::Stream(File::create(path).expect("a folder for tests can be written to")),
        None => Target::Folder(Arc::new(Folder::open(folder).expect("a folder for tests is there"))),
    };
    let disk = Arc::new(StageDisk::new(&stage, scene.disk.clone(), dice.fork()));
    let unnamed = || tempfile::tempfile_in(folder).expect("a folder for tests can be written to");
    let spool = scene.all.then(|| Spool::new(unnamed(), disk.clone()));
    let output =
        Arc::new(DumpOutput { format: scene.format, target, budget: None, disk, spool: spool.clone() });
    let exit_after = (scene.stream && !scene.all).then_some(1);
    let places = Places::new(scene.dumps_max, grace_ns, exit_after);
    let threads = Arc::new(StageThreads {
        stage: stage.clone(),
        threadless: scene.threadless,
        dumps: OnceLock::new(),
        windows: Mutex::default(),
    });
    let patience = Duration::from_nanos((scene.patience_ns + grace_ns) as u64);
    let settings = DumpSettings {
        output: output.clone(),
        exec: None,
        patience: scene.live.then_some(patience),
        filter_engine: FilterEngine::Interpreter,
        past: None,
        clock: clock.clone(),
        threads: threads.clone(),
        scripts: None,
    };
    let events = Arc::new(Events::nowhere());
    let dumps = Dumps::new(&ring, &places, &events, &Scans::new(&ring, None), settings, exit_after);
    threads.dumps.get_or_init(|| Arc::downgrade(&dumps));
    let shared = Arc::new(Shared {
        source_rules: Arc::default(),
        attach: None,
        measuring: Measuring::unjoined(sources.len()),
        statistics: None,
        scripts: Arc::new(Scripts::none()),
        ring: ring.clone(),
        triggers: Triggers::new(&triggers(&scene.triggers), manual()),
        dumps,
        stores: None,
        events,
        lockstep: Lockstep::new(sources.len()),
        steps: Steps::default(),
        clock,
        stop: AtomicBool::new(false),
        ended: AtomicUsize::new(0),
        main: std::thread::current(),
    });
    for (worker, source) in sources.into_iter().enumerate() {
        let prefilter = scene.prefilter.then(|| compiled(PREFILTER.0));
        let group = if worker == 0 && share.is_some() { ClaimGroup::of_share(0) } else { ClaimGroup::COMMON };
        let feed =
            Feed { source, parts: vec![Part { group, prefilter, ..Part::default() }], cpus: Vec::new() };
        let shared = shared.clone();
        let run = move || work(worker as u32, feed, &shared, report::begin().0);
        stage.spawn(format!("worker-{worker}"), Box::new(run)).expect("a thread for the simulator");
    }
    conduct(&scene, &stage, &shared);
    let panics = stage.end();
    let reports = shared.dumps.reports().kept();
    let all = spool.and_then(|spool| spool.finish(&output, &*ring, shared.dumps.shared_evidence()));
    let windows = std::mem::take(&mut *threads.windows.lock().expect("no panic while held"));
    Ran { scene, fates, reports, windows, stream, all, ring, panics }
}

fn source(worker: u32, scene: &Scene, stage: &Arc<Stage>, fates: &Arc<Fates>) -> Box<dyn Source> {
    let ports: Vec<_> =
        scene.ports.iter().cloned().enumerate().filter(|(_, port)| port.worker == worker).collect();
    let own = |packet: &&Sent| scene.ports[packet.interface].worker == worker;
    let supply = Supply {
        stage: stage.clone(),
        fates: fates.clone(),
        ports,
        packets: scene.packets.iter().filter(own).copied().collect(),
        starved_ns: scene.starved_ns,
    };
    match scene.live {
        true => Box::new(LiveSource::new(supply, &scene.kernel)),
        false => Box::new(FileSource { supply, announced: false, newest_ns: 0, stopped: false }),
    }
}

fn triggers(scenes: &[TriggerScene]) -> Vec<TriggerConfig> {
    scenes.iter().map(trigger).collect()
}

fn trigger(scene: &TriggerScene) -> TriggerConfig {
    TriggerConfig {
        name: format!("t{}", scene.condition),
        condition: Condition::Filter(compiled(CONDITIONS[scene.condition])),
        response: Response {
            template: Some(Template::parse(FILTERS[scene.filter].0).expect("a filter without names")),
            script: None,
            before_ns: scene.before_ns,
            after_ns: scene.after_ns,
            vlan: VlanRule::Transparent,
        },
        when: None,
        holdoff_ns: scene.holdoff_ns,
        holdoff_key: None,
        single: false,
        auto_ns: None,
    }
}

fn manual() -> TriggerConfig {
    let scene = TriggerScene { condition: 0, filter: 0, before_ns: 300_000_000, after_ns: 0, holdoff_ns: 0 };
    TriggerConfig { name: "manual".to_string(), condition: Condition::Hand, ..trigger(&scene) }
}

/// What the run's main thread does: acts in time, then the stop.
fn conduct(scene: &Scene, stage: &Arc<Stage>, shared: &Arc<Shared>) {
    let mut acts = scene.acts.iter().peekable();
    let ended = || shared.ended.load(Ordering::Acquire) as u32 == scene.workers;
    while !ended() {
        shared.steps.look(&*shared.clock);
        stage.pause(stage.within(1_000_000..10_000_000));
        let now_ns = stage.now_ns();
        while let Some((_, act)) = acts.next_if(|(at_ns, _)| *at_ns <= now_ns) {
            match act {
                Act::Fire(index) => fire(*index, shared),
                Act::StandStill(ns) => stage.stand_still(*ns),
                Act::Reload => reload(scene, shared),
            }
        }
        let over =
            scene.live && now_ns >= scene.stop_ns || scene.stream && !scene.all && shared.dumps.all_done();
        if over {
            shared.stop.store(true, Ordering::Relaxed);
        }
    }
}

fn fire(index: usize, shared: &Shared) {
    let set = shared.triggers.current();
    let trigger = set.of_packets.get(index).unwrap_or_else(|| set.hand());
    shared.dumps.ordered(trigger, shared.last_heard(), "", None);
}

fn reload(scene: &Scene, shared: &Shared) {
    let changed: Vec<TriggerScene> = scene
        .triggers
        .iter()
        .map(|trigger| TriggerScene { before_ns: trigger.before_ns / 2, ..trigger.clone() })
        .collect();
    shared.triggers.replace(&triggers(&changed), manual());
}
