//! `hostile_hits_ns`: what a hit that makes no filter costs its worker.

use crate::table::Table;

/// The row, and the bar.
pub const ROW: &str = "hostile_hits_ns";
/// What the bar is of.
pub const WORST: &str = "worst template of 64 hosts, 99th percentile";

/// Measures it.
pub fn measure(table: &mut Table) {
    table.leave_out(ROW, WORST, "ns", "not measured yet");
}
