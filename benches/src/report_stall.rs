//! `report_stall_us`: what a worker spends on one report while its readers never pause.
//!
//! ```text
//!  worker: 64 of 4000 interfaces have changed ──► report, its own processor time ──► the next one
//!  main thread: look, then draw status, log or summary from it, in turn, again and again
//! ```
//! Two rows: the same 64 in each report, as of a source whose sockets stay where they are; and 64 others in
//! each, which is more than any source does: no place then is up to date when the worker gets it back. The
//! bar is held against the worse, by the median of its rounds. A report's time is the smaller of its processor
//! time and the time that passed: an interrupt that comes while one clock is read is in that one alone. Reports
//! in which the thread had to leave its processor, or in which the timer's tick came, are counted apart: their
//! times have the scheduler's and the interrupt's work in them.

use crate::clocks::{cpu_ns, preemptions, tick_ns};
use crate::figures::{median, percentile};
use crate::record::{Bar, Limit, Record, Row};
use scope_engine::report::{self, ReportReader, Reporter, WorkerNews};
use scope_engine::status::reported;
use scope_engine::{InterfaceStatus, SourceStatus, Status, Summary};
use scope_packet::Sink;
use scope_source::{InterfaceCounters, Polled, Source, SourceCounters, SourceError, Timing};
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const NAME: &str = "report_stall_us";
const INTERFACES: usize = 4000;
/// As many as a source has sockets at most.
const CHANGING: usize = 64;
/// So long is reported before anything is measured: all places then have all interfaces.
const WARM_UP: Duration = Duration::from_millis(100);
/// There is an event in each so-manieth report.
const EVENT_EVERY: usize = 1000;
/// Fewer looks than this in a round say nothing of readers.
const LOOKS_MIN: u64 = 20;

/// Which interfaces change.
#[derive(Clone, Copy, PartialEq)]
enum Changes {
    Same,
    Others,
}

/// One row's figures, round by round.
struct Figures {
    changes: Changes,
    p50: Row,
    p999: Row,
    longest: Row,
    /// Those that were interrupted included.
    p999_all: Row,
    preempted: Row,
    ticked: Row,
}

/// Both rows.
pub struct ReportStall {
    rows: [Figures; 2],
    looks: Row,
    faults: Vec<String>,
}

impl ReportStall {
    /// No round is run yet.
    pub fn new() -> ReportStall {
        let row = |what: String, unit| Row { bar: NAME, what, unit, rounds: Vec::new(), faults: Vec::new() };
        let figures = |changes, what: &str| Figures {
            changes,
            p50: row(format!("{what}: p50"), "us"),
            p999: row(format!("{what}: p99.9"), "us"),
            longest: row(format!("{what}: longest"), "us"),
            p999_all: row(format!("{what}: p99.9 with those interrupted"), "us"),
            preempted: row(format!("{what}: preempted"), "reports"),
            ticked: row(format!("{what}: with a tick inside"), "reports"),
        };
        let rows = [(Changes::Same, "the same 64 of 4000"), (Changes::Others, "64 others each time")];
        ReportStall {
            rows: rows.map(|(changes, what)| figures(changes, what)),
            looks: row("looks of the readers".to_string(), "looks/s"),
            faults: Vec::new(),
        }
    }

    /// Each row for `span`.
    pub fn round(&mut self, number: usize, span: Duration) {
        for figures in &mut self.rows {
            match measure(figures.changes, span) {
                Ok((Worked { times_us, preempted_us, ticked_us, .. }, looks)) => {
                    figures.preempted.rounds.push(preempted_us.len() as f64);
                    figures.ticked.rounds.push(ticked_us.len() as f64);
                    let all_us = [&times_us[..], &preempted_us[..], &ticked_us[..]].concat();
                    figures.p999_all.rounds.extend(percentile(&all_us, 99.9));
                    figures.p50.rounds.extend(percentile(&times_us, 50.0));
                    figures.p999.rounds.extend(percentile(&times_us, 99.9));
                    figures.longest.rounds.extend(percentile(&times_us, 100.0));
                    self.looks.rounds.push(looks as f64 / span.as_secs_f64());
                }
                Err(fault) => self.faults.push(format!("round {}: {fault}", number + 1)),
            }
        }
    }

    /// Adds the rows and the bar: the median of the rounds' 99.9th percentiles.
    pub fn finish(self, record: &mut Record) {
        let ReportStall { rows, mut looks, faults } = self;
        let worst = rows.iter().filter_map(|figures| median(&figures.p999.rounds)).max_by(f64::total_cmp);
        looks.faults = faults.clone();
        for Figures { p50, p999, longest, p999_all, preempted, ticked, .. } in rows {
            record.rows.extend([p50, p999, longest, p999_all, preempted, ticked]);
        }
        record.rows.push(looks);
        record.bars.push(Bar { name: NAME, value: worst, limit: Limit::AtMost(20.0), faults });
    }
}

/// What the worker did, and how often was looked meanwhile.
fn measure(changes: Changes, span: Duration) -> Result<(Worked, u64), String> {
    let (reporter, reader) = report::begin();
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let worker = scope.spawn(|| {
            let worked = work(reporter, changes, span);
            ended.store(true, Ordering::Release);
            worked
        });
        let seen = read(reader, &ended);
        let worked = worker.join().map_err(|_| "the worker failed".to_string())?;
        let seen = seen?;
        if seen.last != worked.counters {
            return Err(format!("the last look shows {:?} instead of {:?}", seen.last, worked.counters));
        }
        if seen.events != worked.events {
            return Err(format!("{} events of {} came", seen.events, worked.events));
        }
        if seen.looks < LOOKS_MIN {
            return Err(format!("only {} looks: the readers had no processor", seen.looks));
        }
        Ok((worked, seen.looks))
    })
}

/// What a worker did.
struct Worked {
    /// Processor time of each report that nothing interrupted.
    times_us: Vec<f64>,
    /// The same of those in which the thread had to leave its processor.
    preempted_us: Vec<f64>,
    /// The same of those in which the timer's tick came.
    ticked_us: Vec<f64>,
    counters: SourceCounters,
    events: u64,
}

/// Reports for `span`.
fn work(mut reporter: Reporter, changes: Changes, span: Duration) -> Worked {
    // That all are new is no report of the row.
    let mut books = Books { known: vec![SourceCounters::default(); INTERFACES], ..Books::default() };
    let begun = Instant::now();
    let (mut times_us, mut preempted_us, mut ticked_us) = (Vec::new(), Vec::new(), Vec::new());
    let (mut events, mut number) = (0, 0);
    loop {
        let elapsed = begun.elapsed();
        if elapsed >= WARM_UP + span {
            break;
        }
        number += 1;
        books.changed.clear();
        for at in 0..CHANGING {
            let first = if changes == Changes::Same { 0 } else { number * CHANGING };
            books.count((first + at) * 61 % INTERFACES);
        }
        if number.is_multiple_of(EVENT_EVERY) {
            books.warnings.push(events.to_string());
            events += 1;
        }
        let (left, tick) = (preemptions(), tick_ns());
        let before_ns = cpu_ns();
        let began = Instant::now();
        reporter.report(&mut books);
        let wall_us = began.elapsed().as_nanos() as f64 / 1000.0;
        let spent_us = wall_us.min((cpu_ns() - before_ns) as f64 / 1000.0);
        let has_ticked = tick_ns() != tick;
        let times = if preemptions() != left {
            &mut preempted_us
        } else if has_ticked {
            &mut ticked_us
        } else {
            &mut times_us
        };
        if elapsed >= WARM_UP {
            times.push(spent_us);
        }
    }
    reporter.end(None);
    Worked { times_us, preempted_us, ticked_us, counters: books.counters, events }
}

/// What readers saw.
struct Seen {
    looks: u64,
    last: SourceCounters,
    events: u64,
}

/// Looks and draws until the worker has ended, and once more.
fn read(reader: ReportReader, ended: &AtomicBool) -> Result<Seen, String> {
    let (names, mut readers) = (["synthetic".to_string()], [reader]);
    let mut seen = Seen { looks: 0, last: SourceCounters::default(), events: 0 };
    loop {
        let is_last = ended.load(Ordering::Acquire);
        let (sources, interfaces) = reported(&names, &mut readers);
        seen.last = check(&sources, &interfaces, &seen.last)?;
        draw(seen.looks, sources, interfaces);
        let (news, forgotten) = readers[0].news();
        for news in news {
            match news {
                WorkerNews::Warning(text) if text == seen.events.to_string() => seen.events += 1,
                news => return Err(format!("event {} came as {news:?}", seen.events)),
            }
        }
        seen.events += forgotten;
        seen.looks += 1;
        if is_last {
            return Ok(seen);
        }
    }
}

/// Draws what is asked of a look, each in its turn.
fn draw(look: u64, sources: Vec<SourceStatus>, interfaces: Vec<InterfaceStatus>) {
    let of_summary = |sources: Vec<SourceStatus>, interfaces| Summary {
        sources: sources.into_iter().map(|entry| (entry.source, entry.counters)).collect(),
        interfaces,
        ..Summary::default()
    };
    match look % 3 {
        0 => drop(black_box(Status { sources, interfaces, ..Status::default() })),
        // The log has the sources alone.
        1 => drop(black_box(of_summary(sources, Vec::new()).to_json().to_string())),
        _ => drop(black_box(of_summary(sources, interfaces).to_json().to_string())),
    }
}

/// Whether a look is at one moment of the worker, and none before `last`; its sums.
fn check(
    sources: &[SourceStatus],
    interfaces: &[InterfaceStatus],
    last: &SourceCounters,
) -> Result<SourceCounters, String> {
    let mut sum = SourceCounters::default();
    for entry in interfaces {
        let SourceCounters { offered, received, kernel_dropped, altered, .. } = entry.counters;
        if offered != received + kernel_dropped || received != altered.long {
            return Err(format!("an entry is torn: {entry:?}"));
        }
        sum.add(&entry.counters);
    }
    let told = sources.first().map(|source| source.counters).unwrap_or_default();
    if sum != told {
        return Err(format!("a look is torn: the interfaces have {sum:?}, the source {told:?}"));
    }
    if told.received < last.received {
        return Err(format!("a look is older than the one before: {told:?}, {last:?}"));
    }
    Ok(told)
}

/// A source that only counts, as that of live capture does.
#[derive(Default)]
struct Books {
    counters: SourceCounters,
    known: Vec<SourceCounters>,
    changed: Vec<usize>,
    warnings: Vec<String>,
}

impl Books {
    fn count(&mut self, number: usize) {
        for counters in [&mut self.known[number], &mut self.counters] {
            counters.offered += 3;
            counters.received += 2;
            counters.kernel_dropped += 1;
            counters.altered.long += 2;
        }
        self.changed.push(number);
    }
}

impl Source for Books {
    fn name(&self) -> &str {
        "synthetic"
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
        for number in into.len()..self.known.len() {
            let (name, counters) = (Arc::<str>::from(format!("interface{number}")), self.known[number]);
            into.push(InterfaceCounters { interface: name.clone(), called: name, counters });
        }
        for &number in &self.changed {
            into[number].counters = self.known[number];
            changed.push(number);
        }
    }

    fn warnings(&mut self) -> Vec<String> {
        std::mem::take(&mut self.warnings)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_sees_all_that_was_published_and_a_torn_look_is_a_fault() {
        for changes in [Changes::Same, Changes::Others] {
            // On a machine of one core the readers may hardly run.
            if let Err(fault) = measure(changes, Duration::from_millis(200)) {
                assert!(fault.contains("had no processor"), "{fault}");
            }
        }
        let counters =
            SourceCounters { offered: 3, received: 2, kernel_dropped: 1, ..SourceCounters::default() };
        let source = SourceStatus { counters, ..SourceStatus::default() };
        let fault = check(&[source], &[], &SourceCounters::default()).unwrap_err();
        assert!(fault.contains("torn"), "{fault}");
    }
}
