//! Questions that read much: a filter that a third of the packets match, one that no screen helps, and everything; with
//! how fast the disk is, and how fast the filter alone.

use super::asking::{Asking, expect};
use super::process;
use crate::cores::cores;
use crate::table::Table;
use anyhow::{Context, Result, ensure};
use scope_filter::{FILTER_INPUTS_MAX, Filter, FilterInput, VlanRule};
use scope_packet::pcapng::PacketBlock;
use scope_packet::{Headers, KeyEntry, LinkType};
use serde_json::Value;
use std::process::{Command, Stdio};
use std::time::Instant;

/// Rows, and what each is of.
pub const COMMON: &str = "query_common";
pub const UNSCREENED: &str = "query_unscreened";
pub const ALL: &str = "query_all";
pub const DISK: &str = "disk_direct";
pub const FILTER: &str = "query_unscreened_ns";
pub const OURS: &str = "wirescope query";
pub const TCPDUMP: &str = "tcpdump -r";
pub const CAT: &str = "cat";
pub const DD: &str = "dd";
pub const FIO: &str = "fio";
pub const PER_CORE: &str = "wirescope query, packets/s per core";
pub const ALONE: &str = "the filter alone, packets in memory";
pub const ROOM: &str = "what the cores have for a packet at the disk's speed";
/// The questions.
pub const COMMON_FILTER: &str = "tcp port 443";
pub const UNSCREENED_FILTER: &str = "tcp[13] & 4 != 0";

const BLOCK_BYTES: u64 = 2 << 20;
const DEPTH: u64 = 16;
/// Turns over the packets in memory: the best counts.
const TURNS: usize = 3;

/// Once, before the rounds: tcpdump selects what is known, and our whole answer has every packet, in order of time.
///
/// # Errors
/// What is different.
pub fn check(asking: &Asking) -> Result<()> {
    let known = &asking.store.known;
    expect(asking.tcpdump_count(COMMON_FILTER)?, known.common.packets).context("tcpdump")?;
    expect(asking.tcpdump_count(UNSCREENED_FILTER)?, known.resets.packets).context("tcpdump")?;
    let answered = asking.packets(&[])?;
    ensure!(answered.answer.count == known.all, "{:?} of {:?}", answered.answer.count, known.all);
    let common = asking.packets(&[COMMON_FILTER])?;
    ensure!(common.answer.count == known.common, "{:?} of {:?}", common.answer.count, known.common);
    Ok(())
}

/// One round.
pub fn round(asking: &Asking, table: &mut Table) {
    let first = table.round().is_multiple_of(2);
    let mut put = |row, of: &str, unit, outcome: Result<f64>| {
        table.put(row, of, unit, outcome.map_err(|error| format!("{error:#}")));
    };
    let disk =
        [(DD, asking.cool().and_then(|()| dd(asking))), (FIO, asking.cool().and_then(|()| fio(asking)))];
    let best = disk.iter().filter_map(|(_, speed)| speed.as_ref().ok().copied()).max_by(f64::total_cmp);
    for (of, speed) in disk {
        put(DISK, of, "MB/s", speed);
    }
    for ours in [first, !first] {
        match ours {
            true => put(COMMON, OURS, "MB/s", common(asking)),
            false => put(COMMON, TCPDUMP, "MB/s", common_by_tcpdump(asking)),
        }
    }
    let unscreened = unscreened(asking);
    let packets = asking.store.known.all.packets as f64;
    let cores = cores().len() as f64;
    let per_core = unscreened.as_ref().map(|speed| speed * 1e6 / asking.store.bytes as f64 * packets / cores);
    let per_core = per_core.map_err(|error| anyhow::anyhow!("{error:#}"));
    put(UNSCREENED, OURS, "MB/s", unscreened);
    put(UNSCREENED, PER_CORE, "packets/s", per_core);
    put(FILTER, ALONE, "ns", filter_ns(asking));
    let packet_bytes = asking.store.bytes as f64 / packets;
    put(
        FILTER,
        ROOM,
        "ns",
        best.map(|mb| cores * packet_bytes / mb * 1e3).context("the disk's speed isn't known"),
    );
    if let Err(error) = asking.warm() {
        return put(ALL, OURS, "MB/s", Err(error));
    }
    for ours in [first, !first] {
        match ours {
            true => put(ALL, OURS, "MB/s", all(asking)),
            false => put(ALL, CAT, "MB/s", cat(asking)),
        }
    }
}

/// Millions of bytes of the store that were passed over per second.
fn speed(asking: &Asking, seconds: f64) -> f64 {
    asking.store.bytes as f64 / seconds / 1e6
}

fn common(asking: &Asking) -> Result<f64> {
    asking.cool()?;
    let (ended, packets) = asking.to_nowhere(&[COMMON_FILTER])?;
    expect(packets, asking.store.known.common.packets)?;
    Ok(speed(asking, ended.seconds))
}

fn common_by_tcpdump(asking: &Asking) -> Result<f64> {
    asking.cool()?;
    let ended = asking.tcpdump_to_nowhere(COMMON_FILTER)?;
    Ok(speed(asking, ended.seconds))
}

fn unscreened(asking: &Asking) -> Result<f64> {
    asking.cool()?;
    let (ended, packets) = asking.count(&[UNSCREENED_FILTER])?;
    expect(packets, asking.store.known.resets.packets)?;
    ensure!(ended.read_disk > 0, "nothing was read from the disk: it isn't cold");
    Ok(speed(asking, ended.seconds))
}

fn all(asking: &Asking) -> Result<f64> {
    let (ended, bytes) = process::run_into_wc(&mut asking.command(&["-w", "-"]))?;
    asking.note(&ended);
    ended.expect(0)?;
    let least = asking.store.survey.block_bytes;
    ensure!(bytes >= least, "{bytes} bytes came out; the packets alone have {least}");
    Ok(speed(asking, ended.seconds))
}

fn cat(asking: &Asking) -> Result<f64> {
    let (ended, bytes) = process::run_into_wc(Command::new("cat").args(&asking.store.files))?;
    ended.expect(0)?;
    ensure!(bytes == asking.store.bytes, "{bytes} bytes of {}", asking.store.bytes);
    Ok(speed(asking, ended.seconds))
}

/// One file after the other.
fn dd(asking: &Asking) -> Result<f64> {
    let begun = Instant::now();
    for file in &asking.store.files {
        let from = format!("if={}", file.display());
        let output = Command::new("dd")
            .args([&from, "of=/dev/null", "bs=2M", "iflag=direct"])
            .stdin(Stdio::null())
            .output()
            .context("dd")?;
        ensure!(output.status.success(), "dd: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(speed(asking, begun.elapsed().as_secs_f64()))
}

/// By io_uring, or by libaio where that isn't had; bytes and time are fio's own.
fn fio(asking: &Asking) -> Result<f64> {
    fio_by(asking, "io_uring").or_else(|_| fio_by(asking, "libaio"))
}

fn fio_by(asking: &Asking, engine: &str) -> Result<f64> {
    let names: Vec<String> =
        asking.store.files.iter().map(|file| file.display().to_string().replace(':', "\\:")).collect();
    let output = Command::new("fio")
        .args(fio_arguments(engine))
        .arg(format!("--filename={}", names.join(":")))
        .stdin(Stdio::null())
        .output()
        .context("fio, which `make bench` installs")?;
    let said = String::from_utf8_lossy(&output.stdout);
    ensure!(output.status.success(), "fio: {}", String::from_utf8_lossy(&output.stderr).trim());
    let object = said.find('{').map(|at| &said[at..]).context("no report of fio")?;
    let report: Value = serde_json::from_str(object).context("the report of fio")?;
    let read = &report["jobs"][0]["read"];
    let bytes = read["io_bytes"].as_u64().context("no bytes in fio's report")?;
    let ms = read["runtime"].as_f64().filter(|&ms| ms > 0.0).context("no time in fio's report")?;
    // What is left of a file behind its last whole block isn't read.
    let least = asking.store.bytes - asking.store.files.len() as u64 * BLOCK_BYTES;
    ensure!(bytes >= least, "fio read {bytes} bytes of {}", asking.store.bytes);
    Ok(bytes as f64 / ms / 1e3)
}

/// Its command line, for the record as well.
pub fn fio_arguments(engine: &str) -> Vec<String> {
    let words = format!(
        "--name=store --ioengine={engine} --direct=1 --rw=read --readonly --bs={BLOCK_BYTES} --iodepth={DEPTH} \
         --file_service_type=sequential --thread --output-format=json"
    );
    words.split_whitespace().map(String::from).collect()
}

/// ns per packet of the filter on packets in memory, one after the other; nothing is known of them beforehand.
fn filter_ns(asking: &Asking) -> Result<f64> {
    let filter = Filter::compile(UNSCREENED_FILTER, VlanRule::Transparent, &[LinkType::ETHERNET])
        .context("a filter of the bench")?;
    filter.make_native()?;
    let predicate = filter.for_link(LinkType::ETHERNET);
    let mut frames: Vec<&[u8]> = Vec::new();
    for blocks in &asking.store.survey.sample {
        let mut rest = &blocks[..];
        while let Some(block) = PacketBlock::first(rest) {
            frames.push(block.data());
            rest = &rest[block.bytes().len()..];
        }
    }
    ensure!(!frames.is_empty(), "no packets in memory");
    let expected = frames.iter().filter(|frame| frame[23] == 6 && frame[47] & 4 != 0).count() as u64;
    let mut best = f64::MAX;
    let mut batch = [FilterInput::default(); FILTER_INPUTS_MAX];
    for _ in 0..TURNS {
        let (begun, mut found) = (Instant::now(), 0);
        for frames in frames.chunks(FILTER_INPUTS_MAX) {
            for (input, data) in batch.iter_mut().zip(frames) {
                *input = FilterInput::new(&Headers::default(), KeyEntry::default(), data, data.len() as u32);
            }
            found += u64::from(predicate.matches_batch(&batch[..frames.len()], u64::MAX).count_ones());
        }
        best = best.min(begun.elapsed().as_nanos() as f64 / frames.len() as f64);
        expect(found, expected)?;
    }
    Ok(best)
}
