//! The addresses, ports, pairs of addresses or VLANs with the most bytes, packets or flows, of the last minutes.
//!
//! | by | ip | port | pair | vlan |
//! |---|---|---|---|---|
//! | bytes, packets | `traffic`: local addresses, what they sent and received | `traffic`: each packet once | `flows` | `intervals` |
//! | flows | `flows`: each record for both of its ends | `flows` | `flows` | `flows` |
//!
//! The span is counted back from the end of the newest interval, to the begin of the one that it touches: from `intervals` and `traffic` it takes intervals that
//! begin in it, from `flows` records that end in it. So what follows one another counts each packet and record once.
//! Ports are as in `traffic`: the smaller one of both, 0 from 32768 on or where there is none.

use super::bounds::Watch;
use super::database::Database;
use super::error::AskError;
use rusqlite::{Connection, OptionalExtension, Row};
use scope_fault::Fault;
use scope_flow::rows::Proto;
use scope_spelling::time::iso;
use serde_json::{Map, Value, json};
use std::collections::HashMap;

/// Rows of an answer, unless another number is given.
pub const ROWS: usize = 10;
/// How far back it goes, unless something else is said, ns.
pub const LAST_NS: i64 = 180_000_000_000;

/// By what they are ordered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum By {
    /// Original frame lengths.
    #[default]
    Bytes,
    /// Packets.
    Packets,
    /// Records of flows.
    Flows,
}

/// What is compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Dim {
    /// Addresses.
    #[default]
    Ip,
    /// Ports of one protocol.
    Port,
    /// Two addresses, whoever sends.
    Pair,
    /// VLANs.
    Vlan,
}

impl By {
    /// The words for them.
    pub const WORDS: [(&'static str, By); 3] =
        [("bytes", By::Bytes), ("packets", By::Packets), ("flows", By::Flows)];

    /// The one that is called so.
    pub fn of(word: &str) -> Option<By> {
        By::WORDS.iter().find(|(known, _)| *known == word).map(|&(_, by)| by)
    }

    /// The word for it.
    pub fn word(self) -> &'static str {
        By::WORDS.iter().find(|(_, by)| *by == self).map_or("", |(word, _)| word)
    }
}

impl Dim {
    /// The words for them.
    pub const WORDS: [(&'static str, Dim); 4] =
        [("ip", Dim::Ip), ("port", Dim::Port), ("pair", Dim::Pair), ("vlan", Dim::Vlan)];

    /// The one that is called so.
    pub fn of(word: &str) -> Option<Dim> {
        Dim::WORDS.iter().find(|(known, _)| *known == word).map(|&(_, dim)| dim)
    }

    /// The word for it.
    pub fn word(self) -> &'static str {
        Dim::WORDS.iter().find(|(_, dim)| *dim == self).map_or("", |(word, _)| word)
    }
}

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TopQuestion {
    /// The order.
    pub by: By,
    /// What is compared.
    pub dim: Dim,
    /// How far back, ns.
    pub last_ns: i64,
    /// Rows at most.
    pub rows: usize,
}

impl Default for TopQuestion {
    fn default() -> TopQuestion {
        TopQuestion { by: By::default(), dim: Dim::default(), last_ns: LAST_NS, rows: ROWS }
    }
}

/// What is counted.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Key {
    /// An address; of `traffic` also `*`, for addresses that were folded together.
    Ip(String),
    /// The protocol's word or number, and the port.
    Port(String, u16),
    /// Two addresses, the smaller text first.
    Pair(String, String),
    /// A VLAN; 0: untagged.
    Vlan(u16),
}

/// What a key has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Packets, in both directions.
    pub packets: u64,
    /// Their original frame lengths.
    pub bytes: u64,
    /// Of them those that the address received; only of addresses in `traffic`.
    pub received: Option<(u64, u64)>,
    /// Records of flows, where they are counted.
    pub flows: Option<u64>,
}

/// The answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopAnswer {
    /// What was asked.
    pub question: TopQuestion,
    /// The span, ns since the epoch; the end doesn't belong to it.
    pub span_ns: (i64, i64),
    /// The first ones.
    pub rows: Vec<(Key, Figures)>,
    /// How many there are.
    pub different: usize,
    /// What all come to: each packet and each record once.
    pub all: Figures,
    /// Packets that were lost in intervals of the span, at most.
    pub lost_max: u64,
}

impl Figures {
    fn add(&mut self, other: &Figures) {
        let both = |one: Option<u64>, other: Option<u64>| match (one, other) {
            (None, None) => None,
            (one, other) => Some(one.unwrap_or(0) + other.unwrap_or(0)),
        };
        self.packets += other.packets;
        self.bytes += other.bytes;
        self.flows = both(self.flows, other.flows);
        let of = |figures: &Figures, which: fn((u64, u64)) -> u64| figures.received.map(which);
        let packets = both(of(self, |pair| pair.0), of(other, |pair| pair.0));
        let bytes = both(of(self, |pair| pair.1), of(other, |pair| pair.1));
        self.received = packets.zip(bytes);
    }

    /// What the order is by.
    pub fn of(&self, by: By) -> u64 {
        match by {
            By::Bytes => self.bytes,
            By::Packets => self.packets,
            By::Flows => self.flows.unwrap_or(0),
        }
    }

    fn to_json(self) -> Map<String, Value> {
        let mut fields = vec![("packets", json!(self.packets)), ("bytes", json!(self.bytes))];
        if let Some((packets, bytes)) = self.received {
            fields.push(("in_packets", json!(packets)));
            fields.push(("in_bytes", json!(bytes)));
            fields.push(("out_packets", json!(self.packets - packets)));
            fields.push(("out_bytes", json!(self.bytes - bytes)));
        }
        if let Some(flows) = self.flows {
            fields.push(("flows", json!(flows)));
        }
        fields.into_iter().map(|(key, value)| (key.to_string(), value)).collect()
    }
}

impl Key {
    fn to_json(&self) -> Vec<(&'static str, Value)> {
        match self {
            Key::Ip(ip) => vec![("ip", json!(ip))],
            Key::Port(proto, port) => vec![("proto", json!(proto)), ("port", json!(port))],
            Key::Pair(one, other) => vec![("pair", json!([one, other]))],
            Key::Vlan(vlan) => vec![("vlan", json!(vlan))],
        }
    }
}

impl TopAnswer {
    /// As JSON.
    pub fn to_json(&self) -> Map<String, Value> {
        let rows = self.rows.iter().map(|(key, figures)| {
            let key = key.to_json().into_iter().map(|(key, value)| (key.to_string(), value));
            Value::Object(key.chain(figures.to_json()).collect())
        });
        let ((from_ns, to_ns), TopQuestion { by, dim, .. }) = (self.span_ns, self.question);
        let fields = [
            ("by", json!(by.word())),
            ("dim", json!(dim.word())),
            ("from", json!(iso(from_ns))),
            ("to", json!(iso(to_ns))),
            ("from_ns", json!(from_ns)),
            ("to_ns", json!(to_ns)),
            ("rows", rows.collect()),
            ("different", json!(self.different)),
            ("all", Value::Object(self.all.to_json())),
            ("lost_max", json!(self.lost_max)),
        ];
        fields.into_iter().map(|(key, value)| (key.to_string(), value)).collect()
    }
}

/// What each file is asked: for the keys, and for what all come to.
fn statements(by: By, dim: Dim) -> (&'static str, &'static str) {
    const RECORDS: &str = "SELECT count(*), sum(packets_fwd + packets_rev), sum(bytes_fwd + bytes_rev) \
                           FROM flows WHERE end_ns >= ?1 AND end_ns < ?2";
    const PACKETS: &str = "SELECT NULL, sum(ip_packets), sum(tcp_bytes + udp_bytes + icmp_bytes + other_bytes) \
                           FROM intervals WHERE ts_ns >= ?1 AND ts_ns < ?2";
    const FRAMES: &str =
        "SELECT NULL, sum(packets), sum(bytes) FROM intervals WHERE ts_ns >= ?1 AND ts_ns < ?2";
    match (by, dim) {
        (By::Bytes | By::Packets, Dim::Ip) => (
            "SELECT NULL, sum(in_packets + out_packets), sum(in_bytes + out_bytes), sum(in_packets), sum(in_bytes), ip \
             FROM traffic WHERE ts_ns >= ?1 AND ts_ns < ?2 AND ip <> '' GROUP BY ip",
            PACKETS,
        ),
        (By::Bytes | By::Packets, Dim::Port) => (
            "SELECT NULL, sum(in_packets), sum(in_bytes), NULL, NULL, proto, port \
             FROM traffic WHERE ts_ns >= ?1 AND ts_ns < ?2 GROUP BY proto, port HAVING sum(in_packets) > 0",
            PACKETS,
        ),
        (By::Bytes | By::Packets, Dim::Vlan) => (
            "SELECT NULL, sum(packets), sum(bytes), NULL, NULL, vlan \
             FROM intervals WHERE ts_ns >= ?1 AND ts_ns < ?2 GROUP BY vlan",
            FRAMES,
        ),
        (By::Flows, Dim::Ip) => (
            "SELECT count(*), sum(packets), sum(bytes), NULL, NULL, ip FROM ( \
                 SELECT src_ip AS ip, packets_fwd + packets_rev AS packets, bytes_fwd + bytes_rev AS bytes \
                 FROM flows WHERE end_ns >= ?1 AND end_ns < ?2 AND src_ip <> '' \
                 UNION ALL \
                 SELECT dst_ip, packets_fwd + packets_rev, bytes_fwd + bytes_rev \
                 FROM flows WHERE end_ns >= ?1 AND end_ns < ?2 AND dst_ip <> '' AND dst_ip <> src_ip \
             ) GROUP BY ip",
            RECORDS,
        ),
        (By::Flows, Dim::Port) => (
            "SELECT count(*), sum(packets_fwd + packets_rev), sum(bytes_fwd + bytes_rev), NULL, NULL, proto, \
                 CASE WHEN min(src_port, dst_port) < 32768 AND proto IN (6, 17, 132) \
                      THEN min(src_port, dst_port) ELSE 0 END AS port \
             FROM flows WHERE end_ns >= ?1 AND end_ns < ?2 AND src_ip <> '' GROUP BY proto, port",
            RECORDS,
        ),
        (By::Flows, Dim::Vlan) => (
            "SELECT count(*), sum(packets_fwd + packets_rev), sum(bytes_fwd + bytes_rev), NULL, NULL, vlan \
             FROM flows WHERE end_ns >= ?1 AND end_ns < ?2 AND src_ip <> '' GROUP BY vlan",
            RECORDS,
        ),
        (_, Dim::Pair) => (
            "SELECT count(*), sum(packets_fwd + packets_rev), sum(bytes_fwd + bytes_rev), NULL, NULL, \
                 min(src_ip, dst_ip) AS one, max(src_ip, dst_ip) AS other \
             FROM flows WHERE end_ns >= ?1 AND end_ns < ?2 AND src_ip <> '' GROUP BY one, other",
            RECORDS,
        ),
    }
}

/// The figures that a row begins with.
fn figures(row: &Row<'_>, has_received: bool) -> rusqlite::Result<Figures> {
    let number = |at: usize| row.get::<_, Option<i64>>(at).map(|number| number.map(|number| number as u64));
    let received = if has_received { number(3)?.zip(number(4)?) } else { None };
    let (packets, bytes) = (number(1)?.unwrap_or(0), number(2)?.unwrap_or(0));
    Ok(Figures { flows: number(0)?, packets, bytes, received })
}

/// What stands behind them.
fn key(row: &Row<'_>, question: TopQuestion) -> rusqlite::Result<Key> {
    Ok(match (question.dim, question.by) {
        (Dim::Ip, _) => Key::Ip(row.get(5)?),
        (Dim::Pair, _) => Key::Pair(row.get(5)?, row.get(6)?),
        (Dim::Vlan, _) => Key::Vlan(row.get(5)?),
        (Dim::Port, By::Flows) => Key::Port(proto(row.get(5)?), row.get(6)?),
        (Dim::Port, _) => Key::Port(row.get(5)?, row.get(6)?),
    })
}

/// The word for a protocol's number, as `traffic` has it; else the number.
fn proto(number: u8) -> String {
    match Proto::of(number) {
        Proto::Other => number.to_string(),
        known => known.word().to_string(),
    }
}

impl Database {
    /// The first ones of a span.
    ///
    /// # Errors
    /// There is no interval yet, there are too many different keys, or something can't be read.
    pub fn top(&self, question: TopQuestion, watch: &Watch) -> Result<TopAnswer, AskError> {
        let mut span_ns = None;
        let mut counts: HashMap<Key, Figures> = HashMap::new();
        let (mut all, mut lost_max) = (Figures::default(), 0);
        // The newest first: behind the begin of the span no file has anything of it.
        for file in self.files()?.iter().rev() {
            if watch.is_over() {
                return Err(too_long(watch));
            }
            let Some(connection) = self.open(file)? else { continue };
            let unread = |error: rusqlite::Error| AskError::unread(&file.path, &error);
            watch.watch(&connection).map_err(unread)?;
            if span_ns.is_none() {
                let newest = newest(&connection).map_err(unread)?;
                span_ns = newest.map(|newest| span(newest, question.last_ns));
            }
            let Some(span_ns) = span_ns else { continue };
            if file.period_ns.is_some_and(|(_, to_ns)| to_ns <= span_ns.0) {
                break;
            }
            let keys_max = watch.keys_max();
            let added = add(&connection, question, span_ns, keys_max, (&mut counts, &mut all, &mut lost_max));
            match added {
                Ok(()) if counts.len() > keys_max => return Err(too_many(question, keys_max)),
                Ok(()) => connection.expect_unchanged()?,
                Err(_) if watch.is_over() => return Err(too_long(watch)),
                Err(error) => return Err(unread(error)),
            }
        }
        let Some(span_ns) = span_ns else {
            let fault = Fault::of("db").with_value(self.path().to_string_lossy());
            let fault = fault.cause("there is no interval in it yet");
            return Err(AskError::Refused(fault.remedy("wait until the first one is settled")));
        };
        let different = counts.len();
        let mut rows: Vec<(Key, Figures)> = counts.into_iter().collect();
        let place = |figures: &Figures| (figures.of(question.by), figures.bytes, figures.packets);
        rows.sort_unstable_by(|a, b| place(&b.1).cmp(&place(&a.1)).then_with(|| a.0.cmp(&b.0)));
        rows.truncate(question.rows);
        Ok(TopAnswer { question, span_ns, rows, different, all, lost_max })
    }
}

/// Begin and end of the newest interval of a file.
fn newest(connection: &Connection) -> rusqlite::Result<Option<(i64, i64)>> {
    let sql = "SELECT ts_ns, ts_ns + length_ns FROM intervals ORDER BY ts_ns DESC LIMIT 1";
    connection.query_row(sql, [], |row| Ok((row.get(0)?, row.get(1)?))).optional()
}

/// From the begin of the interval that was going on so long before the end of the newest one: an interval that is
/// touched counts as a whole.
fn span((begin_ns, end_ns): (i64, i64), last_ns: i64) -> (i64, i64) {
    let length_ns = (end_ns - begin_ns).max(1);
    let intervals = last_ns / length_ns + i64::from(last_ns % length_ns > 0);
    (end_ns.saturating_sub(intervals.saturating_mul(length_ns)), end_ns)
}

/// Adds what one file has of the span.
fn add(
    connection: &Connection,
    question: TopQuestion,
    (from_ns, to_ns): (i64, i64),
    keys_max: usize,
    (counts, all, lost_max): (&mut HashMap<Key, Figures>, &mut Figures, &mut u64),
) -> rusqlite::Result<()> {
    let (keys, sum) = statements(question.by, question.dim);
    // All of one moment.
    connection.execute_batch("BEGIN")?;
    let mut keys = connection.prepare(keys)?;
    let mut rows = keys.query([from_ns, to_ns])?;
    while let Some(row) = rows.next()? {
        let (key, figures) = (key(row, question)?, figures(row, true)?);
        counts.entry(key).or_default().add(&figures);
        if counts.len() > keys_max {
            return Ok(());
        }
    }
    all.add(&connection.query_row(sum, [from_ns, to_ns], |row| figures(row, false))?);
    let lost = "SELECT sum(lost_max) FROM intervals WHERE ts_ns >= ?1 AND ts_ns < ?2";
    let lost: Option<i64> = connection.query_row(lost, [from_ns, to_ns], |row| row.get(0))?;
    *lost_max += lost.unwrap_or(0) as u64;
    Ok(())
}

fn too_many(question: TopQuestion, keys_max: usize) -> AskError {
    let (word, last) = (question.dim.word(), scope_spelling::figures::span(question.last_ns));
    let fault = Fault::of("last").with_value(last);
    let many = scope_spelling::figures::number(keys_max as u64);
    let fault = fault.cause(format!("has more than {many} different values of {word}"));
    AskError::Refused(fault.remedy("ask for a shorter span"))
}

fn too_long(watch: &Watch) -> AskError {
    let fault = Fault::of("last").cause(match watch.cut() {
        Some(super::bounds::Cut::Stopped) => "was stopped before there was an answer",
        _ => "takes more time or memory than is allowed",
    });
    AskError::Refused(fault.remedy("ask for a shorter span"))
}
