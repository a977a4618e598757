//! The flow table against a map, and against what memory allows: updates of 1 M flows in random order.
//!
//! ```text
//! map     packet by packet: the flow's state in a map of hashbrown, with its own hash
//! ours    64 packets at once: FlowTable::run, as a worker calls it
//! limit   64 places at once: asked for ahead, then a word of each is read and written
//! ```
//! All get the same packets in the same order, and the memory that our table takes is that of the limit. A map's state
//! has what an entry of ours has. Packets are read beforehand, outside of what is timed: a worker has to read them for
//! either. All flows are there before the first packet that is timed.

use crate::Scale;
use crate::clocks::cpu_ns;
use crate::table::{Key as RowKey, Table};
use hashbrown::HashMap;
use scope_flow::entry::{Record, Seen};
use scope_flow::key::{Common, Key};
use scope_flow::reading::{ACK, FIN, RST, Reading, SYN, Segment};
use scope_flow::table::{BATCH_MAX, Bounds, FlowTable};
use scope_packet::fetch::fetch_to_write;
use scope_testkit::traffic::Random;
use std::hint::black_box;

/// The bars.
pub const VS_MAP: &str = "flow_1m_vs_map";
/// See [`VS_MAP`].
pub const OF_LIMIT: &str = "flow_1m_of_limit";
/// The rows.
pub const MAP: RowKey<'static> = (VS_MAP, "hashbrown, packet by packet");
/// See [`MAP`].
pub const OURS: RowKey<'static> = (VS_MAP, "ours, 64 at once");
/// See [`MAP`].
pub const LIMIT: RowKey<'static> = (OF_LIMIT, "a random line for each packet, 64 asked for ahead");

const FLOWS: u32 = 1_000_000;
/// Packets that are timed, per event of the scale.
const PACKETS_PER_EVENT: u64 = 40;
/// Packets that are timed together: reading the clock takes as long as some packets.
const TIMED: usize = 8 * BATCH_MAX;
/// From one packet to the next, ns.
const GAP_NS: i64 = 100;
const FRAME_BYTES: u32 = 64;
const TCP: u8 = 6;
const UDP: u8 = 17;
/// Bytes of one of our entries: `scope_flow::entry` draws it.
const ENTRY_BYTES: usize = 256;
/// No flow of these packets is ever idle, or lasts too long.
const BOUNDS: Bounds = Bounds { flows_max: FLOWS as usize, idle_ns: i64::MAX / 4, active_ns: i64::MAX / 4 };
/// Of our hash.
const SEED: [u64; 2] = [0x5eed, 0xfeed];

/// One round of the three.
pub fn round(scale: Scale, table: &mut Table) {
    let packets = scale.events * PACKETS_PER_EVENT;
    let mut random = Random::new(1);
    let order: Vec<u32> = (0..packets).map(|_| random.below(FLOWS.into()) as u32).collect();
    let is_even = table.round().is_multiple_of(2);
    // The one that comes second begins with caches that the other one has filled alike.
    let (map, ours) = if is_even {
        let map = of_map(&order);
        (map, of_ours(&order))
    } else {
        let ours = of_ours(&order);
        (of_map(&order), ours)
    };
    let agree = check(&map.flows, &ours.records, FLOWS, u64::from(FLOWS) + packets);
    table.put(MAP.0, MAP.1, "ns", Ok(map.ns));
    table.put(OURS.0, OURS.1, "ns", agree.map(|()| ours.ns));
    table.put(LIMIT.0, LIMIT.1, "ns", of_limit(&order));
}

/// Packet number `at` of all, of flow `flow`: half of the flows are of TCP, and every third packet goes back.
fn packet(at: i64, flow: u32) -> Seen {
    let is_tcp = flow.is_multiple_of(2);
    let common = Common {
        interface: 0,
        vlan: 0,
        protocol: if is_tcp { TCP } else { UDP },
        is_ipv6: false,
        is_one_way: false,
    };
    // An odd factor gives each flow an address of its own among 2^24.
    let client = (0x0a00_0000 | flow.wrapping_mul(2_654_435_761) & 0x00ff_ffff, 1024 + (flow >> 8) as u16);
    let server = (0xc000_0201, 443);
    let (from, to) = if at % 3 == 0 { (server, client) } else { (client, server) };
    let (key, is_reverse) = Key::new4(from, to, common);
    let segment = is_tcp.then_some(Segment {
        sequence: (at as u32).wrapping_mul(10),
        acknowledged: 0,
        payload: 10,
        window: 1000,
        flags: ACK,
    });
    let reading = Reading { key, is_reverse, ip_bytes: FRAME_BYTES - 14, segment, fragment: None };
    Seen { reading, bytes: FRAME_BYTES, time_ns: at * GAP_NS, interval: 0, at: 0 }
}

/// Hands packets over: one of each flow, then those of `order`, of which only what `count` does is timed. Processor
/// time per packet, ns.
fn per_packet(order: &[u32], mut count: impl FnMut(&mut [Seen], &[u32])) -> f64 {
    let mut seen = Vec::with_capacity(TIMED);
    let mut at = 0;
    let mut spent_ns = 0;
    let mut hand_over = |flows: &[u32]| {
        seen.clear();
        seen.extend(flows.iter().zip(at..).map(|(&flow, at)| packet(at, flow)));
        at += flows.len() as i64;
        let begun_ns = cpu_ns();
        count(&mut seen, flows);
        cpu_ns() - begun_ns
    };
    let each: Vec<u32> = (0..FLOWS).collect();
    for flows in each.chunks(TIMED) {
        hand_over(flows);
    }
    for flows in order.chunks(TIMED) {
        spent_ns += hand_over(flows);
    }
    spent_ns as f64 / order.len() as f64
}

/// What one side of a flow has.
#[derive(Clone, Copy, Default)]
struct Side {
    packets: u64,
    bytes: u64,
    ip_bytes: u64,
    len_min: u32,
    len_max: u32,
    zero_windows: u32,
    resent: u32,
    top: Option<u32>,
    tcp_flags: u8,
}

/// A flow in the map. It has what an entry of ours has.
struct Naive {
    first_ns: i64,
    last_ns: i64,
    interval: i64,
    /// Of SYN, SYN+ACK and ACK.
    handshake_ns: [i64; 3],
    sides: [Side; 2],
    is_over: bool,
}

impl Naive {
    fn new(first: &Seen) -> Naive {
        let side = Side { len_min: u32::MAX, ..Side::default() };
        Naive {
            first_ns: first.time_ns,
            last_ns: first.time_ns,
            interval: first.interval,
            handshake_ns: [0; 3],
            sides: [side; 2],
            is_over: false,
        }
    }

    fn add(&mut self, packet: &Seen) {
        self.first_ns = self.first_ns.min(packet.time_ns);
        self.last_ns = self.last_ns.max(packet.time_ns);
        self.interval = packet.interval;
        let side = &mut self.sides[usize::from(packet.reading.is_reverse)];
        side.packets += 1;
        side.bytes += u64::from(packet.bytes);
        side.ip_bytes += u64::from(packet.reading.ip_bytes);
        side.len_min = side.len_min.min(packet.bytes);
        side.len_max = side.len_max.max(packet.bytes);
        let Some(segment) = &packet.reading.segment else { return };
        side.tcp_flags |= segment.flags;
        side.zero_windows += u32::from(segment.window == 0 && segment.flags & (SYN | RST) == 0);
        let end = segment.end();
        if end != segment.sequence {
            match side.top {
                Some(top) if end.wrapping_sub(top) as i32 <= 0 => side.resent += 1,
                _ => side.top = Some(end),
            }
        }
        match segment.flags & (SYN | ACK) {
            SYN => self.handshake_ns[0] = packet.time_ns,
            flags if flags == SYN | ACK => self.handshake_ns[1] = packet.time_ns,
            _ if self.handshake_ns[1] != 0 && self.handshake_ns[2] == 0 => {
                self.handshake_ns[2] = packet.time_ns;
            }
            _ => {}
        }
        self.is_over |= segment.flags & (FIN | RST) != 0;
    }
}

/// What the map needed, and has.
struct OfMap {
    ns: f64,
    flows: HashMap<Key, Naive>,
}

fn of_map(order: &[u32]) -> OfMap {
    let mut flows: HashMap<Key, Naive> = HashMap::with_capacity(FLOWS as usize);
    let ns = per_packet(order, |packets, _| {
        for packet in packets {
            flows.entry(packet.reading.key).or_insert_with(|| Naive::new(packet)).add(packet);
        }
    });
    OfMap { ns, flows }
}

/// What our table needed, and handed on.
struct OfOurs {
    ns: f64,
    records: Vec<Record>,
}

fn of_ours(order: &[u32]) -> OfOurs {
    let mut table = FlowTable::new(BOUNDS, SEED);
    let mut new = 0;
    let ns = per_packet(order, |packets, _| {
        for packets in packets.chunks_mut(BATCH_MAX) {
            table.run(packets, |_, now| new += u64::from(now.is_new()));
        }
    });
    black_box(new);
    table.end(0, usize::MAX);
    OfOurs { ns, records: std::mem::take(&mut table.handed.records) }
}

/// A cache line.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Line([u64; 8]);

/// As much memory as our table takes: entries, and an index of two places of eight bytes for each, by powers of two.
fn lines() -> usize {
    let index_bytes = (FLOWS as usize * 2).next_power_of_two() * 8;
    (FLOWS as usize * ENTRY_BYTES + index_bytes) / size_of::<Line>()
}

fn of_limit(order: &[u32]) -> Result<f64, String> {
    let mut memory = vec![Line([1; 8]); lines()];
    let place = |flow: u32| ((u64::from(flow.wrapping_mul(2_654_435_761)) * lines() as u64) >> 32) as usize;
    let ns = per_packet(order, |_, flows| {
        for flows in flows.chunks(BATCH_MAX) {
            for &flow in flows {
                fetch_to_write(&mut memory[place(flow)]);
            }
            for &flow in flows {
                memory[place(flow)].0[0] += 1;
            }
        }
    });
    let written = memory.iter().map(|line| line.0[0] - 1).sum::<u64>();
    let expected = u64::from(FLOWS) + order.len() as u64;
    if written == expected { Ok(ns) } else { Err(format!("{written} lines were written, not {expected}")) }
}

/// Whether both have the same flows with the same sums, and as many as there are.
fn check(flows: &HashMap<Key, Naive>, records: &[Record], count: u32, packets: u64) -> Result<(), String> {
    if records.len() != count as usize || flows.len() != count as usize {
        return Err(format!("{} records and {} flows in the map, not {count}", records.len(), flows.len()));
    }
    let mut sum = 0;
    for record in records {
        let Some(flow) = flows.get(&record.key) else { return Err("a record isn't in the map".to_string()) };
        let sides = if record.is_reverse { [1, 0] } else { [0, 1] }.map(|side| flow.sides[side]);
        let is_same = (record.start_ns, record.end_ns) == (flow.first_ns, flow.last_ns)
            && record.sides.iter().zip(&sides).all(|(one, other)| {
                let len_min = if other.packets == 0 { 0 } else { other.len_min };
                (one.packets, one.bytes, one.ip_bytes) == (other.packets, other.bytes, other.ip_bytes)
                    && (one.len_min, one.len_max) == (len_min, other.len_max)
                    && (one.tcp_flags, one.resent, one.zero_windows)
                        == (other.tcp_flags, other.resent.into(), other.zero_windows.into())
            });
        if !is_same {
            return Err(format!("a record is not as the map has it: {record:?}"));
        }
        sum += record.sides.iter().map(|side| side.packets).sum::<u64>();
    }
    if sum == packets { Ok(()) } else { Err(format!("{sum} packets in records, not {packets}")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_count_the_same_and_a_difference_is_named() {
        let order: Vec<u32> = (0..5000).map(|at| at * 7 % FLOWS).collect();
        let (map, ours) = (of_map(&order), of_ours(&order));
        let packets = u64::from(FLOWS) + 5000;
        assert_eq!(check(&map.flows, &ours.records, FLOWS, packets), Ok(()));
        assert!(check(&map.flows, &ours.records, FLOWS, packets + 1).is_err());
        assert!(
            check(&map.flows, &ours.records[1..], FLOWS, packets).unwrap_err().contains("999999 records")
        );
        let mut records = ours.records;
        records[7].sides[0].bytes += 1;
        assert!(check(&map.flows, &records, FLOWS, packets).unwrap_err().contains("not as the map"));
        assert!(of_limit(&order).is_ok());
    }
}
