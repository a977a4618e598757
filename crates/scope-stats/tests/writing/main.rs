//! Statistics are written, whatever comes between: sums, folders of files, trouble.

mod folders;
mod made;
mod questions;
mod sums;
mod trouble;

use crate::made::{SECOND, facts};
use scope_flow::rows::LossRow;
use scope_stats::{Options, Writer};
use std::sync::Arc;

const HOUR: i64 = 3600 * SECOND;

fn loss(to_ns: i64, packets: u64) -> LossRow {
    LossRow {
        from_ns: to_ns - SECOND,
        to_ns,
        interface: Some(Arc::from("eth0")),
        reason: "ring",
        packets,
        late_until_ns: 0,
        filed_until_ns: 0,
    }
}

/// What opening is refused with.
fn refused(options: Options) -> Vec<String> {
    let faults = Writer::open(options, facts()).map(drop).expect_err("it is refused");
    faults.iter().map(ToString::to_string).collect()
}
