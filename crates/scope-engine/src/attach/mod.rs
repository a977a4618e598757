//! The door for other programs: a thread that takes members at a socket, hands them the ring, or the memory of a seat in a
//! group, and knows how far each of them is.
//!
//! ```text
//! before rights are given up   socket, pages, the ring's sealed files: all that a member can get is there
//! behind that line             accept, receive, send, poll, read a page: calls that a run may make anyhow
//! ```
//! All that comes in is taken for hostile: a message is one of few bytes or is refused, descriptors are never taken, whoever
//! says nothing is sent away, and no call waits for anybody. Nothing here reaches a worker: what members read is memory
//! that they can't write. At the end of the run connections end; what is committed stays readable for who has it mapped.

mod facts;
mod forwards;
mod members;

pub(crate) use facts::warnings;
pub use forwards::ForwardStatus;
pub use members::{DoorCounts, GroupStatus, MEMBERS_MAX, MemberStatus};

use crate::plan::{Allowed, AttachPlan, ForwardPlan, GroupEntry};
use crate::socket::{Place as SocketPlace, Socket};
use forwards::{Forward, Outgoing};
use members::{Handed, Members};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{SocketFlags, accept_with};
use scope_fault::{Fault, Setting, sentence};
use scope_filter::FilterEngine;
use scope_group::{Group, Sharer, Sharing};
use scope_machine::cpus::Pinning;
use scope_machine::limits::stand_back;
use scope_rights::{PeerCredentials, User, Writable};
use scope_ring::{Ahead, Ring};
use scope_share::message::{Answer, BadMessage, Greeting, HOLD_WHOLE, Refusal, news};
use scope_share::passing::{Heard, hear, say};
use scope_share::{RING, VERSION};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{JoinHandle, Thread};
use std::time::{Duration, Instant};

/// Connections at once, besides those of members.
pub const GUESTS_MAX: usize = 32;
/// Of these: of users who may not be members, and are told so.
const STRANGERS_MAX: usize = 16;
/// Names of groups that a refusal says.
const NAMED_MAX: usize = 6;
/// Members that were removed, and of which the run has still to say so, at most.
const REMOVALS_MAX: usize = 64;
/// Connections that are taken before those that are there are looked at again.
const TAKEN_AT_ONCE: usize = 32;
/// So long somebody who has connected may take for the greeting.
const GREETING_TIME: Duration = Duration::from_secs(1);
/// Between two looks at whether the run is over, and at who says nothing.
const LOOK_EVERY: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
/// Between two looks at what is to be held of the ring, while a member wants it.
const HOLD_EVERY: Duration = Duration::from_millis(5);
/// The same while none does.
const HOLD_IDLE: Duration = Duration::from_millis(100);
/// Between so many connections and the next ones, so that a flood of them leaves the processor to others.
const BREATH: Duration = Duration::from_millis(10);
/// Where the system gives no descriptor for a connection.
const PAUSE: Duration = Duration::from_millis(100);

/// Members of a run that loses nothing have so long to join before it begins.
pub const JOIN_TIME: Duration = Duration::from_secs(60);
/// Members have so long to read the rest at the end of a run.
pub const REST_TIME: Duration = Duration::from_secs(10);
/// Forwards are given packets before the first one is captured; that takes a moment, and no longer than this.
const SEATED_TIME: Duration = Duration::from_secs(5);
/// Between two looks at that.
const SEATED_EVERY: Duration = Duration::from_micros(200);

/// The door, as others see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttachStatus {
    /// Where members connect; `None`: only forwards are members.
    pub path: Option<PathBuf>,
    /// The ring itself first, where somebody can connect, then all groups.
    pub groups: Vec<GroupStatus>,
    /// What was refused and survived.
    pub counts: DoorCounts,
}

/// What there is before rights are given up.
pub(crate) struct Prepared {
    /// `None`: nobody connects.
    socket: Option<(Socket, OwnedFd)>,
    members: Vec<Members>,
    forwards: Vec<Forward>,
    /// The door's ends of their connections.
    guests: Vec<Guest>,
    stop_forwards: Arc<AtomicBool>,
    threads: (u32, Pinning),
    own: Allowed,
}

impl Prepared {
    /// Binds the socket for who the run will be, and makes all memories and pages.
    ///
    /// # Errors
    /// They can't be had, or the ring can't be given to others.
    pub(crate) fn open(plan: &AttachPlan, ring: &Ring, user: Option<&User>) -> Result<Prepared, Fault> {
        let fault = || match (&plan.path, plan.forwards.first()) {
            (None, Some(forward)) => Fault::of("forward").with_value(forward.to_string()),
            (path, _) => Fault::of("attach")
                .with_value(path.iter().map(|path| path.to_string_lossy()).collect::<String>()),
        };
        ring.sealed_files().map_err(|error| {
            let cause = format!("the ring can't be given to others: its memory can't be sealed: {error}");
            fault().cause(cause).remedy("it takes Linux 5.1 or later; omit the flag on older ones")
        })?;
        // Whoever nothing else was said of.
        let own = Allowed {
            users: vec![
                User { name: "root".to_string(), uid: 0, gid: 0 },
                user.cloned().unwrap_or_else(User::current),
            ],
            groups: Vec::new(),
        };
        let mut members = vec![Members::of_ring(&plan.ring).map_err(|error| fault().error(&error))?];
        for entry in &plan.groups {
            let group = Group::create(&entry.plan, ring.run_id()).map_err(|error| {
                let smaller = sentence!["choose less memory= or members-max= for ", Setting::of("group")];
                Fault::of("group").with_value(&entry.plan.name).cause(error.to_string()).remedy(smaller)
            })?;
            members.push(Members::of_group(entry.allowed.as_ref().unwrap_or(&own), &Arc::new(group)));
        }
        let socket = plan.path.as_deref().map(|path| Socket::bind(SocketPlace::of_attach(path), user));
        let socket = socket.transpose()?.map(|socket| match socket.descriptor() {
            Ok(listener) => Ok((socket, listener)),
            Err(error) => Err(fault().error(&error)),
        });
        let socket = socket.transpose()?;
        let stop_forwards = Arc::new(AtomicBool::new(false));
        let (mut forwards, mut guests) = (Vec::new(), Vec::new());
        for plan in &plan.forwards {
            let (forward, guest) = seat(plan, &mut members, &stop_forwards)?;
            forwards.push(forward);
            guests.push(guest);
        }
        let threads = (plan.threads, plan.pinning.clone());
        Ok(Prepared { socket, members, forwards, guests, stop_forwards, threads, own })
    }

    /// What rights must leave of the socket's folder, if there is a socket.
    pub(crate) fn writable(&self) -> Option<Writable<'_>> {
        self.socket.as_ref().map(|(socket, _)| socket.writable())
    }

    /// Takes members of `ring` and of groups from now on. Live, nobody waits for them.
    ///
    /// # Errors
    /// The system gives no thread.
    pub(crate) fn start(self, ring: &Arc<Ring>, is_live: bool, engine: FilterEngine) -> io::Result<Attach> {
        let Prepared { socket, members, forwards, guests, stop_forwards, threads: (threads, pinning), own } =
            self;
        let groups: Vec<Arc<Group>> = members.iter().filter_map(Members::group).cloned().collect();
        let sharer = Sharer { ring: ring.clone(), groups, threads, pinning, is_live, engine };
        let sharing = (!sharer.groups.is_empty()).then(|| Sharing::start(&sharer)).transpose()?;
        let connections_max = GUESTS_MAX + members.iter().map(Members::seats).sum::<usize>();
        let table = Mutex::new(Table { members, counts: DoorCounts::default(), removals: Vec::new() });
        let desk = Arc::new(Desk { ring: ring.clone(), table, sharing, own, holder: OnceLock::new() });
        let stop = Arc::new(AtomicBool::new(false));
        let (socket, listener) = socket.unzip();
        let door = Door { desk: desk.clone(), stop: stop.clone(), guests, connections_max };
        let named = |name: &str| std::thread::Builder::new().name(name.to_string());
        let mut working = vec![named("attach").spawn(move || door.work(listener.as_ref()))?];
        if socket.is_some() {
            let (of_holder, stop) = (desk.clone(), stop.clone());
            let holder = named("hold").spawn(move || of_holder.hold(&stop))?;
            let _ = desk.holder.set(holder.thread().clone());
            working.push(holder);
        }
        let attach = Attach {
            desk,
            stop,
            working: Mutex::new(working),
            stop_forwards,
            forwards: Mutex::default(),
            socket,
        };
        for (index, forward) in forwards.into_iter().enumerate() {
            attach.forwards().push(forward.begin(index)?);
        }
        attach.wait_for_forwards();
        Ok(attach)
    }
}

/// The open door.
pub struct Attach {
    desk: Arc<Desk>,
    stop: Arc<AtomicBool>,
    working: Mutex<Vec<JoinHandle<()>>>,
    stop_forwards: Arc<AtomicBool>,
    /// Those that go, protected for the end.
    forwards: Mutex<Vec<JoinHandle<()>>>,
    socket: Option<Socket>,
}

impl Attach {
    /// Where members connect; `None`: only forwards are members.
    pub fn path(&self) -> Option<&Path> {
        self.socket.as_ref().map(Socket::path)
    }

    fn forwards(&self) -> MutexGuard<'_, Vec<JoinHandle<()>>> {
        self.forwards.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until forwards are given packets.
    fn wait_for_forwards(&self) {
        let begun = Instant::now();
        let is_seated = |members: &Members| members.forwards_seated();
        while !self.desk.table().members.iter().all(is_seated) && begun.elapsed() < SEATED_TIME {
            std::thread::sleep(SEATED_EVERY);
        }
    }

    /// What went wrong with forwards.
    pub(crate) fn failures(&self) -> Vec<Fault> {
        self.desk.table().members.iter().flat_map(Members::failures).collect()
    }

    /// How it stands now. Never asked by a worker.
    pub fn status(&self) -> AttachStatus {
        let table = self.desk.table();
        let published = self.desk.published();
        let path = self.path().map(Path::to_path_buf);
        let shown = table.members.iter().filter(|members| path.is_some() || members.group().is_some());
        let groups = shown.map(|members| members.status(published)).collect();
        AttachStatus { path, groups, counts: table.counts }
    }

    /// Groups that still lack members whom a run that loses nothing waits for: name, how many there are, how many are
    /// wanted.
    pub(crate) fn lacking(&self) -> Vec<(String, usize, usize)> {
        let table = self.desk.table();
        let lacks = |members: &Members| {
            let group = members.group()?;
            let (active, wanted) = (members.active(), group.members_wanted() as usize);
            (active < wanted).then(|| (group.name().to_string(), active, wanted))
        };
        table.members.iter().filter_map(lacks).collect()
    }

    /// What is to be said of members that were removed since the last look.
    pub(crate) fn take_removals(&self) -> Vec<String> {
        std::mem::take(&mut self.desk.table().removals)
    }

    /// Puts in force what may change while the run goes; what waits for the next start, in words.
    pub(crate) fn change(&self, ring: &Allowed, groups: &[GroupEntry]) -> Vec<String> {
        let mut waiting = Vec::new();
        let mut table = self.desk.table();
        for members in &mut table.members {
            let Some(group) = members.group().cloned() else {
                members.set_allowed(ring);
                continue;
            };
            let Some(entry) = groups.iter().find(|entry| entry.plan.name == group.name()) else {
                waiting.push(format!("group {}: stays until the next start", group.name()));
                continue;
            };
            members.set_allowed(entry.allowed.as_ref().unwrap_or(&self.desk.own));
            let (settings, _) = group.settings();
            let new = &entry.plan.settings;
            if !settings.is_same(new) {
                group.change(new.clone());
            }
            let sizes = group.sizes_that_wait(&entry.plan);
            waiting
                .extend(sizes.map(|size| format!("group {}: {size} waits for the next start", group.name())));
        }
        let is_known = |name: &str| table.members.iter().any(|members| members.name() == name);
        let new = groups.iter().filter(|entry| !is_known(&entry.plan.name));
        waiting.extend(
            new.map(|entry| format!("group {}: is new, and waits for the next start", entry.plan.name)),
        );
        let copies = groups.iter().flat_map(|entry| {
            let targets = entry.plan.settings.rules.targets().iter();
            targets.map(|target| (entry.plan.name.as_str(), target.as_str()))
        });
        let is_apart = |(one, other): &(&str, &str)| {
            let served = self.desk.sharing.as_ref();
            is_known(one) && is_known(other) && !served.is_some_and(|it| it.serves_together(one, other))
        };
        waiting.extend(copies.filter(is_apart).map(|(name, target)| {
            format!(
                "group {name}: copies to {target} wait for the next start, since another thread serves it"
            )
        }));
        drop(table);
        self.desk.ring_bell();
        waiting
    }

    /// All that there will be is in the ring: members get the rest, and a while to read it.
    pub(crate) fn finish(&self) {
        if let Some(sharing) = &self.desk.sharing {
            sharing.finish();
        }
    }

    /// Whether members are still given packets, or have some to read; `finished`: when the former was over.
    pub(crate) fn is_read_from(&self, finished: &mut Option<Instant>) -> bool {
        if self.desk.sharing.as_ref().is_some_and(|sharing| !sharing.has_finished()) {
            return true;
        }
        let since = finished.get_or_insert_with(Instant::now);
        let reads = |status: &GroupStatus| status.members.iter().any(|member| member.standing.behind > 0);
        since.elapsed() < REST_TIME && self.status().groups.iter().any(reads)
    }

    /// Ends forwards, and all connections: nothing more is published.
    pub(crate) fn end(&self) {
        self.stop_forwards.store(true, Ordering::Relaxed);
        let forwards = std::mem::take(&mut *self.forwards());
        for forward in forwards {
            let _ = forward.join();
        }
        self.stop.store(true, Ordering::Relaxed);
        let working = std::mem::take(&mut *self.working.lock().unwrap_or_else(PoisonError::into_inner));
        for thread in working {
            thread.thread().unpark();
            let _ = thread.join();
        }
        if let Some(sharing) = &self.desk.sharing {
            sharing.end();
        }
    }
}

impl Drop for Attach {
    fn drop(&mut self) {
        self.end();
    }
}

/// Gives a forward the next seat of its group: itself, and its end of the door.
fn seat(
    plan: &ForwardPlan,
    members: &mut [Members],
    stop: &Arc<AtomicBool>,
) -> Result<(Forward, Guest), Fault> {
    let fault = || Fault::of("forward").with_value(plan.to_string());
    let outgoing = Outgoing::open(plan)?;
    let is_its = |of: &Members| of.group().is_some() && of.name() == plan.group;
    let group = members.iter().position(is_its).ok_or_else(|| fault().cause("there is no such group"))?;
    let peer = PeerCredentials::of(outgoing.connection()).map_err(|error| fault().error(&error))?;
    let joined = members[group].join_own(plan, &peer, outgoing.connection());
    let (number, seat, told) = joined.ok_or_else(|| {
        fault().cause("the group has no seat for it").remedy("raise members-max= of the group")
    })?;
    let (forward, socket) = outgoing.sit(number, &seat, &told, stop)?;
    let stage = Stage::Member(Place { group, number });
    Ok((forward, Guest { socket, peer, is_stranger: false, stage }))
}

/// All members, and what was refused.
struct Table {
    /// The ring's first, then each group's.
    members: Vec<Members>,
    counts: DoorCounts,
    /// What the run has still to say of members that it has removed.
    removals: Vec<String>,
}

impl Table {
    /// Names of the groups that this one may join, as many as a message has room for.
    fn open_to(&self, peer: &PeerCredentials) -> Vec<String> {
        let open = self.members.iter().filter(|members| members.may(peer));
        open.map(|members| members.name().to_string()).take(NAMED_MAX).collect()
    }
}

/// What the door and those who ask how it stands have in common.
struct Desk {
    ring: Arc<Ring>,
    /// Locked for moments, by the door's thread and by who asks.
    table: Mutex<Table>,
    /// `None`: there are no groups.
    sharing: Option<Sharing>,
    /// Who may be a member where nothing was said.
    own: Allowed,
    /// The thread that holds what readers of the ring still need.
    holder: OnceLock<Thread>,
}

impl Desk {
    /// Holds of the ring what its readers still need, as far as they may have it held: apart from the door, which others can
    /// keep busy.
    fn hold(&self, stop: &AtomicBool) {
        while !stop.load(Ordering::Relaxed) {
            let holds = self.table().members.first_mut().is_some_and(Members::hold); // the ring's
            std::thread::park_timeout(if holds { HOLD_EVERY } else { HOLD_IDLE });
        }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn published(&self) -> u64 {
        self.ring.counters().lanes.iter().map(|lane| lane.packets).sum()
    }

    /// The threads that share are to look who is there.
    fn ring_bell(&self) {
        if let Some(sharing) = &self.sharing {
            sharing.ring();
        }
    }

    /// A member is gone.
    fn leave(&self, Place { group, number }: Place) {
        let published = self.published();
        self.table().members[group].leave(number, published);
        self.ring_bell();
    }
}

/// A member's place.
#[derive(Clone, Copy)]
struct Place {
    /// Which group, from 0.
    group: usize,
    number: u16,
}

/// How far somebody is who has connected.
enum Stage {
    /// Has said nothing yet, since then.
    Greeting(Instant),
    /// Is this member.
    Member(Place),
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
    connections_max: usize,
}

impl Door {
    fn work(mut self, listener: Option<&OwnedFd>) {
        stand_back(); // whoever floods it gets what capture leaves
        while !self.stop.load(Ordering::Relaxed) {
            let mut ready = Vec::with_capacity(self.guests.len() + 1);
            ready.extend(self.guests.iter().map(|guest| PollFd::new(&guest.socket, PollFlags::IN)));
            ready.extend(listener.map(|listener| PollFd::new(listener, PollFlags::IN)));
            if poll(&mut ready, Some(&LOOK_EVERY)).is_err() {
                std::thread::sleep(PAUSE);
                continue;
            }
            let is_ready: Vec<bool> = ready.iter().map(|one| !one.revents().is_empty()).collect();
            drop(ready);
            let desk = self.desk.clone();
            let (of_guests, of_listener) = is_ready.split_at(self.guests.len());
            let mut is_guest_ready = of_guests.iter();
            self.guests.retain_mut(|guest| {
                let is_ready = is_guest_ready.next().copied().unwrap_or_default();
                let stays = if is_ready { desk.hear(guest) } else { desk.may_stay(guest) };
                if let (false, Stage::Member(place)) = (stays, &guest.stage) {
                    desk.leave(*place);
                }
                stays
            });
            if let (Some(listener), [true]) = (listener, of_listener)
                && self.take(listener)
            {
                std::thread::sleep(BREATH);
            }
        }
        for guest in &self.guests {
            if let Stage::Member(place) = guest.stage {
                self.desk.may_stay(guest); // who was removed a moment ago is told so
                self.desk.leave(place);
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
            let is_stranger = !self.desk.table().members.iter().any(|members| members.may(&peer));
            let strangers = self.guests.iter().filter(|guest| guest.is_stranger).count();
            if self.guests.len() >= self.connections_max || is_stranger && strangers >= STRANGERS_MAX {
                self.desk.table().counts.connections += 1;
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
    fn may_stay(&self, guest: &Guest) -> bool {
        let mut table = self.table();
        match guest.stage {
            Stage::Greeting(since) => {
                let stays = since.elapsed() < GREETING_TIME;
                table.counts.silent += u64::from(!stays);
                stays
            }
            Stage::Member(Place { group, number }) => {
                let stays = table.members[group].may_stay(number);
                if !stays {
                    table.members[group].tell_removed(number);
                    let words = table.members[group].removal(number);
                    if table.removals.len() < REMOVALS_MAX {
                        table.removals.extend(words);
                    }
                }
                table.counts.removed += u64::from(!stays);
                stays
            }
        }
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
                self.table().counts.too_long += 1;
                return self.refuse(guest, Refusal::BadMessage, "the message is too long");
            }
            Heard::WithFiles => {
                self.table().counts.with_files += 1;
                return self.refuse(guest, Refusal::BadMessage, "descriptors came with the message");
            }
            Heard::Message(bytes) => bytes,
        };
        if let Stage::Member(_) = guest.stage {
            self.table().counts.unexpected += 1;
            return false;
        }
        let greeting = match Greeting::read(&bytes) {
            Ok(greeting) => greeting,
            Err(bad @ BadMessage::Version(_)) => {
                return self.refuse(guest, Refusal::Version, &format!("{bad}; the run speaks {VERSION}"));
            }
            Err(bad) => return self.refuse(guest, Refusal::BadMessage, &bad.to_string()),
        };
        let group = self.table().members.iter().position(|members| members.name() == greeting.group);
        match (group, Greeting::asks_for(&bytes)) {
            (Some(group), Some(times)) => self.reply(guest, group, (&greeting, times)),
            (Some(group), None) => self.join(guest, group, &greeting),
            // Who may read nothing needn't know what there is.
            (None, _) if guest.is_stranger => self.refuse(guest, Refusal::NotAllowed, &may_not(guest, RING)),
            (None, _) => {
                let mut words = format!("there is no group '{}'", greeting.group.escape_default());
                let there = self.table().open_to(&guest.peer);
                if !there.is_empty() {
                    words += &format!("; there is {}", there.join(", "));
                }
                self.refuse(guest, Refusal::NoSuchGroup, &words)
            }
        }
    }

    /// Says whether so many would be let in who greet so, and ends the connection.
    fn reply(&self, guest: &Guest, group: usize, asked: (&Greeting, u16)) -> bool {
        if let Some((why, words)) = self.obstacle(guest, group, asked) {
            return self.refuse(guest, why, &words);
        }
        let _ = say(&guest.socket, &news(), &[]);
        false
    }

    /// Why so many who greet so can't be members now.
    fn obstacle(
        &self,
        guest: &Guest,
        group: usize,
        (greeting, times): (&Greeting, u16),
    ) -> Option<(Refusal, String)> {
        let members = &self.table().members[group];
        if !members.may(&guest.peer) {
            return Some((Refusal::NotAllowed, may_not(guest, &greeting.group)));
        }
        let unknown = members.lacks_class(&greeting.class).map(|words| (Refusal::NoSuchGroup, words));
        unknown.or_else(|| members.lacks_places(guest.peer.uid, times).map(|words| (Refusal::Full, words)))
    }

    fn join(&self, guest: &mut Guest, group: usize, greeting: &Greeting) -> bool {
        if let Some((why, words)) = self.obstacle(guest, group, (greeting, 1)) {
            return self.refuse(guest, why, &words);
        }
        let hold = match self.ahead(greeting).transpose() {
            Ok(hold) => hold,
            Err((why, words)) => return self.refuse(guest, why, &words),
        };
        let joined = self.table().members[group].join(greeting, &guest.peer, &guest.socket, hold);
        let Handed { number, page, seat } = match joined {
            Ok(handed) => handed,
            Err(why) => return self.refuse(guest, why, "the system gives nothing for one more member"),
        };
        guest.stage = Stage::Member(Place { group, number });
        if let Some(holder) = self.holder.get().filter(|_| greeting.hold > 0) {
            holder.unpark();
        }
        let is_kept = seat.is_some();
        let ring = seat.as_ref().map_or(&self.ring, |seat| seat.memory());
        // They were there when the run began.
        let Ok([tables, slots]) = ring.sealed_files() else { return false };
        let answer = Answer::Joined { member: number, is_kept }.to_bytes();
        let is_told = say(&guest.socket, &answer, &[tables, slots, page.as_fd()]).is_ok();
        self.ring_bell();
        is_told
    }

    /// What may be held of the ring for somebody, or why it can't be; `None`: it wants nothing to be held.
    fn ahead(&self, greeting: &Greeting) -> Option<Result<Ahead, (Refusal, String)>> {
        if greeting.hold == 0 {
            return None;
        }
        if greeting.group != RING {
            let words = format!("only of the group {RING} something can be held");
            return Some(Err((Refusal::BadMessage, words)));
        }
        let segments = self.ring.segments() as u64;
        let wanted = (segments * u64::from(greeting.hold)).div_ceil(HOLD_WHOLE.into());
        let allowance = self.ring.budget().take_for_member(wanted);
        let refused = |left: u64| {
            let percent = |part: u64| part as f64 * 100.0 / segments as f64;
            let words = format!(
                "of the ring {:.2}% can still be held for members, and {}% is asked for",
                percent(left),
                f64::from(greeting.hold) / 100.0
            );
            (Refusal::Full, words)
        };
        Some(allowance.map(|allowance| Ahead::new(&self.ring, allowance)).map_err(refused))
    }

    /// Says no, and ends the connection.
    fn refuse(&self, guest: &Guest, why: Refusal, words: &str) -> bool {
        let at = Refusal::ALL.iter().position(|other| *other == why).unwrap_or_default();
        self.table().counts.refused[at] += 1;
        let words = words.to_string();
        let _ = say(&guest.socket, &Answer::Refused { why, words }.to_bytes(), &[]);
        false
    }
}

/// That somebody isn't among those who may read a group.
fn may_not(guest: &Guest, group: &str) -> String {
    let what = match group {
        RING => "the ring".to_string(),
        group => format!("group '{}'", group.escape_default()),
    };
    format!("user {} may not read {what}", guest.peer.uid)
}

#[cfg(test)]
mod tests;
