//! What the volumes of a run share: the dealer, what each reports, and what each is told.

use crate::dealer::Dealer;
use crate::report::{News, VolumeReport};
use crate::retain::Bounds;
use scope_ring::{Missed, Ring};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// News that nobody has read: older ones are forgotten.
pub(crate) const NEWS_MAX: usize = 1024;

/// What all volumes of a run share.
pub struct Shared {
    ring: Arc<Ring>,
    dealer: Mutex<Dealer>,
    volumes: Vec<Mutex<Told>>,
    ends: AtomicBool,
}

/// What a volume tells the run, and is told by it.
#[derive(Default)]
struct Told {
    report: VolumeReport,
    news: VecDeque<News>,
    bounds: Option<Bounds>,
    over: bool,
}

impl Shared {
    /// For so many `volumes`.
    pub fn new(ring: &Arc<Ring>, dealer: Dealer, volumes: usize) -> Arc<Shared> {
        Arc::new(Shared {
            ring: ring.clone(),
            dealer: Mutex::new(dealer),
            volumes: (0..volumes).map(|_| Mutex::default()).collect(),
            ends: AtomicBool::new(false),
        })
    }

    /// Where the volumes stand; what is behind is made exact by [`crate::report::share_out_behind`].
    pub fn reports(&self) -> Vec<VolumeReport> {
        self.volumes.iter().map(|told| locked(told).report.clone()).collect()
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
        self.ends.store(true, Ordering::Release);
    }

    /// Whether all volumes have ended.
    pub fn is_over(&self) -> bool {
        self.volumes.iter().all(|told| locked(told).over)
    }

    /// What no volume could take at the end, by lane.
    pub fn rest(&self) -> Vec<(u32, Missed)> {
        self.dealer().rest(&self.ring)
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

/// What is in there is whole after each statement; a panic of another thread doesn't change that.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
