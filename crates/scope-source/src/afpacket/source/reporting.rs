//! Events of interfaces: each change once, by one of the workers that share them.

use super::super::life::{EVENTS_MAX, StateChange};
use super::super::links::Link;
use super::AfPacketSource;
use crate::{InterfaceEvent, InterfaceState};

impl AfPacketSource {
    /// Reports what all workers of the interface see alike only where this one leads; what concerns this
    /// worker alone always.
    pub(super) fn report(&mut self, interface: &str, state: InterfaceState, text: String) {
        if (self.leads || matches!(state, InterfaceState::Refused | InterfaceState::Lost))
            && self.events.len() < EVENTS_MAX
        {
            self.events.push(InterfaceEvent { interface: interface.to_string(), state, text });
        }
    }

    /// The same of an interface that is or was captured.
    pub(super) fn report_change(&mut self, number: usize, change: Option<StateChange>) {
        if let Some((state, text)) = change {
            self.report(&self.known[number].life.name.clone(), state, text);
        }
    }

    /// Decisions at the opening of the interface's gate, to be put behind a text.
    fn notes_of(&self, number: usize) -> String {
        let port = self.ports.iter().rfind(|port| port.intake.interface as usize == number);
        port.map_or_else(String::new, |port| port.notes.iter().map(|note| format!("; {note}")).collect())
    }

    pub(super) fn report_new(&mut self, number: usize, link: &Link, wanted: usize) {
        let pattern = self.wanted[wanted].pattern.text();
        let text = format!("interface {} matches '{pattern}': captured from now on", link.name)
            + &self.notes_of(number);
        self.report(&link.name, InterfaceState::New, text);
        self.report_start(number, link);
    }

    pub(super) fn report_back(&mut self, number: usize, link: &Link) {
        let (state, text) = self.known[number].life.restore(link);
        self.report(&link.name, state, text + &self.notes_of(number));
        self.note_outage(number);
    }

    /// An interface that is captured from now on and may have no link yet.
    pub(super) fn report_start(&mut self, number: usize, link: &Link) {
        let change = self.known[number].life.start(link);
        self.report_change(number, change);
        self.note_outage(number);
    }

    /// Warns where frames can be longer than a block: the kernel would truncate them.
    pub(super) fn warn_of_long_frames(&mut self, number: usize, link: &Link) {
        let part = self.known[number].interface.part as usize;
        let longest = self.wanted[part].options.frame_bytes_max();
        // An Ethernet header with two tags.
        if self.leads && link.mtu.saturating_add(22) > longest {
            self.warnings.push(format!(
                "interface {}: its MTU is {} bytes, packets longer than {longest} are truncated; larger \
                 blocks keep them whole",
                link.name, link.mtu
            ));
        }
    }
}
