//! Dumps whose disk fails them at the end, and pipes: what is not kept is not counted as kept, and all of it
//! is stated.

mod live_bench;

use live_bench::{Bench, Dice, Gate, begin, read, read_file};
use scope_dump::disk::Disk;
use scope_dump::{DumpFormat, DumpOutput, DumpReport, SystemDisk, Target};
use scope_folder::Folder;
use scope_packet::{GapReason, LinkType};
use scope_trigger::Window;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex};

/// What fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Sync,
    SyncOfFolder,
    /// The head can't be patched: the disk has become read-only.
    Head,
    /// No file gets a name: the folder is gone.
    Name,
    /// The same of the file that isn't the dump's main one.
    NameOfSecond,
}

#[derive(Debug)]
struct Faulty(Fault);

impl Faulty {
    fn fail(&self, fault: Fault, kind: io::ErrorKind) -> io::Result<()> {
        if self.0 == fault { Err(kind.into()) } else { Ok(()) }
    }
}

impl Disk for Faulty {
    fn write_at(&self, file: &File, bytes: &[u8], at: u64) -> io::Result<()> {
        self.fail(Fault::Head, io::ErrorKind::ReadOnlyFilesystem)?;
        SystemDisk.write_at(file, bytes, at)
    }

    fn sync(&self, file: &File) -> io::Result<()> {
        self.fail(Fault::Sync, io::ErrorKind::Other)?;
        SystemDisk.sync(file)
    }

    fn sync_folder(&self, folder: &Folder) -> io::Result<()> {
        self.fail(Fault::SyncOfFolder, io::ErrorKind::Other)?;
        SystemDisk.sync_folder(folder)
    }

    fn give_name(&self, folder: &Folder, file: &File, name: &OsStr) -> io::Result<()> {
        self.fail(Fault::Name, io::ErrorKind::NotFound)?;
        if name.to_string_lossy().contains("RAW") {
            self.fail(Fault::NameOfSecond, io::ErrorKind::StorageFull)?;
        }
        SystemDisk.give_name(folder, file, name)
    }
}

const PACKETS: u64 = 300;

/// A dump of 300 packets of Ethernet and as many of RAW, all of them in its window; what it says.
fn dump(output: DumpOutput) -> DumpReport {
    let (mut dice, gate) = (Dice(5), Arc::new(Gate::default()));
    gate.set_free();
    // The window begins with packets of another link type than that of the hit.
    let mut bench = Bench::of(&[LinkType::RAW, LinkType::ETHERNET], 64, 0, 0);
    let mut last = (0, None);
    for at in 0..2 * PACKETS {
        last = bench.feed((at % 2) as u32, &mut dice);
    }
    bench.commit();
    let (hit_ns, place) = last;
    let window = Arc::new(Window::new(1, hit_ns, hit_ns));
    let dump = begin(&bench, place, &window, 1, output, &gate);
    for worker in 0..2 {
        bench.ring.end_clock(worker);
    }
    dump.join().unwrap()
}

fn with(fault: Fault, folder: &Path) -> DumpReport {
    let target = Target::Folder(Arc::new(Folder::open(folder).unwrap()));
    dump(DumpOutput {
        format: DumpFormat::Pcapng,
        target,
        budget: None,
        disk: Arc::new(Faulty(fault)),
        spool: None,
    })
}

fn names(folder: &Path) -> usize {
    std::fs::read_dir(folder).unwrap().count()
}

#[test]
fn where_only_the_sync_fails_the_files_get_their_names_and_say_so() {
    for fault in [Fault::Sync, Fault::SyncOfFolder] {
        let folder = tempfile::tempdir().unwrap();
        let report = with(fault, folder.path());
        assert_eq!(
            (report.packets, report.paths.len(), names(folder.path())),
            (2 * PACKETS, 2, 2),
            "{fault:?}: {report:#?}"
        );
        assert_eq!(read(&report).len() as u64, PACKETS);
        let error = report.error.as_deref().unwrap();
        assert!(
            error.contains("perhaps not on the disk") && !report.complete && report.has_failed(),
            "{fault:?}: {report:#?}"
        );
        for path in &report.paths {
            let file = std::fs::read(path).unwrap();
            let head = String::from_utf8_lossy(&file[..4096]).into_owned();
            assert!(
                head.contains("perhaps not on the disk") && !head.contains("complete: every"),
                "{fault:?}: {head}"
            );
        }
    }
}

#[test]
fn a_dump_that_gets_no_name_has_no_packets_and_lacks_all_of_them() {
    for fault in [Fault::Name, Fault::Head] {
        let folder = tempfile::tempdir().unwrap();
        let report = with(fault, folder.path());
        assert_eq!(
            (report.packets, report.bytes, report.paths.len(), names(folder.path())),
            (0, 0, 0, 0),
            "{fault:?}: {report:#?}"
        );
        assert_eq!((report.lost_min, report.lost_max), (2 * PACKETS, 2 * PACKETS), "{fault:?}: {report:#?}");
        assert!(report.error.is_some() && !report.complete && report.has_failed());
        assert!(report.gaps.iter().all(|gap| gap.reason == GapReason::Disk), "{fault:?}: {report:#?}");
        let (from_ns, to_ns) = report.missing.unwrap();
        assert!(from_ns > 1 && to_ns == report.time_ns, "where its packets are: {report:#?}");
    }
}

#[test]
fn the_main_file_of_a_dump_says_that_another_one_could_not_be_kept() {
    let folder = tempfile::tempdir().unwrap();
    let report = with(Fault::NameOfSecond, folder.path());
    assert_eq!(
        (report.packets, report.paths.len(), report.lost_min, report.lost_max),
        (PACKETS, 1, PACKETS, PACKETS)
    );
    assert_eq!(read(&report).len() as u64, PACKETS);
    let file = std::fs::read(&report.paths[0]).unwrap();
    let head = String::from_utf8_lossy(&file[..4096]).into_owned();
    assert!(
        head.contains("incomplete: at least 300 and at most 300")
            && head.contains(" disk, 300 to 300 packets"),
        "{head}"
    );
}

#[test]
fn a_pipe_whose_window_begins_with_another_link_type_gets_the_packets_of_the_hits() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pipe");
    let target = Target::Stream(File::create(&path).unwrap());
    let report = dump(DumpOutput {
        format: DumpFormat::Pcapng,
        target,
        budget: None,
        disk: Arc::new(SystemDisk),
        spool: None,
    });
    assert_eq!(
        (report.packets, report.lost_min, report.lost_max),
        (PACKETS, PACKETS, PACKETS),
        "{report:#?}"
    );
    assert!(read_file(&path).keys().all(|(lane, _)| *lane == 1));
    assert_eq!(read_file(&path).len() as u64, PACKETS);
    assert!(
        report.error.as_deref().is_some_and(|error| error.contains("holds one link type")),
        "{report:#?}"
    );
}

/// Notes the acts of a dump's end, in order.
#[derive(Debug, Default)]
struct Noting(Arc<Mutex<Vec<&'static str>>>);

impl Noting {
    fn note(&self, act: &'static str) {
        self.0.lock().unwrap().push(act);
    }
}

impl Disk for Noting {
    fn sync(&self, file: &File) -> io::Result<()> {
        self.note("sync");
        SystemDisk.sync(file)
    }

    fn sync_folder(&self, folder: &Folder) -> io::Result<()> {
        self.note("sync of the folder");
        SystemDisk.sync_folder(folder)
    }

    fn give_name(&self, folder: &Folder, file: &File, name: &OsStr) -> io::Result<()> {
        self.note("name");
        SystemDisk.give_name(folder, file, name)
    }
}

#[test]
fn each_file_is_on_the_disk_before_it_gets_its_name_and_the_folder_is_synced_after_that() {
    // pcap: the text beside the files, too.
    for (format, files) in [(DumpFormat::Pcapng, 2), (DumpFormat::Pcap, 3)] {
        let folder = tempfile::tempdir().unwrap();
        let target = Target::Folder(Arc::new(Folder::open(folder.path()).unwrap()));
        let acts = Arc::<Mutex<Vec<&str>>>::default();
        let disk = Arc::new(Noting(acts.clone()));
        let report = dump(DumpOutput { format, target, budget: None, disk, spool: None });
        assert!(report.complete, "{report:#?}");
        let expected = ["sync", "name", "sync of the folder"].repeat(files);
        assert_eq!(*acts.lock().unwrap(), expected, "{format:?}");
    }
}
