//! Which of a filter's programs is evaluated for a packet.

use crate::input::FilterInput;

/// Tags that the VLAN rule tells apart; packets with more get the last program.
pub(crate) const TAGS_MAX: usize = 2;
/// Programs of one predicate.
pub(crate) const PROGRAMS: usize = TAGS_MAX + 1;
/// Those of them that [`Choice::ByteOrder`] picks from: this host's order and the other.
pub(crate) const BYTE_ORDERS: usize = 2;

/// How the program for a packet is chosen.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Choice {
    /// By number of VLAN tags, the last program for all beyond.
    Tags,
    /// BSD loopback writes the address family in the byte order of the host that captured. libpcap learns it
    /// from the file's own order; here the packet shows it: families are small numbers.
    ByteOrder,
}

impl Choice {
    #[inline]
    pub fn of(self, packet: &FilterInput<'_>) -> usize {
        match self {
            Choice::Tags => (packet.tags as usize).min(TAGS_MAX),
            Choice::ByteOrder => {
                let family = packet.data().first_chunk().map_or(0, |word| u32::from_ne_bytes(*word));
                usize::from(family & 0xffff == 0 && family != 0)
            }
        }
    }
}
