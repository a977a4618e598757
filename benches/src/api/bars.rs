//! The bars of the part `api`.

use super::beside_rows::{GROWTH, LOST, LOST_ALONE, LOST_BESIDE, MEMORY, P99, STATUS};
use super::{fuzz_row, matrix_row, stream_row};
use crate::figures::median;
use crate::record::{Bar, Limit};
use crate::table::Table;

/// All of them.
pub fn bars(table: &Table) -> Vec<Bar> {
    let of = |name, key, limit| Bar { name, value: table.median(key), limit, faults: table.faults(&[key]) };
    let (pipe, socket) = ((stream_row::ROW, stream_row::PIPE), (stream_row::ROW, stream_row::SOCKET));
    let (openssl, tls) = ((stream_row::ROW, stream_row::OPENSSL), (stream_row::ROW, stream_row::TLS));
    vec![
        Bar {
            name: "stream_vs_cat",
            value: table.ratio(pipe, socket),
            limit: Limit::AtLeast(0.85),
            faults: table.faults(&[pipe, socket]),
        },
        Bar {
            name: "stream_tls_vs_plain",
            value: table.ratio(openssl, tls),
            limit: Limit::AtLeast(0.5),
            faults: table.faults(&[openssl, tls]),
        },
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
        of("role_matrix", (matrix_row::ROW, matrix_row::TRUE), Limit::Exactly(1.0)),
        of("rights_serve", (matrix_row::RIGHTS, matrix_row::HELD), Limit::Exactly(1.0)),
    ]
}
