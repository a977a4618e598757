//! Commands after dumps: one thread starts them, bounds their number and their time, and keeps the beginning of what they say.
//!
//! ```text
//!  dump finished ──► offer: a bounded queue, never waits; full: skipped, counted
//!  thread "exec": /bin/sh -c COMMAND, facts in the environment ──► news for the run's main thread
//!    in a process group of its own; after the timeout SIGTERM to the group, SIGKILL when its leader is gone and nobody else lives
//!    in it, or GRACE later
//! ```
//! The thread is started before anything else of a run, so that it can still start processes when others no longer may. What a
//! command leaves running in its group is killed when it ends: nothing outlives its bound. Its outcome changes nothing of the run.

mod group;

use crate::printable::printable;
use crate::rights::{User, spawn_free};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use scope_dump::DumpReport;
use scope_dump::time_text::iso;
use serde_json::{Value, json};
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, TrySendError, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Dumps that wait for their command; beyond, commands are skipped.
pub const WAITING_MAX: usize = 64;
/// Bytes of a command's output that are kept.
pub const OUTPUT_BYTES_MAX: usize = 4096;
/// Between SIGTERM and SIGKILL.
const GRACE: Duration = Duration::from_secs(2);
/// How long whoever ends the process at once waits for the commands' end.
const END_WAIT: Duration = Duration::from_millis(200);
/// How often the thread looks at what runs.
const LOOK_EVERY: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
/// Reads of one look at most, so that a command that talks without end holds up no other.
const READS_MAX: usize = 16;
/// Outcomes that wait to be told; beyond, the oldest are forgotten (they stay counted).
const NEWS_MAX: usize = 1000;
/// Letters of a fact in the environment.
const FACT_CHARS_MAX: usize = 16 << 10;
/// By these a service manager knows the run; no command may speak for it.
const SERVICE: [&str; 3] = ["NOTIFY_SOCKET", "WATCHDOG_PID", "WATCHDOG_USEC"];
/// What stands for the file of a dump that went into a pipe.
const STREAM: &str = "-";

/// What is to be run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExecPlan {
    /// For `/bin/sh -c`.
    pub command: String,
    /// Commands at once.
    pub at_once: usize,
    /// How long each may take.
    pub timeout: Duration,
}

/// What became of the commands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExecCounts {
    /// Started, or tried to.
    pub started: u64,
    /// Of these: ended in another way than with exit code 0.
    pub failed: u64,
    /// Of these: took too long.
    pub timed_out: u64,
    /// Never started: too many were waiting, or the run was over.
    pub skipped: u64,
}

/// One command's outcome.
#[derive(Clone, Debug)]
pub enum ExecNews {
    /// It has ended.
    Ended {
        /// The dump's number.
        dump: u64,
        /// How; or why it couldn't be started.
        outcome: Result<ExitStatus, String>,
        /// It took too long.
        timed_out: bool,
        /// Seconds that it took.
        seconds: f64,
        /// The beginning of what it said.
        output: String,
    },
    /// It was never started.
    Skipped {
        /// The dump's number.
        dump: u64,
    },
}

/// Commands that run now, and whether they must end. Only the thread that started them kills them: others may have lost that right.
#[derive(Debug, Default)]
pub struct Groups {
    /// Protected by the lock: no further one may begin; how many run.
    state: Mutex<(bool, usize)>,
    ended: Condvar,
}

impl Groups {
    /// Has all that run killed, and waits for that at most [`END_WAIT`]; none begins afterwards.
    pub fn end_all(&self) {
        let mut state = self.lock();
        state.0 = true;
        drop(self.ended.wait_timeout_while(state, END_WAIT, |(_, running)| *running > 0));
    }

    fn lock(&self) -> MutexGuard<'_, (bool, usize)> {
        self.state.lock().expect("no panic while held")
    }

    fn must_end(&self) -> bool {
        self.lock().0
    }

    fn start(&self, command: &mut Command) -> io::Result<(Child, Pid)> {
        let mut state = self.lock();
        if state.0 {
            return Err(io::Error::other("the run ends at once"));
        }
        let child = command.spawn()?;
        let group = Pid::from_child(&child);
        state.1 += 1;
        Ok((child, group))
    }

    /// Ends what is left of a group whose leader is still to be waited for, so that its number is still its own.
    fn end(&self, group: Pid) {
        let mut state = self.lock();
        let _ = kill_process_group(group, Signal::KILL);
        state.1 -= 1;
        self.ended.notify_all();
    }
}

/// A dump that waits for its command.
struct Job {
    dump: u64,
    facts: Vec<(&'static str, OsString)>,
}

/// The commands of one run.
pub struct Exec {
    timeout: Duration,
    sender: Mutex<Option<SyncSender<Job>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
    desk: Arc<Desk>,
}

/// What the thread and the run share.
#[derive(Default)]
struct Desk {
    counts: Mutex<ExecCounts>,
    news: Mutex<Vec<ExecNews>>,
    /// The run is over: commands that run then are ended at this moment, others aren't started any more.
    deadline: Mutex<Option<Instant>>,
}

impl Desk {
    fn tell(&self, news: ExecNews) {
        {
            let mut counts = self.counts.lock().expect("no panic while held");
            match &news {
                ExecNews::Skipped { .. } => counts.skipped += 1,
                ExecNews::Ended { outcome, timed_out, .. } => {
                    counts.started += 1;
                    counts.failed += u64::from(!outcome.as_ref().is_ok_and(ExitStatus::success));
                    counts.timed_out += u64::from(*timed_out);
                }
            }
        }
        let mut waiting = self.news.lock().expect("no panic while held");
        if waiting.len() >= NEWS_MAX {
            waiting.remove(0);
        }
        waiting.push(news);
    }

    fn is_over(&self) -> bool {
        self.deadline.lock().expect("no panic while held").is_some_and(|deadline| Instant::now() >= deadline)
    }
}

impl Exec {
    /// Starts the thread. Called first in a run, before rights are given up.
    ///
    /// # Errors
    /// The system gives no thread.
    pub fn start(plan: ExecPlan, groups: &Arc<Groups>) -> io::Result<Arc<Exec>> {
        let (sender, jobs) = sync_channel(WAITING_MAX);
        let (timeout, desk) = (plan.timeout, Arc::new(Desk::default()));
        let thread = {
            let (desk, groups) = (desk.clone(), groups.clone());
            let work = move || Runner { plan, desk: &desk, groups: &groups, running: Vec::new() }.work(&jobs);
            spawn_free("exec", work)?
        };
        Ok(Arc::new(Exec { timeout, sender: Mutex::new(Some(sender)), thread: Mutex::new(Some(thread)), desk }))
    }

    /// Asks for the command of a finished dump. Never waits.
    pub fn offer(&self, report: &DumpReport) {
        let job = Job { dump: report.id, facts: facts(report) };
        let sender = self.sender.lock().expect("no panic while held");
        if let Some(Err(TrySendError::Full(job) | TrySendError::Disconnected(job))) =
            sender.as_ref().map(|sender| sender.try_send(job))
        {
            self.desk.tell(ExecNews::Skipped { dump: job.dump });
        }
    }

    /// Outcomes since this was last asked.
    pub fn news(&self) -> Vec<ExecNews> {
        std::mem::take(&mut *self.desk.news.lock().expect("no panic while held"))
    }

    /// Counts so far.
    pub fn counts(&self) -> ExecCounts {
        *self.desk.counts.lock().expect("no panic while held")
    }

    /// The run is over: waits for its commands, at most as long as one may take.
    pub fn finish(&self) {
        *self.desk.deadline.lock().expect("no panic while held") = Some(Instant::now() + self.timeout);
        drop(self.sender.lock().expect("no panic while held").take());
        if let Some(thread) = self.thread.lock().expect("no panic while held").take() {
            let _ = thread.join();
        }
    }
}

/// The facts of a dump as its command finds them.
fn facts(report: &DumpReport) -> Vec<(&'static str, OsString)> {
    let text = |text: &str| OsString::from(printable(text).chars().take(FACT_CHARS_MAX).collect::<String>());
    let number = |number: u64| OsString::from(number.to_string());
    let stream = [PathBuf::from(STREAM)];
    let paths = if report.to_stream { &stream[..] } else { &report.paths[..] };
    let mut files = OsString::new();
    for (index, path) in paths.iter().enumerate() {
        files.push(if index > 0 { "\n" } else { "" });
        files.push(path);
    }
    vec![
        ("WIRESCOPE_FILE", paths.first().map(OsString::from).unwrap_or_default()),
        ("WIRESCOPE_FILES", files),
        ("WIRESCOPE_TRIGGER", text(&report.trigger)),
        ("WIRESCOPE_ID", number(report.id)),
        ("WIRESCOPE_COMPLETE", number(report.complete.into())),
        ("WIRESCOPE_PACKETS", number(report.packets)),
        ("WIRESCOPE_BYTES", number(report.bytes)),
        ("WIRESCOPE_FROM", iso(report.from_ns).into()),
        ("WIRESCOPE_TO", iso(report.to_ns).into()),
        ("WIRESCOPE_LOST_MIN", number(report.lost_min)),
        ("WIRESCOPE_LOST_MAX", if report.lost_max == u64::MAX { "unknown".into() } else { number(report.lost_max) }),
        ("WIRESCOPE_WHY", text(&report.why)),
        ("WIRESCOPE_FILTER", text(&report.filter)),
    ]
}

/// One command that runs.
struct Running {
    dump: u64,
    child: Child,
    group: Pid,
    began: Instant,
    /// When it was told to end.
    told_to_end: Option<Instant>,
    /// `None` when all ends of it are closed.
    pipe: Option<File>,
    output: Vec<u8>,
}

impl Running {
    /// Takes what it says, and keeps the beginning.
    fn listen(&mut self) {
        let mut buffer = [0; 16 << 10];
        for _ in 0..READS_MAX {
            let Some(pipe) = &mut self.pipe else { return };
            match pipe.read(&mut buffer) {
                Ok(0) => self.pipe = None,
                Ok(bytes) => {
                    let room = OUTPUT_BYTES_MAX - self.output.len();
                    self.output.extend(&buffer[..bytes.min(room)]);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(_) => self.pipe = None,
            }
        }
    }

    /// Whether it has ended; it stays to be waited for.
    fn has_ended(&self) -> bool {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        !matches!(waitid(WaitId::Pid(self.group), options), Ok(None))
    }
}

/// The thread's own.
struct Runner<'a> {
    plan: ExecPlan,
    desk: &'a Desk,
    groups: &'a Groups,
    running: Vec<Running>,
}

impl Runner<'_> {
    /// Until nobody can ask for commands any more and none runs.
    fn work(&mut self, jobs: &Receiver<Job>) {
        let mut open = true;
        while open || !self.running.is_empty() {
            while open && self.running.len() < self.plan.at_once {
                match self.next(jobs) {
                    Ok(job) => self.begin(job),
                    Err(TryRecvError::Empty) => break,
                    Err(TryRecvError::Disconnected) => open = false,
                }
            }
            self.look();
        }
    }

    /// The next job; waits for it only where nothing runs.
    fn next(&self, jobs: &Receiver<Job>) -> Result<Job, TryRecvError> {
        if self.running.is_empty() { jobs.recv().map_err(|_| TryRecvError::Disconnected) } else { jobs.try_recv() }
    }

    fn begin(&mut self, job: Job) {
        if self.desk.is_over() {
            return self.desk.tell(ExecNews::Skipped { dump: job.dump });
        }
        match self.spawn(&job) {
            Ok(running) => self.running.push(running),
            Err(error) => {
                let (outcome, output) = (Err(format!("/bin/sh: {error}")), String::new());
                self.desk.tell(ExecNews::Ended { dump: job.dump, outcome, timed_out: false, seconds: 0.0, output });
            }
        }
    }

    fn spawn(&self, job: &Job) -> io::Result<Running> {
        let (pipe, said) = pipe_with(PipeFlags::CLOEXEC)?;
        fcntl_setfl(&pipe, fcntl_getfl(&pipe)? | OFlags::NONBLOCK)?;
        let mut command = Command::new("/bin/sh");
        command.arg("-c").arg(&self.plan.command).envs(job.facts.iter().map(|(name, value)| (*name, value)));
        // Rights may have been given up since the start: root's folder is another user's.
        command.env("HOME", User::own_home());
        for name in SERVICE {
            command.env_remove(name);
        }
        command.stdin(Stdio::null()).stdout(said.try_clone()?).stderr(said).process_group(0);
        let (child, group) = self.groups.start(&mut command)?;
        let pipe = Some(File::from(pipe));
        Ok(Running { dump: job.dump, child, group, began: Instant::now(), told_to_end: None, pipe, output: Vec::new() })
    }

    /// Waits a little, listens, ends what takes too long, reports what has ended.
    fn look(&mut self) {
        if self.running.is_empty() {
            return;
        }
        let pipes = self.running.iter().filter_map(|running| running.pipe.as_ref());
        let mut wanted: Vec<PollFd<'_>> = pipes.map(|pipe| PollFd::new(pipe, PollFlags::IN)).collect();
        let _ = poll(&mut wanted, Some(&LOOK_EVERY));
        let over = self.desk.is_over();
        // Only where a command was told to end and its leader did: this looks at all processes.
        let asked = self.running.iter().any(|running| running.told_to_end.is_some() && running.has_ended());
        let living = asked.then(group::living).flatten();
        for mut running in std::mem::take(&mut self.running) {
            running.listen();
            if running.told_to_end.is_none() && (over || running.began.elapsed() >= self.plan.timeout) {
                let _ = kill_process_group(running.group, Signal::TERM);
                running.told_to_end = Some(Instant::now());
            }
            // Who was told to end has its grace, and so has all of its group, as long as one of them lives.
            let gone = match running.told_to_end {
                _ if self.groups.must_end() => true,
                Some(told) => {
                    let others = living.as_ref().is_none_or(|groups| groups.contains(&running.group.as_raw_nonzero().get()));
                    told.elapsed() >= GRACE || running.has_ended() && !others
                }
                None => running.has_ended(),
            };
            if gone { self.end(running) } else { self.running.push(running) }
        }
    }

    fn end(&self, mut running: Running) {
        self.groups.end(running.group);
        let outcome = running.child.wait().map_err(|error| error.to_string());
        running.listen();
        self.desk.tell(ExecNews::Ended {
            dump: running.dump,
            outcome,
            timed_out: running.told_to_end.is_some(),
            seconds: running.began.elapsed().as_secs_f64(),
            output: String::from_utf8_lossy(&running.output).into_owned(),
        });
    }
}

impl ExecNews {
    /// As the event log has it.
    pub(crate) fn to_json(&self) -> Value {
        match self {
            ExecNews::Skipped { dump } => json!({"dump": dump, "skipped": true}),
            ExecNews::Ended { dump, outcome, timed_out, seconds, output } => json!({
                "dump": dump,
                "skipped": false,
                "code": outcome.as_ref().ok().and_then(ExitStatus::code),
                "signal": outcome.as_ref().ok().and_then(|status| status.signal()),
                "error": outcome.as_ref().err(),
                "timed_out": timed_out,
                "took_s": seconds,
                "output": output,
            }),
        }
    }

    /// What went wrong, in words; `None`: nothing.
    pub fn complaint(&self) -> Option<String> {
        match self {
            ExecNews::Skipped { dump } => {
                Some(format!("the command for dump {dump} was skipped: too many are waiting, or the run is over; see --exec-max"))
            }
            ExecNews::Ended { dump, timed_out: true, seconds, .. } => {
                Some(format!("the command for dump {dump} was ended after {seconds:.1} s; see --exec-timeout"))
            }
            ExecNews::Ended { dump, outcome: Err(error), .. } => {
                Some(format!("the command for dump {dump} can't be run: {error}"))
            }
            ExecNews::Ended { dump, outcome: Ok(status), output, .. } if !status.success() => {
                let how = match (status.code(), status.signal()) {
                    (Some(code), _) => format!("exit code {code}"),
                    (None, signal) => format!("signal {}", signal.unwrap_or_default()),
                };
                let said = printable(output.lines().next().unwrap_or_default()).chars().take(200).collect::<String>();
                let said = if said.is_empty() { said } else { format!(": {said}") };
                Some(format!("the command for dump {dump} failed with {how}{said}"))
            }
            ExecNews::Ended { .. } => None,
        }
    }
}
