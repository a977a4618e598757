//! The busiest, held against sums over all rows.

use crate::made::{Made, SECOND, T0, database, made, options, watch, writer};
use scope_flow::rows::{Amount, FlowRow, Owner, Proto};
use scope_stats::Writer;
use scope_stats::asking::AskError;
use scope_stats::asking::top::{By, Dim, Figures, Key, TopQuestion};
use std::collections::BTreeMap;

/// What all keys have, by adding up every row of the span.
fn naive(made: &Made, question: TopQuestion) -> BTreeMap<Key, Figures> {
    let rows = &made.rows;
    let end_ns = rows.intervals.iter().map(|row| row.ts_ns + row.length_ns).max().unwrap();
    let length_ns = rows.intervals[0].length_ns;
    // The interval that is touched counts as a whole.
    let from_ns = (end_ns - question.last_ns).div_euclid(length_ns) * length_ns;
    let within = |time_ns: i64| (from_ns..end_ns).contains(&time_ns);
    let mut all: BTreeMap<Key, Figures> = BTreeMap::new();
    let mut add = |key: Key, packets: u64, bytes: u64, received: Option<Amount>, flows: Option<u64>| {
        let figures = all.entry(key).or_default();
        figures.packets += packets;
        figures.bytes += bytes;
        if let Some(amount) = received {
            let (packets, bytes) = figures.received.unwrap_or_default();
            figures.received = Some((packets + amount.packets, bytes + amount.bytes));
        }
        if let Some(flows) = flows {
            figures.flows = Some(figures.flows.unwrap_or(0) + flows);
        }
    };
    let flows = rows.flows.iter().filter(|row| within(row.end_ns));
    let sums =
        |row: &FlowRow| (row.forward.packets + row.reverse.packets, row.forward.bytes + row.reverse.bytes);
    let traffic = rows.traffic.iter().filter(|row| within(row.ts_ns));
    match (question.by, question.dim) {
        (By::Bytes | By::Packets, Dim::Ip) => {
            for row in traffic {
                let ip = match row.ip {
                    Owner::Address(ip) => ip.to_string(),
                    Owner::Folded => "*".to_string(),
                    Owner::Others => continue,
                };
                let packets = row.received.packets + row.sent.packets;
                let bytes = row.received.bytes + row.sent.bytes;
                add(Key::Ip(ip), packets, bytes, Some(row.received), None);
            }
        }
        (By::Bytes | By::Packets, Dim::Port) => {
            for row in traffic.filter(|row| row.received.packets > 0) {
                let key = Key::Port(row.proto.word().to_string(), row.port);
                add(key, row.received.packets, row.received.bytes, None, None);
            }
        }
        (By::Bytes | By::Packets, Dim::Vlan) => {
            for row in rows.intervals.iter().filter(|row| within(row.ts_ns)) {
                add(Key::Vlan(row.vlan), row.packets, row.bytes, None, None);
            }
        }
        (_, dim) => {
            for row in flows {
                let (Some((source, from)), Some((destination, to))) = (row.source, row.destination) else {
                    continue;
                };
                let (packets, bytes) = sums(row);
                let mut ips = vec![source.to_string(), destination.to_string()];
                ips.sort();
                match dim {
                    Dim::Pair => {
                        add(Key::Pair(ips[0].clone(), ips[1].clone()), packets, bytes, None, Some(1))
                    }
                    Dim::Vlan => add(Key::Vlan(row.vlan), packets, bytes, None, Some(1)),
                    Dim::Port => {
                        let proto = match Proto::of(row.proto) {
                            Proto::Other => row.proto.to_string(),
                            known => known.word().to_string(),
                        };
                        let has_ports = [6, 17, 132].contains(&row.proto);
                        let port = Some(from.min(to)).filter(|port| has_ports && *port < 32768);
                        add(Key::Port(proto, port.unwrap_or(0)), packets, bytes, None, Some(1));
                    }
                    Dim::Ip => {
                        ips.dedup();
                        for ip in ips {
                            add(Key::Ip(ip), packets, bytes, None, Some(1));
                        }
                    }
                }
            }
        }
    }
    all
}

#[test]
fn each_order_of_each_kind_is_what_all_rows_add_up_to() {
    let made = made(1);
    let questions = By::WORDS.into_iter().flat_map(|(_, by)| Dim::WORDS.map(|(_, dim)| (by, dim)));
    for (by, dim) in questions {
        for last_ns in [SECOND, 45 * SECOND, 26 * 3600 * SECOND, i64::MAX] {
            let question = TopQuestion { by, dim, last_ns, rows: 5 };
            let mut expected: Vec<_> = naive(&made, question).into_iter().collect();
            let different = expected.len();
            expected.sort_by_key(|(_, figures)| {
                std::cmp::Reverse((figures.of(by), figures.bytes, figures.packets))
            });
            expected.truncate(5);
            for database in made.both() {
                let answer = database.top(question, &watch()).unwrap();
                assert_eq!(answer.rows, expected, "{question:?} {}", database.path().display());
                assert_eq!(answer.different, different);
            }
        }
    }
}

#[test]
fn what_all_come_to_has_each_packet_once() {
    let made = made(2);
    for database in made.both() {
        let question = |by, dim| TopQuestion { by, dim, last_ns: i64::MAX, rows: 3 };
        let all = |by, dim| database.top(question(by, dim), &watch()).unwrap();
        let sum = |which: fn(&scope_flow::rows::IntervalRow) -> u64| {
            made.rows.intervals.iter().map(which).sum::<u64>()
        };
        let ports = all(By::Packets, Dim::Port);
        assert_eq!(
            (ports.all.packets, ports.all.bytes),
            (sum(|row| row.ip_packets), sum(|row| row.tcp.bytes))
        );
        let vlans = all(By::Bytes, Dim::Vlan);
        assert_eq!((vlans.all.packets, vlans.all.bytes), (sum(|row| row.packets), sum(|row| row.bytes)));
        assert_eq!(vlans.lost_max, sum(|row| row.lost_max));
        let pairs = all(By::Flows, Dim::Pair);
        assert_eq!(pairs.all.flows, Some(made.rows.flows.len() as u64));
        let packets =
            made.rows.flows.iter().map(|row| row.forward.packets + row.reverse.packets).sum::<u64>();
        assert_eq!(pairs.all.packets, packets);
        let (from_ns, to_ns) = pairs.span_ns;
        assert!(from_ns < T0 && made.rows.intervals.iter().all(|row| row.ts_ns < to_ns));
    }
}

#[test]
fn a_database_without_an_interval_says_so() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("x.sqlite");
    let writer = writer(&path);
    let asked = database(&path).top(TopQuestion::default(), &watch());
    let AskError::Refused(fault) = asked.unwrap_err() else { panic!("not refused") };
    assert!(fault.to_string().contains("no interval in it yet"), "{fault}");
    writer.close(T0).unwrap();
    let folder = root.path().join("days");
    std::fs::create_dir(&folder).unwrap();
    let fault = database(&folder).top(TopQuestion::default(), &watch()).unwrap_err();
    assert!(fault.to_string().contains("no database in it"), "{fault}");
    assert!(Writer::open(options(&folder), crate::made::facts()).is_ok());
}

#[test]
fn the_answer_as_json_has_the_key_by_its_name() {
    let made = made(3);
    let json = |by, dim| {
        let question = TopQuestion { by, dim, last_ns: i64::MAX, rows: 1 };
        serde_json::Value::Object(made.both()[0].top(question, &watch()).unwrap().to_json())
    };
    let ips = json(By::Bytes, Dim::Ip);
    assert_eq!((&ips["by"], &ips["dim"]), (&"bytes".into(), &"ip".into()));
    let row = &ips["rows"][0];
    let number = |key: &str| row[key].as_u64().unwrap();
    assert!(row["ip"].is_string() && number("bytes") == number("in_bytes") + number("out_bytes"));
    assert!(ips["to"].as_str().unwrap().ends_with('Z') && ips["to_ns"].is_i64());
    assert!(json(By::Flows, Dim::Port)["rows"][0]["proto"].is_string());
    assert_eq!(json(By::Flows, Dim::Pair)["rows"][0]["pair"].as_array().unwrap().len(), 2);
    assert!(json(By::Packets, Dim::Vlan)["rows"][0]["vlan"].is_u64());
}
