//! The threads that follow the ring and hand out what groups take.
//!
//! ```text
//! no group has a member   sleeps until the door rings: what comes meanwhile is idle
//! else, again and again   who came, who went ─► pages: what may be recycled, who stands still ─► what is new in the
//!                         ring ─► filter, steer, append ─► commit, tell who waits
//! nothing is new          a nap, or sleep until a worker wakes it (see `pace`)
//! ```
//! Each group belongs to one thread. Live, the threads are lossy readers: nobody waits for them, and what they miss is
//! counted. In a run that loses nothing workers wait for them, and they for the slowest member, which is removed if it
//! doesn't move for long.

use crate::group::{Group, Settings, Sums};
use crate::memory::{Appended, Lanes, Looked, Memory};
use crate::pace::{Pace, Wait};
use crate::rules::{Packets, TOGETHER, Working, bits};
use crate::seat::Phase;
use crate::shares::Shares;
use crate::steer::{self, Falls, Steer};
use scope_filter::{FilterEngine, FilterInput, Predicate};
use scope_machine::cpus::{Pinning, pin_this_thread};
use scope_packet::pcapng::PacketBlock;
use scope_packet::{Headers, KeyEntry, LinkType, Moment};
use scope_ring::{Allowance, Batch, Interfaces, Reader, Ring, Steering};
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Packets that are handed out before they are made visible.
const PASS_PACKETS: u64 = 4096;
/// A packet is asked for so many packets before it is looked at.
const AHEAD: u32 = 24;
/// And its key entry so many packets before.
const AHEAD_ENTRIES: u32 = 192;
/// Between two looks at pages while no memory is full.
const LOOK_EVERY: Duration = Duration::from_millis(1);
/// Between two looks at who has come while nobody is there.
const ENTER_EVERY: Duration = Duration::from_millis(1);
/// The longest sleep of a thread that has nothing to do.
const IDLE: Duration = Duration::from_secs(1);
/// Between two looks for room of a run that loses nothing.
const ROOM_EVERY: Duration = Duration::from_micros(200);
/// A run that loses nothing waits so long for a member that doesn't move.
pub const REMOVED_AFTER: Duration = Duration::from_secs(10);

/// What a thread is to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Order {
    /// Follow the ring.
    #[default]
    Go,
    /// Nothing more is committed: read the rest, and say that it is all.
    Finish,
    /// End.
    End,
}

/// How a thread is woken and told.
#[derive(Default)]
struct Bell {
    state: Mutex<Told>,
    rung: Condvar,
}

#[derive(Default)]
struct Told {
    order: Order,
    /// How often it was rung.
    rings: u64,
    /// The thread has read all that there will be.
    has_finished: bool,
}

impl Bell {
    fn told(&self) -> MutexGuard<'_, Told> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ring(&self, order: Order) {
        let mut told = self.told();
        told.order = told.order.max(order);
        told.rings += 1;
        self.rung.notify_all();
    }

    /// Sleeps until it is rung again than `heard` times, at most `limit`.
    fn wait(&self, heard: u64, limit: Duration) {
        let told = self.told();
        drop(self.rung.wait_timeout_while(told, limit, |told| told.rings == heard));
    }

    fn finished(&self) {
        self.told().has_finished = true;
        self.rung.notify_all();
    }
}

/// What the threads of a run work with.
pub struct Sharer {
    /// What they follow.
    pub ring: Arc<Ring>,
    /// What they serve.
    pub groups: Vec<Arc<Group>>,
    /// How many they are at most: no more than groups.
    pub threads: u32,
    /// Where they run.
    pub pinning: Pinning,
    /// Nobody waits for them.
    pub is_live: bool,
    /// What evaluates filters.
    pub engine: FilterEngine,
}

/// The threads, going.
pub struct Sharing {
    bells: Vec<Arc<Bell>>,
    /// Names of the groups that each thread serves.
    dealt: Vec<Vec<String>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Sharing {
    /// Starts them.
    ///
    /// # Errors
    /// The system gives no thread.
    pub fn start(sharer: &Sharer) -> io::Result<Sharing> {
        let dealt = dealt(&sharer.groups, sharer.threads.max(1) as usize);
        let names = |groups: &Vec<Arc<Group>>| groups.iter().map(|group| group.name().to_string()).collect();
        let names = dealt.iter().map(names).collect();
        let sharing = Sharing { bells: Vec::new(), dealt: names, threads: Mutex::default() };
        dealt.into_iter().enumerate().try_fold(sharing, |mut sharing, (index, groups)| {
            let bell = Arc::new(Bell::default());
            let thread = Thread {
                ring: sharer.ring.clone(),
                is_live: sharer.is_live,
                bell: bell.clone(),
                served: groups.into_iter().map(|group| Served::new(group, sharer.engine)).collect(),
                reader: None,
                position: 0,
                looked: Instant::now(),
                pace: Pace::new(Instant::now()),
            };
            let cpus = sharer.pinning.of_worker(index).to_vec();
            let builder = std::thread::Builder::new().name(format!("share-{index}"));
            let handle = builder.spawn(move || {
                if !cpus.is_empty() {
                    let _ = pin_this_thread(&cpus); // a CPU that has gone since the start: it runs anywhere
                }
                thread.work();
            })?;
            sharing.bells.push(bell);
            sharing.threads.lock().unwrap_or_else(PoisonError::into_inner).push(handle);
            Ok(sharing)
        })
    }

    /// Whether one thread serves both groups, so that one can copy to the other.
    pub fn serves_together(&self, one: &str, other: &str) -> bool {
        let serves = |names: &Vec<String>, name: &str| names.iter().any(|known| known == name);
        self.dealt.iter().any(|names| serves(names, one) && serves(names, other))
    }

    /// Somebody has come or gone, or a group has changed.
    pub fn ring(&self) {
        self.bells.iter().for_each(|bell| bell.ring(Order::Go));
    }

    /// All that there will be is committed: the threads hand out the rest.
    pub fn finish(&self) {
        self.bells.iter().for_each(|bell| bell.ring(Order::Finish));
    }

    /// Whether the rest is handed out, or has nobody to be handed to.
    pub fn has_finished(&self) -> bool {
        self.bells.iter().all(|bell| bell.told().has_finished)
    }

    /// Ends the threads.
    pub fn end(&self) {
        self.bells.iter().for_each(|bell| bell.ring(Order::End));
        let threads = std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner));
        for thread in threads {
            let _ = thread.join();
        }
    }
}

/// Which groups each thread serves: those that copy to each other the same one, and no more threads than that leaves.
fn dealt(groups: &[Arc<Group>], threads: usize) -> Vec<Vec<Arc<Group>>> {
    let mut together: Vec<Vec<Arc<Group>>> = Vec::new();
    for group in groups {
        let copies =
            |one: &Group, other: &Group| one.settings().0.rules.targets().iter().any(|it| it == other.name());
        let (mut linked, others): (Vec<_>, Vec<_>) = together
            .into_iter()
            .partition(|known| known.iter().any(|other| copies(group, other) || copies(other, group)));
        linked.push(vec![group.clone()]);
        together = others;
        together.push(linked.concat());
    }
    let threads = threads.min(together.len());
    let mut dealt = vec![Vec::new(); threads];
    for (index, groups) in together.into_iter().enumerate() {
        dealt[index % threads].extend(groups);
    }
    dealt
}

impl Drop for Sharing {
    fn drop(&mut self) {
        self.end();
    }
}

/// However a thread ends, nobody waits for it.
struct FinishedOnDrop(Arc<Bell>);

impl Drop for FinishedOnDrop {
    fn drop(&mut self) {
        self.0.finished();
    }
}

struct Thread {
    ring: Arc<Ring>,
    is_live: bool,
    bell: Arc<Bell>,
    served: Vec<Served>,
    /// `None`: nobody is there.
    reader: Option<Reader>,
    /// Packets of the ring in front of where the reader stands.
    position: u64,
    looked: Instant,
    pace: Pace,
}

impl Thread {
    fn work(mut self) {
        let _finished = FinishedOnDrop(self.bell.clone());
        loop {
            let (order, heard) = {
                let told = self.bell.told();
                (told.order, told.rings)
            };
            let is_entering = self.come_and_go();
            if order == Order::End {
                self.served.iter_mut().for_each(Served::end);
                return;
            }
            if !self.served.iter().any(Served::is_active) {
                self.reader = None;
                if order == Order::Finish {
                    self.finish();
                }
                self.bell.wait(heard, if is_entering { ENTER_EVERY } else { IDLE });
                continue;
            }
            let read = self.pass();
            self.pace.add(read);
            if read == 0 && order == Order::Finish {
                self.finish();
                self.bell.wait(heard, LOOK_EVERY);
            } else if read == 0 {
                self.sleep();
            }
        }
    }

    /// Waits for packets. Live, nobody waits for this thread, and what it leaves lies in the ring meanwhile.
    fn sleep(&mut self) {
        let Some(reader) = &mut self.reader else { return };
        if !self.is_live {
            return reader.wait();
        }
        match self.pace.wait(Instant::now()) {
            Wait::Nap(time) => std::thread::sleep(time),
            Wait::Sleep(limit) => reader.sleep(limit),
        }
    }

    /// All that there will be is handed out.
    fn finish(&mut self) {
        let is_first = !self.bell.told().has_finished;
        if is_first {
            for served in &mut self.served {
                served.group.seats().iter().for_each(|seat| seat.memory().end_clock(0));
                served.memories.iter_mut().flatten().for_each(Memory::tell);
            }
            self.bell.finished();
        }
    }

    /// Seats whoever has said where it begins, and lets go of whoever is gone; whether somebody is still to say it.
    fn come_and_go(&mut self) -> bool {
        let now = Instant::now();
        let Thread { ring, is_live, served, reader, position, .. } = self;
        // A run that loses nothing begins once its members are there: by then this thread has its place.
        let mut take_place = || {
            if reader.is_none() {
                let taken = reader.insert(match is_live {
                    true => Reader::new(ring),
                    // It reads what it is at; that workers wait is what it needs.
                    false => Reader::holding(ring, Allowance::none()),
                });
                *position = taken.skip_to_now();
            }
        };
        let mut is_entering = false;
        for served in served {
            is_entering |= served.come_and_go(now, &mut take_place);
        }
        is_entering
    }

    /// Hands out what is new, up to a bound; packets.
    fn pass(&mut self) -> u64 {
        let Some(mut reader) = self.reader.take() else { return 0 };
        self.look(); // what members are done with meanwhile is room for what has come
        let settled = self.ring.committed(); // before the look: all up to there is found by it
        let (mut packets, mut is_all) = (0, false);
        while packets < PASS_PACKETS {
            let Some(batch) = reader.next_batch() else {
                is_all = true;
                break;
            };
            packets += u64::from(batch.packets());
            self.position += u64::from(batch.packets()) + batch.missed_before();
            self.share(&batch);
        }
        self.reader = Some(reader);
        for served in &mut self.served {
            served.hand_over(is_all.then_some(settled));
            served.publish(self.position);
        }
        packets
    }

    /// Looks at the members' pages, if that is due.
    fn look(&mut self) {
        let now = Instant::now();
        if now.duration_since(self.looked) >= LOOK_EVERY {
            self.looked = now;
            self.served.iter_mut().for_each(|served| served.look(now, self.is_live));
        }
    }

    fn share(&mut self, batch: &Batch<'_>) {
        let link_type = self.ring.lane_info(batch.lane()).link_type;
        let packets = batch.in_place();
        let Some(first) = batch.blocks().next() else { return };
        for served in self.served.iter_mut().filter(|served| served.is_active()) {
            served.sums.missed += batch.missed_before();
        }
        let (mut keys, mut blocks) = ([KeyEntry::default(); TOGETHER], [first; TOGETHER]);
        let mut unmarked = keys;
        let mut inputs = [FilterInput::default(); TOGETHER];
        let filters = self.served.iter().any(|served| served.is_active() && served.asks_packets());
        packets.fetch_entries(0..AHEAD_ENTRIES);
        (0..AHEAD.min(batch.packets())).for_each(|index| packets.fetch(index));
        for from in (0..batch.packets()).step_by(TOGETHER) {
            packets.fetch_entries(from + AHEAD_ENTRIES..from + AHEAD_ENTRIES + TOGETHER as u32);
            let count = (batch.packets() - from).min(TOGETHER as u32) as usize;
            for at in 0..count {
                packets.fetch(from + at as u32 + AHEAD);
                (keys[at], blocks[at]) = packets.get(from + at as u32);
                unmarked[at] = KeyEntry { source: [0; 4], ..keys[at] };
            }
            if filters {
                for at in 0..count {
                    inputs[at] = input(link_type, keys[at], &blocks[at]);
                }
            }
            let chunk = Chunk {
                link_type,
                keys: &keys[..count],
                blocks: &blocks[..count],
                inputs: &inputs[..if filters { count } else { 0 }],
                unmarked: &unmarked[..count],
            };
            for index in 0..self.served.len() {
                if self.served[index].is_active() {
                    let patient = if self.is_live { None } else { Some(&*self.bell) };
                    self.served[index].take(&self.ring, &chunk);
                    self.served[index].deliver(&self.ring, &chunk, patient);
                    self.copy(index, &chunk);
                }
            }
        }
    }

    /// Gives packets that rules of one group copy to the members of others, past their filters and rules.
    fn copy(&mut self, from: usize, chunk: &Chunk<'_>) {
        if self.served[from].working.verdicts.copies.is_empty() {
            return;
        }
        let patient = if self.is_live { None } else { Some(&*self.bell) };
        let mut copies = std::mem::take(&mut self.served[from].working.verdicts.copies);
        let rules = self.served[from].settings.rules.clone();
        for (target, which) in copies.drain(..) {
            // One that another thread serves gets copies from the next start on.
            let name = &rules.targets()[usize::from(target)];
            let target = self.served.iter_mut().find(|served| served.group.name() == name);
            if let Some(target) = target.filter(|target| target.is_active()) {
                let steer = target.settings.steer;
                let (given, _) = route(&mut target.classes, &mut target.routes, chunk, which, |_| (0, steer));
                target.sums.copied_in += given;
                target.deliver_as(&self.ring, chunk, (chunk.unmarked, None), patient);
            }
        }
        self.served[from].working.verdicts.copies = copies; // its room serves the next ones
    }
}

fn input<'a>(link_type: LinkType, key: KeyEntry, block: &PacketBlock<'a>) -> FilterInput<'a> {
    let data = block.data();
    let tags = if key.vlan() { Headers::parse(link_type, data).vlan_tags() } else { 0 };
    FilterInput::tagged(tags, key, data, block.original_len())
}

/// Packets of one lane that are looked at together.
struct Chunk<'a> {
    link_type: LinkType,
    keys: &'a [KeyEntry],
    blocks: &'a [PacketBlock<'a>],
    /// Empty where no group looks at packets.
    inputs: &'a [FilterInput<'a>],
    /// Key entries as members have them, without a mark.
    unmarked: &'a [KeyEntry],
}

/// A group, served.
struct Served {
    group: Arc<Group>,
    engine: FilterEngine,
    settings: Arc<Settings>,
    version: u64,
    /// Of each link type that has come.
    predicates: Vec<(LinkType, Predicate)>,
    /// Of each interface of the run whether its packets are taken; `None`: nothing of it has come.
    by_interface: Vec<Option<bool>>,
    working: Working,
    /// Who shares, by class; packets without a class have the empty one.
    classes: Vec<(String, Shares)>,
    /// By seat.
    memories: Vec<Option<Memory>>,
    lanes: Vec<Option<Lanes>>,
    /// Packets of a chunk that fall to each seat.
    routes: Vec<Vec<u8>>,
    sums: Sums,
    /// Where each class of the rules is among the classes; `None`: no member wants it.
    wanted: Vec<Option<usize>>,
}

impl Served {
    fn new(group: Arc<Group>, engine: FilterEngine) -> Served {
        let (settings, version) = group.settings();
        let seats = group.seats().len();
        group.figures().last.resize(seats, None);
        let _ = settings.filter.prepare(engine); // where there is no machine code the interpreter answers the same
        let mut working = Working::default();
        working.set(&settings.rules, Some(engine));
        Served {
            engine,
            working,
            settings,
            version,
            predicates: Vec::new(),
            by_interface: Vec::new(),
            classes: vec![(String::new(), Shares::default())],
            memories: (0..seats).map(|_| None).collect(),
            lanes: (0..seats).map(|_| Some(Lanes::new())).collect(),
            routes: (0..seats).map(|_| Vec::with_capacity(TOGETHER)).collect(),
            sums: Sums::default(),
            wanted: Vec::new(),
            group,
        }
    }

    /// Whether it looks at more of packets than their key entries.
    fn asks_packets(&self) -> bool {
        !self.settings.filter.is_everything() || self.settings.rules.asks_packets()
    }

    fn is_active(&self) -> bool {
        self.memories.iter().any(Option::is_some)
    }

    /// See [`Thread::come_and_go`]. `take_place` is called before anybody can see that a newcomer is there.
    fn come_and_go(&mut self, now: Instant, take_place: &mut impl FnMut()) -> bool {
        let (mut is_entering, mut is_other) = (false, false);
        for seat in 0..self.memories.len() {
            let place = self.group.seats()[seat].clone();
            match place.phase() {
                Phase::Free | Phase::Active => continue,
                Phase::Leaving => self.let_go(seat),
                Phase::Entering if place.page().read().is_none() => {
                    is_entering = true;
                    continue;
                }
                Phase::Entering => {
                    take_place();
                    // It may be gone again.
                    let Some(newcomer) = place.begin() else { continue };
                    let lanes = self.lanes[seat].take().unwrap_or_else(Lanes::new);
                    let (weight, class) = (newcomer.weight, newcomer.class.clone());
                    self.memories[seat] = Some(Memory::begin(&place, newcomer, lanes, now));
                    self.shares(&class).join(seat as u8, weight);
                }
            }
            is_other = true;
        }
        if self.group.version() != self.version {
            (self.settings, self.version) = self.group.settings();
            let _ = self.settings.filter.prepare(self.engine); // as above
            self.predicates.clear();
            self.by_interface.clear();
            self.working.set(&self.settings.rules, Some(self.engine));
            is_other = true;
        }
        if is_other {
            let place = |class: &String| self.classes.iter().position(|(known, _)| known == class);
            self.wanted = self.settings.rules.classes().iter().map(place).collect();
        }
        is_entering
    }

    fn shares(&mut self, class: &str) -> &mut Shares {
        let at = self.classes.iter().position(|(known, _)| known == class).unwrap_or_else(|| {
            self.classes.push((class.to_string(), Shares::default()));
            self.classes.len() - 1
        });
        &mut self.classes[at].1
    }

    /// Takes a seat out of those who share a class, if it is among them: who is left.
    fn withdraw(&mut self, seat: usize, class: &str) -> &Shares {
        let shares = self.shares(class);
        if shares.members().any(|member| usize::from(member) == seat) {
            shares.leave(seat as u8);
        }
        shares
    }

    /// Whoever sat there is given nothing more.
    fn let_go(&mut self, seat: usize) {
        if let Some(memory) = self.memories[seat].take() {
            let class = memory.newcomer.class.clone();
            if self.withdraw(seat, &class).is_empty() {
                self.take_back(&class);
            }
            self.classes.retain(|(class, shares)| class.is_empty() || !shares.is_empty());
            let (lanes, given) = memory.end();
            self.lanes[seat] = Some(lanes);
            let said = self.group.seats()[seat].page().read().unwrap_or_default();
            self.sums.gone.add(given.standing(&said));
            self.group.figures().last[seat] = Some(given);
            self.publish(self.sums.position.unwrap_or(0));
        }
        self.group.seats()[seat].release();
    }

    /// Nobody is left to have the flows of those of a class that stand still: they are theirs again.
    fn take_back(&mut self, class: &str) {
        for seat in 0..self.memories.len() {
            let Some(memory) = &self.memories[seat] else { continue };
            if memory.newcomer.class == class && memory.seat.is_stuck() {
                memory.seat.set_stuck(false);
                let weight = memory.newcomer.weight;
                self.shares(class).join(seat as u8, weight);
            }
        }
    }

    /// Hands the figures on.
    fn publish(&mut self, position: u64) {
        self.sums.position = self.is_active().then_some(position);
        let mut figures = self.group.figures();
        figures.sums = self.sums;
        figures.given.clear();
        figures.given.extend(self.memories.iter().map(|memory| memory.as_ref().map(|memory| memory.given)));
        figures.dropped.follow(self.working.dropped());
    }

    /// Which packets of a chunk are taken, and by whom.
    fn take(&mut self, ring: &Ring, chunk: &Chunk<'_>) {
        let count = chunk.keys.len();
        self.sums.seen += count as u64;
        let mut which = u64::MAX >> (TOGETHER - count);
        if self.settings.interface.is_some() {
            which &= self.came_by(ring, chunk);
        }
        if !self.settings.filter.is_everything() {
            which = self.predicate(chunk.link_type).matches_batch(chunk.inputs, which);
        }
        self.sums.filtered += count as u64 - u64::from(which.count_ones());
        let steer = self.settings.steer;
        let (given, taken) = if self.settings.rules.is_empty() {
            route(&mut self.classes, &mut self.routes, chunk, which, |_| (0, steer))
        } else {
            let packets = Packets { link_type: chunk.link_type, keys: chunk.keys, inputs: chunk.inputs };
            let (wanted, verdicts) = (&self.wanted, self.working.apply(&packets, which));
            which = verdicts.alive;
            // Of a class that nobody wants nowhere.
            let place = |at: usize| verdicts.classes[at].map_or(Some(0), |class| wanted[usize::from(class)]);
            let is_wanted = |at: &u8| place(usize::from(*at)).is_some();
            let claimed = bits(which).filter(is_wanted).fold(0, |claimed, at| claimed | 1u64 << at);
            route(&mut self.classes, &mut self.routes, chunk, claimed, |at| {
                (place(at).unwrap_or(0), verdicts.steers[at].unwrap_or(steer))
            })
        };
        self.sums.taken += taken;
        self.sums.unclaimed += u64::from(which.count_ones()) - taken;
        self.sums.doubled += given - taken;
    }

    /// Which packets of a chunk came by the interface whose packets are taken.
    fn came_by(&mut self, ring: &Ring, chunk: &Chunk<'_>) -> u64 {
        let Served { settings, by_interface, .. } = self;
        let is_its = |number: u32| {
            let entry = ring.interface(number);
            entry.is_some_and(|entry| Some(&entry.name) == settings.interface.as_ref())
        };
        let mut which = 0;
        for (at, block) in chunk.blocks.iter().enumerate() {
            let number = block.interface() as usize;
            if by_interface.len() <= number {
                by_interface.resize(number + 1, None);
            }
            let is_taken = *by_interface[number].get_or_insert_with(|| is_its(number as u32));
            which |= u64::from(is_taken) << at;
        }
        which
    }

    fn predicate(&mut self, link_type: LinkType) -> &Predicate {
        let at = self.predicates.iter().position(|(known, _)| *known == link_type).unwrap_or_else(|| {
            let predicate = self.settings.filter.for_link(link_type);
            let _ = self.settings.filter.prepare(self.engine); // as above
            self.predicates.push((link_type, predicate));
            self.predicates.len() - 1
        });
        &self.predicates[at].1
    }

    /// Appends packets where they fell to, as rules left them. With a bell, which says when to give up, it waits for room.
    fn deliver(&mut self, ring: &Ring, chunk: &Chunk<'_>, patient: Option<&Bell>) {
        if self.settings.rules.is_empty() || self.working.verdicts.touched == 0 {
            return self.deliver_as(ring, chunk, (chunk.unmarked, None), patient);
        }
        let mut marked = [KeyEntry::default(); TOGETHER];
        for (entry, (key, mark)) in marked.iter_mut().zip(chunk.keys.iter().zip(&self.working.verdicts.marks))
        {
            *entry = KeyEntry { source: mark.to_le_bytes(), ..*key };
        }
        let keep = self.working.verdicts.keep;
        self.deliver_as(ring, chunk, (&marked[..chunk.keys.len()], Some(&keep)), patient);
    }

    /// The same with these key entries, and so many bytes of each packet at most.
    fn deliver_as(
        &mut self,
        ring: &Ring,
        chunk: &Chunk<'_>,
        (keys, keep): (&[KeyEntry], Option<&[u32; TOGETHER]>),
        patient: Option<&Bell>,
    ) {
        let looked = Looked { blocks: chunk.blocks, keys, keep };
        for seat in 0..self.routes.len() {
            if self.routes[seat].is_empty() {
                continue;
            }
            let route = std::mem::take(&mut self.routes[seat]);
            let mut rest = &route[..];
            while let Some(&first) = rest.first() {
                let number = chunk.blocks[usize::from(first)].interface();
                let is_other = |at: &u8| chunk.blocks[usize::from(*at)].interface() != number;
                let (run, behind) = rest.split_at(rest.iter().position(is_other).unwrap_or(rest.len()));
                if let Some(memory) = &mut self.memories[seat] {
                    give(memory, ring, (chunk.link_type, number), looked, run, patient);
                }
                rest = behind;
            }
            self.routes[seat] = route;
            self.routes[seat].clear();
            // Whoever sits there is to go: from now on others have its packets.
            let removed = self.memories[seat].as_ref().filter(|it| patient.is_some() && it.seat.is_removed());
            if let Some(class) = removed.map(|memory| memory.newcomer.class.clone()) {
                self.withdraw(seat, &class);
            }
        }
    }

    /// Makes visible what was appended, tells whoever waits, and says up to when that is all.
    fn hand_over(&mut self, settled: Option<Moment>) {
        for memory in self.memories.iter_mut().flatten() {
            let is_new = memory.commit();
            if let Some(settled) = settled {
                memory.settle(settled);
            }
            if is_new {
                memory.tell();
            }
        }
    }

    /// Looks at all pages: what may be recycled, and who stands still.
    fn look(&mut self, now: Instant, is_live: bool) {
        for seat in 0..self.memories.len() {
            let Some(memory) = &mut self.memories[seat] else { continue };
            memory.look(now);
            let Some(stuck) = self.group.stuck.filter(|_| is_live) else { continue };
            let (is_still, was_still) = (now.duration_since(memory.moved) >= stuck, memory.seat.is_stuck());
            if is_still == was_still {
                continue;
            }
            let (weight, class) = (memory.newcomer.weight, memory.newcomer.class.clone());
            let place = memory.seat.clone();
            let shares = self.shares(&class);
            if !is_still {
                shares.join(seat as u8, weight);
            } else if shares.len() > 1 {
                shares.leave(seat as u8);
            } else {
                continue; // nobody else could have them
            }
            place.set_stuck(is_still);
        }
    }

    fn end(&mut self) {
        for seat in 0..self.memories.len() {
            self.group.seats()[seat].leave();
            self.let_go(seat);
            if let Some(lanes) = self.lanes[seat].take() {
                lanes.end(&self.group.seats()[seat]);
            }
        }
        self.publish(0);
    }
}

/// Finds out who gets which packets: how many are given in all, and how many packets somebody gets. `how` says of each by
/// its place in which class, and by what it is shared out.
#[inline]
fn route(
    classes: &mut [(String, Shares)],
    routes: &mut [Vec<u8>],
    chunk: &Chunk<'_>,
    which: u64,
    how: impl Fn(usize) -> (usize, Steer),
) -> (u64, u64) {
    let (mut given, mut taken) = (0, 0);
    for at in bits(which) {
        let index = usize::from(at);
        let (class, steer) = how(index);
        let shares = &mut classes[class].1;
        let before = given;
        let mut to = |owner: Option<u8>| {
            if let Some(owner) = owner {
                routes[usize::from(owner)].push(at);
                given += 1;
            }
        };
        let key = &chunk.keys[index];
        if steer == Steer::Flow && steer::has_flow(key) {
            to(shares.owner(Steering::flow_hash(key)));
            taken += u64::from(given > before);
            continue;
        }
        match steer.falls(chunk.link_type, key, chunk.blocks[index].data()) {
            Falls::To(number) => to(shares.owner(number)),
            Falls::Both(one, other) => {
                let (one, other) = (shares.owner(one), shares.owner(other));
                to(one);
                if one != other {
                    to(other);
                }
            }
            Falls::Next => to(shares.next_turn()),
            Falls::All => shares.members().for_each(|member| to(Some(member))),
        }
        taken += u64::from(given > before);
    }
    (given, taken)
}

/// Gives packets of one interface to a member.
fn give(
    memory: &mut Memory,
    ring: &Ring,
    place: (LinkType, u32),
    looked: Looked<'_>,
    mut picks: &[u8],
    patient: Option<&Bell>,
) {
    memory.count(picks.len() as u64);
    let mut since = None;
    loop {
        match memory.append(ring, place, looked, picks) {
            Appended::All => return,
            Appended::TooLong(from) => {
                memory.miss(place.0, 1);
                picks = &picks[from + 1..];
                continue;
            }
            Appended::Full(from) => picks = &picks[from..],
        }
        let since = *since.get_or_insert_with(Instant::now);
        if !patient.is_some_and(|bell| wait_for_room(memory, bell, since)) {
            memory.miss(place.0, picks.len() as u64);
            return;
        }
    }
}

/// Waits a moment for room in a memory, as it has done `since`; whether it is to be waited for. When nobody looked at its
/// member, as while another one was waited for, that is no stillness of its own.
fn wait_for_room(memory: &mut Memory, bell: &Bell, since: Instant) -> bool {
    if memory.seat.phase() != Phase::Active || memory.seat.is_removed() || bell.told().order == Order::End {
        return false;
    }
    memory.commit();
    memory.tell();
    std::thread::sleep(ROOM_EVERY);
    let now = Instant::now();
    memory.look(now);
    if now.duration_since(memory.moved.max(since)) < REMOVED_AFTER {
        return true;
    }
    memory.seat.remove();
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::group::GroupPlan;
    use crate::seat::{MEMORY_BYTES_MIN, Newcomer};
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
    use scope_filter::{Filter, VlanRule};
    use scope_share::Progress;

    #[test]
    fn the_thread_has_its_place_before_anybody_sees_that_a_member_is_there() {
        let plan = GroupPlan {
            name: "one".to_string(),
            settings: Settings {
                interface: None,
                filter: Filter::compile("", VlanRule::default(), &[]).unwrap(),
                steer: Steer::Flow,
                rules: Arc::default(),
            },
            memory_bytes: MEMORY_BYTES_MIN,
            members_max: 1,
            members: 1,
            stuck: None,
        };
        let group = Arc::new(Group::create(&plan, [1; 16]).unwrap());
        let seat = group.seats()[0].clone();
        let (connection, _other) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
        assert!(seat.enter(Newcomer { weight: 1, class: String::new(), connection }));
        let mut served = Served::new(group, FilterEngine::default());
        let mut places = 0;
        let mut take_place = || {
            assert_eq!(seat.phase(), Phase::Entering);
            places += 1;
        };
        assert!(served.come_and_go(Instant::now(), &mut take_place), "it hasn't said yet where it begins");
        seat.page().write(&Progress::default()).unwrap();
        assert!(!served.come_and_go(Instant::now(), &mut take_place));
        assert_eq!((seat.phase(), places), (Phase::Active, 1));
    }
}
