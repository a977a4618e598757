//! What a run says at its end: plain values; [`Summary::to_json`] spells them as the contract has them.

use crate::dump_reports::DumpTotals;
use crate::exec::ExecCounts;
use crate::failure::Failure;
use crate::nic_watch::{NicStatus, nics_json};
use crate::space::SpaceSummary;
use crate::status::InterfaceStatus;
use scope_dump::evidence::{ClockState, Counted, CountedSpan};
use scope_dump::time_text::iso;
use scope_dump::{DumpReport, Waited};
use scope_packet::{DropReason, Drops, Gap};
use scope_source::SourceCounters;
use scope_trigger::HitCounts;
use serde_json::{Map, Value, json};

/// Packets and their captured bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    /// Packets.
    pub packets: u64,
    /// Captured bytes.
    pub bytes: u64,
}

/// One finished dump.
pub type DumpSummary = DumpReport;

/// A run, finished.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// What workers received from their sources; what the kernel dropped before stands in `dropped` only.
    pub received: Amount,
    /// What was written into the ring.
    pub stored: Amount,
    /// What a prefilter refused.
    pub filtered: Amount,
    /// Dropped packets by reason.
    pub dropped: Drops,
    /// Hits by trigger, in the order of the triggers; fires by hand stand as `manual`.
    pub hits: Vec<(String, HitCounts)>,
    /// The newest dumps, in the order of their numbers; see [`crate::dump_reports::REPORTS_MAX`].
    pub dumps: Vec<DumpSummary>,
    /// Sums over all dumps.
    pub dump_totals: DumpTotals,
    /// Whole-ring files, if asked for.
    pub ring_out: Vec<std::path::PathBuf>,
    /// What the ring's memory was, in plain words.
    pub memory: String,
    /// Packets in files that couldn't be read.
    pub unreadable: u64,
    /// Packets older than their worker's clock less its grace: windows that they belong to may have been over.
    pub late: u64,
    /// Every network card under a live source: its counters since the run began, beside the law.
    pub nics: Vec<NicStatus>,
    /// Every source's own counters, one entry per worker: its text and the counters.
    pub sources: Vec<(String, SourceCounters)>,
    /// Every live interface's counters, all its workers together.
    pub interfaces: Vec<InterfaceStatus>,
    /// Every worker's numbers add up.
    pub adds_up: bool,
    /// Packets older than one before them in their source.
    pub stepped_back: u64,
    /// Packets whose time is not believed: it moved no clock.
    pub strays: u64,
    /// How often capture time was set back.
    pub set_back: u64,
    /// Comments, names and secrets of capture files that were left out of dumps at the bound.
    pub annexes_left_out: u64,
    /// Packets whose time lay outside of what is stored.
    pub time_clamped: u64,
    /// Packets that were cut though nobody asked for it: by the kernel, to the most that is kept, or to what a segment can keep.
    pub cut: u64,
    /// Of these: cut to what a segment can keep.
    pub cut_by_segment: u64,
    /// What dumps take, where that is bounded.
    pub space: Option<SpaceSummary>,
    /// What became of commands after dumps, where there are any.
    pub exec: Option<ExecCounts>,
    /// Warnings that came up, in plain words.
    pub warnings: Vec<String>,
    /// Something that was promised and not done: exit code 1.
    pub failures: Vec<Failure>,
}

impl Summary {
    /// Dumps that [`Summary::dumps`] leaves out.
    pub fn dumps_left_out(&self) -> u64 {
        self.dump_totals.dumps.saturating_sub(self.dumps.len() as u64)
    }

    /// The object of `--summary json`.
    pub fn to_json(&self) -> Value {
        let amount = |amount: &Amount| json!({"packets": amount.packets, "bytes": amount.bytes});
        let dropped: Map<String, Value> =
            DropReason::ALL.iter().map(|&reason| (reason.name().to_string(), self.dropped.get(reason).into())).collect();
        let hits: Map<String, Value> = self.hits.iter().map(|(name, counts)| (name.clone(), hits(counts))).collect();
        json!({
            "received": amount(&self.received),
            "stored": amount(&self.stored),
            "filtered": amount(&self.filtered),
            "dropped": dropped,
            "hits": hits,
            "hits_rationed": self.hits.iter().map(|(_, counts)| counts.rationed).sum::<u64>(),
            "dumps": self.dumps.iter().map(dump).collect::<Vec<_>>(),
            "dumps_left_out": self.dumps_left_out(),
            "dump_totals": totals(&self.dump_totals),
            "ring_out": self.ring_out,
            "memory": self.memory,
            "unreadable": self.unreadable,
            "stepped_back": self.stepped_back,
            "strays": self.strays,
            "set_back": self.set_back,
            "late": self.late,
            "sources": self.sources.iter().enumerate().map(source).collect::<Vec<_>>(),
            "interfaces": self.interfaces.iter().map(interface).collect::<Vec<_>>(),
            "nic": nics_json(&self.nics),
            "adds_up": self.adds_up,
            "time_clamped": self.time_clamped,
            "annexes_left_out": self.annexes_left_out,
            "cut": self.cut,
            "cut_by_segment": self.cut_by_segment,
            "dump_space": self.space.as_ref().map(SpaceSummary::to_json),
            "exec": self.exec.as_ref().map(exec),
            "warnings": self.warnings,
            "failures": self.failures.iter().map(|failure| failure.fault.to_string()).collect::<Vec<_>>(),
        })
    }
}

/// One source's side of the conservation law: live `offered = kernel_dropped + waiting + received`, files
/// `offered = received + unreadable`, generated traffic `offered = received`.
pub(crate) fn source((worker, (spec, counters)): (usize, &(String, SourceCounters))) -> Value {
    let mut value = law(counters);
    value["source"] = spec.as_str().into();
    value["worker"] = worker.into();
    value
}

/// The same of one live interface, over all the times that it was there.
fn interface(entry: &InterfaceStatus) -> Value {
    let mut value = law(&entry.counters);
    value["interface"] = entry.interface[..].into();
    value["called"] = entry.called[..].into();
    value["source"] = entry.source.as_str().into();
    value
}

fn law(counters: &SourceCounters) -> Value {
    let gone = counters.received + counters.kernel_dropped + counters.unreadable;
    json!({
        "offered": counters.offered,
        "received": counters.received,
        "kernel_dropped": counters.kernel_dropped,
        "unreadable": counters.unreadable,
        "waiting": counters.offered.saturating_sub(gone),
    })
}

fn exec(counts: &ExecCounts) -> Value {
    json!({
        "started": counts.started,
        "failed": counts.failed,
        "timed_out": counts.timed_out,
        "exec_skipped": counts.skipped,
    })
}

/// Hits of one trigger by verdict.
pub(crate) fn hits(counts: &HitCounts) -> Value {
    Value::Object(counts.each().map(|(verdict, hits)| (verdict.to_string(), hits.into())).into_iter().collect())
}

/// Sums over all dumps.
fn totals(totals: &DumpTotals) -> Value {
    json!({
        "dumps": totals.dumps,
        "incomplete": totals.incomplete,
        "failed": totals.failed,
        "packets": totals.packets,
        "bytes": totals.bytes,
        "lost_min": totals.lost_min,
        "lost_max": known(totals.lost_max),
    })
}

/// A number of packets; `null` where nobody can know it.
fn known(packets: u64) -> Option<u64> {
    (packets < u64::MAX).then_some(packets)
}

/// One entry of a dump's `gaps`.
fn gap(gap: &Gap) -> Value {
    json!({
        "from": iso(gap.from_ns),
        "to": iso(gap.to_ns),
        "reason": gap.reason.name(),
        "lost_min": gap.lost_min,
        "lost_max": gap.lost_max,
    })
}

/// The state of the host's clock.
pub(crate) fn clock(state: ClockState) -> Value {
    match state {
        ClockState::Unknown => Value::Null,
        ClockState::NotSynchronised => json!({"synchronised": false}),
        ClockState::Synchronised { estimated_error_us, error_max_us } => {
            json!({"synchronised": true, "estimated_error_us": estimated_error_us, "error_max_us": error_max_us})
        }
    }
}

/// What an interface had counted at the begin and the end of a dump's window.
fn counted(span: &CountedSpan) -> Value {
    let reading = |reading: &Counted| {
        let mut object: Map<String, Value> =
            reading.counts.iter().map(|(name, count)| (name.to_string(), (*count).into())).collect();
        object.insert("at".into(), iso(reading.at_ns).into());
        Value::from(object)
    };
    json!({"interface": &span.interface[..], "begin": reading(&span.begin), "end": reading(&span.end)})
}

/// For what a dump waited, seconds.
fn waited(waited: &Waited) -> Value {
    json!({
        "longest_s": waited.reading.longest.as_secs_f64(),
        "total_s": waited.reading.total.as_secs_f64(),
        "pins_full_s": waited.pins_full.as_secs_f64(),
        "closing_s": waited.closing.as_secs_f64(),
    })
}

/// One entry of `dumps`.
pub fn dump(report: &DumpReport) -> Value {
    let missing = report.missing.filter(|_| !report.complete);
    json!({
        "id": report.id,
        "trigger": report.trigger,
        "time": iso(report.time_ns),
        "filter": report.filter,
        "asked": {"from": iso(report.asked.0), "to": iso(report.asked.1)},
        "from": iso(report.from_ns),
        "to": iso(report.to_ns),
        "gaps": report.gaps.iter().map(gap).collect::<Vec<_>>(),
        "gaps_folded": report.gaps_folded,
        "packets": report.packets,
        "bytes": report.bytes,
        "cut": report.cut,
        "lost_min": report.lost_min,
        "lost_max": known(report.lost_max),
        "missing": missing.map(|(from_ns, to_ns)| json!({"from": iso(from_ns), "to": iso(to_ns)})),
        "complete": report.complete,
        "path": report.paths.first(),
        "paths": report.paths,
        "clock": clock(report.circumstances.clock),
        "times": report.circumstances.times.iter().map(|source| source.name()).collect::<Vec<_>>(),
        "counters": report.circumstances.counters.iter().map(counted).collect::<Vec<_>>(),
        "hits": report.hits,
        "waited": waited(&report.waited),
        "error": report.error,
    })
}
