//! What memory takes: copying, non-temporal filling on one and two threads, and what a ring makes resident.

use super::Stand;
use crate::table::Table;
use anyhow::{Context, Result};
use scope_measure::{copy, fill_rate};
use std::time::Instant;

/// Measures the rows once.
pub fn round(stand: &mut Stand, table: &mut Table) {
    table.put("nt_fill", "1 thread", "GB/s", fill_rate(&mut stand.arena, 1));
    table.put("nt_fill", "2 threads", "GB/s", fill_rate(&mut stand.arena, 2));
    let mut chunks = stand.arena.chunks();
    for chunk in chunks.iter_mut().rev().step_by(2) {
        chunk[..64].fill(1); // so that the halves differ before
    }
    let begun = Instant::now();
    let copied = copy(&mut chunks);
    let rate = copied as f64 / begun.elapsed().as_nanos() as f64;
    let (from, to) = chunks.split_at(chunks.len() / 2);
    let equal = from.iter().zip(to).all(|(from, to)| from == to);
    table.put("copy", "1 thread", "GB/s", if equal { Ok(rate) } else { Err("the copy differs".to_string()) });
}

/// Bytes of memory that this process holds, huge pages included.
///
/// # Errors
/// Where the kernel doesn't say.
pub fn resident_bytes() -> Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status").context("/proc/self/status")?;
    let kib = |name: &str| {
        let line = status.lines().find(|line| line.starts_with(name))?;
        line.split_whitespace().nth(1)?.parse::<u64>().ok()
    };
    let resident = kib("VmRSS:").context("VmRSS")?;
    Ok((resident + kib("HugetlbPages:").unwrap_or(0)) << 10)
}
