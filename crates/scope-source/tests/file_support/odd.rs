//! Small odd captures, each with the packets in it that can be read: the table behind `tests/captures`.

use super::{MICRO, MODIFIED, NANO, Ng, Pcap};

/// What is to come of a capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// So many packets, to the file's proper end.
    Packets(u64),
    /// The same, with a warning.
    Warned(u64),
    /// So many packets, then damage; whether a packet's record had begun.
    Cut(u64, bool),
    /// An error at opening.
    Refused,
}

/// One capture of the table.
pub struct Odd {
    pub name: String,
    pub bytes: Vec<u8>,
    pub expected: Expected,
}

const T0: i64 = 1_700_000_000_000_000_000;
/// IPv4 with UDP from 10.0.0.1:1000 to 10.0.0.2:60000, 4 bytes of payload.
const IPV4: [u8; 32] = [
    0x45, 0, 0, 32, 0, 1, 0, 0, 64, 17, 0x66, 0xca, 10, 0, 0, 1, 10, 0, 0, 2, 3, 0xe8, 0xea, 0x60, 0, 12, 0,
    0, b'w', b's', b'c', b'p',
];

fn after(head: &[u8]) -> Vec<u8> {
    [head, &IPV4].concat()
}

fn ethernet() -> Vec<u8> {
    after(&[2, 2, 2, 2, 2, 2, 4, 4, 4, 4, 4, 4, 8, 0])
}

fn ipv6() -> Vec<u8> {
    let mut packet = vec![0x60, 0, 0, 0, 0, 12, 17, 64];
    packet.extend([0xfe; 16]);
    packet.extend([0xfd; 16]);
    packet.extend(&IPV4[20..]);
    packet
}

/// All captures, always the same bytes.
pub fn all() -> Vec<Odd> {
    let mut table = Vec::new();
    link_types(&mut table);
    pcap_variants(&mut table);
    pcap_oddities(&mut table);
    pcap_damage(&mut table);
    pcapng_variants(&mut table);
    pcapng_oddities(&mut table);
    pcapng_damage(&mut table);
    interface_options(&mut table);
    foreign_byte_order(&mut table);
    foreign(&mut table);
    table
}

fn add(table: &mut Vec<Odd>, name: &str, bytes: Vec<u8>, expected: Expected) {
    table.push(Odd { name: name.to_string(), bytes, expected });
}

fn link_types(table: &mut Vec<Odd>) {
    let mut check = |name: &str, link_type: u16, packets: &[Vec<u8>]| {
        let mut pcap = Pcap::new(false, MICRO, 4, 262_144, u32::from(link_type));
        let mut ng = Ng::new(true);
        ng.interface(link_type, 0, &[(2, b"link0")]);
        for (n, packet) in packets.iter().enumerate() {
            pcap.packet(T0 + n as i64 * 1_000_000, packet);
            ng.packet(0, (T0 / 1000) as u64 + n as u64 * 1000, packet);
        }
        let count = Expected::Packets(packets.len() as u64);
        add(table, &format!("link-{name}.pcap"), pcap.done(), count);
        add(table, &format!("link-{name}.pcapng"), ng.done(), count);
    };
    let tagged = after(&[2, 2, 2, 2, 2, 2, 4, 4, 4, 4, 4, 4, 0x88, 0xa8, 0, 7, 0x81, 0, 0, 9, 8, 0]);
    check("ethernet", 1, &[ethernet(), tagged]);
    check("raw", 101, &[IPV4.to_vec(), ipv6()]);
    check("ipv4", 228, &[IPV4.to_vec()]);
    check("ipv6", 229, &[ipv6()]);
    check("sll", 113, &[after(&[0, 0, 0, 1, 0, 6, 1, 2, 3, 4, 5, 6, 0, 0, 8, 0])]);
    check("sll2", 276, &[after(&[8, 0, 0, 0, 0, 0, 0, 1, 0, 1, 0, 6, 1, 2, 3, 4, 5, 6, 0, 0])]);
    check("null", 0, &[after(&[2, 0, 0, 0])]);
    check("loop", 108, &[after(&[0, 0, 0, 2])]);
    check("ppp", 9, &[after(&[0xff, 3, 0, 0x21])]);
    check("ppp-hdlc", 50, &[after(&[0xff, 3, 0, 0x21])]);
    check("unknown", 147, &[vec![1, 2, 3]]);
}

fn pcap_variants(table: &mut Vec<Odd>) {
    for (order, big) in [("le", false), ("be", true)] {
        for (unit, magic) in [("us", MICRO), ("ns", NANO), ("modified", MODIFIED)] {
            let mut pcap = Pcap::new(big, magic, 4, 65_535, 1);
            for n in 0..3 {
                pcap.packet(T0 + n * 1_234_567, &ethernet());
            }
            add(table, &format!("pcap-{order}-{unit}.pcap"), pcap.done(), Expected::Packets(3));
        }
    }
}

fn pcap_oddities(table: &mut Vec<Odd>) {
    let packet = ethernet();
    let len = packet.len() as u32;
    let mut pcap =
        |name: &str, minor: u16, snap_len: u32, link: u32, records: &[(u32, u32, u32, u32, &[u8])]| {
            let mut pcap = Pcap::new(false, MICRO, minor, snap_len, link);
            for (seconds, fraction, third, fourth, data) in records {
                pcap.record(*seconds, *fraction, *third, *fourth, data);
            }
            add(table, name, pcap.done(), Expected::Packets(records.len() as u64));
        };
    pcap("no-packets.pcap", 4, 65_535, 1, &[]);
    pcap("snapped.pcap", 4, 20, 1, &[(1, 0, 20, len, &packet[..20]), (1, 1, 20, 1514, &packet[..20])]);
    pcap("longer-than-snap.pcap", 4, 20, 1, &[(1, 0, len, len, &packet), (1, 1, len, len, &packet)]);
    pcap(
        "zero-length.pcap",
        4,
        65_535,
        1,
        &[(1, 0, 0, 0, &[]), (1, 1, 0, 60, &[]), (1, 2, len, len, &packet)],
    );
    pcap("longer-than-original.pcap", 4, 65_535, 1, &[(1, 0, len, 7, &packet)]);
    pcap("version-2-2.pcap", 2, 65_535, 1, &[(1, 0, 2000, len, &packet), (2, 0, 2000, len, &packet)]);
    pcap("version-2-3.pcap", 3, 65_535, 1, &[(1, 0, len, 2000, &packet), (2, 0, 2000, len, &packet)]);
    pcap(
        "steps-back.pcap",
        4,
        65_535,
        1,
        &[(9, 0, len, len, &packet), (8, 5, len, len, &packet), (9, 1, len, len, &packet)],
    );
    pcap(
        "year-2106.pcap",
        4,
        65_535,
        1,
        &[(u32::MAX, 999_999, len, len, &packet), (1, 0, len, len, &packet)],
    );
    pcap("microseconds-overflow.pcap", 4, 65_535, 1, &[(1, 1_999_999, len, len, &packet)]);
    pcap("snap-zero.pcap", 4, 0, 1, &[(1, 0, len, len, &packet)]);
    pcap("snap-huge.pcap", 4, u32::MAX, 1, &[(1, 0, len, len, &packet)]);
    pcap("fcs-bits.pcap", 4, 65_535, 0x4400_0001, &[(1, 0, len, len, &packet)]);
}

fn pcap_damage(table: &mut Vec<Odd>) {
    let packet = ethernet();
    let len = packet.len() as u32;
    let mut pcap = Pcap::new(false, NANO, 4, 65_535, 1);
    let whole = pcap.packet(T0, &packet).packet(T0 + 1, &packet).packet(T0 + 2, &packet).done();
    let end = whole.len();
    add(table, "cut-inside-bytes.pcap", whole[..end - 5].to_vec(), Expected::Cut(2, true));
    add(table, "cut-inside-head.pcap", whole[..end - packet.len() - 3].to_vec(), Expected::Cut(2, true));
    add(table, "cut-between.pcap", whole[..end - packet.len() - 16].to_vec(), Expected::Packets(2));
    add(table, "cut-inside-header.pcap", whole[..20].to_vec(), Expected::Refused);
    let mut lie = |name: &str, captured: u32| {
        let mut pcap = Pcap::new(true, MICRO, 4, 65_535, 1);
        pcap.packet(T0, &packet).record(1, 0, captured, captured, &packet).packet(T0, &packet);
        add(table, name, pcap.done(), Expected::Cut(1, true));
    };
    lie("length-lie-4g.pcap", u32::MAX);
    lie("length-lie-262145.pcap", 262_145);
    lie("length-lie-262144.pcap", 262_144);
    lie("length-lie-a-bit.pcap", len + 200);
    let mut old = Pcap::new(false, MICRO, 9, 65_535, 1);
    add(table, "version-2-9.pcap", old.packet(T0, &packet).done(), Expected::Refused);
}

fn pcapng_variants(table: &mut Vec<Odd>) {
    let packet = ethernet();
    for (order, big) in [("le", false), ("be", true)] {
        let mut ng = Ng::new(big);
        ng.interface(1, 0, &[(2, b"eth0"), (3, b"the first"), (9, &[9])]);
        ng.packet(0, T0 as u64, &packet).packet(0, T0 as u64 + 1, &packet[..33]);
        let flags = if big { 2u32.to_be_bytes() } else { 2u32.to_le_bytes() };
        let drops = if big { 7u64.to_be_bytes() } else { 7u64.to_le_bytes() };
        ng.packet_with(0, T0 as u64 + 2, 31, &packet[..31], 99, &[(1, b"why not"), (2, &flags), (4, &drops)]);
        ng.block(5, &[0; 12]).block(0x8000_0001, &[0; 40]).block(0x0BAD, &[1, 2, 3, 4]);
        ng.packet(0, T0 as u64 + 3, &[]);
        add(table, &format!("ng-{order}.pcapng"), ng.done(), Expected::Packets(4));
    }
    let mut resolution = |name: &str, tsresol: u8, tsoffset: i64, stamp: u64, warned: bool| {
        let mut ng = Ng::new(false);
        ng.interface(1, 0, &[(9, &[tsresol]), (14, &tsoffset.to_le_bytes())]);
        ng.packet(0, stamp, &packet).packet(0, stamp + 1, &packet);
        add(table, name, ng.done(), if warned { Expected::Warned(2) } else { Expected::Packets(2) });
    };
    resolution("tsresol-seconds.pcapng", 0, 0, 1_700_000_000, false);
    resolution("tsresol-ms.pcapng", 3, 0, 1_700_000_000_000, false);
    resolution("tsresol-ps.pcapng", 12, 1_700_000_000, 123_456_789_012, false);
    resolution("tsresol-2-10.pcapng", 0x8a, 0, 1_700_000_000 << 10, false);
    resolution("tsresol-2-30.pcapng", 0x9e, 1_700_000_000, 12_345_678_901, false);
    resolution("tsoffset-before-1970.pcapng", 6, -1_700_000_000, 5, true);
    resolution("after-2262.pcapng", 0, 0, 10_000_000_000, true);
}

fn pcapng_oddities(table: &mut Vec<Odd>) {
    let packet = ethernet();
    let mut ng = Ng::new(false);
    ng.interface(1, 0, &[(2, b"a")]).interface(1, 0, &[(2, b"b"), (9, &[9])]).interface(1, 0, &[]);
    ng.packet(2, 5_000_000, &packet).packet(1, 6_000_000_000, &packet).packet(0, 7_000_000, &packet);
    add(table, "interfaces-3.pcapng", ng.done(), Expected::Packets(3));

    ng = Ng::new(false);
    ng.interface(1, 0, &[]).packet(0, 1_000_000, &packet).interface(1, 0, &[]).packet(1, 2_000_000, &packet);
    add(table, "interface-later.pcapng", ng.done(), Expected::Packets(2));

    ng = Ng::new(false);
    ng.interface(1, 0, &[]).interface(101, 0, &[]).packet(0, 1_000_000, &packet).packet(1, 2_000_000, &IPV4);
    add(table, "link-types-2.pcapng", ng.done(), Expected::Packets(2));

    ng = Ng::new(false);
    ng.interface(1, 0, &[])
        .packet(0, 1_000_000, &packet)
        .section(false)
        .interface(1, 0, &[])
        .packet(0, 2_000_000, &packet);
    add(table, "sections-2.pcapng", ng.done(), Expected::Packets(2));

    ng = Ng::new(false);
    ng.interface(1, 0, &[])
        .packet(0, 1_000_000, &packet)
        .section(true)
        .interface(1, 0, &[])
        .packet(0, 2_000_000, &packet);
    add(table, "sections-both-orders.pcapng", ng.done(), Expected::Packets(2));

    ng = Ng::new(true);
    ng.interface(1, 40, &[])
        .simple_packet(packet.len() as u32, &packet[..40])
        .simple_packet(33, &packet[..33]);
    add(table, "simple-packets.pcapng", ng.done(), Expected::Packets(2));

    ng = Ng::new(true);
    ng.interface(1, 0, &[]).old_packet(0, 3, 1_000_000, &packet).old_packet(0, 0xffff, 2_000_000, &packet);
    add(table, "old-packets.pcapng", ng.done(), Expected::Packets(2));

    ng = Ng::new(false);
    ng.interface(1, 20, &[]).packet_with(0, 1_000_000, 20, &packet[..20], 46, &[]);
    add(table, "snapped.pcapng", ng.done(), Expected::Packets(1));

    ng = Ng::new(false);
    ng.interface(1, 20, &[]).packet(0, 1_000_000, &packet).packet(0, 2_000_000, &packet);
    add(table, "longer-than-snap.pcapng", ng.done(), Expected::Packets(2));

    ng = Ng::new(false);
    add(table, "no-packets.pcapng", ng.interface(1, 0, &[]).done(), Expected::Packets(0));
    ng = Ng::new(false);
    add(table, "no-interface.pcapng", ng.done(), Expected::Packets(0));
}

fn pcapng_damage(table: &mut Vec<Odd>) {
    let packet = ethernet();
    let mut ng = Ng::new(false);
    let whole = ng.interface(1, 0, &[]).packet(0, 1_000_000, &packet).packet(0, 2_000_000, &packet).done();
    let (end, block) = (whole.len(), 80);
    add(table, "cut-inside-trailer.pcapng", whole[..end - 2].to_vec(), Expected::Cut(1, true));
    add(table, "cut-inside-packet.pcapng", whole[..end - 40].to_vec(), Expected::Cut(1, true));
    add(table, "cut-inside-type.pcapng", whole[..end - block + 3].to_vec(), Expected::Cut(1, false));
    add(table, "cut-inside-length.pcapng", whole[..end - block + 6].to_vec(), Expected::Cut(1, true));
    add(table, "cut-inside-section.pcapng", whole[..20].to_vec(), Expected::Refused);
    add(table, "zero-tail.pcapng", [&whole[..], &[0; 100]].concat(), Expected::Cut(2, false));
    add(
        table,
        "garbage-tail.pcapng",
        [&whole[..], b"\x01\x02\x03 no block at all"].concat(),
        Expected::Cut(2, false),
    );

    let mut broken = |name: &str, at: usize, value: u32, packets: u64, packet: bool| {
        let mut bytes = whole.clone();
        bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
        add(table, name, bytes, Expected::Cut(packets, packet));
    };
    broken("lengths-differ.pcapng", end - 4, 84, 1, true);
    broken("length-not-by-4.pcapng", end - block + 4, 79, 1, true);
    broken("length-too-short.pcapng", end - block + 4, 8, 1, true);
    broken("length-lie-4g.pcapng", end - block + 4, 0xffff_fffc, 1, true);
    broken("captured-beyond-block.pcapng", end - block + 20, 0x1000, 1, true);
    broken("captured-4g.pcapng", end - block + 20, u32::MAX, 1, true);
    broken("no-such-interface.pcapng", end - block + 8, 1, 1, true);

    let mut early = Ng::new(false);
    add(table, "packet-before-interface.pcapng", early.packet(0, 1, &packet).done(), Expected::Refused);
}

fn interface_options(table: &mut Vec<Odd>) {
    let packet = ethernet();
    let mut options = |name: &str, options: &[(u16, &[u8])]| {
        let mut ng = Ng::new(false);
        ng.interface(1, 0, options).packet(0, T0 as u64, &packet);
        add(table, name, ng.done(), Expected::Refused);
    };
    options("tsresol-twice.pcapng", &[(9, &[9]), (9, &[6])]);
    options("tsresol-twice-the-same.pcapng", &[(9, &[9]), (9, &[9])]);
    options("tsresol-2-bytes.pcapng", &[(9, &[9, 0])]);
    options("tsresol-0-bytes.pcapng", &[(9, &[])]);
    options("tsoffset-twice.pcapng", &[(14, &[0; 8]), (14, &[0; 8])]);
    options("tsoffset-4-bytes.pcapng", &[(14, &[0; 4])]);
    options("end-of-options-with-a-length.pcapng", &[(2, b"eth0"), (0, b"four")]);

    let mut ng = Ng::new(false);
    let mut body = super::Out::new(false);
    body.u16(1).u16(0).u32(0).u16(2).u16(200).raw(b"eth0");
    ng.block(1, &body.bytes).packet(0, T0 as u64, &packet);
    add(table, "option-longer-than-its-block.pcapng", ng.done(), Expected::Refused);

    ng = Ng::new(false);
    ng.interface(1, 0, &[]).packet(0, 1_000_000, &packet).interface(1, 0, &[(9, &[9, 0])]).packet(
        1,
        2_000_000_000,
        &packet,
    );
    add(table, "tsresol-2-bytes-later.pcapng", ng.done(), Expected::Cut(1, false));

    ng = Ng::new(false);
    let mut bytes = ng.interface(1, 0, &[]).packet(0, 1_000_000, &packet).done();
    bytes[24] ^= 0x40;
    add(table, "first-section-ends-with-another-length.pcapng", bytes.clone(), Expected::Warned(1));
    bytes[24] ^= 0x40;
    let mut later = [bytes.clone(), bytes].concat();
    let second = later.len() / 2;
    later[second + 24] ^= 0x40;
    add(table, "second-section-ends-with-another-length.pcapng", later, Expected::Cut(1, false));
}

/// Link types with fields in the capturing host's byte order.
fn foreign_byte_order(table: &mut Vec<Odd>) {
    let can = |kind: u8, bytes: usize| {
        let packet = [
            0, 1, 1, 0x18, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, kind, 1, 2, 3, 4, 8, 0, 0, 0, 1, 2, 3, 4, 5, 6,
            7, 8,
        ];
        packet[..bytes].to_vec()
    };
    let usb = |transfer: u8, descriptors: u8, bytes: usize| {
        let mut packet: Vec<u8> = (1..=64).collect();
        packet[9] = transfer;
        packet[60..].copy_from_slice(&[0, 0, 0, descriptors]);
        packet.extend(101..165);
        packet[..bytes].to_vec()
    };
    let nflog = |bytes: usize| {
        let packet = [
            2, 0, 1, 2, 0, 5, 0, 10, 1, 2, 3, 4, 5, 6, 0, 0, 0, 9, 0, 9, b'x', b'y', b'z', b'z', 0, 0, 0, 0,
            0, 10, 0, 5, 0, 0, 0, 0,
        ];
        packet[..bytes].to_vec()
    };
    let mut check = |name: &str, link_type: u16, packets: &[Vec<u8>]| {
        for (order, big) in [("be", true), ("le", false)] {
            let mut pcap = Pcap::new(big, NANO, 4, 262_144, u32::from(link_type));
            let mut ng = Ng::new(big);
            ng.interface(link_type, 0, &[]);
            for (n, packet) in packets.iter().enumerate() {
                pcap.packet(T0 + n as i64, packet);
                ng.packet(0, (T0 / 1000) as u64 + n as u64, packet);
            }
            let count = Expected::Packets(packets.len() as u64);
            add(table, &format!("order-{name}-{order}.pcap"), pcap.done(), count);
            add(table, &format!("order-{name}-{order}.pcapng"), ng.done(), count);
        }
    };
    check(
        "can",
        113,
        &[can(12, 32), can(13, 32), can(14, 32), can(12, 20), can(12, 19), can(12, 16), can(12, 3)],
    );
    let lengths = [0, 7, 8, 13, 14, 23, 24, 27, 28, 31, 32, 35, 36, 39, 40, 43, 44, 47, 48];
    let short: Vec<_> = lengths.iter().flat_map(|&bytes| [usb(0, 0, bytes), usb(3, 0, bytes)]).collect();
    check("usb", 189, &short);
    let longer: Vec<_> = [48, 51, 52, 56, 60, 63, 64, 67, 68, 72, 76, 80, 95, 96, 128]
        .iter()
        .flat_map(|&bytes| [usb(0, 2, bytes), usb(0, 200, bytes), usb(0, 0, bytes), usb(1, 2, bytes)])
        .collect();
    check("usb-mmapped", 220, &[short, longer].concat());
    check("nflog", 239, &(0..=36).map(nflog).collect::<Vec<_>>());
}

fn foreign(table: &mut Vec<Odd>) {
    let mut noise = 1u32;
    let garbage: Vec<u8> = std::iter::repeat_with(|| {
        noise = noise.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (noise >> 24) as u8
    })
    .take(500)
    .collect();
    add(table, "garbage.bin", garbage, Expected::Refused);
    add(table, "empty.pcap", Vec::new(), Expected::Refused);
    add(table, "too-short.pcap", vec![0xd4, 0xc3], Expected::Refused);
    add(table, "text.txt", b"This is no capture.\n".to_vec(), Expected::Refused);
    add(
        table,
        "gzip.pcap.gz",
        vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        Expected::Refused,
    );
}
