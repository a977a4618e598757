//! Shares of the ring: what floods elsewhere evicts nothing of theirs.

mod stand;

use scope_packet::LinkType;
use scope_ring::{ClaimGroup, LaneWriter, Ring, RingConfig, RingError, Share};
use stand::{KIB, feed, feed_segments, lane};
use std::sync::Arc;

fn config(segments: u64, lanes: u32) -> RingConfig {
    RingConfig { ring_bytes: segments * 64 * KIB, segment_bytes: Some(64 * KIB), workers: 2, lanes, run_id: stand::RUN_ID }
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
    (0..ring.lane_next(lane)).filter(|&sequence| ring.pin(lane, sequence).is_some()).count()
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
    assert!(ring.pin(0, 14).is_none() && ring.pin(0, 15).is_some());
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
    let pins: Vec<_> = (0..20).filter_map(|sequence| ring.pin(0, sequence)).collect();
    quiet.seal();
    assert!(!quiet.claim());
    feed_segments(&ring, &mut loud, 200);
    drop(pins);
    assert!(quiet.claim());
    feed(&mut quiet, 1, 100);
}

#[test]
fn a_follower_half_a_share_behind_makes_workers_wait() {
    let ring = shared_ring(100, 20);
    let (mut quiet, mut loud) = (lane_in(&ring, ClaimGroup::of_share(0)), lane(&ring, 1));
    let follower = ring.follower(|_| 0);
    feed_segments(&ring, &mut loud, 40);
    feed_segments(&ring, &mut quiet, 10);
    assert!(!ring.must_wait(), "39 closed of 80, and 9 of 20");
    feed_segments(&ring, &mut quiet, 11);
    assert!(ring.must_wait());
    follower.done_before(0, 1);
    assert!(!ring.must_wait());
    feed_segments(&ring, &mut loud, 41);
    assert!(ring.must_wait());
}

#[test]
fn shares_that_do_not_fit_are_refused() {
    let plan = |lanes, shares: &[(u32, u32)]| {
        let shares: Vec<Share> = shares.iter().map(|&(percent, lanes)| Share { percent, lanes }).collect();
        config(200, lanes).plan_shares(&shares)
    };
    assert_eq!(plan(2, &[]).unwrap(), [200]);
    assert_eq!(plan(3, &[(30, 1), (50, 1)]).unwrap(), [40, 60, 100]);
    assert!(matches!(plan(2, &[(5, 1)]), Err(RingError::ShareTooSmall { percent: 5, segments: 10, needed: 16 })));
    assert!(matches!(plan(3, &[(15, 2)]), Err(RingError::ShareTooSmall { segments: 30, needed: 32, .. })));
    assert!(matches!(plan(2, &[(95, 1)]), Err(RingError::SharesTooLarge { percent: 95, segments: 10, needed: 16 })));
    assert!(matches!(plan(2, &[(60, 1), (50, 1)]), Err(RingError::SharesTooLarge { percent: 110, segments: 0, .. })));
    assert!(matches!(plan(1, &[(100, 1)]), Err(RingError::SharesTooLarge { .. })), "a lane that appears later needs something");
    let said = plan(2, &[(5, 1)]).unwrap_err().to_string();
    assert!(said.contains("share=5%") && said.contains("16"), "{said}");
}
