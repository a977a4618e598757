//! Both halves of a flow that came through two interfaces, as a tap pair brings them, become one record.
//!
//! A record that has packets of one direction only waits for its other half. It waits in capture time, no longer
//! than flows may be silent, and there is a bound on how many do: beyond, the oldest go as they are.

use crate::entry::Record;
use crate::key::Key;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// Records that wait at most.
const WAITING_MAX: usize = 1 << 16;

/// A record, and the interfaces of its two directions.
#[derive(Clone, Debug)]
pub(crate) struct Paired {
    pub record: Record,
    pub interface: Arc<str>,
    pub interface_rev: Option<Arc<str>>,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Taps {
    /// By key without interface, and whether it goes from the greater end to the lesser one.
    waiting: HashMap<(Key, bool), (u64, Paired)>,
    /// In the order in which they came: their end, and what they wait by.
    order: BTreeMap<u64, (i64, (Key, bool))>,
    next: u64,
}

/// Whether all packets go from the greater end of the key to the lesser one; `None`: there are both, or there can be
/// no others.
fn only_way(record: &Record) -> Option<bool> {
    let [forward, reverse] = &record.sides;
    if record.key.is_one_way() {
        return None;
    }
    match (forward.packets, reverse.packets) {
        (_, 0) => Some(record.is_reverse),
        (0, _) => Some(!record.is_reverse),
        _ => None,
    }
}

impl Taps {
    /// Takes a record; what is whole goes to `whole`.
    pub fn add(&mut self, record: Record, interface: Arc<str>, idle_ns: i64, whole: &mut Vec<Paired>) {
        let paired = Paired { record, interface, interface_rev: None };
        let Some(way) = only_way(&record) else { return whole.push(paired) };
        let key = record.key.at_interface(0);
        let other = self.waiting.get(&(key, !way)).filter(|(_, other)| {
            let other_record = &other.record;
            other.interface != paired.interface
                && other_record.start_ns <= record.end_ns.saturating_add(idle_ns)
                && record.start_ns <= other_record.end_ns.saturating_add(idle_ns)
        });
        if other.is_some()
            && let Some((number, other)) = self.waiting.remove(&(key, !way))
        {
            self.order.remove(&number);
            return whole.push(joined(other, paired));
        }
        if let Some((number, before)) = self.waiting.remove(&(key, way)) {
            self.order.remove(&number);
            whole.push(before);
        }
        self.waiting.insert((key, way), (self.next, paired));
        self.order.insert(self.next, (record.end_ns, (key, way)));
        self.next += 1;
        while self.waiting.len() > WAITING_MAX {
            self.release_first(whole);
        }
    }

    fn release_first(&mut self, whole: &mut Vec<Paired>) {
        if let Some((_, (_, by))) = self.order.pop_first()
            && let Some((_, paired)) = self.waiting.remove(&by)
        {
            whole.push(paired);
        }
    }

    /// What ended before `time_ns` waits no longer. Records come nearly in order of their ends: those behind one that
    /// waits are looked at when it goes.
    pub fn release(&mut self, time_ns: i64, whole: &mut Vec<Paired>) {
        while self.order.first_key_value().is_some_and(|(_, (end_ns, _))| *end_ns < time_ns) {
            self.release_first(whole);
        }
    }
}

/// The earlier one says who is the source, unless the handshake does in both.
fn joined(one: Paired, other: Paired) -> Paired {
    let (first, second) =
        if one.record.start_ns <= other.record.start_ns { (one, other) } else { (other, one) };
    let mut record = first.record;
    record.start_ns = record.start_ns.min(second.record.start_ns);
    record.end_ns = record.end_ns.max(second.record.end_ns);
    if let (Some(connection), Some(of_second)) = (&mut record.connection, &second.record.connection) {
        connection.join(of_second);
    }
    let mut sides = second.record.sides;
    if second.record.is_reverse != record.is_reverse {
        sides.swap(0, 1);
    }
    let is_first_forward = record.sides[0].packets > 0;
    let empty = usize::from(is_first_forward);
    record.sides[empty] = sides[empty];
    let (interface, interface_rev) = match is_first_forward {
        true => (first.interface, second.interface),
        false => (second.interface, first.interface),
    };
    Paired { record, interface, interface_rev: Some(interface_rev) }
}
