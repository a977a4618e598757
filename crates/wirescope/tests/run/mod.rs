//! Runs of the binary in a folder of their own: arguments in; exit code, words, summary and dumps out; all
//! bounded in time.
#![allow(dead_code)] // every test file takes what it needs

pub mod asking;
pub mod captured;
pub mod questions;
pub mod summary;

use scope_testkit::traffic::{Capture, Precision, pcapng};
use std::ffi::OsStr;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use summary::Summary;
use tempfile::TempDir;

/// The user who may nothing.
pub const NOBODY: u32 = 65534;
/// No run in these tests may take longer: far more than any needs, since the machine may be busy.
pub const LIMIT: Duration = Duration::from_secs(600);

/// A folder with the files of one test; `out` inside it is for dumps. Gone at the end.
pub struct Place {
    folder: TempDir,
}

impl Place {
    pub fn new() -> Place {
        let folder = tempfile::Builder::new().prefix("wirescope-").tempdir().expect("a temporary folder");
        std::fs::create_dir(folder.path().join("out")).expect("a folder for dumps");
        Place { folder }
    }

    /// A place whose folder for dumps belongs to nobody where root runs the tests, since commands never run
    /// as root; so does the folder `jobs`, where they may be allowed to write.
    pub fn with_commands() -> Place {
        let place = Place::new();
        std::fs::create_dir(place.path("jobs")).expect("a folder for commands");
        // SAFETY: geteuid takes nothing and always succeeds.
        if unsafe { libc::geteuid() } == 0 {
            place.open_to_all();
            for folder in [place.out(), place.path("jobs")] {
                std::os::unix::fs::chown(folder, Some(NOBODY), Some(NOBODY)).expect("root may");
            }
        }
        place
    }

    pub fn root(&self) -> &Path {
        self.folder.path()
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.root().join(name)
    }

    pub fn out(&self) -> PathBuf {
        self.path("out")
    }

    /// Writes a file and returns the source that reads it.
    pub fn source_of(&self, name: &str, bytes: &[u8]) -> String {
        std::fs::write(self.path(name), bytes).expect("a capture file");
        format!("file:{}", self.path(name).display())
    }

    /// Writes a capture as pcapng with nanoseconds and returns the source that reads it.
    pub fn source(&self, capture: &Capture) -> String {
        self.source_of("in.pcapng", &pcapng(capture, Precision::Nano, false))
    }

    /// Names in the folder for dumps, sorted, hidden ones included.
    pub fn out_names(&self) -> Vec<String> {
        names(&self.out())
    }

    /// What stands in the log so far; nothing where there is none yet.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.out().join("wirescope.jsonl")).unwrap_or_default()
    }

    /// Waits until the log says this.
    pub fn wait_for_words(&self, words: &str) {
        wait_until(words, || self.log().contains(words));
    }

    /// Waits until a run has begun, and has said so in the log.
    pub fn wait_for_start(&self) {
        self.wait_for_words("\"event\":\"start\"");
    }

    /// Lets other users read and pass through.
    pub fn open_to_all(&self) {
        std::fs::set_permissions(self.root(), PermissionsExt::from_mode(0o755)).expect("own folder");
    }

    /// A copy of the binary that every user can run, wherever it was built; other users may read this folder,
    /// too.
    pub fn binary_for_all(&self) -> PathBuf {
        self.open_to_all();
        let copy = self.path("wirescope");
        std::fs::copy(env!("CARGO_BIN_EXE_wirescope"), &copy).expect("own folder");
        std::fs::set_permissions(&copy, PermissionsExt::from_mode(0o755)).expect("own file");
        copy
    }

    /// `wirescope run` with the folder for dumps, a small ring and a summary.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = wirescope(&["run", "--summary", "json", "--out"]);
        command.arg(self.out());
        if !arguments.contains(&"--ring") {
            command.args(["--ring", "64MiB", "--segment", "64KiB"]);
        }
        command.args(arguments);
        command
    }

    /// Runs it to its end.
    pub fn run(&self, arguments: &[&str]) -> Done {
        Started::new(self.command(arguments)).finish(LIMIT)
    }

    /// Runs it to its end, which has to be exit code 0, and takes the summary.
    pub fn summary(&self, arguments: &[&str]) -> Summary {
        let done = self.run(arguments);
        assert_eq!(done.code(), Some(0), "{arguments:?}\n{}", done.stderr);
        done.summary()
    }
}

impl Place {
    /// The same of a run with more hits than places: exit code 1 exactly where there were too many.
    pub fn summary_of_many_hits(&self, arguments: &[&str]) -> Summary {
        let done = self.run(arguments);
        let summary = done.summary();
        let too_many = summary.hits.values().any(|hits| hits.too_many > 0);
        assert_eq!(done.code(), Some(i32::from(too_many)), "{arguments:?}\n{}", done.stderr);
        summary
    }
}

/// Names in a folder, sorted.
pub fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let mut names: Vec<String> =
        entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// Whether a name in the folder for dumps is that of a finished dump: neither hidden nor temporary nor the
/// log.
pub fn is_finished_dump(name: &str) -> bool {
    !name.starts_with('.') && name.ends_with(".pcapng")
}

/// The binary with arguments.
pub fn wirescope<S: AsRef<OsStr>>(arguments: &[S]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_wirescope"));
    command.args(arguments);
    command
}

/// Runs any command to its end.
pub fn finish(command: Command) -> Done {
    Started::new(command).finish(LIMIT)
}

/// Tests pass on a disk that is nearly full, too: what stores leave free of it is little, unless the test says how much.
fn leave_little_free(command: &mut Command) {
    let has = |word: &str| command.get_args().any(|argument| argument == word);
    let stores = command.get_args().next().is_some_and(|first| first == "run" || first == "import");
    if stores && has("--store") && !has("--store-min-free") {
        command.args(["--store-min-free", "1MiB"]);
    }
}

/// A process that runs; killed when dropped.
pub struct Started {
    child: Child,
    stdout: Collected,
    stderr: Collected,
}

/// What has come out of a pipe so far, and who reads it to its end.
struct Collected {
    bytes: Arc<Mutex<Vec<u8>>>,
    reader: Option<JoinHandle<()>>,
}

impl Collected {
    fn of(mut from: impl Read + Send + 'static) -> Collected {
        let bytes = Arc::new(Mutex::new(Vec::new()));
        let into = bytes.clone();
        let reader = std::thread::spawn(move || {
            let mut part = [0; 16 << 10];
            // What came before a broken pipe is what there is to look at.
            while let Ok(count @ 1..) = from.read(&mut part) {
                into.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(&part[..count]);
            }
        });
        Collected { bytes, reader: Some(reader) }
    }

    fn so_far(&self) -> String {
        String::from_utf8_lossy(&self.bytes.lock().unwrap_or_else(PoisonError::into_inner)).into_owned()
    }

    /// All of it, once the pipe is closed.
    fn whole(&mut self) -> String {
        self.reader.take().map(JoinHandle::join).transpose().expect("a reader doesn't panic");
        self.so_far()
    }
}

impl Started {
    pub fn new(mut command: Command) -> Started {
        leave_little_free(&mut command);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let until = Instant::now() + LIMIT;
        let mut child = loop {
            match command.spawn() {
                Ok(child) => break child,
                // A binary that was just copied: another test's child, forked meanwhile, still has it open
                // for writing.
                Err(e) if e.kind() == std::io::ErrorKind::ExecutableFileBusy && Instant::now() < until => {
                    std::thread::sleep(Duration::from_millis(10));
                }
                Err(e) => panic!("{command:?}: {e}"),
            }
        };
        let stdout = Collected::of(child.stdout.take().expect("a pipe"));
        let stderr = Collected::of(child.stderr.take().expect("a pipe"));
        Started { child, stdout, stderr }
    }

    /// The process's number.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    pub fn signal(&self, signal: i32) {
        // SAFETY: kill takes no pointers, and the child is not waited for yet, so the number is still its
        // own.
        let sent = unsafe { libc::kill(self.child.id() as i32, signal) };
        assert_eq!(sent, 0, "signal {signal}");
    }

    /// Sends a signal again and again until the process ends: a second one that comes before the first was
    /// taken is none.
    pub fn signal_until_it_ends(mut self, signal: i32) -> Done {
        let begin = Instant::now();
        while !self.has_ended() {
            assert!(begin.elapsed() < LIMIT, "still running after {LIMIT:?}: {}", self.stderr.so_far());
            self.signal(signal);
            std::thread::sleep(Duration::from_millis(300));
        }
        self.finish(LIMIT)
    }

    /// Stops the process by SIGSTOP and waits until all its threads stand.
    pub fn stand_still(&self) {
        self.signal(libc::SIGSTOP);
        let stands = |status: &String| status.lines().any(|line| line.starts_with("State:\tT"));
        wait_until("its threads to stand", || self.threads().iter().all(stands));
    }

    /// What it has said on standard error so far.
    pub fn words(&self) -> String {
        self.stderr.so_far()
    }

    /// What it has printed on standard output so far.
    pub fn printed(&self) -> String {
        self.stdout.so_far()
    }

    /// Number of the process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Bytes of shared memory that are resident in it.
    pub fn shared_resident_bytes(&self) -> u64 {
        self.memory("RssShmem:")
    }

    /// Bytes of memory of its own that are resident in it.
    pub fn own_resident_bytes(&self) -> u64 {
        self.memory("RssAnon:")
    }

    fn memory(&self, of: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix(of)).unwrap_or_default();
        line.split_whitespace().next().and_then(|kib| kib.parse::<u64>().ok()).unwrap_or(0) * 1024
    }

    /// What the system says of each of its threads: `/proc/PID/task/TID/status`.
    pub fn threads(&self) -> Vec<String> {
        let entries =
            std::fs::read_dir(format!("/proc/{}/task", self.child.id())).expect("a child that runs");
        entries.filter_map(|entry| std::fs::read_to_string(entry.ok()?.path().join("status")).ok()).collect()
    }

    /// The number of its thread with this name.
    pub fn thread(&self, name: &str) -> Option<i32> {
        let entries =
            std::fs::read_dir(format!("/proc/{}/task", self.child.id())).expect("a child that runs");
        let named = |path: &Path| {
            std::fs::read_to_string(path.join("comm")).is_ok_and(|comm| comm.trim_end() == name)
        };
        let path = entries.flatten().map(|entry| entry.path()).find(|path| named(path))?;
        path.file_name()?.to_str()?.parse().ok()
    }

    /// The niceness of each of its threads with this name.
    pub fn threads_named(&self, name: &str) -> Vec<i32> {
        let entries =
            std::fs::read_dir(format!("/proc/{}/task", self.child.id())).expect("a child that runs");
        let nice = |path: PathBuf| {
            let comm = std::fs::read_to_string(path.join("comm")).ok()?;
            let stat = std::fs::read_to_string(path.join("stat")).ok()?;
            // Behind the name in its brackets: state is field 3, niceness field 19.
            let word = stat.rsplit_once(") ")?.1.split(' ').nth(16)?.parse().ok()?;
            (comm.trim_end() == name).then_some(word)
        };
        entries.filter_map(|entry| nice(entry.ok()?.path())).collect()
    }

    /// Whether it has ended.
    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().expect("a child of this process").is_some()
    }

    /// Waits for the end; a run that takes longer than `limit` fails the test.
    pub fn finish(mut self, limit: Duration) -> Done {
        let begin = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("a child of this process") {
                break status;
            }
            if begin.elapsed() > limit {
                drop(self.child.kill());
                panic!("still running after {limit:?}: {}", self.stderr.so_far());
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        Done { status, stdout: self.stdout.whole(), stderr: self.stderr.whole(), took: begin.elapsed() }
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// A process that has ended.
pub struct Done {
    pub status: ExitStatus,
    pub stdout: String,
    pub stderr: String,
    /// Since its end was waited for.
    pub took: Duration,
}

impl Done {
    pub fn code(&self) -> Option<i32> {
        self.status.code()
    }

    /// The summary, which has to be all there is on standard output.
    pub fn summary(&self) -> Summary {
        Summary::parse(&self.stdout)
            .unwrap_or_else(|words| panic!("{words}\nstdout: {}\nstderr: {}", self.stdout, self.stderr))
    }
}

/// Asks until it holds, at most for [`LIMIT`].
pub fn wait_until(what: &str, holds: impl FnMut() -> bool) {
    wait_until_or(what, holds, String::new);
}

/// The same; if it never does, the test's end says what there was instead.
pub fn wait_until_or(what: &str, mut holds: impl FnMut() -> bool, instead: impl Fn() -> String) {
    let begin = Instant::now();
    while !holds() {
        assert!(begin.elapsed() < LIMIT, "waited {LIMIT:?} in vain: {what}\n{}", instead());
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Repeats `attempt` with twice the time as long as the machine was too busy for what it had, which it says
/// by `None`.
pub fn with_enough_time<T>(first: Duration, attempt: impl FnMut(Duration) -> Option<T>) -> T {
    let mut times =
        std::iter::successors(Some(first), |time| Some(*time * 2)).take_while(|time| *time <= LIMIT);
    times
        .by_ref()
        .find_map(attempt)
        .unwrap_or_else(|| panic!("no time from {first:?} to {LIMIT:?} was enough"))
}

/// Lets what `command` starts have the processors before others, where that is allowed: for checks of how
/// fast threads take turns with each other, which other work on the machine is not to decide.
pub fn before_others(command: &mut Command) {
    let hurry = || {
        // SAFETY: between fork and exec; setpriority takes numbers.
        unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, -15) };
        Ok(())
    };
    // SAFETY: the closure makes one system call and allocates nothing.
    unsafe { std::os::unix::process::CommandExt::pre_exec(command, hurry) };
}

/// Says why a check is left out. With `CI=true` in the environment none may be.
pub fn skip(why: &str) {
    assert!(std::env::var("CI").as_deref() != Ok("true"), "must not be skipped in CI: {why}");
    eprintln!("skipped: {why}");
}

/// Whether this process is root; says so where it is not, so that a skipped check is seen.
pub fn is_root() -> bool {
    // SAFETY: geteuid takes nothing and always succeeds.
    let root = unsafe { libc::geteuid() } == 0;
    if !root {
        skip("needs root");
    }
    root
}
