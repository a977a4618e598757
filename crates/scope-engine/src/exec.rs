//! Commands after dumps: a process of their own starts them, bounded in number and time; the run keeps the
//! beginning of what they say.
//!
//! ```text
//!  dump finished ──► offer: a bounded queue, never waits; full: skipped, counted
//!  thread "exec" ──orders──► helper process: /bin/sh -c COMMAND, facts in the environment
//!        ▲ ─────── outcomes ────┘                │
//!        └──► news for the run's main thread     └─ after the timeout SIGTERM, then SIGKILL, to the process group
//! ```
//! | file | |
//! |---|---|
//! | `orders` | the words between the two, and their bounds |
//! | `process` | the process: what it gives up, and how it ends |
//! | `commands` | the commands inside of it: begun, listened to, ended |
//! | `group` | who of a process group lives |
//! | `news` | what became of a command |
//!
//! The helper is begun before rights are given up, and has other ones than the run: it can start processes.
//! It ends with the run, however that ends, because the run's end of the socket is then closed. A command's
//! outcome changes nothing of the run.

mod commands;
mod group;
mod news;
mod orders;
mod process;

#[cfg(feature = "fuzzing")]
pub(crate) use group::living_in;
pub use news::{ExecCounts, ExecNews};
#[cfg(feature = "fuzzing")]
pub(crate) use orders::round_trip;
pub(crate) use process::serve;

use crate::own_process::{self, EXEC_HELPER};
use orders::{FRAME_BYTES_MAX, Inbox, Order, Outcome, Setup, Told};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use scope_dump::DumpReport;
use scope_fault::Fault;
use scope_rights::User;
use scope_spelling::printable::printable;
use scope_spelling::time::iso;
use std::collections::{BTreeSet, VecDeque};
use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Dumps that wait for their command; beyond, commands are skipped.
pub const WAITING_MAX: usize = 64;
/// Bytes of a command's output that are kept.
pub const OUTPUT_BYTES_MAX: usize = 4096;
/// Outcomes that wait to be reported; beyond, the oldest are forgotten (they stay counted).
const NEWS_MAX: usize = 1000;
/// Letters of a fact in the environment.
const FACT_CHARS_MAX: usize = 16 << 10;
/// What commands find of the run's own environment, `PATH` first.
const KEPT: [&str; 4] = ["PATH", "LANG", "TZ", "HOME"];
/// `PATH` where the run has none.
const COMMANDS_PATH: &str = "/usr/local/bin:/usr/bin:/bin";
/// By these a service manager knows the run; no command may speak for it.
pub const PROTECTED: [&str; 3] = ["NOTIFY_SOCKET", "WATCHDOG_PID", "WATCHDOG_USEC"];
/// Names that begin so are the facts.
pub const FACTS_BEGIN: &str = "WIRESCOPE_";
/// What stands for the file of a dump that went into a pipe.
const STREAM: &str = "-";
/// How long the helper may take to begin.
const BEGIN_MAX: Duration = Duration::from_secs(30);
/// How long the run waits at its end for the helper's.
const END_MAX: Duration = Duration::from_secs(5);
/// Why a command has no outcome.
const HELPER_GONE: &str = "the process that runs commands has ended before its time";

/// What is to be run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExecPlan {
    /// For `/bin/sh -c`.
    pub command: String,
    /// Commands at once.
    pub at_once: usize,
    /// How long each may take.
    pub timeout: Duration,
    /// Folders where commands may write, absolute.
    pub writable: Vec<PathBuf>,
    /// Variables of the run's own environment that they find besides [`KEPT`].
    pub environment: Vec<OsString>,
}

/// Where commands run: decided by the run.
pub struct Surroundings<'a> {
    /// Whom they run as; `None`: who this process is.
    pub user: Option<&'a User>,
    /// The folder for dumps, if there is one, and whether all of it may be read, or its files by their names
    /// only.
    pub dumps: Option<(PathBuf, bool)>,
}

/// A dump that waits for its command.
#[derive(Debug, PartialEq, Eq)]
pub struct Job {
    dump: u64,
    facts: Vec<(String, OsString)>,
}

/// The commands of one run.
pub struct Exec {
    timeout: Duration,
    landlock_abi: i32,
    thread: Mutex<Option<JoinHandle<()>>>,
    desk: Arc<Desk>,
}

/// What the thread and the run share.
struct Desk {
    /// Folders where commands may write.
    writable: usize,
    /// Commands at once.
    at_once: usize,
    counts: Mutex<ExecCounts>,
    news: Mutex<Vec<ExecNews>>,
    /// Protected by the lock: who waits, and who runs.
    queue: Mutex<Queue>,
    /// Written to where the thread has to look at the queue.
    wake: OwnedFd,
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    /// Dumps whose command runs.
    running: BTreeSet<u64>,
    /// The run is over: commands that run at this moment are ended, others aren't started any more.
    deadline: Option<Instant>,
}

impl Desk {
    fn tell(&self, news: ExecNews) {
        self.counts.lock().expect("no panic while held").add(&news);
        let mut waiting = self.news.lock().expect("no panic while held");
        if waiting.len() >= NEWS_MAX {
            waiting.remove(0);
        }
        waiting.push(news);
    }

    fn fail(&self, dump: u64, why: &str) {
        let outcome = Outcome {
            dump,
            status: Err(why.to_string()),
            timed_out: false,
            took: Duration::ZERO,
            output: Vec::new(),
        };
        self.tell(ExecNews::ended(outcome, self.writable));
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().expect("no panic while held")
    }

    fn wake(&self) {
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }
}

impl Exec {
    /// Begins the helper and waits until it has given up its rights. Called before the run gives up its own.
    ///
    /// # Errors
    /// The system gives no process, or the helper can't begin.
    pub fn start(plan: ExecPlan, around: &Surroundings<'_>) -> Result<Arc<Exec>, Fault> {
        let failed = |what: &'static str| {
            move |error: io::Error| Fault::of("exec").error(&error).cause(format!("{what}: {error}"))
        };
        let mut helper = spawn(&plan).map_err(failed("no process for commands"))?;
        let setup = Order::Setup(Setup {
            command: plan.command,
            at_once: plan.at_once,
            timeout: plan.timeout,
            user: around.user.map(|user| (user.uid, user.gid)),
            dumps: around.dumps.as_ref().map(|(path, _)| path.clone()),
            dumps_listed: around.dumps.as_ref().is_some_and(|(_, listed)| *listed),
            writable: plan.writable.clone(),
            temporary: std::env::temp_dir(),
        });
        let gone = failed("the process for commands");
        helper
            .set_read_timeout(Some(BEGIN_MAX))
            .and_then(|()| helper.write_all(&setup.to_frame()))
            .map_err(&gone)?;
        let (mut inbox, since) = (Inbox::default(), Instant::now());
        let landlock_abi = loop {
            match inbox.next_told() {
                Ok(Some(Told::Ready { landlock_abi })) => break landlock_abi,
                Ok(Some(Told::Refused(refusal))) => return Err(refusal.fault()),
                Ok(None) if since.elapsed() < BEGIN_MAX && inbox.fill(&helper) => {}
                _ => return Err(Fault::of("exec").cause("the process for commands didn't begin")),
            }
        };
        helper.set_nonblocking(true).map_err(&gone)?;
        let wake =
            eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(|error| gone(error.into()))?;
        let desk = Arc::new(Desk {
            writable: plan.writable.len(),
            at_once: plan.at_once,
            counts: Mutex::default(),
            news: Mutex::default(),
            queue: Mutex::default(),
            wake,
        });
        let thread = {
            let desk = desk.clone();
            let work =
                move || Clerk { desk: &desk, helper, inbox, outbox: Vec::new(), told_to_end: false }.work();
            std::thread::Builder::new()
                .name("exec".to_string())
                .spawn(work)
                .map_err(failed("no thread for commands"))?
        };
        Ok(Arc::new(Exec { timeout: plan.timeout, landlock_abi, thread: Mutex::new(Some(thread)), desk }))
    }

    /// Version of Landlock's interface that is in force for commands; 0: none.
    pub fn landlock_abi(&self) -> i32 {
        self.landlock_abi
    }

    /// Asks for the command of a finished dump. Never waits.
    pub fn offer(&self, report: &DumpReport) {
        let job = Job { dump: report.id, facts: facts(report) };
        {
            let mut queue = self.desk.queue();
            if queue.deadline.is_none()
                && queue.jobs.len() + queue.running.len() < WAITING_MAX + self.desk.at_once
            {
                queue.jobs.push_back(job);
                drop(queue);
                return self.desk.wake();
            }
        }
        self.desk.tell(ExecNews::Skipped { dump: job.dump });
    }

    /// Outcomes since the last call.
    pub fn news(&self) -> Vec<ExecNews> {
        std::mem::take(&mut *self.desk.news.lock().expect("no panic while held"))
    }

    /// Counts so far.
    pub fn counts(&self) -> ExecCounts {
        *self.desk.counts.lock().expect("no panic while held")
    }

    /// The run is over: waits for its commands, at most as long as one may take, and for the helper's end.
    pub fn finish(&self) {
        self.desk.queue().deadline = Some(Instant::now() + self.timeout);
        self.desk.wake();
        if let Some(thread) = self.thread.lock().expect("no panic while held").take() {
            let _ = thread.join();
        }
    }
}

/// Begins the helper with a clean environment; this end of its socket.
fn spawn(plan: &ExecPlan) -> io::Result<UnixStream> {
    let named = plan.environment.iter().map(OsString::as_os_str);
    let kept = KEPT
        .iter()
        .map(OsStr::new)
        .chain(named)
        .filter_map(|name| Some((name.to_owned(), std::env::var_os(name)?)));
    own_process::spawn(EXEC_HELPER, &[], kept)
}

/// The facts of a dump as its command finds them.
fn facts(report: &DumpReport) -> Vec<(String, OsString)> {
    let text = |text: &str| OsString::from(printable(text).chars().take(FACT_CHARS_MAX).collect::<String>());
    let number = |number: u64| OsString::from(number.to_string());
    let stream = [PathBuf::from(STREAM)];
    let paths = if report.to_stream { &stream[..] } else { &report.paths[..] };
    let mut files = OsString::new();
    for (index, path) in paths.iter().enumerate() {
        files.push(if index > 0 { "\n" } else { "" });
        files.push(path);
    }
    let facts = [
        ("FILE", paths.first().map(OsString::from).unwrap_or_default()),
        ("FILES", files),
        ("TRIGGER", text(&report.trigger)),
        ("ID", number(report.id)),
        ("COMPLETE", number(report.complete.into())),
        ("PACKETS", number(report.packets)),
        ("BYTES", number(report.bytes)),
        ("FROM", iso(report.from_ns).into()),
        ("TO", iso(report.to_ns).into()),
        ("LOST_MIN", number(report.lost_min)),
        ("LOST_MAX", if report.lost_max == u64::MAX { "unknown".into() } else { number(report.lost_max) }),
        ("WHY", text(&report.why)),
        ("FILTER", text(&report.filter)),
    ];
    facts.into_iter().map(|(name, value)| (format!("{FACTS_BEGIN}{name}"), value)).collect()
}

/// The thread's own: orders out, outcomes in.
struct Clerk<'a> {
    desk: &'a Desk,
    helper: UnixStream,
    inbox: Inbox,
    /// What the socket hasn't taken yet: frames of the commands that may run at once, at most.
    outbox: Vec<u8>,
    told_to_end: bool,
}

impl Clerk<'_> {
    /// Until the run is over and no command runs any more.
    fn work(mut self) {
        while let Some(patience) = self.hand_out() {
            self.wait(patience);
            if !(self.write() && self.read()) {
                self.helper_is_gone();
                return;
            }
        }
        self.end_helper();
    }

    /// Orders what may run now. How long it may wait for news then (`None` within: for ever); `None`: all is
    /// over.
    fn hand_out(&mut self) -> Option<Option<Duration>> {
        let mut queue = self.desk.queue();
        let left = queue.deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        if left == Some(Duration::ZERO) {
            for job in queue.jobs.drain(..) {
                self.desk.tell(ExecNews::Skipped { dump: job.dump });
            }
            if !std::mem::replace(&mut self.told_to_end, true) {
                self.outbox.extend(Order::EndAll.to_frame());
            }
        }
        while queue.running.len() < self.desk.at_once
            && let Some(job) = queue.jobs.pop_front()
        {
            let dump = job.dump;
            let frame = Order::Run(job).to_frame();
            if frame.len() > FRAME_BYTES_MAX {
                self.desk.fail(dump, "its facts are too long");
                continue;
            }
            queue.running.insert(dump);
            self.outbox.extend(frame);
        }
        if queue.deadline.is_some() && queue.running.is_empty() && queue.jobs.is_empty() {
            return None;
        }
        Some(left.filter(|left| *left > Duration::ZERO))
    }

    fn wait(&self, patience: Option<Duration>) {
        let flags = if self.outbox.is_empty() { PollFlags::IN } else { PollFlags::IN | PollFlags::OUT };
        let mut wanted = [PollFd::new(&self.helper, flags), PollFd::new(&self.desk.wake, PollFlags::IN)];
        let patience = patience.and_then(|patience| Timespec::try_from(patience).ok());
        let _ = poll(&mut wanted, patience.as_ref());
        let _ = rustix::io::read(&self.desk.wake, &mut [0u8; 8]);
    }

    /// Whether the helper still takes orders.
    fn write(&mut self) -> bool {
        while !self.outbox.is_empty() {
            match self.helper.write(&self.outbox) {
                Ok(bytes) => drop(self.outbox.drain(..bytes)),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return error.kind() == io::ErrorKind::WouldBlock,
            }
        }
        true
    }

    /// Takes outcomes in; whether the helper is still there.
    fn read(&mut self) -> bool {
        let there = self.inbox.fill(&self.helper);
        loop {
            match self.inbox.next_told() {
                Ok(Some(Told::Ended(outcome))) if self.desk.queue().running.remove(&outcome.dump) => {
                    self.desk.tell(ExecNews::ended(outcome, self.desk.writable));
                }
                Ok(None) => return there,
                _ => return false,
            }
        }
    }

    /// Closes its orders and waits for its end: then its temporary folder is gone, too.
    fn end_helper(mut self) {
        let _ = self.helper.shutdown(Shutdown::Write);
        let since = Instant::now();
        while let Some(left) = END_MAX.checked_sub(since.elapsed()) {
            let patience = Timespec::try_from(left).ok();
            let _ = poll(&mut [PollFd::new(&self.helper, PollFlags::IN)], patience.as_ref());
            if !self.inbox.fill(&self.helper) {
                return;
            }
        }
    }

    /// It was killed: whatever ran is lost, and nothing runs any more.
    fn helper_is_gone(self) {
        let _ = self.helper.shutdown(Shutdown::Both);
        loop {
            let mut queue = self.desk.queue();
            let running = std::mem::take(&mut queue.running);
            let jobs = std::mem::take(&mut queue.jobs);
            let over = queue.deadline.is_some();
            drop(queue);
            for dump in running.into_iter().chain(jobs.into_iter().map(|job| job.dump)) {
                self.desk.fail(dump, HELPER_GONE);
            }
            if over {
                return;
            }
            let _ = poll(&mut [PollFd::new(&self.desk.wake, PollFlags::IN)], None);
            let _ = rustix::io::read(&self.desk.wake, &mut [0u8; 8]);
        }
    }
}
