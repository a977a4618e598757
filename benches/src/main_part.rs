//! The part `main`: all rows, their rounds interleaved, so that a slow minute of the machine hits all of them
//! alike.

use crate::Scale;
use crate::file_rows::{races, traffic};
use crate::guide_runs;
use crate::live_dump::DumpInPlace;
use crate::live_trigger::WireToTrigger;
use crate::record::Record;
use crate::report_stall::ReportStall;
use crate::stages_row;
use crate::workspace::Workspace;
use anyhow::Result;
use scope_testkit::lab::Lab;

/// Measures everything and adds it to `record`.
///
/// # Errors
/// The system's, before the first round. What goes wrong later is a fault of its row.
pub fn measure(workspace: &Workspace, scale: Scale, record: &mut Record) -> Result<()> {
    let traffic = traffic(workspace, scale.file_bytes)?;
    let mut races = races();
    for race in &mut races {
        race.check(&traffic);
    }
    let lab = lab();
    let mut trigger = WireToTrigger::new(lab.as_ref().err());
    let mut dump = DumpInPlace::new(lab.as_ref().err());
    let mut reports = ReportStall::new();
    let rounds = scale.rounds.max(scale.rounds_each);
    for round in 0..rounds {
        eprintln!("round {} of {rounds}", round + 1);
        for race in races
            .iter_mut()
            .filter(|race| round < if race.counts_each() { scale.rounds_each } else { scale.rounds })
        {
            race.round(round, workspace, &traffic);
        }
        if round < scale.rounds {
            reports.round(round, scale.span);
        }
        if let (Ok(lab), true) = (&lab, round < scale.rounds) {
            trigger.round(round, workspace, lab, scale.hits);
            dump.round(round, workspace, lab, scale.dumps);
        }
    }
    for race in races {
        race.finish(record);
    }
    reports.finish(record);
    trigger.finish(record, scale.rounds * scale.hits);
    dump.finish(record, scale.rounds * scale.dumps);
    stages_row::measure(workspace, scale.rounds * 5, record);
    guide_runs::measure(workspace, record);
    Ok(())
}

/// The veth pair of the live rows, or why they are skipped.
///
/// # Errors
/// Why.
pub fn lab() -> std::result::Result<Lab, String> {
    if needs_root() {
        return Err("skipped: needs root".to_string());
    }
    Lab::new().map_err(|skipped| skipped.to_string())
}

/// Whether this isn't root.
pub fn needs_root() -> bool {
    // SAFETY: geteuid takes nothing and always succeeds.
    unsafe { libc::geteuid() != 0 }
}
