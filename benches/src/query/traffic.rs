//! The packets of the store that is asked: a stream of them in order of time, and what is known of them by
//! construction.
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
/// Lanes: the workers that share the capture, by flow.
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
const POOL_BYTES: usize = 1 << 20;
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
    /// Whether the next packet is one of [`HOST`].
    fn is_due(&self) -> bool {
        self.segment % 10 == HOST_SEGMENT && self.packets % 1000 == HOST_PACKET
    }

    /// A frame of so many bytes comes.
    fn take(&mut self, bytes: usize) {
        let block = PACKET_HEAD_BYTES + bytes.next_multiple_of(4) + 4;
        if !fits(SEGMENT_BYTES, self.block_bytes + block, self.packets + 1, 1) {
            *self = Filled { segment: self.segment + 1, ..Filled::default() };
        }
        self.block_bytes += block;
        self.packets += 1;
    }

    fn stored_bytes(&self) -> u64 {
        self.segment * SEGMENT_BYTES as u64 + (self.block_bytes + self.packets * KEY_ENTRY_BYTES) as u64
    }
}

/// Writes a capture to `out` that takes `bytes` in a store of [`LANES`] lanes; what is in it.
///
/// # Errors
/// Those of `out`.
pub fn write(bytes: u64, out: &mut impl Write) -> io::Result<Known> {
    let mut maker = Maker::new();
    let mut known = Known::default();
    let mut filled: [Filled; LANES] = Default::default();
    let mut frame = Vec::new();
    let mut time_ns = START_NS;
    out.write_all(&file_header())?;
    while filled.iter().map(Filled::stored_bytes).sum::<u64>() < bytes {
        time_ns += 1 + maker.random.below(2 * GAP_NS) as i64;
        let len = length(&mut maker.random);
        let flow = maker.flow();
        let filled = &mut filled[flow.lane()];
        let flow = if filled.is_due() { maker.flow_of_host(flow.lane()) } else { flow };
        filled.take(len);
        maker.frame(len, &flow, &mut frame);
        known.add(time_ns, &frame);
        for word in [time_ns / 1_000_000_000, time_ns % 1_000_000_000, len as i64, len as i64] {
            out.write_all(&(word as u32).to_le_bytes())?;
        }
        out.write_all(&frame)?;
    }
    out.flush()?;
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

/// Who talks to whom.
#[derive(Clone, Copy)]
struct Flow {
    ends: [[u8; 4]; 2],
    ports: [u16; 2],
    is_tcp: bool,
}

impl Flow {
    /// Which worker of a file takes its packets: as `share.rs` in scope-source has it.
    fn lane(&self) -> usize {
        let endpoint = |side: usize| {
            mix(mix(u64::from(self.ports[side])) ^ u64::from(u32::from_be_bytes(self.ends[side])))
        };
        (mix(endpoint(0).wrapping_add(endpoint(1))) % LANES as u64) as usize
    }
}

/// The finishing step of splitmix64.
fn mix(mut x: u64) -> u64 {
    x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
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

    fn flow(&mut self) -> Flow {
        let ends = [self.host(), self.host()];
        let mut ports = [self.port(), self.port()];
        let kind = self.random.below(100);
        if kind < 30 {
            ports[self.random.below(2) as usize] = COMMON_PORT;
        }
        Flow { ends, ports, is_tcp: kind < 65 }
    }

    /// One of [`HOST`] that falls to this lane.
    fn flow_of_host(&mut self, lane: usize) -> Flow {
        loop {
            let mut flow = self.flow();
            flow.ends[self.random.below(2) as usize] = HOST.octets();
            if flow.lane() == lane {
                return flow;
            }
        }
    }

    fn frame(&mut self, len: usize, flow: &Flow, out: &mut Vec<u8>) {
        let Flow { ends, ports, is_tcp } = *flow;
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
        let mut file = Vec::new();
        let known = write(24 << 20, &mut file).unwrap();
        let capture = oracle::parse(&file).unwrap().capture;
        let packets = &capture.packets;
        assert!(packets.windows(2).all(|pair| pair[0].time_ns < pair[1].time_ns));
        let span = (packets.len() as u64, packets[0].time_ns, packets[packets.len() - 1].time_ns);
        assert_eq!(span, (known.all.packets, known.first_ns, known.last_ns));
        for (filter, count) in [
            ("", known.all),
            ("host 10.99.0.1", known.host),
            ("tcp port 443", known.common),
            ("tcp[13] & 4 != 0", known.resets),
        ] {
            let selected = tcpdump_selects(&capture, filter, VlanRule::Exact).unwrap().len() as u64;
            assert_eq!(selected, count.packets, "{filter}");
        }
        let share = |count: Count| count.packets as f64 / known.all.packets as f64;
        assert!((0.29..0.31).contains(&share(known.common)), "{known:?}");
        assert!((0.02..0.05).contains(&share(known.resets)), "{known:?}");
        assert!(known.host.packets > 0);
        assert_eq!(Known::read(&known.json()), Some(known));
    }
}
