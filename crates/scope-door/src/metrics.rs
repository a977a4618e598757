//! Counters for Prometheus, in its text form: of packets by source and reason, of the ring, the store, triggers and dumps,
//! and of the door itself.
//!
//! For example `wirescope_source_received_packets_total{source="afpacket:eth0",worker="0"} 12345`. Label sets are bounded:
//! sources, volumes and triggers of one run, and the closed lists of reasons and verdicts.

use crate::audit::Audit;
use crate::state::{Published, State};
use scope_engine::TriggerStatus;
use serde_json::Value;
use std::fmt::Write;

/// Version 0.0.4 of the form, which every Prometheus reads.
pub(crate) const MEDIA_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Triggers that have rows of their own; the counts of others stand under `(others)`.
const TRIGGERS_MAX: usize = 1000;

/// Text that grows family by family.
#[derive(Default)]
struct Exposition(String);

/// Labels of a sample.
type Labels<'a> = &'a [(&'a str, &'a str)];

impl Exposition {
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn sample(&mut self, name: &str, labels: Labels<'_>, value: f64) {
        self.0.push_str(name);
        for (at, (label, text)) in labels.iter().enumerate() {
            let between = if at == 0 { '{' } else { ',' };
            let text = text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            let _ = write!(self.0, "{between}{label}=\"{text}\"");
        }
        let end = if labels.is_empty() { "" } else { "}" };
        let _ = writeln!(self.0, "{end} {value}");
    }

    fn one(&mut self, name: &str, kind: &str, help: &str, value: f64) {
        self.family(name, kind, help);
        self.sample(name, &[], value);
    }
}

/// All of it.
pub(crate) fn text(state: &State) -> String {
    let mut out = Exposition::default();
    let published = state.now();
    out.family("wirescope_build_info", "gauge", "Which program and which run this is.");
    out.sample("wirescope_build_info", &[("version", &state.version), ("run", &state.run)], 1.0);
    packets(&mut out, &published);
    ring(&mut out, &published);
    stores(&mut out, &published);
    triggers(&mut out, &published.status.triggers);
    dumps(&mut out, &published);
    door(&mut out, state);
    out.0
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or(0.0)
}

/// The conservation law: what was offered is received, dropped by the kernel, unreadable or waiting; what was received is
/// stored, filtered or dropped with a reason.
fn packets(out: &mut Exposition, published: &Published) {
    let facts = &published.facts;
    let sources: &[Value] = facts["sources"].as_array().map_or(&[], Vec::as_slice);
    for (key, help) in [
        ("offered", "Packets that a source was offered."),
        ("received", "Packets that workers received of it."),
        ("kernel_dropped", "Packets that the kernel dropped for want of room."),
        ("unreadable", "Packets of capture files that couldn't be read."),
    ] {
        let name = format!("wirescope_source_{key}_packets_total");
        out.family(&name, "counter", help);
        for source in sources {
            let worker = source["worker"].to_string();
            let labels = [("source", source["source"].as_str().unwrap_or_default()), ("worker", &*worker)];
            out.sample(&name, &labels, number(&source[key]));
        }
    }
    for (key, help) in [
        ("received", "received from sources"),
        ("stored", "written into the ring"),
        ("filtered", "that a prefilter refused"),
    ] {
        for (unit, noun) in [("packets", "Packets"), ("bytes", "Captured bytes")] {
            let name = format!("wirescope_{key}_{unit}_total");
            out.one(&name, "counter", &format!("{noun} {help}."), number(&facts[key][unit]));
        }
    }
    let name = "wirescope_dropped_packets_total";
    out.family(name, "counter", "Packets that were dropped, by reason.");
    for (reason, packets) in facts["dropped"].as_object().into_iter().flatten() {
        out.sample(name, &[("reason", reason)], number(packets));
    }
}

fn ring(out: &mut Exposition, published: &Published) {
    let depth_s = published.status.depth_ns as f64 / 1e9;
    out.one("wirescope_ring_depth_seconds", "gauge", "Capture time that the ring holds.", depth_s);
    let name = "wirescope_ring_lane_bytes";
    out.family(name, "gauge", "Bytes of the ring that a lane has.");
    for (number, lane) in published.status.lanes.iter().enumerate() {
        let (number, link_type) = (number.to_string(), lane.link_type.name());
        out.sample(name, &[("lane", &number), ("link_type", &link_type)], lane.bytes as f64);
    }
}

fn stores(out: &mut Exposition, published: &Published) {
    let stores: &[Value] = published.facts["stores"].as_array().map_or(&[], Vec::as_slice);
    if stores.is_empty() {
        return;
    }
    for (key, help) in [
        ("stored", "Packets that a volume of the store has taken."),
        ("filtered", "Packets that its filter left out."),
        ("missed", "Packets that were recycled before it could write them."),
        ("deleted", "Packets that retention has deleted."),
    ] {
        let name = format!("wirescope_store_{key}_packets_total");
        out.family(&name, "counter", help);
        for store in stores {
            out.sample(
                &name,
                &[("path", store["path"].as_str().unwrap_or_default())],
                number(&store[key]["packets"]),
            );
        }
    }
    let name = "wirescope_store_used_bytes";
    out.family(name, "gauge", "What a volume of the store takes.");
    for store in stores {
        out.sample(name, &[("path", store["path"].as_str().unwrap_or_default())], number(&store["used"]));
    }
}

fn triggers(out: &mut Exposition, triggers: &[TriggerStatus]) {
    let name = "wirescope_trigger_hits_total";
    out.family(name, "counter", "Hits of a trigger, by what became of them.");
    let (own, others) = triggers.split_at(triggers.len().min(TRIGGERS_MAX));
    for trigger in own {
        for (verdict, hits) in trigger.counts.each() {
            out.sample(name, &[("trigger", &trigger.config.name), ("verdict", verdict)], hits as f64);
        }
    }
    if !others.is_empty() {
        let hits: u64 = others.iter().map(|trigger| trigger.counts.total()).sum();
        out.sample(name, &[("trigger", "(others)"), ("verdict", "any")], hits as f64);
    }
    let name = "wirescope_trigger_armed";
    out.family(name, "gauge", "1 where a trigger still fires, else 0.");
    for trigger in own {
        out.sample(name, &[("trigger", &trigger.config.name)], f64::from(u8::from(trigger.armed)));
    }
}

fn dumps(out: &mut Exposition, published: &Published) {
    let status = &published.status;
    out.one("wirescope_dumps_open", "gauge", "Dumps that are being made.", status.dumps_open as f64);
    out.one("wirescope_dumps_total", "counter", "Dumps that are finished.", status.dumps_done as f64);
}

fn door(out: &mut Exposition, state: &State) {
    let name = "wirescope_http_requests_total";
    out.family(name, "counter", "Requests that were answered, by status.");
    for (status, answers) in state.counts.answers() {
        out.sample(name, &[("status", &status.to_string())], answers as f64);
    }
    let unwritten = state.audit.as_ref().map_or(0, Audit::failures) as f64;
    out.one(
        "wirescope_audit_failures_total",
        "counter",
        "Lines of the audit that couldn't be written.",
        unwritten,
    );
    let refused = state.counts.refused() as f64;
    out.one("wirescope_http_connections_refused_total", "counter", "Connections beyond the bound.", refused);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_escaped_and_families_come_once() {
        let mut out = Exposition::default();
        out.family("a_total", "counter", "Help.");
        out.sample("a_total", &[("x", "a\"b\\c\nd"), ("y", "")], 1.5);
        out.one("b", "gauge", "More.", 7.0);
        assert_eq!(
            out.0,
            "# HELP a_total Help.\n# TYPE a_total counter\na_total{x=\"a\\\"b\\\\c\\nd\",y=\"\"} 1.5\n\
             # HELP b More.\n# TYPE b gauge\nb 7\n"
        );
    }
}
