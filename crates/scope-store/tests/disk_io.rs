//! Both ways to write, by one set of tests, on the disk that the build lies on, in memory, and on file
//! systems that are full, closed or stand still.

mod room;

use room::*;
use scope_folder::Folder;
use scope_ring::MemoryOptions;
use scope_store::disk::{Act, Begun, Bytes, Disk, FileNumber, Finished, Standing};
use scope_store::io::{Calls, Want, open};
use scope_testkit::lab::disk::{self as lab, Kind, own_mounts};
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;

/// Runs `test` for both ways, each in a folder of its own.
fn check_both(test: impl Fn(&mut dyn Disk, &Path)) {
    for index in 0..2 {
        let folder = folder();
        let [best, plain] = both(folder.path(), None);
        let (mut disk, way) = if index == 0 { best } else { plain };
        println!("{way}");
        test(&mut *disk, folder.path());
        assert_eq!(disk.pending(), 0);
    }
}

fn refusal<T>(result: std::io::Result<T>) -> ErrorKind {
    result.err().expect("an error").kind()
}

#[test]
fn a_file_is_made_written_synced_truncated_named_listed_read_and_removed() {
    check_both(|disk, path| {
        let (part, name) = (Path::new("2026-11-20/a.pcapng.part"), Path::new("2026-11-20/a.pcapng"));
        let file = disk.create(part).unwrap();
        disk.reserve(file, 8 * MIB).unwrap();
        let listed = disk.list().unwrap();
        assert_eq!((listed.len(), listed[0].name.as_path(), listed[0].len), (1, part, 0));
        assert!(listed[0].taken >= 8 * MIB, "{listed:?}");
        for number in 0..40 {
            disk.begin(write(number, file, of_pages(number as usize * 2), pages(2, number))).unwrap();
        }
        let mut tags: Vec<u64> = all_good(disk).iter().map(|finished| finished.begun.tag).collect();
        tags.sort();
        assert_eq!(tags, (0..40).collect::<Vec<u64>>());
        disk.begin(sync(99, file)).unwrap();
        assert_eq!(all_good(disk)[0].begun.tag, 99);
        disk.truncate(file, of_pages(79) - 5).unwrap();
        disk.close(file);
        disk.sync_names(Path::new("2026-11-20")).unwrap();
        disk.rename(part, name).unwrap();
        disk.sync_names(Path::new("2026-11-20")).unwrap();
        disk.sync_names(Path::new("")).unwrap();
        let standing = disk.list().unwrap();
        assert!(standing[0].taken < MIB, "what was reserved behind the end is given back: {standing:?}");
        assert_eq!((standing[0].name.as_path(), standing[0].len), (name, of_pages(79) - 5));
        let bytes = std::fs::read(path.join(name)).unwrap();
        for number in 0..39 {
            let at = of_pages(number * 2) as usize;
            let expected = pages(2, number as u64);
            assert!(bytes[at..at + of_pages(2) as usize] == *expected.as_slice(), "{number}");
        }
        assert_eq!(read(disk, "2026-11-20/a.pcapng", of_pages(78), 1 << 20), bytes[of_pages(78) as usize..]);
        assert!(read(disk, "2026-11-20/a.pcapng", of_pages(100), 10).is_empty());
        // Open again, longer than before.
        let again = disk.open(name).unwrap();
        disk.begin(write(1, again, of_pages(100), pages(1, 5))).unwrap();
        all_good(disk);
        disk.close(again);
        assert_eq!(read(disk, "2026-11-20/a.pcapng", of_pages(100), 4096), pages(1, 5).as_slice());
        disk.remove(name).unwrap();
        assert!(disk.list().unwrap().is_empty() && !path.join("2026-11-20").exists());
    });
}

#[test]
fn files_and_folders_of_a_volume_are_closed_to_everybody_else() {
    let before = rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
    check_both(|disk, path| {
        for name in ["2026-11-20/a", "2026-11-20/b", "c"] {
            let file = disk.create(Path::new(name)).unwrap();
            disk.close(file);
        }
        let mode = |name: &str| path.join(name).metadata().unwrap().permissions().mode() & 0o7777;
        let nobody = rustix::process::geteuid().as_raw() == 65534;
        let expected = if nobody { [0o700, 0o600, 0o600] } else { [0o750, 0o640, 0o640] };
        assert_eq!(["2026-11-20", "2026-11-20/a", "c"].map(mode), expected);
        disk.remove(Path::new("2026-11-20/a")).unwrap();
        assert!(path.join("2026-11-20").exists(), "something is in it");
    });
    rustix::process::umask(before);
}

#[test]
fn a_volume_that_is_moved_is_written_to_where_it_is() {
    check_both(|disk, path| {
        let moved = path.with_extension("moved");
        std::fs::rename(path, &moved).unwrap();
        std::fs::create_dir(path).unwrap();
        let file = disk.create(Path::new("2026-11-20/a")).unwrap();
        disk.begin(write(1, file, 0, pages(1, 1))).unwrap();
        all_good(disk);
        disk.close(file);
        assert_eq!(std::fs::read(moved.join("2026-11-20/a")).unwrap(), pages(1, 1).as_slice());
        assert!(std::fs::read_dir(path).unwrap().next().is_none());
        std::fs::remove_dir_all(&moved).unwrap();
    });
}

#[test]
fn what_stands_in_a_volume_is_listed_but_for_links_and_folders_of_others() {
    check_both(|disk, path| {
        for folder in ["2026-11-20", "2026-11-21", "lost+found"] {
            std::fs::create_dir(path.join(folder)).unwrap();
            std::fs::write(path.join(folder).join("x"), "four").unwrap();
        }
        std::fs::write(path.join("wirescope.store"), "{}").unwrap();
        std::os::unix::fs::symlink("2026-11-20", path.join("2026-11-22")).unwrap();
        std::os::unix::fs::symlink("x", path.join("2026-11-20/y")).unwrap();
        let listed: Vec<(String, u64)> = disk
            .list()
            .unwrap()
            .into_iter()
            .map(|Standing { name, len, .. }| (name.display().to_string(), len))
            .collect();
        let expected = [("wirescope.store", 2), ("2026-11-20/x", 4), ("2026-11-21/x", 4)];
        assert_eq!(listed, expected.map(|(name, len)| (name.to_string(), len)));
        assert!(
            disk.open(Path::new("2026-11-20/y")).is_err() && disk.open(Path::new("2026-11-22/x")).is_err()
        );
        let room = disk.room().unwrap();
        assert!(room.free <= room.total && room.total > 0, "{room:?}");
    });
}

#[test]
fn what_must_not_be_is_refused_and_changes_nothing() {
    check_both(|disk, _| {
        let [a, b] = ["2026-11-20/a", "2026-11-20/b"].map(Path::new);
        let (first, other) = (disk.create(a).unwrap(), disk.create(b).unwrap());
        assert_ne!(first, other);
        assert_eq!(refusal(disk.create(a)), ErrorKind::AlreadyExists);
        assert_eq!(refusal(disk.rename(a, b)), ErrorKind::AlreadyExists);
        assert_eq!(refusal(disk.rename(a, Path::new("a"))), ErrorKind::InvalidInput);
        for name in ["../a", "/etc/a", "", "x/y/z"] {
            assert_eq!(refusal(disk.create(Path::new(name))), ErrorKind::InvalidInput, "{name}");
        }
        let missing = Path::new("2026-11-20/missing");
        assert_eq!(refusal(disk.open(missing)), ErrorKind::NotFound);
        assert_eq!(refusal(disk.remove(missing)), ErrorKind::NotFound);
        assert_eq!(refusal(disk.rename(missing, a)), ErrorKind::NotFound);
        assert_eq!(refusal(disk.read(Path::new("2026-11-21/a"), 0, &mut [0])), ErrorKind::NotFound);
        assert_eq!(refusal(disk.reserve(FileNumber(77), 1)), ErrorKind::InvalidInput);
        let check = |disk: &mut dyn Disk, begun| {
            disk.begin(begun).unwrap();
            let finished = finish_all(disk).remove(0);
            assert_eq!(finished.begun.tag, 5);
            refusal(finished.result)
        };
        for wrong in [write(5, first, 17, pages(1, 1)), write(5, first, 0, pages(0, 1))] {
            assert_eq!(check(disk, wrong), ErrorKind::InvalidInput);
        }
        disk.close(other);
        for wrong in [write(5, other, 0, pages(1, 1)), sync(5, other), sync(5, FileNumber(1000))] {
            assert_eq!(check(disk, wrong), ErrorKind::InvalidInput);
        }
        assert!(disk.list().unwrap().iter().all(|standing| standing.len == 0));
    });
}

#[test]
fn as_many_files_as_there_may_be_are_open_at_once_and_places_are_used_again() {
    check_both(|disk, _| {
        let name = |number: u64| format!("2026-11-20/{number}");
        let mut files = Vec::new();
        let refused = loop {
            match disk.create(Path::new(&name(files.len() as u64))) {
                Ok(file) => files.push(file),
                Err(error) => break error,
            }
        };
        assert!(refused.to_string().contains("at most 64 files") && files.len() == 64, "{refused}");
        for (number, file) in (0..).zip(&files) {
            disk.begin(write(number, *file, 0, pages(1, number))).unwrap();
        }
        all_good(disk);
        disk.close(files[7]);
        let again = disk.create(Path::new(&name(100))).unwrap();
        disk.begin(write(100, again, 0, pages(1, 100))).unwrap();
        all_good(disk);
        for number in (0..64).chain([100]) {
            assert_eq!(read(disk, &name(number), 0, 9000), pages(1, number).as_slice(), "{number}");
        }
    });
}

#[test]
fn random_writes_are_read_back_as_they_were_written() {
    check_both(|disk, _| {
        const LEN: usize = 600;
        let name = "2026-11-20/a";
        let file = disk.create(Path::new(name)).unwrap();
        disk.reserve(file, of_pages(LEN)).unwrap();
        let mut expected = vec![0; of_pages(LEN) as usize];
        let mut state = 12_345u64;
        let mut random = |below: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) as usize % below
        };
        let mut end = 0;
        for round in 0..40 {
            // Those of a round don't overlap, so that their order doesn't matter.
            let mut at = random(20);
            while at < LEN {
                let count = (1 + random(64)).min(LEN - at);
                let written = pages(count, (round * 1000 + at) as u64);
                let from = of_pages(at) as usize;
                expected[from..from + written.as_slice().len()].copy_from_slice(written.as_slice());
                end = end.max(at + count);
                disk.begin(write(at as u64, file, of_pages(at), written)).unwrap();
                if random(8) == 0 {
                    disk.begin(sync(u64::MAX, file)).unwrap();
                }
                if random(4) == 0 {
                    let mut finished = Vec::new();
                    disk.finish(Duration::ZERO, &mut finished).unwrap();
                    assert!(finished.iter().all(|finished| finished.result.is_ok()));
                }
                at += count + random(100);
            }
            all_good(disk);
        }
        let found = read(disk, name, 0, expected.len() + 1);
        assert!(found == expected[..of_pages(end) as usize], "{} of {}", found.len(), of_pages(end));
    });
}

#[test]
fn segments_go_to_disk_straight_from_each_kind_of_memory() {
    let _reserved = HugePages::reserve(16);
    for options in [
        MemoryOptions::default(),
        MemoryOptions { without_hugetlb: true, ..MemoryOptions::default() },
        MemoryOptions { without_hugetlb: true, locked: true, ..MemoryOptions::default() },
    ] {
        // The second is too small for huge pages.
        for (segment_bytes, segments) in [(MIB, 32), (64 << 10, 17)] {
            let (ring, pins) = ring(segment_bytes, segments, &options);
            println!("{}", ring.memory());
            let folder = folder();
            for (number, (mut disk, way)) in both(folder.path(), Some(&ring)).into_iter().enumerate() {
                println!("{way}");
                let name = format!("2026-11-20/{number}");
                let file = disk.create(Path::new(&name)).unwrap();
                for (index, pinned) in (0u64..).zip(&pins) {
                    let again = ring.pin(pinned.id()).unwrap();
                    disk.begin(write_segment(index, file, index * segment_bytes, again)).unwrap();
                }
                all_good(&mut *disk);
                let written = std::fs::read(folder.path().join(&name)).unwrap();
                let expected: Vec<u8> =
                    pins.iter().flat_map(|pinned| pinned.whole().unwrap()).copied().collect();
                assert!(written == expected, "{} and {} bytes", written.len(), expected.len());
            }
        }
    }
}

#[test]
fn a_body_of_the_ring_and_a_foot_of_ones_own_stand_behind_each_other() {
    const SEGMENT: u64 = 64 << 10;
    let (ring, pins) = ring(SEGMENT, 128, &MemoryOptions::default());
    let folder = folder();
    for (number, (mut disk, _)) in both(folder.path(), Some(&ring)).into_iter().enumerate() {
        let name = format!("2026-11-20/{number}");
        let file = disk.create(Path::new(&name)).unwrap();
        disk.reserve(file, pins.len() as u64 * SEGMENT).unwrap();
        let (mut expected, mut tags) = (Vec::new(), Vec::new());
        for (index, pinned) in (0u64..).zip(&pins) {
            let (again, at, foot) = (ring.pin(pinned.id()).unwrap(), index * SEGMENT, pages(1, index));
            let body = 0..(SEGMENT - of_pages(1)) as usize;
            expected.extend_from_slice(&pinned.whole().unwrap()[body.clone()]);
            expected.extend_from_slice(foot.as_slice());
            disk.begin(Begun {
                tag: 2 * index,
                act: Act::Write { file, at, bytes: Bytes::Ring(again, body.clone()) },
            })
            .unwrap();
            disk.begin(write(2 * index + 1, file, at + body.end as u64, foot)).unwrap();
            if index % 7 == 0 {
                let mut finished = Vec::new();
                disk.finish(Duration::ZERO, &mut finished).unwrap();
                tags.extend(finished.iter().map(|finished| finished.begun.tag));
            }
        }
        tags.extend(all_good(&mut *disk).iter().map(|finished| finished.begun.tag));
        tags.sort();
        assert_eq!(tags, (0..2 * pins.len() as u64).collect::<Vec<u64>>(), "each is finished once");
        let written = std::fs::read(folder.path().join(&name)).unwrap();
        assert!(written == expected, "{} and {} bytes", written.len(), expected.len());
    }
}

#[test]
fn a_segment_is_pinned_until_its_write_has_finished_also_when_the_disk_is_dropped() {
    let (ring, mut pins) = ring(64 << 10, 32, &MemoryOptions::default());
    let folder = folder();
    for (number, (mut disk, _)) in both(folder.path(), Some(&ring)).into_iter().enumerate() {
        let pinned = pins.pop().unwrap();
        let (id, bytes) = (pinned.id(), pinned.whole().unwrap().to_vec());
        let name = format!("2026-11-20/{number}");
        let file = disk.create(Path::new(&name)).unwrap();
        disk.begin(write_segment(1, file, 0, pinned)).unwrap();
        assert_eq!(disk.pending(), 1);
        let finished = all_good(&mut *disk);
        let Act::Write { bytes: given_back, .. } = &finished[0].begun.act else { panic!("a write") };
        assert!(given_back.as_slice() == bytes);
        drop(finished);
        for at in 1..8 {
            let again = ring.pin(id).unwrap();
            disk.begin(write_segment(1, file, at * (64 << 10), again)).unwrap();
        }
        drop(disk);
        let written = std::fs::read(folder.path().join(&name)).unwrap();
        assert!(written == bytes.repeat(8), "what was begun is written before the end");
    }
}

#[test]
fn a_file_system_in_memory_is_written_to_by_pwrite_and_the_reason_is_said() {
    let Ok(folder) = tempfile::tempdir_in("/dev/shm") else { return skip("/dev/shm can't be written to") };
    let volume = Arc::new(Folder::open(folder.path()).unwrap());
    let (mut disk, way) = open(&volume, None, Want::Best);
    assert_eq!(way.to_string(), "pwrite: the file system has no O_DIRECT (tmpfs)");
    let file = disk.create(Path::new("2026-11-20/a")).unwrap();
    disk.reserve(file, MIB).unwrap();
    for at in 0..100 {
        disk.begin(write(at, file, of_pages(at as usize), pages(1, at))).unwrap();
    }
    disk.begin(sync(1, file)).unwrap();
    all_good(&mut *disk);
    assert_eq!(read(&mut *disk, "2026-11-20/a", of_pages(99), 5000), pages(1, 99).as_slice());
    assert!(std::fs::read_dir(folder.path()).unwrap().count() == 1, "the trial has left nothing");
}

/// A file system that is mounted for this thread alone; `None`, said why, where none can be.
fn mounted(kind: Kind, path: &Path) -> Option<lab::Disk> {
    if let Some(lacking) = lab::lacks() {
        skip(lacking);
        return None;
    }
    if let Err(error) = own_mounts() {
        skip(&format!("mounting: {error}"));
        return None;
    }
    Some(lab::Disk::mount(kind, path).unwrap())
}

#[test]
fn a_full_disk_is_an_error_of_the_write_that_it_met_and_leaves_the_rest() {
    let root = folder();
    for (kind, room) in [(Kind::Own(16), 16 * MIB), (Kind::Small(4096), 4 * MIB)] {
        let path = root.path().join(format!("{room}"));
        std::fs::create_dir(&path).unwrap();
        let Some(_mounted) = mounted(kind, &path) else { return };
        for (number, (mut disk, way)) in both_quietly(&path).into_iter().enumerate() {
            println!("{way}");
            let free = disk.room().unwrap().free;
            let name = format!("2026-11-20/{number}");
            let file = disk.create(Path::new(&name)).unwrap();
            let refused = disk.reserve(file, 2 * room).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::StorageFull);
            disk.truncate(file, 0).unwrap(); // what was reserved up to there
            let step = of_pages(64);
            for at in 0..2 * room / step {
                disk.begin(write(at, file, at * step, pages(64, at))).unwrap();
            }
            let (mut good, mut full) = (0, 0);
            let mut finished = finish_all(&mut *disk);
            disk.begin(sync(1, file)).unwrap();
            finished.extend(finish_all(&mut *disk));
            for Finished { begun, result } in finished {
                match (begun.act, result) {
                    (Act::Write { at, bytes, .. }, Ok(())) => {
                        assert!(read(&mut *disk, &name, at, step as usize) == bytes.as_slice());
                        good += 1;
                    }
                    (_, Ok(())) => {}
                    (_, Err(error)) => {
                        assert_eq!(error.kind(), ErrorKind::StorageFull, "{error}");
                        full += 1;
                    }
                }
            }
            assert!(good > 3 && full > 3, "{good} {full}");
            // Writes that were joined, up to 8 MiB of them, don't fail together.
            assert!(disk.room().unwrap().free < free / 2);
            disk.close(file);
            disk.remove(Path::new(&name)).unwrap();
            assert!(disk.room().unwrap().free > free / 2, "its space is free again");
        }
    }
}

/// Both ways, the first perhaps `pwrite`: for file systems where that is right.
fn both_quietly(path: &Path) -> [(Box<dyn Disk + Send>, scope_store::io::Way); 2] {
    let volume = Arc::new(Folder::open(path).unwrap());
    [open(&volume, None, Want::Best), open(&volume, None, Want::Pwrite)]
}

#[test]
fn a_disk_that_stands_still_holds_up_no_beginning_and_what_was_begun_is_done_later() {
    let root = folder();
    let path = root.path().join("still");
    std::fs::create_dir(&path).unwrap();
    let Some(mut mounted) = mounted(Kind::Own(64), &path) else { return };
    let volume = Arc::new(Folder::open(&path).unwrap());
    let (mut disk, way) = open(&volume, None, Want::Best);
    if !matches!(way.calls, Calls::Uring { .. }) {
        return skip(&way.to_string());
    }
    let file = disk.create(Path::new("2026-11-20/a")).unwrap();
    disk.reserve(file, 16 * MIB).unwrap();
    mounted.freeze().unwrap();
    for at in 0..16 {
        disk.begin(write(at, file, of_pages(at as usize), pages(1, at))).unwrap();
    }
    let (mut finished, since) = (Vec::new(), Instant::now());
    disk.finish(Duration::from_millis(200), &mut finished).unwrap();
    assert!(finished.is_empty() && since.elapsed() >= Duration::from_millis(200));
    assert_eq!(disk.pending(), 16);
    mounted.thaw().unwrap();
    assert_eq!(all_good(&mut *disk).len(), 16);
    disk.close(file);
    assert_eq!(read(&mut *disk, "2026-11-20/a", of_pages(15), 4096), pages(1, 15).as_slice());
}

#[test]
fn a_folder_that_is_closed_is_an_error_of_the_file_that_is_made() {
    let root = folder();
    let path = root.path().join("closed");
    std::fs::create_dir(&path).unwrap();
    let Some(_mounted) = mounted(Kind::Small(1024), &path) else { return };
    std::fs::write(path.join("before"), "here").unwrap();
    let remounted = std::process::Command::new("mount").args(["-o", "remount,ro"]).arg(&path).status();
    assert!(remounted.unwrap().success());
    for (mut disk, _) in both_quietly(&path) {
        assert_eq!(refusal(disk.create(Path::new("2026-11-20/a"))), ErrorKind::ReadOnlyFilesystem);
        assert_eq!(refusal(disk.open(Path::new("before"))), ErrorKind::ReadOnlyFilesystem);
        assert_eq!(read(&mut *disk, "before", 1, 10), b"ere");
        assert_eq!(disk.list().unwrap().len(), 1);
    }
}

/// Huge pages that are reserved for the time of a test, where that is possible.
struct HugePages {
    before: String,
}

const POOL: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages";

impl HugePages {
    fn reserve(pages: u64) -> Option<HugePages> {
        let before = std::fs::read_to_string(POOL).ok()?;
        let wanted = before.trim().parse::<u64>().ok()? + pages;
        let reserved = HugePages { before };
        if let Err(error) = std::fs::write(POOL, wanted.to_string()) {
            skip(&format!("no huge pages can be reserved here: {error}"));
        }
        Some(reserved)
    }
}

impl Drop for HugePages {
    fn drop(&mut self) {
        let _ = std::fs::write(POOL, self.before.trim());
    }
}
