//! Blocks made by hand, odd ones among them, and what the walk makes of them.

use super::*;
use proptest::prelude::*;

const RULES: Rules = Rules { ethernet: true, snap_len: 65536 };
const VLAN: u32 = libc::TP_STATUS_VLAN_VALID;
const VLAN_AND_TPID: u32 = libc::TP_STATUS_VLAN_VALID | libc::TP_STATUS_VLAN_TPID_VALID;

/// One packet as the kernel would write it.
#[derive(Clone, Debug)]
struct Written {
    data: Vec<u8>,
    original_len: u32,
    status: u32,
    tpid: u16,
    tci: u16,
    packet_type: u8,
    mac: u16,
}

impl Default for Written {
    fn default() -> Written {
        Written {
            data: vec![7; 60],
            original_len: 60,
            status: libc::TP_STATUS_USER,
            tpid: 0,
            tci: 0,
            packet_type: 0,
            mac: 86,
        }
    }
}

fn put(block: &mut [u8], at: usize, bytes: &[u8]) {
    block[at..at + bytes.len()].copy_from_slice(bytes);
}

/// A block of 8 KiB that holds `packets`; packet i is of second 100 + i and nanosecond i.
fn block_of(packets: &[Written]) -> Vec<u8> {
    let mut block = vec![0xcc; 8192];
    put(&mut block, STATUS_AT, &libc::TP_STATUS_USER.to_ne_bytes());
    put(&mut block, PACKETS_AT, &(packets.len() as u32).to_ne_bytes());
    put(&mut block, FIRST_PACKET_AT, &(BLOCK_HEAD_BYTES as u32).to_ne_bytes());
    let mut at = BLOCK_HEAD_BYTES;
    for (number, packet) in packets.iter().enumerate() {
        let bytes = (packet.mac as usize + packet.data.len()).next_multiple_of(16);
        let next = if number + 1 == packets.len() { 0 } else { bytes as u32 };
        let number = number as u32;
        for (place, word) in
            [next, 100 + number, number, packet.data.len() as u32, packet.original_len, packet.status]
                .iter()
                .enumerate()
        {
            put(&mut block, at + 4 * place, &word.to_ne_bytes());
        }
        put(&mut block, at + 24, &packet.mac.to_ne_bytes());
        put(&mut block, at + 32, &u32::from(packet.tci).to_ne_bytes());
        put(&mut block, at + 36, &packet.tpid.to_ne_bytes());
        block[at + PACKET_TYPE_AT] = packet.packet_type;
        put(&mut block, at + packet.mac as usize, &packet.data);
        at += bytes;
    }
    block
}

/// Walks `block` to its end; returns the frames, their bytes, and how many could not be read.
fn walk(block: &mut [u8], rules: Rules) -> (Vec<(Frame, Vec<u8>)>, u32) {
    let mut walk = Walk::begin(block);
    let mut frames = [Frame::default(); 3];
    let mut found = Vec::new();
    loop {
        let count = walk.next_frames(block, rules, &mut frames);
        if count == 0 {
            return (found, walk.unreadable());
        }
        for frame in &frames[..count] {
            found.push((*frame, block[frame.start..frame.start + frame.len].to_vec()));
        }
    }
}

fn only(packet: Written, rules: Rules) -> (Frame, Vec<u8>) {
    let (mut found, unreadable) = walk(&mut block_of(&[packet]), rules);
    assert_eq!((found.len(), unreadable), (1, 0));
    found.remove(0)
}

fn ethernet(len: usize) -> Vec<u8> {
    (0..len).map(|byte| byte as u8).collect()
}

#[test]
fn packets_come_in_order_with_their_times_lengths_and_directions() {
    let packets: Vec<Written> = (0..7)
        .map(|number| Written {
            data: vec![number; 20 + number as usize],
            original_len: 1000 + u32::from(number),
            packet_type: if number == 3 { libc::PACKET_OUTGOING } else { 0 },
            status: if number == 4 { libc::TP_STATUS_TS_RAW_HARDWARE } else { 1 },
            ..Written::default()
        })
        .collect();
    let (found, unreadable) = walk(&mut block_of(&packets), RULES);
    assert_eq!((found.len(), unreadable), (7, 0));
    for (number, ((frame, data), packet)) in found.iter().zip(&packets).enumerate() {
        assert_eq!((data, frame.original_len), (&packet.data, packet.original_len));
        assert_eq!(frame.time_ns, (100 + number as i64) * NS_PER_SECOND + number as i64);
        assert_eq!((frame.outgoing, frame.hardware_time), (number == 3, number == 4));
    }
}

#[test]
fn a_stripped_tag_is_put_back_behind_the_addresses() {
    let check = |status, tpid, expected_tpid: [u8; 2]| {
        let packet = Written { data: ethernet(60), status, tpid, tci: 0xE123, ..Written::default() };
        let (frame, data) = only(packet, RULES);
        let expected = [&ethernet(60)[..12], &expected_tpid, &[0xE1, 0x23], &ethernet(60)[12..]].concat();
        assert_eq!((data, frame.original_len), (expected, 64));
    };
    check(VLAN, 0, [0x81, 0x00]);
    check(VLAN_AND_TPID, 0x88a8, [0x88, 0xa8]);
    check(VLAN, 0x9999, [0x81, 0x00]);
}

#[test]
fn a_tag_of_number_0_is_put_back_too() {
    let (_, data) = only(Written { data: ethernet(14), status: VLAN, ..Written::default() }, RULES);
    assert_eq!(data[12..16], [0x81, 0, 0, 0]);
    assert_eq!(data.len(), 18);
}

#[test]
fn only_what_the_kernel_marks_is_a_tag() {
    let (frame, data) =
        only(Written { data: ethernet(60), status: 1, tci: 5, tpid: 0x8100, ..Written::default() }, RULES);
    assert_eq!((data, frame.original_len), (ethernet(60), 60));
}

#[test]
fn no_tag_is_put_into_frames_that_are_not_ethernet() {
    let rules = Rules { ethernet: false, ..RULES };
    let (frame, data) = only(Written { data: ethernet(60), status: VLAN, ..Written::default() }, rules);
    assert_eq!((data, frame.original_len), (ethernet(60), 60));
}

#[test]
fn a_frame_cut_before_the_tags_place_grows_on_the_wire_only() {
    for len in 0..12 {
        let (frame, data) = only(Written { data: ethernet(len), status: VLAN, ..Written::default() }, RULES);
        assert_eq!((data, frame.original_len), (ethernet(len), 64), "{len}");
    }
    let (frame, data) = only(Written { data: ethernet(12), status: VLAN, ..Written::default() }, RULES);
    assert_eq!((data.len(), frame.original_len), (16, 64));
}

#[test]
fn without_room_before_the_frame_nothing_is_overwritten() {
    let mac = PACKET_HEAD_BYTES as u16 + 3;
    let (frame, data) = only(Written { data: ethernet(60), status: VLAN, mac, ..Written::default() }, RULES);
    assert_eq!((data, frame.original_len), (ethernet(60), 64));
}

#[test]
fn a_tag_counts_towards_the_snap_length() {
    let rules = Rules { snap_len: 40, ..RULES };
    let (frame, data) =
        only(Written { data: ethernet(40), original_len: 500, status: VLAN, ..Written::default() }, rules);
    assert_eq!((data.len(), frame.original_len), (40, 504));
    assert_eq!(data[16..], ethernet(36)[12..]);
}

#[test]
fn an_empty_block_holds_nothing() {
    assert_eq!(walk(&mut block_of(&[]), RULES), (vec![], 0));
    assert_eq!(walk(&mut [], RULES), (vec![], 0));
    assert_eq!(walk(&mut [0; 47], RULES), (vec![], 0));
}

#[test]
fn a_packet_of_no_bytes_is_a_packet() {
    let (frame, data) = only(Written { data: vec![], original_len: 0, ..Written::default() }, RULES);
    assert_eq!((data.len(), frame.original_len), (0, 0));
}

#[test]
fn numbers_that_lead_out_of_the_block_end_the_walk_and_are_counted() {
    let three = || block_of(&[Written::default(), Written::default(), Written::default()]);
    let second = BLOCK_HEAD_BYTES + 160;
    let check = |at: usize, bytes: &[u8], readable: usize, unreadable: u32| {
        let mut block = three();
        put(&mut block, at, bytes);
        let (found, lost) = walk(&mut block, RULES);
        assert_eq!((found.len(), lost), (readable, unreadable), "{bytes:x?} at {at}");
    };
    check(PACKETS_AT, &4u32.to_ne_bytes(), 3, 1);
    check(PACKETS_AT, &u32::MAX.to_ne_bytes(), 3, u32::MAX - 3);
    check(FIRST_PACKET_AT, &8192u32.to_ne_bytes(), 0, 3);
    check(FIRST_PACKET_AT, &u32::MAX.to_ne_bytes(), 0, 3);
    check(second, &0u32.to_ne_bytes(), 2, 1);
    check(second, &1u32.to_ne_bytes(), 2, 1);
    check(second, &u32::MAX.to_ne_bytes(), 2, 1);
    check(second + 12, &u32::MAX.to_ne_bytes(), 1, 2);
    check(second + 12, &8192u32.to_ne_bytes(), 1, 2);
    check(second + 24, &u16::MAX.to_ne_bytes(), 1, 2);
    check(second + 24, &0u16.to_ne_bytes(), 1, 2);
}

proptest! {
    #[test]
    fn foreign_bytes_never_make_the_walk_fail(mut bytes in proptest::collection::vec(any::<u8>(), 0..600),
        wild in any::<bool>(), snap_len in 0usize..300) {
        if !wild && bytes.len() >= BLOCK_HEAD_BYTES {
            put(&mut bytes, FIRST_PACKET_AT, &48u32.to_ne_bytes());
            put(&mut bytes, PACKETS_AT, &9u32.to_ne_bytes());
        }
        let (found, _) = walk(&mut bytes, Rules { ethernet: true, snap_len });
        prop_assert!(found.iter().all(|(frame, _)| frame.len <= snap_len));
    }

    #[test]
    fn one_wrong_byte_never_makes_the_walk_fail(at in 0usize..600, value in any::<u8>()) {
        let packet = Written { data: ethernet(60), status: VLAN_AND_TPID, ..Written::default() };
        let mut block = block_of(&[packet.clone(), packet.clone(), packet]);
        block[at] = value;
        walk(&mut block, RULES);
    }
}
