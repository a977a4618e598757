//! Files are listed, and copied whole, also while they are written.

use crate::made::{DAY, LENGTH, T0, database, made, rows, stop, watch, writer};
use rusqlite::{Connection, OpenFlags};
use scope_flow::rows::Settled;
use scope_folder::Folder;
use scope_stats::asking::spare::{NoCopy, Passing};
use scope_stats::asking::top::TopQuestion;
use scope_stats::asking::{AskError, Copy, Database, Spares};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

/// Everything in a database, as text.
fn dump(path: &Path) -> Vec<String> {
    let connection = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap();
    let sound: String = connection.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(sound, "ok");
    let mut lines = Vec::new();
    for table in scope_stats::schema::TABLES {
        let mut statement = connection.prepare(&format!("SELECT * FROM {table} ORDER BY 1, 2, 3")).unwrap();
        let columns = statement.column_count();
        let mut rows = statement.query([]).unwrap();
        while let Some(row) = rows.next().unwrap() {
            let cells = (0..columns).map(|at| format!("{:?}", row.get_ref_unwrap(at)));
            lines.push(format!("{table} {}", cells.collect::<Vec<_>>().join(" ")));
        }
    }
    lines
}

fn names(folder: &Path) -> Vec<String> {
    let names = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
    let mut names: Vec<String> = names.map(|name| name.into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn files_are_listed_with_their_spans_and_whether_somebody_writes_them() {
    let made = made(21);
    let [file, folder] = made.both().map(|database| database.facts().unwrap());
    let spans = |which: fn(&scope_flow::rows::IntervalRow) -> i64| made.rows.intervals.iter().map(which);
    let span_ns = (spans(|row| row.ts_ns).min().unwrap(), spans(|row| row.ts_ns + LENGTH).max().unwrap());
    assert_eq!(file.len(), 1);
    assert_eq!((file[0].id.as_str(), file[0].span_ns, file[0].is_closed), ("x?.sqlite", Some(span_ns), true));
    assert!(file[0].bytes >= std::fs::metadata(&made.file).unwrap().len());
    let ids: Vec<&str> = folder.iter().map(|facts| facts.id.as_str()).collect();
    assert_eq!(ids, ["2026-11-20", "2026-11-21", "2026-11-22", "2026-11-23"][..ids.len()]);
    assert!(ids.len() >= 3 && folder.iter().all(|facts| facts.is_closed));
    let days = folder.iter().map(|facts| facts.span_ns.unwrap());
    assert!(days.clone().all(|(from_ns, to_ns)| from_ns % DAY == 0 && to_ns - from_ns == DAY));
    for path in [&made.file, &made.folder] {
        let mut writer = writer(path);
        writer.write(&mut rows(22), T0).unwrap();
        let facts = database(path).facts().unwrap();
        assert!(!facts.last().unwrap().is_closed, "{}", path.display());
        writer.close(T0).unwrap();
        assert!(database(path).facts().unwrap().iter().all(|facts| facts.is_closed));
    }
}

#[test]
fn a_copy_has_everything_that_was_written_when_it_was_taken() {
    let made = made(23);
    for (number, path) in [&made.file, &made.folder].into_iter().enumerate() {
        let mut writer = writer(path);
        // In its log, not in the file.
        writer.write(&mut rows(24), T0).unwrap();
        let asked = database(path);
        let id = asked.files().unwrap().pop().unwrap();
        let out = made.root.path().join(format!("copy{number}.sqlite"));
        let copy = Copy::begin(&out).unwrap();
        assert!(!out.exists());
        let bytes = copy.take(&asked, &id.id, &stop()).unwrap();
        assert_eq!(std::fs::metadata(&out).unwrap().len(), bytes);
        let expected = dump(&id.path);
        // What is written behind it isn't in it.
        writer.write(&mut rows(25), T0).unwrap();
        assert_eq!(dump(&out), expected);
        // Read alone, and asked as any other.
        assert_eq!(
            names(made.root.path()).iter().filter(|name| name.starts_with("copy")).count(),
            number + 1
        );
        database(&out).top(TopQuestion::default(), &watch()).unwrap();
        writer.close(T0).unwrap();
    }
}

#[test]
fn a_copy_taken_while_rows_come_is_of_one_moment() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("x.sqlite");
    let mut writer = writer(&path);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (is_over, database) = (&is_over, database(&path));
        scope.spawn(move || {
            for number in 0.. {
                if is_over.load(Ordering::Relaxed) {
                    break;
                }
                let mut settled = Settled::default();
                let all = rows(number + 30);
                settled.intervals = all.intervals.iter().take(4).cloned().collect();
                for row in &mut settled.intervals {
                    row.ts_ns = T0 + number as i64 * LENGTH;
                }
                settled.intervals.dedup_by_key(|row| (row.interface.clone(), row.vlan));
                writer.write(&mut settled, T0).unwrap();
            }
            writer.close(T0).unwrap();
        });
        for number in 0..10 {
            let out = root.path().join(format!("{number}.sqlite"));
            Copy::begin(&out).unwrap().take(&database, "x.sqlite", &stop()).unwrap();
            let copy = Connection::open(&out).unwrap();
            let whole =
                "SELECT count(*) FROM (SELECT ts_ns FROM intervals GROUP BY ts_ns HAVING count(*) <> 4)";
            assert_eq!(copy.query_row(whole, [], |row| row.get::<_, i64>(0)).unwrap(), 0);
            let sound: String = copy.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
            assert_eq!(sound, "ok");
        }
        is_over.store(true, Ordering::Relaxed);
    });
}

#[test]
fn nothing_is_overwritten_and_nothing_half_made_is_left() {
    let made = made(26);
    let asked = &made.both()[1];
    let out = made.root.path().join("copy.sqlite");
    let begin = |path: &Path| Copy::begin(path).map(drop).unwrap_err().to_string();
    let before = names(made.root.path());
    let error = Copy::begin(&out).unwrap().take(asked, "2031-01-01", &stop()).unwrap_err();
    assert!(
        matches!(&error, AskError::Refused(_)) && error.to_string().contains("the newest are: 2026-11-22")
    );
    let stopped = stop();
    stopped.store(true, Ordering::Relaxed);
    let error = Copy::begin(&out).unwrap().take(asked, "2026-11-20", &stopped).unwrap_err();
    assert!(error.to_string().contains("stopped before it was whole"), "{error}");
    assert_eq!(names(made.root.path()), before);
    std::fs::write(&out, b"mine").unwrap();
    assert!(begin(&out).contains("never overwritten"));
    // One that comes while the copy is made stays, too.
    let other = made.root.path().join("other.sqlite");
    let copy = Copy::begin(&other).unwrap();
    std::fs::write(&other, b"mine").unwrap();
    assert!(copy.take(asked, "2026-11-20", &stop()).is_err());
    assert_eq!(std::fs::read(&other).unwrap(), b"mine");
    assert!(begin(Path::new("/")).contains("names no file"));
    assert!(begin(&made.root.path().join("no/such/copy.sqlite")).contains("No such file"));
    assert!(!names(made.root.path()).iter().any(|name| name.ends_with(".part")));
}

/// A copy that is passed on, as a file.
fn written(copy: &Passing, path: &Path) {
    let mut bytes = Vec::new();
    while (bytes.len() as u64) < copy.bytes() {
        bytes.extend(copy.piece(bytes.len() as u64, 1000).unwrap());
    }
    assert!(copy.piece(copy.bytes(), 1000).unwrap().is_empty());
    std::fs::write(path, bytes).unwrap();
}

/// What files of this process take that have lost their names in a folder.
fn nameless(folder: &Path) -> u64 {
    let own = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
    let is_one = |path: &Path| {
        let target = std::fs::read_link(path).unwrap_or_default();
        target.starts_with(folder) && target.to_string_lossy().ends_with(" (deleted)")
    };
    own.filter(|entry| is_one(&entry.path()))
        .map(|entry| std::fs::metadata(entry.path()).map_or(0, |facts| facts.len()))
        .sum()
}

#[test]
fn a_copy_that_is_passed_on_is_whole_leaves_no_name_and_gives_its_room_back() {
    for is_folder in [false, true] {
        let made = made(27);
        let path = if is_folder { &made.folder } else { &made.file };
        let beside = if is_folder { made.folder.clone() } else { made.root.path().to_path_buf() };
        let mut writer = writer(path);
        writer.write(&mut rows(28), T0).unwrap();
        let asked = Database::hold(path, 3).unwrap();
        let before = names(&beside);
        let spares = Spares::begin(&Folder::open(&beside).unwrap(), 2, 1 << 30).unwrap();
        assert_eq!(names(&beside), before);
        let id = asked.files().unwrap().pop().unwrap();
        let out = tempfile::tempdir().unwrap();
        let copied = |number: u64| {
            let copy = spares.copy(&asked, &id.id, &stop()).unwrap();
            assert_eq!(copy.bytes(), asked.copy_bytes(&id.id).unwrap());
            let out = out.path().join(format!("{number}.sqlite"));
            written(&copy, &out);
            // Read alone, and asked as any other.
            database(&out).top(TopQuestion::default(), &watch()).unwrap();
            dump(&out)
        };
        for number in 0..5 {
            // Longer ones and shorter ones, one behind the other.
            writer.write(&mut rows(29 + number), T0).unwrap();
            assert!(copied(number) == dump(&id.path), "{number}");
            assert_eq!(nameless(&beside), 0);
        }
        // One that ends before it is whole spoils none of the next ones.
        let stopped = stop();
        stopped.store(true, Ordering::Relaxed);
        let no = spares.copy(&asked, &id.id, &stopped).unwrap_err();
        assert!(matches!(&no, NoCopy::Failed(fault) if fault.to_string().contains("stopped")), "{no:?}");
        let no = spares.copy(&asked, "../x", &stop()).unwrap_err();
        assert!(matches!(no, NoCopy::Asked(AskError::Refused(_))), "{no:?}");
        // One that would hold the writer up, whose log has something.
        let few = Spares::begin(&Folder::open(&beside).unwrap(), 1, 1).unwrap();
        for _ in 0..2 {
            let no = few.copy(&asked, &id.id, &stop()).unwrap_err();
            assert!(
                matches!(&no, NoCopy::Busy(fault) if fault.to_string().contains("hold the writer up")),
                "{no:?}"
            );
        }
        drop(few);
        // As many as there may be.
        let [one, other] = [(); 2].map(|()| spares.copy(&asked, &id.id, &stop()).unwrap());
        assert_eq!(spares.copy(&asked, &id.id, &stop()).unwrap_err(), NoCopy::Taken);
        assert!(nameless(&beside) >= one.bytes() + other.bytes());
        drop(one);
        assert!(copied(9) == dump(&id.path));
        drop(other);
        assert_eq!((nameless(&beside), names(&beside)), (0, before));
        writer.close(T0).unwrap();
    }
}
