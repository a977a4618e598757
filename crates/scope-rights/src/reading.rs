//! Rights of commands that only read: `verify` and what else looks at files that somebody else may have made.
//!
//! They stay the user who called them. What they keep: reading the paths that they were given, writing to what
//! is open already, threads. By both means: Landlock says what may be opened; the list of system calls has no
//! socket, no process, and no opening for writing, so that neither lacks where the kernel has only one of
//! them.

use super::calls::{self, Filter};
use super::files::Making;
use super::{RightsError, capabilities, files, hide, in_every_thread};
use libc::*;
use scope_folder::Folder;
use std::path::Path;

/// Calls that may be made with any arguments.
#[rustfmt::skip]
const FREE: &[&[c_long]] = &[
    // The files that are read, and what is open already to be written. Reads by io_uring: a queue that was made,
    // restricted to reading, before this list came into force; no new ones can be made or set up.
    &[SYS_read, SYS_readv, SYS_pread64, SYS_preadv, SYS_preadv2, SYS_lseek, SYS_io_uring_enter],
    &[calls::SYS_CACHESTAT],
    &[SYS_write, SYS_writev, SYS_pwrite64, SYS_fadvise64, SYS_close],
    &[SYS_fcntl, SYS_getdents64, SYS_newfstatat, SYS_fstat, SYS_statx, SYS_readlinkat, SYS_getcwd, SYS_faccessat2],
    // Memory, threads and their end.
    &[SYS_mmap, SYS_munmap, SYS_mremap, SYS_mprotect, SYS_madvise, SYS_brk],
    &[SYS_futex, SYS_set_robust_list, SYS_rseq, SYS_sched_yield, SYS_sched_getaffinity, SYS_gettid, SYS_getpid],
    &[SYS_exit, SYS_exit_group, SYS_restart_syscall, SYS_getcpu, SYS_getuid, SYS_geteuid, SYS_getgid, SYS_getegid],
    // Signals, time, waiting.
    &[SYS_rt_sigaction, SYS_rt_sigprocmask, SYS_rt_sigreturn, SYS_sigaltstack],
    &[SYS_clock_gettime, SYS_clock_nanosleep, SYS_nanosleep, SYS_gettimeofday, SYS_ppoll, SYS_getrandom],
];
#[cfg(target_arch = "x86_64")]
const FREE_HERE: &[c_long] = &[SYS_poll, SYS_readlink, SYS_time, SYS_stat, SYS_lstat, SYS_access];
#[cfg(not(target_arch = "x86_64"))]
const FREE_HERE: &[c_long] = &[];
/// Flags of an opening that writes or makes something.
const WRITES: c_int = O_ACCMODE | O_CREAT | O_TRUNC;

/// What a command that only reads has kept, as far as the kernel goes along.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadingRights {
    /// Whether system calls are filtered.
    pub seccomp: bool,
    /// Version of Landlock's interface that is in force; 0 where the kernel has none.
    pub landlock_abi: i32,
}

impl ReadingRights {
    /// What the kernel lacks, in words; `None`: nothing.
    pub fn lack(&self) -> Option<&'static str> {
        match (self.seccomp, self.landlock_abi) {
            (true, 1..) => None,
            (true, _) => Some("no Landlock in this kernel: whatever this user may read stays within reach"),
            (false, 1..) => {
                Some("no seccomp in this kernel: any system call that this user may make stays possible")
            }
            (false, _) => {
                Some("neither seccomp nor Landlock in this kernel: the rights of this user are kept")
            }
        }
    }
}

/// What those who also make files may call beside that: for files without a name, and giving them one.
const MAKING: &[c_long] = &[SYS_linkat, SYS_fchmod, SYS_fdatasync, SYS_fsync];
/// What those need who hear an instance: words through a socket that is there. None can be made or connected.
const LISTENING: &[c_long] = &[
    SYS_recvfrom,
    SYS_recvmsg,
    SYS_sendto,
    SYS_sendmsg,
    SYS_shutdown,
    SYS_getsockopt,
    SYS_epoll_pwait,
    SYS_epoll_ctl,
];
#[cfg(target_arch = "x86_64")]
const LISTENING_HERE: &[c_long] = &[SYS_epoll_wait];
#[cfg(not(target_arch = "x86_64"))]
const LISTENING_HERE: &[c_long] = &[];
/// What those need who send packets: through sockets that are open, each queue on a processor of its own.
const SENDING: &[c_long] = &[SYS_sendto, SYS_sendmmsg, SYS_sched_setaffinity];

/// What stays possible beside reading, and beside making files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Beside {
    Nothing,
    Listening,
    Sending,
}

impl Beside {
    fn calls(self) -> [&'static [c_long]; 2] {
        match self {
            Beside::Nothing => [&[], &[]],
            Beside::Listening => [LISTENING, LISTENING_HERE],
            Beside::Sending => [SENDING, &[]],
        }
    }
}

/// The same where a file system has no such files: a new file has another name until it is whole.
const RENAMING: &[c_long] = &[SYS_renameat2, SYS_unlinkat];

/// And for those who make folders.
const MAKING_BELOW: &[c_long] = &[SYS_mkdirat];

/// As [`keep_to_reading`], and files may be made in `folder`. What is there can't be written, and can't be removed but
/// where the file system has no files without a name.
///
/// # Errors
/// Those of [`keep_to_reading`].
pub fn keep_to_reading_and_making(paths: &[&Path], folder: &Folder) -> Result<ReadingRights, RightsError> {
    let making = if folder.makes_unnamed() { Making::Unnamed } else { Making::Renamed };
    keep_to(paths, Some((folder, making)), Beside::Nothing)
}

/// As [`keep_to_reading`], and files may be made in `folder` and below it, and folders for them: under other names until
/// they are whole, then in the place of what has their name. What is there can't be written; it can be replaced and
/// removed.
///
/// # Errors
/// Those of [`keep_to_reading`].
pub fn keep_to_reading_and_making_below(
    paths: &[&Path],
    folder: &Folder,
) -> Result<ReadingRights, RightsError> {
    keep_to(paths, Some((folder, Making::Below)), Beside::Nothing)
}

/// Gives up, for all threads of the process, everything but reading `paths` (files, or folders with all that
/// is in them) and writing to what is open. The user stays; of root's capabilities only the one is left that
/// reads files of others. For good: there is no way back.
///
/// # Errors
/// Some rights may be given up already then: the caller must not go on.
pub fn keep_to_reading(paths: &[&Path]) -> Result<ReadingRights, RightsError> {
    keep_to(paths, None, Beside::Nothing)
}

/// As [`keep_to_reading`] or [`keep_to_reading_and_making`], where nothing is read but what comes at a socket that is
/// connected already.
///
/// # Errors
/// Those of [`keep_to_reading`].
pub fn keep_to_listening(folder: Option<&Folder>) -> Result<ReadingRights, RightsError> {
    let making = |folder: &Folder| if folder.makes_unnamed() { Making::Unnamed } else { Making::Renamed };
    keep_to(&[], folder.map(|folder| (folder, making(folder))), Beside::Listening)
}

/// Gives up everything but what is open and mapped already: not one capability is left.
///
/// # Errors
/// Those of [`keep_to_reading`].
pub fn keep_to_what_is_open() -> Result<ReadingRights, RightsError> {
    keep_to_with(&[], None, Beside::Listening, capabilities::drop_all)
}

/// Gives up everything but reading files that are open, writing to what is, and sending through packet sockets that
/// are: not one capability is left.
///
/// # Errors
/// Those of [`keep_to_reading`].
pub fn keep_to_sending() -> Result<ReadingRights, RightsError> {
    keep_to_with(&[], None, Beside::Sending, capabilities::drop_all)
}

fn keep_to(
    paths: &[&Path],
    makes: Option<(&Folder, Making)>,
    beside: Beside,
) -> Result<ReadingRights, RightsError> {
    let makes_files = makes.is_some();
    keep_to_with(paths, makes, beside, move || capabilities::drop_all_but_files(makes_files))
}

fn keep_to_with(
    paths: &[&Path],
    makes: Option<(&Folder, Making)>,
    beside: Beside,
    drop: impl Fn() -> Result<(), i32> + Send + Sync + 'static,
) -> Result<ReadingRights, RightsError> {
    let files =
        files::FileRules::reading(paths, makes).map_err(RightsError::step("making Landlock's rules"))?;
    let making = makes.map(|(_, making)| making);
    let calls = filters(making, beside).map_err(RightsError::step("making the list of system calls"))?;
    let seccomp = calls.is_some();
    hide();
    let landlock_abi = files.abi();
    in_every_thread(files, calls, move || {
        capabilities::drop_bounding();
        drop()
    })?;
    Ok(ReadingRights { seccomp, landlock_abi })
}

/// Openings that make a new file under a name: of the flags that stand first those that stand second.
const RENAMED: Option<(c_int, c_int)> = Some((O_CREAT | O_EXCL | O_TRUNC, O_CREAT | O_EXCL));

/// In the order in which they are applied; `None` where the kernel has no seccomp.
fn filters(making: Option<Making>, beside: Beside) -> std::io::Result<Option<(Filter, Filter)>> {
    let (calls, openings): (&[&[c_long]], _) = match making {
        None => (&[], None),
        Some(Making::Unnamed) => (&[MAKING], Some((O_TMPFILE | O_CREAT | O_TRUNC, O_TMPFILE))),
        Some(Making::Renamed) => (&[MAKING, RENAMING], RENAMED),
        Some(Making::Below) => (&[MAKING, RENAMING, MAKING_BELOW], RENAMED),
    };
    let making = calls.iter().copied().flatten();
    let beside = beside.calls().into_iter().flatten();
    let own = FREE.iter().copied().flatten().chain(FREE_HERE);
    let mut rules = calls::free(own.chain(making).chain(beside));
    let openings = [Some((WRITES, 0)), openings].into_iter().flatten();
    let made = calls::openings(openings)
        .and_then(|(call, openings)| {
            rules.insert(call, openings);
            calls::add_threads_and_terminal(&mut rules)
        })
        .and_then(|()| calls::pair(rules));
    if !calls::available() {
        return Ok(None);
    }
    made.map(Some).map_err(std::io::Error::other)
}
