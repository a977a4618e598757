//! Runs of the binary under test: started, stopped, and read for what they say of themselves.

use crate::figures::time_ns;
use crate::workspace::Workspace;
use anyhow::{Context, Result, bail, ensure};
use scope_testkit::lab::Namespace;
use serde_json::Value;
use std::fs::{File, read_to_string};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The log in the output folder.
const EVENTS_FILE: &str = "wirescope.jsonl";
/// Of what a run that failed said, so many characters are repeated.
const WORDS_MAX: usize = 300;
/// So many bytes of a log hold its last lines.
const LAST_BYTES: u64 = 256 << 10;
/// How long a start, with its prefault, may take.
const START_LIMIT: Duration = Duration::from_secs(60);

/// A run that goes on; killed when dropped.
#[derive(Debug)]
pub struct Run {
    child: Child,
    folder: TempDir,
}

/// A run that has ended.
#[derive(Debug)]
pub struct Finished {
    /// The object of `--summary json`.
    pub summary: Value,
    /// The lines of the event log.
    pub events: Vec<Value>,
    /// Holds the folder with its dumps, which is gone when this is dropped.
    _run: Run,
}

impl Run {
    /// Starts `wirescope run` with `arguments`, an output folder and a summary, inside `namespace` if one is
    /// given.
    ///
    /// # Errors
    /// The system's.
    pub fn start(workspace: &Workspace, namespace: Option<&Namespace>, arguments: &[&str]) -> Result<Run> {
        let folder = workspace.out_folder()?;
        std::fs::create_dir(folder.path().join("out"))?;
        Run::start_in(folder, workspace, namespace, arguments)
    }

    /// The same, with its output in the folder `out` of `folder`, which is there.
    ///
    /// # Errors
    /// The system's.
    pub fn start_in(
        folder: TempDir,
        workspace: &Workspace,
        namespace: Option<&Namespace>,
        arguments: &[&str],
    ) -> Result<Run> {
        Run::spawn(folder, workspace, namespace, arguments, &["--summary", "json"], |_| {})
    }

    /// Starts one whose process `prepare` may change before it is there.
    ///
    /// # Errors
    /// The system's.
    pub fn start_prepared(
        workspace: &Workspace,
        arguments: &[&str],
        prepare: impl FnOnce(&mut Command),
    ) -> Result<Run> {
        let folder = workspace.out_folder()?;
        std::fs::create_dir(folder.path().join("out"))?;
        Run::spawn(folder, workspace, None, arguments, &["--summary", "json"], prepare)
    }

    /// Starts one that tries out at its start what it must not be able to do any more: see
    /// [`Run::self_test`].
    ///
    /// # Errors
    /// The system's.
    pub fn start_self_test(
        workspace: &Workspace,
        namespace: Option<&Namespace>,
        arguments: &[&str],
    ) -> Result<Run> {
        let folder = workspace.out_folder()?;
        std::fs::create_dir(folder.path().join("out"))?;
        Run::spawn(folder, workspace, namespace, arguments, &["--rights-selftest"], |_| {})
    }

    fn spawn(
        folder: TempDir,
        workspace: &Workspace,
        namespace: Option<&Namespace>,
        arguments: &[&str],
        output: &[&str],
        prepare: impl FnOnce(&mut Command),
    ) -> Result<Run> {
        let out = folder.path().join("out");
        let program = workspace.wirescope.to_str().context("the binary's path is no UTF-8")?;
        let mut command =
            namespace.map_or_else(|| Command::new(program), |namespace| namespace.command(program));
        command.arg("run").args(arguments).args(output).arg("--out").arg(out);
        prepare(&mut command);
        // Files, not pipes: nobody reads while it runs.
        let stdout = File::create(folder.path().join("stdout"))?;
        let stderr = File::create(folder.path().join("stderr"))?;
        let child =
            command.stdin(Stdio::null()).stdout(stdout).stderr(stderr).spawn().context("wirescope")?;
        Ok(Run { child, folder })
    }

    /// Waits until it captures: until its log says `start`.
    ///
    /// # Errors
    /// What it said, where it ends before or takes too long.
    pub fn wait_started(&mut self) -> Result<()> {
        let begun = Instant::now();
        while !read_to_string(self.path("out").join(EVENTS_FILE)).is_ok_and(|log| log.contains('\n')) {
            if let Some(status) = self.child.try_wait()? {
                bail!("wirescope ended at its start with {status}: {}", self.words());
            }
            ensure!(begun.elapsed() < START_LIMIT, "wirescope takes longer than {START_LIMIT:?} to start");
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// What a run found that was started by [`Run::start_self_test`]: it goes on behind that.
    ///
    /// # Errors
    /// What it said, where it ends before or takes too long, and what is no JSON.
    pub fn self_test(&mut self) -> Result<Value> {
        self.wait_started()?;
        let begun = Instant::now();
        loop {
            let said = read_to_string(self.path("stdout"))?;
            if let Some((line, _)) = said.split_once('\n') {
                return serde_json::from_str(line).with_context(|| format!("what it tried: {line}"));
            }
            ensure!(
                begun.elapsed() < START_LIMIT,
                "wirescope takes longer than {START_LIMIT:?} to try its rights"
            );
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// `/proc/PID/task/TID/status` of each thread now.
    ///
    /// # Errors
    /// Where it has ended.
    pub fn thread_states(&self) -> Result<Vec<String>> {
        let threads = std::fs::read_dir(format!("/proc/{}/task", self.child.id()))
            .context("wirescope ended before its time")?;
        // A thread that has ended meanwhile has no rights any more.
        let states = threads
            .filter_map(|thread| read_to_string(thread.ok()?.path().join("status")).ok())
            .collect::<Vec<_>>();
        ensure!(!states.is_empty(), "wirescope ended before its time");
        Ok(states)
    }

    /// Orders it to stop and waits for its end, which must be exit code 0 within `limit`; its output isn't
    /// looked at.
    ///
    /// # Errors
    /// What it said, where it fails or takes longer.
    pub fn stop(mut self, limit: Duration) -> Result<()> {
        self.interrupt()?;
        self.end(limit, &[0])
    }

    /// Memory of the process that is in use now, the ring included, KiB.
    ///
    /// # Errors
    /// Where it has ended.
    pub fn resident_kib(&self) -> Result<u64> {
        resident_kib(self.child.id())
    }

    /// Threads of the process now.
    ///
    /// # Errors
    /// Where it has ended.
    pub fn threads(&self) -> Result<usize> {
        self.thread_states().map(|states| states.len())
    }

    /// Processor time of the process so far, its system calls included; counted in hundredths of a second by
    /// most systems.
    ///
    /// # Errors
    /// Where it has ended.
    pub fn processor_time(&self) -> Result<Duration> {
        let stat = read_to_string(format!("/proc/{}/stat", self.child.id()))
            .context("wirescope ended before its time")?;
        let (_, behind_name) = stat.rsplit_once(')').context("no name in the process's facts")?;
        let words = behind_name.split_whitespace().skip(11).take(2).map(str::parse::<u64>);
        let ticks: u64 = words.collect::<Result<Vec<_>, _>>()?.iter().sum();
        // SAFETY: the call takes no pointers.
        let per_second = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
        Ok(Duration::from_secs_f64(ticks as f64 / per_second as f64))
    }

    /// Its control socket, where it has one.
    pub fn socket(&self) -> PathBuf {
        self.path("out").join("wirescope.sock")
    }

    /// Its process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Processor time of its thread of this name so far, as the scheduler counts it.
    ///
    /// # Errors
    /// Where it has ended, or has no such thread.
    pub fn thread_time(&self, name: &str) -> Result<Duration> {
        for thread in std::fs::read_dir(format!("/proc/{}/task", self.child.id()))? {
            let path = thread?.path();
            if read_to_string(path.join("comm")).is_ok_and(|comm| comm.trim() == name) {
                let times = read_to_string(path.join("schedstat"))?;
                let ns = times.split_whitespace().next().context("no time of the thread")?;
                return Ok(Duration::from_nanos(ns.parse()?));
            }
        }
        bail!("wirescope has no thread {name}")
    }

    /// What its control socket answers to a route, such as `groups`.
    ///
    /// # Errors
    /// Where it doesn't, or not in JSON.
    pub fn asked(&self, route: &str) -> Result<Value> {
        let mut stream = UnixStream::connect(self.socket()).context("the control socket")?;
        let request = format!("GET /api/v1/{route} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        let (_, body) = answer.split_once("\r\n\r\n").context("no answer")?;
        serde_json::from_str(body).with_context(|| format!("it answered: {body}"))
    }

    /// The lines of its log so far; one that isn't whole is omitted.
    pub fn log(&self) -> Vec<Value> {
        let log = read_to_string(self.path("out").join(EVENTS_FILE)).unwrap_or_default();
        log.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }

    /// Kills it as it goes, and waits until it is gone.
    ///
    /// # Errors
    /// The system's.
    pub fn kill(&mut self) -> Result<()> {
        self.child.kill().context("killing wirescope")?;
        self.child.wait().context("waiting for wirescope")?;
        Ok(())
    }

    /// How many lines with this event its log has so far.
    pub fn logged(&self, event: &str) -> usize {
        let log = read_to_string(self.path("out").join(EVENTS_FILE)).unwrap_or_default();
        log.matches(&format!("\"event\":\"{event}\"")).count()
    }

    /// The last line with this event near the end of its log.
    pub fn last(&self, event: &str) -> Option<Value> {
        let mut log = File::open(self.path("out").join(EVENTS_FILE)).ok()?;
        let bytes = log.metadata().ok()?.len();
        log.seek(SeekFrom::Start(bytes.saturating_sub(LAST_BYTES))).ok()?;
        let mut text = Vec::new();
        log.read_to_end(&mut text).ok()?;
        let text = String::from_utf8_lossy(&text);
        let mut lines = text.lines().rev().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        lines.find(|line| line["event"] == event)
    }

    /// Orders it to stop, as Ctrl-C does.
    ///
    /// # Errors
    /// The system's.
    pub fn interrupt(&self) -> Result<()> {
        self.signal(libc::SIGINT)
    }

    /// Sends it a signal.
    ///
    /// # Errors
    /// The system's.
    pub fn signal(&self, signal: i32) -> Result<()> {
        send_signal(&self.child, signal)
    }

    /// Waits for its end, which must be exit code 0 within `limit`.
    ///
    /// # Errors
    /// What it said, where it fails or takes longer.
    pub fn finish(mut self, limit: Duration) -> Result<Finished> {
        self.end(limit, &[0])?;
        let log = read_to_string(self.path("out").join(EVENTS_FILE))?;
        let events = log
            .lines()
            .map(serde_json::from_str)
            .collect::<Result<_, _>>()
            .context("event log of wirescope")?;
        self.finished(events)
    }

    /// The same after a full disk: dumps may not be complete, which is exit code 1, and lines of the log may
    /// be truncated.
    ///
    /// # Errors
    /// What it said, where it fails or takes longer.
    pub fn finish_worn(mut self, limit: Duration) -> Result<Finished> {
        self.end(limit, &[0, 1])?;
        let log = read_to_string(self.path("out").join(EVENTS_FILE))?;
        self.finished(log.lines().filter_map(|line| serde_json::from_str(line).ok()).collect())
    }

    fn end(&mut self, limit: Duration, codes: &[i32]) -> Result<()> {
        let begun = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait()? {
                break status;
            }
            ensure!(begun.elapsed() < limit, "wirescope still runs after {limit:?}");
            std::thread::sleep(Duration::from_millis(20));
        };
        ensure!(
            status.code().is_some_and(|code| codes.contains(&code)),
            "wirescope ended with {status}: {}",
            self.words()
        );
        Ok(())
    }

    fn finished(self, events: Vec<Value>) -> Result<Finished> {
        let summary =
            serde_json::from_str(&read_to_string(self.path("stdout"))?).context("summary of wirescope")?;
        Ok(Finished { summary, events, _run: self })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// All that it said so far.
    pub fn said(&self) -> String {
        read_to_string(self.path("stderr")).unwrap_or_default()
    }

    fn words(&self) -> String {
        let words = self.said();
        words.trim().replace('\n', " / ").chars().take(WORDS_MAX).collect()
    }
}

/// Sends a signal to a child.
///
/// # Errors
/// The system's.
pub fn send_signal(child: &Child, signal: i32) -> Result<()> {
    // SAFETY: kill takes no pointers, and the child can't be waited for while it is borrowed; where that was done before, its
    // owner has its status and sends no signal any more.
    let result = unsafe { libc::kill(child.id() as i32, signal) };
    ensure!(result == 0, "signal {signal}: {}", std::io::Error::last_os_error());
    Ok(())
}

/// Memory of a process that is in use now, KiB.
///
/// # Errors
/// Where it has ended.
pub fn resident_kib(pid: u32) -> Result<u64> {
    let status = read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let number = line.and_then(|line| line.split_whitespace().next()).context("it ended before its time")?;
    Ok(number.parse()?)
}

impl Drop for Run {
    fn drop(&mut self) {
        // Both do nothing where its end was waited for already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Finished {
    /// The lines of the log with this event.
    pub fn events(&self, event: &str) -> impl Iterator<Item = &Value> {
        self.events.iter().filter(move |line| line["event"] == event)
    }

    /// From the end of the prefault to the end of the run, by its own log.
    ///
    /// # Errors
    /// Where the log lacks one of the two.
    pub fn seconds(&self) -> Result<f64> {
        let logged = |event: &str| {
            let line = self.events(event).next().with_context(|| format!("no event '{event}' in the log"))?;
            time_of(line, "logged")
        };
        Ok((logged("end")? - logged("start")?) as f64 / 1e9)
    }

    /// Checks that `packets` were received and stored, and none dropped.
    ///
    /// # Errors
    /// What is different.
    pub fn check_packets(&self, packets: u64) -> Result<()> {
        for what in ["received", "stored"] {
            let found = &self.summary[what]["packets"];
            ensure!(*found == packets, "{what} {found} packets of {packets}");
        }
        ensure!(self.summary["dropped"].is_object(), "no object 'dropped'");
        ensure!(self.dropped() == 0, "dropped {} packets", self.dropped());
        Ok(())
    }

    /// Packets that its workers received.
    pub fn received(&self) -> u64 {
        self.summary["received"]["packets"].as_u64().unwrap_or(0)
    }

    /// Packets that were dropped, for whatever reason.
    pub fn dropped(&self) -> u64 {
        self.summary["dropped"]
            .as_object()
            .into_iter()
            .flat_map(|reasons| reasons.values())
            .filter_map(Value::as_u64)
            .sum()
    }

    /// Hits of all triggers with this verdict.
    pub fn hits(&self, verdict: &str) -> u64 {
        let triggers = self.summary["hits"].as_object().into_iter().flat_map(|triggers| triggers.values());
        triggers.filter_map(|counts| counts[verdict].as_u64()).sum()
    }

    /// Hits of all triggers.
    pub fn hits_total(&self) -> u64 {
        let verdicts =
            ["fired", "extended", "held_off", "no_space", "too_many", "template_unfilled", "disarmed"];
        verdicts.iter().map(|verdict| self.hits(verdict)).sum()
    }

    /// A sum over all dumps of the run.
    pub fn dump_total(&self, key: &str) -> u64 {
        self.summary["dump_totals"][key].as_u64().unwrap_or(0)
    }

    /// The dumps of the summary: of very many the newest.
    pub fn dumps(&self) -> &[Value] {
        self.summary["dumps"].as_array().map_or(&[], Vec::as_slice)
    }
}

/// The time `line` has under `key`, ns.
///
/// # Errors
/// Where there is none.
pub fn time_of(line: &Value, key: &str) -> Result<i64> {
    time_ns(line[key].as_str().with_context(|| format!("no '{key}' in {line}"))?)
}
