//! What a run has published: set by its main thread, read by answers. One lock, which no worker ever takes.

use crate::audit::Audit;
use crate::dumps::Dumps;
use crate::histogram::Measures;
use crate::losses::Losses;
use crate::questions::Questions;
use crate::rates::Rates;
use crate::settings::{Gathered, Hooks, ReadTrigger, Settings};
use scope_dump::Answerer;
use scope_engine::{Asked, Attach, Control, Measuring, Statistics, Status, TriggerStatus};
use scope_events::{Fact, Tail, event, now_ns};
use scope_filter::VlanRule;
use scope_folder::Folder;
use scope_packet::LinkType;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{Notify, Semaphore};

/// Orders and looks at packets that are under way at once, those included whose client has gone.
pub(crate) const ORDERS_MAX: usize = 64;

/// Refusals of a door that are noted per second, of each name and of all without one; what is beyond, the door counts.
const REFUSALS_PER_S: u32 = 5;

/// How far a run is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Phase {
    #[default]
    Capturing,
    /// The sources are told to stop, or have ended.
    Stopping,
}

impl Phase {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Phase::Capturing => "capturing",
            Phase::Stopping => "stopping",
        }
    }
}

/// What the doctor said, and when, ns; its lock is held while it looks, so that one looks at a time.
pub(crate) type Doctored = tokio::sync::Mutex<Option<(i64, Value)>>;

/// What there is to know of a run.
pub(crate) struct State {
    pub control: Arc<Control>,
    /// Wakes whoever reads the configuration file again; `None`: there is no file.
    pub reload: Option<SyncSender<()>>,
    /// Makes triggers of their words.
    pub read_trigger: ReadTrigger,
    /// The signals.
    pub measuring: Arc<Measuring>,
    /// The run, as files and the log spell it.
    pub run: String,
    pub version: String,
    /// The configuration that reproduces the run.
    pub config: String,
    pub vlan: VlanRule,
    /// The folder of its dumps, if they have one of their own.
    pub folder: Option<Arc<Folder>>,
    /// Those of its store.
    pub volumes: Vec<Arc<Folder>>,
    pub tail: Arc<Tail>,
    pub dumps: Dumps,
    pub losses: Losses,
    /// `None`: there is no folder for it.
    pub audit: Option<Audit>,
    /// Something was published.
    pub changed: Notify,
    pub counts: Counts,
    /// What hooks are made of.
    pub hooks: Hooks,
    /// What was gathered before rights were given up.
    pub gathered: Gathered,
    /// What the doctor said last.
    pub doctor: Doctored,
    /// How fast each identity may ask.
    pub rates: Rates,
    /// How fast what a door to the network has refused is noted: anybody who reaches it can be refused.
    pub refusals: Rates,
    /// How long dumps and answers took.
    pub measures: Measures,
    /// Places for [`ORDERS_MAX`].
    pub orders: Arc<Semaphore>,
    /// What answers questions for packets.
    pub answerer: Answerer,
    /// Traffic statistics, if there are any.
    pub statistics: Option<Arc<Statistics>>,
    /// Their database, if there is one.
    pub asked: Option<Arc<Asked>>,
    /// The door for other programs, if there is one.
    pub attach: Option<Arc<Attach>>,
    /// Those that are being answered.
    pub questions: Questions,
    /// Nothing more is ordered or asked for packets.
    closing: AtomicBool,
    over: AtomicBool,
    published: Mutex<Published>,
}

/// The newest that was published.
#[derive(Clone, Default)]
pub(crate) struct Published {
    pub phase: Phase,
    /// Empty before the first second is over.
    pub status: Arc<Status>,
    /// The facts of the log's status lines; an object.
    pub facts: Arc<Value>,
    /// When these were published, ns; 0: not yet.
    pub facts_ns: i64,
}

/// What became of requests, for the metrics.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    /// Connections that were refused because there were too many.
    pub connections_refused: AtomicU64,
    /// Answers by their status.
    answers: Mutex<BTreeMap<u16, u64>>,
}

impl Counts {
    pub(crate) fn answered(&self, status: u16) {
        *self.answers.lock().unwrap_or_else(PoisonError::into_inner).entry(status).or_default() += 1;
    }

    pub(crate) fn answers(&self) -> BTreeMap<u16, u64> {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn refused(&self) -> u64 {
        self.connections_refused.load(Ordering::Relaxed)
    }
}

impl State {
    pub(crate) fn new(
        opening: &scope_engine::Opening<'_>,
        control: Arc<Control>,
        settings: Settings,
    ) -> State {
        let Settings { reload, read_trigger, version, config, vlan, rate, hooks, gathered, .. } = settings;
        let run = format!("{:032x}", u128::from_be_bytes(opening.run_id));
        let audit = opening.folder.clone();
        let audit = audit.map(|folder| Audit::new(folder, run.clone(), opening.audit.clone()));
        let published =
            Published { facts: Arc::new(Value::Object(serde_json::Map::new())), ..Published::default() };
        State {
            control,
            reload,
            read_trigger,
            run,
            version,
            config,
            vlan,
            folder: opening.folder.clone(),
            volumes: opening.volumes.clone(),
            tail: opening.tail.clone(),
            measuring: opening.measuring.clone(),
            dumps: Dumps::default(),
            losses: Losses::default(),
            audit,
            changed: Notify::new(),
            counts: Counts::default(),
            hooks,
            gathered,
            doctor: Doctored::default(),
            rates: Rates::new(rate),
            refusals: Rates::new(REFUSALS_PER_S),
            measures: Measures::default(),
            orders: Arc::new(Semaphore::new(ORDERS_MAX)),
            answerer: opening.answerer.clone(),
            statistics: opening.statistics.clone(),
            asked: opening.asked.clone(),
            attach: opening.attach.clone(),
            questions: Questions::default(),
            closing: AtomicBool::new(false),
            over: AtomicBool::new(false),
            published: Mutex::new(published),
        }
    }

    /// Lines of the audit that couldn't be written.
    pub(crate) fn audit_failures(&self) -> u64 {
        self.audit.as_ref().map_or(0, Audit::failures)
    }

    fn lock(&self) -> MutexGuard<'_, Published> {
        self.published.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The newest.
    pub(crate) fn now(&self) -> Published {
        self.lock().clone()
    }

    pub(crate) fn publish_status(&self, status: &Status) {
        self.dumps.open_now(&status.dumps);
        self.lock().status = Arc::new(status.clone());
        self.changed.notify_waiters();
    }

    pub(crate) fn publish_triggers(&self, triggers: Vec<TriggerStatus>) {
        let mut published = self.lock();
        published.status = Arc::new(Status { triggers, ..Status::clone(&published.status) });
    }

    pub(crate) fn publish_facts(&self, facts: &event::Status) {
        let facts = Arc::new(facts.write());
        let facts_ns = now_ns();
        self.losses.look(&facts, facts_ns);
        let mut published = self.lock();
        (published.facts, published.facts_ns) = (facts, facts_ns);
    }

    pub(crate) fn stopping(&self) {
        self.lock().phase = Phase::Stopping;
        self.changed.notify_waiters();
    }

    /// From now on nobody orders anything, or looks at packets.
    pub(crate) fn close(&self) {
        self.closing.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Relaxed)
    }

    /// The run is over: nothing more will be published.
    pub(crate) fn end(&self) {
        self.over.store(true, Ordering::Relaxed);
        self.changed.notify_waiters();
    }

    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    /// The link types that packets of the run have had.
    pub(crate) fn link_types(&self) -> Vec<LinkType> {
        let mut types: Vec<LinkType> = self.now().status.lanes.iter().map(|lane| lane.link_type).collect();
        types.sort_unstable_by_key(|link_type| link_type.0);
        types.dedup();
        types
    }
}
