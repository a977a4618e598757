//! The same on a real file system, by each way of writing: what was written is read, and what a run left
//! growing is closed.

use super::lane::Lane;
use super::small_ring::SEGMENT_BYTES;
use super::writer::{bytes_for, create};
use scope_folder::Folder;
use scope_store::disk::Disk;
use scope_store::files::{Event, Files};
use scope_store::io::{self, Want};
use scope_store::outgoing::Outgoing;
use scope_store::recover::{Outcome, Recovery};
use scope_store::{State, StoredFile};
use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Lets the disk finish everything; how many packets were kept.
fn settle(disk: &mut dyn Disk, files: &mut Files) -> u64 {
    let mut kept = 0;
    while disk.pending() > 0 {
        let mut finished = Vec::new();
        disk.finish(Duration::from_secs(1), &mut finished).unwrap();
        for finished in finished {
            assert!(files.finished(disk, finished).is_none());
        }
        for event in files.take_events() {
            match event {
                Event::Written(_) => {}
                Event::Kept(part) => kept += part.packets.end - part.packets.start,
                Event::Failed { error, .. } => panic!("{error}"),
                Event::Whole { .. } | Event::Removed { .. } => {}
            }
        }
    }
    kept
}

/// The blocks of all segments that the closed files below `folder` hold, by sequence.
fn segments(folder: &Path) -> BTreeMap<u64, Vec<u8>> {
    let mut segments = BTreeMap::new();
    for entry in std::fs::read_dir(folder.join("2026-11-20")).unwrap() {
        let path = entry.unwrap().path();
        assert_eq!(path.extension().unwrap(), "pcapng", "{}", path.display());
        let file = StoredFile::open(File::open(path).unwrap()).unwrap();
        assert_eq!(file.state(), State::Closed);
        let mut bytes = Vec::new();
        for index in 0..file.segments().len() {
            let segment = file.read_segment(index, &mut bytes).unwrap();
            assert!(segments.insert(segment.foot().sequence, segment.blocks().to_vec()).is_none());
        }
    }
    segments
}

/// Writes segments into files of three slots, with a flush every few packets.
fn write(lane: &mut Lane, disk: &mut dyn Disk, files: &mut Files) -> (BTreeMap<u64, Vec<u8>>, u64) {
    let (mut blocks, mut kept, mut number) = (BTreeMap::new(), 0, 0);
    let heads = Lane::new(); // of one interface, as this ring's
    let mut begin = |disk: &mut dyn Disk, _: &Outgoing| {
        number += 1;
        create(disk, &heads, number, bytes_for(3))
    };
    for round in 0..10u16 {
        for _ in 0..3 {
            lane.append(&[100 * round; 20]);
            files.flush(disk, vec![lane.segment()], &mut begin).unwrap();
            kept += settle(disk, files);
        }
        lane.append(&[7; 30]);
        blocks.insert(u64::from(round), lane.blocks.clone());
        let segment = lane.next_segment();
        assert!(files.close(disk, segment, &mut begin).is_ok());
    }
    lane.append(&[60; 11]);
    blocks.insert(10, lane.blocks.clone());
    files.flush(disk, vec![lane.segment()], &mut begin).unwrap();
    (blocks, kept + settle(disk, files))
}

#[test]
fn by_each_way_of_writing_what_is_written_is_read_and_what_was_left_growing_is_closed() {
    for (want, ends) in [(Want::Best, true), (Want::Best, false), (Want::Pwrite, true), (Want::Pwrite, false)]
    {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let opened = Arc::new(Folder::open(folder.path()).unwrap());
        let (mut lane, mut files) = (Lane::new(), Files::new());
        let (mut disk, way) = io::open(&opened, Some(&lane.ring), want);
        let (blocks, mut kept) = write(&mut lane, &mut *disk, &mut files);
        assert_eq!(kept, 911, "{way}");
        if ends {
            let last = lane.next_segment();
            assert!(files.close(&mut *disk, last, &mut |_, _| panic!("it has a slot")).is_ok());
            files.end(&mut *disk);
            kept += settle(&mut *disk, &mut files);
            assert_eq!((kept, files.writers().count()), (911, 0));
        } else {
            drop((files, disk));
            let (mut disk, _) = io::open(&opened, None, want);
            let mut recovery = Recovery::new(disk.list().unwrap());
            let mut reports = Vec::new();
            while !recovery.is_over() {
                reports.extend(recovery.step(&mut *disk));
            }
            assert!(matches!(reports[0].outcome, Outcome::Closed(_)), "{way}: {reports:?}");
            assert_eq!((reports.len(), reports[0].beginnings), (1, 1), "{way}");
        }
        assert!(segments(folder.path()) == blocks, "{way}");
        assert!(blocks.values().all(|blocks| blocks.len() < SEGMENT_BYTES));
    }
}
