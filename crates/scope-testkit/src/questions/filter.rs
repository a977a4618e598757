//! Filters in words, drawn by chance: what keys decide, what only bytes decide, and both together.

use crate::traffic::Random;
use crate::traffic::random::PORTS;

/// A filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Text {
    /// In the language of tcpdump; empty: everything.
    pub text: String,
}

/// Draws one. There are some hundreds.
pub fn draw(random: &mut Random) -> Text {
    match random.below(10) {
        0 => Text { text: String::new() },
        1..=3 => Text { text: key(random) },
        4 | 5 => Text { text: bytes(random) },
        6 => Text { text: format!("not ({})", key(random)) },
        7 => Text { text: format!("{} and {}", key(random), bytes(random)) },
        8 => Text { text: format!("{} or {}", key(random), key(random)) },
        _ => Text { text: format!("{} and not {}", bytes(random), key(random)) },
    }
}

/// What the key of a packet decides.
fn key(random: &mut Random) -> String {
    let host = 1 + random.below(6);
    let port = random.pick(&PORTS);
    match random.below(9) {
        0 => format!("host 10.0.0.{host}"),
        1 => format!("src host 10.0.0.{host}"),
        2 => format!("host fd00::{host}"),
        3 => format!("port {port}"),
        4 => format!("udp dst port {port}"),
        5 => format!("tcp port {port}"),
        6 => format!("(src host 10.0.0.{host} and port {port})"),
        7 => "host 10.77.0.1".to_string(), // nobody
        _ => format!("(ip6 and port {port})"),
    }
}

/// What it doesn't.
fn bytes(random: &mut Random) -> String {
    let texts = [
        "tcp[13] & 8 != 0",
        "tcp[tcpflags] & tcp-syn != 0",
        "greater 200",
        "less 100",
        "udp[4:2] > 150",
        "ip[8] > 10",
        "icmp",
        "icmp6",
        "arp",
        "not ip",
        "ip6",
        "net 10.0.0.0/30",
        "portrange 1000-1001",
        "vlan",
        "vlan 2",
        "ip proto 17",
        "(tcp or icmp)",
        "ip[6:2] & 0x1fff != 0",
    ];
    random.pick(&texts).to_string()
}
