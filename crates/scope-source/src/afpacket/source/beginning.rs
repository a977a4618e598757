//! A worker's source before its first poll: interfaces that exist are made ready, in the order that `opening`
//! gives.

use super::super::links::LinkState;
use super::super::realtime_ns;
use super::super::socket::{Socket, is_forbidden};
use super::sockets::{NotTaken, Refused};
use super::{AfPacketSource, Request};
use crate::{InterfaceState, SourceError};

impl AfPacketSource {
    /// Refuses the name of an interface that isn't there.
    pub(in crate::afpacket) fn check_names(&self) -> Result<(), SourceError> {
        let missing = |wanted: &&Request| {
            !wanted.pattern.is_glob() && !self.links.all().any(|link| wanted.pattern.matches(&link.name))
        };
        match self.wanted.iter().find(missing) {
            None => Ok(()),
            Some(wanted) => {
                let known: Vec<&str> = self.links.all().map(|link| &link.name[..]).collect();
                Err(SourceError::NoInterface {
                    name: wanted.pattern.text().to_string(),
                    known: known.join(", "),
                })
            }
        }
    }

    /// Makes a socket ready for every interface that is wanted and there.
    pub(in crate::afpacket) fn prepare_all(&mut self) -> Result<(), SourceError> {
        for link in self.links.all().cloned().collect::<Vec<_>>() {
            let Some(wanted) = self.wanted(&link.name) else { continue };
            let by_name = !self.wanted[wanted].pattern.is_glob();
            match self.prepare(&link, wanted) {
                Ok(number) if by_name => self.report_start(number, &link),
                Ok(number) => self.report_new(number, &link, wanted),
                Err(NotTaken::Fault(SourceError::Spec(fault))) if !by_name => {
                    self.refuse(&link, Refused::WhileThere, fault.reason())
                }
                Err(NotTaken::Full(SourceError::Spec(fault))) if !by_name => {
                    self.refuse(&link, Refused::UntilRoom, fault.reason())
                }
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
                self.warnings
                    .push(format!("{}: no interface matches yet; waiting for one to come", wanted.spec));
            }
        }
        Ok(())
    }

    pub(in crate::afpacket) fn join_groups(&mut self) -> Result<(), SourceError> {
        for port in &mut self.ports {
            port.join_group(self.links.get(port.device.index).map_or(LinkState::Down, |link| link.state))?;
        }
        Ok(())
    }

    pub(in crate::afpacket) fn open_gates(&mut self) -> Result<(), SourceError> {
        for port in &mut self.ports {
            port.open_gate()?;
        }
        self.opened_ns = Some(realtime_ns());
        Ok(())
    }

    /// Opens the sockets for later, and says how many there are.
    pub(in crate::afpacket) fn open_spares(&mut self) -> Result<(), SourceError> {
        for wanted in &self.wanted {
            for _ in 0..wanted.options.spares() {
                let socket = Socket::open_mute().map_err(|cause| match is_forbidden(&cause) {
                    true => SourceError::no_permission(wanted.pattern.text()),
                    false => SourceError::System {
                        place: format!(
                            "opening a spare packet socket for {} (a smaller spare= needs fewer)",
                            wanted.spec
                        ),
                        cause,
                    },
                })?;
                self.spares.push(socket);
            }
        }
        let spares = self.spares.len() as u32;
        if spares > 0 {
            let text = format!(
                "{}: {spares} spare sockets for interfaces that come when no more may be opened",
                self.name
            );
            self.report(&self.name.clone(), InterfaceState::Spare(spares), text);
        }
        Ok(())
    }
}
