//! The statistics of a run: workers hand on what they have counted, and one thread (`recording.rs`) joins it, writes
//! it and sends it.
//!
//! ```text
//!  worker ─ try_lock ─► its outbox ─┐
//!  worker ─ try_lock ─► its outbox ─┴► thread "stats": Joined ─► SQLite, IPFIX
//! ```
//! A worker of a live source never waits: what it can't hand on stays with it until its next commit, and what there
//! is no room for is folded into sums. One that feeds from files waits for room.

use crate::failure::Failure;
use crate::measuring::locked;
use crate::plan::StatsPlan;
use scope_events::counts;
use scope_fault::{Fault, Subject};
use scope_flow::counting::{Counting, Handed, Settings};
use scope_flow::remainder::Remainder;
use scope_flow::rows::LossRow;
use scope_flow::table::Bounds;
use scope_machine::cpus::pin_this_thread;
use scope_machine::disk::Disk;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, TryLockError};
use std::time::Duration;

/// Memory of rows that wait, of all workers, in a live run.
const WAITING_BYTES_MAX: usize = 64 << 20;
/// The same where workers can wait: what one transaction takes out, and as much again meanwhile.
const WAITING_FILE_BYTES_MAX: usize = 8 << 20;
/// What a row of a worker takes, nearly.
const ROW_BYTES: usize = 256;
/// Rows that are taken out of an outbox at once, nearly: what becomes of them has bounded memory.
const TAKEN_ROWS: usize = 1 << 14;
/// Pieces of memory that come back to a worker: of one that can wait, all.
const SPARE_MAX: usize = 256;
/// Those that a worker has from the start.
const SPARE_FIRST: usize = 32;
/// Losses that wait in one outbox.
const LOSSES_MAX: usize = 1 << 10;
/// How long workers that can wait do so at once.
const WAIT_STEP: Duration = Duration::from_micros(200);
/// What hashes begin with where a source can wait.
const FILE_SEED: [u64; 2] = [0x5c09_e5c0_9e5c_09e5, 0xf10e_5f10_e5f1_0e55];

/// What one worker has handed on, and nobody has taken.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    /// In pieces, as they came: to move rows to where there is room for all would take a worker long. With each: everything
    /// before this interval is in it, or in one before it.
    handed: Vec<(Handed, i64)>,
    /// How many rows these are.
    rows: usize,
    /// Empty pieces that come back, so that a worker neither asks the system for memory, nor waits for who gives some
    /// back.
    spare: Vec<Handed>,
    pub remainder: Remainder,
    pub losses: Vec<LossRow>,
    /// Names of the worker's interfaces, by number.
    pub interfaces: Arc<[Arc<str>]>,
    /// Everything before this interval is here, or was taken.
    until: i64,
    /// Everything before this interval was taken.
    pub taken_until: i64,
    /// The latest time that the worker has seen.
    pub clock_ns: i64,
    /// Flows in its table, and how many were evicted so far.
    pub flows: usize,
    pub evicted: u64,
}

/// See the module.
#[derive(Debug)]
pub struct Statistics {
    pub(crate) plan: StatsPlan,
    /// No source can wait.
    pub(crate) live: bool,
    settings: Settings,
    /// What workers that haven't begun will count in, by number.
    tables: Vec<Mutex<Option<Counting>>>,
    /// One for each worker. Protected by its lock, which is held to put something in or to take all.
    pub(crate) outboxes: Vec<Mutex<Outbox>>,
    /// The thread has ended, or never began.
    over: AtomicBool,
    /// What it has done so far.
    status: Mutex<StatsStatus>,
    /// What people are to hear, and haven't yet.
    news: Mutex<Vec<String>>,
}

/// What workers of interfaces will count in. Their memory is there before the first packet is, and on the node of the
/// processors that they run on.
#[derive(Debug, Default)]
pub struct Tables(Vec<Counting>);

impl Tables {
    /// Of a run with such workers: the processors of each, none for any.
    pub fn make(plan: &StatsPlan, run_id: [u8; 16], workers: &[&[u32]]) -> Tables {
        let settings = settings(plan, workers.len(), run_id, true);
        let make = |cpus: &[u32]| {
            // Where that fails it is only slower; the worker says it.
            let _ = pin_this_thread(cpus);
            let mut counting = Counting::new(settings);
            counting.touch();
            counting
        };
        std::thread::scope(|scope| {
            let make = &make;
            let begin = |cpus| std::thread::Builder::new().spawn_scoped(scope, move || make(cpus)).ok();
            let threads: Vec<_> = workers.iter().map(|&cpus| begin(cpus)).collect();
            let made = threads.into_iter().map(|thread| thread?.join().ok());
            Tables(made.map(|table| table.unwrap_or_else(|| Counting::new(settings))).collect())
        })
    }
}

/// What a worker counts, and how.
fn settings(plan: &StatsPlan, workers: usize, run_id: [u8; 16], live: bool) -> Settings {
    let StatsPlan { flows_max, idle_ns, active_ns, length_ns, .. } = *plan;
    let bounds = Bounds { flows_max: (flows_max / workers.max(1)).max(1), idle_ns, active_ns };
    let id = u128::from_le_bytes(run_id);
    let seed = if live { [id as u64, (id >> 64) as u64] } else { FILE_SEED };
    Settings { bounds, length_ns, expires: live, seed }
}

/// What stays the same of statistics while they are made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StatsOf {
    /// The database, as it was given.
    pub db: Option<String>,
    /// The collector.
    pub ipfix: Option<String>,
    /// Length of an interval, ns.
    pub interval_ns: i64,
    /// Flows at once.
    pub flows_max: u64,
}

/// What statistics have done so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StatsStatus {
    /// What they are.
    pub of: StatsOf,
    /// Rows that were written.
    pub rows: u64,
    /// Rows that wait to be written.
    pub waiting: u64,
    /// The end of the last interval that was written, ns; 0: none was.
    pub written_ns: i64,
    /// How far that is behind the clock, ns.
    pub lag_ns: i64,
    /// Flows that go on.
    pub flows: u64,
    /// Flows whose place was needed.
    pub evicted: u64,
    /// Rows of traffic, and records, that were folded into sums.
    pub folded_rows: u64,
    /// See `folded_rows`.
    pub folded_flows: u64,
    /// Of these, because they couldn't be written.
    pub unwritten: u64,
    /// Packets that came when their interval was written.
    pub late: u64,
    /// Damaged files that were renamed.
    pub moved_aside: u64,
    /// What all files take, with their logs.
    pub bytes: u64,
    /// The logs of those that are open.
    pub wal_bytes: u64,
    /// The disk that they are on, where that is known.
    pub disk: Option<Disk>,
    /// Records that were sent, and that were refused or had no room.
    pub sent: u64,
    /// See `sent`.
    pub unsent: u64,
    /// Why nothing is written now; why nothing is written any more.
    pub failing: Option<String>,
    /// See `failing`.
    pub ended: Option<String>,
}

/// Why this trigger, which asks flows, can't be added to a run that follows none.
pub fn no_flows(trigger: &str) -> Fault {
    let fault = Fault::about(Subject::trigger(trigger, Some("when")));
    let fault = fault.cause("this run follows no flows, and can't begin to while it goes");
    fault.remedy("start it anew with this trigger, or with --db or --ipfix")
}

impl StatsStatus {
    /// As summary and log have it.
    pub fn facts(&self) -> counts::Stats {
        let StatsOf { db, ipfix, interval_ns, flows_max } = self.of.clone();
        counts::Stats {
            db,
            ipfix,
            interval_ns,
            flows_max,
            waiting: self.waiting,
            bytes: self.bytes,
            wal_bytes: self.wal_bytes,
            disk_free: self.disk.map(|disk| disk.free_bytes),
            disk_bytes: self.disk.map(|disk| disk.bytes),
            rows: self.rows,
            written_ns: self.written_ns,
            lag_ns: self.lag_ns,
            flows: self.flows,
            evicted: self.evicted,
            folded_rows: self.folded_rows,
            folded_flows: self.folded_flows,
            unwritten: self.unwritten,
            late: self.late,
            moved_aside: self.moved_aside,
            sent: self.sent,
            unsent: self.unsent,
            failing: self.failing.clone(),
            ended: self.ended.clone(),
        }
    }

    /// Its counters by name, for the run's line in the database.
    pub(crate) fn counters(&self) -> [(&'static str, u64); 8] {
        [
            ("rows", self.rows),
            ("evicted", self.evicted),
            ("folded_rows", self.folded_rows),
            ("folded_flows", self.folded_flows),
            ("unwritten", self.unwritten),
            ("late", self.late),
            ("sent", self.sent),
            ("unsent", self.unsent),
        ]
    }
}

impl Outbox {
    fn new() -> Outbox {
        let spare = (0..SPARE_FIRST).map(|_| Handed::with_room()).collect();
        Outbox { spare, ..Outbox::default() }
    }

    /// What is in it, or the oldest of it.
    pub fn take(&mut self) -> (Vec<Handed>, Remainder, Vec<LossRow>) {
        let mut rows = 0;
        let is_within = |(piece, _): &&(Handed, i64)| {
            let is_within = rows < TAKEN_ROWS;
            rows += if is_within { piece.rows() } else { 0 };
            is_within
        };
        let count = self.handed.iter().take_while(is_within).count();
        let taken_until = &mut self.taken_until;
        let pieces = self.handed.drain(..count).map(|(piece, until)| {
            *taken_until = until;
            piece
        });
        let pieces = pieces.collect();
        self.rows -= rows;
        if self.handed.is_empty() {
            self.taken_until = self.until;
        }
        (pieces, std::mem::take(&mut self.remainder), std::mem::take(&mut self.losses))
    }

    /// Something is left.
    pub fn has_more(&self) -> bool {
        !self.handed.is_empty()
    }

    /// Gives pieces back; what there is no place for.
    pub fn give_back(&mut self, mut pieces: Vec<Handed>) -> Vec<Handed> {
        let rest = pieces.split_off(pieces.len().min(SPARE_MAX.saturating_sub(self.spare.len())));
        self.spare.append(&mut pieces);
        rest
    }

    /// Adds a piece.
    fn put(&mut self, handed: Handed) {
        self.rows += handed.rows();
        match handed.is_empty() {
            true => self.spare.push(handed),
            false => self.handed.push((handed, self.until)),
        }
    }
}

impl Statistics {
    /// Of a run with so many workers. `run_id` is what nobody outside can guess. `tables` are those of its workers, if
    /// they were made before.
    pub fn new(plan: StatsPlan, workers: usize, run_id: [u8; 16], live: bool, tables: Tables) -> Statistics {
        let of = StatsOf {
            db: plan.db.as_ref().map(|options| options.db.to_string_lossy().into_owned()),
            ipfix: plan.ipfix.map(|collector| collector.to_string()),
            interval_ns: plan.length_ns,
            flows_max: plan.flows_max as u64,
        };
        debug_assert!(tables.0.is_empty() || live && tables.0.len() == workers);
        Statistics {
            settings: settings(&plan, workers, run_id, live),
            tables: tables.0.into_iter().map(|table| Mutex::new(Some(table))).collect(),
            plan,
            live,
            outboxes: (0..workers.max(1)).map(|_| Mutex::new(Outbox::new())).collect(),
            over: AtomicBool::new(false),
            status: Mutex::new(StatsStatus { of, ..StatsStatus::default() }),
            news: Mutex::default(),
        }
    }

    /// What a worker counts in.
    pub(crate) fn counting(&self, worker: u32) -> Counting {
        let table = self.tables.get(worker as usize).and_then(|table| locked(table).take());
        table.unwrap_or_else(|| Counting::new(self.settings))
    }

    fn rows_max(&self) -> usize {
        let bytes_max = if self.live { WAITING_BYTES_MAX } else { WAITING_FILE_BYTES_MAX };
        bytes_max / ROW_BYTES / self.outboxes.len()
    }

    /// Takes what `worker` hands on. Without `waits` it never waits: it leaves everything where it is if somebody
    /// holds the outbox just now.
    pub(crate) fn hand_on(
        &self,
        worker: u32,
        (counting, losses): (&mut Counting, &mut Vec<LossRow>),
        interfaces: &Arc<[Arc<str>]>,
        clock_ns: i64,
        waits: bool,
    ) {
        let place = &self.outboxes[worker as usize];
        let mut outbox = match place.try_lock() {
            Ok(outbox) => outbox,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) if waits => locked(place),
            Err(TryLockError::WouldBlock) => return,
        };
        while waits && outbox.rows > self.rows_max() && !self.over.load(Ordering::Acquire) {
            drop(outbox);
            std::thread::sleep(WAIT_STEP);
            outbox = place.lock().unwrap_or_else(PoisonError::into_inner);
        }
        let room = outbox.spare.pop().unwrap_or_else(Handed::with_room);
        let (handed, until) = counting.exchange(room);
        if !Arc::ptr_eq(&outbox.interfaces, interfaces) {
            outbox.interfaces = interfaces.clone();
        }
        outbox.until = outbox.until.max(until);
        if outbox.rows > self.rows_max() || self.over.load(Ordering::Relaxed) {
            outbox.fold(handed, self.plan.length_ns);
        } else {
            outbox.put(handed);
        }
        let room = LOSSES_MAX.saturating_sub(outbox.losses.len());
        if losses.len() <= room {
            outbox.losses.append(losses);
        }
        outbox.clock_ns = outbox.clock_ns.max(clock_ns);
        let (flows, counters) = counting.counters();
        (outbox.flows, outbox.evicted) = (flows, counters.evicted);
    }

    /// `worker` has ended, however.
    pub(crate) fn end(&self, worker: u32) {
        locked(&self.outboxes[worker as usize]).until = i64::MAX;
    }

    /// Nobody takes anything any more.
    pub(crate) fn over(&self) {
        self.over.store(true, Ordering::Release);
    }

    /// What was promised and not done: rows that a disk or a lock kept from being written.
    pub(crate) fn failure(&self) -> Option<Failure> {
        let StatsStatus { unwritten, ended, failing, .. } = self.status();
        let why = ended.or(failing).map(|why| format!(": {why}")).unwrap_or_default();
        match unwritten {
            0 if why.is_empty() => None,
            0 => Some(format!("statistics ended early{why}").into()),
            rows => {
                Some(format!("statistics lack {rows} rows, which are folded into sums or lost{why}").into())
            }
        }
    }

    /// What it has done so far.
    pub fn status(&self) -> StatsStatus {
        locked(&self.status).clone()
    }

    pub(crate) fn warn(&self, text: String) {
        locked(&self.news).push(text);
    }

    /// What people are to hear, once.
    pub(crate) fn take_news(&self) -> Vec<String> {
        std::mem::take(&mut *locked(&self.news))
    }

    pub(crate) fn set_status(&self, status: StatsStatus) {
        *locked(&self.status) = status;
    }
}

impl Outbox {
    /// Puts sums in the place of what there is no room for. Totals have room: there are few of them.
    fn fold(&mut self, mut handed: Handed, length_ns: i64) {
        let unknown: Arc<str> = Arc::from("");
        let interfaces = self.interfaces.clone();
        let name = |number: u32| interfaces.get(number as usize).unwrap_or(&unknown);
        self.remainder.add_handed(&handed.flows, name, length_ns);
        handed.flows.clear();
        self.put(handed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use scope_flow::totals::{Cell, Total};

    /// A piece with so many rows.
    fn piece(rows: usize) -> Handed {
        let cell = |interval| (Cell { interval: interval as i64, interface: 0, vlan: 0 }, Total::default());
        Handed { totals: (0..rows).map(cell).collect(), ..Handed::default() }
    }

    #[test]
    fn what_is_taken_settles_also_where_more_always_waits() {
        let mut outbox = Outbox::new();
        for until in [3, 7, 7, 9] {
            outbox.until = until;
            outbox.put(piece(TAKEN_ROWS));
        }
        for (taken_until, has_more) in [(3, true), (7, true), (7, true), (9, false), (9, false)] {
            outbox.take();
            assert_eq!((outbox.taken_until, outbox.has_more()), (taken_until, has_more));
        }
        assert_eq!(outbox.rows, 0);
        // What has no rows says at once how far a worker has come, but not in front of what waits.
        outbox.until = 11;
        outbox.put(piece(0));
        outbox.until = 12;
        outbox.put(piece(TAKEN_ROWS));
        outbox.until = 15;
        outbox.put(piece(0));
        outbox.put(piece(1));
        for taken_until in [12, 15] {
            outbox.take();
            assert_eq!(outbox.taken_until, taken_until);
        }
    }

    #[test]
    fn pieces_come_back_within_their_bound() {
        let mut outbox = Outbox::new();
        let rest = outbox.give_back((0..SPARE_MAX).map(|_| piece(0)).collect());
        assert_eq!((outbox.spare.len(), rest.len()), (SPARE_MAX, SPARE_FIRST));
    }
}
