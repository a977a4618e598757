//! One worker's live capture: all its interfaces, also those that come and go, by one poll over all their
//! sockets.
//!
//! ```text
//!  route socket ─► gone: take what the ring still holds, then keep the socket for the next interface
//!               ─► new, and wanted: the socket that served it before, else a spare one, a new one, or an idle one
//!  rings        ─► the block with the oldest first packet, again and again: a busy interface doesn't starve the others
//! ```
//! After rights are given up no socket can be opened; to bind one, to give it a ring, to join a group needs
//! none. A socket without a group serves one interface after another. One in a group belongs to its interface
//! for its life (the kernel's rule), so with several workers each interface that comes back gets a spare
//! socket of each worker.
//!
//! | file | what it holds |
//! |---|---|
//! | `beginning` | what is there before the first poll |
//! | `sockets` | how an interface gets a socket, and how that gets free again |
//! | `reporting` | the events of interfaces |
//! | `counters` | the counters |

mod beginning;
mod counters;
mod reporting;
mod sockets;

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::Instant;

use scope_packet::time::STEP_NS;
use scope_packet::{Interface, Sink};

use super::fanout::Groups;
use super::life::Life;
use super::links::{Change, Link, Links};
use super::outages::Outages;
use super::pattern::Pattern;
use super::socket::{Socket, wait_any};
use super::{AfPacketOptions, COUNT_EVERY_NS, POLL_PACKETS, POLL_WAIT, Port, Stage, realtime_ns};
use crate::{InterfaceCounters, InterfaceEvent, Polled, Source, SourceCounters, SourceError, Timing};
use sockets::Refused;

/// Interfaces that one source captures at once; more are refused, with an event.
pub const PORTS_MAX: usize = 64;
/// Interfaces that one source has met over its life, those included that are gone; more are refused, with an
/// event.
pub const INTERFACES_KNOWN_MAX: usize = 4096;

/// What is to be captured: an interface, or all that match.
#[derive(Clone)]
pub(super) struct Request {
    pub pattern: Pattern,
    pub options: AfPacketOptions,
    pub spec: String,
    /// See [`Interface::part`].
    pub part: u32,
    /// With several workers: who shares an interface with whom.
    pub groups: Option<Arc<Groups>>,
}

/// An interface that is or was captured, by its number in the source.
struct KnownInterface {
    interface: Interface,
    /// As it was reported last.
    life: Life,
    /// Whether it is missed when it brings nothing: from the start where the source names it, else once it
    /// was up.
    missed: bool,
    /// Counters of its sockets that serve others now.
    before: SourceCounters,
}

/// One worker's share of live capture.
pub struct AfPacketSource {
    name: String,
    wanted: Vec<Request>,
    /// Reports changes of interfaces; the other workers of the same interfaces don't.
    leads: bool,
    links: Links,
    links_failed: bool,
    outages: Outages,
    /// When all gates were open, ns.
    opened_ns: Option<i64>,
    ports: Vec<Port>,
    /// Sockets that serve no interface and have no ring.
    spares: Vec<Socket>,
    known: Vec<KnownInterface>,
    /// Counters of all sockets that serve others now.
    before: SourceCounters,
    /// Interfaces, by number, of which more has changed since the last report than the counts of their
    /// sockets.
    changed: BTreeSet<usize>,
    /// Interfaces that the sink knows.
    announced: usize,
    /// Interfaces that are not captured, reported once.
    refused: BTreeMap<i32, Refused>,
    /// Some interface may be taken up that was not so far.
    unserved: bool,
    events: Vec<InterfaceEvent>,
    warnings: Vec<String>,
    /// Nothing can come any more.
    failure: Option<SourceError>,
    stopped: Option<Instant>,
    ended: bool,
}

impl AfPacketSource {
    pub(super) fn new(wanted: Vec<Request>, leads: bool) -> Result<AfPacketSource, SourceError> {
        let links = Links::open()
            .map_err(|cause| SourceError::System { place: "listing the interfaces".to_string(), cause })?;
        Ok(AfPacketSource {
            name: wanted.iter().map(|wanted| &wanted.spec[..]).collect::<Vec<_>>().join(" + "),
            wanted,
            leads,
            links,
            links_failed: false,
            outages: Outages::begin(realtime_ns()),
            opened_ns: None,
            ports: Vec::new(),
            spares: Vec::new(),
            known: Vec::new(),
            before: SourceCounters::default(),
            changed: BTreeSet::new(),
            announced: 0,
            refused: BTreeMap::new(),
            unserved: false,
            events: Vec::new(),
            warnings: Vec::new(),
            failure: None,
            stopped: None,
            ended: false,
        })
    }

    /// Reads changes of interfaces and follows them.
    fn follow_links(&mut self) {
        if self.links_failed {
            return;
        }
        self.outages.look(realtime_ns());
        let found = match self.links.read() {
            Ok(found) => found,
            Err(cause) => {
                self.links_failed = true;
                self.warnings.push(format!(
                    "changes of interfaces are no longer seen: {cause}; start again to follow them"
                ));
                return;
            }
        };
        for change in &found.changes {
            match change {
                Change::Gone(index) => self.release(*index),
                Change::Link(link) => self.changed(link),
            }
        }
        if found.listed {
            self.release_replaced();
        }
        if self.unserved || found.listed {
            self.unserved = false;
            for link in self.links.all().cloned().collect::<Vec<_>>() {
                self.take_up(&link);
            }
        }
    }

    /// An interface was removed: its socket is drained.
    fn release(&mut self, index: i32) {
        self.refused.remove(&index);
        let Some(port) =
            self.ports.iter_mut().find(|port| port.stage == Stage::Bound && port.device.index == index)
        else {
            return;
        };
        port.stage = Stage::Leaving(Instant::now());
        let number = port.intake.interface as usize;
        self.changed.insert(number);
        let change = self.known[number].life.remove();
        self.report_change(number, Some(change));
        self.note_outage(number);
    }

    /// After a new list: an interface may have been replaced by one of the same number, which the kernel says
    /// of the socket.
    fn release_replaced(&mut self) {
        let bound = self.ports.iter().filter(|port| port.stage == Stage::Bound);
        let replaced =
            bound.filter(|port| port.socket.bound_index().is_ok_and(|index| index != port.device.index));
        let replaced: Vec<i32> = replaced.map(|port| port.device.index).collect();
        for index in replaced {
            self.release(index);
        }
    }

    /// An interface is there, changed or new.
    fn changed(&mut self, link: &Link) {
        let Some(port) =
            self.ports.iter_mut().find(|port| port.stage == Stage::Bound && port.device.index == link.index)
        else {
            return self.take_up(link);
        };
        if port.joining
            && let Err(error) = port.join_group(link.state).and_then(|()| port.open_gate())
        {
            port.warn(error.to_string());
        }
        let number = port.intake.interface as usize;
        self.changed.insert(number);
        let life = &mut self.known[number].life;
        let (name, state, mtu) = (life.rename(link), life.link(link), life.mtu(link));
        let is_of_mtu = mtu.is_some();
        for change in [name, state, mtu] {
            self.report_change(number, change);
        }
        self.note_outage(number);
        if is_of_mtu {
            self.warn_of_long_frames(number, link);
        }
    }

    /// Follows the interfaces, and makes known to the sink which there are and which can bring nothing.
    fn report_links(&mut self, sink: &mut dyn Sink) {
        self.follow_links();
        for known in &self.known[self.announced..] {
            sink.interface(&known.interface);
        }
        self.announced = self.known.len();
        let ports = &self.ports;
        let of_port = |number| ports.iter().rfind(|port| port.intake.interface as usize == number);
        self.outages.report(sink, |number| of_port(number).map_or(0, |port| port.clock_ahead_ns));
    }

    /// An interface's life has changed, or begun.
    fn note_outage(&mut self, number: usize) {
        let known = &mut self.known[number];
        known.missed |= known.life.is_up();
        self.outages.note(number, &known.life, known.missed, realtime_ns());
    }

    /// Pushes blocks that are ready, the oldest first, so that none of several interfaces is starved and
    /// times step back little; returns the number of packets.
    fn take_blocks(&mut self, sink: &mut dyn Sink) -> Result<u64, SourceError> {
        let mut packets = 0;
        let begun_ns = realtime_ns();
        let mut counted_ns = begun_ns;
        while packets < POLL_PACKETS {
            if self.ports.iter_mut().any(|port| port.ring.ready_since_ns().is_some()) {
                // Changes of interfaces before these packets came are reported before them.
                self.report_links(sink);
            }
            let ready = self
                .ports
                .iter_mut()
                .filter_map(|port| port.ring.ready_since_ns().map(|since_ns| (since_ns, port)));
            let oldest =
                ready.min_by_key(|(since_ns, port)| block_order(since_ns - port.clock_ahead_ns, begun_ns));
            let Some((_, oldest)) = oldest else { break };
            packets += oldest.take_block(sink);
            let now_ns = realtime_ns();
            if !(counted_ns..counted_ns + COUNT_EVERY_NS).contains(&now_ns) {
                counted_ns = now_ns;
                self.count_losses(sink)?;
            }
        }
        Ok(packets)
    }

    /// Reads all counts, and reports what was lost, and up to when that is known.
    fn count_losses(&mut self, sink: &mut dyn Sink) -> Result<(), SourceError> {
        for port in &mut self.ports {
            port.count_losses(sink)?;
        }
        self.report_counted(sink);
        Ok(())
    }

    /// Waits for a block of any ring, or for a change of interfaces.
    fn wait(&mut self) -> Result<(), SourceError> {
        let of = |fd| libc::pollfd { fd, events: libc::POLLIN | libc::POLLERR, revents: 0 };
        // A negative one is passed over.
        let links = of(if self.links_failed { -1 } else { self.links.fd() });
        let ports = self.ports.iter().filter(|port| port.stage != Stage::Parked);
        let mut waiting: Vec<_> = ports.map(|port| of(port.socket.fd().as_raw_fd())).chain([links]).collect();
        wait_any(&mut waiting, POLL_WAIT).map_err(|cause| SourceError::System {
            place: format!("waiting for packets of {}", self.name),
            cause,
        })?;
        let ports = self.ports.iter().filter(|port| port.stage != Stage::Parked);
        for (port, _) in
            ports.zip(&waiting).filter(|(_, woken)| woken.revents & (libc::POLLERR | libc::POLLNVAL) != 0)
        {
            match port.socket.take_error() {
                // The route socket reports more of it.
                Ok(Some(cause)) if cause.raw_os_error() == Some(libc::ENETDOWN) => {}
                Ok(None) => {}
                Ok(Some(cause)) | Err(cause) => return Err(port.fault("waiting for packets", cause)),
            }
        }
        Ok(())
    }

    /// Says up to when losses are known: the kernel counts a loss when it happens, and every loss before the
    /// last look was reported. So nothing that was captured behind that look counts as settled before the
    /// next one.
    fn report_counted(&self, sink: &mut dyn Sink) {
        let looked_ns = self.ports.iter().map(|port| port.intake.losses.looked_ns()).min();
        sink.counted(looked_ns.unwrap_or_else(realtime_ns));
    }

    /// Whether a stopped source has handed over all that the kernel held.
    fn is_drained(&mut self) -> bool {
        let Some(stopped) = self.stopped else { return false };
        self.ports.iter_mut().filter(|port| port.stage != Stage::Parked).all(|port| port.is_drained(stopped))
    }
}

/// Which of several blocks is the older one, by the times of their first packets, ns of the system's clock,
/// which shows `now_ns`: after a step back, one from before it has a time that is still to come. The smallest
/// is the oldest.
pub fn block_order(first_ns: i64, now_ns: i64) -> (bool, i64) {
    (first_ns <= now_ns.saturating_add(STEP_NS), first_ns)
}

impl Source for AfPacketSource {
    fn name(&self) -> &str {
        &self.name
    }

    fn timing(&self) -> Timing {
        Timing::Live
    }

    /// Twice the block timeout: the kernel's timer closes a block at its second tick, at the latest.
    fn grace_ns(&self) -> i64 {
        let longest_ms = self.wanted.iter().map(|wanted| wanted.options.block_timeout_ms).max().unwrap_or(0);
        2 * i64::from(longest_ms) * 1_000_000
    }

    fn ahead_ns(&self) -> i64 {
        self.ports.iter().map(|port| port.clock_ahead_ns).min().unwrap_or(0)
    }

    fn listens_from_ns(&self) -> Option<i64> {
        self.opened_ns
    }

    fn poll(&mut self, sink: &mut dyn Sink) -> Result<Polled, SourceError> {
        if self.ended {
            return Ok(Polled::Ended);
        }
        self.report_links(sink);
        self.report_counted(sink);
        let mut clock_ns = realtime_ns();
        let mut packets = self.take_blocks(sink)?;
        if packets == 0 {
            self.wait()?;
            self.report_links(sink);
            // Before the look at the rings: what comes after this look is younger.
            clock_ns = realtime_ns();
            packets = self.take_blocks(sink)?;
        }
        let quiet = self.ports.iter().all(|port| port.stage == Stage::Parked || port.is_quiet());
        self.count_losses(sink)?;
        self.park();
        if packets > 0 {
            for port in &mut self.ports {
                port.compare_clocks(clock_ns);
            }
            return Ok(Polled::Packets);
        }
        if self.is_drained() {
            self.ended = true;
            return Ok(Polled::Ended);
        }
        if let Some(error) = self.failure.take() {
            self.ended = true;
            return Err(error);
        }
        if quiet {
            sink.idle(clock_ns + self.ahead_ns() - self.grace_ns());
        }
        Ok(Polled::Nothing)
    }

    fn counters(&self) -> SourceCounters {
        self.all_counters()
    }

    fn interface_counters(&mut self, into: &mut Vec<InterfaceCounters>, changed: &mut Vec<usize>) {
        self.report_counters(into, changed);
    }

    fn stop(&mut self) {
        for port in &mut self.ports {
            port.shut_gate();
        }
        self.stopped = Some(Instant::now());
    }

    fn warnings(&mut self) -> Vec<String> {
        let mut warnings = std::mem::take(&mut self.warnings);
        for port in &mut self.ports {
            warnings.append(&mut port.warnings);
        }
        warnings
    }

    fn notes(&self) -> Vec<String> {
        let (first, others) = match &self.ports[..] {
            [] => return Vec::new(),
            [first, others @ ..] => (first, others),
        };
        if others.iter().all(|port| port.notes == first.notes) {
            return first.notes.clone();
        }
        let of_port = |port: &Port| {
            port.notes.iter().map(|note| format!("{}: {note}", port.interface.name)).collect::<Vec<_>>()
        };
        self.ports.iter().flat_map(of_port).collect()
    }

    fn interface_events(&mut self) -> Vec<InterfaceEvent> {
        std::mem::take(&mut self.events)
    }
}

#[cfg(test)]
mod tests {
    use super::block_order;

    #[test]
    fn blocks_from_before_a_step_back_come_first() {
        const S: i64 = 1_000_000_000;
        let order = |times: [i64; 4], now_s: i64| {
            let mut times = times;
            times.sort_by_key(|time_s| block_order(time_s * S, now_s * S));
            times
        };
        assert_eq!(order([1003, 1001, 1002, 1004], 1004), [1001, 1002, 1003, 1004]);
        assert_eq!(order([964, 1001, 962, 1003], 965), [1001, 1003, 962, 964], "set back by 40 s");
    }
}
