//! What a run says at its end: plain values; [`Summary::to_json`] spells them as the contract has them.

use crate::attach::GroupStatus;
use crate::dump_reports::DumpTotals;
use crate::exec::ExecCounts;
use crate::failure::Failure;
use crate::interfaces::InterfaceStatus;
use crate::nic_watch::{NicStatus, nic_facts};
use crate::script_status::ScriptStatus;
use crate::source_rules::SourceRule;
use crate::space::SpaceSummary;
use crate::statistics::StatsStatus;
use scope_dump::evidence::{Counted, CountedSpan};
use scope_dump::{DumpReport, Waited};
use scope_events::Fact;
use scope_events::counts::{
    self, ByWord, Clock, CounterReading, CounterSpan, Dump, InterfaceCounts, Offered, SourceCounts, Span,
    Totals,
};
use scope_events::fact::{Counters, Flat, Rare};
use scope_machine::ClockState;
use scope_packet::{DropReason, Drops, Gap};
use scope_source::SourceCounters;
use scope_spelling::time::iso;
use scope_store::VolumeReport;
use scope_store::report::RecoveryReport;
use scope_trigger::HitCounts;
use serde_json::Value;
use std::path::Path;

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
    /// Packets older than their worker's clock less its grace: windows that they belong to may have been
    /// over.
    pub late: u64,
    /// Every network card under a live source: its counters since the run began, apart from packet accounting.
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
    /// Comments, names and secrets of capture files that were omitted from dumps at the bound.
    pub annexes_left_out: u64,
    /// Packets whose time lay outside of what is stored.
    pub time_clamped: u64,
    /// Packets that were cut although no snap length asked for it: by the kernel, to the most that is kept, or to what
    /// a segment can keep.
    pub cut: u64,
    /// Of these: cut to what a segment can keep.
    pub cut_by_segment: u64,
    /// The volumes of the store.
    pub stores: Vec<VolumeReport>,
    /// The scripts, in the order of their triggers.
    pub scripts: Vec<ScriptStatus>,
    /// The ring itself and every group, where other programs could attach.
    pub groups: Vec<GroupStatus>,
    /// Rules of sources, and what each has taken.
    pub source_rules: Vec<SourceRule>,
    /// Traffic statistics, if there are any.
    pub stats: Option<StatsStatus>,
    /// The latest capture time, ns.
    pub heard_ns: Option<i64>,
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
    /// Dumps that [`Summary::dumps`] omits.
    pub fn dumps_left_out(&self) -> u64 {
        self.dump_totals.dumps.saturating_sub(self.dumps.len() as u64)
    }

    /// The object of `--summary json`.
    pub fn to_json(&self) -> Value {
        let dumps = self.dumps.iter().map(dump).collect();
        counts::Summary { totals: Flat(self.facts()), dumps }.write()
    }

    /// All of it but its dumps, as summary and log have it.
    pub(crate) fn facts(&self) -> Totals {
        Totals {
            received: self.received.facts(),
            stored: self.stored.facts(),
            filtered: self.filtered.facts(),
            dropped: dropped(&self.dropped),
            hits: self.hits.iter().map(|(name, counts)| (name.clone(), hits(counts))).collect(),
            hits_rationed: self.hits.iter().map(|(_, counts)| counts.rationed).sum(),
            dumps_left_out: self.dumps_left_out(),
            dump_totals: Some(totals(&self.dump_totals)),
            ring_out: self.ring_out.iter().map(path).collect(),
            memory: self.memory.clone(),
            unreadable: self.unreadable,
            stepped_back: self.stepped_back,
            strays: self.strays,
            set_back: self.set_back,
            late: self.late,
            sources: self
                .sources
                .iter()
                .enumerate()
                .map(|(worker, (spec, counters))| source(worker, spec, counters))
                .collect(),
            interfaces: self.interfaces.iter().map(interface).collect(),
            nic: nic_facts(&self.nics),
            adds_up: self.adds_up,
            time_clamped: self.time_clamped,
            annexes_left_out: self.annexes_left_out,
            cut: self.cut,
            cut_by_segment: Some(self.cut_by_segment),
            stores: self.stores.iter().map(volume).collect(),
            scripts: self.scripts.iter().map(script).collect(),
            groups: self.groups.iter().map(GroupStatus::facts).collect(),
            source_rules: self.source_rules.iter().map(SourceRule::facts).collect(),
            stats: self.stats.as_ref().map(StatsStatus::facts),
            dump_space: self.space.as_ref().map(SpaceSummary::facts),
            exec: self.exec.as_ref().map(exec),
            warnings: self.warnings.clone(),
            failures: self.failures.iter().map(|failure| failure.fault.to_string()).collect(),
        }
    }
}

impl Amount {
    /// As summary and log have it.
    pub(crate) fn facts(&self) -> counts::Amount {
        counts::Amount { packets: self.packets, bytes: self.bytes }
    }
}

/// One volume of the store.
pub(crate) fn volume(report: &VolumeReport) -> counts::Volume {
    let amount =
        |amount: scope_store::Amount| counts::Amount { packets: amount.packets, bytes: amount.bytes };
    counts::Volume {
        path: report.path.display().to_string(),
        stored: amount(report.stored),
        filtered: amount(report.filtered),
        missed: amount(report.missed),
        behind: amount(report.behind),
        deleted: amount(report.deleted),
        behind_ms: report.behind_ns as u64 / 1_000_000,
        bytes_per_s: report.bytes_per_s as u64,
        reaches_back_s: report.reach_ns().map(|reach_ns| reach_ns.max(0) as u64 / 1_000_000_000),
        budget: report.budget,
        used: report.used,
        oldest: report.oldest_ns.map(iso),
        files: report.files,
        state: report.state.word().to_string(),
        way: report.way.clone(),
        error: report.error.clone(),
        chain: report.chain.map(|head| head.to_string()),
        missed_span: report.missed_span_ns.map(|(from_ns, to_ns)| span(from_ns, to_ns)),
        recovery: report.recovery.as_ref().map(recovery),
    }
}

/// One script.
pub(crate) fn script(status: &ScriptStatus) -> counts::Script {
    counts::Script {
        name: status.name.clone(),
        file: status.file.clone(),
        kind: status.kind.to_string(),
        packets: status.packets,
        packets_per_s: status.packets_per_s,
        missed: status.missed,
        behind: status.behind,
        hits: status.hits,
        errors: status.errors,
        ticks: status.ticks,
        memory_bytes: status.memory_bytes,
        flows: status.flows,
        flows_evicted: status.flows_evicted,
        cpu_ns: status.cpu_ns,
        cpu: status.cpu,
        disabled: status.disabled.clone(),
        report: status.report.clone(),
    }
}

/// What became of files of a volume that were left growing.
pub(crate) fn recovery(report: &RecoveryReport) -> counts::Recovery {
    counts::Recovery {
        files: report.files,
        files_done: report.files_done,
        bytes: report.bytes,
        bytes_done: report.bytes_done,
        closed: report.closed,
        removed: report.removed,
        segments: report.kept.segments,
        packets: report.kept.packets,
        block_bytes: report.kept.block_bytes,
        cut_off: report.cut.packets,
        cut_off_unknown: report.cut.unknown,
        took_s: report.took.as_secs_f64(),
    }
}

/// Dropped packets by reason: all reasons for which something that was offered can be dropped.
pub(crate) fn dropped(drops: &Drops) -> ByWord {
    let own = DropReason::ALL.iter().filter(|&&reason| reason != DropReason::File);
    own.map(|&reason| (reason.name().to_string(), drops.get(reason))).collect()
}

/// One source's side of packet accounting: live `offered = kernel_dropped + waiting + received`, files
/// `offered = received + unreadable`, generated traffic `offered = received`.
pub(crate) fn source(worker: usize, spec: &str, counters: &SourceCounters) -> SourceCounts {
    SourceCounts { source: spec.to_string(), worker: worker as u64, counts: Flat(offered(counters)) }
}

/// The same of one live interface, over all the times that it was there.
fn interface(entry: &InterfaceStatus) -> InterfaceCounts {
    InterfaceCounts {
        interface: entry.interface.to_string(),
        called: entry.called.to_string(),
        source: entry.source.clone(),
        counts: Flat(offered(&entry.counters)),
    }
}

/// Each interface's counters, as the summary has them.
pub fn interfaces(entries: &[InterfaceStatus]) -> Vec<Value> {
    entries.iter().map(|entry| interface(entry).write()).collect()
}

fn offered(counters: &SourceCounters) -> Offered {
    let gone = counters.received + counters.kernel_dropped + counters.unreadable;
    Offered {
        offered: counters.offered,
        received: counters.received,
        kernel_dropped: counters.kernel_dropped,
        unreadable: counters.unreadable,
        waiting: counters.offered.saturating_sub(gone),
    }
}

fn exec(counts: &ExecCounts) -> counts::ExecCounts {
    counts::ExecCounts {
        started: counts.started,
        failed: counts.failed,
        timed_out: counts.timed_out,
        exec_skipped: counts.skipped,
    }
}

/// Hits of one trigger by verdict.
pub(crate) fn hits(counts: &HitCounts) -> ByWord {
    counts.each().into_iter().map(|(verdict, hits)| (verdict.to_string(), hits)).collect()
}

/// Sums over all dumps.
fn totals(totals: &DumpTotals) -> counts::DumpTotals {
    counts::DumpTotals {
        dumps: totals.dumps,
        incomplete: totals.incomplete,
        failed: totals.failed,
        packets: totals.packets,
        bytes: totals.bytes,
        lost_min: totals.lost_min,
        lost_max: known(totals.lost_max),
    }
}

/// A number of packets; `None` where nobody can know it.
fn known(packets: u64) -> Option<u64> {
    (packets < u64::MAX).then_some(packets)
}

/// A path as JSON can hold it: what is no UTF-8 is replaced.
fn path(path: impl AsRef<Path>) -> String {
    path.as_ref().to_string_lossy().into_owned()
}

fn span(from_ns: i64, to_ns: i64) -> Span {
    Span { from: iso(from_ns), to: iso(to_ns) }
}

/// One entry of a dump's `gaps`.
fn gap(gap: &Gap) -> counts::Gap {
    counts::Gap {
        span: Flat(span(gap.from_ns, gap.to_ns)),
        reason: gap.reason.name().to_string(),
        lost_min: gap.lost_min,
        lost_max: gap.lost_max,
    }
}

/// The state of the host's clock.
pub(crate) fn clock(state: ClockState) -> Option<Clock> {
    match state {
        ClockState::Unknown => None,
        ClockState::NotSynchronised => Some(Clock::default()),
        ClockState::Synchronised { estimated_error_us, error_max_us } => Some(Clock {
            synchronised: true,
            estimated_error_us: Rare(Some(estimated_error_us)),
            error_max_us: Rare(Some(error_max_us)),
        }),
    }
}

/// What an interface had counted at the begin and the end of a dump's window.
fn counted(span: &CountedSpan) -> CounterSpan {
    let reading = |reading: &Counted| CounterReading {
        at: iso(reading.at_ns),
        counts: Counters(reading.counts.iter().map(|(name, count)| (name.to_string(), *count)).collect()),
    };
    CounterSpan {
        interface: span.interface.to_string(),
        begin: reading(&span.begin),
        end: reading(&span.end),
    }
}

/// For what a dump waited, seconds.
fn waited(waited: &Waited) -> counts::Waited {
    counts::Waited {
        longest_s: waited.reading.longest.as_secs_f64(),
        total_s: waited.reading.total.as_secs_f64(),
        pins_full_s: waited.pins_full.as_secs_f64(),
        closing_s: waited.closing.as_secs_f64(),
    }
}

/// One entry of `dumps`, and the facts of the event `dump`.
pub fn dump(report: &DumpReport) -> Dump {
    let missing = report.missing.filter(|_| !report.complete);
    Dump {
        id: report.id,
        trigger: report.trigger.to_string(),
        time: iso(report.time_ns),
        filter: report.filter.to_string(),
        script: Rare(report.script.clone()),
        gave_up: Rare(report.gave_up.clone()),
        asked: span(report.asked.0, report.asked.1),
        window: Flat(span(report.from_ns, report.to_ns)),
        gaps: report.gaps.iter().map(gap).collect(),
        gaps_folded: report.gaps_folded,
        packets: report.packets,
        bytes: report.bytes,
        cut: report.cut,
        lost_min: report.lost_min,
        lost_max: known(report.lost_max),
        missing: missing.map(|(from_ns, to_ns)| span(from_ns, to_ns)),
        complete: report.complete,
        path: report.paths.first().map(path),
        paths: report.paths.iter().map(path).collect(),
        clock: clock(report.circumstances.clock),
        times: report.circumstances.times.iter().map(|source| source.name().to_string()).collect(),
        counters: report.circumstances.counters.iter().map(counted).collect(),
        hits: report.hits,
        waited: Some(waited(&report.waited)),
        error: report.error.clone(),
    }
}
