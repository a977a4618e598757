//! What a run writes down of its own health: the machine at the start, a `status` line now and then, and with each loss what its
//! workers did meanwhile. All of it is gathered by the main thread; `doctor` reads it.
//!
//! | event | what it says |
//! |---|---|
//! | `machine` | once, behind `start`: process, interfaces and their settings |
//! | `status` | after 1 s (files: 10 s), then each 10 s: counters by stage, workers, ring, dumps, cards |
//! | `note` | a card's setting that makes capture lose or change packets, with the line that mends it |
//! | `loss` | packets that were dropped since the last second, by reason, and what was going on |
//! | `resumed` | the process was stopped by a signal, and goes on |

use crate::home::Home;
use crate::nic_watch::{NicStatus, NicWatch, nics_json};
use crate::plan::{Fixed, SourceEntry};
use crate::status::{Status, StatusTaker};
use crate::summary::{hits, source};
use crate::thread_times::{ThreadTimes, WorkerTime};
use crate::throttle::{Throttle, Throttled, threads_max};
use crate::worker::{Shared, WorkerReport};
use scope_filter::FilterEngine;
use scope_packet::DropReason;
use scope_source::nic::Advice;
use scope_source::spec::SourcePlan;
use serde_json::{Map, Value, json};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// To the first one of a live run.
const FIRST_LINE: Duration = Duration::from_millis(900);

/// Gathers what the log says of one run's health.
pub(crate) struct Health {
    names: Vec<String>,
    nics: NicWatch,
    threads: ThreadTimes,
    times: Vec<Option<WorkerTime>>,
    looked: Instant,
    /// Seconds between the last looks, the last one first: many more than 1 when the process stood still.
    passed_s: [f64; 2],
    throttle: Throttle,
    /// What its control groups kept the process waiting since the run began, and seconds of the last look; `None`: not known.
    throttled: Option<(Throttled, f64)>,
    /// Whether it went on after a stop lately: as told to the last looks, the last one first.
    resumed: [bool; 2],
    every: Duration,
    next_line: Instant,
}

impl Health {
    /// Logs the machine. `names` are the workers' sources.
    pub(crate) fn begin(fixed: &Fixed, nics: NicWatch, names: &[String], live: bool, shared: &Shared) -> Health {
        shared.events.log(
            "machine",
            json!({
                "pid": std::process::id(),
                "pid_began": process_began("self"),
                "home": Home::here().to_json(),
                "live": live,
                "captures": fixed.sources.iter().filter_map(capture).collect::<Vec<_>>(),
                "dumps_max": shared.dumps.places().max(),
                "interpreter": fixed.filter_engine == FilterEngine::Interpreter,
                "status_every_s": fixed.status_every.as_secs_f64(),
                "processors": std::thread::available_parallelism().map_or(0, usize::from),
                "limits": {"file_size": file_size_max(), "threads": threads_max()},
                "nic": nics_json(&nics.status()),
            }),
        );
        Health {
            throttle: Throttle::begin(),
            throttled: None,
            resumed: [false; 2],
            names: names.to_vec(),
            nics,
            threads: ThreadTimes::new(names.len()),
            times: vec![None; names.len()],
            looked: Instant::now(),
            passed_s: [0.0; 2],
            every: fixed.status_every,
            next_line: Instant::now() + if live { FIRST_LINE } else { fixed.status_every },
        }
    }

    /// Looks at everything, once a second; fills in what `status` says of cards and workers, and logs it when it is time to.
    /// Returns notes to be said.
    pub(crate) fn look(&mut self, status: &mut Status, shared: &Shared, reports: &[Mutex<WorkerReport>]) -> Vec<String> {
        self.passed_s = [self.looked.elapsed().as_secs_f64(), self.passed_s[0]];
        self.looked = Instant::now();
        self.times = self.threads.look();
        self.throttled = self.throttle.look();
        self.resumed = [false, self.resumed[0]];
        self.nics.look(reports);
        status.nics = self.nics.status();
        for (worker, time) in status.workers.iter_mut().zip(&self.times) {
            worker.time = *time;
        }
        if Instant::now() >= self.next_line {
            self.next_line = Instant::now() + self.every;
            shared.events.log("status", self.line(status, shared, reports));
        }
        self.notes(shared)
    }

    /// Logs that the process goes on after it was stopped; to be told behind a look and before its losses are.
    pub(crate) fn note_resumed(&mut self, shared: &Shared) {
        self.resumed[0] = true;
        shared.events.log("resumed", json!({"seconds": self.passed_s[0].max(self.passed_s[1])}));
    }

    /// Notes about cards that have come up, logged, in plain words.
    pub(crate) fn notes(&mut self, shared: &Shared) -> Vec<String> {
        let say = |note: &Advice| {
            shared.events.log("note", json!({"kind": note.kind, "text": note.what, "remedy": note.remedy}));
            format!("note: {}: {}", note.what, note.remedy)
        };
        self.nics.notes().iter().map(say).collect()
    }

    /// Warnings of packets that are cut though nobody asked for it, found by the last look.
    pub(crate) fn cuts(&mut self) -> Vec<String> {
        self.nics.cuts()
    }

    /// A last look, and every card.
    pub(crate) fn end(&mut self, reports: &[Mutex<WorkerReport>]) -> Vec<NicStatus> {
        self.nics.look(reports);
        self.nics.status()
    }

    /// Logs packets that were dropped since this was last looked at.
    pub(crate) fn log_loss(&self, taker: &mut StatusTaker, shared: &Shared) {
        let dropped: Map<String, Value> =
            taker.new_drops().into_iter().map(|(reason, packets)| (reason.name().to_string(), packets.into())).collect();
        if !dropped.is_empty() {
            let mut facts = self.meanwhile(shared);
            facts["packets"] = dropped.into();
            shared.events.log("loss", facts);
        }
    }

    /// What went on in the last second. When the process stood still and goes on, this thread may look before a worker has counted
    /// what was lost meanwhile: so the longer of the last two times is told.
    fn meanwhile(&self, shared: &Shared) -> Value {
        let open = shared.dumps.open();
        json!({
            "seconds": self.passed_s[0].max(self.passed_s[1]),
            "workers": self.times.iter().map(worker_time).collect::<Vec<_>>(),
            "throttled_s": self.throttled.map(|(_, lately_s)| lately_s),
            "resumed": self.resumed.contains(&true),
            "pinned": shared.ring.budget().taken(),
            "segments": shared.ring.segments(),
            "dumps_open": open.len(),
            "disk_wait_s": open.iter().map(|dump| dump.progress.waiting()).max().unwrap_or_default().as_secs_f64(),
        })
    }

    fn line(&self, status: &Status, shared: &Shared, reports: &[Mutex<WorkerReport>]) -> Value {
        let total = shared.ring.counters().total();
        let dropped: Map<String, Value> =
            DropReason::ALL.iter().map(|&reason| (reason.name().to_string(), total.dropped.get(reason).into())).collect();
        let sources = self.names.iter().zip(reports).enumerate().map(|(worker, (name, report))| {
            let counters = report.lock().unwrap_or_else(PoisonError::into_inner).counters;
            source((worker, &(name.clone(), counters)))
        });
        let counts = shared.triggers.counts();
        let rationed: u64 = counts.iter().map(|(_, counts)| counts.rationed).sum();
        let hits: Map<String, Value> = counts.into_iter().map(|(name, counts)| (name, hits(&counts))).collect();
        let mut facts = self.meanwhile(shared);
        let more = json!({
            "elapsed_s": status.elapsed_s,
            "packets_per_s": status.packets_per_s,
            "received": {"packets": total.received_packets, "bytes": total.received_bytes},
            "stored": {"packets": total.stored_packets, "bytes": total.stored_bytes},
            "filtered": {"packets": total.filtered_packets},
            "dropped": dropped,
            "cut": total.cut_packets,
            "cut_by_segment": total.cut_by_segment_packets,
            "late": total.late_packets,
            "sources": sources.collect::<Vec<_>>(),
            "hits": hits,
            "hits_rationed": rationed,
            "cgroup": self.throttled.map(|(since, _)| json!({"throttled_periods": since.periods, "throttled_s": since.seconds})),
            "lag_ns": status.workers.iter().map(|worker| worker.lag_ns).collect::<Vec<_>>(),
            "depth_ns": status.depth_ns,
            "dumps_done": status.dumps_done,
            "nic": nics_json(&status.nics),
            "softnet": self.nics.softnet().map(|softnet| json!({"dropped": softnet.dropped, "squeezed": softnet.squeezed})),
        });
        if let (Value::Object(facts), Value::Object(more)) = (&mut facts, more) {
            facts.extend(more);
        }
        facts
    }
}

/// How a live source captures.
fn capture(entry: &SourceEntry) -> Option<Value> {
    let (interface, snap_len, promiscuous) = match &entry.plan {
        SourcePlan::AfPacket(live) => (&live.interface, live.snap_len, live.promiscuous),
        SourcePlan::Pcap(live) => (&live.interface, live.snap_len, live.promiscuous),
        SourcePlan::File(_) | SourcePlan::Synth(_) => return None,
    };
    Some(json!({
        "source": entry.spec,
        "interface": interface,
        "workers": entry.plan.workers(),
        "snap_len": snap_len,
        "promiscuous": promiscuous,
        "cpus": Some(entry.pinning.all()).filter(|cpus| !cpus.is_empty()),
    }))
}

/// Bytes to which this process may let a file grow; `None`: any number.
fn file_size_max() -> Option<u64> {
    let limits = std::fs::read_to_string("/proc/self/limits").ok()?;
    let line = limits.lines().find_map(|line| line.strip_prefix("Max file size"))?;
    line.split_whitespace().next()?.parse().ok()
}

fn worker_time(time: &Option<WorkerTime>) -> Value {
    time.map_or(Value::Null, |time| json!({"busy": time.busy, "starved": time.starved}))
}

/// When a process began, in ticks since the machine started: with its number it names one process for good. `pid` may be `self`.
pub(crate) fn process_began(pid: &str) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // Behind the name, which may hold anything, the 20th word.
    stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
}
