//! The bars of the part `store`.

use super::Share;
use super::cost_rows::{BESIDE, COST, COST_PER_GIB, DIFFERENCE, WITH, WITHOUT};
use super::kill_row::{KILLED, ROW as KILL};
use super::power_row::{POINTS, ROW as POWER};
use super::read_rows::{HASH, INDEX, MIXED, SPEED as READ, VERIFY};
use super::speed_rows::{DD, DIRECT, FIO, OURS, PLAIN};
use crate::live::store_rows;
use crate::record::{Bar, Limit};
use crate::table::{Key, Table};

/// Those of a share, in the order of the issue.
pub fn bars(share: Share, table: &Table) -> Vec<Bar> {
    match share {
        Share::Disk => vec![
            ratio("store_vs_fio", table, (DIRECT, OURS), (DIRECT, FIO), 0.95),
            cost(table),
            ratio("store_fallback_vs_dd", table, (PLAIN, OURS), (PLAIN, DD), 0.9),
            ratio("capture_beside_store", table, (BESIDE, WITH), (BESIDE, WITHOUT), 0.9),
            ratio("verify_vs_hash", table, (READ, VERIFY), (READ, HASH), 0.8),
            Bar {
                name: "index_bytes",
                value: table.max((INDEX, MIXED)),
                limit: Limit::AtMost(0.004),
                faults: table.faults(&[(INDEX, MIXED)]),
            },
        ],
        Share::Live => store_rows::bars(table),
        Share::Kill => vec![proven("kill_recovery", table, (KILL, KILLED))],
        Share::Power => vec![proven("power_recovery", table, (POWER, POINTS))],
    }
}

/// The median of the rounds' ratios.
fn ratio(name: &'static str, table: &Table, ours: Key, other: Key, least: f64) -> Bar {
    Bar {
        name,
        value: table.ratio(ours, other),
        limit: Limit::AtLeast(least),
        faults: table.faults(&[ours, other]),
    }
}

fn cost(table: &Table) -> Bar {
    let keys = [(COST, WITH), (COST, WITHOUT), (COST_PER_GIB, DIFFERENCE)];
    Bar {
        name: "store_cpu_s_per_gib",
        value: table.median(keys[2]),
        limit: Limit::AtMost(0.12),
        faults: table.faults(&keys),
    }
}

/// 1 where every round went well.
fn proven(name: &'static str, table: &Table, key: Key) -> Bar {
    let faults = table.faults(&[key]);
    let value = if faults.is_empty() { table.min(key) } else { Some(0.0) };
    Bar { name, value, limit: Limit::Exactly(1.0), faults }
}

#[cfg(test)]
mod tests {
    use super::super::ALL;
    use super::*;

    #[test]
    fn every_bar_has_its_name_and_none_holds_unmeasured() {
        let table = Table::default();
        let bars: Vec<Bar> = ALL.iter().flat_map(|share| bars(*share, &table)).collect();
        let names = [
            "store_vs_fio",
            "store_cpu_s_per_gib",
            "store_fallback_vs_dd",
            "capture_beside_store",
            "verify_vs_hash",
            "index_bytes",
            "live_store_cpu_vs_stenotype_512",
            "live_store_loss",
            "kill_recovery",
            "power_recovery",
        ];
        assert_eq!(bars.iter().map(|bar| bar.name).collect::<Vec<_>>(), names);
        assert!(bars.iter().all(|bar| !bar.holds() && !bar.faults.is_empty()), "{bars:?}");
    }

    #[test]
    fn one_kill_that_took_something_fails_all() {
        let mut table = Table::default();
        table.put(KILL, KILLED, "", Ok(1.0));
        assert!(bars(Share::Kill, &table)[0].holds());
        table.begin_round(1);
        table.put(KILL, KILLED, "", Err("packet 7 is another one than was generated".into()));
        let bar = &bars(Share::Kill, &table)[0];
        assert_eq!((bar.value, bar.holds()), (Some(0.0), false));
    }
}
