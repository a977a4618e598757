//! What a run says of itself at its two ends: the log's event `start`, and the summary with the event `end`.

use super::Run;
use crate::attach;
use crate::dump_reports;
use crate::failure::Failure;
use crate::live;
use crate::refused::Refused;
use crate::source_rules::{SourceRule, TakenByRule};
use crate::status::{SourceStatus, Status};
use crate::summary::{Amount, Summary, clock};
use scope_dump::Target;
use scope_events::event::{Armed, End, OrderCounts, Pins, ScanCounts, Start, Together, WriteBuffers};
use scope_events::fact::{Flat, Rare};
use scope_machine::clock;
use scope_packet::LinkType;
use scope_rights::Rights;
use scope_ring::RingMemory;
use scope_spelling::time::iso;
use std::io::ErrorKind;

impl Run {
    pub(super) fn log_start(&self, memory: &RingMemory, notes: &[String]) {
        let ring = &self.shared.ring;
        let in_force = self.shared.triggers.current();
        let triggers: Vec<_> = in_force
            .given()
            .iter()
            .map(|trigger| trigger.config())
            .map(|trigger| Armed {
                name: trigger.name.to_string(),
                filter: trigger.condition.filter().map(|filter| filter.text().to_string()),
                condition: Rare(
                    trigger
                        .condition
                        .filter()
                        .is_none()
                        .then(|| trigger.condition.text())
                        .flatten()
                        .map(str::to_string),
                ),
                when: Rare(trigger.when.as_ref().map(|when| when.text().to_string())),
                dump: trigger.response.template.as_ref().map(|template| template.text().to_string()),
                dump_script: Rare(trigger.response.script.as_ref().map(|script| script.file().to_string())),
                before_ns: trigger.response.before_ns,
                after_ns: trigger.response.after_ns,
                holdoff_ns: trigger.holdoff_ns,
                single: trigger.single,
            })
            .collect();
        let (host, kernel) = clock::host();
        self.shared.dumps.evidence().set_host(&host, &kernel, clock::now);
        let rules = self.shared.source_rules.clone();
        self.shared.dumps.evidence().set_rules(std::sync::Arc::new(move || {
            rules
                .taken()
                .iter()
                .filter(|rule| rule.taken != TakenByRule::default())
                .map(SourceRule::words)
                .collect()
        }));
        self.shared.events.log(Start {
            version: env!("CARGO_PKG_VERSION").to_string(),
            host,
            kernel,
            clock: clock(scope_machine::clock::now()),
            sources: self.fixed.sources.iter().map(|source| source.spec.clone()).collect(),
            ring_bytes: ring.segments() as u64 * ring.segment_bytes() as u64,
            segment_bytes: ring.segment_bytes() as u64,
            memory: memory.to_string(),
            pages: memory.kind.name().to_string(),
            rights: self.rights.as_ref().map(Rights::to_string),
            triggers,
            config: self.fixed.config.clone(),
            capture: live::settings(&self.fixed),
            notes: notes.to_vec(),
            ..Start::default()
        });
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
        let dumps = &self.shared.dumps;
        let report = output.spool.as_ref()?.finish(output, dumps.interfaces(), dumps.shared_evidence())?;
        self.shared.events.log(Together(crate::summary::dump(&report)));
        report.error.map(|error| format!("the file of all windows is incomplete: {error}").into())
    }

    /// Draws up the summary from the last status, writes the ring out, closes the log.
    pub(super) fn finish(
        self,
        status: Status,
        warnings: Vec<String>,
        mut failures: Vec<Failure>,
        refused: &Refused,
    ) -> Summary {
        let Status {
            counts: total,
            adds_up,
            hits_by_trigger,
            sources,
            interfaces,
            nics,
            stores,
            scripts,
            groups,
            source_rules,
            ..
        } = status;
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
            if let Some(failure) = failure {
                let reason = failure.reason();
                let cause = format!("source failed: {}", reason.why());
                failures.push(reason.cause(cause).into());
            }
            summary.sources.push((source, counters));
        }
        summary.hits = hits_by_trigger;
        let dumps = self.shared.dumps.reports();
        (summary.dumps, summary.dump_totals) = (dumps.kept(), dumps.totals());
        summary.heard_ns = self.shared.ring.heard().map(|(_, last_ns)| last_ns);
        if let Some(own) = &self.shared.stores {
            failures.extend(own.failures(&stores));
        }
        summary.stores = stores;
        failures.extend(self.shared.scripts.failures());
        summary.scripts = scripts;
        summary.warnings.extend(attach::warnings(&groups, &self.shared.ring));
        (summary.groups, summary.source_rules) = (groups, source_rules);
        failures.extend(self.shared.attach.iter().flat_map(|attach| attach.failures()).map(Failure::from));
        if let Some(statistics) = &self.shared.statistics {
            failures.extend(statistics.failure());
            summary.stats = Some(statistics.status());
        }
        summary.annexes_left_out = self.shared.dumps.evidence().annexes.omitted();
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
        let (heard, spared) = (self.shared.ring.heard(), self.shared.dumps.spared());
        let (buffered, budget) = (self.shared.dumps.buffered(), self.shared.ring.budget());
        let (taken, busy) = self.control.counts();
        let end = End {
            totals: Flat(summary.facts()),
            scans: ScanCounts {
                shared_packets: spared.packets_shared,
                skipped_segments: spared.segments_skipped,
                early_packets: spared.packets_early,
            },
            write_buffers: WriteBuffers {
                bytes_most: buffered.bytes_most,
                early_writes: buffered.early_writes,
            },
            orders: OrderCounts { taken, busy },
            pins: Pins { segments: budget.segments(), dumps_without: budget.refused() },
            audit: Rare(self.shared.events.audit().get()),
            first: heard.map(|(first_ns, _)| iso(first_ns)),
            last: heard.map(|(_, last_ns)| iso(last_ns)),
        };
        self.shared.events.flush_hits();
        self.shared.events.log(end);
        if let Err(error) = self.shared.events.close() {
            summary.failures.push(Failure::of_error("the event log is incomplete", &error));
        }
        summary
    }
}
