//! The store on disks that are full, fail, stall, can't be written to or are gone: capture goes on, each state is
//! told, every packet is accounted for, what works again is written to again, and a stop ends the run.
//!
//! Most of it needs root, `fsfreeze` and loop devices; it says so and passes without, except in CI.

mod run;

use run::{Done, LIMIT, Place, Started, is_root, skip, wait_until, wait_until_or, wirescope};
use scope_testkit::lab::disk::{self, DATA_FROM_MIB, Disk, Kind, own_mounts};
use scope_testkit::oracle;
use scope_testkit::traffic::{Capture, ETHERNET, Interface, Precision, Record, pcap};
use serde_json::Value;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

/// 5 MB/s that don't wait for anybody.
const TRAFFIC: &str = "synth:rate=10k,size=500,seed=7";
/// The store may hold 4 MiB of the ring back.
const RING: [&str; 4] = ["--ring", "16MiB", "--segment", "64KiB"];
const STORE: [&str; 6] = ["--store-file", "8MiB", "--store-flush", "100ms", "--status-every", "1s"];

/// One file, and the budget where the disk is a small one, bytes: as `STORE` and `with_disk` say.
const FILE: u64 = 8 << 20;
const OWN_BUDGET: u64 = 48 << 20;
/// Of a log, where a state never came.
const LAST_LINES: usize = 25;

fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

/// The files of a store with this ending, the oldest first.
fn files(store: &Path, ending: &str) -> Vec<PathBuf> {
    let days = fs::read_dir(store).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut found: Vec<PathBuf> = days
        .filter_map(|day| fs::read_dir(day).ok())
        .flat_map(|day| day.flatten().map(|entry| entry.path()).collect::<Vec<_>>())
        .filter(|path| text(path).ends_with(ending))
        .collect();
    found.sort();
    found
}

/// A run whose log is followed.
struct Stand {
    place: Place,
    stores: Vec<PathBuf>,
    budget: &'static str,
}

impl Stand {
    /// For a run with stores in these folders below its place.
    fn new(stores: &[&str]) -> Stand {
        let place = Place::new();
        place.open_to_all(); // whoever the run becomes follows the path of its stores
        let stores = stores.iter().map(|store| place.path(store)).collect();
        Stand { place, stores, budget: "400MiB" }
    }

    /// The same, with a file system of its own in the folder `disk`; `None`: that can't be had here.
    fn with_disk(stores: &[&str]) -> Option<(Stand, Disk)> {
        if !is_root() {
            return None;
        }
        if let Some(lacking) = disk::lacks() {
            skip(lacking);
            return None;
        }
        own_mounts().unwrap();
        let stand = Stand { budget: "48MiB", ..Stand::new(stores) };
        let folder = stand.place.path("disk");
        fs::create_dir(&folder).unwrap();
        let disk = Disk::mount(Kind::Own(96), &folder).unwrap();
        Some((stand, disk))
    }

    fn start(&self, source: &str, more: &[&str]) -> Started {
        let stores = self.stores.iter().flat_map(|store| ["--store", text(store)]);
        let orders: Vec<&str> = ["--source", source].into_iter().chain(stores).collect();
        let bounds =
            if more.contains(&"--store-budget") { vec![] } else { vec!["--store-budget", self.budget] };
        Started::new(self.place.command(&[&orders, &RING[..], &STORE, &bounds, more].concat()))
    }

    fn lines(&self) -> Vec<Value> {
        self.place.log().lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }

    /// How often a volume was said to be in this state.
    fn told(&self, volume: usize, state: &str) -> usize {
        let path = text(&self.stores[volume]);
        let is_it = |line: &&Value| {
            line["event"] == "store_state" && line["volume"] == path && line["state"] == state
        };
        self.lines().iter().filter(is_it).count()
    }

    fn wait_told(&self, volume: usize, state: &str, times: usize) {
        self.wait_until(state, || self.told(volume, state) >= times);
    }

    /// Waits for a state; if it never comes, the test's end has the log's last lines and the files.
    fn wait_until(&self, what: &str, holds: impl FnMut() -> bool) {
        wait_until_or(what, holds, || {
            let log = self.place.log();
            let lines: Vec<&str> = log.lines().collect();
            let files: Vec<String> = self
                .stores
                .iter()
                .flat_map(|store| [".part", ".pcapng"].map(|ending| files(store, ending)))
                .flatten()
                .map(|path| format!("{} {:?}", text(&path), path.metadata().map(|about| about.len())))
                .collect();
            [&lines[lines.len().saturating_sub(LAST_LINES)..].join("\n"), &files.join("\n")]
                .map(String::as_str)
                .join("\n")
        });
    }

    /// What the last status line says of a volume.
    fn volume(&self, volume: usize) -> Option<Value> {
        let last = self.lines().into_iter().rfind(|line| line["event"] == "status")?;
        Some(last["stores"][volume].clone())
    }

    /// Packets that a volume has stored, and the state that it is in, by the last status line.
    fn status(&self, volume: usize) -> (u64, String) {
        let Some(volume) = self.volume(volume) else { return (0, String::new()) };
        (volume["stored"]["packets"].as_u64().unwrap(), volume["state"].as_str().unwrap().to_string())
    }

    /// Waits until a volume gets on.
    fn wait_stored(&self, volume: usize) {
        let (before, _) = self.status(volume);
        self.wait_until("more packets in the store", || self.status(volume).0 > before + 5000);
    }

    /// Waits until the status says so, too.
    fn wait_status(&self, volume: usize, state: &str) {
        self.wait_until(state, || self.status(volume).1 == state);
    }

    /// Waits until packets are missed.
    fn wait_for_misses(&self) {
        let missed = |line: &Value| line["stores"][0]["missed"]["packets"].as_u64() > Some(0);
        self.wait_until("missed packets", || self.lines().iter().any(missed));
    }

    /// Every packet is accounted for in every line, and none was lost in front of the ring.
    fn check_law(&self) {
        let mut checked = 0;
        for line in self.lines().iter().filter(|line| line["event"] == "status" || line["event"] == "end") {
            check_law(line);
            checked += 1;
        }
        assert!(checked > 0, "the log says nothing");
    }

    /// Stops the run, which must end by itself, with exit code 1; its summary, and its last words.
    fn stop(&self, started: Started) -> (Value, String) {
        started.signal(libc::SIGTERM);
        self.ended(started.finish(LIMIT))
    }

    fn ended(&self, done: Done) -> (Value, String) {
        for line in self.lines().iter().filter(|line| line["event"] == "store_missed") {
            let (from, to) = (&line["span"]["from"], &line["span"]["to"]);
            assert!(from.as_str() > Some("19") && from.as_str() <= to.as_str(), "its span is known: {line}");
        }
        assert_eq!(done.code(), Some(1), "{}", done.stderr);
        self.check_law();
        (serde_json::from_str(&done.stdout).expect("one JSON object"), done.stderr)
    }

    /// A short run closes what is left; then `verify` finds nothing damaged.
    fn check_files(&self) {
        let done = self.start("synth:packets=10,pace=max", &[]).finish(LIMIT);
        assert_eq!(done.code(), Some(0), "{}", done.stderr);
        for store in &self.stores {
            assert_eq!(files(store, ".part"), Vec::<PathBuf>::new());
        }
        let verified = self.verify();
        assert!(matches!(verified.code(), Some(0 | 1)), "{}{}", verified.stdout, verified.stderr);
        assert!(!verified.stdout.contains("damaged"), "{}", verified.stdout);
    }

    fn verify(&self) -> Done {
        let stores: Vec<&str> = self.stores.iter().map(|store| text(store)).collect();
        run::finish(wirescope(&[&["verify"], &stores[..]].concat()))
    }
}

/// `published = stored + filtered + missed + behind` over all volumes; nothing is lost to a disk but in the
/// store.
fn check_law(line: &Value) {
    for unit in ["packets", "bytes"] {
        let volumes = line["stores"].as_array().expect("a list");
        let counts = volumes
            .iter()
            .flat_map(|volume| ["stored", "filtered", "missed", "behind"].map(|key| &volume[key][unit]));
        let sum: u64 = counts.map(|count| count.as_u64().expect("a count")).sum();
        assert_eq!(Some(sum), line["stored"][unit].as_u64(), "{unit}: {line}");
    }
    let dropped = line["dropped"].as_object().expect("reasons");
    assert!(dropped.values().all(|packets| packets == 0), "{line}");
}

#[test]
fn a_full_disk_is_told_capture_goes_on_and_room_is_used_when_it_is_there() {
    let Some((stand, disk)) = Stand::with_disk(&["disk/a"]) else { return };
    let started = stand.start(TRAFFIC, &[]);
    wait_until("the first file", || !files(&stand.stores[0], ".part").is_empty());
    disk.fill().unwrap();
    stand.wait_told(0, "full", 1);
    stand.wait_status(0, "full");
    stand.wait_for_misses();
    disk.relieve().unwrap();
    stand.wait_told(0, "writing", 1);
    stand.wait_stored(0);
    let (summary, words) = stand.stop(started);
    assert!(summary["stores"][0]["missed"]["packets"].as_u64() > Some(0), "{summary}");
    assert_eq!(summary["stores"][0]["state"], "writing");
    assert!(words.contains("no room"), "{words}");
    stand.check_files();
}

#[test]
fn where_there_is_room_for_one_file_only_it_makes_room_for_the_next_one() {
    if !is_root() {
        return;
    }
    own_mounts().unwrap();
    let stand = Stand { budget: "40MiB", ..Stand::new(&["disk/a"]) };
    let folder = stand.place.path("disk");
    fs::create_dir(&folder).unwrap();
    let disk = Disk::mount(Kind::Small(60 << 10), &folder).unwrap();
    fs::write(folder.join("others"), vec![1; 50 << 20]).unwrap();
    let done = stand.start("synth:packets=60000,size=500,pace=max", &[]).finish(LIMIT);
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    let summary: Value = serde_json::from_str(&done.stdout).expect("one JSON object");
    let store = &summary["stores"][0];
    assert_eq!((&store["stored"]["packets"], &store["state"]), (&60_000.into(), &"writing".into()));
    assert_eq!(stand.told(0, "full"), 0, "{}", done.stderr);
    assert!(store["deleted"]["packets"].as_u64() < Some(60_000), "{store}");
    assert!(!files(&stand.stores[0], ".pcapng").is_empty(), "the newest stays");
    drop(disk);
}

/// Holds everything in a store from now on, or nothing any more.
fn hold(store: &Path, everything: bool) {
    let add = ["add", "--from", "2000-01-01T00:00:00Z", "--to", "2100-01-01T00:00:00Z", "--note", "x"];
    let orders = if everything { &add[..] } else { &["remove", "1"] };
    let done = run::finish(wirescope(&[&["hold"], orders, &["--store", text(store)]].concat()));
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
}

#[test]
fn what_was_missed_while_holds_left_no_room_is_told_with_them_though_the_store_writes_again() {
    let stand = Stand { budget: "40MiB", ..Stand::new(&["a"]) };
    let started = stand.start(TRAFFIC, &[]);
    stand.wait_stored(0);
    hold(&stand.stores[0], true);
    stand.wait_status(0, "held");
    stand.wait_for_misses();
    hold(&stand.stores[0], false);
    stand.wait_told(0, "writing", 1);
    stand.wait_stored(0);
    let (summary, words) = stand.stop(started);
    assert_eq!(summary["stores"][0]["state"], "writing");
    assert!(words.contains("packets; for a time holds left it no room"), "{words}");
    let failures = summary["failures"].to_string();
    assert!(failures.contains("holds left it no room"), "{summary}");
    stand.check_files();
}

#[test]
fn holds_that_leave_no_room_for_a_while_cost_nothing_where_the_ring_has_what_came_meanwhile() {
    let stand = Stand { budget: "40MiB", ..Stand::new(&["a"]) };
    let done = stand.start("synth:packets=62k,size=400,pace=max", &[]).finish(LIMIT);
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    hold(&stand.stores[0], true);
    // 30 MiB are there: no room for a file of 8 MiB.
    let started = stand.start("synth:rate=200,size=500,seed=8", &["--store-budget", "34MiB"]);
    stand.wait_until("held", || stand.told(0, "held") > 0);
    hold(&stand.stores[0], false);
    stand.wait_told(0, "writing", 1);
    started.signal(libc::SIGTERM);
    let done = started.finish(LIMIT);
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    let summary: Value = serde_json::from_str(&done.stdout).expect("one JSON object");
    assert_eq!(summary["stores"][0]["missed"]["packets"], 0);
}

#[test]
fn a_run_on_a_full_disk_ends_when_it_is_stopped() {
    let Some((stand, disk)) = Stand::with_disk(&["disk/a"]) else { return };
    let started = stand.start(TRAFFIC, &[]);
    wait_until("the first file", || !files(&stand.stores[0], ".part").is_empty());
    disk.fill().unwrap();
    stand.wait_told(0, "full", 1);
    stand.wait_for_misses(); // up to there what came had room in the file that grew
    let (summary, words) = stand.stop(started);
    assert_eq!(summary["stores"][0]["state"], "full");
    assert!(words.contains("could not write: no room"), "{words}");
}

#[test]
fn a_disk_that_fails_is_tried_again_and_the_other_volume_takes_its_share() {
    let Some((stand, disk)) = Stand::with_disk(&["disk/a", "b"]) else { return };
    let started = stand.start(TRAFFIC, &[]);
    stand.wait_stored(0);
    for times in 1..=2 {
        disk.end_at(Some(DATA_FROM_MIB)).unwrap();
        stand.wait_told(0, "failing", times);
        stand.wait_status(0, "failing");
        stand.wait_stored(1);
        if times == 1 {
            disk.end_at(None).unwrap();
            wait_until("the first volume to write again", || stand.status(0).1 == "writing");
            stand.wait_stored(0);
        }
    }
    let (summary, words) = stand.stop(started);
    assert_eq!(summary["stores"][0]["state"], "failing");
    assert_eq!(summary["stores"][1]["state"], "writing");
    assert!(words.contains("could not write: Input/output error"), "{words}");
    disk.end_at(None).unwrap();
    stand.check_files();
}

#[test]
fn files_that_a_disk_failed_are_closed_also_where_they_take_all_of_the_budget() {
    let Some((stand, disk)) = Stand::with_disk(&["disk/a"]) else { return };
    let started = stand.start(TRAFFIC, &[]);
    stand.wait_stored(0);
    disk.end_at(Some(DATA_FROM_MIB)).unwrap();
    // Each try leaves a file, and room for it is made of what was whole. Once there is no more room to be made,
    // those go in which nothing was safe.
    stand.wait_until("nothing but files that failed, or no room", || {
        let used = stand.volume(0).map_or(0, |volume| volume["used"].as_u64().unwrap());
        let is_taken = used + FILE > OWN_BUDGET && files(&stand.stores[0], ".pcapng").is_empty();
        is_taken || stand.told(0, "full") > 0
    });
    disk.end_at(None).unwrap();
    stand.wait_told(0, "writing", 1);
    stand.wait_stored(0);
    let (summary, _) = stand.stop(started);
    assert_eq!(summary["stores"][0]["state"], "writing", "{summary}");
    stand.check_files();
}

#[test]
fn a_disk_that_stalls_holds_up_neither_capture_nor_dumps_nor_the_end() {
    let Some((stand, mut disk)) = Stand::with_disk(&["disk/a", "b"]) else { return };
    let started = stand.start(TRAFFIC, &["--before", "1s"]);
    stand.wait_stored(0);
    disk.freeze().unwrap();
    stand.wait_told(0, "stalled", 1);
    stand.wait_status(0, "stalled");
    stand.wait_stored(1);
    started.signal(libc::SIGUSR1);
    stand.place.wait_for_words("\"event\":\"dump\"");
    disk.thaw().unwrap();
    stand.wait_told(0, "writing", 1);
    stand.wait_stored(0);
    disk.freeze().unwrap();
    stand.wait_told(0, "stalled", 2);
    started.signal(libc::SIGTERM);
    // The kernel keeps the process until the disk answers; the run itself is over.
    stand.place.wait_for_words("\"event\":\"end\"");
    disk.thaw().unwrap();
    let (summary, words) = stand.ended(started.finish(LIMIT));
    assert_eq!(summary["stores"][0]["state"], "stalled");
    assert!(words.contains("the disk has not answered for"), "{words}");
    assert_eq!(summary["dumps"][0]["complete"], true, "{summary}");
    stand.check_files();
}

#[test]
fn an_unmounted_disk_is_told_and_written_to_again_once_it_is_mounted() {
    let Some((stand, disk)) = Stand::with_disk(&["disk/a"]) else { return };
    let started = stand.start(TRAFFIC, &[]);
    stand.wait_stored(0);
    disk.unmount().unwrap();
    stand.wait_told(0, "failing", 1);
    stand.wait_status(0, "failing");
    disk.mount_again().unwrap();
    stand.wait_told(0, "writing", 1);
    stand.wait_stored(0);
    disk.unmount().unwrap();
    stand.wait_told(0, "failing", 2);
    let (_, words) = stand.stop(started);
    assert!(words.contains("the folder isn't at its path any more"), "{words}");
    assert!(fs::read_dir(disk.path()).unwrap().next().is_none(), "nothing was made under its mount point");
    disk.mount_again().unwrap();
    stand.check_files();
}

#[test]
fn a_folder_that_is_moved_is_told_and_nothing_goes_where_nobody_looks() {
    let stand = Stand::new(&["a"]);
    let (here, there) = (&stand.stores[0], stand.place.path("elsewhere"));
    let started = stand.start(TRAFFIC, &[]);
    stand.wait_stored(0);
    fs::rename(here, &there).unwrap();
    stand.wait_told(0, "failing", 1);
    fs::rename(&there, here).unwrap();
    stand.wait_told(0, "writing", 1);
    stand.wait_stored(0);
    fs::remove_dir_all(here).unwrap();
    stand.wait_told(0, "failing", 2);
    let (summary, words) = stand.stop(started);
    assert_eq!(summary["stores"][0]["state"], "failing");
    assert!(words.contains("it was unmounted, moved or removed"), "{words}");
    assert!(!here.exists(), "it isn't made again");
}

/// A pipe that packets of a capture come through.
struct Pipe {
    path: PathBuf,
}

impl Pipe {
    fn make(place: &Place) -> Pipe {
        let path = place.path("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
        Pipe { path }
    }

    fn source(&self) -> String {
        format!("file:{}", self.path.display())
    }

    /// Its other end, once a run reads it.
    fn open(&self) -> File {
        File::options().write(true).open(&self.path).unwrap()
    }
}

/// So many packets of 1000 bytes, a microsecond apart from `from_ns` on; without the file's head if they go on.
fn packets(from_ns: i64, apart_ns: i64, count: i64, goes_on: bool) -> Vec<u8> {
    let record = |number: i64| Record::new(from_ns + number * apart_ns, vec![number as u8; 1000]);
    let capture = Capture {
        interfaces: vec![Interface::new("port", ETHERNET)],
        packets: (0..count).map(record).collect(),
    };
    let mut bytes = pcap(&capture, Precision::Nano, false);
    bytes.drain(..if goes_on { 24 } else { 0 });
    bytes
}

const BEGIN_NS: i64 = 1_767_225_600_000_000_000; // 2026-01-01

#[test]
fn a_run_whose_disk_became_read_only_says_so_and_ends_when_it_is_stopped_though_a_file_waits() {
    let Some((stand, disk)) = Stand::with_disk(&["disk/a"]) else { return };
    let pipe = Pipe::make(&stand.place);
    let started = stand.start(&pipe.source(), &[]);
    let mut end = pipe.open();
    end.write_all(&packets(BEGIN_NS, 1000, 0, false)).unwrap();
    stand.place.wait_for_start();
    disk.break_down().unwrap();
    // More than the ring may have before the store has it.
    let feeder = std::thread::spawn(move || drop(end.write_all(&packets(BEGIN_NS, 1000, 20_000, true))));
    stand.wait_told(0, "failing", 1);
    let (summary, words) = stand.stop(started);
    feeder.join().unwrap();
    assert_eq!(summary["stores"][0]["state"], "failing");
    assert!(words.contains("Read-only file system"), "{words}");
    disk.unmount().unwrap();
    disk.mount_again().unwrap();
    stand.check_files();
}

#[test]
fn names_that_are_taken_are_passed_over_and_what_has_them_stays() {
    let stand = Stand::new(&["a"]);
    let pipe = Pipe::make(&stand.place);
    let started = stand.start(&pipe.source(), &[]);
    let mut end = pipe.open();
    end.write_all(&packets(BEGIN_NS, 0, 10, false)).unwrap();
    let store = &stand.stores[0];
    wait_until("the first file", || !files(store, "_000001.pcapng.part").is_empty());
    let first = files(store, "_000001.pcapng.part")[0].clone();
    let taken = PathBuf::from(text(&first).replace("_000001.", "_000002."));
    fs::write(&taken, "mine").unwrap();
    end.write_all(&packets(BEGIN_NS, 0, 12_000, true)).unwrap();
    drop(end);
    let done = started.finish(LIMIT);
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    stand.check_law();
    assert_eq!(fs::read_to_string(&taken).unwrap(), "mine");
    let stored = files(store, ".pcapng");
    let packets = |file: &PathBuf| oracle::read(file).unwrap().capture.packets.len();
    assert_eq!(stored.iter().map(packets).sum::<usize>(), 12_010, "{stored:?}");
}

#[test]
fn clocks_that_step_back_and_other_segment_sizes_between_runs_change_nothing() {
    let stand = Stand::new(&["a"]);
    let runs = [(0, "64KiB"), (-3_600_000_000_000, "256KiB"), (-7_200_000_000_000, "2MiB")];
    for (step_ns, segment) in runs {
        let source = stand.place.source_of("in.pcap", &packets(BEGIN_NS + step_ns, 1000, 20_000, false));
        let orders = ["--source", &source, "--store", text(&stand.stores[0]), "--ring", "64MiB"];
        let more = ["--segment", segment, "--store-budget", "400MiB", "--store-file", "8MiB"];
        let done = stand.place.run(&[&orders[..], &more].concat());
        assert_eq!(done.code(), Some(0), "{}", done.stderr);
    }
    let verified = stand.verify();
    assert_eq!(verified.code(), Some(0), "{}{}", verified.stdout, verified.stderr);
    let stored = files(&stand.stores[0], ".pcapng");
    let packets = |file: &PathBuf| oracle::read(file).unwrap().capture.packets.len();
    assert_eq!(stored.iter().map(packets).sum::<usize>(), 60_000, "{stored:?}");
}

#[test]
fn damaged_files_of_earlier_runs_hinder_no_run_and_stay() {
    let stand = Stand::new(&["a"]);
    let long = "synth:packets=40k,size=1000,pace=max,seed=3";
    let done = stand.start(long, &[]).finish(LIMIT);
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    let stored = files(&stand.stores[0], ".pcapng");
    assert!(stored.len() > 4, "{stored:?}");
    // A head, a foot, the index, half of a file, all of a file.
    let damage = |file: &Path, change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = fs::read(file).unwrap();
        change(&mut bytes);
        fs::write(file, bytes).unwrap();
    };
    damage(&stored[0], &|bytes| bytes[40] ^= 0xff);
    damage(&stored[1], &|bytes| bytes[4096 + 65_536 - 8] ^= 0xff);
    damage(&stored[2], &|bytes| *bytes.last_mut().unwrap() ^= 0xff);
    damage(&stored[3], &|bytes| bytes.truncate(bytes.len() / 2));
    damage(&stored[4], &|bytes| bytes.clear());
    let before: Vec<Vec<u8>> = stored.iter().map(|file| fs::read(file).unwrap()).collect();
    let done = stand.start("synth:packets=1000,pace=max", &["--store-chain"]).finish(LIMIT);
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    let after: Vec<Vec<u8>> = stored.iter().map(|file| fs::read(file).unwrap()).collect();
    assert!(before == after, "what is damaged stays as it is");
    let warned = |words: &str| done.stderr.lines().filter(|line| line.contains(words)).count();
    assert_eq!((warned("damaged or renamed file"), warned("foreign file")), (1, 0), "{}", done.stderr);
    let verified = stand.verify();
    assert_eq!(verified.code(), Some(1), "{}", verified.stdout);
    // The others and their budget are kept all the same.
    let more = ["--store-budget", "40MiB"];
    let done = stand.start("synth:packets=60k,size=1000,pace=max,seed=4", &more).finish(LIMIT);
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
}
