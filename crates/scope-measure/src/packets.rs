//! The packets that are measured with: 512 different frames of one size or mix, with real headers and random
//! payload.
//!
//! Ethernet; a tenth IPv6, the rest IPv4; two thirds TCP, the rest UDP; every 128th is UDP to port 60000,
//! which followers look for. Packet `number` of a run is frame `number mod 512`, so everything that lies in a
//! ring can be checked by its number.

use scope_packet::key::KEY_ENTRY_BYTES;
use scope_packet::pcapng::PacketHead;
use scope_packet::{BATCH_PACKETS_MAX, Headers, KeyEntry, LinkType};
use scope_ring::KeyTest;

/// Different packets.
pub const SOURCES: usize = 512;
/// Time of packet 0: 2026-11-20T20:31:00Z.
const START_NS: i64 = 1_795_206_660_000_000_000;
/// From one packet to the next, ns.
const STEP_NS: i64 = 37;
/// The mix: lengths in bytes and how many of twelve packets have each.
const IMIX: [(usize, usize); 3] = [(64, 7), (594, 4), (1518, 1)];
/// The UDP port that followers look for.
const PORT: u16 = 60_000;
/// One packet in so many goes there.
const PORT_EVERY: usize = 128;

/// How long packets are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sizes {
    /// All of so many bytes, 64 to 1518.
    Fixed(usize),
    /// 64, 594 and 1518 bytes as 7:4:1.
    Imix,
}

/// The frames.
pub struct Packets {
    /// The first batch of them once more at the end: from anywhere on, a batch lies in one piece.
    frames: Box<[Box<[u8]>; SOURCES + BATCH_PACKETS_MAX]>,
    bytes: usize,
    stored_bytes: u64,
    longest: usize,
}

impl Packets {
    /// Makes them; the same each time.
    pub fn new(sizes: Sizes) -> Packets {
        let mut random = Random(1);
        let mut lengths: Vec<usize> = (0..SOURCES).map(|index| length(sizes, index)).collect();
        for index in (1..SOURCES).rev() {
            lengths.swap(index, random.below(index as u64 + 1) as usize);
        }
        let mut frames: Vec<Box<[u8]>> = lengths
            .iter()
            .enumerate()
            .map(|(index, &length)| frame(&mut random, index, length).into())
            .collect();
        let stored_bytes = |frame: &[u8]| (head(0, frame).block_bytes() + KEY_ENTRY_BYTES) as u64;
        let (bytes, longest) =
            (frames.iter().map(|frame| frame.len()).sum(), frames.iter().map(|frame| frame.len()).max());
        let stored_bytes = frames.iter().map(|frame| stored_bytes(frame)).sum();
        frames.extend_from_within(..BATCH_PACKETS_MAX);
        Packets {
            bytes,
            stored_bytes,
            longest: longest.unwrap_or(0),
            frames: frames.try_into().expect("so many lengths were made"),
        }
    }

    /// The bytes of packet `number`.
    #[inline(always)]
    pub fn frame(&self, number: u64) -> &[u8] {
        &self.frames[number as usize % SOURCES]
    }

    /// `count` frames from packet `number` on, at most [`BATCH_PACKETS_MAX`].
    #[inline]
    pub fn frames(&self, number: u64, count: usize) -> &[Box<[u8]>] {
        let first = number as usize % SOURCES;
        &self.frames[first..first + count]
    }

    /// What its block says of packet `number`.
    #[inline(always)]
    pub fn head(&self, number: u64) -> PacketHead {
        head(number, self.frame(number))
    }

    /// Capture time of packet `number`, ns.
    #[inline(always)]
    pub fn time_ns(number: u64) -> i64 {
        START_NS + number as i64 * STEP_NS
    }

    /// Number of the first packet behind `time_ns`.
    pub fn first_after(time_ns: i64) -> u64 {
        (time_ns - START_NS).div_euclid(STEP_NS) as u64 + 1
    }

    /// The key entry of a packet: its headers are parsed as a worker does it.
    #[inline(always)]
    pub fn key(frame: &[u8]) -> KeyEntry {
        KeyEntry::new(&Headers::parse(LinkType::ETHERNET, frame))
    }

    /// Bytes that a packet takes in a ring on average: block and key entry.
    pub fn stored_bytes_mean(&self) -> f64 {
        self.stored_bytes as f64 / SOURCES as f64
    }

    /// Bytes of a packet on average.
    pub fn bytes_mean(&self) -> f64 {
        self.bytes as f64 / SOURCES as f64
    }

    /// Bytes of the longest.
    pub fn longest(&self) -> usize {
        self.longest
    }

    /// Whether a frame goes to the UDP port that followers look for.
    #[inline]
    pub fn is_hit(frame: &[u8]) -> bool {
        let at = |at: usize| frame.get(at..at + 2).map_or(0, |pair| u16::from_be_bytes([pair[0], pair[1]]));
        match at(12) {
            0x0800 => frame.get(23) == Some(&17) && at(14 + (frame[14] & 15) as usize * 4 + 2) == PORT,
            0x86dd => frame.get(20) == Some(&17) && at(56) == PORT,
            _ => false,
        }
    }

    /// The same question to key entries.
    pub fn key_test() -> KeyTest {
        KeyTest::protocol(17).and(KeyTest::destination_port(PORT))
    }

    /// Hits among the first `packets` of a run.
    pub fn hits(&self, packets: u64) -> u64 {
        packets.div_ceil(PORT_EVERY as u64)
    }

    /// Captured bytes of the first `packets` of a run.
    pub fn captured_bytes(&self, packets: u64) -> u64 {
        let turns = packets / SOURCES as u64;
        let rest = (0..packets % SOURCES as u64).map(|number| self.frame(number).len() as u64).sum::<u64>();
        turns * self.bytes as u64 + rest
    }
}

fn length(sizes: Sizes, index: usize) -> usize {
    let Sizes::Fixed(length) = sizes else {
        let mut place = index % IMIX.iter().map(|(_, share)| share).sum::<usize>();
        for (length, share) in IMIX {
            if place < share {
                return length;
            }
            place -= share;
        }
        return IMIX[0].0;
    };
    assert!((64..=1518).contains(&length));
    length
}

/// What the block of packet `number` says, whose bytes these are.
#[inline(always)]
pub(super) fn head(number: u64, frame: &[u8]) -> PacketHead {
    let length = frame.len() as u32;
    PacketHead {
        time_ns: Packets::time_ns(number),
        captured_len: length,
        original_len: length,
        ..Default::default()
    }
}

/// A frame of `length` bytes.
fn frame(random: &mut Random, index: usize, length: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(length);
    let hit = index.is_multiple_of(PORT_EVERY);
    let (v6, tcp) = (index % 10 == 3, !hit && !index.is_multiple_of(3));
    out.extend([2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2]);
    let host = |random: &mut Random| [random.below(250) as u8 + 1, random.below(250) as u8 + 1];
    let protocol = if tcp { 6 } else { 17 };
    if v6 {
        out.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
        out.extend(((length - 54) as u16).to_be_bytes());
        out.extend([protocol, 64]);
        for _ in 0..2 {
            out.extend([0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
            out.extend(host(random));
        }
    } else {
        out.extend([8, 0, 0x45, 0]);
        out.extend(((length - 14) as u16).to_be_bytes());
        out.extend((index as u16).to_be_bytes());
        out.extend([0x40, 0, 64, protocol, 0x5a, 0xa5]);
        for _ in 0..2 {
            out.extend([10, 0]);
            out.extend(host(random));
        }
    }
    let port = if hit { PORT } else { 1000 + random.below(9000) as u16 };
    out.extend((1000 + random.below(9000) as u16).to_be_bytes());
    out.extend(port.to_be_bytes());
    if tcp {
        out.extend((random.word() as u32).to_be_bytes());
        out.extend([0, 0, 0, 1]); // acknowledgement; 64 bytes of IPv6 leave no more than this and two bytes
        out.extend([0x50, 0x10]);
    } else {
        out.extend([0, 8, 0x13, 0x37]);
    }
    while out.len() < length {
        out.push(random.word() as u8 | 1);
    }
    out.truncate(length);
    out
}

/// A small generator of numbers (splitmix64): no quality is required of it but that bytes differ.
struct Random(u64);

impl Random {
    fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.word() % bound
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use scope_packet::Kind;
    use std::collections::HashSet;

    #[test]
    fn packets_differ_parse_and_are_hits_alike_for_frame_and_key() {
        for sizes in [64, 128, 512, 1518].map(Sizes::Fixed).into_iter().chain([Sizes::Imix]) {
            let packets = Packets::new(sizes);
            let frames: HashSet<&[u8]> = (0..SOURCES as u64).map(|number| packets.frame(number)).collect();
            assert_eq!(frames.len(), SOURCES);
            let keys: Vec<KeyEntry> =
                (0..SOURCES as u64).map(|number| Packets::key(packets.frame(number))).collect();
            assert!(
                keys.iter()
                    .all(|key| matches!(key.kind(), Kind::Ipv4 | Kind::Ipv6) && key.source_port >= 1000)
            );
            let hits = |number: &u64| Packets::is_hit(packets.frame(*number));
            assert_eq!((0..SOURCES as u64).filter(hits).count() as u64, packets.hits(SOURCES as u64));
            assert!(
                (0..SOURCES as u64)
                    .all(|number| hits(&number) == Packets::key_test().matches(&keys[number as usize]))
            );
            let bytes: u64 = (0..700).map(|number| packets.frame(number).len() as u64).sum();
            assert_eq!(packets.captured_bytes(700), bytes);
        }
        assert_eq!(Packets::first_after(Packets::time_ns(7)), 8);
        assert_eq!(Packets::first_after(Packets::time_ns(8) - 1), 8);
    }

    #[test]
    fn the_mix_has_its_shares_and_stays_in_a_cores_cache() {
        let packets = Packets::new(Sizes::Imix);
        let count = |length: usize| {
            (0..SOURCES as u64).filter(|&number| packets.frame(number).len() == length).count()
        };
        assert_eq!((count(64) / 42, count(594) / 42, count(1518) / 42), (7, 4, 1));
        assert!(packets.bytes_mean() * (SOURCES as f64) < 256e3);
        assert!(Packets::new(Sizes::Fixed(1518)).bytes_mean() * (SOURCES as f64) < 800e3);
    }
}
