//! The closed list of reasons for which a packet is not stored, and one counter for each.

/// Why a packet was dropped. The numbers are part of the segment format (the foot's drop counters).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum DropReason {
    /// The kernel's capture ring was full; these never reached a worker.
    Kernel = 0,
    /// Every segment that could have been recycled was pinned.
    RingPinned = 1,
    /// The worker already writes its bound of link types.
    LinkTypes = 2,
    /// The run already knows its bound of interfaces.
    Interfaces = 3,
    /// The capture file that they come from says that they were lost before: in no summary, since nobody offered
    /// them. One that is damaged or truncated counts as one packet.
    File = 4,
}

impl DropReason {
    /// All reasons, in the order of their numbers.
    pub const ALL: [DropReason; 5] = [
        DropReason::Kernel,
        DropReason::RingPinned,
        DropReason::LinkTypes,
        DropReason::Interfaces,
        DropReason::File,
    ];

    /// The name under which summaries, logs and counters show the reason.
    pub const fn name(self) -> &'static str {
        match self {
            DropReason::Kernel => "kernel",
            DropReason::RingPinned => "ring_pinned",
            DropReason::LinkTypes => "link_types",
            DropReason::Interfaces => "interfaces",
            DropReason::File => "file",
        }
    }
}

/// Dropped packets by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drops([u64; DropReason::ALL.len()]);

impl Drops {
    /// Counts `packets` more for `reason`.
    pub fn add(&mut self, reason: DropReason, packets: u64) {
        self.0[reason as usize] += packets;
    }

    /// Packets dropped for `reason`.
    pub fn get(&self, reason: DropReason) -> u64 {
        self.0[reason as usize]
    }

    /// Packets that reached a worker and were dropped there: all reasons but the kernel's.
    pub fn in_worker(&self) -> u64 {
        self.0.iter().sum::<u64>() - self.get(DropReason::Kernel)
    }

    /// Every reason with its count.
    pub fn iter(&self) -> impl Iterator<Item = (DropReason, u64)> + '_ {
        DropReason::ALL.iter().map(|&reason| (reason, self.get(reason)))
    }

    /// Adds all counts of `other`.
    pub fn merge(&mut self, other: &Drops) {
        for (reason, packets) in other.iter() {
            self.add(reason, packets);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_numbered_as_listed() {
        for (number, reason) in DropReason::ALL.iter().enumerate() {
            assert_eq!(*reason as usize, number);
        }
    }

    #[test]
    fn the_kernels_drops_are_not_the_workers() {
        let mut drops = Drops::default();
        drops.add(DropReason::Kernel, 5);
        drops.add(DropReason::RingPinned, 2);
        assert_eq!(drops.in_worker(), 2);
        assert_eq!(drops.iter().map(|(_, n)| n).sum::<u64>(), 7);
    }
}
