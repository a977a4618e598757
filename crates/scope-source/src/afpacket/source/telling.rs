//! What is told of interfaces: each change once, by one of the workers that share them.

use super::super::links::{Link, LinkState};
use super::AfPacketSource;
use crate::{InterfaceNews, InterfaceState};

/// News that wait at once; more are not kept until these are fetched.
const NEWS_MAX: usize = 1024;

impl AfPacketSource {
    /// Tells what all workers of the interface see alike, and what is this one's own trouble.
    pub(super) fn tell(&mut self, interface: &str, state: InterfaceState, text: String) {
        if (self.leads || matches!(state, InterfaceState::Refused | InterfaceState::Lost)) && self.news.len() < NEWS_MAX {
            self.news.push(InterfaceNews { interface: interface.to_string(), state, text });
        }
    }

    /// What was decided when the interface's gate was opened, to be put behind a text.
    fn notes_of(&self, number: usize) -> String {
        let port = self.ports.iter().rfind(|port| port.intake.interface as usize == number);
        port.map_or_else(String::new, |port| port.notes.iter().map(|note| format!("; {note}")).collect())
    }

    pub(super) fn tell_of_new(&mut self, number: usize, link: &Link, wanted: usize) {
        let pattern = self.wanted[wanted].pattern.text();
        let text = format!("interface {} matches '{pattern}': captured from now on", link.name) + &self.notes_of(number);
        self.tell(&link.name, InterfaceState::New, text);
        self.tell_of_down(number, link);
    }

    pub(super) fn tell_of_back(&mut self, number: usize, link: &Link) {
        let known = &mut self.known[number];
        (known.gone, known.mtu) = (false, link.mtu);
        known.called.clone_from(&link.name);
        // It comes back down, as a rule: no event of its own.
        known.up = link.state == LinkState::Up;
        let still = if known.up { String::new() } else { format!("; it {} so far", not_up(link.state)) };
        let text = format!("interface {} is back: captured again{still}", link.name) + &self.notes_of(number);
        self.tell(&link.name, InterfaceState::Back, text);
    }

    /// An interface that is captured from now on and may have no link yet.
    pub(super) fn tell_of_down(&mut self, number: usize, link: &Link) {
        self.known[number].up = link.state == LinkState::Up;
        if !self.known[number].up {
            let text = format!("interface {} {}; waiting for it", link.name, not_up(link.state));
            self.tell(&link.name, InterfaceState::Down, text);
        }
    }

    /// An interface that is renamed is the same one: it keeps its first name here.
    pub(super) fn tell_of_name(&mut self, number: usize, link: &Link) {
        let known = &mut self.known[number];
        if known.called != link.name {
            known.called.clone_from(&link.name);
            let text = format!("interface {} is called {} now; it is captured on under its first name", known.name, link.name);
            self.warnings.extend(self.leads.then_some(text));
        }
    }

    /// Says whether packets can come, where that has changed.
    pub(super) fn tell_of_state(&mut self, number: usize, link: &Link) {
        let up = link.state == LinkState::Up;
        let known = &mut self.known[number];
        if std::mem::replace(&mut known.up, up) == up {
            return;
        }
        let name = known.name.clone();
        let (state, text) = match link.state {
            LinkState::Up => (InterfaceState::Up, format!("interface {name} is up again")),
            LinkState::Down => (InterfaceState::Down, format!("interface {name} went down; waiting for it")),
            LinkState::NoCarrier => (InterfaceState::Down, format!("interface {name} lost its link; waiting for it")),
        };
        self.tell(&name, state, text);
    }

    /// Says so where frames can be longer than what a block takes: the kernel would cut them.
    pub(super) fn warn_of_long_frames(&mut self, number: usize, link: &Link) {
        let part = self.known[number].interface.part as usize;
        let longest = self.wanted[part].options.frame_bytes_max();
        // An Ethernet header with two tags.
        if self.leads && link.mtu.saturating_add(22) > longest {
            self.warnings.push(format!(
                "interface {}: its MTU is {} bytes, frames longer than {longest} are cut to that; larger blocks take them whole",
                link.name, link.mtu
            ));
        }
    }
}

fn not_up(state: LinkState) -> &'static str {
    if state == LinkState::Down { "is down" } else { "has no link" }
}
