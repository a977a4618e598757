//! What a pattern remembers of the matches so far: fed with them in order, it says with which of them the
//! pattern holds.
//!
//! Time is that of the matches. A match that comes late counts at the time of the latest one before it, and is
//! counted as late. A later era begins anew: nothing from before it counts. Of an earlier era nothing counts any
//! more.

use crate::count::{BATCH, Counts};
use crate::matches::{Held, Hit, Match};
use crate::pattern::{Pattern, Rule};
use crate::sequence::Sequences;
use scope_packet::Moment;

/// Memory of a pattern where nothing else is asked for, bytes.
pub const COUNT_BYTES_DEFAULT: usize = 64 << 20;

const _: () = assert!(BATCH == crate::sequence::BATCH);

/// The state of one pattern.
#[derive(Debug)]
pub struct PatternState {
    keys: Keys,
    now: Moment,
    matches: u64,
    late: u64,
    past: u64,
}

#[derive(Debug)]
enum Keys {
    Counts(Box<Counts>),
    Sequences(Box<Sequences>),
}

/// What a pattern's state holds, and what it couldn't hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PatternReport {
    /// Matches that were evaluated.
    pub matches: u64,
    /// Of these, those that came late: they counted at the time of the latest one before them.
    pub late: u64,
    /// Matches of an era that was over: not evaluated.
    pub past: u64,
    /// Keys that are held exactly, some of which may be over.
    pub keys: u64,
    /// About how many keys the sketch counts now.
    pub keys_sketched: u64,
    /// Matches that the sketch counted so far.
    pub matches_sketched: u64,
    /// Since when some counts are a sketch's; `None`: all are exact.
    pub degraded_since: Option<Moment>,
    /// Keys of sequences that were evicted at the bound before they were over.
    pub evicted: u64,
    /// Memory that it takes, bytes.
    pub bytes: u64,
}

impl PatternState {
    /// No match came yet. `bytes` bounds its memory; `seed` is unknown to who sends packets, and differs from run
    /// to run.
    pub fn new(pattern: &Pattern, bytes: usize, seed: [u64; 2]) -> PatternState {
        let span_ns = pattern.span_ns();
        let keys = match pattern.rule() {
            Rule::Count { needed } => Keys::Counts(Box::new(Counts::new(needed, span_ns, bytes, seed))),
            Rule::Sequence => {
                Keys::Sequences(Box::new(Sequences::new(pattern.filters().len(), span_ns, bytes, seed)))
            }
        };
        PatternState { keys, now: Moment::BEGIN, matches: 0, late: 0, past: 0 }
    }

    /// Evaluates matches in their order ([`Match::order`]); adds to `hits` those with which the pattern holds.
    pub fn feed(&mut self, matches: &[Match], hits: &mut Vec<Hit>) {
        let mut at = 0;
        while let Some(first) = matches.get(at) {
            if first.at.era < self.now.era {
                self.past += 1;
                at += 1;
                continue;
            }
            if first.at.era > self.now.era {
                self.begin_era(first.at.era);
            }
            let mut times_ns = [0; BATCH];
            let mut len = 0;
            let of_era = matches[at..].iter().take_while(|one| one.at.era == self.now.era);
            for (time_ns, one) in times_ns.iter_mut().zip(of_era) {
                self.late += u64::from(one.at.time_ns < self.now.time_ns);
                self.now.time_ns = self.now.time_ns.max(one.at.time_ns);
                *time_ns = self.now.time_ns;
                len += 1;
            }
            self.batch(at, &matches[at..at + len], &times_ns[..len], hits);
            at += len;
        }
    }

    fn batch(&mut self, from: usize, matches: &[Match], times_ns: &[i64], hits: &mut Vec<Hit>) {
        let era = self.now.era;
        let mut hit = |index: usize, held| {
            hits.push(Hit { index: from + index, at: Moment::new(era, times_ns[index]), held });
        };
        match &mut self.keys {
            Keys::Counts(counts) => {
                counts.count(matches, times_ns, |index, exact| hit(index, Held::Count { exact }));
            }
            Keys::Sequences(sequences) => {
                sequences
                    .follow(matches, times_ns, |index, first_ns| hit(index, Held::Sequence { first_ns }));
            }
        }
        self.matches += matches.len() as u64;
    }

    fn begin_era(&mut self, era: u64) {
        self.now = Moment::new(era, 0);
        match &mut self.keys {
            Keys::Counts(counts) => counts.clear(),
            Keys::Sequences(sequences) => sequences.clear(),
        }
    }

    /// No match before `settled` comes any more. Frees memory of some keys that are over: called now and then, of
    /// all.
    pub fn advance(&mut self, settled: Moment) {
        if settled <= self.now || settled == Moment::END {
            return;
        }
        if settled.era > self.now.era {
            self.begin_era(settled.era);
        }
        self.now = settled;
        match &mut self.keys {
            Keys::Counts(counts) => counts.advance(settled.time_ns),
            Keys::Sequences(sequences) => sequences.advance(settled.time_ns),
        }
    }

    /// What it holds by now.
    pub fn report(&self) -> PatternReport {
        let report = PatternReport {
            matches: self.matches,
            late: self.late,
            past: self.past,
            ..PatternReport::default()
        };
        match &self.keys {
            Keys::Counts(counts) => PatternReport {
                keys: counts.keys() as u64,
                keys_sketched: counts.keys_sketched(self.now.time_ns),
                matches_sketched: counts.sketched,
                degraded_since: counts.sketched_since_ns().map(|ns| Moment::new(self.now.era, ns)),
                bytes: counts.bytes() as u64,
                ..report
            },
            Keys::Sequences(sequences) => PatternReport {
                keys: sequences.keys() as u64,
                evicted: sequences.evicted(),
                bytes: sequences.bytes() as u64,
                ..report
            },
        }
    }
}
