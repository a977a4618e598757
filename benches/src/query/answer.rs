//! A capture that comes through a pipe: its packets counted, their order and their bytes kept in a sum, however long it
//! is.

use super::traffic::Count;
use anyhow::{Result, bail, ensure};
use twox_hash::XxHash3_64;

const PACKET: u32 = 6;
/// No block is longer: else it is no capture.
const BLOCK_BYTES_MAX: usize = 32 << 20;

/// What came of it so far: pcapng in our byte order, with nanoseconds, as ours writes it.
#[derive(Debug, Default)]
pub struct Answer {
    /// The beginning of a block whose end has not come.
    rest: Vec<u8>,
    /// Its packets.
    pub count: Count,
    /// Packets that are older than the one before.
    pub steps_back: u64,
    /// A sum over time and bytes of all packets, whatever their order.
    pub sum: u64,
    last_ns: i64,
}

impl Answer {
    /// Takes what came next.
    ///
    /// # Errors
    /// Where that is no capture.
    pub fn push(&mut self, bytes: &[u8]) -> Result<()> {
        if self.rest.is_empty() {
            let taken = self.blocks(bytes)?;
            self.rest.extend(&bytes[taken..]);
            return Ok(());
        }
        let mut all = std::mem::take(&mut self.rest);
        all.extend(bytes);
        let taken = self.blocks(&all)?;
        all.drain(..taken);
        self.rest = all;
        Ok(())
    }

    /// Whether a byte of a packet block has come.
    pub fn has_begun(&self) -> bool {
        self.count.packets > 0
            || self.rest.first_chunk::<4>().is_some_and(|kind| u32::from_le_bytes(*kind) == PACKET)
    }

    /// Nothing more comes.
    ///
    /// # Errors
    /// Where it is truncated.
    pub fn end(&self) -> Result<()> {
        ensure!(self.rest.is_empty(), "the capture ends inside a block");
        Ok(())
    }

    /// Whole blocks at the begin of `bytes`; how many bytes they are.
    fn blocks(&mut self, bytes: &[u8]) -> Result<usize> {
        let mut at = 0;
        while let Some(head) = bytes.get(at..at + 8) {
            let word = |from: usize| {
                u32::from_le_bytes([head[from], head[from + 1], head[from + 2], head[from + 3]])
            };
            let (kind, total) = (word(0), word(4) as usize);
            if !(12..=BLOCK_BYTES_MAX).contains(&total) || !total.is_multiple_of(4) {
                bail!("a block of {total} bytes");
            }
            let Some(block) = bytes.get(at..at + total) else { break };
            if kind == PACKET {
                self.packet(block)?;
            }
            at += total;
        }
        Ok(at)
    }

    fn packet(&mut self, block: &[u8]) -> Result<()> {
        ensure!(block.len() >= 32, "a packet block of {} bytes", block.len());
        let word = |from: usize| {
            u32::from_le_bytes([block[from], block[from + 1], block[from + 2], block[from + 3]])
        };
        let time_ns = (u64::from(word(12)) << 32 | u64::from(word(16))) as i64;
        let captured = word(20) as usize;
        let Some(data) = block.get(28..28 + captured) else { bail!("a packet is longer than its block") };
        self.steps_back += u64::from(self.count.packets > 0 && time_ns < self.last_ns);
        self.last_ns = time_ns;
        self.count.add(captured);
        self.sum = self.sum.wrapping_add(sum_of(time_ns, data));
        Ok(())
    }
}

/// What a packet adds to [`Answer::sum`].
pub fn sum_of(time_ns: i64, data: &[u8]) -> u64 {
    XxHash3_64::oneshot_with_seed(time_ns as u64, data)
}

#[cfg(test)]
mod tests {
    use super::*;
    use scope_testkit::traffic::{Conversations, Precision, pcapng};

    #[test]
    fn a_capture_is_counted_in_pieces_of_any_size() {
        let mut capture =
            Conversations { packets: 300, oddities: 0, snapped: 0, ..Conversations::default() }.capture();
        capture.packets.swap(100, 200);
        let file = pcapng(&capture, Precision::Nano, false);
        let expected = capture.packets.iter().map(|packet| sum_of(packet.time_ns, &packet.data));
        let sum = expected.fold(0u64, u64::wrapping_add);
        for piece in [1, 7, 1000, file.len()] {
            let mut answer = Answer::default();
            for bytes in file.chunks(piece) {
                answer.push(bytes).unwrap();
            }
            answer.end().unwrap();
            assert_eq!((answer.count.packets, answer.sum, answer.steps_back), (300, sum, 2));
        }
        let mut answer = Answer::default();
        answer.push(&file[..file.len() - 1]).unwrap();
        assert!(answer.has_begun() && answer.end().is_err());
        let mut head = Answer::default();
        head.push(&file[..28]).unwrap();
        assert!(!head.has_begun() && head.push(&[7; 100]).is_err());
    }
}
