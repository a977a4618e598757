//! A kill at any moment leaves a sound database with everything that was reported as written.

use crate::made::{LENGTH, T0, expect_sound, flow, one, open_with, options, reader, rows, settled};
use scope_flow::rows::Settled;
use scope_stats::{Every, Options};
use scope_testkit::dice::Dice;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const PLACE: &str = "SCOPE_STATS_TEST_PLACE";
const FROM: &str = "SCOPE_STATS_TEST_FROM";
const KILLS: u64 = 20;
/// Intervals of a file: some kills come while one is begun.
const LAST: i64 = 100_000;

/// Writes intervals from a number on until it is killed, and says which are written.
#[test]
#[ignore = "started by the tests below"]
fn a_writer_that_is_killed() {
    let (Some(place), Ok(from)) = (std::env::var_os(PLACE), std::env::var(FROM)) else { return };
    let every = Path::new(&place).is_dir().then_some(Every::Hour);
    let mut writer = open_with(Options { every, ..options(Path::new(&place)) });
    let mut out = std::io::stdout();
    for step in from.parse().unwrap()..LAST {
        let mut given = rows_of(step);
        writer.write(&mut given, T0 + step * LENGTH).unwrap();
        writeln!(out, "wrote {step}").unwrap();
    }
}

fn rows_of(step: i64) -> Settled {
    let ts_ns = T0 + step * LENGTH;
    Settled { flows: vec![flow(ts_ns, step as u64); 20], ..settled(ts_ns, step as u64 + 1) }
}

fn child(place: &Path, from: i64) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["kills::a_writer_that_is_killed", "--exact", "--ignored", "--nocapture", "--test-threads=1"])
        .env(PLACE, place)
        .env(FROM, from.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Kills a writer after a while; the last interval that it has said is written.
fn killed(place: &Path, from: i64, after: Duration) -> i64 {
    let mut child = child(place, from);
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let listener = std::thread::spawn(move || {
        // The first one stands behind what the harness says of the test.
        let step = |line: String| line.rsplit_once("wrote ")?.1.parse().ok();
        let steps = lines.map_while(Result::ok).filter_map(step);
        steps.last().unwrap_or(from - 1)
    });
    std::thread::sleep(after);
    child.kill().unwrap();
    child.wait().unwrap();
    listener.join().unwrap()
}

/// That intervals from 0 on are there, each whole and once; how many. One more than was said may be there.
fn intervals(files: &[PathBuf], said: i64) -> i64 {
    let mut steps = Vec::new();
    for path in files {
        expect_sound(path);
        let reader = reader(path);
        let sql = "SELECT ts_ns FROM intervals ORDER BY ts_ns";
        let found = rows(&reader, sql)
            .iter()
            .map(|ts| (ts.parse::<i64>().unwrap() - T0) / LENGTH)
            .collect::<Vec<_>>();
        let sum: i64 = found.iter().map(|step| step + 1).sum();
        let is = |sql: &str| one::<i64>(&reader, sql);
        assert_eq!(is("SELECT coalesce(sum(packets), 0) FROM intervals"), sum);
        assert_eq!(is("SELECT coalesce(sum(in_packets), 0) FROM traffic"), sum);
        assert_eq!(is("SELECT coalesce(sum(out_packets), 0) FROM traffic"), sum);
        assert_eq!(is("SELECT count(*) FROM flows"), 20 * found.len() as i64);
        steps.extend(found);
    }
    assert_eq!(steps, (0..steps.len() as i64).collect::<Vec<_>>());
    let count = steps.len() as i64;
    assert!((said + 1..=said + 2).contains(&count), "{said} was said, {count} are there");
    count
}

fn kill_often(place: &Path, files: impl Fn() -> Vec<PathBuf>) {
    let mut dice = Dice(18);
    let mut count = 0;
    for _ in 0..KILLS {
        let after = Duration::from_micros(dice.below(60_000));
        let said = killed(place, count, after);
        count = intervals(&files(), said);
    }
    // However slow the machine is, one gets somewhere.
    while count == 0 {
        let said = killed(place, count, Duration::from_secs(1));
        count = intervals(&files(), said);
    }
    let mut writer = open_with(Options { every: place.is_dir().then_some(Every::Hour), ..options(place) });
    writer.write(&mut rows_of(count), T0).unwrap();
    writer.close(T0).unwrap();
    assert_eq!(intervals(&files(), count), count + 1);
}

#[test]
fn a_file_whose_writer_is_killed_again_and_again_is_sound_and_lacks_nothing_that_was_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.sqlite");
    kill_often(&path, || if path.exists() { vec![path.clone()] } else { Vec::new() });
}

#[test]
fn so_is_a_folder_of_files() {
    let folder = tempfile::tempdir().unwrap();
    kill_often(folder.path(), || {
        let paths = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path());
        let is_file = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "sqlite");
        let mut paths: Vec<PathBuf> = paths.filter(is_file).collect();
        paths.sort();
        paths
    });
}
