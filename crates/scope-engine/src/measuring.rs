//! The signals of a run: workers hand on what they have added up and matched, and one thread (`joining.rs`) takes
//! it, joins it, and fires.
//!
//! ```text
//!  worker ─ try_lock ─► its outbox ─┐
//!  worker ─ try_lock ─► its outbox ─┴► thread "signals": joined ─► series, conditions ─► Dumps::occurred
//! ```
//! A worker of a live source never waits: it keeps what it can't hand on until its next commit. One that feeds
//! from files waits while this thread is more than [`AHEAD_NS`] behind and some condition is evaluated, so that a
//! window still finds its packets in the ring, at any speed.

use crate::patterns::Matches;
use scope_packet::Moment;
use scope_ring::{Judge, Ring};
use scope_trigger::Trigger;
use scope_trigger::meter::{Handed, Meter};
use scope_trigger::series::Step;
use scope_trigger::signal::SignalSet;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError, Weak};
use std::time::Duration;

/// How far, ns of capture time, workers that can wait may be ahead of this thread.
const AHEAD_NS: i64 = 50_000_000;
/// What estimates begin with where a source can wait.
const FILE_SEED: u64 = 0x5c09_e5c0_9e5c_09e5;
/// How long they wait at once.
const WAIT_STEP: Duration = Duration::from_micros(100);
/// Sums that wait in one outbox at most. Beyond, workers that can wait do so, and others drop and count.
pub(crate) const SUMS_MAX: usize = 1 << 18;

/// What one worker has handed on, and nobody has taken.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    handed: Vec<Handed>,
    matches: Matches,
    /// Of these all.
    sums: usize,
    until: Moment,
}

/// What the signals of a run are made of.
#[derive(Debug)]
pub struct Measuring {
    set: Arc<SignalSet>,
    pub(crate) seed: [u64; 2],
    /// What estimates begin with: nobody outside guesses that of a live run, and a file gives the same ones each time.
    estimate_seed: u64,
    /// Bytes that one count or sequence may take.
    pub(crate) count_bytes: usize,
    /// One for each worker. Protected by its lock, which is held to put something in or to take all.
    pub(crate) outboxes: Vec<Mutex<Outbox>>,
    /// What is joined.
    pub(crate) meter: Mutex<Meter<Watched>>,
    /// Up to where everything is evaluated, since some condition is: workers that can wait, and dumps, wait for it.
    pub(crate) judge: OnceLock<Arc<Judge>>,
    /// Others that workers which can wait wait for: scripts.
    waits_for: Mutex<Vec<Weak<Judge>>>,
    /// What these judge by.
    ring: OnceLock<Arc<Ring>>,
    /// The thread has ended, or never began.
    pub(crate) over: AtomicBool,
    late: AtomicU64,
    unmeasured: AtomicU64,
}

/// A trigger whose condition is evaluated here: the same as long as it is this trigger.
#[derive(Clone, Debug)]
pub(crate) struct Watched(pub Arc<Trigger>);

impl Outbox {
    /// All that is in it, and up to where its worker has handed everything on.
    pub(crate) fn take(&mut self) -> (Vec<Handed>, Matches, Moment) {
        self.sums = 0;
        (std::mem::take(&mut self.handed), std::mem::take(&mut self.matches), self.until)
    }
}

impl PartialEq for Watched {
    fn eq(&self, other: &Watched) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// A signal, as somebody asks for it.
#[derive(Clone, Debug)]
pub struct SignalNow {
    /// Its name.
    pub name: String,
    /// The word of its measure.
    pub measure: &'static str,
    /// What it is measured of; empty: all packets.
    pub expr: String,
    /// The unit of its values.
    pub unit: &'static str,
    /// It has a value for each second, and no finer ones.
    pub is_per_second: bool,
    /// Its value over the last second that is over; `None`: there is none.
    pub latest: Option<f64>,
    /// The span that was measured, ns.
    pub measured: Option<(i64, i64)>,
}

impl Measuring {
    /// Of a run with so many workers, where one count or sequence may take so many bytes. `run_id` is what nobody
    /// outside can guess.
    pub fn new(
        set: Arc<SignalSet>,
        workers: usize,
        run_id: [u8; 16],
        count_bytes: usize,
        live: bool,
    ) -> Measuring {
        let seed = u128::from_le_bytes(run_id);
        Measuring {
            meter: Mutex::new(Meter::new(set.clone())),
            set,
            seed: [seed as u64, (seed >> 64) as u64],
            estimate_seed: if live { seed as u64 } else { FILE_SEED },
            count_bytes,
            outboxes: (0..workers).map(|_| Mutex::default()).collect(),
            judge: OnceLock::new(),
            waits_for: Mutex::default(),
            ring: OnceLock::new(),
            over: AtomicBool::new(false),
            late: AtomicU64::new(0),
            unmeasured: AtomicU64::new(0),
        }
    }

    /// Of a run without the thread that joins: nothing is kept, and nobody waits.
    pub fn unjoined(workers: usize) -> Arc<Measuring> {
        let measuring = Measuring::new(Arc::default(), workers, [0; 16], 0, false);
        measuring.over.store(true, Ordering::Release);
        Arc::new(measuring)
    }

    /// The signals.
    pub fn set(&self) -> &SignalSet {
        &self.set
    }

    /// What estimates of this run begin with.
    pub(crate) fn seed(&self) -> u64 {
        self.estimate_seed
    }

    /// Takes what `worker` hands on. Without `waits` it never waits.
    ///
    /// # Errors
    /// Gives it back where somebody holds the outbox just now.
    pub(crate) fn hand_on(
        &self,
        worker: u32,
        (handed, matches): (Vec<Handed>, Matches),
        until: Moment,
        waits: bool,
    ) -> Result<(), (Vec<Handed>, Matches)> {
        let place = &self.outboxes[worker as usize];
        let mut outbox = match place.try_lock() {
            Ok(outbox) => outbox,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) if waits => locked(place),
            Err(TryLockError::WouldBlock) => return Err((handed, matches)),
        };
        while waits && outbox.sums > SUMS_MAX && !self.over.load(Ordering::Acquire) {
            drop(outbox);
            std::thread::sleep(WAIT_STEP);
            outbox = locked(place);
        }
        let matched: usize = matches.iter().map(|(_, matches)| matches.len()).sum();
        let sums = handed.iter().map(|handed| handed.sums.len()).sum::<usize>() + matched;
        if outbox.sums > SUMS_MAX || self.over.load(Ordering::Relaxed) {
            self.count_unmeasured(sums as u64);
        } else {
            outbox.sums += sums;
            outbox.handed.extend(handed);
            outbox.matches.extend(matches);
        }
        outbox.until = outbox.until.max(until);
        drop(outbox);
        while waits && self.is_behind() {
            std::thread::sleep(WAIT_STEP);
        }
        Ok(())
    }

    /// `worker` has ended, however.
    pub(crate) fn end(&self, worker: u32) {
        locked(&self.outboxes[worker as usize]).until = Moment::END;
    }

    /// Whether workers have to wait for what is evaluated.
    fn is_behind(&self) -> bool {
        let is_ahead =
            |settled: Moment, judged: Moment| settled != Moment::END && judged.plus(AHEAD_NS) < settled;
        let of_own = self.judge.get().is_some_and(|judge| {
            let settled = self.outboxes.iter().map(|outbox| locked(outbox).until).min();
            settled.is_some_and(|settled| is_ahead(settled, judge.up_to()))
        });
        // Each of them comes to what it judges by, what workers have committed: that isn't the same to a bin.
        let others =
            || locked(&self.waits_for).iter().filter_map(Weak::upgrade).map(|judge| judge.up_to()).min();
        of_own
            || self
                .ring
                .get()
                .and_then(|ring| Some((ring.committed(), others()?)))
                .is_some_and(|(committed, judged)| is_ahead(committed, judged))
    }

    /// Workers that can wait wait for this one, too, until it is dropped.
    pub(crate) fn wait_for(&self, judge: &Arc<Judge>, ring: &Arc<Ring>) {
        let _ = self.ring.set(ring.clone());
        let mut list = locked(&self.waits_for);
        list.retain(|known| known.strong_count() > 0);
        list.push(Arc::downgrade(judge));
    }

    /// Counts sums that were lost because nobody took them.
    pub(crate) fn count_unmeasured(&self, sums: u64) {
        self.unmeasured.fetch_add(sums, Ordering::Relaxed);
    }

    /// Counts packets that came after their bin was closed.
    pub(crate) fn count_late(&self, packets: u64) {
        self.late.fetch_add(packets, Ordering::Relaxed);
    }

    /// Sums of bins that no signal has, and packets that came too late for one.
    pub fn lacks(&self) -> (u64, u64) {
        (self.unmeasured.load(Ordering::Relaxed), self.late.load(Ordering::Relaxed))
    }

    /// The signals, as they are now.
    pub fn now(&self) -> Vec<SignalNow> {
        let meter = locked(&self.meter);
        let each = meter.set().signals.iter().zip(meter.series());
        each.map(|(signal, series)| SignalNow {
            name: signal.name.clone(),
            measure: signal.measure.name(),
            expr: signal.expr.clone(),
            unit: signal.measure.unit(),
            is_per_second: signal.measure.is_per_second(),
            latest: series.latest(),
            measured: series.measured(),
        })
        .collect()
    }

    /// The value of each over the last second that is over, by name.
    pub fn latest(&self) -> BTreeMap<String, Option<f64>> {
        self.now().into_iter().map(|signal| (signal.name, signal.latest)).collect()
    }

    /// Steps of one signal, and their length, ns; `None`: there is none of that name.
    pub fn steps(&self, name: &str, span: (i64, i64), step_ns: i64) -> Option<(i64, Vec<Step>)> {
        let place = self.set.place(name)?;
        Some(locked(&self.meter).series()[place].steps(span.0, span.1, step_ns))
    }

    /// What a worker has handed on.
    #[cfg(test)]
    pub(crate) fn taken(&self, worker: usize) -> (Vec<Handed>, Moment) {
        let mut outbox = locked(&self.outboxes[worker]);
        (std::mem::take(&mut outbox.handed), outbox.until)
    }
}

pub(crate) fn locked<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}
