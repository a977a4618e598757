//! How an interface gets a socket, and how that gets free again: a spare one, a new one, or one that serves
//! no interface any more.

use std::io;

use scope_packet::Interface;

use super::super::device::Device;
use super::super::life::Life;
use super::super::links::Link;
use super::super::socket::Socket;
use super::super::{Assignment, Port, SPARES_MAX, Stage};
use super::{AfPacketSource, INTERFACES_KNOWN_MAX, KnownInterface, PORTS_MAX, Request};
use crate::{InterfaceState, SourceCounters, SourceError};

/// Why an interface is not captured.
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

/// For how long an interface is not captured.
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
    /// Which request the interface named `name` matches.
    pub(super) fn wanted(&self, name: &str) -> Option<usize> {
        self.wanted.iter().position(|wanted| wanted.pattern.matches(name))
    }

    /// Makes a socket ready for an interface, its gate shut; returns the interface's number.
    pub(super) fn prepare(&mut self, link: &Link, wanted: usize) -> Result<usize, NotTaken> {
        if self.ports.iter().filter(|port| port.stage == Stage::Bound).count() >= PORTS_MAX {
            let what =
                format!("a source captures at most {PORTS_MAX} at once; give some a source of their own");
            return Err(NotTaken::Full(self.one_too_many(wanted, &what)));
        }
        // Before a socket is taken for it; what comes back under its name is no further one, as a rule.
        if self.is_full() && !self.known.iter().any(|known| *known.interface.name == link.name) {
            return Err(self.met_too_many(wanted));
        }
        if self.ports.len() >= PORTS_MAX {
            return Err(NotTaken::NotNow);
        }
        let socket = self.socket()?;
        let Request { options, spec, part, groups, .. } = &self.wanted[wanted];
        let made = match Device::of(&socket, link) {
            Ok(device) => {
                let group = groups.as_ref().map(|groups| groups.of(link.index));
                Port::prepare(socket, Assignment { link, device, part: *part, group }, options, spec)
            }
            Err(cause) => Err((SourceError::spec(spec, cause), Some(socket))),
        };
        let mut port = match made {
            Ok(port) => port,
            Err((error, socket)) => {
                self.spares.extend(socket);
                return Err(match &error {
                    SourceError::System { cause, .. } | SourceError::CaptureRing { cause, .. }
                        if is_gone(cause) =>
                    {
                        NotTaken::NotNow
                    }
                    _ => NotTaken::Fault(error),
                });
            }
        };
        let Some(number) = self.number(&port.interface, link) else {
            self.spares.extend(port.into_socket().ok().flatten());
            return Err(self.met_too_many(wanted));
        };
        port.intake.interface = number as u32;
        self.ports.push(port);
        self.warn_of_long_frames(number, link);
        Ok(number)
    }

    fn one_too_many(&self, wanted: usize, what: &str) -> SourceError {
        SourceError::spec(&self.wanted[wanted].spec, format!("it is one too many: {what}"))
    }

    fn met_too_many(&self, wanted: usize) -> NotTaken {
        let what = format!(
            "a source meets at most {INTERFACES_KNOWN_MAX} over its life, those that are gone included; \
             start again, with a pattern that does not match interfaces that only come and go"
        );
        NotTaken::Fault(self.one_too_many(wanted, &what))
    }

    /// A socket that serves no interface: a spare one, a new one, or that of an interface that is gone.
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

    /// Closes a port that is at its end. Its socket is a spare one from now on, if it can serve another
    /// interface.
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

    /// Whether no further interface can be met.
    fn is_full(&self) -> bool {
        self.known.len() >= INTERFACES_KNOWN_MAX
    }

    /// The interface's number: a new one, or that of the same interface before. One that is there under
    /// another name now is another one. `None` for a further one of which there are too many.
    fn number(&mut self, interface: &Interface, link: &Link) -> Option<usize> {
        let is_it = |known: &KnownInterface| {
            known.interface == *interface && (known.life.gone || *known.life.called == *link.name)
        };
        if let Some(number) = self.known.iter().position(is_it) {
            return Some(number);
        }
        if self.is_full() {
            return None;
        }
        let (interface, life) = (interface.clone(), Life::begin(link));
        let missed = !self.wanted[interface.part as usize].pattern.is_glob();
        self.known.push(KnownInterface { interface, life, missed, before: SourceCounters::default() });
        Some(self.known.len() - 1)
    }

    /// Captures an interface from now on, if it is wanted, isn't captured yet and wasn't refused.
    pub(super) fn take_up(&mut self, link: &Link) {
        let is_captured = |port: &Port| port.stage == Stage::Bound && port.device.index == link.index;
        if self.stopped.is_some()
            || self.refused.contains_key(&link.index)
            || self.ports.iter().any(is_captured)
        {
            return;
        }
        let Some(wanted) = self.wanted(&link.name) else { return };
        let taken = match self.bind_again(link) {
            Some(taken) => taken,
            None => self.prepare(link, wanted).and_then(|number| {
                let port = self.ports.last_mut().expect("it was just made");
                port.join_group(link.state)
                    .and_then(|()| port.open_gate())
                    .map(|()| number)
                    .map_err(NotTaken::Fault)
            }),
        };
        match taken {
            Ok(number) if self.known[number].life.gone => self.report_back(number, link),
            Ok(number) => self.report_new(number, link, wanted),
            Err(NotTaken::NotNow) => self.unserved = true,
            Err(NotTaken::Fault(error)) => self.refuse(link, Refused::WhileThere, error.to_string()),
            Err(NotTaken::Full(error)) => self.refuse(link, Refused::UntilRoom, error.to_string()),
            Err(NotTaken::NoSocket(cause)) => {
                let error = SourceError::NoSocket { interface: link.name.clone(), cause };
                self.refused.insert(link.index, Refused::UntilSocket);
                // With no port left the whole source fails, which says it all.
                let is_lost =
                    !self.ports.is_empty() && self.known.iter().any(|known| *known.life.name == *link.name);
                let state = if is_lost { InterfaceState::Lost } else { InterfaceState::Refused };
                self.report(&link.name, state, format!("interface {} is not captured: {error}", link.name));
                // No socket that could ever be free: nothing can come any more.
                if self.ports.is_empty() {
                    self.failure = Some(error);
                }
            }
        }
    }

    /// Goes on with the socket that served the same interface before it was removed; `None` where there is
    /// none.
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
        self.report(
            &link.name,
            InterfaceState::Refused,
            format!("interface {} is not captured: {text}", link.name),
        );
    }

    /// Sockets whose interface is gone and that have nothing more: one that was named waits for it with its
    /// ring, others are closed. Now there may be room for an interface that was refused.
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

#[cfg(test)]
mod tests {
    use super::super::super::AfPacketOptions;
    use super::super::super::links::LinkState;
    use super::super::super::pattern::Pattern;
    use super::*;
    use scope_packet::{LinkType, TimestampSource};

    /// An interface that this system doesn't have.
    fn link(number: usize) -> Link {
        let index = i32::MAX - number as i32;
        Link {
            index,
            name: format!("met{number}"),
            kind: libc::ARPHRD_ETHER,
            state: LinkState::Up,
            mtu: 1500,
        }
    }

    fn interface(link: &Link, link_type: LinkType) -> Interface {
        let (name, description) = (link.name.clone(), String::new());
        Interface { name, description, link_type, snap_len: 0, timestamps: TimestampSource::Kernel, part: 0 }
    }

    /// A source that has met as many as it may, all of them gone again.
    fn full() -> AfPacketSource {
        let tiny = AfPacketOptions { block_bytes: 64 << 10, blocks: 2, ..AfPacketOptions::new("met*") };
        let wanted = Request {
            pattern: Pattern::new("met*"),
            options: tiny,
            spec: "afpacket:met*".into(),
            part: 0,
            groups: None,
        };
        let mut source = AfPacketSource::new(vec![wanted], true).unwrap();
        for number in 0..INTERFACES_KNOWN_MAX {
            let link = link(number);
            assert_eq!(source.number(&interface(&link, LinkType::ETHERNET), &link), Some(number));
            source.known[number].life.remove();
        }
        source
    }

    fn refusals(source: &mut AfPacketSource) -> Vec<String> {
        let events = std::mem::take(&mut source.events).into_iter();
        events.filter(|event| event.state == InterfaceState::Refused).map(|event| event.text).collect()
    }

    #[test]
    fn an_interface_beyond_those_that_a_source_may_meet_is_refused_once_with_the_remedy() {
        let mut source = full();
        let further = link(INTERFACES_KNOWN_MAX);
        source.take_up(&further);
        source.take_up(&further);
        let said = refusals(&mut source);
        assert!(
            matches!(&said[..], [text] if text.contains("met4096 is not captured") && text.contains("at most 4096")),
            "{said:?}"
        );
        assert!(said[0].contains("start again, with a pattern"), "{said:?}");
        assert_eq!((source.known.len(), source.ports.len()), (INTERFACES_KNOWN_MAX, 0));
        // Removed and made again it is reported again: nothing is remembered of it.
        source.release(further.index);
        assert!(source.refused.is_empty());
        source.take_up(&further);
        assert_eq!(refusals(&mut source).len(), 1);
    }

    #[test]
    fn one_that_it_has_met_is_none_too_many_when_it_comes_back() {
        let mut source = full();
        let back = link(7);
        assert_eq!(source.number(&interface(&back, LinkType::ETHERNET), &back), Some(7));
        assert_eq!(
            source.number(&interface(&back, LinkType::RAW), &back),
            None,
            "of its name, and another one"
        );
        // There is no such interface here: with rights that is found when its socket is bound, without them
        // there is no socket.
        source.take_up(&back);
        let said = refusals(&mut source);
        assert!(said.iter().all(|text| !text.contains("one too many")), "{said:?}");
        assert_eq!(source.known.len(), INTERFACES_KNOWN_MAX);
    }
}
