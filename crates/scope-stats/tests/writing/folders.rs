//! A folder of files: rows lie in the file of their time, the oldest files go.

use crate::made::{
    LENGTH, SECOND, T0, expect_sound, facts, flow, interval, one, open_with, options, reader, rows, settled,
};
use crate::{HOUR, loss, refused};
use scope_flow::rows::{LossRow, Settled};
use scope_spelling::values::SizeOrShare;
use scope_stats::{Every, Options, Writer};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

fn hourly(folder: &Path) -> Options {
    Options { every: Some(Every::Hour), ..options(folder) }
}

fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn a_row_lies_in_the_file_of_its_time() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = open_with(hourly(folder.path()));
    assert!(names(folder.path()).is_empty(), "nothing is made before rows come");
    let mut given = Settled {
        flows: vec![flow(T0 + HOUR - 1, 1), flow(T0 + HOUR, 2)],
        losses: vec![loss(T0 + HOUR - 1, 3), loss(T0 + HOUR, 4)],
        ..settled(T0, 5)
    };
    let second = settled(T0 + HOUR, 6);
    given.intervals.extend(second.intervals);
    given.traffic.extend(second.traffic);
    writer.write(&mut given, T0).unwrap();
    let of = |hour: u32, sql: &str| {
        rows(&reader(&folder.path().join(format!("wirescope-2026-11-20T{hour}.sqlite"))), sql)
    };
    let all = "SELECT (SELECT sum(packets) FROM intervals) || ' ' || (SELECT sum(in_packets) FROM traffic) \
               || ' ' || (SELECT sum(packets_fwd) FROM flows) || ' ' || (SELECT sum(packets) FROM losses)";
    // What was lost up to the second file began in the first one.
    assert_eq!((of(18, all), of(19, all)), (vec!["5 5 1 7".to_string()], vec!["6 6 2 4".to_string()]));
    for name in names(folder.path()) {
        assert_eq!(mode(&folder.path().join(&name)), 0o640, "{name}");
    }
    writer.close(T0 + 7).unwrap();
    assert_eq!(names(folder.path()), ["wirescope-2026-11-20T18.sqlite", "wirescope-2026-11-20T19.sqlite"]);
    for hour in [18, 19] {
        assert_eq!(of(hour, "SELECT run, end_ns FROM runs"), [format!("run-1|{}", T0 + 7)]);
    }
}

#[test]
fn rows_that_come_late_are_added_to_the_file_of_their_time() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = open_with(hourly(folder.path()));
    let mut now_ns = T0;
    for hour in [0, 1, 2, 3, 0, 3, 1, 3, 2] {
        writer.write(&mut settled(T0 + hour * HOUR, 1), now_ns).unwrap();
        now_ns += SECOND;
    }
    let logs = names(folder.path()).iter().filter(|name| name.ends_with("-wal")).count();
    assert_eq!(logs, 2, "two are open at most");
    writer.close(now_ns).unwrap();
    let packets = |hour: i64| {
        let path = folder.path().join(format!("wirescope-2026-11-20T{}.sqlite", 18 + hour));
        expect_sound(&path);
        let reader = reader(&path);
        assert_eq!(one::<i64>(&reader, "SELECT count(*) FROM intervals"), 1);
        one::<i64>(&reader, "SELECT sum(packets) FROM intervals")
    };
    assert_eq!([0, 1, 2, 3].map(packets), [2, 2, 2, 3]);
}

#[test]
fn a_loss_stands_in_each_file_that_its_span_touches_and_counts_in_their_intervals() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = open_with(hourly(folder.path()));
    for hour in 0..4 {
        let mut rows = settled(T0 + hour * HOUR, 1);
        rows.intervals.push(interval(T0 + (hour + 1) * HOUR - LENGTH, "eth0", 1));
        writer.write(&mut rows, T0).unwrap();
    }
    let file = |hour: i64| folder.path().join(format!("wirescope-2026-11-20T{}.sqlite", 18 + hour));
    std::fs::remove_file(file(1)).unwrap();
    // From the end of the first hour into the begin of the fourth; it is known when all was written.
    let from_ns = T0 + HOUR - SECOND;
    let span = LossRow { from_ns, late_until_ns: T0 + 4 * HOUR, ..loss(T0 + 3 * HOUR + 5, 5) };
    writer.write(&mut Settled { losses: vec![span], ..Settled::default() }, T0).unwrap();
    // And one that was known in time, into whose first file the same rows go.
    let mut given = settled(T0 + 5 * HOUR - LENGTH, 1);
    given.intervals[0].lost_max = 6;
    given.losses.push(loss(T0 + 5 * HOUR, 6));
    writer.write(&mut given, T0).unwrap();
    writer.close(T0).unwrap();
    let of = |hour: i64| {
        let reader = reader(&file(hour));
        let lost = rows(&reader, "SELECT lost_max FROM intervals ORDER BY ts_ns").join(" ");
        (rows(&reader, "SELECT packets FROM losses").join(" "), lost)
    };
    let expected = |told: &str, lost: &str| (told.to_string(), lost.to_string());
    assert_eq!(of(0), expected("5", "0 5"));
    assert!(!file(1).exists(), "none is made for it");
    assert_eq!(of(2), expected("5", "5 5"));
    assert_eq!(of(3), expected("5", "5 0"));
    assert_eq!(of(4), expected("6", "6"));
    assert_eq!(of(5), expected("6", ""));
}

#[test]
fn a_failure_at_the_second_file_leaves_what_the_first_one_has_out_of_the_next_try() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = open_with(hourly(folder.path()));
    writer.write(&mut settled(T0 + HOUR, 1), T0).unwrap();
    let path = |hour: i64| folder.path().join(format!("wirescope-2026-11-20T{}.sqlite", 18 + hour));
    let other = rusqlite::Connection::open(path(1)).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let mut given = settled(T0, 2);
    let second = settled(T0 + HOUR, 4);
    given.intervals.extend(second.intervals);
    given.traffic.extend(second.traffic);
    given.flows.extend(second.flows);
    let failed = writer.write(&mut given, T0).unwrap_err();
    assert!(matches!(failed, scope_stats::Failed::Locked { .. }), "{failed}");
    assert_eq!(given.rows(), 4, "those of the first file are taken away");
    other.execute_batch("ROLLBACK").unwrap();
    writer.write(&mut given, T0).unwrap();
    writer.close(T0).unwrap();
    let packets = |hour: i64| one::<i64>(&reader(&path(hour)), "SELECT packets FROM intervals");
    assert_eq!([0, 1].map(packets), [2, 5]);
}

#[test]
fn a_file_that_others_have_followed_is_closed_after_a_minute_without_rows() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = open_with(hourly(folder.path()));
    let log = folder.path().join("wirescope-2026-11-20T18.sqlite-wal");
    writer.write(&mut settled(T0, 1), T0).unwrap();
    writer.write(&mut Settled::default(), T0 + 90 * SECOND).unwrap();
    assert!(log.exists(), "the newest one stays open");
    writer.write(&mut settled(T0 + HOUR, 1), T0 + 91 * SECOND).unwrap();
    assert!(!log.exists());
    writer.write(&mut settled(T0, 1), T0 + 92 * SECOND).unwrap();
    assert!(log.exists(), "rows came late");
    writer.write(&mut settled(T0 + HOUR, 1), T0 + 151 * SECOND).unwrap();
    assert!(log.exists());
    writer.write(&mut settled(T0 + HOUR, 1), T0 + 152 * SECOND).unwrap();
    assert!(!log.exists());
    let path = folder.path().join("wirescope-2026-11-20T18.sqlite");
    let ends = rows(&reader(&path), "SELECT end_ns FROM runs ORDER BY id");
    assert_eq!(ends, [(T0 + 91 * SECOND).to_string(), (T0 + 152 * SECOND).to_string()]);
    drop(writer);
}

#[test]
fn so_many_files_are_kept_and_what_is_open_stays() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("mine.sqlite"), "not to be touched").unwrap();
    let mut writer = open_with(Options { keep: Some(3), ..hourly(folder.path()) });
    for hour in 0..6 {
        let now_ns = T0 + hour * HOUR;
        writer.write(&mut settled(now_ns, 1), now_ns).unwrap();
    }
    let counters = writer.counters();
    assert_eq!((counters.files_deleted, counters.files_undeletable), (3, 0));
    writer.close(T0).unwrap();
    let hour = |hour: i64| format!("wirescope-2026-11-20T{hour}.sqlite");
    assert_eq!(names(folder.path()), ["mine.sqlite".to_string(), hour(21), hour(22), hour(23)]);
}

#[test]
fn the_oldest_go_where_budget_or_free_space_is_not_met() {
    let folder = tempfile::tempdir().unwrap();
    let filled = |options: Options| {
        let mut writer = open_with(options);
        for hour in 0..4 {
            let now_ns = T0 + hour * HOUR;
            writer.write(&mut settled(now_ns, 1), now_ns).unwrap();
        }
        let counters = writer.counters();
        writer.close(T0 + 4 * HOUR).unwrap();
        counters
    };
    let all = filled(hourly(folder.path()));
    assert_eq!(all.files_deleted, 0);
    let each = std::fs::metadata(folder.path().join("wirescope-2026-11-20T18.sqlite")).unwrap().len();
    assert!(all.bytes >= 4 * each, "{} {each}", all.bytes);

    // A budget that not even what is open fits into.
    let tight = tempfile::tempdir().unwrap();
    let counters = filled(Options { budget: Some(1), ..hourly(tight.path()) });
    assert_eq!((counters.files_deleted, names(tight.path()).len()), (3, 1));

    // What others have filled: all go but the one that is written.
    let full = tempfile::tempdir().unwrap();
    let min_free = Some(SizeOrShare::Ppm(1_000_000));
    let counters = filled(Options { min_free, ..hourly(full.path()) });
    assert_eq!((counters.files_deleted, names(full.path()).len()), (3, 1));

    // More than the disk has.
    let huge = Options { min_free: Some(SizeOrShare::Bytes(u64::MAX)), ..hourly(full.path()) };
    let [words] = &refused(huge)[..] else { panic!("not one fault") };
    assert!(words.starts_with("--db-min-free: '16777216 TiB' is not less than its disk has, "), "{words}");
    assert!(words.ends_with("; write e.g. --db-min-free 10%"), "{words}");
}

#[test]
fn a_folder_is_written_by_one_run_at_a_time_and_then_continued() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = open_with(hourly(folder.path()));
    let path = folder.path().display().to_string();
    let words = format!("--db: {path} is written by another run; stop that one, or choose another name");
    assert_eq!(refused(hourly(folder.path())), [words]);
    writer.write(&mut settled(T0, 1), T0).unwrap();
    let file = folder.path().join("wirescope-2026-11-20T18.sqlite");
    let words =
        format!("--db: {} is written by another run; stop that one, or choose another name", file.display());
    assert_eq!(refused(hourly(folder.path())), [words]);
    drop(writer);
    let mut writer = open_with(hourly(folder.path()));
    writer.write(&mut settled(T0, 2), T0).unwrap();
    writer.close(T0).unwrap();
    let reader = reader(&file);
    assert_eq!(one::<i64>(&reader, "SELECT packets FROM intervals"), 3);
    assert_eq!(one::<i64>(&reader, "SELECT count(*) FROM runs"), 2);
}

#[test]
fn every_file_of_a_folder_has_intervals_of_the_same_length() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = open_with(hourly(folder.path()));
    writer.write(&mut settled(T0, 1), T0).unwrap();
    writer.close(T0).unwrap();
    let name = folder.path().join("wirescope-2026-11-20T18.sqlite");
    assert_eq!(
        refused(Options { interval_ns: SECOND, ..hourly(folder.path()) }),
        [format!(
            "--db: {} has intervals of 10s; write --db-interval 10s, or choose another name",
            name.display()
        )]
    );
    assert_eq!(names(folder.path()), ["wirescope-2026-11-20T18.sqlite"], "nothing is left behind by looking");
}

#[test]
fn what_has_to_stay_within_reach_is_known() {
    let folder = tempfile::tempdir().unwrap();
    let root = std::fs::canonicalize(folder.path()).unwrap();
    let writer = open_with(hourly(folder.path()));
    assert_eq!((writer.paths(), writer.is_folder()), (vec![root.clone()], true));
    drop(writer);
    let file = folder.path().join("x.sqlite");
    let writer = Writer::open(options(&file), facts()).unwrap();
    let paths = ["x.sqlite", "x.sqlite-wal", "x.sqlite-shm"].map(|name| root.join(name));
    assert_eq!((writer.paths(), writer.is_folder()), (paths.to_vec(), false));
    for path in paths {
        assert_eq!(mode(&path), 0o640, "{}", path.display());
    }
    writer.close(T0).unwrap();
    assert_eq!(names(folder.path()), ["x.sqlite", "x.sqlite-shm", "x.sqlite-wal"], "they stay");
}
