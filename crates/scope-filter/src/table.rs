//! Many filters asked at once: one look-up of a packet's key finds the few that can match ([`KeyTable`]), whose programs then
//! decide.

mod keys;
mod needs;

use scope_packet::LinkType;

use crate::asked::Asked;
use crate::filter::{Filter, Predicate};
pub use keys::KeyTable;
use keys::Numbered;

/// Filters for packets of one link type, each under a number of its owner's choice.
#[derive(Debug)]
pub struct FilterTable {
    link: LinkType,
    filters: Numbered<Predicate>,
    /// Those of them of which a key tells something.
    keys: KeyTable,
    /// Those of which no key tells anything.
    always: Vec<(u64, Predicate)>,
}

impl FilterTable {
    /// A table for packets of link type `link`, without filters.
    pub fn new(link: LinkType) -> FilterTable {
        FilterTable { link, filters: Numbered::default(), keys: KeyTable::default(), always: Vec::new() }
    }

    /// Adds a filter, or puts it in the place of the one with the same number. Machine code of it is the caller's to make: see
    /// [`Filter::make_native`].
    pub fn insert(&mut self, id: u64, filter: &Filter) {
        self.remove(id);
        let predicate = filter.for_link(self.link);
        if !self.keys.insert(id, filter) {
            self.always.push((id, predicate.clone()));
        }
        self.filters.insert(id, predicate);
    }

    /// Takes a filter out; whether it was there.
    pub fn remove(&mut self, id: u64) -> bool {
        if !self.keys.remove(id) {
            self.always.retain(|(other, _)| *other != id);
        }
        self.filters.remove(&id).is_some()
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
    /// particular order. At most [`ASKED_MAX`](crate::ASKED_MAX) packets; only those with a bit in `which` are asked about.
    #[inline]
    pub fn matches_batch(&self, packets: &[Asked<'_>], which: u64, mut found: impl FnMut(u64, usize)) {
        for (id, predicate) in &self.always {
            each_bit(predicate.matches_batch(packets, which), |at| found(*id, at));
        }
        let maybe = self.keys.maybe(packets.len(), |at| *packets[at].key());
        each_bit(maybe & which, |at| self.matches_one(&packets[at], &mut |id| found(id, at)));
    }

    /// Asks the filters that may take a packet; those that are always asked have been.
    #[cold]
    fn matches_one(&self, packet: &Asked<'_>, found: &mut dyn FnMut(u64)) {
        let mut ask = |id: u64| {
            if self.filters[&id].matches_batch(&[*packet], 1) != 0 {
                found(id);
            }
        };
        if packet.key().partial() {
            return self.keys.ids().for_each(ask);
        }
        self.keys.each(packet.key(), &mut ask);
    }
}

/// Calls `each` with the places of the bits.
fn each_bit(mut bits: u64, mut each: impl FnMut(usize)) {
    while bits != 0 {
        each(bits.trailing_zeros() as usize);
        bits &= bits - 1;
    }
}
