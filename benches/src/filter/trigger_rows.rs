//! What an armed trigger costs a worker: runs of `wirescope` on generated traffic with 0 to 16 triggers that
//! never fire.

use crate::Scale;
use crate::file_rows::SIXTEEN;
use crate::table::Table;
use crate::wirescope::Run;
use crate::workspace::Workspace;
use anyhow::{Result, ensure};
use std::time::Duration;

/// Triggers of the rows; the first is what the others are held against.
pub const TRIGGERS: [usize; 4] = [0, 1, 4, 16];
/// Packets of one run, per event of the scale.
const PACKETS_PER_EVENT: u64 = 400;
/// No run may take longer.
const LIMIT: Duration = Duration::from_secs(120);

/// One run for each number of triggers; ns per packet of the whole worker.
pub fn round(workspace: &Workspace, scale: Scale, table: &mut Table) {
    let packets = scale.events * PACKETS_PER_EVENT;
    let mut order = TRIGGERS;
    order.rotate_left(table.round() % TRIGGERS.len());
    for triggers in order {
        let outcome = run(workspace, packets, triggers).map_err(|error| format!("{error:#}"));
        table.put("trigger_ns", &name(triggers), "ns", outcome);
    }
}

/// What the row with so many triggers is of.
pub fn name(triggers: usize) -> String {
    format!("{triggers} triggers")
}

fn run(workspace: &Workspace, packets: u64, triggers: usize) -> Result<f64> {
    let source = format!("synth:pace=max,size=64,seed=1,packets={packets}");
    let mut arguments = vec!["--source", &source, "--ring", "256MiB"];
    for filter in &SIXTEEN[..triggers] {
        arguments.extend(["--trigger", filter]);
    }
    let finished = Run::start(workspace, None, &arguments)?.finish(LIMIT)?;
    finished.check_packets(packets)?;
    ensure!(finished.hits_total() == 0, "{} hits of none", finished.hits_total());
    Ok(finished.seconds()? * 1e9 / packets as f64)
}
