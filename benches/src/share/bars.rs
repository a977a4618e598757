//! The bars of the part `share`.

use super::flow_rows::{BALANCE, STRAYS};
use super::forward_row::FORWARD;
use super::group_rows::{FEW, MANY, MIX, MIX_APPEND, NO_RULES, RULES, RULES_COUNT, SMALL, SMALL_APPEND};
use super::hostile_row::HOSTILE;
use super::live_rows::{GROUPED, MEMBERS, NO_MEMBERS, PIPED, SOCKETS, TCPDUMPS};
use super::read_rows::{INSIDE, OF_GROUP, OF_RING, OUTSIDE};
use super::send_rows::{GAP, GAP_PEER, RATE, RATE_PEER};
use super::takeover_row::TAKEOVER;
use crate::figures::median;
use crate::record::{Bar, Limit};
use crate::table::{Key, Table};

/// Their names.
pub const NAMES: &[&str] = &[
    "share_group_64",
    "share_group_imix",
    "share_rule_ns",
    "share_set_million",
    "share_vs_sockets_4",
    "share_tcpdump_4",
    "share_capture_cost",
    "share_in_place_imix",
    "share_seen_us_1k",
    "share_balance",
    "share_strays",
    "share_takeover_ms",
    "share_hostile",
    "forward_loss",
    "send_vs_trafgen_64",
    "send_gap_vs_tcpreplay",
];

/// All of them, in the order of their names.
pub fn bars(table: &Table) -> Vec<Bar> {
    let ratio = |above: Key<'static>, below: Key<'_>, limit| Bar {
        name: above.0,
        value: table.ratio(above, below),
        limit,
        faults: table.faults(&[above, below]),
    };
    // What goes wrong in one round is wrong.
    let worst = |key: Key<'static>, limit| Bar {
        name: key.0,
        value: table.max(key),
        limit,
        faults: table.faults(&[key]),
    };
    // The slower of both.
    let seen = Bar {
        name: OF_RING.0,
        value: table.median(OF_RING).zip(table.median(OF_GROUP)).map(|(ring, group)| ring.max(group)),
        limit: Limit::AtMost(2000.0),
        faults: table.faults(&[OF_RING, OF_GROUP]),
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
        ratio(GROUPED, SOCKETS, Limit::AtMost(0.5)),
        ratio(PIPED, TCPDUMPS, Limit::AtMost(0.9)),
        ratio(MEMBERS, NO_MEMBERS, Limit::AtMost(1.1)),
        ratio(OUTSIDE, INSIDE, Limit::AtMost(1.15)),
        seen,
        worst(BALANCE, Limit::AtMost(0.05)),
        worst(STRAYS, Limit::Exactly(0.0)),
        Bar { value: table.median(TAKEOVER), ..worst(TAKEOVER, Limit::AtMost(50.0)) },
        worst(HOSTILE, Limit::Exactly(1.0)),
        worst(FORWARD, Limit::Exactly(0.0)),
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
        assert_eq!(names, NAMES);
        assert!(bars.iter().all(|bar| !bar.holds() && !bar.faults.is_empty()), "{bars:?}");
    }
}
