//! What is counted of one script, by the thread that runs it, for whoever asks.

use scope_script::{Counts, Watch};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Warnings of one script that wait to be told; further ones are counted.
const WARNINGS_MAX: usize = 128;

/// What a script is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    /// It fires its trigger.
    #[default]
    Trigger,
    /// It says what dumps keep.
    Dump,
}

/// One script, as one thread runs it. All numbers only grow, but for those of now.
#[derive(Debug)]
pub struct Tally {
    /// Its trigger.
    pub name: String,
    /// Its file, as written.
    pub file: String,
    /// What it is for.
    pub kind: Kind,
    /// Its thread is in Lua.
    pub watch: Arc<Watch>,
    pub(super) packets: AtomicU64,
    pub(super) missed: AtomicU64,
    pub(super) behind: AtomicU64,
    pub(super) hits: AtomicU64,
    pub(super) errors: AtomicU64,
    pub(super) ticks: AtomicU64,
    pub(super) memory_bytes: AtomicU64,
    pub(super) flows: AtomicU64,
    pub(super) flows_evicted: AtomicU64,
    pub(super) cpu_ns: AtomicU64,
    /// The number of its thread; 0: it has none yet.
    pub(super) thread: AtomicI32,
    /// Nothing more comes from it.
    pub(super) has_ended: AtomicBool,
    said: Mutex<Said>,
}

/// In words.
#[derive(Debug, Default)]
struct Said {
    disabled: Option<String>,
    report: Option<String>,
    /// What else failed, once each.
    warnings: Vec<String>,
    warnings_lost: u64,
}

impl Tally {
    pub(super) fn new(name: &str, file: &str, kind: Kind) -> Tally {
        Tally {
            name: name.to_string(),
            file: file.to_string(),
            kind,
            watch: Arc::new(Watch::new()),
            packets: AtomicU64::new(0),
            missed: AtomicU64::new(0),
            behind: AtomicU64::new(0),
            hits: AtomicU64::new(0),
            errors: AtomicU64::new(0),
            ticks: AtomicU64::new(0),
            memory_bytes: AtomicU64::new(0),
            flows: AtomicU64::new(0),
            flows_evicted: AtomicU64::new(0),
            cpu_ns: AtomicU64::new(0),
            thread: AtomicI32::new(0),
            has_ended: AtomicBool::new(false),
            said: Mutex::default(),
        }
    }

    fn said(&self) -> MutexGuard<'_, Said> {
        self.said.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the script has counted, on top of what scripts before it had.
    pub(super) fn publish(&self, before: &Counts, now: &Counts) {
        let sums = [
            (&self.packets, before.packets + now.packets),
            (&self.hits, before.hits + now.hits),
            (&self.errors, before.errors + now.errors),
            (&self.ticks, before.ticks + now.ticks),
            (&self.flows_evicted, before.flows_evicted + now.flows_evicted),
            (&self.memory_bytes, now.memory_bytes as u64),
            (&self.flows, now.flows),
        ];
        sums.iter().for_each(|(to, number)| to.store(*number, Ordering::Relaxed));
    }

    /// Time of a processor that this thread, which is its only one, has taken.
    pub(super) fn count_cpu(&self) {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        let own_ns = time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64;
        self.cpu_ns.store(own_ns, Ordering::Relaxed);
    }

    /// It is run no more.
    pub(super) fn disable(&self, why: &str) {
        let is_news = {
            let mut said = self.said();
            let is_news = said.disabled.is_none();
            said.disabled.get_or_insert_with(|| why.to_string());
            is_news
        };
        if is_news {
            self.warn(format!("{} is disabled: {why}", self.called()));
        }
    }

    /// It is run again, in another text.
    pub(super) fn enable(&self) {
        self.said().disabled = None;
    }

    /// Why it is run no more.
    pub(super) fn disabled(&self) -> Option<String> {
        self.said().disabled.clone()
    }

    /// Its first error, if it had one; it is told once.
    pub(super) fn report(&self, report: Option<String>) {
        let Some(report) = report else { return };
        let is_news = {
            let mut said = self.said();
            let is_news = said.report.is_none();
            said.report.get_or_insert_with(|| report.clone());
            is_news
        };
        if is_news {
            self.warn(format!("{} failed; further failures are only counted: {report}", self.called()));
        }
    }

    /// It, as messages name it.
    pub(super) fn called(&self) -> String {
        let what = match self.kind {
            Kind::Trigger => "script",
            Kind::Dump => "dump script",
        };
        format!("the {what} {} of trigger {}", self.file, self.name)
    }

    /// The traceback of its first error.
    pub(super) fn reported(&self) -> Option<String> {
        self.said().report.clone()
    }

    /// Something about it that somebody should know.
    pub(super) fn warn(&self, text: String) {
        let mut said = self.said();
        if said.warnings.len() < WARNINGS_MAX { said.warnings.push(text) } else { said.warnings_lost += 1 }
    }

    /// What it wants to be known since the last call.
    pub(super) fn take_warnings(&self) -> Vec<String> {
        let mut said = self.said();
        let mut warnings = std::mem::take(&mut said.warnings);
        let lost = std::mem::take(&mut said.warnings_lost);
        if lost > 0 {
            warnings.push(format!("{lost} further lines of {} are lost", self.called()));
        }
        warnings
    }
}
