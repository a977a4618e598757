//! A head and sealed segments as they lie in memory are a file that tcpdump, capinfos and tshark open without
//! a complaint.

mod stand;

use scope_packet::pcapng::{self, PacketHead};
use scope_packet::{KeyEntry, LinkType};
use scope_ring::{Interfaces, Ring};
use stand::{Dice, KIB, append, head, ring};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;

/// Bytes that the file's head is a multiple of.
const HEAD_ALIGN: usize = 4096;

/// Writes section header, interfaces and padding, then every sealed segment of all lanes; returns the heads
/// in file order.
fn write_file(ring: &Arc<Ring>, path: &Path) -> Vec<PacketHead> {
    let mut file = Vec::new();
    pcapng::section_header(&mut file, "ring test", "");
    for entry in ring.interfaces_from(0) {
        entry.write(&mut file);
    }
    let head_bytes = (file.len() + pcapng::BLOCK_BYTES_MIN).next_multiple_of(HEAD_ALIGN);
    let used = file.len();
    file.resize(head_bytes, 0);
    pcapng::padding(&mut file[used..]);
    let mut heads = Vec::new();
    for lane in 0..ring.lanes() {
        for sequence in ring.oldest_possible(lane)..ring.lane_next(lane) {
            let Some(pinned) = ring.pin(ring.segment_id(lane, sequence)) else { continue };
            file.extend(pinned.whole().expect("sealed"));
            heads.extend(pinned.blocks(0, pinned.committed().bytes).map(|block| block.head()));
        }
    }
    std::fs::write(path, file).expect("the target folder takes a file");
    heads
}

/// Packets of `lanes` lanes, of all sizes, with flags, losses, truncated packets and a packet of the year
/// 2106.
fn example(segment_bytes: u64, lanes: u32) -> Arc<Ring> {
    let ring = ring(200, segment_bytes, 1);
    let mut dice = Dice(segment_bytes + lanes as u64);
    for _ in 0..lanes {
        let mut writer = ring.open_lane(0, LinkType::ETHERNET).expect("room");
        let indices = [stand::add_interface(&ring, &mut writer), stand::add_interface(&ring, &mut writer)];
        for number in 0..1500 {
            let time_ns = if number == 700 {
                (1i64 << 32) * 1_000_000_000
            } else {
                1_700_000_000_000_000_000 + number * 1001
            };
            let spread = if dice.one_in(2) { 50 } else { 1505 };
            let len = 14 + dice.below(spread) as usize;
            let head = PacketHead {
                original_len: len as u32 + if dice.one_in(5) { 1000 } else { 0 },
                flags: dice.below(3) as u32,
                lost_before: if dice.one_in(20) { 3 } else { 0 },
                ..head(len, time_ns)
            };
            assert!(append(&mut writer, indices[dice.below(2) as usize], head, KeyEntry::default()));
            if dice.one_in(60) {
                writer.seal(); // as a run's end does: segments of every fill
            }
        }
    }
    ring
}

/// Runs a tool on the file, which it gets as its standard input; `None`: it isn't installed here.
fn run(tool: &str, arguments: &[&str], path: &Path) -> Option<Output> {
    let file = std::fs::File::open(path).expect("written before");
    match Command::new(tool).args(arguments).stdin(Stdio::from(file)).output() {
        Ok(output) => Some(output),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            println!("skipped: {tool} is not installed");
            None
        }
        Err(error) => panic!("{tool}: {error}"),
    }
}

fn file_of(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("ring-{}-{name}.pcapng", std::process::id()))
}

#[test]
fn head_and_segments_open_in_tcpdump_capinfos_and_tshark() {
    for (segment_bytes, lanes) in [(64 * KIB, 1), (128 * KIB, 3)] {
        let path = file_of(&format!("{segment_bytes}-{lanes}"));
        let heads = write_file(&example(segment_bytes, lanes), &path);
        assert_eq!(heads.len(), 1500 * lanes as usize);
        check_tcpdump(&path, &heads);
        check_capinfos(&path, &heads);
        check_tshark(&path, &heads);
        std::fs::remove_file(&path).expect("our own file");
    }
}

fn check_tcpdump(path: &Path, heads: &[PacketHead]) {
    let Some(output) = run("tcpdump", &["-nn", "-r", "-", "--count"], path) else { return };
    let complaint = String::from_utf8_lossy(&output.stderr).to_string();
    assert!(
        output.status.success() && complaint.lines().all(|line| line.starts_with("reading from file")),
        "{complaint}"
    );
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), format!("{} packets", heads.len()));
}

fn check_capinfos(path: &Path, heads: &[PacketHead]) {
    let name = path.to_str().expect("a plain path");
    let Some(output) = run("capinfos", &["-M", "-c", "-d", "-T", "-r", name], path) else { return };
    assert!(
        output.status.success() && output.stderr.is_empty(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let bytes: u64 = heads.iter().map(|head| head.original_len as u64).sum();
    let row = String::from_utf8_lossy(&output.stdout).trim().to_string();
    assert_eq!(row, format!("{name}\t{}\t{bytes}", heads.len()));
}

fn check_tshark(path: &Path, heads: &[PacketHead]) {
    let name = path.to_str().expect("a plain path");
    let fields = [
        "-T",
        "fields",
        "-e",
        "frame.time_epoch",
        "-e",
        "frame.cap_len",
        "-e",
        "frame.len",
        "-e",
        "frame.interface_id",
    ];
    let arguments = [&["-n", "-r", name], &fields[..]].concat();
    let Some(output) = run("tshark", &arguments, path) else { return };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let rows = String::from_utf8_lossy(&output.stdout).to_string();
    let row = |head: &PacketHead| {
        let (s, ns) = (head.time_ns / 1_000_000_000, head.time_ns % 1_000_000_000);
        format!("{s}.{ns:09}\t{}\t{}\t{}", head.captured_len, head.original_len, head.interface)
    };
    let expected: Vec<String> = heads.iter().map(row).collect();
    assert_eq!(rows.lines().collect::<Vec<_>>(), expected);
}
