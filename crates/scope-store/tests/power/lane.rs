//! One lane of a small ring, filled packet by packet.

use super::small_ring::{SEGMENT_BYTES, eth0, small_ring};
use scope_packet::pcapng::PacketHead;
use scope_packet::segment::FOOT_BYTES;
use scope_packet::{Headers, KeyEntry, LinkType};
use scope_ring::{LaneWriter, Ring};
use scope_store::outgoing::Outgoing;
use std::sync::Arc;

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
        let ring = small_ring(17, [3; 16]);
        let writer = ring.open_lane(0, LinkType::ETHERNET).unwrap();
        let mut lane = Lane { ring, writer, blocks: Vec::new(), time_ns: 1 << 40 };
        lane.add_interface();
        assert!(lane.writer.claim());
        lane
    }

    /// Adds an interface: its index in the lane.
    pub fn add_interface(&mut self) -> usize {
        self.writer.add_interface(self.ring.register(0, &eth0()).unwrap())
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
