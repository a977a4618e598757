//! A dump's filter for packets of one link type: their keys first, all of a segment at once, then the filter
//! where those say maybe.

use scope_filter::{Filter, FilterEngine, FilterInput, Predicate};
use scope_packet::{Headers, LinkType};
use scope_ring::search::PATTERNS_MAX;
use scope_ring::{Candidate, KeyTest};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// From so many packets on a filter runs as machine code: making it takes as long as interpreting it for
/// about so many, and of a thousand dumps that begin at once most never evaluate so many.
const NATIVE_FROM: u64 = 16_384;

/// A dump's filter for packets of one link type.
pub(crate) struct Sieve {
    link_type: LinkType,
    keys: KeyTest,
    predicate: Predicate,
    engine: FilterEngine,
    evaluated: AtomicU64,
    /// Why no machine code could be made of it.
    interpreted: OnceLock<String>,
}

/// Which keys a packet of this link type can have that `filter` matches: at least those.
pub fn keys(filter: &Filter, link_type: LinkType) -> KeyTest {
    let patterns = filter.screen(link_type).patterns(PATTERNS_MAX).into_iter();
    let patterns: Vec<_> = patterns.map(|pattern| (pattern.mask, pattern.value)).collect();
    KeyTest::any_of(&patterns)
}

impl Sieve {
    /// Derives the key test from the filter: some 10 µs to milliseconds.
    pub(crate) fn new(filter: &Filter, engine: FilterEngine, link_type: LinkType) -> Sieve {
        let predicate = filter.for_link(link_type);
        let keys = keys(filter, link_type);
        Sieve {
            link_type,
            keys,
            predicate,
            engine,
            evaluated: AtomicU64::new(0),
            interpreted: OnceLock::new(),
        }
    }

    /// Link type of the packets.
    pub(crate) fn link_type(&self) -> LinkType {
        self.link_type
    }

    /// Passes every packet that the filter matches.
    pub(crate) fn keys(&self) -> &KeyTest {
        &self.keys
    }

    /// Which of at most [`scope_filter::FILTER_INPUTS_MAX`] packets the filter matches: a bit each.
    pub(crate) fn matches<'a>(&self, candidates: &[Candidate<'a>]) -> u64 {
        let ask = |candidate: &Candidate<'a>| {
            let block = candidate.block;
            let headers = Headers::parse(self.link_type, block.data());
            FilterInput::new(&headers, candidate.key, block.data(), block.original_len())
        };
        let asked: Vec<FilterInput<'a>> = candidates.iter().map(ask).collect();
        self.count(asked.len() as u64);
        self.predicate.matches_batch(&asked, u64::MAX)
    }

    /// Makes machine code of the filter once it has been evaluated often. The interpreter gives the same
    /// result.
    fn count(&self, packets: u64) {
        let before = self.evaluated.fetch_add(packets, Ordering::Relaxed);
        if self.engine == FilterEngine::Native
            && before < NATIVE_FROM
            && before + packets >= NATIVE_FROM
            && let Err(error) = self.predicate.make_native()
        {
            let _ = self.interpreted.set(error.to_string()); // passed once
        }
    }

    /// Why the interpreter answers although there should be machine code.
    pub(crate) fn interpreted(&self) -> Option<&str> {
        self.interpreted.get().map(String::as_str)
    }
}
