//! seccomp: the system calls that stay possible, each with what it is needed for; every other one is refused
//! with EPERM.
//!
//! Two filters. The list itself; and one that says of `clone3` that there is no such call: its flags lie in
//! memory, where no filter can look, so the C library makes threads by `clone`, whose flags the list can
//! check: threads, no processes.

use super::checked;
use libc::*;
use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch,
};
use std::collections::BTreeMap;
use std::io;

/// Calls that may be made with any arguments.
#[rustfmt::skip]
const FREE: &[&[c_long]] = &[
    // Files and pipes: capture files, dumps, the log, standard output, figures of the kernel. Landlock says
    // which may be opened.
    &[SYS_read, SYS_readv, SYS_pread64, SYS_preadv, SYS_preadv2, SYS_write, SYS_writev, SYS_pwrite64, SYS_pwritev, SYS_lseek],
    &[SYS_openat, SYS_close, SYS_close_range, SYS_fcntl, SYS_dup, SYS_dup3, SYS_flock, SYS_getdents64, SYS_getcwd],
    // What of a store's file lies in the page cache.
    &[SYS_CACHESTAT],
    &[SYS_newfstatat, SYS_fstat, SYS_statx, SYS_fstatfs, SYS_statfs, SYS_readlinkat, SYS_faccessat, SYS_faccessat2],
    // Dumps: made, synced, named, truncated to what is whole, removed on request; late packets merged in.
    &[SYS_linkat, SYS_unlinkat, SYS_renameat2, SYS_ftruncate, SYS_fallocate, SYS_fsync, SYS_fdatasync, SYS_fchmod],
    &[SYS_copy_file_range, SYS_sendfile, SYS_splice, SYS_fadvise64, SYS_sync_file_range],
    // The store: folders of days. Its writes by io_uring: a ring that was made, restricted to writing and
    // syncing, before this list came into force; no new ones can be made or set up.
    &[SYS_mkdirat, SYS_io_uring_enter],
    // Memory: allocation, stacks of threads, machine code of filters, rings of sockets.
    &[SYS_mmap, SYS_munmap, SYS_mremap, SYS_mprotect, SYS_madvise, SYS_brk, SYS_mbind, SYS_set_mempolicy, SYS_get_mempolicy],
    // Threads: their begin and end (clone is below), waiting, the processors they run on.
    &[SYS_futex, SYS_set_robust_list, SYS_rseq, SYS_sched_yield, SYS_sched_getaffinity, SYS_sched_setaffinity, SYS_membarrier],
    &[SYS_gettid, SYS_getpid, SYS_exit, SYS_exit_group, SYS_getcpu, SYS_restart_syscall],
    // Signals: handlers and their end; tgkill is below.
    &[SYS_rt_sigaction, SYS_rt_sigprocmask, SYS_rt_sigreturn, SYS_rt_sigpending, SYS_sigaltstack],
    // A thread that works beside lowers its priority, also with disks (below); raising it needs a capability.
    &[SYS_getpriority, SYS_setpriority],
    // Time; of adjtimex only reading is left, since setting needs a capability.
    &[SYS_adjtimex],
    &[SYS_clock_gettime, SYS_clock_getres, SYS_clock_nanosleep, SYS_nanosleep, SYS_gettimeofday],
    // Sockets that were opened before: packets, news of interfaces, words to the service manager. New ones
    // are refused; spare packet sockets are bound when an interface comes.
    &[SYS_ppoll, SYS_epoll_create1, SYS_epoll_ctl, SYS_epoll_pwait, SYS_eventfd2, SYS_bind, SYS_getsockname, SYS_accept4],
    &[SYS_getsockopt, SYS_setsockopt, SYS_sendto, SYS_sendmsg, SYS_sendmmsg, SYS_recvfrom, SYS_recvmsg, SYS_recvmmsg, SYS_shutdown],
    // Who and where this is, what it may have: read, not changed.
    &[SYS_getuid, SYS_geteuid, SYS_getgid, SYS_getegid, SYS_getgroups, SYS_getppid, SYS_capget, SYS_uname, SYS_sysinfo],
    &[SYS_getrusage, SYS_times, SYS_getrandom],
];

/// `cachestat(2)`, the same on all architectures that this is built for: the crate has it for some.
pub const SYS_CACHESTAT: c_long = 451;

/// The older names that the C library uses on x86-64.
#[cfg(target_arch = "x86_64")]
const FREE_HERE: &[c_long] = &[SYS_poll, SYS_epoll_wait, SYS_readlink, SYS_access, SYS_unlink, SYS_time];
#[cfg(not(target_arch = "x86_64"))]
const FREE_HERE: &[c_long] = &[];

/// Allowed queries of a terminal, and of the interface behind a socket.
const REQUESTS: &[c_ulong] = &[
    TCGETS as c_ulong,
    TIOCGWINSZ as c_ulong,
    FIONREAD as c_ulong,
    FIONBIO as c_ulong,
    SIOCGIFNAME,
    SIOCGIFFLAGS,
    SIOCGIFMTU,
    SIOCGIFHWADDR,
    SIOCGIFINDEX,
    SIOCETHTOOL,
    SIOCGHWTSTAMP,
];
/// The first argument of `ioprio_set(2)` that names a thread.
const IOPRIO_WHO_PROCESS: u64 = 1;
/// Names of threads and of memory.
const PRCTL: &[c_int] = &[PR_SET_NAME, PR_GET_NAME, PR_SET_VMA];

/// One filter, ready for the kernel.
pub struct Filter(Vec<sock_filter>);

impl Filter {
    fn new(program: BpfProgram) -> Filter {
        Filter(
            program
                .iter()
                .map(|line| sock_filter { code: line.code, jt: line.jt, jf: line.jf, k: line.k })
                .collect(),
        )
    }

    /// Applies it to the calling thread, which must have given up the right to gain capabilities. For signal
    /// handlers.
    pub fn apply(&self) -> Result<(), i32> {
        let program = sock_fprog { len: self.0.len() as c_ushort, filter: self.0.as_ptr().cast_mut() };
        // Without the flag, kernels before 5.16 slow down each thread that has a filter, for the sake of
        // browsers.
        let flags = SECCOMP_FILTER_FLAG_SPEC_ALLOW;
        // SAFETY: the program and its lines outlive the call, and the kernel only reads them.
        checked(unsafe { syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &raw const program) })
    }
}

/// The two filters, in the order in which they are applied; `None` where the kernel has no seccomp.
pub fn filters() -> io::Result<Option<(Filter, Filter)>> {
    if !available() {
        return Ok(None);
    }
    rules().and_then(pair).map(Some).map_err(io::Error::other)
}

/// Calls, each with the arguments that it may have; without any: all.
pub type Rules = BTreeMap<c_long, Vec<SeccompRule>>;

/// Whether the kernel has seccomp.
pub fn available() -> bool {
    let refuse = SECCOMP_RET_ERRNO;
    // SAFETY: the number outlives the call, which only says whether a filter may use it.
    unsafe { syscall(SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 0, &raw const refuse) == 0 }
}

fn architecture() -> Result<TargetArch, BackendError> {
    std::env::consts::ARCH.try_into()
}

fn without_clone3() -> Result<BpfProgram, BackendError> {
    let rules = BTreeMap::from([(SYS_clone3, Vec::new())]);
    SeccompFilter::new(rules, SeccompAction::Allow, SeccompAction::Errno(ENOSYS as u32), architecture()?)?
        .try_into()
}

/// Calls with any arguments.
pub fn free<'a>(calls: impl Iterator<Item = &'a c_long>) -> Rules {
    calls.map(|&call| (call, Vec::new())).collect()
}

/// Threads, no processes; the end of a process that gives up; queries of a terminal.
pub fn add_threads_and_terminal(rules: &mut Rules) -> Result<(), BackendError> {
    let thread = CLONE_THREAD as u64;
    let own = std::process::id().into();
    rules.insert(SYS_clone3, Vec::new()); // for the other filter to answer
    rules.insert(SYS_clone, vec![with(0, SeccompCmpOp::MaskedEq(thread), thread)?]);
    rules.insert(SYS_tgkill, vec![with(0, SeccompCmpOp::Eq, own)?]); // abort, and tasks for all threads
    rules.insert(
        SYS_ioctl,
        REQUESTS.iter().map(|&request| with(1, SeccompCmpOp::Eq, request)).collect::<Result<_, _>>()?,
    );
    rules.insert(
        SYS_prctl,
        PRCTL.iter().map(|&what| with(0, SeccompCmpOp::Eq, what as u64)).collect::<Result<_, _>>()?,
    );
    // Limits are read, by pthread_getattr_np and the watch over memory; new ones would lie where the third
    // argument points to.
    let no_pointer = SeccompCondition::new(2, SeccompCmpArgLen::Qword, SeccompCmpOp::Eq, 0)?;
    rules.insert(SYS_prlimit64, vec![SeccompRule::new(vec![no_pointer])?]);
    Ok(())
}

/// Openings that have, of the flags that stand first in one of `kinds`, exactly those that stand second.
pub fn openings(
    kinds: impl Iterator<Item = (c_int, c_int)>,
) -> Result<(c_long, Vec<SeccompRule>), BackendError> {
    let rule = |(of, flags)| with(2, SeccompCmpOp::MaskedEq(of as u64), flags as u64);
    Ok((SYS_openat, kinds.map(rule).collect::<Result<_, _>>()?))
}

/// Both filters, with this list.
pub fn pair(rules: Rules) -> Result<(Filter, Filter), BackendError> {
    Ok((Filter::new(without_clone3()?), Filter::new(program(rules)?)))
}

fn rules() -> Result<Rules, BackendError> {
    let mut rules = free(FREE.iter().copied().flatten().chain(FREE_HERE));
    add_threads_and_terminal(&mut rules)?;
    for call in [SYS_ioprio_get, SYS_ioprio_set] {
        rules.insert(call, vec![of_calling_thread()?]);
    }
    Ok(rules)
}

fn program(rules: Rules) -> Result<BpfProgram, BackendError> {
    SeccompFilter::new(rules, SeccompAction::Errno(EPERM as u32), SeccompAction::Allow, architecture()?)?
        .try_into()
}

/// A rule for calls that speak of a process or thread: the calling one.
fn of_calling_thread() -> Result<SeccompRule, BackendError> {
    let is =
        |argument, value| SeccompCondition::new(argument, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, value);
    SeccompRule::new(vec![is(0, IOPRIO_WHO_PROCESS)?, is(1, 0)?])
}

/// A rule for one argument. Flags, requests and numbers have 32 bits; the kernel looks at no more.
fn with(argument: u8, operator: SeccompCmpOp, value: u64) -> Result<SeccompRule, BackendError> {
    SeccompRule::new(vec![SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operator, value)?])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_fits_the_kernel_s_bound() {
        let lines = program(rules().unwrap()).unwrap().len();
        assert!(lines < 4096 && lines > FREE.len(), "{lines}");
        assert!(without_clone3().unwrap().len() < 16);
    }
}
