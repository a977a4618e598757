//! The part `signals`: what signals, counts and scripts cost per packet, how late a level fires, and whether conditions
//! fire at the times that a naive reading gives.
//!
//! | rows | module |
//! |---|---|
//! | a worker with signals, against the same filters as triggers | `signal_rows` |
//! | a count by key against one thread with hashbrown | `count_rows` |
//! | from a level's bin to its hit, live | `level_row` |
//! | hits of generated traces, the same at any speed and with any workers | `traces_row` |
//! | ... the traces, and what they come to | `trace`, `expected` |
//! | ... levels, counts and sequences read by the letter | `naive`, `naive_patterns` |
//! | scripts in a process: a batch, a filter, the published example | `script_rows` |
//! | runs beside scripts that spin, and with hostile ones | `script_run_rows`, `hostile_scripts` |

mod bars;
mod count_rows;
mod expected;
mod hostile_scripts;
mod level_row;
mod naive;
mod naive_patterns;
mod script_rows;
mod script_run_rows;
mod signal_rows;
mod trace;
mod traces_row;

use crate::Scale;
use crate::main_part;
use crate::record::Record;
use crate::table::Table;
use crate::workspace::Workspace;
use anyhow::Result;

/// Measures everything and adds it to `record`.
///
/// # Errors
/// The system's, before the first round. What goes wrong later is a fault of its row.
pub fn measure(workspace: &Workspace, scale: Scale, record: &mut Record) -> Result<()> {
    let mut table = Table::default();
    let lab = main_part::lab();
    let mut level = level_row::Latencies::default();
    for round in 0..scale.rounds {
        eprintln!("round {} of {}", round + 1, scale.rounds);
        table.begin_round(round);
        signal_rows::round(workspace, scale, &mut table);
        count_rows::round(scale, &mut table);
        level.round(workspace, lab.as_ref(), scale, &mut table);
        script_rows::round(&mut table);
        script_run_rows::round(workspace, scale, &mut table);
    }
    table.begin_round(0);
    level.finish(&mut table);
    eprintln!("hostile scripts");
    script_run_rows::hostile(workspace, &mut table);
    eprintln!("{} traces", scale.traces);
    traces_row::measure(workspace, scale.traces, &mut table);
    record.bars.extend(bars::bars(&table));
    table.finish(record);
    Ok(())
}

/// Generated traces alone.
///
/// # Errors
/// None: what goes wrong is a fault of its row.
pub fn measure_traces(workspace: &Workspace, scale: Scale, record: &mut Record) -> Result<()> {
    let mut table = Table::default();
    traces_row::measure(workspace, scale.traces, &mut table);
    record.bars.extend(bars::bars(&table).into_iter().filter(|bar| bar.name == traces_row::ROW));
    table.finish(record);
    Ok(())
}
