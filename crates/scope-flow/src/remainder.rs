//! What takes the place of rows that can't be kept: sums, so that totals stay exact.
//!
//! Traffic is folded by interval, interface, VLAN and protocol; records by interface, VLAN and protocol.

use crate::entry::{Delta, Record};
use crate::rows::{Amount, FlowRow, Owner, Proto, Reason, Role, Settled, Side, TrafficRow};
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

impl Remainder {
    /// It stands for nothing.
    pub fn is_empty(&self) -> bool {
        self.traffic.is_empty() && self.flows.is_empty()
    }

    /// Takes what a flow has in an interval: both its rows of traffic.
    pub fn add_delta(&mut self, delta: &Delta, interface: &Arc<str>, length_ns: i64) {
        let (ts_ns, proto) = (delta.interval.saturating_mul(length_ns), Proto::of(delta.key.protocol()));
        let sums = self.traffic.entry((ts_ns, interface.clone(), delta.key.vlan(), proto)).or_default();
        for sum in sums {
            for amount in &delta.amounts {
                sum.add(amount);
            }
        }
        self.folded_rows += 2;
    }

    /// Takes a row of traffic.
    pub fn add_traffic(&mut self, row: &TrafficRow) {
        let sums = self.traffic.entry((row.ts_ns, row.interface.clone(), row.vlan, row.proto)).or_default();
        sums[0].add(&row.received);
        sums[1].add(&row.sent);
        self.folded_rows += u64::from(row.ip != Owner::Folded);
    }

    /// Takes a record of a worker.
    pub fn add_record(&mut self, record: &Record, interface: &Arc<str>) {
        let span_ns = (record.start_ns, record.end_ns);
        self.add_flow((interface.clone(), record.key.vlan(), record.key.protocol()), span_ns, &record.sides);
    }

    /// Takes a record that is whole.
    pub fn add_flow_row(&mut self, row: &FlowRow) {
        let sides = [row.forward, row.reverse];
        self.add_flow((row.interface.clone(), row.vlan, row.proto), (row.start_ns, row.end_ns), &sides);
        self.folded_flows -= u64::from(row.reason == Reason::Unwritten);
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
            community_id: String::new(),
            reason: Reason::Unwritten,
        });
        row.start_ns = row.start_ns.min(start_ns);
        row.end_ns = row.end_ns.max(end_ns);
        row.forward.join(&sides[0]);
        row.reverse.join(&sides[1]);
        self.folded_flows += 1;
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
            let folded = self.folded_flows;
            self.add_flow(by, (row.start_ns, row.end_ns), &[row.forward, row.reverse]);
            self.folded_flows = folded;
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

    /// Adds what settled later.
    pub fn join(&mut self, later: Settled) {
        self.intervals.extend(later.intervals);
        self.traffic.extend(later.traffic);
        self.flows.extend(later.flows);
        self.losses.extend(later.losses);
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
