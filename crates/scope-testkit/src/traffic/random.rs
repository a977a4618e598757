//! Random conversations from a seed: a handful of hosts that talk over everything a filter can distinguish.

use super::frame::{self, Tag};
use super::{Capture, ETHERNET, Interface, Record};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// A small generator of numbers (splitmix64): the same seed gives the same numbers on every machine.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// A generator for `seed`.
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// The next 64 bits.
    pub fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`, which is at least 1.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.word()) * u128::from(bound)) >> 64) as u64
    }

    /// True in `percent` of all cases.
    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// One of `values`, which are not empty.
    pub fn pick<T: Copy>(&mut self, values: &[T]) -> T {
        values[self.below(values.len() as u64) as usize]
    }

    /// `len` random bytes.
    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.word() as u8).collect()
    }
}

/// Where generated captures begin: 2026-11-20T20:31:00.123456789Z.
pub const START_NS: i64 = 1_795_206_660_123_456_789;

/// Ports that generated conversations use; port 60000 is left to trigger packets.
pub const PORTS: [u16; 6] = [53, 80, 443, 1000, 1001, 1002];

/// What conversations to make. Shares are in percent.
#[derive(Clone, Debug)]
pub struct Conversations {
    /// Seed.
    pub seed: u64,
    /// Packets.
    pub packets: usize,
    /// Interfaces that packets come by, at random.
    pub interfaces: Vec<Interface>,
    /// Time of the first packet, ns since the epoch.
    pub start_ns: i64,
    /// Mean gap between two packets, ns; times rise strictly unless there are ties.
    pub gap_ns: i64,
    /// Hosts: 10.0.0.1 and fd00::1 upwards.
    pub hosts: u8,
    /// Share of IPv6.
    pub ipv6: u64,
    /// Share of Ethernet frames with one tag; a third as many have two.
    pub vlan: u64,
    /// Share of packets that are neither plain TCP nor UDP: ping, ARP, fragments, extension headers, no IP at
    /// all.
    pub oddities: u64,
    /// Share of packets with the time of the one before.
    pub ties: u64,
    /// Share of packets that are captured only in part.
    pub snapped: u64,
    /// Largest payload, bytes.
    pub payload_max: usize,
}

impl Default for Conversations {
    fn default() -> Conversations {
        Conversations {
            seed: 1,
            packets: 2000,
            interfaces: vec![Interface::new("left", ETHERNET)],
            start_ns: START_NS,
            gap_ns: 5_000_000,
            hosts: 6,
            ipv6: 25,
            vlan: 0,
            oddities: 12,
            ties: 0,
            snapped: 3,
            payload_max: 300,
        }
    }
}

impl Conversations {
    /// The packets, in order of time.
    pub fn capture(&self) -> Capture {
        let mut random = Random::new(self.seed);
        let mut capture =
            Capture { interfaces: self.interfaces.clone(), packets: Vec::with_capacity(self.packets) };
        let mut time_ns = self.start_ns;
        for number in 0..self.packets {
            if number > 0 && !random.chance(self.ties) {
                time_ns += 1 + random.below(2 * self.gap_ns.max(1) as u64) as i64;
            }
            let interface = random.below(self.interfaces.len() as u64) as usize;
            let data = self.frame(&mut random, self.interfaces[interface].link_type, number);
            let mut record = Record::new(time_ns, data).on(interface).flagged(random.below(3) as u32);
            if random.chance(self.snapped) {
                let len = record.data.len() as u64;
                record = record.snapped(random.below(len + 1) as usize);
            }
            capture.packets.push(record);
        }
        capture
    }

    fn tags(&self, random: &mut Random) -> Vec<Tag> {
        if random.chance(self.vlan) {
            vec![Tag::q(random.below(4) as u16 + 1)]
        } else if random.chance(self.vlan / 3) {
            vec![Tag::ad(random.below(4) as u16 + 1), Tag::q(9)]
        } else {
            Vec::new()
        }
    }

    fn frame(&self, random: &mut Random, link_type: u16, number: usize) -> Vec<u8> {
        let v6 = random.chance(self.ipv6);
        let a = random.below(u64::from(self.hosts)) as u8 + 1;
        let b = (a + random.below(u64::from(self.hosts.max(2)) - 1) as u8) % self.hosts.max(2) + 1;
        let source = SocketAddr::new(host(a, v6), random.pick(&PORTS));
        let destination = SocketAddr::new(host(b, v6), random.pick(&PORTS));
        let payload_len = random.below(self.payload_max as u64 + 1) as usize;
        let payload = random.bytes(payload_len);
        let tags = self.tags(random);
        if !random.chance(self.oddities) {
            let ip = match random.below(2) {
                0 => frame::udp(source, destination, &payload),
                _ => frame::tcp(source, destination, number as u32, 24, &payload),
            };
            return frame::on_link(link_type, &tags, &ip);
        }
        oddity(random, link_type, &tags, source, destination, &payload)
    }
}

/// Address of host number `number`.
pub fn host(number: u8, v6: bool) -> IpAddr {
    if v6 {
        Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, u16::from(number)).into()
    } else {
        Ipv4Addr::new(10, 0, 0, number).into()
    }
}

fn oddity(
    random: &mut Random,
    link_type: u16,
    tags: &[Tag],
    from: SocketAddr,
    to: SocketAddr,
    payload: &[u8],
) -> Vec<u8> {
    let kind = random.below(4);
    if kind == 0 && link_type == ETHERNET {
        return frame::ethernet(tags, frame::EXPERIMENT, payload);
    }
    match (from.ip(), to.ip()) {
        (IpAddr::V4(a), IpAddr::V4(b)) => match kind {
            1 if link_type == ETHERNET => frame::ethernet(tags, frame::ARP, &frame::arp(a, b)),
            2 => {
                let whole = frame::udp(from, to, &[payload, &[0; 40]].concat());
                let later = random.chance(50);
                let part = if later { &whole[20 + 16..] } else { &whole[20..20 + 16] };
                let offset = if later { 16 } else { 0 };
                frame::on_link(
                    link_type,
                    tags,
                    &frame::ipv4_fragment(a, b, frame::UDP, 77, offset, !later, part),
                )
            }
            _ => frame::on_link(link_type, tags, &frame::ping(from.ip(), to.ip(), 3, payload)),
        },
        (IpAddr::V6(a), IpAddr::V6(b)) => {
            let upper = frame::udp(from, to, payload)[40..].to_vec();
            let ip = match kind {
                1 => frame::ipv6(a, b, 0, &frame::ipv6_extension(frame::UDP, &upper)),
                2 => {
                    let offset = if random.chance(50) { 64 } else { 0 };
                    frame::ipv6(a, b, 44, &frame::ipv6_fragment(frame::UDP, 5, offset, true, &upper))
                }
                3 => frame::ipv6(a, b, 60, &frame::ipv6_extension(frame::UDP, &upper)),
                _ => frame::ping(from.ip(), to.ip(), 4, payload),
            };
            frame::on_link(link_type, tags, &ip)
        }
        _ => unreachable!("both ends are of one family"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_packets() {
        let make =
            |seed| Conversations { seed, packets: 200, vlan: 30, ..Conversations::default() }.capture();
        assert_eq!(make(4), make(4));
        assert_ne!(make(4), make(5));
    }

    #[test]
    fn times_rise_strictly_unless_ties_are_asked_for() {
        let strict = Conversations::default().capture();
        assert!(strict.packets.windows(2).all(|w| w[0].time_ns < w[1].time_ns));
        let tied = Conversations { ties: 40, ..Conversations::default() }.capture();
        assert!(tied.packets.windows(2).any(|w| w[0].time_ns == w[1].time_ns));
        assert!(tied.packets.windows(2).all(|w| w[0].time_ns <= w[1].time_ns));
    }

    #[test]
    fn no_host_talks_to_itself() {
        let plain = Conversations { oddities: 0, ipv6: 0, snapped: 0, ..Conversations::default() };
        for packet in plain.capture().packets {
            assert_ne!(packet.data[26..30], packet.data[30..34]);
        }
    }

    #[test]
    fn every_number_below_the_bound_comes_up() {
        let mut random = Random::new(9);
        let mut seen = [false; 7];
        for _ in 0..500 {
            seen[random.below(7) as usize] = true;
        }
        assert_eq!(seen, [true; 7]);
    }
}
