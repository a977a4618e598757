//! What storing costs beside capture: processor time at a fixed rate with and without a store, and what
//! workers append while a store takes what its disk can take.
//!
//! Both pairs are of generated packets, the same with and without a store, and one trigger that none of them
//! fires.

use super::place::Place;
use super::stored_run::{self, TRIGGER, Way, packets};
use super::turns::{by_turns, mean};
use crate::Scale;
use crate::clocks;
use crate::cores::cores;
use crate::table::Table;
use crate::wirescope::{Finished, Run, time_of};
use crate::workspace::Workspace;
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::time::Duration;

/// Rows, and what each is of.
pub const COST: &str = "store_cpu";
pub const COST_PER_GIB: &str = "store_cpu_s_per_gib";
pub const BESIDE: &str = "store_appended";
pub const DIFFERENCE: &str = "with less without a store";
pub const WITH: &str = "with a store";
pub const WITHOUT: &str = "without a store";
/// Packets at the fixed rate: 380 MB/s of 1518 bytes.
const RATE: u64 = 250_000;
const PACKET_BYTES: u64 = 1518;
/// A rate that no worker reaches: it appends as fast as it can, and waits for nobody.
const RATE_FLAT_OUT: u64 = 1_000_000_000;
/// Runs of each kind in a round.
const TURNS: usize = 2;
/// So many lines with counts the log must have of a run that appends.
const LINES_MIN: u64 = 4;

/// One round of both pairs; who begins changes from round to round.
pub fn round(place: &Place, workspace: &Workspace, scale: Scale, table: &mut Table) {
    let first = table.round().is_multiple_of(2);
    let [without, with] =
        by_turns(first, TURNS, |stores| busy_seconds(place, workspace, scale.store_cost_bytes, stores))
            .map(|seconds| seconds.map(|seconds| mean(seconds.into_iter())));
    if let (Ok(without), Ok(with)) = (&without, &with) {
        let gib = packets_of(scale.store_cost_bytes) as f64 * PACKET_BYTES as f64 / (1u64 << 30) as f64;
        table.put(COST_PER_GIB, DIFFERENCE, "s/GiB", Ok((with - without) / gib));
    }
    table.put(COST, WITH, "s", with);
    table.put(COST, WITHOUT, "s", without);
    let [without, with] = by_turns(first, TURNS, |stores| appended(place, workspace, stores));
    let of_all = |runs: &Result<Vec<Appended>, String>, figure: fn(&Appended) -> f64| {
        runs.as_ref().map(|runs| mean(runs.iter().map(figure))).map_err(String::clone)
    };
    let stored = of_all(&with, |run| run.stored_per_s / 1e6);
    table.put(BESIDE, "what the store took meanwhile", "MB/s", stored);
    table.put(BESIDE, WITH, "packets/s", of_all(&with, |run| run.packets_per_s));
    table.put(BESIDE, WITHOUT, "packets/s", of_all(&without, |run| run.packets_per_s));
}

fn packets_of(bytes: u64) -> u64 {
    bytes / PACKET_BYTES
}

/// A run with or without a store.
fn start(place: &Place, workspace: &Workspace, stores: bool, arguments: &[&str]) -> Result<Run> {
    let arguments = [arguments, &TRIGGER].concat();
    match stores {
        true => stored_run::start(workspace, &place.empty("store")?, Way::Uring, &arguments),
        false => {
            place.empty("store")?;
            Run::start(workspace, None, &arguments)
        }
    }
}

/// Time that the machine's processors were busy from the begin of capture to the end of the run.
fn busy_seconds(place: &Place, workspace: &Workspace, bytes: u64, stores: bool) -> Result<f64> {
    let sent = packets_of(bytes);
    let source = format!("synth:rate={RATE},size={PACKET_BYTES},packets={sent},seed=1");
    let mut run = start(place, workspace, stores, &["--source", &source, "--ring", "512MiB"])?;
    run.wait_started()?;
    let before = clocks::busy()?;
    let finished = run.finish(stored_run::END_LIMIT)?;
    let busy = clocks::busy()? - before;
    finished.check_packets(sent)?;
    if stores {
        stored_run::check_all_stored(&finished, sent, Way::Uring)?;
        stored_run::check_whole(workspace, &place.path("store"), sent)?;
        place.empty("store")?;
    }
    Ok(busy.as_secs_f64())
}

/// What a run appended, and what its store took.
struct Appended {
    packets_per_s: f64,
    stored_per_s: f64,
}

/// Lets workers on all cores but one append as fast as they can for some seconds.
fn appended(place: &Place, workspace: &Workspace, stores: bool) -> Result<Appended> {
    let workers = cores().len().saturating_sub(1).max(1);
    let source = format!("synth:rate={RATE_FLAT_OUT},size=imix,workers={workers},seed=1");
    let arguments = ["--source", &source, "--ring", "1GiB", "--status-every", "1s"];
    let mut run = start(place, workspace, stores, &arguments)?;
    run.wait_started()?;
    std::thread::sleep(Duration::from_secs(LINES_MIN + 2));
    run.interrupt()?;
    let finished = run.finish_worn(stored_run::END_LIMIT)?; // the store misses what its disk can't take
    let dropped = &finished.summary["dropped"];
    ensure!(
        finished.dropped() == 0,
        "capture dropped {} of {}: {dropped}",
        finished.dropped(),
        finished.received()
    );
    finished.check_packets(finished.received())?;
    if stores {
        check_shared_out(&finished)?;
        // A fast store takes more than its budget: the oldest go meanwhile.
        let volume = stored_run::volume(&finished)?;
        let there = packets(volume, "stored") - packets(volume, "deleted");
        stored_run::check_undamaged(workspace, &place.path("store"), there)?;
        place.empty("store")?;
    }
    let lines: Vec<&Value> = finished.events("status").collect();
    Ok(Appended {
        packets_per_s: per_second(&lines, |line| line["received"]["packets"].as_u64())?,
        stored_per_s: match stores {
            true => per_second(&lines, |line| line["stores"][0]["stored"]["bytes"].as_u64())?,
            false => 0.0,
        },
    })
}

/// Checks that everything that was appended was stored, or missed.
fn check_shared_out(finished: &Finished) -> Result<()> {
    let volume = stored_run::volume(finished)?;
    stored_run::check_way(volume, Way::Uring)?;
    let [stored, missed, behind] = ["stored", "missed", "behind"].map(|key| packets(volume, key));
    ensure!(
        stored > 0 && stored + missed + behind == finished.received() && behind == 0,
        "{stored} packets stored, {missed} missed and {behind} behind of {}",
        finished.received()
    );
    Ok(())
}

/// How much a count grew per second, from the first line of the log that has it to the last.
fn per_second(lines: &[&Value], count: impl Fn(&Value) -> Option<u64>) -> Result<f64> {
    ensure!(lines.len() as u64 >= LINES_MIN, "the log has {} lines with counts", lines.len());
    let of = |line: &Value| -> Result<(i64, u64)> {
        Ok((time_of(line, "logged")?, count(line).context("a line lacks its count")?))
    };
    let (first, last) = (of(lines[0])?, of(lines[lines.len() - 1])?);
    let seconds = (last.0 - first.0) as f64 / 1e9;
    ensure!(seconds > 0.0 && last.1 > first.1, "nothing was counted in {seconds} s");
    Ok((last.1 - first.1) as f64 / seconds)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_speed_is_that_between_the_first_and_the_last_line() {
        let line = |second: u64, packets: u64| {
            let logged = format!("1970-01-01T00:00:0{second}Z");
            json!({"logged": logged, "received": {"packets": packets}})
        };
        let lines = [line(1, 1000), line(2, 1300), line(3, 1900), line(5, 3000)];
        let received = |line: &Value| line["received"]["packets"].as_u64();
        let lines: Vec<&Value> = lines.iter().collect();
        assert_eq!(per_second(&lines, received).unwrap(), 500.0);
        assert!(per_second(&lines[..3], received).is_err());
        assert!(per_second(&lines, |line| line["gone"].as_u64()).is_err());
    }
}
