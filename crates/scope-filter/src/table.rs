//! Which of very many filters a packet's key leaves open: one look-up finds the few that can match.
//!
//! ```text
//! filter                                                needs (in either direction)      stands under
//! (tcp and ((src host A and src port p and ...) or ...  hosts A, B and ports p, q        hash of all four
//! ... or (ip proto 6 and later fragments)               hosts A, B and no ports          hash of both and 0, 0
//! host A and host B                                     hosts A, B                       hash of both
//! src host A and port 53                                host A, port 53                  hash of A
//! icmp                                                  nothing that a key shows         nowhere
//! ```
//! A packet is looked up under its four, its two, and each of its hosts, as far as filters stand there: so a
//! thousand exact filters cost about as much as one. Where the key doesn't show all that a filter may see
//! (`partial`), every filter is left open. Different needs may have equal hashes: that leaves one more filter
//! open, no more.

mod needs;

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use scope_packet::KeyEntry;

use crate::filter::Filter;
use crate::input::FILTER_INPUTS_MAX;
use needs::{Need, needs};

/// A map whose keys nobody chooses to collide.
type Numbered<T> = HashMap<u64, T, BuildHasherDefault<Hashed>>;

/// Filters by what they need of a key, each under a number of its owner's choice. It holds for every link
/// type. It has none of their programs: its owner evaluates what it leaves open.
#[derive(Debug)]
pub struct KeyTable {
    /// Where each filter stands.
    filters: Numbered<Vec<(Kind, u64)>>,
    /// Filters by hash of what they need.
    places: Numbered<Vec<u64>>,
    /// Entries of `places` by the high bits of their hashes.
    crowds: Box<[u32]>,
    /// Which of `crowds` are not zero, a bit each: most packets end here, in the core's first cache.
    inhabited: Box<[u64; INHABITED_WORDS]>,
    /// How many entries of `places` there are of each kind: kinds without any are not looked up.
    counts: [usize; KINDS],
}

/// What a filter needs, by how much that is.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Flow,
    Pair,
    Host,
}

const KINDS: usize = 3;
/// Bits of a hash that distinguish crowds: a thousand filters are in 1.5 % of them, and their bits take 8
/// KiB.
const CROWD_BITS: u32 = 16;
const INHABITED_WORDS: usize = 1 << (CROWD_BITS - 6);

impl Default for KeyTable {
    fn default() -> KeyTable {
        KeyTable {
            filters: Numbered::default(),
            places: Numbered::default(),
            crowds: vec![0; 1 << CROWD_BITS].into(),
            inhabited: Box::new([0; INHABITED_WORDS]),
            counts: [0; KINDS],
        }
    }
}

impl KeyTable {
    /// Adds a filter, or puts it in the place of the one with the same number. False where no key says
    /// anything of it: it is not in the table then, and every packet may be its.
    pub fn insert(&mut self, id: u64, filter: &Filter) -> bool {
        self.remove(id);
        let Some(places) = places(filter) else { return false };
        for &(kind, hash) in &places {
            self.places.entry(hash).or_default().push(id);
            let crowd = crowd(hash);
            self.crowds[crowd] += 1;
            self.inhabited[crowd / 64] |= 1 << (crowd % 64);
            self.counts[kind as usize] += 1;
        }
        self.filters.insert(id, places);
        true
    }

    /// Removes a filter; whether it was there.
    pub fn remove(&mut self, id: u64) -> bool {
        let Some(places) = self.filters.remove(&id) else { return false };
        for (kind, hash) in places {
            if let Some(ids) = self.places.get_mut(&hash) {
                ids.retain(|other| *other != id);
                if ids.is_empty() {
                    self.places.remove(&hash);
                }
            }
            let crowd = crowd(hash);
            self.crowds[crowd] -= 1;
            if self.crowds[crowd] == 0 {
                self.inhabited[crowd / 64] &= !(1 << (crowd % 64));
            }
            self.counts[kind as usize] -= 1;
        }
        true
    }

    /// Of `count` packets, at most [`FILTER_INPUTS_MAX`], whose keys `key` gives, those that a filter may
    /// match: a bit each. A loop of its own for each kind: short ones keep all they need in registers.
    #[inline(never)]
    pub fn maybe(&self, count: usize, key: impl Fn(usize) -> KeyEntry) -> u64 {
        let inhabited = &*self.inhabited;
        let anybody = |hash: u64| inhabited[crowd(hash) / 64] >> (crowd(hash) % 64) & 1 != 0;
        let [flows, pairs, hosts] = self.counts.map(|count| count > 0);
        let mut maybe = bits_where(count, &key, KeyEntry::partial);
        if flows {
            maybe |= bits_where(count, &key, |key| anybody(Look::new(key).flow()));
        }
        if pairs {
            maybe |= bits_where(count, &key, |key| anybody(Look::new(key).pair()));
        }
        for host in if hosts { 0..2 } else { 0..0 } {
            maybe |= bits_where(count, &key, |key| anybody(Look::new(key).host(host)));
        }
        maybe
    }

    /// Calls `found` with the number of each filter that may match a packet with this key, once each. What a
    /// partial key leaves open, which is every filter, is the caller's to know.
    pub fn each(&self, key: &KeyEntry, mut found: impl FnMut(u64)) {
        let look = Look::new(key);
        let [flows, pairs, hosts] = self.counts.map(|count| count > 0);
        let hashes = [
            flows.then(|| look.flow()),
            pairs.then(|| look.pair()),
            hosts.then(|| look.host(0)),
            (hosts && look.hosts[0] != look.hosts[1]).then(|| look.host(1)),
        ];
        for hash in hashes.into_iter().flatten() {
            for id in self.places.get(&hash).into_iter().flatten() {
                found(*id);
            }
        }
    }
}

/// A bit for each key for which `test` holds.
#[inline]
fn bits_where(count: usize, key: &impl Fn(usize) -> KeyEntry, test: impl Fn(&KeyEntry) -> bool) -> u64 {
    (0..count.min(FILTER_INPUTS_MAX)).fold(0, |bits, at| bits | u64::from(test(&key(at))) << at)
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

/// Where a filter stands; `None` where no key says anything of it. A packet finds a filter once at most:
/// only one of its places can be that of the packet.
fn places(filter: &Filter) -> Option<Vec<(Kind, u64)>> {
    let needs = needs(filter.text())?;
    // All of one kind: a packet that is looked up under its pair and its hosts must not find the same filter
    // twice.
    let kind = needs
        .iter()
        .map(kind_of)
        .collect::<Option<Vec<_>>>()?
        .into_iter()
        .max_by_key(|kind| *kind as usize)?;
    let mut places: Vec<(Kind, u64)> =
        needs.iter().filter_map(|need| Some((kind, hash_of(need, kind)?))).collect();
    places.sort_unstable_by_key(|(_, hash)| *hash);
    places.dedup_by_key(|(_, hash)| *hash);
    // Two hosts of which a packet may have both would find it twice, too.
    if matches!(kind, Kind::Host) && places.len() > 1 { None } else { Some(places) }
}

fn kind_of(need: &Need) -> Option<Kind> {
    match (&need.hosts[..], &need.ports[..]) {
        ([_, _], _) if need.portless => Some(Kind::Flow),
        ([_, _], [_, _]) => Some(Kind::Flow),
        ([_, _], _) => Some(Kind::Pair),
        ([_], _) => Some(Kind::Host),
        _ => None,
    }
}

fn hash_of(need: &Need, kind: Kind) -> Option<u64> {
    Some(match (kind, &need.hosts[..], &need.ports[..]) {
        (Kind::Flow, &[a, b], _) if need.portless => flow_hash([a, b], [0, 0]),
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

/// The same for two hosts in either order: sum and exclusive or distinguish nearly all pairs, without a
/// comparison.
#[inline]
fn either_order([a, b]: [u32; 2]) -> u64 {
    u64::from(a ^ b) << 32 | u64::from(a.wrapping_add(b))
}

/// The halves of a product of 128 bits, folded: all bits of both words bear on all of the result (wyhash's
/// mixing step).
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
