//! Rule 5: who feeds from files waits while a follower is half a ring behind, and no longer.

mod stand;

use stand::{KIB, feed_segments, lane, ring};

#[test]
fn a_follower_half_a_ring_behind_makes_workers_wait_until_it_moves_on() {
    let ring = ring(32, 64 * KIB, 1);
    let mut writer = lane(&ring, 0);
    let follower = ring.follower(|_| 0);
    feed_segments(&ring, &mut writer, 16);
    assert!(!ring.must_wait(0), "15 closed segments and an open one: less than half of 32");
    feed_segments(&ring, &mut writer, 17);
    assert!(ring.must_wait(0), "16 closed segments are half a ring");
    follower.done_before(0, 1);
    assert!(!ring.must_wait(0), "one of them is done with");
    feed_segments(&ring, &mut writer, 18);
    assert!(ring.must_wait(0));
    follower.done_before(0, 17);
    assert!(!ring.must_wait(0));
}

#[test]
fn open_segments_do_not_count() {
    let ring = ring(32, 64 * KIB, 2);
    let _follower = ring.follower(|_| 0);
    let mut lanes: Vec<_> = (0..16).map(|n| lane(&ring, n % 2)).collect();
    for writer in &mut lanes {
        stand::feed(writer, 1, 100);
    }
    assert!(!ring.must_wait(0), "16 of 32 segments are in use, and all of them are open");
}

#[test]
fn a_follower_counts_over_all_lanes_and_from_where_it_begins() {
    let ring = ring(32, 64 * KIB, 1);
    let (mut one, mut two) = (lane(&ring, 0), lane(&ring, 0));
    feed_segments(&ring, &mut one, 12);
    let from_now_on = ring.follower(|lane| ring.lane_next(lane));
    assert!(!ring.must_wait(0));
    feed_segments(&ring, &mut two, 9);
    feed_segments(&ring, &mut one, 20);
    assert!(!ring.must_wait(0), "8 of one lane and 7 of the other");
    feed_segments(&ring, &mut one, 21);
    assert!(ring.must_wait(0));
    from_now_on.done_before(1, 9);
    assert!(!ring.must_wait(0));
}

#[test]
fn a_follower_that_ends_or_that_does_not_exist_makes_nobody_wait() {
    let ring = ring(32, 64 * KIB, 1);
    let mut writer = lane(&ring, 0);
    feed_segments(&ring, &mut writer, 40);
    assert!(!ring.must_wait(0));
    let follower = ring.follower(|_| 0);
    assert!(ring.must_wait(0));
    drop(follower);
    assert!(!ring.must_wait(0));
}

#[test]
fn the_rearmost_of_several_followers_decides() {
    let ring = ring(16, 64 * KIB, 1);
    let mut writer = lane(&ring, 0);
    let (quick, slow) = (ring.follower(|_| 0), ring.follower(|_| 0));
    feed_segments(&ring, &mut writer, 12);
    quick.done_before(0, 12);
    assert!(ring.must_wait(0));
    slow.done_before(0, 4);
    assert!(!ring.must_wait(0), "7 closed ones left");
}
