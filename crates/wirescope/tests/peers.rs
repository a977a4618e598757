//! Other programs have what statistics have: nfcapd of the records that are sent, DuckDB and pandas of an export. Only
//! where WIRESCOPE_PEERS names the folder that they are in, which `make test-peers` fetches.

mod run;

use run::{Done, LIMIT, Place, Started, finish, wait_until, wirescope};
use rusqlite::Connection;
use scope_flow::rows::{
    Amount, CommunityId, FlowRow, IntervalRow, LossRow, Owner, Proto, Reason, Role, Settled, Side, State,
    Sum, TrafficRow,
};
use scope_stats::{Every, Options, RunFacts, Writer};
use scope_testkit::traffic::{Conversations, ETHERNET, Interface};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::Metadata;
use std::net::{IpAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Names the folder with the programs.
const PEERS: &str = "WIRESCOPE_PEERS";
/// Longest capture file that is sent, and how many are.
const FILE_BYTES_MAX: u64 = 32 << 20;
const FILES_MAX: usize = 80;
/// Collectors that had no time to take everything, one after another, before that is a failure.
const TRIES: usize = 6;
const SECOND: i64 = 1_000_000_000;
const HOUR: i64 = 3600 * SECOND;
/// 2026-11-20T20:31:00Z.
const T0: i64 = 1_795_206_660 * SECOND;

fn peers() -> Option<PathBuf> {
    let peers = std::env::var_os(PEERS).map(PathBuf::from);
    if peers.is_none() {
        eprintln!("skipped: {PEERS} names no folder; make test-peers does");
    }
    peers
}

fn of_nfdump(peers: &Path, program: &str) -> Command {
    let mut command = Command::new(peers.join("usr/bin").join(program));
    command.env("LD_LIBRARY_PATH", peers.join("usr/lib/x86_64-linux-gnu")).env("TZ", "UTC");
    command
}

/// One direction of a flow, as a collector is told of it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Direction {
    proto: u8,
    vlan: u16,
    source: (IpAddr, u16),
    destination: (IpAddr, u16),
    packets: u64,
    ip_bytes: u64,
    tcp_flags: String,
    first: String,
    last: String,
}

/// nfcapd that listens.
struct Collector {
    process: Started,
    port: u16,
}

impl Collector {
    fn start(peers: &Path, folder: &Path) -> Collector {
        std::fs::create_dir(folder).unwrap();
        loop {
            // Free until now: another one may have it before nfcapd does.
            let port = UdpSocket::bind("127.0.0.1:0").and_then(|socket| socket.local_addr()).unwrap().port();
            let mut command = of_nfdump(peers, "nfcapd");
            command.args(["-b", "127.0.0.1", "-p", &port.to_string(), "-B", "8388608", "-w"]).arg(folder);
            let mut process = Started::new(command);
            let is_bound =
                |process: &Started| process.words().contains("Startup nfcapd") && socket_of(port).is_some();
            wait_until("a collector", || is_bound(&process) || process.has_ended());
            if !process.has_ended() {
                return Collector { process, port };
            }
        }
    }

    /// Ends it; how many datagrams it had no time for.
    fn finish(self) -> (u64, Done) {
        let mut lost = 0;
        wait_until("nothing waits for the collector", || {
            let (waiting, dropped) = socket_of(self.port).expect("the collector's socket");
            lost = dropped;
            waiting == 0
        });
        self.process.signal(libc::SIGTERM);
        (lost, self.process.finish(LIMIT))
    }
}

/// Bytes that wait at the socket of a port, and datagrams that had no room there.
fn socket_of(port: u16) -> Option<(u64, u64)> {
    let table = std::fs::read_to_string("/proc/net/udp").unwrap();
    let local = format!("0100007F:{port:04X}");
    let words: Vec<&str> = table
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>())
        .find(|words| words[1] == local)?;
    let (_, waiting) = words[4].split_once(':')?;
    Some((u64::from_str_radix(waiting, 16).ok()?, words.last()?.parse().ok()?))
}

/// What a collector has written.
fn collected(peers: &Path, folder: &Path) -> Vec<Direction> {
    let mut command = of_nfdump(peers, "nfdump");
    command.arg("-R").arg(folder).args(["-o", "json"]);
    let done = finish(command);
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    // Its list of none has words in it.
    let text = done.stdout.replace("No matching flows", "");
    let records: Vec<Value> = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
    let number =
        |record: &Value, key: &str| record[key].as_u64().unwrap_or_else(|| panic!("{key}: {record}"));
    let mut found: Vec<Direction> = records
        .iter()
        .map(|record| {
            let address = |key: &str| {
                let text =
                    record[format!("{key}4_addr")].as_str().or(record[format!("{key}6_addr")].as_str());
                text.unwrap_or_else(|| panic!("{record}")).parse().unwrap()
            };
            // Of ICMP it reads type and code.
            let ports = match record["icmp_type"].as_u64() {
                Some(kind) => (0, (kind << 8 | number(record, "icmp_code")) as u16),
                None => (number(record, "src_port") as u16, number(record, "dst_port") as u16),
            };
            let proto = number(record, "proto") as u8;
            Direction {
                proto,
                vlan: number(record, "src_vlan") as u16,
                source: (address("src"), ports.0),
                destination: (address("dst"), ports.1),
                packets: number(record, "in_packets"),
                ip_bytes: number(record, "in_bytes"),
                tcp_flags: record["tcp_flags"]
                    .as_str()
                    .filter(|_| proto == 6)
                    .unwrap_or_default()
                    .to_string(),
                first: record["first"].as_str().unwrap().to_string(),
                last: record["last"].as_str().unwrap().to_string(),
            }
        })
        .collect();
    found.sort();
    found
}

/// The same of the rows in the database.
fn written(db: &Path) -> Vec<Direction> {
    let both = "SELECT proto, vlan, src_ip, src_port, dst_ip, dst_port, packets_fwd AS packets, ip_bytes_fwd, \
                    tcp_flags_fwd, start_ns, end_ns, true FROM flows WHERE packets > 0 \
                UNION ALL SELECT proto, vlan, dst_ip, dst_port, src_ip, src_port, packets_rev AS packets, \
                    ip_bytes_rev, tcp_flags_rev, start_ns, end_ns, false FROM flows WHERE packets > 0";
    let db = Connection::open(db).unwrap();
    let mut statement = db.prepare(both).unwrap();
    let mut rows = statement.query([]).unwrap();
    let mut found = Vec::new();
    while let Some(row) = rows.next().unwrap() {
        let proto: u8 = row.get(0).unwrap();
        let address = |at: usize| row.get::<_, String>(at).unwrap().parse::<IpAddr>().unwrap();
        let number = |at: usize| row.get::<_, i64>(at).unwrap() as u64;
        let (source, destination) = (address(2), address(4));
        let mut ports: (u16, u16) = (row.get(3).unwrap(), row.get(5).unwrap());
        // What has a counterpart has ports that pair; else they are type and code.
        if proto == if source.is_ipv4() { 1 } else { 58 } {
            let pairs = scope_flow::key::counterpart(source.is_ipv6(), ports.0 as u8) == Some(ports.1 as u8);
            ports = (0, ports.0 << 8 | if pairs { 0 } else { ports.1 });
        }
        // To the millisecond: 2026-11-20T20:31:05.123.
        let ms = |at: usize| format!("{:.23}", scope_spelling::time::iso(row.get(at).unwrap()));
        found.push(Direction {
            proto,
            vlan: row.get(1).unwrap(),
            source: (source, ports.0),
            destination: (destination, ports.1),
            packets: number(6),
            ip_bytes: number(7),
            tcp_flags: if proto == 6 { flags(row.get(8).unwrap()) } else { String::new() },
            first: ms(9),
            last: ms(10),
        });
    }
    found.sort();
    found
}

/// As nfdump spells them, of TCP.
fn flags(tcp: u8) -> String {
    "CEUAPRSF"
        .chars()
        .enumerate()
        .map(|(bit, letter)| if tcp << bit & 0x80 != 0 { letter } else { '.' })
        .collect()
}

/// Packets and bytes of each protocol and direction: whether its port is the lesser one.
fn sums(directions: &[Direction]) -> BTreeMap<(u8, bool), (u64, u64)> {
    let mut sums = BTreeMap::new();
    for one in directions {
        let sum: &mut (u64, u64) = sums.entry((one.proto, one.source.1 <= one.destination.1)).or_default();
        *sum = (sum.0 + one.packets, sum.1 + one.ip_bytes);
    }
    sums
}

/// Sends the flows of a capture to nfcapd; how many records they are. `None`: the file is refused.
fn send(peers: &Path, source: &str, name: &str) -> Option<usize> {
    for _ in 0..TRIES {
        let place = Place::new();
        let (db, folder) = (place.path("sent.sqlite"), place.path("collected"));
        let collector = Collector::start(peers, &folder);
        let address = format!("127.0.0.1:{}", collector.port);
        let mut command = wirescope(&["stats", "--summary", "json", "--source", source, "--ipfix", &address]);
        command.arg("--db").arg(&db);
        let done = finish(command);
        if done.code() == Some(2) {
            return None;
        }
        assert_eq!(done.code(), Some(0), "{name}: {}", done.stderr);
        let summary: Value = serde_json::from_str(&done.stdout).unwrap();
        let (lost, ended) = collector.finish();
        if lost > 0 {
            eprintln!("{name}: the collector had no time for {lost} datagrams; once more");
            continue;
        }
        let (collected, written) = (collected(peers, &folder), written(&db));
        let words = ended.stdout + &ended.stderr;
        assert_eq!(summary["stats"]["unsent"], 0, "{name}");
        assert_eq!(summary["stats"]["sent"], written.len(), "{name}");
        assert!(
            written.is_empty() || words.contains("Sequence Errors: 0, Bad Packets: 0"),
            "{name}: {words}"
        );
        assert_eq!(sums(&collected), sums(&written), "{name}");
        let differs = collected.iter().zip(&written).find(|(one, other)| one != other);
        assert!(differs.is_none() && collected.len() == written.len(), "{name}: {differs:#?}");
        return Some(written.len());
    }
    panic!("{name}: no collector had the time to take everything, {TRIES} times");
}

#[test]
fn nfcapd_has_what_flows_have_of_traffic_of_all_kinds() {
    let Some(peers) = peers() else { return };
    let traffic = Conversations {
        packets: 60_000,
        interfaces: vec![Interface::new("left", ETHERNET)],
        gap_ns: 400_000,
        hosts: 120,
        ipv6: 35,
        vlan: 20,
        oddities: 30,
        ..Conversations::default()
    };
    let place = Place::new();
    let records = send(&peers, &place.source(&traffic.capture()), "generated").unwrap();
    // More than a receive buffer has room for at once.
    assert!(records > 20_000, "{records}");
}

#[test]
fn nfcapd_has_what_flows_have_of_captures() {
    let Some(peers) = peers() else { return };
    let Some(folder) = std::env::var_os("CAPTURES").map(PathBuf::from) else {
        return eprintln!("skipped: CAPTURES names no folder");
    };
    let entries = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap());
    let mut files: Vec<(u64, PathBuf)> = entries
        .filter_map(|entry| Some((entry.metadata().ok().filter(Metadata::is_file)?.len(), entry.path())))
        .filter(|(bytes, _)| *bytes <= FILE_BYTES_MAX)
        .collect();
    // The longest: most have few packets.
    files.sort_by(|one, other| other.cmp(one));
    files.truncate(FILES_MAX);
    let (next, records) = (AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some((_, file)) = files.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let sent = send(&peers, &format!("file:{}", file.display()), &file.display().to_string());
                    records.fetch_add(sent.unwrap_or(0), Ordering::Relaxed);
                }
            });
        }
    });
    let records = records.into_inner();
    eprintln!("{records} records of {} files", files.len());
    assert!(records > 0);
}

/// Rows with every kind of value that a table can have: none, none of a text, quotes, commas, line ends, the largest.
fn odd_rows() -> Settled {
    let amount = |packets: u64| Amount { packets, bytes: packets * 100, ip_bytes: packets * 86 };
    let interfaces = ["eth0", "tap,1", "a \"b\"", "größe", "NULL", "1"];
    let mut rows = Settled::default();
    for (number, interface) in interfaces.into_iter().enumerate() {
        let ts_ns = T0 + number as i64 * HOUR / 2;
        let interface: Arc<str> = Arc::from(interface);
        rows.intervals.push(IntervalRow {
            ts_ns,
            length_ns: 10 * SECOND,
            interface: interface.clone(),
            vlan: 4095,
            packets: i64::MAX as u64 - number as u64,
            bytes: 1 << (10 * number),
            tcp: Sum { packets: 1, bytes: 2 },
            lost_max: number as u64,
            ..IntervalRow::default()
        });
        let owners = [Owner::Others, Owner::Folded, Owner::Address("2001:db8::1".parse().unwrap())];
        rows.traffic.extend(owners.into_iter().map(|ip| TrafficRow {
            ts_ns,
            interface: interface.clone(),
            vlan: 0,
            ip,
            proto: Proto::Other,
            port: 0,
            role: Role::Client,
            received: amount(1),
            sent: amount(1 << 40),
        }));
        for (is_known, reason) in [(true, Reason::End), (false, Reason::Unwritten)] {
            let end = |text: &str, port| is_known.then(|| (text.parse().unwrap(), port));
            rows.flows.push(FlowRow {
                start_ns: ts_ns + 123_456_789,
                end_ns: ts_ns + HOUR + number as i64,
                interface: interface.clone(),
                interface_rev: (number % 2 == 0).then(|| Arc::from(interfaces[number])),
                vlan: number as u16,
                proto: 6,
                source: end("10.0.0.1", 40000),
                destination: end("192.0.2.9", 443),
                forward: Side { packets: 3, bytes: 999, ip_bytes: 900, ..Side::default() },
                reverse: Side::default(),
                rtt_server_ns: (number % 3 == 0).then_some(number as i64),
                rtt_client_ns: (number % 3 == 1).then_some(i64::MAX),
                state: (is_known && number > 1).then_some(State::Midstream),
                community_id: CommunityId::new(if is_known { "1:abc+/=" } else { "" }).unwrap(),
                reason,
            });
        }
        rows.losses.push(LossRow {
            from_ns: ts_ns - HOUR,
            to_ns: ts_ns,
            interface: (number % 2 == 1).then_some(interface),
            reason: "ring",
            packets: number as u64,
            late_until_ns: 0,
            filed_until_ns: 0,
        });
    }
    rows
}

/// A database of odd rows, whose run is closed or not.
fn odd(path: &Path, is_closed: bool) -> Option<Writer> {
    let options = Options {
        db: path.to_path_buf(),
        every: path.is_dir().then_some(Every::Hour),
        interval_ns: 10 * SECOND,
        keep: None,
        budget: None,
        min_free: None,
        flow_rows: true,
    };
    let facts = RunFacts {
        run: "00012345".to_string(),
        host: String::new(),
        version: "0.1.0".to_string(),
        begin_ns: T0 - 1,
        sources: vec!["a \"b\", c\nd".to_string(), "'e' \\".to_string()],
        local: "any".to_string(),
    };
    let mut writer = Writer::open(options, facts).unwrap();
    writer.write(&mut odd_rows(), T0).unwrap();
    if !is_closed {
        return Some(writer);
    }
    writer.close(T0 + 7).unwrap();
    None
}

/// All files below a folder, with their content.
fn content(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => found.extend(content(&path)),
            false => drop(found.insert(path.clone(), std::fs::read(path).unwrap())),
        }
    }
    found
}

/// Exports twice, and has both programs read what is there.
fn export(peers: &Path, place: &Place, name: &str, db: &Path) {
    let tables = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/peers/tables.py");
    let databases: Vec<PathBuf> = match db.is_dir() {
        true => {
            run::names(db).iter().filter(|name| name.ends_with(".sqlite")).map(|name| db.join(name)).collect()
        }
        false => vec![db.to_path_buf()],
    };
    for form in ["parquet", "csv", "jsonl"] {
        let out = place.path(&format!("{name}-{form}"));
        std::fs::create_dir(&out).unwrap();
        let mut before = BTreeMap::new();
        for time in 1..=2 {
            let mut command = wirescope(&["stats", "export", "--format", form, "--db"]);
            command.arg(db).arg("--out").arg(&out);
            let done = finish(command);
            assert_eq!(done.code(), Some(0), "{}", done.stderr);
            let now = content(&out);
            assert!(time == 1 || now == before, "{name} {form}: another export changes it");
            before = now;
            for reader in ["duckdb", "pandas"] {
                let mut command = Command::new(peers.join("python/bin/python"));
                command
                    .arg(&tables)
                    .args([reader, form])
                    .arg(&out)
                    .args(&databases)
                    .env("TZ", "America/Lima");
                let done = finish(command);
                assert_eq!(done.code(), Some(0), "{name} {form} {reader}: {}", done.stderr);
                let counts: Value = serde_json::from_str(&done.stdout).unwrap();
                let rows = |table: &str| counts[table].as_u64().unwrap();
                assert!(rows("flows") > 0 && rows("runs") > 0, "{name} {form} {reader}: {counts}");
            }
        }
    }
}

#[test]
fn duckdb_and_pandas_read_an_export_as_sqlite_reads_the_database() {
    let Some(peers) = peers() else { return };
    let place = Place::new();
    let (file, folder, open) = (place.path("odd.sqlite"), place.path("odd"), place.path("open.sqlite"));
    std::fs::create_dir(&folder).unwrap();
    odd(&file, true);
    odd(&folder, true);
    export(&peers, &place, "file", &file);
    export(&peers, &place, "folder", &folder);
    // Of a run that goes on the end is not there yet.
    let writer = odd(&open, false);
    export(&peers, &place, "open", &open);
    drop(writer);
    let traffic =
        Conversations { packets: 20_000, gap_ns: 500_000_000, hosts: 40, ..Conversations::default() };
    let db = place.path("run.sqlite");
    let mut command = wirescope(&["stats", "--source", &place.source(&traffic.capture()), "--db"]);
    command.arg(&db);
    let done = finish(command);
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    export(&peers, &place, "run", &db);
}
