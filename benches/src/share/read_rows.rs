//! Programs that read in place: their time for a packet against a reader of the same process, and how soon they see one.
//!
//! The bench is the run: it feeds a ring itself, and lets programs in by a door of its own, so that it knows when a packet was
//! appended. A burst lies in the ring before either reader looks at it; both take their own processor time, on the same core.
//! The program has mapped and touched the whole ring before.

use super::door::Door;
use super::group_rows::wait_until;
use super::programs::Programs;
use super::served::{Seats, served};
use crate::Scale;
use crate::clocks::{cpu_ns, monotonic_ns};
use crate::cores::{cores, stay_on};
use crate::figures::{median, percentile};
use crate::table::{Key, Table};
use crate::workspace::Workspace;
use anyhow::{Context, Result, ensure};
use scope_group::Phase;
use scope_group::rules::RuleSet;
use scope_measure::{Feeder, Packets, Sizes};
use scope_ring::Reader;
use scope_testkit::traffic::Random;
use std::time::Duration;

/// Time of a packet in a program in C, by libwirescope.
pub const OUTSIDE: Key<'static> = ("share_in_place_imix", "C program by libwirescope");
/// And of a reader in the process that has the ring, which asks memory for packets ahead, too.
pub const INSIDE: Key<'static> = ("share_in_place_imix", "reader inside");
/// And of one that goes from block to block, as readers do that need not be fast. No bar.
pub const PLAIN: Key<'static> = ("share_in_place_imix", "reader inside, block by block");
/// From append to `ws_next`, 99th percentile, of the ring.
pub const OF_RING: Key<'static> = ("share_seen_us_1k", "ring");
/// And of a group.
pub const OF_GROUP: Key<'static> = ("share_seen_us_1k", "group");

/// The port that one packet in 128 goes to.
const PORT: u16 = 60_000;
/// The part of the ring that a burst takes.
const PART: u64 = 4;
/// Bursts that are measured, behind those that go once round the ring.
const BURSTS: usize = 12;
/// So many packets before it is looked at memory is asked for a packet, as libwirescope does.
const AHEAD: u32 = 8;
/// Mean gap of packets that are to be seen, us: 1 k packets/s.
const GAP_US: u64 = 1000;
/// A ring for these, bytes.
const SEEN_RING_BYTES: u64 = 64 << 20;
/// Packets that are to be seen, by the span: at least so many that the percentile is one of some.
const SEEN_MIN: u64 = 500;

/// One go of each.
pub fn in_place(workspace: &Workspace, programs: &Programs, scale: Scale, table: &mut Table) {
    let measured =
        on_one_core(|| in_place_ns(workspace, programs, scale)).map_err(|error| format!("{error:#}"));
    for (at, key) in [OUTSIDE, INSIDE, PLAIN].into_iter().enumerate() {
        table.put(key.0, key.1, "ns", measured.clone().map(|ns| ns[at]));
    }
}

/// Runs `what`, and the threads and programs that it starts, on one core. A core that slept while the other one filled the ring
/// is slower at first: whoever reads there would be measured with that.
fn on_one_core<T: Send>(what: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    let pinned = || {
        stay_on(cores()[0]);
        what()
    };
    std::thread::scope(|scope| {
        scope.spawn(pinned).join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Packets of a UDP port that a reader finds: those that it has seen, and those of the port.
fn look_ahead(reader: &mut Reader) -> (u64, u64) {
    let (mut seen, mut found) = (0, 0);
    while let Some(batch) = reader.next_batch() {
        let packets = batch.in_place();
        seen += u64::from(batch.packets());
        for index in 0..batch.packets() {
            packets.fetch(index + AHEAD);
            found += u64::from(is_of_port(packets.get(index).1.data(), PORT));
        }
    }
    (seen, found)
}

/// The same, block by block.
fn look_plainly(reader: &mut Reader) -> (u64, u64) {
    let (mut seen, mut found) = (0, 0);
    while let Some(batch) = reader.next_batch() {
        seen += u64::from(batch.packets());
        found += batch.blocks().filter(|block| is_of_port(block.data(), PORT)).count() as u64;
    }
    (seen, found)
}

/// Times of a packet: of the program, and of both readers inside, ns.
fn in_place_ns(workspace: &Workspace, programs: &Programs, scale: Scale) -> Result<[f64; 3]> {
    let folder = workspace.out_folder()?;
    let ring_bytes = scale.ring_bytes / 2;
    let ring = scope_measure::ring(ring_bytes, Some(2 << 20), 1)?;
    let mut feeder = Feeder::new(&ring, 0)?;
    let source = Packets::new(Sizes::Imix);
    let packets = (ring_bytes as f64 / PART as f64 / source.stored_bytes_mean()) as u64;
    let hits = source.hits(packets);
    feeder.feed(&source, 1); // a lane without packets has nothing to follow
    let door = Door::open(&folder.path().join("attach"))?;
    let words = [door.path().display().to_string(), PORT.to_string()];
    let (program, connection) = std::thread::scope(|scope| {
        let program = scope.spawn(|| programs.start("port", &[&words[0], &words[1]]));
        let connection = door.let_read(&ring);
        let program = program.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        anyhow::Ok((program?, connection?))
    })?;
    let mut program = program;
    let mut readers =
        [look_ahead as fn(&mut Reader) -> _, look_plainly].map(|look| (Reader::new(&ring), look));
    for (reader, _) in &mut readers {
        reader.skip_to_now();
    }
    let mut taken: [Vec<f64>; 3] = Default::default();
    for burst in 0..PART as usize + 1 + BURSTS {
        feeder.begin();
        feeder.feed(&source, packets);
        // Who looks first finds packets colder.
        for step in 0..taken.len() {
            let who = (burst + step) % taken.len();
            let (ns, seen, found) = match who {
                0 => {
                    let [ns, seen, found, missed] = program.ask()?;
                    ensure!(missed == 0, "{missed} packets missed");
                    (ns as f64, seen, found)
                }
                inside => {
                    let (reader, look) = &mut readers[inside - 1];
                    let begun = cpu_ns();
                    let (seen, found) = look(reader);
                    ((cpu_ns() - begun) as f64, seen, found)
                }
            };
            ensure!(
                (seen, found) == (packets, hits),
                "{seen} packets seen of {packets}, {found} found of {hits}"
            );
            if burst > PART as usize {
                taken[who].push(ns / packets as f64);
            }
        }
    }
    drop(connection);
    program.finish()?;
    let medians: Option<Vec<f64>> = taken.iter().map(|taken| median(taken)).collect();
    medians.and_then(|medians| medians.try_into().ok()).context("no burst")
}

/// As the program in C looks at it.
fn is_of_port(data: &[u8], port: u16) -> bool {
    let be16 = |at: usize| u16::from_be_bytes([data[at], data[at + 1]]);
    let mut at = 12;
    while at + 6 <= data.len() && matches!(be16(at), 0x8100 | 0x88a8) {
        at += 4;
    }
    if at + 2 + 40 > data.len() {
        return false;
    }
    let kind = be16(at);
    at += 2;
    match kind {
        0x0800 if data[at + 9] == 17 && be16(at + 6) & 0x1fff == 0 => at += usize::from(data[at] & 15) * 4,
        0x86dd if data[at + 6] == 17 => at += 40,
        _ => return false,
    }
    at + 4 <= data.len() && (be16(at) == port || be16(at + 2) == port)
}

/// How soon packets are seen of the ring, and of a group.
pub fn seen(workspace: &Workspace, programs: &Programs, scale: Scale, table: &mut Table) {
    for (key, is_group) in [(OF_RING, false), (OF_GROUP, true)] {
        let value = seen_us(workspace, programs, scale, is_group, table.round());
        table.put(key.0, key.1, "us", value.map_err(|error| format!("{error:#}")));
    }
}

fn seen_us(
    workspace: &Workspace,
    programs: &Programs,
    scale: Scale,
    is_group: bool,
    round: usize,
) -> Result<f64> {
    let folder = workspace.out_folder()?;
    let ring = scope_measure::ring(SEEN_RING_BYTES, None, 1)?;
    let mut feeder = Feeder::new(&ring, 0)?;
    let source = Packets::new(Sizes::Imix);
    feeder.feed(&source, 1);
    let packets = (scale.span.as_micros() as u64 / GAP_US).max(SEEN_MIN);
    let seats = Seats { many: 1, memory_bytes: SEEN_RING_BYTES / 4 };
    let served = is_group.then(|| served(&ring, "all", RuleSet::default(), seats)).transpose()?;
    let door = Door::open(&folder.path().join("attach"))?;
    let words = [door.path().display().to_string(), packets.to_string()];
    let (program, connection) = std::thread::scope(|scope| {
        let program = scope
            .spawn(|| programs.start("seen", &[&words[0], if is_group { "all" } else { "ring" }, &words[1]]));
        let connection = match &served {
            Some((group, _)) => door.let_sit(&group.seats()[0]),
            None => door.let_read(&ring),
        };
        if let Some((_, sharing)) = &served {
            sharing.ring();
        }
        let program = program.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        anyhow::Ok((program?, connection?))
    })?;
    if let Some((group, sharing)) = &served {
        sharing.ring();
        wait_until("the member", || group.seats()[0].phase() == Phase::Active)?;
    }
    let mut random = Random::new(round as u64 + 1);
    for number in 1..=packets {
        // Gaps by chance: nobody's naps keep step with them.
        std::thread::sleep(Duration::from_micros(random.below(2 * GAP_US)));
        feeder.append_at(&source, number, monotonic_ns());
        feeder.commit();
    }
    let late = program.finish()?;
    drop(connection);
    if let Some((_, sharing)) = served {
        sharing.end();
    }
    let late: Vec<f64> = late.iter().filter_map(|line| line.parse().ok()).collect();
    ensure!(late.len() as u64 == packets, "{} packets seen of {packets}", late.len());
    ensure!(late.iter().all(|ns| *ns > 0.0), "a packet was seen before it was appended");
    Ok(percentile(&late, 99.0).context("no packets")? / 1000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_found_as_the_key_finds_them() {
        let source = Packets::new(Sizes::Imix);
        let found = (0..512).filter(|number| is_of_port(source.frame(*number), PORT)).count() as u64;
        assert_eq!(found, source.hits(512));
        assert!(!is_of_port(&[8; 20], 0x0808) && !is_of_port(&[], PORT));
    }
}
