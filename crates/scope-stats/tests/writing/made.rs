//! Rows, writers and readers as tests need them.

use rusqlite::types::FromSql;
use rusqlite::{Connection, OpenFlags};
use scope_flow::rows::{
    Amount, CommunityId, FlowRow, IntervalRow, Owner, Proto, Reason, Role, Settled, Side, State, Sum,
    TrafficRow,
};
use scope_stats::{Options, RunFacts, Writer};
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

/// 2026-11-20T18:00:00Z.
pub const T0: i64 = 1_795_197_600_000_000_000;
pub const SECOND: i64 = 1_000_000_000;
/// Length of intervals.
pub const LENGTH: i64 = 10 * SECOND;

pub fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

pub fn amount(packets: u64) -> Amount {
    Amount { packets, bytes: packets * 100, ip_bytes: packets * 86 }
}

/// All of it TCP.
pub fn interval(ts_ns: i64, interface: &str, packets: u64) -> IntervalRow {
    let Amount { bytes, ip_bytes, .. } = amount(packets);
    IntervalRow {
        ts_ns,
        length_ns: LENGTH,
        interface: Arc::from(interface),
        packets,
        bytes,
        ip_packets: packets,
        ip_bytes,
        tcp: Sum { packets, bytes },
        ..IntervalRow::default()
    }
}

pub fn traffic(ts_ns: i64, interface: &str, ip: Owner, port: u16, received: u64, sent: u64) -> TrafficRow {
    TrafficRow {
        ts_ns,
        interface: Arc::from(interface),
        vlan: 0,
        ip,
        proto: Proto::Tcp,
        port,
        role: Role::Server,
        received: amount(received),
        sent: amount(sent),
    }
}

pub fn flow(end_ns: i64, packets: u64) -> FlowRow {
    let side = Side {
        packets,
        bytes: packets * 100,
        ip_bytes: packets * 86,
        tcp_flags: 0x12,
        len_min: 60,
        len_max: 1514,
        zero_windows: 1,
        resent: 2,
    };
    FlowRow {
        start_ns: end_ns - SECOND,
        end_ns,
        interface: Arc::from("eth0"),
        interface_rev: None,
        vlan: 0,
        proto: 6,
        source: Some((ip("10.0.0.1"), 40000)),
        destination: Some((ip("10.0.0.2"), 443)),
        forward: side,
        reverse: Side { packets: 1, ..side },
        rtt_server_ns: Some(1_000_000),
        rtt_client_ns: None,
        state: Some(State::Closed),
        community_id: CommunityId::new("1:abc=").unwrap(),
        reason: Reason::End,
    }
}

/// An interval with traffic and a flow.
pub fn settled(ts_ns: i64, packets: u64) -> Settled {
    Settled {
        intervals: vec![interval(ts_ns, "eth0", packets)],
        traffic: vec![
            traffic(ts_ns, "eth0", Owner::Address(ip("10.0.0.1")), 443, packets, 0),
            traffic(ts_ns, "eth0", Owner::Others, 443, 0, packets),
        ],
        flows: vec![flow(ts_ns, packets)],
        losses: Vec::new(),
    }
}

pub fn options(path: &Path) -> Options {
    Options {
        db: path.to_path_buf(),
        every: None,
        interval_ns: LENGTH,
        keep: None,
        budget: None,
        min_free: None,
        flow_rows: true,
    }
}

pub fn facts() -> RunFacts {
    RunFacts {
        run: "run-1".to_string(),
        host: "here".to_string(),
        version: "0.1.0".to_string(),
        begin_ns: T0,
        sources: vec!["eth0".to_string(), "a \"b\"".to_string()],
        local: "any".to_string(),
    }
}

pub fn open(path: &Path) -> Writer {
    open_with(options(path))
}

pub fn open_with(options: Options) -> Writer {
    Writer::open(options, facts()).expect("nothing is wrong")
}

pub fn reader(path: &Path) -> Connection {
    Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap()
}

/// The one value that a question gives.
pub fn one<T: FromSql>(connection: &Connection, sql: &str) -> T {
    connection.query_row(sql, [], |row| row.get(0)).unwrap_or_else(|error| panic!("{sql}: {error}"))
}

/// All rows that a question gives, as text.
pub fn rows(connection: &Connection, sql: &str) -> Vec<String> {
    let mut statement = connection.prepare(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
    let columns = statement.column_count();
    let line = |row: &rusqlite::Row<'_>| {
        let cell = |at| match row.get_ref_unwrap(at) {
            rusqlite::types::ValueRef::Null => "NULL".to_string(),
            rusqlite::types::ValueRef::Integer(number) => number.to_string(),
            rusqlite::types::ValueRef::Text(text) => String::from_utf8_lossy(text).into_owned(),
            other => format!("{other:?}"),
        };
        Ok((0..columns).map(cell).collect::<Vec<_>>().join("|"))
    };
    statement.query_map([], line).unwrap().map(Result::unwrap).collect()
}

/// That SQLite finds nothing wrong.
pub fn expect_sound(path: &Path) {
    assert_eq!(one::<String>(&reader(path), "PRAGMA integrity_check"), "ok", "{}", path.display());
}
