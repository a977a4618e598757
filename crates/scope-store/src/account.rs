//! What a volume counts, and what it has to tell.

use crate::report::{Amount, Deleted, News, VolumeReport, VolumeState};
use crate::volumes::{NEWS_MAX, Shared, missed_span_ns, there_span_ns, wider};
use scope_ring::{Missed, Pinned, Ring};
use std::collections::VecDeque;
use std::sync::Arc;

/// A volume's figures and news.
pub(crate) struct Account {
    /// As it is told next.
    pub report: VolumeReport,
    news: VecDeque<News>,
    /// Missed since that was in the news last.
    missed: Amount,
    missed_span_ns: Option<(i64, i64)>,
}

impl Account {
    pub fn new(report: VolumeReport) -> Account {
        Account { report, news: VecDeque::new(), missed: Amount::default(), missed_span_ns: None }
    }

    /// Counts a file that was deleted; apart, where this run had stored it.
    pub fn count_deleted(&mut self, deleted: &Deleted) {
        self.report.deleted = self.report.deleted.plus(deleted.amount());
        if deleted.own {
            self.report.deleted_own = self.report.deleted_own.plus(deleted.amount());
            self.report.crowded_out |= !deleted.is_too_old();
        }
    }

    /// Notes something that people should know.
    pub fn note(&mut self, news: News) {
        if self.news.len() == NEWS_MAX {
            self.news.pop_front();
        }
        self.news.push_back(news);
    }

    /// Counts what is safe now.
    pub fn count_stored(&mut self, amount: Amount) {
        self.report.stored = self.report.stored.plus(amount);
    }

    /// Counts what was left out.
    pub fn count_filtered(&mut self, amount: Amount) {
        self.report.filtered = self.report.filtered.plus(amount);
    }

    /// Counts packets of a lane that were recycled before they were safe.
    pub fn count_missed(&mut self, ring: &Ring, lane: u32, missed: &Missed) {
        let span = missed_span_ns(ring, lane, missed);
        self.miss(Amount::new(missed.packets, missed.bytes), span);
    }

    /// Counts packets of a lane that nobody took: some may be in the ring still.
    pub fn count_rest(&mut self, ring: &Arc<Ring>, lane: u32, missed: &Missed) {
        let spans = [missed_span_ns(ring, lane, missed), there_span_ns(ring, lane, missed)];
        self.miss(Amount::new(missed.packets, missed.bytes), spans.into_iter().flatten().reduce(wider));
    }

    /// Counts packets of a segment that can't be written any more.
    pub fn count_lost(&mut self, amount: Amount, of: &Pinned) {
        if amount.packets > 0 {
            self.miss(amount, of.span().map(|(min_ns, max_ns, _)| (min_ns, max_ns)));
        }
    }

    fn miss(&mut self, amount: Amount, span: Option<(i64, i64)>) {
        self.report.missed = self.report.missed.plus(amount);
        self.missed = self.missed.plus(amount);
        for known in [&mut self.missed_span_ns, &mut self.report.missed_span_ns] {
            *known = match (*known, span) {
                (Some(a), Some(b)) => Some(wider(a, b)),
                (a, b) => a.or(b),
            };
        }
    }

    /// Puts into the news what was missed since the last time.
    pub fn note_missed(&mut self) {
        let amount = std::mem::take(&mut self.missed);
        let span_ns = self.missed_span_ns.take();
        if amount.packets > 0 {
            self.note(News::Missed(amount, span_ns));
        }
    }

    /// Says where the volume stands, and why.
    pub fn set_state(&mut self, state: VolumeState, words: String) {
        let changed = self.report.state != state || self.report.error.as_deref() != Some(&words);
        (self.report.state, self.report.error) =
            (state, (state != VolumeState::Writing).then(|| words.clone()));
        self.report.was_held |= state == VolumeState::Held;
        if changed {
            self.note(News::State(state, words));
        }
    }

    /// Hands over what there is.
    pub fn tell(&mut self, shared: &Shared, volume: usize) {
        shared.tell(volume, &self.report, &mut self.news);
    }
}
