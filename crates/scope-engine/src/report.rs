//! What a worker says of itself while it runs: it publishes counters and interfaces whole, and never waits
//! for who reads them.
//!
//! ```text
//!  Reporter ──► counters, interfaces, failure ──► `latest`: three places ──► ReportReader
//!  (worker) ──► warnings, interface events    ──► `Unread`, then `queue` ──► (main thread)
//! ```
//! The worker keeps a table of its interfaces, into which its source writes what has changed. Each of the
//! three places has a table of its own. One that comes back to the worker is older than the worker's: a bit
//! for each interface says what it lacks, and that is copied, then the place is published. So a report costs
//! what has changed since this place was last filled, which is one to three reports ago as a rule.
//!
//! | bound | what happens there | counted |
//! |---|---|---|
//! | [`ENTRIES_MAX`] entries in one report, or twice what changed | a later report publishes it; the last has no bound | - |
//! | [`QUEUE_SLOTS`] events that nobody has read | further ones stay with the worker | - |
//! | [`UNREAD_MAX`] events that stay with it | the oldest are forgotten | [`ReportReader::news`] |
//!
//! [`UNREAD_MAX`]: crate::unread::UNREAD_MAX
//!
//! There is one reader, the main thread. It looks once and makes a [`Status`](crate::Status) of what it sees;
//! whoever else wants to know has that.

mod latest;
mod queue;

use crate::unread::Unread;
use latest::PLACES;
use scope_packet::fetch::{fetch_to_write, fetch_value};
use scope_source::{InterfaceCounters, InterfaceEvent, Source, SourceCounters, SourceError};
use std::collections::VecDeque;
use std::ops::Deref;
use std::sync::Arc;

/// Entries of interfaces that one report copies at most, unless more have changed.
pub const ENTRIES_MAX: usize = 128;
/// So many entries are asked for ahead of the one that is copied: the reader's core has them in its cache.
const FETCHED: usize = 12;
/// Events on their way to the reader at most.
pub const QUEUE_SLOTS: usize = 64;

/// What a worker publishes; all of it is of one moment.
#[derive(Default)]
pub struct Report {
    /// Its source's counters.
    pub counters: SourceCounters,
    /// The same for each of its live interfaces.
    pub interfaces: Vec<InterfaceCounters>,
    /// Why its source failed; only ever in its last report.
    pub failure: Option<Arc<SourceError>>,
    /// Events that it has forgotten so far.
    forgotten: u64,
    /// In its last report: events for which the queue had no room.
    rest: VecDeque<WorkerNews>,
}

/// One event of a worker.
#[derive(Debug)]
pub enum WorkerNews {
    /// What became of one of its interfaces.
    Interface(InterfaceEvent),
    /// A warning in plain words.
    Warning(String),
}

/// A worker's reports, and their reader.
pub fn begin() -> (Reporter, ReportReader) {
    let (places, latest) = latest::latest();
    let (sender, receiver) = queue::queue(QUEUE_SLOTS);
    let reporter = Reporter {
        places,
        counters: SourceCounters::default(),
        interfaces: Vec::new(),
        changed: Vec::new(),
        behind: Default::default(),
        due: Vec::new(),
        queue: sender,
        unread: Unread::default(),
        forgotten: 0,
        failure: None,
        rest: VecDeque::new(),
    };
    (reporter, ReportReader { latest, queue: receiver, forgotten: 0 })
}

/// Publishes what one worker says.
pub struct Reporter {
    places: latest::Writer<Report>,
    counters: SourceCounters,
    /// The worker's own table, which is always up to date.
    interfaces: Vec<InterfaceCounters>,
    /// What is new there, and what the source has put right; empty between two reports.
    changed: Vec<usize>,
    /// For each place: interfaces whose entries there are older than in the worker's own table.
    behind: [Numbers; PLACES],
    /// Of these the report at hand is about; empty between two reports.
    due: Vec<usize>,
    queue: queue::Sender<WorkerNews>,
    /// Events for which the queue had no room.
    unread: Unread<WorkerNews>,
    forgotten: u64,
    failure: Option<Arc<SourceError>>,
    rest: VecDeque<WorkerNews>,
}

impl Reporter {
    /// Says what `source` has counted, and what came up there since the last report; how many entries of
    /// interfaces were copied for that. Never waits. Where no interface is new and nothing comes up it takes
    /// no memory.
    pub fn report(&mut self, source: &mut dyn Source) -> usize {
        self.counters = source.counters();
        let known = self.interfaces.len();
        source.interface_counters(&mut self.interfaces, &mut self.changed);
        self.changed.extend(known..self.interfaces.len());
        let most = ENTRIES_MAX.max(2 * self.changed.len());
        for number in self.changed.drain(..) {
            for behind in &mut self.behind {
                behind.add(number);
            }
        }
        let interfaces = source.interface_events().into_iter().map(WorkerNews::Interface);
        self.tell(interfaces.chain(source.warnings().into_iter().map(WorkerNews::Warning)));
        self.publish(most)
    }

    /// Says `warning`.
    pub fn warn(&mut self, warning: String) {
        self.tell([WorkerNews::Warning(warning)]);
    }

    /// The last report: all that is still to be said, and why the source failed, if it did.
    pub fn end(mut self, failure: Option<SourceError>) {
        self.failure = failure.map(Arc::new);
        (self.rest, _) = self.unread.take();
        self.publish(usize::MAX);
    }

    fn tell(&mut self, news: impl IntoIterator<Item = WorkerNews>) {
        self.unread.extend(news);
        self.unread.hand_on(|news| self.queue.send(news));
        self.forgotten += self.unread.take_forgotten();
    }

    /// Brings the worker's place up to date, by `most` entries at most, and publishes it if it is whole then;
    /// how many it was.
    fn publish(&mut self, most: usize) -> usize {
        let at = self.places.own();
        let Some(mut place) = self.places.fill() else { return 0 };
        let new = self.interfaces.len().saturating_sub(place.interfaces.len());
        place.interfaces.reserve(new); // at once, however few of them come now
        let is_whole = self.behind[at].take(most, &mut self.due);
        for ahead in 0..self.due.len() + FETCHED {
            if let Some(&number) = self.due.get(ahead)
                && let (Some(entry), Some(own)) =
                    (place.interfaces.get_mut(number), self.interfaces.get(number))
            {
                fetch_to_write(entry);
                fetch_value(own);
            }
            let Some(&number) = ahead.checked_sub(FETCHED).and_then(|at| self.due.get(at)) else { continue };
            match (place.interfaces.get_mut(number), self.interfaces.get(number)) {
                (Some(entry), Some(own)) => bring_up(entry, own),
                (None, Some(own)) => place.interfaces.push(own.clone()), // new ones come in their order
                (_, None) => {}
            }
        }
        let copied = self.due.len();
        self.due.clear();
        if is_whole {
            place.counters = self.counters;
            place.forgotten = self.forgotten;
            place.failure = self.failure.take();
            place.rest = std::mem::take(&mut self.rest);
            drop(place);
            self.places.publish();
        }
        copied
    }
}

/// Makes `entry` what `own` is. The names' counts of references are left alone: readers count there, too.
fn bring_up(entry: &mut InterfaceCounters, own: &InterfaceCounters) {
    entry.counters = own.counters;
    for (name, own) in [(&mut entry.interface, &own.interface), (&mut entry.called, &own.called)] {
        if !Arc::ptr_eq(name, own) {
            *name = own.clone();
        }
    }
}

/// A set of numbers, a bit each.
#[derive(Default)]
struct Numbers(Vec<u64>);

impl Numbers {
    fn add(&mut self, number: usize) {
        let (word, bit) = (number / 64, number % 64);
        if word >= self.0.len() {
            self.0.resize(word + 1, 0);
        }
        self.0[word] |= 1 << bit;
    }

    /// Moves the smallest ones into the empty `taken`, `most` of them; whether none is left.
    fn take(&mut self, most: usize, taken: &mut Vec<usize>) -> bool {
        for (at, word) in self.0.iter_mut().enumerate() {
            while *word != 0 {
                if taken.len() == most {
                    return false;
                }
                taken.push(at * 64 + word.trailing_zeros() as usize);
                *word &= *word - 1;
            }
        }
        true
    }
}

/// Reads what one worker says.
pub struct ReportReader {
    latest: latest::Reader<Report>,
    queue: queue::Receiver<WorkerNews>,
    /// Of these [`ReportReader::news`] has told.
    forgotten: u64,
}

impl ReportReader {
    /// The latest report. It stays as it is for as long as it is looked at; the worker goes on.
    pub fn look(&mut self) -> impl Deref<Target = Report> {
        self.latest.look()
    }

    /// What came up since the last call, oldest first, and how many events were forgotten since then.
    pub fn news(&mut self) -> (Vec<WorkerNews>, u64) {
        // Before the queue is emptied: what the last report has is behind all of that.
        let mut report = self.latest.look();
        let rest = std::mem::take(&mut report.rest);
        let forgotten = report.forgotten - std::mem::replace(&mut self.forgotten, report.forgotten);
        drop(report);
        let news = std::iter::from_fn(|| self.queue.receive()).take(QUEUE_SLOTS);
        (news.chain(rest).collect(), forgotten)
    }
}

#[cfg(test)]
mod tests;
