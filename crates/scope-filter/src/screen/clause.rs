//! A clause: for each field of the key entry the values that it may have, all at once.
//!
//! ```text
//! screen    clause or clause or ...
//! clause    kind in {..} and vlan in {..} and fragment in {..} and protocol in {..} and source in {..} and ...
//! ```
//! Two clauses that differ in one field only are one clause with both values in that field.

use scope_packet::{KeyEntry, Kind};

use super::numbers::Numbers;

/// A field of the key entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Field {
    Source,
    Destination,
    SourcePort,
    DestinationPort,
    Protocol,
    Kind,
    Vlan,
    Fragment,
}

impl Field {
    /// All, those that distinguish packets best first.
    pub const ALL: [Field; 8] = [
        Field::Source,
        Field::Destination,
        Field::SourcePort,
        Field::DestinationPort,
        Field::Protocol,
        Field::Kind,
        Field::Vlan,
        Field::Fragment,
    ];

    /// Width in bits.
    pub fn bits(self) -> u32 {
        match self {
            Field::Source | Field::Destination => 32,
            Field::SourcePort | Field::DestinationPort => 16,
            Field::Protocol => 8,
            Field::Kind => 2,
            Field::Vlan | Field::Fragment => 1,
        }
    }

    /// The largest value.
    pub fn last(self) -> u32 {
        u32::MAX >> (32 - self.bits())
    }

    /// Its value in an entry, as the packet's bytes read as a number.
    #[inline]
    fn of(self, entry: &KeyEntry) -> u32 {
        match self {
            Field::Source => u32::from_be_bytes(entry.source),
            Field::Destination => u32::from_be_bytes(entry.destination),
            Field::SourcePort => entry.source_port.into(),
            Field::DestinationPort => entry.destination_port.into(),
            Field::Protocol => entry.protocol().into(),
            Field::Kind => entry.kind() as u32,
            Field::Vlan => entry.vlan().into(),
            Field::Fragment => entry.fragment().into(),
        }
    }

    /// Puts a value, or a mask over it, into an entry. The word's layout is drawn in `scope_packet::key`.
    pub fn put(self, entry: &mut KeyEntry, value: u32) {
        match self {
            Field::Source => entry.source = value.to_be_bytes(),
            Field::Destination => entry.destination = value.to_be_bytes(),
            Field::SourcePort => entry.source_port = value as u16,
            Field::DestinationPort => entry.destination_port = value as u16,
            Field::Protocol => entry.word |= value,
            Field::Kind => entry.word |= value << 8,
            Field::Vlan => entry.word |= value << 10,
            Field::Fragment => entry.word |= value << 11,
        }
    }
}

/// The values that each field may have, in the order of [`Field::ALL`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Clause([Numbers; Field::ALL.len()]);

impl Clause {
    /// Every entry.
    pub fn all() -> Clause {
        Clause(Field::ALL.map(|field| Numbers::range(0, field.last())))
    }

    pub fn get(&self, field: Field) -> &Numbers {
        &self.0[field as usize]
    }

    pub fn set(&mut self, field: Field, numbers: Numbers) {
        self.0[field as usize] = numbers;
    }

    /// The same with `field` set.
    pub fn with(mut self, field: Field, numbers: Numbers) -> Clause {
        self.set(field, numbers);
        self
    }

    /// Whether any value of `field` will do.
    pub fn matches_all(&self, field: Field) -> bool {
        self.get(field).len() > u64::from(field.last())
    }

    #[inline]
    pub fn matches(&self, entry: &KeyEntry) -> bool {
        Field::ALL.iter().all(|&field| self.get(field).contains(field.of(entry)))
    }

    fn is_within(&self, other: &Clause) -> bool {
        // The fields with short sets, which come last, settle most.
        self.0.iter().zip(&other.0).rev().all(|(own, other)| own.is_within(other))
    }

    /// In how many fields the two differ.
    pub fn distance(&self, other: &Clause) -> usize {
        self.0.iter().zip(&other.0).filter(|(own, other)| own != other).count()
    }

    /// Matches whatever one of the two matches, and maybe more.
    pub fn hull(&self, other: &Clause) -> Clause {
        Clause(Field::ALL.map(|field| self.get(field).union(other.get(field))))
    }

    /// The clause that matches what one of the two matches and nothing else, where there is one.
    pub fn join(&self, other: &Clause) -> Option<Clause> {
        if other.is_within(self) {
            return Some(self.clone());
        }
        if self.is_within(other) {
            return Some(other.clone());
        }
        let mut differing = Field::ALL.iter().rev().filter(|&&field| self.get(field) != other.get(field));
        (differing.next().is_some() && differing.next().is_none()).then(|| self.hull(other))
    }
}

/// How often all clauses are added anew when they settle; beyond, some that could be joined are left apart.
const SETTLING_ROUNDS_MAX: usize = 8;

/// Clauses with an `or` between them, none of which can be joined.
#[derive(Clone, Debug, Default)]
pub(super) struct Clauses(pub Vec<Clause>);

impl Clauses {
    /// Adds a clause, as one with others where that loses nothing. When there are twice `most`, they settle.
    pub fn add(&mut self, clause: Clause, most: usize) {
        self.join(clause);
        if self.0.len() > 2 * most {
            self.settle(most);
        }
    }

    /// Brings the clauses down to `most`: each is added anew, since what came late may let go of demands of
    /// what came early, and again, until nothing changes; if that doesn't help, those that are most alike
    /// become their hulls.
    pub fn settle(&mut self, most: usize) {
        for _ in 0..SETTLING_ROUNDS_MAX {
            let before = self.0.clone();
            for _ in 0..self.0.len() {
                let first = self.0.remove(0);
                self.join(first);
            }
            if self.0 == before {
                break;
            }
        }
        while self.0.len() > most {
            let clause = self.0.remove(0);
            let Some(nearest) = self.0.iter_mut().min_by_key(|other| other.distance(&clause)) else { return };
            *nearest = nearest.hull(&clause);
            let hull = nearest.clone();
            self.join(hull);
        }
    }

    fn join(&mut self, mut clause: Clause) {
        self.widen(&mut clause);
        while let Some((at, both)) =
            self.0.iter().enumerate().find_map(|(at, other)| Some((at, other.join(&clause)?)))
        {
            self.0.swap_remove(at);
            clause = both;
        }
        self.0.push(clause);
    }

    /// Drops the clause's demand on a field where what the demand refuses is matched by another clause
    /// anyway: `source A, or source not A and destination A` becomes `source A, or destination A`.
    fn widen(&self, clause: &mut Clause) {
        for field in Field::ALL {
            if clause.matches_all(field) {
                continue;
            }
            let refused = clause.clone().with(field, clause.get(field).complement(field.last()));
            if self.0.iter().any(|other| refused.is_within(other)) {
                clause.set(field, Numbers::range(0, field.last()));
            }
        }
    }
}

/// The name of a kind as filters have it.
pub(super) fn kind_name(kind: u32) -> &'static str {
    const ARP: u32 = Kind::Arp as u32;
    match kind {
        1 => "ip",
        2 => "ip6",
        ARP => "arp or rarp",
        _ => "other",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn joined(clauses: Vec<Clause>, most: usize) -> Vec<Clause> {
        let mut joined = Clauses::default();
        for clause in clauses {
            joined.add(clause, most);
        }
        joined.settle(most);
        joined.0
    }

    fn source(numbers: Numbers) -> Clause {
        Clause::all().with(Field::Source, numbers)
    }

    #[test]
    fn fields_stand_where_the_entry_has_them() {
        let mut entry = KeyEntry::default();
        let values = [0x0a00_0001, 0x0a00_0002, 53, 60000, 17, Kind::Ipv6 as u32, 1, 1];
        for (field, value) in Field::ALL.into_iter().zip(values) {
            field.put(&mut entry, value);
        }
        assert_eq!(Field::ALL.map(|field| field.of(&entry)), values);
        assert_eq!((entry.source, entry.destination_port, entry.protocol()), ([10, 0, 0, 1], 60000, 17));
        assert!(entry.kind() == Kind::Ipv6 && entry.vlan() && entry.fragment() && !entry.partial());
    }

    #[test]
    fn clauses_that_differ_in_one_field_become_one() {
        let (a, b) = (source(Numbers::one(1)), source(Numbers::one(2)));
        assert_eq!(joined(vec![a.clone(), b.clone()], 9), [source(Numbers::range(1, 2))]);
        let other = b.with(Field::Kind, Numbers::one(1));
        assert_eq!(joined(vec![a, other], 9).len(), 2);
    }

    #[test]
    fn a_demand_that_refuses_only_what_is_taken_anyway_is_dropped() {
        let here = source(Numbers::one(1));
        let there = source(Numbers::one(1).complement(u32::MAX)).with(Field::Destination, Numbers::one(1));
        let expected = [here.clone(), Clause::all().with(Field::Destination, Numbers::one(1))];
        assert_eq!(joined(vec![here, there], 9), expected);
    }

    #[test]
    fn more_clauses_than_the_bound_take_more_never_less() {
        let clause = |n: u32| source(Numbers::one(n)).with(Field::Destination, Numbers::one(n));
        let clauses: Vec<Clause> = (0..20).map(|n| clause(n * 2)).collect();
        let few = joined(clauses.clone(), 5);
        assert!(few.len() <= 5);
        assert!(clauses.iter().all(|clause| few.iter().any(|wide| clause.is_within(wide))));
    }
}
