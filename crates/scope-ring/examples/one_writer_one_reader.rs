//! One writer, one reader: a thousand packets go through a ring of 1 MiB, and the reader knows what it saw
//! and missed.

use scope_packet::pcapng::PacketHead;
use scope_packet::{Headers, Interface, KeyEntry, LinkType, TimestampSource};
use scope_ring::{Append, MemoryOptions, Reader, Ring, RingConfig};
use std::error::Error;

/// Writes, reads, and prints the reader's counts.
pub fn main() -> Result<(), Box<dyn Error>> {
    let config =
        RingConfig { ring_bytes: 1 << 20, segment_bytes: None, workers: 1, lanes: 1, run_id: [7; 16] };
    let ring = Ring::ready(&config, &[], &MemoryOptions::default(), &|_bytes| true)?;
    let mut writer = ring.open_lane(0, LinkType::ETHERNET).ok_or("the lane table is full")?;
    let interface = Interface {
        name: "example0".to_string(),
        description: String::new(),
        link_type: LinkType::ETHERNET,
        snap_len: 0,
        timestamps: TimestampSource::Generator,
        part: 0,
    };
    let index = writer.add_interface(ring.register(writer.lane(), &interface).ok_or("too many interfaces")?);

    let mut reader = Reader::new(&ring);
    let frame = [0u8; 600];
    let key = KeyEntry::new(&Headers::parse(LinkType::ETHERNET, &frame));
    for number in 0..1000 {
        let head =
            PacketHead { time_ns: number * 1000, captured_len: 600, original_len: 600, ..Default::default() };
        while writer.append(index, &head, key, &frame) == Append::NeedsSegment {
            if !writer.claim() {
                return Err("every segment is pinned".into());
            }
        }
        if number % 64 == 63 {
            writer.commit(); // visible from here on, to every reader
        }
    }
    drop(writer); // commits and seals what is left

    while let Some(batch) = reader.next_batch() {
        assert!(batch.blocks().all(|block| block.data() == frame));
    }
    let counts = reader.counts(0);
    println!("seen {}, missed {}, behind {}", counts.seen, counts.missed, counts.behind);
    Ok(())
}
