//! Facts out of the lines of a log: what each event adds to what is known of its run.

use super::facts::{
    Capture, DumpFacts, Facts, NicFacts, SourceFacts, State, StatsFacts, VolumeFacts, WaitedFacts,
};
use scope_events::counts::{self, ByWord, Dump, Nic, SourceCounts};
use scope_events::event::WarningKind;
use scope_events::{Content, Event, Line, event};
use scope_machine::home::Home;
use scope_machine::nic::{Altered, Softnet};
use std::collections::BTreeMap;

/// Incomplete dumps, and warnings, that are kept of a run; of more the first ones.
const KEPT_MAX: usize = 10_000;
/// A second took so long, seconds: the process stood still.
const STALLED_S: f64 = 2.5;
/// Part of a second from which a worker had no time left.
const BUSY: f64 = 0.75;
/// Part of a second that the process was kept waiting by its control group, from which that explains a loss.
const THROTTLED: f64 = 0.05;
/// Part of a second that a worker waited for a processor, from which that explains a loss.
const STARVED: f64 = 0.2;

/// A time as a line has it.
fn time(text: &str) -> Option<jiff::Timestamp> {
    text.parse().ok()
}

/// When a line was written.
pub(super) fn logged(line: &Line) -> Option<jiff::Timestamp> {
    time(&line.logged)
}

/// A run lasts from its first line to its last one so far. A `start` in a log that goes on has the time of
/// the first one.
pub(super) fn take_time(facts: &mut Facts, line: &Line) {
    let Some(logged) = logged(line) else { return };
    let first = match &line.content {
        Content::Event(Event::Start(start)) => start.began.0.as_deref().and_then(time),
        _ => None,
    };
    let began = *facts.began.get_or_insert(first.unwrap_or(logged));
    facts.elapsed_s = logged.duration_since(began).as_secs_f64().max(0.0);
    facts.last = Some(logged);
}

pub(super) fn take_line(facts: &mut Facts, line: Line) {
    let counted = logged(&line);
    let event = match line.content {
        Content::Event(event) => event,
        Content::Unknown(_) | Content::Other => return facts.unknown_lines += 1,
    };
    match event {
        Event::Start(start) => {
            facts.version = clean(start.version);
            facts.continues = start.continues.0.unwrap_or(false);
            facts.specs = clean_all(start.sources);
            facts.ring_bytes = start.ring_bytes;
            facts.normal_pages = start.pages == scope_events::event::NORMAL_PAGES;
            facts.triggers = start.triggers.len() as u64;
        }
        Event::Machine(machine) => take_machine(facts, machine),
        Event::Status(status) => {
            facts.counted = counted.or(facts.counted);
            facts.disk_wait_s = facts.disk_wait_s.max(status.meanwhile.0.disk_wait_s);
            facts.throttled =
                status.cgroup.map_or(facts.throttled, |group| (group.throttled_periods, group.throttled_s));
            facts.softnet = status.softnet.map(softnet).or(facts.softnet);
            take_counts(
                facts,
                Counts {
                    dropped: status.dropped,
                    cut_by_segment: status.cut_by_segment.unwrap_or(status.cut),
                    late: status.late,
                    sources: status.sources,
                    hits: status.hits,
                    hits_rationed: status.hits_rationed,
                    nic: status.nic,
                    volumes: status.stores,
                    stats: status.stats,
                },
            );
            if facts.continues && facts.losses_logged.is_empty() {
                facts.losses_logged = facts.dropped.clone(); // those losses are lines of the file before
            }
        }
        Event::Loss(loss) => take_loss(facts, loss),
        Event::Resumed(_) => facts.resumed += 1,
        Event::Dump(dump) => take_dump(facts, dump),
        Event::Interface(interface) => take_interface(facts, interface),
        Event::LongHold(_) => facts.long_holds += 1,
        Event::Warning(warning) => {
            facts.interpreted += u64::from(warning.is(WarningKind::Interpreter));
            facts.swapped |= warning.is(WarningKind::Swapped);
            if facts.warnings.len() < KEPT_MAX {
                facts.warnings.push(clean(warning.text));
            }
        }
        Event::DoorEnded(ended) => {
            if facts.warnings.len() < KEPT_MAX {
                facts.warnings.push(clean(ended.text));
            }
        }
        Event::End(end) => {
            let totals = end.totals.0;
            facts.state = State::Ended;
            facts.counted = counted.or(facts.counted);
            facts.failures = clean_all(totals.failures);
            facts.dump_totals = totals
                .dump_totals
                .map(|sums| (sums.dumps, sums.incomplete.max(sums.failed)))
                .or(facts.dump_totals);
            take_counts(
                facts,
                Counts {
                    dropped: totals.dropped,
                    cut_by_segment: totals.cut_by_segment.unwrap_or(totals.cut),
                    late: totals.late,
                    sources: totals.sources,
                    hits: totals.hits,
                    hits_rationed: totals.hits_rationed,
                    nic: totals.nic,
                    volumes: totals.stores,
                    stats: totals.stats,
                },
            );
        }
        Event::EndedAtOnce(end) => {
            facts.state = State::EndedAtOnce;
            facts.ended_why = clean(end.why);
            facts.dumps_thrown_away = end.dumps_open.unwrap_or(0);
        }
        Event::StoreState(state) if state.state != "writing" => {
            let text = clean(state.text);
            volume_of(facts, state.volume).refused.get_or_insert(text);
        }
        Event::StoreState(_)
        | Event::Hit(_)
        | Event::Hits(_)
        | Event::Together(_)
        | Event::Exec(_)
        | Event::Alarm(_)
        | Event::Deleted(_)
        | Event::StoreFile(_)
        | Event::StoreDeleted(_)
        | Event::StoreMissed(_)
        | Event::StoreRecovery(_)
        | Event::ClockStep(_)
        | Event::Note(_)
        | Event::Script(_)
        | Event::Reload(_) => {}
    }
}

fn take_machine(facts: &mut Facts, machine: event::Machine) {
    facts.pid = machine.pid;
    facts.pid_began = machine.pid_began;
    let event::Home { host, boot, processes } = machine.home;
    facts.home = Home { host: host.map(clean), boot: boot.map(clean), processes: processes.map(clean) };
    facts.live = machine.live;
    facts.interpreter_asked = machine.interpreter;
    facts.dumps_max = machine.dumps_max;
    facts.status_every_s = machine.status_every_s;
    facts.processors = machine.processors;
    (facts.file_size_max, facts.threads_max) = (machine.limits.file_size, machine.limits.threads);
    let capture = |capture: event::Capture| Capture {
        source: clean(capture.source),
        interface: clean(capture.interface),
        workers: capture.workers,
        snap_len: capture.snap_len.filter(|bytes| *bytes > 0),
        promiscuous: capture.promiscuous.unwrap_or(true),
        cpus: capture.cpus.unwrap_or_default(),
    };
    facts.captures = machine.captures.into_iter().map(capture).collect();
    take_nics(facts, machine.nic);
}

/// What `status` and `end` have in common: all counts since the run began.
struct Counts {
    dropped: ByWord,
    cut_by_segment: u64,
    late: u64,
    sources: Vec<SourceCounts>,
    hits: BTreeMap<String, ByWord>,
    hits_rationed: u64,
    nic: BTreeMap<String, Nic>,
    volumes: Vec<counts::Volume>,
    stats: Option<counts::Stats>,
}

fn take_counts(facts: &mut Facts, counts: Counts) {
    facts.hits_rationed = counts.hits_rationed;
    for (reason, packets) in counts.dropped {
        let dropped = facts.dropped.entry(reason).or_default();
        *dropped = packets.max(*dropped);
    }
    facts.cut_by_segment = counts.cut_by_segment;
    facts.late = counts.late;
    facts.sources.clear();
    for SourceCounts { source, counts, .. } in counts.sources {
        let sum: &mut SourceFacts = facts.sources.entry(clean(source)).or_default();
        sum.offered = sum.offered.saturating_add(counts.0.offered);
        sum.received = sum.received.saturating_add(counts.0.received);
        sum.kernel_dropped = sum.kernel_dropped.saturating_add(counts.0.kernel_dropped);
        sum.unreadable = sum.unreadable.saturating_add(counts.0.unreadable);
    }
    facts.hits.clear();
    for (verdict, hits) in counts.hits.into_values().flatten() {
        let sum = facts.hits.entry(verdict).or_default();
        *sum = sum.saturating_add(hits);
    }
    take_nics(facts, counts.nic);
    for volume in counts.volumes.into_iter().take(KEPT_MAX) {
        let own = volume_of(facts, volume.path);
        (own.missed, own.stored) = (volume.missed.packets, volume.stored.packets);
        (own.state, own.way) = (clean(volume.state), clean(volume.way));
        own.error = volume.error.map(clean);
    }
    facts.stats = counts.stats.map(stats_facts).or(facts.stats.take());
}

fn stats_facts(stats: counts::Stats) -> StatsFacts {
    StatsFacts {
        db: stats.db.map(clean),
        interval_ns: stats.interval_ns,
        lag_ns: stats.lag_ns,
        unwritten: stats.unwritten,
        folded: stats.folded_rows.saturating_add(stats.folded_flows),
        evicted: stats.evicted,
        unsent: stats.unsent,
        wal_bytes: stats.wal_bytes,
        disk: stats.disk_free.zip(stats.disk_bytes),
        failing: stats.failing.map(clean),
        ended: stats.ended.map(clean),
    }
}

/// What is known of the volume with this folder.
fn volume_of(facts: &mut Facts, path: String) -> &mut VolumeFacts {
    let path = clean(path);
    let known = facts.volumes.iter().position(|volume| volume.path == path);
    let at = known.unwrap_or_else(|| {
        facts.volumes.truncate(KEPT_MAX); // a log may say anything
        facts.volumes.push(VolumeFacts { path, ..VolumeFacts::default() });
        facts.volumes.len() - 1
    });
    &mut facts.volumes[at]
}

fn softnet(softnet: counts::Softnet) -> Softnet {
    Softnet { dropped: softnet.dropped, squeezed: softnet.squeezed }
}

/// The last event of an interface holds.
fn take_interface(facts: &mut Facts, event: event::Interface) {
    let interface = clean(event.interface);
    match event.state.as_str() {
        "refused" if facts.refused.len() < KEPT_MAX => {
            facts.refused.insert(interface, clean(event.text));
        }
        "gone" if facts.gone.len() < KEPT_MAX => {
            facts.gone.insert(interface);
        }
        "new" | "back" => {
            facts.refused.remove(&interface);
        }
        _ => {}
    }
}

/// Of an event without cards those that are known stay.
fn take_nics(facts: &mut Facts, nics: BTreeMap<String, Nic>) {
    if !nics.is_empty() {
        facts.nics = nics.into_iter().map(|(interface, nic)| nic_facts(interface, nic)).collect();
    }
}

fn nic_facts(interface: String, nic: Nic) -> NicFacts {
    let counts::Altered {
        joined,
        split,
        long,
        unchecked,
        unchecked_sent,
        sliced,
        cut_by_block,
        cut_by_bound,
    } = nic.altered;
    let link = nic.link.unwrap_or_default();
    NicFacts {
        interface,
        counters: nic.counters.0,
        driver: nic.driver,
        altered: Altered {
            joined,
            split,
            unchecked,
            unchecked_sent,
            long,
            sliced,
            cut_by_block,
            cut_by_bound,
        },
        up: link.up,
        running: link.running,
        notes: nic.notes.into_iter().map(|note| (clean(note.kind), clean(note.remedy))).collect(),
    }
}

/// Losses come each second, the counts that include them less often: the larger one is the newer one.
fn take_loss(facts: &mut Facts, loss: event::Loss) {
    let meanwhile = loss.meanwhile.0;
    facts.losses_seen(&loss.packets);
    facts.disk_wait_s = facts.disk_wait_s.max(meanwhile.disk_wait_s);
    let kernel = loss.packets.get("kernel").copied().unwrap_or(0);
    if kernel == 0 {
        return;
    }
    let workers = meanwhile.workers.iter().flatten();
    let (busy, starved) = workers
        .fold((0f64, 0f64), |(busy, starved), worker| (busy.max(worker.busy), starved.max(worker.starved)));
    let throttled_s = meanwhile.throttled_s.unwrap_or(0.0);
    let seconds = meanwhile.seconds;
    if seconds >= STALLED_S {
        facts.kernel.stalled = facts.kernel.stalled.saturating_add(kernel);
        facts.stalled_s = facts.stalled_s.max(seconds);
    } else if throttled_s >= THROTTLED * seconds.max(1.0) {
        facts.kernel.throttled = facts.kernel.throttled.saturating_add(kernel);
    } else if busy >= BUSY {
        facts.kernel.busy = facts.kernel.busy.saturating_add(kernel);
        facts.busy_max = facts.busy_max.max(busy);
    } else if starved >= STARVED {
        facts.kernel.starved = facts.kernel.starved.saturating_add(kernel);
    } else {
        facts.kernel.other = facts.kernel.other.saturating_add(kernel);
    }
}

impl Facts {
    /// Adds up the losses of single lines, as far as no count includes them yet.
    fn losses_seen(&mut self, lost: &ByWord) {
        for (reason, packets) in lost {
            let logged = self.losses_logged.entry(reason.clone()).or_default();
            *logged = logged.saturating_add(*packets);
            let dropped = self.dropped.entry(reason.clone()).or_default();
            *dropped = (*dropped).max(*logged);
        }
    }
}

fn take_dump(facts: &mut Facts, dump: Dump) {
    facts.dumps_logged += 1;
    if (!dump.complete || dump.error.is_some()) && facts.dumps.len() < KEPT_MAX {
        facts.dumps.push(dump_facts(dump));
    }
}

fn dump_facts(dump: Dump) -> DumpFacts {
    let mut gaps: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    for gap in dump.gaps {
        let sum = gaps.entry(clean(gap.reason)).or_default();
        let lost_max = gap.lost_max.unwrap_or_else(|| gap.lost_min.max(1)); // the number is not known
        *sum = (sum.0.saturating_add(gap.lost_min), sum.1.saturating_add(lost_max));
    }
    let waited = |waited: counts::Waited| WaitedFacts {
        longest_s: waited.longest_s,
        total_s: waited.total_s,
        pins_full_s: waited.pins_full_s,
    };
    DumpFacts {
        id: dump.id,
        complete: dump.complete,
        lost_min: dump.lost_min,
        lost_max: dump.lost_max.unwrap_or_else(|| dump.lost_min.max(1)),
        gaps,
        waited: dump.waited.map(waited),
        piped: dump.path.is_none() && dump.error.is_none(),
        error: dump.error,
    }
}

/// Foreign text: control characters could play with a terminal.
pub(super) fn clean(text: String) -> String {
    match text.contains(char::is_control) {
        true => text.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect(),
        false => text,
    }
}

fn clean_all(texts: Vec<String>) -> Vec<String> {
    texts.into_iter().take(KEPT_MAX).map(clean).collect()
}
