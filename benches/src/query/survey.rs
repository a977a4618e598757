//! The store, read naively and whole: what is in it, and what an answer has to read of it at least.
//!
//! ```text
//!  file   | head | slot | slot | ... | index |        index blocks
//!  slot   | packets | padding | column | foot |       of a slot with a match: the pages of column and foot,
//!            ^ the pages that hold a match                and these
//! ```

use super::traffic::{Known, SEGMENT_BYTES, is_of_host};
use anyhow::{Context, Result, ensure};
use scope_packet::key::KEY_ENTRY_BYTES;
use scope_packet::segment::FOOT_BYTES;
use scope_store::{State, StoredFile};
use std::fs::File;
use std::ops::Range;
use std::path::PathBuf;

/// What the checksums of a store are of.
const PAGE_BYTES: u64 = 4096;

/// A stretch of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stretch {
    /// Number of the file.
    pub file: usize,
    /// Bytes of it.
    pub bytes: Range<u64>,
}

impl Stretch {
    fn len(&self) -> u64 {
        self.bytes.end - self.bytes.start
    }
}

/// What is in a store.
#[derive(Debug, Default)]
pub struct Survey {
    /// What its packets are, by their bytes.
    pub found: Known,
    /// Segments.
    pub segments: u64,
    /// Bytes of packet blocks.
    pub block_bytes: u64,
    /// The index of each file.
    pub indexes: Vec<Stretch>,
    /// What of it every question has to read: all but its slices.
    pub facts: Vec<Stretch>,
    /// Key column and foot, whole pages, of each segment with a packet of the host.
    pub columns: Vec<Stretch>,
    /// Where its packets begin in their files.
    pub matches: Vec<(usize, u64)>,
    /// Different pages in which they lie.
    pub match_pages: u64,
    /// Packets in each of the spans.
    pub in_spans: Vec<u64>,
    /// Packet blocks of the first segments, for filters in memory.
    pub sample: Vec<Vec<u8>>,
}

impl Survey {
    /// Bytes that have to be read for the packets of the host: index blocks, columns and feet, pages of packets.
    pub fn owed_bytes(&self) -> u64 {
        let stretches = self.indexes.iter().chain(&self.columns);
        stretches.map(Stretch::len).sum::<u64>() + self.match_pages * PAGE_BYTES
    }

    /// Reads all of a store's files; `spans` are both ends, ns, and `sample_bytes` are kept.
    ///
    /// # Errors
    /// Whatever is not as it was written.
    pub fn of(files: &[PathBuf], spans: &[(i64, i64)], sample_bytes: usize) -> Result<Survey> {
        let mut survey = Survey::default();
        let mut counted = Spans::new(spans);
        let (mut slot, mut sampled) = (Vec::new(), 0);
        for (number, path) in files.iter().enumerate() {
            let stored = StoredFile::open(File::open(path)?).with_context(|| path.display().to_string())?;
            ensure!(stored.state() == State::Closed, "{} isn't closed", path.display());
            ensure!(stored.segment_bytes() == SEGMENT_BYTES, "segments of {} bytes", stored.segment_bytes());
            let mut end = stored.head_bytes();
            for (index, facts) in stored.segments().iter().enumerate() {
                let segment = stored
                    .read_segment(index, &mut slot)
                    .with_context(|| format!("{}, segment {index}", path.display()))?;
                end = facts.offset + SEGMENT_BYTES as u64;
                let mut last_page = None;
                let mut at = facts.offset;
                let before = survey.matches.len();
                for block in segment.packets() {
                    let next = at + block.bytes().len() as u64;
                    survey.found.add(block.time_ns(), block.data());
                    counted.add(block.time_ns());
                    if is_of_host(block.data()) {
                        survey.matches.push((number, at));
                        let pages = at / PAGE_BYTES..(next - 1) / PAGE_BYTES + 1;
                        let known = last_page.map_or(pages.start, |last: u64| pages.start.max(last + 1));
                        survey.match_pages += pages.end - known;
                        last_page = Some(pages.end - 1);
                    }
                    at = next;
                }
                if survey.matches.len() > before {
                    let column = 8 + facts.foot.packets as usize * KEY_ENTRY_BYTES + FOOT_BYTES;
                    let from = (end - column as u64) / PAGE_BYTES * PAGE_BYTES;
                    survey.columns.push(Stretch { file: number, bytes: from..end });
                }
                survey.segments += 1;
                survey.block_bytes += segment.blocks().len() as u64;
                if sampled < sample_bytes {
                    sampled += segment.blocks().len();
                    survey.sample.push(segment.blocks().to_vec());
                }
            }
            survey.indexes.push(Stretch { file: number, bytes: end..stored.bytes() });
            let facts = end..end + facts_bytes(stored.segments().len());
            ensure!(facts.end < stored.bytes(), "{}: an index without slices", path.display());
            survey.facts.push(Stretch { file: number, bytes: facts });
        }
        survey.in_spans = counted.packets();
        Ok(survey)
    }
}

/// Bytes of an index block with so many entries in front of its slices: docs/FORMAT.md, section 7.
fn facts_bytes(entries: usize) -> u64 {
    (2184 + 280 * entries as u64 + 16).next_multiple_of(PAGE_BYTES)
}

/// Packets between the ends of spans, counted once for each and summed at the end.
struct Spans<'a> {
    spans: &'a [(i64, i64)],
    /// Begins, and the ns behind ends, in order.
    bounds: Vec<i64>,
    /// Packets from the bound before (the n-th counts what is older than bound n).
    packets: Vec<u64>,
}

impl<'a> Spans<'a> {
    fn new(spans: &'a [(i64, i64)]) -> Spans<'a> {
        let mut bounds: Vec<i64> = spans.iter().flat_map(|&(from_ns, to_ns)| [from_ns, to_ns + 1]).collect();
        bounds.sort_unstable();
        bounds.dedup();
        let packets = vec![0; bounds.len() + 1];
        Spans { spans, bounds, packets }
    }

    fn add(&mut self, time_ns: i64) {
        self.packets[self.bounds.partition_point(|&bound| bound <= time_ns)] += 1;
    }

    fn packets(&self) -> Vec<u64> {
        let place = |bound: i64| self.bounds.partition_point(|&other| other <= bound);
        let of = |&(from_ns, to_ns): &(i64, i64)| self.packets[place(from_ns)..place(to_ns + 1)].iter().sum();
        self.spans.iter().map(of).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ends_of_a_span_belong_to_it() {
        let spans = [(10, 20), (15, 15), (0, 100), (21, 30)];
        let mut counted = Spans::new(&spans);
        let times = [9, 10, 15, 15, 20, 21, 31, 101];
        times.iter().for_each(|&time_ns| counted.add(time_ns));
        assert_eq!(counted.packets(), [4, 2, 7, 1]);
    }
}
