//! Other queues as capture rings: 64 packets are put together in a buffer of a pool, and the queue carries
//! where it lies.
//!
//! ```text
//! pool     the arena, used from front to end and again; a buffer is 64 packets, and lies in one chunk of 2 MiB
//! bare     | 16 bytes: time, lengths | packet | 16 bytes | packet ...
//! equal    | 64 key entries | block | block ...     the same parse, entries and blocks as ours, by ordinary stores
//! word     buffer's place / 64 << 8 | packets
//! ```
//! The consumer counts. The producer is never more buffers ahead than the queue may hold, so that no buffer
//! is written again before it was counted.

use super::peers::{Consumer, PEERS, Producer};
use super::{Mix, Stand, packets_in};
use crate::table::Table;
use scope_measure::{Arena, Packets, SOURCES};
use scope_packet::key::KEY_ENTRY_BYTES;
use scope_packet::pcapng::padded;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Packets of a buffer.
const BATCH: usize = 64;
/// Bytes in front of a bare packet.
const HEAD_BYTES: usize = 16;
/// Buffers that may wait, where the pool is large enough.
const CAPACITY_MAX: usize = 1024;
/// Buffers begin at multiples of this, bytes.
const ALIGN: usize = 64;

/// How a packet lies in its buffer.
#[derive(Clone, Copy, PartialEq)]
enum Form {
    Bare,
    Equal,
}

/// Measures the rows once.
pub fn round(stand: &mut Stand, table: &mut Table) {
    for mix in &stand.mixes {
        for peer in PEERS {
            for (form, word) in [(Form::Bare, "bare"), (Form::Equal, "equal")] {
                let of = format!("{}, {word}", peer.name);
                let Some(make) = peer.make else {
                    table.leave_out(
                        mix.queues,
                        &of,
                        "ns/packet",
                        "omitted: not available when this was built",
                    );
                    continue;
                };
                let packets = packets_in(&mix.packets, stand.scale.ring_bytes, stand.scale.turns)
                    / BATCH as u64
                    * BATCH as u64;
                let run = Run { mix, form, packets };
                let capacity = run.capacity(stand.arena.bytes());
                table.put(
                    mix.queues,
                    &of,
                    "ns/packet",
                    run.measure(stand.arena.chunks(), make(capacity), capacity),
                );
            }
        }
    }
}

struct Run<'a> {
    mix: &'a Mix,
    form: Form,
    packets: u64,
}

impl Run<'_> {
    /// Bytes of the buffer that begins with packet `number`.
    fn buffer_bytes(&self, number: u64) -> usize {
        let of_packet = |number: u64| match self.form {
            Form::Bare => HEAD_BYTES + padded(self.mix.packets.frame(number).len()),
            Form::Equal => KEY_ENTRY_BYTES + self.mix.packets.head(number).block_bytes(),
        };
        (number..number + BATCH as u64).map(of_packet).sum()
    }

    /// Half the buffers that the pool surely holds, as a power of two.
    fn capacity(&self, pool_bytes: u64) -> usize {
        let largest = (BATCH * (64 + self.mix.packets.longest())) as u64;
        (1 << (pool_bytes / 2 / largest).max(2).ilog2()).min(CAPACITY_MAX)
    }

    /// The producer's time for a packet, ns, with the consumer beside it.
    fn measure(
        &self,
        mut chunks: Vec<&mut [u8]>,
        (mut producer, mut consumer): (Box<dyn Producer>, Box<dyn Consumer>),
        capacity: usize,
    ) -> Result<f64, String> {
        let taken = AtomicU64::new(0);
        let buffers = self.packets / BATCH as u64;
        let ((elapsed, sent), (counted, received)) = std::thread::scope(|scope| {
            let consumer = scope.spawn(|| consume(&mut *consumer, buffers, &taken));
            let produced = self.produce(&mut chunks, &mut *producer, &taken, capacity as u64 - 1);
            (produced, consumer.join().expect("the consumer doesn't panic"))
        });
        if (counted, received) != (self.packets, sent) {
            return Err(format!(
                "{counted} of {} packets came out, checksum {received:x} for {sent:x}",
                self.packets
            ));
        }
        self.check(&chunks)?;
        Ok(elapsed.as_nanos() as f64 / self.packets as f64)
    }

    fn produce(
        &self,
        chunks: &mut [&mut [u8]],
        producer: &mut dyn Producer,
        taken: &AtomicU64,
        ahead_max: u64,
    ) -> (Duration, u64) {
        let bytes: Vec<usize> =
            (0..SOURCES / BATCH).map(|group| self.buffer_bytes((group * BATCH) as u64)).collect();
        let mut places = BufferCursor::new(chunks.len());
        let (mut known_taken, mut checksum) = (0, 0);
        let begun = Instant::now();
        for buffer in 0..self.packets / BATCH as u64 {
            while buffer - known_taken >= ahead_max {
                known_taken = taken.load(Ordering::Acquire);
                std::hint::spin_loop();
            }
            let length = bytes[buffer as usize % bytes.len()];
            let (chunk, at) = places.next(length);
            self.compose(&mut chunks[chunk][at..at + length], buffer * BATCH as u64);
            let word = (((chunk * Arena::CHUNK_BYTES + at) / ALIGN) << 8 | BATCH) as u64;
            checksum = mixed(checksum, word);
            while !producer.push(word) {
                std::hint::spin_loop();
            }
        }
        (begun.elapsed(), checksum)
    }

    #[inline]
    fn compose(&self, buffer: &mut [u8], number: u64) {
        match self.form {
            Form::Bare => bare(buffer, &self.mix.packets, number),
            Form::Equal => equal(buffer, &self.mix.packets, number),
        }
    }

    /// What is left in the pool must be what was sent: the same buffers are put together again, beside it.
    fn check(&self, chunks: &[&mut [u8]]) -> Result<(), String> {
        let mut places = BufferCursor::new(chunks.len());
        let mut left = vec![Vec::new(); chunks.len()];
        for buffer in 0..self.packets / BATCH as u64 {
            let length = self.buffer_bytes(buffer * BATCH as u64);
            let (chunk, at) = places.next(length);
            if at == 0 {
                left[chunk].clear(); // a new turn begins to write this chunk again
            }
            left[chunk].push((buffer, at, length));
        }
        let mut expected = vec![0; BATCH * (64 + self.mix.packets.longest())];
        for (chunk, &(buffer, at, length)) in
            left.iter().enumerate().flat_map(|(chunk, left)| left.iter().map(move |place| (chunk, place)))
        {
            self.compose(&mut expected[..length], buffer * BATCH as u64);
            if chunks[chunk][at..at + length] != expected[..length] {
                return Err(format!("buffer {buffer} isn't what was sent"));
            }
        }
        Ok(())
    }
}

/// Where buffers lie, one behind the other.
struct BufferCursor {
    chunks: usize,
    chunk: usize,
    at: usize,
}

impl BufferCursor {
    fn new(chunks: usize) -> BufferCursor {
        BufferCursor { chunks, chunk: 0, at: 0 }
    }

    #[inline]
    fn next(&mut self, bytes: usize) -> (usize, usize) {
        if self.at + bytes > Arena::CHUNK_BYTES {
            self.chunk = (self.chunk + 1) % self.chunks;
            self.at = 0;
        }
        let place = (self.chunk, self.at);
        self.at += bytes.next_multiple_of(ALIGN);
        place
    }
}

#[inline]
fn bare(mut buffer: &mut [u8], source: &Packets, number: u64) {
    for number in number..number + BATCH as u64 {
        let frame = source.frame(number);
        let (packet, rest) = std::mem::take(&mut buffer).split_at_mut(HEAD_BYTES + padded(frame.len()));
        packet[..8].copy_from_slice(&Packets::time_ns(number).to_le_bytes());
        packet[8..12].copy_from_slice(&(frame.len() as u32).to_le_bytes());
        packet[12..16].copy_from_slice(&(frame.len() as u32).to_le_bytes());
        packet[HEAD_BYTES..HEAD_BYTES + frame.len()].copy_from_slice(frame);
        packet[HEAD_BYTES + frame.len()..].fill(0);
        buffer = rest;
    }
}

#[inline]
fn equal(buffer: &mut [u8], source: &Packets, number: u64) {
    let (entries, mut blocks) = buffer.split_at_mut(BATCH * KEY_ENTRY_BYTES);
    let mut at = 0;
    for (entry, number) in entries.chunks_exact_mut(KEY_ENTRY_BYTES).zip(number..) {
        let (frame, head) = (source.frame(number), source.head(number));
        let (block, rest) = std::mem::take(&mut blocks).split_at_mut(head.block_bytes());
        entry.copy_from_slice(&Packets::key(frame).at(at).to_bytes());
        head.write(block, frame);
        at += block.len() as u32;
        blocks = rest;
    }
}

/// A checksum that depends on the order.
fn mixed(checksum: u64, word: u64) -> u64 {
    checksum.rotate_left(5) ^ word
}

fn consume(consumer: &mut dyn Consumer, buffers: u64, taken: &AtomicU64) -> (u64, u64) {
    let (mut packets, mut checksum, mut received) = (0, 0, 0);
    while received < buffers {
        let Some(word) = consumer.pop() else {
            std::hint::spin_loop();
            continue;
        };
        packets += word & 0xff;
        checksum = mixed(checksum, word);
        received += 1;
        taken.store(received, Ordering::Release);
    }
    (packets, checksum)
}
