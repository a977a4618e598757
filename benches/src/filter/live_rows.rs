//! A thousand open dumps on live traffic against one: what the process takes of a processor for each packet
//! that comes in.
//!
//! Each dump is of a connection among ten thousand, opened by the same trigger at the begin and open until
//! the end, so that a thousand of them take a tenth of the packets. Measured while all are open; what
//! opening, naming and syncing their files takes is not in it.

use crate::Scale;
use crate::table::Table;
use crate::wirescope::Run;
use crate::workspace::Workspace;
use anyhow::{Result, ensure};
use std::time::{Duration, Instant};

/// Packets in a second, and connections that they are of.
const RATE: u64 = 500_000;
const FLOWS: u64 = 10_000;
/// Dumps in each row.
const DUMPS: [usize; 2] = [1, 1000];
/// It is measured for so many times the scale's span.
const SPANS: u32 = 3;
/// All dumps must be open after this, and the run must end within this after its stop.
const OPEN_LIMIT: Duration = Duration::from_secs(30);
const END_LIMIT: Duration = Duration::from_secs(60);
/// From there until it is measured: the dumps have read what lies before their hits.
const SETTLE: Duration = Duration::from_secs(1);

/// Each row once.
pub fn round(workspace: &Workspace, scale: Scale, table: &mut Table) {
    let mut order = DUMPS;
    order.rotate_left(table.round() % DUMPS.len());
    for dumps in order {
        let outcome = run(workspace, scale.span * SPANS, dumps).map_err(|error| format!("{error:#}"));
        table.put("dumps_1000_live", &name(dumps), "ns/packet", outcome);
    }
}

/// What the row with so many dumps is of.
pub fn name(dumps: usize) -> String {
    format!("{dumps} open dumps, processor time")
}

fn run(workspace: &Workspace, span: Duration, dumps: usize) -> Result<f64> {
    let source = format!("synth:rate={RATE},size=64,flows={FLOWS},seed=1,prepare=off");
    let dumps_max = dumps.to_string();
    let mut arguments = vec!["--source", &source, "--ring", "256MiB", "--dumps-max", &dumps_max];
    // Few packets of a connection hit: the cost of hits is in both rows, and small.
    arguments.extend([
        "--trigger",
        "ip[4:2] & 0x3ff = 7",
        "--dump",
        "$flow",
        "--before",
        "1s",
        "--after",
        "1h",
    ]);
    arguments.extend(["--holdoff", "1h", "--holdoff-key", "$flow"]);
    let mut run = Run::start(workspace, None, &arguments)?;
    run.wait_started()?;
    let begun = Instant::now();
    while run.threads()? <= dumps {
        ensure!(begun.elapsed() < OPEN_LIMIT, "not all of {dumps} dumps are open after {OPEN_LIMIT:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
    std::thread::sleep(SETTLE);
    let (before, begun) = (run.processor_time()?, Instant::now());
    std::thread::sleep(span);
    let (taken, elapsed) = (run.processor_time()? - before, begun.elapsed());
    run.interrupt()?;
    let finished = run.finish_worn(END_LIMIT)?; // further connections found no place: exit code 1
    let received = finished.summary["received"]["packets"].as_u64().unwrap_or(0);
    finished.check_packets(received)?;
    ensure!(
        received as f64 >= RATE as f64 * span.as_secs_f64(),
        "{received} packets are fewer than were to come"
    );
    ensure!(finished.dumps().len() == dumps, "{} dumps instead of {dumps}", finished.dumps().len());
    ensure!(finished.dumps().iter().all(|dump| dump["lost_max"] == 0), "a dump isn't complete");
    ensure!(finished.dumps().iter().all(|dump| dump["packets"].as_u64() > Some(0)), "a dump is empty");
    Ok(taken.as_nanos() as f64 / (RATE as f64 * elapsed.as_secs_f64()))
}
