//! `wirescope stats` and `wirescope flows` on databases, by whoever may read them, also while they are written.

mod run;

use run::{Done, Place, Started, finish, is_root, names, skip, wait_until, wirescope};
use scope_flow::rows::{
    Amount, CommunityId, FlowRow, IntervalRow, Owner, Proto, Reason, Role, Settled, Side, State, Sum,
    TrafficRow,
};
use scope_stats::{Every, Options, RunFacts, Writer};
use serde_json::Value;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const SECOND: i64 = 1_000_000_000;
const DAY: i64 = 86_400 * SECOND;
/// 2026-11-20T20:31:00Z.
const T0: i64 = 1_795_206_660 * SECOND;
const LENGTH: i64 = 10 * SECOND;
/// A user, and a group, that have nothing.
const STRANGER: u32 = 12_345;

/// An interval in which 10.0.0.1 got `packets` from 192.0.2.9, and sent half of it.
fn settled(ts_ns: i64, packets: u64) -> Settled {
    let amount = |packets: u64| Amount { packets, bytes: packets * 114, ip_bytes: packets * 100 };
    let (received, sent) = (amount(packets), amount(packets / 2));
    let sum = Sum { packets: received.packets + sent.packets, bytes: received.bytes + sent.bytes };
    let traffic = |ip, received, sent| TrafficRow {
        ts_ns,
        interface: Arc::from("eth0"),
        vlan: 0,
        ip,
        proto: Proto::Tcp,
        port: 443,
        role: Role::Client,
        received,
        sent,
    };
    let side = |amount: Amount| Side {
        packets: amount.packets,
        bytes: amount.bytes,
        ip_bytes: amount.ip_bytes,
        ..Side::default()
    };
    Settled {
        intervals: vec![IntervalRow {
            ts_ns,
            length_ns: LENGTH,
            interface: Arc::from("eth0"),
            packets: sum.packets,
            bytes: sum.bytes,
            ip_packets: sum.packets,
            ip_bytes: received.ip_bytes + sent.ip_bytes,
            tcp: sum,
            new_flows: 1,
            ..IntervalRow::default()
        }],
        traffic: vec![
            traffic(Owner::Address("10.0.0.1".parse().unwrap()), received, sent),
            traffic(Owner::Others, sent, received),
        ],
        flows: vec![FlowRow {
            start_ns: ts_ns,
            end_ns: ts_ns + SECOND + packets as i64,
            interface: Arc::from("eth0"),
            interface_rev: None,
            vlan: 0,
            proto: 6,
            source: Some(("10.0.0.1".parse().unwrap(), 40000)),
            destination: Some(("192.0.2.9".parse().unwrap(), 443)),
            forward: side(sent),
            reverse: side(received),
            rtt_server_ns: Some(12_000_000),
            rtt_client_ns: None,
            state: Some(State::Closed),
            community_id: CommunityId::new("1:abc=").unwrap(),
            reason: Reason::End,
        }],
        losses: Vec::new(),
    }
}

fn writer(path: &Path) -> Writer {
    let options = Options {
        db: path.to_path_buf(),
        every: path.is_dir().then_some(Every::Day),
        interval_ns: LENGTH,
        keep: None,
        budget: None,
        min_free: None,
        flow_rows: true,
    };
    let facts = RunFacts {
        run: "0195f3a0-5c1e-7000-8000-000000000001".to_string(),
        host: "here".to_string(),
        version: "0.1.0".to_string(),
        begin_ns: T0,
        sources: vec!["eth0".to_string()],
        local: "10.0.0.0/8".to_string(),
    };
    // A child that this process begins in another thread has the lock of a writer until it becomes another program.
    loop {
        match Writer::open(options.clone(), facts.clone()) {
            Ok(writer) => return writer,
            Err(faults) if faults.iter().all(|fault| fault.to_string().contains("another run")) => {
                std::thread::sleep(Duration::from_millis(5));
            }
            Err(faults) => panic!("{faults:?}"),
        }
    }
}

/// Five intervals, the last one a day later, in a file or in a folder that is there.
fn fill(path: &Path) -> Writer {
    let mut writer = writer(path);
    for number in 0..5 {
        let ts_ns = T0 + number * LENGTH + if number == 4 { DAY } else { 0 };
        writer.write(&mut settled(ts_ns, 10 + number as u64), T0).unwrap();
    }
    writer
}

fn stats(db: &Path, arguments: &[&str]) -> Command {
    let mut command = wirescope(&[&["stats"], arguments].concat());
    command.arg("--db").arg(db).env("TZ", "UTC");
    command
}

fn flows(db: &Path, arguments: &[&str]) -> Command {
    let mut command = wirescope(&[&["flows"], arguments].concat());
    command.arg("--db").arg(db).env("TZ", "UTC");
    command
}

fn done(command: Command) -> String {
    let words = format!("{command:?}");
    let done = finish(command);
    assert_eq!(done.code(), Some(0), "{words}: {}", done.stderr);
    done.stdout
}

fn json(command: Command) -> Value {
    serde_json::from_str(&done(command)).unwrap()
}

/// A closed file, and a closed folder, of the same rows.
fn both(place: &Place) -> [PathBuf; 2] {
    let (file, folder) = (place.path("stats.sqlite"), place.path("days"));
    std::fs::create_dir(&folder).unwrap();
    for path in [&file, &folder] {
        fill(path).close(T0).unwrap();
    }
    [file, folder]
}

#[test]
fn each_question_has_its_answer_from_a_file_and_from_a_folder() {
    let place = Place::new();
    for path in both(&place) {
        let top = json(stats(&path, &["top", "--last", "2d", "--json"]));
        assert_eq!((&top["rows"][0]["ip"], &top["rows"][0]["in_packets"]), (&"10.0.0.1".into(), &60.into()));
        let text =
            done(stats(&path, &["top", "--by", "packets", "--dim", "port", "--last", "20s", "-n", "3"]));
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[..2], ["packets     bytes   share  port", "     21  2.34 KiB  100.0%  tcp 443"]);
        let sum = "SELECT sum(packets) AS packets, count(DISTINCT ts_ns) AS intervals FROM intervals";
        assert_eq!(done(stats(&path, &["sql", sum])), "packets  intervals\n     89          5\n");
        let rows = json(stats(&path, &["sql", "--json", "SELECT ip, in_packets FROM traffic ORDER BY 1, 2"]));
        assert_eq!(rows["rows"].as_array().unwrap().len(), 10);
        let lines = done(flows(&path, &["host", "192.0.2.9", "and", "tcp", "port", "443"]));
        assert_eq!(lines.lines().count(), 1 + 2 + 5, "a head, two days, five flows: {lines}");
        assert!(
            lines.contains("\n20:31:00  1.0s    15  1.7K tcp   10.0.0.1:40000 > 192.0.2.9:443\n"),
            "{lines}"
        );
        assert!(lines.lines().all(|line| line.len() <= 80), "{lines}");
        let lines = done(flows(&path, &["--from", "2026-11-21T00:00Z", "--format", "jsonl"]));
        let record: Value = serde_json::from_str(lines.trim_end()).unwrap();
        assert_eq!((&record["packets_rev"], &record["src_ip"]), (&14.into(), &"10.0.0.1".into()));
        assert!(record["filter"].as_str().unwrap().contains("host 10.0.0.1 and host 192.0.2.9"));
        let csv = done(flows(&path, &["--to", "2026-11-20T20:31:10Z", "--format", "csv"]));
        let lines: Vec<&str> = csv.lines().collect();
        assert!(lines[0].starts_with("start_ns,end_ns,") && lines[0].ends_with(",reason,filter"), "{csv}");
        assert_eq!(lines.len(), 3);
        assert_eq!(done(flows(&path, &["udp"])).lines().count(), 1);
    }
    let files = json(stats(&place.path("days"), &["files", "--json"]));
    let ids: Vec<_> = files["files"].as_array().unwrap().iter().map(|file| &file["id"]).collect();
    assert_eq!(ids, ["2026-11-20", "2026-11-21"]);
    assert_eq!(files["files"][0]["from"], "2026-11-20T00:00:00.000000000Z");
    assert_eq!(files["files"][0]["closed"], true);
    let text = done(stats(&place.path("stats.sqlite"), &["files"]));
    assert!(text.starts_with("stats.sqlite  2026-11-20T20:31:00Z to 2026-11-21T20:31:50Z  "), "{text}");
}

#[test]
fn a_copy_and_an_export_are_made_with_no_more_rights_than_that_needs() {
    let place = Place::new();
    let [file, folder] = both(&place);
    let copy = place.path("copy.sqlite");
    let out = copy.display().to_string();
    let take = || stats(&folder, &["copy", "2026-11-21", "--out", &out]);
    done(take());
    assert_eq!(done(stats(&copy, &["sql", "SELECT packets FROM intervals"])), "packets\n     21\n");
    let refused = finish(take());
    assert!(refused.code() == Some(2) && refused.stderr.contains("--out: "), "{}", refused.stderr);
    let lake = place.path("lake");
    std::fs::create_dir(&lake).unwrap();
    let export = || {
        let out = lake.display().to_string();
        let exported = finish(stats(&file, &["export", "--format", "csv", "--out", &out]));
        assert_eq!(exported.code(), Some(0), "{}", exported.stderr);
        exported.stderr
    };
    let first = export();
    assert!(first.contains("21 rows in 7 files"), "{first}");
    assert_eq!(export(), first);
    let part = lake.join("flows/date=2026-11-21/hour=20/stats-0195f3a0.csv");
    assert_eq!(std::fs::read_to_string(part).unwrap().lines().count(), 2);
    assert!(names(&lake).iter().all(|name| scope_stats::schema::TABLES.contains(&name.as_str())));
    assert!(!names(place.root()).iter().any(|name| name.ends_with(".part")), "{:?}", names(place.root()));
}

/// All files of a folder, with what reading might change.
fn state(folder: &Path) -> Vec<(String, u64, i64, i64, Vec<u8>)> {
    names(folder)
        .into_iter()
        .filter(|name| folder.join(name).is_file())
        .map(|name| {
            let facts = folder.join(&name).metadata().unwrap();
            let bytes = std::fs::read(folder.join(&name)).unwrap();
            (name, facts.len(), facts.mtime(), facts.mtime_nsec(), bytes)
        })
        .collect()
}

#[test]
fn who_may_only_read_asks_also_while_rows_are_written_and_changes_nothing() {
    if !is_root() {
        return skip("only root makes files for others");
    }
    let place = Place::new();
    let binary = place.binary_for_all();
    for folder in ["one", "days"] {
        std::fs::create_dir(place.path(folder)).unwrap();
    }
    for (folder, path) in [("one", place.path("one/stats.sqlite")), ("days", place.path("days"))] {
        let folder = place.path(folder);
        let ask = |command: Command| -> Done {
            let mut as_stranger = Command::new(&binary);
            as_stranger
                .args(command.get_args())
                .uid(STRANGER)
                .gid(STRANGER)
                .current_dir("/")
                .env("TZ", "UTC");
            finish(as_stranger)
        };
        let mut writer = fill(&path);
        for name in names(&folder) {
            assert_eq!(folder.join(&name).metadata().unwrap().mode() & 0o777, 0o640, "{name}");
        }
        let refused = ask(stats(&path, &["top"]));
        assert!(refused.code() == Some(2) && refused.stderr.contains("--db: "), "{}", refused.stderr);
        assert!(refused.stderr.contains("may not be read by this user"), "{}", refused.stderr);
        let give = || {
            std::fs::set_permissions(&folder, PermissionsExt::from_mode(0o750)).unwrap();
            chown(&folder, None, Some(STRANGER)).unwrap();
            for name in names(&folder) {
                chown(folder.join(name), None, Some(STRANGER)).unwrap();
            }
        };
        give();
        for number in 0..5i64 {
            writer.write(&mut settled(T0 + 2 * DAY + number * LENGTH, 100), T0).unwrap();
            give();
            let before = state(&folder);
            let count = ask(stats(&path, &["sql", "SELECT count(*) AS flows FROM flows"]));
            assert_eq!(count.stdout, format!("flows\n{:>5}\n", 6 + number), "{}", count.stderr);
            for asked in [
                ask(stats(&path, &["top"])),
                ask(stats(&path, &["files"])),
                ask(flows(&path, &["--format", "jsonl"])),
            ] {
                assert_eq!(asked.code(), Some(0), "{}", asked.stderr);
            }
            assert!(state(&folder) == before, "{} was changed", folder.display());
        }
        assert!(
            json(stats(&path, &["files", "--json"]))["files"].as_array().unwrap().last().unwrap()["closed"]
                == false
        );
        writer.close(T0).unwrap();
        give();
        let before = state(&folder);
        let count = ask(stats(&path, &["sql", "SELECT count(*) AS flows FROM flows"]));
        assert_eq!(count.stdout, "flows\n   10\n", "{}", count.stderr);
        assert!(state(&folder) == before);
    }
}

#[test]
fn asking_goes_on_while_runs_begin_and_end() {
    let place = Place::new();
    std::fs::create_dir(place.path("days")).unwrap();
    for path in [place.path("stats.sqlite"), place.path("days")] {
        fill(&path).close(T0).unwrap();
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut number = 0;
                while !is_over.load(Ordering::Relaxed) {
                    let mut writer = writer(&path);
                    for _ in 0..3 {
                        number += 1;
                        writer.write(&mut settled(T0 + DAY + number * LENGTH, 5), T0).unwrap();
                    }
                    writer.close(T0).unwrap();
                }
            });
            let mut least = 5;
            for _ in 0..40 {
                let asked = finish(stats(&path, &["sql", "--json", "SELECT count(*) FROM flows"]));
                // What was read alone and written meanwhile is told of, and nothing else.
                if asked.code() == Some(1) && asked.stderr.contains("ask again") {
                    continue;
                }
                assert_eq!(asked.code(), Some(0), "{}", asked.stderr);
                let answer: Value = serde_json::from_str(&asked.stdout).unwrap();
                let count = answer["rows"][0][0].as_i64().unwrap();
                assert!(count >= least, "{count} behind {least}");
                least = count;
            }
            is_over.store(true, Ordering::Relaxed);
        });
    }
}

#[test]
fn flows_are_followed_until_it_is_told_to_end() {
    let place = Place::new();
    std::fs::create_dir(place.path("days")).unwrap();
    for path in [place.path("stats.sqlite"), place.path("days")] {
        let mut writer = fill(&path);
        let following = Started::new(flows(&path, &["--follow", "--format", "jsonl", "dst", "port", "443"]));
        // What it hasn't seen at its begin it prints: so rows are written until it does.
        let mut number = 0;
        wait_until("it follows", || {
            number += 1;
            writer.write(&mut settled(T0 + 3 * DAY + number * LENGTH, 7), T0).unwrap();
            following.printed().contains("community_id")
        });
        let before = number as usize;
        writer.write(&mut settled(T0 + 4 * DAY, 8), T0).unwrap();
        wait_until("the next day's", || following.printed().contains("\"packets_rev\":8"));
        following.signal(libc::SIGTERM);
        let ended = following.finish(run::LIMIT);
        assert_eq!(ended.code(), Some(0), "{}", ended.stderr);
        let lines = ended.stdout.lines().count();
        assert!((2..=before + 1).contains(&lines), "no flow of before: {lines} of {before}");
        writer.close(T0).unwrap();
    }
}

#[test]
fn following_ends_where_the_span_does_and_nothing_is_written_in_front_of_a_refusal() {
    let place = Place::new();
    let [file, folder] = both(&place);
    for db in [&file, &folder] {
        for to in ["2026-01-01T00:00:00Z", "now"] {
            let ended = finish(flows(db, &["--follow", "--from", "2026-01-01T00:00:00Z", "--to", to]));
            assert_eq!(ended.code(), Some(0), "{to}: {}", ended.stderr);
            assert!(ended.stdout.starts_with("BEGIN "), "{}", ended.stdout);
        }
    }
    let copy = place.path("damaged.sqlite");
    let mut bytes = std::fs::read(&file).unwrap();
    bytes[100..].fill(0x55);
    std::fs::write(&copy, bytes).unwrap();
    let refused = finish(flows(&copy, &[]));
    assert_eq!((refused.code(), refused.stdout.as_str()), (Some(1), ""), "{}", refused.stderr);
}

#[test]
fn a_file_without_a_byte_is_none_of_a_folder() {
    let place = Place::new();
    let [_, folder] = both(&place);
    let before = done(stats(&folder, &["files"]));
    std::fs::write(folder.join("wirescope-2000-01-01.sqlite"), b"").unwrap();
    assert_eq!(done(stats(&folder, &["files"])), before);
    assert!(done(stats(&folder, &["top"])).contains("10.0.0.1"));
}

#[test]
fn what_can_not_be_asked_is_refused_with_its_place_and_what_helps() {
    let place = Place::new();
    let [file, _] = both(&place);
    std::fs::write(place.path("text"), b"no database, whatever it is called").unwrap();
    let before = state(place.root());
    let refused = |command: Command, words: &[&str]| {
        let shown = format!("{command:?}");
        let done = finish(command);
        assert_eq!(done.code(), Some(2), "{shown}: {}{}", done.stdout, done.stderr);
        for words in words {
            assert!(done.stderr.contains(words), "{shown}: no '{words}' in {}", done.stderr);
        }
    };
    let missing = place.path("missing.sqlite");
    refused(stats(&missing, &["top"]), &["--db: ", "isn't there", "check the spelling"]);
    refused(stats(&place.path("text"), &["files"]), &["--db: ", "is no database"]);
    refused(stats(&place.path("out"), &["files"]), &["--db: ", "has no database in it"]);
    refused(stats(&file, &["top", "--by", "size"]), &["--by: 'size'", "write one of: bytes, packets, flows"]);
    refused(stats(&file, &["top", "--dim", "host"]), &["--dim: 'host'", "ip, port, pair, vlan"]);
    refused(stats(&file, &["top", "--last", "soon", "-n", "no"]), &["--last: 'soon'", "--limit: 'no'"]);
    refused(stats(&file, &["top", "--last", "0s"]), &["--last: '0s' is no span"]);
    refused(stats(&file, &["sql", "DELETE FROM flows"]), &["something else than to read", "one SELECT"]);
    refused(stats(&file, &["sql", "SELECT 1; SELECT 2"]), &["more than one statement"]);
    refused(
        stats(&file, &["sql", "SELECT x FROM flows"]),
        &["no such column: x", "\n  SELECT x FROM flows\n         ^"],
    );
    refused(
        stats(&file, &["copy", "other", "--out", "new.sqlite"]),
        &["ID: 'other'", "the newest are: stats.sqlite"],
    );
    let out = place.path("none").display().to_string();
    refused(stats(&file, &["export", "--out", &out]), &["--out: ", "no such folder", "mkdir -p"]);
    let out = place.out().display().to_string();
    refused(
        stats(&file, &["export", "--out", &out, "--format", "xml"]),
        &["--format: 'xml'", "parquet, csv, jsonl"],
    );
    refused(stats(&file, &["export", "--out", &out, "--from", "later"]), &["--from: 'later'"]);
    refused(
        flows(&file, &["len > 100"]),
        &["'len' at byte 0", "records of flows don't have", "  len > 100\n  ^"],
    );
    refused(flows(&file, &["host", "example.org"]), &["'example.org'"]);
    refused(flows(&file, &["--format", "xml"]), &["--format: 'xml'", "table, jsonl or csv"]);
    refused(
        flows(&file, &["--from", "2020-01-02T12:00:00Z", "--to", "2020-01-02T11:00:00Z"]),
        &["--to: the span ends before it begins"],
    );
    assert!(state(place.root()) == before);
    assert_eq!(names(&place.out()), Vec::<String>::new());
}

#[test]
fn a_select_without_an_end_is_ended_by_a_signal_and_says_so() {
    let place = Place::new();
    for path in both(&place) {
        // A row at once, and none behind it, ever.
        let endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) \
                       SELECT i FROM n, intervals WHERE i = 1";
        for (signal, code) in [(libc::SIGINT, 130), (libc::SIGTERM, 143)] {
            let asking = Started::new(stats(&path, &["sql", endless]));
            wait_until("it follows signals", || {
                let status = std::fs::read_to_string(format!("/proc/{}/status", asking.id())).unwrap();
                let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:\t")).unwrap();
                u64::from_str_radix(caught, 16).unwrap() & 1 << (libc::SIGTERM - 1) != 0
            });
            asking.signal(signal);
            let ended = asking.finish(run::LIMIT);
            assert_eq!(ended.code(), Some(code), "{}", ended.stderr);
            assert!(ended.stderr.contains(": it was stopped"), "{}", ended.stderr);
            assert!(ended.stdout.starts_with("i\n"), "{}", ended.stdout);
        }
    }
}

#[test]
fn an_answer_that_is_too_long_is_cut_and_says_so() {
    let place = Place::new();
    let [file, _] = both(&place);
    let endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n";
    let cut = finish(stats(&file, &["sql", "--json", endless]));
    assert_eq!(cut.code(), Some(1));
    assert!(cut.stderr.contains("the answer ends behind 1,000,000 rows: there are more"), "{}", cut.stderr);
    let answer: Value = serde_json::from_str(&cut.stdout).unwrap();
    assert_eq!((&answer["cut"], answer["rows"].as_array().unwrap().len()), (&"rows".into(), 1_000_000));
}
