//! What a run writes down of its own health: the machine at the start, a `status` line now and then, and with
//! each loss what its workers did meanwhile. All of it is gathered by the main thread; `doctor` reads it.

use crate::attach::GroupStatus;
use crate::nic_watch::{NicWatch, nic_facts};
use crate::plan::{Fixed, SourceEntry};
use crate::source_rules::SourceRule;
use crate::statistics::StatsStatus;
use crate::status::{Status, StatusTaker};
use crate::summary::{dropped, hits, script, source, volume};
use crate::thread_times::{ThreadTimes, WorkerTime};
use crate::wiring::Shared;
use scope_events::counts::{self, ByWord};
use scope_events::event;
use scope_events::fact::{Flat, Rare};
use scope_filter::FilterEngine;
use scope_machine::groups::{Throttle, Throttled, threads_max};
use scope_machine::home::Home;
use scope_machine::limits;
use scope_machine::nic::Advice;
use scope_machine::process::process_began;
use std::time::{Duration, Instant};

/// To the first one of a live run.
const FIRST_LINE: Duration = Duration::from_millis(900);

/// Gathers what the log says of one run's health.
pub(crate) struct Health {
    nics: NicWatch,
    threads: ThreadTimes,
    times: Vec<Option<WorkerTime>>,
    looked: Instant,
    /// Seconds between the last looks, the last one first: many more than 1 when the process stood still.
    passed_s: [f64; 2],
    throttle: Throttle,
    /// What its control groups kept the process waiting since the run began, and seconds of the last look;
    /// `None`: not known.
    throttled: Option<(Throttled, f64)>,
    /// Whether it went on after a stop lately: as told to the last looks, the last one first.
    resumed: [bool; 2],
    every: Duration,
    next_line: Instant,
}

impl Health {
    /// Logs the machine.
    pub(crate) fn begin(
        fixed: &Fixed,
        nics: NicWatch,
        workers: usize,
        live: bool,
        shared: &Shared,
    ) -> Health {
        let Home { host, boot, processes } = Home::here();
        shared.events.log(event::Machine {
            pid: Some(std::process::id().into()),
            pid_began: process_began("self"),
            home: event::Home { host, boot, processes },
            live,
            captures: fixed.sources.iter().filter_map(capture).collect(),
            dumps_max: Some(shared.dumps.places().max() as u64),
            interpreter: fixed.filter_engine == FilterEngine::Interpreter,
            status_every_s: fixed.status_every.as_secs_f64(),
            processors: std::thread::available_parallelism().map_or(0, |processors| processors.get() as u64),
            limits: event::Limits { file_size: limits::file_size_max(), threads: threads_max() },
            nic: nic_facts(&nics.status()),
        });
        Health {
            throttle: Throttle::begin(),
            throttled: None,
            resumed: [false; 2],
            nics,
            threads: ThreadTimes::new(workers),
            times: vec![None; workers],
            looked: Instant::now(),
            passed_s: [0.0; 2],
            every: fixed.status_every,
            next_line: Instant::now() + if live { FIRST_LINE } else { fixed.status_every },
        }
    }

    /// Looks at everything, once a second; fills in what `status` says of cards and workers, and logs it when
    /// it is time to. Returns notes to be said.
    pub(crate) fn look(&mut self, status: &mut Status, shared: &Shared) -> Vec<String> {
        self.passed_s = [self.looked.elapsed().as_secs_f64(), self.passed_s[0]];
        self.looked = Instant::now();
        self.times = self.threads.look();
        self.throttled = self.throttle.look();
        self.resumed = [false, self.resumed[0]];
        self.look_at_nics(status);
        for (worker, time) in status.workers.iter_mut().zip(&self.times) {
            worker.time = *time;
        }
        if Instant::now() >= self.next_line {
            self.next_line = Instant::now() + self.every;
            shared.events.log(self.line(status, shared));
        }
        self.notes(shared)
    }

    /// Logs that the process goes on after it was stopped; to be told behind a look and before its losses
    /// are.
    pub(crate) fn note_resumed(&mut self, shared: &Shared) {
        self.resumed[0] = true;
        shared.events.log(event::Resumed { seconds: self.passed_s[0].max(self.passed_s[1]) });
    }

    /// Notes about cards that have come up, logged, in plain words.
    pub(crate) fn notes(&mut self, shared: &Shared) -> Vec<String> {
        let say = |note: &Advice| {
            let (text, remedy) = (note.what.clone(), note.remedy.clone());
            shared.events.log(event::CardNote { kind: note.kind.into(), text, remedy });
            format!("note: {}: {}", note.what, note.remedy)
        };
        self.nics.notes().iter().map(say).collect()
    }

    /// Warnings of packets that are cut although no snap length asked for it, found by the last look.
    pub(crate) fn cuts(&mut self) -> Vec<String> {
        self.nics.cuts()
    }

    /// Fills in what `status` says of cards.
    pub(crate) fn look_at_nics(&mut self, status: &mut Status) {
        self.nics.look(&status.interfaces);
        status.nics = self.nics.status();
    }

    /// Logs packets that were dropped since this was last looked at.
    pub(crate) fn log_loss(&self, taker: &mut StatusTaker, shared: &Shared) {
        let packets: ByWord = taker
            .new_drops()
            .into_iter()
            .map(|(reason, packets)| (reason.name().to_string(), packets))
            .collect();
        if !packets.is_empty() {
            shared.events.log(event::Loss { packets, meanwhile: Flat(self.meanwhile(shared)) });
        }
    }

    /// What went on in the last second. When the process stood still and goes on, this thread may look before
    /// a worker has counted what was lost meanwhile: so the longer of the last two times is told.
    fn meanwhile(&self, shared: &Shared) -> event::Meanwhile {
        let open = shared.dumps.open();
        event::Meanwhile {
            seconds: self.passed_s[0].max(self.passed_s[1]),
            workers: self.times.iter().map(worker_time).collect(),
            throttled_s: self.throttled.map(|(_, lately_s)| lately_s),
            resumed: self.resumed.contains(&true),
            pinned: shared.ring.budget().taken(),
            segments: shared.ring.segments() as u64,
            dumps_open: open.len() as u64,
            disk_wait_s: open
                .iter()
                .map(|dump| dump.progress.waiting())
                .max()
                .unwrap_or_default()
                .as_secs_f64(),
        }
    }

    /// The facts of a status line.
    pub(crate) fn line(&self, status: &Status, shared: &Shared) -> event::Status {
        let total = &status.counts;
        let sources = status
            .sources
            .iter()
            .enumerate()
            .map(|(worker, entry)| source(worker, &entry.source, &entry.counters));
        let by_trigger = &status.hits_by_trigger;
        let cgroup = |(since, _): (Throttled, f64)| event::Cgroup {
            throttled_periods: since.periods,
            throttled_s: since.seconds,
        };
        event::Status {
            elapsed_s: status.elapsed_s,
            packets_per_s: status.packets_per_s,
            received: counts::Amount { packets: total.received_packets, bytes: total.received_bytes },
            stored: counts::Amount { packets: total.stored_packets, bytes: total.stored_bytes },
            signals: shared.measuring.latest(),
            filtered: counts::Amount { packets: total.filtered_packets, bytes: total.filtered_bytes },
            dropped: dropped(&total.dropped),
            cut: total.cut_packets,
            cut_by_segment: Some(total.cut_by_segment_packets),
            late: total.late_packets,
            stores: status.stores.iter().map(volume).collect(),
            scripts: status.scripts.iter().map(script).collect(),
            groups: status.groups.iter().map(GroupStatus::facts).collect(),
            source_rules: status.source_rules.iter().map(SourceRule::facts).collect(),
            stats: status.stats.as_ref().map(StatsStatus::facts),
            sources: sources.collect(),
            hits_rationed: by_trigger.iter().map(|(_, counts)| counts.rationed).sum(),
            hits: by_trigger.iter().map(|(name, counts)| (name.clone(), hits(counts))).collect(),
            lag_ns: status.workers.iter().map(|worker| worker.lag_ns).collect(),
            depth_ns: status.depth_ns,
            dumps_done: status.dumps_done,
            cgroup: self.throttled.map(cgroup),
            softnet: self
                .nics
                .softnet()
                .map(|softnet| counts::Softnet { dropped: softnet.dropped, squeezed: softnet.squeezed }),
            nic: nic_facts(&status.nics),
            audit: Rare(shared.events.audit().get()),
            meanwhile: Flat(self.meanwhile(shared)),
        }
    }
}

/// How a live source captures.
fn capture(entry: &SourceEntry) -> Option<event::Capture> {
    let interface = entry.plan.interface()?.to_string();
    let cpus = Some(entry.pinning.all()).filter(|cpus| !cpus.is_empty());
    Some(event::Capture {
        source: entry.spec.clone(),
        interface,
        workers: entry.plan.workers().into(),
        snap_len: entry.plan.snap_len().map(u64::from),
        promiscuous: entry.plan.promiscuous(),
        cpus: cpus.map(|cpus| cpus.iter().map(|&cpu| cpu.into()).collect()),
    })
}

fn worker_time(time: &Option<WorkerTime>) -> Option<event::WorkerTime> {
    time.map(|time| event::WorkerTime { busy: time.busy, starved: time.starved })
}
