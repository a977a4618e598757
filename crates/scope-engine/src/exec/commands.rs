//! The commands that run, inside the helper process: started, listened to, ended at their bound.
//!
//! ```text
//!  order ──► /bin/sh -c COMMAND, in a process group of its own, with the three standard descriptors and nothing else
//!  after the timeout SIGTERM to the group; SIGKILL when its leader is gone and nobody else lives in it, or GRACE later
//! ```
//! What a command leaves running in its group is killed when it ends: nothing outlives its bound.

use super::orders::{Outcome, Told};
use super::{Job, OUTPUT_BYTES_MAX, group};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::BorrowedFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Between SIGTERM and SIGKILL.
const GRACE: Duration = Duration::from_secs(2);
/// A group is gone when so many looks in a row have found nobody: `/proc` isn't read at one moment.
const LOOKS: u32 = 2;
/// How often commands are looked at while one runs.
const LOOK_EVERY: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
/// Reads of one look at most, so that a command that talks without end holds up no other.
const READS_MAX: usize = 16;

/// One command that runs.
struct Running {
    dump: u64,
    child: Child,
    group: Pid,
    began: Instant,
    /// When it was signalled to end.
    told_to_end: Option<Instant>,
    /// Looks in a row that have found nobody of its group.
    seen_gone: u32,
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

    fn signal_to_end(&mut self) {
        if self.told_to_end.is_none() {
            let _ = kill_process_group(self.group, Signal::TERM);
            self.told_to_end = Some(Instant::now());
        }
    }

    /// Ends what is left of its group, whose leader is still to be waited for, so that its number is still
    /// its own.
    fn end(mut self) -> Told {
        let _ = kill_process_group(self.group, Signal::KILL);
        let status = self.child.wait().map(ExitStatusExt::into_raw).map_err(|error| error.to_string());
        self.listen();
        Told::Ended(Outcome {
            dump: self.dump,
            status,
            timed_out: self.told_to_end.is_some(),
            took: self.began.elapsed(),
            output: self.output,
        })
    }
}

/// All that run.
pub struct Commands {
    /// For `/bin/sh -c`.
    command: String,
    timeout: Duration,
    /// What each finds in its environment besides the facts of its dump.
    environment: Vec<(OsString, OsString)>,
    running: Vec<Running>,
}

impl Commands {
    /// None yet.
    pub fn new(command: String, timeout: Duration, environment: Vec<(OsString, OsString)>) -> Commands {
        Commands { command, timeout, environment, running: Vec::new() }
    }

    /// How many run.
    pub fn count(&self) -> usize {
        self.running.len()
    }

    /// Starts one; what is told where it can't be started.
    pub fn begin(&mut self, job: &Job) -> Option<Told> {
        match self.spawn(job) {
            Ok(running) => self.running.push(running),
            Err(error) => {
                let (dump, status) = (job.dump, Err(format!("/bin/sh: {error}")));
                return Some(Told::Ended(Outcome {
                    dump,
                    status,
                    timed_out: false,
                    took: Duration::ZERO,
                    output: Vec::new(),
                }));
            }
        }
        None
    }

    fn spawn(&self, job: &Job) -> io::Result<Running> {
        let (pipe, said) = pipe_with(PipeFlags::CLOEXEC)?;
        fcntl_setfl(&pipe, fcntl_getfl(&pipe)? | OFlags::NONBLOCK)?;
        let mut command = Command::new("/bin/sh");
        command.arg("-c").arg(&self.command).env_clear();
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        command.envs(job.facts.iter().map(|(name, value)| (name, value)));
        command.stdin(Stdio::null()).stdout(said.try_clone()?).stderr(said).process_group(0);
        // SAFETY: between fork and exec only system calls are made, which take numbers.
        unsafe { command.pre_exec(alone) };
        let child = command.spawn()?;
        let (group, pipe) = (Pid::from_child(&child), Some(File::from(pipe)));
        Ok(Running {
            dump: job.dump,
            child,
            group,
            began: Instant::now(),
            told_to_end: None,
            seen_gone: 0,
            pipe,
            output: Vec::new(),
        })
    }

    /// Tells all of them to end.
    pub fn end_all(&mut self) {
        for running in &mut self.running {
            running.signal_to_end();
        }
    }

    /// Kills all of them.
    pub fn kill_all(&mut self) {
        for running in self.running.drain(..) {
            drop(running.end());
        }
    }

    /// Waits until a command says something, `orders` has something to read or to take, or a little while has
    /// passed; where no command runs, for the orders alone. Then listens, ends what takes too long, and tells
    /// what has ended.
    pub fn look(&mut self, orders: BorrowedFd<'_>, want_to_write: bool) -> Vec<Told> {
        let flags = if want_to_write { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
        let pipes = self.running.iter().filter_map(|running| running.pipe.as_ref());
        let mut wanted: Vec<PollFd<'_>> = pipes.map(|pipe| PollFd::new(pipe, PollFlags::IN)).collect();
        wanted.push(PollFd::from_borrowed_fd(orders, flags));
        let patience = (!self.running.is_empty()).then_some(&LOOK_EVERY);
        let _ = poll(&mut wanted, patience);
        // Only where a command was told to end and its leader did: this looks at all processes.
        let asked = self.running.iter().any(|running| running.told_to_end.is_some() && running.has_ended());
        let living = asked.then(group::living).flatten();
        let mut told = Vec::new();
        for mut running in std::mem::take(&mut self.running) {
            running.listen();
            if running.began.elapsed() >= self.timeout {
                running.signal_to_end();
            }
            // Who was told to end has its grace, and so has all of its group, as long as one of them lives.
            let gone = match running.told_to_end {
                Some(since) => {
                    let others = living
                        .as_ref()
                        .is_none_or(|groups| groups.contains(&running.group.as_raw_nonzero().get()));
                    let is_gone = running.has_ended() && !others;
                    running.seen_gone = if is_gone { running.seen_gone + 1 } else { 0 };
                    since.elapsed() >= GRACE || running.seen_gone >= LOOKS
                }
                None => running.has_ended(),
            };
            if gone { told.push(running.end()) } else { self.running.push(running) }
        }
        told
    }
}

/// For a command's process: it gets no descriptor but the three standard ones, and dies with the helper.
fn alone() -> io::Result<()> {
    // SAFETY: these take numbers only. What is left open closes when the shell begins, and not before: by one
    // of them the standard library tells of a shell that can't begin.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0);
        // An older kernel has no such flag: then all descriptors of the helper close by themselves, as it has
        // opened them so.
        libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC);
    }
    Ok(())
}
