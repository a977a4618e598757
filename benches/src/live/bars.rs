//! The bars of the part `live`.

use super::peers::PEERS;
use super::{FLAP, LOADS, Load, OURS, RELOAD, RIGHTS, row_of};
use crate::record::{Bar, Limit};
use crate::table::Table;

/// All of them, in the order of the issue.
pub fn bars(table: &Table) -> Vec<Bar> {
    vec![
        cpu("live_cpu_vs_tcpdump_512", table, "tcpdump", 0.6),
        cpu("live_cpu_vs_stenotype_512", table, "stenotype", 1.0),
        loss(table),
        counted("reload_loss", table, RELOAD),
        counted("interface_flap_loss", table, FLAP),
        Bar { limit: Limit::AtLeast(1.0), ..counted("rights", table, RIGHTS) },
    ]
}

fn load(bytes: usize, is_flat_out: bool) -> &'static Load {
    LOADS
        .iter()
        .find(|load| load.bytes == bytes && load.is_flat_out() == is_flat_out)
        .expect("a load of the table")
}

/// Processor time per packet at 512 bytes and a fixed rate, ours by the peer's.
fn cpu(name: &'static str, table: &Table, peer: &str, most: f64) -> Bar {
    let [ours, theirs] = [OURS, peer].map(|of| row_of(load(512, false), of));
    let keys = [("live_ns", ours.as_str()), ("live_ns", theirs.as_str())];
    Bar {
        name,
        value: table.ratio(keys[0], keys[1]),
        limit: Limit::AtMost(most),
        faults: table.faults(&keys),
    }
}

/// Loss at 64 bytes flat out, ours less that of the peer that loses least: medians.
fn loss(table: &Table) -> Bar {
    let of = |name: &str| row_of(load(64, true), name);
    let peers = PEERS.iter().filter_map(|peer| table.median(("live_loss", &of(peer.name))));
    let ours = table.median(("live_loss", &of(OURS)));
    let value = peers.min_by(f64::total_cmp).and_then(|best| Some(ours? - best));
    let mut faults = table.faults(&[("live_loss", &of(OURS))]);
    if value.is_none() && faults.is_empty() {
        faults.push("no peer was measured".to_string());
    }
    Bar { name: "live_loss_64", value, limit: Limit::AtMost(0.0), faults }
}

/// Packets lost in a row that is measured once.
fn counted(name: &'static str, table: &Table, of: &str) -> Bar {
    Bar {
        name,
        value: table.median((name, of)),
        limit: Limit::AtMost(0.0),
        faults: table.faults(&[(name, of)]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bar_has_its_name_and_none_holds_unmeasured() {
        let bars = bars(&Table::default());
        let names = [
            "live_cpu_vs_tcpdump_512",
            "live_cpu_vs_stenotype_512",
            "live_loss_64",
            "reload_loss",
            "interface_flap_loss",
            "rights",
        ];
        assert_eq!(bars.iter().map(|bar| bar.name).collect::<Vec<_>>(), names);
        assert!(bars.iter().all(|bar| !bar.holds() && !bar.faults.is_empty()), "{bars:?}");
    }

    #[test]
    fn ours_is_held_against_the_peer_that_loses_least() {
        let mut table = Table::default();
        for (of, percent) in [(OURS, 2.0), ("tcpdump", 9.0), ("stenotype", 1.5)] {
            table.put("live_loss", &row_of(load(64, true), of), "%", Ok(percent));
        }
        let bar = loss(&table);
        assert_eq!((bar.value, bar.holds()), (Some(0.5), false));
    }
}
