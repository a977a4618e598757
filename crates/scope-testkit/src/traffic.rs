//! Traffic that tests make for themselves: frames, random conversations, and capture files that carry them.
//!
//! | module | what it holds |
//! |---|---|
//! | [`frame`] | one frame, layer by layer |
//! | [`random`] | a small seeded generator of numbers, and conversations made with it |
//! | [`write`] | pcap and pcapng files, byte by byte, on purpose without the product's own code |
//!
//! Everything is deterministic: the same seed gives the same bytes on every machine.

pub mod frame;
pub mod random;
pub mod write;

pub use random::{Conversations, Random};
pub use write::{Precision, dropped, pcap, pcapng};

/// LINKTYPE_ETHERNET.
pub const ETHERNET: u16 = 1;
/// LINKTYPE_RAW: IPv4 or IPv6 without a link header.
pub const RAW: u16 = 101;
/// LINKTYPE_LINUX_SLL.
pub const LINUX_SLL: u16 = 113;

/// Bits of a packet's flags that say its direction: 0 unknown, 1 in, 2 out.
pub const DIRECTION_MASK: u32 = 3;

/// An interface of a capture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Name; empty where the file knows none (pcap).
    pub name: String,
    /// Link type, LINKTYPE_ number.
    pub link_type: u16,
}

impl Interface {
    /// An interface with a name.
    pub fn new(name: &str, link_type: u16) -> Interface {
        Interface { name: name.to_string(), link_type }
    }
}

/// One captured packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Capture time, ns since the epoch.
    pub time_ns: i64,
    /// Captured bytes.
    pub data: Vec<u8>,
    /// Length on the wire, bytes.
    pub original_len: u32,
    /// Index into [`Capture::interfaces`].
    pub interface: usize,
    /// Flags as in pcapng's `epb_flags`.
    pub flags: u32,
    /// Packets lost before this one, as in pcapng's `epb_dropcount`.
    pub lost_before: u64,
}

impl Record {
    /// A whole packet on interface 0.
    pub fn new(time_ns: i64, data: Vec<u8>) -> Record {
        Record { time_ns, original_len: data.len() as u32, data, interface: 0, flags: 0, lost_before: 0 }
    }

    /// The same packet on interface `interface`.
    pub fn on(mut self, interface: usize) -> Record {
        self.interface = interface;
        self
    }

    /// The same packet with `flags`.
    pub fn flagged(mut self, flags: u32) -> Record {
        self.flags = flags;
        self
    }

    /// The same packet, captured only up to `bytes`.
    pub fn snapped(mut self, bytes: usize) -> Record {
        self.data.truncate(bytes);
        self
    }
}

/// Packets in the order in which they stand in a file, and the interfaces they came by.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Capture {
    /// Interfaces by index.
    pub interfaces: Vec<Interface>,
    /// Packets in file order.
    pub packets: Vec<Record>,
}

impl Capture {
    /// An empty capture of one Ethernet interface.
    pub fn ethernet(name: &str) -> Capture {
        Capture { interfaces: vec![Interface::new(name, ETHERNET)], packets: Vec::new() }
    }

    /// Puts `record` where its time belongs if the capture is in order: before the first packet that is
    /// later. Returns its index.
    pub fn insert(&mut self, record: Record) -> usize {
        let at = self.packets.iter().position(|p| p.time_ns > record.time_ns).unwrap_or(self.packets.len());
        self.packets.insert(at, record);
        at
    }

    /// The packets at `indices`, in that order.
    pub fn subset(&self, indices: &[usize]) -> Capture {
        let packets = indices.iter().map(|&at| self.packets[at].clone()).collect();
        Capture { interfaces: self.interfaces.clone(), packets }
    }

    /// Link type of the packet at `index`.
    pub fn link_type(&self, index: usize) -> u16 {
        self.interfaces[self.packets[index].interface].link_type
    }

    /// All link types that packets have, ascending.
    pub fn link_types(&self) -> Vec<u16> {
        let mut all: Vec<u16> = (0..self.packets.len()).map(|at| self.link_type(at)).collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// Only the packets of one link type, in order.
    pub fn of_link_type(&self, link_type: u16) -> Capture {
        let indices: Vec<usize> =
            (0..self.packets.len()).filter(|&at| self.link_type(at) == link_type).collect();
        self.subset(&indices)
    }

    /// Smallest and largest time; `None` without packets.
    pub fn span_ns(&self) -> Option<(i64, i64)> {
        let times = self.packets.iter().map(|p| p.time_ns);
        Some((times.clone().min()?, times.max()?))
    }

    /// Lets packets arrive late by less than `late_ns` each: their order changes, their times don't, and no
    /// packet is `late_ns` or more older than one before it.
    pub fn disorder(&mut self, random: &mut Random, late_ns: i64) {
        let arrivals: Vec<i64> =
            self.packets.iter().map(|p| p.time_ns + random.below(late_ns as u64) as i64).collect();
        let mut order: Vec<usize> = (0..self.packets.len()).collect();
        order.sort_by_key(|&at| arrivals[at]);
        *self = self.subset(&order);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disorder_keeps_every_packet_and_bounds_the_steps_back() {
        let mut capture = Conversations { packets: 500, ..Conversations::default() }.capture();
        let mut times: Vec<i64> = capture.packets.iter().map(|p| p.time_ns).collect();
        capture.disorder(&mut Random::new(3), 300_000_000);
        let mut latest = 0;
        let mut steps = 0;
        for packet in &capture.packets {
            assert!(latest - packet.time_ns < 300_000_000);
            steps += usize::from(packet.time_ns < latest);
            latest = latest.max(packet.time_ns);
        }
        assert!(steps > 50, "{steps}");
        let mut after: Vec<i64> = capture.packets.iter().map(|p| p.time_ns).collect();
        after.sort_unstable();
        times.sort_unstable();
        assert_eq!(after, times);
    }

    #[test]
    fn an_inserted_packet_stands_behind_those_of_its_own_time() {
        let mut capture = Capture::ethernet("a");
        for time_ns in [10, 20, 30] {
            capture.insert(Record::new(time_ns, vec![1]));
        }
        assert_eq!(capture.insert(Record::new(20, vec![2])), 2);
    }
}
