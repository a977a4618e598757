//! Readers without a pin beside writers, at files of others, and at words that lie.

use super::*;
use crate::control::REGION_MAGIC;
use crate::writer::{Append, LaneWriter};
use crate::{Ahead, Ring, RingConfig};
use proptest::prelude::*;
use scope_packet::pcapng::PacketHead;
use scope_packet::{Interface, KeyEntry, TimestampSource};
use std::io::Error;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;

const SEGMENT_BYTES: usize = 64 << 10;

fn ring(segments: u64, lanes: u32) -> Arc<Ring> {
    Ring::create(&RingConfig {
        ring_bytes: segments * SEGMENT_BYTES as u64,
        segment_bytes: Some(SEGMENT_BYTES as u64),
        workers: lanes,
        lanes,
        run_id: [9; 16],
    })
    .unwrap()
}

fn lane(ring: &Arc<Ring>, worker: u32, link_type: LinkType) -> LaneWriter {
    let mut lane = ring.open_lane(worker, link_type).unwrap();
    let interface = Interface {
        name: format!("if{worker}"),
        description: String::new(),
        link_type,
        snap_len: 0,
        timestamps: TimestampSource::Generator,
        part: 0,
    };
    let number = ring.register(lane.lane(), &interface).unwrap();
    lane.add_interface(number);
    lane
}

/// The bytes of a lane's packet: its number says which they are, and how many.
fn data(lane: u32, packet: u64) -> Vec<u8> {
    let len = 60 + (packet * 7919 % 1400) as usize;
    (0..len).map(|at| (at as u64 ^ packet ^ u64::from(lane) << 5) as u8).collect()
}

fn write(lane: &mut LaneWriter, packets: u64) {
    for _ in 0..packets {
        let number = lane.next_packet();
        let data = data(lane.lane(), number);
        let (captured_len, original_len) = (data.len() as u32, data.len() as u32 + 4);
        let head = PacketHead { time_ns: number as i64, captured_len, original_len, ..PacketHead::default() };
        while lane.append(0, &head, KeyEntry::default(), &data) == Append::NeedsSegment {
            assert!(lane.claim());
        }
    }
    lane.commit();
}

/// Reads all that is there, and holds each packet against what was written; how many.
fn read(reader: &mut OutsideReader) -> u64 {
    let mut packets = 0;
    while let Some(batch) = reader.next_batch().unwrap() {
        for (number, block) in (batch.first_packet..).zip(batch.blocks()) {
            assert_eq!(block.time_ns(), number as i64);
            assert_eq!(block.data(), data(batch.lane, number), "packet {number} of lane {}", batch.lane);
            packets += 1;
        }
    }
    packets
}

/// The same in place, at most `packets_max` at once: what was overrun meanwhile is forgotten.
fn read_in_place(reader: &mut OutsideReader, packets_max: u32) -> u64 {
    let mut packets = 0;
    while let Some(lent) = reader.lend(packets_max).unwrap() {
        assert!(lent.packets <= packets_max);
        let (mut at, mut seen) = (lent.begin(), Vec::new());
        while let Some(packet) = reader.packet(&lent, at) {
            let key_at = reader.key(&lent, seen.len() as u32).map(|key| key.offset());
            seen.push((packet.time_ns, packet.original_len, packet.data.to_vec(), key_at == Some(at)));
            at += packet.block_bytes;
        }
        if !reader.is_whole(&lent) {
            reader.forget(&lent);
            continue;
        }
        assert_eq!((seen.len() as u32, at), (lent.packets, lent.end()));
        for (number, (time_ns, original_len, bytes, is_at_key)) in (lent.first_packet..).zip(seen) {
            assert_eq!((time_ns, is_at_key), (number as i64, true));
            assert_eq!(bytes, data(lent.lane, number), "packet {number} of lane {}", lent.lane);
            assert_eq!(original_len as usize, bytes.len() + 4);
            packets += 1;
        }
    }
    packets
}

fn published(ring: &Ring) -> u64 {
    ring.counters().lanes.iter().map(|lane| lane.packets).sum()
}

#[test]
fn an_outside_reader_sees_each_packet_as_it_was_written_and_all_interfaces() {
    let ring = ring(64, 2);
    let mut lanes = [lane(&ring, 0, LinkType::ETHERNET), lane(&ring, 1, LinkType::RAW)];
    lanes.iter_mut().for_each(|lane| write(lane, 100));
    let mut all = OutsideReader::map(ring.sealed_files().unwrap(), Begin::Since(i64::MIN)).unwrap();
    let mut new = OutsideReader::map(ring.sealed_files().unwrap(), Begin::Now).unwrap();
    assert_eq!((all.run_id(), read(&mut all), read(&mut new)), ([9; 16], 200, 0));
    write(&mut lanes[1], 30);
    assert_eq!((read(&mut all), read(&mut new)), (30, 30));
    assert_eq!(new.counts(), OutsideCounts { began: 200, read: 30, missed: 0, behind: 0 });
    let names: Vec<_> = all.interfaces().unwrap().iter().map(|it| (it.name.clone(), it.link_type)).collect();
    assert_eq!(names, [("if0".to_string(), LinkType::ETHERNET), ("if1".to_string(), LinkType::RAW)]);
    lanes[0].seal();
    write(&mut lanes[0], 5);
    assert_eq!((read(&mut all), read(&mut new)), (5, 5));
}

#[test]
fn a_reader_that_begins_in_the_past_has_all_from_then_on() {
    let ring = ring(64, 1);
    let mut lane = lane(&ring, 0, LinkType::ETHERNET);
    for _ in 0..10 {
        write(&mut lane, 10);
        lane.seal();
    }
    let mut reader = OutsideReader::map(ring.sealed_files().unwrap(), Begin::Since(55)).unwrap();
    assert_eq!(reader.next_batch().unwrap().unwrap().first_packet, 50);
    let mut none = OutsideReader::map(ring.sealed_files().unwrap(), Begin::Since(100)).unwrap();
    assert!(none.next_batch().unwrap().is_none());
    write(&mut lane, 1);
    assert_eq!(read(&mut none), 1);
}

#[test]
fn what_is_overrun_is_missed_exactly_and_nothing_of_it_is_lent() {
    let ring = ring(16, 1);
    let mut lane = lane(&ring, 0, LinkType::ETHERNET);
    write(&mut lane, 10);
    let mut reader = OutsideReader::map(ring.sealed_files().unwrap(), Begin::Since(i64::MIN)).unwrap();
    assert_eq!(read(&mut reader), 10);
    write(&mut lane, 5000); // several turns
    let counts = reader.counts();
    assert_eq!((counts.read, counts.read + counts.missed + counts.behind), (10, 5010));
    let batch = reader.next_batch().unwrap().unwrap();
    let (first, missed) = (batch.first_packet, batch.missed_before);
    assert!(missed > 0 && first == 10 + missed, "{first} {missed}");
    read(&mut reader);
    let counts = reader.counts();
    assert_eq!((counts.missed, counts.read, counts.behind), (missed, 5010 - missed, 0));
}

#[test]
fn what_is_held_ahead_of_a_reader_is_found_after_turns_of_the_ring_and_let_go_as_it_reads() {
    let ring = ring(32, 2);
    let mut lanes = [lane(&ring, 0, LinkType::ETHERNET), lane(&ring, 1, LinkType::ETHERNET)];
    let mut reader = OutsideReader::map(ring.sealed_files().unwrap(), Begin::Now).unwrap();
    let mut ahead = Ahead::new(&ring, ring.budget().take_for_member(4).unwrap());
    let needed = |reader: &OutsideReader| reader.done::<2>();
    lanes.iter_mut().for_each(|lane| write(lane, 200)); // four segments each
    (0..).zip(needed(&reader)).for_each(|(lane, needed)| ahead.let_go(lane, needed));
    ahead.hold(0);
    assert_eq!((ahead.held(), ahead.allowed()), (4, 4));
    lanes.iter_mut().for_each(|lane| write(lane, 5000)); // several turns
    // Of each lane: packets before the first one that was missed.
    let mut whole = [None; 2];
    while let Some(lent) = reader.lend(u32::MAX).unwrap() {
        assert!(reader.is_whole(&lent));
        if lent.missed_before > 0 {
            whole[lent.lane as usize].get_or_insert(lent.first_packet - lent.missed_before);
        }
        (0..).zip(needed(&reader)).for_each(|(lane, needed)| ahead.let_go(lane, needed));
    }
    assert!(whole.iter().flatten().sum::<u64>() > 240, "{whole:?}");
    let counts = reader.counts();
    assert_eq!((counts.read + counts.missed, counts.behind), (published(&ring), 0));
    (0..).zip(needed(&reader)).for_each(|(lane, needed)| ahead.let_go(lane, needed));
    assert_eq!(ahead.held(), 0);
    drop(ahead);
    assert_eq!(ring.budget().taken(), 0);
}

#[test]
fn a_reader_beside_a_writer_that_overruns_it_never_sees_a_changed_byte() {
    let ring = ring(16, 1);
    let mut lane = lane(&ring, 0, LinkType::ETHERNET);
    let mut reader = OutsideReader::map(ring.sealed_files().unwrap(), Begin::Now).unwrap();
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..2000 {
                write(&mut lane, 37);
            }
            done.store(true, std::sync::atomic::Ordering::Release);
        });
        loop {
            let is_last = done.load(std::sync::atomic::Ordering::Acquire);
            let read = read(&mut reader);
            if is_last && read == 0 {
                break;
            }
        }
    });
    let counts = reader.counts();
    assert_eq!((counts.read + counts.missed, counts.behind), (74_000, 0));
    assert!(counts.read > 0);
}

#[test]
fn packets_are_lent_in_place_as_they_were_written_and_few_at_once() {
    let ring = ring(64, 2);
    let mut lanes = [lane(&ring, 0, LinkType::ETHERNET), lane(&ring, 1, LinkType::RAW)];
    let mut reader = OutsideReader::map(ring.sealed_files().unwrap(), Begin::Now).unwrap();
    for packets_max in [1, 7, 1024] {
        lanes.iter_mut().for_each(|lane| write(lane, 500));
        assert_eq!(read_in_place(&mut reader, packets_max), 1000);
        lanes[0].seal();
        write(&mut lanes[0], 3);
        assert_eq!(read_in_place(&mut reader, packets_max), 3);
    }
    // Both ways stand at the same place.
    write(&mut lanes[1], 20);
    let lent = reader.lend(5).unwrap().unwrap();
    assert_eq!((lent.packets, lent.link_type, read(&mut reader)), (5, LinkType::RAW, 15));
    assert!(reader.packet(&lent, lent.end()).is_none() && reader.packet(&lent, lent.begin() + 2).is_none());
}

#[test]
fn what_is_overrun_while_it_is_lent_counts_as_missed_and_is_missing_before_the_next() {
    let ring = ring(16, 1);
    let mut lane = lane(&ring, 0, LinkType::ETHERNET);
    let mut reader = OutsideReader::map(ring.sealed_files().unwrap(), Begin::Now).unwrap();
    write(&mut lane, 10);
    let lent = reader.lend(1024).unwrap().unwrap();
    assert!(lent.packets == 10 && reader.is_whole(&lent));
    write(&mut lane, 5000); // several turns
    let mut at = lent.begin();
    while let Some(packet) = reader.packet(&lent, at) {
        at += packet.block_bytes; // whatever it says by now, it ends inside
        assert!(at <= lent.end());
    }
    assert!(!reader.is_whole(&lent));
    reader.forget(&lent);
    let next = reader.lend(1024).unwrap().unwrap();
    assert_eq!((next.missed_before, reader.counts().missed), (next.first_packet, next.first_packet));
    let read = u64::from(next.packets) + read_in_place(&mut reader, 1024);
    let counts = reader.counts();
    assert_eq!((counts.read, counts.read + counts.missed, counts.behind), (read, 5010, 0));
}

#[test]
fn packets_lent_beside_a_writer_that_overruns_them_are_whole_or_known_not_to_be() {
    let ring = ring(16, 1);
    let mut lane = lane(&ring, 0, LinkType::ETHERNET);
    let mut reader = OutsideReader::map(ring.sealed_files().unwrap(), Begin::Now).unwrap();
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..2000 {
                write(&mut lane, 37);
            }
            done.store(true, std::sync::atomic::Ordering::Release);
        });
        loop {
            let is_last = done.load(std::sync::atomic::Ordering::Acquire);
            let read = read_in_place(&mut reader, 64);
            if is_last && read == 0 {
                break;
            }
        }
    });
    let counts = reader.counts();
    assert_eq!((counts.read + counts.missed, counts.behind), (74_000, 0));
    assert!(counts.read > 0);
}

/// Maps `file` for writing, as somebody would who got it.
fn map_for_writing(file: &impl AsFd) -> Result<(), Error> {
    let (write, number) = (libc::PROT_READ | libc::PROT_WRITE, file.as_fd().as_raw_fd());
    // SAFETY: a new mapping at a place of the system's choice, which nobody uses, and which is given back.
    unsafe {
        let base = libc::mmap(std::ptr::null_mut(), 4096, write, libc::MAP_SHARED, number, 0);
        if base == libc::MAP_FAILED {
            return Err(Error::last_os_error());
        }
        libc::munmap(base, 4096);
    }
    Ok(())
}

#[test]
fn who_has_the_files_can_neither_write_to_them_nor_shorten_or_punch_them_and_the_ring_goes_on() {
    let ring = ring(16, 1);
    for file in ring.sealed_files().unwrap() {
        let number = file.as_raw_fd();
        assert!(map_for_writing(&file).is_err());
        // Also through a descriptor that is opened anew.
        let again = std::fs::File::options().write(true).read(true).open(format!("/proc/self/fd/{number}"));
        assert!(again.is_err() || map_for_writing(&again.unwrap()).is_err());
        let punch = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        // SAFETY: plain system calls on a descriptor that is borrowed for longer; the byte outlives the call.
        let done = unsafe {
            [
                libc::ftruncate(number, 0),
                libc::ftruncate(number, 1 << 40),
                libc::fallocate(number, punch, 0, 4096),
                libc::pwrite(number, [0u8].as_ptr().cast(), 1, 0) as libc::c_int,
                libc::fcntl(number, libc::F_ADD_SEALS, libc::F_SEAL_WRITE),
            ]
        };
        assert_eq!(done, [-1; 5]);
    }
    let mut lane = lane(&ring, 0, LinkType::ETHERNET);
    write(&mut lane, 3000);
    assert_eq!(published(&ring), 3000);
}

/// A file with these words at its begin, sealed or not.
fn file(words: &[u64], bytes: usize, is_sealed: bool) -> OwnedFd {
    let all: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    // SAFETY: plain system calls on a new descriptor of our own, which nobody else closes; the bytes outlive the call.
    unsafe {
        let number = libc::memfd_create(c"x".as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING);
        let file = OwnedFd::from_raw_fd(number);
        assert_eq!(libc::ftruncate(number, bytes as i64), 0);
        let len = all.len().min(bytes);
        assert_eq!(libc::pwrite(number, all.as_ptr().cast(), len, 0), len as isize);
        if is_sealed {
            assert_eq!(libc::fcntl(number, libc::F_ADD_SEALS, libc::F_SEAL_SHRINK), 0);
        }
        file
    }
}

#[test]
fn what_is_no_ring_or_could_be_taken_away_is_refused() {
    let check = |tables: &OwnedFd, slots: &OwnedFd, expected: &str| {
        let refused = OutsideReader::map([tables.as_fd(), slots.as_fd()], Begin::Now).unwrap_err();
        assert!(refused.to_string().contains(expected), "{refused}");
    };
    let sizes = [SEGMENT_BYTES as u64, 16, 1, 8];
    let header = [&[REGION_MAGIC, 0, 0][..], &sizes].concat();
    let slots = file(&[], 16 * SEGMENT_BYTES, true);
    check(&file(&header, 32 << 20, false), &slots, "not sealed");
    check(&file(&header, 64, true), &slots, "too short");
    check(&file(&header, 1 << 20, true), &slots, "sizes fit no ring");
    check(&file(&header, 32 << 20, true), &file(&[], SEGMENT_BYTES, true), "sizes fit no ring");
    check(&file(&[1, 2, 3], 32 << 20, true), &slots, "doesn't begin like one");
    check(&file(&[REGION_MAGIC ^ 3 << 56], 32 << 20, true), &slots, "another version");
    for (at, size) in [(0, 4096), (0, u64::MAX), (1, 0), (1, u64::MAX), (2, 1 << 40), (3, u64::MAX / 256)] {
        let mut header = header.clone();
        header[3 + at] = size;
        check(&file(&header, 32 << 20, true), &slots, "sizes fit no ring");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever stands in the words, what is lent lies inside the files, and nothing fails but by saying so.
    #[test]
    fn words_that_lie_do_no_harm(words in proptest::collection::vec(any::<u64>(), 64), small in proptest::collection::vec(0u64..1 << 16, 64),
        mix in any::<u64>(), seed in any::<u64>()) {
        let header = [REGION_MAGIC, 0, 0, SEGMENT_BYTES as u64, 4, 1, 2];
        let layout = crate::region::Layout::new(SEGMENT_BYTES, 4, 1, 2);
        let tables_bytes = layout.interfaces_at() + crate::region::INTERFACE_AREA_BYTES;
        let mut tables: Vec<u64> = vec![0; layout.interfaces_at() / 8 + 64];
        let mut next = seed;
        for (at, word) in tables.iter_mut().enumerate() {
            next = next.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            *word = match (next >> 60, mix >> (at % 64) & 1) {
                (0..4, _) => 0,
                (4..8, _) => small[at % 64],
                (8..10, _) => (1 << 24) | (small[at % 64] % 6), // a directory's entry, a pin word
                (10..12, 0) => 1 << 24,
                (12.., 0) => (5 << 32) | small[at % 64],
                _ => words[at % 64],
            };
        }
        tables[..header.len()].copy_from_slice(&header);
        let slots: Vec<u64> = (0..4 * SEGMENT_BYTES / 8).map(|at| words[at % 64].rotate_left(at as u32)).collect();
        let files = [file(&tables, tables_bytes, true), file(&slots, 4 * SEGMENT_BYTES, true)];
        for begin in [Begin::Now, Begin::Since(i64::MIN), Begin::Past(1 << 20)] {
            let mut reader = OutsideReader::map([files[0].as_fd(), files[1].as_fd()], begin).unwrap();
            for _ in 0..10 {
                if let Ok(Some(batch)) = reader.next_batch() {
                    prop_assert!(batch.blocks().bytes().len() <= SEGMENT_BYTES);
                }
            }
            for packets_max in [1, 3, u32::MAX] {
                let Ok(Some(lent)) = reader.lend(packets_max) else { continue };
                let mut at = lent.begin();
                while let Some(packet) = reader.packet(&lent, at) {
                    at += packet.block_bytes;
                    prop_assert!(at <= lent.end() && packet.data.len() <= SEGMENT_BYTES);
                }
                let _ = (reader.key(&lent, mix as u32), reader.is_whole(&lent));
                reader.forget(&lent);
            }
            let (_, marks) = reader.settled();
            let _ = (reader.interfaces().map(<[_]>::len), reader.has_read(&marks), reader.counts());
        }
    }

    /// Against the writer's own numbers, at any distance between both.
    #[test]
    fn published_is_read_missed_and_behind(steps in proptest::collection::vec((0u64..400, 0usize..3, any::<bool>()), 1..40)) {
        let ring = ring(32, 2);
        let mut lanes = [lane(&ring, 0, LinkType::ETHERNET), lane(&ring, 1, LinkType::ETHERNET)];
        let mut reader = OutsideReader::map(ring.sealed_files().unwrap(), Begin::Now).unwrap();
        let mut read_all = 0;
        for (packets, of, reads) in steps {
            match of {
                2 => lanes[0].seal(),
                of => write(&mut lanes[of], packets),
            }
            if reads {
                read_all += read(&mut reader);
                prop_assert_eq!(reader.counts().behind, 0);
            }
            let OutsideCounts { began, read, missed, behind } = reader.counts();
            prop_assert_eq!((began, read, read + missed + behind), (0, read_all, published(&ring)));
        }
    }
}
