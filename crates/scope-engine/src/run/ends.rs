//! What a run says of itself at its two ends: the log's event `start`, and the summary with the event `end`.

use super::Run;
use crate::clock_state;
use crate::dump_reports;
use crate::live;
use crate::refused::Refused;
use crate::rights::Rights;
use crate::status::{SourceStatus, Status};
use crate::summary::{Amount, Summary, clock};
use scope_dump::Target;
use scope_dump::time_text::iso;
use scope_packet::LinkType;
use scope_ring::RingMemory;
use serde_json::json;
use std::io::ErrorKind;

impl Run {
    pub(super) fn log_start(&self, memory: &RingMemory, notes: &[String]) {
        let ring = &self.shared.ring;
        let triggers: Vec<_> = self
            .plan
            .triggers
            .iter()
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
                "sources": self.plan.sources.iter().map(|source| &source.spec).collect::<Vec<_>>(),
                "ring_bytes": ring.segments() as u64 * ring.segment_bytes() as u64,
                "segment_bytes": ring.segment_bytes(),
                "memory": memory.to_string(),
                "rights": self.rights.as_ref().map(Rights::to_string),
                "triggers": triggers,
                "config": self.plan.config,
                "capture": live::settings(&self.plan),
                "notes": notes,
            }),
        );
    }

    /// A pipe for which no dump came gets a header, so that its reader sees a capture without packets.
    fn write_nothing(&self) -> Option<String> {
        let output = &self.outputs.dump;
        if !matches!(output.target, Target::Stream(_)) || self.shared.dumps.done() > 0 {
            return None;
        }
        let fallback = self.plan.link_types.first().copied().unwrap_or(LinkType::ETHERNET);
        let written = scope_dump::write_nothing(output, &self.shared.ring, fallback);
        // Who reads no more needs no header.
        let error = written.err().filter(|error| error.kind() != ErrorKind::BrokenPipe)?;
        Some(format!("the empty capture couldn't be written: {error}"))
    }

    /// Makes one file of all windows, where that was asked for; why it lacks something that no dump lacks.
    fn write_together(&self) -> Option<String> {
        let output = &self.outputs.dump;
        let report = output.together.as_ref()?.finish(output, &self.shared.ring, self.shared.dumps.shared_evidence())?;
        self.shared.events.log("together", crate::summary::dump(&report));
        report.error.map(|error| format!("the file of all windows is incomplete: {error}"))
    }

    /// Draws up the summary from the last status, writes the ring out, closes the log.
    pub(super) fn finish(self, status: Status, warnings: Vec<String>, mut failures: Vec<String>, refused: &Refused) -> Summary {
        let Status { counts: total, adds_up, hits_by_trigger, sources, interfaces, nics, .. } = status;
        let mut summary = Summary { warnings, nics, interfaces, adds_up, ..Summary::default() };
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
        for SourceStatus { source, counters, failure } in sources {
            summary.unreadable += counters.unreadable;
            summary.stepped_back += counters.stepped_back;
            summary.set_back += counters.set_back;
            summary.time_clamped += counters.time_clamped;
            failures.extend(failure.map(|failure| format!("source failed: {failure}")));
            summary.sources.push((source, counters));
        }
        summary.hits = hits_by_trigger;
        let dumps = self.shared.dumps.reports();
        (summary.dumps, summary.dump_totals) = (dumps.kept(), dumps.totals());
        summary.annexes_left_out = self.shared.dumps.evidence().annexes.left_out();
        summary.space = self.space.summary();
        summary.exec = self.exec.as_ref().map(|exec| exec.counts());
        failures.extend(self.lost.take());
        let (refused_warnings, refused_failures) = refused.end(&summary.hits, &self.bounds());
        summary.warnings.extend(refused_warnings);
        failures.extend(refused_failures);
        failures.extend(dump_reports::failures(&summary.dumps, &summary.dump_totals));
        failures.extend(self.write_together());
        failures.extend(self.write_nothing());
        if let Some((folder, name)) = &self.outputs.ring_out {
            match scope_store::write_ring(&self.shared.ring, folder, name) {
                Ok(paths) => summary.ring_out = paths,
                Err(error) => failures.push(format!("the ring couldn't be written out: {error}")),
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
            summary.failures.push(format!("the event log is incomplete: {error}"));
        }
        summary
    }
}
