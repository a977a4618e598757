//! `dump_in_place_ms`: from the end of a dump's window to its finished file under its name, live on a veth
//! pair.
//!
//! 5000 packets/s; a trigger packet every 300 ms fires a dump of everything, 1 s before to 100 ms after it.
//! The window ends at `to`; the event log's `dump` line is written once the file has its name, so its
//! `logged` is late rather than early. What the dumps hold is checked against each other: they overlap, and
//! every packet that one of them has inside another's window must be there, too, with no number missing
//! between first and last.

use crate::figures::{ms, percentile};
use crate::live_frames::{Shot, is_trigger, number_of, send, start_on};
use crate::record::{Bar, Limit, Record, Row};
use crate::wirescope::{Finished, time_of};
use crate::workspace::Workspace;
use anyhow::{Context, Result, anyhow, ensure};
use scope_testkit::lab::Lab;
use scope_testkit::oracle;
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::Duration;

const NAME: &str = "dump_in_place_ms";
/// Packets that are sent in one millisecond.
const PACKETS_PER_MS: usize = 5;
/// The first trigger packet, and the time between two, ms.
const TRIGGER_FIRST_MS: usize = 500;
const TRIGGER_EVERY_MS: usize = 300;
/// Traffic goes on so long behind the last trigger packet: beyond its window.
const TAIL_MS: usize = 600;
/// The end of a run may take so long.
const END_LIMIT: Duration = Duration::from_secs(30);

/// The row, round by round.
pub struct DumpInPlace {
    /// Latencies of all rounds, ms.
    all: Vec<f64>,
    p50: Row,
    p99: Row,
    faults: Vec<String>,
}

impl DumpInPlace {
    /// No round is run yet; `skipped` says why none will be.
    pub fn new(skipped: Option<&String>) -> DumpInPlace {
        let row = |what: &str| Row {
            bar: NAME,
            what: what.into(),
            unit: "ms",
            rounds: Vec::new(),
            faults: Vec::new(),
        };
        let faults = skipped.into_iter().cloned().collect();
        DumpInPlace { all: Vec::new(), p50: row("p50 of each round"), p99: row("p99 of each round"), faults }
    }

    /// Makes `dumps` dumps and looks when each was in place.
    pub fn round(&mut self, number: usize, workspace: &Workspace, lab: &Lab, dumps: usize) {
        match latencies(workspace, lab, dumps) {
            Ok(latencies) => {
                self.p50.rounds.extend(percentile(&latencies, 50.0));
                self.p99.rounds.extend(percentile(&latencies, 99.0));
                self.all.extend(latencies);
            }
            Err(fault) => self.faults.push(format!("round {}: {fault:#}", number + 1)),
        }
    }

    /// Adds the rows and the bar: the 99th percentile over the dumps of all rounds, which must be `expected`.
    pub fn finish(mut self, record: &mut Record, expected: usize) {
        if self.faults.is_empty() && self.all.len() != expected {
            self.faults.push(format!("{} dumps seen of {expected}", self.all.len()));
        }
        self.p99.faults = self.faults.clone();
        record.rows.extend([self.p50, self.p99]);
        let value = percentile(&self.all, 99.0);
        record.bars.push(Bar { name: NAME, value, limit: Limit::AtMost(500.0), faults: self.faults });
    }
}

/// One round: latencies, ms.
fn latencies(workspace: &Workspace, lab: &Lab, dumps: usize) -> Result<Vec<f64>> {
    let shots = shots(dumps);
    let arguments =
        ["--ring", "128MiB", "--dump", "", "--before", "1s", "--after", "100ms", "--holdoff", "0.2"];
    let run = start_on(lab, workspace, &arguments)?;
    send(lab, &shots)?;
    run.interrupt()?;
    let finished = run.finish(END_LIMIT)?;
    finished.check_packets(shots.len() as u64)?;
    let fired = finished.hits("fired");
    ensure!(
        fired == dumps as u64 && finished.hits_total() == fired && finished.dumps().len() == dumps,
        "{fired} fired, {} hits, {} dumps of {dumps} trigger packets",
        finished.hits_total(),
        finished.dumps().len()
    );
    check_dumps(finished.dumps())?;
    finished.dumps().iter().map(|dump| in_place_ms(dump, &finished)).collect()
}

/// Five packets each millisecond, at its begin; `dumps` of them are trigger packets.
fn shots(dumps: usize) -> Vec<Shot> {
    let last_ms = TRIGGER_FIRST_MS + TRIGGER_EVERY_MS * (dumps - 1);
    let fires = |at_ms: usize| {
        (TRIGGER_FIRST_MS..=last_ms).contains(&at_ms)
            && (at_ms - TRIGGER_FIRST_MS).is_multiple_of(TRIGGER_EVERY_MS)
    };
    let shot = |number: usize| {
        let at_ms = number / PACKETS_PER_MS;
        Shot {
            at: Duration::from_millis(at_ms as u64),
            is_trigger: number.is_multiple_of(PACKETS_PER_MS) && fires(at_ms),
        }
    };
    (0..(last_ms + TAIL_MS) * PACKETS_PER_MS).map(shot).collect()
}

/// From the end of the window of `dump` to the line in the log that says it is in place, ms.
fn in_place_ms(dump: &Value, finished: &Finished) -> Result<f64> {
    let mut lines = finished.events("dump").filter(|line| line["id"] == dump["id"]);
    let line = lines.next().with_context(|| format!("dump {} is not in the log", dump["id"]))?;
    Ok(ms(time_of(line, "logged")? - time_of(dump, "to")?))
}

/// The packets of one dump by number: their times, ns.
struct Held {
    from_ns: i64,
    to_ns: i64,
    packets: BTreeMap<u64, i64>,
}

fn check_dumps(dumps: &[Value]) -> Result<()> {
    let held: Vec<Held> = dumps.iter().map(read).collect::<Result<_>>()?;
    let all: BTreeMap<u64, i64> =
        held.iter().flat_map(|held| held.packets.iter().map(|(&n, &at)| (n, at))).collect();
    for (held, dump) in held.iter().zip(dumps) {
        let inside = |&(_, &time_ns): &(&u64, &i64)| (held.from_ns..=held.to_ns).contains(&time_ns);
        let expected = all.iter().filter(inside);
        ensure!(
            expected.eq(held.packets.iter()),
            "dump {} differs from what others hold of its window",
            dump["id"]
        );
        let numbers = held.packets.keys().next().zip(held.packets.keys().next_back());
        let span = numbers.map_or(0, |(first, last)| last - first + 1);
        ensure!(
            span == held.packets.len() as u64,
            "dump {} lacks packets between its first and last",
            dump["id"]
        );
    }
    Ok(())
}

/// Reads one dump and checks it against its entry in the summary.
fn read(dump: &Value) -> Result<Held> {
    let path = dump["path"].as_str().with_context(|| format!("no 'path' in {dump}"))?;
    let packets =
        oracle::read(path).map_err(|fault| anyhow!("dump {}: {fault}", dump["id"]))?.capture.packets;
    ensure!(dump["lost_max"] == 0, "dump {} is not complete: {dump}", dump["id"]);
    ensure!(
        dump["packets"] == packets.len(),
        "dump {} holds {} packets, not {}",
        dump["id"],
        packets.len(),
        dump["packets"]
    );
    ensure!(packets.is_sorted_by_key(|packet| packet.time_ns), "dump {} is out of order", dump["id"]);
    let hit_ns = time_of(dump, "time")?;
    let has_hit = packets.iter().any(|packet| packet.time_ns == hit_ns && is_trigger(&packet.data));
    ensure!(has_hit, "dump {} lacks the packet that fired", dump["id"]);
    let numbered = packets.iter().map(|packet| Some((number_of(&packet.data)?, packet.time_ns)));
    let packets: BTreeMap<u64, i64> = numbered
        .collect::<Option<_>>()
        .with_context(|| format!("dump {} holds a packet that wasn't sent", dump["id"]))?;
    Ok(Held { from_ns: time_of(dump, "from")?, to_ns: time_of(dump, "to")?, packets })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live_frames::frame;
    use scope_testkit::traffic::{Capture, Precision, Random, Record, pcapng};
    use serde_json::json;
    use std::path::Path;

    fn time(ns: i64) -> String {
        format!("1970-01-01T00:00:00.{ns:09}Z")
    }

    /// Packet n is sent at n ms, the tenth is a trigger packet; writes those of `numbers` as the dump of
    /// `from..=to` ms.
    fn dump(folder: &Path, id: u64, (from, to): (i64, i64), numbers: &[u64]) -> Value {
        let mut capture = Capture::ethernet("vb");
        let packet = |&n: &u64| Record::new(n as i64 * 1_000_000, frame(n, n == 10, &mut Random::new(n)));
        capture.packets.extend(numbers.iter().map(packet));
        let path = folder.join(format!("{id}.pcapng"));
        std::fs::write(&path, pcapng(&capture, Precision::Nano, false)).unwrap();
        json!({"id": id, "path": path, "complete": true, "lost_max": 0, "packets": numbers.len(), "time": time(10_000_000),
            "from": time(from * 1_000_000), "to": time(to * 1_000_000)})
    }

    #[test]
    fn what_a_dump_lacks_is_found_in_those_that_overlap_it() {
        let folder = tempfile::tempdir().unwrap();
        let range = |from: u64, to: u64| (from..=to).collect::<Vec<u64>>();
        let check = |first: &[u64], second: &[u64], words: &str| {
            let dumps = [dump(folder.path(), 1, (5, 15), first), dump(folder.path(), 2, (8, 20), second)];
            let fault = check_dumps(&dumps).err().map(|fault| fault.to_string()).unwrap_or_default();
            assert!(
                fault.contains(words) && fault.is_empty() == words.is_empty(),
                "'{fault}' is not '{words}'"
            );
        };
        let without =
            |numbers: Vec<u64>, lacks: u64| numbers.into_iter().filter(|&n| n != lacks).collect::<Vec<u64>>();
        check(&range(5, 15), &range(8, 20), "");
        check(&range(5, 14), &range(8, 20), "dump 1 differs");
        check(&range(5, 15), &without(range(8, 20), 12), "dump 2 differs");
        check(&without(range(5, 15), 6), &range(8, 20), "dump 1 lacks packets between");
        check(&range(5, 15), &without(range(8, 20), 10), "dump 2 lacks the packet that fired");
        check(&range(4, 15), &range(8, 20), "dump 1 differs");
    }

    #[test]
    fn trigger_packets_are_as_many_as_dumps_and_the_traffic_outlasts_the_last_window() {
        let shots = shots(26);
        let triggers: Vec<u128> =
            shots.iter().filter(|shot| shot.is_trigger).map(|shot| shot.at.as_millis()).collect();
        assert_eq!(triggers.len(), 26);
        assert!(triggers.windows(2).all(|pair| pair[1] - pair[0] == 300));
        assert!(shots.last().unwrap().at.as_millis() >= triggers[25] + 500);
    }
}
