//! The door for other programs: a thread that takes members at a socket, hands them the ring, and knows how far each of them
//! is.
//!
//! ```text
//! before rights are given up   socket, pages, the ring's sealed files: all that a member can get is there
//! behind that line             accept, receive, send, poll, read a page: calls that a run may make anyhow
//! ```
//! All that comes in is taken for hostile: a message is one of few bytes or is refused, descriptors are never taken, whoever
//! says nothing is sent away, and no call waits for anybody. Nothing here reaches a worker: what members read is memory
//! that they can't write. At the end of the run connections end; what is committed stays readable for who has it mapped.

mod members;

pub use members::{DoorCounts, GoneStatus, MEMBERS_MAX, MemberStatus};

use crate::plan::AttachPlan;
use crate::socket::Socket;
use members::Members;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{SocketFlags, accept_with};
use scope_fault::Fault;
use scope_machine::limits::stand_back;
use scope_rights::{PeerCredentials, User, Writable};
use scope_ring::Ring;
use scope_share::message::{Answer, BadMessage, Greeting, Refusal};
use scope_share::passing::{Heard, hear, say};
use scope_share::{RING, VERSION};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Connections at once, those of members included.
pub const CONNECTIONS_MAX: usize = MEMBERS_MAX + 32;
/// Of these: of users who may not be members, and are told so.
const STRANGERS_MAX: usize = 16;
/// Connections that are taken before those that are there are looked at again.
const TAKEN_AT_ONCE: usize = 32;
/// So long somebody who has connected may take for the greeting.
const GREETING_TIME: Duration = Duration::from_secs(1);
/// Between two looks at whether the run is over, and at who says nothing.
const LOOK_EVERY: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
/// Between so many connections and the next ones, so that a flood of them leaves the processor to others.
const BREATH: Duration = Duration::from_millis(10);
/// Where the system gives no descriptor for a connection.
const PAUSE: Duration = Duration::from_millis(100);

/// The group, as others see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttachStatus {
    /// Where members connect.
    pub path: PathBuf,
    /// Packets in the ring since the run began.
    pub published: u64,
    /// Those who read it.
    pub members: Vec<MemberStatus>,
    /// Those who did.
    pub gone: GoneStatus,
    /// What was refused and survived.
    pub counts: DoorCounts,
}

/// What there is before rights are given up.
pub(crate) struct Prepared {
    socket: Socket,
    listener: OwnedFd,
    members: Members,
}

impl Prepared {
    /// Binds the socket for who the run will be, and makes all pages.
    ///
    /// # Errors
    /// They can't be had, or the ring can't be given to others.
    pub(crate) fn open(plan: &AttachPlan, ring: &Ring, user: Option<&User>) -> Result<Prepared, Fault> {
        let fault = || Fault::of("attach").with_value(plan.path.to_string_lossy());
        ring.sealed_files().map_err(|error| {
            let cause = format!("the ring can't be given to others: its memory can't be sealed: {error}");
            fault().cause(cause).remedy("it takes Linux 5.1 or later; omit the flag on older ones")
        })?;
        let socket = Socket::bind(plan, user)?;
        let listener = socket.descriptor().map_err(|error| fault().error(&error))?;
        let members = Members::new(&plan.ring).map_err(|error| fault().error(&error))?;
        Ok(Prepared { socket, listener, members })
    }

    /// What rights must leave of the socket's folder.
    pub(crate) fn writable(&self) -> Writable<'_> {
        self.socket.writable()
    }

    /// Takes members of `ring` from now on.
    ///
    /// # Errors
    /// The system gives no thread.
    pub(crate) fn start(self, ring: &Arc<Ring>) -> io::Result<Attach> {
        let Prepared { socket, listener, members } = self;
        let desk = Arc::new(Desk { ring: ring.clone(), members: Mutex::new(members) });
        let stop = Arc::new(AtomicBool::new(false));
        let door = Door { desk: desk.clone(), stop: stop.clone(), guests: Vec::new() };
        let thread = std::thread::Builder::new().name("attach".to_string());
        let thread = thread.spawn(move || door.work(&listener))?;
        Ok(Attach { desk, stop, thread: Mutex::new(Some(thread)), socket })
    }
}

/// The open door.
pub struct Attach {
    desk: Arc<Desk>,
    stop: Arc<AtomicBool>,
    thread: Mutex<Option<JoinHandle<()>>>,
    socket: Socket,
}

impl Attach {
    /// Where members connect.
    pub fn path(&self) -> &Path {
        self.socket.path()
    }

    /// How it stands now. Never asked by a worker.
    pub fn status(&self) -> AttachStatus {
        let members = self.desk.members();
        let published = self.desk.published();
        let (status, gone) = members.status(published);
        let path = self.socket.path().to_path_buf();
        AttachStatus { path, published, members: status, gone, counts: members.counts }
    }

    /// Ends all connections: nothing more is published.
    pub(crate) fn end(&self) {
        self.stop.store(true, Ordering::Relaxed);
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            let _ = thread.join();
        }
    }
}

impl Drop for Attach {
    fn drop(&mut self) {
        self.end();
    }
}

/// What the door and those who ask how it stands have in common.
struct Desk {
    ring: Arc<Ring>,
    /// Locked for moments, by the door's thread and by who asks.
    members: Mutex<Members>,
}

impl Desk {
    fn members(&self) -> MutexGuard<'_, Members> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn published(&self) -> u64 {
        self.ring.counters().lanes.iter().map(|lane| lane.packets).sum()
    }
}

/// How far somebody is who has connected.
enum Stage {
    /// Has said nothing yet, since then.
    Greeting(Instant),
    /// Is this member.
    Member(u16),
}

/// Somebody who has connected.
struct Guest {
    socket: OwnedFd,
    peer: PeerCredentials,
    is_stranger: bool,
    stage: Stage,
}

struct Door {
    desk: Arc<Desk>,
    stop: Arc<AtomicBool>,
    guests: Vec<Guest>,
}

impl Door {
    fn work(mut self, listener: &OwnedFd) {
        stand_back(); // whoever floods it gets what capture leaves
        while !self.stop.load(Ordering::Relaxed) {
            let mut ready = Vec::with_capacity(self.guests.len() + 1);
            ready.push(PollFd::new(listener, PollFlags::IN));
            ready.extend(self.guests.iter().map(|guest| PollFd::new(&guest.socket, PollFlags::IN)));
            if poll(&mut ready, Some(&LOOK_EVERY)).is_err() {
                std::thread::sleep(PAUSE);
                continue;
            }
            let is_ready: Vec<bool> = ready.iter().map(|one| !one.revents().is_empty()).collect();
            drop(ready);
            let desk = self.desk.clone();
            let mut is_guest_ready = is_ready[1..].iter();
            self.guests.retain_mut(|guest| {
                let is_ready = is_guest_ready.next().copied().unwrap_or_default();
                let stays = if is_ready { desk.hear(guest) } else { desk.is_patient(guest) };
                if let (false, Stage::Member(number)) = (stays, &guest.stage) {
                    desk.members().leave(*number, desk.published());
                }
                stays
            });
            if is_ready[0] && self.take(listener) {
                std::thread::sleep(BREATH);
            }
        }
        for guest in &self.guests {
            if let Stage::Member(number) = guest.stage {
                self.desk.members().leave(number, self.desk.published());
            }
        }
    }

    /// Takes connections that wait; whether there may be more.
    fn take(&mut self, listener: &OwnedFd) -> bool {
        for _ in 0..TAKEN_AT_ONCE {
            let socket = match accept_with(listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
                Ok(socket) => socket,
                Err(error) => {
                    if io::Error::from(error).kind() != io::ErrorKind::WouldBlock {
                        std::thread::sleep(PAUSE); // no descriptor is to be had, or who connected is gone
                    }
                    return false;
                }
            };
            let Ok(peer) = PeerCredentials::of(&socket) else { continue };
            let is_stranger = !self.desk.members().may(&peer);
            let strangers = self.guests.iter().filter(|guest| guest.is_stranger).count();
            if self.guests.len() >= CONNECTIONS_MAX || is_stranger && strangers >= STRANGERS_MAX {
                self.desk.members().counts.connections += 1;
                let (why, words) = (Refusal::Full, "there are too many connections".to_string());
                let _ = say(&socket, &Answer::Refused { why, words }.to_bytes(), &[]);
                continue;
            }
            self.guests.push(Guest { socket, peer, is_stranger, stage: Stage::Greeting(Instant::now()) });
        }
        true
    }
}

impl Desk {
    /// Whether somebody who says nothing may stay.
    fn is_patient(&self, guest: &Guest) -> bool {
        let Stage::Greeting(since) = guest.stage else { return true };
        let stays = since.elapsed() < GREETING_TIME;
        self.members().counts.silent += u64::from(!stays);
        stays
    }

    /// Takes a message; whether the connection goes on.
    fn hear(&self, guest: &mut Guest) -> bool {
        let heard = match hear(&guest.socket) {
            Ok(heard) => heard,
            Err(error) => return error.kind() == io::ErrorKind::WouldBlock,
        };
        let bytes = match heard {
            Heard::End => return false,
            Heard::TooLong => {
                self.members().counts.too_long += 1;
                return self.refuse(guest, Refusal::BadMessage, "the message is too long");
            }
            Heard::WithFiles => {
                self.members().counts.with_files += 1;
                return self.refuse(guest, Refusal::BadMessage, "descriptors came with the message");
            }
            Heard::Message(bytes) => bytes,
        };
        if let Stage::Member(_) = guest.stage {
            self.members().counts.unexpected += 1;
            return false;
        }
        let greeting = match Greeting::read(&bytes) {
            Ok(greeting) => greeting,
            Err(bad @ BadMessage::Version(_)) => {
                return self.refuse(guest, Refusal::Version, &format!("{bad}; the run speaks {VERSION}"));
            }
            Err(bad) => return self.refuse(guest, Refusal::BadMessage, &bad.to_string()),
        };
        // Who may read nothing needn't know what there is.
        if greeting.group != RING && !guest.is_stranger {
            let words = format!("there is no group '{}'", greeting.group.escape_default());
            return self.refuse(guest, Refusal::NoSuchGroup, &words);
        }
        self.join(guest, &greeting.name)
    }

    fn join(&self, guest: &mut Guest, name: &str) -> bool {
        let joined = self.members().join(name, &guest.peer);
        let (number, page) = match joined {
            Ok(joined) => joined,
            Err(why) => {
                let words = match why {
                    Refusal::NotAllowed => format!("user {} may not read the ring", guest.peer.uid),
                    _ => format!("there are {MEMBERS_MAX} members, or no page for another user"),
                };
                return self.refuse(guest, why, &words);
            }
        };
        guest.stage = Stage::Member(number);
        // They were there when the run began.
        let Ok([tables, slots]) = self.ring.sealed_files() else { return false };
        let answer = Answer::Joined { member: number, is_kept: false }.to_bytes();
        say(&guest.socket, &answer, &[tables, slots, page.as_fd()]).is_ok()
    }

    /// Says no, and ends the connection.
    fn refuse(&self, guest: &Guest, why: Refusal, words: &str) -> bool {
        let at = Refusal::ALL.iter().position(|other| *other == why).unwrap_or_default();
        self.members().counts.refused[at] += 1;
        let words = words.to_string();
        let _ = say(&guest.socket, &Answer::Refused { why, words }.to_bytes(), &[]);
        false
    }
}

#[cfg(test)]
mod tests;
