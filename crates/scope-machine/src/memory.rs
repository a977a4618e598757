//! What the machine has: free memory, control group limits, reserved huge pages, NUMA nodes.

use std::path::{Path, PathBuf};

/// NUMA nodes that can be named.
pub const NODES_MAX: u32 = 1024;
/// Limits of a control group from here on mean "none".
const GROUP_UNLIMITED: u64 = 1 << 60;

/// Reserved huge pages of one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HugePool {
    /// Bytes of one page.
    pub page_bytes: u64,
    /// Pages that are neither in use nor promised.
    pub free: u64,
}

/// The machine as its pseudo files show it; tests give it a folder of their own.
#[derive(Clone, Debug)]
pub struct Machine {
    root: PathBuf,
}

/// A kind of control group: where it is mounted and what its files are called.
struct GroupKind {
    file_system: &'static str,
    /// At the first the kernel ends processes, at the second it slows them down until they hardly move.
    limits: &'static [&'static str],
    used: &'static str,
    /// Lines of `memory.stat` that count file pages, which the kernel gives up before it refuses memory.
    reclaimable: [&'static str; 2],
}

const GROUP_KINDS: [GroupKind; 2] = [
    GroupKind {
        file_system: "cgroup2",
        limits: &["memory.max", "memory.high"],
        used: "memory.current",
        reclaimable: ["inactive_file", "active_file"],
    },
    GroupKind {
        file_system: "cgroup",
        limits: &["memory.limit_in_bytes"],
        used: "memory.usage_in_bytes",
        reclaimable: ["total_inactive_file", "total_active_file"],
    },
];

impl Machine {
    /// The machine that this process runs on.
    pub fn this() -> Machine {
        Machine { root: PathBuf::from("/") }
    }

    /// A machine whose `proc` and `sys` lie under `root`.
    pub fn under(root: &Path) -> Machine {
        Machine { root: root.to_path_buf() }
    }

    /// Bytes of ordinary memory that this process could still have, and the limit that says so: the
    /// machine's, a control group's, or that of NUMA node `node` where memory is to come from there.
    pub fn available(&self, node: Option<u32>) -> (u64, String) {
        let machine = self.kib_line("proc/meminfo", "MemAvailable:").unwrap_or(u64::MAX);
        let mut least = (machine, "MemAvailable of this machine".to_string());
        let group =
            self.group_available().map(|(bytes, limit)| (bytes, format!("the control group's {limit}")));
        let node = node
            .and_then(|node| Some((self.node_available(node)?, format!("free memory of NUMA node {node}"))));
        for other in [group, node].into_iter().flatten() {
            if other.0 < least.0 {
                least = other;
            }
        }
        least
    }

    /// Whether pages can be swapped out at all.
    pub fn has_swap(&self) -> bool {
        self.kib_line("proc/meminfo", "SwapTotal:").is_some_and(|bytes| bytes > 0)
    }

    /// NUMA nodes that have memory, ascending.
    pub fn nodes(&self) -> Vec<u32> {
        let text = self.read("sys/devices/system/node/has_memory").unwrap_or_default();
        let mut nodes = Vec::new();
        for part in text.trim().split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            if let (Ok(first), Ok(last)) = (first.parse::<u32>(), last.parse::<u32>()) {
                nodes.extend((first..=last).take(NODES_MAX as usize));
            }
        }
        nodes
    }

    /// Pools of reserved huge pages (of `node`, where one is given), largest pages first.
    pub fn huge_pools(&self, node: Option<u32>) -> Vec<HugePool> {
        let folder = match node {
            Some(node) => format!("sys/devices/system/node/node{node}/hugepages"),
            None => "sys/kernel/mm/hugepages".to_string(),
        };
        let Ok(entries) = std::fs::read_dir(self.root.join(&folder)) else { return Vec::new() };
        let pool = |entry: std::fs::DirEntry| {
            let name = entry.file_name().into_string().ok()?;
            let kib: u64 = name.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse().ok()?;
            let free = self.number(&format!("{folder}/{name}/free_hugepages"))?;
            // Promised to mappings that haven't touched them yet; only known for all nodes together.
            let promised =
                self.number(&format!("sys/kernel/mm/hugepages/{name}/resv_hugepages")).unwrap_or(0);
            Some(HugePool { page_bytes: kib * 1024, free: free.saturating_sub(promised) })
        };
        let mut pools: Vec<HugePool> = entries.flatten().filter_map(pool).collect();
        pools.sort_by_key(|pool| std::cmp::Reverse(pool.page_bytes));
        pools
    }

    fn read(&self, path: &str) -> Option<String> {
        std::fs::read_to_string(self.root.join(path)).ok()
    }

    fn number(&self, path: &str) -> Option<u64> {
        self.read(path)?.trim().parse().ok()
    }

    /// Bytes from a line such as `MemFree:  123 kB`; what stands before the name doesn't matter.
    fn kib_line(&self, path: &str, name: &str) -> Option<u64> {
        let text = self.read(path)?;
        text.lines().find_map(|line| kib_after(line, name))
    }

    /// What node `node` could give: free pages, and those of files, which the kernel gives up.
    fn node_available(&self, node: u32) -> Option<u64> {
        let path = format!("sys/devices/system/node/node{node}/meminfo");
        let line = |name| self.kib_line(&path, name);
        let of_files = ["Active(file):", "Inactive(file):"].into_iter().filter_map(line).sum::<u64>();
        Some(line("MemFree:")? + of_files)
    }

    /// What this process's control groups leave, and the file that says so: the tightest of them and their
    /// parents.
    fn group_available(&self) -> Option<(u64, &'static str)> {
        let own = self.read("proc/self/cgroup")?;
        let mounts = self.read("proc/self/mountinfo")?;
        let of_kind = |kind: &'static GroupKind| {
            let group = group_of(&own, kind)?;
            let (top, below) = mounts.lines().find_map(|line| mounted(line, kind, &group))?;
            let left = |limit: &&'static str| Some((self.tightest(&top, &below, kind, limit)?, *limit));
            kind.limits.iter().filter_map(left).min()
        };
        GROUP_KINDS.iter().filter_map(of_kind).min()
    }

    /// Bytes left in the group `below` the mount point `top`, or in one of its parents if that leaves less.
    fn tightest(&self, top: &Path, below: &Path, kind: &GroupKind, limit: &str) -> Option<u64> {
        let top = self.root.join(top.strip_prefix("/").unwrap_or(top));
        below.ancestors().filter_map(|group| left_in(&top.join(group), kind, limit)).min()
    }
}

/// Bytes that one group leaves below `limit`; `None` where it has no such limit.
fn left_in(folder: &Path, kind: &GroupKind, limit: &str) -> Option<u64> {
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).ok();
    let number = |name: &str| read(name)?.trim().parse::<u64>().ok();
    let limit = number(limit).filter(|&limit| limit < GROUP_UNLIMITED)?;
    let stat = read("memory.stat").unwrap_or_default();
    let of_files = stat
        .lines()
        .filter_map(|line| line.split_once(' '))
        .filter(|(name, _)| kind.reclaimable.contains(name));
    let reclaimable: u64 = of_files.filter_map(|(_, bytes)| bytes.trim().parse::<u64>().ok()).sum();
    Some(limit.saturating_sub(number(kind.used)?.saturating_sub(reclaimable)))
}

/// This process's group from `/proc/self/cgroup`: `0::/path` in version 2, `4:memory:/path` in version 1.
fn group_of(own: &str, kind: &GroupKind) -> Option<PathBuf> {
    own.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, path) = (fields.next()?, fields.next()?);
        let matches = match kind.file_system {
            "cgroup2" => controllers.is_empty(),
            _ => controllers.split(',').any(|controller| controller == "memory"),
        };
        matches.then(|| PathBuf::from(path))
    })
}

/// Where a line of `/proc/self/mountinfo` mounts this kind of group, and where below lies `group`. In a
/// container without a name space of its own for groups the mount shows only the container's: then that is
/// the group.
fn mounted(line: &str, kind: &GroupKind, group: &Path) -> Option<(PathBuf, PathBuf)> {
    let (before, after) = line.split_once(" - ")?;
    let mut after = after.split(' ');
    let (file_system, options) = (after.next()?, after.nth(1)?);
    let right = file_system == kind.file_system
        && (file_system == "cgroup2" || options.split(',').any(|o| o == "memory"));
    let mut before = before.split(' ').skip(3);
    let (root, top) = (before.next()?, before.next()?);
    let below = group.strip_prefix(root).map(Path::to_path_buf).unwrap_or_default();
    right.then(|| (PathBuf::from(top), below))
}

/// Bytes behind `name` in a line that counts in kB.
fn kib_after(line: &str, name: &str) -> Option<u64> {
    let mut words = line.split_whitespace().skip_while(|word| *word != name);
    words.nth(1)?.parse::<u64>().ok().map(|kib| kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder that looks like a machine; gone at the end.
    struct Fake(PathBuf);

    impl Fake {
        fn new(name: &str, files: &[(&str, &str)]) -> Fake {
            let root = std::env::temp_dir().join(format!("wirescope-machine-{name}-{}", std::process::id()));
            for (path, text) in files {
                let path = root.join(path);
                std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
                std::fs::write(path, text).expect("a file");
            }
            Fake(root)
        }

        fn available(&self, node: Option<u32>) -> (u64, String) {
            Machine::under(&self.0).available(node)
        }
    }

    impl Drop for Fake {
        fn drop(&mut self) {
            drop(std::fs::remove_dir_all(&self.0));
        }
    }

    const V2: &str = "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n";
    const V1: &str = "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n";
    const MEMINFO: (&str, &str) = ("proc/meminfo", "MemTotal: 2000 kB\nMemAvailable:    1000 kB\n");

    #[test]
    fn without_a_group_the_machine_s_own_figure_counts() {
        let fake = Fake::new("plain", &[MEMINFO]);
        assert_eq!(fake.available(None), (1_024_000, "MemAvailable of this machine".to_string()));
    }

    #[test]
    fn the_tightest_group_of_version_2_counts_with_its_parents_and_file_pages_are_free() {
        let fake = Fake::new(
            "v2",
            &[
                MEMINFO,
                ("proc/self/cgroup", "1:name=systemd:/else\n0::/outer/inner\n"),
                ("proc/self/mountinfo", V2),
                ("sys/fs/cgroup/outer/inner/memory.max", "max\n"),
                ("sys/fs/cgroup/outer/inner/memory.current", "5\n"),
                ("sys/fs/cgroup/outer/memory.max", "500000\n"),
                ("sys/fs/cgroup/outer/memory.current", "450000\n"),
                (
                    "sys/fs/cgroup/outer/memory.stat",
                    "anon 1\ninactive_file 200000\nactive_file 100000\nfile 7\n",
                ),
            ],
        );
        assert_eq!(fake.available(None), (350_000, "the control group's memory.max".to_string()));
    }

    #[test]
    fn a_bound_from_which_on_a_group_is_slowed_down_counts_like_a_limit() {
        let fake = Fake::new(
            "high",
            &[
                MEMINFO,
                ("proc/self/cgroup", "0::/slow\n"),
                ("proc/self/mountinfo", V2),
                ("sys/fs/cgroup/slow/memory.max", "500000\n"),
                ("sys/fs/cgroup/slow/memory.high", "400000\n"),
                ("sys/fs/cgroup/slow/memory.current", "100000\n"),
            ],
        );
        assert_eq!(fake.available(None), (300_000, "the control group's memory.high".to_string()));
    }

    #[test]
    fn a_group_of_version_1_counts_too() {
        let fake = Fake::new(
            "v1",
            &[
                MEMINFO,
                ("proc/self/cgroup", "4:cpu,memory:/box\n0::/\n"),
                ("proc/self/mountinfo", &format!("{V2}{V1}")),
                ("sys/fs/cgroup/memory/box/memory.limit_in_bytes", "300000\n"),
                ("sys/fs/cgroup/memory/box/memory.usage_in_bytes", "100000\n"),
                ("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"),
                ("sys/fs/cgroup/memory/memory.usage_in_bytes", "9000000\n"),
            ],
        );
        assert_eq!(fake.available(None), (200_000, "the control group's memory.limit_in_bytes".to_string()));
    }

    #[test]
    fn in_a_container_that_sees_only_its_own_group_that_one_counts() {
        let mount = "30 23 0:26 /docker/abc /sys/fs/cgroup ro,nosuid - cgroup2 cgroup rw\n";
        for own in ["0::/docker/abc\n", "0::/../else\n"] {
            let fake = Fake::new(
                "container",
                &[
                    MEMINFO,
                    ("proc/self/cgroup", own),
                    ("proc/self/mountinfo", mount),
                    ("sys/fs/cgroup/memory.max", "400000\n"),
                    ("sys/fs/cgroup/memory.current", "500000\n"),
                ],
            );
            assert_eq!(fake.available(None).0, 0);
        }
    }

    #[test]
    fn a_node_with_less_than_the_machine_is_the_limit_of_what_comes_from_there() {
        let text = "Node 1 MemTotal: 900 kB\nNode 1 MemFree: 300 kB\nNode 1 Active(file): 20 kB\nNode 1 \
            Inactive(file): 80 kB\n";
        let fake = Fake::new("node", &[MEMINFO, ("sys/devices/system/node/node1/meminfo", text)]);
        assert_eq!(fake.available(Some(1)), (400 * 1024, "free memory of NUMA node 1".to_string()));
        assert_eq!(fake.available(Some(0)).0, 1_024_000);
    }

    #[test]
    fn nodes_are_read_from_lists_and_ranges() {
        for (text, nodes) in
            [("0\n", vec![0]), ("0-2,5\n", vec![0, 1, 2, 5]), ("", vec![]), ("what\n", vec![])]
        {
            let fake = Fake::new("nodes", &[("sys/devices/system/node/has_memory", text)]);
            assert_eq!(Machine::under(&fake.0).nodes(), nodes, "{text}");
        }
    }

    #[test]
    fn pools_are_told_largest_pages_first_less_what_is_promised() {
        let fake = Fake::new(
            "pools",
            &[
                ("sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", "100\n"),
                ("sys/kernel/mm/hugepages/hugepages-2048kB/resv_hugepages", "30\n"),
                ("sys/kernel/mm/hugepages/hugepages-1048576kB/free_hugepages", "2\n"),
                ("sys/devices/system/node/node1/hugepages/hugepages-2048kB/free_hugepages", "40\n"),
            ],
        );
        let machine = Machine::under(&fake.0);
        let of = |page_bytes, free| HugePool { page_bytes, free };
        assert_eq!(machine.huge_pools(None), [of(1 << 30, 2), of(2 << 20, 70)]);
        assert_eq!(machine.huge_pools(Some(1)), [of(2 << 20, 10)]);
        assert_eq!(machine.huge_pools(Some(7)), []);
    }
}
