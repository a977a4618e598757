//! Rows of any traffic, by any number of workers, are those of a naive model.

use proptest::prelude::*;
use scope_flow::counting::{Counting, Settings};
use scope_flow::joined::{Joined, Rules};
use scope_flow::local::{Local, Net, Rule};
use scope_flow::rows::{Amount, FlowRow, IntervalRow, Owner, Proto, Reason, Role, Settled, TrafficRow};
use scope_flow::table::Bounds;
use scope_packet::packet::FLAGS_OUTBOUND;
use scope_packet::{Headers, LinkType, Packet};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

const LENGTH_NS: i64 = 1000;
const IDLE_NS: i64 = 3000;
const ACTIVE_NS: i64 = 10_000;
const NAMES: [&str; 2] = ["eth0", "eth1"];

/// One packet, in words.
#[derive(Clone, Debug)]
struct One {
    time_ns: i64,
    interface: u32,
    vlan: u16,
    is_ipv6: bool,
    proto: u8,
    /// Numbers of hosts, and their ports.
    from: (u8, u16),
    to: (u8, u16),
    flags: u8,
    payload: u16,
    sequence: u32,
    is_sent: bool,
    is_ip: bool,
}

impl One {
    fn address(&self, host: u8) -> IpAddr {
        match self.is_ipv6 {
            false => IpAddr::V4(Ipv4Addr::new(10, 0, 0, host)),
            true => IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, host.into())),
        }
    }

    fn transport(&self) -> usize {
        match self.proto {
            6 => 20,
            17 => 8,
            _ => 0,
        }
    }

    fn ip_bytes(&self) -> u64 {
        let header = if self.is_ipv6 { 40 } else { 20 };
        (header + self.transport() + usize::from(self.payload)) as u64
    }

    fn bytes(&self) -> u64 {
        let tag = if self.vlan > 0 { 4 } else { 0 };
        14 + tag + if self.is_ip { self.ip_bytes() } else { 46 }
    }

    fn frame(&self) -> Vec<u8> {
        let mut frame = vec![2; 12];
        if self.vlan > 0 {
            frame.extend([0x81, 0]);
            frame.extend(self.vlan.to_be_bytes());
        }
        if !self.is_ip {
            frame.extend([0x88, 0xcc]);
            frame.resize(self.bytes() as usize, 0);
            return frame;
        }
        let rest = self.transport() as u16 + self.payload;
        if self.is_ipv6 {
            frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
            frame.extend(rest.to_be_bytes());
            frame.extend([self.proto, 64]);
        } else {
            frame.extend([8, 0, 0x45, 0]);
            frame.extend((20 + rest).to_be_bytes());
            frame.extend([0, 0, 0, 0, 64, self.proto, 0, 0]);
        }
        for host in [self.from.0, self.to.0] {
            match self.address(host) {
                IpAddr::V4(address) => frame.extend(address.octets()),
                IpAddr::V6(address) => frame.extend(address.octets()),
            }
        }
        if self.transport() > 0 {
            frame.extend(self.from.1.to_be_bytes());
            frame.extend(self.to.1.to_be_bytes());
        }
        if self.proto == 6 {
            frame.extend(self.sequence.to_be_bytes());
            frame.extend([0, 0, 0, 0, 0x50, self.flags, 1, 0, 0, 0, 0, 0]);
        }
        frame.resize(self.bytes() as usize, 0);
        frame
    }

    /// Both ends as the flow has them.
    fn ends(&self) -> [(IpAddr, u16); 2] {
        let port = |port: u16| if self.transport() > 0 { port } else { 0 };
        [(self.address(self.from.0), port(self.from.1)), (self.address(self.to.0), port(self.to.1))]
    }
}

type FlowKey = (u32, u16, u8, [(IpAddr, u16); 2]);

/// A row of traffic, but for its amounts.
type Place = (i64, String, u16, Owner, Proto, u16, Role);

/// What a flow has so far.
#[derive(Clone, Debug)]
struct Naive {
    start_ns: i64,
    end_ns: i64,
    source: (IpAddr, u16),
    packets: Vec<One>,
    /// Of its SYN.
    syn_sequence: Option<u32>,
    has_syn_ack: bool,
    fins: Vec<(IpAddr, u16)>,
    is_reset: bool,
    /// Something that takes a sequence number.
    has_data: bool,
}

impl Naive {
    fn new(first: &One) -> Naive {
        Naive {
            start_ns: first.time_ns,
            end_ns: first.time_ns,
            source: first.ends()[0],
            packets: Vec::new(),
            syn_sequence: None,
            has_syn_ack: false,
            fins: Vec::new(),
            is_reset: false,
            has_data: false,
        }
    }

    fn is_over(&self) -> bool {
        self.is_reset || self.fins.iter().any(|end| *end != self.fins[0])
    }

    fn record(&self, reason: Reason, destination: (IpAddr, u16)) -> Told {
        let of = |from: (IpAddr, u16), other: (IpAddr, u16)| {
            let mut amount = Amount::default();
            let mut flags = 0;
            for one in self.packets.iter().filter(|one| one.ends() == [from, other]) {
                amount.packets += 1;
                amount.bytes += one.bytes();
                amount.ip_bytes += one.ip_bytes();
                flags |= if one.proto == 6 { one.flags } else { 0 };
            }
            (amount, flags)
        };
        let (source, first) = (self.source, &self.packets[0]);
        Told {
            span: (self.start_ns, self.end_ns),
            interface: NAMES[first.interface as usize].to_string(),
            key: (first.vlan, first.proto),
            ends: [source, destination],
            forward: of(source, destination),
            reverse: of(destination, source),
            reason: reason.word(),
        }
    }
}

/// A record, for comparison.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Told {
    span: (i64, i64),
    interface: String,
    key: (u16, u8),
    ends: [(IpAddr, u16); 2],
    forward: (Amount, u8),
    reverse: (Amount, u8),
    reason: &'static str,
}

/// The model: each packet by itself, in the order in which they come.
#[derive(Default)]
struct Model {
    intervals: BTreeMap<(i64, u32, u16), IntervalRow>,
    traffic: BTreeMap<Place, [Amount; 2]>,
    flows: BTreeMap<FlowKey, Naive>,
    told: Vec<Told>,
}

impl Model {
    fn of(packets: &[One], local: &Local) -> Model {
        let mut model = Model::default();
        for one in packets {
            let is_new = one.is_ip && model.add_to_flow(one);
            model.add_to_interval(one, is_new);
            if one.is_ip {
                model.add_to_traffic(one, local);
            }
        }
        let clock_ns = packets.iter().map(|one| one.time_ns).max().unwrap_or(0);
        for (key, flow) in std::mem::take(&mut model.flows) {
            let is_idle = clock_ns - flow.end_ns > IDLE_NS;
            let reason = match flow.is_over() {
                true => Reason::End,
                false if is_idle => Reason::Idle,
                false => Reason::Stop,
            };
            model.tell(&key, &flow, reason);
        }
        model.told.sort();
        model
    }

    fn tell(&mut self, (_, _, _, ends): &FlowKey, flow: &Naive, reason: Reason) {
        if !flow.packets.is_empty() {
            let destination = if flow.source == ends[0] { ends[1] } else { ends[0] };
            self.told.push(flow.record(reason, destination));
        }
    }

    fn add_to_flow(&mut self, one: &One) -> bool {
        let mut ends = one.ends();
        ends.sort();
        let key = (one.interface, one.vlan, one.proto, ends);
        let mut flow = self.flows.remove(&key);
        let mut is_new = flow.is_none();
        if let Some(known) = &flow {
            let span_ns = known.end_ns.max(one.time_ns) - known.start_ns.min(one.time_ns);
            let is_idle = one.time_ns > known.end_ns + IDLE_NS || one.time_ns < known.start_ns - IDLE_NS;
            let is_syn = one.proto == 6 && one.flags & 0x12 == 2;
            let is_another = known.is_reset
                || !known.fins.is_empty()
                || known.syn_sequence.is_some_and(|sequence| sequence != one.sequence)
                || known.syn_sequence.is_none() && !known.has_syn_ack && known.has_data;
            let reason = match () {
                () if is_idle && known.is_over() => Some(Reason::End),
                () if is_idle => Some(Reason::Idle),
                () if is_syn && is_another => Some(Reason::End),
                () if span_ns > ACTIVE_NS => Some(Reason::Active),
                () => None,
            };
            if let Some(reason) = reason {
                let known = known.clone();
                self.tell(&key, &known, reason);
                is_new = reason != Reason::Active;
                flow = match is_new {
                    true => None,
                    false => Some(Naive { packets: Vec::new(), ..known }),
                };
                if let Some(flow) = &mut flow {
                    (flow.start_ns, flow.end_ns) = (one.time_ns, one.time_ns);
                }
            }
        }
        let mut flow = flow.unwrap_or_else(|| Naive::new(one));
        flow.start_ns = flow.start_ns.min(one.time_ns);
        flow.end_ns = flow.end_ns.max(one.time_ns);
        if one.proto == 6 {
            flow.add_flags(one);
        }
        flow.packets.push(one.clone());
        self.flows.insert(key, flow);
        is_new
    }

    fn add_to_interval(&mut self, one: &One, is_new: bool) {
        let at = one.time_ns.div_euclid(LENGTH_NS);
        let row = self.intervals.entry((at, one.interface, one.vlan)).or_default();
        row.packets += 1;
        row.bytes += one.bytes();
        row.new_flows += u64::from(is_new);
        if one.is_sent {
            row.sent.add(one.bytes());
        }
        if one.is_ip {
            row.ip_packets += 1;
            row.ip_bytes += one.ip_bytes();
            match one.proto {
                6 => row.tcp.add(one.bytes()),
                17 => row.udp.add(one.bytes()),
                _ => row.other.add(one.bytes()),
            }
        }
    }

    fn add_to_traffic(&mut self, one: &One, local: &Local) {
        let [(from, from_port), (to, to_port)] = one.ends();
        let port = from_port.min(to_port);
        let amount = Amount { packets: 1, bytes: one.bytes(), ip_bytes: one.ip_bytes() };
        for (address, own, sent) in [(from, from_port, 1), (to, to_port, 0)] {
            let name = NAMES[one.interface as usize];
            let owner = if local.is_local(name, address) { Owner::Address(address) } else { Owner::Others };
            let role = if own == port { Role::Server } else { Role::Client };
            let shown = if port < 32_768 { port } else { 0 };
            let at = one.time_ns.div_euclid(LENGTH_NS) * LENGTH_NS;
            let by = (at, name.to_string(), one.vlan, owner, Proto::of(one.proto), shown, role);
            self.traffic.entry(by).or_default()[sent].add(&amount);
        }
    }
}

impl One {
    /// The sequence number behind it.
    fn end(&self) -> u32 {
        self.sequence
            + u32::from(self.payload)
            + u32::from(self.flags & 2 != 0)
            + u32::from(self.flags & 1 != 0)
    }
}

impl Naive {
    fn add_flags(&mut self, one: &One) {
        let [source, destination] = one.ends();
        self.has_data |= one.end() != one.sequence;
        if one.flags & 4 != 0 {
            self.is_reset = true;
            return;
        }
        if one.flags & 1 != 0 {
            self.fins.push(source);
        }
        match one.flags & 0x12 {
            2 => {
                self.source = source;
                self.syn_sequence.get_or_insert(one.sequence);
            }
            0x12 => {
                self.source = destination;
                self.has_syn_ack = true;
            }
            _ => {}
        }
    }
}

/// The rows of `workers` workers, among which flows are shared out, which settle as they come on if `settles`.
fn rows(packets: &[One], workers: usize, local: &Local, settles: bool) -> Settled {
    let bounds = Bounds { flows_max: 10_000, idle_ns: IDLE_NS, active_ns: ACTIVE_NS };
    let settings = Settings { bounds, length_ns: LENGTH_NS, expires: false, seed: [1, 2] };
    let mut counting: Vec<Counting> = (0..workers).map(|_| Counting::new(settings)).collect();
    let rules = Rules { length_ns: LENGTH_NS, traffic_rows_max: 10_000, idle_ns: IDLE_NS, is_live: false };
    let mut joined = Joined::new(rules, local.clone());
    let names: Vec<Arc<str>> = NAMES.map(Arc::from).to_vec();
    let mut settled = Settled::default();
    let mut clocks = vec![0; workers];
    let mut untils = vec![0; workers];
    for batch in packets.chunks(7) {
        for worker in 0..workers {
            let of_worker = |one: &&One| {
                let [a, b] = one.ends();
                (usize::from(a.1 ^ b.1) + usize::from(one.from.0 ^ one.to.0)) % workers == worker
            };
            let mine: Vec<&One> = batch.iter().filter(of_worker).collect();
            let frames: Vec<Vec<u8>> = mine.iter().map(|one| one.frame()).collect();
            let lent: Vec<Packet<'_>> = mine
                .iter()
                .zip(&frames)
                .map(|(one, frame)| Packet {
                    data: frame,
                    original_len: frame.len() as u32,
                    time_ns: one.time_ns,
                    interface: one.interface,
                    flags: if one.is_sent { FLAGS_OUTBOUND } else { 0 },
                    lost_before: 0,
                })
                .collect();
            let all = (1u64 << lent.len()) - 1;
            let headers = |at: usize| Some(Headers::parse(LinkType::ETHERNET, lent[at].data));
            counting[worker].run(&lent, all, headers, |packet| packet.original_len, |_, _| {});
            clocks[worker] = mine.iter().map(|one| one.time_ns).chain([clocks[worker]]).max().unwrap_or(0);
            if settles {
                counting[worker].step(clocks[worker] - 500);
                let (handed, until) = counting[worker].take();
                joined.add(&handed, &names);
                untils[worker] = until;
            }
        }
        if settles {
            let until = untils.iter().copied().min().unwrap_or(0);
            joined.settle_into(&mut settled, until, clocks.iter().copied().max().unwrap_or(0));
        }
    }
    for counting in &mut counting {
        while counting.end() {}
        let (handed, until) = counting.take();
        assert_eq!(until, i64::MAX);
        joined.add(&handed, &names);
    }
    joined.settle_into(&mut settled, i64::MAX, clocks.iter().copied().max().unwrap_or(0));
    settled
}

/// Rows of the same interval, interface and VLAN, added up as a database does.
fn intervals(rows: Vec<IntervalRow>) -> BTreeMap<(i64, String, u16), IntervalRow> {
    let mut sums: BTreeMap<(i64, String, u16), IntervalRow> = BTreeMap::new();
    for row in rows {
        assert_eq!(row.length_ns, LENGTH_NS);
        let sum = sums.entry((row.ts_ns, row.interface.to_string(), row.vlan)).or_default();
        sum.packets += row.packets;
        sum.bytes += row.bytes;
        sum.ip_packets += row.ip_packets;
        sum.ip_bytes += row.ip_bytes;
        sum.new_flows += row.new_flows;
        for (sum, of_row) in [
            (&mut sum.tcp, row.tcp),
            (&mut sum.udp, row.udp),
            (&mut sum.icmp, row.icmp),
            (&mut sum.other, row.other),
            (&mut sum.sent, row.sent),
        ] {
            sum.join(&of_row);
        }
    }
    sums
}

fn traffic(rows: Vec<TrafficRow>) -> BTreeMap<Place, [Amount; 2]> {
    let mut sums: BTreeMap<_, [Amount; 2]> = BTreeMap::new();
    for row in rows {
        let by = (row.ts_ns, row.interface.to_string(), row.vlan, row.ip, row.proto, row.port, row.role);
        let sum = sums.entry(by).or_default();
        sum[0].add(&row.received);
        sum[1].add(&row.sent);
    }
    sums
}

fn told(rows: Vec<FlowRow>) -> Vec<Told> {
    let amount = |side: &scope_flow::rows::Side| {
        (Amount { packets: side.packets, bytes: side.bytes, ip_bytes: side.ip_bytes }, side.tcp_flags)
    };
    let mut told: Vec<Told> = rows
        .iter()
        .map(|row| Told {
            span: (row.start_ns, row.end_ns),
            interface: row.interface.to_string(),
            key: (row.vlan, row.proto),
            ends: [row.source.unwrap(), row.destination.unwrap()],
            forward: amount(&row.forward),
            reverse: amount(&row.reverse),
            reason: row.reason.word(),
        })
        .collect();
    told.sort();
    told
}

fn check(packets: &[One], local: &Local, with_flows: bool) {
    let model = Model::of(packets, local);
    let expected: BTreeMap<(i64, String, u16), IntervalRow> = model
        .intervals
        .iter()
        .map(|((at, interface, vlan), row)| {
            ((at * LENGTH_NS, NAMES[*interface as usize].to_string(), *vlan), row.clone())
        })
        .collect();
    for (workers, settles) in [(1, false), (1, true), (2, true), (4, true), (4, false)] {
        let settled = rows(packets, workers, local, settles);
        assert_eq!(intervals(settled.intervals), expected, "{workers} workers");
        assert_eq!(traffic(settled.traffic), model.traffic, "{workers} workers");
        if with_flows {
            assert_eq!(told(settled.flows), model.told, "{workers} workers");
        }
    }
}

prop_compose! {
    fn one(interfaces: u32)(
        time_ns in 0i64..40_000,
        interface in 0..interfaces,
        vlan in prop_oneof![Just(0u16), Just(7)],
        is_ipv6: bool,
        proto in prop_oneof![Just(6u8), Just(6), Just(17), Just(47)],
        hosts in (1u8..4, 1u8..4).prop_filter("two hosts", |(a, b)| a != b),
        ports in prop_oneof![Just((443u16, 50_000u16)), Just((50_000, 443)), Just((123, 123)), Just((40_000, 50_000))],
        flags in prop_oneof![Just(0x10u8), Just(0x18), Just(2), Just(0x12), Just(0x11), Just(4)],
        (payload, sequence) in (0u16..3, prop_oneof![5 => Just(1u32), 1 => Just(2)]),
        is_sent: bool,
        is_ip in prop_oneof![9 => Just(true), 1 => Just(false)],
    ) -> One {
        One {
            time_ns, interface, vlan, is_ipv6, proto, from: (hosts.0, ports.0), to: (hosts.1, ports.1),
            flags, payload, sequence, is_sent, is_ip,
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn in_order_and_with_any_number_of_workers(mut packets in proptest::collection::vec(one(1), 0..200)) {
        packets.sort_by_key(|one| one.time_ns);
        check(&packets, &Local::new(Rule::Any), true);
    }

    #[test]
    fn with_times_of_any_order(packets in proptest::collection::vec(one(1), 0..200)) {
        check(&packets, &Local::new(Rule::Any), true);
    }

    #[test]
    fn at_two_interfaces_and_with_few_local_addresses(packets in proptest::collection::vec(one(2), 0..200)) {
        let net = Net { address: "10.0.0.1".parse().unwrap(), bits: 32 };
        check(&packets, &Local::new(Rule::Nets(vec![net])), false);
    }
}
