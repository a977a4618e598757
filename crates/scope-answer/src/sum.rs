//! What all packets of an answer come to, and what stands around every answer in words or JSON.

use jiff::Timestamp;
use jiff::tz::TimeZone;
use scope_packet::Gap;
use scope_packet::pcapng::PacketBlock;
use scope_spelling::figures::{counted, size};
use scope_spelling::time::iso;
use scope_store::timeline::Counted;
use serde_json::{Map, Value, json};

/// Letters of a day in front of a time.
const DAY: usize = "2026-11-20 ".len();

/// What all packets of an answer come to.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sum {
    /// Packets.
    pub packets: u64,
    /// Captured bytes.
    pub bytes: u64,
    /// Smallest and largest time, ns.
    pub span_ns: Option<(i64, i64)>,
}

impl Sum {
    /// One more.
    pub fn add(&mut self, block: &PacketBlock<'_>) {
        let time_ns = block.time_ns();
        self.packets += 1;
        self.bytes += block.data().len() as u64;
        let (min_ns, max_ns) = self.span_ns.unwrap_or((time_ns, time_ns));
        self.span_ns = Some((min_ns.min(time_ns), max_ns.max(time_ns)));
    }

    /// Those that were counted without reading them.
    pub fn count(&mut self, counted: &Counted) {
        self.packets += counted.packets;
        self.bytes += counted.bytes;
        let spans = self.span_ns.into_iter().chain(counted.span_ns);
        self.span_ns = spans.reduce(|one, other| (one.0.min(other.0), one.1.max(other.1)));
    }

    /// In words, one line without its end.
    pub fn words(&self, zone: &TimeZone) -> String {
        let mut text = format!("{}, {}", counted(self.packets, "packet"), size(self.bytes));
        if let Some((from_ns, to_ns)) = self.span_ns {
            let (from, mut to) = (local(from_ns, zone), local(to_ns, zone));
            if from.get(..DAY) == to.get(..DAY) && to.len() > DAY {
                to.drain(..DAY);
            }
            text.push_str(&format!(", {from} to {to}"));
            text.push_str(&format!(" ({})", zone.iana_name().unwrap_or("local time")));
        }
        text
    }

    /// As JSON, with what is missing.
    pub fn json(&self, filters: &[String], gaps: &[Gap]) -> Map<String, Value> {
        let (first, last) = self.span_ns.unzip();
        let keys = [
            ("packets", json!(self.packets)),
            ("bytes", json!(self.bytes)),
            ("first", json!(first.map(iso))),
            ("last", json!(last.map(iso))),
            ("filters", json!(filters)),
            ("missing", json!(gaps.iter().map(gap).collect::<Vec<_>>())),
        ];
        keys.into_iter().map(|(key, value)| (key.to_string(), value)).collect()
    }
}

/// A time in a zone.
pub fn local(time_ns: i64, zone: &TimeZone) -> String {
    match Timestamp::from_nanosecond(time_ns.into()) {
        Ok(time) => time.to_zoned(zone.clone()).strftime("%Y-%m-%d %H:%M:%S%.6f").to_string(),
        Err(_) => iso(time_ns),
    }
}

/// A gap as JSON.
pub fn gap(gap: &Gap) -> Value {
    let to = (gap.to_ns != i64::MAX).then(|| iso(gap.to_ns));
    json!({
        "from": iso(gap.from_ns), "to": to, "reason": gap.reason.name(),
        "lost_min": gap.lost_min, "lost_max": gap.lost_max,
    })
}
