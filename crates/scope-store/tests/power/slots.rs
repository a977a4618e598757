//! Slots: what flushes and closings write is valid after each of them, and what a torn one leaves proves
//! exactly what was flushed before.

use super::lane::Lane;
use super::small_ring::SEGMENT_BYTES;
use proptest::prelude::*;
use scope_packet::pcapng::{self, le32};
use scope_packet::segment::FOOT_BYTES;
use scope_store::StoredSegment;
use scope_store::checks::FLUSH_AT;
use scope_store::record::RECORD_BYTES;
use scope_store::salvage::{self, Cut, Findings, Proof};
use scope_store::slot::{self, Flushed, Put};

fn flush(lane: &Lane, flushed: &mut Flushed) -> Vec<Put> {
    let segment = lane.segment();
    flushed.flush(&segment, segment.committed()).unwrap_or_default()
}

fn apply(slot: &mut [u8], puts: &[Put]) {
    for put in puts {
        slot[put.at..put.at + put.bytes.as_slice().len()].copy_from_slice(put.bytes.as_slice());
    }
}

/// Applies only some sectors.
fn apply_torn(slot: &mut [u8], puts: &[Put], landed: impl Fn(usize) -> bool) {
    for put in puts {
        for (index, sector) in put.bytes.as_slice().chunks(512).enumerate() {
            let at = put.at + index * 512;
            if landed(at / 512) {
                slot[at..at + 512].copy_from_slice(sector);
            }
        }
    }
}

/// Every byte belongs to a block: how many are packets.
fn packets_of(slot: &[u8]) -> usize {
    let (mut at, mut packets) = (0, 0);
    while at < slot.len() {
        let total = le32(slot, at + 4) as usize;
        assert!(
            total >= 12 && at + total <= slot.len() && le32(slot, at + total - 4) as usize == total,
            "at {at}"
        );
        packets += usize::from(le32(slot, at) == pcapng::PACKET);
        at += total;
    }
    packets
}

/// Holds what a slot proves against the packets that were written: how many it proves.
fn proven(slot: &[u8], blocks: &[u8]) -> u32 {
    match salvage::look(slot).proof {
        Proof::Nothing => 0,
        Proof::Whole { foot, hash } => {
            let segment = StoredSegment::new(slot).unwrap();
            assert_eq!((segment.foot(), segment.hash()), (&foot, hash));
            assert_eq!(segment.blocks(), &blocks[..foot.block_bytes as usize]);
            foot.packets
        }
        Proof::Beginning { foot, record } => {
            let mut closed = slot.to_vec();
            let hash = salvage::close(&mut closed, &foot, record);
            let segment = StoredSegment::new(&closed).unwrap();
            assert_eq!((segment.foot(), segment.hash()), (&foot, hash));
            assert_eq!(segment.blocks(), &blocks[..foot.block_bytes as usize]);
            let proof = salvage::look(&closed).proof;
            assert_eq!(proof, Proof::Whole { foot, hash }, "closing it again changes nothing");
            foot.packets
        }
    }
}

fn flushes() -> impl Strategy<Value = Vec<Vec<u16>>> {
    let lengths = prop_oneof![Just(0u16), 1u16..70, 60u16..1600, Just(4064u16), 4000u16..9000];
    let burst = prop_oneof![
        4 => prop::collection::vec(lengths, 1..40),
        1 => prop::collection::vec(0u16..3, 200..700), // whole pages of entries
    ];
    prop::collection::vec(burst, 1..7)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn a_slot_is_valid_after_each_flush_and_its_closing_is_that_of_a_segment_never_flushed(
        flushes in flushes(),
    ) {
        let mut lane = Lane::new();
        let (mut slot, mut flushed) = (vec![0; SEGMENT_BYTES], Flushed::default());
        for lengths in &flushes {
            lane.append(lengths);
            apply(&mut slot, &flush(&lane, &mut flushed));
            let packets = lane.segment().committed().packets;
            prop_assert_eq!(packets_of(&slot), packets as usize);
            prop_assert_eq!(proven(&slot, &lane.blocks), packets);
            prop_assert!(flush(&lane, &mut flushed).is_empty(), "nothing is new");
        }
        lane.append(&[100]);
        lane.writer.seal();
        let segment = lane.segment();
        let closed = slot::close(Some(&flushed), &segment).unwrap();
        apply(&mut slot, &closed.puts);
        let stored = StoredSegment::new(&slot).unwrap();
        prop_assert_eq!((stored.hash(), stored.foot()), (closed.hash, &closed.foot));
        let mut never = vec![0; SEGMENT_BYTES];
        apply(&mut never, &slot::close(None, &segment).unwrap().puts);
        let foot_from = SEGMENT_BYTES - FOOT_BYTES;
        prop_assert_eq!(&slot[..foot_from], &never[..foot_from]);
        prop_assert_eq!(&slot[foot_from..foot_from + 512], &never[foot_from..foot_from + 512]);
        prop_assert_eq!(proven(&never, &lane.blocks), closed.foot.packets);
    }

    #[test]
    fn a_torn_flush_or_closing_proves_what_was_flushed_before_or_all_of_it(
        flushes in flushes(), closes in any::<bool>(), landed in prop::collection::vec(any::<bool>(), 128),
        most in any::<bool>(), missing in 0usize..128,
    ) {
        let mut lane = Lane::new();
        let (mut slot, mut flushed, mut before) = (vec![0; SEGMENT_BYTES], Flushed::default(), 0);
        let (last, others) = flushes.split_last().unwrap();
        for lengths in others {
            lane.append(lengths);
            apply(&mut slot, &flush(&lane, &mut flushed));
            before = lane.segment().committed().packets;
        }
        lane.append(last);
        let after = lane.segment().committed().packets;
        let landed = |sector: usize| if most { sector != missing } else { landed[sector] };
        if closes {
            lane.writer.seal();
            let closed = slot::close((before > 0).then_some(&flushed), &lane.segment()).unwrap();
            apply_torn(&mut slot, &closed.puts, landed);
        } else {
            apply_torn(&mut slot, &flush(&lane, &mut flushed), landed);
        }
        let kept = proven(&slot, &lane.blocks);
        prop_assert!(kept == before || kept == after, "{} of {} and {}", kept, before, after);
        let Findings { cut, .. } = salvage::look(&slot);
        prop_assert!(u64::from(kept) + cut.packets <= u64::from(after) && (cut.unknown == 0 || kept == 0));
    }

    #[test]
    fn a_changed_byte_proves_no_packet_that_was_not_written(
        flushes in flushes(), at in 0usize..SEGMENT_BYTES, foot in any::<bool>(), flip in 1u8..,
    ) {
        let mut lane = Lane::new();
        let (mut slot, mut flushed) = (vec![0; SEGMENT_BYTES], Flushed::default());
        let mut promised = vec![0];
        for lengths in &flushes {
            lane.append(lengths);
            apply(&mut slot, &flush(&lane, &mut flushed));
            promised.push(lane.segment().committed().packets);
        }
        let at = if foot { SEGMENT_BYTES - FOOT_BYTES + at % 1200 } else { at };
        slot[at] ^= flip;
        prop_assert!(promised.contains(&proven(&slot, &lane.blocks)));
    }

    #[test]
    fn foreign_bytes_prove_nothing_and_never_make_it_fail(
        bytes in prop::collection::vec(any::<u8>(), FOOT_BYTES), keep in 0usize..300,
    ) {
        let mut lane = Lane::new();
        lane.append(&[60, 60, 60]);
        let mut slot = vec![0; SEGMENT_BYTES];
        apply(&mut slot, &flush(&lane, &mut Flushed::default()));
        let foot_from = SEGMENT_BYTES - FOOT_BYTES;
        slot[foot_from + keep..].copy_from_slice(&bytes[keep..]);
        prop_assert_eq!(salvage::look(&slot).proof, Proof::Nothing);
    }
}

#[test]
fn an_untouched_slot_and_one_that_was_given_up_say_that_nothing_is_missing() {
    let mut slot = vec![0; SEGMENT_BYTES];
    let nothing = Findings { proof: Proof::Nothing, cut: Cut::default() };
    assert_eq!(salvage::look(&slot), nothing);
    apply(&mut slot, &[slot::empty(SEGMENT_BYTES)]);
    assert_eq!(salvage::look(&slot), nothing);
    assert_eq!(packets_of(&slot), 0);
    slot[100] = 1;
    assert_eq!(salvage::look(&slot).cut, Cut { packets: 0, unknown: 1 });
}

#[test]
fn the_packets_of_a_flush_that_does_not_hold_are_counted() {
    let mut lane = Lane::new();
    let (mut slot, mut flushed) = (vec![0; SEGMENT_BYTES], Flushed::default());
    for packets in [5, 7, 9] {
        lane.append(&vec![100; packets]);
        apply(&mut slot, &flush(&lane, &mut flushed));
    }
    slot[100] ^= 1; // of the first flush
    let findings = salvage::look(&slot);
    let Proof::Nothing = findings.proof else { panic!("both records speak of it") };
    assert_eq!(findings.cut, Cut { packets: 21, unknown: 0 });
    slot[100] ^= 1;
    let foot_from = SEGMENT_BYTES - FOOT_BYTES;
    slot[foot_from + FLUSH_AT[1] + RECORD_BYTES - 1] ^= 1; // the third's record
    let findings = salvage::look(&slot);
    assert!(matches!(findings.proof, Proof::Beginning { foot, record: 0 } if foot.packets == 12));
    assert_eq!(findings.cut, Cut { packets: 9, unknown: 0 });
}
