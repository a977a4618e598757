//! One host of many, 0.01 % of the packets in a tenth of the segments: time cold and warm against tcpdump, bytes read,
//! and the time of a count against that of a loop that knows where everything is.

use super::asking::{Asking, expect, explained_seconds};
use super::survey::Stretch;
use super::traffic::HOST;
use crate::figures::median;
use crate::table::Table;
use anyhow::{Result, ensure};
use std::fs::File;
use std::hint::black_box;
use std::os::unix::fs::FileExt;
use std::time::Instant;

/// Rows, and what each is of.
pub const COLD: &str = "query_host_cold";
pub const WARM: &str = "query_host_warm";
pub const OURS: &str = "wirescope query";
pub const TCPDUMP: &str = "tcpdump -r";
pub const READ: &str = "query_read_bytes";
pub const FROM_DISK: &str = "read from the disk for the query, cold";
pub const OWED: &str = "index blocks, columns and feet, pages with matches";
const BY_CALLS: &str = "read by its read(2) calls";
pub const COUNT: &str = "query_count";
pub const IN_PROCESS: &str = "wirescope query --count, its own time";
pub const COLUMNS: &str = "summing indexes and columns, reading matches";
const FACTS: &str = "the same without the slices of indexes";
/// Runs of each in a round, of those that take milliseconds.
const TURNS: usize = 5;
/// Of a match so many bytes are read.
const MATCH_BYTES: usize = 64;
/// Of a cold store tcpdump has to get so much from the disk.
const FROM_DISK_LEAST: f64 = 0.98;

/// The question.
pub fn question() -> String {
    format!("host {HOST}")
}

/// One round of what is cold.
pub fn cold(asking: &Asking, table: &mut Table) {
    for ours in [table.round().is_multiple_of(2), !table.round().is_multiple_of(2)] {
        if ours {
            let outcome = cold_query(asking).map_err(|error| format!("{error:#}"));
            let of = |figure: fn(&Cold) -> f64| outcome.as_ref().map(figure).map_err(String::clone);
            table.put(COLD, OURS, "s", of(|cold| cold.seconds));
            table.put(READ, FROM_DISK, "MB", of(|cold| cold.from_disk));
            table.put(READ, BY_CALLS, "MB", of(|cold| cold.by_calls));
            table.put(READ, OWED, "MB", Ok(asking.store.survey.owed_bytes() as f64 / 1e6));
        } else {
            let outcome = asking.cool().and_then(|()| tcpdump(asking, true));
            table.put(COLD, TCPDUMP, "s", outcome.map_err(|error| format!("{error:#}")));
        }
    }
}

/// One round of what is warm.
pub fn warm(asking: &Asking, table: &mut Table) {
    if let Err(error) = asking.warm() {
        return table.put(WARM, OURS, "s", Err(format!("{error:#}")));
    }
    for ours in [table.round().is_multiple_of(2), !table.round().is_multiple_of(2)] {
        match ours {
            true => table.put(WARM, OURS, "s", of_turns(|| warm_query(asking))),
            false => {
                table.put(WARM, TCPDUMP, "s", tcpdump(asking, false).map_err(|error| format!("{error:#}")))
            }
        }
    }
    for ours in [table.round().is_multiple_of(2), !table.round().is_multiple_of(2)] {
        match ours {
            true => table.put(COUNT, IN_PROCESS, "ms", of_turns(|| counted(asking))),
            false => {
                let survey = &asking.store.survey;
                for (of, indexes) in [(COLUMNS, &survey.indexes), (FACTS, &survey.facts)] {
                    let summed = columns(asking, indexes).map_err(|error| format!("{error:#}"));
                    table.put(COUNT, of, "ms", summed);
                }
            }
        }
    }
}

/// The median of some runs.
fn of_turns(mut run: impl FnMut() -> Result<f64>) -> Result<f64, String> {
    let values =
        (0..TURNS).map(|_| run()).collect::<Result<Vec<f64>>>().map_err(|error| format!("{error:#}"))?;
    median(&values).ok_or_else(|| "nothing".to_string())
}

struct Cold {
    seconds: f64,
    from_disk: f64,
    by_calls: f64,
}

fn cold_query(asking: &Asking) -> Result<Cold> {
    asking.cool()?;
    let answered = asking.packets(&[&question()])?;
    expect(answered.answer.count.packets, asking.store.known.host.packets)?;
    ensure!(answered.answer.count == asking.store.known.host, "other bytes: {:?}", answered.answer.count);
    let ended = answered.ended;
    ensure!(
        ended.read_disk > 0,
        "nothing was read from the disk: the system doesn't count, or it isn't cold"
    );
    let mb = |bytes: u64| bytes as f64 / 1e6;
    Ok(Cold { seconds: ended.seconds, from_disk: mb(ended.read_disk), by_calls: mb(ended.read_calls) })
}

fn warm_query(asking: &Asking) -> Result<f64> {
    let answered = asking.packets(&[&question()])?;
    ensure!(answered.answer.count == asking.store.known.host, "{:?}", answered.answer.count);
    Ok(answered.ended.seconds)
}

fn tcpdump(asking: &Asking, is_cold: bool) -> Result<f64> {
    let (ended, packets) = asking.tcpdump(&question())?;
    expect(packets, asking.store.known.host.packets)?;
    let share = ended.read_disk as f64 / asking.store.bytes as f64;
    ensure!(!is_cold || share >= FROM_DISK_LEAST, "only {:.1} % came from the disk: not cold", share * 100.0);
    Ok(ended.seconds)
}

fn counted(asking: &Asking) -> Result<f64> {
    let (ended, packets) = asking.count(&[&question(), "--explain"])?;
    expect(packets, asking.store.known.host.packets)?;
    Ok(explained_seconds(&ended.words)? * 1e3)
}

/// ms of the loop that a count can be at best: everything is known of where things are. `indexes`: what of them is summed.
fn columns(asking: &Asking, indexes: &[Stretch]) -> Result<f64> {
    let files = asking.store.files.iter().map(File::open).collect::<Result<Vec<File>, _>>()?;
    let survey = &asking.store.survey;
    let longest =
        indexes.iter().chain(&survey.columns).map(|stretch| stretch.bytes.end - stretch.bytes.start);
    let mut buffer = vec![0u8; longest.max().unwrap_or(0).max(MATCH_BYTES as u64) as usize];
    let mut times = Vec::new();
    for _ in 0..TURNS {
        let begun = Instant::now();
        let mut sum = 0u64;
        for stretch in indexes.iter().chain(&survey.columns) {
            let into = &mut buffer[..(stretch.bytes.end - stretch.bytes.start) as usize];
            files[stretch.file].read_exact_at(into, stretch.bytes.start)?;
            sum = sum.wrapping_add(summed(into));
        }
        for &(file, at) in &survey.matches {
            let into = &mut buffer[..MATCH_BYTES];
            files[file].read_exact_at(into, at)?;
            sum = sum.wrapping_add(summed(into));
        }
        black_box(sum);
        times.push(begun.elapsed().as_secs_f64() * 1e3);
    }
    Ok(median(&times).unwrap_or(f64::NAN))
}

fn summed(bytes: &[u8]) -> u64 {
    let words = bytes.chunks_exact(8).map(|word| {
        u64::from_le_bytes([word[0], word[1], word[2], word[3], word[4], word[5], word[6], word[7]])
    });
    words.fold(0, u64::wrapping_add)
}
