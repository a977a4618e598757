//! Stores that are looked at: whole ones, and ones in which a byte, a line or a file is not what it was.

mod small_ring;

use scope_folder::Folder;
use scope_packet::pcapng::PacketHead;
use scope_packet::segment::{Foot, LeftOut};
use scope_packet::{DropReason, Headers, KeyEntry, LinkType};
use scope_store::chain::{ChainWriter, ChainedFile, Digest, hash_of};
use scope_store::checks::{CHECKS_AT, FLUSH_AT, FLUSH_BYTES, PAGE_BYTES};
use scope_store::head::{Head, HeadInterface};
use scope_store::name::FileName;
use scope_store::record::{self, Record, Running};
use scope_store::verify::{self, ChainProblem, Form, Meter, Partial, Progress, Report, Verdict};
use scope_store::volume::{CHAIN_FILE, Place, Store, Volume, VolumeId};
use scope_store::{StoredFile, index};
use small_ring::{SEGMENT_BYTES, eth0, small_ring};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

const RUN: [u8; 16] = [0xc3; 16];
const VOLUME: VolumeId = VolumeId([7; 16]);
/// Packets of a segment.
const PACKETS: u64 = 20;
/// Bytes of the head of a file.
const HEAD_BYTES: usize = 4096;
const BEGIN_NS: i64 = 1_763_700_000_000_000_000;

/// Segments of one lane, as a run writes them; in front of segment `n` the kernel drops `drops[n]` packets.
fn segments(folder: &Path, drops: &[u64]) -> (PathBuf, Vec<Vec<u8>>) {
    let ring = small_ring(32, RUN);
    let mut writer = ring.open_lane(0, LinkType::ETHERNET).unwrap();
    let number = ring.register(0, &eth0()).unwrap();
    let interface = writer.add_interface(number);
    for (segment, &drops) in (0..).zip(drops) {
        writer.count_dropped(interface, DropReason::Kernel, drops);
        assert!(writer.claim());
        for packet in 0..PACKETS {
            let data = [packet as u8; 60];
            let time_ns = BEGIN_NS + (segment * PACKETS + packet) as i64 * 1000;
            let head = PacketHead {
                interface: number,
                captured_len: 60,
                original_len: 60,
                time_ns,
                ..PacketHead::default()
            };
            writer.append(interface, &head, KeyEntry::new(&Headers::parse(LinkType::ETHERNET, &data)), &data);
        }
        writer.commit();
        writer.seal();
    }
    let path =
        scope_store::write_ring(&ring, &Folder::open(folder).unwrap(), OsStr::new("ring.pcapng")).unwrap();
    let stored = StoredFile::open(File::open(&path[0]).unwrap()).unwrap();
    let mut all = Vec::new();
    for index in 0..stored.segments().len() {
        let mut bytes = Vec::new();
        stored.read_segment(index, &mut bytes).unwrap();
        all.push(bytes);
    }
    (path[0].clone(), all)
}

/// A store with files of these segments.
struct Made {
    root: tempfile::TempDir,
    volume: VolumeId,
    /// All volumes of the run.
    volumes: Vec<[u8; 16]>,
    files: Vec<PathBuf>,
}

impl Made {
    fn new(files: &[&[u64]], drops: &[u64]) -> Made {
        Made::of_run(&[VOLUME], VOLUME, files, drops)
    }

    fn of_run(volumes: &[VolumeId], volume: VolumeId, files: &[&[u64]], drops: &[u64]) -> Made {
        let root = tempfile::tempdir().unwrap();
        let (_, segments) = segments(root.path(), drops);
        let made = root.path().join("store");
        drop(Volume::open(&Place::find(&made).unwrap(), volume, None).unwrap());
        let volumes = volumes.iter().map(|id| id.0).collect();
        let mut made = Made { root, volume, volumes, files: Vec::new() };
        for (number, of_file) in (1..).zip(files) {
            made.add(number, &of_file.iter().map(|&at| &segments[at as usize][..]).collect::<Vec<_>>());
        }
        made
    }

    fn store(&self) -> PathBuf {
        self.root.path().join("store")
    }

    fn add(&mut self, number: u32, segments: &[&[u8]]) {
        let interface =
            HeadInterface { name: "eth0".into(), description: "".into(), link_type: LinkType::ETHERNET };
        let head = Head {
            run_id: RUN,
            volume: self.volume.0,
            volumes: self.volumes.clone(),
            number,
            segment_bytes: SEGMENT_BYTES as u32,
            link_type: LinkType::ETHERNET,
            filter: String::new(),
            snap: 0,
            interfaces: vec![interface],
        };
        let mut bytes = head.write();
        let mut entries = Vec::new();
        for segment in segments {
            entries.push(scope_store::StoredSegment::new(segment).unwrap().entry(bytes.len() as u64));
            bytes.extend(*segment);
        }
        let name =
            FileName::growing(entries[0].foot.first_ns, &RUN, LinkType::ETHERNET, number).closed().path();
        bytes.extend(index::write(&entries));
        let path = self.store().join(&name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, bytes).unwrap();
        self.files.push(path);
    }

    /// Writes the chain; returns its head.
    fn chain(&self) -> Digest {
        let options = || File::options().read(true).write(true).create(true).truncate(false).clone();
        let mut writer =
            ChainWriter::open(options().open(self.store().join(CHAIN_FILE)).unwrap(), RUN).unwrap();
        for path in &self.files {
            let stored = StoredFile::open(File::open(path).unwrap()).unwrap();
            let feet = stored.segments().iter().map(|facts| facts.foot);
            let file = ChainedFile {
                run_id: RUN,
                name: path.strip_prefix(self.store()).unwrap().to_str().unwrap().to_string(),
                span: (
                    feet.clone().map(|f| f.min_ns).min().unwrap(),
                    feet.clone().map(|f| f.max_ns).max().unwrap(),
                ),
                packets: feet.map(|foot| u64::from(foot.packets)).sum(),
                bytes: stored.bytes(),
                hash: hash_of(&File::open(path).unwrap(), |_| {}).unwrap(),
            };
            writer.append(file).unwrap();
        }
        writer.head()
    }

    fn look(&self) -> Report {
        look(&self.store())
    }
}

fn look(path: &Path) -> Report {
    verify::look(&[path], 2, &[], &Meter::default())
}

/// All that is missing: reason, packets, and whether it is a loss.
fn missing(report: &Report) -> Vec<(&'static str, u64, bool)> {
    let rows = report.files.iter().flat_map(|file| &file.missing);
    rows.map(|row| (row.reason.name(), row.lost_min, row.is_loss())).collect()
}

#[test]
fn a_store_that_lacks_nothing_is_whole_and_read_once() {
    let made = Made::new(&[&[0, 1], &[2, 3], &[4]], &[0; 5]);
    fs::write(made.store().join("notes.txt"), "foreign").unwrap();
    let meter = Meter::default();
    let report = verify::look(&[&made.store()], 2, &[], &meter);
    assert_eq!((report.verdict(), missing(&report)), (Verdict::Whole, vec![]), "{report:?}");
    let facts: Vec<_> =
        report.files.iter().map(|file| (file.form, file.packets, file.has_checksums)).collect();
    assert_eq!(facts, [(Form::Store, 40, true), (Form::Store, 40, true), (Form::Store, 20, true)]);
    assert_eq!(report.stores[0].foreign.names, [PathBuf::from("notes.txt")]);
    assert!(meter.bytes() <= meter.expected() && meter.expected() > 5 * SEGMENT_BYTES as u64);
    // The same file by itself, and a copy of it.
    let copy = made.store().with_file_name("copy");
    fs::copy(&made.files[1], &copy).unwrap();
    let report = verify::look(&[&made.files[1], &copy], 2, &[], &Meter::default());
    assert_eq!((report.verdict(), report.twice, missing(&report)), (Verdict::Whole, 2, vec![]), "{report:?}");
    assert_eq!(report.packets(), 2 * PACKETS);
    // What is given twice, under whatever name, is looked at once.
    let link = made.store().with_file_name("link");
    std::os::unix::fs::symlink(made.store(), &link).unwrap();
    let paths = [made.store(), link, made.files[1].clone(), made.store()];
    let paths: Vec<&Path> = paths.iter().map(PathBuf::as_path).collect();
    let report = verify::look(&paths, 2, &[], &Meter::default());
    assert_eq!((report.stores.len(), report.files.len(), report.twice), (1, 3, 0), "{report:?}");
}

#[test]
fn a_changed_byte_anywhere_in_a_stored_file_is_found() {
    let root = tempfile::tempdir().unwrap();
    let (path, _) = segments(root.path(), &[0]);
    let bytes = fs::read(&path).unwrap();
    let file = File::options().write(true).open(&path).unwrap();
    assert_eq!(look(&path).verdict(), Verdict::Whole);
    // Each one; a build for debugging, which hashes slowly, tries some.
    let step = if cfg!(debug_assertions) { 37 } else { 1 };
    // Where a bit of the head is changed, which one it was is looked for, and that takes time.
    let is_tried = |at: usize| if at < HEAD_BYTES { at.is_multiple_of(61) } else { at.is_multiple_of(step) };
    for (at, byte) in bytes.iter().enumerate().filter(|(at, _)| is_tried(*at)) {
        file.write_all_at(&[byte ^ (1 << (at % 8))], at as u64).unwrap();
        let report = look(&path);
        assert!(report.verdict() >= Verdict::Damaged, "byte {at}: {report:?}");
        file.write_all_at(&[*byte], at as u64).unwrap();
    }
    assert_eq!(look(&path).verdict(), Verdict::Whole);
}

#[test]
fn packets_of_a_damaged_segment_are_missing_as_such() {
    let made = Made::new(&[&[0, 1, 2], &[3]], &[0; 4]);
    let file = File::options().write(true).open(&made.files[0]).unwrap();
    file.write_all_at(b"x", 4096 + SEGMENT_BYTES as u64 + 5).unwrap();
    let report = made.look();
    assert_eq!((missing(&report), report.verdict()), (vec![("unreadable", PACKETS, true)], Verdict::Damaged));
    let row = &report.files[0].missing[0];
    assert_eq!((row.from_ns, row.to_ns), (BEGIN_NS + 20_000, Some(BEGIN_NS + 39_000)));
    assert_eq!(report.files[0].packets, 2 * PACKETS);
}

#[test]
fn a_stored_file_cut_anywhere_is_found() {
    let root = tempfile::tempdir().unwrap();
    let (path, _) = segments(root.path(), &[0, 0]);
    let bytes = fs::read(&path).unwrap();
    for end in (0..bytes.len()).step_by(1021).chain([4096, 4096 + SEGMENT_BYTES, bytes.len() - 1]) {
        fs::write(&path, &bytes[..end]).unwrap();
        let report = look(&path);
        assert!(report.verdict() >= Verdict::Damaged, "{end} bytes: {report:?}");
    }
    fs::write(&path, [&bytes[..], b"more"].concat()).unwrap();
    assert!(look(&path).verdict() >= Verdict::Damaged);
    // Nobody knows how much stood behind the place where it ends now.
    fs::write(&path, &bytes[..4096 + SEGMENT_BYTES]).unwrap();
    let rows = look(&path).files[0].missing.clone();
    let row = &rows[0];
    assert_eq!(
        (rows.len(), row.reason.name(), row.to_ns, row.lost_max),
        (1, "unreadable", None, None),
        "{rows:?}"
    );
}

#[test]
fn a_file_of_a_store_that_lost_nearly_all_bytes_is_damaged_however_few_are_left() {
    for bytes in [0, 1, 3, 100, 4096] {
        let made = Made::new(&[&[0], &[1], &[2]], &[0; 3]);
        File::options().write(true).open(&made.files[1]).unwrap().set_len(bytes).unwrap();
        for report in [made.look(), look(&made.files[1])] {
            assert_eq!(report.verdict(), Verdict::Damaged, "{bytes} bytes: {report:?}");
        }
    }
}

#[test]
fn what_a_damaged_file_had_is_missing_there_with_its_times_and_no_other_file_is_lost() {
    let span = (BEGIN_NS + 20_000, Some(BEGIN_NS + 39_000));
    for (bytes, has_chain) in [(0, false), (5, false), (100, true), (5000, false), (5000, true)] {
        let made = Made::new(&[&[0], &[1], &[2]], &[0; 3]);
        if has_chain {
            made.chain();
        }
        File::options().write(true).open(&made.files[1]).unwrap().set_len(bytes).unwrap();
        let report = made.look();
        let verdicts: Vec<_> = report.files.iter().map(|file| file.verdict()).collect();
        assert_eq!(verdicts, [Verdict::Whole, Verdict::Damaged, Verdict::Whole], "{bytes}: {report:?}");
        assert_eq!(missing(&report), [("unreadable", PACKETS, true)], "{bytes}: {report:?}");
        let row = &report.files[1].missing[0];
        assert!(row.from_ns <= span.0 && row.from_ns >= BEGIN_NS && row.to_ns >= span.1, "{row:?}");
        assert_eq!(row.lost_max, Some(PACKETS), "{row:?}");
    }
    // Of the last one only the chain knows the end.
    let made = Made::new(&[&[0], &[1]], &[0; 2]);
    File::options().write(true).open(&made.files[1]).unwrap().set_len(100).unwrap();
    let rows = |made: &Made| made.look().files[1].missing.clone();
    let times =
        |rows: &[verify::Missing]| rows.iter().map(|row| (row.from_ns, row.to_ns)).collect::<Vec<_>>();
    assert_eq!(times(&rows(&made)), [(span.0, None)]);
    let whole = Made::new(&[&[0], &[1]], &[0; 2]);
    whole.chain();
    File::options().write(true).open(&whole.files[1]).unwrap().set_len(100).unwrap();
    assert_eq!(times(&rows(&whole)), [span]);
}

#[test]
fn of_a_file_with_a_damaged_head_every_segment_is_verified_and_the_damage_is_stated_with_its_place() {
    let made = Made::new(&[&[0], &[1, 2], &[3]], &[0; 4]);
    let whole = fs::read(&made.files[1]).unwrap();
    let index_at = HEAD_BYTES + 2 * SEGMENT_BYTES;
    let check = |bytes: &[u8], place: &str| {
        fs::write(&made.files[1], bytes).unwrap();
        let report = made.look();
        let file = &report.files[1];
        let facts = (file.form, file.packets, file.has_checksums, missing(&report).len());
        assert_eq!(facts, (Form::Store, 2 * PACKETS, true, 0), "{place}: {report:?}");
        assert_eq!(report.verdict(), Verdict::Damaged, "{place}");
        let of_others = [&report.files[0], &report.files[2]];
        assert!(of_others.iter().all(|file| file.verdict() == Verdict::Whole), "{place}: {report:?}");
        file.damages.clone()
    };
    let step = if cfg!(debug_assertions) { 512 } else { 64 };
    for at in (0..HEAD_BYTES).step_by(step) {
        let mut bytes = whole.clone();
        bytes[at..at + 64].iter_mut().for_each(|byte| *byte ^= 0x5a);
        let damages = check(&bytes, &format!("bytes from {at}"));
        assert!(damages.len() == 1 && damages[0].cause.starts_with("the head is "), "{at}: {damages:?}");
    }
    // Of a single bit the place is known, and all that the head says.
    for at in [0, 5, 15, 40, 200, 300, 1000, HEAD_BYTES - 1] {
        let mut bytes = whole.clone();
        bytes[at] ^= 4;
        let damages = check(&bytes, &format!("a bit of byte {at}"));
        assert_eq!((damages.len(), damages[0].at), (1, at as u64), "{damages:?}");
    }
    // Without an index the first foot shows what it is, and the next file's numbers that nothing stood behind.
    let mut bytes = whole.clone();
    bytes[..100].fill(7);
    check(&bytes[..index_at], "no index");
    bytes[index_at + 100] ^= 1;
    check(&bytes, "a damaged index");
    // By itself it has no name that helps.
    let alone = made.store().with_file_name("alone.pcapng");
    bytes[index_at + 100] ^= 1;
    fs::write(&alone, &bytes).unwrap();
    let report = look(&alone);
    let (file, verdict) = (&report.files[0], report.verdict());
    assert_eq!((file.form, file.packets, verdict), (Form::Store, 2 * PACKETS, Verdict::Damaged));
}

#[test]
fn files_of_another_volume_are_no_damage_and_are_counted() {
    let made = Made::new(&[&[0], &[1]], &[0; 2]);
    fs::remove_file(made.store().join("wirescope.store")).unwrap();
    let new = VolumeId([77; 16]);
    drop(Volume::open(&Place::find(&made.store()).unwrap(), new, None).unwrap());
    let report = made.look();
    assert_eq!((report.verdict(), report.stores[0].of_other_volumes), (Verdict::Whole, 2), "{report:?}");
}

#[test]
fn losses_have_the_reason_that_the_feet_state_and_gaps_are_the_disk_s() {
    let made = Made::new(&[&[0, 1], &[2, 4]], &[3, 0, 7, 0, 0]);
    let report = made.look();
    assert_eq!(missing(&report), [("kernel", 3, true), ("kernel", 7, true), ("disk", PACKETS, true)]);
    assert_eq!(report.verdict(), Verdict::Lost);
    let gap = report.files[1].missing.last().unwrap();
    assert_eq!((gap.from_ns, gap.to_ns), (BEGIN_NS + 59_000, Some(BEGIN_NS + 80_000)));
    assert_eq!(gap.of, "run c3c3c3c3 lane 0");
}

#[test]
fn what_one_volume_of_several_lacks_may_be_in_the_others_unless_they_are_given() {
    let ids = [VOLUME, VolumeId([8; 16])];
    let one = Made::of_run(&ids, ids[0], &[&[0, 2], &[4]], &[0; 5]);
    let report = one.look();
    assert_eq!((report.verdict(), missing(&report)), (Verdict::Whole, vec![("elsewhere", 0, false); 2]));
    assert!(report.files.iter().flat_map(|file| &file.missing).all(|row| row.lost_max == Some(PACKETS)));
    assert_eq!(report.partial, [Partial { run_id: RUN, given: 1, volumes: 2 }]);
    let alone = look(&one.files[0]);
    assert_eq!((missing(&alone), alone.partial.len()), (vec![("elsewhere", 0, false)], 0));
    for (files, expected) in [(&[1, 3][..], vec![]), (&[1], vec![("disk", PACKETS, true)])] {
        let other = Made::of_run(&ids, ids[1], &[files], &[0; 5]);
        let report = verify::look(&[&one.store(), &other.store()], 2, &[], &Meter::default());
        assert_eq!((missing(&report), report.partial.len()), (expected, 0), "{report:?}");
    }
    // Heads of old files don't say how many volumes there were.
    let old = Made::of_run(&[], VOLUME, &[&[0, 2]], &[0; 5]).look();
    assert_eq!((missing(&old), old.partial.len()), (vec![("disk", PACKETS, true)], 0));
}

#[test]
fn what_retention_deleted_is_listed_and_no_fault_and_another_file_that_is_gone_is_one() {
    let made = || Made::new(&[&[0], &[1], &[2], &[3]], &[0; 4]);
    let oldest = made();
    fs::remove_file(&oldest.files[0]).unwrap();
    fs::remove_file(&oldest.files[1]).unwrap();
    let report = oldest.look();
    assert_eq!((missing(&report), report.verdict()), (vec![("deleted", 2 * PACKETS, false)], Verdict::Whole));
    let row = |report: &Report| report.files.iter().find_map(|file| file.missing.first().cloned()).unwrap();
    let second_ns = |number: i64| BEGIN_NS + number * PACKETS as i64 * 1000;
    assert!(row(&report).reaches_back && row(&report).to_ns == Some(second_ns(2)), "nobody knows its begin");
    let middle = made();
    fs::remove_file(&middle.files[1]).unwrap();
    let report = middle.look();
    assert_eq!((missing(&report), report.verdict()), (vec![("gone", PACKETS, true)], Verdict::Lost));
    let gone = row(&report);
    let span = (second_ns(1) - 1000, Some(second_ns(2)));
    assert!(!gone.reaches_back && (gone.from_ns, gone.to_ns) == span, "the packets around it: {gone:?}");
    // A hold keeps the older one: then retention went on behind it.
    let hold =
        |holds: &mut scope_store::hold::Holds| holds.add(0, BEGIN_NS, "evidence", 0).map(|hold| hold.id);
    Store::look(&middle.store()).unwrap().change_holds(hold).unwrap();
    let report = middle.look();
    assert_eq!((missing(&report), report.verdict()), (vec![("deleted", PACKETS, false)], Verdict::Whole));
}

#[test]
fn the_chain_knows_the_spans_of_files_that_are_gone_also_where_nothing_is_behind_them() {
    let made = || {
        let made = Made::new(&[&[0], &[1], &[2], &[3]], &[0; 4]);
        made.chain();
        made
    };
    let begin_ns = |number: i64| BEGIN_NS + number * PACKETS as i64 * 1000;
    let rows = |made: &Made| {
        let report = made.look();
        let of_files = report.files.iter().flat_map(|file| &file.missing);
        let rows = of_files.chain(&report.stores[0].missing);
        rows.map(|row| {
            assert!(!row.reaches_back, "{row:?}");
            (row.reason.name(), row.from_ns, row.to_ns.unwrap(), row.lost_min)
        })
        .collect::<Vec<_>>()
    };
    let oldest = made();
    fs::remove_file(&oldest.files[0]).unwrap();
    fs::remove_file(&oldest.files[1]).unwrap();
    assert_eq!(rows(&oldest), [("deleted", begin_ns(0), begin_ns(2), 2 * PACKETS)]);
    let last = made();
    fs::remove_file(&last.files[3]).unwrap();
    assert_eq!(rows(&last), [("gone", begin_ns(3), begin_ns(4) - 1000, PACKETS)]);
    assert_eq!(last.look().verdict(), Verdict::Damaged);
    // All of a run.
    last.files[..3].iter().for_each(|file| fs::remove_file(file).unwrap());
    assert_eq!(rows(&last), [("deleted", begin_ns(0), begin_ns(4) - 1000, 4 * PACKETS)]);
    assert_eq!(last.look().verdict(), Verdict::Whole);
}

#[test]
fn what_recovery_cut_out_of_the_middle_of_a_file_is_no_loss_of_the_disk() {
    let made = Made::new(&[&[0, 1, 2]], &[0; 3]);
    // As recovery leaves a file whose second segment is damaged: padding, and an index without it.
    let bytes = fs::read(&made.files[0]).unwrap();
    let slot = |number: usize| {
        let from = HEAD_BYTES + number * SEGMENT_BYTES;
        bytes[from..from + SEGMENT_BYTES].to_vec()
    };
    let mut padding = vec![0; SEGMENT_BYTES];
    scope_packet::pcapng::padding(&mut padding);
    let entry = |number: usize| {
        let at = (HEAD_BYTES + number * SEGMENT_BYTES) as u64;
        scope_store::StoredSegment::new(&slot(number)).unwrap().entry(at)
    };
    let index = index::write(&[entry(0), entry(2)]);
    let recovered = [&bytes[..HEAD_BYTES], &slot(0), &padding, &slot(2), &index].concat();
    fs::write(&made.files[0], recovered).unwrap();
    let report = made.look();
    assert_eq!((missing(&report), report.verdict()), (vec![("crash", PACKETS, true)], Verdict::Lost));
}

#[test]
fn a_file_whose_name_and_head_disagree_is_damaged() {
    let made = Made::new(&[&[0], &[1]], &[0; 2]);
    let other = made.files[0].to_str().unwrap().replace("_000001", "_000009");
    fs::copy(&made.files[0], other).unwrap();
    let report = made.look();
    assert_eq!((report.verdict(), report.twice), (Verdict::Damaged, 1));
    let wrong: Vec<_> = report.files.iter().flat_map(|file| &file.damages).collect();
    assert!(wrong.len() == 1 && wrong[0].cause.contains("than its name"), "{wrong:?}");
}

#[test]
fn a_file_that_grows_is_checked_as_far_as_it_is_closed_and_one_that_was_left_is_cut() {
    let made = Made::new(&[&[0], &[1, 2]], &[0; 3]);
    let part = made.files[1].with_extension("pcapng.part");
    let bytes = fs::read(&made.files[1]).unwrap();
    fs::remove_file(&made.files[1]).unwrap();
    // Its second segment is open: 7 of its packets were flushed, a few more are on their way.
    let segments_end = 4096 + 2 * SEGMENT_BYTES;
    let mut growing = bytes[..segments_end].to_vec();
    let slot = &mut growing[segments_end - SEGMENT_BYTES..];
    let (entries_end, block_bytes) = (SEGMENT_BYTES - PAGE_BYTES, 7 * 92);
    let mut running = Running::new();
    running.add(&slot[..block_bytes], &slot[entries_end - 7 * 16..entries_end]);
    let foot = Foot::read(&slot[entries_end..]).unwrap();
    let record = Record {
        number: 1,
        packets: 7,
        block_bytes: block_bytes as u32,
        constants: record::constants(&foot),
        hashes: running.hashes(),
        left_out: LeftOut::default(),
    };
    slot[entries_end..][FLUSH_AT[0]..][..FLUSH_BYTES].copy_from_slice(&record.to_bytes());
    slot[entries_end + CHECKS_AT..SEGMENT_BYTES - 4].fill(0);
    fs::write(&part, &growing).unwrap();
    let volume = Volume::open(&Place::find(&made.store()).unwrap(), VOLUME, None).unwrap();
    let report = made.look();
    let file = &report.files[1];
    assert_eq!(
        (report.verdict(), file.progress, file.packets),
        (Verdict::Whole, Progress::Growing, PACKETS + 7)
    );
    assert_eq!((file.open_slots, report.stores[0].is_written), (1, true));
    drop(volume);
    let report = made.look();
    assert_eq!((report.verdict(), report.files[1].progress), (Verdict::Damaged, Progress::Left));
    assert!(report.files[1].damages.iter().all(|damage| damage.is_cut), "{:?}", report.files[1]);
    assert_eq!(
        (report.files[1].packets, missing(&report)),
        (PACKETS + 7, vec![("crash", PACKETS - 7, true)])
    );
}

#[test]
fn a_chain_holds_its_files_and_a_head_that_was_noted_proves_it() {
    let made = Made::new(&[&[0], &[1], &[2], &[3]], &[0; 4]);
    let head = made.chain();
    let expecting = |head: Digest| verify::look(&[&made.store()], 2, &[head], &Meter::default());
    let report = expecting(head);
    assert_eq!((report.verdict(), report.heads_missing.len()), (Verdict::Whole, 0), "{report:?}");
    let chain = report.stores[0].chain.as_ref().unwrap();
    assert_eq!((chain.lines, &chain.heads[..]), (4, &[(RUN, 4, head)][..]));
    // Another head.
    let report = expecting(Digest([1; 32]));
    assert_eq!((report.verdict(), &report.heads_missing[..]), (Verdict::Damaged, &[Digest([1; 32])][..]));
    // The last file and its line taken out: only who noted the head can know.
    let path = made.store().join(CHAIN_FILE);
    let whole = fs::read_to_string(&path).unwrap();
    let lines: Vec<&str> = whole.split_inclusive('\n').collect();
    fs::write(&path, lines[..3].concat()).unwrap();
    let last = fs::read(&made.files[3]).unwrap();
    fs::remove_file(&made.files[3]).unwrap();
    assert_eq!((made.look().verdict(), expecting(head).verdict()), (Verdict::Whole, Verdict::Damaged));
    fs::write(&made.files[3], last).unwrap();
    let problems = |report: Report| report.stores[0].chain.clone().unwrap().faults;
    assert!(matches!(&problems(made.look())[..], [ChainProblem::Unknown(_)]));
    fs::write(&path, &whole).unwrap();
    // A file that was exchanged for another whole one.
    let other = Made::new(&[&[0], &[1], &[2], &[3]], &[5; 4]);
    let own = fs::read(&made.files[1]).unwrap();
    fs::copy(&other.files[1], &made.files[1]).unwrap();
    let report = made.look();
    assert!(report.files[1].damages[0].cause.contains("the chain has the hash of"), "{report:?}");
    fs::write(&made.files[1], own).unwrap();
    // Retention takes the oldest; somebody else any.
    fs::remove_file(&made.files[0]).unwrap();
    let report = made.look();
    assert_eq!((report.verdict(), report.stores[0].chain.as_ref().unwrap().deleted), (Verdict::Whole, 1));
    fs::remove_file(&made.files[2]).unwrap();
    assert!(matches!(&problems(made.look())[..], [ChainProblem::Gone(_)]));
}
