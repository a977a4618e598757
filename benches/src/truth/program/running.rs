//! One run of the program whose dumps go to a disk or a pipe, and what it says of them on standard error.

use crate::workspace::Workspace;
use anyhow::{Context, Result, bail, ensure};
use scope_testkit::lab::Namespace;
use serde_json::Value;
use std::fs::{File, read_to_string};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long a start may take, and an end.
const LIMIT: Duration = Duration::from_secs(90);
/// Of what a run said, so many characters are repeated.
const WORDS_MAX: usize = 300;

/// When the reader of a pipe reads nothing: from the first byte on, and for so long.
#[derive(Clone, Copy, Debug)]
pub struct Stall {
    /// Before anything is read.
    pub first: Duration,
    /// After the first piece.
    pub then: Duration,
}

/// A run that goes on; killed when dropped.
pub struct Running {
    child: Child,
    stderr: PathBuf,
    out: PathBuf,
    pipe: Option<JoinHandle<Vec<u8>>>,
}

/// What a run has left behind.
pub struct Done {
    /// What it said of each of its dumps.
    pub dumps: Vec<Value>,
    /// What went through the pipe.
    pub piped: Option<Vec<u8>>,
}

impl Running {
    /// Starts `wirescope run` with these arguments and the folder `out`; beside that folder its words are
    /// kept.
    ///
    /// # Errors
    /// The system's.
    pub fn start(
        workspace: &Workspace,
        namespace: Option<&Namespace>,
        out: &Path,
        arguments: &[String],
        stall: Option<Stall>,
    ) -> Result<Running> {
        let program = workspace.wirescope.to_str().context("the binary's path is no UTF-8")?;
        let mut command =
            namespace.map_or_else(|| Command::new(program), |namespace| namespace.command(program));
        let stderr = out.with_extension("stderr");
        command.arg("run").args(arguments).args(["--log-format", "json", "--out"]).arg(out);
        command.stdin(Stdio::null()).stderr(File::create(&stderr)?);
        command.stdout(if stall.is_some() { Stdio::piped() } else { Stdio::null() });
        let mut child = command.spawn().context("wirescope")?;
        let reader = child.stdout.take().zip(stall).map(|(mut stdout, stall)| {
            std::thread::spawn(move || {
                std::thread::sleep(stall.first);
                let (mut all, mut piece) = (Vec::new(), [0; 4096]);
                let mut stalled = false;
                while let Ok(bytes @ 1..) = stdout.read(&mut piece) {
                    all.extend(&piece[..bytes]);
                    if !stalled {
                        stalled = true;
                        std::thread::sleep(stall.then);
                    }
                }
                all
            })
        });
        Ok(Running { child, stderr, out: out.to_path_buf(), pipe: reader })
    }

    /// Waits until it captures.
    ///
    /// # Errors
    /// What it said, where it ends before or takes too long.
    pub fn wait_started(&mut self) -> Result<()> {
        let begun = Instant::now();
        while !read_to_string(self.out.join("wirescope.jsonl")).is_ok_and(|log| log.contains('\n')) {
            if let Some(status) = self.child.try_wait()? {
                bail!("wirescope ended at its start with {status}: {}", self.words());
            }
            ensure!(begun.elapsed() < LIMIT, "wirescope takes longer than {LIMIT:?} to start");
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// Sends it a signal; not to one that has ended.
    ///
    /// # Errors
    /// The system's.
    pub fn signal(&mut self, signal: i32) -> Result<()> {
        if self.child.try_wait()?.is_some() {
            return Ok(());
        }
        // SAFETY: kill takes no pointers, and the child was not waited for yet, so the number is still its
        // own.
        let result = unsafe { libc::kill(self.child.id() as i32, signal) };
        ensure!(result == 0, "signal {signal}: {}", std::io::Error::last_os_error());
        Ok(())
    }

    /// Waits for its end, which must be exit code 0, or 1 as where a promise wasn't kept.
    ///
    /// # Errors
    /// What it said, where it fails or takes too long.
    pub fn finish(mut self) -> Result<Done> {
        let begun = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait()? {
                break status;
            }
            ensure!(begun.elapsed() < LIMIT, "wirescope still runs after {LIMIT:?}");
            std::thread::sleep(Duration::from_millis(20));
        };
        ensure!(matches!(status.code(), Some(0 | 1)), "wirescope ended with {status}: {}", self.words());
        let piped = self.pipe.take().map(|reader| reader.join().unwrap_or_default());
        let said = read_to_string(&self.stderr)?;
        let lines = said.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let dumps = lines.filter(|line| line["event"] == "dump").map(|line| line["dump"].clone()).collect();
        Ok(Done { dumps, piped })
    }

    fn words(&self) -> String {
        let words = read_to_string(&self.stderr).unwrap_or_default();
        let skip = words.chars().count().saturating_sub(WORDS_MAX);
        words.trim().replace('\n', " / ").chars().skip(skip).collect()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Both do nothing where its end was waited for already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
