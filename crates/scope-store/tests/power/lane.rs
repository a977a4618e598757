//! One lane of a small ring, filled packet by packet.

use scope_packet::pcapng::PacketHead;
use scope_packet::segment::FOOT_BYTES;
use scope_packet::{Headers, Interface, KeyEntry, LinkType, TimestampSource};
use scope_ring::{LaneWriter, Ring, RingConfig};
use scope_store::outgoing::Outgoing;
use std::sync::Arc;

/// Of the ring's segments.
pub const SEGMENT_BYTES: usize = 64 << 10;

/// A lane, and the blocks of its newest segment.
pub struct Lane {
    /// Its ring.
    pub ring: Arc<Ring>,
    /// Its writer.
    pub writer: LaneWriter,
    /// The blocks of all packets of the newest segment.
    pub blocks: Vec<u8>,
    time_ns: i64,
}

impl Lane {
    /// A lane with an open segment.
    pub fn new() -> Lane {
        let config = RingConfig {
            ring_bytes: 17 * SEGMENT_BYTES as u64,
            segment_bytes: Some(SEGMENT_BYTES as u64),
            workers: 1,
            lanes: 1,
            run_id: [3; 16],
        };
        let ring = Ring::create(&config).unwrap();
        let writer = ring.open_lane(0, LinkType::ETHERNET).unwrap();
        let mut lane = Lane { ring, writer, blocks: Vec::new(), time_ns: 1 << 40 };
        lane.add_interface();
        assert!(lane.writer.claim());
        lane
    }

    /// Adds an interface: its index in the lane.
    pub fn add_interface(&mut self) -> usize {
        let interface = Interface {
            name: "eth0".to_string(),
            description: String::new(),
            link_type: LinkType::ETHERNET,
            snap_len: 0,
            timestamps: TimestampSource::File,
            part: 0,
        };
        self.writer.add_interface(self.ring.register(0, &interface).unwrap())
    }

    /// Appends packets of these lengths to the open segment, as far as they fit.
    pub fn append(&mut self, lengths: &[u16]) {
        self.append_on(0, lengths);
    }

    /// The same on interface `index`.
    pub fn append_on(&mut self, index: usize, lengths: &[u16]) {
        for &len in lengths {
            let data: Vec<u8> = (0..len).map(|at| (at as u8) ^ (self.blocks.len() / 4) as u8).collect();
            let room = SEGMENT_BYTES - FOOT_BYTES - 600;
            let packets = self.segment().committed().packets as usize + lengths.len();
            if self.blocks.len() + 40 + data.len() + 16 * (packets + 1) > room {
                break;
            }
            self.time_ns += i64::from(len) - 100;
            let head = PacketHead {
                interface: index as u32,
                time_ns: self.time_ns,
                captured_len: len.into(),
                original_len: len.into(),
                ..PacketHead::default()
            };
            let key = KeyEntry::new(&Headers::parse(LinkType::ETHERNET, &data));
            self.writer.append(index, &head, key, &data);
            let from = self.blocks.len();
            self.blocks.resize(from + head.block_bytes(), 0);
            head.write(&mut self.blocks[from..], &data);
        }
        self.writer.commit();
    }

    /// Closes the open segment, and opens another one. Returns the closed one.
    pub fn next_segment(&mut self) -> Outgoing {
        let segment = self.segment();
        self.writer.seal();
        assert!(self.writer.claim());
        self.blocks.clear();
        segment
    }

    /// The newest segment.
    pub fn segment(&self) -> Outgoing {
        let newest = self.ring.lane_next(0) - 1;
        self.ring.pin(self.ring.segment_id(0, newest)).unwrap().into()
    }
}
