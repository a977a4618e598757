//! `stats_pause_ms`: the longest time between two batches of a live worker that counts, while a million flows come and
//! expire in each second of capture time.
//!
//! ```text
//!  source of this file ─► worker of the engine, all its stages ─► its outbox ─► thread "stats" of the engine ─► SQLite
//!        │ looks at the clock in front of each batch
//! ```
//! It is the engine's own worker, packet path and thread, wired as a run wires them; only the source is another one. It
//! is live, as an interface is: flows expire, and nobody waits. It always has a next batch. So from batch to batch goes by
//! what the worker does with one: count, append, commit, a step over the table, hand on. Each packet is the first one of
//! a new flow, and the last one: far more rows come than can be written, so that they are folded, too, by the worker.
//!
//! From a pause of 20 us and more goes what the thread's schedstat says that it waited for a processor in it. What is left
//! has in it what the host took of a virtual processor. So a pause is as long as the thread's processor time in it, if that
//! is less, and the thread never went to sleep by itself: then nothing that it does made it wait.

use super::database::Database;
use crate::Scale;
use crate::clocks::{Runs, cpu_ns, monotonic_ns, sleeps};
use crate::cores::cores;
use crate::table::{Key, Table};
use crate::workspace::Workspace;
use anyhow::{Context, Result, anyhow, ensure};
use scope_dump::{DumpOutput, Scans};
use scope_engine::dumps::{DumpSettings, Dumps};
use scope_engine::lockstep::Lockstep;
use scope_engine::recording::{Outlets, Recording};
use scope_engine::report;
use scope_engine::scripts::Scripts;
use scope_engine::steps::Steps;
use scope_engine::threads::SystemThreads;
use scope_engine::triggers::Triggers;
use scope_engine::wiring::{Part, Shared};
use scope_engine::worker::{Feed, work};
use scope_engine::{Measuring, Statistics, StatsPlan, StatsStatus, Tables};
use scope_events::Events;
use scope_filter::{FilterEngine, VlanRule};
use scope_flow::local::Rule;
use scope_packet::{
    BATCH_PACKETS_MAX, Clock, Interface, LinkType, Packet, Sink, SystemClock, TimestampSource,
};
use scope_source::{Polled, Source, SourceCounters, SourceError, Timing};
use scope_stats::{Options, RunFacts, Writer};
use scope_testkit::traffic::ETHERNET;
use scope_testkit::traffic::frame::{on_link, udp};
use scope_trigger::{Condition, Places, Response, TriggerConfig};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The bar's row.
pub const OWN: Key<'static> = ("stats_pause_ms", "longest, without what scheduler and host took");
const UNSCHEDULED: &str = "longest, without what the scheduler took";
const WHOLE: &str = "longest";
const PACKETS: &str = "packets, each of a new flow";
const FOLDED: &str = "records folded, since the disk was slower";
/// Flows that come in a second of capture time.
const RATE: i64 = 1_000_000;
const START_NS: i64 = 1_795_206_660_000_000_000;
/// A record ends when nothing comes for so long, and an interval is as long.
const IDLE_NS: i64 = 1_000_000_000;
/// A pass over the table takes some time, too: none is ever evicted.
const FLOWS_MAX: usize = 4_000_000;
/// Batches of one poll.
const POLL_BATCHES: usize = 16;
const PAYLOAD_BYTES: usize = 22;
/// Shorter than a thread is ever away for another one.
const WAIT_MIN_NS: i64 = 20_000;
const RING_BYTES: u64 = 64 << 20;
/// As many as a live source says.
const GRACE_NS: i64 = 8_000_000;

/// One run.
pub fn round(workspace: &Workspace, scale: Scale, table: &mut Table) {
    match run(workspace, scale.flow_seconds) {
        Ok((pauses, status)) => {
            table.put(OWN.0, OWN.1, "ms", Ok(pauses.own_ns as f64 / 1e6));
            table.put(OWN.0, UNSCHEDULED, "ms", Ok(pauses.unscheduled_ns as f64 / 1e6));
            table.put(OWN.0, WHOLE, "ms", Ok(pauses.longest_ns as f64 / 1e6));
            table.put(OWN.0, PACKETS, "packets", Ok((scale.flow_seconds as i64 * RATE) as f64));
            table.put(OWN.0, FOLDED, "records", Ok(status.folded_flows as f64));
        }
        Err(fault) => table.put(OWN.0, OWN.1, "ms", Err(format!("{fault:#}"))),
    }
}

/// The longest times between two batches so far.
#[derive(Clone, Copy, Debug, Default)]
struct Pauses {
    longest_ns: i64,
    /// Without what the scheduler took.
    unscheduled_ns: i64,
    /// Without what the scheduler and the host took.
    own_ns: i64,
    batches: u64,
}

/// What a pause is measured by: of the thread that began it.
struct Watch {
    runs: Runs,
    /// When the last batch began.
    last: Look,
    /// How often the thread had gone to sleep by itself when that was looked at last.
    slept: i64,
}

/// Time that has passed, processor time of the thread, and time that it waited for a processor, ns.
#[derive(Clone, Copy)]
struct Look {
    passed_ns: i64,
    used_ns: i64,
    waited_ns: i64,
}

impl Watch {
    fn of_this_thread() -> Result<Watch, String> {
        let runs = Runs::of_this_thread()?;
        let waited_ns = runs.count().0 as i64;
        let last = Look { passed_ns: monotonic_ns(), used_ns: cpu_ns(), waited_ns };
        Ok(Watch { runs, last, slept: sleeps() })
    }

    /// The next batch begins.
    fn look(&mut self, pauses: &mut Pauses) {
        let (passed_ns, used_ns) = (monotonic_ns(), cpu_ns());
        let pause_ns = passed_ns - self.last.passed_ns;
        let (mut unscheduled_ns, mut own_ns) = (pause_ns, pause_ns);
        let mut waited_ns = self.last.waited_ns;
        if pause_ns >= WAIT_MIN_NS {
            waited_ns = self.runs.count().0 as i64;
            let slept = sleeps();
            unscheduled_ns = (pause_ns - (waited_ns - self.last.waited_ns)).max(0);
            own_ns = match slept == self.slept {
                true => unscheduled_ns.min(used_ns - self.last.used_ns),
                false => unscheduled_ns,
            };
            self.slept = slept;
        }
        // What the look takes is no pause of the worker's.
        self.last = Look { passed_ns: monotonic_ns(), used_ns: cpu_ns(), waited_ns };
        pauses.batches += 1;
        pauses.longest_ns = pauses.longest_ns.max(pause_ns);
        pauses.unscheduled_ns = pauses.unscheduled_ns.max(unscheduled_ns);
        pauses.own_ns = pauses.own_ns.max(own_ns);
    }
}

/// The source: packet after packet of a flow each.
struct Flows {
    frames: Vec<Vec<u8>>,
    packets: u64,
    next: u64,
    watch: Option<Watch>,
    pauses: Pauses,
    /// What it has to say at the end.
    outcome: Arc<Mutex<Option<Result<Pauses, String>>>>,
}

impl Flows {
    fn new(packets: u64, outcome: &Arc<Mutex<Option<Result<Pauses, String>>>>) -> Result<Flows> {
        let ends: (SocketAddr, SocketAddr) = ("10.0.0.0:1000".parse()?, "192.0.2.1:4000".parse()?);
        let frame = on_link(ETHERNET, &[], &udp(ends.0, ends.1, &[7; PAYLOAD_BYTES]));
        Ok(Flows {
            frames: vec![frame; BATCH_PACKETS_MAX],
            packets,
            next: 0,
            watch: None,
            pauses: Pauses::default(),
            outcome: outcome.clone(),
        })
    }

    fn begin(&mut self, sink: &mut dyn Sink) -> Result<(), String> {
        sink.interface(&Interface {
            name: "flows".to_string(),
            description: String::new(),
            link_type: LinkType::ETHERNET,
            snap_len: 0,
            timestamps: TimestampSource::Generator,
            part: 0,
        });
        self.watch = Some(Watch::of_this_thread()?);
        Ok(())
    }

    fn end(&mut self, outcome: Result<Pauses, String>) -> Result<Polled, SourceError> {
        *self.outcome.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = Some(outcome);
        Ok(Polled::Ended)
    }

    fn push(&mut self, sink: &mut dyn Sink) {
        let count = ((self.packets - self.next) as usize).min(BATCH_PACKETS_MAX);
        for (frame, flow) in self.frames.iter_mut().zip(self.next..).take(count) {
            frame[26..30].copy_from_slice(&(0x0a00_0000 + flow as u32).to_be_bytes());
        }
        let gap_ns = 1_000_000_000 / RATE;
        let packets = self.frames.iter().zip(self.next..).map(|(frame, number)| Packet {
            data: frame,
            original_len: frame.len() as u32,
            time_ns: START_NS + number as i64 * gap_ns,
            interface: 0,
            flags: 0,
            lost_before: 0,
        });
        let packets: Vec<Packet<'_>> = packets.take(count).collect();
        if let Some(watch) = &mut self.watch {
            watch.look(&mut self.pauses);
        }
        sink.batch(&packets);
        self.next += count as u64;
    }
}

impl Source for Flows {
    fn name(&self) -> &str {
        "flows"
    }

    fn timing(&self) -> Timing {
        Timing::Live
    }

    fn grace_ns(&self) -> i64 {
        GRACE_NS
    }

    fn poll(&mut self, sink: &mut dyn Sink) -> Result<Polled, SourceError> {
        if self.watch.is_none()
            && let Err(fault) = self.begin(sink)
        {
            return self.end(Err(fault));
        }
        for _ in 0..POLL_BATCHES {
            if self.next == self.packets {
                let pauses = self.pauses;
                return self.end(Ok(pauses));
            }
            self.push(sink);
        }
        Ok(Polled::Packets)
    }

    fn counters(&self) -> SourceCounters {
        SourceCounters { offered: self.next, received: self.next, ..SourceCounters::default() }
    }

    fn stop(&mut self) {}
}

/// One run of so many seconds of capture time, checked.
fn run(workspace: &Workspace, seconds: u64) -> Result<(Pauses, StatsStatus)> {
    let folder = workspace.out_folder()?;
    let db = folder.path().join("x.sqlite");
    let packets = seconds * RATE as u64;
    let ring = scope_measure::ring(RING_BYTES, None, 1)?;
    let plan = plan(&db);
    let options = plan.db.clone().context("a database")?;
    let facts =
        RunFacts { run: "bench".to_string(), sources: vec!["flows".to_string()], ..RunFacts::default() };
    let writer = Writer::open(options, facts)
        .map_err(|faults| anyhow!("{}", faults.first().map(ToString::to_string).unwrap_or_default()))?;
    let core = cores()[0];
    let tables = Tables::make(&plan, ring.run_id(), &[&[core as u32]]);
    let statistics = Arc::new(Statistics::new(plan, 1, ring.run_id(), true, tables));
    let shared = shared(folder.path(), ring, &statistics)?;
    let outcome = Arc::new(Mutex::new(None));
    let source = Box::new(Flows::new(packets, &outcome)?);
    let feed = Feed { source, parts: vec![Part::default()], cpus: vec![core as u32] };
    std::thread::scope(|scope| {
        let recording = Recording::new(&shared, &statistics, Outlets::of_writer(writer));
        scope.spawn(move || recording.work());
        scope.spawn(|| work(0, feed, &shared, report::begin().0));
    });
    let outcome = outcome.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).take();
    let pauses = outcome.context("the source was not asked to its end")?.map_err(|fault| anyhow!(fault))?;
    let status = statistics.status();
    check(&db, packets, &status)?;
    let batches = packets.div_ceil(BATCH_PACKETS_MAX as u64);
    ensure!(pauses.batches == batches, "{} batches of {batches} were looked at", pauses.batches);
    Ok((pauses, status))
}

/// That all packets and flows were counted, and those that were silent expired.
fn check(db: &Path, packets: u64, status: &StatsStatus) -> Result<()> {
    ensure!(status.ended.is_none() && status.failing.is_none(), "statistics ended: {:?}", status.ended);
    ensure!(status.evicted == 0, "{} flows were evicted", status.evicted);
    let database = Database::open(db)?;
    database.expect_packets(packets)?;
    let flows = database.number("SELECT sum(new_flows) FROM intervals")?;
    ensure!(flows == packets as i64, "{flows} flows of {packets}");
    let records = database.number("SELECT count(*) FROM flows WHERE reason <> 'unwritten'")?;
    let folded = status.folded_flows;
    ensure!(records as u64 + folded == packets, "{records} records and {folded} folded of {packets} flows");
    // Those of the last second are left at the end, and of the last pass a part.
    let left = database.number("SELECT count(*) FROM flows WHERE reason = 'stop'")?;
    ensure!(left as u64 + RATE as u64 <= packets, "only {} flows expired", packets as i64 - left);
    Ok(())
}

fn plan(db: &Path) -> StatsPlan {
    let options = Options {
        db: db.to_path_buf(),
        every: None,
        interval_ns: IDLE_NS,
        keep: None,
        budget: None,
        min_free: None,
        flow_rows: true,
    };
    StatsPlan {
        db: Some(options),
        length_ns: IDLE_NS,
        flows_max: FLOWS_MAX,
        idle_ns: IDLE_NS,
        active_ns: 300 * IDLE_NS,
        rows_max: 10_000,
        local: Rule::Any,
        local_text: String::new(),
        ipfix: None,
    }
}

/// What a run with one worker, no trigger and no store wires together.
fn shared(folder: &Path, ring: Arc<scope_ring::Ring>, statistics: &Arc<Statistics>) -> Result<Shared> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let events = Arc::new(Events::nowhere());
    let settings = DumpSettings {
        output: DumpOutput::in_folder(folder)?,
        exec: None,
        patience: Some(Duration::from_secs(2)),
        filter_engine: FilterEngine::Interpreter,
        past: None,
        clock: clock.clone(),
        threads: Arc::new(SystemThreads),
        scripts: None,
    };
    let places = Places::new(1, GRACE_NS, None);
    let dumps = Dumps::new(&ring, &places, &events, &Scans::new(&ring, None), settings, None);
    let hand = TriggerConfig {
        name: "manual".to_string(),
        condition: Condition::Hand,
        response: Response {
            template: None,
            script: None,
            before_ns: 0,
            after_ns: 0,
            vlan: VlanRule::Transparent,
        },
        holdoff_ns: 0,
        holdoff_key: None,
        single: false,
        when: None,
        auto_ns: None,
    };
    Ok(Shared {
        source_rules: Arc::default(),
        attach: None,
        measuring: Measuring::unjoined(1),
        statistics: Some(statistics.clone()),
        scripts: Arc::new(Scripts::none()),
        ring,
        triggers: Triggers::new(&[], hand),
        dumps,
        stores: None,
        events,
        lockstep: Lockstep::new(1),
        steps: Steps::default(),
        clock,
        stop: AtomicBool::new(false),
        ended: AtomicUsize::new(0),
        main: std::thread::current(),
    })
}
