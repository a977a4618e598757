//! Programs in C that read packets, compiled when the bench begins, and others that run beside them.
//!
//! | program | what it does |
//! |---|---|
//! | `sockets.c` | counts by a TPACKET_V3 socket of its own |
//! | `member.c` | counts what a member of a group is given |
//! | `port.c` | counts a UDP port on `ring`, a burst at a time |
//! | `seen.c` | how late each packet is seen |
//! | `flows.c` | when a flow is first seen in an epoch |
//!
//! Each prints `ready` once it hears packets.

use crate::wirescope::send_signal;
use crate::workspace::Workspace;
use anyhow::{Context, Result, bail, ensure};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// All of them.
const NAMES: [&str; 5] = ["sockets", "member", "port", "seen", "flows"];
/// Of what one said, so many characters are repeated.
const WORDS_MAX: usize = 2000;
/// How long one may take until it is ready, and for an answer.
const LIMIT: Duration = Duration::from_secs(20);

/// The compiled programs, and libwirescope as it is installed; gone when dropped.
#[derive(Debug)]
pub struct Programs {
    folder: TempDir,
}

impl Programs {
    /// Compiles them against the library that was built together with this program.
    ///
    /// # Errors
    /// Where there is no compiler, or it refuses: its words.
    pub fn build(workspace: &Workspace) -> Result<Programs> {
        let folder = workspace.out_folder()?;
        let library = workspace.wirescope.with_file_name("libwirescope.so");
        ensure!(library.is_file(), "libwirescope.so isn't built: cargo build --release --workspace");
        std::fs::copy(library, folder.path().join("libwirescope.so.0"))?;
        symlink("libwirescope.so.0", folder.path().join("libwirescope.so"))?;
        for name in NAMES {
            let source = workspace.root.join("benches/programs").join(name).with_extension("c");
            let mut cc = Command::new("cc");
            cc.args(["-std=gnu11", "-O2", "-o"]).arg(folder.path().join(name)).arg(source);
            for folder in ["include", "examples"] {
                cc.arg("-I").arg(workspace.root.join("crates/libwirescope").join(folder));
            }
            let output = cc.arg("-L").arg(folder.path()).arg("-lwirescope").output().context("cc")?;
            ensure!(output.status.success(), "cc: {}", String::from_utf8_lossy(&output.stderr).trim());
        }
        Ok(Programs { folder })
    }

    /// Where the program is.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Where a command finds the library, as `LD_LIBRARY_PATH` has it.
    pub fn libraries(&self) -> &Path {
        self.folder.path()
    }

    /// Starts one of them, and waits until it is ready.
    ///
    /// # Errors
    /// What it said instead.
    pub fn start(&self, name: &str, words: &[&str]) -> Result<Program> {
        let mut command = Command::new(self.path(name));
        command.args(words).env("LD_LIBRARY_PATH", self.libraries());
        let mut program = Program::start(command)?;
        program.wait_ready()?;
        Ok(program)
    }
}

/// One that runs; killed when dropped.
#[derive(Debug)]
pub struct Program {
    child: Child,
    said: Receiver<String>,
    orders: Option<ChildStdin>,
}

impl Program {
    /// Starts a command whose standard output is read line by line.
    ///
    /// # Errors
    /// The system's.
    pub fn start(mut command: Command) -> Result<Program> {
        let name = command.get_program().to_string_lossy().into_owned();
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().context(name)?;
        let (orders, printed) = (child.stdin.take(), child.stdout.take().context("no output")?);
        let said = lines_of(printed);
        Ok(Program { child, said, orders })
    }

    /// Starts a command that writes into a pipe.
    ///
    /// # Errors
    /// The system's.
    pub fn start_into(mut command: Command, pipe: Stdio) -> Result<Program> {
        let name = command.get_program().to_string_lossy().into_owned();
        command.stdin(Stdio::null()).stdout(pipe).stderr(Stdio::piped());
        let child = command.spawn().context(name)?;
        Ok(Program { child, said: channel().1, orders: None })
    }

    /// Waits until it says that it is ready.
    ///
    /// # Errors
    /// What it said instead.
    pub fn wait_ready(&mut self) -> Result<()> {
        match self.said.recv_timeout(LIMIT) {
            Ok(line) if line == "ready" => Ok(()),
            Ok(line) => bail!("it said '{line}' instead of being ready"),
            Err(_) => bail!("it isn't ready: {}", self.words()),
        }
    }

    /// Has it do its work once more; the numbers of its answer.
    ///
    /// # Errors
    /// Where it doesn't answer.
    pub fn ask<const N: usize>(&mut self) -> Result<[u64; N]> {
        self.orders.as_mut().context("no input")?.write_all(b"go\n")?;
        let line =
            self.said.recv_timeout(LIMIT).map_err(|_| anyhow::anyhow!("no answer: {}", self.words()))?;
        numbers(&line)
    }

    /// Sends it a signal.
    ///
    /// # Errors
    /// The system's.
    pub fn signal(&self, signal: i32) -> Result<()> {
        send_signal(&self.child, signal)
    }

    /// Waits for its end, which must be a good one; all lines that it has said behind `ready`.
    ///
    /// # Errors
    /// What it said, where it fails or takes too long.
    pub fn finish(mut self) -> Result<Vec<String>> {
        drop(self.orders.take());
        let (mut lines, begun) = (Vec::new(), Instant::now());
        loop {
            match self.said.recv_timeout(LIMIT.saturating_sub(begun.elapsed())) {
                Ok(line) => lines.push(line),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => bail!("it doesn't end"),
            }
        }
        let status = self.child.wait()?;
        ensure!(status.success(), "it ended with {status}: {}", self.words());
        Ok(lines)
    }

    /// The same of one whose last line is so many numbers.
    ///
    /// # Errors
    /// What it said, where it fails, takes too long, or says others.
    pub fn counted<const N: usize>(self) -> Result<[u64; N]> {
        let lines = self.finish()?;
        numbers(lines.last().context("it said nothing")?)
    }

    /// What it has complained of; ends it.
    pub fn words(&mut self) -> String {
        let _ = self.child.kill();
        let mut words = String::new();
        if let Some(mut stderr) = self.child.stderr.take() {
            let _ = stderr.read_to_string(&mut words);
        }
        words.trim().replace('\n', " / ").chars().take(WORDS_MAX).collect()
    }

    /// The same of one that has ended by itself with a good end: all that it wrote to standard error.
    ///
    /// # Errors
    /// What it said, where it fails or takes too long.
    pub fn finish_words(mut self) -> Result<String> {
        drop(self.orders.take());
        let begun = Instant::now();
        while self.child.try_wait()?.is_none() {
            ensure!(begun.elapsed() < LIMIT, "it doesn't end");
            std::thread::sleep(Duration::from_millis(10));
        }
        let (status, words) = (self.child.wait()?, self.words());
        ensure!(status.success(), "it ended with {status}: {words}");
        Ok(words)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // Both do nothing where its end was waited for already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Lines as they come, by a thread that ends with them.
fn lines_of(printed: ChildStdout) -> Receiver<String> {
    let (to, said) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(printed).lines().map_while(Result::ok) {
            if to.send(line).is_err() {
                break;
            }
        }
    });
    said
}

fn numbers<const N: usize>(line: &str) -> Result<[u64; N]> {
    let numbers: Vec<u64> = line.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    numbers.try_into().map_err(|_| anyhow::anyhow!("it said '{line}'"))
}
