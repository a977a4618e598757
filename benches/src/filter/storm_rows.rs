//! A storm of hits: every packet of a million a second is one, with and without a holdoff for each host.
//!
//! A row is 1 where all of it holds, else it has a fault: no packet is lost, every packet is counted as a
//! hit, no more dumps are open at once than are allowed, all of them are complete, the process grows by at
//! most a hundredth, and the log has at most one line for a thousand hits.

use crate::Scale;
use crate::table::Table;
use crate::wirescope::{Finished, Run, time_of};
use crate::workspace::Workspace;
use anyhow::{Context, Result, ensure};
use std::time::{Duration, Instant};

/// Hits in a second, and times the scale's span that they come.
const HITS_PER_SECOND: u64 = 1_000_000;
const SPANS: u32 = 5;
/// Dumps that may be open at once.
const DUMPS_MAX: usize = 8;
/// A line of the log for so many hits at most.
const HITS_PER_LINE: u64 = 1000;
/// Growth of the process that is allowed, from the first quarter of the run on.
const GROWTH_MAX: f64 = 0.01;
/// Between two looks at the process.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// The end may take so long.
const END_LIMIT: Duration = Duration::from_secs(60);

/// The rows, and what makes each: whether there is a key, and how long a trigger is held off.
pub const ROWS: [(&str, &[&str]); 2] = [
    ("no holdoff", &["--holdoff", "0s"]),
    ("a holdoff for each host", &["--holdoff", "1s", "--holdoff-key", "$srcIP"]),
];

/// Each row once.
pub fn round(workspace: &Workspace, scale: Scale, table: &mut Table) {
    for (name, holdoff) in ROWS {
        let outcome =
            storm(workspace, scale.span * SPANS, holdoff).map(|()| 1.0).map_err(|error| format!("{error:#}"));
        table.put("hit_storm", name, "holds", outcome);
    }
}

fn storm(workspace: &Workspace, span: Duration, holdoff: &[&str]) -> Result<()> {
    let packets = HITS_PER_SECOND * span.as_millis() as u64 / 1000;
    let source = format!("synth:rate=1M,size=64,flows=1000,seed=1,packets={packets}");
    let dumps_max = DUMPS_MAX.to_string();
    let mut arguments =
        vec!["--source", &source, "--ring", "1GiB", "--trigger", "ip or ip6", "--dump", "host $srcIP"];
    arguments.extend(["--before", "10ms", "--after", "10ms", "--dumps-max", &dumps_max]);
    arguments.extend(holdoff);
    let mut run = Run::start(workspace, None, &arguments)?;
    run.wait_started()?;
    let growth = growth(&run, span)?;
    let finished = run.finish_worn(END_LIMIT)?; // hits beyond the places are exit code 1
    finished.check_packets(packets)?;
    ensure!(finished.hits_total() == packets, "{} hits of {packets}", finished.hits_total());
    check_dumps(&finished)?;
    let lines = finished.events.len() as u64;
    ensure!(lines * HITS_PER_LINE <= packets, "the log has {lines} lines for {packets} hits");
    ensure!(growth <= GROWTH_MAX, "the process grew by {:.2} %", growth * 100.0);
    Ok(())
}

/// How much the process grows behind the first quarter of `span`, as a part of what it had then.
fn growth(run: &Run, span: Duration) -> Result<f64> {
    let begun = Instant::now();
    std::thread::sleep(span / 4);
    let first = run.resident_kib()?;
    let mut most = first;
    while begun.elapsed() + LOOK_EVERY * 2 < span {
        std::thread::sleep(LOOK_EVERY);
        most = most.max(run.resident_kib()?);
    }
    Ok((most - first) as f64 / first as f64)
}

/// There are dumps, all are complete, and no more than allowed were open when one of them began.
fn check_dumps(finished: &Finished) -> Result<()> {
    let dumps = finished.dumps();
    ensure!(!dumps.is_empty(), "no dump of {} hits", finished.hits_total());
    let incomplete = finished.dump_total("failed");
    ensure!(incomplete == 0, "{incomplete} of {} dumps aren't complete", finished.dump_total("dumps"));
    let mut windows = Vec::new();
    for dump in dumps {
        windows.push((time_of(dump, "time")?, time_of(dump, "to")?));
    }
    let open_at =
        |time_ns: i64| windows.iter().filter(|(begin, end)| (*begin..*end).contains(&time_ns)).count();
    let most = windows.iter().map(|(begin, _)| open_at(*begin)).max().context("a dump")?;
    ensure!(most <= DUMPS_MAX, "{most} dumps at once");
    Ok(())
}
