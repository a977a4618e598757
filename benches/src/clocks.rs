//! What the system knows of time: time that passes, and what the scheduler gives to a thread and takes from
//! it.

use anyhow::{Context, Result, ensure};
use std::cell::Cell;
use std::fs::{File, read_to_string};
use std::os::unix::fs::FileExt;
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

/// How often this thread has gone to sleep by itself so far.
pub fn sleeps() -> i64 {
    usage(libc::RUSAGE_THREAD).ru_nvcsw
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

/// Where the host took so much meanwhile, what failed is no fault of what was measured.
const STOLEN_MAX: Duration = Duration::from_millis(50);
/// And is measured once more, so many times at most.
const REPEATS: u32 = 3;

/// Measures; again where that fails while the host of this guest had taken its processors.
///
/// # Errors
/// The last one.
pub fn undisturbed<T>(mut measure: impl FnMut() -> Result<T>) -> Result<T> {
    let mut repeats = 0;
    loop {
        let before = stolen();
        match measure() {
            Err(error) if stolen().saturating_sub(before) >= STOLEN_MAX && repeats < REPEATS => {
                eprintln!("the host took a processor: once more ({error:#})");
                repeats += 1;
            }
            outcome => return outcome,
        }
    }
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

/// How often a thread was put on a core, and how long it waited for one, as its schedstat says.
pub struct Runs(File);

impl Runs {
    /// Of the thread that calls.
    ///
    /// # Errors
    /// Where the system doesn't say.
    pub fn of_this_thread() -> Result<Runs, String> {
        let path = "/proc/thread-self/schedstat";
        File::open(path).map(Runs).map_err(|error| format!("{path}: {error}"))
    }

    /// Time that it waited for a core, ns, and how often it was put on one: changes with every preemption.
    pub fn count(&self) -> (u64, u64) {
        let mut bytes = [0; 64];
        let length = self.0.read_at(&mut bytes, 0).unwrap_or(0);
        let text = std::str::from_utf8(&bytes[..length]).unwrap_or("");
        let mut numbers = text.split_whitespace().skip(1).map(|word| word.parse().unwrap_or(0));
        (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
    }
}

/// What the host of a guest took of one processor, as `/proc/stat` says (`steal`).
pub struct Host {
    stat: File,
    line: String,
    /// What it had taken at the last look, and what was counted until then.
    last: Cell<(Duration, Duration)>,
}

impl Host {
    /// `/proc/stat` counts in these.
    const UNIT: Duration = Duration::from_millis(10);

    /// Of the processor with this number.
    ///
    /// # Errors
    /// Where the system doesn't say.
    pub fn of_processor(core: usize) -> Result<Host, String> {
        let path = "/proc/stat";
        let stat = File::open(path).map_err(|error| format!("{path}: {error}"))?;
        let host = Host { stat, line: format!("cpu{core} "), last: Cell::default() };
        host.last.set((host.stolen(), Duration::ZERO));
        Ok(host)
    }

    /// So much so far; each time that the count has moved on by a unit more, as it is rounded down.
    pub fn took(&self) -> Duration {
        let (before, counted) = self.last.get();
        let now = self.stolen();
        let counted = if now > before { counted + (now - before) + Host::UNIT } else { counted };
        self.last.set((now, counted));
        counted
    }

    fn stolen(&self) -> Duration {
        let mut bytes = [0; 4096];
        let length = self.stat.read_at(&mut bytes, 0).unwrap_or(0);
        let text = String::from_utf8_lossy(&bytes[..length]);
        let line = text.lines().find(|line| line.starts_with(&self.line));
        let units = line.and_then(|line| line.split_whitespace().nth(8)?.parse::<u32>().ok());
        Host::UNIT * units.unwrap_or(0)
    }
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
