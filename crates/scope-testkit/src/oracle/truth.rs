//! What a dump of a run says of itself, as JSON, held against what came.

use super::{parse, read};
use crate::lab::witness::number_and_port;
use anyhow::{Context, Result};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;

/// The witness and the run may differ by so much about the time of a packet, ns; who sets an interface down,
/// by a little more.
const SAME_NS: i64 = 200_000;

/// Packets to this port fire.
pub const HIT_PORT: u16 = 9;

/// A packet that came, or stands in the file that was read.
#[derive(Clone, Copy, Debug)]
pub struct Came {
    /// Its number.
    pub number: u64,
    /// Its destination port.
    pub port: u16,
    /// Its capture time, ns.
    pub time_ns: i64,
    /// How often capture time had been set back when it came: a window has packets of one era.
    pub era: u32,
}

/// All that is known of a run.
pub struct Truth {
    /// Every packet that came.
    pub came: Vec<Came>,
    /// No packet of these spans (ns) was there to be captured: the interface was down for certain, the run
    /// had not begun or had ended.
    pub unheard: Vec<(i64, i64)>,
    /// A packet's time is known to so many ns.
    pub same_ns: i64,
}

/// What was met in runs.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counted {
    /// Packets that came.
    pub packets: u64,
    /// Dumps.
    pub dumps: u64,
    /// Those that say complete.
    pub complete: u64,
    /// Those that lack packets in truth.
    pub lacking: u64,
    /// Those that couldn't be written whole.
    pub failed: u64,
}

impl Counted {
    /// Adds those of another run.
    pub fn add(&mut self, other: &Counted) {
        self.packets += other.packets;
        self.dumps += other.dumps;
        self.complete += other.complete;
        self.lacking += other.lacking;
        self.failed += other.failed;
    }

    /// By name.
    pub fn rows(&self) -> [(&'static str, u64); 5] {
        [
            ("packets that came", self.packets),
            ("dumps", self.dumps),
            ("dumps that say complete", self.complete),
            ("dumps that lack packets", self.lacking),
            ("dumps that couldn't be written whole", self.failed),
        ]
    }
}

/// What a dump states of one gap.
struct Stated {
    from_ns: i64,
    to_ns: i64,
    /// Whether its packets are counted in the sums.
    counts: bool,
}

/// A time such as `2026-11-20T20:31:05.123456789Z`, ns.
fn time_ns(text: &str) -> Result<i64> {
    let time: jiff::Timestamp = text.parse().with_context(|| format!("'{text}' is no time"))?;
    Ok(i64::try_from(time.as_nanosecond())?)
}

fn span(value: &Value) -> Result<(i64, i64)> {
    let at = |key: &str| time_ns(value[key].as_str().with_context(|| format!("no '{key}' in {value}"))?);
    Ok((at("from")?, at("to")?))
}

/// Reasons for which there were no packets that could be lost.
const NOT_COUNTED: [&str; 7] = [
    "interface_down",
    "interface_gone",
    "not_started",
    "stopped",
    "capture_begin",
    "capture_end",
    "clock_step",
];

impl Stated {
    fn of(gap: &Value) -> Result<Stated> {
        let (from_ns, to_ns) = span(gap)?;
        let reason = gap["reason"].as_str().context("a gap without a reason")?;
        Ok(Stated { from_ns, to_ns, counts: !NOT_COUNTED.contains(&reason) })
    }

    fn holds(&self, time_ns: i64, same_ns: i64) -> bool {
        (self.from_ns - same_ns..=self.to_ns + same_ns).contains(&time_ns)
    }
}

/// Whether a packet to `port` passes the dump's filter.
fn passes(filter: &str, port: u16) -> Result<bool> {
    match filter {
        "" => Ok(true),
        "udp port 53" => Ok(port == 53),
        other => anyhow::bail!("a dump with the filter '{other}'"),
    }
}

impl Truth {
    /// Checks what one dump says; `piped` is what went through the pipe.
    ///
    /// # Errors
    /// Where it can't be understood.
    pub fn check(&self, dump: &Value, piped: Option<&[u8]>) -> Result<(Counted, Vec<String>)> {
        let (from_ns, to_ns) = span(&dump["asked"])?;
        let filter = dump["filter"].as_str().context("no filter")?;
        let hit_ns = time_ns(dump["time"].as_str().context("no time")?)?;
        let gaps =
            dump["gaps"].as_array().context("no gaps")?.iter().map(Stated::of).collect::<Result<Vec<_>>>()?;
        let error = dump["error"].as_str();
        let mut faults = Vec::new();
        let written = written(dump, piped.filter(|_| error.is_none()), &mut faults);
        for (number, (time_ns, port)) in &written {
            if *time_ns != hit_ns && !((from_ns..=to_ns).contains(time_ns) && passes(filter, *port)?) {
                faults.push(format!("packet {number} doesn't belong"));
            }
        }
        let packets = dump["packets"].as_u64().context("no packets")?;
        let is_known = piped.is_none() || error.is_none();
        if is_known && packets != written.len() as u64 {
            faults.push(format!("it says {packets} packets and has {}", written.len()));
        }
        let era = self.era(hit_ns);
        let (surely, perhaps) = self.missing((from_ns, to_ns), era, filter, &written)?;
        let complete = dump["complete"] == true;
        let lost_min = dump["lost_min"].as_u64().unwrap_or(0);
        let lost_max = dump["lost_max"].as_u64().unwrap_or(u64::MAX);
        let uncounted = |time_ns: i64| gaps.iter().any(|gap| !gap.counts && gap.holds(time_ns, self.same_ns));
        let counted = surely.iter().filter(|packet| !uncounted(packet.time_ns)).count() as u64;
        let said = format!("says {lost_min} to {lost_max} in {}", dump["gaps"]);
        if is_known {
            if complete && let Some(packet) = surely.first() {
                faults.push(format!(
                    "complete, and lacks {} packets, such as number {}",
                    surely.len(),
                    packet.number
                ));
            }
            if let Some((unheard_from_ns, unheard_to_ns)) =
                self.unheard.iter().find(|(a, b)| complete && *a <= to_ns && *b >= from_ns)
            {
                faults.push(format!(
                    "complete from {from_ns} to {to_ns}; nobody listened from {unheard_from_ns} to \
                     {unheard_to_ns}"
                ));
            }
            if counted > lost_max {
                faults.push(format!("lacks {counted} packets and {said}"));
            }
            // The packet that fired is kept whatever the filter says, so it can be missing, too.
            let hit_missing =
                !written.values().any(|(time_ns, port)| *time_ns == hit_ns && *port == HIT_PORT);
            if lost_min > perhaps + u64::from(hit_missing) {
                faults.push(format!("lacks {perhaps} packets at most and {said}"));
            }
            let outside =
                surely.iter().find(|packet| !gaps.iter().any(|gap| gap.holds(packet.time_ns, self.same_ns)));
            if let Some(packet) = outside {
                faults.push(format!(
                    "number {} of {} ns is missing outside of all gaps; {said}",
                    packet.number, packet.time_ns
                ));
            }
        }
        let counted = Counted {
            packets: 0,
            dumps: 1,
            complete: complete.into(),
            lacking: (!surely.is_empty()).into(),
            failed: error.is_some().into(),
        };
        let id = &dump["id"];
        Ok((counted, faults.into_iter().map(|fault| format!("dump {id}: {fault}")).collect()))
    }

    /// The era of the packet that fired; the first one where none of that time did.
    fn era(&self, hit_ns: i64) -> u32 {
        let fired = |packet: &&Came| packet.port == HIT_PORT && packet.time_ns == hit_ns;
        self.came.iter().find(fired).map_or(0, |packet| packet.era)
    }

    /// Packets of the window that the dump surely lacks, and how many it lacks at most.
    fn missing(
        &self,
        window: (i64, i64),
        era: u32,
        filter: &str,
        written: &BTreeMap<u64, (i64, u16)>,
    ) -> Result<(Vec<Came>, u64)> {
        let (mut surely, mut perhaps) = (Vec::new(), 0);
        for packet in
            self.came.iter().filter(|packet| packet.era == era && !written.contains_key(&packet.number))
        {
            if !passes(filter, packet.port)? {
                continue;
            }
            let inside = |margin_ns: i64| {
                (window.0 - margin_ns..=window.1.saturating_add(margin_ns)).contains(&packet.time_ns)
            };
            perhaps += u64::from(inside(self.same_ns));
            if inside(-self.same_ns) {
                surely.push(*packet);
            }
        }
        Ok((surely, perhaps))
    }
}

/// The packets of a dump's files by number: time and port.
fn written(dump: &Value, piped: Option<&[u8]>, faults: &mut Vec<String>) -> BTreeMap<u64, (i64, u16)> {
    let mut found = BTreeMap::new();
    let paths = dump["paths"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let files = paths.map(|path| read(Path::new(path))).chain(piped.map(parse));
    for file in files {
        let packets = match file {
            Ok(file) => file.capture.packets,
            Err(error) => {
                faults.push(error);
                continue;
            }
        };
        if piped.is_none() && !packets.is_sorted_by_key(|packet| packet.time_ns) {
            faults.push("its packets are out of order".to_string());
        }
        for packet in packets {
            match number_and_port(&packet.data) {
                Some((number, port)) => {
                    if found.insert(number, (packet.time_ns, port)).is_some() {
                        faults.push(format!("packet {number} comes twice"));
                    }
                }
                None => faults.push("a packet that was not sent".to_string()),
            }
        }
    }
    found
}

/// How exactly the witness knows the times.
pub const WITNESS_NS: i64 = SAME_NS;
