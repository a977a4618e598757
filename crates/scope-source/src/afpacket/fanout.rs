//! The fan-out group: how the kernel deals one interface's packets out to several sockets.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::socket::Socket;

/// How packets are dealt out to the workers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FanoutMode {
    /// By flow: both directions of a connection come to the same worker.
    #[default]
    Hash,
    /// By the CPU that received the packet.
    Cpu,
    /// By the network card's queue.
    Queue,
    /// In turn.
    RoundRobin,
}

impl FanoutMode {
    fn number(self) -> u32 {
        match self {
            FanoutMode::Hash => libc::PACKET_FANOUT_HASH,
            FanoutMode::Cpu => libc::PACKET_FANOUT_CPU,
            FanoutMode::Queue => libc::PACKET_FANOUT_QM,
            FanoutMode::RoundRobin => libc::PACKET_FANOUT_LB,
        }
    }
}

/// One group, shared by the sockets that join it. The kernel picks a number that is not in use, so that a
/// second Wirescope on the same interface gets all packets, too, instead of half of the first one's.
pub(super) struct FanoutGroup {
    mode: FanoutMode,
    /// The group's number once its first socket has joined; the lock lets only one found it.
    id: Mutex<Option<u16>>,
}

impl FanoutGroup {
    pub(super) fn new(mode: FanoutMode) -> FanoutGroup {
        FanoutGroup { mode, id: Mutex::new(None) }
    }

    /// Joins the group. Kernels before 6.13 refuse (EINVAL) while the interface is down.
    pub(super) fn join(&self, socket: &Socket) -> io::Result<()> {
        let mut id = self.id.lock().unwrap_or_else(PoisonError::into_inner);
        *id = Some(socket.join_fanout(*id, self.mode.number())?);
        Ok(())
    }
}

/// The groups of one source's workers: one for each interface that is captured.
pub(super) struct Groups {
    mode: FanoutMode,
    /// By the interface's number; a group lives as long as one of its sockets.
    of: Mutex<BTreeMap<i32, Weak<FanoutGroup>>>,
}

impl Groups {
    pub(super) fn new(mode: FanoutMode) -> Groups {
        Groups { mode, of: Mutex::default() }
    }

    /// The group of interface `index`.
    pub(super) fn of(&self, index: i32) -> Arc<FanoutGroup> {
        let mut groups = self.of.lock().unwrap_or_else(PoisonError::into_inner);
        groups.retain(|_, group| group.strong_count() > 0);
        if let Some(group) = groups.get(&index).and_then(Weak::upgrade) {
            return group;
        }
        let group = Arc::new(FanoutGroup::new(self.mode));
        groups.insert(index, Arc::downgrade(&group));
        group
    }
}
