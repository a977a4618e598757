//! What became of the packets that were read: sent, or refused for one of these reasons.

/// Why a packet was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Longer than the interface takes: its MTU and the link header.
    TooLong,
    /// Shorter than a link header.
    TooShort,
    /// Of another link type than the interface has.
    LinkType,
    /// The system had no room for it, for longer than is waited.
    NoBuffer,
    /// The interface is down, without a link, or gone.
    Down,
    /// The system refused it with another error.
    Error,
    /// Sending was ended before its turn came.
    Ended,
}

impl Refusal {
    /// All of them, in the order in which they are shown.
    pub const ALL: [Refusal; 7] = [
        Refusal::TooLong,
        Refusal::TooShort,
        Refusal::LinkType,
        Refusal::NoBuffer,
        Refusal::Down,
        Refusal::Error,
        Refusal::Ended,
    ];

    /// The word of the summary.
    pub const fn name(self) -> &'static str {
        match self {
            Refusal::TooLong => "too_long",
            Refusal::TooShort => "too_short",
            Refusal::LinkType => "link_type",
            Refusal::NoBuffer => "no_buffer",
            Refusal::Down => "down",
            Refusal::Error => "error",
            Refusal::Ended => "ended",
        }
    }
}

/// Packets by what became of them. Of what was read all is `sent` or refused, once every queue has ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Packets that the source brought.
    pub read: u64,
    /// Packets that the system took.
    pub sent: u64,
    /// Bytes of these, link headers and padding included.
    pub bytes: u64,
    /// Of those sent: with zeros in the place of bytes that were not captured.
    pub padded: u64,
    /// Of those sent: without bytes that were not captured.
    pub cut: u64,
    refused: [u64; Refusal::ALL.len()],
}

impl Counts {
    /// So many packets more were refused.
    pub fn refuse(&mut self, why: Refusal, packets: u64) {
        self.refused[why as usize] += packets;
    }

    /// Packets that were refused for this reason.
    pub fn refused(&self, why: Refusal) -> u64 {
        self.refused[why as usize]
    }

    /// The reasons for which packets were refused, with how many.
    pub fn refusals(&self) -> impl Iterator<Item = (Refusal, u64)> + '_ {
        Refusal::ALL.into_iter().map(|why| (why, self.refused(why))).filter(|(_, packets)| *packets > 0)
    }

    /// Packets that were refused.
    pub fn refused_all(&self) -> u64 {
        self.refused.iter().sum()
    }

    /// Adds what another thread counted.
    pub fn add(&mut self, other: &Counts) {
        self.read += other.read;
        self.sent += other.sent;
        self.bytes += other.bytes;
        self.padded += other.padded;
        self.cut += other.cut;
        for (own, other) in self.refused.iter_mut().zip(other.refused) {
            *own += other;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_is_counted_under_its_own_word() {
        let mut counts = Counts::default();
        for (packets, why) in (1..).zip(Refusal::ALL) {
            counts.refuse(why, packets);
        }
        let mut twice = counts;
        twice.add(&counts);
        for (packets, why) in (1..).zip(Refusal::ALL) {
            assert_eq!((counts.refused(why), twice.refused(why)), (packets, 2 * packets), "{}", why.name());
        }
        assert_eq!(twice.refused_all(), 56);
        let mut names = Refusal::ALL.map(Refusal::name).to_vec();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Refusal::ALL.len());
    }
}
