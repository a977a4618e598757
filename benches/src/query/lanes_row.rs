//! Memory: of all queries of the part, and of one over a store of very many lanes whose times overlap and step back.
//!
//! Each lane is an import of its own: a small capture of the same ten seconds as all others. In every third packets
//! stand up to three seconds behind their place.

use super::answer::sum_of;
use super::asking::{self, Asking};
use crate::table::Table;
use crate::workspace::Workspace;
use anyhow::{Context, Result, ensure};
use scope_testkit::traffic::{Conversations, Precision, Random, pcap};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering;

/// Rows, and what each is of.
pub const ROW: &str = "query_memory_mib";
pub const OF_ALL: &str = "largest of all other queries of the part";
pub const OF_LANES: &str = "over lanes whose times overlap and step back";
/// Packets of a lane, and how late some of them come, ns.
const PACKETS: usize = 1400;
const LATE_NS: i64 = 3_000_000_000;
const SPAN_NS: i64 = 10_000_000_000;
const KIB_PER_MIB: f64 = 1024.0;

/// The query over `lanes` lanes.
pub fn measure(workspace: &Workspace, lanes: usize, table: &mut Table) {
    eprintln!("{lanes} lanes");
    table.put(ROW, OF_LANES, "MiB", over_lanes(workspace, lanes).map_err(|error| format!("{error:#}")));
}

/// What all others took.
pub fn of_all(asking: &Asking, table: &mut Table) {
    let kib = asking.resident_kib.load(Ordering::Relaxed);
    let outcome = if kib > 0 { Ok(kib as f64 / KIB_PER_MIB) } else { Err("not seen".to_string()) };
    table.put(ROW, OF_ALL, "MiB", outcome);
}

fn over_lanes(workspace: &Workspace, lanes: usize) -> Result<f64> {
    let folder = workspace.out_folder()?;
    let (store, file) = (folder.path().join("store"), folder.path().join("lane.pcap"));
    let (mut packets, mut sum) = (0, 0u64);
    let mut random = Random::new(1000);
    for lane in 0..lanes {
        let mut capture = Conversations {
            seed: lane as u64,
            packets: PACKETS,
            gap_ns: SPAN_NS / PACKETS as i64,
            oddities: 0,
            snapped: 0,
            payload_max: 1400,
            ..Conversations::default()
        }
        .capture();
        if lane % 3 == 0 {
            capture.disorder(&mut random, LATE_NS);
        }
        fs::write(&file, pcap(&capture, Precision::Nano, false))?;
        import(workspace, &file, &store)?;
        packets += capture.packets.len() as u64;
        let sums = capture.packets.iter().map(|packet| sum_of(packet.time_ns, &packet.data));
        sum = sums.fold(sum, u64::wrapping_add);
    }
    let answered = asking::packets(&mut asking::query(workspace, &store, &["-w", "-"]))?;
    let answer = answered.answer;
    asking::expect(answer.count.packets, packets)?;
    ensure!(answer.sum == sum, "other packets came out than were imported");
    ensure!(answered.ended.resident_kib > 0, "its memory was not seen");
    Ok(answered.ended.resident_kib as f64 / KIB_PER_MIB)
}

fn import(workspace: &Workspace, file: &Path, store: &Path) -> Result<()> {
    let output = Command::new(&workspace.wirescope)
        .arg("import")
        .arg(file)
        .arg("--store")
        .arg(store)
        .args(["--ring", "64MiB", "--store-budget", "12GiB"])
        .stdin(Stdio::null())
        .output()
        .context("wirescope import")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "wirescope import ended with {}: {}", output.status, said.trim());
    Ok(())
}
