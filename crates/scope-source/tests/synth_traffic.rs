//! What the generator sends: the same for a seed at any pace and number of workers, well-formed, in the
//! promised shares.

use std::collections::{BTreeMap, HashSet};
use std::hash::{DefaultHasher, Hasher};

use etherparse::{NetSlice, SlicedPacket, TransportSlice, checksum::u32_16bit_word};
use scope_packet::{BATCH_PACKETS_MAX, Headers, Interface, LinkType, Packet, Sink};
use scope_source::spec::{self, SourcePlan, SourceSpec};
use scope_source::synth::{self, Prepare, Size, SynthOptions, TRIGGER_PORT, TRIGGER_TEXT};
use scope_source::{Polled, Source, Timing};

const START_NS: i64 = 1_795_206_665_123_456_789;
/// FNV-1a over the times and bytes of the test below.
const FNV_OF_SEED_1: u64 = 5_325_680_207_429_278_101;

/// Keeps everything; checks the rules of the seam.
#[derive(Default)]
struct Kept {
    interfaces: Vec<Interface>,
    packets: Vec<(i64, Vec<u8>)>,
}

impl Sink for Kept {
    fn interface(&mut self, interface: &Interface) {
        self.interfaces.push(interface.clone());
    }

    fn batch(&mut self, packets: &[Packet<'_>]) {
        assert!(!self.interfaces.is_empty() && (1..=BATCH_PACKETS_MAX).contains(&packets.len()));
        for packet in packets {
            assert_eq!(
                (packet.original_len as usize, packet.interface, packet.lost_before),
                (packet.data.len(), 0, 0)
            );
            self.packets.push((packet.time_ns, packet.data.to_vec()));
        }
    }

    fn lost(&mut self, _: u32, _: u64, _: i64, _: i64) {
        panic!("a generator loses nothing");
    }

    fn idle(&mut self, clock_ns: i64) {
        assert!(self.packets.last().is_none_or(|(time_ns, _)| *time_ns <= clock_ns));
    }
}

/// Only times, for long runs.
#[derive(Default)]
struct Times {
    count: u64,
    rate: u64,
}

impl Sink for Times {
    fn interface(&mut self, _: &Interface) {}
    fn batch(&mut self, packets: &[Packet<'_>]) {
        for packet in packets {
            let offset_ns = u128::from(self.count) * 1_000_000_000 / u128::from(self.rate);
            assert_eq!(packet.time_ns, START_NS + offset_ns as i64, "packet {}", self.count);
            self.count += 1;
        }
    }
    fn lost(&mut self, _: u32, _: u64, _: i64, _: i64) {}
    fn idle(&mut self, _: i64) {}
}

fn options() -> SynthOptions {
    SynthOptions {
        start_ns: Some(START_NS),
        pace_max: true,
        packets: Some(40_000),
        ..SynthOptions::default()
    }
}

fn drain(source: &mut dyn Source, sink: &mut dyn Sink) {
    let mut before = source.counters();
    loop {
        match source.poll(sink).expect("a generator doesn't fail") {
            Polled::Ended => break,
            Polled::Nothing => continue,
            Polled::Packets => assert!(source.counters().received > before.received),
        }
        before = source.counters();
    }
}

fn run(options: &SynthOptions) -> Kept {
    let mut kept = Kept::default();
    for mut source in synth::open(options, "synth:").expect("good options") {
        drain(&mut source, &mut kept);
    }
    kept
}

fn hashed(packets: &[(i64, Vec<u8>)]) -> u64 {
    let mut hasher = DefaultHasher::new();
    for (time_ns, data) in packets {
        hasher.write_i64(*time_ns);
        hasher.write(data);
    }
    hasher.finish()
}

fn headers(data: &[u8]) -> Headers {
    Headers::parse(LinkType::ETHERNET, data)
}

fn is_trigger(data: &[u8]) -> bool {
    headers(data).ports().is_some_and(|(_, destination)| destination == TRIGGER_PORT)
}

#[test]
fn a_seed_decides_every_byte_and_time_and_another_seed_others() {
    let options =
        SynthOptions { vlan_ppm: 100_000, ipv6_ppm: 200_000, trigger_at_ns: Some(50_000_000), ..options() };
    let first = hashed(&run(&options).packets);
    assert_eq!(first, hashed(&run(&options).packets));
    assert_ne!(first, hashed(&run(&SynthOptions { seed: 2, ..options }).packets));
}

#[test]
fn the_bytes_of_a_seed_stay_the_same_from_version_to_version() {
    let options =
        SynthOptions { vlan_ppm: 100_000, ipv6_ppm: 200_000, trigger_at_ns: Some(50_000_000), ..options() };
    let sum = run(&options).packets.iter().fold(0xcbf2_9ce4_8422_2325u64, |hash, (time_ns, data)| {
        let bytes = time_ns.to_le_bytes();
        bytes
            .iter()
            .chain(data)
            .fold(hash, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3))
    });
    assert_eq!(sum, FNV_OF_SEED_1);
}

#[test]
fn pace_changes_neither_bytes_nor_times() {
    let options = SynthOptions {
        packets: Some(5000),
        trigger_at_ns: Some(7_000_000),
        rate: Some(100_000),
        ..options()
    };
    let paced = SynthOptions { pace_max: false, ..options.clone() };
    assert_eq!(hashed(&run(&options).packets), hashed(&run(&paced).packets));
}

#[test]
fn workers_together_send_exactly_what_one_sends() {
    for prepare in [Prepare::On, Prepare::Off, Prepare::Bytes(100_000)] {
        let options =
            SynthOptions { prepare, packets: Some(10_000), trigger_at_ns: Some(10_000_000), ..options() };
        let alone = run(&options).packets;
        for workers in [2, 4, 7] {
            let mut together = Vec::new();
            let mut flows_seen = HashSet::new();
            for (worker, mut source) in synth::open(&SynthOptions { workers, ..options.clone() }, "synth:")
                .expect("good")
                .into_iter()
                .enumerate()
            {
                let mut kept = Kept::default();
                drain(&mut source, &mut kept);
                assert_eq!(kept.interfaces[0].name, format!("synth{worker}"));
                assert!(kept.packets.is_sorted_by_key(|(time_ns, _)| *time_ns));
                assert_eq!(kept.packets.iter().any(|(_, data)| is_trigger(data)), worker == 0);
                let flows: HashSet<_> =
                    kept.packets.iter().filter(|(_, data)| !is_trigger(data)).map(|(_, d)| flow(d)).collect();
                assert!(flows.is_disjoint(&flows_seen));
                flows_seen.extend(flows);
                together.extend(kept.packets);
            }
            // The trigger packet goes before a background packet of the same time.
            together.sort_by_key(|(time_ns, data)| (*time_ns, !is_trigger(data)));
            assert_eq!(hashed(&together), hashed(&alone), "{workers} workers, {prepare:?}");
        }
    }
}

/// Address and port.
type End = (Vec<u8>, u16);

/// Protocol and both ends, the smaller first.
fn flow(data: &[u8]) -> (u8, End, End) {
    let headers = headers(data);
    let (source, destination) = headers.address_bytes(data).expect("IP");
    let (source_port, destination_port) = headers.ports().expect("ports");
    let (a, b) = ((source.to_vec(), source_port), (destination.to_vec(), destination_port));
    if a < b { (headers.protocol(), a, b) } else { (headers.protocol(), b, a) }
}

#[test]
fn a_pool_repeats_its_packets_with_new_times_and_without_one_all_differ() {
    let prepared = run(&SynthOptions { prepare: Prepare::Bytes(64 << 10), ..options() }).packets;
    let fresh = run(&SynthOptions { prepare: Prepare::Off, ..options() }).packets;
    let times = |packets: &[(i64, Vec<u8>)]| packets.iter().map(|(time_ns, _)| *time_ns).collect::<Vec<_>>();
    assert_eq!(times(&prepared), times(&fresh));
    let distinct: HashSet<&[u8]> = prepared.iter().map(|(_, data)| &data[..]).collect();
    let period = distinct.len();
    assert!((100..1000).contains(&period), "{period}");
    assert_eq!(hashed(&prepared[..period]), hashed(&fresh[..period]));
    for (n, (_, data)) in prepared.iter().enumerate() {
        assert_eq!(*data, prepared[n % period].1);
    }
    assert_eq!(fresh.iter().map(|(_, data)| &data[..]).collect::<HashSet<_>>().len(), fresh.len());
}

#[test]
fn ten_million_packets_do_not_drift() {
    for (rate, prepare) in [(999_983, Prepare::On), (14_880_952, Prepare::On)] {
        let options = SynthOptions {
            rate: Some(rate),
            size: Size::Fixed(64),
            prepare,
            packets: Some(10_000_000),
            ..options()
        };
        let mut times = Times { rate, ..Times::default() };
        let mut source = synth::open(&options, "synth:").expect("good").remove(0);
        drain(&mut source, &mut times);
        assert_eq!(times.count, 10_000_000);
        assert_eq!((source.counters().offered, source.counters().received), (10_000_000, 10_000_000));
    }
}

#[test]
fn time_and_packets_end_the_traffic_whichever_comes_first() {
    let count = |time_ns, packets| {
        run(&SynthOptions { rate: Some(1000), time_ns, packets, ..options() }).packets.len()
    };
    assert_eq!(count(Some(2_000_000_000), None), 2000);
    assert_eq!(count(Some(2_000_000_001), None), 2001);
    assert_eq!(count(Some(2_000_000_000), Some(7)), 7);
    assert_eq!(count(Some(5_000_000), Some(700)), 5);
}

/// Checks one frame against an independent parser and independently computed checksums.
fn check_frame(data: &[u8]) {
    let sliced = SlicedPacket::from_ethernet(data).expect("well-formed");
    let (transport, pseudo) = match sliced.net.as_ref().expect("IP") {
        NetSlice::Ipv4(ip) => {
            let header = ip.header().to_header();
            assert_eq!(header.header_checksum, header.calc_header_checksum());
            for address in [header.source, header.destination] {
                assert!(
                    address[..2] == [10, 0] && !matches!(address[2..], [0, 0] | [255, 255]),
                    "{address:?}"
                );
            }
            let end = data.len();
            let at = end - ip.payload().payload.len();
            (at, u32_16bit_word::add_slice(0, &data[at - 8..at]))
        }
        NetSlice::Ipv6(ip) => {
            let header = ip.header().to_header();
            assert!(header.source.starts_with(&[0xfd, 0]) && header.source[12..14] == [10, 0]);
            let at = data.len() - ip.payload().payload.len();
            (at, u32_16bit_word::add_slice(0, &data[at - 32..at]))
        }
        other => panic!("{other:?}"),
    };
    let (protocol, ports, payload) = match sliced.transport.as_ref().expect("transport") {
        TransportSlice::Udp(udp) => {
            assert_ne!(udp.checksum(), 0);
            assert_eq!(udp.length() as usize, data.len() - transport);
            (17, (udp.source_port(), udp.destination_port()), udp.payload())
        }
        TransportSlice::Tcp(tcp) => (6, (tcp.source_port(), tcp.destination_port()), tcp.payload()),
        other => panic!("{other:?}"),
    };
    let segment = &data[transport..];
    let sum = u32_16bit_word::add_2bytes(pseudo, [0, protocol]);
    let sum = u32_16bit_word::add_2bytes(sum, (segment.len() as u16).to_be_bytes());
    assert_eq!(
        u32_16bit_word::ones_complement(u32_16bit_word::add_slice(sum, segment)),
        0,
        "transport checksum"
    );
    assert!((1000..=10_000).contains(&ports.0), "{ports:?}");
    assert!((1000..=10_000).contains(&ports.1) || ports.1 == TRIGGER_PORT, "{ports:?}");
    assert!(!payload.contains(&0));
}

#[test]
fn every_frame_is_well_formed_inside_the_network_and_its_ports() {
    for size in [
        Size::Imix,
        Size::Fixed(60),
        Size::Fixed(64),
        Size::Fixed(129),
        Size::Fixed(9000),
        Size::Fixed(65_535),
    ] {
        let options = SynthOptions {
            size,
            vlan_ppm: 300_000,
            ipv6_ppm: 300_000,
            packets: Some(2000),
            trigger_at_ns: Some(5_000_000),
            prepare: Prepare::Off,
            ..options()
        };
        let packets = run(&options).packets;
        let kinds: HashSet<_> =
            packets.iter().map(|(_, data)| (headers(data).kind() as u8, headers(data).protocol())).collect();
        assert_eq!(kinds.len(), 4);
        for (_, data) in &packets {
            check_frame(data);
            let parsed = headers(data);
            assert!(!parsed.partial() && parsed.vlan_tags() <= 1);
            assert!(parsed.vlan_tags() == 0 || (1..=4094).contains(&parsed.vlan_id()));
            if let Size::Fixed(bytes) = size {
                assert!(is_trigger(data) || data.len() == bytes as usize || (bytes < 78 && data.len() <= 78));
            }
        }
    }
}

#[test]
fn imix_is_seven_four_one() {
    let mut counts = BTreeMap::new();
    for (_, data) in run(&SynthOptions { packets: Some(120_000), prepare: Prepare::Off, ..options() }).packets
    {
        *counts.entry(data.len()).or_insert(0u32) += 1;
    }
    assert_eq!(counts.keys().copied().collect::<Vec<_>>(), [64, 594, 1518]);
    for (bytes, expected) in [(64, 70_000), (594, 40_000), (1518, 10_000)] {
        assert!(counts[&bytes].abs_diff(expected) < 800, "{counts:?}");
    }
}

#[test]
fn shares_hold_exactly_over_the_flows_and_nearly_over_the_packets() {
    let options = SynthOptions { vlan_ppm: 100_000, ipv6_ppm: 250_000, size: Size::Fixed(100), ..options() };
    let packets = run(&options).packets;
    let mut flows = BTreeMap::new();
    let mut tagged_packets = 0;
    for (_, data) in &packets {
        let parsed = headers(data);
        tagged_packets += parsed.vlan_tags() as usize;
        let before = flows.insert(flow(data), (parsed.vlan_tags(), parsed.vlan_id(), parsed.kind()));
        assert!(before.is_none_or(|before| before == (parsed.vlan_tags(), parsed.vlan_id(), parsed.kind())));
    }
    assert_eq!(flows.len(), 1000);
    assert_eq!(flows.values().filter(|(tags, ..)| *tags == 1).count(), 100);
    assert_eq!(flows.values().filter(|(.., kind)| *kind == scope_packet::Kind::Ipv6).count(), 250);
    assert!(tagged_packets.abs_diff(packets.len() / 10) < packets.len() / 50, "{tagged_packets}");
}

#[test]
fn all_or_nothing_of_a_share_is_all_or_nothing() {
    let tagged = |vlan_ppm| {
        let packets = run(&SynthOptions { vlan_ppm, packets: Some(1000), ..options() }).packets;
        packets.iter().filter(|(_, data)| headers(data).vlan_tags() == 1).count()
    };
    assert_eq!((tagged(0), tagged(1_000_000)), (0, 1000));
}

#[test]
fn there_is_one_trigger_packet_in_its_place_with_its_words_and_time() {
    for at_ns in [0, 1, 5_000_000, 5_000_001, 399_999_999] {
        let options = SynthOptions { rate: Some(100_000), trigger_at_ns: Some(at_ns), ..options() };
        let packets = run(&options).packets;
        assert_eq!(packets.len(), 40_001);
        assert!(packets.is_sorted_by_key(|(time_ns, _)| *time_ns));
        let triggers: Vec<_> = packets.iter().filter(|(_, data)| is_trigger(data)).collect();
        let [(time_ns, data)] = triggers[..] else { panic!("{} trigger packets", triggers.len()) };
        assert_eq!(*time_ns, START_NS + at_ns);
        check_frame(data);
        let text = String::from_utf8_lossy(&data[42..]).into_owned();
        assert_eq!(text, format!("{TRIGGER_TEXT} {}", scope_spelling::time::iso(*time_ns)));
    }
}

#[test]
fn the_next_time_is_that_of_the_next_packet() {
    let options = SynthOptions {
        rate: Some(1000),
        packets: Some(10_000),
        trigger_at_ns: Some(4_096_000_000),
        ..options()
    };
    let mut source = synth::open(&options, "synth:").expect("good").remove(0);
    let mut kept = Kept::default();
    loop {
        let (next_ns, known) = (source.next_time_ns(), kept.packets.len());
        let polled = source.poll(&mut kept).expect("no failure");
        assert_eq!(next_ns, kept.packets.get(known).map(|(time_ns, _)| *time_ns));
        if polled == Polled::Ended {
            break;
        }
    }
    assert_eq!(kept.packets.len(), 10_001);
}

#[test]
fn options_that_make_no_sense_are_refused_all_at_once() {
    let bad = SynthOptions {
        rate: Some(0),
        flows: 0,
        pace_max: true,
        size: Size::Fixed(10),
        ..SynthOptions::default()
    };
    let faults = bad.faults("synth:rate=0");
    let first = synth::open(&bad, "synth:rate=0").expect_err("refused").to_string();
    assert_eq!(first, faults[0].to_string());
    let message = faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
    for part in ["synth:rate=0", "rate is 0", "size is 10", "flows is 0", "needs time= or packets="] {
        assert!(message.contains(part), "{message}");
    }
    let refused = |options: SynthOptions| !options.faults("synth:").is_empty();
    assert!(refused(SynthOptions { trigger_at_ns: Some(400_000_000), rate: Some(100_000), ..options() }));
    assert!(refused(SynthOptions { start_ns: Some(i64::MAX - 5), ..options() }));
    assert!(refused(SynthOptions { workers: 4, flows: 3, ..options() }));
    assert!(refused(SynthOptions { prepare: Prepare::Bytes(1 << 40), ..options() }));
    assert!(refused(SynthOptions { packets: Some(u64::MAX), rate: Some(1), ..options() }));
    assert!(refused(SynthOptions { time_ns: Some(-1), ..options() }));
}

#[test]
fn what_is_typed_is_what_is_sent() {
    let text = "synth:rate=1M,size=imix,flows=1000,vlan=10%,seed=1,time=30ms,trigger-at=5ms,start=2026-11-20T20:31:05.123456789Z,pace=max";
    let Ok(SourceSpec { plan: SourcePlan::Synth(options), .. }) = spec::parse(text) else {
        panic!("{:?}", spec::parse(text))
    };
    let source = synth::open(&options, text).expect("good").remove(0);
    assert_eq!((source.name(), source.timing(), source.grace_ns()), (text, Timing::Waits, 1_000_000_000));
    let packets = run(&options).packets;
    assert_eq!(
        (packets.len(), packets[0].0, packets.last().map(|(ns, _)| *ns)),
        (30_001, START_NS, Some(START_NS + 29_999_000))
    );
}
