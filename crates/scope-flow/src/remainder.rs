//! What takes the place of rows that can't be kept: sums, so that totals stay exact.
//!
//! Traffic is folded by interval, interface, VLAN and protocol; records by interface, VLAN and protocol.

use crate::community::CommunityId;
use crate::entry::{Delta, Record};
use crate::rows::{Amount, FlowRow, Owner, Proto, Reason, Role, Settled, Side, TrafficRow};
use crate::table::HandedFlows;
use std::collections::BTreeMap;
use std::sync::Arc;

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Remainder {
    /// Received and sent, by the interval's begin.
    traffic: BTreeMap<(i64, Arc<str>, u16, Proto), [Amount; 2]>,
    flows: BTreeMap<(Arc<str>, u16, u8), FlowRow>,
    /// Rows of traffic, and records, that it stands for.
    pub folded_rows: u64,
    /// See `folded_rows`.
    pub folded_flows: u64,
}

/// Records that were made one.
struct Joint {
    start_ns: i64,
    end_ns: i64,
    sides: [Side; 2],
}

impl Joint {
    fn new(start_ns: i64) -> Joint {
        Joint { start_ns, end_ns: i64::MIN, sides: [Side::default(); 2] }
    }

    fn add(&mut self, start_ns: i64, end_ns: i64, sides: &[Side; 2]) {
        self.start_ns = self.start_ns.min(start_ns);
        self.end_ns = self.end_ns.max(end_ns);
        for (joint, side) in self.sides.iter_mut().zip(sides) {
            joint.join(side);
        }
    }
}

impl Remainder {
    /// It stands for nothing.
    pub fn is_empty(&self) -> bool {
        self.traffic.is_empty() && self.flows.is_empty()
    }

    /// Takes what a worker can't hand on: both rows of traffic of each delta, and records. `name` is that of an interface.
    ///
    /// It is the worker that folds. So sums are made by its own numbers first: names are shared with the thread that joins,
    /// and counting who has one costs both more than all the rest.
    pub fn add_handed<'a>(
        &mut self,
        flows: &HandedFlows,
        name: impl Fn(u32) -> &'a Arc<str>,
        length_ns: i64,
    ) {
        let mut traffic: BTreeMap<(i64, u32, u16, Proto), Amount> = BTreeMap::new();
        for Delta { key, interval, amounts } in &flows.deltas {
            let by = (*interval, key.interface, key.vlan(), Proto::of(key.protocol()));
            let sum = traffic.entry(by).or_default();
            sum.add(&amounts[0]);
            sum.add(&amounts[1]);
        }
        for ((interval, interface, vlan, proto), sum) in traffic {
            let by = (interval.saturating_mul(length_ns), name(interface).clone(), vlan, proto);
            let [received, sent] = self.traffic.entry(by).or_default();
            received.add(&sum);
            sent.add(&sum);
        }
        self.folded_rows += 2 * flows.deltas.len() as u64;
        let mut records: BTreeMap<(u32, u16, u8), Joint> = BTreeMap::new();
        for record in &flows.records {
            let Record { key, start_ns, end_ns, sides, .. } = record;
            let by = (key.interface, key.vlan(), key.protocol());
            records.entry(by).or_insert_with(|| Joint::new(*start_ns)).add(*start_ns, *end_ns, sides);
        }
        for ((interface, vlan, protocol), Joint { start_ns, end_ns, sides }) in records {
            self.add_flow((name(interface).clone(), vlan, protocol), (start_ns, end_ns), &sides);
        }
        self.folded_flows += flows.records.len() as u64;
    }

    /// Takes a row of traffic.
    pub fn add_traffic(&mut self, row: &TrafficRow) {
        let sums = self.traffic.entry((row.ts_ns, row.interface.clone(), row.vlan, row.proto)).or_default();
        sums[0].add(&row.received);
        sums[1].add(&row.sent);
        self.folded_rows += u64::from(row.ip != Owner::Folded);
    }

    /// Takes a record that is whole.
    pub fn add_flow_row(&mut self, row: &FlowRow) {
        let sides = [row.forward, row.reverse];
        self.add_flow((row.interface.clone(), row.vlan, row.proto), (row.start_ns, row.end_ns), &sides);
        self.folded_flows += u64::from(row.reason != Reason::Unwritten);
    }

    fn add_flow(&mut self, by: (Arc<str>, u16, u8), (start_ns, end_ns): (i64, i64), sides: &[Side; 2]) {
        let (interface, vlan, proto) = by.clone();
        let row = self.flows.entry(by).or_insert_with(|| FlowRow {
            start_ns,
            end_ns,
            interface,
            interface_rev: None,
            vlan,
            proto,
            source: None,
            destination: None,
            forward: Side::default(),
            reverse: Side::default(),
            rtt_server_ns: None,
            rtt_client_ns: None,
            state: None,
            community_id: CommunityId::default(),
            reason: Reason::Unwritten,
        });
        row.start_ns = row.start_ns.min(start_ns);
        row.end_ns = row.end_ns.max(end_ns);
        row.forward.join(&sides[0]);
        row.reverse.join(&sides[1]);
    }

    /// Takes what another one stands for.
    pub fn join(&mut self, other: Remainder) {
        for (by, amounts) in other.traffic {
            let sums = self.traffic.entry(by).or_default();
            for (sum, amount) in sums.iter_mut().zip(&amounts) {
                sum.add(amount);
            }
        }
        for (by, row) in other.flows {
            self.add_flow(by, (row.start_ns, row.end_ns), &[row.forward, row.reverse]);
        }
        self.folded_rows += other.folded_rows;
        self.folded_flows += other.folded_flows;
    }

    /// Its rows.
    pub fn into_rows(self) -> (Vec<TrafficRow>, Vec<FlowRow>) {
        let row = |((ts_ns, interface, vlan, proto), [received, sent]): (
            (i64, Arc<str>, u16, Proto),
            [Amount; 2],
        )| {
            TrafficRow {
                ts_ns,
                interface,
                vlan,
                ip: Owner::Folded,
                proto,
                port: 0,
                role: Role::Client,
                received,
                sent,
            }
        };
        (self.traffic.into_iter().map(row).collect(), self.flows.into_values().collect())
    }
}

impl Settled {
    /// Puts sums in the place of all rows of traffic and records; how many that were.
    pub fn fold(&mut self) -> (u64, u64) {
        let mut remainder = Remainder::default();
        for row in self.traffic.drain(..) {
            remainder.add_traffic(&row);
        }
        for row in self.flows.drain(..) {
            remainder.add_flow_row(&row);
        }
        let folded = (remainder.folded_rows, remainder.folded_flows);
        (self.traffic, self.flows) = remainder.into_rows();
        folded
    }

    /// Nothing is left but its memory.
    pub fn clear(&mut self) {
        self.intervals.clear();
        self.traffic.clear();
        self.flows.clear();
        self.losses.clear();
    }
}

impl Side {
    /// Adds what another record has in the same direction.
    pub fn join(&mut self, other: &Side) {
        if other.packets == 0 {
            return;
        }
        self.len_min = if self.packets == 0 { other.len_min } else { self.len_min.min(other.len_min) };
        self.len_max = self.len_max.max(other.len_max);
        self.packets += other.packets;
        self.bytes += other.bytes;
        self.ip_bytes += other.ip_bytes;
        self.tcp_flags |= other.tcp_flags;
        self.zero_windows += other.zero_windows;
        self.resent += other.resent;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::{Common, Key};

    #[test]
    fn what_a_worker_can_t_hand_on_is_folded_by_place_and_adds_up() {
        let names: [Arc<str>; 2] = [Arc::from("left"), Arc::from("right")];
        let key = |number: u32, protocol, interface| {
            let common = Common { interface, vlan: 7, protocol, is_ipv6: false, is_one_way: false };
            Key::new4((number, 1000), (99, 2000), common).0
        };
        let amount = |packets| Amount { packets, bytes: packets * 60, ip_bytes: packets * 46 };
        let side = |packets, len| Side {
            packets,
            bytes: packets * 60,
            len_min: len,
            len_max: len,
            ..Side::default()
        };
        let mut flows = HandedFlows::default();
        for number in 0..30u32 {
            let key = key(number, if number % 3 == 0 { 6 } else { 17 }, number % 2);
            let interval = i64::from(number / 15);
            flows.deltas.push(Delta { key, interval, amounts: [amount(2), amount(1)] });
            flows.records.push(Record {
                key,
                start_ns: i64::from(number),
                end_ns: i64::from(number) + 100,
                is_reverse: false,
                sides: [side(2, 60 + number), side(u64::from(number % 2), 70)],
                connection: None,
                reason: Reason::Idle,
            });
        }
        let mut remainder = Remainder::default();
        for _ in 0..2 {
            remainder.add_handed(&flows, |number| &names[number as usize], 10);
        }
        assert_eq!((remainder.folded_rows, remainder.folded_flows), (120, 60));
        let (traffic, records) = remainder.into_rows();
        // Two interfaces, two protocols, two intervals.
        assert_eq!((traffic.len(), records.len()), (8, 4));
        let sum = |of: fn(&TrafficRow) -> Amount| {
            traffic
                .iter()
                .map(of)
                .fold((0, 0), |sum, amount| (sum.0 + amount.packets, sum.1 + amount.ip_bytes))
        };
        assert_eq!((sum(|row| row.received), sum(|row| row.sent)), ((180, 180 * 46), (180, 180 * 46)));
        let one =
            traffic.iter().find(|row| (row.ts_ns, row.proto, &*row.interface) == (10, Proto::Tcp, "right"));
        assert_eq!(one.map(|row| (row.vlan, row.received.packets)), Some((7, 18)));
        let right = records.iter().find(|row| (row.proto, &*row.interface) == (6, "right")).unwrap();
        assert_eq!((right.start_ns, right.end_ns, right.reason), (3, 127, Reason::Unwritten));
        assert_eq!((right.forward.packets, right.reverse.packets), (20, 10));
        assert_eq!((right.forward.len_min, right.forward.len_max, right.reverse.len_min), (63, 87, 70));
    }
}
