//! What the system knows of time: time that passes, and what the scheduler gives to a thread and takes from
//! it.

use std::time::Duration;

fn clock_ns(clock: libc::clockid_t) -> i64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the clock exists and `time` outlives the call.
    unsafe { libc::clock_gettime(clock, &mut time) };
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}

/// Time that passes.
pub fn monotonic_ns() -> i64 {
    clock_ns(libc::CLOCK_MONOTONIC)
}

/// Processor time of this thread.
pub fn cpu_ns() -> i64 {
    clock_ns(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// The time of the last tick: it moves on with each timer interrupt (250 a second as a rule), which comes to
/// all processors at once.
pub fn tick_ns() -> i64 {
    clock_ns(libc::CLOCK_MONOTONIC_COARSE)
}

/// How often this thread had to leave its processor to others so far.
pub fn preemptions() -> i64 {
    // SAFETY: all zeros are a usage.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: `usage` outlives the call.
    unsafe { libc::getrusage(libc::RUSAGE_THREAD, &mut usage) };
    usage.ru_nivcsw
}

/// What the host has taken of this guest's processors since it began; zero where the system doesn't say.
pub fn stolen() -> Duration {
    let stat = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    let ticks = stat.lines().next().and_then(|cpu| cpu.split_whitespace().nth(8)?.parse::<u64>().ok());
    Duration::from_millis(ticks.unwrap_or(0) * 10)
}
