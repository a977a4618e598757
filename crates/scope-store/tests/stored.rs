//! Stored files are read as they were written, each byte of one changed in turn, and files from before there
//! were checks.

mod small_ring;

use scope_folder::Folder;
use scope_packet::pcapng::{self, PacketHead};
use scope_packet::{Headers, KeyEntry, LinkType};
use scope_store::{Damage, Hash, SegmentFault, State, StoredError, StoredFile, StoredSegment, checks, index};
use small_ring::{SEGMENT_BYTES, eth0, small_ring};
use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Time and bytes of a packet.
type Packet = (i64, Vec<u8>);

fn packet(number: u64) -> Packet {
    let mut data = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0];
    data.extend([0x45, 0, 0, 40, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, number as u8, 10, 0, 1, 1]);
    data.extend([0, 53, 0xea, 0x60, 0, 20, 0, 0]);
    data.extend(number.to_le_bytes());
    data.resize(60 + number as usize * 37 % 700, number as u8);
    (1_763_700_000_000_000_000 + number as i64 * 1000, data)
}

/// A ring file with so many segments of packets.
fn ring_file(folder: &Path, segments: u64) -> (PathBuf, Vec<Packet>) {
    let ring = small_ring(16, [0xc3; 16]);
    let mut writer = ring.open_lane(0, LinkType::ETHERNET).unwrap();
    let number = ring.register(0, &eth0()).unwrap();
    let interface = writer.add_interface(number);
    let mut packets = Vec::new();
    for _ in 0..segments {
        assert!(writer.claim());
        for _ in 0..100 {
            let (time_ns, data) = packet(packets.len() as u64);
            let len = data.len() as u32;
            let head = PacketHead {
                interface: number,
                captured_len: len,
                original_len: len,
                time_ns,
                ..PacketHead::default()
            };
            writer.append(interface, &head, KeyEntry::new(&Headers::parse(LinkType::ETHERNET, &data)), &data);
            packets.push((time_ns, data));
        }
        writer.commit();
        writer.seal();
    }
    let paths = scope_store::write_ring(&ring, &Folder::open(folder).unwrap(), OsStr::new("ring.pcapng"));
    (paths.unwrap().remove(0), packets)
}

/// Of each segment its packets, or why it can't be read.
type Segments = Vec<Result<Vec<Packet>, StoredError>>;

/// In which state a stored file is, and what its segments hold.
fn look(file: &File) -> Result<(State, Segments), StoredError> {
    let stored = StoredFile::open(file.try_clone().unwrap())?;
    let mut buffer = Vec::new();
    let mut read = |index| {
        let segment = stored.read_segment(index, &mut buffer)?;
        Ok(segment.packets().map(|block| (block.time_ns(), block.data().to_vec())).collect())
    };
    let segments = (0..stored.segments().len()).map(&mut read).collect();
    assert!(stored.state() != State::Closed || stored.holes().is_empty(), "{:?}", stored.holes());
    Ok((stored.state(), segments))
}

/// All packets of a file that is whole.
fn packets(file: &File) -> Result<Vec<Packet>, String> {
    let (state, segments) = look(file).map_err(|cause| cause.to_string())?;
    let packets: Result<Vec<_>, _> = segments.into_iter().collect();
    let packets = packets.map_err(|cause| cause.to_string())?;
    (state == State::Closed).then(|| packets.concat()).ok_or(format!("{state:?}"))
}

#[test]
fn a_ring_file_is_a_stored_file_with_head_checks_and_index() {
    let folder = tempfile::tempdir().unwrap();
    let (path, written) = ring_file(folder.path(), 5);
    let file = File::open(&path).unwrap();
    assert_eq!(packets(&file), Ok(written.clone()));
    let stored = StoredFile::open(file).unwrap();
    let head = stored.head();
    assert_eq!((head.run_id, head.number, head.segment_bytes), ([0xc3; 16], 1, SEGMENT_BYTES as u32));
    assert_eq!(
        (stored.head_bytes(), stored.segment_bytes(), stored.segments().len()),
        (4096, SEGMENT_BYTES, 5)
    );
    assert_eq!((stored.unread().len(), stored.holes()), (0, vec![]));
    let mut buffer = Vec::new();
    for (index, facts) in stored.segments().iter().enumerate() {
        let segment = stored.read_segment(index, &mut buffer).unwrap();
        assert_eq!(facts.offset, 4096 + (index * SEGMENT_BYTES) as u64);
        assert_eq!((facts.foot.sequence, facts.foot.first_packet), (index as u64, index as u64 * 100));
        assert_eq!(Some(segment.summary()), facts.summary);
        let statistics: Vec<_> = segment.statistics().collect();
        assert_eq!((statistics.len(), statistics[0].interface), (1, 0));
        assert_eq!(statistics[0].received, 100 * (index as u64 + 1));
        let (entry, block) = segment.packet(99).unwrap();
        let (_, data) = &written[index * 100 + 99];
        assert_eq!((block.data(), entry.source), (&data[..], [10, 0, 0, (index * 100 + 99) as u8]));
        assert!(segment.packet(100).is_none());
    }
}

#[test]
fn a_changed_byte_anywhere_is_noticed_and_no_changed_packet_is_given() {
    let folder = tempfile::tempdir().unwrap();
    let (path, written) = ring_file(folder.path(), 1);
    let file = File::options().read(true).write(true).open(&path).unwrap();
    let bytes = std::fs::read(&path).unwrap();
    // Where a bit of the head is changed, which one it was is looked for, and that takes time.
    for (at, byte) in bytes.iter().enumerate().filter(|(at, _)| *at >= 4096 || at.is_multiple_of(509)) {
        // Each bit in turn, one a byte.
        file.write_all_at(&[byte ^ (1 << (at % 8))], at as u64).unwrap();
        match look(&file) {
            Err(_) => {}
            Ok((state, segments)) => {
                let stored = StoredFile::open(file.try_clone().unwrap()).unwrap();
                let whole = state == State::Closed
                    && segments.iter().all(Result::is_ok)
                    && stored.head_damage().is_none();
                assert!(!whole, "byte {at} changed, and nothing was noticed");
                for packets in segments.into_iter().flatten() {
                    assert!(packets == written, "byte {at}: a packet that was never written");
                }
            }
        }
        file.write_all_at(&[*byte], at as u64).unwrap();
    }
    assert_eq!(packets(&file), Ok(written));
}

#[test]
fn a_file_without_its_end_gives_the_segments_that_are_whole() {
    let folder = tempfile::tempdir().unwrap();
    let (path, written) = ring_file(folder.path(), 4);
    let file = File::options().read(true).write(true).open(&path).unwrap();
    let whole = file.metadata().unwrap().len();
    for (bytes, expected) in [
        (whole - 4, 4),
        (4096 + 4 * SEGMENT_BYTES as u64, 4),
        (4096 + 4 * SEGMENT_BYTES as u64 - 1, 3),
        (4096 + SEGMENT_BYTES as u64 + 17, 1),
        (4096, 0),
    ] {
        file.set_len(bytes).unwrap();
        let (state, segments) = look(&file).unwrap();
        assert!(matches!(state, State::Unclosed(_)), "{state:?}");
        assert_eq!(segments.len(), expected, "{bytes} bytes");
        let packets: Vec<Packet> = segments.into_iter().flat_map(Result::unwrap).collect();
        assert!(packets == written[..expected * 100], "{bytes} bytes");
    }
    file.set_len(4095).unwrap();
    assert_eq!(look(&file).unwrap_err().to_string(), "the head is cut off");
}

#[test]
fn a_slot_that_is_torn_open_or_empty_is_named_and_hides_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let (path, written) = ring_file(folder.path(), 4);
    let file = File::options().read(true).write(true).open(&path).unwrap();
    let slot = |number: u64| 4096 + number * SEGMENT_BYTES as u64;
    file.set_len(slot(4)).unwrap();
    file.write_all_at(&vec![0; SEGMENT_BYTES], slot(1)).unwrap(); // nothing landed
    file.write_all_at(&[0; 2068], slot(3) - 2068).unwrap(); // the foot's last sectors didn't
    let stored = StoredFile::open(file.try_clone().unwrap()).unwrap();
    assert_eq!(stored.segments().iter().map(|facts| facts.offset).collect::<Vec<_>>(), [slot(0), slot(3)]);
    assert_eq!(stored.unread(), [slot(1), slot(2)]);
    // A page in the middle didn't land: the foot holds, the segment doesn't.
    file.write_all_at(&[0; 512], slot(3) + 4096).unwrap();
    let (_, segments) = look(&file).unwrap();
    assert!(segments[0].as_ref().unwrap() == &written[..100]);
    let fault = segments[1].as_ref().unwrap_err();
    let damaged = SegmentFault::Damaged(Damage::Pages(vec![1]));
    assert!(
        matches!(fault, StoredError::Segment(at, found) if *at == slot(3) && *found == damaged),
        "{fault}"
    );
}

#[test]
fn a_slot_that_was_left_out_is_a_hole_of_padding_and_a_byte_in_it_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let (path, written) = ring_file(folder.path(), 3);
    let mut bytes = std::fs::read(&path).unwrap();
    let mut entries = index::read(&bytes).unwrap();
    let left_out = entries.remove(1).offset as usize..entries[1].offset as usize;
    pcapng::padding(&mut bytes[left_out.clone()]);
    bytes.truncate(4096 + 3 * SEGMENT_BYTES);
    bytes.extend(index::write(&entries));
    std::fs::write(&path, &bytes).unwrap();
    let file = File::options().read(true).write(true).open(&path).unwrap();
    let stored = StoredFile::open(file.try_clone().unwrap()).unwrap();
    let hole = left_out.start as u64..left_out.end as u64;
    assert_eq!((stored.state(), stored.holes()), (State::Closed, vec![hole.clone()]));
    let mut buffer = Vec::new();
    for (index, from) in [(0, 0), (1, 200)] {
        let segment = stored.read_segment(index, &mut buffer).unwrap();
        assert!(segment.packets().zip(&written[from..]).all(|(block, (_, data))| block.data() == data));
    }
    assert!(stored.hole_is_padding(&hole).unwrap());
    for at in [0, 7, 8, 70, SEGMENT_BYTES - 5, SEGMENT_BYTES - 1] {
        let at = left_out.start + at;
        file.write_all_at(&[bytes[at] ^ 4], at as u64).unwrap();
        assert!(!stored.hole_is_padding(&hole).unwrap(), "byte {at}");
        file.write_all_at(&[bytes[at]], at as u64).unwrap();
    }
}

#[test]
fn an_interface_that_the_head_does_not_describe_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let (path, _) = ring_file(folder.path(), 1);
    let mut bytes = std::fs::read(&path).unwrap();
    let segment = &mut bytes[4096..][..SEGMENT_BYTES];
    segment[8] = 3;
    let (body, foot_page) = segment.split_at_mut(SEGMENT_BYTES - 4096);
    checks::seal(body, foot_page);
    let entry = StoredSegment::new(segment).unwrap().entry(4096);
    bytes.truncate(4096 + SEGMENT_BYTES);
    bytes.extend(index::write(&[entry]));
    std::fs::write(&path, &bytes).unwrap();
    let (_, segments) = look(&File::open(&path).unwrap()).unwrap();
    let words = "the segment at byte 4096 has a packet of interface 3, which the head doesn't describe";
    assert_eq!(segments[0].as_ref().unwrap_err().to_string(), words);
}

/// The file as a program from before there were head blocks, checks and an index would have written it.
fn older(bytes: &[u8]) -> Vec<u8> {
    let mut older = Vec::new();
    pcapng::section_header(&mut older, "wirescope 0.1.0", "");
    pcapng::interface(&mut older, LinkType::ETHERNET, "eth0", "lane 0");
    let used = older.len();
    older.resize(4096, 0);
    pcapng::padding(&mut older[used..]);
    let segments = bytes[4096..].chunks_exact(SEGMENT_BYTES);
    for segment in segments {
        older.extend(segment);
        let end = older.len();
        older[end - 4096 + 224..end - 4].fill(0); // the reserve, in which nothing stood
    }
    older
}

#[test]
fn a_file_from_before_there_were_checks_is_read_and_said_to_be_without_them() {
    let folder = tempfile::tempdir().unwrap();
    let (path, written) = ring_file(folder.path(), 3);
    let older_path = folder.path().join("older.pcapng");
    std::fs::write(&older_path, older(&std::fs::read(path).unwrap())).unwrap();
    let file = File::open(&older_path).unwrap();
    let (state, segments) = look(&file).unwrap();
    let packets: Vec<Packet> = segments.into_iter().flat_map(Result::unwrap).collect();
    assert!(state == State::Older && packets == written);
    let stored = StoredFile::open(file).unwrap();
    assert!(!stored.head().has_block() && stored.segments().iter().all(|facts| facts.hash == Hash::NONE));
}

#[test]
fn no_changed_byte_of_a_segment_without_checks_makes_the_reader_fail() {
    let folder = tempfile::tempdir().unwrap();
    let (path, _) = ring_file(folder.path(), 1);
    let mut bytes = older(&std::fs::read(path).unwrap()).split_off(4096);
    let mut refused = 0;
    for at in 0..bytes.len() {
        let flip = [1, 0x80, 0xff, 0x10][at % 4];
        bytes[at] ^= flip;
        if let Ok(segment) = StoredSegment::new(&bytes) {
            let lens: usize = segment.packets().map(|block| block.data().len()).sum();
            assert_eq!(segment.packets().count(), segment.foot().packets as usize);
            assert!(lens < bytes.len() && segment.statistics().count() <= 1);
        } else {
            refused += 1;
        }
        bytes[at] ^= flip;
    }
    assert!(refused > 100 * 20, "{refused}");
}

#[test]
fn what_a_segment_says_wrongly_of_itself_is_found_where_it_stands() {
    let folder = tempfile::tempdir().unwrap();
    let (path, _) = ring_file(folder.path(), 1);
    let bytes = std::fs::read(path).unwrap();
    let foot_at = SEGMENT_BYTES - 4096;
    let blocks_end = pcapng::le32(&bytes[4096..], foot_at + 52) as usize;
    let check = |at: usize, value: &[u8], words: &str| {
        let mut segment = bytes[4096..][..SEGMENT_BYTES].to_vec();
        segment[at..at + value.len()].copy_from_slice(value);
        // The checks hold: whoever wrote it said it wrongly.
        let (body, foot_page) = segment.split_at_mut(foot_at);
        checks::seal(body, foot_page);
        let fault = StoredSegment::new(&segment).expect_err(words).to_string();
        assert!(fault.contains(words), "'{fault}' lacks '{words}'");
    };
    check(foot_at, &[0], "no foot of a segment");
    check(foot_at + 7, &[9], "format version 9, which is newer");
    check(foot_at + 48, &u32::MAX.to_le_bytes(), "more packets than there is room for");
    check(foot_at + 48, &99u32.to_le_bytes(), "the closing length isn't that of so many packets");
    check(foot_at + 52, &61_000u32.to_le_bytes(), "the foot leaves no room for what it counts");
    check(foot_at + 52, &(blocks_end as u32 - 4).to_le_bytes(), "no whole packet block");
    check(foot_at + 56, &[1], "the first packet's time isn't the foot's");
    check(foot_at + 64, &[1], "the packets end otherwise than the foot says");
    check(foot_at + 72, &i64::MAX.to_le_bytes(), "a packet's time lies outside what the foot says");
    check(foot_at - 2, &[0xff], "another place of its packet, 0 bytes into the segment");
    check(0, &[7], "no whole packet block, 0 bytes into the segment");
    check(20, &[0xff, 0xff], "no whole packet block, 0 bytes into the segment");
    check(88, &[0xff], "a packet block's two lengths differ, 0 bytes into the segment");
    check(19, &[0xff], "a packet's time");
    check(blocks_end, &[6, 0, 0, 0], "a block that has no place here");
    check(blocks_end + 4, &[1], "no whole block");
    check(foot_at - 100 * 16 - 8, &[9], "no head of the key column");
}

#[test]
fn a_capture_that_is_no_store_file_is_said_so() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("plain.pcapng");
    let mut bytes = Vec::new();
    pcapng::section_header(&mut bytes, "other", "");
    pcapng::interface(&mut bytes, LinkType::ETHERNET, "eth0", "");
    bytes.extend([6, 0, 0, 0, 32, 0, 0, 0]);
    for bytes in [&bytes[..], b"", b"\xd4\xc3\xb2\xa1"] {
        std::fs::write(&path, bytes).unwrap();
        let fault = look(&File::open(&path).unwrap()).unwrap_err();
        assert!(matches!(fault, StoredError::Head(_)), "{fault}");
    }
}
