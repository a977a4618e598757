//! What a run says of itself while it goes: figures only, once a second; words are the binary's.
//!
//! A [`Status`] is the one snapshot of a run. The main thread takes it, and it alone reads the workers'
//! reports. Status line, log, summary and warnings are drawn from it, and read no report themselves.

use crate::attach::GroupStatus;
use crate::dumps::OpenDump;
use crate::interfaces::InterfaceStatus;
use crate::nic_watch::NicStatus;
use crate::report::{ReportReader, WorkerNews};
use crate::script_status::ScriptStatus;
use crate::source_rules::SourceRule;
use crate::statistics::StatsStatus;
use crate::stores::{Stores, settle};
use crate::thread_times::WorkerTime;
use crate::wiring::Shared;
use scope_dump::InterfaceSample;
use scope_dump::budget::Usage;
use scope_dump::evidence::SAMPLED_MAX;
use scope_events::now_ns;
use scope_packet::{DropReason, Drops, LinkType};
use scope_ring::{LaneInfo, WorkerCounts};
use scope_source::{SourceCounters, SourceError};
use scope_store::{Amount, VolumeReport};
use scope_trigger::{HitCounts, Trigger, TriggerConfig};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Instant;

/// The run at one moment. Rates are over the time since the last status.
#[derive(Clone, Debug, Default)]
pub struct Status {
    /// Seconds since the run began.
    pub elapsed_s: f64,
    /// Packets received per second.
    pub packets_per_s: f64,
    /// Captured bits per second.
    pub bits_per_s: f64,
    /// What all workers did so far with what they received.
    pub counts: WorkerCounts,
    /// Every worker's numbers add up.
    pub adds_up: bool,
    /// Capture time that the ring holds now, ns.
    pub depth_ns: i64,
    /// What each lane of the ring holds now.
    pub lanes: Vec<LaneStatus>,
    /// Triggers in force, in the order given; the one by hand last.
    pub triggers: Vec<TriggerStatus>,
    /// Dumps that are open.
    pub dumps_open: usize,
    /// Dumps that are written.
    pub dumps_done: u64,
    /// Hits so far.
    pub hits: u64,
    /// The same by trigger, in the order of the triggers; fires by hand stand as `manual`.
    pub hits_by_trigger: Vec<(String, HitCounts)>,
    /// Every volume of the store; what is behind over all of them is what was published and isn't dealt with.
    pub stores: Vec<VolumeReport>,
    /// Every script, in the order of their triggers.
    pub scripts: Vec<ScriptStatus>,
    /// The ring itself and every group, where other programs can attach.
    pub groups: Vec<GroupStatus>,
    /// Rules of sources, and what each has taken.
    pub source_rules: Vec<SourceRule>,
    /// Traffic statistics, if there are any.
    pub stats: Option<StatsStatus>,
    /// Where the budget of dumps stands, if there is one.
    pub space: Option<Usage>,
    /// Every worker.
    pub workers: Vec<WorkerStatus>,
    /// Every source, one entry for each worker.
    pub sources: Vec<SourceStatus>,
    /// Every live interface.
    pub interfaces: Vec<InterfaceStatus>,
    /// Every open dump.
    pub dumps: Vec<DumpStatus>,
    /// Every network card under a live source.
    pub nics: Vec<NicStatus>,
}

/// What one worker's source has counted.
#[derive(Clone, Debug, Default)]
pub struct SourceStatus {
    /// As typed.
    pub source: String,
    /// So far.
    pub counters: SourceCounters,
    /// Why it failed, if it did.
    pub failure: Option<Arc<SourceError>>,
}

/// One worker.
#[derive(Clone, Debug, Default)]
pub struct WorkerStatus {
    /// Its source, as typed.
    pub source: String,
    /// Packets per second.
    pub packets_per_s: f64,
    /// Bits per second.
    pub bits_per_s: f64,
    /// How far its clock is behind the wall clock, ns; `None` where its times aren't of now.
    pub lag_ns: Option<i64>,
    /// Whether it has come round since the last status, whatever time it is; always, where its times aren't
    /// of now: then it may wait.
    pub moves: bool,
    /// How its thread spent the time since the last status; `None`: unknown.
    pub time: Option<WorkerTime>,
    /// What it did so far with what it received.
    pub counts: WorkerCounts,
}

/// What the ring holds of one lane.
#[derive(Clone, Debug)]
pub struct LaneStatus {
    /// The worker that writes it.
    pub worker: u32,
    /// Its link type.
    pub link_type: LinkType,
    /// Packets that were written into it so far.
    pub packets: u64,
    /// Segments.
    pub segments: u64,
    /// Bytes of the ring that these are.
    pub bytes: u64,
    /// Capture time of the oldest packet in it, ns; `None`: it holds none.
    pub oldest_ns: Option<i64>,
}

/// One trigger in force.
#[derive(Clone, Debug)]
pub struct TriggerStatus {
    /// What it is made of.
    pub config: TriggerConfig,
    /// Whether it still fires.
    pub armed: bool,
    /// What became of its hits.
    pub counts: HitCounts,
}

/// One open dump, which is a reader of the ring.
#[derive(Clone, Debug, Default)]
pub struct DumpStatus {
    /// Number of the dump in the run.
    pub id: u64,
    /// Trigger.
    pub trigger: String,
    /// Packets written so far.
    pub packets: u64,
    /// Packets per second.
    pub packets_per_s: f64,
    /// Bits per second.
    pub bits_per_s: f64,
    /// Capture time that it has still to cover until its window's end, ns.
    pub lag_ns: i64,
}

/// The kernel's counters of an interface that a dump's header shows.
const SHOWN: [&str; 6] =
    ["rx_packets", "rx_dropped", "rx_errors", "rx_missed_errors", "rx_fifo_errors", "rx_over_errors"];

/// What each live interface has counted since the run began: by its capture, then by the kernel.
pub(crate) fn counter_samples(status: &Status) -> Vec<InterfaceSample> {
    let sample = |entry: &InterfaceStatus| {
        let SourceCounters { offered, received, kernel_dropped, .. } = entry.counters;
        let own = [("offered", offered), ("received", received), ("kernel_dropped", kernel_dropped)];
        let mut counts: Vec<(&'static str, u64)> = own.to_vec();
        let nic = status.nics.iter().find(|nic| nic.interface[..] == entry.interface[..]);
        let of_kernel = nic
            .iter()
            .flat_map(|nic| SHOWN.iter().filter_map(|name| Some((*name, *nic.counters.get(*name)?))));
        counts.extend(of_kernel);
        InterfaceSample { interface: entry.interface.clone(), counts }
    };
    status.interfaces.iter().take(SAMPLED_MAX).map(sample).collect()
}

/// Takes one status after another, so that rates are differences; the one reader of the workers' reports.
pub(crate) struct StatusTaker {
    /// The workers' sources.
    names: Vec<String>,
    reports: Vec<ReportReader>,
    live: bool,
    began: Instant,
    last: Instant,
    /// Packets and bytes at the last status, per worker.
    workers: Vec<(u64, u64)>,
    /// How often every worker had come round at the last status.
    rounds: Vec<u64>,
    /// Bytes that each volume had stored at the last status.
    stored: Vec<u64>,
    /// The same as of workers per dump.
    dumps: BTreeMap<u64, (u64, u64)>,
    dropped: Drops,
    dropped_told: Drops,
}

impl StatusTaker {
    /// Before the first packet. `names` are the workers' sources, `reports` what they say.
    pub(crate) fn new(names: Vec<String>, reports: Vec<ReportReader>, live: bool) -> StatusTaker {
        let now = Instant::now();
        StatusTaker {
            workers: vec![(0, 0); names.len()],
            rounds: vec![0; names.len()],
            names,
            reports,
            live,
            began: now,
            last: now,
            stored: Vec::new(),
            dumps: BTreeMap::new(),
            dropped: Drops::default(),
            dropped_told: Drops::default(),
        }
    }

    /// What came up at each worker since the last call, and how much was forgotten.
    pub(crate) fn news(&mut self) -> Vec<(Vec<WorkerNews>, u64)> {
        self.reports.iter_mut().map(ReportReader::news).collect()
    }

    /// Looks once at everything.
    pub(crate) fn take(&mut self, shared: &Shared) -> Status {
        let seconds = self.last.elapsed().as_secs_f64().max(1e-9);
        self.last = Instant::now();
        let stores = shared.stores.as_ref().map(Stores::reports).unwrap_or_default(); // before what is published
        let counters = shared.ring.counters();
        let total = counters.total();
        let mut stores = settle(stores, Amount::new(total.stored_packets, total.stored_bytes));
        self.stored.resize(stores.len(), 0);
        for (report, before) in stores.iter_mut().zip(&mut self.stored) {
            let now = report.stored.bytes;
            report.bytes_per_s = (now - std::mem::replace(before, now).min(now)) as f64 / seconds;
            let heard_ns = shared.ring.heard().map(|(_, last_ns)| last_ns);
            let waits_ns = heard_ns.zip(report.behind_since_ns).map(|(now, since)| now.saturating_sub(since));
            report.behind_ns = waits_ns.unwrap_or(0).max(0);
        }
        self.dropped = total.dropped;
        let workers: Vec<WorkerStatus> = (0..self.names.len())
            .map(|index| {
                let counts = &counters.workers[index];
                let now = (counts.received_packets, counts.received_bytes);
                let (packets_per_s, bits_per_s) = rates(&mut self.workers[index], now, seconds);
                let clock_ns = shared.ring.clock_ns(index as u32);
                let lag_ns = self.live.then(|| now_ns() - clock_ns);
                let rounds = shared.ring.rounds(index as u32);
                let before = std::mem::replace(&mut self.rounds[index], rounds);
                let moves = !self.live || rounds != before || clock_ns == i64::MAX;
                WorkerStatus {
                    source: self.names[index].clone(),
                    packets_per_s,
                    bits_per_s,
                    lag_ns,
                    moves,
                    time: None,
                    counts: *counts,
                }
            })
            .collect();
        let (sources, interfaces) = reported(&self.names, &mut self.reports);
        let hits_by_trigger = shared.triggers.counts();
        let lanes: Vec<LaneStatus> = (0..shared.ring.lanes()).map(|lane| lane_status(shared, lane)).collect();
        let heard_ns = shared.ring.heard().map_or(0, |(_, heard_ns)| heard_ns);
        let oldest_ns = lanes.iter().filter_map(|lane| lane.oldest_ns).min();
        let open = shared.dumps.open();
        let clock_ns = shared.ring.heard().map_or(0, |(_, heard_ns)| heard_ns);
        self.dumps.retain(|id, _| open.iter().any(|dump| dump.id == *id));
        let dumps = open.iter().map(|dump| self.dump(dump, clock_ns, seconds)).collect();
        Status {
            elapsed_s: self.began.elapsed().as_secs_f64(),
            packets_per_s: workers.iter().map(|worker| worker.packets_per_s).sum(),
            bits_per_s: workers.iter().map(|worker| worker.bits_per_s).sum(),
            counts: total,
            adds_up: counters.add_up(),
            depth_ns: oldest_ns.map_or(0, |oldest_ns| (heard_ns - oldest_ns).max(0)),
            lanes,
            triggers: trigger_status(shared),
            dumps_open: open.len(),
            dumps_done: shared.dumps.done(),
            hits: hits_by_trigger.iter().map(|(_, hits)| hits.total()).sum(),
            hits_by_trigger,
            stores,
            scripts: shared.scripts.status(seconds),
            groups: shared.attach.as_ref().map(|attach| attach.status().groups).unwrap_or_default(),
            source_rules: shared.source_rules.taken(),
            stats: shared.statistics.as_ref().map(|statistics| statistics.status()),
            space: None,
            workers,
            sources,
            interfaces,
            dumps,
            nics: Vec::new(),
        }
    }

    /// Looks for the last time, at the end of the run: of its volumes the rate is that of the whole run.
    pub(crate) fn take_last(&mut self, shared: &Shared) -> Status {
        let mut status = self.take(shared);
        let seconds = status.elapsed_s.max(1e-9);
        for report in &mut status.stores {
            report.bytes_per_s = report.stored.bytes as f64 / seconds;
            report.has_ended = true;
        }
        status
    }

    fn dump(&mut self, dump: &OpenDump, clock_ns: i64, seconds: f64) -> DumpStatus {
        let now = dump.progress.written();
        let (packets_per_s, bits_per_s) = rates(self.dumps.entry(dump.id).or_default(), now, seconds);
        DumpStatus {
            id: dump.id,
            trigger: dump.trigger.clone(),
            packets: now.0,
            packets_per_s,
            bits_per_s,
            lag_ns: (dump.window.to_ns() - clock_ns).max(0),
        }
    }

    /// What was dropped since the last call.
    pub(crate) fn new_drops(&mut self) -> Vec<(DropReason, u64)> {
        let before = std::mem::replace(&mut self.dropped_told, self.dropped);
        let new = self.dropped.iter().map(|(reason, packets)| (reason, packets - before.get(reason)));
        new.filter(|(_, packets)| *packets > 0).collect()
    }
}

/// What the workers reported last, one look at each: of each its source, then each live interface, all
/// workers' shares together. `names` are the workers' sources.
pub fn reported(names: &[String], reports: &mut [ReportReader]) -> (Vec<SourceStatus>, Vec<InterfaceStatus>) {
    let (mut sources, mut interfaces): (_, Vec<InterfaceStatus>) = (Vec::new(), Vec::new());
    let mut places = HashMap::new();
    for (source, report) in names.iter().zip(reports) {
        let report = report.look();
        let (counters, failure) = (report.counters, report.failure.clone());
        sources.push(SourceStatus { source: source.clone(), counters, failure });
        for part in &report.interfaces {
            // Two of one name are two as long as one of them is called otherwise.
            let place = places
                .entry((source, part.interface.clone(), part.called.clone()))
                .or_insert(interfaces.len());
            match interfaces.get_mut(*place) {
                Some(entry) => entry.counters.add(&part.counters),
                None => interfaces.push(InterfaceStatus {
                    source: source.clone(),
                    interface: part.interface.clone(),
                    called: part.called.clone(),
                    counters: part.counters,
                }),
            }
        }
    }
    (sources, interfaces)
}

fn rates(last: &mut (u64, u64), now: (u64, u64), seconds: f64) -> (f64, f64) {
    let before = std::mem::replace(last, now);
    ((now.0 - before.0) as f64 / seconds, (now.1 - before.1) as f64 * 8.0 / seconds)
}

/// What the ring holds of a lane. Only its first and its last segment are pinned, for a moment.
fn lane_status(shared: &Shared, lane: u32) -> LaneStatus {
    let ring = &shared.ring;
    let segments = ring.segment_ids(lane, 0).count() as u64;
    let first_ns = ring.segment_ids(lane, 0).filter_map(|id| ring.pin(id)).next().and_then(|pinned| {
        let first = pinned.blocks(0, pinned.committed().bytes).next()?;
        Some(first.time_ns())
    });
    let newest = ring.lane_next(lane).checked_sub(1).and_then(|last| ring.pin(ring.segment_id(lane, last)));
    let LaneInfo { worker, link_type } = ring.lane_info(lane);
    LaneStatus {
        worker,
        link_type,
        packets: newest.map_or(0, |last| last.first_packet() + u64::from(last.committed().packets)),
        segments,
        bytes: segments * ring.segment_bytes() as u64,
        oldest_ns: first_ns,
    }
}

/// The triggers in force.
/// The triggers in force.
pub(crate) fn trigger_status(shared: &Shared) -> Vec<TriggerStatus> {
    let status = |trigger: &Arc<Trigger>| TriggerStatus {
        config: trigger.config().clone(),
        armed: trigger.armed(),
        counts: trigger.counts(),
    };
    shared.triggers.current().all().iter().map(status).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report;
    use scope_packet::Sink;
    use scope_source::{InterfaceCounters, Polled, Source, Timing};

    /// Interfaces by name and by what they are called, with packets received.
    struct Counted(Vec<(&'static str, &'static str, u64)>);

    impl Source for Counted {
        fn name(&self) -> &str {
            "counted"
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
            let received = self.0.iter().map(|(_, _, received)| received).sum();
            SourceCounters { received, offered: received, ..SourceCounters::default() }
        }

        fn stop(&mut self) {}

        fn interface_counters(&mut self, into: &mut Vec<InterfaceCounters>, _: &mut Vec<usize>) {
            into.extend(self.0.iter().map(|&(interface, called, received)| InterfaceCounters {
                interface: interface.into(),
                called: called.into(),
                counters: SourceCounters { received, offered: received, ..SourceCounters::default() },
            }));
        }
    }

    #[test]
    fn shares_of_an_interface_are_summed_and_each_report_is_looked_at_once() {
        let workers = [
            vec![("va", "va", 1), ("vb", "vb", 10)],
            vec![("va", "va", 2), ("va", "vx", 4)],
            vec![("va", "va", 100)],
        ];
        let names = ["afpacket:v*", "afpacket:v*", "afpacket:va"].map(str::to_string);
        let mut reports: Vec<ReportReader> = Vec::new();
        for interfaces in workers {
            let (mut reporter, reader) = report::begin();
            reporter.report(&mut Counted(interfaces));
            reporter.end(None);
            reports.push(reader);
        }
        let (sources, interfaces) = reported(&names, &mut reports);
        let of_source: Vec<_> =
            sources.iter().map(|entry| (&entry.source[..], entry.counters.received)).collect();
        assert_eq!(of_source, [("afpacket:v*", 11), ("afpacket:v*", 6), ("afpacket:va", 100)]);
        let told = |entry: &InterfaceStatus| {
            (entry.interface.to_string(), entry.called.to_string(), entry.counters.received)
        };
        let found: Vec<_> = interfaces.iter().map(|entry| (&entry.source[..], told(entry))).collect();
        let entry = |source, interface: &str, called: &str, received| {
            (source, (interface.to_string(), called.to_string(), received))
        };
        let expected = [
            entry("afpacket:v*", "va", "va", 3),
            entry("afpacket:v*", "vb", "vb", 10),
            entry("afpacket:v*", "va", "vx", 4),
            entry("afpacket:va", "va", "va", 100),
        ];
        assert_eq!(found, expected, "the same name of another source is another entry");
    }
}
