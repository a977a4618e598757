//! Counts and sequences, read by the letter: for each packet that matches, all earlier ones of its key are looked
//! at.
//!
//! ```text
//! count(EXPR by KEY) > N in T     fires with the packet at t that makes it true: matches of its key in (t - T, t]
//!                                 were N at most before it, and are more with it
//! A then B within T by KEY        fires at t with a match of the last step, where there are matches of its key of each
//!                                 step before it, at t1 < t2 < ... < t, t - t1 <= T, t1 not before the last fire
//! ```

use super::trace::{MS, Of, Packet};

/// What packets are counted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    Everything,
    Host,
    HostAndPort,
    Flow,
}

impl Key {
    pub const ALL: [Key; 4] = [Key::Everything, Key::Host, Key::HostAndPort, Key::Flow];

    fn text(self) -> &'static str {
        match self {
            Key::Everything => "",
            Key::Host => " by $srcIP",
            Key::HostAndPort => " by $srcIP $dstPort",
            Key::Flow => " by $flow",
        }
    }

    fn same(self, one: &Packet, other: &Packet) -> bool {
        let host = one.host == other.host;
        // Kinds have a port each, and all go to one host.
        match self {
            Key::Everything => true,
            Key::Host => host,
            Key::HostAndPort => host && one.kind == other.kind,
            Key::Flow => host && one.kind == other.kind && one.from_port == other.from_port,
        }
    }
}

/// A condition on several packets.
#[derive(Clone, Debug)]
pub enum Pattern {
    Count { of: Of, key: Key, over: usize, span_ms: i64 },
    Sequence { steps: Vec<Of>, key: Key, within_ms: i64 },
}

impl Pattern {
    pub fn text(&self) -> String {
        match self {
            Pattern::Count { of, key, over, span_ms } => {
                format!("count({}{}) > {over} in {span_ms}ms", of.filter(), key.text())
            }
            Pattern::Sequence { steps, key, within_ms } => {
                let steps: Vec<&str> = steps.iter().map(|of| of.filter()).collect();
                format!("{} within {within_ms}ms{}", steps.join(" then "), key.text())
            }
        }
    }

    /// The times at which it fires, ns; packets are in order of time.
    pub fn fires(&self, packets: &[Packet]) -> Vec<i64> {
        match self {
            Pattern::Count { of, key, over, span_ms } => {
                let matches: Vec<&Packet> = packets.iter().filter(|packet| of.has(packet.kind)).collect();
                let fires = matches.iter().enumerate().filter(|(at, packet)| {
                    let is_young = |other: &&&Packet| other.time_ns > packet.time_ns - span_ms * MS;
                    let young = matches[..*at].iter().rev().take_while(is_young);
                    let before = young.filter(|other| key.same(packet, other)).count();
                    before <= *over && before + 1 > *over
                });
                fires.map(|(_, packet)| packet.time_ns).collect()
            }
            Pattern::Sequence { steps, key, within_ms } => sequence(packets, steps, *key, within_ms * MS),
        }
    }
}

fn sequence(packets: &[Packet], steps: &[Of], key: Key, within_ns: i64) -> Vec<i64> {
    let mut fires: Vec<&Packet> = Vec::new();
    let (last, before) = steps.split_last().expect("a sequence has steps");
    for packet in packets.iter().filter(|packet| last.has(packet.kind)) {
        let fired_ns = fires.iter().rev().find(|fired| key.same(packet, fired)).map(|fired| fired.time_ns);
        let from_ns = fired_ns.unwrap_or(i64::MIN).max(packet.time_ns - within_ns);
        // Of each step the earliest match behind that of the step before leaves the most room.
        let mut behind_ns = from_ns - 1;
        let has_all = before.iter().all(|step| {
            let from = packets.partition_point(|other| other.time_ns <= behind_ns);
            let found = packets[from..]
                .iter()
                .take_while(|other| other.time_ns < packet.time_ns)
                .find(|other| step.has(other.kind) && key.same(packet, other));
            behind_ns = found.map_or(behind_ns, |found| found.time_ns);
            found.is_some()
        });
        if has_all {
            fires.push(packet);
        }
    }
    fires.iter().map(|packet| packet.time_ns).collect()
}

#[cfg(test)]
mod tests {
    use super::super::trace::Kind;
    use super::*;

    fn packets(of: &[(i64, Kind, u8)]) -> Vec<Packet> {
        of.iter().map(|(at, kind, host)| Packet::new(at * MS, *kind, *host, 0, 1).0).collect()
    }

    fn check(pattern: &Pattern, of: &[(i64, Kind, u8)], text: &str, expected: &[i64]) {
        assert_eq!(pattern.text(), text);
        let fires: Vec<i64> = pattern.fires(&packets(of)).iter().map(|at| at / MS).collect();
        assert_eq!(fires, expected, "{text}");
    }

    #[test]
    fn a_count_fires_with_the_packet_that_makes_it_true() {
        use Kind::{Dns, Syn};
        let count = |key| Pattern::Count { of: Of::Only(Syn), key, over: 2, span_ms: 10 };
        let of = [
            (0, Syn, 1),
            (3, Syn, 2),
            (4, Dns, 1),
            (5, Syn, 1),
            (9, Syn, 1),
            (9, Syn, 1),
            (12, Syn, 1),
            (19, Syn, 1),
            (20, Syn, 2),
        ];
        // At 19 what is of 9 counts no more: the third of its ten milliseconds would be a new one.
        check(&count(Key::Host), &of, "count(tcp[tcpflags] == tcp-syn by $srcIP) > 2 in 10ms", &[9]);
        check(&count(Key::Everything), &of, "count(tcp[tcpflags] == tcp-syn) > 2 in 10ms", &[5, 20]);
    }

    #[test]
    fn a_sequence_fires_where_its_steps_come_in_order_in_time_and_of_one_key() {
        use Kind::{Knock, Second, Web};
        let pattern = Pattern::Sequence {
            steps: vec![Of::Only(Knock), Of::Only(Second), Of::Only(Web)],
            key: Key::Host,
            within_ms: 20,
        };
        let text = "udp dst port 7000 then udp dst port 7001 then tcp dst port 80 within 20ms by $srcIP";
        check(&pattern, &[(0, Knock, 1), (5, Second, 1), (20, Web, 1), (20, Web, 1)], text, &[20]);
        check(&pattern, &[(0, Knock, 1), (5, Second, 1), (21, Web, 1)], text, &[]);
        check(&pattern, &[(0, Knock, 1), (5, Second, 2), (6, Web, 1)], text, &[]);
        check(&pattern, &[(5, Knock, 1), (5, Second, 1), (6, Web, 1)], text, &[]);
        check(&pattern, &[(0, Second, 1), (1, Knock, 1), (6, Web, 1)], text, &[]);
        let again = [(0, Knock, 1), (1, Second, 1), (2, Web, 1), (3, Second, 1), (4, Web, 1)];
        check(&pattern, &again, text, &[2]);
        let twice = Pattern::Sequence {
            steps: vec![Of::Only(Knock), Of::Only(Knock)],
            key: Key::Everything,
            within_ms: 5,
        };
        let text = "udp dst port 7000 then udp dst port 7000 within 5ms";
        check(&twice, &[(0, Knock, 1), (1, Knock, 2), (2, Knock, 1), (9, Knock, 1)], text, &[1, 2]);
    }
}
