//! A worker's counts, asked for at each of its polls: what that costs is bounded by the sockets that it has
//! and by what has changed, not by the interfaces that it has ever met.

use super::{AfPacketSource, Known};
use crate::{InterfaceCounters, SourceCounters};

impl AfPacketSource {
    pub(super) fn all_counters(&self) -> SourceCounters {
        let mut total = self.before;
        self.ports.iter().for_each(|port| total.add(&port.intake.counters));
        total
    }

    /// Adds what is new behind `into`, which the call before filled, and puts right what may have changed
    /// since then: the numbers of that go to `changed`.
    pub(super) fn tell_counters(&mut self, into: &mut Vec<InterfaceCounters>, changed: &mut Vec<usize>) {
        let new = into.len().min(self.known.len())..;
        into.extend(self.known[new].iter().map(told));
        for number in std::mem::take(&mut self.changed) {
            into[number] = told(&self.known[number]);
            changed.push(number);
        }
        // Their names stand there.
        for number in self.ports.iter().map(|port| port.intake.interface as usize) {
            into[number].counters = self.known[number].before;
            changed.push(number);
        }
        // An interface may have several: one that takes its leave, and the one after it.
        self.ports
            .iter()
            .for_each(|port| into[port.intake.interface as usize].counters.add(&port.intake.counters));
    }
}

/// Without what its sockets have counted so far.
fn told(known: &Known) -> InterfaceCounters {
    InterfaceCounters {
        interface: known.life.name.clone(),
        called: known.life.called.clone(),
        counters: known.before,
    }
}
