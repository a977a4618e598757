//! Sets of hosts and ports, as read from files, that rules ask: exact, however many lines they have.
//!
//! ```text
//! 192.0.2.7            # an address
//! 10.0.0.0/8           # a prefix
//! 10.1.0.5-10.1.0.9    # a range, both ends included
//! 2001:db8::/32
//! ```
//! or `53` and `8000-8099` of a set of ports. Single addresses are looked up by hash, all else by halving.

use scope_packet::{Headers, KeyEntry, Kind};
use scope_ring::Steering;
use std::collections::HashSet;
use std::hash::{BuildHasherDefault, Hasher};
use std::net::IpAddr;

/// Faults of a file that are told.
pub const FAULTS_MAX: usize = 10;
/// Bytes of a file at most.
pub const FILE_BYTES_MAX: u64 = 1 << 30;

/// What a set has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetKind {
    /// Addresses.
    Hosts,
    /// Ports.
    Ports,
}

/// A line that is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadLine {
    /// Its number, from 1.
    pub line: usize,
    /// What stands there.
    pub text: String,
}

/// Addresses, prefixes and ranges.
#[derive(Clone, Debug, Default)]
pub struct HostSet {
    v4: HashSet<u32, Mixed>,
    v6: HashSet<u128, Mixed>,
    /// First and last of each, rising, apart from each other.
    v4_ranges: Vec<(u32, u32)>,
    v6_ranges: Vec<(u128, u128)>,
}

/// Ports: a bit for each.
#[derive(Clone)]
pub struct PortSet(Box<[u64; 1024]>);

/// A set.
#[derive(Clone, Debug)]
pub enum Set {
    /// Of addresses.
    Hosts(HostSet),
    /// Of ports.
    Ports(PortSet),
}

/// Spreads the bits of addresses: they are not chosen by an adversary who could see the answers' times.
#[derive(Clone, Copy, Debug, Default)]
pub struct Mix(u64);

type Mixed = BuildHasherDefault<Mix>;

impl Hasher for Mix {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.0 = Steering::spread(self.0 ^ u64::from(*byte)));
    }

    fn write_u32(&mut self, number: u32) {
        self.0 = Steering::spread(self.0 ^ u64::from(number));
    }

    fn write_u128(&mut self, number: u128) {
        self.0 = Steering::spread(Steering::spread(self.0 ^ number as u64) ^ (number >> 64) as u64);
    }
}

impl std::fmt::Debug for PortSet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ports", self.0.iter().map(|word| word.count_ones()).sum::<u32>())
    }
}

impl Set {
    /// Reads the text of a file.
    ///
    /// # Errors
    /// The first lines that are none, at most [`FAULTS_MAX`].
    pub fn read(kind: SetKind, text: &str) -> Result<Set, Vec<BadLine>> {
        let mut bad = Vec::new();
        let mut hosts = HostSet::default();
        let mut ports = PortSet(Box::new([0; 1024]));
        for (number, line) in (1..).zip(text.lines()) {
            let entry = line.split('#').next().unwrap_or_default().trim();
            let is_good = entry.is_empty()
                || match kind {
                    SetKind::Hosts => hosts.add(entry).is_some(),
                    SetKind::Ports => ports.add(entry).is_some(),
                };
            if !is_good {
                bad.push(BadLine { line: number, text: entry.to_string() });
                if bad.len() >= FAULTS_MAX {
                    break;
                }
            }
        }
        match (bad.is_empty(), kind) {
            (false, _) => Err(bad),
            (true, SetKind::Hosts) => {
                join(&mut hosts.v4_ranges, |last, next| {
                    last.checked_add(1).is_none_or(|behind| next <= behind)
                });
                join(&mut hosts.v6_ranges, |last, next| {
                    last.checked_add(1).is_none_or(|behind| next <= behind)
                });
                Ok(Set::Hosts(hosts))
            }
            (true, SetKind::Ports) => Ok(Set::Ports(ports)),
        }
    }

    /// What it has.
    pub fn kind(&self) -> SetKind {
        match self {
            Set::Hosts(_) => SetKind::Hosts,
            Set::Ports(_) => SetKind::Ports,
        }
    }
}

/// Sorts ranges, and makes one of those that touch.
fn join<T: Copy + Ord>(ranges: &mut Vec<(T, T)>, touch: impl Fn(T, T) -> bool) {
    ranges.sort_unstable();
    let mut joined: Vec<(T, T)> = Vec::with_capacity(ranges.len());
    for &(first, last) in ranges.iter() {
        match joined.last_mut() {
            Some(before) if touch(before.1, first) => before.1 = before.1.max(last),
            _ => joined.push((first, last)),
        }
    }
    *ranges = joined;
}

fn is_within<T: Copy + Ord>(ranges: &[(T, T)], value: T) -> bool {
    let at = ranges.partition_point(|(first, _)| *first <= value);
    at > 0 && value <= ranges[at - 1].1
}

impl HostSet {
    fn add(&mut self, entry: &str) -> Option<()> {
        if let Some((first, last)) = entry.split_once('-') {
            return match (first.trim().parse().ok()?, last.trim().parse().ok()?) {
                (IpAddr::V4(first), IpAddr::V4(last)) => {
                    add(&mut self.v4_ranges, first.to_bits(), last.to_bits())
                }
                (IpAddr::V6(first), IpAddr::V6(last)) => {
                    add(&mut self.v6_ranges, first.to_bits(), last.to_bits())
                }
                _ => None,
            };
        }
        let (address, bits) = match entry.split_once('/') {
            Some((address, bits)) => {
                let is_number = !bits.is_empty() && bits.bytes().all(|byte| byte.is_ascii_digit());
                (address, Some(bits.parse::<u32>().ok().filter(|_| is_number)?))
            }
            None => (entry, None),
        };
        match (address.parse().ok()?, bits) {
            (IpAddr::V4(address), None | Some(32)) => drop(self.v4.insert(address.to_bits())),
            (IpAddr::V6(address), None | Some(128)) => drop(self.v6.insert(address.to_bits())),
            (IpAddr::V4(address), Some(bits @ 0..32)) => {
                let rest = u32::MAX >> bits;
                return add(&mut self.v4_ranges, address.to_bits() & !rest, address.to_bits() | rest);
            }
            (IpAddr::V6(address), Some(bits @ 0..128)) => {
                let rest = u128::MAX >> bits;
                return add(&mut self.v6_ranges, address.to_bits() & !rest, address.to_bits() | rest);
            }
            _ => return None,
        }
        Some(())
    }

    /// Whether it has an address of IPv4, as a number.
    #[inline]
    pub fn has_v4(&self, address: u32) -> bool {
        self.v4.contains(&address) || is_within(&self.v4_ranges, address)
    }

    /// Whether it has an address of IPv6, as a number.
    #[inline]
    pub fn has_v6(&self, address: u128) -> bool {
        self.v6.contains(&address) || is_within(&self.v6_ranges, address)
    }

    /// Whether it has the source and the destination of a packet, whose key entry, headers and bytes these are.
    #[inline]
    pub fn has_ends(&self, key: &KeyEntry, headers: impl FnOnce() -> Headers, data: &[u8]) -> (bool, bool) {
        match key.kind() {
            Kind::Ipv4 => {
                let [source, destination] = [key.source, key.destination].map(u32::from_be_bytes);
                (self.has_v4(source), self.has_v4(destination))
            }
            Kind::Ipv6 => {
                let number = |bytes: &[u8]| bytes.try_into().ok().map(u128::from_be_bytes);
                let headers = headers();
                let ends = headers.address_bytes(data);
                let has = |bytes: &[u8]| number(bytes).is_some_and(|address| self.has_v6(address));
                ends.map_or((false, false), |(source, destination)| (has(source), has(destination)))
            }
            Kind::Arp | Kind::Other => (false, false),
        }
    }
}

/// One range more; `None`: it ends before it begins.
fn add<T: Ord>(ranges: &mut Vec<(T, T)>, first: T, last: T) -> Option<()> {
    (first <= last).then(|| ranges.push((first, last)))
}

impl PortSet {
    fn add(&mut self, entry: &str) -> Option<()> {
        let port = |text: &str| {
            let text = text.trim();
            text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse::<u16>().ok())?
        };
        let (first, last) = match entry.split_once('-') {
            Some((first, last)) => (port(first)?, port(last)?),
            None => (port(entry)?, port(entry)?),
        };
        (first <= last)
            .then(|| (first..=last).for_each(|port| self.0[usize::from(port) / 64] |= 1 << (port % 64)))
    }

    /// Whether it has a port.
    #[inline]
    pub fn has(&self, port: u16) -> bool {
        self.0[usize::from(port) / 64] >> (port % 64) & 1 == 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::net::Ipv4Addr;

    fn hosts(text: &str) -> HostSet {
        match Set::read(SetKind::Hosts, text) {
            Ok(Set::Hosts(hosts)) => hosts,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_file_of_hosts_has_what_its_lines_say() {
        let set = hosts(
            "192.0.2.7 # one\n\n10.0.0.0/8\n172.16.0.5-172.16.0.9\n2001:db8::/32\nfe80::1\n0.0.0.0/32\n",
        );
        let check = |address: &str, expected: bool| {
            let has = match address.parse().unwrap() {
                IpAddr::V4(address) => set.has_v4(address.to_bits()),
                IpAddr::V6(address) => set.has_v6(address.to_bits()),
            };
            assert_eq!(has, expected, "{address}");
        };
        for address in [
            "192.0.2.7",
            "10.255.255.255",
            "172.16.0.5",
            "172.16.0.9",
            "2001:db8:ffff::1",
            "fe80::1",
            "0.0.0.0",
        ] {
            check(address, true);
        }
        for address in
            ["192.0.2.8", "11.0.0.0", "172.16.0.4", "172.16.0.10", "2001:db9::", "fe80::2", "0.0.0.1", "::"]
        {
            check(address, false);
        }
        assert!(hosts("0.0.0.0/0").has_v4(u32::MAX) && !hosts("").has_v4(0));
    }

    #[test]
    fn lines_that_are_none_are_told_with_their_numbers() {
        let check = |kind: SetKind, text: &str, lines: &[usize]| {
            let bad = Set::read(kind, text).map(|_| ()).unwrap_err();
            assert_eq!(bad.iter().map(|bad| bad.line).collect::<Vec<_>>(), lines, "{text}");
        };
        check(
            SetKind::Hosts,
            "10.0.0.1\nexample.org\n10.0.0.0/33\n10.0.0.9-10.0.0.1\n10.0.0.1-::1\n10.0.0.1 10.0.0.2\n10.0.0.0/+8",
            &[2, 3, 4, 5, 6, 7],
        );
        check(SetKind::Ports, "53\n65536\n9-1\n-1\nhttp\n1-2-3\n", &[2, 3, 4, 5, 6]);
        check(SetKind::Ports, &"x\n".repeat(50), &(1..=FAULTS_MAX).collect::<Vec<_>>());
    }

    #[test]
    fn a_file_of_ports_has_what_its_lines_say() {
        let Ok(Set::Ports(set)) = Set::read(SetKind::Ports, "53\n8000-8099\n0\n65535") else { panic!() };
        let has: Vec<u16> = [0, 1, 52, 53, 54, 7999, 8000, 8099, 8100, 65535]
            .into_iter()
            .filter(|port| set.has(*port))
            .collect();
        assert_eq!(has, [0, 53, 8000, 8099, 65535]);
    }

    proptest! {
        #[test]
        fn ranges_are_as_a_naive_list_of_them(
            ranges in proptest::collection::vec((0u32..300, 0u32..40), 0..20), asked in 0u32..400
        ) {
            let text: String = ranges.iter().map(|(first, len)| {
                let [first, last] = [*first, first + len].map(Ipv4Addr::from_bits);
                format!("{first}-{last}\n")
            }).collect();
            let naive = ranges.iter().any(|(first, len)| (*first..=first + len).contains(&asked));
            prop_assert_eq!(hosts(&text).has_v4(asked), naive);
        }
    }
}
