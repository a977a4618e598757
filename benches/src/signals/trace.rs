//! Generated traces: packets of five kinds in phases of their own rates, with silences, and what of them a signal or a
//! condition speaks of.

use scope_testkit::traffic::frame::{on_link, tcp, udp};
use scope_testkit::traffic::{Capture, ETHERNET, Random, Record};

/// A millisecond: a bin.
pub const MS: i64 = 1_000_000;
/// Traces begin in the second that begins here, ns.
const BEGIN: i64 = 1_700_000_000_000 * MS;
/// Hosts that send.
const HOSTS: u64 = 6;
/// Source ports of each: so many flows to each port.
const FLOWS: u64 = 3;
/// Longest silence whose end is sure of itself: a time that is further from the clock has to be confirmed.
const SILENCE_MS: u64 = 900;
/// Packets that come one behind the other after a longer one.
const CONFIRMING: i64 = 40;
/// How far, ns, packets are out of order, where they are.
const DISORDER: u64 = 5 * MS as u64;

/// What a packet is: no filter below matches two of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Dns,
    Syn,
    Knock,
    Second,
    Web,
}

/// Which packets are meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Of {
    All,
    Tcp,
    Only(Kind),
}

impl Kind {
    pub const ALL: [Kind; 5] = [Kind::Dns, Kind::Syn, Kind::Knock, Kind::Second, Kind::Web];

    /// Its filter.
    pub fn filter(self) -> &'static str {
        match self {
            Kind::Dns => "udp port 53",
            Kind::Syn => "tcp[tcpflags] == tcp-syn",
            Kind::Knock => "udp dst port 7000",
            Kind::Second => "udp dst port 7001",
            Kind::Web => "tcp dst port 80",
        }
    }

    fn port(self) -> u16 {
        match self {
            Kind::Dns => 53,
            Kind::Syn => 22,
            Kind::Knock => 7000,
            Kind::Second => 7001,
            Kind::Web => 80,
        }
    }
}

impl Of {
    /// All of them.
    pub fn every() -> impl Iterator<Item = Of> {
        [Of::All, Of::Tcp].into_iter().chain(Kind::ALL.map(Of::Only))
    }

    /// Its place among them.
    pub fn index(self) -> usize {
        match self {
            Of::All => 0,
            Of::Tcp => 1,
            Of::Only(kind) => 2 + kind as usize,
        }
    }

    /// Its filter.
    pub fn filter(self) -> &'static str {
        match self {
            Of::All => "",
            Of::Tcp => "tcp",
            Of::Only(kind) => kind.filter(),
        }
    }

    pub fn has(self, kind: Kind) -> bool {
        match self {
            Of::All => true,
            Of::Tcp => matches!(kind, Kind::Syn | Kind::Web),
            Of::Only(only) => only == kind,
        }
    }
}

/// A packet, as far as a reading needs it.
#[derive(Clone, Copy, Debug)]
pub struct Packet {
    pub time_ns: i64,
    pub kind: Kind,
    pub host: u8,
    pub from_port: u16,
    /// On the wire.
    pub bytes: u64,
}

impl Packet {
    /// One of these, with so many bytes of payload.
    pub fn new(time_ns: i64, kind: Kind, host: u8, flow: u16, payload: usize) -> (Packet, Record) {
        let from_port = 40_000 + flow;
        let (from, to) = (([10, 0, 0, host], from_port).into(), ([10, 1, 0, 1], kind.port()).into());
        let payload = vec![b'x'; payload];
        let ip = match kind {
            Kind::Syn => tcp(from, to, 1, 2, &[]),
            Kind::Web => tcp(from, to, 1, 16, &payload),
            Kind::Dns | Kind::Knock | Kind::Second => udp(from, to, &payload),
        };
        let data = on_link(ETHERNET, &[], &ip);
        let packet = Packet { time_ns, kind, host, from_port, bytes: data.len() as u64 };
        (packet, Record::new(time_ns, data))
    }

    /// Its bin.
    pub fn bin(&self) -> i64 {
        self.time_ns.div_euclid(MS)
    }
}

/// A trace.
#[derive(Debug)]
pub struct Trace {
    /// In order of time.
    pub packets: Vec<Packet>,
    /// As they stand in the file.
    pub capture: Capture,
}

impl Trace {
    /// How long it is, ns.
    pub fn span_ns(&self) -> i64 {
        let ends = self.packets.first().zip(self.packets.last());
        ends.map_or(0, |(first, last)| last.time_ns - first.time_ns)
    }

    /// The trace of a seed.
    pub fn new(random: &mut Random) -> Trace {
        let begin_ns = BEGIN + random.below(1000 * MS as u64) as i64;
        let end_ms = random.pick(&[200, 700, 1200, 2000, 3500, 6000]);
        // Long traces are thinner, so that all have a few thousand packets.
        let most = if end_ms > 2500 { 3 } else { 8 };
        let mut made = vec![Packet::new(begin_ns, Kind::Dns, 1, 0, 1)];
        let mut at_ms = 1;
        while at_ms < end_ms {
            if random.chance(12) {
                at_ms += 1 + random.below(SILENCE_MS) as i64;
                continue;
            }
            if random.chance(3) {
                at_ms += 1000 + random.below(2500) as i64;
                for _ in 0..CONFIRMING {
                    at_ms += 1;
                    made.push(Packet::new(begin_ns + at_ms * MS, Kind::Dns, 1, 0, 1));
                }
            }
            let rates = Kind::ALL.map(|_| random.pick(&[0, 0, 0, 1, 3, most]).min(most));
            let until_ms = (at_ms + 1 + random.below(250) as i64).min(end_ms);
            while at_ms < until_ms {
                for (kind, rate) in Kind::ALL.into_iter().zip(rates) {
                    for _ in 0..random.below(rate + 1) {
                        let time_ns = begin_ns + at_ms * MS + random.below(MS as u64) as i64;
                        // Some come at the very same time.
                        let time_ns = if random.chance(20) { time_ns / MS * MS } else { time_ns };
                        let payload = if kind == Kind::Web { random.below(400) } else { random.below(20) };
                        let host = 1 + random.below(HOSTS) as u8;
                        let flow = random.below(FLOWS) as u16;
                        made.push(Packet::new(time_ns, kind, host, flow, payload as usize));
                    }
                }
                at_ms += 1;
            }
        }
        let mut packets: Vec<Packet> = made.iter().map(|(packet, _)| *packet).collect();
        packets.sort_by_key(|packet| packet.time_ns);
        let disorder = if random.chance(25) { DISORDER } else { 0 };
        let mut records: Vec<(i64, Record)> = made
            .into_iter()
            .map(|(packet, record)| (packet.time_ns + random.below(disorder + 1) as i64, record))
            .collect();
        records.sort_by_key(|(place, _)| *place);
        let mut capture = Capture::ethernet("eth0");
        capture.packets = records.into_iter().map(|(_, record)| record).collect();
        Trace { packets, capture }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traces_are_those_of_their_seeds_and_of_a_few_thousand_packets() {
        for seed in 0..40 {
            let (one, other) = (Trace::new(&mut Random::new(seed)), Trace::new(&mut Random::new(seed)));
            assert_eq!(one.capture.packets, other.capture.packets);
            assert!(one.packets.is_sorted_by_key(|packet| packet.time_ns));
            assert!((1..40_000).contains(&one.packets.len()), "{}", one.packets.len());
            assert_eq!(one.packets.len(), one.capture.packets.len());
            let bytes: usize = one.capture.packets.iter().map(|record| record.data.len()).sum();
            assert_eq!(bytes as u64, one.packets.iter().map(|packet| packet.bytes).sum::<u64>());
        }
    }

    #[test]
    fn each_kind_is_matched_by_its_own_filter_alone() {
        for kind in Kind::ALL {
            let has: Vec<Kind> = Kind::ALL.into_iter().filter(|other| Of::Only(kind).has(*other)).collect();
            assert_eq!(has, [kind]);
            assert!(Of::All.has(kind));
        }
        assert!(Of::every().enumerate().all(|(index, of)| of.index() == index));
        assert!(Of::Tcp.has(Kind::Syn) && Of::Tcp.has(Kind::Web) && !Of::Tcp.has(Kind::Dns));
    }
}
