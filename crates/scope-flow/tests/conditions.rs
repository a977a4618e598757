//! Conditions on flows, as triggers ask them, against a model that keeps every packet.

use proptest::prelude::*;
use scope_flow::counting::{Counting, Settings};
use scope_flow::table::Bounds;
use scope_flow::when::{WHENS_MAX, When};
use scope_packet::{Headers, LinkType, Packet};

const IDLE_NS: i64 = 30;
const ACTIVE_NS: i64 = 100;

fn counting(flows_max: usize) -> Counting {
    let bounds = Bounds { flows_max, idle_ns: IDLE_NS, active_ns: ACTIVE_NS };
    Counting::new(Settings { bounds, length_ns: 17, expires: false, seed: [1, 2] })
}

/// A frame of UDP from one of two ends to the other.
fn udp(port: u16, is_back: bool, payload: usize) -> Vec<u8> {
    let (source, destination) = if is_back { (2, 1) } else { (1, 2) };
    let ports = if is_back { [53, port] } else { [port, 53] };
    let mut frame = vec![0; 12];
    frame.extend([8, 0, 0x45, 0]);
    frame.extend((28 + payload as u16).to_be_bytes());
    frame.extend([0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, source, 10, 0, 0, destination]);
    frame.extend(ports.iter().flat_map(|port| port.to_be_bytes()));
    frame.extend((8 + payload as u16).to_be_bytes());
    frame.extend([0, 0]);
    frame.resize(frame.len() + payload, 0);
    frame
}

/// A segment of TCP between the same ends.
fn tcp(flags: u8, is_back: bool, sequence: u32, acknowledged: u32, payload: usize) -> Vec<u8> {
    let (source, destination) = if is_back { (2, 1) } else { (1, 2) };
    let ports: [u16; 2] = if is_back { [443, 40_000] } else { [40_000, 443] };
    let mut frame = vec![0; 12];
    frame.extend([8, 0, 0x45, 0]);
    frame.extend((40 + payload as u16).to_be_bytes());
    frame.extend([0, 0, 0, 0, 64, 6, 0, 0, 10, 0, 0, source, 10, 0, 0, destination]);
    frame.extend(ports.iter().flat_map(|port| port.to_be_bytes()));
    frame.extend(sequence.to_be_bytes());
    frame.extend(acknowledged.to_be_bytes());
    frame.extend([0x50, flags, 1, 0, 0, 0, 0, 0]);
    frame.resize(frame.len() + payload, 0);
    frame
}

/// Numbers of the conditions that first hold for their flow with each of these packets; those alone are asked that are
/// in `asked` of a packet.
fn fired(counting: &mut Counting, frames: &[(i64, Vec<u8>)], whens: &[When], asked: &[u16]) -> Vec<u16> {
    let packets: Vec<Packet<'_>> = frames
        .iter()
        .map(|(time_ns, data)| Packet {
            time_ns: *time_ns,
            data,
            original_len: data.len() as u32,
            interface: 0,
            flags: 0,
            lost_before: 0,
        })
        .collect();
    let mut fired = vec![0; packets.len()];
    for (chunk, from) in packets.chunks(64).zip((0..).step_by(64)) {
        let headers = |at: usize| Some(Headers::parse(LinkType::ETHERNET, chunk[at].data));
        let all = !0 >> (64 - chunk.len());
        counting.run(
            chunk,
            all,
            headers,
            |packet| packet.original_len,
            |at, flow| {
                for (number, when) in whens.iter().enumerate() {
                    if asked[from + at] >> number & 1 != 0 && when.holds(flow) && flow.fire(number as u8) {
                        fired[from + at] |= 1 << number;
                    }
                }
            },
        );
    }
    fired
}

/// A flow as a plain reading has it.
#[derive(Clone, Copy, Default)]
struct Naive {
    began_ns: i64,
    last_ns: i64,
    packets: u64,
    bytes: u64,
    /// Conditions that have held.
    held: u16,
}

fn conditions() -> Vec<When> {
    let texts = [
        "new",
        "packets > 3",
        "bytes > 300",
        "duration > 25ns",
        "duration > 250ns",
        "packets > 12 and bytes > 900",
        "new and packets > 0",
        "packets > 30",
    ];
    texts.iter().map(|text| When::parse(text).unwrap()).collect()
}

proptest! {
    #[test]
    fn a_condition_holds_once_for_a_flow_and_about_all_that_it_had(
        seen in prop::collection::vec((0i64..45, 0u16..3, any::<bool>(), 0usize..40, any::<u8>()), 1..300),
    ) {
        let whens = conditions();
        let mut at_ns = 1_000;
        let (mut frames, mut asked, mut expected) = (Vec::new(), Vec::new(), Vec::new());
        let mut flows: [Option<Naive>; 3] = [None; 3];
        for (gap_ns, port, is_back, payload, of_filter) in seen {
            at_ns += gap_ns;
            let frame = udp(port, is_back, payload);
            let flow = &mut flows[usize::from(port)];
            if flow.is_some_and(|flow| at_ns > flow.last_ns + IDLE_NS) {
                *flow = None;
            }
            let is_new = flow.is_none();
            let flow = flow.get_or_insert(Naive { began_ns: at_ns, ..Naive::default() });
            (flow.last_ns, flow.packets, flow.bytes) = (at_ns, flow.packets + 1, flow.bytes + frame.len() as u64);
            let (packets, bytes, long_ns) = (flow.packets, flow.bytes, at_ns - flow.began_ns);
            let holds = [
                is_new, packets > 3, bytes > 300, long_ns > 25, long_ns > 250, packets > 12 && bytes > 900, is_new,
                packets > 30,
            ];
            let holds = holds.iter().enumerate().fold(0, |bits, (number, holds)| bits | u16::from(*holds) << number);
            let first = holds & u16::from(of_filter) & !flow.held;
            flow.held |= first;
            expected.push(first);
            asked.push(of_filter.into());
            frames.push((at_ns, frame));
        }
        let mut counting = counting(64);
        counting.begin_conditions(0xff);
        prop_assert_eq!(fired(&mut counting, &frames, &whens, &asked), expected);
    }
}

#[test]
fn a_number_that_another_condition_gets_has_held_for_nobody_and_the_others_go_on() {
    let whens = vec![When::parse("packets > 0").unwrap(); WHENS_MAX];
    let mut counting = counting(64);
    counting.begin_conditions(!0);
    let frames = [(1, udp(1, false, 0)), (1, udp(2, false, 0))];
    let all = [!0; 2];
    assert_eq!(fired(&mut counting, &frames, &whens, &all), [!0, !0]);
    assert_eq!(fired(&mut counting, &frames, &whens, &all), [0, 0]);
    // Also when the rounds begin anew, and for a flow that nobody asked for in between.
    for round in 0..600 {
        counting.begin_conditions(1 << 3);
        let frames = if round % 7 == 0 { &frames[..] } else { &frames[..1] };
        assert!(fired(&mut counting, frames, &whens, &all).iter().all(|fired| *fired == 1 << 3), "{round}");
    }
    counting.begin_conditions(1 << 15 | 1);
    assert_eq!(fired(&mut counting, &frames[1..], &whens, &all), [1 << 15 | 1 << 3 | 1]);
}

#[test]
fn the_handshake_s_time_is_the_connection_s_also_in_its_later_records() {
    let whens = [When::parse("rtt > 19ns").unwrap(), When::parse("rtt > 20ns").unwrap()];
    let mut frames = vec![
        (1_000, tcp(2, false, 1, 0, 0)),
        (1_015, tcp(0x12, true, 7, 2, 0)),
        (1_020, tcp(0x10, false, 2, 8, 0)),
    ];
    frames.extend((1..20).map(|n| (1_020 + n * 20, tcp(0x10, false, 2 + n as u32, 8, 1))));
    let mut counting = counting(64);
    counting.begin_conditions(3);
    let mut asked = vec![0; frames.len()];
    *asked.last_mut().unwrap() = 3;
    let fired = fired(&mut counting, &frames, &whens, &asked);
    assert_eq!(fired.last(), Some(&1), "20 ns, in the fourth record");
    let resent = [When::parse("resent > 1").unwrap(), When::parse("resent > 8").unwrap()];
    let again: Vec<(i64, Vec<u8>)> = (0..10).map(|n| (1_400 + n * 25, tcp(0x10, false, 2, 8, 3))).collect();
    counting.begin_conditions(3);
    let fired = self::fired(&mut counting, &again, &resent, &[3; 10]);
    assert_eq!(fired, [0, 1, 0, 0, 0, 0, 0, 0, 2, 0], "over three records");
}

#[test]
fn what_is_evicted_within_a_batch_tells_nothing_of_the_flow_that_takes_its_place() {
    let whens = [When::parse("new").unwrap()];
    let mut counting = counting(1);
    counting.begin_conditions(1);
    let frames: Vec<(i64, Vec<u8>)> = (0..40).map(|n| (n, udp(n as u16 % 4, false, 0))).collect();
    assert_eq!(fired(&mut counting, &frames, &whens, &[1; 40]), [1; 40]);
}
