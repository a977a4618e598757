//! The part `truth`: whether files can be read by other programs, whether dumps say the truth of themselves,
//! and what a hostile hit costs.
//!
//! ```text
//!  tools_read_all     every kind of file ─► capinfos, editcap, mergecap, reordercap, tshark, tcpdump ─► the same packets
//!  stated_loss_true   10,000 seeds ─► simulated run ─┐
//!                     100 seeds ─► run of the program ┴► what each dump says, held against what was sent
//!  hostile_hits_ns    hits that make no filter ─► time of one, 99th percentile
//! ```
//! A run that fails names its seed: `SEED=N` plays that one alone, of the simulator and of the program.

mod hostile_rows;
mod program;
mod simulated_rows;
mod tools_rows;

use crate::Scale;
use crate::main_part;
use crate::record::{Bar, Limit, Record};
use crate::table::Table;
use crate::workspace::Workspace;
use anyhow::Result;

/// The rows of the bar `stated_loss_true`.
const STATED: &str = "stated_loss_true";
const SIMULATED: &str = "simulated runs";
const PROGRAM: &str = "runs of the program";
/// Of what went wrong, so many runs are named.
const NAMED_MAX: usize = 10;

/// The only seed to be played, where one is named.
fn seed() -> Option<u64> {
    std::env::var("SEED").ok().and_then(|text| text.parse().ok())
}

/// Measures everything and adds it to `record`.
///
/// # Errors
/// The system's, before the first row. What goes wrong later is a fault of its row.
pub fn measure(workspace: &Workspace, scale: Scale, record: &mut Record) -> Result<()> {
    let mut table = Table::default();
    eprintln!("files of every kind, read by other programs");
    tools_rows::measure(workspace, &mut table);
    eprintln!("{} simulated runs", scale.simulated);
    simulated_rows::measure(scale.simulated, &mut table);
    eprintln!("{} runs of the program", scale.programs);
    match main_part::needs_root() {
        true => table.leave_out(STATED, PROGRAM, "", "skipped: needs root"),
        false => program::measure(workspace, scale.programs, &mut table),
    }
    eprintln!("hits that make no filter");
    hostile_rows::measure(&mut table);
    record.bars.extend(bars(&table));
    table.finish(record);
    Ok(())
}

fn bars(table: &Table) -> Vec<Bar> {
    let all_true = |name: &'static str, rows: &[&'static str]| {
        let keys: Vec<_> = rows.iter().map(|of| (name, *of)).collect();
        let values = keys.iter().map(|key| table.min(*key)).collect::<Option<Vec<f64>>>();
        let value = values.and_then(|values| values.into_iter().min_by(f64::total_cmp));
        Bar { name, value, limit: Limit::AtLeast(1.0), faults: table.faults(&keys) }
    };
    let hostile = [(hostile_rows::ROW, hostile_rows::WORST)];
    vec![
        all_true(tools_rows::ROW, &tools_rows::KINDS),
        all_true(STATED, &[SIMULATED, PROGRAM]),
        Bar {
            name: hostile_rows::ROW,
            value: table.max(hostile[0]),
            limit: Limit::AtMost(2000.0),
            faults: table.faults(&hostile),
        },
    ]
}

/// A row that is 1 where nothing was wrong; else the first faults.
fn outcome(mut faults: Vec<String>) -> Result<f64, String> {
    let more = faults.len().saturating_sub(NAMED_MAX);
    faults.truncate(NAMED_MAX);
    match faults.is_empty() {
        true => Ok(1.0),
        false if more == 0 => Err(faults.join("; ")),
        false => Err(format!("{}; and {more} more", faults.join("; "))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bar_has_its_name_and_none_holds_unmeasured() {
        let bars = bars(&Table::default());
        let names = ["tools_read_all", "stated_loss_true", "hostile_hits_ns"];
        assert_eq!(bars.iter().map(|bar| bar.name).collect::<Vec<_>>(), names);
        assert!(bars.iter().all(|bar| !bar.holds() && !bar.faults.is_empty()), "{bars:?}");
    }

    #[test]
    fn one_fault_breaks_a_bar_and_very_many_are_counted() {
        let mut table = Table::default();
        table.put(STATED, SIMULATED, "", outcome(Vec::new()));
        table.put(STATED, PROGRAM, "", outcome(Vec::new()));
        assert!(bars(&table)[1].holds());
        table.put(
            STATED,
            PROGRAM,
            "",
            outcome((0..NAMED_MAX + 5).map(|seed| format!("SEED={seed}")).collect()),
        );
        let bar = &bars(&table)[1];
        assert!(!bar.holds() && bar.faults[0].ends_with("and 5 more"), "{bar:?}");
    }
}
