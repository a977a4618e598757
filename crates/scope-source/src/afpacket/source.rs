//! One worker's live capture: all its interfaces, also those that come and go, by one poll over all their sockets.
//!
//! ```text
//!  route socket ─► gone: take what the ring still holds, then keep the socket for the next interface
//!               ─► new, and wanted: the socket that served it before, else a spare one, a new one, or one that serves nobody
//!  rings        ─► the block with the oldest first packet, again and again: a busy interface doesn't starve the others
//! ```
//! After rights are given up no socket can be opened; to bind one, to give it a ring, to join a group needs none. A socket without
//! a group serves one interface after another. One in a group belongs to its interface for its life (the kernel's rule), so with
//! several workers each interface that comes back takes a spare socket of each worker.

mod telling;

use std::collections::BTreeMap;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::Instant;

use scope_packet::{Interface, Sink};

use super::device::Device;
use super::fanout::Groups;
use super::links::{Change, Link, LinkState, Links};
use super::pattern::Pattern;
use super::socket::{Socket, wait_any};
use super::{AfPacketOptions, POLL_PACKETS, POLL_WAIT, Place, Port, SPARES_MAX, Stage, realtime_ns};
use crate::{InterfaceCounters, InterfaceNews, InterfaceState, Polled, Source, SourceCounters, SourceError, Timing};

/// Interfaces that one source captures at once; more are not captured, which is told.
pub const PORTS_MAX: usize = 64;
/// Interfaces that one source has met over its life, those included that are gone; more are not captured, which is told.
pub const INTERFACES_KNOWN_MAX: usize = 4096;

/// What is asked for: an interface, or all that match.
#[derive(Clone)]
pub(super) struct Wanted {
    pub pattern: Pattern,
    pub options: AfPacketOptions,
    pub spec: String,
    /// See [`Interface::part`].
    pub part: u32,
    /// With several workers: who shares an interface with whom.
    pub groups: Option<Arc<Groups>>,
}

/// An interface that is or was captured, by its number in the source.
struct Known {
    interface: Interface,
    name: Arc<str>,
    /// What the system calls it now.
    called: String,
    /// Counters of its sockets that serve others now.
    before: SourceCounters,
    /// As it was told last.
    up: bool,
    gone: bool,
    mtu: u32,
}

/// Why an interface is not taken up.
enum NotTaken {
    /// Gone again, or a socket will be there in a moment.
    NotNow,
    /// No socket can be had.
    NoSocket(io::Error),
    /// So many are captured already.
    Full(SourceError),
    /// Any other reason.
    Fault(SourceError),
}

/// For how long an interface is not taken up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refused {
    /// For as long as it is there.
    WhileThere,
    /// Until a socket is free.
    UntilSocket,
    /// Until another interface goes.
    UntilRoom,
}

/// One worker's share of live capture.
pub struct AfPacketSource {
    name: String,
    wanted: Vec<Wanted>,
    /// Tells what becomes of interfaces; the other workers of the same interfaces keep silent.
    leads: bool,
    links: Links,
    links_failed: bool,
    ports: Vec<Port>,
    /// Sockets that serve no interface and have no ring.
    spares: Vec<Socket>,
    known: Vec<Known>,
    /// Interfaces that the sink knows.
    announced: usize,
    /// Interfaces that are not taken up, told once.
    refused: BTreeMap<i32, Refused>,
    /// Some interface may be taken up that was not so far.
    unserved: bool,
    news: Vec<InterfaceNews>,
    warnings: Vec<String>,
    /// Nothing can come any more.
    failure: Option<SourceError>,
    stopped: Option<Instant>,
    ended: bool,
}

impl AfPacketSource {
    pub(super) fn new(wanted: Vec<Wanted>, leads: bool) -> Result<AfPacketSource, SourceError> {
        let links = Links::open()
            .map_err(|cause| SourceError::System { place: "asking for the list of interfaces".to_string(), cause })?;
        Ok(AfPacketSource {
            name: wanted.iter().map(|wanted| &wanted.spec[..]).collect::<Vec<_>>().join(" + "),
            wanted,
            leads,
            links,
            links_failed: false,
            ports: Vec::new(),
            spares: Vec::new(),
            known: Vec::new(),
            announced: 0,
            refused: BTreeMap::new(),
            unserved: false,
            news: Vec::new(),
            warnings: Vec::new(),
            failure: None,
            stopped: None,
            ended: false,
        })
    }

    /// Refuses the name of an interface that isn't there.
    pub(super) fn check_names(&self) -> Result<(), SourceError> {
        let missing =
            |wanted: &&Wanted| !wanted.pattern.is_glob() && !self.links.all().any(|link| wanted.pattern.matches(&link.name));
        match self.wanted.iter().find(missing) {
            None => Ok(()),
            Some(wanted) => {
                let known: Vec<&str> = self.links.all().map(|link| &link.name[..]).collect();
                Err(SourceError::NoInterface { name: wanted.pattern.text().to_string(), known: known.join(", ") })
            }
        }
    }

    /// Makes a socket ready for every interface that is wanted and there.
    pub(super) fn prepare_all(&mut self) -> Result<(), SourceError> {
        for link in self.links.all().cloned().collect::<Vec<_>>() {
            let Some(wanted) = self.wanted(&link.name) else { continue };
            let by_name = !self.wanted[wanted].pattern.is_glob();
            match self.prepare(&link, wanted) {
                Ok(number) if by_name => self.tell_of_down(number, &link),
                Ok(number) => self.tell_of_new(number, &link, wanted),
                Err(NotTaken::Fault(SourceError::Spec { cause, .. })) if !by_name => {
                    self.refuse(&link, Refused::WhileThere, cause)
                }
                Err(NotTaken::Full(SourceError::Spec { cause, .. })) if !by_name => self.refuse(&link, Refused::UntilRoom, cause),
                Err(NotTaken::Fault(error) | NotTaken::Full(error)) => return Err(error),
                Err(NotTaken::NotNow) => {}
                Err(NotTaken::NoSocket(cause)) => {
                    let place = format!("opening a packet socket on {}", link.name);
                    return Err(if is_forbidden(&cause) {
                        SourceError::no_permission(&link.name)
                    } else {
                        SourceError::System { place, cause }
                    });
                }
            }
        }
        for wanted in &self.wanted {
            if self.leads && !self.links.all().any(|link| wanted.pattern.matches(&link.name)) {
                self.warnings.push(format!("{}: no interface matches yet; waiting for one to come", wanted.spec));
            }
        }
        Ok(())
    }

    pub(super) fn join_groups(&mut self) -> Result<(), SourceError> {
        for port in &mut self.ports {
            port.join_group(self.links.get(port.device.index).map_or(LinkState::Down, |link| link.state))?;
        }
        Ok(())
    }

    pub(super) fn open_gates(&mut self) -> Result<(), SourceError> {
        self.ports.iter_mut().try_for_each(Port::open_gate)
    }

    /// Opens the sockets for later, and says how many there are.
    pub(super) fn open_spares(&mut self) -> Result<(), SourceError> {
        for wanted in &self.wanted {
            for _ in 0..wanted.options.spares() {
                let socket = Socket::open_mute().map_err(|cause| match is_forbidden(&cause) {
                    true => SourceError::no_permission(wanted.pattern.text()),
                    false => SourceError::System {
                        place: format!("opening a spare packet socket for {} (a smaller spare= needs fewer)", wanted.spec),
                        cause,
                    },
                })?;
                self.spares.push(socket);
            }
        }
        let spares = self.spares.len() as u32;
        if spares > 0 {
            let text = format!("{}: {spares} spare sockets for interfaces that come when no more may be opened", self.name);
            self.tell(&self.name.clone(), InterfaceState::Spare(spares), text);
        }
        Ok(())
    }

    /// Which wish the interface named `name` fulfils.
    fn wanted(&self, name: &str) -> Option<usize> {
        self.wanted.iter().position(|wanted| wanted.pattern.matches(name))
    }

    /// Makes a socket ready for an interface, its gate shut; returns the interface's number.
    fn prepare(&mut self, link: &Link, wanted: usize) -> Result<usize, NotTaken> {
        let one_too_many = |most: usize, what: &str| {
            let cause = format!("it is one too many, a source {what} at most {most}; give some a source of their own");
            SourceError::Spec { spec: self.wanted[wanted].spec.clone(), cause }
        };
        if self.ports.iter().filter(|port| port.stage == Stage::Bound).count() >= PORTS_MAX {
            return Err(NotTaken::Full(one_too_many(PORTS_MAX, "captures")));
        }
        if self.known.len() >= INTERFACES_KNOWN_MAX {
            return Err(NotTaken::Fault(one_too_many(INTERFACES_KNOWN_MAX, "meets")));
        }
        if self.ports.len() >= PORTS_MAX {
            return Err(NotTaken::NotNow);
        }
        let socket = self.socket()?;
        let Wanted { options, spec, part, groups, .. } = &self.wanted[wanted];
        let made = match Device::of(&socket, link) {
            Ok(device) => {
                let group = groups.as_ref().map(|groups| groups.of(link.index));
                Port::prepare(socket, Place { link, device, part: *part, group }, options, spec)
            }
            Err(cause) => Err((SourceError::Spec { spec: spec.clone(), cause }, Some(socket))),
        };
        let mut port = match made {
            Ok(port) => port,
            Err((error, socket)) => {
                self.spares.extend(socket);
                return Err(match &error {
                    SourceError::System { cause, .. } if is_gone(cause) => NotTaken::NotNow,
                    _ => NotTaken::Fault(error),
                });
            }
        };
        let number = self.number(&port.interface, link);
        port.intake.interface = number as u32;
        self.ports.push(port);
        self.warn_of_long_frames(number, link);
        Ok(number)
    }

    /// A socket that serves nobody: a spare one, a new one, or that of an interface that is gone.
    fn socket(&mut self) -> Result<Socket, NotTaken> {
        if let Some(socket) = self.spares.pop() {
            return Ok(socket);
        }
        let cause = match Socket::open_mute() {
            Ok(socket) => return Ok(socket),
            Err(cause) => cause,
        };
        if let Some(at) = self.ports.iter().position(|port| port.stage == Stage::Parked) {
            self.close(at);
            return self.spares.pop().ok_or(NotTaken::NoSocket(cause));
        }
        let leaving = |port: &Port| port.group.is_none() && matches!(port.stage, Stage::Leaving(_));
        Err(if self.ports.iter().any(leaving) { NotTaken::NotNow } else { NotTaken::NoSocket(cause) })
    }

    /// Closes a port that is at its end. Its socket is a spare one from now on, if it can serve another interface.
    fn close(&mut self, at: usize) {
        let port = self.ports.swap_remove(at);
        self.known[port.intake.interface as usize].before.add(&port.intake.counters);
        self.warnings.extend(port.warnings.iter().cloned());
        let room = (SPARES_MAX as usize).saturating_sub(self.spares.len());
        self.spares.extend(port.into_socket().ok().flatten().into_iter().take(room));
    }

    /// The interface's number: a new one, or that of the same interface before.
    fn number(&mut self, interface: &Interface, link: &Link) -> usize {
        if let Some(number) = self.known.iter().position(|known| known.interface == *interface) {
            return number;
        }
        let (interface, name) = (interface.clone(), link.name[..].into());
        let up = link.state == LinkState::Up;
        let called = link.name.clone();
        self.known.push(Known { interface, name, called, before: SourceCounters::default(), up, gone: false, mtu: link.mtu });
        self.known.len() - 1
    }

    /// Reads what became of interfaces and follows it.
    fn follow_links(&mut self) {
        if self.links_failed {
            return;
        }
        let news = match self.links.read() {
            Ok(news) => news,
            Err(cause) => {
                self.links_failed = true;
                self.warnings.push(format!("changes of interfaces are not told any more: {cause}; start again to follow them"));
                return;
            }
        };
        for change in &news.changes {
            match change {
                Change::Gone(index) => self.leave(*index),
                Change::Link(link) => self.changed(link),
            }
        }
        if news.listed {
            self.leave_what_was_replaced();
        }
        if self.unserved || news.listed {
            self.unserved = false;
            for link in self.links.all().cloned().collect::<Vec<_>>() {
                self.take_up(&link);
            }
        }
    }

    /// An interface was removed: its socket takes what it still has.
    fn leave(&mut self, index: i32) {
        self.refused.remove(&index);
        let Some(port) = self.ports.iter_mut().find(|port| port.stage == Stage::Bound && port.device.index == index) else {
            return;
        };
        port.stage = Stage::Leaving(Instant::now());
        let number = port.intake.interface as usize;
        let known = &mut self.known[number];
        (known.gone, known.up) = (true, false);
        let (name, text) = (known.name.clone(), format!("interface {} was removed; waiting for it to come back", known.name));
        self.tell(&name, InterfaceState::Gone, text);
    }

    /// After a new list: an interface may have been replaced by one of the same number, which the kernel says of the socket.
    fn leave_what_was_replaced(&mut self) {
        let bound = self.ports.iter().filter(|port| port.stage == Stage::Bound);
        let replaced = bound.filter(|port| port.socket.bound_index().is_ok_and(|index| index != port.device.index));
        let replaced: Vec<i32> = replaced.map(|port| port.device.index).collect();
        replaced.into_iter().for_each(|index| self.leave(index));
    }

    /// An interface is there, changed or new.
    fn changed(&mut self, link: &Link) {
        let Some(port) = self.ports.iter_mut().find(|port| port.stage == Stage::Bound && port.device.index == link.index) else {
            return self.take_up(link);
        };
        if port.joining
            && let Err(error) = port.join_group(link.state).and_then(|()| port.open_gate())
        {
            port.warn(error.to_string());
        }
        let number = port.intake.interface as usize;
        self.tell_of_name(number, link);
        self.tell_of_state(number, link);
        if std::mem::replace(&mut self.known[number].mtu, link.mtu) != link.mtu {
            let name = self.known[number].name.clone();
            let text = format!("interface {name} has an MTU of {} bytes now", link.mtu);
            self.tell(&name, InterfaceState::Mtu(link.mtu), text);
            self.warn_of_long_frames(number, link);
        }
    }

    /// Captures an interface from now on, if it is wanted, isn't captured yet and wasn't refused.
    fn take_up(&mut self, link: &Link) {
        let is_captured = |port: &Port| port.stage == Stage::Bound && port.device.index == link.index;
        if self.stopped.is_some() || self.refused.contains_key(&link.index) || self.ports.iter().any(is_captured) {
            return;
        }
        let Some(wanted) = self.wanted(&link.name) else { return };
        let taken = match self.bind_again(link) {
            Some(taken) => taken,
            None => self.prepare(link, wanted).and_then(|number| {
                let port = self.ports.last_mut().expect("it was just made");
                port.join_group(link.state).and_then(|()| port.open_gate()).map(|()| number).map_err(NotTaken::Fault)
            }),
        };
        match taken {
            Ok(number) if self.known[number].gone => self.tell_of_back(number, link),
            Ok(number) => self.tell_of_new(number, link, wanted),
            Err(NotTaken::NotNow) => self.unserved = true,
            Err(NotTaken::Fault(error)) => self.refuse(link, Refused::WhileThere, error.to_string()),
            Err(NotTaken::Full(error)) => self.refuse(link, Refused::UntilRoom, error.to_string()),
            Err(NotTaken::NoSocket(cause)) => {
                let error = SourceError::NoSocket { interface: link.name.clone(), cause };
                self.refused.insert(link.index, Refused::UntilSocket);
                // With no port left the whole source fails, which says it all.
                let is_lost = !self.ports.is_empty() && self.known.iter().any(|known| *known.name == *link.name);
                let state = if is_lost { InterfaceState::Lost } else { InterfaceState::Refused };
                self.tell(&link.name, state, format!("interface {} is not captured: {error}", link.name));
                // No socket that could ever be free: nothing can come any more.
                if self.ports.is_empty() {
                    self.failure = Some(error);
                }
            }
        }
    }

    /// Goes on with the socket that served the same interface before it was removed; `None` where there is none.
    fn bind_again(&mut self, link: &Link) -> Option<Result<usize, NotTaken>> {
        let port = self.ports.iter_mut().find(|port| port.can_serve_again(&link.name))?;
        let device = Device::of(&port.socket, link).ok().filter(|device| port.device.is_like(device))?;
        let number = port.intake.interface as usize;
        Some(match port.bind_again(device) {
            Ok(()) => Ok(number),
            Err(SourceError::System { cause, .. }) if is_gone(&cause) => Err(NotTaken::NotNow),
            Err(error) => Err(NotTaken::Fault(error)),
        })
    }

    /// An interface is not captured for now.
    fn refuse(&mut self, link: &Link, refused: Refused, text: String) {
        self.refused.insert(link.index, refused);
        self.tell(&link.name, InterfaceState::Refused, format!("interface {} is not captured: {text}", link.name));
    }

    /// Sockets whose interface is gone and that have nothing more: one that was named waits for it with its ring, others are
    /// closed. Now there may be room for an interface that was refused.
    fn park(&mut self) {
        for at in (0..self.ports.len()).rev() {
            let port = &mut self.ports[at];
            let Stage::Leaving(since) = port.stage else { continue };
            if !port.is_drained(since) {
                continue;
            }
            port.stage = Stage::Parked;
            let frees_socket = port.group.is_none();
            if !frees_socket || self.wanted[port.interface.part as usize].pattern.is_glob() {
                self.close(at);
            }
            self.refused.retain(|_, refused| match refused {
                Refused::WhileThere => true,
                Refused::UntilSocket => !frees_socket,
                Refused::UntilRoom => false,
            });
            self.unserved = true;
        }
    }

    /// Makes interfaces known to the sink.
    fn announce(&mut self, sink: &mut dyn Sink) {
        self.known[self.announced..].iter().for_each(|known| sink.interface(&known.interface));
        self.announced = self.known.len();
    }

    /// Pushes blocks that are ready, the oldest first, so that none of several interfaces is starved and times step back little;
    /// returns the number of packets.
    fn take_blocks(&mut self, sink: &mut dyn Sink) -> u64 {
        let mut packets = 0;
        while packets < POLL_PACKETS {
            let ready = self.ports.iter_mut().filter_map(|port| port.ring.ready_since_ns().map(|since_ns| (since_ns, port)));
            let Some((_, oldest)) = ready.min_by_key(|(since_ns, _)| *since_ns) else { break };
            packets += oldest.take_block(sink);
        }
        packets
    }

    /// Waits for a block of any ring, or for news of interfaces.
    fn wait(&mut self) -> Result<(), SourceError> {
        let of = |fd| libc::pollfd { fd, events: libc::POLLIN | libc::POLLERR, revents: 0 };
        // A negative one is passed over.
        let links = of(if self.links_failed { -1 } else { self.links.fd() });
        let ports = self.ports.iter().filter(|port| port.stage != Stage::Parked);
        let mut waiting: Vec<_> = ports.map(|port| of(port.socket.fd().as_raw_fd())).chain([links]).collect();
        wait_any(&mut waiting, POLL_WAIT)
            .map_err(|cause| SourceError::System { place: format!("waiting for packets of {}", self.name), cause })?;
        let ports = self.ports.iter().filter(|port| port.stage != Stage::Parked);
        for (port, _) in ports.zip(&waiting).filter(|(_, woken)| woken.revents & (libc::POLLERR | libc::POLLNVAL) != 0) {
            match port.socket.take_error() {
                // The route socket tells more of it.
                Ok(Some(cause)) if cause.raw_os_error() == Some(libc::ENETDOWN) => {}
                Ok(None) => {}
                Ok(Some(cause)) | Err(cause) => return Err(port.fault("waiting for packets", cause)),
            }
        }
        Ok(())
    }

    /// Whether a stopped source has handed over all that the kernel held.
    fn is_drained(&mut self) -> bool {
        let Some(stopped) = self.stopped else { return false };
        self.ports.iter_mut().filter(|port| port.stage != Stage::Parked).all(|port| port.is_drained(stopped))
    }
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

    fn poll(&mut self, sink: &mut dyn Sink) -> Result<Polled, SourceError> {
        if self.ended {
            return Ok(Polled::Ended);
        }
        self.follow_links();
        self.announce(sink);
        let mut clock_ns = realtime_ns();
        let mut packets = self.take_blocks(sink);
        if packets == 0 {
            self.wait()?;
            self.follow_links();
            self.announce(sink);
            // Before the look at the rings: what comes after this look is younger.
            clock_ns = realtime_ns();
            packets = self.take_blocks(sink);
        }
        let quiet = self.ports.iter().all(|port| port.stage == Stage::Parked || port.is_quiet());
        self.ports.iter_mut().try_for_each(|port| port.count_losses(sink))?;
        self.park();
        if packets > 0 {
            self.ports.iter_mut().for_each(|port| port.compare_clocks(clock_ns));
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
            let ahead_ns = self.ports.iter().map(|port| port.clock_ahead_ns).min().unwrap_or(0);
            sink.idle(clock_ns + ahead_ns - self.grace_ns());
        }
        Ok(Polled::Nothing)
    }

    fn counters(&self) -> SourceCounters {
        let mut total = SourceCounters::default();
        self.known.iter().for_each(|known| total.add(&known.before));
        self.ports.iter().for_each(|port| total.add(&port.intake.counters));
        total
    }

    fn interfaces(&self, into: &mut Vec<InterfaceCounters>) {
        for (number, known) in self.known.iter().enumerate() {
            match into.get_mut(number) {
                Some(entry) => entry.counters = known.before,
                None => into.push(InterfaceCounters { interface: known.name.clone(), counters: known.before }),
            }
        }
        self.ports.iter().for_each(|port| into[port.intake.interface as usize].counters.add(&port.intake.counters));
    }

    fn stop(&mut self) {
        self.ports.iter_mut().for_each(Port::shut_gate);
        self.stopped = Some(Instant::now());
    }

    fn warnings(&mut self) -> Vec<String> {
        let mut warnings = std::mem::take(&mut self.warnings);
        self.ports.iter_mut().for_each(|port| warnings.append(&mut port.warnings));
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
        let of_port = |port: &Port| port.notes.iter().map(|note| format!("{}: {note}", port.interface.name)).collect::<Vec<_>>();
        self.ports.iter().flat_map(of_port).collect()
    }

    fn news(&mut self) -> Vec<InterfaceNews> {
        std::mem::take(&mut self.news)
    }
}

/// Whether the system says that there is no such interface (any more).
fn is_gone(cause: &io::Error) -> bool {
    matches!(cause.raw_os_error(), Some(libc::ENODEV | libc::ENXIO))
}

fn is_forbidden(cause: &io::Error) -> bool {
    matches!(cause.raw_os_error(), Some(libc::EPERM | libc::EACCES))
}
