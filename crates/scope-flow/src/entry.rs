//! One flow in the table: four cache lines, of which a packet touches two, unless it says something of its connection.
//!
//! ```text
//!  line 0  key 48 | last_ns 8 | interval 8            found by; what the sweep looks at
//!  line 1  start_ns; what it has in `interval`, per side; lengths, flags, sequence numbers
//!  line 2  what it had in this record before; hash
//!  line 3  TCP: the handshake, what was resent, windows of 0
//! ```
//! Side 0 goes from the lesser end of the key to the greater one. A packet adds to line 1 only. That is handed on
//! as a [`Delta`], and added to line 2, when a packet of another interval comes, the interval is over, the
//! record ends, or a sum would run over.

use crate::connection::Connection;
use crate::key::Key;
use crate::reading::{FIN, RST, Reading, SYN, Segment, TCP};
use crate::rounds::Rounds;
use crate::rows::{Amount, Reason, Side};
use scope_packet::fetch::fetch_begin_to_write;
use std::mem::offset_of;

/// No interval: nothing is in line 1.
pub(crate) const NO_INTERVAL: i64 = i64::MIN;
/// The start of a record that has no packet yet.
const NOT_BEGUN: i64 = i64::MAX;

/// In `marks`: the highest sequence number of a side is known.
const HAS_TOP: [u8; 2] = [1, 2];
/// In `marks`: a segment without a flag of its own may still belong to the handshake.
const IS_OPENING: u8 = 4;
/// In `marks`: it had records that are over.
const HAS_EARLIER: u8 = 8;

/// One packet with an IP header, as it counts for its flow.
#[derive(Clone, Copy, Debug, Default)]
pub struct Seen {
    /// What it says of its flow.
    pub reading: Reading,
    /// Original frame length.
    pub bytes: u32,
    /// When it was captured.
    pub time_ns: i64,
    /// The number of its interval.
    pub interval: i64,
    /// Its place in the batch.
    pub at: u8,
}

impl Seen {
    /// 0 from the lesser end to the greater one, 1 back.
    #[inline]
    fn side(&self) -> usize {
        usize::from(self.reading.is_reverse)
    }
}

/// See the module.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub(crate) struct Entry {
    pub key: Key,
    /// The latest time of its record.
    pub last_ns: i64,
    /// Which interval line 1 is of.
    pub interval: i64,
    /// The earliest time of its record.
    pub start_ns: i64,
    bytes: [u32; 2],
    ip_bytes: [u32; 2],
    packets: [u32; 2],
    len_min: [u32; 2],
    len_max: [u32; 2],
    tops: [u32; 2],
    tcp_flags: [u8; 2],
    /// Conditions that have held, by number: bits.
    fired: u16,
    /// The round that these are of: see [`Rounds`].
    round: u8,
    /// The side that goes forward.
    forward: u8,
    /// See [`HAS_TOP`] and those behind it.
    marks: u8,
    before: [Amount; 2],
    /// Where it lies in the index.
    pub hash: u64,
    connection: Connection,
    resent: [u32; 2],
    zero_windows: [u32; 2],
}

const _: () = assert!(size_of::<Entry>() == 256 && align_of::<Entry>() == 64);
// What each packet touches lies in these two lines, which `fetch` asks for.
const _: () = assert!(offset_of!(Entry, start_ns) == 64 && offset_of!(Entry, before) == 128);

/// What a flow has in one interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delta {
    /// What tells it apart.
    pub key: Key,
    /// Its number: its begin is this times the length.
    pub interval: i64,
    /// From the lesser end of the key to the greater one, and back.
    pub amounts: [Amount; 2],
}

/// The record of a flow, as a worker hands it on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// What tells it apart.
    pub key: Key,
    /// Time of its earliest packet.
    pub start_ns: i64,
    /// Time of its latest packet.
    pub end_ns: i64,
    /// The source is the greater end of the key.
    pub is_reverse: bool,
    /// From source to destination, and back.
    pub sides: [Side; 2],
    /// Of TCP.
    pub connection: Option<Connection>,
    /// Why it is over.
    pub reason: Reason,
}

impl Entry {
    /// A flow whose first packet is `first`.
    pub fn new(hash: u64, first: &Seen) -> Entry {
        Entry {
            key: first.reading.key,
            last_ns: first.time_ns,
            interval: NO_INTERVAL,
            start_ns: first.time_ns,
            bytes: [0; 2],
            ip_bytes: [0; 2],
            packets: [0; 2],
            len_min: [u32::MAX; 2],
            len_max: [0; 2],
            tops: [0; 2],
            tcp_flags: [0; 2],
            fired: 0,
            round: 0,
            forward: first.side() as u8,
            marks: 0,
            before: [Amount::default(); 2],
            hash,
            connection: Connection::default(),
            resent: [0; 2],
            zero_windows: [0; 2],
        }
    }

    /// Why the record ends in front of this packet, if it does.
    #[inline]
    pub fn ends_before(&self, packet: &Seen, idle_ns: i64, active_ns: i64) -> Option<Reason> {
        let latest_ns = self.last_ns.max(packet.time_ns);
        // Nearly all packets: neither before the record's begin, nor long behind its end, and not a SYN.
        if self.start_ns <= packet.time_ns
            && packet.time_ns <= self.last_ns.saturating_add(idle_ns)
            && latest_ns.saturating_sub(self.start_ns) <= active_ns
            && packet.reading.segment.is_none_or(|segment| segment.flags & SYN == 0)
        {
            return None;
        }
        self.ends_at(packet, idle_ns, active_ns)
    }

    #[inline(never)]
    fn ends_at(&self, packet: &Seen, idle_ns: i64, active_ns: i64) -> Option<Reason> {
        if packet.time_ns > self.last_ns.saturating_add(idle_ns)
            || packet.time_ns < self.start_ns.saturating_sub(idle_ns) && self.start_ns != NOT_BEGUN
        {
            return Some(if self.is_over() { Reason::End } else { Reason::Idle });
        }
        if packet.reading.segment.is_some_and(|segment| self.connection.is_over_at(&segment, self.has_top()))
        {
            return Some(Reason::End);
        }
        let span = self.last_ns.max(packet.time_ns).saturating_sub(self.start_ns.min(packet.time_ns));
        (span > active_ns).then_some(Reason::Active)
    }

    /// The record that is over, if it has a packet; what the flow has in its interval is handed on already.
    pub fn record(&self, reason: Reason) -> Option<Record> {
        if self.start_ns == NOT_BEGUN {
            return None;
        }
        let forward = usize::from(self.forward);
        let side = |side: usize| Side {
            packets: self.before[side].packets,
            bytes: self.before[side].bytes,
            ip_bytes: self.before[side].ip_bytes,
            tcp_flags: self.tcp_flags[side],
            len_min: if self.len_min[side] == u32::MAX { 0 } else { self.len_min[side] },
            len_max: self.len_max[side],
            zero_windows: self.zero_windows[side].into(),
            resent: self.resent[side].into(),
        };
        Some(Record {
            key: self.key,
            start_ns: self.start_ns,
            end_ns: self.last_ns,
            is_reverse: forward == 1,
            sides: [side(forward), side(1 - forward)],
            connection: (self.key.protocol() == TCP).then_some(self.connection),
            reason,
        })
    }

    /// The connection was closed or reset: its record may end soon.
    pub fn is_over(&self) -> bool {
        self.connection.is_over()
    }

    /// A new record of the same flow begins with the next packet; the connection goes on.
    pub fn begin_record(&mut self) {
        self.start_ns = NOT_BEGUN;
        self.before = [Amount::default(); 2];
        self.len_min = [u32::MAX; 2];
        self.len_max = [0; 2];
        self.tcp_flags = [0; 2];
        self.resent = [0; 2];
        self.zero_windows = [0; 2];
        self.connection.is_told();
    }

    /// What it has in its interval, if anything: that counts as before from here on.
    #[inline]
    pub fn take_delta(&mut self) -> Option<Delta> {
        if self.interval == NO_INTERVAL {
            return None;
        }
        let amounts = [0, 1].map(|side| Amount {
            packets: self.packets[side].into(),
            bytes: self.bytes[side].into(),
            ip_bytes: self.ip_bytes[side].into(),
        });
        for (before, amount) in self.before.iter_mut().zip(&amounts) {
            before.add(amount);
        }
        let interval = std::mem::replace(&mut self.interval, NO_INTERVAL);
        (self.packets, self.bytes, self.ip_bytes) = ([0; 2], [0; 2], [0; 2]);
        Some(Delta { key: self.key, interval, amounts })
    }

    /// Adds a packet of the record. What the flow has in another interval is handed on already.
    #[inline]
    pub fn add(&mut self, packet: &Seen) {
        let side = packet.side();
        self.interval = packet.interval;
        self.last_ns =
            if self.start_ns == NOT_BEGUN { packet.time_ns } else { self.last_ns.max(packet.time_ns) };
        if packet.time_ns < self.start_ns {
            self.start_ns = packet.time_ns;
        }
        self.packets[side] += 1;
        self.bytes[side] += packet.bytes;
        self.ip_bytes[side] += packet.reading.ip_bytes;
        self.len_min[side] = self.len_min[side].min(packet.bytes);
        self.len_max[side] = self.len_max[side].max(packet.bytes);
        if let Some(segment) = &packet.reading.segment {
            self.add_segment(side, segment, packet.time_ns);
        }
    }

    /// Whether line 1 must be handed on before this packet: a sum would run over.
    #[inline]
    pub fn is_full(&self, packet: &Seen) -> bool {
        let side = packet.side();
        let (_, bytes) = self.bytes[side].overflowing_add(packet.bytes);
        let (_, ip_bytes) = self.ip_bytes[side].overflowing_add(packet.reading.ip_bytes);
        bytes | ip_bytes | (self.packets[side] == u32::MAX)
    }

    /// Asks for the lines that each packet of its flow touches.
    #[inline]
    pub fn fetch(&mut self) {
        fetch_begin_to_write(&mut self.key);
        fetch_begin_to_write(&mut self.start_ns);
    }

    /// The highest sequence number of some side is known.
    #[inline]
    fn has_top(&self) -> bool {
        self.marks & (HAS_TOP[0] | HAS_TOP[1]) != 0
    }

    /// It had records that are over: what they had stands beside the table, where conditions are asked.
    pub fn has_earlier(&self) -> bool {
        self.marks & HAS_EARLIER != 0
    }

    /// See [`Entry::has_earlier`].
    pub fn note_earlier(&mut self) {
        self.marks |= HAS_EARLIER;
    }

    #[inline]
    fn add_segment(&mut self, side: usize, segment: &Segment, time_ns: i64) {
        let flags = segment.flags;
        self.tcp_flags[side] |= flags;
        if segment.window == 0 && flags & (SYN | RST) == 0 {
            self.zero_windows[side] = self.zero_windows[side].saturating_add(1);
        }
        let end = segment.end();
        if end != segment.sequence {
            let is_known = self.marks & HAS_TOP[side] != 0;
            let is_behind = is_known && end.wrapping_sub(self.tops[side]) as i32 <= 0;
            if !is_behind {
                self.tops[side] = end;
                self.marks |= HAS_TOP[side];
            } else if !segment.is_keep_alive(self.tops[side]) {
                self.resent[side] = self.resent[side].saturating_add(1);
            }
        }
        if flags & (SYN | FIN | RST) != 0 || self.marks & IS_OPENING != 0 {
            if let Some(forward) = self.connection.add(side, self.forward.into(), segment, time_ns) {
                self.forward = forward as u8;
            }
            let is_opening = self.connection.is_opening();
            self.marks = self.marks & !IS_OPENING | if is_opening { IS_OPENING } else { 0 };
        }
    }

    /// Condition `number` holds; whether it does for the first time.
    pub fn fire(&mut self, number: u8, rounds: &Rounds) -> bool {
        self.forget(rounds);
        let is_first = self.fired >> number & 1 == 0;
        self.fired |= 1 << number;
        is_first
    }

    /// Forgets what was said of numbers that have been given to other conditions since.
    pub fn forget(&mut self, rounds: &Rounds) {
        if self.round == rounds.now {
            return;
        }
        for (number, since) in rounds.since.iter().enumerate() {
            if *since > self.round {
                self.fired &= !(1 << number);
            }
        }
        self.round = rounds.now;
    }

    /// As if all that was forgotten had been forgotten in round 0.
    pub fn begin_rounds(&mut self, rounds: &Rounds) {
        self.forget(rounds);
        self.round = 0;
    }

    /// Both directions of its record.
    pub fn packets(&self) -> u64 {
        self.before.iter().map(|amount| amount.packets).sum::<u64>()
            + self.packets.map(u64::from).iter().sum::<u64>()
    }

    /// Frame lengths of both directions of its record.
    pub fn bytes(&self) -> u64 {
        self.before.iter().map(|amount| amount.bytes).sum::<u64>()
            + self.bytes.map(u64::from).iter().sum::<u64>()
    }

    /// Resent segments of both directions of its record.
    pub fn resent(&self) -> u64 {
        self.resent.iter().map(|&count| u64::from(count)).sum()
    }

    /// Announcements of a window of zero of both directions of its record.
    pub fn zero_windows(&self) -> u64 {
        self.zero_windows.iter().map(|&count| u64::from(count)).sum()
    }

    /// The handshake's time as far as it is known, ns.
    pub fn rtt_ns(&self) -> Option<i64> {
        self.connection.rtt_ns()
    }
}

impl Segment {
    /// The sequence number behind it.
    #[inline]
    pub fn end(&self) -> u32 {
        let marks = u32::from(self.flags & SYN != 0) + u32::from(self.flags & FIN != 0);
        self.sequence.wrapping_add(self.payload).wrapping_add(marks)
    }

    /// One byte, or none, right in front of what comes next.
    #[inline]
    fn is_keep_alive(&self, top: u32) -> bool {
        self.payload <= 1 && self.flags & (SYN | FIN) == 0 && self.sequence == top.wrapping_sub(1)
    }
}

impl Amount {
    /// Adds another one.
    #[inline]
    pub fn add(&mut self, other: &Amount) {
        self.packets += other.packets;
        self.bytes += other.bytes;
        self.ip_bytes += other.ip_bytes;
    }
}
