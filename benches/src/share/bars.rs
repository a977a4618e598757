//! The bars of the part `share`.

use super::send_rows::{GAP, GAP_PEER, RATE, RATE_PEER};
use crate::record::{Bar, Limit};
use crate::table::{Key, Table};

/// All of them, in the order of the issue.
pub fn bars(table: &Table) -> Vec<Bar> {
    let ratio = |above: Key<'static>, below: Key<'_>, limit| Bar {
        name: above.0,
        value: table.ratio(above, below),
        limit,
        faults: table.faults(&[above, below]),
    };
    vec![ratio(RATE, RATE_PEER, Limit::AtLeast(1.1)), ratio(GAP, GAP_PEER, Limit::AtMost(1.0))]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bar_has_its_name_and_none_holds_unmeasured() {
        let bars = bars(&Table::default());
        let names: Vec<&str> = bars.iter().map(|bar| bar.name).collect();
        assert_eq!(names, ["send_vs_trafgen_64", "send_gap_vs_tcpreplay"]);
        assert!(bars.iter().all(|bar| !bar.holds() && !bar.faults.is_empty()), "{bars:?}");
    }
}
