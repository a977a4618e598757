//! All engines on packets of real captures: those of the folder that CAPTURES names.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use scope_packet::LinkType;

use super::engines::Engines;
use crate::libpcap::{self, ByteOrder};
use crate::specimens::{Random, filter, list};

/// Packets of one file, and filters that are evaluated on each.
const PACKETS_MAX: usize = 400;
const FILTERS: usize = 60;

/// Captured bytes and original length.
type Captured = (Vec<u8>, u32);

/// A capture's link type and packets, as tcpdump reads them; `None` where it doesn't.
fn read(file: &Path) -> Option<(LinkType, Vec<Captured>)> {
    let count = PACKETS_MAX.to_string();
    let input = std::fs::File::open(file).ok()?;
    let arguments = ["-n", "-r", "-", "-c", &count, "-w", "-"];
    let pcap =
        Command::new("tcpdump").args(arguments).stdin(input).stderr(Stdio::null()).output().ok()?.stdout;
    let word = |at: usize| Some(u32::from_ne_bytes(*pcap.get(at..)?.first_chunk()?));
    let link = LinkType(word(20)? as u16);
    let (mut packets, mut at) = (Vec::new(), 24);
    while let (Some(captured), Some(original)) = (word(at + 8), word(at + 12)) {
        let Some(data) = pcap.get(at + 16..at + 16 + captured as usize) else { break };
        packets.push((data.to_vec(), original));
        at += 16 + captured as usize;
    }
    Some((link, packets))
}

fn files_below(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() { files_below(&path, found) } else { found.push(path) }
    }
}

#[test]
fn the_engines_agree_with_libpcap_on_captured_packets() {
    let Ok(folder) = std::env::var("CAPTURES") else { return eprintln!("skipped: CAPTURES names no folder") };
    let mut files = Vec::new();
    files_below(Path::new(&folder), &mut files);
    let mut random = Random::new(31);
    let (mut pairs, mut matched) = (0u64, 0u64);
    for file in files {
        let Some((link, packets)) = read(&file) else { continue };
        for _ in 0..FILTERS {
            let text = if random.one_in(4) { list(&mut random) } else { filter(&mut random, 2) };
            let Ok(instructions) = libpcap::compile(&text, link, ByteOrder::Native) else { continue };
            let Some(engines) = Engines::new(&instructions) else { continue };
            for (data, original_len) in &packets {
                let message = || format!("{text} on a packet of {}", file.display());
                matched += u64::from(engines.answer(data, *original_len, &message));
                // The same, truncated.
                let cut = random.below(data.len() as u64 + 1) as usize;
                matched += u64::from(engines.answer(&data[..cut], *original_len, &message));
                pairs += 2;
            }
        }
    }
    eprintln!("{pairs} pairs, {matched} match");
}
