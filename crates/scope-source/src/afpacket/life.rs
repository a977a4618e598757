//! The state of one live interface: each change reported once, in the same words for all kinds of capture.

use std::sync::Arc;

use super::links::{Link, LinkState};
use crate::InterfaceState;

/// Events that wait at once; more are dropped until these are fetched.
pub(crate) const EVENTS_MAX: usize = 1024;

/// A change to report: the state, and the same in plain words.
pub(crate) type StateChange = (InterfaceState, String);

/// An interface as it was reported last. Where it comes back after it was removed, it goes on as the same
/// one.
#[derive(Clone, Debug)]
pub(crate) struct Life {
    /// The name that it is captured under.
    pub name: Arc<str>,
    /// What the system calls it now; its first name while it is gone.
    pub called: Arc<str>,
    pub gone: bool,
    up: bool,
    mtu: u32,
}

impl Life {
    /// An interface that is captured from now on.
    pub(crate) fn begin(link: &Link) -> Life {
        let name: Arc<str> = link.name[..].into();
        Life { called: name.clone(), name, gone: false, up: link.state == LinkState::Up, mtu: link.mtu }
    }

    /// Whether packets can come.
    pub(crate) fn is_up(&self) -> bool {
        self.up
    }

    /// It was removed.
    pub(crate) fn remove(&mut self) -> StateChange {
        (self.gone, self.up) = (true, false);
        self.called = self.name.clone();
        (InterfaceState::Gone, format!("interface {} was removed; waiting for it to come back", self.name))
    }

    /// It is back, and captured. It mostly comes back down: that is no event of its own.
    pub(crate) fn restore(&mut self, link: &Link) -> StateChange {
        (self.gone, self.mtu, self.up) = (false, link.mtu, link.state == LinkState::Up);
        self.called = link.name[..].into();
        let still = if self.up { String::new() } else { format!("; it {} so far", not_up(link.state)) };
        (InterfaceState::Back, format!("interface {} is back: captured again{still}", self.name))
    }

    /// Captured from now on; a change if it has no link yet.
    pub(crate) fn start(&mut self, link: &Link) -> Option<StateChange> {
        self.up = link.state == LinkState::Up;
        (!self.up).then(|| {
            (InterfaceState::Down, format!("interface {} {}; waiting for it", self.name, not_up(link.state)))
        })
    }

    /// An interface that is renamed is the same one: it keeps its first name here.
    pub(crate) fn rename(&mut self, link: &Link) -> Option<StateChange> {
        if *self.called == *link.name {
            return None;
        }
        let from = std::mem::replace(&mut self.called, link.name[..].into());
        let text = format!(
            "interface {} is called {} now; capture goes on under its first name",
            self.name, self.called
        );
        Some((InterfaceState::Renamed { from, to: self.called.clone() }, text))
    }

    /// Whether packets can come, where that has changed.
    pub(crate) fn link(&mut self, link: &Link) -> Option<StateChange> {
        let up = link.state == LinkState::Up;
        if std::mem::replace(&mut self.up, up) == up {
            return None;
        }
        let name = &self.name;
        Some(match link.state {
            LinkState::Up => (InterfaceState::Up, format!("interface {name} is up again")),
            LinkState::Down => (InterfaceState::Down, format!("interface {name} went down; waiting for it")),
            LinkState::NoCarrier => {
                (InterfaceState::Down, format!("interface {name} lost its link; waiting for it"))
            }
        })
    }

    /// How long its packets may be, where that has changed.
    pub(crate) fn mtu(&mut self, link: &Link) -> Option<StateChange> {
        let before = std::mem::replace(&mut self.mtu, link.mtu);
        let text = || format!("interface {} has an MTU of {} bytes now", self.name, link.mtu);
        (before != link.mtu).then(|| (InterfaceState::Mtu(link.mtu), text()))
    }
}

fn not_up(state: LinkState) -> &'static str {
    if state == LinkState::Down { "is down" } else { "has no link" }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(name: &str, state: LinkState, mtu: u32) -> Link {
        Link { index: 2, name: name.into(), kind: 1, state, mtu }
    }

    #[test]
    fn a_second_rename_reports_the_name_before_and_the_first_one_stays() {
        let mut life = Life::begin(&link("va", LinkState::Up, 1500));
        let renamed =
            |from: &str, to: &str| Some(InterfaceState::Renamed { from: from.into(), to: to.into() });
        assert_eq!(life.rename(&link("vb", LinkState::Up, 1500)).map(|change| change.0), renamed("va", "vb"));
        assert_eq!(life.rename(&link("vc", LinkState::Up, 1500)).map(|change| change.0), renamed("vb", "vc"));
        assert_eq!(life.rename(&link("vc", LinkState::Up, 1500)), None);
        assert_eq!((&life.name[..], &life.called[..]), ("va", "vc"));
        life.remove();
        assert_eq!(&life.called[..], "va", "what is gone is called nothing: its first name stands there");
    }

    #[test]
    fn nothing_is_reported_twice() {
        let mut life = Life::begin(&link("va", LinkState::Up, 1500));
        let down = link("va", LinkState::Down, 9000);
        assert!(life.link(&down).is_some() && life.mtu(&down).is_some());
        assert_eq!((life.link(&down), life.mtu(&down)), (None, None));
        // Without its link instead of down: still nothing can come.
        assert_eq!(life.link(&link("va", LinkState::NoCarrier, 9000)), None);
        assert!(
            life.link(&link("va", LinkState::Up, 9000)).is_some_and(|change| change.0 == InterfaceState::Up)
        );
    }
}
