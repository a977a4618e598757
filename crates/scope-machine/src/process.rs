//! Processes as `/proc` shows them.

/// When a process began, in ticks since the machine started: with its number it names one process for good.
/// `pid` may be `self`.
pub fn process_began(pid: &str) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // Behind the name, which may hold anything, the 20th word.
    stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
}
