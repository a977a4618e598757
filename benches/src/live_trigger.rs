//! `wire_to_trigger_ms`: from the moment a packet is handed to the kernel to the trigger's verdict on it, on
//! a veth pair.
//!
//! ```text
//!  sender (namespace a)                                wirescope run (namespace b)
//!  clock, send ──► va ═ vb ──► TPACKET_V3 block ──► worker: filter, verdict ──► event log: `hit`, `logged` = clock
//! ```
//! 1000 packets/s at random gaps, every 11th a trigger packet: some 91 hits a second, so that all are listed.
//! The first one fires, each further one extends its dump; both take the same way up to the verdict. A hit is
//! matched with the trigger packet that was sent last before its capture time; every one must be matched
//! once.

use crate::figures::{ms, percentile};
use crate::live_frames::{Shot, send, start_on};
use crate::record::{Bar, Limit, Record, Row};
use crate::wirescope::{Finished, time_of};
use crate::workspace::Workspace;
use anyhow::{Context, Result, ensure};
use scope_testkit::lab::Lab;
use scope_testkit::traffic::Random;
use std::time::Duration;

const NAME: &str = "wire_to_trigger_ms";
/// One in this many packets is a trigger packet.
const TRIGGER_EVERY: usize = 11;
/// Mean gap between packets, microseconds.
const GAP_US: u64 = 1000;
/// The end of a run may take so long.
const END_LIMIT: Duration = Duration::from_secs(30);

/// The row, round by round.
pub struct WireToTrigger {
    /// Latencies of all rounds, ms.
    all: Vec<f64>,
    p50: Row,
    p99: Row,
    max: Row,
    faults: Vec<String>,
}

impl WireToTrigger {
    /// No round is run yet; `skipped` says why none will be.
    pub fn new(skipped: Option<&String>) -> WireToTrigger {
        let row = |what: &str| Row {
            bar: NAME,
            what: what.into(),
            unit: "ms",
            rounds: Vec::new(),
            faults: Vec::new(),
        };
        let faults = skipped.into_iter().cloned().collect();
        WireToTrigger {
            all: Vec::new(),
            p50: row("p50 of each round"),
            p99: row("p99 of each round"),
            max: row("longest"),
            faults,
        }
    }

    /// Sends `hits` trigger packets among others and looks when each was seen.
    pub fn round(&mut self, number: usize, workspace: &Workspace, lab: &Lab, hits: usize) {
        match latencies(workspace, lab, hits) {
            Ok(latencies) => {
                self.p50.rounds.extend(percentile(&latencies, 50.0));
                self.p99.rounds.extend(percentile(&latencies, 99.0));
                self.max.rounds.extend(percentile(&latencies, 100.0));
                self.all.extend(latencies);
            }
            Err(fault) => self.faults.push(format!("round {}: {fault:#}", number + 1)),
        }
    }

    /// Adds the rows and the bar: the 99th percentile over the hits of all rounds, about `expected`.
    pub fn finish(mut self, record: &mut Record, expected: usize) {
        if self.faults.is_empty() && self.all.len() * 100 < expected * 99 {
            self.faults.push(format!("{} hits seen of {expected}", self.all.len()));
        }
        self.p99.faults = self.faults.clone();
        record.rows.extend([self.p50, self.p99, self.max]);
        let value = percentile(&self.all, 99.0);
        record.bars.push(Bar { name: NAME, value, limit: Limit::AtMost(20.0), faults: self.faults });
    }
}

/// One round: latencies, ms.
fn latencies(workspace: &Workspace, lab: &Lab, hits: usize) -> Result<Vec<f64>> {
    let shots = shots(hits);
    let run = start_on(lab, workspace, &["--ring", "64MiB", "--before", "1s", "--after", "30s"])?;
    let sent_ns = send(lab, &shots)?;
    run.interrupt()?;
    let finished = run.finish(END_LIMIT)?;
    check(&finished, &shots)?;
    let trigger_sent_ns: Vec<i64> =
        sent_ns.iter().zip(&shots).filter(|(_, shot)| shot.is_trigger).map(|(&sent_ns, _)| sent_ns).collect();
    let seen: Vec<(i64, i64)> = finished
        .events("hit")
        .map(|hit| Ok((time_of(hit, "time")?, time_of(hit, "logged")?)))
        .collect::<Result<_>>()?;
    matched(&trigger_sent_ns, &seen)
}

/// `hits` trigger packets, each behind ten others, at random gaps.
fn shots(hits: usize) -> Vec<Shot> {
    let mut random = Random::new(2);
    let mut at = Duration::ZERO;
    (1..=hits * TRIGGER_EVERY)
        .map(|number| {
            at += Duration::from_micros(GAP_US / 2 + random.below(GAP_US + 1));
            Shot { at, is_trigger: number % TRIGGER_EVERY == 0 }
        })
        .collect()
}

/// Nothing is lost, every trigger packet is a hit, and the dump holds what went between its hosts: all of
/// them.
fn check(finished: &Finished, shots: &[Shot]) -> Result<()> {
    let triggers = shots.iter().filter(|shot| shot.is_trigger).count() as u64;
    finished.check_packets(shots.len() as u64)?;
    let (fired, extended) = (finished.hits("fired"), finished.hits("extended"));
    ensure!(
        fired == 1 && fired + extended == triggers,
        "{fired} fired and {extended} extended of {triggers} trigger packets"
    );
    ensure!(
        finished.hits_total() == triggers,
        "{} hits of {triggers} trigger packets",
        finished.hits_total()
    );
    let [dump] = finished.dumps() else { anyhow::bail!("{} dumps instead of one", finished.dumps().len()) };
    ensure!(dump["lost_max"] == 0 && dump["packets"] == triggers, "the dump isn't what was sent: {dump}");
    Ok(())
}

/// For each hit, (capture time, time of the verdict), how long it took from its packet's sending, ms. All but
/// the first trigger packet, which fired, must have been hits, or not be listed.
fn matched(sent_ns: &[i64], seen: &[(i64, i64)]) -> Result<Vec<f64>> {
    let mut used = vec![false; sent_ns.len()];
    seen.iter()
        .map(|&(captured_ns, verdict_ns)| {
            let before = sent_ns.partition_point(|&sent_ns| sent_ns <= captured_ns);
            let packet = before.checked_sub(1).context("a hit was captured before anything was sent")?;
            ensure!(
                packet > 0 && !std::mem::replace(&mut used[packet], true),
                "trigger packet {packet} was a hit twice"
            );
            ensure!(verdict_ns >= captured_ns, "a verdict came before its packet");
            Ok(ms(verdict_ns - sent_ns[packet]))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hit_belongs_to_the_trigger_packet_sent_last_before_it() {
        let sent = [0, 10_000_000, 20_000_000, 30_000_000];
        let seen = [(10_000_100, 12_000_000), (30_000_001, 30_500_000)];
        assert_eq!(matched(&sent, &seen).unwrap(), [2.0, 0.5]);
    }

    #[test]
    fn a_hit_that_belongs_to_no_packet_or_to_a_taken_one_is_a_fault() {
        let check = |seen: &[(i64, i64)], words: &str| {
            let fault = matched(&[100, 200, 300], seen).unwrap_err().to_string();
            assert!(fault.contains(words), "{fault}");
        };
        check(&[(50, 60)], "before anything was sent");
        check(&[(150, 160)], "packet 0 was a hit twice"); // it fired
        check(&[(210, 220), (220, 230)], "packet 1 was a hit twice");
        check(&[(210, 205)], "verdict came before");
    }

    #[test]
    fn every_eleventh_packet_is_a_trigger_packet_at_a_thousand_a_second() {
        let shots = shots(100);
        assert_eq!(shots.iter().filter(|shot| shot.is_trigger).count(), 100);
        let mean_us = shots.last().unwrap().at.as_micros() / shots.len() as u128;
        assert!((980..=1020).contains(&mean_us), "{mean_us}");
    }
}
