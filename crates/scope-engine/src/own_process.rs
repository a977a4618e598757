//! This program, begun anew as a process beside a run: for what the run can't do itself any more once its
//! rights are given up.
//!
//! ```text
//!  run ──► /proc/self/exe ROLE ...     nothing of the run's memory, its standard input is a socket of the run, no other descriptor
//!     exec-helper    runs the commands that follow dumps (`exec/process.rs`)
//!     config-reader  opens the configuration and scripts again (`reread.rs`)
//! ```
//! Such a process gives up what it doesn't need before it says that it is ready, can't be looked into by
//! others of its user, and ends when the run closes the socket, or dies.

use rustix::fs::{FileType, fstat};
use std::ffi::{CStr, OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// The word, as this program's first argument, that has it run commands.
pub(crate) const EXEC_HELPER: &str = "exec-helper";
/// The same, to open files again: its further arguments, and others in their folders.
pub(crate) const CONFIG_READER: &str = "config-reader";
/// Couldn't begin, or isn't what it was begun for.
pub(crate) const REFUSED: u8 = 2;

/// Signals that the run takes care of; a service manager may send them to all processes of a service.
const LEFT_TO_THE_RUN: [libc::c_int; 7] =
    [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT, libc::SIGUSR1, libc::SIGUSR2, libc::SIGALRM];

/// Begins this program in the role `role`; the run's end of its socket. It ends by itself: nobody waits for
/// it.
pub(crate) fn spawn(
    role: &str,
    arguments: &[&OsStr],
    environment: impl IntoIterator<Item = (OsString, OsString)>,
) -> io::Result<UnixStream> {
    let (own, theirs) = UnixStream::pair()?;
    let mut command = Command::new("/proc/self/exe");
    command.arg0("wirescope").arg(role).args(arguments).env_clear().envs(environment);
    command.stdin(OwnedFd::from(theirs)).stdout(Stdio::null()).stderr(Stdio::null());
    // No terminal's signals, and none of its input. It fails only for the leader of a session, which a new
    // process isn't.
    // SAFETY: between fork and exec only this system call is made, which takes nothing.
    unsafe { command.pre_exec(|| rustix::process::setsid().map(drop).map_err(io::Error::from)) };
    drop(command.spawn()?);
    Ok(own)
}

/// Closes what isn't needed, hides, and takes a name; the socket of the run, if there is one.
pub(crate) fn settle(role: &str, name: &CStr) -> Option<File> {
    // SAFETY: takes numbers only; nothing of this process has any of these descriptors yet.
    unsafe { libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, 0) };
    // SAFETY: descriptor 0 is open (the runtime sees to that) and nobody else of this process uses it.
    let run = unsafe { File::from_raw_fd(0) };
    if !fstat(&run).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Socket) {
        eprintln!("wirescope: {role} is not a command: a run starts it by itself");
        return None;
    }
    scope_rights::hide();
    // SAFETY: the name ends with a NUL, and is copied.
    unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr(), 0, 0, 0) };
    // Handlers, which commands don't inherit, in place of ignoring, which they would.
    for signal in LEFT_TO_THE_RUN {
        let _ = signal_hook::flag::register(signal, Arc::new(AtomicBool::new(false)));
    }
    Some(run)
}
