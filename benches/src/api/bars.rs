//! The bars of the part `api`.

use super::beside_rows::{GROWTH, LOST, LOST_ALONE, LOST_BESIDE, MEMORY, P99, STATUS};
use super::fuzz_row;
use crate::figures::median;
use crate::record::{Bar, Limit};
use crate::table::Table;

/// All of them.
pub fn bars(table: &Table) -> Vec<Bar> {
    let of = |name, key, limit| Bar { name, value: table.median(key), limit, faults: table.faults(&[key]) };
    vec![
        of("status_p99_ms", (STATUS, P99), Limit::AtMost(20.0)),
        Bar {
            name: "capture_beside_clients",
            value: median(&table.differences((LOST, LOST_BESIDE), (LOST, LOST_ALONE))),
            limit: Limit::AtMost(0.0),
            faults: table.faults(&[(LOST, LOST_BESIDE), (LOST, LOST_ALONE)]),
        },
        Bar {
            name: "client_memory_mib",
            value: table.max((MEMORY, GROWTH)),
            limit: Limit::AtMost(32.0),
            faults: table.faults(&[(MEMORY, GROWTH)]),
        },
        of("api_fuzz", (fuzz_row::ROW, fuzz_row::TRUE), Limit::Exactly(1.0)),
    ]
}
