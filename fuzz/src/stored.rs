//! Stored files: head, index and segment, changed in a few places, with checks that hold and with ones that
//! don't.

use scope_packet::pcapng::{self, PacketHead};
use scope_packet::segment::{self, FOOT_BYTES, FileLosses, Foot, LeftOut, SEGMENT_BYTES_MIN};
use scope_packet::{Drops, Headers, KeyEntry, LinkType};
use scope_ring::KeyTest;
use scope_store::head::{Head, HeadInterface};
use scope_store::record::{self, Record, Running};
use scope_store::salvage::{self, Proof};
use scope_store::{Hash, StoredSegment, checks, index};
use std::sync::OnceLock;
use twox_hash::XxHash3_64;

/// The first byte says what is changed, and whether its checks are made anew (odd). Then come changes: two
/// bytes offset, in a segment divided by 4, and four bytes that are put there.
pub fn check(data: &[u8]) {
    let Some((&what, changes)) = data.split_first() else { return };
    let sealed = what % 2 == 1;
    match what / 2 % 3 {
        0 => changed_head(changes, sealed),
        1 => changed_index(changes, sealed),
        _ => changed_segment(changes, sealed),
    }
}

/// `base` with the changes, offsets times `scale`.
pub fn changed(base: &[u8], changes: &[u8], scale: usize) -> Vec<u8> {
    let mut bytes = base.to_vec();
    for change in changes.as_chunks::<6>().0 {
        let at = usize::from(u16::from_le_bytes([change[0], change[1]])) * scale % (base.len() - 4);
        bytes[at..at + 4].copy_from_slice(&change[2..]);
    }
    bytes
}

/// Makes the XXH3-64 at `at` that is over everything but itself.
fn seal(bytes: &mut [u8], at: usize) {
    bytes[at..at + 8].fill(0);
    let check = XxHash3_64::oneshot(bytes);
    bytes[at..at + 8].copy_from_slice(&check.to_le_bytes());
}

/// Of an index block: its card, and where the check of it stands.
const CARD_BYTES: usize = 2184;
const CARD_CHECK_AT: usize = 128;

/// Of its parts behind: pages, and where each has its check.
const PAGE_BYTES: usize = 4096;
const PAGE_CHECK_AT: usize = 4080;

/// Makes the check of an index block's card.
fn seal_card(block: &mut [u8]) {
    block[32..40].fill(0);
    seal(&mut block[..CARD_BYTES], CARD_CHECK_AT);
}

/// The head of a file with two interfaces.
fn whole_head() -> &'static [u8] {
    static WHOLE: OnceLock<Vec<u8>> = OnceLock::new();
    WHOLE.get_or_init(|| {
        let interface = |name: &str| HeadInterface {
            name: name.to_string(),
            description: "lane 0".to_string(),
            link_type: LinkType::ETHERNET,
        };
        let head = Head {
            run_id: [1; 16],
            volume: [2; 16],
            volumes: vec![[2; 16], [3; 16]],
            number: 3,
            segment_bytes: SEGMENT_BYTES_MIN as u32,
            link_type: LinkType::ETHERNET,
            filter: "udp port 53".to_string(),
            snap: 96,
            interfaces: vec![interface("eth0"), interface("eth1")],
        };
        head.write()
    })
}

/// A stored file of one segment.
pub fn whole_file() -> &'static [u8] {
    static WHOLE: OnceLock<Vec<u8>> = OnceLock::new();
    WHOLE.get_or_init(|| {
        let (head, segment) = (whole_head(), whole_segment());
        let entry = StoredSegment::new(segment).expect("a segment").entry(head.len() as u64);
        [head, segment, &index::write(&[entry])].concat()
    })
}

fn changed_head(changes: &[u8], sealed: bool) {
    let whole = whole_head();
    let mut bytes = changed(whole, changes, 1);
    if sealed {
        let block_at = whole.windows(6).position(|part| part == b"WSHEAD").expect("a head block") - 8;
        seal(&mut bytes, block_at + 72);
    }
    let Ok((head, len)) = Head::read(&bytes) else { return };
    assert!(len <= bytes.len() && (sealed || !head.has_block() || bytes == whole));
    if head.has_block() {
        let written = head.write();
        assert!(Head::read(&written).is_ok_and(|(_, len)| len == written.len()));
    }
}

fn changed_index(changes: &[u8], sealed: bool) {
    static WHOLE: OnceLock<Vec<u8>> = OnceLock::new();
    let whole = WHOLE.get_or_init(|| {
        let segment = StoredSegment::new(whole_segment()).expect("a segment");
        index::write(&[segment.entry(4096), segment.entry(4096 + SEGMENT_BYTES_MIN as u64)])
    });
    let mut bytes = changed(whole, changes, 1);
    if sealed {
        seal_card(&mut bytes);
        // The facts are one page here, as each of the slices; the block's own check isn't made yet.
        for page in bytes.chunks_mut(PAGE_BYTES) {
            seal(page, PAGE_CHECK_AT);
        }
        seal(&mut bytes, 32);
    }
    let read = |at: u64, into: &mut [u8]| {
        into.copy_from_slice(&bytes[at as usize..][..into.len()]);
        Ok::<(), std::convert::Infallible>(())
    };
    let Ok(card) = index::read_card(bytes.len() as u64, read);
    if card.is_some() {
        let is_same = |at: std::ops::Range<usize>| bytes[at.clone()] == whole[at];
        assert!(sealed || is_same(8..32) && is_same(40..CARD_BYTES), "a change of the card went unnoticed");
    }
    if let Ok(entries) = index::read(&bytes) {
        assert!(sealed || bytes == *whole, "a change went unnoticed");
        assert_eq!(index::read(&index::write(&entries)), Ok(entries));
    }
    for test in [KeyTest::all(), KeyTest::host([10, 0, 0, 1]), KeyTest::port(53), KeyTest::port(50_000)] {
        let search = |bytes: &[u8]| {
            let read = |at: u64, into: &mut [u8]| {
                into.copy_from_slice(&bytes[at as usize..][..into.len()]);
                Ok::<(), std::convert::Infallible>(())
            };
            let Ok(found) = index::search_from_end(0..bytes.len() as u64, &test, &mut Vec::new(), read);
            found
        };
        if let Ok(found) = search(&bytes) {
            assert!(sealed || Ok(found) == search(whole), "a change went unnoticed");
        }
    }
}

fn changed_segment(changes: &[u8], sealed: bool) {
    let mut bytes = changed(whole_segment(), changes, 4);
    if sealed {
        let (body, foot_page) = bytes.split_at_mut(SEGMENT_BYTES_MIN - FOOT_BYTES);
        checks::seal(body, foot_page);
    }
    salvaged(&bytes);
    let Ok(read) = StoredSegment::new(&bytes) else { return };
    assert!(sealed || read.hash() == Hash::NONE || bytes == whole_segment(), "a change went unnoticed");
    assert_eq!(read.packets().count(), read.foot().packets as usize);
    for number in 0..read.foot().packets {
        let (entry, block) = read.packet(number).expect("each packet is there");
        assert_eq!(block.bytes().as_ptr(), read.bytes()[entry.offset() as usize..].as_ptr());
    }
    assert!(read.packet(read.foot().packets).is_none());
    let _seen = (read.statistics().count(), read.entry(4096));
}

/// What a flush record proves of a slot is a segment once it is closed.
fn salvaged(slot: &[u8]) {
    if let Proof::Beginning { foot, record } = salvage::look(slot).proof {
        let mut slot = slot.to_vec();
        let hash = salvage::close(&mut slot, &foot, record);
        assert_eq!(checks::verify(&slot), Ok(hash));
    }
}

/// A segment of 8 packets with its checks and a flush record of the first 5.
fn whole_segment() -> &'static [u8] {
    static WHOLE: OnceLock<Vec<u8>> = OnceLock::new();
    WHOLE.get_or_init(|| {
        let mut out = vec![0; SEGMENT_BYTES_MIN];
        let (mut at, packets) = (0, 8);
        for number in 0..packets {
            let data = [number as u8; 60];
            let head = PacketHead {
                time_ns: number as i64,
                captured_len: 60,
                original_len: 60,
                ..PacketHead::default()
            };
            head.write(&mut out[at..at + head.block_bytes()], &data);
            let entry = KeyEntry::new(&Headers::parse(LinkType::ETHERNET, &data)).at(at as u32);
            out[segment::entry_offset(SEGMENT_BYTES_MIN, number)..][..16].copy_from_slice(&entry.to_bytes());
            at += head.block_bytes();
        }
        let foot = Foot {
            run_id: [1; 16],
            lane: 0,
            link_type: LinkType::ETHERNET,
            unordered: false,
            sequence: 0,
            first_packet: 0,
            packets: packets as u32,
            block_bytes: at as u32,
            first_ns: 0,
            last_ns: packets as i64 - 1,
            min_ns: 0,
            max_ns: packets as i64 - 1,
            bytes_before: 0,
            drops_before: Drops::default(),
            left_out: LeftOut::default(),
            file_losses: FileLosses::default(),
        };
        let mut statistics = Vec::new();
        pcapng::statistics(&mut statistics, 0, 1, 2, 3);
        let (front, tail) = out.split_at_mut(SEGMENT_BYTES_MIN - FOOT_BYTES);
        let entries_at = segment::entry_offset(SEGMENT_BYTES_MIN, packets - 1);
        segment::seal(&mut front[at..entries_at], tail, &foot, &statistics);
        let flushed = 5 * at / packets;
        let mut running = Running::new();
        running.add(&front[..flushed], &front[segment::entry_offset(SEGMENT_BYTES_MIN, 4)..]);
        let record = Record {
            number: 1,
            packets: 5,
            block_bytes: flushed as u32,
            constants: record::constants(&foot),
            hashes: running.hashes(),
            left_out: LeftOut::default(),
        };
        tail[checks::FLUSH_AT[1]..][..checks::FLUSH_BYTES].copy_from_slice(&record.to_bytes());
        checks::seal(front, tail);
        out
    })
}
