//! What all workers have counted, joined: intervals that are settled become rows, within bounds that fold and never
//! lose.
//!
//! ```text
//!  worker 0 ─ Handed, until ─┐
//!  worker 1 ─ Handed, until ─┴► open intervals ─ all are past it ─► rows; the lightest beyond the bound are folded
//! ```
//! A flow's amounts in an interval count in two rows of traffic: as sent in that of its source, as received in that
//! of its destination. So in each interval both columns have the same sum, whatever is folded.

use crate::community::community_id;
use crate::counting::Handed;
use crate::entry::{Delta, Record};
use crate::local::Local;
use crate::remainder::Remainder;
use crate::rows::{
    Amount, FlowRow, IntervalRow, LossRow, Owner, Proto, Reason, Role, Settled, Sum, TrafficRow,
};
use crate::taps::{Paired, Taps};
use crate::totals::Total;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

/// Ports from here on are of whoever asks: no row is of one.
const PORTS_END: u16 = 32_768;
/// An open interval may have so many times the rows that are written before it is folded.
const OPEN_FACTOR: usize = 4;

/// How rows are made.
#[derive(Clone, Debug)]
pub struct Rules {
    /// Length of an interval, ns.
    pub length_ns: i64,
    /// Rows of traffic in an interval.
    pub traffic_rows_max: usize,
    /// Silence that ends a record, ns; with several interfaces a record of one direction waits so long for its other
    /// half.
    pub idle_ns: i64,
    /// Each interface has a row in each interval, packets or not.
    pub is_live: bool,
}

/// What was counted beside rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JoinedCounters {
    /// Packets that came when their interval was written.
    pub late: u64,
    /// Rows of traffic that were folded.
    pub folded_rows: u64,
    /// Records that were folded.
    pub folded_flows: u64,
}

/// A row of traffic but for its interval.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Place {
    interface: Arc<str>,
    vlan: u16,
    ip: Owner,
    proto: Proto,
    port: u16,
    role: Role,
}

/// Received and sent.
type Pair = [Amount; 2];

#[derive(Debug, Default)]
struct Open {
    totals: BTreeMap<(Arc<str>, u16), Total>,
    traffic: HashMap<Place, Pair>,
}

/// See the module.
#[derive(Debug)]
pub struct Joined {
    rules: Rules,
    /// Which addresses have rows of their own.
    pub local: Local,
    open: BTreeMap<i64, Open>,
    /// Before this interval all is written.
    written: i64,
    /// Interfaces that were seen so far.
    interfaces: BTreeSet<Arc<str>>,
    taps: Taps,
    whole: Vec<Paired>,
    /// Records whose run ended: whether they were silent for long is known once all workers have ended.
    stopped: Vec<(Record, Arc<str>)>,
    /// Records that stand for others.
    unwritten: Vec<FlowRow>,
    losses: Vec<LossRow>,
    counters: JoinedCounters,
}

impl Joined {
    /// Nothing is counted yet.
    pub fn new(rules: Rules, local: Local) -> Joined {
        Joined {
            rules,
            local,
            open: BTreeMap::new(),
            written: i64::MIN,
            interfaces: BTreeSet::new(),
            taps: Taps::default(),
            whole: Vec::new(),
            stopped: Vec::new(),
            unwritten: Vec::new(),
            losses: Vec::new(),
            counters: JoinedCounters::default(),
        }
    }

    /// What was counted beside rows.
    pub fn counters(&self) -> JoinedCounters {
        self.counters
    }

    /// Records that are whole, and wait to become rows.
    pub fn records(&self) -> usize {
        self.whole.len()
    }

    /// Adds what a worker handed on; `interfaces` are the names of its interfaces by number.
    pub fn add(&mut self, handed: &Handed, interfaces: &[Arc<str>]) {
        for interface in interfaces {
            if !self.interfaces.contains(interface) {
                self.interfaces.insert(interface.clone());
            }
        }
        let unknown: Arc<str> = Arc::from("");
        let name = |number: u32| interfaces.get(number as usize).unwrap_or(&unknown).clone();
        for (cell, total) in &handed.totals {
            if cell.interval < self.written {
                self.counters.late += total.all.packets;
            }
            let open = self.open.entry(cell.interval).or_default();
            open.totals.entry((name(cell.interface), cell.vlan)).or_default().join(total);
        }
        for delta in &handed.flows.deltas {
            self.add_delta(delta, &name(delta.key.interface));
        }
        for record in &handed.flows.records {
            let interface = name(record.key.interface);
            match record.reason {
                Reason::Stop => self.stopped.push((*record, interface)),
                _ => self.add_record(*record, interface),
            }
        }
    }

    fn add_record(&mut self, record: Record, interface: Arc<str>) {
        if self.interfaces.len() > 1 {
            self.taps.add(record, interface, self.rules.idle_ns, &mut self.whole);
        } else {
            self.whole.push(Paired { record, interface, interface_rev: None });
        }
    }

    fn add_delta(&mut self, delta: &Delta, interface: &Arc<str>) {
        let key = &delta.key;
        let proto = Proto::of(key.protocol());
        let ends = key.ends();
        let [(_, lesser), (_, greater)] = ends;
        let (lesser, greater) = if proto == Proto::Icmp { (0, 0) } else { (lesser, greater) };
        let port = lesser.min(greater);
        let traffic = &mut self.open.entry(delta.interval).or_default().traffic;
        for (end, own) in [lesser, greater].into_iter().enumerate() {
            let address = ends[end].0;
            let ip = match self.local.is_local(interface, address) {
                true => Owner::Address(address),
                false => Owner::Others,
            };
            let place = Place {
                interface: interface.clone(),
                vlan: key.vlan(),
                ip,
                proto,
                port: if port < PORTS_END { port } else { 0 },
                role: if own == port { Role::Server } else { Role::Client },
            };
            let pair = traffic.entry(place).or_default();
            // Amount 0 goes from the lesser end to the greater one.
            pair[0].add(&delta.amounts[1 - end]);
            pair[1].add(&delta.amounts[end]);
        }
        let rows_max = self.rules.traffic_rows_max;
        if traffic.len() > rows_max.saturating_mul(OPEN_FACTOR) {
            self.counters.folded_rows += fold(traffic, rows_max.saturating_mul(OPEN_FACTOR / 2));
        }
    }

    /// Adds what stands for rows that a worker couldn't hand on.
    pub fn add_remainder(&mut self, remainder: Remainder) {
        self.counters.folded_rows += remainder.folded_rows;
        self.counters.folded_flows += remainder.folded_flows;
        let (traffic, flows) = remainder.into_rows();
        self.unwritten.extend(flows);
        for row in traffic {
            let open = self.open.entry(row.ts_ns.div_euclid(self.rules.length_ns)).or_default();
            let TrafficRow { interface, vlan, ip, proto, port, role, received, sent, .. } = row;
            let pair = open.traffic.entry(Place { interface, vlan, ip, proto, port, role }).or_default();
            pair[0].add(&received);
            pair[1].add(&sent);
        }
    }

    /// Adds packets that are lost. They are told once their span is settled.
    pub fn add_loss(&mut self, mut loss: LossRow) {
        let written_ns = self.written.max(0).saturating_mul(self.rules.length_ns);
        if loss.from_ns < written_ns {
            loss.late_until_ns = written_ns;
        }
        let same = |known: &&mut LossRow| {
            (&known.interface, known.reason, known.late_until_ns)
                == (&loss.interface, loss.reason, loss.late_until_ns)
                && known.from_ns <= loss.to_ns
                && loss.from_ns <= known.to_ns.saturating_add(self.rules.length_ns)
        };
        match self.losses.iter_mut().rev().take(16).find(same) {
            Some(known) => {
                known.from_ns = known.from_ns.min(loss.from_ns);
                known.to_ns = known.to_ns.max(loss.to_ns);
                known.packets += loss.packets;
            }
            None => self.losses.push(loss),
        }
    }

    /// Whether an interval is over, where all workers have come to `until`, that isn't written.
    pub fn is_past(&self, until: i64) -> bool {
        let is_open = self.open.first_key_value().is_some_and(|(interval, _)| *interval < until);
        is_open || self.rules.is_live && until > self.written.max(0)
    }

    /// Rows of everything before interval `until`, where all workers have come; `i64::MAX`: all have ended.
    /// `clock_ns` is the latest time that any of them has seen.
    pub fn settle(&mut self, until: i64, clock_ns: i64) -> Settled {
        let mut settled = Settled::default();
        self.settle_into(&mut settled, until, clock_ns);
        settled
    }

    /// The same; they are added to `settled`.
    pub fn settle_into(&mut self, settled: &mut Settled, until: i64, clock_ns: i64) {
        if until == i64::MAX {
            for (mut record, interface) in std::mem::take(&mut self.stopped) {
                if clock_ns.saturating_sub(record.end_ns) > self.rules.idle_ns {
                    record.reason = Reason::Idle;
                }
                self.add_record(record, interface);
            }
        }
        self.begin_live_rows(until, clock_ns);
        let later = self.open.split_off(&until);
        for (interval, open) in std::mem::replace(&mut self.open, later) {
            self.close(interval, open, settled);
        }
        if until > self.written {
            self.written = until;
        }
        let until_ns = until.saturating_mul(self.rules.length_ns);
        let release_ns =
            if until == i64::MAX { i64::MAX } else { until_ns.saturating_sub(self.rules.idle_ns) };
        self.taps.release(release_ns, &mut self.whole);
        settled.flows.extend(self.whole.drain(..).map(flow_row));
        settled.flows.append(&mut self.unwritten);
        settled.losses.extend(self.losses.extract_if(.., |loss| loss.to_ns < until_ns));
    }

    /// Interfaces of which nothing came have rows of zeros, from the first interval that was written on.
    fn begin_live_rows(&mut self, until: i64, clock_ns: i64) {
        if !self.rules.is_live {
            return;
        }
        let now = clock_ns.div_euclid(self.rules.length_ns);
        let end = until.min(now.saturating_add(1));
        // What was over before anybody looked has no row.
        let first = self.open.first_key_value().map_or(until.min(now), |(interval, _)| *interval);
        let from = if self.written <= 0 { first } else { self.written };
        // A clock that leaps fills no years with zeros.
        for interval in from.max(end.saturating_sub(LEAP_INTERVALS))..end {
            let open = self.open.entry(interval).or_default();
            for interface in &self.interfaces {
                open.totals.entry((interface.clone(), 0)).or_default();
            }
        }
    }

    fn close(&mut self, interval: i64, mut open: Open, settled: &mut Settled) {
        let (ts_ns, length_ns) = (interval.saturating_mul(self.rules.length_ns), self.rules.length_ns);
        let is_rewritten = interval < self.written;
        let lost_max = |interface: &Arc<str>| {
            let touches = |loss: &&LossRow| {
                loss.interface.as_ref().is_none_or(|of| of == interface)
                    && loss.from_ns < ts_ns.saturating_add(length_ns)
                    && loss.to_ns >= ts_ns
            };
            // A row that is there has it already, or gets it by the loss.
            let lost = self.losses.iter().filter(touches).map(|loss| loss.packets);
            if is_rewritten { 0 } else { lost.sum() }
        };
        if open.traffic.len() > self.rules.traffic_rows_max {
            self.counters.folded_rows += fold(&mut open.traffic, self.rules.traffic_rows_max);
        }
        settled.intervals.extend(open.totals.into_iter().map(|((interface, vlan), total)| {
            let Total { all, ip_packets, ip_bytes, protocols: [tcp, udp, icmp, other], sent, new_flows } =
                total;
            let Sum { packets, bytes } = all;
            let lost_max = lost_max(&interface);
            IntervalRow {
                ts_ns,
                length_ns,
                interface,
                vlan,
                packets,
                bytes,
                ip_packets,
                ip_bytes,
                tcp,
                udp,
                icmp,
                other,
                sent,
                new_flows,
                lost_max,
            }
        }));
        let mut rows: Vec<(Place, Pair)> = open.traffic.into_iter().collect();
        rows.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        settled.traffic.extend(rows.into_iter().map(|(place, [received, sent])| {
            let Place { interface, vlan, ip, proto, port, role } = place;
            TrafficRow { ts_ns, interface, vlan, ip, proto, port, role, received, sent }
        }));
    }
}

/// Intervals that a clock may leap over, and they have rows of zeros.
const LEAP_INTERVALS: i64 = 1024;

/// Folds the lightest rows, so that at most `rows_max` are left as long as remainders allow it; how many were folded.
fn fold(traffic: &mut HashMap<Place, Pair>, rows_max: usize) -> u64 {
    let weight = |pair: &Pair| pair[0].bytes + pair[1].bytes;
    let mut rows: Vec<(Place, Pair)> = traffic.drain().collect();
    rows.sort_unstable_by(|(one, of_one), (other, of_other)| {
        weight(of_other).cmp(&weight(of_one)).then_with(|| one.cmp(other))
    });
    let remainder = |place: &Place| Place { ip: Owner::Folded, port: 0, role: Role::Client, ..place.clone() };
    // Each kind of remainder takes a row, too.
    let mut kept = rows_max.min(rows.len());
    loop {
        let mut kinds: Vec<Place> = rows[kept..].iter().map(|(place, _)| remainder(place)).collect();
        kinds.sort_unstable();
        kinds.dedup();
        let room = rows_max.saturating_sub(kinds.len());
        if kept <= room || kept == 0 {
            break;
        }
        kept = room;
    }
    let mut folded = 0;
    for (place, pair) in rows.drain(kept..) {
        folded += u64::from(place.ip != Owner::Folded);
        let sums = traffic.entry(remainder(&place)).or_default();
        for (sum, amount) in sums.iter_mut().zip(&pair) {
            sum.add(amount);
        }
    }
    for (place, pair) in rows {
        let sums = traffic.entry(place).or_default();
        for (sum, amount) in sums.iter_mut().zip(&pair) {
            sum.add(amount);
        }
    }
    folded
}

fn flow_row(paired: Paired) -> FlowRow {
    let Paired { record, interface, interface_rev } = paired;
    let mut ends: [(IpAddr, u16); 2] = record.key.ends();
    if record.is_reverse {
        ends.swap(0, 1);
    }
    let [forward, reverse] = record.sides;
    let connection = record.connection.as_ref();
    FlowRow {
        start_ns: record.start_ns,
        end_ns: record.end_ns,
        interface,
        interface_rev,
        vlan: record.key.vlan(),
        proto: record.key.protocol(),
        source: Some(ends[0]),
        destination: Some(ends[1]),
        forward,
        reverse,
        rtt_server_ns: connection.and_then(|connection| connection.rtt_server_ns()),
        rtt_client_ns: connection.and_then(|connection| connection.rtt_client_ns()),
        state: connection.map(|connection| connection.state()),
        community_id: community_id(&record.key),
        reason: record.reason,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::totals::Cell;

    const SECOND: i64 = 1_000_000_000;

    fn joined(is_live: bool, traffic_rows_max: usize) -> Joined {
        let rules = Rules { length_ns: SECOND, traffic_rows_max, idle_ns: SECOND, is_live };
        Joined::new(rules, Local::default())
    }

    /// One packet in each of these intervals.
    fn handed(intervals: &[i64]) -> Handed {
        let total = Total { all: Sum { packets: 1, bytes: 60 }, ..Total::default() };
        let cell = |&interval: &i64| (Cell { interval, interface: 0, vlan: 0 }, total);
        Handed { totals: intervals.iter().map(cell).collect(), ..Handed::default() }
    }

    fn names() -> Vec<Arc<str>> {
        vec![Arc::from("eth0")]
    }

    #[test]
    fn a_loss_counts_in_the_intervals_that_it_touches_and_says_which_were_written_before() {
        let mut joined = joined(false, 10);
        joined.add(&handed(&[0, 1, 2, 3]), &names());
        let loss = |from_ns, to_ns, packets| LossRow {
            from_ns,
            to_ns,
            interface: Some(Arc::from("eth0")),
            reason: "kernel",
            packets,
            late_until_ns: 0,
            filed_until_ns: 0,
        };
        joined.add_loss(loss(SECOND + 5, 2 * SECOND, 7));
        let lost = |settled: &Settled| settled.intervals.iter().map(|row| row.lost_max).collect::<Vec<_>>();
        let settled = joined.settle(2, 4 * SECOND);
        assert_eq!((lost(&settled), settled.losses.len()), (vec![0, 7], 0), "its end isn't settled");
        joined.add_loss(loss(SECOND, 3 * SECOND, 2));
        let settled = joined.settle(i64::MAX, 4 * SECOND);
        assert_eq!(lost(&settled), [9, 2]);
        let told: Vec<_> = settled.losses.iter().map(|loss| (loss.packets, loss.late_until_ns)).collect();
        assert_eq!(told, [(7, 0), (2, 2 * SECOND)]);
    }

    #[test]
    fn a_live_interface_has_rows_of_zeros_and_a_leap_of_the_clock_fills_no_years() {
        let mut live = joined(true, 10);
        live.add(&handed(&[5]), &names());
        assert_eq!(live.settle(6, 6 * SECOND).intervals.len(), 1);
        live.add(&Handed::default(), &names());
        let settled = live.settle(9, 9 * SECOND);
        let times: Vec<i64> = settled.intervals.iter().map(|row| row.ts_ns / SECOND).collect();
        assert_eq!(times, [6, 7, 8]);
        assert!(settled.intervals.iter().all(|row| row.packets == 0));
        let year = 366 * 86_400;
        assert!(live.settle(year, year * SECOND).intervals.len() <= LEAP_INTERVALS as usize);
    }

    #[test]
    fn a_live_run_has_no_row_of_what_was_over_before_it_began() {
        for first_settled in [None, Some((0, 0)), Some((5, 5 * SECOND + 3))] {
            let mut live = joined(true, 10);
            live.add(&Handed::default(), &names());
            if let Some((until, clock_ns)) = first_settled {
                assert!(live.settle(until, clock_ns).is_empty(), "{first_settled:?}");
            }
            let none = live.settle(5, 5 * SECOND + 4);
            assert!(none.is_empty(), "{first_settled:?}: {:?}", none.intervals);
            let settled = live.settle(7, 7 * SECOND + 4);
            let times: Vec<i64> = settled.intervals.iter().map(|row| row.ts_ns / SECOND).collect();
            assert_eq!(times, [5, 6], "{first_settled:?}");
            let last = live.settle(i64::MAX, 7 * SECOND + 5);
            assert_eq!(last.intervals.len(), 1, "{first_settled:?}");
        }
        let mut short = joined(true, 10);
        short.add(&Handed::default(), &names());
        let times: Vec<i64> =
            short.settle(i64::MAX, 5 * SECOND).intervals.iter().map(|row| row.ts_ns / SECOND).collect();
        assert_eq!(times, [5], "it ended before anything was settled");
    }

    #[test]
    fn what_comes_late_is_added_and_counted() {
        let mut joined = joined(false, 10);
        joined.add(&handed(&[1]), &names());
        assert_eq!(joined.settle(2, 2 * SECOND).intervals.len(), 1);
        joined.add(&handed(&[1, 2]), &names());
        let settled = joined.settle(3, 3 * SECOND);
        assert_eq!((settled.intervals.len(), joined.counters().late), (2, 1));
    }

    #[test]
    fn the_lightest_rows_are_folded_and_sums_stay() {
        let row = |number: u8, bytes: u64| {
            let place = Place {
                interface: Arc::from("eth0"),
                vlan: 0,
                ip: Owner::Address(IpAddr::from([10, 0, 0, number])),
                proto: if number.is_multiple_of(2) { Proto::Tcp } else { Proto::Udp },
                port: 80,
                role: Role::Server,
            };
            (place, [Amount { packets: 1, bytes, ip_bytes: bytes }, Amount::default()])
        };
        let all: HashMap<Place, Pair> = (0..100).map(|number| row(number, u64::from(number) + 1)).collect();
        let sum = |rows: &HashMap<Place, Pair>| rows.values().map(|pair| pair[0].bytes).sum::<u64>();
        for rows_max in [1, 2, 3, 10, 99, 100, 1000] {
            let mut rows = all.clone();
            let folded = fold(&mut rows, rows_max);
            assert_eq!(sum(&rows), sum(&all), "{rows_max}");
            // Where there are fewer rows than kinds of remainders, these are all there is.
            assert!(rows.len() <= rows_max.max(2), "{rows_max}: {}", rows.len());
            let kept = rows.keys().filter(|place| place.ip != Owner::Folded).count();
            assert_eq!(folded as usize, 100 - kept, "{rows_max}");
        }
    }
}
