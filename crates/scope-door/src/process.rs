//! What the kernel says of this process, as its metrics have it.

use std::fs;

/// Parts of a second in which the kernel tells processor time: 100 wherever this program runs. The system isn't asked: behind
/// the rights of a run it doesn't answer.
const TICKS_PER_S: f64 = 100.0;

/// Its figures now.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Process {
    /// Processor time, all threads together, seconds.
    pub cpu_s: f64,
    pub threads: f64,
    /// Memory that is resident, the ring included, bytes.
    pub resident_bytes: f64,
    pub virtual_bytes: f64,
    /// Since it began, seconds.
    pub age_s: f64,
}

impl Process {
    /// `None`: the kernel doesn't tell.
    pub(crate) fn now() -> Option<Process> {
        let read = |name: &str| fs::read_to_string(name).ok();
        Process::read(&read("/proc/self/stat")?, &read("/proc/self/status")?, &read("/proc/uptime")?)
    }

    /// `4711 (wirescope) S 1 ...`: the name may have any characters, the fields behind it are numbers.
    fn read(stat: &str, status: &str, uptime: &str) -> Option<Process> {
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        // The first of these is field 3 of proc(5).
        let ticks = |number: usize| Some(fields.get(number - 3)?.parse::<f64>().ok()? / TICKS_PER_S);
        let line = |key: &str| status.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
        let number = |key: &str| line(key)?.split_whitespace().next()?.parse::<f64>().ok();
        let uptime_s: f64 = uptime.split_whitespace().next()?.parse().ok()?;
        Some(Process {
            cpu_s: ticks(14)? + ticks(15)?,
            threads: number("Threads")?,
            resident_bytes: number("VmRSS")? * 1024.0,
            virtual_bytes: number("VmSize")? * 1024.0,
            age_s: (uptime_s - ticks(22)?).max(0.0),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_spaces_and_parentheses_shifts_nothing() {
        let stat =
            "7 (a) b (c) S 1 7 7 0 -1 4194304 9 0 0 0 250 50 0 0 20 0 12 0 3000 8192 3 18446744073709551615";
        let status = "Name:\ta) b (c\nVmSize:\t       8 kB\nVmRSS:\t      12 kB\nThreads:\t12\n";
        let expected = Process {
            cpu_s: 3.0,
            threads: 12.0,
            resident_bytes: 12_288.0,
            virtual_bytes: 8192.0,
            age_s: 70.25,
        };
        assert_eq!(Process::read(stat, status, "100.25 50.0\n"), Some(expected));
        assert_eq!(Process::read("7 (a) S 1", status, "100 5"), None);
    }

    #[test]
    fn the_kernel_tells() {
        let process = Process::now().unwrap();
        assert!(process.threads >= 1.0 && process.resident_bytes > 0.0, "{process:?}");
    }
}
