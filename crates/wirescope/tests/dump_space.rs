//! Room for dumps: the budget of a folder, free space that is kept, and folders that fill, vanish or may not
//! be written to.

mod run;

use run::{Done, Place, Started, is_finished_dump, is_root, wait_until};
use scope_testkit::oracle;
use serde_json::Value;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const MIB: u64 = 1 << 20;
/// Half a second of this is a dump of 2.5 MiB.
const TRAFFIC: &str = "synth:rate=5k,size=1000,flows=100,seed=1";
const DUMP_BYTES: std::ops::Range<u64> = 2 * MIB..3 * MIB;

/// A run on [`TRAFFIC`] that makes a dump of the last half second whenever it is told to.
struct Scope {
    started: Started,
    out: PathBuf,
}

impl Scope {
    fn new(place: &Place, more: &[&str]) -> Scope {
        let mut arguments = vec!["--source", TRAFFIC, "--before", "500ms"];
        arguments.extend(more);
        let starts = || events(&place.out()).iter().filter(|line| line["event"] == "start").count();
        let before = starts();
        let scope = Scope { started: Started::new(place.command(&arguments)), out: place.out() };
        wait_until("the start", || starts() > before); // earlier runs have theirs in the same log
        std::thread::sleep(Duration::from_millis(1000)); // more than a dump's past
        scope
    }

    fn events(&self) -> Vec<Value> {
        events(&self.out)
    }

    /// Events of a kind so far.
    fn log(&self, event: &str) -> usize {
        self.events().iter().filter(|line| line["event"] == event).count()
    }

    /// Fires and waits for the dump.
    fn dump(&self) {
        let before = self.log("dump");
        self.started.signal(libc::SIGUSR1);
        wait_until("the dump", || self.log("dump") > before);
    }

    /// Fires and waits until the log says that there is no dump.
    fn refused(&self) {
        let refused = || self.events().iter().filter(|line| line["verdict"] == "no_space").count();
        let before = refused();
        self.started.signal(libc::SIGUSR1);
        wait_until("the refusal", || refused() > before);
    }

    fn alarms(&self, state: &str) -> usize {
        self.events().iter().filter(|line| line["event"] == "alarm" && line["state"] == state).count()
    }

    fn stop(self) -> Done {
        self.started.signal(libc::SIGINT);
        self.started.finish(run::LIMIT)
    }
}

fn events(folder: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(folder.join("wirescope.jsonl")).unwrap_or_default();
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

fn dumps(folder: &Path) -> Vec<PathBuf> {
    run::names(folder)
        .into_iter()
        .filter(|name| is_finished_dump(name))
        .map(|name| folder.join(name))
        .collect()
}

fn bytes(paths: &[PathBuf]) -> u64 {
    paths.iter().map(|path| path.metadata().unwrap().len()).sum()
}

#[test]
fn beyond_the_budget_dumps_are_refused_counted_and_alarmed_until_there_is_room() {
    let place = Place::new();
    let scope = Scope::new(&place, &["--dump-budget", "5632KiB"]);
    scope.dump();
    scope.dump();
    wait_until("the alarm", || scope.alarms("raised") == 1);
    scope.refused();
    scope.refused();
    let made = dumps(&place.out());
    assert_eq!(made.len(), 2, "nothing is deleted by itself");
    assert!(
        made.iter().all(|path| DUMP_BYTES.contains(&bytes(std::slice::from_ref(path)))),
        "{}",
        bytes(&made)
    );
    std::fs::remove_file(&made[0]).unwrap();
    wait_until("room", || scope.alarms("cleared") == 1);
    scope.dump();
    let done = scope.stop();
    assert_eq!(done.code(), Some(1), "dumps that were promised weren't made: {}", done.stderr);
    let summary = done.summary();
    summary.assert_adds_up();
    let hits = summary.hits["manual"];
    assert_eq!((hits.fired, hits.no_space, hits.sum()), (3, 2, 5));
    assert!(summary.dumps.iter().all(|dump| dump.lost_nothing()), "{summary:?}");
    // The third dump fills it again, so the warning comes once per change of state.
    let warnings = done.stderr.lines().filter(|line| line.starts_with("no space for dumps")).count();
    assert_eq!(warnings, 2, "{}", done.stderr);
    // Of 5.5 MiB there is something left: why that is not enough is said, and at the end what helps.
    let warning = done.stderr.lines().find(|line| line.starts_with("no space for dumps")).unwrap();
    assert!(warning.contains("of the 5.5 MiB of --dump-budget; a new dump needs 1.0 MiB more"), "{warning}");
    let failure = done.stderr.lines().find(|line| line.contains("2 hits started no dump")).unwrap();
    for remedy in ["move", "raise --dump-budget", "--dump-rotate"] {
        assert!(failure.contains(remedy) && !failure.contains("--dump-min-free"), "{failure}");
    }
    let whole: Value = serde_json::from_str(&done.stdout).unwrap();
    assert_eq!(whole["dump_space"]["budget"], 5632 << 10);
    let blocks = |path: &PathBuf| path.metadata().unwrap().blocks() * 512;
    assert_eq!(whole["dump_space"]["used"], dumps(&place.out()).iter().map(blocks).sum::<u64>());
    assert!(whole["failures"].to_string().contains("2 hits started no dump"), "{whole}");
}

#[test]
fn dumps_of_earlier_runs_count() {
    let place = Place::new();
    let scope = Scope::new(&place, &[]);
    scope.dump();
    assert_eq!(scope.stop().code(), Some(0));
    let scope = Scope::new(&place, &["--dump-budget", "3MiB"]);
    assert_eq!(scope.alarms("raised"), 1, "from the start");
    scope.refused();
    assert_eq!(scope.stop().code(), Some(1));
    assert_eq!(dumps(&place.out()).len(), 1);
}

#[test]
fn a_dump_that_meets_the_bound_while_it_is_written_is_whole_up_to_there_and_says_so() {
    let place = Place::new();
    let scope = Scope::new(&place, &["--dump-budget", "2MiB"]);
    scope.dump();
    let done = scope.stop();
    assert_eq!(done.code(), Some(1), "{}", done.stderr);
    let summary = done.summary();
    summary.assert_adds_up();
    let dump = summary.only_dump();
    assert!(!dump.complete && dump.lost_max > 0 && dump.packets > 0, "{dump:?}");
    assert!(done.stderr.contains("--dump-budget"), "{}", done.stderr);
    let held = oracle::read(&dump.path).unwrap().capture.packets.len() as u64;
    assert_eq!(held, dump.packets);
    assert!((2300..2700).contains(&(held + dump.lost_max)), "half a second of 5000 a second: {dump:?}");
    assert!(dump.path.metadata().unwrap().len() <= 2 * MIB);
    oracle::opens_cleanly(&dump.path).unwrap();
}

#[test]
fn a_dump_that_is_larger_than_the_budget_takes_all_of_it_however_it_is_written() {
    const BUDGET: u64 = 3 * MIB;
    for format in ["pcapng", "pcap", "pcapng", "pcap"] {
        let place = Place::new();
        let traffic = [
            "--source",
            "synth:rate=10k,size=1000,time=1s,trigger-at=500ms",
            "--trigger",
            "udp port 60000",
            "--dump",
            "",
        ];
        let more = ["--before", "5", "--after", "5", "--dump-budget", "3MiB", "--dump-format", format];
        let done = place.run(&[&traffic[..], &more].concat());
        assert_eq!(done.code(), Some(1), "{}", done.stderr);
        let summary = done.summary();
        let dump = summary.only_dump();
        let beside = dump.path.with_extension("txt");
        let facts = if format == "pcap" { std::fs::read_to_string(&beside).unwrap() } else { String::new() };
        assert!(format == "pcapng" || facts.contains("disk"), "{facts}");
        let size = dump.path.metadata().unwrap().len() + facts.len() as u64;
        assert!((BUDGET - MIB / 4..=BUDGET).contains(&size), "{size} bytes: {dump:?}");
        assert_eq!(oracle::read(&dump.path).unwrap().capture.packets.len() as u64, dump.packets);
    }
}

#[test]
fn rotation_deletes_the_oldest_dumps_and_nothing_else() {
    let place = Place::new();
    let foreign = place.out().join("2020-11-20T20-31-05.123456789Z_other_0001.pcapng");
    std::fs::write(&foreign, vec![7; 100_000]).unwrap();
    std::os::unix::fs::symlink(
        "/etc/hostname",
        place.out().join("2020-11-20T20-31-05.123456789Z_link_0001.pcapng"),
    )
    .unwrap();
    let scope = Scope::new(&place, &[]);
    scope.dump();
    assert_eq!(scope.stop().code(), Some(0));
    let is_ours = |path: &&PathBuf| !path.to_string_lossy().contains("/2020-");
    let first: Vec<PathBuf> = dumps(&place.out()).iter().filter(is_ours).cloned().collect();
    assert_eq!(first.len(), 1);
    let scope = Scope::new(&place, &["--dump-budget", "5632KiB", "--dump-rotate"]);
    (0..3).for_each(|_| scope.dump());
    let deleted: Vec<Value> = scope.events().into_iter().filter(|line| line["event"] == "deleted").collect();
    let done = scope.stop();
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    let summary = done.summary();
    assert!(summary.dumps.iter().all(|dump| dump.lost_nothing()), "{summary:?}");
    assert!(deleted.len() >= 2, "the earlier run's dump, and this run's first: {deleted:#?}");
    assert_eq!(
        deleted[0]["files"][0],
        first[0].file_name().unwrap().to_str().unwrap(),
        "the oldest goes first"
    );
    assert!(!first[0].exists() && foreign.exists());
    assert!(place.out().join("2020-11-20T20-31-05.123456789Z_link_0001.pcapng").symlink_metadata().is_ok());
    assert!(summary.dumps[2].path.exists(), "the newest stays");
    assert!(bytes(&dumps(&place.out()).iter().filter(is_ours).cloned().collect::<Vec<_>>()) <= 5632 << 10);
}

#[test]
fn rotation_deletes_nothing_for_a_run_without_a_dump_nor_where_that_makes_no_room() {
    if !is_root() {
        return;
    }
    let place = Place::new();
    let _disk = Disk::over(&place, "16m");
    let scope = Scope::new(&place, &[]);
    (0..2).for_each(|_| scope.dump());
    assert_eq!(scope.stop().code(), Some(0));
    let made = dumps(&place.out());
    let deleted = |events: &[Value]| events.iter().filter(|line| line["event"] == "deleted").count();
    // 11 MiB of 16 are free, and 12 are to be: over the bound, and deleting one dump would make room.
    let scope = Scope::new(&place, &["--dump-min-free", "75%", "--dump-rotate"]);
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(scope.stop().code(), Some(0));
    assert_eq!(dumps(&place.out()), made, "no dump needed room");
    // Without the two dumps 8 MiB were free: the bound can't be kept.
    let other = place.out().join("other");
    std::fs::write(&other, vec![1; 8 << 20]).unwrap();
    let scope = Scope::new(&place, &["--dump-min-free", "75%", "--dump-rotate"]);
    assert_eq!(scope.alarms("raised"), 1, "from the start");
    scope.refused();
    assert_eq!((dumps(&place.out()), deleted(&scope.events())), (made.clone(), 0));
    std::fs::remove_file(&other).unwrap();
    wait_until("room", || scope.alarms("cleared") == 1);
    scope.dump();
    assert_eq!(deleted(&scope.events()), 2, "what a dump of 2.5 MiB needs");
    let done = scope.stop();
    assert_eq!(done.code(), Some(1), "a hit got no dump: {}", done.stderr);
    let warnings: Vec<&str> =
        done.stderr.lines().filter(|line| line.starts_with("no space for dumps")).collect();
    assert!(matches!(warnings[..], [said] if said.contains("deletes none of the 2 dumps")), "{warnings:?}");
}

#[test]
fn where_deleting_gives_no_room_nothing_more_is_deleted_for_a_while() {
    if !is_root() {
        return;
    }
    let place = Place::new();
    let _disk = Disk::over(&place, "16m");
    let scope = Scope::new(&place, &[]);
    (0..3).for_each(|_| scope.dump());
    assert_eq!(scope.stop().code(), Some(0));
    let made = dumps(&place.out());
    // Whoever reads a file keeps its bytes on the disk.
    let readers: Vec<std::fs::File> = made.iter().map(|path| std::fs::File::open(path).unwrap()).collect();
    let scope = Scope::new(&place, &["--dump-min-free", "50%", "--dump-rotate"]);
    scope.dump(); // 8.5 MiB are free, and 8 are to be: one dump's deleting would make room
    wait_until("the alarm", || scope.alarms("raised") == 1);
    scope.refused();
    assert_eq!(made.iter().filter(|path| path.exists()).count(), 2, "only one was deleted in vain");
    let done = scope.stop();
    assert!(done.stderr.contains("deleting dumps freed no space"), "{}", done.stderr);
    assert_eq!(done.code(), Some(1), "{}", done.stderr);
    drop(readers);
}

/// A small file system over the folder for dumps; gone when dropped.
struct Disk {
    folder: PathBuf,
}

impl Disk {
    fn over(place: &Place, size: &str) -> Disk {
        let disk = Disk { folder: place.out() };
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={size}"), "none"])
            .arg(&disk.folder)
            .status();
        assert!(mounted.unwrap().success(), "mount");
        disk
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        drop(Command::new("umount").arg("-l").arg(&self.folder).status());
    }
}

#[test]
fn free_space_is_left_as_asked_for() {
    if !is_root() {
        return;
    }
    let place = Place::new();
    let _disk = Disk::over(&place, "16m");
    let filler = place.out().join("filler");
    std::fs::write(&filler, vec![1; 5 << 20]).unwrap();
    let scope = Scope::new(&place, &["--dump-min-free", "50%"]);
    scope.dump(); // of 16 MiB 5 are taken, then 7.5: less than 1 MiB is left of the half
    wait_until("the alarm", || scope.alarms("raised") == 1);
    scope.refused();
    std::fs::remove_file(&filler).unwrap();
    wait_until("room", || scope.alarms("cleared") == 1);
    scope.dump();
    let done = scope.stop();
    assert_eq!(done.code(), Some(1), "{}", done.stderr);
    let summary = done.summary();
    assert_eq!((summary.hits["manual"].fired, summary.hits["manual"].no_space), (2, 1));
    assert!(summary.dumps.iter().all(|dump| dump.lost_nothing()), "{summary:?}");
    assert!(
        done.stderr.contains("--dump-min-free reserves 8.0 MiB; a new dump needs 1.0 MiB more"),
        "{}",
        done.stderr
    );
    assert!(done.stderr.contains("lower --dump-min-free"), "{}", done.stderr);
}

#[test]
fn a_disk_that_fills_fails_its_dumps_and_has_room_again() {
    if !is_root() {
        return;
    }
    let place = Place::new();
    let _disk = Disk::over(&place, "4m");
    let filler = place.out().join("filler");
    let scope = Scope::new(&place, &[]);
    std::fs::write(&filler, vec![1; 3 << 20]).unwrap();
    scope.started.signal(libc::SIGUSR1);
    // The log lies on the same disk: where that has no byte left, it lacks the dump's line, too.
    wait_until("the dump", || scope.log("dump") > 0 || !dumps(&place.out()).is_empty());
    std::fs::remove_file(&filler).unwrap();
    for path in dumps(&place.out()) {
        std::fs::remove_file(path).unwrap();
    }
    scope.dump();
    let done = scope.stop();
    assert_eq!(done.code(), Some(1), "{}", done.stderr);
    let summary = done.summary();
    summary.assert_adds_up();
    assert_eq!(
        summary.dumps.iter().map(|dump| dump.lost_nothing()).collect::<Vec<_>>(),
        [false, true],
        "{summary:?}"
    );
    assert!(done.stderr.to_lowercase().contains("no space"), "{}", done.stderr);
    assert_eq!(summary.stored, summary.received, "capture went on");
}

#[test]
fn a_folder_that_may_not_be_written_to_fails_its_dumps_until_it_may() {
    if !is_root() {
        return;
    }
    let place = Place::new();
    let _disk = Disk::over(&place, "16m");
    let scope = Scope::new(&place, &[]);
    let immutable = |on: &str| {
        Command::new("chattr").arg(on).arg(place.out()).status().is_ok_and(|status| status.success())
    };
    if !immutable("+i") {
        return run::skip("folders can't be made immutable here");
    }
    scope.dump();
    assert!(immutable("-i"));
    scope.dump();
    let done = scope.stop();
    assert_eq!(done.code(), Some(1), "{}", done.stderr);
    let summary = done.summary();
    assert_eq!(
        summary.dumps.iter().map(|dump| dump.lost_nothing()).collect::<Vec<_>>(),
        [false, true],
        "{summary:?}"
    );
    assert!(done.stderr.contains("not permitted") || done.stderr.contains("denied"), "{}", done.stderr);
    assert_eq!(summary.stored, summary.received);
}

#[test]
fn a_folder_that_is_moved_keeps_its_dumps_and_one_that_is_removed_fails_them() {
    let place = Place::new();
    let scope = Scope::new(&place, &[]);
    let moved = place.path("moved");
    std::fs::rename(place.out(), &moved).unwrap();
    std::fs::create_dir(place.out()).unwrap();
    let scope = Scope { out: moved.clone(), ..scope };
    scope.dump();
    assert_eq!((dumps(&moved).len(), dumps(&place.out()).len()), (1, 0), "it was opened once");
    let kept = dumps(&moved);
    std::fs::rename(&kept[0], place.path("kept.pcapng")).unwrap();
    std::fs::remove_dir_all(&moved).unwrap();
    // Its log is gone, too. It is noticed before a dump fails.
    wait_until("the warning", || scope.started.words().contains(" was removed: dumps fail"));
    scope.started.signal(libc::SIGUSR1);
    wait_until("the dump", || scope.started.words().contains("dump      2 of manual: "));
    let done = scope.stop();
    assert_eq!(done.code(), Some(1), "{}", done.stderr);
    let summary = done.summary();
    summary.assert_adds_up();
    assert_eq!(
        summary.dumps.iter().map(|dump| dump.lost_nothing()).collect::<Vec<_>>(),
        [true, false],
        "{summary:?}"
    );
    assert_eq!(summary.dumps[0].path.parent(), Some(moved.as_path()), "where it really is");
    let words = format!("the folder {} was removed", place.out().display());
    assert!(
        done.stderr.contains(&format!("dump      2 of manual: 0 packets, 0 B, not complete: {words}\n")),
        "{}",
        done.stderr
    );
    let (warned, fired) =
        (done.stderr.find(&format!("{words}: dumps fail")), done.stderr.rfind("by hand: fired"));
    assert!(warned.is_some() && warned < fired, "it is told before a dump fails: {}", done.stderr);
    assert_eq!(summary.warnings.len(), 1, "and once: {summary:?}");
    assert!(summary.warnings[0].contains("mkdir -p"), "with the remedy: {summary:?}");
    assert_eq!(summary.stored, summary.received, "capture went on");
}

/// Bytes of the blocks of all dumps of a folder.
fn blocks(folder: &Path) -> u64 {
    dumps(folder).iter().map(|path| path.metadata().unwrap().blocks() * 512).sum()
}

/// Two runs with one folder: each has its own process, and all else is common.
fn two(place: &Place, more: &[&str]) -> [Scope; 2] {
    [Scope::new(place, more), Scope::new(place, more)]
}

#[test]
fn two_runs_in_one_folder_keep_one_budget_together() {
    let place = Place::new();
    // Two dumps of 2.5 MiB, and part of a third one.
    let scopes = two(&place, &["--dump-budget", "5632KiB"]);
    let ended = || {
        events(&place.out())
            .iter()
            .filter(|line| line["event"] == "dump" || line["verdict"] == "no_space")
            .count()
    };
    for round in 1..=2 {
        scopes.iter().for_each(|scope| scope.started.signal(libc::SIGUSR1));
        wait_until("both fires", || ended() == 2 * round);
        assert!(blocks(&place.out()) <= 5632 << 10, "{}", blocks(&place.out()));
    }
    let made = dumps(&place.out());
    assert!(made.len() >= 2, "{made:?}");
    let dones = scopes.map(Scope::stop);
    assert!(
        dones.iter().any(|done| done.code() == Some(1)),
        "somebody's dump was refused, or isn't complete"
    );
    for done in dones {
        done.summary().assert_adds_up();
    }
}

#[test]
fn what_a_run_was_making_when_it_was_killed_is_room_for_the_others() {
    let place = Place::new();
    let budget = ["--dump-budget", "4MiB"];
    // Its dump goes on for an hour, and has no name until then.
    let endless = ["--trigger", "udp or tcp", "--dump", "udp or tcp", "--single", "--after", "1h"];
    let first = Scope::new(&place, &[&budget[..], &endless].concat());
    let second = Scope::new(&place, &budget);
    // Raised by each of them, for what the first one writes.
    wait_until("the alarms", || second.alarms("raised") == 2);
    second.refused();
    assert_eq!(dumps(&place.out()), Vec::<PathBuf>::new());
    first.started.signal(libc::SIGKILL);
    wait_until("room", || second.alarms("cleared") == 1);
    second.dump();
    assert_eq!(dumps(&place.out()).len(), 1);
    let done = second.stop();
    let summary = done.summary();
    assert!(summary.only_dump().lost_nothing(), "{summary:?}");
    assert_eq!(done.code(), Some(1), "one fire was refused");
    drop(first);
}

#[test]
fn two_runs_that_rotate_delete_the_oldest_dumps_of_both_and_fail_over_none() {
    let place = Place::new();
    let scopes = two(&place, &["--dump-budget", "8MiB", "--dump-rotate"]);
    let ended = || {
        events(&place.out())
            .iter()
            .filter(|line| line["event"] == "dump" || line["verdict"] == "no_space")
            .count()
    };
    for round in 1..=4 {
        scopes.iter().for_each(|scope| scope.started.signal(libc::SIGUSR1));
        wait_until("both fires", || ended() == 2 * round);
        assert!(blocks(&place.out()) <= 8 << 20, "{}", blocks(&place.out()));
    }
    let deleted = || -> Vec<Value> {
        events(&place.out()).into_iter().filter(|line| line["event"] == "deleted").collect()
    };
    wait_until("all that was deleted to be told", || deleted().len() >= 8 - dumps(&place.out()).len());
    let deleted = deleted();
    let mut files: Vec<String> = deleted.iter().map(|line| line["files"][0].to_string()).collect();
    files.sort();
    files.dedup();
    let gone = 8 - dumps(&place.out()).len();
    assert_eq!((files.len(), deleted.len()), (gone, gone), "each is deleted once: {deleted:#?}");
    for done in scopes.map(Scope::stop) {
        assert_eq!(done.code(), Some(0), "{}", done.stderr);
        let summary = done.summary();
        assert!(
            summary.dumps.len() == 4 && summary.dumps.iter().all(|dump| dump.lost_nothing()),
            "{summary:?}"
        );
    }
}

#[test]
fn hits_that_found_no_room_are_counted_and_failures_after_their_trigger_is_gone_by_a_reload() {
    let place = Place::new();
    let scope = Scope::new(&place, &[]);
    scope.dump();
    assert_eq!(scope.stop().code(), Some(0));
    let config = place.path("wirescope.toml");
    let write = |trigger: &str| {
        std::fs::write(&config, format!("trigger = [\"{trigger}\"]\nholdoff = \"100ms\"\n")).unwrap()
    };
    write("early=udp or tcp");
    let scope = Scope::new(&place, &["--config", config.to_str().unwrap(), "--dump-budget", "2MiB"]);
    let refused = || scope.events().iter().filter(|line| line["verdict"] == "no_space").count();
    wait_until("a hit without room", || refused() > 0);
    write("late=arp");
    scope.started.signal(libc::SIGHUP);
    wait_until("the reload", || scope.log("reload") == 1);
    let done = scope.stop();
    assert_eq!(done.code(), Some(1), "{}", done.stderr);
    let summary = done.summary();
    assert!(summary.hits["early"].no_space > 0 && summary.hits["late"].no_space == 0, "{summary:?}");
    let whole: Value = serde_json::from_str(&done.stdout).unwrap();
    assert!(whole["failures"].to_string().contains("trigger early: ") && summary.dumps.is_empty(), "{whole}");
}
