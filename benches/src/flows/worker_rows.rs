//! What statistics cost a worker: runs of `wirescope` on generated packets of 64 bytes in 1000 flows, with a database
//! and without.
//!
//! Both runs are the same but for `--db`. Counted is the processor time of the whole process: the thread that joins and
//! writes is part of it, as are start and end. The generator lends frames that it has prepared.

use super::database::Database;
use crate::Scale;
use crate::clocks::processor_time_of_children;
use crate::table::{Key, Table};
use crate::wirescope::Run;
use crate::workspace::Workspace;
use anyhow::{Context, Result, ensure};
use std::path::Path;
use std::time::Duration;

/// The bar.
pub const BAR: &str = "stats_worker_ns";
/// Its rows.
pub const WITH: Key<'static> = (BAR, "with --db");
/// See [`WITH`].
pub const WITHOUT: Key<'static> = (BAR, "without");
/// Packets of one run, per event of the scale.
const PACKETS_PER_EVENT: u64 = 1000;
const FLOWS: u64 = 1000;
const FRAME_BYTES: u64 = 64;
/// No run may take longer.
const LIMIT: Duration = Duration::from_secs(120);

/// One run of each; who begins changes from round to round.
pub fn round(workspace: &Workspace, scale: Scale, table: &mut Table) {
    let packets = scale.events * PACKETS_PER_EVENT;
    let mut order = [WITH, WITHOUT];
    if !table.round().is_multiple_of(2) {
        order.reverse();
    }
    for (bar, of) in order {
        let outcome = run(workspace, packets, of == WITH.1).map_err(|error| format!("{error:#}"));
        table.put(bar, of, "ns", outcome);
    }
}

/// Processor time per packet, of all threads, ns.
fn run(workspace: &Workspace, packets: u64, has_db: bool) -> Result<f64> {
    let folder = workspace.out_folder()?;
    let db = folder.path().join("x.sqlite");
    let source = format!("synth:pace=max,rate=1M,size={FRAME_BYTES},flows={FLOWS},seed=1,packets={packets}");
    let mut arguments = vec!["--source", &source, "--ring", "256MiB"];
    if has_db {
        arguments.extend(["--db", db.to_str().context("the folder's path is no UTF-8")?]);
    }
    let before = processor_time_of_children();
    let finished = Run::start(workspace, None, &arguments)?.finish(LIMIT)?;
    let used = processor_time_of_children() - before;
    finished.check_packets(packets)?;
    if has_db {
        check(&db, packets)?;
    }
    Ok(used.as_secs_f64() * 1e9 / packets as f64)
}

/// That all packets were counted, and each flow.
fn check(db: &Path, packets: u64) -> Result<()> {
    let database = Database::open(db)?;
    database.expect_packets(packets)?;
    let bytes = database.number("SELECT sum(bytes) FROM intervals")?;
    ensure!(bytes == (packets * FRAME_BYTES) as i64, "{bytes} bytes in intervals");
    let flows = database.number("SELECT sum(new_flows) FROM intervals")?;
    ensure!(flows == FLOWS as i64, "{flows} flows of {FLOWS}");
    Ok(())
}
