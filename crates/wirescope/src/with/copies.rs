//! The copies of a program: started, told what this process is told by signals, waited for.
//!
//! Signals are blocked here and taken one after another, so that none comes between two steps. The copies don't inherit that:
//! for them it is as it was before.

use std::ffi::OsString;
use std::io;
use std::mem::MaybeUninit;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command};
use std::ptr::null_mut;

/// What is passed on.
const PASSED_ON: [i32; 6] =
    [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT, libc::SIGUSR1, libc::SIGUSR2];
/// The kernel itself has sent it: a terminal, which has told all processes before it.
const OF_TERMINAL: i32 = 0x80;
/// How often it is tried where the program is still being written by somebody.
const BUSY: i32 = libc::ETXTBSY;

/// The copies by their numbers.
pub struct Copies {
    running: Vec<(usize, Child)>,
    codes: Vec<u8>,
    signals: libc::sigset_t,
    /// What was blocked before.
    before: libc::sigset_t,
}

impl Copies {
    /// Takes signals from now on. Of one thread alone.
    ///
    /// # Errors
    /// The system's.
    pub fn new() -> io::Result<Copies> {
        let mut signals = MaybeUninit::uninit();
        // SAFETY: a place for a set of signals, which sigemptyset fills before anything else looks at it.
        let signals = unsafe {
            libc::sigemptyset(signals.as_mut_ptr());
            for signal in PASSED_ON.into_iter().chain([libc::SIGCHLD]) {
                libc::sigaddset(signals.as_mut_ptr(), signal);
            }
            signals.assume_init()
        };
        let mut before = signals;
        // SAFETY: a set of signals, and a place for the old one.
        let failed = unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const signals, &raw mut before) };
        if failed != 0 {
            return Err(io::Error::from_raw_os_error(failed));
        }
        Ok(Copies { running: Vec::new(), codes: Vec::new(), signals, before })
    }

    /// Starts one more.
    ///
    /// # Errors
    /// The system's.
    pub fn start(
        &mut self,
        program: &Path,
        words: impl Iterator<Item = OsString>,
        environment: &[(&'static str, OsString)],
    ) -> io::Result<()> {
        let mut command = Command::new(program);
        command.args(words).envs(environment.iter().map(|(key, value)| (key, value)));
        let before = self.before;
        let unblock = move || {
            // SAFETY: a set of signals, and no place for the old one.
            let failed = unsafe { libc::sigprocmask(libc::SIG_SETMASK, &raw const before, null_mut()) };
            if failed == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
        };
        // SAFETY: between fork and exec it makes one system call, and allocates nothing.
        unsafe { command.pre_exec(unblock) };
        let child = match command.spawn() {
            Err(error) if error.raw_os_error() == Some(BUSY) => command.spawn()?,
            other => other?,
        };
        self.running.push((self.codes.len(), child));
        self.codes.push(0);
        Ok(())
    }

    /// Ends those that run, since another one can't be started.
    pub fn end(&mut self) {
        self.pass_on(libc::SIGTERM);
        self.wait();
    }

    /// Waits for all, and passes on what comes; the exit code: 0, or the first other one.
    pub fn wait(&mut self) -> u8 {
        self.reap();
        while !self.running.is_empty() {
            match self.next_signal() {
                Some((signal, code)) if signal != libc::SIGCHLD && code != OF_TERMINAL => {
                    self.pass_on(signal)
                }
                _ => {}
            }
            self.reap();
        }
        self.codes.iter().copied().find(|code| *code != 0).unwrap_or(0)
    }

    /// Takes the codes of those that have ended.
    fn reap(&mut self) {
        let codes = &mut self.codes;
        self.running.retain_mut(|(number, child)| match child.try_wait() {
            Ok(None) => true,
            Ok(Some(status)) => {
                let signalled = status.signal().map(|signal| 128 + signal);
                codes[*number] = status.code().or(signalled).unwrap_or(1) as u8;
                false
            }
            Err(_) => false, // somebody else has waited for it
        });
    }

    fn pass_on(&self, signal: i32) {
        for (_, child) in &self.running {
            // SAFETY: kill takes no pointers, and the child wasn't waited for, so that the number is still its own.
            unsafe { libc::kill(child.id() as i32, signal) };
        }
    }

    /// The next signal, and where it comes from.
    fn next_signal(&self) -> Option<(i32, i32)> {
        let mut from = MaybeUninit::<libc::siginfo_t>::uninit();
        // SAFETY: a set of signals, and a place for what is said of one.
        let signal = unsafe { libc::sigwaitinfo(&raw const self.signals, from.as_mut_ptr()) };
        if signal <= 0 {
            return None;
        }
        // SAFETY: sigwaitinfo has returned a signal, and so filled the place.
        let from = unsafe { from.assume_init() };
        Some((signal, from.si_code))
    }
}
