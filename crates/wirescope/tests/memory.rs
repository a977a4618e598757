//! The ring's memory as a user asks for it and is told of it: `--mlock`, `--numa`, and limits that leave no
//! room.

mod run;

use run::{Done, LIMIT, Place, Started, finish, is_root, skip, wait_until, wirescope};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

const MIB: u64 = 1 << 20;

/// A short run with a ring of 64 MiB, ready to be changed.
fn short_run(place: &Place, arguments: &[&str]) -> Command {
    let mut command =
        wirescope(&["run", "--source", "synth:rate=10k,packets=1000,pace=max", "--ring", "64MiB", "--out"]);
    command.arg(place.out()).args(arguments);
    command
}

fn run_with(arguments: &[&str]) -> (Place, Done) {
    let place = Place::new();
    let done = finish(short_run(&place, arguments));
    (place, done)
}

fn assert_refused(done: &Done, place: &Place, words: &[&str]) {
    assert_eq!(done.code(), Some(2), "{}", done.stderr);
    for word in words {
        assert!(done.stderr.contains(word), "'{word}' in: {}", done.stderr);
    }
    assert!(!done.stderr.contains("panicked"), "{}", done.stderr);
    assert!(place.out_names().is_empty(), "{:?}", place.out_names());
}

/// What the start line says of the memory.
fn told(done: &Done) -> &str {
    let line = done.stderr.lines().find_map(|line| line.strip_prefix("ring: ready; recording; memory: "));
    line.unwrap_or_else(|| panic!("a start line in: {}", done.stderr))
}

fn nodes() -> Vec<u32> {
    scope_machine::Machine::this().nodes()
}

#[test]
fn the_start_line_the_log_and_the_summary_say_which_memory_the_ring_has() {
    let (place, done) = run_with(&[]);
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    let kinds = ["huge pages from hugetlbfs", "transparent huge pages (", "normal 4 KiB pages"];
    assert!(kinds.iter().any(|kind| told(&done).contains(kind)), "{}", done.stderr);
    let log = std::fs::read_to_string(place.out().join("wirescope.jsonl")).expect("a log");
    let start: serde_json::Value = serde_json::from_str(log.lines().next().expect("a line")).expect("JSON");
    assert_eq!(start["memory"], told(&done), "{start}");
    let summary: Vec<&str> = done.stdout.lines().filter_map(|line| line.strip_prefix("memory    ")).collect();
    assert_eq!(summary, [told(&done)], "{}", done.stdout);
}

#[test]
fn locked_memory_is_told() {
    if !is_root() {
        return;
    }
    let (_place, done) = run_with(&["--mlock"]);
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    assert!(told(&done).starts_with("locked, "), "{}", done.stderr);
}

#[test]
fn memory_that_may_not_be_locked_is_refused_with_the_remedy() {
    let place = Place::new();
    let mut command = short_run(&place, &["--mlock"]);
    // SAFETY: between fork and exec only system calls are made, on a structure of its own.
    unsafe {
        command.pre_exec(|| {
            let limit = libc::rlimit { rlim_cur: 65_536, rlim_max: 65_536 };
            libc::setrlimit(libc::RLIMIT_MEMLOCK, &limit);
            // Root may lock what it likes, unless it can't have this capability (14: CAP_IPC_LOCK).
            libc::prctl(libc::PR_CAPBSET_DROP, 14, 0, 0, 0);
            Ok(())
        })
    };
    assert_refused(&finish(command), &place, &["locking", "64 KiB", "ulimit -l", "CAP_IPC_LOCK"]);
}

#[test]
fn the_node_asked_for_is_told() {
    let Some(node) = nodes().first().map(u32::to_string) else {
        return eprintln!("skipped: this kernel knows no NUMA nodes");
    };
    let (_place, done) = run_with(&["--numa", &node]);
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    assert!(told(&done).starts_with(&format!("on NUMA node {node}, ")), "{}", done.stderr);
}

#[test]
fn a_node_that_can_t_be_is_refused_with_those_that_can() {
    let known: Vec<String> = nodes().iter().map(u32::to_string).collect();
    let (place, done) = run_with(&["--numa", "999"]);
    assert_refused(&done, &place, &["--numa", "999", "there are:", &known.join(", ")]);
    for text in ["left", "-1", "0.5", ""] {
        let (place, done) = run_with(&[&format!("--numa={text}")]);
        assert_refused(&done, &place, &["--numa", &format!("'{text}'")]);
    }
}

/// A short run under a limit of the system.
fn limited(place: &Place, resource: libc::__rlimit_resource_t, bytes: u64) -> Command {
    let mut command = short_run(place, &[]);
    command.args(["--segment", "1MiB"]);
    // SAFETY: between fork and exec only a system call is made, on a structure of its own.
    unsafe {
        command.pre_exec(move || {
            libc::setrlimit(resource, &libc::rlimit { rlim_cur: bytes, rlim_max: bytes });
            Ok(())
        })
    };
    command
}

#[test]
fn a_limit_of_the_address_space_is_an_error_with_the_remedy() {
    let place = Place::new();
    let command = limited(&place, libc::RLIMIT_AS, 60 << 20);
    assert_refused(&finish(command), &place, &["ring of", "smaller --ring", "ulimit -v"]);
}

#[test]
fn a_limit_of_the_size_of_files_bounds_the_ring_and_is_named() {
    let place = Place::new();
    let command = limited(&place, libc::RLIMIT_FSIZE, 1 << 20);
    assert_refused(&finish(command), &place, &["ring of", "ulimit -f unlimited"]);
}

/// A control group with a limit of its memory; gone at the end.
struct Group {
    folder: PathBuf,
    limit: &'static str,
    used: &'static str,
}

impl Group {
    /// A group below this process's own (version 1) or below the root (version 2); says so where none can be
    /// made.
    fn new(limit_bytes: u64) -> Option<Group> {
        static COUNTER: AtomicU32 = AtomicU32::new(0);
        if !is_root() {
            return None;
        }
        let name =
            format!("wirescope-test-{}-{}", std::process::id(), COUNTER.fetch_add(1, Ordering::Relaxed));
        let own = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let own = own.lines().find_map(|line| line.split_once(":memory:")).map_or("", |(_, own)| own);
        let version_1 = Group {
            folder: PathBuf::from(format!("/sys/fs/cgroup/memory{own}/{name}")),
            limit: "memory.limit_in_bytes",
            used: "memory.usage_in_bytes",
        };
        let version_2 = Group {
            folder: PathBuf::from(format!("/sys/fs/cgroup/{name}")),
            limit: "memory.max",
            used: "memory.current",
        };
        for group in [version_1, version_2] {
            if std::fs::create_dir(&group.folder).is_ok() && group.set(limit_bytes) {
                return Some(group);
            }
        }
        skip("no control group with a limit of its memory can be made");
        None
    }

    fn set(&self, limit_bytes: u64) -> bool {
        std::fs::write(self.folder.join(self.limit), limit_bytes.to_string()).is_ok()
    }

    fn used(&self) -> u64 {
        let text = std::fs::read_to_string(self.folder.join(self.used)).expect("its use");
        text.trim().parse().expect("a number")
    }

    /// The command, to be run in this group.
    fn inside(&self, run: &Command) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", "echo $$ > \"$0\" && exec \"$@\""]).arg(self.folder.join("cgroup.procs"));
        command.arg(run.get_program()).args(run.get_args());
        command
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // A process that has just ended may still count as in it.
        let gone = || std::fs::remove_dir(&self.folder).is_ok() || !self.folder.exists();
        (0..100).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(10));
            gone()
        });
    }
}

#[test]
fn a_ring_that_its_control_group_can_t_hold_is_refused_and_one_that_fits_runs() {
    let Some(group) = Group::new(70 * MIB) else { return };
    let place = Place::new();
    let done = finish(group.inside(&short_run(&place, &[])));
    assert_refused(&done, &place, &["--ring", "64 MiB", "control group's memory.", "smaller --ring"]);
    assert!(group.set(100 * MIB));
    let done = finish(group.inside(&short_run(&place, &[])));
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    assert!(!done.stderr.contains("memory: only"), "{}", done.stderr);
}

#[test]
fn a_limit_that_is_lowered_while_a_run_goes_is_told_before_it_ends_the_run() {
    let Some(group) = Group::new(300 * MIB) else { return };
    let place = Place::new();
    let log = place.out().join("wirescope.jsonl");
    let text = || std::fs::read_to_string(&log).unwrap_or_default();
    let started = Started::new(group.inside(&place.command(&["--source", "synth:rate=1k"])));
    wait_until("the log's first line", || text().contains('\n'));
    assert!(group.set(group.used() + 6 * MIB), "the kernel takes a limit above what is used");
    wait_until("the warning", || text().contains("\"warning\""));
    started.signal(libc::SIGINT);
    let done = started.finish(LIMIT);
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    let said = done
        .stderr
        .lines()
        .find(|line| line.starts_with("memory: only "))
        .unwrap_or_else(|| panic!("{}", done.stderr));
    assert!(
        said.contains("KiB are left (the control group's memory.") && said.contains("smaller --ring"),
        "{said}"
    );
}

#[test]
fn a_signal_while_the_ring_is_made_resident_ends_the_run_in_good_order() {
    // A busy machine may have it all resident before this test, or the run's thread for signals, runs again.
    const ROUNDS: usize = 20;
    let in_time = || {
        let place = Place::new();
        let run = ["--ring", "512MiB", "--source", "synth:rate=10k"];
        let started = Started::new(place.command(&run));
        wait_until("the first pages", || started.shared_resident_bytes() > 32 * MIB);
        started.signal(libc::SIGINT);
        let done = started.finish(LIMIT);
        assert_eq!(done.code(), Some(0), "{}", done.stderr);
        done.summary().assert_adds_up();
        !done.stderr.contains("recording")
    };
    assert!((0..ROUNDS).any(|_| in_time()), "of {ROUNDS} runs each made all of its ring resident first");
}

/// What a control group shows of itself is shown to the run alone, in a mount name space of its own; no group
/// is made.
#[test]
fn a_control_group_that_leaves_too_little_is_refused_with_what_it_leaves() {
    if !is_root() || !Path::new("/sys/fs/cgroup").exists() {
        return;
    }
    let place = Place::new();
    const SHOW: &str = "set -e
        mount --make-rprivate /
        mount -t tmpfs none /sys/fs/cgroup
        mkdir /sys/fs/cgroup/memory
        for file in memory.max memory/memory.limit_in_bytes; do echo 50000000 > /sys/fs/cgroup/$file; done
        for file in memory.current memory/memory.usage_in_bytes; do echo 10000000 > /sys/fs/cgroup/$file; done
        exec \"$@\"";
    let run = short_run(&place, &[]);
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", SHOW, "sh"]).arg(run.get_program()).args(run.get_args());
    let done = finish(command);
    if done.stderr.contains("mount: ") || done.stderr.contains("unshare: ") {
        return skip(&format!("no mounts can be made here: {}", done.stderr));
    }
    assert_refused(
        &done,
        &place,
        &["--ring", "64 MiB", "38.1 MiB", "control group's memory.", "smaller --ring"],
    );
}

/// Runs `command` under a limit on the size of files, bytes.
fn with_file_limit(mut command: Command, bytes: u64) -> Command {
    // SAFETY: only async-signal-safe calls between fork and exec.
    unsafe {
        command.pre_exec(move || {
            let limit = libc::rlimit { rlim_cur: bytes, rlim_max: bytes };
            match libc::setrlimit(libc::RLIMIT_FSIZE, &limit) {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            }
        })
    };
    command
}

#[test]
fn a_limit_on_the_size_of_files_is_told_and_kills_no_run() {
    let place = Place::new();
    let done = finish(with_file_limit(short_run(&place, &[]), MIB));
    assert!(done.code().is_some_and(|code| code != 0), "{:?} {}", done.code(), done.stderr);
    assert!(done.stderr.contains("File too large"), "{}", done.stderr);
    assert!(!done.stderr.contains("panicked"), "{}", done.stderr);
}
