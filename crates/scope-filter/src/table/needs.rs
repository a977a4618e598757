//! What every packet that a filter matches has in its key, from the filter's text.

use std::net::IpAddr;

use scope_packet::key::fold;

use crate::pieces::{Operator, Pieces, Tree};
use crate::template::fields::{EXTENSIONS, LATER_FRAGMENT};
use crate::words::{Kind, tokens};

/// Most alternatives of a text; beyond, nothing is said.
const ALTERNATIVES_MAX: usize = 16;
/// A packet has two hosts and two ports: of more, which no packet has, two are enough.
const EACH_MAX: usize = 2;
/// Words that may stand in front of a host or a port without changing which part of the key it speaks of.
const HARMLESS: [&str; 11] = ["src", "dst", "or", "and", "ip", "ip6", "arp", "rarp", "tcp", "udp", "sctp"];

/// Hosts (folded, each among source and destination) and ports (likewise). Sorted, each once, two of each at
/// most.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Need {
    pub hosts: Vec<u32>,
    pub ports: Vec<u16>,
    /// A fragment that is not the first: its key has no ports.
    pub portless: bool,
}

impl Need {
    /// What both need.
    fn and(&self, other: &Need) -> Need {
        let (hosts, ports) = (together(&self.hosts, &other.hosts), together(&self.ports, &other.ports));
        Need { hosts, ports, portless: self.portless || other.portless }
    }
}

fn together<T: Copy + Ord>(a: &[T], b: &[T]) -> Vec<T> {
    let mut all = [a, b].concat();
    all.sort_unstable();
    all.dedup();
    all.truncate(EACH_MAX);
    all
}

/// Alternatives of which every packet that the filter `text` matches, and whose key isn't partial, fulfils
/// one; `None` where nothing is known.
pub(super) fn needs(text: &str) -> Option<Vec<Need>> {
    Some(of_tree(Pieces::of(text)?.tree())).filter(|needs| !needs.contains(&Need::default()))
}

fn of_tree(tree: &Tree) -> Vec<Need> {
    match tree {
        Tree::Piece(text) if EXTENSIONS.split(" or ").any(|known| known.trim() == text) => Vec::new(), // their keys are partial
        Tree::Piece(text) => vec![of_piece(text)],
        Tree::Not(_) => vec![Need::default()],
        Tree::Chain(first, rest) => rest.iter().fold(of_tree(first), |left, (operator, next)| {
            let right = of_tree(next);
            let mut all: Vec<Need> = match operator {
                Operator::Or => [left, right].concat(),
                Operator::And => left.iter().flat_map(|a| right.iter().map(|b| a.and(b))).collect(),
            };
            all.sort_unstable_by(|a, b| {
                (&a.hosts, &a.ports, a.portless).cmp(&(&b.hosts, &b.ports, b.portless))
            });
            all.dedup();
            if all.len() > ALTERNATIVES_MAX { vec![Need::default()] } else { all }
        }),
    }
}

/// A piece such as `src host 10.0.0.1` or `tcp port 80`; anything else needs nothing that is known here.
fn of_piece(text: &str) -> Need {
    if text == LATER_FRAGMENT {
        return Need { portless: true, ..Need::default() };
    }
    let tokens = tokens(text);
    let [before @ .., what, value] = &tokens[..] else { return Need::default() };
    let harmless = before.iter().all(|token| token.kind == Kind::Word && HARMLESS.contains(&token.text));
    match what.text {
        "host" if harmless => match value.text.parse::<IpAddr>() {
            Ok(IpAddr::V4(address)) => host(&address.octets()),
            Ok(IpAddr::V6(address)) => host(&address.octets()),
            Err(_) => Need::default(),
        },
        // libpcap reads a leading 0 as octal.
        "port" if harmless && !value.text.starts_with('0') => match value.text.parse() {
            Ok(port) => Need { ports: vec![port], ..Need::default() },
            Err(_) => Need::default(),
        },
        _ => Need::default(),
    }
}

fn host(octets: &[u8]) -> Need {
    Need { hosts: vec![u32::from_ne_bytes(fold(octets))], ..Need::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn needs_are_what_every_match_has() {
        let check = |text: &str, expected: Option<&[(&[&str], &[u16])]>| {
            let expected = expected.map(|needs| {
                let fold_all = |hosts: &[&str]| {
                    hosts
                        .iter()
                        .fold(Need::default(), |all, text| all.and(&of_piece(&format!("host {text}"))))
                };
                let need = |(hosts, ports): &(&[&str], &[u16])| Need {
                    ports: ports.to_vec(),
                    portless: ports == &[0],
                    ..fold_all(hosts)
                };
                needs
                    .iter()
                    .map(need)
                    .map(|need| Need {
                        ports: need.ports.into_iter().filter(|port| *port > 0).collect(),
                        ..need
                    })
                    .collect::<Vec<_>>()
            });
            assert_eq!(needs(text), expected, "{text}");
        };
        check("host 10.0.0.1", Some(&[(&["10.0.0.1"], &[])]));
        check("host 10.0.0.1 and host 10.0.0.2", Some(&[(&["10.0.0.1", "10.0.0.2"], &[])]));
        check("tcp and src host fe80::1 and not port 53", Some(&[(&["fe80::1"], &[])]));
        check(
            "(udp and ((src host 10.0.0.1 and src port 7 and dst host 10.0.0.2 and dst port 9) or \
             (src host 10.0.0.2 and src port 9 and dst host 10.0.0.1 and dst port 7)))",
            Some(&[(&["10.0.0.1", "10.0.0.2"], &[7, 9])]),
        );
        let flow = "(host 10.0.0.1 and host 10.0.0.2 and ((udp and ((src host 10.0.0.1 and src port 7 and dst port 9) or \
             (src host 10.0.0.2 and src port 9 and dst port 7))) or ";
        // The second stands for a packet without ports.
        let both: [(&[&str], &[u16]); 2] =
            [(&["10.0.0.1", "10.0.0.2"], &[0]), (&["10.0.0.1", "10.0.0.2"], &[7, 9])];
        check(&format!("{flow}(ip proto 17 and {LATER_FRAGMENT})))"), Some(&both));
        check(&format!("{flow}(ip6 and ({EXTENSIONS}))))"), Some(&both[1..]));
        check("port 80", Some(&[(&[], &[80])]));
        for text in [
            "",
            "tcp",
            "not host 10.0.0.1",
            "host 10.0.0.1 or tcp",
            "vlan and host 10.0.0.1",
            "net 10.0.0.0/8",
            "port 010",
        ] {
            check(text, None);
        }
    }
}
