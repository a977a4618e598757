//! What goes wrong is a value: nothing is written twice, nothing that isn't ours is touched.

use crate::made::{
    LENGTH, SECOND, T0, expect_sound, flow, one, open, open_with, options, reader, rows, settled,
};
use crate::{HOUR, refused};
use rusqlite::Connection;
use scope_flow::rows::Settled;
use scope_spelling::values::SizeOrShare;
use scope_stats::schema::{APPLICATION_ID, VERSION};
use scope_stats::{Every, Failed, Options, Writer, check_interval};
use std::path::Path;

fn packets(path: &Path) -> i64 {
    one(&reader(path), "SELECT coalesce(sum(packets), 0) FROM intervals")
}

#[test]
fn a_program_that_has_the_database_locked_keeps_rows_with_the_caller_and_none_is_written_twice() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.sqlite");
    let mut writer = open(&path);
    let other = Connection::open(&path).unwrap();
    let mut given = Settled::default();
    for round in 0..3 {
        other.execute_batch("BEGIN IMMEDIATE").unwrap();
        let next = settled(T0 + round * LENGTH, 1);
        given.intervals.extend(next.intervals);
        given.traffic.extend(next.traffic);
        given.flows.extend(next.flows);
        let waiting = given.rows();
        let failed = writer.write(&mut given, T0).unwrap_err();
        assert!(matches!(failed, Failed::Locked { .. }), "{failed}");
        assert_eq!((given.rows(), packets(&path)), (waiting, round.min(1)));
        other.execute_batch("ROLLBACK").unwrap();
        if round != 1 {
            writer.write(&mut given, T0).unwrap();
            assert!(given.is_empty());
        }
    }
    writer.close(T0).unwrap();
    assert_eq!(packets(&path), 3);
    assert_eq!(one::<i64>(&reader(&path), "SELECT count(*) FROM flows"), 3);
    assert_eq!(one::<i64>(&reader(&path), "SELECT count(*) FROM runs"), 1);
}

#[test]
fn readers_never_hold_the_writer_up() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.sqlite");
    let mut writer = open(&path);
    writer.write(&mut settled(T0, 1), T0).unwrap();
    let reader = reader(&path);
    reader.execute_batch("BEGIN").unwrap();
    assert_eq!(one::<i64>(&reader, "SELECT sum(packets) FROM intervals"), 1);
    for step in 1..100 {
        writer.write(&mut settled(T0 + step * LENGTH, 1), T0).unwrap();
    }
    assert_eq!(one::<i64>(&reader, "SELECT sum(packets) FROM intervals"), 1, "its moment stays");
    assert_eq!(packets(&path), 100);
    writer.close(T0).unwrap();
}

#[test]
fn a_file_is_written_by_one_run_at_a_time() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.sqlite");
    let mut writer = open(&path);
    let words =
        format!("--db: {} is written by another run; stop that one, or choose another name", path.display());
    assert_eq!(refused(options(&path)), [words]);
    writer.write(&mut settled(T0, 1), T0).unwrap();
    writer.close(T0).unwrap();
    open(&path).close(T0).unwrap();
    assert_eq!(packets(&path), 1);
}

#[test]
fn what_is_no_database_of_ours_is_refused_and_not_touched() {
    let folder = tempfile::tempdir().unwrap();
    let check = |name: &str, words: &str| {
        let path = folder.path().join(name);
        let before = std::fs::read(&path).unwrap();
        assert_eq!(refused(options(&path)), [format!("--db: {} {words}", path.display())]);
        assert_eq!(std::fs::read(&path).unwrap(), before);
        for beside in ["-wal", "-shm", "-journal"] {
            assert!(!folder.path().join(format!("{name}{beside}")).exists(), "{name}{beside}");
        }
    };
    let database = |name: &str, sql: &str| {
        let connection = Connection::open(folder.path().join(name)).unwrap();
        connection.execute_batch(sql).unwrap();
        connection.close().unwrap();
    };
    std::fs::write(folder.path().join("text"), "rather long, but no database at all".repeat(10)).unwrap();
    check("text", "is no database of statistics; choose another name");
    std::fs::write(folder.path().join("empty"), "").unwrap();
    check("empty", "is no database of statistics; choose another name");
    std::fs::write(folder.path().join("short"), "SQLite format 3\0").unwrap();
    check("short", "is no database of statistics; choose another name");
    database("other", "PRAGMA journal_mode=WAL; CREATE TABLE a (b); INSERT INTO a VALUES (1)");
    check("other", "is a database of another program; choose another name");
    database("foreign", "PRAGMA application_id = 7; CREATE TABLE intervals (b)");
    check("foreign", "is a database of another program; choose another name");
    let newer = VERSION + 1;
    database("newer", &format!("PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {newer}"));
    check(
        "newer",
        &format!(
            "has tables of version {newer}; this program knows those of version {VERSION}; \
             use that version, or choose another name"
        ),
    );
    open(&folder.path().join("ours")).close(T0).unwrap();
    let path = folder.path().join("ours");
    let words = format!(
        "--db: {} has intervals of 10s; write --db-interval 10s, or choose another name",
        path.display()
    );
    assert_eq!(refused(Options { interval_ns: SECOND, ..options(&path) }), [words]);
}

#[test]
fn all_that_is_wrong_with_the_options_is_found_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("no/x.sqlite");
    let given = Options {
        every: Some(Every::Day),
        keep: Some(3),
        budget: Some(1),
        min_free: Some(SizeOrShare::Bytes(1)),
        interval_ns: 7 * SECOND,
        ..options(&path)
    };
    let parent = folder.path().join("no");
    let one_file = |key: &str| {
        format!(
            "--{key}: there is only one file, and it stays; write into a folder that is there, e.g. --db {}/",
            parent.join("x").display()
        )
    };
    assert_eq!(
        refused(given),
        [
            "--db-interval: 7s doesn't divide a day: intervals would begin at other times each day; \
             write e.g. --db-interval 8s"
                .to_string(),
            one_file("db-every"),
            one_file("db-keep"),
            one_file("db-budget"),
            one_file("db-min-free"),
            format!("--db: there is no folder {0}; make it by: mkdir -p {0}", parent.display()),
        ]
    );
    let missing = folder.path().join("missing/");
    assert_eq!(
        refused(Options { keep: Some(0), ..options(&missing) }),
        [
            "--db-keep: the file that is written stays; write at least 1".to_string(),
            format!("--db: there is no folder {0}; make it by: mkdir -p {0}", missing.display()),
        ]
    );
    assert!(std::fs::read_dir(folder.path()).unwrap().next().is_none(), "nothing is made");
}

#[test]
fn an_interval_is_from_100_ms_to_a_day_and_divides_it() {
    let check = |length_ns: i64, expected: Option<&str>| {
        let found = check_interval(length_ns).map(|fault| fault.to_string());
        assert_eq!(found.as_deref(), expected, "{length_ns}");
    };
    for fits in [SECOND / 10, SECOND / 4, SECOND, 10 * SECOND, 60 * SECOND, 7 * HOUR / 7, 24 * HOUR] {
        check(fits, None);
    }
    check(0, Some("--db-interval: 0s is shorter than 100ms; write e.g. --db-interval 100ms"));
    check(
        99_999_999,
        Some("--db-interval: 99999999ns is shorter than 100ms; write e.g. --db-interval 100ms"),
    );
    check(48 * HOUR, Some("--db-interval: 2d is longer than a day; write e.g. --db-interval 1d"));
    check(
        7 * HOUR,
        Some(
            "--db-interval: 7h doesn't divide a day: intervals would begin at other times each day; \
             write e.g. --db-interval 8h",
        ),
    );
    check(
        300_000_001,
        Some(
            "--db-interval: 300000001ns doesn't divide a day: intervals would begin at other times each day; \
             write e.g. --db-interval 300ms",
        ),
    );
}

/// Overwrites everything but the first page, on which the tables and their version stand.
fn damage(path: &Path) {
    let mut bytes = std::fs::read(path).unwrap();
    bytes[4096..].fill(0xa5);
    std::fs::write(path, bytes).unwrap();
}

fn hourly(folder: &Path) -> Options {
    Options { every: Some(Every::Hour), ..options(folder) }
}

#[test]
fn a_damaged_file_of_a_folder_is_moved_aside_and_a_new_one_begun() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("wirescope-2026-11-20T18.sqlite");
    for (round, how) in [damage, |path: &Path| std::fs::write(path, "no database".repeat(1000)).unwrap()]
        .into_iter()
        .enumerate()
    {
        let mut writer = open_with(hourly(folder.path()));
        writer.write(&mut settled(T0, 1), T0).unwrap();
        writer.close(T0).unwrap();
        how(&path);
        let damaged = std::fs::read(&path).unwrap();

        let mut writer = open_with(hourly(folder.path()));
        let mut given = settled(T0, 2);
        let failed = writer.write(&mut given, T0).unwrap_err();
        assert!(matches!(failed, Failed::Damaged { .. }), "{failed}");
        assert_eq!(given.rows(), 4);
        let aside = format!("wirescope-2026-11-20T18.sqlite.damaged-{}", round + 1);
        assert_eq!(writer.move_aside().unwrap(), Some(aside.clone().into()));
        assert_eq!(writer.move_aside().unwrap(), None, "once");
        writer.write(&mut given, T0).unwrap();
        assert_eq!(writer.counters().moved_aside, 1);
        writer.close(T0).unwrap();
        assert_eq!(packets(&path), 2);
        expect_sound(&path);
        assert_eq!(std::fs::read(folder.path().join(aside)).unwrap(), damaged, "as it was");
        std::fs::remove_file(&path).unwrap();
    }
}

#[test]
fn a_file_that_is_damaged_or_gone_while_it_is_written_is_found_so() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("wirescope-2026-11-20T18.sqlite");
    let mut writer = open_with(hourly(folder.path()));
    writer.write(&mut settled(T0, 1), T0).unwrap();
    std::fs::remove_file(&path).unwrap();
    let mut given = settled(T0, 2);
    let failed = writer.write(&mut given, T0).unwrap_err();
    assert!(failed.to_string().ends_with("is damaged: it was removed or replaced while it was written"));
    assert!(writer.move_aside().unwrap().is_some());
    writer.write(&mut given, T0).unwrap();
    assert_eq!(packets(&path), 2);
    // Another one has its name when it is closed: that one isn't touched.
    std::fs::rename(&path, folder.path().join("moved")).unwrap();
    std::fs::write(&path, "another one").unwrap();
    let failed = writer.close(T0).unwrap_err();
    assert!(matches!(failed, Failed::Damaged { .. }), "{failed}");
    assert_eq!(std::fs::read(&path).unwrap(), b"another one");
}

#[test]
fn the_only_file_is_left_where_it_is_when_it_is_damaged() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.sqlite");
    let mut writer = open(&path);
    writer.write(&mut settled(T0, 1), T0).unwrap();
    writer.close(T0).unwrap();
    damage(&path);
    let before = std::fs::read(&path).unwrap();
    let faults = refused(options(&path));
    assert!(faults[0].contains("is damaged: "), "{faults:?}");
    assert_eq!(std::fs::read(&path).unwrap(), before);

    let path = folder.path().join("y.sqlite");
    let mut writer = open(&path);
    std::fs::rename(&path, folder.path().join("z.sqlite")).unwrap();
    let failed = writer.write(&mut settled(T0, 1), T0).unwrap_err();
    assert!(matches!(failed, Failed::Damaged { .. }), "{failed}");
    assert_eq!(writer.move_aside().unwrap(), None);
}

#[test]
fn no_file_is_opened_by_name_once_the_only_one_is_open() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.sqlite");
    let mut writer = Writer::open(options(&path), crate::made::facts()).unwrap();
    let task = move || {
        scope_rights::CommandRules::new().unwrap().take_on().unwrap();
        for step in 0..200 {
            let mut given = Settled { flows: vec![flow(T0, 1); 200], ..settled(T0 + step * LENGTH, 1) };
            writer.write(&mut given, T0).unwrap();
        }
        writer.close(T0).unwrap();
    };
    std::thread::spawn(task).join().unwrap();
    assert_eq!(packets(&path), 200);
    assert_eq!(std::fs::metadata(folder.path().join("x.sqlite-wal")).unwrap().len(), 0, "kept, and empty");
    let runs = rows(&reader(&path), "SELECT end_ns FROM runs");
    assert_eq!(runs, [T0.to_string()]);
    // And it goes on from there.
    let mut writer = open(&path);
    writer.write(&mut settled(T0, 1), T0).unwrap();
    writer.close(T0).unwrap();
    assert_eq!(packets(&path), 201);
}
