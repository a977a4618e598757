//! Packet accounting in a status line or summary: received packets are stored, omitted or dropped.

use anyhow::{Context, Result, ensure};
use serde_json::Value;

/// Checks the workers' side, `received = stored + filtered + duplicate + dropped in the worker`, and each
/// live source's, `offered = kernel_dropped + waiting + received`.
///
/// # Errors
/// The numbers that don't add up, or the one that is missing.
pub fn check(line: &Value) -> Result<()> {
    let packets = |what: &str| line[what]["packets"].as_u64();
    let received = packets("received").context("no 'received'")?;
    let stored = packets("stored").context("no 'stored'")?;
    let others = packets("filtered").unwrap_or(0) + packets("duplicate").unwrap_or(0);
    let dropped = dropped_in_workers(line).context("no 'dropped'")?;
    ensure!(
        received == stored + others + dropped,
        "{received} packets received, but {stored} stored, {others} omitted and {dropped} dropped"
    );
    for source in line["sources"].as_array().into_iter().flatten() {
        let count = |what: &str| source[what].as_u64();
        let (Some(offered), Some(waiting)) = (count("offered"), count("waiting")) else { continue };
        let gone = count("kernel_dropped").unwrap_or(0) + waiting + count("received").unwrap_or(0);
        ensure!(offered == gone, "a source was offered {offered} packets, but {gone} are known: {source}");
    }
    Ok(())
}

/// Packets that never reached a worker.
pub fn kernel_dropped(line: &Value) -> u64 {
    line["dropped"]["kernel"].as_u64().unwrap_or(0)
}

fn dropped_in_workers(line: &Value) -> Option<u64> {
    let reasons = line["dropped"].as_object()?;
    Some(reasons.values().filter_map(Value::as_u64).sum::<u64>() - kernel_dropped(line))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_line_that_adds_up_passes_and_one_packet_more_or_less_does_not() {
        let line = |received: u64, waiting: u64| {
            json!({
                "received": {"packets": received}, "stored": {"packets": 90}, "filtered": {"packets": 4},
                "dropped": {"kernel": 7, "ring_pinned": 6},
                "sources": [{"offered": 110, "kernel_dropped": 7, "waiting": waiting, "received": 100}],
            })
        };
        check(&line(100, 3)).unwrap();
        assert!(check(&line(101, 3)).is_err());
        assert!(check(&line(100, 2)).is_err());
        assert!(check(&json!({})).is_err());
    }
}
