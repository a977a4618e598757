//! One SELECT: the same from a file and from a folder, and nothing but reading.

use crate::made::{SECOND, database, made, stop};
use scope_stats::asking::sql::{Cell, SqlAnswer};
use scope_stats::asking::{AskError, Bounds, Cut, Database};
use std::sync::atomic::Ordering;
use std::time::Duration;

fn ask(database: &Database, sql: &str) -> SqlAnswer {
    let answer = database.sql(sql, &Bounds::OF_A_COMMAND, stop());
    answer.unwrap_or_else(|error| panic!("{sql}: {error}"))
}

/// All rows as text, sorted.
fn lines(answer: &SqlAnswer) -> Vec<String> {
    let line = |row: &Vec<Cell>| row.iter().map(Cell::to_string).collect::<Vec<_>>().join("|");
    let mut lines: Vec<String> = answer.rows.iter().map(line).collect();
    lines.sort();
    lines
}

#[test]
fn a_folder_answers_as_one_file_with_the_same_rows() {
    let made = made(4);
    let [file, folder] = made.both();
    let day = 1_795_219_200_000_000_000i64; // a begin of a day
    for (sql, at_least) in [
        ("SELECT * FROM intervals".to_string(), 100),
        ("SELECT * FROM traffic".to_string(), 100),
        ("SELECT * FROM flows".to_string(), 100),
        ("SELECT * FROM losses".to_string(), 5),
        ("SELECT DISTINCT run, host, sources, interval_ns FROM runs".to_string(), 1),
        ("SELECT * FROM totals".to_string(), 50),
        ("SELECT * FROM protos".to_string(), 50),
        ("SELECT count(*), sum(bytes), min(ts_ns), max(ts_ns) FROM intervals".to_string(), 1),
        (format!("SELECT ts_ns, sum(packets) FROM intervals WHERE ts_ns >= {day} GROUP BY ts_ns"), 10),
        (format!("SELECT * FROM intervals WHERE ts_ns BETWEEN {} AND {day}", day - 40_000_000_000), 1),
        (format!("SELECT * FROM intervals WHERE ts_ns < {day} AND ts_ns > {}.5", day - 40_000_000_000), 1),
        ("SELECT * FROM flows WHERE src_ip = '10.0.0.1' AND dst_port IN (22, 443)".to_string(), 1),
        (
            "SELECT * FROM flows WHERE src_ip = '10.0.0.1' OR dst_ip = '10.0.0.1' OR start_ns < 5"
                .to_string(),
            1,
        ),
        ("SELECT * FROM traffic WHERE ts_ns = 5 OR ip = '*' OR port = '443'".to_string(), 1),
        ("SELECT * FROM flows WHERE interface = 'ETH0' COLLATE NOCASE".to_string(), 1),
        ("SELECT interface_rev, count(*) FROM flows GROUP BY 1".to_string(), 2),
        ("SELECT * FROM flows WHERE state IS NULL AND rtt_server_ns IS NOT NULL".to_string(), 1),
        ("SELECT * FROM flows WHERE proto = 17.0 AND vlan <> 5 AND src_port >= '53'".to_string(), 1),
        (
            "SELECT i.ts_ns, i.interface, i.vlan, i.ip_packets, sum(t.in_packets) FROM intervals AS i \
             JOIN traffic AS t ON t.ts_ns = i.ts_ns AND t.interface = i.interface AND t.vlan = i.vlan \
             GROUP BY 1, 2, 3 HAVING i.ip_packets = sum(t.in_packets)"
                .to_string(),
            100,
        ),
        (
            "SELECT a.src_ip, count(*) FROM flows AS a LEFT JOIN flows AS b \
             ON b.src_ip = a.dst_ip AND b.start_ns > a.start_ns GROUP BY 1"
                .to_string(),
            5,
        ),
        ("SELECT * FROM losses WHERE from_ns >= (SELECT max(from_ns) FROM losses)".to_string(), 1),
        ("SELECT ip FROM traffic EXCEPT SELECT src_ip FROM flows".to_string(), 1),
        ("SELECT ts, tcp_in_pkts FROM totals WHERE ts BETWEEN 1795212000 AND 1795212030".to_string(), 1),
        ("SELECT * FROM protos WHERE ts >= 1795219200 AND port = 443".to_string(), 1),
        ("SELECT * FROM ipv4_traffic WHERE ts = 1795212000 OR ts > 1795300000.5".to_string(), 1),
        ("SELECT a.ts FROM totals AS a JOIN protos AS b ON a.ts = b.ts AND a.ip = b.ip".to_string(), 20),
        ("SELECT name FROM pragma_table_info('flows') WHERE name NOT LIKE 'wirescope%'".to_string(), 31),
    ] {
        let [of_file, of_folder] = [ask(&file, &sql), ask(&folder, &sql)];
        assert_eq!(lines(&of_file), lines(&of_folder), "{sql}");
        assert_eq!(of_file.columns, of_folder.columns, "{sql}");
        assert!(of_file.rows.len() >= at_least, "{sql}: {}", of_file.rows.len());
    }
}

#[test]
fn of_a_span_only_the_files_are_read_that_can_have_rows_of_it() {
    let made = made(16);
    let [file, folder] = made.both();
    let files = folder.files().unwrap();
    assert_eq!(files.len(), 3);
    // Whoever opens one of the others says so.
    for other in [0, 2] {
        std::fs::write(&files[other].path, "no database").unwrap();
    }
    let (from_s, to_s) = (files[1].period_ns.unwrap().0 / SECOND, files[1].period_ns.unwrap().1 / SECOND);
    let views = ["ipv4_traffic", "totals", "protos"].map(|view| (view, "ts", 1));
    for (table, time, unit) in
        [("intervals", "ts_ns", SECOND), ("traffic", "ts_ns", SECOND)].into_iter().chain(views)
    {
        let (from, to) = (from_s * unit, to_s * unit);
        let of_span = format!("SELECT * FROM {table} WHERE {time} >= {from} AND {time} < {to}");
        assert_eq!(lines(&ask(&folder, &of_span)), lines(&ask(&file, &of_span)), "{of_span}");
        assert!(ask(&folder, &of_span).rows.len() > 10, "{of_span}");
        let all = format!("SELECT * FROM {table}");
        let error = folder.sql(&all, &Bounds::OF_A_COMMAND, stop()).unwrap_err().to_string();
        assert!(error.contains("wirescope-2026-11-20.sqlite"), "{all}: {error}");
    }
}

#[test]
fn nothing_but_reading_is_answered() {
    let made = made(5);
    let attached = made.root.path().join("attached.sqlite");
    for database in made.both() {
        let refused = |sql: &str, cause: &str| match database.sql(sql, &Bounds::OF_A_COMMAND, stop()) {
            Err(AskError::Refused(fault)) => assert!(fault.to_string().contains(cause), "{sql}: {fault}"),
            other => panic!("{sql}: {other:?}"),
        };
        let other = "asks for something else than to read";
        refused("DELETE FROM flows", other);
        refused("INSERT INTO losses VALUES (1, 2, NULL, 'x', 1)", other);
        refused("UPDATE runs SET host = 'x'", other);
        refused("DROP TABLE flows", other);
        refused("CREATE TABLE x (y)", other);
        refused("CREATE TEMP TABLE x AS SELECT 1", other);
        refused("CREATE TEMP VIEW x AS SELECT 1", other);
        refused("ATTACH 'attached.sqlite' AS x", other);
        refused(&format!("ATTACH '{}' AS x", attached.display()), other);
        refused(&format!("VACUUM INTO '{}'", attached.display()), "is no SELECT");
        refused("DETACH main", other);
        refused("PRAGMA journal_mode = DELETE", other);
        refused("PRAGMA wal_checkpoint(TRUNCATE)", other);
        refused("PRAGMA user_version = 7", other);
        refused("PRAGMA query_only", other);
        refused("BEGIN IMMEDIATE", other);
        refused("ANALYZE", "SQL: ");
        refused("REINDEX", "SQL: ");
        refused("SELECT load_extension('x')", other);
        refused("WITH x AS (SELECT 1) DELETE FROM flows", other);
        refused("SELECT 1; SELECT 2", "more than one statement");
        refused("SELECT 1; DELETE FROM flows", "more than one statement");
        refused("SELECT 1; nonsense", "more than one statement");
        refused("", "is no SELECT");
        refused("-- nothing", "is no SELECT");
        refused("SELECT x FROM flows", "no such column: x");
        refused("SELECT * FROM flow", "no such table: flow");
        refused("SELEC 1", "syntax error");
        refused("SELECT sum(bytes_fwd FROM flows", "syntax error");
        refused("SELECT zeroblob(1000000000)", "too big");
        refused("SELECT printf('%.*c', 100000000, 'x')", "too big");
        assert!(!attached.exists());
        let answer = ask(&database, " SELECT 1 AS one, 'a' || 'b', NULL, 1.5, x'00ff' ; -- and no more\n");
        assert_eq!(answer.columns, ["one", "'a' || 'b'", "NULL", "1.5", "x'00ff'"]);
        assert_eq!(lines(&answer), ["1|ab||1.5|00ff"]);
        let json = serde_json::Value::Object(answer.to_json());
        assert_eq!(json["rows"][0], serde_json::json!([1, "ab", null, 1.5, "00ff"]));
        assert_eq!(json["cut"], serde_json::Value::Null);
        assert_eq!(ask(&database, "VALUES (1), (2)").rows.len(), 2);
        assert!(!ask(&database, "EXPLAIN QUERY PLAN SELECT * FROM flows").rows.is_empty());
    }
}

#[test]
fn a_fault_shows_its_place() {
    let made = made(6);
    let fault = made.both()[0].sql("SELECT bytes, x FROM intervals", &Bounds::OF_A_COMMAND, stop());
    let said = fault.unwrap_err().to_string();
    assert!(said.contains("\n  SELECT bytes, x FROM intervals\n                ^"), "{said}");
}

const ENDLESS: &str = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)";

#[test]
fn an_answer_ends_at_each_of_its_bounds_and_says_so() {
    let made = made(7);
    for database in made.both() {
        let usual = Bounds::OF_A_COMMAND;
        let cut = |sql: &str, bounds: Bounds| {
            let answer = database.sql(sql, &bounds, stop()).unwrap_or_else(|error| panic!("{sql}: {error}"));
            (answer.cut, answer.rows.len())
        };
        let endless = format!("{ENDLESS} SELECT i FROM n");
        assert_eq!(cut(&endless, Bounds { rows: 7, ..usual }), (Some(Cut::Rows), 7));
        assert_eq!(cut("SELECT 1 UNION SELECT 2", Bounds { rows: 2, ..usual }), (None, 2));
        assert_eq!(cut("SELECT 1 UNION SELECT 2", Bounds { rows: 1, ..usual }), (Some(Cut::Rows), 1));
        assert_eq!(cut("SELECT 'abcdefghijklmnop'", Bounds { bytes: 31, ..usual }), (Some(Cut::Bytes), 0));
        assert_eq!(cut("SELECT 'abcdefghijklmnop'", Bounds { bytes: 32, ..usual }), (None, 1));
        let short = Bounds { time: Duration::from_millis(30), ..usual };
        assert_eq!(cut(&format!("{ENDLESS} SELECT count(*) FROM n"), short), (Some(Cut::Time), 0));
        let forever = "SELECT count(*) FROM flows a, flows b, flows c, flows d, flows e";
        assert_eq!(cut(forever, short), (Some(Cut::Time), 0));
        let small = Bounds { memory_bytes: 8 << 20, ..usual };
        let heavy = format!("{ENDLESS} SELECT i FROM n ORDER BY -i");
        assert_eq!(cut(&heavy, small), (Some(Cut::Memory), 0));
        let heavy = format!("{ENDLESS} SELECT i FROM n GROUP BY hex(i)");
        assert_eq!(cut(&heavy, small), (Some(Cut::Memory), 0));
        let stop = stop();
        stop.store(true, Ordering::Relaxed);
        let answer = database.sql(&format!("{ENDLESS} SELECT count(*) FROM n"), &usual, stop).unwrap();
        assert_eq!(answer.cut, Some(Cut::Stopped));
    }
}

#[test]
fn a_file_that_is_deleted_behind_the_listing_has_no_rows() {
    let made = made(8);
    let names = || {
        let names = std::fs::read_dir(&made.folder).unwrap().map(|entry| entry.unwrap().path());
        let mut names: Vec<_> = names.collect();
        names.sort();
        names
    };
    let days = names().len();
    assert!(days >= 3, "{days}");
    std::fs::remove_file(&names()[0]).unwrap();
    let answer = ask(&database(&made.folder), "SELECT min(ts_ns) FROM intervals");
    let oldest = made.rows.intervals.iter().map(|row| row.ts_ns).min().unwrap();
    assert_ne!(lines(&answer), [oldest.to_string()]);
    // A damaged one is told of, with its name.
    let damaged = &names()[0];
    std::fs::write(damaged, b"no database").unwrap();
    let error = database(&made.folder).sql("SELECT count(*) FROM flows", &Bounds::OF_A_COMMAND, stop());
    assert!(error.unwrap_err().to_string().contains(damaged.to_str().unwrap()));
    // So is one that shows it only where its rows are read.
    let other = &names()[1];
    std::fs::remove_file(damaged).unwrap();
    let mut bytes = std::fs::read(other).unwrap();
    bytes[4096..].fill(0x5a);
    std::fs::write(other, bytes).unwrap();
    match database(&made.folder).sql("SELECT sum(bytes_fwd) FROM flows", &Bounds::OF_A_COMMAND, stop()) {
        Err(AskError::Failed(fault)) => {
            let said = fault.to_string();
            assert!(said.contains(other.to_str().unwrap()) && said.contains("is damaged"), "{said}");
        }
        other => panic!("{other:?}"),
    }
}
