//! Whatever way rows come in, the sums are those of a naive model.

use crate::HOUR;
use crate::made::{LENGTH, T0, flow, ip, open, open_with, options, reader};
use proptest::prelude::*;
use rusqlite::Connection;
use scope_flow::rows::{Amount, IntervalRow, LossRow, Owner, Proto, Role, Settled, Sum, TrafficRow};
use scope_stats::place::Period;
use scope_stats::{Every, Options, Writer};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What a row is of: few keys, so that many rows meet.
#[derive(Clone, Copy, Debug)]
struct Key {
    time: i64,
    interface: usize,
    vlan: u16,
    owner: usize,
    proto: usize,
    port: u16,
    role: usize,
}

#[derive(Clone, Copy, Debug)]
enum Row {
    Interval(Key, u32),
    Traffic(Key, u32),
    Flow(i64, u32),
    Loss(i64, u32),
}

const INTERFACES: [&str; 2] = ["eth0", "eth1"];
const PROTOS: [Proto; 4] = [Proto::Tcp, Proto::Udp, Proto::Icmp, Proto::Other];
const ROLES: [Role; 2] = [Role::Server, Role::Client];

fn owners() -> [Owner; 4] {
    [Owner::Address(ip("10.0.0.1")), Owner::Address(ip("2001:db8::1")), Owner::Others, Owner::Folded]
}

/// Times within three hours, some in the same interval.
fn time() -> impl Strategy<Value = i64> {
    prop_oneof![0..3i64, 358..362i64, 1079..1081i64].prop_map(|step| T0 + step * LENGTH)
}

prop_compose! {
    fn key()(
        time in time(), interface in 0..2usize, vlan in 0..2u16, owner in 0..4usize, proto in 0..4usize,
        port in 0..2u16, role in 0..2usize,
    ) -> Key {
        Key { time, interface, vlan, owner, proto, port, role }
    }
}

fn row() -> impl Strategy<Value = Row> {
    prop_oneof![
        (key(), any::<u32>()).prop_map(|(key, number)| Row::Interval(key, number)),
        (key(), any::<u32>()).prop_map(|(key, number)| Row::Traffic(key, number)),
        (time(), any::<u32>()).prop_map(|(time, number)| Row::Flow(time, number)),
        (time(), any::<u32>()).prop_map(|(time, number)| Row::Loss(time, number)),
    ]
}

/// The numbers of an interval: each column another one.
fn interval(key: Key, number: u32) -> IntervalRow {
    let at = |column: u64| u64::from(number) * 32 + column;
    let sum = |column: u64| Sum { packets: at(column), bytes: at(column + 1) };
    IntervalRow {
        ts_ns: key.time,
        length_ns: LENGTH,
        interface: Arc::from(INTERFACES[key.interface]),
        vlan: key.vlan,
        packets: at(0),
        bytes: at(1),
        ip_packets: at(2),
        ip_bytes: at(3),
        tcp: sum(4),
        udp: sum(6),
        icmp: sum(8),
        other: sum(10),
        sent: sum(12),
        new_flows: at(14),
        lost_max: at(15),
    }
}

fn traffic(key: Key, number: u32) -> TrafficRow {
    let at = |column: u64| u64::from(number) * 32 + column;
    let amount =
        |column: u64| Amount { packets: at(column), bytes: at(column + 1), ip_bytes: at(column + 2) };
    TrafficRow {
        ts_ns: key.time,
        interface: Arc::from(INTERFACES[key.interface]),
        vlan: key.vlan,
        ip: owners()[key.owner],
        proto: PROTOS[key.proto],
        port: key.port,
        role: ROLES[key.role],
        received: amount(0),
        sent: amount(3),
    }
}

/// Tables as sums by key: the last number of an interval is a maximum.
#[derive(Debug, Default, PartialEq)]
struct Model {
    intervals: BTreeMap<String, [i64; 16]>,
    traffic: BTreeMap<String, [i64; 6]>,
    flows: BTreeMap<(i64, i64), u64>,
    losses: BTreeMap<(i64, i64), u64>,
}

impl Model {
    fn add(&mut self, row: Row) {
        match row {
            Row::Interval(key, number) => {
                let text = format!("{}|{}|{}", key.time, INTERFACES[key.interface], key.vlan);
                let sums = self.intervals.entry(text).or_default();
                for (column, sum) in sums.iter_mut().enumerate() {
                    let value = i64::from(number) * 32 + column as i64;
                    *sum = if column == 15 { value.max(*sum) } else { *sum + value };
                }
            }
            Row::Traffic(key, number) => {
                let owner = ["10.0.0.1", "2001:db8::1", "", "*"][key.owner];
                let proto = ["tcp", "udp", "icmp", "other"][key.proto];
                let role = ["server", "client"][key.role];
                let interface = INTERFACES[key.interface];
                let text =
                    format!("{}|{interface}|{}|{owner}|{proto}|{}|{role}", key.time, key.vlan, key.port);
                let sums = self.traffic.entry(text).or_default();
                for (column, sum) in sums.iter_mut().enumerate() {
                    *sum += i64::from(number) * 32 + column as i64;
                }
            }
            Row::Flow(time, number) => *self.flows.entry((time, number.into())).or_default() += 1,
            Row::Loss(time, number) => *self.losses.entry((time, number.into())).or_default() += 1,
        }
    }

    /// What stands in a database; no key may stand in two of them.
    fn read(&mut self, connection: &Connection, period: Option<Period>) {
        let read = |sql: &str, keys: usize, each: &mut dyn FnMut(String, Vec<i64>)| {
            let mut statement = connection.prepare(sql).unwrap();
            let columns = statement.column_count();
            let mut rows = statement.query([]).unwrap();
            while let Some(row) = rows.next().unwrap() {
                let text = |at: usize| match row.get_ref(at).unwrap() {
                    rusqlite::types::ValueRef::Integer(number) => number.to_string(),
                    other => other.as_str().unwrap().to_string(),
                };
                let key = (0..keys).map(text).collect::<Vec<_>>().join("|");
                each(key, (keys..columns).map(|at| row.get(at).unwrap()).collect());
            }
        };
        let fresh = |was: bool| assert!(was, "a key stands in two files");
        read(
            "SELECT ts_ns, interface, vlan, packets, bytes, ip_packets, ip_bytes, tcp_packets, tcp_bytes, \
             udp_packets, udp_bytes, icmp_packets, icmp_bytes, other_packets, other_bytes, sent_packets, \
             sent_bytes, new_flows, lost_max FROM intervals",
            3,
            &mut |key, sums| fresh(self.intervals.insert(key, sums.try_into().unwrap()).is_none()),
        );
        read("SELECT * FROM traffic", 7, &mut |key, sums| {
            fresh(self.traffic.insert(key, sums.try_into().unwrap()).is_none());
        });
        read("SELECT end_ns, packets_fwd FROM flows", 0, &mut |_, row| {
            *self.flows.entry((row[0], row[1])).or_default() += 1;
        });
        // A loss counts in the file of its end.
        let end_ns = period.map_or(i64::MAX, |period| period.to_ns - 1);
        let losses = format!("SELECT to_ns, packets FROM losses WHERE to_ns <= {end_ns}");
        read(&losses, 0, &mut |_, row| {
            *self.losses.entry((row[0], row[1])).or_default() += 1;
        });
    }

    fn of_files(paths: &[PathBuf]) -> Model {
        let mut model = Model::default();
        for path in paths {
            model.read(&reader(path), Period::of_file(&path.file_name().unwrap().to_string_lossy()));
        }
        model
    }
}

fn settled(rows: &[Row]) -> Settled {
    let mut settled = Settled::default();
    for row in rows {
        match *row {
            Row::Interval(key, number) => settled.intervals.push(interval(key, number)),
            Row::Traffic(key, number) => settled.traffic.push(traffic(key, number)),
            Row::Flow(time, number) => settled.flows.push(flow(time, number.into())),
            Row::Loss(time, number) => settled.losses.push(LossRow {
                from_ns: time - HOUR,
                to_ns: time,
                interface: None,
                reason: "ring",
                packets: number.into(),
                late_until_ns: 0,
                filed_until_ns: 0,
            }),
        }
    }
    settled
}

/// Writes the rows, call by call.
fn write(mut writer: Writer, calls: &[Vec<Row>]) -> Model {
    let mut model = Model::default();
    for (at, call) in calls.iter().enumerate() {
        call.iter().for_each(|&row| model.add(row));
        let mut rows = settled(call);
        writer.write(&mut rows, T0 + at as i64 * 40_000_000_000).unwrap();
        assert!(rows.is_empty());
    }
    writer.close(T0).unwrap();
    model
}

fn sqlite_files(folder: &Path) -> Vec<PathBuf> {
    let paths = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut paths: Vec<PathBuf> = paths.collect();
    paths.sort();
    assert!(paths.iter().all(|path| path.extension().unwrap() == "sqlite"), "{paths:?}");
    paths
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn rows_are_added_to_those_of_their_key_however_they_are_split(
        calls in prop::collection::vec(prop::collection::vec(row(), 0..40), 1..6),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.sqlite");
        let model = write(open(&path), &calls);
        prop_assert_eq!(Model::of_files(&[path]), model);
    }

    #[test]
    fn files_of_a_folder_have_all_rows_together_and_each_key_once(
        calls in prop::collection::vec(prop::collection::vec(row(), 0..40), 1..6), every in 0..3usize,
    ) {
        let folder = tempfile::tempdir().unwrap();
        let every = Some(Every::WORDS[every].1);
        let model = write(open_with(Options { every, ..options(folder.path()) }), &calls);
        prop_assert_eq!(Model::of_files(&sqlite_files(folder.path())), model);
    }
}

#[test]
fn more_rows_than_go_into_one_transaction_are_written_interval_by_interval() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.sqlite");
    let key = |time, port| Key { time, interface: 0, vlan: 0, owner: 0, proto: 0, port, role: 0 };
    let mut rows: Vec<Row> = (0..10_000).map(|number| Row::Flow(T0, number)).collect();
    // An interval that is longer than a transaction of several, then many short ones.
    rows.extend((0..5000).map(|port| Row::Traffic(key(T0, port), 1)));
    rows.extend((1..200i64).flat_map(|step| {
        let time = T0 + step * LENGTH;
        (0..50).map(move |port| Row::Traffic(key(time, port), 2)).chain([Row::Interval(key(time, 0), 3)])
    }));
    let mut model = Model::default();
    rows.iter().for_each(|&row| model.add(row));
    let mut writer = open(&path);
    let mut given = settled(&rows);
    writer.write(&mut given, T0).unwrap();
    let counters = writer.counters();
    assert_eq!(counters.rows, rows.len() as u64);
    // The run's line; 4096 flows each with the first interval, 80 others, 80 others, and the rest.
    assert_eq!(counters.transactions, 1 + 4);
    assert_eq!(counters.last_interval_ns, Some(T0 + 199 * LENGTH));
    writer.close(T0).unwrap();
    assert_eq!(Model::of_files(&[path]), model);
}
