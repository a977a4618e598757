//! The thread "stats" of a run: it joins what workers have counted, and writes and sends what is settled.
//!
//! A transaction has what settled since the last one. Where one fails, its rows wait, and are tried again; what is too
//! much to wait is folded into sums. Nothing of this is ever in front of a packet.

use crate::measuring::locked;
use crate::plan::{Fixed, StatsPlan};
use crate::statistics::{Statistics, StatsStatus};
use crate::wiring::Shared;
use scope_events::now_ns;
use scope_fault::Fault;
use scope_flow::joined::{Joined, Rules};
use scope_flow::local::{Local, Rule};
use scope_flow::rows::Settled;
use scope_folder::Folder;
use scope_machine::clock;
use scope_machine::disk::disk_of;
use scope_machine::nic::addresses::Addresses;
use scope_rights::{FolderUse, Writable};
use scope_stats::asking::{Database, Spares};
use scope_stats::database::WAL_BYTES_MAX;
use scope_stats::ipfix::{Now, Sender};
use scope_stats::place::Place;
use scope_stats::{Failed, RunFacts, Writer};
use std::ffi::OsStr;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often the thread looks.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Records and what is late are written so often, also where no interval ends.
const WRITE_EVERY: Duration = Duration::from_secs(1);
/// So many records are written at once, nearly, also before that.
const RECORDS_MAX: usize = 1 << 14;
/// What failed is tried again after so long.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// At the end of a run it is tried for so long.
const END_PATIENCE: Duration = Duration::from_secs(10);
/// Rows that wait to be written: what they take is about 64 MiB.
const WAITING_ROWS_MAX: usize = (64 << 20) / 256;
/// A collector that has refused records takes them again when nothing was refused for so long.
const REFUSING_FOR: Duration = Duration::from_secs(60);
/// Copies of a database that are passed on at once.
const COPIES_MAX: usize = 2;
/// A copy that keeps a log from being emptied is given up when that is so long: at twice as much rows wait.
const LOG_BYTES_MAX: u64 = WAL_BYTES_MAX / 2;
/// Own addresses of interfaces are looked at so often.
const ADDRESSES_EVERY: Duration = Duration::from_secs(5);

/// Which addresses are local where nothing else was asked for, in the line of a run: each interface's own, or, of files,
/// all.
const BY_INTERFACE: &str = "interface";
const ANY: &str = "any";

/// What the thread has.
pub struct Recording<'a> {
    shared: &'a Shared,
    statistics: &'a Statistics,
    joined: Joined,
    outlets: Outlets,
    /// What wasn't written yet.
    waiting: Settled,
    written_at: Instant,
    /// Workers have handed on more than was taken.
    is_behind: bool,
    /// Rows of traffic, and records, that were folded since they couldn't be written.
    folded: (u64, u64),
    failed_at: Option<Instant>,
    /// When the collector refused records last; `None`: it takes them.
    refused_at: Option<Instant>,
    addresses_at: Option<Instant>,
    status: StatsStatus,
}

/// Where rows go, and who knows own addresses: opened before rights are given up.
#[derive(Debug, Default)]
pub struct Outlets {
    writer: Option<Writer>,
    sender: Option<Sender>,
    addresses: Option<Addresses>,
}

impl Outlets {
    /// Rows go there, and nowhere else.
    pub fn of_writer(writer: Writer) -> Outlets {
        Outlets { writer: Some(writer), ..Outlets::default() }
    }

    /// Opens all that the plan names.
    ///
    /// # Errors
    /// Where something can't be opened.
    pub fn open(fixed: &Fixed, run_id: [u8; 16], is_live: bool) -> Result<Outlets, Fault> {
        let Some(plan) = &fixed.stats else { return Ok(Outlets::default()) };
        // Without it each address is local, as of an interface without one.
        let addresses = (is_live && plan.local == Rule::Own).then(Addresses::open).and_then(Result::ok);
        let local = match addresses {
            Some(_) => BY_INTERFACE,
            None if plan.local == Rule::Own => ANY,
            None => &plan.local_text,
        };
        let facts = || RunFacts {
            run: run_id.iter().map(|byte| format!("{byte:02x}")).collect(),
            host: clock::host().0,
            version: env!("CARGO_PKG_VERSION").to_string(),
            begin_ns: now_ns(),
            sources: fixed.sources.iter().map(|source| source.spec.clone()).collect(),
            local: local.to_string(),
        };
        let open = |options: &scope_stats::Options| {
            let first = |mut faults: Vec<Fault>| faults.swap_remove(0);
            Writer::open(options.clone(), facts()).map_err(first)
        };
        let connect = |collector: std::net::SocketAddr| {
            let fault = |error: io::Error| Fault::of("ipfix").with_value(collector.to_string()).error(&error);
            Sender::connect(collector).map_err(fault)
        };
        Ok(Outlets {
            writer: plan.db.as_ref().map(open).transpose()?,
            sender: plan.ipfix.map(connect).transpose()?,
            addresses,
        })
    }
}

/// What can be asked of the database while the run goes, also where this process may open nothing any more.
#[derive(Debug)]
pub struct Asked {
    /// The database.
    pub database: Database,
    /// Files for copies of it; or why there are none.
    pub spares: Result<Spares, String>,
}

impl Asked {
    /// Opens all that so many questions at once need, behind what writes there.
    ///
    /// # Errors
    /// It can't be read.
    pub(crate) fn open(
        outlets: &Outlets,
        fixed: &Fixed,
        questions_max: usize,
    ) -> Result<Option<Asked>, Fault> {
        let db = fixed.stats.as_ref().and_then(|stats| stats.db.as_ref());
        let (Some(options), Some(writer)) = (db, &outlets.writer) else { return Ok(None) };
        let database = Database::hold(&options.db, questions_max);
        let database = database.map_err(|error| error.fault().clone())?;
        let spares =
            Spares::begin(writer.folder(), COPIES_MAX, LOG_BYTES_MAX).map_err(|error| error.to_string());
        Ok(Some(Asked { database, spares }))
    }
}

/// The folder that databases are made in while the run goes.
///
/// # Errors
/// The system's.
pub(crate) fn folder(fixed: &Fixed) -> Result<Option<Folder>, Fault> {
    let db = fixed.stats.as_ref().and_then(|stats| stats.db.as_ref());
    let Some(Place::Folder(path)) = db.map(|options| Place::of(&options.db)) else { return Ok(None) };
    let fault = |error: io::Error| Fault::of("db").with_value(path.to_string_lossy()).error(&error);
    let path = std::fs::canonicalize(&path).map_err(fault)?;
    Folder::open(&path).map(Some).map_err(fault)
}

/// What of it stays writable.
pub(crate) fn writable(folder: &Folder) -> Writable<'_> {
    Writable { folder, file: OsStr::new(NO_FILE), folder_use: FolderUse::Own }
}

/// Stands for the files of a folder: what their names are, their times say.
const NO_FILE: &str = "wirescope.sqlite";

impl<'a> Recording<'a> {
    /// To begin before the workers do.
    pub fn new(shared: &'a Shared, statistics: &'a Statistics, outlets: Outlets) -> Recording<'a> {
        let StatsPlan { length_ns, rows_max, idle_ns, local, .. } = &statistics.plan;
        let rules = Rules {
            length_ns: *length_ns,
            traffic_rows_max: *rows_max,
            idle_ns: *idle_ns,
            is_live: statistics.live,
        };
        let joined = Joined::new(rules, Local::new(local.clone()));
        Recording {
            shared,
            statistics,
            joined,
            outlets,
            waiting: Settled::default(),
            written_at: Instant::now(),
            is_behind: false,
            folded: (0, 0),
            failed_at: None,
            refused_at: None,
            addresses_at: None,
            status: statistics.status(),
        }
    }

    /// Joins and writes until every worker has ended.
    pub fn work(mut self) {
        while !self.step() {
            if !self.is_behind {
                std::thread::park_timeout(LOOK_EVERY);
            }
        }
        let ended = Instant::now();
        while !self.waiting.is_empty() && self.outlets.writer.is_some() && ended.elapsed() < END_PATIENCE {
            self.write();
            std::thread::sleep(LOOK_EVERY);
        }
        self.write_least();
        self.status.waiting = self.waiting.rows() as u64;
        self.statistics.over();
        if let Some(writer) = &mut self.outlets.writer {
            writer.note_run(&self.status.counters());
        }
        if let Some(writer) = self.outlets.writer.take()
            && let Err(failed) = writer.close(self.shared.clock.wall_ns())
        {
            self.warn(format!("statistics: {failed}"));
        }
        self.statistics.set_status(self.status);
    }

    /// Joins what is there, and writes what is due; whether all workers have ended.
    fn step(&mut self) -> bool {
        self.look_at_addresses();
        self.is_behind = false;
        let (mut until, mut clock_ns, mut flows, mut evicted) = (i64::MAX, 0, 0, 0);
        for place in &self.statistics.outboxes {
            let mut outbox = locked(place);
            let (mut handed, remainder, losses) = outbox.take();
            until = until.min(outbox.taken_until);
            self.is_behind |= outbox.has_more();
            clock_ns = clock_ns.max(outbox.clock_ns);
            flows += outbox.flows as u64;
            evicted += outbox.evicted;
            let interfaces = outbox.interfaces.clone();
            drop(outbox);
            for piece in &mut handed {
                self.joined.add(piece, &interfaces);
                piece.clear();
            }
            let rest = locked(place).give_back(handed);
            drop(rest);
            self.status.unwritten += remainder.folded_rows + remainder.folded_flows;
            self.joined.add_remainder(remainder);
            for loss in losses {
                self.joined.add_loss(loss);
            }
        }
        let is_over = until == i64::MAX;
        let length_ns = self.statistics.plan.length_ns;
        let is_due = self.joined.is_past(until)
            || self.joined.records() >= RECORDS_MAX
            || self.written_at.elapsed() >= WRITE_EVERY;
        if is_over || is_due {
            let sent = self.waiting.flows.len();
            self.joined.settle_into(&mut self.waiting, until, clock_ns);
            self.send(sent);
            match self.outlets.writer {
                Some(_) => self.bound(),
                None => self.waiting.clear(),
            }
            self.written_at = Instant::now();
        }
        let may_try = self.failed_at.is_none_or(|at| at.elapsed() >= RETRY_AFTER);
        if !self.waiting.is_empty() && may_try {
            self.write();
        }
        if self.waiting.is_empty() {
            let reached = if is_over { clock_ns.div_euclid(length_ns) + 1 } else { until };
            self.status.written_ns = self.status.written_ns.max(reached.saturating_mul(length_ns));
        }
        let joined = self.joined.counters();
        self.status.late = joined.late;
        self.status.folded_rows = joined.folded_rows + self.folded.0;
        self.status.folded_flows = joined.folded_flows + self.folded.1;
        (self.status.flows, self.status.evicted) = (flows, evicted);
        self.status.lag_ns = (clock_ns - self.status.written_ns).max(0);
        self.status.waiting = self.waiting.rows() as u64;
        self.statistics.set_status(self.status.clone());
        is_over
    }

    /// Where there is no room for all rows at the end, their sums are tried, then intervals alone.
    fn write_least(&mut self) {
        if self.waiting.is_empty() || self.outlets.writer.is_none() {
            return;
        }
        self.fold();
        self.write();
        if !self.waiting.is_empty() {
            self.waiting =
                Settled { intervals: std::mem::take(&mut self.waiting.intervals), ..Settled::default() };
            self.write();
        }
        if !self.waiting.is_empty() {
            self.status.unwritten += self.waiting.intervals.len() as u64;
            self.status.ended.get_or_insert("there was no room for its last rows".to_string());
        }
    }

    /// Writes what waits.
    fn write(&mut self) {
        let Some(writer) = &mut self.outlets.writer else { return };
        writer.note_run(&self.status.counters());
        let written = writer.write(&mut self.waiting, self.shared.clock.wall_ns());
        let counters = writer.counters();
        (self.status.rows, self.status.moved_aside) = (counters.rows, counters.moved_aside);
        (self.status.bytes, self.status.wal_bytes) = (counters.bytes, counters.wal_bytes);
        self.status.disk = disk_of(writer.folder());
        match written {
            Ok(()) => {
                self.failed_at = None;
                if self.status.failing.take().is_some() {
                    self.warn("statistics are written again".to_string());
                }
            }
            Err(failed) => {
                self.failed_at = Some(Instant::now());
                self.told(&failed);
            }
        }
    }

    /// Tells of a failure once, and does what can be done about it.
    fn told(&mut self, failed: &Failed) {
        let text = failed.to_string();
        if matches!(failed, Failed::Damaged { .. }) {
            let moved = self.outlets.writer.as_mut().map(Writer::move_aside);
            if let Some(Ok(Some(name))) = moved {
                self.warn(format!(
                    "statistics: {text}; it was renamed to {}, and a new one is begun",
                    name.to_string_lossy()
                ));
                self.failed_at = None;
                return;
            }
            self.warn(format!("statistics end, capture goes on: {text}; move it away, and start again"));
            self.status.unwritten += self.waiting.rows() as u64;
            self.waiting = Settled::default();
            self.status.ended = Some(text);
            self.outlets.writer = None;
            return;
        }
        if self.status.failing.is_none() {
            self.warn(format!("statistics can't be written: {text}; they wait, and capture goes on"));
        }
        self.status.failing = Some(text);
    }

    fn warn(&self, text: String) {
        self.statistics.warn(text);
    }

    /// Folds what is too much to wait.
    fn bound(&mut self) {
        if self.waiting.rows() > WAITING_ROWS_MAX && self.failed_at.is_some() {
            self.fold();
        }
    }

    /// Makes sums of what waits.
    fn fold(&mut self) {
        let (rows, flows) = self.waiting.fold();
        (self.folded.0, self.folded.1) = (self.folded.0 + rows, self.folded.1 + flows);
        self.status.folded_rows += rows;
        self.status.folded_flows += flows;
        self.status.unwritten += rows + flows;
    }

    /// Sends the records that wait, but for those in front of number `from`, which were sent.
    fn send(&mut self, from: usize) {
        if let Some(sender) = &mut self.outlets.sender {
            let now = Now { epoch_ns: self.shared.clock.wall_ns(), instant: Instant::now() };
            sender.send(&self.waiting.flows[from..], now);
            let sent = sender.sent();
            (self.status.sent, self.status.unsent) = (sent.records, sent.refused_records);
            match (sender.take_error(), self.refused_at) {
                (Some(cause), before) => {
                    self.refused_at = Some(now.instant);
                    if before.is_none() {
                        self.warn(format!(
                            "statistics: the collector refuses records: {cause}; they are counted"
                        ));
                    }
                }
                (None, Some(before)) if now.instant.duration_since(before) >= REFUSING_FOR => {
                    self.refused_at = None;
                    self.warn("statistics: the collector takes records again".to_string());
                }
                (None, _) => {}
            }
        }
    }

    fn look_at_addresses(&mut self) {
        let is_due = self.addresses_at.is_none_or(|at| at.elapsed() >= ADDRESSES_EVERY);
        if let Some(addresses) = self.outlets.addresses.as_mut().filter(|_| is_due) {
            self.addresses_at = Some(Instant::now());
            if let Ok(now) = addresses.now() {
                let own = now.into_iter().map(|(name, own)| (Arc::from(name), own));
                self.joined.local.set_own(own.collect());
            }
        }
    }
}
