//! Sizes: which segment a ring picks, and what it refuses with which words.

mod stand;

use scope_ring::{MemoryOptions, Ring, RingConfig, RingError};
use stand::{KIB, MIB};

fn plan(ring_bytes: u64, segment_bytes: Option<u64>, lanes: u32) -> Result<(usize, usize), RingError> {
    RingConfig { ring_bytes, segment_bytes, workers: lanes, lanes, run_id: stand::RUN_ID }.plan()
}

fn check(ring_bytes: u64, segment_bytes: Option<u64>, lanes: u32, expected: (u64, usize)) {
    let (bytes, segments) = plan(ring_bytes, segment_bytes, lanes).expect("a plan");
    assert_eq!((bytes as u64, segments), expected, "{ring_bytes} B, {segment_bytes:?}, {lanes} lanes");
}

fn check_refused(ring_bytes: u64, segment_bytes: Option<u64>, lanes: u32, expected: &[&str]) {
    let error = plan(ring_bytes, segment_bytes, lanes).expect_err("refused").to_string();
    for words in expected {
        assert!(error.contains(words), "`{words}` in: {error}");
    }
}

#[test]
fn the_segment_is_picked_to_fit_the_ring_and_its_lanes() {
    for (ring_bytes, lanes, expected) in [
        (MIB, 1, (64 * KIB, 16)),
        (4 * MIB, 1, (64 * KIB, 64)),
        (8 * MIB, 1, (128 * KIB, 64)),
        (64 * MIB, 1, (MIB, 64)),
        (64 * MIB, 2, (512 * KIB, 128)),
        (64 * MIB, 4, (256 * KIB, 256)),
        (128 * MIB, 1, (2 * MIB, 64)),
        (1024 * MIB, 1, (2 * MIB, 512)),
        (1024 * MIB, 4, (2 * MIB, 512)),
        (1024 * MIB, 16, (MIB, 1024)),
    ] {
        check(ring_bytes, None, lanes, expected);
    }
}

#[test]
fn a_given_segment_size_is_taken_and_the_ring_rounded_down_to_whole_segments() {
    check(32 * MIB, Some(2 * MIB), 1, (2 * MIB, 16));
    check(32 * MIB, Some(64 * KIB), 1, (64 * KIB, 512));
    check(3 * MIB + 70 * KIB, Some(64 * KIB), 2, (64 * KIB, 49));
}

#[test]
fn a_picked_size_always_gives_every_lane_its_sixteen_segments() {
    for lanes in 1..=32u64 {
        let least = lanes * 16 * 64 * KIB;
        for ring_bytes in [least, least + 1, least * 3 / 2, least * 7, least * 64] {
            let (segment_bytes, segments) = plan(ring_bytes, None, lanes as u32).expect("a plan");
            assert!(segments as u64 >= 16 * lanes && segments * segment_bytes <= ring_bytes as usize);
        }
        check_refused(
            least - 1,
            None,
            lanes as u32,
            &["too small", &format!(": {lanes} lane"), &format!("at least {least} B")],
        );
    }
}

#[test]
fn a_ring_too_small_for_its_lanes_names_what_would_do() {
    check_refused(
        31 * MIB,
        Some(2 * MIB),
        1,
        &["32505856 B", "33554432 B", "16 segments of 2097152 B", "--ring", "--segment"],
    );
    check_refused(MIB, None, 2, &["too small: 2 lanes need at least 2097152 B"]);
    check_refused(0, None, 1, &["too small: 1 lane needs at least 1048576 B"]);
}

#[test]
fn a_segment_that_is_no_power_of_two_or_out_of_range_is_refused() {
    for bytes in [0, 1, 4096, 32 * KIB, 96 * KIB, MIB + 1, 3 * MIB, 4 * MIB, u64::MAX] {
        check_refused(
            1024 * MIB,
            Some(bytes),
            1,
            &[&format!("{bytes} B"), "power of two from 64 KiB to 2 MiB"],
        );
    }
}

#[test]
fn a_ring_larger_than_memory_names_what_there_is() {
    for ring_bytes in [1 << 50, u64::MAX] {
        match plan(ring_bytes, None, 1) {
            Err(RingError::NoMemory { ring_bytes: asked, available, limit }) => {
                assert!(
                    asked == ring_bytes
                        && available > 0
                        && available < asked
                        && limit.contains("mem") | limit.contains("Mem")
                );
                check_refused(
                    ring_bytes,
                    None,
                    1,
                    &[&ring_bytes.to_string(), "of memory are available", "smaller --ring"],
                );
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn prefaulting_tells_its_progress_up_to_the_whole_ring() {
    let config = RingConfig {
        ring_bytes: 64 * MIB,
        segment_bytes: Some(MIB),
        workers: 1,
        lanes: 1,
        run_id: stand::RUN_ID,
    };
    let most = std::sync::atomic::AtomicU64::new(0);
    let progress = |bytes| {
        most.fetch_max(bytes, std::sync::atomic::Ordering::Relaxed);
        true
    };
    Ring::ready(&config, &[], &MemoryOptions::default(), &progress).expect("memory for 64 MiB");
    assert_eq!(most.into_inner(), 64 * MIB);
}

#[test]
fn the_lane_table_is_bounded_by_eight_link_types_a_worker() {
    let ring: std::sync::Arc<Ring> = stand::ring(32, 64 * KIB, 2);
    let lanes: Vec<_> =
        (0..16).map(|lane| ring.open_lane(lane % 2, scope_packet::LinkType(lane as u16)).unwrap()).collect();
    assert!(ring.open_lane(0, scope_packet::LinkType::RAW).is_none());
    assert_eq!((ring.lanes(), lanes.len()), (16, 16));
    assert_eq!(ring.lane_info(5), scope_ring::LaneInfo { worker: 1, link_type: scope_packet::LinkType(5) });
    assert_eq!(ring.counters().total(), Default::default());
}
