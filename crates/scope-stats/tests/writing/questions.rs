//! What people ask: columns, their values, and the views of scripts that were written for another collector.

use crate::loss;
use crate::made::{
    LENGTH, SECOND, T0, flow, interval, ip, one, open, open_with, options, reader, rows, traffic,
};
use scope_flow::rows::{
    Amount, CommunityId, FlowRow, IntervalRow, Owner, Proto, Reason, Role, Settled, Side, Sum,
};
use scope_stats::schema::{APPLICATION_ID, TABLES, VERSION};
use std::sync::Arc;

#[test]
fn tables_and_views_have_the_columns_that_are_promised() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.sqlite");
    open(&path).close(T0).unwrap();
    let reader = reader(&path);
    let amounts = |prefixes: &[&str], names: &str| -> String {
        let each =
            |prefix: &&str| names.split(' ').map(|name| format!(" {prefix}{name}")).collect::<String>();
        prefixes.iter().map(each).collect()
    };
    let both =
        |names: &str| -> String { names.split(' ').map(|name| format!(" {name}_fwd {name}_rev")).collect() };
    let kinds = amounts(&["tcp_", "udp_", "icmp_", "other_"], "packets bytes");
    let directions = amounts(&["in_", "out_"], "packets bytes ip_bytes");
    let figures = both("packets bytes ip_bytes tcp_flags len_min len_max zero_windows resent");
    let of_collector = amounts(&["tcp_", "udp_", "icmp_", "other_"], "in_bytes out_bytes in_pkts out_pkts");
    let expected = [
        (
            "intervals",
            format!(
                "ts_ns length_ns interface vlan packets bytes ip_packets ip_bytes{kinds} sent_packets sent_bytes \
                 new_flows lost_max"
            ),
        ),
        ("traffic", format!("ts_ns interface vlan ip proto port role{directions}")),
        (
            "flows",
            format!(
                "start_ns end_ns interface interface_rev vlan proto src_ip src_port dst_ip dst_port{figures} \
                 rtt_server_ns rtt_client_ns state community_id reason"
            ),
        ),
        ("losses", "from_ns to_ns interface reason packets".to_string()),
        ("runs", "id run host version begin_ns end_ns sources interval_ns local counters".to_string()),
        ("totals", format!("ts ip{of_collector}")),
        ("protos", "ts ip port ptype in_bytes out_bytes in_pkts out_pkts".to_string()),
    ];
    for (table, columns) in expected {
        let found = rows(&reader, &format!("SELECT name FROM pragma_table_info('{table}')"));
        assert_eq!(found.join(" "), columns, "{table}");
    }
    let tables = rows(&reader, "SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY rowid");
    assert_eq!(tables, TABLES);
    assert_eq!(one::<i32>(&reader, "PRAGMA application_id"), APPLICATION_ID);
    assert_eq!(one::<i32>(&reader, "PRAGMA user_version"), VERSION);
    assert_eq!(one::<String>(&reader, "PRAGMA journal_mode"), "wal");
}

#[test]
fn every_figure_stands_in_its_column() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.sqlite");
    let mut writer = open(&path);
    let sum = |number: u64| Sum { packets: number, bytes: number + 1 };
    let mut row = traffic(T0, "eth0", Owner::Address(ip("2001:db8::1")), 53, 0, 0);
    (row.vlan, row.proto, row.role) = (7, Proto::Udp, Role::Client);
    row.received = Amount { packets: 1, bytes: 2, ip_bytes: 3 };
    row.sent = Amount { packets: 4, bytes: 5, ip_bytes: 6 };
    let side = |first: u64| Side {
        packets: first,
        bytes: first + 1,
        ip_bytes: first + 2,
        tcp_flags: first as u8 + 3,
        len_min: first as u32 + 4,
        len_max: first as u32 + 5,
        zero_windows: first + 6,
        resent: first + 7,
    };
    let mut rows_given = Settled {
        intervals: vec![IntervalRow {
            ts_ns: T0,
            length_ns: LENGTH,
            interface: Arc::from("eth0"),
            vlan: 7,
            packets: 10,
            bytes: 11,
            ip_packets: 12,
            ip_bytes: 13,
            tcp: sum(20),
            udp: sum(22),
            icmp: sum(24),
            other: sum(26),
            sent: sum(28),
            new_flows: 30,
            lost_max: u64::MAX,
        }],
        traffic: vec![row],
        flows: vec![
            FlowRow {
                interface_rev: Some(Arc::from("eth1")),
                vlan: 7,
                forward: side(10),
                reverse: side(20),
                rtt_client_ns: Some(5),
                ..flow(T0, 0)
            },
            FlowRow {
                source: None,
                destination: None,
                rtt_server_ns: None,
                state: None,
                community_id: CommunityId::default(),
                reason: Reason::Unwritten,
                forward: Side::default(),
                reverse: Side::default(),
                ..flow(T0 + 1, 0)
            },
        ],
        losses: vec![loss(T0, 9), scope_flow::rows::LossRow { interface: None, ..loss(T0 + 1, 8) }],
    };
    writer.note_run(&[("rows", 5), ("folded", 0)]);
    writer.write(&mut rows_given, T0).unwrap();
    assert!(rows_given.is_empty(), "what is written is taken away");
    writer.close(T0 + SECOND).unwrap();
    let reader = reader(&path);
    let all = |table: &str| rows(&reader, &format!("SELECT * FROM {table} ORDER BY rowid"));
    let by_key = |table: &str| rows(&reader, &format!("SELECT * FROM {table}"));
    let largest = i64::MAX;
    assert_eq!(
        by_key("intervals"),
        [format!("{T0}|{LENGTH}|eth0|7|10|11|12|13|20|21|22|23|24|25|26|27|28|29|30|{largest}")]
    );
    assert_eq!(by_key("traffic"), [format!("{T0}|eth0|7|2001:db8::1|udp|53|client|1|2|3|4|5|6")]);
    let zeros = ["0"; 16].join("|");
    assert_eq!(
        all("flows"),
        [
            format!(
                "{}|{T0}|eth0|eth1|7|6|10.0.0.1|40000|10.0.0.2|443|10|20|11|21|12|22|13|23|14|24|15|25|16|26|17|27|\
                 1000000|5|closed|1:abc=|end",
                T0 - SECOND
            ),
            format!("{}|{}|eth0|NULL|0|6||0||0|{zeros}|NULL|NULL|NULL||unwritten", T0 + 1 - SECOND, T0 + 1),
        ]
    );
    assert_eq!(
        all("losses"),
        [format!("{}|{T0}|eth0|ring|9", T0 - SECOND), format!("{}|{}|NULL|ring|8", T0 + 1 - SECOND, T0 + 1)]
    );
    assert_eq!(
        all("runs"),
        [format!(
            "1|run-1|here|0.1.0|{T0}|{}|[\"eth0\",\"a \\\"b\\\"\"]|{LENGTH}|any|{{\"folded\":0,\"rows\":5}}",
            T0 + SECOND
        )]
    );
    let sources = "SELECT json_extract(sources, '$[1]') || json_extract(counters, '$.rows') FROM runs";
    assert_eq!(one::<String>(&reader, sources), "a \"b\"5");
}

#[test]
fn an_existing_database_is_continued_as_a_new_run() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.sqlite");
    for run in 1..=3u64 {
        let mut writer = open(&path);
        let counters = "SELECT end_ns, counters FROM runs ORDER BY id DESC LIMIT 1";
        assert_eq!(rows(&reader(&path), counters), ["NULL|{}"], "a line before any row");
        writer.note_run(&[("rows", run)]);
        writer
            .write(&mut Settled { intervals: vec![interval(T0, "eth0", run)], ..Settled::default() }, T0)
            .unwrap();
        assert_eq!(rows(&reader(&path), counters), [format!("NULL|{{\"rows\":{run}}}")]);
        writer.close(T0 + run as i64).unwrap();
    }
    let reader = reader(&path);
    let runs = rows(&reader, "SELECT id, end_ns - begin_ns, json_extract(counters, '$.rows') FROM runs");
    assert_eq!(runs, ["1|1|1", "2|2|2", "3|3|3"]);
    assert_eq!(one::<i64>(&reader, "SELECT packets FROM intervals"), 6);
}

#[test]
fn without_flow_rows_only_their_number_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.sqlite");
    let mut writer = open_with(scope_stats::Options { flow_rows: false, ..options(&path) });
    let mut given = Settled {
        intervals: vec![IntervalRow { new_flows: 2, ..interval(T0, "eth0", 5) }],
        flows: vec![flow(T0, 1), flow(T0, 2)],
        ..Settled::default()
    };
    writer.write(&mut given, T0).unwrap();
    assert!(given.is_empty());
    let reader = reader(&path);
    assert_eq!(one::<i64>(&reader, "SELECT count(*) FROM flows"), 0);
    assert_eq!(one::<i64>(&reader, "SELECT new_flows FROM intervals"), 2);
}

/// Two local addresses, two interfaces, both roles, all protocols, two seconds.
fn collected(path: &std::path::Path) -> rusqlite::Connection {
    let mut writer = open_with(scope_stats::Options { interval_ns: SECOND / 2, ..options(path) });
    let (first, second) = (Owner::Address(ip("192.168.1.5")), Owner::Address(ip("255.255.255.255")));
    let mut rows = Settled::default();
    let half = SECOND / 2;
    for (ts_ns, interface) in [(T0, "eth0"), (T0, "eth1"), (T0 + half, "eth0"), (T0 + SECOND, "eth0")] {
        rows.intervals.push(IntervalRow { length_ns: half, ..interval(ts_ns, interface, 0) });
    }
    let mut add = |ts_ns, interface, ip, proto, port, role, received, sent| {
        let row = traffic(ts_ns, interface, ip, port, received, sent);
        rows.traffic.push(scope_flow::rows::TrafficRow { proto, role, ..row });
    };
    add(T0, "eth0", first, Proto::Tcp, 443, Role::Server, 1, 10);
    add(T0, "eth1", first, Proto::Tcp, 443, Role::Server, 2, 20);
    add(T0 + half, "eth0", first, Proto::Tcp, 443, Role::Server, 4, 40);
    add(T0, "eth0", first, Proto::Tcp, 80, Role::Client, 100, 200);
    add(T0, "eth0", first, Proto::Tcp, 22, Role::Client, 1000, 2000);
    add(T0, "eth0", first, Proto::Udp, 53, Role::Client, 5, 6);
    add(T0, "eth0", first, Proto::Icmp, 0, Role::Server, 7, 8);
    add(T0, "eth0", first, Proto::Other, 0, Role::Server, 9, 11);
    add(T0, "eth0", second, Proto::Udp, 67, Role::Server, 3, 0);
    add(T0 + SECOND, "eth0", first, Proto::Udp, 0, Role::Server, 12, 13);
    // Not of a local IPv4 address.
    add(T0, "eth0", Owner::Others, Proto::Tcp, 443, Role::Client, 1, 1);
    add(T0, "eth0", Owner::Folded, Proto::Tcp, 443, Role::Client, 1, 1);
    add(T0, "eth0", Owner::Address(ip("2001:db8::1")), Proto::Tcp, 443, Role::Client, 1, 1);
    add(T0, "eth0", Owner::Address(ip("::ffff:10.0.0.1")), Proto::Tcp, 443, Role::Client, 1, 1);
    writer.write(&mut rows, T0).unwrap();
    writer.close(T0).unwrap();
    reader(path)
}

const TS: i64 = T0 / SECOND;
const FIRST: i64 = 0xc0a8_0105;
const SECOND_IP: i64 = 0xffff_ffff;

#[test]
fn totals_are_those_of_local_ipv4_addresses_by_second() {
    let folder = tempfile::tempdir().unwrap();
    let reader = collected(&folder.path().join("x.sqlite"));
    let of = |packets: [u64; 8]| -> String {
        let text = |pair: &[u64]| format!("{}|{}|{}|{}", pair[0] * 86, pair[1] * 86, pair[0], pair[1]);
        packets.chunks(2).map(text).collect::<Vec<_>>().join("|")
    };
    assert_eq!(
        rows(&reader, "SELECT * FROM totals ORDER BY ts, ip"),
        [
            format!("{TS}|{FIRST}|{}", of([1107, 2270, 5, 6, 7, 8, 9, 11])),
            format!("{TS}|{SECOND_IP}|{}", of([0, 0, 3, 0, 0, 0, 0, 0])),
            format!("{}|{FIRST}|{}", TS + 1, of([0, 0, 12, 13, 0, 0, 0, 0])),
        ]
    );
}

#[test]
fn protos_are_tcp_and_udp_by_the_ports_of_servers() {
    let folder = tempfile::tempdir().unwrap();
    let reader = collected(&folder.path().join("x.sqlite"));
    let line = |ts: i64, ip: i64, port: u16, ptype: u8, packets: [u64; 2]| {
        format!(
            "{ts}|{ip}|{port}|{ptype}|{}|{}|{}|{}",
            packets[0] * 86,
            packets[1] * 86,
            packets[0],
            packets[1]
        )
    };
    assert_eq!(
        rows(&reader, "SELECT * FROM protos ORDER BY ts, ip, ptype, port"),
        [
            line(TS, FIRST, 0, 0, [1100, 2200]),
            line(TS, FIRST, 443, 0, [7, 70]),
            line(TS, FIRST, 0, 1, [5, 6]),
            line(TS, SECOND_IP, 67, 1, [3, 0]),
            line(TS + 1, FIRST, 0, 1, [12, 13]),
        ]
    );
}

/// What the collector's own script asks, in its form: the top addresses of a while, then types, then ports.
#[test]
fn questions_as_scripts_of_the_collector_ask_them_are_answered_by_way_of_an_index() {
    let folder = tempfile::tempdir().unwrap();
    let reader = collected(&folder.path().join("x.sqlite"));
    let span = format!("ts BETWEEN {TS} AND {}", TS + 180);
    let top = format!(
        "SELECT ip, SUM(tcp_in_bytes + udp_in_bytes + tcp_out_bytes) + SUM(udp_out_bytes) AS sum FROM totals \
         WHERE {span} GROUP BY ip ORDER BY sum DESC LIMIT 3"
    );
    let packets = 1107 + 2270 + 5 + 6 + 12 + 13;
    assert_eq!(rows(&reader, &top), [format!("{FIRST}|{}", packets * 86), format!("{SECOND_IP}|{}", 3 * 86)]);
    let kinds = format!(
        "SELECT ptype, SUM(in_bytes), SUM(out_bytes) FROM protos WHERE ip={FIRST} AND {span} AND ptype=0 UNION \
         SELECT ptype, SUM(in_bytes), SUM(out_bytes) FROM protos WHERE ip={FIRST} AND {span} AND ptype=1"
    );
    assert_eq!(
        rows(&reader, &kinds),
        [format!("0|{}|{}", 1107 * 86, 2270 * 86), format!("1|{}|{}", 17 * 86, 19 * 86)]
    );
    let ports = format!(
        "SELECT port, SUM(in_bytes+out_bytes) AS sum FROM protos WHERE ip={FIRST} AND ptype=0 AND {span} \
         GROUP BY port HAVING sum > 0 ORDER BY sum DESC LIMIT 5"
    );
    assert_eq!(rows(&reader, &ports), [format!("0|{}", 3300 * 86), format!("443|{}", 77 * 86)]);
    for sql in [top, kinds, ports] {
        let plan = rows(&reader, &format!("EXPLAIN QUERY PLAN {sql}")).join("\n");
        assert!(plan.contains("USING COVERING INDEX intervals_by_second (<expr>>? AND <expr><?)"), "{plan}");
        assert!(plan.contains("SEARCH t USING PRIMARY KEY (ts_ns=? AND interface=? AND vlan=?)"), "{plan}");
    }
}
