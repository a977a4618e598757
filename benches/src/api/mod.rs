//! The part `api`: what answers of a running instance cost, and what its clients can do to capture.
//!
//! | rows | module |
//! |---|---|
//! | status beside slow and broken clients; loss, processor time and memory of the run under that load | `beside_rows` |
//! | the load | `load`, `clients` |
//! | a bare server of the same library under the same load | `bare` |
//! | everything of a store by the socket and by TLS, against `query` into a pipe and OpenSSL | `stream_row` |
//! | `wirescope serve` with tokens | `door` |
//! | who may what, and what a door can't do | `matrix_row` |
//! | requests drawn by chance, answers as the document says | `fuzz_row` |

mod bare;
mod bars;
mod beside_rows;
mod clients;
mod door;
mod forward;
mod fuzz_row;
mod load;
mod matrix_row;
mod stream_row;

use crate::Scale;
use crate::record::Record;
use crate::table::Table;
use crate::workspace::Workspace;
use anyhow::Result;
use serde_json::json;

/// A soak draws so many times as many requests.
const SOAK_TIMES: usize = 5;

/// Many requests drawn by chance, and nothing else.
///
/// # Errors
/// The system's, before the first row.
pub fn measure_soak(workspace: &Workspace, scale: Scale, record: &mut Record) -> Result<()> {
    let mut table = Table::default();
    table.begin_round(0);
    fuzz_row::measure(workspace, Scale { api_cases: scale.api_cases * SOAK_TIMES, ..scale }, &mut table);
    record.bars.extend(bars::bars(&table).into_iter().filter(|bar| bar.name == fuzz_row::ROW));
    table.finish(record);
    Ok(())
}

/// Measures everything and adds it to `record`.
///
/// # Errors
/// The system's, before the first row. What goes wrong later is a fault of its row.
pub fn measure(workspace: &Workspace, scale: Scale, record: &mut Record) -> Result<()> {
    let mut table = Table::default();
    stream_row::measure(workspace, scale, &mut table);
    beside_rows::measure(workspace, scale, &mut table);
    table.begin_round(0);
    fuzz_row::measure(workspace, scale, &mut table);
    matrix_row::measure(workspace, scale, &mut table);
    record.bars.extend(bars::bars(&table));
    let facts = json!({
        "traffic": beside_rows::traffic(),
        "requests_per_second": load::PER_SECOND,
        "slow_clients": clients::SLOW,
        "broken_clients": clients::BROKEN,
    });
    record.machine.insert("api".to_string(), facts);
    table.finish(record);
    Ok(())
}
