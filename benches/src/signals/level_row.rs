//! `level_to_fire_ms`: from the begin of the bin in which a level is crossed to the trigger's verdict on it, on a veth
//! pair.
//!
//! ```text
//!  sender ──► va ═ vb ──► worker: bins of 1 ms ──► closed behind the grace ──► thread "signals" ──► event log: `hit`
//! ```
//! 1000 packets/s at random gaps, every 11th of them part of the signal, so that it crosses its level some 90 times a
//! second and all hits are listed. The first one fires, the others extend its dump, which takes the same way up to
//! the verdict. The dump keeps the signal's packets: from their capture times follow the bins in which a hit is due.

use crate::Scale;
use crate::figures::{ms, percentile};
use crate::live_frames::{Shot, TRIGGER, is_trigger, send, start_with};
use crate::table::Table;
use crate::wirescope::{Finished, time_of};
use crate::workspace::Workspace;
use anyhow::{Context, Result, anyhow, ensure};
use scope_testkit::lab::Lab;
use scope_testkit::oracle;
use scope_testkit::traffic::Random;
use std::time::Duration;

/// The row.
pub const ROW: &str = "level_to_fire_ms";
/// What the bar is of.
pub const P99: &str = "p99 over the hits of all rounds";
/// One in this many packets is part of the signal.
const SIGNAL_EVERY: usize = 11;
/// Mean gap between packets, microseconds.
const GAP_US: u64 = 1000;
const BIN_NS: i64 = 1_000_000;
/// The end of a run may take so long.
const END_LIMIT: Duration = Duration::from_secs(30);

/// Those of all rounds.
#[derive(Default)]
pub struct Latencies {
    all: Vec<f64>,
    faults: Vec<String>,
}

impl Latencies {
    /// Sends as many packets of the signal as the scale has hits.
    pub fn round(
        &mut self,
        workspace: &Workspace,
        lab: Result<&Lab, &String>,
        scale: Scale,
        table: &mut Table,
    ) {
        let outcome = match lab {
            Ok(lab) => latencies(workspace, lab, scale.hits).map_err(|fault| format!("{fault:#}")),
            Err(skipped) => Err(skipped.clone()),
        };
        match outcome {
            Ok(latencies) => {
                for (of, percent) in [("p50", 50.0), ("p99", 99.0), ("longest", 100.0)] {
                    let value = percentile(&latencies, percent).ok_or_else(|| "no hits".to_string());
                    table.put(ROW, of, "ms", value);
                }
                self.all.extend(latencies);
            }
            Err(fault) => self.faults.push(format!("round {}: {fault}", table.round() + 1)),
        }
    }

    /// Puts the row of the bar.
    pub fn finish(self, table: &mut Table) {
        let value = percentile(&self.all, 99.0).filter(|_| self.faults.is_empty());
        table.put(ROW, P99, "ms", value.ok_or_else(|| self.faults.join("; ")));
    }
}

/// One round, ms.
fn latencies(workspace: &Workspace, lab: &Lab, hits: usize) -> Result<Vec<f64>> {
    let shots = shots(hits);
    let signal = format!("probe={TRIGGER}");
    let arguments = [
        "--ring",
        "64MiB",
        "--signal",
        &signal,
        "--trigger",
        "signal(probe) > 0",
        "--before",
        "1s",
        "--after",
        "30s",
    ];
    let run = start_with(lab, workspace, &arguments)?;
    send(lab, &shots)?;
    run.interrupt()?;
    let finished = run.finish(END_LIMIT)?;
    finished.check_packets(shots.len() as u64)?;
    let due = due(&captured(&finished, hits)?);
    let seen: Vec<(i64, i64)> = finished
        .events("hit")
        .map(|hit| Ok((time_of(hit, "time")?, time_of(hit, "logged")?)))
        .collect::<Result<_>>()?;
    let [dump] = finished.dumps() else { anyhow::bail!("{} dumps instead of one", finished.dumps().len()) };
    check(&due, time_of(dump, "time")?, &seen)?;
    let counted = (finished.hits("fired"), finished.hits("extended"));
    ensure!(counted == (1, due.len() as u64 - 1), "{counted:?} hits of {}", due.len());
    Ok(seen.iter().map(|(bin_ns, verdict_ns)| ms(verdict_ns - bin_ns)).collect())
}

/// As many packets of the signal as `hits`, each behind ten others, at random gaps.
fn shots(hits: usize) -> Vec<Shot> {
    let mut random = Random::new(4);
    let mut at = Duration::ZERO;
    (1..=hits * SIGNAL_EVERY)
        .map(|number| {
            at += Duration::from_micros(GAP_US / 2 + random.below(GAP_US + 1));
            Shot { at, is_trigger: number % SIGNAL_EVERY == 0 }
        })
        .collect()
}

/// Capture times of the signal's packets, by the dump, which keeps them and nothing else.
fn captured(finished: &Finished, packets: usize) -> Result<Vec<i64>> {
    let [dump] = finished.dumps() else { anyhow::bail!("{} dumps instead of one", finished.dumps().len()) };
    let path = dump["path"].as_str().context("the dump has no file")?;
    let found = oracle::read(path).map_err(|fault| anyhow!("{fault}"))?.capture.packets;
    ensure!(dump["lost_max"] == 0, "the dump isn't complete: {dump}");
    ensure!(
        found.len() == packets && found.iter().all(|packet| is_trigger(&packet.data)),
        "the dump holds {} packets, not the signal's {packets}",
        found.len()
    );
    Ok(found.iter().map(|packet| packet.time_ns).collect())
}

/// Begins of the bins that have a packet, and are behind one that has none, ns.
fn due(captured_ns: &[i64]) -> Vec<i64> {
    let mut bins: Vec<i64> = captured_ns.iter().map(|ns| ns.div_euclid(BIN_NS)).collect();
    bins.sort_unstable();
    bins.dedup();
    let begins = bins.iter().enumerate().filter(|(at, bin)| *at == 0 || bins[at - 1] != **bin - 1);
    begins.map(|(_, bin)| bin * BIN_NS).collect()
}

/// The first of the times due fired, and every other one is a hit, once.
fn check(due: &[i64], fired_ns: i64, seen: &[(i64, i64)]) -> Result<()> {
    let mut found: Vec<i64> = seen.iter().map(|(time_ns, _)| *time_ns).collect();
    found.push(fired_ns);
    found.sort_unstable();
    let lacks = due.iter().filter(|time| !found.contains(time)).count();
    ensure!(found == due, "{} hits of {} crossings, of which {lacks} have none", found.len(), due.len());
    ensure!(due.first() == Some(&fired_ns), "it wasn't the first one that fired");
    ensure!(seen.iter().all(|(time_ns, verdict_ns)| verdict_ns > time_ns), "a verdict came before its bin");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hit_is_due_in_each_bin_with_a_packet_behind_one_without() {
        let times = [1_500_000, 1_700_000, 2_100_000, 9_000_000, 11_999_999];
        assert_eq!(due(&times), [1_000_000, 9_000_000, 11_000_000]);
    }

    #[test]
    fn hits_are_those_that_are_due_each_once() {
        let due = [1_000_000, 9_000_000, 11_000_000];
        let seen = [(9_000_000, 19_000_000), (11_000_000, 20_000_000)];
        check(&due, 1_000_000, &seen).unwrap();
        assert!(check(&due, 1_000_000, &seen[..1]).unwrap_err().to_string().contains("2 hits of 3"));
        assert!(check(&due, 1_000_000, &[seen[0], seen[0], seen[1]]).is_err());
        assert!(check(&due, 9_000_000, &[(1_000_000, 2_000_000), seen[1]]).is_err());
        assert!(check(&due, 1_000_000, &[(9_000_000, 8_000_000), seen[1]]).is_err());
    }
}
