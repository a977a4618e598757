//! The stand on which the ring is tested: small rings, packets that hold their lane and number, a walk over a
//! segment's bytes.
#![allow(dead_code)] // each test file uses its part

use scope_packet::pcapng::{self, PacketBlock, PacketHead, le32};
use scope_packet::segment::{self, Foot};
use scope_packet::{DropReason, Interface, KeyEntry, LinkType, TimestampSource};
use scope_ring::{Append, LaneWriter, Ring, RingConfig};
use std::sync::Arc;

pub const KIB: u64 = 1 << 10;
pub const MIB: u64 = 1 << 20;
/// The run id of every ring here.
pub const RUN_ID: [u8; 16] = *b"a run of the lab";

/// A ring of `segments` segments for `workers` workers.
pub fn ring(segments: u64, segment_bytes: u64, workers: u32) -> Arc<Ring> {
    let config = RingConfig {
        ring_bytes: segments * segment_bytes,
        segment_bytes: Some(segment_bytes),
        workers,
        lanes: 1,
        run_id: RUN_ID,
    };
    Ring::create(&config).expect("a small ring")
}

/// An Ethernet interface of this name.
pub fn interface(name: &str) -> Interface {
    Interface {
        name: name.to_string(),
        description: String::new(),
        link_type: LinkType::ETHERNET,
        snap_len: 0,
        timestamps: TimestampSource::Generator,
        part: 0,
    }
}

/// Opens an Ethernet lane with one interface, whose index is 0.
pub fn lane(ring: &Arc<Ring>, worker: u32) -> LaneWriter {
    let mut writer = ring.open_lane(worker, LinkType::ETHERNET).expect("room in the lane table");
    add_interface(ring, &mut writer);
    writer
}

/// Registers one more interface for the lane; its index in the lane.
pub fn add_interface(ring: &Ring, writer: &mut LaneWriter) -> usize {
    let number = ring.register(writer.lane(), &interface("lab0")).expect("below the bound");
    writer.add_interface(number)
}

/// Random numbers from a seed (splitmix64).
pub struct Dice(pub u64);

impl Dice {
    pub fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.roll() % bound
    }

    /// One time in `times`.
    pub fn one_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }
}

/// Fills `out` with the bytes of packet `number` of `lane`: no two packets begin alike, and none is like
/// another's rest.
pub fn fill(lane: u32, number: u64, out: &mut [u8]) {
    let mut dice = Dice((lane as u64) << 56 ^ number << 12 ^ out.len() as u64);
    let head = [(lane as u64).to_le_bytes(), number.to_le_bytes()].concat();
    let reported = out.len().min(head.len());
    out[..reported].copy_from_slice(&head[..reported]);
    for chunk in out[reported..].chunks_mut(8) {
        chunk.copy_from_slice(&dice.roll().to_le_bytes()[..chunk.len()]);
    }
}

/// The bytes of packet `number` of `lane`.
pub fn bytes_of(lane: u32, number: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    fill(lane, number, &mut bytes);
    bytes
}

/// A head for a packet of `len` bytes at `time_ns`, nothing truncated.
pub fn head(len: usize, time_ns: i64) -> PacketHead {
    PacketHead { time_ns, captured_len: len as u32, original_len: len as u32, ..Default::default() }
}

/// Appends the packet that comes next in the lane, claiming when a segment is needed. False: no segment could
/// be had.
pub fn append(writer: &mut LaneWriter, index: usize, head: PacketHead, key: KeyEntry) -> bool {
    let data = bytes_of(writer.lane(), writer.next_packet(), head.captured_len as usize);
    loop {
        match writer.append(index, &head, key, &data) {
            Append::Stored(_) => return true,
            Append::NeedsSegment if !writer.claim() => return false,
            Append::NeedsSegment => {}
        }
    }
}

/// Appends and commits `packets` packets of `len` bytes, a microsecond apart from their numbers on.
pub fn feed(writer: &mut LaneWriter, packets: u64, len: usize) {
    for _ in 0..packets {
        let time_ns = writer.next_packet() as i64 * 1000;
        assert!(append(writer, 0, head(len, time_ns), KeyEntry::default()), "a segment is free");
    }
    writer.commit();
}

/// Feeds the lane until it has opened `segments` segments.
pub fn feed_segments(ring: &Ring, writer: &mut LaneWriter, segments: u64) {
    while ring.lane_next(writer.lane()) < segments {
        feed(writer, 16, 1000);
    }
}

/// One interface statistics block, read back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stated {
    pub interface: u32,
    pub time_ns: i64,
    pub received: u64,
    pub dropped: u64,
}

/// What a sealed segment holds, every byte of it accounted for.
pub struct Account {
    pub foot: Foot,
    pub packets: Vec<(PacketHead, Vec<u8>)>,
    pub entries: Vec<KeyEntry>,
    pub statistics: Vec<Stated>,
    pub padding_bytes: usize,
}

impl Account {
    /// Bytes of packet blocks and key entries.
    pub fn used_bytes(&self) -> usize {
        self.foot.block_bytes as usize + self.packets.len() * 16
    }
}

/// Splits bytes into pcapng blocks (type, bytes); every length is checked against its closing twin.
pub fn blocks(mut bytes: &[u8]) -> Vec<(u32, &[u8])> {
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let total = le32(bytes, 4) as usize;
        assert!(
            total >= 12 && total.is_multiple_of(4) && total <= bytes.len(),
            "block length {total} of {}",
            bytes.len()
        );
        assert_eq!(le32(bytes, total - 4) as usize, total, "opening and closing length");
        found.push((le32(bytes, 0), &bytes[..total]));
        bytes = &bytes[total..];
    }
    found
}

/// Walks a sealed segment from its first byte to its last, and checks that its parts agree.
pub fn account(whole: &[u8]) -> Account {
    let found = blocks(whole);
    let packets: Vec<_> = found.iter().take_while(|(kind, _)| *kind == pcapng::PACKET).collect();
    let rest = &found[packets.len()..];
    let (&(kind, padding), rest) = rest.split_first().expect("padding");
    assert_eq!(kind, pcapng::PADDING);
    assert!(padding[8..padding.len() - 4].iter().all(|&byte| byte == 0), "nothing stale in the padding");
    let (&(kind, column), statistics) = rest.split_last().expect("a key column");
    assert_eq!(kind, pcapng::KEY_COLUMN);
    let foot_at = column.len() - segment::FOOT_BYTES;
    assert_eq!(foot_at, 8 + packets.len() * 16, "one entry for each packet");
    let foot = Foot::read(&column[foot_at..]).expect("a foot");
    assert!(
        column[foot_at + Foot::FIELDS_BYTES..column.len() - 4].iter().all(|&byte| byte == 0),
        "the foot's rest is zero"
    );
    let entries: Vec<KeyEntry> = column[8..foot_at]
        .chunks_exact(16)
        .rev()
        .map(|entry| KeyEntry::from_bytes(entry.try_into().unwrap()))
        .collect();
    let packets: Vec<_> =
        packets.into_iter().map(|(_, bytes)| PacketBlock::first(bytes).expect("a whole block")).collect();
    let mut offset = 0;
    for (block, entry) in packets.iter().zip(&entries) {
        assert_eq!(entry.offset() as usize, offset, "the entry leads to its block");
        offset += block.bytes().len();
    }
    assert_eq!(foot.block_bytes as usize, offset);
    assert_eq!(foot.packets as usize, packets.len());
    check_times(&foot, &packets.iter().map(|block| block.time_ns()).collect::<Vec<_>>());
    assert!(statistics.len() <= segment::STATISTICS_MAX);
    Account {
        foot,
        packets: packets.iter().map(|block| (block.head(), block.data().to_vec())).collect(),
        entries,
        statistics: statistics.iter().map(|(kind, bytes)| stated(*kind, bytes)).collect(),
        padding_bytes: padding.len(),
    }
}

fn check_times(foot: &Foot, times_ns: &[i64]) {
    if let (Some(first), Some(last)) = (times_ns.first(), times_ns.last()) {
        let (min, max) = (times_ns.iter().min().unwrap(), times_ns.iter().max().unwrap());
        assert_eq!((foot.first_ns, foot.last_ns, foot.min_ns, foot.max_ns), (*first, *last, *min, *max));
    }
    assert_eq!(foot.unordered, !times_ns.is_sorted());
}

fn stated(kind: u32, bytes: &[u8]) -> Stated {
    assert_eq!((kind, bytes.len()), (pcapng::STATISTICS, pcapng::STATISTICS_BYTES));
    let wide = |at: usize| le32(bytes, at) as u64 | (le32(bytes, at + 4) as u64) << 32;
    let option = |at: usize| (le32(bytes, at) & 0xffff, le32(bytes, at) >> 16);
    assert_eq!((option(20), option(32), option(44)), ((4, 8), (5, 8), (0, 0)), "isb_ifrecv, isb_ifdrop, end");
    let time_ns = ((le32(bytes, 12) as u64) << 32 | le32(bytes, 16) as u64) as i64;
    Stated { interface: le32(bytes, 8), time_ns, received: wide(24), dropped: wide(36) }
}

/// Accounts for every sealed segment of `lane` that is still there.
pub fn accounts(ring: &Arc<Ring>, lane: u32) -> Vec<Account> {
    (ring.oldest_possible(lane)..ring.lane_next(lane))
        .filter_map(|sequence| ring.pin(ring.segment_id(lane, sequence))?.whole().map(account))
        .collect()
}

/// A packet that found every segment pinned.
pub fn drop_one(writer: &mut LaneWriter, index: usize) {
    writer.count_dropped(index, DropReason::RingPinned, 1);
}
