//! What a dump asks of packets of one link type: their keys first, all of a segment at once, the filter where those say maybe.

use crate::walk::Candidate;
use scope_filter::{Asked, Filter, FilterEngine, Predicate};
use scope_packet::{Headers, LinkType};
use scope_ring::KeyTest;
use scope_ring::search::PATTERNS_MAX;

/// A dump's filter for packets of one link type.
pub(crate) struct Sieve {
    link_type: LinkType,
    keys: KeyTest,
    predicate: Predicate,
}

impl Sieve {
    /// Compiles the filter and derives from it what is asked of the keys: some 10 µs to milliseconds.
    pub(crate) fn new(filter: &Filter, engine: FilterEngine, link_type: LinkType) -> Sieve {
        let predicate = filter.for_link(link_type);
        if engine == FilterEngine::Native {
            let _ = predicate.make_native(); // without it the interpreter answers the same
        }
        let patterns = filter.screen(link_type).patterns(PATTERNS_MAX).into_iter();
        let patterns: Vec<_> = patterns.map(|pattern| (pattern.mask, pattern.value)).collect();
        Sieve { link_type, keys: KeyTest::any_of(&patterns), predicate }
    }

    /// Link type of the packets.
    pub(crate) fn link_type(&self) -> LinkType {
        self.link_type
    }

    /// Passes every packet that the filter takes.
    pub(crate) fn keys(&self) -> &KeyTest {
        &self.keys
    }

    /// Which of at most [`scope_filter::ASKED_MAX`] packets the filter takes: a bit each.
    pub(crate) fn takes<'a>(&self, candidates: &[Candidate<'a>]) -> u64 {
        let ask = |candidate: &Candidate<'a>| {
            let block = candidate.block;
            let headers = Headers::parse(self.link_type, block.data());
            Asked::new(&headers, candidate.key, block.data(), block.original_len())
        };
        let asked: Vec<Asked<'a>> = candidates.iter().map(ask).collect();
        self.predicate.matches_batch(&asked, u64::MAX)
    }
}
