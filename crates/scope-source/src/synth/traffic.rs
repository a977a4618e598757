//! What packet n of the generator is: its flow, direction, size and bytes, drawn from the seed alone.
//!
//! Every draw is a hash of (seed, stream, number), so that any packet can be made without those before it:
//! workers that share the traffic, and a prepared pool, see the same packets.

use super::frame::{End, Head, Transport};
use super::{Size, SynthOptions};
use scope_spelling::values::PPM;

/// Payload is copied from somewhere in this many bytes of text.
const TEXT_BYTES: usize = 1 << 16;
/// Bytes that a payload is made of: no zero, no blank, so that the trigger's words never come up by chance.
const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
/// Characters of the packet's number at the start of its payload, 6 bits each.
const NUMBER_CHARS: usize = 11;

/// Independent streams of draws.
#[derive(Clone, Copy)]
enum Stream {
    Flows,
    Vlan,
    Ipv6,
    Text,
    Pick,
    Shape,
    Trigger,
}

/// The finaliser of splitmix64 over a counter.
fn mixed(key: u64, number: u64) -> u64 {
    let mut z = key.wrapping_add(number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

fn key(seed: u64, stream: Stream) -> u64 {
    mixed(mixed(seed, 0), stream as u64)
}

/// A number in 0..`bound` from the high bits of `draw`.
fn below(draw: u64, bound: u64) -> u64 {
    ((u128::from(draw) * u128::from(bound)) >> 64) as u64
}

/// A host of the network without its first and last address.
fn host(draw: u64) -> u16 {
    1 + below(draw, 65_534) as u16
}

/// 1000 to 10000.
fn port(draw: u64) -> u16 {
    1000 + below(draw, 9001) as u16
}

#[derive(Clone, Copy, Debug)]
struct Flow {
    ends: [End; 2],
    transport: Transport,
    ipv6: bool,
    vlan: u16,
}

/// The traffic of one run; immutable, shared by its workers.
#[derive(Debug)]
pub struct Traffic {
    flows: Vec<Flow>,
    size: Size,
    text: Vec<u8>,
    pick_key: u64,
    shape_key: u64,
    trigger_key: u64,
}

impl Traffic {
    /// Draws the flows.
    pub fn new(options: &SynthOptions) -> Traffic {
        let seed = options.seed;
        let flows_key = key(seed, Stream::Flows);
        let tagged = marked(options.flows, options.vlan_ppm, key(seed, Stream::Vlan));
        let ipv6 = marked(options.flows, options.ipv6_ppm, key(seed, Stream::Ipv6));
        let flows =
            (0..options.flows as usize).map(|n| flow(flows_key, n as u64, tagged[n], ipv6[n])).collect();
        let text_key = key(seed, Stream::Text);
        let text_bytes = (TEXT_BYTES + super::SIZE_MAX as usize) as u64;
        let text = (0..text_bytes).map(|n| ALPHABET[below(mixed(text_key, n), 64) as usize]).collect();
        let (pick_key, shape_key) = (key(seed, Stream::Pick), key(seed, Stream::Shape));
        Traffic {
            flows,
            size: options.size,
            text,
            pick_key,
            shape_key,
            trigger_key: key(seed, Stream::Trigger),
        }
    }

    /// Number of the flow that packet `number` belongs to.
    #[inline]
    pub fn flow_of(&self, number: u64) -> u32 {
        below(mixed(self.pick_key, number), self.flows.len() as u64) as u32
    }

    /// Length of packet `number` in bytes.
    pub fn bytes_of(&self, number: u64) -> usize {
        let head = self.head(number);
        self.payload_bytes(&head, number) + head.bytes()
    }

    /// Appends packet `number` to `out`.
    pub fn write(&self, number: u64, out: &mut Vec<u8>) {
        let head = self.head(number);
        let text_at = mixed(self.shape_key, number) as usize % TEXT_BYTES;
        head.write(out, self.payload_bytes(&head, number), |payload| {
            let text = &self.text[text_at..];
            payload.copy_from_slice(&text[..payload.len()]);
            for (place, byte) in payload.iter_mut().take(NUMBER_CHARS).enumerate() {
                *byte = ALPHABET[(number >> (6 * place)) as usize & 63];
            }
        });
    }

    /// Appends the trigger packet with `payload` to `out`: UDP over IPv4, untagged, to port 60000.
    pub fn write_trigger(&self, payload: &[u8], out: &mut Vec<u8>) {
        let draw = |n| mixed(self.trigger_key, n);
        let (source, destination) = two_hosts(draw(0), draw(1));
        let head = Head {
            source: End { host: source, port: port(draw(2)) },
            destination: End { host: destination, port: super::TRIGGER_PORT },
            transport: Transport::Udp,
            ipv6: false,
            vlan: 0,
            id: draw(3) as u32,
        };
        head.write(out, payload.len(), |room| room.copy_from_slice(payload));
    }

    fn head(&self, number: u64) -> Head {
        let pick = mixed(self.pick_key, number);
        let flow = &self.flows[below(pick, self.flows.len() as u64) as usize];
        let [source, destination] = if pick & 1 == 0 { flow.ends } else { [flow.ends[1], flow.ends[0]] };
        let Flow { transport, ipv6, vlan, .. } = *flow;
        Head { source, destination, transport, ipv6, vlan, id: number as u32 }
    }

    fn payload_bytes(&self, head: &Head, number: u64) -> usize {
        let frame_bytes = match self.size {
            Size::Fixed(bytes) => bytes,
            Size::Imix => match below(mixed(self.shape_key, number), 12) {
                0..=6 => 64,
                7..=10 => 594,
                _ => 1518,
            },
        };
        (frame_bytes as usize).saturating_sub(head.bytes())
    }
}

fn flow(flows_key: u64, n: u64, tagged: bool, ipv6: bool) -> Flow {
    let draw = |what: u64| mixed(flows_key, n * 8 + what);
    let (a, b) = two_hosts(draw(0), draw(1));
    Flow {
        ends: [End { host: a, port: port(draw(2)) }, End { host: b, port: port(draw(3)) }],
        transport: if draw(4) & 1 == 0 { Transport::Udp } else { Transport::Tcp },
        ipv6,
        vlan: if tagged { 1 + below(draw(5), 4094) as u16 } else { 0 },
    }
}

/// Two hosts that are not the same.
fn two_hosts(draw_a: u64, draw_b: u64) -> (u16, u16) {
    let (a, b) = (host(draw_a), host(draw_b));
    (a, if a == b { a % 65_534 + 1 } else { b })
}

/// Marks the given share of `count` flows, rounded to whole flows, chosen by a shuffle.
fn marked(count: u32, share_ppm: u32, shuffle_key: u64) -> Vec<bool> {
    let marks = (u64::from(count) * u64::from(share_ppm) + u64::from(PPM) / 2) / u64::from(PPM);
    let mut flags: Vec<bool> = (0..u64::from(count)).map(|n| n < marks).collect();
    for last in (1..flags.len()).rev() {
        let other = below(mixed(shuffle_key, last as u64), last as u64 + 1) as usize;
        flags.swap(last, other);
    }
    flags
}
