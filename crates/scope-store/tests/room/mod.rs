//! What tests of writing share: a folder on the disk, both ways to write below it, and rings full of packets.

#![allow(dead_code)] // each test takes what it needs

use scope_folder::Folder;
use scope_packet::pcapng::PacketHead;
use scope_packet::{Headers, KeyEntry, LinkType};
use scope_ring::{MemoryOptions, Pinned, Ring, RingConfig};
use scope_store::disk::{Act, Begun, Bytes, Disk, FileNumber, Finished, PAGE_BYTES, Pages};
use scope_store::io::{Calls, Want, Way, open};
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Longer than any disk takes.
pub const LONG: Duration = Duration::from_secs(120);

/// A folder beside the built tests: on a disk, where `/tmp` may be memory.
pub fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// Says why a check is skipped. With `CI=true` in the environment none may be.
pub fn skip(why: &str) {
    assert!(std::env::var("CI").as_deref() != Ok("true"), "must not be skipped in CI: {why}");
    let _ = writeln!(io::stderr(), "skipped: {why}");
}

/// Both ways to write below `path`, and what each says of itself. Where the system has no io_uring or no
/// O_DIRECT, the first is `pwrite`, too.
pub fn both(path: &Path, ring: Option<&Arc<Ring>>) -> [(Box<dyn Disk + Send>, Way); 2] {
    let volume = Arc::new(Folder::open(path).unwrap());
    let (best, way) = open(&volume, ring, Want::Best);
    if let Calls::Pwrite { why } = &way.calls {
        skip(&format!("writing by io_uring: {why}"));
    }
    [(best, way), open(&volume, ring, Want::Pwrite)]
}

/// Pages that are full of numbers made of `seed`.
pub fn pages(count: usize, seed: u64) -> Pages {
    let mut pages = Pages::zeroed(count);
    let mut state = seed.wrapping_mul(2) + 1;
    for bytes in pages.as_mut_slice().chunks_exact_mut(8) {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        bytes.copy_from_slice(&state.to_le_bytes());
    }
    pages
}

/// A write of pages of one's own.
pub fn write(tag: u64, file: FileNumber, at: u64, pages: Pages) -> Begun {
    Begun { tag, act: Act::Write { file, at, bytes: Bytes::Own(pages) } }
}

/// A write of a whole segment.
pub fn write_segment(tag: u64, file: FileNumber, at: u64, pinned: Pinned) -> Begun {
    let bytes = pinned.whole().expect("a sealed segment").len();
    Begun { tag, act: Act::Write { file, at, bytes: Bytes::Ring(pinned, 0..bytes) } }
}

/// A sync.
pub fn sync(tag: u64, file: FileNumber) -> Begun {
    Begun { tag, act: Act::Sync { file } }
}

/// Waits until nothing is pending.
pub fn finish_all(disk: &mut dyn Disk) -> Vec<Finished> {
    let mut finished = Vec::new();
    while disk.pending() > 0 {
        let before = finished.len();
        disk.finish(LONG, &mut finished).unwrap();
        assert!(finished.len() > before, "nothing has finished");
    }
    finished
}

/// Everything that was begun was done.
pub fn all_good(disk: &mut dyn Disk) -> Vec<Finished> {
    let finished = finish_all(disk);
    for Finished { begun, result } in &finished {
        assert!(result.is_ok(), "{}: {result:?}", begun.tag);
    }
    finished
}

/// A ring in which half of the segments are sealed, and pins of these.
pub fn ring(segment_bytes: u64, segments: u64, options: &MemoryOptions) -> (Arc<Ring>, Vec<Pinned>) {
    let config = RingConfig {
        ring_bytes: segments * segment_bytes,
        segment_bytes: Some(segment_bytes),
        workers: 1,
        lanes: 1,
        run_id: [7; 16],
    };
    let ring = Ring::ready(&config, &[], options, &|_| true).unwrap();
    let mut writer = ring.open_lane(0, LinkType::ETHERNET).unwrap();
    writer.add_interface(0);
    let mut pins = Vec::new();
    for sequence in 0..segments / 2 {
        assert!(writer.claim());
        for number in 0..segment_bytes / 2048 {
            let data = pages(1, sequence << 32 | number);
            let data = &data.as_slice()[..1200];
            let head = PacketHead {
                captured_len: 1200,
                original_len: 1200,
                time_ns: (sequence * 1000 + number) as i64,
                ..PacketHead::default()
            };
            writer.append(0, &head, KeyEntry::new(&Headers::parse(LinkType::ETHERNET, data)), data);
        }
        writer.commit();
        writer.seal();
        pins.push(ring.pin(ring.segment_id(0, sequence)).unwrap());
    }
    (ring, pins)
}

/// A file's bytes from `at` on, by the disk's own reading.
pub fn read(disk: &mut dyn Disk, name: &str, at: u64, bytes: usize) -> Vec<u8> {
    let mut into = vec![0; bytes];
    let found = disk.read(Path::new(name), at, &mut into).unwrap();
    into.truncate(found);
    into
}

/// Bytes of so many pages.
pub const fn of_pages(count: usize) -> u64 {
    (count * PAGE_BYTES) as u64
}
