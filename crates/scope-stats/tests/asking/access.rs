//! Whoever asks changes nothing, whatever state a database is in, and sees what is written at once.

use crate::made::{Dice, LENGTH, T0, database, flow, made, rows, stop, watch, writer};
use scope_filter::FlowFilter;
use scope_flow::rows::Settled;
use scope_stats::asking::flows::FlowQuestion;
use scope_stats::asking::sql::Cell;
use scope_stats::asking::top::{Dim, TopQuestion};
use scope_stats::asking::{Access, AskError, Bounds, Cut, Database};
use std::fs;
use std::ops::ControlFlow;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Name, length, time of the last change, mode, content.
type State = (String, u64, i64, i64, u32, Vec<u8>);

/// All files below a folder, with everything that a reader could change but the time of the last reading.
fn state(folder: &Path) -> Vec<State> {
    let mut state = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let (path, facts) = {
            let entry = entry.unwrap();
            (entry.path(), entry.metadata().unwrap())
        };
        if facts.is_dir() {
            state.extend(self::state(&path));
            continue;
        }
        let bytes = fs::read(&path).unwrap();
        let name = path.to_string_lossy().into_owned();
        state.push((name, facts.len(), facts.mtime(), facts.mtime_nsec(), facts.mode(), bytes));
    }
    state.sort();
    state
}

fn count(database: &Database) -> i64 {
    let answer = database.sql("SELECT count(*) FROM flows", &Bounds::OF_A_COMMAND, stop()).unwrap();
    match answer.rows[0][0] {
        Cell::Integer(count) => count,
        _ => panic!("{answer:?}"),
    }
}

/// Asks everything, and expects that nothing but reading was done.
fn ask_all(path: &Path, folder: &Path, flows: usize, is_written: bool) {
    let before = state(folder);
    let asked = database(path);
    assert_eq!(count(&asked), flows as i64, "{}", path.display());
    for (_, dim) in Dim::WORDS {
        asked.top(TopQuestion { dim, ..TopQuestion::default() }, &watch()).unwrap();
    }
    asked.facts().unwrap();
    asked.flows_end(&watch()).unwrap();
    let behind = state(folder);
    let told = |state: &[State]| {
        state.iter().map(|file| (file.0.clone(), file.1, file.2, file.3)).collect::<Vec<_>>()
    };
    assert_eq!(told(&behind), told(&before), "{}", path.display());
    for (behind, before) in behind.iter().zip(&before) {
        // Within the writer's process SQLite has one opening of the third file, and notes the reader there.
        let is_shared = is_written && behind.0.ends_with("-shm");
        assert!(behind.5 == before.5 || is_shared, "{} was changed", behind.0);
    }
}

#[test]
fn nothing_is_changed_by_asking_in_any_state() {
    let made = made(31);
    let root = made.root.path();
    let flows = made.rows.flows.len();
    for path in [&made.file, &made.folder] {
        // Closed.
        ask_all(path, root, flows, false);
        // Open, with rows in the log.
        let mut writer = writer(path);
        writer.write(&mut rows(32), T0).unwrap();
        ask_all(path, root, 2 * flows, true);
        // As a kill leaves it: the third file says nothing true, and nobody has it open.
        let killed = root.join("killed");
        let _ = fs::remove_dir_all(&killed);
        fs::create_dir(&killed).unwrap();
        let from = if path.is_dir() { path.as_path() } else { root };
        for entry in
            fs::read_dir(from).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_file())
        {
            fs::copy(&entry, killed.join(entry.file_name().unwrap())).unwrap();
        }
        let copy = if path.is_dir() { killed.clone() } else { killed.join(path.file_name().unwrap()) };
        ask_all(&copy, root, 2 * flows, false);
        writer.close(T0).unwrap();
        ask_all(path, root, 2 * flows, false);
        fs::remove_dir_all(&killed).unwrap();
    }
}

#[test]
fn a_log_without_what_finds_its_rows_is_refused_and_an_empty_one_is_not() {
    let made = made(33);
    let mut writer = writer(&made.file);
    writer.write(&mut rows(34), T0).unwrap();
    let copy = made.root.path().join("copy.sqlite");
    let with = |suffix: &str| format!("{}{suffix}", copy.display());
    fs::copy(&made.file, &copy).unwrap();
    fs::copy(format!("{}-wal", made.file.display()), with("-wal")).unwrap();
    let asked = database(&copy);
    match asked.sql("SELECT 1", &Bounds::OF_A_COMMAND, stop()) {
        Err(AskError::Refused(fault)) => {
            assert!(fault.to_string().contains("-shm, was left behind"), "{fault}")
        }
        other => panic!("{other:?}"),
    }
    writer.close(T0).unwrap();
    fs::write(with("-wal"), b"").unwrap();
    fs::copy(&made.file, &copy).unwrap();
    assert_eq!(count(&asked), 2 * made.rows.flows.len() as i64);
}

#[test]
fn what_is_written_is_seen_at_once_by_others_and_beside_the_writer() {
    let root = tempfile::tempdir().unwrap();
    fs::create_dir(root.path().join("days")).unwrap();
    for path in [root.path().join("x.sqlite"), root.path().join("days")] {
        let (mut writer, mut dice) = (writer(&path), Dice::new(35));
        let mut expected = 0;
        for number in 0..40 {
            let flows: Vec<_> = (0..50).map(|at| flow(&mut dice, T0 + number * LENGTH + at)).collect();
            expected += flows.len() as i64;
            writer.write(&mut Settled { flows, ..Settled::default() }, T0).unwrap();
            let access = [Access::Outside, Access::Beside][number as usize % 2];
            assert_eq!(count(&Database::look(&path, access).unwrap()), expected);
        }
        // The writer isn't hindered by those who asked.
        writer.close(T0).unwrap();
        assert_eq!(count(&database(&path)), expected);
    }
}

#[test]
fn what_is_no_database_of_ours_is_refused_with_the_reason() {
    let root = tempfile::tempdir().unwrap();
    let at = |name: &str| root.path().join(name);
    fs::write(at("text"), b"this is no database at all, whatever it is called").unwrap();
    fs::write(at("empty"), b"").unwrap();
    rusqlite::Connection::open(at("other")).unwrap().execute_batch("CREATE TABLE x (y)").unwrap();
    writer(&at("newer")).close(T0).unwrap();
    rusqlite::Connection::open(at("newer")).unwrap().execute_batch("PRAGMA user_version = 99").unwrap();
    let refused = |name: &str, cause: &str| {
        let before = state(root.path());
        let asked = Database::look(&at(name), Access::Outside).map_err(AskError::Refused);
        let asked = asked.and_then(|database| database.sql("SELECT 1", &Bounds::OF_A_COMMAND, stop()));
        match asked {
            Err(AskError::Refused(fault)) => assert!(fault.to_string().contains(cause), "{name}: {fault}"),
            other => panic!("{name}: {other:?}"),
        }
        assert!(state(root.path()) == before, "{name}");
    };
    refused("text", "is no database");
    refused("empty", "is a database of another program");
    refused("other", "is a database of another program");
    refused("newer", "has tables of version 99, and this program knows those up to 1");
    refused("missing", "isn't there");
    refused("missing/", "isn't there");
    refused("text/", "Not a directory");
    refused(".", "has no database in it");
}

#[test]
fn a_file_that_is_read_alone_and_written_meanwhile_is_told_of() {
    let made = made(36);
    let asked = database(&made.folder);
    let file = asked.files().unwrap().remove(0);
    let reading = asked.open(&file).unwrap().unwrap();
    let count = |reading: &rusqlite::Connection| -> i64 {
        reading.query_row("SELECT count(*) FROM flows", [], |row| row.get(0)).unwrap()
    };
    assert!(count(&reading) > 0);
    reading.expect_unchanged().unwrap();
    // Closed, its rows are in the file itself.
    let mut writer = writer(&made.folder);
    writer.write(&mut rows(37), T0).unwrap();
    writer.close(T0).unwrap();
    match reading.expect_unchanged() {
        Err(AskError::Failed(fault)) => assert!(fault.to_string().ends_with("ask again"), "{fault}"),
        other => panic!("{other:?}"),
    }
    let anew = asked.open(&file).unwrap().unwrap();
    assert!(count(&anew) > 0);
    anew.expect_unchanged().unwrap();
}

/// Openings that this process has of the files below a folder.
fn openings(folder: &Path) -> usize {
    let own = fs::read_dir("/proc/self/fd").unwrap().flatten();
    own.filter(|entry| fs::read_link(entry.path()).is_ok_and(|target| target.starts_with(folder))).count()
}

#[test]
fn a_file_that_is_held_is_asked_again_and_again_without_its_name_and_nothing_of_a_question_stays() {
    let made = made(38);
    let mut writer = writer(&made.file);
    let asked = Database::hold(&made.file, 2).unwrap();
    let open = openings(made.root.path());
    // Nobody finds it by its name.
    let names = ["", "-wal", "-shm"].map(|suffix| format!("{}{suffix}", made.file.display()));
    let mut expected = made.rows.flows.len();
    for number in 0..10 {
        writer.write(&mut rows(40 + number), T0).unwrap();
        expected += rows(40 + number).flows.len();
        let away = names.clone().map(|name| (name.clone(), format!("{name}-away")));
        away.iter().for_each(|(name, away)| fs::rename(name, away).unwrap());
        assert_eq!(count(&asked), expected as i64);
        asked.top(TopQuestion::default(), &watch()).unwrap();
        let facts = asked.facts().unwrap();
        assert!(!facts[0].is_closed && facts[0].bytes > 0, "{facts:?}");
        // An answer that was cut, one that is refused, and one that nobody wants to its end.
        let endless = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT x FROM n";
        let few = Bounds { rows: 3, ..Bounds::OF_A_REQUEST };
        assert_eq!(asked.sql(endless, &few, stop()).unwrap().cut, Some(Cut::Rows));
        assert!(asked.sql("DELETE FROM flows", &few, stop()).is_err());
        let question = FlowQuestion { filter: FlowFilter::compile("").unwrap(), span_ns: (0, i64::MAX) };
        let mut records = 0;
        let mut one = |_: &_| {
            records += 1;
            ControlFlow::Break(())
        };
        asked.flows_of(&question, &watch(), &mut one).unwrap();
        assert_eq!(records, 1);
        away.iter().for_each(|(name, away)| fs::rename(away, name).unwrap());
    }
    assert_eq!(openings(made.root.path()), open);
    // As many questions at once as were asked for.
    let file = asked.files().unwrap().remove(0);
    let [one, other] = [(); 2].map(|()| asked.open(&file).unwrap().unwrap());
    assert!(matches!(asked.open(&file), Err(AskError::Failed(_))));
    drop((one, other));
    assert_eq!(count(&asked), expected as i64);
    // No reader keeps the log from being emptied.
    writer.close(T0).unwrap();
    assert_eq!(fs::metadata(&names[1]).unwrap().len(), 0);
    assert!(asked.facts().unwrap()[0].is_closed);
}

#[test]
fn a_folder_of_the_process_that_writes_has_nothing_before_its_first_rows() {
    let root = tempfile::tempdir().unwrap();
    let mut writer = writer(root.path());
    let asked = Database::hold(root.path(), 1).unwrap();
    assert_eq!((asked.facts().unwrap(), count(&asked)), (Vec::new(), 0));
    let question = FlowQuestion { filter: FlowFilter::compile("").unwrap(), span_ns: (0, i64::MAX) };
    asked.flows_of(&question, &watch(), &mut |_| panic!("there is none")).unwrap();
    let error = asked.top(TopQuestion::default(), &watch()).unwrap_err();
    assert!(error.to_string().contains("wait until the first one is settled"), "{error}");
    let error = asked.copy_bytes("2026-11-20").unwrap_err();
    assert!(error.to_string().contains("wait until the first rows are written"), "{error}");
    writer.write(&mut rows(41), T0).unwrap();
    assert_eq!(count(&asked), rows(41).flows.len() as i64);
    writer.close(T0).unwrap();
}
