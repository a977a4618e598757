//! One run: writers that are fed at the same time, perhaps with a follower beside them, and everything
//! checked afterwards.

use super::feed::{Feeder, check_ring};
use super::fill::{check_filled, fill};
use super::follow::{ColumnFollower, Followed, PacketFollower};
use super::packets::Packets;
use scope_ring::Arena;
use scope_ring::Ring;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

/// What reads beside the writers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beside {
    /// Nobody.
    Nobody,
    /// A follower in the open segments that tests every packet's UDP port.
    Packets,
    /// A follower in the open segments that reads only keys.
    Column,
}

/// Does all of `works` at the same time, each on a thread of its own; from the first one's begin to the last
/// one's end.
///
/// Each thread looks at the clock itself: a thread that only waits for them may be put on a core much later.
pub fn together<W: FnOnce() + Send>(works: impl IntoIterator<Item = W>) -> Duration {
    let works: Vec<W> = works.into_iter().collect();
    let begin = Barrier::new(works.len());
    let timed = |work: W| {
        begin.wait();
        let begun = Instant::now();
        work();
        (begun, Instant::now())
    };
    let spans: Vec<(Instant, Instant)> = std::thread::scope(|scope| {
        let threads: Vec<_> = works.into_iter().map(|work| scope.spawn(|| timed(work))).collect();
        threads.into_iter().map(|thread| thread.join().expect("measured work doesn't panic")).collect()
    });
    let first = spans.iter().map(|span| span.0).min();
    let last = spans.iter().map(|span| span.1).max();
    last.zip(first).map_or(Duration::ZERO, |(last, first)| last - first)
}

/// Bytes per ns (GB/s) that filling all of `arena` on so many threads at once reaches.
///
/// # Errors
/// In words, where memory doesn't hold afterwards what was written.
pub fn fill_rate(arena: &mut Arena, threads: usize) -> Result<f64, String> {
    let bytes = arena.bytes() as f64;
    let mut chunks = arena.chunks();
    for chunk in &mut chunks {
        chunk[..64].fill(1); // something else than what will be written
    }
    let share = chunks.len().div_ceil(threads.max(1));
    let elapsed = together(chunks.chunks_mut(share).map(|part| || fill(part)));
    match check_filled(&chunks) {
        true => Ok(bytes / elapsed.as_nanos() as f64),
        false => Err("memory doesn't hold what was written".to_string()),
    }
}

/// What is run.
pub struct Run<'a> {
    /// Where.
    pub ring: &'a Arc<Ring>,
    /// With which packets.
    pub source: &'a Packets,
    /// How many of them each writer appends.
    pub packets: u64,
    /// What reads beside.
    pub beside: Beside,
}

impl Run<'_> {
    /// The time of a packet, ns, from the first writer's begin to the last one's end, and what the follower
    /// found. What lies in the ring afterwards is compared byte for byte, and what the follower saw by
    /// number, bytes and hits.
    ///
    /// # Errors
    /// In words, what is wrong with the result.
    pub fn measure(&self, feeders: &mut [Feeder]) -> Result<(f64, Option<Followed>), String> {
        for feeder in feeders.iter_mut() {
            feeder.begin();
        }
        let done = AtomicBool::new(false);
        let (elapsed, followed) = std::thread::scope(|scope| {
            let follower = match self.beside {
                Beside::Nobody => None,
                Beside::Packets => {
                    let follower = PacketFollower::new(self.ring);
                    Some(scope.spawn(|| follower.run(&done)))
                }
                Beside::Column => {
                    let follower = ColumnFollower::new(self.ring);
                    Some(scope.spawn(|| follower.run(&done)))
                }
            };
            let elapsed = together(feeders.iter_mut().map(|feeder| || self.write(feeder)));
            done.store(true, Ordering::Release);
            (elapsed, follower.map(|follower| follower.join().expect("a follower doesn't panic")))
        });
        for feeder in feeders.iter() {
            check_ring(self.ring, feeder.lane(), self.source, feeder.base(), self.packets)?;
        }
        if let Some(followed) = &followed {
            self.check_followed(followed, feeders.len() as u64)?;
        }
        Ok((elapsed.as_nanos() as f64 / (self.packets * feeders.len() as u64) as f64, followed))
    }

    fn write(&self, feeder: &mut Feeder) {
        feeder.feed(self.source, self.packets);
    }

    /// What was seen and missed must be what was written; where nothing was missed, hits and bytes must be
    /// right as well.
    fn check_followed(&self, followed: &Followed, writers: u64) -> Result<(), String> {
        let packets = self.packets * writers;
        if followed.seen + followed.missed != packets {
            return Err(format!("seen {} + missed {} isn't {packets}", followed.seen, followed.missed));
        }
        let hits = self.source.hits(self.packets) * writers;
        let bytes = match self.beside {
            Beside::Packets => self.source.captured_bytes(self.packets) * writers,
            _ => 0,
        };
        if followed.missed == 0 && (followed.hits, followed.bytes) != (hits, bytes) {
            return Err(format!(
                "{} hits in {} B, expected {hits} in {bytes} B",
                followed.hits, followed.bytes
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Sizes, ring};
    use super::*;

    #[test]
    fn two_writers_and_a_follower_end_with_everything_accounted_for() {
        let ring = ring(8 << 20, Some(64 << 10), 2).unwrap();
        let mut feeders = [Feeder::new(&ring, 0).unwrap(), Feeder::new(&ring, 1).unwrap()];
        let source = Packets::new(Sizes::Fixed(128));
        for (writers, beside) in [(2, Beside::Packets), (1, Beside::Column), (2, Beside::Nobody)] {
            let run = Run { ring: &ring, source: &source, packets: 100_000, beside };
            let (ns, followed) = run.measure(&mut feeders[..writers]).unwrap();
            assert!(ns > 0.0);
            assert_eq!(followed.is_some(), beside != Beside::Nobody);
        }
        assert!(fill_rate(&mut Arena::new(6 << 20).unwrap(), 2).unwrap() > 0.0);
    }
}
