//! The packets of the store that is asked: a stream of them in order of time, on two lanes, and what is known of them
//! by construction.
//!
//! ```text
//!  lengths    60, 590 and 1514 bytes as 7:4:1; random payload without a zero byte
//!  kinds      30 % TCP with port 443, 35 % other TCP, 35 % UDP; 5 % of TCP with RST
//!  hosts      20,000; the n-th has 1/n of the first one's traffic (Zipf's law)
//!  HOST       in every tenth segment of a lane, there every thousandth packet: 0.01 % of all
//!  times      0.5 ms apart on average, each time once: 8 GiB are three hours
//! ```
//! Where a segment ends is counted here as the ring counts it. The store says afterwards whether that was right.

use crate::traffic::length;
use scope_packet::key::KEY_ENTRY_BYTES;
use scope_packet::pcapng::{BLOCK_BYTES_MIN, PACKET_HEAD_BYTES};
use scope_packet::segment::fits;
use scope_testkit::traffic::Random;
use serde_json::{Value, json};
use std::io::{self, Write};
use std::net::Ipv4Addr;

/// The host that is searched for, as an address and as text.
pub const HOST: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 1);
/// Segments of the store, bytes.
pub const SEGMENT_BYTES: usize = 2 << 20;
/// Lanes: one for each capture.
pub const LANES: usize = 2;
/// Changes with whatever changes the packets.
pub const VERSION: u64 = 1;

const SEED: u64 = 15;
const HOSTS: usize = 20_000;
/// So many draws are made beforehand: even the last host has some of them.
const DRAWS: usize = 1 << 21;
const START_NS: i64 = 1_795_206_660_000_000_000;
/// Mean distance of two packets, ns.
const GAP_NS: u64 = 500_000;
const COMMON_PORT: u16 = 443;
const HEADERS_TCP: usize = 54;
const HEADERS_UDP: usize = 42;
const RECORD_BYTES: usize = 16;
const POOL_BYTES: usize = 1 << 20;
/// Bytes that a lane gathers before it writes.
const GATHERED_BYTES: usize = 256 << 10;
/// Which of ten segments has the host, and which of a thousand packets.
const HOST_SEGMENT: u64 = 5;
const HOST_PACKET: usize = 500;
const RST: u8 = 4;

/// Packets, and their captured bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Packets.
    pub packets: u64,
    /// Captured bytes.
    pub bytes: u64,
}

impl Count {
    /// One packet more.
    pub fn add(&mut self, bytes: usize) {
        self.packets += 1;
        self.bytes += bytes as u64;
    }

    fn json(self) -> Value {
        json!([self.packets, self.bytes])
    }
}

/// What is known of all packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Known {
    /// All.
    pub all: Count,
    /// Those of [`HOST`].
    pub host: Count,
    /// `tcp port 443`.
    pub common: Count,
    /// `tcp[13] & 4 != 0`.
    pub resets: Count,
    /// Times of the first and the last, ns.
    pub first_ns: i64,
    /// See `first_ns`.
    pub last_ns: i64,
}

impl Known {
    /// For the file beside the store.
    pub fn json(&self) -> Value {
        let counts = [self.all, self.host, self.common, self.resets].map(Count::json);
        json!({"version": VERSION, "counts": counts, "first_ns": self.first_ns, "last_ns": self.last_ns})
    }

    /// What such a file says; `None` where it is of another version.
    pub fn read(value: &Value) -> Option<Known> {
        let count = |at: usize| {
            let pair = &value["counts"][at];
            Some(Count { packets: pair[0].as_u64()?, bytes: pair[1].as_u64()? })
        };
        (value["version"] == VERSION).then_some(())?;
        Some(Known {
            all: count(0)?,
            host: count(1)?,
            common: count(2)?,
            resets: count(3)?,
            first_ns: value["first_ns"].as_i64()?,
            last_ns: value["last_ns"].as_i64()?,
        })
    }

    /// Counts a packet, by its bytes.
    pub fn add(&mut self, time_ns: i64, frame: &[u8]) {
        if self.all.packets == 0 {
            (self.first_ns, self.last_ns) = (time_ns, time_ns);
        }
        (self.first_ns, self.last_ns) = (self.first_ns.min(time_ns), self.last_ns.max(time_ns));
        self.all.add(frame.len());
        if is_of_host(frame) {
            self.host.add(frame.len());
        }
        if is_common(frame) {
            self.common.add(frame.len());
        }
        if is_reset(frame) {
            self.resets.add(frame.len());
        }
    }
}

/// Whether a frame of this traffic is of [`HOST`].
pub fn is_of_host(frame: &[u8]) -> bool {
    let host = HOST.octets();
    frame[26..30] == host || frame[30..34] == host
}

fn is_tcp(frame: &[u8]) -> bool {
    frame[23] == 6
}

fn is_common(frame: &[u8]) -> bool {
    let port = COMMON_PORT.to_be_bytes();
    is_tcp(frame) && (frame[34..36] == port || frame[36..38] == port)
}

fn is_reset(frame: &[u8]) -> bool {
    is_tcp(frame) && frame[47] & RST != 0
}

/// How full the open segment of a lane is.
#[derive(Default)]
struct Filled {
    segment: u64,
    block_bytes: usize,
    packets: usize,
}

impl Filled {
    /// A frame of so many bytes comes: whether one of [`HOST`] is due.
    fn take(&mut self, bytes: usize) -> bool {
        let block = PACKET_HEAD_BYTES + bytes.next_multiple_of(4) + 4;
        if !fits(SEGMENT_BYTES, self.block_bytes + block, self.packets + 1, LANES) {
            *self = Filled { segment: self.segment + 1, ..Filled::default() };
        }
        self.block_bytes += block;
        self.packets += 1;
        self.segment % 10 == HOST_SEGMENT && self.packets % 1000 == HOST_PACKET
    }

    fn stored_bytes(&self) -> u64 {
        self.segment * SEGMENT_BYTES as u64 + (self.block_bytes + self.packets * KEY_ENTRY_BYTES) as u64
    }
}

/// Writes captures of one lane each into `lanes` until they take `bytes` in a store; what is in them.
///
/// # Errors
/// Those of `lanes`.
pub fn write(bytes: u64, lanes: &mut [impl Write; LANES]) -> io::Result<Known> {
    let mut maker = Maker::new();
    let mut known = Known::default();
    let mut filled: [Filled; LANES] = Default::default();
    let mut gathered: [Vec<u8>; LANES] = std::array::from_fn(|_| file_header());
    let mut frame = Vec::new();
    let mut time_ns = START_NS;
    while filled.iter().map(Filled::stored_bytes).sum::<u64>() < bytes {
        time_ns += 1 + maker.random.below(2 * GAP_NS) as i64;
        let lane = maker.random.below(LANES as u64) as usize;
        let len = length(&mut maker.random);
        let is_of_host = filled[lane].take(len);
        maker.frame(len, is_of_host, &mut frame);
        known.add(time_ns, &frame);
        let out = &mut gathered[lane];
        for word in [time_ns / 1_000_000_000, time_ns % 1_000_000_000, len as i64, len as i64] {
            out.extend((word as u32).to_le_bytes());
        }
        out.extend(&frame);
        if out.len() > GATHERED_BYTES - RECORD_BYTES {
            lanes[lane].write_all(out)?;
            out.clear();
        }
    }
    for (lane, rest) in lanes.iter_mut().zip(gathered) {
        lane.write_all(&rest)?;
        lane.flush()?;
    }
    Ok(known)
}

/// Of a pcap file with nanoseconds.
fn file_header() -> Vec<u8> {
    let mut header = 0xa1b2_3c4du32.to_le_bytes().to_vec();
    header.extend([2, 0, 4, 0]);
    header.extend([0; 8]);
    header.extend(262_144u32.to_le_bytes());
    header.extend(1u32.to_le_bytes());
    header
}

struct Maker {
    random: Random,
    hosts: Vec<u16>,
    pool: Vec<u8>,
}

impl Maker {
    fn new() -> Maker {
        let mut random = Random::new(SEED);
        let shares: Vec<f64> = (1..=HOSTS).map(|rank| 1.0 / rank as f64).collect();
        let sum: f64 = shares.iter().sum();
        let mut hosts = Vec::with_capacity(DRAWS + HOSTS);
        for (host, share) in shares.iter().enumerate() {
            let draws = (share / sum * DRAWS as f64).ceil() as usize;
            hosts.extend(std::iter::repeat_n(host as u16, draws));
        }
        let pool = (0..POOL_BYTES).map(|_| random.below(255) as u8 + 1).collect();
        Maker { random, hosts, pool }
    }

    fn host(&mut self) -> [u8; 4] {
        let [high, low] = (self.hosts[self.random.below(self.hosts.len() as u64) as usize] + 1).to_be_bytes();
        [10, 1 + high, 1 + low / 128, 1 + low % 128]
    }

    /// A port that is not the common one.
    fn port(&mut self) -> u16 {
        1024 + self.random.below(60_000) as u16
    }

    fn frame(&mut self, len: usize, is_of_host: bool, out: &mut Vec<u8>) {
        let mut ends = [self.host(), self.host()];
        let mut ports = [self.port(), self.port()];
        let side = self.random.below(2) as usize;
        let kind = self.random.below(100);
        if is_of_host {
            ends[side] = HOST.octets();
        }
        let is_tcp = kind < 65;
        if kind < 30 {
            ports[side] = COMMON_PORT;
        }
        let headers = if is_tcp { HEADERS_TCP } else { HEADERS_UDP };
        out.clear();
        out.extend([2, 1, 1, 1, 1, 1, 2, 1, 1, 1, 1, 2, 8, 0, 0x45, 0]);
        out.extend((len as u16 - 14).to_be_bytes());
        out.extend(self.random.word().to_le_bytes().first_chunk::<2>().unwrap_or(&[1, 1]));
        out.extend([0x40, 0, 64, if is_tcp { 6 } else { 17 }, 0, 0]);
        out.extend(ends.as_flattened());
        let sum = checksum(&out[14..34]);
        out[24..26].copy_from_slice(&sum.to_be_bytes());
        out.extend(ports.iter().flat_map(|port| port.to_be_bytes()));
        if is_tcp {
            let flags = if self.random.below(100) < 5 { 0x14 } else { 0x10 };
            out.extend(self.random.word().to_le_bytes()); // sequence, acknowledged
            out.extend([0x50, flags, 0xff, 0xff, 0, 0, 0, 0]);
        } else {
            out.extend((len as u16 - 34).to_be_bytes());
            out.extend([0, 0]);
        }
        let at = self.random.below((POOL_BYTES - len) as u64) as usize;
        out.extend(&self.pool[at..at + len - headers]);
    }
}

/// Of an IPv4 header.
fn checksum(header: &[u8]) -> u16 {
    let sum: u32 = header.chunks_exact(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    !((folded & 0xffff) + (folded >> 16)) as u16
}

const _: () = assert!(BLOCK_BYTES_MIN == 12 && HOSTS < 1 << 15);

#[cfg(test)]
mod tests {
    use super::*;
    use scope_testkit::oracle::{self, VlanRule, tcpdump_selects};

    #[test]
    fn what_is_known_of_the_packets_is_what_tcpdump_says_of_them() {
        let mut files = [Vec::new(), Vec::new()];
        let known = write(24 << 20, &mut files).unwrap();
        let captures = files.map(|file| oracle::parse(&file).unwrap().capture);
        let mut times: Vec<i64> =
            captures.iter().flat_map(|capture| &capture.packets).map(|packet| packet.time_ns).collect();
        assert!(captures.iter().all(|capture| capture.packets.is_sorted_by_key(|packet| packet.time_ns)));
        times.sort_unstable();
        times.dedup();
        assert_eq!(
            (times.len() as u64, times[0], times[times.len() - 1]),
            (known.all.packets, known.first_ns, known.last_ns)
        );
        for (filter, count) in [
            ("", known.all),
            ("host 10.99.0.1", known.host),
            ("tcp port 443", known.common),
            ("tcp[13] & 4 != 0", known.resets),
        ] {
            let selected: u64 = captures
                .iter()
                .map(|capture| tcpdump_selects(capture, filter, VlanRule::Exact).unwrap().len() as u64)
                .sum();
            assert_eq!(selected, count.packets, "{filter}");
        }
        let share = |count: Count| count.packets as f64 / known.all.packets as f64;
        assert!((0.29..0.31).contains(&share(known.common)), "{known:?}");
        assert!((0.02..0.05).contains(&share(known.resets)), "{known:?}");
        assert!(known.host.packets > 0);
        assert_eq!(Known::read(&known.json()), Some(known));
    }
}
