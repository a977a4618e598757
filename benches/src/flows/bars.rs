//! The bars of the part `flows`.

use super::peers::Peer;
use super::{bound_row, file_rows, kill_row, late_row, live_rows, pause_row, table_rows, worker_rows};
use crate::record::{Bar, Limit};
use crate::table::{Key, Table};

/// All of them, in the order of the issue.
pub fn bars(table: &Table) -> Vec<Bar> {
    let of = |key: Key<'_>, limit| Bar {
        name: key.0,
        value: table.median(key),
        limit,
        faults: table.faults(&[key]),
    };
    let ratio = |name, above: Key<'_>, below: Key<'_>, limit| Bar {
        name,
        value: table.ratio(above, below),
        limit,
        faults: table.faults(&[above, below]),
    };
    vec![
        ratio(table_rows::VS_MAP, table_rows::MAP, table_rows::OURS, Limit::AtLeast(4.0)),
        ratio(table_rows::OF_LIMIT, table_rows::LIMIT, table_rows::OURS, Limit::AtLeast(0.25)),
        worker_ns(table),
        Bar { value: table.max(pause_row::OWN), ..of(pause_row::OWN, Limit::AtMost(1.0)) },
        file_vs_peers(table),
        of(live_rows::OWN, Limit::AtMost(9.0)),
        ratio(live_rows::PEER.0, live_rows::OWN, live_rows::PEER, Limit::AtMost(0.5)),
        Bar { value: table.max(live_rows::RESIDENT), ..of(live_rows::RESIDENT, Limit::AtMost(96.0)) },
        loss(table),
        of(bound_row::ROW, Limit::Exactly(1.0)),
        of(late_row::P99, Limit::AtMost(1000.0)),
        of(kill_row::ROW, Limit::Exactly(1.0)),
    ]
}

/// What statistics add to a packet's time. The best round of each row counts: the difference is small against the whole,
/// and what else the machine does only adds.
fn worker_ns(table: &Table) -> Bar {
    let keys = [worker_rows::WITH, worker_rows::WITHOUT];
    let value = table.min(keys[0]).zip(table.min(keys[1])).map(|(with, without)| with - without);
    Bar { name: worker_rows::BAR, value, limit: Limit::AtMost(40.0), faults: table.faults(&keys) }
}

/// Against the faster of the two. One that is missing is a fault.
fn file_vs_peers(table: &Table) -> Bar {
    let ours = (file_rows::BAR, file_rows::OURS);
    let peers = Peer::ALL.map(|peer| (file_rows::BAR, peer.name()));
    let fastest = peers
        .into_iter()
        .max_by(|one, other| table.median(*one).partial_cmp(&table.median(*other)).expect("no NaN"));
    Bar {
        name: file_rows::BAR,
        value: fastest.and_then(|peer| table.ratio(ours, peer)),
        limit: Limit::AtLeast(2.0),
        faults: table.faults(&[ours, peers[0], peers[1]]),
    }
}

/// Packets lost with statistics less those without: the median of the rounds.
fn loss(table: &Table) -> Bar {
    let keys = [live_rows::LOST, live_rows::LOST_WITHOUT];
    let differences = table.differences(keys[0], keys[1]);
    Bar {
        name: live_rows::LOST.0,
        value: crate::figures::median(&differences),
        limit: Limit::AtMost(0.0),
        faults: table.faults(&keys),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bar_has_its_name_and_none_holds_unmeasured() {
        let bars = bars(&Table::default());
        let names = [
            "flow_1m_vs_map",
            "flow_1m_of_limit",
            "stats_worker_ns",
            "stats_pause_ms",
            "stats_file_vs_peers",
            "stats_1g_core_percent",
            "stats_cpu_vs_softflowd",
            "stats_resident_mib",
            "stats_loss",
            "flows_10m",
            "stats_late_ms",
            "stats_kill",
        ];
        assert_eq!(bars.iter().map(|bar| bar.name).collect::<Vec<_>>(), names);
        assert!(bars.iter().all(|bar| !bar.holds() && !bar.faults.is_empty()), "{bars:?}");
    }

    #[test]
    fn ours_is_held_against_the_faster_peer_and_one_that_is_missing_breaks_the_bar() {
        let mut table = Table::default();
        table.put(file_rows::BAR, file_rows::OURS, "packets/s", Ok(900.0));
        table.put(file_rows::BAR, "nfpcapd", "packets/s", Ok(300.0));
        let mut missing = Table::default();
        missing.put(file_rows::BAR, file_rows::OURS, "packets/s", Ok(900.0));
        missing.put(file_rows::BAR, "nfpcapd", "packets/s", Ok(300.0));
        table.put(file_rows::BAR, "softflowd", "packets/s", Ok(450.0));
        missing.put(file_rows::BAR, "softflowd", "packets/s", Err("missing".to_string()));
        let (bar, lacks) = (file_vs_peers(&table), file_vs_peers(&missing));
        assert_eq!((bar.value, bar.holds()), (Some(2.0), true));
        assert_eq!((lacks.value, lacks.holds()), (Some(3.0), false));
    }

    #[test]
    fn the_longest_pause_and_the_most_memory_count_and_losses_are_differences() {
        let mut table = Table::default();
        for (round, (pause, lost, without)) in
            [(0.2, 5.0, 5.0), (1.2, 9.0, 7.0), (0.3, 0.0, 3.0)].into_iter().enumerate()
        {
            table.begin_round(round);
            table.put(pause_row::OWN.0, pause_row::OWN.1, "ms", Ok(pause));
            table.put(live_rows::RESIDENT.0, live_rows::RESIDENT.1, "MiB", Ok(50.0 + pause));
            table.put(live_rows::LOST.0, live_rows::LOST.1, "packets", Ok(lost));
            table.put(live_rows::LOST_WITHOUT.0, live_rows::LOST_WITHOUT.1, "packets", Ok(without));
        }
        let bars = bars(&table);
        let of = |name: &str| bars.iter().find(|bar| bar.name == name).map(|bar| (bar.value, bar.holds()));
        assert_eq!(of("stats_pause_ms"), Some((Some(1.2), false)));
        assert_eq!(of("stats_resident_mib"), Some((Some(51.2), true)));
        assert_eq!(of("stats_loss"), Some((Some(0.0), true)));
    }
}
