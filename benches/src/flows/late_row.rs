//! `stats_late_ms`: from the end of an interval to the moment at which another program sees its rows.
//!
//! ```text
//!  sender ──► va ═ vb ──► wirescope stats --db-interval 1s ──► SQLite ◄── three readers that never pause
//!                                                                     ◄── one that looks every 2 ms
//! ```
//! In each second each of the flows is met several times, so that an interval has more than [`ROWS_MIN`] rows of
//! traffic. The heavy readers go over all rows that there are, sorted and grouped, each in a connection of its own.

use super::database::Database;
use super::stats_run::{self, StatsRun};
use crate::Scale;
use crate::figures::percentile;
use crate::live::captures::on_core;
use crate::live::sender::{Pace, Quiet, Sender, while_sending};
use crate::live::{Stand, is_heard};
use crate::table::{Key, Table};
use anyhow::{Result, ensure};
use scope_measure::{Packets, Sizes};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The bar's row.
pub const P99: Key<'static> = ("stats_late_ms", "p99 over the intervals of all rounds");
const INTERVAL_NS: i64 = 1_000_000_000;
/// Rows of traffic in an interval at least.
const ROWS_MIN: i64 = 10_000;
/// More than come: none is folded.
const ROWS_MAX: &str = "20000";
/// Hosts that each frame comes from: 20 times 512 rows of hosts that send, less those few that share one, and 512 of
/// hosts that receive.
const HOSTS: u16 = 20;
/// Each flow comes ten times a second.
const RATE: u32 = 102_400;
const LOOK_EVERY: Duration = Duration::from_millis(2);
const START_LIMIT: Duration = Duration::from_secs(20);
const END_LIMIT: Duration = Duration::from_secs(60);
/// What comes last is seen by then, or never.
const PATIENCE: Duration = Duration::from_secs(20);

/// What the heavy readers ask, each its own.
const HEAVY: [&str; 3] = [
    "SELECT ip, port, sum(in_bytes + out_bytes) AS bytes FROM traffic GROUP BY ip, port ORDER BY bytes DESC",
    "SELECT * FROM totals ORDER BY tcp_in_bytes DESC",
    "SELECT t.*, i.packets FROM traffic AS t JOIN intervals AS i USING (ts_ns, interface, vlan) ORDER BY in_bytes",
];

/// Those of all rounds.
#[derive(Default)]
pub struct Lateness {
    all_ms: Vec<f64>,
    faults: Vec<String>,
}

impl Lateness {
    /// One run.
    pub fn round(&mut self, stand: &Stand, scale: Scale, table: &mut Table) {
        match late_ms(stand, scale.stats_span) {
            Ok((late_ms, read)) => {
                for (of, percent) in [("p50", 50.0), ("longest", 100.0)] {
                    let value = percentile(&late_ms, percent).ok_or_else(|| "no interval".to_string());
                    table.put(P99.0, of, "ms", value);
                }
                table.put(P99.0, "answers to the heavy readers", "rows/s", Ok(read));
                self.all_ms.extend(late_ms);
            }
            Err(fault) => self.faults.push(format!("round {}: {fault:#}", table.round() + 1)),
        }
    }

    /// Puts the row of the bar.
    pub fn finish(self, table: &mut Table) {
        let value = percentile(&self.all_ms, 99.0).filter(|_| self.faults.is_empty());
        table.put(P99.0, P99.1, "ms", value.ok_or_else(|| self.faults.join("; ")));
    }
}

/// Says why there is no row.
pub fn leave_out(why: &str, table: &mut Table) {
    table.leave_out(P99.0, P99.1, "ms", why);
}

/// How late each interval was seen, ms; and rows a second that the heavy readers were answered.
fn late_ms(stand: &Stand, span: Duration) -> Result<(Vec<f64>, f64)> {
    let folder = stand.workspace.out_folder()?;
    let db = folder.path().join("x.sqlite");
    let arguments = ["-i", "vb", "--db-interval", "1s", "--traffic-rows", ROWS_MAX, "--local", "any"];
    let start = || StatsRun::start(stand.workspace, Some(stand.lab.b()), &db, &arguments);
    let mut run = on_core(stand, start)?;
    let begun = Instant::now();
    // The database is made behind that.
    while !is_heard(stand.lab.b()) || !has_intervals(&db) {
        run.check_alive()?;
        ensure!(begun.elapsed() < START_LIMIT, "it doesn't capture within {START_LIMIT:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
    let packets = Packets::new(Sizes::Fixed(64));
    let mut sender = Sender::open(stand.lab.a(), "va", &packets)?.of_hosts(HOSTS, false).urgent();
    let (is_over, read) = (AtomicBool::new(false), AtomicU64::new(0));
    let ((late, sent), asked) = std::thread::scope(|scope| {
        let heavy = HEAVY.map(|question| scope.spawn(|| ask(&db, question, &is_over, &read)));
        let quiet = Quiet::default();
        let watched =
            while_sending(&mut sender, stand.sender_core, Pace::PerSecond(RATE), &quiet, || watch(&db, span));
        is_over.store(true, Ordering::Relaxed);
        let asked =
            heavy.map(|reader| reader.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        Ok::<_, anyhow::Error>((watched?, asked))
    })?;
    for asked in asked {
        asked?;
    }
    let read = read.into_inner() as f64 / sent.span.as_secs_f64();
    ensure!(read > 0.0, "the heavy readers had no answer");
    // The last packets have time to come.
    std::thread::sleep(Duration::from_millis(200));
    run.interrupt()?;
    let (summary, _) = run.finish(END_LIMIT)?;
    let (received, dropped) = stats_run::received_and_dropped(&summary)?;
    ensure!(received + dropped == sent.packets, "{received} + {dropped} packets of {} sent", sent.packets);
    stats_run::expect_untouched(&summary)?;
    let database = Database::open(&db)?;
    database.expect_packets(received)?;
    let mut late_ms = Vec::new();
    for Seen { interval_ns, rows, at_ns } in late {
        let now = database.number(&format!("SELECT count(*) FROM traffic WHERE ts_ns = {interval_ns}"))?;
        ensure!(now == rows, "{rows} rows of an interval were seen, it has {now}");
        ensure!(rows >= ROWS_MIN, "an interval has {rows} rows");
        late_ms.push((at_ns - interval_ns - INTERVAL_NS) as f64 / 1e6);
    }
    Ok((late_ms, read))
}

/// Whether the file can be asked for intervals.
fn has_intervals(db: &Path) -> bool {
    let count = |database: Database| database.number("SELECT count(*) FROM intervals");
    db.exists() && Database::open(db).and_then(count).is_ok()
}

/// An interval that was seen for the first time.
struct Seen {
    interval_ns: i64,
    /// Its rows of traffic then.
    rows: i64,
    at_ns: i64,
}

/// Looks until `span` is over, and all intervals that are over by then were seen. The first two are none of them: in one
/// there were no packets yet, in the other one they have begun.
fn watch(db: &Path, span: Duration) -> Result<Vec<Seen>> {
    let database = Database::open(db)?;
    let begun = Instant::now();
    let (mut seen, mut latest) = (Vec::new(), 0);
    let mut until_ns = None;
    loop {
        let found = database.number("SELECT max(ts_ns) FROM intervals")?;
        let at_ns = now_ns()?;
        if latest == 0 && found > 0 {
            latest = found - INTERVAL_NS;
        }
        // Several may have come at once.
        while latest < found {
            latest += INTERVAL_NS;
            let rows = database.number(&format!("SELECT count(*) FROM traffic WHERE ts_ns = {latest}"))?;
            seen.push(Seen { interval_ns: latest, rows, at_ns });
        }
        if begun.elapsed() >= span {
            let until_ns = *until_ns.get_or_insert(at_ns / INTERVAL_NS * INTERVAL_NS - INTERVAL_NS);
            if latest >= until_ns {
                break;
            }
            ensure!(begun.elapsed() < span + PATIENCE, "no interval was seen for {PATIENCE:?}");
        }
        std::thread::sleep(LOOK_EVERY);
    }
    ensure!(seen.len() > 2, "only {} intervals were seen", seen.len());
    Ok(seen.split_off(2))
}

/// Asks again and again until `is_over`.
fn ask(db: &Path, question: &str, is_over: &AtomicBool, read: &AtomicU64) -> Result<()> {
    let database = Database::open(db)?;
    while !is_over.load(Ordering::Relaxed) {
        let rows = database.rows(question)?;
        read.fetch_add(rows, Ordering::Relaxed);
    }
    Ok(())
}

/// The wall clock, ns since the epoch: the clock of the kernel's time stamps.
fn now_ns() -> Result<i64> {
    Ok(SystemTime::now().duration_since(UNIX_EPOCH)?.as_nanos() as i64)
}
