//! The part `query`: how long answers from a store take, what is read for them, and whether they are true.
//!
//! | rows | module |
//! |---|---|
//! | one host of many: against tcpdump, bytes read, a count against a loop | `host_rows` |
//! | much of the store: against tcpdump, the disk, `cat` | `scan_rows` |
//! | the first packet of a span | `span_rows` |
//! | memory | `lanes_row` |
//! | live capture beside queries | `beside_row` |
//! | answers to questions drawn by chance | `truth_row` |
//!
//! The store (`store`, `traffic`) is kept in `target/bench`, and read whole before it is used (`survey`): every answer
//! is held against what is known of its packets by construction.

mod answer;
mod asking;
mod bars;
mod beside_row;
pub mod cache;
mod host_rows;
mod lanes_row;
pub mod process;
mod scan_rows;
mod span_rows;
pub mod store;
mod survey;
mod traffic;
mod truth_row;

use crate::Scale;
use crate::record::Record;
use crate::table::Table;
use crate::workspace::Workspace;
use anyhow::Result;
use asking::Asking;
use serde_json::json;
use std::sync::atomic::AtomicU64;

/// A share of the part, which can be measured alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Share {
    /// Speed, bytes read, and memory.
    Speed,
    /// Live capture beside queries.
    Beside,
    /// Whether answers are true.
    Truth,
}

/// All of them.
pub const ALL: &[Share] = &[Share::Speed, Share::Beside, Share::Truth];

/// Measures `shares` and adds them to `record`.
///
/// # Errors
/// The system's, before the first row. What goes wrong later is a fault of its row.
pub fn measure(workspace: &Workspace, scale: Scale, shares: &[Share], record: &mut Record) -> Result<()> {
    let store = store::prepare(workspace, scale.query_bytes, scale.query_spans * scale.rounds)?;
    let asking = Asking { workspace, store: &store, resident_kib: AtomicU64::new(0) };
    let mut table = Table::default();
    for share in shares {
        table.begin_round(0);
        match share {
            Share::Speed => speed(&asking, scale, &mut table),
            Share::Beside => beside_row::measure(&asking, scale, &mut table),
            Share::Truth => truth_row::measure(workspace, scale.questions, &mut table),
        }
        record.bars.extend(bars::bars(*share, &table));
    }
    let facts = json!({
        "store_bytes": store.bytes,
        "packets": store.known.all.packets,
        "segments": store.survey.segments,
        "segments_with_the_host": store.survey.columns.len(),
        "packets_of_the_host": store.known.host.packets,
        "tcpdump": "tcpdump -n -V - -w FILE EXPR",
        "fio": scan_rows::fio_arguments("io_uring").join(" "),
        "dd": "dd if=FILE of=/dev/null bs=2M iflag=direct",
    });
    record.machine.insert("query".to_string(), facts);
    table.finish(record);
    Ok(())
}

fn speed(asking: &Asking, scale: Scale, table: &mut Table) {
    if let Err(error) = scan_rows::check(asking) {
        table.put(scan_rows::ALL, scan_rows::OURS, "MB/s", Err(format!("{error:#}")));
    }
    for round in 0..scale.rounds {
        eprintln!("round {} of {}", round + 1, scale.rounds);
        table.begin_round(round);
        host_rows::cold(asking, table);
        span_rows::round(asking, scale.query_spans, table);
        scan_rows::round(asking, table);
        host_rows::warm(asking, table);
    }
    table.begin_round(0);
    lanes_row::of_all(asking, table);
    lanes_row::measure(asking.workspace, scale.query_lanes, table);
}
