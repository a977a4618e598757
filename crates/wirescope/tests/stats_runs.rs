//! Traffic statistics of runs: what is in a capture stands in the database, exactly, whatever the bounds and the
//! number of workers.

mod run;

use run::{Place, Started, finish, is_root, wait_until, wirescope};
use rusqlite::Connection;
use scope_testkit::oracle::have;
use scope_testkit::traffic::{Conversations, ETHERNET, Interface};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

/// One number of a database.
fn number(db: &Path, question: &str) -> i64 {
    let db = Connection::open(db).unwrap();
    db.query_row(question, [], |row| row.get::<_, Option<i64>>(0)).unwrap().unwrap_or(0)
}

/// All rows of a question, as text.
fn rows(db: &Path, question: &str) -> Vec<String> {
    let db = Connection::open(db).unwrap();
    let mut statement = db.prepare(question).unwrap();
    let columns = statement.column_count();
    let row = |row: &rusqlite::Row<'_>| {
        let values: Vec<String> = (0..columns).map(|at| format!("{:?}", row.get_ref(at).unwrap())).collect();
        Ok(values.join(" "))
    };
    statement.query_map([], row).unwrap().map(Result::unwrap).collect()
}

/// Every row that says something of the traffic, in an order of its own.
fn all_rows(db: &Path) -> Vec<String> {
    let tables = [
        "SELECT * FROM intervals ORDER BY ts_ns, interface, vlan",
        "SELECT * FROM traffic ORDER BY ts_ns, interface, vlan, ip, proto, port, role",
        "SELECT * FROM flows ORDER BY start_ns, src_ip, src_port, dst_ip, dst_port, proto, vlan, interface, end_ns",
    ];
    tables.iter().flat_map(|table| rows(db, table)).collect()
}

/// What holds of each database: nothing is lost, and all tables agree.
fn check_sums(name: &str, db: &Path) {
    let sums = "SELECT count(*) FROM (SELECT ts_ns, interface, vlan, sum(ip_packets) AS packets, sum(ip_bytes) AS bytes \
                FROM intervals GROUP BY 1, 2, 3) LEFT JOIN (SELECT ts_ns, interface, vlan, sum(in_packets) AS received, \
                sum(out_packets) AS sent, sum(in_ip_bytes) AS of_received, sum(out_ip_bytes) AS of_sent FROM traffic \
                GROUP BY 1, 2, 3) USING (ts_ns, interface, vlan) WHERE packets <> ifnull(received, 0) \
                OR packets <> ifnull(sent, 0) OR bytes <> ifnull(of_received, 0) OR bytes <> ifnull(of_sent, 0)";
    assert_eq!(number(db, sums), 0, "{name}: intervals whose traffic has another sum");
    let ip = number(db, "SELECT sum(ip_packets) FROM intervals");
    let by_protocol = "SELECT sum(tcp_packets + udp_packets + icmp_packets + other_packets) FROM intervals";
    assert_eq!(number(db, by_protocol), ip, "{name}: protocols");
    assert_eq!(number(db, "SELECT sum(packets_fwd + packets_rev) FROM flows"), ip, "{name}: flows");
    let ip_bytes = number(db, "SELECT sum(ip_bytes) FROM intervals");
    assert_eq!(
        number(db, "SELECT sum(ip_bytes_fwd + ip_bytes_rev) FROM flows"),
        ip_bytes,
        "{name}: IP bytes of flows"
    );
}

/// Packets and bytes of a capture by capinfos; `None`: it doesn't read it to its end.
fn capinfos(file: &Path) -> Option<(i64, i64)> {
    let output = Command::new("capinfos").args(["-T", "-M", "-c", "-d", "-r"]).arg(file).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut words = text.trim().split('\t').skip(1);
    let mut next = || words.next()?.parse().ok();
    output.status.success().then(|| Some((next()?, next()?))).flatten()
}

/// The summary of a run of a capture with statistics in `db`, or `None` where the file is refused.
fn counted(place: &Place, file: &Path, db: &Path, more: &[&str]) -> Option<Value> {
    let source = format!("file:{}", file.display());
    let db = db.display().to_string();
    let flags = [&["--source", &source, "--db", &db, "--ring", "16MiB", "--segment", "64KiB"], more].concat();
    let done = place.run(&flags);
    if done.code() == Some(2) {
        return None;
    }
    assert_eq!(done.code(), Some(0), "{}: {}", file.display(), done.stderr);
    Some(serde_json::from_str(&done.stdout).unwrap())
}

fn captures() -> Vec<PathBuf> {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scope-source/tests/captures");
    let given = std::env::var_os("CAPTURES").map(PathBuf::from);
    if given.is_none() {
        println!("skipped: CAPTURES names no folder");
    }
    let of = |folder: PathBuf| {
        let entries = std::fs::read_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
        entries.map(|entry| entry.unwrap().path()).filter(|path| path.is_file()).collect::<Vec<_>>()
    };
    let mut files: Vec<PathBuf> = [own].into_iter().chain(given).flat_map(of).collect();
    files.sort();
    files
}

#[test]
fn statistics_of_every_capture_add_up_and_are_what_capinfos_counts_whatever_the_bounds() {
    let files = captures();
    assert!(have("capinfos"));
    let (next, compared) = (AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some(file) = files.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let place = Place::new();
                    let (whole, folded) = (place.path("whole.sqlite"), place.path("folded.sqlite"));
                    let Some(summary) = counted(&place, file, &whole, &[]) else { continue };
                    let name = file.display().to_string();
                    check_sums(&name, &whole);
                    let packets = number(&whole, "SELECT sum(packets) FROM intervals");
                    assert_eq!(summary["received"]["packets"], packets, "{name}");
                    // Of odd files of our own tcpdump may read another number: see the tests of sources.
                    let is_own = file.starts_with(env!("CARGO_MANIFEST_DIR"));
                    let counted_so = capinfos(file).filter(|(counted, _)| !is_own || *counted == packets);
                    if let Some(by_capinfos) = counted_so {
                        let bytes = number(&whole, "SELECT sum(bytes) FROM intervals");
                        assert_eq!((packets, bytes), by_capinfos, "{name}");
                        compared.fetch_add(1, Ordering::Relaxed);
                    }
                    let bounds = ["--traffic-rows", "1", "--flows-max", "1", "--db-interval", "100ms"];
                    counted(&place, file, &folded, &bounds).unwrap();
                    check_sums(&name, &folded);
                    let of_folded = number(&folded, "SELECT sum(bytes) FROM intervals");
                    assert_eq!(of_folded, number(&whole, "SELECT sum(bytes) FROM intervals"), "{name}");
                }
            });
        }
    });
    assert!(compared.into_inner() > 0);
}

#[test]
fn a_file_gives_the_same_rows_with_any_number_of_workers() {
    let traffic = Conversations {
        packets: 20_000,
        interfaces: vec![Interface::new("left", ETHERNET), Interface::new("right", ETHERNET)],
        gap_ns: 500_000,
        vlan: 20,
        ipv6: 30,
        ties: 10,
        snapped: 0,
        ..Conversations::default()
    };
    // Fragments go to the worker of their addresses.
    let capture = Conversations { oddities: 0, ..traffic }.capture();
    let place = Place::new();
    let source = place.source(&capture);
    let with = |workers: u32| {
        let db = place.path(&format!("{workers}.sqlite"));
        let source = format!("{source},workers={workers}");
        let flags = ["--source", &source, "--db", &db.display().to_string(), "--db-interval", "1s"];
        let done = place.run(&flags);
        assert_eq!(done.code(), Some(0), "{}", done.stderr);
        all_rows(&db)
    };
    let one = with(1);
    assert!(one.len() > 1000, "{}", one.len());
    for workers in [2, 4] {
        assert!(with(workers) == one, "{workers} workers");
    }
}

#[test]
fn a_database_is_continued_and_a_folder_has_a_file_by_day() {
    let place = Place::new();
    let source = place.source(&Conversations { packets: 1000, ..Conversations::default() }.capture());
    let db = place.path("x.sqlite");
    for runs in 1..=2 {
        let done = place.run(&["--source", &source, "--db", &db.display().to_string()]);
        assert_eq!(done.code(), Some(0), "{}", done.stderr);
        assert_eq!(number(&db, "SELECT sum(packets) FROM intervals"), runs * 1000);
        assert_eq!(number(&db, "SELECT count(*) FROM runs"), runs);
    }
    let folder = place.path("days");
    std::fs::create_dir(&folder).unwrap();
    let done = place.run(&["--source", &source, "--db", &format!("{}/", folder.display())]);
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    let files: Vec<PathBuf> =
        std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    let day = files.iter().find(|file| file.extension().is_some_and(|end| end == "sqlite")).unwrap();
    assert_eq!(number(day, "SELECT sum(packets) FROM intervals"), 1000);
}

#[test]
fn live_interfaces_have_a_row_in_each_interval_and_own_addresses_are_local() {
    if !is_root() {
        return;
    }
    let place = Place::new();
    let db = place.path("live.sqlite");
    let flags = ["-i", "lo", "--db", &db.display().to_string(), "--db-interval", "100ms"];
    let started = Started::new(place.command(&flags));
    wait_until("some intervals", || {
        // Something is on the wire.
        let _ =
            std::net::UdpSocket::bind("127.0.0.1:0").and_then(|socket| socket.send_to(b"x", "127.0.0.1:9"));
        db.exists() && number(&db, "SELECT count(*) FROM intervals WHERE interface = 'lo' AND vlan = 0") > 10
    });
    started.signal(libc::SIGINT);
    let done = started.finish(run::LIMIT);
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    check_sums("live", &db);
    let gaps = "SELECT count(*) FROM (SELECT ts_ns - lag(ts_ns) OVER (ORDER BY ts_ns) AS step FROM intervals \
                WHERE interface = 'lo') WHERE step > 100000000";
    assert_eq!(number(&db, gaps), 0, "intervals without a row");
    let summary: Value = serde_json::from_str(&done.stdout).unwrap();
    assert_eq!(summary["received"]["packets"], number(&db, "SELECT sum(packets) FROM intervals"));
    assert!(number(&db, "SELECT count(*) FROM traffic WHERE ip = '127.0.0.1'") > 0);
}

#[test]
fn what_can_t_be_meant_is_refused_before_anything_starts() {
    let place = Place::new();
    let source = place.source(&Conversations { packets: 10, ..Conversations::default() }.capture());
    std::fs::write(place.path("text"), "no database").unwrap();
    let text = place.path("text").display().to_string();
    let db = place.path("x.sqlite").display().to_string();
    let check = |flags: &[&str], words: &[&str]| {
        let done = place.run(&[&["--source", &source], flags].concat());
        assert_eq!(done.code(), Some(2), "{flags:?}: {}", done.stderr);
        for word in words {
            assert!(done.stderr.contains(word), "{flags:?}: no '{word}' in {}", done.stderr);
        }
        assert!(!place.path("x.sqlite").exists(), "{flags:?}");
    };
    check(&["--db", &text], &["--db", "is no database of statistics", "choose another name"]);
    assert_eq!(std::fs::read(place.path("text")).unwrap(), b"no database");
    check(&["--db", &db, "--db-interval", "7s"], &["--db-interval", "doesn't divide a day"]);
    check(&["--db", &db, "--db-interval", "1ms"], &["shorter than 100ms"]);
    check(&["--db", &db, "--db-keep", "3"], &["--db-keep", "there is only one file"]);
    check(&["--db", "/nowhere/x.sqlite"], &["there is no folder /nowhere"]);
    check(&["--ipfix", "collector.example:4739"], &["--ipfix", "no numeric address"]);
    check(&["--db", &db, "--local", "10.0.0.0/33"], &["--local", "is no network"]);
    check(&["--db", &db, "--flow-idle", "0s", "--flows-max", "0"], &["--flow-idle", "--flows-max"]);
    for address in ["10.0.0.1/8", "2001:db8::1/32,10.0.0.0/8", "0.0.0.1/0"] {
        check(&["--db", &db, "--local", address], &["--local: ", "is an address within a network of"]);
    }
    check(&["--db", &db, "--local", "10.0.0.1/8"], &["write 10.0.0.0/8, or 10.0.0.1"]);
    check(&["--db", &db, "--flow-active", "25h"], &["--flow-active: '25h' is longer than a day"]);
    check(&["--db", &db, "--flow-idle", "2d"], &["--flow-idle: '2d' is longer than a day"]);
    let folder = place.path("days");
    std::fs::create_dir(&folder).unwrap();
    let folder = format!("{}/", folder.display());
    check(&["--db", &folder, "--db-every", "week"], &["--db-every: 'week' is no span", "month, day or hour"]);
    check(
        &["--db", &folder, "--db-min-free", "9000TiB"],
        &["--db-min-free: '", "is not less than its disk has"],
    );
    for wrong in ["abc", "-1", "400d", "0s"] {
        let done = place.run(&["--source", &source, "--db", &db, "--db-interval", wrong]);
        assert_eq!(
            (done.code(), done.stderr.matches("--db-interval: ").count()),
            (Some(2), 1),
            "{}",
            done.stderr
        );
    }
    check(&["--db", &db, "--db-min-free", "100%"], &["--db-min-free: '100%' is the whole file system"]);
}

#[test]
fn what_nothing_would_use_is_refused() {
    let place = Place::new();
    let source = place.source(&Conversations { packets: 10, ..Conversations::default() }.capture());
    let ipfix = ["--ipfix", "127.0.0.1:4739"];
    let of_a_database: [&[&str]; 8] = [
        &["--db-interval", "1s"],
        &["--db-every", "day"],
        &["--db-keep", "3"],
        &["--db-budget", "1GiB"],
        &["--db-min-free", "10%"],
        &["--no-flow-rows"],
        &["--traffic-rows", "9999"],
        &["--local", "any"],
    ];
    let of_flows: [&[&str]; 3] =
        [&["--flows-max", "9999"], &["--flow-idle", "31s"], &["--flow-active", "6min"]];
    let refused = |flags: &[&str], cause: &str| {
        let done = place.run(&[&["--source", &source], flags].concat());
        assert_eq!(done.code(), Some(2), "{flags:?}: {}", done.stderr);
        let expected = format!("wirescope: {}: {cause}", flags[0]);
        assert!(
            done.stderr.lines().any(|line| line == expected),
            "{flags:?}: no '{expected}' in {}",
            done.stderr
        );
    };
    for flags in of_a_database {
        let cause = "there is no database; add --db PATH, or omit it";
        refused(flags, cause);
        refused(&[flags, &ipfix].concat(), cause);
    }
    for flags in of_flows {
        refused(
            flags,
            "no flows are followed; add --db PATH, or --ipfix ADDR:PORT, or --when COND, or omit it",
        );
        let done = place.run(&[&["--source", &source], flags, &ipfix].concat());
        assert_eq!(done.code(), Some(0), "{flags:?}: {}", done.stderr);
    }
    // What holds anyway may be given.
    let as_it_is = ["--db-interval", "10s", "--traffic-rows", "10000", "--flow-idle", "30s"];
    let done = place.run(&[&["--source", &source], &as_it_is[..]].concat());
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    // So are keys of a file, and the words of a run that only counts say what it lacks before all.
    let config = place.path("x.toml");
    std::fs::write(&config, "local = \"any\"\n").unwrap();
    let done = place.run(&["--source", &source, "--config", &config.display().to_string()]);
    assert!(done.code() == Some(2) && done.stderr.contains("x.toml:1:"), "{}", done.stderr);
    assert!(done.stderr.contains("there is no database; write db = \"PATH\", or omit it"), "{}", done.stderr);
    let done = finish(wirescope(&["stats", "--source", &source, "--local", "any"]));
    assert_eq!(done.code(), Some(2));
    assert!(!done.stderr.contains("--local") && done.stderr.contains("add --db"), "{}", done.stderr);
}

#[test]
fn a_damaged_file_is_refused_with_what_helps_and_left_as_it_is() {
    let place = Place::new();
    let source = place.source(&Conversations { packets: 1000, ..Conversations::default() }.capture());
    let db = place.path("x.sqlite");
    let words = db.display().to_string();
    let run = || place.run(&["--source", &source, "--db", &words]);
    assert_eq!(run().code(), Some(0));
    // Its head says that it is ours, and the rest nothing.
    let mut bytes = std::fs::read(&db).unwrap();
    bytes[100..].fill(0xff);
    std::fs::write(&db, &bytes).unwrap();
    let done = run();
    assert_eq!(done.code(), Some(2), "{}", done.stderr);
    for words in ["--db: ", "is damaged: ", "move it away with its -wal and -shm, or choose another name"] {
        assert!(done.stderr.contains(words), "no '{words}' in {}", done.stderr);
    }
    assert!(std::fs::read(&db).unwrap() == bytes);
}

#[test]
fn statistics_alone_need_no_folder_for_dumps_and_a_place_for_themselves() {
    let place = Place::new();
    let source = place.source(&Conversations { packets: 500, ..Conversations::default() }.capture());
    let db = place.path("alone.sqlite");
    let stats = |flags: &[&str]| {
        finish(wirescope(&[&["stats", "--source", &source, "--summary", "json"], flags].concat()))
    };
    let done = stats(&["--db", &db.display().to_string()]);
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    assert!(done.stderr.contains("ring: 1 MiB in 16 segments"), "{}", done.stderr);
    let hint = format!("; wirescope stats top --db {} shows the traffic; Ctrl-C or kill ", db.display());
    assert!(done.stderr.contains(&hint) && !done.stderr.contains("USR1"), "{}", done.stderr);
    assert_eq!(number(&db, "SELECT count(*) FROM runs WHERE local = 'any'"), 1);
    check_sums("alone", &db);
    assert_eq!(number(&db, "SELECT sum(packets) FROM intervals"), 500);
    let refused = stats(&[]);
    assert_eq!(refused.code(), Some(2));
    assert!(refused.stderr.contains("there is no place for the statistics; add --db"), "{}", refused.stderr);
    let refused = stats(&["--db", &db.display().to_string(), "--trigger", "udp"]);
    assert_eq!(refused.code(), Some(2));
    assert!(refused.stderr.contains("there is no folder for dumps"), "{}", refused.stderr);
}

#[test]
fn a_dump_by_hand_is_refused_where_there_is_no_folder_for_it_and_costs_nothing() {
    let place = Place::new();
    let db = place.path("x.sqlite").display().to_string();
    let words = ["stats", "--source", "synth:rate=1k", "--summary", "json", "--db", &db];
    let started = Started::new(wirescope(&words));
    wait_until("ready", || started.words().contains("ready, process"));
    started.signal(libc::SIGUSR1);
    wait_until("its refusal", || started.words().contains("dump of everything by hand: not fired: "));
    started.signal(libc::SIGINT);
    let done = started.finish(run::LIMIT);
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    assert!(
        done.stderr.contains("this run has no folder for dumps; start it with --out DIR"),
        "{}",
        done.stderr
    );
}

#[test]
fn a_collector_that_refuses_is_told_once_and_counted() {
    let free = std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let source = "synth:rate=1k,time=4s,flows=50";
    let flags = ["--flow-idle", "300ms", "--flow-active", "300ms", "--ipfix", &free, "--summary", "json"];
    let done = finish(wirescope(&[&["stats", "--source", source][..], &flags[..]].concat()));
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    assert_eq!(done.stderr.matches("the collector refuses records").count(), 1, "{}", done.stderr);
    let summary: Value = serde_json::from_str(&done.stdout).unwrap();
    assert!(summary["stats"]["unsent"].as_u64() > Some(0), "{}", summary["stats"]);
}

#[test]
fn records_are_sent_to_a_collector() {
    let place = Place::new();
    let source = place.source(&Conversations { packets: 1000, ..Conversations::default() }.capture());
    let collector = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    collector.set_read_timeout(Some(run::LIMIT)).unwrap();
    let address = collector.local_addr().unwrap().to_string();
    let mut words = vec!["run", "--source", &source, "--ipfix", &address, "--summary", "json", "--out"];
    let out = place.out().display().to_string();
    words.push(&out);
    let done = finish(wirescope(&words));
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    let summary: Value = serde_json::from_str(&done.stdout).unwrap();
    assert!(summary["stats"]["sent"].as_u64() > Some(0), "{}", summary["stats"]);
    let mut datagram = [0; 2000];
    let len = collector.recv(&mut datagram).unwrap();
    assert!(len > 16 && datagram[..2] == [0, 10], "IPFIX begins with its version");
}
