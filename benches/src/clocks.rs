//! What the system knows of time: time that passes, and what the scheduler gives to a thread and takes from
//! it.

use anyhow::{Context, Result, ensure};
use std::fs::read_to_string;
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
    usage(libc::RUSAGE_THREAD).ru_nivcsw
}

/// Processor time of all children of this process whose end was waited for, in user and system mode.
pub fn processor_time_of_children() -> Duration {
    let usage = usage(libc::RUSAGE_CHILDREN);
    let span = |time: libc::timeval| {
        Duration::from_secs(time.tv_sec.unsigned_abs()) + Duration::from_micros(time.tv_usec.unsigned_abs())
    };
    span(usage.ru_utime) + span(usage.ru_stime)
}

fn usage(of: libc::c_int) -> libc::rusage {
    // SAFETY: all zeros are a usage.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: `usage` outlives the call.
    unsafe { libc::getrusage(of, &mut usage) };
    usage
}

/// What the host has taken of this guest's processors since it began; zero where the system doesn't say.
pub fn stolen() -> Duration {
    let stat = read_to_string("/proc/stat").unwrap_or_default();
    let ticks = stat.lines().next().and_then(|cpu| cpu.split_whitespace().nth(8)?.parse::<u64>().ok());
    Duration::from_millis(ticks.unwrap_or(0) * 10)
}

/// Time that all processors have been busy since the system began, in user and system mode and in
/// interrupts: neither idle, nor waiting for a disk, nor taken by the host.
///
/// # Errors
/// Where the system doesn't say.
pub fn busy() -> Result<Duration> {
    let stat = read_to_string("/proc/stat").context("/proc/stat")?;
    let ticks = busy_ticks(&stat).context("no times of processors in /proc/stat")?;
    // SAFETY: sysconf takes no pointers.
    let per_second = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    ensure!(per_second > 0, "the system doesn't say its clock ticks");
    Ok(Duration::from_secs_f64(ticks as f64 / per_second as f64))
}

/// Of `cpu user nice system idle iowait irq softirq steal ...`, the first line.
fn busy_ticks(stat: &str) -> Option<u64> {
    let words = stat.lines().next()?.strip_prefix("cpu ")?.split_whitespace();
    let times = words.map(|word| word.parse().ok()).collect::<Option<Vec<u64>>>()?;
    [0, 1, 2, 5, 6].iter().map(|&index| times.get(index)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn busy_is_neither_idle_nor_waiting_nor_stolen() {
        let stat = "cpu  1 20 300 4000 50000 600000 7000000 80000000 0 0\ncpu0 9 9 9 9 9 9 9 9 0 0\n";
        assert_eq!(busy_ticks(stat), Some(7_600_321));
        assert_eq!(busy_ticks("intr 1"), None);
        assert!(busy().unwrap() > Duration::ZERO);
    }

    #[test]
    fn children_have_used_what_their_ends_were_waited_for() {
        let before = processor_time_of_children();
        let words = ["-c", "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done"];
        assert!(std::process::Command::new("sh").args(words).status().unwrap().success());
        assert!(processor_time_of_children() > before);
    }
}
