//! The bars of the part `query`.

use super::{Share, beside_row, host_rows, lanes_row, scan_rows, span_rows, truth_row};
use crate::record::{Bar, Limit};
use crate::table::{Key, Table};

/// Of tcpdump's speed, where the disk allows that; else of the disk's.
const COMMON_LEAST: f64 = 2.5;
const OF_DISK_LEAST: f64 = 0.8;
/// Of the filter's own speed on each core, where the cores don't keep up with the disk.
const OF_FILTER_LEAST: f64 = 0.7;

/// Those of a share.
pub fn bars(share: Share, table: &Table) -> Vec<Bar> {
    match share {
        Share::Speed => speed(table),
        Share::Beside => vec![beside(table)],
        Share::Truth => vec![truth(table)],
    }
}

fn speed(table: &Table) -> Vec<Bar> {
    use host_rows::{COLD, OURS, TCPDUMP, WARM};
    vec![
        ratio("query_host_cold_vs_tcpdump", table, (COLD, TCPDUMP), (COLD, OURS), Limit::AtLeast(100.0)),
        ratio("query_host_warm_vs_tcpdump", table, (WARM, TCPDUMP), (WARM, OURS), Limit::AtLeast(100.0)),
        ratio(
            "query_read_bytes",
            table,
            (host_rows::READ, host_rows::FROM_DISK),
            (host_rows::READ, host_rows::OWED),
            Limit::AtMost(1.3),
        ),
        common(table),
        unscreened(table),
        Bar {
            name: "query_span_first_ms",
            value: table.median((span_rows::ROW, span_rows::P95)),
            limit: Limit::AtMost(50.0),
            faults: table.faults(&[(span_rows::ROW, span_rows::P95)]),
        },
        ratio(
            "query_all_vs_cat",
            table,
            (scan_rows::ALL, scan_rows::OURS),
            (scan_rows::ALL, scan_rows::CAT),
            Limit::AtLeast(0.5),
        ),
        ratio(
            "query_count_vs_column",
            table,
            (host_rows::COUNT, host_rows::IN_PROCESS),
            (host_rows::COUNT, host_rows::COLUMNS),
            Limit::AtMost(2.0),
        ),
        memory(table),
    ]
}

/// The median of the rounds' ratios.
fn ratio(name: &'static str, table: &Table, above: Key, below: Key, limit: Limit) -> Bar {
    Bar { name, value: table.ratio(above, below), limit, faults: table.faults(&[above, below]) }
}

/// The faster of the two that read the disk past the page cache, MB/s.
fn disk(table: &Table) -> Option<f64> {
    let speeds = [scan_rows::DD, scan_rows::FIO].map(|of| table.median((scan_rows::DISK, of)));
    speeds.into_iter().flatten().max_by(f64::total_cmp)
}

const DISKS: [Key<'static>; 2] = [(scan_rows::DISK, scan_rows::DD), (scan_rows::DISK, scan_rows::FIO)];

/// Our speed, by tcpdump's. What is asked for is less where the disk is slower than that.
fn common(table: &Table) -> Bar {
    let ours = (scan_rows::COMMON, scan_rows::OURS);
    let theirs = (scan_rows::COMMON, scan_rows::TCPDUMP);
    // Of each round its own ratio, as with ours: a round in which the disk was slow was slow for all three.
    let faster = DISKS.into_iter().max_by(|a, b| {
        let speed = |key: &Key| table.median(*key).unwrap_or(0.0);
        speed(a).total_cmp(&speed(b))
    });
    let of_disk = faster.and_then(|disk| table.ratio(disk, theirs)).map(|ratio| OF_DISK_LEAST * ratio);
    let limit = match of_disk.filter(|&least| least < COMMON_LEAST) {
        Some(least) => Limit::Depending(least, "0.8 of the disk's O_DIRECT rate"),
        None => Limit::Depending(COMMON_LEAST, "tcpdump's rate"),
    };
    let mut faults = table.faults(&[ours, theirs]);
    faults.extend(table.faults(&DISKS));
    Bar { name: "query_common_vs_tcpdump", value: table.ratio(ours, theirs), limit, faults }
}

/// Our speed by the disk's, where the cores could keep up with that; else by the filter's own.
fn unscreened(table: &Table) -> Bar {
    let name = "query_unscreened_vs_disk";
    let (alone, room) = ((scan_rows::FILTER, scan_rows::ALONE), (scan_rows::FILTER, scan_rows::ROOM));
    let (ours, per_core) =
        ((scan_rows::UNSCREENED, scan_rows::OURS), (scan_rows::UNSCREENED, scan_rows::PER_CORE));
    let mut faults = table.faults(&[ours, per_core, alone, room]);
    faults.extend(table.faults(&DISKS));
    let keep_up = table
        .median(alone)
        .zip(table.median(room))
        .map(|(alone, room)| alone / OF_FILTER_LEAST <= room / OF_DISK_LEAST);
    match keep_up {
        Some(false) => {
            let value = table.product(per_core, alone).map(|product| product / 1e9);
            Bar { name, value, limit: Limit::Depending(OF_FILTER_LEAST, "of the filter's own rate"), faults }
        }
        _ => {
            let value = table.median(ours).zip(disk(table)).map(|(ours, disk)| ours / disk);
            Bar { name, value, limit: Limit::Depending(OF_DISK_LEAST, "of the disk's O_DIRECT rate"), faults }
        }
    }
}

fn memory(table: &Table) -> Bar {
    let keys = [(lanes_row::ROW, lanes_row::OF_ALL), (lanes_row::ROW, lanes_row::OF_LANES)];
    let value = keys.iter().filter_map(|&key| table.max(key)).max_by(f64::total_cmp);
    Bar { name: "query_memory_mib", value, limit: Limit::AtMost(300.0), faults: table.faults(&keys) }
}

/// The difference of the medians, %.
fn beside(table: &Table) -> Bar {
    let keys = [(beside_row::ROW, beside_row::WITH), (beside_row::ROW, beside_row::WITHOUT)];
    let value = table.median(keys[0]).zip(table.median(keys[1])).map(|(with, without)| with - without);
    Bar { name: "capture_beside_query", value, limit: Limit::AtMost(0.0), faults: table.faults(&keys) }
}

/// 1 where every answer was right.
fn truth(table: &Table) -> Bar {
    let key = (truth_row::ROW, truth_row::QUESTIONS);
    let faults = table.faults(&[key]);
    let value = if faults.is_empty() { table.min(key) } else { Some(0.0) };
    Bar { name: "query_truth", value, limit: Limit::Exactly(1.0), faults }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bar_has_its_name_and_none_holds_unmeasured() {
        let of = |share: &Share| bars(*share, &Table::default());
        let bars: Vec<Bar> = super::super::ALL.iter().flat_map(of).collect();
        let names = [
            "query_host_cold_vs_tcpdump",
            "query_host_warm_vs_tcpdump",
            "query_read_bytes",
            "query_common_vs_tcpdump",
            "query_unscreened_vs_disk",
            "query_span_first_ms",
            "query_all_vs_cat",
            "query_count_vs_column",
            "query_memory_mib",
            "capture_beside_query",
            "query_truth",
        ];
        assert_eq!(bars.iter().map(|bar| bar.name).collect::<Vec<_>>(), names);
        assert!(bars.iter().all(|bar| !bar.holds() && !bar.faults.is_empty()), "{bars:?}");
    }

    fn scanned(disk: f64, tcpdump: f64, common: f64, unscreened: f64, alone: f64, room: f64) -> Table {
        let mut table = Table::default();
        let rows = [
            (scan_rows::DISK, scan_rows::DD, disk),
            (scan_rows::DISK, scan_rows::FIO, disk / 2.0),
            (scan_rows::COMMON, scan_rows::OURS, common),
            (scan_rows::COMMON, scan_rows::TCPDUMP, tcpdump),
            (scan_rows::UNSCREENED, scan_rows::OURS, unscreened),
            (scan_rows::UNSCREENED, scan_rows::PER_CORE, unscreened * 1e4),
            (scan_rows::FILTER, scan_rows::ALONE, alone),
            (scan_rows::FILTER, scan_rows::ROOM, room),
        ];
        for (row, of, value) in rows {
            table.put(row, of, "", Ok(value));
        }
        table
    }

    #[test]
    fn a_slow_disk_asks_for_less_than_tcpdump_does_and_a_fast_one_leaves_it_to_the_cores() {
        let table = scanned(1000.0, 500.0, 810.0, 790.0, 20.0, 800.0);
        let (common, unscreened) = (common(&table), unscreened(&table));
        assert!(common.holds() && common.limit.to_string().contains("0.8 of the disk"), "{common:?}");
        assert_eq!((unscreened.value, unscreened.holds()), (Some(0.79), false));
        let table = scanned(5000.0, 500.0, 1200.0, 2000.0, 40.0, 20.0);
        let (common, unscreened) = (super::common(&table), super::unscreened(&table));
        assert_eq!((common.value, common.holds()), (Some(2.4), false));
        assert!(
            unscreened.holds() && unscreened.limit.to_string().contains("filter's own"),
            "{unscreened:?}"
        );
        assert_eq!(unscreened.value, Some(0.8));
    }
}
