//! What each interface and VLAN has in each interval, added up by one worker.
//!
//! Nearly all packets of a batch belong to the cell of the packet before them, which is remembered.

use crate::rows::{Proto, Sum};
use std::collections::HashMap;

/// Cells that may wait at once: beyond, all are handed on, and what comes later is added to them there.
pub(crate) const CELLS_MAX: usize = 1 << 12;

/// Which packets a cell is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Cell {
    /// The interval's number.
    pub interval: i64,
    /// The worker's number of the interface.
    pub interface: u32,
    /// 0: untagged.
    pub vlan: u16,
}

/// What a cell has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Total {
    /// All packets.
    pub all: Sum,
    /// Those with an IP header.
    pub ip_packets: u64,
    /// Their lengths by the IP headers.
    pub ip_bytes: u64,
    /// TCP, UDP, ICMP, others: of the IP packets.
    pub protocols: [Sum; 4],
    /// Packets that left.
    pub sent: Sum,
    /// Flows that began.
    pub new_flows: u64,
}

/// One packet, as it counts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frame {
    pub cell: Cell,
    pub bytes: u32,
    pub is_sent: bool,
    /// Of IP: the protocol's number, and the length by its header.
    pub ip: Option<(u8, u32)>,
}

/// What a cell has so far: each packet counts in one sum, of which the rest follows.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    /// By protocol, and those without an IP header.
    sums: [Sum; NO_IP + 1],
    ip_bytes: u64,
    sent: Sum,
    new_flows: u64,
}

/// The place of packets without an IP header.
const NO_IP: usize = 4;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Totals {
    places: HashMap<Cell, usize>,
    cells: Vec<(Cell, Tally)>,
    /// The cell of the last packet.
    last: usize,
}

impl Totals {
    /// Counts a packet.
    #[inline]
    pub fn add(&mut self, frame: &Frame) {
        let tally = self.of(frame.cell);
        let bytes = u64::from(frame.bytes);
        let (place, ip_bytes) = match frame.ip {
            Some((protocol, ip_bytes)) => (Proto::of(protocol) as usize, ip_bytes),
            None => (NO_IP, 0),
        };
        tally.sums[place].add(bytes);
        tally.ip_bytes += u64::from(ip_bytes);
        if frame.is_sent {
            tally.sent.add(bytes);
        }
    }

    /// Counts a flow that begins.
    pub fn begin_flow(&mut self, cell: Cell) {
        self.of(cell).new_flows += 1;
    }

    #[inline]
    fn of(&mut self, cell: Cell) -> &mut Tally {
        if self.cells.get(self.last).is_none_or(|(known, _)| *known != cell) {
            self.last = self.place(cell);
        }
        &mut self.cells[self.last].1
    }

    fn place(&mut self, cell: Cell) -> usize {
        *self.places.entry(cell).or_insert_with(|| {
            self.cells.push((cell, Tally::default()));
            self.cells.len() - 1
        })
    }

    /// Cells that wait.
    pub fn len(&self) -> usize {
        self.cells.len()
    }

    /// Moves the cells of intervals before `interval` to `handed`.
    pub fn take(&mut self, interval: i64, handed: &mut Vec<(Cell, Total)>) {
        let before = handed.len();
        let taken = self.cells.extract_if(.., |(cell, _)| cell.interval < interval);
        handed.extend(taken.map(|(cell, tally)| (cell, tally.total())));
        if handed.len() > before {
            self.places.clear();
            let cells = self.cells.iter().enumerate();
            self.places.extend(cells.map(|(place, (cell, _))| (*cell, place)));
            self.last = 0;
        }
    }
}

impl Tally {
    fn total(&self) -> Total {
        let Tally { sums: [tcp, udp, icmp, other, no_ip], ip_bytes, sent, new_flows } = *self;
        let mut total = Total {
            all: no_ip,
            ip_bytes,
            protocols: [tcp, udp, icmp, other],
            sent,
            new_flows,
            ip_packets: 0,
        };
        for sum in &total.protocols {
            total.all.join(sum);
            total.ip_packets += sum.packets;
        }
        total
    }
}

impl Sum {
    /// One packet more.
    #[inline]
    pub fn add(&mut self, bytes: u64) {
        self.packets += 1;
        self.bytes += bytes;
    }

    /// Adds another one.
    #[inline]
    pub fn join(&mut self, other: &Sum) {
        self.packets += other.packets;
        self.bytes += other.bytes;
    }
}

impl Total {
    /// Adds another one.
    pub fn join(&mut self, other: &Total) {
        self.all.join(&other.all);
        self.ip_packets += other.ip_packets;
        self.ip_bytes += other.ip_bytes;
        for (sum, other) in self.protocols.iter_mut().zip(&other.protocols) {
            sum.join(other);
        }
        self.sent.join(&other.sent);
        self.new_flows += other.new_flows;
    }
}
