//! What a run says of itself at its two ends: the log's event `start`, and the summary with the event `end`.

use super::Run;
use crate::clock_state;
use crate::dump_reports;
use crate::failure::Failure;
use crate::live;
use crate::nic_watch::NicStatus;
use crate::refused::Refused;
use crate::rights::Rights;
use crate::status::interfaces;
use crate::summary::{Amount, Summary, clock};
use crate::worker::WorkerReport;
use scope_dump::Target;
use scope_dump::time_text::iso;
use scope_packet::LinkType;
use scope_ring::RingMemory;
use serde_json::json;
use std::io::ErrorKind;
use std::sync::Mutex;

impl Run {
    pub(super) fn log_start(&self, memory: &RingMemory, notes: &[String]) {
        let ring = &self.shared.ring;
        let in_force = self.shared.triggers.current();
        let triggers: Vec<_> = in_force
            .triggers
            .iter()
            .map(|trigger| trigger.config())
            .map(|trigger| {
                json!({
                    "name": trigger.name,
                    "filter": trigger.filter.text(),
                    "dump": trigger.template.as_ref().map(|template| template.text()),
                    "before_ns": trigger.before_ns,
                    "after_ns": trigger.after_ns,
                    "holdoff_ns": trigger.holdoff_ns,
                    "single": trigger.single,
                })
            })
            .collect();
        let (host, kernel) = clock_state::host();
        self.shared.dumps.evidence().set_host(&host, &kernel, clock_state::now);
        self.shared.events.log(
            "start",
            json!({
                "version": env!("CARGO_PKG_VERSION"),
                "host": host,
                "kernel": kernel,
                "clock": clock(clock_state::now()),
                "sources": self.fixed.sources.iter().map(|source| &source.spec).collect::<Vec<_>>(),
                "ring_bytes": ring.segments() as u64 * ring.segment_bytes() as u64,
                "segment_bytes": ring.segment_bytes(),
                "memory": memory.to_string(),
                "rights": self.rights.as_ref().map(Rights::to_string),
                "triggers": triggers,
                "config": self.fixed.config,
                "capture": live::settings(&self.fixed),
                "notes": notes,
            }),
        );
    }

    /// A pipe for which no dump came gets a header, so that its reader sees a capture without packets.
    fn write_nothing(&self) -> Option<Failure> {
        let output = &self.outputs.dump;
        if !matches!(output.target, Target::Stream(_)) || self.shared.dumps.done() > 0 {
            return None;
        }
        let fallback = self.fixed.link_types.first().copied().unwrap_or(LinkType::ETHERNET);
        let written = scope_dump::write_nothing(output, &self.shared.ring, fallback);
        // Who reads no more needs no header.
        let error = written.err().filter(|error| error.kind() != ErrorKind::BrokenPipe)?;
        Some(Failure::of_error("the empty capture couldn't be written", &error))
    }

    /// Makes one file of all windows, where that was asked for; why it lacks something that no dump lacks.
    fn write_together(&self) -> Option<Failure> {
        let output = &self.outputs.dump;
        let report = output.together.as_ref()?.finish(output, &self.shared.ring, self.shared.dumps.shared_evidence())?;
        self.shared.events.log("together", crate::summary::dump(&report));
        report.error.map(|error| format!("the file of all windows is incomplete: {error}").into())
    }

    /// Draws up the summary, writes the ring out, closes the log.
    pub(super) fn finish(
        self,
        names: Vec<String>,
        reports: Vec<Mutex<WorkerReport>>,
        nics: Vec<NicStatus>,
        warnings: Vec<String>,
        mut failures: Vec<Failure>,
        refused: &Refused,
    ) -> Summary {
        let mut summary = Summary { warnings, nics, ..Summary::default() };
        let counters = self.shared.ring.counters();
        summary.adds_up = counters.add_up();
        let total = counters.total();
        summary.late = total.late_packets;
        summary.strays = total.stray_packets;
        summary.set_back = self.shared.steps.era();
        summary.received = Amount { packets: total.received_packets, bytes: total.received_bytes };
        summary.stored = Amount { packets: total.stored_packets, bytes: total.stored_bytes };
        summary.filtered = Amount { packets: total.filtered_packets, bytes: total.filtered_bytes };
        summary.dropped = total.dropped;
        summary.cut = total.cut_packets;
        summary.cut_by_segment = total.cut_by_segment_packets;
        summary.memory = self.shared.ring.memory().to_string();
        summary.interfaces = interfaces(&names, &reports);
        for (name, report) in names.into_iter().zip(reports) {
            let report = report.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
            summary.unreadable += report.counters.unreadable;
            summary.stepped_back += report.counters.stepped_back;
            summary.set_back += report.counters.set_back;
            summary.time_clamped += report.counters.time_clamped;
            if let Some(failure) = report.failure {
                let reason = failure.reason();
                let cause = format!("source failed: {}", reason.why());
                failures.push(reason.cause(cause).into());
            }
            summary.sources.push((name, report.counters));
        }
        summary.hits = self.shared.triggers.counts();
        let dumps = self.shared.dumps.reports();
        (summary.dumps, summary.dump_totals) = (dumps.kept(), dumps.totals());
        summary.annexes_left_out = self.shared.dumps.evidence().annexes.left_out();
        summary.space = self.space.summary();
        summary.exec = self.exec.as_ref().map(|exec| exec.counts());
        failures.extend(self.lost.take().into_iter().map(Failure::from));
        let (refused_warnings, refused_failures) = refused.end(&summary.hits, &self.bounds());
        summary.warnings.extend(refused_warnings);
        failures.extend(refused_failures.into_iter().map(Failure::from));
        failures.extend(dump_reports::failures(&summary.dumps, &summary.dump_totals));
        failures.extend(self.write_together());
        failures.extend(self.write_nothing());
        if let Some((folder, name)) = &self.outputs.ring_out {
            match scope_store::write_ring(&self.shared.ring, folder, name) {
                Ok(paths) => summary.ring_out = paths,
                Err(error) => failures.push(Failure::of_error("the ring couldn't be written out", &error)),
            }
        }
        summary.failures = failures;
        let mut end = summary.to_json();
        if let Some(end) = end.as_object_mut() {
            end.remove("dumps"); // each has its own line
            let heard = self.shared.ring.heard();
            let spared = self.shared.dumps.spared();
            end.insert(
                "scans".into(),
                json!({
                    "shared_packets": spared.packets_shared,
                    "skipped_segments": spared.segments_skipped,
                    "early_packets": spared.packets_early,
                }),
            );
            let buffered = self.shared.dumps.buffered();
            let most = json!({"bytes_most": buffered.bytes_most, "early_writes": buffered.early_writes});
            end.insert("write_buffers".into(), most);
            let budget = self.shared.ring.budget();
            end.insert("pins".into(), json!({"segments": budget.segments(), "dumps_without": budget.refused()}));
            end.insert("first".into(), heard.map(|(first_ns, _)| iso(first_ns)).into());
            end.insert("last".into(), heard.map(|(_, last_ns)| iso(last_ns)).into());
        }
        self.shared.events.flush_hits();
        self.shared.events.log("end", end);
        if let Err(error) = self.shared.events.close() {
            summary.failures.push(Failure::of_error("the event log is incomplete", &error));
        }
        summary
    }
}
