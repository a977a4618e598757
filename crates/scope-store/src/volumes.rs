//! What the volumes of a run share: the dealer, what each reports, and what each is told.

use crate::dealer::Dealer;
use crate::report::{Amount, News, VolumeReport, VolumeState};
use crate::retain::Bounds;
use crate::stall::{self, Pulse, Stall};
use crate::volume::VolumeId;
use scope_ring::{Missed, Pinned, Ring};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

/// News that nobody has read: older ones are forgotten.
pub(crate) const NEWS_MAX: usize = 1024;

/// What all volumes of a run share.
pub struct Shared {
    ring: Arc<Ring>,
    dealer: Mutex<Dealer>,
    volumes: Vec<Mutex<Told>>,
    pulses: Vec<Pulse>,
    ids: Vec<VolumeId>,
    ends: AtomicBool,
    ended: OnceLock<Instant>,
}

/// What a volume tells the run, and is told by it.
#[derive(Default)]
struct Told {
    report: VolumeReport,
    news: VecDeque<News>,
    bounds: Option<Bounds>,
    /// Missed, and not in the report: nobody could take it.
    passed: Amount,
    passed_span_ns: Option<(i64, i64)>,
    stall: Stall,
    over: bool,
}

impl Shared {
    /// For these volumes, in the order of their places.
    pub fn new(ring: &Arc<Ring>, dealer: Dealer, ids: Vec<VolumeId>) -> Arc<Shared> {
        Arc::new(Shared {
            ring: ring.clone(),
            dealer: Mutex::new(dealer),
            volumes: ids.iter().map(|_| Mutex::default()).collect(),
            pulses: ids.iter().map(|_| Pulse::new()).collect(),
            ids,
            ends: AtomicBool::new(false),
            ended: OnceLock::new(),
        })
    }

    /// Where the volumes stand; what is behind is made exact by [`crate::report::share_out_behind`].
    pub fn reports(&self) -> Vec<VolumeReport> {
        let report = |(told, pulse): (&Mutex<Told>, &Pulse)| {
            let told = locked(told);
            let mut report = told.report.clone();
            report.missed = report.missed.plus(told.passed);
            report.missed_span_ns =
                report.missed_span_ns.into_iter().chain(told.passed_span_ns).reduce(wider);
            if told.stall.stalls() {
                (report.state, report.error) = (VolumeState::Stalled, Some(stall::words(pulse.silent())));
            }
            report
        };
        self.volumes.iter().zip(&self.pulses).map(report).collect()
    }

    /// Looks which disks have stopped answering, or answer again: the others take over the share of those that
    /// don't. Counts what was recycled meanwhile. To be called every second or so.
    pub fn watch(&self) {
        let (volume, passed) = self.dealer().pass_recycled();
        if !passed.is_empty() {
            let span_ns =
                passed.iter().filter_map(|(lane, missed)| missed_span_ns(&self.ring, *lane, missed));
            let span_ns = span_ns.reduce(wider);
            let of = |(_, missed): &(u32, Missed)| Amount::new(missed.packets, missed.bytes);
            let amount = passed.iter().map(of).fold(Amount::default(), Amount::plus);
            let mut told = locked(&self.volumes[volume]);
            told.passed = told.passed.plus(amount);
            told.passed_span_ns = told.passed_span_ns.into_iter().chain(span_ns).reduce(wider);
            told.note(News::Missed(amount, span_ns));
        }
        for (index, (told, pulse)) in self.volumes.iter().zip(&self.pulses).enumerate() {
            let mut told = locked(told);
            let over = told.over;
            let Some(stalls) = told.stall.look(pulse, over) else { continue };
            let news = match stalls {
                true => News::State(VolumeState::Stalled, stall::words(pulse.silent())),
                false => News::State(told.report.state, "the disk answers again".to_string()),
            };
            told.note(news);
            drop(told);
            self.dealer().set_stalling(index, stalls);
        }
    }

    /// Workers that can wait for the store don't any more, where a volume doesn't write: a run that is stopped
    /// must not wait for its disk.
    pub fn let_workers_go(&self) {
        if self.reports().iter().any(|report| report.state != VolumeState::Writing) {
            self.dealer().let_workers_go();
        }
    }

    /// What the volumes have to tell since the last call: by their places.
    pub fn take_news(&self) -> Vec<(usize, Vec<News>)> {
        let news = |(index, told): (usize, &Mutex<Told>)| (index, locked(told).news.drain(..).collect());
        self.volumes.iter().enumerate().map(news).filter(|(_, news): &(_, Vec<_>)| !news.is_empty()).collect()
    }

    /// Other bounds for a volume from now on.
    pub fn set_bounds(&self, volume: usize, bounds: Bounds) {
        if let Some(told) = self.volumes.get(volume) {
            locked(told).bounds = Some(bounds);
        }
    }

    /// Nothing more is published: the volumes write what there is, and end.
    pub fn end(&self) {
        self.ended.get_or_init(Instant::now);
        self.ends.store(true, Ordering::Release);
    }

    /// Whether all volumes have ended, but for those whose disk doesn't answer, and that nobody waits for.
    pub fn is_over(&self) -> bool {
        let is_over = |(told, pulse): (&Mutex<Told>, &Pulse)| {
            let told = locked(told);
            let given_up = |end: &Instant| told.stall.is_given_up(pulse, *end);
            told.over || self.ended.get().is_some_and(given_up)
        };
        self.volumes.iter().zip(&self.pulses).all(is_over)
    }

    /// What no volume could take at the end, by lane.
    pub fn rest(&self) -> Vec<(u32, Missed)> {
        self.dealer().rest(&self.ring)
    }

    /// All volumes of the run.
    pub(crate) fn ids(&self) -> impl Iterator<Item = [u8; 16]> + '_ {
        self.ids.iter().map(|id| id.0)
    }

    /// A volume's disk has answered, or has nothing to answer.
    pub(crate) fn beat(&self, volume: usize) {
        self.pulses[volume].beat();
    }

    pub(crate) fn ring(&self) -> &Arc<Ring> {
        &self.ring
    }

    pub(crate) fn dealer(&self) -> MutexGuard<'_, Dealer> {
        locked(&self.dealer)
    }

    /// Whether nothing more is published.
    pub(crate) fn ends(&self) -> bool {
        self.ends.load(Ordering::Acquire)
    }

    pub(crate) fn take_bounds(&self, volume: usize) -> Option<Bounds> {
        locked(&self.volumes[volume]).bounds.take()
    }

    /// Takes over a volume's report, and its news.
    pub(crate) fn tell(&self, volume: usize, report: &VolumeReport, news: &mut VecDeque<News>) {
        let mut told = locked(&self.volumes[volume]);
        told.report = report.clone();
        let keep = NEWS_MAX.saturating_sub(news.len());
        while told.news.len() > keep {
            told.news.pop_front();
        }
        told.news.extend(news.drain(..));
    }

    /// The volume has ended.
    pub(crate) fn set_over(&self, volume: usize) {
        locked(&self.volumes[volume]).over = true;
    }
}

impl Told {
    fn note(&mut self, news: News) {
        if self.news.len() >= NEWS_MAX {
            self.news.pop_front();
        }
        self.news.push_back(news);
    }
}

/// Capture time of packets that were recycled, as far as it is known, ns.
pub(crate) fn missed_span_ns(ring: &Ring, lane: u32, missed: &Missed) -> Option<(i64, i64)> {
    let packets = missed.first_packet..missed.first_packet + missed.packets;
    let lost = ring.lost(lane, &[packets], (i64::MIN, i64::MAX));
    lost.into_iter().filter_map(|lost| lost.span_ns).reduce(wider)
}

/// Capture time of the segments that are in the ring and have some of these packets, ns.
pub(crate) fn there_span_ns(ring: &Arc<Ring>, lane: u32, missed: &Missed) -> Option<(i64, i64)> {
    let has_some = |pinned: &Pinned| {
        let first = pinned.first_packet();
        let end = first + u64::from(pinned.committed().packets);
        first < missed.first_packet + missed.packets && end > missed.first_packet
    };
    let pinned = ring.segment_ids(lane, 0).filter_map(|id| ring.pin(id)).filter(has_some);
    pinned.filter_map(|pinned| pinned.span()).map(|(min_ns, max_ns, _)| (min_ns, max_ns)).reduce(wider)
}

/// From the earlier begin to the later end.
pub(crate) fn wider(a: (i64, i64), b: (i64, i64)) -> (i64, i64) {
    (a.0.min(b.0), a.1.max(b.1))
}

/// What is in there is whole after each statement; a panic of another thread doesn't change that.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
