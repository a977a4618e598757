//! What one worker counts: its flow table and its intervals, batch by batch, and what it hands on.
//!
//! Work that is not for one packet comes in bounded steps, one after each batch: a *pass* over the flow table
//! begins when an interval is over and, of live traffic, once a second. When the pass is through, everything before
//! its interval is handed on, and the worker says so: [`Counting::take`].

use crate::entry::Seen;
use crate::reading::read;
use crate::table::{BATCH_MAX, Bounds, FlowNow, FlowTable, HandedFlows, Step, TableCounters};
use crate::totals::{CELLS_MAX, Cell, Frame, Total, Totals};
use scope_packet::packet::FLAGS_OUTBOUND;
use scope_packet::{Headers, Packet};

/// What a pass does in one step. There is one behind each batch and one at each commit, so that nothing takes long. A
/// batch begins as many flows as it has packets, and each ends with two rows: so a pass is faster than flows come.
const STEP: Step = Step { slots: 1 << 10, rows: 1 << 8 };
const _: () = assert!(STEP.rows > 2 * BATCH_MAX);
/// A pass over live flows begins so often, ns of capture time, also where no interval ends.
const PASS_EVERY_NS: i64 = 1_000_000_000;
/// The direction in a packet's flags.
const DIRECTION: u32 = 3;

/// What is counted, and how.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// How many flows there may be, and how long records are.
    pub bounds: Bounds,
    /// Length of an interval, ns.
    pub length_ns: i64,
    /// Flows that are silent for long are handed on while the run goes: of live traffic.
    pub expires: bool,
    /// What hashes begin with.
    pub seed: [u64; 2],
}

/// What a worker hands on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Handed {
    /// What flows have in intervals, and their records.
    pub flows: HandedFlows,
    /// What interfaces have in intervals.
    pub totals: Vec<(Cell, Total)>,
}

/// See the module.
#[derive(Debug)]
pub struct Counting {
    settings: Settings,
    table: FlowTable,
    totals: Totals,
    handed: Vec<(Cell, Total)>,
    /// The interval that the last packet was in: its number, begin and end.
    last: (i64, i64, i64),
    /// Where the pass goes on, and its interval.
    pass: Option<(usize, i64)>,
    /// When the last pass began.
    passed_ns: i64,
    /// What lay before that is settled, when that was said last.
    settled_ns: i64,
    /// A pass is through, and nobody was told yet.
    has_passed: bool,
    /// At the end: flows in slots before this one are handed on.
    ended: usize,
    /// Everything before this interval is handed on.
    until: i64,
    /// Room for the packets of a batch that have a flow.
    seen: Box<[Seen; BATCH_MAX]>,
}

impl Counting {
    /// Nothing is counted yet.
    pub fn new(settings: Settings) -> Counting {
        Counting {
            settings,
            table: FlowTable::new(settings.bounds, settings.seed),
            totals: Totals::default(),
            handed: Vec::new(),
            last: (0, 0, settings.length_ns),
            pass: None,
            ended: 0,
            passed_ns: i64::MIN,
            settled_ns: i64::MIN,
            has_passed: false,
            until: 0,
            seen: Box::new([Seen::default(); BATCH_MAX]),
        }
    }

    /// Has the system give all memory of flows now: see [`FlowTable::touch`].
    pub fn touch(&mut self) {
        self.table.touch();
    }

    /// Counts the packets of a batch that are in `which`, a bit each. `headers` are those of the packet in a place, if
    /// it was parsed; `bytes` is its frame's length. `then` gets the place of each packet that has a flow, and the flow
    /// as it is right behind that packet.
    #[inline]
    pub fn run(
        &mut self,
        packets: &[Packet<'_>],
        which: u64,
        headers: impl Fn(usize) -> Option<Headers>,
        bytes: impl Fn(&Packet<'_>) -> u32,
        mut then: impl FnMut(usize, &mut FlowNow<'_>),
    ) {
        let mut count = 0;
        let mut rest = which;
        while rest != 0 {
            let at = rest.trailing_zeros() as usize;
            rest &= rest - 1;
            let packet = &packets[at];
            let headers = headers(at).unwrap_or_default();
            // The last time that there is says that a record has no packet.
            let time_ns = packet.time_ns.min(i64::MAX - 1);
            let interval = self.interval(time_ns);
            let vlan = if headers.vlan_tags() > 0 { headers.vlan_id() } else { 0 };
            let bytes = bytes(packet);
            let seen = &mut self.seen[count];
            (seen.bytes, seen.time_ns, seen.interval, seen.at) = (bytes, time_ns, interval, at as u8);
            let is_ip = read(&headers, packet.data, packet.interface, &mut seen.reading).is_some();
            self.totals.add(&Frame {
                cell: Cell { interval, interface: packet.interface, vlan },
                bytes,
                is_sent: packet.flags & DIRECTION == FLAGS_OUTBOUND,
                ip: is_ip.then_some((seen.reading.key.protocol(), seen.reading.ip_bytes)),
            });
            count += usize::from(is_ip);
        }
        let totals = &mut self.totals;
        self.table.run(&mut self.seen[..count], |seen, now| {
            if now.is_new() {
                let (interval, key) = (seen.interval, &seen.reading.key);
                totals.begin_flow(Cell { interval, interface: key.interface, vlan: key.vlan() });
            }
            then(usize::from(seen.at), now);
        });
        self.go_on();
    }

    /// These numbers of conditions, a bit each, are from now on those of conditions that were never asked.
    pub fn begin_conditions(&mut self, numbers: u16) {
        self.table.begin_conditions(numbers);
    }

    /// The number of the interval that a time is in.
    #[inline]
    fn interval(&mut self, time_ns: i64) -> i64 {
        let (number, from_ns, to_ns) = self.last;
        if (from_ns..to_ns).contains(&time_ns) {
            return number;
        }
        let number = time_ns.div_euclid(self.settings.length_ns);
        let from_ns = number * self.settings.length_ns;
        self.last = (number, from_ns, from_ns.saturating_add(self.settings.length_ns));
        number
    }

    /// Goes on with what is to be done beside packets: nothing comes any more, but for what is late, that lies before
    /// `settled_ns`. Whether there is something to take.
    #[inline]
    pub fn step(&mut self, settled_ns: i64) -> bool {
        let interval = settled_ns.div_euclid(self.settings.length_ns);
        self.passed_ns = self.passed_ns.min(settled_ns);
        let is_due = interval > self.until
            || self.settings.expires && settled_ns - self.passed_ns.max(0) >= PASS_EVERY_NS;
        if self.pass.is_none() && is_due {
            self.pass = Some((0, interval.max(self.until)));
            self.passed_ns = settled_ns;
        }
        self.settled_ns = settled_ns;
        self.go_on();
        if self.totals.len() > CELLS_MAX {
            self.totals.take(i64::MAX, &mut self.handed);
        }
        std::mem::take(&mut self.has_passed) || self.waiting() >= HAND_ON_FROM
    }

    /// Goes on with a pass, if there is one.
    fn go_on(&mut self) {
        let Some((from, interval)) = self.pass else { return };
        let clock_ns = self.settings.expires.then_some(self.settled_ns);
        self.pass = self.table.sweep(from, STEP, interval, clock_ns).map(|next| (next, interval));
        if self.pass.is_none() {
            self.totals.take(interval, &mut self.handed);
            self.until = interval;
            self.has_passed = true;
        }
    }

    /// What waits to be taken, in rows.
    fn waiting(&self) -> usize {
        self.table.handed.rows() + self.handed.len()
    }

    /// What was counted and isn't taken; and the number of the interval before which nothing is left.
    pub fn take(&mut self) -> (Handed, i64) {
        self.exchange(Handed::default())
    }

    /// The same, in exchange for `room`: what comes next is put there, so that memory is asked for once.
    pub fn exchange(&mut self, mut room: Handed) -> (Handed, i64) {
        room.clear();
        let flows = std::mem::replace(&mut self.table.handed, room.flows);
        (Handed { flows, totals: std::mem::replace(&mut self.handed, room.totals) }, self.until)
    }

    /// Nothing more comes: everything is to be taken, part by part. Whether there is more: then this is to be called again.
    pub fn end(&mut self) -> bool {
        self.pass = None;
        self.ended = self.table.end(self.ended, END_SLOTS).unwrap_or(0);
        if self.ended > 0 {
            return true;
        }
        self.totals.take(i64::MAX, &mut self.handed);
        self.until = i64::MAX;
        false
    }

    /// Flows that are in the table, and its counters.
    pub fn counters(&self) -> (usize, TableCounters) {
        (self.table.len(), self.table.counters())
    }
}

/// Slots of a part of what is left at the end.
const END_SLOTS: usize = 1 << 12;
/// So many rows are worth to be taken at once.
const HAND_ON_FROM: usize = 1 << 8;
/// As a rule no piece has more rows of a kind.
const PIECE_ROWS: usize = 2 * HAND_ON_FROM;

impl Handed {
    /// An empty one with memory for a whole piece: asked for at once, since each time more costs a call of the system, for
    /// which a worker may have to wait.
    pub fn with_room() -> Handed {
        let (deltas, records) = (Vec::with_capacity(PIECE_ROWS), Vec::with_capacity(PIECE_ROWS));
        Handed { flows: HandedFlows { deltas, records }, totals: Vec::new() }
    }

    /// There is nothing.
    pub fn is_empty(&self) -> bool {
        self.flows.is_empty() && self.totals.is_empty()
    }

    /// How many rows there are.
    pub fn rows(&self) -> usize {
        self.flows.rows() + self.totals.len()
    }

    /// Nothing is left but its memory.
    pub fn clear(&mut self) {
        self.flows.clear();
        self.totals.clear();
    }
}
