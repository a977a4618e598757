//! What the run's control groups allow it, in the kernel's own figures: how often their processor time was
//! used up, and how many threads they may have.
//!
//! ```text
//! /proc/self/cgroup ─► this group and each one above it ─► cpu.stat: nr_throttled, throttled_usec (v1: throttled_time, ns)
//! ```
//! A quota holds for all groups below it, so the sums are over all of them. Files are opened once, before
//! rights are given up.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Where control groups are found.
const GROUPS: &str = "/sys/fs/cgroup";
/// Groups above each other that are looked at.
const DEPTH_MAX: usize = 16;
/// Bytes of such a file that are read.
const STAT_BYTES_MAX: usize = 4096;

/// Since the run began.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Throttled {
    /// Periods in which a group had no time left.
    pub periods: u64,
    /// Seconds that its threads were kept waiting for that; of several processors the sum.
    pub seconds: f64,
}

/// Reads them.
pub struct Throttle {
    files: Vec<File>,
    begin: Throttled,
    last: Throttled,
}

impl Throttle {
    /// Of this process, from now on.
    pub fn begin() -> Throttle {
        let text = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        Throttle::of(
            group_files(&text, Path::new(GROUPS), "cpu", "cpu.stat")
                .iter()
                .filter_map(|path| File::open(path).ok())
                .collect(),
        )
    }

    fn of(files: Vec<File>) -> Throttle {
        let begin = sum(&files);
        Throttle { files, begin, last: Throttled::default() }
    }

    /// Since the run began, and the seconds since the last look; `None` where no group has a quota that the
    /// kernel lists.
    pub fn look(&mut self) -> Option<(Throttled, f64)> {
        if self.files.is_empty() {
            return None;
        }
        let (now, begin) = (sum(&self.files), self.begin);
        let since = Throttled {
            periods: now.periods.saturating_sub(begin.periods),
            seconds: (now.seconds - begin.seconds).max(0.0),
        };
        let lately_s = (since.seconds - self.last.seconds).max(0.0);
        self.last = since;
        Some((since, lately_s))
    }
}

/// Most threads and processes that this process's groups may have together; `None`: no group bounds them.
pub fn threads_max() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let files = group_files(&text, Path::new(GROUPS), "pids", "pids.max");
    files.iter().filter_map(|path| std::fs::read_to_string(path).ok()?.trim().parse().ok()).min()
}

/// The files called `name` of a process's groups for `controller`, its own first. Some of them may not be
/// there.
pub fn group_files(cgroup: &str, root: &Path, controller: &str, name: &str) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for line in cgroup.lines() {
        // NUMBER:CONTROLLERS:PATH; of v2 there are no controllers.
        let mut parts = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(path)) = (parts.next(), parts.next(), parts.next()) else {
            continue;
        };
        let mount = match controllers {
            "" => root.to_path_buf(),
            _ if !controllers.contains('/') && controllers.split(',').any(|known| known == controller) => {
                root.join(controllers)
            }
            _ => continue,
        };
        // In a name space of its own a group may stand above what can be seen.
        let group = Path::new(path.trim_start_matches('/'));
        if group.components().any(|part| part.as_os_str() == "..") {
            continue;
        }
        files.extend(group.ancestors().take(DEPTH_MAX).map(|group| mount.join(group).join(name)));
    }
    files
}

fn sum(files: &[File]) -> Throttled {
    files.iter().fold(Throttled::default(), |sum, file| {
        let mut bytes = [0; STAT_BYTES_MAX];
        let len = file.read_at(&mut bytes, 0).unwrap_or(0);
        let one = parse(std::str::from_utf8(&bytes[..len]).unwrap_or(""));
        Throttled { periods: sum.periods.saturating_add(one.periods), seconds: sum.seconds + one.seconds }
    })
}

/// What one `cpu.stat` says, of both versions; what it lacks is 0.
pub fn parse(stat: &str) -> Throttled {
    let number = |name: &str| {
        let line = stat.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.and_then(|number| number.trim().parse::<u64>().ok())
    };
    let seconds = match (number("throttled_usec"), number("throttled_time")) {
        (Some(us), _) => us as f64 / 1e6,
        (None, Some(ns)) => ns as f64 / 1e9,
        (None, None) => 0.0,
    };
    Throttled { periods: number("nr_throttled").unwrap_or(0), seconds }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_and_all_above_it_are_looked_at() {
        let paths = |text: &str| -> Vec<String> {
            group_files(text, Path::new("/g"), "cpu", "cpu.stat")
                .iter()
                .map(|path| path.to_string_lossy().into_owned())
                .collect()
        };
        assert_eq!(
            paths("0::/a.slice/b.service\n"),
            ["/g/a.slice/b.service/cpu.stat", "/g/a.slice/cpu.stat", "/g/cpu.stat"]
        );
        assert_eq!(paths("0::/"), ["/g/cpu.stat"]);
        assert_eq!(
            paths("4:memory:/x\n3:cpu,cpuacct:/x\n"),
            ["/g/cpu,cpuacct/x/cpu.stat", "/g/cpu,cpuacct/cpu.stat"]
        );
        assert_eq!(paths("0::/../other\nrubbish\n3:/etc,cpu:/x\n"), [""; 0]);
    }

    #[test]
    fn figures_count_from_the_run_s_begin_in_both_versions() {
        let file = tempfile::tempfile().unwrap();
        let write = |text: &str| {
            file.set_len(0).unwrap();
            file.write_at(text.as_bytes(), 0).unwrap();
        };
        write("usage_usec 9\nnr_periods 50\nnr_throttled 10\nthrottled_usec 500000\n");
        let mut throttle = Throttle::of(vec![]);
        assert_eq!(throttle.look(), None);
        assert_eq!(
            parse("nr_throttled 3\nthrottled_time 2500000000\n"),
            Throttled { periods: 3, seconds: 2.5 }
        );
        throttle = Throttle::of(vec![file.try_clone().unwrap()]);
        write("usage_usec 9\nnr_periods 90\nnr_throttled 14\nthrottled_usec 900000\n");
        let (since, lately_s) = throttle.look().unwrap();
        assert_eq!((since.periods, (since.seconds * 10.0).round(), (lately_s * 10.0).round()), (4, 4.0, 4.0));
        assert_eq!(throttle.look().unwrap().1, 0.0, "nothing since the last look");
    }
}
