//! A batch between its stages: its packets, what filters see of them, and which of them each lane still has
//! at hand.

use scope_filter::{FILTER_INPUTS_MAX, FilterInput, Predicate};
use scope_packet::Packet;
use scope_ring::LINK_TYPES_MAX;

/// Lanes of a worker at most.
pub(super) const LANES_MAX: usize = LINK_TYPES_MAX as usize;

/// At most [`FILTER_INPUTS_MAX`] packets. Sets of them are bits: packet 0 is the lowest one.
pub(super) struct Batch<'p> {
    /// As the source lends them.
    pub packets: &'p [Packet<'p>],
    /// What filters see of each: filled by the stage that parses, for packets that have a lane.
    pub asked: [FilterInput<'p>; FILTER_INPUTS_MAX],
    of_lane: [u64; LANES_MAX],
}

impl<'p> Batch<'p> {
    /// `lane_of` says into which lane the packets of an interface of the source go; `None`: into none.
    #[inline]
    pub fn new(packets: &'p [Packet<'p>], mut lane_of: impl FnMut(u32) -> Option<usize>) -> Batch<'p> {
        let mut of_lane = [0; LANES_MAX];
        // Packets of one interface come together.
        let (mut interface, mut lane) = (None, None);
        for (at, packet) in packets.iter().enumerate() {
            if interface != Some(packet.interface) {
                (interface, lane) = (Some(packet.interface), lane_of(packet.interface));
            }
            if let Some(lane) = lane {
                of_lane[lane] |= 1 << at;
            }
        }
        Batch { packets, asked: [FilterInput::default(); FILTER_INPUTS_MAX], of_lane }
    }

    /// Lanes that have packets, and which.
    #[inline]
    pub fn lanes(&self) -> impl Iterator<Item = (usize, u64)> + use<> {
        self.of_lane.into_iter().enumerate().filter(|(_, which)| *which != 0)
    }

    /// What filters see of its packets.
    #[inline]
    pub fn asked(&self) -> &[FilterInput<'p>] {
        &self.asked[..self.packets.len()]
    }

    /// Sets of each of `hits` the packets that its predicate matches: `predicates` are in the same order, of each lane.
    #[inline]
    pub fn evaluate(&self, predicates: &[Vec<Predicate>], hits: &mut [u64]) {
        let mut lanes = self.lanes();
        // Set by the first lane, which mostly is the only one: a few words that are cleared first and then read cost
        // more than a filter.
        let Some((lane, which)) = lanes.next() else {
            return hits.fill(0);
        };
        for (hits, predicate) in hits.iter_mut().zip(&predicates[lane]) {
            *hits = predicate.matches_batch(self.asked(), which);
        }
        for (lane, which) in lanes {
            for (hits, predicate) in hits.iter_mut().zip(&predicates[lane]) {
                *hits |= predicate.matches_batch(self.asked(), which);
            }
        }
    }

    /// No later stage sees these packets.
    #[inline]
    pub fn take_out(&mut self, which: u64) {
        for of_lane in &mut self.of_lane {
            *of_lane &= !which;
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Packets of 60 bytes: Ethernet, IPv4, UDP, from port 1000 to each of `ports`, by turns on interfaces 0
    /// to `interfaces` - 1.
    pub fn udp(ports: &[u16]) -> Vec<Vec<u8>> {
        let frame = |port: &u16| {
            let mut bytes = vec![0; 60];
            bytes[12..14].copy_from_slice(&[8, 0]);
            bytes[14..24].copy_from_slice(&[0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17]);
            bytes[26..34].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
            bytes[34..36].copy_from_slice(&1000u16.to_be_bytes());
            bytes[36..38].copy_from_slice(&port.to_be_bytes());
            bytes[38..40].copy_from_slice(&26u16.to_be_bytes());
            bytes
        };
        ports.iter().map(frame).collect()
    }

    /// These bytes as packets of these interfaces, in turn.
    pub fn packets<'p>(frames: &'p [Vec<u8>], interfaces: &[u32]) -> Vec<Packet<'p>> {
        let packet = |(frame, &interface): (&'p Vec<u8>, &u32)| Packet {
            data: frame,
            original_len: frame.len() as u32,
            time_ns: 0,
            interface,
            flags: 0,
            lost_before: 0,
        };
        frames.iter().zip(interfaces.iter().cycle()).map(packet).collect()
    }

    #[test]
    fn packets_are_told_apart_by_lane_and_those_taken_out_are_gone_from_all() {
        let frames = udp(&[1, 2, 3, 4, 5]);
        let packets = packets(&frames, &[0, 1, 2]);
        let mut batch = Batch::new(&packets, |interface| [Some(0), Some(3), None][interface as usize]);
        assert_eq!(batch.lanes().collect::<Vec<_>>(), [(0, 0b01001), (3, 0b10010)]);
        batch.take_out(0b01000);
        assert_eq!(batch.lanes().collect::<Vec<_>>(), [(0, 0b00001), (3, 0b10010)]);
        batch.take_out(0b10010);
        assert_eq!((batch.lanes().collect::<Vec<_>>(), batch.asked().len()), (vec![(0, 1)], 5));
    }
}
