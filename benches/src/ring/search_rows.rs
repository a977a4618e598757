//! Search inside the ring: the key column, the offsets that it holds, and the first packet after a time.
//!
//! Cold means: something of the ring's size was read before, so that no cache holds what is searched.

use super::{Stand, packets_in};
use crate::Scale;
use crate::figures::percentile;
use crate::table::Table;
use scope_measure::{Feeder, Packets, Sizes, check_ring, sum};
use scope_packet::pcapng::le32;
use scope_ring::{Pinned, Ring};
use std::sync::Arc;
use std::time::Instant;

/// Searches of a round.
const SEARCHES: u64 = 5_000;

/// Measures the rows once.
pub fn round(stand: &mut Stand, table: &mut Table) {
    for (name, row) in [("64", "key_scan_64"), ("imix", "key_scan_imix")] {
        keys(stand, name, row, table);
    }
    offsets(stand, table);
}

/// Fills the ring with a run of `name`; the sealed segments, pinned, and how many packets they hold.
fn filled(stand: &mut Stand, name: &str) -> (Vec<Pinned>, u64, u64) {
    let source = &stand.mixes.iter().find(|mix| mix.name == name).expect("a mix of the table").packets;
    let feeder = &mut stand.feeders[0];
    feeder.begin();
    feeder.feed(source, packets_in(source, stand.scale.ring_bytes, 1.1));
    feeder.seal();
    let (lane, base) = (feeder.lane(), feeder.base());
    let ring = &stand.ring;
    let pinned = ring.segment_ids(lane, 0).filter_map(|id| ring.pin(id));
    let pinned: Vec<Pinned> = pinned.filter(|pinned| pinned.first_packet() >= base).collect();
    let packets = pinned.iter().map(|pinned| pinned.committed().packets as u64).sum();
    (pinned, packets, base)
}

/// Reads as much as the ring has elsewhere.
fn make_cold(stand: &mut Stand) {
    let total = stand.arena.chunks().iter().fold(0u64, |total, chunk| total.wrapping_add(sum(chunk)));
    std::hint::black_box(total);
}

fn keys(stand: &mut Stand, name: &str, row: &'static str, table: &mut Table) {
    let (pinned, packets, base) = filled(stand, name);
    let columns = || pinned.iter().map(|pinned| pinned.column(0, pinned.committed().packets));
    let test = Packets::key_test();
    let hits = |packets_before: u64| stand.mix(name).packets.hits(packets_before);
    let first = pinned.first().map_or(0, |pinned| pinned.first_packet() - base);
    let expected = hits(first + packets) - hits(first);

    make_cold(stand);
    let begun = Instant::now();
    let found: u64 = columns().map(|column| column.matches(&test).count() as u64).sum();
    let scanning = begun.elapsed().as_nanos() as f64 / packets as f64;
    make_cold(stand);
    let begun = Instant::now();
    let total = columns().fold(0u64, |total, column| total.wrapping_add(sum(column.bytes())));
    let summing = begun.elapsed().as_nanos() as f64 / packets as f64;

    let scanned =
        if found == expected { Ok(scanning) } else { Err(format!("{found} hits instead of {expected}")) };
    table.put(row, "scan", "ns/packet", scanned);
    let by_entries = columns()
        .flat_map(|column| column.iter())
        .fold(0u64, |total, entry| total.wrapping_add(sum(&entry.to_bytes())));
    let summed = if by_entries == total { Ok(summing) } else { Err("the sum differs".to_string()) };
    table.put(row, "sum of the same bytes", "ns/packet", summed);
}

fn offsets(stand: &mut Stand, table: &mut Table) {
    let (pinned, packets, _base) = filled(stand, "imix");
    let segments: Vec<(&[u8], &Pinned)> =
        pinned.iter().filter_map(|pinned| Some((pinned.whole()?, pinned))).collect();

    make_cold(stand);
    let begun = Instant::now();
    let (walked, by_chain) = segments.iter().fold((0, 0u64), |(count, total), (whole, pinned)| {
        let (packets, times) = chained(whole, pinned.committed().bytes as usize);
        (count + packets, total.wrapping_add(times))
    });
    let chain = begun.elapsed().as_nanos() as f64 / packets as f64;
    make_cold(stand);
    let begun = Instant::now();
    let by_offset = segments.iter().fold(0u64, |total, (_, pinned)| {
        let blocks = pinned.indexed(0, pinned.committed().packets);
        blocks.fold(total, |total, (_, block)| total.wrapping_add((block.time_ns() as u32).into()))
    });
    let offset = begun.elapsed().as_nanos() as f64 / packets as f64;

    let fault = (walked, by_chain) != (packets, by_offset);
    let checked = |ns| if fault { Err("the two walks differ".to_string()) } else { Ok(ns) };
    table.put("offset_scan_imix", "length-chained headers", "ns/packet", checked(chain));
    table.put("offset_scan_imix", "offsets with prefetch", "ns/packet", checked(offset));
}

/// Packets, and the sum of the lower halves of their times, by following the lengths.
fn chained(whole: &[u8], bytes: usize) -> (u64, u64) {
    let (mut at, mut packets, mut total) = (0, 0, 0u64);
    while at < bytes {
        total = total.wrapping_add(le32(whole, at + 16).into());
        at += le32(whole, at + 4) as usize;
        packets += 1;
    }
    (packets, total)
}

/// The search by time, in a ring of its own; all its rounds.
pub fn by_time(scale: Scale, table: &mut Table) {
    let (available, _) = scope_machine::Machine::this().available(None);
    let ring_bytes = scale.time_ring_bytes.min(available / 3);
    let of = "first packet after a time, 99 %";
    let source = Packets::new(Sizes::Imix);
    eprintln!("search by time in a ring of {} MiB", ring_bytes >> 20);
    let prepared = prepare(ring_bytes, &source);
    for round in 0..scale.rounds {
        table.begin_round(round);
        let outcome = prepared.as_ref().map_err(String::clone).and_then(|(ring, _feeder, first, end)| {
            let mut taken_us = Vec::with_capacity(SEARCHES as usize);
            for search in 0..SEARCHES {
                let step = (search * 0x9e37_79b9 + round as u64 * 7919) % (end - first - 1);
                let after_ns = Packets::time_ns(first + step) + (search % 37) as i64;
                let begun = Instant::now();
                let found = ring.find_time(after_ns + 1);
                taken_us.push(begun.elapsed().as_nanos() as f64 / 1e3);
                let number = Packets::first_after(after_ns);
                let found =
                    found.map(|found| (found.pinned.first_packet() + u64::from(found.index), found.time_ns));
                if found != Some((number, Packets::time_ns(number))) {
                    return Err(format!("found {found:?} instead of packet {number}"));
                }
            }
            percentile(&taken_us, 99.0).ok_or_else(|| "no search".to_string())
        });
        table.put("find_time_us", of, "us", outcome);
    }
}

/// A full ring; the first packet that is left, and the one behind the last.
fn prepare(ring_bytes: u64, source: &Packets) -> Result<(Arc<Ring>, Feeder, u64, u64), String> {
    let ring = scope_measure::ring(ring_bytes, Some(2 << 20), 1).map_err(|error| error.to_string())?;
    let mut feeder = Feeder::new(&ring, 0).map_err(|error| error.to_string())?;
    feeder.begin();
    let packets = packets_in(source, ring_bytes, 1.1);
    feeder.feed(source, packets);
    let left = check_ring(&ring, 0, source, 0, packets)?;
    Ok((ring, feeder, packets - left, packets))
}
