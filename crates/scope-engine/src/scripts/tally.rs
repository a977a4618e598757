//! What is counted of one script, by the thread that runs it, for whoever asks.

use scope_script::{Counts, Watch};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Lines of one script that wait to be told; further ones are counted.
const NEWS_MAX: usize = 128;

/// Lines of a traceback that a message repeats.
const REPORT_LINES: usize = 12;

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
    /// What it is to be warned of, and what it printed.
    news: Vec<News>,
    news_lost: u64,
}

/// Something that a run passes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    /// Something isn't as it should be.
    Warning(String),
    /// The script printed this line.
    Printed {
        /// Its trigger.
        trigger: String,
        /// Its file.
        file: String,
        /// The line.
        line: String,
    },
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
        self.cpu_ns.store(cpu_ns(), Ordering::Relaxed);
    }

    /// Adds the time of a processor that this thread, one of several, has taken since it had taken `before_ns`; what it
    /// has taken by now.
    pub(super) fn add_cpu(&self, before_ns: u64) -> u64 {
        let now_ns = cpu_ns();
        self.cpu_ns.fetch_add(now_ns.saturating_sub(before_ns), Ordering::Relaxed);
        now_ns
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
            self.warn(format!("{} is disabled: {}", self.called(), beginning(why)));
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
            self.warn(format!(
                "{} failed; further failures are only counted: {}",
                self.called(),
                beginning(&report)
            ));
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
        self.tell(News::Warning(text));
    }

    /// What it printed, and how many lines more it would have.
    pub(super) fn printed(&self, (lines, more): (Vec<String>, u64)) {
        let of = |line| News::Printed { trigger: self.name.clone(), file: self.file.clone(), line };
        lines.into_iter().for_each(|line| self.tell(of(line)));
        if more > 0 {
            self.said().news_lost += more;
        }
    }

    fn tell(&self, news: News) {
        let mut said = self.said();
        if said.news.len() < NEWS_MAX { said.news.push(news) } else { said.news_lost += 1 }
    }

    /// What there is to be told since the last call.
    pub(super) fn take_news(&self) -> Vec<News> {
        let mut said = self.said();
        let (mut news, lost) = (std::mem::take(&mut said.news), std::mem::take(&mut said.news_lost));
        drop(said);
        if lost > 0 {
            news.push(News::Warning(format!("{lost} further lines of {} are omitted", self.called())));
        }
        news
    }
}

/// Time of a processor that this thread has taken, ns.
fn cpu_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// The first lines of a traceback, in one.
pub(super) fn beginning(text: &str) -> String {
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    lines[..lines.len().min(REPORT_LINES)].join("; ")
}
