//! Metrics for Prometheus: packets by source, worker, lane and reason, the ring, the store, traffic statistics, triggers and
//! dumps by name, and of the process and the door themselves.
//!
//! For example `wirescope_source_received_packets_total{source="afpacket:eth0",worker="0"} 12345`. Label sets are bounded:
//! sources, workers, lanes, volumes and triggers of one run, and the closed lists of reasons and verdicts.
//!
//! The conservation law, for each worker: `source_offered = source_received + source_kernel_dropped + source_unreadable +
//! source_waiting`, and `received = stored + filtered + duplicate + dropped` without the reason `kernel`. What is stored is
//! the sum over the worker's lanes.

use crate::dumps::{Made, OTHERS, TRIGGERS_MAX};
use crate::exposition::{Exposition, Form, Kind};
use crate::process::Process;
use crate::state::{Phase, Published, State};
use scope_engine::{
    ForwardStatus, GroupStatus, LaneStatus, ScriptStatus, SourceRule, StatsStatus, TakenByRule,
    TriggerStatus, WorkerStatus,
};
use scope_share::page::Standing;
use scope_source::sending::Refusal;
use serde_json::Value;
use std::sync::atomic::Ordering;

use Kind::{Counter, Gauge};

/// What a volume can be.
const STORE_STATES: [&str; 5] = ["writing", "failing", "stalled", "held", "full"];

/// All of it.
pub(crate) fn text(state: &State, form: Form) -> String {
    let mut out = Exposition::new(form);
    let published = state.now();
    run(&mut out, state, &published);
    process(&mut out);
    sources(&mut out, &published);
    workers(&mut out, &published);
    ring(&mut out, &published);
    stores(&mut out, &published);
    statistics(&mut out, published.status.stats.as_ref());
    scripts(&mut out, &published.status.scripts);
    groups(&mut out, &published.status.groups);
    source_rules(&mut out, &published.status.source_rules);
    triggers(&mut out, &published.status.triggers);
    dumps(&mut out, state, &published);
    door(&mut out, state);
    out.end()
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or(0.0)
}

fn yes(is_so: bool) -> f64 {
    f64::from(u8::from(is_so))
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn run(out: &mut Exposition, state: &State, published: &Published) {
    out.family("wirescope_build_info", Gauge, "Which program and which run this is.");
    out.sample("wirescope_build_info", &[("version", &state.version), ("run", &state.run)], 1.0);
    let is_capturing = yes(published.phase == Phase::Capturing);
    out.one("wirescope_capturing", Gauge, "1 while the run captures, 0 once it ends.", is_capturing);
    let elapsed_s = published.status.elapsed_s;
    out.one("wirescope_run_elapsed_seconds", Gauge, "Time since the run began.", elapsed_s);
    let adds_up = yes(published.status.adds_up);
    out.one("wirescope_adds_up", Gauge, "1 where the numbers of every worker add up.", adds_up);
}

fn process(out: &mut Exposition) {
    let Some(process) = Process::now() else { return };
    for (name, kind, help, value) in [
        ("cpu_seconds_total", Counter, "Processor time of the process.", process.cpu_s),
        ("resident_memory_bytes", Gauge, "Memory of it that is resident.", process.resident_bytes),
        ("virtual_memory_bytes", Gauge, "Its virtual memory.", process.virtual_bytes),
        ("threads", Gauge, "Its threads.", process.threads),
        ("age_seconds", Gauge, "Time since it began.", process.age_s),
    ] {
        out.one(&format!("wirescope_process_{name}"), kind, help, value);
    }
}

/// What was offered to each source, and what became of it before a worker had it.
fn sources(out: &mut Exposition, published: &Published) {
    for (key, end, kind, help) in [
        ("offered", "_total", Counter, "Packets that a source was offered."),
        ("received", "_total", Counter, "Packets that workers received of it."),
        ("kernel_dropped", "_total", Counter, "Packets that the kernel dropped for want of room."),
        ("unreadable", "_total", Counter, "Packets of capture files that couldn't be read."),
        ("waiting", "", Gauge, "Packets that wait in the kernel's capture ring."),
    ] {
        let name = format!("wirescope_source_{key}_packets{end}");
        out.family(&name, kind, help);
        for source in list(&published.facts["sources"]) {
            let worker = source["worker"].to_string();
            let labels = [("source", source["source"].as_str().unwrap_or_default()), ("worker", &*worker)];
            out.sample(&name, &labels, number(&source[key]));
        }
    }
}

/// What became of each packet that a worker received.
fn workers(out: &mut Exposition, published: &Published) {
    let workers = &published.status.workers;
    let mut each = |name: &str, kind: Kind, help: &str, value: &dyn Fn(&WorkerStatus) -> Option<f64>| {
        out.family(name, kind, help);
        for (number, worker) in workers.iter().enumerate() {
            if let Some(value) = value(worker) {
                out.sample(name, &[("source", &worker.source), ("worker", &number.to_string())], value);
            }
        }
    };
    type Count = fn(&WorkerStatus) -> u64;
    let counters: [(&str, &str, Count); 9] = [
        ("received_packets", "Packets received from sources.", |worker| worker.counts.received_packets),
        ("received_bytes", "Captured bytes of these.", |worker| worker.counts.received_bytes),
        ("stored_packets", "Packets written into the ring.", |worker| worker.counts.stored_packets),
        ("stored_bytes", "Their bytes as kept.", |worker| worker.counts.stored_bytes),
        ("filtered_packets", "Packets that a prefilter refused.", |worker| worker.counts.filtered_packets),
        ("filtered_bytes", "Captured bytes of these.", |worker| worker.counts.filtered_bytes),
        ("duplicate_packets", "Packets that were known already.", |worker| worker.counts.duplicate_packets),
        ("truncated_packets", "Stored packets cut without being asked.", |worker| worker.counts.cut_packets),
        ("late_packets", "Stored packets older than their grace.", |worker| worker.counts.late_packets),
    ];
    for (name, help, count) in counters {
        each(&format!("wirescope_{name}_total"), Counter, help, &|worker| Some(count(worker) as f64));
    }
    let lag = |worker: &WorkerStatus| worker.lag_ns.map(|lag_ns| lag_ns as f64 / 1e9);
    each("wirescope_worker_lag_seconds", Gauge, "How far the clock of a live worker is behind.", &lag);
    let busy = |worker: &WorkerStatus| worker.time.map(|time| time.busy);
    each("wirescope_worker_busy_ratio", Gauge, "Part of the last second that a worker ran.", &busy);
    let starved = |worker: &WorkerStatus| worker.time.map(|time| time.starved);
    each("wirescope_worker_starved_ratio", Gauge, "Part that it waited for a processor.", &starved);
    let name = "wirescope_dropped_packets_total";
    out.family(name, Counter, "Packets that were dropped, by reason.");
    for (number, worker) in workers.iter().enumerate() {
        let number = number.to_string();
        for (reason, packets) in worker.counts.dropped.iter() {
            let labels = [("source", &*worker.source), ("worker", &*number), ("reason", reason.name())];
            out.sample(name, &labels, packets as f64);
        }
    }
}

fn ring(out: &mut Exposition, published: &Published) {
    type Read = fn(&LaneStatus) -> Option<f64>;
    let packets: Read = |lane| Some(lane.packets as f64);
    let bytes: Read = |lane| Some(lane.bytes as f64);
    let oldest: Read = |lane| lane.oldest_ns.map(|oldest_ns| oldest_ns as f64 / 1e9);
    let depth_s = published.status.depth_ns as f64 / 1e9;
    out.one("wirescope_ring_depth_seconds", Gauge, "Capture time that the ring holds.", depth_s);
    let facts = &published.facts;
    out.one("wirescope_ring_segments", Gauge, "Segments of the ring.", number(&facts["segments"]));
    let pinned = number(&facts["pinned"]);
    out.one("wirescope_ring_pinned_segments", Gauge, "Segments that are held for dumps.", pinned);
    for (name, kind, help, value) in [
        ("wirescope_lane_stored_packets_total", Counter, "Packets written into a lane of the ring.", packets),
        ("wirescope_ring_lane_bytes", Gauge, "Bytes of the ring that a lane has.", bytes),
        (
            "wirescope_ring_lane_oldest_timestamp_seconds",
            Gauge,
            "Capture time of the oldest packet in it.",
            oldest,
        ),
    ] {
        out.family(name, kind, help);
        for (number, lane) in published.status.lanes.iter().enumerate() {
            let Some(value) = value(lane) else { continue };
            let source = published.status.workers.get(lane.worker as usize);
            let source = source.map_or("", |worker| &worker.source);
            let texts = [number.to_string(), lane.link_type.name(), lane.worker.to_string()];
            let [number, link_type, worker] = &texts;
            let labels =
                [("lane", &**number), ("link_type", link_type), ("source", source), ("worker", worker)];
            out.sample(name, &labels, value);
        }
    }
}

/// What traffic statistics have done, and how far they are behind.
fn statistics(out: &mut Exposition, stats: Option<&StatsStatus>) {
    let Some(stats) = stats else { return };
    let name = "wirescope_stats_folded_total";
    out.family(name, Counter, "Rows and records of flows that were folded into sums.");
    for (table, rows) in [("traffic", stats.folded_rows), ("flows", stats.folded_flows)] {
        out.sample(name, &[("table", table)], rows as f64);
    }
    let evicted = "Flows whose place was needed while they went on.";
    let unwritten = "Rows and records that were folded because they couldn't be written in time.";
    let seconds = |ns: i64| ns as f64 / 1e9;
    let is_failing = stats.failing.is_some() || stats.ended.is_some();
    for (name, kind, help, value) in [
        ("evicted_flows_total", Counter, evicted, stats.evicted as f64),
        ("unwritten_total", Counter, unwritten, stats.unwritten as f64),
        (
            "late_packets_total",
            Counter,
            "Packets that came when their interval was written.",
            stats.late as f64,
        ),
        ("flows", Gauge, "Flows that go on.", stats.flows as f64),
        ("flows_limit", Gauge, "Flows that may go on at once.", stats.of.flows_max as f64),
        (
            "lag_seconds",
            Gauge,
            "How far what is written is behind the clock of capture.",
            seconds(stats.lag_ns),
        ),
        ("interval_seconds", Gauge, "The length of an interval.", seconds(stats.of.interval_ns)),
        ("failing", Gauge, "1 while nothing can be written, else 0.", yes(is_failing)),
    ] {
        out.one(&format!("wirescope_stats_{name}"), kind, help, value);
    }
    if stats.of.db.is_some() {
        for (name, kind, help, value) in [
            ("rows_total", Counter, "Rows that are in the database.", stats.rows as f64),
            ("waiting_rows", Gauge, "Rows that wait to be written.", stats.waiting as f64),
            ("database_bytes", Gauge, "What all its files take.", stats.bytes as f64),
            ("wal_bytes", Gauge, "Of these, the logs of transactions.", stats.wal_bytes as f64),
            ("damaged_files_total", Counter, "Damaged files that were renamed.", stats.moved_aside as f64),
        ] {
            out.one(&format!("wirescope_stats_{name}"), kind, help, value);
        }
    }
    if let Some(disk) = stats.disk {
        let help = "What is free on the disk of the database.";
        out.one("wirescope_stats_disk_free_bytes", Gauge, help, disk.free_bytes as f64);
    }
    if stats.of.ipfix.is_some() {
        let name = "wirescope_stats_ipfix_records_total";
        out.family(name, Counter, "Records for the collector, by what became of them.");
        for (result, records) in [("sent", stats.sent), ("refused", stats.unsent)] {
            out.sample(name, &[("result", result)], records as f64);
        }
    }
}

/// What scripts have done, and whether they are run.
fn scripts(out: &mut Exposition, scripts: &[ScriptStatus]) {
    if scripts.is_empty() {
        return;
    }
    type Read = fn(&ScriptStatus) -> f64;
    let all: [(&str, Kind, &str, Read); 9] = [
        ("packets_total", Counter, "Packets that a script was run for.", |script| script.packets as f64),
        ("missed_packets_total", Counter, "Packets recycled before it came to them.", |script| {
            script.missed as f64
        }),
        ("behind_packets", Gauge, "Packets that it still has to come to.", |script| script.behind as f64),
        ("hits_total", Counter, "How often it said yes.", |script| script.hits as f64),
        ("errors_total", Counter, "Calls that failed.", |script| script.errors as f64),
        ("cpu_seconds_total", Counter, "Processor time that it took.", |script| script.cpu_ns as f64 / 1e9),
        ("memory_bytes", Gauge, "Lua's memory in use.", |script| script.memory_bytes as f64),
        ("flows", Gauge, "Flows that its tracker keeps.", |script| script.flows as f64),
        ("disabled", Gauge, "1 where it is run no more.", |script| yes(script.disabled.is_some())),
    ];
    for (key, kind, help, value) in all {
        let name = format!("wirescope_script_{key}");
        out.family(&name, kind, help);
        for script in scripts.iter().take(TRIGGERS_MAX) {
            let labels = [("trigger", &*script.name), ("file", &*script.file), ("kind", script.kind)];
            out.sample(&name, &labels, value(script));
        }
    }
}

/// What groups of programs were given, and what became of it; of all members of a group together.
fn groups(out: &mut Exposition, groups: &[GroupStatus]) {
    let sum = |group: &GroupStatus, of: fn(&Standing) -> u64| {
        let standings = group.members.iter().map(|member| &member.standing);
        standings.chain([&group.gone.standing]).map(of).sum::<u64>() as f64
    };
    type Family<'a> = (&'a str, Kind, &'a str, &'a dyn Fn(&GroupStatus) -> f64);
    let families: [Family<'_>; 6] = [
        ("members", Gauge, "Programs that read.", &|group| group.members.len() as f64),
        ("given_packets_total", Counter, "Packets that fell to members.", &|group| sum(group, |it| it.given)),
        ("read_packets_total", Counter, "Of these, read.", &|group| sum(group, |it| it.read)),
        ("missed_packets_total", Counter, "Of these, missed by members.", &|group| {
            sum(group, |it| it.missed)
        }),
        ("filtered_packets_total", Counter, "Packets that the filter does not match.", &|group| {
            group.counts.filtered as f64
        }),
        ("overrun_packets_total", Counter, "Packets recycled before they were looked at.", &|group| {
            group.counts.missed as f64
        }),
    ];
    if groups.is_empty() {
        return;
    }
    for (key, kind, help, value) in families {
        let name = format!("wirescope_group_{key}");
        out.family(&name, kind, help);
        for group in groups {
            out.sample(&name, &[("group", &*group.name)], value(group));
        }
    }
    forwards(out, groups);
}

/// What forwards were given, have sent, and were refused.
fn forwards(out: &mut Exposition, groups: &[GroupStatus]) {
    let all = || groups.iter().flat_map(|group| group.forwards.iter().map(move |it| (&*group.name, it)));
    if all().next().is_none() {
        return;
    }
    type Family<'a> = (&'a str, &'a str, fn(&ForwardStatus) -> u64);
    let families: [Family<'_>; 5] = [
        ("given_packets", "Packets that fell to a forward.", |it| it.standing.given),
        ("read_packets", "Of these, sent or refused.", |it| it.standing.read),
        ("missed_packets", "Of these, without room in its memory.", |it| it.standing.missed),
        ("sent_packets", "Packets that the system took.", |it| it.counts.sent),
        ("sent_bytes", "Bytes of these.", |it| it.counts.bytes),
    ];
    for (key, help, value) in families {
        let name = format!("wirescope_forward_{key}_total");
        out.family(&name, Counter, help);
        for (group, it) in all() {
            out.sample(&name, &[("group", group), ("interface", &*it.interface)], value(it) as f64);
        }
    }
    let name = "wirescope_forward_refused_packets_total";
    out.family(name, Counter, "Packets that were not sent, by reason.");
    for (group, it) in all() {
        for why in Refusal::ALL {
            let labels = [("group", group), ("interface", &*it.interface), ("reason", why.name())];
            out.sample(name, &labels, it.counts.refused(why) as f64);
        }
    }
}

/// What rules of sources have taken in front of the ring.
fn source_rules(out: &mut Exposition, rules: &[SourceRule]) {
    if rules.is_empty() {
        return;
    }
    type Family<'a> = (&'a str, &'a str, fn(&TakenByRule) -> u64);
    let families: [Family<'_>; 2] = [
        ("dropped", "Packets that a rule of a source dropped.", |taken| taken.dropped),
        ("cut", "Packets that a rule of a source truncated.", |taken| taken.cut),
    ];
    for (key, help, value) in families {
        let name = format!("wirescope_source_rule_{key}_packets_total");
        out.family(&name, Counter, help);
        for SourceRule { source, rule, taken } in rules {
            out.sample(&name, &[("source", source), ("rule", rule)], value(taken) as f64);
        }
    }
}

fn stores(out: &mut Exposition, published: &Published) {
    let stores = list(&published.facts["stores"]);
    if stores.is_empty() {
        return;
    }
    let path = |store: &Value| store["path"].as_str().unwrap_or_default().to_string();
    for (key, help) in [
        ("stored", "that a volume of the store has taken."),
        ("filtered", "that its filter left out."),
        ("missed", "that were recycled before it could write them."),
        ("deleted", "that retention has deleted."),
    ] {
        for (unit, noun) in [("packets", "Packets"), ("bytes", "Captured bytes of packets")] {
            let name = format!("wirescope_store_{key}_{unit}_total");
            out.family(&name, Counter, &format!("{noun} {help}"));
            for store in stores {
                out.sample(&name, &[("path", &path(store))], number(&store[key][unit]));
            }
        }
    }
    type Read = fn(&Value) -> Option<f64>;
    let gauges: [(&str, &str, Read); 7] = [
        ("behind_packets", "Packets that are still to be written.", |store| {
            store["behind"]["packets"].as_f64()
        }),
        ("behind_bytes", "Captured bytes of these.", |store| store["behind"]["bytes"].as_f64()),
        ("behind_seconds", "Age of the oldest of these.", |store| Some(store["behind_ms"].as_f64()? / 1e3)),
        ("used_bytes", "What a volume takes.", |store| store["used"].as_f64()),
        ("budget_bytes", "What it may take, where that is bounded.", |store| store["budget"].as_f64()),
        ("reach_seconds", "How far it reaches back.", |store| store["reaches_back_s"].as_f64()),
        ("files", "Files in it.", |store| store["files"].as_f64()),
    ];
    for (key, help, read) in gauges {
        let name = format!("wirescope_store_{key}");
        out.family(&name, Gauge, help);
        for store in stores {
            if let Some(value) = read(store) {
                out.sample(&name, &[("path", &path(store))], value);
            }
        }
    }
    let name = "wirescope_store_state";
    out.family(name, Gauge, "1 for the state that a volume is in, 0 for the others.");
    for store in stores {
        for state in STORE_STATES {
            out.sample(name, &[("path", &path(store)), ("state", state)], yes(store["state"] == state));
        }
    }
}

fn triggers(out: &mut Exposition, triggers: &[TriggerStatus]) {
    let name = "wirescope_trigger_hits_total";
    out.family(name, Counter, "Hits of a trigger, by what became of them.");
    let (own, others) = triggers.split_at(triggers.len().min(TRIGGERS_MAX));
    for trigger in own {
        for (verdict, hits) in trigger.counts.each() {
            out.sample(name, &[("trigger", &trigger.config.name), ("verdict", verdict)], hits as f64);
        }
    }
    if !others.is_empty() {
        let hits: u64 = others.iter().map(|trigger| trigger.counts.total()).sum();
        out.sample(name, &[("trigger", OTHERS), ("verdict", "any")], hits as f64);
    }
    let name = "wirescope_trigger_armed";
    out.family(name, Gauge, "1 where a trigger still fires, else 0.");
    for trigger in own {
        out.sample(name, &[("trigger", &trigger.config.name)], yes(trigger.armed));
    }
}

fn dumps(out: &mut Exposition, state: &State, published: &Published) {
    let status = &published.status;
    out.one("wirescope_dumps_open", Gauge, "Dumps that are being made.", status.dumps_open as f64);
    let made = state.dumps.made();
    type Count = fn(&Made) -> u64;
    let counters: [(&str, &str, Count); 5] = [
        ("wirescope_dumps_total", "Dumps that are finished, by trigger.", |made| made.dumps),
        ("wirescope_dumps_incomplete_total", "Of these, incomplete ones.", |made| made.incomplete),
        ("wirescope_dumps_failed_total", "Of these, those for a loss or an error.", |made| made.failed),
        ("wirescope_dump_packets_total", "Packets in dumps.", |made| made.packets),
        ("wirescope_dump_bytes_total", "Captured bytes of these.", |made| made.bytes),
    ];
    for (name, help, count) in counters {
        out.family(name, Counter, help);
        for (trigger, made) in &made {
            out.sample(name, &[("trigger", trigger)], count(made) as f64);
        }
    }
    let help = "From the fire of a dump to its finished files, the time behind the hit included.";
    out.histogram("wirescope_dump_duration_seconds", help, &state.measures.dump_s.counted());
    let help = "From a question for packets to the end of its answer.";
    out.histogram("wirescope_query_duration_seconds", help, &state.measures.query_s.counted());
    let help = "Bytes of such an answer.";
    out.histogram("wirescope_query_size_bytes", help, &state.measures.query_bytes.counted());
    let Some(space) = &status.space else { return };
    for (name, kind, help, value) in [
        ("used_bytes", Gauge, "What dumps take of their disk.", space.used as f64),
        ("free_bytes", Gauge, "What is free on it.", space.free as f64),
        ("exhausted", Gauge, "1 while no dump begins for want of room, else 0.", yes(space.full)),
        ("deleted_dumps_total", Counter, "Dumps that were deleted to make room.", space.deleted as f64),
    ] {
        out.one(&format!("wirescope_dump_space_{name}"), kind, help, value);
    }
}

fn door(out: &mut Exposition, state: &State) {
    let name = "wirescope_http_requests_total";
    out.family(name, Counter, "Requests that were answered, by status.");
    for (status, answers) in state.counts.answers() {
        out.sample(name, &[("status", &status.to_string())], answers as f64);
    }
    let (begun, open) = state.questions.counts();
    let unplaced = state.questions.refused.load(Ordering::Relaxed);
    for (name, help, count) in [
        ("audit_failures", "Lines of the audit that couldn't be written.", state.audit_failures()),
        ("http_connections_refused", "Connections beyond the bound.", state.counts.refused()),
        ("http_requests_limited", "Requests beyond an identity's rate.", state.rates.refused()),
        ("questions", "Questions for packets that were begun to be answered.", begun),
        ("questions_refused", "Questions that found no place among those that are answered.", unplaced),
    ] {
        out.one(&format!("wirescope_{name}_total"), Counter, help, count as f64);
    }
    out.one("wirescope_questions_open", Gauge, "Questions that are being answered.", open as f64);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_number_is_zero_and_what_is_no_list_is_empty() {
        let facts = serde_json::json!({"a": 7, "b": "x", "c": [1, 2]});
        assert_eq!((number(&facts["a"]), number(&facts["b"]), number(&facts["none"])), (7.0, 0.0, 0.0));
        assert_eq!((list(&facts["c"]).len(), list(&facts["a"]).len()), (2, 0));
    }
}
