//! The bars of the part `signals`.

use super::{count_rows, level_row, script_rows, script_run_rows, signal_rows, traces_row};
use crate::record::{Bar, Limit};
use crate::table::{Key, Table};

/// All of them, in the order of the issue.
pub fn bars(table: &Table) -> Vec<Bar> {
    let of = |name, key: Key<'_>, limit| Bar {
        name,
        value: table.median(key),
        limit,
        faults: table.faults(&[key]),
    };
    vec![
        signal_ns(table),
        count_by_key(table),
        of(level_row::ROW, (level_row::ROW, level_row::P99), Limit::AtMost(50.0)),
        of(traces_row::ROW, (traces_row::ROW, traces_row::SAME), Limit::Exactly(1.0)),
        ratio(script_rows::BATCH, table, [script_rows::CALLS, script_rows::BY_BATCH], Limit::AtLeast(10.0)),
        ratio(script_rows::NATIVE, table, [script_rows::SCRIPT, script_rows::FILTER], Limit::AtMost(6.0)),
        library(table),
        beside(table),
        of(script_run_rows::HOSTILE, (script_run_rows::HOSTILE, script_run_rows::WHOLE), Limit::Exactly(1.0)),
    ]
}

/// The ratio of two rows of the bar's own name.
fn ratio(name: &'static str, table: &Table, of: [&str; 2], limit: Limit) -> Bar {
    let [above, below] = of.map(|of| (name, of));
    Bar { name, value: table.ratio(above, below), limit, faults: table.faults(&[above, below]) }
}

/// What one more signal adds to a packet's time over the same filter as a trigger: the worst of the rows. The best round
/// of each row counts: the difference is small against the whole, and what else the machine does only adds.
fn signal_ns(table: &Table) -> Bar {
    let names =
        signal_rows::NUMBERS.map(|number| [signal_rows::signals(number), signal_rows::triggers(number)]);
    let keys: Vec<Key<'_>> = names.iter().flatten().map(|name| (signal_rows::ROW, name.as_str())).collect();
    let added =
        |(key, number): (&[Key<'_>], usize)| Some((table.min(key[0])? - table.min(key[1])?) / number as f64);
    let value = keys.chunks(2).zip(signal_rows::NUMBERS).filter_map(added).max_by(f64::total_cmp);
    Bar { name: signal_rows::ROW, value, limit: Limit::AtMost(2.0), faults: table.faults(&keys) }
}

/// Of the cases the one that is farthest from the bar.
fn count_by_key(table: &Table) -> Bar {
    let bars: Vec<Bar> = count_rows::CASES
        .iter()
        .map(|case| {
            let [peer, ours] = [case.name(count_rows::PEER), case.name(count_rows::OURS)];
            ratio(count_rows::ROW, table, [&peer, &ours], Limit::AtLeast(2.0))
        })
        .collect();
    worst(bars, f64::min)
}

/// The slower of the example's two kinds of payload.
fn library(table: &Table) -> Bar {
    let keys = script_rows::PAYLOADS.map(|payload| (script_rows::LIBRARY, payload));
    let value = keys.iter().filter_map(|key| table.median(*key)).max_by(f64::total_cmp);
    Bar { name: script_rows::LIBRARY, value, limit: Limit::AtMost(40.0), faults: table.faults(&keys) }
}

/// The more disturbing of the two scripts.
fn beside(table: &Table) -> Bar {
    let bars = script_run_rows::SPINNING
        .iter()
        .map(|(name, _)| {
            let of = [*name, script_run_rows::ALONE];
            ratio(script_run_rows::BESIDE, table, of, Limit::AtLeast(0.95))
        })
        .collect();
    worst(bars, f64::min)
}

/// One bar of several with the same name and limit.
fn worst(bars: Vec<Bar>, of: fn(f64, f64) -> f64) -> Bar {
    let value = bars.iter().filter_map(|bar| bar.value).reduce(of);
    let (name, limit) = (bars[0].name, bars[0].limit);
    let mut faults: Vec<String> = bars.into_iter().flat_map(|bar| bar.faults).collect();
    faults.dedup();
    Bar { name, value, limit, faults }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bar_has_its_name_and_none_holds_unmeasured() {
        let bars = bars(&Table::default());
        let names = [
            "signal_ns",
            "count_by_key_ns",
            "level_to_fire_ms",
            "level_same_on_file",
            "script_batch_vs_call",
            "script_vs_native",
            "script_packet_library_ns",
            "capture_beside_script",
            "script_hostile",
        ];
        assert_eq!(bars.iter().map(|bar| bar.name).collect::<Vec<_>>(), names);
        assert!(bars.iter().all(|bar| !bar.holds() && !bar.faults.is_empty()), "{bars:?}");
    }

    #[test]
    fn a_signal_costs_what_it_adds_to_a_filter_and_the_worst_count_is_the_bar() {
        let mut table = Table::default();
        for (number, signals, triggers) in [(1, 32.0, 31.0), (4, 44.0, 36.0), (16, 72.0, 48.0)] {
            table.put(signal_rows::ROW, &signal_rows::signals(number), "ns", Ok(signals));
            table.put(signal_rows::ROW, &signal_rows::triggers(number), "ns", Ok(triggers));
        }
        for (case, ours) in count_rows::CASES.iter().zip([10.0, 20.0, 15.0, 10.0, 10.0]) {
            table.put(count_rows::ROW, &case.name(count_rows::PEER), "ns", Ok(50.0));
            table.put(count_rows::ROW, &case.name(count_rows::OURS), "ns", Ok(ours));
        }
        let bars = bars(&table);
        assert_eq!((bars[0].value, bars[0].holds()), (Some(2.0), true));
        assert_eq!((bars[1].value, bars[1].holds()), (Some(2.5), true));
    }
}
