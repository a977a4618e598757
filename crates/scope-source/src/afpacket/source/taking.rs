//! How an interface comes by a socket, and how that gets free again: from a spare one, a new one, or one that serves nobody any more.

use std::io;

use scope_packet::Interface;

use super::super::device::Device;
use super::super::life::Life;
use super::super::links::Link;
use super::super::socket::Socket;
use super::super::{Place, Port, SPARES_MAX, Stage};
use super::{AfPacketSource, INTERFACES_KNOWN_MAX, Known, PORTS_MAX, Wanted};
use crate::{InterfaceState, SourceCounters, SourceError};

/// Why an interface is not taken up.
pub(super) enum NotTaken {
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
pub(super) enum Refused {
    /// For as long as it is there.
    WhileThere,
    /// Until a socket is free.
    UntilSocket,
    /// Until another interface goes.
    UntilRoom,
}

impl AfPacketSource {
    /// Which wish the interface named `name` fulfils.
    pub(super) fn wanted(&self, name: &str) -> Option<usize> {
        self.wanted.iter().position(|wanted| wanted.pattern.matches(name))
    }

    /// Makes a socket ready for an interface, its gate shut; returns the interface's number.
    pub(super) fn prepare(&mut self, link: &Link, wanted: usize) -> Result<usize, NotTaken> {
        let one_too_many = |what: String| {
            let cause = format!("it is one too many: {what}");
            SourceError::Spec { spec: self.wanted[wanted].spec.clone(), cause }
        };
        if self.ports.iter().filter(|port| port.stage == Stage::Bound).count() >= PORTS_MAX {
            let what = format!("a source captures at most {PORTS_MAX} at once; give some a source of their own");
            return Err(NotTaken::Full(one_too_many(what)));
        }
        if self.known.len() >= INTERFACES_KNOWN_MAX {
            let what = format!(
                "a source meets at most {INTERFACES_KNOWN_MAX} over its life, those that are gone included; start again, with a pattern that leaves out what only comes and goes"
            );
            return Err(NotTaken::Fault(one_too_many(what)));
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
        let number = port.intake.interface as usize;
        self.known[number].before.add(&port.intake.counters);
        self.before.add(&port.intake.counters);
        self.changed.insert(number);
        self.warnings.extend(port.warnings.iter().cloned());
        let room = (SPARES_MAX as usize).saturating_sub(self.spares.len());
        self.spares.extend(port.into_socket().ok().flatten().into_iter().take(room));
    }

    /// The interface's number: a new one, or that of the same interface before. One that is there under another name now is
    /// another one.
    fn number(&mut self, interface: &Interface, link: &Link) -> usize {
        let is_it = |known: &Known| known.interface == *interface && (known.life.gone || *known.life.called == *link.name);
        if let Some(number) = self.known.iter().position(is_it) {
            return number;
        }
        let (interface, life) = (interface.clone(), Life::begin(link));
        let missed = !self.wanted[interface.part as usize].pattern.is_glob();
        self.known.push(Known { interface, life, missed, before: SourceCounters::default() });
        self.known.len() - 1
    }

    /// Captures an interface from now on, if it is wanted, isn't captured yet and wasn't refused.
    pub(super) fn take_up(&mut self, link: &Link) {
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
            Ok(number) if self.known[number].life.gone => self.tell_of_back(number, link),
            Ok(number) => self.tell_of_new(number, link, wanted),
            Err(NotTaken::NotNow) => self.unserved = true,
            Err(NotTaken::Fault(error)) => self.refuse(link, Refused::WhileThere, error.to_string()),
            Err(NotTaken::Full(error)) => self.refuse(link, Refused::UntilRoom, error.to_string()),
            Err(NotTaken::NoSocket(cause)) => {
                let error = SourceError::NoSocket { interface: link.name.clone(), cause };
                self.refused.insert(link.index, Refused::UntilSocket);
                // With no port left the whole source fails, which says it all.
                let is_lost = !self.ports.is_empty() && self.known.iter().any(|known| *known.life.name == *link.name);
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
    pub(super) fn refuse(&mut self, link: &Link, refused: Refused, text: String) {
        self.refused.insert(link.index, refused);
        self.tell(&link.name, InterfaceState::Refused, format!("interface {} is not captured: {text}", link.name));
    }

    /// Sockets whose interface is gone and that have nothing more: one that was named waits for it with its ring, others are
    /// closed. Now there may be room for an interface that was refused.
    pub(super) fn park(&mut self) {
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
}

/// Whether the system says that there is no such interface (any more).
fn is_gone(cause: &io::Error) -> bool {
    matches!(cause.raw_os_error(), Some(libc::ENODEV | libc::ENXIO))
}
