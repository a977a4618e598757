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

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Totals {
    places: HashMap<Cell, usize>,
    cells: Vec<(Cell, Total)>,
    /// The cell of the last packet.
    last: usize,
}

impl Totals {
    /// Counts a packet.
    #[inline]
    pub fn add(&mut self, frame: &Frame) {
        let total = self.of(frame.cell);
        let bytes = u64::from(frame.bytes);
        total.all.add(bytes);
        if frame.is_sent {
            total.sent.add(bytes);
        }
        if let Some((protocol, ip_bytes)) = frame.ip {
            total.ip_packets += 1;
            total.ip_bytes += u64::from(ip_bytes);
            total.protocols[Proto::of(protocol) as usize].add(bytes);
        }
    }

    /// Counts a flow that begins.
    pub fn begin_flow(&mut self, cell: Cell) {
        self.of(cell).new_flows += 1;
    }

    #[inline]
    fn of(&mut self, cell: Cell) -> &mut Total {
        if self.cells.get(self.last).is_none_or(|(known, _)| *known != cell) {
            self.last = self.place(cell);
        }
        &mut self.cells[self.last].1
    }

    fn place(&mut self, cell: Cell) -> usize {
        *self.places.entry(cell).or_insert_with(|| {
            self.cells.push((cell, Total::default()));
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
        handed.extend(self.cells.extract_if(.., |(cell, _)| cell.interval < interval));
        if handed.len() > before {
            self.places.clear();
            let cells = self.cells.iter().enumerate();
            self.places.extend(cells.map(|(place, (cell, _))| (*cell, place)));
            self.last = 0;
        }
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
