//! The account, the bound, and what is deleted to make room and what never is.

mod joint;

use super::*;
use crate::header::header;
use crate::report::DumpReport;
use std::fs::{FileTimes, OpenOptions};
use std::path::Path;
use std::time::SystemTime;

const MIB: u64 = 1 << 20;

fn name(id: u64) -> String {
    format!("2026-11-20T20-31-05.{id:09}Z_hit_{id:04}")
}

/// A dump of `bytes`, the older the smaller its number.
fn dump(folder: &Path, name: &str, id: u64, bytes: u64) {
    let report = DumpReport { id, trigger: "hit".into(), why: "by hand".into(), ..DumpReport::default() };
    let mut content = header(&report, &[], 16 << 10);
    content.resize(bytes as usize, 0);
    put(folder, name, id, &content);
}

fn put(folder: &Path, name: &str, age: u64, content: &[u8]) {
    let path = folder.join(name);
    std::fs::write(&path, content).unwrap();
    let changed = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000 + age);
    OpenOptions::new()
        .write(true)
        .open(&path)
        .unwrap()
        .set_times(FileTimes::new().set_modified(changed))
        .unwrap();
}

fn open(folder: &Path, limits: Limits) -> Arc<Budget> {
    Budget::open(limits, &Arc::new(Folder::open(folder).unwrap())).unwrap()
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

#[test]
fn dumps_of_earlier_runs_count_and_nothing_else_does() {
    let place = tempfile::tempdir().unwrap();
    dump(place.path(), &format!("{}.pcapng", name(1)), 1, 3 * MIB);
    let report = DumpReport { id: 2, trigger: "hit".into(), why: "by hand".into(), ..DumpReport::default() };
    let facts = format!("{}\n{}", crate::mark::APPLICATION, crate::header::facts(&report));
    let blocks = facts.len().next_multiple_of(4096) as u64;
    put(place.path(), &format!("{}_RAW.pcap", name(2)), 2, &vec![0; MIB as usize]);
    put(place.path(), &format!("{}.txt", name(2)), 2, facts.as_bytes());
    put(place.path(), "wirescope.jsonl", 3, &vec![0; 9 * MIB as usize]);
    std::os::unix::fs::symlink("wirescope.jsonl", place.path().join(format!("{}.pcapng", name(3)))).unwrap();
    let budget = open(place.path(), Limits { bytes_max: Some(10 * MIB), ..Limits::default() });
    assert_eq!((budget.usage().used, budget.is_full()), (4 * MIB + blocks, false));
}

#[test]
fn foreign_and_sparse_files_of_a_dump_s_name_take_no_room() {
    let place = tempfile::tempdir().unwrap();
    dump(place.path(), &format!("{}.pcapng", name(1)), 1, MIB);
    // Not marked, and large; marked, and with a hole at the end; both as long as a file can be.
    put(place.path(), &format!("{}.pcapng", name(2)), 2, &vec![0; 3 * MIB as usize]);
    put(place.path(), &format!("{}.pcap", name(3)), 3, &vec![0; 3 * MIB as usize]);
    dump(place.path(), &format!("{}.pcapng", name(4)), 4, 64 << 10);
    for id in [2, 4] {
        let file =
            OpenOptions::new().write(true).open(place.path().join(format!("{}.pcapng", name(id)))).unwrap();
        // Twice this is more than a count of bytes has room for; some file systems take less.
        let _ = file.set_len(i64::MAX as u64).or_else(|_| file.set_len(1 << 43));
    }
    let all = names(place.path());
    let budget = open(place.path(), Limits { bytes_max: Some(3 * MIB), rotate: true, ..Limits::default() });
    assert_eq!((budget.usage().used, budget.is_full()), (MIB + (64 << 10), false));
    assert!(budget.look().is_empty());
    // What comes later is looked into as well.
    put(place.path(), &format!("{}.txt", name(5)), 5, &vec![b'x'; 3 * MIB as usize]);
    budget.lock().next_read = None;
    Charged::to(&Some(budget.clone())).charge(MIB).unwrap();
    assert_eq!(names(place.path()).len(), all.len() + 1, "nothing was deleted");
    assert!(!budget.is_full());
}

#[test]
fn what_is_charged_is_bounded_and_given_back() {
    let place = tempfile::tempdir().unwrap();
    let budget = open(place.path(), Limits { bytes_max: Some(4 * MIB), ..Limits::default() });
    let account = Some(budget.clone());
    let mut first = Charged::to(&account);
    first.charge(3 * MIB).unwrap();
    assert!(!budget.is_full(), "1 MiB is left");
    let mut second = Charged::to(&account);
    let error = second.charge(MIB + 1).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    assert!(error.to_string().contains("3.0 MiB of the 4.0 MiB"), "{error}");
    second.charge(1).unwrap();
    assert!(budget.is_full() && matches!(&budget.look()[..], [Change::Full(_)]));
    first.name(3 * MIB, || Ok("x".into())).unwrap();
    drop(first);
    assert!(budget.look().is_empty(), "said once");
    drop(second);
    assert!(!budget.is_full(), "what got no name is given back");
    assert_eq!(budget.look(), [Change::Room]);
}

#[test]
fn room_that_others_made_is_found() {
    let place = tempfile::tempdir().unwrap();
    let path = format!("{}.pcapng", name(1));
    dump(place.path(), &path, 1, 4 * MIB);
    let budget = open(place.path(), Limits { bytes_max: Some(4 * MIB), ..Limits::default() });
    assert!(budget.is_full() && matches!(&budget.look()[..], [Change::Full(_)]));
    std::fs::remove_file(place.path().join(path)).unwrap();
    reads_again(&budget);
    assert_eq!((budget.look(), budget.is_full()), (vec![Change::Room], false));
}

#[test]
fn free_space_is_kept_in_bytes_and_in_parts() {
    let place = tempfile::tempdir().unwrap();
    let with = |free_min| open(place.path(), Limits { free_min: Some(free_min), ..Limits::default() });
    assert!(!with(SizeOrShare::Bytes(0)).is_full() && !with(SizeOrShare::Ppm(0)).is_full());
    let full = with(SizeOrShare::Ppm(1_000_000));
    let error = Charged::to(&Some(full.clone())).charge(1).unwrap_err().to_string();
    assert!(full.is_full() && error.contains("--dump-min-free"), "{error}");
    assert!(with(SizeOrShare::Bytes(u64::MAX)).is_full());
}

#[test]
fn the_oldest_dumps_are_deleted_and_never_anything_else() {
    let place = tempfile::tempdir().unwrap();
    let path = |name: &str| place.path().join(name);
    for id in 1..=4 {
        dump(place.path(), &format!("{}.pcapng", name(id)), id, MIB);
    }
    dump(place.path(), &format!("{}_RAW.pcapng", name(1)), 1, MIB);
    // Older than all, with names of dumps: not marked, marked for another dump, links.
    put(place.path(), &format!("{}.pcapng", name(11)), 0, &vec![0; MIB as usize]);
    dump(place.path(), &format!("{}.pcapng", name(12)), 0, MIB);
    put(place.path(), &format!("{}.pcap", name(13)), 0, &vec![0; MIB as usize]);
    dump(place.path(), "elsewhere", 0, MIB);
    std::os::unix::fs::symlink(path("elsewhere"), path(&format!("{}.pcapng", name(0)))).unwrap();
    let budget = open(place.path(), Limits { bytes_max: Some(6 * MIB), rotate: true, ..Limits::default() });
    assert_eq!(budget.usage().used, 5 * MIB, "of those that are marked");
    let mut writing = Charged::to(&Some(budget.clone()));
    writing.charge(MIB).unwrap();
    assert!(budget.look().is_empty() && !budget.is_full(), "there was room for it, and can be made for more");
    writing.charge(1).unwrap();
    let deleted = |changes: Vec<Change>| {
        changes
            .into_iter()
            .map(|change| {
                if let Change::Deleted { names, .. } = change {
                    names.join(" ")
                } else {
                    format!("{change:?}")
                }
            })
            .collect::<Vec<_>>()
    };
    assert_eq!(
        deleted(budget.look()),
        [format!("{0}.pcapng {0}_RAW.pcapng", name(1))],
        "both files of the oldest"
    );
    let publishing = budget.publish(&name(2));
    writing.charge(2 * MIB).unwrap();
    assert_eq!(deleted(budget.look()), [format!("{}.pcapng", name(3))], "not the one that is being made");
    drop(publishing);
    assert!(!budget.is_full());
    let mut all = writing;
    let mut taken = 0;
    while all.charge(MIB / 2).is_ok() {
        taken += 1;
        reads_again(&budget);
        assert!(taken < 20);
    }
    assert!(budget.is_full());
    let kept = [name(11), name(12), name(13)];
    let left = names(place.path());
    assert_eq!(left.len(), 5, "{left:?}");
    assert!(kept.iter().all(|kept| left.iter().any(|left| left.starts_with(kept))), "{left:?}");
    assert!(path("elsewhere").is_file());
}

#[test]
fn the_files_of_a_pcap_dump_go_together_by_the_text_beside_them() {
    let place = tempfile::tempdir().unwrap();
    let report = DumpReport { id: 1, trigger: "hit".into(), why: "by hand".into(), ..DumpReport::default() };
    let facts = format!("{}\n{}", crate::mark::APPLICATION, crate::header::facts(&report));
    for again in ["", "-2"] {
        let age = again.len() as u64;
        put(place.path(), &format!("{}{again}.pcap", name(1)), age, &vec![0; MIB as usize]);
        put(place.path(), &format!("{}_RAW{again}.pcap", name(1)), age, &vec![0; MIB as usize]);
        put(place.path(), &format!("{}{again}.txt", name(1)), age + 1, facts.as_bytes());
    }
    let budget =
        open(place.path(), Limits { bytes_max: Some(4 * MIB + 8192), rotate: true, ..Limits::default() });
    assert!(!budget.is_full() && names(place.path()).len() == 6, "nothing needs room yet");
    Charged::to(&Some(budget)).charge(16384).unwrap();
    assert_eq!(
        names(place.path()),
        [format!("{}-2.pcap", name(1)), format!("{}-2.txt", name(1)), format!("{}_RAW-2.pcap", name(1))]
    );
}

/// Seven dumps of 1 MiB, oldest first.
fn seven(folder: &Path) -> Vec<String> {
    let names: Vec<String> = (1..=7).map(|id| format!("{}.pcapng", name(id))).collect();
    for (at, name) in names.iter().enumerate() {
        dump(folder, name, at as u64 + 1, MIB);
    }
    names
}

#[test]
fn nothing_is_deleted_while_no_dump_needs_room() {
    let place = tempfile::tempdir().unwrap();
    let all = seven(place.path());
    let budget = open(place.path(), Limits { bytes_max: Some(6 * MIB), rotate: true, ..Limits::default() });
    for _ in 0..3 {
        assert_eq!((budget.look(), budget.is_full()), (vec![], false), "room can be made");
        reads_again(&budget);
    }
    assert_eq!(names(place.path()), all);
    let mut writing = Charged::to(&Some(budget.clone()));
    writing.charge(1).unwrap();
    assert_eq!(names(place.path()), all[2..], "over the bound by 1 MiB, and a dump has room for one more");
}

#[test]
fn nothing_is_deleted_where_that_makes_no_room() {
    let place = tempfile::tempdir().unwrap();
    let mut all = seven(place.path());
    let budget = open(place.path(), Limits { bytes_max: Some(8 * MIB), rotate: true, ..Limits::default() });
    assert!(!budget.is_full() && budget.look().is_empty());
    // One that gets its name just now, and may not be deleted.
    let _publishing = budget.publish(&name(99));
    dump(place.path(), &format!("{}.pcapng", name(99)), 99, 9 * MIB);
    all.push(format!("{}.pcapng", name(99)));
    budget.lock().last_read = None;
    reads_again(&budget);
    let said = budget.look();
    assert!(budget.is_full());
    assert!(
        matches!(&said[..], [Change::Full(why)] if why.contains("deletes none of the 7 dumps")),
        "{said:?}"
    );
    for _ in 0..3 {
        assert_eq!(
            Charged::to(&Some(budget.clone())).charge(1).unwrap_err().kind(),
            io::ErrorKind::StorageFull
        );
        assert!(budget.look().is_empty(), "said once");
        reads_again(&budget);
    }
    assert_eq!(names(place.path()), all);
    std::fs::remove_file(place.path().join(&all[7])).unwrap();
    wait_for_room(&budget);
    Charged::to(&Some(budget.clone())).charge(MIB + 1).unwrap();
    assert_eq!(names(place.path()), all[1..7]);
}

/// The pause before the folder may be read again is over; it is the longer the longer the last reading took.
fn reads_again(budget: &Budget) {
    budget.lock().next_read = None;
}

fn wait_for_room(budget: &Budget) {
    let began = Instant::now();
    while budget.is_full() {
        assert!(began.elapsed() < Duration::from_secs(120));
        std::thread::sleep(READ_PAUSE_MIN);
        budget.look();
    }
}

#[test]
fn several_open_dumps_take_no_more_than_they_need_and_none_that_is_open() {
    let place = tempfile::tempdir().unwrap();
    let all = seven(place.path());
    let budget = open(place.path(), Limits { bytes_max: Some(8 * MIB), rotate: true, ..Limits::default() });
    let account = Some(budget.clone());
    let mut open: Vec<Charged> = (0..3).map(|_| Charged::to(&account)).collect();
    for charged in &mut open {
        charged.charge(MIB).unwrap();
    }
    assert_eq!(names(place.path()), all[2..], "the first had room, the others took one each");
    for _ in 0..5 {
        open[0].charge(MIB).unwrap();
    }
    assert!(names(place.path()).is_empty());
    assert!(open[1].charge(1).is_err(), "8 MiB are being written: there is nothing left to delete");
    assert!(budget.is_full());
}

#[test]
fn a_dump_that_is_kept_under_another_name_is_not_deleted_for_free_space() {
    let place = tempfile::tempdir().unwrap();
    let all = seven(place.path());
    std::fs::hard_link(place.path().join(&all[0]), place.path().join("kept")).unwrap();
    let folder = Folder::open(place.path()).unwrap();
    let (mut entries, none) = (VecDeque::new(), BTreeSet::new());
    files::list(&folder, &mut Known::default(), |entry| entries.push_back(entry)).unwrap();
    for (at, name) in all.iter().enumerate() {
        let first = entries.iter().find(|entry| entry.name == *name).unwrap();
        let Found::Dump(dump) = files::dump_of(&folder, first, &entries, &none) else { panic!("{name}") };
        assert_eq!((dump.gain().bytes, dump.gain().disk >= MIB), (MIB, at > 0), "{name}");
        let room = Room::new(
            &Limits { free_min: Some(SizeOrShare::Bytes(9)), ..Limits::default() },
            0,
            Some((5, 100)),
        );
        assert_eq!(room.is_helped(dump.gain(), 1), at > 0);
    }
}

#[test]
fn a_dump_that_has_changed_since_it_was_looked_at_is_left_alone() {
    let place = tempfile::tempdir().unwrap();
    let all = seven(place.path());
    let budget = open(place.path(), Limits { bytes_max: Some(7 * MIB), rotate: true, ..Limits::default() });
    assert!(!budget.is_full());
    budget.lock().next_read = Some(Instant::now() + Duration::from_secs(3600));
    OpenOptions::new().write(true).open(place.path().join(&all[0])).unwrap().set_len(MIB + 1).unwrap();
    Charged::to(&Some(budget.clone())).charge(1).unwrap();
    assert_eq!(names(place.path()), [&all[..1], &all[2..]].concat());
}
