//! Shares of the ring: what floods elsewhere evicts nothing of theirs.

mod stand;

use scope_packet::LinkType;
use scope_ring::{ClaimGroup, Held, LaneWriter, Ring, RingConfig, Share};
use stand::{KIB, feed, feed_segments, lane};
use std::sync::Arc;

fn config(segments: u64, lanes: u32) -> RingConfig {
    RingConfig {
        ring_bytes: segments * 64 * KIB,
        segment_bytes: Some(64 * KIB),
        workers: 2,
        lanes,
        run_id: stand::RUN_ID,
    }
}

fn shared_ring(segments: u64, percent: u32) -> Arc<Ring> {
    Ring::create_shared(&config(segments, 2), &[Share { percent, lanes: 1 }]).expect("sizes that fit")
}

fn lane_in(ring: &Arc<Ring>, group: ClaimGroup) -> LaneWriter {
    let mut writer = ring.open_lane_in(group, 0, LinkType::ETHERNET).expect("room in the lane table");
    stand::add_interface(ring, &mut writer);
    writer
}

/// Segments of `lane` that are still there.
fn kept(ring: &Arc<Ring>, lane: u32) -> usize {
    (0..ring.lane_next(lane)).filter(|&sequence| ring.pin(ring.segment_id(lane, sequence)).is_some()).count()
}

#[test]
fn a_lane_with_a_share_keeps_its_history_under_a_flood_elsewhere() {
    let ring = shared_ring(100, 30);
    assert_eq!(ring.group_segments(), [70, 30]);
    let (mut quiet, mut loud) = (lane_in(&ring, ClaimGroup::of_share(0)), lane(&ring, 1));
    feed_segments(&ring, &mut quiet, 30);
    feed_segments(&ring, &mut loud, 1000);
    assert_eq!((kept(&ring, 0), kept(&ring, 1)), (30, 70));
    feed_segments(&ring, &mut quiet, 45);
    assert_eq!((kept(&ring, 0), kept(&ring, 1)), (30, 70), "its own flood evicts only its own");
    assert!(ring.pin(ring.segment_id(0, 14)).is_none() && ring.pin(ring.segment_id(0, 15)).is_some());
}

#[test]
fn without_a_share_the_same_flood_evicts_everything() {
    let ring = Ring::create(&config(100, 2)).expect("sizes that fit");
    let (mut quiet, mut loud) = (lane(&ring, 0), lane(&ring, 1));
    feed_segments(&ring, &mut quiet, 30);
    feed_segments(&ring, &mut loud, 1000);
    assert_eq!((kept(&ring, 0), kept(&ring, 1)), (1, 99), "all but the open one");
}

#[test]
fn a_share_whose_segments_are_all_pinned_drops_and_takes_none_from_others() {
    let ring = shared_ring(100, 20);
    let (mut quiet, mut loud) = (lane_in(&ring, ClaimGroup::of_share(0)), lane(&ring, 1));
    feed_segments(&ring, &mut quiet, 20);
    let pins: Vec<_> = (0..20).filter_map(|sequence| ring.pin(ring.segment_id(0, sequence))).collect();
    quiet.seal();
    assert!(!quiet.claim());
    feed_segments(&ring, &mut loud, 200);
    drop(pins);
    assert!(quiet.claim());
    feed(&mut quiet, 1, 100);
}

#[test]
fn a_holder_takes_no_more_of_a_share_than_its_part_of_it() {
    let ring = shared_ring(100, 30);
    let (mut quiet, mut loud) = (lane_in(&ring, ClaimGroup::of_share(0)), lane(&ring, 1));
    feed_segments(&ring, &mut quiet, 30);
    feed_segments(&ring, &mut loud, 70);
    let mut held = Held::new(&ring, ring.budget().take(u64::MAX, 1));
    for lane in 0..2 {
        for sequence in 0..ring.lane_next(lane) {
            if let Some(pinned) = ring.pin(ring.segment_id(lane, sequence)) {
                held.put(pinned);
            }
        }
    }
    assert_eq!((held.len(), held.allowed()), (50, 50));
    assert_eq!(
        (
            (0..30).filter(|&n| held.holds(ring.segment_id(0, n))).count(),
            (0..70).filter(|&n| held.holds(ring.segment_id(1, n))).count()
        ),
        (15, 35)
    );
    feed_segments(&ring, &mut quiet, 100);
    feed_segments(&ring, &mut loud, 200);
    assert_eq!((held.oldest(0), held.oldest(1)), (Some(0), Some(0)));
    assert!(
        held.take(ring.segment_id(0, 0)).is_some()
            && held.take(ring.segment_id(0, 0)).is_none()
            && held.has_room(0)
    );
}

#[test]
fn a_follower_half_a_share_behind_makes_the_workers_of_that_share_wait() {
    let ring = shared_ring(100, 20);
    let (mut quiet, mut loud) = (lane_in(&ring, ClaimGroup::of_share(0)), lane(&ring, 1));
    let follower = ring.follower(|_| 0);
    feed_segments(&ring, &mut loud, 40);
    feed_segments(&ring, &mut quiet, 10);
    let must_wait = || (ring.must_wait(0), ring.must_wait(1));
    assert_eq!(must_wait(), (false, false), "9 closed of 20, and 39 of 80");
    feed_segments(&ring, &mut quiet, 11);
    assert_eq!(must_wait(), (true, false), "who claims elsewhere endangers nothing of the share");
    follower.done_before(0, 1);
    assert_eq!(must_wait(), (false, false));
    feed_segments(&ring, &mut loud, 41);
    assert_eq!(must_wait(), (false, true));
}

#[test]
fn shares_that_do_not_fit_are_refused() {
    let plan = |lanes, shares: &[(u32, u32)]| {
        let shares: Vec<Share> = shares.iter().map(|&(percent, lanes)| Share { percent, lanes }).collect();
        config(200, lanes).plan_shares(&shares)
    };
    assert_eq!(plan(2, &[]).unwrap(), [200]);
    assert_eq!(plan(3, &[(30, 1), (50, 1)]).unwrap(), [40, 60, 100]);
    let refused = |lanes, shares: &[(u32, u32)], expected: &str| {
        let faults = format!("{:?}", plan(lanes, shares).unwrap_err());
        assert_eq!(faults, expected);
    };
    refused(2, &[(5, 1)], "[ShareTooSmall { index: 0, percent: 5, segments: 10, needed: 16 }]");
    refused(3, &[(15, 2)], "[ShareTooSmall { index: 0, percent: 15, segments: 30, needed: 32 }]");
    refused(2, &[(95, 1)], "[SharesTooLarge { percent: 95, segments: 10, needed: 16 }]");
    refused(2, &[(60, 1), (50, 1)], "[SharesTooLarge { percent: 110, segments: 0, needed: 16 }]");
    refused(1, &[(100, 1)], "[SharesTooLarge { percent: 100, segments: 0, needed: 16 }]"); // for a lane that appears later
    refused(
        4,
        &[(93, 1), (2, 1), (1, 1)],
        "[ShareTooSmall { index: 1, percent: 2, segments: 4, needed: 16 }, ShareTooSmall { index: 2, percent: 1, segments: 2, \
         needed: 16 }, SharesTooLarge { percent: 96, segments: 8, needed: 16 }]",
    );
    let said = plan(2, &[(5, 1)]).unwrap_err()[0].to_string();
    assert!(said.contains("share=5%") && said.contains("16"), "{said}");
}

#[test]
fn a_segment_size_of_the_rings_own_choice_suits_its_shares() {
    let config = RingConfig { segment_bytes: None, ..config(2048, 2) }; // 128 MiB
    let sized = |percent| config.sized_for(&[Share { percent, lanes: 1 }]).segment_bytes;
    assert_eq!(config.plan().unwrap(), (1 << 20, 128));
    assert_eq!(
        (sized(30), sized(13), sized(12), sized(1)),
        (Some(1 << 20), Some(1 << 20), Some(512 << 10), Some(64 << 10))
    );
    let tiny = RingConfig { segment_bytes: None, ..self::config(64, 2) };
    assert_eq!(tiny.sized_for(&[Share { percent: 1, lanes: 1 }]).segment_bytes, None, "nothing will do");
    let given = RingConfig { segment_bytes: Some(1 << 20), ..config };
    assert_eq!(
        given.sized_for(&[Share { percent: 12, lanes: 1 }]).segment_bytes,
        Some(1 << 20),
        "as it was asked for"
    );
}
