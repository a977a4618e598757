//! What a pcapng file says beside its packets, kept until it is handed on: comments of packets, names for
//! addresses, secrets.

use scope_packet::pcapng;
use std::collections::VecDeque;

/// Bytes of names and secrets that wait to be handed on, at most; what comes beyond is omitted and counted.
const WAITING_BYTES_MAX: usize = 16 << 20;

/// Of one file.
#[derive(Default)]
pub(super) struct Beside {
    /// By number, in the order of their packets.
    comments: VecDeque<(u32, Vec<String>)>,
    last: u32,
    blocks: Vec<Vec<u8>>,
    bytes: usize,
    left_out: u64,
}

impl Beside {
    /// Keeps the comments of one packet; the number under which they are kept, never 0.
    pub(super) fn comments(&mut self, comments: Vec<String>) -> u32 {
        self.last = self.last.wrapping_add(1).max(1);
        self.comments.push_back((self.last, comments));
        self.last
    }

    /// The comments kept under `number`. Those of packets before it that were not fetched are dropped.
    pub(super) fn take_comments(&mut self, number: u32) -> Vec<String> {
        while let Some((first, comments)) = self.comments.pop_front() {
            if first == number {
                return comments;
            }
        }
        Vec::new()
    }

    /// Keeps a whole block with names or secrets.
    pub(super) fn block(&mut self, block: &[u8], kind: u32, big_endian: bool) {
        match little_endian(&block[8..block.len() - 4], kind, big_endian) {
            Some(body) if self.bytes + body.len() <= WAITING_BYTES_MAX => {
                let mut whole = Vec::with_capacity(body.len() + pcapng::BLOCK_BYTES_MIN);
                pcapng::block(&mut whole, kind, &body);
                self.bytes += whole.len();
                self.blocks.push(whole);
            }
            _ => self.left_out += 1,
        }
    }

    /// Blocks that wait to be handed on, and how many were omitted since the last call.
    pub(super) fn take_blocks(&mut self) -> (Vec<Vec<u8>>, u64) {
        self.bytes = 0;
        (std::mem::take(&mut self.blocks), std::mem::take(&mut self.left_out))
    }

    /// Whether [`Beside::take_blocks`] would bring something.
    #[inline]
    pub(super) fn has_blocks(&self) -> bool {
        !self.blocks.is_empty() || self.left_out > 0
    }
}

/// The body of a block in little-endian; `None` where its parts don't fit into it.
///
/// Both kinds are parts of {16 bits code, 16 bits length, value padded to 4}, records first, then options;
/// secrets have a type and a length of 32 bits and the secrets themselves in front. Values are bytes.
fn little_endian(body: &[u8], kind: u32, big_endian: bool) -> Option<Vec<u8>> {
    let swap = |bytes: &[u8]| -> Vec<u8> {
        let bytes = bytes.iter().copied();
        if big_endian { bytes.rev().collect() } else { bytes.collect() }
    };
    let mut out = Vec::with_capacity(body.len());
    let mut rest = body;
    if kind == pcapng::SECRETS {
        let (head, behind) = body.split_at_checked(8)?;
        let len = swap(&head[4..8]);
        let len = pcapng::padded(pcapng::le32(&len, 0) as usize);
        out.extend(swap(&head[..4]));
        out.extend(swap(&head[4..8]));
        out.extend(behind.get(..len)?);
        rest = &behind[len..];
    }
    while !rest.is_empty() {
        let (head, behind) = rest.split_at_checked(4)?;
        let (code, len) = (swap(&head[..2]), swap(&head[2..]));
        let value_bytes = pcapng::padded(usize::from(u16::from_le_bytes([len[0], len[1]])));
        out.extend(code);
        out.extend(len);
        out.extend(behind.get(..value_bytes)?);
        rest = &behind[value_bytes..];
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(code: u16, value: &[u8], big: bool) -> Vec<u8> {
        let number = |n: u16| if big { n.to_be_bytes() } else { n.to_le_bytes() };
        let mut out = [number(code), number(value.len() as u16)].concat();
        out.extend(value);
        out.resize(4 + pcapng::padded(value.len()), 0);
        out
    }

    #[test]
    fn blocks_of_foreign_byte_order_become_little_endian_and_what_does_not_fit_is_refused() {
        let names = |big: bool| {
            [
                part(1, b"\x0a\0\0\x01host.example\0", big),
                part(0, b"", big),
                part(2, b"dns", big),
                part(0, b"", big),
            ]
            .concat()
        };
        let secrets = |big: bool| {
            let number = |n: u32| if big { n.to_be_bytes() } else { n.to_le_bytes() };
            [&number(0x544c_534b)[..], &number(5), b"CLIEN\0\0\0", &part(1, b"kept", big), &part(0, b"", big)]
                .concat()
        };
        for (kind, body) in [(pcapng::NAMES, names as fn(bool) -> Vec<u8>), (pcapng::SECRETS, secrets)] {
            assert_eq!(little_endian(&body(true), kind, true), Some(body(false)));
            assert_eq!(little_endian(&body(false), kind, false), Some(body(false)));
            for cut in 1..body(false).len() {
                // Where it ends between two parts, what is there is whole.
                if let Some(whole) = little_endian(&body(true)[..cut], kind, true) {
                    assert_eq!(whole, body(false)[..cut], "{cut}");
                }
            }
        }
        assert_eq!(little_endian(&[1, 0, 200, 0, 1, 2, 3, 4], pcapng::NAMES, false), None);
        assert_eq!(little_endian(&[0; 8], pcapng::SECRETS, false), Some(vec![0; 8]));
        assert_eq!(little_endian(&[0xff; 8], pcapng::SECRETS, false), None);
    }

    #[test]
    fn comments_are_found_by_number_and_those_nobody_asked_for_are_dropped() {
        let mut beside = Beside::default();
        let numbers: Vec<u32> = (0..3).map(|at| beside.comments(vec![format!("comment {at}")])).collect();
        assert_eq!(beside.take_comments(numbers[1]), ["comment 1"]);
        assert_eq!(beside.take_comments(numbers[2]), ["comment 2"]);
        assert!(beside.comments.is_empty());
    }

    #[test]
    fn what_waits_is_bounded_and_what_is_left_out_is_counted() {
        let mut beside = Beside::default();
        let block = |len: usize| {
            let mut block = Vec::new();
            pcapng::block(&mut block, pcapng::NAMES, &part(1, &vec![7; len], false));
            block
        };
        for _ in 0..300 {
            beside.block(&block(60_000), pcapng::NAMES, false);
        }
        let (blocks, left_out) = beside.take_blocks();
        assert!(left_out > 0 && blocks.len() as u64 + left_out == 300);
        assert!(blocks.iter().map(Vec::len).sum::<usize>() <= WAITING_BYTES_MAX + 12 * 300);
        assert!(!beside.has_blocks());
    }
}
