//! Many filters asked at once: one look-up of a packet's key finds the few that can match, whose programs then decide.
//!
//! ```text
//! filter                                                needs (in either direction)      stands under
//! (tcp and ((src host A and src port p and ...) or ...  hosts A, B and ports p, q        hash of all four
//! host A and host B                                     hosts A, B                       hash of both
//! src host A and port 53                                host A, port 53                  hash of A
//! icmp                                                  nothing that a key tells         is always asked
//! ```
//! A packet is looked up under its four, its two, and each of its hosts, as far as filters stand there: so a thousand exact
//! filters cost about as much as one. Where the key doesn't tell all that a filter may see (`partial`), all are asked.
//! Different needs may have equal hashes: that costs a program's run, no more.

mod needs;

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use scope_packet::{KeyEntry, LinkType};

use crate::asked::{ASKED_MAX, Asked};
use crate::filter::{Filter, Predicate};
use needs::{Need, needs};

/// Filters for packets of one link type, each under a number of its owner's choice.
#[derive(Debug)]
pub struct FilterTable {
    link: LinkType,
    filters: HashMap<u64, Filter, BuildHasherDefault<Hashed>>,
    /// Filters by hash of what they need.
    places: HashMap<u64, Vec<(u64, Predicate)>, BuildHasherDefault<Hashed>>,
    /// Entries of `places` by the high bits of their hashes.
    crowds: Box<[u32]>,
    /// Which of `crowds` are not zero, a bit each: most packets end here, in the core's first cache.
    inhabited: Box<[u64; INHABITED_WORDS]>,
    /// How many entries of `places` there are of each kind: kinds without any are not looked up.
    counts: [usize; KINDS],
    /// Filters of which no key tells anything.
    always: Vec<(u64, Predicate)>,
}

/// What a filter needs, by how much that is.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Flow,
    Pair,
    Host,
}

const KINDS: usize = 3;
/// Bits of a hash that tell crowds apart: a thousand filters are in 1.5 % of them, and their bits take 8 KiB.
const CROWD_BITS: u32 = 16;
const INHABITED_WORDS: usize = 1 << (CROWD_BITS - 6);

impl FilterTable {
    /// A table for packets of link type `link`, without filters.
    pub fn new(link: LinkType) -> FilterTable {
        FilterTable {
            link,
            filters: HashMap::default(),
            places: HashMap::default(),
            crowds: vec![0; 1 << CROWD_BITS].into(),
            inhabited: Box::new([0; INHABITED_WORDS]),
            counts: [0; KINDS],
            always: Vec::new(),
        }
    }

    /// Adds a filter, or puts it in the place of the one with the same number. Machine code of it is the caller's to make: see
    /// [`Filter::make_native`].
    pub fn insert(&mut self, id: u64, filter: &Filter) {
        self.remove(id);
        self.filters.insert(id, filter.clone());
        let predicate = filter.for_link(self.link);
        match places(filter) {
            None => self.always.push((id, predicate)),
            Some(places) => {
                for (kind, hash) in places {
                    self.places.entry(hash).or_default().push((id, predicate.clone()));
                    let crowd = crowd(hash);
                    self.crowds[crowd] += 1;
                    self.inhabited[crowd / 64] |= 1 << (crowd % 64);
                    self.counts[kind as usize] += 1;
                }
            }
        }
    }

    /// Takes a filter out; whether it was there.
    pub fn remove(&mut self, id: u64) -> bool {
        let Some(filter) = self.filters.remove(&id) else { return false };
        self.always.retain(|(other, _)| *other != id);
        for (kind, hash) in places(&filter).unwrap_or_default() {
            if let Some(ids) = self.places.get_mut(&hash) {
                ids.retain(|(other, _)| *other != id);
                if ids.is_empty() {
                    self.places.remove(&hash);
                }
                let crowd = crowd(hash);
                self.crowds[crowd] -= 1;
                if self.crowds[crowd] == 0 {
                    self.inhabited[crowd / 64] &= !(1 << (crowd % 64));
                }
                self.counts[kind as usize] -= 1;
            }
        }
        true
    }

    /// Filters in the table.
    pub fn len(&self) -> usize {
        self.filters.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.filters.is_empty()
    }

    /// Calls `found` with the number of a filter and the place of a packet that it takes, once for each such pair, in no
    /// particular order. At most [`ASKED_MAX`] packets; only those with a bit in `which` are asked about.
    #[inline]
    pub fn matches_batch(&self, packets: &[Asked<'_>], which: u64, mut found: impl FnMut(u64, usize)) {
        for (id, predicate) in &self.always {
            each_bit(predicate.matches_batch(packets, which), |at| found(*id, at));
        }
        each_bit(self.maybe(packets) & which, |at| self.matches_one(&packets[at], &mut |id| found(id, at)));
    }

    /// Packets of which a filter may stand in the table: a bit each. A loop of its own for each kind: short ones keep all they
    /// need in registers.
    #[inline(never)]
    fn maybe(&self, packets: &[Asked<'_>]) -> u64 {
        let inhabited = &*self.inhabited;
        let anybody = |hash: u64| inhabited[crowd(hash) / 64] >> (crowd(hash) % 64) & 1 != 0;
        let [flows, pairs, hosts] = self.counts.map(|count| count > 0);
        let mut maybe = bits_where(packets, |packet| packet.key().partial());
        if flows {
            maybe |= bits_where(packets, |packet| anybody(Look::new(packet.key()).flow()));
        }
        if pairs {
            maybe |= bits_where(packets, |packet| anybody(Look::new(packet.key()).pair()));
        }
        for host in if hosts { 0..2 } else { 0..0 } {
            maybe |= bits_where(packets, |packet| anybody(Look::new(packet.key()).host(host)));
        }
        maybe
    }

    /// Asks the filters that may take a packet; those that are always asked have been.
    #[cold]
    fn matches_one(&self, packet: &Asked<'_>, found: &mut dyn FnMut(u64)) {
        let mut ask = |id: u64, predicate: &Predicate| {
            if predicate.matches_batch(&[*packet], 1) != 0 {
                found(id);
            }
        };
        if packet.key().partial() {
            let always = |id: &u64| self.always.iter().any(|(other, _)| other == id);
            let others = self.filters.iter().filter(|(id, _)| !always(id));
            return others.for_each(|(id, filter)| ask(*id, &filter.for_link(self.link)));
        }
        let look = Look::new(packet.key());
        let [flows, pairs, hosts] = self.counts.map(|count| count > 0);
        let hashes = [
            flows.then(|| look.flow()),
            pairs.then(|| look.pair()),
            hosts.then(|| look.host(0)),
            (hosts && look.hosts[0] != look.hosts[1]).then(|| look.host(1)),
        ];
        for hash in hashes.into_iter().flatten() {
            for (id, predicate) in self.places.get(&hash).into_iter().flatten() {
                ask(*id, predicate);
            }
        }
    }
}

/// A bit for each packet for which `test` holds.
#[inline]
fn bits_where(packets: &[Asked<'_>], test: impl Fn(&Asked<'_>) -> bool) -> u64 {
    packets.iter().take(ASKED_MAX).enumerate().fold(0, |bits, (at, packet)| bits | u64::from(test(packet)) << at)
}

/// Calls `each` with the places of the bits.
fn each_bit(mut bits: u64, mut each: impl FnMut(usize)) {
    while bits != 0 {
        each(bits.trailing_zeros() as usize);
        bits &= bits - 1;
    }
}

/// What a packet is looked up by.
struct Look {
    hosts: [u32; 2],
    ports: [u16; 2],
}

impl Look {
    #[inline]
    fn new(key: &KeyEntry) -> Look {
        let hosts = [key.source, key.destination].map(u32::from_ne_bytes);
        Look { hosts, ports: [key.source_port, key.destination_port] }
    }

    #[inline]
    fn flow(&self) -> u64 {
        flow_hash(self.hosts, self.ports)
    }

    #[inline]
    fn pair(&self) -> u64 {
        pair_hash(self.hosts)
    }

    #[inline]
    fn host(&self, which: usize) -> u64 {
        host_hash(self.hosts[which])
    }
}

/// Where a filter stands; `None` where it is always asked. A packet finds a filter once at most: only one of its places can be
/// that of the packet.
fn places(filter: &Filter) -> Option<Vec<(Kind, u64)>> {
    let needs = needs(filter.text())?;
    // All of one kind: a packet that is looked up under its pair and its hosts must not find the same filter twice.
    let kind = needs.iter().map(kind_of).collect::<Option<Vec<_>>>()?.into_iter().max_by_key(|kind| *kind as usize)?;
    let mut places: Vec<(Kind, u64)> = needs.iter().filter_map(|need| Some((kind, hash_of(need, kind)?))).collect();
    places.sort_unstable_by_key(|(_, hash)| *hash);
    places.dedup_by_key(|(_, hash)| *hash);
    // Two hosts of which a packet may have both would find it twice, too.
    if matches!(kind, Kind::Host) && places.len() > 1 { None } else { Some(places) }
}

fn kind_of(need: &Need) -> Option<Kind> {
    match (&need.hosts[..], &need.ports[..]) {
        ([_, _], [_, _]) => Some(Kind::Flow),
        ([_, _], _) => Some(Kind::Pair),
        ([_], _) => Some(Kind::Host),
        _ => None,
    }
}

fn hash_of(need: &Need, kind: Kind) -> Option<u64> {
    Some(match (kind, &need.hosts[..], &need.ports[..]) {
        (Kind::Flow, &[a, b], &[p, q]) => flow_hash([a, b], [p, q]),
        (Kind::Pair, &[a, b], _) => pair_hash([a, b]),
        (Kind::Host, &[a, ..], _) => host_hash(a),
        _ => return None,
    })
}

#[inline]
fn crowd(hash: u64) -> usize {
    (hash >> (u64::BITS - CROWD_BITS)) as usize
}

#[inline]
fn flow_hash(hosts: [u32; 2], ports: [u16; 2]) -> u64 {
    let ports = u32::from(ports[0] ^ ports[1]) << 16 | u32::from(ports[0].wrapping_add(ports[1]));
    mixed(either_order(hosts), u64::from(ports) | 1 << 32)
}

#[inline]
fn pair_hash(hosts: [u32; 2]) -> u64 {
    mixed(either_order(hosts), 2 << 32)
}

#[inline]
fn host_hash(host: u32) -> u64 {
    mixed(host.into(), 3 << 32)
}

/// The same for two hosts in either order: sum and exclusive or tell nearly all pairs apart, without a comparison.
#[inline]
fn either_order([a, b]: [u32; 2]) -> u64 {
    u64::from(a ^ b) << 32 | u64::from(a.wrapping_add(b))
}

/// The halves of a product of 128 bits, folded: all bits of both words bear on all of the result (wyhash's mixing step).
#[inline]
fn mixed(a: u64, b: u64) -> u64 {
    let product = u128::from(a ^ 0x9e37_79b9_7f4a_7c15) * u128::from(b ^ 0xe703_7ed1_a0b4_28db);
    product as u64 ^ (product >> 64) as u64
}

/// Hashes numbers that nobody chooses to collide: those of filters, and hashes.
#[derive(Debug, Default)]
struct Hashed(u64);

impl Hasher for Hashed {
    fn write(&mut self, _bytes: &[u8]) {
        unreachable!("keys are whole numbers")
    }

    fn write_u64(&mut self, hash: u64) {
        // Numbers of filters are small: spread them over all bits.
        self.0 = hash.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
