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

use crate::asked::Asked;
use crate::filter::{Filter, Predicate};
use needs::{Need, needs};

/// Filters for packets of one link type, each under a number of its owner's choice.
#[derive(Debug)]
pub struct FilterTable {
    link: LinkType,
    predicates: HashMap<u64, (Filter, Predicate)>,
    /// Numbers of filters by hash of what they need.
    places: HashMap<u64, Vec<u64>, BuildHasherDefault<Hashed>>,
    /// How many entries of `places` there are of each kind: kinds without any are not looked up.
    counts: [usize; KINDS],
    /// Filters of which no key tells anything.
    always: Vec<u64>,
}

/// What a filter needs, by how much that is.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Flow,
    Pair,
    Host,
}

const KINDS: usize = 3;

impl FilterTable {
    /// A table for packets of link type `link`, without filters.
    pub fn new(link: LinkType) -> FilterTable {
        FilterTable { link, predicates: HashMap::new(), places: HashMap::default(), counts: [0; KINDS], always: Vec::new() }
    }

    /// Adds a filter, or puts it in the place of the one with the same number. Machine code of it is the caller's to make: see
    /// [`Filter::make_native`].
    pub fn insert(&mut self, id: u64, filter: &Filter) {
        self.remove(id);
        self.predicates.insert(id, (filter.clone(), filter.for_link(self.link)));
        match places(filter) {
            None => self.always.push(id),
            Some(places) => {
                for (kind, hash) in places {
                    self.places.entry(hash).or_default().push(id);
                    self.counts[kind as usize] += 1;
                }
            }
        }
    }

    /// Takes a filter out; whether it was there.
    pub fn remove(&mut self, id: u64) -> bool {
        let Some((filter, _)) = self.predicates.remove(&id) else { return false };
        self.always.retain(|&other| other != id);
        for (kind, hash) in places(&filter).unwrap_or_default() {
            if let Some(ids) = self.places.get_mut(&hash) {
                ids.retain(|&other| other != id);
                if ids.is_empty() {
                    self.places.remove(&hash);
                }
                self.counts[kind as usize] -= 1;
            }
        }
        true
    }

    /// Filters in the table.
    pub fn len(&self) -> usize {
        self.predicates.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.predicates.is_empty()
    }

    /// Calls `found` with the number of every filter that takes `packet`, once each, in no particular order.
    #[inline]
    pub fn matches(&self, packet: &Asked<'_>, mut found: impl FnMut(u64)) {
        self.candidates(packet.key(), |id| {
            let takes = self.predicates.get(&id).is_some_and(|(_, predicate)| predicate.matches_batch(&[*packet], 1) != 0);
            if takes {
                found(id);
            }
        });
    }

    /// Calls `maybe` with every filter that may take a packet with this key, once each.
    #[inline]
    fn candidates(&self, key: &KeyEntry, mut maybe: impl FnMut(u64)) {
        if key.partial() {
            return self.predicates.keys().copied().for_each(maybe);
        }
        self.always.iter().copied().for_each(&mut maybe);
        let hosts = [u32::from_ne_bytes(key.source), u32::from_ne_bytes(key.destination)];
        let ports = [key.source_port, key.destination_port];
        let mut at = |hash: u64| {
            if let Some(ids) = self.places.get(&hash) {
                ids.iter().copied().for_each(&mut maybe);
            }
        };
        if self.counts[Kind::Flow as usize] > 0 {
            at(flow_hash(hosts, ports));
        }
        if self.counts[Kind::Pair as usize] > 0 {
            at(pair_hash(hosts));
        }
        if self.counts[Kind::Host as usize] > 0 {
            at(host_hash(hosts[0]));
            if hosts[1] != hosts[0] {
                at(host_hash(hosts[1]));
            }
        }
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

fn flow_hash(hosts: [u32; 2], ports: [u16; 2]) -> u64 {
    let ports = u64::from(ports[0].min(ports[1])) << 16 | u64::from(ports[0].max(ports[1]));
    mixed(ordered(hosts), ports | 1 << 32)
}

fn pair_hash(hosts: [u32; 2]) -> u64 {
    mixed(ordered(hosts), 2 << 32)
}

fn host_hash(host: u32) -> u64 {
    mixed(host.into(), 3 << 32)
}

/// Two hosts in either order.
fn ordered([a, b]: [u32; 2]) -> u64 {
    u64::from(a.min(b)) << 32 | u64::from(a.max(b))
}

/// The halves of a product of 128 bits, folded: all bits of both words bear on all of the result (wyhash's mixing step).
#[inline]
fn mixed(a: u64, b: u64) -> u64 {
    let product = u128::from(a ^ 0x9e37_79b9_7f4a_7c15) * u128::from(b ^ 0xe703_7ed1_a0b4_28db);
    product as u64 ^ (product >> 64) as u64
}

/// Keys of `places` are hashes already.
#[derive(Debug, Default)]
struct Hashed(u64);

impl Hasher for Hashed {
    fn write(&mut self, _bytes: &[u8]) {
        unreachable!("keys are whole numbers")
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
