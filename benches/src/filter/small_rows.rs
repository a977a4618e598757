//! Small filters and a long list: packets in the cache against `bpf_filter`, packets in memory against
//! hand-written Rust.

use super::{BpfFilter, SMALL, expect, inputs, matches, native};
use crate::figures::percentile;
use crate::table::Table;
use anyhow::{Context, Result};
use scope_filter::{FILTER_INPUTS_MAX, FilterInput, Predicate};
use scope_measure::{Arena, Packets};
use scope_packet::{Headers, KeyEntry};
use std::hint::black_box;
use std::time::Instant;

/// Time that a hot row takes at least in one go, and how many goes there are: the best counts, for a hot loop
/// has no reason of its own to be slower now and then.
const GO_NS: f64 = 2e6;
const GOES: usize = 25;

/// ns per packet of `count` over `packets` packets, and what it counted.
fn best_ns(packets: usize, mut count: impl FnMut() -> u64) -> (f64, u64) {
    let begun = Instant::now();
    let found = black_box(count());
    let turns = (GO_NS / begun.elapsed().as_nanos().max(1) as f64).ceil().max(1.0) as u32;
    let mut best = f64::MAX;
    for _ in 0..GOES {
        let begun = Instant::now();
        for _ in 0..turns {
            black_box(count());
        }
        best = best.min(begun.elapsed().as_nanos() as f64 / f64::from(turns) / packets as f64);
    }
    (best, found)
}

/// The small filters, hot.
pub fn hot(frames: &[&[u8]], table: &mut Table) -> Result<()> {
    for small in &SMALL {
        pair("filter_small_hot", small.name, small.text, frames, table)?;
    }
    Ok(())
}

/// A hundred hosts, hot.
pub fn hosts(frames: &[&[u8]], table: &mut Table) -> Result<()> {
    pair("filter_100_hosts_hot", "100 hosts", &super::hosts(), frames, table)
}

/// `bpf_filter` and machine code on the same packets.
fn pair(row: &'static str, name: &str, text: &str, frames: &[&[u8]], table: &mut Table) -> Result<()> {
    let (bpf, predicate) = (BpfFilter::new(text)?, native(text)?);
    let inputs = inputs(frames);
    let expected = frames.iter().filter(|frame| bpf.matches(frame)).count() as u64;
    let theirs = || best_ns(frames.len(), || frames.iter().filter(|frame| bpf.matches(frame)).count() as u64);
    let ours = || best_ns(frames.len(), || matches(&predicate, &inputs));
    let (theirs, ours) = if table.round().is_multiple_of(2) {
        let theirs = theirs();
        (theirs, ours())
    } else {
        let ours = ours();
        (theirs(), ours)
    };
    for (of, (ns, found)) in [("bpf_filter", theirs), ("native", ours)] {
        table.put(row, &format!("{name}, {of}"), "ns", expect(found, expected).map(|()| ns));
    }
    Ok(())
}

/// Packets that one of the two filters sees before it is the other's turn: some milliseconds of them.
const SLICE_PACKETS: usize = 1 << 15;

/// Chunk, offset in it, length.
type Span = (u32, u32, u32);

/// How many of the packets match.
type Count<'a> = &'a dyn Fn(&[Span]) -> u64;

/// Packets one after another in more memory than any cache holds.
pub struct Cold {
    arena: Arena,
    spans: Vec<Span>,
}

impl Cold {
    /// Fills `bytes` of memory with `packets`.
    ///
    /// # Errors
    /// The system's, where it doesn't give that much.
    pub fn new(packets: &Packets, bytes: u64) -> Result<Cold> {
        let mut arena = Arena::new(bytes).context("memory to measure in")?;
        let mut spans = Vec::new();
        let mut number = 0;
        for (chunk, room) in arena.chunks().into_iter().enumerate() {
            let mut at = 0;
            loop {
                let frame = packets.frame(number);
                let Some(place) = room.get_mut(at..at + frame.len()) else { break };
                place.copy_from_slice(frame);
                spans.push((chunk as u32, at as u32, frame.len() as u32));
                at += frame.len();
                number += 1;
            }
        }
        Ok(Cold { arena, spans })
    }

    /// Every small filter over all packets, by hand and as machine code.
    ///
    /// # Errors
    /// A filter that doesn't compile.
    pub fn round(&mut self, table: &mut Table) -> Result<()> {
        let chunks = self.arena.chunks();
        let frame = |&(chunk, at, len): &Span| &chunks[chunk as usize][at as usize..(at + len) as usize];
        for small in &SMALL {
            let (bpf, predicate) = (BpfFilter::new(small.text)?, native(small.text)?);
            let by_hand =
                |spans: &[Span]| spans.iter().filter(|span| (small.by_hand)(frame(span))).count() as u64;
            let ours = |spans: &[Span]| native_cold(&predicate, spans, frame);
            let expected = self.spans.iter().filter(|span| bpf.matches(frame(span))).count() as u64;
            let forms: [(&str, Count<'_>); 2] = [("hand-written Rust", &by_hand), ("native", &ours)];
            let (mut slices, mut found) = ([Vec::new(), Vec::new()], [0; 2]);
            // By turns, and in the second turn the other way round: each form meets every slice, cold.
            for turn in 0..2 {
                for (at, spans) in self.spans.chunks(SLICE_PACKETS).enumerate() {
                    let form = (at + turn + table.round()) % 2;
                    let begun = Instant::now();
                    found[form] += forms[form].1(spans);
                    slices[form].push(begun.elapsed().as_nanos() as f64 / spans.len() as f64);
                }
            }
            for (((of, _), ns), found) in forms.into_iter().zip(slices).zip(found) {
                let quartile = percentile(&ns, 25.0).ok_or_else(|| "no packets".to_string());
                let outcome = quartile.and_then(|ns| expect(found, expected).map(|()| ns));
                table.put("filter_small_cold", &format!("{}, {of}", small.name), "ns", outcome);
            }
        }
        Ok(())
    }
}

/// A worker has parsed the headers; here nobody has, and the packets have no tags: nothing is read of them
/// beforehand.
fn native_cold<'a>(predicate: &Predicate, spans: &[Span], frame: impl Fn(&Span) -> &'a [u8]) -> u64 {
    let mut found = 0;
    let mut batch = [FilterInput::default(); FILTER_INPUTS_MAX];
    for spans in spans.chunks(FILTER_INPUTS_MAX) {
        for (input, span) in batch.iter_mut().zip(spans) {
            let data = frame(span);
            *input = FilterInput::new(&Headers::default(), KeyEntry::default(), data, data.len() as u32);
        }
        found += u64::from(predicate.matches_batch(&batch[..spans.len()], u64::MAX).count_ones());
    }
    found
}
