//! Every byte of every sealed segment: what lies where, what is used, and what the statistics say.

mod stand;

use scope_packet::pcapng::PacketHead;
use scope_packet::segment::{KEPT_BYTES_MAX, kept_bytes_max};
use scope_packet::{DropReason, Drops, KeyEntry, LinkType, SegmentId};
use stand::{Dice, KIB, MIB, Stated, account, accounts, append, head, lane, ring};

#[test]
fn every_byte_of_every_sealed_segment_is_accounted_for() {
    for (segments, segment_bytes) in [(32, 64 * KIB), (16, 256 * KIB), (16, 2 * MIB)] {
        let ring = ring(segments, segment_bytes, 1);
        let mut writer = lane(&ring, 0);
        stand::add_interface(&ring, &mut writer);
        stand::add_interface(&ring, &mut writer);
        let mut dice = Dice(segment_bytes);
        // What was received and dropped by interface, captured bytes and drops, before each packet.
        let mut history: Vec<([u64; 3], [u64; 3], u64, Drops)> = vec![Default::default()];
        let mut sent: Vec<PacketHead> = Vec::new();
        while ring.lane_next(0) < segments * 3 / 2 {
            let (mut received, mut dropped, mut bytes, mut drops) = *history.last().unwrap();
            let index = dice.below(3) as usize;
            if dice.one_in(50) {
                writer.count_dropped(index, DropReason::RingPinned, 2);
                (received[index], dropped[index]) = (received[index] + 2, dropped[index] + 2);
                drops.add(DropReason::RingPinned, 2);
                *history.last_mut().unwrap() = (received, dropped, bytes, drops);
            }
            let len = if dice.one_in(40) { dice.below(16_000) } else { dice.below(400) } as usize;
            let head = PacketHead {
                flags: dice.below(3) as u32,
                interface: index as u32,
                ..head(len, dice.below(1 << 40) as i64)
            };
            assert!(append(&mut writer, index, head, KeyEntry::default()));
            received[index] += 1;
            bytes += len as u64;
            history.push((received, dropped, bytes, drops));
            sent.push(head);
        }
        drop(writer);
        let found = accounts(&ring, 0);
        assert_eq!(found.len() as u64, segments, "the ring is full of sealed segments");
        for account in found {
            let foot = &account.foot;
            let (first, end) =
                (foot.first_packet as usize, (foot.first_packet + foot.packets as u64) as usize);
            assert_eq!((foot.run_id, foot.lane, foot.link_type), (stand::RUN_ID, 0, LinkType::ETHERNET));
            assert_eq!(foot.bytes_before, history[first].2);
            // Drops between the last packet of the segment before and the first of this one may stand on
            // either side.
            let drops = foot.drops_before.get(DropReason::RingPinned);
            assert!(
                drops == history[first].3.get(DropReason::RingPinned)
                    || first > 0 && drops + 2 == history[first].3.get(DropReason::RingPinned)
            );
            for (number, (found, data)) in (first..end).zip(&account.packets) {
                assert_eq!(*found, sent[number]);
                assert_eq!(*data, stand::bytes_of(0, number as u64, sent[number].captured_len as usize));
            }
            check_statistics(&account.statistics, &history[end].0, &history[end].1, foot.max_ns);
        }
    }
}

/// Drops directly behind the segment's last packet belong to it: they were known when it was sealed.
fn check_statistics(stated: &[Stated], received: &[u64; 3], dropped: &[u64; 3], time_ns: i64) {
    assert_eq!(stated.len(), 3);
    for (index, stated) in stated.iter().enumerate() {
        let expected =
            Stated { interface: index as u32, time_ns, received: received[index], dropped: dropped[index] };
        assert_eq!(*stated, expected, "cumulative, one for each interface");
    }
}

#[test]
fn full_segments_are_used_as_far_as_promised() {
    let imix =
        |dice: &mut Dice| [64, 64, 64, 64, 64, 64, 64, 594, 594, 594, 594, 1518][dice.below(12) as usize];
    let sizes: [fn(&mut Dice) -> usize; 4] =
        [imix, |_| 1518, |dice| dice.below(1519) as usize, |dice| if dice.one_in(3) { 1518 } else { 1400 }];
    for (segment_bytes, segments, least) in [(64 * KIB, 64, 0.90), (MIB, 20, 0.99), (2 * MIB, 20, 0.99)] {
        for size in sizes {
            let ring = ring(segments, segment_bytes, 2);
            let (mut busy, mut idle) = (lane(&ring, 0), lane(&ring, 1));
            stand::feed(&mut idle, 1, 60);
            let mut dice = Dice(1);
            while ring.lane_next(0) < segments {
                assert!(append(&mut busy, 0, head(size(&mut dice), 1), KeyEntry::default()));
            }
            busy.commit();
            let found = accounts(&ring, 0);
            let closed_bytes = found.len() as f64 * segment_bytes as f64;
            let used_bytes: usize = found.iter().map(|account| account.used_bytes()).sum();
            for account in &found {
                let used = account.used_bytes() as f64 / segment_bytes as f64;
                assert!(used >= least, "{used} of {segment_bytes} B, {} B of padding", account.padding_bytes);
            }
            assert!(used_bytes as f64 >= 0.9 * closed_bytes, "of the ring's closed segments together");
        }
    }
}

#[test]
fn with_more_than_64_interfaces_each_ones_statistics_come_round() {
    let ring = ring(64, 64 * KIB, 1);
    let mut writer = lane(&ring, 0);
    let interfaces = 150;
    for _ in 1..interfaces {
        stand::add_interface(&ring, &mut writer);
    }
    let mut received = vec![0u64; interfaces];
    let mut dice = Dice(9);
    let mut at_end = Vec::new(); // of each segment
    while ring.lane_next(0) < 40 {
        let index = if dice.one_in(10) { dice.below(interfaces as u64) as usize } else { 3 };
        let opened = ring.lane_next(0);
        let before = received.clone();
        assert!(append(&mut writer, index, head(200, 1), KeyEntry::default()));
        received[index] += 1;
        if ring.lane_next(0) > opened && opened > 0 {
            at_end.push(before);
        }
    }
    let found = accounts(&ring, 0);
    let mut last_stated = vec![0; interfaces];
    for (number, account) in found.iter().enumerate() {
        assert_eq!(account.statistics.len(), 64);
        for stated in &account.statistics {
            assert_eq!(
                stated.received, at_end[number][stated.interface as usize],
                "cumulative at the segment's end"
            );
            last_stated[stated.interface as usize] = number + 1;
        }
        assert!(
            last_stated.iter().all(|&stated| number + 1 - stated < 3),
            "within three segments, the busiest one, too"
        );
    }
}

#[test]
fn an_interface_that_comes_late_finds_room_for_its_statistics() {
    for seed in 0..200 {
        let ring = ring(16, 64 * KIB, 1);
        let mut writer = lane(&ring, 0);
        let mut dice = Dice(seed);
        while ring.lane_next(0) < 3 {
            // So rarely that the first segment fills before the 64th comes.
            let index = if dice.one_in(20) { stand::add_interface(&ring, &mut writer) } else { 0 };
            assert!(append(&mut writer, index, head(dice.below(60) as usize, 1), KeyEntry::default()));
        }
        writer.seal();
        let found = accounts(&ring, 0);
        assert_eq!(
            found.iter().map(|account| account.packets.len() as u64).sum::<u64>(),
            writer.next_packet()
        );
    }
}

#[test]
fn the_largest_packet_that_is_kept_fits_every_segment_size() {
    for shift in 16..=21 {
        let segment_bytes = 1u64 << shift;
        let ring = ring(16, segment_bytes, 1);
        let mut writer = lane(&ring, 0);
        for _ in 1..70 {
            stand::add_interface(&ring, &mut writer);
        }
        let kept = writer.kept_bytes_max();
        assert_eq!(kept, kept_bytes_max(segment_bytes as usize));
        assert_eq!(kept, (segment_bytes as usize / 4).min(KEPT_BYTES_MAX));
        let largest = PacketHead { flags: 2, lost_before: 1, original_len: u32::MAX, ..head(kept, 1) };
        for _ in 0..20 {
            assert!(append(&mut writer, 0, largest, KeyEntry::default()));
        }
        writer.seal();
        assert_eq!(accounts(&ring, 0).iter().map(|account| account.packets.len()).sum::<usize>(), 20);
    }
}

#[test]
fn packets_without_bytes_are_kept_as_packets() {
    let ring = ring(16, 64 * KIB, 1);
    let mut writer = lane(&ring, 0);
    for number in 0..5000 {
        assert!(append(
            &mut writer,
            0,
            PacketHead { original_len: 1500, ..head(0, number) },
            KeyEntry::default()
        ));
    }
    drop(writer);
    let heads = accounts(&ring, 0).into_iter().flat_map(|account| account.packets);
    assert_eq!(heads.filter(|(head, data)| head.original_len == 1500 && data.is_empty()).count(), 5000);
}

#[test]
fn whatever_is_left_of_a_segment_is_covered_by_padding() {
    let ring = ring(16, 64 * KIB, 1);
    let mut writer = lane(&ring, 0);
    let mut dice = Dice(5);
    let mut gaps = std::collections::BTreeSet::new();
    for sequence in 0..1000 {
        while ring.lane_next(0) <= sequence + 1 {
            assert!(append(&mut writer, 0, head(dice.below(400) as usize, 1), KeyEntry::default()));
        }
        let pinned = ring.pin(ring.segment_id(0, sequence)).expect("the one before the newest");
        gaps.insert(account(pinned.whole().expect("sealed")).padding_bytes);
    }
    assert!(
        gaps.len() > 90 && gaps.first() == Some(&12),
        "gaps of many sizes, the smallest one, too: {gaps:?}"
    );
}

#[test]
fn a_segment_is_known_by_run_lane_and_sequence() {
    let ring = ring(32, 64 * KIB, 1);
    let mut writer = lane(&ring, 0);
    stand::feed_segments(&ring, &mut writer, 3);
    let first = ring.pin(ring.segment_id(0, 0)).expect("a sealed segment");
    let id = first.id();
    assert_eq!(id, SegmentId { run: stand::RUN_ID, lane: 0, sequence: 0 });
    assert_eq!(account(first.whole().expect("sealed")).foot.id(), id, "on disk it has the same name");
    assert!(ring.segment_ids(0, 0).map(|id| id.sequence).eq(0..ring.lane_next(0)));
    let others = [
        SegmentId { run: [0xee; 16], ..id },
        SegmentId { lane: 1, ..id },
        SegmentId { lane: u32::MAX, ..id },
        SegmentId { sequence: 99, ..id },
    ];
    assert!(
        others.into_iter().all(|other| ring.pin(other).is_none()),
        "another run's, no lane, not yet there"
    );
}
