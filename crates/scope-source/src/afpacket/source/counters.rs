//! A worker's counters, read at each of its polls: the cost is bounded by its sockets and by what has
//! changed, not by the interfaces that it has ever met.

use super::{AfPacketSource, KnownInterface};
use crate::{InterfaceCounters, SourceCounters};

impl AfPacketSource {
    pub(super) fn all_counters(&self) -> SourceCounters {
        let mut total = self.before;
        for port in &self.ports {
            total.add(&port.intake.counters);
        }
        total
    }

    /// Appends new interfaces to `into`, which the call before filled, and updates those that may have
    /// changed since then: their numbers go to `changed`.
    pub(super) fn report_counters(&mut self, into: &mut Vec<InterfaceCounters>, changed: &mut Vec<usize>) {
        let new = into.len().min(self.known.len())..;
        into.extend(self.known[new].iter().map(without_sockets));
        for number in std::mem::take(&mut self.changed) {
            into[number] = without_sockets(&self.known[number]);
            changed.push(number);
        }
        // Their names are there already.
        for number in self.ports.iter().map(|port| port.intake.interface as usize) {
            into[number].counters = self.known[number].before;
            changed.push(number);
        }
        // An interface may have several: one that is being drained, and the one after it.
        for port in &self.ports {
            into[port.intake.interface as usize].counters.add(&port.intake.counters);
        }
    }
}

/// The counters of an interface, without what its sockets have counted so far.
fn without_sockets(known: &KnownInterface) -> InterfaceCounters {
    InterfaceCounters {
        interface: known.life.name.clone(),
        called: known.life.called.clone(),
        counters: known.before,
    }
}
