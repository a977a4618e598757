//! Rights of the door to the network: who serves foreigners keeps next to nothing.
//!
//! What it keeps: the socket that it listens at, those that come from there, new ones to Unix sockets, and what is open
//! already. It opens no file: Landlock has no rule for any, and no opening is among its system calls. No process, no program,
//! no look into others; it signals nobody. Which Unix sockets it reaches, their own modes say.

use super::calls::{self, Filter};
use super::{Rights, RightsError, User, capabilities, errno, files, hide, in_every_thread};
use libc::*;
use seccompiler::{BackendError, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompRule};
use serde_json::{Map, Value, json};
use std::ffi::CStr;

/// Calls that may be made with any arguments.
#[rustfmt::skip]
const FREE: &[&[c_long]] = &[
    // What is open: connections, certificates and tokens as they are handed over, the file of last uses.
    &[SYS_read, SYS_readv, SYS_write, SYS_writev, SYS_lseek, SYS_ftruncate, SYS_flock, SYS_close, SYS_fcntl, SYS_fstat, SYS_statx],
    // Connections that come, and those to runs; `socket` is below.
    &[SYS_accept4, SYS_connect, SYS_shutdown, SYS_sendto, SYS_sendmsg, SYS_recvfrom, SYS_recvmsg],
    &[SYS_getsockopt, SYS_setsockopt, SYS_getsockname, SYS_getpeername],
    &[SYS_ppoll, SYS_epoll_create1, SYS_epoll_ctl, SYS_epoll_pwait, SYS_eventfd2],
    // Memory, threads and their end.
    &[SYS_mmap, SYS_munmap, SYS_mremap, SYS_mprotect, SYS_madvise, SYS_brk],
    &[SYS_futex, SYS_set_robust_list, SYS_rseq, SYS_sched_yield, SYS_sched_getaffinity, SYS_gettid, SYS_getpid],
    &[SYS_exit, SYS_exit_group, SYS_restart_syscall, SYS_getcpu, SYS_getuid, SYS_geteuid, SYS_getgid, SYS_getegid],
    // Signals, time, random numbers.
    &[SYS_rt_sigaction, SYS_rt_sigprocmask, SYS_rt_sigreturn, SYS_sigaltstack],
    &[SYS_clock_gettime, SYS_clock_nanosleep, SYS_nanosleep, SYS_gettimeofday, SYS_getrandom],
];
#[cfg(target_arch = "x86_64")]
const FREE_HERE: &[c_long] = &[SYS_poll, SYS_epoll_wait, SYS_time];
#[cfg(not(target_arch = "x86_64"))]
const FREE_HERE: &[c_long] = &[];

/// Gives up, for all threads of the process, everything but serving, as `user` where one is named, with that one's groups.
/// For good: there is no way back.
///
/// # Errors
/// Some rights may be given up already then: the caller must not go on.
pub fn keep_to_serving(user: Option<&User>) -> Result<Rights, RightsError> {
    let files = files::FileRules::nothing().map_err(RightsError::step("making Landlock's rules"))?;
    let filters = filters().map_err(RightsError::step("making the list of system calls"))?;
    let (seccomp, landlock_abi) = (filters.is_some(), files.abi());
    // The set can be emptied only before the user is changed.
    super::threads::in_each(super::threads::lasting(|_| capabilities::drop_bounding()))
        .map_err(RightsError::step("reaching every thread"))?;
    if let Some(user) = user {
        user.take_on_with_groups().map_err(RightsError::step("changing the user"))?;
    }
    hide();
    in_every_thread(files, filters, capabilities::drop_all)?;
    let user = user.map_or_else(|| User::current().name, |user| user.name.clone());
    Ok(Rights { user, seccomp, landlock_abi, commands_abi: None })
}

/// In the order in which they are applied; `None` where the kernel has no seccomp.
fn filters() -> std::io::Result<Option<(Filter, Filter)>> {
    if !calls::available() {
        return Ok(None);
    }
    let made = || -> Result<(Filter, Filter), BackendError> {
        let mut rules = calls::free(FREE.iter().copied().flatten().chain(FREE_HERE));
        calls::add_threads_and_terminal(&mut rules)?;
        let unix = SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, AF_UNIX as u64)?;
        rules.insert(SYS_socket, vec![SeccompRule::new(vec![unix])?]);
        calls::pair(rules)
    };
    made().map(Some).map_err(std::io::Error::other)
}

/// Tries, in this thread, what must not be possible any more: what each came to, and whether all was refused.
pub fn try_what_serving_may_not() -> (Value, bool) {
    let status = thread_status();
    let mut facts = Map::new();
    let mut passed = true;
    for (key, due) in [
        ("CapEff", "0000000000000000"),
        ("CapPrm", "0000000000000000"),
        ("NoNewPrivs", "1"),
        ("Seccomp", "2"),
    ] {
        let value = status.iter().find(|(word, _)| word == key).map_or("", |(_, value)| value);
        passed &= value == due;
        facts.insert(key.to_string(), json!(value));
    }
    for (key, result) in tries() {
        passed &= result != 0;
        facts.insert(
            key.to_string(),
            json!(if result == 0 { "possible".to_string() } else { format!("errno {result}") }),
        );
    }
    facts.insert("passed".to_string(), json!(passed));
    (Value::Object(facts), passed)
}

/// Of this thread, from a descriptor that was opened before: see [`open_status`].
static STATUS: std::sync::OnceLock<std::fs::File> = std::sync::OnceLock::new();

/// Opens what [`try_what_serving_may_not`] reads. To be called before rights are given up.
pub fn open_status() {
    if let Ok(file) = std::fs::File::open("/proc/thread-self/status") {
        let _ = STATUS.set(file);
    }
}

fn thread_status() -> Vec<(String, String)> {
    use std::io::{Read, Seek, SeekFrom};
    let mut text = String::new();
    if let Some(mut file) = STATUS.get() {
        let _ = file.seek(SeekFrom::Start(0)).and_then(|_| file.read_to_string(&mut text));
    }
    let line =
        |line: &str| line.split_once(':').map(|(word, value)| (word.to_string(), value.trim().to_string()));
    text.lines().filter_map(line).collect()
}

/// Each by its name, and the number of its error; 0 where it was possible. What was possible is undone.
fn tries() -> [(&'static str, i32); 11] {
    let opened = |handle: c_long| match handle {
        // SAFETY: it was opened just now, and is used nowhere else.
        0.. => unsafe { close(handle as c_int) },
        _ => errno(),
    };
    let open = |path: &CStr, flags: c_int| {
        // SAFETY: the path outlives the call; the rest is numbers.
        opened(unsafe { openat(AT_FDCWD, path.as_ptr(), flags | O_CLOEXEC, 0o600) }.into())
    };
    let nothing: *const c_char = std::ptr::null();
    let mut byte = 0u8;
    let mut there = iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
    // SAFETY: paths and lists outlive the calls; the one buffer has the one byte that may be written there; a child that is
    // made although none may be ends at once. All else is numbers.
    unsafe {
        let parent = getppid();
        let done = |result: c_long| if result >= 0 { 0 } else { errno() };
        [
            ("read_file", open(c"/etc/passwd", O_RDONLY)),
            ("write_file", open(c"/tmp/wirescope-serve-selftest", O_WRONLY | O_CREAT | O_EXCL)),
            ("own_memory", open(c"/proc/self/mem", O_RDWR)),
            ("list_folder", open(c"/", O_RDONLY | O_DIRECTORY)),
            ("new_socket", opened(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0).into())),
            ("new_packet_socket", opened(socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0).into())),
            ("exec", {
                execve(c"/nonexistent/program".as_ptr(), &raw const nothing, &raw const nothing);
                if errno() == ENOENT { 0 } else { errno() }
            }),
            (
                "fork",
                match syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0) {
                    0 => _exit(0),
                    1.. => 0,
                    _ => errno(),
                },
            ),
            ("ptrace", done(ptrace(PTRACE_ATTACH, 0, 0, 0))),
            (
                "others_memory",
                done(syscall(SYS_process_vm_readv, parent, &raw mut there, 1, &raw mut there, 1, 0)),
            ),
            ("signal", done(kill(parent, 0).into())),
        ]
    }
}
