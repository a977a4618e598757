//! What a run prints while it goes, on standard error: on a terminal rewritten in place, otherwise now and
//! then a plain line.

use crate::beside::{Beside, BesideHandle};
use crate::speech::{self, Level, say};
use crate::words;
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use scope_door::{Door, Settings};
use scope_engine::control::Unsent;
use scope_engine::service::Service;
use scope_engine::socket::Socket;
use scope_engine::{Control, DumpSummary, Opening, Order, Refusal, Status, TriggerStatus, Watch};
use scope_events::event;
use scope_fault::Fault;
use scope_rights::Rights;
use scope_ring::RingMemory;
use scope_spelling::printable::printable;
use serde_json::{Map, Value, json};
use std::ffi::OsString;
use std::io::{IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Where standard error is no terminal, a status line comes so often.
const PLAIN_EVERY_S: f64 = 60.0;
/// And the progress of the ring's memory so often.
const PROGRESS_EVERY: Duration = Duration::from_secs(2);
/// Lines of the status on a terminal at most; more workers and dumps are not shown.
const LINES_MAX: usize = 24;

/// Lines on standard error that may be rewritten.
pub struct Teller {
    verbose: bool,
    /// What is said when capture begins: how to fire, and how to stop.
    ready: String,
    /// Rewrites in place; `None` where standard error is no terminal.
    bars: Option<MultiProgress>,
    /// Whoever started this process as a service.
    service: Option<Service>,
    started: AtomicBool,
    shown: Mutex<Shown>,
    /// How the door is to be, until the run can be asked.
    doorway: Mutex<Option<(Arc<Control>, Settings)>>,
    door: Mutex<Option<Door>>,
    /// The words of the door to the network that the run begins, and how that stands.
    beside: Option<(Vec<OsString>, BesideHandle, Arc<Control>)>,
    begun: Mutex<Option<Beside>>,
}

/// What stands on the terminal, and when something was told last.
struct Shown {
    progress: Option<ProgressBar>,
    lines: Vec<ProgressBar>,
    progress_told: Instant,
    /// Seconds of the run at the next plain status line.
    next_plain_s: f64,
}

/// Sends an order that nobody waits for. What comes of it the run says itself; here only what it didn't take, behind
/// `place`. A run that has ended refuses by having ended.
pub fn send(control: &Control, order: Order, place: &str) {
    if let Err(Unsent { refusal: refusal @ Refusal::Busy, .. }) = control.send(order) {
        say(Level::Warning, &format!("{place}: {refusal}"));
    }
}

impl Teller {
    /// Tells a line for each worker and dump, too, if `verbose`; `ready` when capture begins.
    pub fn new(verbose: bool, ready: String) -> Teller {
        let shown = Shown {
            progress: None,
            lines: Vec::new(),
            progress_told: Instant::now(),
            next_plain_s: PLAIN_EVERY_S,
        };
        let rewrites = std::io::stderr().is_terminal() && !speech::is_json() && !speech::is_quiet();
        let bars = rewrites.then(MultiProgress::new);
        let service = Service::from_environment();
        if let Err(error) = &service {
            say(Level::Warning, &format!("NOTIFY_SOCKET: {error}: the service manager gets no reports"));
        }
        let service = service.ok().flatten();
        let (started, shown) = (AtomicBool::new(false), Mutex::new(shown));
        Teller {
            verbose,
            ready,
            bars,
            service,
            started,
            shown,
            doorway: Mutex::default(),
            door: Mutex::default(),
            beside: None,
            begun: Mutex::default(),
        }
    }

    /// The same, which begins a door to the network with these words; that it ended is noted in the run's log.
    pub fn with_beside(
        self,
        words: Option<Vec<OsString>>,
        handle: &BesideHandle,
        control: &Arc<Control>,
    ) -> Teller {
        Teller { beside: words.map(|words| (words, handle.clone(), control.clone())), ..self }
    }

    /// The same, which others can ask at the run's control socket, if it has one.
    pub fn with_door(self, control: &Arc<Control>, settings: Settings) -> Teller {
        Teller { doorway: Mutex::new(Some((control.clone(), settings))), ..self }
    }

    /// Nobody is let in any more; answers that are under way have a moment.
    pub fn close_door(&self) {
        drop(self.begun.lock().unwrap_or_else(PoisonError::into_inner).take());
        drop(self.door().take());
    }

    fn door(&self) -> MutexGuard<'_, Option<Door>> {
        self.door.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether capture has begun.
    pub fn has_started(&self) -> bool {
        self.started.load(Ordering::Relaxed)
    }

    /// Takes the rewritten lines away.
    pub fn clear(&self) {
        let mut shown = self.shown();
        for line in shown.lines.drain(..) {
            line.finish_and_clear();
        }
        if let Some(progress) = shown.progress.take() {
            progress.finish_and_clear();
        }
    }

    /// One line; what is rewritten stays below it.
    fn tell(&self, level: Level, line: &str) {
        let line = printable(line); // a line is one line, whoever wrote parts of it
        match &self.bars {
            Some(bars) => bars.suspend(|| say(level, &line)),
            None => say(level, &line),
        }
    }

    fn shown(&self) -> MutexGuard<'_, Shown> {
        self.shown.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Rewrites the status in place, one bar per line.
    fn rewrite(&self, bars: &MultiProgress, lines: Vec<String>) {
        let mut shown = self.shown();
        while shown.lines.len() > lines.len() {
            if let Some(surplus) = shown.lines.pop() {
                surplus.finish_and_clear();
                bars.remove(&surplus);
            }
        }
        while shown.lines.len() < lines.len() {
            let bar = ProgressBar::new_spinner();
            if let Ok(style) = ProgressStyle::with_template("{wide_msg}") {
                bar.set_style(style);
            }
            shown.lines.push(bars.add(bar));
        }
        for (bar, line) in shown.lines.iter().zip(lines) {
            bar.set_message(printable(&line).into_owned());
            bar.tick();
        }
    }
}

impl Watch for Teller {
    fn prefault(&self, done: u64, total: u64) {
        let mut shown = self.shown();
        let Some(bars) = &self.bars else {
            if shown.progress_told.elapsed() >= PROGRESS_EVERY && done < total {
                shown.progress_told = Instant::now();
                say(Level::Info, &format!("ring: {} of {} ready", words::size(done), words::size(total)));
            }
            return;
        };
        let progress = shown.progress.get_or_insert_with(|| {
            let bar = bars.add(ProgressBar::new(total));
            if let Ok(style) = ProgressStyle::with_template(
                "ring: {binary_bytes} of {binary_total_bytes} ready {wide_bar} {eta}",
            ) {
                bar.set_style(style);
            }
            bar
        });
        progress.set_position(done);
        if done >= total {
            progress.finish_and_clear();
            shown.progress = None;
        }
    }

    fn started(&self, memory: &RingMemory, rights: Option<&Rights>) {
        self.started.store(true, Ordering::Relaxed);
        self.clear();
        self.note(&words::memory(memory));
        if let Some(rights) = rights {
            self.note(&rights.to_string());
        }
        self.note(&self.ready);
        if let Some(service) = &self.service {
            service.ready();
        }
    }

    fn bound(&self, socket: &Socket) -> Result<(), Fault> {
        let Some((words, handle, control)) = &self.beside else { return Ok(()) };
        let control = control.clone();
        let died = move || {
            say(Level::Error, "wirescope: the door to the network has ended; the run goes on without it");
            send(&control, Order::NoteDoorEnded, "the end of the door: not noted in the log");
        };
        let begun = handle.begin(socket.path(), words, died)?;
        *self.begun.lock().unwrap_or_else(PoisonError::into_inner) = Some(begun);
        Ok(())
    }

    fn opening(&self, opening: Opening<'_>) {
        let doorway = self.doorway.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some((control, settings)) = doorway else { return };
        match Door::open(&opening, &control, settings) {
            Ok(door) => *self.door() = Some(door),
            Err(error) => {
                self.warning(&format!("{}: can't be listened at: {error}", opening.socket.path().display()))
            }
        }
    }

    fn facts(&self, facts: &event::Status) {
        self.door().iter().for_each(|door| door.facts(facts));
    }

    fn reloading(&self) {
        if let Some(service) = &self.service {
            service.reloading();
        }
    }

    fn reloaded(&self) {
        if let Some(service) = &self.service {
            service.ready();
        }
    }

    fn stopping(&self) {
        self.door().iter().for_each(Door::stopping);
        if let Some(service) = &self.service {
            service.stopping();
        }
    }

    fn selftest(&self, facts: &serde_json::Value) {
        let _ = writeln!(std::io::stdout(), "{facts}");
    }

    fn status(&self, status: &Status) {
        self.door().iter().for_each(|door| door.status(status));
        let line = words::status(status);
        if let Some(service) = &self.service {
            service.status(status, &line);
        }
        let details = if self.verbose { words::details(status) } else { Vec::new() };
        if let Some(bars) = &self.bars {
            let lines = words::status_lines(status).into_iter().chain(details).take(LINES_MAX);
            return self.rewrite(bars, lines.collect());
        }
        let lines: Vec<String> = [line].into_iter().chain(details).collect();
        let mut shown = self.shown();
        if status.elapsed_s + 0.5 < shown.next_plain_s {
            return;
        }
        shown.next_plain_s += PLAIN_EVERY_S;
        if speech::is_json() {
            return speech::say_event(Level::Info, "status", &lines.join("\n"), facts(status));
        }
        for line in &lines {
            say(Level::Info, line);
        }
    }

    fn closing(&self) {
        self.door().iter().for_each(Door::last_orders);
    }

    fn triggers(&self, triggers: Vec<TriggerStatus>) {
        self.door().iter().for_each(|door| door.triggers(triggers.clone()));
    }

    fn note(&self, line: &str) {
        self.tell(Level::Info, line);
    }

    fn warning(&self, line: &str) {
        self.tell(Level::Warning, line);
    }

    fn dump(&self, report: &DumpSummary) {
        self.door().iter().for_each(|door| door.dump(report));
        let line = words::dump(report);
        let level = if report.has_failed() { Level::Warning } else { Level::Info };
        if speech::is_json() {
            let facts = Map::from_iter([(
                "dump".to_string(),
                scope_events::Fact::write(&scope_engine::summary::dump(report)),
            )]);
            return speech::say_event(level, "dump", &line, facts);
        }
        self.tell(level, &line);
        if self.verbose {
            self.note(&words::dump_details(report));
        }
    }
}

/// The figures of a status.
fn facts(status: &Status) -> Map<String, Value> {
    let dropped: Map<String, Value> = status
        .counts
        .dropped
        .iter()
        .map(|(reason, packets)| (reason.name().to_string(), packets.into()))
        .collect();
    let facts = json!({
        "elapsed_s": status.elapsed_s,
        "packets_per_s": status.packets_per_s,
        "bits_per_s": status.bits_per_s,
        "packets": status.counts.received_packets,
        "ring_ns": status.depth_ns,
        "dropped": dropped,
        "hits": status.hits,
        "dumps_open": status.dumps_open,
        "dumps_done": status.dumps_done,
        "dump_bytes": status.space.map(|space| space.used),
        "no_space": status.space.is_some_and(|space| space.full),
    });
    if let Value::Object(facts) = facts { facts } else { Map::new() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use scope_ring::WorkerCounts;

    #[test]
    fn the_figures_of_a_status_say_how_a_run_goes_and_whether_there_is_space() {
        let space = scope_dump::budget::Usage { used: 5, full: true, ..Default::default() };
        let counts = WorkerCounts { received_packets: 7, ..WorkerCounts::default() };
        let facts =
            facts(&Status { counts, hits: 2, dumps_open: 1, space: Some(space), ..Status::default() });
        assert_eq!(
            (&facts["packets"], &facts["hits"], &facts["dumps_open"]),
            (&7.into(), &2.into(), &1.into())
        );
        assert_eq!((&facts["dump_bytes"], &facts["no_space"]), (&5.into(), &true.into()));
        assert_eq!(facts["dropped"]["kernel"], 0);
        assert_eq!(super::facts(&Status::default())["dump_bytes"], Value::Null);
    }
}
