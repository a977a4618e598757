//! Sums of one flow in one interval that need more than 32 bits.

use scope_flow::entry::{Delta, Seen};
use scope_flow::key::{Common, Key};
use scope_flow::reading::Reading;
use scope_flow::rows::Reason;
use scope_flow::table::{Bounds, FlowTable};

const BOUNDS: Bounds = Bounds { flows_max: 4, idle_ns: 1_000_000, active_ns: 1_000_000 };

fn packet(at: i64, bytes: u32, ip_bytes: u32, is_reverse: bool) -> Seen {
    let common = Common { interface: 0, vlan: 0, protocol: 17, is_ipv6: false, is_one_way: false };
    let (one, other) = ((0x0a00_0001, 1000), (0x0a00_0002, 2000));
    let (from, to) = if is_reverse { (other, one) } else { (one, other) };
    let (key, is_reverse) = Key::new4(from, to, common);
    let reading = Reading { key, is_reverse, ip_bytes, segment: None, fragment: None };
    Seen { reading, bytes, time_ns: at, interval: 0, at: 0 }
}

/// What all deltas have, by side: packets, bytes, bytes of IP.
fn sums(deltas: &[Delta]) -> [(u64, u64, u64); 2] {
    [0, 1].map(|side| {
        deltas.iter().map(|delta| delta.amounts[side]).fold(
            (0, 0, 0),
            |(packets, bytes, ip_bytes), amount| {
                (packets + amount.packets, bytes + amount.bytes, ip_bytes + amount.ip_bytes)
            },
        )
    })
}

#[test]
fn sums_beyond_32_bits_are_exact_in_intervals_and_records() {
    let check = |bytes: u32, ip_bytes: u32, packets: u64| {
        let mut table = FlowTable::new(BOUNDS, [1, 2]);
        for at in 0..packets {
            table.run(&mut [packet(at as i64, bytes, ip_bytes, false)], |_, _| {});
        }
        table.run(&mut [packet(packets as i64, 60, 46, true)], |_, _| {});
        assert_eq!(table.end(0, usize::MAX), None);
        let handed = &table.handed;
        let expected = [(packets, packets * u64::from(bytes), packets * u64::from(ip_bytes)), (1, 60, 46)];
        assert_eq!(sums(&handed.deltas), expected);
        assert!(handed.deltas.len() > 2 && handed.deltas.iter().all(|delta| delta.interval == 0));
        let [record] = &handed.records[..] else { panic!("{} records", handed.records.len()) };
        let sides = record.sides.map(|side| (side.packets, side.bytes, side.ip_bytes));
        assert_eq!((sides, record.reason), (expected, Reason::Stop));
    };
    check(u32::MAX, 65_535, 5);
    check(1 << 31, 1 << 31, 6);
    check(60, u32::MAX - 1, 3);
}
