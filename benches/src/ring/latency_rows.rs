//! From append to seen: a waiting reader, at a thousand and at a million packets a second, and what it costs
//! in CPU time.
//!
//! Writer and reader stay on a core each, as workers and readers do that share a machine on purpose.

use super::Stand;
use crate::clocks::{cpu_ns, monotonic_ns};
use crate::cores::{cores, stay_on};
use crate::figures::percentile;
use crate::table::Table;
use scope_measure::{Feeder, Packets};
use scope_ring::Reader;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Rates in packets per second, and the names of their rows: 99th percentile, median, share of a core.
const RATES: [(u64, [&str; 3]); 2] = [
    (1_000, ["append_to_seen_us_1k", "append_to_seen_median_us_1k", "reader_cpu_1k"]),
    (1_000_000, ["append_to_seen_us_1m", "append_to_seen_median_us_1m", "reader_cpu_1m"]),
];
/// Below this distance to the next packet the writer spins instead of sleeping.
const SPIN: Duration = Duration::from_micros(100);

/// What the reader found.
struct Seen {
    latencies_us: Vec<f64>,
    missed: u64,
    cpu_share: f64,
}

/// Measures the rows once.
pub fn round(stand: &mut Stand, table: &mut Table) {
    for (rate, [p99, median, cpu]) in RATES {
        let packets = (rate as f64 * stand.scale.span.as_secs_f64()) as u64;
        let seen = measure(stand, rate, packets);
        let of = "1 waiting reader";
        let figure = |percent: f64| {
            seen.as_ref().map_err(String::clone).and_then(|seen| {
                percentile(&seen.latencies_us, percent).ok_or_else(|| "nothing was seen".to_string())
            })
        };
        table.put(p99, of, "us", figure(99.0));
        table.put(median, of, "us", figure(50.0));
        table.put(cpu, of, "of a core", seen.as_ref().map(|seen| seen.cpu_share).map_err(String::clone));
    }
}

fn measure(stand: &mut Stand, rate: u64, packets: u64) -> Result<Seen, String> {
    let source = &stand.mixes[0].packets;
    let feeder = &mut stand.feeders[0];
    feeder.begin();
    let lane = feeder.lane();
    let mut reader = Reader::new(&stand.ring);
    while reader.next_batch().is_some() {}
    let (done, cores) = (AtomicBool::new(false), cores());
    let seen = std::thread::scope(|scope| {
        let reading = scope.spawn(|| {
            stay_on(cores[1 % cores.len()]);
            follow(reader, lane, packets as usize, &done)
        });
        let writing = scope.spawn(|| {
            stay_on(cores[0]);
            write(feeder, source, rate, packets);
        });
        writing.join().expect("the writer doesn't panic");
        std::thread::sleep(Duration::from_millis(2));
        done.store(true, Ordering::Release);
        reading.join().expect("the reader doesn't panic")
    });
    match seen.latencies_us.len() as u64 + seen.missed {
        count if count == packets && seen.missed == 0 => Ok(seen),
        _ => Err(format!("seen {}, missed {} of {packets} packets", seen.latencies_us.len(), seen.missed)),
    }
}

fn write(feeder: &mut Feeder, source: &Packets, rate: u64, packets: u64) {
    let begun = Instant::now();
    let mut sent = 0;
    while sent < packets {
        let due = (begun.elapsed().as_nanos() * u128::from(rate) / 1_000_000_000) as u64 + 1;
        if due <= sent {
            pause(begun, sent, rate);
            continue;
        }
        // One poll: what has come since the last one, made visible at once.
        let time_ns = monotonic_ns();
        let until = due.min(packets).min(sent + 256);
        for number in sent..until {
            feeder.append_at(source, number, time_ns);
        }
        sent = until;
        feeder.commit();
    }
}

/// Until packet `next` is due: most of it asleep, the rest spinning.
fn pause(begun: Instant, next: u64, rate: u64) {
    let due = Duration::from_nanos(next * 1_000_000_000 / rate);
    let left = due.saturating_sub(begun.elapsed());
    if left > SPIN {
        std::thread::sleep(left - SPIN / 2);
    } else {
        std::hint::spin_loop();
    }
}

fn follow(mut reader: Reader, lane: u32, packets: usize, done: &AtomicBool) -> Seen {
    let missed_before = reader.counts(lane).missed;
    let mut latencies_us = Vec::with_capacity(packets);
    let (begun, cpu_before_ns) = (Instant::now(), cpu_ns());
    loop {
        let last = done.load(Ordering::Acquire); // before the look: what came until then is seen
        let Some(batch) = reader.next_batch() else {
            if last {
                break;
            }
            reader.wait();
            continue;
        };
        let now_ns = monotonic_ns();
        latencies_us.extend(batch.blocks().map(|block| (now_ns - block.time_ns()) as f64 / 1e3));
    }
    let cpu_share = (cpu_ns() - cpu_before_ns) as f64 / begun.elapsed().as_nanos() as f64;
    Seen { latencies_us, missed: reader.counts(lane).missed - missed_before, cpu_share }
}
