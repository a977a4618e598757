//! What is known of a TCP connection: its handshake, its end, and the state that follows.

use crate::reading::{ACK, FIN, RST, SYN, Segment};
use crate::rows::State;

const HAS_SYN: u8 = 1;
const HAS_SYN_ACK: u8 = 2;
/// An ACK of whoever sent the SYN, of the SYN+ACK where that was seen.
const HAS_ACK: u8 = 4;
const HAS_FIN: [u8; 2] = [8, 16];
const HAS_RST: u8 = 32;
/// A SYN, or a SYN+ACK, came again.
const IS_RESENT: u8 = 64;
/// Times of the handshake stand in an earlier record.
const IS_TOLD: u8 = 128;

/// Both halves of a handshake may be seen at one interface or at two.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Connection {
    syn_ns: i64,
    syn_ack_ns: i64,
    ack_ns: i64,
    /// The SYN's number: one that comes again may have other bytes behind it, or none.
    syn_sequence: u32,
    /// Behind the SYN+ACK.
    syn_ack_end: u32,
    seen: u8,
}

impl Connection {
    /// Adds a segment that goes from `side`; `forward` is the side that goes forward, as far as is known. The side
    /// that does, if the segment says so.
    #[inline]
    pub fn add(&mut self, side: usize, forward: usize, segment: &Segment, time_ns: i64) -> Option<usize> {
        if segment.flags & (SYN | FIN | RST) != 0 {
            return self.change(side, segment, time_ns);
        }
        if self.is_opening()
            && side == forward
            && (self.seen & HAS_SYN_ACK == 0 || segment.acknowledged == self.syn_ack_end)
        {
            self.seen |= HAS_ACK;
            self.ack_ns = time_ns;
        }
        None
    }

    /// A segment without SYN, FIN and RST may still say something of it: the last one of the handshake.
    #[inline]
    pub fn is_opening(&self) -> bool {
        self.seen & HAS_ACK == 0 && self.seen & (HAS_SYN | HAS_SYN_ACK) != 0
    }

    fn change(&mut self, side: usize, segment: &Segment, time_ns: i64) -> Option<usize> {
        if segment.flags & RST != 0 {
            self.seen |= HAS_RST;
            return None;
        }
        if segment.flags & FIN != 0 {
            self.seen |= HAS_FIN[side];
        }
        let (has, place, number, at_ns, forward) = match segment.flags & (SYN | ACK) {
            SYN => (HAS_SYN, &mut self.syn_sequence, segment.sequence, &mut self.syn_ns, side),
            flags if flags == SYN | ACK => {
                (HAS_SYN_ACK, &mut self.syn_ack_end, segment.end(), &mut self.syn_ack_ns, 1 - side)
            }
            _ => return None,
        };
        if self.seen & has == 0 {
            (*place, *at_ns) = (number, time_ns);
            self.seen |= has;
        } else {
            self.seen |= IS_RESENT;
        }
        Some(forward)
    }

    /// Whether a segment is the first one of another connection between the same ends.
    #[inline]
    pub fn is_over_at(&self, segment: &Segment, is_midstream: bool) -> bool {
        segment.flags & (SYN | ACK) == SYN
            && (self.seen & (HAS_RST | HAS_FIN[0] | HAS_FIN[1]) != 0
                || self.seen & HAS_SYN != 0 && self.syn_sequence != segment.sequence
                || self.seen & (HAS_SYN | HAS_SYN_ACK) == 0 && is_midstream)
    }

    /// Adds what was seen of the same connection at another interface.
    pub fn join(&mut self, other: &Connection) {
        for (has, at_ns, of_other) in [
            (HAS_SYN, &mut self.syn_ns, other.syn_ns),
            (HAS_SYN_ACK, &mut self.syn_ack_ns, other.syn_ack_ns),
            (HAS_ACK, &mut self.ack_ns, other.ack_ns),
        ] {
            if self.seen & has == 0 && other.seen & has != 0 {
                *at_ns = of_other;
            }
        }
        self.seen |= other.seen;
    }

    /// The state that follows from what was seen.
    pub fn state(&self) -> State {
        let has = |bits: u8| self.seen & bits == bits;
        match () {
            () if has(HAS_RST) => State::Reset,
            () if has(HAS_FIN[0] | HAS_FIN[1]) => State::Closed,
            () if has(HAS_FIN[0]) || has(HAS_FIN[1]) => State::Closing,
            () if has(HAS_SYN_ACK | HAS_ACK) => State::Open,
            () if has(HAS_SYN) || has(HAS_SYN_ACK) => State::Opening,
            () => State::Midstream,
        }
    }

    /// The connection was closed or reset.
    pub fn is_over(&self) -> bool {
        self.seen & HAS_RST != 0 || self.seen & (HAS_FIN[0] | HAS_FIN[1]) == HAS_FIN[0] | HAS_FIN[1]
    }

    /// From SYN to SYN+ACK, ns.
    pub fn rtt_server_ns(&self) -> Option<i64> {
        self.between(HAS_SYN | HAS_SYN_ACK, self.syn_ns, self.syn_ack_ns)
    }

    /// From SYN+ACK to the ACK of it, ns.
    pub fn rtt_client_ns(&self) -> Option<i64> {
        self.between(HAS_SYN_ACK | HAS_ACK, self.syn_ack_ns, self.ack_ns)
    }

    /// Both together as far as they are known, ns, in whichever record they stand.
    pub fn rtt_ns(&self) -> Option<i64> {
        let whole = Connection { seen: self.seen & !IS_TOLD, ..*self };
        match (whole.rtt_server_ns(), whole.rtt_client_ns()) {
            (None, None) => None,
            (server, client) => Some(server.unwrap_or(0).saturating_add(client.unwrap_or(0))),
        }
    }

    /// `None`: one of them wasn't seen, was resent, or comes before the other.
    fn between(&self, has: u8, from_ns: i64, to_ns: i64) -> Option<i64> {
        let is_known = self.seen & (has | IS_RESENT | IS_TOLD) == has;
        is_known.then(|| to_ns.saturating_sub(from_ns)).filter(|&ns| ns >= 0)
    }

    /// What is known of the handshake's times stands in a record that is over.
    pub fn is_told(&mut self) {
        if self.seen & HAS_ACK != 0 {
            self.seen |= IS_TOLD;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(flags: u8, sequence: u32, acknowledged: u32, payload: u32) -> Segment {
        Segment { sequence, acknowledged, payload, window: 1000, flags }
    }

    #[test]
    fn a_syn_that_comes_again_without_its_data_is_of_the_same_connection() {
        let mut connection = Connection::default();
        // TCP Fast Open: a SYN with data, which is resent without.
        assert_eq!(connection.add(0, 0, &segment(SYN, 100, 0, 10), 1), Some(0));
        let again = segment(SYN, 100, 0, 0);
        assert!(!connection.is_over_at(&again, true));
        connection.add(0, 0, &again, 2);
        connection.add(1, 0, &segment(SYN | ACK, 500, 101, 0), 3);
        connection.add(0, 0, &segment(ACK, 101, 501, 0), 4);
        assert_eq!(
            (connection.state(), connection.rtt_server_ns()),
            (State::Open, None),
            "its SYN was resent"
        );
        assert!(connection.is_over_at(&segment(SYN, 101, 0, 0), true), "another number: another connection");
    }
}
