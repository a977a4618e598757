//! Changes of the interface that libpcap captures: libpcap itself reports only, and late, that it is gone.

use std::io;
use std::os::fd::{BorrowedFd, RawFd};

use crate::afpacket::life::{Life, StateChange};
use crate::afpacket::links::{Change, Link, LinkState, Links};
use crate::afpacket::outages::Outages;
use crate::afpacket::socket::bound_index;

/// The number of the only interface's outages.
const OWN: usize = 0;

/// One network interface, by the kernel's word.
pub(super) struct Follow {
    links: Links,
    pub life: Life,
    /// When it could bring nothing.
    pub outages: Outages,
    /// The kernel's number of it; `None` while it is gone.
    index: Option<i32>,
    /// Another one of its name may have come.
    look_again: bool,
}

impl Follow {
    /// Follows the interface `name`; `None` where that is none of the kernel's network interfaces.
    pub(super) fn begin(name: &str, now_ns: i64) -> io::Result<Option<Follow>> {
        let links = Links::open()?;
        let outages = Outages::begin(now_ns);
        let found = links.all().find(|link| link.name == name).cloned();
        Ok(found.map(|link| Follow {
            links,
            life: Life::begin(&link),
            outages,
            index: Some(link.index),
            look_again: false,
        }))
    }

    /// To be waited on for more.
    pub(super) fn fd(&self) -> RawFd {
        self.links.fd()
    }

    /// Reported once at the start, where nothing can come yet.
    pub(super) fn start(&mut self, now_ns: i64) -> Option<StateChange> {
        let link = self.links.get(self.index?)?;
        let change = self.life.start(link);
        self.outages.note(OWN, &self.life, true, now_ns);
        change
    }

    /// Its changes since the last look, in order; `socket` captures it.
    pub(super) fn look(
        &mut self,
        socket: Option<BorrowedFd<'_>>,
        now_ns: impl Fn() -> i64,
    ) -> io::Result<Vec<StateChange>> {
        self.outages.look(now_ns());
        let links = self.links.read()?;
        let mut changes = Vec::new();
        for change in &links.changes {
            match change {
                Change::Gone(index) if Some(*index) == self.index => changes.push(self.remove()),
                Change::Gone(_) => {}
                Change::Link(link) if Some(link.index) == self.index => {
                    changes.extend(
                        [self.life.rename(link), self.life.link(link), self.life.mtu(link)]
                            .into_iter()
                            .flatten(),
                    );
                }
                Change::Link(link) => self.look_again |= *link.name == *self.life.name,
            }
            self.outages.note(OWN, &self.life, true, now_ns());
        }
        // After a new list: it may have been replaced by one of the same number, which the kernel says of the
        // socket.
        let bound = socket.and_then(|socket| bound_index(socket).ok());
        if links.listed && self.index.is_some() && bound.is_some_and(|bound| Some(bound) != self.index) {
            changes.push(self.remove());
            self.outages.note(OWN, &self.life, true, now_ns());
        }
        self.look_again |= links.listed;
        Ok(changes)
    }

    fn remove(&mut self) -> StateChange {
        (self.index, self.look_again) = (None, true);
        self.life.remove()
    }

    /// The interface that may be captured in place of the one that is gone; the same one is returned again
    /// when it has changed. libpcap opens none that is down.
    pub(super) fn comer(&mut self) -> Option<Link> {
        if self.index.is_some() || !std::mem::take(&mut self.look_again) {
            return None;
        }
        self.links.all().find(|link| *link.name == *self.life.name && link.state != LinkState::Down).cloned()
    }

    /// It is captured again, as `link`.
    pub(super) fn come_back(&mut self, link: &Link, now_ns: i64) -> StateChange {
        self.index = Some(link.index);
        let change = self.life.restore(link);
        self.outages.note(OWN, &self.life, true, now_ns);
        change
    }
}
