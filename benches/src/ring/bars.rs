//! The bars of the part `ring`: ratios within one run, medians over its rounds.

use crate::figures::percentile;
use crate::record::{Bar, Limit};
use crate::table::{Key, Table};
use scope_measure::{Packets, Sizes, uses_avx512};

/// Bar, mix, what a packet takes in the ring, and what is required: with AVX-512 and without.
const OF_LIMIT: [(&str, &str, Sizes, f64, f64); 5] = [
    ("append_64_of_limit", "append_64", Sizes::Fixed(64), 0.50, 0.35),
    ("append_128_of_limit", "append_128", Sizes::Fixed(128), 0.75, 0.40),
    ("append_512_of_limit", "append_512", Sizes::Fixed(512), 0.90, 0.80),
    ("append_1518_of_limit", "append_1518", Sizes::Fixed(1518), 0.90, 0.80),
    ("append_imix_of_limit", "append_imix", Sizes::Imix, 0.90, 0.80),
];
const VS_QQ: [(&str, &str, &str, Sizes, f64); 3] = [
    ("append_64_vs_qq", "append_64", "queues_64", Sizes::Fixed(64), 1.4),
    ("append_imix_vs_qq", "append_imix", "queues_imix", Sizes::Imix, 2.0),
    ("append_1518_vs_qq", "append_1518", "queues_1518", Sizes::Fixed(1518), 1.7),
];
const VS_PEER: [(&str, &str, &str, &str); 3] = [
    ("append_128_vs_best_peer", "append_128", "queues_128", ", bare"),
    ("append_imix_vs_best_peer", "append_imix", "queues_imix", ", bare"),
    ("append_64_vs_best_equal_peer", "append_64", "queues_64", ", equal"),
];
const ALONE: &str = "1 writer";
const QQ: &str = "queue of queues";
const ONE: Key = ("nt_fill", "1 thread");
const TWO: Key = ("nt_fill", "2 threads");

/// All of them, in the order of the specification.
pub fn bars(table: &Table) -> Vec<Bar> {
    let mut bars = Vec::new();
    bars.extend(OF_LIMIT.map(|(name, row, sizes, avx512, sse2)| {
        let required = if uses_avx512() { avx512 } else { sse2 };
        let value = of_limit(table, (row, ALONE), sizes);
        bar(table, name, value, Limit::AtLeast(required), &[(row, ALONE), ONE])
    }));
    bars.extend(VS_QQ.map(|(name, row, queues, sizes, required)| {
        vs_qq(table, name, (row, ALONE), (queues, QQ), sizes, required)
    }));
    bars.extend(VS_PEER.map(|(name, row, queues, form)| vs_peer(table, name, (row, ALONE), queues, form)));
    bars.push(two_writers(table, "two_writers_64", "append_64", Sizes::Fixed(64)));
    bars.push(two_writers(table, "two_writers_1518", "append_1518", Sizes::Fixed(1518)));
    bars.extend(follower_costs(table));
    bars.push(ratio_bar(
        table,
        "key_scan_cold",
        ("key_scan_64", "scan"),
        ("key_scan_64", "sum of the same bytes"),
        Limit::AtMost(1.25),
    ));
    bars.push(ratio_bar(
        table,
        "offset_scan_cold_imix",
        ("offset_scan_imix", "length-chained headers"),
        ("offset_scan_imix", "offsets with prefetch"),
        Limit::AtLeast(3.0),
    ));
    bars.push(seen(
        table,
        ["append_to_seen_us_1k", "append_to_seen_median_us_1k", "reader_cpu_1k"],
        [2000.0, 1100.0, 0.10],
    ));
    bars.push(seen(
        table,
        ["append_to_seen_us_1m", "append_to_seen_median_us_1m", "reader_cpu_1m"],
        [500.0, 100.0, 0.50],
    ));
    bars.push(median_bar(table, ("find_time_us", "first packet after a time, 99 %"), 20.0));
    bars.push(median_bar(table, ("claim_us", "claims without preemption, 99.99 %"), 50.0));
    bars.push(pause_excess(table));
    bars.push(median_bar(table, ("resident_over_ring", "ring, prefaulted and used"), 1.03));
    bars
}

fn bar(table: &Table, name: &'static str, value: Option<f64>, limit: Limit, rows: &[Key]) -> Bar {
    Bar { name, value, limit, faults: table.faults(rows) }
}

fn ratio_bar(table: &Table, name: &'static str, above: Key, below: Key, limit: Limit) -> Bar {
    bar(table, name, table.ratio(above, below), limit, &[above, below])
}

/// A bar that is a row's median and has its name.
fn median_bar(table: &Table, key: Key<'static>, at_most: f64) -> Bar {
    bar(table, key.0, table.median(key), Limit::AtMost(at_most), &[key])
}

/// Time that non-temporal filling on one thread takes for what a packet takes in the ring, ns.
fn limit_ns(table: &Table, sizes: Sizes) -> Option<f64> {
    Some(Packets::new(sizes).stored_bytes_mean() / table.median(ONE)?)
}

/// `bytes / (rate * time)` with rate and time of the same round: the share of the limit that a row reaches.
fn of_limit(table: &Table, row: Key, sizes: Sizes) -> Option<f64> {
    Some(Packets::new(sizes).stored_bytes_mean() / table.product(row, ONE)?)
}

fn vs_qq(table: &Table, name: &'static str, ours: Key, theirs: Key, sizes: Sizes, required: f64) -> Bar {
    let allowed =
        table.median(theirs).zip(limit_ns(table, sizes)).map(|(theirs, limit)| 0.9 * theirs / limit);
    let limit = match allowed {
        Some(allowed) if allowed < required => Limit::Depending(allowed, "0.9 of baseline / limit"),
        _ => Limit::Depending(required, "baseline / ours"),
    };
    ratio_bar(table, name, theirs, ours, limit)
}

fn vs_peer(table: &Table, name: &'static str, ours: Key, queues: &'static str, form: &str) -> Bar {
    match table.least(queues, |of| of.ends_with(form)) {
        Some(best) => ratio_bar(table, name, (queues, best), ours, Limit::AtLeast(1.25)),
        None => bar(table, name, None, Limit::AtLeast(1.25), &[ours, (queues, form)]),
    }
}

/// Two writers against one, or, where memory doesn't allow that, against filling on two threads.
fn two_writers(table: &Table, name: &'static str, row: &'static str, sizes: Sizes) -> Bar {
    let (one, two) = ((row, ALONE), (row, "2 writers"));
    let gain = table.ratio(one, two);
    if gain.is_some_and(|gain| gain >= 1.6) {
        return bar(table, name, gain, Limit::Depending(1.6, "2 writers / 1"), &[one, two]);
    }
    let of_fill = table.product(two, TWO).map(|product| Packets::new(sizes).stored_bytes_mean() / product);
    match of_fill {
        Some(share) if share >= 0.85 => {
            bar(table, name, of_fill, Limit::Depending(0.85, "of NT fill on two threads"), &[one, two, TWO])
        }
        _ => {
            let mut bar = bar(table, name, gain, Limit::Depending(1.6, "2 writers / 1"), &[one, two, TWO]);
            bar.faults.extend(
                of_fill.map(|share| format!("and {share:.3} of NT fill on two threads, 0.85 required")),
            );
            bar
        }
    }
}

fn follower_costs(table: &Table) -> [Bar; 4] {
    let forms = [
        ("follower_cost_64", "followed_64", "1 writer, follower", Some("missed_64")),
        ("follower_cost_imix", "followed_imix", "1 writer, follower", None),
        ("column_follower_cost_64", "followed_64", "1 writer, column follower", None),
        ("column_follower_cost_imix", "followed_imix", "1 writer, column follower", None),
    ];
    forms.map(|(name, row, followed, missed)| {
        let mut bar = ratio_bar(table, name, (row, followed), (row, ALONE), Limit::AtMost(1.10));
        if let Some(most) = missed.and_then(|missed| table.max((missed, followed))).filter(|&most| most > 0.0)
        {
            bar.faults.push(format!("the follower missed up to {most} packets of a round"));
        }
        bar
    })
}

/// The 99th percentile is the bar; the median and the reader's share of a core must be within theirs as well.
fn seen(table: &Table, rows: [&'static str; 3], most: [f64; 3]) -> Bar {
    let keys = rows.map(|row| (row, "1 waiting reader"));
    let mut bar = median_bar(table, keys[0], most[0]);
    for (key, most) in keys.into_iter().zip(most).skip(1) {
        if let Some(value) = table.median(key).filter(|&value| value > most) {
            bar.faults.push(format!("{} is {value:.3}, at most {most} is required", key.0));
        }
    }
    bar
}

/// The excess that four of five rounds stay within, without what the scheduler and the host took.
fn pause_excess(table: &Table) -> Bar {
    let (with, alone) = (("writer_own_pause_us", "with such readers"), ("writer_own_pause_us", "alone"));
    let value = percentile(&table.differences(with, alone), 80.0);
    bar(table, "writer_pause_excess_us", value, Limit::AtMost(1000.0), &[with, alone])
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: [&str; 25] = [
        "append_64_of_limit",
        "append_128_of_limit",
        "append_512_of_limit",
        "append_1518_of_limit",
        "append_imix_of_limit",
        "append_64_vs_qq",
        "append_imix_vs_qq",
        "append_1518_vs_qq",
        "append_128_vs_best_peer",
        "append_imix_vs_best_peer",
        "append_64_vs_best_equal_peer",
        "two_writers_64",
        "two_writers_1518",
        "follower_cost_64",
        "follower_cost_imix",
        "column_follower_cost_64",
        "column_follower_cost_imix",
        "key_scan_cold",
        "offset_scan_cold_imix",
        "append_to_seen_us_1k",
        "append_to_seen_us_1m",
        "find_time_us",
        "claim_us",
        "writer_pause_excess_us",
        "resident_over_ring",
    ];

    fn table(rows: &[(&'static str, &str, f64)]) -> Table {
        let mut table = Table::default();
        for (row, of, value) in rows {
            table.put(row, of, "", Ok(*value));
        }
        table
    }

    fn found(table: &Table, name: &str) -> Bar {
        bars(table).into_iter().find(|bar| bar.name == name).expect("a bar of this name")
    }

    #[test]
    fn every_bar_has_its_name_and_none_holds_unmeasured() {
        let bars = bars(&Table::default());
        assert_eq!(bars.iter().map(|bar| bar.name).collect::<Vec<_>>(), NAMES);
        assert!(bars.iter().all(|bar| !bar.holds() && !bar.faults.is_empty()), "{bars:?}");
    }

    #[test]
    fn the_limit_is_the_filling_of_the_bytes_that_append_writes() {
        // 64 bytes are a block of 96 and an entry of 16: 112 B at 28 GB/s are 4 ns.
        let bar = found(
            &table(&[("append_64", "1 writer", 5.0), ("nt_fill", "1 thread", 28.0)]),
            "append_64_of_limit",
        );
        assert_eq!((bar.value, bar.holds()), (Some(0.8), true));
    }

    #[test]
    fn where_memory_allows_no_more_the_baseline_is_held_against_the_limit() {
        let check = |qq, figure: &str| {
            let rows = [
                ("append_64", "1 writer", 4.2),
                ("queues_64", "queue of queues", qq),
                ("nt_fill", "1 thread", 28.0),
            ];
            let bar = found(&table(&rows), "append_64_vs_qq");
            assert_eq!(bar.limit.to_string(), figure);
            assert!(bar.holds() == (qq / 4.2 >= 1.4 || figure.contains("limit")), "{bar:?}");
        };
        check(12.0, ">= 1.4 (baseline / ours)");
        check(5.0, ">= 1.125 (0.9 of baseline / limit)");
    }

    #[test]
    fn the_best_peer_is_the_fastest_of_its_form() {
        let rows = [
            ("append_128", "1 writer", 8.0),
            ("queues_128", "a, bare", 14.0),
            ("queues_128", "b, bare", 12.0),
            ("queues_128", "b, equal", 9.0),
            ("queues_128", "queue of queues", 3.0),
        ];
        assert_eq!(found(&table(&rows), "append_128_vs_best_peer").value, Some(1.5));
    }

    #[test]
    fn two_writers_may_reach_what_two_threads_can_fill_instead() {
        let check = |two, fill, figure: &str, holds| {
            let rows = [
                ("append_64", "1 writer", 8.0),
                ("append_64", "2 writers", two),
                ("nt_fill", "2 threads", fill),
            ];
            let bar = found(&table(&rows), "two_writers_64");
            assert_eq!((bar.limit.to_string().as_str(), bar.holds()), (figure, holds), "{bar:?}");
        };
        check(4.0, 100.0, ">= 1.6 (2 writers / 1)", true);
        check(7.0, 17.0, ">= 0.85 (of NT fill on two threads)", true);
        check(7.0, 100.0, ">= 1.6 (2 writers / 1)", false);
    }

    #[test]
    fn the_pause_may_be_longer_in_one_round_of_five() {
        let check = |excesses: [f64; 5], value, holds| {
            let mut table = Table::default();
            for (round, excess) in excesses.into_iter().enumerate() {
                table.begin_round(round);
                table.put("writer_own_pause_us", "alone", "us", Ok(100.0));
                table.put("writer_own_pause_us", "with such readers", "us", Ok(100.0 + excess));
            }
            let bar = found(&table, "writer_pause_excess_us");
            assert_eq!((bar.value, bar.holds()), (Some(value), holds), "{bar:?}");
        };
        check([10.0, 9000.0, -5.0, 700.0, 20.0], 700.0, true);
        check([10.0, 9000.0, -5.0, 1700.0, 20.0], 1700.0, false);
    }

    #[test]
    fn a_follower_that_misses_packets_at_64_bytes_fails_its_bar() {
        let rows = [
            ("followed_64", "1 writer", 8.0),
            ("followed_64", "1 writer, follower", 8.1),
            ("missed_64", "1 writer, follower", 3.0),
        ];
        assert!(!found(&table(&rows), "follower_cost_64").holds());
        assert!(found(&table(&rows[..2]), "follower_cost_64").holds());
    }
}
