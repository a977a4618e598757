//! The hosts, ports, pairs of hosts or protocols with the most packets of an answer, in bounded memory.
//!
//! ```text
//! key ─► known: counted │ new: counted from 0, error = floor       table full: the lower half goes,
//!                                                                  floor = the most that any of it may have had
//! ```
//! A key had at least what is counted since it came, and at most that and its error. As long as the table was
//! never full all is exact.
//! This is the space-saving algorithm (Metwally and others, 2005), with the smallest ones evicted together
//! instead of one by one. Addresses are read from headers: the key column folds those of IPv6.

use crate::line::protocol_word;
use crate::sum::Sum;
use scope_dump::Consumer;
use scope_dump::merge::Position;
use scope_packet::headers::Kind;
use scope_packet::pcapng::PacketBlock;
use scope_packet::{Headers, LinkType};
use scope_spelling::figures::{number, size};
use serde_json::{Map, Value, json};
use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// What a key of the table takes, with all that belongs to it, at most about so many bytes.
const KEY_BYTES: u64 = 256;

/// What is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// Addresses: a packet counts for both of its own.
    Host,
    /// Ports, of one protocol each: a packet counts for both of its own.
    Port,
    /// Two addresses, whoever sends.
    Pair,
    /// IP protocols, ARP, other types of frames.
    Proto,
}

impl By {
    /// The words, as they are typed and as JSON names them.
    pub const WORDS: [&'static str; 4] = ["host", "port", "pair", "proto"];

    /// What a word says.
    pub fn of(word: &str) -> Option<By> {
        let all = [By::Host, By::Port, By::Pair, By::Proto];
        all.into_iter().find(|by| by.word() == word)
    }

    /// Its word.
    pub fn word(self) -> &'static str {
        By::WORDS[self as usize]
    }
}

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Key {
    Host(IpAddr),
    Port(u16, u8),
    Pair(IpAddr, IpAddr),
    Ip(u8),
    Arp,
    Other,
}

impl Key {
    fn words(self) -> String {
        match self {
            Key::Host(address) => address.to_string(),
            Key::Port(port, protocol) => format!("{} {port}", protocol_word(protocol)),
            Key::Pair(one, other) => format!("{one} {other}"),
            Key::Ip(protocol) => protocol_word(protocol),
            Key::Arp => "ARP".to_string(),
            Key::Other => "other".to_string(),
        }
    }

    fn json(self) -> Map<String, Value> {
        let keys: Vec<(&str, Value)> = match self {
            Key::Host(address) => vec![("host", json!(address.to_string()))],
            Key::Port(port, protocol) => {
                vec![("port", json!(port)), ("protocol", json!(protocol_word(protocol).to_lowercase()))]
            }
            Key::Pair(one, other) => vec![("pair", json!([one.to_string(), other.to_string()]))],
            Key::Ip(_) | Key::Arp | Key::Other => vec![("proto", json!(self.words().to_lowercase()))],
        };
        keys.into_iter().map(|(key, value)| (key.to_string(), value)).collect()
    }
}

/// What is counted of a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Count {
    packets: u64,
    bytes: u64,
    /// Packets that it may have had before they were counted.
    error: u64,
}

impl Count {
    fn most(&self) -> u64 {
        self.packets + self.error
    }
}

/// Counts by key.
pub struct Top {
    by: By,
    keys_max: usize,
    counts: HashMap<Key, Count>,
    /// The most packets that a key which isn't in the table may have had.
    floor: u64,
    /// What all packets come to.
    pub sum: Sum,
}

/// A line of the answer.
#[derive(Clone, Copy, Debug)]
struct Row {
    key: Key,
    count: Count,
}

impl Top {
    /// In so much memory.
    pub fn new(by: By, memory_bytes: u64) -> Top {
        let keys_max = (memory_bytes / KEY_BYTES) as usize;
        Top { by, keys_max, counts: HashMap::new(), floor: 0, sum: Sum::default() }
    }

    fn count(&mut self, key: Key, bytes: u64) {
        let floor = self.floor;
        let count = self.counts.entry(key).or_insert(Count { error: floor, ..Count::default() });
        count.packets += 1;
        count.bytes += bytes;
        if self.counts.len() > self.keys_max {
            self.evict();
        }
    }

    /// The half with fewer packets goes.
    fn evict(&mut self) {
        let mut most: Vec<u64> = self.counts.values().map(Count::most).collect();
        let middle = most.len() / 2;
        let (_, &mut middle, _) = most.select_nth_unstable(middle);
        let mut room = self.keys_max / 2;
        let above = self.counts.values().filter(|count| count.most() > middle).count();
        let mut equal = room.saturating_sub(above);
        let mut floor = self.floor;
        self.counts.retain(|_, count| {
            let stays = match count.most().cmp(&middle) {
                std::cmp::Ordering::Greater => room > 0,
                std::cmp::Ordering::Equal => equal > 0,
                std::cmp::Ordering::Less => false,
            };
            if stays {
                room = room.saturating_sub(1);
                equal -= usize::from(count.most() == middle);
            } else {
                floor = floor.max(count.most());
            }
            stays
        });
        self.floor = floor;
    }

    fn is_exact(&self) -> bool {
        self.floor == 0
    }

    /// The first `limit` rows, those with most packets first, then with most bytes; and what any other key had at
    /// most.
    fn rows(&self, limit: usize) -> (Vec<Row>, u64) {
        let mut rows: Vec<Row> = self.counts.iter().map(|(&key, &count)| Row { key, count }).collect();
        rows.sort_unstable_by(|a, b| {
            let place = |row: &Row| (row.count.packets, row.count.bytes);
            place(b).cmp(&place(a)).then(a.key.cmp(&b.key))
        });
        let others = rows.iter().skip(limit).map(|row| row.count.most()).max();
        rows.truncate(limit);
        (rows, others.unwrap_or(0).max(self.floor))
    }

    /// As a table, and what is to be known of it.
    pub fn words(&self, limit: usize) -> String {
        let (rows, others) = self.rows(limit);
        if rows.is_empty() {
            return String::new();
        }
        let exact = self.is_exact();
        let packets = |row: &Row| match row.count.error {
            0 => number(row.count.packets),
            _ => format!("{} to {}", number(row.count.packets), number(row.count.most())),
        };
        let share = |row: &Row| 100.0 * row.count.packets as f64 / self.sum.packets.max(1) as f64;
        let least = if exact { "bytes" } else { "bytes, at least" };
        let mut table: Vec<[String; 4]> =
            vec![["packets", "share", least, self.by.word()].map(str::to_string)];
        table.extend(rows.iter().map(|row| {
            [packets(row), format!("{:.1}%", share(row)), size(row.count.bytes), row.key.words()]
        }));
        let width = |column: usize| table.iter().map(|row| row[column].len()).max().unwrap_or(0);
        let widths = [width(0), width(1), width(2)];
        let mut text = String::new();
        for [packets, share, bytes, key] in &table {
            let [a, b, c] = widths;
            text.push_str(&format!("{packets:>a$}  {share:>b$}  {bytes:>c$}  {key}\n"));
        }
        let more = self.counts.len().saturating_sub(rows.len());
        if !exact {
            text.push_str(&format!(
                "approximate: more than {} different; one that isn't here had at most {} packets\n",
                number(self.keys_max as u64),
                number(others)
            ));
        } else if more > 0 {
            text.push_str(&format!("and {} more (see: --limit)\n", number(more as u64)));
        }
        text
    }

    /// As JSON.
    pub fn json(&self, limit: usize) -> Map<String, Value> {
        let (rows, others) = self.rows(limit);
        let rows: Vec<Value> = rows
            .iter()
            .map(|row| {
                let mut object = row.key.json();
                object.insert("packets".into(), json!(row.count.packets));
                object.insert("bytes".into(), json!(row.count.bytes));
                if !self.is_exact() {
                    object.insert("packets_max".into(), json!(row.count.most()));
                }
                Value::Object(object)
            })
            .collect();
        let keys = self.is_exact().then_some(self.counts.len());
        let object = [
            ("top", json!(self.by.word())),
            ("exact", json!(self.is_exact())),
            ("different", json!(keys)),
            ("others_max", json!(others)),
            ("rows", json!(rows)),
        ];
        object.into_iter().map(|(key, value)| (key.to_string(), value)).collect()
    }
}

impl Consumer for Top {
    fn packet(&mut self, _: Position, link_type: LinkType, block: &[u8]) {
        let Some(block) = PacketBlock::first(block) else { return };
        self.sum.add(&block);
        let (data, bytes) = (block.data(), block.data().len() as u64);
        let headers = Headers::parse(link_type, data);
        match self.by {
            By::Host => {
                let Some((source, destination)) = addresses(&headers, data) else { return };
                self.count(Key::Host(source), bytes);
                if source != destination {
                    self.count(Key::Host(destination), bytes);
                }
            }
            By::Pair => {
                let Some((source, destination)) = addresses(&headers, data) else { return };
                self.count(Key::Pair(source.min(destination), source.max(destination)), bytes);
            }
            By::Port => {
                let Some((source, destination)) = headers.ports() else { return };
                let protocol = headers.protocol();
                self.count(Key::Port(source, protocol), bytes);
                if source != destination {
                    self.count(Key::Port(destination, protocol), bytes);
                }
            }
            By::Proto => {
                let key = match headers.kind() {
                    Kind::Ipv4 | Kind::Ipv6 => Key::Ip(headers.protocol()),
                    Kind::Arp => Key::Arp,
                    Kind::Other => Key::Other,
                };
                self.count(key, bytes);
            }
        }
    }
}

fn addresses(headers: &Headers, data: &[u8]) -> Option<(IpAddr, IpAddr)> {
    let (source, destination) = headers.address_bytes(data)?;
    let address = |bytes: &[u8]| {
        let four = <[u8; 4]>::try_from(bytes).map(|bytes| IpAddr::from(Ipv4Addr::from(bytes)));
        four.or_else(|_| <[u8; 16]>::try_from(bytes).map(|bytes| IpAddr::from(Ipv6Addr::from(bytes)))).ok()
    };
    Some((address(source)?, address(destination)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #[test]
        fn what_a_full_table_says_holds_for_every_key(
            keys in prop::collection::vec(prop::sample::select((0..40u8).collect::<Vec<_>>()), 0..400),
            heavy in prop::collection::vec(prop::sample::select(vec![100u8, 101]), 0..300),
            keys_max in 4..64usize,
        ) {
            let mut top = Top { keys_max, ..Top::new(By::Proto, 0) };
            let mut truth: BTreeMap<Key, u64> = BTreeMap::new();
            let all = keys.iter().zip(heavy.iter().map(Some).chain(std::iter::repeat(None)));
            for (&key, heavy) in all {
                for key in std::iter::once(key).chain(heavy.copied()) {
                    top.count(Key::Ip(key), 1);
                    *truth.entry(Key::Ip(key)).or_default() += 1;
                }
            }
            prop_assert!(top.counts.len() <= keys_max);
            for (key, &packets) in &truth {
                match top.counts.get(key) {
                    Some(count) => prop_assert!((count.packets..=count.most()).contains(&packets)),
                    None => prop_assert!(packets <= top.floor),
                }
            }
            if truth.len() <= keys_max {
                prop_assert!(top.is_exact());
            }
        }
    }
}
