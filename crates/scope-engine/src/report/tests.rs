//! Reports against a naive oracle, and under a reader that never lets go.

use super::*;
use crate::unread::UNREAD_MAX;
use proptest::prelude::*;
use scope_packet::Sink;
use scope_source::{InterfaceState, Polled, Timing};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};

/// A source whose counters a test sets: an entry's three counts always agree, and the source's are the sums
/// of all entries.
#[derive(Default)]
struct Books {
    counters: SourceCounters,
    entries: Vec<InterfaceCounters>,
    changed: BTreeSet<usize>,
    told: usize,
    news: Vec<InterfaceEvent>,
    warnings: Vec<String>,
}

impl Books {
    fn with_interfaces(interfaces: usize) -> Books {
        let mut books = Books::default();
        (0..interfaces).for_each(|_| books.meet());
        books
    }

    fn meet(&mut self) {
        let name: Arc<str> = format!("if{}", self.entries.len()).into();
        let counters = SourceCounters::default();
        self.entries.push(InterfaceCounters { interface: name.clone(), called: name, counters });
    }

    /// `packets` more came on an interface, and as many were dropped there.
    fn count(&mut self, number: usize, packets: u64) {
        for counters in [&mut self.entries[number].counters, &mut self.counters] {
            counters.offered += 2 * packets;
            counters.received += packets;
            counters.kernel_dropped += packets;
            counters.altered.cut_by_bound += packets;
        }
        self.changed.insert(number);
    }

    fn rename(&mut self, number: usize, name: &str) {
        self.entries[number].called = name.into();
        self.changed.insert(number);
    }
}

impl Source for Books {
    fn name(&self) -> &str {
        "books"
    }

    fn timing(&self) -> Timing {
        Timing::Live
    }

    fn grace_ns(&self) -> i64 {
        0
    }

    fn poll(&mut self, _: &mut dyn Sink) -> Result<Polled, SourceError> {
        Ok(Polled::Nothing)
    }

    fn counters(&self) -> SourceCounters {
        self.counters
    }

    fn stop(&mut self) {}

    fn interface_counters(&mut self, into: &mut Vec<InterfaceCounters>, changed: &mut Vec<usize>) {
        into.extend(self.entries[self.told..].iter().cloned());
        self.told = self.entries.len();
        for number in std::mem::take(&mut self.changed) {
            into[number] = self.entries[number].clone();
            changed.push(number);
        }
    }

    fn interface_events(&mut self) -> Vec<InterfaceEvent> {
        std::mem::take(&mut self.news)
    }

    fn warnings(&mut self) -> Vec<String> {
        std::mem::take(&mut self.warnings)
    }
}

fn failure() -> SourceError {
    SourceError::System { place: "a test".to_string(), cause: std::io::ErrorKind::NotConnected.into() }
}

/// Whether the report is of one moment: each entry's counts agree, and the entries are all of the source's.
fn is_whole(report: &Report) -> bool {
    let mut sum = SourceCounters::default();
    report.interfaces.iter().for_each(|entry| sum.add(&entry.counters));
    let agree = |counters: &SourceCounters| {
        let SourceCounters { offered, received, kernel_dropped, altered, .. } = *counters;
        offered == received + kernel_dropped && received == altered.cut_by_bound
    };
    sum == report.counters && report.interfaces.iter().all(|entry| agree(&entry.counters))
}

#[test]
fn a_reader_that_stands_still_in_its_look_holds_no_report_up() {
    let mut books = Books::with_interfaces(4000);
    let (mut reporter, mut reader) = begin();
    books.count(7, 1);
    reporter.report(&mut books);
    let look = reader.look();
    // In one thread: a report that waited would wait for ever.
    for round in 0..1000 {
        books.count(round % 4000, 1);
        books.warnings.push(format!("warning {round}"));
        reporter.report(&mut books);
    }
    reporter.end(Some(failure()));
    assert_eq!((look.counters.received, look.interfaces.len(), look.failure.is_some()), (1, 4000, false));
    assert!(is_whole(&look), "what it looks at stays as it was");
    drop(look);
    let last = reader.look();
    assert_eq!((last.counters, last.failure.is_some()), (books.counters, true));
    assert!(last.interfaces == books.entries && is_whole(&last));
}

#[test]
fn a_report_copies_what_has_changed_and_is_bounded_however_much_that_is() {
    let mut books = Books::with_interfaces(4000);
    let (mut reporter, mut reader) = begin();
    assert_eq!((reporter.report(&mut books), reader.look().interfaces.len()), (4000, 4000), "all are new");
    // Until no place lacks any.
    let mut reports = 0;
    let mut whole = 0;
    while whole < PLACES {
        let copied = reporter.report(&mut books);
        assert!(copied <= ENTRIES_MAX);
        whole = if copied == 0 { whole + 1 } else { 0 };
        reports += 1;
        drop(reader.look());
    }
    assert!(reports <= 3 * (4000 / ENTRIES_MAX + 2), "{reports} reports");
    // The same 64 in each report, as many sockets as a source has: what a place lacks never grows.
    for round in 0..100 {
        (0..64).for_each(|number| books.count(62 * number, 1));
        assert_eq!(reporter.report(&mut books), 64, "round {round}");
        assert!(reader.look().counters == books.counters, "and is published at once");
    }
    // Others in each: what a place lacks are those of two or three reports.
    for round in 0..200 {
        (0..64).for_each(|number| books.count((64 * round + number) % 4000, 1));
        assert!(reporter.report(&mut books) <= ENTRIES_MAX, "round {round}");
        let look = reader.look();
        assert!(is_whole(&look));
    }
    // The reader kept a place while all changed: it comes back in pieces.
    let look = reader.look();
    for round in 0..4000 / 64 + 1 {
        (0..64).for_each(|number| books.count((64 * round + number) % 4000, 1));
        assert!(reporter.report(&mut books) <= ENTRIES_MAX);
    }
    drop(look);
    let mut late = 0;
    while reader.look().counters != books.counters {
        (0..64).for_each(|number| books.count(number, 1));
        assert!(reporter.report(&mut books) <= ENTRIES_MAX);
        late += 1;
    }
    assert!(late <= 4000 / (ENTRIES_MAX - 64), "{late} reports late");
}

#[test]
fn a_report_takes_no_memory_once_its_interfaces_are_known() {
    let mut books = Books::with_interfaces(4000);
    let (mut reporter, mut reader) = begin();
    let sizes = |reporter: &Reporter| {
        let behind = reporter.behind.iter().map(|numbers| numbers.0.capacity()).collect::<Vec<_>>();
        (reporter.interfaces.capacity(), reporter.changed.capacity(), behind)
    };
    let mut run = |reporter: &mut Reporter| {
        let mut places = BTreeSet::new();
        for round in 0..500 {
            (0..64).for_each(|number| books.count((64 * round + number) % 4000, 1));
            reporter.report(&mut books);
            places.insert(reader.look().interfaces.capacity());
        }
        places
    };
    run(&mut reporter);
    let before = sizes(&reporter);
    let places = run(&mut reporter);
    assert_eq!(sizes(&reporter), before);
    assert_eq!(places, run(&mut reporter));
}

#[test]
fn all_events_come_in_their_order_and_those_beyond_the_bounds_are_counted() {
    let mut books = Books::default();
    let (mut reporter, mut reader) = begin();
    let (interface, text) = ("if0".to_string(), "gone".to_string());
    books.news.push(InterfaceEvent { interface, state: InterfaceState::Gone, text });
    books.warnings.push("first".to_string());
    reporter.report(&mut books);
    let (news, forgotten) = reader.news();
    assert!(matches!(&news[..], [WorkerNews::Interface(_), WorkerNews::Warning(_)]), "{news:?}");
    assert_eq!((forgotten, reader.news().0.len()), (0, 0), "told once");

    // Nobody reads: the queue keeps the oldest, the worker the newest.
    let sent = QUEUE_SLOTS + UNREAD_MAX + 5;
    let numbers = |news: Vec<WorkerNews>| {
        let number = |news| match news {
            WorkerNews::Warning(text) => text.parse::<usize>().expect("a number"),
            WorkerNews::Interface(news) => panic!("{news:?}"),
        };
        news.into_iter().map(number).collect::<Vec<_>>()
    };
    for number in 0..sent {
        books.warnings.push(number.to_string());
        reporter.report(&mut books);
    }
    let (news, forgotten) = reader.news();
    assert_eq!((numbers(news), forgotten), ((0..QUEUE_SLOTS).collect(), 5));
    reporter.report(&mut books);
    let (news, forgotten) = reader.news();
    let from = QUEUE_SLOTS + 5;
    assert_eq!((numbers(news), forgotten), ((from..from + QUEUE_SLOTS).collect(), 0));

    // What is left at the end comes behind all that is in the queue.
    reporter.report(&mut books);
    reporter.end(None);
    let (news, forgotten) = reader.news();
    assert_eq!((numbers(news), forgotten), ((from + QUEUE_SLOTS..sent).collect(), 0));
    assert!(reader.news().0.is_empty());
}

#[test]
fn one_worker_one_reader_no_report_is_torn() {
    const REPORTS: u64 = 30_000;
    let (mut reporter, mut reader) = begin();
    let sent = AtomicU64::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut books = Books::with_interfaces(300);
            for round in 0..REPORTS as usize {
                (0..16).for_each(|number| books.count((17 * round + 31 * number) % 300, 1));
                if round % 7 == 0 {
                    books.rename(round % 300, &format!("r{round}"));
                    books.warnings.push(round.to_string());
                    sent.fetch_add(1, Ordering::Relaxed);
                }
                reporter.report(&mut books);
            }
            reporter.end(Some(failure()));
        });
        let (mut last, mut told, mut newest) = (0, 0, -1);
        loop {
            let look = reader.look();
            assert!(is_whole(&look), "torn");
            assert!(look.counters.received >= last, "older than the look before");
            last = look.counters.received;
            let ended = look.failure.is_some();
            drop(look);
            let (news, forgotten) = reader.news();
            for news in news {
                let WorkerNews::Warning(text) = news else { panic!("{news:?}") };
                let number = text.parse::<i64>().expect("a number");
                assert!(number > newest, "out of order");
                newest = number;
                told += 1;
            }
            told += forgotten;
            if ended {
                break;
            }
        }
        assert_eq!(last, 16 * REPORTS);
        assert_eq!(told, sent.load(Ordering::Relaxed));
    });
}

/// What a test does next.
#[derive(Clone, Debug)]
enum Step {
    Meet(usize),
    Count(usize),
    Rename(usize),
    Report,
    /// A look that is held until the next one.
    Look,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (1..300usize).prop_map(Step::Meet),
        (0..1000usize).prop_map(Step::Count),
        (0..1000usize).prop_map(Step::Rename),
        Just(Step::Report),
        Just(Step::Report),
        Just(Step::Look),
    ]
}

proptest! {
    /// Each look is at one of the states that were reported, none older than the one before; the last one is
    /// at the last state.
    #[test]
    fn a_look_shows_one_of_the_states_that_were_reported(steps in proptest::collection::vec(step(), 0..200)) {
        let mut books = Books::default();
        let (mut reporter, mut reader) = begin();
        let mut states = vec![(SourceCounters::default(), Vec::new())];
        let mut seen = 0;
        for (at, step) in steps.into_iter().enumerate() {
            let interfaces = books.entries.len();
            match step {
                Step::Meet(more) => (0..more).for_each(|_| books.meet()),
                Step::Count(number) if interfaces > 0 => books.count(number % interfaces, 1 + at as u64),
                Step::Rename(number) if interfaces > 0 => books.rename(number % interfaces, &format!("r{at}")),
                Step::Count(_) | Step::Rename(_) => {}
                Step::Report => {
                    reporter.report(&mut books);
                    states.push((books.counters, books.entries.clone()));
                }
                Step::Look => {
                    let look = reader.look();
                    let is_it = |(counters, entries): &(SourceCounters, Vec<InterfaceCounters>)| {
                        *counters == look.counters && *entries == look.interfaces
                    };
                    let found = states[seen..].iter().position(is_it);
                    prop_assert!(found.is_some(), "no state that was reported since the look before");
                    seen += found.unwrap_or(0);
                }
            }
        }
        reporter.report(&mut books);
        reporter.end(None);
        let look = reader.look();
        prop_assert_eq!(look.counters, books.counters);
        prop_assert!(look.interfaces == books.entries);
    }
}
