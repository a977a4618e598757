//! Traffic statistics are asked of a run that goes: each route says what the commands say of the same database, for whom it
//! may, within bounds; and nobody who asks does the run any harm.

mod door;
mod run;

use run::asking::{Heard, Running};
use run::{Done, LIMIT, NOBODY, Place, finish, is_root, names, wait_until, wait_until_or, wirescope};
use rusqlite::Connection;
use scope_testkit::traffic::{Capture, Conversations, ETHERNET, Interface, Precision, Record, pcapng};
use serde_json::{Value, json};
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const SECOND: i64 = 1_000_000_000;
/// A question without an end.
const ENDLESS: &str = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)";
/// Traffic that goes on until the run is stopped: rows and records each second.
const LIVE: [&str; 8] = [
    "--source",
    "synth:rate=20k,flows=5000,size=100",
    "--db-interval",
    "1s",
    "--flow-active",
    "2s",
    "--ring",
    "64MiB",
];

/// Every route of statistics: method, route, body.
const ROUTES: [(&str, &str, &str); 6] = [
    ("GET", "stats", ""),
    ("GET", "stats/files", ""),
    ("GET", "stats/files/x.sqlite", ""),
    ("GET", "stats/top", ""),
    ("GET", "flows", ""),
    ("POST", "stats/sql", r#"{"sql": "SELECT count(*) FROM intervals"}"#),
];

fn conversations(packets: usize, start_ns: i64) -> Capture {
    let interfaces = vec![Interface::new("left", ETHERNET)];
    let own = Conversations { packets, start_ns, interfaces, vlan: 20, hosts: 9, ..Conversations::default() };
    own.capture()
}

/// A run whose database has something, and which is fed with nothing any more: what it has stays the same.
struct Still {
    running: Running,
    db: PathBuf,
    /// The run goes on as long as it is open.
    pipe: File,
}

impl Still {
    /// Its database is a file, or a folder.
    fn new(is_folder: bool) -> Still {
        let place = Place::new();
        let db = place.path(if is_folder { "days" } else { "x.sqlite" });
        if is_folder {
            std::fs::create_dir(&db).unwrap();
        }
        let text = db.display().to_string();
        let first = conversations(4000, Conversations::default().start_ns);
        let source = place.source(&first);
        let own = ["--db", &text, "--db-interval", "1s", "--flow-active", "2s", "--flow-idle", "1s"];
        let done = finish(wirescope(&[&["stats", "--source", &source, "--quiet"][..], &own].concat()));
        assert_eq!(done.code(), Some(0), "{}", done.stderr);
        // A day later, so that a folder has a file more.
        let later = conversations(500, Conversations::default().start_ns + 86_400 * SECOND);
        let path = place.path("fed");
        assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
        let source = format!("file:{}", path.display());
        let feeder = std::thread::spawn({
            let mut whole = later.clone();
            let last = later.packets.last().unwrap();
            let behind =
                |number: i64| Record { time_ns: last.time_ns + (1 + number) * SECOND / 2, ..last.clone() };
            whole.packets.extend((0..20).map(behind));
            move || {
                let mut pipe = File::options().write(true).open(path).unwrap();
                pipe.write_all(&pcapng(&whole, Precision::Nano, false)).unwrap();
                pipe
            }
        });
        let own = ["--db", &text, "--db-interval", "1s", "--flow-active", "2s", "--flow-idle", "1s"];
        let running = Running::bare(place, &[&["--source", &source][..], &own].concat());
        let still = Still { running, db, pipe: feeder.join().unwrap() };
        let span_ns = later.span_ns().unwrap();
        let settled =
            format!("SELECT sum(packets) >= 500 FROM intervals WHERE ts_ns >= {}", span_ns.0 - SECOND);
        wait_until("all packets", || still.sql(&settled).body["rows"] == json!([[1]]));
        still
    }

    fn sql(&self, statement: &str) -> Heard {
        self.running.post("stats/sql", &json!({"sql": statement}).to_string())
    }

    /// What a command prints of the same database.
    fn command(&self, words: &[&str]) -> Done {
        let mut command = wirescope(words);
        command.arg("--db").arg(&self.db).env("TZ", "UTC").current_dir(self.running.place.root());
        finish(command)
    }

    fn printed(&self, words: &[&str]) -> String {
        let done = self.command(words);
        assert!(matches!(done.code(), Some(0 | 1)), "{words:?}: {}", done.stderr);
        done.stdout
    }

    /// What a route answers, once that is what the command prints: rows of the last packets may still come.
    fn agreed(&self, words: &[&str], ask: impl Fn() -> Heard) -> Heard {
        let (mut heard, mut printed) = (answered(&ask), String::new());
        for _ in 0..LIMIT.as_secs() {
            printed = self.printed(words);
            if text(&heard) == printed {
                break;
            }
            std::thread::sleep(Duration::from_secs(1));
            heard = answered(&ask);
        }
        assert_eq!(text(&heard), printed, "{words:?}");
        heard
    }

    fn end(self) -> (Place, PathBuf, Done) {
        let Still { running, db, pipe } = self;
        drop(pipe);
        let done = running.started.finish(LIMIT);
        assert_eq!(done.code(), Some(0), "{}", done.stderr);
        (running.place, db, done)
    }
}

/// The answer to a question, which a machine that is too busy gives only to the one that is put again.
fn answered(ask: impl Fn() -> Heard) -> Heard {
    let mut heard = ask();
    wait_until("an answer", || {
        let is_late = matches!(heard.status, 429 | 503)
            || heard.body["detail"].as_str().is_some_and(|detail| detail.contains("takes more time"));
        if is_late {
            heard = ask();
        }
        !is_late
    });
    heard
}

fn text(heard: &Heard) -> String {
    assert_eq!(heard.status, 200, "{heard:?}");
    String::from_utf8(heard.bytes.clone()).unwrap()
}

fn header<'a>(heard: &'a Heard, name: &str) -> Option<&'a str> {
    heard.head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
}

/// All rows of a database that SQLite finds sound.
fn rows(db: &Path) -> Vec<String> {
    let db = Connection::open_with_flags(db, rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap();
    let sound: String = db.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(sound, "ok");
    let mut lines = Vec::new();
    for table in ["intervals", "traffic", "flows", "losses"] {
        let mut statement = db.prepare(&format!("SELECT * FROM {table} ORDER BY 1, 2, 3, 4, 5")).unwrap();
        let columns = statement.column_count();
        let mut rows = statement.query([]).unwrap();
        while let Some(row) = rows.next().unwrap() {
            let cells = (0..columns).map(|at| format!("{:?}", row.get_ref(at).unwrap()));
            lines.push(format!("{table} {}", cells.collect::<Vec<_>>().join(" ")));
        }
    }
    lines
}

fn audit(place: &Place) -> Vec<Value> {
    let text = std::fs::read_to_string(place.out().join("audit.jsonl")).unwrap_or_default();
    // The last one may be half written.
    let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
    whole.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn each_route_says_what_the_commands_say_of_the_same_database() {
    for is_folder in [false, true] {
        let still = Still::new(is_folder);
        let get = |route: &str| still.running.get(route);
        let files = still.agreed(&["stats", "files", "--json"], || get("stats/files"));
        let files = files.body["files"].as_array().unwrap().clone();
        assert_eq!(files.len(), if is_folder { 2 } else { 1 });
        assert_eq!(files.last().unwrap()["closed"], false);
        for (parameters, flags) in [
            ("", &[][..]),
            ("?by=packets&dim=port&limit=3", &["--by", "packets", "--dim", "port", "-n", "3"]),
            ("?by=flows&last=1h", &["--by", "flows", "--last", "1h"]),
            ("?dim=pair&last=2d&limit=1000", &["--dim", "pair", "--last", "2d", "-n", "1000"]),
            ("?dim=vlan&last=2d", &["--dim", "vlan", "--last", "2d"]),
        ] {
            let words = [&["stats", "top", "--json"][..], flags].concat();
            still.agreed(&words, || get(&format!("stats/top{parameters}")));
        }
        let endless = format!("{ENDLESS} SELECT i, i * 0.5, 'x\u{1b}' || i, NULL, x'00ff' FROM n LIMIT 9");
        for statement in [
            "SELECT count(*), sum(packets) FROM intervals",
            "SELECT * FROM flows ORDER BY end_ns, start_ns, src_ip, src_port, dst_ip, dst_port",
            "SELECT ip, sum(in_bytes) AS bytes FROM traffic GROUP BY ip ORDER BY bytes DESC, ip",
            "SELECT * FROM totals ORDER BY ts, ip LIMIT 50;  -- as other programs ask",
            "SELECT name FROM pragma_table_info('flows')",
            &endless,
        ] {
            still.agreed(&["stats", "sql", statement, "--json"], || still.sql(statement));
        }
        let first_s = Conversations::default().start_ns / SECOND;
        let span = [format!("@{}", first_s + 2), format!("@{}.5", first_s + 4)];
        for (parameters, flags) in [
            ("format=jsonl".to_string(), vec!["--format", "jsonl"]),
            ("format=csv&filter=udp".to_string(), vec!["--format", "csv", "udp"]),
            (
                format!("filter=host+10.0.0.1+and+not+vlan+1&from={}&to={}", span[0], span[1]),
                vec![
                    "host 10.0.0.1 and not vlan 1",
                    "--from",
                    &span[0],
                    "--to",
                    &span[1],
                    "--format",
                    "jsonl",
                ],
            ),
            ("filter=udp+port+9".to_string(), vec!["udp port 9", "--format", "jsonl"]),
        ] {
            let words = [&["flows"][..], &flags].concat();
            let heard = still.agreed(&words, || get(&format!("flows?{parameters}")));
            let head = usize::from(parameters.contains("csv"));
            let records = (text(&heard).lines().count() - head).to_string();
            assert_eq!(header(&heard, "wirescope-records"), Some(&*records));
            assert_eq!(header(&heard, "wirescope-cut"), None);
        }
        let all = text(&get("flows"));
        assert!(all.lines().count() > 50 && all.lines().all(|line| line.contains("\"filter\":\"")), "{all}");
        let few = get("flows?limit=3");
        let first: String = all.lines().take(3).map(|line| format!("{line}\n")).collect();
        assert_eq!((text(&few), header(&few, "wirescope-cut")), (first, Some("rows")));
        // Copies of each file; by now no rows come any more.
        for file in &files {
            let id = file["id"].as_str().unwrap();
            let copy = answered(|| get(&format!("stats/files/{id}")));
            let name = if is_folder { format!("wirescope-{id}.sqlite") } else { id.to_string() };
            assert_eq!(header(&copy, "content-type"), Some("application/vnd.sqlite3"), "{}", copy.head);
            let len = copy.bytes.len().to_string();
            assert_eq!(header(&copy, "content-length"), Some(&*len));
            let named = format!("attachment; filename=\"{name}\"");
            assert_eq!(header(&copy, "content-disposition"), Some(&*named));
            let [ours, theirs] = ["ours.sqlite", "theirs.sqlite"].map(|name| still.running.place.path(name));
            std::fs::write(&ours, &copy.bytes).unwrap();
            let _ = std::fs::remove_file(&theirs);
            still.printed(&["stats", "copy", id, "--out", theirs.to_str().unwrap()]);
            assert!(rows(&ours) == rows(&theirs) && rows(&ours).len() > 100, "{id}");
            let head = still.running.ask(&format!(
                "HEAD /api/v1/stats/files/{id} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"
            ));
            assert_eq!((head.status, header(&head, "content-length")), (200, Some(&*len)), "{}", head.head);
            assert!(head.bytes.is_empty());
        }
        // What they did so far: as the summary says it in the end.
        let stats = get("stats").body;
        let (_, db, done) = still.end();
        let summary: Value = serde_json::from_str(&done.stdout).unwrap();
        let keys = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
        assert_eq!(keys(&stats), keys(&summary["stats"]));
        for key in ["db", "ipfix", "interval_ns", "flows_max", "evicted", "late", "folded_rows", "failing"] {
            assert_eq!(stats[key], summary["stats"][key], "{key}");
        }
        assert_eq!(stats["db"], db.display().to_string());
        assert!(stats["rows"].as_u64() > Some(100) && stats["flows"].as_u64() > Some(0), "{stats}");
        assert!(stats["bytes"].as_u64() > Some(0) && stats["disk_free"].as_u64() > Some(0), "{stats}");
        assert!(stats["written_ns"].as_i64() > Some(first_s * SECOND), "{stats}");
    }
}

#[test]
fn an_analyst_who_sees_all_may_ask_and_nobody_else_and_each_request_is_a_line_of_the_audit() {
    let place = Place::new();
    let db = place.path("x.sqlite").display().to_string();
    let running = Running::bare(place, &[&LIVE[..], &["--db", &db]].concat());
    let tokens = running.place.path("tokens");
    let token = |words: &[&str]| door::token(&tokens, words);
    let analyst = token(&["--role", "analyst", "--name", "ana"]);
    let viewer = token(&["--role", "viewer", "--name", "eye"]);
    let bound = token(&["--role", "analyst", "--name", "shop", "--filter", "udp"]);
    let serving = door::Serving::new(&tokens, &[running.socket().display().to_string()], &[]);
    let is_there = || serving.get(&analyst, "stats/top").status == 200;
    wait_until("the first interval", is_there);
    let begun = audit(&running.place).len();
    for (method, route, body) in ROUTES {
        let heard = answered(|| serving.order(method, &analyst, route, body));
        assert_eq!(heard.status, 200, "{route}: {heard:?}");
        for (who, word) in [(&viewer, "role"), (&bound, "wirescope-filter")] {
            let heard = serving.order(method, who, route, body);
            assert_eq!((heard.status, &heard.body["faults"][0]["place"]), (403, &json!(word)), "{route}");
            assert!(heard.body["faults"][0]["remedy"].is_string());
        }
        assert_eq!(serving.order(method, "x", route, body).status, 401, "{route}");
    }
    // A copy is whole on its way through the door, too.
    let copy = answered(|| serving.get(&analyst, "stats/files/x.sqlite"));
    assert_eq!(header(&copy, "content-length"), Some(&*copy.bytes.len().to_string()));
    let path = running.place.path("copy.sqlite");
    std::fs::write(&path, &copy.bytes).unwrap();
    assert!(!rows(&path).is_empty());
    let is_noted = |line: &Value, route: &str| {
        line["name"] == "ana" && line["path"] == format!("/api/v1/{route}") && line["status"] == 200
    };
    wait_until("all lines", || {
        let lines = audit(&running.place)[begun..].to_vec();
        ROUTES.iter().all(|(_, route, _)| lines.iter().any(|line| is_noted(line, route)))
    });
    let lines = audit(&running.place)[begun..].to_vec();
    for (method, route, body) in ROUTES {
        let path = format!("/api/v1/{route}");
        let of = |name: &str| {
            let is_it =
                |line: &&Value| line["name"] == name && line["path"] == path && line["method"] == method;
            lines
                .iter()
                .filter(|line| name != "ana" || is_noted(line, route))
                .find(is_it)
                .unwrap_or_else(|| panic!("{route} by {name}: {lines:#?}"))
        };
        let line = of("ana");
        assert_eq!((&line["status"], &line["role"]), (&json!(200), &json!("analyst")));
        if !body.is_empty() {
            assert_eq!(line["what"], serde_json::from_str::<Value>(body).unwrap(), "{line}");
        }
        if route != "stats" {
            // A slow machine has more records by then than one answer holds.
            let result = line["given"]["result"].as_str().unwrap();
            assert!(result == "complete" || result.starts_with("cut: "), "{line}");
            assert!(line["given"]["bytes"].is_u64(), "{line}");
        }
        for name in ["eye", "shop"] {
            assert_eq!(of(name)["status"], 403);
        }
    }
    serving.end();
    running.end();
}

#[test]
fn what_can_not_be_asked_is_refused_with_its_place_and_a_remedy() {
    let still = Still::new(false);
    let files = names(still.running.place.root());
    let refused = |heard: Heard, status: u16, place: &str, about: &str| {
        let fault = &heard.body["faults"][0];
        assert_eq!((heard.status, &fault["place"]), (status, &json!(place)), "{about}: {heard:?}");
        for key in ["cause", "remedy"] {
            assert!(fault[key].as_str().is_some_and(|text| !text.is_empty()), "{about}: {heard:?}");
        }
        heard.body["faults"][0]["cause"].as_str().unwrap().to_string()
    };
    for (route, place) in [
        ("flows?filter=prot+80", "filter"),
        ("flows?filter=udp%00", "filter"),
        ("flows?filter=ether+host+02:00:00:00:00:01", "filter"),
        ("flows?filter=udp%5b0%5d+=+1", "filter"),
        ("flows?filtre=udp", "filtre"),
        ("flows?from=soon", "from"),
        ("flows?from=@20&to=@10", "to"),
        ("flows?limit=0", "limit"),
        ("flows?limit=99999999", "limit"),
        ("flows?format=table", "format"),
        ("flows?follow=true", "follow"),
        ("stats?x=1", "x"),
        ("stats/files?db=/etc/passwd", "db"),
        ("stats/files/x.sqlite?path=/etc/passwd", "path"),
        ("stats/top?by=size", "by"),
        ("stats/top?dim=host", "dim"),
        ("stats/top?last=never", "last"),
        ("stats/top?limit=0", "limit"),
    ] {
        refused(still.running.get(route), 400, place, route);
    }
    // No path comes from a client: what is asked for is one of the list, or isn't there.
    for id in [
        "y.sqlite",
        "..",
        ".",
        "x.sqlite-wal",
        "..%2fx.sqlite",
        "%2fetc%2fpasswd",
        ".%2fx.sqlite",
        "x.sqlite%2f",
        "X.SQLITE",
        "*",
        "%25",
        "2026-11-20",
    ] {
        refused(still.running.get(&format!("stats/files/{id}")), 404, "ID", id);
    }
    refused(still.running.get("stats/files/x.sqlite%00"), 400, "path", "NUL");
    assert_eq!(still.running.get("stats/files/../files").status, 404);
    let cause = |statement: &str| refused(still.sql(statement), 400, "sql", statement);
    for statement in [
        "DELETE FROM flows",
        "INSERT INTO losses VALUES (1, 2, 'x', 'y', 3)",
        "UPDATE runs SET host = 'x'",
        "CREATE TABLE x (y)",
        "DROP TABLE flows",
        "VACUUM INTO '/tmp/x.sqlite'",
        "ATTACH '/etc/passwd' AS x",
        "PRAGMA journal_mode = DELETE",
        "PRAGMA writable_schema = 1",
        "SELECT load_extension('/tmp/x.so')",
        "SELECT * FROM pragma_journal_mode",
        "BEGIN IMMEDIATE",
        "EXPLAIN DELETE FROM flows",
    ] {
        let cause = cause(statement);
        let is_told = cause.contains("something else than to read") || cause.contains("is no SELECT");
        assert!(is_told, "{statement}: {cause}");
    }
    assert!(cause("SELECT 1; SELECT 2").contains("more than one statement"));
    assert!(cause("SELECT 1; DELETE FROM flows").contains("more than one statement"));
    assert!(cause("SELECT 1\0; DELETE FROM flows").contains("NUL"));
    assert!(cause("").contains("is no SELECT"));
    assert!(cause("SELEKT 1").contains("syntax error"));
    assert!(cause("SELECT absent FROM flows").contains("no such column"));
    assert!(cause("SELECT zeroblob(1000000000)").contains("too big"));
    for (body, place) in [
        ("", "sql"),
        ("{}", "sql"),
        (r#"{"sql": 1}"#, "sql"),
        (r#"{"sql": "SELECT 1", "db": "/etc/passwd"}"#, "db"),
        (r#"["SELECT 1"]"#, "body"),
        ("{", "body"),
    ] {
        refused(still.running.post("stats/sql", body), 400, place, body);
    }
    assert_eq!(still.running.get("stats/sql").status, 405);
    let untouched = |name: &String| !name.starts_with("x.sqlite");
    let now: Vec<String> = names(still.running.place.root()).into_iter().filter(untouched).collect();
    assert_eq!(now, files.into_iter().filter(untouched).collect::<Vec<_>>(), "nothing was made");
    assert!(still.sql("SELECT count(*) > 0 FROM flows").body["rows"] == json!([[1]]));
    still.end();
}

#[test]
fn an_answer_that_takes_too_much_is_cut_and_the_run_answers_others_meanwhile() {
    let still = Still::new(true);
    // On a machine that is too busy time may be what ends it first.
    let cut = |statement: &str, word: &str| {
        let mut cut = (0, 0);
        wait_until(word, || {
            let heard = answered(|| still.sql(&format!("{ENDLESS} {statement}")));
            assert_eq!(heard.status, 200, "{statement}: {}", heard.body);
            cut = (heard.body["rows"].as_array().unwrap().len(), heard.bytes.len());
            assert!(
                heard.body["cut"] == word || heard.body["cut"] == "time",
                "{statement}: {}",
                heard.body["cut"]
            );
            heard.body["cut"] == word
        });
        cut
    };
    assert_eq!(cut("SELECT i FROM n", "rows").0, 10_000);
    let (count, bytes) = cut("SELECT hex(randomblob(1000)) FROM n", "bytes");
    assert!((1000..10_000).contains(&count) && bytes < 16 << 20, "{count} {bytes}");
    assert_eq!(cut("SELECT i, randomblob(1000) AS x FROM n ORDER BY x", "memory").0, 0);
    // Some without an end, beside which all others are answered, as many as may be.
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let ask = || {
            while !is_over.load(Ordering::Relaxed) {
                let heard = still.sql(&format!("{ENDLESS} SELECT count(*) FROM n"));
                assert!(heard.status == 429 || heard.body["cut"] == "time", "{heard:?}");
                assert!(heard.status == 429 || heard.body["rows"] == json!([]), "{heard:?}");
            }
        };
        for _ in 0..6 {
            scope.spawn(ask);
        }
        let _told = Told(&is_over);
        for route in ["stats/files", "stats/top", "flows", "stats/files/2026-11-20", "packets?count=true"] {
            wait_until("all places to be taken", || {
                let heard = still.running.get(route);
                heard.status == 429 && header(&heard, "retry-after") == Some("1")
            });
        }
        for route in ["health/ready", "stats", "metrics", "dumps"] {
            assert_eq!(still.running.get(route).status, 200, "{route}");
        }
        let is_cut = |line: &Value| line["given"]["result"] == "cut: time" && line["given"]["rows"] == 0;
        wait_until("the end of one", || audit(&still.running.place).iter().any(is_cut));
    });
    assert_eq!(answered(|| still.running.get("stats/top?last=2d")).status, 200);
    still.end();
}

/// Whether a question is being answered.
fn is_asked(running: &Running) -> bool {
    String::from_utf8(running.get("metrics").bytes).unwrap().contains("wirescope_questions_open 1\n")
}

/// Says at its end that all is over.
struct Told<'a>(&'a AtomicBool);

impl Drop for Told<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn a_client_that_goes_away_ends_its_question_or_its_copy_and_is_noted() {
    let place = Place::new();
    let db = place.path("x.sqlite").display().to_string();
    let running = Running::bare(place, &[&LIVE[..], &["--db", &db]].concat());
    let lines = |result: &str, path: &str| {
        let is_it = |line: &&Value| line["given"]["result"] == result && line["path"] == path;
        audit(&running.place).iter().filter(is_it).count()
    };
    let (gone, cut) = ("the client went away", "cut: time");
    let sql = "/api/v1/stats/sql";
    // The time that an answer may take isn't what ends all of them.
    for number in 0.. {
        let body = json!({"sql": format!("{ENDLESS} SELECT count(*) FROM n")}).to_string();
        let (kind, len) = ("content-type: application/json\r\n", body.len());
        let head = format!("POST {sql} HTTP/1.1\r\nhost: x\r\n{kind}content-length: {len}\r\n\r\n");
        let mut client = UnixStream::connect(running.socket()).unwrap();
        client.write_all((head + &body).as_bytes()).unwrap();
        let is_noted = || lines(gone, sql) + lines(cut, sql) > number;
        if number % 2 == 0 {
            wait_until("its question", || is_asked(&running) || is_noted());
        }
        drop(client);
        wait_until("its line of the audit", is_noted);
        if lines(gone, sql) > 4 {
            break;
        }
    }
    wait_until("more than fits into a socket", || {
        running.get("stats").body["bytes"].as_u64() > Some(8 << 20)
    });
    for number in 0..5 {
        let mut client = UnixStream::connect(running.socket()).unwrap();
        client.set_read_timeout(Some(LIMIT)).unwrap();
        client.write_all(b"GET /api/v1/stats/files/x.sqlite HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
        client.read_exact(&mut [0; 65536]).unwrap();
        drop(client);
        wait_until("its line of the audit", || lines(gone, "/api/v1/stats/files/x.sqlite") == number + 1);
    }
    let noted = audit(&running.place);
    let line = noted.iter().rfind(|line| line["action"] == "StatsFile").unwrap();
    assert!(line["given"]["bytes"].as_u64().is_some_and(|bytes| bytes < 8 << 20), "{line}");
    // Two copies at once that nobody takes, and no third one; rows are written all the same.
    let mut held = Vec::new();
    wait_until("no place for a copy", || {
        held = (0..2)
            .map(|_| {
                let mut client = UnixStream::connect(running.socket()).unwrap();
                client.set_read_timeout(Some(LIMIT)).unwrap();
                client.write_all(b"GET /api/v1/stats/files/x.sqlite HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
                let _ = client.read_exact(&mut [0; 1000]); // another one may still be there
                client
            })
            .collect::<Vec<UnixStream>>();
        let third = running.get("stats/files/x.sqlite");
        third.status == 429 && header(&third, "retry-after") == Some("1")
    });
    let written = || running.get("stats").body["rows"].as_u64().unwrap();
    let before = written();
    wait_until("further rows", || written() > before);
    drop(held);
    let path = running.place.path("copy.sqlite");
    wait_until_or(
        "a place for a copy",
        || {
            let copy = running.get("stats/files/x.sqlite");
            std::fs::write(&path, &copy.bytes).unwrap();
            copy.status == 200
        },
        || format!("{:#?}", audit(&running.place).last()),
    );
    assert!(rows(&path).len() > 1000);
    running.end();
}

#[test]
fn a_run_that_ends_breaks_off_what_is_asked_and_notes_it() {
    let place = Place::new();
    let db = place.path("x.sqlite").display().to_string();
    let running = Running::bare(place, &[&LIVE[..], &["--db", &db]].concat());
    let body = json!({"sql": format!("{ENDLESS} SELECT count(*) FROM n")}).to_string();
    let (kind, len) = ("content-type: application/json\r\n", body.len());
    let head = format!("POST /api/v1/stats/sql HTTP/1.1\r\nhost: x\r\n{kind}content-length: {len}\r\n\r\n");
    let mut client = UnixStream::connect(running.socket()).unwrap();
    client.set_read_timeout(Some(LIMIT)).unwrap();
    client.write_all((head + &body).as_bytes()).unwrap();
    wait_until("its question", || is_asked(&running) || !audit(&running.place).is_empty());
    let (place, _) = running.end();
    let mut all = Vec::new();
    let _ = client.read_to_end(&mut all);
    let heard = Heard::of(&all);
    // A slow machine may have come to the end of its time before.
    assert!(heard.status == 503 || heard.body["cut"] == "time", "{heard:?}");
    let last = audit(&place).pop().unwrap();
    assert_eq!((&last["action"], last["status"].as_u64()), (&json!("StatsSql"), Some(heard.status.into())));
}

#[test]
fn a_run_without_a_database_says_so_and_one_with_a_collector_has_counters() {
    for with_collector in [false, true] {
        let collector = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = collector.local_addr().unwrap().to_string();
        let more: &[&str] = if with_collector { &["--ipfix", &address, "--flow-active", "1s"] } else { &[] };
        let running = Running::new(more);
        for (method, route, body) in ROUTES {
            let heard = match method {
                "GET" => running.get(route),
                _ => running.post(route, body),
            };
            if with_collector && route == "stats" {
                assert_eq!((heard.status, &heard.body["ipfix"]), (200, &json!(address)), "{heard:?}");
                assert_eq!(heard.body["db"], Value::Null);
                continue;
            }
            let fault = &heard.body["faults"][0];
            assert_eq!(heard.status, 404, "{route}: {heard:?}");
            let remedy = fault["remedy"].as_str().unwrap();
            assert!(fault["cause"].is_string() && remedy.contains("--db"), "{route}: {fault}");
        }
        if with_collector {
            wait_until("records", || running.get("stats").body["sent"].as_u64() > Some(0));
        }
        running.end();
    }
}

#[test]
fn before_the_first_rows_of_a_folder_there_is_nothing_and_no_error() {
    let place = Place::new();
    let days = place.path("days");
    std::fs::create_dir(&days).unwrap();
    let db = days.display().to_string();
    // Of a capture that has no packet yet.
    let nothing = Capture { packets: Vec::new(), ..conversations(1, 0) };
    let path = place.path("fed");
    assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
    let source = format!("file:{}", path.display());
    let feeder = std::thread::spawn(move || {
        let mut pipe = File::options().write(true).open(path).unwrap();
        pipe.write_all(&pcapng(&nothing, Precision::Nano, false)).unwrap();
        pipe
    });
    let running = Running::bare(place, &["--source", &source, "--db", &db]);
    let mut pipe = feeder.join().unwrap();
    assert_eq!(running.get("stats").body["rows"], 0);
    assert_eq!(running.get("stats/files").body, json!({"files": []}));
    let heard = running.post("stats/sql", r#"{"sql": "SELECT count(*) FROM flows, runs"}"#);
    assert_eq!((heard.status, &heard.body["rows"]), (200, &json!([[0]])), "{heard:?}");
    let heard = running.get("flows");
    assert_eq!((heard.status, heard.bytes.len()), (200, 0), "{heard:?}");
    for (route, remedy) in [
        ("stats/top", "wait until the first one is settled"),
        ("stats/files/2026-11-27", "wait until the first rows"),
    ] {
        let heard = running.get(route);
        let fault = &heard.body["faults"][0];
        assert_eq!(heard.status, 404, "{route}: {heard:?}");
        assert!(fault["remedy"].as_str().unwrap().contains(remedy), "{route}: {fault}");
    }
    assert_eq!(names(&days), [""; 0]);
    // And then there is something.
    let packets = pcapng(&conversations(100, 0), Precision::Nano, false);
    pipe.write_all(&packets).unwrap();
    drop(pipe);
    let done = running.started.finish(LIMIT);
    assert_eq!((done.code(), names(&days).len()), (Some(0), 1), "{}", done.stderr);
}

#[test]
fn a_run_that_gave_up_its_rights_is_asked_as_any_other_and_keeps_its_locks() {
    if !is_root() {
        return;
    }
    // Few rows: on a slow machine this takes minutes, in which readers keep SQLite's log from being emptied.
    let calm =
        LIVE.map(|word| if word.starts_with("synth:") { "synth:rate=1k,flows=200,size=100" } else { word });
    for is_folder in [false, true] {
        let place = Place::new();
        place.open_to_all();
        let own = place.path("own");
        std::fs::create_dir(&own).unwrap();
        chown(place.out(), Some(NOBODY), Some(NOBODY)).unwrap();
        let db = if is_folder {
            chown(&own, Some(NOBODY), Some(NOBODY)).unwrap();
            own.clone()
        } else {
            // Where the user that the run becomes finds nothing.
            std::fs::set_permissions(&own, PermissionsExt::from_mode(0o700)).unwrap();
            own.join("x.sqlite")
        };
        let running = Running::bare(place, &[&calm[..], &["--db", &db.display().to_string()]].concat());
        let status = std::fs::read_to_string(format!("/proc/{}/status", running.started.id())).unwrap();
        for line in ["Uid:\t65534\t65534\t65534\t65534", "Seccomp:\t2", "CapEff:\t0000000000000000"] {
            assert!(status.contains(line), "{line}: {status}");
        }
        wait_until("the first interval", || running.get("stats/top").status == 200);
        let id = running.get("stats/files").body["files"][0]["id"].as_str().unwrap().to_string();
        let path = if is_folder { own.join(format!("wirescope-{id}.sqlite")) } else { db };
        let inode = std::fs::metadata(&path).unwrap().ino();
        let pid = running.started.id().to_string();
        // SQLite's own lock on the database, which says to others that somebody has it open.
        let is_seen_locked = || {
            let locks = std::fs::read_to_string("/proc/locks").unwrap();
            let is_it = |line: &&str| {
                let words: Vec<&str> = line.split_whitespace().collect();
                words.contains(&"POSIX")
                    && words.contains(&&*pid)
                    && words.iter().any(|word| word.ends_with(&format!(":{inode}")))
            };
            locks.lines().any(|line| is_it(&line))
        };
        // A list that is longer than a page comes in pieces, and lacks a line where another one goes meanwhile. A lock that is lost
        // stays lost: it is taken when the database is opened.
        let is_locked = || (0..100).any(|_| is_seen_locked());
        assert!(is_locked());
        let copy = running.place.path("copy.sqlite");
        for _ in 0..10 {
            for (method, route, body) in ROUTES {
                let route = route.replace("x.sqlite", &id);
                let heard = answered(|| match method {
                    "GET" => running.get(&route),
                    _ => running.post(&route, body),
                });
                assert_eq!(heard.status, 200, "{route}: {heard:?}");
                if route.contains(&id) {
                    std::fs::write(&copy, &heard.bytes).unwrap();
                }
            }
            assert!(is_locked());
        }
        assert!(rows(&copy).len() > 10);
        // What others read meanwhile takes nothing away.
        let done = finish({
            let mut command = wirescope(&["stats", "sql", "SELECT sum(packets) FROM intervals", "--db"]);
            command.arg(&path);
            command
        });
        assert_eq!(done.code(), Some(0), "{}", done.stderr);
        assert!(is_locked() && path.with_extension("sqlite-wal").exists());
        let before = running.get("stats").body["rows"].as_u64().unwrap();
        wait_until("further rows", || running.get("stats").body["rows"].as_u64() > Some(before));
        assert_eq!(running.get("stats").body["failing"], Value::Null);
        // Nothing is left beside the database but what SQLite keeps there.
        let strange = |name: &String| !name.contains(".sqlite") || name.contains("copy");
        assert_eq!(names(&own).into_iter().filter(strange).collect::<Vec<_>>(), [""; 0]);
        let (_place, _) = running.end();
        assert!(!rows(&path).is_empty());
    }
}
