//! Segments of all sizes; one to four readers that each see everything; claims per second with one to eight
//! threads.

use super::{Stand, packets_in};
use crate::table::Table;
use scope_measure::{Feeder, PacketFollower, Packets, check_ring};
use scope_ring::{Ring, RingError};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

const SEGMENTS: [(u64, &str); 6] =
    [(64, "64 KiB"), (128, "128 KiB"), (256, "256 KiB"), (512, "512 KiB"), (1024, "1 MiB"), (2048, "2 MiB")];
const READERS: [(usize, &str); 4] = [(1, "1 reader"), (2, "2 readers"), (3, "3 readers"), (4, "4 readers")];
const CLAIMERS: [(u32, &str); 4] = [(1, "1 thread"), (2, "2 threads"), (4, "4 threads"), (8, "8 threads")];
/// The ring of the claims: small segments, because sealing an almost empty one writes all of it.
const CLAIM_RING_BYTES: u64 = 64 << 20;

/// Measures the rows once.
pub fn round(stand: &mut Stand, table: &mut Table) {
    for (kib, name) in SEGMENTS {
        for (mix, row) in [("64", "segments_64"), ("imix", "segments_imix")] {
            table.put(row, name, "ns/packet", segments(stand, kib << 10, &stand.mix(mix).packets));
        }
    }
    for (readers, name) in READERS {
        let outcome = followed(stand, readers);
        table.put("readers_imix", name, "ns/packet", outcome);
    }
    for (threads, name) in CLAIMERS {
        table.put("claims", name, "claims/s", claims(stand, threads));
    }
}

fn words(error: RingError) -> String {
    error.to_string()
}

/// One writer on a ring of its own, half as large as the others'.
fn segments(stand: &Stand, segment_bytes: u64, source: &Packets) -> Result<f64, String> {
    let ring_bytes = stand.scale.ring_bytes / 2;
    let ring = scope_measure::ring(ring_bytes, Some(segment_bytes), 1).map_err(words)?;
    let mut feeder = Feeder::new(&ring, 0).map_err(words)?;
    feeder.begin();
    let packets = packets_in(source, ring_bytes, stand.scale.turns);
    let fed = feeder.feed(source, packets);
    check_ring(&ring, 0, source, 0, packets)?;
    Ok(fed.ns_per_packet())
}

/// One writer that waits for its readers, as for a capture file; every reader must see every packet.
fn followed(stand: &mut Stand, readers: usize) -> Result<f64, String> {
    let source = &stand.mixes[4].packets;
    let (ring, feeder) = (&stand.ring, &mut stand.feeders[0]);
    let packets = packets_in(source, stand.scale.ring_bytes, 1.0);
    feeder.begin();
    let done = AtomicBool::new(false);
    let (fed, found) = std::thread::scope(|scope| {
        let followers: Vec<_> = (0..readers).map(|_| PacketFollower::holding(ring)).collect();
        let threads: Vec<_> =
            followers.into_iter().map(|follower| scope.spawn(|| follower.run(&done))).collect();
        let begun = Instant::now();
        feeder.feed_waiting(source, packets);
        done.store(true, Ordering::Release);
        let found: Vec<_> =
            threads.into_iter().map(|thread| thread.join().expect("a reader doesn't panic")).collect();
        (begun.elapsed(), found)
    });
    check_ring(ring, feeder.lane(), source, feeder.base(), packets)?;
    let expected = (packets, 0, source.hits(packets), source.captured_bytes(packets));
    match found.iter().find(|found| (found.seen, found.missed, found.hits, found.bytes) != expected) {
        Some(found) => Err(format!("a reader found {found:?}, expected {expected:?}")),
        None => Ok(fed.as_nanos() as f64 / packets as f64),
    }
}

/// Segments per second that are opened, filled with one packet, sealed and claimed again.
fn claims(stand: &Stand, threads: u32) -> Result<f64, String> {
    let source = &stand.mixes[0].packets;
    let each = (stand.scale.events / threads as u64).max(1);
    let ring = scope_measure::ring(CLAIM_RING_BYTES, Some(64 << 10), threads).map_err(words)?;
    let mut feeders = (0..threads)
        .map(|worker| Feeder::new(&ring, worker))
        .collect::<Result<Vec<_>, _>>()
        .map_err(words)?;
    let elapsed = scope_measure::together(feeders.iter_mut().map(|feeder| || claim(feeder, source, each)));
    drop(feeders);
    check_claims(&ring, threads, each)?;
    Ok(f64::from(threads) * each as f64 / elapsed.as_secs_f64())
}

fn claim(feeder: &mut Feeder, source: &Packets, claims: u64) {
    for number in 0..claims {
        feeder.append_at(source, number, Packets::time_ns(number));
        feeder.seal();
    }
}

/// Every lane has had its segments, and its packets were published.
fn check_claims(ring: &Ring, lanes: u32, each: u64) -> Result<(), String> {
    let counters = ring.counters();
    let right = |lane: u32| ring.lane_next(lane) == each && counters.lanes[lane as usize].packets == each;
    match (0..lanes).find(|&lane| !right(lane)) {
        Some(lane) => Err(format!("lane {lane} had {} segments instead of {each}", ring.lane_next(lane))),
        None => Ok(()),
    }
}
