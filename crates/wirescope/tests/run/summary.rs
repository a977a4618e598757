//! The summary of a run, checked against its contract while it is read: every key there, every type right.

use serde_json::Value;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Packets and bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Amount {
    pub packets: u64,
    pub bytes: u64,
}

/// The counters of one trigger.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hits {
    pub fired: u64,
    pub extended: u64,
    pub held_off: u64,
    pub no_space: u64,
    pub too_many: u64,
    pub template_unfilled: u64,
    pub filter_uncompiled: u64,
    pub disarmed: u64,
}

impl Hits {
    pub fn sum(&self) -> u64 {
        let started_none =
            self.no_space + self.too_many + self.template_unfilled + self.filter_uncompiled + self.disarmed;
        self.fired + self.extended + self.held_off + started_none
    }
}

/// What a dump lacks of what was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gap {
    pub from_ns: i64,
    pub to_ns: i64,
    pub reason: String,
    pub lost_min: u64,
    pub lost_max: Option<u64>,
}

/// One dump.
#[derive(Clone, Debug)]
pub struct Dump {
    pub id: Value,
    pub trigger: String,
    pub time_ns: i64,
    pub filter: Value,
    pub asked: (i64, i64),
    pub from_ns: i64,
    pub to_ns: i64,
    pub gaps: Vec<Gap>,
    pub packets: u64,
    pub bytes: u64,
    pub lost_min: u64,
    /// `u64::MAX`: nobody knows.
    pub lost_max: u64,
    pub complete: bool,
    /// Empty where an incomplete dump came to no file.
    pub path: PathBuf,
    pub paths: Vec<PathBuf>,
}

impl Dump {
    /// Nothing that came was lost: all that it lacks is time in which nothing could come.
    pub fn lost_nothing(&self) -> bool {
        const UNHEARD: [&str; 6] =
            ["interface_down", "interface_gone", "not_started", "stopped", "capture_begin", "capture_end"];
        (self.lost_min, self.lost_max) == (0, 0)
            && self.gaps.iter().all(|gap| UNHEARD.contains(&gap.reason.as_str()))
    }

    /// Its gaps for this reason.
    pub fn gaps_of(&self, reason: &str) -> Vec<&Gap> {
        self.gaps.iter().filter(|gap| gap.reason == reason).collect()
    }
}

/// The whole object.
#[derive(Clone, Debug)]
pub struct Summary {
    pub received: Amount,
    pub stored: Amount,
    pub filtered: Amount,
    pub dropped: BTreeMap<String, u64>,
    pub hits: BTreeMap<String, Hits>,
    /// Sorted by time and trigger.
    pub dumps: Vec<Dump>,
    pub warnings: Vec<String>,
}

impl Summary {
    /// Reads the one JSON object that `text` is.
    ///
    /// # Errors
    /// What is missing or of another type.
    pub fn parse(text: &str) -> Result<Summary, String> {
        let whole: Value = serde_json::from_str(text).map_err(|e| format!("not one JSON object: {e}"))?;
        let dropped = object(&whole, "dropped")?;
        let hits = object(&whole, "hits")?;
        let dumps = whole["dumps"].as_array().ok_or("no array 'dumps'")?;
        let mut summary = Summary {
            received: amount(&whole, "received")?,
            stored: amount(&whole, "stored")?,
            filtered: amount(&whole, "filtered")?,
            dropped: dropped
                .keys()
                .map(|name| Ok((name.clone(), number(&whole["dropped"], name)?)))
                .collect::<Result<_, String>>()?,
            hits: hits
                .iter()
                .map(|(name, value)| Ok((name.clone(), trigger_hits(value)?)))
                .collect::<Result<_, String>>()?,
            dumps: dumps.iter().map(dump).collect::<Result<_, String>>()?,
            warnings: whole["warnings"]
                .as_array()
                .ok_or("no array 'warnings'")?
                .iter()
                .map(Value::to_string)
                .collect(),
        };
        summary.dumps.sort_by(|a, b| (a.time_ns, &a.trigger).cmp(&(b.time_ns, &b.trigger)));
        Ok(summary)
    }

    /// The law of conservation, and that each trigger that fired has its dumps.
    pub fn assert_adds_up(&self) {
        let dropped: u64 = self.dropped.values().sum();
        assert_eq!(self.received.packets, self.stored.packets + self.filtered.packets + dropped, "{self:?}");
        for dump in &self.dumps {
            assert!(dump.lost_min <= dump.lost_max, "{dump:?}");
            assert!(dump.from_ns <= dump.to_ns, "{dump:?}");
            assert!(dump.asked.0 <= dump.from_ns && dump.to_ns <= dump.asked.1.max(dump.from_ns), "{dump:?}");
            assert!(!dump.complete || dump.gaps.is_empty(), "{dump:?}");
            let inside = |gap: &Gap| {
                dump.asked.0 <= gap.from_ns && gap.from_ns <= gap.to_ns && gap.to_ns <= dump.asked.1
            };
            assert!(
                dump.gaps.iter().all(inside) && dump.gaps.is_sorted_by_key(|gap| gap.from_ns),
                "{dump:?}"
            );
        }
    }

    /// The only dump.
    pub fn only_dump(&self) -> &Dump {
        assert_eq!(self.dumps.len(), 1, "{self:?}");
        &self.dumps[0]
    }
}

fn object<'a>(value: &'a Value, key: &str) -> Result<&'a serde_json::Map<String, Value>, String> {
    value[key].as_object().ok_or(format!("no object '{key}' in {value}"))
}

fn number(value: &Value, key: &str) -> Result<u64, String> {
    value[key].as_u64().ok_or(format!("no number '{key}' in {value}"))
}

fn number_or_null(value: &Value, key: &str) -> Result<Option<u64>, String> {
    if value[key].is_null() { Ok(None) } else { number(value, key).map(Some) }
}

fn gap(value: &Value) -> Result<Gap, String> {
    Ok(Gap {
        from_ns: time_ns(value, "from")?,
        to_ns: time_ns(value, "to")?,
        reason: string(value, "reason")?,
        lost_min: number(value, "lost_min")?,
        lost_max: number_or_null(value, "lost_max")?,
    })
}

fn string(value: &Value, key: &str) -> Result<String, String> {
    value[key].as_str().map(String::from).ok_or(format!("no string '{key}' in {value}"))
}

fn amount(value: &Value, key: &str) -> Result<Amount, String> {
    Ok(Amount { packets: number(&value[key], "packets")?, bytes: number(&value[key], "bytes")? })
}

fn trigger_hits(value: &Value) -> Result<Hits, String> {
    Ok(Hits {
        fired: number(value, "fired")?,
        extended: number(value, "extended")?,
        held_off: number(value, "held_off")?,
        no_space: number(value, "no_space")?,
        too_many: number(value, "too_many")?,
        template_unfilled: number(value, "template_unfilled")?,
        filter_uncompiled: number(value, "filter_uncompiled")?,
        disarmed: number(value, "disarmed")?,
    })
}

fn dump(value: &Value) -> Result<Dump, String> {
    let has = |key: &str| value.get(key).cloned().ok_or(format!("no '{key}' in {value}"));
    let complete = value["complete"].as_bool().ok_or(format!("no truth value 'complete' in {value}"))?;
    // An incomplete dump may have come to no file at all.
    let no_file = !complete && has("path")?.is_null() && value["paths"].as_array().is_some_and(Vec::is_empty);
    let path = PathBuf::from(if no_file { String::new() } else { string(value, "path")? });
    let paths = value["paths"].as_array().ok_or(format!("no array 'paths' in {value}"))?;
    let paths: Option<Vec<PathBuf>> = paths.iter().map(|path| path.as_str().map(PathBuf::from)).collect();
    let paths = paths.ok_or(format!("'paths' are no strings in {value}"))?;
    if !no_file
        && (!path.is_absolute() || paths.iter().any(|path| !path.is_absolute()) || !paths.contains(&path))
    {
        return Err(format!("paths are not absolute, or 'path' is not one of 'paths': {value}"));
    }
    Ok(Dump {
        id: has("id")?,
        trigger: string(value, "trigger")?,
        time_ns: time_ns(value, "time")?,
        filter: has("filter")?,
        asked: (time_ns(&value["asked"], "from")?, time_ns(&value["asked"], "to")?),
        from_ns: time_ns(value, "from")?,
        to_ns: time_ns(value, "to")?,
        gaps: value["gaps"]
            .as_array()
            .ok_or("no array 'gaps'")?
            .iter()
            .map(gap)
            .collect::<Result<_, String>>()?,
        packets: number(value, "packets")?,
        bytes: number(value, "bytes")?,
        lost_min: number(value, "lost_min")?,
        lost_max: number_or_null(value, "lost_max")?.unwrap_or(u64::MAX),
        complete,
        path,
        paths,
    })
}

/// A time such as `2026-11-20T20:31:05.123456789Z`.
fn time_ns(value: &Value, key: &str) -> Result<i64, String> {
    let text = string(value, key)?;
    if text.len() != 30 || !text.ends_with('Z') || text.as_bytes()[19] != b'.' {
        return Err(format!("'{key}' is no ISO 8601 with nanoseconds and Z: {text}"));
    }
    let time: jiff::Timestamp = text.parse().map_err(|e| format!("'{key}' {text}: {e}"))?;
    i64::try_from(time.as_nanosecond()).map_err(|e| format!("'{key}' {text}: {e}"))
}

/// A time as file names spell it: `2026-11-20T20-31-05.123456789Z`.
pub fn file_time(time_ns: i64) -> String {
    let time = jiff::Timestamp::from_nanosecond(i128::from(time_ns)).expect("a time in range");
    format!("{time:.9}").replace(':', "-")
}
