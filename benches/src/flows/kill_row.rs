//! `stats_kill`: runs of `wirescope stats` are killed at random moments, again and again on the same file; what it has
//! then is held against what the generator made, interval by interval.
//!
//! ```text
//! killed   SQLite finds the file sound; of each interval all packets are there, in intervals and in traffic
//!          what a reader had seen is there; intervals follow one another from the run's first packet on
//!          at most PATIENCE of the time before the kill is missing, beside what wasn't settled: an interval, the grace
//! last     a run that ends by itself continues the file, which has everything that was there before
//! ```
//! The generator makes packets at a fixed rate, so that each whole interval has as many as all others.

use super::database::Database;
use super::stats_run::{self, StatsRun};
use crate::table::{Key, Table};
use crate::workspace::Workspace;
use anyhow::{Context, Result, ensure};
use scope_testkit::traffic::Random;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The bar's row.
pub const ROW: Key<'static> = ("stats_kill", "killed runs");
const MISSING: &str = "time before a kill that is missing";
/// Decides all that is random.
const SEED: u64 = 18;
/// Runs that continue the same file at most.
const RUNS_MAX: u64 = 5;
/// A kill comes so long behind the start at most.
const KILL_BEHIND_MS: u64 = 2_000;
/// The grace of generated packets.
const GRACE: Duration = Duration::from_millis(10);
/// What is settled is written by then, on a machine that has something else to do, too.
const PATIENCE: Duration = Duration::from_secs(1);
/// The last run's packets.
const LAST_PACKETS: u64 = 1_000;
const END_LIMIT: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(1);
const SECOND_NS: i64 = 1_000_000_000;

/// Kills `kills` runs.
pub fn measure(workspace: &Workspace, kills: usize, table: &mut Table) {
    let mut random = Random::new(SEED);
    let mut killed = 0;
    while killed < kills {
        eprintln!("kill {} of {kills}", killed + 1);
        let count = (1 + random.below(RUNS_MAX) as usize).min(kills - killed);
        let file = File::new(&mut random);
        let plans: Vec<Plan> = (0..count).map(|_| Plan::new(&mut random)).collect();
        table.begin_round(killed);
        let outcome = kill_and_look(workspace, file, &plans);
        for missing in outcome.iter().flatten() {
            table.put(ROW.0, MISSING, "ms", Ok(missing.as_secs_f64() * 1e3));
        }
        let outcome = outcome.map(|_| 1.0).map_err(|error| format!("{error:#}; {file:?} {plans:?}"));
        table.put(ROW.0, ROW.1, "", outcome);
        killed += count;
    }
}

/// What all runs of a file share.
#[derive(Clone, Copy, Debug)]
struct File {
    interval: Duration,
}

impl File {
    fn new(random: &mut Random) -> File {
        File { interval: Duration::from_millis(random.pick(&[100, 200, 500])) }
    }

    fn interval_ns(self) -> i64 {
        self.interval.as_nanos() as i64
    }
}

/// One run that will be killed.
#[derive(Debug)]
struct Plan {
    /// Packets a second: a whole number of them in each interval.
    rate: u64,
    flows: u64,
    seed: u64,
    kill_after: Duration,
}

impl Plan {
    fn new(random: &mut Random) -> Plan {
        Plan {
            rate: random.pick(&[1_000, 20_000, 100_000]),
            flows: random.pick(&[10, 1_000, 10_000]),
            seed: random.below(1_000_000),
            kill_after: Duration::from_millis(random.below(KILL_BEHIND_MS)),
        }
    }
}

/// Returns what of the time before its kill each run lacks.
fn kill_and_look(workspace: &Workspace, file: File, plans: &[Plan]) -> Result<Vec<Duration>> {
    let folder = workspace.out_folder()?;
    let db = folder.path().join("x.sqlite");
    let mut kept = Kept::default();
    let mut missing = Vec::new();
    for plan in plans {
        missing.push(kill(workspace, &db, file, plan, &mut kept)?);
    }
    let interval = format!("{}ms", file.interval.as_millis());
    let source = format!("synth:packets={LAST_PACKETS},rate=100k,pace=max");
    let arguments = ["--source", &source, "--db-interval", &interval];
    let (summary, _) = StatsRun::start(workspace, None, &db, &arguments)?.finish(END_LIMIT)?;
    let counted = stats_run::received_and_dropped(&summary)?;
    ensure!(counted == (LAST_PACKETS, 0), "the last run received and dropped {counted:?} packets");
    let database = Database::open(&db)?;
    database.expect_sound()?;
    database.expect_equal_sums()?;
    let packets = database.number("SELECT sum(packets) FROM intervals")?;
    let expected = kept.packets + LAST_PACKETS as i64;
    ensure!(packets == expected, "{packets} packets are there after the last run, not {expected}");
    Ok(missing)
}

/// What earlier runs have left in the file.
#[derive(Default)]
struct Kept {
    packets: i64,
    intervals: i64,
    /// The begin of the last one.
    latest_ns: i64,
}

/// Runs until the kill, and looks at what is there: what of the time before it is missing.
fn kill(workspace: &Workspace, db: &Path, file: File, plan: &Plan, kept: &mut Kept) -> Result<Duration> {
    let Plan { rate, flows, seed, kill_after } = plan;
    let source = format!("synth:rate={rate},size=100,flows={flows},seed={seed}");
    let interval = format!("{}ms", file.interval.as_millis());
    let begun_ns = now_ns()?;
    let run = StatsRun::start(workspace, None, db, &["--source", &source, "--db-interval", &interval])?;
    let is_over = AtomicBool::new(false);
    let (killed, seen_ns) = std::thread::scope(|scope| {
        let watcher = scope.spawn(|| seen(db, begun_ns, &is_over));
        std::thread::sleep(*kill_after);
        let killed = now_ns().and_then(|at_ns| run.kill().map(|()| at_ns));
        is_over.store(true, Ordering::Relaxed);
        (killed, watcher.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    });
    let (killed_ns, seen_ns) = (killed?, seen_ns?);
    let found = if db.exists() { found(db, begun_ns, kept)? } else { Vec::new() };
    // What it saw may be of the run before, which ended a moment ago.
    ensure!(kept.latest_ns >= seen_ns, "an interval that a reader had seen is gone");
    check(file, plan, &found, begun_ns, killed_ns)
}

/// The latest interval since `begun_ns` that a reader has seen when it is over; 0: none.
fn seen(db: &Path, begun_ns: i64, is_over: &AtomicBool) -> Result<i64> {
    let mut latest = 0;
    let mut database = None;
    while !is_over.load(Ordering::Relaxed) {
        if database.is_none() && db.exists() {
            database = Some(Database::open(db)?);
        }
        // It has no tables in the first moment.
        let question = format!("SELECT max(ts_ns) FROM intervals WHERE ts_ns > {begun_ns} - {SECOND_NS}");
        let found = database.as_ref().and_then(|database| database.number(&question).ok());
        latest = latest.max(found.unwrap_or(0));
        std::thread::sleep(LOOK_EVERY);
    }
    Ok(latest)
}

/// Intervals and packets of the run that has begun then, in order. What was there before is there still.
fn found(db: &Path, begun_ns: i64, kept: &mut Kept) -> Result<Vec<(i64, i64)>> {
    let database = Database::open(db)?;
    database.expect_sound()?;
    // A kill may come before there are tables.
    if database.number("SELECT count(*) FROM sqlite_schema WHERE name = 'intervals'")? == 0 {
        ensure!(kept.intervals == 0, "the tables are gone");
        return Ok(Vec::new());
    }
    database.expect_equal_sums()?;
    let all = database.pairs("SELECT ts_ns, packets FROM intervals ORDER BY ts_ns")?;
    ensure!(all.len() as i64 >= kept.intervals, "{} intervals are left of {}", all.len(), kept.intervals);
    let before = &all[..kept.intervals as usize];
    let packets = before.iter().map(|(_, packets)| packets).sum::<i64>();
    ensure!(packets == kept.packets, "{packets} packets are left of {} of earlier runs", kept.packets);
    let found = all[kept.intervals as usize..].to_vec();
    ensure!(found.iter().all(|(ts_ns, _)| *ts_ns > begun_ns - SECOND_NS), "an interval came to earlier ones");
    kept.intervals = all.len() as i64;
    kept.latest_ns = all.last().map_or(0, |(ts_ns, _)| *ts_ns);
    kept.packets += found.iter().map(|(_, packets)| packets).sum::<i64>();
    Ok(found)
}

/// That each interval has what was generated; how long before the kill the last one ends.
fn check(file: File, plan: &Plan, found: &[(i64, i64)], begun_ns: i64, killed_ns: i64) -> Result<Duration> {
    // A live interface has intervals of zeros before its first packet.
    let zeros = found.iter().take_while(|(_, packets)| *packets == 0).count();
    let found = &found[zeros..];
    let length_ns = file.interval_ns();
    let whole = plan.rate as i64 * length_ns / SECOND_NS;
    for (number, (ts_ns, packets)) in found.iter().enumerate() {
        let expected_ns = found[0].0 + number as i64 * length_ns;
        ensure!(*ts_ns == expected_ns, "interval {number} of a run isn't the next one");
        // The first one may have begun before the run.
        let is_right = *packets == whole || number == 0 && (1..whole).contains(packets);
        ensure!(is_right, "interval {number} has {packets} packets of {whole}");
    }
    let reached_ns = found.last().map_or(begun_ns, |(ts_ns, _)| ts_ns + length_ns);
    let missing = Duration::from_nanos((killed_ns - reached_ns).max(0) as u64);
    let most = file.interval + GRACE + PATIENCE;
    ensure!(missing <= most, "{missing:?} before the kill are missing, {most:?} may be");
    Ok(missing)
}

/// The wall clock, ns since the epoch.
fn now_ns() -> Result<i64> {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).context("the clock stands before 1970")?;
    Ok(since.as_nanos() as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_interval_has_what_was_generated_and_no_more_is_missing_than_wasn_t_settled() {
        let file = File { interval: Duration::from_millis(100) };
        let plan = Plan { rate: 1000, flows: 10, seed: 1, kill_after: Duration::ZERO };
        const MS: i64 = 1_000_000;
        let check = |found: &[(i64, i64)], killed_ms: i64, words: &str| {
            let fault = check(file, &plan, found, 0, killed_ms * MS).err().map(|fault| fault.to_string());
            let fault = fault.unwrap_or_default();
            assert!(fault.contains(words) && fault.is_empty() == words.is_empty(), "'{fault}'");
        };
        let whole = [(0, 40), (100 * MS, 100), (200 * MS, 100)];
        check(&whole, 1410, "");
        check(&whole, 1411, "1.111s before the kill are missing");
        check(&[], 1110, "");
        check(&[], 1111, "are missing");
        check(&[whole[0], whole[2]], 400, "interval 1 of a run isn't the next one");
        check(&[whole[0], (100 * MS, 99)], 400, "interval 1 has 99 packets of 100");
        check(&[(0, 101)], 400, "interval 0 has 101");
        check(&[(-100 * MS, 0), (0, 0), (100 * MS, 7), (200 * MS, 100)], 400, "");
        check(&[(0, 7), (100 * MS, 0)], 400, "interval 1 has 0 packets");
    }
}
