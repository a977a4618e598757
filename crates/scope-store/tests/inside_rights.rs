//! What the store does of a file system works inside the rights that a run keeps: in a process of its own,
//! since there is no way back.

mod room;

use room::*;
use scope_folder::Folder;
use scope_rights::{FolderUse, RightsPlan, UserChoice, Writable};
use scope_ring::MemoryOptions;
use scope_store::disk::Disk;
use std::ffi::OsStr;
use std::path::Path;

fn everything(disk: &mut dyn Disk) {
    let (part, name) = (Path::new("2026-11-20/a.part"), Path::new("2026-11-20/a"));
    let file = disk.create(part).unwrap();
    disk.reserve(file, 8 << 20).unwrap();
    for at in 0..100 {
        disk.begin(write(at, file, of_pages(at as usize), pages(1, at))).unwrap();
    }
    all_good(disk);
    disk.begin(sync(0, file)).unwrap();
    all_good(disk);
    disk.truncate(file, of_pages(50)).unwrap();
    disk.close(file);
    disk.sync_names(Path::new("2026-11-20")).unwrap();
    disk.sync_names(Path::new("")).unwrap();
    disk.rename(part, name).unwrap();
    assert_eq!(read(disk, "2026-11-20/a", of_pages(49), 9999), pages(1, 49).as_slice());
    assert!(disk.list().unwrap().iter().any(|standing| standing.name == name));
    assert!(disk.room().unwrap().total > 0);
    let again = disk.open(name).unwrap();
    disk.close(again);
    disk.remove(name).unwrap();
    assert!(disk.list().unwrap().iter().all(|standing| standing.name != name));
}

#[test]
fn both_ways_do_everything_inside_the_rights_that_a_run_keeps() {
    let (ring, _pins) = ring(64 << 10, 32, &MemoryOptions::default());
    let folder = folder();
    let disks = both(folder.path(), Some(&ring));
    let opened = Folder::open(folder.path()).unwrap();
    let plan = RightsPlan { user: UserChoice::Best, selftest: false };
    let writable =
        [Writable { folder: &opened, file: OsStr::new("log"), folder_use: FolderUse::OwnWithFolders }];
    let decision = scope_rights::decide(&plan, &writable).unwrap();
    let rights = scope_rights::give_up(decision, &writable).unwrap();
    println!("{rights}");
    for (mut disk, way) in disks {
        println!("{way}");
        // A volume has a thread of its own, which begins later.
        std::thread::spawn(move || everything(&mut *disk)).join().unwrap();
        assert!(!folder.path().join("2026-11-20").exists());
    }
    if rights.landlock_abi > 0 {
        std::fs::create_dir(folder.path().join("../beside")).unwrap_err();
    }
}
