//! The bars of the part `share`.

use super::group_rows::{FEW, MANY, MIX, MIX_APPEND, NO_RULES, RULES, RULES_COUNT, SMALL, SMALL_APPEND};
use super::send_rows::{GAP, GAP_PEER, RATE, RATE_PEER};
use crate::figures::median;
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
    let rule = Bar {
        name: RULES.0,
        value: median(&table.differences(RULES, NO_RULES)).map(|ns| ns / RULES_COUNT),
        limit: Limit::AtMost(4.0),
        faults: table.faults(&[RULES, NO_RULES]),
    };
    vec![
        ratio(SMALL, SMALL_APPEND, Limit::AtMost(3.0)),
        ratio(MIX, MIX_APPEND, Limit::AtMost(3.0)),
        rule,
        ratio(MANY, FEW, Limit::AtMost(4.0)),
        ratio(RATE, RATE_PEER, Limit::AtLeast(1.1)),
        ratio(GAP, GAP_PEER, Limit::AtMost(1.0)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bar_has_its_name_and_none_holds_unmeasured() {
        let bars = bars(&Table::default());
        let names: Vec<&str> = bars.iter().map(|bar| bar.name).collect();
        assert_eq!(
            names,
            [
                "share_group_64",
                "share_group_imix",
                "share_rule_ns",
                "share_set_million",
                "send_vs_trafgen_64",
                "send_gap_vs_tcpreplay"
            ]
        );
        assert!(bars.iter().all(|bar| !bar.holds() && !bar.faults.is_empty()), "{bars:?}");
    }
}
