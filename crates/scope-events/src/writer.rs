//! The writer of a run's log: lines in order, by a thread of its own, so that a slow disk keeps nobody
//! waiting.

use crate::audit::AuditHead;
use crate::event::{Event, Hit, Hits};
use crate::fact::Rare;
use crate::file::{Entry, LogFile};
use crate::tail::Tail;
use scope_folder::Folder;
use scope_packet::time::NS_PER_SECOND;
use scope_spelling::time::iso;
use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Hits that are listed in one second.
const HITS_LISTED_MAX: u32 = 100;
/// Lines that wait for the writer; beyond, hits become counts and other events wait.
const QUEUE_MAX: usize = 4096;
/// How often to look whether the last line is written.
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// The wall clock, ns since the epoch.
pub fn now_ns() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as i64)
}

/// The event log of one run.
pub struct Events {
    sender: Mutex<Option<SyncSender<Order>>>,
    writer: Mutex<Option<std::thread::JoinHandle<io::Result<()>>>>,
    /// The writer has written everything, or there is none.
    written: Arc<AtomicBool>,
    hits: Mutex<HitLog>,
    tail: Arc<Tail>,
    audit: Arc<AuditHead>,
    /// Outcomes of reopening since the last call; each order gives one at most.
    reopened: Arc<Mutex<Vec<Reopened>>>,
}

/// The outcome of an order to reopen the log.
#[derive(Debug)]
pub enum Reopened {
    /// It was moved or removed, and goes on in a new file.
    Moved,
    /// It was, no new one could be opened, and it goes on in the file that was moved.
    Failed(io::Error),
}

/// For the writer, in order.
enum Order {
    Line(Box<Entry>),
    /// Go on in a new file if the log was moved or removed.
    Reopen,
}

struct HitLog {
    second: Instant,
    listed: u32,
    /// By trigger and verdict.
    counted: BTreeMap<(String, &'static str), u64>,
}

impl HitLog {
    fn new() -> HitLog {
        HitLog { second: Instant::now(), listed: 0, counted: BTreeMap::new() }
    }
}

impl Events {
    /// Appends to the log in `folder` what the run `run_id` has to say.
    pub fn open(folder: &Arc<Folder>, run_id: &[u8; 16]) -> io::Result<Events> {
        let run_id = run_id.iter().map(|byte| format!("{byte:02x}")).collect();
        let file = LogFile::open(folder, run_id)?;
        let tail = file.tail().clone();
        let (sender, receiver) = sync_channel(QUEUE_MAX);
        let (written, reopened) = (Arc::new(AtomicBool::new(false)), Arc::<Mutex<Vec<Reopened>>>::default());
        let (done, sent_back) = (written.clone(), reopened.clone());
        let writer = std::thread::Builder::new().name("events".into()).spawn(move || {
            let result = write_lines(file, &receiver, &sent_back);
            done.store(true, Ordering::Release);
            result
        })?;
        Ok(Events {
            sender: Mutex::new(Some(sender)),
            writer: Mutex::new(Some(writer)),
            written,
            hits: Mutex::new(HitLog::new()),
            tail,
            audit: Arc::default(),
            reopened,
        })
    }

    /// A log that goes nowhere: for a run without a folder.
    pub fn nowhere() -> Events {
        Events {
            sender: Mutex::default(),
            writer: Mutex::default(),
            written: Arc::new(AtomicBool::new(true)),
            hits: Mutex::new(HitLog::new()),
            tail: Arc::default(),
            audit: Arc::default(),
            reopened: Arc::default(),
        }
    }

    /// The newest lines, for who follows the log.
    pub fn tail(&self) -> &Arc<Tail> {
        &self.tail
    }

    /// What the audit says of itself in status lines.
    pub fn audit(&self) -> &Arc<AuditHead> {
        &self.audit
    }

    /// Logs one event. Not for workers: it waits while the writer is far behind.
    pub fn log(&self, event: impl Into<Event>) {
        if let Some(sender) = self.sender.lock().expect("no panic while held").as_ref() {
            let _ = sender.send(Order::Line(entry(event)));
        }
    }

    /// Goes on in a new file if the log was moved or removed. Every line before this is in the old one. Not
    /// for workers.
    pub fn reopen(&self) {
        if let Some(sender) = self.sender.lock().expect("no panic while held").as_ref() {
            let _ = sender.send(Order::Reopen);
        }
    }

    /// The outcomes of [`Events::reopen`] since the last call.
    pub fn take_reopened(&self) -> Vec<Reopened> {
        std::mem::take(&mut self.reopened.lock().expect("no panic while held"))
    }

    /// Logs a hit that started no dump; never waits.
    pub fn hit(&self, trigger: &str, time_ns: i64, verdict: &'static str, detail: Option<&str>) {
        let mut hits = self.hits.lock().expect("no panic while held");
        if hits.second.elapsed() >= Duration::from_secs(1) {
            hits.second = Instant::now();
            hits.listed = 0;
        }
        if hits.listed < HITS_LISTED_MAX {
            hits.listed += 1;
            let hit = Hit {
                trigger: trigger.to_string(),
                time: iso(time_ns),
                verdict: verdict.to_string(),
                detail: Rare(detail.map(String::from)),
            };
            // Who logs something else may hold it while the writer is far behind.
            let sent = try_lock(&self.sender)
                .map(|sender| sender.as_ref().map(|sender| sender.try_send(Order::Line(entry(hit)))));
            if !matches!(sent, None | Some(Some(Err(TrySendError::Full(_))))) {
                return;
            }
        }
        *hits.counted.entry((trigger.to_string(), verdict)).or_default() += 1;
    }

    /// Logs the hits that weren't listed as counts. Called about once a second and at the end.
    pub fn flush_hits(&self) {
        let counted = std::mem::take(&mut self.hits.lock().expect("no panic while held").counted);
        let mut triggers: BTreeMap<String, BTreeMap<String, u64>> = BTreeMap::new();
        for ((trigger, verdict), hits) in counted {
            triggers.entry(trigger).or_default().insert(verdict.to_string(), hits);
        }
        for (trigger, not_listed) in triggers {
            self.log(Hits { trigger, not_listed });
        }
    }

    /// Logs the last line of a run that ends its process now: no line follows it. Waits `patience` at most,
    /// also while others wait for the disk; whether everything is written.
    pub fn log_last(&self, event: impl Into<Event>, patience: Duration) -> bool {
        let until = Instant::now() + patience;
        let mut last = Some(Order::Line(entry(event)));
        while Instant::now() < until && !self.written.load(Ordering::Acquire) {
            if let Some(mut sender) = try_lock(&self.sender) {
                last = last.and_then(|line| match sender.as_ref()?.try_send(line) {
                    Err(TrySendError::Full(line)) => Some(line),
                    Ok(()) | Err(TrySendError::Disconnected(_)) => None,
                });
                if last.is_none() {
                    *sender = None;
                }
            }
            std::thread::sleep(LOOK_EVERY);
        }
        self.written.load(Ordering::Acquire)
    }

    /// Writes everything and closes the log.
    pub fn close(&self) -> io::Result<()> {
        self.flush_hits();
        drop(self.sender.lock().expect("no panic while held").take());
        match self.writer.lock().expect("no panic while held").take().map(|writer| writer.join()) {
            Some(Ok(result)) => result,
            Some(Err(_)) => Err(io::Error::other("the event writer panicked")),
            None => Ok(()),
        }
    }
}

fn entry(event: impl Into<Event>) -> Box<Entry> {
    Box::new(Entry { event: event.into(), logged_ns: now_ns() })
}

/// Without waiting; a log whose holder panicked is still a log.
fn try_lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match mutex.try_lock() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// Writes lines as they come, each at once. A full disk loses lines, not the run: the first error is reported
/// at the end.
fn write_lines(
    mut file: LogFile,
    orders: &Receiver<Order>,
    reopened: &Mutex<Vec<Reopened>>,
) -> io::Result<()> {
    let mut result = Ok(());
    for order in orders {
        let outcome = match order {
            Order::Line(entry) => {
                let written = file.write(*entry);
                result = result.and(written);
                continue;
            }
            Order::Reopen => match file.reopen(now_ns()) {
                Ok(true) => Reopened::Moved,
                Ok(false) => continue,
                Err(error) => Reopened::Failed(error),
            },
        };
        reopened.lock().expect("no panic while held").push(outcome);
    }
    result
}

/// Seconds with nine decimals, for durations in facts.
pub fn seconds(ns: i64) -> f64 {
    ns as f64 / NS_PER_SECOND as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::EVENTS_FILE;
    use crate::counts::Dump;
    use crate::event::{EndedAtOnce, Machine, Start, Status};
    use serde_json::Value;
    use tempfile::TempDir;

    fn status(dumps_done: u64) -> Status {
        Status { dumps_done, ..Status::default() }
    }

    fn dump(id: u64) -> Dump {
        Dump { id, ..Dump::default() }
    }

    const ENOUGH: Duration = Duration::from_secs(120);

    fn open(folder: &TempDir) -> Events {
        Events::open(&Arc::new(Folder::open(folder.path()).unwrap()), &[7; 16]).unwrap()
    }

    fn log() -> (TempDir, Events) {
        let folder = tempfile::tempdir().unwrap();
        let events = open(&folder);
        (folder, events)
    }

    fn lines(folder: &TempDir) -> Vec<Value> {
        let text = std::fs::read_to_string(folder.path().join(EVENTS_FILE)).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    #[test]
    fn nothing_is_logged_after_the_last_line() {
        let (folder, events) = log();
        for n in 0..1000 {
            events.log(status(n));
        }
        assert!(events.log_last(EndedAtOnce::default(), ENOUGH));
        events.log(status(0));
        let lines = lines(&folder);
        assert_eq!(
            (lines.len(), &lines[1000]["event"], &lines[1000]["run_id"]),
            (1001, &"ended_at_once".into(), &"07".repeat(16).into())
        );
        assert!(
            Events::nowhere().log_last(EndedAtOnce::default(), ENOUGH),
            "nothing to be written is written"
        );
    }

    #[test]
    fn the_last_line_waits_no_longer_than_they_may() {
        let (_folder, events) = log();
        let _other = events.sender.lock().unwrap(); // waits for its disk
        let begun = Instant::now();
        assert!(!events.log_last(EndedAtOnce::default(), Duration::from_millis(50)));
        assert!(begun.elapsed() < ENOUGH);
    }

    #[test]
    fn a_line_that_an_earlier_run_left_half_written_spoils_none_of_the_next() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(EVENTS_FILE), "{\"event\":\"sta").unwrap();
        let events = open(&folder);
        events.log(Start::default());
        events.close().unwrap();
        let text = std::fs::read_to_string(folder.path().join(EVENTS_FILE)).unwrap();
        assert!(text.starts_with("{\"event\":\"sta\n{") && text.lines().count() == 2, "{text}");
    }

    #[test]
    fn hits_beyond_the_bound_become_counts_and_nothing_is_forgotten() {
        let (folder, events) = log();
        let begun = Instant::now();
        for n in 0..250 {
            events.hit("t", n, "held_off", None);
        }
        let seconds = begun.elapsed().as_secs();
        events.close().unwrap();
        let lines = lines(&folder);
        let listed = lines.iter().filter(|line| line["event"] == "hit").count() as u64;
        let counted: u64 = lines.iter().filter_map(|line| line["not_listed"]["held_off"].as_u64()).sum();
        assert_eq!(listed + counted, 250);
        assert!(listed <= (2 + seconds) * HITS_LISTED_MAX as u64, "so many in each second");
    }

    #[test]
    fn a_log_that_is_moved_goes_on_in_a_new_file_with_the_facts_of_its_run_and_no_line_is_lost() {
        let place = tempfile::tempdir().unwrap();
        let (log, moved) = (place.path().join(EVENTS_FILE), place.path().join("moved"));
        let events = Events::open(&Arc::new(Folder::open(place.path()).unwrap()), &[7; 16]).unwrap();
        let lines = |path: &std::path::Path| -> Vec<Value> {
            let text = std::fs::read_to_string(path).unwrap();
            text.split_inclusive('\n')
                .filter(|line| line.ends_with('\n'))
                .map(|line| serde_json::from_str(line).unwrap())
                .collect()
        };
        events.log(Start::default());
        events.log(Machine::default());
        events.log(status(1));
        events.log(status(2));
        events.reopen(); // nobody has moved it
        for id in 0..100 {
            events.log(dump(id));
        }
        while lines(&log).len() < 104 {
            std::thread::sleep(Duration::from_millis(1));
        }
        std::fs::rename(&log, &moved).unwrap();
        events.reopen();
        for id in 100..200 {
            events.log(dump(id));
        }
        events.close().unwrap();
        assert!(
            matches!(&events.take_reopened()[..], [Reopened::Moved]),
            "one note for the one that was moved"
        );
        let (old, new) = (lines(&moved), lines(&log));
        let begins: Vec<_> = new[..3].iter().map(|line| line["event"].clone()).collect();
        assert_eq!(begins, ["start", "machine", "status"]);
        assert_eq!((&new[0]["continues"], &new[0]["began"]), (&true.into(), &old[0]["logged"]));
        let dumps = old
            .iter()
            .chain(&new)
            .filter(|line| line["event"] == "dump")
            .map(|line| line["id"].as_u64().unwrap());
        assert_eq!(dumps.collect::<Vec<_>>(), (0..200).collect::<Vec<_>>());
        assert!(
            !new.iter().any(|line| line["event"] == "dump" && line["id"] == 99),
            "what came before is in the old one"
        );
    }

    #[test]
    fn where_no_new_log_can_be_made_the_old_one_goes_on_and_that_is_said() {
        let place = tempfile::tempdir().unwrap();
        let (log, moved) = (place.path().join(EVENTS_FILE), place.path().join("moved"));
        let events = Events::open(&Arc::new(Folder::open(place.path()).unwrap()), &[7; 16]).unwrap();
        std::fs::rename(&log, &moved).unwrap();
        std::os::unix::fs::symlink("/nowhere", &log).unwrap();
        events.reopen();
        events.log(dump(0));
        events.close().unwrap();
        assert!(
            matches!(&events.take_reopened()[..], [Reopened::Failed(error)] if error.to_string().contains("symbolic link"))
        );
        assert!(std::fs::read_to_string(&moved).unwrap().contains("dump"));
    }
}
