//! Holds the code of scope-packet and scope-store against docs/FORMAT.md: what the page's tables say is
//! written here by other code.
//!
//! The page is read as it stands. Fields are placed by the offsets and bits of its tables, so that a table
//! that is wrong and code that is wrong both fail; a whole store file made this way is then read by the code,
//! and by tcpdump.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use scope_packet::segment::{self, FileLosses, Foot, LeftOut};
use scope_packet::{DropReason, Drops, Headers, KeyEntry, Kind, LinkType, key, pcapng};
use scope_ring::KeyTest;
use scope_store::head::{self, Head, HeadInterface};
use scope_store::index::{self, Entry};
use scope_store::record::{self, Record, Running};
use scope_store::{State, StoredFile, StoredSegment, checks};
use scope_testkit::oracle;
use twox_hash::{XxHash3_64, XxHash3_128};

/// A field's place, in bytes or, for the key entry's word, in bits.
#[derive(Clone, Copy, Debug, PartialEq)]
struct FieldSpan {
    at: usize,
    len: usize,
}

/// Rows of the first table behind `heading` whose head row begins with the cell `first`, cells trimmed and
/// without backticks.
fn table(heading: &str, first: &str) -> Vec<Vec<String>> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/FORMAT.md");
    let page = fs::read_to_string(page).expect("docs/FORMAT.md can be read");
    let behind =
        page.split_once(&format!("# {heading}\n")).unwrap_or_else(|| panic!("no heading '{heading}'")).1;
    let cells = |line: &str| {
        line.trim_matches('|').split('|').map(|cell| cell.trim().replace('`', "")).collect::<Vec<_>>()
    };
    let is_head = |line: &&str| line.starts_with('|') && cells(line)[0] == first;
    let rows: Vec<_> = behind
        .lines()
        .skip_while(|line| !is_head(line))
        .skip(2)
        .take_while(|line| line.starts_with('|'))
        .collect();
    assert!(!rows.is_empty(), "no table that begins with '{first}' behind '{heading}'");
    rows.into_iter().map(cells).collect()
}

fn number(cell: &str) -> usize {
    let parsed = match cell.strip_prefix("0x") {
        Some(digits) => usize::from_str_radix(digits, 16),
        None => cell.parse(),
    };
    parsed.unwrap_or_else(|_| panic!("'{cell}' is no number"))
}

fn foot_fields() -> BTreeMap<String, FieldSpan> {
    let rows = table("Foot", "name");
    rows.into_iter()
        .map(|row| (row[0].clone(), FieldSpan { at: number(&row[1]), len: number(&row[2]) }))
        .collect()
}

/// Offset of the field of a block's table whose description begins with `field`.
fn offset(heading: &str, field: &str) -> usize {
    let rows = table(heading, "offset");
    let row = rows
        .iter()
        .find(|row| row[2].starts_with(field))
        .unwrap_or_else(|| panic!("{heading} has no '{field}'"));
    number(&row[0])
}

fn block_type(name: &str) -> u32 {
    let rows = table("Block types", "type");
    number(
        &rows.iter().find(|row| row[1].contains(name)).unwrap_or_else(|| panic!("no block type '{name}'"))[0],
    ) as u32
}

fn put(out: &mut [u8], at: usize, value: u64, len: usize) {
    out[at..at + len].copy_from_slice(&value.to_le_bytes()[..len]);
}

fn up_to_4(len: usize) -> usize {
    len.div_ceil(4) * 4
}

/// A block of `total` bytes with type and both lengths.
fn empty_block(name: &str, total: usize) -> Vec<u8> {
    let mut out = vec![0; total];
    put(&mut out, 0, block_type(name) as u64, 4);
    put(&mut out, 4, total as u64, 4);
    put(&mut out, total - 4, total as u64, 4);
    out
}

/// One packet of the reference file.
#[derive(Clone)]
struct Sample {
    interface: u32,
    time_ns: u64,
    data: Vec<u8>,
    original_len: u32,
    flags: u32,
    lost_before: u64,
}

const PACKET_BLOCK: &str = "3. Packet block (EPB)";
const STATISTICS_BLOCK: &str = "5. Interface statistics block (ISB)";

fn packet_block(sample: &Sample) -> Vec<u8> {
    let mut options = Vec::new();
    if sample.flags != 0 {
        options.extend([2, 0, 4, 0]);
        options.extend(sample.flags.to_le_bytes());
    }
    if sample.lost_before != 0 {
        options.extend([4, 0, 8, 0]);
        options.extend(sample.lost_before.to_le_bytes());
    }
    if !options.is_empty() {
        options.extend([0; 4]);
    }
    let data_at = offset(PACKET_BLOCK, "the packet");
    let options_at = data_at + up_to_4(sample.data.len());
    let mut out = empty_block("Enhanced Packet", options_at + options.len() + 4);
    let at = |field| offset(PACKET_BLOCK, field);
    put(&mut out, at("interface number"), sample.interface as u64, 4);
    put(&mut out, at("capture time, upper"), sample.time_ns >> 32, 4);
    put(&mut out, at("capture time, lower"), sample.time_ns, 4);
    put(&mut out, at("captured length"), sample.data.len() as u64, 4);
    put(&mut out, at("original length"), sample.original_len as u64, 4);
    out[data_at..data_at + sample.data.len()].copy_from_slice(&sample.data);
    out[options_at..options_at + options.len()].copy_from_slice(&options);
    out
}

fn statistics_block(interface: u32, time_ns: u64, received: u64, dropped: u64) -> Vec<u8> {
    let at = |field| offset(STATISTICS_BLOCK, field);
    let mut out = empty_block("Interface Statistics", at("total length, 52") + 48);
    put(&mut out, at("interface number"), interface as u64, 4);
    put(&mut out, at("time of the counts, upper"), time_ns >> 32, 4);
    put(&mut out, at("time of the counts, lower"), time_ns, 4);
    put(&mut out, at("option head: code 4"), 4 | 8 << 16, 4);
    put(&mut out, at("packets received"), received, 8);
    put(&mut out, at("option head: code 5"), 5 | 8 << 16, 4);
    put(&mut out, at("packets dropped"), dropped, 8);
    out
}

/// What the word of a key entry holds, by the page's names.
fn key_word(fields: &[(&str, u32)]) -> u32 {
    let rows = table("Key entry", "bits");
    fields.iter().fold(0, |word, (name, value)| {
        let row = rows
            .iter()
            .find(|row| row[2].starts_with(name))
            .unwrap_or_else(|| panic!("no field '{name}' in the word"));
        word | value << number(row[0].split("..").next().unwrap_or(""))
    })
}

fn key_entry(source: [u8; 4], destination: [u8; 4], ports: (u16, u16), word: u32) -> [u8; 16] {
    let at = |field| offset("Key entry", field);
    let mut out = [0; 16];
    out[at("source address")..][..4].copy_from_slice(&source);
    out[at("destination address")..][..4].copy_from_slice(&destination);
    put(&mut out, at("source port"), ports.0 as u64, 2);
    put(&mut out, at("destination port"), ports.1 as u64, 2);
    put(&mut out, at("word"), word as u64, 4);
    out
}

/// An Ethernet frame with IPv4 and UDP from 10.0.0.1:53 to 10.0.0.2:60000 and `payload_bytes` of payload.
fn frame(payload_bytes: u8) -> Vec<u8> {
    let mut out = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0];
    out.extend([0x45, 0, 0, 28 + payload_bytes, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    out.extend([0, 53, 0xea, 0x60, 0, 8 + payload_bytes, 0, 0]);
    out.extend((0..payload_bytes).map(|byte| byte ^ 0x5a));
    out
}

fn samples() -> Vec<Sample> {
    let sample = |number: u64, flags, lost_before| Sample {
        interface: number as u32 % 2,
        time_ns: 1_763_700_000_123_456_789 + number * 1000,
        data: frame(number as u8),
        original_len: 70 + number as u32,
        flags,
        lost_before,
    };
    vec![sample(0, 0, 0), sample(1, 2, 0), sample(2, 0, 7), sample(3, 1, 1 << 40), sample(4, 0, 0)]
}

fn reference_foot(samples: &[Sample], block_bytes: usize) -> Foot {
    let mut drops_before = Drops::default();
    for reason in DropReason::ALL {
        drops_before.add(reason, 0x0102_0304_0506_0700 + reason as u64);
    }
    Foot {
        run_id: RUN_ID,
        lane: 0x0a0b_0c0d,
        link_type: LinkType::ETHERNET,
        unordered: true,
        sequence: 0x1112_1314_1516_1718,
        first_packet: 0x2122_2324_2526_2728,
        packets: samples.len() as u32,
        block_bytes: block_bytes as u32,
        first_ns: samples[0].time_ns as i64,
        last_ns: samples[samples.len() - 1].time_ns as i64,
        min_ns: samples[0].time_ns as i64 - 0x3132_3334,
        max_ns: samples[0].time_ns as i64 + 0x4142_4344,
        bytes_before: 0x5152_5354_5556_5758,
        drops_before,
        left_out: LeftOut {
            packets: 0x6162_6364_6566_6768,
            bytes: 0x7172_7374_7576_7778,
            span_ns: (0x1112_1314_1516_1718, 0x2122_2324_2526_2728),
        },
        file_losses: FileLosses { dropped: 0x8182_8384_8586_8788, cut: 0x9192_9394, told: 0xa1a2_a3a4 },
    }
}

/// The foot's bytes without the closing length, placed by the page's table.
fn foot_bytes(foot: &Foot) -> Vec<u8> {
    let places = foot_fields();
    let mut out = vec![0; segment::FOOT_BYTES - 4];
    let mut set = |name: &str, value: &[u8]| {
        let FieldSpan { at, len } =
            *places.get(name).unwrap_or_else(|| panic!("the foot's table has no '{name}'"));
        assert_eq!(value.len(), len, "{name}");
        out[at..at + len].copy_from_slice(value);
    };
    set("magic", b"WSSEG\0\0");
    set("version", &[1]);
    set("run_id", &foot.run_id);
    set("lane", &foot.lane.to_le_bytes());
    set("link_type", &foot.link_type.0.to_le_bytes());
    set("flags", &[foot.unordered as u8, 0]);
    set("sequence", &foot.sequence.to_le_bytes());
    set("first_packet", &foot.first_packet.to_le_bytes());
    set("packets", &foot.packets.to_le_bytes());
    set("block_bytes", &foot.block_bytes.to_le_bytes());
    set("first_ns", &foot.first_ns.to_le_bytes());
    set("last_ns", &foot.last_ns.to_le_bytes());
    set("min_ns", &foot.min_ns.to_le_bytes());
    set("max_ns", &foot.max_ns.to_le_bytes());
    set("bytes_before", &foot.bytes_before.to_le_bytes());
    let mut drops = [0; 112];
    for row in table("Foot", "reason") {
        let reason = DropReason::ALL
            .into_iter()
            .find(|reason| reason.name() == row[1])
            .expect("the page's reason exists");
        put(&mut drops, number(&row[0]) * 8, foot.drops_before.get(reason), 8);
    }
    set("drops_before", &drops);
    set("left_out_min_ns", &foot.left_out.span_ns.0.to_le_bytes());
    set("left_out_max_ns", &foot.left_out.span_ns.1.to_le_bytes());
    set("left_out_packets", &foot.left_out.packets.to_le_bytes());
    set("left_out_bytes", &foot.left_out.bytes.to_le_bytes());
    set("files_dropped", &foot.file_losses.dropped.to_le_bytes());
    set("files_cut", &foot.file_losses.cut.to_le_bytes());
    set("files_told", &foot.file_losses.told.to_le_bytes());
    out
}

/// A whole segment by section 2 of the page, with statistics for two interfaces; also its foot.
fn reference_segment(segment_bytes: usize, samples: &[Sample]) -> (Vec<u8>, Foot) {
    let mut out = Vec::new();
    let mut entries = Vec::new();
    for sample in samples {
        let offset = out.len() as u32;
        let word = key_word(&[("IP protocol", 17), ("kind", 1), ("offset", offset / 4)]);
        entries.push(key_entry([10, 0, 0, 1], [10, 0, 0, 2], (53, 60000), word));
        out.extend(packet_block(sample));
    }
    let foot = reference_foot(samples, out.len());
    let n = samples.len();
    let gap = segment_bytes - 4104 - 16 * n - 52 * 2 - out.len();
    out.extend(empty_block("padding", gap));
    out.extend(statistics_block(0, 9 << 40, 3, 1));
    out.extend(statistics_block(1, 9 << 40, 2, 0));
    let column_bytes = 4104 + 16 * n as u32;
    out.extend(block_type("key column").to_le_bytes());
    out.extend(column_bytes.to_le_bytes());
    for entry in entries.iter().rev() {
        out.extend(entry);
    }
    out.extend(foot_bytes(&foot));
    out.extend(column_bytes.to_le_bytes());
    assert_eq!(out.len(), segment_bytes);
    (out, foot)
}

const RUN_ID: [u8; 16] =
    [0xf0, 0xf1, 0xf2, 0xf3, 0xf4, 0xf5, 0xf6, 0xf7, 0xf8, 0xf9, 0xfa, 0xfb, 0xfc, 0xfd, 0xfe, 0xff];
const VOLUME: [u8; 16] = [0x66; 16];
const FILTER: &str = "udp port 53";

/// Section header and two interfaces, by section 7 of the page.
fn reference_interfaces(comment: &str, filter: &str, snap: u8) -> Vec<u8> {
    let option = |code: u8, value: &[u8]| {
        let mut out = vec![code, 0, value.len() as u8, 0];
        out.extend(value);
        out.resize(up_to_4(out.len()), 0);
        out
    };
    let around = |name: &str, body: Vec<u8>| {
        let mut out = empty_block(name, body.len() + 12);
        out[8..8 + body.len()].copy_from_slice(&body);
        out
    };
    let program = concat!("wirescope ", env!("CARGO_PKG_VERSION"));
    let mut body = vec![0x4d, 0x3c, 0x2b, 0x1a, 1, 0, 0, 0];
    body.extend([0xff; 8]);
    if !comment.is_empty() {
        body.extend(option(1, comment.as_bytes()));
    }
    body.extend([option(4, program.as_bytes()), vec![0; 4]].concat());
    let mut out = around("Section Header", body);
    for name in ["eth0", "eth10"] {
        let mut body = vec![1, 0, 0, 0, snap, 0, 0, 0];
        body.extend([option(2, name.as_bytes()), option(3, b"lane 0"), option(9, &[9])].concat());
        if !filter.is_empty() {
            body.extend(option(11, &[&[0], filter.as_bytes()].concat()));
        }
        body.extend([0; 4]);
        out.extend(around("Interface Description", body));
    }
    out
}

/// Fills up to 4096 bytes by a padding block.
fn pad_head(out: &mut Vec<u8>) {
    let gap = 4096 - out.len();
    out.extend(empty_block("padding", gap));
}

/// The head as files had it before there were head blocks.
fn older_head() -> Vec<u8> {
    let mut out = reference_interfaces("", "", 0);
    pad_head(&mut out);
    out
}

/// The head of a store file with two interfaces, by section 7 of the page.
fn reference_head(segment_bytes: usize) -> Vec<u8> {
    let comment = "file 3 of the store, run f0f1f2f3, packets of link type ETHERNET\n\
                   filter: udp port 53 (other packets were left out)\n\
                   snap length: 96 (longer packets were truncated)";
    let mut out = reference_interfaces(comment, FILTER, 96);
    let at = |field| offset("Head block", field);
    let block_at = out.len();
    let filter_at = at("the store filter");
    let volumes_at = filter_at + up_to_4(FILTER.len());
    let mut block = empty_block("head block", volumes_at + 2 * 16 + 4);
    block[at("magic")..][..7].copy_from_slice(b"WSHEAD\0");
    put(&mut block, at("version"), 1, 1);
    block[at("run id")..][..16].copy_from_slice(&RUN_ID);
    block[at("id of the volume")..][..16].copy_from_slice(&VOLUME);
    put(&mut block, at("number of the file"), 3, 4);
    put(&mut block, at("segment size"), segment_bytes as u64, 4);
    put(&mut block, at("snap length"), 96, 4);
    put(&mut block, at("link type"), 1, 2);
    put(&mut block, at("volumes of the run"), 2, 2);
    put(&mut block, at("bytes of the whole head"), 4096, 4);
    put(&mut block, at("bytes of the filter"), FILTER.len() as u64, 4);
    block[filter_at..][..FILTER.len()].copy_from_slice(FILTER.as_bytes());
    block[volumes_at..][..16].fill(0x77);
    block[volumes_at + 16..][..16].copy_from_slice(&VOLUME);
    out.extend(block);
    pad_head(&mut out);
    let check = XxHash3_64::oneshot(&out);
    put(&mut out, block_at + at("check"), check, 8);
    out
}

/// Puts the checks into a segment, by section 7 of the page; its hash.
fn put_checks(segment: &mut [u8]) -> [u8; 16] {
    let places = foot_fields();
    let foot_at = segment.len() - 4096;
    let hashes: Vec<[u8; 16]> =
        segment.chunks(4096).map(|page| XxHash3_128::oneshot(page).to_le_bytes()).collect();
    for (page, hash) in hashes.iter().enumerate() {
        segment[foot_at + places["page_sums"].at + 4 * page..][..4].copy_from_slice(&hash[..4]);
    }
    let hash = XxHash3_128::oneshot(&hashes.concat()).to_le_bytes();
    segment[foot_at + places["hash"].at..][..16].copy_from_slice(&hash);
    hash
}

/// What the index says of the samples in one segment, by section 7 of the page: mixes, protocols, bits.
fn reference_summary(segment_bytes: usize) -> Vec<u8> {
    let at = |field| offset("Summary", field);
    let hosts_at = at("hosts");
    let ports_at = hosts_at + segment_bytes / 512;
    let mut out = vec![0; ports_at + segment_bytes / 1024];
    put(&mut out, at("mixes"), 1 << 1, 2); // IPv4, no tag, no fragment
    let mut set = |at: usize, bit: usize| out[at + bit / 8] |= 1 << (bit % 8);
    set(at("protocols"), 17); // UDP
    set(at("first bytes"), 10);
    set(at("low ports"), 53);
    let mut add = |from: usize, to: usize, key: u64, count: u64| {
        let x = key.wrapping_mul(0x9e3779b97f4a7c15);
        let h = (x ^ x >> 32).wrapping_mul(0xbf58476d1ce4e5b9);
        let (f, s, bits) = (h >> 32, (h % (1 << 32)) | 1, (to - from) as u64 * 8);
        for i in 0..count {
            set(from, ((((f + i * s) % (1 << 32)) * bits) >> 32) as usize);
        }
    };
    for address in [u32::from_be_bytes([10, 0, 0, 1]), u32::from_be_bytes([10, 0, 0, 2])] {
        let a = u64::from(address);
        add(hosts_at, ports_at, (32 << 32) + a, 4);
        add(hosts_at, ports_at, (24 << 32) + (a >> 8), 2);
        add(hosts_at, ports_at, (16 << 32) + (a >> 16), 2);
    }
    add(ports_at, ports_at + segment_bytes / 1024, 60000, 2);
    out
}

/// The same of version 1: kinds, protocols, bits.
fn older_summary(segment_bytes: usize) -> Vec<u8> {
    let from = offset("Index of version 1", "kinds");
    let at = |field| offset("Index of version 1", field) - from;
    let words = segment_bytes as u64 / 4096;
    let mut out = vec![0; at("bits of a Bloom") + segment_bytes / 512];
    put(&mut out, at("kinds"), 1 << 1, 1);
    put(&mut out, at("protocols"), 1 << 17, 8); // UDP
    let keys = [
        u32::from_le_bytes([10, 0, 0, 1]) as u64,
        u32::from_le_bytes([10, 0, 0, 2]) as u64,
        (1 << 32) + 53,
        (1 << 32) + 60000,
    ];
    for key in keys {
        let x = key.wrapping_mul(0x9e3779b97f4a7c15);
        let h = (x ^ x >> 32).wrapping_mul(0xbf58476d1ce4e5b9);
        for p in [h >> 32, (h ^ h >> 29) % (1 << 32)] {
            let bit = (p / 64) % words * 64 + p % 64;
            out[at("bits of a Bloom") + (bit / 8) as usize] |= 1 << (bit % 8);
        }
    }
    out
}

/// The index of segments that lie one behind the other from 4096 on, by section 7 of the page.
fn reference_index(segment_bytes: usize, segments: &[Vec<u8>]) -> Vec<u8> {
    index_of_version(3, segment_bytes, segments)
}

fn index_of_version(version: u64, segment_bytes: usize, segments: &[Vec<u8>]) -> Vec<u8> {
    let at = |field| offset("Index block", field);
    let entry_at = |field| offset("Index entry", field);
    let (summary, entries_at) = match version {
        1 => (older_summary(segment_bytes), at("run id")),
        _ => (reference_summary(segment_bytes), at("the entries")),
    };
    let facts_bytes = entry_at("hash") + 16;
    let entry_bytes = facts_bytes + if version == 3 { 0 } else { summary.len() };
    let entries_end = entries_at + segments.len() * entry_bytes;
    let facts_end = (entries_end + 16).div_ceil(4096) * 4096;
    let total = match version {
        3 => facts_end + (segments.len() * summary.len()).div_ceil(4080) * 4096,
        _ => (entries_end + 4).div_ceil(4096) * 4096,
    };
    let mut out = empty_block("index", total);
    out[at("magic")..][..7].copy_from_slice(b"WSINDEX");
    put(&mut out, at("version"), version, 1);
    put(&mut out, at("entries in this block"), segments.len() as u64, 4);
    put(&mut out, at("bytes of a summary"), summary.len() as u64, 4);
    let foot_of = |segment: &[u8], field: &str, bytes: usize| {
        let mut word = [0; 8];
        let from = segment_bytes - 4096 + foot_fields()[field].at;
        word[..bytes].copy_from_slice(&segment[from..from + bytes]);
        u64::from_le_bytes(word)
    };
    let sum = |field: &str| segments.iter().map(|segment| foot_of(segment, field, 4)).sum::<u64>();
    let times =
        |field: &str| segments.iter().map(|segment| foot_of(segment, field, 8) as i64).collect::<Vec<_>>();
    put(&mut out, at("segments in the whole file"), segments.len() as u64, 8);
    put(&mut out, at("their packets"), sum("packets"), 8);
    put(&mut out, at("bytes of their packet blocks"), sum("block_bytes"), 8);
    put(
        &mut out,
        at("smallest time in the file"),
        times("min_ns").into_iter().min().unwrap_or(i64::MAX) as u64,
        8,
    );
    put(&mut out, at("largest time"), times("max_ns").into_iter().max().unwrap_or(i64::MIN) as u64, 8);
    let hashes =
        segments.iter().map(|segment| &segment[segment_bytes - 4096..][foot_fields()["hash"].at..][..16]);
    let hash = XxHash3_128::oneshot(&hashes.collect::<Vec<_>>().concat());
    out[at("XXH3-128 of the")..][..16].copy_from_slice(&hash.to_le_bytes());
    for (number, segment) in segments.iter().enumerate() {
        let entry = &mut out[entries_at + number * entry_bytes..][..entry_bytes];
        let foot = &segment[segment_bytes - 4096..];
        entry[entry_at("the first 256 bytes")..][..256].copy_from_slice(&foot[..256]);
        put(entry, entry_at("offset of the segment"), (4096 + number * segment_bytes) as u64, 8);
        entry[entry_at("hash")..][..16].copy_from_slice(&foot[foot_fields()["hash"].at..][..16]);
        if version != 3 {
            entry[facts_bytes..].copy_from_slice(&summary);
        }
    }
    if version != 1 {
        // All segments are of one run and one lane.
        let all = |field: &str| segments.iter().map(|segment| foot_of(segment, field, 8)).collect::<Vec<_>>();
        let least = [times("min_ns"), times("first_ns"), times("left_out_min_ns")].concat().into_iter().min();
        let most = [times("max_ns"), times("first_ns"), times("left_out_max_ns")].concat().into_iter().max();
        put(&mut out, at("number of lanes"), 1, 4);
        out[at("run id")..][..16].copy_from_slice(&RUN_ID);
        put(&mut out, at("smallest min_ns"), least.unwrap_or(i64::MAX) as u64, 8);
        put(&mut out, at("largest max_ns"), most.unwrap_or(i64::MIN) as u64, 8);
        let lane = |field: &str| {
            let rows = table("Index block", "at");
            let row = rows.iter().find(|row| row[2].starts_with(field)).expect("a field of a listed lane");
            at("64 places") + number(&row[0])
        };
        let ends = segments.iter().map(|segment| {
            let first = foot_of(segment, "first_packet", 8) + foot_of(segment, "packets", 4);
            first + foot_of(segment, "left_out_packets", 8)
        });
        let told = segments.iter().map(|segment| foot_of(segment, "files_told", 4));
        put(&mut out, lane("how often"), told.max().expect("a segment"), 4);
        put(&mut out, lane("lane"), foot_of(&segments[0], "lane", 4), 4);
        put(&mut out, lane("smallest"), all("first_packet").into_iter().min().expect("a segment"), 8);
        put(&mut out, lane("largest"), all("first_packet").into_iter().max().expect("a segment"), 8);
        put(&mut out, lane("number behind"), ends.max().expect("a segment"), 8);
        let check = XxHash3_64::oneshot(&out[..entries_at]);
        put(&mut out, at("card check"), check, 8);
    }
    if version == 3 {
        put(&mut out, facts_end - 4, total as u64, 4);
        let check = XxHash3_64::oneshot(&out[..facts_end]);
        put(&mut out, facts_end - 16, check, 8);
        put_slices(&mut out[facts_end..], total, &vec![summary; segments.len()]);
    }
    let check = XxHash3_64::oneshot(&out);
    put(&mut out, at("check"), check, 8);
    out
}

/// The pages of slices, by section 7 of the page.
fn put_slices(pages: &mut [u8], total: usize, summaries: &[Vec<u8>]) {
    let at = |field: &str| {
        let rows = table("Slices", "at");
        number(&rows.iter().find(|row| row[2].starts_with(field)).expect("a field of a page of slices")[0])
    };
    let in_page = at("page check");
    for (s, summary) in summaries.iter().enumerate() {
        for b in (0..summary.len() * 8).filter(|b| summary[b / 8] >> (b % 8) & 1 != 0) {
            let bit = b * summaries.len() + s;
            pages[bit / 8 / in_page * 4096 + bit / 8 % in_page] |= 1 << (bit % 8);
        }
    }
    for (page, number) in pages.chunks_mut(4096).zip(1..) {
        put(page, at("number of the page"), number, 4);
        put(page, at("total length"), total as u64, 4);
        let check = XxHash3_64::oneshot(page);
        put(page, in_page, check, 8);
    }
}

/// A whole store file with three segments.
fn reference_file(segment_bytes: usize) -> Vec<u8> {
    let mut segment = reference_segment(segment_bytes, &samples()).0;
    put_checks(&mut segment);
    let segments = vec![segment; 3];
    [reference_head(segment_bytes), segments.concat(), reference_index(segment_bytes, &segments)].concat()
}

#[test]
fn the_limits_of_the_page_are_those_of_the_code() {
    let code = [
        ("SEGMENT_BYTES_MIN", segment::SEGMENT_BYTES_MIN),
        ("SEGMENT_BYTES_MAX", segment::SEGMENT_BYTES_MAX),
        ("FOOT_BYTES", segment::FOOT_BYTES),
        ("KEY_ENTRY_BYTES", key::KEY_ENTRY_BYTES),
        ("STATISTICS_MAX", segment::STATISTICS_MAX),
        ("KEPT_BYTES_MAX", segment::KEPT_BYTES_MAX),
        ("BLOCK_BYTES_MIN", pcapng::BLOCK_BYTES_MIN),
        ("PACKET_HEAD_BYTES", pcapng::PACKET_HEAD_BYTES),
        ("STATISTICS_BYTES", pcapng::STATISTICS_BYTES),
        ("HEAD_BYTES_MAX", head::HEAD_BYTES_MAX),
        ("INDEX_BYTES_MAX", index::INDEX_BYTES_MAX),
    ];
    let page = table("1. Limits", "name").into_iter().map(|row| (row[0].clone(), number(&row[1])));
    assert_eq!(page.collect::<Vec<_>>(), code.map(|(name, value)| (name.to_string(), value)));
    let sizes: Vec<usize> =
        (0..24).map(|bit| 1 << bit).filter(|&bytes| segment::is_segment_size(bytes)).collect();
    assert_eq!(sizes, [64, 128, 256, 512, 1024, 2048].map(|kib| kib << 10));
    assert!(!segment::is_segment_size(96 << 10));
    for segment_bytes in sizes {
        assert_eq!(segment::kept_bytes_max(segment_bytes), (256 << 10).min(segment_bytes / 4));
        assert_eq!(segment::entry_offset(segment_bytes, 5), segment_bytes - 4096 - 16 * 6);
        let room = |packets: usize, interfaces: usize| {
            segment_bytes - 12 - 52 * interfaces.min(64) - 8 - 16 * packets - 4096
        };
        for (packets, interfaces) in [(1, 1), (40, 3), (100, 64), (100, 65)] {
            assert!(segment::fits(segment_bytes, room(packets, interfaces), packets, interfaces));
            assert!(!segment::fits(segment_bytes, room(packets, interfaces) + 4, packets, interfaces));
        }
    }
}

#[test]
fn the_block_types_of_the_page_are_those_of_the_code() {
    let page: Vec<u32> = table("Block types", "type").iter().map(|row| number(&row[0]) as u32).collect();
    let code = [
        pcapng::SECTION_HEADER,
        pcapng::INTERFACE,
        pcapng::STATISTICS,
        pcapng::PACKET,
        pcapng::PADDING,
        pcapng::KEY_COLUMN,
        pcapng::HEAD,
        pcapng::INDEX,
    ];
    assert_eq!(page, code);
}

#[test]
fn the_fields_of_the_foot_fill_it_without_gap_or_overlap() {
    let mut places: Vec<FieldSpan> = foot_fields().into_values().collect();
    places.sort_by_key(|place| place.at);
    let end = places.iter().fold(0, |end, place| {
        assert_eq!(place.at, end, "{place:?}");
        place.at + place.len
    });
    assert_eq!(end, segment::FOOT_BYTES - 4);
    let places = foot_fields();
    assert_eq!(places["reserved"].at, Foot::FIELDS_BYTES);
    assert_eq!([places["flush_0"].at, places["flush_1"].at], checks::FLUSH_AT);
    assert_eq!([places["flush_0"].len, places["flush_1"].len], [checks::FLUSH_BYTES; 2]);
    assert_eq!(places["hash"].at, checks::CHECKS_AT);
    for flush in ["flush_0", "flush_1"].map(|name| places[name]) {
        assert_eq!(flush.at / 512, (flush.at + flush.len - 1) / 512, "within one sector");
    }
}

#[test]
fn a_foot_written_by_the_page_is_the_foot_of_the_code() {
    let foot = reference_foot(&samples(), 4711 * 4);
    let by_page = foot_bytes(&foot);
    assert_eq!(Foot::read(&by_page), Some(foot));
    let mut by_code = vec![0xee; segment::FOOT_BYTES - 4];
    foot.write(&mut by_code);
    assert_eq!(by_code, by_page);
    let names: Vec<(usize, String)> =
        table("Foot", "reason").iter().map(|row| (number(&row[0]), row[1].clone())).collect();
    assert_eq!(names, DropReason::ALL.map(|reason| (reason as usize, reason.name().to_string())));
}

#[test]
fn a_key_entry_written_by_the_page_is_that_of_the_code() {
    let by_page = |fields: &[(&str, u32)]| {
        KeyEntry::from_bytes(&key_entry([1, 2, 3, 4], [5, 6, 7, 8], (9, 10), key_word(fields)))
    };
    let entry = by_page(&[("IP protocol", 255), ("kind", 3), ("offset", (1 << 19) - 1)]);
    assert_eq!((entry.source, entry.destination), ([1, 2, 3, 4], [5, 6, 7, 8]));
    assert_eq!((entry.source_port, entry.destination_port), (9, 10));
    assert_eq!((entry.protocol(), entry.kind(), entry.offset()), (255, Kind::Arp, (2 << 20) - 4));
    let flags = |entry: KeyEntry| [entry.vlan(), entry.fragment(), entry.partial()];
    assert_eq!(flags(entry), [false; 3]);
    assert_eq!(flags(by_page(&[("vlan", 1)])), [true, false, false]);
    assert_eq!(flags(by_page(&[("fragment", 1)])), [false, true, false]);
    assert_eq!(flags(by_page(&[("partial", 1)])), [false, false, true]);
    let kinds = [0, 1, 2, 3].map(|kind| by_page(&[("kind", kind)]).kind());
    assert_eq!(kinds, [Kind::Other, Kind::Ipv4, Kind::Ipv6, Kind::Arp]);
    let bits = table("Key entry", "bits");
    let spans = bits.iter().map(|row| {
        row[0].split_once("..").map(|(from, to)| (number(from), number(to))).expect("a span of bits")
    });
    let end = spans.zip(&bits).fold(0, |end, ((from, to), row)| {
        assert_eq!((from, to - from), (end, number(&row[1])));
        to
    });
    assert_eq!(end, 32);
}

#[test]
fn a_packet_block_written_by_the_page_is_that_of_the_code() {
    let mut overheads = Vec::new();
    for sample in samples() {
        let by_page = packet_block(&sample);
        let head = pcapng::PacketHead {
            interface: sample.interface,
            time_ns: sample.time_ns as i64,
            captured_len: sample.data.len() as u32,
            original_len: sample.original_len,
            flags: sample.flags,
            lost_before: sample.lost_before,
        };
        let mut by_code = vec![0xee; head.block_bytes()];
        head.write(&mut by_code, &sample.data);
        assert_eq!(by_code, by_page);
        let block = pcapng::PacketBlock::first(&by_page).expect("the code reads the block");
        assert_eq!((block.head(), block.data()), (head, &sample.data[..]));
        overheads.push(by_page.len() - up_to_4(sample.data.len()));
    }
    assert_eq!(overheads, [32, 44, 48, 56, 32]);
}

#[test]
fn a_segment_written_by_the_page_is_the_one_that_the_code_seals() {
    let samples = samples();
    for segment_bytes in [segment::SEGMENT_BYTES_MIN, segment::SEGMENT_BYTES_MAX] {
        let (by_page, foot) = reference_segment(segment_bytes, &samples);
        let mut by_code = vec![0xee; segment_bytes];
        by_code[..foot.block_bytes as usize].copy_from_slice(&by_page[..foot.block_bytes as usize]);
        let mut at = 0;
        for (index, sample) in samples.iter().enumerate() {
            let headers = Headers::parse(LinkType::ETHERNET, &sample.data);
            let entry = KeyEntry::new(&headers).at(at);
            by_code[segment::entry_offset(segment_bytes, index)..][..16].copy_from_slice(&entry.to_bytes());
            at += pcapng::le32(&by_page, at as usize + 4);
        }
        let mut statistics = Vec::new();
        pcapng::statistics(&mut statistics, 0, 9 << 40, 3, 1);
        pcapng::statistics(&mut statistics, 1, 9 << 40, 2, 0);
        let (front, tail) = by_code.split_at_mut(segment_bytes - segment::FOOT_BYTES);
        let entries_at = segment::entry_offset(segment_bytes, samples.len() - 1);
        segment::seal(&mut front[foot.block_bytes as usize..entries_at], tail, &foot, &statistics);
        assert!(by_code == by_page, "{segment_bytes} bytes: the two differ");
    }
}

#[test]
fn the_head_of_a_store_file_is_that_of_the_code() {
    let interface = |name: &str| HeadInterface {
        name: name.to_string(),
        description: "lane 0".to_string(),
        link_type: LinkType::ETHERNET,
    };
    let head = Head {
        run_id: RUN_ID,
        volume: VOLUME,
        volumes: vec![[0x77; 16], VOLUME],
        number: 3,
        segment_bytes: 128 << 10,
        link_type: LinkType::ETHERNET,
        filter: FILTER.to_string(),
        snap: 96,
        interfaces: vec![interface("eth0"), interface("eth10")],
    };
    let by_page = reference_head(128 << 10);
    assert!(head.write() == by_page, "the two differ");
    assert_eq!(Head::read(&by_page), Ok((head, 4096)));
}

#[test]
fn the_checks_of_a_segment_are_those_of_the_code() {
    for segment_bytes in [segment::SEGMENT_BYTES_MIN, segment::SEGMENT_BYTES_MAX] {
        let mut by_code = reference_segment(segment_bytes, &samples()).0;
        let mut by_page = by_code.clone();
        let hash = put_checks(&mut by_page);
        let (body, foot_page) = by_code.split_at_mut(segment_bytes - 4096);
        assert_eq!(checks::seal(body, foot_page).0, hash);
        assert!(by_code == by_page, "{segment_bytes} bytes: the two differ");
        assert_eq!(checks::verify(&by_page).map(|hash| hash.0), Ok(hash));
    }
}

#[test]
fn the_index_of_a_store_file_is_that_of_the_code() {
    for segment_bytes in [segment::SEGMENT_BYTES_MIN, segment::SEGMENT_BYTES_MAX] {
        let mut segment = reference_segment(segment_bytes, &samples()).0;
        put_checks(&mut segment);
        let by_page = reference_index(segment_bytes, &vec![segment.clone(); 3]);
        let looked = StoredSegment::new(&segment).expect("the code reads the segment");
        let entries: Vec<Entry> =
            (0..3).map(|number| looked.entry(4096 + number * segment_bytes as u64)).collect();
        assert!(index::write(&entries) == by_page, "{segment_bytes} bytes: the two differ");
        assert_eq!(by_page.len() as u64, index::bytes_of(3, segment_bytes));
        assert!(index::read(&by_page) == Ok(entries));
    }
}

#[test]
fn an_index_of_version_2_written_by_the_page_is_read_and_screens() {
    let segment_bytes = segment::SEGMENT_BYTES_MIN;
    let mut segment = reference_segment(segment_bytes, &samples()).0;
    put_checks(&mut segment);
    let segments = [segment.clone(), segment];
    let by_page = index_of_version(2, segment_bytes, &segments);
    let entries = index::read(&by_page).expect("the code reads the index");
    assert_eq!(Ok(&entries), index::read(&reference_index(segment_bytes, &segments)).as_ref());
    let len = by_page.len() as u64;
    let read = |at: u64, into: &mut [u8]| {
        into.copy_from_slice(&by_page[at as usize..][..into.len()]);
        Ok::<(), std::convert::Infallible>(())
    };
    let card = index::read_card(len, read).expect("memory can be read").expect("a card");
    assert_eq!((card.totals.segments, card.lanes.map(|lanes| lanes.len())), (2, Some(1)));
    let file = tempfile::NamedTempFile::new().expect("a file");
    let whole = [reference_head(segment_bytes), segments.concat(), by_page].concat();
    fs::write(file.path(), whole).expect("written");
    for (host, may_match) in [([10, 0, 0, 1], true), ([10, 0, 0, 3], false)] {
        let opened = fs::File::open(file.path()).expect("a file");
        let keys = |_| KeyTest::host(host);
        let stored = StoredFile::open_for(opened, &keys, &mut Vec::new()).expect("the code reads the file");
        assert_eq!(stored.state(), State::Closed);
        assert!(stored.segments().iter().all(|facts| facts.may_match == may_match), "{host:?}");
    }
}

#[test]
fn an_index_of_version_1_written_by_the_page_is_read_and_screens() {
    let segment_bytes = segment::SEGMENT_BYTES_MIN;
    let mut segment = reference_segment(segment_bytes, &samples()).0;
    put_checks(&mut segment);
    let by_page = index_of_version(1, segment_bytes, &[segment.clone(), segment]);
    let entries = index::read(&by_page).expect("the code reads the index");
    assert_eq!(entries.len(), 2);
    for Entry { summary, .. } in &entries {
        let hosts = [[10, 0, 0, 1], [10, 0, 0, 2], [10, 0, 0, 3]].map(KeyTest::host);
        assert_eq!(hosts.map(|test| summary.may_hold(&test)), [true, true, false]);
        assert!(summary.may_hold(&KeyTest::port(60000)) && !summary.may_hold(&KeyTest::protocol(6)));
    }
    let len = by_page.len() as u64;
    let read = |at: u64, into: &mut [u8]| {
        into.copy_from_slice(&by_page[at as usize..][..into.len()]);
        Ok::<(), std::convert::Infallible>(())
    };
    assert_eq!(index::read_card(len, read), Ok(None), "it has none");
    assert_eq!(index::read_totals(len, read).map(|totals| totals.map(|totals| totals.segments)), Ok(Some(2)));
    assert!(index::write(&entries) == by_page, "the two differ");
}

#[test]
fn a_flush_record_written_by_the_page_is_that_of_the_code() {
    let samples = samples();
    let at = |field| offset("Flush record", field);
    let mut foot = reference_foot(&samples, 0);
    let mut alike = foot_bytes(&foot);
    let times = ["first_ns", "last_ns", "min_ns", "max_ns", "left_out_min_ns", "left_out_max_ns"];
    for name in ["flags", "packets", "block_bytes"].iter().chain(&times) {
        let FieldSpan { at, len } = foot_fields()[*name];
        alike[at..at + len].fill(0);
    }
    foot.packets = 7; // as any other of these, it makes no difference
    let blocks: Vec<u8> = samples.iter().flat_map(packet_block).collect();
    let entry = |number: u16| key_entry([10, 0, 0, 1], [10, 0, 0, 2], (number, 53), 0);
    let mut by_page = vec![0; 64];
    put(&mut by_page, at("number of the flush"), 9, 8);
    put(&mut by_page, at("packets so far"), 5, 4);
    put(&mut by_page, at("bytes of their blocks"), blocks.len() as u64, 4);
    put(&mut by_page, at("XXH3-64 of the foot's first 224"), XxHash3_64::oneshot(&alike[..224]), 8);
    put(&mut by_page, at("XXH3-64 of all packet blocks"), XxHash3_64::oneshot(&blocks), 8);
    let entries = [0, 1, 2, 3, 4].map(entry).concat();
    put(&mut by_page, at("XXH3-64 of all key entries"), XxHash3_64::oneshot(&entries), 8);
    put(&mut by_page, at("packets left out so far"), foot.left_out.packets, 8);
    put(&mut by_page, at("their bytes"), foot.left_out.bytes, 8);
    let own = XxHash3_64::oneshot(&by_page[..56]);
    put(&mut by_page, at("XXH3-64 of the 56 bytes"), own, 8);
    let mut running = Running::new();
    let half = packet_block(&samples[0]).len();
    running.add(&blocks[..half], &entry(0));
    running.add(&blocks[half..], &[4, 3, 2, 1].map(entry).concat()); // as they lie: the last packet's first
    let record = Record {
        number: 9,
        packets: 5,
        block_bytes: blocks.len() as u32,
        constants: record::constants(&foot),
        hashes: running.hashes(),
        left_out: foot.left_out,
    };
    assert_eq!(record.to_bytes()[..], by_page);
    let end = table("Flush record", "offset").iter().fold(0, |end, row| {
        assert_eq!(number(&row[0]), end, "{}", row[2]);
        end + number(&row[1])
    });
    assert_eq!(end, checks::FLUSH_BYTES);
}

#[test]
fn a_store_file_written_by_the_page_is_read_by_the_code() {
    let samples = samples();
    let segment_bytes = segment::SEGMENT_BYTES_MIN;
    let older = [older_head(), reference_segment(segment_bytes, &samples).0.repeat(3)].concat();
    for (bytes, state) in [(reference_file(segment_bytes), State::Closed), (older, State::Older)] {
        let mut file = tempfile::tempfile().expect("a file");
        file.write_all(&bytes).expect("written");
        let stored = StoredFile::open(file).expect("the code reads the file");
        assert_eq!(
            (stored.state(), stored.segment_bytes(), stored.segments().len()),
            (state, segment_bytes, 3)
        );
        let mut buffer = Vec::new();
        for (index, facts) in stored.segments().iter().enumerate() {
            let segment = stored.read_segment(index, &mut buffer).expect("the code reads the segment");
            let packets = segment.packets().map(|block| (block.time_ns() as u64, block.data().to_vec()));
            let expected = samples.iter().map(|sample| (sample.time_ns, sample.data.clone()));
            assert!(packets.eq(expected));
            let summary = facts.summary.clone().unwrap_or_else(|| segment.summary());
            assert!(summary.may_hold(&KeyTest::port(60000)) && !summary.may_hold(&KeyTest::protocol(6)));
        }
    }
}

#[test]
fn a_store_file_is_read_by_the_steps_of_the_page() {
    let samples = samples();
    let segment_bytes = segment::SEGMENT_BYTES_MIN;
    let file = reference_file(segment_bytes);
    // Step 1: the head, then the size, by the head block and from the first key column.
    let (mut at, mut head_end, mut size) = (0, None, 0);
    while size == 0 {
        let kind = pcapng::le32(&file, at);
        if kind == block_type("head block") {
            let word = |field| pcapng::le32(&file, at + offset("Head block", field)) as usize;
            assert_eq!((word("bytes of the whole head"), word("segment size")), (4096, segment_bytes));
        }
        if kind == pcapng::PACKET && head_end.is_none() {
            head_end = Some(at);
        }
        at += pcapng::le32(&file, at + 4) as usize;
        if kind == pcapng::KEY_COLUMN {
            size = at - head_end.expect("packets stand in front of the column");
        }
    }
    assert_eq!((head_end, size), (Some(4096), segment_bytes));
    // Step 2: the index, found from the end.
    let index_at = file.len() - pcapng::le32(&file, file.len() - 4) as usize;
    assert_eq!((index_at, pcapng::le32(&file, index_at)), (4096 + 3 * size, block_type("index")));
    // Steps 3 and 4: each foot, each entry, each block.
    for segment in file[4096..index_at].chunks_exact(size) {
        let foot = Foot::read(&segment[size - 4096..size - 4]).expect("the foot is read");
        assert_eq!(pcapng::le32(segment, size - 4), 4104 + 16 * foot.packets);
        let mut expected_offset = 0;
        for (index, sample) in samples.iter().enumerate() {
            let entry_at = segment::entry_offset(size, index);
            let entry = KeyEntry::from_bytes(segment[entry_at..entry_at + 16].try_into().expect("16 bytes"));
            assert_eq!(entry.offset(), expected_offset);
            let block =
                pcapng::PacketBlock::first(&segment[entry.offset() as usize..foot.block_bytes as usize])
                    .expect("a block");
            assert_eq!((block.time_ns() as u64, block.data()), (sample.time_ns, &sample.data[..]));
            expected_offset += block.bytes().len() as u32;
        }
        assert_eq!(expected_offset, foot.block_bytes);
    }
}

#[test]
fn every_tool_copies_a_store_file_with_a_filter_and_one_with_the_longest_index_block() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("reference.pcapng");
    let segment_bytes = segment::SEGMENT_BYTES_MIN;
    fs::write(&path, reference_file(segment_bytes)).expect("written");
    oracle::every_tool_copies(&path).expect("every tool");
    let mut segment = reference_segment(segment_bytes, &samples()).0;
    put_checks(&mut segment);
    let entry = StoredSegment::new(&segment).expect("a segment").entry(4096);
    let longest = index::write(&vec![entry; index::slots_max(segment_bytes)]);
    assert!(longest.len() > (16 << 20) - 4096);
    fs::write(&path, [reference_head(segment_bytes), segment, longest].concat()).expect("written");
    oracle::every_tool_copies(&path).expect("every tool");
}

#[test]
fn tcpdump_reads_a_store_file_written_by_the_page() {
    let file = reference_file(segment::SEGMENT_BYTES_MIN);
    let mut tcpdump = Command::new("tcpdump")
        .args(["-nn", "-tt", "--nano", "-r", "-", "udp and port 60000"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("tcpdump runs; `make test` installs it");
    // Far less than what tcpdump prints would have to fill before it stopped reading.
    tcpdump.stdin.take().expect("piped").write_all(&file).expect("tcpdump takes the file");
    let output = tcpdump.wait_with_output().expect("tcpdump ends");
    let lines = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(lines.lines().count(), 3 * samples().len());
    assert!(lines.starts_with("1763700000.123456789 IP 10.0.0.1.53 > 10.0.0.2.60000"), "{lines}");
}
