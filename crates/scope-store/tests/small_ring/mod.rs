//! A ring of one lane with small segments, and its interface.

use scope_packet::{Interface, LinkType, TimestampSource};
use scope_ring::{Ring, RingConfig};
use std::sync::Arc;

/// Of the ring's segments.
pub const SEGMENT_BYTES: usize = 64 << 10;

/// A ring of so many segments.
pub fn small_ring(segments: u64, run_id: [u8; 16]) -> Arc<Ring> {
    let config = RingConfig {
        ring_bytes: segments * SEGMENT_BYTES as u64,
        segment_bytes: Some(SEGMENT_BYTES as u64),
        workers: 1,
        lanes: 1,
        run_id,
    };
    Ring::create(&config).unwrap()
}

/// An interface for Ethernet.
pub fn eth0() -> Interface {
    Interface {
        name: "eth0".into(),
        link_type: LinkType::ETHERNET,
        snap_len: 0,
        timestamps: TimestampSource::Generator,
        description: String::new(),
        part: 0,
    }
}
