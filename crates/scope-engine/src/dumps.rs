//! From a fire to the finished file: numbers, pins, one thread per dump, reports.

use crate::dump_reports::DumpReports;
use crate::exec::Exec;
use crate::summary;
use crate::threads::Threads;
use scope_dump::{
    Answerer, Buffered, DumpOrder, DumpOutput, DumpReport, Evidence, FirstPins, HitPacket, Keep, Past,
    Progress, Scans, Spared, cut,
};
use scope_events::Events;
use scope_events::event::{Warning, WarningKind};
use scope_filter::{Filter, FilterEngine};
use scope_packet::{Clock, Gap, GapReason, LinkType, Moment};
use scope_ring::{Interfaces, Ring};
use scope_trigger::{Fire, Key, Occurrence, Places, ScriptFile, Trigger, Verdict, Why, Window};
use std::borrow::Cow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

/// What all dumps of a run share.
pub struct DumpSettings {
    /// Where the files go.
    pub output: Arc<DumpOutput>,
    /// What runs after each.
    pub exec: Option<Arc<Exec>>,
    /// See [`DumpOrder::patience`].
    pub patience: Option<Duration>,
    /// What evaluates dump filters.
    pub filter_engine: FilterEngine,
    /// The stores that the run writes.
    pub past: Option<Arc<Past>>,
    /// What time it is.
    pub clock: Arc<dyn Clock>,
    /// Where their threads come from.
    pub threads: Arc<dyn Threads>,
    /// The run's scripts, if it has some.
    pub scripts: Option<Arc<dyn DumpScripts>>,
}

/// The packet that fired a dump, copied for a script.
#[derive(Clone, Debug)]
pub struct Fired {
    /// Link type.
    pub link_type: LinkType,
    /// Its captured bytes.
    pub data: Vec<u8>,
    /// Bytes on the wire.
    pub original_len: u32,
    /// Capture time, ns.
    pub time_ns: i64,
}

/// Scripts, as dumps need them. Called from their own threads.
pub trait DumpScripts: Send + Sync {
    /// What selects for a dump of this trigger, which the packet fired, if one did.
    fn keep(&self, trigger: &str, script: &ScriptFile, fired: Option<Fired>) -> Box<dyn Keep>;
    /// A dump is written.
    fn dumped(&self, report: &DumpReport);
}

/// A dump that is being made.
pub struct OpenDump {
    /// Number in the run.
    pub id: u64,
    /// Trigger.
    pub trigger: String,
    /// Its window.
    pub window: Arc<Window>,
    /// How far it is.
    pub progress: Arc<Progress>,
    /// When it began, by the clock that is never set.
    begun: Duration,
}

/// All dumps of a run.
pub struct Dumps {
    ring: Arc<Ring>,
    places: Arc<Places>,
    events: Arc<Events>,
    settings: DumpSettings,
    scans: Arc<Scans>,
    evidence: Arc<Evidence>,
    started: AtomicU64,
    /// The run ends after so many dumps; `u64::MAX`: after none.
    exit_after: AtomicU64,
    state: Mutex<State>,
    finished: Condvar,
}

#[derive(Default)]
struct State {
    open: Vec<Arc<OpenDump>>,
    reports: DumpReports,
}

/// What came of an occurrence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The word under which it is counted.
    pub verdict: &'static str,
    /// The number of the dump that it started.
    pub dump: Option<u64>,
}

impl Dumps {
    /// Nothing has fired yet. The run ends after `exit_after` dumps.
    pub fn new(
        ring: &Arc<Ring>,
        places: &Arc<Places>,
        events: &Arc<Events>,
        scans: &Arc<Scans>,
        settings: DumpSettings,
        exit_after: Option<u64>,
    ) -> Arc<Dumps> {
        Arc::new(Dumps {
            ring: ring.clone(),
            places: places.clone(),
            events: events.clone(),
            settings,
            scans: scans.clone(),
            evidence: Arc::default(),
            started: AtomicU64::new(0),
            exit_after: AtomicU64::new(exit_after.unwrap_or(u64::MAX)),
            state: Mutex::default(),
            finished: Condvar::new(),
        })
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().expect("no panic while held")
    }

    /// What answers questions for the packets of the run.
    pub fn answerer(&self) -> Answerer {
        Answerer {
            ring: self.ring.clone(),
            past: self.settings.past.clone(),
            scans: self.scans.clone(),
            clock: self.settings.clock.clone(),
            engine: self.settings.filter_engine,
            patience: self.settings.patience,
        }
    }

    /// The places that dumps take.
    pub fn places(&self) -> &Arc<Places> {
        &self.places
    }

    /// What knows the interfaces of their packets.
    pub fn interfaces(&self) -> &dyn Interfaces {
        self.settings.past.as_ref().map_or(&*self.ring as &dyn Interfaces, |past| &**past)
    }

    /// What dumps say beside their packets.
    pub fn evidence(&self) -> &Evidence {
        &self.evidence
    }

    /// The same, to be shared.
    pub fn shared_evidence(&self) -> &Arc<Evidence> {
        &self.evidence
    }

    /// What dumps have spared each other, and what the summaries have spared them.
    pub fn spared(&self) -> Spared {
        self.scans.spared()
    }

    /// How the buffers of their files stand.
    pub fn buffered(&self) -> Buffered {
        self.scans.buffered()
    }

    /// Lets `trigger` decide on an occurrence, whatever its condition: a dump begins, or it is logged why
    /// none does. `packet` is where the occurrence's packet stands, if it could be stored. The caller's next
    /// claim comes afterwards.
    pub fn occurred(
        self: &Arc<Self>,
        trigger: &Trigger,
        occurrence: &Occurrence<'_>,
        packet: Option<HitPacket>,
    ) -> Outcome {
        self.decided(trigger, occurrence, packet, None)
    }

    /// The same; of a dump's packets only those are kept that match `bound`, too.
    fn decided(
        self: &Arc<Self>,
        trigger: &Trigger,
        occurrence: &Occurrence<'_>,
        packet: Option<HitPacket>,
        bound: Option<&Filter>,
    ) -> Outcome {
        let verdict = trigger.occurred(occurrence, &self.places);
        let (name, word) = (&trigger.config().name, verdict.name());
        if let Verdict::Fired(mut fire) = verdict {
            if let Some(bound) = bound {
                fire.filter = fire.filter.and(bound);
            }
            return Outcome { verdict: word, dump: Some(self.start(trigger, occurrence, packet, fire)) };
        }
        let detail = match (occurrence.why, verdict.detail()) {
            (Why::Packet { .. }, detail) => detail.map(Cow::Borrowed),
            (why, None) => Some(why.to_string().into()),
            (why, Some(detail)) => Some(format!("{why}: {detail}").into()),
        };
        self.events.hit(name, occurrence.at.time_ns, word, detail.as_deref());
        let dump = if let Verdict::Extended { dump } = verdict { dump } else { None };
        Outcome { verdict: word, dump }
    }

    /// The same of an order to fire `trigger` at `now`; `note` says why, if it says anything. `bound` is a second filter
    /// that a dump's packets have to match.
    pub fn ordered(
        self: &Arc<Self>,
        trigger: &Trigger,
        now: Moment,
        note: &str,
        bound: Option<&Filter>,
    ) -> Outcome {
        let link_types = self.link_types();
        let ordered = trigger.config().condition.ordered(now, &link_types);
        let why = if note.is_empty() { ordered.why } else { Why::Noted(note) };
        self.decided(trigger, &Occurrence { why, ..ordered }, None, bound)
    }

    /// The same of a program that tells of something, with the dump filter that its values make (`None`: the trigger's
    /// own). Its holdoff holds off what has the same filter.
    pub(crate) fn told(
        self: &Arc<Self>,
        trigger: &Trigger,
        now: Moment,
        filter: Option<&str>,
        what: &str,
    ) -> Outcome {
        let link_types = self.link_types();
        let ordered = trigger.config().condition.ordered(now, &link_types);
        let told = Occurrence { why: Why::Told(what), key: Key::OfPacket, given: filter, ..ordered };
        self.occurred(trigger, &told, None)
    }

    /// Ends the window of an open dump where the run is by `now`; whether there is such a dump.
    pub(crate) fn end_window(&self, id: u64, now: Moment) -> bool {
        let open = self.lock().open.iter().find(|open| open.id == id).cloned();
        open.is_some_and(|open| open.window.end_at(now))
    }

    /// Link types that have come so far.
    fn link_types(&self) -> Vec<LinkType> {
        (0..self.ring.lanes()).map(|lane| self.ring.lane_info(lane).link_type).collect()
    }

    /// Begins a dump, and returns its number. What the window needs first is pinned here.
    fn start(
        self: &Arc<Self>,
        trigger: &Trigger,
        occurrence: &Occurrence<'_>,
        packet: Option<HitPacket>,
        fire: Fire,
    ) -> u64 {
        let (script, trigger) = (trigger.config().response.script.clone(), &trigger.config().name);
        let fired = script.as_ref().and_then(|_| fired(occurrence));
        let id = self.started.fetch_add(1, Ordering::Relaxed) + 1;
        // So many may share what dumps may hold: this one, and those that may still come.
        let rest = self.exit_after.load(Ordering::Relaxed).saturating_sub(id - 1).max(1);
        let holders_max = rest.min(self.places.max() as u64);
        fire.window.set_dump(id);
        let pins = FirstPins::take(&self.ring, fire.window.era(), fire.window.from_ns(), holders_max);
        self.scans.watch(&pins);
        let progress = Arc::new(Progress::default());
        let open = Arc::new(OpenDump {
            id,
            trigger: trigger.to_string(),
            window: fire.window.clone(),
            progress: progress.clone(),
            begun: self.settings.clock.monotonic(),
        });
        self.lock().open.push(open.clone());
        let order = DumpOrder {
            id,
            trigger: trigger.to_string(),
            why: occurrence.why.to_string(),
            hit: packet,
            time_ns: occurrence.at.time_ns,
            filter: fire.filter,
            filter_engine: self.settings.filter_engine,
            keep: None,
            window: fire.window,
            pins,
            output: self.settings.output.clone(),
            patience: self.settings.patience,
            progress,
            scans: self.scans.clone(),
            past: self.settings.past.clone(),
            clock: self.settings.clock.clone(),
            evidence: self.evidence.clone(),
        };
        let (dumps, window, failed) = (self.clone(), order.window.clone(), failed_report(&order));
        let (unwritten, unbegun) = (failed.clone(), open.clone());
        let place = fire.place;
        let work = move || {
            let guard = Finish { dumps: dumps.clone(), open, report: Some(failed) };
            let scripts = dumps.settings.scripts.as_ref().zip(script.as_ref());
            let keep = scripts.map(|(scripts, script)| scripts.keep(&order.trigger, script, fired));
            let report = cut(&dumps.ring, DumpOrder { keep, ..order });
            guard.with(report);
            drop(place);
        };
        if let Err(error) = self.settings.threads.spawn(format!("dump-{id}"), Box::new(work)) {
            // The closure is dropped with its guard not yet made: no hit extends a window that nobody reads.
            window.close();
            self.finish(
                &unbegun,
                DumpReport { error: Some(format!("no thread for the dump: {error}")), ..unwritten },
            );
        }
        id
    }

    fn finish(&self, open: &OpenDump, report: DumpReport) {
        let id = open.id;
        let took = self.settings.clock.monotonic().saturating_sub(open.begun);
        let report = DumpReport { took, ..report };
        if let Some(error) = &report.interpreted {
            let text =
                format!("dump {id} of {}: {error}: the interpreter evaluated its filter", report.trigger);
            self.events.log(Warning::of(WarningKind::Interpreter, text));
        }
        if let Some(why) = &report.gave_up {
            let text = format!(
                "dump {id} of {}: its script said nothing more, so it keeps everything from there on: {why}",
                report.trigger
            );
            self.events.log(Warning::from(text));
        }
        for error in &report.unread {
            self.events.log(Warning::from(format!("dump {id} of {}: of the store: {error}", report.trigger)));
        }
        self.events.log(summary::dump(&report));
        if let Some(spool) = &self.settings.output.spool {
            spool.add(&report);
        }
        if let Some(exec) = &self.settings.exec {
            exec.offer(&report);
        }
        if let Some(scripts) = &self.settings.scripts {
            scripts.dumped(&report);
        }
        let mut state = self.lock();
        state.open.retain(|open| open.id != id);
        state.reports.add(report);
        self.finished.notify_all();
    }

    /// How many dumps are being made; `None` where that isn't known without waiting.
    pub(crate) fn open_now(&self) -> Option<usize> {
        self.state.try_lock().ok().map(|state| state.open.len())
    }

    /// Dumps that are being made.
    pub fn open(&self) -> Vec<Arc<OpenDump>> {
        self.lock().open.clone()
    }

    /// Number of finished dumps.
    pub fn done(&self) -> u64 {
        self.lock().reports.totals().dumps
    }

    /// Reports that came since the last call.
    pub fn news(&self) -> Vec<DumpReport> {
        self.lock().reports.news()
    }

    /// Waits until no dump is being made any more, at most `limit`; whether that is so.
    pub fn wait(&self, limit: Duration) -> bool {
        let state = self.lock();
        let (state, _) = self
            .finished
            .wait_timeout_while(state, limit, |state| !state.open.is_empty())
            .expect("no panic while held");
        state.open.is_empty()
    }

    /// What became of them.
    pub fn reports(&self) -> DumpReports {
        self.lock().reports.clone()
    }

    /// Whether the run has all the dumps that it is to end after, and a worker at `clock` needn't go on for
    /// any of them.
    pub fn enough(&self, clock: Moment) -> bool {
        self.started.load(Ordering::Relaxed) >= self.exit_after.load(Ordering::Relaxed)
            && self.lock().open.iter().all(|dump| dump.window.end().plus(self.places.grace_ns()) < clock)
    }

    /// From now on at most `dumps_max` dumps at once; the run ends after `exit_after`, those of before
    /// included.
    pub fn set_limits(&self, dumps_max: usize, exit_after: Option<u64>) {
        self.places.set_limits(dumps_max, exit_after);
        self.exit_after.store(exit_after.unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// Whether all the dumps that the run is to end after are finished.
    pub fn all_done(&self) -> bool {
        self.done() >= self.exit_after.load(Ordering::Relaxed)
    }
}

/// A copy of the packet that fired.
fn fired(occurrence: &Occurrence<'_>) -> Option<Fired> {
    let packet = occurrence.packet?;
    let original_len = match occurrence.why {
        Why::Packet { bytes, .. } => bytes,
        _ => packet.data.len() as u32,
    };
    let (link_type, data) = (packet.link_type, packet.data.to_vec());
    Some(Fired { link_type, data, original_len, time_ns: occurrence.at.time_ns })
}

/// Of a dump that nobody writes: nothing of what was asked for was kept.
fn failed_report(order: &DumpOrder) -> DumpReport {
    let (from_ns, to_ns) = (order.window.from_ns(), order.window.to_ns());
    let (hits, hits_ns) = order.window.hits();
    let lost_min = order.hit.map_or(0, |_| 1); // the packet that fired belongs to it
    DumpReport {
        gaps: vec![Gap { from_ns, to_ns, reason: GapReason::Disk, lost_min, lost_max: None }],
        lost_min,
        lost_max: u64::MAX,
        missing: Some((from_ns, to_ns)),
        hits,
        hits_ns,
        to_stream: order.output.is_stream(),
        id: order.id,
        trigger: order.trigger.clone(),
        why: order.why.clone(),
        time_ns: order.time_ns,
        filter: order.filter.text().to_string(),
        asked: (from_ns, to_ns),
        from_ns,
        to_ns,
        error: Some("the dump's thread failed".to_string()),
        ..DumpReport::default()
    }
}

/// Reports a dump exactly once, also when its thread unwinds.
struct Finish {
    dumps: Arc<Dumps>,
    open: Arc<OpenDump>,
    report: Option<DumpReport>,
}

impl Finish {
    fn with(mut self, report: DumpReport) {
        self.report = Some(report);
    }
}

impl Drop for Finish {
    fn drop(&mut self) {
        if let Some(report) = self.report.take() {
            self.open.window.close();
            self.dumps.finish(&self.open, report);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::threads::Work;
    use scope_filter::{Filter, VlanRule};
    use scope_packet::SystemClock;
    use scope_ring::RingConfig;
    use scope_trigger::window::Extended;
    use scope_trigger::{Condition, Requester, Response, TriggerConfig};
    use std::io;
    use std::path::Path;

    /// No thread can be had.
    struct NoThreads;

    impl Threads for NoThreads {
        fn spawn(&self, _name: String, _work: Work) -> io::Result<()> {
            Err(io::ErrorKind::WouldBlock.into())
        }
    }

    /// Dumps for which no thread can be had, in a folder.
    fn dumps(folder: &Path, places: &Arc<Places>, events: &Arc<Events>) -> (Arc<Ring>, Arc<Dumps>) {
        let config = RingConfig {
            ring_bytes: 1 << 20,
            segment_bytes: Some(64 << 10),
            workers: 1,
            lanes: 1,
            run_id: [1; 16],
        };
        let ring = Ring::create(&config).unwrap();
        let settings = DumpSettings {
            output: DumpOutput::in_folder(folder).unwrap(),
            exec: None,
            patience: None,
            filter_engine: FilterEngine::Interpreter,
            past: None,
            clock: Arc::new(SystemClock::new()),
            threads: Arc::new(NoThreads),
            scripts: None,
        };
        let scans = Scans::new(&ring, None);
        let dumps = Dumps::new(&ring, places, events, &scans, settings, None);
        (ring, dumps)
    }

    fn by_hand() -> Trigger {
        let response =
            Response { template: None, script: None, before_ns: 5, after_ns: 0, vlan: VlanRule::Exact };
        Trigger::new(TriggerConfig {
            name: "manual".to_string(),
            condition: Condition::Hand,
            response,
            when: None,
            holdoff_ns: 0,
            holdoff_key: None,
            single: false,
            auto_ns: None,
        })
    }

    #[test]
    fn an_order_that_starts_no_dump_is_a_line_of_the_log_like_a_hit() {
        let folder = tempfile::tempdir().unwrap();
        let events =
            Events::open(&Arc::new(scope_folder::Folder::open(folder.path()).unwrap()), &[7; 16]).unwrap();
        let (places, events) = (Places::new(1, 0, None), Arc::new(events));
        places.watch_space(Arc::new(std::sync::atomic::AtomicBool::new(true)));
        let (_ring, dumps) = dumps(folder.path(), &places, &events);
        let hand = by_hand();
        let outcome = dumps.ordered(&hand, Moment::new(0, 1_000_000_000), "", None);
        assert_eq!((outcome, hand.counts().no_space), (Outcome { verdict: "no_space", dump: None }, 1));
        events.close().unwrap();
        let log = std::fs::read_to_string(folder.path().join(scope_events::EVENTS_FILE)).unwrap();
        let line: serde_json::Value = serde_json::from_str(log.trim_end()).unwrap();
        let facts = ["event", "trigger", "verdict", "detail"].map(|key| line[key].as_str().unwrap());
        assert_eq!(facts, ["hit", "manual", "no_space", "by hand"]);
    }

    #[test]
    fn a_dump_without_a_thread_has_the_window_that_it_should_have_had_and_closes_it() {
        let folder = tempfile::tempdir().unwrap();
        let places = Places::new(1, 0, None);
        let (ring, dumps) = dumps(folder.path(), &places, &Arc::new(Events::nowhere()));
        let window = Arc::new(Window::new(100, 300, 200));
        let place = places.take(&window, Requester::Live).unwrap();
        let filter = Filter::compile("udp", VlanRule::Exact, &[LinkType::ETHERNET]).unwrap();
        let hit = HitPacket { lane: 0, packet: 7, link_type: LinkType::ETHERNET };
        let occurrence = Condition::Hand.ordered(Moment::new(0, 200), &[]);
        let id =
            dumps.start(&by_hand(), &occurrence, Some(hit), Fire { filter, window: window.clone(), place });
        assert_eq!(
            window.extend(scope_packet::time::Moment::new(0, 250), 250, 400),
            Extended::No { full_to_ns: None },
            "no later hit is told that it is dumped"
        );
        let report = dumps.reports().kept().remove(0);
        assert_eq!(
            (report.asked, report.filter.as_str(), report.why.as_str(), report.hits),
            ((100, 300), "udp", "by hand", 1)
        );
        assert_eq!((id, report.id), (1, 1));
        assert_eq!(
            (report.packets, report.lost_min, report.lost_max, report.complete),
            (0, 1, u64::MAX, false)
        );
        assert_eq!(
            report.gaps,
            [Gap { from_ns: 100, to_ns: 300, reason: GapReason::Disk, lost_min: 1, lost_max: None }]
        );
        assert!(
            report.error.as_deref().is_some_and(|error| error.starts_with("no thread for the dump: ")),
            "{report:?}"
        );
        assert_eq!(
            (dumps.open().len(), places.open(), ring.budget().taken()),
            (0, 0, 0),
            "nothing is kept for it"
        );
    }
}
