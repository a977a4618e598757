//! The flow table of one worker: no lock, no allocation per packet, and a batch's lines fetched before the first
//! of them is used.
//!
//! ```text
//!  index     hash 32 | slot + 1: 32        twice as many places as flows; a place is free where it is 0
//!  entries   256 bytes each, in slots      grows up to the bound, then slots are used again
//! ```
//! A batch goes through three loops: hashes, and places of the index fetched; slots, and their lines fetched; then
//! each packet counts. Entries are removed by shifting back what follows in the index, so that a search ends at
//! the first free place. Where all slots are taken, the longest unseen of the next [`LOOKED_AT`] is evicted.
//!
//! A *sweep* goes over all slots in bounded steps. It hands on what flows have in intervals that are over and, of
//! live traffic, records that are. What is left to it is never wrong, only late: a packet ends the record in
//! front of it by itself, so the rows of a file don't depend on when somebody looked.
//!
//! Conditions of triggers ([`crate::when`]) are about a flow, which may have several records: what those had that
//! are over stands beside the table as long as there are conditions.

use crate::entry::{Delta, Entry, NO_INTERVAL, Record, Seen};
use crate::fragments::Fragments;
use crate::key::Key;
use crate::rounds::Rounds;
use crate::rows::Reason;
use scope_packet::fetch::{fetch_begin, fetch_to_write};

/// Packets of one batch at most.
pub const BATCH_MAX: usize = 64;
/// Slots that an eviction looks at.
const LOOKED_AT: usize = 16;
/// A sweep asks for the places of the index so many slots ahead, and for slots twice as far.
const AHEAD: usize = 4;
/// A connection that was closed or reset, and from which nothing came for so long, ns, is over.
const LINGER_NS: i64 = 5_000_000_000;

/// How long flows may last, and how many there may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Flows at once, of this worker.
    pub flows_max: usize,
    /// A record ends when nothing comes for so long, ns.
    pub idle_ns: i64,
    /// A record is at most so long, ns.
    pub active_ns: i64,
}

/// What a worker hands on: the rest is nobody's any more.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HandedFlows {
    /// What flows have in intervals.
    pub deltas: Vec<Delta>,
    /// Records that are over.
    pub records: Vec<Record>,
}

impl HandedFlows {
    /// Takes what a flow has, and its record.
    fn close(&mut self, entry: &mut Entry, reason: Reason) {
        self.deltas.extend(entry.take_delta());
        self.records.extend(entry.record(reason));
    }

    /// There is nothing.
    pub fn is_empty(&self) -> bool {
        self.deltas.is_empty() && self.records.is_empty()
    }

    /// Nothing is left but its memory.
    pub fn clear(&mut self) {
        self.deltas.clear();
        self.records.clear();
    }

    /// How many rows there are.
    pub fn rows(&self) -> usize {
        self.deltas.len() + self.records.len()
    }
}

/// Bounds of one step over the slots.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    /// Slots that are looked at.
    pub slots: usize,
    /// Rows that are handed on, nearly.
    pub rows: usize,
}

/// Counters of a table, since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TableCounters {
    /// Flows whose place was needed while they were going.
    pub evicted: u64,
}

/// See the module.
#[derive(Debug)]
pub struct FlowTable {
    bounds: Bounds,
    seed: [u64; 2],
    index: Box<[u64]>,
    entries: Vec<Entry>,
    free: Vec<u32>,
    fragments: Fragments,
    /// Where the next eviction looks.
    hand: usize,
    /// The latest time that was seen.
    clock_ns: i64,
    counters: TableCounters,
    rounds: Rounds,
    /// By slot; empty until there are conditions.
    earlier: Box<[Earlier]>,
    /// What is to be handed on.
    pub handed: HandedFlows,
}

/// What a flow had in records that are over.
#[derive(Clone, Copy, Debug, Default)]
struct Earlier {
    packets: u64,
    bytes: u64,
    resent: u64,
    zero_windows: u64,
    start_ns: i64,
}

/// A flow as conditions see it, right behind one of its packets.
#[derive(Debug)]
pub struct FlowNow<'a> {
    entry: &'a mut Entry,
    slot: usize,
    earlier: &'a [Earlier],
    rounds: &'a Rounds,
    is_new: bool,
}

impl FlowTable {
    /// An empty one. `seed`: nobody who sends packets knows that of live traffic.
    pub fn new(bounds: Bounds, seed: [u64; 2]) -> FlowTable {
        let flows_max = bounds.flows_max.clamp(1, u32::MAX as usize / 4);
        FlowTable {
            bounds: Bounds { flows_max, ..bounds },
            seed,
            index: vec![0; (flows_max * 2).next_power_of_two()].into(),
            entries: Vec::with_capacity(flows_max),
            free: Vec::with_capacity(flows_max),
            fragments: Fragments::default(),
            hand: 0,
            clock_ns: i64::MIN,
            counters: TableCounters::default(),
            rounds: Rounds::default(),
            earlier: Box::default(),
            handed: HandedFlows::default(),
        }
    }

    /// Has the system give all of its memory now, where nothing is counted yet: later a packet would wait for that.
    pub fn touch(&mut self) {
        let flows_max = self.bounds.flows_max;
        self.entries.resize(flows_max, Entry::new(0, &Seen::default()));
        self.entries.clear();
        self.free.resize(flows_max, 0);
        self.free.clear();
        self.index.fill(0);
    }

    /// Flows that are in it.
    pub fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    /// There are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Its counters.
    pub fn counters(&self) -> TableCounters {
        self.counters
    }

    /// These numbers of conditions, a bit each, are from now on those of conditions that were never asked.
    pub fn begin_conditions(&mut self, numbers: u16) {
        if numbers == 0 {
            return;
        }
        if self.earlier.is_empty() {
            self.earlier = vec![Earlier::default(); self.bounds.flows_max].into();
        }
        if self.rounds.now == u8::MAX {
            self.entries.iter_mut().for_each(|entry| entry.begin_rounds(&self.rounds));
            self.rounds = Rounds::default();
        }
        self.rounds.now += 1;
        for (number, since) in self.rounds.since.iter_mut().enumerate() {
            if numbers >> number & 1 != 0 {
                *since = self.rounds.now;
            }
        }
    }

    /// Counts at most [`BATCH_MAX`] packets, in their order. `then` gets each, and its flow as it is then.
    #[inline]
    pub fn run(&mut self, packets: &mut [Seen], mut then: impl FnMut(&Seen, &mut FlowNow<'_>)) {
        debug_assert!(packets.len() <= BATCH_MAX);
        let (mut hashes, mut likely) = ([0u64; BATCH_MAX], [0u32; BATCH_MAX]);
        for (packet, hash) in packets.iter_mut().zip(&mut hashes) {
            if packet.reading.fragment.is_some() {
                self.fragments.place(&mut packet.reading, packet.time_ns);
            }
            *hash = packet.reading.key.hash(self.seed);
            fetch_begin(&self.index[self.home(*hash)]);
        }
        for (hash, slot) in hashes.iter().zip(&mut likely).take(packets.len()) {
            *slot = self.likely(*hash);
            if let Some(entry) = self.entries.get_mut(*slot as usize) {
                entry.fetch();
            }
        }
        for ((packet, hash), likely) in packets.iter().zip(&hashes).zip(&likely) {
            let (slot, is_new) = self.count(packet, *hash, *likely as usize);
            let (entry, earlier, rounds) = (&mut self.entries[slot], &*self.earlier, &self.rounds);
            then(packet, &mut FlowNow { entry, slot, earlier, rounds, is_new });
        }
    }

    /// Counts a packet, whose flow has the slot `likely` unless it has been given to another one meanwhile.
    #[inline]
    fn count(&mut self, packet: &Seen, hash: u64, likely: usize) -> (usize, bool) {
        self.clock_ns = self.clock_ns.max(packet.time_ns);
        let slot = match self.entries.get(likely) {
            Some(entry) if entry.key.is(&packet.reading.key) => likely,
            _ => match self.find(&packet.reading.key, hash) {
                Some(slot) => slot,
                None => return (self.begin(packet, hash), true),
            },
        };
        let Bounds { idle_ns, active_ns, .. } = self.bounds;
        let entry = &mut self.entries[slot];
        let mut is_new = false;
        if let Some(reason) = entry.ends_before(packet, idle_ns, active_ns) {
            self.handed.close(entry, reason);
            is_new = reason != Reason::Active;
            if is_new {
                *entry = Entry::new(hash, packet);
            } else {
                self.begin_record(slot);
            }
        } else if entry.interval != packet.interval || entry.is_full(packet) {
            self.handed.deltas.extend(entry.take_delta());
        }
        self.entries[slot].add(packet);
        (slot, is_new)
    }

    /// A record of the flow in a slot was handed on, and another one begins.
    #[cold]
    fn begin_record(&mut self, slot: usize) {
        let entry = &mut self.entries[slot];
        if let Some(earlier) = self.earlier.get_mut(slot) {
            if !entry.has_earlier() {
                *earlier = Earlier { start_ns: entry.start_ns, ..Earlier::default() };
            }
            earlier.packets += entry.packets();
            earlier.bytes += entry.bytes();
            earlier.resent += entry.resent();
            earlier.zero_windows += entry.zero_windows();
            earlier.start_ns = earlier.start_ns.min(entry.start_ns);
            entry.note_earlier();
        }
        entry.begin_record();
    }

    /// A flow more.
    #[inline(never)]
    fn begin(&mut self, first: &Seen, hash: u64) -> usize {
        if self.len() == self.bounds.flows_max {
            self.evict();
        }
        let mut entry = Entry::new(hash, first);
        entry.add(first);
        let slot = match self.free.pop() {
            Some(slot) => {
                self.entries[slot as usize] = entry;
                slot as usize
            }
            None => {
                self.entries.push(entry);
                self.entries.len() - 1
            }
        };
        let mut place = self.home(hash);
        while self.index[place] != 0 {
            place = self.next(place);
        }
        self.index[place] = hash & TAG | (slot as u64 + 1);
        slot
    }

    /// Makes room: of the next slots the one that is unseen for longest goes.
    #[cold]
    fn evict(&mut self) {
        let slots = self.entries.len();
        let looked_at = (0..LOOKED_AT.min(slots)).map(|at| (self.hand + at) % slots);
        // All slots are taken where this is called.
        let slot = looked_at.min_by_key(|&slot| self.entries[slot].last_ns).unwrap_or(0);
        self.hand = (self.hand + LOOKED_AT) % slots;
        let reason = self.is_over(slot, self.clock_ns).unwrap_or(Reason::Evicted);
        self.counters.evicted += u64::from(reason == Reason::Evicted);
        self.remove(slot, reason);
    }

    /// Why the record in a slot is over at `clock_ns`, if it is.
    fn is_over(&self, slot: usize, clock_ns: i64) -> Option<Reason> {
        let entry = &self.entries[slot];
        let silent_ns = clock_ns.saturating_sub(entry.last_ns);
        match silent_ns > self.bounds.idle_ns {
            _ if entry.is_over() && silent_ns > LINGER_NS.min(self.bounds.idle_ns) => Some(Reason::End),
            true => Some(Reason::Idle),
            false => None,
        }
    }

    /// Ends the record in a slot, and frees that.
    fn remove(&mut self, slot: usize, reason: Reason) {
        let entry = &mut self.entries[slot];
        let hash = entry.hash;
        self.handed.close(entry, reason);
        // Nobody takes it for the flow that it had.
        (self.entries[slot].last_ns, self.entries[slot].key) = (FREE, Key::NONE);
        self.free.push(slot as u32);
        let mut place = self.home(hash);
        while self.index[place] as u32 != slot as u32 + 1 {
            place = self.next(place);
        }
        // What follows moves up, unless that puts it in front of its home.
        let mut hole = place;
        loop {
            place = self.next(place);
            let found = self.index[place];
            if found == 0 {
                break;
            }
            let mask = self.index.len() - 1;
            let (from_home, from_hole) =
                (place.wrapping_sub(self.home(found)) & mask, place.wrapping_sub(hole) & mask);
            if from_home >= from_hole {
                self.index[hole] = found;
                hole = place;
            }
        }
        self.index[hole] = 0;
    }

    /// Looks at the slots from `from` on, one step: what they have in intervals before `interval` is handed on and, with
    /// `clock_ns`, records that are over then. Where the next step begins; `None`: all were looked at.
    pub fn sweep(&mut self, from: usize, step: Step, interval: i64, clock_ns: Option<i64>) -> Option<usize> {
        let rows_max = self.handed.rows() + step.rows;
        let to = from.saturating_add(step.slots).min(self.entries.len());
        for slot in from..to {
            self.fetch_ahead(slot, clock_ns);
            let entry = &mut self.entries[slot];
            if entry.last_ns == FREE {
                continue;
            }
            if entry.interval != NO_INTERVAL && entry.interval < interval {
                self.handed.deltas.extend(entry.take_delta());
            }
            if let Some(clock_ns) = clock_ns {
                if let Some(reason) = self.is_over(slot, clock_ns) {
                    self.remove(slot, reason);
                } else if clock_ns.saturating_sub(self.entries[slot].start_ns) > self.bounds.active_ns {
                    self.split(slot);
                }
            }
            if self.handed.rows() >= rows_max {
                return Some(slot + 1);
            }
        }
        (to < self.entries.len()).then_some(to)
    }

    /// Asks for what a sweep looks at some slots further on: entries, and where the index has those that are over.
    #[inline]
    fn fetch_ahead(&mut self, slot: usize, clock_ns: Option<i64>) {
        if let Some(entry) = self.entries.get_mut(slot + 2 * AHEAD) {
            fetch_to_write(entry);
        }
        if let Some(clock_ns) = clock_ns
            && let Some(entry) = self.entries.get(slot + AHEAD)
            && clock_ns.saturating_sub(entry.last_ns) > self.bounds.idle_ns
        {
            fetch_begin(&self.index[self.home(entry.hash)]);
        }
    }

    /// A record that has lasted long enough is handed on; its flow goes on with its next packet.
    fn split(&mut self, slot: usize) {
        let entry = &mut self.entries[slot];
        self.handed.close(entry, Reason::Active);
        self.begin_record(slot);
    }

    /// Nothing more comes: what is left in the slots from `from` on is handed on, at most of so many. Where that goes on;
    /// `None`: that was all.
    pub fn end(&mut self, from: usize, slots: usize) -> Option<usize> {
        let to = from.saturating_add(slots).min(self.entries.len());
        for entry in self.entries[from..to].iter_mut().filter(|entry| entry.last_ns != FREE) {
            let reason = if entry.is_over() { Reason::End } else { Reason::Stop };
            self.handed.close(entry, reason);
        }
        if to < self.entries.len() {
            return Some(to);
        }
        self.entries.clear();
        self.free.clear();
        self.index.fill(0);
        None
    }

    #[inline(never)]
    fn find(&self, key: &Key, hash: u64) -> Option<usize> {
        let mut place = self.home(hash);
        loop {
            let found = self.index[place];
            if found == 0 {
                return None;
            }
            let slot = (found as u32 - 1) as usize;
            if found & TAG == hash & TAG && self.entries[slot].key.is(key) {
                return Some(slot);
            }
            place = self.next(place);
        }
    }

    /// The slot that a hash most likely has; [`NO_SLOT`]: none has it.
    #[inline]
    fn likely(&self, hash: u64) -> u32 {
        let mut place = self.home(hash);
        loop {
            let found = self.index[place];
            if found == 0 || found & TAG == hash & TAG {
                return (found as u32).wrapping_sub(1);
            }
            place = self.next(place);
        }
    }

    /// Where the search for a hash begins: by its upper half, as the index has it.
    #[inline]
    fn home(&self, hash: u64) -> usize {
        (hash >> 32) as usize & (self.index.len() - 1)
    }

    #[inline]
    fn next(&self, place: usize) -> usize {
        (place + 1) & (self.index.len() - 1)
    }
}

/// The half of a hash that the index keeps.
const TAG: u64 = !0 << 32;
/// No table has so many slots.
const NO_SLOT: u32 = u32::MAX;
const _: () = assert!(0u32.wrapping_sub(1) == NO_SLOT);
/// The time in a slot that is free.
const FREE: i64 = i64::MIN;

impl FlowNow<'_> {
    /// The packet is its first one.
    #[inline]
    pub fn is_new(&self) -> bool {
        self.is_new
    }

    /// Condition `number` holds for it; whether it does for the first time.
    pub fn fire(&mut self, number: u8) -> bool {
        self.entry.fire(number, self.rounds)
    }

    fn earlier(&self) -> Earlier {
        let earlier = self.earlier.get(self.slot).filter(|_| self.entry.has_earlier());
        earlier.copied().unwrap_or(Earlier { start_ns: i64::MAX, ..Earlier::default() })
    }

    /// Its packets, both directions.
    pub fn packets(&self) -> u64 {
        self.earlier().packets + self.entry.packets()
    }

    /// Frame lengths, both directions.
    pub fn bytes(&self) -> u64 {
        self.earlier().bytes + self.entry.bytes()
    }

    /// From its earliest packet to its latest, ns.
    pub fn duration_ns(&self) -> i64 {
        self.entry.last_ns.saturating_sub(self.earlier().start_ns.min(self.entry.start_ns))
    }

    /// Resent segments, both directions.
    pub fn resent(&self) -> u64 {
        self.earlier().resent + self.entry.resent()
    }

    /// Announcements of a window of 0, both directions.
    pub fn zero_windows(&self) -> u64 {
        self.earlier().zero_windows + self.entry.zero_windows()
    }

    /// The handshake's time as far as it is known, ns.
    pub fn rtt_ns(&self) -> Option<i64> {
        self.entry.rtt_ns()
    }
}
