//! Places for connections: so many in all, and of these at most three quarters for one address, so that another always gets in.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Bits of an IPv6 address that one site has for itself: these are one address here.
const SITE_BITS: u32 = 64;

/// All of them.
pub(crate) struct Places {
    all: Arc<Semaphore>,
    /// How many there are.
    most: usize,
    /// Connections of each address that has one: no more than there are places.
    taken: Arc<Mutex<HashMap<IpAddr, usize>>>,
}

/// A place, until it is dropped.
pub(crate) struct Place {
    address: IpAddr,
    taken: Arc<Mutex<HashMap<IpAddr, usize>>>,
    _place: OwnedSemaphorePermit,
}

impl Places {
    pub(crate) fn new(most: usize) -> Places {
        Places { all: Arc::new(Semaphore::new(most)), most, taken: Arc::default() }
    }

    /// A place for who connects from this address; `None`: there is none for that one.
    pub(crate) fn take(&self, address: IpAddr) -> Option<Place> {
        let address = site(address);
        let place = self.all.clone().try_acquire_owned().ok()?;
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let own = taken.get(&address).copied().unwrap_or(0);
        if own >= self.most - self.most / 4 {
            return None;
        }
        taken.insert(address, own + 1);
        Some(Place { address, taken: self.taken.clone(), _place: place })
    }

    /// Waits until all are free.
    pub(crate) async fn all_free(&self) {
        let _ = self.all.acquire_many(self.most as u32).await;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(own) = taken.get_mut(&self.address) {
            *own -= 1;
            if *own == 0 {
                taken.remove(&self.address);
            }
        }
    }
}

/// The address as it counts: IPv4 as it is, of IPv6 the network of the site.
fn site(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> SITE_BITS << SITE_BITS).into(),
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_address_leaves_a_quarter_and_what_ends_gives_its_place_back() {
        let places = Places::new(8);
        let [one, other, same_site, mapped] =
            ["10.0.0.1", "2001:db8::1", "2001:db8::2", "::ffff:10.0.0.1"].map(|text| text.parse().unwrap());
        let mut of_one: Vec<Place> = (0..6).filter_map(|_| places.take(one)).collect();
        assert_eq!(
            (of_one.len(), places.take(one).is_none(), places.take(mapped).is_none()),
            (6, true, true)
        );
        let others = [places.take(other), places.take(same_site)];
        assert!(others.iter().all(Option::is_some) && places.take(other).is_none(), "all are taken");
        of_one.pop();
        assert!(places.take(one).is_some());
        drop((of_one, others));
        assert!(places.taken.lock().unwrap().is_empty());
        let all: Vec<Place> = (0..6).filter_map(|_| places.take(other)).collect();
        assert_eq!(all.len(), 6);
    }

    #[test]
    fn few_places_are_all_for_one() {
        let places = Places::new(3);
        let taken: Vec<Place> = (0..4).filter_map(|_| places.take("::1".parse().unwrap())).collect();
        assert_eq!(taken.len(), 3);
    }
}
