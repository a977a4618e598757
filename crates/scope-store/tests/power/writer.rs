//! One growing file, step by step: what it takes, what it reports, how it ends, and what recovery says of it.

use super::disk::{Faults, PowerDisk};
use super::lane::Lane;
use super::small_ring::SEGMENT_BYTES;
use scope_packet::LinkType;
use scope_ring::Interfaces;
use scope_store::disk::Disk;
use scope_store::file_writer::{FilePlan, FileWriter, Given, Kept, Stage};
use scope_store::files::{Event, Files};
use scope_store::head::{Head, HeadError, HeadInterface};
use scope_store::outgoing::Outgoing;
use scope_store::recover::{Outcome, Recovery};
use scope_store::salvage::Cut;
use scope_store::{State, StoredFile};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Room for so many slots, a head of one page and an index.
pub fn bytes_for(slots: usize) -> u64 {
    (4096 + slots * SEGMENT_BYTES) as u64 + scope_store::index::bytes_of(slots, SEGMENT_BYTES)
}

/// A file for segments of the lane, with its ring's interfaces.
pub fn create(disk: &mut dyn Disk, lane: &Lane, number: u32, bytes_max: u64) -> std::io::Result<FileWriter> {
    let interface = |_| HeadInterface {
        name: "eth0".to_string(),
        description: String::new(),
        link_type: LinkType::ETHERNET,
    };
    let head = Head {
        run_id: lane.ring.run_id(),
        volume: [1; 16],
        volumes: Vec::new(),
        number,
        segment_bytes: SEGMENT_BYTES as u32,
        link_type: LinkType::ETHERNET,
        filter: String::new(),
        snap: 0,
        interfaces: lane.ring.interfaces_from(0).into_iter().map(interface).collect(),
    };
    FileWriter::create(disk, FilePlan { name: name(number), head: &head, bytes_max, summaries: None })
}

fn name(number: u32) -> PathBuf {
    PathBuf::from(format!("2026-11-20/{number}.pcapng"))
}

fn growing(number: u32) -> PathBuf {
    PathBuf::from(format!("2026-11-20/{number}.pcapng.part"))
}

/// Lets the disk finish everything.
fn settle(disk: &mut PowerDisk, writer: &mut FileWriter) {
    while disk.pending() > 0 {
        let mut finished = Vec::new();
        disk.finish(Duration::from_secs(1), &mut finished).unwrap();
        finished.into_iter().for_each(|finished| writer.finished(disk, finished));
    }
}

fn settle_all(disk: &mut PowerDisk, files: &mut Files) {
    while disk.pending() > 0 {
        let mut finished = Vec::new();
        disk.finish(Duration::from_secs(1), &mut finished).unwrap();
        for finished in finished {
            assert!(files.finished(disk, finished).is_none());
        }
    }
}

fn bytes_of(disk: &PowerDisk, name: &Path) -> Option<Vec<u8>> {
    disk.files().find(|(other, _)| *other == name).map(|(_, bytes)| bytes.to_vec())
}

fn stored(bytes: &[u8]) -> StoredFile {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(bytes).unwrap();
    StoredFile::open(file).unwrap()
}

fn kept(lane: &Lane, sequence: u64, packets: std::ops::Range<u64>, closed: bool) -> Kept {
    Kept { id: lane.ring.segment_id(0, sequence), packets, closed }
}

fn kept_of(files: &mut Files) -> Vec<Kept> {
    let kept = |event| match event {
        Event::Kept(kept) => Some(kept),
        _ => None,
    };
    files.take_events().into_iter().filter_map(kept).collect()
}

#[test]
fn the_next_flush_waits_for_the_sync_of_the_last_one_and_closed_segments_are_kept_with_it() {
    let (mut disk, mut lane) = (PowerDisk::new(1), Lane::new());
    let mut writer = create(&mut disk, &lane, 1, bytes_for(4)).unwrap();
    lane.append(&[60; 5]);
    let first = lane.next_segment();
    lane.append(&[60; 3]);
    assert!(matches!(writer.close(&mut disk, first), Given::Taken));
    assert!(writer.flush(&mut disk, vec![lane.segment()]).unwrap().is_empty());
    lane.append(&[60; 2]);
    assert!(writer.is_flushing() && writer.flush(&mut disk, vec![lane.segment()]).is_none());
    assert_eq!(writer.take_kept(), []);
    settle(&mut disk, &mut writer);
    assert_eq!(writer.take_kept(), [kept(&lane, 0, 0..5, true), kept(&lane, 1, 5..8, false)]);
    assert!(!writer.is_flushing());
    writer.flush(&mut disk, vec![lane.segment()]).unwrap();
    settle(&mut disk, &mut writer);
    assert_eq!(writer.take_kept(), [kept(&lane, 1, 8..10, false)]);
    let moment = disk.moment();
    writer.flush(&mut disk, vec![lane.segment()]).unwrap();
    assert_eq!((disk.moment(), disk.pending()), (moment, 0), "nothing is new: the disk is left alone");
}

#[test]
fn a_file_keeps_to_its_limit_with_head_and_index_and_ends_in_one() {
    let (mut disk, mut lane) = (PowerDisk::new(2), Lane::new());
    let mut writer = create(&mut disk, &lane, 1, bytes_for(3)).unwrap();
    for _ in 0..3 {
        lane.append(&[200; 20]);
        let segment = lane.next_segment();
        assert!(matches!(writer.close(&mut disk, segment), Given::Taken));
    }
    lane.append(&[200; 20]);
    let segment = lane.next_segment();
    let Given::Full(segment) = writer.close(&mut disk, segment) else { panic!("a fourth has no place") };
    assert_eq!(segment.id().sequence, 3);
    writer.end(&mut disk);
    settle(&mut disk, &mut writer);
    assert!(matches!(writer.stage(), Stage::Whole) && writer.is_over());
    assert_eq!((writer.holds().segments, writer.holds().packets), (3, 60));
    let bytes = bytes_of(&disk, &name(1)).unwrap();
    assert!(bytes.len() as u64 <= bytes_for(3) && writer.reserve_bytes() == bytes_for(3));
    let file = stored(&bytes);
    assert_eq!((file.state(), file.segments().len(), file.holes().len()), (State::Closed, 3, 0));
    assert!(bytes_of(&disk, &growing(1)).is_none());
    let too_small = create(&mut disk, &lane, 2, bytes_for(1) - 1).err().unwrap();
    assert_eq!(too_small.kind(), std::io::ErrorKind::InvalidInput);
    assert!(bytes_of(&disk, &growing(2)).is_none());
}

#[test]
fn an_open_segment_moves_to_the_next_file_when_its_own_is_full_and_leaves_padding() {
    let (mut disk, mut lane) = (PowerDisk::new(3), Lane::new());
    let mut files = Files::new();
    lane.append(&[60; 4]);
    let known = Lane::new(); // heads of one interface, as this ring's
    let mut number = 0;
    let mut begin = |disk: &mut dyn Disk, _: &Outgoing| {
        number += 1;
        create(disk, &known, number, bytes_for(1))
    };
    files.flush(&mut disk, vec![lane.segment()], &mut begin).unwrap();
    settle_all(&mut disk, &mut files);
    assert_eq!(kept_of(&mut files), [kept(&lane, 0, 0..4, false)]);
    let index = lane.add_interface();
    lane.append_on(index, &[60; 3]);
    // Its packets have an interface that the first file's head doesn't describe.
    let mut begin = |disk: &mut dyn Disk, _: &Outgoing| create(disk, &lane, 2, bytes_for(2));
    files.flush(&mut disk, vec![lane.segment()], &mut begin).unwrap();
    assert!(bytes_of(&disk, &growing(1)).is_some(), "until the next file has kept it");
    settle_all(&mut disk, &mut files);
    assert_eq!(kept_of(&mut files), [kept(&lane, 0, 4..7, false)], "each packet is reported once");
    assert!(bytes_of(&disk, &growing(1)).is_none(), "nothing was left in it");
    assert_eq!(files.writers().count(), 1);
    let segment = lane.next_segment();
    assert!(files.close(&mut disk, segment, &mut |_, _| panic!("it has its slot")).is_ok());
    files.end(&mut disk);
    settle_all(&mut disk, &mut files);
    assert_eq!(kept_of(&mut files), [kept(&lane, 0, 7..7, true)]);
    let file = stored(&bytes_of(&disk, &name(2)).unwrap());
    let mut bytes = Vec::new();
    assert_eq!(file.read_segment(0, &mut bytes).unwrap().foot().packets, 7);
}

#[test]
fn behind_files_that_were_ended_a_new_one_grows() {
    let (mut disk, mut lane) = (PowerDisk::new(7), Lane::new());
    let mut files = Files::new();
    let (known, mut number) = (Lane::new(), 0);
    let mut begin = |disk: &mut dyn Disk, _: &Outgoing| {
        number += 1;
        create(disk, &known, number, bytes_for(4))
    };
    for round in 0..4 {
        lane.append(&[60; 4]);
        let segment = lane.next_segment();
        assert!(files.close(&mut disk, segment, &mut begin).is_ok());
        settle_all(&mut disk, &mut files);
        if round == 0 {
            files.end(&mut disk); // it has grown for long enough
            settle_all(&mut disk, &mut files);
        }
    }
    files.end(&mut disk);
    settle_all(&mut disk, &mut files);
    let segments = |number| stored(&bytes_of(&disk, &name(number)).unwrap()).segments().len();
    assert_eq!([segments(1), segments(2)], [1, 3]);
}

#[test]
fn a_segment_that_the_ring_recycled_ends_with_its_last_flush() {
    let (mut disk, mut lane) = (PowerDisk::new(4), Lane::new());
    let mut writer = create(&mut disk, &lane, 1, bytes_for(2)).unwrap();
    lane.append(&[300; 6]);
    let (id, blocks) = (lane.segment().id(), lane.blocks.clone());
    writer.flush(&mut disk, vec![lane.segment()]).unwrap();
    lane.append(&[300; 6]);
    writer.cut(&mut disk, id);
    writer.end(&mut disk);
    settle(&mut disk, &mut writer);
    assert_eq!(writer.take_kept().last(), Some(&kept(&lane, 0, 6..6, true)));
    assert!(matches!(writer.stage(), Stage::Whole));
    let file = stored(&bytes_of(&disk, &name(1)).unwrap());
    let mut bytes = Vec::new();
    let segment = file.read_segment(0, &mut bytes).unwrap();
    assert_eq!((segment.foot().packets, segment.blocks()), (6, &blocks[..]));
}

#[test]
fn an_error_of_the_disk_ends_the_file_gives_back_the_pins_and_says_what_is_not_safe() {
    let (mut disk, mut lane) = (PowerDisk::new(5), Lane::new());
    let mut files = Files::new();
    lane.append(&[60; 5]);
    let first = lane.next_segment();
    let known = Lane::new();
    let mut begin = |disk: &mut dyn Disk, _: &Outgoing| create(disk, &known, 1, bytes_for(4));
    assert!(files.close(&mut disk, first, &mut begin).is_ok());
    files.flush(&mut disk, Vec::<Outgoing>::new(), &mut begin).unwrap();
    settle_all(&mut disk, &mut files);
    lane.append(&[60; 4]);
    let second = lane.next_segment();
    disk.faults = Faults { error: 1, ..Faults::default() };
    assert!(files.close(&mut disk, second, &mut begin).is_ok());
    disk.faults = Faults::default();
    settle_all(&mut disk, &mut files);
    let mut events = files.take_events();
    events.retain(|event| !matches!(event, Event::Written(_)));
    let [Event::Kept(safe), Event::Failed { name: failed, error, unkept, has_kept }] = &events[..] else {
        panic!("{events:?}")
    };
    assert_eq!((safe, failed, has_kept), (&kept(&lane, 0, 0..5, true), &name(1), &true));
    assert_eq!(
        (error.to_string(), &unkept[..]),
        ("input/output error".to_string(), &[(lane.ring.segment_id(0, 1), 5..9)][..])
    );
    assert_eq!(files.writers().count(), 0);
    assert!(bytes_of(&disk, &growing(1)).is_some(), "recovery closes it");
    // All pins are back: each segment of the ring can be recycled.
    for _ in 0..40 {
        lane.append(&[60]);
        lane.next_segment();
    }
}

#[test]
fn recovery_closes_what_is_proven_counts_what_is_cut_off_and_leaves_what_it_cannot_read() {
    let (mut disk, mut lane) = (PowerDisk::new(6), Lane::new());
    let mut writer = create(&mut disk, &lane, 1, bytes_for(4)).unwrap();
    lane.append(&[60; 5]);
    let first = lane.next_segment();
    lane.append(&[60; 3]);
    assert!(matches!(writer.close(&mut disk, first), Given::Taken));
    writer.flush(&mut disk, vec![lane.segment()]).unwrap();
    settle(&mut disk, &mut writer);
    lane.append(&[60; 4]);
    writer.flush(&mut disk, vec![lane.segment()]).unwrap();
    settle(&mut disk, &mut writer);
    let empty = create(&mut disk, &lane, 2, bytes_for(4)).unwrap();
    settle(&mut disk, &mut { empty });
    let part = bytes_of(&disk, &growing(1)).unwrap();
    let mut torn = part.clone();
    torn[4096 + SEGMENT_BYTES + 3 * 92 + 40] ^= 1; // in a packet of the second flush
    let mut headless = part;
    headless[0] ^= 1;
    for (number, bytes) in [(3, torn), (4, headless), (5, Vec::new())] {
        disk.add(&growing(number), bytes);
    }
    let mut recovery = Recovery::new(disk.list().unwrap());
    let mut reports = Vec::new();
    while !recovery.is_over() {
        reports.extend(recovery.step(&mut disk));
    }
    let [unwritten, headless, empty, open, torn] = &reports[..] else { panic!("{reports:?}") };
    assert!(matches!(unwritten.outcome, Outcome::Removed) && bytes_of(&disk, &growing(5)).is_none());
    assert!(matches!(headless.outcome, Outcome::Unreadable(HeadError::Foreign { at: 0, .. })));
    assert!(bytes_of(&disk, &growing(4)).is_some());
    assert!(matches!(&torn.outcome, Outcome::Closed(whole) if *whole == name(3)));
    assert_eq!((torn.holds.packets, torn.beginnings, torn.cut), (8, 1, Cut { packets: 4, unknown: 0 }));
    assert!(matches!(empty.outcome, Outcome::Removed) && bytes_of(&disk, &growing(2)).is_none());
    assert!(matches!(&open.outcome, Outcome::Closed(whole) if *whole == name(1)));
    // The same segments stand in file 3: of the first as many packets, of the second fewer.
    assert_eq!((open.holds.packets, open.moved, open.cut), (7, 1, Cut::default()));
    let file = stored(&bytes_of(&disk, &name(1)).unwrap());
    assert_eq!((file.state(), file.segments().len()), (State::Closed, 1));
    let holes = file.holes();
    assert!(holes.len() == 1 && file.hole_is_padding(&holes[0]).unwrap());
}
