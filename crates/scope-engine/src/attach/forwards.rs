//! Forwards: members within the run, each with a thread that sends what it is given out of an interface.
//!
//! ```text
//! before rights are given up   the interface is looked at, its socket opened, a seat taken, the seat's memory mapped
//! behind that line             read in place ─► judge ─► copy ─► send ─► say on the page how far it is
//! ```
//! To the threads that share, a forward is a member as any other, with a connection that both of its ends are of this
//! process. `read` is what was sent or refused: what it has in its hand still counts as behind.

use crate::plan::ForwardPlan;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use scope_fault::Fault;
use scope_group::Seat;
use scope_share::Joined;
use scope_share::page::Standing;
use scope_source::sending::{Counts, Judge, Outlet, Padding, SendSocket, Straight, not_opened};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use wirescope::{Member, Next, ReadError};

/// How often a forward that has nothing to do looks whether it is to stop.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// What a forward has done, for those who ask.
#[derive(Default)]
pub(super) struct Told {
    counts: Mutex<Counts>,
    failure: Mutex<Option<Fault>>,
}

impl Told {
    /// Packets by what became of them: all that was read is sent or refused.
    pub(super) fn counts(&self) -> Counts {
        *locked(&self.counts)
    }

    /// What went wrong with it that has no word of its own.
    pub(super) fn failure(&self) -> Option<Fault> {
        locked(&self.failure).clone()
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A forward, as others see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForwardStatus {
    /// Its name as a member.
    pub name: String,
    /// The interface that it sends out of.
    pub interface: String,
    /// What it was given; `read` is what was sent or refused.
    pub standing: Standing,
    /// What became of that.
    pub counts: Counts,
}

impl ForwardStatus {
    /// Of one that was given so many packets, of which so many found no room.
    pub(super) fn new(own: &Own, (given, missed): (u64, u64)) -> ForwardStatus {
        let counts = own.told.counts();
        // It may have sent what the thread that shares is still to count.
        let given = given.max(counts.read.saturating_add(missed));
        let standing = Standing { given, read: counts.read, missed, behind: given - counts.read - missed };
        ForwardStatus { name: own.name.clone(), interface: own.interface.clone(), standing, counts }
    }
}

/// What a group knows of a forward.
pub(super) struct Own {
    /// Its seat.
    pub number: u16,
    pub name: String,
    pub interface: String,
    pub told: Arc<Told>,
}

/// What a forward is made of, before it has joined.
pub(super) struct Outgoing {
    setting: String,
    outlet: Outlet,
    socket: SendSocket,
    /// The door's end of its connection, and its own.
    ends: (OwnedFd, OwnedFd),
}

impl Outgoing {
    /// Opens what it sends through.
    ///
    /// # Errors
    /// Why it can't send there.
    pub(super) fn open(plan: &ForwardPlan) -> Result<Outgoing, Fault> {
        let fault = || Fault::of("forward").with_value(plan.to_string());
        let outlet = Outlet::look(&plan.interface).map_err(|found| {
            let first = found.into_iter().next();
            first.map_or_else(fault, |against| against.into_fault(fault(), &plan.interface))
        })?;
        let socket = SendSocket::open(outlet.index, outlet.tagged_bytes_max());
        let socket = socket.map_err(|error| not_opened(&error, fault(), &plan.interface))?;
        let ends = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None);
        let ends = ends.map_err(|error| fault().error(&std::io::Error::from(error)))?;
        Ok(Outgoing { setting: plan.to_string(), outlet, socket, ends })
    }

    /// The door's end of its connection.
    pub(super) fn connection(&self) -> &OwnedFd {
        &self.ends.0
    }

    /// Sits down on this seat: the forward, which ends when `stop` is set, and the door's end of its connection.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn sit(
        self,
        number: u16,
        seat: &Seat,
        told: &Arc<Told>,
        stop: &Arc<AtomicBool>,
    ) -> Result<(Forward, OwnedFd), Fault> {
        let Outgoing { setting, outlet, socket, ends: (of_door, own) } = self;
        let fault = || Fault::of("forward").with_value(&setting);
        let [tables, slots] = seat.memory().sealed_files().map_err(|error| fault().error(error))?;
        let copy = |file: BorrowedFd<'_>| file.try_clone_to_owned().map_err(|error| fault().error(&error));
        let (ring, page) = ([copy(tables)?, copy(slots)?], copy(seat.page().as_fd())?);
        let member = Member::of(Joined::within(number, ring, page, own));
        let member = member.map_err(|error| fault().cause(error.to_string()))?;
        let straight = Straight::new(Judge::new(outlet, Padding::Zero), socket, stop.clone());
        let forward = Forward { setting, member, straight, told: told.clone(), stop: stop.clone() };
        Ok((forward, of_door))
    }
}

/// A forward that can begin.
pub(super) struct Forward {
    setting: String,
    member: Member,
    straight: Straight<SendSocket>,
    told: Arc<Told>,
    stop: Arc<AtomicBool>,
}

impl Forward {
    /// Begins to send.
    ///
    /// # Errors
    /// The system gives no thread.
    pub(super) fn begin(self, index: usize) -> std::io::Result<JoinHandle<()>> {
        std::thread::Builder::new().name(format!("forward-{index}")).spawn(move || self.work())
    }

    fn work(mut self) {
        while !self.stop.load(Ordering::Relaxed) {
            let went = match self.member.next(Some(LOOK_EVERY)) {
                Ok(Next::Packets(_)) => self.send(),
                Ok(Next::NoneYet) => Ok(()),
                Ok(Next::Ended) => return,
                Err(error) => Err(error),
            };
            if let Err(error) = went {
                self.fail(&error.to_string());
                return;
            }
        }
    }

    /// Sends the packets that are lent at the moment: those of one lane, and so of one link type.
    fn send(&mut self) -> Result<(), ReadError> {
        let Some(number) = self.member.packets().next().map(|packet| packet.interface) else { return Ok(()) };
        let unknown = || ReadError(format!("interface {number} is not described"));
        let link_type = self.member.interface(number)?.ok_or_else(unknown)?.link_type;
        for packet in self.member.packets() {
            let (data, len) = (packet.data, packet.data.len());
            self.straight.push(link_type, len, packet.original_len, |room| {
                data.copy_to(room);
            });
        }
        self.straight.flush();
        *locked(&self.told.counts) = self.straight.counts();
        if let Some(error) = self.straight.error().map(ToString::to_string) {
            self.fail(&error);
        }
        Ok(())
    }

    /// The first failure is the one that is told.
    fn fail(&self, cause: &str) {
        let fault = || Fault::of("forward").with_value(&self.setting).cause(cause);
        locked(&self.told.failure).get_or_insert_with(fault);
    }
}
