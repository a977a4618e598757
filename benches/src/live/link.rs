//! What the kernel says of a link's end and of the processor's time.

use anyhow::{Context, Result, ensure};
use scope_testkit::lab::Namespace;
use std::fs::read_to_string;
use std::time::Duration;

/// Packets that `interface` of `namespace` has received while it was up.
///
/// # Errors
/// Where there is no such interface.
pub fn received(namespace: &Namespace, interface: &str) -> Result<u64> {
    let text = namespace.enter(|| read_to_string("/proc/thread-self/net/dev")).context("/proc/net/dev")?;
    let line = text.lines().find_map(|line| line.trim().strip_prefix(interface)?.strip_prefix(':'));
    line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok())
        .with_context(|| format!("no counters of {interface}"))
}

/// Whether a packet socket listens in `namespace`: to all protocols, and running.
pub fn is_heard(namespace: &Namespace) -> bool {
    listeners(namespace) > 0
}

/// How many packet sockets listen in `namespace`: to all protocols, and running.
pub fn listeners(namespace: &Namespace) -> usize {
    let text = namespace.enter(|| read_to_string("/proc/thread-self/net/packet")).unwrap_or_default();
    let listens = |line: &&str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        words.get(3) == Some(&"0003") && words.get(5) == Some(&"1")
    };
    text.lines().filter(listens).count()
}

/// Time that all cores have spent on soft interrupts, by `/proc/stat`, which counts in hundredths of a
/// second.
///
/// # Errors
/// Where the system doesn't say.
pub fn softirq() -> Result<Duration> {
    let text = read_to_string("/proc/stat").context("/proc/stat")?;
    let ticks: Option<u64> =
        text.lines().next().and_then(|line| line.split_whitespace().nth(7)?.parse().ok());
    // SAFETY: sysconf takes no pointers.
    let per_second = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    ensure!(per_second > 0, "the system doesn't say its clock ticks");
    Ok(Duration::from_secs_f64(ticks.context("no softirq time in /proc/stat")? as f64 / per_second as f64))
}

/// Processor time of all threads of a process, in user and system mode: `utime` and `stime`, in ns.
///
/// # Errors
/// Where there is no such process.
pub fn processor_time(pid: u32) -> Result<Duration> {
    let mut clock: libc::clockid_t = 0;
    // SAFETY: the number outlives the call.
    let found = unsafe { libc::clock_getcpuclockid(pid as i32, &mut clock) };
    ensure!(found == 0, "process {pid} has no clock: {}", std::io::Error::from_raw_os_error(found));
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the time outlives the call.
    let result = unsafe { libc::clock_gettime(clock, &mut time) };
    ensure!(result == 0, "the clock of process {pid}: {}", std::io::Error::last_os_error());
    Ok(Duration::new(time.tv_sec as u64, time.tv_nsec as u32))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn a_busy_process_has_used_processor_time() {
        let own = std::process::id();
        let before = processor_time(own).unwrap();
        let begun = Instant::now();
        let mut sum = 0u64;
        while begun.elapsed() < Duration::from_millis(50) {
            sum = std::hint::black_box(sum.wrapping_mul(3) + 1);
        }
        assert!(processor_time(own).unwrap() > before);
        assert!(softirq().unwrap() <= softirq().unwrap());
    }
}
