//! The bars of the part `filter`: ratios within one run, medians over its rounds.

use super::{SMALL, dump_rows, live_rows, storm_rows, trigger_rows};
use crate::record::{Bar, Limit};
use crate::table::{Key, Table};

/// All of them, in the order of the issue.
pub fn bars(table: &Table) -> Vec<Bar> {
    vec![
        worst("filter_small_hot", table, [", bpf_filter", ", native"], Limit::AtLeast(5.0)),
        worst("filter_small_cold", table, [", native", ", hand-written Rust"], Limit::AtMost(1.1)),
        ratio(
            "filter_100_hosts_hot",
            table,
            ["100 hosts, bpf_filter", "100 hosts, native"],
            Limit::AtLeast(40.0),
        ),
        time("filter_compile_ms_small", table, "20 instructions", 1.5),
        time("filter_compile_ms_361", table, "361 instructions", 6.0),
        ratio(
            "dumps_1000",
            table,
            ["1000 5-tuple filters", "1 5-tuple filter, without a table"],
            Limit::AtMost(3.0),
        ),
        time("dump_screened_ns", table, dump_rows::DUMP, 2.0),
        dump_screened_ratio(table),
        trigger_ns(table),
        hit_storm(table),
        ratio("dumps_1000_live", table, [&live_rows::name(1000), &live_rows::name(1)], Limit::AtMost(1.5)),
    ]
}

/// The ratio of two rows of the bar's own name.
fn ratio(name: &'static str, table: &Table, of: [&str; 2], limit: Limit) -> Bar {
    let [above, below] = of.map(|of| (name, of));
    Bar { name, value: table.ratio(above, below), limit, faults: table.faults(&[above, below]) }
}

/// Of the four small filters the one that is farthest from the bar.
fn worst(name: &'static str, table: &Table, ends: [&str; 2], limit: Limit) -> Bar {
    let bars: Vec<Bar> = SMALL
        .iter()
        .map(|small| {
            let [above, below] = ends.map(|end| format!("{}{end}", small.name));
            ratio(name, table, [&above, &below], limit)
        })
        .collect();
    let values = bars.iter().filter_map(|bar| bar.value);
    let value = match limit {
        Limit::AtMost(_) => values.max_by(f64::total_cmp),
        _ => values.min_by(f64::total_cmp),
    };
    Bar { name, value, limit, faults: bars.into_iter().flat_map(|bar| bar.faults).collect() }
}

fn time(name: &'static str, table: &Table, of: &str, most: f64) -> Bar {
    Bar {
        name,
        value: table.median((name, of)),
        limit: Limit::AtMost(most),
        faults: table.faults(&[(name, of)]),
    }
}

/// What screening saves a dump.
fn dump_screened_ratio(table: &Table) -> Bar {
    let bar =
        ratio("dump_screened_ns", table, [dump_rows::EVERY_PACKET, dump_rows::DUMP], Limit::AtLeast(5.0));
    Bar { name: "dump_screened_ratio", ..bar }
}

/// What one more trigger adds to a packet's time: the worst of the rows with triggers. The best round of each
/// row counts: the difference is small against the whole, and what else the machine does only adds.
fn trigger_ns(table: &Table) -> Bar {
    let names = trigger_rows::TRIGGERS.map(trigger_rows::name);
    let keys: Vec<Key<'_>> = names.iter().map(|name| ("trigger_ns", name.as_str())).collect();
    let alone = table.min(keys[0]);
    let added = |(key, &triggers): (&Key<'_>, &usize)| Some((table.min(*key)? - alone?) / triggers as f64);
    let value = keys.iter().zip(&trigger_rows::TRIGGERS).skip(1).filter_map(added).max_by(f64::total_cmp);
    Bar { name: "trigger_ns", value, limit: Limit::AtMost(4.0), faults: table.faults(&keys) }
}

/// 1 where both storms held.
fn hit_storm(table: &Table) -> Bar {
    let keys = storm_rows::ROWS.map(|(name, _)| ("hit_storm", name));
    let faults = table.faults(&keys);
    let value = if faults.is_empty() { 1.0 } else { 0.0 };
    Bar { name: "hit_storm", value: Some(value), limit: Limit::AtLeast(1.0), faults }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bar_has_its_name_and_none_holds_unmeasured() {
        let bars = bars(&Table::default());
        let names = [
            "filter_small_hot",
            "filter_small_cold",
            "filter_100_hosts_hot",
            "filter_compile_ms_small",
            "filter_compile_ms_361",
            "dumps_1000",
            "dump_screened_ns",
            "dump_screened_ratio",
            "trigger_ns",
            "hit_storm",
            "dumps_1000_live",
        ];
        assert_eq!(bars.iter().map(|bar| bar.name).collect::<Vec<_>>(), names);
        assert!(bars.iter().all(|bar| !bar.holds() && !bar.faults.is_empty()), "{bars:?}");
    }

    #[test]
    fn the_worst_filter_is_the_bar_and_a_trigger_costs_what_it_adds() {
        let mut table = Table::default();
        for (small, ours) in SMALL.iter().zip([1.0, 2.0, 1.5, 1.0]) {
            table.put("filter_small_hot", &format!("{}, bpf_filter", small.name), "ns", Ok(12.0));
            table.put("filter_small_hot", &format!("{}, native", small.name), "ns", Ok(ours));
        }
        for (triggers, ns) in trigger_rows::TRIGGERS.into_iter().zip([30.0, 33.0, 38.0, 62.0]) {
            table.put("trigger_ns", &trigger_rows::name(triggers), "ns", Ok(ns));
        }
        let bars = bars(&table);
        assert_eq!((bars[0].value, bars[0].holds()), (Some(6.0), true));
        assert_eq!((bars[8].value, bars[8].holds()), (Some(3.0), true));
    }
}
