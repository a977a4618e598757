//! A lane that is fed with frames of 64 bytes that were made before.

use anyhow::{Context, Result};
use scope_packet::pcapng::PacketHead;
use scope_packet::{Headers, Interface, KeyEntry, LinkType, TimestampSource};
use scope_ring::{Append, LaneWriter, Ring};
use std::sync::Arc;

/// Bytes of a frame.
pub const BYTES: usize = 64;
/// Packets of a commit.
const COMMIT_PACKETS: u64 = 256;
/// Where the payload of a frame begins: behind Ethernet, IPv4 and UDP.
pub const PAYLOAD_AT: usize = 14 + 20 + 8;

/// Addresses and ports of a frame.
#[derive(Clone, Copy)]
pub struct Ends {
    /// Addresses: source, destination.
    pub hosts: (u32, u32),
    /// Ports, likewise.
    pub ports: (u16, u16),
}

/// A frame of UDP over IPv4.
pub fn frame(Ends { hosts, ports }: Ends) -> [u8; BYTES] {
    let mut frame = [0; BYTES];
    frame[..16].copy_from_slice(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45, 0]);
    frame[16..26].copy_from_slice(&[0, 50, 0, 0, 0, 0, 64, 17, 0, 0]);
    frame[26..30].copy_from_slice(&hosts.0.to_be_bytes());
    frame[30..34].copy_from_slice(&hosts.1.to_be_bytes());
    frame[34..36].copy_from_slice(&ports.0.to_be_bytes());
    frame[36..38].copy_from_slice(&ports.1.to_be_bytes());
    frame[38..40].copy_from_slice(&[0, 30]);
    frame
}

/// The writing end of the lane, and what it writes in turn.
pub struct Drawn {
    writer: LaneWriter,
    port: usize,
    frames: Vec<(KeyEntry, [u8; BYTES])>,
}

impl Drawn {
    /// A lane for these frames.
    ///
    /// # Errors
    /// The ring's tables are full.
    pub fn new(ring: &Arc<Ring>, frames: impl IntoIterator<Item = [u8; BYTES]>) -> Result<Drawn> {
        let mut writer = ring.open_lane(0, LinkType::ETHERNET).context("a lane")?;
        let interface = Interface {
            name: "drawn".to_string(),
            description: String::new(),
            link_type: LinkType::ETHERNET,
            snap_len: 0,
            timestamps: TimestampSource::Generator,
            part: 0,
        };
        let port = writer.add_interface(ring.register(writer.lane(), &interface).context("an interface")?);
        let keyed = |frame: [u8; BYTES]| (KeyEntry::new(&Headers::parse(LinkType::ETHERNET, &frame)), frame);
        Ok(Drawn { writer, port, frames: frames.into_iter().map(keyed).collect() })
    }

    /// Appends so many packets from the first frame on. Packet `number` of this call is changed before, and `committed` is called
    /// behind each commit.
    pub fn feed_changed(
        &mut self,
        packets: u64,
        change: impl Fn(&mut [u8; BYTES], u64),
        mut committed: impl FnMut(u64),
    ) {
        for number in 0..packets {
            let at = number as usize % self.frames.len();
            let (key, data) = &mut self.frames[at];
            change(data, number);
            let head = PacketHead {
                time_ns: number as i64 + 1,
                captured_len: BYTES as u32,
                original_len: BYTES as u32,
                ..PacketHead::default()
            };
            while self.writer.append(self.port, &head, *key, data) == Append::NeedsSegment {
                while !self.writer.claim() {
                    std::thread::yield_now();
                }
            }
            if number % COMMIT_PACKETS == COMMIT_PACKETS - 1 {
                self.writer.commit();
                committed(number + 1);
            }
        }
        self.writer.commit();
    }

    /// The same of frames as they are, as fast as it goes.
    pub fn feed(&mut self, packets: u64) {
        self.feed_changed(packets, |_, _| {}, |_| {});
    }
}
