//! Records of flows as lines of at most 80 columns.
//!
//! ```text
//! -- 2026-11-20 +01
//! 20:31:05  1.2s    12  1.4K tcp  10.0.0.1:40000 > 192.0.2.9:443
//! 20:31:07  30ms     2   160 udp  [2001:db8:1111:2222:3333:4444:5555:6666]:40000
//!                               > [2001:db8:1111:2222:3333:4444:5555:7777]:53
//! ```
//! When it began, how long it lasted, its packets and bytes in both directions, protocol, both ends. A day has a line
//! of its own, where it differs from the one before.

use jiff::Timestamp;
use jiff::tz::TimeZone;
use scope_stats::asking::flows::{FlowColumns, FlowRecord};
use std::net::IpAddr;

/// Columns of a line.
const COLUMNS: usize = 80;
/// Where the ends begin.
const ENDS_AT: usize = 33;

/// Makes lines of records.
pub struct Table {
    zone: TimeZone,
    /// The line of the day that came last.
    day: String,
}

impl Table {
    /// The line above all.
    pub const HEAD: &'static str = "BEGIN     LAST   PKTS BYTES PROTO\n";

    /// With times of this zone.
    pub fn new(zone: TimeZone) -> Table {
        Table { zone, day: String::new() }
    }

    /// The lines of a record.
    pub fn lines(&mut self, columns: &FlowColumns, record: &FlowRecord) -> String {
        let number = |name: &str| columns.number(record, name);
        let both = |name: &str| {
            let [forward, reverse] = ["fwd", "rev"].map(|side| number(&format!("{name}_{side}")));
            forward.saturating_add(reverse)
        };
        let (start_ns, end_ns) = (number("start_ns"), number("end_ns"));
        let (day, time) = self.day_and_time(start_ns);
        let mut text = String::new();
        if day != self.day {
            text.push_str(&format!("{day}\n"));
            self.day = day;
        }
        let front = format!(
            "{time} {:>5} {:>5} {:>5} {:<5} ",
            lasted(end_ns - start_ns),
            scaled(both("packets"), 1000),
            scaled(both("bytes"), 1024),
            protocol(number("proto")),
        );
        let Some(flow) = record.flow else {
            text.push_str(&format!("{front}several flows that had no room of their own\n"));
            return text;
        };
        let [source, destination] = [flow.source, flow.destination].map(end);
        let indent = " ".repeat(ENDS_AT - 2);
        match front.len() + source.len() + 3 + destination.len() <= COLUMNS {
            true => text.push_str(&format!("{front}{source} > {destination}\n")),
            false => text.push_str(&format!("{front}{source}\n{indent}> {destination}\n")),
        }
        text
    }

    fn day_and_time(&self, time_ns: i64) -> (String, String) {
        match Timestamp::from_nanosecond(time_ns.into()) {
            Ok(time) => {
                let time = time.to_zoned(self.zone.clone());
                (time.strftime("-- %Y-%m-%d %:::z").to_string(), time.strftime("%H:%M:%S").to_string())
            }
            Err(_) => (String::new(), "?".to_string()),
        }
    }
}

/// An address and a port, if there is one.
fn end((address, port): (IpAddr, u16)) -> String {
    match (address, port) {
        (_, 0) => address.to_string(),
        (IpAddr::V4(_), _) => format!("{address}:{port}"),
        (IpAddr::V6(_), _) => format!("[{address}]:{port}"),
    }
}

/// A length of time in five letters.
fn lasted(ns: i64) -> String {
    let (ms, s, minutes) = (ns / 1_000_000, ns / 1_000_000_000, ns / 60_000_000_000);
    match (s, minutes) {
        (0, _) => format!("{}ms", ms.max(0)),
        (..10, _) => format!("{s}.{}s", ms / 100 % 10),
        (..600, _) => format!("{s}s"),
        (_, ..100) => format!("{minutes}min"),
        _ => format!("{}h", (minutes / 60).min(9999)),
    }
}

/// A number in five letters, in steps of `step`.
fn scaled(value: i64, step: i64) -> String {
    const UNITS: [&str; 7] = ["", "K", "M", "G", "T", "P", "E"];
    let (mut scaled, mut unit) = (value as f64, 0);
    while scaled >= 999.5 && unit + 1 < UNITS.len() {
        (scaled, unit) = (scaled / step as f64, unit + 1);
    }
    match scaled < 9.95 && unit > 0 {
        true => format!("{scaled:.1}{}", UNITS[unit]),
        false => format!("{scaled:.0}{}", UNITS[unit]),
    }
}

/// The word for a protocol, or its number.
fn protocol(number: i64) -> String {
    match number {
        1 => "icmp".to_string(),
        6 => "tcp".to_string(),
        17 => "udp".to_string(),
        58 => "icmp6".to_string(),
        132 => "sctp".to_string(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use scope_filter::FlowKey;
    use scope_stats::asking::sql::Cell;

    const BEGIN: i64 = 1_795_206_665_123_456_789; // 2026-11-20T20:31:05Z

    fn record(columns: &FlowColumns, figures: &[(&str, i64)], ends: Option<[(&str, u16); 2]>) -> FlowRecord {
        let values = columns.names().filter(|name| *name != "filter").map(|name| {
            let figure = figures.iter().find(|(known, _)| *known == name);
            figure.map_or(Cell::Null, |(_, value)| Cell::Integer(*value))
        });
        let flow = ends.map(|ends| {
            let [source, destination] = ends.map(|(address, port)| (address.parse().unwrap(), port));
            FlowKey { vlan: 0, protocol: 6, source, destination }
        });
        FlowRecord { values: values.collect(), flow, filter: String::new() }
    }

    #[test]
    fn a_record_is_a_line_and_two_where_its_ends_are_too_long() {
        let columns = FlowColumns::known().unwrap();
        let mut table = Table::new(TimeZone::UTC);
        let figures = [
            ("start_ns", BEGIN),
            ("end_ns", BEGIN + 1_250_000_000),
            ("proto", 6),
            ("packets_fwd", 7),
            ("packets_rev", 5),
            ("bytes_fwd", 1000),
            ("bytes_rev", 434),
        ];
        let web = record(&columns, &figures, Some([("10.0.0.1", 40000), ("192.0.2.9", 443)]));
        assert_eq!(
            table.lines(&columns, &web),
            "-- 2026-11-20 +00\n20:31:05  1.2s    12  1.4K tcp   10.0.0.1:40000 > 192.0.2.9:443\n"
        );
        let long = "2001:db8:1111:2222:3333:4444:5555:6666";
        let v6 = record(&columns, &figures, Some([(long, 40000), (long, 53)]));
        let lines = table.lines(&columns, &v6);
        assert_eq!(lines.lines().count(), 2, "the day is known");
        assert!(lines.lines().nth(1).unwrap().ends_with("  > [2001:db8:1111:2222:3333:4444:5555:6666]:53"));
        let ping = record(&columns, &figures, Some([("fe80::1", 0), ("fe80::2", 0)]));
        assert!(table.lines(&columns, &ping).ends_with(" fe80::1 > fe80::2\n"));
        assert!(table.lines(&columns, &record(&columns, &figures, None)).ends_with("no room of their own\n"));
    }

    #[test]
    fn no_line_is_longer_than_80_columns() {
        let columns = FlowColumns::known().unwrap();
        let mut table = Table::new(TimeZone::UTC);
        for value in [0, 9, 999, 1000, 1023, 1024, 99_999, 999_500, 1 << 40, i64::MAX / 4] {
            let names = ["packets_fwd", "packets_rev", "bytes_fwd", "bytes_rev"];
            let mut figures: Vec<(&str, i64)> = names.iter().map(|name| (*name, value)).collect();
            figures.extend([("start_ns", BEGIN), ("end_ns", BEGIN + value), ("proto", 255)]);
            for ends in [
                Some([("255.255.255.255", 65535); 2]),
                Some([("2001:db8:1111:2222:3333:4444:5555:6666", 65535); 2]),
                None,
            ] {
                let lines = table.lines(&columns, &record(&columns, &figures, ends));
                assert!(lines.lines().all(|line| line.len() <= COLUMNS), "{lines}");
            }
        }
    }

    #[test]
    fn figures_have_five_letters_at_most() {
        for value in (0..63).flat_map(|bit| [(1i64 << bit) - 1, 1 << bit, (1 << bit) + (1 << bit) / 3]) {
            for text in [scaled(value, 1000), scaled(value, 1024), lasted(value.min(RECORD_NS_MAX))] {
                assert!(text.len() <= 5, "{value}: {text}");
            }
        }
        let check = |found: String, expected: &str| assert_eq!(found, expected);
        check(scaled(999, 1000), "999");
        check(scaled(1000, 1000), "1.0K");
        check(scaled(1434, 1024), "1.4K");
        check(scaled(10 << 20, 1024), "10M");
        check(lasted(30_000_000), "30ms");
        check(lasted(61_000_000_000), "61s");
        check(lasted(3_600_000_000_000), "60min");
        check(lasted(7_300_000_000_000), "2h");
        check(lasted(80_000_000_000_000), "22h");
    }

    const RECORD_NS_MAX: i64 = scope_stats::asking::flows::RECORD_NS_MAX;
}
