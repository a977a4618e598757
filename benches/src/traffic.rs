//! The capture file that is measured with: a deterministic block of mixed packets, repeated with times that
//! go on.
//!
//! ```text
//!  file:   pcap header, block, block, block ...     the same packets each time
//!  block:  64 MiB of different packets; 60, 590 and 1514 bytes as 7:4:1; TCP and UDP, a tenth of the flows IPv6; random payload
//!  times:  microseconds, about 3 apart (some 1 Gbit/s); each block begins where the one before it ended
//! ```
//! Hosts are inside 10.0.0.0/16 and fd00::/112, ports in 1000..10000: no trigger of the benches fires here.
//! Never zero bytes: memory takes those at twice the real speed.

use anyhow::{Context, Result};
use scope_testkit::traffic::frame::{on_link, tcp, udp};
use scope_testkit::traffic::{ETHERNET, Random};
use std::fs::File;
use std::io::{self, BufReader, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};

/// Decides all that is random.
const SEED: u64 = 1;
/// Bytes of the block, at least.
const BLOCK_BYTES: usize = 64 << 20;
/// Flows.
const FLOWS: usize = 10_000;
/// Time of the first packet: 2026-11-20T20:31:00Z.
const START_US: u64 = 1_795_206_660_000_000;
/// Mean gap between two packets, microseconds.
const GAP_US: u64 = 3;
/// What stands in front of each packet.
const RECORD_HEADER_BYTES: u64 = 16;
/// Frame lengths without the checksum, and how many of twelve have each.
const LENGTHS: [(usize, u64); 3] = [(60, 7), (590, 4), (1514, 1)];

/// The file, ready to be read.
#[derive(Debug)]
pub struct Traffic {
    /// Where it is.
    pub path: PathBuf,
    /// Packets in it.
    pub packets: u64,
    /// Their captured bytes.
    pub bytes: u64,
}

/// The repeated block: records of a pcap file.
struct Block {
    bytes: Vec<u8>,
    /// Where each record begins.
    records: Vec<usize>,
    /// Time of each, microseconds behind that of the first.
    times_us: Vec<u64>,
    /// How much later the next block begins, microseconds.
    span_us: u64,
}

/// The capture file of at least `file_bytes` in `folder`: the one that is there if it is right, else a new
/// one. Either way the page cache is warm afterwards.
///
/// # Errors
/// The system's.
pub fn prepare(folder: &Path, file_bytes: u64) -> Result<Traffic> {
    let path = folder.join(format!("imix-{}MiB.pcap", file_bytes >> 20));
    let mut block = Block::new(BLOCK_BYTES.min(file_bytes as usize));
    let blocks = file_bytes.div_ceil(block.bytes.len() as u64);
    let packets = blocks * block.records.len() as u64;
    let bytes = blocks * block.bytes.len() as u64 - packets * RECORD_HEADER_BYTES;
    if !is_right(&path, &mut block, blocks) {
        eprintln!("writing {} ({} MiB, kept for the next time)", path.display(), file_bytes >> 20);
        write(&path, &mut block, blocks).with_context(|| path.display().to_string())?;
    }
    io::copy(&mut File::open(&path)?, &mut io::sink()).with_context(|| path.display().to_string())?;
    Ok(Traffic { path, packets, bytes })
}

fn file_header() -> Vec<u8> {
    let mut header = 0xa1b2_c3d4u32.to_le_bytes().to_vec();
    header.extend([2, 0, 4, 0]);
    header.extend([0; 8]);
    header.extend(262_144u32.to_le_bytes());
    header.extend(u32::from(ETHERNET).to_le_bytes());
    header
}

/// Written aside and renamed, so that an interrupted call leaves nothing that looks right.
fn write(path: &Path, block: &mut Block, blocks: u64) -> io::Result<()> {
    let aside = path.with_extension("tmp");
    let mut file = File::create(&aside)?;
    file.write_all(&file_header())?;
    for number in 0..blocks {
        block.shift(number);
        file.write_all(&block.bytes)?;
    }
    // What is still on its way to the disk would disturb the measurement.
    file.sync_all()?;
    std::fs::rename(aside, path)
}

/// Whether the file at `path` is byte for byte what would be written.
fn is_right(path: &Path, block: &mut Block, blocks: u64) -> bool {
    let Ok(file) = File::open(path) else { return false };
    let expected_bytes = file_header().len() as u64 + blocks * block.bytes.len() as u64;
    if file.metadata().map(|facts| facts.len()).ok() != Some(expected_bytes) {
        return false;
    }
    let mut file = BufReader::with_capacity(1 << 20, file);
    let mut starts_with = |expected: &[u8]| {
        let mut bytes = vec![0; expected.len()];
        file.read_exact(&mut bytes).is_ok() && bytes == expected
    };
    starts_with(&file_header())
        && (0..blocks).all(|number| {
            block.shift(number);
            starts_with(&block.bytes)
        })
}

impl Block {
    fn new(bytes_min: usize) -> Block {
        let mut random = Random::new(SEED);
        let flows: Vec<Flow> = (0..FLOWS).map(|_| Flow::new(&mut random)).collect();
        let mut block = Block {
            bytes: Vec::with_capacity(bytes_min + 2048),
            records: Vec::new(),
            times_us: Vec::new(),
            span_us: 0,
        };
        while block.bytes.len() < bytes_min {
            let flow = &flows[random.below(FLOWS as u64) as usize];
            let frame = flow.frame(&mut random);
            block.records.push(block.bytes.len());
            block.times_us.push(block.span_us);
            block.bytes.extend([0; 8]);
            block.bytes.extend((frame.len() as u32).to_le_bytes());
            block.bytes.extend((frame.len() as u32).to_le_bytes());
            block.bytes.extend(frame);
            block.span_us += random.below(2 * GAP_US + 1);
        }
        block
    }

    /// Gives all packets the times that they have in the block number `number` of the file.
    fn shift(&mut self, number: u64) {
        let begin_us = START_US + number * self.span_us;
        for (&at, &time_us) in self.records.iter().zip(&self.times_us) {
            let time_us = begin_us + time_us;
            self.bytes[at..at + 4].copy_from_slice(&((time_us / 1_000_000) as u32).to_le_bytes());
            self.bytes[at + 4..at + 8].copy_from_slice(&((time_us % 1_000_000) as u32).to_le_bytes());
        }
    }
}

/// Two ends that talk.
struct Flow {
    ends: [SocketAddr; 2],
    is_tcp: bool,
}

impl Flow {
    fn new(random: &mut Random) -> Flow {
        let v6 = random.chance(10);
        let mut end = || {
            let host = random.below(0xfffe) as u16 + 1;
            let [high, low] = host.to_be_bytes();
            let ip: IpAddr = if v6 {
                Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, host).into()
            } else {
                Ipv4Addr::new(10, 0, high, low).into()
            };
            SocketAddr::new(ip, 1000 + random.below(9000) as u16)
        };
        Flow { ends: [end(), end()], is_tcp: random.chance(70) }
    }

    /// A packet in one of the two directions.
    fn frame(&self, random: &mut Random) -> Vec<u8> {
        let (from, to) =
            if random.chance(50) { (self.ends[0], self.ends[1]) } else { (self.ends[1], self.ends[0]) };
        let ip_bytes = if from.is_ipv6() { 40 } else { 20 };
        let headers = 14 + ip_bytes + if self.is_tcp { 20 } else { 8 };
        let payload_bytes = length(random).saturating_sub(headers);
        let payload = random.bytes(payload_bytes);
        let ip = if self.is_tcp {
            tcp(from, to, random.word() as u32, 16, &payload)
        } else {
            udp(from, to, &payload)
        };
        on_link(ETHERNET, &[], &ip)
    }
}

/// The length of a frame, mixed as [`LENGTHS`] says.
pub fn length(random: &mut Random) -> usize {
    let mut draw = random.below(LENGTHS.iter().map(|(_, share)| share).sum());
    for (length, share) in LENGTHS {
        if draw < share {
            return length;
        }
        draw -= share;
    }
    unreachable!("the draw is below the sum of all shares")
}

#[cfg(test)]
mod tests {
    use super::*;
    use scope_testkit::oracle;

    #[test]
    fn the_file_is_sound_counted_in_order_and_used_again_only_while_it_is_right() {
        let folder = tempfile::tempdir().unwrap();
        let traffic = prepare(folder.path(), 1 << 20).unwrap();
        let first = std::fs::read(&traffic.path).unwrap();
        assert!(first.len() >= 1 << 20);
        let packets = oracle::parse(&first).unwrap().capture.packets;
        let found = (packets.len() as u64, packets.iter().map(|packet| packet.data.len() as u64).sum());
        assert_eq!(found, (traffic.packets, traffic.bytes));
        assert!(packets.is_sorted_by_key(|packet| packet.time_ns));
        let bytes = packets.iter().flat_map(|packet| &packet.data);
        assert!(
            bytes.clone().filter(|&&byte| byte == 0).count() * 10 < bytes.count(),
            "zero bytes stand in headers only"
        );

        let mut damaged = first.clone();
        damaged[1000] ^= 1;
        std::fs::write(&traffic.path, damaged).unwrap();
        prepare(folder.path(), 1 << 20).unwrap();
        assert!(std::fs::read(&traffic.path).unwrap() == first);
    }

    #[test]
    fn a_block_goes_on_where_the_one_before_ended() {
        let mut block = Block::new(10_000);
        let time_us = |block: &Block, record: usize| {
            let word = |at: usize| u64::from(u32::from_le_bytes(block.bytes[at..at + 4].try_into().unwrap()));
            word(block.records[record]) * 1_000_000 + word(block.records[record] + 4)
        };
        let last = block.records.len() - 1;
        block.shift(0);
        let (first_us, last_us) = (time_us(&block, 0), time_us(&block, last));
        block.shift(1);
        assert_eq!(first_us, START_US);
        assert!((last_us..=last_us + 2 * GAP_US).contains(&time_us(&block, 0)));
    }
}
