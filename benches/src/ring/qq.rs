//! The baseline: a queue of queues as it was published (FlowScope, "queue of queues"), in our own words.
//!
//! ```text
//! buckets   2 MiB each: | 16 bytes: time, lengths | packet | 16 bytes | packet ...   and beside it a vector of pointers
//! store     lock the bucket; hold time over, by a floating-point clock? full? then hand it over and take the next;
//!           copy the packet; push its pointer; unlock
//! consumer  takes whole buckets, counts their packets, gives them back
//! ```
//! The clock is read once per batch of 64, which is to its advantage: that is how it was used.

use super::Stand;
use crate::table::Table;
use scope_measure::{Arena, Packets};
use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::Instant;

/// Bytes in front of a packet.
const HEAD_BYTES: usize = 16;
/// A bucket is handed over after so many seconds, full or not.
const HOLD_S: f64 = 1.0;
/// Packets per reading of the clock.
const BATCH: u64 = 64;

struct Content<'a> {
    memory: &'a mut [u8],
    used: usize,
    opened_s: f64,
    packets: Vec<usize>,
}

/// A bucket is found by its number; numbers wait in one of two queues.
struct Buckets<'a> {
    buckets: Vec<Mutex<Content<'a>>>,
    filled: Mutex<VecDeque<usize>>,
    free: Mutex<VecDeque<usize>>,
}

fn take(queue: &Mutex<VecDeque<usize>>) -> Option<usize> {
    queue.lock().expect("no panic while held").pop_front()
}

fn give(queue: &Mutex<VecDeque<usize>>, bucket: usize) {
    queue.lock().expect("no panic while held").push_back(bucket);
}

fn wait(queue: &Mutex<VecDeque<usize>>) -> usize {
    loop {
        if let Some(bucket) = take(queue) {
            return bucket;
        }
        std::thread::yield_now();
    }
}

/// Measures the rows once.
pub fn round(stand: &mut Stand, table: &mut Table) {
    for mix in &stand.mixes {
        let packets = super::packets_in(&mix.packets, stand.scale.ring_bytes, stand.scale.turns);
        let outcome = measure(stand.arena.chunks(), &mix.packets, packets);
        table.put(mix.queues, "queue of queues", "ns/packet", outcome);
    }
}

/// The producer's time for a packet, ns, with the consumer beside it.
fn measure(chunks: Vec<&mut [u8]>, source: &Packets, packets: u64) -> Result<f64, String> {
    let most = Arena::CHUNK_BYTES / (HEAD_BYTES + 64);
    let bucket = |memory| {
        let mut packets = vec![1; most]; // made resident before it is measured
        packets.clear();
        Mutex::new(Content { memory, used: 0, opened_s: 0.0, packets })
    };
    let count = chunks.len();
    let buckets = Buckets {
        buckets: chunks.into_iter().map(bucket).collect(),
        filled: Mutex::default(),
        free: Mutex::new((0..count).collect()),
    };
    let (elapsed, counted) = std::thread::scope(|scope| {
        let consumer = scope.spawn(|| consume(&buckets));
        let elapsed = produce(&buckets, source, packets);
        give(&buckets.filled, usize::MAX);
        (elapsed, consumer.join().expect("the consumer doesn't panic"))
    });
    if counted != packets {
        return Err(format!("the consumer counted {counted} of {packets} packets"));
    }
    check(&buckets, source, packets)?;
    Ok(elapsed.as_nanos() as f64 / packets as f64)
}

fn produce(buckets: &Buckets, source: &Packets, packets: u64) -> std::time::Duration {
    let begun = Instant::now();
    let mut current = open(buckets, 0.0);
    let mut now_s = 0.0;
    for number in 0..packets {
        if number % BATCH == 0 {
            now_s = begun.elapsed().as_secs_f64();
        }
        let (time_ns, frame) = (Packets::time_ns(number), source.frame(number));
        while !store(&buckets.buckets[current], now_s, time_ns, frame) {
            give(&buckets.filled, current);
            current = open(buckets, now_s);
        }
    }
    give(&buckets.filled, current);
    begun.elapsed()
}

fn open(buckets: &Buckets, now_s: f64) -> usize {
    let bucket = wait(&buckets.free);
    let mut content = buckets.buckets[bucket].lock().expect("no panic while held");
    content.used = 0;
    content.opened_s = now_s;
    content.packets.clear();
    bucket
}

/// Stores one packet; false: the bucket has to be handed over first.
#[inline]
fn store(bucket: &Mutex<Content>, now_s: f64, time_ns: i64, frame: &[u8]) -> bool {
    let mut content = bucket.lock().expect("no panic while held");
    let at = content.used;
    let end = at + HEAD_BYTES + frame.len();
    if now_s - content.opened_s > HOLD_S || end > content.memory.len() {
        return false;
    }
    let (head, data) = content.memory[at..end].split_at_mut(HEAD_BYTES);
    head[..8].copy_from_slice(&time_ns.to_le_bytes());
    head[8..12].copy_from_slice(&(frame.len() as u32).to_le_bytes());
    head[12..].copy_from_slice(&(frame.len() as u32).to_le_bytes());
    data.copy_from_slice(frame);
    let pointer = head.as_ptr() as usize;
    content.packets.push(pointer);
    content.used = end.next_multiple_of(8);
    true
}

fn consume(buckets: &Buckets) -> u64 {
    let mut packets = 0;
    loop {
        let bucket = wait(&buckets.filled);
        if bucket == usize::MAX {
            return packets;
        }
        packets += buckets.buckets[bucket].lock().expect("no panic while held").packets.len() as u64;
        give(&buckets.free, bucket);
    }
}

/// Everything that is left in the buckets must be what was stored: the packets to the last one, byte for
/// byte.
fn check(buckets: &Buckets, source: &Packets, packets: u64) -> Result<(), String> {
    let mut last = 0;
    for bucket in &buckets.buckets {
        let content = bucket.lock().map_err(|_| "a bucket's lock is broken".to_string())?;
        let begin = content.memory.as_ptr() as usize;
        for pointer in &content.packets {
            let at = pointer - begin;
            let time_ns =
                i64::from_le_bytes(content.memory[at..at + 8].try_into().map_err(|_| "8 bytes".to_string())?);
            let number = Packets::first_after(time_ns) - 1;
            let frame = source.frame(number);
            if content.memory[at + HEAD_BYTES..].get(..frame.len()) != Some(frame) {
                return Err(format!("packet {number} isn't what was stored"));
            }
            last = last.max(number + 1);
        }
    }
    if last == packets { Ok(()) } else { Err(format!("the last packet is {last}, not {packets}")) }
}
