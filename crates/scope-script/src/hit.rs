//! What a script answered: a hit, with what it adds to the dump.

use crate::record::Key;
use std::fmt;
use std::net::IpAddr;

/// A packet, or a moment, for which a script said yes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hit {
    /// Index of the packet among those that were lent; `None`: it is of a moment ([`Hit::time_ns`]).
    pub packet: Option<usize>,
    /// The packet's capture time, or that of the tick, ns.
    pub time_ns: i64,
    /// Why, in the script's words; at most 1 KiB.
    pub text: Option<String>,
    /// Another window in front of it, ns.
    pub before_ns: Option<i64>,
    /// Another window behind it, ns.
    pub after_ns: Option<i64>,
    /// Hosts that its dump keeps.
    pub hosts: Vec<IpAddr>,
    /// Flows that its dump keeps.
    pub flows: Vec<Flow>,
}

impl Hit {
    /// What its dump keeps, as a filter; `None`: it names nothing.
    pub fn dump_filter(&self) -> Option<String> {
        let hosts = self.hosts.iter().map(|host| format!("host {host}"));
        let parts: Vec<String> = hosts.chain(self.flows.iter().map(Flow::filter)).collect();
        (!parts.is_empty()).then(|| parts.join(" or "))
    }
}

/// A flow, whichever way its packets go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Flow {
    /// IP protocol.
    pub protocol: u8,
    /// Address and port of one end; the port is 0 where the protocol has none.
    pub a: (IpAddr, u16),
    /// The same of the other end.
    pub b: (IpAddr, u16),
}

impl Flow {
    pub(crate) fn of(key: &Key) -> Flow {
        Flow {
            protocol: key.protocol,
            a: (key.address(&key.a), key.a_port),
            b: (key.address(&key.b), key.b_port),
        }
    }

    /// The filter that matches its packets, both ways.
    pub fn filter(&self) -> String {
        let Flow { protocol, a: (a, a_port), b: (b, b_port) } = self;
        let family = if a.is_ipv6() { "ip6" } else { "ip" };
        let name = match protocol {
            6 => "tcp",
            17 => "udp",
            132 => "sctp",
            _ => return format!("({family} proto {protocol} and host {a} and host {b})"),
        };
        if (a_port, b_port) == (&0, &0) {
            return format!("({family} proto {protocol} and host {a} and host {b})");
        }
        let way = |from: &IpAddr, from_port: &u16, to: &IpAddr, to_port: &u16| {
            format!("src host {from} and src port {from_port} and dst host {to} and dst port {to_port}")
        };
        format!("({name} and ({} or {}))", way(a, a_port, b, b_port), way(b, b_port, a, a_port))
    }
}

impl fmt::Display for Flow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (a, b) = (self.a.0, self.b.0);
        write!(f, "protocol {} between {a} port {} and {b} port {}", self.protocol, self.a.1, self.b.1)
    }
}
