//! The part `ring`: append, readers, search and claims, in one run against what memory takes and against
//! other queues.
//!
//! Every round runs every row once, so that a slow minute of the machine hits all alike, and compared rows
//! change places from round to round. One ring and one arena of the same size live through all rounds; rows
//! with another ring make it and let it go again. Search by time has the largest ring, and therefore its own
//! rounds at the end, when the others are gone.

mod append_rows;
mod bars;
mod claim_rows;
mod follower_rows;
mod latency_rows;
mod memory_rows;
mod peers;
mod pool;
mod qq;
mod readers_rows;
mod search_rows;

use crate::Scale;
use crate::record::Record;
use crate::table::Table;
use anyhow::{Context, Result};
use scope_measure::{Arena, Feeder, Packets, Sizes};
use scope_ring::Ring;
use std::sync::Arc;

/// One size or mix of packets, and the names of its rows.
struct Mix {
    /// As people say it.
    name: &'static str,
    /// The row of our appending.
    append: &'static str,
    /// The row of the other queues.
    queues: &'static str,
    packets: Packets,
}

/// What lives through all rounds.
struct Stand {
    ring: Arc<Ring>,
    /// Two lanes of the ring.
    feeders: Vec<Feeder>,
    arena: Arena,
    mixes: Vec<Mix>,
    scale: Scale,
}

fn mixes() -> Vec<Mix> {
    let mix = |name, append, queues, sizes| Mix { name, append, queues, packets: Packets::new(sizes) };
    vec![
        mix("64", "append_64", "queues_64", Sizes::Fixed(64)),
        mix("128", "append_128", "queues_128", Sizes::Fixed(128)),
        mix("512", "append_512", "queues_512", Sizes::Fixed(512)),
        mix("1518", "append_1518", "queues_1518", Sizes::Fixed(1518)),
        mix("imix", "append_imix", "queues_imix", Sizes::Imix),
    ]
}

impl Stand {
    /// Makes ring and arena; the ring's own size in memory is the first row.
    fn new(scale: Scale, table: &mut Table) -> Result<Stand> {
        eprintln!("prefaulting a ring of {} MiB and as much beside it", scale.ring_bytes >> 20);
        let mixes = mixes();
        let resident_before = memory_rows::resident_bytes()?;
        let ring = scope_measure::ring(scale.ring_bytes, Some(2 << 20), 2)?;
        let mut feeders = vec![Feeder::new(&ring, 0)?, Feeder::new(&ring, 1)?];
        let imix = &mixes[4].packets;
        for feeder in &mut feeders {
            feeder.begin();
            feeder.feed(imix, packets_in(imix, scale.ring_bytes, 0.6));
        }
        let resident = memory_rows::resident_bytes()?.saturating_sub(resident_before);
        table.put(
            "resident_over_ring",
            "ring, prefaulted and used",
            "x",
            Ok(resident as f64 / scale.ring_bytes as f64),
        );
        Ok(Stand { ring, feeders, arena: Arena::new(scale.ring_bytes)?, mixes, scale })
    }

    fn mix(&self, name: &str) -> &Mix {
        self.mixes.iter().find(|mix| mix.name == name).expect("a mix of the table")
    }
}

/// Packets that go `turns` times round a ring of `ring_bytes`.
fn packets_in(packets: &Packets, ring_bytes: u64, turns: f64) -> u64 {
    (ring_bytes as f64 * turns / packets.stored_bytes_mean()) as u64
}

/// Measures everything and adds it to `record`.
///
/// # Errors
/// The system's, where there is no memory to measure in. What goes wrong later is a fault of its row.
pub fn measure(scale: Scale, record: &mut Record) -> Result<()> {
    let mut table = Table::default();
    let mut stand = Stand::new(scale, &mut table).context("memory to measure in")?;
    for round in 0..scale.rounds {
        eprintln!("round {} of {}", round + 1, scale.rounds);
        table.begin_round(round);
        memory_rows::round(&mut stand, &mut table);
        append_rows::round(&mut stand, &mut table);
        follower_rows::round(&mut stand, &mut table);
        qq::round(&mut stand, &mut table);
        pool::round(&mut stand, &mut table);
        readers_rows::round(&mut stand, &mut table);
        latency_rows::round(&mut stand, &mut table);
        search_rows::round(&mut stand, &mut table);
        claim_rows::round(&mut stand, &mut table);
    }
    drop(stand);
    search_rows::by_time(scale, &mut table);
    record.bars.extend(bars::bars(&table));
    record.machine.insert("avx512".to_string(), scope_measure::uses_avx512().into());
    record.machine.insert("ring_bytes".to_string(), scale.ring_bytes.into());
    table.finish(record);
    Ok(())
}
